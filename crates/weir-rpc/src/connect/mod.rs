//! `connect`: clients of the Connect protocol call a gRPC service. The crate weir-transcode (`connect`) reads and
//! writes the protocol; this module moves calls through the gateway. `settings` holds the settings, `request` and
//! `response` the two directions.
//!
//! Source: "Connect Protocol Reference" of the Connect project.

mod request;
mod response;
mod settings;
#[cfg(test)]
mod tests;

use crate::descriptors::{Loaded, NOT_DESCRIBED, RESPONSE_MALFORMED, Source, is_messages};
use crate::prelude::*;
use request::Look;
use settings::ConnectSettings;
use std::fmt;
use std::sync::Arc;
use weir_h1::FieldName;
use weir_transcode::Status;
use weir_transcode::frames::{Boundary, Messages};

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<ConnectSettings>("connect").with_causes(&[
    &MALFORMED,
    &NO_METHOD,
    &WRONG_METHOD,
    &WRONG_TYPE,
    &NOT_DESCRIBED,
    &RESPONSE_MALFORMED,
]);

causes! {
    MALFORMED "connect_malformed" 400
        "The call does not follow the Connect protocol, or its message does not fit the method." "the client's request, as the response says; `json.unknown` and `limits` of the filter connect"
    NO_METHOD "connect_no_method" 404
        "The service has no method of this name." "the client's path; the protos and `services` of the filter connect"
    WRONG_METHOD "connect_wrong_method" 405
        "The call used the wrong HTTP method." "the client must use POST; GET is only for methods with `option idempotency_level = NO_SIDE_EFFECTS`"
    WRONG_TYPE "connect_wrong_type" 415
        "The messages are in a format that cannot be translated." "the client's content-type; JSON needs `proto`, `descriptors` or `reflection` of the filter connect"
}

/// The filter.
struct Connect {
    /// Where descriptors come from. Without any, messages pass unchanged.
    source: Option<Source>,
    /// Longest message.
    message: usize,
    names: Names,
}

/// Fields that the filter reads and writes.
struct Names {
    accept_post: FieldName,
    allow: FieldName,
    connect_content_encoding: FieldName,
    content_encoding: FieldName,
    content_type: FieldName,
    date: FieldName,
    grpc_accept_encoding: FieldName,
    grpc_encoding: FieldName,
    grpc_timeout: FieldName,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Json,
    Proto,
}

/// The state of an exchange.
#[derive(Default)]
struct State {
    stage: Stage,
    /// Why a piece of the request was refused. The response is made from it.
    wrong: Option<Status>,
}

#[derive(Default)]
enum Stage {
    /// The request went on as a gRPC call.
    Called(Box<Call>),
    /// The request was answered, or is not a Connect call.
    Done,
    /// The request is a call that has not been sent yet.
    Found(Box<Call>),
    #[default]
    New,
}

/// A call.
struct Call {
    codec: Codec,
    /// Whether messages come in envelopes, even if there is only one.
    streams: bool,
    /// Whether the message is in the query.
    get: bool,
    /// The API and the index of the method. JSON needs both.
    method: Option<(Arc<Loaded>, usize)>,
    /// Messages of the request and of the response, which may come at the same time.
    requests: Messages,
    messages: Messages,
    boundary: Boundary,
    /// Whether the filter reads the pieces of the response.
    body: bool,
    /// The status in the head of the response.
    told: Option<Vec<u8>>,
}

/// An error response of ours.
struct ErrorAnswer {
    cause: &'static Cause,
    status: Status,
    headers: Vec<(FieldName, Vec<u8>)>,
}

impl ErrorAnswer {
    const fn new(cause: &'static Cause, status: Status) -> Self {
        Self { cause, status, headers: Vec::new() }
    }
}

impl Connect {
    fn new(source: Option<Source>, message: usize) -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let names = Names {
            accept_post: name("accept-post"),
            allow: name("allow"),
            connect_content_encoding: name("connect-content-encoding"),
            content_encoding: name("content-encoding"),
            content_type: name("content-type"),
            date: name("date"),
            grpc_accept_encoding: name("grpc-accept-encoding"),
            grpc_encoding: name("grpc-encoding"),
            grpc_timeout: name("grpc-timeout"),
        };
        Self { source, message, names }
    }

    /// The API, if it is known.
    fn loaded(&self, core: &CoreHandle) -> Option<Arc<Loaded>> {
        let source = self.source.as_ref()?;
        source.refresh(core);
        source.loaded()
    }

    /// Acts on the kind of request that was found.
    fn decide(&self, look: Look, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        match look {
            Look::Call(call) => match self.send(head, call, cx) {
                Ok(()) => Flow::Continue,
                Err((wrong, call)) => self.answer(*wrong, Some(&call), cx),
            },
            Look::Later(_) => Flow::Wait,
            Look::Pass => {
                cx.state::<State>().stage = Stage::Done;
                Flow::Continue
            }
            Look::Refused(wrong) => self.answer(*wrong, None, cx),
        }
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}

static METHODS: Figure = Figure::gauge("methods", "weir_connect_methods", "Known methods of the service.");

impl Filter for Connect {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::RESPONSE | Hooks::RESPONSE_BODY
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let call = match self.look(head, cx) {
            Look::Call(call) => call,
            // A request that waits may turn out not to be a Connect call. Then its body passes unchanged.
            Look::Later(true) => return BodyUse::Change,
            Look::Later(false) => return BodyUse::Whole(self.message),
            Look::Pass | Look::Refused(_) => return BodyUse::Pass,
        };
        let body = match (call.streams, call.codec) {
            (false, _) => BodyUse::Whole(self.message),
            (true, Codec::Json) => BodyUse::Change,
            (true, Codec::Proto) => BodyUse::Pass,
        };
        cx.state::<State>().stage = Stage::Found(call); // a body that is too long gets a Connect error
        body
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let look = match std::mem::take(&mut cx.state::<State>().stage) {
            Stage::Found(call) => Look::Call(call),
            _ => self.look(head, cx),
        };
        self.decide(look, head, cx)
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            if let Some(Source::Reflected(reflected)) = &self.source {
                reflected.wait(cx.core()).await;
            }
            match self.look(head, cx) {
                Look::Later(_) => {
                    let status = Status::new(14, NOT_DESCRIBED.meaning);
                    self.answer(ErrorAnswer::new(&NOT_DESCRIBED, status), None, cx)
                }
                look => self.decide(look, head, cx),
            }
        })
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        request::piece(piece, cx.state::<State>())
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        match &mut cx.state::<State>().stage {
            Stage::Called(call) if is_messages(head) => {
                call.body = true;
                if call.streams { BodyUse::Change } else { BodyUse::Whole(self.message + 5) }
            }
            _ => BodyUse::Pass,
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        self.respond(head, cx)
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let exposed = cx.exposes_causes();
        response::piece(piece, cx.state::<State>(), exposed)
    }

    fn readings(&self) -> Vec<Reading> {
        let Some(loaded) = self.source.as_ref().and_then(Source::loaded) else { return Vec::new() };
        let methods = loaded.api.methods().len() as u64;
        vec![Reading::one(&METHODS, methods)]
    }

    fn explain(&self, asked: &Asked<'_>) -> Vec<String> {
        let Some(source) = &self.source else {
            return vec!["without descriptors: JSON is refused, and so is GET".to_owned()];
        };
        let Some(loaded) = source.loaded() else {
            return vec!["the service reports its methods once it runs".to_owned()];
        };
        vec![match loaded.api.method_at(asked.path) {
            Some((_, method)) => {
                let get = if method.no_side_effects { ", also by GET" } else { "" };
                format!("a Connect call of {} is forwarded as gRPC{get}", method.path)
            }
            None => format!("404 {} for clients of Connect: there is no such method", NO_METHOD.code),
        }]
    }
}
