//! What a listener needs to serve HTTP/3.

use super::Policy;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_wire::tls::QuicTls;

/// HTTP/3 of a listener.
#[derive(Debug)]
pub struct Http3 {
    /// Where its UDP sockets are: one, or one for each listener whose `sni` leads here. No other listener has HTTP/3
    /// at these addresses.
    pub doors: Box<[UdpDoor]>,
    /// TLS of its connections: TLS 1.3 with the listener's certificates, and the ALPN protocol `h3` alone.
    pub tls: QuicTls,
    /// How long a connection may be silent. Default 30 s; 1 s to 1 h.
    pub idle: Duration,
    /// When clients must prove their address.
    pub retry: AddressProof,
    /// Whether requests are accepted before the handshake is complete: see [`early_data`](crate::early_data). Never
    /// with client certificates.
    pub early_data: bool,
    /// Whether a client may change its address. Default true.
    pub migration: bool,
    /// The port that Alt-Svc announces.
    pub advertise: Advertise,
    /// What is required of a QUIC connection. One that was opened under another policy is no longer served. It
    /// differs from the listener's own in that the other protocols do not count.
    pub policy: Policy,
}

/// An address with a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDoor {
    /// The address. If its port is 0, it gets the port of the TCP socket of the same address.
    pub address: SocketAddr,
    /// The listener that the address belongs to, by index, if its `sni` leads here. Its `ip` and `limits` apply.
    pub outer: Option<usize>,
}

/// When clients must prove that they receive what is sent to their address (RFC 9000 §8.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressProof {
    /// Always.
    Always,
    /// While many handshakes are under way. The default.
    Auto,
}

/// What Alt-Svc announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advertise {
    /// Nothing.
    Off,
    /// The port of the UDP socket.
    Own,
    /// This port.
    Port(u16),
}

/// What the responses of a listener over HTTP/1.1 and HTTP/2 say in Alt-Svc (RFC 7838).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AltSvc {
    /// That clients must forget what they were told, until the last of them would have.
    Clear(Instant),
    /// Where HTTP/3 is: the whole line.
    Line(Box<[u8]>),
}

impl AltSvc {
    /// How long clients may remember what they were told: a day, the default of RFC 7838 §3.1. A client that finds
    /// HTTP/3 gone earlier goes back to TCP by itself, after a delay.
    pub(crate) const AGE: Duration = Duration::from_secs(24 * 60 * 60);

    /// What a listener with HTTP/3 says; `None` if it announces nothing. Its port may still be 0: then
    /// [`Listener::bound`](super::Listener::bound) follows.
    pub(crate) fn of(http3: &Http3) -> Option<Self> {
        let port = match http3.advertise {
            Advertise::Off => return None,
            Advertise::Own => http3.doors.first()?.address.port(),
            Advertise::Port(port) => port,
        };
        let line = format!("alt-svc: h3=\":{port}\"; ma={}\r\n", Self::AGE.as_secs());
        Some(Self::Line(line.into_bytes().into()))
    }

    /// What the next process has to know: until when clients may remember what they were told, in seconds since 1970; 0
    /// if they are told it still. The line itself follows from its config.
    pub(crate) fn save(&self) -> Vec<u8> {
        let until = match self {
            Self::Line(_) => 0,
            Self::Clear(until) => {
                let end = SystemTime::now() + until.saturating_duration_since(Instant::now());
                end.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().max(1))
            }
        };
        until.to_be_bytes().to_vec()
    }

    /// Reads what [`AltSvc::save`] wrote. `None` if it is nothing of that kind, or if the time is over. A clock that was
    /// set cannot make the time longer than [`AltSvc::AGE`].
    pub(crate) fn load(saved: &[u8]) -> Option<Self> {
        let until = u64::from_be_bytes(*saved.first_chunk::<8>().filter(|_| saved.len() == 8)?);
        if until == 0 {
            return Some(Self::Line(Box::default()));
        }
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(until))?;
        let left = end.duration_since(SystemTime::now()).ok()?.min(Self::AGE);
        Instant::now().checked_add(left).map(Self::Clear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_until_when() {
        let again = |said: &AltSvc| AltSvc::load(&said.save());
        assert_eq!(again(&AltSvc::Line(b"alt-svc: h3\r\n"[..].into())), Some(AltSvc::Line(Box::default())));
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let Some(AltSvc::Clear(until)) = again(&AltSvc::Clear(now + hour)) else { panic!("nothing") };
        assert!(until.saturating_duration_since(now).abs_diff(hour) < Duration::from_secs(10));
        assert_eq!(AltSvc::load(&1_u64.to_be_bytes()), None, "long ago");
        let Some(AltSvc::Clear(until)) = AltSvc::load(&9_999_999_999_u64.to_be_bytes()) else {
            panic!("nothing")
        };
        assert!(until.saturating_duration_since(now) <= AltSvc::AGE + Duration::from_secs(10));
        assert_eq!(AltSvc::load(b"short"), None);
    }
}
