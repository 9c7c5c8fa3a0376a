//! Follows the containers of a Docker engine: reads the list, and again after each event.

use super::AskContext;
use super::desk::Desk;
use crate::fetch::{FetchRequest, Following, Url, fetch};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use weir_config::schema::{DockerDiscovery, EndpointAddress};
use weir_discover::Choice;
use weir_discover::docker::{ANSWER_BYTES, Containers};
use weir_wire::listen::Address;

/// Timeout of the list, and of the head of the stream of events.
const WAIT: Duration = Duration::from_secs(10);

/// How long the stream of events may be silent before the list is read anyway. An engine that is stuck does not say so,
/// and Docker reports no event of a container when its networks change.
const SILENCE: Duration = Duration::from_secs(30);

/// The pause before the list is read after an event. Containers often start together.
const GATHER: Duration = Duration::from_millis(100);

/// A stream that lasted at least this long did not fail when it ended.
const LASTED: Duration = Duration::from_secs(1);

/// Returns only if asking is impossible.
pub(super) async fn follow(
    written: &DockerDiscovery,
    service: &str,
    choice: Choice,
    around: &AskContext,
    desk: &Desk,
) -> Result<Infallible, String> {
    let name = written.service.as_deref().unwrap_or(service);
    let containers = Containers::new(name, written.network.as_deref(), choice);
    let (authority, socket) = match &written.address {
        // Docker's clients send such a host too.
        EndpointAddress::Unix(path) => ("docker".to_owned(), Some(Address::Unix(path.clone()))),
        other => (other.to_string(), None),
    };
    let engine: Url =
        format!("http://{authority}").parse().map_err(|_| format!("{authority} is not a host"))?;
    let engine = Engine { url: engine, socket };
    loop {
        match once(&engine, &containers, around, desk).await {
            Ok(()) => tokio::time::sleep(GATHER).await,
            Err(why) => tokio::time::sleep(desk.failed(format!("{}: {why}", written.address))).await,
        }
    }
}

/// Where the engine is.
struct Engine {
    url: Url,
    socket: Option<Address>,
}

impl Engine {
    fn request(&self, target: &str, timeout: Duration) -> FetchRequest {
        let request = FetchRequest::get(self.url.with_target(target), ANSWER_BYTES, timeout);
        FetchRequest { socket: self.socket.clone(), ..request }
    }
}

/// Follows the events until their stream ends. Fails with the reason.
async fn once(
    engine: &Engine,
    containers: &Containers,
    around: &AskContext,
    desk: &Desk,
) -> Result<(), String> {
    // The stream first, so that no change between the two is missed.
    let opened = Instant::now();
    let request = engine.request(&containers.events(), WAIT);
    let events = tokio::time::timeout(WAIT, Following::open(&request, &around.environment)).await;
    let mut events =
        events.map_err(|_| "no answer in time")?.map_err(|e| weir_wire::Chain(&e).to_string())?;
    if events.status != 200 {
        return Err(format!("the engine answers {} to a request for events", events.status));
    }
    loop {
        desk.answered(list(engine, containers, around).await?, false);
        // What an event says does not matter, and is not kept.
        match tokio::time::timeout(SILENCE, events.piece()).await {
            Err(_) | Ok(Ok(Some(_))) => tokio::time::sleep(GATHER).await,
            Ok(_) if opened.elapsed() < LASTED => return Err("the stream of events ended at once".to_owned()),
            Ok(_) => return Ok(()),
        }
    }
}

async fn list(
    engine: &Engine,
    containers: &Containers,
    around: &AskContext,
) -> Result<weir_discover::Listing, String> {
    let request = engine.request(&containers.list(), WAIT);
    let answer = tokio::time::timeout(WAIT, fetch(&request, &around.environment)).await;
    let answer = answer.map_err(|_| "no answer in time")?.map_err(|e| weir_wire::Chain(&e).to_string())?;
    if answer.status != 200 {
        let said: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        return Err(format!("the engine answers {}: {}", answer.status, said.trim()));
    }
    containers.listing(&answer.body)
}
