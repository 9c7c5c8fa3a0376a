//! The variables of a request that expressions may name, and their values.
//!
//! `match.when` and the conditions of filters share both. [`Seen`] asks [`Headers`] for what is not in the head.

mod secrets;

pub use secrets::{HIDDEN, Secrets, shown};

use super::cookies;
use super::host::{self, HostBuffer};
use super::maps::{MapMistake, Maps, MapsBuilder};
use super::parameters::Parameters;
use super::query::decoded;
use super::request::{Headers, Request};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;
use weir_expr::{Phase, Read, Schema, Timestamp, Type, Value, Values, Var, Variable, same};

/// The phases of an exchange in their order; each knows all that those before it know.
pub const PHASES: [&str; 5] = ["request", "consumer", "body", "response", "response body"];

/// The request's head is here: what `match.when` knows.
pub const REQUEST: Phase = Phase(0);
/// The route is found, and filters run: what their conditions know.
pub const CONSUMER: Phase = Phase(1);
/// The request's body is here: what filters know that have it read.
pub const BODY: Phase = Phase(2);
/// The response's body is here: what filters know that write it anew.
pub const RESPONSE_BODY_READ: Phase = Phase(4);
/// All is known.
const LAST: Phase = Phase(PHASES.len() as u8 - 1);
/// The response's head is here.
pub const RESPONSE: Phase = Phase(3);

/// `client.cert.san`: the alternative names of the client's certificate.
pub const CERTIFICATE_NAMES: Var = Var(0);
/// `client.cert.subject`: its subject.
pub const CERTIFICATE_SUBJECT: Var = Var(1);
/// `client.ip`: the client's address.
pub const CLIENT_IP: Var = Var(2);
/// `client.port`: the port of the connection's other end.
pub const CLIENT_PORT: Var = Var(3);
/// `client.tls`: whether the client uses TLS.
pub const CLIENT_TLS: Var = Var(4);
/// `now`: the moment of the lookup.
pub const NOW: Var = Var(5);
/// `request.scheme`: `http` or `https`.
pub const SCHEME: Var = Var(6);
/// `request.size`: the declared length of the body.
pub const SIZE: Var = Var(7);
/// `consumer.groups`: the consumer's groups.
pub const CONSUMER_GROUPS: Var = Var(8);
/// `consumer.name`: its name.
pub const CONSUMER_NAME: Var = Var(9);
/// `consumer.plan`: its plan.
pub const CONSUMER_PLAN: Var = Var(10);
/// `request.id`: the id that `request_id` gave.
pub const ID: Var = Var(11);
/// `route.name`: the name of the route.
pub const ROUTE: Var = Var(12);
/// `jwt["claim"]`: a claim of the token that the filter `jwt` verified.
pub const JWT: Var = Var(13);
/// `request.body`: the JSON of the request's body.
pub const REQUEST_BODY: Var = Var(30);
/// `response.body`: the JSON of the response's body.
pub const RESPONSE_BODY: Var = Var(31);
/// `client.sni`: the name in the TLS handshake.
pub const CLIENT_SNI: Var = Var(14);
/// `upstream.name`: the upstream that the request went to.
pub const UPSTREAM: Var = Var(35);
/// `response.cause`: why the gateway itself answered.
pub const RESPONSE_CAUSE: Var = Var(32);
/// `response.headers`.
pub const RESPONSE_HEADERS: Var = Var(33);
/// `response.status`: the status of the response.
pub const RESPONSE_STATUS: Var = Var(34);
/// `request.args`.
pub const ARGS: Var = Var(16);
/// `request.cookies`.
pub const COOKIES: Var = Var(17);
/// `request.headers`.
pub const HEADERS: Var = Var(18);
/// `request.host`.
pub const HOST: Var = Var(19);
/// `request.method`.
pub const METHOD: Var = Var(20);
/// `request.params`.
pub const PARAMS: Var = Var(21);
/// `request.path`.
pub const PATH: Var = Var(22);
/// `request.query`.
pub const QUERY: Var = Var(23);
/// `request.url`.
pub const URL: Var = Var(24);

/// How large a request's head may be, for the bound on an expression's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of a head.
    pub head_bytes: u64,
    /// Most header fields. [`Values::all`] gives at most as many parameters, the last with the rest of them.
    pub fields: u32,
}

/// What the expressions of a config may name, its maps among it.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// How large a request's head may be.
    pub bounds: Bounds,
    /// The maps.
    pub maps: Arc<Maps>,
    /// All but `request.params`, whose keys depend on the route.
    base: Arc<Schema>,
}

impl Vocabulary {
    /// What expressions may name in a config without maps.
    pub fn without_maps(bounds: Bounds) -> Self {
        Self::new(bounds, Self::maps(bounds, [])).0
    }

    /// A builder of the maps with these names.
    pub fn maps<'n>(bounds: Bounds, names: impl IntoIterator<Item = &'n str>) -> MapsBuilder {
        MapsBuilder::new(own_schema(bounds), LAST, names)
    }

    /// What expressions may name in a config with these maps. Maps with mistakes have no values.
    pub fn new(bounds: Bounds, maps: MapsBuilder) -> (Self, Vec<MapMistake>) {
        let (maps, schema, mistakes) = maps.build();
        (Self { bounds, maps: Arc::new(maps), base: Arc::new(schema) }, mistakes)
    }

    /// What expressions may name, each with the phase from which it is known. `captures` are the names that the route's
    /// path captures; without them any name is taken.
    pub fn schema(&self, captures: Option<&[&str]>) -> Schema {
        let params = params(self.bounds);
        Schema::over(Arc::clone(&self.base)).with(match captures {
            Some(known) => params.keys(known.iter().copied()),
            None => params.keyed(),
        })
    }
}

fn params(bounds: Bounds) -> Variable {
    Variable::new("request.params", PARAMS, REQUEST, Type::Text)
        .longest(bounds.head_bytes)
        .about("what the route's path captures: `/users/{id}`")
}

/// Where `request.body` is known.
const BODY_HINT: &str =
    "filters know it: write the condition as `when: { is }` among them, or the text in one of them";
/// Where `response.body` is known.
const ANSWER_HINT: &str = "the filter `transform` knows it, in `response`";

/// What there is without maps. `request.params` has any key.
fn own_schema(bounds: Bounds) -> Schema {
    let text = |name, var| Variable::new(name, var, REQUEST, Type::Text).longest(bounds.head_bytes);
    let other = |name, var, ty| Variable::new(name, var, REQUEST, ty);
    let later = |name, var, ty| Variable::new(name, var, CONSUMER, ty).longest(256);
    let of_response = |name, var, ty| Variable::new(name, var, RESPONSE, ty);
    Schema::new(PHASES)
        .with(text("request.method", METHOD).about("the method as received: `GET`"))
        .with(
            text("request.scheme", SCHEME).longest(8).about("`http` or `https`; a trusted proxy may name it"),
        )
        .with(
            text("request.host", HOST)
                .longest(host::HOST_BYTES as u64)
                .about("the host in lower case, without its port"),
        )
        .with(text("request.path", PATH).about("the canonical path; in filters as those before left it"))
        .with(text("request.query", QUERY).about("the query without `?`"))
        .with(text("request.url", URL).about("scheme, host and port, path and query"))
        .with(
            other("request.size", SIZE, Type::Int)
                .optional()
                .about("the declared length of the body; may have no value"),
        )
        .with(text("request.headers", HEADERS).folded().repeated(bounds.fields).about(
            "a header field, whose name ignores case; the values of a repeated one are joined by `, `",
        ))
        .with(text("request.cookies", COOKIES).keyed().about("the first cookie of that name"))
        .with(
            text("request.args", ARGS)
                .keyed()
                .repeated(bounds.fields)
                .about("a parameter of the query, decoded"),
        )
        .with(params(bounds).keyed())
        .with(
            other("client.ip", CLIENT_IP, Type::Address)
                .about("the client; behind trusted proxies, the one they name"),
        )
        .with(other("client.tls", CLIENT_TLS, Type::Bool).about("whether the client uses TLS"))
        .with(
            text("client.sni", CLIENT_SNI)
                .longest(host::HOST_BYTES as u64)
                .about("the name in the TLS handshake"),
        )
        .with(
            text("client.cert.subject", CERTIFICATE_SUBJECT)
                .about("subject of the client certificate: `CN=shop,O=Example`"),
        )
        .with(
            other("client.cert.san", CERTIFICATE_NAMES, Type::list(Type::Text))
                .about("alternative names of the client certificate: `dns:shop.internal`"),
        )
        .with(
            other("now", NOW, Type::Timestamp)
                .about("the time, which is the same in all expressions over one lookup"),
        )
        .with(later("consumer.name", CONSUMER_NAME, Type::Text).about("the consumer that a filter named"))
        .with(
            later("consumer.groups", CONSUMER_GROUPS, Type::list(Type::Text))
                .about("the groups of the consumer"),
        )
        .with(later("consumer.plan", CONSUMER_PLAN, Type::Text).about("the plan of the consumer"))
        .with(
            Variable::new("jwt", JWT, CONSUMER, Type::Json)
                .keyed()
                .about("a claim of the token that the filter `jwt` verified"),
        )
        .with(later("request.id", ID, Type::Text).about("the id that the filter `request_id` set"))
        .with(later("route.name", ROUTE, Type::Text).about("the route"))
        .with(
            Variable::new("request.body", REQUEST_BODY, BODY, Type::Json)
                .elsewhere(BODY_HINT)
                .about("the JSON of the body, which is read for it"),
        )
        .with(
            Variable::new("response.body", RESPONSE_BODY, RESPONSE_BODY_READ, Type::Json)
                .elsewhere(ANSWER_HINT)
                .about("the JSON of the body that `transform` writes anew"),
        )
        .with(of_response("response.status", RESPONSE_STATUS, Type::Int).about("the status"))
        .with(
            of_response("response.headers", RESPONSE_HEADERS, Type::Text)
                .folded()
                .repeated(bounds.fields)
                .about("a header field, as in `request.headers`"),
        )
        .with(
            of_response("upstream.name", UPSTREAM, Type::Text)
                .longest(256)
                .about("the upstream that the request went to; empty if it went to none"),
        )
        .with(
            of_response("response.cause", RESPONSE_CAUSE, Type::Text)
                .longest(64)
                .about("the cause, if Weir itself answered"),
        )
}

/// A request as expressions see it.
pub struct Seen<'s, 'r, H> {
    /// The request.
    pub request: &'s Request<'r, H>,
    /// What the route captured: `request.params`.
    pub parameters: Option<Parameters<'s>>,
    /// As [`Bounds::fields`], and the maps.
    pub vocabulary: &'s Vocabulary,
}

impl<H: Headers> Seen<'_, '_, H> {
    fn params(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.parameters.as_ref()?.get(str::from_utf8(key).ok()?)
    }

    fn args<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let pairs = self.request.query.unwrap_or_default().split(|&byte| byte == b'&');
        pairs.filter_map(move |pair| {
            let cut = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            let (name, value) = (pair.get(..cut)?, pair.get(cut + 1..).unwrap_or_default());
            // An empty query is one empty pair; parameters have names.
            if name.is_empty() || (name != key && !decoded(name).eq(key.iter().copied())) {
                return None;
            }
            Some(match value.iter().any(|byte| matches!(byte, b'%' | b'+')) {
                true => Cow::Owned(decoded(value).collect()),
                false => Cow::Borrowed(value),
            })
        })
    }

    // A function of its own: `is` then needs no stack for the method and the path, 12 instructions less each.

    #[inline(never)]
    fn is_text(&self, var: Var, key: &[u8], text: &[u8]) -> bool {
        self.text(var, key).map_or(text.is_empty(), |found| *found == *text)
    }

    fn scheme(&self) -> &'static str {
        if self.request.headers.is_tls() { "https" } else { "http" }
    }

    fn url(&self) -> Vec<u8> {
        let Request { host, path, query, .. } = self.request;
        let mut url = Vec::with_capacity(host.len() + path.len() + query.map_or(0, <[u8]>::len) + 16);
        url.extend_from_slice(self.scheme().as_bytes());
        url.extend_from_slice(b"://");
        url.extend(host.iter().map(u8::to_ascii_lowercase));
        url.extend_from_slice(path);
        if let Some(query) = query {
            url.push(b'?');
            url.extend_from_slice(query);
        }
        url
    }
}

/// A moment as a value; none before 1970, which no clock that is set shows.
pub fn timestamp(moment: SystemTime) -> Value<'static> {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(seconds, since.subsec_nanos()).map_or(Value::Absent, Value::Timestamp)
}

/// Several values of one field or parameter as one text (RFC 9110 §5.2).
pub fn joined<'a>(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Option<Cow<'a, [u8]>> {
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(first) };
    let mut text = first.into_owned();
    for value in std::iter::once(second).chain(values) {
        text.extend_from_slice(b", ");
        text.extend_from_slice(&value);
    }
    Some(Cow::Owned(text))
}

impl<H: Headers> Values for Seen<'_, '_, H> {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var {
            ARGS | CLIENT_SNI | COOKIES | HEADERS | HOST | METHOD | PARAMS | PATH | QUERY | URL => {
                self.text(var, key).map_or(Value::Absent, Value::Text)
            }
            CERTIFICATE_SUBJECT => {
                self.request.headers.certificate().map_or(Value::Absent, |(subject, _)| Value::text(subject))
            }
            CERTIFICATE_NAMES => {
                let names = self.request.headers.certificate().map_or(&[][..], |(_, names)| names);
                Value::List(names.iter().map(Value::text).collect())
            }
            CLIENT_IP => self.request.headers.client_ip().map_or(Value::Absent, Value::Address),
            CLIENT_PORT => self.request.headers.client_port().map_or(Value::Absent, |p| Value::Int(p.into())),
            CLIENT_TLS => Value::Bool(self.request.headers.is_tls()),
            NOW => timestamp(self.request.headers.now()),
            SCHEME => Value::text(self.scheme()),
            SIZE => {
                let size = self.request.headers.size();
                size.map_or(Value::Absent, |size| Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
            }
            _ => self.vocabulary.maps.text(var, self).map_or(Value::Absent, Value::Text),
        }
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let request = self.request;
        match var {
            METHOD => Some(Cow::Borrowed(request.method)),
            PATH => Some(Cow::Borrowed(request.path)),
            QUERY => request.query.map(Cow::Borrowed),
            HEADERS => joined(request.headers.get_all(key).map(Cow::Borrowed)),
            COOKIES => cookies::values(request.headers.get_all(b"cookie"), key).next().map(Cow::Borrowed),
            ARGS => joined(self.args(key)),
            PARAMS => self.params(key),
            HOST => {
                let mut buffer = HostBuffer::new();
                let host = host::normalize(request.host, &mut buffer);
                match request.host.starts_with(host) {
                    true => request.host.get(..host.len()).map(Cow::Borrowed),
                    false => Some(Cow::Owned(host.to_vec())),
                }
            }
            URL => Some(Cow::Owned(self.url())),
            CLIENT_SNI => request.headers.server_name().map(|name| Cow::Borrowed(name.as_bytes())),
            SCHEME => Some(Cow::Borrowed(self.scheme().as_bytes())),
            CERTIFICATE_SUBJECT => Some(Cow::Borrowed(request.headers.certificate()?.0.as_bytes())),
            _ => self.vocabulary.maps.text(var, self),
        }
    }

    #[inline]
    fn is(&self, var: Var, key: &[u8], text: &[u8]) -> bool {
        match var {
            METHOD => same(self.request.method, text),
            PATH => same(self.request.path, text),
            HEADERS => self.request.headers.is(key, text),
            _ => self.is_text(var, key, text),
        }
    }

    fn all<'a>(&'a self, var: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        let most = self.vocabulary.bounds.fields as usize;
        let add = |values: &mut dyn Iterator<Item = Cow<'a, [u8]>>, out: &mut Vec<Value<'a>>| {
            let (mut values, mut left) = (values, most.saturating_sub(1));
            while left > 0 {
                let Some(value) = values.next() else { return };
                out.push(Value::Text(value));
                left -= 1;
            }
            out.extend(joined(&mut values).map(Value::Text));
        };
        match var {
            HEADERS => {
                add(&mut self.request.headers.get_all(key).map(Cow::Borrowed), out);
            }
            ARGS => {
                add(&mut self.args(key), out);
            }
            _ => out.extend(self.text(var, key).map(Value::Text)),
        }
    }
}

/// What an expression with these reads read of a request: names and values as text, each once, without `secrets`. What a
/// map reads follows the map.
pub fn all_came_to(
    values: &dyn Values,
    vocabulary: &Vocabulary,
    reads: &[Read],
    secrets: &Secrets,
) -> Vec<(String, String)> {
    // Any captures: the expression is sound. `match.when` knows the port beside them.
    let schema = vocabulary.schema(None).with(client_port());
    let mut came = Vec::new();
    for read in vocabulary.maps.with_sources(reads) {
        let one = came_to(values, (&schema, &vocabulary.maps), &read, secrets);
        came.extend(one.filter(|one| !came.contains(one)));
    }
    came
}

/// The port of the client's connection, which filters do not know.
pub(super) fn client_port() -> Variable {
    Variable::new("client.port", CLIENT_PORT, REQUEST, Type::Int).optional()
}

fn came_to(
    values: &dyn Values,
    (schema, maps): (&Schema, &Maps),
    read: &Read,
    secrets: &Secrets,
) -> Option<(String, String)> {
    let variable = schema.variables().find(|known| known.var() == read.var)?;
    let name = match &read.key {
        None if read.is_computed => return None,
        None => variable.name().to_owned(),
        Some(key) => format!("{}[{key:?}]", variable.name()),
    };
    let value = values.value(read.var, read.key.as_deref().unwrap_or_default().as_bytes());
    let is_hidden = !matches!(value, Value::Absent) && secrets.holds(values, maps, read);
    Some((name, if is_hidden { HIDDEN.to_owned() } else { shown(&value) }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pairs, request};
    use super::*;
    use weir_expr::Expression;

    const BOUNDS: Bounds = Bounds { head_bytes: 32 * 1024, fields: 3 };

    /// What an expression comes to on `GET target` with these fields.
    fn value(source: &str, target: &str, headers: Pairs<'_>) -> String {
        let request = request("GET", "API.Example.com:80", target, headers);
        let vocabulary = Vocabulary::without_maps(BOUNDS);
        let seen = Seen { request: &request, parameters: None, vocabulary: &vocabulary };
        let expression = Expression::compile(source, &vocabulary.schema(None), REQUEST);
        let expression =
            expression.unwrap_or_else(|mistakes| panic!("{source}: {}", mistakes[0].render(source)));
        let mut out = Vec::new();
        expression.value(&seen).write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn secret_parameters_are_masked_in_recordings() {
        let secrets = Secrets { args: vec!["pass_key".to_owned()], ..Secrets::default() };
        for (query, want) in [
            ("a=1&b=2", "a=1&b=2"),
            ("keyword=x&author=y&design=z&monkey=1", "keyword=x&author=y&design=z&monkey=1"),
            ("a=1&access_token=x&page=2", "a=1&access_token=***&page=2"),
            ("X-Amz-Credential=a/b&X-Amz-Signature=c", "X-Amz-Credential=***&X-Amz-Signature=***"),
            ("api%5Fkey=x&key&sid=1=2&auth[user]=u", "api%5Fkey=***&key&sid=***&auth[user]=***"),
            ("PASS_KEY=x&token=", "PASS_KEY=***&token=***"),
        ] {
            assert_eq!(String::from_utf8_lossy(&secrets.masked_query(query.as_bytes())), want, "{query}");
        }
        assert_eq!(&*secrets.masked_url(b"http://a/token=1?token=2"), b"http://a/token=1?token=***");
        assert_eq!(&*secrets.masked_url(b"http://a/token=1"), b"http://a/token=1");
    }

    #[test]
    fn what_each_variable_is() {
        let fields = [("Cookie", "a=1; b=\"2\"; a=3"), ("X-A", "1"), ("x-a", "2"), ("cookie", "c = 4 ")];
        for (source, want) in [
            ("request.method", "GET"),
            ("request.scheme", "http"),
            ("request.host", "api.example.com"),
            ("request.path", "/p/q"),
            ("request.query", "v=1&w=a+b%21&v=2&x&=7&%76=3&v=4"),
            ("request.url", "http://api.example.com:80/p/q?v=1&w=a+b%21&v=2&x&=7&%76=3&v=4"),
            ("request.headers[\"X-a\"]", "1, 2"),
            ("request.headers[\"x-a\"].all()", "[\"1\",\"2\"]"),
            ("request.headers.none", ""),
            ("request.cookies.a", "1"),
            ("request.cookies.b", "\"2\""),
            ("request.cookies.c", "4"),
            ("has(request.cookies.d)", "false"),
            ("request.args.w", "a b!"),
            ("request.args.v", "1, 2, 3, 4"),
            // The bound is three.
            ("request.args.v.all()", "[\"1\",\"2\",\"3, 4\"]"),
            ("has(request.args.x)", "true"),
            ("has(request.args.y)", "false"),
            ("has(request.args[\"\"])", "false"),
            ("request.size ?? -1", "-1"),
            ("client.tls", "false"),
            ("client.sni", ""),
            ("client.cert.subject", ""),
            ("client.cert.san", "[]"),
            ("client.ip in [\"0.0.0.0/0\"]", "false"),
            ("now", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(value(source, "/p/q?v=1&w=a+b%21&v=2&x&=7&%76=3&v=4", &fields), want, "{source}");
        }
        assert_eq!(value("has(request.query)", "/p", &[]), "false");
        assert_eq!(value("request.url", "/p", &[]), "http://api.example.com:80/p");
    }
}
