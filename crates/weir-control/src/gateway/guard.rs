//! The guard: a thread that checks once a second how a change performs, and reverts it if it performs badly.

use super::Gateway;
use crate::history::{By, History, Origin, Restriction};
use crate::reload::{NotChanged, Open};
use crate::trial::{ALL, Baseline, Due, Figures, Record, Sample, Terms, Trial, TrialStatus};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_telemetry::log;
use weir_wire::Chain;

/// How often it checks.
const TICK: Duration = Duration::from_secs(1);

/// The guard's state.
#[derive(Debug, Default)]
pub(super) struct Guard {
    record: Record,
    /// The changes on trial, oldest first. The last one is watched; the others wait for confirmation.
    trials: Vec<Trial>,
    /// Changes that could not be reverted yet.
    overdue: Vec<Overdue>,
    /// A bundle that the fleet tries on this node first, and the complaint about it.
    bundle: Option<Trial>,
    blamed: Option<String>,
    /// How the running bundle restricts access compared with the previous one.
    bundle_restricts: Option<Restriction>,
    /// Whether its thread runs.
    runs: bool,
}

/// A bad change that still runs because reverting it failed.
#[derive(Debug)]
struct Overdue {
    trial: Trial,
    why: String,
    wait: Duration,
    next: Instant,
    left: u32,
}

/// Most changes that may wait for confirmation at the same time.
const TRIALS: usize = 8;

/// How often reverting is retried: after 1 s, 2 s, 4 s and so on, about ten minutes in total.
const AGAIN: u32 = 15;

/// The longest wait between two retries.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Gateway {
    /// The change on trial; of several, the newest.
    pub fn trial(&self) -> Option<TrialStatus> {
        self.guard_state().trials.last().map(|trial| trial.status(Instant::now()))
    }

    /// Whether a revision is on trial, or should have been reverted but could not be yet.
    pub fn is_on_trial(&self, number: u64) -> bool {
        let guard = self.guard_state();
        let overdue = guard.overdue.iter().map(|overdue| &overdue.trial);
        guard.trials.iter().chain(overdue).any(|trial| trial.number == number)
    }

    /// Confirms a revision on trial. It will not be reverted any more.
    ///
    /// # Errors
    /// It is not on trial, as text.
    pub fn confirm(&self, number: u64, by: &By) -> Result<(), String> {
        {
            let mut guard = self.guard_state();
            let Some(at) = guard.trials.iter().position(|trial| trial.number == number) else {
                return Err(format!("revision {number} is not on trial"));
            };
            guard.trials.remove(at);
        }
        log::info("change confirmed", &[("revision", &number), ("by", &by.author)]);
        self.control().judge(number, &format!("confirmed by {}", by.author));
        self.end_trials();
        Ok(())
    }

    /// Puts a change on trial. `routes` are those it affects; none for all.
    pub(super) fn try_out(
        &self,
        number: u64,
        terms: Terms,
        (routes, restriction): (BTreeSet<String>, Option<Restriction>),
    ) {
        if !terms.is_any() {
            return;
        }
        let parent = {
            let control = self.control();
            control.books.history.as_ref().and_then(|history| history.get(number)?.parent)
        };
        let Some(back_to) = parent else { return };
        let routes: Vec<Arc<str>> = if routes.is_empty() {
            self.inner.configs.borrow().routes.names().map(Arc::from).chain([Arc::from(ALL)]).collect()
        } else {
            routes.into_iter().map(Arc::from).chain([Arc::from(ALL)]).collect()
        };
        let baseline = {
            let mut guard = self.guard_state();
            let concerned = (routes, restriction);
            let trial = Trial::new((number, back_to), terms, concerned, &guard.record, Instant::now());
            let baseline = trial.is_watched().then(|| trial.baseline());
            guard.trials.push(trial);
            baseline
        };
        self.limit_trials();
        log::info("change on trial", &[("revision", &number), ("back_to", &back_to)]);
        if let (Some(baseline), Some(history)) = (baseline, &self.control().books.history)
            && let Err(e) = history.write_baseline(&baseline.to_json())
        {
            log::warn(
                "the figures from before the change are not saved: after a restart this change would no longer be watched",
                &[("folder", &history.folder().display()), ("error", &e)],
            );
        }
    }

    /// Resumes the trials of the previous process, or reverts what nobody has confirmed in time. Changes that people
    /// have made to files since do not end a trial. Newer trials are reverted first, because they build on older
    /// ones.
    pub(super) fn resume_trials(&self) {
        let open = self.control().open_trials();
        for Open { number, back_to, terms, is_latest } in open.into_iter().rev() {
            let (baseline, restriction) = {
                let control = self.control();
                let history = control.books.history.as_ref().filter(|_| is_latest);
                (history.and_then(History::baseline), control.restriction_of(number, back_to))
            };
            let known = |cause: &str| self.inner.causes.iter().copied().find(|known| *known == cause);
            let baseline = baseline.and_then(|text| Baseline::from_json(&text, known));
            let now = Instant::now();
            let resumed = Trial::resumed((number, back_to), terms, (baseline, restriction), now);
            let Some(trial) = resumed else {
                self.control().judge(number, "its watch ended while Weir was not running");
                continue;
            };
            // If a newer change on trial replaced this one, it waits for that.
            let is_due = || self.guard_state().trials.is_empty() || self.control().stands(number, back_to);
            if trial.is_unconfirmed(now) && is_due() {
                let why = "it was not confirmed in time: the time ended while Weir was not running";
                self.conclude(trial, why);
                continue;
            }
            log::info("change still on trial", &[("revision", &number), ("back_to", &back_to)]);
            self.guard_state().trials.insert(0, trial);
        }
        self.end_trials();
    }

    /// Watches the new bundle until its rollout is over ([`Self::end_bundle_trial`]), with intervals suited to steps
    /// of this length. The fleet decides what to do if it performs worse.
    pub(super) fn try_bundle(&self, hold: Duration) {
        let routes =
            self.inner.configs.borrow().routes.names().map(Arc::from).chain([Arc::from(ALL)]).collect();
        let terms = Terms { watch: Some(hold), confirm: None };
        let mut guard = self.guard_state();
        guard.blamed = None;
        let concerned = (routes, guard.bundle_restricts.clone());
        guard.bundle = Some(Trial::new((0, 0), terms, concerned, &guard.record, Instant::now()));
    }

    /// Another bundle runs and restricts access like this.
    pub(super) fn bundle_restricts(&self, restriction: Option<Restriction>) {
        self.guard_state().bundle_restricts = restriction;
    }

    /// The rollout of the bundle on trial is over, or another config runs.
    pub(super) fn end_bundle_trial(&self) {
        let mut guard = self.guard_state();
        (guard.bundle, guard.blamed) = (None, None);
    }

    /// Takes the complaint about the bundle on trial.
    pub(super) fn bundle_blamed(&self) -> Option<String> {
        self.guard_state().blamed.take()
    }

    /// Called after another change. A change that needs confirmation stays on trial while any of its effects remain.
    /// A change that was only watched does not: figures could not show which of the two is bad.
    pub(super) fn end_trials(&self) {
        let trials = self.guard_state().trials.clone();
        let (mut unwatched, mut ended) = (Vec::new(), Vec::new());
        {
            let control = self.control();
            // The change just made may be about to go on trial.
            let is_next = |number: u64| trials.iter().all(|trial| trial.number != number);
            let mut kept = usize::from(control.newest_on_trial().is_some_and(is_next));
            for trial in trials.iter().rev() {
                let is_latest = control.is_latest(trial.number);
                // What a newer change replaced returns if that one is reverted.
                let stands = kept > 0 || control.stands(trial.number, trial.back_to);
                if !stands || !(is_latest || trial.awaits_confirmation()) {
                    ended.push(trial);
                    continue;
                }
                kept += 1;
                if !is_latest && trial.is_watched() {
                    unwatched.push(trial.number);
                }
            }
        }
        {
            let mut guard = self.guard_state();
            guard.trials.retain(|trial| ended.iter().all(|ended| ended.number != trial.number));
            let trials = guard.trials.iter_mut();
            trials.filter(|trial| unwatched.contains(&trial.number)).for_each(Trial::end_watch);
        }
        for number in unwatched {
            let what =
                "change no longer watched, because another was made: it goes back unless it is confirmed";
            log::warn(what, &[("revision", &number)]);
        }
        for trial in ended {
            let verdict = match trial.awaits_confirmation() {
                true => "never confirmed: later changes replaced it",
                false => "its watch ended: another change was made",
            };
            let mut control = self.control();
            // After a rollback the history says so, or soon will.
            if !control.is_newest(trial.number) && control.is_undecided(trial.number) {
                log::warn("trial ended by another change", &[("revision", &trial.number), ("why", &verdict)]);
                control.judge(trial.number, verdict);
            }
        }
    }

    /// Ends the oldest trial if there are too many.
    fn limit_trials(&self) {
        let oldest = {
            let mut guard = self.guard_state();
            if guard.trials.len() <= TRIALS {
                return;
            }
            guard.trials.remove(0)
        };
        let why = format!("never confirmed, and not reverted: {TRIALS} newer changes are on trial");
        self.stays(&oldest, &why);
    }

    /// The change that could not be reverted no longer runs.
    pub(super) fn forget_overdue(&self) {
        self.guard_state().overdue.clear();
    }

    /// Starts the thread once the config has a history.
    pub(super) fn start_guard(&self) {
        let config = Arc::clone(&self.inner.configs.borrow());
        let wanted = config.admin.state.is_some() || config.source.is_some();
        let mut guard = self.guard_state();
        if !wanted || guard.runs {
            return;
        }
        let weak = Arc::downgrade(&self.inner);
        let started = std::thread::Builder::new().name("weir-guard".to_owned()).spawn(move || watch(&weak));
        match started {
            Ok(_) => guard.runs = true,
            Err(e) => log::error("changes cannot be watched", &[("error", &e)]),
        }
    }

    fn look(&self) {
        self.control().save_when_due(Instant::now());
        self.try_again();
        let config = Arc::clone(&self.inner.configs.borrow());
        if config.admin.state.is_none() && config.source.is_none() {
            return;
        }
        let telemetry = &self.inner.telemetry;
        let mut all = Figures::default();
        let figures: Vec<_> = config
            .routes
            .names()
            .chain([weir_engine::core::UNROUTED])
            .filter_map(|name| {
                let counted = telemetry.route_figures(name)?;
                let figures =
                    Figures::of(&counted, |cause| self.is_error(cause), |cause| self.is_failure(cause));
                all.add(&figures);
                Some((Arc::from(name), figures))
            })
            .collect();
        let due = {
            let mut guard = self.guard_state();
            let sample: Arc<Sample> =
                guard.record.add(Instant::now(), std::iter::once((Arc::from(ALL), all)).chain(figures));
            if let Some(bundle) = &mut guard.bundle {
                match bundle.look(&sample) {
                    Due::Nothing => {}
                    // Its next steps are held too.
                    Due::Passed => bundle.watch_on(sample.at),
                    Due::Back(why) => (guard.bundle, guard.blamed) = (None, Some(why)),
                    Due::Stays(why) | Due::Warn(why) => warn(&[("what", &"bundle"), ("why", &why)]),
                }
            }
            match guard.trials.last_mut().map(|trial| trial.look(&sample)) {
                None | Some(Due::Nothing) => None,
                Some(Due::Warn(why)) => {
                    let number = guard.trials.last().map_or(0, |trial| trial.number);
                    warn(&[("revision", &number), ("why", &why)]);
                    None
                }
                Some(due) => guard.trials.pop().map(|trial| (trial, due)),
            }
        };
        let ends = due.is_some();
        match due {
            Some((trial, Due::Back(why))) => self.take_back(trial, &why),
            Some((trial, Due::Stays(why))) => self.stays(&trial, &why),
            Some((trial, _)) => {
                log::info("change passed its trial", &[("revision", &trial.number)]);
                let verdict = match trial.warnings() {
                    [] => "watched, and nothing got worse".to_owned(),
                    warnings => format!("watched, and not reverted: {}", warnings.join("; ")),
                };
                self.control().judge(trial.number, &verdict);
            }
            None => {}
        }
        self.conclude_older(Instant::now());
        if ends {
            self.end_trials();
        }
    }

    /// Reverts older changes that nobody confirmed in time. If a newer change on trial replaced one, it waits for
    /// that.
    fn conclude_older(&self, now: Instant) {
        let late: Vec<(u64, u64)> = {
            let guard = self.guard_state();
            let late = guard.trials.iter().filter(|trial| trial.is_unconfirmed(now));
            late.map(|trial| (trial.number, trial.back_to)).collect()
        };
        for (number, back_to) in late.into_iter().rev() {
            if !self.control().stands(number, back_to) {
                continue;
            }
            let trial = {
                let mut guard = self.guard_state();
                let at = guard.trials.iter().position(|trial| trial.number == number);
                at.map(|at| guard.trials.remove(at))
            };
            if let Some(trial) = trial {
                self.conclude(trial, "it was not confirmed in time");
            }
        }
    }

    /// Handles a change that nobody confirmed.
    fn conclude(&self, trial: Trial, why: &str) {
        match trial.unconfirmed(why) {
            Due::Back(why) => self.take_back(trial, &why),
            Due::Stays(why) => self.stays(&trial, &why),
            Due::Nothing | Due::Passed | Due::Warn(_) => {}
        }
    }

    /// Nobody confirmed it, but it keeps running.
    fn stays(&self, trial: &Trial, why: &str) {
        let hint = format!("`weir rollback {}` reverts it anyway", trial.back_to);
        log::error(
            "CHANGE NOT REVERTED: an operator must decide",
            &[("revision", &trial.number), ("why", &why), ("hint", &hint)],
        );
        self.control().judge(trial.number, why);
    }

    /// Reverts a change: the whole config if it is the latest, otherwise only what nobody has changed since.
    fn take_back(&self, trial: Trial, why: &str) {
        log::error(
            "change reverted",
            &[("revision", &trial.number), ("back_to", &trial.back_to), ("why", &why)],
        );
        if let Err(e) = self.go_back(&trial, why) {
            log::error(
                "change not reverted: Weir will retry",
                &[("revision", &trial.number), ("error", &Chain(&e))],
            );
            let (why, wait) = (why.to_owned(), TICK);
            let overdue = Overdue { trial, why, wait, next: Instant::now() + wait, left: AGAIN };
            self.guard_state().overdue.push(overdue);
        }
    }

    /// Retries overdue reverts.
    fn try_again(&self) {
        let now = Instant::now();
        let due: Vec<Overdue> =
            self.guard_state().overdue.extract_if(.., |overdue| overdue.next <= now).collect();
        for Overdue { trial, why, wait, left, .. } in due {
            let Err(e) = self.go_back(&trial, &why) else { continue };
            let (left, wait) = (left - 1, (wait * 2).min(LONGEST_WAIT));
            let what = if left > 0 { "change not reverted: Weir will retry" } else { "A BAD CHANGE STAYS" };
            log::error(what, &[("revision", &trial.number), ("error", &Chain(&e)), ("tries_left", &left)]);
            if left > 0 {
                let overdue = Overdue { trial, why, wait, next: now + wait, left };
                self.guard_state().overdue.push(overdue);
            } else {
                self.control()
                    .judge(trial.number, &format!("{why}; it could not be reverted: {}", Chain(&e)));
            }
        }
    }

    fn go_back(&self, trial: &Trial, why: &str) -> Result<(), NotChanged> {
        let by = By { author: "guard".to_owned(), origin: Origin::Guard, message: why.to_owned() };
        self.take_revision_back(trial.number, trial.back_to, &by)
    }

    /// Whether one of our causes is answered with 5xx.
    fn is_error(&self, cause: &str) -> bool {
        self.inner.errors.contains(cause)
    }

    /// Whether a cause counts against a change: it reports a failure, not a refusal.
    fn is_failure(&self, cause: &str) -> bool {
        self.inner.failures.contains(cause)
    }

    fn guard_state(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.inner.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports what got worse without being reverted. Logged as an error, so that it is seen.
fn warn(fields: &[(&str, &dyn std::fmt::Display)]) {
    log::error("CHANGE MAY BE HARMFUL, and is not reverted automatically: use `weir rollback`", fields);
}

fn watch(inner: &Weak<super::Inner>) {
    loop {
        std::thread::park_timeout(TICK);
        let Some(inner) = inner.upgrade() else { return };
        let gateway = Gateway { inner };
        if !gateway.is_ready() {
            return; // it drains and accepts no other config
        }
        gateway.look();
    }
}
