//! Turns a file, or the embedded default, into a checked config: find, read, include, substitute, read typed,
//! cross-check.

mod source;

pub use source::{EMBEDDED, SEARCH, Source};

use super::check::{BOOTSTRAP, check};
use super::de;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::include::{include, join, put_over};
use super::mistakes::Mistakes;
use super::node::{Node, Place};
use super::parse::parse_shared;
use super::schema::Config;
use super::secrecy::{mark_secrets, unmark_file};
use super::substitute::{Reach, substitute, substitute_recorded};
use super::texts::{Overrides, Text, Texts};
use super::{digest, managed, path_scope, rename};
use serde::de::DeserializeOwned;
use source::{beside_its_file, read_file};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The variable through which the starter of the built-in origin sets its address.
pub const ORIGIN_VARIABLE: &str = "WEIR_ORIGIN";

/// The main file of a bundle.
const BUNDLE_MAIN: &str = "weir.yaml";

/// A config that could be read.
///
/// `diagnostics` may contain errors. `config` then lacks the wrong parts and only serves to find further mistakes.
/// Later stages (routes, filters) add theirs, so check [`Loaded::errors`] last before running it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The typed config.
    pub config: Config,
    /// The tree it was read from, included files merged and variables filled in.
    pub tree: Node,
    /// Every file read or named, and the folders of `include` patterns, for the watcher.
    pub files: Vec<PathBuf>,
    /// The diagnostics so far.
    pub diagnostics: Diagnostics,
    /// The files as written.
    pub texts: Texts,
}

/// A config that could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The reasons.
    pub diagnostics: Mistakes,
    /// The files to watch for a fix.
    pub files: Vec<PathBuf>,
}

/// Loads and checks a config.
///
/// # Errors
/// If there is no tree at all: a file cannot be opened or is not YAML. All other mistakes are in
/// [`Loaded::diagnostics`].
pub fn load(source: &Source) -> Result<Loaded, Unreadable> {
    load_instead(source, Overrides::default())
}

/// As [`load`], with some inputs replaced.
///
/// # Errors
/// As [`load`].
pub fn load_instead(source: &Source, instead: Overrides<'_>) -> Result<Loaded, Unreadable> {
    gather(source, instead).map(|gathered| gathered.finish(source, instead))
}

/// A config as written: all its files in one tree, variables not filled in, nothing checked.
pub struct Gathered {
    /// The tree, with the managed file merged.
    pub tree: Node,
    /// The files as written.
    pub texts: Texts,
    /// Every file read so far, for the watcher.
    pub files: Vec<PathBuf>,
    /// The diagnostics so far.
    pub diagnostics: Diagnostics,
    /// Whether it names a source that has sent nothing yet, so that only the node's own keys are here.
    pub awaits: bool,
}

/// Reads the files of a config.
///
/// # Errors
/// As [`load`].
pub fn gather(source: &Source, instead: Overrides<'_>) -> Result<Gathered, Unreadable> {
    let mut files = Vec::new();
    let mut diagnostics = Diagnostics::default();
    let mut texts = Texts::default();
    let tree = match instead.written {
        Some(written) => {
            texts.written = written.to_vec();
            files.extend(written.iter().map(|text| text.path.clone()));
            join(written, &mut diagnostics)
        }
        None => source.read(&mut files, &mut diagnostics, &mut texts.written).map(|mut tree| {
            include(&mut tree, &mut files, &mut diagnostics, &mut texts.written);
            tree
        }),
    };
    let Some(mut tree) = tree else { return Err(Unreadable { diagnostics: diagnostics.into(), files }) };
    let mut awaits = false;
    if instead.written.is_none() && tree.get("source").is_some() {
        texts.bootstrap = texts.written.drain(..).next();
        refuse_beside_source(&tree, &mut diagnostics);
        match instead.bundle.map(Path::to_owned).or_else(|| source.bundle()) {
            Some(folder) => {
                let Some(bundle) = read_bundle(&folder, &mut files, &mut diagnostics, &mut texts.written)
                else {
                    return Err(Unreadable { diagnostics: diagnostics.into(), files });
                };
                let own = std::mem::replace(&mut tree, bundle);
                put_over(&mut tree, own);
            }
            None => awaits = true,
        }
    }
    let (writes, state) = (source.admin_value(&tree, "writes"), source.admin_value(&tree, "state"));
    if let Some(node) = &writes {
        // Until the whole tree is filled in, these are the only values from outside.
        diagnostics.conceal_outside(node);
    }
    texts.managed_path = writes.as_ref().and_then(beside_its_file);
    texts.state = state.as_ref().and_then(beside_its_file);
    let keeps = texts.managed_path.is_some() || texts.state.is_some();
    if keeps {
        texts.hand = digest::of(&tree);
        texts.hash.clone_from(&texts.hand);
    }
    if let Some(path) = texts.managed_path.clone() {
        files.push(path.clone());
        if texts.written.iter().any(|text| is_same_file(&text.path, &path)) {
            let message =
                format!("{} belongs to people already: it is the config itself, or included", path.display());
            let wrong = Diagnostic::error("managed-included", message).on(&tree, "admin.writes");
            diagnostics.push(wrong.hint("name a file of its own, outside of what `include` matches"));
            return Ok(Gathered { tree, texts, files, diagnostics, awaits });
        }
        let managed = match instead.managed {
            Some((tree, text)) => Some((tree.clone(), text.clone())),
            None => managed::read(&path, &mut diagnostics),
        };
        if let Some((managed, text)) = managed {
            managed::merge_into(&mut tree, managed, &mut diagnostics);
            texts.managed = Some(text);
            texts.hash = digest::of(&tree);
        }
    }
    // After the digests: earlier versions stored digests of the files as written.
    rename::rename(&mut tree, &mut diagnostics);
    Ok(Gathered { tree, texts, files, diagnostics, awaits })
}

/// The tree of a bundle with its included files merged. A bundle must not name another source.
fn read_bundle(
    folder: &Path,
    files: &mut Vec<PathBuf>,
    diagnostics: &mut Diagnostics,
    texts: &mut Vec<Text>,
) -> Option<Node> {
    let mut tree = read_file(&folder.join(BUNDLE_MAIN), files, diagnostics, texts)?;
    include(&mut tree, files, diagnostics, texts);
    if tree.get("source").is_some() {
        let message = "a bundle cannot name a source: nodes would go from one to the next";
        diagnostics.push(Diagnostic::error("nested-source", message).on(&tree, "source"));
    }
    Some(tree)
}

/// Only a node's own keys may stand beside `source`, so that every setting has one place.
fn refuse_beside_source(tree: &Node, diagnostics: &mut Diagnostics) {
    for (key, _) in tree.entries() {
        if !BOOTSTRAP.contains(&&*key.text) {
            let message = format!("`{}` cannot stand beside `source`: it comes from there", key.text);
            let hint = format!("here belong {}; put the rest into the bundle", BOOTSTRAP.join(", "));
            let mut wrong = Diagnostic::error("not-in-bootstrap", message).hint(hint).refusing_key(&key.text);
            wrong.path = key.text.to_string();
            diagnostics.push(wrong.at(key.at.clone()));
        }
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}

// === impl Texts ===

impl Texts {
    /// The tree as written, with variables not filled in, new names for deprecated keys, and secrets marked. `None` if
    /// the main file is no longer readable.
    pub fn tree(&self) -> Option<Node> {
        let mut ignored = Diagnostics::default(); // the load has reported them
        let mut tree = join(&self.written, &mut ignored)?;
        if let Some(bootstrap) = &self.bootstrap
            && let Some(own) = parse_shared(&bootstrap.text, &bootstrap.path, &mut ignored)
        {
            put_over(&mut tree, own);
        }
        if let Some(managed) = self.managed_tree() {
            managed::merge_into(&mut tree, managed, &mut ignored);
        }
        rename::rename(&mut tree, &mut ignored);
        mark_secrets(&mut tree);
        tree.index();
        Some(tree)
    }

    /// As [`Self::tree`], for a caller who may change the managed file, whose values are not marked as secret.
    pub fn tree_for_writers(&self) -> Option<Node> {
        let mut tree = self.tree()?;
        if let Some(managed) = &self.managed {
            unmark_file(&mut tree, &managed.path);
        }
        Some(tree)
    }
}

// === impl Gathered ===

impl Gathered {
    /// Fills in variables, reads the typed config, and checks it.
    pub fn finish(self, source: &Source, instead: Overrides<'_>) -> Loaded {
        let Self { mut tree, texts, mut files, mut diagnostics, awaits } = self;
        mark_secrets(&mut tree);
        let variables = |name: &str| source.variable(name);
        if source.is_sealed {
            substitute_recorded(&mut tree, &variables, Reach::Variables, &mut diagnostics);
        } else {
            substitute(&mut tree, &variables, &mut files, &mut diagnostics);
        }
        diagnostics.conceal_outside(&tree);
        tree.index();
        let config = path_scope::within(instead.scope, || {
            let mut config = de::read::<Config>(&tree, "", &mut diagnostics).unwrap_or_default();
            config.upstreams.iter_mut().for_each(|(_, upstream)| upstream.follow_schemes());
            config.ranked = source.is_ranked;
            config.supplied.clone_from(&source.supplied);
            config
        });
        // Checks report whether files exist. Callers who may not name a file must not learn that.
        if !path_scope::refused() {
            let credentials: Vec<&str> = source.credentials.iter().map(String::as_str).collect();
            check(&config, &tree, &credentials, awaits, &mut diagnostics);
        }
        files.extend(named_files(&config));
        files.sort();
        files.dedup();
        Loaded { config, tree, files, diagnostics, texts }
    }
}

/// Reads a document that is not a config as a tree: YAML or JSON, `${VAR}` filled in, every mistake with its
/// place. `None` if it could not be read.
pub fn read_tree(source: &Source) -> (Option<Node>, Diagnostics) {
    let (mut files, mut diagnostics) = (Vec::new(), Diagnostics::default());
    let Some(mut tree) = source.read(&mut files, &mut diagnostics, &mut Vec::new()) else {
        return (None, diagnostics);
    };
    if source.is_sealed {
        substitute_recorded(&mut tree, &|name| source.variable(name), Reach::Variables, &mut diagnostics);
    } else {
        substitute(&mut tree, &|name: &str| source.variable(name), &mut files, &mut diagnostics);
    }
    (Some(tree), diagnostics)
}

/// The variables of a document that is not a config, each with its value here, so that [`Source::sealed`] can read it
/// elsewhere: names of variables, and `file:PATH`. Mistakes are left to [`read_tree`].
pub fn variables_of(source: &Source) -> Vec<(String, String)> {
    let mut ignored = Diagnostics::default();
    let tree = source.read(&mut Vec::new(), &mut ignored, &mut Vec::new());
    tree.map_or_else(Vec::new, |mut tree| {
        substitute_recorded(&mut tree, &|name| source.variable(name), Reach::Disk, &mut ignored)
    })
}

/// Reads a file that is not a config by the same rules: YAML or JSON, `${VAR}` filled in, unknown keys refused, every
/// mistake with its place. Also returns the tree, for checks across values. `None` if the file could not be read.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> (Option<(T, Node)>, Diagnostics) {
    let (tree, mut diagnostics) = read_tree(&Source::file(path));
    let Some(tree) = tree else { return (None, diagnostics) };
    let read = de::read::<T>(&tree, "", &mut diagnostics);
    (read.map(|read| (read, tree)), diagnostics)
}

// === impl Loaded ===

impl Loaded {
    /// The position of a setting, such as `routes.orders.upstream`.
    pub fn place(&self, path: &str) -> Option<Place> {
        self.tree.find(path).map(|node| node.at.clone())
    }

    /// The number of mistakes that keep this config from running.
    pub fn errors(&self) -> usize {
        self.diagnostics.errors()
    }

    /// Adds an error at the place of a setting.
    pub fn error(
        &mut self,
        path: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: Option<String>,
    ) {
        self.add(Diagnostic::error(code, message), path, hint);
    }

    /// Adds a warning at the place of a setting.
    pub fn warning(
        &mut self,
        path: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: Option<String>,
    ) {
        self.add(Diagnostic::warning(code, message), path, hint);
    }

    fn add(&mut self, diagnostic: Diagnostic, path: &str, hint: Option<String>) {
        let mut diagnostic = diagnostic.on(&self.tree, path);
        if let Some(hint) = hint {
            diagnostic = diagnostic.hint(hint);
        }
        self.diagnostics.push(diagnostic);
    }
}

// === files ===

/// Certificates and keys named by the config.
fn named_files(config: &Config) -> Vec<PathBuf> {
    let listeners = config.listeners.iter().filter_map(|(_, listener)| listener.tls.as_ref());
    let servers = listeners.flat_map(|tls| {
        let pairs = tls.certificates.iter().flat_map(|pair| [&pair.cert, &pair.key]);
        let authorities = tls.acme.iter().filter_map(|acme| acme.ca.as_ref());
        pairs.chain(tls.client_auth.iter().map(|auth| &auth.ca)).chain(authorities)
    });
    let admin = config.admin.tls.iter().flat_map(|tls| {
        let pairs = tls.certificates.iter().flat_map(|pair| [&pair.cert, &pair.key]);
        pairs.chain(tls.client_auth.iter().map(|auth| &auth.ca))
    });
    let upstreams = config.upstreams.iter().filter_map(|(_, upstream)| upstream.tls.as_ref());
    let clients =
        upstreams.flat_map(|tls| [&tls.ca, &tls.client_cert, &tls.client_key].into_iter().flatten());
    servers.chain(admin).chain(clients).map(|path| path.0.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_default_is_good() {
        let loaded = load(&Source::embedded().with_variable(ORIGIN_VARIABLE, "127.0.0.1:1234")).unwrap();
        assert!(loaded.diagnostics.is_empty(), "{}", loaded.diagnostics.to_text());
        let endpoint = &loaded.config.upstreams.get("origin").unwrap().endpoints[0];
        assert_eq!(endpoint.address.to_string(), "127.0.0.1:1234");
    }

    #[test]
    fn clones_of_a_text_load_what_was_set_last() {
        let text = |path: &str| {
            format!(
                "listeners: {{ a: {{ address: 127.0.0.1:1 }} }}\nroutes: {{ r: {{ match: {{ path: {path} }}, respond: {{}} }} }}"
            )
        };
        let source = Source::text("t.yaml", text("/a"));
        let clone = source.clone();
        assert_eq!(source.set_text(text("/b")).as_deref(), Some(text("/a").as_str()));
        assert_eq!(&*load(&clone).unwrap().texts.written[0].text, text("/b"));
        assert_eq!(Source::embedded().set_text("x"), None);
    }

    #[test]
    fn a_translated_config_may_be_empty() {
        let load = |source| load(&source).unwrap().diagnostics;
        assert!(load(Source::text("t.yaml", "{}").ranked()).is_empty());
        let lonely = "listeners: { a: { address: 127.0.0.1:1 } }";
        assert!(load(Source::text("t.yaml", lonely).ranked()).is_empty());
        assert!(
            !load(Source::text("t.yaml", "{}")).is_empty()
                && !load(Source::text("t.yaml", lonely)).is_empty()
        );
    }

    #[test]
    fn a_sealed_text_reads_neither_environment_nor_files() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("token");
        std::fs::write(&secret, "hunter2").unwrap();
        for variable in ["PATH".to_owned(), format!("file:{}", secret.display())] {
            let body = format!("respond: {{ body: \"${{{variable}}}\" }}");
            let text = format!(
                "listeners: {{ a: {{ address: 127.0.0.1:1 }} }}\nroutes: {{ r: {{ match: {{ path: / }}, {body} }} }}"
            );
            assert_eq!(
                load(&Source::text("t.yaml", text.clone())).unwrap().diagnostics.errors(),
                0,
                "{variable}"
            );
            let sealed = load(&Source::sealed("t.yaml", text, Vec::new())).unwrap();
            assert_eq!(sealed.diagnostics.errors(), 1, "{variable}");
        }
    }

    /// Not a measurement: a quadratic algorithm would take seconds here.
    #[test]
    fn thousands_of_routes_are_checked() {
        let mut text = "listeners: { a: { address: 127.0.0.1:1 } }\nroutes:\n".to_owned();
        for i in 0..3_000 {
            text.push_str(&format!("  r{i}: {{ match: {{ path: /r{i} }}, upstream: u{i} }}\n"));
        }
        text.push_str("upstreams:\n");
        for i in 0..3_000 {
            text.push_str(&format!("  u{i}: {{ endpoints: [ 127.0.0.1:2 ] }}\n"));
        }
        let loaded = load(&Source::text("t.yaml", text)).unwrap();
        assert!(loaded.diagnostics.is_empty(), "{}", loaded.diagnostics.to_text());
        assert_eq!(loaded.config.routes.len(), 3_000);
    }

    /// Too short to search for in messages about other values.
    #[test]
    fn the_name_of_a_filter_is_told_as_written() {
        let text = "listeners: { a: { address: 127.0.0.1:1 } }\nroutes:\n  \
                    r: { match: { path: /a }, respond: { status: 200 }, filters: [ \"${N}_auth\", cors, \"${N}_auth\" ] }\n";
        let loaded = load(&Source::text("t.yaml", text).with_variable("N", "h9Z")).unwrap();
        let filter = &loaded.config.routes.get("r").unwrap().filters[0];
        assert_eq!((&*filter.name, &*filter.path), ("h9Z_auth", "routes.r.filters[0].${N}_auth"));
        let told = format!("{}{}", loaded.diagnostics.to_text(), loaded.diagnostics.to_json());
        assert!(told.contains("`${N}_auth` runs before it") && !told.contains("h9Z"), "{told}");
    }

    #[test]
    fn a_path_that_is_needed_early_is_concealed_too() {
        const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
        let text =
            "listeners: { a: { address: 127.0.0.1:1 } }\nadmin: { address: 127.0.0.1:0, writes: \"${N}\" }\n";
        let loaded = load(&Source::text("t.yaml", text).with_variable("N", FOLDER)).unwrap();
        let told = format!("{}{}", loaded.diagnostics.to_text(), loaded.diagnostics.to_json());
        assert!(told.contains("cannot read ***") && !told.contains(FOLDER), "{told}");
    }

    /// Our own text in a message stays, however much it has in common with a value.
    #[test]
    fn a_value_takes_no_example_away() {
        let text = "listeners: { a: { address: \"${N}\" } }\n\
                    upstreams: { u: { endpoints: [ \"${N}\" ], timeouts: { connect: \"${N}\" } } }\n\
                    consumers: { c: { key_auth: [ \"write$$or ${X}\" ] }, d: { key_auth: [ \"VAR-or-file:PATH$$\" ] } }\n";
        let value = "http://127.0.0.1:8000 250ms 0.0.0.0:8080 orders.internal";
        let source = Source::text("t.yaml", text).with_variable("N", value).with_variable("X", "visible");
        let told = load(&source).unwrap().diagnostics.to_text();
        for example in [
            "expected e.g. 0.0.0.0:8080, [::]:8080, unix:/run/weir.sock",
            "expected e.g. 127.0.0.1:8000, orders.internal:8000",
            "expected e.g. 250ms, 3s, 5m, 1h",
            "expected visible ASCII characters without spaces",
            "write \"${VAR}\" or \"${file:PATH}\", or sha256: and its hash",
        ] {
            assert!(told.contains(example), "{example}: {told}");
        }
        assert!(!told.contains(value) && !told.contains("***"), "{told}");
    }

    #[test]
    fn a_file_may_begin_with_a_byte_order_mark() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "\u{feff}a-key\r\n").unwrap();
        let text = "consumers: { c: { key_auth: [ \"${file:key}\" ] } }\n";
        let loaded = load(&Source::text(folder.path().join("t.yaml"), text)).unwrap();
        assert!(!loaded.diagnostics.to_text().contains("key_auth"), "{}", loaded.diagnostics.to_text());
        let key = loaded.tree.find("consumers.c.key_auth[0]").and_then(Node::as_text);
        assert_eq!(key, Some("a-key"));
    }

    #[test]
    fn secrets_stay_secret() {
        let text = "consumers: { a: { key_auth: { hunter2: x } }, b: { key_auth: [hunter2], allow_ips: [bad] } }\n\
                    admin: { token: [hunter2], address: 1 }\nlisteners: { a: { address: \"${N}\" } }\n";
        let loaded = load(&Source::text("t.yaml", text).with_variable("N", "hunter2")).unwrap();
        assert!(loaded.errors() >= 3);
        assert!(!loaded.diagnostics.to_text().contains("hunter2"), "{}", loaded.diagnostics.to_text());
        assert!(!loaded.diagnostics.to_json().to_string().contains("hunter2"));
    }
}
