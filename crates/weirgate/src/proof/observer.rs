//! Sends the requests of a proof to one program and notes its answers and what the upstreams received.

use super::ask::{Asker, Stale};
use super::echo::{self, Echo};
use std::time::{Duration, Instant};
use weir_import::proof::compare::Answer;
use weir_import::proof::{Ask, Observation};
use weir_wire::tls::ClientTls;

/// Between looks whether something has happened.
pub(super) const LOOK: Duration = Duration::from_millis(2);
/// Longest wait for a copy of a request that no upstream received: nearly all of these go nowhere at all.
const COPY_OF_NOTHING: Duration = Duration::from_millis(25);
/// How long waits for copies of requests that an upstream received may last in vain, summed over the requests to one
/// program. Afterwards each wait is as short as [`COPY_OF_NOTHING`]: a program that sent none until then sends none,
/// and a proof of many locations that copy must end.
const COPIES_IN_VAIN: Duration = Duration::from_secs(3);

/// Asks one program, while the echo plays each request's scene.
pub(super) struct Observer<'a> {
    echo: &'a mut Echo,
    asker: Asker<'a>,
    /// What is left of [`COPIES_IN_VAIN`].
    patience: Duration,
}

impl<'a> Observer<'a> {
    pub(super) fn new(echo: &'a mut Echo, tls: &'a ClientTls) -> Self {
        Self { echo, asker: Asker::new(tls), patience: COPIES_IN_VAIN }
    }

    pub(super) fn observe(&mut self, ask: &Ask) -> Observation {
        self.echo.set(&ask.scenario);
        let begun = Instant::now();
        let mut observation = Observation::default();
        let mut missing: Vec<String> = ask.until.iter().map(|address| echo::who(address)).collect();
        let mut own = Ask { calls: 1, then: Vec::new(), ..ask.clone() };
        for call in 0..ask.calls.max(1) {
            if call > 0 && !ask.until.is_empty() && self.echo.is_in_world() {
                own.client = Some(caller(call));
            }
            let answer = self.once(&own);
            missing.retain(|who| !answer.seen.iter().any(|seen| seen.who == *who));
            observation.answers.push(answer);
            if missing.is_empty() && !ask.until.is_empty() {
                break;
            }
        }
        for turn in &ask.then {
            let client = turn.client.clone().or_else(|| ask.client.clone());
            let target = turn.target.clone().unwrap_or_else(|| ask.target.clone());
            let fields = turn.fields.clone();
            observation.then.push(self.once(&Ask { client, target, fields, ..own.clone() }));
        }
        observation.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        observation
    }

    fn once(&mut self, ask: &Ask) -> Answer {
        let mut answer = loop {
            match self.asker.ask(ask) {
                Ok(answer) => break answer,
                // What came of it is not what the next try comes to.
                Err(Stale) => drop(self.echo.seen()),
            }
        };
        answer.seen = self.echo.seen();
        if ask.copies_ms > 0 {
            self.wait_for_copy(&mut answer, Duration::from_millis(ask.copies_ms));
        }
        answer
    }

    fn wait_for_copy(&mut self, answer: &mut Answer, longest: Duration) {
        let reached = !answer.seen.is_empty();
        let most = if reached { self.patience.max(COPY_OF_NOTHING) } else { COPY_OF_NOTHING };
        let begun = Instant::now();
        while answer.seen.len() < 2 {
            let waited = begun.elapsed();
            if waited >= longest.min(most) {
                if reached {
                    self.patience = self.patience.saturating_sub(waited);
                }
                return;
            }
            std::thread::sleep(LOOK);
            answer.seen.extend(self.echo.seen());
        }
    }
}

/// The address of the client of a later call, so that a hash of it chooses other endpoints.
fn caller(call: u32) -> String {
    format!("127.8.{}.{}", call / 250 % 250 + 1, call % 250 + 1)
}
