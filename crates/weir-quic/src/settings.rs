//! The limits and keys of endpoints.

use crate::allowance::Allowance;
use crate::ids::{Home, Ids};
use crate::path::Paths;
use crate::session::Tls;
use crate::tokens::{GIVEN, LIFETIME, Used};
use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TokenLog, TransportConfig,
    ValidationTokenConfig, VarInt,
};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The limits of an endpoint and its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a connection may be silent. The shorter of both sides' values counts (RFC 9000 §10.1). Default 30 s.
    pub idle: Duration,
    /// How long a handshake may take. Default 10 s, as for TLS over TCP.
    pub handshake: Duration,
    /// Bidirectional streams that the peer may have open at a time. Default 100. A new connection allows at most 100;
    /// the rest follow while the peer uses more than half of what it may: see `allowance`.
    pub streams: u32,
    /// Unidirectional streams that the peer may have open at a time. HTTP/3 needs 3; the others leave room for stream
    /// types that the peer invents to test extensibility (RFC 9114 §6.2.3). Default 16, of which a new connection
    /// allows 6.
    pub one_way_streams: u32,
    /// Bytes that we buffer of one stream until a task reads them. Default 256 KiB.
    pub stream_window: u32,
    /// Bytes that we buffer of all streams of a connection. Default 8 MiB: with uploads that nobody reads, a client can
    /// block 32 of its streams before it blocks its own connection.
    pub window: u32,
    /// Bytes that tasks may write to a connection before the peer has acknowledged any. Bounds the memory that a slow
    /// client holds. Default 1 MiB.
    pub unacknowledged: u32,
    /// Connections of one core; further clients are refused. Default 65,536.
    pub connections: usize,
    /// Handshakes of one core that may be under way; further clients are refused. Default 1,024.
    pub handshakes: usize,
    /// Of these, those of one client (an IPv4 address or an IPv6 /64) that has proved its address. Without it, one
    /// machine that begins a hundred handshakes per second and ends none shuts everybody out. Default 64.
    pub handshakes_per_client: usize,
    /// When clients must prove their address before we answer with more than a Retry packet.
    pub retry: Retry,
    /// Whether a client may change its address (RFC 9000 §9). Default true.
    pub migration: bool,
    /// Frames per second of a client that carry nothing for a stream, such as PING, beyond those that data earns: four
    /// for each frame with data in either direction. Default 1,000; honest clients stay far below.
    pub empty_frames: u32,
    /// The application error code that closes the connection of a client that sends more. Default 0.
    pub flood_code: u64,
}

/// When to answer a client's first packet with a Retry packet (RFC 9000 §8.1.2), which costs the client a round trip
/// and proves that it receives what we send to its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// While many handshakes are under way: see [`Limits::retry_from`].
    #[default]
    Auto,
    /// Always.
    Always,
}

/// The secrets that all cores of a gateway share, and that the next process takes over in an upgrade.
#[derive(Clone)]
pub struct Keys {
    bytes: [u8; Self::BYTES],
    used: Arc<Used>,
}

/// Names the policy that a connection was accepted under.
pub type Mark = [u8; 16];

/// The server side of an endpoint. Connections keep the one that they were accepted with.
#[derive(Clone)]
pub struct Server {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) limits: Limits,
    pub(crate) mark: Mark,
}

/// What a client connects with.
#[derive(Clone)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) limits: Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            streams: 100,
            one_way_streams: 16,
            stream_window: 256 * 1024,
            window: 8 * 1024 * 1024,
            unacknowledged: 1024 * 1024,
            connections: 65_536,
            handshakes: 1024,
            handshakes_per_client: 64,
            retry: Retry::Auto,
            migration: true,
            empty_frames: 1000,
            flood_code: 0,
        }
    }
}

impl Limits {
    /// With [`Retry::Auto`], the number of handshakes under way from which clients must prove their address: an eighth
    /// of what is allowed. Far fewer are under way at any time unless somebody sends first packets only.
    pub const fn retry_from(&self) -> usize {
        self.handshakes / 8
    }

    /// How many streams a peer may have open, by direction: bidirectional ones first, as in quinn-proto.
    pub(crate) const fn most_streams(&self) -> [u32; 2] {
        [self.streams, self.one_way_streams]
    }

    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        // Clients begin with as many entries.
        let [both_ways, one_way] = Allowance::of_server(self.most_streams()).map(Allowance::room);
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(both_ways))
            .max_concurrent_uni_streams(VarInt::from_u32(one_way))
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok())
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u32(self.window))
            .send_window(u64::from(self.unacknowledged))
            .datagram_receive_buffer_size(None) // no extension of ours uses datagrams (RFC 9221)
            .congestion_controller_factory(Arc::new(Paths::default()))
            .ack_frequency_config(Some(fewer_acknowledgements()));
        transport
    }
}

impl Keys {
    /// Bytes of all keys.
    pub const BYTES: usize = 96;

    /// New random keys.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        rand::fill(&mut bytes).map_err(|_| std::io::Error::other("the system gave no random bytes"))?;
        Ok(Self::of(bytes))
    }

    /// Keys that another process made.
    pub fn of(bytes: [u8; Self::BYTES]) -> Self {
        Self { bytes, used: Arc::default() }
    }

    /// The keys, for the next process.
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    fn part(&self, index: usize) -> &[u8] {
        &self.bytes[index * 32..(index + 1) * 32]
    }

    pub(crate) fn ids(&self, home: Home) -> Ids {
        Ids::new(home, self.part(0))
    }

    pub(crate) fn endpoint(&self, home: Home) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, self.part(1))));
        let keys = self.clone();
        config.cid_generator(move || Box::new(keys.ids(home)));
        let told = config.max_udp_payload_size(RECEIVED);
        debug_assert!(told.is_ok(), "QUIC allows 1,200 bytes and more");
        config
    }

    fn tokens(&self) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(self.part(2))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Server {
    /// A server with this TLS policy, whose ALPN names the protocol that runs above.
    ///
    /// # Errors
    /// When the policy has no TLS 1.3, or no cipher suite that QUIC can use.
    pub fn new(tls: Arc<rustls::ServerConfig>, keys: &Keys, limits: Limits) -> Result<Self, rustls::Error> {
        // The packets that begin a connection always use this suite (RFC 9001 §5.2), also where `ciphers` does not have
        // it: their keys protect nothing secret.
        let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let initial = initial.ok_or_else(|| rustls::Error::General("no suite for Initial packets".into()))?;
        let tls = Tls::new(tls, initial, Allowance::of_client(limits.most_streams()))?;
        let mut tokens = ValidationTokenConfig::default();
        let used: Arc<dyn TokenLog> = Arc::<Used>::clone(&keys.used);
        tokens.sent(GIVEN).lifetime(LIFETIME).log(used);
        let mut config = ServerConfig::new(Arc::new(tls), Arc::new(keys.tokens()));
        config
            .transport_config(Arc::new(limits.transport()))
            .migration(limits.migration)
            .validation_token_config(tokens)
            .max_incoming(limits.handshakes)
            .incoming_buffer_size(INCOMING)
            .incoming_buffer_size_total(INCOMING * limits.handshakes as u64);
        Ok(Self { config: Arc::new(config), limits, mark: Mark::default() })
    }

    /// Marks the connections that it accepts: see [`crate::Connection::mark`].
    #[must_use]
    pub fn marked(self, mark: Mark) -> Self {
        Self { mark, ..self }
    }
}

/// Longest datagram that we process, of which we tell peers: a whole Ethernet frame without the headers of IPv4 and UDP.
pub(crate) const RECEIVED: u16 = 1472;

/// What we ask of a peer that knows the extension for it (draft-ietf-quic-ack-frequency): an acknowledgement for every
/// tenth packet instead of every second one, but none later than [`ACK_DELAY`]. Without the second half, a sender whose
/// congestion window holds fewer packets would wait for the peer's usual 25 ms.
fn fewer_acknowledgements() -> AckFrequencyConfig {
    let mut config = AckFrequencyConfig::default();
    config.ack_eliciting_threshold(VarInt::from_u32(UNACKNOWLEDGED_PACKETS)).max_ack_delay(Some(ACK_DELAY));
    config
}

/// Packets that a peer may leave unacknowledged when the next one arrives: see [`fewer_acknowledgements`].
const UNACKNOWLEDGED_PACKETS: u32 = 9;

/// How long a peer may wait before it acknowledges a packet: see [`fewer_acknowledgements`].
const ACK_DELAY: Duration = Duration::from_millis(5);

/// Bytes kept of a client between its first packet and our decision about it, which the endpoint makes at once.
const INCOMING: u64 = 16 * 1024;

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Client {
    /// A client with this TLS policy.
    ///
    /// # Errors
    /// When the policy has no cipher suite that QUIC can start with (`TLS13_AES_128_GCM_SHA256`, RFC 9001 §5.2), or no
    /// TLS 1.3.
    pub fn new(tls: Arc<rustls::ClientConfig>, limits: &Limits) -> Result<Self, NoInitialCipherSuite> {
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::new(limits.transport()));
        Ok(Self { config, limits: limits.clone() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
