//! Logins, what is remembered of them, and mistakes in users.

use super::remembered::{Slot, WAYS};
use super::users::User;
use super::*;
use crate::testing::{Exchange, Running, Stand};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::rc::Rc;

/// A hash with low cost, for tests.
fn hashed(password: &str) -> String {
    bcrypt::hash_with_salt(password, 4, [7; 16]).unwrap().to_string()
}

fn consumer(name: &str, pairs: &[String]) -> Consumer {
    let credentials = std::collections::BTreeMap::from([("basic_auth".to_owned(), pairs.to_vec())]);
    Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
}

fn stand(settings: Value) -> Stand {
    let shop =
        consumer("shop", &[format!("ann:{}", hashed("secret")), format!("bob:{}", hashed("a:b\u{fc}"))]);
    Stand::new(&KIND, settings).consumer(shop)
}

fn request(pair: &str) -> String {
    format!("GET /\nAuthorization: Basic {}", base64::encode(pair.as_bytes()))
}

#[test]
fn a_pair_is_verified_once() {
    let (remembered, time) = (Remembered::default(), std::time::Duration::from_secs(60));
    assert_eq!(remembered.verified(1, time, || None), None, "a wrong pair is not remembered");
    assert_eq!(remembered.verified(1, time, || Some(3)), Some(3));
    assert_eq!(remembered.verified(1, time, || panic!("verified again")), Some(3));
    assert_eq!(remembered.verified(2, time, || Some(4)), Some(4), "another pair");
    for consumer in [5, 6] {
        let found = remembered.verified(3, std::time::Duration::ZERO, || Some(consumer));
        assert_eq!(found, Some(consumer), "`remember: 0s`");
    }
}

async fn ask(running: &Running, pair: &str) -> Exchange {
    running.request(&request(pair)).await
}

#[tokio::test]
async fn a_password_names_its_consumer_and_goes_no_further() {
    let running = stand(json!({ "consumer_header": "x-who" })).build();
    for pair in ["ann:secret", "bob:a:b\u{fc}"] {
        let mut exchange = ask(&running, pair).await;
        exchange.expect_continue().expect_no_header("authorization").expect_header("x-who", "shop");
        assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some("shop"));
    }
    let kept = stand(json!({ "hide": false })).build();
    ask(&kept, "ann:secret").await.expect_continue();
    let unpadded = request("ann:secret").trim_end_matches('=').to_owned();
    running.request(&unpadded).await.expect_continue();
}

#[tokio::test]
async fn a_user_of_a_source_is_forgotten_with_it() {
    let document = |user: &str, password: &str| {
        format!("consumers: {{ crm: {{ basic_auth: [ \"{user}:{}\" ] }} }}", hashed(password))
    };
    let mut stand = stand(json!({})).listed(&document("eve", "old"));
    let running = stand.build();
    for (pair, name) in [("eve:old", "crm"), ("eve:old", "crm"), ("ann:secret", "shop")] {
        let exchange = ask(&running, pair).await;
        assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
    }
    assert!(!ask(&running, "eve:old").await.waited, "it is remembered");
    ask(&running, "eve:new").await.expect_cause(&BASIC_WRONG);
    // A new password counts at once, and the old one, which is remembered, no longer.
    stand.relist(&document("eve", "new"));
    ask(&running, "eve:old").await.expect_cause(&BASIC_WRONG);
    ask(&running, "eve:new").await.expect_continue();
    stand.relist(&document("kim", "new"));
    ask(&running, "eve:new").await.expect_cause(&BASIC_WRONG);
    ask(&running, "kim:new").await.expect_continue();
    ask(&running, "ann:secret").await.expect_continue();
}

#[tokio::test]
async fn what_is_wrong_has_its_cause() {
    let running = stand(json!({ "realm": "orders" })).build();
    for pair in ["ann:Secret", "ann:", "eve:secret", ":secret", "Ann:secret"] {
        let mut exchange = ask(&running, pair).await;
        exchange.expect_status(401).expect_cause(&BASIC_WRONG);
        exchange.expect_header("www-authenticate", "Basic realm=\"orders\", charset=\"UTF-8\"");
        assert!(exchange.cx.consumer().is_none());
    }
    for none in ["GET /", "GET /\nAuthorization: Bearer abc", "GET /\nAuthorization: Basi"] {
        running.request(none).await.expect_status(401).expect_cause(&BASIC_MISSING);
    }
    let twice = format!("{}\nAuthorization: Basic YTpi", request("ann:secret"));
    let long = request(&format!("ann:{}", "a".repeat(PASSWORD_BYTES + 1)));
    for malformed in [
        "GET /\nAuthorization: Basic",
        "GET /\nAuthorization: Basic %%%%",
        "GET /\nAuthorization: Basic YWJj",
        &request("ann:a\u{1}b"),
        &twice,
        &long,
    ] {
        running.request(malformed).await.expect_status(401).expect_cause(&BASIC_MALFORMED);
    }
}

#[tokio::test]
async fn what_was_verified_is_remembered_until_it_changes() {
    let mut surroundings = stand(json!({}));
    let running = surroundings.build();
    ask(&running, "ann:secret").await.expect_continue();
    // Another password of the same user does not match the verified pair.
    ask(&running, "ann:secreT").await.expect_cause(&BASIC_WRONG);
    // A reload with the same users keeps verified pairs; a reload with other users drops them.
    let mut changed = surroundings.consumers(vec![consumer("shop", &[format!("ann:{}", hashed("other"))])]);
    let running = changed.build();
    ask(&running, "ann:secret").await.expect_cause(&BASIC_WRONG);
    ask(&running, "ann:other").await.expect_continue();
}

#[test]
fn a_pair_is_remembered_for_a_while() {
    let running = stand(json!({})).build();
    let exchange = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let exchange = exchange.block_on(running.request("GET /"));
    let core = exchange.cx.core();
    let remembered = Remembered::default();
    let (now, minute) = (Instant::now(), std::time::Duration::from_secs(60));
    let tag = remembered.tag(b"ann", b"secret", None);
    assert_eq!(remembered.find(tag, core, now), None);
    remembered.share(Slot { tag, consumer: 3, until: now + minute });
    assert_eq!(remembered.find(tag, core, now), Some(3));
    assert_eq!(remembered.find(tag ^ 1 << 100, core, now), None);
    assert_eq!(remembered.find(tag, core, now + minute), None);
    assert_eq!(remembered.find(tag, core, now + 2 * minute), None);
    // The pair has expired, but is still known to have been right.
    assert!(remembered.was_right(tag) && !remembered.was_right(tag ^ 1));
    // Another core knows it too.
    let other = stand(json!({})).build();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let exchange = runtime.block_on(other.request("GET /"));
    assert_eq!(remembered.find(tag, exchange.cx.core(), now), Some(3));
    // A full set evicts the pair that was verified first.
    for later in 1..=WAYS as u128 {
        let until = now + minute * 2;
        remembered.share(Slot { tag: tag ^ later << 100, consumer: 4, until });
        assert_eq!(remembered.find(tag ^ later << 100, core, now), Some(4));
    }
    assert_eq!(remembered.find(tag, core, now), None);
    assert_eq!(remembered.find(tag ^ 1 << 100, core, now), Some(4));
    assert_ne!(remembered.tag(b"a", b"b:c", None), remembered.tag(b"ab", b":c", None));
}

#[tokio::test]
async fn nothing_is_remembered_for_no_time() {
    for (remember, kept) in [("0s", false), ("5m", true)] {
        let running = stand(json!({ "remember": remember })).build();
        let first = ask(&running, "ann:secret").await;
        assert!(first.waited, "{remember}");
        let second = ask(&running, "ann:secret").await;
        assert_eq!(!second.waited, kept, "{remember}");
    }
}

/// With 200 wrong logins of one client waiting, logins of other clients still pass, and a pair that was right
/// before goes first.
#[tokio::test]
async fn wrong_logins_keep_nobody_else_waiting() {
    let running = Rc::new(stand(json!({})).build());
    let flood = Rc::new(running.from("203.0.113.9"));
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let guesses: Vec<_> = (0..200)
                .map(|guess| {
                    let flood = Rc::clone(&flood);
                    tokio::task::spawn_local(async move {
                        let seen = ask(&flood, &format!("ann:guess{guess}")).await;
                        assert!(matches!(seen.flow, Flow::Refuse(_)), "{:?}", seen.flow);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            for client in 1..=20 {
                let from = running.from(&format!("198.51.100.{client}"));
                ask(&from, "ann:secret").await.expect_continue();
                ask(&from, "bob:wrong").await.expect_cause(&BASIC_WRONG);
            }
            for guess in guesses {
                guess.await.unwrap();
            }
        })
        .await;
}

#[test]
fn a_wrong_login_costs_the_same_for_everybody() {
    let bcrypt = |cost| PasswordHash::parse(&bcrypt::hash_with_salt("x", cost, [7; 16]).unwrap().to_string());
    let argon = |text: &str| PasswordHash::parse(text).unwrap();
    let short = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$AAAAAAAAAAAAAAAAAAAAAA";
    let long = "$argon2id$v=19$m=8,t=2,p=1$c2FsdHNhbHRzYWx0$AAAAAAAAAAAAAAAAAAAAAA";
    let (cheap, dear) = (bcrypt(4).unwrap(), bcrypt(5).unwrap());
    assert!(cheap.costs_as(&bcrypt(4).unwrap()) && argon(short).costs_as(&argon(short)));
    for (one, other) in [(&cheap, &dear), (&cheap, &argon(short)), (&argon(long), &argon(short))] {
        assert!(!one.costs_as(other) && !other.costs_as(one), "{one:?} {other:?}");
    }
    let pairs = [
        format!("ann:{}", hashed("a")),
        format!("bob:{}", hashed("b")),
        format!("cat:{short}"),
        format!("dan:{long}"),
    ];
    let mut users = Users { by_name: HashMap::default(), costs: Vec::new() };
    for pair in &pairs {
        note_cost(&mut users.costs, &PasswordHash::parse(pair.split_once(':').unwrap().1).unwrap());
    }
    assert_eq!(users.costs.len(), 3, "one of each kind and cost");
    assert_eq!(users.unpaid(None).count(), 3, "nobody's hash was tried");
    let dan = User { consumer: 0, hash: Arc::new(argon(long)), seal: 0 };
    assert!(users.unpaid(Some(&dan)).all(|hash| !hash.costs_as(&dan.hash)));
    assert_eq!(users.unpaid(Some(&dan)).count(), 2, "the third was tried");
}

#[tokio::test]
async fn without_a_password_only_where_it_is_optional() {
    let running = stand(json!({ "optional": true, "consumer_header": "x-who" })).build();
    let mut unnamed = running.request("GET /\nx-who: root").await;
    unnamed.expect_continue().expect_no_header("x-who");
    assert!(unnamed.cx.consumer().is_none());
    ask(&running, "ann:wrong").await.expect_cause(&BASIC_WRONG);
}

#[tokio::test]
async fn a_consumer_may_be_bound_to_addresses() {
    let mut bound = consumer("shop", &[format!("ann:{}", hashed("secret"))]);
    bound.allow_ips = ["10.0.0.0/8".parse().unwrap()].into();
    let running = Stand::new(&KIND, json!({})).consumer(bound).build();
    ask(&running, "ann:secret").await.expect_status(403).expect_cause(&CONSUMER_ADDRESS);
    ask(&running.from("10.0.0.1"), "ann:secret").await.expect_continue();
}

#[test]
fn mistakes() {
    let with = |pairs: &[&str]| {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        Stand::new(&KIND, json!({})).consumer(consumer("a", &pairs)).mistakes()
    };
    assert!(with(&[])[0].contains("no consumer has a password"));
    assert!(with(&["secret"])[0].contains("entry 1 of consumer `a` is not a user and hash"));
    let readable = with(&["ann:hunter2"]);
    assert!(readable[0].contains("a password in plain text") && !readable[0].contains("hunter2"));
    let hash = hashed("x");
    let twice = with(&[&format!("ann:{hash}"), &format!("ann:{hash}")]);
    assert!(twice[0].contains("the user in entry 2 of consumer `a` is listed already"), "{twice:?}");
    let mut bad = stand(json!({ "realm": "a\"b", "consumer_header": "authorization" }));
    assert_eq!(bad.mistakes().len(), 2);
}

/// A file of users with this content.
fn file_with(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

/// The filter with this file, besides the consumers `shop` and `ann`, of which `ann` is bound to 10.0.0.0/8.
fn stand_of(file: &tempfile::NamedTempFile) -> Stand {
    let ann = Consumer { allow_ips: ["10.0.0.0/8".parse().unwrap()].into(), ..consumer("ann", &[]) };
    stand(json!({ "file": file.path(), "consumer_header": "x-who" })).consumer(ann)
}

#[tokio::test]
async fn users_of_a_file_are_consumers() {
    let file = file_with(&format!("eve:{}\r\nann:{}\n", hashed("one"), hashed("two")));
    let running = stand_of(&file).build();
    let mut exchange = ask(&running, "eve:one").await;
    exchange.expect_continue().expect_header("x-who", "eve").expect_no_header("authorization");
    assert!(exchange.cx.listed().is_some(), "the config has no consumer `eve`");
    assert!(!ask(&running, "eve:one").await.waited, "it is remembered");
    for wrong in ["eve:two", "ann:secret", "bob:a:b\u{fc}", "nobody:one"] {
        ask(&running, wrong).await.expect_cause(&BASIC_WRONG);
    }
    // One that the config has too is that consumer, with its addresses.
    ask(&running, "ann:two").await.expect_cause(&CONSUMER_ADDRESS);
    let exchange = ask(&running.from("10.0.0.1"), "ann:two").await;
    assert_eq!(exchange.cx.consumer_index(), Some(1));
    // The same name in another file is the same consumer.
    let other = file_with(&format!("eve:{}\n", hashed("three")));
    let elsewhere = stand_of(&other).build();
    let numbers = [ask(&running, "eve:one").await, ask(&elsewhere, "eve:three").await];
    let numbers = numbers.map(|exchange| exchange.cx.consumer_index());
    assert_eq!(numbers[0], numbers[1]);
    ask(&running, "eve:three").await.expect_cause(&BASIC_WRONG);
}

#[tokio::test]
async fn a_user_whom_a_source_names_is_its_consumer() {
    let file = file_with(&format!("eve:{}\nkim:{}\n", hashed("one"), hashed("two")));
    let mut stand = stand_of(&file).awaiting();
    let running = stand.build();
    // Whether a source restricts eve is not known yet.
    ask(&running, "eve:one").await.expect_cause(&CONSUMERS_UNAVAILABLE);
    stand.relist("consumers: { ann2: {}, eve: { allow_ips: [10.0.0.0/8], groups: [trial] }, zoe: {} }");
    for _ in 0..2 {
        ask(&running, "eve:one").await.expect_cause(&CONSUMER_ADDRESS); // also when it is remembered
    }
    let near = running.from("10.0.0.1");
    let exchange = ask(&near, "eve:one").await;
    assert_eq!(*exchange.cx.listed().unwrap().labels, ["group:trial".to_owned()]);
    // One that no source names is a consumer of its own.
    let mut exchange = ask(&near, "kim:two").await;
    exchange.expect_continue();
    assert!(exchange.cx.listed().unwrap().labels.is_empty());
    stand.relist("consumers: {}");
    ask(&near, "eve:one").await.expect_continue();
}

#[tokio::test]
async fn a_file_is_followed() {
    let file = file_with(&format!("eve:{}\n", hashed("old")));
    let mut stand = stand_of(&file);
    let running = stand.build();
    let (fetcher, _asked) = Fetcher::channel();
    stand.tend(&fetcher);
    ask(&running, "eve:old").await.expect_continue();
    let changes = async |pair: &str, passes: bool| {
        for _ in 0..400 {
            if matches!(ask(&running, pair).await.flow, Flow::Continue) == passes {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        panic!("`{pair}` should {}", if passes { "pass" } else { "be refused" });
    };
    std::fs::write(file.path(), format!("eve:{}\nkim:{}\n", hashed("new"), hashed("kim"))).unwrap();
    changes("kim:kim", true).await;
    ask(&running, "eve:old").await.expect_cause(&BASIC_WRONG);
    ask(&running, "eve:new").await.expect_continue();
    // A version with a mistake changes nothing, and does not stand in the way of another config.
    std::fs::write(file.path(), "eve:{PLAIN}secret\n").unwrap();
    stand.build().request(&request("kim:kim")).await.expect_continue();
    std::fs::write(file.path(), format!("eve:{}\n", hashed("new"))).unwrap();
    changes("kim:kim", false).await;
    ask(&running, "eve:new").await.expect_continue();
}

#[tokio::test]
async fn an_unwatched_file_is_read_with_the_config() {
    let file = file_with(&format!("eve:{}\n", hashed("old")));
    let mut stand = stand_of(&file).unwatched();
    let running = stand.build();
    std::fs::write(file.path(), format!("eve:{}\n", hashed("new"))).unwrap();
    let reloaded = stand.build();
    ask(&running, "eve:old").await.expect_continue();
    ask(&reloaded, "eve:new").await.expect_continue();
    ask(&reloaded, "eve:old").await.expect_cause(&BASIC_WRONG);
    std::fs::write(file.path(), "eve:secret\n").unwrap();
    assert!(stand.mistakes()[0].contains("plain text"));
}

#[test]
fn mistakes_of_a_file() {
    let file = file_with("ann:$apr1$QlVYbzNL$7hCuBgbUJW4jIfaTjmKGi0\nhunter2\n");
    let mistakes = stand_of(&file).mistakes();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert!(mistakes[0].contains(":1: the password of `ann` is hashed with apr1"), "{mistakes:?}");
    assert!(mistakes[0].contains("weir hash --user USER"), "{mistakes:?}");
    assert!(mistakes[1].contains(":2: ") && !mistakes[1].contains("hunter2"), "{mistakes:?}");
    let missing = stand(json!({ "file": "/nowhere/.htpasswd" })).mistakes();
    assert!(missing[0].contains("cannot be read"), "{missing:?}");
    let folder = stand(json!({ "file": "/tmp" })).mistakes();
    assert!(folder[0].contains("is not a file"), "{folder:?}");
    let many = file_with(&"ann:x\n".repeat(50));
    assert!(stand_of(&many).mistakes()[20].contains("30 more lines"));
}
