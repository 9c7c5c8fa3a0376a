//! Builds the fleet page from the status of this node and the source's view of all nodes.

use weir_console::view::{Fleet, FleetNode, Rollout, RolloutStep};
use weir_fleet::pointer::{Pointer, State, Step, labels_text};
use weir_fleet::{Digest, NodeReport};
use weir_gateway::fleet::Seen;

/// The view model; `None` if the source took too long.
pub(super) fn of(seen: Option<Seen>) -> Fleet {
    let Some(Seen { pointer, nodes, silent }) = seen else {
        return Fleet { unknown: Some("the source did not answer in time".to_owned()), ..Fleet::default() };
    };
    let (nodes, unknown) = match nodes {
        None => (None, None),
        Some(Ok(nodes)) => (Some(nodes), None),
        Some(Err(why)) => (None, Some(why)),
    };
    let live = nodes.as_deref().unwrap_or_default();
    Fleet {
        rollout: pointer.as_ref().map(|pointer| rollout(pointer, live)),
        unknown,
        silent: silent.into_iter().map(|report| report.node).collect(),
        nodes: nodes
            .as_ref()
            .map(|nodes| nodes.iter().map(|report| node(report, pointer.as_ref())).collect()),
    }
}

fn rollout(pointer: &Pointer, nodes: &[NodeReport]) -> Rollout {
    let step = |step: &Step| {
        let mine = || nodes.iter().filter(|node| step.has(&node.node, &node.labels, pointer.to));
        let there = mine().filter(|node| node.running == Some(pointer.to)).count();
        RolloutStep { who: who(step), there, all: mine().count() }
    };
    Rollout {
        generation: pointer.generation,
        to: pointer.to.short(),
        from: pointer.from.map(|from| from.short()),
        author: pointer.author.clone(),
        time: pointer.time.clone(),
        message: pointer.message.clone(),
        state: match pointer.rollout.state {
            State::Done => "done",
            State::Halted => "halted",
            State::Running => "running",
        }
        .to_owned(),
        why: pointer.rollout.why.clone(),
        open: pointer.rollout.open,
        steps: pointer.rollout.steps.iter().map(step).collect(),
    }
}

fn who(step: &Step) -> String {
    match step {
        Step::All => "everybody".to_owned(),
        Step::Labels(labels) => labels_text(labels),
        Step::Share { percent, also } if also.is_empty() => format!("{percent} % of the nodes"),
        Step::Share { percent, also } => format!("{percent} % of the nodes, and {}", also.join(", ")),
    }
}

fn node(report: &NodeReport, pointer: Option<&Pointer>) -> FleetNode {
    let wanted = pointer.and_then(|pointer| pointer.wanted(&report.node, &report.labels));
    // Ignore the refusal of a bundle that is no longer wanted.
    let refused = report.refused.as_ref().filter(|refused| Some(refused.bundle) == wanted);
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    FleetNode {
        name: report.node.clone(),
        labels: report.labels.clone(),
        zone: report.zone.clone(),
        version: report.version.clone(),
        runs: report.running.as_ref().map(Digest::short),
        since: report.since.clone(),
        is_late: wanted.is_some() && report.running != wanted && refused.is_none(),
        refused: refused.map(|refused| first(&refused.why)),
        unwell: report.unwell.as_ref().map(|unwell| first(&unwell.why)),
        trouble: first(&report.trouble),
        cached: report.cached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_as_the_rollout_wants_them() {
        let (new, old) = ("a".repeat(64), "b".repeat(64));
        let pointer: Pointer = serde_json::from_value(json!({
            "version": 1, "generation": 3, "to": new, "from": old, "author": "anna",
            "rollout": { "steps": [ { "labels": { "canary": "yes" } }, "all" ], "open": 1, "hold_ms": 1000, "state": "running" },
        }))
        .unwrap();
        let report = |name: &str, running: &str, more: serde_json::Value| -> NodeReport {
            let mut all = json!({ "node": name, "running": running, "cached": true });
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(all).unwrap()
        };
        let canary = json!({ "canary": "yes" });
        let nodes = vec![
            report("one", &new, json!({ "labels": canary })),
            report(
                "two",
                &old,
                json!({ "labels": canary, "refused": { "bundle": new, "why": "line 1\nline 2" } }),
            ),
            report("three", &old, json!({ "labels": canary })),
            report("four", &old, json!({ "refused": { "bundle": new, "why": "not its turn" } })),
        ];
        let missing = vec![report("five", &old, json!({}))];
        let seen = Seen { pointer: Some(pointer), nodes: Some(Ok(nodes)), silent: missing };
        let fleet = of(Some(seen));
        assert_eq!(fleet.silent, ["five"]);
        let rollout = fleet.rollout.unwrap();
        let steps: Vec<_> = rollout.steps.iter().map(|s| (&*s.who, s.there, s.all)).collect();
        assert_eq!(steps, [("canary=yes", 1, 3), ("everybody", 1, 4)]);
        assert_eq!((rollout.to.len(), &*rollout.state, rollout.open), (12, "running", 1));
        let nodes = fleet.nodes.unwrap();
        let of: Vec<_> = nodes.iter().map(|n| (&*n.name, n.is_late, n.refused.as_deref())).collect();
        assert_eq!(
            of,
            [
                ("one", false, None),
                ("two", false, Some("line 1")),
                ("three", true, None),
                ("four", false, None)
            ]
        );
    }

    #[test]
    fn a_source_that_is_away_or_knows_no_nodes() {
        assert!(of(None).unknown.is_some());
        let silent =
            of(Some(Seen { pointer: None, nodes: Some(Err("refused".to_owned())), silent: Vec::new() }));
        assert_eq!((silent.unknown.as_deref(), silent.nodes.is_none()), (Some("refused"), true));
        let web = of(Some(Seen { pointer: None, nodes: None, silent: Vec::new() }));
        assert!(web.unknown.is_none() && web.nodes.is_none() && web.rollout.is_none());
    }
}
