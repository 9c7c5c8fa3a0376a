//! TLS inside QUIC, towards clients: the same certificates and authorities as over TCP, and tickets that may allow
//! early data. weir-quic runs it.

use super::server::server_config;
use super::{ClientAuth, Policy, Shown, Tickets, TlsError, versions};
use rustls::ServerConfig;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use std::fmt;
use std::sync::Arc;

/// The TLS policy of a listener's QUIC connections.
#[derive(Clone)]
pub struct QuicTls(Arc<ServerConfig>);

/// Sessions that clients may resume once, with early data.
///
/// Early data can be replayed. So its tickets are names of sessions that this process remembers, and using one forgets
/// it (RFC 9846 §8.1); a second ClientHello with the same ticket gets a full handshake. Another process or node does
/// not know them.
///
/// Limits: 16,384 sessions of some 300 bytes each, the oldest forgotten first. Its lock is taken once per handshake
/// and ticket, never on the path of a request.
#[derive(Clone)]
pub struct SingleUse(Arc<dyn StoresServerSessions>);

/// Most sessions that [`SingleUse`] remembers.
const SESSIONS: usize = 16_384;

impl QuicTls {
    /// Builds the policy: TLS 1.3 and the ALPN protocol `h3`. With `single_use` it accepts early data.
    ///
    /// # Errors
    /// If the file of authorities is unusable; or with early data and client certificates, because a client that
    /// resumes shows none.
    pub fn new(
        shown: Shown<'_>,
        client_auth: &ClientAuth,
        policy: &Policy,
        tickets: &Tickets,
        single_use: Option<&SingleUse>,
    ) -> Result<Self, TlsError> {
        let mut config = server_config(shown, client_auth, policy, versions(true))?;
        config.alpn_protocols = vec![b"h3".to_vec()];
        match single_use.filter(|_| policy.tickets) {
            Some(_) if *client_auth != ClientAuth::Off => {
                return Err(TlsError::policy("early data and client certificates exclude each other"));
            }
            Some(SingleUse(sessions)) => {
                config.session_storage = Arc::clone(sessions);
                config.max_early_data_size = u32::MAX; // QUIC allows no other, and limits it by its own windows
            }
            None if policy.tickets => config.ticketer = tickets.producer(),
            None => {}
        }
        Ok(Self(Arc::new(config)))
    }

    /// The policy in rustls's form, for weir-quic.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

impl Default for SingleUse {
    fn default() -> Self {
        Self(ServerSessionMemoryCache::new(SESSIONS))
    }
}

impl fmt::Debug for QuicTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicTls")
    }
}

impl fmt::Debug for SingleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SingleUse")
    }
}
