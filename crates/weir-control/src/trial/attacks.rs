//! Simulated attacks on the guard: one vetoes changes by getting strangers refused, one wants a tightening reverted.

use super::*;
use std::collections::BTreeMap;
use weir_telemetry::RouteFigures;
use weir_upstream::error::{CAUSES, Cause};

/// A cause that a future filter declares, with only what is mandatory.
static OF_TOMORROW: Cause = Cause { code: "of_tomorrow", status: 401, ..Cause::USUAL };

fn causes() -> impl Iterator<Item = &'static Cause> {
    CAUSES.iter().copied().chain([&OF_TOMORROW])
}

/// One route's counters, second by second.
#[derive(Default)]
struct Counted {
    record: Record,
    now: Option<Instant>,
    statuses: BTreeMap<u16, u64>,
    causes: BTreeMap<&'static str, u64>,
}

impl Counted {
    /// One second with this many answers of 200, 502s of the upstream, and answers for this cause.
    fn second(&mut self, served: u64, failed: u64, cause: Option<(&'static Cause, u64)>) -> Arc<Sample> {
        *self.statuses.entry(200).or_default() += served;
        *self.statuses.entry(502).or_default() += failed;
        if let Some((cause, n)) = cause {
            *self.statuses.entry(cause.status).or_default() += n;
            *self.causes.entry(cause.code).or_default() += n;
        }
        let counted = RouteFigures {
            statuses: self.statuses.clone(),
            causes: self.causes.clone(),
            ..RouteFigures::default()
        };
        let is = |code: &str, of: fn(&Cause) -> bool| causes().any(|cause| cause.code == code && of(cause));
        let figures = || {
            Figures::of(
                &counted,
                |code| is(code, |cause| cause.status >= 500),
                |code| is(code, Cause::is_failure),
            )
        };
        let now = self.now.map_or_else(Instant::now, |now| now + Duration::from_secs(1));
        self.now = Some(now);
        self.record.add(now, [(Arc::from("a"), figures()), (Arc::from(ALL), figures())].into_iter())
    }

    fn calm() -> Self {
        let mut counted = Self::default();
        for second in 0..60 {
            counted.second(50, u64::from(second % 7 == 0), None);
        }
        counted
    }

    fn trial(&self, restriction: Option<Restriction>, confirm: Option<Duration>) -> Trial {
        let terms = Terms { watch: Some(Duration::from_secs(100)), confirm };
        let concerned = (vec![Arc::from("a"), Arc::from(ALL)], restriction);
        Trial::new((7, 6), terms, concerned, &self.record, self.now.unwrap())
    }

    /// How a trial ends, and its warnings.
    fn ends(
        &mut self,
        mut trial: Trial,
        mut second: impl FnMut(&mut Self) -> Arc<Sample>,
    ) -> (Due, Vec<String>) {
        for _ in 0..300 {
            let sample = second(self);
            match trial.look(&sample) {
                Due::Nothing | Due::Warn(_) => {}
                due => return (due, trial.warnings().to_vec()),
            }
        }
        panic!("the trial has no end");
    }
}

fn restriction(revokes: &[&str]) -> Restriction {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Restriction { restricts: named(&["routes.a.filters"]), revokes: named(revokes) }
}

/// No number of refused strangers reverts a change, whatever the cause.
#[test]
fn strangers_cannot_veto() {
    for cause in causes().filter(|cause| !cause.is_failure() && cause.status != 0) {
        for strangers in [1, 5, 60, 5000] {
            let mut counted = Counted::calm();
            let trial = counted.trial(None, None);
            let (due, warnings) =
                counted.ends(trial, |counted| counted.second(50, 0, Some((cause, strangers))));
            assert_eq!((due, warnings), (Due::Passed, vec![]), "{cause}, {strangers} a second");
        }
    }
}

/// Refusing callers who were served before causes a warning with figures, but reverts nothing.
#[test]
fn refused_callers_are_a_warning() {
    let mut counted = Counted::calm();
    let trial = counted.trial(Some(restriction(&["consumers.shop"])), None);
    let revoked = |counted: &mut Counted| counted.second(20, 0, Some((&OF_TOMORROW, 30)));
    let (due, warnings) = counted.ends(trial, revoked);
    assert_eq!(due, Due::Passed);
    let expected = "route a: 60.0 % of 1000 requests were refused (of_tomorrow), 0.0 % before";
    assert_eq!(warnings.first().map(String::as_str), Some(expected), "{warnings:?}");
}

/// An attacker who can make the upstream fail cannot reopen what was closed.
#[test]
fn failures_do_not_open() {
    let failing = |counted: &mut Counted| counted.second(25, 25, None);
    let mut counted = Counted::calm();
    let trial = counted.trial(None, None);
    assert!(matches!(counted.ends(trial, failing).0, Due::Back(_)), "any other change goes back");

    let mut counted = Counted::calm();
    let trial = counted.trial(Some(restriction(&[])), None);
    let (due, warnings) = counted.ends(trial, failing);
    assert_eq!(due, Due::Passed);
    assert!(
        warnings[0].contains("50.0 % of 1000 requests were answered 5xx by the upstream"),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("it stays, because it restricts access (routes.a.filters)"), "{warnings:?}");

    // An unconfirmed change is reverted, but that never restores a consumer, a credential or a list entry.
    let confirm = Some(Duration::from_secs(50));
    let mut counted = Counted::calm();
    let trial = counted.trial(Some(restriction(&[])), confirm);
    assert_eq!(counted.ends(trial, failing).0, Due::Back("it was not confirmed in time".to_owned()));
    let mut counted = Counted::calm();
    let trial = counted.trial(Some(restriction(&["consumers.shop"])), confirm);
    let Due::Stays(why) = counted.ends(trial, failing).0 else { panic!("it goes back") };
    assert!(why.contains("would restore consumers.shop"), "{why}");
}

/// Each failure of our own still justifies a revert, even beside refused strangers.
#[test]
fn failures_of_our_own_count() {
    for cause in causes().filter(|cause| cause.is_failure() && cause.status != 0) {
        let mut counted = Counted::calm();
        let trial = counted.trial(None, None);
        let (due, _) = counted.ends(trial, |counted| counted.second(40, 0, Some((cause, 10))));
        assert!(matches!(due, Due::Back(_)), "{cause}: {due:?}");
    }
}
