//! Texts of the access log: expressions over an exchange that has ended, without the secrets in it.
//!
//! The request's head is as the filters left it, as for the log's own header fields. Of the response, its status and the
//! fields that a text names are left.

use super::{Part, Template};
pub use crate::view::Ended;
use crate::view::{Known, Later, Reading, View};
use std::borrow::Cow;
use weir_expr::{Expression, Mistake, Read, Type, Value, Values, Var};
use weir_route::variables::{
    self, ARGS, CERTIFICATE_NAMES, CERTIFICATE_SUBJECT, CLIENT_IP, CONSUMER_NAME, COOKIES, HEADERS, HOST, ID,
    PARAMS, PATH, QUERY, RESPONSE_HEADERS, UPSTREAM, URL, Vocabulary,
};

/// The texts of the access log, compiled.
#[derive(Debug)]
pub struct LogTexts {
    texts: Box<[Template]>,
    fields: Box<[Box<str>]>,
}

impl LogTexts {
    /// These texts. Each is compiled with [`Names::of_log`](super::Names::of_log), so it has no placeholders.
    pub fn new(texts: Vec<Template>) -> Self {
        let reads = texts.iter().flat_map(|text| text.computed().flat_map(|one| one.reading().reads()));
        let mut fields: Vec<Box<str>> = reads
            .filter(|read| read.var == RESPONSE_HEADERS)
            .filter_map(|read| read.key.as_deref().map(Into::into))
            .collect();
        fields.sort();
        fields.dedup();
        Self { texts: texts.into(), fields: fields.into() }
    }

    /// The fields of the response that they name, in lower case.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|name| &**name)
    }

    /// What each comes to, and whether that is a number, `true` or `false` in the form of JSON. Empty for one without a
    /// value.
    pub fn values(&self, ended: &Ended<'_>) -> Vec<(Vec<u8>, bool)> {
        self.texts.iter().map(|text| value_of(text, ended)).collect()
    }
}

fn value_of(text: &Template, ended: &Ended<'_>) -> (Vec<u8>, bool) {
    let (mut out, mut is_bare) = (Vec::new(), false);
    for part in &text.parts {
        match part {
            Part::Expression(one) => {
                ended.with(&one.vocabulary, |shown| {
                    let value = one.expression.value(shown);
                    is_bare = text.parts.len() == 1 && is_json(one.expression.ty(), &value);
                    value.write(&mut out);
                });
            }
            Part::Text(text) => out.extend_from_slice(text),
            Part::Value(_) => {} // see `new`
        }
    }
    (out, is_bare)
}

/// Whether a value is written in JSON as it is. Only its type decides, so that a key of the log has one type.
fn is_json(ty: &Type, value: &Value<'_>) -> bool {
    match ty {
        Type::Bool | Type::Int | Type::Uint => true,
        Type::Double => matches!(value, Value::Double(number) if number.is_finite()),
        _ => false,
    }
}

impl Ended<'_> {
    fn with(&self, vocabulary: &Vocabulary, run: impl FnOnce(&Shown<'_, '_>)) {
        let known = Known::of(Some(self.head), self.cx).ended(self);
        let status = Some(self.status).filter(|status| *status != 0);
        let later = Later { status, fields: self.fields, ..Later::NONE };
        View::with((Some(self.head), later), known, vocabulary, |view| {
            run(&Shown { view, vocabulary, ended: self });
        });
    }
}

/// An exchange without its secrets. What a map looks up is whole: its values are those of the config.
struct Shown<'v, 'a> {
    view: &'v View<'a>,
    vocabulary: &'v Vocabulary,
    ended: &'v Ended<'v>,
}

/// Stands for a secret, as in the log's own fields.
const HIDDEN: Cow<'static, [u8]> = Cow::Borrowed(b"***");

impl Shown<'_, '_> {
    /// The form for logs, if what is read may hold a secret and is there.
    fn concealed(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self.vocabulary.maps.conceals(var) {
            return self.view.text(var, key).map(|_| HIDDEN);
        }
        let conceals = self.ended.conceals?;
        let path = self.ended.head.received_path();
        let is_of_target =
            matches!(var, ARGS | PARAMS | PATH | QUERY | URL) || (var == HEADERS && key == b"referer");
        let text = if is_of_target { self.view.text(var, key)? } else { return None };
        Some(match var {
            ARGS if conceals.hides(path, key) => HIDDEN,
            ARGS => text,
            PARAMS | PATH => shown(text, |text| conceals.path(text)),
            QUERY => shown(text, |text| conceals.query(path, text)),
            _ => shown(text, |text| conceals.referer(text)),
        })
    }
}

/// Applies what hides a part of a text.
fn shown<'t>(text: Cow<'t, [u8]>, hide: impl Fn(&[u8]) -> Cow<'_, [u8]>) -> Cow<'t, [u8]> {
    match hide(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(hidden) => Cow::Owned(hidden),
    }
}

impl Values for Shown<'_, '_> {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        self.concealed(var, key).map_or_else(|| self.view.value(var, key), Value::Text)
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.concealed(var, key).or_else(|| self.view.text(var, key))
    }

    fn all<'a>(&'a self, var: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        match self.concealed(var, key) {
            Some(text) if var != ARGS || *text == *HIDDEN => out.push(Value::Text(text)),
            _ => self.view.all(var, key, out),
        }
    }
}

/// What `access_log.redact` keeps out of the log, which an expression may not bring back.
#[derive(Clone, Debug, Default)]
pub struct Redacted(Vec<(String, Var, Option<Box<str>>)>);

impl Redacted {
    /// What these keys of `redact` name.
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        let of_field = |key: &str| -> Vec<(Var, Option<Box<str>>)> {
            let header = |name: &str| (HEADERS, Some(name.to_ascii_lowercase().into()));
            match key {
                "client" => vec![(CLIENT_IP, None)],
                "consumer" => vec![(CONSUMER_NAME, None)],
                "host" => vec![(HOST, None), (URL, None), header("host")],
                "path" => vec![(PATH, None), (PARAMS, None), (URL, None)],
                "query" => vec![(QUERY, None), (ARGS, None), (URL, None)],
                "referer" => vec![header("referer")],
                "request_id" => vec![(ID, None)],
                "tls_client_san" => vec![(CERTIFICATE_NAMES, None)],
                "tls_client_subject" => vec![(CERTIFICATE_SUBJECT, None)],
                "upstream" => vec![(UPSTREAM, None)],
                "uri" => [PATH, PARAMS, QUERY, ARGS, URL].map(|var| (var, None)).into(),
                "user_agent" => vec![header("user-agent")],
                _ => match (key.strip_prefix("header:"), key.strip_prefix("response_header:")) {
                    (Some(name), _) if name.eq_ignore_ascii_case("cookie") => {
                        vec![header(name), (COOKIES, None)]
                    }
                    (Some(name), _) => vec![header(name)],
                    (_, Some(name)) => vec![(RESPONSE_HEADERS, Some(name.to_ascii_lowercase().into()))],
                    _ => Vec::new(),
                },
            }
        };
        let all = keys
            .into_iter()
            .flat_map(|key| of_field(key).into_iter().map(move |(var, name)| (key.to_owned(), var, name)));
        Self(all.collect())
    }

    /// Why the access log may not have this expression.
    pub(super) fn refusal(&self, expression: &Expression, reading: &Reading) -> Option<Mistake> {
        let body = reading.reads().iter().find(|read| read.var == variables::REQUEST_BODY);
        if let Some(read) = body {
            let mistake = Mistake::new(read.range.clone(), "no body is read for the access log");
            return Some(mistake.hint(
                "set a header in a filter, `headers: { request: { set: { x-sku: \"{= request.body.sku }\" } } }`, and \
                 log header:x-sku",
            ));
        }
        let is_header = |read: &&Read| matches!(read.var, HEADERS | RESPONSE_HEADERS | COOKIES);
        let computed = reading.reads().iter().filter(is_header).find(|read| read.is_computed);
        if let Some(read) = computed {
            let message = "a name that is computed could bring any header field into the log";
            let mistake = Mistake::new(read.range.clone(), message);
            return Some(mistake.hint("write the name: request.headers[\"x-name\"]"));
        }
        expression.reads().iter().find_map(|read| {
            let is_read = |(_, var, name): &&(String, Var, Option<Box<str>>)| {
                *var == read.var && (name.is_none() || name.as_deref() == read.key.as_deref())
            };
            let (redacted, ..) = self.0.iter().find(is_read)?;
            let message = format!("`access_log.redact` keeps `{redacted}` out of the log, and this reads it");
            let hint = "read it through a map, whose values are those of the config, or do not redact it";
            Some(Mistake::new(read.range.clone(), message).hint(hint))
        })
    }
}
