//! Keys in every place where a request may have one, and mistakes in keys.

use super::keys::{SLOTS, Verified, WORDS};
use super::*;
use crate::testing::{Exchange, Stand};
use serde_json::{Value, json};

fn consumer(name: &str, keys: &[&str]) -> Consumer {
    let keys = keys.iter().map(|k| (*k).to_owned()).collect();
    let credentials = std::collections::BTreeMap::from([("key_auth".to_owned(), keys)]);
    Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
}

fn stand(settings: Value) -> Stand {
    // sha256 of "hashed"
    let hash = Sha256::digest(b"hashed").iter().map(|b| format!("{b:02X}")).collect::<String>();
    Stand::new(&KIND, settings)
        .consumer(consumer("shop", &["secret", "other"]))
        .consumer(consumer("desk", &[&format!("sha256:{hash}")]))
}

async fn run(settings: Value, request: &str) -> Exchange {
    stand(settings).build().request(request).await
}

#[tokio::test]
async fn a_key_names_its_consumer_and_goes_no_further() {
    for (key, name) in [("secret", "shop"), ("other", "shop"), ("hashed", "desk")] {
        let mut exchange = run(json!({}), &format!("GET /\nX-API-Key: {key}")).await;
        exchange.expect_continue().expect_no_header("x-api-key");
        assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
    }
}

#[tokio::test]
async fn without_a_key_there_is_a_challenge() {
    for request in ["GET /", "GET /\nX-API-Key:", "GET /?apikey=secret"] {
        let mut exchange = run(json!({}), request).await;
        exchange.expect_status(401).expect_cause(&KEY_MISSING);
        exchange.expect_header("www-authenticate", "ApiKey realm=\"weir\"");
        assert!(exchange.cx.consumer().is_none());
    }
}

#[tokio::test]
async fn a_wrong_key_is_unknown() {
    let hash = Sha256::digest(b"hashed").iter().map(|b| format!("{b:02x}")).collect::<String>();
    for key in ["Secret", "secret2", "secre", &format!("sha256:{hash}"), &hash, "\u{e4}"] {
        let mut exchange = run(json!({}), &format!("GET /\nx-api-key: {key}")).await;
        exchange.expect_status(401).expect_cause(&KEY_UNKNOWN);
        exchange.expect_header("www-authenticate", "ApiKey realm=\"weir\"");
    }
}

#[tokio::test]
async fn two_keys_must_agree() {
    let query = json!({ "query": "key" });
    run(json!({}), "GET /\nx-api-key: secret\nx-api-key: secret").await.expect_continue();
    run(json!({}), "GET /\nx-api-key: secret\nx-api-key: other").await.expect_cause(&KEY_UNKNOWN);
    run(query.clone(), "GET /?key=secret\nx-api-key: other").await.expect_cause(&KEY_UNKNOWN);
    run(query.clone(), "GET /?key=secret&key=wrong").await.expect_cause(&KEY_UNKNOWN);
    run(query, "GET /?key=secret\nx-api-key: secret").await.expect_continue().expect_target("/");
    // Also if the first one was verified before.
    let running = stand(json!({})).build();
    running.request("GET /\nx-api-key: secret").await.expect_continue();
    for second in ["other", "wrong"] {
        let both = format!("GET /\nx-api-key: secret\nx-api-key: {second}");
        running.request(&both).await.expect_cause(&KEY_UNKNOWN);
    }
}

#[tokio::test]
async fn keys_in_the_query() {
    let settings = json!({ "query": "key" });
    let mut exchange = run(settings.clone(), "GET /?a=1&k%65y=s%65cret&b=2").await;
    exchange.expect_continue().expect_target("/?a=1&b=2");
    let settings = json!({ "query": "key", "hide": false });
    run(settings, "GET /?key=secret\nx-api-key: secret")
        .await
        .expect_target("/?key=secret")
        .expect_header("x-api-key", "secret");
}

#[tokio::test]
async fn schemes() {
    let settings = json!({ "header": "authorization", "scheme": "Bearer" });
    for good in ["Bearer secret", "bearer  secret", "Bearer\tsecret"] {
        let mut exchange = run(settings.clone(), &format!("GET /\nAuthorization: {good}")).await;
        exchange.expect_continue().expect_no_header("authorization");
    }
    for none in ["secret", "Basic secret", "Bearer", "Bearersecret"] {
        let mut exchange = run(settings.clone(), &format!("GET /\nAuthorization: {none}")).await;
        exchange.expect_cause(&KEY_MISSING).expect_header("www-authenticate", "Bearer realm=\"weir\"");
    }
    let challenge = "Bearer realm=\"weir\", error=\"invalid_token\"";
    run(settings, "GET /\nAuthorization: Bearer x").await.expect_header("www-authenticate", challenge);
}

#[tokio::test]
async fn the_upstream_is_told_who_calls() {
    let settings = json!({ "consumer_header": "x-consumer" });
    run(settings, "GET /\nx-api-key: secret\nX-Consumer: admin").await.expect_header("x-consumer", "shop");
}

#[tokio::test]
async fn a_consumer_may_be_bound_to_addresses() {
    let bound = Consumer { allow_ips: ["10.0.0.0/8".parse().unwrap()].into(), ..consumer("bound", &["k"]) };
    let running = Stand::new(&KIND, json!({})).consumer(bound).build();
    for (client, fine) in
        [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("192.0.2.1", false), ("::1", false)]
    {
        let mut exchange = running.from(client).request("GET /\nx-api-key: k").await;
        match fine {
            true => exchange.expect_continue(),
            false => exchange.expect_status(403).expect_cause(&CONSUMER_ADDRESS),
        };
    }
}

#[tokio::test]
async fn a_key_that_was_verified_is_still_the_only_one_that_passes() {
    let running = stand(json!({})).build();
    for _ in 0..3 {
        for (key, name) in [("secret", Some("shop")), ("Secret", None), ("hashed", Some("desk"))] {
            let exchange = running.request(&format!("GET /\nx-api-key: {key}")).await;
            assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), name, "{key}");
        }
    }
}

/// Keys end before, at and after the end of a word or of a pair of words.
#[tokio::test]
async fn keys_that_differ_in_their_last_byte_are_different() {
    for length in [1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 36, 255, 256, 300] {
        let key = |last: &str| "k".repeat(length - 1) + last;
        let stand = Stand::new(&KIND, json!({}));
        let running =
            stand.consumer(consumer("one", &[&key("1")])).consumer(consumer("two", &[&key("2")])).build();
        for _ in 0..3 {
            for (last, name) in
                [("1", Some("one")), ("2", Some("two")), ("3", None), ("", None), ("12", None)]
            {
                let exchange = running.request(&format!("GET /\nx-api-key: {}", key(last))).await;
                let found = exchange.cx.consumer().map(|c| c.name.as_str());
                assert_eq!(found, name, "{length}: ...{last}");
            }
        }
    }
}

#[tokio::test]
async fn an_empty_key_is_none_even_if_its_hash_is_known() {
    let hash = Sha256::digest(b"").iter().map(|b| format!("{b:02x}")).collect::<String>();
    let running = Stand::new(&KIND, json!({}))
        .consumer(consumer("shop", &[&format!("sha256:{hash}"), "secret"]))
        .build();
    for _ in 0..2 {
        running.request("GET /\nx-api-key:").await.expect_status(401).expect_cause(&KEY_MISSING);
        running.request("GET /\nx-api-key: secret").await.expect_continue();
    }
}

#[tokio::test]
async fn a_revoked_key_is_not_remembered_by_the_next_config() {
    let with = |keys: &[&str]| Stand::new(&KIND, json!({})).consumer(consumer("shop", keys)).build();
    let before = with(&["old", "new"]);
    for _ in 0..2 {
        before.request("GET /\nx-api-key: old").await.expect_continue();
    }
    let after = with(&["new"]);
    for _ in 0..2 {
        after.request("GET /\nx-api-key: old").await.expect_cause(&KEY_UNKNOWN);
        after.request("GET /\nx-api-key: new").await.expect_continue();
    }
    before.request("GET /\nx-api-key: old").await.expect_continue();
}

#[tokio::test]
async fn what_is_hidden_does_not_depend_on_what_is_remembered() {
    for (settings, kept) in [(json!({}), None), (json!({ "hide": false }), Some("secret"))] {
        let running = stand(settings).build();
        for _ in 0..3 {
            let mut exchange = running.request("GET /\nX-API-Key: secret\nx_api_key: other\na: 1").await;
            exchange.expect_continue().expect_header("a", "1");
            match kept {
                Some(key) => exchange.expect_header("x-api-key", key),
                None => exchange.expect_no_header("x-api-key").expect_no_header("x_api_key"),
            };
        }
    }
}

#[test]
fn verified_keys_are_remembered_and_bounded() {
    let verified = Verified::new(2);
    let owner = |consumer| Owner { consumer, digits: *b"00000000" };
    let tag = |key: &[u8]| verified.tag(key).unwrap();
    assert_eq!(verified.find(tag(b"a")), None);
    verified.remember(tag(b"a"), owner(7));
    verified.remember(tag(b"b"), owner(8));
    assert_eq!(verified.find(tag(b"a")), Some(owner(7)));
    assert_eq!(verified.find(tag(b"b")), Some(owner(8)));
    // A difference of one bit in either sum is a different key.
    let [one, other] = tag(b"a");
    for differs in [1, 1 << 127] {
        assert_eq!(verified.find([one ^ differs, other]), None);
        assert_eq!(verified.find([one, other ^ differs]), None);
    }
    // Keys that do not fit are not remembered, and evict no other key.
    (0..100u8).for_each(|n| verified.remember(tag(&[n]), owner(u32::from(n))));
    assert_eq!(verified.slots.iter().filter(|slot| slot.get().is_some()).count(), 4);
    assert_eq!(verified.find(tag(b"a")), Some(owner(7)));
    assert_eq!(Verified::new(0).find([0; 2]), None);
    assert_eq!(Verified::new(1_000_000).slots.len(), SLOTS);
    assert_ne!(Verified::new(2).tag(b"a"), verified.tag(b"a"), "its secrets are its own");
    assert_eq!(verified.tag(&[b'a'; 8 * WORDS]), None, "too long to be remembered");
}

#[test]
fn keys_that_differ_are_told_apart() {
    let verified = Verified::new(1);
    let mut tags = std::collections::HashSet::new();
    // Every length: also ending in zeros, which words are padded with, and with one bit changed in every byte.
    for len in 0..8 * WORDS {
        let key = vec![b'a'; len];
        assert!(tags.insert(verified.tag(&key)));
        assert!(len == 0 || tags.insert(verified.tag(&vec![0; len])));
        for at in 0..len {
            let mut other = key.clone();
            other[at] ^= 1 << (at % 8);
            assert!(tags.insert(verified.tag(&other)), "{at} of {len}");
        }
    }
}

#[tokio::test]
async fn keys_in_a_cookie() {
    let settings = json!({ "cookie": "key" });
    let mut exchange = run(settings.clone(), "GET /\nCookie: a=1; key=secret; b=2").await;
    exchange.expect_continue().expect_header("cookie", "a=1; b=2");
    run(settings.clone(), "GET /\nCookie: key=wrong").await.expect_cause(&KEY_UNKNOWN);
    run(settings, "GET /\nCookie: keys=secret").await.expect_cause(&KEY_MISSING);
}

#[tokio::test]
async fn keys_in_the_path() {
    let settings = json!({ "path": true });
    run(settings.clone(), "GET /spot/~secret/price").await.expect_continue().expect_target("/spot/price");
    run(settings.clone(), "GET /spot/~wrong/price").await.expect_cause(&KEY_UNKNOWN);
    run(settings.clone(), "GET /spot/~/price").await.expect_cause(&KEY_MISSING);
    run(settings.clone(), "GET /spot/~secret/sp~ot/~").await.expect_continue();
    for twice in ["/spot/~secret/~secret/x", "/~secret/~x", "/~secret/spot/~secret", "/~wrong/~secret"] {
        let mut exchange = run(settings.clone(), &format!("GET {twice}")).await;
        exchange.expect_status(400).expect_cause(&KEY_TWICE);
    }
    // Without the setting, the segment is part of an ordinary path.
    run(json!({}), "GET /~bob/~ann\nx-api-key: secret").await.expect_continue().expect_target("/~bob/~ann");
}

#[tokio::test]
async fn without_a_key_only_where_it_is_optional() {
    let settings = json!({ "optional": true, "consumer_header": "x-consumer" });
    let mut unnamed = run(settings.clone(), "GET /\nX-Consumer: admin").await;
    unnamed.expect_continue().expect_no_header("x-consumer");
    assert!(unnamed.cx.consumer().is_none());
    run(settings.clone(), "GET /\nx-api-key: wrong").await.expect_cause(&KEY_UNKNOWN);
    run(settings, "GET /\nx-api-key: secret").await.expect_continue().expect_header("x-consumer", "shop");
}

#[tokio::test]
async fn keys_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.txt");
    std::fs::write(&file, "# rotated in May\nshop third  # the new one\n\ndesk fourth\n").unwrap();
    for (key, name) in [("secret", "shop"), ("third", "shop"), ("fourth", "desk")] {
        let request = format!("GET /\nx-api-key: {key}");
        let mut exchange = run(json!({ "file": file }), &request).await;
        exchange.expect_continue();
        assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
    }
    std::fs::write(&file, "shop secret\nnobody fifth\nshop\nshop sha256:12\n").unwrap();
    let told = stand(json!({ "file": file })).mistakes();
    assert!(told[0].contains("keys.txt:1: the key already belongs to consumer `shop`"), "{told:?}");
    assert!(told[1].contains("keys.txt:2: there is no consumer `nobody`"), "{told:?}");
    assert!(told[2].contains("keys.txt:3: is not a pair"), "{told:?}");
    assert!(told[3].contains("keys.txt:4: the key is not a hash"), "{told:?}");
    assert!(!told.concat().contains("fifth"), "{told:?}");
}

#[tokio::test]
async fn the_log_tells_which_key() {
    let exchange = run(json!({}), "GET /\nx-api-key: secret").await;
    // printf %s secret | sha256sum
    assert_eq!(exchange.cx.credential, Some(*b"2bb80d53"));
}

#[test]
fn mistakes() {
    let with = |keys: &[&str]| Stand::new(&KIND, json!({})).consumer(consumer("a", keys)).mistakes();
    assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("no consumer has a key"));
    assert!(with(&[""])[0].contains("key 1 of consumer `a` is empty"));
    assert!(with(&["sha256:12"])[0].contains("64 hexadecimal digits"));
    assert!(with(&["a b"])[0].contains("no client can send"));
    let twice = Stand::new(&KIND, json!({}))
        .consumer(consumer("a", &["k"]))
        .consumer(consumer("b", &["k"]))
        .mistakes();
    assert!(twice[0].contains("key 1 of consumer `b` already belongs to consumer `a`"), "{twice:?}");
    let mut bad = stand(json!({ "header": "host", "scheme": "a b", "query": "", "consumer_header": "te" }));
    assert_eq!(bad.mistakes().len(), 4);
}

#[test]
fn no_key_is_in_the_resolved_settings() {
    assert!(!stand(json!({})).build().settings.to_string().contains("secret"));
}
