//! `routes.*.files`: a folder as the target of a route. `routes.*.files_by_header`: folders whose files an upstream may
//! have sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::split::Split;
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

/// Sends the file that an upstream names in a field of its response, in place of its body: nginx's X-Accel-Redirect,
/// Apache's X-Sendfile. Each field has folders by what stands for them at the beginning of its value, such as
/// `{ x-accel-redirect: { /downloads/: ./private } }`; the longest that fits counts.
///
/// The value is a path, percent-encoded like one of a URL; a query is left out. It names a file below the folder, by the
/// rules of `files`: no `..`, no names that begin with a dot, only relative links that stay inside. A value that fits no
/// prefix is answered 502 `files_by_header`. Responses other than 2xx are passed on, and name nothing. The field never
/// reaches the client, from any response.
///
/// The client gets the other fields of the response, such as Cache-Control, Set-Cookie, Content-Disposition and
/// Content-Type, with the file's length, ETag and Last-Modified. Ranges and conditions of the request apply to the file.
/// The route's filters see its head and body like a file's of `files`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FilesByHeader(BTreeMap<String, BTreeMap<String, FilePath>>);

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
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

impl FilesByHeader {
    /// The names of the fields, and the folders of each by their prefixes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &BTreeMap<String, FilePath>)> {
        self.0.iter().map(|(name, folders)| (name.as_str(), folders))
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
