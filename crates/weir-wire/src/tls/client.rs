//! TLS towards upstreams, verified by default.

use super::buffered::Buffered;
use super::fault::{explained, is_authority};
use super::{
    Part, Peer, Session, TlsError, TlsStream, Validity, der, read_authorities, read_certificates, read_key,
};
use crate::Socket;
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The TLS policy towards an upstream.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    validity: Option<Validity>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files and builds the policy.
    ///
    /// `ca` replaces the system's roots; a server may also present a certificate from `ca` as its own. `identity` is
    /// a certificate and key to present. `server_name` is sent and verified instead of the endpoint's own name.
    /// `verify: false` accepts any certificate. `alpn` lists protocols in order of preference.
    ///
    /// # Errors
    /// The first unusable file or name, with what is wrong.
    pub fn new(
        ca: Option<&Path>,
        identity: Option<(&Path, &Path)>,
        server_name: Option<&str>,
        verify: bool,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let verifier: Option<Arc<dyn ServerCertVerifier>> = match (verify, ca) {
            (false, _) => Some(Arc::new(AnyCertificate(Arc::new(aws_lc_rs::default_provider())))),
            (true, None) => None,
            (true, Some(path)) => Some(Arc::new(Given {
                usual: usual(Arc::new(roots(ca)?), path)?,
                certificates: read_certificates(path, Part::Authority)?,
            })),
        };
        Self::verified_by(verifier, identity, server_name, alpn)
    }

    /// As [`Self::new`], but the certificate must have one of `names` instead of the name that is asked for. A name with
    /// `://` is a URI, such as `spiffe://cluster/ns/app`, and is compared exactly; the others are DNS names or addresses.
    ///
    /// # Errors
    /// As [`Self::new`], and for an empty or malformed name.
    pub fn with_names(
        ca: Option<&Path>,
        identity: Option<(&Path, &Path)>,
        server_name: Option<&str>,
        names: &[String],
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(ca)?);
        let certificates = ca.map(|path| read_certificates(path, Part::Authority)).transpose()?;
        let names = names.iter().map(|name| Accepted::parse(name)).collect::<Result<_, _>>()?;
        let usual = usual(Arc::clone(&roots), ca.unwrap_or(Path::new("")))?;
        let certificates = certificates.unwrap_or_default();
        let provider = Arc::new(aws_lc_rs::default_provider());
        Self::verified_by(
            Some(Arc::new(Named { usual, provider, roots, certificates, names })),
            identity,
            server_name,
            alpn,
        )
    }

    /// A policy with this verifier. Without one, the system's authorities decide.
    fn verified_by(
        verifier: Option<Arc<dyn ServerCertVerifier>>,
        identity: Option<(&Path, &Path)>,
        server_name: Option<&str>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(super::server::versions(false))
            .map_err(|e| TlsError::policy("no policy of TLS").because(e))?;
        let builder = match verifier {
            Some(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
            None => builder.with_root_certificates(roots(None)?),
        };
        let (mut config, validity) = with_identity(builder, identity)?;
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        let server_name = server_name
            .map(|name| ServerName::try_from(name.to_owned()))
            .transpose()
            .map_err(|_| TlsError::of(Part::ServerName, "the name is neither a DNS name nor an address"))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name, validity })
    }

    /// The same policy without a protocol (ALPN), for bytes that may be anything.
    #[must_use]
    pub fn without_alpn(&self) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        config.alpn_protocols.clear();
        Self { connector: TlsConnector::from(Arc::new(config)), ..self.clone() }
    }

    /// The policy for QUIC, which offers HTTP/3 and TLS 1.3 only, and the name to ask for instead of the target's own.
    pub fn for_http3(&self) -> (Arc<ClientConfig>, Option<String>) {
        let mut config = ClientConfig::clone(self.connector.config());
        config.alpn_protocols = vec![b"h3".to_vec()];
        (Arc::new(config), self.server_name.as_ref().map(|name| name.to_str().into_owned()))
    }

    /// The same policy without session resumption: each connection makes a full handshake.
    #[must_use]
    pub fn without_resumption(&self) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        config.resumption = rustls::client::Resumption::disabled();
        Self { connector: TlsConnector::from(Arc::new(config)), ..self.clone() }
    }

    /// A policy that accepts exactly the certificates in these files, regardless of their names. For a server whose
    /// own config we can read.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn pinned(files: &[&Path], identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut leaves = Vec::new();
        for file in files {
            leaves.extend(read_certificates(file, Part::Authority)?.into_iter().take(1));
        }
        let any = AnyCertificate(Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(super::server::versions(false))
            .map_err(|e| TlsError::policy("no policy of TLS").because(e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { any, leaves }));
        let (config, validity) = with_identity(builder, identity)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name: None, validity })
    }

    /// Like [`Self::connect`], on a blocking socket.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_blocking(
        &self,
        mut stream: std::net::TcpStream,
        name: &str,
    ) -> io::Result<Box<dyn ReadWrite>> {
        let name = self.name_of(name)?;
        let config = Arc::clone(self.connector.config());
        let mut connection = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(explained)?;
        }
        Ok(Box::new(Closing(rustls::StreamOwned::new(connection, stream))))
    }

    fn name_of(&self, name: &str) -> io::Result<ServerName<'static>> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(name.to_owned())
                .map_err(|_| io::Error::other(format!("`{name}` can not be verified: set tls.server_name"))),
        }
    }

    /// Performs the handshake for a connection that carries something other than exchanges, as
    /// [`ServerTls::accept_beside`](super::ServerTls::accept_beside) does for the other side.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_beside(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
        let name = self.name_of(name)?;
        self.connector.connect(name, stream).await.map_err(explained)
    }

    /// The validity period of the certificate that we present.
    pub const fn validity(&self) -> Option<Validity> {
        self.validity
    }

    /// Performs the handshake with an upstream known by `name` (a DNS name or an address).
    ///
    /// # Errors
    /// The rustls error, including a failed verification.
    pub async fn connect(&self, socket: Socket, name: &str) -> io::Result<Box<TlsStream>> {
        let name = self.name_of(name)?;
        let stream = self.connector.connect(name, socket).await.map_err(explained)?;
        let session = Session::Buffered(Box::new(Buffered::new(stream)));
        Ok(Box::new(TlsStream::new(session, Peer::Trusted)))
    }
}

/// A blocking connection.
pub trait ReadWrite: io::Read + io::Write + Send {}

impl<T: io::Read + io::Write + Send> ReadWrite for T {}

/// Sends a close_notify when dropped, so that the peer can tell a complete message from a truncated one (RFC 8446
/// §6.1).
struct Closing(rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>);

impl io::Read for Closing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.conn.write_tls(&mut self.0.sock); // the other side may be gone
    }
}

/// The policy with a certificate to present, and its validity period.
fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<(&Path, &Path)>,
) -> Result<(ClientConfig, Option<Validity>), TlsError> {
    let Some((cert, key)) = identity else { return Ok((builder.with_no_client_auth(), None)) };
    let chain = read_certificates(cert, Part::Certificate)?;
    let validity = chain.first().and_then(|leaf| der::validity(leaf));
    let mismatch = format!("{} is not the key of {}", key.display(), cert.display());
    let config = builder.with_client_auth_cert(chain, read_key(key)?).map_err(|e| match e {
        rustls::Error::InconsistentKeys(_) => TlsError::of(Part::Key, mismatch),
        e => TlsError::of(Part::Certificate, cert.display().to_string()).because(e),
    })?;
    Ok((config, validity))
}

/// Delegates signature verification to another verifier, which is this field.
macro_rules! signatures_as {
    ($other:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.$other.verify_tls12_signature(message, cert, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.$other.verify_tls13_signature(message, cert, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$other.supported_verify_schemes()
        }
    };
}

/// Accepts exactly these certificates, from a peer that holds their keys.
#[derive(Debug)]
struct Pinned {
    any: AnyCertificate,
    leaves: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.leaves.iter().any(|leaf| leaf == end_entity) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)),
        }
    }

    signatures_as!(any);
}

/// Verifies as usual, and also accepts a certificate that was itself configured as trusted, as curl does. rustls
/// treats a self-signed certificate as an authority, which no server may present as its own.
#[derive(Debug)]
struct Given {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Given {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.usual.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // Its dates were checked before this error, but not its name.
            Err(rustls::Error::InvalidCertificate(e))
                if is_authority(&e) && self.certificates.iter().any(|given| given == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            told => told,
        }
    }

    signatures_as!(usual);
}

/// Verifies the chain, and that the certificate has one of these names, whatever name was asked for.
#[derive(Debug)]
struct Named {
    usual: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    /// Certificates that are trusted themselves: see [`Given`].
    certificates: Vec<CertificateDer<'static>>,
    names: Vec<Accepted>,
}

/// A name of which a certificate must have one.
#[derive(Debug)]
enum Accepted {
    /// A DNS name or an address.
    Host(ServerName<'static>),
    /// A URI, as written in the certificate.
    Uri(Box<[u8]>),
}

impl Accepted {
    fn parse(text: &str) -> Result<Self, TlsError> {
        if text.contains("://") {
            return Ok(Self::Uri(text.as_bytes().into()));
        }
        let host = ServerName::try_from(text.to_owned()).map_err(|_| {
            TlsError::of(Part::Name, format!("`{text}` is no DNS name, no address and no URI"))
        })?;
        Ok(Self::Host(host))
    }

    fn is_in(&self, certificate: &CertificateDer<'_>, parsed: &ParsedCertificate<'_>) -> bool {
        /// The tag of uniformResourceIdentifier (RFC 5280 §4.2.1.6).
        const URI: u8 = 0x86;
        match self {
            Self::Host(name) => verify_server_name(parsed, name).is_ok(),
            Self::Uri(uri) => der::alternative_names(certificate).contains(&(URI, &**uri)),
        }
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let chain =
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms);
        match chain {
            Err(rustls::Error::InvalidCertificate(e))
                if is_authority(&e) && self.certificates.iter().any(|given| given == end_entity) => {}
            told => told?,
        }
        match self.names.iter().any(|name| name.is_in(end_entity, &parsed)) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName)),
        }
    }

    signatures_as!(usual);
}

/// The usual verifier with these authorities, from the file at `path`.
fn usual(roots: Arc<RootCertStore>, path: &Path) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiServerVerifier::builder_with_provider(roots, provider)
        .build()
        .map_err(|e| TlsError::of(Part::Authority, path.display().to_string()).because(e))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    if let Some(path) = ca {
        return read_authorities(path);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let text = "the system has no root certificates: install ca-certificates or set `ca`";
        return Err(TlsError::policy(text));
    }
    Ok(roots)
}

/// `verify: false`: accepts any certificate, but the peer must hold its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
