//! `docs/reference/causes.md`, generated from the declared causes: those of `error.rs` and those of each filter.
//!
//! A test compares the page with the generated text; run it with `WEIR_BLESS=1` to update the page.

use crate::error::{CAUSES, Cause};
use crate::filters::KINDS;
use std::collections::BTreeMap;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Causes

<!-- Made from the source by the test `the_page_is_up_to_date`; WEIR_BLESS=1 writes it anew. -->

Whenever Weir itself answers, or cuts an exchange short, it reports a cause: a stable code for the reason. An error without
a cause came from the upstream. The code appears

- in the access log, field `cause`;
- in the metrics, `weir_causes_total{cause=\"…\"}`;
- in the header `x-weir-cause` and the body of the answer, if the config says `expose_causes: true`. The default is off,
  because causes reveal to strangers how the services behind Weir are set up. Weir drops an upstream's own `x-weir-cause`.

The answer is `application/problem+json` (RFC 9457), or a small HTML page for a browser. Its `detail` (`grpc-message` for
gRPC) says what happened if causes are exposed; otherwise it is one neutral text per status. A status of — means no answer:
one had begun already, or no client is left to read it. Weir then cuts the connection, so that an incomplete answer cannot
look complete.

Codes never change their meaning; any version may add new ones.
";

/// The whole page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| cause | status | what happened | what changes it |\n|---|---|---|---|\n");
    for (code, (cause, filters)) in all() {
        let status = if cause.status == 0 { "—".to_owned() } else { cause.status.to_string() };
        let links: Vec<String> = filters.iter().map(|f| format!("[{f}](filters.md#{f})")).collect();
        let by = if links.is_empty() { String::new() } else { format!(" Filter: {}.", links.join(", ")) };
        let (meaning, change) = (cell(cause.meaning), cell(cause.change));
        let _ = writeln!(page, "| `{code}` | {status} | {meaning}{by} | {change} |"); // a String takes everything
    }
    page
}

/// Every cause by its code, with the filters that use it.
fn all() -> BTreeMap<&'static str, (&'static Cause, Vec<&'static str>)> {
    let mut all: BTreeMap<_, _> = CAUSES.iter().map(|cause| (cause.code, (*cause, Vec::new()))).collect();
    for kind in KINDS {
        for cause in kind.causes {
            all.entry(cause.code).or_insert((cause, Vec::new())).1.push(kind.name);
        }
    }
    all
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/causes.md");
        if std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty()) {
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/reference/causes.md is out of date: run this test with WEIR_BLESS=1"
        );
    }

    #[test]
    fn every_key_named_exists() {
        let config = crate::config::reference::markdown();
        for cause in all().values().map(|(cause, _)| cause) {
            for word in cause.change.split([' ', ',', ':']).filter(|word| word.contains('.')) {
                let key = word.replace(".*.", ".NAME.");
                let Some((section, key)) = key.rsplit_once('.').filter(|(_, key)| *key != "*") else {
                    continue;
                };
                let Some((_, rest)) = config.split_once(&format!("\n## `{section}`\n")) else {
                    assert!(!word.contains('*'), "{cause}: there is no section {section}");
                    continue; // another word with a dot in it
                };
                let section = rest.split("\n## ").next().unwrap_or_default();
                assert!(section.contains(&format!("\n| `{key}` |")), "{cause}: there is no key {word}");
            }
        }
    }

    #[test]
    fn a_code_means_one_thing() {
        for kind in KINDS {
            for cause in kind.causes {
                let same = CAUSES.iter().find(|c| c.code == cause.code);
                assert!(
                    same.is_none_or(|same| std::ptr::eq(*same, *cause)),
                    "{} of {}",
                    cause.code,
                    kind.name
                );
            }
        }
    }
}
