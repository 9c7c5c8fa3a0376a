//! The PROXY protocol, versions 1 and 2: a proxy in front of us names its client before the first byte of HTTP or
//! TLS.
//!
//! [`read`] parses the header that a balancer in front of us sends; [`header`] makes the one that we send to an
//! endpoint. Reads never go past the header, so nothing that follows it is lost. Source: HAProxy, "The PROXY
//! protocol", versions 1 & 2, 2020.

use crate::Socket;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest version 1 line, including its CRLF.
const V1_BYTES: usize = 107;

/// Longest body of a version 2 header: addresses, and the type-length-values that balancers add.
const V2_BYTES: usize = 2048;

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The format of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client.
    pub source: SocketAddr,
    /// The address the client connected to.
    pub destination: SocketAddr,
}

/// The header for a connection on behalf of `client`. Without a client, it is one for a connection of our own
/// (`UNKNOWN`, `LOCAL`).
pub fn header(version: Version, client: Option<Ends>) -> Vec<u8> {
    let (source, destination) = match client {
        Some(Ends { source, destination }) => same_family(source, destination),
        None if version == Version::V1 => return b"PROXY UNKNOWN\r\n".to_vec(),
        None => return [&V2_SIGNATURE[..], &[0x20, 0x00, 0, 0]].concat(),
    };
    if version == Version::V1 {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let (from, to) = (source.ip(), destination.ip());
        return format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
            .into_bytes();
    }
    let mut out = V2_SIGNATURE.to_vec();
    // Version 2, command PROXY; then the family over TCP and the length of the addresses.
    out.extend_from_slice(if source.is_ipv4() { &[0x21, 0x11, 0, 12] } else { &[0x21, 0x21, 0, 36] });
    for ip in [source.ip(), destination.ip()] {
        match ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
    out
}

/// A header has room for one address family: IPv4 if both addresses are IPv4, else IPv6.
fn same_family(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let (a, b) = (plain(a), plain(b));
    let mapped = |at: SocketAddr| match at.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    };
    if a.is_ipv4() == b.is_ipv4() { (a, b) } else { (mapped(a), mapped(b)) }
}

/// Reads the header. `None` if it names no client: the balancer speaks for itself (`LOCAL`, its health checks), does
/// not know the client (`UNKNOWN`), or the client uses a Unix socket.
///
/// # Errors
/// `InvalidData` if the header is missing or malformed; else the read error.
pub async fn read(socket: &Socket) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::with_capacity(16);
    read_exactly(socket, &mut header, 8).await?;
    if header == V2_SIGNATURE[..8] {
        read_exactly(socket, &mut header, 8).await?;
        let length = usize::from(u16::from_be_bytes([at(&header, 14)?, at(&header, 15)?]));
        if header.get(..12) != Some(V2_SIGNATURE) || length > V2_BYTES {
            return Err(bad());
        }
        let mut body = Vec::with_capacity(length);
        read_exactly(socket, &mut body, length).await?;
        return version2(at(&header, 12)?, at(&header, 13)?, &body);
    }
    while !header.ends_with(b"\r\n") {
        if header.len() >= V1_BYTES {
            return Err(bad());
        }
        read_exactly(socket, &mut header, 1).await?;
    }
    version1(&header)
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no valid PROXY header")
}

fn at(bytes: &[u8], index: usize) -> io::Result<u8> {
    bytes.get(index).copied().ok_or_else(bad)
}

/// `PROXY TCP4 203.0.113.7 198.51.100.1 51234 443 CRLF`. We use only the source but parse both ends: a line in any
/// other form does not come from a balancer that speaks the protocol.
fn version1(line: &[u8]) -> io::Result<Option<SocketAddr>> {
    let text = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix("\r\n")).ok_or_else(bad)?;
    if text.contains(['\r', '\n']) {
        return Err(bad());
    }
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, destination, port, its_port] => {
            let end = |ip: &str, port| {
                let ip: IpAddr = ip.parse().map_err(|_| bad())?;
                if ip.is_ipv4() != (family == "TCP4") {
                    return Err(bad());
                }
                Ok(SocketAddr::new(ip, decimal_port(port)?))
            };
            end(destination, its_port)?;
            end(source, port).map(Some)
        }
        _ => Err(bad()),
    }
}

/// Digits only, without leading zeros.
fn decimal_port(text: &str) -> io::Result<u16> {
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_decimal).ok_or_else(bad)
}

fn version2(command: u8, family: u8, body: &[u8]) -> io::Result<Option<SocketAddr>> {
    let port = |i| Ok::<u16, io::Error>(u16::from_be_bytes([at(body, i)?, at(body, i + 1)?]));
    // Addresses by family and transport, and their least size in bytes. We do not accept UDP.
    let needed = match (command, family) {
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => 216,
        _ => return Err(bad()),
    };
    if body.len() < needed {
        return Err(bad());
    }
    match (command, family) {
        (0x21, 0x11) => {
            let ip: [u8; 4] = body.get(..4).and_then(|b| b.try_into().ok()).ok_or_else(bad)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port(8)?)))
        }
        (0x21, 0x21) => {
            let ip: [u8; 16] = body.get(..16).and_then(|b| b.try_into().ok()).ok_or_else(bad)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32)?)))
        }
        _ => Ok(None),
    }
}

/// Reads exactly `count` more bytes.
async fn read_exactly(socket: &Socket, into: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let mut left = count;
    while left > 0 {
        let read = poll_fn(|cx| socket.poll_read_at_most(cx, into, left)).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (line, expected) in [
            ("PROXY TCP4 203.0.113.7 198.51.100.1 51234 443\r\n", Some("203.0.113.7:51234")),
            ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", Some("[2001:db8::1]:1")),
        ] {
            assert_eq!(version1(line.as_bytes()).unwrap(), expected.map(|e| e.parse().unwrap()), "{line}");
        }
        assert_eq!(version1(b"PROXY UNKNOWN\r\n").unwrap(), None);
        for bad in [
            "GET / HTTP/1.1\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n",
            "PROXY TCP4 1.2.3.4 garbage 1 2\r\n",
            "PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 1 +2\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 1 x\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\r\n",
            "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n\r\n",
            "PROXY UNKNOWN a\rb\r\n",
            "PROXY UNKNOWN",
        ] {
            assert!(version1(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (source, destination, line, told) in [
            (
                "203.0.113.7:51234",
                "198.51.100.1:443",
                "PROXY TCP4 203.0.113.7 198.51.100.1 51234 443\r\n",
                "203.0.113.7:51234",
            ),
            ("[2001:db8::1]:1", "[::1]:2", "PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1"),
            // A dual-stack socket reports IPv4 addresses this way.
            ("[::ffff:192.0.2.1]:1", "192.0.2.2:2", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "192.0.2.1:1"),
            (
                "192.0.2.1:1",
                "[2001:db8::1]:2",
                "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n",
                "[::ffff:192.0.2.1]:1",
            ),
        ] {
            let ends = Some(Ends { source: at(source), destination: at(destination) });
            let first = header(Version::V1, ends);
            assert_eq!(String::from_utf8_lossy(&first), line);
            assert_eq!(version1(&first).unwrap(), Some(at(told)), "{line}");
            let second = header(Version::V2, ends);
            let length = usize::from(u16::from_be_bytes([second[14], second[15]]));
            assert_eq!((&second[..12], second.len()), (&V2_SIGNATURE[..], 16 + length));
            assert_eq!(version2(second[12], second[13], &second[16..]).unwrap(), Some(at(told)), "{line}");
        }
        assert_eq!(version1(&header(Version::V1, None)).unwrap(), None);
        let local = header(Version::V2, None);
        assert_eq!(version2(local[12], local[13], &local[16..]).unwrap(), None);
    }

    #[test]
    fn binary() {
        let body = [203, 0, 113, 7, 198, 51, 100, 1, 0xc8, 0x22, 1, 187];
        assert_eq!(version2(0x21, 0x11, &body).unwrap(), Some("203.0.113.7:51234".parse().unwrap()));
        assert_eq!(version2(0x20, 0x00, &[]).unwrap(), None);
        assert!(version2(0x21, 0x11, &body[..5]).is_err());
        assert!(version2(0x31, 0x11, &body).is_err());
        assert!(version2(0x21, 0x11, &body[..10]).is_err(), "an address without its ports");
        for family in [0x10, 0x12, 0x22, 0x32, 0x13, 0x41, 0xff] {
            assert!(version2(0x21, family, &[0; 216]).is_err(), "{family:#x}");
        }
        assert_eq!(version2(0x21, 0x31, &[0; 216]).unwrap(), None);
        assert!(version2(0x21, 0x31, &[0; 215]).is_err());
        assert_eq!(version2(0x21, 0x00, &[]).unwrap(), None);
    }
}
