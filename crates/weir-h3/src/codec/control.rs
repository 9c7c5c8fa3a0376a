//! The unidirectional streams of the peer, and the end of the connection.

use super::streams::Failed;
use super::{ANSWERS, Broken, Codec, Effect, Ended, Own, Role, Sink, broken};
use crate::flood::Flood;
use crate::frame::{self, Header, kind, setting, uni};
use crate::{code, varint};
use weir_fields::Priority;

/// Most bytes of a frame on the control stream that we read whole. SETTINGS of a hundred settings fit.
const CONTROL: usize = 4096;

/// Bytes of the encoder stream between two looks at what they cost: each may copy an entry as large as the table.
const INSTRUCTIONS: usize = 512;

/// Most unidirectional streams of the peer at the same time. The transport should allow fewer.
const STREAMS: usize = 64;

/// Most priorities that wait for their requests. A further one replaces the oldest.
const EARLY: usize = 32;

/// A unidirectional stream of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uni {
    Control,
    Decoder,
    Encoder,
    /// We have asked the peer to stop; what was in flight is discarded.
    Ignored,
    /// Its type is incomplete: the bytes that have arrived, and their number.
    Opening([u8; varint::LONGEST], u8),
}

/// What is known from the peer's control stream.
#[derive(Debug, Default)]
pub(super) struct Control {
    header: Header,
    /// The frame that is being read: its type, and how many bytes are missing. `None` between frames.
    at: Option<(u64, u64)>,
    payload: Vec<u8>,
    /// SETTINGS have arrived.
    pub(super) is_greeted: bool,
    /// The id in the peer's last GOAWAY.
    pub(super) left: Option<u64>,
    most_push: Option<u64>,
    /// Largest head that the peer accepts, counted with 32 bytes for each field.
    pub(super) head: Option<u64>,
    /// Whether the peer accepts Extended CONNECT.
    pub(super) connect: bool,
    /// Priorities of requests that have not arrived.
    early: Vec<(u64, Priority)>,
}

impl<S: Sink> Codec<S> {
    // === streams ===

    pub(super) fn uni(&mut self, id: u64, bytes: &[u8], fin: bool) -> Result<(), Broken> {
        let place = match self.theirs.iter().position(|(known, _)| *known == id) {
            Some(place) => place,
            None => {
                if self.theirs.len() >= STREAMS {
                    // Nobody tells us the end of a stream that we have stopped.
                    let ignored = self.theirs.iter().position(|(_, known)| *known == Uni::Ignored);
                    let Some(ignored) = ignored else {
                        return broken(code::EXCESSIVE_LOAD, "too many unidirectional streams");
                    };
                    self.theirs.remove(ignored);
                }
                self.theirs.push((id, Uni::Opening([0; 8], 0)));
                self.theirs.len() - 1
            }
        };
        let mut rest = bytes;
        while let Uni::Opening(mut have, len) = self.theirs[place].1 {
            let Some((&byte, others)) = rest.split_first() else { break };
            have[usize::from(len)] = byte;
            rest = others;
            self.theirs[place].1 = match varint::read(&have[..=usize::from(len)]) {
                Some((kind, _)) => self.open_uni(id, kind)?,
                None => Uni::Opening(have, len + 1),
            };
        }
        match self.theirs[place].1 {
            Uni::Control => self.control(rest)?,
            Uni::Encoder => self.insertions(rest)?,
            Uni::Decoder => {
                let unknown = self.encoder.answers(rest);
                let unknown = unknown.or_else(|rule| broken(code::QPACK_DECODER_STREAM, rule))?;
                // A client cancels each stream that it abandons, also after it has acknowledged the head.
                self.meter.spend(Flood::Insertions, unknown);
            }
            Uni::Ignored | Uni::Opening(..) => {}
        }
        if fin { self.uni_over(id) } else { Ok(()) }
    }

    /// RFC 9114 §6.2.
    fn open_uni(&mut self, id: u64, kind: u64) -> Result<Uni, Broken> {
        let opened = match kind {
            uni::CONTROL => Uni::Control,
            uni::ENCODER => Uni::Encoder,
            uni::DECODER => Uni::Decoder,
            uni::PUSH if self.role == Role::Server => {
                return broken(code::STREAM_CREATION, "a client that pushes");
            }
            // RFC 9114 §4.6: we never allow one.
            uni::PUSH => return broken(code::ID, "a push, which we refuse"),
            _ => {
                self.effects.push_back(Effect::Stop { stream: id, code: code::STREAM_CREATION });
                self.meter.spend(Flood::Streams, 1);
                return Ok(Uni::Ignored);
            }
        };
        if self.theirs.iter().any(|(_, known)| *known == opened) {
            return broken(code::STREAM_CREATION, "a second stream of a kind that there is once");
        }
        Ok(opened)
    }

    /// The peer has ended or reset a unidirectional stream.
    pub(super) fn uni_over(&mut self, id: u64) -> Result<(), Broken> {
        let Some(place) = self.theirs.iter().position(|(known, _)| *known == id) else {
            self.meter.spend(Flood::Streams, 1); // reset before its first byte was read
            return Ok(());
        };
        match self.theirs.swap_remove(place).1 {
            Uni::Control | Uni::Decoder | Uni::Encoder => {
                broken(code::CLOSED_CRITICAL, "the end of a stream that must stay open")
            }
            // RFC 9114 §6.2: a stream may end before its type is known.
            Uni::Ignored | Uni::Opening(..) => {
                self.meter.spend(Flood::Streams, 1);
                Ok(())
            }
        }
    }

    fn insertions(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        for piece in bytes.chunks(INSTRUCTIONS) {
            let count = self.decoder.instructions(piece);
            let count = count.or_else(|rule| broken(code::QPACK_ENCODER_STREAM, rule))?;
            self.meter.spend(Flood::Insertions, count);
            self.check_floods()?;
        }
        self.unblock()?;
        self.decoder.acknowledge(self.own[Own::Decoder as usize].buffer());
        Ok(())
    }

    // === frames ===

    fn control(&mut self, mut rest: &[u8]) -> Result<(), Broken> {
        loop {
            let Some((kind, left)) = self.control.at else {
                let Some((kind, len)) = self.control.header.take(&mut rest) else { return Ok(()) };
                self.begin_control(kind, len)?;
                self.control.at = Some((kind, len));
                continue;
            };
            let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (piece, others) = rest.split_at(len);
            rest = others;
            if is_known(kind) {
                self.control.payload.extend_from_slice(piece);
            }
            let left = left - len as u64;
            if left > 0 {
                self.control.at = Some((kind, left));
                return Ok(());
            }
            self.control.at = None;
            let payload = std::mem::take(&mut self.control.payload);
            self.control_frame(kind, &payload)?;
            self.check_floods()?;
        }
    }

    /// Judges a frame by its header.
    fn begin_control(&mut self, kind: u64, len: u64) -> Result<(), Broken> {
        if !self.control.is_greeted && kind != kind::SETTINGS {
            return broken(code::MISSING_SETTINGS, "the control stream does not begin with SETTINGS");
        }
        let is_server = self.role == Role::Server;
        match kind {
            kind::SETTINGS if self.control.is_greeted => {
                broken(code::FRAME_UNEXPECTED, "SETTINGS for the second time")
            }
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                broken(code::FRAME_UNEXPECTED, "a frame of a request on the control stream")
            }
            kind::MAX_PUSH_ID | kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH if !is_server => {
                broken(code::FRAME_UNEXPECTED, "a frame that only clients send")
            }
            _ if frame::is_of_http2(kind) => broken(code::FRAME_UNEXPECTED, "a frame of HTTP/2"),
            _ if is_known(kind) && len > CONTROL as u64 => {
                broken(code::EXCESSIVE_LOAD, "a frame of more than 4 KiB on the control stream")
            }
            _ => Ok(()),
        }
    }

    fn control_frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), Broken> {
        match kind {
            kind::SETTINGS => self.settings(payload),
            kind::GOAWAY => {
                self.meter.spend(Flood::Push, 1);
                self.goaway(only_number(payload)?)
            }
            kind::MAX_PUSH_ID => {
                self.meter.spend(Flood::Push, 1);
                let most = only_number(payload)?;
                if self.control.most_push.replace(most).is_some_and(|before| most < before) {
                    return broken(code::ID, "MAX_PUSH_ID that has become smaller");
                }
                Ok(())
            }
            kind::CANCEL_PUSH => {
                only_number(payload)?;
                // RFC 9114 §7.2.3: as a server we promised none, and as a client we allowed none.
                broken(code::ID, "CANCEL_PUSH for a push that cannot exist")
            }
            kind::PRIORITY_UPDATE => {
                self.meter.spend(Flood::Priority, 1);
                self.priority_update(payload)
            }
            kind::PRIORITY_UPDATE_PUSH => {
                number_first(payload)?;
                broken(code::ID, "PRIORITY_UPDATE for a push that cannot exist")
            }
            _ => {
                self.meter.spend(Flood::Priority, 1);
                Ok(())
            }
        }
    }

    fn settings(&mut self, payload: &[u8]) -> Result<(), Broken> {
        self.control.is_greeted = true;
        let (mut rest, mut seen) = (payload, Vec::new());
        while !rest.is_empty() {
            let (id, others) = number_first(rest)?;
            let (value, others) = number_first(others)?;
            rest = others;
            if frame::is_setting_of_http2(id) {
                return broken(code::SETTINGS, "a setting of HTTP/2");
            }
            if seen.contains(&id) {
                return broken(code::SETTINGS, "a setting that is repeated");
            }
            seen.push(id);
            if seen.len() > CONTROL / 32 {
                return broken(code::EXCESSIVE_LOAD, "more than 128 settings");
            }
            match (id, value) {
                (setting::TABLE, most) => self.encoder.allow(most),
                (setting::HEAD, most) => self.control.head = Some(most),
                (setting::CONNECT, 0 | 1) => self.control.connect = value == 1,
                (setting::CONNECT, _) => {
                    return broken(code::SETTINGS, "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1");
                }
                _ => {} // our encoder blocks no stream, whatever SETTINGS_QPACK_BLOCKED_STREAMS allows
            }
        }
        Ok(())
    }

    /// RFC 9114 §5.2.
    fn goaway(&mut self, id: u64) -> Result<(), Broken> {
        let is_client = self.role == Role::Client;
        if is_client && !id.is_multiple_of(4) {
            return broken(code::ID, "GOAWAY with an id of no request");
        }
        if self.control.left.replace(id).is_some_and(|before| id > before) {
            return broken(code::ID, "GOAWAY with an id that has become larger");
        }
        if is_client {
            for slot in self.streams.slots() {
                if self.streams.at(slot).id >= id {
                    self.abandon(slot, code::REQUEST_CANCELLED);
                    self.lose(slot, Failed::Refused { by_reset: false });
                }
            }
        }
        Ok(())
    }

    /// RFC 9218 §7.2.
    fn priority_update(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let (id, value) = number_first(payload)?;
        if !id.is_multiple_of(4) {
            return broken(code::ID, "PRIORITY_UPDATE with an id of no request");
        }
        // RFC 9218 §7.2. The transport lets the client open a stream when one has ended, so that many are open at most.
        let beyond = self.next.saturating_add(4 * self.bounds.streams as u64);
        if id >= beyond {
            return broken(code::ID, "PRIORITY_UPDATE for a request beyond the limit of streams");
        }
        if let Some(slot) = self.streams.find(id) {
            let changed = self.streams.at(slot).priority.read(value);
            self.prioritize(slot, changed);
        } else if id >= self.next {
            let early = &mut self.control.early;
            if let Some((_, priority)) = early.iter_mut().find(|(early, _)| *early == id) {
                *priority = priority.read(value);
            } else {
                if early.len() >= EARLY {
                    early.remove(0); // the oldest hint: its request may never come
                }
                early.push((id, Priority::default().read(value)));
            }
        }
        Ok(())
    }

    /// The priority that was stated before its request arrived, if any.
    pub(super) fn early_priority(&mut self, id: u64) -> Option<Priority> {
        if self.control.early.is_empty() {
            return None;
        }
        let place = self.control.early.iter().position(|(early, _)| *early == id)?;
        Some(self.control.early.remove(place).1)
    }

    pub(super) fn prioritize(&mut self, slot: usize, priority: Priority) {
        let record = self.streams.at(slot);
        if std::mem::replace(&mut record.priority, priority) != priority {
            let stream = record.id;
            self.effects.push_back(Effect::Prioritize { stream, priority });
        }
    }

    // === the end ===

    /// Announces that the connection will end: every request that is on its way is still served. Call
    /// [`Codec::leave_now`] after a round trip or more (RFC 9114 §5.2).
    pub fn leave(&mut self) {
        if self.leaving.is_none() && self.ended.is_none() {
            let all = if self.role == Role::Server { varint::MOST - 3 } else { varint::MOST };
            self.write_goaway(all);
        }
    }

    /// Refuses requests that have not arrived yet.
    pub fn leave_now(&mut self) {
        if self.ended.is_none() {
            self.write_goaway(if self.role == Role::Server { self.next } else { 0 });
        }
    }

    fn write_goaway(&mut self, id: u64) {
        if self.leaving.is_some_and(|before| id >= before) {
            return;
        }
        self.leaving = Some(id);
        let mut payload = Vec::with_capacity(varint::LONGEST);
        varint::write(id, &mut payload);
        frame::write(kind::GOAWAY, &payload, self.own[Own::Control as usize].buffer());
    }

    /// Whether a side has announced the end and no request is open.
    pub fn is_over(&self) -> bool {
        let is_leaving = self.leaving.is_some_and(|id| id < varint::MOST - 3);
        (self.control.left.is_some() || is_leaving) && self.streams.open() == 0 && self.arrivals.is_empty()
    }

    /// Ends the connection with this code.
    pub fn end(&mut self, code: u64) {
        self.fail(Broken { code, rule: "", flood: None });
    }

    /// Ends the connection because the peer has done this too often.
    pub fn end_flood(&mut self, flood: Flood) {
        self.fail(Broken { code: code::EXCESSIVE_LOAD, rule: "a flood", flood: Some(flood) });
    }

    /// Counts an answered request that should not have been sent against the peer's limit of errors.
    pub fn count_error(&mut self) {
        self.meter.spend(Flood::Errors, 1);
        if let Err(e) = self.check_floods() {
            self.fail(e);
        }
    }

    /// Records that the connection is gone.
    pub fn gone(&mut self) {
        self.end(code::NO_ERROR);
    }

    pub(super) fn fail(&mut self, broken: Broken) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(Ended { code: broken.code, rule: broken.rule, flood: broken.flood });
        let is_fault = !broken.rule.is_empty();
        let failed = if is_fault { Failed::Malformed("a rule of the connection") } else { Failed::Closed };
        for slot in self.streams.slots() {
            self.lose(slot, failed);
        }
        self.effects.clear();
    }

    pub(super) fn check_floods(&self) -> Result<(), Broken> {
        match self.meter.flood() {
            None if self.own[Own::Decoder as usize].unsent().len() > ANSWERS => {
                broken(code::EXCESSIVE_LOAD, "acknowledgements that the peer does not read")
            }
            None => Ok(()),
            flood => Err(Broken { code: code::EXCESSIVE_LOAD, rule: "a flood", flood }),
        }
    }
}

/// Whether we need the payload of a frame on the control stream.
const fn is_known(kind: u64) -> bool {
    matches!(
        kind,
        kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::CANCEL_PUSH
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH
    )
}

fn number_first(payload: &[u8]) -> Result<(u64, &[u8]), Broken> {
    let number = varint::read(payload).and_then(|(n, used)| Some((n, payload.get(used..)?)));
    number.map_or_else(|| broken(code::FRAME, "a frame that ends in a number"), Ok)
}

fn only_number(payload: &[u8]) -> Result<u64, Broken> {
    match number_first(payload)? {
        (n, []) => Ok(n),
        _ => broken(code::FRAME, "a frame with bytes behind its number"),
    }
}
