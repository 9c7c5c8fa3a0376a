//! The signatures of functions, which the check and the documentation read.
//!
//! To add one: a variant of [`Func`], a row in [`ROWS`], an arm in `apply` of `functions.rs`.

use std::fmt;

/// One signature of a function.
#[derive(Debug)]
pub struct Function {
    /// The name. A dot is part of it: `base64.encode`.
    pub name: &'static str,
    /// It is written behind its first argument: `a.startsWith(b)`. `size` may be written either way.
    pub is_method: bool,
    /// The types of the arguments.
    pub takes: &'static [Takes],
    /// The type of the result.
    pub gives: Takes,
    /// It may have no value, so that it needs a default.
    pub may_fail: bool,
    /// What it does, in one phrase.
    pub what: &'static str,
    pub(crate) func: Func,
}

/// The type of an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the types of the same names")]
pub enum Takes {
    Address,
    Any,
    Bool,
    Bytes,
    Double,
    Duration,
    Int,
    Json,
    List,
    Map,
    Text,
    Texts,
    Timestamp,
    Uint,
}

impl Function {
    /// How it is called, with types for arguments: `text.startsWith(text)`.
    pub fn call(&self) -> String {
        let takes: Vec<String> = self.takes.iter().map(ToString::to_string).collect();
        match takes.split_first().filter(|_| self.is_method) {
            Some((of, takes)) => format!("{of}.{}({})", self.name, takes.join(", ")),
            None => format!("{}({})", self.name, takes.join(", ")),
        }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Texts => f.write_str("list of texts"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Func {
    Base64,
    Base64Url,
    Bool,
    Bytes,
    CharAt,
    Contains,
    Double,
    Duration,
    Dyn,
    EndsWith,
    Hex,
    IndexOf,
    Int,
    Ip,
    Join,
    LastIndexOf,
    LowerAscii,
    Matches,
    Part(Part),
    Replace,
    Sha256,
    Size,
    Split,
    StartsWith,
    String,
    Substring,
    Timestamp,
    Trim,
    Uint,
    UnBase64,
    UnBase64Url,
    UnHex,
    UnUrl,
    UpperAscii,
    Url,
}

/// A part of a moment or of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    FullYear,
    Hours,
    Milliseconds,
    Minutes,
    Month,
    Seconds,
}

const fn function(
    name: &'static str,
    takes: &'static [Takes],
    gives: Takes,
    func: Func,
    what: &'static str,
) -> Function {
    Function { name, is_method: false, takes, gives, may_fail: false, what, func }
}

const fn method(
    name: &'static str,
    takes: &'static [Takes],
    gives: Takes,
    func: Func,
    what: &'static str,
) -> Function {
    Function { name, is_method: true, takes, gives, may_fail: false, what, func }
}

const fn fails(row: Function) -> Function {
    Function { may_fail: true, ..row }
}

/// A number in a duration, or in a moment at UTC.
const fn part(name: &'static str, takes: &'static [Takes], part: Part, what: &'static str) -> Function {
    method(name, takes, T::Int, Func::Part(part), what)
}

/// The same of a moment at an offset.
const fn zoned(name: &'static str, part: Part) -> Function {
    let takes = &[T::Timestamp, T::Text];
    fails(method(name, takes, T::Int, Func::Part(part), "the same at `+02:00`"))
}

use Takes as T;

/// All functions by name. The first row that fits the arguments is taken.
pub static ROWS: &[Function] = &[
    function(
        "base64.decode",
        &[T::Text],
        T::Bytes,
        Func::UnBase64,
        "the bytes of base64; empty if it is none",
    ),
    function("base64.encode", &[T::Text], T::Text, Func::Base64, "base64 with padding"),
    function(
        "base64url.decode",
        &[T::Text],
        T::Bytes,
        Func::UnBase64Url,
        "the bytes of base64url; empty if it is none",
    ),
    function("base64url.encode", &[T::Text], T::Text, Func::Base64Url, "base64url without padding"),
    function("bool", &[T::Bool], T::Bool, Func::Bool, "itself"),
    fails(function(
        "bool",
        &[T::Text],
        T::Bool,
        Func::Bool,
        "`true`, `t`, `1`, `false`, `f`, `0`; also `True`, `TRUE`, `T`",
    )),
    fails(function("bool", &[T::Json], T::Bool, Func::Bool, "true or false of JSON, or of such a text")),
    function("bytes", &[T::Text], T::Bytes, Func::Bytes, "the bytes of a text"),
    method(
        "charAt",
        &[T::Text, T::Int],
        T::Text,
        Func::CharAt,
        "the character at a position; empty where there is none",
    ),
    method("contains", &[T::Text, T::Text], T::Bool, Func::Contains, "has the text in it"),
    function("double", &[T::Double], T::Double, Func::Double, "itself"),
    function("double", &[T::Int], T::Double, Func::Double, "the nearest double"),
    function("double", &[T::Uint], T::Double, Func::Double, "the nearest double"),
    fails(function("double", &[T::Text], T::Double, Func::Double, "the number that is written")),
    fails(function(
        "double",
        &[T::Json],
        T::Double,
        Func::Double,
        "a number of JSON, or one written as text",
    )),
    function("duration", &[T::Duration], T::Duration, Func::Duration, "itself"),
    fails(function("duration", &[T::Text], T::Duration, Func::Duration, "such as `1h30m`, `250ms`")),
    function("dyn", &[T::Any], T::Json, Func::Dyn, "the value, without its type"),
    method("endsWith", &[T::Text, T::Text], T::Bool, Func::EndsWith, "ends with the text"),
    part("getDate", &[T::Timestamp], Part::Date, "day of the month from 1, UTC"),
    zoned("getDate", Part::Date),
    part("getDayOfMonth", &[T::Timestamp], Part::DayOfMonth, "day of the month from 0, UTC"),
    zoned("getDayOfMonth", Part::DayOfMonth),
    part("getDayOfWeek", &[T::Timestamp], Part::DayOfWeek, "0 is Sunday, UTC"),
    zoned("getDayOfWeek", Part::DayOfWeek),
    part("getDayOfYear", &[T::Timestamp], Part::DayOfYear, "from 0, UTC"),
    zoned("getDayOfYear", Part::DayOfYear),
    part("getFullYear", &[T::Timestamp], Part::FullYear, "the year, UTC"),
    zoned("getFullYear", Part::FullYear),
    part("getHours", &[T::Duration], Part::Hours, "whole hours of a duration"),
    part("getHours", &[T::Timestamp], Part::Hours, "the hour, UTC"),
    zoned("getHours", Part::Hours),
    part("getMilliseconds", &[T::Duration], Part::Milliseconds, "of the last second of a duration"),
    part("getMilliseconds", &[T::Timestamp], Part::Milliseconds, "of the second"),
    zoned("getMilliseconds", Part::Milliseconds),
    part("getMinutes", &[T::Duration], Part::Minutes, "whole minutes of a duration"),
    part("getMinutes", &[T::Timestamp], Part::Minutes, "the minute, UTC"),
    zoned("getMinutes", Part::Minutes),
    part("getMonth", &[T::Timestamp], Part::Month, "from 0, UTC"),
    zoned("getMonth", Part::Month),
    part("getSeconds", &[T::Duration], Part::Seconds, "whole seconds of a duration"),
    part("getSeconds", &[T::Timestamp], Part::Seconds, "the second, UTC"),
    zoned("getSeconds", Part::Seconds),
    function("hex.decode", &[T::Text], T::Bytes, Func::UnHex, "the bytes of hex digits; empty if it is none"),
    function("hex.encode", &[T::Text], T::Text, Func::Hex, "two lower-case digits for each byte"),
    method("indexOf", &[T::Text, T::Text], T::Int, Func::IndexOf, "the position of the text, or -1"),
    method("indexOf", &[T::Text, T::Text, T::Int], T::Int, Func::IndexOf, "the same, from a position on"),
    function("int", &[T::Int], T::Int, Func::Int, "itself"),
    fails(function("int", &[T::Double], T::Int, Func::Int, "without its fraction")),
    fails(function("int", &[T::Uint], T::Int, Func::Int, "the same number")),
    fails(function("int", &[T::Text], T::Int, Func::Int, "the number that is written")),
    function("int", &[T::Timestamp], T::Int, Func::Int, "seconds since 1970"),
    fails(function("int", &[T::Json], T::Int, Func::Int, "a number of JSON, or one written as text")),
    function("ip", &[T::Address], T::Address, Func::Ip, "itself"),
    fails(function("ip", &[T::Text], T::Address, Func::Ip, "the address that is written")),
    method("join", &[T::Texts], T::Text, Func::Join, "all texts, one behind the other"),
    method("join", &[T::Texts, T::Text], T::Text, Func::Join, "all texts with the text between them"),
    method(
        "lastIndexOf",
        &[T::Text, T::Text],
        T::Int,
        Func::LastIndexOf,
        "the last position of the text, or -1",
    ),
    method(
        "lastIndexOf",
        &[T::Text, T::Text, T::Int],
        T::Int,
        Func::LastIndexOf,
        "the same, up to a position",
    ),
    method("lowerAscii", &[T::Text], T::Text, Func::LowerAscii, "A-Z in lower case"),
    method(
        "matches",
        &[T::Text, T::Text],
        T::Bool,
        Func::Matches,
        "a literal regular expression matches a part of it",
    ),
    method(
        "replace",
        &[T::Text, T::Text, T::Text],
        T::Text,
        Func::Replace,
        "with each first text replaced by the second",
    ),
    method(
        "replace",
        &[T::Text, T::Text, T::Text, T::Int],
        T::Text,
        Func::Replace,
        "the same, at most so often",
    ),
    function("sha256", &[T::Text], T::Bytes, Func::Sha256, "SHA-256; hex.encode makes it readable"),
    function("size", &[T::Text], T::Int, Func::Size, "characters"),
    function("size", &[T::Bytes], T::Int, Func::Size, "bytes"),
    function("size", &[T::List], T::Int, Func::Size, "items"),
    function("size", &[T::Map], T::Int, Func::Size, "entries"),
    fails(function("size", &[T::Json], T::Int, Func::Size, "characters, items or entries")),
    method("split", &[T::Text, T::Text], T::Texts, Func::Split, "the parts between the text, at most 1,000"),
    method("split", &[T::Text, T::Text, T::Int], T::Texts, Func::Split, "the same, at most so many"),
    method("startsWith", &[T::Text, T::Text], T::Bool, Func::StartsWith, "begins with the text"),
    function("string", &[T::Any], T::Text, Func::String, "as text; JSON for lists and maps"),
    method("substring", &[T::Text, T::Int], T::Text, Func::Substring, "from a position on"),
    method(
        "substring",
        &[T::Text, T::Int, T::Int],
        T::Text,
        Func::Substring,
        "from a position up to another",
    ),
    function("timestamp", &[T::Timestamp], T::Timestamp, Func::Timestamp, "itself"),
    fails(function("timestamp", &[T::Text], T::Timestamp, Func::Timestamp, "RFC 3339")),
    fails(function("timestamp", &[T::Int], T::Timestamp, Func::Timestamp, "seconds since 1970")),
    method("trim", &[T::Text], T::Text, Func::Trim, "without white space around it"),
    function("uint", &[T::Uint], T::Uint, Func::Uint, "itself"),
    fails(function("uint", &[T::Double], T::Uint, Func::Uint, "without its fraction")),
    fails(function("uint", &[T::Int], T::Uint, Func::Uint, "the same number")),
    fails(function("uint", &[T::Text], T::Uint, Func::Uint, "the number that is written")),
    fails(function("uint", &[T::Json], T::Uint, Func::Uint, "a number of JSON, or one written as text")),
    method("upperAscii", &[T::Text], T::Text, Func::UpperAscii, "a-z in upper case"),
    function("url.decode", &[T::Text], T::Text, Func::UnUrl, "with `%41` decoded; `+` stays"),
    function("url.encode", &[T::Text], T::Text, Func::Url, "all but letters, digits and `-._~` escaped"),
];
