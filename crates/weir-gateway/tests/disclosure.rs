//! Compares `disclosure.txt` of weir-config, which says what views of the config may show, with the JSON Schema of
//! the config and all filters. Each setting must be declared, and no view, difference or diagnostic may show a
//! setting that is not public.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod leaves;

use leaves::{PLANTED, configs, leaves, tree, written};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use weir_gateway::config::secrecy::{Rule, declared, hide_refused};
use weir_gateway::config::{Diagnostic, Severity, Source, Text, Texts};
use weir_gateway::history::diff::{diff, shown};

#[test]
fn every_setting_is_declared() {
    let (leaves, declared): (_, BTreeMap<&str, Rule>) = (leaves(), declared().collect());
    // Filters of an embedding program may identify consumers by their own credentials.
    let lists = |path: &str| declared.get(path) == Some(&Rule::Filters) || path == "consumers.*.*";
    let mut wrong = String::new();
    for path in leaves.keys().filter(|path| !declared.contains_key(path.as_str())) {
        let _ = writeln!(wrong, "  {path} is not declared: as it is, no view shows it");
    }
    for path in declared.keys().filter(|path| !leaves.contains_key(**path) && !lists(path)) {
        let _ = writeln!(wrong, "  {path} is declared, and there is no such setting");
    }
    assert!(wrong.is_empty(), "crates/weir-config/src/disclosure.txt, which says how to decide:\n{wrong}");
}

#[test]
fn what_is_not_public_is_told_nowhere() {
    let declared: BTreeMap<&str, Rule> = declared().collect();
    let leaves = leaves();
    let hides = |path: &str| matches!(declared.get(path), Some(Rule::Credential | Rule::Secret));
    let secret = leaves.iter().filter(|(path, text)| **text && hides(path));
    let unheard_of = ["routes.x.unheard", "unheard.of", "filter.jwt.unheard", "consumers.x.unheard_auth"];
    let paths: BTreeSet<&str> = secret.map(|(path, _)| path.as_str()).chain(unheard_of).collect();
    assert!(paths.len() >= 30, "{paths:?}");
    let empty = tree("{}");
    for path in paths {
        for text in configs(path) {
            let tree = tree(&text);
            let source =
                Source::text("weir.yaml", text.as_str()).with_credentials(["key_auth", "jwt", "oidc"]);
            let diagnostics = weir_gateway::check(&source, &[]).diagnostics;
            let mut outputs = vec![
                ("the view", shown(&tree).to_string()),
                ("what came", diff(&empty, &tree).to_text()),
                ("what went", serde_json::to_string(&diff(&tree, &empty).differences).unwrap()),
                ("the log", diagnostics.for_readers().to_text()),
                ("diagnostics for readers", diagnostics.for_readers().to_json().to_string()),
            ];
            if declared.get(path) == Some(&Rule::Credential) {
                outputs.push(("diagnostics as JSON", diagnostics.to_json().to_string()));
                outputs.push(("weir check", diagnostics.to_text()));
            }
            for (output, told) in outputs {
                assert!(!told.contains("plant+"), "{output} tells {path}:\n{text}\n{told}");
            }
        }
    }
}

/// A misplaced secret: as a refused value, as a key, or in a map where a value is expected.
fn misplaced(full: &str) -> Vec<String> {
    let path = match full.strip_prefix("filter.") {
        Some(path) => format!("routes.x.filters.-{path}"),
        None => full.to_owned(),
    };
    let [value, list, ..] = &written(&path)[..] else { unreachable!() };
    let head = value.trim_end().strip_suffix(PLANTED).unwrap();
    let above = &head[..head.trim_end_matches([':', ' ']).rfind([' ', '\n']).map_or(0, |at| at + 1)];
    let mut all = vec![
        value.clone(),
        list.clone(),
        format!("{head}{{ \"{PLANTED}\": x }}\n"),
        format!("{head}{{ x: \"{PLANTED}\" }}\n"),
        format!("{head}[ [ {PLANTED} ] ]\n"),
        format!("{above}{PLANTED}:\n"),
    ];
    // A name that people choose is not a secret: neither that of an entry with settings of its own, such as an arm of a
    // split, nor that of this setting.
    if !declared().any(|(path, _)| path.starts_with(&format!("{full}.*."))) {
        all.push(format!("{head}{{ {PLANTED}: {{ x: y }} }}\n"));
    }
    let chosen = full.rsplit_once('.').map_or_else(|| "*".to_owned(), |(parent, _)| format!("{parent}.*"));
    let is_chosen = |(path, _): (&str, Rule)| path == chosen || path.starts_with(&format!("{chosen}."));
    if !declared().any(is_chosen) {
        all.push(format!("{above}{PLANTED}: x\n"));
    }
    all
}

#[test]
fn what_was_refused_is_told_to_no_reader() {
    let leaves = leaves();
    let (mut refused, mut shown_all) = (0, 0);
    for path in leaves.keys() {
        for text in misplaced(path) {
            let written = vec![Text { path: "weir.yaml".into(), text: text.as_str().into() }];
            let Some(mut tree) = (Texts { written, ..Texts::default() }).tree() else { continue };
            let source =
                Source::text("weir.yaml", text.as_str()).with_credentials(["key_auth", "jwt", "oidc"]);
            let diagnostics = weir_gateway::check(&source, &[]).diagnostics;
            let mut told = diagnostics.for_readers();
            told.retain(|d| d.severity == Severity::Error);
            for output in [told.to_text(), told.to_json().to_string()] {
                assert!(!output.contains("plant+"), "{path} is told:\n{text}\n{output}");
            }
            // Views also hide refused values, but not valid public ones.
            let names = |d: &&Diagnostic| {
                d.severity == Severity::Error && (d.message.contains("plant+") || d.path.contains("plant+"))
            };
            hide_refused(&mut tree, diagnostics.refused_paths(), None);
            let view = shown(&tree).to_string();
            if diagnostics.iter().any(|d| names(&d)) {
                refused += 1;
                assert!(
                    !view.contains("plant+"),
                    "{path} is shown:\n{text}\n{view}\n{}",
                    diagnostics.to_text()
                );
            } else {
                shown_all += 1;
            }
        }
    }
    assert!(refused > 1000 && shown_all > 100, "{refused} were refused, {shown_all} were not");
}

#[test]
fn what_is_public_is_shown() {
    let declared: BTreeMap<&str, Rule> = declared().collect();
    for (path, _) in leaves().iter().filter(|(path, _)| declared.get(path.as_str()) == Some(&Rule::Public)) {
        for text in configs(path) {
            assert!(shown(&tree(&text)).to_string().contains("plant+"), "{path} is hidden:\n{text}");
        }
    }
}
