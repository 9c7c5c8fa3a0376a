//! `grpc.health.v1.Health`: the origin and its greeter are always healthy.

use super::{Call, Code, Status, Stop, wire};

const SERVING: u64 = 1;
const SERVICE_UNKNOWN: u64 = 3;

/// The services a client can ask for; the empty name is the whole server.
const KNOWN: &[&str] = &["", "helloworld.v1.Greeter"];

pub(super) async fn check(call: &mut Call) -> Result<(), Stop> {
    let (service, is_known) = asked(call).await?;
    if !is_known {
        return Err(Status::new(Code::NOT_FOUND, format!("the origin has no service {service}")).into());
    }
    answer(call, SERVING).await
}

/// Reports the state once, since it never changes, and stays open as the protocol requires.
pub(super) async fn watch(call: &mut Call) -> Result<(), Stop> {
    let (_, is_known) = asked(call).await?;
    answer(call, if is_known { SERVING } else { SERVICE_UNKNOWN }).await?;
    if let Some(stream) = &mut call.stream {
        std::future::poll_fn(|cx| stream.poll_reset(cx)).await?;
    }
    Ok(())
}

async fn asked(call: &mut Call) -> Result<(String, bool), Stop> {
    let message = call.only().await?;
    let mut service = "";
    wire::read(&message, |field, value| {
        if field == 1 {
            service = value.text();
        }
    })?;
    Ok((service.to_owned(), KNOWN.contains(&service)))
}

async fn answer(call: &mut Call, status: u64) -> Result<(), Stop> {
    let mut reply = Vec::new();
    wire::number(1, status, &mut reply);
    call.send(&reply).await
}
