//! Opens a connection to an origin: directly or through a proxy (RFC 9110 §9.3.6).
//!
//! Plain `http` requests go to the proxy in absolute form, and opening only dials it. Everything else uses a tunnel
//! opened here; TLS inside it is with the origin.

use super::failure::{Failure, Wait};
use super::origin::{Origin, Proxy};
use std::cell::Cell;
use std::future::poll_fn;
use std::time::{Duration, Instant};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_wire::dial::Dialled;
use weir_wire::{Transport, time};

/// Longest answer to CONNECT.
const ANSWER_MOST: usize = 64 * 1024;

/// Opens connection `number` to an origin within `timeout`. Setting up a tunnel counts as connecting.
pub(crate) async fn open(to: &Origin, number: usize, timeout: Duration) -> Result<Dialled, Failure> {
    let named = |failure| match (failure, &to.proxy) {
        (Failure::Connect(text), Some(proxy)) => {
            Failure::Connect(format!("the proxy {}: {text}", proxy.name))
        }
        (other, _) => other,
    };
    let begun = Instant::now();
    let mut dialled = to.addresses.dial(number, timeout).await.map_err(named)?;
    let asked = to.proxy.as_ref().and_then(|proxy| Some((proxy, proxy.connect.as_ref()?)));
    if asked.is_none() && to.tls.is_none() {
        return Ok(dialled);
    }
    let (rest, lost) = (timeout.saturating_sub(begun.elapsed()), begun.elapsed() - dialled.connect);
    let wait = Cell::new(if asked.is_some() { Wait::Connect } else { Wait::Tls });
    let through = async {
        let mut transport = dialled.transport;
        if let Some((proxy, connect)) = asked {
            tunnel(&mut transport, proxy, connect).await?;
        }
        wait.set(Wait::Tls);
        let connected = begun.elapsed();
        let transport = match (to.tls(), transport) {
            (Some((policy, name)), Transport::Plain(socket)) => {
                policy.connect(socket, name).await.map_err(|e| Failure::of_tls(&e))?.into()
            }
            (_, transport) => transport,
        };
        Ok((transport, connected))
    };
    let (transport, connected) =
        time::timeout(rest, through).await.unwrap_or_else(|_| Err(Failure::Timeout(wait.get())))?;
    (dialled.transport, dialled.connect, dialled.tls) =
        (transport, connected - lost, begun.elapsed() - connected);
    Ok(dialled)
}

/// Asks the proxy for a tunnel; the stream then is the tunnel.
async fn tunnel(transport: &mut Transport, proxy: &Proxy, connect: &[u8]) -> Result<(), Failure> {
    let lost = |text: &str| Failure::Connect(format!("the proxy {}: {text}", proxy.name));
    let mut written = 0;
    while let Some(rest) = connect.get(written..).filter(|r| !r.is_empty()) {
        match poll_fn(|cx| transport.poll_write(cx, rest)).await {
            Ok(0) => return Err(lost("the connection was closed")),
            Ok(n) => written += n,
            Err(e) => return Err(lost(&e.to_string())),
        }
    }
    let mut answer = ResponseHead::default();
    loop {
        match parse_response(&mut answer, &Limits::default()) {
            Err(e) => return Err(lost(&format!("its answer to CONNECT is not HTTP: {e}"))),
            Ok(Progress::Complete) => break,
            Ok(Progress::Partial) if answer.buffer().len() > ANSWER_MOST => {
                return Err(lost("its answer to CONNECT has no end"));
            }
            Ok(Progress::Partial) => {}
        }
        match poll_fn(|cx| transport.poll_read(cx, answer.buffer_mut())).await {
            Ok(0) => return Err(lost("the connection was closed before CONNECT was answered")),
            Ok(_) => {}
            Err(e) => return Err(lost(&e.to_string())),
        }
    }
    match answer.status() {
        200..=299 if answer.rest().is_empty() => Ok(()),
        // In TLS, WebSocket and HTTP/2 the client speaks first, so the server cannot have sent anything yet.
        200..=299 => Err(lost("it sent more than its answer to CONNECT")),
        status => Err(lost(&format!("CONNECT was answered {status}"))),
    }
}
