//! Finds the process that listens on an address, so that a second start can name the pid of the first.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The pid of the process whose listening socket prevents binding `address`. Its port is the same, and so is its IP,
/// or one of the two IPs is the wildcard. Best effort: `None` when `/proc` does not show the process (another user,
/// another network namespace).
pub fn of(address: SocketAddr) -> Option<u32> {
    owner(&inodes(address))
}

/// Every process that holds a listening socket which prevents binding `address`; empty if nobody listens. `None` if
/// `/proc` does not show the process of one of these sockets.
pub fn all(address: SocketAddr) -> Option<Vec<u32>> {
    let inodes = inodes(address);
    if inodes.is_empty() {
        return Some(Vec::new());
    }
    let mut shown = BTreeSet::new();
    let mut holders = Vec::new();
    for pid in pids() {
        let held = held_by(pid, &inodes);
        if !held.is_empty() {
            holders.push(pid);
        }
        shown.extend(held);
    }
    inodes.iter().all(|inode| shown.contains(inode)).then_some(holders)
}

/// The same as [`of`] for a UDP socket.
pub fn of_udp(address: SocketAddr) -> Option<u32> {
    owner(&read(&["/proc/net/udp", "/proc/net/udp6"], BOUND, address))
}

/// The process that has one of these sockets.
fn owner(inodes: &[String]) -> Option<u32> {
    if inodes.is_empty() {
        return None;
    }
    pids().find(|pid| !held_by(*pid, inodes).is_empty())
}

fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

/// Whether this process has such a socket. Reads the descriptors of this process only, where [`of`] reads those of
/// all.
pub fn holds(pid: u32, address: SocketAddr) -> bool {
    !held_by(pid, &inodes(address)).is_empty()
}

/// Inodes of the listening sockets that prevent binding `address`.
fn inodes(address: SocketAddr) -> Vec<String> {
    read(&["/proc/net/tcp", "/proc/net/tcp6"], LISTEN, address)
}

fn read(paths: &[&str], state: &str, address: SocketAddr) -> Vec<String> {
    let tables = paths.iter().filter_map(|path| File::open(path).ok());
    tables.flat_map(|table| in_state(BufReader::new(table), state, address)).collect()
}

/// Those of these inodes for which a process has a descriptor.
fn held_by(pid: u32, inodes: &[String]) -> Vec<String> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let socket = |link: PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    links.filter_map(socket).filter(|inode| inodes.contains(inode)).collect()
}

/// The state of a listening TCP socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The state of a UDP socket without a peer in `/proc/net/udp`.
const BOUND: &str = "07";

/// Inodes of sockets in a table such as `/proc/net/tcp` that have this state and conflict with `address`.
///
/// A machine may have 100,000 connections, but the kernel lists listening sockets before them (proc_net_tcp.rst), so
/// reading ends with the first connection.
fn in_state(table: impl BufRead, wanted: &str, address: SocketAddr) -> Vec<String> {
    let mut found = Vec::new();
    for line in table.lines().map_while(Result::ok).skip(1) {
        let mut columns = line.split_ascii_whitespace();
        let (Some(local), Some(state)) = (columns.nth(1), columns.nth(1)) else { continue };
        if wanted == LISTEN && state != LISTEN {
            break;
        }
        let is_held = state == wanted && parse(local).is_some_and(|held| collide(held, address));
        found.extend(columns.nth(5).filter(|_| is_held).map(str::to_owned));
    }
    found
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
        let nobody = SocketAddr::new("127.0.0.77".parse().unwrap(), here.port());
        assert_eq!(of(nobody), None);
        assert_eq!((all(here), all(nobody)), (Some(vec![std::process::id()]), Some(vec![])));
    }

    #[test]
    fn reading_ends_with_the_first_connection() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let row = |port: &str, state: &str, inode: u32| {
            format!(
                "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
            )
        };
        let here = "127.0.0.1:8080".parse().unwrap();
        let table = [head.to_owned(), row("1F91", LISTEN, 6), row("1F90", LISTEN, 7), row("1F90", "01", 8)];
        let after = row("1F90", LISTEN, 9);
        let text = table.concat() + &after;
        assert_eq!(in_state(text.as_bytes(), LISTEN, here), ["7"]);
        let text = [head.to_owned(), row("1F90", "01", 8), row("1F90", BOUND, 9)].concat();
        assert_eq!(in_state(text.as_bytes(), BOUND, here), ["9"]);
    }

    #[test]
    fn reads_both_tables() {
        assert_eq!(parse("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        let six = "00000000000000000000000001000000:0050";
        assert_eq!(parse(six), Some("[::1]:80".parse().unwrap()));
        assert_eq!(parse("01:x"), None);
    }
}
