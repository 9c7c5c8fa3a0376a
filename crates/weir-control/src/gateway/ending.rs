//! The end of a gateway: by a drain, by a successor that takes over, or at once.

use super::Gateway;
use crate::reload::Consequences;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc as mpsc_std;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use weir_engine::core::{Leaving, Message};
use weir_engine::handover::Handover;
use weir_telemetry::log;

/// How long filters may take at most to release what they hold: a working store answers in milliseconds.
const RETIRING: Duration = Duration::from_millis(500);

/// How long a replaced process whose own connections have ended passes on datagrams between the one before it and the
/// one after it. The one before ends sooner, by its `shutdown.drain`.
const RELAYED: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a drain waits for the accept loops to end.
const DOORS: Duration = Duration::from_secs(1);

/// How often a drain checks whether it is done.
const DRAIN_POLL: Duration = Duration::from_millis(10);

impl Gateway {
    /// Turns readiness off and waits `shutdown.delay`, in which open connections close after their next exchange. Then
    /// accepts nothing more, closes every connection after its exchange, and ends the gateway when all have closed or
    /// `shutdown.drain` is over. Blocks until then.
    pub fn drain(&self) {
        let first = !self.inner.draining.swap(true, Ordering::Relaxed);
        if !first {
            return self.wait();
        }
        self.leave_fleet();
        self.stop_shadow(None, "the gateway drains");
        let shutdown = self.control().config.shutdown.clone();
        log::info("draining", &[("delay", &shutdown.delay), ("deadline", &shutdown.drain)]);
        if !shutdown.delay.is_zero() {
            self.tell_all(|| Message::Retire);
            std::thread::sleep(shutdown.delay.get()); // documented as blocking
        }
        self.close_doors(Leaving::End);
        self.cut(shutdown.drain.get());
        self.stop();
    }

    /// The hand-over to a successor: the listening sockets, ticket keys, counters. This process keeps serving, but
    /// refuses other configs until it [gives way](Self::give_way) or [stays](Self::stay).
    ///
    /// # Errors
    /// When no descriptor is left for the link. Without it, both processes would read the same UDP sockets.
    pub fn hand_over(&self) -> io::Result<Handover> {
        let mut control = self.control();
        let lent = self.inner.crew.sockets();
        let mut handover = control.hand_over(lent);
        handover.add_homes(&self.inner.crew.shared.homes)?;
        control.gives_way = true;
        Ok(handover)
    }

    /// The successor has failed: this process goes on as before.
    pub fn stay(&self) {
        self.control().gives_way = false;
    }

    /// What an upgrade does to this process's connections.
    pub fn consequences_of_upgrade(&self) -> Consequences {
        self.control().consequences_of_upgrade()
    }

    /// Which state the last change dropped. In a process that replaced another, the other's state that this one
    /// cannot use.
    pub fn forgot(&self) -> Vec<String> {
        self.control().consequences().forgets.clone()
    }

    /// The sockets of `admin.address` and their address, if they were open when this process began: for the admin
    /// listener, once. Closes the sockets of that [inheritance](super::Builder::inherit) that nobody uses.
    pub fn take_admin_sockets(
        &self,
    ) -> Option<(weir_wire::listen::Address, Vec<weir_wire::listen::BoundSocket>)> {
        self.control().take_admin_sockets()
    }

    /// Drains after a successor has taken what was [handed over](Self::hand_over) and serves. Accepts nothing more
    /// and closes every connection after its next exchange. Ends the gateway when all have closed or `shutdown.drain`
    /// is over. Blocks until then; calls `stopped` once it accepts nothing more.
    pub fn give_way(&self, stopped: impl FnOnce()) {
        if self.inner.draining.swap(true, Ordering::Relaxed) {
            return self.wait();
        }
        let drain = {
            let mut control = self.control();
            control.handed_over();
            control.config.shutdown.drain
        };
        self.leave_fleet();
        self.stop_shadow(None, "another process serves now");
        *self.inner.watching.lock().unwrap_or_else(PoisonError::into_inner) = None;
        log::info("another process serves now: finishing the exchanges in progress", &[("deadline", &drain)]);
        self.close_doors(Leaving::Successor);
        stopped();
        self.cut(drain.get());
        // What the next process gets for the one before this one passes through here. That one has its own deadline.
        wait_while(Instant::now() + RELAYED, || self.inner.crew.shared.homes.relays());
        self.stop();
    }

    /// Accepts nothing more, and closes every connection after its exchange.
    fn close_doors(&self, leaving: Leaving) {
        // An authority could no longer reach us. The successor continues orders under way.
        self.control().stop_orders();
        self.inner.crew.fix();
        let (done, closed) = mpsc_std::channel();
        self.tell_all(|| Message::Drain { leaving, done: done.clone() });
        drop(done);
        let _ = closed.recv_timeout(DOORS); // disconnected, or too late to wait for
    }

    /// Waits until all connections have closed, or cuts them after `limit`, and ends the cores.
    fn cut(&self, limit: Duration) {
        wait_while(Instant::now() + limit, || !self.inner.crew.shared.is_empty());
        let cut = self.connections();
        if cut > 0 {
            log::warn("drain deadline passed: connections are cut", &[("connections", &cut)]);
        }
        self.retire();
        self.inner.crew.stop();
    }

    /// Makes filters release what others could use.
    fn retire(&self) {
        let (done, retired) = mpsc_std::channel();
        let snapshot = Arc::clone(&self.control().snapshot);
        snapshot.filters.iter().for_each(|instance| instance.filter.retire(&done));
        drop(done);
        let _ = retired.recv_timeout(RETIRING); // disconnected, or too late to wait for
    }

    /// Ends the gateway immediately and cuts connections.
    pub fn stop(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
        self.stop_shadow(None, "the gateway ends");
        self.inner.crew.stop();
        self.control().end();
        let (ended, bell) = &self.inner.ended;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
    }

    /// Blocks until the gateway has ended.
    pub fn wait(&self) {
        let (ended, bell) = &self.inner.ended;
        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            ended = bell.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits while something goes on, until this time at most.
fn wait_while(by: Instant, goes_on: impl Fn() -> bool) {
    while goes_on() && Instant::now() < by {
        std::thread::sleep(DRAIN_POLL);
    }
}
