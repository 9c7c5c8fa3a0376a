//! `helloworld.v1.Greeter`, with all four kinds of calls (proto/greeter.proto).

use std::time::Duration;

use super::wire::{self, Value};
use super::{Call, Code, MESSAGE_MOST, Status, Stop};

/// Longest wait before a reply.
const DELAY_MOST: u64 = 60_000;

/// Most replies to one request.
const REPLIES_MOST: u64 = 1_000_000;

/// Replies of `LotsOfReplies` if the request names no number.
const REPLIES: u64 = 3;

/// `HelloRequest`.
#[derive(Debug, Default)]
struct Request {
    name: String,
    code: u32,
    delay: Duration,
    replies: u64,
    echo_metadata: bool,
}

impl Request {
    fn read(message: &[u8]) -> Result<Self, Status> {
        let mut request = Self::default();
        let mut is_text = true;
        wire::read(message, |field, value| match (field, value) {
            (1, Value::Bytes(name)) => match std::str::from_utf8(name) {
                Ok(name) => name.clone_into(&mut request.name),
                Err(_) => is_text = false,
            },
            (2, value) => request.code = u32::try_from(value.number()).unwrap_or(u32::MAX),
            (3, value) => request.delay = Duration::from_millis(value.number().min(DELAY_MOST)),
            (4, value) => request.replies = value.number().min(REPLIES_MOST),
            (5, value) => request.echo_metadata = value.number() != 0,
            _ => {}
        })?;
        if !is_text {
            return Err(Status::new(Code::INVALID_ARGUMENT, "the name is not UTF-8"));
        }
        Ok(request)
    }

    /// Waits as requested; fails with the requested status, unless it is OK.
    async fn heed(&self) -> Result<(), Status> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.code == 0 {
            return Ok(());
        }
        Err(Status::new(Code(self.code), format!("code {} was asked for", self.code)))
    }

    /// The `HelloReply` to this name.
    fn reply(&self, call: &Call, name: &str) -> Vec<u8> {
        let mut reply = Vec::with_capacity(16 + name.len());
        let text = ["hello ", name].concat();
        wire::bytes(1, text.as_bytes(), &mut reply);
        if self.echo_metadata {
            for (name, value) in &call.metadata {
                let line = format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()));
                wire::bytes(2, line.as_bytes(), &mut reply);
            }
        }
        reply
    }
}

pub(super) async fn say_hello(call: &mut Call) -> Result<(), Stop> {
    let request = Request::read(&call.only().await?)?;
    request.heed().await?;
    let reply = request.reply(call, &request.name);
    call.send(&reply).await
}

pub(super) async fn lots_of_replies(call: &mut Call) -> Result<(), Stop> {
    let request = Request::read(&call.only().await?)?;
    let reply = request.reply(call, &request.name);
    let replies = if request.replies == 0 { REPLIES } else { request.replies };
    for _ in 0..replies {
        if !request.delay.is_zero() {
            tokio::time::sleep(request.delay).await;
        }
        call.send(&reply).await?;
    }
    Ok(Request { delay: Duration::ZERO, ..request }.heed().await?)
}

pub(super) async fn lots_of_greetings(call: &mut Call) -> Result<(), Stop> {
    let mut all = Request::default();
    while let Some(message) = call.next().await? {
        let request = Request::read(&message)?;
        request.heed().await?;
        if !all.name.is_empty() {
            all.name.push_str(", ");
        }
        all.name.push_str(&request.name);
        all.echo_metadata |= request.echo_metadata;
        if all.name.len() > MESSAGE_MOST {
            return Err(Status::new(Code::RESOURCE_EXHAUSTED, "the names are longer than 4 MiB").into());
        }
    }
    let reply = all.reply(call, &all.name);
    call.send(&reply).await
}

pub(super) async fn bidi_hello(call: &mut Call) -> Result<(), Stop> {
    while let Some(message) = call.next().await? {
        let request = Request::read(&message)?;
        request.heed().await?;
        let reply = request.reply(call, &request.name);
        for _ in 0..request.replies.max(1) {
            call.send(&reply).await?;
        }
    }
    Ok(())
}
