//! Checks of HTTP/3: what a listener must have for it, and the UDP addresses it opens.

use super::Checker;
use crate::schema::{Advertise, ClientAuthMode, Http3, ListenAddress, Listener, Protocol, Serves};

impl Checker<'_> {
    /// Checks a listener's `http3`, and what `h3` in its `protocols` needs.
    pub(super) fn http3(&mut self, name: &str, path: &str, listener: &Listener) {
        if listener.serves() != Serves::Http {
            return; // speaks no HTTP, which was reported
        }
        let settings = format!("{path}.http3");
        if let Some(http3) = &listener.http3 {
            self.http3_settings(&settings, http3);
        }
        if !listener.has_h3() {
            // A refused protocol might have been meant as h3.
            let is_whole = listener
                .protocols
                .as_ref()
                .is_none_or(|all| self.is_whole(&format!("{path}.protocols"), all.len()));
            if self.is_written(&settings) && is_whole {
                let message = "`http3` has no effect: this listener's `protocols` do not name `h3`";
                let hint = "add protocols: [h3, h2, http1], or remove `http3`";
                self.error_hint(&settings, "no-effect", message, hint);
            }
            return;
        }
        let at = self.place_of_h3(path, listener);
        if !self.is_written(&format!("{path}.tls")) {
            let message = "HTTP/3 is always encrypted, and this listener has no `tls`";
            let hint = "add `tls: { certificates: [ { cert: api.pem, key: api.key } ] }`, or remove `h3`";
            self.error_hint(&at, "no-tls", message, hint);
        }
        let auth = listener.tls.as_ref().and_then(|tls| tls.client_auth.as_ref());
        if auth.is_some_and(|auth| auth.mode == ClientAuthMode::AcceptUntrusted) {
            let message = "`accept_untrusted` does not work with HTTP/3, which this listener speaks too";
            let hint = "write `mode: optional`, or remove `h3` from `protocols`";
            self.error_hint(&format!("{path}.tls.client_auth.mode"), "two-answers", message, hint);
        }
        if listener.http3.is_some_and(|http3| http3.early_data) {
            self.early_data(path, listener);
        }
        self.udp_addresses(name, path, &at, listener);
    }

    fn http3_settings(&mut self, path: &str, http3: &Http3) {
        if !(Http3::MIN_IDLE..=Http3::MAX_IDLE).contains(&http3.idle) {
            let message = format!("`{}` is out of range; expected 1s to 1h", http3.idle);
            self.error(&format!("{path}.idle"), "out-of-range", message);
        }
    }

    /// Requests before the end of the handshake need tickets, and can never show a certificate.
    fn early_data(&mut self, path: &str, listener: &Listener) {
        let at = format!("{path}.http3.early_data");
        let Some(tls) = &listener.tls else { return };
        if tls.client_auth.as_ref().is_some_and(|auth| auth.mode != ClientAuthMode::Off) {
            let message = "a listener with `client_auth` accepts no early data: the client that sends it may not \
                           be the one that showed the certificate";
            self.error_hint(&at, "two-answers", message, "remove `early_data`, or `client_auth`");
        }
        if !tls.tickets {
            let message = "early data needs tickets, and `tls.tickets` is false";
            self.error_hint(&at, "no-effect", message, "remove `early_data`, or `tickets: false`");
        }
    }

    /// Every address that sends the listener clients must be able to have a UDP socket, and no two listeners may
    /// share one.
    fn udp_addresses(&mut self, name: &str, path: &str, at: &str, listener: &Listener) {
        let config = self.config;
        let outers = config.listeners.iter().filter(|(_, outer)| outer.leads_to(name));
        let own = listener.address.iter().map(|_| (name, listener));
        let mut ports = Vec::new();
        for (door, opened) in own.chain(outers) {
            let of = if door == name { "this listener".to_owned() } else { format!("listener `{door}`") };
            match &opened.address {
                Some(ListenAddress::Unix(_)) => {
                    let message = format!("HTTP/3 needs a UDP port, and {of} is at a Unix socket");
                    self.error_hint(at, "no-udp", message, "remove `h3`");
                }
                Some(ListenAddress::Tcp(address)) => ports.push(address.port()),
                None => {} // reported
            }
            if opened.proxy_protocol {
                let message = format!(
                    "{of} requires the PROXY header, which QUIC does not have: no client could use HTTP/3"
                );
                let hint = "remove `h3`, or give HTTP/3 a listener without `proxy_protocol`";
                self.error_hint(at, "two-answers", message, hint);
            }
            let earlier = config.listeners.iter().take_while(|(other, _)| *other != name);
            if let Some((other, _)) =
                earlier.into_iter().find(|(other, inner)| inner.has_h3() && opened.leads_to(other))
            {
                let message = format!("HTTP/3 on the UDP port of {of} is taken by listener `{other}`");
                let hint = "keep `h3` at one of them: one UDP port has one listener";
                self.error_hint(at, "address-twice", message, hint);
            }
        }
        ports.dedup();
        let advertise = listener.http3.map(|http3| http3.advertise).unwrap_or_default();
        if ports.len() > 1 && advertise == Advertise::Own {
            let message = "clients reach this listener at several ports, and Alt-Svc can announce one";
            let hint = "add http3: { advertise: 443 } with the port that clients should use";
            self.error_hint(&format!("{path}.http3"), "missing-key", message, hint);
        }
    }

    /// The path of `h3` in a listener's protocols, or of the list.
    fn place_of_h3(&self, path: &str, listener: &Listener) -> String {
        let path = format!("{path}.protocols");
        let all = listener.protocols.as_deref().unwrap_or_default();
        let index = all.iter().position(|protocol| *protocol == Protocol::H3);
        match index.filter(|_| self.is_whole(&path, all.len())) {
            Some(index) => format!("{path}[{index}]"),
            None => path,
        }
    }
}
