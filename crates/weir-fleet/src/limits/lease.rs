//! The lease of one key: requests that a store has already counted, so that they pass without asking it.
//!
//! ```text
//!   take ─► tokens left? ── yes ─► passes, one token less       at half, the next lease is requested
//!             │ no
//!             ├─ the store had nothing left, until a known time ─► refused here
//!             ├─ the store has not been asked yet ─► one request passes immediately, and is owed
//!             └─ otherwise it waits for the response to the pending request
//! ```
//! A state machine without I/O: the time is an argument, and the driver sends the requests.

use smallvec::SmallVec;

/// A time: sixteenths of a nanosecond since a fixed instant, as in `rate_limit`. Only differences count.
pub type Moment = u64;

/// A second.
pub const SECOND: Moment = 16 * 1_000_000_000;

/// Shortest time before a store that had nothing left is asked again.
const POLL: Moment = SECOND / 100;

/// A lease used up faster than this was too small; one that lasts ten times as long was too large.
const LASTS: Moment = SECOND / 10;

/// The cost of a request, and the most that a node may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The cost of one request.
    pub cost: u32,
    /// The most that a lease holds.
    pub most: u32,
    /// Whether no request passes before the first response.
    pub strict: bool,
}

impl Terms {
    /// The most that each node can be ahead of the limit.
    pub const fn ahead(&self) -> u32 {
        self.most + if self.strict { 0 } else { self.cost }
    }
}

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Cost that has passed but is not reported to the store yet.
    pub owed: u32,
    /// The requested amount.
    pub want: u32,
}

/// What the store reported for each limit: what is left, and when it is full again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// One entry per limit.
    pub limits: SmallVec<[(u64, Moment); 2]>,
    /// The limit that has too little left.
    pub short: usize,
}

/// A response of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The granted amount, already counted.
    pub granted: u32,
    /// When more will be available, if nothing was granted.
    pub wait: Moment,
    /// When the day or month ends, and the lease with it.
    pub ends: Option<Moment>,
    /// What is left.
    pub told: Reported,
}

/// The decision for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It passes.
    Allowed,
    /// It does not pass; more is available after this time.
    Denied(Moment),
    /// It waits for the pending response, then tries again.
    Waits,
}

/// The state of one key on a node.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Cost that may pass.
    tokens: u32,
    /// Cost that has passed but is not reported to the store yet.
    owed: u32,
    /// The size of the next lease.
    want: u32,
    /// Whether the store has answered for this key, and whether a request is pending.
    known: bool,
    asked: bool,
    /// When the last lease came, and when the key was last used.
    granted: Moment,
    used: Moment,
    /// Until when the store has nothing, and when to ask for more.
    closed: Moment,
    next: Moment,
    /// When the day or month ends, and its leases with it. 0: never.
    ends: Moment,
    told: Reported,
}

impl Answer {
    /// Parses the numbers of a store's response: `granted`, µs to wait, the limit that is short, µs to the end of the
    /// span or -1. Then for each limit: what is left, and µs until it is full.
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
            told: Reported { limits: limits.collect(), short: usize::try_from(short).ok()? },
        })
    }
}

impl Lease {
    /// Takes the cost of a request, or returns what to wait for; also returns a request to the store, if one is
    /// needed.
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

    /// Reports what is owed, and asks for the missing amount.
    fn ask(&mut self, terms: Terms) -> Ask {
        let want = self.want.min(terms.most).saturating_sub(self.tokens).max(terms.cost);
        self.asked = true;
        Ask { owed: std::mem::take(&mut self.owed), want }
    }

    /// Records a request's extra cost beyond what it took, or returns the excess.
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

    /// Processes a response of the store; `None` if there was none.
    pub fn answered(&mut self, answer: Option<Answer>, ask: Ask, terms: Terms, now: Moment) {
        self.asked = false;
        let Some(answer) = answer else {
            // Unknown whether the store has counted it. Report it again, so that the limit holds.
            self.owed = self.owed.saturating_add(ask.owed);
            self.next = now + LASTS;
            return;
        };
        self.tokens = self.tokens.saturating_add(answer.granted);
        self.ends = answer.ends.map_or(0, |left| now.saturating_add(left));
        self.told = answer.told;
        let lasted = now.saturating_sub(self.granted);
        if answer.granted < ask.want {
            // Nearly nothing is left, and other nodes need it too.
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

    /// Ends a lease with its day or month.
    #[inline]
    fn turn(&mut self, now: Moment) {
        if self.ends != 0 && now >= self.ends {
            (self.tokens, self.closed, self.ends) = (0, 0, 0);
        }
    }

    /// What is left of each limit, as far as this node knows.
    pub fn tell(&self) -> Reported {
        let mut told = self.told.clone();
        for (left, _) in &mut told.limits {
            *left = left.saturating_add(u64::from(self.tokens));
        }
        told
    }

    /// Ends the lease; returns what is owed minus what is returned, unless that is zero. A returned amount is not
    /// used again, whatever happens to it.
    pub fn retire(&mut self, now: Moment) -> Option<i64> {
        self.turn(now);
        let (owed, unused) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.tokens));
        let rest = i64::from(owed) - i64::from(unused);
        (rest != 0).then_some(rest)
    }

    /// Whether it can be forgotten: the limit may lose what it holds unspent, but never gains.
    pub const fn is_idle(&self, now: Moment) -> bool {
        !self.asked && self.owed == 0 && self.used < now
    }

    /// Whether the store has been asked and has not answered yet.
    pub const fn is_asked(&self) -> bool {
        self.asked
    }

    /// When it was last used.
    pub const fn used(&self) -> Moment {
        self.used
    }

    /// What may pass without a request to the store.
    pub const fn tokens(&self) -> u32 {
        self.tokens
    }
}
