//! Takes parts out of a plan that `weir load` would refuse, so that an import never writes such a plan. The caller reads
//! the plan as `weir load --check-file` does, and names the places of its mistakes.

use super::model::{Does, Plan, Scenario, Step};
use super::{Imported, is_off};
use crate::ledger::Piece;
use crate::source::Place;
use crate::yaml::Value;

/// What was taken out.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    name: String,
    /// Whether it is a step, which is a comment in the plan.
    is_step: bool,
    /// The statement of the source, of a step or a part of one.
    from: Option<Piece>,
}

/// A check, keep, threshold or data set.
fn detail(name: String) -> Part {
    Part { name, is_step: false, from: None }
}

impl Imported {
    /// Takes out the part of the plan at this place, such as `scenarios.browse.steps[2].get`, because of a mistake.
    /// Returns whether there was one that a plan can do without.
    pub fn repair(&mut self, path: &str, why: &str) -> bool {
        let Some(part) = take_out(&mut self.plan, path) else { return false };
        self.plan.scenarios.retain(|scenario| scenario.steps.iter().any(|step| !is_off(step)));
        let (text, so) = match part.is_step {
            true => (format!("step {}", part.name), "so the step is a comment in the plan"),
            false => (part.name, "so it is not in the plan"),
        };
        let first = || Place::new(&self.files.first().cloned().unwrap_or_default(), 1);
        let place = part.from.and_then(|piece| self.ledger.place(piece).cloned()).unwrap_or_else(first);
        let text = self.secrets.masked(&text);
        let piece = self.ledger.enter(place, &text);
        let why = self.secrets.masked(&format!("`weir load` refuses it, {so}: {why}"));
        self.ledger.refused(piece, why, "docs/reference/load-plan.md");
        !self.plan.scenarios.is_empty()
    }
}

fn take_out(plan: &mut Plan, path: &str) -> Option<Part> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (key, index) = indexed(first);
    match (key, index) {
        ("scenarios", None) => {
            let (name, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let at = plan.scenarios.iter().position(|scenario| scenario.name == name)?;
            let scenario = plan.scenarios.get_mut(at)?;
            match of_scenario(scenario, rest) {
                Some(part) => Some(part),
                None => {
                    plan.scenarios.remove(at);
                    Some(detail(format!("scenario {name}")))
                }
            }
        }
        ("setup", Some(at)) => of_steps(&mut plan.setup, at, rest),
        ("teardown", Some(at)) => of_steps(&mut plan.teardown, at, rest),
        ("data", None) => {
            let name = rest.split('.').next().unwrap_or_default();
            plan.data.remove(name).map(|_| detail(format!("data set {name}")))
        }
        // The server and the values belong to every step.
        ("target" | "values" | "", _) => None,
        (key, Some(at)) => match plan.more.iter_mut().find(|(own, _)| *own == key) {
            Some((_, Value::List(items))) if at < items.len() => {
                items.remove(at);
                Some(detail(format!("an item of `{key}`")))
            }
            _ => None,
        },
        ("defaults", None) => {
            let (key, rest) = rest.split_once('.').unwrap_or((rest, ""));
            if key == "headers" {
                let count = plan.headers.len();
                plan.headers.retain(|(name, _)| name != rest);
                return (plan.headers.len() < count).then(|| detail(format!("the header field {rest}")));
            }
            let (key, _) = indexed(key);
            plan.defaults.remove(key).map(|_| detail(format!("`{key}` of the defaults")))
        }
        (key, None) => plan.more.remove(key).map(|_| detail(format!("`{key}`"))),
    }
}

fn of_scenario(scenario: &mut Scenario, path: &str) -> Option<Part> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match indexed(first) {
        ("start", Some(at)) => of_steps(&mut scenario.start, at, rest),
        ("steps", Some(at)) => of_steps(&mut scenario.steps, at, rest),
        ("end", Some(at)) => of_steps(&mut scenario.end, at, rest),
        ("", _) | ("start" | "steps" | "end", None) => None,
        (key, _) => {
            let name = scenario.name.clone();
            scenario.more.remove(key).map(|_| detail(format!("`{key}` of the scenario {name}")))
        }
    }
}

/// A key and its position: `steps[2]`.
fn indexed(text: &str) -> (&str, Option<usize>) {
    match text.split_once('[') {
        Some((key, rest)) => (key, rest.split(']').next().and_then(|at| at.parse().ok())),
        None => (text, None),
    }
}

/// Takes something out of a step. Steps that are comments already have no position.
fn of_steps(list: &mut Vec<Step>, at: usize, path: &str) -> Option<Part> {
    let position = list.iter().enumerate().filter(|(_, step)| !is_off(step)).nth(at)?.0;
    let step = list.get_mut(position)?;
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (key, index) = indexed(first);
    if let (Does::Request(request), name) = (&mut step.does, rest) {
        let (own, from) = (request.name.clone().unwrap_or_default(), request.piece);
        match (key, index) {
            ("keep", _) if request.keep.iter().any(|keep| keep.name == name) => {
                request.keep.retain(|keep| keep.name != name);
                return Some(Part { from, ..detail(format!("what step {own} keeps as {name}")) });
            }
            ("checks", Some(at)) if at < request.checks.len() => {
                request.checks.remove(at);
                return Some(Part { from, ..detail(format!("a check of step {own}")) });
            }
            _ => {
                request.is_off = true;
                return Some(Part { name: own, is_step: true, from });
            }
        }
    }
    if let (Some(inner), Some(at)) = (step.inner_mut(), index)
        && matches!(key, "steps" | "then")
        && let Some(part) = of_steps(inner, at, rest)
    {
        // What orders no steps is a mistake itself.
        if inner.iter().all(is_off) {
            let moved = std::mem::take(inner);
            list.splice(position..=position, moved);
        }
        return Some(part);
    }
    list.remove(position);
    Some(detail("a step".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::model::{Keep, Request};
    use super::*;
    use crate::yaml::Map;

    #[test]
    fn the_smallest_part_is_taken_out() {
        let request = |name: &str| {
            let keep = Keep { name: "id".to_owned(), source: "json:$".to_owned(), proof: String::new() };
            let checks = vec!["status=200".to_owned(), "wrong".to_owned()];
            Request { name: Some(name.to_owned()), keep: vec![keep], checks, ..Request::new("GET", "/") }
        };
        let steps = vec![
            Step::request(request("a")),
            Step::new(Does::Repeat(2, vec![Step::request(request("b")), Step::request(request("c"))])),
            Step::request(request("d")),
        ];
        let scenario = Scenario { name: "s".to_owned(), steps, ..Scenario::default() };
        let mut plan = Plan { scenarios: vec![scenario], ..Plan::default() };
        plan.data.set("users", Map::new());
        let step = |name: &str| Some(Part { is_step: true, ..detail(name.to_owned()) });
        let detail = |text: &str| Some(detail(text.to_owned()));
        for (path, want) in [
            ("scenarios.s.steps[0].checks[1]", detail("a check of step a")),
            ("scenarios.s.steps[0].keep.id", detail("what step a keeps as id")),
            ("scenarios.s.steps[0].get", step("a")),
            // The first step is a comment now, so the loop has its position.
            ("scenarios.s.steps[0].steps[1].get", step("c")),
            ("scenarios.s.steps[0].steps[0].headers.x", step("b")),
            ("scenarios.s.steps[0].get", step("d")),
            ("data.users.file", detail("data set users")),
            ("target", None),
            ("scenarios.s", detail("scenario s")),
        ] {
            assert_eq!(take_out(&mut plan, path), want, "{path}");
        }
    }
}
