//! nginx.
//!
//! ```text
//! files ─read─▶ directives ─┬─server─▶ listeners, hosts
//!                           ├─location─▶ nginx's rule which one takes a path, as priorities
//!                           └─action─▶ filters and targets: rewrite, access, proxy, files
//!                                        └─translate─▶ routes
//! ```
//! [`known`] has the verdicts of directives that need no translation. What guards a location and cannot be translated
//! closes its route (503), so that nothing becomes open by an import.

mod access;
mod action;
mod block;
mod bodies;
mod cache;
mod context;
mod cookies;
mod errors;
mod fields;
mod files;
mod global;
mod known;
mod location;
mod proxy;
mod read;
mod rewrite;
mod route;
mod server;
mod site;
pub(crate) mod stage;
mod stream;
mod text;
mod tls;
mod translate;
mod users;
mod variables;

use crate::config::Config;
use crate::ledger::Ledger;
use crate::source::{SourceTree, Unreadable};
use crate::system::System;
use context::Cx;
use std::collections::{BTreeMap, HashMap};

/// nginx, with its standard modules.
pub(crate) static SYSTEM: System =
    System { name: "nginx", title: "nginx", files: "nginx.conf, or files of conf.d", import };

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let directives = read::read_all(tree, ledger)?;
    let users = users::read(tree, &directives);
    let mut cx = Cx {
        ledger,
        users,
        config: Config::default(),
        upstreams: HashMap::new(),
        made_upstreams: BTreeMap::new(),
        tables: HashMap::new(),
        made_maps: HashMap::new(),
        open_maps: Vec::new(),
        zones: HashMap::new(),
        zone_uses: HashMap::new(),
        caches: HashMap::new(),
        needs_request_id: false,
    };
    let http = translate::http_of(&mut cx, &directives);
    translate::tables(&mut cx, &http);
    translate::translate(&mut cx, &http);
    stream::translate(&mut cx, &directives);
    let Cx { config, ledger, .. } = cx;
    known::judge_rest(&directives, ledger);
    Ok(config)
}
