//! Stores: where they are, and whether their settings are usable. No connection is made before the first use.

use super::Compiler;
use std::ops::RangeInclusive;
use std::path::Path;
use weir_config::schema;
use weir_config::units::ByteSize;
use weir_filter::store::{self, Place, Room, Server, Stores};

/// Most bytes of a certificate file.
const CA_BYTES: u64 = 1024 * 1024;

/// The range of sizes in memory, and on disk, in bytes.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;
const DISK: RangeInclusive<u64> = 1 << 24..=1 << 50;

impl Compiler<'_> {
    pub(super) fn stores(&mut self) -> Stores {
        let config = self.config;
        let mut stores = Stores::default();
        for (name, written) in config.stores.iter() {
            if written.memory.is_some() || written.disk.is_some() {
                if let Some(room) = self.room(name, written) {
                    if let Some((path, _)) = &room.disk
                        && let Some(other) = stores.on_disk(path)
                    {
                        let message =
                            format!("{} is the disk of the store `{other}` already", path.display());
                        let hint = "give each store a folder of its own".to_owned();
                        self.error(
                            &format!("stores.{name}.disk.path"),
                            "store-unusable",
                            message,
                            Some(hint.into()),
                        );
                        continue;
                    }
                    stores.memory.insert(name.to_owned(), room);
                }
            } else if let Some(place) = self.store(name, written) {
                stores.shared.insert(name.to_owned(), place);
            }
        }
        stores
    }

    /// A store that is memory, perhaps with a disk, and nothing else.
    fn room(&mut self, name: &str, written: &schema::Store) -> Option<Room> {
        let alone =
            schema::Store { memory: written.memory, disk: written.disk.clone(), ..schema::Store::default() };
        if *written != alone {
            let message = "the store has both `memory` and a server; only one is allowed";
            let hint = "leave only `memory`, and define another store for data shared with other gateways";
            self.error(&format!("stores.{name}"), "store-unusable", message, Some(hint.into()));
            return None;
        }
        let Some(memory) = written.memory else {
            let message = "a store needs memory beside its disk: frequent answers are served from memory";
            let hint = "write memory: 256MiB beside it".to_owned();
            self.error(&format!("stores.{name}"), "store-unusable", message, Some(hint.into()));
            return None;
        };
        let disk = written.disk.as_ref();
        let sound = self.size(&format!("stores.{name}.memory"), memory, &MEMORY, "1MiB to 1TiB")
            & disk.is_none_or(|disk| {
                self.size(&format!("stores.{name}.disk.size"), disk.size, &DISK, "16MiB to 1PiB")
            });
        let disk = disk.map(|disk| (disk.path.0.clone(), disk.size.get()));
        sound.then_some(Room { memory: memory.get(), disk })
    }

    /// Whether a store may have this size.
    fn size(&mut self, path: &str, size: ByteSize, sizes: &RangeInclusive<u64>, told: &str) -> bool {
        let sound = sizes.contains(&size.get());
        if !sound {
            let message = format!("{size} is not a size for a store; expected {told}");
            self.error(path, "bad-value", message, Some("write 256MiB".into()));
        }
        sound
    }

    fn store(&mut self, name: &str, written: &schema::Store) -> Option<Place> {
        let path = format!("stores.{name}");
        if written.fleet.is_some() {
            return self.fleet_store(&path, written);
        }
        let Some(url) = &written.redis else {
            let hint = "write redis: redis://127.0.0.1:6379, fleet: {}, or memory: 256MiB";
            self.error(&path, "store-unusable", "the store is nowhere", Some(hint.into()));
            return None;
        };
        let before = self.found.errors();
        if !written.nodes.is_empty() && !written.cluster {
            let hint = "write cluster: true, or leave `nodes` out";
            self.error(
                &format!("{path}.nodes"),
                "store-unusable",
                "only a cluster has nodes",
                Some(hint.into()),
            );
        }
        self.time_and_prefix(&path, written);
        let ca = match &written.ca {
            Some(file) => {
                self.files.push(file.0.clone());
                if self.misses_file(&path) {
                    return None;
                }
                match read(&file.0) {
                    Ok(ca) => Some(ca),
                    Err(e) => {
                        self.error(&format!("{path}.ca"), "file-unreadable", e, None);
                        return None;
                    }
                }
            }
            None => None,
        };
        for (key, url) in std::iter::once(("redis".to_owned(), url))
            .chain(written.nodes.iter().enumerate().map(|(at, url)| (format!("nodes[{at}]"), url)))
        {
            // The message omits the URL, which may hold a password.
            if let Err(e) = store::check(url, ca.as_deref()) {
                let hint = "write redis://HOST:PORT, or rediss://HOST:PORT for TLS";
                let message = format!("the URL cannot be used: {e}");
                self.error(&format!("{path}.{key}"), "store-unusable", message, Some(hint.into()));
            }
        }
        (self.found.errors() == before).then(|| Place {
            server: Server::Redis {
                urls: std::iter::once(url).chain(&written.nodes).cloned().collect(),
                cluster: written.cluster,
                ca,
            },
            timeout: written.timeout.get(),
            prefix: written.prefix.clone(),
        })
    }

    fn time_and_prefix(&mut self, path: &str, written: &schema::Store) {
        if written.timeout.is_zero() || written.timeout.get().as_secs() > 10 {
            let hint = "write a time up to 10s, such as 100ms";
            self.error(
                &format!("{path}.timeout"),
                "bad-value",
                "no answer would come in time, or requests would hang",
                Some(hint.into()),
            );
        }
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if written.prefix.is_empty() || written.prefix.len() > 64 || !written.prefix.bytes().all(sound) {
            let hint = "use up to 64 letters, digits, `-`, `_`, `.` and `:`";
            self.error(&format!("{path}.prefix"), "bad-value", "it cannot begin a key", Some(hint.into()));
        }
    }

    /// A store on a fleet node. A bundle is also checked without a fleet: there each gateway counts for itself.
    fn fleet_store(&mut self, path: &str, written: &schema::Store) -> Option<Place> {
        let before = self.found.errors();
        let alone = schema::Store {
            fleet: written.fleet.clone(),
            timeout: written.timeout,
            prefix: written.prefix.clone(),
            ..schema::Store::default()
        };
        if *written != alone {
            let message = "the store has both `fleet` and a server; only one is allowed";
            let hint = "write `fleet: {}` with `timeout` and `prefix` alone, or leave it out";
            self.error(path, "store-unusable", message, Some(hint.into()));
        }
        self.time_and_prefix(path, written);
        let source = self.config.source.as_ref();
        if source.is_some_and(|source| source.etcd.is_none()) {
            let message =
                "the nodes of this fleet cannot elect one of them, because their source is not etcd";
            let hint = "write redis: redis://127.0.0.1:6379, or have the nodes follow an etcd";
            self.error(path, "store-unusable", message, Some(hint.into()));
        }
        (self.found.errors() == before).then(|| Place {
            server: Server::Fleet(source.and_then(|source| source.etcd.clone()).map(Box::new)),
            timeout: written.timeout.get(),
            prefix: written.prefix.clone(),
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(file).map(|m| m.len());
    match length {
        Ok(length) if length > CA_BYTES => Err("it is longer than 1 MiB".to_owned()),
        _ => std::fs::read(file).map_err(|e| e.to_string()),
    }
}
