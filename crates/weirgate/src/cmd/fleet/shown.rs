//! The state of a fleet, as text and as JSON.

use serde_json::{Value, json};
use std::fmt::Write;
use weir_fleet::pointer::{Pointer, State, Step, labels_text};
use weir_fleet::{Digest, NodeReport};
use weir_gateway::fleet::{Fleet, Silent};

/// The state of a rollout, in one sentence.
pub(super) fn sentence(pointer: &Pointer) -> String {
    let rollout = &pointer.rollout;
    let what = format!("generation {}: bundle {}", pointer.generation, pointer.to.short());
    match rollout.state {
        State::Done => format!("{what} runs on every node"),
        State::Running => format!("{what}, step {} of {} is open", rollout.open, rollout.steps.len()),
        State::Halted if rollout.open == 0 => {
            format!("{what} HALTED, every node returns to the previous bundle: {}", rollout.why)
        }
        State::Halted => {
            format!("{what} HALTED at step {} of {}: {}", rollout.open, rollout.steps.len(), rollout.why)
        }
    }
}

pub(super) fn page(place: &str, fleet: &Fleet) -> String {
    let mut out = format!("{place}\n");
    let Some(pointer) = &fleet.pointer else {
        let _ = writeln!(out, "nothing was published yet; {} nodes", fleet.nodes.len()); // a String takes all
        return out;
    };
    let _ = writeln!(out, "{}", sentence(pointer));
    let by = [("by", &pointer.author), ("at", &pointer.time), ("because", &pointer.message)];
    for (word, text) in by.into_iter().filter(|(_, text)| !text.is_empty()) {
        let _ = writeln!(out, "  {word} {text}");
    }
    if let Some(from) = pointer.from {
        let _ = writeln!(out, "  before it {}", from.short());
    }
    for (number, step) in pointer.rollout.steps.iter().enumerate() {
        let mine: Vec<&NodeReport> =
            fleet.nodes.iter().filter(|n| step.has(&n.node, &n.labels, pointer.to)).collect();
        let there = mine.iter().filter(|node| node.running == Some(pointer.to)).count();
        let open = if number < pointer.rollout.open { "open" } else { "closed" };
        let _ = writeln!(
            out,
            "  step {}: {}, {open}, {there} of {} nodes run it",
            number + 1,
            who(step),
            mine.len()
        );
    }
    if let (State::Running, Some(leader)) = (pointer.rollout.state, &fleet.leader) {
        let _ = match leader {
            Some(node) => writeln!(out, "  coordinated by {node}"),
            None => writeln!(
                out,
                "  NO NODE COORDINATES it, so no further step opens. A node takes over within seconds if its user may write the keys `leader` and `current`"
            ),
        };
    }
    let _ = writeln!(out, "\nlive nodes: {}", fleet.nodes.len());
    for node in &fleet.nodes {
        let _ = writeln!(out, "  {}", line(node, pointer));
    }
    if !fleet.silent.is_empty() {
        let _ = writeln!(out, "\nSILENT nodes, which did not leave: {}", fleet.silent.len());
    }
    for node in &fleet.silent {
        let _ = writeln!(out, "  {}", silent(node));
    }
    if !pointer.earlier.is_empty() {
        let left = |digest: &Digest| if pointer.left.contains(digest) { " (left)" } else { "" };
        let name = |digest: &Digest| format!("{}{}", digest.short(), left(digest));
        let kept: Vec<String> = pointer.earlier.iter().map(name).collect();
        let _ = writeln!(out, "\nkept to go back to: {}", kept.join(", "));
    }
    out
}

fn who(step: &Step) -> String {
    match step {
        Step::All => "everybody".to_owned(),
        Step::Labels(labels) => labels_text(labels),
        Step::Share { percent, also } if also.is_empty() => format!("{percent}%"),
        Step::Share { percent, also } => format!("{percent}% and {}", also.join(", ")),
    }
}

fn line(node: &NodeReport, pointer: &Pointer) -> String {
    let runs = node.running.map_or_else(|| "nothing".to_owned(), |digest| digest.short());
    let mut out = format!("{:<24} {runs:<13}", node.node);
    if !node.since.is_empty() {
        let _ = write!(out, " since {}", node.since); // a String takes all
    }
    let wanted = pointer.wanted(&node.node, &node.labels);
    if let Some(refused) = node.refused.as_ref().filter(|refused| Some(refused.bundle) == wanted) {
        let first = refused.why.lines().next().unwrap_or_default();
        let _ = write!(out, "  REFUSED {}: {first}", refused.bundle.short());
    } else if wanted.is_some() && node.running != wanted {
        out.push_str("  not there yet");
    }
    if let Some(unwell) = &node.unwell {
        let _ = write!(out, "  DOES BADLY: {}", unwell.why);
    }
    if !node.trouble.is_empty() {
        let _ = write!(out, "  {}", node.trouble.lines().next().unwrap_or_default());
    }
    if !node.cached {
        out.push_str("  not on its disk");
    }
    out
}

fn silent(node: &Silent) -> String {
    let ran = node.report.running.map_or_else(|| "nothing".to_owned(), |digest| digest.short());
    let silence = node.silence.map_or_else(
        || "for some time".to_owned(),
        |silence| match silence.as_secs() {
            0..120 => "for less than 2 min".to_owned(),
            seconds @ 120..7200 => format!("for {} min", seconds / 60),
            seconds => format!("for {} h", seconds / 3600),
        },
    );
    format!("{:<24} ran {ran:<13} silent {silence}", node.report.node)
}

pub(super) fn json(fleet: &Fleet) -> String {
    let nodes: Vec<Value> = fleet.nodes.iter().map(|node| json!(node)).collect();
    let silent = fleet.silent.iter().map(|node| {
        let mut report = json!(node.report);
        report["silent_seconds"] = json!(node.silence.map(|silence| silence.as_secs()));
        report
    });
    let document = json!({
        "pointer": fleet.pointer, "revision": fleet.revision, "nodes": nodes,
        "silent": silent.collect::<Vec<_>>(), "coordinator": fleet.leader.clone().flatten(),
    });
    format!("{document:#}\n")
}
