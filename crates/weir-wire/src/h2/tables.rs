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

/// The entries with this name in the static table, which are adjacent: the index of the first, counted from 1, and all
/// of them.
#[inline]
pub(super) fn entries_of(name: &[u8]) -> Option<(usize, &'static [(&'static str, &'static str)])> {
    let mut slot = slot_of(name);
    loop {
        let (index, count) = *SLOTS.get(slot)?;
        let first = usize::from(index).checked_sub(1)?;
        let entries = STATIC.get(first..first + usize::from(count))?;
        if entries.first()?.0.as_bytes() == name {
            return Some((first + 1, entries));
        }
        slot = (slot + 1) % SLOTS.len();
    }
}

/// The first entry of each name, counted from 1, and how many entries have it: at its [`slot_of`] or in the next free
/// slot.
static SLOTS: [(u8, u8); 256] = {
    let mut slots = [(0, 0); 256];
    let mut at = 0;
    while at < STATIC.len() {
        let name = STATIC[at].0.as_bytes();
        let mut end = at + 1;
        while end < STATIC.len() && is_same(name, STATIC[end].0.as_bytes()) {
            end += 1;
        }
        let mut slot = slot_of(name);
        while slots[slot].0 != 0 {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = (at as u8 + 1, (end - at) as u8);
        at = end;
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
