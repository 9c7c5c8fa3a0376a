//! The packet keys of a client's connection. They look into packets as they decrypt them: quinn-proto cannot be asked
//! for what they find.

use crate::frames::{HANDSHAKE_DONE, application_close, exceeds};
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, KeyPair, Keys, PacketKey};
use rustls::{CipherSuite, quic};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// What the keys and the TLS session of a connection have seen. A connection has one thread; the atomics are there
/// because quinn-proto requires sessions that may move to another.
#[derive(Debug)]
pub(crate) struct Seen {
    has_proved: AtomicBool,
    /// 0, which is no suite of TLS 1.3, until it is known.
    suite: AtomicU16,
    /// quinn-proto has entries for the client's bidirectional streams below this index. [`u64::MAX`]: for all that the
    /// client may open.
    room: AtomicU64,
    /// A packet for a stream without an entry was put off.
    is_put_off: AtomicBool,
}

impl Seen {
    /// `room` is what quinn-proto has entries for.
    pub(crate) fn new(room: u64) -> Self {
        Self {
            has_proved: AtomicBool::default(),
            suite: AtomicU16::default(),
            room: AtomicU64::new(room),
            is_put_off: AtomicBool::default(),
        }
    }

    /// Whether the client has proved that it receives packets at the address that it handshakes from.
    pub(crate) fn has_proved(&self) -> bool {
        self.has_proved.load(Relaxed)
    }

    /// The name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`; empty until it is chosen.
    pub(crate) fn suite(&self) -> &'static str {
        CipherSuite::from(self.suite.load(Relaxed)).as_str().unwrap_or("")
    }

    pub(crate) fn set_suite(&self, suite: CipherSuite) {
        self.suite.store(suite.into(), Relaxed);
    }

    /// Notes that quinn-proto has entries for the client's bidirectional streams below this index.
    pub(crate) fn has_room(&self, below: u64) {
        self.room.fetch_max(below, Relaxed);
    }

    /// Whether a packet was put off since the last call. It must be passed to quinn-proto again, once that has entries
    /// for more streams.
    pub(crate) fn take_put_off(&self) -> bool {
        self.is_put_off.load(Relaxed) && self.is_put_off.swap(false, Relaxed)
    }

    /// Puts a packet off if it names a stream that quinn-proto has no entry for. To quinn-proto, it looks like a packet
    /// that is not authentic, and was never there.
    fn admit(&self, frames: &[u8]) -> Result<(), CryptoError> {
        let room = self.room.load(Relaxed);
        if room == u64::MAX || !exceeds(frames, room) {
            return Ok(());
        }
        self.is_put_off.store(true, Relaxed);
        Err(CryptoError)
    }
}

/// The client's key of Initial or Handshake packets.
struct Early {
    inner: Box<dyn quic::PacketKey>,
    /// For Handshake packets: who hears that they came.
    seen: Option<Arc<Seen>>,
}

/// The client's key of 0-RTT or 1-RTT packets.
struct Data {
    inner: Box<dyn quic::PacketKey>,
    seen: Arc<Seen>,
}

/// The keys of 1-RTT packets after the next key update, derived when the first of them is needed.
///
/// Ready keys would take 1.4 KiB of every connection, most of which never update their keys. So the first packet of a
/// new key phase, or one that pretends to be of it, takes some microseconds longer, once per phase (RFC 9001 §6.3 allows
/// that). It tells an observer no more than that phase.
pub(crate) struct Next {
    secrets: quic::Secrets,
    keys: OnceLock<quic::PacketKeySet>,
}

/// One direction of [`Next`].
struct Local(Arc<Next>);
struct Remote(Arc<Next>, Arc<Seen>);

/// Makes the keys of one key update after the other.
pub(crate) enum Updates {
    /// None was asked for.
    First(quic::Secrets),
    /// These were the last ones.
    After(Arc<Next>),
}

/// Keys of Initial or Handshake packets. `seen` hears of the first packet under Handshake keys.
pub(crate) fn early(keys: quic::Keys, seen: Option<&Arc<Seen>>) -> Keys {
    packets(keys, |inner| Box::new(Watched(Early { inner, seen: seen.cloned() })))
}

/// Keys of 1-RTT packets.
pub(crate) fn data(keys: quic::Keys, seen: &Arc<Seen>) -> Keys {
    packets(keys, |inner| Box::new(Watched(Data { inner, seen: Arc::clone(seen) })))
}

/// The key of 0-RTT packets.
pub(crate) fn zero_rtt(inner: Box<dyn quic::PacketKey>, seen: &Arc<Seen>) -> Box<dyn PacketKey> {
    Box::new(Watched(Data { inner, seen: Arc::clone(seen) }))
}

fn packets(keys: quic::Keys, remote: impl FnOnce(Box<dyn quic::PacketKey>) -> Box<dyn PacketKey>) -> Keys {
    let quic::Keys { local, remote: theirs } = keys;
    Keys {
        header: KeyPair { local: Box::new(local.header), remote: Box::new(theirs.header) },
        packet: KeyPair { local: Box::new(local.packet), remote: remote(theirs.packet) },
    }
}

impl Updates {
    /// The keys of the next update.
    pub(crate) fn next(&mut self, seen: &Arc<Seen>) -> KeyPair<Box<dyn PacketKey>> {
        let secrets = match self {
            Self::First(secrets) => secrets.clone(),
            Self::After(last) => {
                let mut secrets = last.secrets.clone();
                drop(secrets.next_packet_keys());
                secrets
            }
        };
        let next = Arc::new(Next { secrets, keys: OnceLock::new() });
        *self = Self::After(Arc::clone(&next));
        KeyPair {
            local: Box::new(Watched(Local(Arc::clone(&next)))),
            remote: Box::new(Watched(Remote(next, Arc::clone(seen)))),
        }
    }
}

impl Next {
    fn keys(&self) -> &quic::PacketKeySet {
        self.keys.get_or_init(|| self.secrets.clone().next_packet_keys())
    }
}

/// What quinn-proto can use as a key.
type Inner = Box<dyn quic::PacketKey>;

/// quinn-proto's view of a key of ours.
struct Watched<W>(W);

/// A key that adds something to what another one does.
trait Wraps: Send + Sync {
    fn inner(&self) -> &Inner;

    /// Looks into a packet that has been decrypted.
    fn look(&self, _frames: &mut [u8]) -> Result<(), CryptoError> {
        Ok(())
    }
}

impl Wraps for Early {
    fn inner(&self) -> &Inner {
        &self.inner
    }

    fn look(&self, frames: &mut [u8]) -> Result<(), CryptoError> {
        if let Some(seen) = &self.seen {
            seen.has_proved.store(true, Relaxed);
        }
        if let Some(at) = application_close(frames)
            && let Some(kind) = frames.get_mut(at)
        {
            *kind = HANDSHAKE_DONE;
        }
        Ok(())
    }
}

impl Wraps for Data {
    fn inner(&self) -> &Inner {
        &self.inner
    }

    fn look(&self, frames: &mut [u8]) -> Result<(), CryptoError> {
        self.seen.admit(frames)
    }
}

impl Wraps for Local {
    fn inner(&self) -> &Inner {
        &self.0.keys().local
    }
}

impl Wraps for Remote {
    fn inner(&self) -> &Inner {
        &self.0.keys().remote
    }

    fn look(&self, frames: &mut [u8]) -> Result<(), CryptoError> {
        self.1.admit(frames)
    }
}

impl<W: Wraps> PacketKey for Watched<W> {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header_len: usize) {
        PacketKey::encrypt(self.0.inner(), packet, bytes, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        PacketKey::decrypt(self.0.inner(), packet, header, payload)?;
        self.0.look(payload)
    }

    fn tag_len(&self) -> usize {
        PacketKey::tag_len(self.0.inner())
    }

    fn confidentiality_limit(&self) -> u64 {
        PacketKey::confidentiality_limit(self.0.inner())
    }

    fn integrity_limit(&self) -> u64 {
        PacketKey::integrity_limit(self.0.inner())
    }
}
