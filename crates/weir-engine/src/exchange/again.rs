//! Translates an answer or a failure into facts for `upstream/retry.rs`, and accounts for it in the log.

use super::sent::{Answered, Sent};
use super::{Exchange, Routed, Stop, end_of_body, unless};
use crate::client::Departure;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};
use weir_filter::grpc;
use weir_h1::{Connection as Wish, Fields};
use weir_upstream::upstream::{Active, Attempts, Failed, LocalUpstream, Request, retry_after};
use weir_wire::time;

impl Exchange<'_> {
    /// Whether to drop the answer and send the request again, and after which pause.
    pub(super) fn wants_another(
        &self,
        routed: Routed,
        upstream: &LocalUpstream,
        active: &Active,
        attempts: &mut Attempts,
        answered: &Answered,
    ) -> Option<Duration> {
        upstream.spec.retry.as_ref()?;
        let fields = &answered.response.headers;
        let failed = match grpc_status(fields).filter(|_| self.grpc) {
            Some(status) => Failed::Grpc(status),
            None => {
                let asked =
                    fields.get_str("retry-after").and_then(|value| retry_after(value, SystemTime::now()));
                Failed::Status(answered.response.status(), asked)
            }
        };
        let request = Request {
            idempotent: self.head.method().is_idempotent(),
            unseen: false,
            kept: answered.sent.connection.relay.is_repeatable(),
        };
        self.in_time(routed, upstream, attempts.again(upstream, active, failed, request)?)
    }

    /// A pause, if it ends before the exchange must.
    pub(super) fn in_time(
        &self,
        routed: Routed,
        upstream: &LocalUpstream,
        pause: Duration,
    ) -> Option<Duration> {
        let end = self.end(routed, upstream.spec.timeouts.exchange);
        end.is_none_or(|(at, _)| Instant::now() + pause < at).then_some(pause)
    }

    /// Waits before the next attempt, unless the client leaves by this sign.
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
