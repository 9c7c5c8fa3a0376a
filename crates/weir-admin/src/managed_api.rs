//! `/api/v1/managed`: the managed file as text with comments, for editing. Readers see masks instead of its
//! secrets.

#![allow(clippy::result_large_err, reason = "a refusal is an answer, made once a call and never in a loop")]

use crate::answer::{self, Answer};
use crate::config_answer::{Outcome, document, members_for, refuse, tagged, with_trail};
use crate::config_request::{ConfigRequest, by, flag, tags, terms};
use crate::documents::Managed;
use hyper::{StatusCode, header};
use serde_json::json;
use weir_gateway::history::Origin;
use weir_gateway::{Gateway, NotChanged, Rewrite, Terms};

/// Returns the text and its ETag.
pub(crate) fn read(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let managed =
        gateway.managed_text(asked.who.writes()).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let path = managed.path.display().to_string();
    let document = Managed { path, text: managed.text, hidden: managed.hidden };
    Ok(tagged(answer::json(StatusCode::OK, &json!(document)), &managed.tag))
}

/// Replaces the text.
pub(crate) fn rewrite(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let dry_run = flag(&asked.uri, asked.call)?.contains(&"dry_run");
    let rewrite = Rewrite { terms: terms(&asked.uri)?, ..wanted(asked, dry_run)? };
    let before = gateway.texts().hash;
    let changed = gateway.rewrite(&rewrite).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let answer = answer::json(StatusCode::OK, &document(gateway, &changed, &asked.who, dry_run));
    Ok(with_trail(answer, before, &changed))
}

/// What replacing the text would change. Editors call this while somebody types, so an incomplete text is no
/// error.
pub(crate) fn check(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    match gateway.rewrite(&wanted(asked, true)?) {
        Ok(changed) => Ok(answer::json(StatusCode::OK, &document(gateway, &changed, &asked.who, true))),
        Err(NotChanged::Refused(diagnostics)) => {
            Ok(answer::json(StatusCode::OK, &members_for(&diagnostics, &asked.who, gateway)))
        }
        Err(not) => Err(refuse(&not, &asked.who, gateway)),
    }
}

fn wanted(asked: &ConfigRequest, dry_run: bool) -> Result<Rewrite, Answer> {
    let Some(only_from) = tags(&asked.headers, header::IF_MATCH)? else {
        let detail = "say which version you change: If-Match with the ETag from GET, or *";
        return Err(answer::problem(StatusCode::PRECONDITION_REQUIRED, detail));
    };
    let only_from = if only_from == ["*"] { Vec::new() } else { only_from };
    let (text, by) = (asked.body.clone(), by(asked, Origin::Api));
    Ok(Rewrite { text, only_from, by, dry_run, terms: Terms::default() })
}
