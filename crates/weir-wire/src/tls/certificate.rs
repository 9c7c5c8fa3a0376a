//! A certificate with its key, read and found to belong together, and what is asked of it: for which names, and how long.

use super::der;
use super::{Part, TlsError, read_certificates, read_key};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// PEM file: the leaf, then the intermediates.
    pub cert: PathBuf,
    /// PEM file with its private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// A certificate chain with the key of its leaf. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    names: Arc<[String]>,
    validity: Option<Validity>,
}

/// When a certificate is valid, in seconds since 1970 (RFC 5280 §4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).finish_non_exhaustive()
    }
}

// === impl Certificate ===

impl Certificate {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// The file that cannot be used, with what is wrong; also when they do not belong together.
    pub fn read(identity: &Identity) -> Result<Self, TlsError> {
        let chain = read_certificates(&identity.cert, Part::Certificate)?;
        let key = read_key(&identity.key)?;
        Self::new(chain, key, &identity.cert.display(), &identity.key.display())
    }

    /// A certificate that was made in memory, as PEM.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn of_pem(cert: &str, key: &str) -> Result<Self, TlsError> {
        let wrong =
            |e: rustls::pki_types::pem::Error| TlsError::policy(format!("the certificate in memory: {e}"));
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(wrong)?;
        let place = "the certificate in memory";
        Self::new(chain.map_err(wrong)?, key, &place, &place)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        cert_place: &dyn fmt::Display,
        key_place: &dyn fmt::Display,
    ) -> Result<Self, TlsError> {
        let of_cert = |text: String| TlsError::of(Part::Certificate, text);
        let of_key = |text: String| TlsError::of(Part::Key, text);
        let leaf = chain.first().ok_or_else(|| of_cert(format!("{cert_place} holds no certificate")))?;
        rustls::server::ParsedCertificate::try_from(leaf)
            .map_err(|e| of_cert(format!("{cert_place} holds no valid certificate: {e}")))?;
        let (names, validity) = (dns_names(leaf), der::validity(leaf));
        let key = aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|e| of_key(format!("{key_place} holds no key that can be used: {e}")))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| of_key(format!("{key_place} is not the key of {cert_place}")))?;
        Ok(Self { certified: Arc::new(certified), names: names.into(), validity })
    }

    /// The DNS names that it is for, lower-cased and sorted, wildcards as `*.example.com`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When it is valid; none where its dates cannot be read.
    pub const fn validity(&self) -> Option<Validity> {
        self.validity
    }

    /// The certificates of the chain, one after the other, in DER.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    pub(super) const fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

// === impl Validity ===

impl Validity {
    /// Whether it is valid at a time.
    pub const fn holds(&self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// The DNS names of a certificate. An address is left out: it has no SNI (RFC 6066 §3).
fn dns_names(certificate: &[u8]) -> Vec<String> {
    let names = der::alternative_names(certificate).into_iter().filter(|(tag, _)| *tag == der::DNS_NAME);
    let texts = names.filter_map(|(_, name)| std::str::from_utf8(name).ok());
    let mut found: Vec<String> = texts.map(str::to_ascii_lowercase).collect();
    found.sort();
    found.dedup();
    found
}
