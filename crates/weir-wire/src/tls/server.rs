//! TLS towards clients: certificates by name, client certificates, tickets.

use super::{
    Certificate, Part, PeerCertificate, Proofs, Slot, Tickets, TlsError, TlsStream, read_certificates,
    socket_of,
};
use crate::Stream;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SignatureAlgorithm, SupportedProtocolVersion};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Whether clients must show a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked; one that is shown must be valid.
    Optional(PathBuf),
    /// Without a valid one the handshake fails.
    Required(PathBuf),
}

/// The TLS policy of a listener.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    /// Where certificate authorities may ask for proofs.
    proofs: Option<Box<Proofs>>,
}

/// What a handshake came to.
#[derive(Debug)]
pub enum Handshake {
    /// A client that wants to speak.
    Client(Stream),
    /// A certificate authority that saw the proof it had asked for. The connection has ended.
    Proof,
}

/// What is shown to clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// Certificates that stay as they are, by the names in them. The first one is for clients that ask for no name, or another.
    pub fixed: &'a [Certificate],
    /// Certificates that are replaced while the policy is in use, each with its name. The first one takes the place of the first of
    /// `fixed` where there are none.
    pub kept: &'a [(String, Slot)],
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Makes the policy. `alpn` lists protocols in order of preference.
    ///
    /// # Errors
    /// The file of authorities that cannot be used, or a system without randomness.
    pub fn new(
        shown: Shown<'_>,
        client_auth: &ClientAuth,
        alpn: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
        tickets: &Tickets,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|e| TlsError::policy(e.to_string()))?;
        let builder = match client_auth {
            ClientAuth::Off => builder.with_no_client_auth(),
            ClientAuth::Optional(ca) | ClientAuth::Required(ca) => {
                let mut roots = RootCertStore::empty();
                let unusable =
                    |e: &dyn fmt::Display| TlsError::of(Part::Authority, format!("{}: {e}", ca.display()));
                for cert in read_certificates(ca, Part::Authority)? {
                    roots.add(cert).map_err(|e| unusable(&e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match client_auth {
                    ClientAuth::Optional(_) => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|e| unusable(&e))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(shown)?));
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        config.ticketer = tickets.producer();
        config.session_storage = Arc::new(NoServerSessionStorage {}); // tickets do it without memory of ours
        config.send_tls13_tickets = 2;
        config.max_fragment_size = None;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), proofs: None })
    }

    /// The same policy, which also answers certificate authorities.
    #[must_use]
    pub fn with_proofs(self, proofs: Proofs) -> Self {
        Self { proofs: Some(Box::new(proofs)), ..self }
    }

    /// Shakes hands with a client. Dropping the future drops the connection.
    ///
    /// # Errors
    /// What rustls says.
    pub async fn accept(&self, stream: Stream) -> io::Result<Handshake> {
        let socket = socket_of(stream)?;
        let stream = match self.proofs.as_deref().filter(|proofs| proofs.any()) {
            None => self.acceptor.accept(socket).await?,
            Some(proofs) => {
                let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket).await?;
                if let Some(config) = proofs.answer(&start.client_hello()) {
                    let mut proven = start.into_stream(config).await?;
                    let _ = proven.shutdown().await; // it has seen what it came for, and may be gone
                    return Ok(Handshake::Proof);
                }
                start.into_stream(Arc::clone(self.acceptor.config())).await?
            }
        };
        Ok(Handshake::Client(Stream::Tls(Box::new(TlsStream(stream.into())))))
    }
}

impl ServerTls {
    /// Shakes hands on a connection that something else than an exchange is to serve; gives the certificate that the client showed.
    /// Dropping the future drops the connection.
    ///
    /// # Errors
    /// What rustls says.
    pub async fn accept_beside(
        &self,
        stream: TcpStream,
    ) -> io::Result<(impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Option<PeerCertificate>)> {
        let stream = self.acceptor.accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = chain.and_then(|chain| chain.first()).map(|leaf| PeerCertificate::of(leaf));
        Ok((stream, certificate))
    }
}

/// TLS 1.2 and 1.3, or 1.3 alone.
pub fn versions(only_13: bool) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    if only_13 { &BOTH[..1] } else { &BOTH }
}

/// Certificates by the names in them: the exact name, then the wildcard of its first label, then the default. For one name there may
/// be several with different keys (RSA and ECDSA): the client's signature schemes decide, ECDSA first because it costs a tenth.
/// A certificate that is kept up to date gives way to a fixed one for the same name.
#[derive(Debug)]
struct Certificates {
    by_name: HashMap<String, Choice>,
    default: Choice,
}

/// What there is for a name.
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
            // The default is the first certificate, with its twin of the other key type if the list has one.
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

/// Keeps ECDSA and Ed25519 before RSA; of two of one kind the first written stays.
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
