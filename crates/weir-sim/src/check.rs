//! What must hold: at every step, and once everything is whole again.

use crate::faults::{Bundles, Kind};
use std::collections::BTreeMap;
use std::fmt;
use weir_fleet::pointer::{Labels, State};
use weir_fleet::{Digest, Pointer, Time};

/// An invariant that broke.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The seed of the run.
    pub seed: u64,
    /// When, in the time of the simulation.
    pub at: Time,
    /// What broke.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {:?}: {}", self.seed, self.at, self.what)
    }
}

impl std::error::Error for Broken {}

/// Follows a run and remembers the first thing that broke.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// Every pointer that was ever written.
    written: Vec<Pointer>,
    /// What each node refused since it started.
    refused: BTreeMap<(usize, u64), Vec<Digest>>,
    pub(crate) broken: Option<(Time, String)>,
}

impl Checker {
    pub(crate) fn breaks(&mut self, at: Time, what: String) {
        self.broken.get_or_insert((at, what));
    }

    /// A pointer was written, by a publisher or by a coordinator.
    pub(crate) fn wrote(
        &mut self,
        at: Time,
        pointer: &Pointer,
        before: Option<&Pointer>,
        by_coordinator: bool,
        bundles: &Bundles,
    ) {
        if by_coordinator {
            let Some(before) = before else {
                return self.breaks(at, "a coordinator wrote a pointer where there was none".to_owned());
            };
            if before.rollout.state != State::Running || before.generation != pointer.generation {
                self.breaks(at, format!("a coordinator changed what is not under way: {before:?}"));
            }
            let (was, is) = (before.rollout.open, pointer.rollout.open);
            if is > was + 1 {
                self.breaks(at, format!("a coordinator opened {} steps at once", is - was));
            }
            // The canary is there so that nobody else meets these.
            let bad = matches!(bundles.kind(pointer.to), Kind::Poison | Kind::Sick);
            if bad && is > 1 {
                self.breaks(at, format!("{:?} got past its canary", pointer.to));
            }
            if bad && pointer.rollout.state == State::Done {
                self.breaks(at, format!("{:?} was called done", pointer.to));
            }
        }
        self.written.push(pointer.clone());
    }

    /// A node is about to compile a bundle.
    pub(crate) fn compiles(&mut self, at: Time, node: usize, boot: u64, digest: Digest) {
        if self.refused.get(&(node, boot)).is_some_and(|all| all.contains(&digest)) {
            self.breaks(at, format!("node {node} tried {digest:?} again, which it had refused"));
        }
    }

    pub(crate) fn refuses(&mut self, node: usize, boot: u64, digest: Digest) {
        self.refused.entry((node, boot)).or_default().push(digest);
    }

    /// A node runs a bundle.
    pub(crate) fn runs(
        &mut self,
        at: Time,
        node: (usize, &str, &Labels),
        digest: Digest,
        was: Option<Digest>,
    ) {
        let (number, name, labels) = node;
        let said = self.written.iter().any(|pointer| pointer.wanted(name, labels) == Some(digest));
        if !said {
            self.breaks(at, format!("node {number} runs {digest:?}, which no pointer ever told it to"));
        }
        if was == Some(digest) {
            self.breaks(at, format!("node {number} built {digest:?} again, which it ran already"));
        }
    }
}
