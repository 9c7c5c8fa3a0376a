//! A gateway in a fleet: it gets its config from a source and reports to it.
//!
//! ```text
//!   start: cache ─► bundle laid out ─► the usual way to a config that runs ─► serve ─► thread weir-fleet
//!                                                                                        │
//!   `drive`: the machines of weir-fleet, their timers, and what they want done ◄─────────┘
//!       ├─► `remote`: etcd (`etcd`) or a web server (`http`), over the control side's HTTP client
//!       ├─► Gateway::run_bundle: check, compile, hand to the cores, as with any other change
//!       └─► the cache on the disk, the status, the metrics, the log
//! ```
//!
//! *Layout:* `drive` is the thread; `etcd` and `http` ask; `remote` is one or the other; [`Console`] is the client of
//! `weir fleet`. The crate weir-fleet decides what follows a pointer, advances steps or keeps a lease.

mod console;
mod drive;
mod http;
mod remote;

pub use console::{Console, Fleet, Silent};
pub(crate) use drive::{Follows, Handle, start};

use crate::history::mask::hash_token;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};
use std::time::Instant;
use weir_config::parse::parse;
use weir_config::schema::{Config, ConfigSource};
use weir_config::{Diagnostics, Node, Source, load};
use weir_fleet::bundle::MAIN;
use weir_fleet::pointer::{Labels, State};
use weir_fleet::{Bundle, Cache, NodeReport, Pointer};
use weir_telemetry::log;

/// The gateway's report on its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FleetStatus {
    /// Where the config comes from.
    pub source: String,
    /// The name of this node.
    pub node: String,
    /// Its labels.
    pub labels: Labels,
    /// Its zone; empty for none.
    pub zone: String,
    /// `following`; `away` if the source does not answer; `waiting` if there is no config yet.
    pub state: &'static str,
    /// The running bundle.
    pub bundle: Option<String>,
    /// Since when: RFC 3339. For a bundle from the cache, since the process began.
    pub since: Option<String>,
    /// Whether it is on disk, so that a restart finds it.
    pub cached: bool,
    /// The generation of the last pointer seen.
    pub generation: u64,
    /// Seconds since the source last answered; `None` before its first answer.
    pub contact_seconds_ago: Option<u64>,
    /// A bundle that should run but was refused.
    pub refused: Option<String>,
    /// Why it was refused.
    pub why: Option<String>,
    /// What keeps it from following, if anything.
    pub trouble: Option<String>,
    /// Whether this node advances rollouts.
    pub coordinates: bool,
}

/// The fleet as this node currently sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What should run; `None` if nothing was published.
    pub pointer: Option<Pointer>,
    /// The live nodes by name, or why they are unknown. `None` if the source is a web server, which knows no nodes.
    pub nodes: Option<Result<Vec<NodeReport>, String>>,
    /// Nodes seen in the last day that went silent without leaving.
    pub silent: Vec<NodeReport>,
}

impl Seen {
    /// For machines; `own` is the node that was asked. `None` if the source is a web server, which knows no nodes.
    ///
    /// # Errors
    /// Why the nodes are unknown.
    pub fn to_json(&self, own: &str) -> Option<Result<Value, String>> {
        let told = |node: &NodeReport| {
            let mut document = json!(node);
            if let (Some(pointer), Some(document)) = (&self.pointer, document.as_object_mut()) {
                let is_open =
                    pointer.rollout.state == State::Done || pointer.is_open_to(&node.node, &node.labels);
                document.insert("is_open".to_owned(), is_open.into());
                document.insert("wanted".to_owned(), json!(pointer.wanted(&node.node, &node.labels)));
            }
            document
        };
        Some(match self.nodes.as_ref()? {
            Ok(nodes) => {
                let nodes: Vec<Value> = nodes.iter().map(told).collect();
                Ok(json!({ "self": own, "pointer": self.pointer, "nodes": nodes, "silent": self.silent }))
            }
            Err(e) => Err(e.clone()),
        })
    }
}

/// What a start found of its fleet.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) source: ConfigSource,
    pub(crate) labels: Labels,
    pub(crate) zone: String,
    pub(crate) cache: Cache,
    /// The bundle that last ran, and the folder of its files.
    pub(crate) bundle: Option<Bundle>,
    pub(crate) folder: Option<PathBuf>,
    /// When that was found: the config is laid out, compiled and served after this.
    pub(crate) opened: Instant,
}

impl Found {
    /// The source of a config, if it has one. Loads the bundle that last ran instead of the files, unless it is
    /// damaged.
    pub(crate) fn open(source: &Source) -> Option<Self> {
        let opened = Instant::now();
        // Mistakes in it are reported when it is loaded to run.
        let config = load(source).ok()?.config;
        let written = config.source.clone()?;
        let mut cache = Cache::new(&written.cache()?.0);
        let bundle = cache.load().unwrap_or_else(|e| {
            log::error("the last good config is damaged and not used", &[("error", &e)]);
            None
        });
        let folder = bundle.as_ref().and_then(|bundle| {
            let laid_out = cache.lay_out(bundle);
            laid_out
                .inspect_err(|e| {
                    log::error("the last good config cannot be written to disk", &[("error", e)])
                })
                .ok()
        });
        source.set_bundle(folder.clone());
        let bundle = bundle.filter(|_| folder.is_some());
        let (labels, zone) = (labels(&config), config.zone.unwrap_or_default());
        Some(Self { labels, zone, source: written, cache, bundle, folder, opened })
    }
}

fn labels(config: &Config) -> Labels {
    config.labels.0.iter().cloned().collect()
}

/// Packs a bundle from the files of a config that is not a bundle: the hand-written files, and the files they name
/// below the first one's folder.
pub(crate) fn pack(texts: &[(PathBuf, Vec<u8>)], files: &[PathBuf]) -> Result<Bundle, String> {
    let (main, _) = texts.first().ok_or("there is no config yet")?;
    let full = |path: &Path| absolute(path).map_err(|e| format!("{}: {e}", path.display()));
    let folder = full(main)?.parent().map(Path::to_owned).unwrap_or_default();
    let below = |path: &Path| Some(full(path).ok()?.strip_prefix(&folder).ok()?.to_str()?.to_owned());
    let mut all = BTreeMap::new();
    for path in files.iter().filter(|path| *path != main && path.is_file()) {
        if let Some(name) = below(path) {
            all.insert(name, std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
    }
    for (path, text) in texts {
        let name = if path == main { Some(MAIN.to_owned()) } else { below(path) };
        let name = name.ok_or_else(|| format!("{} is not below {}", path.display(), folder.display()))?;
        all.insert(name, text.clone());
    }
    Bundle::new(all).map_err(|e| e.to_string())
}

/// The same bundle with the hash of `admin.token` in place of the token, and without the file that held only the
/// token. `folder` holds its files.
pub(crate) fn without_token(bundle: &Bundle, folder: &Path) -> Result<Bundle, String> {
    let mut files: BTreeMap<String, Vec<u8>> =
        bundle.files().map(|(path, text)| (path.to_owned(), text.to_vec())).collect();
    let Some(main) = files.get(MAIN).and_then(|text| std::str::from_utf8(text).ok()) else {
        return Ok(bundle.clone());
    };
    let Some((hashed, written)) = hash_token(main, &folder.join(MAIN))? else { return Ok(bundle.clone()) };
    files.insert(MAIN.to_owned(), hashed.into_bytes());
    if let Some(file) = written.strip_prefix("${file:").and_then(|rest| rest.strip_suffix('}')) {
        let file = file.strip_prefix("./").unwrap_or(file);
        let names = |text: &[u8]| {
            let text = std::str::from_utf8(text).unwrap_or_default();
            parse(text, Path::new(MAIN), &mut Diagnostics::default()).is_some_and(|tree| names(&tree, file))
        };
        if !files.iter().any(|(path, text)| path.ends_with(".yaml") && names(text)) {
            files.remove(file);
        }
    }
    Bundle::new(files).map_err(|e| e.to_string())
}

/// Whether a value below names a file, directly or through its content.
fn names(node: &Node, file: &str) -> bool {
    node.as_text().is_some_and(|text| text.ends_with(file) || text.contains(&format!("{file}}}")))
        || node.elements().iter().any(|node| names(node, file))
        || node.entries().iter().any(|(_, node)| names(node, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_as_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("key.pem"), "key").unwrap();
        std::fs::write(path("gw.yaml"), "old").unwrap();
        let texts = [(path("gw.yaml"), b"main".to_vec()), (path("routes/a.yaml"), b"a".to_vec())];
        let files = [path("key.pem"), path("gw.yaml"), path("gone"), PathBuf::from("/etc/hostname")];
        let bundle = pack(&texts, &files).unwrap();
        let found: Vec<_> = bundle.files().map(|(path, text)| (path, text.to_vec())).collect();
        assert_eq!(
            found,
            [("key.pem", b"key".to_vec()), ("routes/a.yaml", b"a".to_vec()), (MAIN, b"main".to_vec())]
        );
        let elsewhere = [(path("gw.yaml"), Vec::new()), (PathBuf::from("/etc/weir/more.yaml"), Vec::new())];
        assert!(pack(&elsewhere, &[]).unwrap_err().contains("is not below"));
    }
}
