//! Conditions that an answer must meet: `status=200`, `json:$.items`, `header:content-type~json`.

use crate::answer::Answer;
use crate::grpc::{CODES, Code};
use crate::json_at::Part;
use crate::path::Path;
use std::fmt;
use std::time::Duration;

/// A condition that every answer of a step must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// As written.
    pub text: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// The body contains these bytes.
    Body(Vec<u8>),
    /// The gRPC code is one of these.
    Grpc(Vec<Code>),
    /// A header field, in lower case, and its value.
    Header(String, Wanted),
    /// A path in a JSON body and its expected value. Without a value, anything but null passes.
    Json(Path, Option<serde_json::Value>),
    /// The body is shorter than this.
    MaxBytes(u64),
    /// The response time is shorter than this.
    MaxTime(Duration),
    /// The status is in one of these ranges.
    Status(Vec<(u16, u16)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Any,
    Contains(Vec<u8>),
    Is(Vec<u8>),
}

/// What a check expected, and what there was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    /// The check as written.
    pub text: String,
    /// What the answer had instead, in a few words. Never a part of a body, which may hold secrets.
    pub seen: String,
}

impl Check {
    /// Reads a check: `status=200`, `status=2xx,304`, `grpc=OK,NotFound` (also
    /// `grpc-status=`), `body~TEXT`, `json:$.a.b[0]=5`,
    /// `header:NAME`, `header:NAME=VALUE`, `header:NAME~TEXT`, `size<1MiB` or `p-max<2s`. `json:` without a value
    /// checks that the path exists and is not null.
    ///
    /// # Errors
    /// The text has none of these forms; the error says what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rule = if let Some(list) = text.strip_prefix("status=") {
            let ranges: Option<Vec<_>> = list.split(',').map(|s| statuses(s.trim())).collect();
            Rule::Status(ranges.ok_or("a status is 100 to 599 or a class: status=200, status=2xx,304")?)
        } else if let Some(list) = text.strip_prefix("grpc=").or_else(|| text.strip_prefix("grpc-status=")) {
            let codes: Option<Vec<_>> = list.split(',').map(|name| Code::named(name.trim())).collect();
            Rule::Grpc(codes.ok_or_else(|| format!("the codes of gRPC are {}", CODES.join(", ")))?)
        } else if let Some(part) = text.strip_prefix("body~") {
            if part.is_empty() {
                return Err("every body holds the empty text".to_owned());
            }
            Rule::Body(part.as_bytes().to_vec())
        } else if let Some(size) = text.strip_prefix("size<") {
            Rule::MaxBytes(
                weir_report::units::bytes(size).ok_or("a size is a number of bytes, 10KiB or 1MiB")?,
            )
        } else if let Some(time) = text.strip_prefix("p-max<") {
            let time = time.trim().parse::<weir_config::units::Duration>();
            Rule::MaxTime(time.map_err(|_| "a time has a unit: p-max<250ms, p-max<2s")?.0)
        } else if let Some(rule) = text.strip_prefix("json:") {
            let (path, value) = rule.split_once('=').map_or((rule, None), |(p, v)| (p, Some(v)));
            let path =
                Path::parse(path.trim()).ok_or("a path is $.name.name[0], $.list[*].id or $['any name']")?;
            // A value that is not JSON is text: json:$.name=Ann.
            let value = value.map(|v| serde_json::from_str(v).unwrap_or_else(|_| v.into()));
            Rule::Json(path, value)
        } else if let Some(rule) = text.strip_prefix("header:") {
            let end = rest_of_name(rule);
            let (name, rest) = rule.split_at(end);
            let wanted = match (rest.strip_prefix('='), rest.strip_prefix('~')) {
                (Some(value), _) => Wanted::Is(value.trim().as_bytes().to_vec()),
                (_, Some(part)) if !part.is_empty() => Wanted::Contains(part.as_bytes().to_vec()),
                _ if rest.is_empty() => Wanted::Any,
                _ => return Err("expected header:NAME, header:NAME=VALUE or header:NAME~TEXT".to_owned()),
            };
            if name.is_empty() {
                return Err("expected the name of a header field: header:content-type~json".to_owned());
            }
            Rule::Header(name.to_ascii_lowercase(), wanted)
        } else {
            return Err(
                "expected status=200, grpc=OK, body~TEXT, json:$.name=VALUE, header:NAME~TEXT, size<10KiB \
                        or p-max<2s"
                    .to_owned(),
            );
        };
        Ok(Self { text: text.to_owned(), rule })
    }

    /// Whether the answer passes. `elapsed` is the response time.
    ///
    /// # Errors
    /// The answer does not pass; the error has what was expected and what there was.
    pub fn judge(&self, answer: &Answer<'_>, elapsed: Duration) -> Result<(), CheckFailure> {
        let (passes, seen) = match &self.rule {
            Rule::Body(part) => {
                (memchr::memmem::find(answer.body, part).is_some(), Seen::NoText(answer.is_cut))
            }
            Rule::Grpc(codes) => {
                (answer.code.is_some_and(|code| codes.contains(&code)), Seen::Code(answer.code))
            }
            Rule::Header(name, wanted) => {
                let is_wanted = |value: &[u8]| match wanted {
                    Wanted::Any => true,
                    Wanted::Contains(part) => memchr::memmem::find(value, part).is_some(),
                    Wanted::Is(text) => value == text,
                };
                let mut values = answer.fields.get_all(name).peekable();
                let seen = if values.peek().is_some() { Seen::OtherField } else { Seen::NoField };
                (values.any(is_wanted), seen)
            }
            Rule::Json(path, wanted) => {
                let one;
                let found: Option<Vec<&serde_json::Value>> = if path.is_plural() {
                    answer.json().map(|json| path.find(json).unwrap_or_default())
                } else {
                    one = answer.json_at(path, if wanted.is_some() { Part::Whole } else { Part::Presence });
                    one.as_ref().ok().map(|value| value.iter().collect())
                };
                match found {
                    None => (false, Seen::NotJson(answer.is_cut)),
                    Some(found) => {
                        let passes = match wanted {
                            Some(wanted) => found.contains(&wanted),
                            None => found.iter().any(|value| !value.is_null()),
                        };
                        (passes, if found.is_empty() { Seen::NoValue } else { Seen::OtherValue })
                    }
                }
            }
            Rule::MaxBytes(most) => (answer.body_bytes < *most, Seen::Bytes(answer.body_bytes)),
            Rule::MaxTime(most) => (elapsed < *most, Seen::Time(elapsed)),
            Rule::Status(ranges) => {
                let passes = ranges.iter().any(|(from, to)| (*from..=*to).contains(&answer.status));
                (passes, Seen::Status(answer.status))
            }
        };
        if passes { Ok(()) } else { Err(CheckFailure { text: self.text.clone(), seen: seen.to_string() }) }
    }

    /// Whether the bytes of the body must be kept for it.
    pub const fn needs_body(&self) -> bool {
        matches!(self.rule, Rule::Body(_) | Rule::Json(..))
    }

    /// Whether it is about the code of a gRPC call.
    pub const fn is_of_grpc(&self) -> bool {
        matches!(self.rule, Rule::Grpc(_))
    }

    /// Whether it is about the body or the time, which every answer has.
    pub(crate) const fn is_of_body(&self) -> bool {
        matches!(self.rule, Rule::Body(_) | Rule::Json(..) | Rule::MaxBytes(_) | Rule::MaxTime(_))
    }

    /// Whether it is about a header field or the response time.
    pub const fn is_of_header_or_time(&self) -> bool {
        matches!(self.rule, Rule::Header(..) | Rule::MaxTime(_))
    }

    /// Whether it is about the status.
    pub(crate) const fn is_of_status(&self) -> bool {
        matches!(self.rule, Rule::Status(_))
    }
}

/// What an answer had instead.
enum Seen {
    Bytes(u64),
    Code(Option<Code>),
    NoField,
    NoText(bool),
    NoValue,
    NotJson(bool),
    OtherField,
    OtherValue,
    Status(u16),
    Time(Duration),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Code(Some(code)) => f.write_str(code.name()),
            Self::Code(None) => f.write_str("no gRPC code"),
            Self::NoField => f.write_str("no such field"),
            Self::NoText(false) => f.write_str("no such text"),
            Self::NoText(true) => f.write_str("no such text within `body_limit`"),
            Self::NoValue => f.write_str("no such value"),
            Self::NotJson(false) => f.write_str("a body that is not JSON"),
            Self::NotJson(true) => f.write_str("a body longer than `body_limit`"),
            Self::OtherField | Self::OtherValue => f.write_str("another value"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Time(time) => write!(f, "{} ms", time.as_millis()),
        }
    }
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.text, self.seen)
    }
}

/// Where the name of a field ends (RFC 9110 §5.6.2). `~` ends it too: the RFC allows it
/// in names, but no field in use has one.
fn rest_of_name(text: &str) -> usize {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|".contains(c);
    text.find(|c| !in_name(c)).unwrap_or(text.len())
}

fn statuses(text: &str) -> Option<(u16, u16)> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok()?;
        return (1..=5).contains(&class).then_some((class * 100, class * 100 + 99));
    }
    let status: u16 = text.parse().ok()?;
    (100..=599).contains(&status).then_some((status, status))
}

#[cfg(test)]
mod tests;
