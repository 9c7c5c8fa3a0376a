//! The comparison with a baseline, as lines of the text layout and as a section of the page.

use crate::comparison::text::columns;
use crate::page::{escaped, section, table_with_words};
use crate::report::{GateState, Judgement, Report};
use std::fmt::Write as _;

/// Lines of text; empty without a baseline.
pub(super) fn text(r: &Report) -> String {
    let Some(judgement) = &r.judgement else { return String::new() };
    let mut out = String::new();
    if let Some(used) = &judgement.baseline {
        let _ = writeln!(out, "\nagainst      {}: {}", used.file, used.words()); // infallible
    }
    let rows: Vec<Vec<String>> = judgement
        .changes
        .iter()
        .map(|c| vec![c.figure.clone(), c.before_text(), c.change_text(), c.words()])
        .collect();
    out += &columns(&rows);
    for gate in &judgement.gates {
        let _ = writeln!(out, "gate         {:<8} {}: {}", word(gate.state), gate.condition, gate.text);
    }
    out
}

/// A section of the page; empty without a baseline.
pub(super) fn html(r: &Report) -> String {
    let Some(Judgement { baseline: Some(used), changes, gates, .. }) = &r.judgement else {
        return String::new();
    };
    let rows = changes.iter().map(|c| [c.figure.clone(), c.before_text(), c.change_text(), c.words()]);
    let mut body = format!("<p class=\"dim\">{}</p>", escaped(&format!("{}: {}", used.file, used.words())));
    if !changes.is_empty() {
        body += &table_with_words(&["", "baseline", "change", ""], rows);
    }
    if !gates.is_empty() {
        let rows = gates.iter().map(|gate| {
            let class = if gate.state == GateState::Broken { " class=\"bad\"" } else { "" };
            let state = format!("<span{class}>{}</span>", word(gate.state).to_lowercase());
            [escaped(&gate.condition), state, escaped(&gate.text)]
        });
        body += &table_with_words(&["gate", "", ""], rows);
    }
    section("Against the baseline", &body)
}

const fn word(state: GateState) -> &'static str {
    match state {
        GateState::Broken => "BROKEN",
        GateState::Held => "held",
        GateState::Unknown => "unknown",
    }
}
