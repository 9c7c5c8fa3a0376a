//! `if:` and `while:`: expressions of weir-expr over the names that are known there.

use super::names::Names;
use crate::condition::{Condition, Rule};
use crate::scope::Operand;
use weir_config::{Diagnostic, Diagnostics, Node, expression};
use weir_expr::{Phase, Schema, Var, Variable};

const PHASE: Phase = Phase(0);

/// Compiles the condition that a node holds. `key` is `if` or `while`.
pub(super) fn compile(
    node: &Node,
    key: &'static str,
    path: &str,
    names: &mut Names<'_>,
    found: &mut Diagnostics,
) -> Option<Condition> {
    let Some(text) = node.as_text().map(str::trim).filter(|text| !text.is_empty()) else {
        let message = "expected an expression such as etag != \"\" or size(items) > 0";
        found.push(at(Diagnostic::error("bad-expression", message).at(node.at.clone()), path));
        return None;
    };
    let all = names.all();
    // A name alone asks whether it has a value.
    if all.iter().any(|name| name == text) {
        let operand = names.find(text).ok()?.operand;
        return Some(Condition { text: text.to_owned(), rule: Rule::Name(operand) });
    }
    let mut schema = Schema::new(["step"]);
    let mut known = Vec::new();
    for name in &all {
        // Looking a name up marks it as used, so only those that the text may mention are.
        if !text.contains(name.as_str()) {
            continue;
        }
        let Ok(seen) = names.look(name) else { continue };
        let Ok(number) = u16::try_from(known.len()) else { break };
        let variable = Variable::new(name.as_str(), Var(number), PHASE, seen.ty.clone());
        let may_miss = seen.is_optional || seen.may_miss;
        schema = schema.with(if may_miss && !is_always_comparable(&seen.ty) {
            variable.optional()
        } else {
            variable
        });
        known.push(name.clone());
    }
    let is_sound = |text: &str| weir_expr::Condition::compile(text, &schema, PHASE).is_ok();
    if let Some(refusal) = expression::refusal(node, key, found, is_sound) {
        found.push(at(refusal, path));
        return None;
    }
    match weir_expr::Condition::compile(text, &schema, PHASE) {
        Ok(condition) => {
            let mut operands = vec![Operand::Counter; known.len()];
            for read in condition.reads() {
                let name = known.get(usize::from(read.var.0))?;
                *operands.get_mut(usize::from(read.var.0))? = names.find(name).ok()?.operand;
            }
            let operands = operands.into();
            Some(Condition { text: text.to_owned(), rule: Rule::Expression { condition, operands } })
        }
        Err(mistakes) => {
            for mistake in mistakes {
                let place = expression::place_within(node, mistake.range.start, found);
                let mut wrong =
                    Diagnostic::error("bad-expression", mistake.message).at(place).concealing(node);
                let misread = hint_of_words(text);
                if let Some(hint) = misread.map(str::to_owned).or(mistake.hint) {
                    wrong = wrong.hint(hint);
                }
                found.push(at(wrong, path));
            }
            None
        }
    }
}

fn at(mut diagnostic: Diagnostic, path: &str) -> Diagnostic {
    path.clone_into(&mut diagnostic.path);
    diagnostic
}

/// Text and JSON without a value compare by themselves; others need `??`.
fn is_always_comparable(ty: &weir_expr::Type) -> bool {
    matches!(ty, weir_expr::Type::Json | weir_expr::Type::Text)
}

/// What to write in place of words of other languages.
fn hint_of_words(text: &str) -> Option<&'static str> {
    let has =
        |word: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|part| part == word);
    if has("and") || has("or") || has("not") {
        return Some("expressions are those of CEL: write && for and, || for or, ! for not");
    }
    let single = text.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", "").contains('=');
    single.then_some("expressions are those of CEL: write == to compare")
}
