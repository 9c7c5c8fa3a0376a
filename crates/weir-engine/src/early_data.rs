//! Requests that arrive before the TLS handshake is complete (0-RTT, RFC 8470).
//!
//! An attacker who records such a request can replay it, so it must not change anything. It runs at once only if its
//! method is safe, nothing follows its head, and its route has `early_data: true`; the upstream is told, and may refuse
//! it with 425, which passes to the client. Any other request waits for the handshake, which a replay cannot complete,
//! and then runs as usual. Answering 425 instead would cost its client a second request, on most routes of most
//! configs.

use weir_h1::{BodyKind, FieldName, InvalidValue, Method, RequestHead};

/// What happens to a request that arrived early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// It runs at once, [marked](mark).
    Run,
    /// It waits until the handshake is complete.
    Wait,
}

/// Decides about a request that arrived early. `allowed`: its route has `early_data: true`.
///
/// QUERY and other methods that Weir does not know may be safe, but cannot be trusted to be. A body may differ from the
/// one that was recorded, and a tunnel has no end at which its effects could be judged.
pub fn judge(head: &RequestHead, allowed: bool) -> Early {
    let is_safe = matches!(head.method(), Method::Get | Method::Head | Method::Options);
    let is_whole = head.body() == BodyKind::Empty && head.upgrade().is_none();
    if allowed && is_safe && is_whole { Early::Run } else { Early::Wait }
}

/// Tells the upstream that the request arrived early: `Early-Data: 1` (RFC 8470 §5.1). What the client wrote there is
/// replaced, because any value, and several of them, mean the same. A request that did not arrive early here keeps its
/// field: it did at a gateway in front.
///
/// # Errors
/// Never for a name and a value of ours.
pub fn mark(head: &mut RequestHead) -> Result<(), InvalidValue> {
    FieldName::new("early-data").map_or(Ok(()), |name| head.headers.insert(&name, b"1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, Progress, parse_request};

    fn head(text: &str) -> RequestHead {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        assert!(matches!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete)), "{text}");
        head
    }

    #[test]
    fn only_safe_whole_requests_of_willing_routes_run_early() {
        for (text, early) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Run),
            ("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Run),
            ("OPTIONS / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Run),
            ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", Early::Run),
            ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n", Early::Wait),
            ("GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", Early::Wait),
            ("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", Early::Wait),
            ("POST / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Wait),
            ("PUT / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Wait),
            ("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Wait),
            ("QUERY / HTTP/1.1\r\nhost: a\r\n\r\n", Early::Wait),
        ] {
            assert_eq!(judge(&head(text), true), early, "{text}");
            assert_eq!(judge(&head(text), false), Early::Wait, "{text}");
        }
    }

    #[test]
    fn the_upstream_is_told_once() {
        for own in ["", "early-data: 1\r\n", "Early-Data: 1\r\nearly-data: 1\r\n", "early-data: 0\r\n"] {
            let mut head = head(&format!("GET / HTTP/1.1\r\nhost: a\r\n{own}\r\n"));
            mark(&mut head).unwrap();
            let told: Vec<&[u8]> = head.headers.get_all("early-data").collect();
            assert_eq!(told, [b"1"], "{own}");
        }
    }
}
