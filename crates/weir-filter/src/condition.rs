//! Conditions of filters: expressions over the request and its caller.

use crate::filter::{Build, Cx, Mistake, RequestHead};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::SystemTime;
use weir_config::schema::Expression;
use weir_expr::{Read, Value, Values, Var};
use weir_h1::FieldName;
use weir_route::variables::{
    ARGS, CERTIFICATE_NAMES, CERTIFICATE_SUBJECT, CONSUMER, CONSUMER_GROUPS, CONSUMER_NAME, CONSUMER_PLAN,
    COOKIES, HEADERS, ID, ROUTE, Seen, Vocabulary,
};
use weir_route::{Headers, Request};

/// A compiled condition.
#[derive(Debug)]
pub struct Condition {
    compiled: weir_expr::Condition,
    vocabulary: Vocabulary,
    /// What it reads, also through maps.
    reads: Vec<Read>,
    /// It reads something that may tell one caller from another.
    identifies: bool,
}

/// Header fields that tell no caller from another. Any other may carry a credential.
const COMMON: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "content-length",
    "content-type",
    "host",
    "origin",
    "range",
    "referer",
    "user-agent",
];

impl Condition {
    /// Compiles the expression under the key `field` of a filter's settings, and reports its mistakes.
    pub fn compile(written: &Expression, field: &str, build: &mut Build<'_>) -> Option<Self> {
        let captures: Option<Vec<&str>> =
            build.captures.map(|names| names.iter().map(String::as_str).collect());
        let schema = build.vocabulary.schema(captures.as_deref());
        let compiled = weir_expr::Condition::compile(&written.0, &schema, CONSUMER);
        build.expressions.push((field.to_owned(), compiled.is_ok()));
        match compiled {
            Ok(compiled) => {
                let warning = match compiled.constant() {
                    None => None,
                    Some(true) => Some("every request meets this condition"),
                    Some(false) => Some("no request meets this condition"),
                };
                if let Some(warning) = warning {
                    build.warn(field, "constant-condition", warning, None);
                }
                let vocabulary = build.vocabulary.clone();
                let reads: Vec<Read> = vocabulary.maps.sources(compiled.reads()).collect();
                let identifies = reads.iter().any(identifies);
                Some(Self { compiled, vocabulary, reads, identifies })
            }
            Err(mistakes) => {
                build.mistakes.extend(mistakes.into_iter().map(|mistake| Mistake {
                    field: field.to_owned(),
                    message: mistake.message.into(),
                    hint: mistake.hint.map(Into::into),
                    offset: Some(mistake.range.start),
                }));
                None
            }
        }
    }

    /// Whether it holds. If it does and tells callers apart, notes what it read as an identity that the filter `by`
    /// verified, so that no cache gives one caller's answer to another.
    pub fn admits(&self, by: &'static str, head: &RequestHead, cx: &mut Cx) -> bool {
        let holds = with_view(head, cx, &self.vocabulary, |view| {
            self.compiled.holds(view).then(|| self.identifies.then(|| self.who(view)))
        });
        if let Some(Some(who)) = &holds {
            cx.identify(by, who);
        }
        holds.is_some()
    }

    /// The header fields that it reads, for [`Filter::guards`](crate::filter::Filter::guards).
    pub fn guarded(&self) -> Vec<FieldName> {
        let reads = self.reads.iter().filter(|read| read.var == HEADERS);
        reads.filter_map(|read| FieldName::new(read.key.as_deref()?).ok()).collect()
    }

    /// A hash of everything it reads that may tell callers apart.
    fn who(&self, view: &View<'_>) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &[u8]| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        for read in self.reads.iter().filter(|read| identifies(read)) {
            add(&read.var.0.to_be_bytes());
            match (read.var, &read.key) {
                (CERTIFICATE_NAMES | CERTIFICATE_SUBJECT, _) => {
                    add(view.cx.certificate.as_ref().map_or(b"", |known| known.fingerprint.as_bytes()));
                }
                (_, Some(key)) => {
                    add(key.as_bytes());
                    add(&view.text(read.var, key.as_bytes()).unwrap_or_default());
                }
                (COOKIES, None) => view.head.headers.get_all("cookie").for_each(&mut add),
                (_, None) => view.head.headers.iter().for_each(|(name, value)| {
                    add(name);
                    add(value);
                }),
            }
        }
        hash.finalize().into()
    }
}

/// Whether what is read may tell one caller from another. The consumer is an identity already; an address is none; the
/// URL is in every cache's key.
fn identifies(read: &Read) -> bool {
    match read.var {
        CERTIFICATE_NAMES | CERTIFICATE_SUBJECT | COOKIES => true,
        HEADERS => read.key.as_deref().is_none_or(|name| !COMMON.contains(&name)),
        ARGS => false,
        _ => read.is_computed,
    }
}

/// An exchange as its filters' conditions see it.
struct View<'a> {
    head: &'a RequestHead,
    cx: &'a Cx,
    seen: Seen<'a, 'a, Facts<'a>>,
}

/// What is known of the request besides its head.
struct Facts<'a> {
    head: &'a RequestHead,
    cx: &'a Cx,
    moment: OnceCell<SystemTime>,
}

fn with_view<T>(head: &RequestHead, cx: &Cx, vocabulary: &Vocabulary, run: impl FnOnce(&View<'_>) -> T) -> T {
    let request = Request {
        listener: u16::MAX,
        host: head.asked_authority(),
        method: head.method_name(),
        path: head.path(),
        query: head.query(),
        headers: Facts { head, cx, moment: OnceCell::new() },
    };
    let matched = cx.scope.matched.as_ref();
    let pattern = matched.and_then(|(table, route)| table.pattern(*route));
    let captured = pattern.map(|pattern| (pattern, head.routed_path()));
    run(&View { head, cx, seen: Seen { request: &request, captured, vocabulary } })
}

impl Headers for Facts<'_> {
    fn get_all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.head.headers.get_all(name)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.cx.client.to_canonical())
    }

    fn certificate(&self) -> Option<(&str, &[String])> {
        let certificate = self.cx.certificate.as_deref()?;
        Some((&certificate.subject, &certificate.names))
    }

    fn is_tls(&self) -> bool {
        self.cx.tls
    }

    fn size(&self) -> Option<u64> {
        self.head.declared_size()
    }

    fn now(&self) -> SystemTime {
        *self.moment.get_or_init(SystemTime::now)
    }
}

impl View<'_> {
    /// The value of a map. It may read the caller, so it is asked here and not of the request alone.
    fn map(&self, var: Var) -> Option<Cow<'_, [u8]>> {
        self.seen.vocabulary.maps.text(var, self)
    }

    /// What follows `plan:` or `group:` in the consumer's labels.
    fn labels<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a str> {
        let labels = self.cx.consumer().into_iter().flat_map(|consumer| &consumer.labels);
        labels.filter_map(move |label| label.strip_prefix(kind))
    }
}

impl Values for View<'_> {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var {
            CONSUMER_GROUPS => Value::List(self.labels("group:").map(Value::text).collect()),
            CONSUMER_NAME | CONSUMER_PLAN | ID | ROUTE => {
                self.text(var, key).map_or(Value::Absent, Value::Text)
            }
            _ => match self.map(var) {
                Some(text) => Value::Text(text),
                None => self.seen.value(var, key),
            },
        }
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let text = match var {
            CONSUMER_NAME => self.cx.consumer()?.name.as_str(),
            CONSUMER_PLAN => self.labels("plan:").next()?,
            ID => self.cx.request_id.as_deref()?,
            ROUTE => self.cx.route(),
            _ => return self.map(var).or_else(|| self.seen.text(var, key)),
        };
        Some(Cow::Borrowed(text.as_bytes()))
    }

    fn all<'a>(&'a self, var: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        self.seen.all(var, key, out);
    }
}
