//! The fields of one message: ranges into the received bytes, and an arena for what was added since.

use crate::name::{FieldName, Known, NameSet, reads_as};
use std::fmt;

/// The fields of one message, in the order received.
///
/// A received field costs 16 bytes beside the bytes it came in; its text is never copied until it is written out. A field that is
/// set or added lives in an arena that is emptied, not freed, between messages. Neighbours in either are written in one copy.
///
/// Invariant: every range lies within `base` or `arena`; neither shrinks while entries point into it.
#[derive(Debug, Default)]
pub struct Fields {
    pub(crate) base: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    arena: Vec<u8>,
    /// The known names among the entries, dropped ones too, as bits; and [`UNDERSCORE`].
    seen: u32,
}

/// Some name may have a `_`. No known name has this bit.
const UNDERSCORE: u32 = 1 << 31;

/// One field or several of which all is known beforehand but the end of the last value: checked once, looked up once, appended in
/// one copy.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The lines, each as `name: value CRLF`.
    text: Vec<u8>,
    /// The fields, as ranges of `text`.
    entries: Vec<Entry>,
    /// The last value as far as it is known.
    last: usize,
    seen: u32,
}

/// A value that may not be emitted: it holds CR, LF, NUL or another control byte (RFC 9110 §5.5), or is over 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue;

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header value may not hold control bytes or be longer than 64 KiB")
    }
}

impl std::error::Error for InvalidValue {}

/// Longest value a filter may set, in bytes.
pub(crate) const VALUE_BYTES: usize = 64 * 1024;

/// A range of `base`, or of `arena` when `ARENA` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

const ARENA: u32 = 1 << 31;

const LINE_END: &[u8] = b"\r\n";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Text,
    pub(crate) value: Text,
    pub(crate) known: Known,
    /// It stands there exactly as `name: value CRLF`, so that it can be copied together with its neighbours.
    pub(crate) clean: bool,
    pub(crate) dropped: bool,
}

impl Fields {
    /// The first field of that name.
    pub fn get(&self, name: &FieldName) -> Option<&[u8]> {
        self.find_name(name).map(|e| self.text(e.value))
    }

    /// The first field of that name, given as text.
    pub fn get_str(&self, name: &str) -> Option<&[u8]> {
        self.find(name.as_bytes()).map(|e| self.text(e.value))
    }

    /// The first field of a known name: a bit test where there is none, or else a comparison of one byte per field.
    #[inline]
    pub fn get_known(&self, known: Known) -> Option<&[u8]> {
        if self.seen & known.bit() == 0 { None } else { self.find_known(known) }
    }

    fn find_known(&self, known: Known) -> Option<&[u8]> {
        self.live().find(|e| e.known == known).map(|e| self.text(e.value))
    }

    /// Every value of that name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.live().filter(move |e| self.is_named(e, name.as_bytes())).map(|e| self.text(e.value))
    }

    /// Whether the message came with a field of that name, though it may have been removed since.
    pub fn was_received(&self, name: &str) -> bool {
        self.entries.iter().any(|e| e.name.at & ARENA == 0 && self.is_named(e, name.as_bytes()))
    }

    /// Whether the content is of this media type, or of one that begins with it.
    pub fn is_media(&self, media: &str) -> bool {
        let found = self.get_str("content-type").and_then(|text| text.get(..media.len()));
        found.is_some_and(|text| text.eq_ignore_ascii_case(media.as_bytes()))
    }

    /// Whether a field of that name is there.
    pub fn contains(&self, name: &FieldName) -> bool {
        self.find_name(name).is_some()
    }

    /// The same for a name that was looked up beforehand, which costs less.
    pub fn values<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        self.live().filter(move |e| self.has_name(e, name)).map(|e| self.text(e.value))
    }

    /// All fields in order, as `(name, value)`.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.live().map(|e| (self.text(e.name), self.text(e.value)))
    }

    /// Number of fields that would be written.
    pub fn len(&self) -> usize {
        self.live().count()
    }

    /// Whether no field would be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a field: every other of that name goes.
    ///
    /// # Errors
    /// When the value may not be emitted. The fields stay as they were.
    pub fn insert(&mut self, name: &FieldName, value: &[u8]) -> Result<(), InvalidValue> {
        check(value)?;
        self.remove(name);
        self.push(name, value);
        Ok(())
    }

    /// Adds a field beside others of that name.
    ///
    /// # Errors
    /// When the value may not be emitted. The fields stay as they were.
    pub fn append(&mut self, name: &FieldName, value: &[u8]) -> Result<(), InvalidValue> {
        check(value)?;
        self.push(name, value);
        Ok(())
    }

    /// Adds prepared fields, the last of which has a value that ends so, beside others of their names.
    ///
    /// # Errors
    /// When the end may not be emitted, or the value became too long with it. The fields stay as they were.
    pub fn append_prepared(&mut self, fields: &Prepared, end: &[u8]) -> Result<(), InvalidValue> {
        let at = self.arena.len() as u32 | ARENA;
        if end.is_empty() {
            self.arena.extend_from_slice(&fields.text);
        } else {
            check(end)?;
            let Some((text, line_end)) = fields.text.split_last_chunk::<{ LINE_END.len() }>() else {
                return Err(InvalidValue); // there is no field whose value it could end
            };
            if fields.last + end.len() > VALUE_BYTES {
                return Err(InvalidValue);
            }
            self.arena.extend_from_slice(text);
            self.arena.extend_from_slice(end);
            self.arena.extend_from_slice(line_end);
        }
        self.seen |= fields.seen;
        self.entries.extend(fields.entries.iter().map(|e| e.moved(at)));
        if let Some(last) = self.entries.last_mut() {
            last.value.len += end.len() as u32;
        }
        Ok(())
    }

    /// Removes every field of that name; tells whether there was one.
    ///
    /// Spellings with `_` for `-`, or `-` for `_`, go too: WSGI, CGI and PHP read both as one name, and what a filter
    /// removes before it sets it must not come in by the other door.
    pub fn remove(&mut self, name: &FieldName) -> bool {
        let Self { base, arena, entries, seen } = self;
        let twins = *seen & UNDERSCORE != 0 || name.has_underscore();
        let mut any = false;
        // Nearly every field is told apart by its length.
        for e in entries.iter_mut().filter(|e| e.name.len as usize == name.as_str().len() && !e.dropped) {
            let text = text_in(base, arena, e.name);
            let gone = name.is(text) || twins && reads_as(text, name.as_str().as_bytes());
            e.dropped = gone;
            any |= gone;
        }
        any
    }

    /// Removes the other spellings of these names, with `_` for `-` or the other way round, and leaves the names themselves:
    /// for fields that decide something here and go on to an upstream that may read another one in their place. Tells
    /// whether there was one.
    #[inline]
    pub fn remove_twins(&mut self, names: &NameSet) -> bool {
        // Of a name without `_` only one with it is a twin: nearly no request has one.
        let possible = names.has_underscore() || self.seen & UNDERSCORE != 0;
        possible && self.drop_twins(names)
    }

    fn drop_twins(&mut self, names: &NameSet) -> bool {
        !names.is_empty() && self.remove_where(|n, _| names.has_twin(n))
    }

    /// Removes every field of a known name; tells whether there was one.
    #[inline]
    pub fn remove_known(&mut self, known: Known) -> bool {
        self.seen & known.bit() != 0 && self.drop_known(known)
    }

    fn drop_known(&mut self, known: Known) -> bool {
        let mut any = false;
        for e in self.entries.iter_mut().filter(|e| e.known == known && !e.dropped) {
            e.dropped = true;
            any = true;
        }
        any
    }

    /// Whether a field of one of these known names is there: nearly always a bit test.
    #[inline]
    pub fn has_any(&self, known: &[Known]) -> bool {
        let wanted = known.iter().fold(0, |bits, k| bits | k.bit());
        self.seen & wanted != 0 && self.has_one_of(known)
    }

    fn has_one_of(&self, known: &[Known]) -> bool {
        self.live().any(|e| known.contains(&e.known))
    }

    /// Removes every field for which `gone` says so, given name and value; tells whether there was one.
    pub fn remove_where(&mut self, mut gone: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let mut any = false;
        for i in 0..self.entries.len() {
            let e = self.entries[i];
            if !e.dropped && gone(self.text(e.name), self.text(e.value)) {
                self.entries[i].dropped = true;
                any = true;
            }
        }
        any
    }

    /// Writes every field as `name: value CRLF`, without the empty line that ends a head.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        // The run that waits to be copied: of `base`, or of `arena`, whose places have a bit of their own.
        let (mut start, mut end) = (0, 0);
        for e in self.live() {
            if e.clean {
                if e.name.at != end {
                    out.extend_from_slice(self.text(Text { at: start, len: end - start }));
                    start = e.name.at;
                }
                end = e.value.at + e.value.len + 2;
                continue;
            }
            out.extend_from_slice(self.text(Text { at: start, len: end - start }));
            (start, end) = (0, 0);
            out.extend_from_slice(self.text(e.name));
            out.extend_from_slice(b": ");
            out.extend_from_slice(self.text(e.value));
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(self.text(Text { at: start, len: end - start }));
    }

    /// Adds an entry. Which known names there are is kept in one word, so that asking for one that is not there, as almost
    /// every question of the gateway does, is a bit test and no walk.
    /// `underscore`: its name may have a `_`.
    pub(crate) fn add(&mut self, entry: Entry, underscore: bool) {
        self.seen |= entry.known.bit() | if underscore { UNDERSCORE } else { 0 };
        self.entries.push(entry);
    }

    /// The same fields by themselves, with the first bytes of `base`, which they must lie within.
    pub(crate) fn copied(&self, bytes: usize) -> Self {
        Self {
            base: self.base.get(..bytes).unwrap_or(&self.base).to_vec(),
            entries: self.entries.clone(),
            arena: self.arena.clone(),
            seen: self.seen,
        }
    }

    /// The same fields by themselves, with room for some more of so many bytes together.
    #[must_use]
    pub fn with_room(&self, fields: usize, bytes: usize) -> Self {
        let mut entries = Vec::with_capacity(self.entries.len() + fields);
        entries.extend_from_slice(&self.entries);
        let mut arena = Vec::with_capacity(self.arena.len() + bytes);
        arena.extend_from_slice(&self.arena);
        Self { base: self.base.clone(), entries, arena, seen: self.seen }
    }

    /// Forgets all fields and the first bytes of `base`.
    pub(crate) fn forget(&mut self, gone: usize) {
        if gone == self.base.len() {
            self.base.clear();
        } else {
            self.base.drain(..gone);
        }
        self.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.seen = 0;
        self.entries.clear();
        self.arena.clear();
    }

    #[inline]
    pub(crate) fn text(&self, t: Text) -> &[u8] {
        text_in(&self.base, &self.arena, t)
    }

    /// Keeps a text in the arena. The arena is bounded by what filters may set: `VALUE_BYTES` a value.
    pub(crate) fn keep(&mut self, text: &[u8]) -> Text {
        let t = Text { at: self.arena.len() as u32 | ARENA, len: text.len() as u32 };
        self.arena.extend_from_slice(text);
        t
    }

    /// Sets Host to a value that was checked, where the first one stood, or first of all (RFC 9110 §7.2).
    pub(crate) fn set_host(&mut self, value: &[u8]) -> Text {
        let host = self.place(b"Host", value, Known::Host);
        let place = self.entries.iter().position(|e| e.known == Known::Host && !e.dropped);
        self.remove_known(Known::Host);
        match place {
            Some(i) => self.entries[i] = host,
            None => {
                self.seen |= host.known.bit();
                self.entries.insert(0, host);
            }
        }
        host.value
    }

    /// Adds a field whose value was checked.
    pub(crate) fn push(&mut self, name: &FieldName, value: &[u8]) {
        let entry = self.place(name.as_str().as_bytes(), value, name.known());
        self.add(entry, name.has_underscore());
    }

    /// The same with one of the gateway's own, which has no `_`.
    pub(crate) fn push_known(&mut self, name: &'static str, value: &[u8]) {
        let entry = self.place(name.as_bytes(), value, Known::of(name.as_bytes()));
        self.add(entry, false);
    }

    /// Writes a field into the arena.
    fn place(&mut self, name: &[u8], value: &[u8], known: Known) -> Entry {
        self.arena.reserve(name.len() + value.len() + 4);
        let name = self.keep(name);
        self.arena.extend_from_slice(b": ");
        let value = self.keep(value);
        self.arena.extend_from_slice(b"\r\n");
        Entry { name, value, known, clean: true, dropped: false }
    }

    #[inline]
    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| !e.dropped)
    }

    fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.live().find(|e| self.is_named(e, name))
    }

    fn find_name(&self, name: &FieldName) -> Option<&Entry> {
        if self.seen & name.known().bit() == 0 {
            return None;
        }
        self.live().find(|e| self.has_name(e, name))
    }

    #[inline]
    fn has_name(&self, entry: &Entry, name: &FieldName) -> bool {
        entry.name.len as usize == name.as_str().len() && name.is(self.text(entry.name))
    }

    #[inline]
    fn is_named(&self, entry: &Entry, name: &[u8]) -> bool {
        entry.name.len as usize == name.len() && self.text(entry.name).eq_ignore_ascii_case(name)
    }
}

/// A text of one of the two buffers.
#[inline]
fn text_in<'a>(base: &'a [u8], arena: &'a [u8], t: Text) -> &'a [u8] {
    let (buf, at) = if t.at & ARENA == 0 { (base, t.at) } else { (arena, t.at ^ ARENA) };
    buf.get(at as usize..(at as usize) + t.len as usize).unwrap_or_default()
}

impl Entry {
    /// The same behind so much other text, or in the other buffer.
    const fn moved(self, by: u32) -> Self {
        let name = Text { at: self.name.at + by, ..self.name };
        Self { name, value: Text { at: self.value.at + by, ..self.value }, ..self }
    }
}

impl Prepared {
    /// A field whose value begins so.
    ///
    /// # Errors
    /// When the value may not be emitted.
    pub fn new(name: &FieldName, value_begin: &[u8]) -> Result<Self, InvalidValue> {
        Self::default().and(name, value_begin)
    }

    /// The same fields, the last of which has its whole value now, with one more behind them whose value begins so.
    ///
    /// # Errors
    /// When the value may not be emitted.
    pub fn and(mut self, name: &FieldName, value_begin: &[u8]) -> Result<Self, InvalidValue> {
        check(value_begin)?;
        let text = name.as_str().as_bytes();
        let at = self.text.len() as u32;
        self.text.extend([text, b": ", value_begin, LINE_END].concat());
        let value = Text { at: at + text.len() as u32 + 2, len: value_begin.len() as u32 };
        let name_at = Text { at, len: text.len() as u32 };
        self.entries.push(Entry { name: name_at, value, known: name.known(), clean: true, dropped: false });
        self.last = value_begin.len();
        self.seen |= name.known().bit() | if name.has_underscore() { UNDERSCORE } else { 0 };
        Ok(self)
    }
}

/// RFC 9110 §5.5, checked where a value is made, not only where one is parsed.
fn check(value: &[u8]) -> Result<(), InvalidValue> {
    // Without an early end the compiler looks at sixteen bytes at a time; a bad value is the exception.
    let bad = value.iter().fold(false, |bad, &b| bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f));
    if bad || value.len() > VALUE_BYTES { Err(InvalidValue) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::{FieldName, Known, Limits, NameSet, Prepared, Progress, RequestHead, parse_request};

    fn head(text: &str) -> RequestHead {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        assert_eq!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete));
        head
    }

    fn written(head: &RequestHead) -> String {
        let mut out = Vec::new();
        head.headers.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn name(text: &str) -> FieldName {
        FieldName::new(text).unwrap()
    }

    #[test]
    fn untouched_fields_come_out_as_they_went_in() {
        let head = head("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nb:2\r\nC:  3 \t\r\nD:\r\n\r\n");
        assert_eq!(written(&head), "Host: a\r\nA: 1\r\nb: 2\r\nC: 3\r\nD: \r\n");
    }

    #[test]
    fn edits() {
        let mut head = head("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\na: 3\r\n\r\n");
        assert_eq!(head.headers.get_all("a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(head.headers.values(&name("A")).collect::<Vec<_>>(), [b"1", b"3"]);
        head.headers.insert(&name("a"), b"4").unwrap();
        head.headers.append(&name("X"), b"5").unwrap();
        assert!(head.headers.remove(&name("b")));
        assert!(!head.headers.remove(&name("b")));
        assert_eq!(written(&head), "Host: a\r\na: 4\r\nX: 5\r\n");
        assert_eq!(head.headers.get_known(Known::Host), Some(&b"a"[..]));
        assert!(head.headers.remove_known(Known::Host));
        assert_eq!(head.headers.len(), 2);
    }

    #[test]
    fn names_that_servers_read_as_one() {
        const SENT: &str =
            "GET / HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nx_key: 2\r\nX-Keys: 3\r\nmy_id: 4\r\nMy-Id: 5\r\n\r\n";
        let mut whole = head(SENT);
        assert!(whole.headers.remove(&name("x-key")));
        assert!(whole.headers.remove(&name("my_id")));
        assert_eq!(written(&whole), "Host: a\r\nX-Keys: 3\r\n");
        let mut twins = head(SENT);
        assert!(twins.headers.remove_twins(&NameSet::new([name("x-key"), name("my_id")])));
        assert!(!twins.headers.remove_twins(&NameSet::new([name("x-keys")])));
        assert_eq!(written(&twins), "Host: a\r\nX-Key: 1\r\nX-Keys: 3\r\nmy_id: 4\r\n");
    }

    #[test]
    fn prepared_fields_are_as_if_appended() {
        let mut head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let left = Prepared::new(&name("Left"), b"n=").unwrap();
        head.headers.append_prepared(&left, b"12").unwrap();
        head.headers.append_prepared(&left, b"").unwrap();
        head.headers.append_prepared(&Prepared::new(&name("Expect"), b"").unwrap(), b"x").unwrap();
        assert_eq!(written(&head), "Host: a\r\nLeft: n=12\r\nLeft: n=\r\nExpect: x\r\n");
        assert_eq!(head.headers.get_known(Known::Expect), Some(&b"x"[..]));
        let several = Prepared::new(&name("One"), b"1").unwrap().and(&name("My_Date"), b"").unwrap();
        let several = several.and(&name("Date"), b"d").unwrap();
        head.headers.append_prepared(&several, b"").unwrap();
        head.headers.append_prepared(&several, b"ay").unwrap();
        assert_eq!(head.headers.values(&name("date")).collect::<Vec<_>>(), [&b"d"[..], b"day"]);
        assert!(head.headers.remove_known(Known::Date));
        assert!(head.headers.remove_twins(&NameSet::new([name("my-date")])));
        assert_eq!(head.headers.get(&name("one")), Some(&b"1"[..]));
        assert!(head.headers.remove(&name("One")));
        assert!(head.headers.remove(&name("left")));
        assert_eq!(written(&head), "Host: a\r\nExpect: x\r\n");
        assert!(Prepared::new(&name("x"), b"a\r\nb").is_err());
        assert!(head.headers.append_prepared(&left, b"\n").is_err());
        assert!(
            head.headers.append_prepared(&left, &[b'x'; 64 * 1024 - 1]).is_err(),
            "two bytes are there already"
        );
        assert!(left.clone().and(&name("x"), b"\0").is_err());
        assert_eq!(written(&head), "Host: a\r\nExpect: x\r\n");
    }

    #[test]
    fn values_that_would_split_a_message_are_refused() {
        let mut head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        for bad in [&b"a\r\nb"[..], b"\n", b"\0", b"\x7f"] {
            assert!(head.headers.insert(&name("x"), bad).is_err(), "{bad:?}");
        }
        assert_eq!(written(&head), "Host: a\r\n");
    }
}
