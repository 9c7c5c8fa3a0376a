//! Matchers of a Caddyfile: `@name` and the words `*`, `/path` and `@name` behind a directive.

use super::model::{FileTest, Matcher, Set};
use super::syntax::Segment;
use crate::ledger::{Ledger, Piece};
use crate::shared::networks::network;
use crate::shared::tree::Node;
use std::collections::BTreeMap;

/// Named matchers that a block knows.
pub(super) type Named = BTreeMap<String, Set>;

/// The networks of `private_ranges`.
const PRIVATE: &[&str] = &["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"];

/// Adds the definition `@name …`.
pub(super) fn define(segment: &Segment, named: &mut Named, ledger: &mut Ledger) {
    let args = segment.args();
    let name = segment.name().to_owned();
    let mut set = Set::new();
    ledger.same(segment.piece);
    if let Some((kind, values)) = args.split_first() {
        match values {
            // An expression may stand alone.
            [] if kind.contains(['{', '(']) => push(&mut set, Matcher::Expression((*kind).to_owned())),
            // A block belongs to this matcher: `@name not { … }`.
            _ => add(&mut set, kind, values, segment, ledger),
        }
    } else {
        for line in segment.inner() {
            ledger.same(line.piece);
            add(&mut set, line.name(), &line.args(), line, ledger);
        }
    }
    tell_query(&set, segment.piece, ledger);
    named.insert(name, set);
}

/// Tells that versions of Caddy disagree about `query` with several parameters.
pub(super) fn tell_query(set: &[Matcher], piece: Piece, ledger: &mut Ledger) {
    for matcher in set {
        match matcher {
            Matcher::Query(pairs) if pairs.len() > 1 => ledger.changed(
                piece,
                "Weir asks for all these parameters, as Caddy since 2.7; Caddy up to 2.6 takes requests with any of \
                 them: if yours is older, write a matcher for each",
            ),
            Matcher::Not(sets) => sets.iter().for_each(|set| tell_query(set, piece, ledger)),
            _ => {}
        }
    }
}

/// The set of a matcher word, if it is one. Some(None) for `*`.
pub(super) fn token(word: &str, named: &Named) -> Option<Result<Option<Set>, String>> {
    match word {
        "*" => Some(Ok(None)),
        _ if word.starts_with('/') => Some(Ok(Some(vec![paths(vec![word.to_owned()])]))),
        _ if word.starts_with('@') => Some(match named.get(word) {
            Some(set) => Ok(Some(set.clone())),
            None => Err(format!("the matcher {word} is not defined")),
        }),
        _ => None,
    }
}

/// Whether the value of a matcher in JSON is of the type that Caddy expects.
pub(super) fn is_of_its_type(matcher: &str, node: &Node) -> bool {
    match matcher {
        "host" | "path" | "method" => node.as_texts().is_some(),
        "not" => node.as_list().is_some(),
        "query" | "header" | "header_regexp" | "file" => node.as_map().is_some(),
        "remote_ip" | "client_ip" => node.get("ranges").and_then(Node::as_texts).is_some(),
        "protocol" => node.as_text().is_some(),
        _ => true,
    }
}

/// Paths of which one must fit. Unknown if Caddy decides by more than the text that is written.
pub(super) fn paths(all: Vec<String>) -> Matcher {
    let has_value = |path: &&String| path.contains('{') && path.contains('}');
    if let Some(path) = all.iter().find(has_value) {
        return Matcher::Unknown(format!("`{path}` has a placeholder, and Weir's paths are fixed"));
    }
    if let Some(path) = all.iter().find(|path| path.contains('%')) {
        return Matcher::Unknown(format!(
            "`{path}` is compared with the escaped path, Weir's with a decoded one"
        ));
    }
    Matcher::Path(all)
}

/// Matchers of one kind in one set are alternatives; those of fields and parameters are all required.
fn push(set: &mut Set, matcher: Matcher) {
    for known in set.iter_mut() {
        match (known, &matcher) {
            (Matcher::Host(all), Matcher::Host(more))
            | (Matcher::Path(all), Matcher::Path(more))
            | (Matcher::Method(all), Matcher::Method(more))
            | (Matcher::Client(all), Matcher::Client(more)) => {
                all.extend(more.iter().cloned());
                return;
            }
            (Matcher::Query(all), Matcher::Query(more)) => {
                for (name, values) in more {
                    match all.iter_mut().find(|(known, _)| known == name) {
                        Some((_, known)) => known.extend(values.iter().cloned()),
                        None => all.push((name.clone(), values.clone())),
                    }
                }
                return;
            }
            (Matcher::Header(all), Matcher::Header(more)) => {
                for (name, values) in more {
                    match (all.iter_mut().find(|(known, _)| known == name), values) {
                        (Some((_, Some(known))), Some(values)) => known.extend(values.iter().cloned()),
                        _ => all.push((name.clone(), values.clone())),
                    }
                }
                return;
            }
            _ => {}
        }
    }
    set.push(matcher);
}

fn add(set: &mut Set, kind: &str, args: &[&str], segment: &Segment, ledger: &mut Ledger) {
    let all = || args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<String>>();
    let matcher = match (kind, args) {
        ("host", _) => Matcher::Host(args.iter().map(|host| host.to_ascii_lowercase()).collect()),
        ("path", _) => match paths(all()) {
            Matcher::Unknown(why) => {
                ledger.refused(segment.piece, why.clone(), "match.path, or an expression in `match.when`");
                Matcher::Unknown(why)
            }
            known => known,
        },
        ("path_regexp", [pattern]) => {
            Matcher::PathRegexp { name: String::new(), pattern: (*pattern).to_owned() }
        }
        ("path_regexp", [name, pattern]) => {
            Matcher::PathRegexp { name: (*name).to_owned(), pattern: (*pattern).to_owned() }
        }
        ("method", _) => Matcher::Method(args.iter().map(|method| method.to_ascii_uppercase()).collect()),
        ("query", pairs) => {
            let mut query: Vec<(String, Vec<String>)> = Vec::new();
            for pair in pairs.iter().filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                match query.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) => values.push(value.to_owned()),
                    None => query.push((name.to_owned(), vec![value.to_owned()])),
                }
            }
            Matcher::Query(query)
        }
        ("header", [absent]) if absent.starts_with('!') => {
            Matcher::Header(vec![(absent[1..].to_ascii_lowercase(), None)])
        }
        ("header", [name]) => Matcher::Header(vec![(name.to_ascii_lowercase(), Some(vec!["*".to_owned()]))]),
        ("header", [name, value]) => {
            Matcher::Header(vec![(name.to_ascii_lowercase(), Some(vec![(*value).to_owned()]))])
        }
        ("header_regexp", [field, pattern] | [_, field, pattern]) => {
            Matcher::HeaderRegexp(vec![(field.to_ascii_lowercase(), (*pattern).to_owned())])
        }
        ("remote_ip" | "client_ip", ranges) => {
            let mut found = Vec::new();
            for range in ranges.iter().filter(|range| **range != "forwarded") {
                match *range {
                    "private_ranges" => found.extend(PRIVATE.iter().map(|net| (*net).to_owned())),
                    range => found.push(range.to_owned()),
                }
            }
            if kind == "client_ip" || ranges.contains(&"forwarded") {
                ledger.changed(segment.piece, "Weir takes the client's address of `trusted_proxies` only");
            }
            match found.iter().find_map(|range| network(range).err()) {
                None => Matcher::Client(found),
                Some(why) => {
                    ledger.refused(segment.piece, why.clone(), "networks such as 10.0.0.0/8");
                    Matcher::Unknown(why)
                }
            }
        }
        ("protocol", [protocol]) => Matcher::Protocol((*protocol).to_owned()),
        ("expression", [text]) => Matcher::Expression((*text).to_owned()),
        ("expression", _) => Matcher::Expression(args.join(" ")),
        ("file", _) => Matcher::File(file(args, segment, ledger)),
        ("not", _) => Matcher::Not(vec![not(args, segment, ledger)]),
        _ => {
            let why = format!("Weir knows no matcher `{kind}`");
            ledger.refused(segment.piece, why.clone(), "an expression in `match.when`");
            Matcher::Unknown(why)
        }
    };
    push(set, matcher);
}

fn not(args: &[&str], segment: &Segment, ledger: &mut Ledger) -> Set {
    let mut inner = Set::new();
    if let Some((kind, values)) = args.split_first() {
        add(&mut inner, kind, values, segment, ledger);
    }
    for line in segment.inner() {
        ledger.same(line.piece);
        add(&mut inner, line.name(), &line.args(), line, ledger);
    }
    inner
}

fn file(args: &[&str], segment: &Segment, ledger: &mut Ledger) -> FileTest {
    let mut test =
        FileTest { tries: args.iter().map(|arg| (*arg).to_owned()).collect(), ..FileTest::default() };
    for line in segment.inner() {
        let args = line.args();
        match (line.name(), &*args) {
            ("root", [root]) => test.root = Some((*root).to_owned()),
            ("try_files", tries) => test.tries.extend(tries.iter().map(|arg| (*arg).to_owned())),
            ("split_path", _) => test.splits = true,
            ("try_policy", ["first_exist"]) => {}
            (name, _) => {
                let why = format!("Weir knows no `{name}` for files");
                ledger.refused(line.piece, why, "`files` with `missing`");
                continue;
            }
        }
        ledger.same(line.piece);
    }
    if test.tries.is_empty() {
        test.tries.push("{path}".to_owned());
    }
    test
}
