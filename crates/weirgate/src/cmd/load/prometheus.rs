//! Tells a Prometheus how a run goes, from a thread of its own: a slow one holds neither the engine nor its coordinator.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_load::report::Tick;
use weir_load::{RemoteWrite, Report};

/// Ticks that may wait. One takes five seconds at the longest, so this is how far behind it may be before ticks are left out; the figures of
/// the whole run make up for them.
const WAITING_MOST: usize = 64;

/// A Prometheus that is told.
pub(super) struct Remote {
    ticks: SyncSender<(Tick, u64)>,
    thread: JoinHandle<Told>,
}

/// What came of it.
struct Told {
    remote: RemoteWrite,
    failed: u64,
    first: Option<std::io::Error>,
}

impl Remote {
    pub(super) fn start(remote: RemoteWrite) -> std::io::Result<Self> {
        let (ticks, inbox) = sync_channel(WAITING_MOST);
        let told = Told { remote, failed: 0, first: None };
        let work = move || told.all(&inbox);
        let thread = std::thread::Builder::new().name("weir-prometheus".to_owned()).spawn(work)?;
        Ok(Self { ticks, thread })
    }

    pub(super) fn tick(&mut self, tick: &Tick) {
        let _ = self.ticks.try_send((tick.clone(), now())); // left out: see WAITING_MOST
    }

    /// Sends what is left and the figures of the whole run; says what failed.
    pub(super) fn end(self, report: &Report) -> Option<String> {
        drop(self.ticks);
        let Ok(mut told) = self.thread.join() else { return Some("its thread panicked".to_owned()) };
        let ended = told.remote.end(report, now());
        told.note(ended);
        let first = told.first?;
        Some(format!("{} writes failed, the first because: {first}", told.failed))
    }
}

impl Told {
    fn all(mut self, inbox: &Receiver<(Tick, u64)>) -> Self {
        for (tick, unix_ms) in inbox {
            let sent = self.remote.tick(&tick, unix_ms);
            self.note(sent);
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
