//! The thread that looks once a second how a change does, and takes it back where it does badly.

use super::Gateway;
use crate::history::{By, Origin};
use crate::trial::{ALL, Due, Figures, Record, Sample, Terms, Trial, TrialStatus};
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
    /// Its thread runs.
    runs: bool,
}

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
        self.judge(number, &format!("confirmed by {}", by.author));
        Ok(())
    }

    /// Puts a change on trial. `routes` are those that it concerns; none for all.
    pub(super) fn try_out(&self, number: u64, terms: Terms, routes: BTreeSet<String>) {
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
        let mut guard = self.guard_state();
        let trial = Trial::new((number, back_to), terms, routes, &guard.record, Instant::now());
        guard.trial = Some(trial);
        drop(guard);
        log::info("change on trial", &[("revision", &number), ("back_to", &back_to)]);
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

    /// Starts to look, once the config has a history.
    pub(super) fn start_guard(&self) {
        let wanted = self.inner.configs.borrow().admin.state.is_some();
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
        let config = Arc::clone(&self.inner.configs.borrow());
        if config.admin.state.is_none() {
            return;
        }
        let telemetry = &self.inner.telemetry;
        let mut all = Figures::default();
        let figures: Vec<_> = config
            .routes
            .names()
            .chain([crate::core::UNROUTED])
            .filter_map(|name| {
                let figures = Figures::of(&telemetry.route_figures(name)?, |cause| self.is_error(cause));
                all.add(&figures);
                Some((Arc::from(name), figures))
            })
            .collect();
        let due = {
            let mut guard = self.guard_state();
            let sample: Arc<Sample> =
                guard.record.add(Instant::now(), std::iter::once((Arc::from(ALL), all)).chain(figures));
            let Some(trial) = &mut guard.trial else { return };
            match trial.look(&sample) {
                Due::Nothing => return,
                due => guard.trial.take().map(|trial| (trial, due)),
            }
        };
        match due {
            Some((trial, Due::Back(why))) => self.take_back(&trial, &why),
            Some((trial, _)) => {
                log::info("change passed its trial", &[("revision", &trial.number)]);
                self.judge(trial.number, "watched, and nothing was worse");
            }
            None => {}
        }
    }

    /// One step back, and only where nobody has changed anything since.
    fn take_back(&self, trial: &Trial, why: &str) {
        let latest = self.revisions().and_then(|all| all.last().map(|revision| revision.number));
        if latest != Some(trial.number) {
            return;
        }
        log::error(
            "change taken back",
            &[("revision", &trial.number), ("back_to", &trial.back_to), ("why", &why)],
        );
        let by = By { author: "guard".to_owned(), origin: Origin::Guard, message: why.to_owned() };
        if let Err(e) = self.roll_back(trial.back_to, &by) {
            log::error("change not taken back", &[("revision", &trial.number), ("error", &e)]);
        }
    }

    fn judge(&self, number: u64, verdict: &str) {
        if let Some(history) = &mut self.control().books.history
            && let Err(e) = history.judge(number, verdict)
        {
            log::error("the history is not kept", &[("folder", &history.folder().display()), ("error", &e)]);
        }
    }

    /// Whether a cause of ours is answered 5xx.
    fn is_error(&self, cause: &str) -> bool {
        self.inner.errors.contains(cause)
    }

    fn guard_state(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.inner.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
