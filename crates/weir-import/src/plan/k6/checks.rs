//! `check()`: the conditions that plans have too.

use super::Translator;
use super::parse::{Expression, Function, Kind, Site};
use super::value::V;
use crate::plan::text;
use std::collections::HashMap;

impl Translator<'_, '_> {
    /// `check(res, { 'name': (r) => r.status === 200 })`.
    pub(super) fn check(&mut self, site: Site, answer: &Expression, checks: &Expression) {
        let answer = self.value(answer);
        let piece = self.enter(site.line);
        let V::Answer(id) = answer else {
            self.cx.ledger.refused(
                piece,
                "a check of something that is no answer of a request in the plan",
                "`checks:`",
            );
            return;
        };
        let Expression::Object(entries) = checks else {
            self.cx.ledger.refused(piece, "a check whose conditions are not written out", "`checks:`");
            return;
        };
        let mut is_whole = true;
        for (title, condition) in entries {
            let found = match condition {
                Expression::Function(function) => {
                    self.followed.insert(std::rc::Rc::as_ptr(function));
                    self.condition(id, function)
                }
                // A value that is worked out before the check.
                condition => self.checks_of(condition),
            };
            match found {
                Some(found) => {
                    let list = self.checks.entry(id).or_default();
                    for check in found {
                        if !list.contains(&check) {
                            list.push(check);
                        }
                    }
                }
                None => {
                    is_whole = false;
                    let title = text::shortened(title);
                    self.cx.ledger.left_out(piece, format!("the check `{title}` is not one that plans have"));
                }
            }
        }
        if is_whole {
            self.cx.ledger.same(piece);
        } else {
            // Left out weighs less than same, and a check that is gone must be seen.
            self.cx.ledger.refused(
                piece,
                "a part of this check is not in the plan",
                "`status=…`, `json:…`, `header:…`, `body~…`, `p-max<…`",
            );
        }
    }

    fn condition(&mut self, id: usize, function: &Function) -> Option<Vec<String>> {
        let [statement] = &function.body[..] else { return None };
        let Kind::Return(Some(expression)) = &statement.kind else { return None };
        let name = function.parameters.first().cloned().unwrap_or_default();
        self.scopes.push(HashMap::from([(name, V::Answer(id))]));
        let found = self.checks_of(expression);
        self.scopes.pop();
        found
    }

    fn checks_of(&mut self, expression: &Expression) -> Option<Vec<String>> {
        match expression {
            Expression::Binary(left, "&&", right) => {
                let mut all = self.checks_of(left)?;
                all.extend(self.checks_of(right)?);
                Some(all)
            }
            // `r.status === 200 || r.status === 201`
            Expression::Binary(left, "||", right) => {
                let (left, right) = (self.checks_of(left)?, self.checks_of(right)?);
                match (&left[..], &right[..]) {
                    ([a], [b]) => {
                        let b = b.strip_prefix("status=")?;
                        a.strip_prefix("status=").map(|a| vec![format!("status={a},{b}")])
                    }
                    _ => None,
                }
            }
            Expression::Binary(left, sign, right) => {
                let (left, right) = (self.value(left), self.value(right));
                self.comparison(&left, sign, &right).map(|check| vec![check])
            }
            Expression::Call(callee, arguments, _) => {
                self.contains(callee, arguments).map(|check| vec![check])
            }
            other => match self.value(other) {
                V::Json(_, path) => Some(vec![format!("json:{path}")]),
                V::Header(_, name) => Some(vec![format!("header:{}", name.to_ascii_lowercase())]),
                _ => None,
            },
        }
    }

    fn comparison(&mut self, left: &V, sign: &str, right: &V) -> Option<String> {
        let is_equal = matches!(sign, "==" | "===");
        match (left, right) {
            (V::Status(_), V::Number(status)) if is_equal => {
                status.parse::<u16>().ok().filter(|s| (100..600).contains(s)).map(|s| format!("status={s}"))
            }
            (V::Status(_), V::Number(bound)) if sign == "<" && bound == "400" => {
                Some("status=1xx,2xx,3xx".to_owned())
            }
            (V::Named(time), V::Number(ms))
                if matches!(sign, "<" | "<=")
                    && time.starts_with("timings:")
                    && time.ends_with(".duration") =>
            {
                ms.parse::<u64>().ok().filter(|ms| *ms > 0).map(|ms| format!("p-max<{ms}ms"))
            }
            (V::Json(_, path), V::Text(text)) if is_equal && !text.contains("{{") => {
                Some(format!("json:{path}={}", serde_json::Value::from(text.as_str())))
            }
            (V::Json(_, path), V::Number(text)) if is_equal => Some(format!("json:{path}={text}")),
            (V::Json(_, path), V::Bool(flag)) if is_equal => Some(format!("json:{path}={flag}")),
            (V::Json(_, path), V::Null) if matches!(sign, "!=" | "!==") => Some(format!("json:{path}")),
            (V::Header(_, name), V::Text(text)) if is_equal && !text.contains("{{") => {
                Some(format!("header:{}={text}", name.to_ascii_lowercase()))
            }
            (V::Header(_, name), V::Null) if matches!(sign, "!=" | "!==") => {
                Some(format!("header:{}", name.to_ascii_lowercase()))
            }
            _ => None,
        }
    }

    /// `r.body.includes('x')`
    fn contains(&mut self, callee: &Expression, arguments: &[Expression]) -> Option<String> {
        let (Expression::Member(of, method), [argument]) = (callee, arguments) else {
            // `r.json('a.b')`
            return match callee {
                Expression::Member(_, method) if method == "json" => self.json_check(callee, arguments),
                _ => None,
            };
        };
        if method == "json" {
            return self.json_check(callee, arguments);
        }
        let (of, text) = (self.value(of), self.value(argument));
        let V::Text(text) = text else { return None };
        if text.contains("{{") || text.is_empty() {
            return None;
        }
        match (of, &**method) {
            (V::Body(_), "includes") => Some(format!("body~{text}")),
            (V::Header(_, name), "includes") => Some(format!("header:{}~{text}", name.to_ascii_lowercase())),
            _ => None,
        }
    }

    fn json_check(&mut self, callee: &Expression, arguments: &[Expression]) -> Option<String> {
        match self.call(callee, arguments) {
            V::Json(_, path) => Some(format!("json:{path}")),
            _ => None,
        }
    }
}
