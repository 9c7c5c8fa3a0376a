//! Connection-level frames, and the end of the connection.

use super::streams::Ending;
use super::{ALIVE, Broken, Codec, Failed, GOODBYE, Leaving, NOBODY_BEGAN, Role, Sink, WINDOW_FIRST, broken};
use crate::h2::flood::Fault;
use crate::h2::frame::{self, Header, Kind, code, setting};

impl<S: Sink> Codec<S> {
    // === what comes ===

    /// RFC 9113 §5.3.2: priorities have no meaning any more, but must be well formed.
    pub(super) fn priority(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        let (wrong, rule) = match frame::number(payload, 0) {
            _ if payload.len() != 5 => (code::FRAME_SIZE, "PRIORITY is not 5 bytes long"),
            Some(on) if on & 0x7fff_ffff == header.stream => {
                (code::PROTOCOL, "a stream that depends on itself")
            }
            _ => return Ok(()),
        };
        match self.streams.find(header.stream) {
            Some(slot) => {
                self.reset_provoked(slot, wrong, rule);
                Ok(())
            }
            None => broken(wrong, rule),
        }
    }

    pub(super) fn settings(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                return broken(code::FRAME_SIZE, "a confirmation of SETTINGS with a payload");
            }
            if self.peer.came == 0 {
                return broken(code::PROTOCOL, "a confirmation of SETTINGS as the first frame");
            }
            let Some(less) = self.unconfirmed.checked_sub(1) else {
                self.meter.unasked(Kind::SETTINGS);
                return Ok(());
            };
            self.unconfirmed = less;
            if self.role == Role::Server {
                // RFC 9113 §6.9.2: from here on the client uses our initial window.
                for slot in self.streams.slots() {
                    self.streams.at(slot).room -= WINDOW_FIRST - i64::from(self.flow.first);
                }
            }
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return broken(code::FRAME_SIZE, "SETTINGS are not whole");
        }
        self.peer.came = self.peer.came.wrapping_add(1);
        let mut window_last = None;
        for pair in payload.chunks_exact(6) {
            let (Some(value), [high, low, ..]) = (frame::number(pair, 2), pair) else { continue };
            match (u16::from_be_bytes([*high, *low]), value) {
                (setting::PUSH, 0) => {}
                (setting::PUSH, 1) if self.role == Role::Server => {}
                (setting::PUSH, _) | (setting::CONNECT, 2..) => {
                    return broken(code::PROTOCOL, "SETTINGS that may not have this value");
                }
                (setting::CONNECT, on) => self.peer.connect = on == 1,
                (setting::STREAMS, most) => self.peer.streams = most as usize,
                // One frame may repeat this setting 2,730 times, and each would touch every stream (1 ms per frame
                // with 128 streams).
                (setting::WINDOW, window @ 0..=0x7fff_ffff) => window_last = Some(window),
                (setting::WINDOW, _) => return broken(code::FLOW_CONTROL, "a window beyond 2 GiB"),
                (setting::FRAME, 0..16_384 | 16_777_216..) => {
                    return broken(code::PROTOCOL, "SETTINGS_MAX_FRAME_SIZE out of its range");
                }
                // Our encoder never uses a table, but nothing has told the peer so: it counts on 4,096 bytes at first.
                // Told of every reduction, not only of the first: RFC 9113 §4.3.1 lets the peer insist on each.
                (setting::TABLE, most) => {
                    self.owes_table_size |= most < self.peer.table;
                    self.peer.table = most;
                }
                _ => {} // larger frames gain nothing
            }
        }
        if let Some(window) = window_last {
            self.change_windows(i64::from(window))?;
        }
        self.write_frame(Kind::SETTINGS, frame::ACK, 0, &[]);
        self.begin_more();
        Ok(())
    }

    pub(super) fn ping(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        if payload.len() != 8 {
            return broken(code::FRAME_SIZE, "PING is not 8 bytes long");
        }
        if !header.has(frame::ACK) {
            self.write_frame(Kind::PING, frame::ACK, 0, payload);
        } else if payload == ALIVE && self.asked_alive {
            self.asked_alive = false;
        } else if payload == GOODBYE && self.leaving == Leaving::Asked {
            self.leaving = Leaving::Announced;
            self.write_goaway(self.last, code::NO_ERROR);
        } else {
            self.meter.unasked(Kind::PING);
        }
        Ok(())
    }

    pub(super) fn goaway(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let (Some(last), Some(code)) = (frame::number(payload, 0), frame::number(payload, 4)) else {
            return broken(code::FRAME_SIZE, "GOAWAY is shorter than 8 bytes");
        };
        self.left = Some(code);
        if self.role == Role::Client {
            for slot in self.streams.slots() {
                if self.streams.at(slot).id > last & 0x7fff_ffff {
                    self.lose(slot, Failed::Refused { by_reset: false }, Ending::Ours);
                }
            }
            self.begin_more();
        }
        Ok(())
    }

    pub(super) fn reset_came(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        let Some(why) = frame::number(payload, 0).filter(|_| payload.len() == 4) else {
            return broken(code::FRAME_SIZE, "RST_STREAM is not 4 bytes long");
        };
        match self.streams.find(header.stream) {
            Some(slot) => {
                let refused = why == code::REFUSED && self.role == Role::Client;
                let failed = if refused { Failed::Refused { by_reset: true } } else { Failed::Reset(why) };
                self.lose(slot, failed, Ending::Theirs);
                Ok(())
            }
            None if self.is_idle(header.stream) => broken(code::PROTOCOL, NOBODY_BEGAN),
            None => Ok(()),
        }
    }

    /// Whether this stream has never been opened.
    pub(super) const fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || (id > self.last && !self.is_left_out(id))
    }

    /// Whether the client opened this stream although our GOAWAY excludes it: we process none of it (RFC 9113 §6.8).
    pub(super) const fn is_left_out(&self, id: u32) -> bool {
        matches!(self.leaving, Leaving::Announced) && id > self.last
    }

    // === its end ===

    /// Sends a PING, unless one is unanswered.
    pub(in crate::h2) fn ask_alive(&mut self) {
        if !std::mem::replace(&mut self.asked_alive, true) {
            self.write_frame(Kind::PING, 0, 0, &ALIVE);
        }
    }

    /// Accepts no further streams: GOAWAY in two steps (RFC 9113 §6.8).
    pub(in crate::h2) fn leave(&mut self) {
        if self.leaving == Leaving::No && self.ended.is_none() {
            self.leaving = Leaving::Asked;
            self.write_goaway(0x7fff_ffff, code::NO_ERROR);
            self.write_frame(Kind::PING, 0, 0, &GOODBYE);
        }
    }

    /// Whether one side has sent GOAWAY and no stream is open.
    pub(in crate::h2) fn is_over(&self) -> bool {
        (self.left.is_some() || self.leaving == Leaving::Announced)
            && self.streams.open() == 0
            && self.arrivals.is_empty()
    }

    /// Counts an error of the peer, and ends the connection if there are too many.
    pub(in crate::h2) fn count_error(&mut self) {
        self.meter.provoked();
        if let Some(flood) = self.meter.flood() {
            self.end(Fault::Flood(flood));
        }
    }

    /// Ends the connection now, with GOAWAY.
    pub fn end(&mut self, fault: Fault) {
        let code = match fault {
            Fault::Flood(_) => code::CALM,
            Fault::Protocol => code::PROTOCOL,
            Fault::Closed => code::NO_ERROR,
        };
        self.end_with(fault, Some(code));
    }

    /// Records that the connection is gone, so nothing can be sent.
    pub fn gone(&mut self) {
        self.end_with(Fault::Closed, None);
    }

    pub(super) fn fail(&mut self, broken: Broken) {
        if self.ended.is_none() {
            self.rule = broken.rule;
        }
        self.end_with(broken.flood.map_or(Fault::Protocol, Fault::Flood), Some(broken.code));
    }

    fn end_with(&mut self, fault: Fault, code: Option<u32>) {
        if self.ended.is_some() {
            return;
        }
        if let Some(code) = code {
            self.write_goaway(self.last_of_peer(), code);
        }
        self.ended = Some(fault);
        let failed = match fault {
            Fault::Closed => Failed::Closed,
            Fault::Flood(_) | Fault::Protocol => Failed::Malformed("a rule of the connection"),
        };
        for slot in self.streams.slots() {
            self.lose(slot, failed, Ending::Ours);
        }
        self.begin_more();
        self.head_since = None;
    }

    const fn last_of_peer(&self) -> u32 {
        if matches!(self.role, Role::Server) { self.last } else { 0 }
    }

    fn write_goaway(&mut self, last: u32, code: u32) {
        let last = if self.role == Role::Server { last } else { 0 };
        let [a, b, c, d] = last.to_be_bytes();
        let [e, f, g, h] = code.to_be_bytes();
        self.write_frame(Kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }
}
