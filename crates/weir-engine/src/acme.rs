//! ACME certificates in this gateway: reaching the authorities, and reporting each certificate's status. weir-acme
//! does the rest.

use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_acme::{ANSWER_BYTES, Answer, Answered, Ask, Status, Transport};
use weir_h1::FieldName;
use weir_telemetry::{KeptCertificate, timestamp};
use weir_upstream::fetch::{FetchRequest, Fetcher, Trust, Url};

/// How long a request to an authority may take. Some authorities answer only when the work is done.
const ANSWER: Duration = Duration::from_secs(60);

/// Reaches authorities through the control side's client.
pub(crate) struct Wire(pub(crate) Fetcher);

/// The status of an automatically renewed certificate.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct AcmeStatus {
    /// `issued`; `stand_in` while clients get a certificate that they do not trust; `expired`.
    pub state: &'static str,
    /// The authority's directory.
    pub directory: String,
    /// How control over its name is proven.
    pub challenge: &'static str,
    /// Whether it is being ordered now.
    pub ordering: bool,
    /// When it will be renewed: RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renews_at: Option<String>,
    /// How many attempts have failed since the last success.
    pub failures: u32,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<AcmeError>,
    /// When the next attempt follows: RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<String>,
}

/// Why there is no new certificate.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct AcmeError {
    /// The kind of failure: a stable name.
    pub reason: &'static str,
    /// What happened.
    pub text: String,
    /// What to look at.
    pub hint: &'static str,
    /// When it happened: RFC 3339.
    pub at: String,
}

impl Transport for Wire {
    fn ask(&self, ask: Ask) -> Answered<'_> {
        Box::pin(async move {
            let url: Url = ask.url.parse().map_err(|e| format!("{e}"))?;
            let mut request = FetchRequest::get(url, ANSWER_BYTES, ANSWER);
            request.method = ask.method.to_owned();
            if let Some(ca) = &ask.trust {
                request.trust = Trust::file(ca)?;
            }
            if !ask.body.is_empty() {
                let name = FieldName::new("content-type").map_err(|e| e.to_string())?;
                request.headers.push((name, b"application/jose+json".to_vec()));
                request.body = ask.body.into();
            }
            let answer = self.0.fetch(request).await.map_err(|e| weir_wire::Chain(&e).to_string())?;
            let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
            let headers =
                answer.headers.into_iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
            Ok(Answer { status: answer.status, headers: headers.collect(), body: answer.body.to_vec() })
        })
    }
}

impl AcmeStatus {
    /// The current status.
    pub fn of(status: &Status, now: i64) -> Self {
        let state = match status.not_after {
            None => "stand_in",
            Some(end) if end < now => "expired",
            Some(_) => "issued",
        };
        Self {
            state,
            directory: status.directory.clone(),
            challenge: status.challenge,
            ordering: status.ordering,
            renews_at: status.renew_at.map(moment),
            failures: status.failures,
            error: status.last_error.as_ref().map(|told| AcmeError {
                reason: told.failure.kind.name(),
                text: told.failure.text.clone(),
                hint: told.failure.kind.hint(),
                at: moment(told.at),
            }),
            next_try: status.next_try.map(moment),
        }
    }
}

/// Its metrics.
pub fn figures(status: &Status) -> KeptCertificate {
    KeptCertificate {
        cert: status.file.display().to_string(),
        name: status.name.clone(),
        not_after: status.not_after,
        renew_at: status.renew_at,
        failures: status.failures,
    }
}

/// Formats seconds since 1970 as logs do.
pub fn moment(seconds: i64) -> String {
    timestamp(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
