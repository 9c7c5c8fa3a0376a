//! TLS towards clients: certificates by name, client certificates, tickets.

use super::der::element;
use super::{Tickets, TlsError, TlsStream, read_certificates, read_key, socket_of};
use crate::Stream;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SignatureAlgorithm, SupportedProtocolVersion};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file: the leaf, then the intermediates.
    pub cert: PathBuf,
    /// PEM file with its private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

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
pub struct ServerTls(TlsAcceptor);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Reads the files and makes the policy. `alpn` lists protocols in order of preference.
    ///
    /// # Errors
    /// The first file that cannot be used, with what is wrong.
    pub fn new(
        identities: &[Identity],
        client_auth: &ClientAuth,
        alpn: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
        tickets: &Tickets,
    ) -> Result<Self, TlsError> {
        let loaded = identities.iter().map(Loaded::read).collect::<Result<Vec<_>, _>>()?;
        Self::of(loaded, client_auth, alpn, versions, tickets)
    }

    /// A policy for everyone with one certificate that was made in memory, as PEM.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn of_pem(cert: &str, key: &str, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        let wrong = |e: rustls::pki_types::pem::Error| TlsError(format!("the certificate in memory: {e}"));
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(wrong)?;
        let place = "the certificate in memory".to_owned();
        let loaded =
            Loaded { chain: chain.map_err(wrong)?, key, cert_place: place.clone(), key_place: place };
        Self::of(vec![loaded], &ClientAuth::Off, alpn, versions(false), &Tickets::new()?)
    }

    fn of(
        loaded: Vec<Loaded>,
        client_auth: &ClientAuth,
        alpn: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
        tickets: &Tickets,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|e| TlsError(e.to_string()))?;
        let builder = match client_auth {
            ClientAuth::Off => builder.with_no_client_auth(),
            ClientAuth::Optional(ca) | ClientAuth::Required(ca) => {
                let mut roots = RootCertStore::empty();
                for cert in read_certificates(ca)? {
                    roots.add(cert).map_err(|e| TlsError(format!("{}: {e}", ca.display())))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match client_auth {
                    ClientAuth::Optional(_) => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|e| TlsError(format!("{}: {e}", ca.display())))?,
                )
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(loaded)?));
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        config.ticketer = tickets.producer();
        config.session_storage = Arc::new(NoServerSessionStorage {}); // tickets do it without memory of ours
        config.send_tls13_tickets = 2;
        config.max_fragment_size = None;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands with a client. Dropping the future drops the connection.
    ///
    /// # Errors
    /// What rustls says.
    pub async fn accept(&self, stream: Stream) -> io::Result<Stream> {
        let stream = self.0.accept(socket_of(stream)?).await?;
        Ok(Stream::Tls(Box::new(TlsStream(stream.into()))))
    }
}

/// TLS 1.2 and 1.3, or 1.3 alone.
pub fn versions(only_13: bool) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    if only_13 { &BOTH[..1] } else { &BOTH }
}

/// Certificates by the names in them: the exact name, then the wildcard of its first label, then the first certificate of
/// the list. For one name there may be several with different keys (RSA and ECDSA): the client's signature schemes decide,
/// ECDSA first because it costs a tenth.
#[derive(Debug)]
struct Certificates {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    first: Vec<Arc<CertifiedKey>>,
}

/// A certificate with its key, and what each is called in messages.
struct Loaded {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    cert_place: String,
    key_place: String,
}

impl Loaded {
    fn read(identity: &Identity) -> Result<Self, TlsError> {
        Ok(Self {
            chain: read_certificates(&identity.cert)?,
            key: read_key(&identity.key)?,
            cert_place: identity.cert.display().to_string(),
            key_place: identity.key.display().to_string(),
        })
    }
}

impl Certificates {
    fn new(loaded: Vec<Loaded>) -> Result<Self, TlsError> {
        let mut all = Self { by_name: HashMap::new(), first: Vec::new() };
        let mut first_names: Option<Vec<String>> = None;
        for Loaded { chain, key, cert_place, key_place } in loaded {
            let leaf = chain.first().ok_or_else(|| TlsError(format!("{cert_place}: no certificate")))?;
            let names = names_of(leaf).map_err(|e| TlsError(format!("{cert_place}: {e}")))?;
            let key = aws_lc_rs::sign::any_supported_type(&key)
                .map_err(|e| TlsError(format!("{key_place}: {e}")))?;
            let certified = CertifiedKey::new(chain, key);
            certified
                .keys_match()
                .map_err(|e| TlsError(format!("{key_place}: is not the key of {cert_place}: {e}")))?;
            let certified = Arc::new(certified);
            // The default is the first certificate, with its twin of the other key type if the list has one.
            let first = first_names.get_or_insert_with(|| names.clone());
            if *first == names {
                insert(&mut all.first, &certified);
            }
            for name in names {
                insert(all.by_name.entry(name).or_default(), &certified);
            }
        }
        if all.first.is_empty() {
            return Err(TlsError("no certificate".to_owned()));
        }
        Ok(all)
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
        let keys = named.unwrap_or(&self.first);
        let usable = keys.iter().find(|k| k.key.choose_scheme(hello.signature_schemes()).is_some());
        usable.or_else(|| keys.first()).cloned()
    }
}

/// The DNS names of a certificate, lower-cased, wildcards as `*.example.com`. An address has no SNI (RFC 6066 §3).
fn names_of(cert: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let parsed = rustls::server::ParsedCertificate::try_from(cert)
        .map_err(|e| format!("no valid certificate: {e}"))?;
    drop(parsed);
    Ok(dns_names(cert.as_ref()))
}

/// Walks the DER for the subjectAltName extension (RFC 5280 §4.2.1.6; its object identifier is 2.5.29.17) and takes its
/// dNSName entries. rustls has checked the structure; anything unexpected ends the walk.
fn dns_names(der: &[u8]) -> Vec<String> {
    const SAN: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x11];
    let Some(at) = memfind(der, SAN) else { return Vec::new() };
    let mut rest = der.get(at + SAN.len()..).unwrap_or_default();
    if let [0x01, 0x01, 0xff, after @ ..] = rest {
        rest = after; // critical
    }
    let names = element(rest, 0x04).and_then(|(octets, _)| element(octets, 0x30));
    let mut list = names.map(|(list, _)| list).unwrap_or_default();
    let mut found = Vec::new();
    while let Some(&tag) = list.first() {
        let Some((value, after)) = element(list, tag) else { break };
        if tag == 0x82
            && let Ok(name) = std::str::from_utf8(value)
        {
            found.push(name.to_ascii_lowercase());
        }
        list = after;
    }
    found.sort();
    found.dedup();
    found
}

fn memfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
