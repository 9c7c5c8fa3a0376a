//! Opens connections before a fixed rate begins, so that the first starts, and those after a pause, find them open.
//!
//! Opening a connection takes longer than a start at a high rate may be late. A thread that opens them while starts
//! are due falls behind, and then needs even more. A failure here is no error: the client that needs the connection
//! dials again and gets the reason.

use super::shared::{Shared, part};
use crate::clock;
use crate::plan::Plan;
use crate::transport::proxy;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_report::Histogram;
use weir_wire::Transport;

/// Total time limit: the run waits for this, and so does Ctrl-C.
const LONGEST: Duration = Duration::from_secs(1);

/// How many are opened concurrently: well below any target's backlog.
const AT_A_TIME: usize = 32;

/// One thread's unused connections.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// By origin.
    streams: Vec<Vec<Transport>>,
    /// How long each took to open.
    pub(crate) dial: Histogram,
}

/// What remains to be opened, and what is open.
struct Opening {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    until: Instant,
    left: usize,
    first: usize,
    ahead: Ahead,
}

impl Ahead {
    /// Opens the share of thread `index`, the same number to each origin.
    pub(crate) async fn open(plan: &Arc<Plan>, shared: &Arc<Shared>, index: usize) -> Self {
        let (all, threads, origins) = (plan.ahead(), plan.threads, plan.origins.len());
        let (first, mine) = part(all, threads, index);
        let ahead = Self { streams: (0..origins).map(|_| Vec::new()).collect(), dial: Histogram::new() };
        let opening = Rc::new(RefCell::new(Opening {
            plan: Arc::clone(plan),
            shared: Arc::clone(shared),
            until: Instant::now() + LONGEST,
            left: mine * origins,
            first,
            ahead,
        }));
        let lanes: Vec<_> = (0..AT_A_TIME.min(mine * origins))
            .map(|_| tokio::task::spawn_local(lane(Rc::clone(&opening))))
            .collect();
        for lane in lanes {
            let _ = lane.await; // a lane that panicked opened fewer
        }
        std::mem::take(&mut opening.borrow_mut().ahead)
    }

    /// How many were opened.
    pub(crate) const fn opened(&self) -> u64 {
        self.dial.count()
    }

    /// Takes a connection to this origin that the target has not closed meanwhile.
    pub(crate) fn take(&mut self, origin: usize) -> Option<Transport> {
        let streams = self.streams.get_mut(origin)?;
        while let Some(mut stream) = streams.pop() {
            if stream.is_quiet() {
                return Some(stream);
            }
        }
        None
    }
}

/// Opens connections one after another, while some are left and time remains.
async fn lane(opening: Rc<RefCell<Opening>>) {
    loop {
        let (plan, number, rest) = {
            let mut opening = opening.borrow_mut();
            let rest = opening.until.saturating_duration_since(Instant::now());
            if opening.left == 0 || rest.is_zero() {
                return;
            }
            opening.left -= 1;
            (Arc::clone(&opening.plan), opening.left, rest)
        };
        let origin = number % plan.origins.len();
        let to = &plan.origins[origin];
        let begun = Instant::now();
        let connection = opening.borrow().first + number / plan.origins.len();
        let dialled = proxy::open(to, connection, plan.timeout.min(rest)).await;
        let Ok(dialled) = dialled else { return };
        let mut opening = opening.borrow_mut();
        opening.shared.saw(&dialled.transport, to.proxy.as_ref());
        opening.ahead.dial.record(clock::nanos(begun.elapsed()));
        opening.ahead.streams[origin].push(dialled.transport);
    }
}
