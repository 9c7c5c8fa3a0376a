//! Versions, ciphers and curves of a listener, by the names that people know: IANA's, OpenSSL's and rustls's.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};
use std::sync::Arc;

/// What a listener accepts. The default: TLS 1.2 and 1.3 with all ciphers and curves that we have, and tickets.
#[derive(Clone, Debug)]
pub struct Policy {
    provider: Arc<CryptoProvider>,
    only_13: bool,
    /// Whether clients get tickets, with which they resume sessions.
    pub(super) tickets: bool,
}

/// A name that stands for nothing that we have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The position of the name in its list.
    pub at: usize,
    /// All names that are known, as IANA writes them.
    pub known: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Policy {
    /// All ciphers and curves, in TLS 1.2 and 1.3 or in 1.3 alone.
    pub fn new(only_13: bool) -> Self {
        Self { provider: Arc::new(aws_lc_rs::default_provider()), only_13, tickets: true }
    }

    /// Keeps these ciphers. A version of TLS for which the list has none keeps all of its ciphers.
    ///
    /// # Errors
    /// For the first name that we do not have.
    pub fn ciphers(mut self, names: &[String]) -> Result<Self, Unknown> {
        let all = aws_lc_rs::ALL_CIPHER_SUITES;
        let known = || all.iter().map(cipher_name).collect();
        let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let found = all.iter().find(|suite| is_cipher(suite, name));
            chosen.push(*found.ok_or_else(|| Unknown { at, known: known() })?);
        }
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            if !chosen.iter().any(|suite| suite.version() == version) {
                chosen.extend(all.iter().filter(|suite| suite.version() == version).copied());
            }
        }
        chosen.dedup();
        if !names.is_empty() {
            Arc::make_mut(&mut self.provider).cipher_suites = chosen;
        }
        Ok(self)
    }

    /// Keeps these curves, in order of preference.
    ///
    /// # Errors
    /// For the first name that we do not have.
    pub fn curves(mut self, names: &[String]) -> Result<Self, Unknown> {
        let all = aws_lc_rs::ALL_KX_GROUPS;
        let mut chosen: Vec<&'static dyn SupportedKxGroup> = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let found = all.iter().find(|group| is_curve(&curve_name(**group), name));
            let known = || all.iter().map(|group| curve_name(*group)).collect();
            let found = *found.ok_or_else(|| Unknown { at, known: known() })?;
            if !chosen.iter().any(|known| known.name() == found.name()) {
                chosen.push(found);
            }
        }
        if !names.is_empty() {
            Arc::make_mut(&mut self.provider).kx_groups = chosen;
        }
        Ok(self)
    }

    /// Gives clients tickets, or none: then every handshake is a full one.
    #[must_use]
    pub fn with_tickets(self, tickets: bool) -> Self {
        Self { tickets, ..self }
    }

    pub(super) const fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        super::versions(self.only_13)
    }

    /// Whether a list names ciphers of versions only that this policy does not accept.
    pub fn leaves_nothing(&self, names: &[String]) -> bool {
        let all = aws_lc_rs::ALL_CIPHER_SUITES;
        let is_13 = |name: &String| {
            let found = all.iter().find(|suite| is_cipher(suite, name));
            found.is_some_and(|suite| suite.version().version == ProtocolVersion::TLSv1_3)
        };
        self.only_13 && !names.is_empty() && !names.iter().any(is_13)
    }
}

/// IANA's name.
fn cipher_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

fn is_cipher(suite: &SupportedCipherSuite, name: &str) -> bool {
    let iana = cipher_name(suite);
    let rustls = format!("{:?}", suite.suite());
    [&iana, &rustls, &openssl_name(&iana)].iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// OpenSSL's name: `ECDHE-RSA-AES128-GCM-SHA256` for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. Those of TLS 1.3 are IANA's.
fn openssl_name(iana: &str) -> String {
    let Some((kind, rest)) = iana.strip_prefix("TLS_").and_then(|name| name.split_once("_WITH_")) else {
        return iana.to_owned();
    };
    let rest = rest.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    format!("{kind}_{rest}").replace('_', "-")
}

/// IANA's name, as rustls has it.
fn curve_name(group: &dyn SupportedKxGroup) -> String {
    format!("{:?}", group.name())
}

fn is_curve(iana: &str, name: &str) -> bool {
    let others: &[&str] = match &*iana.to_ascii_lowercase() {
        "secp256r1" => &["prime256v1", "P-256"],
        "secp384r1" => &["P-384"],
        "secp521r1" => &["P-521"],
        _ => &[],
    };
    iana.eq_ignore_ascii_case(name) || others.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(policy: &Policy) -> Vec<String> {
        policy.provider.cipher_suites.iter().map(cipher_name).collect()
    }

    #[test]
    fn ciphers_have_three_kinds_of_names() {
        let same = [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ecdhe-rsa-aes128-gcm-sha256",
        ];
        for name in same {
            let policy = Policy::new(false).ciphers(&names(&[name])).unwrap();
            assert_eq!(chosen(&policy)[0], same[0], "{name}");
            // Those of the other version stay.
            assert_eq!(chosen(&policy).len(), 4, "{:?}", chosen(&policy));
        }
        for name in ["TLS_CHACHA20_POLY1305_SHA256", "TLS13_CHACHA20_POLY1305_SHA256"] {
            let policy = Policy::new(true).ciphers(&names(&[name])).unwrap();
            assert_eq!(chosen(&policy)[0], "TLS_CHACHA20_POLY1305_SHA256");
        }
        let chacha = Policy::new(false).ciphers(&names(&["ECDHE-ECDSA-CHACHA20-POLY1305"])).unwrap();
        assert_eq!(chosen(&chacha)[0], "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
        let wrong = Policy::default().ciphers(&names(&["TLS_AES_128_GCM_SHA256", "DHE-RSA-AES128-SHA"]));
        let wrong = wrong.unwrap_err();
        assert_eq!((wrong.at, wrong.known.len()), (1, 9), "{wrong:?}");
        assert_eq!(chosen(&Policy::default().ciphers(&[]).unwrap()), chosen(&Policy::default()));
        assert!(Policy::new(true).leaves_nothing(&names(&["ECDHE-RSA-AES128-GCM-SHA256"])));
        assert!(!Policy::new(false).leaves_nothing(&names(&["ECDHE-RSA-AES128-GCM-SHA256"])));
    }

    #[test]
    fn curves_have_other_names_too() {
        let policy =
            Policy::default().curves(&names(&["P-384", "x25519", "prime256v1", "secp256r1"])).unwrap();
        let chosen: Vec<String> = policy.provider.kx_groups.iter().map(|group| curve_name(*group)).collect();
        assert_eq!(chosen, ["secp384r1", "X25519", "secp256r1"]);
        let wrong = Policy::default().curves(&names(&["secp521r1"])).unwrap_err();
        assert!(wrong.at == 0 && wrong.known.contains(&"X25519".to_owned()), "{wrong:?}");
    }
}
