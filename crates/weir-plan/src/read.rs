//! Reads a plan: the tree of the file, then every key of it, then what they mean together.
//!
//! *Layout.* `compiler` holds what all steps need and tells mistakes; `steps` compiles lists of steps, `requests` those
//! that send something, `bodies` what they send, `keeps` what they keep and `conditions` their expressions. `names`
//! knows which names there are at each point, `texts` finds them in placeholders. `data` reads data sets, `plan_wide`
//! compares keys of different parts of the plan.

mod bodies;
mod compiler;
mod conditions;
mod data;
mod keeps;
mod names;
mod plan_wide;
mod requests;
mod steps;
mod texts;

use crate::data::Pick;
use crate::files::Files;
use crate::limits::{BODY_BYTES, SCENARIOS};
use crate::loads;
use crate::origin::{Origin, Scheme};
use crate::plan::{Connections, Cookies, DataUse, Draw, Load, OnFailure, Part, Plan, Scenario};
use crate::scope::{Shared, Value};
use crate::shape::{self, Shape, Spacing, Unit};
use crate::written::{self, PlanFile};
use compiler::Compiler;
use names::{Names, wrong_name};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_config::de::{self, Raw};
use weir_config::{Diagnostic, Diagnostics, Key, Mistakes, Node, Source, Value as Written};

/// Most users of a scenario with `rate`, unless it says otherwise.
const USERS_MAX: u32 = 1_000;

/// Most users.
const USERS: u32 = 1_000_000;

/// Bytes of a body that are read, unless the plan says otherwise.
const BODY_LIMIT: u64 = 1 << 20;

/// Largest weight of a scenario.
const WEIGHT: u32 = 1_000_000;

/// Reads a plan. `set` replaces or adds keys, as `--set scenarios.browse.rate=50/s` does: pairs of path and value.
///
/// # Errors
/// Every mistake in it, with its place. Nothing has been sent then.
pub fn read(source: &Source, files: &dyn Files, set: &[(String, String)]) -> Result<Plan, Mistakes> {
    let (tree, mut found) = weir_config::read_tree(source);
    let Some(mut tree) = tree else { return Err(found.into()) };
    for (path, value) in set {
        replace(&mut tree, path, value, &mut found);
    }
    let file = de::read::<PlanFile>(&tree, "", &mut found);
    let plan = file.and_then(|file| compile(&file, tree, files, &mut found));
    match plan {
        Some(plan) if found.errors() == 0 => Ok(plan),
        _ => Err(found.into()),
    }
}

/// Sets the value at a path, which may not be written yet.
fn replace(tree: &mut Node, path: &str, value: &str, found: &mut Diagnostics) {
    let name = format!("--set {path}");
    let Some(new) = weir_config::parse::parse(value, Path::new(&name), found) else { return };
    let mut node = tree;
    let keys: Vec<&str> = path.split('.').collect();
    for (i, key) in keys.iter().enumerate() {
        let at = new.at.clone();
        let Written::Map(entries) = &mut node.value else {
            let wrong = Diagnostic::error(
                "bad-set",
                format!("`{}` holds no keys", keys.get(..i).unwrap_or_default().join(".")),
            );
            found.push(wrong.at(at));
            return;
        };
        let position = entries.iter().position(|(known, _)| *known.text == **key).unwrap_or_else(|| {
            let added = Key { text: (*key).into(), at: at.clone() };
            entries.push((added, Node::empty_map(at)));
            entries.len() - 1
        });
        let Some((_, below)) = entries.get_mut(position) else { return };
        node = below;
    }
    *node = new;
}

/// Makes the plan, or tells why not.
fn compile(file: &PlanFile, tree: Node, files: &dyn Files, found: &mut Diagnostics) -> Option<Plan> {
    // After a mistake, parts are missing: checks across parts would report what follows from that.
    let is_whole = found.errors() == 0;
    let data = data::read(file, &tree, files, found);
    let constants = values(file, &tree, found);
    let value_names = file.values.0.iter().map(|(name, _)| name.clone()).collect();
    let target = target(file, &tree, found);
    let mut compiler = Compiler {
        file,
        tree: &tree,
        files,
        found,
        names: Names::new(&data, value_names, &constants),
        has_target: target.is_some(),
        has_wrong_target: target.is_none() && file.target.is_some(),
        origins: target.into_iter().collect(),
        rows: Vec::new(),
        scenario: None,
        on_failure: file.defaults.on_failure.map_or(OnFailure::GoOn, on_failure),
        taken: HashMap::new(),
        count: 0,
    };
    let setup = compiler.steps(&file.setup, "setup", 1);
    compiler.check_scenarios();
    let load = compiler.load(file.users.as_ref(), file.rate.as_ref(), file.users_max, file.pace, "");
    let load = compiler.spaced(load, file.spacing.as_deref(), file.seed, "");
    let mut scenarios = Vec::new();
    for (i, (name, scenario)) in file.scenarios.iter().enumerate().take(SCENARIOS) {
        scenarios.push(compiler.scenario(i, name, scenario, load.as_ref()));
    }
    compiler.names.enter_scenario(usize::MAX - 1);
    compiler.names.enter(Part::Teardown);
    compiler.scenario = None;
    compiler.on_failure = file.defaults.on_failure.map_or(OnFailure::GoOn, on_failure);
    let teardown = compiler.steps(&file.teardown, "teardown", 1);
    let (setup_slots, _, teardown_slots) = compiler.names.slots();
    let parts = loads::parts(&loads::loads(load.as_ref(), &scenarios));
    compiler.check_parts(&parts, &scenarios);
    let thresholds = compiler.thresholds(&scenarios, &parts);
    compiler.check_rest(is_whole && data.len() == file.data.len());
    let (origins, steps) = (compiler.origins, compiler.rows);
    let time = |time: Option<weir_config::units::Duration>| time.map(|time| time.0);
    let limit = file.defaults.body_limit.map_or(BODY_LIMIT, |limit| limit.get());
    if limit == 0 || limit > BODY_BYTES {
        let wrong = Diagnostic::error("bad-plan", "expected a limit from 1B to 64MiB");
        found.push(wrong.on(&tree, "defaults.body_limit"));
    }
    Some(Plan {
        origins,
        setup,
        scenarios,
        teardown,
        shared: Arc::new(Shared { data, constants }),
        steps,
        load,
        duration: time(file.duration),
        warmup: time(file.warmup),
        graceful_stop: time(file.graceful_stop),
        dry_run: file.dry_run.unwrap_or(true),
        body_limit: usize::try_from(limit.min(BODY_BYTES)).unwrap_or(usize::MAX),
        http2: file.defaults.http2,
        http3: file.defaults.http3,
        protos: file.protos.iter().map(|path| path.0.clone()).collect(),
        thresholds,
        setup_slots,
        teardown_slots,
        tree,
    })
}

fn values(file: &PlanFile, tree: &Node, found: &mut Diagnostics) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, value) in &file.values.0 {
        let path = format!("values.{name}");
        let mut wrong = |message: String| found.push(Diagnostic::error("bad-plan", message).on(tree, &path));
        if let Some(why) = wrong_name(name) {
            wrong(format!("`{name}` {why}"));
        } else if file.data.contains(name) {
            wrong(format!("`{name}` is a data set; choose another name"));
        }
        if value.contains("{{") {
            wrong("a value is a constant text; placeholders have no meaning in it".to_owned());
        }
        all.push(Value::Text(value.clone().into_bytes()));
    }
    all
}

fn target(file: &PlanFile, tree: &Node, found: &mut Diagnostics) -> Option<Origin> {
    let text = file.target.as_deref()?;
    let mut wrong = |message: String| {
        found.push(Diagnostic::error("bad-plan", message).on(tree, "target"));
        None
    };
    match Origin::parse(text) {
        Ok((_, rest)) if !matches!(rest, "" | "/") => wrong(
            "expected a server without a path: http://127.0.0.1:8080; the URLs of steps have the paths"
                .to_owned(),
        ),
        Ok((origin, _)) => {
            // Requests, calls and messages all go to it; each step says what it speaks.
            let scheme = if origin.scheme.is_secure() { Scheme::Https } else { Scheme::Http };
            Some(Origin { scheme, ..origin })
        }
        Err(bad) => wrong(bad.0),
    }
}

fn on_failure(written: written::OnFailure) -> OnFailure {
    match written {
        written::OnFailure::End => OnFailure::End,
        written::OnFailure::GoOn => OnFailure::GoOn,
        written::OnFailure::Stop => OnFailure::Stop,
    }
}

impl Compiler<'_> {
    fn check_scenarios(&mut self) {
        let count = self.file.scenarios.len();
        if count == 0 && self.tree.get("scenarios").is_none_or(|node| node.entries().is_empty()) {
            self.wrong(
                "scenarios",
                "expected at least one scenario: scenarios: { browse: { steps: [ … ] } }",
            );
        }
        if count > SCENARIOS {
            self.wrong("scenarios", format!("a plan has at most {SCENARIOS} scenarios"));
        }
    }

    fn scenario(
        &mut self,
        at: usize,
        name: &str,
        file: &written::Scenario,
        shared: Option<&Load>,
    ) -> Scenario {
        let path = format!("scenarios.{name}");
        self.scenario = Some(at);
        self.taken.clear();
        let default = self.file.defaults.on_failure.map_or(OnFailure::GoOn, on_failure);
        self.on_failure = file.on_failure.map_or(default, on_failure);
        self.names.enter_scenario(at);
        self.names.enter(Part::Start);
        let start = self.steps(&file.start, &format!("{path}.start"), 1);
        self.names.enter(Part::Steps);
        let steps = self.steps(&file.steps, &format!("{path}.steps"), 1);
        if self.tree.find(&format!("{path}.steps")).is_none_or(|node| node.elements().is_empty()) {
            self.wrong(&path, "a scenario needs `steps`");
        }
        self.names.enter(Part::End);
        let end = self.steps(&file.end, &format!("{path}.end"), 1);
        let (_, user_slots, iteration_slots) = self.names.slots();
        let load = self.load(file.users.as_ref(), file.rate.as_ref(), file.users_max, file.pace, &path);
        let load = self.spaced(load, file.spacing.as_deref(), file.seed, &path);
        self.weight(file, &path);
        let iterations = file.iterations;
        if iterations == Some(0) {
            self.wrong(&format!("{path}.iterations"), "expected at least 1");
        }
        let sets: Vec<(usize, bool)> = self.names.sets().collect();
        let data = sets.into_iter().map(|(set, is_of_user)| {
            self.enough_rows(set, load.as_ref().or(shared), &path);
            DataUse { set, draw: if is_of_user { Draw::User } else { Draw::Iteration } }
        });
        let data = data.collect();
        let is_open = matches!(load.as_ref().or(shared), Some(Load::Rate { .. }));
        let connections = match file.connections.or(self.file.defaults.connections) {
            Some(written::Connections::Own) => Connections::Own,
            Some(written::Connections::Shared) => Connections::Shared,
            None if is_open => Connections::Shared,
            None => Connections::Own,
        };
        Scenario {
            name: name.into(),
            weight: file.weight.unwrap_or(1),
            load,
            start_at: file.start_at.map_or(Duration::ZERO, |time| time.0),
            iterations,
            start,
            steps,
            end,
            on_failure: self.on_failure,
            connections,
            cookies: file.cookies.or(self.file.defaults.cookies).map_or(Cookies::User, |cookies| cookies.0),
            data,
            user_slots,
            iteration_slots,
        }
    }

    fn weight(&mut self, file: &written::Scenario, path: &str) {
        let Some(weight) = file.weight else { return };
        let path = format!("{path}.weight");
        if !(1..=WEIGHT).contains(&weight) {
            self.wrong(&path, format!("a weight is 1 to {WEIGHT}"));
        } else if file.users.is_some() || file.rate.is_some() {
            self.wrong(
                &path,
                "this scenario has `users` or `rate` of its own; a weight shares out those of the plan",
            );
        }
    }

    /// The load that a scenario or the plan has, if it has one.
    fn load(
        &mut self,
        users: Option<&Raw>,
        rate: Option<&Raw>,
        users_max: Option<u32>,
        pace: Option<weir_config::units::Duration>,
        path: &str,
    ) -> Option<Load> {
        let place = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if users.is_some() && rate.is_some() {
            self.wrong(&place("rate"), "`users` (closed model) and `rate` (open model) exclude each other");
            return None;
        }
        if users_max.is_some_and(|most| !(1..=USERS).contains(&most)) {
            self.wrong(&place("users_max"), format!("expected 1 to {USERS} users"));
        }
        if users_max.is_some() && rate.is_none() {
            self.wrong(
                &place("users_max"),
                "`users_max` bounds the users of a `rate`, and there is none here",
            );
        }
        if pace.is_some() && users.is_none() {
            self.wrong(&place("pace"), "`pace` is for `users`; iterations of a `rate` begin by the rate");
        }
        if let Some(raw) = rate {
            let shape = shape::read(&raw.node, &raw.path, Unit::Rate, self.files, self.found)?;
            return Some(Load::Rate { shape, users_max: users_max.unwrap_or(USERS_MAX) });
        }
        let raw = users?;
        let shape = shape::read(&raw.node, &raw.path, Unit::Users, self.files, self.found)?;
        Some(Load::Users { shape, pace: pace.map(|pace| pace.0) })
    }

    /// The load with its starts spaced as written.
    fn spaced(
        &mut self,
        load: Option<Load>,
        spacing: Option<&str>,
        seed: Option<u64>,
        path: &str,
    ) -> Option<Load> {
        let place = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if spacing.is_none() && seed.is_none() {
            return load;
        }
        let Some(Load::Rate { shape: Shape::Parts(course), users_max }) = load else {
            let key = if spacing.is_some() { "spacing" } else { "seed" };
            self.wrong(&place(key), "is of a `rate` with parts, such as `rate: [ { hold: 100/s for 1m } ]`");
            return load;
        };
        let Some(read) = shape::spacing(spacing.unwrap_or("even")) else {
            self.wrong(&place("spacing"), "expected `even`, `poisson` or `burst(N)` with N from 1");
            return None;
        };
        if seed.is_some() && read != Spacing::Poisson {
            self.wrong(&place("seed"), "is for `spacing: poisson`: the others have no chance in them");
        }
        if let Spacing::Burst(n) = read
            && n.get() > users_max
        {
            self.wrong(&place("spacing"), format!("a burst of {n} is larger than `users_max`, {users_max}"));
        }
        let course = (*course).clone().spaced(read, seed.unwrap_or(1));
        Some(Load::Rate { shape: Shape::Parts(Arc::new(course)), users_max })
    }

    /// `per_user` gives user k row k, so there must be a row for each.
    fn enough_rows(&mut self, set: usize, load: Option<&Load>, path: &str) {
        let Some((name, rows, Pick::PerUser)) = self.names.set(set) else { return };
        let users = match load {
            Some(Load::Rate { users_max, .. }) => f64::from(*users_max),
            Some(Load::Users { shape, .. }) => shape.most(),
            None => return,
        };
        if users > f64::from(rows) {
            let message = format!(
                "`pick: per_user` gives each user a row: `{name}` has {rows} rows for {users:.0} users"
            );
            self.wrong(path, message);
        }
    }
}

/// A source of a keep, for tests of what it keeps.
#[cfg(test)]
pub(crate) fn keep_for_tests(
    text: &str,
) -> Result<(crate::keep::Source, Vec<crate::filter::Filter>, bool), String> {
    let read = keeps::read(text, crate::plan::StepKind::Http).map_err(|(why, _)| why)?;
    Ok((read.source, read.filters, read.is_optional))
}

#[cfg(test)]
mod tests;
