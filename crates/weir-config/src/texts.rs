//! The files of a config as they were written, so that one can be shown, compared and run again later.

use super::diagnostic::Diagnostics;
use super::node::{Node, Value};
use super::parse::{MAX_BYTES, parse_shared};
use super::path_scope::PathScope;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One file as it was written: variables are not filled in, so a secret is here only where somebody wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// As it was named on the command line or by `include`.
    pub path: PathBuf,
    /// What stands in it.
    pub text: Arc<str>,
}

impl Text {
    /// What stands in a file of a config.
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
    /// The files that people write: the main one, then those it includes.
    pub written: Vec<Text>,
    /// The file that names a source, where the others come from one. It is this node's own.
    pub bootstrap: Option<Text>,
    /// The file that the admin API writes (`admin.writes`), if there is one yet.
    pub managed: Option<Text>,
    /// Where that file is or will be.
    pub managed_path: Option<PathBuf>,
    /// Where the history is (`admin.state`).
    pub state: Option<PathBuf>,
    /// The digest of what people wrote. Empty where neither `admin.writes` nor `admin.state` asks for it.
    pub hand: String,
    /// The digest of everything.
    pub hash: String,
}

/// What a load takes from elsewhere than from the files on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides<'a> {
    /// The files that people write, as an earlier revision has them.
    pub written: Option<&'a [Text]>,
    /// What the managed file is about to say: its tree, whose places may be those of a request, and its text.
    pub managed: Option<(&'a Node, &'a Text)>,
    /// The folder of a bundle that a source sent, which is about to run.
    pub bundle: Option<&'a Path>,
    /// Which files the values that came over the API may name.
    pub scope: Option<&'a PathScope>,
}

impl Texts {
    /// The tree of the managed file; an empty one where there is none.
    pub fn managed_tree(&self) -> Option<Node> {
        let managed = self.managed.as_ref()?;
        let tree = parse_shared(&managed.text, &managed.path, &mut Diagnostics::default())?;
        matches!(tree.value, Value::Map(_)).then_some(tree)
    }

    /// How many bytes the texts have.
    pub fn bytes(&self) -> usize {
        self.written.iter().chain(&self.managed).map(|text| text.text.len()).sum()
    }
}
