//! The TLS session of a client's connection: quinn-proto's, watched for what quinn-proto does not tell.
//!
//! - The cipher suite: it stands in the ServerHello.
//! - Whether the client has proved its address during the handshake: a packet under Handshake keys proves it (RFC 9000
//!   §8.1).
//! - A CONNECTION_CLOSE of the application (type 0x1d) in an Initial or Handshake packet, which the protocol forbids
//!   there (RFC 9000 §12.4) and quinn-proto obeys. Its type is replaced by another forbidden one, for which quinn-proto
//!   ends the connection with PROTOCOL_VIOLATION.

use bytes::BytesMut;
use quinn_proto::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError};
use rustls::CipherSuite;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

/// The TLS policy of a server whose sessions are watched.
pub(crate) struct Watching(pub(crate) Arc<QuicServerConfig>);

/// What is known of a handshake beyond quinn-proto's data. A connection has one thread; the atomics are there because
/// quinn-proto requires sessions that may move to another.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    has_proved: AtomicBool,
    /// 0, which is no suite of TLS 1.3, until it is known.
    suite: AtomicU16,
}

/// What [`crypto::Session::handshake_data`] of a watched session returns.
pub(crate) struct Told {
    pub(crate) seen: Arc<Seen>,
    pub(crate) data: Option<HandshakeData>,
}

struct Session {
    inner: Box<dyn crypto::Session>,
    seen: Arc<Seen>,
    /// The Handshake keys have been handed out. The next ones are those of 1-RTT packets.
    has_handshake_keys: bool,
}

/// The key of the client's Initial or Handshake packets.
struct EarlyKey {
    inner: Box<dyn PacketKey>,
    /// For Handshake packets.
    seen: Option<Arc<Seen>>,
}

impl Seen {
    /// Whether the client has proved that it receives packets at the address that it handshakes from.
    pub(crate) fn has_proved(&self) -> bool {
        self.has_proved.load(Relaxed)
    }

    /// The name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`; empty until it is chosen.
    pub(crate) fn suite(&self) -> &'static str {
        CipherSuite::from(self.suite.load(Relaxed)).as_str().unwrap_or("")
    }
}

impl crypto::ServerConfig for Watching {
    fn initial_keys(&self, version: u32, to: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, to).map(|keys| watched(keys, None))
    }

    fn retry_tag(&self, version: u32, to: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, to, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let inner = crypto::ServerConfig::start_session(Arc::clone(&self.0), version, params);
        Box::new(Session { inner, seen: Arc::default(), has_handshake_keys: false })
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, to: &ConnectionId, side: Side) -> Keys {
        watched(self.inner.initial_keys(to, side), None)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let data = self.inner.handshake_data().and_then(|data| data.downcast().ok()).map(|data| *data);
        Some(Box::new(Told { seen: Arc::clone(&self.seen), data }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(bytes)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let before = out.len();
        let keys = self.inner.write_handshake(out);
        if !self.has_handshake_keys
            && let Some(suite) = out.get(before..).and_then(suite_of)
        {
            self.seen.suite.store(suite, Relaxed);
        }
        let keys = keys?;
        if std::mem::replace(&mut self.has_handshake_keys, true) {
            return Some(keys);
        }
        Some(watched(keys, Some(&self.seen)))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, to: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(to, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

impl PacketKey for EarlyKey {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header_len: usize) {
        self.inner.encrypt(packet, bytes, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)?;
        if let Some(seen) = &self.seen {
            seen.has_proved.store(true, Relaxed);
        }
        if let Some(at) = application_close(payload)
            && let Some(kind) = payload.get_mut(at)
        {
            *kind = HANDSHAKE_DONE;
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// Watches what is received under these keys. `seen` hears of the first packet.
fn watched(mut keys: Keys, seen: Option<&Arc<Seen>>) -> Keys {
    keys.packet.remote = Box::new(EarlyKey { inner: keys.packet.remote, seen: seen.cloned() });
    keys
}

/// Types of frames (RFC 9000 §19).
const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
const CLOSE: u8 = 0x1c;
const APPLICATION_CLOSE: u8 = 0x1d;
/// Only a server sends it, and only in 1-RTT packets. The type is the whole frame.
const HANDSHAKE_DONE: u8 = 0x1e;

/// Where the type of the first CONNECTION_CLOSE of the application is among the frames of an Initial or Handshake
/// packet. `None` also if a frame that may not be there comes first, for which quinn-proto ends the connection anyway.
fn application_close(frames: &[u8]) -> Option<usize> {
    let mut rest = frames;
    loop {
        let at = frames.len() - rest.len();
        let (kind, after) = rest.split_first()?;
        rest = after;
        match *kind {
            PADDING | PING => {}
            ACK | ACK_ECN => {
                let [_largest, _delay, ranges, _first] = integers(&mut rest)?;
                for _ in 0..ranges {
                    integers::<2>(&mut rest)?;
                }
                if *kind == ACK_ECN {
                    integers::<3>(&mut rest)?;
                }
            }
            CRYPTO => {
                let [_offset, len] = integers(&mut rest)?;
                rest = rest.get(usize::try_from(len).ok()?..)?;
            }
            CLOSE => {
                let [_code, _frame, len] = integers(&mut rest)?;
                rest = rest.get(usize::try_from(len).ok()?..)?;
            }
            APPLICATION_CLOSE => return Some(at),
            _ => return None,
        }
    }
}

/// Takes variable-length integers (RFC 9000 §16).
fn integers<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut all = [0; N];
    for value in &mut all {
        let first = *bytes.first()?;
        let (taken, rest) = bytes.split_at_checked(1 << (first >> 6))?;
        *value = taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        *value &= u64::MAX >> (66 - 8 * taken.len() as u32);
        *bytes = rest;
    }
    Some(all)
}

/// The cipher suite in a message that begins with a ServerHello (RFC 9846 §4.1.3): type, length, version, random,
/// session id, suite. A HelloRetryRequest has the same form, and the suite that the ServerHello must repeat.
fn suite_of(message: &[u8]) -> Option<u16> {
    let (&[2, ..], rest) = message.split_first_chunk::<{ 1 + 3 + 2 + 32 }>()? else { return None };
    let (id, rest) = rest.split_first()?;
    let suite = rest.get(usize::from(*id)..)?.first_chunk()?;
    Some(u16::from_be_bytes(*suite))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_four_lengths() {
        let mut bytes = &[
            0x25, 0x40, 0x25, 0x9d, 0x7f, 0x3e, 0x7d, 0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c, 9,
        ][..];
        assert_eq!(integers(&mut bytes), Some([37, 37, 494_878_333, 151_288_809_941_952_652]));
        assert_eq!(bytes, [9]);
        assert_eq!(integers::<1>(&mut &[0x40][..]), None);
    }

    #[test]
    fn an_application_close_is_found_where_a_frame_begins() {
        for (frames, found) in [
            (&[0x1d, 0, 0][..], Some(0)),
            (&[0, 0, 1, 0x1d, 0, 0], Some(3)),
            (&[2, 9, 0, 0, 9, 0x1d, 0, 0], Some(5)),
            (&[2, 9, 0, 1, 1, 0x1d, 0x1d, 0x1d, 0, 0], Some(7)),
            (&[3, 9, 0, 0, 9, 0x1d, 0x1d, 0x1d, 0x1d], Some(8)),
            (&[6, 0, 3, 0x1d, 0x1d, 0x1d], None),
            (&[6, 0, 3, 0x1d, 0x1d, 0x1d, 0x1d], Some(6)),
            (&[0x1c, 0, 0x1d, 1, 0x1d], None),
            (&[8, 0x1d], None),
            (&[6, 0, 9, 0x1d], None),
            (&[2, 9, 0, 0xff, 0x1d], None),
            (&[], None),
        ] {
            assert_eq!(application_close(frames), found, "{frames:x?}");
        }
    }

    #[test]
    fn the_suite_stands_in_the_server_hello() {
        let mut hello = [&[2, 0, 0, 46, 3, 3][..], &[7; 32], &[2, 1, 1], &[0x13, 0x02], &[0]].concat();
        assert_eq!(suite_of(&hello), Some(0x1302));
        assert_eq!(suite_of(&hello[..40]), None);
        hello[0] = 8;
        assert_eq!(suite_of(&hello), None);
    }
}
