//! The report of an import: what became of each line, for people and for machines.

use super::ledger::{Ledger, Line, Verdict};
use super::system::Import;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines of one kind that the text shows for each reason; `--format json` has all.
const SHOWN: usize = 5;

impl Import {
    /// The exit code: 1 if something was left out or refused; with `strict`, also if something was changed.
    #[must_use]
    pub fn exit_code(&self, strict: bool) -> u8 {
        self.ledger.exit_code(strict)
    }

    /// The report as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.ledger.to_text(self.system.title, &GATEWAY)
    }

    /// The report as JSON. It has every line.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut report = self.ledger.to_json(self.system.name, &self.files);
        report["written"] = json!(self.written().iter().map(|file| file.path.clone()).collect::<Vec<_>>());
        report
    }
}

/// The words of a report: what its sections are called.
pub(crate) struct Words {
    pub(crate) refused: &'static str,
    pub(crate) changed: &'static str,
    pub(crate) left_out: &'static str,
    /// What the ledger counts.
    pub(crate) counted: &'static str,
}

const GATEWAY: Words = Words {
    refused: "Refused: decide these yourself",
    changed: "Changed: Weir does these in another way",
    left_out: "Left out: these have no place in Weir",
    counted: "lines",
};

impl Ledger {
    /// The exit code: 1 if something was left out or refused; with `strict`, also if something was changed.
    pub(crate) fn exit_code(&self, strict: bool) -> u8 {
        let counts = self.counts();
        u8::from(counts.refused + counts.left_out > 0 || (strict && counts.changed > 0))
    }

    /// The ledger as text.
    pub(crate) fn to_text(&self, title: &str, words: &Words) -> String {
        let mut text = String::new();
        for (verdict, title) in [
            (Verdict::Refused, words.refused),
            (Verdict::Changed, words.changed),
            (Verdict::LeftOut, words.left_out),
        ] {
            self.section(verdict, title, &mut text);
        }
        if !self.notes().is_empty() {
            text.push_str("Also different\n");
            for note in self.notes() {
                let _ = writeln!(text, "  {note}");
            }
            text.push('\n');
        }
        let counts = self.counts();
        let _ = writeln!(
            text,
            "{} {} of {title}: {} same, {} changed, {} left out, {} refused; {} % taken",
            counts.total(),
            words.counted,
            counts.same,
            counts.changed,
            counts.left_out,
            counts.refused,
            counts.percent_taken()
        );
        text
    }

    /// Lines with one verdict, together where the reason is the same.
    fn section(&self, verdict: Verdict, title: &str, text: &mut String) {
        let lines = self.lines().iter().filter(|line| line.verdict == verdict);
        let mut order: Vec<String> = Vec::new();
        let mut groups: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
        for line in lines {
            let reason = line.why.join("; ");
            let group = groups.entry(reason.clone()).or_default();
            if group.is_empty() {
                order.push(reason);
            }
            group.push(line);
        }
        if order.is_empty() {
            return;
        }
        let _ = writeln!(text, "{title}");
        for reason in order {
            let Some(lines) = groups.get(&reason) else { continue };
            for line in lines.iter().take(SHOWN) {
                let _ = writeln!(text, "  {}: {}", line.place, line.text);
            }
            if lines.len() > SHOWN {
                let _ = writeln!(text, "  … and {} more like these", lines.len() - SHOWN);
            }
            let _ = writeln!(text, "    {reason}");
            let mut nearest: Vec<&str> = lines.iter().flat_map(|line| &line.nearest).map(|n| &**n).collect();
            nearest.sort_unstable();
            nearest.dedup();
            for nearest in nearest {
                let _ = writeln!(text, "    in Weir: {nearest}");
            }
        }
        text.push('\n');
    }

    /// The ledger as JSON. It has every line.
    pub(crate) fn to_json(&self, system: &str, files: &[String]) -> Value {
        let counts = self.counts();
        let line = |line: &Line| {
            let mut object = json!({
                "file": &*line.place.file,
                "line": line.place.line,
                "text": line.text,
                "verdict": line.verdict.key(),
            });
            if !line.why.is_empty() {
                object["why"] = json!(line.why);
            }
            if !line.nearest.is_empty() {
                object["nearest"] = json!(line.nearest);
            }
            object
        };
        json!({
            "system": system,
            "files": files,
            "counts": {
                "lines": counts.total(),
                "same": counts.same,
                "changed": counts.changed,
                "left_out": counts.left_out,
                "refused": counts.refused,
                "percent_taken": counts.percent_taken(),
            },
            "lines": self.lines().iter().map(line).collect::<Vec<_>>(),
            "notes": self.notes(),
        })
    }
}
