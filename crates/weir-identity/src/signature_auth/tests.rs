//! The signatures of RFC 9421 appendix B, requests changed after they were signed, and signatures that were used
//! before.

use super::super::testing::{Exchange, Running, Stand};
use super::settings::parse_key;
use super::*;
use aws_lc_rs::hmac;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_wire::base64;

/// RFC 9421 B.1.2, B.1.3, B.1.4.
const RSA: &str = "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAr4tmm3r20Wd/PbqvP1s2\n+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+\noAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHq\ngDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5W\nUtzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4\naOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oyc6XI\n2wIDAQAB\n-----END PUBLIC KEY-----\n";
const P256: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqIVYZVLCrPZHGHjP17CTW0/+D9Lf\nw0EkjqF7xB4FivAxzic30tMM4GF+hR6Dxh71Z50VGGdldkkDXZCnTNnoXQ==\n-----END PUBLIC KEY-----\n";
const ED25519: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n";

/// RFC 9421 B.1.5.
const SECRET: &str =
    "base64:uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";

/// RFC 9421 B.2, as an HTTP/1.1 request.
const REQUEST: &str = "POST /foo?param=Value&Pet=dog\nHost: example.com\nDate: Tue, 20 Apr 2021 02:07:55 GMT\n\
     Content-Type: application/json\nContent-Digest: sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:\n\
     Content-Length: 18\n";

/// RFC 9421 B.2.1, B.2.2, B.2.3, B.2.5 and B.2.6: the covered components with their parameters, and the signature.
/// (B.2.4 signs a response.)
const EXAMPLES: [(&str, &str); 5] = [
    (
        "();created=1618884473;keyid=\"test-key-rsa-pss\";nonce=\"b3k2pp5k7z-50gnwp.yemd\"",
        "d2pmTvmbncD3xQm8E9ZV2828BjQWGgiwAaw5bAkgibUopemLJcWDy/lkbbHAve4cRAtx31Iq786U7it++wgGxbtRxf8Udx7zFZsckzXaJMkA7ChG52eSkFxykJeNqsrWH5S+oxNFlD4dzVuwe8DhTSja8xxbR/Z2cOGdCbzR72rgFWhzx2VjBqJzsPLMIQKhO4DGezXehhWwE56YCE+O6c0mKZsfxVrogUvA4HELjVKWmAvtl6UnCh8jYzuVG5WSb/QEVPnP5TmcAnLH1g+s++v6d4s8m0gCw1fV5/SITLq9mhho8K3+7EPYTU8IU1bLhdxO5Nyt8C8ssinQ98Xw9Q==",
    ),
    (
        "(\"@authority\" \"content-digest\" \"@query-param\";name=\"Pet\");created=1618884473;keyid=\"test-key-rsa-pss\";tag=\"header-example\"",
        "LjbtqUbfmvjj5C5kr1Ugj4PmLYvx9wVjZvD9GsTT4F7GrcQEdJzgI9qHxICagShLRiLMlAJjtq6N4CDfKtjvuJyE5qH7KT8UCMkSowOB4+ECxCmT8rtAmj/0PIXxi0A0nxKyB09RNrCQibbUjsLS/2YyFYXEu4TRJQzRw1rLEuEfY17SARYhpTlaqwZVtR8NV7+4UKkjqpcAoFqWFQh62s7Cl+H2fjBSpqfZUJcsIk4N6wiKYd4je2U/lankenQ99PZfB4jY3I5rSV2DSBVkSFsURIjYErOs0tFTQosMTAoxk//0RoKUqiYY8Bh0aaUEb0rQl3/XaVe4bXTugEjHSw==",
    ),
    (
        "(\"date\" \"@method\" \"@path\" \"@query\" \"@authority\" \"content-type\" \"content-digest\" \"content-length\");created=1618884473;keyid=\"test-key-rsa-pss\"",
        "bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==",
    ),
    (
        "(\"date\" \"@authority\" \"content-type\");created=1618884473;keyid=\"test-shared-secret\"",
        "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
    ),
    (
        "(\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \"content-length\");created=1618884473;keyid=\"test-key-ed25519\"",
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
    ),
];

fn consumer(name: &str, keys: &[(&str, &str, &str)]) -> Consumer {
    let keys = keys
        .iter()
        .map(|(id, algorithm, key)| json!({ "key_id": id, "algorithm": algorithm, "key": key }).to_string());
    let credentials = BTreeMap::from([("signature_auth".to_owned(), keys.collect())]);
    Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
}

/// A filter with the keys of the RFC and a long lifetime.
fn rfc(mut settings: Value) -> Running {
    settings["max_age"] = json!("3650d");
    Stand::new(&KIND, settings)
        .consumer(consumer("rsa", &[("test-key-rsa-pss", "rsa-pss-sha512", RSA)]))
        .consumer(consumer(
            "ed",
            &[("test-key-ed25519", "ed25519", ED25519), ("p", "ecdsa-p256-sha256", P256)],
        ))
        .consumer(consumer("hmac", &[("test-shared-secret", "hmac-sha256", SECRET)]))
        .build()
}

fn signed(input: &str, signature: &str) -> String {
    format!("{REQUEST}Signature-Input: s={input}\nSignature: s=:{signature}:")
}

#[tokio::test]
async fn examples_of_the_rfc() {
    let running = rfc(json!({ "components": ["@authority"] }));
    for (input, signature) in EXAMPLES {
        let mut exchange = running.request(&signed(input, signature)).await;
        if input.starts_with("()") {
            exchange.expect_cause(&SIGNATURE_COMPONENTS); // a signature that fits every request is not enough here
            continue;
        }
        exchange.expect_continue();
        assert!(exchange.cx.consumer().is_some());
        // A signature is accepted once.
        running.request(&signed(input, signature)).await.expect_cause(&SIGNATURE_REPLAYED);
        // With one bit changed in the signature or in what it covers, it is refused.
        let mut bytes = base64::decode(signature.as_bytes()).unwrap();
        bytes[7] ^= 1;
        running.request(&signed(input, &base64::encode(&bytes))).await.expect_cause(&SIGNATURE_WRONG);
        let elsewhere = signed(input, signature).replace("example.com", "example.org");
        running.request(&elsewhere).await.expect_cause(&SIGNATURE_WRONG);
        let later = signed(&input.replace("1618884473", "1618884474"), signature);
        running.request(&later).await.expect_cause(&SIGNATURE_WRONG);
    }
}

#[tokio::test]
async fn keys_of_a_source_verify_while_they_are_there() {
    let settings = json!({ "components": ["@authority"], "max_age": "3650d", "remember": 0 });
    let key = json!({ "key_id": "test-shared-secret", "algorithm": "hmac-sha256", "key": SECRET });
    let document = json!({ "consumers": { "crm": { "signature_auth": [key] } } }).to_string();
    let mut stand = Stand::new(&KIND, settings).listed(&document);
    let running = stand.build();
    let (input, signature) =
        EXAMPLES.into_iter().find(|(input, _)| input.contains("test-shared-secret")).unwrap();
    let mut exchange = running.request(&signed(input, signature)).await;
    exchange.expect_continue();
    assert_eq!(exchange.cx.consumer().map(|consumer| consumer.name.as_str()), Some("crm"));
    stand.relist("consumers: {}");
    running.request(&signed(input, signature)).await.expect_cause(&SIGNATURE_KEY);
}

/// RFC 9421 B.2.1 covers nothing but its parameters, and B.2.4 belongs to a response. Their signatures are valid
/// nevertheless.
#[test]
fn examples_by_their_bases() {
    let base = "\"@signature-params\": ();created=1618884473;keyid=\"test-key-rsa-pss\";nonce=\"b3k2pp5k7z-50gnwp.yemd\"";
    let key = parse_key(RSA, Algorithm::PS512).unwrap();
    let signature = base64::decode(EXAMPLES[0].1.as_bytes()).unwrap();
    assert!(key.verify(Algorithm::PS512, base.as_bytes(), &signature));
    let base = "\"@status\": 200\n\"content-type\": application/json\n\"content-digest\": sha-512=:mEWXIS7MaLRuGgxOBdODa3xqM1XdEvxoYhvlCFJ41QJgJc4GTsPp29l5oGX69wWdXymyU0rjJuahq4l5aGgfLQ==:\n\"content-length\": 23\n\"@signature-params\": (\"@status\" \"content-type\" \"content-digest\" \"content-length\");created=1618884473;keyid=\"test-key-ecc-p256\"";
    let signature = base64::decode(
        b"wNmSUAhwb5LxtOtOpNa6W5xj067m5hFrj0XQ4fvpaCLx0NKocgPquLgyahnzDnDAUy5eCdlYUEkLIj+32oiasw==",
    )
    .unwrap();
    assert!(parse_key(P256, Algorithm::ES256).unwrap().verify(Algorithm::ES256, base.as_bytes(), &signature));
}

// === signatures of our own ===

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

const LINE: &str = "\"@method\": GET\n\"@target-uri\": http://example.com/a?b=1\n";

/// A request signed with the shared secret; `lines` are the covered lines.
fn request(target: &str, components: &str, parameters: &str, lines: &str) -> String {
    let input = format!("({components});{parameters};keyid=\"test-shared-secret\"");
    let base = format!("{lines}\"@signature-params\": {input}");
    let key = base64::decode(SECRET.trim_start_matches("base64:").as_bytes()).unwrap();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), base.as_bytes());
    format!("{target}\nSignature-Input: s={input}\nSignature: s=:{}:\n", base64::encode(tag.as_ref()))
}

fn simple(parameters: &str) -> String {
    request("GET /a?b=1", "\"@method\" \"@target-uri\"", parameters, LINE)
}

fn ours(settings: Value) -> Running {
    Stand::new(&KIND, settings)
        .consumer(consumer("hmac", &[("test-shared-secret", "hmac-sha256", SECRET)]))
        .build()
}

async fn ask(running: &Running, text: &str) -> Exchange {
    running.request(text).await
}

#[tokio::test]
async fn without_a_signature_the_client_is_told_what_to_sign() {
    let running = ours(json!({ "nonce": true }));
    let mut exchange = ask(&running, "GET /").await;
    exchange.expect_status(401).expect_cause(&SIGNATURE_MISSING);
    exchange.expect_header("www-authenticate", "Signature realm=\"weir\"");
    let wanted = "sig=(\"@method\" \"@target-uri\" \"content-digest\");created;keyid;nonce";
    exchange.expect_header("accept-signature", wanted);
    let optional = ours(json!({ "optional": true }));
    ask(&optional, "GET /").await.expect_continue();
    ask(&optional, "GET /\nSignature-Input: x").await.expect_cause(&SIGNATURE_MALFORMED);
}

#[tokio::test]
async fn times() {
    let (running, now) = (ours(json!({})), now());
    for (parameters, cause) in [
        (format!("created={now}"), None),
        (format!("created={}", now - 50), None),
        (format!("created={}", now - 100), Some(&SIGNATURE_EXPIRED)),
        (format!("created={}", now + 100), Some(&SIGNATURE_EXPIRED)),
        ("created=-1".to_owned(), Some(&SIGNATURE_EXPIRED)),
        ("created=\"1\"".to_owned(), Some(&SIGNATURE_MALFORMED)),
        ("nonce=\"a\"".to_owned(), Some(&SIGNATURE_EXPIRED)),
        (format!("created={};expires={}", now - 1, now + 60), None),
        (format!("created={};expires={}", now - 50, now - 40), Some(&SIGNATURE_EXPIRED)),
        (format!("created={};alg=\"hmac-sha256\"", now - 2), None),
        (format!("created={};alg=\"ed25519\"", now - 2), Some(&SIGNATURE_KEY)),
    ] {
        let mut exchange = ask(&running, &simple(&parameters)).await;
        match cause {
            None => exchange.expect_continue(),
            Some(cause) => exchange.expect_cause(cause),
        };
    }
}

#[tokio::test]
async fn once_each() {
    let running = ours(json!({ "remember": 2 }));
    let with = |nonce: &str| simple(&format!("created={};nonce=\"{nonce}\"", now()));
    let first = with("a");
    ask(&running, &first).await.expect_continue();
    ask(&running, &first).await.expect_status(401).expect_cause(&SIGNATURE_REPLAYED);
    // The same nonce with another time is still a replay.
    ask(&running, &simple(&format!("created={};nonce=\"a\"", now() - 1)))
        .await
        .expect_cause(&SIGNATURE_REPLAYED);
    ask(&running, &with("b")).await.expect_continue();
    ask(&running, &with("c")).await.expect_status(503).expect_cause(&SIGNATURE_MEMORY);
    ask(&running, &first).await.expect_cause(&SIGNATURE_REPLAYED);
    let careless = ours(json!({ "remember": 0 }));
    let same = with("a");
    ask(&careless, &same).await.expect_continue();
    ask(&careless, &same).await.expect_continue();
    let strict = ours(json!({ "nonce": true }));
    ask(&strict, &simple(&format!("created={}", now()))).await.expect_cause(&SIGNATURE_COMPONENTS);
    ask(&strict, &with("d")).await.expect_continue();
}

#[tokio::test]
async fn what_must_be_covered() {
    let running = ours(json!({}));
    let created = format!("created={}", now());
    let only_method = request("GET /a", "\"@method\"", &created, "\"@method\": GET\n");
    ask(&running, &only_method).await.expect_cause(&SIGNATURE_COMPONENTS);
    // The digest of the body is not signed.
    let target = "POST /a?b=1\nContent-Length: 5";
    let lines = LINE.replace("GET", "POST");
    let no_digest = request(target, "\"@method\" \"@target-uri\"", &created, &lines);
    ask(&running, &no_digest).await.expect_cause(&SIGNATURE_COMPONENTS);
    // A covered component is missing.
    let missing = request("GET /a?b=1", "\"@method\" \"@target-uri\" \"date\"", &created, LINE);
    ask(&running, &missing).await.expect_cause(&SIGNATURE_COMPONENTS);
    let tagged = ours(json!({ "tag": "app" }));
    ask(&tagged, &simple(&created)).await.expect_cause(&SIGNATURE_KEY);
    ask(&tagged, &simple(&format!("{created};tag=\"app\""))).await.expect_continue();
    let https = ours(json!({ "scheme": "https" }));
    ask(&https, &simple(&created)).await.expect_cause(&SIGNATURE_WRONG);
}

/// RFC 9421 §2.1: fields strictly serialized, one member of a field, and fields as bytes.
#[tokio::test]
async fn fields_in_other_forms() {
    let running = ours(
        json!({ "structured": { "example-dict": "dictionary" }, "components": ["@method", "example-header"] }),
    );
    let target = "GET /a?b=1\nExample-Dict:  a=1,    b=2;x=1;y=2,   c=(a   b   c)\nExample-Header: value, with, lots\nExample-Header: of, commas";
    let method = "\"@method\": GET\n";
    for (nonce, component, line, passes) in [
        (
            1,
            "\"example-header\";bs",
            "\"example-header\";bs: :dmFsdWUsIHdpdGgsIGxvdHM=:, :b2YsIGNvbW1hcw==:",
            true,
        ),
        (2, "\"example-header\"", "\"example-header\": value, with, lots, of, commas", true),
        // A member of a field does not cover the field.
        (3, "\"example-header\";key=\"value\"", "\"example-header\";key=\"value\": ?1", false),
    ] {
        let parameters = format!("created={};nonce=\"{nonce}\"", now());
        let components = format!("\"@method\" {component} \"example-dict\";sf \"example-dict\";key=\"b\"");
        let lines = format!(
            "{method}{line}\n\"example-dict\";sf: a=1, b=2;x=1;y=2, c=(a b c)\n\"example-dict\";key=\"b\": 2;x=1;y=2\n"
        );
        let mut exchange = ask(&running, &request(target, &components, &parameters, &lines)).await;
        if passes {
            exchange.expect_continue();
            // With other spacing it is the same field, except for a signature over the bytes.
            let again = request(target, &components, &format!("{parameters};tag=\"{nonce}\""), &lines);
            let spaced = again.replace("value, with", "value,  with");
            assert!(!matches!(ask(&running, &spaced).await.flow, Flow::Continue));
        } else {
            exchange.expect_cause(&SIGNATURE_COMPONENTS);
        }
    }
}

/// The path and query are those that the client sent, even if the gateway normalizes them for routing.
#[tokio::test]
async fn the_request_as_it_was_sent() {
    let lines = "\"@method\": GET\n\"@target-uri\": http://example.com/%61//b?c=%64\n";
    let components = "\"@method\" \"@target-uri\"";
    let asked = request("GET /%61//b?c=%64", components, &format!("created={}", now()), lines);
    ask(&ours(json!({})), &asked).await.expect_continue();
}

#[tokio::test]
async fn the_body_is_what_was_signed() {
    let body = b"{\"hello\": \"world\"}";
    let field = digest::sha256(body);
    let post = |n: u32, field: &str, framing: &str| {
        let lines = LINE.replace("GET", "POST") + &format!("\"content-digest\": {field}\n");
        let target = format!("POST /a?b=1\nContent-Digest: {field}\n{framing}");
        let parameters = format!("created={};nonce=\"{n}\"", now());
        request(&target, "\"@method\" \"@target-uri\" \"content-digest\"", &parameters, &lines)
    };
    let running = ours(json!({}));
    for (n, framing) in [(1, "Content-Length: 18"), (2, "Transfer-Encoding: chunked")] {
        let mut exchange = ask(&running, &post(n, &field, framing)).await;
        exchange.expect_continue();
        assert_eq!(exchange.body(&body[..10], false).as_deref(), Ok(&body[..10]));
        assert_eq!(exchange.body(&body[10..], true).as_deref(), Ok(&body[10..]));
        let mut forged = ask(&running, &post(n + 10, &field, framing)).await;
        forged.expect_continue();
        assert!(forged.body(&body[..10], false).is_ok());
        assert_eq!(forged.body(b" \"w0rld\"}", true), Err(&DIGEST_WRONG));
        let mut cut = ask(&running, &post(n + 20, &field, framing)).await;
        assert_eq!(cut.body(&body[..17], true), Err(&DIGEST_WRONG));
    }
    ask(&running, &post(30, "md5=:AAAA:", "Content-Length: 18")).await.expect_cause(&DIGEST_WRONG);
    // The request has a digest but no body.
    ask(&running, &post(31, &field, "")).await.expect_status(400).expect_cause(&DIGEST_WRONG);
    ask(&running, &post(32, &digest::sha256(b""), "")).await.expect_continue();
}

#[tokio::test]
async fn hostile_fields() {
    let running = ours(json!({}));
    let good = simple(&format!("created={}", now()));
    for (from, to, cause) in [
        ("Signature: s=", "Signature: t=", &SIGNATURE_KEY),
        ("Signature: s=:", "Signature: s=", &SIGNATURE_MALFORMED),
        ("Signature-Input: s=(", "Signature-Input: s=((", &SIGNATURE_MALFORMED),
        ("Signature-Input: s=", "Signature-Input: s=1, a=", &SIGNATURE_KEY),
        ("keyid=\"test-shared-secret\"", "keyid=\"other\"", &SIGNATURE_KEY),
        ("keyid=\"test-shared-secret\"", "keyid=test-shared-secret", &SIGNATURE_KEY),
        ("Signature: s=", "X: s=", &SIGNATURE_MALFORMED),
        ("Signature-Input: s=", "X: s=", &SIGNATURE_MALFORMED),
        ("\"@method\"", "\"@method\" \"@method\"", &SIGNATURE_UNKNOWN),
        ("\"@method\"", "\"@method\" \"host\";tr", &SIGNATURE_UNKNOWN),
        ("\"@method\"", "\"@method\" \"host\";req", &SIGNATURE_UNKNOWN),
        ("\"@method\"", "\"@method\" \"host\";sf", &SIGNATURE_COMPONENTS),
    ] {
        assert!(good.contains(from), "{from}");
        ask(&running, &good.replacen(from, to, 1)).await.expect_cause(cause);
    }
    ask(&running, &good).await.expect_continue();
}

#[tokio::test]
async fn what_was_used_is_remembered_over_a_reload() {
    let mut stand = Stand::new(&KIND, json!({}))
        .consumer(consumer("hmac", &[("test-shared-secret", "hmac-sha256", SECRET)]));
    let good = simple(&format!("created={}", now()));
    ask(&stand.build(), &good).await.expect_continue();
    ask(&stand.build(), &good).await.expect_cause(&SIGNATURE_REPLAYED);
}

#[test]
fn mistakes() {
    let keyed = |settings: Value| {
        Stand::new(&KIND, settings).consumer(consumer("a", &[("k", "ed25519", ED25519)])).mistakes()
    };
    assert!(keyed(json!({ "components": ["Date"] }))[0].contains("components[0]: `Date`"));
    assert!(keyed(json!({ "components": ["@status"] }))[0].contains("components[0]"));
    assert!(keyed(json!({ "components": [] }))[0].contains("fit every request"));
    assert!(keyed(json!({ "max_ages": "1s" }))[0].contains("max_ages"));
    assert!(keyed(json!({ "structured": { "@path": "item" } }))[0].contains("structured.@path"));
    assert!(keyed(json!({ "structured": { "x": "set" } }))[0].contains("dictionary"));
    assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("no consumer has a key"));
    for (key, why) in [
        (("k", "ed448", ED25519), "expected one of"),
        (("k", "ed25519", P256), "is not a key for ed25519"),
        (("k", "ed25519", "x"), "is not a public key"),
        (("k", "hmac-sha256", "short"), "is weak"),
        (("k", "hmac-sha256", "base64:?"), "is not Base64"),
    ] {
        let told = Stand::new(&KIND, json!({})).consumer(consumer("a", &[key])).mistakes();
        assert!(told[0].contains("key 1 of consumer `a`") && told[0].contains(why), "{told:?}");
        assert!(!told[0].contains("short"), "secrets are not told");
    }
    let twice = Stand::new(&KIND, json!({}))
        .consumer(consumer("a", &[("k", "ed25519", ED25519)]))
        .consumer(consumer("b", &[("k", "ed25519", ED25519)]))
        .mistakes();
    assert!(twice[0].contains("key 1 of consumer `b` has the `key_id` of one of `a`"), "{twice:?}");
}

/// If a member of `any` buffers the whole body for all, the digest is compared nevertheless.
#[tokio::test]
async fn a_body_that_another_member_has_whole_is_compared_too() {
    let settings =
        json!([{ "signature_auth": {} }, { "forward_auth": { "upstream": "auth", "body": "1KiB" } }]);
    let running = Stand::new(&crate::any::KIND, settings)
        .kinds(crate::KINDS)
        .upstream("auth")
        .consumer(consumer("hmac", &[("test-shared-secret", "hmac-sha256", SECRET)]))
        .build();
    for (body, passes) in [("signed", true), ("forged", false)] {
        let digest = digest::sha256(b"signed");
        let line = format!("PUT /a?b=1\nContent-Length: 6\nContent-Digest: {digest}");
        let covered = format!(
            "\"@method\": PUT\n\"@target-uri\": http://example.com/a?b=1\n\"content-digest\": {digest}\n"
        );
        let parameters = format!("created={};nonce=\"{body}\"", now());
        let components = "\"@method\" \"@target-uri\" \"content-digest\"";
        let text = request(&line, components, &parameters, &covered);
        let mut exchange = running.request_with(&text, body).await;
        match passes {
            true => exchange.expect_continue(),
            false => exchange.expect_cause(&DIGEST_WRONG),
        };
    }
}
