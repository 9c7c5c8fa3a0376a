//! The messages of Envoy's external processing as bytes: what we send, and the part of the answers that we follow.
//!
//! Source: envoy/service/ext_proc/v3/external_processor.proto, envoy/config/core/v3/base.proto and
//! envoy/extensions/filters/http/ext_proc/v3/processing_mode.proto. Fields that are not read here are ignored:
//! dynamic metadata, `clear_route_cache`, `override_message_timeout`, `trailers` of a body's answer.

use weir_transcode::wire::{self, Value};

/// What a message or its answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
}

/// Most fields that one answer may set, and remove.
const MUTATIONS: usize = 100;

/// Longest names and values that one answer may set, in total, in bytes.
const MUTATION_BYTES: usize = 64 * 1024;

/// A field as sent: name and value.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

/// A change of header fields or trailers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mutation {
    pub(super) set: Vec<Set>,
    pub(super) remove: Vec<String>,
}

/// A field to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    pub(super) action: Action,
}

/// What happens if the field exists, and if it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    AddIfAbsent,
    Append,
    Overwrite,
    OverwriteIfExists,
}

/// How bodies, heads and trailers are processed, as far as an answer says: `None` leaves what was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Override {
    pub(super) request_body: Option<u64>,
    pub(super) request_trailers: Option<bool>,
    pub(super) response_body: Option<u64>,
    pub(super) response_headers: Option<bool>,
    pub(super) response_trailers: Option<bool>,
}

/// The content of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) mutation: Mutation,
    /// The new body.
    pub(super) body: Option<Vec<u8>>,
    /// CONTINUE_AND_REPLACE: the body is replaced as a whole, and not sent to the processor.
    pub(super) replaces: bool,
}

/// An answer in place of the upstream's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Immediate {
    pub(super) status: u64,
    pub(super) mutation: Mutation,
    pub(super) body: Vec<u8>,
    pub(super) grpc_status: Option<u64>,
}

/// One message from the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Immediate(Immediate),
    Of(Phase, Common, Option<Override>),
}

/// Why a message cannot be followed.
pub(super) type Wrong = &'static str;

const MALFORMED: Wrong = "it sent no valid message";

impl From<wire::Malformed> for Unreadable {
    fn from(_: wire::Malformed) -> Self {
        Self(MALFORMED)
    }
}

/// Why a message cannot be followed, for `?`.
struct Unreadable(Wrong);

// === what we send ===

/// A message with the fields of a head. `ends`: no body follows.
pub(super) fn headers(phase: Phase, fields: &[Pair<'_>], ends: bool) -> Vec<u8> {
    framed(phase, |out| {
        map(1, fields, out);
        if ends {
            wire::write_number(3, 1, out);
        }
    })
}

/// A message with a piece of a body.
pub(super) fn body(phase: Phase, data: &[u8], ends: bool) -> Vec<u8> {
    framed(phase, |out| {
        if !data.is_empty() {
            wire::write_bytes(1, data, out);
        }
        if ends {
            wire::write_number(2, 1, out);
        }
    })
}

/// A message with trailers.
pub(super) fn trailers(phase: Phase, fields: &[Pair<'_>]) -> Vec<u8> {
    framed(phase, |out| map(1, fields, out))
}

fn framed(phase: Phase, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = weir_transcode::frames::begin(&mut out);
    wire::write_key(phase.in_request(), wire::BYTES, &mut out);
    let begun = wire::open(&mut out);
    write(&mut out);
    wire::close(begun, &mut out);
    weir_transcode::frames::end(frame, &mut out);
    out
}

/// A HeaderMap. Values go as bytes (`raw_value`), as from Envoy: they need not be UTF-8.
fn map(number: u32, fields: &[Pair<'_>], out: &mut Vec<u8>) {
    wire::write_key(number, wire::BYTES, out);
    let begun = wire::open(out);
    for (name, value) in fields {
        wire::write_key(1, wire::BYTES, out);
        let field = wire::open(out);
        wire::write_bytes(1, &name.to_ascii_lowercase(), out);
        wire::write_bytes(3, value, out);
        wire::close(field, out);
    }
    wire::close(begun, out);
}

impl Phase {
    /// The field of ProcessingRequest.
    const fn in_request(self) -> u32 {
        match self {
            Self::RequestHeaders => 2,
            Self::ResponseHeaders => 3,
            Self::RequestBody => 4,
            Self::ResponseBody => 5,
            Self::RequestTrailers => 6,
            Self::ResponseTrailers => 7,
        }
    }

    /// From the field of ProcessingResponse.
    const fn of_response(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::RequestHeaders,
            2 => Self::ResponseHeaders,
            3 => Self::RequestBody,
            4 => Self::ResponseBody,
            5 => Self::RequestTrailers,
            6 => Self::ResponseTrailers,
            _ => return None,
        })
    }
}

// === what we read ===

/// Reads a ProcessingResponse.
pub(super) fn reply(message: &[u8]) -> Result<Reply, Wrong> {
    read_reply(message).map_err(|Unreadable(why)| why)
}

fn read_reply(message: &[u8]) -> Result<Reply, Unreadable> {
    let (mut found, mut mode) = (None, None);
    each(message, |number, value| {
        match (number, value) {
            (7, Value::Bytes(bytes)) => found = Some(Reply::Immediate(immediate(bytes)?)),
            (9, Value::Bytes(bytes)) => mode = Some(overridden(bytes)?),
            (11, _) => {
                return Err(Unreadable("it sent a streamed immediate response, which is not supported"));
            }
            (1..=6, Value::Bytes(bytes)) => {
                if let Some(phase) = Phase::of_response(number) {
                    // Of a oneof, the last counts.
                    found = Some(Reply::Of(phase, of_phase(phase, bytes)?, None));
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    match found {
        Some(Reply::Of(phase, common, _)) => Ok(Reply::Of(phase, common, mode)),
        Some(reply) => Ok(reply),
        None => Err(Unreadable("it sent an answer without content")),
    }
}

/// HeadersResponse, BodyResponse or TrailersResponse.
fn of_phase(phase: Phase, message: &[u8]) -> Result<Common, Unreadable> {
    let mut common = Common::default();
    each(message, |number, value| {
        if let (1, Value::Bytes(bytes)) = (number, value) {
            match phase {
                Phase::RequestTrailers | Phase::ResponseTrailers => mutation(bytes, &mut common.mutation)?,
                _ => read_common(bytes, &mut common)?,
            }
        }
        Ok(())
    })?;
    Ok(common)
}

fn read_common(message: &[u8], common: &mut Common) -> Result<(), Unreadable> {
    each(message, |number, value| {
        match (number, value) {
            (1, Value::Varint(status)) => common.replaces = status == 1,
            (2, Value::Bytes(bytes)) => mutation(bytes, &mut common.mutation)?,
            (3, Value::Bytes(bytes)) => each(bytes, |number, value| {
                match (number, value) {
                    (1, Value::Bytes(body)) => common.body = Some(body.to_vec()),
                    (2, Value::Varint(clears)) => common.body = (clears != 0).then(Vec::new),
                    (3, _) => {
                        return Err(Unreadable("it sent a streamed response, which belongs to full duplex"));
                    }
                    _ => {}
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })
}

fn immediate(message: &[u8]) -> Result<Immediate, Unreadable> {
    let mut answer = Immediate { status: 200, ..Immediate::default() };
    each(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(bytes)) => number_in(bytes, |code| answer.status = code)?,
            (2, Value::Bytes(bytes)) => mutation(bytes, &mut answer.mutation)?,
            (3, Value::Bytes(bytes)) => answer.body = bytes.to_vec(),
            (4, Value::Bytes(bytes)) => {
                answer.grpc_status = Some(0);
                number_in(bytes, |code| answer.grpc_status = Some(code))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(answer)
}

/// The number in the first field of a message.
fn number_in(message: &[u8], mut take: impl FnMut(u64)) -> Result<(), Unreadable> {
    each(message, |number, value| {
        if let (1, Value::Varint(code)) = (number, value) {
            take(code);
        }
        Ok(())
    })
}

fn mutation(message: &[u8], into: &mut Mutation) -> Result<(), Unreadable> {
    each(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(bytes)) => into.set.extend(set(bytes)?),
            (2, Value::Bytes(bytes)) => into.remove.push(text(bytes)?),
            _ => {}
        }
        if into.set.len().max(into.remove.len()) > MUTATIONS {
            return Err(Unreadable("it changes more than 100 fields at once"));
        }
        Ok(())
    })?;
    let bytes: usize = into.set.iter().map(|set| set.name.len() + set.value.len()).sum();
    if bytes > MUTATION_BYTES {
        return Err(Unreadable("it sets more than 64 KiB of fields at once"));
    }
    Ok(())
}

/// HeaderValueOption. `append_action` counts if it is not its default, otherwise `append`, which is false by default:
/// as in Envoy, a field is overwritten unless the answer says otherwise.
fn set(message: &[u8]) -> Result<Option<Set>, Unreadable> {
    let (mut header, mut append, mut action) = (None, false, 0);
    each(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(bytes)) => header = Some(field(bytes)?),
            (2, Value::Bytes(bytes)) => number_in(bytes, |value| append = value != 0)?,
            (3, Value::Varint(value)) => action = value,
            _ => {}
        }
        Ok(())
    })?;
    let action = match action {
        0 if append => Action::Append,
        0 | 2 => Action::Overwrite,
        1 => Action::AddIfAbsent,
        3 => Action::OverwriteIfExists,
        _ => return Err(Unreadable("it sent an unknown append_action")),
    };
    Ok(header.map(|(name, value)| Set { name, value, action }))
}

/// HeaderValue.
fn field(message: &[u8]) -> Result<(String, Vec<u8>), Unreadable> {
    let (mut name, mut value, mut raw) = (String::new(), Vec::new(), Vec::new());
    each(message, |number, bytes| {
        match (number, bytes) {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (2, Value::Bytes(bytes)) => value = bytes.to_vec(),
            (3, Value::Bytes(bytes)) => raw = bytes.to_vec(),
            _ => {}
        }
        Ok(())
    })?;
    if !value.is_empty() && !raw.is_empty() {
        return Err(Unreadable("it sent a field with both value and raw_value"));
    }
    Ok((name.to_ascii_lowercase(), if raw.is_empty() { value } else { raw }))
}

/// ProcessingMode.
fn overridden(message: &[u8]) -> Result<Override, Unreadable> {
    let mut mode = Override::default();
    // DEFAULT leaves what was; 1 is SEND, 2 is SKIP.
    let sends = |value| match value {
        1 => Some(true),
        2 => Some(false),
        _ => None,
    };
    each(message, |number, value| {
        match (number, value) {
            (2, Value::Varint(value)) => mode.response_headers = sends(value),
            (3, Value::Varint(value)) => mode.request_body = Some(value),
            (4, Value::Varint(value)) => mode.response_body = Some(value),
            (5, Value::Varint(value)) => mode.request_trailers = sends(value),
            (6, Value::Varint(value)) => mode.response_trailers = sends(value),
            _ => {}
        }
        Ok(())
    })?;
    // An enum that is not written has its default: no body. Bodies have no DEFAULT.
    mode.request_body = mode.request_body.or(Some(0));
    mode.response_body = mode.response_body.or(Some(0));
    Ok(mode)
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable(MALFORMED))
}

fn each<'a>(
    message: &'a [u8],
    mut take: impl FnMut(u32, Value<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    let mut rest = message;
    while !rest.is_empty() {
        let (number, value) = wire::field(&mut rest)?;
        take(number, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &[(u32, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        parts.iter().for_each(|(number, bytes)| wire::write_bytes(*number, bytes, &mut out));
        out
    }

    fn numbers(parts: &[(u32, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        parts.iter().for_each(|(number, value)| wire::write_number(*number, *value, &mut out));
        out
    }

    #[test]
    fn what_is_sent() {
        let fields: [Pair<'_>; 2] = [(b":path", b"/"), (b"X-A", b"\xff")];
        let sent = headers(Phase::RequestHeaders, &fields, true);
        let map = message(&[
            (1, &message(&[(1, b":path"), (3, b"/")])),
            (1, &message(&[(1, b"x-a"), (3, b"\xff")])),
        ]);
        let expected = message(&[(2, &[message(&[(1, &map)]), numbers(&[(3, 1)])].concat())]);
        assert_eq!(sent[..5], [0, 0, 0, 0, u8::try_from(expected.len()).unwrap()]);
        assert_eq!(sent[5..], expected);
        assert_eq!(body(Phase::ResponseBody, b"", true)[5..], message(&[(5, &numbers(&[(2, 1)]))]));
        assert_eq!(body(Phase::RequestBody, b"ab", false)[5..], message(&[(4, &message(&[(1, b"ab")]))]));
        let sent = trailers(Phase::ResponseTrailers, &[(b"t", b"1")]);
        let map = message(&[(1, &message(&[(1, b"t"), (3, b"1")]))]);
        assert_eq!(sent[5..], message(&[(7, &message(&[(1, &map)]))]));
    }

    fn option(name: &[u8], value: &[u8], more: &[u8]) -> Vec<u8> {
        [message(&[(1, &message(&[(1, name), (3, value)]))]), more.to_vec()].concat()
    }

    #[test]
    fn actions() {
        let true_value = numbers(&[(1, 1)]);
        for (more, action) in [
            (Vec::new(), Action::Overwrite),
            (message(&[(2, &true_value)]), Action::Append),
            (message(&[(2, b"")]), Action::Overwrite),
            (numbers(&[(3, 1)]), Action::AddIfAbsent),
            (numbers(&[(3, 2)]), Action::Overwrite),
            (numbers(&[(3, 3)]), Action::OverwriteIfExists),
            ([message(&[(2, &true_value)]), numbers(&[(3, 2)])].concat(), Action::Overwrite),
        ] {
            let mutation = message(&[(1, &option(b"X-A", b"1", &more)), (2, b"x-b")]);
            let answer = message(&[(1, &message(&[(1, &message(&[(2, &mutation)]))]))]);
            let Ok(Reply::Of(Phase::RequestHeaders, common, None)) = reply(&answer) else {
                panic!("{answer:?}")
            };
            assert_eq!(common.mutation.set, [Set { name: "x-a".into(), value: b"1".into(), action }]);
            assert_eq!(common.mutation.remove, ["x-b"]);
        }
    }

    #[test]
    fn answers() {
        let replaced = [numbers(&[(1, 1)]), message(&[(3, &message(&[(1, b"new")]))])].concat();
        let answer = message(&[(3, &message(&[(1, &replaced)])), (8, b"ignored")]);
        let expected = Common { body: Some(b"new".into()), replaces: true, ..Common::default() };
        assert_eq!(reply(&answer), Ok(Reply::Of(Phase::RequestBody, expected, None)));
        let cleared = message(&[(4, &message(&[(1, &message(&[(3, &numbers(&[(2, 1)]))]))]))]);
        let expected = Common { body: Some(Vec::new()), ..Common::default() };
        assert_eq!(reply(&cleared), Ok(Reply::Of(Phase::ResponseBody, expected, None)));
        let mode = numbers(&[(2, 2), (3, 1), (6, 1)]);
        let Ok(Reply::Of(_, _, Some(mode))) = reply(&message(&[(1, b""), (9, &mode)])) else { panic!() };
        assert_eq!(
            mode,
            Override {
                response_headers: Some(false),
                request_body: Some(1),
                response_body: Some(0),
                request_trailers: None,
                response_trailers: Some(true),
            }
        );
        let refused =
            message(&[(7, &message(&[(1, &numbers(&[(1, 403)])), (3, b"no"), (4, &numbers(&[(1, 7)]))]))]);
        let expected =
            Immediate { status: 403, body: b"no".into(), grpc_status: Some(7), ..Immediate::default() };
        assert_eq!(reply(&refused), Ok(Reply::Immediate(expected)));
    }

    #[test]
    fn what_cannot_be_followed() {
        let many: Vec<u8> = (0..101).flat_map(|_| message(&[(1, &option(b"x", b"1", b""))])).collect();
        let both = message(&[(1, &message(&[(1, b"x"), (2, b"1"), (3, b"1")]))]);
        for (answer, why) in [
            (b"\x07".to_vec(), "no valid message"),
            (Vec::new(), "without content"),
            (message(&[(11, b"")]), "streamed immediate"),
            (message(&[(3, &message(&[(1, &message(&[(3, &message(&[(3, b"")]))]))]))]), "full duplex"),
            (message(&[(5, &message(&[(1, &many)]))]), "more than 100"),
            (message(&[(5, &message(&[(1, &message(&[(1, &both)]))]))]), "both value and raw_value"),
            (
                message(&[(5, &message(&[(1, &message(&[(1, &option(b"x", b"1", &numbers(&[(3, 9)])))]))]))]),
                "append_action",
            ),
            (message(&[(5, &message(&[(1, &message(&[(2, b"\xff")]))]))]), "no valid message"),
        ] {
            let found = reply(&answer).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
