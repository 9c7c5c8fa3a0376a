//! What a table reads of a request, what it returns, and how to watch it.

use std::net::IpAddr;
use std::time::SystemTime;

/// A route's number: its index in the `Vec` that [`Table::build`](crate::Table::build) was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

impl RouteId {
    /// The index of the route in the `Vec` given to [`Table::build`](crate::Table::build).
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the table reads of a request: bytes as received, except for the path, which is canonical.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r, H> {
    /// The listener that received the request, by the number in
    /// [`RouteSpec::listeners`](crate::RouteSpec::listeners).
    pub listener: u16,
    /// The authority (`Host`, `:authority`): any case, with or without port and trailing dot; empty if there is none.
    pub host: &'r [u8],
    /// The method as received.
    pub method: &'r [u8],
    /// The path as returned by [`canonical`](crate::canonical), without query.
    pub path: &'r [u8],
    /// The part after `?`, still encoded.
    pub query: Option<&'r [u8]>,
    /// The header fields.
    pub headers: H,
}

/// A request's header fields, and what expressions may ask about it besides.
pub trait Headers {
    /// The value of each field line called `name`, in order, without surrounding white space.
    ///
    /// `name` is lower case; the implementation compares case-insensitively.
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]>;

    /// Whether a field has this value: an absent one is empty, a repeated one is its values joined by `, `. Worth writing
    /// by hand: most conditions ask this.
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        let mut rest = Some(value);
        for (at, part) in self.get_all(name).enumerate() {
            let begun = rest.and_then(|rest| if at == 0 { Some(rest) } else { rest.strip_prefix(b", ") });
            rest = begun.and_then(|rest| rest.strip_prefix(part));
        }
        rest == Some(b"")
    }

    // What is known of the request besides its head. Only routes with an expression that names it ask for it.

    /// The client's address.
    fn client_ip(&self) -> Option<IpAddr> {
        None
    }

    /// The port of the connection's other end.
    fn client_port(&self) -> Option<u16> {
        None
    }

    /// Subject and alternative names of the client's certificate.
    fn certificate(&self) -> Option<(&str, &[String])> {
        None
    }

    /// The name that the client asked for in its TLS handshake.
    fn server_name(&self) -> Option<&str> {
        None
    }

    /// Whether the client uses TLS.
    fn is_tls(&self) -> bool {
        false
    }

    /// The declared length of the body.
    fn size(&self) -> Option<u64> {
        None
    }

    /// The moment of the lookup: the same each time.
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// No header at all.
impl Headers for () {
    fn get_all<'a>(&'a self, _: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        std::iter::empty()
    }
}

/// Pairs, for tests and the command line.
impl<N: AsRef<[u8]>, V: AsRef<[u8]>> Headers for &[(N, V)] {
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let same = move |n: &N| n.as_ref().eq_ignore_ascii_case(name);
        self.iter().filter(move |(n, _)| same(n)).map(|(_, v)| v.as_ref())
    }
}

/// The first condition of a route that a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed<'t> {
    /// The client's address.
    Client,
    /// The value of this cookie (or its absence).
    Cookie(&'t str),
    /// The value of this header (or its absence).
    Header(&'t str),
    /// The host.
    Host,
    /// The listener.
    Listener,
    /// The method.
    Method,
    /// It meets this one of the exclusions.
    Not(usize),
    /// The path.
    Path,
    /// The value of this query parameter (or its absence).
    Query(&'t str),
    /// The expression.
    When,
}

/// Watches [`Table::find`](crate::Table::find) at work. Every method does nothing by default.
pub trait Trace {
    /// `route` matches the request's host and path, and its other conditions were checked.
    fn asked(&mut self, route: RouteId, outcome: Result<(), Failed<'_>>) {
        let _ = (route, outcome);
    }
}

/// The trace for live traffic: it does nothing and compiles to no code.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Trace for NoTrace {}
