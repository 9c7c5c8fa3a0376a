//! `GET /bundle`: the running config as a bundle, for gateways that use this one as their source. A request with
//! the current ETag and `?wait=30s` is a long poll: it waits until the bundle changes.

use crate::answer::{self, Answer};
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{StatusCode, Uri};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use weir_gateway::Gateway;
use weir_gateway::config::units;

/// The path.
pub(crate) const PATH: &str = "/bundle";

/// Longest wait, because a connection of this listener may last a minute.
const LONGEST: Duration = Duration::from_secs(50);

/// Answers immediately if the caller's bundle is outdated or missing. Otherwise waits for a new bundle or the end
/// of the wait.
pub(crate) async fn answer(gateway: &Gateway, uri: &Uri, headers: &HeaderMap) -> Answer {
    let wait = match wait(uri) {
        Ok(wait) => wait,
        Err(why) => return answer::problem(StatusCode::BAD_REQUEST, &why),
    };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let deadline = Instant::now() + wait;
    let mut configs = gateway.configs();
    loop {
        drop(configs.borrow_and_update());
        let asked = gateway.clone();
        // On a blocking thread, because packing reads files.
        let packed = tokio::task::spawn_blocking(move || {
            let bundle = asked.bundle()?;
            let bytes = bundle.pack().map_err(|e| e.to_string())?;
            Ok::<_, String>((format!("\"{}\"", bundle.digest()), bytes))
        });
        let (etag, bytes) = match packed.await {
            Ok(Ok(packed)) => packed,
            Ok(Err(why)) if gateway.awaits_config() => {
                return answer::problem(StatusCode::SERVICE_UNAVAILABLE, &why);
            }
            Ok(Err(why)) => return answer::problem(StatusCode::CONFLICT, &why),
            Err(_) => {
                return answer::problem(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "this is a bug in Weir: see its log",
                );
            }
        };
        // RFC 9110 §13.1.2: weak comparison against a list.
        let is_known = known.split(',').any(|known| known.trim().trim_start_matches("W/") == etag);
        if !is_known {
            return tagged(answer::of(StatusCode::OK, "application/gzip", bytes), &etag);
        }
        match timeout_at(deadline, configs.changed()).await {
            Ok(Ok(())) => {}
            _ => {
                return tagged(answer::of(StatusCode::NOT_MODIFIED, "application/gzip", Bytes::new()), &etag);
            }
        }
    }
}

fn tagged(mut answer: Answer, etag: &str) -> Answer {
    // An ETag consists of quotes and hex digits, so this never fails.
    if let Ok(etag) = HeaderValue::from_str(etag) {
        answer.headers_mut().insert(header::ETAG, etag);
    }
    answer
}

/// How long to wait for a new bundle: zero unless the query sets it.
fn wait(uri: &Uri) -> Result<Duration, String> {
    let mut wait = Duration::ZERO;
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let asked =
            pair.strip_prefix("wait=").ok_or_else(|| format!("`{pair}` is not known; expected wait=30s"))?;
        let asked: units::Duration =
            asked.parse().map_err(|_| format!("`{asked}` is not a time; expected wait=30s"))?;
        wait = asked.get().min(LONGEST);
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bounded() {
        for (query, want) in [
            ("/bundle", Some(0)),
            ("/bundle?wait=30s", Some(30)),
            ("/bundle?wait=1h", Some(50)),
            ("/bundle?wait=x", None),
            ("/bundle?until=1", None),
        ] {
            assert_eq!(wait(&query.parse().unwrap()).ok(), want.map(Duration::from_secs), "{query}");
        }
    }
}
