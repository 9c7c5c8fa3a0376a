//! The snapshot as one core uses it.

use super::connection_handle::ConnectionHandle;
use crate::autopsy::Usual;
use crate::snapshot::{Destination, Handling, Listener, Serves, Snapshot};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_filter::filter::{Consumer, RouteScope};
use weir_telemetry::{ConsumerCells, CoreCells, ListenerCells, RouteCells};
use weir_upstream::upstream::LocalUpstream;
use weir_wire::listen::Address;

/// A snapshot as one core uses it.
pub(crate) struct Local {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) routes: Vec<LocalRoute>,
    pub(crate) upstreams: Vec<Rc<LocalUpstream>>,
    pub(crate) listeners: Vec<Rc<LocalListener>>,
    /// Counts requests that no route matched.
    pub(crate) unrouted: Arc<RouteCells>,
    /// Request counts per consumer, created at its first request: most of many consumers never send one.
    pub(super) consumers: Rc<[OnceCell<Arc<ConsumerCells>>]>,
    /// The same for consumers of sources, by number.
    pub(super) listed: Rc<RefCell<HashMap<usize, Arc<ConsumerCells>>>>,
    /// Counts the snapshots that this core has adopted, from 1.
    pub(crate) generation: u64,
}

/// A route as one core uses it.
pub(crate) struct LocalRoute {
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) cells: Arc<RouteCells>,
    pub(crate) handling: Arc<Handling>,
    /// The usual durations of its exchanges.
    pub(crate) usual: Usual,
}

/// Stands for the number of a listener that the snapshot does not have. Its own number may belong to another listener
/// by now, and this one matches no route that asks for a listener.
const GONE: u16 = u16::MAX;

/// A listener as one core uses it.
pub(crate) struct LocalListener {
    pub(crate) spec: Arc<Listener>,
    /// Its number in route conditions.
    pub(crate) number: u16,
    pub(crate) cells: Arc<ListenerCells>,
}

/// What becomes of a connection at a reload.
pub(super) enum Standing {
    /// Its listener is gone.
    Gone,
    /// It stays.
    Kept,
    /// Its listener requires something else now.
    Outdated,
}

impl LocalListener {
    /// A listener that a reload has removed, for the connections that it accepted before.
    pub(crate) const fn gone(spec: Arc<Listener>, cells: Arc<ListenerCells>) -> Self {
        Self { spec, number: GONE, cells }
    }
}

impl Local {
    /// The part a tunnel needs: see [`Snapshot::only`].
    pub(crate) fn only(&self, route: usize, upstream: usize, filters: &[u32]) -> Rc<Self> {
        let of = &self.routes[route];
        let scope = RouteScope {
            name: Arc::clone(&of.scope.name),
            matched: None,
            consumers: Arc::clone(&of.scope.consumers),
            core: of.scope.core.clone(),
            exposes_causes: of.scope.exposes_causes,
        };
        let snapshot = self.snapshot.only(route, upstream, filters);
        let route = LocalRoute {
            scope: Rc::new(scope),
            cells: Arc::clone(&of.cells),
            handling: Arc::clone(&snapshot.routes[0].handling),
            usual: Usual::default(),
        };
        Rc::new(Self {
            snapshot: Arc::new(snapshot),
            routes: vec![route],
            upstreams: Vec::new(),
            listeners: Vec::new(),
            unrouted: Arc::clone(&self.unrouted),
            consumers: Rc::clone(&self.consumers),
            listed: Rc::clone(&self.listed),
            generation: self.generation,
        })
    }

    /// The cells that count a consumer's requests.
    pub(crate) fn consumer(&self, index: usize, core: &CoreCells) -> Option<&ConsumerCells> {
        let id = self.snapshot.consumer_series.get(index)?;
        Some(self.consumers.get(index)?.get_or_init(|| core.consumer(id)))
    }

    /// The same for a consumer of a source. Those beyond the limit for series share the series of the overflow.
    pub(crate) fn listed(&self, consumer: &Consumer, core: &CoreCells) -> Option<Arc<ConsumerCells>> {
        let of = self.snapshot.listed.as_ref()?;
        let mut known = self.listed.borrow_mut();
        let number = if known.contains_key(&consumer.number) || known.len() < of.series {
            consumer.number
        } else {
            0 // no consumer of a source has it
        };
        let make = || match number {
            0 => core.consumer(&of.telemetry.consumer(weir_telemetry::series::OVERFLOW)),
            _ => core.consumer(&of.telemetry.consumer(&consumer.name)),
        };
        Some(Arc::clone(known.entry(number).or_insert_with(make)))
    }

    /// The listener at an address, if it still exists.
    pub(crate) fn listener(&self, address: &Address) -> Option<&Rc<LocalListener>> {
        self.listeners.iter().find(|l| l.spec.address.as_ref() == Some(address))
    }

    /// Finds a listener of an earlier snapshot in this one, and returns it with this snapshot's generation. If this
    /// snapshot has none at its address, returns it unchanged with generation 0, which no snapshot has.
    pub(crate) fn latest(&self, listener: Rc<LocalListener>, generation: u64) -> (Rc<LocalListener>, u64) {
        if generation == self.generation {
            return (listener, generation);
        }
        match listener.spec.address.as_ref().and_then(|address| self.listener(address)) {
            Some(now) => (Rc::clone(now), self.generation),
            None => (listener, 0),
        }
    }

    /// The listener that serves HTTP/3 at the UDP socket of an address, and the one that the address belongs to, if its
    /// `sni` leads there.
    pub(crate) fn behind(
        &self,
        address: SocketAddr,
    ) -> Option<(&Rc<LocalListener>, Option<&Rc<LocalListener>>)> {
        self.listeners.iter().find_map(|listener| {
            let doors = &listener.spec.http3.as_ref()?.doors;
            let door = doors.iter().find(|door| door.address == address)?;
            Some((listener, door.outer.and_then(|index| self.listeners.get(index))))
        })
    }

    /// The listener that serves a connection, if it still exists: the one that accepted it, or the one that it was
    /// sent to by name.
    pub(crate) fn serving(&self, handle: &ConnectionHandle) -> Option<&Rc<LocalListener>> {
        match handle.sent.get().and_then(|sent| sent.inner.as_ref()) {
            None => self.listener(handle.listener.as_ref()?),
            Some((name, _)) => {
                self.listeners.iter().find(|l| l.spec.address.is_none() && l.spec.name == *name)
            }
        }
    }

    /// What becomes of a connection when this snapshot is adopted.
    pub(super) fn standing(&self, handle: &ConnectionHandle) -> Standing {
        let Some(outer) = handle.listener.as_ref().and_then(|address| self.listener(address)) else {
            return Standing::Gone;
        };
        let Some(serving) = self.serving(handle) else { return Standing::Gone };
        if handle.is_quic {
            return match &serving.spec.http3 {
                None => Standing::Gone,
                Some(http3) if http3.policy == handle.policy && admits(outer, handle) => Standing::Kept,
                Some(_) => Standing::Outdated,
            };
        }
        let sent = handle.sent.get();
        let inner = sent.and_then(|sent| sent.inner.as_ref());
        let same = outer.spec.policy == handle.policy
            && inner.is_none_or(|(_, policy)| serving.spec.policy == *policy)
            && admits(outer, handle);
        if same { Standing::Kept } else { Standing::Outdated }
    }

    /// Whether the listener that accepted a connection sends clients of this host elsewhere than to `serving`. A client
    /// without TLS may be told on any listener where to go, but not get what is passed on.
    #[cold]
    pub(crate) fn is_misdirected(
        &self,
        handle: &ConnectionHandle,
        serving: &LocalListener,
        host: &[u8],
    ) -> bool {
        let outer = handle.listener.as_ref().and_then(|address| self.listener(address));
        let Some(Serves::Sni(names)) = outer.map(|outer| &outer.spec.serves) else { return false };
        match names.of_host(host) {
            None => false,
            Some(Destination::Upstream(_)) => true,
            Some(Destination::Listener(at)) => {
                let other = self.listeners.get(at).filter(|_| serving.spec.tls.is_some());
                other.is_some_and(|other| other.spec.name != serving.spec.name)
            }
        }
    }
}

/// Whether the listener that accepted a connection that was sent on still accepts its client.
fn admits(outer: &LocalListener, handle: &ConnectionHandle) -> bool {
    handle.sent.get().is_none_or(|sent| outer.spec.admits(sent.client.get()))
}
