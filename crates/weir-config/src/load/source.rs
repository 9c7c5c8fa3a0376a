//! Where a config comes from: a file, a text, a bundle, or what is embedded.

use super::super::diagnostic::{Diagnostic, Diagnostics};
use super::super::node::Node;
use super::super::parse::{parse, parse_shared};
use super::super::schema::Supplied;
use super::super::substitute::substitute;
use super::super::texts::Text;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Paths tried without `-c`, in this order.
pub const SEARCH: &[&str] = &["./weir.yaml", "/etc/weir/weir.yaml"];

/// The config used if no file is found.
pub const EMBEDDED: &str = include_str!("../default.yaml");

/// The source of a config.
#[derive(Clone, Debug)]
pub struct Source {
    origin: Origin,
    variables: Vec<(String, String)>,
    pub(super) credentials: Vec<String>,
    /// Variables come from `variables` alone, never from this machine's environment or files.
    pub(super) is_sealed: bool,
    /// See [`Source::ranked`].
    pub(super) is_ranked: bool,
    /// See [`Source::supplied`].
    pub(super) supplied: Option<Supplied>,
    /// The folder of the running bundle, if the config has a `source`. All clones share it.
    pub(super) bundle: Arc<RwLock<Option<PathBuf>>>,
}

#[derive(Clone, Debug)]
enum Origin {
    Embedded,
    File(PathBuf),
    /// The embedded default until one of [`SEARCH`] appears; from then on that file, even if it is removed later.
    Search(Arc<OnceLock<PathBuf>>),
    Text {
        name: PathBuf,
        /// All clones share it.
        text: Arc<RwLock<Arc<str>>>,
    },
}

impl Source {
    /// The given file, or else the first of [`SEARCH`] that exists, or else the embedded default until one of them
    /// exists. Each load searches again.
    pub fn find(given: Option<&Path>) -> Self {
        Self::new(match given.or(found()) {
            Some(path) => Origin::File(path.to_owned()),
            None => Origin::Search(Arc::default()),
        })
    }

    /// This file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Origin::File(path.into()))
    }

    /// This text, called `name` in diagnostics; relative paths in it are relative to the folder of `name`.
    pub fn text(name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let text = Arc::new(RwLock::new(Arc::from(text.into())));
        Self::new(Origin::Text { name: name.into(), text })
    }

    /// Replaces the text that this source and all its clones load from now on, and returns the one before. `None` if
    /// the source is no text; then nothing changes.
    pub fn set_text(&self, text: impl Into<Arc<str>>) -> Option<Arc<str>> {
        let Origin::Text { text: known, .. } = &self.origin else { return None };
        Some(std::mem::replace(&mut *known.write().unwrap_or_else(PoisonError::into_inner), text.into()))
    }

    /// This text, with variables that [`variables_of`](super::variables_of) found elsewhere. `${…}` in it never reads
    /// this machine's environment or files.
    pub fn sealed(
        name: impl Into<PathBuf>,
        text: impl Into<String>,
        variables: Vec<(String, String)>,
    ) -> Self {
        Self { variables, is_sealed: true, ..Self::text(name, text) }
    }

    /// The config used if no file is found.
    pub fn embedded() -> Self {
        Self::new(Origin::Embedded)
    }

    /// Lets the order of `routes` decide between those with equally good hosts and paths, instead of the number of
    /// conditions and `priority`. For configs translated from a system with another order of precedence, such as the
    /// Gateway API; an operator's file has no key for it.
    pub const fn ranked(mut self) -> Self {
        self.is_ranked = true;
        self
    }

    /// Lets upstreams have endpoints that this program supplies and changes without a reload. They need no `endpoints`.
    pub fn supplied(self, supplied: Supplied) -> Self {
        Self { supplied: Some(supplied), ..self }
    }

    /// The endpoints that this program supplies.
    pub const fn supplies(&self) -> Option<&Supplied> {
        self.supplied.as_ref()
    }

    fn new(origin: Origin) -> Self {
        Self {
            origin,
            variables: Vec::new(),
            is_sealed: false,
            is_ranked: false,
            supplied: None,
            credentials: vec!["key_auth".to_owned()],
            bundle: Arc::default(),
        }
    }

    /// The folder of the running bundle. `None` if there is no source or it has sent nothing.
    pub fn bundle(&self) -> Option<PathBuf> {
        self.bundle.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes this source and all its clones load the bundle in this folder.
    pub fn set_bundle(&self, folder: Option<PathBuf>) {
        *self.bundle.write().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// Adds a variable that overrides one of the same name in the environment.
    pub fn with_variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Names the filters that know consumers, so that `consumers` may hold credentials for them. Default `key_auth`.
    pub fn with_credentials<'a>(mut self, filters: impl IntoIterator<Item = &'a str>) -> Self {
        self.credentials = filters.into_iter().map(str::to_owned).collect();
        self
    }

    /// Whether this is the embedded default, which needs the built-in origin.
    pub fn is_embedded(&self) -> bool {
        match &self.origin {
            Origin::Embedded => true,
            Origin::Search(appeared) => appeared.get().is_none(),
            Origin::File(_) | Origin::Text { .. } => false,
        }
    }

    /// The path, if the source is a file.
    pub fn path(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(path) => Some(path),
            Origin::Search(appeared) => appeared.get().map(PathBuf::as_path),
            Origin::Embedded | Origin::Text { .. } => None,
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let own = self.variables.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        own.or_else(|| if self.is_sealed { None } else { std::env::var(name).ok() })
    }

    /// A value of `admin`. Read before variables are filled in everywhere, because it decides which files belong to
    /// the config.
    pub(super) fn admin_value(&self, tree: &Node, key: &str) -> Option<Node> {
        let mut node = tree.get("admin")?.get(key)?.clone();
        // Mistakes in it are reported once the whole tree is read.
        substitute(
            &mut node,
            &|name: &str| self.variable(name),
            &mut Vec::new(),
            &mut Diagnostics::default(),
        );
        Some(node)
    }

    pub(super) fn read(
        &self,
        files: &mut Vec<PathBuf>,
        diagnostics: &mut Diagnostics,
        texts: &mut Vec<Text>,
    ) -> Option<Node> {
        let embedded = |diagnostics: &mut Diagnostics, texts: &mut Vec<Text>| {
            let name = Path::new("(embedded default)");
            texts.push(Text { path: name.to_owned(), text: EMBEDDED.into() });
            parse(EMBEDDED, name, diagnostics)
        };
        match &self.origin {
            Origin::Embedded => embedded(diagnostics, texts),
            Origin::Text { name, text } => {
                let text = Arc::clone(&text.read().unwrap_or_else(PoisonError::into_inner));
                let tree = parse_shared(&text, name, diagnostics);
                texts.push(Text { path: name.clone(), text });
                tree
            }
            Origin::File(path) => read_file(path, files, diagnostics, texts),
            Origin::Search(appeared) => {
                // Watch these paths even if they do not exist yet.
                files.extend(SEARCH.iter().map(PathBuf::from));
                if let Some(path) = found() {
                    appeared.get_or_init(|| path.to_owned());
                }
                match appeared.get() {
                    Some(path) => read_file(path, files, diagnostics, texts),
                    None => embedded(diagnostics, texts),
                }
            }
        }
    }
}

/// The path in a value, relative to the file that contains it.
pub(super) fn beside_its_file(node: &Node) -> Option<PathBuf> {
    let text = node.as_text().filter(|text| !text.is_empty() && !node.is_switch())?;
    Some(node.at.file.parent().map_or_else(|| PathBuf::from(text), |folder| folder.join(text)))
}

/// The first of [`SEARCH`] that exists.
fn found() -> Option<&'static Path> {
    SEARCH.iter().map(Path::new).find(|path| path.exists())
}

pub(super) fn read_file(
    path: &Path,
    files: &mut Vec<PathBuf>,
    diagnostics: &mut Diagnostics,
    texts: &mut Vec<Text>,
) -> Option<Node> {
    files.push(path.to_owned());
    match Text::read(path) {
        Ok(text) => {
            let text = Arc::from(text);
            let tree = parse_shared(&text, path, diagnostics);
            texts.push(Text { path: path.to_owned(), text });
            tree
        }
        Err(error) => {
            let message = format!("cannot read {}: {error}", path.display());
            diagnostics.push(Diagnostic::error("file-unreadable", message));
            None
        }
    }
}
