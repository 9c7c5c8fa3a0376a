//! The source of an origin's certificate.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use weir_wire::tls::{Certificate, ClientAuth, Identity, Policy, ServerTls, Shown, Tickets, TlsError};

/// The offered protocols, in order of preference.
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Whether an origin uses TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// A certificate and its key, as PEM files.
    Files {
        /// The leaf, then the intermediates.
        cert: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// Cleartext.
    #[default]
    Off,
    /// A self-signed certificate made at start, for `localhost`, the loopback addresses and the listening address.
    SelfSigned,
}

impl Tls {
    /// The TLS policy, unless TLS is off.
    pub(crate) fn policy(&self, address: IpAddr) -> io::Result<Option<ServerTls>> {
        let made = match self {
            Self::Off => return Ok(None),
            Self::Files { cert, key } => {
                Certificate::read(&Identity { cert: cert.clone(), key: key.clone() }).and_then(policy_of)
            }
            Self::SelfSigned => self_signed(address),
        };
        made.map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
    }
}

fn self_signed(address: IpAddr) -> Result<ServerTls, TlsError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|e| TlsError::policy("no certificate could be made").because(e))?;
    policy_of(Certificate::of_pem(&made.cert.pem(), &made.signing_key.serialize_pem())?)
}

fn policy_of(certificate: Certificate) -> Result<ServerTls, TlsError> {
    let shown = Shown { fixed: &[certificate], kept: &[] };
    ServerTls::new(shown, &ClientAuth::Off, ALPN, &Policy::default(), &Tickets::new()?)
}
