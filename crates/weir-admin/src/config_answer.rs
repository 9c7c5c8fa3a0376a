//! The parts that answers about the config share: what a change did, why it was refused, and mistakes as the caller
//! may see them.

use crate::answer::{self, Answer};
use crate::documents::{self, Checked};
use crate::guard::Identity;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value, json};
use std::path::Path;
use weir_gateway::config::Diagnostics;
use weir_gateway::config::schema::Role;
use weir_gateway::history::RevisionStatus;
use weir_gateway::{Changed, Gateway, NotChanged, request_file};
use weir_wire::Chain;

/// Most revisions listed in an answer about a conflicting change.
const MEANWHILE: usize = 5;

/// Config digests before and after a change, for the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) number: Option<u64>,
}

pub(crate) type Outcome = Result<Answer, Answer>;

/// The result of a change, as JSON.
pub(crate) fn document(gateway: &Gateway, changed: &Changed, who: &Identity, dry_run: bool) -> Value {
    let told = redacted_for(&changed.diagnostics, who, gateway.texts().managed_path.as_deref());
    let unsaved = changed.unsaved.as_ref().map_or_else(String::new, |why| {
        format!("IT RUNS FROM MEMORY ONLY, because it could not be written down: {why}\n")
    });
    let (differences, consequences) = (changed.differences.to_text(), changed.consequences.to_text());
    let mut checked = Checked::of(&told);
    checked.text.push_str(&as_before(changed.repeated));
    checked.text.extend([differences, consequences, unsaved]);
    json!(documents::Changed {
        revision: &changed.revision,
        hash: &changed.hash,
        number: changed.number,
        dry_run,
        differences: &changed.differences,
        touched: gateway.touched(&changed.differences),
        unsaved: changed.unsaved.as_deref(),
        consequences: &changed.consequences,
        checked,
    })
}

/// Warnings that were there before a change, for people.
fn as_before(warnings: usize) -> String {
    match warnings {
        0 => String::new(),
        1 => "1 warning as before; `weir check` lists it\n".to_owned(),
        n => format!("{n} warnings as before; `weir check` lists them\n"),
    }
}

pub(crate) fn with_trail(mut answer: Answer, before: String, changed: &Changed) -> Answer {
    let trail = Trail { before, after: changed.hash.clone(), number: changed.number };
    answer.extensions_mut().insert(trail);
    answer
}

pub(crate) fn tagged(mut answer: Answer, tag: &str) -> Answer {
    if let Ok(value) = HeaderValue::try_from(format!("\"{tag}\"")) {
        answer.headers_mut().insert(header::ETAG, value);
    }
    answer
}

/// Mistakes as JSON and text.
pub(crate) fn members_for(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Value {
    json!(Checked::of(&redacted_for(diagnostics, who, gateway.texts().managed_path.as_deref())))
}

/// Mistakes, redacted for this caller: `admin` may take over every file, `write` changes only managed entries.
pub(crate) fn redacted_for(diagnostics: &Diagnostics, who: &Identity, managed: Option<&Path>) -> Diagnostics {
    match (who.role, managed) {
        (Role::Admin, _) => diagnostics.clone(),
        (Role::Write, Some(managed)) => diagnostics.for_writers_of(&[managed, &request_file(managed)]),
        _ => diagnostics.for_readers(),
    }
}

pub(crate) fn mistakes(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = "the config has mistakes; nothing has changed";
    answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members_for(diagnostics, who, gateway))
}

/// The answer to a refused change.
pub(crate) fn refuse(not: &NotChanged, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = Chain(not).to_string();
    match not {
        NotChanged::Draining | NotChanged::Upgrading | NotChanged::Fleet | NotChanged::NoWrites => {
            answer::problem(StatusCode::CONFLICT, &detail)
        }
        NotChanged::Exists(_) => answer::problem(StatusCode::PRECONDITION_FAILED, &detail),
        NotChanged::NoHistory | NotChanged::NoRevision(_) | NotChanged::Missing(_) => {
            answer::problem(StatusCode::NOT_FOUND, &detail)
        }
        NotChanged::Owned(_, place) => {
            answer::problem_with(StatusCode::CONFLICT, &detail, json!({ "place": place }))
        }
        NotChanged::Stale(thing, now) => {
            let members = json!({ "etag": format!("\"{now}\""), "changed_by": meanwhile(thing, gateway) });
            answer::problem_with(StatusCode::PRECONDITION_FAILED, &detail, members)
        }
        NotChanged::Refused(diagnostics) => mistakes(diagnostics, who, gateway),
        NotChanged::Referenced(diagnostics) => {
            let detail = "others need it; nothing has changed";
            answer::problem_with(StatusCode::CONFLICT, detail, members_for(diagnostics, who, gateway))
        }
        _ => answer::problem(StatusCode::INSUFFICIENT_STORAGE, &detail),
    }
}

/// The latest revisions that changed an entry, newest first.
fn meanwhile(thing: &str, gateway: &Gateway) -> Vec<RevisionStatus> {
    let revisions = gateway.revisions().unwrap_or_default();
    let changed = revisions.into_iter().rev();
    changed.filter(|revision| revision.changed.iter().any(|name| name == thing)).take(MEANWHILE).collect()
}

pub(crate) fn extend(document: &mut Value, members: Value) {
    if let (Value::Object(document), Value::Object(members)) = (document, members) {
        document.extend(members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_is_no_warnings() {
        assert_eq!(as_before(0), "");
        assert_eq!(as_before(1), "1 warning as before; `weir check` lists it\n");
        assert_eq!(as_before(2), "2 warnings as before; `weir check` lists them\n");
    }
}
