//! A Kubernetes API server in memory: versions, lists in pages, watches, bookmarks, compaction, conflicts, the status
//! subresource and RBAC, over real sockets and with faults that a test orders.
//!
//! It shares nothing with the client that it tests. What it stores it neither defaults nor validates.
//!
//! *Layout:* `store.rs` holds the objects and their history, `serve.rs` answers requests.

mod serve;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use store::State;

use crate::ServerTls;

/// A fake API server on a free port of 127.0.0.1. It ends when dropped.
#[derive(Debug)]
pub struct FakeKube {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// A request that the server answered, in the words of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `httproutes/status`.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// The token that it carried.
    pub token: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    faults: Mutex<Faults>,
    /// Something in `state` or `faults` has changed.
    changed: Condvar,
    ended: AtomicBool,
    /// The open connections, by number.
    open: Mutex<BTreeMap<usize, TcpStream>>,
    requests: Mutex<Vec<KubeRequest>>,
}

#[derive(Clone, Debug, Default)]
struct Faults {
    away: bool,
    /// After how many bytes each of the next answers breaks off.
    cuts: Vec<usize>,
    forbidden: BTreeSet<(String, String)>,
    uninstalled: BTreeSet<String>,
    /// How many of the next writes meet a conflict.
    conflicts: usize,
    /// How many of the next watches of a resource get 410.
    expired: BTreeMap<String, usize>,
    token: Option<String>,
    bookmarks: u64,
    /// Ends the watches that began before.
    generation: u64,
}

impl FakeKube {
    /// An empty cluster, over plain HTTP.
    pub fn start() -> Self {
        Self::listen(None)
    }

    /// As [`Self::start`], with TLS.
    pub fn start_tls(tls: ServerTls) -> Self {
        Self::listen(Some(tls))
    }

    fn listen(tls: Option<ServerTls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let accept = move || {
            for (number, stream) in listener.incoming().enumerate() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (shared, tls) = (Arc::clone(&accepting), tls.clone());
                thread::spawn(move || serve::connection(&shared, number, stream, tls.as_ref()));
            }
        };
        Self { address, shared, acceptor: Some(thread::spawn(accept)) }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as a URL over plain HTTP.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    // === the cluster ===

    /// Creates or changes an object as a user does: all of it but its status. Returns it as stored.
    pub fn put(&self, object: Value) -> Value {
        self.change(|state| state.apply(object))
    }

    /// Sets the status of an object, as another controller does.
    pub fn put_status(&self, kind: &str, namespace: &str, name: &str, status: Value) -> Value {
        self.change(|state| state.set_status(kind, namespace, name, status))
    }

    /// Removes an object; it must be there.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.change(|state| state.remove(kind, namespace, name).expect("the object is there"));
    }

    /// An object as stored.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        lock(&self.shared.state).get(kind, namespace, name)
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        lock(&self.shared.state).all(kind)
    }

    // === what the server saw ===

    /// All requests so far.
    pub fn requests(&self) -> Vec<KubeRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The number of writes so far, those of Leases and refused ones not counted.
    pub fn writes(&self) -> usize {
        let is_write = |r: &&KubeRequest| ["create", "update", "patch", "delete"].contains(&r.verb);
        let requests = lock(&self.shared.requests);
        requests.iter().filter(is_write).filter(|r| r.resource != "leases").count()
    }

    // === faults ===

    /// Forgets the history: a watch or a page from an earlier version gets 410.
    pub fn compact(&self) {
        self.change(State::compact);
    }

    /// Sends a bookmark on every watch.
    pub fn bookmark(&self) {
        self.fault(|faults| faults.bookmarks += 1);
    }

    /// Accepts and closes connections, and breaks the open ones.
    pub fn go_away(&self) {
        self.fault(|faults| faults.away = true);
        self.break_connections();
    }

    /// Answers again.
    pub fn come_back(&self) {
        self.fault(|faults| faults.away = false);
    }

    /// Breaks every open connection.
    pub fn break_connections(&self) {
        for stream in lock(&self.shared.open).values() {
            let _ = stream.shutdown(Shutdown::Both); // it may have ended
        }
    }

    /// Ends every watch in an orderly way, as after `timeoutSeconds`.
    pub fn end_watches(&self) {
        self.fault(|faults| faults.generation += 1);
    }

    /// Breaks the next answers off after these numbers of bytes, one each.
    pub fn cut_next(&self, bytes: &[usize]) {
        self.fault(|faults| faults.cuts = bytes.iter().rev().copied().collect());
    }

    /// Lets the next watches of a resource get 410, whatever their version is.
    pub fn expire_next(&self, resource: &str, watches: usize) {
        self.fault(|faults| faults.expired.insert(resource.to_owned(), watches));
    }

    /// Lets the next writes meet a conflict.
    pub fn conflict_next(&self, writes: usize) {
        self.fault(|faults| faults.conflicts = writes);
    }

    /// Refuses a verb on a resource (`httproutes/status`) with 403 from now on.
    pub fn forbid(&self, verb: &str, resource: &str) {
        self.fault(|faults| faults.forbidden.insert((verb.to_owned(), resource.to_owned())));
        self.end_watches();
    }

    /// Permits it again.
    pub fn permit(&self, verb: &str, resource: &str) {
        self.fault(|faults| faults.forbidden.remove(&(verb.to_owned(), resource.to_owned())));
    }

    /// Turns the garbage collector off: what a deleted object owned stays.
    pub fn keep_orphans(&self) {
        lock(&self.shared.state).keeps_orphans = true;
    }

    /// Answers 404 for a resource, as if its definition were not installed.
    pub fn uninstall(&self, resource: &str) {
        self.fault(|faults| faults.uninstalled.insert(resource.to_owned()));
    }

    /// Accepts this token and no other.
    pub fn demand_token(&self, token: &str) {
        self.fault(|faults| faults.token = Some(token.to_owned()));
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut lock(&self.shared.state));
        self.shared.changed.notify_all();
        done
    }

    fn fault<T>(&self, change: impl FnOnce(&mut Faults) -> T) {
        change(&mut lock(&self.shared.faults));
        // Under the lock that watches wait with, so that none misses it.
        let _state = lock(&self.shared.state);
        self.shared.changed.notify_all();
    }
}

impl Drop for FakeKube {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.go_away();
        let _ = TcpStream::connect(self.address); // wakes the acceptor
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join(); // its panic has been shown
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
