//! `envoy.service.ext_proc.v3.ExternalProcessor`: a processor that changes nothing, to measure what asking one costs.

use super::{Call, Code, Status, Stop};

/// Answers each message with an empty answer of its kind.
pub(super) async fn process(call: &mut Call) -> Result<(), Stop> {
    while let Some(message) = call.next().await? {
        // The kind is a field from 2 to 7, and its answer the one below (a oneof, so it comes first and alone).
        let kind = message.first().map(|key| key >> 3).filter(|kind| (2..=7).contains(kind));
        let kind = kind.ok_or_else(|| Status::new(Code::INVALID_ARGUMENT, "a message of no known kind"))?;
        call.send(&[(kind - 1) << 3 | 2, 0]).await?;
    }
    Ok(())
}
