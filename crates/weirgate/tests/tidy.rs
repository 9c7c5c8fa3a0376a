//! House rules that the compiler does not check: the form of files, dependencies between crates, and complete
//! registries. Each test lists every violation of its rule.
//!
//! It uses only the standard library: `rustc --test` compiles it alone, in seconds.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../weir-testkit/src/generated.rs"]
mod generated;

/// Most lines of code in a file; look for the seam at 500.
const MAX_CODE_LINES: usize = 800;

/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Allowed dependencies: each crate with the workspace crates that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("weir-h1", &[]),
    ("weir-telemetry", &[]),
    ("weir-fleet", &[]),
    ("weir-discover", &["weir-fleet"]),
    ("weir-sim", &["weir-fleet"]),
    ("weir-cache", &["weir-filter", "weir-wire", "weir-h1", "weir-telemetry"]),
    ("weir-identity", &["weir-filter", "weir-wire", "weir-h1", "weir-telemetry"]),
    ("weir-rpc", &["weir-filter", "weir-transcode", "weir-wire", "weir-h1", "weir-telemetry"]),
    ("weir-transcode", &["weir-h1"]),
    ("weir-expr", &[]),
    ("weir-fcgi", &[]),
    ("weir-fields", &["weir-h1"]),
    ("weir-h3", &["weir-fields", "weir-h1"]),
    ("weir-wire", &["weir-fcgi", "weir-fields", "weir-h1", "weir-telemetry"]),
    ("weir-quic", &["weir-h3", "weir-wire"]), // weir-h3 in its example only
    ("weir-origin", &["weir-wire", "weir-h1"]),
    ("weir-acme", &["weir-wire", "weir-telemetry"]),
    ("weir-config", &["weir-expr", "weir-wire", "weir-h1", "weir-telemetry"]),
    ("weir-route", &["weir-expr"]),
    ("weir-schema", &["weir-config", "weir-expr"]),
    (
        "weir-upstream",
        &["weir-config", "weir-discover", "weir-fleet", "weir-wire", "weir-h1", "weir-telemetry"],
    ),
    (
        "weir-filter",
        &[
            "weir-config",
            "weir-expr",
            "weir-fleet",
            "weir-route",
            "weir-upstream",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    (
        "weir-filters",
        &[
            "weir-cache",
            "weir-filter",
            "weir-identity",
            "weir-rpc",
            "weir-schema",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    (
        "weir-engine",
        &[
            "weir-acme",
            "weir-config",
            "weir-fcgi",
            "weir-filter",
            "weir-route",
            "weir-fields",
            "weir-h3",
            "weir-quic",
            "weir-upstream",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    (
        "weir-control",
        &[
            "weir-acme",
            "weir-config",
            "weir-engine",
            "weir-filter",
            "weir-fleet",
            "weir-route",
            "weir-quic", // opens its sockets
            "weir-upstream",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    (
        "weir-gateway",
        &[
            "weir-config",
            "weir-control",
            "weir-engine",
            "weir-filter",
            "weir-filters",
            "weir-route",
            "weir-upstream",
            "weir-wire",
            "weir-h1",
        ],
    ),
    ("weir-agents", &["weir-report"]),
    (
        "weir-load",
        &[
            "weir-agents",
            "weir-h3",
            "weir-plan",
            "weir-quic",
            "weir-report",
            "weir-traffic",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    ("weir-plan", &["weir-config", "weir-expr", "weir-report", "weir-h1"]),
    ("weir-report", &[]),
    ("weir-import", &["weir-report", "weir-traffic"]),
    ("weir-traffic", &[]),
    ("weir-console", &["weir-gateway"]),
    (
        "weir-kube",
        &[
            "weir-admin",
            "weir-config",
            "weir-fleet",
            "weir-gateway",
            "weir-h1",
            "weir-import",
            "weir-telemetry",
            "weir-wire",
        ],
    ),
    ("weir-admin", &["weir-console", "weir-gateway", "weir-fleet", "weir-wire", "weir-h1", "weir-telemetry"]),
    (
        "weirgate",
        &[
            "weir-admin",
            "weir-fleet",
            "weir-gateway",
            "weir-import",
            "weir-load",
            "weir-origin",
            "weir-plan",
            "weir-report",
            "weir-wire",
            "weir-h1",
            "weir-telemetry",
        ],
    ),
    ("weir-testkit", &["weir-h3", "weir-load", "weir-origin", "weir-quic", "weir-report", "weir-wire"]),
];

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

/// Where filters are.
const FILTERS: &[&str] = &[
    "crates/weir-cache/src/filter/",
    "crates/weir-filters/src/",
    "crates/weir-identity/src/",
    "crates/weir-rpc/src/",
];

/// The methods of weir-filter that are for the engine which runs filters, and not for filters.
const OF_ENGINE: &[&str] =
    &["continues_in_background", "into_replaced", "renumber", "take_background", "take_hold", "take_ready"];

/// The fields of `Cx` that filters may use; the others belong to the engine.
const OF_FILTERS: &[&str] = &["certificate", "client", "request_id", "tls"];

/// Dependencies that are limited to these crates.
const KEPT_TO: &[(&str, &[&str])] = &[
    ("anyhow", &["weir-kube", "weirgate"]),
    ("clap", &["weir-kube", "weirgate"]),
    ("quinn-proto", &["weir-quic"]),
    ("quinn-udp", &["weir-quic"]),
    ("ratatui", &["weirgate"]),
];

/// Crates that handle only bytes, and get the time as an argument.
const OF_BYTES: [&str; 3] = ["weir-fields", "weir-h1", "weir-h3"];

/// Paths that those crates must not use.
const NOT_OF_BYTES: &[&str] =
    &["tokio", "socket2", "std::net", "std::fs", "std::os", "std::thread", "Instant::now", "SystemTime::now"];

/// Endings of file names in ARCHITECTURE.md.
const NAMED_FILES: &[&str] = &[".rs", ".md", ".yaml", ".toml", ".py", ".sh", ".ini"];

#[test]
fn every_file_says_what_it_is_for() {
    check("begin with `//!`: what the file is for, then how it relates to its neighbours", |broken| {
        for file in sources() {
            let text = read(&file);
            let first = text.lines().find(|line| !line.starts_with("#!"));
            if !first.is_some_and(|line| line.starts_with("//! ")) {
                broken.push(name(&file));
            }
        }
    });
}

#[test]
fn no_file_is_too_long() {
    check("look for the seam, or add the file to LONG_FILES with its reason", |broken| {
        for file in sources() {
            let lines = code_lines(&read(&file));
            let name = name(&file);
            if lines > MAX_CODE_LINES
                && !LONG_FILES.iter().any(|(known, _)| *known == name)
                && !is_test(&name)
            {
                broken.push(format!("{name}: {lines} lines of code"));
            }
        }
    });
}

#[test]
fn no_exemption_is_out_of_date() {
    check("take it out of LONG_FILES", |broken| {
        for (file, _) in LONG_FILES {
            if !fs::read_to_string(root().join(file)).is_ok_and(|text| code_lines(&text) > MAX_CODE_LINES) {
                broken.push((*file).to_owned());
            }
        }
    });
}

#[test]
fn nothing_is_left_undone() {
    // Assembled here, so that this file does not match itself.
    let banned = [["to", "do!("].concat(), ["unimplem", "ented!("].concat(), ["#[ig", "nore"].concat()];
    check("finish it, or take it out", |broken| {
        for file in sources() {
            for (number, line) in read(&file).lines().enumerate() {
                if banned.iter().any(|word| line.contains(word)) {
                    broken.push(format!("{}:{}: {}", name(&file), number + 1, line.trim()));
                }
            }
        }
    });
}

#[test]
fn lines_about_one_thing_are_limited_for_each() {
    check(
        "use log::per_subject: a storm about one thing must not hide the line about another. If the line names nothing, add the file here",
        |broken| {
            let about_the_process =
                ["crates/weir-engine/src/connection.rs", "crates/weir-engine/src/listener.rs"];
            for (place, line) in code_below("crates/") {
                let file = place.split(':').next().unwrap_or_default();
                let is_test = file.contains("/tests/");
                if line.contains("log::every(") && !is_test && !about_the_process.contains(&file) {
                    broken.push(format!("{place}: {}", line.trim()));
                }
            }
        },
    );
}

#[test]
fn no_test_sleeps() {
    let banned = ["sle", "ep("].concat();
    check(
        "wait for an event with a deadline (weir_testkit::eventually polls where there is none)",
        |broken| {
            for file in sources().into_iter().filter(|file| name(file).contains("/tests/")) {
                for (number, line) in read(&file).lines().enumerate() {
                    if line.contains(&banned) {
                        broken.push(format!("{}:{}: {}", name(&file), number + 1, line.trim()));
                    }
                }
            }
        },
    );
}

#[test]
fn crates_know_only_who_they_may() {
    check("style §1 draws who may know whom; a new crate needs a reason and a line in ARROWS", |broken| {
        for (package, manifest) in manifests() {
            let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == package) else {
                broken.push(format!("{package} has no line in ARROWS"));
                continue;
            };
            for Dependency { name, section, .. } in dependencies(&manifest) {
                let test_only = section == "dev-dependencies" && name == "weir-testkit";
                if name.starts_with("weir") && !allowed.contains(&name.as_str()) && !test_only {
                    broken.push(format!("{package} uses {name}"));
                }
            }
        }
    });
}

#[test]
fn some_dependencies_are_kept_to_some_crates() {
    check("see KEPT_TO", |broken| {
        for (package, manifest) in manifests() {
            for Dependency { name, .. } in dependencies(&manifest) {
                let kept = KEPT_TO.iter().find(|(dependency, _)| *dependency == name);
                if kept.is_some_and(|(_, to)| !to.contains(&package.as_str())) {
                    broken.push(format!("{package} uses {name}"));
                }
            }
        }
    });
}

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
fn crates_of_bytes_reach_no_socket_and_no_clock() {
    check("these crates take bytes and return bytes; time is an argument", |broken| {
        let homes = OF_BYTES.map(|package| root().join("crates").join(package));
        for home in &homes {
            for Dependency { name, section, .. } in dependencies(&read(&home.join("Cargo.toml"))) {
                if NOT_OF_BYTES.contains(&name.as_str()) && section != "dev-dependencies" {
                    broken.push(format!("{} depends on {name}", home.display()));
                }
            }
        }
        let below = |file: &PathBuf| homes.iter().any(|home| file.starts_with(home.join("src")));
        for file in sources().into_iter().filter(|file| below(file) && !is_test(&name(file))) {
            let text = read(&file);
            let code = text.lines().take_while(|line| *line != "mod tests {").enumerate();
            let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
            for (number, line) in code {
                if NOT_OF_BYTES.iter().any(|word| line.contains(word)) {
                    broken.push(format!("{}:{}: {}", name(&file), number + 1, line.trim()));
                }
            }
        }
    });
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

#[test]
fn filters_leave_to_the_engine_what_is_the_engines() {
    check("add a method to `Cx` for what filters need; see OF_ENGINE and OF_FILTERS", |broken| {
        for (place, line) in FILTERS.iter().flat_map(|folder| code_below(folder)) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let named = |at: usize| line[at..].split(|c| !is_word(c)).next().unwrap_or_default();
            let is_field = |name: &str, at: usize| {
                let rest = &line[at + name.len()..];
                !name.is_empty() && !rest.starts_with(['(', ':']) && !OF_FILTERS.contains(&name)
            };
            let mut fields = line.match_indices("cx.").filter(|(at, _)| !line[..*at].ends_with(is_word));
            let mut calls = line.match_indices('.').map(|(at, _)| named(at + 1));
            if fields.any(|(at, _)| is_field(named(at + 3), at + 3))
                || calls.any(|name| OF_ENGINE.contains(&name))
            {
                broken.push(format!("{place}: {}", line.trim()));
            }
        }
    });
}

#[test]
fn every_figure_of_a_filter_is_documented() {
    let mut rows = BTreeMap::new();
    // Sources of consumers and splits report like filters.
    let places = || {
        FILTERS
            .iter()
            .chain(&["crates/weir-engine/src/arms.rs", "crates/weir-engine/src/snapshot/sources.rs"])
    };
    let reports = |file: &PathBuf| places().any(|place| name(file).starts_with(place));
    for file in sources().into_iter().filter(reports) {
        let text = read(&file);
        for (kind, suffix) in [("counter", "_total"), ("gauge", "")] {
            for call in text.split(&format!("Figure::{kind}(")).skip(1) {
                let end = call
                    .find([';', ']'])
                    .map_or(call.len(), |end| end.min(call.find("Figure::").unwrap_or(end)));
                let words: Vec<&str> = call[..end].split('"').skip(1).step_by(2).collect();
                let [_, family, help, of @ ..] = &words[..] else { panic!("{}: {call}", name(&file)) };
                let label = of.first().map_or_else(String::new, |label| format!(", `{label}`"));
                let help = help.trim_end_matches('.');
                let row = format!("| `{family}{suffix}` | {kind} | `place`{label} | {help} |\n");
                rows.insert(format!("{family}{suffix}"), row);
            }
        }
    }
    assert!(rows.len() > 20, "the figures were not found");
    let rows: String = rows.into_values().collect();
    let table = format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}");
    generated::generated("docs/reference/metrics.md", "filters", &table);
}

#[test]
fn versions_stand_in_the_root_manifest_only() {
    check("write `name.workspace = true`, and the version and features in the root Cargo.toml", |broken| {
        for (package, manifest) in manifests() {
            for Dependency { line, .. } in dependencies(&manifest) {
                if !line.ends_with(".workspace = true")
                    && !line.ends_with("{ workspace = true, optional = true }")
                {
                    broken.push(format!("{package}: {line}"));
                }
            }
        }
    });
}

/// crates.io refuses a crate without description and license. A publication that stops halfway leaves versions that
/// nobody can publish again.
#[test]
fn published_crates_are_ready_for_the_registry() {
    const INHERITED: [&str; 6] = ["version", "edition", "rust-version", "license", "publish", "include"];
    const MAX_DESCRIPTION: usize = 120;
    let left_out: BTreeSet<String> = read(&root().join("scripts/dist.sh"))
        .split("--exclude ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    check("a crate has its description, LICENSE and NOTICE, and inherits the other keys", |broken| {
        for (package, manifest) in manifests() {
            let keys = manifest.split("\n[").next().unwrap_or_default();
            if keys.contains("\npublish = false") {
                if !left_out.contains(&package) {
                    broken.push(format!("{package}: scripts/dist.sh packages it"));
                }
                continue;
            }
            if left_out.contains(&package) {
                broken.push(format!("{package}: scripts/dist.sh leaves it out"));
            }
            let description = keys.split("\ndescription = \"").nth(1).and_then(|rest| rest.split('"').next());
            if !description.is_some_and(|text| (20..=MAX_DESCRIPTION).contains(&text.len())) {
                broken.push(format!("{package}: its description is {description:?}"));
            }
            for key in INHERITED {
                if !keys.contains(&format!("\n{key}.workspace = true")) {
                    broken.push(format!("{package}: {key}"));
                }
            }
            for file in ["LICENSE", "NOTICE"] {
                let copy = fs::read_to_string(root().join("crates").join(&package).join(file));
                if copy.ok() != Some(read(&root().join(file))) {
                    broken.push(format!("{package}: {file} is not that of the root"));
                }
            }
        }
    });
}

#[test]
fn the_version_is_the_same_everywhere() {
    // A file, what stands before the version there, and what stands behind it.
    const PLACES: [(&str, &str, &str); 8] = [
        ("deploy/kubernetes/chart/Chart.yaml", "\nversion: ", "\n"),
        ("deploy/kubernetes/chart/Chart.yaml", "\nappVersion: ", "\n"),
        ("deploy/kubernetes/weir.yaml", "image: weir:", "\n"),
        ("docs/guide/kubernetes.md", "docker tag weir:", " "),
        ("docs/guide/kubernetes.md", "push REGISTRY/weir:", "\n"),
        ("docs/guide/kubernetes.md", "replace `weir:", "`"),
        ("docs/reference/versions.md", "$ weir --version\nweir ", "\n"),
        ("docs/start.md", "$ weir --version\nweir ", "\n"),
    ];
    let manifest = read(&root().join("Cargo.toml"));
    let package = manifest.split("[workspace.package]").nth(1).unwrap();
    let version = package.split("version = \"").nth(1).unwrap().split('"').next().unwrap();
    check("run scripts/version.sh VERSION", |broken| {
        for (file, before, after) in PLACES {
            let text = read(&root().join(file));
            let found: Vec<&str> =
                text.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect();
            if found.is_empty() || found.iter().any(|found| *found != version) {
                broken.push(format!("{file}: `{}`: {found:?}, not {version}", before.trim()));
            }
        }
    });
}

#[test]
fn every_filter_is_registered() {
    let registry = read(&root().join("crates/weir-filters/src/lib.rs"));
    check("add `mod x;` to lib.rs of its crate and `&x::KIND` to lib.rs of weir-filters, sorted", |broken| {
        for folder in FILTERS {
            let folder = root().join(folder);
            let Ok(crate_root) = fs::read_to_string(folder.join("lib.rs")) else {
                continue; // weir-cache has one filter
            };
            let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            for file in entries.filter(|path| is_filter(path)) {
                let file = file.file_stem().unwrap().to_string_lossy().into_owned();
                let module = crate_root.lines().any(|line| line.trim().ends_with(&format!("mod {file};")));
                if !module || !registry.contains(&format!("{file}::KIND,")) {
                    broken.push(file);
                }
            }
        }
    });
}

#[test]
fn every_layout_is_registered() {
    let report = root().join("crates/weir-report/src/layout.rs");
    let registry = read(&report);
    check("add `mod x;` and `&x::FORMAT` to layout.rs", |broken| {
        for file in files_below(&report.with_extension("")).iter().map(Path::new) {
            let stem = file.file_stem().unwrap().to_string_lossy();
            if read(file).contains("static FORMAT: Format") && !registry.contains(&format!("&{stem}::FORMAT"))
            {
                broken.push(name(file));
            }
        }
    });
}

#[test]
fn architecture_names_only_what_exists() {
    let everything = files_below(&root());
    check("ARCHITECTURE.md names it, and there is no such file or folder", |broken| {
        for word in in_backticks(&read(&root().join("ARCHITECTURE.md"))) {
            let is_path = word.ends_with('/') || NAMED_FILES.iter().any(|ending| word.ends_with(ending));
            if !is_path || word.contains(['<', '*', ' ', '$']) {
                continue;
            }
            // A short name matches every file that ends with it: `exchange.rs`, `route/path.rs`.
            let ending = format!("/{word}");
            let folder = ending.trim_end_matches('/');
            let known = |file: &String| file.ends_with(&ending) || file.contains(&format!("{folder}/"));
            if !everything.iter().any(known) {
                broken.push(word);
            }
        }
    });
}

/// The expressions of mutants.toml, one a line: a name that no longer exists would silently exempt its function.
#[test]
fn mutants_names_only_what_exists() {
    let lists = read(&root().join("mutants.toml"));
    let code: Vec<(String, String)> = files_below(&root())
        .into_iter()
        .filter(|file| file.ends_with(".rs") && file.contains("/crates/"))
        .map(|file| (read(Path::new(&file)), file))
        .map(|(text, file)| (file, text))
        .collect();
    let globs: Vec<&str> = lists.split('"').filter_map(|glob| glob.strip_prefix("**")).collect();
    let expressions = lists.lines().filter_map(|line| line.trim().strip_prefix('\'')?.strip_suffix("',"));
    check("mutants.toml names it, and there is no such file or function", |broken| {
        broken.extend(
            globs
                .iter()
                .filter(|glob| !code.iter().any(|(file, _)| file.ends_with(*glob)))
                .map(|g| (*g).to_owned()),
        );
        for expression in expressions.clone() {
            // `/acl\.rs:.*(replace|in) (is_called|.*::on_request)\b`: the file, if any, then functions and types.
            let (file, names) = match expression.split_once("\\.rs:") {
                Some((file, names)) => (format!("/{}.rs", file.trim_start_matches('/')), names),
                None => (String::new(), expression),
            };
            let files: Vec<&(String, String)> = match file.is_empty() {
                true => {
                    code.iter().filter(|(file, _)| globs.iter().any(|glob| file.ends_with(glob))).collect()
                }
                false => code.iter().filter(|(path, _)| path.ends_with(&file)).collect(),
            };
            if files.is_empty() {
                broken.push(file);
                continue;
            }
            let names = names
                .rsplit_once("in) ")
                .or_else(|| names.rsplit_once(" in "))
                .map_or("", |(_, names)| names);
            let names = names.replace("\\b", "");
            let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
            for name in names.split(|letter| !is_letter(letter)).filter(|name| !name.is_empty()) {
                let defined =
                    ["fn ", "struct ", "enum ", "impl ", " for "].map(|word| format!("{word}{name}"));
                let is_defined = |text: &str| {
                    defined.iter().any(|start| {
                        text.match_indices(start)
                            .any(|(at, _)| !text[at + start.len()..].starts_with(is_letter))
                    })
                };
                if !files.iter().any(|(_, text)| is_defined(text)) {
                    broken.push(format!("{name} in `{expression}`"));
                }
            }
        }
    });
}

#[test]
fn every_page_can_be_found() {
    let pages: Vec<PathBuf> = files_below(&root().join("docs")).iter().map(PathBuf::from).collect();
    let mut readers = vec![root().join("README.md")];
    readers.extend(pages.iter().cloned());
    // A reader of the repository does not open the contents of the site.
    readers.retain(|reader| !reader.ends_with(SUMMARY));
    let is_page = |page: &&PathBuf| page.extension().is_some_and(|extension| extension == "md");
    check("link it from README.md or from another page", |broken| {
        for page in pages.iter().filter(is_page).filter(|page| !page.ends_with(SUMMARY)) {
            let link = format!("{})", page.file_name().unwrap().to_string_lossy());
            let links =
                |reader: &PathBuf| reader != page && read(reader).match_indices(&link).any(|(at, _)| at > 0);
            if !readers.iter().any(links) {
                broken.push(name(page));
            }
        }
    });
}

/// The contents of the site that `make docs` builds.
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn the_site_has_every_page_once() {
    let summary = read(&root().join(SUMMARY));
    let links: Vec<&str> = summary.match_indices("](").map(|(at, _)| &summary[at + 2..]).collect();
    let links: Vec<&str> = links.iter().filter_map(|rest| rest.split(')').next()).collect();
    let docs = root().join("docs");
    let pages = files_below(&docs).into_iter().filter(|page| page.ends_with(".md"));
    let pages = pages.map(|page| Path::new(&page).strip_prefix(&docs).unwrap().display().to_string());
    let project = ["README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"];
    let project = project.map(|page| format!("../{page}.md"));
    check("docs/SUMMARY.md must have it once", |broken| {
        for page in pages.clone().filter(|page| page != "SUMMARY.md").chain(project.clone()) {
            if links.iter().filter(|link| **link == page).count() != 1 {
                broken.push(page);
            }
        }
    });
}

#[test]
fn no_link_between_pages_is_broken() {
    check("there is no such file", |broken| {
        for page in &pages() {
            let text = read(page);
            for (at, _) in text.match_indices("](") {
                let link = text[at + 2..].split([')', '#']).next().unwrap_or_default();
                let elsewhere = link.is_empty() || link.contains("://") || link.contains(' ');
                if !elsewhere && !page.parent().unwrap().join(link).exists() {
                    broken.push(format!("{}: {link}", name(page)));
                }
            }
        }
    });
}

#[test]
fn no_anchor_between_pages_is_broken() {
    let pages = pages();
    let anchors: BTreeMap<PathBuf, BTreeSet<String>> =
        pages.iter().map(|page| (page.canonicalize().unwrap(), anchors(&read(page)))).collect();
    check("there is no such heading", |broken| {
        for page in &pages {
            let text = read(page);
            for (at, _) in text.match_indices("](") {
                let link = text[at + 2..].split(')').next().unwrap_or_default();
                let Some((file, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) else {
                    continue;
                };
                let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                let known = target.canonicalize().ok().and_then(|target| anchors.get(&target));
                if known.is_some_and(|known| !known.contains(anchor)) {
                    broken.push(format!("{}: {link}", name(page)));
                }
            }
        }
    });
}

/// The pages in `docs` and at the root.
fn pages() -> Vec<PathBuf> {
    let docs = files_below(&root().join("docs")).into_iter().map(PathBuf::from);
    let beside = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    docs.chain(beside).filter(is_page).collect()
}

/// The anchors of a page: those that its headings get, and those that it names.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        // A link in a heading counts with its text only.
        let (first, links) = heading.split_once("](").unwrap_or((heading, ""));
        let rest = links.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        let heading: String = std::iter::once(first).chain(rest).collect();
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let more = (0..).map(|n| if n == 0 { anchor.clone() } else { format!("{anchor}-{n}") });
        let unused = more.into_iter().find(|anchor| !found.contains(anchor)).unwrap();
        found.insert(unused);
    }
    for (at, _) in text.match_indices(" id=\"") {
        found.insert(text[at + 5..].split('"').next().unwrap_or_default().to_owned());
    }
    found
}

/// A filter declares its kind in its file, or in its folder's first file; other modules are shared by filters.
fn is_filter(path: &Path) -> bool {
    let file = if path.is_dir() { path.join("mod.rs") } else { path.to_owned() };
    fs::read_to_string(file).is_ok_and(|text| text.contains("static KIND: FilterKind"))
}

// === Helpers ===

/// Collects violations of a rule, and fails with advice.
#[track_caller]
fn check(advice: &str, look: impl Fn(&mut Vec<String>)) {
    let mut broken = Vec::new();
    look(&mut broken);
    assert!(broken.is_empty(), "{advice}:\n  {}", broken.join("\n  "));
}

/// The workspace for which cargo runs the test. Determined at run time: with a shared target folder, the executable
/// may have been built for another checkout.
fn root() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&here).ancestors().nth(2).unwrap().to_owned()
}

/// Every Rust file of every crate.
fn sources() -> Vec<PathBuf> {
    let files = files_below(&root().join("crates")).into_iter().map(PathBuf::from);
    files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Every line of code in the Rust files below a folder, with its place; without tests and comments.
fn code_below(folder: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for file in
        sources().into_iter().filter(|file| name(file).starts_with(folder) && !file.ends_with("tests.rs"))
    {
        let text = read(&file);
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        lines.extend(code.map(|(number, line)| (format!("{}:{}", name(&file), number + 1), line.to_owned())));
    }
    lines
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

/// Every file below a folder, except build output and version control.
fn files_below(folder: &Path) -> Vec<String> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("target") || path.ends_with(".git") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}

/// Texts in single backticks, outside code blocks.
fn in_backticks(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn name(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// Lines before the tests that are neither empty nor comments.
fn code_lines(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count()
}

/// Every crate with its manifest.
fn manifests() -> Vec<(String, String)> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let mut manifests: Vec<_> = folders
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("Cargo.toml").exists())
        .map(|folder| {
            (folder.file_name().unwrap().to_string_lossy().into_owned(), read(&folder.join("Cargo.toml")))
        })
        .collect();
    manifests.sort();
    manifests
}

struct Dependency {
    name: String,
    section: String,
    line: String,
}

/// A manifest's dependency lines. Supports only our manifests' plain form, which another test requires.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let (mut section, mut found) = ("", Vec::new());
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if section.ends_with("dependencies") && !line.is_empty() {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned();
            let section = section.rsplit('.').next().unwrap_or_default().to_owned();
            found.push(Dependency { name, section, line: line.to_owned() });
        }
    }
    found
}
