//! Checks of single responses: `--check status=200`.

use crate::grpc::{CODES, Code};
use weir_report::Mistake;

/// A condition that every response must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The check as written.
    pub text: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// The body contains these bytes.
    Body(Vec<u8>),
    /// The gRPC code is one of these.
    Grpc(Vec<Code>),
    /// A path in a JSON body and its expected value. Without a value, anything but null passes.
    Json(Vec<Step>, Option<serde_json::Value>),
    /// The body is shorter than this.
    MaxBytes(u64),
    /// The status is in one of these ranges.
    Status(Vec<(u16, u16)>),
}

/// One step into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Index(usize),
    Name(String),
}

/// Longest part of a body that is kept for checks: 1 MiB. Checks ignore the rest.
pub(crate) const BODY_KEPT: usize = 1024 * 1024;

impl Check {
    /// Reads `status=200`, `status=2xx,304`, `grpc=OK`, `grpc=OK,NotFound`, `body~TEXT`, `json:$.a.b[0]=5` or
    /// `size<1MiB`. `json:` without a value checks that the path exists and is not null.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let bad = |hint: &str| Mistake::new(&format!("--check {text}"), hint);
        let rule = if let Some(list) = text.strip_prefix("status=") {
            let ranges: Option<Vec<_>> = list.split(',').map(|s| statuses(s.trim())).collect();
            Rule::Status(
                ranges.ok_or_else(|| bad("a status is 100 to 599 or a class: status=200, status=2xx,304"))?,
            )
        } else if let Some(list) = text.strip_prefix("grpc=") {
            let codes: Option<Vec<_>> = list.split(',').map(|name| Code::named(name.trim())).collect();
            Rule::Grpc(codes.ok_or_else(|| bad(&format!("the codes of gRPC are {}", CODES.join(", "))))?)
        } else if let Some(part) = text.strip_prefix("body~") {
            if part.is_empty() {
                return Err(bad("every body holds the empty text"));
            }
            Rule::Body(part.as_bytes().to_vec())
        } else if let Some(size) = text.strip_prefix("size<") {
            Rule::MaxBytes(
                weir_report::units::bytes(size)
                    .ok_or_else(|| bad("a size is a number of bytes, 10KiB or 1MiB"))?,
            )
        } else if let Some(rule) = text.strip_prefix("json:") {
            let (path, value) = rule.split_once('=').map_or((rule, None), |(p, v)| (p, Some(v)));
            let steps = steps(path.trim()).ok_or_else(|| bad("a path is $.name.name[0] or $['any name']"))?;
            // A value that is not JSON is text: json:$.name=Ann.
            let value = value.map(|v| serde_json::from_str(v).unwrap_or_else(|_| v.into()));
            Rule::Json(steps, value)
        } else {
            return Err(bad("expected status=200, grpc=OK, body~TEXT, json:$.name=VALUE or size<10KiB"));
        };
        Ok(Self { text: text.to_owned(), rule })
    }

    /// Whether the body's bytes must be kept.
    pub(crate) const fn needs_body(&self) -> bool {
        matches!(self.rule, Rule::Body(_) | Rule::Json(..))
    }

    /// Whether a response passes. `body` is empty unless a check of the plan needs it.
    pub(crate) fn passes(&self, status: u16, grpc: Option<Code>, body: &[u8], body_bytes: u64) -> bool {
        match &self.rule {
            Rule::Grpc(codes) => grpc.is_some_and(|code| codes.contains(&code)),
            Rule::Body(part) => memchr::memmem::find(body, part).is_some(),
            Rule::Json(steps, value) => found(body, steps, value.as_ref()),
            Rule::MaxBytes(most) => body_bytes < *most,
            Rule::Status(ranges) => ranges.iter().any(|(from, to)| (*from..=*to).contains(&status)),
        }
    }
}

/// Whether the value at the end of the path is the wanted one.
fn found(body: &[u8], steps: &[Step], wanted: Option<&serde_json::Value>) -> bool {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    let mut at = &json;
    for step in steps {
        let next = match step {
            Step::Index(i) => at.get(i),
            Step::Name(name) => at.get(name),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    wanted.map_or(!at.is_null(), |w| w == at)
}

/// `$.a.b[0]['c d']`: the part of JSONPath (RFC 9535) that names a single value.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(dotted) = rest.strip_prefix('.') {
            let end = dotted.find(['.', '[']).unwrap_or(dotted.len());
            let (name, after) = dotted.split_at(end);
            if name.is_empty() || name == "*" {
                return None;
            }
            steps.push(Step::Name(name.to_owned()));
            rest = after;
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = ['\'', '"'].iter().find_map(|q| inside.strip_prefix(*q)?.strip_suffix(*q));
            steps.push(match quoted {
                Some(name) => Step::Name(name.to_owned()),
                None => Step::Index(inside.parse().ok()?),
            });
            rest = after;
        }
    }
    Some(steps)
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
mod tests {
    use super::*;

    #[test]
    fn checks_pass_and_fail() {
        for (check, status, body, want) in [
            ("status=200", 200, "", true),
            ("status=200", 204, "", false),
            ("status=2xx,304", 299, "", true),
            ("status=2xx,304", 304, "", true),
            ("status=2xx,304", 500, "", false),
            ("body~ell", 200, "hello", true),
            ("body~elx", 200, "hello", false),
            ("json:$.a.b[1]=5", 200, "{\"a\":{\"b\":[1,5]}}", true),
            ("json:$.a.b[1]=6", 200, "{\"a\":{\"b\":[1,5]}}", false),
            ("json:$['x y']=Ann", 200, "{\"x y\":\"Ann\"}", true),
            ("json:$.a", 200, "{\"a\":false}", true),
            ("json:$.a", 200, "{\"a\":null}", false),
            ("json:$.a.b", 200, "[1]", false),
            ("json:$=7", 200, "7", true),
            ("json:$=7", 200, "seven", false),
            ("size<5", 200, "hello", false),
            ("size<6", 200, "hello", true),
        ] {
            let passes =
                Check::parse(check).unwrap().passes(status, None, body.as_bytes(), body.len() as u64);
            assert_eq!(passes, want, "{check} on {status} {body:?}");
        }
    }

    #[test]
    fn codes_of_grpc_are_checked() {
        let (ok, lost) = (Code::named("OK"), Code::named("DATA_LOSS"));
        for (check, code, want) in [
            ("grpc=OK", ok, true),
            ("grpc=0", ok, true),
            ("grpc=OK", lost, false),
            ("grpc=ok,DataLoss", lost, true),
            ("grpc=OK", None, false),
        ] {
            assert_eq!(Check::parse(check).unwrap().passes(200, code, b"", 0), want, "{check} on {code:?}");
        }
    }

    #[test]
    fn what_is_no_check_is_refused() {
        for bad in [
            "grpc=",
            "grpc=Fine",
            "grpc=17",
            "",
            "status",
            "status=",
            "status=20",
            "status=6xx",
            "status=200;",
            "body~",
            "json:a",
            "json:$.",
            "json:$.*",
            "json:$[x]",
            "json:$[1",
            "size<x",
            "size=5",
        ] {
            assert!(Check::parse(bad).is_err(), "{bad}");
        }
    }
}
