//! The response direction: the response to a gRPC call becomes an HTTP response.

use super::{Calling, GrpcJson, RESPONSE_MALFORMED, Stage, State};
use crate::descriptors::{self, for_client, is_messages, is_of_grpc, named};
use crate::prelude::*;
use std::time::SystemTime;
use weir_h1::FieldName;
use weir_transcode::frames::{FrameError, Messages};
use weir_transcode::{PrintError, Status, of_http};

/// The result of reading a unary response.
enum Outcome {
    Json(Vec<u8>, Option<String>),
    /// A status from the service.
    Status(Status),
    /// Not a valid gRPC response.
    Malformed(String),
}

impl GrpcJson {
    pub(super) fn respond(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let state = cx.state::<State>();
        if let Some(wrong) = state.wrong.take() {
            // A piece of the request was invalid, which caused this response.
            return self.answer(wrong, None, cx);
        }
        if matches!(state.stage, Stage::Found(_) | Stage::New) && head.status() >= 400 {
            // The gateway refused the request before it became a call: its body is too long, or did not arrive.
            return self.refused(head, cx);
        }
        if !matches!(state.stage, Stage::Called(_)) {
            return Flow::Continue;
        }
        let Stage::Called(mut calling) = std::mem::take(&mut state.stage) else { return Flow::Continue };
        let code = head.headers.get_str("grpc-status").map(<[u8]>::to_vec);
        if let Some(code) = code.filter(|code| code != b"0") {
            let fields = |name| head.headers.get_str(name);
            let mut status = Status::read(&code, fields("grpc-message"), fields("grpc-status-details-bin"));
            if cx.because().is_some() {
                status = named(status, cx); // the gateway answered
            }
            return self.failed(&calling, &status, None, head, cx);
        }
        if !is_messages(head) {
            let status = Status::new(of_http(head.status()), "the upstream's answer is not gRPC");
            let status = for_client(&RESPONSE_MALFORMED, status, cx);
            cx.answer_because(&RESPONSE_MALFORMED);
            return self.failed(&calling, &status, Some(RESPONSE_MALFORMED.status), head, cx);
        }
        let gzip = head.headers.get_str("grpc-encoding").is_some_and(|coding| coding == b"gzip");
        let code = head.headers.get_str("grpc-status").map(<[u8]>::to_vec);
        calling.messages = Messages::new(self.manner.message, gzip);
        if calling.server_streams {
            return self.stream(calling, head, cx);
        }
        match outcome(&mut calling, code.as_deref(), cx) {
            Outcome::Json(body, media) => {
                self.fields(head, cx);
                let media = media.as_deref().unwrap_or("application/json");
                if calling.headless {
                    return self.answer_head(media, head, body, cx);
                }
                if head.headers.insert(&self.names.content_type, media.as_bytes()).is_err() {
                    let _ = head.headers.insert(&self.names.content_type, b"application/octet-stream"); // plain text
                }
                if head.headers.get_str("date").is_none() {
                    let now = httpdate::fmt_http_date(SystemTime::now());
                    let _ = head.headers.insert(&self.names.date, now.as_bytes()); // plain text
                }
                cx.set_whole(body);
                cx.state::<State>().stage = Stage::Done;
                Flow::Continue
            }
            Outcome::Status(status) => self.failed(&calling, &status, None, head, cx),
            Outcome::Malformed(why) => {
                cx.answer_because(&RESPONSE_MALFORMED);
                let status = Status::new(13, format!("{} ({why})", RESPONSE_MALFORMED.meaning));
                let status = for_client(&RESPONSE_MALFORMED, status, cx);
                self.failed(&calling, &status, Some(RESPONSE_MALFORMED.status), head, cx)
            }
        }
    }

    /// Writes the head of a stream.
    fn stream(&self, calling: Box<Calling>, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let media: &[u8] = if calling.loaded.api.answers_raw(&calling.call) {
            b"application/octet-stream"
        } else if calling.events {
            b"text/event-stream"
        } else {
            b"application/x-ndjson"
        };
        if calling.headless {
            self.fields(head, cx);
            return self.answer_head(&String::from_utf8_lossy(media), head, Vec::new(), cx);
        }
        head.headers.remove_where(|name, _| is_of_grpc(name));
        let _ = head.headers.insert(&self.names.content_type, media); // plain words
        let _ = head.headers.insert(&self.names.cache_control, b"no-cache");
        cx.state::<State>().stage = Stage::Called(calling);
        Flow::Continue
    }

    /// Adjusts the response fields: removes those of gRPC and adds the listed trailers.
    fn fields(&self, head: &mut ResponseHead, cx: &Cx) {
        head.headers.remove_where(|name, _| is_of_grpc(name));
        for name in &self.manner.response {
            if let Some(value) = cx.whole_trailer(name.as_str()) {
                let _ = head.headers.append(name, value); // a value that cannot be sent is left out
            }
        }
    }

    /// A response to HEAD. The gateway makes it itself, without a body, because the call was a POST.
    fn answer_head(&self, media: &str, head: &ResponseHead, body: Vec<u8>, cx: &mut Cx) -> Flow {
        let mut headers = vec![(self.names.content_type.clone(), media.as_bytes().to_vec())];
        headers.extend(kept(head));
        cx.state::<State>().stage = Stage::Done;
        Flow::Answer(Box::new(Answer { status: 200, headers, body: body.into() }))
    }

    /// The gateway's refusal of a request that was not a call yet, in this filter's error format.
    fn refused(&self, head: &ResponseHead, cx: &mut Cx) -> Flow {
        cx.state::<State>().stage = Stage::Done;
        let Some(cause) = cx.failure().and_then(|failure| failure.cause) else { return Flow::Continue };
        // With status 400 the client's message is at fault, which INTERNAL would not express.
        let code = if cause.status == 400 { 3 } else { weir_filter::grpc::status(cause).into() };
        let status = Status::new(code, cause.meaning);
        let style = self.manner.errors;
        let http = if status.response_status(style) == 200 { 200 } else { cause.status };
        let mut headers = vec![(self.names.content_type.clone(), Status::media(style).into())];
        headers.extend(kept(head).filter(|(name, _)| !is_of_grpc(name.as_str().as_bytes())));
        let body = for_client(cause, status, cx).body(None, style);
        Flow::Answer(Box::new(Answer { status: http, headers, body: body.into() }))
    }

    /// Reports a failed call to the client by an HTTP status. A status that the gateway chose is kept.
    fn failed(
        &self,
        calling: &Calling,
        status: &Status,
        http: Option<u16>,
        head: &mut ResponseHead,
        cx: &mut Cx,
    ) -> Flow {
        let style = self.manner.errors;
        let own = http.or_else(|| cx.because().map(|cause| cause.status).filter(|status| *status >= 400));
        let told = match status.response_status(style) {
            200 => 200,
            told => own.unwrap_or(told),
        };
        self.fields(head, cx);
        let mut headers = vec![(self.names.content_type.clone(), Status::media(style).into())];
        headers.extend(kept(head));
        let body = status.body(Some(&calling.loaded.api), style);
        cx.state::<State>().stage = Stage::Done;
        Flow::Answer(Box::new(Answer { status: told, headers, body: body.into() }))
    }
}

/// The fields that a replacing response keeps.
fn kept(head: &ResponseHead) -> impl Iterator<Item = (FieldName, Vec<u8>)> {
    head.headers.iter().filter_map(|(name, value)| {
        let name = FieldName::new(std::str::from_utf8(name).ok()?).ok()?;
        Some((name, value.to_vec()))
    })
}

/// Reads the message of a unary response and the status after it. `told`: the status in the head, if any.
fn outcome(calling: &mut Calling, told: Option<&[u8]>, cx: &Cx) -> Outcome {
    let Calling { loaded, call, messages, .. } = calling;
    let Some(status) = descriptors::status(cx, told) else {
        return Outcome::Malformed("it ends without a status".to_owned());
    };
    if status.code != 0 {
        return Outcome::Status(status);
    }
    let mut out = Vec::with_capacity(cx.whole().len() * 2 + 32);
    let (mut media, mut count) = (None, 0);
    let read = messages.feed(cx.whole(), |message| {
        count += 1;
        if count == 1 {
            media = loaded.api.response(call, message, &mut out)?;
        }
        Ok::<(), Fault>(())
    });
    let read = read.and_then(|()| messages.finish().map_err(Fault::Frame));
    match (read, count) {
        (Ok(()), 1) => Outcome::Json(out, media),
        (Ok(()), count) => Outcome::Malformed(format!("it has {count} messages where one was expected")),
        (Err(fault), _) => Outcome::Malformed(fault.into_text()),
    }
}

enum Fault {
    Frame(FrameError),
    Print(PrintError),
}

impl Fault {
    fn into_text(self) -> String {
        match self {
            Self::Frame(e) => e.to_string(),
            Self::Print(e) => e.message,
        }
    }
}

impl From<FrameError> for Fault {
    fn from(e: FrameError) -> Self {
        Self::Frame(e)
    }
}

impl From<PrintError> for Fault {
    fn from(e: PrintError) -> Self {
        Self::Print(e)
    }
}

/// Translates a piece of a response stream.
pub(super) fn piece(piece: &mut Piece<'_>, state: &mut State, exposed: bool) -> HookResult {
    let Stage::Called(calling) = &mut state.stage else { return Ok(()) };
    if piece.is_pause() {
        return Ok(()); // only an incomplete message is held back
    }
    let mut out = Vec::new();
    let Calling { loaded, call, messages, events, .. } = &mut **calling;
    let (raw, events) = (loaded.api.answers_raw(call), *events);
    let read = messages.feed(piece.data(), |message| {
        if events && !raw {
            out.extend_from_slice(b"data: ");
        }
        loaded.api.response(call, message, &mut out)?;
        if !raw {
            out.extend_from_slice(if events { b"\n\n" } else { b"\n" });
        }
        Ok::<(), Fault>(())
    });
    // No part of an incomplete message was sent, so it matters only if no status reports a failure.
    let failed = piece.trailer("grpc-status").is_some_and(|code| code != b"0");
    let read = match piece.is_last() && !failed {
        true => read.and_then(|()| messages.finish().map_err(Fault::Frame)),
        false => read,
    };
    if let Err(fault) = read {
        let mut refusal = Refusal::new(&RESPONSE_MALFORMED);
        refusal.detail = Some(fault.into_text());
        return Err(refusal);
    }
    if piece.is_last() && !std::mem::replace(&mut calling.ended, true) {
        let status = match piece.trailer("grpc-status") {
            Some(code) => {
                Status::read(code, piece.trailer("grpc-message"), piece.trailer("grpc-status-details-bin"))
            }
            None => Status::new(2, if exposed { "the stream ends without a status" } else { Cx::neutral(0) }),
        };
        if status.code != 0 && !raw {
            tell(calling, &status, &mut out);
        } else if status.code != 0 {
            return Err(Refusal::new(&RESPONSE_MALFORMED)); // raw bytes cannot carry an error
        }
        piece.set_trailers(&[]);
    }
    piece.replace(out);
    Ok(())
}

/// Writes the end of a failed stream: an event `error`, or a last line `{"error":{..}}`.
fn tell(calling: &Calling, status: &Status, out: &mut Vec<u8>) {
    let body = status.body(Some(&calling.loaded.api), weir_transcode::ErrorStyle::Google);
    let body = body.trim_ascii_end();
    if calling.events {
        out.extend_from_slice(b"event: error\ndata: ");
        out.extend_from_slice(body);
        out.extend_from_slice(b"\n\n");
    } else {
        out.extend_from_slice(b"{\"error\":");
        out.extend_from_slice(body);
        out.extend_from_slice(b"}\n");
    }
}
