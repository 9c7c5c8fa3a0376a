//! Threads for work that would keep a core from its connections: hashing passwords, reading a cold disk.
//!
//! All cores share them, and their queue has an end: who finds it full is told so, and nobody waits for a thread in vain.

use crate::filter::Job;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use weir_telemetry::log;

/// Most jobs that wait for a thread, of those that have no threads of their own.
const QUEUE: usize = 1024;

/// Fewest and most threads; between them, as many as there are processors. They are made when the first job comes.
const THREADS: (usize, usize) = (2, 8);

/// Threads of one name, once there are any.
pub struct Blocking {
    name: &'static str,
    /// Most jobs that wait.
    queue: usize,
    /// Processors for each thread.
    share: usize,
    jobs: OnceLock<SyncSender<Job>>,
}

impl Blocking {
    /// Threads of their own, one for so many processors, so that what others do need not wait for it.
    pub const fn new(name: &'static str, queue: usize, share: usize) -> Self {
        Self { name, queue, share, jobs: OnceLock::new() }
    }

    /// Gives a job to the threads; false when the queue is full.
    pub fn run(&self, job: Job) -> bool {
        self.jobs.get_or_init(|| self.start()).try_send(job).is_ok()
    }

    /// Starts the threads. They end when the sender is gone.
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
        // Whoever waits for it learns by what the job dropped.
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
