//! Scripts of k6, parsed and never run: `options`, `http.*` with literals, templates and known names, `check`, `sleep`,
//! `group`, data of `SharedArray`, and parts of answers that later requests use.
//!
//! ```text
//! lex ─▶ parse ─▶ run (statements) ─▶ value (expressions) ─▶ send (requests), checks
//!                 options ─▶ scenarios and their load          data ─▶ data sets
//! ```
//! A statement that is not followed is refused with its line. At the end, every call of `http` in the words of the
//! script that no request, check or refusal has accounted for is refused too, wherever it stands.

mod checks;
mod data;
mod lex;
mod options;
mod parse;
mod run;
mod send;
mod value;

use super::har::hoist;
use super::model::{Constant, ConstantValue, Keep, Plan, Scenario, Step, Target};
use super::{Cx, Kind, keeps, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::{Map, Value};
use lex::{Token, Word};
use parse::{Expression, Function, Import, Kind as Does6, Site, Statement};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use value::V;

pub(super) static KIND: Kind = Kind { name: "k6", title: "k6 script", import };

/// Most bytes of all values that a script makes of others: thirty lines that double a text would make a gigabyte.
const VALUE_BYTES: usize = 16 << 20;
/// Most statements that are followed, those of functions once for each call.
const STATEMENTS: usize = 100_000;

/// Modules whose names are followed. Those of jslib.k6.io count by the end of their path.
const MODULES: &[&str] =
    &["k6", "k6/crypto", "k6/data", "k6/encoding", "k6/execution", "k6/http", "k6/metrics", "k6/timers"];

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let tokens = lex::tokens(&file.text).map_err(|(line, why)| Unreadable::at(&cx.place(line), why))?;
    let statements = parse::statements(&tokens);
    let mut translator = Translator {
        cx,
        scopes: vec![HashMap::new()],
        functions: BTreeMap::new(),
        followed: BTreeSet::new(),
        modules: BTreeSet::from(["http".to_owned()]),
        picks: BTreeMap::new(),
        keeps: BTreeMap::new(),
        checks: BTreeMap::new(),
        data: Map::new(),
        constants: Vec::new(),
        steps: None,
        next: 0,
        group: String::new(),
        calls: 0,
        rounds: 0,
        left: Left { bytes: VALUE_BYTES, statements: STATEMENTS },
        is_full: false,
        line: 1,
        notes: Vec::new(),
        keeps_cookies: false,
        refused: BTreeSet::new(),
        judged: BTreeSet::new(),
        lines: file.text.lines().map(str::to_owned).collect(),
    };
    translator.top(&statements);
    let mut plan = translator.plan();
    translator.unfollowed(&tokens);
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
        if let Some(path) = request.url.strip_prefix(&*server)
            && (path.is_empty() || path.starts_with(['/', '?', '#']))
        {
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
    functions: BTreeMap<String, Rc<Function>>,
    /// The functions that were followed, by their places.
    followed: BTreeSet<*const Function>,
    /// Names of the module `k6/http`.
    modules: BTreeSet<String>,
    /// How rows of each data set are picked.
    picks: BTreeMap<String, &'static str>,
    /// What each request keeps, by its number.
    keeps: BTreeMap<usize, Vec<Keep>>,
    checks: BTreeMap<usize, Vec<String>>,
    data: Map,
    constants: Vec<Constant>,
    /// The steps made so far; `None` outside of the functions that users run.
    steps: Option<Vec<Step>>,
    /// How many requests there are.
    next: usize,
    /// The groups around a request.
    group: String,
    calls: usize,
    /// How many loops are open.
    rounds: usize,
    left: Left,
    /// Whether one of the limits in `left` was reached and told.
    is_full: bool,
    /// The line of the statement that is followed.
    line: u32,
    /// What changes in the request that is made.
    notes: Vec<&'static str>,
    /// Whether users keep cookies from one iteration to the next.
    keeps_cookies: bool,
    /// Lines that are refused, with the reasons.
    refused: BTreeSet<(u32, String)>,
    /// Calls that the ledger accounts for.
    judged: BTreeSet<usize>,
    lines: Vec<String>,
}

/// What may still be made of the script.
struct Left {
    bytes: usize,
    statements: usize,
}

impl Translator<'_, '_> {
    /// Enters a line of the script in the ledger.
    fn enter(&mut self, line: u32) -> Piece {
        let at = usize::try_from(line).unwrap_or(1).saturating_sub(1);
        let text = self.lines.get(at).map(|text| shown(text.trim())).unwrap_or_default();
        self.cx.ledger.enter(self.cx.place(line), &text)
    }

    /// Enters a call, which is accounted for then.
    fn enter_call(&mut self, site: Site) -> Piece {
        self.judged.insert(site.at);
        self.enter(site.line)
    }

    /// Refuses a line, once for each reason: functions are followed once for each call.
    fn refuse(&mut self, line: u32, why: &str, nearest: &str) {
        if !self.refused.insert((line, why.to_owned())) {
            return;
        }
        let piece = self.enter(line);
        self.cx.ledger.refused(piece, why.to_owned(), nearest.to_owned());
    }

    /// Takes bytes of the budget of values. False if there are not so many, which is told once.
    fn charge(&mut self, bytes: usize) -> bool {
        match self.left.bytes.checked_sub(bytes) {
            Some(left) => self.left.bytes = left,
            None => {
                let why = format!(
                    "the values that the script makes up to here have more than {} MiB",
                    VALUE_BYTES >> 20
                );
                self.full(&why);
                return false;
            }
        }
        true
    }

    fn full(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_full, true) {
            self.refuse(self.line, why, "a data set, or `exec:`");
        }
    }

    /// The statements of the script outside of functions.
    fn top(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.line = statement.line;
            match &statement.kind {
                Does6::Function(name, function) => {
                    _ = self.functions.insert(name.clone(), Rc::clone(function))
                }
                Does6::Import(import) => self.import(statement.line, import),
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

    fn import(&mut self, line: u32, import: &Import) {
        let module = &*import.module;
        if module == "k6/http" {
            self.modules.extend(import.whole.clone());
            if !import.names.is_empty() {
                let why = "single names of k6/http are not followed, so their requests are not in the plan";
                self.refuse(line, why, "`import http from 'k6/http'`");
            }
            return;
        }
        let is_of_jslib =
            module.contains("jslib.k6.io/k6-utils/") || module.contains("jslib.k6.io/papaparse/");
        if MODULES.contains(&module) || is_of_jslib {
            return;
        }
        let module = text::shortened(module);
        let why = format!("what `{module}` defines is not followed");
        self.refuse(line, &why, "the functions in this script; steps `ws:`, `grpc:` or `exec:`");
    }

    fn declare(&mut self, line: u32, name: &str, value: Option<&Expression>) {
        let Some(expression) = value else { return };
        if let Expression::Function(function) = expression {
            self.functions.insert(name.to_owned(), Rc::clone(function));
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
            value => self.concealed(name, value),
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// A name for a variable of the environment with a default.
    pub(super) fn optional(&mut self, name: &str, default: &str) -> String {
        let own = text::name(name);
        // Shells and plans take names of letters, digits and `_`.
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        let name = if is_name && !name.is_empty() { name.to_owned() } else { own.to_ascii_uppercase() };
        if !self.constants.iter().any(|known| known.name == own) {
            self.cx.vault.take(&own);
            let value = ConstantValue::optional(&name, default);
            self.constants.push(Constant { name: own.clone(), value });
        }
        own
    }

    /// The plan, once all functions are known.
    fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let options = self.scopes.first().and_then(|scope| scope.get("options").cloned());
        let wanted = self.options(options.as_ref(), &mut plan);
        let mut data = V::Null;
        if let Some(setup) = self.functions.get("setup").cloned() {
            (plan.setup, data) = self.steps_of(&setup, &[]);
        }
        for (name, function, more) in wanted {
            let Some(body) = self.functions.get(&function).cloned() else {
                let function = text::shortened(&function);
                let why = format!("the scenario {name} runs `{function}`, which the script does not define");
                self.refuse(1, &why, "`scenarios:` of the plan");
                continue;
            };
            let (steps, _) = self.steps_of(&body, std::slice::from_ref(&data));
            plan.scenarios.push(Scenario { name, more, steps, ..Scenario::default() });
        }
        if let Some(teardown) = self.functions.get("teardown").cloned() {
            (plan.teardown, _) = self.steps_of(&teardown, &[data]);
        }
        self.unused_functions();
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
        if !self.keeps_cookies {
            plan.defaults.set("cookies", "iteration");
        }
        plan
    }

    /// The steps of a function that users run, and what it returns.
    fn steps_of(&mut self, function: &Rc<Function>, arguments: &[V]) -> (Vec<Step>, V) {
        self.steps = Some(Vec::new());
        let value = self.body(function, arguments);
        (self.steps.take().unwrap_or_default(), value)
    }

    /// Functions that nothing runs.
    fn unused_functions(&mut self) {
        let unused: Vec<(u32, bool)> = self
            .functions
            .iter()
            .filter(|(_, function)| !self.followed.contains(&Rc::as_ptr(function)))
            .map(|(name, function)| (function.line, name == "handleSummary"))
            .collect();
        for (line, is_summary) in unused {
            let piece = self.enter(line);
            let why = if is_summary {
                "it makes the report of k6: `weir load` has reports of its own"
            } else {
                "no scenario runs this function"
            };
            self.cx.ledger.by_itself(piece, why);
        }
    }

    /// Refuses each use of the module `http` that nothing accounted for.
    fn unfollowed(&mut self, tokens: &[Token]) {
        let mut open = Vec::new();
        uses(tokens, &self.modules, &mut open);
        for site in open {
            if !self.judged.contains(&site.at) {
                let piece = self.enter_call(site);
                let why = "nothing that is followed reaches this use of `http`, so it is not in the plan";
                self.cx.ledger.refused(piece, why, "a step of the plan");
            }
        }
    }
}

/// The calls of a module, and its other uses, each at its name. Imports are none.
fn uses(tokens: &[Token], modules: &BTreeSet<String>, all: &mut Vec<Site>) {
    let sign = |at: usize, wanted: &str| matches!(tokens.get(at).map(|token| &token.word), Some(Word::Sign(sign)) if *sign == wanted);
    let mut imports = false;
    for (at, token) in tokens.iter().enumerate() {
        match &token.word {
            Word::Template(_, inner) => inner.iter().for_each(|tokens| uses(tokens, modules, all)),
            Word::Name(name) if name == "import" => imports = true,
            Word::Text(_) => imports = false,
            Word::Name(name)
                if modules.contains(name)
                    && !imports
                    && !(at > 0 && (sign(at - 1, ".") || sign(at - 1, "?.")))
                    && !sign(at + 1, ":") =>
            {
                // The `(` behind `http.get`, or the template behind `http.url`.
                let call = tokens.get(at + 3).filter(|next| {
                    (sign(at + 1, ".") || sign(at + 1, "?."))
                        && matches!(next.word, Word::Sign("(") | Word::Template(..))
                });
                let (line, at) = call.map_or((token.line, token.at), |call| (token.line, call.at));
                all.push(Site { line, at });
            }
            _ => {}
        }
    }
}

/// A line of the script for reports: texts that may be secrets are hidden.
fn shown(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut name = String::new();
    while let Some(open) = rest.find(['"', '\'', '`']) {
        let (before, quoted) = rest.split_at(open);
        out.push_str(before);
        let quote = quoted.chars().next().unwrap_or('"');
        let inner = quoted.get(1..).unwrap_or_default();
        let end = inner.find(quote).unwrap_or(inner.len());
        let own = inner.get(..end).unwrap_or_default();
        // The name of what is assigned, or of the member.
        if let Some(word) =
            before.split(|c: char| !(c.is_alphanumeric() || "_-".contains(c))).rfind(|w| !w.is_empty())
        {
            word.clone_into(&mut name);
        }
        let is_value = before.trim_end().ends_with([':', '=', '(', ',', '|']);
        let is_hidden = is_value && super::vault::is_secret(&name) && !own.contains("://")
            || crate::redact::is_random(own)
            || is_value && !own.contains("://") && !own.contains([' ', '/']) && own.contains(':')
            || own.len() >= 8
                && own.bytes().any(|b| b.is_ascii_digit())
                && !own.contains(['/', ' ', '.'])
                && !own.contains("${");
        out.push(quote);
        out.push_str(if is_hidden && !own.is_empty() { "***" } else { own });
        let closed = inner.get(end..).unwrap_or_default();
        out.push_str(closed.get(..1).unwrap_or_default());
        if !is_hidden {
            own.clone_into(&mut name);
        }
        rest = closed.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}
