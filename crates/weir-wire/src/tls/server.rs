//! TLS towards clients: certificate selection by name, client certificates, tickets.

use super::buffered::Buffered;
use super::unbuffered::{Unbuffered, note_server_name};
use super::untrusted::AcceptUntrusted;
use super::{
    Certificate, Part, Peer, PeerCertificate, Policy, Proofs, Session, Slot, Tickets, TlsError, TlsStream,
    read_authorities,
};
use crate::Socket;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureAlgorithm, SupportedProtocolVersion};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Whether clients must show a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// We request a certificate, and serve the client whatever it sends. A certificate that is not valid counts as
    /// none.
    AcceptUntrusted(PathBuf),
    /// We request no certificate.
    #[default]
    Off,
    /// We request a certificate; if the client sends one, it must be valid.
    Optional(PathBuf),
    /// The handshake fails without a valid certificate.
    Required(PathBuf),
}

impl ClientAuth {
    /// The file of the authorities that verify certificates; `None` if we request none.
    pub fn ca(&self) -> Option<&Path> {
        match self {
            Self::Off => None,
            Self::AcceptUntrusted(ca) | Self::Optional(ca) | Self::Required(ca) => Some(ca),
        }
    }
}

/// The TLS policy of a listener.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    /// Decides about certificates that the handshake accepted without verifying them.
    untrusted: Option<AcceptUntrusted>,
    /// Where certificate authorities may request proofs.
    proofs: Option<Box<Proofs>>,
}

/// The result of a handshake.
#[derive(Debug)]
pub enum Handshake {
    /// A client.
    Client(Box<TlsStream>),
    /// A certificate authority that received the proof it asked for. The connection has ended.
    Proof,
}

/// The certificates for clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// Certificates that never change, selected by the names in them. The first one serves clients that send no name
    /// or an unknown one.
    pub fixed: &'a [Certificate],
    /// Certificates that may be replaced while the policy is in use, each with its name. If `fixed` is empty, the
    /// first of these is the default.
    pub kept: &'a [(String, Slot)],
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Builds the policy. `alpn` lists protocols in order of preference.
    ///
    /// # Errors
    /// If the file of authorities is unusable or the system has no randomness.
    pub fn new(
        shown: Shown<'_>,
        client_auth: &ClientAuth,
        alpn: &[&[u8]],
        policy: &Policy,
        tickets: &Tickets,
    ) -> Result<Self, TlsError> {
        let (mut config, untrusted) = server_config(shown, client_auth, policy, policy.versions())?;
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        if policy.tickets {
            config.ticketer = tickets.producer();
        }
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), untrusted, proofs: None })
    }

    /// The same policy, which also answers certificate authorities.
    #[must_use]
    pub fn with_proofs(self, proofs: Proofs) -> Self {
        Self { proofs: Some(Box::new(proofs)), ..self }
    }

    /// Performs the handshake with a client. Dropping the future drops the connection.
    ///
    /// # Errors
    /// The rustls error.
    pub async fn accept(&self, socket: Socket) -> io::Result<Handshake> {
        let session = match self.proofs.as_deref().filter(|proofs| proofs.any()) {
            None => Session::Unbuffered(Unbuffered::accept(self.acceptor.config(), socket).await?),
            // While proofs are wanted, each ClientHello chooses the config of its session. Only rustls' `Acceptor` can
            // do that, and its sessions have buffers of their own.
            Some(proofs) => {
                let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket).await?;
                if let Some(config) = proofs.answer(&start.client_hello()) {
                    let mut proven = start.into_stream(config).await?;
                    let _ = proven.shutdown().await; // the authority has its proof, and may be gone
                    return Ok(Handshake::Proof);
                }
                let stream = start.into_stream(Arc::clone(self.acceptor.config())).await?;
                Session::Buffered(Box::new(Buffered::new(stream)))
            }
        };
        let mut stream = Box::new(TlsStream::new(session, Peer::Trusted));
        stream.peer = self.peer(stream.common().peer_certificates());
        Ok(Handshake::Client(stream))
    }

    /// Whether a client's certificate may identify it. A resumed session has the certificate of the first handshake.
    fn peer(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        match (&self.untrusted, chain) {
            (Some(untrusted), Some(chain)) if !untrusted.trusts(chain) => Peer::Untrusted,
            _ => Peer::Trusted,
        }
    }
}

impl ServerTls {
    /// Performs the handshake for a connection that carries something other than exchanges; also returns the client's
    /// certificate. Dropping the future drops the connection.
    ///
    /// # Errors
    /// The rustls error.
    pub async fn accept_beside(
        &self,
        stream: TcpStream,
    ) -> io::Result<(impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Option<PeerCertificate>)> {
        let stream = self.acceptor.accept(stream).await?;
        let chain =
            stream.get_ref().1.peer_certificates().filter(|chain| self.peer(Some(chain)) == Peer::Trusted);
        let certificate = chain.and_then(|chain| chain.first()).map(|leaf| PeerCertificate::of(leaf));
        Ok((stream, certificate))
    }
}

/// What all policies towards clients have in common, and what decides about certificates that the handshake does not
/// verify. No tickets are made yet.
pub(super) fn server_config(
    shown: Shown<'_>,
    client_auth: &ClientAuth,
    policy: &Policy,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<(ServerConfig, Option<AcceptUntrusted>), TlsError> {
    let provider = Arc::clone(policy.provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|e| TlsError::policy("no policy of TLS").because(e))?;
    let verifier = verifier(client_auth, provider)?;
    let mut untrusted = None;
    let builder = match (verifier, client_auth) {
        (None, _) => builder.with_no_client_auth(),
        (Some(verifier), ClientAuth::AcceptUntrusted(_)) => {
            let verifier = untrusted.insert(AcceptUntrusted(verifier));
            builder.with_client_cert_verifier(Arc::new(verifier.clone()))
        }
        (Some(verifier), _) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(shown)?));
    config.session_storage = Arc::new(NoServerSessionStorage {}); // tickets resume sessions without server memory
    config.send_tls13_tickets = if policy.tickets { 2 } else { 0 };
    config.max_fragment_size = None;
    Ok((config, untrusted))
}

/// Verifies certificates of clients by the authorities in a file.
fn verifier(
    client_auth: &ClientAuth,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(ca) = client_auth.ca() else { return Ok(None) };
    let roots = Arc::new(read_authorities(ca)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
    let verifier = match client_auth {
        ClientAuth::Required(_) => verifier,
        _ => verifier.allow_unauthenticated(),
    };
    let unusable = || TlsError::of(Part::Authority, ca.display().to_string());
    Ok(Some(verifier.build().map_err(|e| unusable().because(e))?))
}

/// TLS 1.2 and 1.3, or 1.3 only.
pub fn versions(only_13: bool) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    if only_13 { &BOTH[..1] } else { &BOTH }
}

/// Selects certificates by the names in them: the exact name, then the wildcard of its first label, then the default.
/// One name may have several certificates with different kinds of keys (RSA and ECDSA). The client's signature
/// schemes decide; ECDSA comes first because it costs a tenth. A fixed certificate takes precedence over a
/// replaceable one for the same name.
#[derive(Debug)]
struct Certificates {
    by_name: HashMap<String, Choice>,
    default: Choice,
}

/// The certificates for a name.
#[derive(Debug)]
enum Choice {
    Fixed(Vec<Arc<CertifiedKey>>),
    Kept(Slot),
}

impl Certificates {
    fn new(shown: Shown<'_>) -> Result<Self, TlsError> {
        let mut by_name: HashMap<String, Vec<_>> = HashMap::new();
        let mut first = Vec::new();
        for certificate in shown.fixed {
            // The default is the first certificate, plus the one for the same names with another kind of key, if any.
            if shown.fixed.first().is_some_and(|default| default.names() == certificate.names()) {
                insert(&mut first, certificate.certified());
            }
            for name in certificate.names() {
                insert(by_name.entry(name.clone()).or_default(), certificate.certified());
            }
        }
        let default = match (first.is_empty(), shown.kept.first()) {
            (false, _) => Choice::Fixed(first),
            (true, Some((_, slot))) => Choice::Kept(slot.clone()),
            (true, None) => return Err(TlsError::policy("no certificate")),
        };
        let mut by_name: HashMap<String, Choice> =
            by_name.into_iter().map(|(name, keys)| (name, Choice::Fixed(keys))).collect();
        for (name, slot) in shown.kept {
            by_name.entry(name.clone()).or_insert_with(|| Choice::Kept(slot.clone()));
        }
        Ok(Self { by_name, default })
    }
}

/// Keeps ECDSA and Ed25519 before RSA. Of two keys of the same kind, the first in the config stays.
fn insert(keys: &mut Vec<Arc<CertifiedKey>>, key: &Arc<CertifiedKey>) {
    let algorithm = key.key.algorithm();
    if keys.iter().any(|k| k.key.algorithm() == algorithm) {
        return;
    }
    if algorithm == SignatureAlgorithm::RSA {
        keys.push(Arc::clone(key));
    } else {
        keys.insert(0, Arc::clone(key));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        note_server_name(hello.server_name());
        let named = hello.server_name().and_then(|name| {
            let name = name.to_ascii_lowercase();
            self.by_name.get(&name).or_else(|| {
                let (_, rest) = name.split_once('.')?;
                self.by_name.get(&format!("*.{rest}"))
            })
        });
        match named.unwrap_or(&self.default) {
            Choice::Kept(slot) => Some(Arc::clone(slot.get().certified())),
            Choice::Fixed(keys) => {
                let usable = keys.iter().find(|k| k.key.choose_scheme(hello.signature_schemes()).is_some());
                usable.or_else(|| keys.first()).cloned()
            }
        }
    }
}
