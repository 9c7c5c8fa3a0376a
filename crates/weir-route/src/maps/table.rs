//! The entries of one map, and how a value is found among them.
//!
//! ```text
//!   text ──▶ exact (hash) ──▶ longest prefix (sorted, each with its parent) ──▶ regexes (one set) ──▶ default
//!   address ──▶ the smallest network (disjoint ranges) ──▶ default
//! ```
//!
//! Cost of a lookup: one hash of the text, and two binary searches at most, whatever the number of entries. Regexes run
//! only if nothing else matches; all of them in one pass over the text.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use regex::bytes::{RegexSet, RegexSetBuilder};
use weir_expr::limits::COST_BYTES;
use weir_expr::{Networks, Value};

use super::super::pattern::{PatternError, compile_regex};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Most regular expressions in one map.
pub const REGEXES: usize = 1_000;

/// Memory limit of a map's regular expressions together, compiled, in bytes.
const REGEX_SET_BYTES: usize = 10 << 20;

/// What the keys of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Networks and addresses.
    Addresses,
    /// Texts, prefixes and regular expressions.
    Texts,
}

/// A mistake in an entry, by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// Its index in the list of entries; none if the mistake is in all of them.
    pub entry: Option<usize>,
    /// The index of an earlier entry with the same key.
    pub earlier: Option<usize>,
    /// What is wrong.
    pub message: Cow<'static, str>,
    /// What to do.
    pub hint: Option<Cow<'static, str>>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Each value once.
    values: Vec<Box<[u8]>>,
    exact: Map<Box<[u8]>, Number>,
    prefixes: Prefixes,
    v4: Ranges,
    v6: Ranges,
    regexes: Option<Regexes>,
    default: Option<Number>,
}

/// The index of a value.
type Number = u32;

/// Prefixes of texts, sorted.
#[derive(Debug, Default)]
struct Prefixes(Box<[Prefix]>);

#[derive(Debug)]
struct Prefix {
    text: Box<[u8]>,
    value: Number,
    /// The longest other prefix with which this one begins, or [`NONE`].
    parent: u32,
    /// An ancestor further up, so that a search takes the logarithm of their number (Myers, *An applicative
    /// random-access stack*, 1983). Among 5,000 nested prefixes it takes 0.28 µs, one by one 8.9 µs (benches/when.rs of
    /// weir-filter).
    jump: u32,
    /// How many prefixes it begins with, itself included.
    depth: u32,
}

/// No prefix.
const NONE: u32 = u32::MAX;

/// Networks of one family as disjoint ranges of addresses: where each begins, and its value.
#[derive(Debug, Default)]
struct Ranges(Box<[(u128, Option<Number>)]>);

#[derive(Debug)]
struct Regexes {
    set: RegexSet,
    values: Box<[Number]>,
}

/// What a key means.
#[derive(PartialEq, Eq, Hash)]
enum Key<'k> {
    Exact(&'k str),
    Network(IpAddr, IpAddr),
    Prefix(&'k str),
    Regex(&'k str),
}

/// Values in the order they were met.
#[derive(Default)]
struct Interner<'v> {
    values: Vec<Box<[u8]>>,
    numbers: HashMap<&'v str, Number>,
}

// === impl Table ===

impl Table {
    /// Compiles the entries, keys and values, and the value for all else.
    pub(super) fn build(
        keys: Keys,
        entries: &[(&str, &str)],
        default: Option<&str>,
    ) -> Result<Self, Vec<EntryError>> {
        let mut errors = Vec::new();
        let mut seen = HashMap::with_capacity(entries.len());
        let mut interner = Interner::default();
        let mut table = Self::default();
        let (mut prefixes, mut regexes) = (Vec::new(), Vec::new());
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (index, &(written, value)) in entries.iter().enumerate() {
            let key = match Key::parse(keys, written) {
                Ok(key) => key,
                Err(error) => {
                    errors.push(EntryError { entry: Some(index), ..error });
                    continue;
                }
            };
            let value = interner.number(value);
            match key {
                Key::Exact(text) => drop(table.exact.insert(text.as_bytes().into(), value)),
                Key::Network(IpAddr::V4(first), IpAddr::V4(last)) => {
                    v4.push((u128::from(first.to_bits()), u128::from(last.to_bits()), value));
                }
                Key::Network(IpAddr::V6(first), IpAddr::V6(last)) => {
                    v6.push((first.to_bits(), last.to_bits(), value));
                }
                Key::Network(..) => {}
                Key::Prefix(text) => prefixes.push((text.as_bytes(), value)),
                Key::Regex(text) => {
                    if let Err(PatternError { message, hint }) = compile_regex(text) {
                        errors.push(EntryError {
                            entry: Some(index),
                            hint: Some(hint.into()),
                            ..EntryError::new(message)
                        });
                    }
                    regexes.push((text, value));
                }
            }
            if let Some(&earlier) = seen.get(&key) {
                let error = EntryError::new("this key occurs twice").hint("remove one of the two");
                errors.push(EntryError { entry: Some(index), earlier: Some(earlier), ..error });
                continue;
            }
            seen.insert(key, index);
        }
        if regexes.len() > REGEXES {
            let message =
                format!("it has {} regular expressions, and at most {REGEXES} are allowed", regexes.len());
            errors
                .push(EntryError::new(message).hint("write what begins alike as a prefix, such as \"be*\""));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        table.default = default.map(|value| interner.number(value));
        table.prefixes = Prefixes::new(prefixes);
        (table.v4, table.v6) = (Ranges::new(v4), Ranges::new(v6));
        table.regexes = Regexes::new(&regexes)?;
        table.values = interner.values;
        Ok(table)
    }

    /// The value of what `of` came to.
    pub(super) fn find(&self, of: &Value<'_>) -> Option<&[u8]> {
        let found = match of {
            Value::Address(address) => match address.to_canonical() {
                IpAddr::V4(address) => self.v4.find(address.to_bits().into()),
                IpAddr::V6(address) => self.v6.find(address.to_bits()),
            },
            Value::Bytes(text) | Value::Text(text) => self.find_text(text),
            other => {
                let mut text = Vec::new();
                other.write(&mut text);
                self.find_text(&text)
            }
        };
        let number = found.or(self.default)?;
        self.values.get(number as usize).map(|value| &**value)
    }

    fn find_text(&self, text: &[u8]) -> Option<Number> {
        let exact = self.exact.get(text).copied();
        exact
            .or_else(|| self.prefixes.find(text))
            .or_else(|| self.regexes.as_ref().and_then(|regexes| regexes.find(text)))
    }

    /// The length of the longest value.
    pub(super) fn longest(&self) -> u64 {
        self.values.iter().map(|value| value.len() as u64).max().unwrap_or_default()
    }

    /// The most steps of a lookup of a text of this length.
    pub(super) fn cost(&self, longest: u64) -> u64 {
        let passes = 2 + self.regexes.as_ref().map_or(0, |regexes| regexes.values.len() as u64);
        2 + (longest / COST_BYTES).saturating_mul(passes)
    }
}

// === impl Key ===

impl<'k> Key<'k> {
    fn parse(keys: Keys, text: &'k str) -> Result<Self, EntryError> {
        match keys {
            Keys::Addresses => {
                let (first, last) = Networks::range(text).ok_or_else(|| {
                    EntryError::new("this is no address and no network, and `of` is an address")
                        .hint("write 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32; for texts, write of: 'string(…)'")
                })?;
                Ok(Self::Network(first, last))
            }
            Keys::Texts => Ok(match (text.strip_prefix('~'), text.strip_suffix('*')) {
                (Some(regex), _) => Self::Regex(regex),
                (None, Some(prefix)) => Self::Prefix(prefix),
                (None, None) => Self::Exact(text),
            }),
        }
    }
}

// === impl Interner ===

impl<'v> Interner<'v> {
    fn number(&mut self, value: &'v str) -> Number {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value.as_bytes().into());
            u32::try_from(self.values.len() - 1).expect("a file of a map holds fewer than 2^32 bytes")
        })
    }
}

// === impl Prefixes ===

impl Prefixes {
    fn new(mut written: Vec<(&[u8], Number)>) -> Self {
        written.sort_unstable();
        let mut prefixes: Vec<Prefix> = Vec::with_capacity(written.len());
        for (text, value) in written {
            let at = |index: u32| prefixes.get(index as usize);
            // The parent is the one before, or a parent of it.
            let mut parent = (prefixes.len() as u32).wrapping_sub(1); // a file has fewer than 2^32 bytes
            while let Some(before) = at(parent).filter(|prefix| !text.starts_with(&prefix.text)) {
                parent = before.parent;
            }
            let depth = |index| at(index).map_or(0, |prefix| prefix.depth);
            let jump_of = |index| at(index).map_or(NONE, |prefix| prefix.jump);
            let (first, second) = (jump_of(parent), jump_of(jump_of(parent)));
            // Two jumps of one length become one.
            let is_pair = first != NONE && depth(parent) - depth(first) == depth(first) - depth(second);
            let jump = if is_pair { second } else { parent };
            prefixes.push(Prefix { text: text.into(), value, parent, jump, depth: depth(parent) + 1 });
        }
        Self(prefixes.into())
    }

    /// The value of the longest prefix of the text.
    fn find(&self, text: &[u8]) -> Option<Number> {
        // Whatever stands in the order between a prefix of the text and the text begins with that prefix. So the last
        // one before the text, or one of its parents, is the longest.
        let last = self.0.partition_point(|prefix| look(*prefix.text <= *text)).checked_sub(1)?;
        let mut prefix = self.0.get(last)?;
        let common = prefix.text.iter().zip(text).take_while(|(a, b)| a == b).count();
        let is_longer = |prefix: &&Prefix| look(prefix.text.len() > common);
        while is_longer(&prefix) {
            let jump = self.0.get(prefix.jump as usize).filter(is_longer);
            prefix = jump.or_else(|| self.0.get(prefix.parent as usize))?;
        }
        Some(prefix.value)
    }
}

/// Counts a comparison, in tests.
#[inline]
fn look(is: bool) -> bool {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
    is
}

#[cfg(test)]
thread_local! {
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

// === impl Ranges ===

impl Ranges {
    /// Networks with first and last address. Of two networks one holds the other, or they have nothing in common.
    fn new(mut networks: Vec<(u128, u128, Number)>) -> Self {
        networks.sort_unstable_by_key(|&(first, last, _)| (first, Reverse(last)));
        let mut ranges: Vec<(u128, Option<Number>)> = Vec::with_capacity(2 * networks.len());
        let mut begin = |at: u128, value: Option<Number>| {
            // The inner of two that begin together decides, and comes later.
            if ranges.last().is_some_and(|&(before, _)| before == at) {
                ranges.pop();
            }
            ranges.push((at, value));
        };
        // The networks around, the innermost last.
        let mut around: Vec<(u128, Number)> = Vec::new();
        for (first, last, value) in networks {
            while let Some((end, _)) = around.pop_if(|(end, _)| *end < first) {
                begin(end + 1, around.last().map(|&(_, value)| value));
            }
            begin(first, Some(value));
            around.push((last, value));
        }
        while let Some((end, _)) = around.pop() {
            if let Some(next) = end.checked_add(1) {
                begin(next, around.last().map(|&(_, value)| value));
            }
        }
        Self(ranges.into())
    }

    fn find(&self, address: u128) -> Option<Number> {
        let at = self.0.partition_point(|&(begin, _)| look(begin <= address)).checked_sub(1)?;
        self.0.get(at)?.1
    }
}

// === impl Regexes ===

impl Regexes {
    fn new(written: &[(&str, Number)]) -> Result<Option<Self>, Vec<EntryError>> {
        if written.is_empty() {
            return Ok(None);
        }
        let whole = written.iter().map(|(text, _)| format!("^(?:{text})$"));
        let set = RegexSetBuilder::new(whole)
            .unicode(false)
            .size_limit(REGEX_SET_BYTES)
            .dfa_size_limit(REGEX_SET_BYTES)
            .build();
        match set {
            Ok(set) => Ok(Some(Self { set, values: written.iter().map(|&(_, value)| value).collect() })),
            Err(_) => {
                let most = REGEX_SET_BYTES >> 20;
                let message = format!("its regular expressions together are larger than {most} MiB compiled");
                Err(vec![EntryError::new(message).hint("shorten counted repetitions such as {1,1000}")])
            }
        }
    }

    /// The value of the first that matches, in the order written.
    fn find(&self, text: &[u8]) -> Option<Number> {
        let first = self.set.matches(text).iter().next()?;
        self.values.get(first).copied()
    }
}

// === impl EntryError ===

impl EntryError {
    fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { entry: None, earlier: None, message: message.into(), hint: None }
    }

    fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Random;
    use super::*;

    fn table(keys: Keys, entries: &[(&str, &str)]) -> Table {
        Table::build(keys, entries, None).unwrap()
    }

    fn found<'t>(table: &'t Table, text: &str) -> Option<&'t str> {
        table.find(&Value::text(text)).map(|value| str::from_utf8(value).unwrap())
    }

    fn at<'t>(table: &'t Table, address: &str) -> Option<&'t str> {
        let value = Value::Address(address.parse().unwrap());
        table.find(&value).map(|value| str::from_utf8(value).unwrap())
    }

    #[test]
    fn exact_before_the_longest_prefix_before_the_first_regex() {
        let entries = [
            ("~b.*z", "first"),
            ("~.*z", "second"),
            ("be*", "be"),
            ("beta", "exact"),
            ("bet*", "bet"),
            ("betamax*", "betamax"),
            ("b\u{e9}*", "accent"),
            ("", "empty"),
        ];
        let table = table(Keys::Texts, &entries);
        for (text, want) in [
            ("beta", Some("exact")),
            ("betas", Some("bet")),
            ("betamay", Some("bet")),
            ("betamaxi", Some("betamax")),
            ("be", Some("be")),
            ("bez", Some("be")),
            ("bz", Some("first")),
            ("az", Some("second")),
            ("za", None),
            ("b\u{e9}z", Some("accent")),
            ("b", None),
            ("", Some("empty")),
            ("Beta", None),
            ("a\nz", None), // `.` is no line feed
        ] {
            assert_eq!(found(&table, text), want, "{text:?}");
        }
    }

    #[test]
    fn a_star_alone_takes_every_text_and_default_takes_the_rest() {
        let every = table(Keys::Texts, &[("*", "any"), ("a", "a")]);
        assert_eq!((found(&every, ""), found(&every, "b")), (Some("any"), Some("any")));
        let rest = Table::build(Keys::Texts, &[("a*", "a")], Some("rest")).unwrap();
        assert_eq!((found(&rest, "b"), found(&rest, "ab")), (Some("rest"), Some("a")));
        assert_eq!(rest.find(&Value::Absent), Some(&b"rest"[..]));
        assert_eq!(
            Table::build(Keys::Texts, &[("7", "seven")], None).unwrap().find(&Value::Int(7)),
            Some(&b"seven"[..])
        );
    }

    #[test]
    fn the_smallest_network_decides() {
        let table = table(
            Keys::Addresses,
            &[
                ("10.0.0.0/8", "a"),
                ("10.0.0.0/16", "b"),
                ("10.0.255.255", "c"),
                ("10.255.0.0/16", "d"),
                ("11.0.0.0/8", "e"),
                ("255.255.255.255", "f"),
                ("2001:db8::/32", "g"),
                ("2001:db8::1", "h"),
                ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "i"),
                ("::ffff:192.0.2.0/120", "j"),
            ],
        );
        for (address, want) in [
            ("9.255.255.255", None),
            ("10.0.0.0", Some("b")),
            ("10.0.255.254", Some("b")),
            ("10.0.255.255", Some("c")),
            ("10.1.0.0", Some("a")),
            ("10.255.255.255", Some("d")),
            ("11.0.0.0", Some("e")),
            ("12.0.0.0", None),
            ("255.255.255.255", Some("f")),
            ("::ffff:10.1.0.0", Some("a")),
            ("192.0.2.9", Some("j")),
            ("2001:db8::", Some("g")),
            ("2001:db8::1", Some("h")),
            ("2001:db8::2", Some("g")),
            ("2001:db9::", None),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("i")),
        ] {
            assert_eq!(at(&table, address), want, "{address}");
        }
        let every = Table::build(Keys::Addresses, &[("0.0.0.0/0", "4"), ("::/0", "6")], None).unwrap();
        assert_eq!((at(&every, "0.0.0.0"), at(&every, "255.255.255.255")), (Some("4"), Some("4")));
        assert_eq!((at(&every, "::1"), at(&every, "::ffff:1.2.3.4")), (Some("6"), Some("4")));
    }

    /// Against trying each entry, on random entries.
    #[test]
    fn finds_what_trying_each_entry_finds() {
        let mut random = Random::new(7);
        for _ in 0..300 {
            let letters = |random: &mut Random| -> String {
                (0..random.below(6)).map(|_| random.pick(&['a', 'b', 'c'])).collect()
            };
            let mut keys: Vec<String> = (0..random.below(30)).map(|_| letters(&mut random) + "*").collect();
            keys.sort();
            keys.dedup();
            let entries: Vec<_> = keys.iter().map(|key| (&**key, &**key)).collect();
            let built = table(Keys::Texts, &entries);
            for _ in 0..30 {
                let text = letters(&mut random);
                let fits = keys.iter().filter(|key| text.starts_with(key.trim_end_matches('*')));
                assert_eq!(
                    found(&built, &text),
                    fits.max_by_key(|key| key.len()).map(|key| &**key),
                    "{text} {keys:?}"
                );
            }

            let mut keys: Vec<String> = (0..random.below(30))
                .map(|_| {
                    let bits = 24 + random.below(9) as u32;
                    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                    format!("{}/{bits}", std::net::Ipv4Addr::from_bits(random.below(1 << 10) as u32 & mask))
                })
                .collect();
            keys.sort();
            keys.dedup();
            let entries: Vec<_> = keys.iter().map(|key| (&**key, &**key)).collect();
            let built = table(Keys::Addresses, &entries);
            for _ in 0..30 {
                let address = std::net::Ipv4Addr::from_bits(random.below(1 << 10) as u32);
                let holds = |key: &&String| {
                    let (first, last) = Networks::range(key).unwrap();
                    first <= IpAddr::V4(address) && IpAddr::V4(address) <= last
                };
                let narrow = keys
                    .iter()
                    .filter(holds)
                    .max_by_key(|key| key.split_once('/').unwrap().1.parse::<u32>().unwrap());
                assert_eq!(at(&built, &address.to_string()), narrow.map(|key| &**key), "{address} {keys:?}");
            }
        }
    }

    #[test]
    fn mistakes() {
        let errors = |keys, entries: &[(&str, &str)]| {
            let errors = Table::build(keys, entries, None).unwrap_err();
            errors.into_iter().map(|e| (e.entry, e.earlier, e.message.into_owned())).collect::<Vec<_>>()
        };
        let twice = |entry, earlier| (Some(entry), Some(earlier), "this key occurs twice".to_owned());
        assert_eq!(
            errors(Keys::Texts, &[("a", "1"), ("a*", "2"), ("a*", "3"), ("a", "1")]),
            [twice(2, 1), twice(3, 0)]
        );
        assert_eq!(
            errors(
                Keys::Addresses,
                &[("10.0.0.1", "1"), ("10.0.0.1/32", "2"), ("10.0.0.0/8", "3"), ("10.9.9.9/8", "4")]
            ),
            [twice(1, 0), twice(3, 2)]
        );
        let wrong = errors(Keys::Texts, &[("~(", "1"), ("~a", "2")]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].2.starts_with("the regular expression is malformed"), "{wrong:?}");
        for key in ["10.0.0.0/33", "host", "10.*", "~10", "", " 10.0.0.1"] {
            assert_eq!(errors(Keys::Addresses, &[(key, "1")])[0].0, Some(0), "{key}");
        }
        let many: Vec<String> = (0..=REGEXES).map(|n| format!("~a{n}")).collect();
        let many: Vec<_> = many.iter().map(|key| (&**key, "")).collect();
        assert_eq!(
            errors(Keys::Texts, &many)[0].2,
            "it has 1001 regular expressions, and at most 1000 are allowed"
        );
        let large: Vec<String> = (0..400).map(|n| format!("~{n}[a-z]{{2000}}")).collect();
        let large: Vec<_> = large.iter().map(|key| (&**key, "")).collect();
        assert!(errors(Keys::Texts, &large)[0].2.starts_with("its regular expressions together"));
    }
}
