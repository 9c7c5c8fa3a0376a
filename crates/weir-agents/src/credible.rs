//! Rejects impossible reports of an agent: counts that contradict each other, and more time than has passed. Bugs cause
//! them as well as malicious agents.

use crate::Time;
use crate::agent::nanos;
use crate::message::Second;
use crate::sum::Sum;
use std::time::Duration;
use weir_report::Report;

/// How much longer than ours an agent's time may be: allows for network latency.
pub const SLACK: Duration = Duration::from_secs(1);

/// How much faster an agent's clock may run, as one part of so many: twice what NTP may correct.
const DRIFT: u32 = 1_000;

fn total<'a>(all: impl IntoIterator<Item = &'a u64>) -> u64 {
    all.into_iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Checks the counts of a second for contradictions, with each other and with earlier seconds.
///
/// # Errors
/// The first contradiction, in words.
pub fn second(before: &Sum, s: &Second) -> Result<(), String> {
    let (c, b, tick) = (&s.counts, &before.counts, &s.tick);
    for (what, sum, earlier, in_it) in [
        ("requests", c.requests, b.requests, tick.requests),
        ("responses", c.responses, b.responses, tick.responses),
        ("errors", c.errors.total(), b.errors.total(), tick.errors),
    ] {
        if sum.checked_sub(earlier) != Some(in_it) {
            return Err(format!("{what}: {in_it} more than {earlier} are not {sum}"));
        }
    }
    for (what, h) in [("service", &s.service), ("response", &s.response)] {
        if h.count() != tick.responses {
            return Err(format!("{what} times: {} of {} responses", h.count(), tick.responses));
        }
        if !h.is_sound() {
            return Err(format!("{what} times: sum, minimum or maximum contradict the buckets"));
        }
    }
    let ended = c.responses.saturating_add(c.errors.total());
    if ended > c.requests {
        return Err(format!("{ended} requests have ended, and {} began", c.requests));
    }
    let statuses = total(c.statuses.values());
    if statuses != c.responses && (statuses > 0 || c.grpc.is_empty()) {
        return Err(format!("statuses: {statuses} of {} responses", c.responses));
    }
    if total(c.grpc.values()) > c.responses {
        return Err(format!("gRPC codes: {} of {} responses", total(c.grpc.values()), c.responses));
    }
    for check in &s.checks {
        let judged = check.passed.saturating_add(check.failed);
        if judged > c.responses {
            return Err(format!("check `{}`: {judged} of {} responses", check.check, c.responses));
        }
    }
    let last = before.ticks.last().map_or(0, |tick| tick.end_ns);
    if tick.end_ns < last {
        return Err("it ended before the second before it".to_owned());
    }
    Ok(())
}

/// Compares the time of a second with the time since the load began. `warmup` is not part of its own time.
///
/// # Errors
/// It says that more time has passed.
pub fn in_time(s: &Second, warmup: Duration, passed: Time) -> Result<(), String> {
    let most = longest(passed);
    let end = s.tick.end_ns.saturating_add(nanos(warmup));
    let whole = nanos(Duration::from_secs(1)).saturating_mul(s.number);
    // No response took longer than the load.
    for (what, ns) in [
        ("its end", end),
        ("its number", whole),
        ("a service time", s.service.max()),
        ("a response time", s.response.max()),
    ] {
        if ns > most {
            return Err(told(&format!("second {}: {what}", s.number), ns, passed));
        }
    }
    Ok(())
}

/// Compares the time of a report with the time since the load began.
///
/// # Errors
/// As those of [`in_time`].
pub fn report_in_time(r: &Report, passed: Time) -> Result<(), String> {
    let most = longest(passed);
    let ticks = r.series.ticks.iter().map(|tick| ("a second", tick.end_ns));
    let threads = r.threads.iter().flat_map(|t| {
        [
            ("a thread", t.measured_ns),
            ("processor time of a thread", t.cpu_ns),
            ("a thread's wait", t.waited_ns),
        ]
    });
    let whole = [("its length", r.duration_ns), ("a response time", r.latency.response.max())];
    match whole.into_iter().chain(ticks).chain(threads).find(|(_, ns)| *ns > most) {
        Some((what, ns)) => Err(told(what, ns, passed)),
        None => Ok(()),
    }
}

/// The longest that an agent may have measured.
fn longest(passed: Time) -> u64 {
    nanos(passed.saturating_add(SLACK).saturating_add(passed / DRIFT))
}

fn told(what: &str, ns: u64, passed: Time) -> String {
    let seconds = Duration::from_nanos(ns).as_secs_f64();
    format!("{what} is {seconds:.3} s, and the load began {:.3} s ago", passed.as_secs_f64())
}

/// What an honest agent says, for tests.
#[cfg(test)]
pub(crate) mod honest {
    use super::*;
    use weir_report::report::Tick;

    /// The next second of a load whose responses took these times, which are added to its report.
    pub(crate) fn second(end: &mut Report, number: u64, times: &[u64]) -> Second {
        let mut s = Second { number, ..Second::default() };
        let n = times.len() as u64;
        for time in times {
            s.service.record(*time);
            s.response.record(*time + 10);
        }
        end.latency.service.add(&s.service);
        end.latency.response.add(&s.response);
        let (l, p) = (&mut end.latency, &mut end.phases);
        for h in [
            &mut l.first_byte,
            &mut p.blocked,
            &mut p.dns,
            &mut p.connecting,
            &mut p.tls,
            &mut p.sending,
            &mut p.waiting,
            &mut p.receiving,
        ] {
            h.record_n(1, n);
        }
        end.counts.requests += n;
        end.counts.responses += n;
        end.counts.statuses.insert(200, end.counts.responses);
        s.counts = end.counts.clone();
        s.tick = Tick { end_ns: (number + 1) * 1_000_000_000, requests: n, responses: n, ..Tick::default() };
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::report::ThreadStats;

    #[test]
    fn more_time_than_has_passed_is_found() {
        let (mut report, s) = (Report::default(), Duration::from_secs);
        let second = honest::second(&mut report, 3, &[1_000, 2_500_000_000]);
        assert_eq!(in_time(&second, s(0), s(4)), Ok(()));
        assert_eq!(in_time(&second, s(2), s(6)), Ok(()));
        for (warmup, passed) in [(0, 2), (2, 4)] {
            assert!(in_time(&second, s(warmup), s(passed)).is_err(), "{warmup} {passed}");
        }
        // A day on a clock that is 50 ppm fast.
        assert_eq!(in_time(&Second { number: 86_404, ..Second::default() }, s(0), s(86_400)), Ok(()));
        let far = Second { number: 9, ..Second::default() };
        assert!(in_time(&far, s(0), s(4)).unwrap_err().contains("its number"));
        report.duration_ns = 4_000_000_000;
        assert_eq!(report_in_time(&report, s(4)), Ok(()));
        assert!(report_in_time(&report, s(1)).is_err());
        report.threads = vec![ThreadStats { cpu_ns: 9_000_000_000, ..ThreadStats::default() }];
        let told = report_in_time(&report, s(4)).unwrap_err();
        assert_eq!(told, "processor time of a thread is 9.000 s, and the load began 4.000 s ago");
    }
}
