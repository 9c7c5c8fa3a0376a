//! The settings. What is said to a processor is in the conversations of `e2e/ext_proc.rs`.

use super::*;
use crate::testing::Stand;
use serde_json::json;

#[test]
fn mistakes() {
    for (settings, expected) in [
        (json!({ "upstream": "nowhere" }), "there is no upstream `nowhere`"),
        (json!({ "upstream": "up", "timeout": "0s" }), "no time"),
        (json!({ "upstream": "up", "limit": "0B" }), "cannot be held"),
        (json!({ "upstream": "up", "limit": "65MiB" }), "at most 64MiB"),
        (
            json!({ "upstream": "up", "request": { "headers": "skip" }, "response": { "headers": "skip" } }),
            "sends the processor nothing",
        ),
        (json!({ "upstream": "up", "request": { "body": "full_duplex_streamed" } }), "buffered"),
    ] {
        let mistakes = Stand::new(&KIND, settings).upstream("up").mistakes();
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{expected}: {mistakes:?}");
    }
}

#[test]
fn wishes() {
    let off = Side { headers: true, body: BodyMode::None, trailers: false };
    let mut modes = Modes { request: off, response: off };
    let wish = Override {
        request_body: Some(1),
        response_body: Some(2),
        response_headers: Some(false),
        response_trailers: Some(true),
        request_trailers: None,
    };
    assert_eq!(modes.follow(wish), Ok(()));
    assert_eq!((modes.request.body, modes.response.body), (BodyMode::Streamed, BodyMode::Buffered));
    assert!(!modes.response.headers && modes.response.trailers && !modes.request.trailers);
    assert_eq!(modes.response.body(true), BodyMode::Streamed, "gRPC has trailers");
    for mode in [4, 5, 99] {
        assert!(modes.follow(Override { request_body: Some(mode), ..Override::default() }).is_err());
    }
}
