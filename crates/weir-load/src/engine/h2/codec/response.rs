//! Frames that belong to a response: heads, data, and what they come to.

use super::super::frame::{self, HEADER, Header, Kind};
use super::super::head::Head;
use super::stream::Stream;
use super::{Answer, BLOCK_MOST, Broken, Codec, Lost, WINDOW, broken};
use super::{CALM, CANCEL, COMPRESSION, FLOW_CONTROL, PROTOCOL};
use crate::units::shown;

impl Codec {
    /// A frame for a stream that has ended here. Its fields change the table, and its data took from the window.
    pub(super) fn late(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        match header.kind {
            Kind::DATA => self.take(payload.len()),
            Kind::RST_STREAM => Ok(()),
            _ => self.fields(header, payload, &mut Vec::new()),
        }
    }

    /// HEADERS or CONTINUATION.
    pub(super) fn fields(
        &mut self,
        header: &Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        if header.kind == Kind::CONTINUATION {
            let Some((stream, flags)) = self.continued else {
                return broken(PROTOCOL, "CONTINUATION without HEADERS");
            };
            if self.block.len() + payload.len() > BLOCK_MOST {
                return broken(CALM, "a head is longer than 256 KiB");
            }
            self.block.extend_from_slice(payload);
            if !header.has(frame::END_HEADERS) {
                return Ok(());
            }
            self.continued = None;
            let block = std::mem::take(&mut self.block);
            let outcome = self.block(stream, &block, flags & frame::END_STREAM != 0, answers);
            self.block = block;
            return outcome;
        }
        let Some(content) = frame::content(header, payload) else {
            return broken(PROTOCOL, "padding longer than its frame");
        };
        if header.has(frame::END_HEADERS) {
            return self.block(header.stream, content, header.has(frame::END_STREAM), answers);
        }
        self.block.clear();
        self.block.extend_from_slice(content);
        self.continued = Some((header.stream, header.flags));
        Ok(())
    }

    /// A whole block of fields.
    fn block(&mut self, id: u32, block: &[u8], ends: bool, answers: &mut Vec<Answer>) -> Result<(), Broken> {
        // Heads and trailers take turns, so each has its own.
        let is_trailer = self.streams.get(&id).is_some_and(|s| s.response.status != 0);
        let wanted = self.is_captured(id);
        let [of_heads, of_trailers] = &mut self.known;
        let known = if is_trailer { of_trailers } else { of_heads };
        let is_known =
            known.changes == self.decoder.changes() && !known.block.is_empty() && known.block == block;
        let mut other = Head::default();
        if !is_known || wanted {
            let before = self.decoder.changes();
            let mut capture = self.capture.as_mut().filter(|_| wanted);
            let decoded = self.decoder.decode(block, |name, value| {
                other.field(name, value);
                if let Some(capture) = &mut capture {
                    let text = || Some(shown(value));
                    match name {
                        b"server" => capture.server = text(),
                        b"content-type" => capture.content_type = text(),
                        _ => {}
                    }
                }
            });
            if decoded.is_err() {
                return broken(COMPRESSION, "a head is no HPACK");
            }
            if before == self.decoder.changes() {
                known.block.clear();
                known.block.extend_from_slice(block);
                (known.changes, known.head) = (before, other.clone());
            }
        }
        let head = if is_known { &known.head } else { &other };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let outcome = if stream.response.status == 0 { head.begin(ends) } else { head.trail(ends) };
        match outcome {
            Err(text) => {
                self.reset(id, PROTOCOL);
                self.lose(id, Lost::Protocol(format!("HTTP/2: {text}")), answers);
            }
            Ok(None) => {} // an interim response
            Ok(Some(status)) => {
                if stream.response.status == 0 {
                    (stream.response.status, stream.length) = (status, head.length());
                    stream.call.is_grpc = head.is_grpc;
                }
                if self.is_grpc {
                    stream.call.code = head.code.or(stream.call.code);
                    stream.call.text = head.text.clone().or_else(|| stream.call.text.take());
                }
                if ends {
                    self.complete(id, answers);
                }
            }
        }
        Ok(())
    }

    pub(super) fn data(
        &mut self,
        header: &Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        self.take(payload.len())?;
        let Some(content) = frame::content(header, payload) else {
            return broken(PROTOCOL, "padding longer than its frame");
        };
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.room -= payload.len() as i64;
        if stream.room < 0 {
            return broken(FLOW_CONTROL, "more data than the window of a stream");
        }
        let r = &mut stream.response;
        r.body_bytes += content.len() as u64;
        r.framing_bytes += (HEADER + payload.len() - content.len()) as u64;
        let beyond = stream.is_head || stream.length.is_some_and(|n| r.body_bytes > n);
        if r.status == 0 || (beyond && !content.is_empty()) {
            let text = if r.status == 0 { "data before the head" } else { "more data than Content-Length" };
            self.reset(id, PROTOCOL);
            self.lose(id, Lost::Protocol(format!("HTTP/2: {text}")), answers);
            return Ok(());
        }
        if self.keeps_bodies {
            let room = self.kept_most.saturating_sub(stream.kept.len()).min(content.len());
            stream.kept.extend_from_slice(content.get(..room).unwrap_or_default());
        }
        if self.is_grpc && stream.call.is_grpc && stream.call.messages.feed(content).is_err() {
            self.reset(id, PROTOCOL);
            let text = "gRPC: a message is compressed, though no coding was accepted";
            self.lose(id, Lost::Protocol(text.to_owned()), answers);
            return Ok(());
        }
        if header.has(frame::END_STREAM) {
            self.complete(id, answers);
        } else if stream.room < i64::from(WINDOW / 2) {
            let more = (i64::from(WINDOW) - stream.room) as u32;
            stream.room = i64::from(WINDOW);
            frame::write(Kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes(), &mut self.out);
        }
        Ok(())
    }

    /// Takes data from the window of the connection, and gives it back in large pieces.
    fn take(&mut self, len: usize) -> Result<(), Broken> {
        self.room -= len as i64;
        if self.room < 0 {
            return broken(FLOW_CONTROL, "more data than the window of the connection");
        }
        if self.room < i64::from(WINDOW / 2) {
            let more = (i64::from(WINDOW) - self.room) as u32;
            self.room = i64::from(WINDOW);
            frame::write(Kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), &mut self.out);
        }
        Ok(())
    }

    /// The response has come to its end.
    fn complete(&mut self, id: u32, answers: &mut Vec<Answer>) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        if self.is_grpc {
            stream.end_call();
        }
        let r = stream.response;
        let has_none = stream.is_head || matches!(r.status, 204 | 304);
        if !has_none && stream.length.is_some_and(|n| n != r.body_bytes) {
            // RFC 9113 §8.1.1: malformed.
            self.streams.insert(id, stream);
            self.lose(id, Lost::Protocol("HTTP/2: less data than Content-Length".to_owned()), answers);
            return;
        }
        if stream.body.is_some() {
            self.reset(id, CANCEL); // it answered before it had all of the request
        }
        let (body, text) = (stream.kept, stream.call.text);
        answers.push(Answer { key: stream.key, first: stream.first, result: Ok(r), body, text });
    }

    pub(super) fn lose(&mut self, id: u32, lost: Lost, answers: &mut Vec<Answer>) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.overhead +=
            stream.response.head_bytes + stream.response.body_bytes + stream.response.framing_bytes;
        let Stream { key, first, .. } = stream;
        answers.push(Answer { key, first, result: Err(lost), body: Vec::new(), text: None });
    }
}
