//! Removes keeps that no step uses, because a plan refuses them.

use super::model::{Does, Plan, Request, Step};
use super::text;

/// Takes out keeps that no later request of the same scenario uses. Returns their names.
pub fn drop_unused(plan: &mut Plan) -> Vec<String> {
    let mut dropped = Vec::new();
    for scenario in &mut plan.scenarios {
        let mut uses = Vec::new();
        let mut loops = false;
        for list in [&mut scenario.start, &mut scenario.steps, &mut scenario.end] {
            collect(list, &mut uses, &mut loops);
        }
        let mut at = 0;
        for list in [&mut scenario.start, &mut scenario.steps, &mut scenario.end] {
            super::model::each_request(list, &mut |request| {
                // In a loop, an earlier step uses what the round before kept.
                let later = if loops { 0 } else { at + 1 };
                let is_used = |name: &str| uses.iter().skip(later).any(|texts| uses_name(texts, name));
                request.keep.retain(|keep| {
                    let is_used = is_used(&keep.name);
                    if !is_used {
                        dropped.push(keep.name.clone());
                    }
                    is_used
                });
                at += 1;
            });
        }
    }
    dropped
}

/// Whether a text has a placeholder of this name.
#[must_use]
pub fn uses_name(text: &str, name: &str) -> bool {
    let begin = format!("{{{{{name}");
    text.match_indices(&*begin).any(|(at, _)| {
        let after = text.get(at + begin.len()..).unwrap_or_default();
        after.starts_with("}}") || after.starts_with('|')
    }) || text.contains(&format!(":{}", text::placeholder(name)))
}

/// The texts of each request, in order. Conditions count as those of the request before.
fn collect(list: &mut [Step], uses: &mut Vec<String>, loops: &mut bool) {
    for step in list {
        let condition = match &mut step.does {
            Does::Request(request) => {
                uses.push(texts(request));
                continue;
            }
            Does::If { condition, .. } => Some(condition.clone()),
            Does::While { condition, .. } => {
                *loops = true;
                Some(condition.clone())
            }
            Does::Repeat(..) => {
                *loops = true;
                None
            }
            Does::Parallel(..) | Does::Pause(_) => None,
        };
        if let Some(inner) = step.inner_mut() {
            let first = uses.len();
            collect(inner, uses, loops);
            // A condition names things without braces.
            if let (Some(condition), Some(texts)) = (condition, uses.get_mut(first)) {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                for word in condition.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()) {
                    texts.push_str(&text::placeholder(word));
                    texts.push('\n');
                }
            }
        }
    }
}

fn texts(request: &mut Request) -> String {
    let mut all = String::new();
    request.parts_mut(&mut |text| {
        if text.contains("{{") {
            all.push_str(text);
            all.push('\n');
        }
    });
    all
}
