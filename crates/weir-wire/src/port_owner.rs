//! Finds the process that listens on an address, so that a second start can name the pid of the first.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The pid of the process whose listening socket prevents binding `address`. Its port is the same, and so is its IP,
/// or one of the two IPs is the wildcard. Best effort: `None` when `/proc` does not show the process (another user,
/// another network namespace).
pub fn of(address: SocketAddr) -> Option<u32> {
    owner(&inodes(address))
}

/// The same for a UDP socket.
pub fn of_udp(address: SocketAddr) -> Option<u32> {
    owner(&read(&["/proc/net/udp", "/proc/net/udp6"], BOUND, address))
}

/// The process that has one of these sockets.
fn owner(inodes: &[String]) -> Option<u32> {
    if inodes.is_empty() {
        return None;
    }
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|p| p.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid| has_one(*pid, inodes))
}

/// Whether this process has such a socket. Reads the descriptors of this process only, where [`of`] reads those of
/// all.
pub fn holds(pid: u32, address: SocketAddr) -> bool {
    has_one(pid, &inodes(address))
}

/// Inodes of the listening sockets that prevent binding `address`.
fn inodes(address: SocketAddr) -> Vec<String> {
    read(&["/proc/net/tcp", "/proc/net/tcp6"], LISTEN, address)
}

fn read(paths: &[&str], state: &str, address: SocketAddr) -> Vec<String> {
    let tables = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    tables.flat_map(|table| in_state(&table, state, address)).collect()
}

/// Whether a process has a descriptor for one of these sockets.
fn has_one(pid: u32, inodes: &[String]) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| {
        let link = link.to_string_lossy();
        link.strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inode| inodes.iter().any(|i| i == inode))
    })
}

/// The state of a listening TCP socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The state of a UDP socket without a peer in `/proc/net/udp`.
const BOUND: &str = "07";

/// Inodes of sockets in a table such as `/proc/net/tcp` that have this state and conflict with `address`.
fn in_state(table: &str, wanted: &str, address: SocketAddr) -> Vec<String> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
            let held = parse(local).is_some_and(|held| collide(held, address));
            (held && *state == wanted).then(|| (*inode).to_owned())
        })
        .collect()
}

fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (ip == other || ip.is_unspecified() || other.is_unspecified())
}

/// Parses `0100007F:1F90`: each 32-bit word is in this machine's byte order.
fn parse(local: &str) -> Option<SocketAddr> {
    let (ip, port) = local.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..ip.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect();
    let ip = match words?[..] {
        [v4] => IpAddr::from(v4),
        [a, b, c, d] => {
            let bytes = [a, b, c, d].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ourselves() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = socket.local_addr().unwrap();
        let ours = Some(std::process::id());
        assert_eq!(of(here), ours);
        assert!(holds(std::process::id(), here) && !holds(1, here));
        assert_eq!(of(SocketAddr::new("0.0.0.0".parse().unwrap(), here.port())), ours);
        assert_eq!(of(SocketAddr::new("127.0.0.77".parse().unwrap(), here.port())), None);
    }

    #[test]
    fn reads_both_tables() {
        assert_eq!(parse("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        let six = "00000000000000000000000001000000:0050";
        assert_eq!(parse(six), Some("[::1]:80".parse().unwrap()));
        assert_eq!(parse("01:x"), None);
    }
}
