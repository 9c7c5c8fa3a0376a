//! Jobs waiting for threads, served round-robin by client: one client with many jobs cannot delay the others.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use weir_filter::blocking::Blocking;
use weir_filter::filter::Job;

/// A queue in front of a few threads. The lock is held to add or take a job, never while one runs.
pub(crate) struct FairQueue {
    threads: Blocking,
    /// Most jobs that may wait.
    most: usize,
    lanes: Mutex<Lanes>,
}

/// The lane that a job waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Clients whose credentials were right before: ahead of all others.
    Known,
    /// The client's address; for IPv6, its first 64 bits.
    Of(IpAddr),
}

impl Lane {
    /// The lane of a client.
    pub(crate) fn of(client: IpAddr) -> Self {
        match client {
            IpAddr::V4(_) => Self::Of(client),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self::Of([a, b, c, d, 0, 0, 0, 0].into())
            }
        }
    }
}

/// The jobs, with lanes in the order of their turns.
///
/// Invariant: no lane is empty, and `waiting` is the number of all jobs.
struct Lanes {
    lanes: VecDeque<(Lane, VecDeque<Job>)>,
    waiting: usize,
}

/// The outcome of adding a job.
enum Added {
    /// The job waits.
    Waits,
    /// The job replaced another client's job and takes over its thread.
    Displaced,
    Refused,
}

impl FairQueue {
    /// A queue for `most` jobs, in front of threads with this name, one for every `share` processors.
    pub(crate) const fn new(name: &'static str, most: usize, share: usize) -> Self {
        let lanes = Lanes { lanes: VecDeque::new(), waiting: 0 };
        Self { threads: Blocking::new(name, most, share), most, lanes: Mutex::new(lanes) }
    }

    /// Adds a job. Returns false if the queue is full and no lane has more jobs than this one. Otherwise a full queue
    /// drops the last job of the longest lane; its waiter notices when the job is dropped.
    pub(crate) fn run(&'static self, lane: Lane, job: Job) -> bool {
        let added = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).add(lane, job, self.most);
        match added {
            // Each waiting job has requested a thread once. Which job a thread takes is decided when the thread is
            // free.
            Added::Waits => self.threads.run(Box::new(|| self.run_next())),
            Added::Displaced => true,
            Added::Refused => false,
        }
    }

    fn run_next(&self) {
        let next = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).next();
        if let Some(job) = next {
            job();
        }
    }
}

impl Lanes {
    fn add(&mut self, lane: Lane, job: Job, most: usize) -> Added {
        let own = self.lanes.iter().position(|(known, _)| *known == lane);
        let mut added = Added::Waits;
        if self.waiting >= most {
            let own_length = own.and_then(|at| self.lanes.get(at)).map_or(0, |(_, jobs)| jobs.len());
            let others = self.lanes.iter_mut().filter(|(known, _)| *known != Lane::Known);
            let Some((_, longest)) = others.max_by_key(|(_, jobs)| jobs.len()) else { return Added::Refused };
            // A lane with one job gives it up only for known clients.
            let enough = if lane == Lane::Known { 0 } else { own_length + 1 };
            if longest.len() <= enough {
                return Added::Refused;
            }
            longest.pop_back();
            self.waiting -= 1;
            self.lanes.retain(|(_, jobs)| !jobs.is_empty());
            added = Added::Displaced;
        }
        self.waiting += 1;
        match self.lanes.iter_mut().find(|(known, _)| *known == lane) {
            Some((_, jobs)) => jobs.push_back(job),
            None if lane == Lane::Known => self.lanes.push_front((lane, VecDeque::from([job]))),
            None => self.lanes.push_back((lane, VecDeque::from([job]))),
        }
        added
    }

    /// Takes the next job. Its lane goes to the back, unless it is the lane of known clients.
    fn next(&mut self) -> Option<Job> {
        let (lane, mut jobs) = self.lanes.pop_front()?;
        let job = jobs.pop_front();
        self.waiting = self.waiting.saturating_sub(usize::from(job.is_some()));
        if !jobs.is_empty() {
            match lane {
                Lane::Known => self.lanes.push_front((lane, jobs)),
                Lane::Of(_) => self.lanes.push_back((lane, jobs)),
            }
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    fn lanes() -> (Lanes, Log) {
        (Lanes { lanes: VecDeque::new(), waiting: 0 }, Log::default())
    }

    fn job(log: &Log, name: &'static str) -> Job {
        let log = Arc::clone(log);
        Box::new(move || log.lock().unwrap().push(name))
    }

    fn lane(address: &str) -> Lane {
        Lane::of(address.parse().unwrap())
    }

    #[test]
    fn each_client_in_its_turn() {
        let (mut lanes, log) = lanes();
        for (address, name) in [
            ("10.0.0.1", "a1"),
            ("10.0.0.1", "a2"),
            ("10.0.0.1", "a3"),
            ("2001:db8::1", "b1"),
            ("2001:db8::2", "b2"), // the same network
        ] {
            assert!(matches!(lanes.add(lane(address), job(&log, name), 9), Added::Waits));
        }
        lanes.add(Lane::Known, job(&log, "k1"), 9);
        lanes.add(Lane::Known, job(&log, "k2"), 9);
        while let Some(job) = lanes.next() {
            job();
        }
        assert_eq!(*log.lock().unwrap(), ["k1", "k2", "a1", "b1", "a2", "b2", "a3"]);
        assert_eq!(lanes.waiting, 0);
    }

    #[test]
    fn a_flood_gives_way_to_others() {
        let (mut lanes, log) = lanes();
        let flood = |lanes: &mut Lanes| lanes.add(lane("10.0.0.1"), job(&log, "flood"), 4);
        for _ in 0..4 {
            assert!(matches!(flood(&mut lanes), Added::Waits));
        }
        assert!(matches!(flood(&mut lanes), Added::Refused), "nobody has more");
        assert!(matches!(lanes.add(lane("10.0.0.2"), job(&log, "b"), 4), Added::Displaced));
        assert!(matches!(lanes.add(lane("10.0.0.3"), job(&log, "c"), 4), Added::Displaced));
        assert!(matches!(flood(&mut lanes), Added::Refused));
        assert!(matches!(lanes.add(lane("10.0.0.4"), job(&log, "d"), 4), Added::Displaced));
        // Each lane has one job now, so only a known client goes first.
        assert!(matches!(lanes.add(lane("10.0.0.5"), job(&log, "e"), 4), Added::Refused));
        assert!(matches!(lanes.add(Lane::Known, job(&log, "k"), 4), Added::Displaced));
        assert_eq!(lanes.waiting, 4);
        while let Some(job) = lanes.next() {
            job();
        }
        let ran = log.lock().unwrap();
        assert_eq!(ran.len(), 4);
        assert_eq!(ran[0], "k");
    }
}
