//! The fields of one message: ranges into the received bytes, and an arena for added ones. `value` says which values
//! they may have, `prepared` makes some in advance.

mod prepared;
mod value;

pub use prepared::{Numbered, Prepared};
pub use value::InvalidValue;
pub(crate) use value::VALUE_BYTES;

use crate::name::{FieldName, Known, NameSet, reads_as, same_name, same_text};
use value::check;

/// The fields of one message, in the order received.
///
/// A received field costs 16 bytes in addition to its text, which is only copied when it is written out. Fields that
/// are set or added live in an arena, which is emptied but not freed between messages. Consecutive fields in either
/// buffer are written in one copy.
///
/// Invariant: every range lies within `base` or `arena`; neither shrinks while entries point into it.
#[derive(Debug, Default)]
pub struct Fields {
    pub(crate) base: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    arena: Vec<u8>,
    /// A bit per known name among the entries, including dropped ones; also [`UNDERSCORE`].
    seen: u32,
    /// A bit per known name of which an entry may have been dropped. A name with a bit in `seen` and none here is
    /// present.
    pub(crate) gone: u32,
    /// So many of the first entries are consecutive lines of `base`, all of them clean and none dropped: nearly always
    /// all that were received, or all before the first that a filter removed. They are written without a look at each.
    pub(crate) lines: u32,
}

/// Some name may contain a `_`. No known name has this bit.
const UNDERSCORE: u32 = 1 << 31;

/// A range of `base`, or of `arena` if `ARENA` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

const ARENA: u32 = 1 << 31;

/// What debug builds overwrite the bytes of a message with that is over. A range that outlives its message then shows
/// this instead of another user's bytes, and tests notice.
const POISON: u8 = 0xdd;

/// Bytes around a name and a value in a line: `: ` and CRLF.
const FRAME_BYTES: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Text,
    pub(crate) value: Text,
    pub(crate) known: Known,
    /// The buffer contains it in exactly the form `name: value CRLF`, so it can be copied together with its
    /// neighbours.
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

    /// The first field with a known name. A bit test if there is none, else a comparison of one byte per field.
    #[inline]
    pub fn get_known(&self, known: Known) -> Option<&[u8]> {
        if self.seen & known.bit() == 0 { None } else { self.find_known(known) }
    }

    /// Whether there is a field with a known name: a bit test, unless one of that name was removed.
    #[inline]
    pub fn has_known(&self, known: Known) -> bool {
        let bit = known.bit();
        self.seen & bit != 0 && (self.gone & bit == 0 || self.find_known(known).is_some())
    }

    fn find_known(&self, known: Known) -> Option<&[u8]> {
        self.live().find(|e| e.known == known).map(|e| self.text(e.value))
    }

    /// All values of that name, in order.
    #[inline]
    pub fn get_all<'a>(&'a self, name: &(impl AsRef<[u8]> + ?Sized)) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_ref();
        self.entries
            .iter()
            .filter(|e| e.name.len as usize == name.len() && self.is_live(e, name))
            .map(|e| self.text(e.value))
    }

    /// Whether a field has this value: an absent one is empty, a repeated one is its values joined by `, ` (RFC 9110 §5.2).
    ///
    /// For conditions, which ask this most: a condition over one of 12 fields takes 286 instructions, with
    /// [`get_all`](Self::get_all) it took 353 (benches/when.rs of weir-filter).
    pub fn is(&self, name: &[u8], value: &[u8]) -> bool {
        let length = name.len() as u32; // of a name, so that no bits are lost
        let mut found = None;
        for e in &self.entries {
            if e.name.len == length && self.is_live(e, name) && found.replace(e).is_some() {
                return self.is_joined(name, value);
            }
        }
        found.map_or(value.is_empty(), |e: &Entry| same_text(self.text(e.value), value))
    }

    #[cold]
    fn is_joined(&self, name: &[u8], value: &[u8]) -> bool {
        let mut rest = Some(value);
        for (at, part) in self.get_all(name).enumerate() {
            let begun = rest.and_then(|rest| if at == 0 { Some(rest) } else { rest.strip_prefix(b", ") });
            rest = begun.and_then(|rest| rest.strip_prefix(part));
        }
        rest == Some(b"")
    }

    /// Whether the received message had a field of that name, even if it was removed since.
    pub fn was_received(&self, name: &str) -> bool {
        self.entries.iter().any(|e| e.name.at & ARENA == 0 && self.is_named(e, name.as_bytes()))
    }

    /// Whether the Content-Type is this media type, or one that starts with it.
    pub fn is_media(&self, media: &str) -> bool {
        let found = self.get_str("content-type").and_then(|text| text.get(..media.len()));
        found.is_some_and(|text| same_name(text, media.as_bytes()))
    }

    /// Whether a field of that name is there.
    pub fn contains(&self, name: &FieldName) -> bool {
        self.find_name(name).is_some()
    }

    /// Like `get_all`, for a name that was looked up in advance, which costs less.
    pub fn values<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        self.live().filter(move |e| self.has_name(e, name)).map(|e| self.text(e.value))
    }

    /// All fields in order, as `(name, value)`.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.live().map(|e| (self.text(e.name), self.text(e.value)))
    }

    /// The number of fields that would be written.
    pub fn len(&self) -> usize {
        self.live().count()
    }

    /// Whether no field would be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a field and removes all others of that name.
    ///
    /// # Errors
    /// When the value must not be emitted. The fields stay unchanged.
    pub fn insert(&mut self, name: &FieldName, value: &[u8]) -> Result<(), InvalidValue> {
        check(value)?;
        self.remove(name);
        self.push(name, value);
        Ok(())
    }

    /// Adds a field beside others of that name.
    ///
    /// # Errors
    /// When the value must not be emitted. The fields stay unchanged.
    pub fn append(&mut self, name: &FieldName, value: &[u8]) -> Result<(), InvalidValue> {
        check(value)?;
        self.push(name, value);
        Ok(())
    }

    /// Removes all fields of that name; returns whether there was one.
    ///
    /// Also removes spellings with `_` for `-` or vice versa: WSGI, CGI and PHP map both to one variable. A field
    /// that a filter removes before setting it must not slip in under the other spelling.
    pub fn remove(&mut self, name: &FieldName) -> bool {
        let twins = self.may_have_twins(name);
        let mut any = false;
        for at in 0..self.entries.len() {
            let e = self.entries[at];
            // The length rules out nearly every field.
            if e.name.len as usize != name.as_str().len() || e.dropped {
                continue;
            }
            let text = self.text(e.name);
            if name.is(text) || twins && reads_as(text, name.as_str().as_bytes()) {
                self.drop_at(at);
                any = true;
            }
        }
        any
    }

    /// Calls `accept` with the value of the only field of that name. If `accept` returns something, removes the field
    /// as [`remove`](Self::remove) does. `None` if `accept` returns `None`, or if there is no such field or more than
    /// one.
    #[inline]
    pub fn take_sole<T>(&mut self, name: &FieldName, accept: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let at = self.sole(name)?;
        let accepted = accept(self.text(self.entries[at].value))?;
        if self.may_have_twins(name) {
            self.remove(name);
        } else {
            self.drop_at(at);
        }
        Some(accepted)
    }

    /// The place of the only field of that name.
    #[inline]
    fn sole(&self, name: &FieldName) -> Option<usize> {
        let has_name = |e: &Entry| self.has_name(e, name) && !e.dropped;
        let at = self.entries.iter().position(has_name)?;
        let is_sole = !self.entries[at + 1..].iter().any(has_name);
        is_sole.then_some(at)
    }

    /// Whether a field may have another spelling of that name, with `_` for `-` or vice versa.
    #[inline]
    const fn may_have_twins(&self, name: &FieldName) -> bool {
        self.seen & UNDERSCORE != 0 || name.has_underscore()
    }

    #[inline]
    fn drop_at(&mut self, at: usize) {
        let e = &mut self.entries[at];
        e.dropped = true;
        self.gone |= e.known.bit();
        self.lines = self.lines.min(at as u32);
    }

    /// Removes the other spellings of these names (`_` for `-` or vice versa), but not the names themselves. For
    /// fields that decide something here and are forwarded to an upstream that might read the other spelling. Returns
    /// whether there was one.
    #[inline]
    pub fn remove_twins(&mut self, names: &NameSet) -> bool {
        // For a name without `_`, only a name with `_` is an alternative spelling, and nearly no request has one.
        let possible = names.has_underscore() || self.seen & UNDERSCORE != 0;
        possible && self.drop_twins(names)
    }

    fn drop_twins(&mut self, names: &NameSet) -> bool {
        !names.is_empty() && self.remove_where(|n, _| names.has_twin(n))
    }

    /// Removes all fields of a known name; returns whether there was one.
    #[inline]
    pub fn remove_known(&mut self, known: Known) -> bool {
        self.seen & known.bit() != 0 && self.drop_known(known)
    }

    fn drop_known(&mut self, known: Known) -> bool {
        let mut any = false;
        for at in 0..self.entries.len() {
            if self.entries[at].known == known && !self.entries[at].dropped {
                self.drop_at(at);
                any = true;
            }
        }
        any
    }

    /// Whether there is a field with one of these known names: nearly always a bit test.
    #[inline]
    pub fn has_any(&self, known: &[Known]) -> bool {
        let wanted = known.iter().fold(0, |bits, k| bits | k.bit());
        self.seen & wanted != 0 && self.has_one_of(known)
    }

    fn has_one_of(&self, known: &[Known]) -> bool {
        self.live().any(|e| known.contains(&e.known))
    }

    /// Removes all fields for which `gone` returns true, given name and value; returns whether there was one.
    pub fn remove_where(&mut self, mut gone: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let mut any = false;
        for i in 0..self.entries.len() {
            let e = self.entries[i];
            if !e.dropped && gone(self.text(e.name), self.text(e.value)) {
                self.drop_at(i);
                any = true;
            }
        }
        any
    }

    /// Writes every field as `name: value CRLF`, without the empty line that ends a head.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.write_behind(Text::default(), out);
    }

    /// Writes a range of the buffer and then every field, in one copy as far as they are neighbours.
    pub(crate) fn write_behind(&self, first: Text, out: &mut Vec<u8>) {
        // The run to copy next, in `base` or in `arena`; offsets into the arena carry a bit of their own.
        let (mut start, mut end) = (first.at, first.at + first.len);
        let mut entries = self.entries.as_slice();
        if let Some((lines, others)) = entries.split_at_checked(self.lines as usize)
            && let (Some(begin), Some(last)) = (lines.first(), lines.last())
            && (first.len == 0 || begin.name.at == end)
        {
            start = if first.len == 0 { begin.name.at } else { start };
            end = last.value.at + last.value.len + 2;
            entries = others;
        }
        for e in entries.iter().filter(|e| !e.dropped) {
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

    /// Adds an entry. One word records which known names are present. Nearly every lookup in the gateway is for an
    /// absent name, so it is a bit test instead of a search. `underscore`: its name may contain a `_`.
    pub(crate) fn add(&mut self, entry: Entry, underscore: bool) {
        self.seen |= entry.known.bit() | if underscore { UNDERSCORE } else { 0 };
        self.entries.push(entry);
    }

    /// A copy of these fields with the first `bytes` of `base`, which must contain them.
    pub(crate) fn copied(&self, bytes: usize) -> Self {
        Self {
            base: self.base.get(..bytes).unwrap_or(&self.base).to_vec(),
            entries: self.entries.clone(),
            arena: self.arena.clone(),
            seen: self.seen,
            gone: self.gone,
            lines: self.lines,
        }
    }

    /// Makes these the fields of `known`, whose `base` begins with the same bytes.
    pub(crate) fn take_over(&mut self, known: &Self) {
        self.clear();
        self.entries.extend_from_slice(&known.entries);
        self.arena.extend_from_slice(&known.arena);
        (self.seen, self.gone, self.lines) = (known.seen, known.gone, known.lines);
    }

    /// A copy of these fields with room for `fields` more, of `bytes` in total.
    #[must_use]
    pub fn with_room(&self, fields: usize, bytes: usize) -> Self {
        let mut entries = Vec::with_capacity(self.entries.len() + fields);
        entries.extend_from_slice(&self.entries);
        let mut arena = Vec::with_capacity(self.arena.len() + bytes);
        arena.extend_from_slice(&self.arena);
        let Self { seen, gone, lines, .. } = *self;
        Self { base: self.base.clone(), entries, arena, seen, gone, lines }
    }

    /// A copy that holds nothing but the present fields. None of them [was received](Fields::was_received).
    #[must_use]
    pub fn to_owned_fields(&self) -> Self {
        let bytes = self.live().map(|e| (e.name.len + e.value.len) as usize + FRAME_BYTES).sum();
        let mut copy = Self {
            base: Vec::new(),
            entries: Vec::with_capacity(self.entries.len()),
            arena: Vec::with_capacity(bytes),
            seen: self.seen & UNDERSCORE,
            gone: 0,
            lines: 0,
        };
        for e in self.live() {
            let entry = copy.place(self.text(e.name), self.text(e.value), e.known);
            copy.add(entry, false);
        }
        copy
    }

    /// Removes all fields and the first `gone` bytes of `base`.
    pub(crate) fn forget(&mut self, gone: usize) {
        if cfg!(debug_assertions) {
            self.base[..gone].fill(POISON);
            self.arena.fill(POISON);
        }
        self.clear();
        if gone == self.base.len() {
            self.base.clear();
        } else {
            self.shift(gone);
        }
    }

    /// Moves what follows the first `gone` bytes to the front. Not inlined, and called last: otherwise messages without
    /// pipelined bytes would save registers for this call.
    #[inline(never)]
    fn shift(&mut self, gone: usize) {
        self.base.drain(..gone);
    }

    pub(crate) fn clear(&mut self) {
        (self.seen, self.gone, self.lines) = (0, 0, 0);
        self.entries.clear();
        self.arena.clear();
    }

    #[inline]
    pub(crate) fn text(&self, t: Text) -> &[u8] {
        text_in(&self.base, &self.arena, t)
    }

    /// Stores a text in the arena. The values that filters may set bound its size: `VALUE_BYTES` each.
    pub(crate) fn keep(&mut self, text: &[u8]) -> Text {
        let t = Text { at: self.arena.len() as u32 | ARENA, len: text.len() as u32 };
        self.arena.extend_from_slice(text);
        t
    }

    /// Sets Host to an already validated value, in the position of the first one, else first of all (RFC 9110 §7.2).
    pub(crate) fn set_host(&mut self, value: &[u8]) -> Text {
        let host = self.place(b"Host", value, Known::Host);
        let place = self.entries.iter().position(|e| e.known == Known::Host && !e.dropped);
        self.remove_known(Known::Host);
        self.lines = 0;
        match place {
            Some(i) => self.entries[i] = host,
            None => {
                self.seen |= host.known.bit();
                self.entries.insert(0, host);
            }
        }
        host.value
    }

    /// Adds a field whose value is already validated.
    pub(crate) fn push(&mut self, name: &FieldName, value: &[u8]) {
        let entry = self.place(name.as_str().as_bytes(), value, name.known());
        self.add(entry, name.has_underscore());
    }

    /// Like `push`, for a name from the gateway itself, which contains no `_`.
    pub(crate) fn push_known(&mut self, name: &'static str, value: &[u8]) {
        let entry = self.place(name.as_bytes(), value, Known::of(name.as_bytes()));
        self.add(entry, false);
    }

    /// Writes a field into the arena.
    fn place(&mut self, name: &[u8], value: &[u8], known: Known) -> Entry {
        self.arena.reserve(name.len() + value.len() + FRAME_BYTES);
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

    /// Compares whole words where that is possible, for the sake of fields that are there.
    fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name.len as usize == name.len() && self.is_live(e, name))
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

    /// Whether an entry of that name's length has that name and was not removed. Not inlined, so that the loop around it
    /// has its registers: 6 instructions per field.
    #[inline(never)]
    fn is_live(&self, entry: &Entry, name: &[u8]) -> bool {
        !entry.dropped && same_name(self.text(entry.name), name)
    }

    #[inline]
    fn is_named(&self, entry: &Entry, name: &[u8]) -> bool {
        entry.name.len as usize == name.len() && same_name(self.text(entry.name), name)
    }
}

/// The text of a range in one of the two buffers.
#[inline]
fn text_in<'a>(base: &'a [u8], arena: &'a [u8], t: Text) -> &'a [u8] {
    let (buf, at) = if t.at & ARENA == 0 { (base, t.at) } else { (arena, t.at ^ ARENA) };
    buf.get(at as usize..(at as usize) + t.len as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests;
