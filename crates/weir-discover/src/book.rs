//! Decides what a registry's answer, or a failed request, does: publish a new list, change nothing, or keep the last
//! good list.
//!
//! ```text
//!            answer: another list                              ─► publish
//!            answer: the same list                             ─► nothing
//!  Book ◄──  answer: empty, and the registry lost data         ─► keep the last good list
//!            answer: no usable instance                        ─► keep the last good list
//!            no answer                                         ─► keep the last good list; wait longer each time
//! ```

use crate::Listing;
use std::time::Duration;
use weir_fleet::Chance;
use weir_fleet::chance::backoff;

/// The answers of a registry, and the list in use.
#[derive(Clone, Debug)]
pub struct Book {
    good: Option<Listing>,
    /// Consecutive requests without an answer.
    failures: u32,
    trouble: Option<String>,
    /// The registry lost its data, and no instance has registered since.
    lost: bool,
    chance: Chance,
}

/// The effect of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The last good list stays, although this answer has no instance.
    Kept,
    /// The list has changed.
    Publish,
    /// The list is unchanged.
    Same,
}

impl Book {
    /// Nothing is known yet. `seed` spreads the waits.
    pub fn new(seed: u64) -> Self {
        Self { good: None, failures: 0, trouble: None, lost: false, chance: Chance::new(seed) }
    }

    /// Processes an answer. `went_back`: the registry lost data.
    pub fn answered(&mut self, listing: Listing, went_back: bool) -> Verdict {
        self.failures = 0;
        self.lost = listing.instances.is_empty() && (self.lost || went_back);
        let known = self.good.as_ref().is_some_and(|good| !good.instances.is_empty());
        if known && listing.instances.is_empty() {
            let why = match listing.left_out.first() {
                _ if self.lost => Some(
                    "the registry has lost what it knew and lists no instance: the last good ones stay until one registers"
                        .to_owned(),
                ),
                Some(first) => Some(format!(
                    "none of the {} instances that are listed can be used, the first because {}: the last good ones stay",
                    listing.unusable, first.why
                )),
                None => None, // the last one has deregistered
            };
            if why.is_some() {
                self.trouble = why;
                return Verdict::Kept;
            }
        }
        self.trouble = None;
        if self.good.as_ref() == Some(&listing) {
            return Verdict::Same;
        }
        let moved = self.good.as_ref().is_none_or(|good| good.instances != listing.instances);
        self.good = Some(listing);
        if moved { Verdict::Publish } else { Verdict::Same }
    }

    /// Records a failed request; returns how long to wait before the next attempt.
    pub fn failed(&mut self, why: String) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(why);
        backoff(self.failures, &mut self.chance)
    }

    /// The last good list.
    pub const fn good(&self) -> Option<&Listing> {
        self.good.as_ref()
    }

    /// Whether the last request was answered.
    pub const fn follows(&self) -> bool {
        self.failures == 0 && self.good.is_some()
    }

    /// The current problem, if any.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    fn of(hosts: &[&str]) -> Listing {
        let instance = |host: &&str| Instance {
            id: String::new(),
            version: String::new(),
            host: (*host).to_owned(),
            port: 80,
            weight: 1,
            zone: None,
            priority: 0,
        };
        Listing { instances: hosts.iter().map(instance).collect(), ..Listing::default() }
    }

    fn hosts(book: &Book) -> Vec<&str> {
        book.good().map_or(&[][..], |good| &good.instances).iter().map(|i| i.host.as_str()).collect()
    }

    #[test]
    fn an_answer_counts_and_no_answer_changes_nothing() {
        let mut book = Book::new(1);
        assert!(!book.follows());
        assert_eq!(book.answered(of(&["a"]), false), Verdict::Publish);
        assert_eq!(book.answered(of(&["a"]), false), Verdict::Same);
        let waits: Vec<_> = (0..8).map(|_| book.failed("away".to_owned())).collect();
        assert!(
            waits[0] <= Duration::from_millis(250) && waits[7] >= Duration::from_millis(2_500),
            "{waits:?}"
        );
        assert_eq!((hosts(&book), book.follows(), book.trouble()), (vec!["a"], false, Some("away")));
        assert_eq!(book.answered(of(&["b"]), false), Verdict::Publish);
        assert_eq!((hosts(&book), book.follows(), book.trouble()), (vec!["b"], true, None));
    }

    #[test]
    fn the_last_one_may_leave() {
        let mut book = Book::new(1);
        book.answered(of(&["a"]), false);
        assert_eq!(book.answered(of(&[]), false), Verdict::Publish);
        assert_eq!((hosts(&book).len(), book.follows()), (0, true));
    }

    #[test]
    fn a_registry_that_lost_its_memory_takes_nobody_out() {
        let mut book = Book::new(1);
        book.answered(of(&["a", "b"]), false);
        assert_eq!(book.answered(of(&[]), true), Verdict::Kept);
        assert_eq!(hosts(&book), ["a", "b"]);
        assert!(book.trouble().unwrap().contains("lost"));
        assert_eq!(book.answered(of(&[]), false), Verdict::Kept);
        // Instances register again, one after another.
        assert_eq!(book.answered(of(&["b"]), false), Verdict::Publish);
        assert_eq!((hosts(&book), book.trouble()), (vec!["b"], None));
    }

    #[test]
    fn nobody_who_can_be_used_is_not_nobody() {
        let mut book = Book::new(1);
        let mut unusable = of(&[]);
        unusable.leave_out("x", "it has no port".to_owned());
        // Before the first good list there is nothing to keep.
        assert_eq!(book.answered(unusable.clone(), false), Verdict::Publish);
        book.answered(of(&["a"]), false);
        assert_eq!(book.answered(unusable.clone(), false), Verdict::Kept);
        assert!(book.trouble().unwrap().contains("it has no port"));
        // With usable instances present, it is merely left out.
        unusable.instances = of(&["b"]).instances;
        assert_eq!(book.answered(unusable, false), Verdict::Publish);
        // Only the left-out instances change, so the list is the same.
        assert_eq!(book.answered(of(&["b"]), false), Verdict::Same);
        assert_eq!(book.good().unwrap().unusable, 0);
    }
}
