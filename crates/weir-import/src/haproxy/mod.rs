//! HAProxy.
//!
//! ```text
//! files ─read─▶ sections ─model─▶ proxies with what they inherit
//!   frontends ─bind─▶ listeners
//!             ─rules─▶ filters: conditions (acl) over samples, changes to fields, limits, users, answers
//!             ─frontend─▶ routes in HAProxy's order; mode tcp: bytes
//!   backends ─servers─▶ upstreams, with their checks
//! ```
//! [`known`] has the verdicts of lines that need no translation. A rule that denies, answers or redirects and cannot be
//! translated answers 503, so that nothing becomes open by an import.

mod acl;
mod answers;
mod bind;
mod bytes;
mod checks;
mod context;
mod families;
mod fields;
mod frontend;
mod known;
mod limits;
mod model;
mod pages;
mod paths;
mod read;
mod rules;
mod sample;
mod servers;
pub(crate) mod stage;
mod text;
mod users;

use crate::config::Config;
use crate::ledger::Ledger;
use crate::source::{SourceTree, Unreadable};
use crate::system::System;
use context::Cx;
use model::Model;
use read::Line;
use std::collections::HashMap;

/// HAProxy 2.0 to 3.0.
pub(crate) static SYSTEM: System = System {
    name: "haproxy",
    title: "HAProxy",
    files: "haproxy.cfg, several files, or a folder of *.cfg",
    import,
};

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let sections = read::read_all(tree, ledger)?;
    let model = Model::new(&sections, ledger);
    let mut cx = Cx::new(ledger, tree, &model);
    known::global(&mut cx);
    let is_used = |proxy: &model::Proxy<'_>| proxy.one(&["disabled"]).is_none() && !is_statistics(proxy);
    let fronts: Vec<&model::Proxy<'_>> =
        model.proxies.iter().filter(|proxy| proxy.is_front() && is_used(proxy)).collect();
    let fronts = families::join_frontends(&mut cx, &fronts);
    let http = fronts.iter().filter(|proxy| proxy.mode() == "http").count();
    let (mut backends, mut bytes) = (HashMap::new(), HashMap::new());
    for proxy in &fronts {
        match proxy.mode() {
            "http" => frontend::translate(&mut cx, proxy, &mut backends, http == 1),
            "tcp" => bytes::translate(&mut cx, proxy, &mut bytes),
            _ => {}
        }
    }
    for proxy in model.proxies.iter().filter(|proxy| proxy.is_front() && !is_used(proxy)) {
        let why = match is_statistics(proxy) {
            true => "statistics: the console of the admin listener and `weir status` show them",
            false => "it is disabled",
        };
        let own = proxy.lines.iter().skip(proxy.inherited).copied();
        for line in std::iter::once(&proxy.section.head).chain(own) {
            cx.ledger.left_out(line.piece, why);
        }
    }
    judge_acls(&mut cx);
    if !cx.trusted.is_empty() {
        cx.trusted.sort();
        cx.trusted.dedup();
        let trusted = rules::list(&cx.trusted);
        cx.config.more.set("trusted_proxies", trusted);
    }
    known::judge_rest(&mut cx, &sections);
    Ok(cx.config)
}

/// A proxy that shows statistics and sends nothing anywhere.
fn is_statistics(proxy: &model::Proxy<'_>) -> bool {
    let own = || proxy.lines.iter().skip(proxy.inherited);
    own().any(|line| line.key() == "stats")
        && !own().any(|line| {
            matches!(line.key(), "default_backend" | "server" | "server-template" | "use_backend")
        })
}

/// ACLs that a rule named end as their rules did not refuse them: they are read where they are named.
fn judge_acls(cx: &mut Cx<'_, '_, '_>) {
    let model = cx.model;
    for proxy in &model.proxies {
        let named = |name: &str| {
            let bare = |word: &str| word.trim_start_matches('!') == name;
            proxy.lines.iter().any(|line| line.key() != "acl" && line.words.iter().any(|word| bare(word)))
        };
        for line in proxy.all("acl") {
            if named(line.word(1)) {
                cx.ledger.same(line.piece);
            }
        }
    }
}

/// A line for people.
fn words(line: &Line) -> String {
    let text = line.words.join(" ").replace(|c: char| c.is_control() || c == read::MARK, "?");
    let text = crate::redact::statement(&text);
    match text.char_indices().nth(100) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
