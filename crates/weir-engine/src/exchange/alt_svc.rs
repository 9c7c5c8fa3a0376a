//! Tells clients over HTTP/1.1 and HTTP/2 that the listener speaks HTTP/3, or no longer does (RFC 7838).

use super::Exchange;
use crate::snapshot::AltSvc;
use std::time::Instant;
use weir_h1::{Fields, Version};

impl Exchange<'_> {
    /// Appends Alt-Svc to a final response, unless an upstream or a filter has set it, which may
    /// know of more than this listener. Costs one branch if the listener has nothing to announce.
    #[inline]
    pub(super) fn write_alt_svc(&self, fields: &Fields, out: &mut Vec<u8>) {
        if let Some(says) = &self.client.listener.spec.alt_svc {
            self.say_alt_svc(says, fields, out);
        }
    }

    #[inline(never)]
    fn say_alt_svc(&self, says: &AltSvc, fields: &Fields, out: &mut Vec<u8>) {
        if self.head.version() == Version::Http3 || fields.get_str("alt-svc").is_some() {
            return;
        }
        match says {
            AltSvc::Line(line) => out.extend_from_slice(line),
            AltSvc::Clear(until) if Instant::now() < *until => out.extend_from_slice(b"alt-svc: clear\r\n"),
            AltSvc::Clear(_) => {}
        }
    }
}
