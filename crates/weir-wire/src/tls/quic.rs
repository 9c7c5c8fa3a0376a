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
    /// If the file of authorities is unusable; with [`ClientAuth::AcceptUntrusted`]; or with early data and client
    /// certificates, because a client that resumes shows none.
    pub fn new(
        shown: Shown<'_>,
        client_auth: &ClientAuth,
        policy: &Policy,
        tickets: &Tickets,
        single_use: Option<&SingleUse>,
    ) -> Result<Self, TlsError> {
        let (mut config, untrusted) = server_config(shown, client_auth, policy, versions(true))?;
        if untrusted.is_some() {
            // Nothing asks afterwards whether the certificate of a QUIC connection is to be trusted.
            return Err(TlsError::policy("HTTP/3 does not accept untrusted certificates of clients"));
        }
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

#[cfg(test)]
mod tests {
    use super::super::Certificate;
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::quic::{ClientConnection, ServerConnection, Version};
    use rustls::{ClientConfig, RootCertStore};

    /// A certificate, and a client that trusts it and sends early data where it may.
    fn certificate() -> (Certificate, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions(true));
        let mut client = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![b"h3".to_vec()];
        client.enable_early_data = true;
        let pem = (made.cert.pem(), made.signing_key.serialize_pem());
        (Certificate::of_pem(&pem.0, &pem.1).unwrap(), Arc::new(client))
    }

    fn policy(
        certificate: &Certificate,
        client_auth: &ClientAuth,
        policy: &Policy,
        once: Option<&SingleUse>,
    ) -> Result<QuicTls, TlsError> {
        let shown = Shown { fixed: std::slice::from_ref(certificate), kept: &[] };
        QuicTls::new(shown, client_auth, policy, &Tickets::new().unwrap(), once)
    }

    fn client(config: &Arc<ClientConfig>) -> (ClientConnection, Vec<u8>) {
        let name = "a.test".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(config), Version::V1, name, Vec::new()).unwrap();
        let mut hello = Vec::new();
        client.write_hs(&mut hello);
        (client, hello)
    }

    fn server(tls: &QuicTls) -> ServerConnection {
        ServerConnection::new(tls.config(), Version::V1, Vec::new()).unwrap()
    }

    /// What one side has to send under its current keys; `None` if there is nothing.
    fn flight(mut write: impl FnMut(&mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while write(&mut out) && out.is_empty() {}
        (!out.is_empty()).then_some(out)
    }

    /// Completes a handshake. Returns whether the server took the early data, if the client could send any.
    fn connect(config: &Arc<ClientConfig>, tls: &QuicTls) -> Option<bool> {
        let ((mut client, hello), mut server) = (client(config), server(tls));
        let offers = client.zero_rtt_keys().is_some();
        server.read_hs(&hello).unwrap();
        let accepts = server.zero_rtt_keys().is_some();
        // The rest of the handshake, with the tickets behind it.
        for _ in 0..3 {
            while let Some(flight) = flight(|out| server.write_hs(out).is_some()) {
                client.read_hs(&flight).unwrap();
            }
            while let Some(flight) = flight(|out| client.write_hs(out).is_some()) {
                server.read_hs(&flight).unwrap();
            }
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert_eq!(client.alpn_protocol(), Some(&b"h3"[..]));
        offers.then_some(accepts)
    }

    #[test]
    fn a_ticket_allows_early_data_once() {
        let (certificate, config) = certificate();
        let once = SingleUse::default();
        let make = || policy(&certificate, &ClientAuth::Off, &Policy::default(), Some(&once)).unwrap();
        assert_eq!(connect(&config, &make()), None, "it has no ticket yet");
        assert_eq!(connect(&config, &make()), Some(true), "another policy with the same sessions: a reload");
        // Whoever records the first flight can send it again, and gets a full handshake.
        let (_, hello) = client(&config);
        for (time, accepted) in [("the first", true), ("the second", false), ("the third", false)] {
            let mut server = server(&make());
            server.read_hs(&hello).unwrap();
            assert_eq!(server.zero_rtt_keys().is_some(), accepted, "{time} time");
        }
        let other = SingleUse::default();
        let restarted = policy(&certificate, &ClientAuth::Off, &Policy::default(), Some(&other)).unwrap();
        assert_ne!(connect(&config, &restarted), Some(true), "the next process does not know the ticket");
    }

    #[test]
    fn early_data_must_be_allowed() {
        let (certificate, config) = certificate();
        let without = policy(&certificate, &ClientAuth::Off, &Policy::default(), None).unwrap();
        assert_eq!(connect(&config, &without), None);
        assert_eq!(connect(&config, &without), None, "its tickets allow none");
        let once = SingleUse::default();
        let untold = Policy::default().with_tickets(false);
        let untold = policy(&certificate, &ClientAuth::Off, &untold, Some(&once)).unwrap();
        assert_eq!(connect(&config, &untold), None);
        assert_eq!(connect(&config, &untold), None, "it gives no tickets");
    }

    #[test]
    fn early_data_and_client_certificates_exclude_each_other() {
        let (certificate, _) = certificate();
        let dir = std::env::temp_dir().join(format!("weir-quic-tls-{}.pem", std::process::id()));
        let made = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
        std::fs::write(&dir, made.cert.pem()).unwrap();
        for mode in [ClientAuth::Optional(dir.clone()), ClientAuth::Required(dir.clone())] {
            let once = SingleUse::default();
            assert!(policy(&certificate, &mode, &Policy::default(), Some(&once)).is_err());
            assert!(policy(&certificate, &mode, &Policy::default(), None).is_ok());
        }
        let _ = std::fs::remove_file(dir);
    }
}
