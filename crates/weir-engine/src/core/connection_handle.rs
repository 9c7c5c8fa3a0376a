//! A client connection as its core sees it from outside: who may close it, and why.

use crate::snapshot::{Listener, Policy};
use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use weir_wire::listen::Address;

/// A client connection as its core sees it from outside.
///
/// Field order: the fields that each request touches sit beside the reference count, which it also changes. That
/// saves one cache line per request with a thousand busy connections.
#[repr(C)]
pub(crate) struct ConnectionHandle {
    /// Close after the current exchange, or if idle after the next one.
    pub(crate) closing: Cell<bool>,
    /// It was opened under a policy of its listener that is gone: no more requests are served on it.
    pub(crate) outdated: Cell<bool>,
    /// The time in which it could bring one more request, `shutdown.idle`, is over.
    pub(crate) overdue: Cell<bool>,
    /// Cut it regardless of what is under way: its drain time is over.
    pub(crate) cut: Cell<bool>,
    /// How many rounds of [`Core::watch_waiting`] its exchange has waited for an upstream. 0 while it does not wait.
    pub(crate) waiting: Cell<u8>,
    /// Where it was sent, if a listener with `sni` or `tcp` accepted it.
    pub(crate) sent: OnceCell<Box<SentOn>>,
    /// The policy under which it was opened.
    pub(crate) policy: Policy,
    /// It came by QUIC, for which its listener has a policy of its own.
    pub(crate) is_quic: bool,
    /// Where it was accepted.
    pub(crate) listener: Option<Address>,
    /// Wakes its task.
    pub(crate) waker: Waker,
}

/// Where a connection was sent, and whose it is.
#[derive(Debug)]
pub(crate) struct SentOn {
    /// The client's address, which may change over QUIC.
    pub(crate) client: Cell<IpAddr>,
    /// The listener that serves it, if it is not the one that accepted it, and that one's policy.
    pub(crate) inner: Option<(Arc<str>, Policy)>,
    /// Whether its bytes are passed on.
    pub(crate) bytes: bool,
}

/// The round from which an exchange watches its client.
pub(super) const WATCHED: u8 = 3;

impl ConnectionHandle {
    /// A handle for a connection of this listener.
    #[inline]
    pub(crate) fn new(listener: &Listener, closing: bool, waker: Waker) -> Self {
        Self {
            closing: Cell::new(closing),
            outdated: Cell::new(false),
            overdue: Cell::new(false),
            cut: Cell::new(false),
            sent: OnceCell::new(),
            policy: listener.policy,
            is_quic: false,
            waiting: Cell::new(0),
            listener: listener.address.clone(),
            waker,
        }
    }

    /// Reuses a closed connection's handle, its memory and its waker, for the next connection of the same task. `None`
    /// if something still refers to the old handle.
    #[inline]
    pub(crate) fn renew(this: &mut Rc<Self>, listener: &Listener, closing: bool) -> Option<Rc<Self>> {
        let old = Rc::get_mut(this)?;
        let waker = std::mem::replace(&mut old.waker, Waker::noop().clone());
        *old = Self::new(listener, closing, waker);
        Some(Rc::clone(this))
    }

    /// A handle for a connection by QUIC to the address of `at`, which `serving` serves.
    pub(crate) fn of_quic(at: &Listener, serving: &Listener, closing: bool, waker: Waker) -> Self {
        let policy = serving.http3.as_ref().map_or(serving.policy, |http3| http3.policy);
        Self { policy, is_quic: true, ..Self::new(at, closing, waker) }
    }

    /// Marks the exchange as waiting until the returned guard is dropped.
    pub(crate) fn wait(self: &Rc<Self>) -> Waiting {
        self.waiting.set(1);
        Waiting(Rc::clone(self))
    }

    /// Whether the exchange has waited long enough to watch its client.
    pub(crate) fn is_watched(&self) -> bool {
        self.waiting.get() >= WATCHED
    }

    /// Whether it closes unless a request has arrived already.
    pub(crate) fn closes_idle(&self) -> bool {
        self.closing.get() && (self.overdue.get() || self.outdated.get())
    }

    /// Whether its bytes are passed on.
    pub(super) fn carries_bytes(&self) -> bool {
        self.sent.get().is_some_and(|sent| sent.bytes)
    }

    pub(super) fn close(&self) {
        self.closing.set(true);
        self.waker.wake_by_ref();
    }
}

/// Marks an exchange as waiting while it exists.
pub(crate) struct Waiting(Rc<ConnectionHandle>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(0);
    }
}
