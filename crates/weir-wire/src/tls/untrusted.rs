//! Clients whose certificates no authority vouches for, on listeners that serve them nevertheless
//! (`client_auth: { mode: accept_untrusted }`).

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Requests a certificate, and completes the handshake with none or with any that webpki can parse (X.509 v3). A client
/// that sends one must still prove that it has the key.
///
/// rustls cannot tell afterwards which certificates passed. So nobody may take the peer's certificate from a
/// connection without asking [`Self::trusts`].
#[derive(Clone, Debug)]
pub(super) struct AcceptUntrusted(pub(super) Arc<dyn ClientCertVerifier>);

impl AcceptUntrusted {
    /// Whether an authority vouches for the certificate that a client sent, leaf first.
    pub(super) fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((leaf, rest)) = chain.split_first() else { return false };
        self.0.verify_client_cert(leaf, rest, UnixTime::now()).is_ok()
    }
}

impl ClientCertVerifier for AcceptUntrusted {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion()) // `trusts` decides after the handshake
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
