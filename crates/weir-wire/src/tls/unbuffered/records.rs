//! What a session asks for, and what it encrypts.

use super::buffers::{Queue, RECORD_BYTES, prefix};
use rustls::Error;
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, WriteTraffic};

/// How to go on with a session after one of its states.
pub(super) enum Next {
    /// Discard so many more bytes of the input, and call rustls again.
    Again(usize),
    /// Call rustls again: what it had to send is in `unsent`.
    Sent,
    /// Stop: the session needs bytes from the socket, or plaintext to encrypt.
    Wait,
}

/// Where decrypted bytes go.
pub(super) struct Plaintext<'a> {
    /// What a read asked for: filled first, within its capacity.
    pub(super) wanted: Option<&'a mut Vec<u8>>,
    /// Keeps the rest for the next read.
    pub(super) kept: &'a mut Queue,
}

/// Room for what encryption adds to a record, and for a KeyUpdate before it. If rustls needs more, we make more.
pub(super) const OVERHEAD_BYTES: usize = 128;

impl Plaintext<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if let Some(buffer) = &mut self.wanted {
            let (now, later) = bytes.split_at(bytes.len().min(buffer.capacity() - buffer.len()));
            buffer.extend_from_slice(now);
            rest = later;
        }
        if !rest.is_empty() {
            self.kept.push(rest);
        }
    }
}

/// Handles a state of a session: moves decrypted bytes to `plaintext` and records to `unsent`.
pub(super) fn proceed(
    state: ConnectionState<'_, '_, ServerConnectionData>,
    unsent: &mut Queue,
    has_ended: &mut bool,
    plaintext: &mut Plaintext<'_>,
) -> Result<Next, Error> {
    let mut discard = 0;
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                plaintext.push(record.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut record) => encode(&mut record, &mut unsent.bytes)?,
        ConnectionState::TransmitTlsData(encoded) => {
            encoded.done(); // `unsent` has it
            return Ok(Next::Sent);
        }
        ConnectionState::PeerClosed => *has_ended = true,
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => return Ok(Next::Wait),
        ConnectionState::Closed => {
            *has_ended = true;
            return Ok(Next::Wait);
        }
        // Early data, which no policy accepts, and states of later versions of rustls.
        _ => return Err(Error::General("a state that no policy leads to".to_owned())),
    }
    Ok(Next::Again(discard))
}

/// Appends a record that rustls made: of the handshake, an alert, or a KeyUpdate.
fn encode(record: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(size)) = record.encode(&mut []) {
        out.resize(start + size.required_size, 0);
    }
    let room = out.get_mut(start..).unwrap_or_default();
    let count = record.encode(room).map_err(|e| Error::General(e.to_string()))?;
    out.truncate(start + count);
    Ok(())
}

/// Encrypts data, at least one byte, into `out` from `start` on, and returns the end of its records.
pub(super) fn encrypt(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    data: &[u8],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<usize, Error> {
    let mut needed = data.len() + OVERHEAD_BYTES * (data.len() / RECORD_BYTES + 1);
    loop {
        let room = prefix(out, start + needed).get_mut(start..).unwrap_or_default();
        match traffic.encrypt(data, room) {
            Ok(count) => return Ok(start + count),
            Err(EncryptError::InsufficientSize(size)) if size.required_size > needed => {
                needed = size.required_size;
            }
            Err(_) => return Err(Error::EncryptError),
        }
    }
}
