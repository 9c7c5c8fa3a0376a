//! An exchange as expressions see it, and what reading it tells of the caller.

use crate::asked::Asked;
use crate::concealed::Conceals;
use crate::fields;
use crate::filter::{Consumer, Cx, ReadBody, RequestHead, ResponseHead, Revealed};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::SystemTime;
use weir_expr::{Read, Value, Values, Var};
use weir_h1::FieldName;
use weir_route::variables::{
    self, ARGS, CERTIFICATE_NAMES, CERTIFICATE_SUBJECT, CONSUMER_GROUPS, CONSUMER_NAME, CONSUMER_PLAN,
    COOKIES, HEADERS, HOST, ID, JWT, METHOD, NOW, PARAMS, PATH, QUERY, REQUEST_BODY, RESPONSE_BODY,
    RESPONSE_CAUSE, RESPONSE_HEADERS, RESPONSE_STATUS, ROUTE, SCHEME, Seen, UPSTREAM, URL, Vocabulary,
};
use weir_route::{Headers, Parameters, Request};
use weir_wire::tls::PeerCertificate;

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

/// What is known of an exchange besides the head of its request.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    client: IpAddr,
    tls: bool,
    certificate: Option<&'a PeerCertificate>,
    /// The name in the TLS handshake.
    server_name: Option<&'a str>,
    /// The upstream that the request went to.
    upstream: Option<&'a str>,
    consumer: Option<&'a Consumer>,
    request_id: Option<&'a str>,
    claims: Option<&'a Json>,
    /// The code of the cause why the gateway itself answered.
    cause: Option<&'a str>,
    route: &'a str,
    /// Knows the request's body, if that was read.
    cx: Option<&'a Cx>,
    parameters: Option<Parameters<'a>>,
}

impl<'a> Known<'a> {
    pub(crate) fn of(head: Option<&'a RequestHead>, cx: &'a Cx) -> Self {
        let told = cx.told();
        Self {
            client: cx.client,
            tls: cx.tls,
            certificate: cx.certificate.as_deref(),
            server_name: told.and_then(|told| told.server_name.as_deref()),
            upstream: told.and_then(|told| told.upstream.as_deref()),
            consumer: cx.consumer(),
            request_id: cx.request_id.as_deref(),
            claims: cx.claims(),
            cause: cx.failure().and_then(|failure| failure.cause).or(cx.because()).map(|cause| cause.code),
            route: cx.route(),
            cx: Some(cx),
            parameters: head.and_then(|head| cx.parameters(head)),
        }
    }

    /// The same of an exchange that has ended.
    pub(crate) fn ended(self, ended: &Ended<'a>) -> Self {
        let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Self {
            server_name: ended.server_name,
            upstream: text(ended.upstream),
            request_id: str::from_utf8(ended.request_id).ok().and_then(text),
            cause: text(ended.cause),
            ..self
        }
    }

    /// Of a made-up request, whose caller is not known.
    pub(crate) fn made_up(asked: &Asked<'a>) -> Self {
        Self {
            client: asked.client,
            tls: asked.tls,
            certificate: None,
            server_name: asked.server_name(),
            upstream: None,
            consumer: None,
            request_id: None,
            claims: None,
            cause: None,
            route: asked.route,
            cx: None,
            parameters: asked.parameters,
        }
    }
}

/// An exchange that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The request, as the filters left it.
    pub head: &'a RequestHead,
    /// The context of the exchange.
    pub cx: &'a Cx,
    /// The status to report; 0 if there was no response.
    pub status: u16,
    /// The fields of the response that were kept: see `LogTexts::fields`.
    pub fields: &'a [(String, Vec<u8>)],
    /// The upstream; empty for none.
    pub upstream: &'a str,
    /// The code of the cause why the gateway answered; empty for none.
    pub cause: &'a str,
    /// The id in the exchange's line.
    pub request_id: &'a [u8],
    /// The name in the TLS handshake.
    pub server_name: Option<&'a str>,
    /// What may not be shown of the target.
    pub conceals: Option<&'a Conceals>,
}

/// What expressions see when the response is there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Later<'a> {
    /// What was kept of the request.
    pub(crate) reads: &'a [KeptRead],
    pub(crate) response: Option<&'a ResponseHead>,
    /// When the response is gone too: its status, and the fields kept of it.
    pub(crate) status: Option<u16>,
    pub(crate) fields: &'a [(String, Vec<u8>)],
    /// The JSON of bodies, from a filter that has read them itself.
    pub(crate) request_body: Option<&'a Json>,
    pub(crate) response_body: Option<&'a Json>,
}

impl Later<'_> {
    /// It is not there.
    pub(crate) const NONE: Self = Self {
        reads: &[],
        response: None,
        status: None,
        fields: &[],
        request_body: None,
        response_body: None,
    };
}

/// The value of a variable of the request, kept until the response is there.
#[derive(Debug)]
pub(crate) struct KeptRead {
    var: Var,
    key: Box<str>,
    /// The texts of a text: each value of a repeated field.
    texts: Vec<Vec<u8>>,
    /// The value of any other.
    number: Option<i64>,
    /// The request's body.
    body: Option<Rc<ReadBody>>,
}

impl KeptRead {
    pub(crate) fn of(view: &View<'_>, var: Var, key: &str) -> Self {
        let mut all = Vec::new();
        view.all(var, key.as_bytes(), &mut all);
        let text =
            |value: Value<'_>| if let Value::Text(text) = value { Some(text.into_owned()) } else { None };
        let number =
            if let Value::Int(number) = view.value(var, key.as_bytes()) { Some(number) } else { None };
        let body = view.known.cx.filter(|_| var == REQUEST_BODY).and_then(Cx::share_read_body).cloned();
        Self { var, key: key.into(), texts: all.into_iter().filter_map(text).collect(), number, body }
    }

    fn text(&self) -> Option<Cow<'_, [u8]>> {
        match self.texts.as_slice() {
            [] => None,
            [one] => Some(Cow::Borrowed(one)),
            several => Some(Cow::Owned(several.join(&b", "[..]))),
        }
    }
}

/// An exchange as the expressions of filters see it.
pub(crate) struct View<'a> {
    head: Option<&'a RequestHead>,
    later: Later<'a>,
    known: Known<'a>,
    seen: Seen<'a, 'a, Facts<'a>>,
}

/// What [`Seen`] asks for.
struct Facts<'a> {
    head: Option<&'a RequestHead>,
    known: Known<'a>,
    moment: OnceCell<SystemTime>,
}

impl<'a> View<'a> {
    /// Runs `run` on the view of a request, or of what is left of it when the response is there.
    pub(crate) fn with<T>(
        (head, later): (Option<&'a RequestHead>, Later<'a>),
        known: Known<'a>,
        vocabulary: &'a Vocabulary,
        run: impl FnOnce(&View<'_>) -> T,
    ) -> T {
        let of_head = |get: fn(&RequestHead) -> &[u8]| head.map_or(&b""[..], get);
        let request = Request {
            listener: u16::MAX,
            host: of_head(RequestHead::asked_authority),
            method: of_head(RequestHead::method_name),
            path: of_head(RequestHead::path),
            query: head.and_then(RequestHead::query),
            headers: Facts { head, known, moment: OnceCell::new() },
        };
        let seen = Seen { request: &request, parameters: known.parameters, vocabulary };
        run(&View { head, later, known, seen })
    }

    fn kept(&self, var: Var, key: &[u8]) -> Option<&KeptRead> {
        let reads = if self.head.is_none() { self.later.reads } else { &[] };
        reads.iter().find(|read| read.var == var && read.key.as_bytes() == key)
    }

    fn response_fields(&self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let kept = self.later.fields.iter().filter(move |(name, _)| name.as_bytes() == key);
        let there = self.later.response.into_iter().flat_map(move |head| head.headers.get_all(key));
        there.chain(kept.map(|(_, value)| value.as_slice()))
    }

    /// All fields of the request.
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.into_iter().flat_map(|head| head.headers.iter())
    }

    fn claim(&self, name: &[u8]) -> Option<&Json> {
        self.known.claims?.get(str::from_utf8(name).ok()?)
    }

    /// The JSON of the request's body: as the filter read it, kept of the request, or read for expressions.
    fn body(&self) -> Option<&Json> {
        match (self.later.request_body, self.kept(REQUEST_BODY, b"")) {
            (Some(body), _) => Some(body),
            (None, Some(kept)) => kept.body.as_ref()?.value(),
            (None, None) => self.known.cx?.body_json(),
        }
    }

    /// The value of a map. It may read the caller, so it is asked here and not of the request alone.
    fn map(&self, var: Var) -> Option<Cow<'_, [u8]>> {
        self.seen.vocabulary.maps.text(var, self)
    }

    /// What follows `plan:` or `group:` in the consumer's labels.
    fn labels<'s>(&'s self, kind: &'static str) -> impl Iterator<Item = &'s str> {
        let labels = self.known.consumer.into_iter().flat_map(|consumer| consumer.labels.iter());
        labels.filter_map(move |label| label.strip_prefix(kind))
    }
}

impl Headers for Facts<'_> {
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.head.into_iter().flat_map(move |head| fields::values(head, name))
    }

    #[inline]
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.head.map_or(value.is_empty(), |head| fields::is(head, name, value))
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.known.client.to_canonical())
    }

    fn certificate(&self) -> Option<(&str, &[String])> {
        let certificate = self.known.certificate?;
        Some((&certificate.subject, &certificate.names))
    }

    fn server_name(&self) -> Option<&str> {
        self.known.server_name
    }

    fn is_tls(&self) -> bool {
        self.known.tls
    }

    fn size(&self) -> Option<u64> {
        self.head?.declared_size()
    }

    fn now(&self) -> SystemTime {
        *self.moment.get_or_init(SystemTime::now)
    }
}

impl Values for View<'_> {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var {
            CONSUMER_GROUPS => Value::List(self.labels("group:").map(Value::text).collect()),
            CONSUMER_NAME | CONSUMER_PLAN | ID | RESPONSE_CAUSE | RESPONSE_HEADERS | ROUTE | UPSTREAM => {
                self.text(var, key).map_or(Value::Absent, Value::Text)
            }
            JWT => self.claim(key).map_or(Value::Absent, Value::json),
            REQUEST_BODY => self.body().map_or(Value::Absent, Value::json),
            RESPONSE_BODY => self.later.response_body.map_or(Value::Absent, Value::json),
            RESPONSE_STATUS => {
                let status = self.later.response.map(ResponseHead::status).or(self.later.status);
                status.map_or(Value::Absent, |status| Value::Int(status.into()))
            }
            _ => match self.kept(var, key) {
                Some(kept) => match kept.number {
                    Some(number) => Value::Int(number),
                    None => kept.text().map_or(Value::Absent, Value::Text),
                },
                None => match self.map(var) {
                    Some(text) => Value::Text(text),
                    None => self.seen.value(var, key),
                },
            },
        }
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let text = match var {
            CONSUMER_NAME => self.known.consumer?.name.as_str(),
            CONSUMER_PLAN => self.labels("plan:").next()?,
            ID => self.known.request_id?,
            JWT => self.claim(key)?.as_str()?,
            REQUEST_BODY => return self.body()?.as_str().map(|text| Cow::Borrowed(text.as_bytes())),
            RESPONSE_BODY => self.later.response_body?.as_str()?,
            RESPONSE_CAUSE => self.known.cause?,
            RESPONSE_HEADERS => return variables::joined(self.response_fields(key).map(Cow::Borrowed)),
            ROUTE => self.known.route,
            UPSTREAM => self.known.upstream?,
            _ => {
                return match self.kept(var, key) {
                    Some(kept) => kept.text(),
                    None => self.map(var).or_else(|| self.seen.text(var, key)),
                };
            }
        };
        Some(Cow::Borrowed(text.as_bytes()))
    }

    fn is(&self, var: Var, key: &[u8], text: &[u8]) -> bool {
        match var {
            ARGS | COOKIES | HEADERS | HOST | METHOD | PARAMS | PATH | QUERY if self.head.is_some() => {
                self.seen.is(var, key, text)
            }
            _ => self.text(var, key).map_or(text.is_empty(), |found| *found == *text),
        }
    }

    fn all<'a>(&'a self, var: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        if var == RESPONSE_HEADERS {
            let most = self.seen.vocabulary.bounds.fields as usize;
            let fields = self.response_fields(key).take(most);
            return out.extend(fields.map(|value| Value::Text(Cow::Borrowed(value))));
        }
        match self.kept(var, key) {
            Some(kept) => out.extend(kept.texts.iter().map(Value::text)),
            None => self.seen.all(var, key, out),
        }
    }
}

/// What an expression reads, and what that tells of the caller.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    reads: Vec<Read>,
    /// Something that may tell one caller from another.
    pub(crate) identifies: bool,
    /// Something of the consumer, who is an identity already.
    pub(crate) of_consumer: bool,
    /// Something else that is in no cache's key: the address, a usual field. What the expression comes to may depend on
    /// it, and so may the answer.
    pub(crate) beside_url: bool,
}

impl Reading {
    /// What these reads tell, and what the maps among them read.
    pub(crate) fn of(vocabulary: &Vocabulary, reads: &[Read]) -> Self {
        let reads: Vec<Read> = vocabulary.maps.sources(reads).collect();
        let of_consumer = |read: &Read| matches!(read.var, CONSUMER_GROUPS | CONSUMER_NAME | CONSUMER_PLAN);
        Self {
            identifies: reads.iter().any(identifies),
            of_consumer: reads.iter().any(of_consumer),
            beside_url: reads.iter().any(|read| !of_consumer(read) && !is_of_url(read)),
            reads,
        }
    }

    pub(crate) fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// Whether it reads the request's body.
    pub(crate) fn reads_body(&self) -> bool {
        self.reads.iter().any(|read| read.var == REQUEST_BODY)
    }

    /// The header fields that it reads, for [`Filter::guards`](crate::filter::Filter::guards).
    pub(crate) fn guarded(&self) -> impl Iterator<Item = FieldName> + '_ {
        let reads = self.reads.iter().filter(|read| read.var == HEADERS);
        // A name that is computed may be any: see `NameSet::new`.
        reads.filter_map(|read| FieldName::new(read.key.as_deref().unwrap_or("*")).ok())
    }

    /// Notes that a filter's behavior depends on what this came to, `outcome`: of what tells callers apart, all that was
    /// read; of the rest, the outcome alone. So no cache gives one caller's answer to another. `source` tells it from
    /// other expressions.
    pub(crate) fn note(&self, by: &'static str, view: &View<'_>, cx: &Cx, source: &str, outcome: &[u8]) {
        if self.of_consumer {
            cx.reveals(Revealed::CONSUMER);
        }
        if self.identifies {
            cx.identify(by, &self.who(view));
        }
        // Also where a credential is read: what it came to may depend on the address beside it.
        if self.beside_url {
            let mut hash = Sha256::new();
            add(&mut hash, source.as_bytes());
            add(&mut hash, outcome);
            cx.identify(by, &hash.finalize());
        }
    }

    /// A hash of everything it reads that may tell callers apart.
    pub(crate) fn who(&self, view: &View<'_>) -> [u8; 32] {
        let mut hash = Sha256::new();
        for read in self.reads.iter().filter(|read| identifies(read)) {
            add(&mut hash, &read.var.0.to_be_bytes());
            match (read.var, &read.key) {
                (CERTIFICATE_NAMES | CERTIFICATE_SUBJECT, _) => {
                    let certificate = view.known.certificate;
                    add(&mut hash, certificate.map_or(b"", |known| known.fingerprint.as_bytes()));
                }
                (_, Some(key)) => {
                    let mut value = Vec::new();
                    view.value(read.var, key.as_bytes()).write(&mut value);
                    add(&mut hash, key.as_bytes());
                    add(&mut hash, &value);
                }
                // A name that is computed: all of them.
                (JWT, None) => {
                    add(&mut hash, view.known.claims.map(Json::to_string).unwrap_or_default().as_bytes())
                }
                (COOKIES, None) => {
                    view.fields()
                        .filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"))
                        .for_each(|(_, value)| add(&mut hash, value));
                }
                (_, None) => view.fields().for_each(|(name, value)| {
                    add(&mut hash, name);
                    add(&mut hash, value);
                }),
            }
        }
        hash.finalize().into()
    }
}

fn add(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_be_bytes()); // the lengths make the encoding unambiguous
    hash.update(text);
}

/// Whether what is read may tell one caller from another. The consumer is an identity already; an address is none; the
/// URL is in every cache's key.
fn identifies(read: &Read) -> bool {
    match read.var {
        CERTIFICATE_NAMES | CERTIFICATE_SUBJECT | COOKIES | JWT => true,
        HEADERS => read.key.as_deref().is_none_or(|name| !COMMON.contains(&name)),
        ARGS => false,
        _ => read.is_computed,
    }
}

/// Whether what is read is the same for all requests of one method and URL on one route, as cached answers are, or says
/// nothing of the request.
pub(crate) fn is_of_url(read: &Read) -> bool {
    matches!(
        read.var,
        ARGS | HOST
            | ID
            | METHOD
            | NOW
            | PARAMS
            | PATH
            | QUERY
            | RESPONSE_BODY
            | RESPONSE_CAUSE
            | RESPONSE_HEADERS
            | RESPONSE_STATUS
            | ROUTE
            | SCHEME
            | UPSTREAM
            | URL
    )
}

/// Whether `weir explain` knows what is read: a made-up request has no caller and no body.
pub(crate) fn is_made_up(read: &Read) -> bool {
    !matches!(
        read.var,
        CERTIFICATE_NAMES
            | CERTIFICATE_SUBJECT
            | CONSUMER_GROUPS
            | CONSUMER_NAME
            | CONSUMER_PLAN
            | ID
            | JWT
            | REQUEST_BODY
    )
}
