//! Why a TLS connection failed, as actionable messages. rustls names the rule that was broken; operators want to know
//! which certificate is wrong, and always the same message for the same mistake.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::fmt;
use std::io;

/// The certificate or setting at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The peer's certificate has expired or is not valid yet.
    Date,
    /// The peer's certificate is for another name.
    Name,
    /// The peer's certificate contains no name.
    NoName,
    /// The peer requires a certificate of ours, or rejects ours.
    OurCertificate,
    /// Anything else.
    Other,
    /// No trusted authority signed the peer's certificate.
    Stranger,
}

/// Why TLS failed: the inner error of an [`io::Error`].
#[derive(Debug)]
struct Explained {
    fault: TlsFault,
    text: String,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Explained {}

/// Explains a TLS error; returns any other error unchanged.
pub fn explained(e: io::Error) -> io::Error {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let (fault, text) = match inner {
        Some(error) => words(error),
        None if e.kind() == io::ErrorKind::UnexpectedEof => {
            (TlsFault::Other, "the connection was closed in the middle of the TLS handshake".to_owned())
        }
        None => return e,
    };
    io::Error::new(e.kind(), Explained { fault, text })
}

/// The fault in an [`explained`] error; `None` for other errors.
pub fn fault_of(e: &io::Error) -> Option<TlsFault> {
    e.get_ref().and_then(|inner| inner.downcast_ref::<Explained>()).map(|explained| explained.fault)
}

fn words(error: &Error) -> (TlsFault, String) {
    match error {
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            (TlsFault::Other, format!("the data received is not TLS: is this a cleartext port? ({error})"))
        }
        Error::PeerIncompatible(why) => {
            (TlsFault::Other, format!("no version or cipher of TLS suits both sides ({why:?})"))
        }
        other => (TlsFault::Other, other.to_string()),
    }
}

fn of_certificate(error: &CertificateError) -> (TlsFault, String) {
    use CertificateError as E;
    match error {
        // The library's text contains the current time, so every message would differ.
        E::Expired | E::ExpiredContext { .. } => (TlsFault::Date, "the certificate has expired".to_owned()),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            (TlsFault::Date, "the certificate is not valid yet: is one of the clocks wrong?".to_owned())
        }
        E::NotValidForName => (TlsFault::Name, "the certificate is for another name".to_owned()),
        E::NotValidForNameContext { expected, presented } => {
            let wanted = expected.to_str();
            match presented.len() {
                // The common name has not counted since RFC 9525 §2; curl with OpenSSL still reads it.
                0 => (
                    TlsFault::NoName,
                    format!("the certificate has no subjectAltName, so it is for no host, {wanted} included"),
                ),
                _ => {
                    (TlsFault::Name, format!("the certificate is for {}, not for {wanted}", plain(presented)))
                }
            }
        }
        E::UnknownIssuer => {
            (TlsFault::Stranger, "the certificate is signed by an untrusted issuer".to_owned())
        }
        other if is_authority(other) => {
            (TlsFault::Stranger, "the certificate is its own authority, which is not trusted here".to_owned())
        }
        other => (TlsFault::Other, format!("the certificate was not accepted: {other}")),
    }
}

/// The names of a certificate as people write them; rustls writes `DnsName("a.example")`.
fn plain(presented: &[String]) -> String {
    let name = |text: &String| match text.split_once('(') {
        Some((_, name)) => name.trim_end_matches(')').trim_matches('"').to_owned(),
        None => text.clone(),
    };
    presented.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Whether the peer presents an authority's certificate as its own. rustls has no error variant for this.
pub(super) fn is_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

/// Explains an alert from the peer (RFC 9846 §6).
fn of_alert(alert: AlertDescription) -> (TlsFault, String) {
    use AlertDescription as A;
    let (fault, text) = match alert {
        A::CertificateRequired => (TlsFault::OurCertificate, "the peer wants a client certificate"),
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::AccessDenied => {
            (TlsFault::OurCertificate, "the peer does not accept the client certificate, or wants one")
        }
        A::HandshakeFailure | A::InsufficientSecurity => {
            (TlsFault::Other, "the peer found no cipher in common, or wants a client certificate")
        }
        A::NoApplicationProtocol => {
            (TlsFault::Other, "the peer speaks none of the protocols asked for by ALPN")
        }
        A::ProtocolVersion => (TlsFault::Other, "the peer speaks neither TLS 1.2 nor 1.3"),
        A::UnrecognisedName => (TlsFault::Name, "the peer has no certificate for this name"),
        _ => (TlsFault::Other, "the peer ended the connection"),
    };
    (fault, format!("{text} ({alert:?})"))
}

/// Why the handshake with a client failed, for the operator of the server.
pub fn why_client_failed(e: &io::Error) -> String {
    match e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(alert)) => alert_of_client(*alert),
        Some(Error::InvalidCertificate(certificate)) => {
            of_certificate(certificate).1.replacen("the certificate", "the client's certificate", 1)
        }
        Some(Error::InvalidMessage(why)) => format!("the data received is not valid TLS ({why:?})"),
        Some(Error::NoApplicationProtocol) => {
            "the client speaks none of the protocols that it can have here (ALPN)".to_owned()
        }
        Some(Error::NoCertificatesPresented) => {
            "the client showed no certificate, which client_auth requires".to_owned()
        }
        Some(other) => words(other).1,
        None if e.kind() == io::ErrorKind::UnexpectedEof => {
            "the client closed the connection during the handshake".to_owned()
        }
        None => e.to_string(),
    }
}

/// Explains an alert from a client (RFC 9846 §6).
fn alert_of_client(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let text = match alert {
        A::UnknownCA => "the client does not trust the issuer of our certificate",
        A::CertificateExpired => "our certificate has expired, says the client",
        A::AccessDenied
        | A::BadCertificate
        | A::CertificateRevoked
        | A::CertificateUnknown
        | A::UnsupportedCertificate => "the client does not accept our certificate",
        A::HandshakeFailure | A::InsufficientSecurity | A::ProtocolVersion => {
            "the client accepts neither our versions nor our ciphers"
        }
        _ => "the client ended the handshake",
    };
    format!("{text} ({alert:?})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use std::time::Duration;

    fn told(error: Error) -> (Option<TlsFault>, String) {
        let e = explained(io::Error::new(io::ErrorKind::InvalidData, error));
        (fault_of(&e), e.to_string())
    }

    #[test]
    fn a_server_hears_what_its_client_did_wrong() {
        let why = |error: Error| why_client_failed(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(why(Error::AlertReceived(AlertDescription::UnknownCA)).contains("does not trust the issuer"));
        assert!(why(Error::NoCertificatesPresented).contains("client_auth"));
        assert_eq!(why(CertificateError::Expired.into()), "the client's certificate has expired");
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(why_client_failed(&closed), "the client closed the connection during the handshake");
    }

    #[test]
    fn the_same_mistake_has_the_same_words() {
        let at = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
        let expired = |s| CertificateError::ExpiredContext { time: at(s), not_after: at(5) };
        let want = (Some(TlsFault::Date), "the certificate has expired".to_owned());
        assert_eq!(told(expired(10).into()), want);
        assert_eq!(told(expired(11).into()), want);
        let names = ["DnsName(\"a.example\")", "IpAddress(::1)", "b"].map(str::to_owned);
        assert_eq!(plain(&names), "a.example, ::1, b");
        let alert = told(Error::AlertReceived(AlertDescription::NoApplicationProtocol));
        assert!(alert.1.ends_with("(NoApplicationProtocol)"), "the verdict looks for it: {alert:?}");
        assert_eq!(told(CertificateError::UnknownIssuer.into()).0, Some(TlsFault::Stranger));
        let other = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(fault_of(&explained(other)), None);
    }
}
