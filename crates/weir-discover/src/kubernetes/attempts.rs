//! Decides what follows when an attempt to follow the slices of a Service ends: which server is asked next, from which
//! version, and after how long. The driver measures time and sends the requests.

use super::Table;
use std::time::Duration;
use weir_fleet::chance::{Chance, backoff};

/// A watch that lasted at least this long did not fail when it ended.
const LASTED: Duration = Duration::from_secs(1);

/// How many watches in a row may find their version gone without a failure. A server that has just restarted answers
/// 410 to a version that it has listed itself moments before; one that always does so has a fault.
const FREE_LISTS: u32 = 2;

/// The attempts to follow the slices of one Service.
#[derive(Clone, Debug)]
pub struct Attempts {
    servers: usize,
    /// The server to ask, counted from 0.
    server: usize,
    /// Consecutive watches that did not last.
    brief: u32,
    chance: Chance,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The server ended the watch in an orderly way.
    Ended,
    /// The server no longer has the version to watch from (410), with its words.
    Expired(String),
    /// A request failed or the watch broke, with the reason and the shortest wait. This says nothing about the version.
    Failed(String, Duration),
    /// The server refused to open the watch, with the reason and the shortest wait. The version may be to blame.
    Refused(String, Duration),
    /// Only a list can say what is there now, with the reason.
    Reread(String),
    /// The watch has been silent for too long.
    Silent,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing has failed: the same server is asked again at once.
    Again,
    /// The attempt has failed, with the reason and the shortest wait. The next server is asked.
    Failed(String, Duration),
}

impl Attempts {
    /// Attempts at this many servers, beginning with the first. `seed` seeds the random part of waits.
    pub const fn new(servers: usize, seed: u64) -> Self {
        Self { servers, server: 0, brief: 0, chance: Chance::new(seed) }
    }

    /// The index of the server to ask.
    pub const fn server(&self) -> usize {
        self.server
    }

    /// An attempt has ended whose watch was open for `lasted`: zero if none was opened.
    pub fn ended(&mut self, table: &mut Table, end: End, lasted: Duration) -> Next {
        if lasted >= LASTED {
            self.brief = 0;
        }
        let (why, wait) = match end {
            End::Silent => {
                table.forget_version();
                return Next::Again;
            }
            End::Expired(_) if lasted >= LASTED || self.brief < FREE_LISTS => {
                table.forget_version();
                self.brief += u32::from(lasted < LASTED);
                return Next::Again;
            }
            // Whatever a watch needs a list for loses nothing.
            End::Ended | End::Reread(_) if lasted >= LASTED => return Next::Again,
            End::Failed(why, wait) => (why, wait),
            // Lists succeed, but a watch that never lasts counts as refused.
            End::Ended => self.too_brief("the watch ended at once".to_owned(), Duration::ZERO),
            End::Reread(why) => self.too_brief(why, Duration::ZERO),
            End::Expired(why) => {
                table.forget_version();
                self.too_brief(why, Duration::ZERO)
            }
            End::Refused(why, wait) => {
                table.forget_version();
                self.too_brief(why, wait)
            }
        };
        self.server = (self.server + 1) % self.servers.max(1);
        Next::Failed(why, wait)
    }

    /// The lists in between succeed, so the waits have to grow here.
    fn too_brief(&mut self, why: String, wait: Duration) -> (String, Duration) {
        self.brief = self.brief.saturating_add(1);
        (why, wait.max(backoff(self.brief, &mut self.chance)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;

    struct World {
        attempts: Attempts,
        table: Table,
    }

    impl World {
        fn of(servers: usize) -> Self {
            let mut table = Table::new("shop", "orders", None);
            assert_eq!(table.load(LIST), Ok(false));
            Self { attempts: Attempts::new(servers, 1), table }
        }

        /// Ends an attempt. Returns whether the next one starts with a list, which it answers.
        fn end(&mut self, end: End, lasted: Duration) -> (Next, bool) {
            let next = self.attempts.ended(&mut self.table, end, lasted);
            let lists = self.table.watch().is_none();
            if lists {
                assert_eq!(self.table.load(LIST), Ok(false));
            }
            (next, lists)
        }
    }

    fn expired() -> End {
        End::Expired("too old".to_owned())
    }

    #[test]
    fn a_silent_watch_is_followed_by_a_list() {
        let mut world = World::of(2);
        assert_eq!(world.end(End::Silent, Duration::from_secs(150)), (Next::Again, true));
        assert_eq!(world.attempts.server(), 0, "the server may have nothing to say");
    }

    #[test]
    fn a_watch_that_ends_as_planned_goes_on_where_it_was() {
        let mut world = World::of(1);
        assert_eq!(world.end(End::Ended, Duration::from_secs(300)), (Next::Again, false));
        let (next, lists) = world.end(End::Ended, Duration::ZERO);
        assert!(matches!(next, Next::Failed(..)) && !lists, "{next:?}");
    }

    #[test]
    fn a_failure_is_followed_by_the_next_server() {
        let mut world = World::of(3);
        let failures = [
            (End::Failed("connection refused".to_owned(), Duration::ZERO), false),
            (End::Refused("403".to_owned(), Duration::from_secs(5)), true),
            (End::Reread("no event".to_owned()), false), // the table has forgotten the version itself
            (End::Ended, false),
        ];
        for ((end, lists), server) in failures.into_iter().zip([1, 2, 0, 1]) {
            let ended = world.end(end.clone(), Duration::ZERO);
            assert!(matches!(ended.0, Next::Failed(..)), "{end:?}");
            assert_eq!((ended.1, world.attempts.server()), (lists, server), "{end:?}");
        }
    }

    #[test]
    fn a_version_that_is_gone_is_no_failure_unless_it_always_is() {
        let mut world = World::of(2);
        for _ in 0..FREE_LISTS {
            assert_eq!(world.end(expired(), Duration::ZERO), (Next::Again, true));
        }
        assert_eq!(world.attempts.server(), 0);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let (next, lists) = world.end(expired(), Duration::ZERO);
            let Next::Failed(why, wait) = next else { panic!("the server always answers 410") };
            assert_eq!((why.as_str(), lists), ("too old", true));
            waits.push(wait);
        }
        assert!(waits[0] > Duration::ZERO && waits[7] >= Duration::from_millis(2_500), "{waits:?}");
        // A watch that lasts ends the count, whatever ends the watch.
        assert_eq!(world.end(expired(), Duration::from_secs(60)), (Next::Again, true));
        assert_eq!(world.end(expired(), Duration::ZERO), (Next::Again, true));
    }

    #[test]
    fn requests_that_fail_do_not_use_up_the_free_lists() {
        let mut world = World::of(1);
        for _ in 0..10 {
            world.end(End::Failed("connection refused".to_owned(), Duration::ZERO), Duration::ZERO);
        }
        assert_eq!(world.end(expired(), Duration::ZERO), (Next::Again, true), "it has just restarted");
    }
}
