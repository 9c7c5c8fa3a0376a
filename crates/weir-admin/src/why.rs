//! `GET /api/v1/why` and `GET /api/v1/why/{id}`: parses the request target, and answers.

use crate::answer::{self, Answer};
use crate::by_hand::plain;
use hyper::{StatusCode, Uri};
use serde_json::json;
use weir_gateway::Gateway;
use weir_gateway::autopsy::{self, Question};

/// The path, as the documentation writes it.
pub(crate) const PATH: &str = "/api/v1/why";

/// Most exchanges in one answer, and the default number.
const MOST: usize = 100;
const DEFAULT: usize = 20;

/// Longest id to look for, since no request has a longer one.
const ID_BYTES: usize = 128;

/// Whether a path is one of these.
pub(crate) fn is_at(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Parses a target.
///
/// # Errors
/// The mistake, in words.
pub(crate) fn read(uri: &Uri) -> Result<Question, String> {
    let id = uri.path().strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/'));
    let id = id.map(plain).transpose()?;
    if id.as_ref().is_some_and(|id| id.is_empty() || id.len() > ID_BYTES) {
        return Err(format!("an id has from 1 to {ID_BYTES} bytes"));
    }
    let mut question = Question { id, most: DEFAULT, ..Question::default() };
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = plain(value)?;
        match name {
            "after" => question.after = cursor(&value)?,
            "cause" => question.cause = Some(value),
            "kind" if ["failed", "sampled", "slow"].contains(&&*value) => question.kind = Some(value),
            "kind" => return Err(format!("kind: `{value}` is none of failed, slow and sampled")),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                question.most =
                    limit.ok_or_else(|| format!("limit: `{value}` is not a number from 1 to {MOST}"))?;
            }
            "route" => question.route = Some(value),
            _ => {
                return Err(format!(
                    "`{name}` is not understood; expected after, cause, kind, limit or route"
                ));
            }
        }
    }
    Ok(question)
}

fn cursor(text: &str) -> Result<Vec<u64>, String> {
    let numbers = text.split('-').map(str::parse).collect::<Result<Vec<u64>, _>>();
    numbers.map_err(|_| format!("after: `{text}` is not a cursor of an earlier answer"))
}

/// Answers the question. Blocks.
pub(crate) fn run(gateway: &Gateway, question: Question) -> Answer {
    let id = question.id.clone();
    let told = gateway.why(question);
    match id {
        Some(id) if told.found.is_empty() => {
            answer::problem_with(StatusCode::NOT_FOUND, &not_found(&id, &told), json!({ "held": told.held }))
        }
        _ => answer::json(StatusCode::OK, &json!(told)),
    }
}

/// Why nothing is known about an id.
pub(crate) fn not_found(id: &str, told: &autopsy::Answer) -> String {
    if !told.on {
        return "nothing is kept: limits.autopsy is 0B".to_owned();
    }
    let since = told.since.as_ref().map_or_else(
        || "no exchange has failed since the start".to_owned(),
        |since| format!("failed ones are kept since {since}"),
    );
    format!(
        "no exchange with the id `{id}` is kept here: {since}, and of those that were well one in {} is. \
         It may have been too long ago, before the last start, or at another gateway",
        told.sample
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let some = |text: &str| Some(text.to_owned());
        let nothing = || Question { most: DEFAULT, ..Question::default() };
        for (target, expected) in [
            ("", Some(nothing())),
            ("/abc", Some(Question { id: some("abc"), ..nothing() })),
            ("/a%2Fb", Some(Question { id: some("a/b"), ..nothing() })),
            ("?cause=no_route&limit=1", Some(Question { cause: some("no_route"), most: 1, ..nothing() })),
            (
                "?route=a%20b&kind=slow",
                Some(Question { route: some("a b"), kind: some("slow"), ..nothing() }),
            ),
            ("?after=12-0", Some(Question { after: vec![12, 0], ..nothing() })),
            ("/", None),
            ("?limit=0", None),
            ("?limit=101", None),
            ("?kind=all", None),
            ("?after=x", None),
            ("?after=1-99999999999999999999", None),
            ("?what=1", None),
            ("?cause=%zz", None),
        ] {
            let uri: Uri = format!("http://127.0.0.1{PATH}{target}").parse().unwrap();
            assert_eq!(read(&uri).ok(), expected, "{target}");
        }
        let long = format!("http://127.0.0.1{PATH}/{}", "a".repeat(129)).parse().unwrap();
        assert!(read(&long).is_err());
        assert!(is_at(PATH) && is_at("/api/v1/why/x") && !is_at("/api/v1/whynot"));
    }
}
