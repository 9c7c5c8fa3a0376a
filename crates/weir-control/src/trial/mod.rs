//! A change on trial: it is watched, and reverted if it made things worse or nobody confirms it in time.
//!
//! ```text
//!   every second: figures of each route ─► `record` ─┐
//!   a change with --watch ─► Trial: before │ after ──┴─► `verdict` after each interval ─► back, as a new revision
//! ```
//!
//! A trial outlives the process: its terms are in the revision (`history::OnTrial`), the earlier figures in a
//! separate file.
//!
//! *Layout:* `verdict` compares figures and is pure; `record` keeps those of the last minutes; `baseline` writes the
//! earlier ones and reads them back. This file defines what is on trial; the thread that checks once a second is in
//! `gateway/guard.rs`. None of it is on the path of a request.

mod baseline;
mod record;
mod verdict;

pub(crate) use baseline::Baseline;
pub(crate) use record::{Figures, Measure, Record, Sample};

use crate::history::{OnTrial, Restriction};
use record::Compared;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_telemetry::cell::BOUNDS_NS;
use weir_telemetry::timestamp;

/// The number of intervals in a watch.
const INTERVALS: u32 = 10;

/// The longest interval: half the time within which a bad change must be reverted.
const LONGEST: Duration = Duration::from_secs(30);

/// The shortest interval: figures come once a second.
const SHORTEST: Duration = Duration::from_secs(1);

/// Most warnings about one trial.
const WARNINGS: usize = 8;

/// The conditions under which a change stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How long it is watched.
    pub watch: Option<Duration>,
    /// It is reverted unless it is confirmed within this time.
    pub confirm: Option<Duration>,
}

/// A change on trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) number: u64,
    /// The previous revision.
    pub(crate) back_to: u64,
    routes: Vec<Arc<str>>,
    interval: Duration,
    before: Vec<Arc<Sample>>,
    /// The last samples since the change; and how many there were.
    after: Vec<Arc<Sample>>,
    moments: usize,
    watched_until: Option<Instant>,
    confirm_by: Option<Instant>,
    /// How it restricts access, if it does: then figures never revert it.
    restriction: Option<Restriction>,
    /// The warnings given to the operator.
    warnings: Vec<String>,
}

/// The trial in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrialStatus {
    /// The revision.
    pub number: u64,
    /// The revision to go back to.
    pub back_to: u64,
    /// Until when it is watched: RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_until: Option<String>,
    /// Until when it must be confirmed: RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_by: Option<String>,
    /// The settings by which it restricts access; if there are any, figures never revert it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restricts: Vec<String>,
    /// What reverting would restore; if there is anything, it stays even without confirmation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revokes: Vec<String>,
    /// What got worse without reverting it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What to do about a trial now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Due {
    Nothing,
    /// Revert it, for this reason.
    Back(String),
    /// It has passed.
    Passed,
    /// Nobody confirmed it in time, but it stays, because reverting would restore this.
    Stays(String),
    /// It made something worse, but stays: for a log line.
    Warn(String),
}

// === impl Terms ===

impl Terms {
    pub(crate) const fn is_any(&self) -> bool {
        self.watch.is_some() || self.confirm.is_some()
    }

    /// The terms as the history stores them, starting now.
    pub(crate) fn on_trial(self) -> Option<OnTrial> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.is_any().then(|| OnTrial {
            began: unix_ms(),
            watch: self.watch.map(ms),
            confirm: self.confirm.map(ms),
            goes_on: true,
        })
    }
}

// === impl OnTrial ===

impl OnTrial {
    /// The rest of a time that began with the trial. Setting the clock back does not extend it beyond its full
    /// length.
    fn left(self, of: Option<u64>) -> Option<Duration> {
        let gone = unix_ms().saturating_sub(self.began);
        of.map(|time| Duration::from_millis(time.saturating_sub(gone)))
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

// === impl Trial ===

impl Trial {
    pub(crate) fn new(
        (number, back_to): (u64, u64),
        terms: Terms,
        (routes, restriction): (Vec<Arc<str>>, Option<Restriction>),
        record: &Record,
        now: Instant,
    ) -> Self {
        let interval = terms.watch.map_or(LONGEST, |watch| (watch / INTERVALS).clamp(SHORTEST, LONGEST));
        let before = record.last(interval, INTERVALS as usize);
        Self {
            number,
            back_to,
            routes,
            interval,
            after: before.last().cloned().into_iter().collect(),
            moments: 1,
            before,
            watched_until: terms.watch.map(|watch| now + watch),
            confirm_by: terms.confirm.map(|confirm| now + confirm),
            restriction,
            warnings: Vec::new(),
        }
    }

    /// A trial of the previous process, whose traffic this one continues. `None` if its time is over and it needs no
    /// confirmation.
    ///
    /// Without the earlier figures nothing can be compared, but a required confirmation is still required.
    pub(crate) fn resumed(
        (number, back_to): (u64, u64),
        terms: OnTrial,
        (baseline, restriction): (Option<Baseline>, Option<Restriction>),
        now: Instant,
    ) -> Option<Self> {
        let until = |time| terms.left(time).filter(|left: &Duration| !left.is_zero()).map(|left| now + left);
        let baseline = baseline.filter(|baseline| baseline.number == number).unwrap_or_default();
        let trial = Self {
            number,
            back_to,
            routes: baseline.routes,
            interval: baseline.interval,
            before: baseline.before,
            after: Vec::new(),
            moments: 0,
            watched_until: until(terms.watch),
            // A deadline in the past is due immediately.
            confirm_by: terms.left(terms.confirm).map(|left| now + left),
            restriction,
            warnings: Vec::new(),
        };
        (trial.watched_until.is_some() || trial.confirm_by.is_some()).then_some(trial)
    }

    /// What to store for [`Self::resumed`].
    pub(crate) fn baseline(&self) -> Baseline {
        Baseline {
            number: self.number,
            interval: self.interval,
            routes: self.routes.clone(),
            before: self.before.clone(),
        }
    }

    /// Whether the time to confirm it is over.
    pub(crate) fn is_unconfirmed(&self, now: Instant) -> bool {
        self.confirm_by.is_some_and(|by| by <= now)
    }

    /// Whether it is reverted unless it is confirmed.
    pub(crate) const fn awaits_confirmation(&self) -> bool {
        self.confirm_by.is_some()
    }

    /// Ends its watch.
    pub(crate) fn end_watch(&mut self) {
        self.watched_until = None;
    }

    /// Whether it is watched and so needs figures.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched_until.is_some()
    }

    /// Examines the current figures.
    pub(crate) fn look(&mut self, sample: &Arc<Sample>) -> Due {
        let now = sample.at;
        if self.is_unconfirmed(now) {
            return self.unconfirmed("it was not confirmed in time");
        }
        if self.watched_until.is_some() {
            let full =
                self.after.last().is_none_or(|last| now.saturating_duration_since(last.at) >= self.interval);
            if full {
                if self.after.len() > verdict::LOOKED_AT {
                    self.after.remove(0);
                }
                self.after.push(Arc::clone(sample));
                self.moments += 1;
                let since = self.moments - 1;
                let moments = (&self.before[..], &self.after[..]);
                let compare = |compared| record::compare(compared, &self.routes, moments, since);
                let (worse, refused) = (compare(Compared::Failures), compare(Compared::Refusals));
                if let Some(found) = worse {
                    let why = in_words(&found);
                    let Some(restriction) = &self.restriction else { return Due::Back(why) };
                    let stays =
                        format!("{why}; it stays, because it restricts access ({})", restriction.what());
                    if let Some(warning) = self.warn(stays) {
                        return warning;
                    }
                }
                if let Some(found) = refused
                    && let Some(warning) = self.warn(in_words(&found))
                {
                    return warning;
                }
            }
        }
        if self.watched_until.is_some_and(|until| until <= now) {
            self.watched_until = None;
        }
        if self.watched_until.is_none() && self.confirm_by.is_none() { Due::Passed } else { Due::Nothing }
    }

    /// What to do once the time to confirm is over: revert it, unless that would restore what it revoked.
    pub(crate) fn unconfirmed(&self, why: &str) -> Due {
        match &self.restriction {
            Some(Restriction { revokes, .. }) if !revokes.is_empty() => Due::Stays(format!(
                "{why}; it stays, because a rollback would restore {}",
                revokes.join(", ")
            )),
            _ => Due::Back(why.to_owned()),
        }
    }

    /// Warns once per measure and route; the figures differ each time.
    fn warn(&mut self, text: String) -> Option<Due> {
        let subject =
            |text: &str| text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect::<String>();
        let known = self.warnings.iter().any(|known| subject(known) == subject(&text));
        if known || self.warnings.len() >= WARNINGS {
            return None;
        }
        self.warnings.push(text.clone());
        Some(Due::Warn(text))
    }

    /// What it made worse without being reverted.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Extends its watch by a year: until its requester ends it.
    pub(crate) fn watch_on(&mut self, now: Instant) {
        self.watched_until = Some(now + Duration::from_secs(365 * 24 * 3600));
    }

    /// Its entry in the status.
    pub(crate) fn status(&self, now: Instant) -> TrialStatus {
        let at = |then: Instant| timestamp(SystemTime::now() + then.saturating_duration_since(now));
        TrialStatus {
            number: self.number,
            back_to: self.back_to,
            watched_until: self.watched_until.map(at),
            confirm_by: self.confirm_by.map(at),
            restricts: self.restriction.as_ref().map(|found| found.restricts.clone()).unwrap_or_default(),
            revokes: self.restriction.as_ref().map(|found| found.revokes.clone()).unwrap_or_default(),
            warnings: self.warnings.clone(),
        }
    }
}

/// For a trial whose earlier figures are lost.
impl Default for Baseline {
    fn default() -> Self {
        Self { number: 0, interval: LONGEST, routes: Vec::new(), before: Vec::new() }
    }
}

/// The reason as text, with figures.
fn in_words((route, measure, evidence): &(Arc<str>, Measure, verdict::Evidence)) -> String {
    let of = if **route == *ALL { "all routes together".to_owned() } else { format!("route {route}") };
    let what = match measure {
        Measure::Cause(cause) => format!("were answered by the gateway itself ({cause})"),
        Measure::Failed => "were answered 5xx by the upstream".to_owned(),
        Measure::Refused(cause) => format!("were refused ({cause})"),
        Measure::Slower(bucket) => {
            let ms = BOUNDS_NS.get(*bucket).map_or(0, |ns| ns / 1_000_000);
            format!("took longer than {ms} ms")
        }
    };
    let (now, before) = (evidence.now() * 100.0, evidence.before * 100.0);
    format!("{of}: {now:.1} % of {} requests {what}, {before:.1} % before", evidence.after.requests)
}

/// The name under which all routes are counted together; no route can have it.
pub(crate) const ALL: &str = "*";

#[cfg(test)]
mod attacks;

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway's traffic, second by second.
    struct Traffic(Record, Instant, u64, u64);

    impl Traffic {
        fn second(&mut self, requests: u64, failed: u64) -> Arc<Sample> {
            self.1 += Duration::from_secs(1);
            self.2 += requests;
            self.3 += failed;
            let figures = Figures { requests: self.2, failed: self.3, ..Figures::default() };
            self.0.add(self.1, std::iter::once((Arc::from("a"), figures)))
        }

        fn trial(&self, watch: u64, confirm: Option<u64>) -> Trial {
            let seconds = Duration::from_secs;
            let terms =
                Terms { watch: Some(seconds(watch)).filter(|w| !w.is_zero()), confirm: confirm.map(seconds) };
            Trial::new((7, 6), terms, (vec!["a".into(), ALL.into()], None), &self.0, self.1)
        }
    }

    fn calm() -> Traffic {
        let mut traffic = Traffic(Record::default(), Instant::now(), 0, 0);
        for second in 0..60 {
            traffic.second(50, u64::from(second % 7 == 0));
        }
        traffic
    }

    #[test]
    fn a_bad_change_is_back_after_two_intervals() {
        let mut traffic = calm();
        let mut trial = traffic.trial(100, None);
        for second in 1..=20 {
            let sample = traffic.second(50, 3);
            let due = trial.look(&sample);
            match due {
                Due::Back(why) => {
                    assert_eq!(second, 20, "{why}");
                    assert_eq!(
                        why,
                        "route a: 6.0 % of 1000 requests were answered 5xx by the upstream, 0.3 % before"
                    );
                    return;
                }
                due => assert_eq!(due, Due::Nothing),
            }
        }
        panic!("it stays");
    }

    #[test]
    fn a_good_one_passes() {
        let mut traffic = calm();
        let mut trial = traffic.trial(100, None);
        for second in 1..=100 {
            let sample = traffic.second(50, u64::from(second % 6 == 0));
            assert_eq!(
                trial.look(&sample),
                if second < 100 { Due::Nothing } else { Due::Passed },
                "{second}"
            );
        }
    }

    #[test]
    fn a_trial_goes_on_in_another_process() {
        let mut traffic = calm();
        let written = traffic.trial(100, Some(3600)).baseline().to_json();
        let known = |cause: &str| ["connect_refused"].into_iter().find(|known| *known == cause);
        let baseline = Baseline::from_json(&written, known).unwrap();
        // Another process counts from 0.
        traffic.0 = Record::default();
        (traffic.2, traffic.3) = (0, 0);
        let terms = |watch, confirm| OnTrial { began: unix_ms(), watch, confirm, goes_on: true };
        let now = traffic.1;
        let both = terms(Some(100_000), Some(3_600_000));
        let mut trial = Trial::resumed((7, 6), both, (Some(baseline), None), now).unwrap();
        let back = (1..=30).find(|_| trial.look(&traffic.second(50, 5)) != Due::Nothing);
        assert_eq!(back, Some(21), "from the first look, two intervals of ten seconds");

        // An unconfirmed change is due at the first check; a change that was only watched is finished.
        let away = |watch, confirm| OnTrial { began: unix_ms() - 60_000, watch, confirm, goes_on: true };
        let resume = |terms| Trial::resumed((7, 6), terms, (None, None), now);
        let back = Due::Back("it was not confirmed in time".to_owned());
        assert_eq!(resume(away(None, Some(60_000))).unwrap().look(&traffic.second(0, 0)), back);
        assert!(resume(away(Some(60_000), None)).is_none());
        assert!(resume(away(Some(61_000), None)).is_some());
        // Setting the clock back does not extend it beyond its full length.
        let ahead =
            OnTrial { began: unix_ms() + 3_600_000, watch: None, confirm: Some(10_000), goes_on: true };
        let confirm_by = resume(ahead).unwrap().confirm_by.unwrap();
        assert!(confirm_by <= now + Duration::from_secs(10));
    }

    #[test]
    fn what_nobody_confirms_goes_back() {
        let mut traffic = calm();
        let mut trial = traffic.trial(0, Some(5));
        for second in 1..=5 {
            let sample = traffic.second(0, 0);
            let back = Due::Back("it was not confirmed in time".to_owned());
            assert_eq!(trial.look(&sample), if second < 5 { Due::Nothing } else { back });
        }
        // Both: a watch that ends well does not confirm.
        let mut trial = traffic.trial(10, Some(20));
        for second in 1..=20 {
            let sample = traffic.second(50, 0);
            assert_eq!(trial.look(&sample) == Due::Nothing, second < 20);
        }
    }
}
