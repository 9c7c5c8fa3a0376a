//! Checks of single responses: `--check status=200`.

use crate::options::Mistake;

/// What every response must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// As written.
    pub text: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// The body holds these bytes.
    Body(Vec<u8>),
    /// The body is no longer than this.
    MaxBytes(u64),
    /// The status is in one of these ranges.
    Status(Vec<(u16, u16)>),
}

/// Longest part of a body that is kept for checks: 1 MiB. What lies behind it is not looked at.
pub(crate) const BODY_KEPT: usize = 1024 * 1024;

impl Check {
    /// Reads `status=200`, `status=2xx,304`, `body~TEXT` or `size<1MiB`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let bad = |hint: &str| Mistake::new(&format!("--check {text}"), hint);
        let rule = if let Some(list) = text.strip_prefix("status=") {
            let ranges: Option<Vec<_>> = list.split(',').map(|s| statuses(s.trim())).collect();
            Rule::Status(
                ranges.ok_or_else(|| bad("a status is 100 to 599 or a class: status=200, status=2xx,304"))?,
            )
        } else if let Some(part) = text.strip_prefix("body~") {
            if part.is_empty() {
                return Err(bad("every body holds the empty text"));
            }
            Rule::Body(part.as_bytes().to_vec())
        } else if let Some(size) = text.strip_prefix("size<") {
            Rule::MaxBytes(
                crate::units::bytes(size).ok_or_else(|| bad("a size is a number of bytes, 10KiB or 1MiB"))?,
            )
        } else {
            return Err(bad("expected status=200, body~TEXT or size<10KiB"));
        };
        Ok(Self { text: text.to_owned(), rule })
    }

    /// Whether the body's bytes must be kept.
    pub(crate) const fn needs_body(&self) -> bool {
        matches!(self.rule, Rule::Body(_))
    }

    /// Whether a response passes. `body` is empty unless a check of the plan needs it.
    pub(crate) fn passes(&self, status: u16, body: &[u8], body_bytes: u64) -> bool {
        match &self.rule {
            Rule::Body(part) => memchr::memmem::find(body, part).is_some(),
            Rule::MaxBytes(most) => body_bytes < *most,
            Rule::Status(ranges) => ranges.iter().any(|(from, to)| (*from..=*to).contains(&status)),
        }
    }
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
            ("size<5", 200, "hello", false),
            ("size<6", 200, "hello", true),
        ] {
            let passes = Check::parse(check).unwrap().passes(status, body.as_bytes(), body.len() as u64);
            assert_eq!(passes, want, "{check} on {status} {body:?}");
        }
    }

    #[test]
    fn what_is_no_check_is_refused() {
        for bad in
            ["", "status", "status=", "status=20", "status=6xx", "status=200;", "body~", "size<x", "size=5"]
        {
            assert!(Check::parse(bad).is_err(), "{bad}");
        }
    }
}
