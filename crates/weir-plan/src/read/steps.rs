//! Lists of steps: what each does, what belongs to it, and what orders others.

use super::compiler::Compiler;
use super::conditions;
use super::keeps;
use super::names::{Visible, wrong_name};
use super::requests::sent;
use crate::limits::NESTING;
use crate::pause::Pause;
use crate::plan::{Repeat, Request, Step, StepKind};
use crate::written;

/// Most rounds of `repeat` and `while`.
const ROUNDS: u32 = 1_000_000;

/// Most requests of a `parallel` step.
const PARALLEL: usize = 100;

/// The keys that say what a step does.
const DOES: &[&str] = &[
    "get", "head", "post", "put", "patch", "delete", "options", "grpc", "ws", "pause", "if", "repeat",
    "while", "parallel", "exec",
];

/// What a step does, by the key that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Exec,
    Grpc,
    Http,
    If,
    Parallel,
    Pause,
    Repeat,
    WebSocket,
    While,
}

impl Does {
    /// The keys that such a step may have.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Exec => &["name", "exec", "message", "keep", "timeout"],
            Self::Grpc => &["name", "grpc", "headers", "message", "checks", "keep", "timeout", "on_failure"],
            Self::Http => &[
                "name",
                "get",
                "head",
                "post",
                "put",
                "patch",
                "delete",
                "options",
                "method",
                "url",
                "headers",
                "body",
                "body_file",
                "json",
                "form",
                "multipart",
                "checks",
                "keep",
                "timeout",
                "redirects",
                "on_failure",
            ],
            Self::If => &["if", "then", "else"],
            Self::Parallel => &["parallel", "steps"],
            Self::Pause => &["pause"],
            Self::Repeat => &["repeat", "steps"],
            Self::WebSocket => &[
                "name",
                "ws",
                "headers",
                "message",
                "answer",
                "close",
                "checks",
                "keep",
                "timeout",
                "on_failure",
            ],
            Self::While => &["while", "max", "steps"],
        }
    }
}

impl Compiler<'_> {
    /// Compiles a list of steps. Those with mistakes are left out.
    pub(super) fn steps(&mut self, list: &[written::Step], path: &str, depth: usize) -> Vec<Step> {
        if depth > NESTING {
            self.wrong(path, format!("steps are nested at most {NESTING} deep"));
            return Vec::new();
        }
        let mut all = Vec::new();
        for (i, step) in list.iter().enumerate() {
            let path = format!("{path}[{i}]");
            if !self.count(&path) {
                break;
            }
            all.extend(self.step(step, &path, depth));
        }
        all
    }

    fn step(&mut self, step: &written::Step, path: &str, depth: usize) -> Option<Step> {
        let does = self.does(step, path)?;
        self.refuse_others(does, path);
        match does {
            Does::Exec => self.exec(step, path).map(Step::Exec),
            Does::Grpc | Does::Http | Does::WebSocket => {
                let sent = sent(step).into_iter().next()?;
                self.request(step, sent, path).map(|request| Step::Request(Box::new(request)))
            }
            Does::If => self.choice(step, path, depth),
            Does::Parallel => self.parallel(step, path),
            Does::Pause => match Pause::parse(step.pause.as_deref().unwrap_or_default()) {
                Ok(pause) => Some(Step::Pause(pause)),
                Err(why) => {
                    self.wrong(&format!("{path}.pause"), why);
                    None
                }
            },
            Does::Repeat | Does::While => self.repeat(step, path, depth),
        }
    }

    /// What the step does: exactly one thing.
    fn does(&mut self, step: &written::Step, path: &str) -> Option<Does> {
        let sent = sent(step).into_iter().map(|sent| {
            let does = match sent.kind {
                StepKind::Grpc => Does::Grpc,
                StepKind::WebSocket => Does::WebSocket,
                StepKind::Exec | StepKind::Http => Does::Http,
            };
            (sent.key, does)
        });
        let others = [
            ("pause", step.pause.is_some(), Does::Pause),
            ("if", step.condition.is_some(), Does::If),
            ("repeat", step.repeat.is_some(), Does::Repeat),
            ("while", step.while_.is_some(), Does::While),
            ("parallel", step.parallel.is_some(), Does::Parallel),
            ("exec", self.tree.find(&format!("{path}.exec")).is_some(), Does::Exec),
        ];
        let others = others.into_iter().filter_map(|(key, is, does)| is.then_some((key, does)));
        let all: Vec<(&str, Does)> = sent.chain(others).collect();
        match all[..] {
            [(_, does)] => Some(does),
            [(first, _), (second, _), ..] => {
                self.wrong(
                    &format!("{path}.{second}"),
                    format!("a step does one thing, and this one has `{first}` already"),
                );
                None
            }
            [] => {
                // A key that is not known and a value that could not be read have been told.
                let is_told = |key: &str| {
                    !written::STEP_KEYS.contains(&key)
                        || DOES.contains(&key)
                        || key == "method"
                        || key == "url"
                };
                let node = self.tree.find(path);
                if !node.is_some_and(|node| node.entries().iter().any(|(key, _)| is_told(&key.text))) {
                    let expected = "expected a step: get, post or another method; grpc, ws, pause, if, repeat, while, \
                                    parallel or exec";
                    self.wrong(path, expected);
                }
                None
            }
        }
    }

    /// Tells the keys that have no meaning in such a step.
    fn refuse_others(&mut self, does: Does, path: &str) {
        let Some(node) = self.tree.find(path) else { return };
        let all = written::STEP_KEYS;
        let others: Vec<String> = node
            .entries()
            .iter()
            .map(|(key, _)| key.text.to_string())
            .filter(|key| all.contains(&key.as_str()) && !does.keys().contains(&key.as_str()))
            .collect();
        let does = does
            .keys()
            .iter()
            .find(|key| node.get(key).is_some() && **key != "name")
            .copied()
            .unwrap_or("it");
        for key in others {
            self.wrong(&format!("{path}.{key}"), format!("`{key}` has no meaning in a step with `{does}`"));
        }
    }

    fn choice(&mut self, step: &written::Step, path: &str, depth: usize) -> Option<Step> {
        let raw = step.condition.as_ref()?;
        let condition =
            conditions::compile(&raw.node, "if", &format!("{path}.if"), &mut self.names, self.found);
        if step.then.is_empty() {
            self.wrong(path, "`if` needs steps in `then`");
        }
        let before = self.names.visible();
        let then = self.steps(&step.then, &format!("{path}.then"), depth + 1);
        let after = self.names.visible();
        self.names.restore(before);
        let otherwise = self.steps(&step.otherwise, &format!("{path}.else"), depth + 1);
        self.names.join(after);
        Some(Step::If { condition: condition?, then, otherwise })
    }

    fn repeat(&mut self, step: &written::Step, path: &str, depth: usize) -> Option<Step> {
        let before = self.names.visible();
        self.announce(&step.steps);
        self.names.enter_loop();
        let count = match (&step.while_, step.repeat) {
            (Some(raw), _) => {
                let place = format!("{path}.while");
                let condition = conditions::compile(&raw.node, "while", &place, &mut self.names, self.found);
                let max = step.max.filter(|max| (1..=ROUNDS).contains(max));
                if max.is_none() {
                    let path = if step.max.is_some() { format!("{path}.max") } else { path.to_owned() };
                    self.wrong(&path, format!("`while` needs `max`, the most rounds, from 1 to {ROUNDS}"));
                }
                condition.zip(max).map(|(condition, max)| Repeat::While { condition, max })
            }
            (None, times) => {
                let times = times.filter(|times| (1..=ROUNDS).contains(times));
                if times.is_none() {
                    self.wrong(
                        &format!("{path}.repeat"),
                        format!("expected a number of rounds from 1 to {ROUNDS}"),
                    );
                }
                times.map(Repeat::Times)
            }
        };
        if step.steps.is_empty() {
            self.wrong(path, "expected `steps` to repeat");
        }
        let steps = self.steps(&step.steps, &format!("{path}.steps"), depth + 1);
        self.names.leave_loop();
        if step.while_.is_some() {
            self.names.join(before);
        }
        Some(Step::Repeat { count: count?, steps })
    }

    /// Makes the names known that steps of a loop keep: those of the last round are there in the next one.
    fn announce(&mut self, steps: &[written::Step]) {
        for step in steps {
            let kind = sent(step).first().map_or(StepKind::Exec, |sent| sent.kind);
            for (name, text) in &step.keep.0 {
                if wrong_name(name).is_none() && !self.names.is_known(name) {
                    self.names.keep(name, keeps::type_of(text, kind), false, None);
                }
            }
            self.announce(&step.then);
            self.announce(&step.otherwise);
            self.announce(&step.steps);
        }
    }

    fn parallel(&mut self, step: &written::Step, path: &str) -> Option<Step> {
        let most = step
            .parallel
            .and_then(|most| usize::try_from(most).ok())
            .filter(|most| (1..=PARALLEL).contains(most));
        if most.is_none() {
            self.wrong(
                &format!("{path}.parallel"),
                format!("expected how many at once, from 1 to {PARALLEL}"),
            );
        }
        if step.steps.is_empty() || step.steps.len() > PARALLEL {
            self.wrong(path, format!("expected 1 to {PARALLEL} requests in `steps`"));
        }
        let before = self.names.visible();
        let mut after: Option<Visible> = None;
        let mut kept: Vec<&str> = Vec::new();
        let mut requests: Vec<Request> = Vec::new();
        for (i, inner) in step.steps.iter().enumerate() {
            let path = format!("{path}.steps[{i}]");
            if !self.count(&path) {
                break;
            }
            let Some(does) = self.does(inner, &path) else { continue };
            if !matches!(does, Does::Grpc | Does::Http) {
                self.wrong(&path, "only HTTP requests and gRPC calls run in parallel");
                continue;
            }
            self.refuse_others(does, &path);
            for (name, _) in &inner.keep.0 {
                if kept.contains(&name.as_str()) {
                    self.wrong(
                        &format!("{path}.keep.{name}"),
                        "another of these parallel steps keeps that name too",
                    );
                }
                kept.push(name);
            }
            // None sees what another keeps: they run at the same time.
            self.names.restore(before.clone());
            let Some(sent) = sent(inner).into_iter().next() else { continue };
            requests.extend(self.request(inner, sent, &path));
            let own = self.names.visible();
            after = Some(after.map_or_else(|| own.clone(), |all| all.with(own.clone())));
        }
        if let Some(after) = after {
            self.names.restore(after);
        }
        Some(Step::Parallel { most: most?, steps: requests })
    }
}
