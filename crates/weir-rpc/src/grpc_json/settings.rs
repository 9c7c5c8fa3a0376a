//! The settings of `grpc_json`, and how they become a filter.

use super::{GrpcJson, Page};
use crate::descriptors::{Described, Enums, Int64, LimitSettings, Names, Offer, Unknown};
use crate::prelude::*;
use weir_h1::FieldName;
use weir_transcode::{Choice, ErrorStyle, JsonOptions};

/// Lets clients call a gRPC service as REST, by the rules of `google.api.http` in its protos.
///
/// A request that matches the method and path of a rule becomes a gRPC call. Its message's fields come from the path,
/// the query and the JSON of the body. The response becomes JSON; a gRPC error becomes an HTTP status with JSON that
/// describes it. A stream of messages becomes lines of JSON, or server-sent events if Accept asks for them. gRPC
/// requests pass unchanged. The upstream must speak HTTP/2: `protocol: h2c`.
///
/// The description of the service comes from `.proto` files (`google/api` and `google/rpc` are built in), from a
/// descriptor set, or from the service itself (`reflection`). A rule that does not fit its method is refused with the
/// file and line of the proto; the others are served. `weir explain GET /v1/..` shows which method a path calls.
/// [grpc.md](../guide/grpc.md) has more.
///
/// ```yaml
/// - grpc_json: { reflection: true, upstream: next, openapi: { path: /openapi.json, page: /docs } }
/// ```
///
/// With files: `grpc_json: { proto: [ protos/greeter.proto ] }`, or
/// `grpc_json: { descriptors: api.pb, services: [ shop.v1.Orders ] }`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GrpcJsonSettings {
    /// `.proto` files whose services are offered.
    proto: Vec<FilePath>,
    /// Folders in which imports are looked up. Default: the folder of each file.
    include: Vec<FilePath>,
    /// A descriptor set with all imports (`protoc --include_imports --descriptor_set_out=FILE`), instead of `proto`.
    descriptors: Option<FilePath>,
    /// Asks the service for its descriptors by server reflection, v1 or v1alpha. Default `false`.
    reflection: bool,
    /// The upstream to ask. Default: the route's upstream.
    upstream: Option<String>,
    /// How often the service is asked again, while requests come in. The last descriptors stay in use until then, and
    /// longer if the service does not answer. Default `1m`.
    refresh: Option<Duration>,
    /// Services to offer. Default: all.
    services: Vec<String>,
    /// Also offers methods without a rule, as `POST /package.Service/Method`. Default `false`.
    unannotated: bool,
    /// Requests that match no rule: `refuse` them, or `pass` them to the upstream. Default `refuse`.
    unmatched: Unmatched,
    /// Format of error bodies: `google` (`google.rpc.Status`), `kratos`, `sponge` or `problem` (RFC 9457). Default
    /// `google`.
    errors: Errors,
    /// How JSON is written and read.
    json: Json,
    /// Which fields are copied between HTTP and gRPC.
    metadata: Metadata,
    /// Limits on messages.
    limits: LimitSettings,
    /// Serves an OpenAPI 3.1 description of the service.
    openapi: Option<OpenApi>,
}

/// What happens to requests that match no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unmatched {
    /// They pass to the upstream unchanged.
    Pass,
    /// 404, or 405 if the path is known.
    #[default]
    Refuse,
}

/// The format of error bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Errors {
    /// `{"code":5,"message":"..","details":[..]}`
    #[default]
    Google,
    /// `{"code":404,"reason":"..","message":"..","metadata":{..}}`; FAILED_PRECONDITION is 412.
    Kratos,
    /// `{"title":"..","status":404,"detail":"..","code":"NOT_FOUND"}`
    Problem,
    /// `{"code":5,"msg":"..","data":{}}` with status 200, except for 500 and 503.
    Sponge,
}

/// How JSON is written and read.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Json {
    /// Also writes fields that hold their default value. Default `false`.
    defaults: bool,
    /// Writes enums as `names` or `numbers`; both are accepted when reading. Default `names`.
    enums: Enums,
    /// Writes 64-bit integers as `text`, or as `numbers`, which JavaScript rounds beyond 2^53; both are accepted when
    /// reading. Default `text`.
    int64: Int64,
    /// Writes field names as `camel` (`pageSize`) or as in the `proto` (`page_size`); both are accepted when reading.
    /// Default `camel`.
    names: Names,
    /// Unknown fields and parameters: `refuse` the request, or `ignore` them. Default `refuse`.
    unknown: Unknown,
}

/// Which fields are copied.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Metadata {
    /// Request fields that the service gets. Default: all but those about the body and the accepted formats.
    request: Option<Vec<HeaderName>>,
    /// Trailers of the service that become response fields. Default: none; fields of the response head are always
    /// copied.
    response: Vec<HeaderName>,
}

/// Where the description is served.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OpenApi {
    /// Path of the description, such as `/openapi.json`. The route must match it.
    path: String,
    /// Path of a page that shows the description and lets users try it, such as `/docs`. Default: none.
    #[serde(default)]
    page: Option<String>,
    /// Title. Default: the names of the services.
    #[serde(default)]
    title: Option<String>,
}

impl IntoFilter for GrpcJsonSettings {
    type Filter = GrpcJson;

    fn into_filter(self, build: &mut Build<'_>) -> Option<GrpcJson> {
        let before = build.mistakes.len();
        let limits = self.limits.limits(build);
        let offer = Offer {
            proto: &self.proto,
            include: &self.include,
            descriptors: self.descriptors.as_ref(),
            reflection: self.reflection,
            upstream: self.upstream.as_deref(),
            refresh: self.refresh,
            choice: Choice {
                services: self.services.clone(),
                unannotated: self.unannotated,
                ..Choice::default()
            },
            options: self.options(),
            limits,
        };
        if !offer.check(build) {
            build.refuse(
                "",
                "nothing says what the service looks like; expected one of proto, descriptors, reflection",
                Some("write proto: [ FILE ]".into()),
            );
        }
        if build.mistakes.len() > before {
            return None;
        }
        let page = self.page(build);
        let described = self.openapi.as_ref().map(|openapi| Described { title: openapi.title.clone() });
        let source = offer.source(build, described)?;
        if build.mistakes.len() > before {
            return None;
        }
        let names = |all: &[HeaderName]| all.iter().map(|name| FieldName::clone(name)).collect::<Vec<_>>();
        Some(GrpcJson::new(
            source,
            super::Options {
                pass: self.unmatched == Unmatched::Pass,
                errors: match self.errors {
                    Errors::Google => ErrorStyle::Google,
                    Errors::Kratos => ErrorStyle::Kratos,
                    Errors::Problem => ErrorStyle::Problem,
                    Errors::Sponge => ErrorStyle::Sponge,
                },
                message: limits.message,
                request: self.metadata.request.as_deref().map(names),
                response: names(&self.metadata.response),
                page,
            },
        ))
    }
}

impl GrpcJsonSettings {
    fn options(&self) -> JsonOptions {
        JsonOptions {
            defaults: self.json.defaults,
            enum_numbers: self.json.enums == Enums::Numbers,
            int64_numbers: self.json.int64 == Int64::Numbers,
            proto_names: self.json.names == Names::Proto,
            ignore_unknown: self.json.unknown == Unknown::Ignore,
        }
    }

    fn page(&self, build: &mut Build<'_>) -> Option<Page> {
        let openapi = self.openapi.as_ref()?;
        let paths = [("openapi.path", Some(&openapi.path)), ("openapi.page", openapi.page.as_ref())];
        for (field, path) in paths.into_iter().filter_map(|(field, path)| Some((field, path?))) {
            if !path.starts_with('/') || path.contains(['?', '#', ' ', '"', '<', '\\', '$']) {
                build.refuse(field, "expected a path that begins with /", Some("write /openapi.json".into()));
            }
        }
        if openapi.page.as_ref() == Some(&openapi.path) {
            build.refuse("openapi.page", "is the path of the description itself", None);
        }
        Some(Page { path: openapi.path.clone(), page: openapi.page.clone() })
    }
}
