//! TLS with rustls: the only module that uses it.
//!
//! `certificate` is a certificate with its key. `proof` shows a certificate authority that we control a name.
//! `server` selects a certificate by name and holds a listener's policy, `quic` that for HTTP/3; `client` holds the
//! policy towards an upstream. `unbuffered` moves the records of clients' connections in buffers that they share.
//! `buffered` moves those of upstreams, and those of clients while a certificate authority may ask for a proof.
//! `tickets` holds the keys with which clients resume sessions, and `untrusted` accepts certificates that no authority
//! vouches for. `peer` is the certificate that the other side presented. `der` parses certificates, and `fault`
//! explains failures. Both policies are built when a config is compiled, and all cores share them.

mod buffered;
mod certificate;
mod client;
mod der;
mod fault;
mod peer;
mod policy;
mod proof;
mod quic;
mod server;
mod tickets;
mod unbuffered;
mod untrusted;

pub use certificate::{Certificate, Identity, Slot, Validity, validities};
pub use client::{ClientTls, ReadWrite};
pub use fault::{TlsFault, explained, fault_of, why_client_failed};
pub use peer::PeerCertificate;
pub use policy::{Policy, Unknown};
pub use proof::Proofs;
pub use quic::{QuicTls, SingleUse};
pub use server::{ClientAuth, Handshake, ServerTls, Shown, versions};
pub use tickets::Tickets;

use crate::Socket;
use buffered::Buffered;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CommonState, ProtocolVersion, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;
use unbuffered::Unbuffered;

/// A TLS connection in either role.
pub struct TlsStream {
    session: Session,
    peer: Peer,
}

/// The TLS session of a connection.
#[allow(clippy::large_enum_variant)] // most connections have the large one, and `TlsStream` is boxed as a whole
enum Session {
    /// Boxed: it is larger than `Unbuffered`, and idle clients would reserve room for it.
    Buffered(Box<Buffered>),
    Unbuffered(Unbuffered),
}

/// Whether the peer's certificate may identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// The handshake verified it, or there is none.
    Trusted,
    /// No authority vouches for it: it counts as none.
    Untrusted,
}

/// The version and cipher a TLS handshake negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
}

/// The keys of a TLS handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsKeys {
    /// The key exchange group, such as `X25519`; `None` for a resumed session without a key exchange.
    pub group: Option<&'static str>,
    /// Key size in bits of the peer's certificate; `None` without a certificate or for an unknown kind of key.
    pub certificate_bits: Option<u32>,
}

/// Why TLS could not be set up: the file, and what is wrong with it.
#[derive(Debug, Clone)]
pub struct TlsError {
    /// What is wrong, with the file if there is one.
    text: String,
    /// The part of the policy at fault.
    pub part: Part,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// A part of a TLS policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The authorities that verify a peer.
    Authority,
    /// A certificate.
    Certificate,
    /// The key of a certificate.
    Key,
    /// A name of which a certificate must have one.
    Name,
    /// The policy as a whole, or the system.
    Policy,
    /// The name to verify a peer against.
    ServerName,
}

impl TlsError {
    /// An error of the policy as a whole.
    pub fn policy(text: impl Into<String>) -> Self {
        Self::of(Part::Policy, text)
    }

    fn of(part: Part, text: impl Into<String>) -> Self {
        Self { text: text.into(), part, source: None }
    }

    /// Adds the error that caused this one. `Display` does not repeat it.
    #[must_use]
    pub fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Calls a method of either kind of session.
macro_rules! either {
    ($session:expr, $name:ident ( $($argument:expr),* )) => {
        match $session {
            Session::Buffered(session) => session.$name($($argument),*),
            Session::Unbuffered(session) => session.$name($($argument),*),
        }
    };
}

impl TlsStream {
    const fn new(session: Session, peer: Peer) -> Self {
        Self { session, peer }
    }

    /// Reads into the spare capacity of `buffer`.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        either!(&mut self.session, poll_read(cx, buffer))
    }

    /// Reads into a `ReadBuf`.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(&mut self.session, poll_read_buf(cx, buffer))
    }

    /// See [`Stream::may_read`](crate::Stream::may_read).
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        either!(&self.session, may_read(cx))
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet).
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        either!(&mut self.session, is_quiet(cx))
    }

    /// Writes part of `data`.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.session {
            Session::Buffered(session) => session.poll_write(cx, data),
            Session::Unbuffered(session) => session.poll_write_two(cx, data, &[]),
        }
    }

    /// See [`Stream::poll_write_two`](crate::Stream::poll_write_two).
    pub(crate) fn poll_write_two(
        &mut self,
        cx: &mut Context<'_>,
        a: &[u8],
        b: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(&mut self.session, poll_write_two(cx, a, b))
    }

    /// Sends the records that the session still holds.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.session, poll_flush(cx))
    }

    /// Sends a close_notify and closes the write side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.session, poll_shutdown(cx))
    }

    pub(crate) fn socket(&self) -> &Socket {
        either!(&self.session, socket())
    }

    fn common(&self) -> &CommonState {
        either!(&self.session, common())
    }

    /// The negotiated version and cipher.
    pub(crate) fn info(&self) -> TlsInfo {
        let session = self.common();
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLS",
        };
        let cipher = session.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("");
        TlsInfo { version, cipher }
    }

    /// The keys of the handshake.
    pub(crate) fn keys(&self) -> TlsKeys {
        let session = self.common();
        TlsKeys {
            group: session.negotiated_key_exchange_group().and_then(|g| g.name().as_str()),
            certificate_bits: self.leaf().and_then(|leaf| der::key_bits(leaf)),
        }
    }

    /// Whether the handshake resumed an earlier session.
    pub(crate) fn has_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// The certificate that the peer presented, unless no authority vouches for it.
    pub(crate) fn peer_certificate(&self) -> Option<PeerCertificate> {
        self.leaf().map(|leaf| PeerCertificate::of(leaf))
    }

    fn leaf(&self) -> Option<&CertificateDer<'static>> {
        let chain = self.common().peer_certificates().filter(|_| self.peer == Peer::Trusted)?;
        chain.first()
    }

    /// The name that the peer asked for, if this is the server.
    pub(crate) fn server_name(&self) -> Option<&str> {
        either!(&self.session, server_name())
    }

    /// The negotiated protocol.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.common().alpn_protocol()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsStream").field(self.socket()).finish()
    }
}

/// Reads a PEM file of certificates, leaf first.
fn read_certificates(path: &Path, part: Part) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unread = || TlsError::of(part, format!("{} cannot be read", path.display()));
    let pem = std::fs::read(path).map_err(|e| unread().because(e))?;
    certificates_of(&pem, part, &path.display())
}

/// Reads a PEM file of authorities.
fn read_authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let certificates = read_certificates(path, Part::Authority)?;
    authorities_of(certificates, &path.display())
}

/// Checks whether a text in PEM could be a file of authorities.
///
/// # Errors
/// Why [`ClientTls`] and [`ServerTls`] would refuse such a file.
pub fn check_authorities(pem: &str) -> Result<(), TlsError> {
    let place = "the text";
    let certificates = certificates_of(pem.as_bytes(), Part::Authority, &place)?;
    authorities_of(certificates, &place).map(drop)
}

fn authorities_of(
    certificates: Vec<CertificateDer<'static>>,
    place: &dyn fmt::Display,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|e| TlsError::of(Part::Authority, place.to_string()).because(e))?;
    }
    Ok(roots)
}

fn certificates_of(
    pem: &[u8],
    part: Part,
    place: &dyn fmt::Display,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |text: &str| TlsError::of(part, format!("{place} {text}"));
    if let Some(text) = der::instead_of_certificate(pem) {
        return Err(wrong(text));
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|e| wrong("is not valid PEM").because(e))?;
    if chain.is_empty() {
        let text = "holds no certificate; expected PEM with `-----BEGIN CERTIFICATE-----`";
        return Err(wrong(text));
    }
    Ok(chain)
}

/// Reads the first private key of a PEM file.
fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let wrong = |text: &str| TlsError::of(Part::Key, format!("{} {text}", path.display()));
    let pem = std::fs::read(path).map_err(|e| wrong("cannot be read").because(e))?;
    if let Some(text) = der::instead_of_key(&pem) {
        return Err(wrong(text));
    }
    // `BEGIN ENCRYPTED PRIVATE KEY` (PKCS#8), or the older field `Proc-Type: 4,ENCRYPTED`.
    let encrypted = b"ENCRYPTED";
    if pem.starts_with(b"-----BEGIN ") && pem.windows(encrypted.len()).any(|text| text == encrypted) {
        let text = "is protected by a passphrase, which Weir cannot ask for: \
                    `openssl pkey -in FILE` writes the key without it";
        return Err(wrong(text));
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|e| match e {
        rustls::pki_types::pem::Error::NoItemsFound => {
            let text = "holds no private key; expected PEM with `-----BEGIN PRIVATE KEY-----`";
            wrong(text)
        }
        e => wrong("is not valid PEM").because(e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::on_a_core;
    use crate::{Class, Transport, driver};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
    use std::future::poll_fn;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::task::Waker;

    pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

    /// The kind of a server's session.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Kind {
        Buffered,
        Unbuffered,
    }

    const KINDS: [Kind; 2] = [Kind::Buffered, Kind::Unbuffered];

    /// The policy of a server, and that of a client that trusts it.
    pub(crate) fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions(true)).unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let mut server = builder.with_single_cert(vec![certificate], key).unwrap();
        server.send_tls13_tickets = 0; // a client that leaves them unread resets its connection
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions(true)).unwrap();
        (Arc::new(server), Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }

    /// A connection of a server on this core, and that of its client, which blocks.
    pub(crate) fn connection() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (accepted, address) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&accepted).set_send_buffer_size(16 * 1024).unwrap(); // soon full
        let peer = crate::Peer::Address(address);
        (driver::sockets().unwrap().add(accepted, peer, Class::Client), client)
    }

    /// A server's session on this core, and its client, which blocks.
    pub(crate) async fn pair(kind: Kind) -> (TlsStream, Client) {
        let (server, client) = configs();
        let client = ClientConnection::new(client, "a.test".try_into().unwrap()).unwrap();
        let (socket, peer) = connection();
        let mut client = StreamOwned::new(client, peer);
        let shaking = std::thread::spawn(move || {
            client.flush().unwrap();
            client
        });
        let session = match kind {
            Kind::Buffered => {
                let accepted = tokio_rustls::TlsAcceptor::from(server).accept(socket).await;
                Session::Buffered(Box::new(Buffered::new(accepted.unwrap())))
            }
            Kind::Unbuffered => Session::Unbuffered(Unbuffered::accept(&server, socket).await.unwrap()),
        };
        (TlsStream::new(session, Peer::Trusted), shaking.join().unwrap())
    }

    pub(crate) async fn read(server: &mut TlsStream, room: usize) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(room);
        poll_fn(|cx| server.poll_read(cx, &mut buffer)).await?;
        Ok(buffer)
    }

    async fn may_read(server: &TlsStream) -> bool {
        poll_fn(|cx| Poll::Ready(server.may_read(cx))).await
    }

    fn is_quiet(server: &mut TlsStream) -> bool {
        server.is_quiet(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_read_takes_what_has_arrived_and_then_knows_that_nothing_has() {
        for kind in KINDS {
            on_a_core(async move { reads(kind).await });
        }
    }

    async fn reads(kind: Kind) {
        let (mut server, mut client) = pair(kind).await;
        client.write_all(b"first").unwrap();
        assert_eq!(read(&mut server, 64).await.unwrap(), b"first");
        assert!(!may_read(&server).await && is_quiet(&mut server));
        // Two records that arrive together.
        client.conn.writer().write_all(b"second").unwrap();
        client.conn.writer().write_all(b"third").unwrap();
        client.flush().unwrap();
        assert_eq!(read(&mut server, 64).await.unwrap(), b"secondthird");
        client.write_all(b"fourth").unwrap();
        assert_eq!(read(&mut server, 3).await.unwrap(), b"fou");
        assert!(may_read(&server).await, "the rest is decrypted");
        assert!(!is_quiet(&mut server), "which may take a byte to see");
        assert!(read(&mut server, 64).await.unwrap().ends_with(b"th"));
        assert!(!may_read(&server).await);
        // More than rustls reads at a time, in several records.
        let long: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
        client.write_all(&long).unwrap();
        let mut came = Vec::new();
        while came.len() < long.len() {
            came.extend(read(&mut server, 16 * 1024).await.unwrap());
        }
        assert!(came == long);
        client.write_all(b"x").unwrap();
        // Until a byte that nobody asked for has arrived.
        while is_quiet(&mut server) {
            poll_fn(|cx| if server.may_read(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        }
        if matches!(kind, Kind::Unbuffered) {
            assert_eq!(read(&mut server, 64).await.unwrap(), b"x");
        }
        client.conn.send_close_notify();
        client.conn.write_tls(&mut client.sock).unwrap();
        for _ in 0..2 {
            assert_eq!(read(&mut server, 64).await.unwrap(), b"", "the end, as often as it is asked for");
            assert!(may_read(&server).await && !is_quiet(&mut server));
        }
    }

    #[test]
    fn an_end_without_notice_is_an_error_behind_the_bytes_before_it() {
        on_a_core(async {
            for kind in KINDS {
                let (mut server, mut client) = pair(kind).await;
                client.write_all(b"last").unwrap();
                drop(client);
                assert_eq!(read(&mut server, 64).await.unwrap(), b"last");
                let e = read(&mut server, 64).await.unwrap_err();
                assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
            }
        });
    }

    /// A client has ended its session, and the core has not polled the kernel since.
    #[test]
    fn an_end_that_nobody_was_told_of_is_seen_in_the_kernel() {
        on_a_core(async {
            for kind in KINDS {
                let (mut server, mut client) = pair(kind).await;
                client.write_all(b"x").unwrap();
                assert_eq!(read(&mut server, 64).await.unwrap(), b"x");
                assert!(!may_read(&server).await);
                let mut transport = Transport::from(Box::new(server));
                assert!(transport.is_quiet_now());
                client.conn.send_close_notify();
                client.conn.write_tls(&mut client.sock).unwrap();
                while transport.socket().peek(&mut [0]).is_err() {
                    std::thread::yield_now();
                }
                assert!(!transport.is_quiet_now());
            }
        });
    }
}
