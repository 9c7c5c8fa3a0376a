//! The settings of `connect`, and how they become a filter.

use super::Connect;
use crate::descriptors::{Enums, Int64, LimitSettings, Names, Offer, Unknown};
use crate::prelude::*;
use weir_transcode::{Choice, JsonOptions};

/// Lets clients of the Connect protocol call a gRPC service.
///
/// The filter serves unary calls and streams, in Protocol Buffers and JSON, over HTTP/1.1 and HTTP/2. It translates
/// each Connect call to gRPC and back: deadline, metadata, compression and error details. gRPC, gRPC-Web and all
/// other requests pass unchanged. The upstream must speak HTTP/2: `protocol: h2c`.
///
/// Without descriptors, messages pass unchanged and clients must send Protocol Buffers. With descriptors (`proto`,
/// `descriptors` or `reflection`), clients may send JSON. They may also call methods with
/// `option idempotency_level = NO_SIDE_EFFECTS` by GET, and the filter `cache` can answer such calls.
/// [grpc.md](../guide/grpc.md#connect) has more.
///
/// ```yaml
/// - connect: { reflection: true, upstream: next }
/// ```
///
/// With files: `connect: { proto: [ protos/greeter.proto ] }`; Protocol Buffers only: `connect: {}`. For pages of
/// other origins, put `cors` before it with
/// `headers: [ content-type, connect-protocol-version, connect-timeout-ms ]`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConnectSettings {
    /// `.proto` files whose services may be called.
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
    /// Services that may be called. Default: all described services.
    services: Vec<String>,
    /// How JSON is written and read.
    json: ConnectJson,
    /// Limits on messages.
    limits: LimitSettings,
}

/// How JSON is written and read.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ConnectJson {
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
    /// Unknown fields in a message: `ignore` them, as Connect's own servers do, or `refuse` the call. Default
    /// `ignore`.
    unknown: Unknown,
}

impl Default for ConnectJson {
    fn default() -> Self {
        Self {
            defaults: false,
            enums: Enums::default(),
            int64: Int64::default(),
            names: Names::default(),
            unknown: Unknown::Ignore,
        }
    }
}

impl IntoFilter for ConnectSettings {
    type Filter = Connect;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Connect> {
        let before = build.mistakes.len();
        let limits = self.limits.limits(build);
        let ConnectJson { defaults, enums, int64, names, unknown } = self.json;
        let options = JsonOptions {
            defaults,
            enum_numbers: enums == Enums::Numbers,
            int64_numbers: int64 == Int64::Numbers,
            proto_names: names == Names::Proto,
            ignore_unknown: unknown == Unknown::Ignore,
        };
        let choice = Choice { services: self.services.clone(), without_rules: true, ..Choice::default() };
        let offer = Offer {
            proto: &self.proto,
            include: &self.include,
            descriptors: self.descriptors.as_ref(),
            reflection: self.reflection,
            upstream: self.upstream.as_deref(),
            refresh: self.refresh,
            choice,
            options,
            limits,
        };
        let is_described = offer.check(build);
        if !is_described && !self.services.is_empty() {
            let hint = "write proto, descriptors or reflection beside it".to_owned();
            build.refuse("services", "says nothing without descriptors", Some(hint.into()));
        }
        if build.mistakes.len() > before {
            return None;
        }
        let source = if is_described { Some(offer.source(build, None)?) } else { None };
        (build.mistakes.len() == before).then(|| Connect::new(source, limits.message))
    }
}
