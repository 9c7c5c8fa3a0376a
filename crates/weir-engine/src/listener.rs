//! One core: its thread, its mailbox, and the accept loop of each of its listening sockets.

mod quic;

use crate::call;
use crate::connection;
use crate::core::{Arrived, Core, Leaving, LocalListener, Message, Parts, Shared, Sibling};
use crate::lane::Lane;
use crate::snapshot::{Listener, Snapshot};
use quic::{Dealt, QuicDoors};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as mpsc_std;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc;
use weir_telemetry::{Telemetry, log};
use weir_wire::listen::{Address, BoundSocket};
use weir_wire::time::sleep;
use weir_wire::{Class, CoreListener, Driver, Peer, Sockets, yield_now};

/// What a core starts with.
pub struct Start {
    /// The core as others see it.
    pub own: Sibling,
    /// The cores that serve when it starts.
    pub siblings: Arc<[Sibling]>,
    /// Where the core counts.
    pub telemetry: Arc<Telemetry>,
    /// What all cores share.
    pub shared: Arc<Shared>,
    /// Its mailbox.
    pub mailbox: mpsc::UnboundedReceiver<Message>,
    /// The first snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Seeds the core's random numbers.
    pub seed: u64,
}

/// How often a core sweeps its pools and hands over its log lines.
const TICK: Duration = Duration::from_millis(200);

/// After this many ticks, exchanges that have waited long start to watch their client.
const WATCH_TICKS: u32 = 5;

/// How long accepting pauses when file descriptors run out. Connections wait in the kernel's queue meanwhile, and
/// each exchange that ends frees two.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections to accept in a row before other tasks get a turn.
const IN_A_ROW: u32 = 32;

/// Starts a core's thread, and waits until it runs.
///
/// # Errors
/// When no thread or no descriptor is left.
pub fn spawn(start: Start) -> io::Result<JoinHandle<()>> {
    let name = format!("weir-core-{}", start.own.index);
    let (began, beginning) = mpsc_std::channel();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let runs = began.clone();
        let ran = Driver::new().and_then(|driver| {
            let sockets = driver.sockets();
            driver.run(async move {
                let _ = runs.send(Ok(())); // the spawner waits
                run(start, sockets).await;
            })
        });
        if let Err(e) = ran {
            log::error("a core cannot watch its sockets", &[("error", &e)]);
            let _ = began.send(Err(e)); // heard if it did not begin
        }
    })?;
    let ended = |_| Err(io::Error::other("a core ended as it began"));
    beginning.recv().unwrap_or_else(ended).map(|()| thread)
}

async fn run(start: Start, sockets: Rc<Sockets>) {
    let Start { own, siblings, telemetry, shared, mut mailbox, snapshot, seed } = start;
    let mine = own.mailbox.clone();
    let parts = Parts { own, siblings, shared, seed, sockets, handle: call::handle };
    let core = Core::new(parts, &telemetry, snapshot);
    let (doors, quic) = (Doors::default(), QuicDoors::default());
    let mut ticks = 0u32;
    let mut tick = sleep(TICK);
    loop {
        let message = tokio::select! {
            message = mailbox.recv() => message,
            () = &mut tick => {
                tick = sleep(TICK);
                ticks = ticks.wrapping_add(1);
                core.sweep();
                core.close_overdue();
                quic.sweep(&core);
                if ticks.is_multiple_of(WATCH_TICKS) {
                    core.trim();
                    core.give_back();
                    core.watch_waiting();
                    core.cut_outdated();
                }
                if let Some(log) = &mut *core.access_log.borrow_mut() {
                    log.flush_tick();
                }
                if let Some(spans) = &mut *core.spans.borrow_mut() {
                    spans.flush();
                }
                continue;
            }
        };
        match message {
            Some(Message::Accepted { socket, peer, listener }) => take_over(&core, socket, peer, listener),
            Some(Message::Adopt { snapshot, sockets, log, spans, done }) => {
                core.adopt(snapshot);
                if let Some(log) = log {
                    *core.access_log.borrow_mut() = log.map(|log| *log);
                }
                if let Some(spans) = spans {
                    *core.spans.borrow_mut() = spans;
                }
                doors.close_unused(&core);
                quic.adopt(&core);
                quic.keep(&core, &sockets, Dealt::Some);
                open(&core, &doors, &quic, &mine, sockets);
                let _ = done.send(()); // the sender may have stopped waiting
            }
            Some(Message::Crew { siblings, sockets, serves, done }) => {
                core.join(siblings, serves);
                let before = doors.0.take();
                if serves {
                    quic.keep(&core, &sockets, Dealt::All);
                } else {
                    quic.give_up(&core);
                }
                open(&core, &doors, &quic, &mine, sockets);
                before.iter().for_each(|door| door.bell.leave());
                let _ = done.send(()); // as above
            }
            Some(Message::Drain { leaving, done }) => {
                doors.close_all(&done);
                quic.drain(&core, leaving);
                core.drain(leaving);
            }
            Some(Message::Retire) => core.drain(Leaving::Delayed),
            Some(Message::Quic(passed)) => quic.take(&core, passed),
            Some(Message::Lend { to }) => {
                doors.lend(&to);
                quic.lend().for_each(|lent| drop(to.send(lent))); // the receiver may have given up
            }
            Some(Message::Why { question, to }) => {
                let _ = to.send(core.autopsies.find(core.index, &question)); // the sender may have given up
            }
            Some(Message::Shadow { tap }) => core.shadow(tap),
            Some(Message::Turn { to }) => drop(to.send(())), // the sender may have given up
            Some(Message::Stop) | None => return quic.cut().await,
        }
    }
}

/// Which of a core's sockets are of UDP, with their addresses and their places among those of the same address, as
/// `weir_wire::listen::spread` deals them out.
fn places(core: &Core, sockets: &[(Address, BoundSocket)]) -> Vec<Option<(SocketAddr, usize)>> {
    let (mine, all) = core.place();
    let mut before: HashMap<SocketAddr, usize> = HashMap::new();
    let place = |(address, _): &(Address, BoundSocket)| {
        let Address::Udp(address) = address else { return None };
        let round = before.entry(*address).or_default();
        let place = mine + *round * all;
        *round += 1;
        Some((*address, place))
    };
    sockets.iter().map(place).collect()
}

/// Opens sockets.
fn open(
    core: &Rc<Core>,
    doors: &Doors,
    quic: &QuicDoors,
    mailbox: &mpsc::UnboundedSender<Message>,
    sockets: Vec<(Address, BoundSocket)>,
) {
    let places = places(core, &sockets);
    for ((address, socket), place) in sockets.into_iter().zip(places) {
        match place {
            Some((address, place)) => quic.open(core, address, place, socket, mailbox),
            None => doors.open(core, address, socket),
        }
    }
}

/// A core's listening sockets. One address has several if the previous process had more cores.
#[derive(Default)]
struct Doors(RefCell<Vec<Door>>);

/// A listening socket and the bell that ends its loop.
struct Door {
    address: Address,
    listener: Rc<CoreListener>,
    bell: Rc<Bell>,
}

/// Ends an accept loop. The loop holds it, and with it `done`, until it ends.
#[derive(Default)]
struct Bell {
    has_rung: Cell<bool>,
    /// Wakes the loop.
    waker: Cell<Option<Waker>>,
    /// Others have a copy of the socket and accept what is in its queue.
    shared: Cell<bool>,
    /// Dropped when the loop has ended.
    done: RefCell<Option<mpsc_std::Sender<()>>>,
}

impl Bell {
    /// Ends the loop.
    fn ring(&self) {
        self.has_rung.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends the loop and leaves the queue to those who have a copy of the socket.
    fn leave(&self) {
        self.shared.set(true);
        self.ring();
    }

    /// Ready once it has rung; until then, wakes the task when it does. For one task only.
    fn poll_rung(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_rung.get() {
            return Poll::Ready(());
        }
        let known = self.waker.take().filter(|known| known.will_wake(cx.waker()));
        self.waker.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }
}

impl Doors {
    fn open(&self, core: &Rc<Core>, address: Address, socket: BoundSocket) {
        let listener = Rc::new(core.sockets.listen(socket));
        let bell = Rc::new(Bell::default());
        let accepting = accept(Rc::clone(core), address.clone(), Rc::clone(&listener), Rc::clone(&bell));
        drop(tokio::task::spawn_local(accepting));
        self.0.borrow_mut().push(Door { address, listener, bell });
    }

    /// Sends a copy of each socket.
    fn lend(&self, to: &mpsc_std::Sender<io::Result<(Address, BoundSocket)>>) {
        for door in self.0.borrow().iter() {
            let lent = door.listener.lend();
            if let Err(e) = &lent {
                log::error("a socket is not handed over", &[("address", &door.address), ("error", e)]);
            }
            drop(to.send(lent.map(|socket| (door.address.clone(), socket)))); // the receiver may have given up
        }
    }

    /// Closes the sockets that the current snapshot does not listen on.
    fn close_unused(&self, core: &Core) {
        let local = core.local();
        self.0.borrow_mut().retain(|door| {
            let used = local.listener(&door.address).is_some_and(|l| l.spec.has_stream_socket());
            if !used {
                door.bell.ring();
            }
            used
        });
    }

    fn close_all(&self, done: &mpsc_std::Sender<()>) {
        for door in self.0.borrow_mut().drain(..) {
            *door.bell.done.borrow_mut() = Some(done.clone());
            door.bell.ring();
        }
    }
}

/// Accepts until the bell rings, then serves what is left in the kernel's queue: closing a listening socket would
/// reset it.
async fn accept(core: Rc<Core>, address: Address, listener: Rc<CoreListener>, bell: Rc<Bell>) {
    // The listener, and the generation of the snapshot that it is from.
    let (mut last, mut generation) = {
        let local = core.local();
        let Some(last) = local.listener(&address) else { return };
        (Rc::clone(last), local.generation)
    };
    let mut in_a_row = 0u32;
    loop {
        in_a_row = in_a_row.wrapping_add(1);
        if in_a_row.is_multiple_of(IN_A_ROW) {
            yield_now().await;
        }
        // The bell first: a steady stream of connections would starve it.
        let accepted = poll_fn(|cx| match bell.poll_rung(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => listener.poll_accept(cx).map(Some),
        });
        let Some(accepted) = accepted.await else { break };
        match accepted {
            Ok((stream, peer)) => {
                let local = core.local();
                if local.generation != generation
                    && let Some(same) = local.listener(&address)
                {
                    (last, generation) = (Rc::clone(same), local.generation);
                }
                admit(&core, (&last, generation), stream, peer);
            }
            Err(e) if weir_wire::limits::ran_out(&e) => {
                static SEEN: log::Every = log::every(Duration::from_secs(5));
                SEEN.warn("out of descriptors: accepting pauses", &[("error", &e)]);
                sleep(PAUSE).await;
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {} // it failed before we got it
            Err(e) => {
                static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(5));
                let fields: log::Fields<'_> = &[("address", &address), ("error", &e)];
                SEEN.warn(&address, "accepting failed, and pauses", fields);
                sleep(PAUSE).await;
            }
        }
    }
    // The ringer has dropped it, so nobody else holds it.
    let Some(listener) = Rc::into_inner(listener) else { return };
    let left = if bell.shared.get() { listener.leave().into_iter().collect() } else { listener.close() };
    for (stream, peer) in left {
        core.shared.arrive();
        serve(&core, (&last, generation), stream, peer);
    }
}

/// A listener, and the generation of the snapshot that it is from.
type Accepting<'a> = (&'a Rc<LocalListener>, u64);

/// Serves a new connection here or on the core with the fewest.
fn admit(core: &Rc<Core>, listener: Accepting<'_>, socket: OwnedFd, peer: Peer) {
    core.shared.arrive();
    // All cores accept from the single queue of a Unix socket, which balances them already.
    match core.lighter().filter(|_| peer != Peer::Local) {
        Some(lightest) => {
            let listener = Arc::clone(&listener.0.spec);
            if lightest.mailbox.send(Message::Accepted { socket, peer, listener }).is_err() {
                core.shared.arrived(); // closed: the whole process ends
            }
        }
        None => serve(core, listener, socket, peer),
    }
}

/// Serves a connection that another core accepted. If a reload has removed its listener meanwhile, it gets one answer,
/// like those that wait in the accept queue then.
fn take_over(core: &Rc<Core>, socket: OwnedFd, peer: Peer, listener: Arc<Listener>) {
    let local = core.local();
    let now = listener.address.as_ref().and_then(|address| local.listener(address));
    match now {
        Some(now) => serve(core, (now, local.generation), socket, peer),
        None => {
            let cells = core.cells.listener(&listener.series);
            serve(core, (&Rc::new(LocalListener::gone(listener, cells)), 0), socket, peer);
        }
    }
}

/// Serves a connection that has [arrived](Shared::arrive). Its lane counts it from the first poll.
fn serve(core: &Rc<Core>, (listener, generation): Accepting<'_>, socket: OwnedFd, peer: Peer) {
    let socket = core.sockets.add(socket, peer, Class::Client);
    core.push_arrived(Arrived { listener: Rc::clone(listener), generation, socket, peer });
    let idle = core.lanes.borrow_mut().pop();
    if let Some(lane) = idle {
        return lane.give(());
    }
    weir_wire::spawn(Box::pin(connection::serve_lane(Rc::clone(core), Rc::new(Lane::new(())))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homes::Homes;
    use std::pin::pin;
    use weir_telemetry::Setup;

    fn core() -> Rc<Core> {
        let own = Sibling::new(0, mpsc::unbounded_channel().0);
        let shared = Arc::new(Shared::new(Arc::new(Homes::new().unwrap())));
        let sockets = Driver::new().unwrap().sockets();
        let parts = Parts { own, siblings: Arc::from([]), shared, seed: 1, sockets, handle: call::handle };
        Core::new(parts, &Telemetry::new(Setup::default()), Arc::new(Snapshot::empty()))
    }

    /// A waiting lane keeps its last client, and so a listener of the old snapshot.
    #[test]
    fn waiting_lanes_end_at_a_reload() {
        let core = core();
        let lane = Rc::new(Lane::new(()));
        let next = || pin!(lane.next()).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(next(), Poll::Ready(Some(())));
        core.lanes.borrow_mut().push(Rc::clone(&lane));
        assert_eq!(next(), Poll::Pending);
        core.adopt(Arc::new(Snapshot::empty()));
        assert_eq!(next(), Poll::Ready(None));
        assert!(core.lanes.borrow().is_empty());
    }

    /// Other cores may take the place of this one while its process drains, and give it back: neither undoes the other.
    #[test]
    fn a_core_that_is_replaced_in_a_process_that_drains() {
        let core = core();
        let none = || Arc::from([]);
        core.join(none(), false);
        core.drain(Leaving::Delayed);
        assert!(core.ends(), "the delay of a drain does not make it serve again");
        core.join(none(), true);
        assert!(!core.ends(), "new connections stay during the delay");
        core.drain(Leaving::End);
        core.join(none(), true);
        assert!(core.ends(), "the process ends whoever serves");
    }
}
