//! Rules that change the path.

use super::super::context::Cx;
use super::super::read::Line;
use super::super::text::template;
use super::Build;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::when;
use crate::yaml::Map;

impl<'a> Build<'_, 'a> {
    pub(super) fn set_path(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        let path = line.word(2).to_owned();
        let made = template(cx, self.scope, &path);
        self.touch_path(None);
        match made {
            Ok(text) if !path.contains('?') => {
                let filters = vec![Filter::new(
                    "rewrite",
                    Map::new().with("path", super::super::paths::setting(&text)),
                )];
                match self.conditional(cx, line, 3, filters, "the filter rewrite: { path }") {
                    true => cx.ledger.same(line.piece),
                    false => self.close_known(cx, line, 3, "it changes the path"),
                }
            }
            Ok(_) => {
                cx.ledger.refused(line.piece, "path and query in one", "rewrite: { path, query }");
                self.close_known(cx, line, 3, "it changes the path");
            }
            Err(why) => {
                cx.ledger.refused(line.piece, why.clone(), "the filter rewrite: { path }");
                self.close_known(cx, line, 3, &why);
            }
        }
    }

    pub(super) fn replace_path(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        let made = super::super::paths::replace(line.word(2), line.word(3), line.word(1) == "replace-pathq");
        // The condition sees the path as it came.
        let is = self.when(cx, line, 4);
        let changes = match (&made, &is) {
            (Ok(made), Ok(is)) => Some(is.clone().and(made.is.clone())),
            // Where it is not translated, its requests are closed by a filter.
            (Err(_), Ok(is)) => Some(is.clone()),
            _ => None,
        };
        self.touch_path(changes);
        match (made, is) {
            (Ok(made), Ok(is)) => {
                let is = is.and(made.is);
                self.push(when(&is, vec![made.filter], Vec::new()));
                match made.why {
                    Some(why) => cx.ledger.changed(line.piece, why),
                    None => cx.ledger.same(line.piece),
                }
            }
            (Err(why), _) | (_, Err(why)) => {
                let nearest = "match.path: \"~/a/(.*)\" with rewrite: { path: \"/b/{1}\" }, or strip_prefix";
                cx.ledger.refused(line.piece, why.clone(), nearest);
                self.close_known(cx, line, 4, &why);
            }
        }
    }

    /// Notes that a rule changes the path: of these requests, if that is known.
    fn touch_path(&mut self, of: Option<Expression>) {
        const PATH: &str = "request.path";
        let is_first = !self.scope.touched.iter().any(|touched| touched == PATH);
        self.scope.path_changes = match (of, self.scope.path_changes.take()) {
            (Some(of), None) if is_first => Some(of),
            (Some(of), Some(before)) => Some(before.or(of)),
            _ => None,
        };
        self.scope.touched.push(PATH.to_owned());
    }
}
