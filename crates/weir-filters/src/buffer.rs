//! `buffer`: reads request bodies whole before the upstream is asked, and responses ahead of slow clients.
//!
//! The engine holds the bytes. This filter decides which bodies, and keeps account of the memory.

use super::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_filter::error::{BODY_TOO_LARGE, BUFFER_DISK};
use weir_filter::filter::{Overflow, SpoolRoom, Spooling};
use weir_filter::grpc;
use weir_filter::spool::SPOOL_PIECE;
use weir_h1::{BodyKind, Method};

pub(super) static KIND: FilterKind = FilterKind::made_from::<BufferSettings>("buffer").with_causes(&[
    &BODY_TOO_LARGE,
    &BUFFER_DISK,
    &BUFFER_MEMORY,
]);

causes! {
    BUFFER_MEMORY "buffer_memory" 503
        "Buffered bodies hold as much memory as they may."
        "`memory` of the filter buffer, or a smaller `request`"
}

/// Keeps slow clients away from upstreams: reads request bodies whole before an upstream is asked, and responses ahead
/// of the client.
///
/// **Requests.** With `request`, a body is read whole first. The upstream is picked only then and gets the body at
/// once with a Content-Length, also if it came in chunks. Every attempt of `retry` and `hedge` can send it again. If
/// the client leaves before the end, nothing reaches the upstream. A client that waits for `100 Continue` gets it from
/// the gateway. Trailers are dropped, because a body with a length has none. A longer body is refused with 413, before
/// it is sent if the client declares its length. The limits of slow clients apply: `timeouts.body` and
/// `timeouts.rate` of the listener. Filters before `buffer` see the pieces as they arrive; filters after it, such as
/// `mirror`, see the whole body as one piece.
///
/// **Disk.** With `disk`, a longer body goes to a file, up to `disk` bytes. The file has no name, so only this process
/// can read it, and it is gone when the process ends. Threads that may block write it, at most 256 KiB at a time.
///
/// A request body goes to the file as a whole once it exceeds `request`. Filters after `buffer` see such a body in
/// pieces while it is sent; if there are any, an attempt that began to send it is not repeated, and `hedge` sends no
/// second one. A filter that needs the body whole reads it into memory, within its own limit. If `disk_total` is used
/// up or the file system fails, the request is refused with 503.
///
/// **Responses.** With `response`, the response is sent as it arrives, and read ahead of the client by up to that many
/// bytes in memory and then by `disk` bytes in a file. Once all of it has arrived, its connection to the upstream is
/// free for others, however slowly the client reads. A client that keeps up causes no writes to disk. If the length is
/// known and at most `response`, filters such as `compress` do not see the upstream's pauses, so they flush nothing
/// before the end. A longer response goes on at the client's speed when the buffer is full, as without the filter: its
/// status has been sent, so it cannot be refused. For the same reason, a response whose file cannot be written, or for
/// which `disk_total` has no room, goes on at the client's speed; `weir_buffer_disk_skipped_total` counts these, and
/// the log tells the first. If a file cannot be read, the response is cut.
///
/// These pass unchanged: gRPC in both directions, whose streams need both sides at once, and requests for another
/// protocol (WebSocket). Responses that may have no end are not read ahead: `text/event-stream`,
/// `application/x-ndjson`, `multipart/x-mixed-replace`, and those with `X-Accel-Buffering: no`.
///
/// A request in memory counts twice, because it is sent from a copy, until the response head; one on disk counts with
/// `request` bytes. A response counts with its length or, if that is unknown or more, with `response`, until its end;
/// with `disk`, 128 to 512 KiB more for what is being written. When `memory` is used up, requests are refused with 503
/// and responses are not read ahead.
/// `weir_buffer_memory_bytes` shows the use; the process may take up to twice as much, because buffers grow by
/// doubling, and a hedge sends from a third copy.
///
/// ```yaml
/// - buffer: { request: 1MiB, response: 1MiB, disk: 64MiB }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BufferSettings {
    /// Longest request body in memory, which is read whole before the upstream is asked. Longer ones go to `disk`, or
    /// are refused with 413. Default: request bodies are not buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<ByteSize>,
    /// How far a response is read ahead of its client. Default: responses are not buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response: Option<ByteSize>,
    /// Most memory for buffered bodies, over all cores. Default `256MiB`, which is enough for 128 requests or 256
    /// responses of 1 MiB at once.
    #[serde(default = "memory")]
    memory: ByteSize,
    /// Most bytes of one body on disk. More than `request` and `response`. Longer request bodies are refused with 413.
    /// Default: nothing goes to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<ByteSize>,
    /// Most bytes on disk for the bodies of this filter, over all cores. Default `4GiB`.
    #[serde(default = "disk_total")]
    disk_total: ByteSize,
    /// Folder of the files, which must exist. Default: the system's for temporary files, `TMPDIR` or `/tmp`. If that
    /// is in memory (tmpfs), so are the bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<FilePath>,
}

const fn memory() -> ByteSize {
    ByteSize(256 * 1024 * 1024)
}

const fn disk_total() -> ByteSize {
    ByteSize(4 * 1024 * 1024 * 1024)
}

/// Longest body that is buffered in memory.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// Longest body that is buffered on disk.
const MAX_DISK: u64 = 1024 * 1024 * 1024 * 1024;

struct Buffer {
    request: Option<usize>,
    response: Option<usize>,
    memory: usize,
    room: Arc<Room>,
    /// For requests.
    spooling: Option<Spooling>,
    /// For responses.
    overflow: Option<Overflow>,
    /// Longest request body, wherever it is held.
    longest: usize,
}

/// The memory taken, and what happened without it, over all cores.
#[derive(Debug, Default)]
struct Room {
    taken: AtomicUsize,
    refused: AtomicU64,
    unbuffered: AtomicU64,
}

/// Memory that one body has taken. Dropping it frees it.
#[derive(Debug)]
struct Place {
    bytes: usize,
    room: Arc<Room>,
}

/// What one exchange holds.
#[derive(Debug, Default)]
struct Held {
    request: Option<Place>,
    /// Bytes of the request so far.
    arrived: usize,
    response: Option<Place>,
}

/// The filter's note of an exchange: the declared length exceeds `request`.
const TOO_LARGE: u64 = 1;
/// The request is HEAD.
const HEAD: u64 = 2;

static DISK: Figure =
    Figure::gauge("disk", "weir_buffer_disk_bytes", "Bytes on disk of the bodies that are buffered.").bytes();
static DISK_FAILED: Figure = Figure::counter(
    "disk_failed",
    "weir_buffer_disk_failed",
    "Requests that were refused because the disk was used up or failed.",
);
static DISK_SKIPPED: Figure = Figure::counter(
    "disk_skipped",
    "weir_buffer_disk_skipped",
    "Responses that went on at their client's speed because the disk was used up or failed.",
);
static MEMORY: Figure =
    Figure::gauge("memory", "weir_buffer_memory_bytes", "Memory of the bodies that are buffered.").bytes();
static REFUSED: Figure = Figure::counter(
    "refused",
    "weir_buffer_refused",
    "Requests that were refused because the memory was used up.",
);
static UNBUFFERED: Figure = Figure::counter(
    "unbuffered",
    "weir_buffer_unbuffered",
    "Responses that were not read ahead because the memory was used up.",
);

impl IntoFilter for BufferSettings {
    type Filter = Buffer;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Buffer> {
        let before = build.mistakes.len();
        if self.request.is_none() && self.response.is_none() {
            let hint = "write `request: 1MiB`, `response: 1MiB`, or both";
            build.refuse("", "buffers neither requests nor responses", Some(hint.into()));
        }
        let written = self.response.filter(|_| self.disk.is_some()).map_or(0, |size| 2 * piece(size) as u64);
        for (key, size, times, more) in
            [("request", self.request, 2, 0), ("response", self.response, 1, written)]
        {
            let Some(size) = size else { continue };
            if size.get() == 0 {
                build.refuse(key, "is 0 bytes, so that nothing is buffered", Some("leave it out".into()));
            } else if size.get() > MAX_BYTES {
                build.refuse(key, "is more than 1GiB", None);
            } else if size.get().saturating_mul(times).saturating_add(more) > self.memory.get() {
                let held = match (times, more) {
                    (2, _) => "twice as much".to_owned(),
                    (_, 0) => "as much".to_owned(),
                    _ => format!("{} more while it is written to disk", ByteSize(more)),
                };
                let message = format!("does not fit into `memory`: one body takes {held}");
                build.refuse(key, message, None);
            }
        }
        self.check_disk(build);
        let bytes = |size: Option<ByteSize>| size.map(ByteSize::as_usize);
        if build.mistakes.len() > before {
            return None;
        }
        let folder = self.folder.map_or_else(std::env::temp_dir, |folder| folder.0);
        let spooling = self.disk.map(|_| Spooling {
            folder: folder.into(),
            memory: bytes(self.request).unwrap_or(0),
            total: self.disk_total.get(),
            room: build.keep_for("disk", |_| true, |_| SpoolRoom::default()),
        });
        let overflow = spooling.clone().zip(self.disk).zip(self.response);
        let overflow = overflow.map(|((spooling, disk), response)| Overflow {
            spooling,
            most: disk.get(),
            piece: piece(response).min(disk.as_usize()),
        });
        Some(Buffer {
            request: bytes(self.request),
            response: bytes(self.response),
            memory: self.memory.as_usize(),
            room: build.keep_for("room", |_| true, |_| Room::default()),
            spooling: spooling.filter(|_| self.request.is_some()),
            overflow,
            longest: bytes(self.disk.or(self.request)).unwrap_or(0),
        })
    }
}

impl BufferSettings {
    fn check_disk(&self, build: &mut Build<'_>) {
        let Some(disk) = self.disk else {
            if self.folder.is_some() {
                build.refuse(
                    "folder",
                    "is not used: nothing goes to disk without `disk`",
                    Some("write `disk: 64MiB`".into()),
                );
            }
            return;
        };
        for (key, size) in [("request", self.request), ("response", self.response)] {
            if size.is_some_and(|size| disk.get() <= size.get()) {
                let message = format!("is not more than `{key}`: a body up to that stays in memory");
                build.refuse("disk", message, None);
            }
        }
        if disk.get() > MAX_DISK {
            build.refuse("disk", "is more than 1024GiB", None);
        } else if disk.get() > self.disk_total.get() {
            build.refuse("disk", "does not fit into `disk_total`", None);
        }
        if let Some(FilePath(folder)) = &self.folder
            && !folder.is_dir()
        {
            build.refuse("folder", format!("{} is no folder", folder.display()), None);
        }
    }
}

impl Filter for Buffer {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::RESPONSE
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        if self.request.is_none() || !is_buffered(head) {
            return BodyUse::Pass;
        }
        match head.content_length() {
            Some(length) if length > self.longest as u64 => {
                *cx.note() |= TOO_LARGE;
                BodyUse::Pass // it is refused before the client sends any of it
            }
            _ => BodyUse::WholeWatched(self.longest),
        }
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let held = cx.state::<Held>();
        held.arrived += piece.data().len();
        let request = self.request.unwrap_or(0);
        // Held and sent from a copy; or a part of it until that is written.
        let bytes = if held.arrived <= request { held.arrived.saturating_mul(2) } else { request };
        let place = held.request.get_or_insert_with(|| Place::new(&self.room));
        if place.resize(bytes, self.memory) {
            return Ok(());
        }
        self.room.refused.fetch_add(1, Relaxed);
        Err(Refusal::new(&BUFFER_MEMORY))
    }

    fn spooling(&self) -> Option<Spooling> {
        self.spooling.clone()
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if *cx.note() & TOO_LARGE != 0 {
            return Flow::refuse(&BODY_TOO_LARGE);
        }
        if head.method() == Method::Head {
            *cx.note() |= HEAD;
        }
        Flow::Continue
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let is_head = *cx.note() & HEAD != 0;
        if self.request.is_some() {
            cx.state::<Held>().request = None;
            cx.free_request();
        }
        let Some(most) = self.response else { return Flow::Continue };
        let length = head.content_length().and_then(|length| usize::try_from(length).ok());
        let bytes = length.unwrap_or(most).min(most);
        if !cx.can_read_ahead()
            || is_head
            || bytes == 0
            || matches!(head.status(), 0..=199 | 204 | 304)
            || is_stream(head)
        {
            return Flow::Continue;
        }
        let overflow = self.overflow.as_ref().filter(|_| length.is_none_or(|length| length > most));
        let written = overflow.map_or(0, |overflow| 2 * overflow.piece);
        let mut place = Place::new(&self.room);
        if place.resize(bytes.saturating_add(written), self.memory) {
            cx.state::<Held>().response = Some(place);
            cx.read_ahead(bytes);
            if let Some(overflow) = overflow {
                cx.overflow(overflow.clone());
            }
        } else {
            self.room.unbuffered.fetch_add(1, Relaxed);
        }
        Flow::Continue
    }

    fn readings(&self) -> Vec<Reading> {
        let room = &self.room;
        let of_responses = self.overflow.as_ref().map(|overflow| &overflow.spooling);
        let disk = self.spooling.as_ref().or(of_responses).map(|spooling| &spooling.room);
        let disk = |figure: fn(&SpoolRoom) -> u64| disk.map_or(0, |disk| figure(disk));
        vec![
            Reading::one(&DISK, disk(SpoolRoom::taken)),
            Reading::one(&DISK_FAILED, disk(SpoolRoom::failed)),
            Reading::one(&DISK_SKIPPED, disk(SpoolRoom::skipped)),
            Reading::one(&MEMORY, room.taken.load(Relaxed) as u64),
            Reading::one(&REFUSED, room.refused.load(Relaxed)),
            Reading::one(&UNBUFFERED, room.unbuffered.load(Relaxed)),
        ]
    }
}

/// Whether a request's body is buffered, if it has one: no stream that needs both sides at once.
fn is_buffered(head: &RequestHead) -> bool {
    head.body() != BodyKind::Empty && head.upgrade().is_none() && !grpc::is_grpc(&head.headers)
}

/// Whether a response may have no end, or its upstream wants nobody to hold it back.
fn is_stream(head: &ResponseHead) -> bool {
    let streams = ["application/x-ndjson", "multipart/x-mixed-replace", "text/event-stream"];
    let fields = &head.headers;
    grpc::is_grpc(fields)
        || grpc::is_grpc_web(fields)
        || streams.iter().any(|media| fields.is_media(media))
        || fields.get_str("x-accel-buffering").is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
}

/// How many bytes of a response are written to disk at once.
fn piece(response: ByteSize) -> usize {
    (response.as_usize() / 4).clamp(64 * 1024, SPOOL_PIECE)
}

// === impl Place ===

impl Place {
    fn new(room: &Arc<Room>) -> Self {
        Self { bytes: 0, room: Arc::clone(room) }
    }

    /// Takes this many bytes in all. False if more of them exceed the memory of all.
    fn resize(&mut self, bytes: usize, memory: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && self.room.taken.fetch_add(more, Relaxed).saturating_add(more) > memory {
            self.room.taken.fetch_sub(more, Relaxed);
            return false;
        }
        self.room.taken.fetch_sub(self.bytes.saturating_sub(bytes), Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Running, Stand, request_head, run};
    use super::*;
    use serde_json::json;

    fn figure(running: &Running, figure: &'static Figure) -> u64 {
        running.readings().into_iter().find(|reading| std::ptr::eq(reading.figure, figure)).unwrap().value
    }

    #[tokio::test]
    async fn a_body_is_whole_before_the_head_goes_on() {
        let running = Stand::new(&KIND, json!({ "request": "4B" })).build();
        let mut exchange = running.request_with("POST /\nTransfer-Encoding: chunked", "1234").await;
        exchange.expect_continue();
        assert_eq!(exchange.cx.whole(), b"1234");
        assert_eq!(figure(&running, &MEMORY), 8, "held, and sent from a copy");
        exchange.response("200");
        assert_eq!(figure(&running, &MEMORY), 0, "no attempt follows an answer");
    }

    #[tokio::test]
    async fn a_declared_length_is_refused_at_once() {
        for (length, fits) in [(4, true), (5, false), (1u64 << 62, false)] {
            let request = format!("POST /\nContent-Length: {length}");
            let mut exchange = run(&KIND, json!({ "request": "4B" }), &request).await;
            let used = exchange.filter().request_body(&exchange.head, &mut exchange.cx);
            assert_eq!(used == BodyUse::WholeWatched(4), fits, "{length}");
            let exchange = Stand::new(&KIND, json!({ "request": "4B" })).build();
            let mut exchange = exchange.request_with(&request, "1234").await;
            match fits {
                true => exchange.expect_continue(),
                false => exchange.expect_cause(&BODY_TOO_LARGE),
            };
        }
    }

    #[tokio::test]
    async fn these_pass_as_they_are() {
        for (settings, request) in [
            (json!({ "response": "1MiB" }), "POST /\nContent-Length: 1"),
            (json!({ "request": "1MiB" }), "GET /"),
            (
                json!({ "request": "1MiB" }),
                "POST /\nTransfer-Encoding: chunked\nContent-Type: application/grpc+proto",
            ),
            (json!({ "request": "1MiB" }), "POST /\nContent-Length: 1\nConnection: upgrade\nUpgrade: h"),
        ] {
            let mut exchange = run(&KIND, settings, "GET /").await;
            let used = exchange.filter().request_body(&request_head(request), &mut exchange.cx);
            assert_eq!(used, BodyUse::Pass, "{request}");
        }
    }

    #[tokio::test]
    async fn responses_are_read_ahead_while_there_is_memory() {
        let running = Stand::new(&KIND, json!({ "response": "600B", "memory": "1000B" })).build();
        let mut held = Vec::new();
        for (response, ahead, memory) in [
            ("200\nContent-Length: 300", 300, 300),
            ("200\nTransfer-Encoding: chunked", 600, 900),
            ("200\nContent-Length: 5000", 0, 900),
            ("200\nContent-Length: 100", 100, 1000),
            ("200\nContent-Length: 0", 0, 1000),
            ("204", 0, 1000),
            ("304", 0, 1000),
            ("200\nContent-Type: application/grpc", 0, 1000),
            ("200\nContent-Type: text/event-stream; charset=utf-8", 0, 1000),
            ("200\nX-Accel-Buffering: No", 0, 1000),
        ] {
            let mut exchange = running.request("GET /").await;
            exchange.cx.is_relayed = true;
            exchange.response(response);
            assert_eq!(exchange.cx.reads_ahead, ahead, "{response}");
            assert_eq!(figure(&running, &MEMORY), memory, "{response}");
            held.push(exchange);
        }
        assert_eq!(figure(&running, &UNBUFFERED), 1);
        drop(held);
        assert_eq!(figure(&running, &MEMORY), 0);
        for (request, relayed) in [("HEAD /", true), ("GET /", false)] {
            let mut exchange = running.request(request).await;
            exchange.cx.is_relayed = relayed;
            exchange.response("200\nContent-Length: 300");
            assert_eq!(exchange.cx.reads_ahead, 0, "{request}");
        }
    }

    #[tokio::test]
    async fn a_longer_body_goes_to_disk() {
        let settings = json!({ "request": "4B", "disk": "8B", "memory": "8B" });
        let running = Stand::new(&KIND, settings).build();
        for (length, fits) in [(8, true), (9, false)] {
            let mut exchange = running.request("GET /").await;
            let head = request_head(&format!("POST /\nContent-Length: {length}"));
            let used = exchange.filter().request_body(&head, &mut exchange.cx);
            assert_eq!(used == BodyUse::WholeWatched(8), fits, "{length}");
            assert_eq!(exchange.filter().spooling().unwrap().memory, 4);
        }
        let mut exchange = running.request_with("POST /\nTransfer-Encoding: chunked", "12345678").await;
        assert_eq!(figure(&running, &MEMORY), 4, "a part on its way to the disk");
        exchange.response("200");
        assert_eq!(figure(&running, &MEMORY), 0);
    }

    #[tokio::test]
    async fn a_longer_response_may_overflow_to_disk() {
        let settings = json!({ "response": "64KiB", "disk": "1MiB" });
        let running = Stand::new(&KIND, settings).build();
        for (response, overflows) in [
            ("200\nContent-Length: 65536", false),
            ("200\nContent-Length: 65537", true),
            ("200\nTransfer-Encoding: chunked", true),
            ("200\nTransfer-Encoding: chunked\nContent-Type: text/event-stream", false),
        ] {
            let mut exchange = running.request("GET /").await;
            exchange.cx.is_relayed = true;
            exchange.response(response);
            let overflow = exchange.cx.overflow_of_response();
            assert_eq!(
                overflow.map(|of| (of.most, of.piece)),
                overflows.then_some((MIB, 65536)),
                "{response}"
            );
            let counted = if overflows { 196_608 } else { 65_536 * u64::from(!response.contains("event")) };
            assert_eq!(figure(&running, &MEMORY), counted, "{response}");
        }
    }

    const MIB: u64 = 1024 * 1024;

    #[tokio::test]
    async fn memory_that_is_used_up_refuses() {
        let running = Stand::new(&KIND, json!({ "request": "8B", "memory": "16B" })).build();
        let mut first = running.request_with("POST /\nTransfer-Encoding: chunked", "12345").await;
        first.expect_continue();
        running
            .request_with("POST /\nTransfer-Encoding: chunked", "1234")
            .await
            .expect_cause(&BUFFER_MEMORY)
            .expect_status(503);
        assert_eq!((figure(&running, &MEMORY), figure(&running, &REFUSED)), (10, 1));
        drop(first);
        running.request_with("POST /\nTransfer-Encoding: chunked", "12345678").await.expect_continue();
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "neither requests nor responses"),
            (json!({ "request": "0B" }), "leave it out"),
            (json!({ "request": "200MiB" }), "does not fit into `memory`: one body takes twice as much"),
            (json!({ "response": "2GiB", "memory": "4GiB" }), "more than 1GiB"),
            (json!({ "request": 10 }), "expected"),
            (json!({ "response": "1MiB", "disk": "64KiB" }), "not more than `response`"),
            (
                json!({ "response": "1MiB", "disk": "2MiB", "memory": "1MiB" }),
                "512KiB more while it is written to disk",
            ),
            (json!({ "request": "1MiB", "disk": "1MiB" }), "stays in memory"),
            (json!({ "request": "1MiB", "disk": "5GiB" }), "does not fit into `disk_total`"),
            (json!({ "request": "1MiB", "disk": "2000GiB", "disk_total": "4000GiB" }), "more than 1024GiB"),
            (json!({ "request": "1MiB", "disk": "2MiB", "folder": "/nowhere" }), "/nowhere is no folder"),
            (json!({ "request": "1MiB", "folder": "/tmp" }), "nothing goes to disk without `disk`"),
        ] {
            let mistakes = Stand::new(&KIND, settings).mistakes();
            assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{expected}: {mistakes:?}");
        }
    }
}
