//! nginx's variables: what `set` and `auth_request_set` give them, in an `if` too.

use super::context::{Cx, Scope};
use super::read::Directive;
use super::text::{expression, template};
use crate::shared::expression::Expression;
use crate::shared::template::{Part, Template};

/// `set $x TEXT`.
pub(super) fn set<'a>(cx: &mut Cx<'a, '_>, scope: &mut Scope<'a>, directive: &Directive) {
    let [name, value] = &*directive.args else {
        return cx.ledger.refused(directive.piece, "`set` takes a variable and a value", "maps");
    };
    match template(cx, scope, value) {
        Ok(value) => {
            cx.ledger.same(directive.piece);
            scope.set.insert(name.trim_start_matches('$').to_owned(), value);
        }
        Err(why) => {
            cx.ledger.refused(directive.piece, why, "maps");
            // Nothing behind may read the value that it had before.
            scope.set.remove(variable_of(directive));
        }
    }
}

/// `auth_request_set $user $upstream_http_x_user`: the field of the answer becomes one of the request. The variable
/// gets its value after `if` and `set`, in locations that ask. Elsewhere it is empty, so it must not read a field that
/// the client may have sent.
pub(super) fn auth_request_set<'a>(cx: &mut Cx<'a, '_>, scope: &mut Scope<'a>) {
    let asks = scope.block.one("auth_request").is_some_and(|request| request.first() != "off");
    for directive in scope.block.nearest("auth_request_set") {
        let [name, value] = &*directive.args else { continue };
        let name = name.trim_start_matches('$').to_owned();
        match answered_field(value) {
            Some(field) => {
                cx.ledger.same(directive.piece);
                let mut template = Template::default();
                if asks {
                    template.push(Part::Value(Expression::of("request.headers", &field)));
                }
                scope.set.insert(name, template);
            }
            None => {
                let why = "of the answer of the authorization service, Weir keeps fields";
                cx.ledger.refused(directive.piece, why, "forward_auth: { copy }");
                scope.set.remove(&name);
            }
        }
    }
}

/// The field of the service's answer that a variable names: `$upstream_http_x_user`.
pub(super) fn answered_field(variable: &str) -> Option<String> {
    let name = variable.trim_start_matches('$').strip_prefix("upstream_http_")?;
    Some(name.to_ascii_lowercase().replace('_', "-"))
}

/// Longest value of a variable, as an expression in bytes: each `if` that adds to one doubles it.
const MAX_VARIABLE: usize = 4096;

/// Whether the value that a `set` in an `if` gives can be chosen by the condition.
pub(super) fn choose(
    is: &Expression,
    scope: &Scope<'_>,
    inner: &Scope<'_>,
    set: &Directive,
) -> Result<(), String> {
    let name = variable_of(set);
    let value = inner.set.get(name).ok_or("its `set` is refused")?;
    match chosen(is, scope, name, value).parts() {
        [Part::Value(value)] if value.as_str().len() > MAX_VARIABLE => {
            Err(format!("`${name}` is set in more `if`s than one expression can hold"))
        }
        _ => Ok(()),
    }
}

/// A variable behind an `if`: the value that the `if` sets, or the one before it.
pub(super) fn chosen(is: &Expression, scope: &Scope<'_>, name: &str, value: &Template) -> Template {
    let before = scope.set.get(name).cloned().unwrap_or_default();
    let mut template = Template::default();
    template.push(Part::Value(is.clone().choose(expression(value), expression(&before))));
    template
}

/// The name of the variable that `set` or `auth_request_set` sets.
pub(super) fn variable_of(directive: &Directive) -> &str {
    directive.first().trim_start_matches('$')
}

/// Whether a variable depends on an `if` about the path or the query, which Weir would ask anew behind a `rewrite`.
pub(super) fn chooses_by_path(value: &Template) -> bool {
    value.parts().iter().any(|part| match part {
        Part::Value(value) => {
            let text = value.as_str();
            text.contains(" ? ")
                && ["request.path", "request.query", "request.args"].iter().any(|name| text.contains(name))
        }
        _ => false,
    })
}
