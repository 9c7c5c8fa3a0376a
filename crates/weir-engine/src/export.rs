//! Exports spans and access log lines to a collector by OTLP, off the path of a request.
//!
//! ```text
//!  core ── Outbox, its buffer ──► up to 64 pieces wait ──► a task on the control thread ── fetch.rs ──► collector
//!          full: dropped, counted `slow`               down: retried for a minute, then counted `failed`
//! ```
//! A core never waits: it fills its buffer and hands it over. The task forms batches, sends one at a time, and
//! resends what the collector asks for (OTLP specification 1.x, *Failures* and *Throttling*). When the process ends,
//! or a reload changes the destination, it sends each remaining batch once and ends.

mod answer;

use answer::Verdict;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use weir_filter::grpc;
use weir_h1::FieldName;
use weir_telemetry::{Exported, Lost, TakesRecords, log, otlp};
use weir_upstream::fetch::{FetchRequest, Fetcher, Trust, Url, Version};

/// A core hands its buffer over once it holds this many bytes.
const PIECE_BYTES: usize = 32 * 1024;

/// How many pieces may wait for the task; more are dropped and counted. About 2 MiB.
const WAITING: usize = 64;

/// A batch is sent once it holds this many bytes. Collectors accept 4 MiB by gRPC by default.
const BATCH_BYTES: usize = 512 * 1024;

/// How long a batch waits for more pieces.
const LINGER: Duration = Duration::from_secs(1);

/// How long to keep resending a batch.
const PERSIST: Duration = Duration::from_secs(60);

/// The first pause before resending a batch; it doubles up to [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, even if the collector asks for a longer one.
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// Longest answer of a collector that is read.
const ANSWER_BYTES: usize = 64 * 1024;

/// The shortest time between two log lines about failures.
const TELL: Duration = Duration::from_secs(10);

/// The protocol towards a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// Protobuf in POST requests over HTTP/1.1.
    Http,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Log lines.
    Logs,
    /// Spans.
    Spans,
}

/// Where to send, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// What is sent.
    pub signal: Signal,
    /// The collector's URL as written.
    pub url: Url,
    /// The protocol.
    pub protocol: Protocol,
    /// Extra fields of each request.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// Which certificates are trusted.
    pub trust: Trust,
    /// The time limit for one answer.
    pub timeout: Duration,
    /// Attributes of the resource: `service.name` and others.
    pub resource: Vec<(String, String)>,
}

/// Encoded elements and their number.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    count: u64,
}

/// The sending task and the channel to it.
pub struct Exporter {
    destination: Arc<Destination>,
    outlet: Outlet,
    /// Dropped to end the task.
    closing: watch::Sender<()>,
    /// Disconnected when the task has ended.
    ended: std_mpsc::Receiver<()>,
}

/// The sending side of an exporter. Cheap to clone.
#[derive(Clone)]
pub struct Outlet {
    to: mpsc::Sender<Piece>,
    exported: Arc<Exported>,
}

/// A core's buffer of spans.
pub struct Outbox {
    outlet: Outlet,
    piece: Piece,
}

// === impl Exporter ===

impl Exporter {
    /// Starts the task on the control thread.
    pub fn start(
        destination: Destination,
        exported: &Arc<Exported>,
        control: &Handle,
        fetcher: &Fetcher,
    ) -> Self {
        let destination = Arc::new(destination);
        let (to, pieces) = mpsc::channel(WAITING);
        let (closing, closed) = watch::channel(());
        let (running, ended) = std_mpsc::channel::<()>();
        let work = Work {
            destination: Arc::clone(&destination),
            exported: Arc::clone(exported),
            fetcher: fetcher.clone(),
            closed,
            next_told: None,
        };
        drop(control.spawn(async move {
            work.run(pieces).await;
            drop(running);
        }));
        let outlet = Outlet { to, exported: Arc::clone(exported) };
        Self { destination, outlet, closing, ended }
    }

    /// Whether it already serves this destination.
    pub fn is(&self, destination: &Destination) -> bool {
        *self.destination == *destination
    }

    /// The sending side.
    pub fn outlet(&self) -> Outlet {
        self.outlet.clone()
    }

    /// Ends the input, and waits up to `limit` for the rest to be sent.
    pub fn end(self, limit: Duration) {
        let Self { outlet, closing, ended, .. } = self;
        drop((outlet, closing));
        let _ = ended.recv_timeout(limit); // disconnected, or late and the rest is lost
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("destination", &self.destination).finish_non_exhaustive()
    }
}

// === impl Outlet, Outbox ===

impl Outlet {
    /// A buffer for a core.
    pub fn outbox(self) -> Outbox {
        Outbox { outlet: self, piece: Piece::default() }
    }

    /// Hands encoded elements over without waiting. If too many pieces already wait, returns them and counts the
    /// loss.
    pub(crate) fn hand_over(&self, bytes: Vec<u8>, count: u64) -> Result<(), Vec<u8>> {
        self.to.try_send(Piece { bytes, count }).map_err(|refused| {
            self.exported.lose(Lost::Slow, count);
            refused.into_inner().bytes
        })
    }
}

impl Outbox {
    /// Adds one element, which `write` appends.
    pub(crate) fn add(&mut self, elements: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let bytes = &mut self.piece.bytes;
        if bytes.capacity() == 0 {
            bytes.reserve_exact(PIECE_BYTES + 4096);
        }
        write(bytes);
        self.piece.count += elements;
        if self.piece.bytes.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    /// Hands over the buffer. A core calls this every 200 ms.
    pub(crate) fn flush(&mut self) {
        if self.piece.count == 0 {
            return;
        }
        let Piece { bytes, count } = std::mem::take(&mut self.piece);
        if let Err(mut refused) = self.outlet.hand_over(bytes, count) {
            refused.clear();
            self.piece.bytes = refused;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.flush();
    }
}

impl TakesRecords for Outlet {
    fn take(&self, records: Vec<u8>, count: u64) -> Result<(), Vec<u8>> {
        self.hand_over(records, count)
    }
}

// === the task ===

/// The task's state.
struct Work {
    destination: Arc<Destination>,
    exported: Arc<Exported>,
    fetcher: Fetcher,
    closed: watch::Receiver<()>,
    next_told: Option<Instant>,
}

impl Work {
    async fn run(mut self, mut pieces: mpsc::Receiver<Piece>) {
        while let Some(first) = pieces.recv().await {
            let batch = self.gather(first, &mut pieces).await;
            self.deliver(&batch).await;
        }
    }

    /// Collects the pieces that arrive within [`LINGER`].
    async fn gather(&mut self, first: Piece, pieces: &mut mpsc::Receiver<Piece>) -> Vec<Piece> {
        let until = tokio::time::Instant::now() + LINGER;
        let mut size = first.bytes.len();
        let mut batch = vec![first];
        while size < BATCH_BYTES {
            let next = tokio::select! {
                biased;
                next = pieces.recv() => next,
                () = hung_up(&mut self.closed) => pieces.try_recv().ok(),
                () = tokio::time::sleep_until(until) => None,
            };
            let Some(next) = next else { break };
            size += next.bytes.len();
            batch.push(next);
        }
        batch
    }

    /// Sends a batch until it is accepted, refused, or too old.
    async fn deliver(&mut self, batch: &[Piece]) {
        let count = batch.iter().map(|piece| piece.count).sum();
        let parts: Vec<&[u8]> = batch.iter().map(|piece| &*piece.bytes).collect();
        let resource = self.destination.resource.iter().map(|(key, value)| (&**key, &**value));
        let body = Bytes::from(otlp::request(resource, env!("CARGO_PKG_VERSION"), &parts));
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            let answer = self.fetcher.fetch(self.request(&body)).await;
            match answer::judge(self.destination.protocol, &answer, SystemTime::now()) {
                Verdict::Taken => return self.exported.sent(count),
                Verdict::TakenInPart(told) => {
                    let rejected = told.rejected.min(count);
                    self.exported.sent(count - rejected);
                    self.exported.lose(Lost::Rejected, rejected);
                    return self.tell("a collector refused a part", rejected, &told.message);
                }
                Verdict::Refused(why) => {
                    self.exported.lose(Lost::Rejected, count);
                    return self.tell("a collector refused a batch", count, &why);
                }
                Verdict::Again { after, why } => {
                    let wait = after.unwrap_or(pause).clamp(PAUSE, PAUSE_MOST);
                    pause = (pause * 2).min(PAUSE_MOST);
                    let late = began.elapsed() + wait > PERSIST;
                    if late || self.is_closing() {
                        self.exported.lose(Lost::Failed, count);
                        return self.tell("a collector accepted no batch in time", count, &why);
                    }
                    self.tell("a collector is unreachable or busy: its data is queued", 0, &why);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = hung_up(&mut self.closed) => {}
                    }
                }
            }
        }
    }

    fn request(&self, body: &Bytes) -> FetchRequest {
        let Destination { signal, url, protocol, headers, trust, timeout, .. } = &*self.destination;
        let (method, end) = match signal {
            Signal::Logs => (GRPC_LOGS, "/v1/logs"),
            Signal::Spans => (GRPC_SPANS, "/v1/traces"),
        };
        let (url, version, media) = match protocol {
            Protocol::Grpc => (url.with_target(method), Version::Http2, "application/grpc"),
            Protocol::Http => (url.with_end(end), Version::Http11, "application/x-protobuf"),
        };
        let mut request = FetchRequest::get(url, ANSWER_BYTES, *timeout);
        request.method = "POST".to_owned();
        request.version = version;
        request.headers.clone_from(headers);
        request.headers.extend(field("content-type", media));
        request.body = match protocol {
            Protocol::Grpc => {
                request.headers.extend(field("te", "trailers"));
                grpc::framed(body).into()
            }
            Protocol::Http => body.clone(),
        };
        request.trust = trust.clone();
        request
    }

    /// Whether the task is to end.
    fn is_closing(&self) -> bool {
        self.closed.has_changed().is_err()
    }

    /// Logs what went wrong, at most once per [`TELL`].
    fn tell(&mut self, what: &'static str, lost: u64, why: &str) {
        let now = Instant::now();
        if self.next_told.is_some_and(|next| now < next) {
            return;
        }
        self.next_told = Some(now + TELL);
        let (url, total) = (self.destination.url.shown(), self.exported.lost());
        log::warn(what, &[("url", &url), ("lost", &lost), ("lost_so_far", &total), ("why", &why)]);
    }
}

/// The methods of opentelemetry-proto's services.
const GRPC_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const GRPC_SPANS: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

fn field(name: &str, value: &str) -> Option<(FieldName, Vec<u8>)> {
    Some((FieldName::new(name).ok()?, value.as_bytes().to_vec()))
}

/// Waits until the other end is dropped.
async fn hung_up(closed: &mut watch::Receiver<()>) {
    while closed.changed().await.is_ok() {}
}

#[cfg(test)]
mod tests;
