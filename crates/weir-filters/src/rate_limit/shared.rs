//! Limits that several gateways share in a store.
//!
//! The lease of a key decides about its requests (`weir_fleet::limits::lease`). This module holds all leases of a
//! filter, the requests that wait for their next answer, and the questions to the store.
//!
//! A lease is a number of requests that the store has already counted when it grants them. Whatever happens to a
//! gateway, no request passes twice. All limits of a filter are one entry in the store and one question, which grants
//! what fits into all of them.
//!
//! *The bound.* In any time T, N gateways let pass at most `burst + rate × T + N × (free + lease)`: `free` is the one
//! request that passes before the first answer (none if `strict`), `lease` is the most that a gateway holds unspent.
//! The last term depends neither on the rate nor on the time between questions. In the long run even this is paid
//! back: debts are counted with the next question, and a lease was counted in advance. `weir check` prints the bound.

use super::gcra::{Rate, SECOND, Time};
use super::settings::{Per, Read, Without};
use crate::shared::by::Key;
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use weir_filter::store::lease::{self, Answer, Ask, Lease, Terms};
use weir_filter::store::{Away, Question, Reply, Script, Store};

pub(super) use weir_filter::store::lease::Reported;

/// The script that runs in the store.
static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| Script::new(include_str!("shared.lua")));

/// Shards of the leases, each with its own lock.
const SHARDS: usize = 64;

/// Leases examined to find one that can be dropped.
const LOOKS: usize = 8;

// Both modules count time in the same unit.
const _: () = assert!(lease::SECOND == SECOND);

/// Limits kept in a store.
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) without: Without,
    /// Prefix of all keys: the filter's place in the config, `by` and the periods, so that different limits never
    /// mix.
    prefix: String,
    /// Each limit, in the script's form.
    limits: Vec<Vec<u8>>,
    terms: Terms,
    leases: Arc<Leases>,
}

/// What survives a reload.
pub(super) struct Leases {
    hasher: RandomState,
    shards: [Mutex<HashMap<u64, Held>>; SHARDS],
    /// Most leases of a shard.
    keys: AtomicUsize,
    pub(super) counts: Counts,
}

/// The filter's counters about its leases.
#[derive(Default)]
pub(super) struct Counts {
    /// Questions to the store, requests that waited for its answer, and requests decided without the store.
    pub(super) asked: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) without: AtomicU64,
}

/// A lease, and the requests that wait for it.
#[derive(Default)]
struct Held {
    lease: Lease,
    waiters: Vec<oneshot::Sender<Result<(), Away>>>,
    /// The key in the store, after the first question.
    name: Box<[u8]>,
    /// The last question of a gateway that drains, while it waits for the answer to the previous one.
    last: Option<Box<Question>>,
}

/// The outcome of taking a request from a lease.
pub(super) enum Taken {
    Allowed(Reported),
    /// The store is unavailable.
    Away,
    Denied {
        told: Reported,
        wait: Time,
    },
    /// The request must wait for an answer and then try again.
    Waits(oneshot::Receiver<Result<(), Away>>),
}

impl Shared {
    pub(super) fn new(
        (store, without, strict): (Arc<Store>, Without, bool),
        (place, by, number): (&str, &str, usize),
        limits: &[Read],
        most: u32,
        leases: Arc<Leases>,
    ) -> Self {
        let arguments: Vec<_> = limits.iter().flat_map(arguments).collect();
        // The key names what is counted, not how much may pass, so a changed limit keeps its count.
        let counted = limits.iter().map(|limit| limit.period().into_bytes());
        let counted: Vec<Vec<u8>> = counted.chain([by.into(), number.to_string().into_bytes()]).collect();
        let fingerprint = Fingerprint::of(&counted);
        Self {
            prefix: format!("{}:{place}:{fingerprint:08x}:", store.place().prefix),
            terms: Terms { cost: limits.first().map_or(1, |limit| limit.cost()), most, strict },
            store,
            without,
            limits: arguments,
            leases,
        }
    }

    /// The most by which each gateway can exceed the limit.
    pub(super) const fn ahead(&self) -> u32 {
        self.terms.ahead()
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.leases.counts
    }

    /// The local number of a key.
    pub(super) fn number(&self, key: &Key<'_>) -> u64 {
        self.leases.hasher.hash_one(key)
    }

    /// Takes the cost of a request, or returns what to wait for.
    pub(super) fn take(&self, key: &Key<'_>, now: Time) -> Taken {
        if !self.store.is_up() {
            return Taken::Away;
        }
        let number = self.number(key);
        let mut shard = self.leases.shard(number);
        self.leases.make_room(&mut shard, number, now);
        let held = shard.entry(number).or_default();
        let (taken, ask) = held.lease.take(self.terms, now);
        let question = ask.map(|ask| self.question(held, ask, self.name(key), number));
        let taken = match taken {
            lease::Taken::Allowed => Taken::Allowed(held.lease.tell()),
            lease::Taken::Denied(wait) => Taken::Denied { told: held.lease.tell(), wait },
            lease::Taken::Waits => {
                let (sender, receiver) = oneshot::channel();
                held.waiters.push(sender);
                self.leases.counts.waited.fetch_add(1, Relaxed);
                Taken::Waits(receiver)
            }
        };
        drop(shard);
        // Outside the lock, because a question that cannot be sent is answered immediately.
        if let Some(question) = question {
            self.store.ask(question);
        }
        taken
    }

    /// Records the cost of a request beyond what it took, or refunds the excess.
    pub(super) fn settle(&self, number: u64, cost: u32, key: &[u8]) {
        let mut shard = self.leases.shard(number);
        let Some(held) = shard.get_mut(&number) else { return };
        let ask = held.lease.settle(cost, self.terms);
        let question = ask.map(|ask| self.question(held, ask, key.to_vec(), number));
        drop(shard);
        if let Some(question) = question {
            self.store.ask(question);
        }
    }

    /// Returns unused leases and reports debts, because this gateway ends. `done` is dropped when the store answers.
    pub(super) fn retire(&self, now: Time, done: &Sender<()>) {
        if self.store.is_up() {
            for shard in &self.leases.shards {
                let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                let last = shard.values_mut().filter_map(|held| self.last_question(held, now, done));
                let last: Vec<Question> = last.collect();
                drop(shard);
                last.into_iter().for_each(|question| self.store.ask(question));
            }
        }
        self.store.leave(done);
    }

    /// The question that returns a lease or reports its debt. `None` if there is nothing to return or report, or if
    /// another question is open: its answer decides how much that is, and [`Leases::answered`] then returns the last
    /// question.
    fn last_question(&self, held: &mut Held, now: Time, done: &Sender<()>) -> Option<Question> {
        if held.name.is_empty() {
            return None; // the store has not been asked about this key
        }
        let is_asked = held.lease.is_asked();
        let owed = if is_asked { 0 } else { held.lease.retire(now)? };
        let cost = self.terms.cost.to_string().into_bytes();
        let mut arguments = vec![owed.to_string().into_bytes(), b"0".to_vec(), cost];
        arguments.extend(self.limits.iter().cloned());
        let done = done.clone();
        let (script, key) = (Arc::clone(&SCRIPT), held.name.to_vec());
        let last = Question { script, key, arguments, answer: Box::new(move |_| drop(done)) };
        if is_asked {
            held.last = Some(Box::new(last));
            return None;
        }
        Some(last)
    }

    /// The key in the store.
    pub(super) fn name(&self, key: &Key<'_>) -> Vec<u8> {
        let mut name = self.prefix.clone().into_bytes();
        key.write(&mut name);
        name
    }

    fn question(&self, held: &mut Held, ask: Ask, name: Vec<u8>, number: u64) -> Question {
        held.name = name.as_slice().into();
        self.leases.counts.asked.fetch_add(1, Relaxed);
        let mut arguments: Vec<Vec<u8>> =
            [ask.owed, ask.want, self.terms.cost].iter().map(|n| n.to_string().into_bytes()).collect();
        arguments.extend(self.limits.iter().cloned());
        let (leases, terms, store) = (Arc::clone(&self.leases), self.terms, Arc::clone(&self.store));
        Question {
            script: Arc::clone(&SCRIPT),
            key: name,
            arguments,
            answer: Box::new(move |answer| {
                let answer = answer.and_then(|reply| read(&reply).ok_or(Away));
                let last = leases.answered(number, answer, (ask, terms), super::gcra::now());
                if let Some(last) = last {
                    store.ask(last);
                }
            }),
        }
    }
}

fn read(reply: &Reply) -> Option<Answer> {
    match reply {
        Reply::Numbers(numbers) => Answer::read(numbers),
        Reply::Bytes(_) | Reply::Nothing => None,
    }
}

fn keys_of_shard(keys: u32) -> usize {
    (keys as usize / SHARDS).max(1)
}

impl Leases {
    pub(super) fn new(keys: u32) -> Self {
        Self {
            hasher: RandomState::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicUsize::new(keys_of_shard(keys)),
            counts: Counts::default(),
        }
    }

    /// Resizes for this many keys.
    pub(super) fn resize(&self, keys: u32) {
        self.keys.store(keys_of_shard(keys), Relaxed);
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.shards[number as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a lease if there are too many: the least recently used of a sample. Its unspent requests are lost to the
    /// limit, never gained.
    fn make_room(&self, shard: &mut HashMap<u64, Held>, number: u64, now: Time) {
        if shard.len() < self.keys.load(Relaxed) || shard.contains_key(&number) {
            return;
        }
        let idle = |held: &Held| held.waiters.is_empty() && held.lease.is_idle(now);
        let looked = shard.iter().filter(|(_, held)| idle(held)).take(LOOKS);
        let oldest = looked.min_by_key(|(_, held)| held.lease.used()).map(|(number, _)| *number);
        if let Some(oldest) = oldest {
            shard.remove(&oldest);
        }
    }

    /// Passes an answer to the lease and to the requests that wait for it. Returns the last question if it waited for
    /// this answer.
    fn answered(
        &self,
        number: u64,
        answer: Result<Answer, Away>,
        (ask, terms): (Ask, Terms),
        now: Time,
    ) -> Option<Question> {
        let mut shard = self.shard(number);
        let held = shard.get_mut(&number)?;
        let woken = answer.as_ref().map(drop).map_err(|away| *away);
        held.lease.answered(answer.ok(), ask, terms, now);
        for waiter in held.waiters.drain(..) {
            let _ = waiter.send(woken); // the request may have ended
        }
        held.take_last(now)
    }
}

impl Held {
    /// Takes the last question and fills in what the lease owes or returns; `None` if it does neither.
    fn take_last(&mut self, now: Time) -> Option<Question> {
        let mut last = self.last.take()?;
        last.arguments[0] = self.lease.retire(now)?.to_string().into_bytes();
        Some(*last)
    }
}

/// A limit in the script's form: its kind, its requests, their time in µs, its burst.
fn arguments(limit: &Read) -> [Vec<u8>; 4] {
    let (kind, micros, burst) = match limit.per {
        Per::Span(unit) => (unit.name(), 0, limit.requests),
        Per::Time(per) => ("time", per.get().as_micros(), burst(&limit.rate)),
    };
    [kind.to_owned(), limit.requests.to_string(), micros.to_string(), burst.to_string()]
        .map(String::into_bytes)
}

fn burst(rate: &Rate) -> u32 {
    u32::try_from(rate.window / rate.interval).unwrap_or(u32::MAX)
}

/// FNV-1a: the same in every gateway, unlike the hashes of tables.
struct Fingerprint;

impl Fingerprint {
    fn of(parts: &[Vec<u8>]) -> u32 {
        let bytes = parts.iter().flat_map(|part| part.iter().chain(b"\0"));
        bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::Receiver;
    use weir_filter::store::{Place, Server};
    use weir_filter::testing::fake_store;

    const KEY: Key<'static> = Key::V4(1);
    const NOW: Time = 1000 * SECOND;

    fn shared(strict: bool, most: u32) -> (Shared, Receiver<Question>) {
        let place = Place {
            server: Server::Redis { urls: Vec::new(), cluster: false, ca: None },
            timeout: std::time::Duration::from_secs(1),
            prefix: "weir".to_owned(),
        };
        let (store, questions) = fake_store(place);
        let rate = Rate::new(100, std::time::Duration::from_secs(1), 100).unwrap();
        let per = Per::Time(weir_filter::config::units::Duration::from_secs(1));
        let read = Read { rate, requests: 100, per, name: "default".to_owned() };
        let leases = Arc::new(Leases::new(1024));
        (
            Shared::new((store, Without::Local, strict), ("routes.a", "address", 1), &[read], most, leases),
            questions,
        )
    }

    /// The debt of a question, and the requests that it asks for.
    fn numbers(question: &Question) -> (u32, u32) {
        let number = |at: usize| String::from_utf8_lossy(&question.arguments[at]).parse().unwrap();
        (number(0), number(1))
    }

    fn allowed(taken: &Taken) -> bool {
        matches!(taken, Taken::Allowed(_))
    }

    #[test]
    fn the_first_request_passes_and_is_owed_and_the_second_waits() {
        let (shared, mut questions) = shared(false, 5);
        assert!(allowed(&shared.take(&KEY, NOW)));
        let question = questions.try_recv().unwrap();
        assert_eq!(numbers(&question), (1, 1));
        assert!(question.key.starts_with(b"weir:routes.a:") && question.key.ends_with(b":a:0.0.0.1"));
        let Taken::Waits(mut waits) = shared.take(&KEY, NOW) else { panic!("nothing was granted yet") };
        assert!(questions.try_recv().is_err(), "one question is enough");
        (question.answer)(Ok(Reply::Numbers(vec![1, 0, 0, -1, 98, 20_000])));
        assert_eq!(waits.try_recv(), Ok(Ok(())));
        assert!(allowed(&shared.take(&KEY, NOW)));
    }

    #[test]
    fn strict_gives_nothing_away() {
        let (shared, mut questions) = shared(true, 5);
        assert!(matches!(shared.take(&KEY, NOW), Taken::Waits(_)));
        assert_eq!(numbers(&questions.try_recv().unwrap()), (0, 1));
        assert_eq!(shared.ahead(), 5);
    }

    #[test]
    fn leases_grow_and_never_hold_more_than_they_may() {
        let (shared, mut questions) = shared(true, 8);
        let mut largest = 0;
        for _ in 0..1000 {
            let taken = shared.take(&KEY, super::super::gcra::now());
            if let Ok(question) = questions.try_recv() {
                let (owed, want) = numbers(&question);
                assert_eq!(owed, 0);
                largest = largest.max(want);
                (question.answer)(Ok(Reply::Numbers(vec![want.into(), 0, 0, -1, 50, 20_000])));
            }
            let shard = shared.leases.shard(shared.number(&KEY));
            assert!(shard[&shared.number(&KEY)].lease.tokens() <= 8);
            drop((shard, taken));
        }
        assert!(largest > 4, "a busy client asks for all that it may hold beside what is left: {largest}");
    }

    #[test]
    fn what_the_store_refused_is_refused_here_until_then() {
        let (shared, mut questions) = shared(true, 5);
        let now = super::super::gcra::now();
        assert!(matches!(shared.take(&KEY, now), Taken::Waits(_)));
        (questions.try_recv().unwrap().answer)(Ok(Reply::Numbers(vec![0, 2_000_000, 0, -1, 0, 3_000_000])));
        for _ in 0..50 {
            let Taken::Denied { told, wait } = shared.take(&KEY, now) else { panic!("it is refused") };
            assert!(wait > SECOND && told.limits[0].0 == 0);
        }
        assert!(questions.try_recv().is_err(), "nobody asks meanwhile");
        assert!(matches!(shared.take(&KEY, now + 3 * SECOND), Taken::Waits(_)));
        assert!(questions.try_recv().is_ok());
    }

    #[test]
    fn what_was_not_answered_is_told_again() {
        let (shared, mut questions) = shared(false, 5);
        assert!(allowed(&shared.take(&KEY, NOW)));
        let Taken::Waits(mut waits) = shared.take(&KEY, NOW) else { panic!("nothing was granted") };
        (questions.try_recv().unwrap().answer)(Err(Away));
        assert_eq!(waits.try_recv(), Ok(Err(Away)));
        assert!(matches!(shared.take(&KEY, NOW), Taken::Waits(_)), "one is owed already");
        assert_eq!(numbers(&questions.try_recv().unwrap()), (1, 1));
    }

    #[test]
    fn the_lease_of_a_quota_ends_with_its_day() {
        let (shared, mut questions) = shared(true, 5);
        let now = super::super::gcra::now();
        assert!(matches!(shared.take(&KEY, now), Taken::Waits(_)));
        (questions.try_recv().unwrap().answer)(Ok(Reply::Numbers(vec![4, 0, 0, 60_000_000, 90, 60_000_000])));
        assert!(allowed(&shared.take(&KEY, now)));
        assert!(matches!(shared.take(&KEY, now + 61 * SECOND), Taken::Waits(_)));
    }

    #[test]
    fn what_is_left_is_given_back_once() {
        let (shared, mut questions) = shared(false, 8);
        let now = super::super::gcra::now();
        assert!(allowed(&shared.take(&KEY, now)));
        (questions.try_recv().unwrap().answer)(Ok(Reply::Numbers(vec![5, 0, 0, -1, 90, 20_000])));
        assert!(allowed(&shared.take(&KEY, now)));
        let other = Key::V4(2);
        assert!(allowed(&shared.take(&other, now))); // a debt, whose question is not answered yet
        let first = questions.try_recv().unwrap();
        (first.answer)(Err(Away));
        let (done, ended) = std::sync::mpsc::channel();
        shared.retire(now, &done);
        drop(done);
        let mut told: Vec<(String, String)> = Vec::new();
        while let Ok(question) = questions.try_recv() {
            assert!(ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty));
            let text = |at: usize| String::from_utf8_lossy(&question.arguments[at]).into_owned();
            told.push((text(0), text(1)));
            (question.answer)(Ok(Reply::Numbers(vec![0, 0, 0, -1, 95, 20_000])));
        }
        told.sort();
        assert_eq!(told, [("-4".to_owned(), "0".to_owned()), ("1".to_owned(), "0".to_owned())]);
        assert_eq!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        assert!(!allowed(&shared.take(&KEY, now)), "nothing of it is left here");
    }

    #[test]
    fn a_lease_that_is_granted_while_the_gateway_drains_is_given_back() {
        let (shared, mut questions) = shared(false, 8);
        let now = super::super::gcra::now();
        assert!(allowed(&shared.take(&KEY, now)));
        let open = questions.try_recv().unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        shared.retire(now, &done);
        drop(done);
        assert!(questions.try_recv().is_err(), "the answer decides what is given back");
        (open.answer)(Ok(Reply::Numbers(vec![5, 0, 0, -1, 90, 20_000])));
        let last = questions.try_recv().unwrap();
        assert_eq!(last.arguments[..2], [b"-5".to_vec(), b"0".to_vec()]);
        assert_eq!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
        (last.answer)(Ok(Reply::Numbers(vec![0, 0, 0, -1, 95, 20_000])));
        assert_eq!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        assert!(questions.try_recv().is_err());
    }

    #[test]
    fn costs_told_afterwards_are_paid_from_the_lease_or_owed() {
        let (shared, mut questions) = shared(true, 5);
        let now = super::super::gcra::now();
        assert!(matches!(shared.take(&KEY, now), Taken::Waits(_)));
        (questions.try_recv().unwrap().answer)(Ok(Reply::Numbers(vec![4, 0, 0, -1, 90, 20_000])));
        assert!(allowed(&shared.take(&KEY, now)));
        shared.settle(shared.number(&KEY), 9, &shared.name(&KEY));
        assert_eq!(numbers(&questions.try_recv().unwrap()).0, 5, "3 of 8 were left in the lease");
    }

    #[test]
    fn there_are_only_so_many_leases() {
        let (shared, mut questions) = shared(false, 5);
        for client in 0..10_000 {
            assert!(allowed(&shared.take(&Key::V4(client), NOW + Time::from(client))));
            (questions.try_recv().unwrap().answer)(Ok(Reply::Numbers(vec![0, 0, 0, -1, 90, 20_000])));
        }
        let leases: usize = shared.leases.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(leases <= 1024, "{leases}");
    }
}
