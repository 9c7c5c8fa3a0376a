//! `consumer_sources`: consumers kept outside of the config.

use super::process::Secret;
use super::values::FilePath;
use crate::units::Duration;
use crate::url::Url;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where further consumers are kept, so that they change without a reload. They are written as in a config, below
/// `consumers`, in YAML or JSON of at most 64 MiB and without variables. A change with a mistake is ignored. Exactly
/// one of `file` and `http`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerSource {
    /// A file, checked twice a second unless `watch` is false. Replace it by a rename, so that it is never half
    /// written.
    pub file: Option<FilePath>,
    /// A web server that has the consumers.
    pub http: Option<HttpConsumers>,
}

/// Consumers at a URL, fetched with GET and asked for again with `If-None-Match`. Redirects are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConsumers {
    /// Its URL. Required.
    pub url: Option<Url>,
    /// A file, private to this gateway and this source, for the last good answer. The gateway uses it when it starts
    /// while the server is unavailable, if it comes from this URL and `stale` is not over. Its folder must exist.
    /// Default none: until the first answer, credentials that the config does not have get 503.
    pub cache: Option<FilePath>,
    /// How often to ask: the longest time that a removed consumer still passes. Default 10s.
    pub every: Duration,
    /// Longest time for one answer. Default 10s.
    pub timeout: Duration,
    /// How long the last good answer is used after the next one was due, so `every` and `stale` after the server
    /// confirmed it last; then its consumers get 503. Restarts count, too. Default none: without limit.
    pub stale: Option<Duration>,
    /// Sent as `Authorization: Bearer TOKEN`. Default none.
    pub token: Option<Secret>,
    /// PEM file of authorities that verify the server's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
}

impl Default for HttpConsumers {
    fn default() -> Self {
        Self {
            url: None,
            cache: None,
            every: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            stale: None,
            token: None,
            ca: None,
        }
    }
}
