//! `rate_limit`: so many requests in so much time, for each client, consumer or route.
//!
//! `gcra` decides, `table` keeps what is known of keys that clients choose; here are the settings and the fields.

mod gcra;
mod saved;
mod table;
#[cfg(test)]
mod tests;

use self::gcra::{Cell, Decision, Rate, SECOND, Time};
use self::table::{Key, Table};
use super::prelude::*;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_h1::{FieldName, Prepared};

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<RateLimitSettings>("rate_limit").with_causes(&[&RATE_LIMITED]);

static RATE_LIMITED: Cause = Cause {
    code: "rate_limited",
    status: 429,
    meaning: "Too many requests.",
    change: "the filter rate_limit of the route, or of the consumer's plan",
};

/// Lets so many requests pass in so much time, and refuses the others with 429 and `Retry-After`.
///
/// The limit is exact for the whole process, whatever the number of cores: a bucket of `burst` requests that refills
/// evenly (GCRA), so that there is no window at whose edge twice the limit passes. Counters survive a reload and an
/// upgrade as long as the settings stay; they are lost when the process ends otherwise. After an upgrade, what the old
/// process still answers counts there alone. Refused requests are not counted.
///
/// In a plan the limit is each consumer's for all its routes together; under `filters` it is one for all routes.
///
/// Addresses and header values are counted in a table of fixed size: see `keys`. Where it is too small for the clients
/// that are active at once, the client that has used least is forgotten first and begins anew.
///
/// ```yaml
/// - rate_limit: { requests: 100, per: 1s }
/// - rate_limit: { requests: 10000, per: 1h, burst: 500, by: address, name: hourly }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Requests that may pass in `per`.
    requests: NonZeroU32,
    /// Time in which they may pass, such as `1s`, `10s`, `1m`.
    per: Duration,
    /// Requests that may pass at once after a pause. Default: the same number as `requests`. 1 spaces them evenly.
    burst: Option<NonZeroU32>,
    /// Who has a limit of its own: each `consumer`, each client `address`, each `route`, or each value of a header
    /// (`header:x-tenant`). Default `consumer`. Where no filter before this one named a consumer, or the request has no
    /// such header, it is the client's address. A header that clients choose freely limits nobody.
    #[serde(default)]
    by: By,
    /// Leading bits of an IPv6 address that make one client, from 1 to 128. Default 64: the least that a network hands
    /// out, so a client has 2^64 addresses to choose from.
    #[serde(default = "ipv6_prefix")]
    ipv6_prefix: u8,
    /// Clients that are counted at the same time, from 8 to 16777216. Default 65536. Memory: 16 bytes each, once in use.
    #[serde(default = "keys")]
    keys: u32,
    /// Whether answers carry `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), by which
    /// clients can slow down before they are refused. Default true.
    #[serde(default = "headers")]
    headers: bool,
    /// Name of the limit in these fields. Default `default` on a route, `plan` in a plan, `global` under `filters`; give
    /// names where one route has several.
    name: Option<String>,
}

const POLICY: &str = "RateLimit-Policy";
const LIMIT: &str = "RateLimit";

/// The settings with every default filled in.
#[derive(Debug, Deserialize, Serialize)]
#[serde(from = "Written")]
struct RateLimitSettings(Written);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum By {
    Address,
    #[default]
    Consumer,
    Header(FieldName),
    Route,
}

const fn ipv6_prefix() -> u8 {
    64
}

const fn keys() -> u32 {
    65536
}

const fn headers() -> bool {
    true
}

struct RateLimit {
    rate: Rate,
    by: ByState,
    ipv6_mask: u128,
    state: Arc<State>,
    fields: Option<Fields>,
    retry_after: FieldName,
}

/// How a request finds its counter.
enum ByState {
    Address,
    /// By position among the consumers.
    Consumer(Vec<Arc<Cell>>),
    Header(FieldName),
    /// The only route there is.
    OneRoute,
    Route,
}

/// What survives a reload.
struct State {
    route: Cell,
    table: Table,
    /// The counters of consumers that some snapshot uses, by name: positions change with the config. Locked while a
    /// snapshot is built, never by a request.
    consumers: Mutex<HashMap<String, Weak<Cell>>>,
    /// Counters of consumers that came from the process before this one, until the first snapshot has taken them.
    inherited: Mutex<Vec<Arc<Cell>>>,
}

/// The fields that tell the client of the limit, as far as they are known beforehand.
struct Fields {
    policy: Prepared,
    /// `"name";r=`
    limit: Prepared,
}

/// The end of a value of `RateLimit`: two numbers of at most 20 digits and what stands between them.
type LimitEnd = SmallVec<[u8; 48]>;

impl From<Written> for RateLimitSettings {
    fn from(mut written: Written) -> Self {
        written.burst = written.burst.or(Some(written.requests));
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

// === impl By ===

impl<'de> Deserialize<'de> for By {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match (text.as_str(), text.strip_prefix("header:")) {
            ("address", _) => Ok(Self::Address),
            ("consumer", _) => Ok(Self::Consumer),
            ("route", _) => Ok(Self::Route),
            (_, Some(name)) => {
                FieldName::new(name.trim()).map(Self::Header).map_err(serde::de::Error::custom)
            }
            _ => Err(serde::de::Error::custom(format!(
                "`{text}` is no one to count by; expected address, consumer, route or header:NAME"
            ))),
        }
    }
}

impl Serialize for By {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address => s.serialize_str("address"),
            Self::Consumer => s.serialize_str("consumer"),
            Self::Header(name) => s.collect_str(&format_args!("header:{name}")),
            Self::Route => s.serialize_str("route"),
        }
    }
}

impl JsonSchema for By {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RateLimitBy".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(address|consumer|route|header:.+)$",
            "examples": ["consumer", "address", "route", "header:x-tenant"]
        })
    }
}

// === impl RateLimitSettings ===

impl IntoFilter for RateLimitSettings {
    type Filter = RateLimit;

    fn into_filter(self, build: &mut Build<'_>) -> Option<RateLimit> {
        let Written { requests, per, burst, by, ipv6_prefix, keys, headers, name } = self.0;
        let before = build.mistakes.len();
        let burst = burst.unwrap_or(requests).get();
        let rate = Rate::new(requests.get(), per.get(), burst);
        if rate.is_none() {
            let message = "the limit is out of range: at most 1,000,000,000 requests a second, and a burst that comes \
                           back within 9 years";
            build.refuse("per", message, Some("write a time such as 1s or 1m".to_owned()));
        }
        if !(1..=128).contains(&ipv6_prefix) {
            build.refuse(
                "ipv6_prefix",
                format!("{ipv6_prefix} is not from 1 to 128"),
                Some("write 64".into()),
            );
        }
        if !(8..=1 << 24).contains(&keys) {
            build.refuse("keys", format!("{keys} is not from 8 to 16777216"), Some("write 65536".to_owned()));
        }
        let name = name.unwrap_or_else(|| default_name(build.scope).to_owned());
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            let hint = "use letters, digits, `-`, `_` and `.`";
            build.refuse("name", format!("`{name}` cannot be the name of a limit"), Some(hint.to_owned()));
        }
        if build.mistakes.len() > before {
            return None;
        }
        let state = build.keep_portable("", |saved| saved::load(saved, keys), || State::new(keys));
        let by = match by {
            By::Address => ByState::Address,
            By::Consumer => ByState::Consumer(state.cells_of(build.consumers)),
            By::Header(name) => ByState::Header(name),
            By::Route if build.scope.starts_with("routes.") => ByState::OneRoute,
            By::Route => ByState::Route,
        };
        Some(RateLimit {
            rate: rate?,
            by,
            ipv6_mask: u128::MAX << (128 - u32::from(ipv6_prefix)),
            state,
            fields: headers.then(|| Fields::new(&name, requests.get(), per.get())),
            retry_after: field_name("retry-after"),
        })
    }
}

fn default_name(scope: &str) -> &'static str {
    match scope.split('.').next() {
        Some("plans") => "plan",
        Some("filters") => "global",
        _ => "default",
    }
}

fn field_name(name: &str) -> FieldName {
    FieldName::new(name).expect("a name in the source is a token")
}

// === impl State ===

impl State {
    fn new(keys: u32) -> Self {
        Self {
            route: Cell::default(),
            table: Table::new(keys as usize),
            consumers: Mutex::default(),
            inherited: Mutex::default(),
        }
    }

    /// A counter for each consumer: the one it had, where it had one.
    fn cells_of(&self, consumers: &Consumers) -> Vec<Arc<Cell>> {
        let mut known = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cell_of = |consumer: &Consumer| {
            known.get(&consumer.name).and_then(Weak::upgrade).unwrap_or_else(|| {
                let cell = Arc::default();
                known.insert(consumer.name.clone(), Arc::downgrade(&cell));
                cell
            })
        };
        let cells = consumers.iter().map(&mut cell_of).collect();
        self.inherited.lock().unwrap_or_else(PoisonError::into_inner).clear();
        known.retain(|_, cell| cell.strong_count() > 0);
        cells
    }
}

impl Portable for State {
    fn save(&self) -> Vec<u8> {
        saved::save(self)
    }
}

// === impl RateLimit ===

impl Filter for RateLimit {
    fn hooks(&self) -> Hooks {
        if self.fields.is_some() { Hooks::REQUEST | Hooks::RESPONSE } else { Hooks::REQUEST }
    }

    fn guards(&self) -> FieldGuards {
        let counted = if let ByState::Header(name) = &self.by { vec![name.clone()] } else { Vec::new() };
        let told = self.fields.iter().flat_map(|_| [field_name(POLICY), field_name(LIMIT)]);
        FieldGuards { request: counted, response: told.collect() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        match self.charge(head, cx, gcra::now()) {
            Decision::Allowed { used } => {
                if self.fields.is_some() {
                    *cx.note() = used; // for the response; never 0, because one request is charged
                }
                Flow::Continue
            }
            Decision::Denied { used, wait } => self.refuse(used, wait),
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let (Some(fields), used @ 1..) = (&self.fields, *cx.note()) else { return Flow::Continue };
        let sound = "digits and a checked name may be sent";
        head.headers.append_prepared(&fields.policy, b"").expect(sound);
        head.headers.append_prepared(&fields.limit, &limit_end(&self.rate, used)).expect(sound);
        Flow::Continue
    }
}

impl RateLimit {
    fn charge(&self, head: &RequestHead, cx: &Cx, now: Time) -> Decision {
        let table = &self.state.table;
        let key = match &self.by {
            ByState::OneRoute => return self.state.route.charge(&self.rate, now),
            ByState::Consumer(cells) => match cx.consumer_index().and_then(|i| cells.get(i)) {
                Some(cell) => return cell.charge(&self.rate, now),
                None => self.address(cx.client),
            },
            ByState::Address => self.address(cx.client),
            ByState::Header(name) => match head.headers.get(name) {
                Some(value) => table.key((b'h', value)),
                None => self.address(cx.client),
            },
            ByState::Route => table.key((b'r', cx.route())),
        };
        table.charge(key, &self.rate, now)
    }

    /// IPv4 also where it is written as IPv6.
    fn address(&self, client: IpAddr) -> Key {
        match client.to_canonical() {
            IpAddr::V4(address) => self.state.table.key((b'4', address.to_bits())),
            IpAddr::V6(address) => self.state.table.key((b'6', Ipv6Addr::to_bits(address) & self.ipv6_mask)),
        }
    }

    /// The answer tells of the limit itself: `on_response` stays silent, because nothing was charged.
    fn refuse(&self, used: Time, wait: Time) -> Flow {
        let mut headers = Vec::with_capacity(3);
        if let Some(fields) = &self.fields {
            let limit = [fields.limit.value_begin(), &limit_end(&self.rate, used)].concat();
            headers.push((field_name(POLICY), fields.policy.value_begin().to_vec()));
            headers.push((field_name(LIMIT), limit));
        }
        let seconds = itoa::Buffer::new().format(wait.div_ceil(SECOND)).as_bytes().to_vec();
        headers.push((self.retry_after.clone(), seconds));
        Flow::refuse_with(&RATE_LIMITED, headers)
    }
}

// === impl Fields ===

impl Fields {
    fn new(name: &str, requests: u32, per: std::time::Duration) -> Self {
        // `w` counts whole seconds; for other times it is left out, which the draft allows.
        let window = match (per.as_secs(), per.subsec_nanos()) {
            (seconds @ 1.., 0) => format!(";w={seconds}"),
            _ => String::new(),
        };
        let prepared = |field, value: String| {
            Prepared::new(&field_name(field), value.as_bytes())
                .expect("digits and a checked name may be sent")
        };
        Self {
            policy: prepared(POLICY, format!("\"{name}\";q={requests}{window}")),
            limit: prepared(LIMIT, format!("\"{name}\";r=")),
        }
    }
}

/// `r`: requests that would pass now. `t`: seconds until the whole burst is there again.
fn limit_end(rate: &Rate, used: Time) -> LimitEnd {
    let mut digits = itoa::Buffer::new();
    let mut end = LimitEnd::from_slice(digits.format(rate.remaining(used)).as_bytes());
    end.extend_from_slice(b";t=");
    end.extend_from_slice(digits.format(used.div_ceil(SECOND)).as_bytes());
    end
}
