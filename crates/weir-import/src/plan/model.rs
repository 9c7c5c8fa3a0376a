//! A plan of `weir load -f`, before it is text. Texts are in the syntax of plans: `{{name}}` is a placeholder, and
//! [`super::text::literal`] has doubled the braces of everything else.

use crate::ledger::Piece;
use crate::yaml::{Map, Value};

/// Most scenarios of a plan, as weir-plan has it.
pub const SCENARIOS: usize = 100;
/// Most steps of a plan, as weir-plan has it.
pub const STEPS: usize = 1_000;
/// Deepest nesting of steps, as weir-plan has it.
pub const NESTING: usize = 8;

/// A plan.
#[derive(Debug, Default)]
pub struct Plan {
    /// Comments at its top, above those of the ledger.
    pub comments: Vec<String>,
    /// The server of URLs without one.
    pub target: Option<Target>,
    /// Header fields of all requests.
    pub headers: Vec<(String, String)>,
    /// Other keys of `defaults`.
    pub defaults: Map,
    /// Data sets by name.
    pub data: Map,
    /// Names for constants and for variables of the environment.
    pub values: Vec<Constant>,
    /// Steps that run once, before the first user.
    pub setup: Vec<Step>,
    /// The journeys.
    pub scenarios: Vec<Scenario>,
    /// Steps that run once, after the last user.
    pub teardown: Vec<Step>,
    /// Other keys of the plan: `users`, `duration`, `thresholds`.
    pub more: Map,
}

/// The server of URLs without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This one, unless the environment has `TARGET`.
    Known(String),
    /// The environment must say it.
    Unknown,
}

/// A name for a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The name, as placeholders have it.
    pub name: String,
    /// The text.
    pub value: ConstantValue,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstantValue {
    /// A variable of the environment, and the text where it is not set.
    Optional(String, String),
    /// A text that the source has.
    Text(String),
    /// A variable of the environment. The second is what the source has, which no plan and no report shows.
    Variable(String, Option<String>),
}

impl ConstantValue {
    /// A variable of the environment with a default. A default that `${NAME:-…}` cannot say is only proposed.
    #[must_use]
    pub fn optional(name: &str, default: &str) -> Self {
        if default.contains('}') {
            return Self::Variable(name.to_owned(), Some(default.to_owned()));
        }
        Self::Optional(name.to_owned(), default.to_owned())
    }
}

/// A journey.
#[derive(Debug, Default)]
pub struct Scenario {
    /// Its name. [`super::names::finish`] makes it unique.
    pub name: String,
    /// Comments above it.
    pub comment: Vec<String>,
    /// Its load: `users`, `rate`, `weight` and the like.
    pub more: Map,
    /// Steps of a user before its first iteration.
    pub start: Vec<Step>,
    /// Steps of each iteration.
    pub steps: Vec<Step>,
    /// Steps of a user after its last iteration.
    pub end: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Comments above it.
    pub comment: Vec<String>,
    /// What it does.
    pub does: Does,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Does {
    /// One of two lists.
    If {
        /// An expression of plans.
        condition: String,
        /// Steps if it holds.
        then: Vec<Step>,
    },
    /// Requests at once.
    Parallel(u32, Vec<Step>),
    /// Waits.
    Pause(String),
    /// A list several times.
    Repeat(u32, Vec<Step>),
    /// A request.
    Request(Box<Request>),
    /// A list while an expression holds.
    While {
        /// An expression of plans.
        condition: String,
        /// Most rounds.
        max: u32,
        /// The steps.
        steps: Vec<Step>,
    },
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Its name; where there is none, [`super::names::finish`] makes one of the method and the path.
    pub name: Option<String>,
    /// The method.
    pub method: String,
    /// A path at the target, or a whole URL.
    pub url: String,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Body>,
    /// Checks of the answer.
    pub checks: Vec<String>,
    /// What it keeps.
    pub keep: Vec<Keep>,
    /// Most redirects that it follows.
    pub redirects: Option<u32>,
    /// How long the answer may take.
    pub timeout: Option<String>,
    /// A number that an importer gives it, to find it again; 0 for none.
    pub id: usize,
    /// What a failed check does.
    pub on_failure: Option<&'static str>,
    /// The parts of the plan that the source has for it and a person must switch on: written as comments.
    pub is_off: bool,
    /// The statement of the source that it is from.
    pub piece: Option<Piece>,
}

/// A name for a part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The name.
    pub name: String,
    /// Where the value is: `json:$.id`.
    pub source: String,
    /// How we know, as a comment; empty if the source itself says so.
    pub proof: String,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A file, by its path.
    File(String),
    /// Names and values of a form; no name twice.
    Form(Vec<(String, String)>),
    /// JSON.
    Json(Value),
    /// `multipart/form-data`.
    Multipart(Vec<Part>),
    /// Anything else.
    Text(String),
}

/// A part of a multipart body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The name of the field.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The file that is its value; then there is no `value`.
    pub file: Option<String>,
    /// The file's name as sent.
    pub filename: Option<String>,
    /// Its media type.
    pub media: Option<String>,
}

impl Step {
    /// A step without comments.
    #[must_use]
    pub const fn new(does: Does) -> Self {
        Self { comment: Vec::new(), does }
    }

    /// A request without comments.
    #[must_use]
    pub fn request(request: Request) -> Self {
        Self::new(Does::Request(Box::new(request)))
    }

    /// A pause of this many milliseconds.
    #[must_use]
    pub fn pause(milliseconds: u64) -> Self {
        Self::new(Does::Pause(super::text::duration(milliseconds)))
    }

    /// The steps within it.
    pub fn inner_mut(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.does {
            Does::Parallel(_, steps)
            | Does::Repeat(_, steps)
            | Does::While { steps, .. }
            | Does::If { then: steps, .. } => Some(steps),
            Does::Pause(_) | Does::Request(_) => None,
        }
    }

    /// The steps within it.
    #[must_use]
    pub fn inner(&self) -> &[Self] {
        match &self.does {
            Does::Parallel(_, steps)
            | Does::Repeat(_, steps)
            | Does::While { steps, .. }
            | Does::If { then: steps, .. } => steps,
            Does::Pause(_) | Does::Request(_) => &[],
        }
    }
}

/// Calls `visit` for each request of a list of steps, in order.
pub fn each_request(steps: &mut [Step], visit: &mut impl FnMut(&mut Request)) {
    for step in steps {
        match &mut step.does {
            Does::Request(request) => visit(request),
            _ => {
                if let Some(inner) = step.inner_mut() {
                    each_request(inner, visit);
                }
            }
        }
    }
}

/// How many steps there are, those within others included.
#[must_use]
pub fn count(steps: &[Step]) -> usize {
    steps.iter().map(|step| 1 + count(step.inner())).sum()
}

impl Plan {
    /// Calls `visit` for each request of the plan, in order.
    pub fn each_request(&mut self, visit: &mut impl FnMut(&mut Request)) {
        each_request(&mut self.setup, visit);
        for scenario in &mut self.scenarios {
            each_request(&mut scenario.start, visit);
            each_request(&mut scenario.steps, visit);
            each_request(&mut scenario.end, visit);
        }
        each_request(&mut self.teardown, visit);
    }

    /// How many steps there are.
    #[must_use]
    pub fn steps(&self) -> usize {
        let scenarios = self.scenarios.iter().map(|s| count(&s.start) + count(&s.steps) + count(&s.end));
        count(&self.setup) + count(&self.teardown) + scenarios.sum::<usize>()
    }
}

impl Request {
    /// A request with this method and URL.
    #[must_use]
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { method: method.into(), url: url.into(), ..Self::default() }
    }

    /// As the step of a plan.
    #[must_use]
    pub fn step(mut self, from: Piece) -> Step {
        self.piece = Some(from);
        Step::request(self)
    }

    /// The value of a header field.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Sets a header field, which is there once then.
    pub fn set_header(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.headers.iter_mut().find(|(own, _)| own.eq_ignore_ascii_case(name)) {
            Some(field) => field.1 = value,
            None => self.headers.push((name.to_ascii_lowercase(), value)),
        }
    }

    /// All texts of the request that may have placeholders, to be changed.
    pub fn parts_mut(&mut self, visit: &mut impl FnMut(&mut String)) {
        visit(&mut self.url);
        for (_, value) in &mut self.headers {
            visit(value);
        }
        match &mut self.body {
            None | Some(Body::File(_)) => {}
            Some(Body::Text(text)) => visit(text),
            Some(Body::Form(fields)) => fields.iter_mut().for_each(|(_, value)| visit(value)),
            Some(Body::Json(value)) => json_texts(value, visit),
            Some(Body::Multipart(parts)) => parts.iter_mut().for_each(|part| visit(&mut part.value)),
        }
    }
}

fn json_texts(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::Text(text) => visit(text),
        Value::List(items) => items.iter_mut().for_each(|item| json_texts(item, visit)),
        Value::Map(map) => map.iter_mut().for_each(|(_, value)| json_texts(value, visit)),
        _ => {}
    }
}
