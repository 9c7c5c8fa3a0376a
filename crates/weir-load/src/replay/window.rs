//! Sorts requests within a window and plans their moments.

use super::rules::{Rules, hash};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use weir_traffic::{Recorded, Then};

/// Most bytes of requests that wait to be sorted. Beyond, the earliest goes, as if the window were narrower. A line of
/// an access log takes 600 to 900 bytes, so a window of 10 s holds 7,000 to 11,000 lines per second.
const SORTED_MOST: usize = 64 << 20;

/// What a waiting request takes beside what it points to: itself, its allocation, and its place in a heap that is half
/// full at worst.
const EACH: usize = size_of::<Recorded>() + 16 + 2 * size_of::<Reverse<Waiting>>();

/// A request that is so much later than those before it waits until [`FAR_MOST`] in a row are, so that one with a wrong
/// time does not count as the present.
const FAR_NS: i128 = 3_600_000_000_000;
const FAR_MOST: usize = 3;

/// At the begin and at the end of a recording, fewer requests that are so far from the others have a wrong time.
const WRONG_NS: i128 = 86_400_000_000_000;

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
    /// Requests whose time is far ahead.
    far: Vec<Waiting>,
    /// At the beginning, requests whose time is far before that of the first ones.
    behind: Vec<Waiting>,
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
    /// Gaps that were cut, and by how much in total, of all passes.
    gaps_cut: (u64, u64),
    begin_ns: u64,
    /// The planned moment of the last request, and how many there were.
    end_ns: u64,
    given: u64,
}

/// What became of a request that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// It comes too late to be sorted.
    pub(super) is_late: bool,
    /// How often the recording's clock has jumped.
    pub(super) jumps: u64,
    /// Lines of earlier requests that are left out, because their time is wrong.
    pub(super) wrong: Vec<u64>,
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

/// The memory that a waiting request takes. Many small texts take more for their allocations than for their bytes.
fn size(r: &Recorded) -> usize {
    let texts = [&r.target, &r.method, &r.client, &r.route].into_iter().chain(&r.host).chain(&r.id);
    let of_texts: usize = texts.map(|text| allocated(text.capacity())).sum();
    let of_fields =
        |(name, value): &(String, Vec<u8>)| allocated(name.capacity()) + allocated(value.capacity());
    let fields: usize = r.fields.iter().map(of_fields).sum();
    let list = allocated(r.fields.capacity() * size_of::<(String, Vec<u8>)>());
    let id = r.id.as_ref().map_or(0, |id| allocated(id.len()) + 2 * size_of::<(String, Option<Then>)>());
    EACH + of_texts + fields + list + id + r.body.as_ref().map_or(0, |body| allocated(body.capacity()))
}

/// What an allocation of so many bytes takes: a word more, in steps of 16, at least 32.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

impl<'a> Window<'a> {
    pub(super) fn new(rules: &'a Rules) -> Self {
        Self {
            rules,
            waiting: BinaryHeap::new(),
            bytes: 0,
            answers: HashMap::new(),
            seen: 0,
            far: Vec::new(),
            behind: Vec::new(),
            latest: i128::MIN,
            last: None,
            late: 0,
            shift: 0,
            jumps: 0,
            first: None,
            cut: 0,
            gaps_cut: (0, 0),
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

    /// Takes the request at this line.
    pub(super) fn take(&mut self, request: Box<Recorded>, line: u64) -> Taken {
        let at = request.at + self.shift;
        if let Some(id) = &request.id {
            self.answers.insert(id.clone(), None);
        }
        self.bytes += size(&request);
        let jumps = self.jumps;
        let is_begin = self.given == 0 && self.waiting.len() < FAR_MOST;
        if is_begin && self.latest != i128::MIN && self.latest - at > WRONG_NS {
            self.behind.push(Waiting { at, line, request });
            if self.behind.len() < FAR_MOST {
                return Taken { jumps, ..Taken::default() };
            }
            // Those before them are the wrong ones.
            let wrong = self.forget_waiting();
            std::mem::take(&mut self.behind).into_iter().for_each(|one| drop(self.add(one)));
            return Taken { jumps, wrong, ..Taken::default() };
        }
        let behind = std::mem::take(&mut self.behind);
        let mut wrong = self.leave(behind);
        if self.latest == i128::MIN || at - self.latest <= FAR_NS {
            let far = std::mem::take(&mut self.far);
            wrong.extend(self.leave(far));
            return Taken { wrong, ..self.add(Waiting { at, line, request }) };
        }
        self.far.push(Waiting { at, line, request });
        if self.far.len() < FAR_MOST {
            return Taken { jumps, wrong, ..Taken::default() };
        }
        let far = std::mem::take(&mut self.far);
        // Then those at the begin of the recording may be the wrong ones.
        if is_begin && far.iter().all(|one| one.at - self.latest > WRONG_NS) {
            wrong.extend(self.forget_waiting());
        }
        far.into_iter().for_each(|one| drop(self.add(one)));
        Taken { jumps, wrong, ..Taken::default() }
    }

    /// Takes what is left at the end of the recording. Returns the lines of requests whose time is wrong.
    pub(super) fn settle(&mut self) -> Vec<u64> {
        // Of so few, nothing tells which are wrong.
        std::mem::take(&mut self.behind).into_iter().for_each(|one| drop(self.add(one)));
        let far = std::mem::take(&mut self.far);
        let latest = self.latest;
        let (wrong, good): (Vec<_>, Vec<_>) = far.into_iter().partition(|one| one.at - latest > WRONG_NS);
        good.into_iter().for_each(|one| drop(self.add(one)));
        self.leave(wrong)
    }

    /// Forgets the requests at the beginning of the recording, and returns their lines.
    fn forget_waiting(&mut self) -> Vec<u64> {
        let first = std::mem::take(&mut self.waiting).into_iter().map(|Reverse(one)| one).collect();
        self.latest = i128::MIN;
        self.leave(first)
    }

    /// Forgets requests, and returns their lines.
    fn leave(&mut self, all: Vec<Waiting>) -> Vec<u64> {
        let leave = |one: Waiting| {
            self.bytes = self.bytes.saturating_sub(size(&one.request));
            if let Some(id) = &one.request.id {
                self.answers.remove(id);
            }
            one.line
        };
        all.into_iter().map(leave).collect()
    }

    fn add(&mut self, one: Waiting) -> Taken {
        let Waiting { mut at, line, request } = one;
        let is_late = self.last.is_some_and(|last| at < last);
        self.late = if is_late { self.late + 1 } else { 0 };
        if let Some(last) = self.last.filter(|_| self.late > JUMP) {
            self.shift += last - at;
            (at, self.late) = (last, 0);
            self.jumps += 1;
        }
        self.latest = self.latest.max(at);
        self.waiting.push(Reverse(Waiting { at, line, request }));
        Taken { is_late, jumps: self.jumps, wrong: Vec::new() }
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
        if let (Some(most), Some(_)) = (self.rules.gap_most, self.rules.speed) {
            let over = (at - last - i128::from(most)).max(0);
            self.cut += over;
            self.gaps_cut.0 += u64::from(over > 0);
            self.gaps_cut.1 = self.gaps_cut.1.saturating_add(u64::try_from(over).unwrap_or(u64::MAX));
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

    /// How many gaps were cut so far, and by how many nanoseconds of the recording in total.
    pub(super) const fn gaps_cut(&self) -> (u64, u64) {
        self.gaps_cut
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
        for (line, time) in (1..).zip(times) {
            let taken = window.take(recorded(*time), line);
            late += usize::from(taken.is_late);
            jumps = taken.jumps;
            while let Some(timed) = window.next() {
                all.push(timed.at / 1_000_000);
            }
        }
        window.settle();
        while let Some(timed) = window.rest() {
            all.push(timed.at / 1_000_000);
        }
        (all, late, jumps)
    }

    /// The starts in milliseconds, the lines whose time is wrong, and the gaps that were cut.
    fn wrong(times: &[f64]) -> (Vec<u64>, Vec<u64>, u64) {
        let rules = rules(|_| {});
        let mut window = Window::new(&rules);
        let (mut all, mut wrong) = (Vec::new(), Vec::new());
        for (line, time) in (1..).zip(times) {
            wrong.extend(window.take(recorded(*time), line).wrong);
            while let Some(timed) = window.next() {
                all.push(timed.at / 1_000_000);
            }
        }
        wrong.extend(window.settle());
        while let Some(timed) = window.rest() {
            all.push(timed.at / 1_000_000);
        }
        (all, wrong, window.gaps_cut().0)
    }

    #[test]
    fn a_wrong_time_holds_nothing_up() {
        const Y: f64 = 365.0 * 86_400.0;
        // In the middle, at the end, and at the begin.
        assert_eq!(wrong(&[0.0, 1.0, 70.0 * Y, 2.0, 3.0]), (vec![0, 1000, 2000, 3000], vec![3], 0));
        assert_eq!(wrong(&[0.0, 1.0, 2.0, 70.0 * Y]), (vec![0, 1000, 2000], vec![4], 0));
        // The first one, or another at the begin, in either direction.
        assert_eq!(wrong(&[70.0 * Y, 0.0, 1.0, 2.0, 3.0]), (vec![0, 1000, 2000, 3000], vec![1], 0));
        assert_eq!(wrong(&[9.0, 70.0 * Y, 8.0, 10.0, 11.0]), (vec![0, 1000, 2000, 3000], vec![2], 0));
        assert_eq!(wrong(&[Y, 0.0, Y + 1.0, Y + 2.0]), (vec![0, 1000, 2000], vec![2], 0));
        let late = 50.0 * Y;
        let times = [0.0, late, late + 1.0, late + 2.0, late + 60.0];
        assert_eq!(wrong(&times), (vec![0, 1000, 2000, 60_000], vec![1], 0));
        // A real gap is cut, also before the last request.
        let night = 8.0 * 3600.0;
        let times = [0.0, night, night + 1.0, night + 2.0, 2.0 * night];
        assert_eq!(wrong(&times), (vec![0, 600_000, 601_000, 602_000, 1_202_000], vec![], 2));
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
                window.take(recorded(second), 1);
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
    fn waiting_requests_take_a_bounded_amount_of_memory() {
        let rules = rules(|_| {});
        let mut window = Window::new(&rules);
        let field = || ("user-agent".to_owned(), vec![b'x'; 120]);
        let (mut most, mut given) = (0, 0);
        for line in 0..200_000 {
            window.take(Box::new(Recorded { fields: vec![field()], ..*recorded(1.0) }), line);
            most = most.max(window.bytes);
            while window.next().is_some() {
                given += 1;
            }
        }
        let one = size(&Recorded { fields: vec![field()], ..*recorded(1.0) });
        assert!(most <= SORTED_MOST + one && given > 0, "{most} of {SORTED_MOST}, {given} handed on");
        // The allocator's own numbers: 272 for the request, 32 for each short text, 112 and 144 for the field.
        assert!((550..800).contains(&one), "{one}");
        while window.rest().is_some() {}
        assert_eq!(window.bytes, 0);
    }

    #[test]
    fn a_response_recorded_apart_finds_its_request() {
        let rules = rules(|_| {});
        let mut window = Window::new(&rules);
        window.take(Box::new(Recorded { id: Some("a".to_owned()), ..*recorded(1.0) }), 1);
        window.answer("a", Then { status: Some(201), ..Then::default() });
        window.answer("b", Then::default());
        assert_eq!(window.rest().unwrap().request.then.status, Some(201));
    }
}
