//! Opens QUIC connections. A thread has one UDP socket for each family of addresses, which all its connections share.

use super::connection::THEIRS;
use crate::transport::failure::{Failure, Wait};
use crate::transport::origin::Origin;
use std::cell::RefCell;
use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weir_quic::{Client, Endpoint, Limits, Lost};
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

/// Bytes of responses that may be on their way on a connection before we have read them: enough for 1 Gbit/s over a
/// round trip of 100 ms. They are read as they come, so only gaps after a loss fill memory.
const WINDOW: u32 = 16 * 1024 * 1024;

/// Bytes of requests that a connection holds until the target has acknowledged them.
const UNACKNOWLEDGED: u32 = 4 * 1024 * 1024;

/// How long a connection may be silent, beyond the time that a response may take. The target's own limit is often
/// shorter, and then counts.
const IDLE: Duration = Duration::from_secs(30);

/// The text of TLS alert 120, no_application_protocol, in quinn-proto's words.
const NO_PROTOCOL: &str = "error 120";

/// The TLS policy and the name for dialing an origin by QUIC.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    client: Client,
    name: String,
}

impl Policy {
    /// The policy for connections to `host`. The error is readable text.
    pub(crate) fn new(tls: &ClientTls, host: &str, timeout: Duration) -> Result<Self, String> {
        let limits = Limits {
            idle: timeout.saturating_add(IDLE),
            handshake: timeout,
            streams: 0,
            one_way_streams: THEIRS as u32,
            stream_window: WINDOW,
            window: WINDOW,
            unacknowledged: UNACKNOWLEDGED,
            ..Limits::default()
        };
        let (config, name) = tls.for_http3();
        let client = Client::new(config, &limits).map_err(|e| format!("no policy of QUIC: {e}"))?;
        Ok(Self { client, name: name.unwrap_or_else(|| host.to_owned()) })
    }
}

/// The UDP sockets of a thread, opened when a connection first needs them.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    v4: RefCell<Option<Endpoint>>,
    v6: RefCell<Option<Endpoint>>,
    /// Addresses to which a connection was opened.
    answered: RefCell<HashSet<SocketAddr>>,
}

impl Endpoints {
    fn of(&self, to: SocketAddr) -> io::Result<Endpoint> {
        let place = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        let mut place = place.borrow_mut();
        if let Some(endpoint) = &*place {
            return Ok(endpoint.clone());
        }
        let endpoint = Endpoint::client(any_port(to))?;
        let runner = endpoint.clone();
        // If the socket fails, all connections end with that reason.
        drop(tokio::task::spawn_local(async move { runner.run().await }));
        Ok(place.insert(endpoint).clone())
    }

    /// Opens connection `number` to an origin within `timeout`; returns it with the time that the handshake took.
    pub(crate) async fn dial(
        &self,
        to: &Origin,
        number: usize,
        timeout: Duration,
    ) -> Result<(weir_quic::Connection, Duration), Failure> {
        let Some(policy) = &to.quic else { return Err(Failure::Cut) };
        let dialled = to.addresses.dial_by(number, timeout, async |address, rest| {
            let Address::Tcp(address) = *address else { return Err(Failure::Cut) };
            let endpoint = self.of(address).map_err(|e| match weir_wire::limits::ran_out(&e) {
                true => Failure::Descriptors(e.to_string()),
                false => Failure::Connect(e.to_string()),
            })?;
            let begun = Instant::now();
            let connection = endpoint
                .connect(&policy.client, address, &policy.name)
                .map_err(|e| Failure::Connect(format!("QUIC: {e}")))?;
            let connected = weir_wire::time::timeout(rest, poll_fn(|cx| connection.poll_connected(cx)));
            let has_worked = self.answered.borrow().contains(&address);
            let connected = tokio::select! {
                connected = connected => connected,
                e = refusal(address), if !has_worked => return Err(Failure::Connect(format!("UDP: {e}"))),
            };
            match connected {
                Err(_) => Err(Failure::Timeout(Wait::Quic)),
                Ok(Err(lost)) => Err(failure(&lost)),
                Ok(Ok(())) => {
                    self.answered.borrow_mut().insert(address);
                    Ok((connection, begun.elapsed()))
                }
            }
        });
        dialled.await
    }

    /// Packets that were lost, so that their content was sent again.
    pub(crate) fn lost_packets(&self) -> u64 {
        [&self.v4, &self.v6].into_iter().filter_map(|e| e.borrow().as_ref().map(Endpoint::lost_packets)).sum()
    }

    /// Closes all connections, and waits until the target has been told.
    pub(crate) async fn end(&self) {
        let all = [self.v4.take(), self.v6.take()];
        for endpoint in all.into_iter().flatten() {
            endpoint.close_all(weir_h3::code::NO_ERROR);
            // A socket that stays full loses them: then the target closes idle connections by itself.
            let _ = weir_wire::time::timeout(CLOSE, endpoint.flushed()).await;
        }
    }
}

/// Waits until the host at this address says that nobody has the UDP port. QUIC's socket is not told, because it is not
/// connected. A socket of its own asks with a datagram without content, which servers of QUIC ignore. Without such an
/// answer it waits for ever.
async fn refusal(to: SocketAddr) -> io::Error {
    let ask = || {
        let socket = UdpSocket::bind(any_port(to))?;
        socket.set_nonblocking(true)?;
        socket.connect(to)?;
        socket.send(&[])?;
        Ok(socket)
    };
    let asked: io::Result<_> = ask();
    let Ok(socket) = asked else { return std::future::pending().await };
    // The event loops wake for data, and not for an error alone.
    let mut pause = REFUSAL.0;
    loop {
        match socket.recv(&mut [0]) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return e,
            _ => weir_wire::time::sleep(pause).await,
        }
        pause = (pause * 2).min(REFUSAL.1);
    }
}

/// Where a socket is bound that sends to this address: any address of its family, any port.
fn any_port(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// First and longest pause between two looks for a refusal.
const REFUSAL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How long the last packets may take to leave.
const CLOSE: Duration = Duration::from_secs(1);

/// Why there is no connection, with the option that helps.
fn failure(lost: &Lost) -> Failure {
    match lost {
        Lost::Idle => Failure::Timeout(Wait::Quic),
        Lost::Broken(why) if why.contains(NO_PROTOCOL) => {
            Failure::Tls(format!("the target does not offer HTTP/3 (NoApplicationProtocol): {why}"))
        }
        Lost::Broken(why) if why.contains("certificate") => Failure::Tls(format!(
            "{why}; --cacert with its issuer's certificate trusts it, --server-name says what to ask for, \
             --insecure accepts any"
        )),
        Lost::Broken(why) => Failure::Connect(format!("QUIC: {why}")),
        Lost::Closed(_) | Lost::Flood | Lost::Forgotten | Lost::Local => {
            Failure::Connect(format!("QUIC: {lost}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_option_that_helps() {
        let broken = |why: &str| failure(&Lost::Broken(why.to_owned())).text().to_owned();
        assert!(broken("invalid peer certificate: UnknownIssuer").contains("--insecure"));
        assert!(broken("aborted by peer: error 120: x").contains("NoApplicationProtocol"));
        assert_eq!(failure(&Lost::Idle), Failure::Timeout(Wait::Quic));
    }
}
