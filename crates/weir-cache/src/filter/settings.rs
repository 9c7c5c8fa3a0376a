//! The settings of a cache.

use super::freshness::Defaults;
use super::key::{Extra, Extras, Place};
use super::storable::SetCookie;
use super::store::Pages;
use super::ttl::{Ignore, Ttl};
use super::{Cache, Counters, Names};
use crate::prelude::*;
use weir_filter::store::Room;
use weir_wire::Chain;

/// Stores the upstream's answers and serves them again: a shared cache by RFC 9111.
///
/// An answer is kept for as long as its `cdn-cache-control` (RFC 9213), `cache-control` or `expires` says; `ttl`
/// applies to answers without these. Objects are distinguished by route, scheme, host, path and query, by the fields
/// that `vary` names (at most 64 variants), and by `key`. GET and HEAD are answered from the cache, including
/// conditional and range requests. A stale object is revalidated with the upstream. `cache-status` (RFC 9211) says
/// what the cache did, and why.
///
/// An answer is not kept if it says `private` or `no-store`, sets a cookie, is partial, or did not come from the
/// upstream. Nor is an answer to a request with `authorization`, unless it says `public`, `s-maxage` or
/// `must-revalidate`. A GET with a body bypasses the cache.
///
/// Concurrent requests for an object that is not stored cause one request to the upstream; the others read the answer
/// as it arrives. Put filters that decide whether requests may pass before the cache: it serves everyone who gets
/// here. Filters behind it run only for requests to the upstream. `stores: { pages: { memory: 256MiB } }` makes the
/// store of the example.
///
/// ```yaml
/// - cache: { store: pages }
/// - cache: { store: pages, ttl: { 200: 7d, 302: 7d, any: 1m }, ignore: [ expires ] }
/// - cache: { store: pages, ttl: 30s, negative: 5s, stale_if_error: 10m, stale_while_revalidate: 30s }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CacheSettings {
    /// Name of a store under `stores` that has `memory`, and optionally a `disk`. Routes may share one; their keys
    /// differ.
    store: String,
    /// Lifetime of an answer with status 200, 203, 204, 300, 301 or 308 that specifies none. Or lifetimes by status, of
    /// which `any` is for all others: `{ 200: 7d, 302: 7d, 4xx: 1m, any: 0s }`; `0s` keeps nothing. Refusals of one
    /// client or request (400, 401, 403, 407, 408, 413, 417, 421, 425, 426, 428, 429, 431) are kept only if their own
    /// status is listed. Default: it is not kept. An answer to a request with `cookie` is not kept either, unless `key`
    /// has `header:cookie`: remove a meaningless cookie before the cache.
    #[serde(default)]
    ttl: Option<Ttl>,
    /// Fields of answers that count as absent: `cache-control`, `expires`, `set-cookie` (the copy is kept without its
    /// cookies, unless `set_cookie: keep`), `vary` (but for `accept-encoding` of a compressed answer). A
    /// `cdn-cache-control` still counts. An answer to a request with `authorization` is not kept by this. Each but
    /// `expires` can give one client's answer to another, and `weir check` warns of it. Default none.
    #[serde(default)]
    ignore: Vec<Ignore>,
    /// Lifetime of answers with 404, 405, 410, 414 and 501 that specify none; not beside a `ttl` by status. Default:
    /// they are not kept.
    #[serde(default)]
    negative: Option<Duration>,
    /// Whether an answer without a lifetime and without a `ttl` lives for a tenth of the time since its
    /// `last-modified`, at most a day. Default false.
    #[serde(default)]
    heuristic: bool,
    /// What distinguishes objects besides route, URL and `vary`. `caller`: the caller that an earlier filter verified
    /// (`consumer` means the same). `header:NAME`: a request field. `shared`: all callers get the same answers. Or a text
    /// with placeholders and expressions, such as `= maps.tenants`: the answers of each value are kept apart.
    /// Without `caller` and `shared`, an answer to a verified caller is kept only if it says `public`, `s-maxage` or
    /// `must-revalidate`. Default `[caller]`.
    #[serde(default = "caller")]
    key: Vec<Extra>,
    /// Whether identical concurrent requests become one. Default true.
    #[serde(default = "yes")]
    coalesce: bool,
    /// How long a stale answer is served if the upstream fails or answers with 500, 502, 503 or 504. An answer's own
    /// `stale-if-error` takes precedence; `must-revalidate` and `s-maxage` forbid it. Default: not at all.
    #[serde(default)]
    stale_if_error: Option<Duration>,
    /// How long a stale answer is served while one request fetches a new one. An answer's own
    /// `stale-while-revalidate` takes precedence. Default: not at all.
    #[serde(default)]
    stale_while_revalidate: Option<Duration>,
    /// What to do with an answer that sets a cookie: `refuse` to keep it, `strip` the cookie from the stored copy, or
    /// `keep` it for everyone. Default `refuse`.
    #[serde(default)]
    set_cookie: SetCookie,
    /// Largest body that is kept, at most half of the store. Default 8MiB, or a quarter of a store smaller than
    /// 32MiB; for a store on disk 1GiB, or a quarter.
    #[serde(default)]
    max_object: Option<ByteSize>,
    /// Whether clients may request a fresher answer (`cache-control: no-cache`, `max-age`, `min-fresh` of requests),
    /// which causes a request to the upstream each time. `no-store` and `only-if-cached` always apply. Default false.
    #[serde(default)]
    client_control: bool,
}

/// Default for the largest body that is kept, in bytes.
pub(super) const MAX_OBJECT: u64 = 8 * 1024 * 1024;

/// The same for a store on disk.
const MAX_ON_DISK: u64 = 1024 * 1024 * 1024;

fn caller() -> Vec<Extra> {
    vec![Extra::Caller]
}

const fn yes() -> bool {
    true
}

impl IntoFilter for CacheSettings {
    type Filter = Cache;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Cache> {
        let before = build.mistakes.len();
        let Room { memory, disk } = build.room_of("store", &self.store)?;
        let (all, usual) = match &disk {
            Some((_, size)) => (*size, MAX_ON_DISK),
            None => (memory, MAX_OBJECT),
        };
        let most = self.max_object.map_or(usual.min(all / 4), ByteSize::get);
        if most == 0 || most > all / 2 {
            let message = format!("{} does not fit: the store has {}", ByteSize(most), ByteSize(all));
            let hint = "write at most half of the store, such as 8MiB".to_owned();
            build.refuse("max_object", message, Some(hint.into()));
        }
        let mut texts = Vec::new();
        for (at, extra) in self.key.iter().enumerate() {
            if let Extra::Header(name) = extra {
                allow_name(build, &format!("key[{at}]"), &HeaderName::of(name.clone()));
            }
            if let Extra::Text(text) = extra {
                texts.extend(build.text(&format!("key[{at}]"), text));
            }
            if self.key[..at].contains(extra) {
                build.refuse(&format!("key[{at}]"), "is listed twice", Some("write it once".into()));
            }
        }
        if let (Some(at), true) =
            (self.key.iter().position(|extra| *extra == Extra::Shared), self.key.contains(&Extra::Caller))
        {
            let hint =
                "keep `caller` where callers get different answers, and `shared` where all get the same";
            build.refuse(&format!("key[{at}]"), "contradicts `caller`", Some(hint.into()));
        }
        let (one, by_status) = match &self.ttl {
            Some(Ttl::One(ttl)) => (Some(*ttl), None),
            Some(by_status) => (None, by_status.by_status(build)),
            None => (None, None),
        };
        for (key, time) in [("ttl", one), ("negative", self.negative)] {
            if time.is_some_and(Duration::is_zero) {
                build.refuse(key, "keeps nothing", Some("write 10s, or leave it out".into()));
            }
        }
        if by_status.is_some() && self.negative.is_some() {
            build.refuse(
                "negative",
                "stands beside a `ttl` by status",
                Some("write ttl: { 404: 10s }".into()),
            );
        }
        let ignored = Ignore::ignored(&self.ignore, self.set_cookie == SetCookie::Keep, build);
        let set_cookie = match self.set_cookie {
            SetCookie::Refuse if self.ignore.contains(&Ignore::SetCookie) => SetCookie::Strip,
            written => written,
        };
        if let Some((path, _)) = &disk
            && let Err(e) = crate::disk::check(path)
        {
            let hint = format!("name an empty folder at stores.{}.disk.path", self.store);
            build.refuse("store", format!("its disk cannot be used: {}", Chain(&e)), Some(hint.into()));
        }
        let key = format!("{memory} {disk:?}");
        let pages = build.keep_in_store(&self.store, &key, || Pages::new(memory, disk));
        (build.mistakes.len() == before).then(|| Cache {
            defaults: Defaults {
                ttl: one.map(Duration::get),
                negative: self.negative.map(Duration::get),
                heuristic: self.heuristic,
                with_cookie: self.key.iter().any(|extra| extra.is_header("cookie")),
                by_status,
                ignored,
            },
            extras: Extras { written: self.key, texts },
            place: Place::of(build.scope),
            coalesce: self.coalesce,
            stale_if_error: self.stale_if_error.map(Duration::get).unwrap_or_default(),
            stale_while_revalidate: self.stale_while_revalidate.map(Duration::get).unwrap_or_default(),
            set_cookie,
            max_object: most,
            client_control: self.client_control,
            names: Names::new(),
            counters: Counters::default(),
            store: self.store,
            pages,
        })
    }
}
