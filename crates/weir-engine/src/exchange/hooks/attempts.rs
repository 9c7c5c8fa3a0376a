//! Tells filters when an attempt begins and how it ends.

use super::super::{Exchange, Stop, unless_gone};
use crate::forward;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_filter::filter::{self, GrpcStatus, Hooks};
use weir_filter::grpc;
use weir_h1::ResponseHead;
use weir_upstream::error::Cause;
use weir_upstream::upstream::{LocalEndpoint, LocalUpstream};

impl Exchange<'_> {
    /// Shows a new attempt to the filters that ask for it. Returns whether one must wait (`attempt_waits`).
    #[inline]
    pub(in crate::exchange) fn attempt_begins(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
        began: Instant,
    ) -> Result<bool, Stop> {
        if self.hooks.has(Hooks::ATTEMPT) { self.show_attempt(upstream, at, began) } else { Ok(false) }
    }

    fn show_attempt(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
        began: Instant,
    ) -> Result<bool, Stop> {
        let mut waits = false;
        let Some(cx) = &mut self.cx else { return Ok(waits) };
        let filters = &self.local.snapshot.filters;
        let number = self.attempts;
        let (name, label) = (&upstream.spec.name, &at.endpoint.label);
        for &index in self.ran.iter().filter(|&&f| filters[f as usize].hooks.has(Hooks::ATTEMPT)) {
            cx.filter = index;
            if cx.attempt.is_none() {
                cx.attempt = Some((began, number, Arc::clone(name), Arc::clone(label)));
            }
            let host = forward::host_for(&self.head, &upstream.spec.host, &at.endpoint);
            let tls = upstream.spec.tls.is_some();
            let attempt = filter::Attempt { upstream: name, endpoint: label, number, host, tls };
            let checked = filters[index as usize].filter.on_attempt(&mut self.head, &attempt, cx);
            if let Err(refusal) = checked {
                self.record.stopped_by = Some(index);
                self.attempt_ends(0, None); // no endpoint was asked
                return Err(Stop::Refuse(refusal));
            }
            waits |= filters[index as usize].hooks.has(Hooks::ATTEMPT_WAIT);
        }
        Ok(waits)
    }

    /// Waits for the filters that must wait before an attempt continues.
    pub(in crate::exchange) async fn attempt_waits(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
    ) -> Result<(), Stop> {
        let local = Rc::clone(&self.local);
        let filters = &local.snapshot.filters;
        let (name, label) = (&upstream.spec.name, &at.endpoint.label);
        for at_index in 0..self.ran.len() {
            let index = self.ran[at_index];
            let instance = &filters[index as usize];
            let Some(cx) = self.cx.as_mut().filter(|_| instance.hooks.has(Hooks::ATTEMPT_WAIT)) else {
                continue;
            };
            cx.filter = index;
            let host = forward::host_for(&self.head, &upstream.spec.host, &at.endpoint);
            let (tls, number) = (upstream.spec.tls.is_some(), self.attempts);
            let attempt = filter::Attempt { upstream: name, endpoint: label, number, host, tls };
            let waited = instance.filter.wait_attempt(&mut self.head, &attempt, cx);
            let (stop, cause) = match unless_gone(self.client, pin!(waited)).await {
                Ok(Ok(())) => continue,
                Ok(Err(refusal)) => {
                    self.record.stopped_by = Some(index);
                    (Stop::Refuse(refusal), None) // no endpoint was asked
                }
                Err(gone) => {
                    let cause = gone.cause();
                    (gone, Some(cause))
                }
            };
            self.attempt_ends(0, cause);
            return Err(stop);
        }
        Ok(())
    }

    /// The same when the attempt ends with an answer.
    pub(in crate::exchange) fn attempt_answered(&mut self, head: &ResponseHead) {
        if !self.hooks.has(Hooks::ATTEMPT) {
            return;
        }
        let grpc = self.grpc.then(|| grpc::status_of(&head.headers));
        let grpc = grpc.map(|told| told.map_or(GrpcStatus::ToCome, GrpcStatus::Received));
        self.attempt_ended((head.status(), Some(head)), grpc, None);
    }

    /// The same when it ends without an answer, or with one that nobody will see.
    pub(in crate::exchange) fn attempt_ends(&mut self, status: u16, cause: Option<&'static Cause>) {
        self.attempt_ended((status, None), None, cause);
    }

    fn attempt_ended(
        &mut self,
        (status, head): (u16, Option<&ResponseHead>),
        grpc: Option<GrpcStatus>,
        cause: Option<&'static Cause>,
    ) {
        let Some(cx) = &mut self.cx else { return };
        let Some((began, number, upstream, endpoint)) = cx.attempt.take() else { return };
        let attempt =
            filter::Attempt { upstream: &upstream, endpoint: &endpoint, number, host: None, tls: false };
        let at = Instant::now();
        let took = at.saturating_duration_since(began);
        let end = filter::AttemptEnd { attempt, status, head, grpc, cause, took, at };
        let filters = &self.local.snapshot.filters;
        for &index in self.ran.iter().rev().filter(|&&f| filters[f as usize].hooks.has(Hooks::ATTEMPT)) {
            cx.filter = index;
            filters[index as usize].filter.on_attempt_end(&end, cx);
        }
    }
}
