//! Which modules of a crate may know each other.

use super::crates::manifests;
use super::{check, code_below, is_test, name, read, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Most lines in a cycle of a crate's modules: changing one requires knowing all of them.
const MAX_CIRCLE_LINES: usize = 500;

/// Longer cycles, each with its crate. The list may only shrink: remove modules that have left a cycle.
const CIRCLES: &[(&str, &[&str])] = &[];

/// Modules that may reach only some of their crate's modules, directly or indirectly.
const ROOMS: &[(&str, &str, &[&str])] = &[("weir-upstream", "upstream", &["error", "talk"])];

/// The folder of the modules in [`UPSTREAM`].
const UPSTREAMS: &str = "crates/weir-upstream/src/upstream/";

/// The modules of `upstream/`, each above the ones that it may name, so there is no cycle.
const UPSTREAM: &[&str] = &[
    "watch",
    "probes",
    "attempts",
    "bytes",
    "connect",
    "open",
    "local",
    "resources",
    "spec",
    "discover",
    "gate",
    "probe",
    "slow_start",
    "balance",
    "rotation",
    "retry",
    "budget",
    "endpoint",
    "excluded",
    "health",
    "outlier",
    "latency",
    "pool",
    "owned",
    "shared",
    "connection",
    "cookie",
    "sticky",
];

#[test]
fn pages_show_data_and_ask_nothing() {
    check(
        "take a type that pages show into view.rs of weir-console; weir-admin asks and changes",
        |broken| {
            let view = "crates/weir-console/src/view.rs:";
            for (place, line) in code_below("crates/weir-console/src/") {
                let elsewhere = line.contains("weir_gateway") && !place.starts_with(view);
                if elsewhere || names_after("weir_gateway::", &line).any(|name| name == "Gateway") {
                    broken.push(format!("{place}: {}", line.trim()));
                }
            }
        },
    );
}

#[test]
fn rooms_know_only_whom_they_may() {
    check("see ROOMS: pass what it needs in, or make it part of `Resources`", |broken| {
        for (package, room, allowed) in ROOMS {
            let modules = Modules::of(package);
            assert!(modules.lines.contains_key(*room), "{package} has no module {room}");
            let reached = modules.reached_from(room);
            let closed = reached.iter().filter(|module| !allowed.contains(&module.as_str()));
            broken.extend(closed.map(|module| format!("{package}: {room} reaches {module}")));
        }
    });
}

#[test]
fn no_circle_of_modules_is_large() {
    check("move what they share below them, or pass it in; see CIRCLES", |broken| {
        for (package, _) in manifests() {
            for (circle, lines) in Modules::of(&package).large_circles() {
                if !CIRCLES.iter().any(|(of, members)| *of == package && *members == circle) {
                    broken.push(format!("{package}: {} ({lines} lines)", circle.join(", ")));
                }
            }
        }
    });
}

#[test]
fn no_listed_circle_is_out_of_date() {
    check("there is no such circle any more: shorten its line in CIRCLES, or take it out", |broken| {
        for (package, members) in CIRCLES {
            if !Modules::of(package).large_circles().iter().any(|(circle, _)| circle == members) {
                broken.push(format!("{package}: {}", members.join(", ")));
            }
        }
    });
}

#[test]
fn modules_reach_each_other_by_any_path() {
    let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "d")];
    let mut modules = Modules::default();
    for (from, to) in arrows {
        modules.arrow(from, to);
    }
    modules.lines = ["a", "b", "c", "d", "e"].map(|name| (name.to_owned(), 200)).into();
    assert_eq!(modules.large_circles(), [(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 600)]);
    let face = "mod a;\npub use self::a::{A, Other as B};\npub use b::*;\nfn at_root() { c::d(); }\n";
    assert_eq!(face_of(face), [("A", "a"), ("Other", "a"), ("B", "a")].into());
    let code = "use crate::{a::{X, Y}, b};\nuse super::super::c::Z;\ncrate::d::e(super::f());";
    assert_eq!(named_at_root(code, 2), ["a", "b", "d", "c"]);
    assert_eq!(named_at_root("super::g();", 1), ["g"]);
}

#[test]
fn upstreams_know_only_what_is_below_them() {
    check("see UPSTREAM, which the first lines of upstream/mod.rs draw", |broken| {
        let folder = UPSTREAMS;
        for (place, line) in code_below(folder) {
            let file = place.trim_start_matches(folder).split(['/', '.']).next().unwrap_or_default();
            if file == "mod" {
                continue;
            }
            let Some(above) = UPSTREAM.iter().position(|known| *known == file) else {
                broken.push(format!("{file} has no line in UPSTREAM"));
                continue;
            };
            let beside =
                if place.trim_start_matches(folder).contains('/') { "upstream::" } else { "super::" };
            for named in names_after(beside, &line) {
                let below = UPSTREAM.iter().position(|known| *known == named);
                if below.is_some_and(|below| below < above) {
                    broken.push(format!("{place}: {}", line.trim()));
                }
            }
        }
    });
}

/// The names after a prefix such as `crate::` in a line; after a brace, each name in it.
fn names_after<'a>(prefix: &'a str, line: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(prefix).flat_map(move |(at, _)| {
        let rest = &line[at + prefix.len()..];
        let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or_default());
        let first = |part: &'a str| part.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let parts: Vec<&str> = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
        parts.into_iter().filter_map(first).collect::<Vec<_>>()
    })
}

/// The modules beside a crate's root, and the root itself, named `lib` or `main`.
#[derive(Default)]
struct Modules {
    /// Without tests.
    lines: BTreeMap<String, usize>,
    /// The modules that each one names.
    named: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    fn of(package: &str) -> Self {
        let folder = format!("crates/{package}/src/");
        let files: Vec<_> = sources().iter().map(|file| name(file)).collect();
        let files = files.iter().filter(|file| file.starts_with(&folder) && !is_test(file));
        let files: Vec<(Vec<&str>, String)> = files
            .map(|file| {
                let text = read(&root().join(file));
                // Code after `mod tests;` counts; the tests themselves are in another file.
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
                let mut path: Vec<_> = file[folder.len()..].trim_end_matches(".rs").split('/').collect();
                path.pop_if(|last| *last == "mod");
                (path, code)
            })
            .collect();
        let mut modules = Self::default();
        for (path, code) in &files {
            *modules.lines.entry(path[0].to_owned()).or_default() += code.lines().count();
        }
        let code_of = |root: &str| files.iter().find(|(path, _)| *path == [root]).map(|(_, code)| &**code);
        let face = code_of("lib").or(code_of("main")).map(without_comments).unwrap_or_default();
        let (shown, at_root) = (face_of(&face), if code_of("lib").is_some() { "lib" } else { "main" });
        for (path, code) in &files {
            let code = without_comments(code);
            let depth = if path.len() == 1 && ["lib", "main"].contains(&path[0]) { 0 } else { path.len() };
            for named in named_at_root(&code, depth) {
                let is_root = || is_defined(&face, named).then_some(at_root);
                let module = Some(named).filter(|named| modules.lines.contains_key(*named));
                if let Some(to) = module.or_else(|| shown.get(named).copied()).or_else(is_root) {
                    modules.arrow(path[0], to);
                }
            }
        }
        modules
    }

    fn arrow(&mut self, from: &str, to: &str) {
        if from != to {
            self.named.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
    }

    fn reached_from(&self, module: &str) -> BTreeSet<String> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(from) = open.pop() {
            for to in self.named.get(from).into_iter().flatten() {
                if reached.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        reached
    }

    /// Modules that reach each other, sorted, with their number of lines.
    fn large_circles(&self) -> Vec<(Vec<String>, usize)> {
        let reached: BTreeMap<&String, _> =
            self.lines.keys().map(|module| (module, self.reached_from(module))).collect();
        let in_one = |a: &String, b: &String| reached[a].contains(b) && reached[b].contains(a);
        let mut circles = BTreeSet::new();
        for module in self.lines.keys() {
            let circle: Vec<_> = self.lines.keys().filter(|other| in_one(module, other)).cloned().collect();
            circles.insert(circle);
        }
        let circles = circles.into_iter().map(|circle| {
            let lines = circle.iter().map(|module| self.lines[module]).sum();
            (circle, lines)
        });
        circles.filter(|(circle, lines)| circle.len() > 1 && *lines > MAX_CIRCLE_LINES).collect()
    }
}

fn without_comments(code: &str) -> String {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names that a crate's root re-exports, each with its module.
fn face_of(root: &str) -> BTreeMap<&str, &str> {
    let mut shown = BTreeMap::new();
    for (start, _) in root.match_indices("use ").filter(|(at, _)| root[..*at].ends_with(['\n', ' ', ')'])) {
        let statement = root[start + 4..].split(';').next().unwrap_or_default();
        let path = statement.trim_start_matches("self::").trim_start_matches("crate::");
        let Some((module, names)) = path.split_once("::") else { continue };
        let words = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        shown.extend(words.filter(|word| !["", "as", "self"].contains(word)).map(|word| (word, module)));
    }
    shown
}

/// Whether a crate's root itself defines this name.
fn is_defined(root: &str, name: &str) -> bool {
    ["struct ", "enum ", "fn ", "trait ", "const ", "static ", "type "].iter().any(|kind| {
        let mut found = root.match_indices(kind).map(|(at, _)| &root[at + kind.len()..]);
        found.any(|rest| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
    })
}

/// The names that code uses from its crate's root: after `crate::`, or after as many `super::` as it is deep. In the
/// root itself also before `::` in re-exports.
fn named_at_root(code: &str, depth: usize) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut behind: Vec<usize> = code.match_indices("crate::").map(|(at, found)| at + found.len()).collect();
    let up = "super::".repeat(depth);
    if depth > 0 {
        let ups = code.match_indices(&up).filter(|(at, _)| !code[..*at].ends_with("super::"));
        behind.extend(ups.map(|(at, _)| at + up.len()).filter(|end| !code[*end..].starts_with("super::")));
    } else {
        let shows = |at: usize| {
            let statement = code[..at].rsplit([';', '}']).next().unwrap_or_default().trim_start();
            statement.starts_with("pub use ") || statement.starts_with("pub(crate) use ")
        };
        let begins = |at: usize| code[..at].trim_end_matches(is_word).len();
        let paths = code.match_indices("::").map(|(at, _)| begins(at));
        behind.extend(paths.filter(|at| !code[..*at].ends_with("::") && !shows(*at)));
    }
    let mut names = Vec::new();
    for start in behind {
        let rest = &code[start..];
        let first = |part: &str| part.trim_start().split(|c| !is_word(c)).next().map_or(0, str::len);
        let Some(list) = rest.strip_prefix('{') else {
            names.push(&rest[..first(rest)]);
            continue;
        };
        let (mut depth, mut part) = (0, 0);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    let item = list[part..at].trim_start();
                    names.push(&item[..first(item)]);
                    part = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    names
}
