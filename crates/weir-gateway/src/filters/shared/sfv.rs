//! Structured fields (RFC 9651) as far as signatures need them: dictionaries of items and inner lists, read strictly and
//! written in their one form. Decimals, dates and display strings are not among them, and make a field unreadable.
//!
//! An own reader and not the crate `sfv`: 200 lines with limits on every count, and no second Base64.

use super::base64;
use std::fmt::Write as _;

/// Most members of a dictionary, items of a list, and parameters of one of them.
const MOST: usize = 64;

/// A value without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::filters) enum Bare {
    /// `?1` or `?0`.
    Boolean(bool),
    /// `:Zm9v:`.
    Bytes(Vec<u8>),
    /// `42`.
    Integer(i64),
    /// `"text"`.
    String(String),
    /// `word`.
    Token(String),
}

/// Names and values, in order.
pub(in crate::filters) type Parameters = Vec<(String, Bare)>;

/// A value and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::filters) struct Item {
    pub(in crate::filters) value: Bare,
    pub(in crate::filters) parameters: Parameters,
}

/// What a name in a dictionary stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::filters) enum Member {
    Item(Item),
    List(Vec<Item>, Parameters),
}

/// Reads a dictionary (§4.2.2); `None` where it is none. A name that occurs again takes the place of the first.
pub(in crate::filters) fn dictionary(text: &[u8]) -> Option<Vec<(String, Member)>> {
    let mut reader = Reader(text);
    let mut members: Vec<(String, Member)> = Vec::new();
    reader.spaces();
    while !reader.0.is_empty() {
        let name = reader.key()?;
        let member = if reader.take(b'=') {
            match reader.0.first()? {
                b'(' => reader.list()?,
                _ => Member::Item(Item { value: reader.bare()?, parameters: reader.parameters()? }),
            }
        } else {
            Member::Item(Item { value: Bare::Boolean(true), parameters: reader.parameters()? })
        };
        members.retain(|(known, _)| *known != name);
        members.push((name, member));
        reader.blank();
        if reader.0.is_empty() {
            break;
        }
        if !reader.take(b',') || members.len() == MOST {
            return None;
        }
        reader.blank();
        if reader.0.is_empty() {
            return None; // a comma at the end
        }
    }
    Some(members)
}

/// Writes an item with its parameters (§4.1.3).
pub(in crate::filters) fn write_item(item: &Item, out: &mut String) {
    write_bare(&item.value, out);
    write_parameters(&item.parameters, out);
}

/// Writes an inner list with its parameters (§4.1.1.1).
pub(in crate::filters) fn write_list(items: &[Item], parameters: &Parameters, out: &mut String) {
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
        Bare::Integer(number) => drop(write!(out, "{number}")), // into a String
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

/// What is left to read.
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

    /// As long as bytes fit.
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
            parameters.retain(|(known, _)| *known != name);
            parameters.push((name, value));
            if parameters.len() > MOST {
                return None;
            }
        }
        Some(parameters)
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
            b'-' | b'0'..=b'9' => self.integer(),
            first if first.is_ascii_alphabetic() || first == b'*' => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
                Some(Bare::Token(self.run(fits)))
            }
            _ => None,
        }
    }

    fn integer(&mut self) -> Option<Bare> {
        let negative = self.take(b'-');
        let digits = self.run(|b| b.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 || self.0.first() == Some(&b'.') {
            return None;
        }
        let number: i64 = digits.parse().ok()?;
        Some(Bare::Integer(if negative { -number } else { number }))
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
            ("a=1,b=2,a=3", "b=2, a=3"),
            ("s=( \"a\"  \"b\";x  c );y=?0;z;y=?1", "s=(\"a\" \"b\";x c);z;y"),
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
            "a=1.5",
            "a=1234567890123456",
            "a=@1",
            "a=(1,2)",
            "a=[1]",
            ",",
        ] {
            assert_eq!(again(text), None, "{text}");
        }
        let many: Vec<String> = (0..=MOST).map(|n| format!("a{n}")).collect();
        assert_eq!(again(&many.join(",")), None);
        assert_eq!(again(&format!("a=({})", "1 ".repeat(MOST + 1))), None);
        assert_eq!(again(&format!("a=1;{}", many.join(";"))), None);
    }
}
