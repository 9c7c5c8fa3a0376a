//! Threads that block on the disk, so that cores do not. Each store has its own, so a hanging disk delays no
//! other store.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Number of threads: enough to keep a disk busy.
const THREADS: usize = 4;

/// Most jobs in the queue.
const QUEUE: usize = 1024;

/// Work that may block on the disk.
pub type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Threads(SyncSender<Job>);

impl Threads {
    /// Starts the threads. They end once this is dropped and the queue is empty.
    pub(super) fn start() -> std::io::Result<Self> {
        let (sender, jobs) = sync_channel(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for number in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            thread::Builder::new().name(format!("weir-disk-{number}")).spawn(move || work(&jobs))?;
        }
        Ok(Self(sender))
    }

    /// Queues a job; false if the queue is full.
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
        let _ = catch_unwind(AssertUnwindSafe(job)); // a panicking job drops its result, which wakes its waiter
    }
}
