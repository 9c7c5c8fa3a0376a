//! HTTPRoute, GRPCRoute, TLSRoute and TCPRoute.

use serde::Deserialize;

/// The Gateway, ListenerSet or listener that a route attaches to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    /// The group; the Gateway API's by default.
    pub group: Option<String>,
    /// The kind; `Gateway` by default.
    pub kind: Option<String>,
    /// The namespace; the route's by default.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The listener; any by default.
    pub section_name: Option<String>,
    /// The port; any by default.
    pub port: Option<u16>,
}

/// Routes of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    /// Where it attaches.
    pub parent_refs: Vec<ParentRef>,
    /// Its hosts; none for the listener's.
    pub hostnames: Vec<String>,
    /// Its rules.
    pub rules: Vec<HttpRule>,
}

/// A rule of an [`HttpRoute`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRule {
    /// What it matches, one of these; none for everything.
    pub matches: Vec<HttpMatch>,
    /// Its filters.
    pub filters: Vec<Filter>,
    /// Where its requests go.
    pub backend_refs: Vec<BackendRef>,
    /// Its timeouts.
    pub timeouts: Option<Timeouts>,
    /// Its retries.
    pub retry: Option<Retry>,
    /// Session persistence, which is experimental and not supported.
    pub session_persistence: Option<serde_json::Value>,
}

/// What a rule matches: all of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatch {
    /// The path; `/` as a prefix by default.
    pub path: Option<PathMatch>,
    /// Header fields.
    pub headers: Vec<ValueMatch>,
    /// Query parameters.
    pub query_params: Vec<ValueMatch>,
    /// The method.
    pub method: Option<String>,
}

/// A condition on the path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathMatch {
    /// `Exact`, `PathPrefix` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The path.
    pub value: Option<String>,
}

/// A condition on a header field or a query parameter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValueMatch {
    /// `Exact` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Where requests go, and their share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// The group; the core by default.
    pub group: Option<String>,
    /// The kind; `Service` by default.
    pub kind: Option<String>,
    /// The name.
    pub name: String,
    /// The namespace; the route's by default.
    pub namespace: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// The share; 1 by default.
    pub weight: Option<u32>,
    /// Filters for this share alone.
    pub filters: Vec<Filter>,
}

/// A filter. `kind` says which of the others it has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `RequestHeaderModifier`.
    pub request_header_modifier: Option<HeaderModifier>,
    /// `ResponseHeaderModifier`.
    pub response_header_modifier: Option<HeaderModifier>,
    /// `RequestMirror`.
    pub request_mirror: Option<Mirror>,
    /// `RequestRedirect`.
    pub request_redirect: Option<Redirect>,
    /// `URLRewrite`.
    pub url_rewrite: Option<Rewrite>,
    /// `CORS`.
    pub cors: Option<Cors>,
    /// `ExtensionRef`.
    pub extension_ref: Option<super::CertificateRef>,
}

/// Changes to header fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderModifier {
    /// Replaces fields.
    pub set: Vec<Header>,
    /// Adds fields.
    pub add: Vec<Header>,
    /// Removes fields.
    pub remove: Vec<String>,
}

/// A header field.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Copies of requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mirror {
    /// Where they go.
    pub backend_ref: BackendRef,
    /// Their share in percent.
    pub percent: Option<u32>,
    /// Their share.
    pub fraction: Option<Fraction>,
}

/// A share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fraction {
    /// Above the line.
    pub numerator: u32,
    /// Below it; 100 by default.
    pub denominator: Option<u32>,
}

/// A redirect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Redirect {
    /// The scheme; the request's by default.
    pub scheme: Option<String>,
    /// The host; the request's by default.
    pub hostname: Option<String>,
    /// The path; the request's by default.
    pub path: Option<PathModifier>,
    /// The port; the scheme's or the listener's by default.
    pub port: Option<u16>,
    /// The status; 302 by default.
    pub status_code: Option<u16>,
}

/// Changes to the request's URL.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rewrite {
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathModifier>,
}

/// A change of the path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The new path.
    pub replace_full_path: Option<String>,
    /// What takes the place of the prefix that matched.
    pub replace_prefix_match: Option<String>,
}

/// Which pages of other origins may call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cors {
    /// The origins.
    pub allow_origins: Vec<String>,
    /// Whether with credentials.
    pub allow_credentials: Option<bool>,
    /// The methods.
    pub allow_methods: Vec<String>,
    /// The request's fields.
    pub allow_headers: Vec<String>,
    /// The response's fields.
    pub expose_headers: Vec<String>,
    /// Seconds that a preflight may be cached; 5 by default.
    pub max_age: Option<u32>,
}

/// Timeouts of a rule, as durations of the Gateway API (GEP-2257).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// The whole exchange.
    pub request: Option<String>,
    /// One attempt.
    pub backend_request: Option<String>,
}

/// Retries of a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// The statuses.
    pub codes: Vec<u16>,
    /// How often it is tried again. The API's schema allows negative numbers.
    pub attempts: Option<i64>,
    /// The shortest pause.
    pub backoff: Option<String>,
}

/// Routes of gRPC.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRoute {
    /// Where it attaches.
    pub parent_refs: Vec<ParentRef>,
    /// Its hosts; none for the listener's.
    pub hostnames: Vec<String>,
    /// Its rules.
    pub rules: Vec<GrpcRule>,
}

/// A rule of a [`GrpcRoute`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRule {
    /// What it matches, one of these; none for everything.
    pub matches: Vec<GrpcMatch>,
    /// Its filters.
    pub filters: Vec<Filter>,
    /// Where its calls go.
    pub backend_refs: Vec<BackendRef>,
    /// Session persistence, which is experimental and not supported.
    pub session_persistence: Option<serde_json::Value>,
}

/// What a rule of gRPC matches: all of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcMatch {
    /// Service and method.
    pub method: Option<GrpcMethod>,
    /// Metadata.
    pub headers: Vec<ValueMatch>,
}

/// A service, a method, or both.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcMethod {
    /// `Exact` (the default) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The service.
    pub service: Option<String>,
    /// The method.
    pub method: Option<String>,
}

/// A TLSRoute or a TCPRoute: connections that are passed on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BytesRoute {
    /// Where it attaches.
    pub parent_refs: Vec<ParentRef>,
    /// The names asked for in TLS; a TCPRoute has none.
    pub hostnames: Vec<String>,
    /// Its rules, of which the API allows one.
    pub rules: Vec<BytesRule>,
}

/// A rule of a [`BytesRoute`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BytesRule {
    /// Where its connections go.
    pub backend_refs: Vec<BackendRef>,
}
