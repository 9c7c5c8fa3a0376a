//! UDP sockets: one per core and address.

use crate::steer::steer;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use weir_wire::listen::Beside;
use weir_wire::port_owner;

/// Bytes that the kernel may hold for one socket in each direction. The usual 208 KiB lose datagrams in a burst: on a
/// link of 1 Gbit/s they last for less than 2 ms. `net.core.rmem_max` and `wmem_max` cap it silently.
const BUFFER: usize = 4 * 1024 * 1024;

/// A bound address that nobody serves yet.
#[derive(Debug)]
pub struct Group {
    /// The bound address, with the real port if port 0 was requested.
    pub address: SocketAddr,
    /// One socket per core, in the order of the cores.
    pub sockets: Vec<UdpSocket>,
    /// Whether the kernel steers datagrams by their connection ids. If not, cores must hand them on.
    pub is_steered: bool,
}

/// Binds an address for `cores` cores.
///
/// Like [`weir_wire::listen::bind`], it first binds without SO_REUSEPORT, which fails while a process has the address.
///
/// # Errors
/// The system's error, with the pid of the owner if the address is taken.
pub fn bind(asked: SocketAddr, cores: usize, beside: Beside) -> io::Result<Group> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("cannot open UDP {asked}: {e}"));
    if asked.port() != 0
        && beside == Beside::Nobody
        && let Err(e) = open(asked).and_then(|probe| probe.bind(&asked.into()))
    {
        return Err(match (e.kind(), port_owner::of_udp(asked)) {
            (io::ErrorKind::AddrInUse, Some(pid)) => {
                let why = if runs_our_program(pid) { DRAINS } else { "" };
                io::Error::new(e.kind(), format!("UDP {asked} is taken by process {pid}{why}"))
            }
            _ => failed(e),
        });
    }
    let mut address = asked;
    let mut sockets = Vec::with_capacity(cores);
    for _ in 0..cores.max(1) {
        let socket = open(address).map_err(failed)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into()).map_err(failed)?;
        let socket: UdpSocket = socket.into();
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    let is_steered = sockets.len() == 1 || sockets.first().is_some_and(|first| steer(first, cores).is_ok());
    Ok(Group { address, sockets, is_steered })
}

/// What to do about a gateway that has the address. Its TCP port is free as soon as it drains.
const DRAINS: &str = ". If that one drains, it keeps the port until its last QUIC connection has ended: wait for its \
                      end, or replace a running gateway with `weir upgrade`";

/// Whether a process runs the same program as this one.
fn runs_our_program(pid: u32) -> bool {
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let own = name("self");
    own.is_some() && own == name(&pid.to_string())
}

/// Binds more sockets to an address, of which `have` are bound already, so that there are `want`. `first` is one of
/// those. The kernel gives the new sockets nothing before [`steer`]: nobody reads them yet.
///
/// # Errors
/// The system's error. Sockets that were bound before stay.
pub fn bind_more(
    address: SocketAddr,
    first: &impl AsFd,
    have: usize,
    want: usize,
) -> io::Result<Vec<UdpSocket>> {
    // A single socket has no program yet, without which the kernel would deal datagrams out to all. Where the system
    // allows no programs, it does.
    let _ = steer(first, have);
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("cannot open UDP {address}: {e}"));
    let bind = |_| {
        let socket = open(address).map_err(failed)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into()).map_err(failed)?;
        Ok(socket.into())
    };
    (have..want).map(bind).collect()
}

/// Binds an address that is shared with nobody. With SO_REUSEPORT, the kernel might choose the port of another client.
pub(crate) fn bind_alone(address: SocketAddr) -> io::Result<UdpSocket> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("cannot open UDP {address}: {e}"));
    let socket = open(address).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    Ok(socket.into())
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?; // as the TCP socket of the same address
    }
    // The kernel takes what it allows and reports no error.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_reach_the_core_that_their_id_names() {
        let group = bind("127.0.0.1:0".parse().unwrap(), 4, Beside::Nobody).unwrap();
        assert!(group.is_steered);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let short = |core: u8| [&[0x40, core], &[0; 30][..]].concat();
        let long = |core: u8| [&[0xc0, 0, 0, 0, 1, 12, core], &[0; 30][..]].concat();
        for core in (0..4).chain([7, 255]) {
            for datagram in [short(core), long(core)] {
                client.send_to(&datagram, group.address).unwrap();
                let owner = &group.sockets[usize::from(core) % 4];
                owner.set_nonblocking(false).unwrap();
                owner.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
                let mut seen = [0; 64];
                let count = owner.recv(&mut seen).unwrap();
                assert_eq!(&seen[..count], datagram);
            }
        }
    }

    #[test]
    fn a_taken_address_names_its_owner() {
        let group = bind("127.0.0.1:0".parse().unwrap(), 2, Beside::Nobody).unwrap();
        let error = bind(group.address, 1, Beside::Nobody).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.to_string().ends_with(DRAINS), "this program is our program: {error}");
        assert!(bind(group.address, 1, Beside::Ourselves).is_ok());
    }

    #[test]
    fn new_sockets_of_a_group_get_nothing_before_it_is_steered_to_them() {
        for have in [1, 2] {
            let group = bind("127.0.0.1:0".parse().unwrap(), have, Beside::Nobody).unwrap();
            let more = bind_more(group.address, &group.sockets[0], have, 3).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let all: Vec<_> = group.sockets.iter().chain(&more).collect();
            let arrives = |core: u8, owner: usize| {
                client.send_to(&[&[0x40, core], &[0; 30][..]].concat(), group.address).unwrap();
                let owner = all[owner];
                owner.set_nonblocking(false).unwrap();
                owner.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
                assert_eq!(owner.recv(&mut [0; 64]).unwrap(), 32);
            };
            (0..6_u8).for_each(|core| arrives(core, usize::from(core) % have));
            steer(&more[0], 3).unwrap();
            (0..6_u8).for_each(|core| arrives(core, usize::from(core) % 3));
        }
    }
}
