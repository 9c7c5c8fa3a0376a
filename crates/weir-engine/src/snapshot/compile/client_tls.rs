//! Client TLS from a config: the policy towards a syslog server, and the name of the key that is unusable.

use weir_config::schema;
use weir_wire::Chain;
use weir_wire::tls::{ClientTls, Part};

/// The TLS policy towards a syslog server.
///
/// # Errors
/// Which key is unusable, and why.
pub fn log_tls(written: &schema::Syslog) -> Result<ClientTls, (&'static str, String)> {
    let identity = written.client_cert.as_ref().zip(written.client_key.as_ref());
    let identity = identity.map(|(cert, key)| (&*cert.0, &*key.0));
    let ca = written.ca.as_ref().map(|ca| &*ca.0);
    ClientTls::new(ca, identity, written.server_name.as_deref(), true, &[])
        .map_err(|e| (client_tls_key(e.part), Chain(&e).to_string()))
}

/// The key of a client TLS section for this part, with its dot.
pub(crate) const fn client_tls_key(part: Part) -> &'static str {
    match part {
        Part::Authority => ".ca",
        Part::Certificate => ".client_cert",
        Part::Key => ".client_key",
        Part::Name => ".names",
        Part::Policy => "",
        Part::ServerName => ".server_name",
    }
}
