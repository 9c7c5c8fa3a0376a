//! `routes.*.fastcgi`: which script of a FastCGI server answers a request.

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::{FilePath, Pairs};
use crate::units::ByteSize;

/// Finds the script for a request: the file that its path names, up to the first segment that ends in `split`. If no
/// segment does, `index` of the folder that the path names answers, or else `index` of the root, the front controller
/// of most applications.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FastCgi {
    /// The folder with the scripts, as the FastCGI server sees it. Only scripts that exist below it are run; links in
    /// it are followed if they are relative and lead to a target below it.
    pub root: FilePath,
    /// The script that answers for a folder. Default `index.php`.
    #[serde(default = "index")]
    pub index: String,
    /// How the name of a script ends. Files whose names contain it are never sent by `files` of this route. Default
    /// `.php`.
    #[serde(default = "split")]
    pub split: String,
    /// Whether the path after the script is passed on, as `PATH_INFO`. Default false: it is not.
    #[serde(default)]
    pub path_info: bool,
    /// The root is on another machine, so Weir cannot see whether a script exists and runs what the path names, or
    /// the front controller. Default false. A server that runs any file, not only those that end in `split`, is then
    /// open to uploads: leave `security.limit_extensions` of php-fpm on.
    #[serde(default)]
    pub root_remote: bool,
    /// Further parameters, such as `{ APP_ENV: production }`. They replace those that Weir sets. Default none.
    #[serde(default)]
    pub params: Pairs,
    /// The largest request body of unknown length (chunked, or changed by a filter), which is held in memory because
    /// CGI needs its length first; a larger one is answered 413. Others are passed on as they arrive. Default `1MiB`.
    #[serde(default = "buffer")]
    pub buffer: ByteSize,
}

fn index() -> String {
    "index.php".to_owned()
}

fn split() -> String {
    ".php".to_owned()
}

const fn buffer() -> ByteSize {
    ByteSize(1024 * 1024)
}
