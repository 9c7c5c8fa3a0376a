//! The TLS session of a client's connection. It frees the state of rustls at the end of the handshake and keeps only
//! what a connection is asked for later. The session of quinn-proto would keep all of it as long as the connection
//! lives.
//!
//! It tells a client that it may open more streams than quinn-proto has entries for: see [`crate::allowance`].

use crate::allowance::Allowance;
use crate::frames::integers;
use crate::keys::{self, Seen, Updates};
use quinn_proto::coding::Codec;
use quinn_proto::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Dir, Side, TransportError, TransportErrorCode, VarInt};
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, ServerConnection, Suite, Version};
use rustls::server::StoresServerSessions;
use rustls::{AlertDescription, ServerConfig};
use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

/// The TLS policy of a server.
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    /// The suite of Initial packets.
    initial: Suite,
    /// quinn-proto's view of the policy.
    quinn: QuicServerConfig,
    /// Those of a client, by direction.
    streams: [Allowance; 2],
}

/// What [`crypto::Session::handshake_data`] of such a session returns.
pub(crate) struct Told {
    pub(crate) seen: Arc<Seen>,
    pub(crate) data: Option<HandshakeData>,
}

struct Session {
    stage: Stage,
    initial: Suite,
    version: Version,
    seen: Arc<Seen>,
    updates: Option<Updates>,
    /// quinn-proto knows that [`HandshakeData`] is there.
    is_told: bool,
}

enum Stage {
    Handshake(Box<ServerConnection>),
    Done(Box<Shown>),
}

/// What the handshake has shown.
#[derive(Clone)]
struct Shown {
    protocol: Option<Vec<u8>>,
    name: Option<String>,
    chain: Option<Vec<CertificateDer<'static>>>,
}

impl Tls {
    /// # Errors
    /// When the policy cannot be used for QUIC.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        initial: Suite,
        streams: [Allowance; 2],
    ) -> Result<Self, rustls::Error> {
        let config = with_sessions(config, streams[Dir::Bi as usize].told());
        // What would fail for a client fails now.
        drop(ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new())?);
        let quinn = QuicServerConfig::with_initial(Arc::clone(&config), initial)
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        Ok(Self { config, initial, quinn, streams })
    }
}

impl crypto::ServerConfig for Tls {
    fn initial_keys(&self, version: u32, to: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        let version = supported(version).ok_or(UnsupportedVersion)?;
        Ok(keys::early(self.initial.keys(to, rustls::Side::Server, version), None))
    }

    fn retry_tag(&self, version: u32, to: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.quinn.retry_tag(version, to, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let version = supported(version).unwrap_or(Version::V1); // `initial_keys` has accepted it
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        let params = with_streams(&bytes, self.streams.map(Allowance::told));
        let tls = ServerConnection::new(Arc::clone(&self.config), version, params)
            .expect("Tls::new has tried this policy");
        Box::new(Session {
            stage: Stage::Handshake(Box::new(tls)),
            initial: self.initial,
            version,
            seen: Arc::new(Seen::new(self.streams[Dir::Bi as usize].room().into())),
            updates: None,
            is_told: false,
        })
    }
}

/// The policy with sessions that allow early data only to a client that was told of no more streams than now: it
/// remembers what it was told (RFC 9000 §7.4.1), and sessions outlive a reload.
fn with_sessions(config: Arc<ServerConfig>, told: u32) -> Arc<ServerConfig> {
    if config.max_early_data_size == 0 {
        return config;
    }
    let mut config = ServerConfig::clone(&config);
    config.session_storage = Arc::new(Sessions { all: config.session_storage, told });
    Arc::new(config)
}

/// Sessions that remember how many bidirectional streams their client was told of.
#[derive(Debug)]
struct Sessions {
    all: Arc<dyn StoresServerSessions>,
    told: u32,
}

impl Sessions {
    fn usable(&self, mut value: Vec<u8>) -> Option<Vec<u8>> {
        let told = *value.last_chunk()?;
        value.truncate(value.len() - told.len());
        (u32::from_be_bytes(told) <= self.told).then_some(value)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        value.extend_from_slice(&self.told.to_be_bytes());
        self.all.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.usable(self.all.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.usable(self.all.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.all.can_cache()
    }
}

/// The versions of QUIC that quinn-proto speaks: 1, and the drafts of it that differ in keys only.
const fn supported(version: u32) -> Option<Version> {
    match version {
        0xff00_001d..=0xff00_0020 => Some(Version::V1Draft),
        0x0000_0001 | 0xff00_0021..=0xff00_0022 => Some(Version::V1),
        _ => None,
    }
}

/// Transport parameters with other values for `initial_max_streams_bidi` and `initial_max_streams_uni` (RFC 9000 §18.2).
/// The order stays. A parameter that is absent, because it is 0, stays so.
fn with_streams(params: &[u8], told: [u32; 2]) -> Vec<u8> {
    let (mut all, mut rest) = (Vec::with_capacity(params.len() + 2), params);
    while let Some([id, len]) = integers(&mut rest) {
        let Some((value, after)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len))
        else {
            break; // never: quinn-proto wrote them
        };
        rest = after;
        write_integer(id, &mut all);
        match id {
            0x08 | 0x09 => {
                let mut streams = Vec::new();
                write_integer(told[id as usize - 0x08].into(), &mut streams);
                write_integer(streams.len() as u64, &mut all);
                all.append(&mut streams);
            }
            _ => {
                write_integer(len, &mut all);
                all.extend_from_slice(value);
            }
        }
    }
    all
}

/// Writes a variable-length integer (RFC 9000 §16), the inverse of [`integers`].
fn write_integer(value: u64, to: &mut Vec<u8>) {
    VarInt::from_u64(value).expect("parameters and their lengths are below 2^62").encode(to);
}

impl Session {
    /// What the handshake has shown so far.
    fn shown(&self) -> Shown {
        match &self.stage {
            Stage::Handshake(tls) => Shown {
                protocol: tls.alpn_protocol().map(<[u8]>::to_vec),
                name: tls.server_name().map(str::to_owned),
                chain: tls.peer_certificates().map(<[_]>::to_vec),
            },
            Stage::Done(shown) => Shown::clone(shown),
        }
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, to: &ConnectionId, _: Side) -> Keys {
        keys::early(self.initial.keys(to, rustls::Side::Server, self.version), None)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let data = self.is_told.then(|| {
            let Shown { protocol, name, .. } = self.shown();
            HandshakeData { protocol, server_name: name }
        });
        Some(Box::new(Told { seen: Arc::clone(&self.seen), data }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.shown().chain.map(|chain| -> Box<dyn Any> { Box::new(chain) })
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let Stage::Handshake(tls) = &self.stage else { return None };
        let keys = tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), keys::zero_rtt(keys.packet, &self.seen)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None // for clients only
    }

    fn is_handshaking(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(tls) if tls.is_handshaking())
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let Stage::Handshake(tls) = &mut self.stage else {
            // RFC 9001 §6, §4.4: clients send nothing after the handshake.
            return Err(failed(AlertDescription::UnexpectedMessage, "a TLS message after the handshake"));
        };
        tls.read_hs(bytes).map_err(|e| match tls.alert() {
            Some(alert) => failed(alert, e.to_string()),
            None => TransportError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame: None,
                reason: format!("TLS error: {e}"),
            },
        })?;
        let is_there = tls.alpn_protocol().is_some() || tls.server_name().is_some() || !tls.is_handshaking();
        Ok(is_there && !std::mem::replace(&mut self.is_told, is_there))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Stage::Handshake(tls) = &self.stage else { return Ok(None) }; // quinn-proto has them
        let Some(bytes) = tls.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let Stage::Handshake(tls) = &mut self.stage else { return None };
        let before = out.len();
        let change = tls.write_hs(out);
        if let Some(suite) = tls.negotiated_cipher_suite() {
            self.seen.set_suite(suite.suite());
        }
        match change {
            Some(KeyChange::Handshake { keys }) => Some(keys::early(keys, Some(&self.seen))),
            Some(KeyChange::OneRtt { keys, next }) => {
                self.updates = Some(Updates::First(next));
                Some(keys::data(keys, &self.seen))
            }
            None => {
                // After the tickets, there is nothing more. Frees what only the handshake needs.
                if out.len() == before && !tls.is_handshaking() {
                    self.stage = Stage::Done(Box::new(self.shown()));
                }
                None
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.updates.as_mut()?.next(&self.seen))
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false // only servers send Retry packets
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError) // nobody asks, and its secret is freed
    }
}

fn failed(alert: AlertDescription, reason: impl Into<String>) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(alert.into()), frame: None, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_of_more_streams() {
        let params = [4, 4, 0x80, 1, 0, 0, 8, 1, 8, 0x40, 0x7f, 2, 8, 9, 9, 1, 6, 1, 2, 0x44, 0];
        let told = [4, 4, 0x80, 1, 0, 0, 8, 2, 0x40, 100, 0x40, 0x7f, 2, 8, 9, 9, 1, 16, 1, 2, 0x44, 0];
        assert_eq!(with_streams(&params, [100, 16]), told);
        assert_eq!(with_streams(&[], [100, 16]), []);
    }

    #[test]
    fn sessions_end_when_clients_may_open_fewer_streams() {
        let all: Arc<dyn StoresServerSessions> = rustls::server::ServerSessionMemoryCache::new(8);
        let of = |told| Sessions { all: Arc::clone(&all), told };
        for (told, is_usable) in [(100, true), (101, true), (99, false)] {
            assert!(of(100).put(b"key".to_vec(), b"value".to_vec()));
            assert_eq!(of(told).get(b"key").is_some(), is_usable);
            assert_eq!(of(told).take(b"key"), is_usable.then(|| b"value".to_vec()));
        }
        assert_eq!(of(100).get(b"key"), None, "it is taken");
        assert_eq!(of(100).usable(b"abc".to_vec()), None);
    }

    #[test]
    fn integers_are_read_as_they_were_written() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let mut bytes = Vec::new();
            write_integer(value, &mut bytes);
            assert_eq!(integers(&mut &bytes[..]), Some([value]));
        }
    }
}
