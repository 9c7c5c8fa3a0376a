//! Follows the statements of a function: what they send becomes steps, in the order in which they run.

use super::parse::{Expression, Function, Kind, Site, Statement};
use super::value::V;
use super::{Translator, text};
use crate::plan::model::{Does, NESTING, STEPS, Step};
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest calls of functions of the script.
const CALLS: usize = 8;

impl Translator<'_, '_> {
    /// Runs through a function. Returns what it returns.
    pub(super) fn body(&mut self, function: &Rc<Function>, arguments: &[V]) -> V {
        self.followed.insert(Rc::as_ptr(function));
        if self.calls >= CALLS {
            let why = format!("functions call each other more than {CALLS} deep");
            self.refuse(self.line, &why, "steps of the plan");
            return V::Unknown(why);
        }
        self.calls += 1;
        let mut scope = HashMap::new();
        for (name, value) in function.parameters.iter().zip(arguments) {
            let value = self.concealed(name, value.clone());
            scope.insert(name.clone(), value);
        }
        self.scopes.push(scope);
        let line = self.line;
        let value = self.block(&function.body);
        self.line = line;
        self.scopes.pop();
        self.calls -= 1;
        value
    }

    /// The steps that something makes, apart from those around it.
    fn nested(&mut self, make: impl FnOnce(&mut Self)) -> Vec<Step> {
        let around = self.steps.as_mut().map(std::mem::take);
        make(self);
        match around {
            Some(around) => self.steps.replace(around).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    pub(super) fn push(&mut self, step: Step) {
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }

    pub(super) fn block(&mut self, statements: &[Statement]) -> V {
        for statement in statements {
            self.line = statement.line;
            let Some(left) = self.left.statements.checked_sub(1) else {
                self.full(
                    "more statements than an import follows; this one and those after it are not in the plan",
                );
                break;
            };
            self.left.statements = left;
            if self.next > STEPS * 2 {
                self.full("more requests than a plan may have; this statement and those after it are not in the plan");
                break;
            }
            match &statement.kind {
                Kind::Block(inner) => _ = self.block(inner),
                Kind::Declare(all) => {
                    for (name, value) in all {
                        self.assign(name, value.as_ref());
                    }
                }
                Kind::Expression(Expression::Binary(left, "=", right)) => match &**left {
                    Expression::Name(name) => self.assign(name, Some(right)),
                    _ => {
                        self.value(right);
                        self.refuse(statement.line, "this assignment is not followed", "`keep:` of a step");
                    }
                },
                Kind::Expression(expression) => {
                    let before = self.cx.ledger.lines().len() + self.refused.len();
                    let value = self.value(expression);
                    let is_done = self.cx.ledger.lines().len() + self.refused.len() > before
                        || matches!(value, V::Done);
                    if !is_done {
                        let why = "this statement is not followed";
                        self.refuse(statement.line, why, "write what it does into the plan");
                    }
                }
                Kind::For { name, from, to, body } => self.counted(statement.line, name, from, to, body),
                Kind::Function(name, function) => {
                    _ = self.functions.insert(name.clone(), Rc::clone(function))
                }
                Kind::If(condition, then, _) => {
                    // `if (!check(…))` and `if (res.status …)` around messages change no request.
                    let what = if has_call(then) { "what depends on it" } else { "it" };
                    // What the condition itself sends or checks happens in any case.
                    self.value(condition);
                    let why = format!("a condition is not followed, so {what} is not in the plan");
                    self.refuse(statement.line, &why, "`if:` with an expression");
                }
                Kind::Import(import) => self.import(statement.line, import),
                Kind::Return(value) => return value.as_ref().map_or(V::Null, |value| self.value(value)),
                Kind::Unknown(why) => self.refuse(statement.line, why, "write what it does into the plan"),
            }
        }
        V::Null
    }

    fn assign(&mut self, name: &str, value: Option<&Expression>) {
        let Some(expression) = value else { return };
        if let Expression::Function(function) = expression {
            self.functions.insert(name.to_owned(), Rc::clone(function));
            return;
        }
        let value = self.value(expression);
        let value = self.concealed(name, value);
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// What a call does: requests, checks, pauses, groups, calls of the script's own functions. `None` if it does
    /// nothing and only has a value.
    pub(super) fn act(&mut self, callee: &Expression, arguments: &[Expression], site: Site) -> Option<V> {
        match callee {
            Expression::Name(name) => match (&**name, arguments) {
                ("sleep", [time]) => self.sleep(site, time),
                ("check", [answer, checks, ..]) => self.check(site, answer, checks),
                ("group", [title, Expression::Function(body)]) => {
                    let title = self.value(title);
                    let title = self.text(&title, "group").unwrap_or_default();
                    let before = self.group.clone();
                    self.group = format!("{before}{title} / ");
                    self.followed.insert(Rc::as_ptr(body));
                    let value = self.block(&body.body);
                    self.group = before;
                    return Some(if matches!(value, V::Null) { V::Done } else { value });
                }
                ("fail", _) => {
                    self.refuse(site.line, "`fail()` ends the script", "`on_failure: end` of a step");
                }
                (name, arguments) => {
                    let function = match self.functions.get(name) {
                        Some(function) => Rc::clone(function),
                        None => match self.named(name) {
                            V::Function(function) => function,
                            _ => return None,
                        },
                    };
                    let values: Vec<V> = arguments.iter().map(|argument| self.value(argument)).collect();
                    let value = self.body(&function, &values);
                    return Some(if matches!(value, V::Null) { V::Done } else { value });
                }
            },
            Expression::Member(of, method) => match &**of {
                Expression::Name(module) if self.modules.contains(module) => {
                    return self.send(method, arguments, site);
                }
                // Messages may hold requests: console.log(http.get(…).status).
                Expression::Name(module) if module == "console" => {
                    arguments.iter().for_each(|argument| _ = self.value(argument));
                }
                // Custom metrics: `trend.add(…)`.
                _ if method == "add" => {
                    arguments.iter().for_each(|argument| _ = self.value(argument));
                    let piece = self.enter(site.line);
                    self.cx.ledger.left_out(piece, "a custom metric");
                }
                _ => return None,
            },
            _ => return None,
        }
        Some(V::Done)
    }

    fn sleep(&mut self, site: Site, time: &Expression) {
        let piece = self.enter(site.line);
        if self.cx.options.no_pauses {
            self.cx.ledger.left_out(piece, "a pause: --pauses keep takes it");
            return;
        }
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| (0.0..86_400.0).contains(s));
        let pause = match self.value(time) {
            V::Number(number) => seconds(&number).map(|s| text::duration((s * 1000.0).round() as u64)),
            V::Text(text) => {
                text.strip_prefix("{{random:").and_then(|rest| rest.strip_suffix("}}")).and_then(|ends| {
                    let (a, b) = ends.split_once(':')?;
                    Some(format!("uniform({}s,{}s)", seconds(a)?, seconds(b)?))
                })
            }
            _ => random_pause(time),
        };
        match pause {
            Some(pause) => {
                self.cx.ledger.same(piece);
                self.push(Step::new(Does::Pause(pause)));
            }
            None => self.cx.ledger.refused(piece, "this pause is not followed", "`pause: uniform(1s,3s)`"),
        }
    }

    fn counted(&mut self, line: u32, name: &str, from: &Expression, to: &Expression, body: &Statement) {
        let (from, to) = (self.value(from), self.value(to));
        let number = |value: &V| match value {
            V::Number(number) => number.parse::<u32>().ok(),
            _ => None,
        };
        let (Some(0), Some(times)) = (number(&from), number(&to)) else {
            self.refuse(line, "the number of iterations of this loop is unknown", "`repeat:` or `while:`");
            return;
        };
        if !(1..=1_000_000).contains(&times) || self.rounds + 1 >= NESTING {
            self.refuse(line, "a loop with no rounds, too many, or nested too deeply", "`repeat:`");
            return;
        }
        self.scopes.push(HashMap::from([(name.to_owned(), V::Text(text::placeholder("index")))]));
        self.rounds += 1;
        let inner = self.nested(|this| _ = this.block(std::slice::from_ref(body)));
        self.rounds -= 1;
        self.scopes.pop();
        if !inner.is_empty() {
            self.push(Step::new(Does::Repeat(times, inner)));
        }
    }
}

/// Whether a statement calls something.
fn has_call(statement: &Statement) -> bool {
    match &statement.kind {
        Kind::Block(inner) => inner.iter().any(has_call),
        Kind::Expression(Expression::Call(callee, ..)) => !matches!(&**callee, Expression::Member(of, _)
            if **of == Expression::Name("console".to_owned())),
        Kind::Unknown(_) | Kind::For { .. } | Kind::If(..) | Kind::Expression(_) | Kind::Declare(_) => true,
        _ => false,
    }
}

/// `Math.random() * 3` and `1 + Math.random() * 2` as pauses.
fn random_pause(time: &Expression) -> Option<String> {
    let is_random = |e: &Expression| {
        matches!(e, Expression::Call(callee, ..) if matches!(&**callee, Expression::Member(of, name)
            if name == "random" && **of == Expression::Name("Math".to_owned())))
    };
    let number = |e: &Expression| match e {
        Expression::Number(number) => number.parse::<f64>().ok().filter(|n| (0.0..86_400.0).contains(n)),
        _ => None,
    };
    let spread = |e: &Expression| match e {
        Expression::Binary(a, "*", b) if is_random(a) => number(b),
        Expression::Binary(a, "*", b) if is_random(b) => number(a),
        e if is_random(e) => Some(1.0),
        _ => None,
    };
    let milliseconds = |seconds: f64| text::duration((seconds * 1000.0).round() as u64);
    let (least, spread) = match time {
        Expression::Binary(a, "+", b) => match (number(a), spread(b)) {
            (Some(least), Some(spread)) => (least, spread),
            _ => (number(b)?, spread(a)?),
        },
        e => (0.0, spread(e)?),
    };
    Some(format!("uniform({},{})", milliseconds(least), milliseconds(least + spread)))
}
