//! Threads for work that would block a core's connections: hashing passwords, reading a cold disk.
//!
//! All cores share them. Their queue is bounded: a caller that finds it full gets an error instead of waiting in
//! vain.

use crate::filter::Job;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use weir_telemetry::log;

/// Most jobs that wait for the common threads.
const QUEUE: usize = 1024;

/// Fewest and most threads; in between, one per processor. They start with the first job.
const THREADS: (usize, usize) = (2, 8);

/// Threads with one name, started when needed.
pub struct Blocking {
    name: &'static str,
    /// Most jobs that wait.
    queue: usize,
    /// How many processors there are per thread.
    share: usize,
    jobs: OnceLock<SyncSender<Job>>,
}

impl Blocking {
    /// Separate threads, one per `share` processors, so that other work need not wait for theirs.
    pub const fn new(name: &'static str, queue: usize, share: usize) -> Self {
        Self { name, queue, share, jobs: OnceLock::new() }
    }

    /// Queues a job. False if the queue is full.
    pub fn run(&self, job: Job) -> bool {
        self.jobs.get_or_init(|| self.start()).try_send(job).is_ok()
    }

    /// Starts the threads. They end when the sender is dropped.
    fn start(&self) -> SyncSender<Job> {
        let (sender, jobs) = sync_channel(self.queue);
        let jobs = Arc::new(Mutex::new(jobs));
        let processors = thread::available_parallelism().map_or(THREADS.0, usize::from);
        for number in 0..(processors / self.share).clamp(THREADS.0 / self.share, THREADS.1 / self.share) {
            let jobs = Arc::clone(&jobs);
            let started =
                thread::Builder::new().name(format!("{}-{number}", self.name)).spawn(move || work(&jobs));
            if let Err(e) = started {
                log::error("a thread for blocking work could not start", &[("error", &e)]);
            }
        }
        sender
    }
}

impl Default for Blocking {
    fn default() -> Self {
        Self::new("weir-blocking", QUEUE, 1)
    }
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(&self.jobs.get().is_some()).finish()
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        // The caller notices a panic by what the job dropped.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_panic_costs_one_job() {
        let blocking = Blocking::default();
        for _ in 0..2 * THREADS.1 {
            assert!(blocking.run(Box::new(|| panic!("deliberately"))));
        }
        let (done, result) = channel();
        assert!(blocking.run(Box::new(move || done.send(1).expect("the test waits for it"))));
        assert_eq!(result.recv(), Ok(1));
    }

    #[test]
    fn the_queue_has_an_end() {
        let blocking = Blocking::default();
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let mut taken = 0;
        for _ in 0..QUEUE + THREADS.1 + 1 {
            let gate = Arc::clone(&gate);
            taken += usize::from(blocking.run(Box::new(move || drop(gate.lock().map(|gate| gate.recv())))));
        }
        assert!((QUEUE..=QUEUE + THREADS.1).contains(&taken), "{taken}");
        drop(open);
    }
}
