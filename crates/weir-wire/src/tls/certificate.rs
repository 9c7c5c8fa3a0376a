//! A certificate with its key, checked to belong together; its names and validity. A [`Slot`] holds a certificate
//! that may be replaced while connections are made.

use super::der;
use super::{Part, TlsError, read_certificates, read_key};
use crate::base64;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// PEM file: the leaf, then the intermediates.
    pub cert: PathBuf,
    /// PEM file: its private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// A certificate chain with the key of its leaf. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    names: Arc<[String]>,
    validity: Option<Validity>,
}

/// Holds a certificate that may be replaced while connections are made. Cheap to clone; clones share the slot.
#[derive(Clone, Debug)]
pub struct Slot(Arc<RwLock<Certificate>>);

/// The validity period of a certificate, in seconds since 1970 (RFC 5280 §4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first valid second.
    pub not_before: i64,
    /// The last valid second.
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
    /// The unusable file, with what is wrong; also when certificate and key do not match.
    pub fn read(identity: &Identity) -> Result<Self, TlsError> {
        let chain = read_certificates(&identity.cert, Part::Certificate)?;
        let key = read_key(&identity.key)?;
        Self::new(chain, key, &identity.cert.display(), &identity.key.display())
    }

    /// Parses a PEM certificate and key that were made in memory.
    ///
    /// # Errors
    /// When they are unusable.
    pub fn of_pem(cert: &str, key: &str) -> Result<Self, TlsError> {
        let wrong =
            |e: rustls::pki_types::pem::Error| TlsError::policy("the certificate in memory").because(e);
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
            .map_err(|e| of_cert(format!("{cert_place} holds no valid certificate: {}", why_unusable(&e))))?;
        let (names, validity) = (dns_names(leaf), der::validity(leaf));
        let key = aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|e| of_key(format!("{key_place} holds no key that can be used")).because(e))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| of_key(format!("{key_place} is not the key of {cert_place}")))?;
        Ok(Self { certified: Arc::new(certified), names: names.into(), validity })
    }

    /// Its DNS names, lower-cased and sorted, wildcards as `*.example.com`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Its validity period; `None` if its dates are unreadable.
    pub const fn validity(&self) -> Option<Validity> {
        self.validity
    }

    /// The validity periods of the other certificates in its chain, in order. Omits those with unreadable dates.
    pub fn chain_validities(&self) -> impl Iterator<Item = Validity> {
        self.chain().skip(1).filter_map(der::validity)
    }

    /// Whether it covers this name: a host in lower case, a wildcard as `*.example.com`, or an address.
    pub fn is_for(&self, name: &str) -> bool {
        let Ok(address) = name.parse() else {
            return self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok();
        };
        let octets = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let leaf = self.certified.cert.first().map_or(&[][..], AsRef::as_ref);
        let names = der::alternative_names(leaf);
        names.into_iter().any(|(tag, value)| tag == der::IP_ADDRESS && value == octets)
    }

    /// Its identifier in renewal queries to its authority: the identifier of the authority's key and the serial
    /// number, each as base64url, with a dot between (RFC 9773 §4.1). `None` if either is missing.
    pub fn renewal_id(&self) -> Option<String> {
        let leaf = self.certified.cert.first()?;
        let (key, serial) = (der::authority_key(leaf)?, der::serial(leaf)?);
        Some(format!("{}.{}", base64::encode_url(key), base64::encode_url(serial)))
    }

    /// The certificates of the chain, one after the other, in DER.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    pub(super) const fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// The validity periods of the certificates in a PEM file, in order. Empty if the file is unreadable; its user
/// reports that.
pub fn validities(path: &Path) -> Vec<Validity> {
    let read = read_certificates(path, Part::Certificate).unwrap_or_default();
    read.iter().filter_map(|certificate| der::validity(certificate)).collect()
}

// === impl Slot ===

impl Slot {
    /// A slot with this certificate.
    pub fn new(certificate: Certificate) -> Self {
        Self(Arc::new(RwLock::new(certificate)))
    }

    /// The current certificate.
    pub fn get(&self) -> Certificate {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the certificate: every handshake that starts from now on uses the new one.
    pub fn set(&self, certificate: Certificate) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }
}

// === impl Validity ===

impl Validity {
    /// Whether the certificate is valid at `now`.
    pub const fn holds(&self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// The DNS names of a certificate. Omits addresses: they have no SNI (RFC 6066 §3).
fn dns_names(certificate: &[u8]) -> Vec<String> {
    let names = der::alternative_names(certificate).into_iter().filter(|(tag, _)| *tag == der::DNS_NAME);
    let texts = names.filter_map(|(_, name)| std::str::from_utf8(name).ok());
    let mut found: Vec<String> = texts.map(str::to_ascii_lowercase).collect();
    found.sort();
    found.dedup();
    found
}

/// Why a certificate is unusable. In some cases the library's own message addresses only its developers.
fn why_unusable(error: &rustls::Error) -> String {
    let text = error.to_string();
    if text.contains("UnsupportedCertVersion") {
        return "it has version 1, which clients refuse; expected version 3, with the names under subjectAltName".to_owned();
    }
    if text.contains("Other(") || text.contains("OtherError") {
        return "it is not encoded as X.509 asks for".to_owned();
    }
    text.trim_start_matches("invalid peer certificate: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, Issuer, KeyPair, SerialNumber};

    /// A certificate signed by an authority, with this serial number.
    fn made(names: &[&str], serial: &[u8]) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(vec![0x69, 0x88, 0x5b, 0x6b]);
        let issuer = Issuer::from_params(&authority, &key);
        let mut params = CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let cert = params.signed_by(&key, &issuer).unwrap();
        Certificate::of_pem(&cert.pem(), &key.serialize_pem()).unwrap()
    }

    #[test]
    fn it_is_for_its_names_only() {
        let certificate = made(&["a.test", "*.b.test", "10.0.0.1", "::1"], &[1]);
        for name in ["a.test", "*.b.test", "10.0.0.1", "::1"] {
            assert!(certificate.is_for(name), "{name}");
        }
        for name in ["b.test", "x.b.test", "10.0.0.2", "::2", ""] {
            assert!(!certificate.is_for(name), "{name}");
        }
    }

    #[test]
    fn its_authority_knows_it_by_key_and_serial_number() {
        // DER puts a zero byte before a serial number whose first bit is set (RFC 9773 §4.1).
        assert_eq!(made(&["a.test"], &[0x87, 0x65]).renewal_id().as_deref(), Some("aYhbaw.AIdl"));
        let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let own = Certificate::of_pem(&own.cert.pem(), &own.signing_key.serialize_pem()).unwrap();
        assert_eq!(own.renewal_id(), None);
    }
}
