//! The static table of QPACK (RFC 9204, Appendix A).

/// Names and values, by index.
#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 99] = [
    (":authority", ""), (":path", "/"), ("age", "0"), ("content-disposition", ""), ("content-length", "0"), ("cookie", ""),
    ("date", ""), ("etag", ""), ("if-modified-since", ""), ("if-none-match", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("referer", ""), ("set-cookie", ""), (":method", "CONNECT"), (":method", "DELETE"), (":method", "GET"),
    (":method", "HEAD"), (":method", "OPTIONS"), (":method", "POST"), (":method", "PUT"), (":scheme", "http"),
    (":scheme", "https"), (":status", "103"), (":status", "200"), (":status", "304"), (":status", "404"), (":status", "503"),
    ("accept", "*/*"), ("accept", "application/dns-message"), ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"), ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"), ("access-control-allow-origin", "*"), ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"), ("cache-control", "max-age=604800"), ("cache-control", "no-cache"),
    ("cache-control", "no-store"), ("cache-control", "public, max-age=31536000"), ("content-encoding", "br"),
    ("content-encoding", "gzip"), ("content-type", "application/dns-message"), ("content-type", "application/javascript"),
    ("content-type", "application/json"), ("content-type", "application/x-www-form-urlencoded"), ("content-type", "image/gif"),
    ("content-type", "image/jpeg"), ("content-type", "image/png"), ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"), ("content-type", "text/plain"), ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"), ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"), ("vary", "accept-encoding"),
    ("vary", "origin"), ("x-content-type-options", "nosniff"), ("x-xss-protection", "1; mode=block"), (":status", "100"),
    (":status", "204"), (":status", "206"), (":status", "302"), (":status", "400"), (":status", "403"), (":status", "421"),
    (":status", "425"), (":status", "500"), ("accept-language", ""), ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"), ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"), ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"), ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"), ("access-control-request-method", "get"),
    ("access-control-request-method", "post"), ("alt-svc", "clear"), ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"), ("early-data", "1"),
    ("expect-ct", ""), ("forwarded", ""), ("if-range", ""), ("origin", ""), ("purpose", "prefetch"), ("server", ""),
    ("timing-allow-origin", "*"), ("upgrade-insecure-requests", "1"), ("user-agent", ""), ("x-forwarded-for", ""),
    ("x-frame-options", "deny"), ("x-frame-options", "sameorigin"),
];

/// What the static table has for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// An entry with this name and value.
    Field(u64),
    /// An entry with this name, but no such value.
    Name(u64),
    /// Nothing.
    Nothing,
}

/// Looks a field up in the static table.
pub(super) fn find(name: &[u8], value: &[u8]) -> Found {
    let mut slot = slot_of(name);
    loop {
        let Some(first) = SLOTS.get(slot).and_then(|n| usize::from(*n).checked_sub(1)) else {
            return Found::Nothing;
        };
        if STATIC[first].0.as_bytes() != name {
            slot = (slot + 1) % SLOTS.len();
            continue;
        }
        let mut at = first;
        loop {
            if STATIC[at].1.as_bytes() == value {
                return Found::Field(at as u64);
            }
            match NEXT[at] {
                0 => return Found::Name(first as u64),
                next => at = usize::from(next),
            }
        }
    }
}

/// For each entry: the next one with the same name, or 0. Unlike HPACK's, such entries are not always adjacent.
static NEXT: [u8; STATIC.len()] = {
    let mut next = [0; STATIC.len()];
    let mut at = 0;
    while at < STATIC.len() {
        let mut other = at + 1;
        while other < STATIC.len() && !is_same(STATIC[at].0.as_bytes(), STATIC[other].0.as_bytes()) {
            other += 1;
        }
        if other < STATIC.len() {
            next[at] = other as u8;
        }
        at += 1;
    }
    next
};

/// The first entry of each name, counted from 1, at its [`slot_of`] or in the next free slot.
static SLOTS: [u8; 256] = {
    let mut slots = [0; 256];
    let mut at = 0;
    while at < STATIC.len() {
        let name = STATIC[at].0.as_bytes();
        let mut before = 0;
        while before < at && !is_same(name, STATIC[before].0.as_bytes()) {
            before += 1;
        }
        if before == at {
            let mut slot = slot_of(name);
            while slots[slot] != 0 {
                slot = (slot + 1) % slots.len();
            }
            slots[slot] = at as u8 + 1;
        }
        at += 1;
    }
    slots
};

const fn slot_of(name: &[u8]) -> usize {
    match name {
        [first, .., last] => (name.len() * 31 + *first as usize * 7 + *last as usize) % 256,
        _ => 0,
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_static_entry_is_found() {
        for (at, (name, value)) in STATIC.iter().enumerate() {
            assert_eq!(find(name.as_bytes(), value.as_bytes()), Found::Field(at as u64), "{name}: {value}");
        }
        assert_eq!(find(b":status", b"418"), Found::Name(24));
        assert_eq!(find(b"x-frame-options", b"x"), Found::Name(97));
        assert_eq!(find(b"x-none", b"1"), Found::Nothing);
        assert_eq!(find(b"", b""), Found::Nothing);
    }
}
