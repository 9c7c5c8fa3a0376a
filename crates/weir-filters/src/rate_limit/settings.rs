//! The settings of `rate_limit`, as written and with all defaults filled in.

use super::calendar::Unit;
use super::gcra::{Rate, SECOND};
use crate::shared::by::{By, IPV6_PREFIX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::sync::Arc;
use weir_filter::config::de;
use weir_filter::config::units::Duration;
use weir_filter::filter::{Build, HeaderName};
use weir_filter::store::{Store, WINDOW};

/// Limits requests per period. Requests over the limit get 429 and `Retry-After`.
///
/// The limit is exact for the whole process, whatever the number of cores. It is a bucket of `burst` requests that
/// refills evenly (GCRA), so twice the limit never passes at the edge of a window. Refused requests are not counted.
///
/// Counters belong to the filter's place in the config, to `by` and to `per`. They survive a reload, an upgrade and
/// any other change of the settings: requests already used stay used when the limit changes. They are lost if the
/// process ends in any other way. After an upgrade, requests that the old process still answers count only there.
///
/// `per: day` and `per: month` make a quota: the number of requests from midnight to midnight, or from the first of a
/// month to the next, in UTC. A used-up quota comes back only then; the cause is `quota_exceeded`.
///
/// `limits` sets several limits: a request passes if all of them allow it, and otherwise counts in none.
///
/// In a plan each consumer has one limit for all its routes together; under `filters` all routes share one limit.
///
/// Addresses, header values and texts are counted in a table of fixed size: see `keys`. If more clients are active
/// than fit, the client that has used least is evicted first and starts again from zero.
///
/// ```yaml
/// - rate_limit: { requests: 100, per: 1s }
/// - rate_limit: { requests: 10000, per: 1h, burst: 500, by: address, name: hourly }
/// - rate_limit: { limits: [ { requests: 10, per: 1s }, { requests: 100000, per: month } ], by: "{consumer} {host}" }
/// - rate_limit: { requests: 1000, per: 1m, cost: "header:x-cost" }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    /// Requests that may pass in `per`. Required unless there are `limits`.
    pub(super) requests: Option<NonZeroU32>,
    /// The period: a time such as `1s`, `10s` or `1m`, or `day` or `month`.
    pub(super) per: Option<Per>,
    /// Requests that may pass at once after a pause. Default: the same as `requests`. 1 spaces them evenly. A quota
    /// has no burst.
    pub(super) burst: Option<NonZeroU32>,
    /// Several limits instead of one, each with `requests`, `per`, `burst` and `name`. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) limits: Vec<OneLimit>,
    /// What has its own limit: each `consumer`, client `address`, `route`, value of a header (`header:x-tenant`), or
    /// value of a text with placeholders (`{consumer} {path}`). In addition to the usual placeholders there are
    /// `{header:NAME}`, `{cookie:NAME}` and `{query:NAME}`. Default `consumer`. Without a consumer, or without the
    /// header, the client's address is used; in a text, missing values are empty. A value that clients choose freely
    /// limits nobody.
    #[serde(default = "consumer")]
    pub(super) by: By,
    /// How much a request uses of the limit: a number, or `header:NAME` to read the cost from the response. Until
    /// then, and if the response has no such number, the cost is 1. The field is removed from the client's response.
    /// Such a cost may exceed the limit: then no request passes until the excess has come back, at most ten times the
    /// burst. Default 1.
    #[serde(default)]
    pub(super) cost: Cost,
    /// IPv6 addresses that share this many leading bits are one client, from 1 to 128. Default 64, the smallest block
    /// that networks assign: a client has 2^64 addresses to choose from.
    #[serde(default = "ipv6_prefix")]
    pub(super) ipv6_prefix: u8,
    /// Number of clients that are counted at the same time without eviction, from 8 to 16777216. Default 65536.
    /// Memory: 32 bytes each, once in use.
    #[serde(default = "keys")]
    pub(super) keys: u32,
    /// Name of a store under `stores` in which all gateways with this filter count together: a Redis, or the fleet if
    /// the burst comes back within an hour. Default none: each gateway counts alone.
    pub(super) store: Option<String>,
    /// What happens while the store is unavailable. `local` counts in each gateway, against its part of the limit (by
    /// how many gateways were last seen); `open` lets all requests pass; `closed` refuses with 503
    /// `store_unavailable`. Default `local`.
    pub(super) without_store: Option<Without>,
    /// Whether the first request of a client waits for the store too. Default false: it passes and is counted
    /// afterwards.
    #[serde(default)]
    pub(super) strict: bool,
    /// Most requests that a gateway takes from the store in advance for one client. A larger lease needs fewer round
    /// trips, but the gateways may exceed the limit by more. Default a twentieth of the burst, and at least one
    /// request.
    pub(super) lease: Option<NonZeroU32>,
    /// Whether responses carry `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), which
    /// let clients slow down before they are refused. Default true.
    #[serde(default = "headers")]
    pub(super) headers: bool,
    /// Name of the limit in these fields. Default `default` on a route, `plan` in a plan, `global` under `filters`;
    /// give names if a route has several limits. Those of `limits` are numbered: `default-2`. At most 256 letters,
    /// digits, `-`, `_` and `.`.
    pub(super) name: Option<String>,
}

/// One limit among several.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneLimit {
    /// Requests that may pass in `per`.
    pub(super) requests: NonZeroU32,
    /// The period: a time such as `1s`, `10s` or `1m`, or `day` or `month`.
    pub(super) per: Per,
    /// Requests that may pass at once after a pause. Default: the same as `requests`.
    #[serde(default)]
    pub(super) burst: Option<NonZeroU32>,
    /// Name of the limit in response fields.
    #[serde(default)]
    pub(super) name: Option<String>,
}

/// A duration, or a unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    Span(Unit),
    Time(Duration),
}

/// How much a request uses of the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Fixed(NonZeroU32),
    Header(HeaderName),
}

/// The settings with all defaults filled in.
#[derive(Debug, Deserialize, Serialize)]
#[serde(from = "Written")]
pub(super) struct RateLimitSettings(pub(super) Written);

/// Most limits of one filter.
const LIMITS: usize = 8;

fn consumer() -> By {
    By::Consumer
}

const fn ipv6_prefix() -> u8 {
    IPV6_PREFIX
}

const fn keys() -> u32 {
    65536
}

const fn headers() -> bool {
    true
}

impl From<Written> for RateLimitSettings {
    fn from(mut written: Written) -> Self {
        if !matches!(written.per, Some(Per::Span(_))) && written.limits.is_empty() {
            written.burst = written.burst.or(written.requests);
        }
        for limit in &mut written.limits {
            if let Per::Time(_) = limit.per {
                limit.burst = limit.burst.or(Some(limit.requests));
            }
        }
        Self(written)
    }
}

impl JsonSchema for RateLimitSettings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RateLimitSettings".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

// === impl Written ===

/// What happens while the store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Without {
    Closed,
    #[default]
    Local,
    Open,
}

impl Without {
    pub(super) const fn effect(self) -> &'static str {
        match self {
            Self::Closed => "none passes",
            Self::Local => "each counts its part of it",
            Self::Open => "all pass",
        }
    }
}

/// A limit as read, with the path that its mistakes are reported under.
pub(super) struct Read {
    pub(super) rate: Rate,
    pub(super) requests: u32,
    pub(super) per: Per,
    pub(super) name: String,
}

impl Read {
    pub(super) fn described(&self) -> String {
        match self.per {
            Per::Time(per) => format!("{} in {per}", self.requests),
            Per::Span(unit) => format!("{} in a {}", self.requests, unit.name()),
        }
    }

    /// The period as text: `1m`, `month`.
    pub(super) fn period(&self) -> String {
        match self.per {
            Per::Time(per) => per.to_string(),
            Per::Span(unit) => unit.name().to_owned(),
        }
    }

    /// How much a request uses before the response is known.
    pub(super) fn cost(&self) -> u32 {
        u32::try_from(self.rate.amount / self.rate.interval).unwrap_or(u32::MAX)
    }

    fn burst(&self) -> u32 {
        u32::try_from(self.rate.window / self.rate.interval).unwrap_or(u32::MAX)
    }

    /// A new coordinator of the fleet does not know the counts of the previous one and starts with empty buckets. A
    /// slowly refilling limit would refuse requests for that long.
    fn must_come_back(&self, build: &mut Build<'_>) {
        // The interval between two requests is rounded up.
        let longest = WINDOW.as_secs().saturating_mul(SECOND).saturating_add(u64::from(self.burst()));
        let comes_back = match self.per {
            Per::Time(_) => self.rate.window <= longest,
            Per::Span(_) => false,
        };
        if !comes_back {
            // The limit is not quoted: its numbers may come from the environment.
            let message = "a store of the fleet keeps only what comes back within an hour";
            build.refuse("store", message, Some("name a store that is a Redis".into()));
        }
    }
}

impl Written {
    /// The store, and the largest lease, if there is a store.
    pub(super) fn shared(&self, read: &[Read], build: &mut Build<'_>) -> Option<(Arc<Store>, u32)> {
        let Some(name) = &self.store else {
            let given = [
                ("without_store", self.without_store.is_some()),
                ("strict", self.strict),
                ("lease", self.lease.is_some()),
            ];
            for (key, _) in given.iter().filter(|(_, given)| *given) {
                let hint = "name one: store: NAME, or leave it out";
                build.refuse(key, "it needs a store", Some(hint.into()));
            }
            return None;
        };
        let least = read.iter().map(Read::burst).min().unwrap_or(1);
        let cost = read.first().map_or(1, Read::cost);
        let most = self.lease.map_or_else(|| (least / 20).max(cost), NonZeroU32::get);
        if most > least || most < cost {
            let message = format!("a lease of {most} does not fit");
            build.refuse("lease", message, Some(format!("write a number from {cost} to {least}").into()));
        }
        let store = build.store_of_limits("store", name)?;
        if store.is_of_fleet() {
            read.iter().for_each(|limit| limit.must_come_back(build));
        }
        Some((store, most))
    }

    /// The limits, in whichever form they were written; mistakes go to `build`.
    pub(super) fn read(&self, build: &mut Build<'_>) -> Vec<Read> {
        let base = self.name.as_deref().unwrap_or_else(|| default_name(build.scope));
        let mut read = Vec::new();
        match (self.requests, self.per, self.limits.is_empty()) {
            (Some(requests), Some(per), true) => {
                let limit = OneLimit { requests, per, burst: self.burst, name: Some(base.to_owned()) };
                read.extend(limit.read("", base, self.cost(), build));
            }
            (None, None, false) => {
                for (at, limit) in self.limits.iter().enumerate() {
                    let numbered = if at == 0 { base.to_owned() } else { format!("{base}-{}", at + 1) };
                    read.extend(limit.read(&format!("limits[{at}]."), &numbered, self.cost(), build));
                }
                for (at, limit) in read.iter().enumerate() {
                    if read.iter().take(at).any(|other: &Read| other.name == limit.name) {
                        let message = format!("two limits are called `{}`", limit.name);
                        build.refuse(
                            &format!("limits[{at}].name"),
                            message,
                            Some("choose another name".into()),
                        );
                    }
                }
            }
            (None, _, true) => {
                build.refuse("requests", "it limits nothing", Some("write requests: 100".into()))
            }
            (_, None, true) => {
                build.refuse("per", "the time is missing", Some("write per: 1s, or per: day".into()));
            }
            (_, _, false) => {
                let hint = "leave `requests` and `per` out, or put them into the list";
                build.refuse("limits", "limits are set in two places", Some(hint.into()));
            }
        }
        if self.limits.len() > LIMITS {
            let message = format!("{} limits are more than {LIMITS}", self.limits.len());
            build.refuse("limits", message, Some("write a second filter".into()));
        }
        if !self.limits.is_empty() && self.burst.is_some() {
            let hint = "write it into the list, beside `requests`";
            build.refuse("burst", "it belongs to one limit", Some(hint.into()));
        }
        read
    }

    const fn cost(&self) -> u32 {
        match &self.cost {
            Cost::Fixed(cost) => cost.get(),
            Cost::Header(_) => 1,
        }
    }
}

/// Longest name of a limit, in bytes. Each response to a limited request repeats it.
const MAX_NAME_BYTES: usize = 256;

impl OneLimit {
    fn read(&self, place: &str, name: &str, cost: u32, build: &mut Build<'_>) -> Option<Read> {
        let before = build.mistakes.len();
        let name = self.name.as_deref().unwrap_or(name).to_owned();
        let is_token = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !is_token {
            let hint = "use letters, digits, `-`, `_` and `.`, at most 256";
            let message = format!("`{name}` cannot be the name of a limit");
            build.refuse(&format!("{place}name"), message, Some(hint.into()));
        }
        let requests = self.requests.get();
        let burst = self.burst.unwrap_or(self.requests).get();
        let rate = match self.per {
            Per::Time(per) => Rate::new(requests, per.get(), burst),
            Per::Span(unit) => Some(Rate::quota(requests, unit.shortest())),
        };
        if rate.is_none() {
            let message = "the limit is out of range: at most 1,000,000,000 requests a second, and a burst that comes \
                           back within 9 years";
            let hint = "write a time such as 1s or 1m, or day or month";
            build.refuse(&format!("{place}per"), message, Some(hint.into()));
        }
        if self.burst.is_some() && matches!(self.per, Per::Span(_)) {
            let hint = "leave it out, or add a limit with per: 1s to `limits`";
            build.refuse(&format!("{place}burst"), "a quota has no burst", Some(hint.into()));
        }
        let fits = if matches!(self.per, Per::Span(_)) { requests } else { burst };
        if cost > fits {
            let message = format!("a request costs {cost}, and no more than {fits} ever fit");
            build.refuse("cost", message, Some(format!("write at most {fits}, or raise `burst`").into()));
        }
        let rate = rate.filter(|_| build.mistakes.len() == before)?.costing(cost);
        Some(Read { rate, requests, per: self.per, name })
    }
}

fn default_name(scope: &str) -> &'static str {
    match scope.split('.').next() {
        Some("plans") => "plan",
        Some("filters") => "global",
        _ => "default",
    }
}

// === impl Per ===

impl<'de> Deserialize<'de> for Per {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match text.as_str() {
            "day" => Ok(Self::Span(Unit::Day)),
            "month" => Ok(Self::Span(Unit::Month)),
            other => other.parse().map(Self::Time).map_err(|e: weir_filter::config::units::UnitError| {
                let hint = match text.trim_start_matches("1 ").trim_end_matches('s') {
                    "hour" => Some("write 1h"),
                    "minute" | "min" => Some("write 1m"),
                    "second" | "sec" => Some("write 1s"),
                    _ => None,
                };
                match hint {
                    Some(_) => de::refuse("a duration; expected e.g. 1s, 5m, 1h, day or month", hint),
                    None => serde::de::Error::custom(format!("`{text}` {e}, day or month")),
                }
            }),
        }
    }
}

impl Serialize for Per {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Span(unit) => s.serialize_str(unit.name()),
            Self::Time(time) => time.serialize(s),
        }
    }
}

impl JsonSchema for Per {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RateLimitPer".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^(day|month|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$",
            "examples": ["1s", "10s", "1m", "day", "month"]
        })
    }
}

// === impl Cost ===

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(NonZeroU32::MIN)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct CostVisitor;

        impl serde::de::Visitor<'_> for CostVisitor {
            type Value = Cost;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 1 to 1000000, or header:NAME")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Cost, E> {
                let cost = u32::try_from(number).ok().filter(|cost| *cost <= super::COST_MAX);
                let unexpected = serde::de::Unexpected::Unsigned(number);
                let cost = cost.and_then(NonZeroU32::new).ok_or_else(|| E::invalid_value(unexpected, &self));
                cost.map(Cost::Fixed)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Cost, E> {
                self.visit_u64(u64::try_from(number).unwrap_or(0))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Cost, E> {
                let Some(name) = text.strip_prefix("header:") else {
                    return Err(E::invalid_value(serde::de::Unexpected::Str(text), &self));
                };
                let name = serde::de::value::StrDeserializer::<E>::new(name.trim());
                HeaderName::deserialize(name).map(Cost::Header)
            }
        }

        d.deserialize_any(CostVisitor)
    }
}

impl Serialize for Cost {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(cost) => s.serialize_u32(cost.get()),
            Self::Header(name) => s.collect_str(&format_args!("header:{}", name.as_str())),
        }
    }
}

impl JsonSchema for Cost {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RateLimitCost".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "integer"],
            "pattern": "^header:.+$",
            "minimum": 1,
            "maximum": super::COST_MAX,
            "examples": ["header:x-cost", 5]
        })
    }
}
