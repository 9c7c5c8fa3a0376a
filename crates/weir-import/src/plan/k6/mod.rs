//! Scripts of k6, parsed and never run: `options`, `http.*` with literals, templates and known names, `check`, `sleep`,
//! `group`, data of `SharedArray`, and parts of answers that later requests use. A statement that is not followed is
//! refused with its line.

mod checks;
mod lex;
mod options;
mod parse;
mod value;

use super::har::hoist;
use super::json;
use super::model::{
    Body, Constant, ConstantValue, Does, Keep, NESTING, Plan, Request, STEPS, Scenario, Step, Target,
};
use super::vault::is_secret;
use super::{Cx, Kind, keeps, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::{Map, Value};
use parse::{Expression, Function, Kind as Does6, Statement};
use std::collections::{BTreeMap, HashMap};
use value::V;

pub(super) static KIND: Kind = Kind { name: "k6", title: "k6 script", import };

/// Deepest calls of functions of the script.
const CALLS: usize = 8;
/// Most rows of a data set that are written into the plan.
const ROWS: usize = 10_000;

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let tokens = lex::tokens(&file.text).map_err(|(line, why)| Unreadable::at(&cx.place(line), why))?;
    let statements = parse::statements(&tokens);
    let mut translator = Translator {
        cx,
        scopes: vec![HashMap::new()],
        functions: BTreeMap::new(),
        picks: BTreeMap::new(),
        keeps: BTreeMap::new(),
        checks: BTreeMap::new(),
        data: Map::new(),
        constants: Vec::new(),
        next: 0,
        group: String::new(),
        calls: 0,
        values: 0,
        lines: file.text.lines().map(str::to_owned).collect(),
    };
    translator.top(&statements);
    let mut plan = translator.plan();
    let (keeps, checks) = (translator.keeps, translator.checks);
    plan.each_request(&mut |request| {
        request.keep = keeps.get(&request.id).cloned().unwrap_or_default();
        if let Some(checks) = checks.get(&request.id) {
            request.checks.clone_from(checks);
        }
    });
    keeps::drop_unused(&mut plan);
    target(&mut plan);
    hoist(&mut plan);
    Ok(plan)
}

/// The server of the first request that has one of its own is that of the plan.
fn target(plan: &mut Plan) {
    let mut first = None;
    plan.each_request(&mut |request| {
        if first.is_none() && !request.url.starts_with("{{") {
            first = text::split_url(&request.url)
                .map(|(server, _)| server)
                .filter(|server| !server.contains('{'));
        }
    });
    let Some(server) = first else { return };
    plan.each_request(&mut |request| {
        if let Some(path) = request.url.strip_prefix(&*server) {
            let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            if !path.starts_with("//") {
                request.url = path;
            }
        }
    });
    plan.target = Some(Target::Known(server));
}

struct Translator<'c, 'a> {
    cx: &'c mut Cx<'a>,
    /// Names and their values, those of the innermost function last.
    scopes: Vec<HashMap<String, V>>,
    functions: BTreeMap<String, Function>,
    /// How rows of each data set are picked.
    picks: BTreeMap<String, &'static str>,
    /// What each request keeps, by its number.
    keeps: BTreeMap<usize, Vec<Keep>>,
    checks: BTreeMap<usize, Vec<String>>,
    data: Map,
    constants: Vec<Constant>,
    next: usize,
    /// The groups around a request.
    group: String,
    calls: usize,
    values: usize,
    lines: Vec<String>,
}

impl Translator<'_, '_> {
    /// Enters a line of the script in the ledger.
    fn enter(&mut self, line: u32) -> Piece {
        let at = usize::try_from(line).unwrap_or(1).saturating_sub(1);
        let text = self.lines.get(at).cloned().unwrap_or_default();
        self.cx.ledger.enter(self.cx.place(line), text.trim())
    }

    fn refuse(&mut self, line: u32, why: &str, nearest: &str) {
        let piece = self.enter(line);
        self.cx.ledger.refused(piece, why.to_owned(), nearest.to_owned());
    }

    /// The statements of the script outside of functions.
    fn top(&mut self, statements: &[Statement]) {
        for statement in statements {
            match &statement.kind {
                Does6::Function(name, function) => _ = self.functions.insert(name.clone(), function.clone()),
                Does6::Import => {}
                Does6::Declare(all) => {
                    for (name, value) in all {
                        self.declare(statement.line, name, value.as_ref());
                    }
                }
                Does6::Block(inner) if inner.is_empty() => {}
                Does6::Unknown(why) => {
                    self.refuse(statement.line, why, "look at what the line does, and write it into the plan")
                }
                _ => self.refuse(
                    statement.line,
                    "a statement outside of functions that is not followed",
                    "`values:` or `setup:`",
                ),
            }
        }
    }

    fn declare(&mut self, line: u32, name: &str, value: Option<&Expression>) {
        let Some(expression) = value else { return };
        if let Expression::Function(function) = expression {
            self.functions.insert(name.to_owned(), function.clone());
            return;
        }
        let value = self.value(expression);
        let value = match value {
            V::Named(file) if file.starts_with("file:") => {
                let piece = self.enter(line);
                match self.data_set(name, &file) {
                    Ok(value) => {
                        self.cx.ledger.same(piece);
                        value
                    }
                    Err(why) => {
                        self.cx.ledger.refused(
                            piece,
                            why.clone(),
                            "`data:` with a file in CSV or JSON lines",
                        );
                        V::Unknown(why)
                    }
                }
            }
            // Custom metrics and the like change no request.
            V::Unknown(_) if matches!(expression, Expression::New(..)) => {
                let piece = self.enter(line);
                self.cx.ledger.left_out(piece, "an object of the script that a plan has not");
                V::Unknown("an object that a plan has not".to_owned())
            }
            value => value,
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// A data set of `open(PATH)`.
    fn data_set(&mut self, name: &str, file: &str) -> Result<V, String> {
        let inside = file.strip_prefix("file:").unwrap_or(file);
        // `JSON.parse(open('x.json')).users` has the list below a name.
        let ending = [".json", ".csv", ".ndjson", ".jsonl"]
            .iter()
            .find_map(|ending| Some((inside.find(ending)? + ending.len(), *ending)));
        let Some((end, ending)) = ending else {
            return Err("a data set is read from files that end in .csv or .json".to_owned());
        };
        let (path, below) = inside.split_at(end);
        let set = self.cx.vault.free(name);
        if ending != ".json" {
            self.data.set(set.clone(), Map::new().with("file", path));
            return Ok(V::Set(set));
        }
        let file = self.cx.beside(path)?;
        let root = json::read(&file).map_err(|e| e.message)?;
        let below: Vec<&str> = below.split('.').filter(|part| !part.is_empty()).collect();
        let list = root.at(&below).ok_or("the list of data is not where the script looks for it")?;
        let mut rows = Vec::new();
        let mut columns: Option<Vec<String>> = None;
        for item in list.items() {
            let mut row = Map::new();
            for (key, value) in item.entries() {
                if is_secret(key) {
                    return Err(format!("its column `{key}` holds secrets, which a plan must not show"));
                }
                row.set(
                    key.to_string(),
                    value.as_text().ok_or("a row of data holds more than texts")?.into_owned(),
                );
            }
            let own: Vec<String> = item.entries().iter().map(|(key, _)| key.to_string()).collect();
            if own.is_empty() || columns.as_ref().is_some_and(|columns| *columns != own) {
                return Err("rows of data have different members".to_owned());
            }
            columns = Some(own);
            rows.push(Value::Map(row));
        }
        if rows.is_empty() || rows.len() > ROWS {
            return Err(format!("a plan takes 1 to {ROWS} rows from a JSON file"));
        }
        self.data.set(set.clone(), Map::new().with("rows", Value::List(rows)));
        Ok(V::Set(set))
    }

    /// A name for a variable of the environment with a default.
    fn optional(&mut self, name: &str, default: &str) -> String {
        let own = text::name(name);
        if !self.constants.iter().any(|known| known.name == own) {
            self.cx.vault.take(&own);
            let value = ConstantValue::Optional(name.to_owned(), default.to_owned());
            self.constants.push(Constant { name: own.clone(), value });
        }
        own
    }

    /// The plan, once all functions are known.
    fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let options = self.scopes.first().and_then(|scope| scope.get("options").cloned());
        let wanted = self.options(options.as_ref(), &mut plan);
        if let Some(setup) = self.functions.get("setup").cloned() {
            let mut steps = Vec::new();
            let data = self.body(&setup, &[], &mut steps);
            plan.setup = steps;
            if let Some(scope) = self.scopes.first_mut() {
                scope.insert("\u{0}setup".to_owned(), data);
            }
        }
        for (name, function, more) in wanted {
            let Some(body) = self.functions.get(&function).cloned() else { continue };
            let mut steps = Vec::new();
            let data =
                self.scopes.first().and_then(|scope| scope.get("\u{0}setup").cloned()).unwrap_or(V::Null);
            self.body(&body, &[data], &mut steps);
            plan.scenarios.push(Scenario { name, more, steps, ..Scenario::default() });
        }
        if let Some(teardown) = self.functions.get("teardown").cloned() {
            let data =
                self.scopes.first().and_then(|scope| scope.get("\u{0}setup").cloned()).unwrap_or(V::Null);
            let mut steps = Vec::new();
            self.body(&teardown, &[data], &mut steps);
            plan.teardown = steps;
        }
        let mut data = Map::new();
        for (name, set) in self.data.iter() {
            // A set that no step uses is a mistake of the plan.
            if let (Some(pick), Value::Map(set)) = (self.picks.get(name), set) {
                let mut set = set.clone();
                set.set("pick", *pick);
                data.set(name.to_owned(), set);
            }
        }
        plan.data = data;
        plan.values = std::mem::take(&mut self.constants);
        // k6 follows redirects.
        plan.defaults.set("redirects", 10_i64);
        plan
    }

    /// Runs through a function. Returns what it returns.
    fn body(&mut self, function: &Function, arguments: &[V], steps: &mut Vec<Step>) -> V {
        if self.calls >= CALLS {
            return V::Unknown("functions call each other too deeply".to_owned());
        }
        self.calls += 1;
        let scope = function.parameters.iter().cloned().zip(arguments.iter().cloned()).collect();
        self.scopes.push(scope);
        let value = self.block(&function.body, steps);
        self.scopes.pop();
        self.calls -= 1;
        value
    }

    fn block(&mut self, statements: &[Statement], steps: &mut Vec<Step>) -> V {
        for statement in statements {
            if self.next > STEPS * 2 {
                break;
            }
            match &statement.kind {
                Does6::Block(inner) => _ = self.block(inner, steps),
                Does6::Declare(all) => {
                    for (name, value) in all {
                        self.assign(statement.line, name, value.as_ref(), steps);
                    }
                }
                Does6::Expression(Expression::Binary(left, "=", right)) => match &**left {
                    Expression::Name(name) => self.assign(statement.line, name, Some(right), steps),
                    _ => self.refuse(statement.line, "this assignment is not followed", "`keep:` of a step"),
                },
                Does6::Expression(expression) => {
                    if self.act(statement.line, expression, steps).is_none() {
                        let why = "this statement is not followed";
                        self.refuse(statement.line, why, "write what it does into the plan");
                    }
                }
                Does6::For { name, from, to, body } => {
                    self.counted(statement.line, name, from, to, body, steps)
                }
                Does6::Function(name, function) => _ = self.functions.insert(name.clone(), function.clone()),
                Does6::If(condition, then, _) => {
                    // `if (!check(…))` and `if (res.status …)` around messages change no request.
                    let what = if has_request(then) { "what depends on it" } else { "it" };
                    self.checks_within(statement.line, condition, steps);
                    let why = format!("a condition is not followed, so {what} is not in the plan");
                    self.refuse(statement.line, &why, "`if:` with an expression");
                }
                Does6::Import => {}
                Does6::Return(value) => {
                    return value.as_ref().map_or(V::Null, |value| {
                        match self.act(statement.line, value, steps) {
                            Some(value) => value,
                            None => self.value(value),
                        }
                    });
                }
                Does6::Unknown(why) => self.refuse(statement.line, why, "write what it does into the plan"),
            }
        }
        V::Null
    }

    fn assign(&mut self, line: u32, name: &str, value: Option<&Expression>, steps: &mut Vec<Step>) {
        let Some(expression) = value else { return };
        if let Expression::Function(function) = expression {
            self.functions.insert(name.to_owned(), function.clone());
            return;
        }
        let value = match self.act(line, expression, steps) {
            Some(value) => value,
            None => {
                self.refuse_inner(line, expression);
                self.value(expression)
            }
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// Refuses a request within an expression: `http.get(url).json()`, `[http.get(url)]`.
    fn refuse_inner(&mut self, line: u32, expression: &Expression) {
        if format!("{expression:?}").contains("Member(Name(\"http\")") {
            let why = "a request within an expression is not followed, so it is not in the plan";
            self.refuse(line, why, "a variable of its own for the answer, or a step");
        }
    }

    /// A check in a condition is a check all the same.
    fn checks_within(&mut self, line: u32, condition: &Expression, steps: &mut Vec<Step>) {
        match condition {
            Expression::Unary(_, inner) => self.checks_within(line, inner, steps),
            Expression::Call(callee, _) if **callee == Expression::Name("check".to_owned()) => {
                self.act(line, condition, steps);
            }
            _ => {}
        }
    }

    /// What an expression does: requests, checks, pauses, groups, calls of the script's own functions. `None` if it
    /// does nothing and only has a value.
    fn act(&mut self, line: u32, expression: &Expression, steps: &mut Vec<Step>) -> Option<V> {
        let Expression::Call(callee, arguments) = expression else { return None };
        match &**callee {
            Expression::Name(name) => match (&**name, &arguments[..]) {
                ("sleep", [time]) => self.sleep(line, time, steps),
                ("check", [answer, checks, ..]) => self.check(line, answer, checks),
                ("group", [title, Expression::Function(body)]) => {
                    let title = self.value(title);
                    let title = self.text(&title, "group").unwrap_or_default();
                    let before = self.group.clone();
                    self.group = format!("{before}{title} / ");
                    self.block(&body.body, steps);
                    self.group = before;
                }
                ("fail", _) => self.refuse(line, "`fail()` ends the script", "`on_failure: end` of a step"),
                (name, arguments) => {
                    let function = self.functions.get(name).cloned()?;
                    let values: Vec<V> = arguments.iter().map(|argument| self.value(argument)).collect();
                    return Some(self.body(&function, &values, steps));
                }
            },
            Expression::Member(of, method) => match &**of {
                Expression::Name(module) if module == "http" => {
                    return self.request(line, method, arguments, steps);
                }
                Expression::Name(module) if module == "console" => {}
                // Custom metrics: `trend.add(…)`.
                _ if method == "add" => {
                    let piece = self.enter(line);
                    self.cx.ledger.left_out(piece, "a custom metric");
                }
                _ => return None,
            },
            _ => return None,
        }
        Some(V::Null)
    }

    fn request(
        &mut self,
        line: u32,
        method: &str,
        arguments: &[Expression],
        steps: &mut Vec<Step>,
    ) -> Option<V> {
        let piece = self.enter(line);
        let (verb, rest) = match method {
            "get" | "head" => (method.to_uppercase(), arguments),
            "post" | "put" | "patch" | "options" => (method.to_uppercase(), arguments),
            "del" | "delete" => ("DELETE".to_owned(), arguments),
            "request" | "asyncRequest" => match arguments.first().map(|first| self.value(first)) {
                Some(V::Text(verb)) if !verb.contains("{{") => {
                    (verb.to_uppercase(), arguments.get(1..).unwrap_or_default())
                }
                _ => {
                    self.cx.ledger.refused(
                        piece,
                        "its method is not a text",
                        "a step with `method` and `url`",
                    );
                    return Some(V::Unknown("a request that is not in the plan".to_owned()));
                }
            },
            "batch" => {
                self.batch(piece, arguments, steps);
                return Some(V::Unknown("the answers of `http.batch` are not followed".to_owned()));
            }
            "url" => return None,
            other => {
                self.cx.ledger.refused(
                    piece,
                    format!("`http.{other}` is not followed"),
                    "a step of the plan",
                );
                return Some(V::Unknown("a request that is not in the plan".to_owned()));
            }
        };
        let has_body = !matches!(method, "get" | "head");
        let (body, parameters) = if has_body { (rest.get(1), rest.get(2)) } else { (None, rest.get(1)) };
        match self.made(&verb, rest.first(), body, parameters) {
            Ok(request) => {
                let id = request.id;
                self.cx.ledger.same(piece);
                steps.push(Step::request(request));
                Some(V::Answer(id))
            }
            Err(why) => {
                self.cx.ledger.refused(piece, why, "a step of the plan, with `keep`, `data` or `values`");
                Some(V::Unknown("a request that is not in the plan".to_owned()))
            }
        }
    }

    /// Makes a request of the arguments of `http.*`.
    fn made(
        &mut self,
        verb: &str,
        url: Option<&Expression>,
        body: Option<&Expression>,
        parameters: Option<&Expression>,
    ) -> Result<Request, String> {
        let url = url.map_or(V::Null, |url| self.value(url));
        let url = self.text(&url, "url")?;
        self.next += 1;
        let mut request = Request { id: self.next, ..Request::new(verb, url_text(&url)?) };
        if let Some(parameters) = parameters {
            match self.value(parameters) {
                V::Object(entries) => self.parameters(&entries, &mut request)?,
                V::Null => {}
                V::Unknown(why) => return Err(why),
                _ => return Err("its parameters are not an object".to_owned()),
            }
        }
        match body.map(|body| self.value(body)) {
            None | Some(V::Null) => {}
            Some(V::Serialized(value)) => {
                let value = self.json_value(&value, "")?;
                match value {
                    Value::Map(_) | Value::List(_) => request.body = Some(Body::Json(value)),
                    _ => return Err("its JSON is no object and no list".to_owned()),
                }
                let is_own =
                    |name: &String, value: &String| name == "content-type" && value == "application/json";
                if request.header("content-type").is_none() {
                    // k6 sends no type with a text.
                    request.set_header("content-type", "text/plain;charset=UTF-8");
                }
                request.headers.retain(|(name, value)| !is_own(name, value));
            }
            Some(V::Object(entries)) => {
                let mut fields = Vec::new();
                for (name, value) in entries {
                    let secret = match &value {
                        V::Text(text) if is_secret(&name) && !text.contains("{{") && !text.is_empty() => {
                            Some(self.cx.vault.hide(&name, text))
                        }
                        _ => None,
                    };
                    let value = match secret {
                        Some(secret) => secret,
                        None => self.text(&value, &name)?,
                    };
                    fields.push((name, value));
                }
                request.body = Some(Body::Form(fields));
                request.headers.retain(|(name, _)| name != "content-type");
            }
            Some(value) => request.body = Some(Body::Text(self.text(&value, "body")?)),
        }
        let name = request.name.take();
        request.name = match (name, self.group.is_empty()) {
            (Some(name), _) => Some(name),
            (None, true) => None,
            (None, false) => Some(format!("{}{}", self.group, super::names::of_request(&request))),
        };
        Ok(request)
    }

    fn parameters(&mut self, entries: &[(String, V)], request: &mut Request) -> Result<(), String> {
        for (key, value) in entries {
            match (&**key, value) {
                ("headers", V::Object(fields)) => {
                    for (name, value) in fields {
                        let value = match value {
                            V::Text(text) if is_secret(name) && !text.contains("{{") && !text.is_empty() => {
                                super::request::credentials(name, text, &mut self.cx.vault)
                            }
                            value => self.text(value, name)?,
                        };
                        request.set_header(name, value);
                    }
                }
                ("tags", V::Object(tags)) => {
                    if let Some((_, V::Text(name))) = tags.iter().find(|(key, _)| key == "name") {
                        request.name = Some(name.replace("{{", "").replace("}}", ""));
                    }
                }
                ("timeout", V::Text(time)) => request.timeout = Some(time.clone()),
                ("timeout", V::Number(ms)) => request.timeout = ms.parse().ok().map(text::duration),
                ("redirects", V::Number(most)) => request.redirects = most.parse().ok(),
                ("cookies", V::Object(cookies)) => {
                    let mut pairs = Vec::new();
                    for (name, value) in cookies {
                        pairs.push(format!("{name}={}", self.text(value, name)?));
                    }
                    request.set_header("cookie", pairs.join("; "));
                }
                ("responseType" | "responseCallback" | "compression" | "jar", _) => {}
                (key, V::Unknown(why)) => return Err(format!("its parameter `{key}`: {why}")),
                (key, _) => return Err(format!("its parameter `{key}` is not followed")),
            }
        }
        Ok(())
    }

    /// `http.batch`: requests at once.
    fn batch(&mut self, piece: Piece, arguments: &[Expression], steps: &mut Vec<Step>) {
        let list: Vec<&Expression> = match arguments.first() {
            Some(Expression::Array(items)) => items.iter().collect(),
            Some(Expression::Object(entries)) => entries.iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        };
        let mut inner = Vec::new();
        for item in list {
            let made = match item {
                Expression::Array(parts) => match parts.first() {
                    Some(Expression::Text(verb)) => {
                        self.made(&verb.to_uppercase(), parts.get(1), parts.get(2), parts.get(3))
                    }
                    _ => Err("a request of `http.batch` has no method".to_owned()),
                },
                other => self.made("GET", Some(other), None, None),
            };
            match made {
                Ok(request) => inner.push(Step::request(request)),
                Err(why) => self.cx.ledger.refused(piece, why, "steps of `parallel`"),
            }
        }
        if inner.is_empty() || inner.len() > 100 {
            self.cx.ledger.refused(
                piece,
                "`http.batch` of a list that is not written out, or of more than 100",
                "steps of `parallel`",
            );
            return;
        }
        self.cx.ledger.same(piece);
        steps.push(Step::new(Does::Parallel(20, inner)));
    }

    fn sleep(&mut self, line: u32, time: &Expression, steps: &mut Vec<Step>) {
        let piece = self.enter(line);
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
                steps.push(Step::new(Does::Pause(pause)));
            }
            None => self.cx.ledger.refused(piece, "this pause is not followed", "`pause: uniform(1s,3s)`"),
        }
    }

    fn counted(
        &mut self,
        line: u32,
        name: &str,
        from: &Expression,
        to: &Expression,
        body: &Statement,
        steps: &mut Vec<Step>,
    ) {
        let (from, to) = (self.value(from), self.value(to));
        let number = |value: &V| match value {
            V::Number(number) => number.parse::<u32>().ok(),
            _ => None,
        };
        let (Some(0), Some(times)) = (number(&from), number(&to)) else {
            self.refuse(
                line,
                "the rounds of this loop are not a number that is known",
                "`repeat:` or `while:`",
            );
            return;
        };
        if !(1..=1_000_000).contains(&times) || self.calls + 1 >= NESTING {
            self.refuse(line, "a loop with no rounds, too many, or nested too deeply", "`repeat:`");
            return;
        }
        self.scopes.push(HashMap::from([(name.to_owned(), V::Text(text::placeholder("index")))]));
        let mut inner = Vec::new();
        self.block(std::slice::from_ref(body), &mut inner);
        self.scopes.pop();
        if !inner.is_empty() {
            steps.push(Step::new(Does::Repeat(times, inner)));
        }
    }
}

/// Whether a statement sends something.
fn has_request(statement: &Statement) -> bool {
    format!("{statement:?}").contains("Name(\"http\")")
}

/// `Math.random() * 3` and `1 + Math.random() * 2` as pauses.
fn random_pause(time: &Expression) -> Option<String> {
    let is_random = |e: &Expression| {
        matches!(e, Expression::Call(callee, _) if matches!(&**callee, Expression::Member(of, name)
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

/// A URL of the plan; what may not stand in one is escaped, placeholders stay.
fn url_text(url: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = url;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(&text::url_literal(before));
        let Some(end) = after.find("}}") else { break };
        out.push_str(&text::placeholder(after.get(..end).unwrap_or_default()));
        rest = after.get(end + 2..).unwrap_or_default();
    }
    out.push_str(&text::url_literal(rest));
    let is_url = out.starts_with("http://") || out.starts_with("https://") || out.starts_with("{{");
    if is_url && !out.starts_with("http://{{") && !out.starts_with("https://{{") {
        Ok(out)
    } else {
        Err("its URL has no server that is known".to_owned())
    }
}
