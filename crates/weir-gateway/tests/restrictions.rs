//! How a change affects access (`access.txt` of weir-control), checked against the JSON Schema of the config and all
//! filters. Settings that the list does not call harmless restrict access; secrets and files are never restored.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod leaves;

use leaves::{PLANTED, configs, leaves, tree};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_gateway::config::secrecy::{Rule, declared as disclosed};
use weir_gateway::filters::KINDS;
use weir_gateway::history::Restriction;
use weir_gateway::history::access::{Effect, declared};

/// Texts that every client receives: an earlier page is not secret.
const PAGES: &[&str] = &["filter.errors.*.file", "filter.maintenance.page.file"];

/// Names of settings that hold files, folders or lists of credentials.
const FILES: &[&str] = &[
    "allow_file",
    "ca",
    "cert",
    "client_cert",
    "client_key",
    "deny_file",
    "descriptors",
    "file",
    "include",
    "key",
    "keys",
    "path",
    "root",
    "secret",
    "state",
    "writes",
];

/// The same names where they mean something else.
const NO_FILES: &[&str] = &[
    "filter.errors.*.path",
    "filter.grpc_json.openapi.path",
    "filter.rewrite.path",
    "include",
    "routes.*.match.path",
    "upstreams.*.health.probe.path",
];

/// The path itself and its parents.
fn with_parents(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
}

#[test]
fn what_the_list_does_not_call_harmless_restricts() {
    let list: BTreeMap<String, Effect> = declared().into_iter().collect();
    let rules: BTreeMap<&str, Rule> = disclosed().collect();
    let mut wrong = String::new();
    let mut tried = 0;
    for path in leaves().keys() {
        let harmless = with_parents(path).any(|path| list.get(path) == Some(&Effect::Harmless));
        let secret = matches!(rules.get(path.as_str()), Some(Rule::Credential | Rule::Secret));
        let name = path.rsplit('.').next().unwrap();
        let file = FILES.contains(&name) && !NO_FILES.contains(&path.as_str());
        let revoking = secret || (file && !PAGES.contains(&path.as_str()));
        for before in configs(path) {
            for other in ["Zq9/other", "null"] {
                tried += 1;
                let after = before.replace(PLANTED, other);
                let found = Restriction::of(&tree(&before), &tree(&after), KINDS).unwrap_or_default();
                if !harmless && found.restricts.is_empty() {
                    let _ = writeln!(wrong, "  {path} does not restrict: {before}");
                }
                if revoking && found.revokes.is_empty() {
                    let _ = writeln!(wrong, "  {path} is given back: {before}");
                }
            }
            let (was, is) = (before.replace(PLANTED, "null"), &before);
            let found = Restriction::of(&tree(&was), &tree(is), KINDS).unwrap_or_default();
            if !harmless && found.restricts.is_empty() {
                let _ = writeln!(wrong, "  {path} does not restrict where it is new: {before}");
            }
        }
    }
    assert!(tried > 5000, "{tried}");
    assert!(
        wrong.is_empty(),
        "crates/weir-control/src/history/access.txt, which says how to decide:\n{wrong}"
    );
}

#[test]
fn no_row_is_stale() {
    let leaves = leaves();
    let known = |path: &str| {
        let below = format!("{path}.");
        let is_kind = |name: &str| KINDS.iter().any(|kind| kind.name == name);
        leaves.contains_key(path)
            || leaves.range(below.clone()..).next().is_some_and(|(leaf, _)| leaf.starts_with(&below))
            || path.strip_prefix("filter.").is_some_and(is_kind)
    };
    let stale: Vec<String> =
        declared().into_iter().map(|(path, _)| path).filter(|path| !known(path)).collect();
    assert!(stale.is_empty(), "crates/weir-control/src/history/access.txt: there is no {stale:?}");
}
