//! Certificates for one test: an authority, and leaves that it signed, as files and as bytes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

/// A certificate authority with its own folder, which is removed when the authority is dropped.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
    made: AtomicU32,
}

impl Authority {
    /// Creates an authority with its own name and key.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&format!("Weir test authority {number}"), &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir, made: AtomicU32::new(0) }
    }

    /// The file with the certificate of the authority.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The certificate of the authority.
    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// A server certificate for these names or addresses, with an ECDSA key.
    pub fn leaf(&self, names: &[&str]) -> Certificate {
        self.sign(params(names[0], names), KeyPair::generate().unwrap())
    }

    /// A server certificate for these names or addresses, with an RSA key.
    pub fn rsa_leaf(&self, names: &[&str]) -> Certificate {
        self.sign(params(names[0], names), KeyPair::from_pem(rsa_key()).unwrap())
    }

    /// A server certificate for these names that has expired.
    pub fn expired_leaf(&self, names: &[&str]) -> Certificate {
        let mut params = params(names[0], names);
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        self.sign(params, KeyPair::generate().unwrap())
    }

    /// A self-signed server certificate for these names, as `openssl req -x509` makes it.
    pub fn self_signed(&self, names: &[&str]) -> Certificate {
        let mut params = params(names[0], names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.keep(&certificate, &key)
    }

    /// A client certificate with this common name, or without one if the text is empty.
    pub fn client(&self, name: &str) -> Certificate {
        self.client_for(name, &[])
    }

    /// A client certificate with this common name and these alternative names.
    pub fn client_for(&self, name: &str, names: &[&str]) -> Certificate {
        let mut params = params(name, names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, KeyPair::generate().unwrap())
    }

    fn sign(&self, params: CertificateParams, key: KeyPair) -> Certificate {
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.keep(&certificate, &key)
    }

    fn keep(&self, certificate: &rcgen::Certificate, key: &KeyPair) -> Certificate {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let file = |end: &str| self.dir.path().join(format!("{number}.{end}"));
        let made = Certificate {
            cert_file: file("pem"),
            key_file: file("key"),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        };
        fs::write(&made.cert_file, certificate.pem()).unwrap();
        fs::write(&made.key_file, key.serialize_pem()).unwrap();
        fs::set_permissions(&made.key_file, fs::Permissions::from_mode(0o600)).unwrap();
        made
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("file", &self.file()).finish()
    }
}

/// A certificate and its key. The files live as long as the authority that signed it.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate, PEM.
    pub cert_file: PathBuf,
    /// The key, PEM.
    pub key_file: PathBuf,
    /// The certificate.
    pub der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Certificate {
    /// In config syntax: `{ cert: …, key: … }`.
    pub fn yaml(&self) -> String {
        format!("{{ cert: {}, key: {} }}", self.cert_file.display(), self.key_file.display())
    }

    /// Replaces these files with those of another certificate, each by a rename, as renewal tools do.
    pub fn replace_files_by(&self, other: &Self) {
        for (to, from) in [(&self.key_file, &other.key_file), (&self.cert_file, &other.cert_file)] {
            let beside = beside(to);
            fs::copy(from, &beside).unwrap();
            fs::rename(beside, to).unwrap();
        }
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key_der.clone()).into()
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let (uris, names): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.subject_alt_names.extend(uris.into_iter().map(|uri| SanType::URI(uri.try_into().unwrap())));
    params.distinguished_name = DistinguishedName::new(); // without the library's default name
    if !common_name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, common_name);
    }
    params
}

/// One RSA key for all tests of a process, because generating one takes longer than most tests.
fn rsa_key() -> &'static str {
    static KEY: OnceLock<String> = OnceLock::new();
    KEY.get_or_init(|| KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap().serialize_pem())
}
