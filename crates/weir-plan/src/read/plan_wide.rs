//! What the keys of a plan mean together: thresholds by name, and what nothing uses.

use super::compiler::Compiler;
use crate::loads::PartName;
use crate::plan::{Scenario, StepId, Threshold, ThresholdOf};
use weir_config::Node;
use weir_expr::spelling::nearest_name;

impl Compiler<'_> {
    /// Reads the thresholds, and finds what each is about.
    pub(super) fn thresholds(&mut self, scenarios: &[Scenario], parts: &[PartName]) -> Vec<Threshold> {
        let mut all = Vec::new();
        let file = self.file;
        for (i, text) in file.thresholds.iter().enumerate() {
            let path = format!("thresholds[{i}]");
            match self.threshold(text, scenarios, parts) {
                Ok((of, condition)) => {
                    let (condition, text) = (condition.to_owned(), text.clone());
                    all.push(Threshold { of, condition, text, path });
                }
                Err((why, hint)) => self.wrong_with(&path, why, hint),
            }
        }
        all
    }

    fn threshold<'t>(
        &self,
        text: &'t str,
        scenarios: &[Scenario],
        parts: &[PartName],
    ) -> Result<(ThresholdOf, &'t str), (String, Option<String>)> {
        let scope_of = |text: &str| match weir_report::Threshold::parse("", text) {
            Ok(threshold) => Ok(threshold.scope().map(str::to_owned)),
            Err(wrong) => Err(wrong.hint),
        };
        let Some((name, condition)) = text.split_once(':') else {
            return scope_of(text).map(|_| (ThresholdOf::Run, text)).map_err(|hint| (hint, None));
        };
        let (name, condition) = (name.trim(), condition.trim());
        let mut of = self.named_so(name, scenarios);
        if of.is_empty() {
            of = parts_named_so(name, parts);
        }
        match of[..] {
            [of] => {
                // The condition alone first: its mistakes are easier to understand.
                let checked = scope_of(condition).and_then(|_| scope_of(text));
                checked.map(|_| (of, condition)).map_err(|hint| (hint, None))
            }
            [] if scope_of(text) == Ok(None) => Ok((ThresholdOf::Run, text)),
            [] => {
                let steps = self.rows.iter().map(|row| &*row.name);
                let all = scenarios.iter().map(|scenario| &*scenario.name).chain(steps);
                let all = all.chain(parts.iter().map(|part| &*part.full));
                let meant = nearest_name(name, all).map(|meant| format!("did you mean {meant}?"));
                Err((format!("`{name}` is no step, scenario or part of this plan"), meant))
            }
            _ => {
                let hint = format!("write the scenario too, as in browse.{name}: {condition}");
                Err((format!("`{name}` is the name of several steps, scenarios or parts"), Some(hint)))
            }
        }
    }

    /// Refuses parts that were given the name of a step or scenario: conditions could not tell them apart.
    pub(super) fn check_parts(&mut self, parts: &[PartName], scenarios: &[Scenario]) {
        let is_given = |node: &Node| node.entries().iter().any(|(key, _)| &*key.text == "name");
        for part in parts {
            let has_name = self.tree.find(&part.path).is_some_and(is_given);
            let place = format!("{}.name", part.path);
            self.written_out(&place);
            if has_name && !self.named_so(&part.full, scenarios).is_empty() {
                let why = format!("a step or scenario is called `{}` already", part.full);
                self.wrong(&place, why);
            }
        }
    }

    /// What has this name: scenarios, steps, and steps as `scenario.step`.
    fn named_so(&self, name: &str, scenarios: &[Scenario]) -> Vec<ThresholdOf> {
        let by_name = scenarios.iter().enumerate().filter(|(_, scenario)| *scenario.name == *name);
        let by_name = by_name.map(|(at, _)| ThresholdOf::Scenario(at));
        let of_scenario =
            |at: Option<usize>| at.and_then(|at| scenarios.get(at)).map(|scenario| &*scenario.name);
        let steps = self.rows.iter().enumerate().filter(|(_, row)| {
            *row.name == *name
                || of_scenario(row.scenario).is_some_and(|scenario| {
                    name.strip_prefix(scenario).and_then(|rest| rest.strip_prefix('.')) == Some(&*row.name)
                })
        });
        let steps = steps.filter_map(|(at, _)| Some(ThresholdOf::Step(StepId(u16::try_from(at).ok()?))));
        by_name.chain(steps).collect()
    }

    /// Tells what is written and has no effect.
    pub(super) fn check_rest(&mut self, is_whole: bool) {
        // A step with mistakes uses no names, so names would be reported as unused.
        if !is_whole || self.found.errors() > 0 {
            return;
        }
        for (name, path) in self.names.unused() {
            let hint = Some(
                "use it in a later step, or leave it out; a check also asks whether a value is there"
                    .to_owned(),
            );
            self.wrong_with(&path, format!("no later step uses `{name}`"), hint);
        }
        for name in self.names.unused_sets().map(str::to_owned).collect::<Vec<_>>() {
            self.wrong(&format!("data.{name}"), format!("no step uses the data set `{name}`"));
        }
        let shares = self
            .file
            .scenarios
            .iter()
            .all(|(_, scenario)| scenario.users.is_some() || scenario.rate.is_some());
        for (key, is_given) in [("users", self.file.users.is_some()), ("rate", self.file.rate.is_some())] {
            if is_given && shares {
                self.wrong(key, "every scenario has `users` or `rate` of its own, so nothing uses this");
            }
        }
    }
}

/// The parts with this name: as `scenario.part`, or alone.
fn parts_named_so(name: &str, parts: &[PartName]) -> Vec<ThresholdOf> {
    let found = |is: &dyn Fn(&PartName) -> bool| -> Vec<ThresholdOf> {
        (0..).zip(parts).filter(|(_, part)| is(part)).map(|(at, _)| ThresholdOf::Part(at)).collect()
    };
    let whole = found(&|part| part.full == name);
    if whole.is_empty() { found(&|part| part.name == name) } else { whole }
}
