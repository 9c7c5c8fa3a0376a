//! The cores of a gateway: started with it, changed in number when `workers` changes, stopped at its end.
//!
//! ```text
//!            fit                        fit                      nobody is left, or `shutdown.drain` is over
//!   (none) ───────▶ serving ◀────────────────────▶ leaving ─────────────────────────────────────────────▶ (none)
//! ```
//! A core that leaves accepts nothing more and closes each connection after its next exchange, as a process does that
//! another has replaced. No connection is lost: listening sockets outlive cores. Each change collects copies of all
//! of them and spreads them over the cores that serve now, so an accept queue only changes hands.
//!
//! Invariant: at any time each number belongs to one core at most, because its cells have a single writer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as mpsc_std;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use weir_engine::core::{Message, Shared, Sibling};
use weir_engine::homes::Homes;
use weir_engine::listener::{self, Start};
use weir_engine::snapshot::Snapshot;
use weir_telemetry::{Telemetry, log};
use weir_wire::listen::{self, Address, Beside, BoundSocket};

/// All cores of a gateway.
pub(crate) struct Crew {
    telemetry: Arc<Telemetry>,
    pub(crate) shared: Arc<Shared>,
    members: Arc<Mutex<Members>>,
    /// The gateway drains or ends: the number stays.
    fixed: AtomicBool,
}

#[derive(Default)]
struct Members {
    serving: Vec<Member>,
    /// Those whose connections end, and when they are cut.
    leaving: Vec<(Member, Instant)>,
}

struct Member {
    sibling: Sibling,
    thread: JoinHandle<()>,
}

/// How long a change waits for the cores' sockets. They answer within milliseconds.
const LENT: Duration = Duration::from_secs(1);

/// How often to check whether a core that leaves has no connection any more.
const LEFT_POLL: Duration = Duration::from_millis(50);

impl Crew {
    /// Starts this many cores.
    pub(crate) fn start(
        count: usize,
        telemetry: &Arc<Telemetry>,
        snapshot: &Arc<Snapshot>,
        homes: Arc<Homes>,
    ) -> io::Result<Self> {
        let crew = Self {
            telemetry: Arc::clone(telemetry),
            shared: Arc::new(Shared::new(homes)),
            members: Arc::default(),
            fixed: AtomicBool::new(false),
        };
        let (siblings, mailboxes): (Vec<_>, Vec<_>) = (0..count).map(sibling).unzip();
        let all: Arc<[Sibling]> = siblings.clone().into();
        let started: io::Result<Vec<Member>> = siblings
            .into_iter()
            .zip(mailboxes)
            .map(|(own, mailbox)| crew.spawn(own, &all, mailbox, snapshot))
            .collect();
        crew.members().serving = started?;
        Ok(crew)
    }

    /// How many cores serve.
    pub(crate) fn serving(&self) -> usize {
        self.members().serving.len()
    }

    /// The cores that serve, and those that leave.
    pub(crate) fn siblings(&self) -> (Vec<Sibling>, Vec<Sibling>) {
        let members = self.members();
        let leaving = members.leaving.iter().map(|(member, _)| member.sibling.clone());
        (members.siblings(), leaving.collect())
    }

    /// Sends a message to every core.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        let members = self.members();
        let leaving = members.leaving.iter().map(|(member, _)| member);
        for member in members.serving.iter().chain(leaving) {
            let _ = member.sibling.mailbox.send(message()); // a core that is gone needs no message
        }
    }

    /// Copies of all listening sockets, for another process.
    pub(crate) fn sockets(&self) -> Vec<(Address, BoundSocket)> {
        let members = self.members();
        let lent = members.serving.iter().map(|member| lend(member).0);
        in_order(lent.collect()) // the core has logged why a socket is missing
    }

    /// Keeps the number of cores from now on.
    pub(crate) fn fix(&self) {
        self.fixed.store(true, Ordering::Relaxed);
    }

    /// Makes `count` cores serve. `greet` is what a core needs before its first connection, beside the snapshot. A
    /// core that leaves may take `drain`; then its connections are cut.
    ///
    /// # Errors
    /// The system refused a thread or a descriptor: the cores stay as they were.
    pub(crate) fn fit(
        &self,
        count: usize,
        snapshot: &Arc<Snapshot>,
        drain: Duration,
        greet: impl Fn(usize, mpsc_std::Sender<()>) -> Message,
    ) -> io::Result<()> {
        let mut members = self.members();
        let before = members.serving.len();
        if before == count || self.fixed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut lent = Vec::new();
        for (sockets, failed) in members.serving.iter().map(lend) {
            failed.map_or(Ok(()), Err)?; // without one of them, its queue would be lost
            lent.push(sockets);
        }
        let (sockets, grown) = spread(in_order(lent), count)?;
        let back = members.leaving.len().min(count.saturating_sub(before));
        let numbers = members.free_numbers(count.saturating_sub(before + back));
        let siblings: Arc<[Sibling]> = members.siblings().into();
        let spawn = |(own, mailbox)| self.spawn(own, &siblings, mailbox, snapshot);
        let mut started = Vec::new();
        for member in numbers.into_iter().map(sibling).map(spawn) {
            match member {
                Ok(member) => started.push(member),
                Err(e) => {
                    started.into_iter().for_each(Member::end);
                    return Err(e);
                }
            }
        }
        // Nothing fails from here on.
        wait(|done| {
            for member in &started {
                member.tell(greet(member.sibling.index, done.clone()));
            }
        });
        let back = members.leaving.drain(..back).map(|(member, _)| member).collect::<Vec<_>>();
        members.serving.extend(back);
        members.serving.extend(started);
        let at = count.min(members.serving.len());
        let leaving = members.serving.split_off(at);
        let siblings: Arc<[Sibling]> = members.siblings().into();
        // Those who serve have all sockets before the others leave them.
        wait(|done| {
            for (member, sockets) in members.serving.iter().zip(sockets) {
                let (siblings, done) = (Arc::clone(&siblings), done.clone());
                member.tell(Message::Crew { siblings, sockets, serves: true, done });
            }
        });
        grown.into_iter().for_each(Grown::steer);
        wait(|done| {
            for member in &leaving {
                let (siblings, done) = (Arc::clone(&siblings), done.clone());
                member.tell(Message::Crew { siblings, sockets: Vec::new(), serves: false, done });
            }
        });
        let now = Instant::now();
        let until = now.checked_add(drain).unwrap_or(now);
        let idle = members.leaving.is_empty();
        members.leaving.extend(leaving.into_iter().map(|member| (member, until)));
        if idle && !members.leaving.is_empty() {
            let members = Arc::downgrade(&self.members);
            let watch = std::thread::Builder::new().name("weir-leaving".to_owned());
            watch.spawn(move || end_those_who_left(&members))?;
        }
        self.telemetry.show_workers(count);
        log::info("workers changed", &[("from", &before), ("to", &count)]);
        Ok(())
    }

    /// Ends all cores and cuts their connections. Blocks until they have ended.
    pub(crate) fn stop(&self) {
        self.fix();
        self.tell_all(|| Message::Stop);
        let members = std::mem::take(&mut *self.members());
        let leaving = members.leaving.into_iter().map(|(member, _)| member);
        members.serving.into_iter().chain(leaving).for_each(Member::join);
    }

    fn spawn(
        &self,
        own: Sibling,
        siblings: &Arc<[Sibling]>,
        mailbox: mpsc::UnboundedReceiver<Message>,
        snapshot: &Arc<Snapshot>,
    ) -> io::Result<Member> {
        let thread = listener::spawn(Start {
            own: own.clone(),
            siblings: Arc::clone(siblings),
            telemetry: Arc::clone(&self.telemetry),
            shared: Arc::clone(&self.shared),
            mailbox,
            snapshot: Arc::clone(snapshot),
            seed: seed(own.index),
        })?;
        Ok(Member { sibling: own, thread })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn siblings(&self) -> Vec<Sibling> {
        self.serving.iter().map(|member| member.sibling.clone()).collect()
    }

    /// The lowest numbers that no core has.
    fn free_numbers(&self, count: usize) -> Vec<usize> {
        let leaving = self.leaving.iter().map(|(member, _)| member);
        let taken: Vec<usize> =
            self.serving.iter().chain(leaving).map(|member| member.sibling.index).collect();
        (0..).filter(|number| !taken.contains(number)).take(count).collect()
    }
}

impl Member {
    fn tell(&self, message: Message) {
        let _ = self.sibling.mailbox.send(message); // it runs until it is told to stop
    }

    fn end(self) {
        self.tell(Message::Stop);
        self.join();
    }

    fn join(self) {
        if self.thread.join().is_err() {
            log::error("a core panicked", &[]);
        }
    }
}

/// A core with this number, and its mailbox.
fn sibling(index: usize) -> (Sibling, mpsc::UnboundedReceiver<Message>) {
    let (sender, mailbox) = mpsc::unbounded_channel();
    (Sibling::new(index, sender), mailbox)
}

/// Sends messages, and waits until all their receivers have answered or dropped `done`.
fn wait(send: impl FnOnce(&mpsc_std::Sender<()>)) {
    let (done, answers) = mpsc_std::channel();
    send(&done);
    drop(done);
    while answers.recv().is_ok() {}
}

/// The sockets that a core lends, and the first error.
fn lend(member: &Member) -> (Vec<(Address, BoundSocket)>, Option<io::Error>) {
    let (to, lent) = mpsc_std::channel();
    member.tell(Message::Lend { to });
    let by = Instant::now() + LENT;
    let (mut all, mut failed) = (Vec::new(), None);
    loop {
        match lent.recv_timeout(by.saturating_duration_since(Instant::now())) {
            Ok(Ok(socket)) => all.push(socket),
            Ok(Err(e)) => failed = failed.or(Some(e)),
            Err(mpsc_std::RecvTimeoutError::Disconnected) => return (all, failed),
            Err(mpsc_std::RecvTimeoutError::Timeout) => {
                return (all, failed.or_else(|| Some(io::ErrorKind::TimedOut.into())));
            }
        }
    }
}

/// Sockets, with the addresses that they listen on; of one core, or of all.
type Share = Vec<(Address, BoundSocket)>;

/// The sockets that cores lent, those of each address in the order in which they were bound: [`listen::spread`] dealt
/// them out to the cores in turns. The kernel knows UDP sockets by their places in that order.
fn in_order(lent: Vec<Share>) -> Share {
    let mut all = Vec::new();
    let mut known = HashSet::new();
    for (core, sockets) in lent.into_iter().enumerate() {
        let mut before: HashMap<Address, usize> = HashMap::new();
        for (address, socket) in sockets {
            // Two cores may read the same UDP socket, and one may have it twice.
            if matches!(address, Address::Udp(_)) && socket.id().is_ok_and(|id| !known.insert(id)) {
                continue;
            }
            let round = before.entry(address.clone()).or_default();
            all.push(((*round, core), address, socket));
            *round += 1;
        }
    }
    all.sort_by_key(|(place, ..)| *place);
    all.into_iter().map(|(_, address, socket)| (address, socket)).collect()
}

/// Spreads sockets over this many cores, and binds more where an address has fewer. Cores share one where that is not
/// possible, as on a low port without the privilege that Weir had when it started.
fn spread(sockets: Share, count: usize) -> io::Result<(Vec<Share>, Vec<Grown>)> {
    let mut all_grown = Vec::new();
    let mut by_address: BTreeMap<String, (Address, Vec<BoundSocket>)> = BTreeMap::new();
    for (address, socket) in sockets {
        let (_, known) = by_address.entry(address.to_string()).or_insert_with(|| (address, Vec::new()));
        known.push(socket);
    }
    let mut of_core: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
    for (address, mut sockets) in by_address.into_values() {
        match &address {
            Address::Tcp(_) if sockets.len() < count => {
                match listen::bind(&address, count - sockets.len(), Beside::Ourselves) {
                    Ok(more) => sockets.extend(more.sockets),
                    Err(e) => {
                        log::info("workers share a listening socket", &[("address", &address), ("why", &e)])
                    }
                }
            }
            Address::Udp(at) => all_grown.extend(add_udp(*at, &mut sockets, count)),
            Address::Tcp(_) => {}
            Address::Unix(_) => sockets.truncate(1), // copies of one socket
        }
        for (core, its) in of_core.iter_mut().zip(listen::spread(sockets, count)?) {
            core.extend(its.into_iter().map(|socket| (address.clone(), socket)));
        }
    }
    Ok((of_core, all_grown))
}

/// A group of UDP sockets that has grown, and that the kernel must be told to use as a whole, once all are read.
#[derive(Debug)]
pub(crate) struct Grown {
    address: SocketAddr,
    one: BoundSocket,
    count: usize,
}

impl Grown {
    /// Every socket has a reader now.
    pub(crate) fn steer(self) {
        if let Err(e) = weir_quic::steer(&self.one, self.count) {
            let fields: log::Fields<'_> = &[("address", &Address::Udp(self.address)), ("error", &e)];
            log::warn("the kernel does not steer QUIC to all workers", fields);
        }
    }
}

/// Binds more UDP sockets to an address that has fewer than cores. Cores share one where that is not possible.
pub(crate) fn add_udp(address: SocketAddr, sockets: &mut Vec<BoundSocket>, cores: usize) -> Option<Grown> {
    let first = sockets.first().filter(|_| sockets.len() < cores)?;
    let more = first.try_clone().and_then(|one| {
        let more = weir_quic::bind_more(address, &one, sockets.len(), cores)?;
        Ok((more, Grown { address, one, count: cores }))
    });
    match more {
        Ok((more, grown)) => {
            sockets.extend(more.into_iter().map(BoundSocket::any));
            Some(grown)
        }
        Err(e) => {
            log::info("workers share a UDP socket", &[("address", &Address::Udp(address)), ("why", &e)]);
            None
        }
    }
}

/// Ends cores that leave, once nobody is connected or their time is over.
fn end_those_who_left(members: &Weak<Mutex<Members>>) {
    loop {
        std::thread::sleep(LEFT_POLL);
        let Some(members) = members.upgrade() else { return };
        let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let ended = members.leaving.extract_if(.., |(member, until)| {
            let connections = member.sibling.connections();
            if connections > 0 && now >= *until {
                let fields: log::Fields<'_> =
                    &[("core", &member.sibling.index), ("connections", &connections)];
                log::warn("a worker's drain deadline passed: its connections are cut", fields);
            }
            member.sibling.is_idle() || now >= *until
        });
        for (member, _) in ended {
            member.tell(Message::Stop);
            member.join();
        }
        if members.leaving.is_empty() {
            return;
        }
    }
}

/// A seed for a core's random numbers. They spread load and name requests; nothing secret depends on them.
fn seed(index: usize) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(index)
}
