//! Reads a request's whole body before an upstream is asked, for a filter that needs it: into memory, and the rest
//! into a file if the filter says where.

use super::bodies::{BodyWatch, Direction, poll_pending};
use super::upload::{On, Waits, arm, client_fault};
use super::{Exchange, Stop};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_filter::filter::{HeldBody, Spooling};
use weir_filter::spool::{SPOOL_PIECE, Spool};
use weir_h1::Version;
use weir_upstream::error;
use weir_wire::relay::{Framing, Relay, RelayError};

/// A request's whole body.
enum Held {
    File(Spool),
    Memory(Vec<u8>),
}

impl Exchange<'_> {
    /// Reads the request's whole body for a filter that needs it to decide. Sends `100 Continue` to a client that
    /// waits for it.
    pub(super) async fn gather_request(
        &mut self,
        limit: usize,
        spooling: Option<Spooling>,
    ) -> Result<(), Stop> {
        if self.request_over && self.cx.as_ref().is_some_and(|cx| cx.whole.is_some()) {
            self.settle_whole_request().await?;
        } else if let Some(spool) = self.cx.as_ref().and_then(|cx| cx.request_spool.clone()) {
            return self.gather_again(&*spool, limit, spooling.is_some()).await;
        } else {
            let body = self.read_whole(limit, spooling).await?;
            let Some(cx) = &mut self.cx else { return Ok(()) };
            cx.request_bodies.clear(); // the filters have seen them
            match body {
                Held::Memory(body) => cx.whole = Some(body.into()),
                Held::File(spool) => {
                    self.head.set_whole_body(spool.length());
                    cx.request_spool = Some(Rc::new(spool));
                }
            }
        }
        match &self.cx {
            Some(cx) if cx.whole().len() > limit => Err(Stop::refuse(&error::BODY_TOO_LARGE)),
            _ => Ok(()),
        }
    }

    /// A body that an earlier filter has in a file: it stays there for another that may have it there.
    async fn gather_again(
        &mut self,
        spool: &dyn HeldBody,
        limit: usize,
        may_spool: bool,
    ) -> Result<(), Stop> {
        if spool.length() > limit as u64 {
            return Err(Stop::refuse(&error::BODY_TOO_LARGE));
        }
        if may_spool {
            return Ok(());
        }
        let whole = spool.read().await.map_err(Stop::refuse)?;
        if let Some(cx) = &mut self.cx {
            (cx.whole, cx.request_spool) = (Some(whole), None);
        }
        self.settle_whole_request().await
    }

    /// Passes a whole body through the filters that have seen its head. One may produce its replacement later.
    async fn settle_whole_request(&mut self) -> Result<(), Stop> {
        self.settle_whole(Direction::Request)?;
        while let Some(cx) = self.cx.as_mut().filter(|cx| cx.request_pending.is_some()) {
            let local = &self.local;
            let made = poll_fn(|task| poll_pending(local, cx, Direction::Request, task, None)).await;
            cx.whole = Some(made.map_err(Stop::Refuse)?.unwrap_or_default().into());
        }
        if let Some(cx) = &mut self.cx {
            cx.request_bodies.clear();
        }
        Ok(())
    }

    async fn read_whole(&mut self, limit: usize, spooling: Option<Spooling>) -> Result<Held, Stop> {
        if self.head.expects_continue() && self.head.version() != Version::Http10 {
            let mut out = self.client.core.take_buffer();
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.record.sent += out.len() as u64;
            self.client.write_all(out).await.map_err(Stop::Cut)?;
        }
        let mut relay = Relay::new(self.head.body(), Framing::Close, Vec::new());
        relay.gather(spooling.as_ref().map_or(limit, |spooling| spooling.memory.min(limit)));
        let began = Instant::now();
        let waits = Waits { response: Duration::ZERO, began, end: None, of_upstream: None, streams: false };
        let mut watch = BodyWatch::new(&self.local, &self.ran, self.cx.as_mut(), 0);
        let primed = relay.prime(self.head.rest(), watch.active());
        self.used = primed.map_err(|e| client_fault(e, watch.refused.take()))?;
        let client = &mut *self.client;
        let mut spool = spooling.map(|spooling| Spool::new(spooling, client.core.handle.clone()));
        let (mut steps, mut on) = (None, On::Body);
        loop {
            let gathered = poll_fn(|cx| {
                if let Poll::Ready(done) = relay.poll_gather(cx, &mut client.stream, watch.active()) {
                    return Poll::Ready(done.map_err(Ended::Relay));
                }
                if steps.replace(relay.steps()) != Some(relay.steps()) {
                    on = arm(client, &relay, &waits);
                }
                client.deadline.poll_passed(cx).map(|()| Err(Ended::Late))
            });
            let is_over = match (gathered.await, &spool) {
                (Ok(()), _) => true,
                (Err(Ended::Relay(RelayError::TooLarge)), Some(_)) => false,
                (Err(Ended::Relay(e)), _) => return Err(client_fault(e, watch.refused.take())),
                (Err(Ended::Late), _) if on == On::Rate => return Err(Stop::refuse(&error::BODY_TOO_SLOW)),
                (Err(Ended::Late), _) => return Err(Stop::refuse(&error::BODY_TIMEOUT)),
            };
            // The body is in a file as soon as it did not fit into memory.
            if let Some(spool) = spool.as_mut().filter(|spool| !is_over || spool.length() > 0) {
                let piece = relay.take_buffer().unwrap_or_default();
                if spool.length() + piece.len() as u64 > limit as u64 {
                    return Err(Stop::refuse(&error::BODY_TOO_LARGE));
                }
                if !piece.is_empty() {
                    spool.push(piece).await.map_err(Stop::refuse)?;
                }
                relay.gather(SPOOL_PIECE);
                steps = None; // the client's time begins anew
            }
            if is_over {
                break;
            }
        }
        self.request_over = true;
        self.leftover = relay.leftover().to_vec();
        self.record.body_in = relay.taken();
        Ok(match spool.filter(|spool| spool.length() > 0) {
            Some(spool) => Held::File(spool),
            None => Held::Memory(relay.take_buffer().unwrap_or_default()),
        })
    }
}

/// Why no more of a body arrives.
enum Ended {
    /// The client's time is over.
    Late,
    Relay(RelayError),
}
