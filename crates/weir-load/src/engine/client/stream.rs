//! A client's exchange over a stream of a shared connection of HTTP/2 or HTTP/3.

use super::Client;
use crate::clock;
use crate::engine::h1::Conn;
use crate::engine::h2::{Ask, Fate, Link, Place};
use crate::engine::worker::{EndReason, Worker};
use crate::transport::failure::Failure;
use crate::transport::wire::Wire;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use weir_report::verdict::CHOSE_OLD;

/// How often a request is sent again after the target refused it, or closed the connection, without processing it.
const AGAIN_MOST: usize = 3;

/// The connection place of client `i`.
fn place(worker: &Worker, i: usize, origin: usize) -> &Place {
    &worker.places[i / worker.plan.streams * worker.plan.origins.len() + origin]
}

impl Client {
    /// Sends the request over a stream, or over the client's own connection if the target chose HTTP/1.1.
    pub(super) async fn on_stream(&mut self, origin: usize, turned: u64) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let plan = &worker.plan;
        let (target, intended) = self.batch.items[0];
        let streams = plan.streams;
        let slot = &worker.slots[self.i];
        let whole = &plan.targets[target];
        let mut turned = turned;
        let mut sent = 0;
        while sent <= AGAIN_MOST {
            let Some((link, is_fresh)) = self.link(origin).await? else {
                return self.alone(origin, turned).await;
            };
            if is_fresh {
                turned = 0; // it waited for the connection
            }
            // The bytes to send: the rendered head, and the location of the body.
            let made: Arc<[u8]>;
            let is_made = whole.template.is_some() || plan.replay.is_some();
            let (bytes, head_bytes) = if is_made {
                let end = memchr::memmem::find(&self.out, b"\r\n\r\n").map_or(self.out.len(), |at| at + 4);
                self.head.render(&self.out[..end], whole.scheme, end == self.out.len());
                made = self.out.as_slice().into();
                (&made, end)
            } else {
                (&whole.bytes, whole.head_bytes)
            };
            let head = whole.frames.as_ref().filter(|_| !is_made).unwrap_or(&self.head);
            let body = bytes.len() - head_bytes;
            let ask = Ask {
                target,
                intended,
                turned,
                head,
                text: is_made.then_some(self.out.as_slice()),
                body: (body > 0).then_some((bytes, head_bytes)),
                is_head: whole.is_head,
            };
            slot.deadline.set(worker.clock.now().saturating_add(clock::nanos(plan.timeout)));
            let outcome = poll_fn(|cx| {
                slot.watch(cx);
                link.poll_exchange(&worker, slot, self.i % streams, &ask)
            })
            .await;
            let ended = match outcome {
                Ok(Fate::Again | Fate::Elsewhere) => None,
                Ok(Fate::Answered(at)) => Some(at),
                Err(_) => Some(worker.clock.now()),
            };
            if let Some(at) = ended {
                let head = head.wire_bytes(body) as u64;
                worker.sent(worker.counts(intended), head, body as u64, at);
            }
            match outcome? {
                fate @ (Fate::Again | Fate::Elsewhere) => {
                    sent += usize::from(fate == Fate::Again);
                    turned = 0;
                }
                Fate::Answered(at) => {
                    self.batch.done = 1;
                    self.batch.last = at;
                    if !plan.keepalive {
                        link.close();
                    }
                    return Ok(());
                }
            }
        }
        let text = "the target repeatedly refused the request or closed the connection without processing it";
        Err(Failure::Reset(text.to_owned()))
    }

    /// The client's connection, and whether it waited for it; `None` if the target chose HTTP/1.1.
    async fn link(&mut self, origin: usize) -> Result<Option<(Rc<Link>, bool)>, Failure> {
        let worker = Rc::clone(&self.worker);
        let place = place(&worker, self.i, origin);
        let slot = &worker.slots[self.i];
        let mut waited = false;
        loop {
            if place.is_old.get() {
                return Ok(None);
            }
            if let Some(link) = &*place.link.borrow()
                && !link.is_closing()
            {
                return Ok(Some((Rc::clone(link), waited)));
            }
            let attempts = place.failed.borrow().0;
            if !place.dialling.replace(true) {
                let outcome = self.dial_link(place, origin).await;
                place.dialling.set(false);
                if let Err(failure) = &outcome {
                    *place.failed.borrow_mut() = (attempts + 1, Some(failure.clone()));
                }
                let first = self.i / worker.plan.streams * worker.plan.streams;
                (first..first + worker.plan.streams).for_each(|i| worker.wake(i));
                outcome?;
                waited = true;
                continue;
            }
            waited = true;
            poll_fn(|cx| {
                slot.watch(cx);
                if let Some(EndReason::Cut) = slot.end.get() {
                    return Poll::Ready(Err(Failure::Cut));
                }
                if place.dialling.get() {
                    return Poll::Pending;
                }
                match &*place.failed.borrow() {
                    (after, Some(failure)) if *after != attempts => Poll::Ready(Err(failure.clone())),
                    _ => Poll::Ready(Ok(())),
                }
            })
            .await?;
        }
    }

    /// Opens the connection that this client shares.
    async fn dial_link(&mut self, place: &Place, origin: usize) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let streams = worker.plan.streams;
        #[cfg(feature = "http3")]
        if worker.plan.is_h3() {
            let (quic, times) = worker.dial_quic(origin, self.i, worker.plan.timeout).await?;
            let wire = |counter| Wire::h3(quic, counter, streams);
            self.drive_link(place, Link::new(wire, &worker, times, self.i / streams * streams, streams));
            return Ok(());
        }
        let (stream, times) = self.dial(origin).await?;
        if stream.tls().is_some() && !stream.chose_h2() {
            if worker.plan.is_grpc() {
                return Err(Failure::Connect(CHOSE_OLD.to_owned()));
            }
            place.is_old.set(true);
            self.conns[origin] = Some(Conn::new(stream, worker.plan.keeps_bodies(), times));
            return Ok(());
        }
        let wire = |counter| Wire::h2(stream, counter);
        self.drive_link(place, Link::new(wire, &worker, times, self.i / streams * streams, streams));
        Ok(())
    }

    /// Puts a connection in its place, and starts the task that drives it.
    fn drive_link(&self, place: &Place, link: Link) {
        let link = Rc::new(link);
        *place.link.borrow_mut() = Some(Rc::clone(&link));
        drop(tokio::task::spawn_local(link.drive(Rc::clone(&self.worker))));
    }
}
