//! Which crates may know each other, which dependencies they may have, and where versions are written.

use super::{check, is_test, name, read, root, sources};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

/// The fuzz targets are a workspace of their own, so nothing else updates their lock file when a crate here gets a new
/// dependency or version.
#[test]
fn the_lock_file_of_the_fuzz_targets_is_current() {
    check(
        "run `cargo metadata --offline --format-version 1 >/dev/null` in fuzz/, and commit fuzz/Cargo.lock",
        |broken| {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let run = Command::new(cargo)
                .args(["metadata", "--locked", "--offline", "--no-default-features", "--format-version", "1"])
                .current_dir(root().join("fuzz"))
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&run.stderr);
            // A package that was never downloaded says nothing about the lock file.
            if !run.status.success() && !error.contains("failed to download") {
                broken.push(error.into_owned());
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

/// Every crate with its manifest.
pub(super) fn manifests() -> Vec<(String, String)> {
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
