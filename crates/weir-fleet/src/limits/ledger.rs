//! The coordinator's ledger: what is left of each key. It counts a lease when it grants it, like the script in a
//! Redis.
//!
//! A ledger lives as long as its coordinator's term. It starts with nothing left of any limit, because it does not
//! know what the previous coordinator granted. Each limit then fills at its own rate from the start of the term. So a
//! key that was never requested is as full as it can be since then, and a key in that state need not be stored.

use crate::Time;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Most limits per key.
pub const LIMITS: usize = 8;

/// Longest key, in bytes.
pub const KEY_BYTES: usize = 4 << 10;

/// Most stored keys. Each takes some 200 bytes plus its name.
pub const KEYS: usize = 1 << 20;

/// The longest time that a burst may take to refill, and so the longest time until a limit is full again after a
/// coordinator died.
pub const WINDOW: Duration = Duration::from_secs(WINDOW_SECONDS);
const WINDOW_SECONDS: u64 = 3600;

/// Stored keys checked per request for a new key, to find some to forget.
const LOOKS: usize = 4;

/// The most that costs reported afterwards can take, in bursts.
const DEBT: i128 = 10;

/// A number of requests per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests; at least 1.
    pub requests: u32,
    /// The time in µs; at least 1.
    pub micros: u64,
    /// Most requests that may pass at the same time; at least 1.
    pub burst: u32,
}

/// A node's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The key, which contains a fingerprint of its limits.
    pub key: Vec<u8>,
    /// Cost that has passed but is not counted yet; negative for a returned amount.
    pub owed: i64,
    /// The requested amount.
    pub want: u32,
    /// The cost of one request.
    pub cost: u32,
    /// The limits that must all have room: 1 to [`LIMITS`].
    pub limits: SmallVec<[Limit; 2]>,
}

/// What is left of every key.
#[derive(Debug)]
pub struct Ledger {
    began: Time,
    books: HashMap<Box<[u8]>, Book>,
    /// The keys, least recently checked first.
    order: VecDeque<Box<[u8]>>,
    keys: usize,
}

#[derive(Debug)]
struct Book {
    /// What is left of each limit, in requests times its µs: integers, so that no rounding occurs.
    left: SmallVec<[i128; 2]>,
    /// The full amount of each limit at the last use: if a limit changes, the used part stays used.
    full: SmallVec<[i128; 2]>,
    at: Time,
    /// From when on the key need not be stored.
    whole: Time,
}

impl Limit {
    fn full(self) -> i128 {
        i128::from(self.burst) * i128::from(self.micros)
    }

    /// What refills in this time.
    fn comes_back(self, time: Duration) -> i128 {
        i128::try_from(time.as_micros()).unwrap_or(i128::MAX / 2).saturating_mul(i128::from(self.requests))
    }

    /// How long until this much has refilled, in µs.
    fn micros_for(self, missing: i128) -> i64 {
        let requests = i128::from(self.requests.max(1));
        i64::try_from((missing.max(0) + requests - 1) / requests).unwrap_or(i64::MAX)
    }

    /// Whether it is valid, and its burst refills within [`WINDOW`].
    pub fn is_sound(self) -> bool {
        let sound = self.requests > 0 && self.micros > 0 && self.burst > 0;
        sound && self.full() / i128::from(self.requests) <= i128::from(WINDOW_SECONDS) * 1_000_000
    }
}

impl Ledger {
    /// The ledger of a term that starts now.
    pub fn new(now: Time) -> Self {
        Self::with_room_for(KEYS, now)
    }

    fn with_room_for(keys: usize, now: Time) -> Self {
        Self { began: now, books: HashMap::new(), order: VecDeque::new(), keys }
    }

    /// The number of stored keys.
    pub fn keys(&self) -> usize {
        self.books.len()
    }

    /// Grants what fits into every limit, and counts it. [`Answer::read`](super::lease::Answer::read) parses the
    /// returned numbers. `None` if there is no room for another key, or the request is invalid.
    pub fn answer(&mut self, now: Time, asked: &Asked) -> Option<Vec<i64>> {
        let Asked { key, limits, cost, .. } = asked;
        let sound = (1..=LIMITS).contains(&limits.len()) && limits.iter().all(|limit| limit.is_sound());
        if !sound || *cost == 0 || key.len() > KEY_BYTES {
            return None;
        }
        let known = self.books.get(key.as_slice());
        let is_new = known.is_none();
        let known = known.filter(|book| book.left.len() == limits.len());
        let left = known.map(|book| refilled(book, limits, now));
        if is_new && !self.makes_room(now) {
            return None;
        }
        let mut left = left.unwrap_or_else(|| self.fresh(limits, now));
        let granted = grant(&mut left, asked);
        let (numbers, whole) = numbers(&left, asked, granted);
        let term = limits.iter().map(|limit| limit.micros_for(limit.full())).max().unwrap_or(0);
        let whole = (now + micros(whole)).max(self.began + micros(term));
        let full = limits.iter().map(|limit| limit.full()).collect();
        let book = Book { left, full, at: now, whole };
        if let Some(known) = self.books.get_mut(key.as_slice()) {
            *known = book;
        } else {
            self.order.push_back(key.as_slice().into());
            self.books.insert(key.as_slice().into(), book);
        }
        Some(numbers)
    }

    /// What is left of a key that is not stored.
    fn fresh(&self, limits: &[Limit], now: Time) -> SmallVec<[i128; 2]> {
        let age = now.saturating_sub(self.began);
        limits.iter().map(|limit| limit.comes_back(age).min(limit.full())).collect()
    }

    /// Forgets some keys that are full again; returns whether there is room for another.
    fn makes_room(&mut self, now: Time) -> bool {
        for _ in 0..LOOKS {
            let Some(key) = self.order.pop_front() else { break };
            if self.books.get(&key).is_some_and(|book| now < book.whole) {
                self.order.push_back(key);
            } else {
                self.books.remove(&key);
            }
        }
        self.books.len() < self.keys
    }
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn refilled(book: &Book, limits: &[Limit], now: Time) -> SmallVec<[i128; 2]> {
    let passed = now.saturating_sub(book.at);
    let each = book.left.iter().zip(&book.full).zip(limits);
    each.map(|((left, full), limit)| {
        let left = left.saturating_add(limit.full()).saturating_sub(*full);
        left.saturating_add(limit.comes_back(passed)).min(limit.full())
    })
    .collect()
}

/// Subtracts the owed and the granted amount from what is left.
fn grant(left: &mut [i128], asked: &Asked) -> u32 {
    let mut grant = asked.want;
    for (left, limit) in left.iter_mut().zip(&asked.limits) {
        let unit = i128::from(limit.micros);
        // What has passed is charged in any case, even if that leaves a debt.
        *left = (*left - i128::from(asked.owed) * unit).clamp(-DEBT * limit.full(), limit.full());
        let fits = u32::try_from(*left / unit).unwrap_or(0); // negative: nothing
        let fits = if fits < asked.cost { 0 } else { fits.min(asked.cost.max(fits.div_ceil(4))) };
        grant = grant.min(fits);
    }
    for (left, limit) in left.iter_mut().zip(&asked.limits) {
        *left -= i128::from(grant) * i128::from(limit.micros);
    }
    grant
}

/// The numbers of a response, and the µs until everything is full again.
fn numbers(left: &[i128], asked: &Asked, granted: u32) -> (Vec<i64>, i64) {
    let (mut wait, mut short, mut whole) = (0, 0, 0);
    let mut rest = Vec::with_capacity(2 * left.len());
    for (at, (left, limit)) in left.iter().zip(&asked.limits).enumerate() {
        let unit = i128::from(limit.micros);
        let missing = limit.micros_for(i128::from(asked.cost) * unit - left);
        let reset = limit.micros_for(limit.full() - left);
        if missing > wait {
            (wait, short) = (missing, i64::try_from(at).unwrap_or(0));
        }
        whole = whole.max(reset);
        rest.extend([i64::try_from((left / unit).max(0)).unwrap_or(i64::MAX), reset]);
    }
    let mut numbers = vec![i64::from(granted), wait, short, -1];
    numbers.append(&mut rest);
    (numbers, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Time = Duration::from_secs(1000);

    fn asked(key: &str, owed: i64, want: u32) -> Asked {
        let limit = Limit { requests: 100, micros: 1_000_000, burst: 100 };
        Asked { key: key.into(), owed, want, cost: 1, limits: [limit].into_iter().collect() }
    }

    fn granted(ledger: &mut Ledger, now: Time, asked: &Asked) -> i64 {
        ledger.answer(now, asked).unwrap()[0]
    }

    #[test]
    fn a_term_begins_with_nothing_and_fills_at_the_rate() {
        let mut ledger = Ledger::new(BEGAN);
        assert_eq!(ledger.answer(BEGAN, &asked("a", 0, 5)).unwrap(), [0, 10_000, 0, -1, 0, 1_000_000]);
        let later = BEGAN + Duration::from_millis(500);
        // Half has refilled, for a requested key and for one never requested. A lease is at most a quarter of what is
        // left.
        for key in ["a", "b"] {
            let answer = ledger.answer(later, &asked(key, 0, 50)).unwrap();
            assert_eq!(answer, [13, 0, 0, -1, 37, 630_000], "{key}");
        }
        assert_eq!(granted(&mut ledger, BEGAN + Duration::from_secs(60), &asked("c", 0, 100)), 25);
    }

    #[test]
    fn leases_shrink_near_the_end_and_never_add_up_to_more() {
        let mut ledger = Ledger::new(BEGAN);
        let now = BEGAN + Duration::from_secs(60);
        let leases: Vec<i64> = (0..60).map(|_| granted(&mut ledger, now, &asked("a", 0, 100))).collect();
        assert_eq!(leases.iter().sum::<i64>(), 100, "{leases:?}");
        assert!(leases.is_sorted_by(|a, b| a >= b), "{leases:?}");
    }

    #[test]
    fn what_is_used_stays_used_when_a_limit_moves() {
        for (to, left) in [(90, 10), (200, 120), (80, 0), (50, 0)] {
            let mut ledger = Ledger::new(BEGAN);
            let now = BEGAN + Duration::from_secs(60);
            assert_eq!(ledger.answer(now, &asked("a", 80, 0)).unwrap()[4], 20);
            let limit = Limit { requests: to, micros: 1_000_000, burst: to };
            let moved = Asked { limits: [limit].into_iter().collect(), ..asked("a", 0, 0) };
            assert_eq!(ledger.answer(now, &moved).unwrap()[4], left, "{to}");
        }
    }

    #[test]
    fn what_is_owed_is_paid_and_what_is_given_back_is_there() {
        let mut ledger = Ledger::new(BEGAN);
        let now = BEGAN + Duration::from_secs(60);
        assert_eq!(ledger.answer(now, &asked("a", 150, 1)).unwrap(), [0, 510_000, 0, -1, 0, 1_500_000]);
        assert_eq!(ledger.answer(now, &asked("a", -60, 0)).unwrap()[4], 10);
        // Returned amounts cannot exceed the limit, and no debt is unbounded.
        assert_eq!(ledger.answer(now, &asked("a", -9_000, 0)).unwrap()[4], 100);
        assert_eq!(ledger.answer(now, &asked("a", i64::MAX, 1)).unwrap()[5], 11_000_000);
    }

    #[test]
    fn all_limits_must_have_room() {
        let mut ledger = Ledger::new(BEGAN);
        let now = BEGAN + Duration::from_secs(3600);
        let mut both = asked("a", 0, 5);
        both.limits.push(Limit { requests: 3, micros: 60_000_000, burst: 3 });
        let grants: Vec<i64> = (0..5).map(|_| granted(&mut ledger, now, &both)).collect();
        assert_eq!(grants, [1, 1, 1, 0, 0]);
        let answer = ledger.answer(now, &both).unwrap();
        assert_eq!(answer, [0, 20_000_000, 1, -1, 97, 30_000, 0, 60_000_000]);
    }

    #[test]
    fn strangers_get_no_answer_and_keys_are_bounded() {
        let mut ledger = Ledger::with_room_for(8, BEGAN);
        let now = BEGAN + Duration::from_secs(60);
        let mut none = asked("a", 0, 1);
        none.limits.clear();
        let mut zero = asked("a", 0, 1);
        zero.limits[0].micros = 0;
        let mut slow = asked("a", 0, 1);
        slow.limits[0].micros = 86_400_000_000;
        let mut free = asked("a", 0, 1);
        free.cost = 0;
        let long = asked(&"k".repeat(KEY_BYTES + 1), 0, 1);
        for wrong in [none, zero, slow, free, long] {
            assert_eq!(ledger.answer(now, &wrong), None, "{wrong:?}");
        }
        for key in 0..8 {
            assert_eq!(granted(&mut ledger, now, &asked(&key.to_string(), 0, 1)), 1);
        }
        assert_eq!(ledger.answer(now, &asked("more", 0, 1)), None);
        // They are soon full again, and then forgotten.
        let later = now + Duration::from_secs(1);
        for key in 0..100 {
            let at = later + Duration::from_secs(key);
            assert_eq!(granted(&mut ledger, at, &asked(&format!("k{key}"), 0, 1)), 1, "{key}");
        }
        assert!(ledger.keys() <= 8);
        // A key whose limits changed without its name counts as never seen.
        let mut other = asked("k99", 0, 1);
        other.limits.push(Limit { requests: 1, micros: 1, burst: 1 });
        assert!(ledger.answer(later + Duration::from_secs(99), &other).is_some());
    }
}
