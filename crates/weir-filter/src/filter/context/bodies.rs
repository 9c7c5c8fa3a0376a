//! What a filter asks of the bodies of its exchange, and what it learns of them.

use super::{Cx, FILTER};
use crate::filter::body::{line_of, lines};
use crate::filter::{BodyUse, Overflow};
use bytes::Bytes;
use weir_h1::ResponseHead;

/// The start of the request's body for the access log.
#[derive(Default)]
pub(super) struct LoggedBody {
    bytes: Vec<u8>,
    /// It was longer than the limit.
    is_cut: bool,
    /// All of the body passed, and `bytes` has all of it.
    is_whole: bool,
    /// A filter had changed it before.
    is_changed: bool,
}

impl Cx {
    /// Adds a piece of the request's body to what the access log's format `replay` records, up to `limit` in total.
    pub fn log_body(&mut self, piece: &[u8], is_last: bool, limit: usize) {
        let is_changed = self.body_changed;
        let body = self.rare_mut().logged_body.get_or_insert_default();
        let room = limit.saturating_sub(body.bytes.len());
        body.bytes.extend_from_slice(&piece[..room.min(piece.len())]);
        body.is_cut |= piece.len() > room;
        body.is_whole = is_last && !body.is_cut;
        body.is_changed |= is_changed;
    }

    /// What was recorded of the request's body, whether that is all of it, and whether a filter had changed it before;
    /// `None` if no filter recorded any.
    pub fn logged_body(&self) -> Option<(&[u8], bool, bool)> {
        let body = self.rare.as_ref()?.logged_body.as_ref()?;
        Some((&body.bytes, body.is_whole, body.is_changed))
    }

    /// Reads this response's body to its end even if the client is slow or gone, at most this many bytes ahead of it.
    /// For a filter that watches it on behalf of others. Memory: that many bytes.
    pub const fn read_on(&mut self, ahead: usize) {
        self.reads_on = ahead;
    }

    /// Frees the request's body, if it is held for repeats. Only from `on_response`: no attempt follows an answer.
    pub fn free_request(&mut self) {
        if self.request_whole.is_some() || self.request_spool.take().is_some() {
            self.request_whole = Some(Bytes::new()); // still held here, not by the client
        }
    }

    /// Whether the response that this filter sees is an upstream's whose body is unread, for [`Cx::read_ahead`].
    pub const fn can_read_ahead(&self) -> bool {
        self.is_relayed
    }

    /// Reads this response's body at most this many bytes ahead of a slow client, and releases the upstream as soon as
    /// all of it has arrived. Memory: up to twice that many bytes.
    pub fn read_ahead(&mut self, bytes: usize) {
        self.reads_ahead = self.reads_ahead.max(bytes);
    }

    /// Lets bytes that exceed [`Cx::read_ahead`] wait in a file.
    pub fn overflow(&mut self, overflow: Overflow) {
        self.rare_mut().overflow = Some(Box::new(overflow));
    }

    /// Where what exceeds [`Cx::read_ahead`] waits, if anywhere.
    pub fn overflow_of_response(&self) -> Option<&Overflow> {
        self.rare.as_ref()?.overflow.as_deref()
    }

    /// Sends the client only the head of this response, which this filter has turned into one without a body (a 304).
    /// The body is still read to its end for the filters that watch it. Filters that see the head later do not see
    /// the body. False if that is impossible: the body has been read, or is not an upstream's.
    #[must_use]
    pub const fn hide_body(&mut self) -> bool {
        self.hides_body = self.is_relayed;
        self.is_relayed
    }

    /// Has this filter see the request's body after all. Only from `wait`, if the body is not [whole](Self::has_whole).
    pub fn see_request_body(&mut self, body: BodyUse) {
        self.request_bodies.add(self.filter & FILTER, body);
    }

    /// Has this filter see the response's body after all. Only from `wait_response`, as above.
    pub fn see_response_body(&mut self, body: BodyUse) {
        self.response_bodies.add(self.filter & FILTER, body);
    }

    /// Whether the body of the message whose head this filter sees has been read whole.
    pub const fn has_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// The whole body of the message whose head this filter sees, if it said [`BodyUse::Whole`].
    pub fn whole(&self) -> &[u8] {
        self.whole.as_deref().unwrap_or_default()
    }

    /// The same, shared, so that it can be kept or sent elsewhere without a copy.
    pub fn share_whole(&self) -> Bytes {
        self.whole.clone().unwrap_or_default()
    }

    /// Replaces a body that this filter asked for whole. The head's length is adjusted.
    pub fn set_whole(&mut self, body: impl Into<Bytes>) {
        if let Some(whole) = &mut self.whole {
            let before = std::mem::replace(whole, body.into());
            self.body_changed |= *whole != before;
        }
    }

    /// Sets the request's body, even if it came without one. Only from `on_request` and `wait`. If the client sends a
    /// body, the filter must have asked for all of it.
    pub fn give_whole(&mut self, body: impl Into<Bytes>) {
        self.whole = Some(body.into());
        self.body_changed = true;
    }

    /// Sets the trailers after a response's body that was gathered whole.
    pub fn set_whole_trailers(&mut self, trailers: &[u8]) {
        if !trailers.is_empty() || self.rare.is_some() {
            self.rare_mut().trailers = trailers.to_vec();
        }
    }

    fn trailers(&self) -> &[u8] {
        self.rare.as_ref().map_or(&[], |rare| &rare.trailers)
    }

    /// A trailer of the response whose body this filter asked for whole.
    pub fn whole_trailer(&self, name: &str) -> Option<&[u8]> {
        line_of(self.trailers(), name)
    }

    /// All trailers of that response, name and value.
    pub fn whole_trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(self.trailers())
    }

    /// The length of the response's body that this filter sees, or would see if the request were not HEAD. Known if
    /// the upstream sent it, and mostly if the gateway answers. An earlier filter may have changed the body since.
    pub fn response_length(&self, head: &ResponseHead) -> Option<u64> {
        head.content_length().or(self.own_length)
    }

    /// Whether a filter that saw the response earlier may change its body.
    pub fn response_body_changes(&self) -> bool {
        self.response_bodies.change()
    }

    /// Omits the length from an answer to HEAD: a GET would get another body than the known one.
    pub const fn drop_length(&mut self) {
        self.length_dropped = true;
    }
}
