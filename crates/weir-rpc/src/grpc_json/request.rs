//! The request direction: an HTTP request becomes a gRPC call.

use super::{
    ASKED_WHOLE, Calling, ErrorAnswer, GrpcJson, Loaded, NO_METHOD, REQUEST_MALFORMED, RULE_REFUSED, Stage,
    State, WRONG_METHOD,
};
use crate::descriptors::for_client;
use crate::prelude::*;
use std::sync::Arc;
use weir_h1::Method;
use weir_transcode::frames::{self, FrameError, Messages};
use weir_transcode::stream::{Values, ValuesError};
use weir_transcode::{Call, Lookup, Request, Status};

/// The page for trying out an API. `{path}` is the path of its description.
const PAGE: &str = include_str!("page.html");

/// Fields about the body and the accepted formats, which mean nothing to the service.
const OF_HTTP: &[&[u8]] = &[
    b"accept",
    b"accept-charset",
    b"accept-encoding",
    b"accept-language",
    b"cache-control",
    b"content-encoding",
    b"content-language",
    b"content-length",
    b"content-type",
    b"expect",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"pragma",
    b"range",
];

/// Fields that are always copied, whatever the settings list: the gateway's own, and the deadline.
const ALWAYS: &[&[u8]] = &[
    b"baggage",
    b"forwarded",
    b"grpc-timeout",
    b"host",
    b"traceparent",
    b"tracestate",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-request-id",
];

impl GrpcJson {
    /// Finds the call for the request, unless already done. Leaves the state new if the service has not described
    /// itself yet.
    pub(super) fn begin(&self, head: &RequestHead, cx: &mut Cx) {
        if !matches!(cx.state::<State>().stage, Stage::New) {
            return;
        }
        self.source.refresh(cx.core());
        let Some(loaded) = self.source.loaded() else { return };
        let name = std::str::from_utf8(head.method_name()).unwrap_or_default();
        let found = loaded.api.find(name, head.path());
        let wrong = |cause: &'static Cause, status| Some(ErrorAnswer { cause, status, methods: Vec::new() });
        let state = match found {
            Lookup::Call(call) => self.found(head, call, loaded),
            Lookup::Nothing if self.manner.pass || self.describes(head) => {
                State { stage: Stage::Done, wrong: None }
            }
            Lookup::Nothing => {
                self.source.refresh_for_unknown(cx.core());
                State { stage: Stage::Done, wrong: wrong(&NO_METHOD, Status::new(5, NO_METHOD.meaning)) }
            }
            Lookup::NotText => {
                let status = Status::new(3, "the path is not UTF-8");
                State { stage: Stage::Done, wrong: wrong(&REQUEST_MALFORMED, status) }
            }
            Lookup::Refused(why) => {
                let status = Status::new(12, format!("the rule of this path is refused: {why}"));
                State { stage: Stage::Done, wrong: wrong(&RULE_REFUSED, status) }
            }
            Lookup::Methods(methods) => {
                let status = Status::new(12, format!("the path is known for {}", methods.join(", ")));
                State {
                    stage: Stage::Done,
                    wrong: Some(ErrorAnswer { cause: &WRONG_METHOD, status, methods }),
                }
            }
        };
        *cx.state::<State>() = state;
    }

    fn found(&self, head: &RequestHead, call: Call, loaded: Arc<Loaded>) -> State {
        let streams =
            loaded.api.method(&call).map_or((false, false), |m| (m.client_streams, m.server_streams));
        // The service could not parse an invalid deadline.
        if head.headers.get_str("grpc-timeout").is_some_and(|text| !weir_filter::grpc::is_timeout(text)) {
            let status =
                Status::invalid("grpc-timeout", "expected up to eight digits and one of H M S m u n");
            let wrong = ErrorAnswer { cause: &REQUEST_MALFORMED, status, methods: Vec::new() };
            return State { stage: Stage::Done, wrong: Some(wrong) };
        }
        let accept = head.headers.get_str("accept").unwrap_or_default();
        let events = accept.windows(17).any(|part| part.eq_ignore_ascii_case(b"text/event-stream"));
        let calling = Calling {
            call,
            client_streams: streams.0,
            server_streams: streams.1,
            events,
            headless: head.method() == Method::Head,
            values: Values::new(self.manner.message),
            messages: Messages::new(self.manner.message, false),
            ended: false,
            loaded,
        };
        State { stage: Stage::Found(Box::new(calling)), wrong: None }
    }

    /// Whether the request is for the description or its page.
    fn describes(&self, head: &RequestHead) -> bool {
        let Some(page) = self.manner.page.as_ref().filter(|_| head.method() == Method::Get) else {
            return false;
        };
        let path = head.path();
        path == page.path.as_bytes() || page.page.as_ref().is_some_and(|page| path == page.as_bytes())
    }

    /// Sends the request on as the call that was found, or answers it.
    pub(super) fn send(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let state = std::mem::take(cx.state::<State>());
        match state {
            State { wrong: Some(wrong), .. } => self.answer(wrong, None, cx),
            State { stage: Stage::Found(calling), .. } => match self.call(head, calling, cx) {
                Ok(()) => Flow::Continue,
                Err((status, loaded)) => {
                    let wrong = ErrorAnswer { cause: &REQUEST_MALFORMED, status, methods: Vec::new() };
                    self.answer(wrong, Some(&*loaded), cx)
                }
            },
            _ => {
                cx.state::<State>().stage = Stage::Done;
                self.describe(head).unwrap_or(Flow::Continue)
            }
        }
    }

    fn describe(&self, head: &RequestHead) -> Option<Flow> {
        let page = self.manner.page.as_ref().filter(|_| self.describes(head))?;
        let loaded = self.source.loaded()?;
        let (media, body) = if head.path() == page.path.as_bytes() {
            ("application/json", Body::Bytes(loaded.description.clone()))
        } else {
            ("text/html; charset=utf-8", Body::from(PAGE.replace("{path}", &page.path)))
        };
        let headers = vec![
            (self.names.content_type.clone(), media.into()),
            (self.names.cache_control.clone(), b"no-cache".to_vec()),
        ];
        Some(Flow::Answer(Box::new(Answer { status: 200, headers, body })))
    }

    fn call(
        &self,
        head: &mut RequestHead,
        mut calling: Box<Calling>,
        cx: &mut Cx,
    ) -> Result<(), (Status, Arc<Loaded>)> {
        let Some(path) = calling.loaded.api.method(&calling.call).map(|m| m.path.clone()) else {
            return Ok(());
        };
        let has_body = head.body() != weir_h1::BodyKind::Empty;
        // A stream is forwarded as it arrives, unless the whole body was requested because the call was not known
        // yet.
        let streams_on = calling.client_streams && has_body && *cx.note() != ASKED_WHOLE;
        if !streams_on {
            let body = message(self.manner.message, head, &mut calling, cx);
            let body = body.map_err(|status| (status, Arc::clone(&calling.loaded)))?;
            cx.give_whole(body);
        }
        self.leave_fields(head);
        let _ = head.set_path(path.as_bytes()); // names of a proto are plain words
        let _ = head.set_query(None);
        let _ = head.headers.insert(&self.names.content_type, b"application/grpc"); // a plain word
        cx.call_grpc(head);
        cx.state::<State>().stage = Stage::Called(calling);
        Ok(())
    }

    /// Keeps only the fields that the service should get.
    fn leave_fields(&self, head: &mut RequestHead) {
        let listed = self.manner.request.as_ref();
        head.headers.remove_where(|name, _| {
            let is = |known: &&[u8]| name.eq_ignore_ascii_case(known);
            if name.len() > 5 && name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"grpc-")) {
                return !name.eq_ignore_ascii_case(b"grpc-timeout"); // the gateway sets it
            }
            let of_http = OF_HTTP.iter().any(&is);
            match listed {
                None => of_http,
                Some(listed) => {
                    let passes =
                        listed.iter().any(|known| name.eq_ignore_ascii_case(known.as_str().as_bytes()));
                    (!passes || of_http) && !ALWAYS.iter().any(is)
                }
            }
        });
    }

    /// An error response of ours.
    pub(super) fn answer(&self, wrong: ErrorAnswer, loaded: Option<&Loaded>, cx: &mut Cx) -> Flow {
        cx.state::<State>().stage = Stage::Done;
        cx.answer_because(wrong.cause);
        let mut headers = vec![(self.names.content_type.clone(), Status::media(self.manner.errors).into())];
        if !wrong.methods.is_empty() {
            headers.push((self.names.allow.clone(), wrong.methods.join(", ").into_bytes()));
        }
        let style = self.manner.errors;
        let status = if wrong.status.response_status(style) == 200 { 200 } else { wrong.cause.status };
        let body = for_client(wrong.cause, wrong.status, cx).body(loaded.map(|l| &l.api), style);
        Flow::Answer(Box::new(Answer { status, headers, body: body.into() }))
    }
}

/// The message of a request, or all messages of a stream, in gRPC frames.
fn message(limit: usize, head: &RequestHead, calling: &mut Calling, cx: &Cx) -> Result<Vec<u8>, Status> {
    let unpacked;
    let mut body = cx.whole();
    match head.headers.get_str("content-encoding") {
        None | Some(b"identity") => {}
        Some(coding) if coding.eq_ignore_ascii_case(b"gzip") => {
            unpacked = frames::gunzip(body, limit).map_err(|e| Status::invalid("", &why(e)))?;
            body = &unpacked;
        }
        Some(_) => {
            return Err(Status::invalid("", "the body is compressed in a way that is not known; gzip is"));
        }
    }
    let Calling { loaded, call, values, client_streams, .. } = calling;
    let mut out = Vec::with_capacity(body.len() / 2 + 64);
    if *client_streams {
        let mut fault = None;
        let mut take = |value: &[u8]| {
            framed(loaded, call, value, &mut out).map_err(|e| {
                fault = Some(e);
                ValuesError::Unexpected
            })
        };
        let read = values.feed(body, &mut take).and_then(|()| values.finish(&mut take));
        return match (read, fault) {
            (Ok(()), _) => Ok(out),
            (Err(_), Some(status)) => Err(status),
            (Err(e), None) => Err(Status::invalid("", &e.to_string())),
        };
    }
    let media = head.headers.get_str("content-type").unwrap_or_default();
    let begun = frames::begin(&mut out);
    let request = Request { query: head.query(), media, body };
    loaded.api.request(call, &request, &mut out).map_err(|e| Status::invalid(&e.path, &e.message))?;
    frames::end(begun, &mut out);
    Ok(out)
}

fn why(e: FrameError) -> String {
    match e {
        FrameError::TooLong => "the body is longer than the limit once it is decompressed".to_owned(),
        FrameError::Coding | FrameError::Cut => "the body is not gzip".to_owned(),
    }
}

/// Appends one message of a stream.
fn framed(loaded: &Loaded, call: &Call, value: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
    let begun = frames::begin(out);
    loaded.api.request_message(call, value, out).map_err(|e| Status::invalid(&e.path, &e.message))?;
    frames::end(begun, out);
    Ok(())
}

enum Fault {
    Status(Status),
    Values(ValuesError),
}

impl From<ValuesError> for Fault {
    fn from(e: ValuesError) -> Self {
        Self::Values(e)
    }
}

/// Translates a piece of a request stream.
pub(super) fn piece(piece: &mut Piece<'_>, state: &mut State) -> HookResult {
    let Stage::Called(calling) = &mut state.stage else { return Ok(()) };
    if !calling.client_streams {
        return Ok(());
    }
    let mut out = Vec::new();
    let Calling { loaded, call, values, .. } = &mut **calling;
    let mut take = |value: &[u8]| framed(loaded, call, value, &mut out).map_err(Fault::Status);
    let mut read = values.feed(piece.data(), &mut take);
    if piece.is_last() && read.is_ok() {
        read = values.finish(&mut take);
    }
    let status = match read {
        Ok(()) => {
            piece.replace(out);
            return Ok(());
        }
        Err(Fault::Status(status)) => status,
        Err(Fault::Values(e)) => Status::invalid("", &e.to_string()),
    };
    let mut refusal = Refusal::new(&REQUEST_MALFORMED);
    refusal.detail = Some(status.message.clone());
    state.wrong = Some(ErrorAnswer { cause: &REQUEST_MALFORMED, status, methods: Vec::new() });
    Err(refusal)
}
