//! Client TLS as it is written in a config: the policy towards a syslog server, and the key that names what of it cannot be used.

use weir_config::schema;
use weir_wire::tls::{ClientTls, Part};

/// The policy of TLS towards a syslog server.
///
/// # Errors
/// Which key cannot be used, and why.
pub fn log_tls(written: &schema::Syslog) -> Result<ClientTls, (&'static str, String)> {
    let identity = written.client_cert.as_ref().zip(written.client_key.as_ref());
    let identity = identity.map(|(cert, key)| (&*cert.0, &*key.0));
    let ca = written.ca.as_ref().map(|ca| &*ca.0);
    ClientTls::new(ca, identity, written.server_name.as_deref(), true, &[])
        .map_err(|e| (client_tls_key(e.part), e.text))
}

/// The key of a section of client TLS that names this part, with its point.
pub(crate) const fn client_tls_key(part: Part) -> &'static str {
    match part {
        Part::Authority => ".ca",
        Part::Certificate => ".client_cert",
        Part::Key => ".client_key",
        Part::Policy => "",
        Part::ServerName => ".server_name",
    }
}
