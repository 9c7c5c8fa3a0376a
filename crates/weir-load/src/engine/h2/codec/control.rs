//! Frames of the connection, and those that change how we send.

use super::super::frame::{self, Header, Kind};
use super::{Answer, Broken, Codec, Lost, OUT_MOST, WINDOW_MOST, broken};
use super::{CALM, FLOW_CONTROL, FRAME_SIZE, PROTOCOL};

impl Codec {
    /// A frame of the connection, or one that changes how we send.
    pub(super) fn control(
        &mut self,
        header: &Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        if self.out.len() > 16 * OUT_MOST {
            return broken(CALM, "a flood of frames that want an answer");
        }
        let of_connection = matches!(header.kind, Kind::SETTINGS | Kind::PING | Kind::GOAWAY);
        if of_connection && header.stream != 0 {
            return broken(PROTOCOL, "a frame of the connection on a stream");
        }
        match header.kind {
            Kind::SETTINGS => self.settings(header, payload),
            Kind::PING => {
                if payload.len() != 8 {
                    return broken(FRAME_SIZE, "PING is not 8 bytes long");
                }
                if !header.has(frame::ACK) {
                    frame::write(Kind::PING, frame::ACK, 0, payload, &mut self.out);
                }
                Ok(())
            }
            Kind::WINDOW_UPDATE => self.window_update(header, payload, answers),
            Kind::GOAWAY => {
                let (Some(last), Some(code)) = (frame::number(payload, 0), frame::number(payload, 4)) else {
                    return broken(FRAME_SIZE, "GOAWAY is shorter than 8 bytes");
                };
                self.closing = true;
                let last = last & 0x7fff_ffff;
                let mut unseen: Vec<u32> = self.streams.keys().copied().filter(|id| *id > last).collect();
                unseen.sort_unstable();
                for id in unseen {
                    let lost = if code == 0 {
                        Lost::Again
                    } else {
                        Lost::Reset(format!("the target closed the connection: {}", frame::code_name(code)))
                    };
                    self.lose(id, lost, answers);
                }
                Ok(())
            }
            Kind::PUSH_PROMISE => broken(PROTOCOL, "a push, which we refuse"),
            Kind::PRIORITY if payload.len() != 5 => broken(FRAME_SIZE, "PRIORITY is not 5 bytes long"),
            _ => Ok(()), // RFC 9113 §4.1: unknown ones are ignored
        }
    }

    fn window_update(
        &mut self,
        header: &Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        let Some(by) = frame::number(payload, 0).filter(|_| payload.len() == 4) else {
            return broken(FRAME_SIZE, "WINDOW_UPDATE is not 4 bytes long");
        };
        let by = i64::from(by & 0x7fff_ffff);
        let id = header.stream;
        if id == 0 {
            self.window += by;
            if by == 0 || self.window > WINDOW_MOST {
                return broken(FLOW_CONTROL, "a window that grows by nothing, or beyond 2 GiB");
            }
        } else if id.is_multiple_of(2) || id >= self.next {
            return broken(PROTOCOL, "a frame for a stream that nobody began");
        } else if let Some(stream) = self.streams.get_mut(&id) {
            stream.window += by;
            if by == 0 || stream.window > WINDOW_MOST {
                self.reset(id, FLOW_CONTROL);
                let text = "HTTP/2: a window that grows by nothing, or beyond 2 GiB";
                self.lose(id, Lost::Protocol(text.to_owned()), answers);
            }
        }
        self.send_more();
        Ok(())
    }

    fn settings(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        if header.has(frame::ACK) {
            if !self.greeted || !payload.is_empty() {
                return broken(
                    FRAME_SIZE,
                    "a confirmation of SETTINGS with a payload, or as the first frame",
                );
            }
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return broken(FRAME_SIZE, "SETTINGS are not whole");
        }
        if !self.greeted {
            (self.greeted, self.most) = (true, usize::MAX); // RFC 9113 §6.5.2: no limit unless one is told
        }
        for pair in payload.chunks_exact(6) {
            let (Some(value), [_, id, ..]) = (frame::number(pair, 2), pair) else { continue };
            if pair.first() != Some(&0) {
                continue; // an unknown one
            }
            match id {
                3 => self.most = value as usize,
                4 => {
                    let change = i64::from(value) - self.window_of_streams;
                    self.window_of_streams = i64::from(value);
                    self.streams.values_mut().for_each(|s| s.window += change);
                    if self.window_of_streams > WINDOW_MOST
                        || self.streams.values().any(|s| s.window > WINDOW_MOST)
                    {
                        return broken(FLOW_CONTROL, "a window beyond 2 GiB");
                    }
                }
                5 if !(16_384..=16_777_215).contains(&value) => {
                    return broken(PROTOCOL, "SETTINGS_MAX_FRAME_SIZE out of its range");
                }
                _ => {} // frames larger than the default gain nothing
            }
        }
        frame::write(Kind::SETTINGS, frame::ACK, 0, &[], &mut self.out);
        self.send_more();
        Ok(())
    }
}
