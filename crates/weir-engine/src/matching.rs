//! Phase 1 of an exchange: admits a request and finds its route. `weir shadow` runs the same code on copies of heads.
//!
//! What it needs of a client is an [`Origin`], because the judge of a shadow has no connection.

use crate::forward;
use crate::snapshot::{Listener, Snapshot};
use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::SystemTime;
use weir_filter::fields;
use weir_filter::filter::Refusal;
use weir_h1::{Known, Method, RequestHead, TargetForm};
use weir_route::{Ambiguity, Canonical, NoTrace};
use weir_upstream::error;
use weir_wire::Peer;
use weir_wire::tls::PeerCertificate;

/// The field in which a browser's preflight names the method it asks about (Fetch §3.3.2).
pub const PREFLIGHT: &str = "access-control-request-method";

/// Who sent a request, and how.
pub(crate) trait Origin {
    /// The other end of the connection.
    fn peer(&self) -> Peer;

    /// The certificate from its TLS handshake.
    fn certificate(&self) -> Option<&PeerCertificate>;

    /// The name that it asked for there.
    fn server_name(&self) -> Option<&str>;

    /// Whether its connection uses TLS.
    fn is_secure(&self) -> bool;

    /// Whether its forwarding headers are trusted.
    fn is_trusted(&self) -> bool;
}

/// The route of a request.
pub(crate) struct Found {
    pub(crate) route: usize,
    /// The route was found for the method that a browser's preflight asks about.
    pub(crate) preflight: bool,
    /// The key that was in the path.
    pub(crate) path_key: Option<Box<[u8]>>,
}

/// A request that looks for its route, as the conditions of routes read it.
pub(crate) struct Received<'a, O> {
    pub(crate) head: &'a RequestHead,
    pub(crate) from: &'a O,
    /// The client's address if a trusted proxy named it.
    pub(crate) told: Option<IpAddr>,
    /// The moment of the lookup, once an expression asked: the same for all of them, so that of `now < t` and
    /// `now >= t` one holds.
    pub(crate) moment: &'a OnceCell<SystemTime>,
}

/// Refuses methods that no route serves. TRACE would show the client what filters added for the upstream, including
/// credentials.
#[inline]
pub(crate) fn refuse_method(head: &RequestHead) -> Result<(), Box<Refusal>> {
    match head.method() {
        Method::Connect | Method::Trace => Err(Refusal::new(&error::METHOD_REFUSED)),
        _ => Ok(()),
    }
}

/// Refuses what no route may serve, and drops fields that the client may not set. Returns the client's address if a
/// trusted proxy named it.
#[inline]
pub(crate) fn admit(
    snapshot: &Snapshot,
    from: &impl Origin,
    head: &mut RequestHead,
) -> Result<Option<IpAddr>, Box<Refusal>> {
    if let (Some(limit), Some(length)) = (snapshot.body_bytes, head.content_length())
        && length > limit
    {
        return Err(Refusal::new(&error::BODY_TOO_LARGE));
    }
    let told = if from.is_trusted() {
        Some(forward::client_address(head, from.peer().ip().to_canonical(), snapshot))
    } else {
        forward::distrust(head);
        None
    };
    // Some upstreams read `_` as `-`. Removing such twins keeps clients from forging our fields, and lets a route's
    // condition see what the upstream sees.
    head.headers.remove_twins(&snapshot.trusted_fields);
    Ok(told)
}

/// Canonicalises the path and asks the table.
#[inline]
pub(crate) fn find_route<O: Origin>(
    snapshot: &Snapshot,
    (spec, number): (&Listener, u16),
    (from, told): (&O, Option<IpAddr>),
    head: &mut RequestHead,
) -> Result<Found, Box<Refusal>> {
    let mut ambiguity = Ambiguity::default();
    if head.form() != TargetForm::Asterisk {
        let mut canonical = Vec::new(); // allocates only when the path must change
        let form = weir_route::examine(head.path(), spec.slashes, &mut canonical);
        let (form, found) = form.map_err(|e| refuse_path(&e))?;
        ambiguity = found;
        if form == Canonical::Rewritten {
            head.set_path(&canonical).map_err(|_| Refusal::new(&error::BAD_PATH))?;
        }
    }
    let moment = OnceCell::new();
    let path_key = match &snapshot.conceals {
        Some(_) => hide_keys(snapshot, number, (from, told), head),
        None => None,
    };
    let mut request = weir_route::Request {
        listener: number,
        host: head.authority(),
        method: head.method_name(),
        path: if head.form() == TargetForm::Asterisk { b"/" } else { head.path() },
        query: head.query(),
        headers: Received { head, from, told, moment: &moment },
    };
    let mut preflight = false;
    if snapshot.preflights
        && head.method() == Method::Options
        && let Some(asked) = head.headers.get_str(PREFLIGHT)
        && snapshot.takes_preflight(&request, asked)
    {
        request.method = asked;
        preflight = true;
    }
    let mut found = snapshot.table.find(&request, &mut NoTrace);
    if ambiguity != Ambiguity::default() {
        let setting = |route| snapshot.escaped_slashes(route, spec);
        let settled = weir_route::settle(&snapshot.table, &request, found, ambiguity, spec.slashes, setting)
            .map_err(|_| Refusal::new(&error::AMBIGUOUS_PATH))?;
        found = settled.route;
        if let Some(path) = settled.decoded {
            head.set_path(&path).map_err(|_| Refusal::new(&error::BAD_PATH))?;
        }
    }
    head.mark_routed();
    let route = found.ok_or_else(|| Refusal::new(&error::NO_ROUTE))?.index();
    Ok(Found { route, preflight, path_key })
}

/// Removes keys from places where they must not stay. Returns the key that was in the path, which is removed before
/// routing, so that a key does not change which route matches.
#[cold]
fn hide_keys<O: Origin>(
    snapshot: &Snapshot,
    listener: u16,
    (from, told): (&O, Option<IpAddr>),
    head: &mut RequestHead,
) -> Option<Box<[u8]>> {
    snapshot.conceals.as_deref()?.hide_in_referer(&mut head.headers);
    let moment = OnceCell::new();
    let request = weir_route::Request {
        listener,
        host: head.authority(),
        method: head.method_name(),
        path: head.path(),
        query: head.query(),
        headers: Received { head, from, told, moment: &moment },
    };
    let asked = head.headers.get_str(PREFLIGHT).filter(|_| head.method() == Method::Options);
    let (path, key) = snapshot.without_path_key(&request, asked)?;
    head.set_path(&path).ok()?;
    Some(key.into())
}

/// Refuses a path and says what is wrong with it.
fn refuse_path(e: &weir_route::PathError) -> Box<Refusal> {
    let detail = Some(format!("The request path is refused: {e}."));
    Box::new(Refusal { cause: &error::BAD_PATH, detail, headers: Vec::new() })
}

/// Whether the client uses TLS. A trusted proxy's word about its own client counts: behind a proxy that terminates
/// TLS, a redirect to https would otherwise loop.
pub(crate) fn is_tls(from: &impl Origin, head: &RequestHead) -> bool {
    let said = head.headers.get_known(Known::XForwardedProto).filter(|_| from.is_trusted());
    said.map_or(from.is_secure(), |proto| proto.eq_ignore_ascii_case(b"https"))
}

impl<O> Clone for Received<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Received<'_, O> {}

impl<O: Origin> weir_route::Headers for Received<'_, O> {
    #[inline]
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        fields::values(self.head, name)
    }

    #[inline]
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        fields::is(self.head, name, value)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.told.unwrap_or_else(|| self.from.peer().ip().to_canonical()))
    }

    fn client_port(&self) -> Option<u16> {
        match self.from.peer() {
            Peer::Address(address) => Some(address.port()),
            Peer::Local => None,
        }
    }

    fn certificate(&self) -> Option<(&str, &[String])> {
        let certificate = self.from.certificate()?;
        Some((&certificate.subject, &certificate.names))
    }

    fn server_name(&self) -> Option<&str> {
        self.from.server_name()
    }

    fn is_tls(&self) -> bool {
        is_tls(self.from, self.head)
    }

    fn size(&self) -> Option<u64> {
        self.head.declared_size()
    }

    fn now(&self) -> SystemTime {
        *self.moment.get_or_init(SystemTime::now)
    }
}
