//! Cache-Control (RFC 9111 §5.2) of requests and answers, and CDN-Cache-Control (RFC 9213).
//!
//! An ambiguous directive is read in the way that keeps less: of two lifetimes the shorter, and none if it is not a
//! number.

use weir_filter::sfv::{Bare, Member, dictionary};
use weir_h1::Fields;

/// Directives for caches, except those that mean nothing to a shared cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) max_age: Option<u32>,
    pub(super) max_stale: Option<u32>,
    pub(super) min_fresh: Option<u32>,
    pub(super) must_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) no_cache: bool,
    pub(super) no_store: bool,
    pub(super) only_if_cached: bool,
    pub(super) private: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) public: bool,
    pub(super) s_maxage: Option<u32>,
    pub(super) stale_if_error: Option<u32>,
    pub(super) stale_while_revalidate: Option<u32>,
}

/// The longest lifetime in seconds; larger numbers mean this (RFC 9111 §1.2.2).
const MOST_SECONDS: u32 = 1 << 31;

impl Control {
    /// Parses `Cache-Control`, all its lines.
    pub(super) fn of(fields: &Fields) -> Self {
        let mut control = Self::default();
        for line in fields.get_all("cache-control") {
            each_directive(line, |name, value| control.take(name, value));
        }
        control
    }

    /// Parses `CDN-Cache-Control`, a dictionary (RFC 9213 §2.1). `None` if it is missing or malformed; then
    /// Cache-Control applies.
    pub(super) fn targeted(fields: &Fields) -> Option<Self> {
        let mut lines = fields.get_all("cdn-cache-control").peekable();
        lines.peek()?;
        let text = lines.collect::<Vec<_>>().join(&b", "[..]);
        let members = dictionary(&text).filter(|members| !members.is_empty())?;
        let mut control = Self::default();
        for (name, member) in &members {
            let Member::Item(item) = member else { continue };
            match &item.value {
                Bare::Boolean(true) => control.take(name.as_bytes(), None),
                Bare::Integer(number) => control.take(name.as_bytes(), Some(number.to_string().as_bytes())),
                _ => {} // a value of the wrong type: ignored
            }
        }
        Some(control)
    }

    fn take(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let lifetime = |before: Option<u32>| {
            let said = value.and_then(seconds).unwrap_or(0);
            Some(before.map_or(said, |before| before.min(said)))
        };
        match name.len() {
            6 if is("public") => self.public = true,
            // With field names they forbid less; a cache may ignore the names (RFC 9111 §5.2.2.4, §5.2.2.7).
            7 if is("private") => self.private = true,
            7 if is("max-age") => self.max_age = lifetime(self.max_age),
            8 if is("no-cache") => self.no_cache = true,
            8 if is("no-store") => self.no_store = true,
            8 if is("s-maxage") => self.s_maxage = lifetime(self.s_maxage),
            9 if is("max-stale") => {
                self.max_stale = Some(value.map_or(MOST_SECONDS, |v| seconds(v).unwrap_or(0)))
            }
            9 if is("min-fresh") => self.min_fresh = value.and_then(seconds),
            14 if is("only-if-cached") => self.only_if_cached = true,
            14 if is("stale-if-error") => self.stale_if_error = lifetime(self.stale_if_error),
            15 if is("must-revalidate") => self.must_revalidate = true,
            15 if is("must-understand") => self.must_understand = true,
            16 if is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if is("stale-while-revalidate") => {
                self.stale_while_revalidate = lifetime(self.stale_while_revalidate);
            }
            _ => {}
        }
    }
}

/// Digits, quoted or not; a number that does not fit is the maximum.
fn seconds(value: &[u8]) -> Option<u32> {
    let digits = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    number(digits)
}

/// A number of seconds (RFC 9111 §1.2.2).
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sum = digits
        .iter()
        .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    Some(sum.min(MOST_SECONDS))
}

/// Calls `take` with name and value of each directive. A quoted comma does not separate.
fn each_directive(line: &[u8], mut take: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut rest = line;
    while !rest.is_empty() {
        let end = end_of_member(rest);
        let (member, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        rest = behind.get(1..).unwrap_or_default();
        let member = member.trim_ascii();
        match member.iter().position(|&b| b == b'=') {
            // A space before `=` is not part of the name. The meaning is then doubtful, so the value is ignored.
            Some(at) => {
                let (name, value) =
                    (member.get(..at).unwrap_or_default(), member.get(at + 1..).unwrap_or_default());
                let spaced = name.trim_ascii_end();
                take(spaced, Some(if spaced.len() == name.len() { value } else { b"" }));
            }
            None if member.is_empty() => {}
            None => take(member, None),
        }
    }
}

/// The position of the comma after a list's first member, or the text's length. An unclosed quote quotes nothing: it
/// must not hide a later `no-store`.
pub(super) fn end_of_member(text: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    let mut within = None;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => (quoted, within) = (!quoted, None),
            b',' if !quoted => return at,
            b',' => within = within.or(Some(at)),
            _ => {}
        }
    }
    within.filter(|_| quoted).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::super::testing::fields;
    use super::*;

    fn control(text: &str) -> Control {
        Control::of(&fields(&[("Cache-Control", text)]))
    }

    #[test]
    fn lifetimes() {
        for (text, max_age) in [
            ("max-age=60", Some(60)),
            ("MaX-aGe=60", Some(60)),
            ("max-age=0", Some(0)),
            ("max-age=003600", Some(3600)),
            ("max-age=2147483649", Some(1 << 31)),
            ("max-age=99999999999999999999", Some(1 << 31)),
            ("max-age=\"60\"", Some(60)),
            ("max-age='60'", Some(0)),
            ("max-age=-60", Some(0)),
            ("max-age=60.0", Some(0)),
            ("max-age=a60", Some(0)),
            ("max-age=60a", Some(0)),
            ("max-age=", Some(0)),
            ("max-age", Some(0)),
            ("max-age =60", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age=60, max-age=1", Some(1)),
            ("max-age=1, max-age=60", Some(1)),
            ("x=\"max-age=60\", max-age=1", Some(1)),
            ("x=\"a\\\", max-age=60\", max-age=1", Some(1)),
            ("x=\"max-age=60", None),
            ("max-age=9, x=\"a, max-age=1", Some(1)),
            ("max-age=9, x=\"a\\\", max-age=1", Some(1)),
            ("max-age=9, x=\"a\", y=\"b, max-age=1", Some(1)),
            (",, ,max-age=60,", Some(60)),
            ("amax-age=60", None),
            ("", None),
        ] {
            assert_eq!(control(text).max_age, max_age, "{text}");
        }
        let two = fields(&[("Cache-Control", "max-age=60"), ("cache-control", "s-maxage=5")]);
        assert_eq!((Control::of(&two).max_age, Control::of(&two).s_maxage), (Some(60), Some(5)));
    }

    #[test]
    fn words() {
        let all = control(
            "public, private=\"x, y\", no-cache=x, No-Store, must-revalidate, proxy-revalidate, must-understand, \
             only-if-cached, max-stale, min-fresh=4, stale-while-revalidate=5, stale-if-error=6",
        );
        let expected = Control {
            max_stale: Some(1 << 31),
            min_fresh: Some(4),
            must_revalidate: true,
            must_understand: true,
            no_cache: true,
            no_store: true,
            only_if_cached: true,
            private: true,
            proxy_revalidate: true,
            public: true,
            stale_if_error: Some(6),
            stale_while_revalidate: Some(5),
            ..Control::default()
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn what_is_meant_for_shared_caches() {
        for (text, expected) in [
            ("max-age=60", Some((Some(60), false))),
            ("max-age=60, no-store", Some((Some(60), true))),
            ("max-age=60, no-store=?0", Some((Some(60), false))),
            ("max-age=\"60\"", Some((None, false))),
            ("max-age=-5", Some((Some(0), false))),
            ("max-age 60", None),
            ("Max-Age=60", None),
            ("", None),
        ] {
            let read = Control::targeted(&fields(&[("CDN-Cache-Control", text)]));
            assert_eq!(read.map(|c| (c.max_age, c.no_store)), expected, "{text}");
        }
        assert_eq!(Control::targeted(&fields(&[("Cache-Control", "max-age=1")])), None);
    }

    /// A prohibition is found whatever surrounds it, and no text lengthens a lifetime.
    #[test]
    fn nothing_hides_a_no() {
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let parts = [
                    "max-age", "=", "9", ",", " ", "no-store", "s-maxage", "x", "'", "-", ";", "\t",
                    "private", "x=\"a",
                ];
                text.push_str(parts[(state >> 33) as usize % parts.len()]);
            }
            let (alone, with) = (control(&text), control(&format!("{text}, no-store, max-age=1")));
            assert!(with.no_store && with.max_age.is_some_and(|seconds| seconds <= 1), "{text}");
            assert_eq!(with.private, alone.private, "{text}");
            let before = control(&format!("max-age=1, {text}"));
            assert!(before.max_age.is_some_and(|seconds| seconds <= 1), "{text}");
        }
    }
}
