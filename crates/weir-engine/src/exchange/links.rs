//! After an attempt: translates the upstream's addresses in a response to those the client knows.

use super::Exchange;
use super::sent::Attempt;
use crate::forward;
use crate::links::{self, Prefix, Sides};
use weir_h1::Known;

impl Exchange<'_> {
    /// Rewrites response fields that name the endpoint itself, or paths without the prefix that was stripped. Runs
    /// before the filters, so that they have the last word.
    #[cold]
    pub(super) fn rewrite_links(&self, attempt: &mut Attempt) {
        let upstream = &attempt.upstream.spec;
        if !upstream.rewrites_links {
            return;
        }
        let endpoint = &attempt.active.get().endpoint;
        let told = forward::host_for(&self.head, &upstream.host, endpoint);
        let sides = Sides {
            asked: self.host_at_client(),
            tls: self.is_tls(),
            told: told.map_or(self.head.authority(), str::as_bytes),
            own: [endpoint.authority.as_bytes(), endpoint.label.as_bytes()],
            own_tls: upstream.tls.is_some(),
            prefix: self.cx.as_ref().and_then(|cx| cx.prefix.as_ref()).map(Prefix::of),
        };
        links::rewrite(&mut attempt.response.headers, &sides);
    }

    /// The host that the client knows: the one it asked for, or the one a trusted proxy reports.
    fn host_at_client(&self) -> &[u8] {
        let said = self.head.headers.get_known(Known::XForwardedHost).filter(|_| self.client.trusted);
        let one = |host: &&[u8]| {
            !host.is_empty() && host.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~:[]".contains(b))
        };
        said.filter(one).unwrap_or_else(|| self.head.asked_authority())
    }
}
