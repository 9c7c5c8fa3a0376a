//! `basic_auth`: asks every request for a user and a password (RFC 7617).
//!
//! Hashing a password takes tens of milliseconds, so it happens on threads of its own. What was verified a moment ago is
//! remembered by each core.

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::allow_name;
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use weir_engine::blocking::Blocking;
use weir_engine::password::{PASSWORD_BYTES, PasswordHash};
use weir_h1::FieldName;
use weir_wire::base64;

pub(super) static KIND: FilterKind = FilterKind::made_from::<BasicAuthSettings>("basic_auth").with_causes(&[
    &BASIC_BUSY,
    &BASIC_MALFORMED,
    &BASIC_MISSING,
    &BASIC_WRONG,
    &CONSUMER_ADDRESS,
]);

static BASIC_BUSY: Cause = Cause {
    code: "basic_busy",
    status: 503,
    meaning: "Too many passwords wait to be verified.",
    change: "nothing: 64 may wait; hashes that cost less, or `remember` of the filter basic_auth",
    ..Cause::USUAL
};

static BASIC_MALFORMED: Cause = Cause {
    code: "basic_malformed",
    status: 401,
    meaning: "The user and password are malformed, or stand there twice.",
    change: "the client must send `Authorization: Basic` and base64 of USER:PASSWORD (RFC 7617)",
    ..Cause::USUAL
};

static BASIC_MISSING: Cause = Cause {
    code: "basic_missing",
    status: 401,
    meaning: "The request carries no user and password.",
    change: "the client must send them: `Authorization: Basic`",
    no_credentials: true,
    ..Cause::USUAL
};

static BASIC_WRONG: Cause = Cause {
    code: "basic_wrong",
    status: 401,
    meaning: "The user is unknown, or the password is wrong.",
    change: "consumers.*.basic_auth",
    ..Cause::USUAL
};

/// Asks every request for a user and a password (RFC 7617), and says who calls.
///
/// They stand under `consumers` as `USER:HASH` with a hash by argon2id or bcrypt; `weir hash --user USER` makes one. Passwords are
/// verified on threads of their own, at most 64 waiting; more is a 503. A pair that was verified is remembered
/// for a while by a keyed hash. An unknown user takes as long as a wrong password.
///
/// Over a connection without TLS everybody on the way reads the password.
///
/// ```yaml
/// - basic_auth: { realm: orders }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BasicAuthSettings {
    /// What browsers show when they ask for the password. Default `weir`.
    realm: String,
    /// How long a verified pair is remembered; `0s` for not at all. Default 5m.
    remember: Duration,
    /// Whether user and password are removed before the request goes to the upstream. Default true.
    hide: bool,
    /// Header in which the upstream is told the consumer's name. What the client sent under that name is removed. Default
    /// none.
    consumer_header: Option<HeaderName>,
    /// Whether a request without `Authorization: Basic` passes, unnamed. One with a wrong password is refused. Default false.
    optional: bool,
}

struct BasicAuth {
    settings: BasicAuthSettings,
    users: Arc<Users>,
    remembered: Arc<Remembered>,
    challenge: Vec<u8>,
    authorization: HeaderName,
    www_authenticate: FieldName,
}

/// Everybody who has a password.
struct Users {
    by_name: HashMap<Box<[u8]>, User, foldhash::fast::RandomState>,
    /// Whose hash an unknown user is measured by: the same one each time, so that its time tells nothing.
    stand_in: RandomState,
    hashes: Vec<PasswordHash>,
}

struct User {
    consumer: usize,
    hash: PasswordHash,
}

/// Pairs that were verified, by 128 bits that depend on secrets of this process. The passwords themselves are not kept.
struct Remembered {
    sip: RandomState,
    fold: foldhash::quality::RandomState,
    cores: PerCore<RefCell<Slots>>,
}

/// A place for each pair, found by its bits. Who comes later takes it.
#[derive(Default)]
struct Slots(Vec<Option<Slot>>);

#[derive(Clone, Copy)]
struct Slot {
    tag: u128,
    consumer: usize,
    until: Instant,
}

/// Places of a core, 48 bytes each, made when the first pair comes.
const SLOTS: usize = 1024;

/// The threads for hashing, one for two processors, and how many passwords may wait for them.
static HASHING: Blocking = Blocking::new("weir-hash", 64, 2);

/// What a request brings.
enum Presented {
    Malformed,
    Missing,
    Pair { user: Vec<u8>, password: Vec<u8> },
}

impl Default for BasicAuthSettings {
    fn default() -> Self {
        Self {
            realm: "weir".to_owned(),
            remember: Duration::from_secs(300),
            hide: true,
            consumer_header: None,
            optional: false,
        }
    }
}

impl IntoFilter for BasicAuthSettings {
    type Filter = BasicAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<BasicAuth> {
        let before = build.mistakes.len();
        if let Some(name) = &self.consumer_header {
            allow_name(build, "consumer_header", name);
            if name.as_str().eq_ignore_ascii_case("authorization") {
                build.refuse("consumer_header", "is the header that carries the password", None);
            }
        }
        if !self.realm.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && !matches!(b, b'"' | b'\\')) {
            build.refuse("realm", "holds a quote, a backslash or what is not ASCII", None);
        }
        let (users, seal) = Users::read(build);
        if build.mistakes.len() > before {
            return None;
        }
        // Who may pass is part of the key: a password that was taken away is not remembered.
        let remembered = build.keep(&seal, || Remembered {
            sip: RandomState::new(),
            fold: foldhash::quality::RandomState::default(),
            cores: PerCore::new(),
        });
        let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm).into_bytes();
        Some(BasicAuth {
            settings: self,
            users: Arc::new(users),
            remembered,
            challenge,
            authorization: HeaderName::fixed("authorization"),
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
    }
}

// === impl Users ===

impl Users {
    /// All users, and digits that tell these from others.
    fn read(build: &mut Build<'_>) -> (Self, String) {
        let mut users =
            Self { by_name: HashMap::default(), stand_in: RandomState::new(), hashes: Vec::new() };
        let mut seal = Sha256::new();
        let consumers = Consumers::clone(build.consumers);
        for (consumer, who) in consumers.iter().enumerate() {
            for (n, pair) in who.credentials.get("basic_auth").into_iter().flatten().enumerate() {
                seal.update(format!("{consumer}\0{}\0{pair}\0", who.name));
                let whose = format!("entry {} of consumer `{}`", n + 1, who.name);
                let Some((name, hash)) = pair.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                    let hint = Some("write USER:HASH; `weir hash --user USER` makes it".to_owned());
                    build.refuse("", format!("{whose} is no user and hash"), hint);
                    continue;
                };
                match PasswordHash::parse(hash) {
                    Ok(hash) => users.add(name, consumer, hash, &whose, build),
                    Err(why) => {
                        let hint = Some("make one with `weir hash`, which reads the password".to_owned());
                        build.refuse("", format!("the hash in {whose} {why}"), hint);
                    }
                }
            }
        }
        if users.by_name.is_empty() && build.mistakes.is_empty() {
            let hint = "write consumers: { NAME: { basic_auth: [ \"${NAME_PASSWORD}\" ] } }";
            build.refuse(
                "",
                "no consumer has a password: every request would be refused",
                Some(hint.to_owned()),
            );
        }
        let seal = seal.finalize().iter().map(|b| format!("{b:02x}")).collect();
        (users, seal)
    }

    fn add(&mut self, name: &str, consumer: usize, hash: PasswordHash, whose: &str, build: &mut Build<'_>) {
        self.hashes.push(hash.clone());
        if self.by_name.insert(name.as_bytes().into(), User { consumer, hash }).is_some() {
            let hint = Some("give each user one password".to_owned());
            build.refuse("", format!("the user in {whose} stands there already"), hint);
        }
    }

    /// Verifies a pair. Takes tens of milliseconds, whoever the user is.
    fn verify(&self, name: &[u8], password: &[u8]) -> Option<usize> {
        let user = self.by_name.get(name);
        let hash = user.map(|user| &user.hash).or_else(|| {
            let at = self.stand_in.hash_one(name) as usize % self.hashes.len().max(1);
            self.hashes.get(at)
        })?;
        let right = hash.verify(password);
        user.filter(|_| right).map(|user| user.consumer)
    }
}

// === impl Remembered ===

impl Remembered {
    fn tag(&self, user: &[u8], password: &[u8]) -> u128 {
        let (mut sip, mut fold) = (self.sip.build_hasher(), self.fold.build_hasher());
        for hasher in [&mut sip as &mut dyn std::hash::Hasher, &mut fold] {
            hasher.write(user);
            hasher.write(b":"); // no user holds one (RFC 7617 §2)
            hasher.write(password);
        }
        u128::from(sip.finish()) << 64 | u128::from(fold.finish())
    }

    fn find(&self, tag: u128, core: &CoreHandle, now: Instant) -> Option<usize> {
        let slots = self.cores.get(core);
        let slots = slots.borrow();
        let slot = slots.0.get(tag as usize & (SLOTS - 1)).copied().flatten()?;
        (slot.tag == tag && now < slot.until).then_some(slot.consumer)
    }

    fn remember(&self, slot: Slot, core: &CoreHandle) {
        let slots = self.cores.get(core);
        let mut slots = slots.borrow_mut();
        slots.0.resize(SLOTS, None);
        if let Some(place) = slots.0.get_mut(slot.tag as usize & (SLOTS - 1)) {
            *place = Some(slot);
        }
    }
}

// === impl BasicAuth ===

impl Filter for BasicAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let names = std::iter::once(&self.authorization).chain(&self.settings.consumer_header);
        FieldGuards { request: names.map(|name| (**name).clone()).collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let (user, password) = match presented(head) {
            Presented::Pair { user, password } => (user, password),
            Presented::Missing if self.settings.optional => {
                if let Some(name) = &self.settings.consumer_header {
                    head.headers.remove(name);
                }
                cx.pass_unnamed();
                return Flow::Continue;
            }
            Presented::Missing => return self.refuse(&BASIC_MISSING),
            Presented::Malformed => return self.refuse(&BASIC_MALFORMED),
        };
        if self.settings.remember.is_zero() {
            return Flow::Wait;
        }
        let tag = self.remembered.tag(&user, &password);
        match self.remembered.find(tag, cx.core(), Instant::now()) {
            Some(consumer) => self.pass(consumer, head, cx),
            None => Flow::Wait,
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let Presented::Pair { user, password } = presented(head) else {
                return self.refuse(&BASIC_MALFORMED); // it was sound when this filter saw it first
            };
            let tag = self.remembered.tag(&user, &password);
            let users = Arc::clone(&self.users);
            let (done, result) = oneshot::channel();
            let job = move || {
                if !done.is_closed() {
                    let _ = done.send(users.verify(&user, &password)); // whoever asked may have left
                }
            };
            if !HASHING.run(Box::new(job)) {
                return Flow::refuse(&BASIC_BUSY);
            }
            let Ok(Some(consumer)) = result.await else { return self.refuse(&BASIC_WRONG) };
            if let Some(until) = Instant::now().checked_add(self.settings.remember.get())
                && !self.settings.remember.is_zero()
            {
                self.remembered.remember(Slot { tag, consumer, until }, cx.core());
            }
            self.pass(consumer, head, cx)
        })
    }
}

impl BasicAuth {
    fn pass(&self, index: usize, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        cx.set_consumer(index);
        let Some(consumer) = cx.consumers().get(index) else { return self.refuse(&BASIC_WRONG) };
        if !consumer.may_call_from(cx.client) {
            return Flow::refuse(&CONSUMER_ADDRESS);
        }
        if self.settings.hide {
            head.headers.remove(&self.authorization);
            cx.hides_authorization();
        }
        if let Some(name) = &self.settings.consumer_header
            && head.headers.insert(name, consumer.name.as_bytes()).is_err()
        {
            head.headers.remove(name); // a name that may not be sent: at least nobody else's is
        }
        Flow::Continue
    }

    fn refuse(&self, cause: &'static Cause) -> Flow {
        Flow::refuse_with(cause, vec![(self.www_authenticate.clone(), self.challenge.clone())])
    }
}

/// The pair in a request. Another scheme is another filter's.
fn presented(head: &RequestHead) -> Presented {
    let mut all = head.headers.get_all("authorization");
    let Some(value) = all.next() else { return Presented::Missing };
    let twice = all.next().is_some();
    let Some((scheme, rest)) = value.split_at_checked(5).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic"))
    else {
        return if twice { Presented::Malformed } else { Presented::Missing };
    };
    debug_assert_eq!(scheme.len(), 5);
    let encoded = rest.trim_ascii();
    let too_long = encoded.len() > 4 * PASSWORD_BYTES;
    if twice || too_long || rest.first() != Some(&b' ') {
        return Presented::Malformed;
    }
    // Some clients leave the padding out.
    let mut padded = encoded.to_vec();
    padded.resize(encoded.len().next_multiple_of(4), b'=');
    let Some(pair) = base64::decode(&padded) else { return Presented::Malformed };
    let Some(colon) = pair.iter().position(|&b| b == b':') else { return Presented::Malformed };
    let (user, password) = (pair.get(..colon).unwrap_or_default(), pair.get(colon + 1..).unwrap_or_default());
    if password.len() > PASSWORD_BYTES || pair.iter().any(u8::is_ascii_control) {
        return Presented::Malformed;
    }
    Presented::Pair { user: user.to_vec(), password: password.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Running, Stand};
    use super::*;
    use serde_json::{Value, json};

    /// A cheap hash.
    fn hashed(password: &str) -> String {
        bcrypt::hash_with_salt(password, 4, [7; 16]).unwrap().to_string()
    }

    fn consumer(name: &str, pairs: &[String]) -> Consumer {
        let credentials = HashMap::from([("basic_auth".to_owned(), pairs.to_vec())]);
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
        // Another password of the same user is not taken for the one that was verified.
        ask(&running, "ann:secreT").await.expect_cause(&BASIC_WRONG);
        // With the same users a reload keeps what was verified; with others it does not.
        let mut changed =
            surroundings.consumers(vec![consumer("shop", &[format!("ann:{}", hashed("other"))])]);
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
        let remembered = Remembered {
            sip: RandomState::new(),
            fold: foldhash::quality::RandomState::default(),
            cores: PerCore::new(),
        };
        let (now, minute) = (Instant::now(), std::time::Duration::from_secs(60));
        let tag = remembered.tag(b"ann", b"secret");
        assert_eq!(remembered.find(tag, core, now), None);
        remembered.remember(Slot { tag, consumer: 3, until: now + minute }, core);
        assert_eq!(remembered.find(tag, core, now), Some(3));
        assert_eq!(remembered.find(tag ^ 1 << 100, core, now), None);
        assert_eq!(remembered.find(tag, core, now + minute), None);
        // Who comes later takes the place.
        remembered.remember(Slot { tag: tag ^ 1 << 100, consumer: 4, until: now + minute }, core);
        assert_eq!(remembered.find(tag, core, now), None);
        assert_ne!(remembered.tag(b"a", b"b:c"), remembered.tag(b"ab", b":c"));
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
        bound.allow_ips = vec!["10.0.0.0/8".parse().unwrap()];
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
        assert!(with(&["secret"])[0].contains("entry 1 of consumer `a` is no user and hash"));
        let readable = with(&["ann:hunter2"]);
        assert!(readable[0].contains("a password that anybody can read") && !readable[0].contains("hunter2"));
        let hash = hashed("x");
        let twice = with(&[&format!("ann:{hash}"), &format!("ann:{hash}")]);
        assert!(twice[0].contains("the user in entry 2 of consumer `a` stands there already"), "{twice:?}");
        let mut bad = stand(json!({ "realm": "a\"b", "consumer_header": "authorization" }));
        assert_eq!(bad.mistakes().len(), 2);
    }
}
