//! TLS of the admin listener. Compiled with the rest, so that `weir check` and a reload reject what cannot be served.

use super::Compiler;
use super::listeners::{client_auth, tickets_key};
use weir_config::schema::Protocol;
use weir_wire::Chain;
use weir_wire::tls::{self, Part, ServerTls, Shown};

impl Compiler<'_> {
    /// The policy of `admin.tls`, if there is one.
    pub(super) fn admin_tls(&mut self) -> Option<ServerTls> {
        let written = self.config.admin.tls.as_ref()?;
        let path = "admin.tls";
        let client_auth = client_auth(written.client_auth.as_ref());
        let certificates = self.certificates(path, &written.certificates)?;
        if certificates.is_empty() || self.misses_file("admin.tls.client_auth") {
            return None; // reported when the config was checked
        }
        if let Some(ca) = client_auth.ca() {
            self.authority_dates("admin.tls.client_auth.ca", ca);
        }
        let alpn = [super::listeners::alpn(Protocol::Http1)];
        let shown = Shown { fixed: &certificates, kept: &[] };
        let key = tickets_key(&certificates, &[], &client_auth, false);
        let made = self.carry.tickets(key).and_then(|tickets| {
            ServerTls::new(shown, &client_auth, &alpn, &tls::Policy::default(), &tickets)
        });
        let place = |part| if part == Part::Authority { "admin.tls.client_auth.ca" } else { path };
        let made =
            made.map_err(|e| self.error(place(e.part), "tls-unusable", Chain(&e).to_string(), None)).ok();
        if made.is_none() && self.found.errors() == 0 {
            self.error(path, "tls-unusable", "TLS could not be set up", None);
        }
        made
    }
}
