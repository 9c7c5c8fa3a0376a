//! A connection to an endpoint for bytes that are passed on: always new, never pooled, and of one client.

use super::connect::{Connected, comes_back, is_avoided, look};
use super::connection::{ConnectError, Owner};
use super::endpoint::Active;
use super::gate::Gate;
use super::local::LocalUpstream;
use super::open::{Opening, Purpose, open};
use crate::error;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use weir_wire::time;

/// Opens a connection to the attempt's endpoint within `timeout`. `owner` is the client that a PROXY header names.
/// Dropping the future gives up.
///
/// # Errors
/// Why there is no connection. A failed attempt is counted and logged.
pub async fn connect_for_bytes(
    upstream: &LocalUpstream,
    active: &Active,
    timeout: Duration,
    owner: Option<&Rc<Owner>>,
) -> Result<Connected, ConnectError> {
    let at = active.get();
    let permit = match &upstream.spec.gate {
        None => None,
        Some(gate) => Some(place(upstream, gate, timeout).await?),
    };
    if is_avoided(at) && !comes_back(&at.endpoint.health, look).await {
        return Err(ConnectError::AVOIDED);
    }
    let Opening { exclusive, connect, tls } =
        open(upstream, at, permit, owner, Purpose::Bytes(timeout)).await?;
    let connection = exclusive.ok_or(ConnectError::here(&error::INTERNAL))?; // it always is
    Ok(Connected { connection, connect, tls })
}

/// A place under the upstream's limit of connections.
async fn place(
    upstream: &LocalUpstream,
    gate: &Gate,
    timeout: Duration,
) -> Result<OwnedSemaphorePermit, ConnectError> {
    if let Some(permit) = upstream.enter(gate) {
        return Ok(permit);
    }
    let _waiting = upstream.queue(gate).ok_or(ConnectError::here(&error::PENDING_LIMIT))?;
    let permit = time::timeout(timeout, gate.acquire()).await;
    permit.ok().flatten().ok_or(ConnectError::here(&error::PENDING_TIMEOUT))
}
