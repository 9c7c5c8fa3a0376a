//! Tells a Prometheus how a run goes, from a thread of its own: a slow one holds neither the engine nor its coordinator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_load::RemoteWrite;
use weir_report::Report;
use weir_report::report::Tick;
use weir_report::units::counted;

/// Ticks that may wait. One takes five seconds at the longest, so this is how far behind it may be before ticks are left out; the figures of
/// the whole run make up for them.
const WAITING_MOST: usize = 64;

/// How long the end of a run waits for all of them together. What is not told by then is lost, and said to be.
pub(super) const END_MOST: Duration = Duration::from_secs(5);

/// A Prometheus that is told.
pub(super) struct Remote {
    ticks: SyncSender<(Tick, u64)>,
    told: Receiver<Told>,
    shared: Arc<Shared>,
    /// Ticks that were given to the thread, and those that it had no room for.
    given: u64,
    no_room: u64,
}

/// What the thread and its owner know of each other.
#[derive(Default)]
struct Shared {
    /// Set once the run is over.
    ending: OnceLock<Ending>,
    /// Ticks that the thread is done with.
    done: AtomicU64,
}

struct Ending {
    report: Report,
    /// Until when ticks that wait are still sent: the figures of the whole run are worth more.
    ticks_until: Instant,
}

/// What came of it.
struct Told {
    remote: RemoteWrite,
    failed: u64,
    first: Option<std::io::Error>,
    left_out: u64,
}

impl Remote {
    pub(super) fn start(remote: RemoteWrite) -> std::io::Result<Self> {
        let (ticks, inbox) = sync_channel(WAITING_MOST);
        let (tell, told) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let work = {
            let shared = Arc::clone(&shared);
            let begun = Told { remote, failed: 0, first: None, left_out: 0 };
            move || {
                let _ = tell.send(begun.all(&inbox, &shared)); // the owner waits no longer
            }
        };
        std::thread::Builder::new().name("weir-prometheus".to_owned()).spawn(work)?;
        Ok(Self { ticks, told, shared, given: 0, no_room: 0 })
    }

    pub(super) fn tick(&mut self, tick: &Tick) {
        match self.ticks.try_send((tick.clone(), now())) {
            Ok(()) => self.given += 1,
            Err(_) => self.no_room += 1, // left out: see WAITING_MOST
        }
    }

    /// Has what is left and the figures of the whole run sent, by `until`.
    pub(super) fn end(self, report: &Report, until: Instant) -> Ended {
        let left = until.saturating_duration_since(Instant::now());
        let ending = Ending { report: report.clone(), ticks_until: Instant::now() + left / 2 };
        let _ = self.shared.ending.set(ending); // nobody else does
        let Self { told, shared, given, no_room, .. } = self;
        Ended { told, shared, given, no_room, until }
    }
}

/// One that is told the rest.
pub(super) struct Ended {
    told: Receiver<Told>,
    shared: Arc<Shared>,
    given: u64,
    no_room: u64,
    until: Instant,
}

impl Ended {
    /// Waits for it, and says what was lost. A thread that still waits for an answer is left behind: it ends with the process.
    pub(super) fn lost(self) -> Option<String> {
        let left = self.until.saturating_duration_since(Instant::now());
        let Ok(told) = self.told.recv_timeout(left) else {
            let waiting = self.given - self.shared.done.load(Ordering::Relaxed) + self.no_room;
            return Some(format!(
                "it did not answer in time: lost are the figures of the whole run and {} of it",
                counted(waiting, "second")
            ));
        };
        let left_out = told.left_out + self.no_room;
        let slow = (left_out > 0).then(|| {
            format!(
                "it was too slow for {} of the run, which it has in its totals only",
                counted(left_out, "second")
            )
        });
        let failed =
            told.first.map(|first| format!("{} writes failed, the first because: {first}", told.failed));
        let lost: Vec<String> = failed.into_iter().chain(slow).collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

impl Told {
    fn all(mut self, inbox: &Receiver<(Tick, u64)>, shared: &Shared) -> Self {
        for (tick, unix_ms) in inbox {
            if shared.ending.get().is_some_and(|ending| Instant::now() > ending.ticks_until) {
                self.left_out += 1;
            } else {
                let sent = self.remote.tick(&tick, unix_ms);
                self.note(sent);
            }
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
        // None where the owner is gone without an end: it failed otherwise.
        if let Some(ending) = shared.ending.get() {
            let ended = self.remote.end(&ending.report, now());
            self.note(ended);
        }
        self
    }

    fn note(&mut self, result: std::io::Result<()>) {
        if let Err(e) = result {
            self.failed += 1;
            self.first.get_or_insert(e);
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn one_that_does_not_answer_holds_up_no_end() {
        // It takes connections and never says a word: each write would wait for five seconds.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let mut remote = Remote::start(RemoteWrite::new(&url, &[]).unwrap()).unwrap();
        (0..10).for_each(|_| remote.tick(&Tick::default()));
        let begun = Instant::now();
        let ended = remote.end(&Report::default(), begun + Duration::from_millis(50));
        let lost = ended.lost().unwrap();
        assert!(lost.contains("lost are the figures of the whole run and 10 seconds of it"), "{lost}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}
