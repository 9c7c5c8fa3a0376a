//! Stores: where they are, and whether they can be spoken to. Nothing is connected before the first question.

use super::Compiler;
use crate::config::schema;
use crate::config::units::ByteSize;
use crate::store::{self, Place, Stores};
use std::ops::RangeInclusive;
use std::path::Path;

/// Most bytes of a file of certificates.
const CA_BYTES: u64 = 1024 * 1024;

/// How large a store in memory can be, in bytes.
const MEMORY: RangeInclusive<u64> = 1024 * 1024..=1024 * 1024 * 1024 * 1024;

impl Compiler<'_> {
    pub(super) fn stores(&mut self) -> Stores {
        let config = self.config;
        let mut stores = Stores::default();
        for (name, written) in config.stores.iter() {
            if let Some(memory) = written.memory {
                if self.memory(name, written, memory) {
                    stores.memory.insert(name.to_owned(), memory.get());
                }
            } else if let Some(place) = self.store(name, written) {
                stores.redis.insert(name.to_owned(), place);
            }
        }
        stores
    }

    /// Whether a store is memory and nothing else, and of a size that can be.
    fn memory(&mut self, name: &str, written: &schema::Store, memory: ByteSize) -> bool {
        let alone = schema::Store { memory: Some(memory), ..schema::Store::default() };
        if *written != alone {
            let message = "the store is memory of this gateway, and a server elsewhere";
            let hint = "write `memory` alone, and what is shared with other gateways as another store";
            self.error(&format!("stores.{name}"), "store-unusable", message, Some(hint.to_owned()));
            return false;
        }
        let sound = MEMORY.contains(&memory.get());
        if !sound {
            let message = format!("{memory} is no size for a store; expected 1MiB to 1TiB");
            self.error(
                &format!("stores.{name}.memory"),
                "bad-value",
                message,
                Some("write 256MiB".to_owned()),
            );
        }
        sound
    }

    fn store(&mut self, name: &str, written: &schema::Store) -> Option<Place> {
        let path = format!("stores.{name}");
        let Some(url) = &written.redis else {
            let hint = "write redis: redis://127.0.0.1:6379, or memory: 256MiB";
            self.error(&path, "store-unusable", "the store is nowhere", Some(hint.to_owned()));
            return None;
        };
        let before = self.found.errors();
        if !written.nodes.is_empty() && !written.cluster {
            let hint = "write cluster: true, or leave `nodes` out";
            self.error(
                &format!("{path}.nodes"),
                "store-unusable",
                "only a cluster has nodes",
                Some(hint.to_owned()),
            );
        }
        if written.timeout.is_zero() || written.timeout.get().as_secs() > 10 {
            let hint = "write a time up to 10s, such as 100ms";
            self.error(
                &format!("{path}.timeout"),
                "bad-value",
                "no answer would come in time, or requests would hang",
                Some(hint.to_owned()),
            );
        }
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if written.prefix.is_empty() || written.prefix.len() > 64 || !written.prefix.bytes().all(sound) {
            let hint = "use up to 64 letters, digits, `-`, `_`, `.` and `:`";
            self.error(
                &format!("{path}.prefix"),
                "bad-value",
                "it cannot begin a key",
                Some(hint.to_owned()),
            );
        }
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
            // What is wrong is told without the URL, which may hold a password.
            if let Err(e) = store::check(url, ca.as_deref()) {
                let hint = "write redis://HOST:PORT, or rediss://HOST:PORT for TLS";
                self.error(
                    &format!("{path}.{key}"),
                    "store-unusable",
                    format!("the URL cannot be used: {e}"),
                    Some(hint.to_owned()),
                );
            }
        }
        (self.found.errors() == before).then(|| Place {
            urls: std::iter::once(url).chain(&written.nodes).cloned().collect(),
            cluster: written.cluster,
            ca,
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
