//! Phases 3 and 4 for FastCGI: which script answers, what it learns, and what it says beside its response.

use super::sent::Written;
use super::{Exchange, Next, Routed, Stop, unless_gone};
use crate::fastcgi::{Facts, Resolved, Scripts};
use crate::forward;
use crate::matching::is_tls;
use crate::respond;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use weir_fcgi::KeepConnection;
use weir_h1::{BodyKind, Version};
use weir_telemetry::log;
use weir_upstream::upstream::{Active, Upstream};
use weir_wire::fastcgi::FastCgi;
use weir_wire::listen::Address;
use weir_wire::relay::Framing;
use weir_wire::{Peer, Stream};

impl Exchange<'_> {
    /// Finds the script, and prepares the request for CGI. Returns what to do next if the request is answered here.
    pub(super) async fn find_script(
        &mut self,
        route: usize,
        scripts: Arc<Scripts>,
    ) -> Result<Option<Next>, Stop> {
        let core = self.client.core.handle.clone();
        self.has_waited = true; // perhaps for a disk
        let resolved = unless_gone(self.client, pin!(scripts.resolve(&self.head, &core))).await?;
        match resolved.map_err(Stop::Refuse)? {
            Resolved::Folder(answer) => {
                self.answers_itself();
                return Ok(Some(self.write_local(respond::answer(answer)).await));
            }
            Resolved::Script(script) => self.script = Some(script),
        }
        self.know_length(route, scripts.buffer).await?;
        // No script asks for the body: RFC 9110 §10.1.1 leaves it to us.
        if self.head.expects_continue() && self.head.body() != BodyKind::Empty {
            if self.head.version() != Version::Http10 {
                let mut out = self.client.core.take_buffer();
                out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                self.record.sent += out.len() as u64;
                self.client.write_all(out).await.map_err(Stop::Cut)?;
            }
            self.head.was_continued();
        }
        Ok(None)
    }

    /// Reads a body whose length is not known in advance, because CONTENT_LENGTH comes before it (RFC 3875 §4.1.2).
    async fn know_length(&mut self, route: usize, limit: usize) -> Result<(), Stop> {
        let is_whole = self.cx.as_ref().is_some_and(|cx| cx.request_whole.is_some());
        let changed = self.cx.as_ref().is_some_and(|cx| cx.request_bodies.change());
        let known = self.head.body() == BodyKind::Empty || (self.head.content_length().is_some() && !changed);
        if is_whole || known {
            return Ok(());
        }
        if self.cx.is_none() {
            let scope = std::rc::Rc::clone(&self.local.routes[route].scope);
            self.cx = Some(self.context(scope));
        }
        Box::pin(self.gather_request(limit, None)).await?;
        self.adopt_whole_request()
    }

    /// The records before the body, or all of them if a filter has the body whole.
    pub(super) fn write_script_request(
        &mut self,
        routed: Routed,
        spec: &Upstream,
        active: &Active,
    ) -> Written {
        let mut out = self.client.core.take_buffer();
        let whole = self.cx.as_ref().and_then(|cx| cx.request_whole.clone());
        let handling = &self.local.routes[routed.route].handling;
        let (Some(scripts), Some(script)) = (&handling.scripts, &self.script) else {
            return Written { out, whole }; // the config pairs them
        };
        let tls = is_tls(&*self.client, &self.head);
        let local = self.client.stream.local_address();
        let client_port = match self.client.peer {
            Peer::Address(address) if self.client_address.is_none() => Some(address.port()),
            _ => None, // a proxy's port, or none
        };
        let own_port = || match (local, &self.client.listener.spec.address) {
            (Some(local), _) => Some(local.port()),
            (None, Some(Address::Tcp(address))) => Some(address.port()),
            (None, _) => None,
        };
        // A trusted proxy's clients used the proxy's port.
        let port = if self.client.trusted { None } else { own_port() };
        let port = port.or_else(|| port_of(self.head.asked_authority()));
        let facts = Facts {
            client: self.client_address(),
            client_port,
            tls,
            local,
            port: port.unwrap_or(if tls { 443 } else { 80 }),
            host: forward::host_for(&self.head, &spec.host, &active.get().endpoint),
            keep: if spec.keepalive.is_zero() { KeepConnection::Close } else { KeepConnection::Keep },
        };
        scripts.write_request(script, &self.head, &facts, &mut out);
        Written { out, whole }
    }

    /// Logs what a script wrote to its standard error.
    #[inline]
    pub(super) fn tell_errors(&self, upstream: &Upstream, stream: &mut Stream) {
        if let Some(fastcgi) = stream.fastcgi_mut() {
            self.tell_errors_of(upstream, fastcgi);
        }
    }

    #[cold]
    fn tell_errors_of(&self, upstream: &Upstream, fastcgi: &mut FastCgi) {
        static SEEN: log::PerSubject = log::per_subject(10, Duration::from_secs(1));
        let Some(errors) = fastcgi.take_errors() else { return };
        let route = self.route.and_then(|route| self.local.snapshot.routes.get(route));
        let route = route.map_or("", |route| &*route.name);
        let upstream = &*upstream.name;
        if !errors.text.is_empty() {
            let text = String::from_utf8_lossy(&errors.text);
            let text = text.trim_end();
            let fields: log::Fields<'_> = &[
                ("route", &route),
                ("upstream", &upstream),
                ("text", &text),
                ("dropped_bytes", &errors.dropped),
            ];
            let fields = if errors.dropped == 0 { &fields[..3] } else { fields };
            SEEN.write(log::Level::Warn, (route, ""), "a script wrote to its standard error", fields);
        }
        if errors.surplus > 0 {
            let fields: log::Fields<'_> =
                &[("route", &route), ("upstream", &upstream), ("bytes", &errors.surplus)];
            SEEN.write(
                log::Level::Warn,
                (route, "length"),
                "a script sent more than its Content-Length; the rest was dropped",
                fields,
            );
        }
    }
}

/// Appends a whole body, framed for its endpoint.
pub(super) fn write_whole(framing: Framing, body: &[u8], out: &mut Vec<u8>) {
    if framing == Framing::Records {
        weir_fcgi::write_input(body, out);
        weir_fcgi::write_input_end(out);
    } else {
        out.extend_from_slice(body);
    }
}

/// The port of a host with one.
fn port_of(authority: &[u8]) -> Option<u16> {
    let at = authority.iter().rposition(|&b| b == b':')?;
    str::from_utf8(authority.get(at + 1..)?).ok()?.parse().ok()
}
