//! Parsed heads of a connection that may come again.
//!
//! HTTP/2 sees from a block of fields that it has brought the same head before. Parsing the text anew costs 900
//! instructions for a request of `weir load` and 1,300 for a response of nginx (callgrind, h2-h2c). Taking over what was
//! found before costs a comparison and a copy.

use crate::cursor::Limits;
use crate::error::Error;
use crate::head::{RequestHead, ResponseHead};
use crate::parse::{Progress, parse_request, parse_response};

/// How many heads are kept. Ids that differ by a multiple of it share a place.
const PLACES: usize = 4;

/// The parsed heads of one connection, by ids that the caller gives their texts.
#[derive(Debug, Default)]
pub struct ParsedHeads<H>([Option<Box<Parsed<H>>>; PLACES]);

#[derive(Debug)]
struct Parsed<H> {
    id: u32,
    limits: Limits,
    head: H,
}

/// A head of either kind.
pub trait Head: Sized {
    /// Parses the head at the start of the buffer.
    ///
    /// # Errors
    /// The first rule that the bytes break.
    fn parse(&mut self, limits: &Limits) -> Result<Progress, Error>;

    /// A copy, without the bytes after it.
    #[must_use]
    fn copied(&self) -> Self;

    /// Takes over what parsing has found in `known`, if the buffer begins with the same bytes. Returns whether it does.
    fn take_over(&mut self, known: &Self) -> bool;
}

impl<H: Head> ParsedHeads<H> {
    /// Parses the head at the start of the buffer, or takes over the result if it was parsed before. `id` is that of
    /// its text, or 0 if the text is new. The texts are compared, so a wrong id costs time and nothing else.
    ///
    /// # Errors
    /// The first rule that the bytes break.
    #[inline]
    pub fn parse(&mut self, id: u32, head: &mut H, limits: &Limits) -> Result<Progress, Error> {
        if id == 0 { head.parse(limits) } else { self.parse_again(id, head, limits) }
    }

    fn parse_again(&mut self, id: u32, head: &mut H, limits: &Limits) -> Result<Progress, Error> {
        let place = &mut self.0[id as usize % PLACES];
        if let Some(known) = place
            && known.id == id
            && known.limits == *limits
            && head.take_over(&known.head)
        {
            return Ok(Progress::Complete);
        }
        let progress = head.parse(limits)?;
        if progress == Progress::Complete {
            *place = Some(Box::new(Parsed { id, limits: *limits, head: head.copied() }));
        }
        Ok(progress)
    }

    /// Forgets all heads.
    pub fn clear(&mut self) {
        self.0 = Default::default();
    }
}

impl Head for RequestHead {
    fn parse(&mut self, limits: &Limits) -> Result<Progress, Error> {
        parse_request(self, limits)
    }

    fn copied(&self) -> Self {
        self.copied()
    }

    fn take_over(&mut self, known: &Self) -> bool {
        self.take_over(known)
    }
}

impl Head for ResponseHead {
    fn parse(&mut self, limits: &Limits) -> Result<Progress, Error> {
        parse_response(self, limits)
    }

    fn copied(&self) -> Self {
        self.copied()
    }

    fn take_over(&mut self, known: &Self) -> bool {
        self.take_over(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;

    const LIMITS: Limits = Limits { head_bytes: 1000, fields: 10, target_bytes: 100 };

    fn read<H: Head + Default>(
        heads: &mut ParsedHeads<H>,
        (id, text): (u32, &str),
        buffer: impl FnOnce(&mut H) -> &mut Vec<u8>,
    ) -> Result<H, Error> {
        let mut head = H::default();
        buffer(&mut head).extend_from_slice(text.as_bytes());
        assert_eq!(heads.parse(id, &mut head, &LIMITS)?, Progress::Complete);
        Ok(head)
    }

    /// What is taken over is what parsing finds, whatever was done to the head before, and whatever the ids are.
    #[test]
    fn a_head_that_comes_again_is_as_if_parsed() {
        let requests = [
            "GET /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\nContent-Length: 3\r\n\r\nabc",
            "GET /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\nContent-Length: 3\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nHost: a\r\nX: 2\r\nContent-Length: 3\r\n\r\nabc",
            "POST http://a HTTP/1.1\r\nhost: a\r\nte: trailers\r\nx_y: z\r\n\r\n",
            "GET /ws HTTP/1.1\r\nhost: b\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            "PUT /p HTTP/1.1\r\nhost: b\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n",
        ];
        let mut heads = ParsedHeads::default();
        for round in 0..40 {
            for (at, text) in requests.into_iter().enumerate() {
                // Now and then an id of another text, and ids that share a place.
                let id = if round % 5 == 4 { 1 + at as u32 / 2 } else { 1 + at as u32 * (1 + round % 3) };
                let mut fresh = RequestHead::default();
                fresh.buffer_mut().extend_from_slice(text.as_bytes());
                assert_eq!(parse_request(&mut fresh, &LIMITS), Ok(Progress::Complete));
                let mut head = read(&mut heads, (id, text), RequestHead::buffer_mut).unwrap();
                assert_eq!(format!("{head:?}"), format!("{fresh:?}"), "round {round}");
                // What its user changes is not found again.
                head.set_path(b"/changed").unwrap();
                head.headers.remove_known(Known::ContentLength);
                head.become_grpc();
            }
        }
        let responses = [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 204 \r\ncontent-length: 5\r\n\r\n",
            "HTTP/1.1 103 \r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ];
        let mut heads = ParsedHeads::default();
        for _ in 0..3 {
            for (id, text) in (1..).zip(responses) {
                let mut fresh = ResponseHead::default();
                fresh.buffer_mut().extend_from_slice(text.as_bytes());
                assert_eq!(parse_response(&mut fresh, &LIMITS), Ok(Progress::Complete));
                let head = read(&mut heads, (id, text), ResponseHead::buffer_mut).unwrap();
                assert_eq!(format!("{head:?}"), format!("{fresh:?}"));
                assert_eq!(head.rest(), fresh.rest());
            }
        }
    }

    #[test]
    fn tighter_limits_apply_to_known_heads_too() {
        let mut heads = ParsedHeads::default();
        let text = "GET /a HTTP/1.1\r\nhost: a\r\nx: 1\r\ny: 2\r\n\r\n";
        for _ in 0..2 {
            read(&mut heads, (1, text), RequestHead::buffer_mut).unwrap();
        }
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        assert!(heads.parse(1, &mut head, &Limits { fields: 2, ..LIMITS }).is_err());
    }
}
