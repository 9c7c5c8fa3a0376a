//! `routes.*.files`: a folder as the target of a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::route::Split;
use super::values::FilePath;

/// Serves files of a folder. The request's path, after the route's filters, is the path below `root`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The folder. It is reopened each second, so you can replace it. Links in it are followed if they are relative
    /// and lead to a target below it.
    pub root: FilePath,
    /// Files that answer for a folder; the first that exists is sent. Default `[index.html]`.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// Whether a folder without such a file is answered with a listing. Default false.
    #[serde(default)]
    pub browse: bool,
    /// The file that answers for missing paths, such as `/index.html` of a single-page application. It does not
    /// answer for paths that end like a script, a style sheet or a picture. Default none.
    #[serde(default)]
    pub fallback: Option<String>,
    /// The upstream that answers what is no file, and all methods but GET and HEAD: its name, or several names with
    /// their shares. Such requests go on to it as if the route had `upstream`, so an application gets them. A folder
    /// counts as a file if it has one of `index`. Default none: they are answered 404.
    #[serde(default)]
    pub missing: Option<Split>,
    /// Whether to serve files and folders whose names begin with a dot. `/.well-known/` is always served. Default
    /// false.
    #[serde(default)]
    pub hidden: bool,
    /// Codings for which a file may have a precompressed sibling: `app.css.zst`, `app.css.br`, `app.css.gz`. It is
    /// sent to clients that accept it; if a client accepts several equally, the first is sent. Default none.
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
    /// The files of this folder, with every default.
    pub fn of(root: PathBuf) -> Self {
        Self {
            root: FilePath(root),
            index: index(),
            browse: false,
            fallback: None,
            missing: None,
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

    /// The file name suffix of this coding.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Gzip => "gz",
            Self::Zstd => "zst",
        }
    }
}
