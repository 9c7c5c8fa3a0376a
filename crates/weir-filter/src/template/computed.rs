//! Expressions in texts: `{= … }`, and `= …` for a whole value.

use super::{Malformed, Redacted};
use crate::filter::{Cx, RequestHead, ResponseHead};
use crate::view::{KeptRead, Known, Later, Reading, View};
use std::cell::Cell;
use weir_expr::{Expression, Mistake, Phase, Schema, Var};
use weir_route::variables::{self, BODY, CONSUMER, RESPONSE, Vocabulary};

/// What a text may name.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The names that the route's path captures, if there is one route.
    pub captures: Option<&'a [String]>,
    vocabulary: &'a Vocabulary,
    phase: Phase,
    /// Where to note that a text names `request.body`, if it may.
    reads_body: Option<&'a Cell<bool>>,
    /// What the text may not name because it is of the access log.
    log: Option<&'a Redacted>,
}

impl<'a> Names<'a> {
    /// Those of a text that is used when the request's head is here, and perhaps not its body.
    pub const fn new(captures: Option<&'a [String]>, vocabulary: &'a Vocabulary) -> Self {
        Self { captures, vocabulary, phase: CONSUMER, reads_body: None, log: None }
    }

    /// The same where the body is read before, if a text names it, which is noted in `reads_body`.
    #[must_use]
    pub const fn with_body(self, reads_body: &'a Cell<bool>) -> Self {
        Self { phase: BODY, reads_body: Some(reads_body), ..self }
    }

    /// The same where these are captured.
    #[must_use]
    pub const fn with_captures(self, captures: &'a [String]) -> Self {
        Self { captures: Some(captures), ..self }
    }

    /// Those of a text that is used when a filter sees the response.
    #[must_use]
    pub const fn of_response(self) -> Self {
        Self { phase: RESPONSE, ..self }
    }

    /// Those of a text of the access log.
    pub const fn of_log(vocabulary: &'a Vocabulary, redacted: &'a Redacted) -> Self {
        Self { captures: None, vocabulary, phase: RESPONSE, reads_body: None, log: Some(redacted) }
    }

    fn schema(&self) -> Schema {
        let captures: Option<Vec<&str>> =
            self.captures.map(|names| names.iter().map(String::as_str).collect());
        self.vocabulary.schema(captures.as_deref())
    }
}

/// A compiled expression of a text.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    source: Box<str>,
    pub(super) expression: Expression,
    reading: Reading,
    pub(super) vocabulary: Vocabulary,
}

impl PartialEq for Computed {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Computed {}

impl Computed {
    /// Compiles the expression that begins at the byte `at` of a text.
    pub(super) fn compile(source: &str, at: usize, names: &Names<'_>) -> Result<Self, Malformed> {
        let first = |mistakes: Vec<Mistake>| mistakes.into_iter().next().map(|mistake| mistake.moved(at));
        let expression = Expression::compile(source, &names.schema(), names.phase).map_err(|mistakes| {
            first(mistakes).map_or_else(|| Malformed::new("the expression is refused", None), Malformed::from)
        })?;
        let reading = Reading::of(names.vocabulary, expression.reads());
        if let (true, Some(reads_body)) = (reading.reads_body(), names.reads_body) {
            reads_body.set(true);
        }
        if let Some(mistake) = names.log.and_then(|redacted| redacted.refusal(&expression, &reading)) {
            return Err(mistake.moved(at).into());
        }
        // When the response is there, the request is gone but for what was kept of it by name.
        let is_later = names.phase == RESPONSE && names.log.is_none();
        let mut reads = reading.reads().iter();
        let computed = reads.find(|read| is_later && read.is_computed && is_of_request(read.var));
        if let Some(read) = computed {
            let message =
                "a name that is computed is not known when the response is there: the request is gone then";
            let hint = Some("write the name: request.headers[\"x-name\"]".to_owned());
            let mistake = Mistake { range: read.range.clone(), message: message.to_owned(), hint };
            return Err(mistake.moved(at).into());
        }
        Ok(Self { source: source.into(), expression, reading, vocabulary: names.vocabulary.clone() })
    }

    /// Appends its value, unescaped, and notes what that tells of the caller.
    pub(super) fn write(&self, (head, later): (Option<&RequestHead>, Later<'_>), cx: &Cx, out: &mut Vec<u8>) {
        View::with((head, later), Known::of(head, cx), &self.vocabulary, |view| {
            let from = out.len();
            self.expression.value(view).write(out);
            self.reading.note("expression", view, cx, &self.source, out.get(from..).unwrap_or_default());
        });
    }

    /// Appends its value, unescaped, and notes nothing.
    pub(super) fn compute(
        &self,
        (head, later): (Option<&RequestHead>, Later<'_>),
        cx: &Cx,
        out: &mut Vec<u8>,
    ) {
        View::with((head, later), Known::of(head, cx), &self.vocabulary, |view| {
            self.expression.value(view).write(out);
        });
    }

    /// Whether it is nothing but a variable that stands in a URL already, as a placeholder of it does.
    pub(super) fn is_encoded(&self) -> bool {
        self.expression.variable().is_some_and(|var| {
            matches!(var, variables::HOST | variables::PARAMS | variables::PATH | variables::SCHEME)
        })
    }

    pub(super) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// What it reads of a request, to be kept until the response is there.
    fn kept(&self) -> impl Iterator<Item = (Var, &str)> {
        let reads = self.reading.reads().iter().filter(|read| is_of_request(read.var));
        reads.map(|read| (read.var, read.key.as_deref().unwrap_or_default()))
    }
}

/// Whether a variable is of the head or the body, which are gone when the response is there.
fn is_of_request(var: Var) -> bool {
    use variables::{ARGS, COOKIES, HEADERS, HOST, METHOD, PARAMS, PATH, QUERY, REQUEST_BODY, SIZE, URL};
    matches!(
        var,
        ARGS | COOKIES | HEADERS | HOST | METHOD | PARAMS | PATH | QUERY | REQUEST_BODY | SIZE | URL
    )
}

/// What to keep of a request for texts that are used when the response is there.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    vars: Vec<super::Var>,
    reads: Vec<(Var, Box<str>)>,
    vocabulary: Option<Vocabulary>,
}

/// The values of a [`Keep`] in one exchange.
#[derive(Debug, Default)]
pub struct Kept {
    /// The values of placeholders.
    pub vars: Vec<Vec<u8>>,
    pub(crate) reads: Vec<KeptRead>,
}

impl Keep {
    /// What these texts need.
    pub fn of<'t>(templates: impl Iterator<Item = &'t super::Template>) -> Self {
        let mut keep = Self::default();
        for template in templates {
            for var in template.vars().filter(|var| var.is_of_request()) {
                if !keep.vars.contains(var) {
                    keep.vars.push(var.clone());
                }
            }
            for computed in template.computed() {
                keep.vocabulary = Some(computed.vocabulary.clone());
                for (var, key) in computed.kept() {
                    if !keep.reads.iter().any(|(known, name)| *known == var && **name == *key) {
                        keep.reads.push((var, key.into()));
                    }
                }
            }
        }
        keep
    }

    /// Whether they need nothing.
    pub fn is_empty(&self) -> bool {
        self.vars.is_empty() && self.reads.is_empty()
    }

    /// The placeholders, in the order of [`Kept::vars`].
    pub fn vars(&self) -> &[super::Var] {
        &self.vars
    }

    /// Takes the values of a request.
    pub fn take(&self, head: &RequestHead, cx: &Cx) -> Kept {
        let values = super::Values::of(head, cx);
        let vars = self.vars.iter().map(|var| values.value(var)).collect();
        let Some(vocabulary) = self.vocabulary.as_ref().filter(|_| !self.reads.is_empty()) else {
            return Kept { vars, reads: Vec::new() };
        };
        let reads =
            View::with((Some(head), Later::default()), Known::of(Some(head), cx), vocabulary, |view| {
                self.reads.iter().map(|(var, key)| KeptRead::of(view, *var, key)).collect()
            });
        Kept { vars, reads }
    }
}

impl<'a> super::Values<'a> {
    /// Values when the response is there, with what was kept of the request.
    pub fn later(cx: &'a Cx, keep: &'a Keep, kept: &'a Kept, response: &'a ResponseHead) -> Self {
        Self {
            cx,
            head: None,
            kept: (&keep.vars, &kept.vars),
            later: Later { reads: &kept.reads, response: Some(response), ..Later::NONE },
        }
    }

    /// The same with these placeholders, which hide all others.
    #[must_use]
    pub fn with(self, vars: &'a [super::Var], values: &'a [Vec<u8>]) -> Self {
        Self { kept: (vars, values), ..self }
    }
}

impl From<Mistake> for Malformed {
    fn from(mistake: Mistake) -> Self {
        Self { message: mistake.message, hint: mistake.hint, offset: Some(mistake.range.start) }
    }
}
