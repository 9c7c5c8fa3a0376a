//! `grpc_json`: REST in front of a gRPC service. The crate weir-transcode reads and writes requests and messages;
//! this module moves them through the gateway. `settings` holds the settings, `request` and `response` the two
//! directions, and `shared/grpc` loads descriptors.

mod request;
mod response;
mod settings;
#[cfg(test)]
mod tests;

use crate::descriptors::{Loaded, NOT_DESCRIBED, REFUSED_SHOWN, RESPONSE_MALFORMED, Source, is_messages};
use crate::prelude::*;
use settings::GrpcJsonSettings;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use weir_h1::FieldName;
use weir_transcode::frames::Messages;
use weir_transcode::stream::Values;
use weir_transcode::{Call, ErrorStyle, Lookup, Status};

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<GrpcJsonSettings>("grpc_json").with_causes(&[
    &NOT_DESCRIBED,
    &NO_METHOD,
    &REQUEST_MALFORMED,
    &RESPONSE_MALFORMED,
    &RULE_REFUSED,
    &WRONG_METHOD,
]);

causes! {
    NO_METHOD "grpc_no_method" 404
        "No google.api.http rule matches this path." "the rules in the proto; `unannotated` and `unmatched` of the filter grpc_json"
    REQUEST_MALFORMED "grpc_request_malformed" 400
        "The request does not fit the message that the method takes." "the client's body, query or path, as the response says; `json.unknown` and `limits` of the filter grpc_json"
    RULE_REFUSED "grpc_rule_refused" 501
        "The google.api.http rule for this path is invalid; the other rules work." "the rule in the proto: `weir check`, `weir explain` and the log say what is wrong"
    WRONG_METHOD "grpc_wrong_method" 405
        "The path exists, but not with this method." "the client's method; the rules in the proto"
}

/// Where the description of the API is served.
struct Page {
    path: String,
    page: Option<String>,
}

/// Behaviour from the settings.
struct Options {
    /// Whether requests that match no rule pass.
    pass: bool,
    errors: ErrorStyle,
    message: usize,
    /// Fields that the service gets, if they are listed.
    request: Option<Vec<FieldName>>,
    /// Trailers that the client gets.
    response: Vec<FieldName>,
    page: Option<Page>,
}

/// The filter.
struct GrpcJson {
    source: Source,
    manner: Options,
    names: Names,
}

/// Fields that the filter writes.
struct Names {
    allow: FieldName,
    cache_control: FieldName,
    content_type: FieldName,
    date: FieldName,
}

/// Value of the exchange's note: this filter asked for the request's whole body.
const ASKED_WHOLE: u64 = 1;

/// The state of an exchange.
#[derive(Default)]
struct State {
    stage: Stage,
    /// Our own error response, if any, which must not be read as gRPC.
    wrong: Option<ErrorAnswer>,
}

#[derive(Default)]
enum Stage {
    /// The request went on as a gRPC call.
    Called(Box<Calling>),
    /// The request was for the description, was answered, or is not for this filter.
    Done,
    /// The call was found but not sent yet.
    Found(Box<Calling>),
    #[default]
    New,
}

/// A call under way.
struct Calling {
    loaded: Arc<Loaded>,
    call: Call,
    client_streams: bool,
    server_streams: bool,
    events: bool,
    /// The response has no body, because the client used HEAD.
    headless: bool,
    values: Values,
    messages: Messages,
    /// Whether the stream has already reported an error.
    ended: bool,
}

/// An error of ours: its cause, and the status for the client.
struct ErrorAnswer {
    cause: &'static Cause,
    status: Status,
    methods: Vec<String>,
}

impl GrpcJson {
    fn new(source: Source, manner: Options) -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let names = Names {
            allow: name("allow"),
            cache_control: name("cache-control"),
            content_type: name("content-type"),
            date: name("date"),
        };
        Self { source, manner, names }
    }
}

impl fmt::Debug for GrpcJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcJson").finish_non_exhaustive()
    }
}

static METHODS: Figure = Figure::gauge("methods", "weir_grpc_json_methods", "Known methods of the service.");
static RULES: Figure =
    Figure::gauge("rules", "weir_grpc_json_rules", "Rules by which JSON requests become calls.");
static RULES_REFUSED: Figure = Figure::gauge(
    "rules_refused",
    "weir_grpc_json_rules_refused",
    "Rules that are not served, because they contradict others or the specification.",
);
static REFUSED: Figure = Figure::gauge(
    "refused",
    "weir_grpc_json_method_rules_refused",
    "Rules of one method that are not served.",
)
.of("method");

impl Filter for GrpcJson {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::RESPONSE | Hooks::RESPONSE_BODY
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        if is_grpc(head) {
            return BodyUse::Pass;
        }
        self.begin(head, cx);
        match &cx.state::<State>().stage {
            // For bidirectional streams, the whole request body is read first. Otherwise an HTTP client that sends
            // before it reads, and a service that waits for its responses to be read, would deadlock.
            Stage::Found(calling) if calling.client_streams && !calling.server_streams => BodyUse::Change,
            Stage::Found(_) | Stage::New => {
                *cx.note() = ASKED_WHOLE;
                BodyUse::Whole(self.manner.message)
            }
            Stage::Called(_) | Stage::Done => BodyUse::Pass,
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if is_grpc(head) {
            cx.state::<State>().stage = Stage::Done;
            return Flow::Continue;
        }
        self.begin(head, cx);
        match cx.state::<State>().stage {
            Stage::New => Flow::Wait,
            _ => self.send(head, cx),
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            if let Source::Reflected(reflected) = &self.source {
                reflected.wait(cx.core()).await;
            }
            self.begin(head, cx);
            if matches!(cx.state::<State>().stage, Stage::New) {
                let status = Status::new(14, NOT_DESCRIBED.meaning);
                let wrong = ErrorAnswer { cause: &NOT_DESCRIBED, status, methods: Vec::new() };
                return self.answer(wrong, None, cx);
            }
            self.send(head, cx)
        })
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        request::piece(piece, cx.state::<State>())
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        match &cx.state::<State>().stage {
            Stage::Called(calling) if is_messages(head) => {
                if calling.headless && calling.server_streams {
                    BodyUse::Pass // nobody reads it
                } else if calling.server_streams {
                    BodyUse::Change
                } else {
                    BodyUse::Whole(self.manner.message + 5)
                }
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
        let Some(loaded) = self.source.loaded() else { return Vec::new() };
        let reading = |figure, value: usize| Reading::one(figure, value as u64);
        let refused = loaded.api.refused();
        let mut all = vec![
            reading(&METHODS, loaded.api.methods().len()),
            reading(&RULES, loaded.api.bindings()),
            reading(&RULES_REFUSED, refused.len()),
        ];
        let mut named: BTreeMap<&str, u64> = BTreeMap::new();
        for rule in refused.iter().take(REFUSED_SHOWN) {
            *named.entry(&rule.method).or_default() += 1;
        }
        all.extend(named.into_iter().map(|(method, count)| Reading::of(&REFUSED, method, count)));
        all
    }

    fn explain(&self, asked: &Asked<'_>) -> Vec<String> {
        let (head, path) = (asked.head, asked.path);
        let Some(loaded) = self.source.loaded() else {
            return vec!["the service reports the method once it runs".to_owned()];
        };
        if is_grpc(head) {
            return vec!["a call of gRPC already: it passes as it is".to_owned()];
        }
        let method = String::from_utf8_lossy(head.method_name()).into_owned();
        vec![match loaded.api.find(&method, path) {
            Lookup::Call(call) => {
                let of = loaded.api.method(&call);
                let (path, rule) = (of.map_or("", |m| &m.path), loaded.api.rule(&call).unwrap_or_default());
                format!("calls {path} by {rule} ({})", loaded.api.place(&call).unwrap_or_default())
            }
            Lookup::Methods(methods) => {
                format!("405 {}: the path is known for {}", WRONG_METHOD.code, methods.join(", "))
            }
            Lookup::NotText => format!("400 {}: the path is not UTF-8", REQUEST_MALFORMED.code),
            Lookup::Refused(why) => format!("501 {}: {why}", RULE_REFUSED.code),
            Lookup::Nothing if self.manner.pass => "no rule names it: it passes as it is".to_owned(),
            Lookup::Nothing => format!("404 {}: no rule names it", NO_METHOD.code),
        }]
    }
}

/// Whether a request is already gRPC, gRPC-Web or a Connect stream.
fn is_grpc(head: &RequestHead) -> bool {
    weir_filter::grpc::is_grpc(&head.headers)
}
