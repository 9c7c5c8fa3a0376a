//! A client's messages over its own WebSocket, and messages that arrive in between.

use super::Client;
use crate::clock;
use crate::engine::websocket::Socket;
use crate::engine::worker::{Pause, Slot, Worker};
use crate::transport::failure::Failure;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Context;

impl Client {
    /// Sends one message and reads its answer, after the handshake if there is no session.
    pub(super) async fn on_websocket(&mut self, origin: usize, turned: u64) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let plan = &worker.plan;
        let slot = &worker.slots[self.i];
        let (index, intended) = self.batch.items[0];
        let target = &plan.targets[index];
        let made = std::mem::take(&mut self.out);
        let (bytes, head_bytes): (&[u8], usize) = if target.template.is_some() {
            (&made, memchr::memmem::find(&made, b"\r\n\r\n").map_or(made.len(), |at| at + 4))
        } else {
            (&target.bytes, target.head_bytes)
        };
        let (head, message) = bytes.split_at_checked(head_bytes).unwrap_or_default();
        slot.deadline.set(turned.saturating_add(clock::nanos(plan.timeout)));
        let kept = match self.sockets[index].take() {
            Some(socket) => cleared(&worker, slot, socket).await?.ok(), // the target closed it: no error
            None => None,
        };
        let mut socket = match kept {
            Some(socket) => socket,
            None => {
                let began = worker.clock.now();
                let (stream, times) = self.dial(origin).await?;
                slot.deadline.set(worker.clock.now().saturating_add(clock::nanos(plan.timeout)));
                let captures = self.captures && worker.shared.first.get().is_none();
                let socket = Socket::open(stream, &worker, slot, head, (began, times), captures).await?;
                cleared(&worker, slot, socket).await??
            }
        };
        let started = if socket.is_fresh() { worker.clock.now() } else { turned };
        slot.deadline.set(started.saturating_add(clock::nanos(plan.timeout)));
        socket.ask(&worker, target.message, message, started, worker.counts(intended));
        let batch = &mut self.batch;
        let outcome = poll_fn(|cx| {
            slot.watch(cx);
            socket.poll_answer(cx, &worker, slot, batch)
        })
        .await;
        if outcome.is_err() {
            worker.received(intended, &socket.unfinished(), worker.clock.now());
        }
        if outcome.is_ok() && plan.keepalive {
            self.sockets[index] = Some(socket);
        } else {
            worker.close(socket.close(&worker));
        }
        self.out = made;
        outcome
    }

    /// Waits until a moment or the end of the run.
    pub(super) async fn pause_until(&mut self, at: u64, why: Pause) {
        let worker = Rc::clone(&self.worker);
        let mut pause = pin!(worker.pause_until(self.i, at, why));
        poll_fn(|cx| {
            self.tend(cx);
            pause.as_mut().poll(cx)
        })
        .await;
    }

    /// Answers pings of idle sessions, and drops sessions that the target closed, which is no error.
    pub(super) fn tend(&mut self, cx: &mut Context<'_>) {
        for place in &mut self.sockets {
            if let Some(socket) = place
                && !socket.poll_idle(cx, &self.worker)
                && let Some(socket) = place.take()
            {
                drop(socket.close(&self.worker));
            }
        }
    }

    /// Ends all sessions.
    pub(super) fn end_sessions(&mut self) {
        for socket in self.sockets.drain(..).flatten() {
            drop(socket.close(&self.worker));
        }
    }
}

/// Reads everything that arrived before the next message; returns the session, or how the target ended it.
async fn cleared(
    worker: &Rc<Worker>,
    slot: &Slot,
    mut socket: Socket,
) -> Result<Result<Socket, Failure>, Failure> {
    let outcome = poll_fn(|cx| {
        slot.watch(cx);
        socket.poll_clear(cx, worker, slot)
    })
    .await;
    let Err(failure) = outcome else { return Ok(Ok(socket)) };
    let now = worker.clock.now();
    worker.received(now, &socket.unfinished(), now);
    worker.close(socket.close(worker));
    if matches!(failure, Failure::Reset(_) | Failure::Write(_)) { Ok(Err(failure)) } else { Err(failure) }
}
