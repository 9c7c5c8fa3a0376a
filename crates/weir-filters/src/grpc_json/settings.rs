//! The settings of `grpc_json`, and how they become a filter.

use super::{GrpcJson, Page};
use crate::prelude::*;
use crate::shared::grpc::{Described, Enums, Int64, LimitSettings, Names, Offer, Unknown};
use weir_h1::FieldName;
use weir_transcode::{Choice, ErrorStyle, JsonOptions};

/// Lets clients call a gRPC service as REST, by the rules of `google.api.http` in its protos.
///
/// A request whose method and path a rule names becomes a call of gRPC: fields of the message come from the path, the query and the JSON of
/// the body. The answer becomes JSON, and a status of gRPC becomes a status of HTTP with JSON that tells it. A stream of messages is answered as
/// lines of JSON, or as server-sent events where Accept asks for them. Requests that are gRPC already pass as they are. The upstream must speak HTTP/2:
/// `protocol: h2c`.
///
/// What the service looks like is read from `.proto` files (`google/api` and `google/rpc` are built in), from a descriptor set, or asked of the
/// service itself (`reflection`). A rule that does not fit its method is refused with the file and line of the proto; the others are served.
/// `weir explain GET /v1/..` tells which method a path means. [grpc.md](../guide/grpc.md) has more.
///
/// ```yaml
/// - grpc_json: { reflection: true, upstream: next, openapi: { path: /openapi.json, page: /docs } }
/// ```
///
/// With files: `grpc_json: { proto: [ protos/greeter.proto ] }`, or `grpc_json: { descriptors: api.pb, services: [ shop.v1.Orders ] }`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GrpcJsonSettings {
    /// `.proto` files whose services are offered.
    proto: Vec<FilePath>,
    /// Folders in which imports are looked for. Without them, each file is looked for where it stands.
    include: Vec<FilePath>,
    /// A descriptor set with all imports (`protoc --include_imports --descriptor_set_out=FILE`), in place of `proto`.
    descriptors: Option<FilePath>,
    /// Asks the service for its descriptors, by server reflection, v1 or v1alpha. Default `false`.
    reflection: bool,
    /// The upstream that is asked. Default: the one that the route leads to.
    upstream: Option<String>,
    /// How often the service is asked again, while there are requests. What was known is used until then, and longer when it does not answer.
    /// Default `1m`.
    refresh: Option<Duration>,
    /// Services that are offered. Default: all.
    services: Vec<String>,
    /// Methods without a rule are called by `POST /package.Service/Method`. Default `false`.
    unannotated: bool,
    /// What happens to requests that no rule names: `refuse` them, or let them `pass` to the upstream. Default `refuse`.
    unmatched: Unmatched,
    /// In whose words errors are told: `google` (`google.rpc.Status`), `kratos`, `sponge` or `problem` (RFC 9457). Default `google`.
    errors: Errors,
    /// How JSON is written and read.
    json: Json,
    /// Which fields pass between HTTP and gRPC.
    metadata: Metadata,
    /// How much is accepted.
    limits: LimitSettings,
    /// Where the service is described by OpenAPI 3.1.
    openapi: Option<OpenApi>,
}

/// Requests that no rule names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unmatched {
    /// They go to the upstream as they are.
    Pass,
    /// 404, or 405 where the path is known.
    #[default]
    Refuse,
}

/// In whose words errors are told.
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
    /// `{"code":5,"msg":"..","data":{}}` with status 200, but for 500 and 503.
    Sponge,
}

/// How JSON is written and read.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Json {
    /// Fields that hold their default are written too. Default `false`.
    defaults: bool,
    /// `names` or `numbers`. Default `names`; either is read.
    enums: Enums,
    /// Integers of 64 bits as `text`, or as `numbers`, which JavaScript rounds beyond 2^53. Default `text`; either is read.
    int64: Int64,
    /// Names of fields as `camel` (`pageSize`) or as in the `proto` (`page_size`). Default `camel`; either is read.
    names: Names,
    /// Fields and parameters that the message does not have: `refuse` the request, or `ignore` them. Default `refuse`.
    unknown: Unknown,
}

/// Which fields pass.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Metadata {
    /// Fields of the request that the service gets. Default: all but those about the body and what the client accepts.
    request: Option<Vec<HeaderName>>,
    /// Trailers of the service that the client gets as fields of the response. Default: none; fields of its head pass anyway.
    response: Vec<HeaderName>,
}

/// Where the description is.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OpenApi {
    /// Path of the description, such as `/openapi.json`. The route must match it.
    path: String,
    /// Path of a page that shows it and lets one try it, such as `/docs`. Default: none.
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
                Some("write proto: [ FILE ]".to_owned()),
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
                build.refuse(
                    field,
                    "expected a path that begins with /",
                    Some("write /openapi.json".to_owned()),
                );
            }
        }
        if openapi.page.as_ref() == Some(&openapi.path) {
            build.refuse("openapi.page", "is the path of the description itself", None);
        }
        Some(Page { path: openapi.path.clone(), page: openapi.page.clone() })
    }
}
