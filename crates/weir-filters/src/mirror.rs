//! `mirror`: sends copies of requests to another upstream, to test it with real traffic. Its responses are discarded.

use super::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration as Time;
use weir_filter::config::spelling::nearest_name;
use weir_filter::filter::{DISCARDED, is_of_gateway};
use weir_h1::{BodyKind, FieldName};
use weir_wire::time;

pub(super) static KIND: FilterKind = FilterKind::made_from::<MirrorSettings>("mirror");

/// Sends copies of a share of the requests to another upstream, to test a new version with real traffic.
///
/// A copy has the method, path, query, fields and body of the request at this filter, plus `x-weir-mirror: 1`.
/// Requests with that field are not copied again. The copy is sent once the whole body has arrived, in parallel to
/// the exchange, and neither delays nor fails the request. Its response is read to the end, counted and discarded.
/// Side effects, such as creating a user, happen twice: mirror to a service with its own data, and put this filter
/// after those that refuse requests.
///
/// At most `queue` copies are under way, with `bytes` of memory for their heads and bodies. A request is not copied
/// if the limits are reached, if its body is longer than `body`, or if it asks for another protocol (WebSocket).
/// `weir status` and the metrics `weir_mirror_*` count `sent`, `answered` by class of the status, `failed`, and
/// `dropped` by reason.
///
/// ```yaml
/// - mirror: { upstream: next, share: 10% }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MirrorSettings {
    /// Name of the upstream that gets the copies.
    upstream: String,
    /// Share of requests that are copied. Default `100%`.
    #[serde(default = "all")]
    share: Percent,
    /// Most concurrent copies, 1 to 1000. Default 100.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    queue: u16,
    /// Most memory for the heads and bodies of copies. Default `16MiB`.
    #[serde(default = "sixteen_mib")]
    bytes: ByteSize,
    /// Longest body that is copied. Default `1MiB`.
    #[serde(default = "one_mib")]
    body: ByteSize,
    /// Longest time for a copy, including its response. Default `30s`.
    #[serde(default = "half_a_minute")]
    timeout: Duration,
    /// The field that marks a copy. Default `x-weir-mirror`.
    #[serde(default = "mark")]
    header: HeaderName,
}

const fn all() -> Percent {
    Percent::new(100)
}

const fn hundred() -> u16 {
    100
}

const fn sixteen_mib() -> ByteSize {
    ByteSize(16 * 1024 * 1024)
}

const fn one_mib() -> ByteSize {
    ByteSize(1024 * 1024)
}

const fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn mark() -> HeaderName {
    HeaderName::fixed("x-weir-mirror")
}

/// Most memory that copies can be given.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

struct Mirror {
    upstream: String,
    share: Percent,
    body: usize,
    timeout: Time,
    mark: FieldName,
    names: Names,
    room: Arc<Room>,
}

/// The fields that describe the client to a service, as the request's own upstream gets them.
struct Names {
    forwarded_for: FieldName,
    forwarded_host: FieldName,
    forwarded_proto: FieldName,
    /// Announces that trailers are accepted, as gRPC requires (RFC 9110 §10.1.4).
    te: [(FieldName, &'static [u8]); 2],
}

/// What copies take of the limits, over all cores, and the results of copies.
#[derive(Default)]
struct Room {
    most: usize,
    most_bytes: usize,
    copies: AtomicUsize,
    bytes: AtomicUsize,
    sent: AtomicU64,
    failed: AtomicU64,
    /// By class of the status, 1xx to 5xx.
    answered: [AtomicU64; 5],
    dropped: [AtomicU64; 4],
}

/// Why a request that was chosen was not copied.
#[derive(Clone, Copy)]
enum Dropped {
    /// The limit of copies under way is reached.
    Queue,
    /// Copies hold as much memory as they may.
    Bytes,
    /// The body is longer than the limit.
    Body,
    /// The body did not arrive completely.
    Cut,
}

const REASONS: [&str; 4] = ["queue", "bytes", "body", "cut"];

/// A place for one copy and the bytes that it holds. Dropping it frees both.
struct Place {
    room: Arc<Room>,
    bytes: usize,
}

/// A copy of a request whose body is still arriving.
#[derive(Default)]
enum Pending {
    #[default]
    None,
    Begun(Place, CallRequest, Vec<u8>),
}

impl IntoFilter for MirrorSettings {
    type Filter = Mirror;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Mirror> {
        let before = build.mistakes.len();
        if !build.upstreams.contains(&self.upstream) {
            let near = nearest_name(&self.upstream, build.upstreams.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean {near}?"));
            build.refuse(
                "upstream",
                format!("there is no upstream `{}`", self.upstream),
                hint.map(Into::into),
            );
        }
        if !(1..=1000).contains(&self.queue) {
            build.refuse("queue", format!("`{}` is not between 1 and 1000", self.queue), None);
        }
        if self.bytes.get() > MAX_BYTES {
            build.refuse("bytes", "is more than 1GiB", None);
        }
        if self.body > self.bytes {
            build.refuse(
                "body",
                format!("is more than `bytes`, {}: no such body would be copied", self.bytes),
                None,
            );
        }
        if self.timeout.is_zero() {
            build.refuse("timeout", "a copy needs time", Some("write 30s".into()));
        }
        allow_name(build, "header", &self.header);
        let (most, most_bytes) = (usize::from(self.queue), self.bytes.as_usize());
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        (build.mistakes.len() == before).then(|| Mirror {
            upstream: self.upstream,
            share: self.share,
            body: self.body.as_usize(),
            timeout: self.timeout.get(),
            mark: (*self.header).clone(),
            names: Names {
                forwarded_for: name("x-forwarded-for"),
                forwarded_host: name("x-forwarded-host"),
                forwarded_proto: name("x-forwarded-proto"),
                te: [(name("connection"), b"te"), (name("te"), b"trailers")],
            },
            room: build.keep("room", || Room { most, most_bytes, ..Room::default() }),
        })
    }
}

// === impl Room ===

impl Room {
    /// Takes a place for a copy of this size.
    fn take(self: &Arc<Self>, bytes: usize) -> Result<Place, Dropped> {
        if self.copies.fetch_add(1, Relaxed) >= self.most {
            self.copies.fetch_sub(1, Relaxed);
            return Err(Dropped::Queue);
        }
        let mut place = Place { room: Arc::clone(self), bytes: 0 };
        place.grow(bytes)?;
        Ok(place)
    }

    fn drop_one(&self, why: Dropped) {
        self.dropped[why as usize].fetch_add(1, Relaxed);
    }
}

impl Place {
    /// Takes more bytes.
    fn grow(&mut self, bytes: usize) -> Result<(), Dropped> {
        if self.room.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > self.room.most_bytes {
            self.room.bytes.fetch_sub(bytes, Relaxed);
            return Err(Dropped::Bytes);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.copies.fetch_sub(1, Relaxed);
        self.room.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

static SENT: Figure = Figure::counter("sent", "weir_mirror_sent", "Copies of requests that were sent.");
static FAILED: Figure = Figure::counter("failed", "weir_mirror_failed", "Copies that got no answer.");
static ANSWERED: Figure = Figure::counter(
    "answered",
    "weir_mirror_answered",
    "Copies that were answered, by status class, such as 2xx.",
)
.of("class");
static DROPPED: Figure = Figure::counter(
    "dropped",
    "weir_mirror_dropped",
    "Copies that were not sent, by reason: queue, bytes, body or cut.",
)
.of("reason");

impl Filter for Mirror {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::END
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let chosen = self.choose(head, cx);
        *cx.note() = if chosen { CHOSEN } else { PASSED };
        if chosen { BodyUse::Watch } else { BodyUse::Pass }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let chosen = match *cx.note() {
            0 => self.choose(head, cx), // it has no body, so the body hook was never asked
            note => note == CHOSEN,
        };
        if !chosen {
            return Flow::Continue;
        }
        *cx.note() = CHOSEN;
        if let BodyKind::Length(length) = head.body()
            && length > self.body as u64
        {
            self.room.drop_one(Dropped::Body);
            return Flow::Continue;
        }
        let request = self.copy(head, cx);
        match self.room.take(size(&request)) {
            Ok(place) if head.body() == BodyKind::Empty => self.send(place, request, cx),
            Ok(place) => *cx.state::<Pending>() = Pending::Begun(place, request, Vec::new()),
            Err(why) => self.room.drop_one(why),
        }
        Flow::Continue
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let copy = cx.state::<Pending>();
        let Pending::Begun(place, request, body) = copy else { return Ok(()) };
        let data = piece.data();
        let fits =
            if body.len() + data.len() > self.body { Err(Dropped::Body) } else { place.grow(data.len()) };
        if let Err(why) = fits {
            *copy = Pending::None;
            self.room.drop_one(why);
            return Ok(());
        }
        body.extend_from_slice(data);
        if piece.is_last() {
            request.body = std::mem::take(body).into();
            if let Pending::Begun(place, request, _) = std::mem::take(copy) {
                self.send(place, request, cx);
            }
        }
        Ok(())
    }

    fn on_end(&self, _: &End, cx: &mut Cx) {
        if *cx.note() == CHOSEN && matches!(std::mem::take(cx.state::<Pending>()), Pending::Begun(..)) {
            self.room.drop_one(Dropped::Cut);
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let one = |figure, of: &str, count: &AtomicU64| Reading::of(figure, of, count.load(Relaxed));
        let room = &self.room;
        let mut readings = vec![one(&SENT, "", &room.sent), one(&FAILED, "", &room.failed)];
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        readings.extend(
            classes.iter().zip(&room.answered).skip(1).map(|(class, count)| one(&ANSWERED, class, count)),
        );
        readings.extend(REASONS.iter().zip(&room.dropped).map(|(why, count)| one(&DROPPED, why, count)));
        readings
    }
}

/// Decisions about a request, as [`Cx::note`] keeps them.
const PASSED: u64 = 1;
const CHOSEN: u64 = 2;

impl Mirror {
    fn choose(&self, head: &RequestHead, cx: &mut Cx) -> bool {
        self.share.takes(cx.random()) && head.upgrade().is_none() && !head.headers.contains(&self.mark)
    }

    /// Copies the request as it is now, without its body.
    fn copy(&self, head: &RequestHead, cx: &Cx) -> CallRequest {
        let mut headers = Vec::with_capacity(head.headers.len() + 5);
        for (name, value) in head.headers.iter() {
            if is_of_gateway(name) {
                continue; // written anew
            }
            let name = std::str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok());
            headers.extend(name.map(|name| (name, value.to_vec())));
        }
        if head.accepts_trailers() {
            headers.extend(self.names.te.iter().map(|(name, value)| (name.clone(), value.to_vec())));
        }
        let mut tell = |name: &FieldName, value: &[u8]| {
            if !head.headers.contains(name) {
                headers.push((name.clone(), value.to_vec()));
            }
        };
        tell(&self.names.forwarded_for, cx.client.to_canonical().to_string().as_bytes());
        tell(&self.names.forwarded_proto, if cx.tls { b"https" } else { b"http" });
        tell(&self.names.forwarded_host, head.asked_authority());
        tell(&self.mark, b"1");
        let query = head.query().map(|query| [&b"?"[..], query].concat()).unwrap_or_default();
        CallRequest {
            method: String::from_utf8_lossy(head.method_name()).into_owned(),
            target: String::from_utf8_lossy(&[head.path(), &query].concat()).into_owned(),
            authority: head.authority().to_vec(),
            headers,
            body: Bytes::new(),
            limit: DISCARDED,
        }
    }

    /// Sends a copy in parallel to the exchange.
    fn send(&self, place: Place, request: CallRequest, cx: &Cx) {
        let (core, upstream, timeout) = (cx.core().clone(), self.upstream.clone(), self.timeout);
        let room = Arc::clone(&self.room);
        let sent = cx.core().spawn(async move {
            let room = &place.room;
            room.sent.fetch_add(1, Relaxed);
            match time::timeout(timeout, core.call(&upstream, request)).await {
                Ok(Ok(answer)) => {
                    let class = usize::from(answer.status / 100).saturating_sub(1);
                    room.answered.get(class).unwrap_or(&room.failed).fetch_add(1, Relaxed)
                }
                _ => room.failed.fetch_add(1, Relaxed),
            };
        });
        if !sent {
            room.drop_one(Dropped::Queue);
        }
    }
}

/// Approximate size of a copy without its body, in bytes.
fn size(request: &CallRequest) -> usize {
    let fields = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
    request.method.len() + request.target.len() + request.authority.len() + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Running, Stand};
    use super::*;
    use serde_json::{Value, json};
    use weir_filter::error::CONNECT_REFUSED;

    fn stand(settings: Value) -> Stand {
        let answer = CallAnswer { status: 204, headers: Vec::new(), body: Bytes::new() };
        Stand::new(&KIND, settings).upstream("next").answer(Ok(answer)).answer(Err(&CONNECT_REFUSED))
    }

    fn reading(running: &Running, what: &str, of: &str) -> u64 {
        let readings = running.readings();
        readings.iter().find(|r| r.figure.what == what && r.of == of).unwrap().value
    }

    async fn with_body(running: &Running, pieces: &[&[u8]]) -> Exchange {
        let mut exchange = running.request("POST /\nTransfer-Encoding: chunked").await;
        for (at, piece) in pieces.iter().enumerate() {
            assert_eq!(exchange.body(piece, at + 1 == pieces.len()).as_deref(), Ok(*piece));
        }
        exchange
    }

    #[tokio::test]
    async fn copies_what_was_asked_and_counts_what_came_back() {
        let running = stand(json!({ "upstream": "next" })).build();
        let request = "GET /a?b=1\nCookie: c=1\nConnection: te\nTE: trailers\nX-Forwarded-For: 198.51.100.7";
        let mut exchange = running.request(request).await;
        exchange.expect_continue().expect_no_header("x-weir-mirror");
        exchange.tasks().await;
        let (upstream, copy) = exchange.calls().remove(0);
        assert_eq!(
            (upstream.as_str(), copy.method.as_str(), copy.target.as_str()),
            ("next", "GET", "/a?b=1")
        );
        let fields: Vec<_> =
            copy.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect();
        let expected = [
            "Cookie: c=1",
            "X-Forwarded-For: 198.51.100.7",
            "connection: te",
            "te: trailers",
            "x-forwarded-proto: http",
            "x-forwarded-host: example.com",
            "x-weir-mirror: 1",
        ];
        assert_eq!(fields, expected);
        let mut exchange = with_body(&running, &[b"one", b"two", b""]).await;
        exchange.tasks().await;
        assert_eq!(exchange.calls()[1].1.body, "onetwo");
        assert_eq!(reading(&running, "sent", ""), 2);
        assert_eq!((reading(&running, "answered", "2xx"), reading(&running, "failed", "")), (1, 1));
    }

    #[tokio::test]
    async fn no_copy_of_a_copy_and_none_of_another_protocol() {
        let running = stand(json!({ "upstream": "next", "header": "x-copy" })).build();
        for request in ["GET /\nX-Copy: 1", "GET /\nConnection: upgrade\nUpgrade: websocket"] {
            let mut exchange = running.request(request).await;
            exchange.tasks().await;
            assert!(exchange.calls().is_empty(), "{request}");
        }
        let running = stand(json!({ "upstream": "next", "share": "0%" })).build();
        let mut exchange = running.request("GET /").await;
        exchange.tasks().await;
        assert!(exchange.calls().is_empty());
    }

    #[tokio::test]
    async fn memory_has_an_end() {
        let settings = json!({ "upstream": "next", "queue": 1, "body": "5B", "bytes": "1KiB" });
        let running = stand(settings).build();
        let mut waiting = running.request("GET /").await;
        running.request("GET /").await.expect_continue();
        assert_eq!(reading(&running, "dropped", "queue"), 1);
        waiting.tasks().await;
        with_body(&running, &[b"123", b"456", b""]).await;
        assert_eq!(reading(&running, "dropped", "body"), 1);
        running.request("POST /\nContent-Length: 6").await.expect_continue();
        assert_eq!(reading(&running, "dropped", "body"), 2);
        running.request(&format!("GET /\nX-Long: {}", "x".repeat(1024))).await.expect_continue();
        assert_eq!(reading(&running, "dropped", "bytes"), 1);
        let end = End { status: 0, cause: None, bytes_in: 0, bytes_out: 0 };
        let mut cut = running.request("POST /\nTransfer-Encoding: chunked").await;
        cut.body(b"1", false).unwrap();
        cut.end(end);
        assert_eq!(reading(&running, "dropped", "cut"), 1);
        assert_eq!(reading(&running, "sent", ""), 1);
        let mut last = with_body(&running, &[b"12345"]).await;
        last.tasks().await;
        assert_eq!(reading(&running, "sent", ""), 2, "all places were given back");
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "upstream"),
            (json!({ "upstream": "nxt" }), "did you mean next?"),
            (json!({ "upstream": "next", "queue": 0 }), "between 1 and 1000"),
            (json!({ "upstream": "next", "body": "32MiB" }), "more than `bytes`"),
            (json!({ "upstream": "next", "bytes": "2GiB" }), "more than 1GiB"),
            (json!({ "upstream": "next", "timeout": "0s" }), "needs time"),
            (json!({ "upstream": "next", "header": "host" }), "target"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).upstream("next").mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
