//! `grpc_web`: lets browsers call a gRPC service by the protocol that browsers can speak.
//!
//! Source: "gRPC Web" (PROTOCOL-WEB.md) of the gRPC project.

use super::prelude::*;
use crate::descriptors::RESPONSE_MALFORMED;
use weir_h1::{FieldName, Method};
use weir_transcode::base64;
use weir_transcode::frames::{self, Boundary};

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::of::<GrpcWeb>("grpc_web")
    .with_causes(&[&RESPONSE_MALFORMED, &GRPC_WEB_MALFORMED])
    .judged_by_head();

static GRPC_WEB_MALFORMED: Cause = Cause {
    code: "grpc_web_malformed",
    status: 400,
    meaning: "The body of a gRPC-Web call is not base64, although its content-type says so.",
    change: "the client: application/grpc-web-text is base64, application/grpc-web is binary",
    ..Cause::USUAL
};

/// Lets browsers call a gRPC service by gRPC-Web, over any version of HTTP.
///
/// A call of type `application/grpc-web` or `application/grpc-web-text` goes on as gRPC. The trailers of the response
/// become the last frame of its body, where a browser can read them. All other requests pass unchanged. The upstream
/// must speak HTTP/2: `protocol: h2c`. For pages of other origins, put `cors` before it with
/// `headers: [ content-type, x-grpc-web, x-user-agent, grpc-timeout ]` and
/// `expose: [ grpc-status, grpc-message, grpc-status-details-bin ]`. [grpc.md](../guide/grpc.md#grpc-web) has more.
///
/// ```yaml
/// - grpc_web: {}
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GrpcWeb {}

/// Value of the exchange's note: this is a gRPC-Web call.
const CALLED: u64 = 1;

/// The state of a call.
#[derive(Default)]
struct Call {
    /// The type that the client sent and expects in the response.
    media: Box<[u8]>,
    text: bool,
    /// Base64 digits that do not complete a group yet: at most three.
    digits: Vec<u8>,
    /// The position within the response body's frames.
    boundary: Boundary,
    /// Whether the response head contains the status.
    told: bool,
}

/// The frame that holds trailers.
const TRAILERS: u8 = 0x80;

impl Filter for GrpcWeb {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::RESPONSE | Hooks::RESPONSE_BODY
    }

    fn request_body(&self, head: &RequestHead, _: &mut Cx) -> BodyUse {
        match media_of(head) {
            Some(media) if is_text(media) => BodyUse::Change,
            _ => BodyUse::Pass,
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let Some(media) = media_of(head) else { return Flow::Continue };
        let media: Box<[u8]> = media.into();
        if let Ok(name) = FieldName::new("content-type") {
            let _ = head.headers.insert(&name, &media_of_grpc(&media)); // part of a valid value
        }
        head.headers.remove_where(|name, _| {
            [&b"accept"[..], b"x-grpc-web"].iter().any(|gone| name.eq_ignore_ascii_case(gone))
        });
        cx.call_grpc(head);
        *cx.note() = CALLED;
        *cx.state::<Call>() = Call { text: is_text(&media), media, ..Call::default() };
        Flow::Continue
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        if *cx.note() != CALLED {
            return Ok(());
        }
        let call = cx.state::<Call>();
        if !call.text {
            return Ok(());
        }
        let mut out = Vec::with_capacity(piece.data().len() / 4 * 3 + 3);
        let read = decode(&mut call.digits, piece.data(), piece.is_last(), &mut out);
        read.ok_or_else(|| Refusal::new(&GRPC_WEB_MALFORMED))?;
        piece.replace(out);
        Ok(())
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let called = *cx.note() == CALLED;
        if called && is_grpc(head) { BodyUse::Change } else { BodyUse::Pass }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if *cx.note() != CALLED {
            return Flow::Continue;
        }
        let call = cx.state::<Call>();
        if is_grpc(head)
            && let Ok(name) = FieldName::new("content-type")
        {
            let _ = head.headers.insert(&name, &call.media); // the value as received
        }
        call.told = head.headers.get_str("grpc-status").is_some();
        head.headers.remove_where(|name, _| name.eq_ignore_ascii_case(b"trailer"));
        Flow::Continue
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        if *cx.note() != CALLED || piece.is_pause() {
            return Ok(());
        }
        let call = cx.state::<Call>();
        call.boundary.pass(piece.data());
        let mut out = Vec::new();
        if piece.is_last() {
            if !call.boundary.is_between() {
                // The client would read a frame after half a message as the rest of that message.
                return Err(Refusal::new(&RESPONSE_MALFORMED));
            }
            trailers_frame(piece, call.told, &mut out);
            piece.set_trailers(&[]);
        }
        if call.text {
            // Each piece is base64 with its own padding, which clients accept, so no digits wait for the next piece.
            let mut text = Vec::with_capacity((piece.data().len() + out.len()).div_ceil(3) * 4 + 4);
            base64::encode(piece.data(), &mut text);
            base64::encode(&out, &mut text);
            piece.replace(text);
        } else if !out.is_empty() {
            piece.replace([piece.data(), &out].concat());
        }
        Ok(())
    }
}

/// The trailers as the last frame of a body: one per line, names in lower case. `told`: the head has the status.
fn trailers_frame(piece: &Piece<'_>, told: bool, out: &mut Vec<u8>) {
    let begun = frames::begin(out);
    for (name, value) in piece.trailers() {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if out.len() == begun && told {
        return out.clear();
    }
    if !told && piece.trailer("grpc-status").is_none() {
        out.extend_from_slice(b"grpc-status: 2\r\n"); // UNKNOWN: the upstream sent no status
    }
    frames::end(begun, out);
    frames::flag(begun, TRAILERS, out);
}

/// Decodes base64 in pieces. Digits that do not complete a group wait for the next piece. Padding may occur in the
/// middle, between two encoded parts.
fn decode(waiting: &mut Vec<u8>, piece: &[u8], last: bool, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = piece;
    if !waiting.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(4 - waiting.len()));
        waiting.extend_from_slice(now);
        rest = later;
        if waiting.len() == 4 {
            base64::decode(waiting, out)?;
            waiting.clear();
        }
    }
    while let Some(at) = rest.iter().position(|&b| b == b'=') {
        let Some((part, later)) = rest.split_at_checked((at / 4 + 1) * 4) else { break };
        base64::decode(part, out)?;
        rest = later;
    }
    let (whole, over) = rest.split_at(rest.len() / 4 * 4);
    base64::decode(whole, out)?;
    waiting.extend_from_slice(over);
    if last {
        base64::decode(waiting, out)?;
        waiting.clear();
    }
    Some(())
}

/// The type of a gRPC-Web call.
fn media_of(head: &RequestHead) -> Option<&[u8]> {
    let media =
        head.headers.get_str("content-type").filter(|_| head.headers.is_media("application/grpc-web"))?;
    (head.method() == Method::Post).then_some(media)
}

/// The equivalent gRPC type: `application/grpc`, with the message format if the type names one.
fn media_of_grpc(media: &[u8]) -> Vec<u8> {
    let media = media.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    let suffix = media.iter().position(|&b| b == b'+').and_then(|at| media.get(at..));
    [&b"application/grpc"[..], suffix.unwrap_or_default()].concat()
}

fn is_text(media: &[u8]) -> bool {
    media.get(..25).is_some_and(|media| media.eq_ignore_ascii_case(b"application/grpc-web-text"))
}

fn is_grpc(head: &ResponseHead) -> bool {
    weir_filter::grpc::is_grpc(&head.headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Stand;
    use serde_json::json;

    const BINARY: &str =
        "POST /a.B/C\nContent-Type: application/grpc-web+proto\nX-Grpc-Web: 1\nContent-Length: 5";
    const TEXT: &str = "POST /a.B/C\nContent-Type: application/grpc-web-text\nTransfer-Encoding: chunked";
    const GRPC: &str = "200\ncontent-type: application/grpc+proto\ntransfer-encoding: chunked";

    #[tokio::test]
    async fn a_call_goes_on_as_grpc_and_its_trailers_come_in_the_body() {
        let running = Stand::new(&KIND, json!({})).build();
        let mut exchange = running.request(BINARY).await;
        exchange
            .expect_continue()
            .expect_header("content-type", "application/grpc+proto")
            .expect_no_header("x-grpc-web");
        let response = exchange.response(GRPC);
        response.expect_header("content-type", "application/grpc-web+proto");
        assert_eq!(response.body_use, Some(BodyUse::Change));
        assert_eq!(exchange.response_body(b"\0\0\0\0\x01x", false).unwrap(), b"\0\0\0\0\x01x");
        assert_eq!(exchange.response_body(b"", true).unwrap(), b"\x80\0\0\0\x10grpc-status: 2\r\n");
    }

    #[tokio::test]
    async fn an_answer_that_ends_within_a_message_is_cut() {
        let running = Stand::new(&KIND, json!({})).build();
        let mut exchange = running.request(BINARY).await;
        exchange.response(GRPC);
        assert_eq!(exchange.response_body(b"\0\0\0\0\x02x", true).unwrap_err(), &RESPONSE_MALFORMED);
    }

    #[tokio::test]
    async fn a_status_in_the_head_is_not_contradicted() {
        let running = Stand::new(&KIND, json!({})).build();
        let mut exchange = running.request(BINARY).await;
        exchange.response("200\ncontent-type: application/grpc\ngrpc-status: 5\ntransfer-encoding: chunked");
        assert_eq!(exchange.response_body(b"", true).unwrap(), b"");
    }

    #[tokio::test]
    async fn text_in_any_pieces() {
        let running = Stand::new(&KIND, json!({})).build();
        for size in 1..20 {
            let mut exchange = running.request(TEXT).await;
            exchange.expect_continue().expect_header("content-type", "application/grpc");
            let mut read = Vec::new();
            // Two parts, each with its own padding.
            for piece in b"AAAAAAJoaQ==AAAAAAA=".chunks(size) {
                read.extend(exchange.body(piece, false).unwrap());
            }
            read.extend(exchange.body(b"", true).unwrap());
            assert_eq!(read, b"\0\0\0\0\x02hi\0\0\0\0\0", "{size}");
        }
        for bad in [&b"****"[..], b"AA=A", b"AAAA=", b"=", b"AAAAA"] {
            let mut exchange = running.request(TEXT).await;
            assert_eq!(exchange.body(bad, true).unwrap_err(), &GRPC_WEB_MALFORMED, "{bad:?}");
        }
        let mut exchange = running.request(TEXT).await;
        exchange.response(GRPC);
        assert_eq!(exchange.response_body(b"\0\0\0\0\0", false).unwrap(), b"AAAAAAA=");
    }

    #[test]
    fn types() {
        for (web, grpc, text) in [
            ("application/grpc-web", "application/grpc", false),
            ("application/grpc-web+proto", "application/grpc+proto", false),
            ("Application/gRPC-Web-Text+proto; charset=utf-8", "application/grpc+proto", true),
        ] {
            assert_eq!(media_of_grpc(web.as_bytes()), grpc.as_bytes());
            assert_eq!(is_text(web.as_bytes()), text);
        }
    }

    #[tokio::test]
    async fn everything_else_passes() {
        let running = Stand::new(&KIND, json!({})).build();
        for request in [
            "GET /",
            "POST /a.B/C\nContent-Type: application/grpc\nContent-Length: 0",
            "GET /\nContent-Type: application/grpc-web",
        ] {
            let mut exchange = running.request(request).await;
            exchange.expect_continue();
            let response =
                exchange.response("200\ncontent-type: application/grpc\ntransfer-encoding: chunked");
            assert_eq!(response.body_use, Some(BodyUse::Pass), "{request}");
        }
    }
}
