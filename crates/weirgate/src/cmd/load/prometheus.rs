//! Sends the progress of a run to a Prometheus, from a separate thread, so a slow Prometheus delays neither the
//! engine nor its coordinator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_load::RemoteWrite;
use weir_report::Report;
use weir_report::report::Tick;
use weir_report::units::counted;

/// Most ticks in the queue. Sending a tick takes at most five seconds, so this bounds the backlog; ticks beyond
/// it are dropped. The totals of the whole run make up for them.
const WAITING_MOST: usize = 64;

/// How long the end of a run waits for all remotes together. Whatever is unsent by then is lost and reported as
/// lost.
pub(super) const END_MOST: Duration = Duration::from_secs(5);

/// A Prometheus that receives the figures.
pub(super) struct Remote {
    ticks: SyncSender<(Tick, u64)>,
    told: Receiver<SendSummary>,
    shared: Arc<Shared>,
    /// Ticks that were queued, and ticks dropped because the queue was full.
    given: u64,
    no_room: u64,
}

/// State shared by the thread and its owner.
#[derive(Default)]
struct Shared {
    /// Set once the run is over.
    ending: OnceLock<Ending>,
    /// Ticks that the thread has handled.
    done: AtomicU64,
}

struct Ending {
    report: Report,
    /// Deadline for queued ticks. The rest of the time is for the totals of the whole run, which matter more.
    ticks_until: Instant,
}

/// The outcome of the thread's work.
struct SendSummary {
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
            let begun = SendSummary { remote, failed: 0, first: None, left_out: 0 };
            move || {
                let _ = tell.send(begun.all(&inbox, &shared)); // the owner may have stopped waiting
            }
        };
        std::thread::Builder::new().name("weir-prometheus".to_owned()).spawn(work)?;
        Ok(Self { ticks, told, shared, given: 0, no_room: 0 })
    }

    pub(super) fn tick(&mut self, tick: &Tick) {
        match self.ticks.try_send((tick.clone(), now())) {
            Ok(()) => self.given += 1,
            Err(_) => self.no_room += 1, // dropped: see WAITING_MOST
        }
    }

    /// Asks the thread to send the remaining ticks and the totals of the whole run, by `until`.
    pub(super) fn end(self, report: &Report, until: Instant) -> Ended {
        let left = until.saturating_duration_since(Instant::now());
        let ending = Ending { report: report.clone(), ticks_until: Instant::now() + left / 2 };
        let _ = self.shared.ending.set(ending); // nothing else sets it
        let Self { told, shared, given, no_room, .. } = self;
        Ended { told, shared, given, no_room, until }
    }
}

/// A remote that is sending its last figures.
pub(super) struct Ended {
    told: Receiver<SendSummary>,
    shared: Arc<Shared>,
    given: u64,
    no_room: u64,
    until: Instant,
}

impl Ended {
    /// Waits for the thread and reports what was lost. A thread still waiting for an answer is abandoned and ends
    /// with the process.
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
                "it was too slow for {} of the run, which appear only in its totals",
                counted(left_out, "second")
            )
        });
        let failed =
            told.first.map(|first| format!("{} writes failed, the first because: {first}", told.failed));
        let lost: Vec<String> = failed.into_iter().chain(slow).collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

impl SendSummary {
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
        // `None` if the owner is gone without calling `end`, because the run failed.
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
        // A server that accepts connections and never answers: each write would wait for five seconds.
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
