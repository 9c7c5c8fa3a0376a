//! Proof of control over a name in a TLS handshake (`tls-alpn-01`, RFC 8737). A certificate authority connects,
//! requests the protocol `acme-tls/1` by ALPN and the name by SNI, and checks a digest in a certificate made for this
//! purpose.
//!
//! While no proof is pending, a handshake only checks one counter.

use super::{Part, TlsError};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The protocol that a certificate authority requests (RFC 8737 §6.2).
const PROTOCOL: &[u8] = b"acme-tls/1";

/// The pending proofs, by name. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Proofs(Arc<Awaited>);

struct Awaited {
    count: AtomicUsize,
    by_name: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

/// Presents the proof for the requested name.
#[derive(Debug)]
struct Show(Arc<CertifiedKey>);

impl Proofs {
    /// No pending proofs.
    pub fn new() -> Self {
        Self(Arc::new(Awaited { count: AtomicUsize::new(0), by_name: RwLock::default() }))
    }

    /// Answers handshakes for `name` (the SNI in lower case) with this certificate (DER) and key (PKCS#8).
    ///
    /// # Errors
    /// When the key is unusable.
    pub fn expect(&self, name: &str, certificate: Vec<u8>, key: Vec<u8>) -> Result<(), TlsError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let key = aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|e| TlsError::of(Part::Key, "the key of a proof").because(e))?;
        let certified = CertifiedKey::new(vec![CertificateDer::from(certificate)], key);
        let mut by_name = self.0.by_name.write().unwrap_or_else(PoisonError::into_inner);
        by_name.insert(name.to_owned(), Arc::new(certified));
        self.0.count.store(by_name.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Removes the proof for `name`.
    pub fn forget(&self, name: &str) {
        let mut by_name = self.0.by_name.write().unwrap_or_else(PoisonError::into_inner);
        by_name.remove(name);
        self.0.count.store(by_name.len(), Ordering::Relaxed);
    }

    /// Whether any proof is pending.
    pub(super) fn any(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) > 0
    }

    /// The policy for this handshake, if a certificate authority asks for a name with a pending proof.
    pub(super) fn answer(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        // The list must contain only this protocol (RFC 8737 §3).
        let mut asked = hello.alpn()?;
        if asked.next() != Some(PROTOCOL) || asked.next().is_some() {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        let by_name = self.0.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let certified = Arc::clone(by_name.get(&name)?);
        drop(by_name);
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(super::versions(false)).ok()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Show(certified)));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {}); // nobody resumes a proof
        config.send_tls13_tickets = 0;
        Some(Arc::new(config))
    }
}

impl Default for Proofs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let awaited = self.0.by_name.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(awaited.keys()).finish()
    }
}

impl ResolvesServerCert for Show {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
