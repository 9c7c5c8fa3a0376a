//! weir-transcode: JSON, Protocol Buffers, paths, frames and streams, from arbitrary bytes.

use std::sync::OnceLock;
use weir_transcode::frames::{FrameError, Messages};
use weir_transcode::stream::{Values, ValuesError};
use weir_transcode::{Api, Choice, JsonOptions, Limits, Lookup, Request, sources};

const EVERYTHING: &str = "library.v1.Everything";

fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| {
        let proto = include_str!("../../crates/weir-transcode/tests/library.proto");
        let pool = sources::from_source("library.proto", proto).expect("the proto is sound");
        let choice = Choice { unannotated: true, ..Choice::default() };
        Api::new(&pool, &choice, JsonOptions::default(), Limits::default()).expect("its rules are sound")
    })
}

/// The first byte selects the rest: JSON, a message, a request line with a body, frames, or a sequence of values.
pub fn transcode(data: &[u8]) {
    let Some((&what, rest)) = data.split_first() else { return };
    match what % 5 {
        0 => json(rest),
        1 => message(rest),
        2 => request(rest),
        3 => frames(rest),
        _ => values(rest),
    }
}

/// Parsed JSON can be written, and parses to the same again.
fn json(text: &[u8]) {
    let mut bytes = Vec::new();
    if api().parse(EVERYTHING, text, &mut bytes).is_err() {
        return;
    }
    // An unpaired mask key or an `Any` without a message may be refused when parsed again, but must do nothing else.
    message(&bytes);
}

/// A written message can be parsed, and is written the same again.
fn message(bytes: &[u8]) {
    let mut text = Vec::new();
    if api().print(EVERYTHING, bytes, &mut text).is_err() {
        return;
    }
    serde_json::from_slice::<serde_json::Value>(&text).expect("it is JSON");
    let mut again = Vec::new();
    if api().parse(EVERYTHING, &text, &mut again).is_ok() {
        let mut twice = Vec::new();
        api().print(EVERYTHING, &again, &mut twice).expect("it was read");
        assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&twice), "one form");
    }
}

/// `METHOD /path?query LF body`.
fn request(text: &[u8]) {
    let mut parts = text.splitn(2, |&b| b == b'\n');
    let (line, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(space) = line.iter().position(|&b| b == b' ') else { return };
    let (method, target) = (String::from_utf8_lossy(&line[..space]), &line[space + 1..]);
    let mut parts = target.splitn(2, |&b| b == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next());
    if let Lookup::Call(call) = api().find(&method, path) {
        let mut out = Vec::new();
        let _ = api().request(&call, &Request { query, media: b"text/plain", body }, &mut out);
        let _ = api().response(&call, body, &mut Vec::new());
    }
}

/// Messages are the same however the input is split.
fn frames(body: &[u8]) {
    let read = |size: usize| {
        let (mut all, mut messages) = (Vec::new(), Messages::new(64, true));
        for piece in body.chunks(size) {
            let read = messages.feed::<FrameError>(piece, |message| {
                all.push(message.to_vec());
                Ok(())
            });
            if let Err(e) = read {
                return (all, Some(e));
            }
        }
        (all, messages.finish().err())
    };
    assert_eq!(read(1), read(body.len().max(1)));
}

/// Values are the same however the input is split.
fn values(body: &[u8]) {
    let read = |size: usize| {
        let (mut all, mut values) = (Vec::new(), Values::new(64));
        let mut take = |value: &[u8]| {
            all.push(value.to_vec());
            Ok::<(), ValuesError>(())
        };
        let mut end = Ok(());
        for piece in body.chunks(size) {
            end = end.and_then(|()| values.feed(piece, &mut take));
        }
        let end = end.and_then(|()| values.finish(&mut take));
        (all, end.err())
    };
    assert_eq!(read(1), read(body.len().max(1)));
}
