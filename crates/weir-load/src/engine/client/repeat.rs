//! A client that sends one request again and again.

use super::Client;
use crate::engine::h1::Stop;
use std::future::poll_fn;
use std::rc::Rc;

impl Client {
    /// Repeats the request of a [repetitive plan](crate::plan::Plan::is_repetitive) on the open connection, until
    /// something needs the general loop. Does nothing before the first response, which the ledger may want.
    pub(super) async fn repeat(&mut self) {
        if self.batch.is_capturing() || !self.backoff.is_zero() {
            return;
        }
        let Some(mut conn) = self.conns.first_mut().and_then(|c| c.take_if(|c| c.may_repeat())) else {
            return;
        };
        let worker = Rc::clone(&self.worker);
        let plan = &worker.plan;
        let (Some(slot), Some(target)) = (worker.slots.get(self.i), plan.targets.first()) else { return };
        self.batch.alone(worker.clock.now());
        let (mut has_begun, batch) = (false, &mut self.batch);
        let stop = poll_fn(|cx| {
            if !std::mem::replace(&mut has_begun, true) {
                slot.watch(cx);
                slot.end.set(None);
                worker.begun(1, batch.last);
            }
            conn.poll_repeats(cx, &worker, slot, batch, &target.bytes)
        })
        .await;
        let outcome = match stop {
            Stop::Idle => {
                worker.ended(1, false, self.batch.last);
                self.conns[0] = Some(conn);
                return;
            }
            Stop::Ended(outcome) => outcome,
            Stop::Open => {
                let batch = &mut self.batch;
                poll_fn(|cx| conn.poll_exchange(cx, &worker, slot, batch, &target.bytes)).await
            }
        };
        (self.sent, self.sent_uncounted) =
            ((target.head_bytes as u64, (target.bytes.len() - target.head_bytes) as u64), 0);
        let turned = self.batch.started;
        self.put_back(0, conn, outcome.as_ref().ok().copied());
        self.conclude(turned, outcome.map(|_| ()));
    }
}
