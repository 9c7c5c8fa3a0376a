//! `match.when`: compiles the expressions of routes before the table, and puts their mistakes where they stand.

use super::{Compiler, routes};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use weir_config::Diagnostic;
use weir_config::expression::{place_within, refusal};
use weir_config::schema::Written;
use weir_route::When;
use weir_route::variables::Vocabulary;

/// The expressions of routes, by the routes' names.
pub(super) type Whens = HashMap<Arc<str>, Box<When>>;

impl Compiler<'_> {
    pub(super) fn whens(&mut self, vocabulary: &Vocabulary) -> Whens {
        let mut whens = Whens::new();
        for Written { name, thing: route, node } in self.config.routes.written(self.tree.get("routes")) {
            let Some(node) = node.and_then(|node| node.get("match")?.get("when")) else { continue };
            let path = format!("routes.{name}.match.when");
            let captures = routes::captures(&route.matches);
            let compile = |text: &str| When::compile(text, captures.as_deref(), vocabulary);
            if let Some(mut refused) = refusal(node, "when", self.found, |text| compile(text).is_ok()) {
                refused.path = path;
                self.found.push(refused);
                continue;
            }
            let Some(written) = &route.matches.when else { continue };
            match compile(&written.0) {
                Ok(when) => {
                    let warning = match when.constant() {
                        None => None,
                        Some(true) => Some(("every request meets this condition", "leave it out")),
                        Some(false) => Some((
                            "no request meets this condition, so the route never wins",
                            "remove the route, or mend the expression",
                        )),
                    };
                    let told = warning.map(|(message, hint)| {
                        Diagnostic::warning("constant-condition", message).on(self.tree, &path).hint(hint)
                    });
                    told.into_iter().for_each(|told| self.found.push(told));
                    whens.insert(Arc::clone(name), Box::new(when));
                }
                Err(mistakes) => {
                    for mistake in mistakes {
                        let (message, hint) = (mistake.message.into(), mistake.hint.map(Cow::from));
                        self.expression_mistake(&path, mistake.range.start, message, hint);
                    }
                }
            }
        }
        whens
    }

    /// Reports a mistake at a byte of the expression at `path`.
    pub(super) fn expression_mistake(
        &mut self,
        path: &str,
        offset: usize,
        message: Cow<'static, str>,
        hint: Option<Cow<'static, str>>,
    ) {
        let mut told = Diagnostic::error("bad-expression", message).on(self.tree, path);
        if let Some(node) = self.tree.find(path) {
            told = told.at(place_within(node, offset, self.found));
        }
        self.found.push(match hint {
            Some(hint) => told.hint(hint),
            None => told,
        });
    }
}
