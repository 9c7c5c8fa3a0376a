//! `use_backend` with a name that is computed: by a map, or from the request.

use super::super::acl::{Condition, Facet, PathOf, Term, condition};
use super::super::context::{Cx, pairs};
use super::super::read::Line;
use super::super::sample::{Kind, Scope, call, sample, split};
use super::{Part, alternatives};

/// A canonical path as a decoded one: the helpers for paths escape it again.
pub(super) fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = (*first == b'%').then(|| behind.get(..2)).flatten();
        let byte = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

/// `use_backend %[req.hdr(host),lower,map(hosts.map,default)]`: a route for each entry of the map.
pub(super) fn dynamic<'a>(
    cx: &mut Cx<'a, '_, '_>,
    scope: &Scope<'a>,
    line: &'a Line,
    parts: &mut Vec<Part<'a>>,
) -> Result<(), String> {
    let name = line.word(1);
    let inner = name.strip_prefix("%[").and_then(|rest| rest.strip_suffix(']')).ok_or_else(|| {
        "the name of the backend is made of the request: Weir names the upstream of each route".to_owned()
    })?;
    let steps = split(inner);
    let (last, before) = steps.split_last().ok_or("an empty expression")?;
    let (function, args) = call(last);
    if function != "map" && !function.starts_with("map_") {
        return Err("the name of the backend is made of the request: Weir names the upstream of each route"
            .to_owned());
    }
    let value = sample(cx, scope, &before.join(","))?;
    if value.kind != Kind::Text
        || scope.touched.iter().any(|touched| value.is.as_str().contains(touched.as_str()))
    {
        return Err("the map is asked for something that Weir's routes do not compare".to_owned());
    }
    let only = condition(cx, scope, line, 2);
    let only = match only.any.as_slice() {
        [all] => all.clone(),
        _ => return Err("a condition with alternatives beside a map".to_owned()),
    };
    Condition { any: vec![only.clone()] }.expression()?;
    let path = args.first().cloned().unwrap_or_default();
    let entries = cx.entries(&path)?;
    let is_host = value.field.as_deref() == Some("host") || value.is.as_str() == "request.host";
    let is_path = value.is.as_str() == "request.path";
    let mut found: Vec<(String, &str)> =
        pairs(&entries).into_iter().map(|(key, to)| (key.to_owned(), to)).collect();
    if function == "map_beg" {
        // The longest beginning wins.
        found.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
    }
    let mut changes = Vec::new();
    let mut unknown = Vec::new();
    // Hosts of one backend share a route.
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (key, backend) in found {
        if cx.model.backend(backend).is_none() {
            unknown.push(backend.to_owned());
            continue;
        }
        let joins = is_host && matches!(function, "map" | "map_str");
        match groups.iter_mut().find(|(known, _)| joins && known == backend) {
            Some((_, keys)) => keys.push(key),
            None => groups.push((backend.to_owned(), vec![key])),
        }
    }
    for (backend, keys) in groups {
        let names = keys.iter().map(|key| key.to_ascii_lowercase());
        let term = match (function, is_host, is_path) {
            ("map" | "map_str", true, _) => {
                let is = value.is.clone().is_in(keys.iter().map(String::as_str));
                Term::Is(is, Some(Facet::Hosts(names.collect())))
            }
            ("map_dom", true, _) => {
                let names = names.flat_map(|name| [name.clone(), format!(".{name}")]).collect();
                Term::Is(value.is.clone().contains(&keys[0]), Some(Facet::Hosts(names)))
            }
            ("map" | "map_str", _, true) => {
                let paths =
                    keys.iter().map(|key| PathOf::Exact(crate::shared::path::canonical(key))).collect();
                Term::Is(value.is.clone().is_in(keys.iter().map(String::as_str)), Some(Facet::Paths(paths)))
            }
            ("map_beg", _, true) => {
                let paths =
                    keys.iter().map(|key| PathOf::Prefix(crate::shared::path::canonical(key))).collect();
                Term::Is(value.is.clone().starts_with(&keys[0]), Some(Facet::Paths(paths)))
            }
            _ => return Err(format!("`{function}` of something else than the host or the path")),
        };
        let all: Vec<Term> = only.iter().cloned().chain([term]).collect();
        alternatives(line, &backend, &all, &mut changes, parts);
    }
    if let Some(default) = args.get(1)
        && cx.model.backend(default).is_some()
    {
        alternatives(line, default, &only, &mut changes, parts);
    }
    if !unknown.is_empty() {
        unknown.sort();
        unknown.dedup();
        changes.push(format!(
            "the map names backends that are not there ({}): HAProxy takes the default",
            unknown.join(", ")
        ));
    }
    if changes.is_empty() {
        cx.ledger.same(line.piece);
    } else {
        changes.dedup();
        cx.ledger.changed(line.piece, changes.join("; "));
    }
    Ok(())
}
