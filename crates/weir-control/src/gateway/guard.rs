//! The thread that looks once a second how a change does, and takes it back where it does badly.

use super::Gateway;
use crate::history::{By, Origin, Restriction};
use crate::reload::NotChanged;
use crate::trial::{ALL, Baseline, Due, Figures, Record, Sample, Terms, Trial, TrialStatus};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// How often it looks.
const TICK: Duration = Duration::from_secs(1);

/// What the guard knows.
#[derive(Debug, Default)]
pub(super) struct Guard {
    record: Record,
    trial: Option<Trial>,
    /// What could not be taken back yet.
    overdue: Option<Overdue>,
    /// A bundle that the fleet tries out on this node first, and what it is blamed for.
    bundle: Option<Trial>,
    blamed: Option<String>,
    /// How the bundle that runs restricts access, compared with the one before.
    bundle_restricts: Option<Restriction>,
    /// Its thread runs.
    runs: bool,
}

/// A bad change that runs on, because going back failed.
#[derive(Debug)]
struct Overdue {
    trial: Trial,
    why: String,
    wait: Duration,
    next: Instant,
    left: u32,
}

/// How often going back is tried again: after 1 s, 2 s, 4 s and so on, about ten minutes in all.
const AGAIN: u32 = 15;

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Gateway {
    /// What is on trial now.
    pub fn trial(&self) -> Option<TrialStatus> {
        self.guard_state().trial.as_ref().map(|trial| trial.status(Instant::now()))
    }

    /// Says that a revision on trial is good. It is not taken back any more.
    ///
    /// # Errors
    /// It is not on trial: in words.
    pub fn confirm(&self, number: u64, by: &By) -> Result<(), String> {
        {
            let mut guard = self.guard_state();
            if guard.trial.as_ref().is_none_or(|trial| trial.number != number) {
                return Err(format!("revision {number} is not on trial"));
            }
            guard.trial = None;
        }
        log::info("change confirmed", &[("revision", &number), ("by", &by.author)]);
        self.control().judge(number, &format!("confirmed by {}", by.author));
        Ok(())
    }

    /// Puts a change on trial. `routes` are those that it concerns; none for all.
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
            guard.trial = Some(trial);
            baseline
        };
        log::info("change on trial", &[("revision", &number), ("back_to", &back_to)]);
        if let (Some(baseline), Some(history)) = (baseline, &self.control().books.history)
            && let Err(e) = history.write_baseline(&baseline.to_json())
        {
            log::warn(
                "the figures of before are not kept: after a restart this change would not be watched on",
                &[("folder", &history.folder().display()), ("error", &e)],
            );
        }
    }

    /// What was on trial when the process before this one ended is on trial still; or goes back now, where nobody confirmed it meanwhile.
    pub(super) fn resume_trial(&self) {
        let found = {
            let control = self.control();
            control.books.history.as_ref().and_then(|history| {
                let latest = history.latest().filter(|latest| latest.hash == control.texts.hash)?;
                let (number, parent) = (latest.number, latest.parent?);
                let restriction = control.restriction_since_revision(parent);
                Some((number, parent, latest.open_trial()?, (history.baseline(), restriction)))
            })
        };
        let Some((number, back_to, terms, (baseline, restriction))) = found else { return };
        let known = |cause: &str| self.inner.causes.iter().copied().find(|known| *known == cause);
        let baseline = baseline.and_then(|text| Baseline::from_json(&text, known));
        let now = Instant::now();
        let Some(trial) = Trial::resumed((number, back_to), terms, (baseline, restriction), now) else {
            return self.control().judge(number, "its watch ended while Weir was not running");
        };
        if trial.is_unconfirmed(now) {
            return match trial
                .unconfirmed("nobody confirmed it in time: the time ended while Weir was not running")
            {
                Due::Back(why) => self.take_back(trial, &why),
                Due::Stays(why) => self.stays(&trial, &why),
                Due::Nothing | Due::Passed | Due::Warn(_) => {}
            };
        }
        log::info("change still on trial", &[("revision", &number), ("back_to", &back_to)]);
        self.guard_state().trial = Some(trial);
    }

    /// Watches the bundle that has just begun to run until its rollout is over ([`Self::end_bundle_trial`]), as closely as it takes for steps
    /// that hold so long: what is worse than before is the fleet's matter.
    pub(super) fn try_bundle(&self, hold: Duration) {
        let routes =
            self.inner.configs.borrow().routes.names().map(Arc::from).chain([Arc::from(ALL)]).collect();
        let terms = Terms { watch: Some(hold), confirm: None };
        let mut guard = self.guard_state();
        guard.blamed = None;
        let concerned = (routes, guard.bundle_restricts.clone());
        guard.bundle = Some(Trial::new((0, 0), terms, concerned, &guard.record, Instant::now()));
    }

    /// Another bundle runs, which restricts access in this way.
    pub(super) fn bundle_restricts(&self, restriction: Option<Restriction>) {
        self.guard_state().bundle_restricts = restriction;
    }

    /// The rollout of what was on trial is over, or something else runs.
    pub(super) fn end_bundle_trial(&self) {
        let mut guard = self.guard_state();
        (guard.bundle, guard.blamed) = (None, None);
    }

    /// What the bundle on trial is blamed for, once.
    pub(super) fn bundle_blamed(&self) -> Option<String> {
        self.guard_state().blamed.take()
    }

    /// Another change has been made: what was on trial stands under what is.
    pub(super) fn end_trial(&self) {
        let latest = {
            let control = self.control();
            control.books.history.as_ref().and_then(|history| Some(history.latest()?.number))
        };
        let mut guard = self.guard_state();
        if guard.trial.as_ref().is_some_and(|trial| Some(trial.number) != latest) {
            guard.trial = None;
            log::info("trial ended by another change", &[]);
        }
    }

    /// What was on trial does not run any more.
    pub(super) fn forget_trial(&self) {
        let mut guard = self.guard_state();
        (guard.trial, guard.overdue) = (None, None);
    }

    /// Starts to look, once the config has a history.
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
        self.control().settle_when_due(Instant::now());
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
            let Some(trial) = &mut guard.trial else { return };
            match trial.look(&sample) {
                Due::Nothing => return,
                Due::Warn(why) => return warn(&[("revision", &trial.number), ("why", &why)]),
                due => guard.trial.take().map(|trial| (trial, due)),
            }
        };
        match due {
            Some((trial, Due::Back(why))) => self.take_back(trial, &why),
            Some((trial, Due::Stays(why))) => self.stays(&trial, &why),
            Some((trial, _)) => {
                log::info("change passed its trial", &[("revision", &trial.number)]);
                let verdict = match trial.warnings() {
                    [] => "watched, and nothing was worse".to_owned(),
                    warnings => format!("watched, and not taken back: {}", warnings.join("; ")),
                };
                self.control().judge(trial.number, &verdict);
            }
            None => {}
        }
    }

    /// Nobody confirmed it, and it runs on.
    fn stays(&self, trial: &Trial, why: &str) {
        let hint = format!("`weir rollback {}` goes back all the same", trial.back_to);
        log::error(
            "CHANGE NOT TAKEN BACK: it is for an operator to do",
            &[("revision", &trial.number), ("why", &why), ("hint", &hint)],
        );
        self.control().judge(trial.number, why);
    }

    /// One step back, and only where nobody has changed anything since.
    fn take_back(&self, trial: Trial, why: &str) {
        if !self.is_latest(&trial) {
            return;
        }
        log::error(
            "change taken back",
            &[("revision", &trial.number), ("back_to", &trial.back_to), ("why", &why)],
        );
        if let Err(e) = self.go_back(&trial, why) {
            log::error(
                "change not taken back: it is tried again",
                &[("revision", &trial.number), ("error", &e)],
            );
            let (why, wait) = (why.to_owned(), TICK);
            let overdue = Overdue { trial, why, wait, next: Instant::now() + wait, left: AGAIN };
            self.guard_state().overdue = Some(overdue);
        }
    }

    /// Takes back what should be back already.
    fn try_again(&self) {
        let now = Instant::now();
        let due = self.guard_state().overdue.take_if(|overdue| overdue.next <= now);
        let Some(overdue) = due.filter(|overdue| self.is_latest(&overdue.trial)) else { return };
        let Overdue { trial, why, wait, left, .. } = overdue;
        let Err(e) = self.go_back(&trial, &why) else { return };
        let (left, wait) = (left - 1, (wait * 2).min(LONGEST_WAIT));
        let what = if left > 0 { "change not taken back: it is tried again" } else { "A BAD CHANGE STAYS" };
        log::error(what, &[("revision", &trial.number), ("error", &e), ("tries_left", &left)]);
        if left > 0 {
            let overdue = Overdue { trial, why, wait, next: now + wait, left };
            self.guard_state().overdue = Some(overdue);
        }
    }

    fn go_back(&self, trial: &Trial, why: &str) -> Result<(), NotChanged> {
        let by = By { author: "guard".to_owned(), origin: Origin::Guard, message: why.to_owned() };
        self.roll_back(trial.back_to, &by).map(drop)
    }

    fn is_latest(&self, trial: &Trial) -> bool {
        let latest = self.revisions().and_then(|all| all.last().map(|revision| revision.number));
        latest == Some(trial.number)
    }

    /// Whether a cause of ours is answered 5xx.
    fn is_error(&self, cause: &str) -> bool {
        self.inner.errors.contains(cause)
    }

    /// Whether a cause counts against a change: it reports a failure, and refuses nobody.
    fn is_failure(&self, cause: &str) -> bool {
        self.inner.failures.contains(cause)
    }

    fn guard_state(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.inner.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is worse and is not taken back. It must be seen, so it is told as an error.
fn warn(fields: &[(&str, &dyn std::fmt::Display)]) {
    log::error("CHANGE MAY DO BADLY, and is not taken back: `weir rollback` goes back", fields);
}

fn watch(inner: &Weak<super::Inner>) {
    loop {
        std::thread::park_timeout(TICK);
        let Some(inner) = inner.upgrade() else { return };
        let gateway = Gateway { inner };
        if !gateway.is_ready() {
            return; // it drains, and takes no other config any more
        }
        gateway.look();
    }
}
