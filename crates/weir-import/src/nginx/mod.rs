//! nginx.
//!
//! [`read`] turns the files into directives.

mod read;

use crate::config::Config;
use crate::ledger::Ledger;
use crate::source::{SourceTree, Unreadable};
use crate::system::System;

/// nginx, with its standard modules.
pub(crate) static SYSTEM: System =
    System { name: "nginx", title: "nginx", files: "nginx.conf, or files of conf.d", import };

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let _directives = read::read_all(tree, ledger)?;
    Ok(Config::default())
}
