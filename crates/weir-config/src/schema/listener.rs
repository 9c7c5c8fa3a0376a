//! `listeners`: addresses that accept clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::acme::Acme;
use super::addresses::ListenAddress;
use super::bytes::{Destination, ListenerIp, ListenerLimits, Serves, Sni, Tcp};
use super::http3::Http3;
use super::values::FilePath;
use crate::units::{Duration, Rate};

/// One address that clients connect to.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address to listen on: an address with a port, or `unix:` and a path. No two listeners share one. Required,
    /// except for a listener that another one names under `sni` or `otherwise`, which has none.
    #[serde(default)]
    pub address: Option<ListenAddress>,
    /// Passes connections on as bytes instead of speaking HTTP; with `tls`, TLS ends here. Default none.
    #[serde(default)]
    pub tcp: Option<Tcp>,
    /// Sends each connection where the name in its ClientHello (SNI) says, without ending TLS: to an upstream, as
    /// bytes, or to another listener. An exact name wins, then the longest wildcard; with ECH the outer name counts.
    /// The ClientHello may have 16 KiB and must come within `timeouts.handshake`. Default none.
    #[serde(default)]
    pub sni: Option<Sni>,
    /// Where connections go that name no host, one that is not under `sni`, or speak no TLS. Default: they are closed
    /// with the cause `sni_unknown`.
    #[serde(default)]
    pub otherwise: Option<Destination>,
    /// Networks whose clients are accepted or refused, for `tcp` and `sni`; after the PROXY header. Refused
    /// connections are closed. Routes have the filter `ip` instead. Default: all are accepted.
    #[serde(default)]
    pub ip: ListenerIp,
    /// Limits of this listener alone.
    #[serde(default)]
    pub limits: ListenerLimits,
    /// Protocols spoken here; with `tls` also their order in ALPN. Without TLS, clients begin with HTTP/2 by prior
    /// knowledge. `h3` needs `tls`, and opens the UDP port of the same number. Default `[http1]`, with `tls`
    /// `[h2, http1]`; `[h2]` alone refuses http1.
    #[serde(default)]
    pub protocols: Option<Vec<Protocol>>,
    /// Settings of HTTP/3. Needs `h3` in `protocols`.
    #[serde(default)]
    pub http3: Option<Http3>,
    /// Every connection must begin with a PROXY protocol header (v1 or v2) and come from `trusted_proxies`. Default
    /// false, because a client that may send the header may claim any address.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// What happens to `//` in a path: `merge` makes it one slash before routes are matched, `keep` leaves it.
    /// Default `merge`, so that no rule is bypassed by doubling a slash.
    #[serde(default)]
    pub slashes: Slashes,
    /// What happens to a path with `%2F` in it, which some upstreams read as `/`. `refuse`: answers 400 if the
    /// decoded path would match another route, or none; otherwise passes it unchanged. `keep`: passes it unchanged.
    /// `decode`: makes it `/`, once, before routes are matched. A route may override this. Default `refuse`, so that
    /// no rule is bypassed by escaping a slash.
    #[serde(default)]
    pub escaped_slashes: EscapedSlashes,
    /// TLS. Default none: clients speak cleartext.
    #[serde(default)]
    pub tls: Option<ListenerTls>,
    /// Timeouts for clients.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
}

impl Listener {
    /// What it does with its connections.
    pub const fn serves(&self) -> Serves {
        match (&self.tcp, &self.sni) {
            (Some(_), _) => Serves::Tcp,
            (None, Some(_)) => Serves::Sni,
            (None, None) => Serves::Http,
        }
    }

    /// Whether it speaks HTTP/3.
    pub fn has_h3(&self) -> bool {
        let named = self.protocols.as_ref().is_some_and(|all| all.contains(&Protocol::H3));
        named && self.serves() == Serves::Http
    }

    /// Whether it sends connections to the listener of this name.
    pub fn leads_to(&self, listener: &str) -> bool {
        self.destinations().any(|destination| destination.listener.as_deref() == Some(listener))
    }

    /// Where it sends connections: the destination of each name, and that of all others.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        let named = self.sni.iter().flat_map(|sni| &sni.0).map(|(_, destination)| destination);
        named.chain(&self.otherwise)
    }

    /// The upstreams that get its connections as bytes.
    pub fn passes_to(&self) -> impl Iterator<Item = &str> {
        let named = self.destinations().filter_map(|destination| destination.upstream.as_deref());
        self.tcp.iter().map(|tcp| tcp.upstream.as_str()).chain(named)
    }
}

/// A protocol of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/2: by ALPN with TLS, by prior knowledge without.
    H2,
    /// HTTP/3, over QUIC on UDP.
    H3,
    /// HTTP/1.0 and 1.1.
    Http1,
}

/// What happens to `//` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Slashes {
    /// Leave them unchanged.
    Keep,
    /// Merge them to one before routes are matched.
    #[default]
    Merge,
}

/// What happens to `%2F` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EscapedSlashes {
    /// Make them slashes, once, before routes are matched.
    Decode,
    /// Leave them unchanged.
    Keep,
    /// Refuse a path that would match another route, or none, if they were decoded; leave them otherwise.
    #[default]
    Refuse,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// Certificates with their keys, chosen by the name a client asks for (SNI); the first if no name matches or none
    /// is sent. At least one, unless there is `acme`.
    #[serde(default)]
    pub certificates: Vec<CertificateFiles>,
    /// Orders and renews certificates automatically. Default none.
    #[serde(default)]
    pub acme: Option<Acme>,
    /// Whether clients must show a certificate. Default: they are not asked.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
    /// Oldest version of TLS accepted: `1.2` or `1.3`. Default `1.2`, which some clients still need.
    #[serde(default)]
    pub min_version: TlsVersion,
    /// Ciphers, by the names of IANA or OpenSSL, such as `TLS_AES_256_GCM_SHA384` or `ECDHE-RSA-AES128-GCM-SHA256`. A
    /// version of TLS of which the list has none keeps all. The client's order decides. Default: all that Weir has,
    /// which are safe.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// Curves of the key exchange in order of preference, such as `X25519`, `secp256r1` (`P-256`, `prime256v1`) or
    /// `X25519MLKEM768`. Default: all that Weir has.
    #[serde(default)]
    pub curves: Vec<String>,
    /// Whether clients get tickets, with which they resume sessions. Their keys change every 6 hours and are the same
    /// after a reload or an upgrade. `false` makes every handshake a full one. Default true.
    #[serde(default = "with_tickets")]
    pub tickets: bool,
}

const fn with_tickets() -> bool {
    true
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The chain, our certificate first.
    pub cert: FilePath,
    /// The private key of the first certificate.
    pub key: FilePath,
}

/// Certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAuth {
    /// The authorities whose certificates we accept, PEM.
    pub ca: FilePath,
    /// `required` refuses clients without a certificate, `optional` asks, and refuses one that is not valid;
    /// `accept_untrusted` asks, and treats one that is not valid as none; `off` does not ask. Default `required`.
    #[serde(default)]
    pub mode: ClientAuthMode,
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthMode {
    /// Asked; a certificate that is not valid counts as none. Not over HTTP/3.
    AcceptUntrusted,
    /// Never asked.
    Off,
    /// Asked; a certificate shown must be valid.
    Optional,
    /// Asked and refused without.
    #[default]
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Timeouts for clients. Each has its cause code; see the catalogue of causes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTimeouts {
    /// From the first byte of a request's head to its end. Default `10s`: long enough for a phone on a train, short
    /// enough that slow heads cannot hold connections for minutes. `0s` turns it off.
    pub head: Duration,
    /// Longest pause between two pieces of a request's body. Default `15s`. `0s` turns it off. (A client that reads
    /// no part of a response for 60 s is disconnected; that is not configurable.)
    pub body: Duration,
    /// How long a connection may idle between two requests. Default `75s`, which nginx and browsers expect. `0s`
    /// closes after every response.
    pub keepalive: Duration,
    /// From accepting a connection to the end of the TLS handshake (and of the PROXY header). Default `10s`.
    pub handshake: Duration,
    /// Minimum speed of a request body, in bytes a second after its first 10 s. Default `128B`: slower is an attack,
    /// not a network. `0B` turns it off.
    pub rate: Rate,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(15),
            keepalive: Duration::from_secs(75),
            handshake: Duration::from_secs(10),
            rate: Rate(128),
        }
    }
}
