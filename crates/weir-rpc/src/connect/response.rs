//! The response direction: the response to a gRPC call becomes a Connect response.

use super::{Call, Codec, Connect, Names, RESPONSE_MALFORMED, Stage, State};
use crate::descriptors::{self, for_client, is_messages, is_of_grpc, named};
use crate::prelude::*;
use std::time::SystemTime;
use weir_h1::FieldName;
use weir_transcode::connect;
use weir_transcode::frames::{self, FrameError, Messages, Single};
use weir_transcode::{ErrorStyle, PrintError, Status, http_status, of_http};

/// HTTP fields. In a trailers-only response, all other fields are trailers.
const OF_HTTP: &[&[u8]] = &[
    b"age",
    b"alt-svc",
    b"cache-control",
    b"date",
    b"etag",
    b"expires",
    b"last-modified",
    b"location",
    b"retry-after",
    b"server",
    b"server-timing",
    b"set-cookie",
    b"strict-transport-security",
    b"vary",
    b"via",
    b"www-authenticate",
    b"x-weir-cause",
];

type Headers = Vec<(FieldName, Vec<u8>)>;

/// The result of reading a unary response.
enum Outcome {
    /// The message in the client's format, and whether it is still compressed.
    Message(Vec<u8>, bool),
    /// A status from the service.
    Status(Status),
    /// Not a valid gRPC response.
    Malformed(String),
}

impl Connect {
    pub(super) fn respond(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let state = cx.state::<State>();
        let (stage, wrong) = (std::mem::take(&mut state.stage), state.wrong.take());
        state.stage = Stage::Done;
        let mut call = match stage {
            Stage::Called(call) => call,
            Stage::Found(call) => return self.not_sent(&call, head, cx),
            Stage::Done | Stage::New => return Flow::Continue,
        };
        if let Some(status) = wrong {
            // A piece of the request was invalid, which caused this response.
            let status = named(status, cx);
            return self.failed(&call, &status, Vec::new(), Vec::new());
        }
        let fields = |name| head.headers.get_str(name);
        if let Some(code) = fields("grpc-status").filter(|code| *code != b"0") {
            let mut status = Status::read(code, fields("grpc-message"), fields("grpc-status-details-bin"));
            if cx.because().is_some() {
                status = named(status, cx); // the gateway answered
            }
            let (headers, trailers) = only_trailers(head);
            return self.failed(&call, &status, headers, trailers);
        }
        if !is_messages(head) {
            cx.answer_because(&RESPONSE_MALFORMED);
            let status = Status::new(of_http(head.status()), "the upstream's answer is not gRPC");
            let status = for_client(&RESPONSE_MALFORMED, status, cx);
            return self.failed(&call, &status, Vec::new(), Vec::new());
        }
        if call.streams {
            return self.stream(call, head, cx);
        }
        let gzip = fields("grpc-encoding").is_some_and(|coding| coding == b"gzip");
        let coding = fields("grpc-encoding").map(<[u8]>::to_vec);
        let code = fields("grpc-status").map(<[u8]>::to_vec);
        call.messages = Messages::new(self.message, gzip);
        match outcome(&mut call, code.as_deref(), coding.is_some(), cx) {
            Outcome::Message(body, compressed) => {
                self.fields(&call, head, coding.filter(|_| compressed), cx);
                cx.set_whole(body);
                Flow::Continue
            }
            Outcome::Status(status) => self.failed(&call, &status, headers(head), trailers(cx)),
            Outcome::Malformed(why) => {
                cx.answer_because(&RESPONSE_MALFORMED);
                let status = Status::new(13, format!("{} ({why})", RESPONSE_MALFORMED.meaning));
                let status = for_client(&RESPONSE_MALFORMED, status, cx);
                self.failed(&call, &status, Vec::new(), Vec::new())
            }
        }
    }

    /// The gateway refused the call before sending it: its body is too long, or did not arrive.
    fn not_sent(&self, call: &Call, head: &ResponseHead, cx: &mut Cx) -> Flow {
        let Some(failure) = cx.failure() else { return Flow::Continue };
        let code = match head.status() {
            408 => 4,
            413 => 8,
            status @ 400..=499 => of_http(status),
            _ => 14,
        };
        let status = named(Status::new(code, failure.detail.as_str()), cx);
        self.failed(call, &status, Vec::new(), Vec::new())
    }

    /// Writes the head of a unary response.
    fn fields(&self, call: &Call, head: &mut ResponseHead, coding: Option<Vec<u8>>, cx: &Cx) {
        head.headers.remove_where(|name, _| is_of_grpc(name));
        let media: &[u8] = match call.codec {
            Codec::Json => b"application/json",
            Codec::Proto => b"application/proto",
        };
        let _ = head.headers.insert(&self.names.content_type, media); // plain words
        if let Some(coding) = coding {
            let _ = head.headers.insert(&self.names.content_encoding, &coding); // as it was received
        }
        if head.headers.get_str("date").is_none() {
            let now = httpdate::fmt_http_date(SystemTime::now());
            let _ = head.headers.insert(&self.names.date, now.as_bytes()); // plain text
        }
        for (name, value) in trailers(cx) {
            if let Some(name) = trailing(&name) {
                let _ = head.headers.append(&name, &value); // a value that cannot be sent is left out
            }
        }
    }

    /// Writes the head of a stream.
    fn stream(&self, mut call: Box<Call>, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        call.told = head.headers.get_str("grpc-status").map(<[u8]>::to_vec);
        if !call.body {
            let (headers, trailers) = only_trailers(head);
            let status = Status::new(if call.told.is_some() { 0 } else { 2 }, "");
            return self.failed(&call, &status, headers, trailers);
        }
        let coding = head.headers.get_str("grpc-encoding").map(<[u8]>::to_vec);
        let is_gzip = coding.as_deref() == Some(b"gzip");
        call.messages = Messages::new(self.message, is_gzip);
        head.headers.remove_where(|name, _| is_of_grpc(name));
        let _ = head.headers.insert(&self.names.content_type, stream_media(call.codec)); // plain words
        if let Some(coding) = coding.filter(|_| call.codec == Codec::Proto) {
            let _ = head.headers.insert(&self.names.connect_content_encoding, &coding); // as it was received
        }
        cx.state::<State>().stage = Stage::Called(call);
        Flow::Continue
    }

    /// Handles a call that failed, or a stream that ended before its first message.
    fn failed(&self, call: &Call, status: &Status, mut headers: Headers, trailers: Headers) -> Flow {
        if call.streams {
            return ended(&self.names, call, status, headers, trailers);
        }
        headers.retain(|(name, _)| !is_gone(name));
        headers.push((self.names.content_type.clone(), b"application/json".to_vec()));
        headers.extend(trailers.into_iter().filter_map(|(name, value)| Some((trailing(&name)?, value))));
        let http = http_status(status.code, ErrorStyle::Google);
        Flow::Answer(Box::new(Answer { status: http, headers, body: connect::error(status).into() }))
    }
}

/// A stream that contains only its end.
pub(super) fn ended(
    names: &Names,
    call: &Call,
    status: &Status,
    mut headers: Headers,
    trailers: Headers,
) -> Flow {
    headers.retain(|(name, _)| !is_gone(name));
    headers.push((names.content_type.clone(), stream_media(call.codec).to_vec()));
    let mut body = Vec::new();
    let trailers = trailers.iter().map(|(name, value)| (name.as_str().as_bytes(), &value[..]));
    connect::end_stream(status, trailers, &mut body);
    Flow::Answer(Box::new(Answer { status: 200, headers, body: body.into() }))
}

const fn stream_media(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::Json => b"application/connect+json",
        Codec::Proto => b"application/connect+proto",
    }
}

fn is_gone(name: &FieldName) -> bool {
    is_of_grpc(name.as_str().as_bytes())
}

fn field(name: &[u8], value: &[u8]) -> Option<(FieldName, Vec<u8>)> {
    Some((FieldName::new(std::str::from_utf8(name).ok()?).ok()?, value.to_vec()))
}

/// The response fields that the client gets.
fn headers(head: &ResponseHead) -> Headers {
    let fields = head.headers.iter().filter(|(name, _)| !is_of_grpc(name));
    fields.filter_map(|(name, value)| field(name, value)).collect()
}

/// Splits the head of a trailers-only response into HTTP fields and trailers.
fn only_trailers(head: &ResponseHead) -> (Headers, Headers) {
    let is_http = |name: &[u8]| {
        OF_HTTP.iter().any(|known| name.eq_ignore_ascii_case(known))
            || name.get(..15).is_some_and(|start| start.eq_ignore_ascii_case(b"access-control-"))
    };
    headers(head).into_iter().partition(|(name, _)| is_http(name.as_str().as_bytes()))
}

/// The trailers of a response that was read whole.
fn trailers(cx: &Cx) -> Headers {
    let fields = cx.whole_trailers().filter(|(name, _)| !is_of_grpc(name));
    fields.filter_map(|(name, value)| field(name, value)).collect()
}

/// The name that a trailer gets in the head of a unary response.
fn trailing(name: &FieldName) -> Option<FieldName> {
    FieldName::new(&format!("trailer-{}", name.as_str())).ok()
}

/// Reads the message of a unary response and the status after it. `told`: the status in the head, if any.
fn outcome(call: &mut Call, told: Option<&[u8]>, coded: bool, cx: &Cx) -> Outcome {
    let Some(status) = descriptors::status(cx, told) else {
        return Outcome::Malformed("it ends without a status".to_owned());
    };
    if status.code != 0 {
        return Outcome::Status(status);
    }
    let (flags, message) = match frames::only(cx.whole()) {
        Single::One(flags, message) => (flags, message),
        Single::None => return Outcome::Malformed("it has no message".to_owned()),
        Single::Many => return Outcome::Malformed("it has several messages".to_owned()),
        Single::Cut => return Outcome::Malformed(FrameError::Cut.to_string()),
    };
    match call.codec {
        Codec::Proto if flags == 0 || (flags == frames::COMPRESSED && coded) => {
            Outcome::Message(message.to_vec(), flags != 0)
        }
        Codec::Proto => Outcome::Malformed(FrameError::Coding.to_string()),
        Codec::Json => {
            let mut out = Vec::with_capacity(message.len() * 2 + 32);
            let Call { messages, method, .. } = call;
            let read = messages.feed(cx.whole(), |message| write(method.as_ref(), message, &mut out));
            match read {
                Ok(()) => Outcome::Message(out, false),
                Err(Fault(why)) => Outcome::Malformed(why),
            }
        }
    }
}

/// Why a message cannot be translated.
struct Fault(String);

impl From<FrameError> for Fault {
    fn from(e: FrameError) -> Self {
        Self(e.to_string())
    }
}

impl From<PrintError> for Fault {
    fn from(e: PrintError) -> Self {
        Self(e.message)
    }
}

/// Appends the JSON of a message.
fn write(
    method: Option<&(std::sync::Arc<descriptors::Loaded>, usize)>,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let known = method.and_then(|(loaded, at)| Some((loaded, loaded.api.methods().get(*at)?)));
    let (loaded, method) = known.ok_or_else(|| Fault("nothing is known of the method".to_owned()))?;
    Ok(loaded.api.write(method, message, out)?)
}

/// Translates a piece of a response stream.
pub(super) fn piece(piece: &mut Piece<'_>, state: &mut State, exposed: bool) -> HookResult {
    let Stage::Called(call) = &mut state.stage else { return Ok(()) };
    if piece.is_pause() || !call.streams {
        return Ok(()); // only an incomplete message is held back
    }
    let mut out = Vec::new();
    let malformed = |why: String| {
        let mut refusal = Refusal::new(&RESPONSE_MALFORMED);
        refusal.detail = Some(why);
        refusal
    };
    match call.codec {
        Codec::Proto => call.boundary.pass(piece.data()),
        Codec::Json => {
            let Call { messages, method, .. } = &mut **call;
            let read = messages.feed(piece.data(), |message| {
                let begun = frames::begin(&mut out);
                write(method.as_ref(), message, &mut out)?;
                frames::end(begun, &mut out);
                Ok::<(), Fault>(())
            });
            read.map_err(|Fault(why)| malformed(why))?;
        }
    }
    if piece.is_last() {
        // In JSON no part of an incomplete message was sent, so it matters only if no status reports a failure.
        let failed = piece.trailer("grpc-status").is_some_and(|code| code != b"0");
        if !call.boundary.is_between() || (!failed && call.messages.finish().is_err()) {
            // The client would read anything after half a message as the rest of that message.
            return Err(malformed(FrameError::Cut.to_string()));
        }
        let status = match piece.trailer("grpc-status").or(call.told.as_deref()) {
            Some(code) => {
                Status::read(code, piece.trailer("grpc-message"), piece.trailer("grpc-status-details-bin"))
            }
            None => Status::new(2, if exposed { "the stream ends without a status" } else { Cx::neutral(0) }),
        };
        let trailers = piece.trailers().filter(|(name, _)| !is_of_grpc(name));
        connect::end_stream(&status, trailers, &mut out);
        piece.set_trailers(&[]);
    }
    match call.codec {
        Codec::Json => piece.replace(out),
        Codec::Proto if out.is_empty() => {}
        Codec::Proto => piece.replace([piece.data(), &out].concat()),
    }
    Ok(())
}
