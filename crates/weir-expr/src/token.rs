//! Splits a source into tokens, as CEL's language definition has them, plus `??`.
//!
//! Reads one token at a time, so that a template can stop at the `}` that ends an expression.

use crate::diagnostic::Mistake;
use std::ops::Range;

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind<'s>,
    pub(crate) range: Range<usize>,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind<'s> {
    Bytes(Vec<u8>),
    Double(f64),
    End,
    Int(u64),
    /// A member in backquotes.
    Member(&'s str),
    /// A name or a keyword.
    Name(&'s str),
    Symbol(&'static str),
    Text(Vec<u8>),
    Uint(u64),
}

/// Every symbol, longer ones before those that begin them.
const SYMBOLS: &[&str] = &[
    "??", "||", "&&", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "<",
    ">", "+", "-", "*", "/", "%",
];

/// The texts and bytes that an expression has as literals, up to its first mistake.
pub fn literals(source: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(token) = next(source, at) {
        at = token.range.end;
        match token.kind {
            Kind::Bytes(text) | Kind::Text(text) => found.push(text),
            Kind::End => break,
            _ => {}
        }
    }
    found
}

/// The token that begins at or behind byte `at`.
pub(crate) fn next(source: &str, at: usize) -> Result<Token<'_>, Mistake> {
    let start = skip(source, at);
    let rest = &source[start..];
    let bytes = rest.as_bytes();
    let token = |kind, length| Ok(Token { kind, range: start..start + length });
    let Some(&first) = bytes.first() else { return token(Kind::End, 0) };
    let digit_at = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if first.is_ascii_digit() || first == b'.' && digit_at(1) {
        return number(source, start);
    }
    let name = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    if matches!(bytes.get(name), Some(b'"' | b'\'')) {
        match rest[..name].to_ascii_lowercase().as_str() {
            "" => return text(source, start, start, false, false),
            "r" => return text(source, start, start + 1, true, false),
            "b" => return text(source, start, start + 1, false, true),
            "br" | "rb" => return text(source, start, start + 2, true, true),
            _ => {}
        }
    }
    if name > 0 {
        return token(Kind::Name(&rest[..name]), name);
    }
    if let Some(rest) = rest.strip_prefix('`') {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"_.-/ ".contains(b);
        let length = rest.bytes().take_while(is_part).count();
        if length > 0 && rest[length..].starts_with('`') {
            return token(Kind::Member(&rest[..length]), length + 2);
        }
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        return token(Kind::Symbol(symbol), symbol.len());
    }
    let wrong = rest.chars().next().unwrap_or_default();
    let mistake =
        Mistake::new(start..start + wrong.len_utf8(), format!("unexpected `{}`", wrong.escape_debug()));
    Err(match wrong {
        '=' if rest.starts_with("=~") => mistake.hint("write `.matches(\"…\")` to test a regular expression"),
        '=' => mistake.hint("write `==` to compare"),
        '~' => mistake.hint("write `.matches(\"…\")` to test a regular expression"),
        '&' => mistake.hint("write `&&` for “and”"),
        '|' => mistake.hint("write `||` for “or”"),
        '$' => mistake.hint("variables are written without `$`, such as `request.path`"),
        '“' | '”' | '„' | '‘' | '’' => mistake.hint("write straight quotes: `\"` or `'`"),
        _ => mistake,
    })
}

/// Where the next token begins: behind white space and comments.
fn skip(source: &str, mut at: usize) -> usize {
    let bytes = source.as_bytes();
    loop {
        while bytes.get(at).is_some_and(|b| matches!(b, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')) {
            at += 1;
        }
        if !bytes[at..].starts_with(b"//") {
            return at;
        }
        at = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |line| at + line);
    }
}

/// A number: `1`, `0x1f`, `1u`, `1.5`, `.5`, `1e3`.
fn number(source: &str, start: usize) -> Result<Token<'_>, Mistake> {
    let bytes = source.as_bytes();
    let run = |at: usize, part: fn(&u8) -> bool| at + bytes[at..].iter().take_while(|b| part(b)).count();
    let is = |at: usize, letters: &[u8]| bytes.get(at).is_some_and(|b| letters.contains(b));
    let hex = is(start, b"0") && is(start + 1, b"xX");
    let mut end = if hex { run(start + 2, u8::is_ascii_hexdigit) } else { run(start, u8::is_ascii_digit) };
    let mut whole = true;
    if !hex {
        if is(end, b".") && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = run(end + 1, u8::is_ascii_digit);
            whole = false;
        }
        if is(end, b"eE") {
            let digits = end + 1 + usize::from(is(end + 1, b"+-"));
            if bytes.get(digits).is_some_and(u8::is_ascii_digit) {
                end = run(digits, u8::is_ascii_digit);
                whole = false;
            }
        }
    }
    let digits = &source[start..end];
    let unsigned = whole && is(end, b"uU");
    let end = end + usize::from(unsigned);
    let tail = run(end, |b| b.is_ascii_alphanumeric() || *b == b'_');
    let range = start..tail;
    if tail > end {
        let written = &source[range.clone()];
        let hint = "units are not part of an expression: write `duration(\"10s\")`, or the number of bytes";
        return Err(Mistake::new(range, format!("`{written}` is not a number")).hint(hint));
    }
    let wrong = || Mistake::new(range.clone(), format!("`{}` does not fit 64 bits", &source[range.clone()]));
    let kind = if whole {
        let parsed = if hex { u64::from_str_radix(&digits[2..], 16) } else { digits.parse() };
        let number = parsed.map_err(|_| wrong())?;
        if unsigned { Kind::Uint(number) } else { Kind::Int(number) }
    } else {
        Kind::Double(digits.parse().map_err(|_| wrong())?)
    };
    Ok(Token { kind, range })
}

/// A text or bytes whose quote stands at `quote`.
fn text(source: &str, start: usize, quote: usize, raw: bool, octets: bool) -> Result<Token<'_>, Mistake> {
    let mark = &source[quote..=quote];
    let triple = source[quote..].starts_with(&mark.repeat(3));
    let closing = if triple { mark.repeat(3) } else { mark.to_owned() };
    let mut at = quote + closing.len();
    let mut out = Vec::new();
    loop {
        let rest = &source[at..];
        if rest.starts_with(&closing) {
            let kind = if octets { Kind::Bytes(out) } else { Kind::Text(out) };
            return Ok(Token { kind, range: start..at + closing.len() });
        }
        match rest.chars().next() {
            None => return Err(unclosed(source, start, &closing)),
            Some('\n' | '\r') if !triple => return Err(unclosed(source, start, &closing)),
            Some('\\') if !raw => at = escape(source, at, octets, &mut out)?,
            Some(c) => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                at += c.len_utf8();
            }
        }
    }
}

fn unclosed(source: &str, start: usize, closing: &str) -> Mistake {
    let line = source[start..].find(['\n', '\r']).map_or(source.len(), |length| start + length);
    Mistake::new(start..line, format!("this text is not closed; expected `{closing}`"))
}

/// Appends what the escape at `at` stands for; returns where it ends.
fn escape(source: &str, at: usize, octets: bool, out: &mut Vec<u8>) -> Result<usize, Mistake> {
    let wrong = |length: usize| {
        let mut end = (at + length).min(source.len());
        while !source.is_char_boundary(end) {
            end += 1;
        }
        let message = format!("`{}` is not an escape", &source[at..end]);
        Mistake::new(at..end, message)
            .hint("write `\\\\` for a backslash, or r\"…\" for a text without escapes")
    };
    let rest = &source.as_bytes()[at + 1..];
    let simple = match rest.first() {
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(&b) if b"\\?\"'`".contains(&b) => b,
        _ => 0,
    };
    if simple != 0 {
        out.push(simple);
        return Ok(at + 2);
    }
    let (from, digits, radix) = match rest.first() {
        Some(b'x' | b'X') => (1, 2, 16),
        Some(b'u') if !octets => (1, 4, 16),
        Some(b'U') if !octets => (1, 8, 16),
        Some(b'0'..=b'3') => (0, 3, 8),
        _ => return Err(wrong(2)),
    };
    let length = 1 + from + digits;
    let number = rest.get(from..from + digits).filter(|part| part.iter().all(u8::is_ascii_alphanumeric));
    let number = number.and_then(|part| u32::from_str_radix(str::from_utf8(part).ok()?, radix).ok());
    let number = number.ok_or_else(|| wrong(length))?;
    if octets {
        out.push(u8::try_from(number).map_err(|_| wrong(length))?);
    } else {
        let c = char::from_u32(number).ok_or_else(|| wrong(length))?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(at + length)
}
