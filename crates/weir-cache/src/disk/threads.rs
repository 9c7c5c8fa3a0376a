//! The threads that wait for the disk in place of cores. They are the store's own: a disk that hangs holds up nobody else.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// How many there are: enough to keep a disk busy.
const THREADS: usize = 4;

/// Most jobs that wait for one.
const QUEUE: usize = 1024;

/// Work that may wait for the disk.
pub type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Threads(SyncSender<Job>);

impl Threads {
    /// Starts them. They end when this is dropped and their work is done.
    pub(super) fn start() -> std::io::Result<Self> {
        let (sender, jobs) = sync_channel(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for number in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            thread::Builder::new().name(format!("weir-disk-{number}")).spawn(move || work(&jobs))?;
        }
        Ok(Self(sender))
    }

    /// Gives them a job; false when the queue is full.
    pub(super) fn run(&self, job: Job) -> bool {
        self.0.try_send(job).is_ok()
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let _ = catch_unwind(AssertUnwindSafe(job)); // whoever waits for it learns by what it dropped
    }
}
