//! An answer on its way into a store. One request, the leader, fetches it; others for the same object follow: they
//! read what has arrived and wait for the rest.
//!
//! ```text
//!            ┌─ Head ─► pieces … ─► Whole      followers have it all
//!   begun ───┤                └───► Broken     those who began to read are cut
//!            └─ Released                       it cannot be shared: everyone fetches separately
//!            ├─ Again                          look again: the leader left, or a stale object was served
//!            └─ Validated                      the object in the store is good for those who waited
//! ```
//! An answer too large for memory spills: memory drops the part that is written to the disk, and followers read it
//! there.

use super::account::{Account, Charge};
use super::key::Key;
use super::object::{Meta, Stored, piece_at};
use crate::disk::{Disk, Entry, Going};
use bytes::Bytes;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fs::File;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_filter::error::{self, Cause};
use weir_filter::filter::{self, BodySource};
use weir_h1::Fields;
use weir_wire::time::{timeout, timeout_at};

/// Most concurrent fetches of one key that are tracked: one per variant.
const MOST_FILLS: usize = 64;

/// Cores that fetch rarely contend for the same shard.
const SHARDS: usize = 32;

/// Overhead of a piece beyond its bytes.
const PIECE_BYTES: u64 = 64;

/// Size of a read from the disk, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Room is requested in steps of this size.
const STEP_BYTES: u64 = 64 * 1024;

/// Most bytes held without room: a piece or two, until the fetch pauses.
const MOST_OVER: u64 = 256 * 1024;

/// How long a fetch pauses for a disk that writes nothing. It then continues without the store, and its followers are
/// cut.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// How long followers wait for a fetch that has not been sent. A filter behind the cache may hold up the leader, for
/// example with a delay that its client asked for. Then one follower fetches too, and the others follow that one.
/// nginx waits 5 s (`proxy_cache_lock_age`) in any case; Varnish has no limit. Only a queue takes longer than this,
/// and few clients wait in one at the same time. Our guess.
const DEPARTURE: Duration = Duration::from_millis(500);

/// How often a paused fetch checks for room that others have freed.
const LOOK: Duration = Duration::from_millis(250);

/// A fetch in progress.
#[derive(Debug)]
pub(super) struct Fill {
    key: Key,
    began: Instant,
    state: Mutex<State>,
    /// The store must not keep it, because it was purged meanwhile.
    unwanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The request was sent to the upstream, or a follower found that it was not sent in time.
    departed: bool,
    held_up: bool,
    head: Option<Head>,
    /// The pieces that arrived, without the part that was dropped: that many bytes.
    pieces: Vec<Bytes>,
    base: u64,
    /// Whether written parts are dropped from memory.
    spills: bool,
    written: Option<Written>,
    end: Option<End>,
    waiting: Slab<Option<Waker>>,
    charge: Option<Charge>,
    /// Bytes of the pieces, with their overhead.
    held: u64,
    /// The task that waits for room, and whether it waited in vain.
    full: Option<Waker>,
    stalled: bool,
}

/// The result of adding a piece.
#[derive(Debug)]
pub(super) enum Pushed {
    Held(Bytes),
    /// There is no room for it. It is held anyway, but no more may come until there is room ([`Fill::room`]).
    Over(Bytes),
    Refused,
}

/// The part of the body that is on the disk.
#[derive(Clone, Debug)]
struct Written {
    disk: Arc<Disk>,
    file: Arc<File>,
    /// Offset of the body.
    at: u64,
    upto: u64,
}

/// The head of the answer, once it has arrived and may be shared.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) meta: Arc<Meta>,
    pub(super) length: Option<u64>,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Again,
    Broken,
    Released,
    Validated,
    Whole,
}

/// The first news for a follower.
#[derive(Debug)]
pub(super) enum News {
    Again,
    /// The head of the answer.
    Head(Head),
    Released,
    Validated,
}

/// The fetches for a store.
#[derive(Default)]
pub(super) struct Fills {
    shards: [Mutex<ByStem>; SHARDS],
    hasher: foldhash::fast::RandomState,
}

type ByStem = HashMap<Box<[u8]>, SmallVec<[Arc<Fill>; 1]>>;

/// The role of a request for an object that is not stored.
#[derive(Debug)]
pub(super) enum Role {
    Follow(Arc<Fill>),
    Lead(Arc<Fill>),
    /// Too many fetches of the key are in progress to track another.
    TooMany,
}

// === impl Fills ===

impl Fills {
    /// Joins a fetch of the key that may answer `asked`, or begins one.
    pub(super) fn join(&self, key: &Key, asked: &Fields, follow: bool) -> Role {
        let mut shard = self.shard(key.stem());
        let fills = shard.entry(key.stem().into()).or_default();
        let of_key = |fill: &&Arc<Fill>| fill.key.extra() == key.extra();
        if follow && let Some(fill) = fills.iter().filter(of_key).find(|fill| fill.may_answer(asked)) {
            return Role::Follow(Arc::clone(fill));
        }
        if fills.iter().filter(of_key).count() >= MOST_FILLS {
            return Role::TooMany;
        }
        let fill = Arc::new(Fill::new(key.clone()));
        fills.push(Arc::clone(&fill));
        Role::Lead(fill)
    }

    /// The fetch has ended.
    fn leave(&self, fill: &Arc<Fill>) {
        let mut shard = self.shard(fill.key.stem());
        if let Some(fills) = shard.get_mut(fill.key.stem()) {
            fills.retain(|known| !Arc::ptr_eq(known, fill));
            if fills.is_empty() {
                shard.remove(fill.key.stem());
            }
        }
    }

    /// Lets no further request follow the fetches of a URL, and keeps none of their answers.
    pub(super) fn forget(&self, stem: &[u8]) {
        if let Some(fills) = self.shard(stem).remove(stem) {
            fills.iter().for_each(|fill| fill.unwanted.store(true, SeqCst));
        }
    }

    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            let fills = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            fills.values().flatten().for_each(|fill| fill.unwanted.store(true, SeqCst));
        }
    }

    fn shard(&self, stem: &[u8]) -> MutexGuard<'_, ByStem> {
        let at = self.hasher.hash_one(stem) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Fill ===

impl Fill {
    fn new(key: Key) -> Self {
        let state = State {
            departed: false,
            held_up: false,
            head: None,
            pieces: Vec::new(),
            base: 0,
            spills: false,
            written: None,
            end: None,
            waiting: Slab::new(),
            charge: None,
            held: 0,
            full: None,
            stalled: false,
        };
        Self { key, began: Instant::now(), state: Mutex::new(state), unwanted: AtomicBool::new(false) }
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.unwanted.load(SeqCst)
    }

    /// The request was sent to the upstream.
    pub(super) fn departs(&self) {
        let mut state = self.state();
        if !state.departed {
            state.departed = true;
            state.wake();
        }
    }

    /// While nothing is known it may answer, unless its leader is held up.
    fn may_answer(&self, asked: &Fields) -> bool {
        let state = self.state();
        match (&state.head, state.end) {
            (_, Some(End::Again | End::Broken | End::Released | End::Validated)) => false,
            (Some(head), _) => head.meta.variant.answers(asked),
            (None, _) => state.departed || !state.held_up,
        }
    }

    /// The head has arrived and may be shared; false if there is no room for the body. `spills`: it is too large for
    /// memory.
    pub(super) fn begin(&self, head: Head, spills: bool, account: &Arc<Account>) -> bool {
        let all = head.length.filter(|_| !spills).unwrap_or(0);
        let Some(charge) = account.charge(all + STEP_BYTES) else { return false };
        let mut state = self.state();
        state.spills = spills;
        state.charge = Some(charge);
        state.head = Some(head);
        state.wake();
        true
    }

    /// Adds a piece, and returns it in its stored form. Without room, a fetch that writes to a disk (`waits`) holds
    /// this one piece more, and from now on drops written parts.
    pub(super) fn push(&self, piece: &[u8], waits: bool) -> Pushed {
        let mut state = self.state();
        state.held += piece.len() as u64 + PIECE_BYTES;
        let fits = state.fits();
        let most = state.charge.as_ref().map(|charge| charge.bytes() + MOST_OVER);
        let may = waits && !state.stalled && most.is_some_and(|most| state.held <= most);
        if !fits && !may {
            return Pushed::Refused;
        }
        let piece = Bytes::copy_from_slice(piece);
        state.pieces.push(piece.clone());
        if !fits {
            state.spills = true;
            state.let_go();
        }
        state.wake();
        if fits || state.fits() { Pushed::Held(piece) } else { Pushed::Over(piece) }
    }

    /// Waits for room, until the disk has taken some of the body or others need less. Also ends if the disk takes
    /// nothing more, which the next piece reports.
    pub(super) async fn room(self: Arc<Self>, disk: Going, patience: Duration) {
        let (mut since, mut written) = (Instant::now(), None);
        loop {
            let room = poll_fn(|cx| self.poll_room(cx));
            if timeout(LOOK, room).await.is_ok() || disk.is_over() {
                return;
            }
            let mut state = self.state();
            let upto = state.written.as_ref().map(|written| written.upto);
            if upto != written {
                (since, written) = (Instant::now(), upto);
            }
            if since.elapsed() >= patience {
                state.stalled = true;
                return;
            }
        }
    }

    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.end.is_some() || state.fits() {
            return Poll::Ready(());
        }
        state.full = Some(cx.waker().clone());
        Poll::Pending
    }

    /// From now on, drops written parts from memory.
    pub(super) fn spill(&self) {
        let mut state = self.state();
        state.spills = true;
        state.let_go();
    }

    pub(super) fn spills(&self) -> bool {
        self.state().spills
    }

    /// The body up to here is in that file. Called by the disk's threads.
    pub(super) fn is_written(&self, disk: &Arc<Disk>, file: &Arc<File>, at: u64, upto: u64) {
        let mut state = self.state();
        state.written = Some(Written { disk: Arc::clone(disk), file: Arc::clone(file), at, upto });
        state.let_go();
        if let Some(waker) = state.full.take() {
            waker.wake();
        }
    }

    /// A spilling body is complete.
    pub(super) fn finish_spilled(&self) {
        let mut state = self.state();
        state.end = Some(End::Whole);
        state.wake();
    }

    /// The body is complete: joins it into blocks, which followers also read from now on.
    pub(super) fn finish(&self, account: &Arc<Account>) -> Stored {
        let mut state = self.state();
        let body = Stored::new(&state.pieces, account);
        state.pieces = body.blocks().to_vec();
        state.charge = None;
        state.end = Some(End::Whole);
        state.wake();
        body
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(end);
            state.charge = None;
            state.wake();
        }
    }

    /// Waits for the head, or for an end without one. If the fetch is not sent in time, one of the followers fetches
    /// again.
    pub(super) async fn news(self: &Arc<Self>) -> News {
        let mut waiting = Waiting { fill: self, place: None };
        let departs =
            poll_fn(|cx| waiting.poll(cx, |state| (state.departed || state.has_news()).then_some(())));
        if timeout_at(self.began + DEPARTURE, departs).await.is_err() {
            self.state().held_up = true;
            return News::Again;
        }
        poll_fn(|cx| waiting.poll(cx, |state| state.news())).await
    }

    /// The body as it arrives.
    pub(super) fn follow(self: &Arc<Self>, length: Option<u64>) -> Following {
        Following { fill: Arc::clone(self), at: 0, length, place: None, reading: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_news(&self) -> bool {
        self.head.is_some() || self.end.is_some()
    }

    fn news(&self) -> Option<News> {
        Some(match (&self.head, self.end) {
            (_, Some(End::Again | End::Broken)) => News::Again,
            (_, Some(End::Released)) => News::Released,
            (_, Some(End::Validated)) => News::Validated,
            (Some(head), _) => News::Head(head.clone()),
            (None, Some(End::Whole)) => News::Again, // without a head it cannot be complete
            (None, None) => return None,
        })
    }

    /// Counts the held bytes, if there is room for them.
    fn fits(&mut self) -> bool {
        let held = self.held;
        let Some(charge) = &mut self.charge else { return false };
        let lacks = held.saturating_sub(charge.bytes());
        lacks == 0 || charge.grow(lacks.max(STEP_BYTES)) || charge.grow(lacks)
    }

    /// Drops written parts, if the fetch spills.
    fn let_go(&mut self) {
        let Some(written) = self.written.as_ref().filter(|_| self.spills) else { return };
        let mut gone = 0;
        for piece in &self.pieces {
            let behind = self.base + piece.len() as u64;
            if behind > written.upto {
                break;
            }
            self.base = behind;
            self.held -= piece.len() as u64 + PIECE_BYTES;
            gone += 1;
        }
        self.pieces.drain(..gone);
        if let Some(charge) = &mut self.charge {
            charge.give_back(charge.bytes().saturating_sub(self.held + 2 * STEP_BYTES));
        }
    }

    fn wake(&mut self) {
        if self.end.is_some() {
            self.full.take().into_iter().for_each(Waker::wake);
        }
        self.waiting.iter_mut().filter_map(|(_, waker)| waker.take()).for_each(Waker::wake);
    }

    fn wait(&mut self, place: &mut Option<usize>, waker: &Waker) {
        let at = *place.get_or_insert_with(|| self.waiting.insert(None));
        if let Some(slot) = self.waiting.get_mut(at) {
            *slot = Some(waker.clone());
        }
    }
}

/// A follower that waits for the head.
struct Waiting<'a> {
    fill: &'a Arc<Fill>,
    place: Option<usize>,
}

impl Waiting<'_> {
    /// Waits until `find` returns something.
    fn poll<T>(&mut self, cx: &Context<'_>, find: impl Fn(&State) -> Option<T>) -> Poll<T> {
        let mut state = self.fill.state();
        if let Some(found) = find(&state) {
            return Poll::Ready(found);
        }
        state.wait(&mut self.place, cx.waker());
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.fill.state().waiting.try_remove(place);
        }
    }
}

/// A body that is read while it arrives.
pub(super) struct Following {
    fill: Arc<Fill>,
    at: u64,
    length: Option<u64>,
    place: Option<usize>,
    /// The current read from the disk.
    reading: Option<filter::Waiting<'static, Option<Vec<u8>>>>,
}

impl Written {
    /// Reads a part on one of the disk's threads.
    fn read(&self, from: u64) -> filter::Waiting<'static, Option<Vec<u8>>> {
        let Self { disk, file, at, upto } = self.clone();
        Box::pin(async move {
            let (done, read) = oneshot::channel();
            let job = move || {
                let mut piece = vec![0; usize::try_from(upto - from).unwrap_or(usize::MAX).min(READ_BYTES)];
                let read = file.read_exact_at(&mut piece, at + from).ok().map(|()| piece);
                drop(done.send(read)); // the requester may have left
            };
            disk.run(Box::new(job)).then_some(())?;
            read.await.ok()?
        })
    }
}

impl BodySource for Following {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        if self.reading.is_none() {
            let mut state = self.fill.state();
            if let Some(at) = self.at.checked_sub(state.base) {
                if let Some(piece) = piece_at(&state.pieces, at, u64::MAX) {
                    self.at += piece.len() as u64;
                    return Poll::Ready(Ok(Some(piece)));
                }
                return match state.end {
                    Some(End::Whole) => Poll::Ready(Ok(None)),
                    Some(_) => Poll::Ready(Err(&error::TRUNCATED)),
                    None => {
                        state.wait(&mut self.place, cx.waker());
                        Poll::Pending
                    }
                };
            }
            self.reading = state.written.as_ref().map(|written| written.read(self.at));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(Err(&error::SOURCE_FAILED)) };
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let piece = read.ok_or(&error::SOURCE_FAILED)?;
        self.at += piece.len() as u64;
        Poll::Ready(Ok(Some(piece.into())))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.fill.state().waiting.try_remove(place);
        }
    }
}

/// The leader of a fetch. If it is dropped before the end, the followers are notified.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) fill: Arc<Fill>,
    pages: Arc<super::store::Pages>,
}

impl Leader {
    pub(super) const fn new(fill: Arc<Fill>, pages: Arc<super::store::Pages>) -> Self {
        Self { fill, pages }
    }

    /// The answer is on the disk, unless it was purged meanwhile.
    pub(super) fn is_on_disk(&self, entry: Option<&Arc<Entry>>) {
        if let (Some(disk), Some(entry)) = (self.pages.disk(), entry.filter(|_| self.fill.is_unwanted())) {
            disk.remove(entry);
        }
    }

    /// Ends the fetch with this result.
    pub(super) fn end(self, end: End) {
        self.fill.end(end);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // First remove it from the list: a request that looks again because the fetch ended must not find it.
        self.pages.fills.leave(&self.fill);
        self.fill.end(End::Again);
    }
}

#[cfg(test)]
mod tests;
