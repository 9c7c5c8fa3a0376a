//! `routes.*.files`: a folder as the target of a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::values::FilePath;

/// Files of a folder. The path of the request, as the route's filters leave it, is the path below `root`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The folder. It is opened anew each second, so that another one may be put in its place. Links in it are followed where
    /// they lead to something below it, and are relative.
    pub root: FilePath,
    /// Files that answer for a folder, the first that is there. Default `[index.html]`.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// Whether a folder without such a file is answered with a list of what is in it. Default false.
    #[serde(default)]
    pub browse: bool,
    /// The file that answers for what is not there, such as `/index.html` of an application that knows its pages itself. Not for
    /// paths that end like a script, a style sheet or a picture. Default none.
    #[serde(default)]
    pub fallback: Option<String>,
    /// Whether files and folders are served whose names begin with a dot. `/.well-known/` always is. Default false.
    #[serde(default)]
    pub hidden: bool,
    /// Codings of which a file may have a sibling that is compressed already: `app.css.zst`, `app.css.br`, `app.css.gz`. It is sent
    /// to clients that take it; of those that a client likes equally the first. Default none.
    #[serde(default)]
    pub precompressed: Vec<Coding>,
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Brotli (RFC 7932).
    Br,
    /// Gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

fn index() -> Vec<String> {
    vec!["index.html".to_owned()]
}

impl Files {
    /// The files of this folder, and every default.
    pub fn of(root: PathBuf) -> Self {
        Self {
            root: FilePath(root),
            index: index(),
            browse: false,
            fallback: None,
            hidden: false,
            precompressed: Vec::new(),
        }
    }
}

impl Coding {
    /// Its name in Accept-Encoding and Content-Encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The ending of a file in this coding.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Gzip => "gz",
            Self::Zstd => "zst",
        }
    }
}
