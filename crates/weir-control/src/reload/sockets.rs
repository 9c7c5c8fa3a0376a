//! Listening sockets: opened before a change takes effect, kept by later ones, passed on in an upgrade.

use super::{BoundListener, Control, Failed, OpenSockets};
use crate::crew::{Grown, add_udp};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_config::schema;
use weir_engine::handover::Handover;
use weir_engine::snapshot::Snapshot;
use weir_telemetry::log;
use weir_wire::Context;
use weir_wire::listen::{self, Address, Beside, BoundSocket};

impl Control {
    /// The real address of a listener's sockets. If they are not open yet, gives each core its part of them: of those
    /// that were inherited, or of those that `bind` makes. Says which group of UDP sockets has grown.
    pub(super) fn opened(
        &mut self,
        name: &str,
        asked: &Address,
        bind: impl FnOnce() -> io::Result<(Address, Vec<BoundSocket>)>,
        sockets: &mut [Vec<(Address, BoundSocket)>],
    ) -> Result<(Address, Option<Grown>), Context> {
        let same = |b: &&BoundListener| b.asked == *asked && (!asked.is_any_port() || b.name == name);
        if let Some(open) = self.bound.iter().find(same) {
            return Ok((open.actual.clone(), None));
        }
        let wrong = |e: io::Error| Context::new(format!("listeners.{name}"), e);
        let (address, mut opened) =
            self.inherited.take_listener(name, asked).map_or_else(bind, Ok).map_err(wrong)?;
        let grown = match address {
            // The process before may have had fewer cores.
            Address::Udp(at) => add_udp(at, &mut opened, sockets.len()),
            _ => None,
        };
        let spread = listen::spread(opened, sockets.len()).map_err(wrong)?;
        for (core, opened) in sockets.iter_mut().zip(spread) {
            core.extend(opened.into_iter().map(|socket| (address.clone(), socket)));
        }
        Ok((address, grown))
    }

    /// Binds the UDP sockets of HTTP/3, and tells the snapshot their real ports. Returns the groups that have grown.
    pub(super) fn prepare_udp(
        &mut self,
        snapshot: &mut Snapshot,
        beside: Beside,
        bound: &mut Vec<BoundListener>,
        sockets: &mut [Vec<(Address, BoundSocket)>],
        open: OpenSockets<'_>,
    ) -> Result<Vec<Grown>, Failed> {
        let (cores, mut all_grown) = (sockets.len(), Vec::new());
        for listener in &mut snapshot.listeners {
            let Some(listener) = Arc::get_mut(listener) else { continue }; // nobody else has the snapshot yet
            let name = listener.name.to_string();
            let Some(http3) = listener.http3.as_deref_mut() else { continue };
            for door in &mut http3.doors {
                let asked = Address::Udp(door.address);
                // The TCP socket of the same address has got its port.
                let tcp = bound.iter().find(|b| {
                    b.asked == Address::Tcp(door.address)
                        && (!asked.is_any_port() || door.outer.is_some() || b.name == name)
                });
                let wanted = match tcp.map(|tcp| &tcp.actual) {
                    Some(Address::Tcp(actual)) => *actual,
                    _ => door.address,
                };
                // Where HTTP/3 was on before, connections may still hold sockets, to which the kernel goes on to give
                // clients: those must be among the ones that are read.
                let bind = || {
                    let address = Address::Udp(wanted);
                    let kept: Vec<_> = open().into_iter().filter(|(at, _)| *at == address).collect();
                    match kept.is_empty() {
                        true => bind_udp(wanted, cores, beside),
                        false => Ok((address, kept.into_iter().map(|(_, socket)| socket).collect())),
                    }
                };
                self.inherited.claim_udp(wanted, &name, &asked);
                let (actual, grown) = self.opened(&name, &asked, bind, sockets)?;
                all_grown.extend(grown);
                if let Address::Udp(actual) = actual {
                    door.address = actual;
                    if door.outer.is_none() {
                        listener.address = Some(Address::Tcp(actual));
                    }
                }
                bound.push(BoundListener { name: name.clone(), asked, actual });
            }
            listener.bound();
        }
        // Nobody serves there, but connections of the process before may still have these.
        for (address, left) in self.inherited.take_udp() {
            for (core, its) in sockets.iter_mut().zip(listen::spread(left, cores)?) {
                core.extend(its.into_iter().map(|socket| (Address::Udp(address), socket)));
            }
        }
        Ok(all_grown)
    }

    /// The hand-over to a successor. `sockets` are those of all cores, by address.
    pub(crate) fn hand_over(&self, sockets: Vec<(Address, BoundSocket)>) -> Handover {
        let mut handover = Handover::new(self.carry.save());
        let mut by_address: HashMap<Address, Vec<BoundSocket>> = HashMap::new();
        for (address, socket) in sockets {
            by_address.entry(address).or_default().push(socket);
        }
        for bound in &self.bound {
            if let Some(sockets) = by_address.remove(&bound.actual) {
                handover.add_listener(&bound.name, &bound.asked, bound.actual.clone(), sockets);
            }
        }
        // No listener has these, but the kernel gives clients to them for as long as they are open.
        for (address, sockets) in by_address {
            if matches!(address, Address::Udp(_)) {
                handover.add_unowned(address, sockets);
            }
        }
        handover
    }

    /// The admin listener's sockets, if they were open when this process began. Closes those that nobody took.
    pub(crate) fn take_admin_sockets(&mut self) -> Option<(Address, Vec<BoundSocket>)> {
        let mut inherited = std::mem::take(&mut self.inherited);
        let taken = match &self.config.admin.address {
            schema::AdminAddress::At(schema::ListenAddress::Tcp(asked)) => {
                inherited.take_admin(&Address::Tcp(*asked))
            }
            schema::AdminAddress::At(schema::ListenAddress::Unix(path)) => {
                inherited.take_admin(&Address::Unix(path.clone()))
            }
            schema::AdminAddress::Off => None,
        };
        for unused in inherited.left() {
            log::info("socket not taken over: no listener has this address any more", &[("address", unused)]);
        }
        taken
    }

    /// Another process serves now. It keeps what it was given when this one ends, and owns what only one process can
    /// have.
    pub(crate) fn handed_over(&mut self) {
        self.handed_over = true;
        self.gives_way = false;
        self.carry.stored().iter().for_each(|(_, stored)| stored.release());
    }
}

/// Binds UDP sockets for QUIC.
fn bind_udp(asked: SocketAddr, cores: usize, beside: Beside) -> io::Result<(Address, Vec<BoundSocket>)> {
    let group = weir_quic::bind(asked, cores, beside)?;
    if !group.is_steered {
        let fields: log::Fields<'_> = &[("address", &group.address)];
        log::warn("the kernel does not steer QUIC by connection ids: workers pass datagrams on", fields);
    }
    let sockets = group.sockets.into_iter().map(BoundSocket::any).collect();
    Ok((Address::Udp(group.address), sockets))
}
