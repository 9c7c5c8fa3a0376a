//! The lease of one key: requests that a store has counted already, so that they pass without asking it.
//!
//! ```text
//!   take ─► tokens left? ── yes ─► passes, one token less       when half are left, the next lease is asked for
//!             │ no
//!             ├─ the store said that nothing is left, and until when ─► refused here
//!             ├─ the store has not been asked yet ─► one passes at once, and is owed
//!             └─ otherwise it waits for the answer to the question that is on its way
//! ```
//! A state machine without I/O: the moment is an argument, and whoever drives it carries the questions.

use smallvec::SmallVec;

/// A moment: sixteenths of a nanosecond since some moment that stays the same, as `rate_limit` counts. Only differences count.
pub type Moment = u64;

/// A second.
pub const SECOND: Moment = 16 * 1_000_000_000;

/// How soon a store that had nothing left is asked again, at the earliest.
const POLL: Moment = SECOND / 100;

/// A lease that is used up faster than this was too small; one that lasts ten times as long was too large.
const LASTS: Moment = SECOND / 10;

/// What a request takes, and what a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What one request takes.
    pub cost: u32,
    /// The most that a lease holds.
    pub most: u32,
    /// Whether nothing passes before the first answer.
    pub strict: bool,
}

impl Terms {
    /// The most that each node can be ahead of the limit.
    pub const fn ahead(&self) -> u32 {
        self.most + if self.strict { 0 } else { self.cost }
    }
}

/// A question to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What has passed and was not told to the store yet.
    pub owed: u32,
    /// How much is wanted.
    pub want: u32,
}

/// What the store said of each limit: what is left of it, and when all of it is back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// One for each limit.
    pub limits: SmallVec<[(u64, Moment); 2]>,
    /// The limit of which too little was left.
    pub short: usize,
}

/// An answer of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was granted, and counted.
    pub granted: u32,
    /// Until there is more, where nothing was.
    pub wait: Moment,
    /// Until the day or month ends, and the lease with it.
    pub ends: Option<Moment>,
    /// What is left.
    pub told: Told,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It passes.
    Allowed,
    /// It does not; there is more after this time.
    Denied(Moment),
    /// It waits for the answer that is on its way, and tries again.
    Waits,
}

/// What a node holds of one key.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Requests that may pass, times their cost.
    tokens: u32,
    /// What has passed and was not told to the store yet.
    owed: u32,
    /// How large the next lease should be.
    want: u32,
    /// Whether the store has answered for this key, and whether a question is on its way.
    known: bool,
    asked: bool,
    /// When the last lease came, when the key was used last.
    granted: Moment,
    used: Moment,
    /// Until when the store has nothing, and when it may be asked for more.
    closed: Moment,
    next: Moment,
    /// When a day or month ends, and its leases with it. 0: never.
    ends: Moment,
    told: Told,
}

impl Answer {
    /// Reads the numbers that a store answers with: `granted`, µs to wait, the limit that is short, µs to the end of the span or -1, then for each
    /// limit what is left and µs until it is whole.
    pub fn read(numbers: &[i64]) -> Option<Self> {
        let (&[granted, wait, short, ends], rest) = numbers.split_first_chunk()?;
        let micros = |n: i64| u64::try_from(n).ok()?.checked_mul(SECOND / 1_000_000);
        let limits = rest.chunks_exact(2).map(|pair| {
            let &[left, reset] = pair else { return (0, 0) };
            (u64::try_from(left).unwrap_or(0), micros(reset).unwrap_or(0))
        });
        Some(Self {
            granted: u32::try_from(granted).ok()?,
            wait: micros(wait)?,
            ends: if ends < 0 { None } else { micros(ends) },
            told: Told { limits: limits.collect(), short: usize::try_from(short).ok()? },
        })
    }
}

impl Lease {
    /// Takes what a request costs, or says what to wait for; and whether the store is to be asked.
    #[inline]
    pub fn take(&mut self, terms: Terms, now: Moment) -> (Taken, Option<Ask>) {
        self.turn(now);
        self.used = now;
        self.want = self.want.max(terms.cost);
        if let Some(left) = self.tokens.checked_sub(terms.cost) {
            self.tokens = left;
            let low = left < self.want / 2 && !self.asked && now >= self.next;
            return (Taken::Allowed, low.then(|| self.ask(terms)));
        }
        if now < self.closed {
            return (Taken::Denied(self.closed - now), None);
        }
        let free = !(self.known || self.asked || terms.strict) && self.owed == 0;
        if free {
            self.owed = terms.cost;
        }
        let ask = (!self.asked).then(|| self.ask(terms));
        (if free { Taken::Allowed } else { Taken::Waits }, ask)
    }

    /// Tells what is owed, and asks for as much as is missing.
    fn ask(&mut self, terms: Terms) -> Ask {
        let want = self.want.min(terms.most).saturating_sub(self.tokens).max(terms.cost);
        self.asked = true;
        Ask { owed: std::mem::take(&mut self.owed), want }
    }

    /// Notes what a request cost beyond what it took, or gives that back.
    pub fn settle(&mut self, cost: u32, terms: Terms) -> Option<Ask> {
        if cost == 0 {
            self.tokens = self.tokens.saturating_add(terms.cost).min(terms.most);
            return None;
        }
        let more = cost.saturating_sub(terms.cost);
        let of_lease = more.min(self.tokens);
        self.tokens -= of_lease;
        self.owed = self.owed.saturating_add(more - of_lease);
        (self.owed > 0 && !self.asked).then(|| self.ask(terms))
    }

    /// Takes in what the store answered, `None` where it did not.
    pub fn answered(&mut self, answer: Option<Answer>, ask: Ask, terms: Terms, now: Moment) {
        self.asked = false;
        let Some(answer) = answer else {
            // Nobody knows whether the store has counted it: it is told again, so that the limit holds.
            self.owed = self.owed.saturating_add(ask.owed);
            self.next = now + LASTS;
            return;
        };
        self.tokens = self.tokens.saturating_add(answer.granted);
        self.ends = answer.ends.map_or(0, |left| now.saturating_add(left));
        self.told = answer.told;
        let lasted = now.saturating_sub(self.granted);
        if answer.granted < ask.want {
            // Nearly nothing is left: the others need it too.
            self.next = now + POLL;
            if self.tokens < terms.cost {
                self.closed = now.saturating_add(answer.wait.max(POLL));
            }
        } else if self.known && lasted < LASTS {
            self.want = self.want.saturating_mul(2).min(terms.most);
        } else if lasted > 10 * LASTS {
            self.want = (self.want / 2).max(terms.cost);
        }
        self.granted = now;
        self.known = true;
    }

    /// A lease of a day or month ends with it.
    #[inline]
    fn turn(&mut self, now: Moment) {
        if self.ends != 0 && now >= self.ends {
            (self.tokens, self.closed, self.ends) = (0, 0, 0);
        }
    }

    /// What is left of each limit, as far as this node knows.
    pub fn tell(&self) -> Told {
        let mut told = self.told.clone();
        for (left, _) in &mut told.limits {
            *left = left.saturating_add(u64::from(self.tokens));
        }
        told
    }

    /// Ends it: what is owed less what is given back, where that is anything. What it gives back is used here no more, whatever becomes of it.
    pub fn retire(&mut self, now: Moment) -> Option<i64> {
        self.turn(now);
        let (owed, unused) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.tokens));
        let rest = i64::from(owed) - i64::from(unused);
        (rest != 0).then_some(rest)
    }

    /// Whether it can be forgotten: what it holds unspent is lost to the limit, never gained.
    pub const fn is_idle(&self, now: Moment) -> bool {
        !self.asked && self.owed == 0 && self.used < now
    }

    /// When it was used last.
    pub const fn used(&self) -> Moment {
        self.used
    }

    /// What may pass without a question.
    pub const fn tokens(&self) -> u32 {
        self.tokens
    }
}
