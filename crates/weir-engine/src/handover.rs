//! The sockets and state that a gateway hands to its successor, or that a gateway starts with.
//!
//! ```text
//!   payload: │ length of the header (u32) │ header, JSON: `Header` │ bytes of the first state │ of the second │ …
//! ```
//! Sockets matter more than state. If the other program is older or newer and its header cannot be read, only the
//! state is lost: sockets describe themselves.

use crate::homes::Homes;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use weir_telemetry::log;
use weir_wire::handover;
use weir_wire::listen::{Address, BoundSocket};

/// The header's format. With any other number the header is ignored.
const FORMAT: u32 = 1;

/// What a gateway takes over from another process when it starts.
///
/// Either everything that the previous process had, or the sockets that systemd opened.
#[derive(Debug, Default)]
pub struct Inheritance {
    sockets: Vec<Inherited>,
    state: Vec<State>,
    /// The link to the previous process.
    relay: Option<OwnedFd>,
    /// Whether it comes from another gateway, which ends once this one runs.
    pub of_process: bool,
    /// Whether that process wants to know what became of its state.
    asks: bool,
}

/// What a gateway gives to its successor. Made by `Gateway::hand_over`. The default is empty, and then the successor
/// binds its addresses itself.
#[derive(Debug, Default)]
pub struct Handover {
    sockets: Vec<Inherited>,
    state: Vec<State>,
}

/// The sockets of one address.
#[derive(Debug)]
struct Inherited {
    owner: Owner,
    /// The address as written in a config. Differs from `actual` if the port is 0.
    asked: String,
    actual: Address,
    sockets: Vec<BoundSocket>,
}

/// Who the sockets belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Admin,
    /// Anyone who asks for the address.
    Any,
    Listener(String),
    /// A link by which both processes pass on datagrams of QUIC connections.
    Relay,
}

/// A piece of state worth keeping: ticket keys, counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its kind, which says how to read it.
    pub(crate) kind: Kind,
    /// Its owner's key, which a new process computes from the same config.
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
}

/// Kinds of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// What the responses of a listener say in Alt-Svc, by its name.
    AltSvc,
    /// State of a filter, by [`Build::keep`](weir_filter::filter::Build::keep)'s key.
    Filter,
    /// Why endpoints are out of rotation.
    Health,
    /// The keys and homes of QUIC connections.
    Quic,
    /// Keys of session tickets, by TLS policy.
    Tickets,
    /// From a later version; skipped.
    #[serde(other)]
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    /// The sender reads the successor's list of forgotten state. Earlier versions take such a list for a failure.
    #[serde(default)]
    asks: bool,
    sockets: Vec<SocketsHeader>,
    state: Vec<StateHeader>,
}

#[derive(Serialize, Deserialize)]
struct SocketsHeader {
    owner: Owner,
    asked: String,
    count: usize,
}

#[derive(Serialize, Deserialize)]
struct StateHeader {
    kind: Kind,
    key: String,
    bytes: usize,
}

// === impl Inheritance ===

impl Inheritance {
    /// Receives what the previous process hands over. Waits at most the stream's read timeout.
    ///
    /// # Errors
    /// If no sockets arrive. Unreadable state is no error, but is logged.
    pub fn receive(from: &UnixStream) -> io::Result<Self> {
        let (payload, descriptors) = handover::receive(from)?;
        let Some((header, states)) = Header::read(&payload, descriptors.len()) else {
            log::warn(
                "the previous process is another version: only its sockets are taken over, without ticket keys and counters",
                &[],
            );
            return Ok(Self { of_process: true, ..Self::of_sockets(descriptors)? });
        };
        let mut descriptors = descriptors.into_iter();
        let mut relay = None;
        let mut sockets = Vec::with_capacity(header.sockets.len());
        for SocketsHeader { owner, asked, count } in header.sockets {
            if owner == Owner::Relay {
                relay = descriptors.by_ref().take(count).last();
                continue;
            }
            let opened = descriptors.by_ref().take(count).map(BoundSocket::of);
            let opened: Vec<_> = opened.collect::<io::Result<_>>()?;
            let Some(actual) = opened.first().map(|(_, address)| address.clone()) else { continue };
            let opened = opened.into_iter().map(|(socket, _)| socket).collect();
            sockets.push(Inherited { owner, asked, actual, sockets: opened });
        }
        let mut states = states;
        let mut state = Vec::with_capacity(header.state.len());
        for StateHeader { kind, key, bytes } in header.state {
            let Some((its, rest)) = states.split_at_checked(bytes) else { break };
            state.push(State { kind, key, bytes: its.to_vec() });
            states = rest;
        }
        Ok(Self { sockets, state, relay, of_process: true, asks: header.asks })
    }

    /// Takes sockets that carry no description but their own: those that systemd opened (sd_listen_fds(3)).
    ///
    /// # Errors
    /// If one is not a socket, or neither TCP nor a Unix socket with a path.
    pub fn of_sockets(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut sockets: Vec<Inherited> = Vec::new();
        for descriptor in descriptors {
            let (socket, actual) = BoundSocket::of(descriptor)?;
            match sockets.iter_mut().find(|known| known.actual == actual) {
                Some(known) => known.sockets.push(socket),
                None => sockets.push(Inherited {
                    owner: Owner::Any,
                    asked: actual.to_string(),
                    actual,
                    sockets: vec![socket],
                }),
            }
        }
        Ok(Self { sockets, of_process: false, ..Self::default() })
    }

    /// Whether the previous process wants to know which of its state is forgotten.
    pub const fn asks(&self) -> bool {
        self.asks
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.state.is_empty()
    }

    /// Takes the admin listener's sockets and their address.
    pub fn take_admin(&mut self, asked: &Address) -> Option<(Address, Vec<BoundSocket>)> {
        self.take(&Owner::Admin, asked)
    }

    /// Takes a listener's sockets and their address.
    pub fn take_listener(&mut self, name: &str, asked: &Address) -> Option<(Address, Vec<BoundSocket>)> {
        self.take(&Owner::Listener(name.to_owned()), asked)
    }

    fn take(&mut self, owner: &Owner, asked: &Address) -> Option<(Address, Vec<BoundSocket>)> {
        let text = asked.to_string();
        // A listener may have been renamed. But if the system chose the ports, only the name says which is whose.
        let fits = |i: &Inherited| {
            i.asked == text
                && (i.owner == *owner
                    || !asked.is_any_port() && (i.owner == Owner::Any || is_listener(&i.owner, owner)))
        };
        let at = self.sockets.iter().position(fits)?;
        let found = self.sockets.swap_remove(at);
        Some((found.actual, found.sockets))
    }

    /// Gives the UDP sockets that no listener had in the process before to one that serves at their address now.
    pub fn claim_udp(&mut self, actual: SocketAddr, name: &str, asked: &Address) {
        for inherited in &mut self.sockets {
            if inherited.owner == Owner::Any && inherited.actual == Address::Udp(actual) {
                (inherited.owner, inherited.asked) = (Owner::Listener(name.to_owned()), asked.to_string());
            }
        }
    }

    /// Takes the UDP sockets that nobody took.
    pub fn take_udp(&mut self) -> Vec<(SocketAddr, Vec<BoundSocket>)> {
        let udp = |inherited: &mut Inherited| matches!(inherited.actual, Address::Udp(_));
        let taken = self.sockets.extract_if(.., udp);
        let address = |inherited: Inherited| match inherited.actual {
            Address::Udp(address) => Some((address, inherited.sockets)),
            _ => None,
        };
        taken.filter_map(address).collect()
    }

    /// Takes the state.
    pub fn take_state(&mut self) -> Vec<State> {
        std::mem::take(&mut self.state)
    }

    /// Takes the homes of QUIC connections, which continue those of the previous process if there is one.
    ///
    /// # Errors
    /// When the system has no randomness, or no thread for the link.
    pub fn take_homes(&mut self) -> io::Result<Arc<Homes>> {
        let at = self.state.iter().position(|state| state.kind == Kind::Quic);
        let kept = at.and_then(|at| Homes::kept(&self.state.swap_remove(at).bytes));
        let homes = Arc::new(kept.map_or_else(Homes::new, Ok)?);
        if let Some(relay) = self.relay.take() {
            homes.follow(relay)?;
        }
        Ok(homes)
    }

    /// The addresses of sockets that nobody took.
    pub fn left(&self) -> impl Iterator<Item = &Address> {
        self.sockets.iter().map(|left| &left.actual)
    }
}

/// Whether both are listeners.
fn is_listener(one: &Owner, other: &Owner) -> bool {
    matches!((one, other), (Owner::Listener(_), Owner::Listener(_)))
}

// === impl Handover ===

impl Handover {
    /// A hand-over with this state and no sockets yet.
    pub const fn new(state: Vec<State>) -> Self {
        Self { sockets: Vec::new(), state }
    }

    /// Adds the sockets of a listener.
    pub fn add_listener(&mut self, name: &str, asked: &Address, actual: Address, sockets: Vec<BoundSocket>) {
        let owner = Owner::Listener(name.to_owned());
        self.sockets.push(Inherited { owner, asked: asked.to_string(), actual, sockets });
    }

    /// Adds sockets that no listener has.
    pub fn add_unowned(&mut self, actual: Address, sockets: Vec<BoundSocket>) {
        self.sockets.push(Inherited { owner: Owner::Any, asked: actual.to_string(), actual, sockets });
    }

    /// Adds the homes of QUIC connections and, if there are UDP sockets, a link by which both processes pass on
    /// datagrams. Call it after the listeners have been added.
    ///
    /// 0.1 refuses to start if it receives the link. It can take over from a Weir without HTTP/3, which sends no link.
    ///
    /// # Errors
    /// When no socket or thread is left for the link.
    pub fn add_homes(&mut self, homes: &Arc<Homes>) -> io::Result<()> {
        self.state.push(State { kind: Kind::Quic, key: String::new(), bytes: homes.keep() });
        if !self.sockets.iter().any(|inherited| matches!(inherited.actual, Address::Udp(_))) {
            return Ok(());
        }
        let link = homes.precede()?;
        let (owner, asked) = (Owner::Relay, String::new());
        let actual = Address::Unix(PathBuf::new());
        self.sockets.push(Inherited { owner, asked, actual, sockets: vec![link] });
        Ok(())
    }

    /// Adds the socket of the admin listener.
    pub fn add_admin(&mut self, asked: &Address, actual: Address, socket: BoundSocket) {
        self.sockets.push(Inherited {
            owner: Owner::Admin,
            asked: asked.to_string(),
            actual,
            sockets: vec![socket],
        });
    }

    /// A copy with its own descriptors for the same sockets.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(Inherited::try_clone).collect::<io::Result<_>>()?;
        Ok(Self { sockets, state: self.state.clone() })
    }

    /// Sends everything. Waits at most the stream's write timeout.
    ///
    /// # Errors
    /// The system's error.
    pub fn send(mut self, to: &UnixStream) -> io::Result<()> {
        self.shed();
        let header = Header {
            format: FORMAT,
            asks: true,
            sockets: self.sockets.iter().map(Inherited::header).collect(),
            state: self.state.iter().map(State::header).collect(),
        };
        let header = serde_json::to_vec(&header)?;
        let length = u32::try_from(header.len()).map_err(io::Error::other)?;
        let mut payload = length.to_be_bytes().to_vec();
        payload.extend_from_slice(&header);
        self.state.iter().for_each(|state| payload.extend_from_slice(&state.bytes));
        let sockets: Vec<BoundSocket> = self.sockets.into_iter().flat_map(|i| i.sockets).collect();
        handover::send(to, &payload, &sockets)
    }

    /// Drops the largest states until the rest fits.
    fn shed(&mut self) {
        const HEADER_BYTES: usize = 4 << 20;
        let limit = handover::PAYLOAD_BYTES - HEADER_BYTES;
        self.state.sort_by_key(|state| state.bytes.len());
        while self.state.iter().map(|s| s.bytes.len() + s.key.len()).sum::<usize>() > limit {
            let Some(largest) = self.state.pop() else { return };
            let (bytes, whose) = (largest.bytes.len(), largest.key.replace('\0', " "));
            log::warn("too large to hand over: it starts empty", &[("bytes", &bytes), ("of", &whose)]);
        }
    }
}

impl Inherited {
    fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(BoundSocket::try_clone).collect::<io::Result<_>>()?;
        let (owner, asked) = (self.owner.clone(), self.asked.clone());
        Ok(Self { owner, asked, actual: self.actual.clone(), sockets })
    }

    fn header(&self) -> SocketsHeader {
        SocketsHeader { owner: self.owner.clone(), asked: self.asked.clone(), count: self.sockets.len() }
    }
}

impl State {
    fn header(&self) -> StateHeader {
        StateHeader { kind: self.kind, key: self.key.clone(), bytes: self.bytes.len() }
    }
}

impl Header {
    /// Splits off the header and the bytes after it. `None` if the format is foreign or does not match the sockets
    /// received.
    fn read(payload: &[u8], sockets: usize) -> Option<(Self, &[u8])> {
        let (length, rest) = payload.split_first_chunk()?;
        let (header, states) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let header: Self = serde_json::from_slice(header).ok()?;
        let count = header.sockets.iter().try_fold(0usize, |sum, s| sum.checked_add(s.count))?;
        (header.format == FORMAT && count == sockets).then_some((header, states))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::listen::{Beside, bind};

    fn any() -> Address {
        Address::Tcp("127.0.0.1:0".parse().unwrap())
    }

    fn sent(handover: Handover) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        handover.send(&ours).unwrap();
        theirs
    }

    fn with_two_listeners() -> (Handover, Address, Address) {
        let (web, admin) =
            (bind(&any(), 2, Beside::Nobody).unwrap(), bind(&any(), 1, Beside::Nobody).unwrap());
        let tickets = State { kind: Kind::Tickets, key: "k".into(), bytes: b"keys".to_vec() };
        let filter = State { kind: Kind::Filter, key: "a\0b".into(), bytes: b"".to_vec() };
        let mut handover = Handover::new(vec![tickets, filter]);
        let addresses = (web.address.clone(), admin.address.clone());
        handover.add_listener("web", &any(), web.address, web.sockets);
        handover.add_admin(&any(), admin.address, admin.sockets.into_iter().next().unwrap());
        (handover, addresses.0, addresses.1)
    }

    /// 0.1 expects every socket that it receives to be a listener.
    #[test]
    fn without_udp_every_socket_is_one_that_0_1_knows() {
        let (mut given, ..) = with_two_listeners();
        given.add_homes(&Arc::new(Homes::new().unwrap())).unwrap();
        let (payload, descriptors) = handover::receive(&sent(given)).unwrap();
        let (header, _) = Header::read(&payload, descriptors.len()).unwrap();
        assert!(header.sockets.iter().all(|sockets| sockets.owner != Owner::Relay));
        assert!(Inheritance::of_sockets(descriptors).is_ok());
    }

    #[test]
    fn everything_arrives_and_goes_to_its_owner() {
        let (handover, web, admin) = with_two_listeners();
        let mut got = Inheritance::receive(&sent(handover)).unwrap();
        let state = got.take_state();
        assert!(state.contains(&State { kind: Kind::Tickets, key: "k".into(), bytes: b"keys".to_vec() }));
        assert_eq!(state.len(), 2);
        assert!(got.take_listener("other", &any()).is_none(), "whose port 0 it is, its name tells");
        let (address, sockets) = got.take_listener("web", &any()).unwrap();
        assert_eq!((address, sockets.len()), (web, 2));
        assert_eq!(got.left().collect::<Vec<_>>(), [&admin]);
        assert_eq!(got.take_admin(&any()).unwrap().0, admin);
        assert!(got.is_empty());
    }

    #[test]
    fn of_another_version_only_the_sockets_are_taken() {
        let bound = bind(&any(), 2, Beside::Nobody).unwrap();
        for payload in
            [&b"\0\0\0\x02{}"[..], b"", b"\xff\xff\xff\xff", br#"....{"format":2,"sockets":[],"state":[]}"#]
        {
            let (ours, theirs) = UnixStream::pair().unwrap();
            handover::send(&ours, payload, &bound.sockets).unwrap();
            let mut got = Inheritance::receive(&theirs).unwrap();
            assert!(got.take_state().is_empty());
            let (address, sockets) = got.take_listener("web", &bound.address).unwrap();
            assert_eq!((&address, sockets.len()), (&bound.address, 2));
        }
    }

    #[test]
    fn what_is_too_large_is_left_out_and_the_rest_travels() {
        let of = |key: &str, bytes| State { kind: Kind::Filter, key: key.into(), bytes: vec![0; bytes] };
        let mut handover = Handover::new(vec![of("huge", handover::PAYLOAD_BYTES), of("small", 10)]);
        handover.shed();
        assert_eq!(handover.state, [of("small", 10)]);
    }
}
