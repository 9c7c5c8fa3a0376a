//! `routes`, `consumers` and `plans`: who may call what, and where it goes.

use std::borrow::Cow;
use std::fmt;

use compact_str::CompactString;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::exclusion::{Exclusions, Paths};
use super::fastcgi::FastCgi;
use super::files::{Files, FilesByHeader};
use super::listener::EscapedSlashes;
use super::sending::ClientGone;
use super::split::{Share, Split};
use super::values::{Expression, FilterNode, Network, Pairs};
use crate::de;
use crate::delay::Delay;
use crate::node::Node;
use crate::units::{Duration, Percent};

/// Which requests match, and what answers them: exactly one of `upstream`, `respond` and `files`. A route whose
/// filters answer every request, such as one with `redirect: { to: … }`, needs none.
//
// Lists without room for more, and short texts without an allocation each: there may be 200,000 routes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Route {
    /// Which requests match. All conditions must hold. Default: every request.
    #[serde(rename = "match")]
    pub matches: Match,
    /// Filters of this route. They run in this order after those of all routes; their response hooks run in reverse.
    pub filters: Box<[FilterNode]>,
    /// The upstream that answers: its name, or several names with their shares, such as
    /// `{ orders: 95, orders_next: 5 }`. In place of a share, an arm may have more: `{ weight: 5, upstream: orders,
    /// filters: [ … ] }`.
    pub upstream: Option<Split>,
    /// An answer without any upstream.
    pub respond: Option<Box<Respond>>,
    /// Files of a folder.
    pub files: Option<Box<Files>>,
    /// Which script answers, where the upstream speaks FastCGI.
    pub fastcgi: Option<Box<FastCgi>>,
    /// Folders whose files the upstream may have sent, by the fields in which it names them and by the beginning of its
    /// paths: `{ x-accel-redirect: { /downloads/: ./private } }`. See docs/guide/content.md.
    pub files_by_header: Option<Box<FilesByHeader>>,
    /// Decides between routes that match the same request equally well, and between the best regular expression and the
    /// best prefix that match a path: the higher wins. Default 0; it counts nowhere else.
    pub priority: i32,
    /// Timeouts for this route, instead of its upstream's.
    pub timeouts: RouteTimeouts,
    /// What happens to a request whose client leaves before the answer: `cancel` or `finish`, as for an upstream.
    /// Default: the upstream's setting.
    pub client_gone: Option<ClientGone>,
    /// What happens to a path with `%2F` in it that matches this route unchanged: `refuse`, `keep` or `decode`, as
    /// for a listener. Default: the listener's setting.
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether a request may run that arrives over HTTP/3 before the TLS handshake is complete (0-RTT). An attacker can
    /// send a recorded one again, so say `true` only where repeating a GET changes and reveals nothing. It needs a
    /// listener with `http3.early_data`, and counts for GET, HEAD and OPTIONS without a body; the upstream gets
    /// `early-data: 1` and may refuse with 425. Default false: the request waits for the handshake.
    pub early_data: bool,
}

/// Which requests a route matches.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Host names, exact (`api.example.com`) or with a `*` for one or more labels at one end: `*.example.com` matches
    /// `a.example.com` and `a.b.example.com`, not `example.com`; `www.*` matches `www.example.com` and `www.example.org`.
    /// `~` begins a regular expression for the whole host, such as `"~(?<sub>.+)\\.example\\.com"`, whose named groups
    /// are captures. Compared without case, port and trailing dot; IPv6 addresses stand in brackets and are compared as
    /// addresses. Default: any host.
    #[schemars(with = "Vec<String>")]
    pub hosts: Box<[CompactString]>,
    /// The path, or a list of paths of which one has to match. A path is literal (`/hello`), has names (`/users/{id}`,
    /// `/users/{id}.json`) or a tail (`/beta/*`, `/spot/{rest*}`), or is a raw prefix (`/beta*`) or a regular
    /// expression for the whole path (`~/v[0-9]+/.*`). Default `/*`. `/beta/*` matches `/beta`, `/beta/` and all below,
    /// never `/betax`; `/beta*` matches `/betax` too.
    pub path: Paths,
    /// `insensitive` compares the ASCII letters of `path` without case; captures and the path that filters and
    /// upstreams see keep theirs. Not for a regular expression. Default `sensitive`. Protect both spellings if an
    /// upstream ignores case: a guarded `/admin/*` does not cover `/ADMIN/x`.
    pub case: Case,
    /// Methods in capitals, such as `[GET, POST]`, compared exactly: `GET` does not include `HEAD`. Default: any
    /// method.
    pub methods: Box<[String]>,
    /// Header fields and the values they must have: a literal, `~` and a regular expression for the whole value, or
    /// `"*"` for any. Names ignore case, values do not. A literal or regular expression matches a field that appears
    /// exactly once, because peers disagree on which of two values counts; `"*"` matches one or more. Default: none.
    pub headers: Pairs,
    /// Query parameters and the values they must have: a literal, `~` and a regular expression for the whole value, or
    /// `"*"` for any. A literal or regular expression matches a parameter that appears exactly once. They are compared
    /// decoded; `%20` and `+` are a space. Default: none.
    pub query: Pairs,
    /// Cookies and the values they must have: a literal, `~` and a regular expression for the whole value, or `"*"` for
    /// any. Names and values are compared exactly, as sent. A cookie that is sent twice matches only `"*"`. Default:
    /// none.
    pub cookies: Pairs,
    /// Networks that the client's address must be in, such as `[10.0.0.0/8, "2001:db8::1"]`. It is the address after the
    /// PROXY protocol and `trusted_proxies`; IPv4 inside IPv6 counts as IPv4. Default: any client.
    pub clients: Box<[Network]>,
    /// What the route does not match, although the rest of `match` does: a request that meets all of the block, such as
    /// `{ path: /api/internal/*, methods: [GET] }`. In a list of blocks, none may match. Each block counts as one
    /// condition. Default: nothing.
    pub not: Exclusions,
    /// Names of the listeners that accepted the request. Default: any listener.
    pub listeners: Box<[String]>,
    /// An expression that must hold, such as `'request.cookies.beta == "1"'`: what it may name is in
    /// docs/reference/routing.md. It is evaluated last. Between routes with equally many other conditions, one with
    /// an expression wins. Default: none.
    pub when: Option<Expression>,
}

/// How the letters of a path are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// ASCII letters are equal in either case.
    Insensitive,
    /// Exactly.
    #[default]
    Sensitive,
}

impl Default for Match {
    fn default() -> Self {
        Self {
            hosts: Box::default(),
            path: Paths::one(CompactString::const_new("/*")),
            case: Case::Sensitive,
            methods: Box::default(),
            headers: Pairs::default(),
            query: Pairs::default(),
            cookies: Pairs::default(),
            clients: Box::default(),
            not: Exclusions::default(),
            listeners: Box::default(),
            when: None,
        }
    }
}

/// The gateway's own answer.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Respond {
    /// Status, 200 to 599. Default 200.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Body, with placeholders such as `{path}`, `{query}` and the captures of the path, escaped if `content-type` is
    /// HTML, XML or JSON. Braces around anything but a name stay as they are; `{{name}}` gives `{name}`. Default
    /// empty.
    pub body: String,
    /// Header fields, with placeholders. The gateway sets Content-Length. If a body has no `content-type`, it is
    /// `text/plain; charset=utf-8`.
    pub headers: Pairs,
    /// Delay of the answer: a time, or a random time within a range, such as `100ms..2s`. At most 10m. Default: none.
    pub delay: Option<Delay>,
    /// Other answers for shares of the requests; the rest get the answer above. Default none.
    pub mix: Vec<Mixed>,
}

/// An alternative answer for a share of the requests.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// Its share of the requests. All shares together are at most `100%`.
    pub share: Percent,
    /// Status, 200 to 599.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Body, as above. Default empty.
    #[serde(default)]
    pub body: String,
    /// Header fields, as above. Default none.
    #[serde(default)]
    pub headers: Pairs,
    /// Its delay. Default: that of the usual answer.
    #[serde(default)]
    pub delay: Option<Delay>,
}

impl Default for Respond {
    fn default() -> Self {
        Self { status: 200, body: String::new(), headers: Pairs::default(), delay: None, mix: Vec::new() }
    }
}

/// Timeouts of a route, instead of its upstream's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteTimeouts {
    /// From the end of the request to the head of the response. Default: the upstream's.
    pub response: Option<Duration>,
    /// The whole exchange. Default: the upstream's.
    pub exchange: Option<Duration>,
}

/// A caller: credentials under the name of the filter that reads them, a plan, and addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    /// Name of the plan whose filters apply to this consumer. Default none.
    pub plan: Option<String>,
    /// Groups that this consumer belongs to, for `acl`. Default none.
    pub groups: Vec<String>,
    /// Networks from which this consumer may call. Default: any.
    pub allow_ips: Vec<Network>,
    /// Everything else: credentials under the name of their filter.
    pub credentials: Vec<Credentials>,
}

/// The credentials of a consumer for one filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Credentials {
    /// Name of the filter, such as `key_auth`.
    pub filter: String,
    /// The node as written; for `key_auth` a list of keys, each literal or `sha256:` and 64 hex digits.
    pub node: Node,
    /// Its path, such as `consumers.shop.key_auth`.
    pub path: String,
}

/// What a consumer may do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// Filters that run directly after the filter that identified the consumer. A filter of the same name on the
    /// route replaces the plan's.
    pub filters: Vec<FilterNode>,
}

/// A status that a final response may have.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    de::whole_number(deserializer, "a status; expected 200 to 599", |number| (200..=599).contains(number))
}

// === impl Route ===

impl Route {
    /// The upstreams that may answer, with their shares.
    pub fn shares(&self) -> impl Iterator<Item = &Share> {
        let missing = self.files.as_ref().and_then(|files| files.missing.as_ref());
        self.upstream.iter().chain(missing).flat_map(|split| &split.0)
    }

    /// Its filters, and those of the arms of its split.
    pub fn all_filters(&self) -> impl Iterator<Item = &FilterNode> {
        self.filters.iter().chain(self.upstream.iter().flat_map(Split::filters))
    }
}

// === impl Consumer ===

impl Consumer {
    /// The consumer's credentials for this filter.
    pub fn credentials(&self, filter: &str) -> Option<&Credentials> {
        self.credentials.iter().find(|c| c.filter == filter)
    }

    /// The keys under `key_auth`, as written after substitution.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.credentials("key_auth").into_iter().flat_map(|c| c.node.elements()).filter_map(Node::as_text)
    }
}

impl<'de> Deserialize<'de> for Consumer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConsumerVisitor;

        impl<'de> Visitor<'de> for ConsumerVisitor {
            type Value = Consumer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a consumer; expected e.g. { key_auth: [ \"${SHOP_KEY}\" ], plan: gold }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Consumer, A::Error> {
                let mut consumer = Consumer::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "allow_ips" => consumer.allow_ips = map.next_value()?,
                        "groups" => consumer.groups = map.next_value()?,
                        "plan" => consumer.plan = Some(map.next_value()?),
                        _ => {
                            let de::Raw { node, path } = map.next_value()?;
                            consumer.credentials.push(Credentials { filter: key, node, path });
                        }
                    }
                }
                Ok(consumer)
            }
        }

        deserializer.deserialize_map(ConsumerVisitor)
    }
}

impl JsonSchema for Consumer {
    fn schema_name() -> Cow<'static, str> {
        "Consumer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let network = generator.subschema_for::<Network>();
        let texts = |description: &str| serde_json::json!({ "type": "array", "items": { "type": "string" }, "description": description });
        schemars::json_schema!({
            "description": "Someone who calls.",
            "type": "object",
            "properties": {
                "plan": {
                    "type": "string",
                    "description": "Name of the plan whose filters apply to this consumer. Default none.",
                },
                "basic_auth": texts("Users of this consumer for the filter basic_auth: `USER:HASH`, as `weir hash --user USER` makes it."),
                "mtls_auth": texts("What a client certificate of this consumer says, for the filter mtls_auth: `dns:`, `email:`, `uri:`, `ip:`, `subject:` or `sha256:`."),
                "groups": texts("Groups that this consumer belongs to, for the filter acl. Default none."),
                "allow_ips": {
                    "type": "array",
                    "items": network,
                    "description": "Networks from which this consumer may call. Default: any.",
                },
                "jwt": texts("Values of the claim that names this consumer in the filter jwt."),
                "key_auth": texts("Keys of this consumer: `${VAR}`, `sha256:` and 64 hex digits, or literal (`check` warns)."),
                "oidc": texts("Values of the claim that names this consumer in the filter oidc."),
                "signature_auth": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "key_id": { "type": "string", "description": "The name that signatures call it by." },
                            "algorithm": { "type": "string", "description": "Its algorithm, such as ed25519." },
                            "key": { "type": "string", "description": "The public key in PEM, or the secret for hmac-sha256." },
                        },
                        "required": ["key_id", "algorithm", "key"],
                        "additionalProperties": false,
                    },
                    "description": "Keys of this consumer for the filter signature_auth: `key_id`, `algorithm` and `key`.",
                },
            },
        })
    }
}
