//! The files of a config as written, kept so that a config can be shown, compared and run again later.

use super::diagnostic::Diagnostics;
use super::node::{Node, Value};
use super::parse::{MAX_BYTES, parse_shared};
use super::path_scope::PathScope;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One file as written. Variables are not filled in, so it holds a secret only if its author wrote the secret there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The path as given on the command line or by `include`.
    pub path: PathBuf,
    /// The content.
    pub text: Arc<str>,
}

impl Text {
    /// Reads a file of a config.
    pub(super) fn read(path: &Path) -> std::io::Result<String> {
        if std::fs::metadata(path)?.len() > MAX_BYTES as u64 {
            return Err(std::io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
        }
        let bytes = std::fs::read(path)?;
        String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8 text"))
    }
}

/// All files of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// Hand-written files: the main one, then the files it includes.
    pub written: Vec<Text>,
    /// This node's own file, which names the source of the others. None if the config has no `source`.
    pub bootstrap: Option<Text>,
    /// The file that the admin API writes (`admin.writes`), if it exists yet.
    pub managed: Option<Text>,
    /// The path of that file, even if it does not exist yet.
    pub managed_path: Option<PathBuf>,
    /// The folder of the history (`admin.state`).
    pub state: Option<PathBuf>,
    /// The digest of the hand-written files. Empty if neither `admin.writes` nor `admin.state` needs it.
    pub hand: String,
    /// The digest of all files.
    pub hash: String,
}

/// Inputs of a load that replace files on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides<'a> {
    /// The hand-written files of an earlier revision.
    pub written: Option<&'a [Text]>,
    /// The coming content of the managed file: its tree, whose positions may be those of a request, and its text.
    pub managed: Option<(&'a Node, &'a Text)>,
    /// The folder of a bundle from a source, about to run.
    pub bundle: Option<&'a Path>,
    /// Limits the files that values from the API may name.
    pub scope: Option<&'a PathScope>,
}

impl Texts {
    /// The tree of the managed file; empty if the file does not exist.
    pub fn managed_tree(&self) -> Option<Node> {
        let managed = self.managed.as_ref()?;
        let tree = parse_shared(&managed.text, &managed.path, &mut Diagnostics::default())?;
        matches!(tree.value, Value::Map(_)).then_some(tree)
    }

    /// The total size of the texts in bytes.
    pub fn bytes(&self) -> usize {
        self.written.iter().chain(&self.managed).map(|text| text.text.len()).sum()
    }
}
