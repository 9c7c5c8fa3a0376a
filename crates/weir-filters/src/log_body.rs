//! `log_body`: keeps the start of the request's body for the access log's format `replay`.

use super::prelude::*;

pub(super) static KIND: FilterKind = FilterKind::made_from::<LogBodySettings>("log_body").judged_by_head();

/// Records request bodies in an access log with `format: replay`, so that `weir replay` can send them again.
///
/// A body longer than `limit` is recorded up to there and marked as cut; `weir replay` leaves out such requests. Write
/// this filter before those that change bodies, such as `transform`. A body that an earlier filter has changed is
/// recorded as changed and marked with `"body_changed":true`. `weir replay` leaves it out, because the recorded header
/// fields describe the client's body. Bodies may hold personal data and passwords: they are not redacted. With another
/// format `weir check` warns, and nothing is recorded.
///
/// ```yaml
/// - log_body: { limit: 64KiB }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LogBodySettings {
    /// How much of a body to record, at most 1 MiB. Default 64 KiB. It is held in memory until the exchange ends.
    limit: ByteSize,
}

/// The default of `limit`.
const LIMIT: u64 = 64 << 10;

/// The most that `limit` may be: 64 buffers of such lines may wait for the log's writer.
const LIMIT_MOST: u64 = 1 << 20;

impl Default for LogBodySettings {
    fn default() -> Self {
        Self { limit: ByteSize(LIMIT) }
    }
}

struct LogBody {
    limit: usize,
}

impl IntoFilter for LogBodySettings {
    type Filter = LogBody;

    fn into_filter(self, build: &mut Build<'_>) -> Option<LogBody> {
        if self.limit.get() == 0 || self.limit.get() > LIMIT_MOST {
            build.refuse(
                "limit",
                "is not within 1B to 1MiB",
                Some("leave out the filter to record no body".into()),
            );
            return None;
        }
        Some(LogBody { limit: self.limit.as_usize() })
    }
}

impl Filter for LogBody {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST_BODY
    }

    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        BodyUse::Watch
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        cx.log_body(piece.data(), piece.is_last(), self.limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn the_start_of_a_body_is_kept_and_the_body_unchanged() {
        let mut exchange = run(&KIND, json!({ "limit": "7B" }), "POST /\nTransfer-Encoding: chunked").await;
        assert_eq!(exchange.body(b"12345", false).as_deref(), Ok(&b"12345"[..]));
        assert_eq!(exchange.body(b"67890", true).as_deref(), Ok(&b"67890"[..]));
        assert_eq!(exchange.cx.logged_body(), Some((&b"1234567"[..], false, false)));
        let exchange = run(&KIND, json!({}), "GET /").await;
        assert_eq!(exchange.cx.logged_body(), None);
    }

    #[test]
    fn mistakes() {
        for (limit, said) in [("0B", "within 1B to 1MiB"), ("2MiB", "within 1B to 1MiB"), ("10", "1MiB")] {
            let mistakes = Stand::new(&KIND, json!({ "limit": limit })).mistakes();
            assert!(mistakes[0].contains(said), "{limit}: {mistakes:?}");
        }
    }
}
