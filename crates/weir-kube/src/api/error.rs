//! Why the API server did not do what we asked.

use super::Resource;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// A failed request, sorted by what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// No answer, an answer that cannot be read, 429 or 5xx: try again, not before the given time.
    Away(String, Option<Duration>),
    /// Somebody else has changed the object (409): read it again.
    Conflict,
    /// The object exists already (409).
    Exists,
    /// The version is too old (410): list again.
    Expired,
    /// The service account lacks a right (403), with the server's sentence.
    Forbidden(String),
    /// There is no such object or resource (404).
    NotFound,
    /// The server refuses the request, with its status; also with 403 if a quota, an admission webhook or the end of
    /// the namespace is the reason.
    Refused(u16, String),
    /// The answer exceeds our limit in bytes.
    TooLong(usize),
    /// The server does not accept our token (401).
    Unauthorized,
}

/// The error object of the API, as far as we read it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(rename = "retryAfterSeconds")]
    retry_after: u64,
}

/// Most characters of a message that we keep.
const MESSAGE: usize = 300;

/// The longest wait that we accept from a server.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl ApiError {
    /// Sorts an answer that is not a success. `body` should be a `Status` object.
    pub fn of(status: u16, body: &[u8]) -> Self {
        let written: Written = serde_json::from_slice(body).unwrap_or_default();
        let message: String = written.message.chars().filter(|c| !c.is_control()).take(MESSAGE).collect();
        let seconds = written.details.retry_after;
        let wait = (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_WAIT));
        match status {
            401 => Self::Unauthorized,
            403 if is_missing_right(&written) => Self::Forbidden(message),
            404 => Self::NotFound,
            409 if written.reason == "AlreadyExists" => Self::Exists,
            409 => Self::Conflict,
            410 => Self::Expired,
            429 | 500..=599 => Self::Away(format!("it answers {status}: {message}"), wait),
            _ => Self::Refused(status, message),
        }
    }
}

/// Whether a 403 is for want of a right. Quotas, webhooks and namespaces that end have the same status and reason; only
/// the sentence of the authorizer says who cannot do what.
fn is_missing_right(written: &Written) -> bool {
    let is_denied = written.message.contains(" cannot ") && written.message.contains("resource \"");
    is_denied && !written.message.starts_with("admission webhook")
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why, _) => f.write_str(why),
            Self::Conflict => f.write_str("the object has changed meanwhile"),
            Self::Exists => f.write_str("the object exists already"),
            Self::Expired => f.write_str("the version is too old"),
            Self::Forbidden(message) => write!(f, "forbidden: {message}"),
            Self::NotFound => f.write_str("not found"),
            Self::Refused(status, message) => write!(f, "it answers {status}: {message}"),
            Self::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
            Self::Unauthorized => f.write_str("the token is not valid"),
        }
    }
}

/// The RBAC rule that is missing, in the words of a manifest.
pub fn missing_rule(verb: &str, resource: &Resource, subresource: &str) -> String {
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!(
        "apiGroups: [\"{}\"], resources: [\"{}{slash}{subresource}\"], verbs: [\"{verb}\"]",
        resource.group, resource.plural
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::watched;
    use serde_json::json;

    #[test]
    fn answers_are_sorted_by_what_to_do_next() {
        let saying =
            |reason: &str, message: &str| json!({ "reason": reason, "message": message }).to_string();
        let status = |reason: &str| saying(reason, "m\u{7}");
        let denied =
            "services is forbidden: User \"u\" cannot create resource \"services\" in API group \"\"";
        let ending = "services \"a\" is forbidden: unable to create new content in namespace a";
        let quota = r#"services "a" is forbidden: exceeded quota: q, requested: services=1"#;
        let hook = r#"admission webhook "a" denied the request: you cannot use resource "services" here"#;
        let refused = |message: &str| ApiError::Refused(403, message.to_owned());
        for (code, body, expected) in [
            (401, String::new(), ApiError::Unauthorized),
            (403, saying("Forbidden", denied), ApiError::Forbidden(denied.to_owned())),
            (403, saying("Forbidden", ending), refused(ending)),
            (403, saying("Forbidden", quota), refused(quota)),
            (403, saying("Forbidden", hook), refused(hook)),
            (404, "404 page not found".to_owned(), ApiError::NotFound),
            (409, status("Conflict"), ApiError::Conflict),
            (409, status("AlreadyExists"), ApiError::Exists),
            (410, status("Expired"), ApiError::Expired),
            (422, status("Invalid"), ApiError::Refused(422, "m".to_owned())),
            (503, "<html>".to_owned(), ApiError::Away("it answers 503: ".to_owned(), None)),
        ] {
            assert_eq!(ApiError::of(code, body.as_bytes()), expected, "{code}");
        }
    }

    #[test]
    fn a_server_cannot_make_us_wait_for_hours() {
        let body = br#"{"details":{"retryAfterSeconds":86400}}"#;
        let ApiError::Away(_, wait) = ApiError::of(429, body) else { panic!("429 is not final") };
        assert_eq!(wait, Some(LONGEST_WAIT));
    }

    #[test]
    fn a_missing_rule_can_be_pasted() {
        let route = watched("HTTPRoute").unwrap();
        let expected =
            r#"apiGroups: ["gateway.networking.k8s.io"], resources: ["httproutes/status"], verbs: ["patch"]"#;
        assert_eq!(missing_rule("patch", route, "status"), expected);
    }
}
