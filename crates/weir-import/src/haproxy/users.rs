//! Userlists: consumers, for the filter `basic_auth`.

use super::context::Cx;
use super::read::Line;
use crate::config::Filter;
use crate::shared::filters::respond;
use crate::yaml::{Map, Value};
use std::collections::BTreeMap;

/// The filters that ask for a user of a list, in one of these groups if any is named.
pub(super) fn filters(
    cx: &mut Cx<'_, '_, '_>,
    list: &str,
    groups: &[String],
    realm: Option<&str>,
) -> Vec<Filter> {
    let before = cx.config.consumers.len();
    translate(cx, list);
    if cx.config.consumers.len() > before {
        cx.callable.insert(list.to_owned());
    }
    if !cx.callable.contains(list) {
        let body = "This route is closed: no consumer could call it.\n".to_owned();
        let why = format!("CLOSED: no user of `{list}` could be translated. Put basic_auth in its place.");
        return vec![Filter::new("respond", respond(503, Some(body), None)).because(why)];
    }
    let mut map = Map::new();
    map.set_some("realm", realm);
    // HAProxy passes the password on.
    map.set("hide", false);
    let mut filters = vec![Filter::new("basic_auth", map)];
    let allow: Vec<String> = match (groups, cx.model.userlists.len()) {
        ([], 0 | 1) => Vec::new(),
        ([], _) => vec![format!("group:{list}")],
        (groups, _) => groups.iter().map(|group| format!("group:{}", in_list(list, group))).collect(),
    };
    if !allow.is_empty() {
        filters.push(Filter::new("acl", Map::new().with("allow", allow)));
    }
    filters
}

fn in_list(list: &str, group: &str) -> String {
    format!("{list}.{group}")
}

/// Translates a userlist, once.
fn translate(cx: &mut Cx<'_, '_, '_>, list: &str) {
    if !cx.userlists.insert(list.to_owned()) {
        return;
    }
    let Some(section) = cx.model.userlists.get(list).copied() else { return };
    cx.ledger.same(section.head.piece);
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in section.lines.iter().filter(|line| line.key() == "group") {
        for user in line.after(2, "users").unwrap_or_default().split(',').filter(|user| !user.is_empty()) {
            groups.entry(user).or_default().push(in_list(list, line.word(1)));
        }
        cx.ledger.same(line.piece);
    }
    for line in section.lines.iter().filter(|line| line.key() == "user") {
        let name = line.word(1);
        let mut own = groups.get(name).cloned().unwrap_or_default();
        if let Some(named) = line.after(2, "groups") {
            own.extend(named.split(',').map(|group| in_list(list, group)));
        }
        user(cx, list, line, name, own);
        cx.ledger.conceal(line.piece);
    }
}

fn user(cx: &mut Cx<'_, '_, '_>, list: &str, line: &Line, name: &str, mut groups: Vec<String>) {
    let nearest = "consumers.NAME.basic_auth: [ USER:HASH ], by `weir hash --user USER`";
    let Some(hash) = line.after(2, "password") else {
        let why = match line.has(2, "insecure-password") {
            true => "the password stands there as it is: Weir takes hashes only",
            false => "a user without a password",
        };
        return cx.ledger.refused(line.piece, why, nearest);
    };
    let is_bcrypt = ["$2a$", "$2b$", "$2y$"].iter().any(|start| hash.starts_with(start))
        && hash.len() == 60
        && hash.bytes().all(|b| b.is_ascii_alphanumeric() || b"$./".contains(&b));
    if !is_bcrypt {
        let why = match hash.get(..3) {
            Some("$5$") => {
                "a hash of crypt's SHA-256, which is cheap to try out: Weir takes argon2id and bcrypt"
            }
            Some("$6$") => {
                "a hash of crypt's SHA-512, which is cheap to try out: Weir takes argon2id and bcrypt"
            }
            Some("$1$") => "a hash of MD5, which is broken: Weir takes argon2id and bcrypt",
            _ => "an unknown or broken kind of hash: Weir takes argon2id and bcrypt",
        };
        return cx.ledger.refused(line.piece, why, nearest);
    }
    let credential = cx.config.secret(&format!("BASIC_AUTH_{name}"), &format!("{name}:{hash}"));
    let mut map = Map::new().with("basic_auth", Value::List(vec![credential]));
    groups.insert(0, list.to_owned());
    if cx.model.userlists.len() > 1 || groups.len() > 1 {
        map.set("groups", groups);
    }
    cx.config.consumers.add(name, map);
    cx.ledger.same(line.piece);
}
