//! The header fields of a request as conditions and templates read them.
//!
//! weir-h1 takes `Connection` and `Upgrade` out of a head, because they are for this hop only. What they said of a
//! WebSocket or another upgrade is still a fact of the request, so it is read here from what weir-h1 kept of them. An
//! extended CONNECT of HTTP/2 or HTTP/3 reads the same.

use weir_h1::RequestHead;

/// All values of a field, in order. `name` is in lower case.
///
/// `upgrade` has the protocols that the client asks for; `connection` has the value `Upgrade` if it asks for any, and
/// no value otherwise.
#[inline]
pub fn values<'h>(head: &'h RequestHead, name: &[u8]) -> impl Iterator<Item = &'h [u8]> {
    head.headers.get_all(name).chain(of_hop(head, name))
}

/// Whether a field has this value: an absent one is empty, a repeated one is its values joined by `, `.
#[inline]
pub fn is(head: &RequestHead, name: &[u8], value: &[u8]) -> bool {
    of_hop(head, name).map_or_else(|| head.headers.is(name, value), |own| own == value)
}

#[inline]
fn of_hop<'h>(head: &'h RequestHead, name: &[u8]) -> Option<&'h [u8]> {
    match name {
        b"connection" => head.upgrade().map(|_| &b"Upgrade"[..]),
        b"upgrade" => head.upgrade(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_head;

    #[test]
    fn an_upgrade_is_read_where_it_was_asked_for() {
        let upgrade = "GET /\nConnection: keep-alive, Upgrade\nUpgrade: websocket";
        for (head, name, value) in [
            (upgrade, "upgrade", "websocket"),
            (upgrade, "connection", "Upgrade"),
            (upgrade, "x-other", ""),
            // Not nominated, so it is no upgrade (RFC 9110 §7.8).
            ("GET /\nUpgrade: websocket", "upgrade", ""),
            ("GET /\nConnection: keep-alive", "connection", ""),
        ] {
            let request = request_head(head);
            let all: Vec<_> = values(&request, name.as_bytes()).collect();
            let expected: Vec<_> =
                Some(value.as_bytes()).filter(|value| !value.is_empty()).into_iter().collect();
            assert_eq!(all, expected, "{head} {name}");
            assert!(is(&request, name.as_bytes(), value.as_bytes()), "{head} {name}");
            assert!(!is(&request, name.as_bytes(), b"other"), "{head} {name}");
        }
    }
}
