//! Tries unreachable endpoints again when their avoidance is over. Requests do so too, on connections that they then
//! use. Without a request nobody else would, and a healthy endpoint would stay out of rotation.

use crate::error::{self, Cause};
use crate::upstream::endpoint::Endpoint;
use crate::upstream::open::blamed;
use crate::upstream::spec::{Protocol, Upstream};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use weir_wire::dial::{How, dial_as};
use weir_wire::h2::{Link, window_for};
use weir_wire::proxy_protocol;

/// How often to look for endpoints whose avoidance is over.
const EVERY: Duration = Duration::from_secs(1);

/// Most concurrent trials. The rest start at the next look.
const AT_ONCE: usize = 64;

/// Tries endpoints of the running snapshot's upstreams, until dropped. Runs on a `LocalSet`, because connections do
/// not change threads.
pub async fn try_out(watched: Arc<ArcSwap<Vec<Arc<Upstream>>>>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        tokio::time::sleep(EVERY).await;
        for upstream in watched.load().iter() {
            for endpoint in upstream.published.list().iter() {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
                if endpoint.health.claim_trial(Instant::now(), upstream.timeouts.connect) {
                    let (upstream, endpoint) = (Arc::clone(upstream), Arc::clone(endpoint));
                    drop(tokio::task::spawn_local(async move {
                        let _place = place;
                        try_one(&upstream, &endpoint).await;
                    }));
                }
            }
        }
    }
}

/// Finds out whether an endpoint is reachable, and notes it. If our own limits prevent that, the next trial decides.
async fn try_one(upstream: &Upstream, endpoint: &Endpoint) {
    match connect(upstream, endpoint).await {
        Ok(()) => endpoint.health.connected(Instant::now()),
        Err(Some(cause)) => endpoint.health.connect_failed(cause, Instant::now()),
        Err(None) => {}
    }
}

/// Connects as a request would, and closes. Returns the cause if the endpoint is to blame.
async fn connect(upstream: &Upstream, endpoint: &Endpoint) -> Result<(), Option<&'static Cause>> {
    let tls = upstream.tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
    let told = upstream.way.proxy_protocol.map(|version| proxy_protocol::header(version, None));
    let how = How { source: upstream.way.source, preface: told.as_deref().unwrap_or_default() };
    let timeout = upstream.timeouts.connect;
    let dialled = dial_as(how, &endpoint.address, tls, timeout).await.map_err(|e| blamed(&e))?;
    let by_http2 = match upstream.protocol {
        Protocol::FastCgi | Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Negotiated => dialled.transport.chose_h2(),
    };
    if !by_http2 {
        return Ok(());
    }
    let window = window_for(dialled.round_trip);
    let greeting = Link::begin(dialled.transport, window, upstream.head_bytes, Box::new(|| {}));
    match tokio::time::timeout(timeout, greeting).await {
        Ok(Ok((link, _))) if link.capacity() == 0 => Err(Some(&error::UPSTREAM_NO_STREAMS)),
        Ok(Ok((link, _))) if !link.is_open() => Err(Some(&error::UPSTREAM_CLOSED)),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Some(&error::UPSTREAM_PROTOCOL)),
        Err(_) => Err(Some(&error::CONNECT_TIMEOUT)),
    }
}
