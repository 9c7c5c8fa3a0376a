//! What a collector's answer means: OTLP specification 1.x, *OTLP/HTTP Response*, *OTLP/gRPC Response*.

use super::Protocol;
use std::time::{Duration, SystemTime};
use weir_telemetry::otlp::{PartialSuccess, partial_success};
use weir_upstream::fetch::FetchError;
use weir_upstream::talk::CallAnswer;
use weir_upstream::upstream::retry_after;

/// What to do with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send it again, after this time if the collector names one.
    Again { after: Option<Duration>, why: String },
    /// It will never be accepted.
    Refused(String),
    /// All of it was accepted.
    Taken,
    /// It was accepted, but part of it was rejected or draws a warning.
    TakenInPart(PartialSuccess),
}

/// The longest part of an answer that is shown, in bytes.
const SHOWN: usize = 200;

pub(super) fn judge(protocol: Protocol, answer: &Result<CallAnswer, FetchError>, now: SystemTime) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        // Sending the same bytes again would fail again.
        Err(e @ (FetchError::TooLong(_) | FetchError::Unsendable)) => return Verdict::Refused(e.to_string()),
        Err(e) => return Verdict::Again { after: None, why: weir_wire::Chain(e).to_string() },
    };
    match protocol {
        Protocol::Grpc => grpc(answer, now),
        Protocol::Http => http(answer, now),
    }
}

fn http(answer: &CallAnswer, now: SystemTime) -> Verdict {
    match answer.status {
        200..=299 => taken(&answer.body),
        429 | 502 | 503 | 504 => {
            Verdict::Again { after: asked(answer, now), why: format!("it answered {}", answer.status) }
        }
        status => Verdict::Refused(format!("it answered {status}: {}", shown(&answer.body))),
    }
}

/// Statuses that allow a retry: CANCELLED 1, DEADLINE_EXCEEDED 4, ABORTED 10, OUT_OF_RANGE 11, UNAVAILABLE 14 and
/// DATA_LOSS 15. RESOURCE_EXHAUSTED 8 allows one if the server says when. Some say so by `retry-after`, most in
/// details that we do not read, so it is retried too, at our own pace.
fn grpc(answer: &CallAnswer, now: SystemTime) -> Verdict {
    if answer.status != 200 {
        return http(answer, now); // from a proxy on the way
    }
    let field = |name: &str| Some(String::from_utf8_lossy(answer.field(name)?).into_owned());
    let message = field("grpc-message").unwrap_or_default();
    match field("grpc-status").as_deref() {
        Some("0") => match answer.body.get(..5) {
            Some([0, ..]) => taken(answer.body.get(5..).unwrap_or_default()),
            _ => Verdict::Taken, // compressed or empty, but accepted
        },
        Some(status @ ("1" | "4" | "8" | "10" | "11" | "14" | "15")) => Verdict::Again {
            after: asked(answer, now),
            why: format!("it answered grpc-status {status}: {}", shown(message.as_bytes())),
        },
        Some(status) => {
            Verdict::Refused(format!("it answered grpc-status {status}: {}", shown(message.as_bytes())))
        }
        None => Verdict::Again { after: None, why: "its answer has no grpc-status".to_owned() },
    }
}

fn taken(body: &[u8]) -> Verdict {
    partial_success(body).map_or(Verdict::Taken, Verdict::TakenInPart)
}

fn asked(answer: &CallAnswer, now: SystemTime) -> Option<Duration> {
    retry_after(answer.field("retry-after")?, now)
}

/// The start of a peer's text.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..SHOWN).unwrap_or(text));
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;
    use weir_h1::FieldName;

    fn answer(status: u16, headers: &[(&str, &str)], body: &'static [u8]) -> Result<CallAnswer, FetchError> {
        let headers = headers.iter().map(|(n, v)| (FieldName::new(n).unwrap(), v.as_bytes().to_vec()));
        Ok(CallAnswer { status, headers: headers.collect(), body: body.into() })
    }

    #[test]
    fn answers_by_http() {
        let judge = |answer| judge(Protocol::Http, &answer, UNIX_EPOCH);
        assert_eq!(judge(answer(200, &[], b"")), Verdict::Taken);
        let told = PartialSuccess { rejected: 3, message: "no".to_owned() };
        assert_eq!(judge(answer(200, &[], b"\x0a\x06\x08\x03\x12\x02no")), Verdict::TakenInPart(told));
        for (status, after, wait) in [
            (429, "7", Some(Duration::from_secs(7))),
            (503, "Thu, 01 Jan 1970 00:01:00 GMT", Some(Duration::from_secs(60))),
            (502, "soon", None),
            (504, "-1", None),
        ] {
            let why = format!("it answered {status}");
            let got = judge(answer(status, &[("retry-after", after)], b""));
            assert_eq!(got, Verdict::Again { after: wait, why });
        }
        for status in [301, 400, 401, 404, 413, 500] {
            assert!(
                matches!(judge(answer(status, &[], b"a\nb")), Verdict::Refused(why) if why.ends_with("a b"))
            );
        }
        assert!(matches!(judge(Err(FetchError::Timeout)), Verdict::Again { after: None, .. }));
        assert!(matches!(judge(Err(FetchError::Unsendable)), Verdict::Refused(_)));
    }

    #[test]
    fn answers_by_grpc() {
        let judge =
            |headers: &[(&str, &str)], body| judge(Protocol::Grpc, &answer(200, headers, body), UNIX_EPOCH);
        assert_eq!(judge(&[("grpc-status", "0")], b""), Verdict::Taken);
        assert_eq!(judge(&[("grpc-status", "0")], b"\0\0\0\0\0"), Verdict::Taken);
        let partial = judge(&[("grpc-status", "0")], b"\0\0\0\0\x04\x0a\x02\x08\x03");
        assert!(matches!(partial, Verdict::TakenInPart(told) if told.rejected == 3));
        let busy = judge(&[("grpc-status", "8"), ("retry-after", "2")], b"");
        assert!(matches!(busy, Verdict::Again { after: Some(wait), .. } if wait.as_secs() == 2));
        assert!(matches!(judge(&[("grpc-status", "14")], b""), Verdict::Again { after: None, .. }));
        assert!(matches!(judge(&[("grpc-status", "3"), ("grpc-message", "bad")], b""), Verdict::Refused(_)));
        assert!(matches!(judge(&[], b""), Verdict::Again { .. }));
    }
}
