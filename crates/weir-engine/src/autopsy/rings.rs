//! The exchanges that one core keeps. Only that core touches them; others send it a message to read them.

use super::kept::{Exceeded, Kept, Kind, SLOT_BYTES, Text};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

/// One in this many successful exchanges is kept, starting with the first.
pub const SAMPLE: u32 = 1000;

/// An exchange faster than this is never slow.
const SLOW: Duration = Duration::from_millis(10);

/// The exchanges kept by one core.
pub struct Autopsies {
    /// Exchanges until the next sample; 0 if nothing is kept.
    until_sample: Cell<u32>,
    rings: RefCell<Rings>,
}

struct Rings {
    /// The bytes that it may use.
    bytes: usize,
    number: u64,
    by_kind: [Ring; Kind::ALL.len()],
}

/// Kept exchanges. When it is full, the most frequent cause loses its oldest, so that a storm of one cause does not
/// evict the others.
#[derive(Default)]
struct Ring {
    most: usize,
    kept: Vec<Kept>,
    /// The places of each cause, oldest first.
    by_cause: Vec<(&'static str, VecDeque<u32>)>,
}

/// Selects kept exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The id in the client's answer or in the log.
    pub id: Option<String>,
    /// The code of a cause.
    pub cause: Option<String>,
    /// The name of a route.
    pub route: Option<String>,
    /// `failed`, `slow` or `sampled`. Without kind, id and cause, the question is for `failed` and `slow`.
    pub kind: Option<String>,
    /// For each core, the number after which to search: see [`Answer::cursor`](super::Answer::cursor).
    pub after: Vec<u64>,
    /// Return at most this many, the latest.
    pub most: usize,
    /// Return only the latest of each kind, status, cause and route, the most frequent first.
    pub grouped: bool,
}

/// What one core found.
pub struct Found {
    /// The core that kept them.
    pub core: usize,
    /// The number of the last exchange it kept.
    pub last: u64,
    /// The exchanges that match the question.
    pub kept: Vec<Kept>,
    /// How many exchanges it keeps.
    pub held: usize,
    /// When the oldest kept failure began.
    pub oldest: Option<SystemTime>,
}

// === impl Autopsies ===

impl Autopsies {
    pub(crate) fn new(bytes: usize) -> Self {
        let off = Self { until_sample: Cell::new(0), rings: RefCell::new(Rings::new(0)) };
        off.resize(bytes);
        off
    }

    /// Sets the most bytes to use. A change discards what was kept.
    pub(crate) fn resize(&self, bytes: usize) {
        let mut rings = self.rings.borrow_mut();
        if rings.bytes != bytes {
            *rings = Rings::new(bytes);
            self.until_sample.set(u32::from(bytes > 0));
        }
    }

    /// Whether anything is kept.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.until_sample.get() > 0
    }

    /// Whether this successful exchange is the one in [`SAMPLE`].
    #[inline]
    pub(crate) fn samples(&self) -> bool {
        let left = self.until_sample.get();
        if left > 1 {
            self.until_sample.set(left - 1);
            return false;
        }
        if left == 1 {
            self.until_sample.set(SAMPLE);
        }
        left == 1
    }

    /// Keeps an exchange, which `fill` writes. `cause` is the code of its cause, or empty.
    pub(crate) fn keep(&self, kind: Kind, cause: &'static str, fill: impl FnOnce(&mut Kept)) {
        let mut rings = self.rings.borrow_mut();
        rings.number += 1;
        let number = rings.number;
        if let Some(slot) = rings.by_kind[kind as usize].slot(cause) {
            slot.number = number;
            fill(slot);
        }
    }

    /// The exchanges that match the question, latest first.
    pub(crate) fn find(&self, core: usize, question: &Question) -> Found {
        let rings = self.rings.borrow();
        // A cursor from before a restart is ignored.
        let after = question.after.get(core).copied().filter(|after| *after <= rings.number).unwrap_or(0);
        let all = || rings.by_kind.iter().flat_map(|ring| &ring.kept);
        let mut fitting: Vec<&Kept> =
            all().filter(|kept| kept.number > after && question.wants(kept)).collect();
        fitting.sort_unstable_by_key(|kept| std::cmp::Reverse(kept.number));
        if !question.grouped {
            fitting.truncate(question.most);
        }
        let failed = &rings.by_kind[Kind::Failed as usize].kept;
        Found {
            core,
            last: rings.number,
            kept: fitting.into_iter().cloned().collect(),
            held: all().count(),
            oldest: failed.iter().map(|kept| kept.began).min(),
        }
    }
}

impl Question {
    fn wants(&self, kept: &Kept) -> bool {
        let is = |asked: &Option<String>, is: &str| asked.as_deref().is_none_or(|asked| asked == is);
        let kind = match (&self.kind, &self.id, &self.cause) {
            (Some(kind), ..) => kind == kept.kind.name(),
            (None, None, None) => kept.kind != Kind::Sampled,
            (None, ..) => true,
        };
        kind && is(&self.id, &kept.text(Text::Id))
            && is(&self.cause, kept.cause.map_or("", |cause| cause.code))
            && is(&self.route, &kept.text(Text::Route))
    }
}

/// Keeps one of each group with the number of the others: failures first, then the most frequent. `kept` is sorted
/// latest first.
pub fn grouped(kept: Vec<Kept>) -> (Vec<Kept>, Vec<u64>) {
    let mut groups: Vec<(Kept, u64)> = Vec::new();
    for one in kept {
        let alike = |other: &Kept| {
            (other.kind as usize, other.status, other.cause.map(|cause| cause.code))
                == (one.kind as usize, one.status, one.cause.map(|cause| cause.code))
                && other.text(Text::Route) == one.text(Text::Route)
        };
        match groups.iter_mut().find(|(other, _)| alike(other)) {
            Some((_, others)) => *others += 1,
            None => groups.push((one, 0)),
        }
    }
    let weighs = |kept: &Kept| match (kept.kind, kept.status) {
        (Kind::Failed, 400..=499) => 1, // most often the client's fault
        (Kind::Failed, _) => 0,
        _ => 2,
    };
    groups.sort_by_key(|(kept, others)| (weighs(kept), std::cmp::Reverse(*others)));
    groups.into_iter().unzip()
}

// === impl Rings ===

impl Rings {
    fn new(bytes: usize) -> Self {
        let slots = bytes / SLOT_BYTES;
        let beside = slots / 6;
        let by_kind = Kind::ALL.map(|kind| Ring {
            most: if kind == Kind::Failed { slots - 2 * beside } else { beside },
            ..Ring::default()
        });
        Self { bytes, number: 0, by_kind }
    }
}

// === impl Ring ===

impl Ring {
    /// A slot for one more exchange of this cause; `None` if there is no room at all.
    fn slot(&mut self, cause: &'static str) -> Option<&mut Kept> {
        let at = if self.kept.len() < self.most {
            self.kept.push(Kept::default());
            self.kept.len() as u32 - 1 // far fewer than 2³²: each takes kilobytes
        } else {
            let (_, places) = self.by_cause.iter_mut().max_by_key(|(_, places)| places.len())?;
            places.pop_front()?
        };
        match self.by_cause.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, places)) => places.push_back(at),
            None => self.by_cause.push((cause, VecDeque::from([at]))),
        }
        self.kept.get_mut(at as usize)
    }
}

/// How long a route usually takes: about the 99th percentile of its recent exchanges, estimated without storing any.
///
/// The longest of the first exchanges is the first estimate. After that, a longer exchange raises it by 1/32, a shorter
/// one lowers it by 1/4096. It settles where one in 129 is longer.
#[derive(Debug, Default)]
pub struct Usual {
    estimate_ns: Cell<u64>,
    /// Exchanges so far, up to [`PERCENTILE_MIN`].
    seen: Cell<u32>,
}

/// Fewest exchanges that have a 99th percentile. Before that, an exchange is compared with the longest.
const PERCENTILE_MIN: u32 = 100;

/// Fewest exchanges to compare with: the first ones of a route open connections and fill caches. Our guess.
const COMPARED_MIN: u32 = 4;

impl Usual {
    /// The same estimate, for the same route after a reload.
    pub(crate) fn like(other: &Self) -> Self {
        Self { estimate_ns: other.estimate_ns.clone(), seen: other.seen.clone() }
    }

    /// Takes an exchange into account. Returns the previous estimate if the exchange took more than twice as long.
    #[inline]
    pub(crate) fn exceeded_by(&self, took: Duration) -> Option<Exceeded> {
        let took = took.as_secs().wrapping_mul(1_000_000_000).wrapping_add(took.subsec_nanos().into());
        let (usual, seen) = (self.estimate_ns.get(), self.seen.get());
        let is_slow = took > usual.saturating_mul(2) && took >= SLOW.as_nanos() as u64;
        if seen < PERCENTILE_MIN {
            self.seen.set(seen + 1);
            self.estimate_ns.set(took.max(usual));
            return (is_slow && seen >= COMPARED_MIN)
                .then(|| Exceeded::All { earlier: seen, longest: Duration::from_nanos(usual) });
        }
        self.estimate_ns.set(if took > usual { usual + (usual >> 5) } else { usual - (usual >> 12) });
        is_slow.then(|| Exceeded::Percentile(Duration::from_nanos(usual)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upstream::error;

    fn keep(autopsies: &Autopsies, kind: Kind, cause: &'static str) {
        autopsies.keep(kind, cause, |kept| kept.kind = kind);
    }

    #[test]
    fn one_stands_for_all_that_are_alike() {
        let of = |kind, status, cause| {
            let mut kept = Kept::default();
            (kept.kind, kept.status, kept.cause) = (kind, status, cause);
            kept
        };
        let (reset, refused) = (Some(&error::UPSTREAM_RESET), Some(&error::CONNECT_REFUSED));
        let mut kept = vec![of(Kind::Failed, 404, Some(&error::NO_ROUTE)); 9];
        kept.push(of(Kind::Slow, 200, None));
        kept.push(of(Kind::Failed, 502, refused));
        kept.extend(vec![of(Kind::Failed, 502, reset); 3]);
        let (found, others) = grouped(kept);
        let told: Vec<_> =
            found.iter().map(|kept| kept.cause.map_or("", |cause| cause.code)).zip(others).collect();
        assert_eq!(told, [("upstream_reset", 2), ("connect_refused", 0), ("no_route", 8), ("", 0)]);
    }

    fn count(autopsies: &Autopsies, cause: &'static str) -> usize {
        let rings = autopsies.rings.borrow();
        let of = |ring: &Ring| {
            ring.by_cause
                .iter()
                .filter(|(known, _)| *known == cause)
                .map(|(_, places)| places.len())
                .sum::<usize>()
        };
        rings.by_kind.iter().map(of).sum()
    }

    #[test]
    fn a_storm_does_not_wash_the_one_failure_out() {
        let autopsies = Autopsies::new(60 * SLOT_BYTES);
        keep(&autopsies, Kind::Failed, "upstream_tls");
        for _ in 0..10_000 {
            keep(&autopsies, Kind::Failed, "no_route");
        }
        assert_eq!((count(&autopsies, "upstream_tls"), count(&autopsies, "no_route")), (1, 39));
        // Two storms share the room.
        for _ in 0..10_000 {
            keep(&autopsies, Kind::Failed, "connect_refused");
        }
        assert_eq!(count(&autopsies, "upstream_tls"), 1);
        assert!((19..=20).contains(&count(&autopsies, "no_route")));
        // The latest are kept.
        let found = autopsies.find(0, &Question { most: 3, ..Question::default() });
        assert_eq!(found.kept.iter().map(|kept| kept.number).collect::<Vec<_>>(), [20_001, 20_000, 19_999]);
        assert_eq!((found.last, found.held), (20_001, 40));
    }

    #[test]
    fn bounded_in_bytes() {
        for bytes in [0, SLOT_BYTES - 1, SLOT_BYTES, 64 << 10, 2 << 20] {
            let rings = Rings::new(bytes);
            let slots: usize = rings.by_kind.iter().map(|ring| ring.most).sum();
            assert!(slots * SLOT_BYTES <= bytes, "{bytes}");
        }
        let off = Autopsies::new(0);
        assert!(!off.is_on() && (0..10_000).all(|_| !off.samples()));
        keep(&off, Kind::Failed, "no_route");
        assert_eq!(off.find(0, &Question { most: 9, ..Question::default() }).held, 0);
    }

    #[test]
    fn samples_the_first_and_one_in_a_thousand() {
        let autopsies = Autopsies::new(1 << 20);
        let sampled: Vec<usize> = (0..2500).filter(|_| autopsies.samples()).collect();
        assert_eq!(sampled, [0, 1000, 2000]);
        // A reload without changes does not start over.
        autopsies.resize(1 << 20);
        assert!(!autopsies.samples());
    }

    #[test]
    fn questions() {
        let autopsies = Autopsies::new(1 << 20);
        for kind in [Kind::Failed, Kind::Slow, Kind::Sampled] {
            keep(&autopsies, kind, "");
        }
        let ask = |question: Question| autopsies.find(1, &Question { most: 9, ..question }).kept.len();
        assert_eq!(ask(Question::default()), 2);
        assert_eq!(ask(Question { kind: Some("sampled".to_owned()), ..Question::default() }), 1);
        assert_eq!(ask(Question { id: Some("nobody".to_owned()), ..Question::default() }), 0);
        assert_eq!(ask(Question { after: vec![9, 1], ..Question::default() }), 1);
        assert_eq!(ask(Question { after: vec![0, 3], ..Question::default() }), 0);
        assert_eq!(ask(Question { after: vec![0, 4], ..Question::default() }), 2, "of the process before");
    }

    #[test]
    fn what_is_usual_settles_at_the_99th_percentile() {
        let usual = Usual::default();
        let ms = Duration::from_millis;
        let mut slow = 0;
        for i in 0..200_000u64 {
            // 97 % within 0 to 20 ms, 3 % between 20 and 40: the 99th percentile is near 33 ms.
            let spread = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let took = if i % 100 < 97 { spread % 20_000 } else { 20_000 + spread % 20_000 };
            slow += u32::from(usual.exceeded_by(Duration::from_micros(took)).is_some());
        }
        let found = Duration::from_nanos(usual.estimate_ns.get());
        assert!((ms(25)..ms(42)).contains(&found), "{found:?}");
        assert!(slow < 200, "{slow}");
        let told = usual.exceeded_by(ms(500));
        assert_eq!(told, Some(Exceeded::Percentile(found)));
        // An exchange that is fast for its route is not slow, and neither is a usual one.
        let quick = Usual::default();
        for _ in 0..10_000 {
            assert_eq!(quick.exceeded_by(Duration::from_micros(50)), None);
        }
        assert_eq!(quick.exceeded_by(ms(9)), None);
        assert!(quick.exceeded_by(ms(11)).is_some());
    }

    #[test]
    fn a_handful_of_exchanges_has_no_percentile() {
        let ms = Duration::from_millis;
        let first = |number: u32| {
            let usual = Usual::default();
            (0..number).for_each(|_| assert_eq!(usual.exceeded_by(ms(1)), None));
            usual.exceeded_by(ms(50))
        };
        assert_eq!((first(0), first(1), first(3)), (None, None, None));
        assert_eq!(first(4), Some(Exceeded::All { earlier: 4, longest: ms(1) }));
        assert_eq!(first(99), Some(Exceeded::All { earlier: 99, longest: ms(1) }));
        assert_eq!(first(100), Some(Exceeded::Percentile(ms(1))));
        // A reload keeps what is known, and an early outlier counts among those that were exceeded.
        let usual = Usual::default();
        [1, 60, 1, 1].into_iter().for_each(|took| assert_eq!(usual.exceeded_by(ms(took)), None));
        let usual = Usual::like(&usual);
        assert_eq!(usual.exceeded_by(ms(120)), None);
        assert_eq!(usual.exceeded_by(ms(241)), Some(Exceeded::All { earlier: 5, longest: ms(120) }));
    }
}
