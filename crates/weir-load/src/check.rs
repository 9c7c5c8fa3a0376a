//! Checks of single responses: `--check status=200`. The rules are those of the steps of a plan, in weir-plan.

use crate::grpc::Code;
use std::time::Duration;
use weir_h1::Fields;
use weir_plan::Answer;
use weir_report::Mistake;

/// A condition that every response must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The check as written.
    pub text: String,
    rule: weir_plan::Check,
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
        let rule = weir_plan::Check::parse(text).map_err(|hint| bad(&hint))?;
        if rule.is_of_header_or_time() {
            return Err(bad(
                "only the steps of a plan (-f) check header fields and times of single responses",
            ));
        }
        Ok(Self { text: text.to_owned(), rule })
    }

    /// Whether the body's bytes must be kept.
    pub(crate) const fn needs_body(&self) -> bool {
        self.rule.needs_body()
    }

    /// Whether a response passes. `body` is empty unless a check of the plan needs it.
    pub(crate) fn passes(&self, status: u16, grpc: Option<Code>, body: &[u8], body_bytes: u64) -> bool {
        let fields = Fields::default();
        let mut answer = Answer::new(status, &fields, body);
        answer.code = grpc;
        answer.body_bytes = body_bytes;
        self.rule.judge(&answer, Duration::ZERO).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_those_of_plans() {
        let ok = Code::named("OK");
        for (check, body, bytes, want) in [
            ("status=200", "", 0, true),
            ("status=204", "", 0, false),
            ("grpc=OK", "", 0, true),
            ("grpc=NotFound", "", 0, false),
            ("body~ell", "hello", 5, true),
            ("json:$.a[*]=2", "{\"a\":[1,2]}", 11, true),
            ("size<6", "", 5, true),
            ("size<5", "", 5, false),
        ] {
            let passes = Check::parse(check).unwrap().passes(200, ok, body.as_bytes(), bytes);
            assert_eq!(passes, want, "{check} on {body:?}");
        }
    }

    #[test]
    fn what_no_response_of_a_run_has_is_refused() {
        for bad in ["", "status=20", "json:$.", "header:etag", "p-max<2s"] {
            assert!(Check::parse(bad).is_err(), "{bad}");
        }
    }
}
