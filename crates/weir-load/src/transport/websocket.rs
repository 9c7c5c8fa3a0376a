//! WebSocket frames as bytes, from the client's side (RFC 6455 §5). No sockets and no clock.

use crate::transport::reader::{Response, keep};
use fastrand::Rng;
use weir_report::units::shown;

/// Longest message that is read. Only the part for checks is kept, so this limits time, not memory.
const MESSAGE_MOST: u64 = 64 * 1024 * 1024;

/// Longest payload of a control frame (RFC 6455 §5.5).
const CONTROL_MOST: u64 = 125;

/// Unwritten bytes of pongs. Further pings get no answer: RFC 6455 §5.5.3 requires one for the latest only.
const PONGS_MOST: usize = 16 * 1024;

/// Kinds of frames (RFC 6455 §5.2).
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
const CONTINUATION: u8 = 0;
pub(crate) const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What to send over a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Binary,
    Text,
}

/// Reads the frames of one connection in sequence.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The beginning of an incomplete frame head.
    partial: Vec<u8>,
    frame: Option<Frame>,
    control: Vec<u8>,
    /// The type of the current message.
    message: Option<u8>,
    utf8: Utf8,
    /// The current message, with all frames since the last one.
    response: Response,
    kept: Option<Vec<u8>>,
    /// Most bytes of a message that are kept.
    kept_most: usize,
    pub(crate) pings: u64,
}

/// A frame whose payload is being read.
#[derive(Clone, Copy, Debug)]
struct Frame {
    is_last: bool,
    kind: u8,
    left: u64,
}

/// The result of a piece of input, with how much of it was used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// The target closes, with its code and reason.
    Close(usize, String),
    /// A complete message.
    Message(usize, Response),
    /// All input is used and more is needed.
    More,
}

/// The violation, and the code to close with (RFC 6455 §7.4.1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// A protocol error.
fn broken(text: impl Into<String>) -> Broken {
    Broken { code: 1002, text: text.into() }
}

impl Frames {
    pub(crate) fn new(keeps_bodies: bool) -> Self {
        Self {
            partial: Vec::new(),
            frame: None,
            control: Vec::new(),
            message: None,
            utf8: Utf8::default(),
            response: Response::default(),
            kept: keeps_bodies.then(Vec::new),
            kept_most: crate::check::BODY_KEPT,
            pings: 0,
        }
    }

    /// Keeps the beginning of each message, at most so many bytes.
    pub(crate) fn keeping(most: usize) -> Self {
        Self { kept_most: most, ..Self::new(true) }
    }

    /// Adds the handshake response to the first message's bytes.
    pub(crate) const fn begin(&mut self, head_bytes: u64) {
        self.response.head_bytes += head_bytes;
    }

    /// The kept bytes of the message just completed.
    pub(crate) fn body(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// What was read since the last message.
    pub(crate) const fn unfinished(&self) -> Response {
        self.response
    }

    /// Whether any byte of the next message was read.
    pub(crate) fn has_begun(&self) -> bool {
        self.message.is_some() || self.partial.first().is_some_and(|first| first & 0x0f < CLOSE)
    }

    /// Takes the next piece of input. Writes pongs to `out`, masked by `mask`.
    pub(crate) fn feed(&mut self, input: &[u8], out: &mut Vec<u8>, mask: &mut Mask) -> Result<Fed, Broken> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let Some(frame) = &mut self.frame else {
                if rest.is_empty() {
                    return Ok(Fed::More);
                }
                let Some(used) = self.head(rest)? else { return Ok(Fed::More) };
                at += used;
                continue;
            };
            let len = (rest.len() as u64).min(frame.left);
            frame.left -= len;
            let (frame, data) = (*frame, rest.get(..len as usize).unwrap_or_default());
            at += data.len();
            if frame.kind >= CLOSE {
                self.control.extend_from_slice(data);
                self.response.framing_bytes += len;
            } else {
                if self.message == Some(TEXT) && !self.utf8.feed(data) {
                    return Err(Broken { code: 1007, text: "a text message is not UTF-8".to_owned() });
                }
                self.response.body_bytes += len;
                keep(&mut self.kept, data, self.kept_most);
            }
            if frame.left > 0 {
                return Ok(Fed::More);
            }
            self.frame = None;
            match frame.kind {
                PING => {
                    self.pings += 1;
                    if out.len() < PONGS_MOST {
                        write(out, PONG, &self.control, mask.next());
                    }
                }
                PONG => {}
                CLOSE => return Ok(Fed::Close(at, close_text(&self.control)?)),
                _ if frame.is_last => return self.complete(at),
                _ => {}
            }
            self.control.clear();
        }
    }

    fn complete(&mut self, used: usize) -> Result<Fed, Broken> {
        if self.message.take() == Some(TEXT) && !std::mem::take(&mut self.utf8).is_whole() {
            return Err(Broken { code: 1007, text: "a text message ends within a character".to_owned() });
        }
        Ok(Fed::Message(used, std::mem::take(&mut self.response)))
    }

    /// Reads a frame head. Returns how much of `rest` it used, or `None` if the head is incomplete.
    fn head(&mut self, rest: &[u8]) -> Result<Option<usize>, Broken> {
        let before = self.partial.len();
        let joined: Vec<u8>;
        let bytes = if before == 0 {
            rest
        } else {
            joined = [&self.partial, rest.get(..HEAD_MOST.min(rest.len())).unwrap_or_default()].concat();
            &joined
        };
        let Some((first, masked, length, size)) = head(bytes) else {
            self.partial.extend_from_slice(rest); // not a complete head
            return Ok(None);
        };
        let (is_last, kind) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(broken("a frame has reserved bits, though no extension was agreed"));
        }
        if masked {
            return Err(broken("a frame from a server is masked"));
        }
        match kind {
            CONTINUATION if self.message.is_none() => return Err(broken("a continuation of no message")),
            TEXT | BINARY if self.message.is_some() => {
                return Err(broken("a message begins within another"));
            }
            TEXT | BINARY => {
                self.message = Some(kind);
                if let Some(kept) = &mut self.kept {
                    kept.clear();
                }
            }
            CONTINUATION => {}
            CLOSE..=PONG if !is_last || length > CONTROL_MOST => {
                return Err(broken("a control frame is fragmented or longer than 125 bytes"));
            }
            CLOSE..=PONG => {}
            other => return Err(broken(format!("a frame of the unknown kind {other}"))),
        }
        if kind < CLOSE && self.response.body_bytes.saturating_add(length) > MESSAGE_MOST {
            return Err(Broken { code: 1009, text: "a message is longer than 64 MiB".to_owned() });
        }
        self.partial.clear();
        self.response.framing_bytes += size as u64;
        self.frame = Some(Frame { is_last, kind, left: length });
        Ok(Some(size - before))
    }
}

/// Longest frame head from a server: two bytes and an eight-byte length.
const HEAD_MOST: usize = 10;

/// First byte, whether the frame is masked, payload length, and head length without a mask.
fn head(bytes: &[u8]) -> Option<(u8, bool, u64, usize)> {
    let [first, second, rest @ ..] = bytes else { return None };
    let (length, size) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 10),
        length => (u64::from(length), 2),
    };
    Some((*first, second & 0x80 != 0, length, size))
}

/// The text of a close frame: code and reason, or nothing.
fn close_text(payload: &[u8]) -> Result<String, Broken> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok("without a code".to_owned())
        } else {
            Err(broken("a close frame of one byte"))
        };
    };
    let code = u16::from_be_bytes(*code);
    let reason = str::from_utf8(reason).map_err(|_| broken("the reason of a close frame is not UTF-8"))?;
    let reason = shown(reason.as_bytes());
    Ok(if reason.is_empty() { format!("code {code}") } else { format!("code {code}: {reason}") })
}

/// Writes a masked frame (RFC 6455 §5.3); returns the length of its head.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, payload: &[u8], mask: [u8; 4]) -> usize {
    let begin = out.len();
    out.push(0x80 | kind);
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let size = out.len() - begin;
    // Four bytes at a time, which the compiler vectorizes.
    let mut words = payload.chunks_exact(4);
    for word in &mut words {
        out.extend(word.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    }
    out.extend(words.remainder().iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    size
}

/// Frame masks. They keep proxies from mistaking payloads for requests (RFC 6455 §10.3), so they must be
/// unpredictable.
#[derive(Debug)]
pub(crate) struct Mask(Rng);

impl Mask {
    /// Seeds from fresh randomness.
    pub(crate) fn new() -> Self {
        let key = weir_wire::websocket::key();
        let seed =
            key.bytes().fold(0xcbf2_9ce4_8422_2325, |n, b| (n ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self(Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> [u8; 4] {
        self.0.u32(..).to_le_bytes()
    }
}

/// Checks that text in pieces is UTF-8.
#[derive(Debug, Default)]
struct Utf8 {
    /// The beginning of an incomplete character.
    pending: Vec<u8>,
}

impl Utf8 {
    fn feed(&mut self, mut data: &[u8]) -> bool {
        // At most three more bytes complete a character.
        while !self.pending.is_empty() {
            let Some((first, rest)) = data.split_first() else { return true };
            self.pending.push(*first);
            data = rest;
            match str::from_utf8(&self.pending) {
                Ok(_) => self.pending.clear(),
                Err(e) if e.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match str::from_utf8(data) {
            Ok(_) => true,
            Err(e) if e.error_len().is_some() => false,
            Err(e) => {
                self.pending.extend_from_slice(data.get(e.valid_up_to()..).unwrap_or_default());
                true
            }
        }
    }

    const fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all messages in `wire`, fed in pieces of `size`. Returns them, the unmasked pongs, and how reading
    /// ended.
    fn read(wire: &[u8], size: usize) -> (Vec<String>, Vec<u8>, String) {
        let (mut frames, mut out, mut mask) = (Frames::new(true), Vec::new(), Mask::new());
        let mut all = Vec::new();
        for mut piece in wire.chunks(size) {
            loop {
                match frames.feed(piece, &mut out, &mut mask) {
                    Ok(Fed::More) => break,
                    Ok(Fed::Message(used, response)) => {
                        assert_eq!(response.body_bytes, frames.body().len() as u64);
                        all.push(String::from_utf8_lossy(frames.body()).into_owned());
                        piece = &piece[used..];
                    }
                    Ok(Fed::Close(_, told)) => return (all, unmasked(&out), told),
                    Err(e) => return (all, unmasked(&out), format!("{}: {}", e.code, e.text)),
                }
            }
        }
        (all, unmasked(&out), String::new())
    }

    /// Frames with short payloads, without their masks.
    fn unmasked(mut wire: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while let [first, length, a, b, c, d, rest @ ..] = wire {
            let n = usize::from(length & 0x7f);
            plain.extend([*first, *length]);
            plain.extend(
                rest[..n].iter().zip([a, b, c, d].into_iter().cycle()).map(|(byte, mask)| byte ^ mask),
            );
            wire = &rest[n..];
        }
        plain
    }

    #[test]
    fn messages_are_read_in_any_pieces() {
        let long = [&[0x82, 126, 1, 0][..], &[b'x'; 256]].concat();
        let wire = [
            &[0x81, 2, b'h', b'i'][..],
            &[0x01, 1, 0xc3, 0x89, 1, b'p', 0x80, 1, 0xa9], // "é" in two frames, a ping between them
            &long,
            &[0x8a, 0, 0x81, 0, 0x88, 4, 0x03, 0xe9, b'b', 0x1b],
        ]
        .concat();
        for size in 1..=wire.len() {
            let (all, pongs, end) = read(&wire, size);
            assert_eq!(all, ["hi", "é", &"x".repeat(256), ""], "in pieces of {size}");
            assert_eq!((pongs, end.as_str()), (vec![0x8a, 0x81, b'p'], "code 1001: b "), "{size}");
        }
    }

    #[test]
    fn what_breaks_a_rule_is_an_error_with_its_code() {
        for (wire, want) in [
            (&[0xc1, 0][..], "1002: a frame has reserved bits"),
            (&[0x81, 0x80, 0, 0, 0, 0], "1002: a frame from a server is masked"),
            (&[0x80, 0], "1002: a continuation of no message"),
            (&[0x01, 0, 0x81, 0], "1002: a message begins within another"),
            (&[0x09, 0], "1002: a control frame is fragmented"),
            (&[0x89, 126, 0, 126], "1002: a control frame is fragmented or longer"),
            (&[0x83, 0], "1002: a frame of the unknown kind 3"),
            (&[0x88, 1, 3], "1002: a close frame of one byte"),
            (&[0x81, 1, 0xff], "1007: a text message is not UTF-8"),
            (&[0x81, 1, 0xc3], "1007: a text message ends within a character"),
            (&[0x82, 127, 0, 0, 0, 0, 4, 0, 0, 1], "1009: a message is longer than 64 MiB"),
            (&[0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255], "1009: a message is longer than 64 MiB"),
            (&[0x88, 0], "without a code"),
        ] {
            for size in [1, 100] {
                let (_, _, end) = read(wire, size);
                assert!(end.starts_with(want), "{wire:?}: {end}");
            }
        }
    }

    #[test]
    fn frames_are_written_with_each_form_of_length() {
        for (length, size) in [(0, 6), (125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let (mut out, payload) = (Vec::new(), vec![7; length]);
            assert_eq!(write(&mut out, BINARY, &payload, [1, 2, 3, 4]), size);
            assert_eq!((out[0], out.len()), (0x82, size + length));
            let plain = out[size..].iter().zip([1, 2, 3, 4].into_iter().cycle()).all(|(b, m)| b ^ m == 7);
            assert!(plain, "{length}");
        }
        let mut mask = Mask::new();
        assert_ne!(mask.next(), mask.next());
    }

    #[test]
    fn many_pings_are_not_all_answered() {
        let (mut frames, mut out, mut mask) = (Frames::new(false), Vec::new(), Mask::new());
        let wire = [0x89, 0].repeat(100_000);
        assert_eq!(frames.feed(&wire, &mut out, &mut mask), Ok(Fed::More));
        assert!(out.len() < PONGS_MOST + 200, "{}", out.len());
        assert_eq!(frames.pings, 100_000);
    }
}
