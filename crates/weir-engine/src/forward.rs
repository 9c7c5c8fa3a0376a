//! What the next hop learns about the client, and the request head as it is sent upstream.
//!
//! Only a trusted proxy's forwarding headers count. From anyone else they are dropped before any filter sees them
//! (RFC 7239 §8.1: such headers are a client's claim).

use crate::snapshot::Snapshot;
use std::cell::{OnceCell, RefCell};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use weir_h1::{BodyKind, Known, RequestHead, is_token, split_unquoted};
use weir_upstream::upstream::{Endpoint, HostPolicy, Owner};
use weir_wire::Peer;
use weir_wire::proxy_protocol::Ends;
use weir_wire::relay::Framing;

/// How many addresses of an X-Forwarded-For are searched for the client's.
const MAX_HOPS: usize = 64;

/// What the next hop learns about one client connection. Written once for all requests with the same host, which is
/// nearly always all of them.
#[derive(Debug)]
pub(crate) struct Forwarding {
    lines: RefCell<Lines>,
    /// What upstreams with `proxy_protocol` are sent, set at the first use of one.
    owner: OnceCell<Option<Rc<Owner>>>,
    scheme: &'static str,
    /// The balancer in front sent a PROXY header that names no client. Then the client's own claims count for
    /// nothing.
    is_unnamed: bool,
    /// The name that the client asked for in its TLS handshake.
    server_name: Option<Rc<str>>,
}

/// The lines of the last request: `x-forwarded-for: ADDRESS CRLF x-forwarded-proto: SCHEME CRLF forwarded:
/// for=ADDRESS;proto=SCHEME;host=`, which stays, followed by `HOST CRLF x-forwarded-host: HOST CRLF`. They pass to the
/// next client of the same task, if it has the same address.
#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    /// The length of the address.
    address: usize,
    /// Where `forwarded` begins, and where its host begins.
    forwarded: Range<usize>,
    /// Where the second host begins.
    host: usize,
}

/// Longest host whose lines a connection keeps: a name has at most 253 bytes (RFC 1035 §2.3.4), a port adds six.
const HOST_KEPT: usize = 260;

/// Length of a host that hardly any exceeds.
const HOST_USUAL: usize = 60;

/// Length of the lines without address and host, which each stand in them twice.
const LINES_ALONE: usize = 108;

const FOR: &[u8] = b"x-forwarded-for: ";

impl Forwarding {
    /// The name that the client asked for in its TLS handshake.
    pub(crate) const fn server_name(&self) -> Option<&Rc<str>> {
        self.server_name.as_ref()
    }

    /// `named` is false if a PROXY header named no client.
    pub(crate) fn new(peer: IpAddr, tls: bool, named: bool, server_name: Option<&str>) -> Self {
        let (peer, scheme) = (peer.to_canonical(), scheme_of(tls));
        // The size is known, and `format!` cost a tenth of a short connection. The host is mostly the name of the
        // handshake.
        let (address, host) =
            (if peer.is_ipv4() { 15 } else { 39 }, server_name.map_or(HOST_USUAL, str::len));
        let lines = Lines::new(peer, scheme, Vec::with_capacity(LINES_ALONE + 2 * (address + host)));
        let server_name = server_name.map(Rc::from);
        Self { lines: RefCell::new(lines), owner: OnceCell::new(), scheme, is_unnamed: !named, server_name }
    }

    /// What the next hop learns about the next client, in the memory of this one. The lines are written again only if
    /// the address differs from that of the previous client (`before`), or the scheme does: behind a load balancer, all
    /// clients have its address. An equal name of the handshake stays, too.
    pub(crate) fn renew(
        this: &mut Rc<Self>,
        before: IpAddr,
        peer: IpAddr,
        tls: bool,
        named: bool,
        server_name: Option<&str>,
    ) {
        let Some(old) = Rc::get_mut(this) else {
            *this = Rc::new(Self::new(peer, tls, named, server_name)); // something still uses the old one
            return;
        };
        let scheme = scheme_of(tls);
        let mut lines = std::mem::take(old.lines.get_mut());
        if before != peer || old.scheme != scheme {
            lines = Lines::new(peer.to_canonical(), scheme, lines.text);
        }
        debug_assert_eq!(lines.address(), peer.to_canonical().to_string().as_bytes());
        let known = old.server_name.take().filter(|known| Some(&**known) == server_name);
        let server_name = known.or_else(|| server_name.map(Rc::from));
        let lines = RefCell::new(lines);
        *old = Self { lines, owner: OnceCell::new(), scheme, is_unnamed: !named, server_name };
    }

    /// Ends the closed connection's ownership of upstream connections, so the pools close them. False if something
    /// still uses this.
    pub(crate) fn end(this: &mut Rc<Self>) -> bool {
        Rc::get_mut(this).map(|over| over.owner = OnceCell::new()).is_some()
    }

    /// The same client at another address: it has moved to another network.
    pub(crate) fn moved_to(&self, peer: Peer, tls: bool) -> Self {
        let moved = Self::new(peer.ip(), tls, !self.is_unnamed, self.server_name.as_deref());
        let here = self.owner.get().and_then(Option::as_ref).map(|owner| owner.0.destination);
        let _ = moved.owner(peer, || here);
        moved
    }

    /// Whether a PROXY header named no client.
    pub(crate) const fn is_unnamed(&self) -> bool {
        self.is_unnamed
    }

    /// Whether `peer` is a trusted proxy whose claims about the client count.
    #[inline]
    pub(crate) fn believes(&self, snapshot: &Snapshot, peer: IpAddr) -> bool {
        !self.is_unnamed && snapshot.trusts(peer)
    }

    /// Writes the lines for a request with this host.
    fn write(&self, asked: &[u8], out: &mut Vec<u8>) {
        let mut lines = self.lines.borrow_mut();
        if asked.is_empty() || lines.host() != asked {
            lines.tell(asked);
        }
        out.extend_from_slice(&lines.text);
        if asked.len() > HOST_KEPT {
            lines.forget();
        }
    }

    /// The client as the owner of connections. `here` gives the address it connected to.
    pub(crate) fn owner(&self, peer: Peer, here: impl FnOnce() -> Option<SocketAddr>) -> Option<&Rc<Owner>> {
        let told = self.owner.get_or_init(|| match peer {
            Peer::Address(source) => {
                let unknown = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
                Some(Rc::new(Owner(Ends { source, destination: here().unwrap_or(unknown) })))
            }
            Peer::Local => None,
        });
        told.as_ref()
    }
}

impl Lines {
    /// Writes the part that stays the same for all requests, into the memory of `text`.
    fn new(peer: IpAddr, scheme: &str, mut text: Vec<u8>) -> Self {
        text.clear();
        text.extend_from_slice(FOR);
        write_address(peer, &mut text);
        let address = text.len() - FOR.len();
        for part in ["\r\nx-forwarded-proto: ", scheme, "\r\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        let forwarded = text.len();
        text.extend_from_slice(b"forwarded: for=");
        let quoted = peer.is_ipv6(); // RFC 7239 §6.1: in brackets, hence quoted
        text.extend_from_slice(if quoted { b"\"[" } else { b"" });
        text.extend_from_within(FOR.len()..FOR.len() + address);
        text.extend_from_slice(if quoted { b"]\"" } else { b"" });
        for part in [";proto=", scheme, ";host="] {
            text.extend_from_slice(part.as_bytes());
        }
        Self { address, forwarded: forwarded..text.len(), host: text.len(), text }
    }

    fn address(&self) -> &[u8] {
        self.text.get(FOR.len()..FOR.len() + self.address).unwrap_or_default()
    }

    /// `for=ADDRESS;proto=SCHEME;host=`
    fn forwarded(&self) -> &[u8] {
        let line = self.text.get(self.forwarded.clone()).unwrap_or_default();
        line.strip_prefix(b"forwarded: ").unwrap_or_default()
    }

    /// The host in the lines; empty if they name none.
    fn host(&self) -> &[u8] {
        self.text.get(self.host..).and_then(|rest| rest.strip_suffix(b"\r\n")).unwrap_or_default()
    }

    fn tell(&mut self, asked: &[u8]) {
        self.text.truncate(self.forwarded.end);
        write_token(asked, &mut self.text);
        self.text.extend_from_slice(b"\r\nx-forwarded-host: ");
        self.host = self.text.len();
        self.text.extend_from_slice(asked);
        self.text.extend_from_slice(b"\r\n");
    }

    fn forget(&mut self) {
        self.text.truncate(self.forwarded.end);
        self.text.shrink_to_fit();
        self.host = self.text.len();
    }
}

const fn scheme_of(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    let IpAddr::V4(address) = address else {
        let _ = write!(out, "{address}"); // into a Vec
        return;
    };
    for (i, octet) in address.octets().into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
    }
}

/// Drops what an untrusted client may not claim: who asked, by which way, and for which other path.
pub(crate) fn distrust(head: &mut RequestHead) {
    if head.headers.has_any(&Known::CLAIMED) {
        for known in Known::CLAIMED {
            head.headers.remove_known(known);
        }
    }
}

/// The client's address as a trusted peer reports it: in X-Forwarded-For, or else in Forwarded, the first hop from
/// the right that is not a trusted proxy.
///
/// A hop that is not an address (`unknown`, a name, garbage) ends the walk with [`NOT_KNOWN`]. Taking the last good
/// address instead would yield a trusted proxy's, and a rule for the internal network would admit a stranger.
pub(crate) fn client_address(head: &RequestHead, peer: IpAddr, snapshot: &Snapshot) -> IpAddr {
    let trusts = |address| snapshot.trusts(address);
    let told: Vec<&[u8]> = head.headers.get_all("x-forwarded-for").collect();
    if !told.is_empty() {
        let hops = told.iter().rev().flat_map(|value| value.rsplit(|&b| b == b','));
        return walk(hops.map(<[u8]>::trim_ascii), peer, trusts);
    }
    let elements: Vec<&[u8]> = head.headers.get_all("forwarded").flat_map(forwarded_elements).collect();
    walk(elements.into_iter().rev().map(|element| forwarded_for(element).unwrap_or_default()), peer, trusts)
}

/// The address of a client that a trusted proxy does not know. It is in no network that a rule names.
const NOT_KNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The first untrusted hop. The hops start with the nearest.
fn walk<'a>(hops: impl Iterator<Item = &'a [u8]>, peer: IpAddr, trusts: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = peer;
    for hop in hops.take(MAX_HOPS) {
        let Some(address) = std::str::from_utf8(hop).ok().and_then(parse_node) else { return NOT_KNOWN };
        client = address;
        if !trusts(address) {
            break;
        }
    }
    client
}

/// The elements of a Forwarded field, one per hop (RFC 7239 §4).
fn forwarded_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_unquoted(value, |b| b == b',')
}

/// The value of `for` in an element, without its quotes.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    split_unquoted(element, |b| b == b';').find_map(|pair| {
        let (name, value) = pair.split_at_checked(4)?;
        let value = name.eq_ignore_ascii_case(b"for=").then_some(value)?;
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

/// An address with or without port and brackets.
fn parse_node(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.split_once(']')).map(|(a, _)| a);
    bare.unwrap_or(text).parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|a| a.ip()))
}

/// The fields that tell the next hop about the client.
#[derive(Clone, Copy)]
pub(crate) enum ForwardingFields<'a> {
    /// Only what we know ourselves, written straight into the request. Holding a copy while waiting for an upstream
    /// was a plain request's only allocation and cost 0.4 µs at 1,000 connections (suite h1-1000, sampled).
    Own(&'a Forwarding),
    /// From [`chain`].
    Chained(&'a [u8]),
}

impl ForwardingFields<'_> {
    fn write(self, asked: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Own(client) => client.write(asked, out),
            Self::Chained(lines) => out.extend_from_slice(lines),
        }
    }
}

/// The Host that an endpoint gets; `None` keeps the head's own.
pub(crate) fn host_for<'a>(
    head: &RequestHead,
    host: &'a HostPolicy,
    endpoint: &'a Endpoint,
) -> Option<&'a str> {
    match host {
        HostPolicy::Preserve if !head.authority().is_empty() => None,
        HostPolicy::Preserve | HostPolicy::Endpoint => Some(&*endpoint.authority),
        HostPolicy::Literal(text) => Some(&**text),
    }
}

/// Writes the head of a request for an endpoint.
pub(crate) fn write_head(
    head: &mut RequestHead,
    forwarding: ForwardingFields<'_>,
    host: &HostPolicy,
    endpoint: &Endpoint,
    framing: Framing,
    out: &mut Vec<u8>,
) {
    // If no body follows a nonzero length, the next request on the connection would be read as the body.
    let of_nothing = head.body() == BodyKind::Empty && head.content_length().is_some_and(|length| length > 0);
    if framing != Framing::Length || of_nothing {
        head.headers.remove_known(Known::ContentLength);
    }
    let own_host = host_for(head, host, endpoint);
    if own_host.is_none() && head.headers.has_known(Known::Host) {
        head.write_line_and_fields(out);
    } else {
        head.headers.remove_known(Known::Host);
        head.write_line(out);
        out.extend_from_slice(b"host: ");
        out.extend_from_slice(own_host.map_or(head.authority(), str::as_bytes));
        out.extend_from_slice(b"\r\n");
        head.headers.write_to(out);
    }
    forwarding.write(head.asked_authority(), out);
    if framing == Framing::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    } else if head.body() == BodyKind::Empty
        && !head.headers.has_known(Known::ContentLength)
        && expects_length(head)
    {
        // RFC 9110 §8.6: without it some servers answer 411 to a POST that has no body.
        out.extend_from_slice(b"content-length: 0\r\n");
    }
    // RFC 9110 §10.1.4: TE is hop-by-hop, so Connection must name it.
    if let Some(protocol) = head.upgrade() {
        out.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
        out.extend_from_slice(protocol);
        out.extend_from_slice(b"\r\n");
    } else if head.accepts_trailers() {
        out.extend_from_slice(b"connection: te\r\nte: trailers\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

const fn expects_length(head: &RequestHead) -> bool {
    use weir_h1::Method;
    matches!(head.method(), Method::Patch | Method::Post | Method::Put)
}

/// RFC 7239 §4: a host with a port, or an address in brackets, is not a token and must be quoted.
fn write_token(text: &[u8], out: &mut Vec<u8>) {
    let token = text.iter().all(|&b| is_token(b));
    if token && !text.is_empty() {
        out.extend_from_slice(text);
    } else {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    }
}

/// The forwarding lines if a trusted proxy or a filter has already set some: ours are appended, and the existing
/// protocol and host stay. It removes the fields it replaces from the head, so it is called once per exchange,
/// however many attempts follow.
pub(crate) fn chain(head: &mut RequestHead, client: &Forwarding) -> Option<Vec<u8>> {
    // The other fields are passed on unchanged.
    const CHAINED: [Known; 4] =
        [Known::Forwarded, Known::XForwardedFor, Known::XForwardedHost, Known::XForwardedProto];
    if !head.headers.has_any(&CHAINED) {
        return None;
    }
    let mut lines = Vec::new();
    let joined = |name: &str| head.headers.get_all(name).collect::<Vec<_>>().join(&b", "[..]);
    let (list, forwarded) = (joined("x-forwarded-for"), joined("forwarded"));
    let asked = head.asked_authority();
    let own = client.lines.borrow();
    lines.extend_from_slice(b"x-forwarded-for: ");
    if !list.is_empty() {
        lines.extend_from_slice(&list);
        lines.extend_from_slice(b", ");
    }
    lines.extend_from_slice(own.address());
    if !head.headers.has_known(Known::XForwardedProto) {
        lines.extend_from_slice(b"\r\nx-forwarded-proto: ");
        lines.extend_from_slice(client.scheme.as_bytes());
    }
    if !head.headers.has_known(Known::XForwardedHost) {
        lines.extend_from_slice(b"\r\nx-forwarded-host: ");
        lines.extend_from_slice(asked);
    }
    lines.extend_from_slice(b"\r\nforwarded: ");
    if !forwarded.is_empty() {
        lines.extend_from_slice(&forwarded);
        lines.extend_from_slice(b", ");
    }
    lines.extend_from_slice(own.forwarded());
    write_token(asked, &mut lines);
    lines.extend_from_slice(b"\r\n");
    head.headers.remove_known(Known::XForwardedFor);
    head.headers.remove_known(Known::Forwarded);
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_host() {
        let client = Forwarding::new("10.0.0.1".parse().unwrap(), true, true, None);
        for (asked, quoted) in [
            ("a.test", "a.test"),
            ("a.test", "a.test"),
            ("", "\"\""),
            ("b:80", "\"b:80\""),
            ("a.test", "a.test"),
        ] {
            let mut out = Vec::new();
            client.write(asked.as_bytes(), &mut out);
            let lines = format!(
                "x-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: https\r\n\
                 forwarded: for=10.0.0.1;proto=https;host={quoted}\r\nx-forwarded-host: {asked}\r\n"
            );
            assert_eq!(String::from_utf8(out).unwrap(), lines);
        }
        let mut long = Vec::new();
        client.write("h".repeat(HOST_KEPT + 1).as_bytes(), &mut long);
        assert!(long.len() > 2 * HOST_KEPT && client.lines.borrow().text.capacity() < HOST_KEPT);
    }

    /// Upstreams learn the same about a client, whichever client its task served before.
    #[test]
    fn renewed_lines_describe_only_the_next_client() {
        let told = |client: &Forwarding| {
            let (mut out, mut head) = (Vec::new(), RequestHead::default());
            client.write(b"a.test", &mut out);
            head.buffer_mut().extend_from_slice(b"GET / HTTP/1.1\r\nhost: a\r\nforwarded: for=b\r\n\r\n");
            weir_h1::parse_request(&mut head, &weir_h1::Limits::default()).unwrap();
            out.extend(chain(&mut head, client).unwrap());
            (String::from_utf8(out).unwrap(), client.is_unnamed(), client.server_name().cloned())
        };
        let clients = [
            ("10.0.0.1", true, true, Some("a.test")),
            ("10.0.0.1", true, true, Some("a.test")),
            ("::ffff:10.0.0.1", true, true, Some("b.test")),
            ("10.0.0.1", false, true, None),
            ("10.0.0.1", false, false, None),
            ("2001:db8::1", false, true, None),
            ("10.20.30.40", true, true, Some("a.test")),
        ];
        let mut last: Option<(IpAddr, Rc<Forwarding>)> = None;
        for (peer, tls, named, name) in clients {
            let peer: IpAddr = peer.parse().unwrap();
            let client = match last.take() {
                None => Rc::new(Forwarding::new(peer, tls, named, name)),
                Some((before, mut client)) => {
                    let memory = Rc::as_ptr(&client);
                    Forwarding::renew(&mut client, before, peer, tls, named, name);
                    assert_eq!(Rc::as_ptr(&client), memory, "in the same memory");
                    client
                }
            };
            assert_eq!(told(&client), told(&Forwarding::new(peer, tls, named, name)), "{peer}");
            let owner = client.owner(Peer::Address(SocketAddr::new(peer, 1000)), || None).cloned().unwrap();
            assert_eq!(owner.0.source, SocketAddr::new(peer, 1000), "not that of the connection before");
            last = Some((peer, client));
        }
        let (peer, mut client) = last.unwrap();
        let used = Rc::clone(&client);
        Forwarding::renew(&mut client, peer, "10.0.0.9".parse().unwrap(), false, true, None);
        assert_eq!(told(&used), told(&Forwarding::new(peer, true, true, Some("a.test"))), "it is still used");
        assert!(!Rc::ptr_eq(&used, &client));
    }

    #[test]
    fn hops_are_walked_from_the_nearest() {
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        let trusts = |address: IpAddr| address.to_string().starts_with("10.");
        for (hops, client) in [
            (&[][..], "10.0.0.1"),
            (&["10.0.0.2"], "10.0.0.2"),
            (&["203.0.113.5", "1.1.1.1"], "203.0.113.5"),
            (&["10.0.0.2", "[2001:db8::1]:80", "garbage"], "2001:db8::1"),
            (&["unknown", "10.0.0.2"], "0.0.0.0"),
            (&["10.0.0.2", "garbage", "203.0.113.5"], "0.0.0.0"),
        ] {
            let hops_given = hops.iter().map(|hop| hop.as_bytes());
            assert_eq!(walk(hops_given, peer, trusts), client.parse::<IpAddr>().unwrap(), "{hops:?}");
        }
    }

    #[test]
    fn forwarded_names_a_client_in_each_element() {
        let told = |value: &'static str| -> Vec<&str> {
            let elements = forwarded_elements(value.as_bytes());
            elements.map(|e| str::from_utf8(forwarded_for(e).unwrap_or(b"-")).unwrap()).collect()
        };
        assert_eq!(
            told("for=192.0.2.43, for=198.51.100.17;by=203.0.113.60"),
            ["192.0.2.43", "198.51.100.17"]
        );
        assert_eq!(
            told(r#"proto=http;For="[2001:db8:cafe::17]:4711" ,host="a,b;for=1.1.1.1""#),
            ["[2001:db8:cafe::17]:4711", "-"]
        );
        assert_eq!(told(r#"host="a\",for=1.1.1.1";for=2.2.2.2"#), ["2.2.2.2"]);
        assert_eq!(told(r#"host="open, for=1.1.1.1"#), ["-"], "a quote that does not end hides the rest");
    }

    #[test]
    fn nodes() {
        for (text, ip) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.1:80", Some("10.0.0.1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(parse_node(text), ip.map(|ip| ip.parse().unwrap()), "{text}");
        }
    }
}
