//! Spans and log records in the OpenTelemetry protocol (OTLP), as protobuf.
//!
//! A core writes each span into its own buffer; the sender of a batch adds the frame around it ([`request`]). The
//! field numbers are those of opentelemetry-proto 1.x (`trace/v1/trace.proto`, `logs/v1/logs.proto`,
//! `common/v1/common.proto` and `collector/*/v1/*_service.proto`). We write a dozen messages and read one, which is
//! less code than a generator would produce.

use std::time::{SystemTime, UNIX_EPOCH};

mod wire;

pub use wire::Attributes;
use wire::{Fields, Reader, Value};

/// Most bytes of a text from a peer.
pub const TEXT_BYTES: usize = 2048;

/// The semantic conventions that define our attribute names.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.27.0";

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A sent request.
    Client = 3,
    /// A served request.
    Server = 2,
}

/// One span. A function writes attributes and events, so that nothing is collected first.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The trace that it belongs to.
    pub trace: u128,
    /// Its own id.
    pub id: u64,
    /// The span that caused it; 0 for none.
    pub parent: u64,
    /// Whether the parent belongs to another process.
    pub remote_parent: bool,
    /// The `tracestate` to pass on.
    pub state: &'a str,
    /// A name with few distinct values: `GET /orders/{id}`.
    pub name: &'a str,
    /// The kind of the span.
    pub kind: SpanKind,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// Whether it failed.
    pub failed: bool,
}

impl Span<'_> {
    /// Appends the span as an element of `ScopeSpans.spans`. `more` writes its attributes and events.
    pub fn write(&self, out: &mut Vec<u8>, more: impl FnOnce(&mut Attributes<'_>)) {
        /// The low byte holds the trace flags: sampled. The bits above say that we know whether the parent is remote,
        /// and that it is.
        const SAMPLED: u32 = 0x01;
        const KNOWN: u32 = 0x100;
        const REMOTE: u32 = 0x200;
        const STATUS_CODE_ERROR: u64 = 2;
        Fields::new(out).message(2, |span| {
            span.bytes(1, &self.trace.to_be_bytes());
            span.bytes(2, &self.id.to_be_bytes());
            if !self.state.is_empty() {
                span.text(3, self.state.as_bytes());
            }
            if self.parent != 0 {
                span.bytes(4, &self.parent.to_be_bytes());
            }
            span.text(5, self.name.as_bytes());
            span.number(6, self.kind as u64);
            span.fixed64(7, nanos(self.start));
            span.fixed64(8, nanos(self.end));
            more(&mut Attributes::new(span, 9));
            if self.failed {
                span.message(15, |status| status.number(3, STATUS_CODE_ERROR));
            }
            span.fixed32(16, SAMPLED | KNOWN | if self.remote_parent { REMOTE } else { 0 });
        });
    }
}

/// One log record.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// When it happened.
    pub time: SystemTime,
    /// The severity as a `SeverityNumber`: 9 is INFO, 13 WARN, 17 ERROR.
    pub severity: u8,
    /// What happened, in one line.
    pub body: &'a [u8],
    /// The trace that it belongs to; 0 for none.
    pub trace: u128,
    /// Its span in that trace.
    pub span: u64,
}

impl LogRecord<'_> {
    /// Appends the record as an element of `ScopeLogs.log_records`.
    pub fn write(&self, out: &mut Vec<u8>, more: impl FnOnce(&mut Attributes<'_>)) {
        Fields::new(out).message(2, |record| {
            record.fixed64(1, nanos(self.time));
            record.number(2, self.severity.into());
            record.message(5, |body| body.text(1, self.body));
            more(&mut Attributes::new(record, 6));
            if self.trace != 0 {
                record.bytes(9, &self.trace.to_be_bytes());
                record.bytes(10, &self.span.to_be_bytes());
            }
            record.fixed64(11, nanos(self.time));
        });
    }
}

/// A request to the trace or log service around `elements`, written by [`Span::write`] or [`LogRecord::write`].
///
/// Both services nest the same way: `resource_spans`/`resource_logs` 1, in it `resource` 1,
/// `scope_spans`/`scope_logs` 2 and `schema_url` 3, in that `scope` 1 and the elements.
pub fn request<'a>(
    resource: impl IntoIterator<Item = (&'a str, &'a str)>,
    version: &str,
    elements: &[&[u8]],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(elements.iter().map(|part| part.len()).sum::<usize>() + 1024);
    Fields::new(&mut out).message(1, |of_resource| {
        of_resource.message(1, |written| {
            let mut attributes = Attributes::new(written, 1);
            resource.into_iter().for_each(|(key, value)| attributes.text(key, value));
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, b"weir");
                scope.text(2, version.as_bytes());
            });
            elements.iter().for_each(|part| of_scope.raw(part));
        });
        of_resource.text(3, SCHEMA_URL.as_bytes());
    });
    out
}

/// The elements that a collector rejected from an accepted batch: `partial_success` of the services' responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    /// How many elements it rejected.
    pub rejected: u64,
    /// The reason, or any other message.
    pub message: String,
}

/// Parses the response of a collector; ignores anything it cannot parse. `None`: the collector accepted everything.
pub fn partial_success(response: &[u8]) -> Option<PartialSuccess> {
    let mut found = PartialSuccess::default();
    for (field, value) in Reader::new(response) {
        let (1, Value::Bytes(inner)) = (field, value) else { continue };
        for (field, value) in Reader::new(inner) {
            match (field, value) {
                // A negative int64 would be an error of the collector.
                (1, Value::Number(n)) => found.rejected = if i64::try_from(n).is_ok() { n } else { 0 },
                (2, Value::Bytes(text)) => {
                    let text = text.get(..text.len().min(TEXT_BYTES)).unwrap_or_default();
                    found.message = String::from_utf8_lossy(text).into_owned();
                }
                _ => {}
            }
        }
    }
    (found != PartialSuccess::default()).then_some(found)
}

/// Nanoseconds since 1970; until the year 2554.
fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The output of the Python package `opentelemetry-proto` 1.45 for a `ScopeSpans` of this one span.
    const SPAN: &str = "1296010a100102030405060708090a0b0c0d0e0f10120811121314151617181a03613d62220821222324252627282a05474554202f\
        30023901000000000000004102010000000000004a200a19687474702e726573706f6e73652e7374617475735f636f6465120318f6035a22090100\
        000000000000120b66696c7465722e776169741a0a0a016612050a036a77747a021802850101030000";

    #[test]
    fn a_span_as_others_write_it() {
        let span = Span {
            trace: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            id: 0x1112_1314_1516_1718,
            parent: 0x2122_2324_2526_2728,
            remote_parent: true,
            state: "a=b",
            name: "GET /",
            kind: SpanKind::Server,
            start: UNIX_EPOCH + Duration::from_nanos(1),
            end: UNIX_EPOCH + Duration::from_nanos(258),
            failed: true,
        };
        let mut out = Vec::new();
        span.write(&mut out, |more| {
            more.number("http.response.status_code", 502);
            more.event(UNIX_EPOCH + Duration::from_nanos(1), "filter.wait", |event| event.text("f", "jwt"));
        });
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, SPAN);
    }

    #[test]
    fn a_request_holds_its_elements() {
        let parts = [&[0x12, 1, 0xaa][..], &[0x12, 1, 0xbb]];
        let out = request([("service.name", "weir")], "1.0", &parts);
        let (_, Value::Bytes(of_resource)) = Reader::new(&out).next().unwrap() else { panic!("{out:?}") };
        let scope = Reader::new(of_resource).find_map(|(field, value)| match value {
            Value::Bytes(bytes) if field == 2 => Some(bytes),
            _ => None,
        });
        let elements = Reader::new(scope.unwrap()).filter(|(field, _)| *field == 2);
        let elements: Vec<_> = elements.map(|(_, value)| value).collect();
        assert_eq!(elements, [Value::Bytes(&[0xaa]), Value::Bytes(&[0xbb])]);
    }

    #[test]
    fn what_a_collector_refused() {
        assert_eq!(partial_success(b""), None);
        assert_eq!(partial_success(b"\x0a\0"), None);
        let told = PartialSuccess { rejected: 300, message: "full".to_owned() };
        assert_eq!(partial_success(b"\x0a\x09\x08\xac\x02\x12\x04full"), Some(told));
        let below_zero = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(partial_success(below_zero), None);
        // Hostile input: cut anywhere, it is parsed as far as possible.
        let whole = b"\x0a\x09\x08\xac\x02\x12\x04full";
        for end in 0..whole.len() {
            let _ = partial_success(&whole[..end]);
        }
        assert_eq!(partial_success(&[0xff; 64]), None);
    }
}
