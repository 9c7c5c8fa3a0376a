//! The request that fetches: what it asks the upstream, and what happens to the answer.

use super::super::prelude::*;
use super::account::Charge;
use super::answer::{Asked, Names, Whole};
use super::caller::View;
use super::conditional::{Validators, client_has_it};
use super::counters::Count;
use super::fill::{self, End, Fill, Head, Leader, Pushed};
use super::freshness::Freshness;
use super::key::Key;
use super::object::{Meta, Object, Received, Stored};
use super::storable::{WhyNot, storable};
use super::{Cache, State, What, head_bytes, on_disk};
use crate::disk::Writer;
use std::sync::Arc;
use std::time::{Duration as Time, Instant, SystemTime};
use weir_h1::Fields;

/// How long a failed upstream is not asked again while a stale object could be served.
const SPARED: Time = Time::from_secs(2);

/// How far an answer of unknown length is read ahead of the leader's client, in bytes. It counts against the store
/// while the client reads; with more, a hundred such answers would leave no room for others.
const AHEAD: u64 = 256 * 1024;

/// A request to the upstream whose answer may be stored.
pub(super) struct Lead {
    leader: Option<Leader>,
    key: Key,
    /// The request as this cache saw it.
    pub(super) asked: View,
    /// The stored object that must be revalidated.
    stale: Option<Arc<Object>>,
    began: Instant,
    decided: Option<Result<Arc<Meta>, WhyNot>>,
    has_body: bool,
    taken: u64,
    /// Writes the answer to the disk as well.
    writer: Option<Writer>,
    /// Room for a client that is slower than the followers.
    _ahead: Option<Charge>,
}

/// The result of storing a piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    No,
    /// The piece is held, and no more may come until the disk has taken some.
    Over,
    Yes,
}

impl Cache {
    /// Makes this request the leader. Ignores what the client already has, because the whole answer is wanted.
    pub(super) fn lead(
        &self,
        fill: Arc<Fill>,
        key: Key,
        stale: Option<Arc<Object>>,
        head: &mut RequestHead,
        cx: &Cx,
    ) -> What {
        let asked = View::of(head, cx, &self.extras.written);
        let Names { if_none_match, if_modified_since, .. } = &self.names;
        head.headers.remove(if_none_match);
        head.headers.remove(if_modified_since);
        if let Some(object) = &stale {
            let meta = object.meta();
            for (name, value) in [(if_none_match, "etag"), (if_modified_since, "last-modified")] {
                if let Some(value) = meta.field(value) {
                    let _ = head.headers.insert(name, value); // it was received as a value
                }
            }
        }
        What::Leads(Box::new(Lead {
            leader: Some(Leader::new(fill, Arc::clone(&self.pages))),
            key,
            asked,
            stale,
            began: Instant::now(),
            decided: None,
            has_body: false,
            taken: 0,
            writer: None,
            _ahead: None,
        }))
    }

    /// Whether the answer's body is to be stored. A filter that changes it makes its length unknown.
    pub(super) fn wants_body(
        &self,
        lead: &mut Lead,
        head: &ResponseHead,
        (answered, changed): (bool, bool),
    ) -> bool {
        lead.has_body = true;
        let length = head.content_length().filter(|_| !changed);
        let decided = self.judge(lead, head, length, answered);
        lead.decided.insert(decided).is_ok()
    }

    /// Decides whether the answer is stored, and which parts.
    fn judge(
        &self,
        lead: &Lead,
        head: &ResponseHead,
        length: Option<u64>,
        answered: bool,
    ) -> Result<Arc<Meta>, WhyNot> {
        if !answered {
            return Err("not-from-upstream");
        }
        if length.is_some_and(|length| length > self.max_object) {
            return Err("too-large");
        }
        let received = lead.received();
        let freshness = Freshness::of(head.status(), &head.headers, self.defaults.ignored);
        let settings = (&self.defaults, self.set_cookie);
        let found = storable(&freshness, &head.headers, &lead.asked, settings, received.time)?;
        Ok(Arc::new(Meta::new(freshness, &head.headers, found, self.set_cookie, received)))
    }

    /// Decides whether the answer is stored, and serves a stored object instead where allowed. `answered`: the
    /// upstream answered; `changed`: a filter changes the body.
    pub(super) fn conclude(
        &self,
        mut lead: Box<Lead>,
        head: &mut ResponseHead,
        cx: &mut Cx,
        (answered, changed): (bool, bool),
    ) -> Flow {
        let status = head.status();
        if let Some(object) = lead.stale.take() {
            if answered && status == 304 {
                return self.validated(*lead, &object, head);
            }
            let now = Instant::now();
            let failed = matches!(status, 500 | 502..=504) || (!answered && status >= 500);
            if failed {
                object.spare(now, SPARED);
            }
            if failed && self.covers_error(&object.meta(), now) {
                self.counters.add(Count::Stale);
                let said = format!("fwd=stale; fwd-status={status}; detail=stale-if-error");
                let whole = Whole::Object(&object.body);
                return Flow::Answer(self.answer(
                    &object.meta(),
                    &whole,
                    Asked::get(&lead.asked.fields),
                    &said,
                    None,
                ));
            }
        }
        let length = head.content_length().filter(|_| !changed);
        let decided = lead.decided.take().unwrap_or_else(|| self.judge(&lead, head, length, answered));
        let begun = decided.and_then(|meta| {
            let leader = lead.leader.as_ref().ok_or("gone")?;
            let length = if lead.has_body { length } else { Some(0) };
            let writer = self
                .pages
                .disk()
                .and_then(|disk| on_disk::create(disk, &lead.key, &meta, length, &leader.fill));
            if writer.is_none() && length.is_some_and(|length| length > self.most_in_memory()) {
                return Err("disk-away");
            }
            let spills = writer.is_some() && length.is_some_and(|length| length > on_disk::SMALL);
            let head = Head { meta: Arc::clone(&meta), length };
            let begin = |spills| leader.fill.begin(head.clone(), spills, &self.pages.account);
            // A body that does not fit into memory may still go to the disk.
            if !begin(spills) && (spills || writer.is_none() || !begin(true)) {
                return Err("store-full");
            }
            lead.writer = writer;
            Ok(meta)
        });
        match begun {
            Ok(meta) => {
                self.names.tell(head, &format!("fwd=uri-miss; fwd-status={status}; stored"));
                lead.decided = Some(Ok(meta));
                if !lead.has_body {
                    self.keep(&mut lead);
                    return Flow::Continue;
                }
                // Neither a slow client nor one that leaves holds up the followers.
                let ahead = length.unwrap_or(AHEAD).clamp(1, self.most_in_memory().max(1));
                lead._ahead = self.pages.account.charge(ahead);
                if lead._ahead.is_some() {
                    cx.read_on(usize::try_from(ahead).unwrap_or(usize::MAX));
                }
                // A client that already has the object need not receive it again; the followers and the store do.
                if status == 200 && client_has_it(&lead.asked.fields, &lead.validators()) && cx.hide_body() {
                    self.names.make_304(head);
                }
                cx.state::<State>().what = What::Leads(lead);
            }
            Err(why) => {
                // A failure predicts nothing about the next answer: the others try one by one, not all together.
                let failed = !answered || status >= 500;
                if !failed {
                    self.pages.note_unshared(&lead.key, Instant::now());
                }
                let end = if failed { End::Again } else { End::Released };
                lead.leader.take().into_iter().for_each(|leader| leader.end(end));
                self.names.tell(head, &format!("fwd=uri-miss; fwd-status={status}; detail={why}"));
            }
        }
        Flow::Continue
    }

    /// The upstream confirmed the stored object (RFC 9111 §4.3.4).
    fn validated(&self, mut lead: Lead, object: &Arc<Object>, head: &ResponseHead) -> Flow {
        let before = object.meta();
        let fields = before.updated(&head.headers);
        let freshness = Freshness::of(before.status, &fields, self.defaults.ignored);
        let received = lead.received();
        let settings = (&self.defaults, self.set_cookie);
        // A validator for something else: the 304 does not refer to the stored object.
        let other = head.headers.get_str("etag").is_some_and(|tag| !before.is_of(tag));
        let meta = match storable(&freshness, &fields, &lead.asked, settings, received.time) {
            _ if other => before,
            Ok(found) => {
                let meta = Arc::new(Meta::new(freshness, &fields, found, self.set_cookie, received));
                object.freshen(Arc::clone(&meta));
                if let (Some(disk), Some(entry)) = (self.pages.disk(), object.on_disk.get()) {
                    disk.write_newer_head(
                        entry,
                        &head_bytes::write(&meta, Instant::now(), SystemTime::now()),
                    );
                }
                meta
            }
            Err(_) => {
                self.pages.remove(object);
                before
            }
        };
        self.counters.add(Count::Validated);
        lead.leader.take().into_iter().for_each(|leader| leader.end(End::Validated));
        let whole = Whole::Object(&object.body);
        Flow::Answer(self.answer(
            &meta,
            &whole,
            Asked::get(&lead.asked.fields),
            "fwd=stale; fwd-status=304",
            None,
        ))
    }

    /// Largest body that is held in memory, in bytes.
    fn most_in_memory(&self) -> u64 {
        if self.pages.has_disk() { self.pages.most_in_memory() } else { self.max_object }
    }

    /// Stores a piece of a body, and the object with the last one.
    pub(super) fn take_piece(&self, lead: &mut Lead, piece: &mut Piece<'_>) {
        if lead.leader.is_none() {
            return;
        }
        lead.taken += piece.data().len() as u64;
        let taken = self.takes(lead, piece.data());
        if taken == Taken::No {
            // A follower has begun to read something that cannot be held for it.
            self.pages.note_unshared(&lead.key, Instant::now());
            lead.writer = None;
            lead.leader.take().into_iter().for_each(|leader| leader.end(End::Broken));
        } else if piece.is_last() {
            self.keep(lead);
        } else if let (Taken::Over, Some(leader), Some(writer)) = (taken, &lead.leader, &lead.writer) {
            piece.hold(Arc::clone(&leader.fill).room(writer.going(), fill::DISK_PATIENCE));
        }
    }

    /// Passes a piece to the followers and the disk.
    fn takes(&self, lead: &mut Lead, piece: &[u8]) -> Taken {
        let Some(leader) = &lead.leader else { return Taken::Yes };
        if piece.is_empty() {
            return Taken::Yes;
        }
        if lead.taken > self.max_object {
            return Taken::No;
        }
        let (piece, over) = match leader.fill.push(piece, lead.writer.is_some()) {
            Pushed::Held(piece) => (piece, false),
            Pushed::Over(piece) => (piece, true),
            Pushed::Refused => return Taken::No,
        };
        if lead.writer.as_ref().is_some_and(|writer| !writer.push(piece)) {
            lead.writer = None; // if it fits, it stays in memory
        }
        if lead.writer.is_some() {
            if lead.taken > on_disk::SMALL && !leader.fill.spills() {
                leader.fill.spill();
            }
            return if over { Taken::Over } else { Taken::Yes };
        }
        let stays = !leader.fill.spills() && lead.taken <= self.most_in_memory();
        if stays { Taken::Yes } else { Taken::No }
    }

    /// The body is complete: stores the object.
    fn keep(&self, lead: &mut Lead) {
        let (Some(leader), Some(Ok(meta))) = (lead.leader.take(), lead.decided.take()) else { return };
        self.counters.add(Count::Stored);
        if leader.fill.spills() {
            leader.fill.finish_spilled();
            if let Some(writer) = lead.writer.take() {
                // Until it is on the disk, requests for it follow this fetch.
                writer.finish(move |entry| leader.is_on_disk(entry.as_ref()));
            }
            return;
        }
        let body: Stored = leader.fill.finish(&self.pages.account);
        let removals = self.pages.removals();
        if leader.fill.is_unwanted() {
            return;
        }
        let object = Arc::new(Object::new(lead.key.clone(), meta, body, Instant::now()));
        self.pages.put(Arc::clone(&object));
        // A purge that began meanwhile marks fetches before it searches the store.
        if leader.fill.is_unwanted() {
            self.pages.remove(&object);
        }
        match lead.writer.take() {
            Some(writer) => {
                let pages = Arc::clone(&self.pages);
                writer.finish(move |entry| pages.was_written(&object, entry, removals));
            }
            None => self.pages.was_written(&object, None, removals),
        }
    }
}

impl Lead {
    /// The request is about to be sent with these fields.
    pub(super) fn departs(&mut self, sent: &Fields) {
        self.asked.departs(sent);
        if let Some(leader) = &self.leader {
            leader.fill.departs();
        }
    }

    /// The validators of the object that is about to be stored.
    fn validators(&self) -> Validators<'_> {
        self.decided
            .as_ref()
            .and_then(|decided| decided.as_ref().ok())
            .map(|meta| meta.validators())
            .unwrap_or_default()
    }

    fn received(&self) -> Received {
        let at = Instant::now();
        Received { at, time: SystemTime::now(), took: at.saturating_duration_since(self.began) }
    }
}
