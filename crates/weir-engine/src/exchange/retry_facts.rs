//! Translates an answer or a failure into facts for `upstream/retry.rs`, and accounts for it in the log.

use super::sent::{Answered, Sent};
use super::{Exchange, Stop, end_of_body, unless};
use crate::client::Departure;
use std::pin::pin;
use std::time::{Duration, Instant};
use weir_filter::grpc;
use weir_h1::{Connection as Wish, Fields};
use weir_upstream::error::Cause;
use weir_upstream::upstream::{Active, Facts, Failed, LocalUpstream, Lost};
use weir_wire::fastcgi::FastCgi;
use weir_wire::h2::H2Stream;
use weir_wire::time;

impl Exchange<'_> {
    /// The facts about an answer that a policy may retry.
    pub(super) fn facts_of_answer(&self, answered: &Answered) -> Lost {
        let fields = &answered.response.headers;
        let status = grpc_status(fields).filter(|_| self.grpc);
        let failed = Failed::of_answer(answered.response.status(), status, fields.get_str("retry-after"));
        let kept = self.is_repeatable(&answered.sent.connection.relay);
        Lost::answered(failed, self.head.method().is_idempotent(), kept)
    }

    /// The facts about an attempt without an answer; `None` if no policy repeats it.
    pub(super) fn facts_of_failure(&self, cause: &'static Cause, sent: &Sent) -> Option<Lost> {
        let Sent { connection, upload } = sent;
        let h2 = connection.stream.h2();
        let overloaded = connection.stream.fastcgi().is_some_and(FastCgi::is_refused);
        let lost = Lost::of(&Facts {
            cause,
            idempotent: self.head.method().is_idempotent(),
            written: connection.relay.sent() != 0,
            kept: self.is_repeatable(&connection.relay) && !upload.heard,
            reused: connection.reused,
            refused: overloaded || h2.is_some_and(H2Stream::is_refused),
            reset: h2.is_some_and(H2Stream::is_reset_by_peer),
        });
        // HTTP/2 servers refuse streams in the normal course of things; FastCGI servers only if they are unwell.
        lost.map(|lost| if overloaded { Lost { race: None, ..lost } } else { lost })
    }

    /// Waits before the next attempt, unless the client leaves, as defined by `by`.
    pub(super) async fn pause(&mut self, pause: Duration, by: Departure) -> Result<(), Stop> {
        if pause.is_zero() {
            return Ok(());
        }
        unless(self.client, pin!(time::sleep(pause)), by).await
    }

    /// Drops an answer that nobody will see. Keeps its connection only if the whole answer has arrived.
    pub(super) fn discard(&mut self, upstream: &LocalUpstream, active: &Active, answered: Answered) {
        let Answered { sent, response } = answered;
        let Sent { mut connection, upload } = sent;
        let rest = response.rest();
        let over = end_of_body(response.body(self.head.method()), rest) == Some(rest.len());
        self.tell_errors(&upstream.spec, &mut connection.stream);
        let reusable = over && upload.is_done() && response.connection() == Wish::KeepAlive;
        self.client.core.give_response(response);
        self.keep_what_follows(&connection.relay);
        self.unsent = Some(Box::new(connection.take_relay()));
        if reusable {
            upstream.give_back(active, connection, Instant::now());
        }
    }
}

/// Whether an answer shows that its endpoint is healthy.
pub(super) fn is_well(status: u16, fields: &Fields, grpc: bool) -> bool {
    // UNKNOWN, INTERNAL, UNAVAILABLE: the other statuses blame the request.
    status < 500 && !(grpc && matches!(grpc_status(fields), Some(2 | 13 | 14)))
}

/// The status of a gRPC answer that has no message, unless it is OK.
fn grpc_status(fields: &Fields) -> Option<u8> {
    grpc::status_of(fields).filter(|status| *status != 0)
}
