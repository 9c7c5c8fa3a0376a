//! A call about the config as it arrived, and the parts of it that several calls read.

#![allow(clippy::result_large_err, reason = "a refusal is an answer, made once a call and never in a loop")]

use crate::answer::{self, Answer};
use crate::calls::Call;
use crate::guard::Identity;
use hyper::header::{self, HeaderMap};
use hyper::{StatusCode, Uri};
use weir_gateway::Terms;
use weir_gateway::config::units::Duration;
use weir_gateway::history::{By, Origin};

/// Longest message of a change, in characters.
const MESSAGE: usize = 500;

/// Shortest and longest trial of a change.
const SHORTEST: std::time::Duration = std::time::Duration::from_secs(10);

const LONGEST: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// A call, and everything that came with it.
pub(crate) struct ConfigRequest {
    pub(crate) call: &'static Call,
    pub(crate) parts: Vec<String>,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) who: Identity,
}

/// The flags in the query. Unknown ones are refused.
pub(crate) fn flag<'u>(uri: &'u Uri, call: &Call) -> Result<Vec<&'u str>, Answer> {
    let words = uri.query().unwrap_or_default().split('&').filter(|word| !word.is_empty());
    words
        .filter_map(|word| match word.split_once('=') {
            None | Some((_, "" | "true" | "1")) => Some(Ok(word.split('=').next().unwrap_or_default())),
            Some((name, "false" | "0")) if call.query.contains(&name) => None,
            // `terms` parses these.
            Some(("watch" | "confirm", _)) if call.query.contains(&"watch") => None,
            Some(_) => Some(Err(())),
        })
        .map(|word| match word {
            Ok(word) if call.query.contains(&word) => Ok(word),
            _ => {
                let known = if call.query.is_empty() { "nothing".to_owned() } else { call.query.join(", ") };
                let detail = format!("the query after `?` is unknown; expected {known}");
                Err(answer::problem(StatusCode::BAD_REQUEST, &detail))
            }
        })
        .collect()
}

/// The conditions under which a change stays: `watch=5m` and `confirm=5m`.
pub(crate) fn terms(uri: &Uri) -> Result<Terms, Answer> {
    let time = |name: &str| -> Result<Option<std::time::Duration>, Answer> {
        let words = uri.query().unwrap_or_default().split('&');
        let mut values = words.filter_map(|word| match word.strip_prefix(name)? {
            "" => Some(""),
            rest => rest.strip_prefix('='),
        });
        let Some(value) = values.next() else { return Ok(None) };
        let time = value.parse::<Duration>().map(Duration::get).ok();
        match time.filter(|time| (SHORTEST..=LONGEST).contains(time) && values.next().is_none()) {
            Some(time) => Ok(Some(time)),
            None => {
                let detail = format!("`{name}` is a time from 10s to 1d, such as {name}=5m, given once");
                Err(answer::problem(StatusCode::BAD_REQUEST, &detail))
            }
        }
    };
    Ok(Terms { watch: time("watch")?, confirm: time("confirm")? })
}

/// The entity tags of a field (RFC 9110 §8.8.3), without quotes.
pub(crate) fn tags(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<Vec<String>>, Answer> {
    let refused = || {
        let detail = format!("`{name}` holds no ETag; expected \"…\" with its quotes, or *");
        answer::problem(StatusCode::BAD_REQUEST, &detail)
    };
    let mut all = Vec::new();
    for value in headers.get_all(&name) {
        for tag in value.to_str().map_err(|_| refused())?.split(',') {
            let tag = tag.trim();
            let inner = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            match inner {
                _ if tag == "*" => all.push("*".to_owned()),
                Some(inner) => all.push(inner.to_owned()),
                None => return Err(refused()),
            }
        }
    }
    Ok((!all.is_empty()).then_some(all))
}

/// Who makes a change, and why.
pub(crate) fn by(asked: &ConfigRequest, origin: Origin) -> By {
    let message = asked.headers.get("x-weir-message").map(|value| String::from_utf8_lossy(value.as_bytes()));
    let message = message.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MESSAGE).collect();
    By { author: asked.who.name.clone(), origin, message }
}
