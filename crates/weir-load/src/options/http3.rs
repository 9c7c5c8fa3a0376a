//! What HTTP/3 needs of the options, and what it cannot be combined with.

use super::Reader;
use crate::url::{Scheme, Url};

impl Reader<'_> {
    /// Reports options that do not fit `--http3`.
    pub(super) fn fits_http3(&mut self) {
        let o = self.options;
        if !o.http3 {
            return;
        }
        for (place, is_wrong, hint) in [
            (
                "--http3",
                cfg!(not(feature = "http3")),
                "this weir is built without it (cargo feature `http3`)",
            ),
            ("--http3", o.http2, "--http2 is another version: leave out one of them"),
            ("--unix-socket", o.unix_socket.is_some(), "HTTP/3 uses UDP: leave it out"),
            (
                "--proxy",
                o.proxy.is_some(),
                "HTTP/3 uses UDP, which an HTTP proxy does not pass on: leave it out",
            ),
            (
                "--tls-resume",
                o.tls_resume,
                "cannot be counted with HTTP/3: leave it out; each connection makes a full handshake",
            ),
        ] {
            if is_wrong {
                self.wrong(place, hint);
            }
        }
    }

    /// Reports a URL that HTTP/3 cannot reach.
    pub(super) fn url_fits_http3(&mut self, text: &str, url: &Url) {
        if !self.options.http3 {
            return;
        }
        match url.scheme {
            Scheme::Https | Scheme::Ws | Scheme::Wss => {} // for WebSockets there is a mistake already
            Scheme::Http => self.wrong(text, "HTTP/3 always uses TLS: write https://"),
            Scheme::Grpc | Scheme::Grpcs => self.wrong(text, "gRPC uses HTTP/2: leave out --http3"),
        }
    }
}
