//! `body_limit`: refuses request bodies that are too large; if the length is known, before the upstream sees
//! anything.

use super::prelude::*;
use weir_filter::error::BODY_TOO_LARGE;

pub(super) static KIND: FilterKind =
    FilterKind::of::<BodyLimit>("body_limit").with_causes(&[&BODY_TOO_LARGE]).judged_by_head();

/// Refuses request bodies longer than `max`.
///
/// If Content-Length exceeds `max`, the request is refused before anything is sent to the upstream, and before a
/// client that sent `Expect: 100-continue` sends the body. A chunked body is counted as it passes and cut off at the
/// limit; the upstream then sees an incomplete request. The filter counts bytes as earlier filters left them.
///
/// ```yaml
/// - body_limit: { max: 10MiB }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BodyLimit {
    /// Longest body, in bytes with a unit. `0B` allows no body. No default, because the right limit depends on the
    /// service.
    max: ByteSize,
}

impl Filter for BodyLimit {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY
    }

    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        BodyUse::Watch
    }

    fn on_request(&self, head: &mut RequestHead, _: &mut Cx) -> Flow {
        match head.body() {
            weir_h1::BodyKind::Length(n) if n > self.max.get() => Flow::refuse(&BODY_TOO_LARGE),
            _ => Flow::Continue,
        }
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let seen = cx.note();
        *seen = seen.saturating_add(piece.data().len() as u64);
        if *seen > self.max.get() { Err(Refusal::new(&BODY_TOO_LARGE)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_declared_length_is_refused_at_once() {
        for (length, fits) in [(0, true), (1024, true), (1025, false), (1u64 << 62, false)] {
            let request = format!("POST /\nContent-Length: {length}");
            let mut exchange = run(&KIND, json!({ "max": "1KiB" }), &request).await;
            match fits {
                true => exchange.expect_continue(),
                false => exchange.expect_cause(&BODY_TOO_LARGE).expect_status(413),
            };
        }
    }

    #[tokio::test]
    async fn a_chunked_body_is_counted() {
        let request = "POST /\nTransfer-Encoding: chunked";
        let mut exchange = run(&KIND, json!({ "max": "10B" }), request).await;
        exchange.expect_continue();
        assert_eq!(exchange.body(b"12345", false).as_deref(), Ok(&b"12345"[..]));
        assert_eq!(exchange.body(b"67890", false).as_deref(), Ok(&b"67890"[..]));
        assert_eq!(exchange.body(b"", true).as_deref(), Ok(&b""[..]));
        assert_eq!(exchange.body(b"1", true), Err(&BODY_TOO_LARGE));
    }

    #[tokio::test]
    async fn each_exchange_is_counted_for_itself() {
        let running = Stand::new(&KIND, json!({ "max": "4B" })).build();
        for _ in 0..3 {
            let mut exchange = running.request("POST /\nTransfer-Encoding: chunked").await;
            assert!(exchange.body(b"1234", true).is_ok());
        }
    }

    #[test]
    fn mistakes() {
        assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("max"));
        assert!(Stand::new(&KIND, json!({ "max": 10 })).mistakes()[0].contains("expected"));
        assert!(Stand::new(&KIND, json!({ "max": "10" })).mistakes()[0].contains("1MiB"));
    }
}
