//! Sorts requests within a window and plans their moments.

use super::rules::{Rules, hash};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use weir_traffic::{Recorded, Then};

/// Most bytes of requests that wait to be sorted. Beyond, the earliest goes, as if the window were narrower.
const SORTED_MOST: usize = 128 << 20;

/// What a waiting request takes beside its texts.
const EACH: usize = 256;

/// After so many late requests in a row the recording's clock is taken to have jumped back.
const JUMP: u64 = 100;

/// A request with its planned moment.
#[derive(Debug)]
pub(super) struct Timed {
    /// Nanoseconds of the run; 0 with `--speed max`.
    pub(super) at: u64,
    /// Its number in the run.
    pub(super) number: u64,
    pub(super) request: Box<Recorded>,
}

pub(super) struct Window<'a> {
    rules: &'a Rules,
    /// The earliest first; of equal ones, in the order of the recording.
    waiting: BinaryHeap<Reverse<Waiting>>,
    bytes: usize,
    /// Responses by the id of their request; none while it waits for its response.
    answers: HashMap<String, Option<Then>>,
    seen: u64,
    lines: u64,
    /// The latest time that was read.
    latest: i128,
    /// The time of the last request handed on.
    last: Option<i128>,
    /// Late requests in a row, and how far the times are moved because of jumps.
    late: u64,
    shift: i128,
    jumps: u64,
    /// Of this pass: the first time, and what was cut of gaps.
    first: Option<i128>,
    cut: i128,
    begin_ns: u64,
    /// The planned moment of the last request, and how many there were.
    end_ns: u64,
    given: u64,
}

struct Waiting {
    at: i128,
    line: u64,
    request: Box<Recorded>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.line) == (other.at, other.line)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.line).cmp(&(other.at, other.line))
    }
}

fn size(r: &Recorded) -> usize {
    let fields: usize = r.fields.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
    let texts = [&r.target, &r.method, &r.client, &r.route].map(String::len).iter().sum::<usize>();
    let rest = [&r.host, &r.id].map(|text| text.as_ref().map_or(0, String::len)).iter().sum::<usize>();
    EACH + texts + rest + fields + r.body.as_ref().map_or(0, Vec::len)
}

impl<'a> Window<'a> {
    pub(super) fn new(rules: &'a Rules) -> Self {
        Self {
            rules,
            waiting: BinaryHeap::new(),
            bytes: 0,
            answers: HashMap::new(),
            seen: 0,
            lines: 0,
            latest: i128::MIN,
            last: None,
            late: 0,
            shift: 0,
            jumps: 0,
            first: None,
            cut: 0,
            begin_ns: 0,
            end_ns: 0,
            given: 0,
        }
    }

    /// Whether the request is part of the sample.
    pub(super) fn is_sampled(&mut self, request: &Recorded) -> bool {
        let (part, of) = self.rules.sample;
        let number = if self.rules.sample_by_client { hash(&request.client) } else { self.seen };
        self.seen += 1;
        number % of < part
    }

    /// Takes a request; returns whether it comes too late to be sorted, and how often the clock has jumped.
    pub(super) fn take(&mut self, request: Box<Recorded>) -> (bool, u64) {
        let mut at = request.at + self.shift;
        let is_late = self.last.is_some_and(|last| at < last);
        self.late = if is_late { self.late + 1 } else { 0 };
        if let Some(last) = self.last.filter(|_| self.late > JUMP) {
            self.shift += last - at;
            (at, self.late) = (last, 0);
            self.jumps += 1;
        }
        self.lines += 1;
        self.latest = self.latest.max(at);
        self.bytes += size(&request);
        if let Some(id) = &request.id {
            self.answers.insert(id.clone(), None);
        }
        self.waiting.push(Reverse(Waiting { at, line: self.lines, request }));
        (is_late, self.jumps)
    }

    /// Takes the response to a request that still waits.
    pub(super) fn answer(&mut self, id: &str, then: Then) {
        // Those of requests that are left out, or were handed on, are not kept.
        if let Some(waits) = self.answers.get_mut(id) {
            *waits = Some(then);
        }
    }

    /// The next request that no later one can precede.
    pub(super) fn next(&mut self) -> Option<Timed> {
        let Reverse(first) = self.waiting.peek()?;
        let is_sure = first.at + i128::from(self.rules.reorder_ns) <= self.latest;
        if is_sure || self.bytes > SORTED_MOST { self.rest() } else { None }
    }

    /// The next request at the end of the recording.
    pub(super) fn rest(&mut self) -> Option<Timed> {
        let Reverse(Waiting { at, mut request, .. }) = self.waiting.pop()?;
        self.bytes = self.bytes.saturating_sub(size(&request));
        if let Some(then) = request.id.as_ref().and_then(|id| self.answers.remove(id)).flatten() {
            request.then = then;
        }
        let last = self.last.unwrap_or(at);
        // One that comes too late goes at once.
        let at = at.max(last);
        let first = *self.first.get_or_insert(at);
        if let Some(most) = self.rules.gap_most {
            self.cut += (at - last - i128::from(most)).max(0);
        }
        self.last = Some(at);
        self.given += 1;
        let since = (at - first - self.cut).max(0) as f64;
        let into = self.rules.speed.map_or(0.0, |speed| since / speed);
        self.end_ns = self.begin_ns.saturating_add(into as u64);
        Some(Timed { at: self.end_ns, number: self.given, request })
    }

    /// Another pass through the recording begins: as long after the last request as requests are apart on average.
    pub(super) fn repeat(&mut self) {
        self.begin_ns = self.end_ns.saturating_add(self.gap_ns());
        (self.latest, self.last, self.first, self.cut) = (i128::MIN, None, None, 0);
        (self.late, self.shift) = (0, 0);
        self.answers.clear();
    }

    /// The mean time between planned requests so far.
    pub(super) const fn gap_ns(&self) -> u64 {
        match self.given {
            0 | 1 => 0,
            n => self.end_ns / (n - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ReplayOptions;

    fn rules(change: impl FnOnce(&mut ReplayOptions)) -> Rules {
        let mut options = ReplayOptions::default();
        change(&mut options);
        Rules::read(&options, &mut Vec::new())
    }

    fn recorded(seconds: f64) -> Box<Recorded> {
        let at = (seconds * 1e9) as i128;
        Box::new(Recorded {
            at,
            method: "GET".to_owned(),
            target: format!("/{seconds}"),
            ..Recorded::default()
        })
    }

    /// The starts in milliseconds, how many came too late, and the jumps.
    fn starts(rules: &Rules, times: &[f64]) -> (Vec<u64>, usize, u64) {
        let mut window = Window::new(rules);
        let (mut all, mut late, mut jumps) = (Vec::new(), 0, 0);
        for time in times {
            let (is_late, n) = window.take(recorded(*time));
            late += usize::from(is_late);
            jumps = n;
            while let Some(timed) = window.next() {
                all.push(timed.at / 1_000_000);
            }
        }
        while let Some(timed) = window.rest() {
            all.push(timed.at / 1_000_000);
        }
        (all, late, jumps)
    }

    #[test]
    fn times_are_kept_or_divided_by_the_speed() {
        let times = [1000.0, 1000.5, 1003.0, 1020.0];
        assert_eq!(starts(&rules(|_| {}), &times).0, [0, 500, 3000, 20_000]);
        assert_eq!(starts(&rules(|o| o.speed = Some("2".to_owned())), &times).0, [0, 250, 1500, 10_000]);
        assert_eq!(starts(&rules(|o| o.speed = Some("max".to_owned())), &times).0, [0; 4]);
        assert_eq!(starts(&rules(|o| o.gap_max = Some("1s".to_owned())), &times).0, [0, 500, 1500, 2500]);
    }

    #[test]
    fn requests_are_sorted_within_the_window_and_late_ones_counted() {
        let (all, late, _) = starts(&rules(|_| {}), &[100.0, 103.0, 101.0, 102.0, 150.0]);
        assert_eq!((all, late), (vec![0, 1000, 2000, 3000, 50_000], 0));
        let narrow = rules(|o| o.reorder = Some("1s".to_owned()));
        let (all, late, jumps) = starts(&narrow, &[100.0, 103.0, 105.0, 101.0, 106.0]);
        assert_eq!((all, late, jumps), (vec![0, 3000, 3000, 5000, 6000], 1, 0));
        // One line out of order by an hour moves no other.
        let (all, late, _) = starts(&narrow, &[4000.0, 4001.0, 4002.0, 400.0, 4003.0]);
        assert_eq!((all, late), (vec![0, 1000, 1000, 2000, 3000], 1));
    }

    #[test]
    fn after_a_jump_back_of_the_clock_the_replay_goes_on() {
        let narrow = rules(|o| o.reorder = Some("1s".to_owned()));
        let times = (0..500).map(f64::from).map(|n| 8000.0 + n);
        let back = (0..500).map(f64::from).map(|n| 4900.0 + n);
        let (all, late, jumps) = starts(&narrow, &times.chain(back).collect::<Vec<_>>());
        assert_eq!((all.len(), jumps, late as u64), (1000, 1, JUMP + 1));
        // 101 requests go at once, the other 399 at their distances.
        assert_eq!(all.last(), Some(&(498_000 + 399_000)));
    }

    #[test]
    fn passes_follow_each_other() {
        let rules = rules(|_| {});
        let mut window = Window::new(&rules);
        let mut all = Vec::new();
        for _ in 0..3 {
            for second in [10.0, 11.0, 12.0] {
                window.take(recorded(second));
            }
            while let Some(timed) = window.rest() {
                all.push(timed.at / 1_000_000);
            }
            window.repeat();
        }
        assert_eq!(all, [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000]);
    }

    #[test]
    fn a_sample_by_client_keeps_clients_whole() {
        let rules = rules(|o| (o.sample, o.sample_by_client) = (Some("1/4".to_owned()), true));
        let mut window = Window::new(&rules);
        let mut kept = 0;
        for client in 0..400 {
            let one = Recorded { client: format!("10.0.0.{client}"), ..*recorded(1.0) };
            let all: Vec<bool> = (0..3).map(|_| window.is_sampled(&one)).collect();
            assert!(all.iter().all(|is| *is == all[0]), "{client}");
            kept += u64::from(all[0]);
        }
        assert!((60..140).contains(&kept), "{kept} of 400");
    }

    #[test]
    fn a_response_recorded_apart_finds_its_request() {
        let rules = rules(|_| {});
        let mut window = Window::new(&rules);
        window.take(Box::new(Recorded { id: Some("a".to_owned()), ..*recorded(1.0) }));
        window.answer("a", Then { status: Some(201), ..Then::default() });
        window.answer("b", Then::default());
        assert_eq!(window.rest().unwrap().request.then.status, Some(201));
    }
}
