//! Phase 6 for our own answers: whole, from a file, or produced while they are sent.

use super::bodies::{Direction, run_body_hooks};
use super::hooks::Reply;
use super::{Exchange, Next, Phase, Stop, unless_gone};
use crate::files::Site;
use crate::respond::{self, LocalResponse};
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use weir_filter::file_source::FileSource;
use weir_filter::filter::{Body, BodySource, FileRange, Mark};
use weir_h1::{BodyKind, Known, ResponseHead, Version, write_chunk, write_last_chunk};
use weir_upstream::error::{self, Cause};
use weir_wire::pages::is_resident;
use weir_wire::relay::{Framing, Seen};
use weir_wire::time;

/// How long a body's source may produce nothing. The same as a client may accept nothing.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many bytes of a file in memory are sent in one go before other tasks of this core get a turn.
const PAGES_BYTES: u64 = 256 * 1024;

/// A body up to this size is sent in one write with its head; a larger one is written from shared memory.
const COPY_BYTES: usize = 4 * 1024;

impl Exchange<'_> {
    /// Answers with a file; `None` if there is none and the request goes on.
    pub(super) async fn send_file(&mut self, site: Arc<Site>) -> Result<Option<Next>, Stop> {
        let core = self.client.core.handle.clone();
        let found = unless_gone(self.client, pin!(site.answer(&self.head, &core))).await?;
        match found {
            Ok(Some(answer)) => {
                self.answers_itself();
                Ok(Some(self.write_local(respond::answer(answer)).await))
            }
            Ok(None) => {
                self.has_waited = true; // perhaps for a disk
                Ok(None)
            }
            Err(refusal) => Err(Stop::Refuse(refusal)),
        }
    }

    /// Passes one of our own answers through the response filters and writes it.
    pub(super) async fn write_local(&mut self, response: LocalResponse) -> Next {
        self.read_off_body();
        let mut response = response;
        if self.cx.is_some() && self.phase == Phase::Open {
            let mut reply = Reply::Local(response);
            if let Err(stop) = self.filter_response(&mut reply).await {
                self.record.cause = Some(stop.cause());
                return self.cut(stop.cause());
            }
            let Reply::Local(filtered) = reply else { return self.cut(&error::INTERNAL) };
            response = filtered;
        }
        self.send_local(response).await
    }

    /// Writes one of our own answers after the head has passed the filters. Passes its body through them here.
    pub(super) async fn send_local(&mut self, response: LocalResponse) -> Next {
        self.can_keep &=
            self.request_over && !(self.head.expects_continue() && self.head.body() != BodyKind::Empty);
        let LocalResponse { mut head, body } = response;
        let empty = self.answers_head() || matches!(head.status(), 204 | 304);
        let body = match body {
            Body::Bytes(body) => body,
            Body::File(range) => {
                let core = self.client.core.handle.clone();
                let source = Box::new(FileSource::new(range.clone(), core));
                return Box::pin(self.send_stream(head, source, Some(range), empty)).await;
            }
            Body::Stream(source) => return Box::pin(self.send_stream(head, source, None, empty)).await,
        };
        let body = match self.change_local(body, empty) {
            Ok(body) => body,
            Err(cause) => {
                self.record.cause = Some(cause);
                return self.cut(cause); // nothing was sent, and the answer itself is refused
            }
        };
        let body = if self.has_pending() {
            match Box::pin(self.pending_piece()).await {
                Ok(made) => made.into(),
                Err(cause) => {
                    self.record.cause = Some(cause);
                    return self.cut(cause); // as above
                }
            }
        } else {
            body
        };
        self.record.status = head.status();
        self.keep_fields(&head);
        self.phase = Phase::Begun(Framing::Length);
        let mut out = self.client.core.take_buffer();
        let mut connection = Vec::new();
        self.write_alt_svc(&head.headers, &mut connection);
        self.write_connection(&mut connection);
        let length = (!self.drops_length()).then_some(body.len());
        write_answer(&mut head, length, &connection, &mut out);
        let body = if empty { Bytes::new() } else { body };
        self.record.body_out = body.len() as u64;
        self.record.sent += (out.len() + body.len()) as u64;
        let apart = if body.len() > COPY_BYTES {
            body
        } else {
            out.extend_from_slice(&body);
            Bytes::new()
        };
        let written = match self.client.write_all_of(out, &apart).await {
            Ok(()) => self.client.finish(&[]).await,
            Err(cause) => Err(cause),
        };
        match written {
            Ok(()) => self.next(),
            Err(cause) => {
                self.record.cause.get_or_insert(cause);
                self.cut(cause)
            }
        }
    }

    /// Whether the client sent HEAD, even if a filter changed the method: no body may follow the head.
    pub(super) fn answers_head(&self) -> bool {
        self.head.received_method() == b"HEAD"
    }

    /// Whether a filter knows that a GET would have another length.
    fn drops_length(&self) -> bool {
        self.answers_head() && self.cx.as_ref().is_some_and(|cx| cx.length_dropped)
    }

    /// Passes a whole body of our own through the filters that watch bodies.
    fn change_local(&mut self, body: Bytes, empty: bool) -> Result<Bytes, &'static Cause> {
        let Some(cx) = self.cx.as_mut().filter(|cx| !empty && !cx.response_bodies.is_empty()) else {
            return Ok(body);
        };
        let seen = Seen { data: &body, mark: Mark::Last, trailers: None };
        let changed = run_body_hooks(&self.local, cx, Direction::Response, seen).map_err(|r| r.cause)?;
        Ok(changed.map_or(body, Bytes::from))
    }

    /// Writes an answer whose body is produced while it is sent; `file` is set for part of a file.
    async fn send_stream(
        &mut self,
        mut head: ResponseHead,
        mut source: Box<dyn BodySource>,
        file: Option<FileRange>,
        empty: bool,
    ) -> Next {
        let seen = self.cx.as_ref().is_some_and(|cx| !cx.response_bodies.is_empty());
        let file = file.filter(|_| !seen && self.client.stream.sends_files());
        let changed = self.cx.as_ref().is_some_and(|cx| cx.response_bodies.change());
        let length = source.length().filter(|_| !changed && !self.drops_length());
        let framing = match (length, self.head.version()) {
            (Some(_), _) => Framing::Length,
            (None, Version::Http11) => Framing::Chunked,
            (None, _) => Framing::Close,
        };
        self.can_keep &= framing != Framing::Close || empty;
        self.record.status = head.status();
        self.keep_fields(&head);
        self.phase = Phase::Begun(framing);
        let mut out = self.client.core.take_buffer();
        head.headers.remove_known(Known::ContentLength);
        head.write_line_and_fields(&mut out);
        if matches!(head.status(), 204 | 304) {
            // Neither has a body or a field that describes one (RFC 9110 §8.6).
        } else if let Some(length) = length {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        } else if framing == Framing::Chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        self.write_alt_svc(&head.headers, &mut out);
        self.write_connection(&mut out);
        out.extend_from_slice(b"\r\n");
        let sent = match file {
            _ if empty => self.send_piece(out, Bytes::new()).await,
            Some(range) => self.send_pages(out, range).await,
            None => self.send_pieces(out, &mut *source, framing).await,
        };
        let sent = match sent {
            Ok(()) => self.client.finish(&[]).await,
            Err(cause) => Err(cause),
        };
        match sent {
            Ok(()) => self.next(),
            Err(cause) => self.broken_off(cause).await,
        }
    }

    /// Writes pieces after `out` until the source ends.
    async fn send_pieces(
        &mut self,
        mut out: Vec<u8>,
        source: &mut dyn BodySource,
        framing: Framing,
    ) -> Result<(), &'static Cause> {
        let mut left = source.length();
        loop {
            let piece = self.next_piece(source).await?;
            let (data, mark) = match piece {
                Some(data) => (data, Mark::More),
                None => (Bytes::new(), Mark::Last),
            };
            if let Some(left) = &mut left {
                *left = left.checked_sub(data.len() as u64).ok_or(&error::SOURCE_FAILED)?;
            }
            self.record.body_out += data.len() as u64;
            let changed = match &mut self.cx {
                Some(cx) if !cx.response_bodies.is_empty() => {
                    let seen = Seen { data: &data, mark, trailers: None };
                    run_body_hooks(&self.local, cx, Direction::Response, seen).map_err(|r| r.cause)?
                }
                _ => None,
            };
            let data = match changed {
                Some(_) if self.has_pending() => self.pending_piece().await?.into(),
                Some(changed) => changed.into(),
                None => data,
            };
            if mark != Mark::Last {
                self.held().await;
            }
            let apart = if framing == Framing::Chunked {
                write_chunk(&data, &mut out);
                Bytes::new()
            } else {
                data
            };
            if mark == Mark::Last {
                if left.is_some_and(|left| left > 0) {
                    return Err(&error::SOURCE_FAILED);
                }
                if framing == Framing::Chunked {
                    write_last_chunk(&[], &mut out);
                }
                return self.send_piece(out, apart).await;
            }
            self.send_piece(std::mem::take(&mut out), apart).await?;
            out = self.client.core.take_buffer();
        }
    }

    /// Writes part of a file after `out`. Bytes in the page cache are sent from there, 20 % less work than reading
    /// and writing them (230 KB over loopback: 66 µs of processor time instead of 85, including head and open).
    /// Threads read the rest.
    async fn send_pages(&mut self, mut out: Vec<u8>, range: FileRange) -> Result<(), &'static Cause> {
        let FileRange { file, mut offset, length } = range;
        let end = offset.saturating_add(length);
        while offset < end {
            let part = (end - offset).min(PAGES_BYTES);
            if is_resident(&file, offset, part) {
                self.record.sent += out.len() as u64;
                self.client.send_file(std::mem::take(&mut out), &file, offset, part).await?;
                self.record.body_out += part;
                self.record.sent += part;
            } else {
                let core = self.client.core.handle.clone();
                let range = FileRange { file: Arc::clone(&file), offset, length: part };
                let mut source = FileSource::new(range, core);
                while let Some(piece) = self.next_piece(&mut source).await? {
                    self.record.body_out += piece.len() as u64;
                    self.send_piece(std::mem::take(&mut out), piece).await?;
                }
            }
            offset += part;
            if offset < end {
                weir_wire::yield_now().await;
            }
        }
        self.send_piece(out, Bytes::new()).await // an empty file: only the head
    }

    async fn send_piece(&mut self, out: Vec<u8>, apart: Bytes) -> Result<(), &'static Cause> {
        self.record.sent += (out.len() + apart.len()) as u64;
        self.client.write_all_of(out, &apart).await
    }

    async fn next_piece(&mut self, source: &mut dyn BodySource) -> Result<Option<Bytes>, &'static Cause> {
        let piece = poll_fn(|cx| source.poll_piece(cx));
        let piece = unless_gone(self.client, pin!(time::timeout(SOURCE_TIMEOUT, piece))).await;
        match piece {
            Ok(Ok(piece)) => piece,
            Ok(Err(_)) => Err(&error::SOURCE_FAILED),
            Err(gone) => Err(gone.cause()),
        }
    }

    /// Reads the whole body of our own answer for a filter that decides by it. The limit does not apply to a body
    /// already in memory.
    pub(super) async fn gather_local(&mut self, body: Body, limit: usize) -> Result<Bytes, Stop> {
        let mut source: Box<dyn BodySource> = match body {
            Body::Bytes(body) => return Ok(body),
            Body::File(range) => {
                let core = self.client.core.handle.clone();
                Box::new(FileSource::new(range, core))
            }
            Body::Stream(source) => source,
        };
        let mut whole = Vec::new();
        loop {
            match self.next_piece(&mut *source).await {
                Ok(Some(piece)) => whole.extend_from_slice(&piece),
                Ok(None) => return Ok(whole.into()),
                Err(cause) if cause.status == 0 && *cause != error::SOURCE_FAILED => {
                    return Err(Stop::Cut(cause));
                }
                Err(_) => return Err(Stop::refuse(&error::INTERNAL)),
            }
            if whole.len() > limit {
                return Err(Stop::refuse(&error::RESPONSE_TOO_LARGE));
            }
        }
    }
}

/// Writes the head of our own answer, with the length of its body if it is to be sent; `connection` is the connection
/// field.
pub(crate) fn write_answer(
    head: &mut ResponseHead,
    length: Option<usize>,
    connection: &[u8],
    out: &mut Vec<u8>,
) {
    head.headers.remove_known(Known::ContentLength);
    head.write_line_and_fields(out);
    if let Some(length) = length.filter(|_| !matches!(head.status(), 204 | 304)) {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(connection);
    out.extend_from_slice(b"\r\n");
}
