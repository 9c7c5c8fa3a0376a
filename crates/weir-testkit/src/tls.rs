//! TLS for tests: the name, the protocols, the certificate, and what the peer presented.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, RootCertStore, ServerConfig,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
};

use crate::{Authority, Certificate};

/// The client side. Sessions are resumed between connections that use the same value.
#[derive(Debug)]
pub struct Tls {
    roots: Arc<RootCertStore>,
    name: String,
    send_name: bool,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    schemes: Option<Vec<SignatureScheme>>,
    identity: Option<(Vec<CertificateDer<'static>>, rustls::pki_types::PrivateKeyDer<'static>)>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    /// Trusts this authority, and requests this name.
    pub fn new(authority: &Authority, server_name: &str) -> Self {
        Self::of(roots(authority), server_name)
    }

    /// Trusts the authority with this certificate, and requests this name.
    pub fn trusting(authority: CertificateDer<'static>, server_name: &str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        Self::of(Arc::new(roots), server_name)
    }

    fn of(roots: Arc<RootCertStore>, server_name: &str) -> Self {
        Self {
            roots,
            name: server_name.to_owned(),
            send_name: true,
            alpn: Vec::new(),
            versions: rustls::ALL_VERSIONS.to_vec(),
            schemes: None,
            identity: None,
            config: OnceLock::new(),
        }
    }

    /// Sends no SNI. The certificate must still match the given name.
    #[must_use]
    pub fn without_sni(mut self) -> Self {
        self.send_name = false;
        self
    }

    /// Offers these protocols.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Supports TLS 1.2 only.
    #[must_use]
    pub fn only_1_2(mut self) -> Self {
        self.versions = vec![&rustls::version::TLS12];
        self
    }

    /// Supports only RSA signatures, like an old client.
    #[must_use]
    pub fn only_rsa(mut self) -> Self {
        self.schemes = Some(vec![
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ]);
        self
    }

    /// Presents this certificate when the server asks for one.
    #[must_use]
    pub fn identity(mut self, certificate: &Certificate) -> Self {
        self.identity = Some((vec![certificate.der.clone()], certificate.key()));
        self
    }

    /// The policy and the name for a QUIC connection.
    pub(crate) fn quic(&self) -> (Arc<ClientConfig>, String) {
        let config = self.config.get_or_init(|| {
            let mut config = self.build();
            config.alpn_protocols = vec![b"h3".to_vec()];
            config.enable_early_data = true;
            Arc::new(config)
        });
        (config.clone(), self.name.clone())
    }

    pub(crate) fn handshake(
        &self,
        stream: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let config = self.config.get_or_init(|| Arc::new(self.build())).clone();
        let name = ServerName::try_from(self.name.clone()).unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.flush()?;
        Ok(stream)
    }

    fn build(&self) -> ClientConfig {
        let web =
            WebPkiServerVerifier::builder_with_provider(self.roots.clone(), provider()).build().unwrap();
        let schemes = self.schemes.clone().unwrap_or_else(|| web.supported_verify_schemes());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Choosy { web, schemes }));
        let mut config = match &self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config.enable_sni = self.send_name;
        config.resumption = Resumption::in_memory_sessions(16);
        config
    }
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSeen {
    /// The leaf that the server presented.
    pub certificate: CertificateDer<'static>,
    /// `TLSv1_3` or `TLSv1_2`.
    pub version: String,
    /// The protocol chosen by ALPN.
    pub alpn: Option<String>,
    /// The cipher, by its name in rustls.
    pub cipher: String,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

impl TlsSeen {
    pub(crate) fn of(connection: &ClientConnection) -> Self {
        let chain = connection.peer_certificates().unwrap_or_default();
        Self {
            certificate: chain.first().expect("a server always presents a certificate").clone().into_owned(),
            version: format!("{:?}", connection.protocol_version().expect("the handshake is done")),
            alpn: connection.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            cipher: connection
                .negotiated_cipher_suite()
                .map_or_else(String::new, |c| format!("{:?}", c.suite())),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

/// The server side of a scripted upstream.
#[derive(Clone, Debug)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

impl ServerTls {
    /// Presents this certificate and requests none.
    pub fn new(certificate: &Certificate) -> Self {
        Self::build(certificate, None, rustls::ALL_VERSIONS)
    }

    /// As [`Self::new`], but supports TLS 1.2 only, like an old server.
    pub fn only_1_2(certificate: &Certificate) -> Self {
        Self::build(certificate, None, &[&rustls::version::TLS12])
    }

    /// Presents this certificate, and requires one that the authority signed.
    pub fn demanding(certificate: &Certificate, authority: &Authority) -> Self {
        Self::build(certificate, Some(authority), rustls::ALL_VERSIONS)
    }

    /// Supports these protocols, in this order; `http/1.1` by default.
    #[must_use]
    pub fn alpn(self, protocols: &[&str]) -> Self {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    fn build(
        certificate: &Certificate,
        clients: Option<&Authority>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots(authority), provider()).build().unwrap(),
            ),
        };
        let chain = vec![certificate.der.clone()];
        let mut config = builder.with_single_cert(chain, certificate.key()).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }
}

/// Verifies as usual, but offers only some signature schemes, so that a test chooses the key that the server must
/// use.
#[derive(Debug)]
struct Choosy {
    web: Arc<WebPkiServerVerifier>,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Choosy {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.web.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    Arc::new(roots)
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}
