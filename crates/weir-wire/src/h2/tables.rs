//! The static table of HPACK (RFC 7541, Appendix A).

/// The static table (RFC 7541, Appendix A).
#[rustfmt::skip]
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// The index of the first entry with this name in the static table, counted from 1.
pub(super) fn static_index(name: &[u8]) -> Option<usize> {
    let mut slot = slot_of(name);
    loop {
        let index = usize::from(*SLOTS.get(slot)?);
        let (known, _) = STATIC.get(index.checked_sub(1)?)?;
        if known.as_bytes() == name {
            return Some(index);
        }
        slot = (slot + 1) % SLOTS.len();
    }
}

/// The first entry of each name, at its [`slot_of`] or in the next free slot.
static SLOTS: [u8; 256] = {
    let mut slots = [0; 256];
    let mut at = 0;
    while at < STATIC.len() {
        let name = STATIC[at].0.as_bytes();
        if at == 0 || !is_same(name, STATIC[at - 1].0.as_bytes()) {
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
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
