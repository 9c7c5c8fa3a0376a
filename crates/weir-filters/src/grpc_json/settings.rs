//! The settings of `grpc_json`, and how they become a filter.

use super::source::{Described, Loaded, Reflected, Source};
use super::{GrpcJson, Page};
use crate::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use weir_engine::config::diagnostic::nearest_name;
use weir_h1::FieldName;
use weir_transcode::{Api, Choice, DEPTH_MOST, ErrorStyle, JsonOptions, Limits, RuleError, sources};

/// Lets clients call a gRPC service as REST, by the rules of `google.api.http` in its protos.
///
/// A request whose method and path a rule names becomes a call of gRPC: fields of the message come from the path, the query and the JSON of
/// the body. The answer becomes JSON, and a status of gRPC becomes a status of HTTP with JSON that tells it. A stream of messages is answered as
/// lines of JSON, or as server-sent events where Accept asks for them. Requests that are gRPC already pass as they are. The upstream must speak HTTP/2:
/// `protocol: h2c`.
///
/// What the service looks like is read from `.proto` files (`google/api` and `google/rpc` are built in), from a descriptor set, or asked of the
/// service itself (`reflection`). A rule that does not fit its method, or contradicts another, is refused with the file and line of the proto.
/// `weir explain GET /v1/..` tells which method a path means. [grpc.md](grpc.md) has more.
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

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident: $default:ident $other:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum $name {
            #[default]
            $default,
            $other,
        }
    )*};
}

choices! {
    /// How enums are written.
    Enums: Names Numbers;
    /// How integers of 64 bits are written.
    Int64: Text Numbers;
    /// How fields are named.
    Names: Camel Proto;
    /// What becomes of fields that are not known.
    Unknown: Refuse Ignore;
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

/// How much is accepted.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LimitSettings {
    /// Longest message, as JSON and as Protocol Buffers, after decompression. Default `4MiB`.
    message: Option<ByteSize>,
    /// Messages, lists and objects within one another, 1 to 100. Default 100.
    depth: Option<u16>,
    /// `Any` within `Any`. Default 8.
    any: Option<u16>,
    /// Values in one message. Default 200000.
    values: Option<u32>,
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

/// Longest `.proto` file.
const PROTO_BYTES: usize = 4 * 1024 * 1024;

/// Longest message that may be allowed.
const MESSAGE_MOST: u64 = 64 * 1024 * 1024;

impl IntoFilter for GrpcJsonSettings {
    type Filter = GrpcJson;

    fn into_filter(self, build: &mut Build<'_>) -> Option<GrpcJson> {
        let before = build.mistakes.len();
        self.check(build);
        let limits = self.limits(build);
        if build.mistakes.len() > before {
            return None;
        }
        let choice = Choice { services: self.services.clone(), unannotated: self.unannotated };
        let options = self.options();
        let page = self.page(build);
        let described = self.openapi.as_ref().map(|openapi| Described { title: openapi.title.clone() });
        let source = if self.reflection {
            let upstream = self.asked(build)?;
            let refresh = self.refresh.map_or(std::time::Duration::from_secs(60), Duration::get);
            let make = || Reflected::new(upstream, refresh, choice, options, limits, described);
            Source::Reflected(build.keep("reflection", make))
        } else {
            let api = self.read(build, &choice, options, limits)?;
            Source::Fixed(Arc::new(Loaded::new(api, described.as_ref())))
        };
        if build.mistakes.len() > before {
            return None;
        }
        let names = |all: &[HeaderName]| all.iter().map(|name| FieldName::clone(name)).collect::<Vec<_>>();
        Some(GrpcJson::new(
            source,
            super::Manner {
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
    fn check(&self, build: &mut Build<'_>) {
        let sources = [!self.proto.is_empty(), self.descriptors.is_some(), self.reflection];
        match sources.iter().filter(|given| **given).count() {
            1 => {}
            0 => build.refuse(
                "",
                "nothing says what the service looks like; expected one of proto, descriptors, reflection",
                Some("write proto: [ FILE ]".to_owned()),
            ),
            _ => build.refuse(
                "",
                "proto, descriptors and reflection exclude one another",
                Some("keep one".to_owned()),
            ),
        }
        for (field, given) in [("upstream", self.upstream.is_some()), ("refresh", self.refresh.is_some())] {
            if given && !self.reflection {
                build.refuse(field, "says nothing without reflection", Some("leave it out".to_owned()));
            }
        }
        if !self.include.is_empty() && self.proto.is_empty() {
            build.refuse("include", "says nothing without proto", Some("leave it out".to_owned()));
        }
        if self.refresh.is_some_and(|refresh| refresh.get() < std::time::Duration::from_secs(1)) {
            build.refuse("refresh", "is shorter than 1s", Some("write refresh: 1m".to_owned()));
        }
    }

    fn limits(&self, build: &mut Build<'_>) -> Limits {
        let usual = Limits::default();
        if let Some(message) = self.limits.message
            && !(1..=MESSAGE_MOST).contains(&message.get())
        {
            build.refuse("limits.message", "expected 1B to 64MiB", None);
        }
        if let Some(depth) = self.limits.depth
            && !(1..=DEPTH_MOST).contains(&usize::from(depth))
        {
            build.refuse("limits.depth", format!("expected 1 to {DEPTH_MOST}"), None);
        }
        Limits {
            message: self.limits.message.map_or(usual.message, ByteSize::as_usize),
            depth: self.limits.depth.map_or(usual.depth, usize::from),
            any: self.limits.any.map_or(usual.any, usize::from),
            values: self.limits.values.map_or(usual.values, |values| values as usize),
        }
    }

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

    /// The upstream that tells of itself.
    fn asked(&self, build: &mut Build<'_>) -> Option<String> {
        if let Some(name) = &self.upstream {
            if build.upstreams.contains(name) {
                return Some(name.clone());
            }
            let near = nearest_name(name, build.upstreams.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            build.refuse("upstream", format!("there is no upstream `{name}`"), hint);
            return None;
        }
        let targets = build.targets;
        match targets {
            [one] => Some(one.clone()),
            [] => {
                let hint = "write upstream: NAME".to_owned();
                build.refuse("reflection", "no route says which upstream to ask here", Some(hint));
                None
            }
            [first, ..] => {
                let hint = format!("write upstream: {first}");
                build.refuse(
                    "reflection",
                    "the route leads to several upstreams; one of them is asked",
                    Some(hint),
                );
                None
            }
        }
    }

    fn read(
        &self,
        build: &mut Build<'_>,
        choice: &Choice,
        options: JsonOptions,
        limits: Limits,
    ) -> Option<Api> {
        let (field, pool) = match &self.descriptors {
            Some(file) => {
                let read = build.read_file(file, sources::SET_BYTES);
                ("descriptors", read.and_then(|bytes| sources::from_set(&bytes)))
            }
            None => ("proto", self.compile(build)),
        };
        let pool = pool.map_err(|wrong| build.refuse(field, wrong, None)).ok()?;
        match Api::new(&pool, choice, options, limits) {
            Ok(api) if api.bindings() == 0 => {
                let message =
                    "none of its methods has a rule of google.api.http, so that nothing can be called";
                build.refuse(field, message, Some("write unannotated: true".to_owned()));
                None
            }
            Ok(api) => Some(api),
            Err(wrong) => {
                for RuleError { place, message } in wrong {
                    let field = if place.is_empty() { "services" } else { field };
                    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
                    build.refuse(field, format!("{place}{message}"), None);
                }
                None
            }
        }
    }

    fn compile(&self, build: &mut Build<'_>) -> Result<weir_transcode::Pool, String> {
        for file in &self.proto {
            build.read_file(file, PROTO_BYTES)?; // it is watched from now on
        }
        let paths = |all: &[FilePath]| all.iter().map(|path| path.0.clone()).collect::<Vec<PathBuf>>();
        let (files, mut folders) = (paths(&self.proto), paths(&self.include));
        let pool = sources::from_files(&files, &folders)?;
        folders.extend(files.iter().filter_map(|file| Some(file.parent()?.to_owned())));
        for name in pool.files().map(|file| file.name().to_owned()) {
            // What is imported is watched too; what is built in stands in no folder.
            if let Some(path) = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file()) {
                let _ = build.read_file(&FilePath(path), PROTO_BYTES); // it was read a moment ago
            }
        }
        Ok(pool)
    }
}
