//! `export const options`: users, rates, stages, scenarios and thresholds.

use super::Translator;
use super::value::V;
use crate::plan::model::Plan;
use crate::yaml::{Map, Value};

/// A scenario to make: its name, the function that it runs, its load.
type Wanted = (String, String, Map);

impl Translator<'_, '_> {
    /// Reads the options. Returns the scenarios to make.
    pub(super) fn options(&mut self, options: Option<&V>, plan: &mut Plan) -> Vec<Wanted> {
        let line = self.lines.iter().position(|line| line.contains("options")).map_or(1, |at| at + 1);
        let line = u32::try_from(line).unwrap_or(1);
        let entries = match options {
            Some(V::Object(entries)) => entries.clone(),
            Some(_) => {
                self.refuse(
                    line,
                    "the options are not written out",
                    "`users`, `rate`, `duration` of the plan",
                );
                Vec::new()
            }
            None => Vec::new(),
        };
        let mut wanted = Vec::new();
        let mut load = Map::new();
        for (key, value) in &entries {
            let piece = self.cx.ledger.enter(self.cx.place(line), &format!("options.{key}"));
            let is_taken = match (&**key, value) {
                ("vus", V::Number(users)) => users.parse::<u32>().is_ok_and(|users| {
                    load.set("users", users);
                    users > 0
                }),
                ("duration", V::Text(time)) => {
                    plan.more.set("duration", time.clone());
                    true
                }
                ("iterations", V::Number(count)) => count.parse::<i64>().is_ok_and(|count| {
                    load.set("iterations", count);
                    count > 0
                }),
                ("stages", V::List(stages)) => self.stages(stages, Unit::Users, 1, &mut load),
                ("scenarios", V::Object(scenarios)) => {
                    let mut is_taken = true;
                    for (name, scenario) in scenarios {
                        match self.scenario(scenario, plan) {
                            Ok((function, more)) => wanted.push((name.clone(), function, more)),
                            Err(why) => {
                                is_taken = false;
                                self.cx.ledger.refused(
                                    piece,
                                    format!("scenario {name}: {why}"),
                                    "`scenarios:` of the plan",
                                );
                            }
                        }
                    }
                    is_taken
                }
                ("thresholds", V::Object(thresholds)) => self.thresholds(thresholds, plan, piece),
                ("userAgent", V::Text(agent)) => {
                    plan.headers.push(("user-agent".to_owned(), agent.clone()));
                    true
                }
                ("noCookiesReset", V::Bool(keeps)) => {
                    self.keeps_cookies = *keeps;
                    true
                }
                ("discardResponseBodies" | "summaryTrendStats" | "tags" | "summaryTimeUnit", _) => {
                    self.cx.ledger.by_itself(piece, "it changes only what k6 reports or keeps");
                    continue;
                }
                _ => false,
            };
            if is_taken {
                self.cx.ledger.same(piece);
            } else if !self.cx.ledger.is_judged(piece) {
                self.cx.ledger.refused(
                    piece,
                    format!("the option `{key}` is not followed"),
                    "docs/reference/load-plan.md",
                );
            }
        }
        if wanted.is_empty() {
            if load.get("users").is_none() {
                load.set("users", 1_i64);
            }
            wanted.push(("default".to_owned(), "default".to_owned(), load));
        }
        // Without a length or a number of iterations, k6 runs each user once.
        let has_end = |more: &Map| {
            more.get("iterations").is_some()
                || matches!(more.get("users").or(more.get("rate")), Some(Value::List(_)))
        };
        if plan.more.get("duration").is_none() {
            for (_, _, more) in &mut wanted {
                if !has_end(more) {
                    let users = more.get("users").cloned().unwrap_or(Value::Number(1));
                    more.set("iterations", users);
                }
            }
        }
        // A plan's `duration` ends all scenarios. If some have an end of their own, the others get theirs as a part.
        let ends = wanted.iter().filter(|(_, _, more)| has_end(more)).count();
        if (1..wanted.len()).contains(&ends)
            && let Some(Value::Text(time)) = plan.more.remove("duration")
        {
            for (_, _, more) in wanted.iter_mut().filter(|(_, _, more)| !has_end(more)) {
                for key in ["users", "rate"] {
                    let level = match more.get(key) {
                        Some(Value::Number(number)) => number.to_string(),
                        Some(Value::Text(text)) => text.clone(),
                        _ => continue,
                    };
                    let hold = Map::new().with("hold", format!("{level} for {time}"));
                    more.set(key, Value::List(vec![Value::Map(hold)]));
                }
            }
        }
        wanted
    }

    fn scenario(&mut self, scenario: &V, plan: &mut Plan) -> Result<(String, Map), String> {
        let V::Object(entries) = scenario else { return Err("it is not written out".to_owned()) };
        let get = |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
        let text = |key: &str| match get(key) {
            Some(V::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let number = |key: &str| match get(key) {
            Some(V::Number(number)) => number.parse::<i64>().ok().filter(|number| *number >= 0),
            _ => None,
        };
        let mut more = Map::new();
        let executor = text("executor").ok_or("it has no executor")?;
        let unit = text("timeUnit").unwrap_or_else(|| "1s".to_owned());
        let per = match &*unit {
            "1s" => "s",
            "1m" => "m",
            "1h" => "h",
            _ => return Err(format!("its timeUnit {unit} is none of 1s, 1m, 1h")),
        };
        match &*executor {
            "constant-vus" => more.set("users", number("vus").unwrap_or(1)),
            "shared-iterations" => {
                more.set("users", number("vus").unwrap_or(1));
                more.set("iterations", number("iterations").unwrap_or(1));
            }
            "per-vu-iterations" => {
                let users = number("vus").unwrap_or(1);
                more.set("users", users);
                more.set("iterations", users.saturating_mul(number("iterations").unwrap_or(1)));
            }
            "ramping-vus" => {
                let Some(V::List(stages)) = get("stages") else { return Err("it has no stages".to_owned()) };
                let start = number("startVUs").unwrap_or(1);
                if !self.stages(stages, Unit::Users, start, &mut more) {
                    return Err("its stages are not followed".to_owned());
                }
            }
            "constant-arrival-rate" => {
                let rate = number("rate").ok_or("it has no rate")?;
                more.set("rate", format!("{rate}/{per}"));
            }
            "ramping-arrival-rate" => {
                let Some(V::List(stages)) = get("stages") else { return Err("it has no stages".to_owned()) };
                let per = match per {
                    "s" => Unit::Rate("s"),
                    "m" => Unit::Rate("m"),
                    _ => Unit::Rate("h"),
                };
                if !self.stages(stages, per, number("startRate").unwrap_or(0), &mut more) {
                    return Err("its stages are not followed".to_owned());
                }
            }
            other => return Err(format!("its executor {other} is not followed")),
        }
        if executor.ends_with("arrival-rate")
            && let Some(most) = number("maxVUs").or_else(|| number("preAllocatedVUs"))
        {
            more.set("users_max", most.max(1));
        }
        if let Some(at) = text("startTime") {
            more.set("start_at", at);
        }
        if let Some(time) = text("duration") {
            match plan.more.get("duration") {
                Some(Value::Text(known)) if *known != time => {
                    return Err(format!("its duration {time} is not that of the others, and a plan has one"));
                }
                _ => plan.more.set("duration", time),
            }
        }
        Ok((text("exec").unwrap_or_else(|| "default".to_owned()), more))
    }

    /// Stages as parts of a shape: from the last target to the next one in its time.
    fn stages(&mut self, stages: &[V], unit: Unit, start: i64, load: &mut Map) -> bool {
        let mut parts = Vec::new();
        let mut last = start;
        for stage in stages {
            let V::Object(entries) = stage else { return false };
            let get = |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
            let (Some(V::Text(time)), Some(V::Number(target))) = (get("duration"), get("target")) else {
                return false;
            };
            let Ok(target) = target.parse::<i64>() else { return false };
            let shown = match unit {
                Unit::Rate(per) => format!("{target}/{per}"),
                Unit::Users => target.to_string(),
            };
            let part = match (time.trim_end_matches(|c: char| c.is_alphabetic()), target == last) {
                ("0", _) => format!("{shown} for 1ms"),
                (_, true) => format!("{shown} for {time}"),
                (_, false) => format!("{shown} over {time}"),
            };
            let key = if part.contains(" for 1ms") {
                "jump"
            } else if target == last {
                "hold"
            } else {
                "ramp"
            };
            parts.push(Value::Map(Map::new().with(key, part)));
            last = target;
        }
        if parts.is_empty() {
            return false;
        }
        load.set(if unit == Unit::Users { "users" } else { "rate" }, Value::List(parts));
        true
    }

    /// Thresholds that the load tester reads as k6 does.
    fn thresholds(&mut self, thresholds: &[(String, V)], plan: &mut Plan, piece: crate::Piece) -> bool {
        let mut all: Vec<String> = Vec::new();
        let mut is_whole = true;
        for (metric, conditions) in thresholds {
            let list = match conditions {
                V::List(list) => list.clone(),
                other => vec![other.clone()],
            };
            for condition in list {
                let text = match &condition {
                    V::Text(text) => Some(text.clone()),
                    V::Object(entries) => entries.iter().find_map(|(key, value)| match value {
                        V::Text(text) if key == "threshold" => Some(text.clone()),
                        _ => None,
                    }),
                    _ => None,
                };
                let text = text.map(|text| format!("{metric}: {text}"));
                match text
                    .filter(|text| weir_report::Threshold::parse("", text).is_ok() && !text.contains('{'))
                {
                    Some(text) => all.push(text),
                    None => {
                        is_whole = false;
                        let why = format!("a threshold of `{metric}` is not one that plans have");
                        self.cx.ledger.refused(piece, why, "`thresholds:`, such as `STEP: p99<200ms`");
                    }
                }
            }
        }
        if !all.is_empty() {
            plan.more.set("thresholds", all);
        }
        is_whole
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Iterations per this unit of time.
    Rate(&'static str),
    Users,
}
