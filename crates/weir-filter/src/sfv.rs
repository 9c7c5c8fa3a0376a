//! Structured fields (RFC 9651) as far as signatures need them: dictionaries, lists and items, parsed strictly and
//! written in canonical form. Display strings are not supported and make a field unreadable.
//!
//! This is our own parser instead of the crate `sfv`: 200 lines with limits on every count, and no second Base64.

use super::base64;
use std::fmt::Write as _;

/// Most members of a dictionary, items of a list, and parameters of one of them.
const MOST: usize = 64;

/// A value without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bare {
    /// `?1` or `?0`.
    Boolean(bool),
    /// `:Zm9v:`.
    Bytes(Vec<u8>),
    /// `@1659578233`, in seconds.
    Date(i64),
    /// `4.5`, in thousandths.
    Decimal(i64),
    /// `42`.
    Integer(i64),
    /// `"text"`.
    String(String),
    /// `word`.
    Token(String),
}

/// Names and values, in order.
pub type Parameters = Vec<(String, Bare)>;

/// A value and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Without its parameters.
    pub value: Bare,
    /// In their order.
    pub parameters: Parameters,
}

/// The value of a name in a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// One item.
    Item(Item),
    /// An inner list, with the parameters of the whole.
    List(Vec<Item>, Parameters),
}

/// Parses a dictionary (§4.2.2); `None` if it is invalid. The last value of a repeated name counts, at the position
/// of the first.
pub fn dictionary(text: &[u8]) -> Option<Vec<(String, Member)>> {
    let mut reader = Reader(text);
    let mut members: Vec<(String, Member)> = Vec::new();
    reader.spaces();
    while !reader.0.is_empty() {
        let name = reader.key()?;
        let member = if reader.take(b'=') {
            reader.member()?
        } else {
            Member::Item(Item { value: Bare::Boolean(true), parameters: reader.parameters()? })
        };
        set(&mut members, name, member);
        if !reader.goes_on(members.len())? {
            break;
        }
    }
    Some(members)
}

/// Parses a list (§4.2.1); `None` if it is invalid.
pub fn list(text: &[u8]) -> Option<Vec<Member>> {
    let mut reader = Reader(text);
    let mut members = Vec::new();
    reader.spaces();
    while !reader.0.is_empty() {
        members.push(reader.member()?);
        if !reader.goes_on(members.len())? {
            break;
        }
    }
    Some(members)
}

/// Parses an item (§4.2.3); `None` if it is invalid.
pub fn item(text: &[u8]) -> Option<Item> {
    let mut reader = Reader(text);
    reader.spaces();
    let item = Item { value: reader.bare()?, parameters: reader.parameters()? };
    reader.spaces();
    reader.0.is_empty().then_some(item)
}

/// Sets the value of a name.
fn set<T>(all: &mut Vec<(String, T)>, name: String, value: T) {
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => all.push((name, value)),
    }
}

/// Writes a dictionary (§4.1.2).
pub fn write_dictionary(members: &[(String, Member)], out: &mut String) {
    for (at, (name, member)) in members.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        out.push_str(name);
        match member {
            Member::Item(item) if item.value == Bare::Boolean(true) => {
                write_parameters(&item.parameters, out)
            }
            member => {
                out.push('=');
                write_member(member, out);
            }
        }
    }
}

/// Writes a list (§4.1.1).
pub fn write_list_of(members: &[Member], out: &mut String) {
    for (at, member) in members.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        write_member(member, out);
    }
}

/// Writes an item, or an inner list.
pub fn write_member(member: &Member, out: &mut String) {
    match member {
        Member::Item(item) => write_item(item, out),
        Member::List(items, parameters) => write_list(items, parameters, out),
    }
}

/// Writes an item with its parameters (§4.1.3).
pub fn write_item(item: &Item, out: &mut String) {
    write_bare(&item.value, out);
    write_parameters(&item.parameters, out);
}

/// Writes an inner list with its parameters (§4.1.1.1).
pub fn write_list(items: &[Item], parameters: &Parameters, out: &mut String) {
    out.push('(');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        write_item(item, out);
    }
    out.push(')');
    write_parameters(parameters, out);
}

fn write_parameters(parameters: &Parameters, out: &mut String) {
    for (name, value) in parameters {
        out.push(';');
        out.push_str(name);
        if *value != Bare::Boolean(true) {
            out.push('=');
            write_bare(value, out);
        }
    }
}

fn write_bare(value: &Bare, out: &mut String) {
    match value {
        Bare::Boolean(yes) => out.push_str(if *yes { "?1" } else { "?0" }),
        Bare::Bytes(bytes) => {
            out.push(':');
            out.push_str(&base64::encode(bytes));
            out.push(':');
        }
        // Writing into a String cannot fail.
        Bare::Date(seconds) => drop(write!(out, "@{seconds}")),
        Bare::Decimal(thousandths) => {
            let (whole, part) = (thousandths.unsigned_abs() / 1000, thousandths.unsigned_abs() % 1000);
            let sign = if *thousandths < 0 { "-" } else { "" };
            let part = format!("{part:03}");
            let (first, rest) = part.split_at(1);
            let _ = write!(out, "{sign}{whole}.{first}{}", rest.trim_end_matches('0'));
        }
        Bare::Integer(number) => drop(write!(out, "{number}")),
        Bare::String(text) => {
            out.push('"');
            for c in text.chars() {
                if matches!(c, '"' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push('"');
        }
        Bare::Token(word) => out.push_str(word),
    }
}

/// The rest of the input.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.0.first() == Some(&byte);
        if there {
            self.next();
        }
        there
    }

    fn spaces(&mut self) {
        while self.take(b' ') {}
    }

    /// Spaces and tabs.
    fn blank(&mut self) {
        while self.take(b' ') || self.take(b'\t') {}
    }

    /// Reads bytes as long as they fit.
    fn run(&mut self, fits: impl Fn(u8) -> bool) -> String {
        let end = self.0.iter().position(|b| !fits(*b)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at_checked(end).unwrap_or((self.0, &[]));
        self.0 = rest;
        String::from_utf8_lossy(run).into_owned()
    }

    fn key(&mut self) -> Option<String> {
        let first = *self.0.first()?;
        if !first.is_ascii_lowercase() && first != b'*' {
            return None;
        }
        Some(self.run(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b)))
    }

    fn parameters(&mut self) -> Option<Parameters> {
        let mut parameters = Parameters::new();
        while self.take(b';') {
            self.spaces();
            let name = self.key()?;
            let value = if self.take(b'=') { self.bare()? } else { Bare::Boolean(true) };
            set(&mut parameters, name, value);
            if parameters.len() > MOST {
                return None;
            }
        }
        Some(parameters)
    }

    /// Reads the separator after a member. Returns whether another member follows; `count` is the number read so far.
    fn goes_on(&mut self, count: usize) -> Option<bool> {
        self.blank();
        if self.0.is_empty() {
            return Some(false);
        }
        if !self.take(b',') || count == MOST {
            return None;
        }
        self.blank();
        (!self.0.is_empty()).then_some(true) // no trailing comma
    }

    fn member(&mut self) -> Option<Member> {
        Some(match self.0.first()? {
            b'(' => self.list()?,
            _ => Member::Item(Item { value: self.bare()?, parameters: self.parameters()? }),
        })
    }

    fn list(&mut self) -> Option<Member> {
        self.next()?;
        let mut items = Vec::new();
        loop {
            self.spaces();
            if self.take(b')') {
                return Some(Member::List(items, self.parameters()?));
            }
            if items.len() == MOST {
                return None;
            }
            items.push(Item { value: self.bare()?, parameters: self.parameters()? });
            if !matches!(self.0.first()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn bare(&mut self) -> Option<Bare> {
        match *self.0.first()? {
            b'"' => self.string(),
            b':' => self.bytes(),
            b'?' => {
                self.next()?;
                match self.next()? {
                    b'1' => Some(Bare::Boolean(true)),
                    b'0' => Some(Bare::Boolean(false)),
                    _ => None,
                }
            }
            b'-' | b'0'..=b'9' => self.number(),
            b'@' => {
                self.next()?;
                match self.number()? {
                    Bare::Integer(seconds) => Some(Bare::Date(seconds)),
                    _ => None,
                }
            }
            first if first.is_ascii_alphabetic() || first == b'*' => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
                Some(Bare::Token(self.run(fits)))
            }
            _ => None,
        }
    }

    /// An integer of up to 15 digits, or a decimal of up to 12 and 3 (§4.2.4).
    fn number(&mut self) -> Option<Bare> {
        let negative = self.take(b'-');
        let digits = self.run(|b| b.is_ascii_digit());
        let decimal = self.take(b'.');
        let part = if decimal { self.run(|b| b.is_ascii_digit()) } else { String::new() };
        let fits =
            if decimal { digits.len() <= 12 && (1..=3).contains(&part.len()) } else { digits.len() <= 15 };
        if digits.is_empty() || !fits {
            return None;
        }
        let number: i64 = if decimal { format!("{digits}{part:0<3}") } else { digits }.parse().ok()?;
        let number = if negative { -number } else { number };
        Some(if decimal { Bare::Decimal(number) } else { Bare::Integer(number) })
    }

    fn string(&mut self) -> Option<Bare> {
        self.next()?;
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(Bare::String(text)),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => text.push(escaped.into()),
                    _ => return None,
                },
                byte @ 0x20..=0x7e => text.push(byte.into()),
                _ => return None,
            }
        }
    }

    /// §4.2.7 asks to be lenient about missing padding.
    fn bytes(&mut self) -> Option<Bare> {
        self.next()?;
        let mut digits = self.run(|b| b != b':');
        if !self.take(b':') {
            return None;
        }
        while !digits.len().is_multiple_of(4) {
            digits.push('=');
        }
        base64::decode(digits.as_bytes()).map(Bare::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> Option<String> {
        let members = dictionary(text.as_bytes())?;
        let written = members.iter().map(|(name, member)| {
            let mut out = format!("{name}=");
            match member {
                Member::Item(item) => write_item(item, &mut out),
                Member::List(items, parameters) => write_list(items, parameters, &mut out),
            }
            out
        });
        Some(written.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn dictionaries_have_one_form() {
        for (text, one) in [
            ("", ""),
            ("a=1", "a=1"),
            (" a=1 ,\tb=:Zm9v:", "a=1, b=:Zm9v:"),
            ("a=:Zm8:", "a=:Zm8=:"),
            ("a", "a=?1"),
            ("a=1,b=2,a=3", "a=3, b=2"),
            (
                "a=1.5,b=-0.050,c=1.0,d=-0.0,e=123456789012.125",
                "a=1.5, b=-0.05, c=1.0, d=0.0, e=123456789012.125",
            ),
            ("a=@1659578233, b=@-1", "a=@1659578233, b=@-1"),
            ("s=( \"a\"  \"b\";x  c );y=?0;z;y=?1", "s=(\"a\" \"b\";x c);y;z"),
            ("s=();k=\"a\\\"\\\\\";n=-5;t=a/b:c", "s=();k=\"a\\\"\\\\\";n=-5;t=a/b:c"),
        ] {
            assert_eq!(again(text).as_deref(), Some(one), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        for text in [
            "A=1",
            "a=",
            "a=1,",
            "a=1 b=2",
            "a=1;",
            "a=1;B",
            "a=(\"x\"",
            "a=(\"x\"\"y\")",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e4}\"",
            "a=:Zm9v",
            "a=:Z m:",
            "a=:=:",
            "a=?2",
            "a=-",
            "a=1.",
            "a=1.2345",
            "a=1234567890123.1",
            "a=.5",
            "a=@1.5",
            "a=@",
            "a=%\"x\"",
            "a=1234567890123456",
            "a=(1,2)",
            "a=[1]",
            ",",
        ] {
            assert_eq!(again(text), None, "{text}");
        }
        assert_eq!((list(b"1,"), list(b"1 2"), item(b"1,2"), item(b"")), (None, None, None, None));
        assert!(list(b"").is_some_and(|empty| empty.is_empty()));
        assert_eq!(list("1,".repeat(MOST + 1).as_bytes()), None);
        let many: Vec<String> = (0..=MOST).map(|n| format!("a{n}")).collect();
        assert_eq!(again(&many.join(",")), None);
        assert_eq!(again(&format!("a=({})", "1 ".repeat(MOST + 1))), None);
        assert_eq!(again(&format!("a=1;{}", many.join(";"))), None);
    }
}
