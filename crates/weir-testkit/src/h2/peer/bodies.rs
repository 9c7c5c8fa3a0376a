//! Sends bodies within the peer's windows. Data without a window waits until the peer grants more.

use super::H2;
use crate::h2::Frame;
use crate::wire::Wire;

/// A body that is being sent.
#[derive(Debug)]
pub(super) struct Waiting {
    data: Vec<u8>,
    sent: usize,
    /// Whether the stream ends after it.
    end: bool,
}

impl<W: AsMut<Wire>> H2<W> {
    /// Sends a complete response. Data without a window is sent later, during other operations.
    #[track_caller]
    pub fn answer(&mut self, stream: u32, fields: &[(&str, &str)], body: impl Into<Vec<u8>>) {
        let body = body.into();
        self.headers(stream, fields, body.is_empty());
        if !body.is_empty() {
            self.waiting.insert(stream, Waiting { data: body, sent: 0, end: true });
            self.send_waiting();
        }
    }

    /// Sends a complete response.
    #[track_caller]
    pub fn respond(&mut self, stream: u32, fields: &[(&str, &str)], body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        self.headers(stream, fields, body.is_empty());
        if !body.is_empty() {
            self.body(stream, body, true);
        }
    }

    /// Sends a body of any length within the peer's windows.
    #[track_caller]
    pub fn body(&mut self, stream: u32, data: &[u8], end: bool) {
        self.waiting.insert(stream, Waiting { data: data.to_vec(), sent: 0, end });
        self.send_waiting();
        self.pump_until("a window for the rest of a body", |peer| !peer.waiting.contains_key(&stream));
    }

    /// Sends as much of a body as the current windows allow, and returns that length.
    #[track_caller]
    pub fn fill(&mut self, stream: u32, data: &[u8]) -> usize {
        self.waiting.insert(stream, Waiting { data: data.to_vec(), sent: 0, end: false });
        loop {
            let sent = |peer: &Self| peer.waiting.get(&stream).map_or(data.len(), |waiting| waiting.sent);
            let before = sent(self);
            self.send_waiting();
            (0..3).for_each(|_| self.ping());
            if sent(self) == before {
                self.waiting.remove(&stream);
                return before;
            }
        }
    }

    /// Sends waiting data as far as the windows allow.
    pub(super) fn send_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&stream, waiting| {
            loop {
                let room = (*self.window(0)).min(*self.window(stream)).clamp(0, 16384) as usize;
                let left = waiting.data.get(waiting.sent..).unwrap_or_default();
                let now = room.min(left.len());
                let last = now == left.len();
                let stuck = now == 0 && !last;
                if stuck || !self.try_send(&Frame::data(stream, &left[..now], waiting.end && last)) {
                    return true;
                }
                *self.window(0) -= now as i64;
                *self.window(stream) -= now as i64;
                waiting.sent += now;
                if last {
                    return false;
                }
            }
        });
        self.waiting = waiting;
    }

    /// The peer's window of this stream.
    pub(super) fn window(&mut self, stream: u32) -> &mut i64 {
        let initial = if stream == 0 { 65535 } else { self.initial_window };
        self.windows.entry(stream).or_insert(initial)
    }
}
