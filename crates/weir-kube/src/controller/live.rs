//! Runs translations in the gateway of this process.

use super::Output;
use super::saved;
use crate::config::FILES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use weir_config::{Diagnostic, Mistakes, Source, Supplied, Supply};
use weir_gateway::history::{By, Origin};
use weir_gateway::{FilterStatus, Gateway};
use weir_telemetry::{Figure, log};

/// What a gateway waits for before anything is known.
pub(super) const AWAITED: &str = "the objects of the cluster";

/// The name of the config beside its files. It exists only in memory.
const MAIN: &str = "weir.yaml";

static MISSING: Figure = Figure::gauge(
    "missing_permission",
    "weir_kube_missing_permission",
    "1 for each permission that the API server denies to the service account.",
)
.of("permission");

/// A gateway and the text that it runs.
#[derive(Debug)]
pub struct Live {
    gateway: Gateway,
    source: Source,
    folder: PathBuf,
    running: Option<Arc<str>>,
    /// The text of the source before one that may be refused.
    replaced: Option<Arc<str>>,
    /// The files of translations on disk.
    files: BTreeSet<String>,
    /// Those that the running config names.
    used: BTreeSet<String>,
    /// Where the gateway reads the endpoints of upstreams.
    supplied: Supplied,
    /// What it reads there.
    supplies: BTreeMap<Arc<str>, Arc<Supply>>,
}

/// The source of a gateway that a controller programs: an empty config for now, whose files are in this folder. Nothing
/// in it reads the environment or a file by `${…}`, and the order of its routes decides.
///
/// # Errors
/// If the folder cannot be made, or others could read it.
pub fn source(folder: &Path, text: &str) -> Result<Source, String> {
    let wrong = |e: io::Error| format!("{}: {e}", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(wrong)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
    Ok(Source::sealed(folder.join(MAIN), text, Vec::new()).ranked().supplied(Supplied::default()))
}

impl Live {
    /// A gateway that was started with this source, from [`source`]. It is not ready until the controller says so.
    pub fn new(gateway: Gateway, source: Source, folder: &Path) -> Self {
        gateway.hold_readiness(Some(AWAITED.to_owned()));
        // What an earlier process left: no config names it yet, and it holds keys.
        let left = folder.join(FILES);
        match fs::remove_dir_all(&left) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn("files of an earlier run stay", &[("folder", &left.display()), ("error", &e)]);
            }
            _ => {}
        }
        Self {
            supplied: source.supplies().cloned().unwrap_or_default(),
            gateway,
            source,
            folder: folder.to_owned(),
            running: None,
            replaced: None,
            files: BTreeSet::new(),
            used: BTreeSet::new(),
            supplies: BTreeMap::new(),
        }
    }

    /// Whether the gateway runs exactly this text with these endpoints. Contents decide the names of its files.
    pub fn runs(&self, output: &Output) -> bool {
        self.has_text(output) && self.supplies == output.supplies
    }

    fn has_text(&self, output: &Output) -> bool {
        self.running.as_ref() == Some(&output.text)
    }

    /// Sets the endpoints of these upstreams. Nothing is loaded again.
    pub fn supply(&mut self, moved: BTreeMap<Arc<str>, Arc<Supply>>) {
        let supplied = caught(|| {
            let changed = self.set(moved);
            self.publish(&changed);
            Ok(())
        });
        if let Err(mistakes) = supplied {
            log::error("endpoints could not be set", &[("error", &mistakes.for_readers().to_text())]);
        }
    }

    /// Notes endpoints where the gateway reads them, and returns which differ from those before.
    fn set(&mut self, supplies: BTreeMap<Arc<str>, Arc<Supply>>) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        for (name, supply) in supplies {
            if self.supplies.get(&name) != Some(&supply) {
                self.supplied.set(&name, Arc::clone(&supply));
                changed.push(Arc::clone(&name));
                self.supplies.insert(name, supply);
            }
        }
        changed
    }

    fn publish(&self, changed: &[Arc<str>]) {
        if !changed.is_empty() {
            self.gateway.resupply(&changed.iter().map(|name| &**name).collect());
        }
    }

    /// Runs a translation. Blocks until every core has adopted it.
    ///
    /// # Errors
    /// What is wrong with it. The config before keeps running, and its files stay.
    pub fn run(&mut self, output: &Output) -> Result<(), Mistakes> {
        let ran = caught(|| self.try_to_run(output));
        if let Some(before) = self.replaced.take() {
            self.source.set_text(before); // a later reload must not find what was refused
        }
        self.remove_unused();
        ran
    }

    fn try_to_run(&mut self, output: &Output) -> Result<(), Mistakes> {
        let failed = |why: String| Mistakes::from(Diagnostic::error("files", why));
        let changed = self.set(output.supplies.clone());
        let written = self.write_files(output).map_err(failed);
        let loaded = written.and_then(|()| match self.has_text(output) {
            true => Ok(()),
            false => self.load(&output.text),
        });
        if loaded.is_ok() {
            self.supplies.retain(|name, _| output.supplies.contains_key(name));
            self.supplied.retain(|name| output.supplies.contains_key(name));
            self.used = output.files.keys().cloned().collect();
        }
        self.publish(&changed); // whether or not it is refused, what runs has these endpoints now
        loaded
    }

    fn load(&mut self, text: &Arc<str>) -> Result<(), Mistakes> {
        self.replaced = self.source.set_text(Arc::clone(text));
        self.gateway.reload_by(&By::process(Origin::Source)).map_err(|refused| refused.diagnostics)?;
        self.replaced = None;
        self.running = Some(Arc::clone(text));
        Ok(())
    }

    /// Makes readiness wait, or no longer.
    pub fn hold(&self, awaited: Option<String>) {
        self.gateway.hold_readiness(awaited);
    }

    /// Shows in metrics and in the status which permissions are missing.
    pub fn report(&self, missing: &BTreeSet<String>) {
        let figure = |permission: &String| FilterStatus {
            place: "kubernetes".to_owned(),
            filter: "weir-kube",
            what: MISSING.what,
            of: permission.clone(),
            value: 1,
            figure: &MISSING,
        };
        self.gateway.report(missing.iter().map(figure).collect());
    }

    /// The gateway.
    pub(super) const fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Whether the gateway has ended.
    pub fn has_ended(&self) -> bool {
        self.gateway.has_ended()
    }

    fn write_files(&mut self, output: &Output) -> Result<(), String> {
        for (name, content) in &output.files {
            let path = self.folder.join(plain(name)?);
            if self.files.contains(name) {
                continue; // equal names have equal contents
            }
            if let Some(parent) = path.parent() {
                let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
                made.map_err(|e| format!("{}: {e}", parent.display()))?;
            }
            saved::write(&path, content)?;
            self.files.insert(name.clone());
        }
        Ok(())
    }

    /// Removes the files that the running config does not name: those of earlier configs, and of one that was refused.
    /// They are keys that nobody needs, and a tenant could fill the volume with them.
    fn remove_unused(&mut self) {
        self.files.retain(|name| {
            let path = self.folder.join(name);
            let is_used = self.used.contains(name);
            if !is_used && let Err(e) = fs::remove_file(&path) {
                log::warn("a file of another config stays", &[("file", &path.display()), ("error", &e)]);
            }
            is_used
        });
    }
}

/// Turns a panic, which is a bug of ours, into a mistake that no object is to blame for.
///
/// What ran before goes on, and the next change tries again. Otherwise the gateway would be lost with the task that
/// panicked, and a pod that says it is ready would never change its config or its endpoints again. To end the process
/// would be worse where an object causes the panic, because all replicas have that object.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, Mistakes>) -> Result<T, Mistakes> {
    // What the work leaves half done here is either forgotten or done again; the gateway's locks survive a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Diagnostic::error("panic", format!("Weir panicked, which is a bug: {text}")).into())
    })
}

/// A path that stays below the folder of files.
fn plain(name: &str) -> Result<&Path, String> {
    let path = Path::new(name);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_below = path.parent().is_some_and(|parent| parent.starts_with(FILES));
    if is_plain && is_below { Ok(path) } else { Err(format!("{name:?} leads out of the folder {FILES:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_leaves_its_folder() {
        for (name, fits) in [
            ("files/ab.crt", true),
            ("files/a/b", true),
            ("files", false),
            ("a", false),
            ("", false),
            ("/etc/passwd", false),
            ("../a", false),
            ("files/../../a", false),
            ("./files/a", false),
        ] {
            assert_eq!(plain(name).is_ok(), fits, "{name}");
        }
    }
}
