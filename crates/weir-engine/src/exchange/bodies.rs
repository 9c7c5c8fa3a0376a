//! Passes bodies through an exchange's filters, piece by piece in both directions, including pieces that a filter
//! replaces later.

use super::Stop;
use super::record::Record;
use crate::core::Local;
use smallvec::SmallVec;
use std::task::{Context, Poll, ready};
use weir_filter::filter::{BodyUse, Cx, PendingPiece, Piece, Refusal};
use weir_upstream::error::{self, Cause};
use weir_wire::relay::{Seen, Stopped, Watch};

/// Which of the two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Shows a piece to the filters that want it, in order. Returns the new piece if it was changed.
pub(super) fn run_body_hooks(
    local: &Local,
    cx: &mut Cx,
    direction: Direction,
    seen: Seen<'_>,
) -> Result<Option<Vec<u8>>, Box<Refusal>> {
    run_body_hooks_from(local, cx, direction, seen, 0)
}

/// The same, starting at one of the filters.
fn run_body_hooks_from(
    local: &Local,
    cx: &mut Cx,
    direction: Direction,
    seen: Seen<'_>,
    from: usize,
) -> Result<Option<Vec<u8>>, Box<Refusal>> {
    let Seen { data, mark, mut trailers } = seen;
    let mut changed: Option<Vec<u8>> = None;
    for at in from.. {
        let hook = match direction {
            Direction::Request => cx.request_bodies.get(at),
            Direction::Response => cx.response_bodies.get(at),
        };
        let Some((index, body)) = hook else { break };
        cx.filter = index;
        let before = changed.take();
        cx.body_changed |= direction == Direction::Request && before.is_some();
        let data = before.as_deref().unwrap_or(data);
        let mut piece = Piece::seen(Seen { data, mark, trailers: trailers.as_deref_mut() });
        let filter = &local.snapshot.filters[index as usize].filter;
        match direction {
            Direction::Request => filter.on_request_body(&mut piece, cx)?,
            Direction::Response => filter.on_response_body(&mut piece, cx)?,
        }
        if direction == Direction::Response
            && body == BodyUse::Watch
            && let Some(hold) = piece.take_hold()
        {
            cx.held = Some(hold);
        }
        let (replaced, later) = piece.into_replaced();
        if let Some(later) = later.filter(|_| body == BodyUse::Change) {
            *pending(cx, direction) = Some(Box::new(PendingPiece { later, next: at + 1, mark }));
            return Ok(Some(Vec::new())); // nothing to pass on yet
        }
        changed = if body == BodyUse::Change { replaced.or(before) } else { before };
    }
    Ok(changed)
}

/// The piece that a filter has promised.
const fn pending(cx: &mut Cx, direction: Direction) -> &mut Option<Box<PendingPiece>> {
    match direction {
        Direction::Request => &mut cx.request_pending,
        Direction::Response => &mut cx.pending,
    }
}

/// The piece that a filter promised, after the filters behind it have seen it.
pub(super) fn poll_pending(
    local: &Local,
    cx: &mut Cx,
    direction: Direction,
    task: &mut Context<'_>,
    mut trailers: Option<&mut Vec<u8>>,
) -> Poll<Result<Option<Vec<u8>>, Box<Refusal>>> {
    if direction == Direction::Response
        && let Some(hold) = &mut cx.held
    {
        ready!(hold.0.as_mut().poll(task));
        cx.held = None;
    }
    let Some(piece) = pending(cx, direction) else { return Poll::Ready(Ok(None)) };
    let made = ready!(piece.later.0.as_mut().poll(task));
    let (next, mark) = (piece.next, piece.mark);
    *pending(cx, direction) = None;
    let made = made.map_err(Refusal::new)?;
    if let (Some(trailers), Some(changed)) = (&mut trailers, made.trailers) {
        **trailers = changed;
    }
    cx.body_changed |= direction == Direction::Request;
    let seen = Seen { data: &made.data, mark, trailers };
    let changed = run_body_hooks_from(local, cx, direction, seen, next)?;
    Poll::Ready(Ok(Some(changed.unwrap_or(made.data))))
}

/// What a watch of a body is made of: in each poll anew, because a waiting exchange must be small.
pub(super) struct Watchers<'a> {
    pub(super) local: &'a Local,
    pub(super) ran: &'a SmallVec<[u32; 8]>,
    pub(super) cx: Option<&'a mut Cx>,
}

impl Watchers<'_> {
    /// A watch of the request's body, of which this many bytes were watched before.
    pub(super) fn of_request(&mut self, taken: u64) -> BodyWatch<'_> {
        BodyWatch::new(self.local, self.ran, self.cx.as_deref_mut(), taken)
    }
}

/// Watches the request's body for filters and for `limits.body_bytes`, and removes trailers that the route
/// guarantees.
pub(super) struct BodyWatch<'a> {
    local: &'a Local,
    ran: &'a SmallVec<[u32; 8]>,
    cx: Option<&'a mut Cx>,
    hooked: bool,
    left: Option<u64>,
    pub(super) refused: Option<Stop>,
}

impl<'a> BodyWatch<'a> {
    /// `taken` counts the bytes of the body that were watched before.
    pub(super) fn new(
        local: &'a Local,
        ran: &'a SmallVec<[u32; 8]>,
        cx: Option<&'a mut Cx>,
        taken: u64,
    ) -> Self {
        let hooked = cx.as_ref().is_some_and(|cx| !cx.request_bodies.is_empty());
        let left = local.snapshot.body_bytes.map(|limit| limit.saturating_sub(taken));
        Self { local, ran, cx, hooked, left, refused: None }
    }

    /// Returns itself if there is anything to watch.
    pub(super) fn active(&mut self) -> Option<&mut dyn Watch> {
        let guarded = !self.ran.is_empty() || !self.local.snapshot.trusted_fields.is_empty();
        if self.hooked || self.left.is_some() || guarded { Some(self) } else { None }
    }
}

impl Watch for BodyWatch<'_> {
    fn sees_pieces(&self) -> bool {
        self.hooked || self.left.is_some()
    }

    fn may_trail(&self, name: &[u8]) -> bool {
        let snapshot = &self.local.snapshot;
        let mut ran = self.ran.iter().map(|&f| &snapshot.filters[f as usize]);
        !snapshot.trusted_fields.reads(name) && !ran.any(|f| f.guards.request.reads(name))
    }

    fn piece(&mut self, seen: Seen<'_>) -> Result<Option<Vec<u8>>, Stopped> {
        if let Some(left) = &mut self.left {
            let Some(rest) = left.checked_sub(seen.data.len() as u64) else {
                self.refused = Some(Stop::refuse(&error::BODY_TOO_LARGE));
                return Err(Stopped);
            };
            *left = rest;
        }
        let (true, Some(cx)) = (self.hooked, &mut self.cx) else { return Ok(None) };
        run_body_hooks(self.local, cx, Direction::Request, seen).map_err(|refusal| {
            self.refused = Some(Stop::Refuse(refusal));
            Stopped
        })
    }

    fn has_pending(&self) -> bool {
        self.cx.as_ref().is_some_and(|cx| cx.request_pending.is_some())
    }

    fn poll_pending(
        &mut self,
        task: &mut Context<'_>,
        trailers: Option<&mut Vec<u8>>,
    ) -> Poll<Result<Option<Vec<u8>>, Stopped>> {
        let Some(cx) = &mut self.cx else { return Poll::Ready(Ok(None)) };
        let made = ready!(poll_pending(self.local, cx, Direction::Request, task, trailers));
        Poll::Ready(made.map_err(|refusal| {
            self.refused = Some(Stop::Refuse(refusal));
            Stopped
        }))
    }
}

/// Shows the response's body to the filters that want it, last one first, and removes trailers that a filter
/// guarantees.
pub(super) struct ResponseWatch<'a> {
    local: &'a Local,
    ran: &'a SmallVec<[u32; 8]>,
    cx: Option<&'a mut Cx>,
    hooked: bool,
    /// Receives notes about the body as the upstream sent it.
    notes: Option<&'a mut Record>,
    pub(super) refused: Option<&'static Cause>,
}

impl<'a> ResponseWatch<'a> {
    pub(super) fn new(
        local: &'a Local,
        ran: &'a SmallVec<[u32; 8]>,
        cx: Option<&'a mut Cx>,
        notes: Option<&'a mut Record>,
    ) -> Self {
        let hooked = cx.as_ref().is_some_and(|cx| !cx.response_bodies.is_empty());
        Self { local, ran, cx, hooked, notes, refused: None }
    }

    pub(super) fn active(&mut self) -> Option<&mut dyn Watch> {
        if self.ran.is_empty() && self.notes.is_none() { None } else { Some(self) }
    }
}

impl Watch for ResponseWatch<'_> {
    fn sees_pieces(&self) -> bool {
        self.hooked || self.notes.is_some()
    }

    fn may_trail(&self, name: &[u8]) -> bool {
        let mut ran = self.ran.iter().map(|&f| &self.local.snapshot.filters[f as usize]);
        !ran.any(|f| f.guards.response.reads(name))
    }

    fn piece(&mut self, seen: Seen<'_>) -> Result<Option<Vec<u8>>, Stopped> {
        if let Some(record) = &mut self.notes {
            record.note(&seen);
        }
        let (true, Some(cx)) = (self.hooked, &mut self.cx) else { return Ok(None) };
        let length = seen.data.len();
        let changed = run_body_hooks(self.local, cx, Direction::Response, seen).map_err(|refusal| {
            self.refused = Some(refusal.cause);
            Stopped
        })?;
        if let Some(changed) = &changed {
            cx.body_grown += changed.len() as i64 - length as i64;
        }
        Ok(changed)
    }

    fn has_pending(&self) -> bool {
        self.cx.as_ref().is_some_and(|cx| cx.pending.is_some() || cx.held.is_some())
    }

    fn poll_pending(
        &mut self,
        task: &mut Context<'_>,
        trailers: Option<&mut Vec<u8>>,
    ) -> Poll<Result<Option<Vec<u8>>, Stopped>> {
        let Some(cx) = &mut self.cx else { return Poll::Ready(Ok(None)) };
        let made = ready!(poll_pending(self.local, cx, Direction::Response, task, trailers));
        if let Ok(Some(made)) = &made {
            cx.body_grown += made.len() as i64; // the piece that it replaces was taken away when it was promised
        }
        Poll::Ready(made.map_err(|refusal| {
            self.refused = Some(refusal.cause);
            Stopped
        }))
    }
}
