//! The admin listener's thread: starts it, applies config changes, stops it.

use crate::api::{Api, Upgrade};
use crate::server::{Server, SocketFile};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc as mpsc_tokio, oneshot, watch};
use tokio::task::JoinSet;
use weir_gateway::Gateway;
use weir_gateway::config::Config;
use weir_gateway::config::schema::{AdminAddress, ListenAddress};
use weir_telemetry::log;
use weir_wire::listen::{Address, BoundSocket};

/// Most threads for blocking calls, such as a reload. Further calls queue.
const BLOCKING_THREADS: usize = 4;

/// How long answers in progress may take when the listener stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A running admin listener, on a separate thread. It follows the gateway's config and stops when dropped.
///
/// Drop it after the gateway has ended, not before: until then `/readyz` tells load balancers about the drain.
/// Dropping waits up to one second for answers in progress, such as the one to `POST /drain`.
#[derive(Debug)]
pub struct Admin {
    address: Shown,
    orders: mpsc_tokio::UnboundedSender<Order>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the process provides besides the gateway.
#[derive(Default)]
pub struct Process {
    /// The admin address of the predecessor process, with its open sockets.
    pub inherited: Option<(Address, Vec<BoundSocket>)>,
    /// Replaces this process with another one and returns the new id; `None` if the process cannot be replaced.
    pub upgrade: Option<Upgrade>,
}

/// A handle to a running admin listener, for any thread.
#[derive(Clone, Debug)]
pub struct Handle(mpsc_tokio::UnboundedSender<Order>);

/// A message to the listener's thread.
#[derive(Debug)]
enum Order {
    Leave { done: mpsc::Sender<()> },
    Lend { to: mpsc::Sender<(Address, Address, BoundSocket)> },
}

/// Timeout of an order.
const ORDER_WAIT: Duration = Duration::from_secs(2);

/// The bound address, shared with callers.
type Shown = Arc<Mutex<Option<Address>>>;

// === impl Admin ===

impl Admin {
    /// Binds `admin.address`, and rebinds whenever the config changes it. With `"off"` it waits for a config with
    /// an address.
    ///
    /// # Errors
    /// Why it cannot listen. If another process uses the address, the error names it.
    pub fn start(gateway: Gateway) -> Result<Self, String> {
        Self::start_in(gateway, Process::default())
    }

    /// As [`Admin::start`], for a process that inherited sockets or can be replaced.
    ///
    /// # Errors
    /// As for [`Admin::start`].
    pub fn start_in(gateway: Gateway, process: Process) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("weir-admin-work")
            .build()
            .map_err(|e| format!("admin: {e}"))?;
        let (end, ended) = oneshot::channel();
        let (orders, ordered) = mpsc_tokio::unbounded_channel();
        let (started, start) = mpsc::channel();
        let address = Shown::default();
        let shown = Arc::clone(&address);
        let thread = std::thread::Builder::new()
            .name("weir-admin".to_owned())
            .spawn(move || run(runtime, gateway, process, &shown, &started, ordered, ended))
            .map_err(|e| format!("admin: {e}"))?;
        match start.recv() {
            Ok(Ok(())) => Ok(Self { address, orders, end: Some(end), thread: Some(thread) }),
            Ok(Err(e)) => Err(format!("admin.address: {e}")),
            Err(mpsc::RecvError) => Err("admin: its thread ended".to_owned()),
        }
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        Handle(self.orders.clone())
    }

    /// The current address with the real port; `None` while the listener is off.
    pub fn address(&self) -> Option<Address> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error("the admin listener panicked", &[]);
        }
    }
}

// === impl Handle ===

impl Handle {
    /// Duplicates the listening socket for the process that replaces this one. Returns the address as written,
    /// the address as bound, and the socket; `None` while the listener is off.
    pub fn lend(&self) -> Option<(Address, Address, BoundSocket)> {
        let (to, lent) = mpsc::channel();
        self.0.send(Order::Lend { to }).ok()?;
        lent.recv_timeout(ORDER_WAIT).ok()
    }

    /// Stops listening, because another process listens on the same socket. Requests in progress are answered.
    pub fn leave(&self) {
        let (done, left) = mpsc::channel();
        if self.0.send(Order::Leave { done }).is_ok() {
            let _ = left.recv_timeout(ORDER_WAIT); // the thread drops `done` when it is finished
        }
    }
}

// === the thread ===

fn run(
    runtime: Runtime,
    gateway: Gateway,
    process: Process,
    shown: &Shown,
    started: &mpsc::Sender<io::Result<()>>,
    ordered: mpsc_tokio::UnboundedReceiver<Order>,
    ended: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let mut configs = gateway.configs();
        let api = Arc::new(Api::new(gateway, process.upgrade));
        let kept = Arc::clone(&api);
        let record = tokio::spawn(async move { kept.keep_record().await });
        let first = wanted(&configs.borrow_and_update());
        let begin = |address: Address| match process.inherited {
            Some((actual, sockets)) => Server::take_over(address, actual, sockets, &api),
            None => Server::start(&address, &api),
        };
        let server = match first.map(begin).transpose() {
            Ok(server) => server,
            Err(e) => {
                let _ = started.send(Err(e)); // `start` waits for it
                return;
            }
        };
        show(shown, server.as_ref());
        let _ = started.send(Ok(()));
        let mut under_way = JoinSet::new();
        if let Some(server) = follow(server, configs, &api, shown, ordered, ended, &mut under_way).await {
            show(shown, None);
            leave(Some(server), SocketFile::Remove, &mut under_way).await;
        }
        record.abort();
        let finish = async { while under_way.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, finish).await;
    });
    // Does not wait for a running reload.
    runtime.shutdown_background();
}

/// The address of the listener in a config.
fn wanted(config: &Config) -> Option<Address> {
    match &config.admin.address {
        AdminAddress::At(ListenAddress::Tcp(address)) => Some(Address::Tcp(*address)),
        AdminAddress::At(ListenAddress::Unix(path)) => Some(Address::Unix(path.clone())),
        AdminAddress::Off => None,
    }
}

fn show(shown: &Shown, server: Option<&Server>) {
    let now = server.map(|server| server.actual.clone());
    if let Some(address) = &now {
        log::info("admin", &[("address", address)]);
    }
    *shown.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

/// Rebinds whenever the config changes the address. Returns the current server at the end; `under_way` receives
/// the connections of servers closed before.
async fn follow(
    mut server: Option<Server>,
    mut configs: watch::Receiver<Arc<Config>>,
    api: &Arc<Api>,
    shown: &Shown,
    mut ordered: mpsc_tokio::UnboundedReceiver<Order>,
    mut ended: oneshot::Receiver<()>,
    under_way: &mut JoinSet<()>,
) -> Option<Server> {
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => return server,
            Some(order) = ordered.recv() => {
                server = obey(order, server, shown, under_way).await;
                continue;
            }
            changed = configs.changed() => if changed.is_err() { return server },
        }
        let wanted = wanted(&configs.borrow_and_update());
        if wanted.as_ref() == server.as_ref().map(|server| &server.asked) {
            continue;
        }
        let before = server.as_ref().map(|server| server.actual.clone());
        server = rebind(server, wanted, api, under_way).await;
        if server.as_ref().map(|server| &server.actual) != before.as_ref() {
            show(shown, server.as_ref());
        }
    }
}

async fn obey(
    order: Order,
    server: Option<Server>,
    shown: &Shown,
    under_way: &mut JoinSet<()>,
) -> Option<Server> {
    match order {
        Order::Lend { to } => {
            if let Some(Ok(lent)) = server.as_ref().map(Server::lend) {
                let _ = to.send(lent); // the caller may have given up
            }
            server
        }
        Order::Leave { done } => {
            show(shown, None);
            leave(server, SocketFile::Keep, under_way).await;
            drop(done);
            None
        }
    }
}

/// Serves the new address instead of the old one. If the new one cannot be bound, keeps the old one.
async fn rebind(
    old: Option<Server>,
    wanted: Option<Address>,
    api: &Arc<Api>,
    under_way: &mut JoinSet<()>,
) -> Option<Server> {
    let Some(wanted) = wanted else {
        log::info("admin is off", &[]);
        leave(old, SocketFile::Remove, under_way).await;
        return None;
    };
    match Server::start(&wanted, api) {
        Ok(new) => {
            leave(old, SocketFile::Remove, under_way).await;
            return Some(new);
        }
        // For example 127.0.0.1:9180 → 0.0.0.0:9180, where our own socket may hold the port.
        Err(e)
            if e.kind() == io::ErrorKind::AddrInUse
                && old.as_ref().is_some_and(|old| overlap(old, &wanted)) => {}
        Err(e) => {
            not_moved(&e);
            return old;
        }
    }
    let before = old.as_ref().map(|old| old.asked.clone());
    leave(old, SocketFile::Remove, under_way).await;
    match Server::start(&wanted, api) {
        Ok(new) => Some(new),
        Err(e) => {
            not_moved(&e);
            before.and_then(|before| {
                Server::start(&before, api).inspect_err(|e| log::error("admin is off", &[("error", e)])).ok()
            })
        }
    }
}

fn not_moved(e: &io::Error) {
    log::error("admin stays at its old address: the new one cannot be bound", &[("error", e)]);
}

/// Whether `old` may prevent binding `wanted`.
fn overlap(old: &Server, wanted: &Address) -> bool {
    matches!((&old.actual, wanted), (Address::Tcp(old), Address::Tcp(new)) if old.port() == new.port())
}

/// Releases the address. Requests in progress finish on their own.
async fn leave(old: Option<Server>, file: SocketFile, under_way: &mut JoinSet<()>) {
    while under_way.try_join_next().is_some() {} // drop tasks that have finished
    if let Some(old) = old {
        let mut connections = old.close(file).await;
        under_way.spawn(async move { while connections.join_next().await.is_some() {} });
    }
}
