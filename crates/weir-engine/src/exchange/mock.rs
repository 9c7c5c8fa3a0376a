//! Answers of a route that mocks a service: with placeholders, after a delay, chosen among several by their shares.

use super::{Exchange, Next, Stop};
use crate::client::Departure;
use crate::respond;
use crate::snapshot::{Mock, Mocked};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_filter::filter::Cx;
use weir_filter::template::{Escape, Values};
use weir_upstream::error;

impl Exchange<'_> {
    /// Sends the answer whose turn it is.
    pub(super) async fn respond_as(&mut self, route: usize, mock: &Mock) -> Result<Next, Stop> {
        let (choice, random) = {
            let mut random = self.client.core.random.borrow_mut();
            (random.next(), random.next())
        };
        let mocked = mock.choose(choice);
        if mock.reads_body {
            self.read_body_for_answer(route).await?;
        }
        self.read_off_body();
        if let Some(delay) = mocked.delay {
            self.delay(delay.draw(random)).await?;
        }
        let response = match &self.cx {
            Some(cx) => self.render(mocked, cx),
            None => self.render(mocked, &self.context(Rc::clone(&self.local.routes[route].scope))),
        };
        self.answers_itself();
        Ok(self.write_local(response).await)
    }

    /// Reads the body for the expressions of the answer, if it is JSON: as for a filter, up to
    /// `limits.expression_body_bytes`.
    async fn read_body_for_answer(&mut self, route: usize) -> Result<(), Stop> {
        let local = Rc::clone(&self.local);
        let longest = local.snapshot.expression_body;
        if self.cx.is_none() {
            self.cx = Some(self.context(Rc::clone(&local.routes[route].scope)));
        }
        let Some(cx) = self.cx.as_mut() else { return Ok(()) };
        if !cx.expects_json(&self.head) {
            return Ok(());
        }
        if self.head.declared_size().is_some_and(|size| size > longest as u64) && !self.request_over {
            return Err(Stop::refuse(&error::BODY_TOO_LARGE)); // a client that waits to go on is told at once
        }
        match cx.request_whole.take() {
            Some(whole) => cx.whole = Some(whole), // a filter had it whole, and may have changed it
            None => self.gather_request(longest, None).await?,
        }
        let Some(cx) = self.cx.as_mut() else { return Ok(()) };
        cx.read_body(&self.head, longest).map_err(Stop::Refuse)
    }

    /// Waits, but no longer than a filter allows the exchange.
    async fn delay(&mut self, delay: Duration) -> Result<(), Stop> {
        let limit = self.cx.as_ref().and_then(|cx| cx.limits.exchange);
        let end = limit.and_then(|limit| self.started.checked_add(limit));
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(left) if left < delay => {
                self.pause(left, Departure::Reset).await?;
                Err(Stop::refuse(&error::EXCHANGE_TIMEOUT))
            }
            _ => self.pause(delay, Departure::Reset).await,
        }
    }

    fn render(&self, mocked: &Mocked, cx: &Cx) -> respond::LocalResponse {
        let values = Values::of(&self.head, cx);
        let fields = mocked.headers.iter().map(|(name, value)| {
            let mut text = Vec::new();
            value.render(&values, Escape::Nothing, &mut text);
            (name.clone(), text)
        });
        let fields: Vec<_> = fields.collect();
        let mut body = Vec::new();
        mocked.body.render(&values, mocked.escape, &mut body);
        respond::with_fields(mocked.status, &fields, body.into())
    }
}
