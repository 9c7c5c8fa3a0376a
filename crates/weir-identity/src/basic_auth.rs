//! `basic_auth`: requires a user and a password (RFC 7617).
//!
//! Hashing a password takes tens of milliseconds, so dedicated threads do it, taking clients in turn. A verified pair
//! is remembered for all cores. Each core copies it at that core's first request, so later requests take no lock.

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::fair_queue::{FairQueue, Lane};
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;
use weir_filter::directory::{CredentialIndex, Directory, Intake, Refused};
use weir_filter::password::{PASSWORD_BYTES, PasswordHash};
use weir_h1::FieldName;
use weir_wire::base64;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<BasicAuthSettings>("basic_auth")
    .with_causes(&[
        &BASIC_BUSY,
        &BASIC_MALFORMED,
        &BASIC_MISSING,
        &BASIC_WRONG,
        &CONSUMER_ADDRESS,
        &CONSUMERS_UNAVAILABLE,
    ])
    .with_index::<Users>();

static BASIC_BUSY: Cause = Cause {
    code: "basic_busy",
    status: 503,
    meaning: "Too many passwords are waiting to be verified.",
    change: "cheaper hashes, or `remember` of the filter basic_auth; the queue holds 64, and the client with the most passwords in it loses one first",
    ..Cause::USUAL
};

static BASIC_MALFORMED: Cause = Cause {
    code: "basic_malformed",
    status: 401,
    meaning: "The user and password are malformed, or sent twice.",
    change: "the client must send `Authorization: Basic` with the base64 of USER:PASSWORD (RFC 7617)",
    ..Cause::USUAL
};

static BASIC_MISSING: Cause = Cause {
    code: "basic_missing",
    status: 401,
    meaning: "The request carries no user and password.",
    change: "the client must send `Authorization: Basic`",
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

/// Requires a user and a password (RFC 7617), and identifies the consumer.
///
/// Users are listed under `consumers` as `USER:HASH` with an argon2id or bcrypt hash; `weir hash --user USER` makes
/// one. Dedicated threads verify passwords, taking client addresses in turn. At most 64 passwords wait; beyond that,
/// the address with the most waiting gets 503. A verified pair is remembered by a keyed hash for the time `remember`
/// and does not wait. After that time it is verified ahead of all others.
///
/// An unknown user takes as long as a wrong password. If hashes differ in kind or cost, a wrong login computes one of
/// each.
///
/// On a connection without TLS, anyone on the network path can read the password.
///
/// ```yaml
/// - basic_auth: { realm: orders }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BasicAuthSettings {
    /// Text that browsers show when they ask for the password. Default `weir`.
    realm: String,
    /// How long a verified pair is remembered; `0s` turns this off. Default 5m.
    remember: Duration,
    /// Whether the credentials are removed before the request goes to the upstream. Default true.
    hide: bool,
    /// Header that carries the consumer's name to the upstream. A header of this name from the client is removed.
    /// Default none.
    consumer_header: Option<HeaderName>,
    /// Lets requests without `Authorization: Basic` pass, unnamed. Wrong credentials are still refused. Default
    /// false.
    optional: bool,
}

struct BasicAuth {
    settings: BasicAuthSettings,
    users: Arc<Users>,
    directory: Option<Arc<Directory>>,
    remembered: Arc<Remembered>,
    challenge: Vec<u8>,
    authorization: HeaderName,
    www_authenticate: FieldName,
}

/// All users that have a password.
struct Users {
    by_name: HashMap<Box<[u8]>, User, foldhash::fast::RandomState>,
    /// One hash of each kind and cost. A wrong login computes one of each, so its duration reveals neither whether
    /// the user exists nor how their password is hashed.
    costs: Vec<PasswordHash>,
}

struct User {
    consumer: usize,
    hash: Arc<PasswordHash>,
    /// Distinguishes its hash from others.
    seal: u64,
}

/// The user that a request names.
enum Asked {
    /// One of the config, or nobody: the set of users decides.
    Here,
    /// One of a source.
    Listed(Arc<Consumer>, Arc<PasswordHash>, u64),
}

/// Verified pairs, stored as 128 bits that depend on secrets of this process. The passwords themselves are not kept.
#[derive(Default)]
struct Remembered {
    sip: RandomState,
    fold: foldhash::quality::RandomState,
    cores: PerCore<RefCell<Slots>>,
    /// What all cores have verified, in parts with one lock each. A core holds the lock only to look up a pair that
    /// it does not know itself.
    shared: [Mutex<Slots>; PARTS],
}

/// A set-associative table of pairs; a pair's bits choose its set. A full set evicts the pair that was verified
/// first.
#[derive(Default)]
struct Slots(Vec<[Option<Slot>; WAYS]>);

#[derive(Clone, Copy)]
struct Slot {
    tag: u128,
    consumer: usize,
    until: Instant,
}

/// Sets per core, and per part of the shared table. Allocated when the first pair comes.
const SETS: usize = 256;

/// Places in a set, 64 bytes each.
const WAYS: usize = 4;

/// Parts of the table that all cores share.
const PARTS: usize = 16;

/// The hashing threads, one for every two processors, with the number of passwords that may wait for them.
static HASHING: FairQueue = FairQueue::new("weir-hash", 64, 2);

/// The credentials of a request.
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
            build.refuse("realm", "holds a quote, a backslash or a non-ASCII character", None);
        }
        let (users, seal) = Users::read(build);
        if build.mistakes.len() > before {
            return None;
        }
        // The set of users is part of the key, so a password that was removed is not remembered.
        let remembered = build.keep(&seal, Remembered::default);
        let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm).into_bytes();
        Some(BasicAuth {
            settings: self,
            users: Arc::new(users),
            directory: build.directory.cloned(),
            remembered,
            challenge,
            authorization: HeaderName::fixed("authorization"),
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
    }
}

// === impl Users ===

impl Users {
    /// All users, and digits that distinguish this set of users from any other.
    fn read(build: &mut Build<'_>) -> (Self, String) {
        let mut users = Self { by_name: HashMap::default(), costs: Vec::new() };
        let mut seal = Sha256::new();
        let consumers = Consumers::clone(build.consumers);
        for (consumer, who) in consumers.iter().enumerate() {
            for (n, pair) in who.credentials.get("basic_auth").into_iter().flatten().enumerate() {
                seal.update(format!("{consumer}\0{}\0{pair}\0", who.name));
                let whose = format!("entry {} of consumer `{}`", n + 1, who.name);
                let Some((name, hash)) = pair.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                    let hint = Some("write USER:HASH; `weir hash --user USER` makes it".into());
                    build.refuse("", format!("{whose} is not a user and hash"), hint);
                    continue;
                };
                match PasswordHash::parse(hash) {
                    Ok(hash) => users.add(name, consumer, hash, &whose, build),
                    Err(why) => {
                        let hint = Some("make one with `weir hash`, which reads the password".into());
                        build.refuse("", format!("the hash in {whose} {why}"), hint);
                    }
                }
            }
        }
        if users.by_name.is_empty() && build.directory.is_none() && build.mistakes.is_empty() {
            let hint = "write consumers: { NAME: { basic_auth: [ \"${NAME_PASSWORD}\" ] } }";
            build.refuse("", "no consumer has a password: every request would be refused", Some(hint.into()));
        }
        let seal = seal.finalize().iter().map(|b| format!("{b:02x}")).collect();
        (users, seal)
    }

    fn add(&mut self, name: &str, consumer: usize, hash: PasswordHash, whose: &str, build: &mut Build<'_>) {
        if self.insert(name, consumer, hash, 0).is_some() {
            let hint = Some("give each user one password".into());
            build.refuse("", format!("the user in {whose} is listed already"), hint);
        }
    }

    /// Adds a user. Returns the consumer that has this name already.
    fn insert(&mut self, name: &str, consumer: usize, hash: PasswordHash, seal: u64) -> Option<usize> {
        self.note_cost(&hash);
        let user = User { consumer, hash: Arc::new(hash), seal };
        self.by_name.insert(name.as_bytes().into(), user).map(|other| other.consumer)
    }

    fn note_cost(&mut self, hash: &PasswordHash) {
        if !self.costs.iter().any(|known| known.costs_as(hash)) {
            self.costs.push(hash.clone());
        }
    }

    /// Verifies a pair. Takes tens of milliseconds; a wrong pair takes the same time for every user.
    fn verify(&self, name: &[u8], password: &[u8]) -> Option<usize> {
        let user = self.by_name.get(name);
        let hash = user.map(|user| &*user.hash);
        verify(hash, password, &self.costs).then(|| user.map_or(0, |user| user.consumer))
    }

    /// One hash of each cost that a wrong login of this user has not taken yet.
    #[cfg(test)]
    fn unpaid<'a>(&'a self, user: Option<&'a User>) -> impl Iterator<Item = &'a PasswordHash> {
        unpaid(&self.costs, user.map(|user| &*user.hash))
    }
}

/// Whether this is the password. If not, one hash of each cost has been computed.
fn verify(hash: Option<&PasswordHash>, password: &[u8], costs: &[PasswordHash]) -> bool {
    if hash.is_some_and(|hash| hash.verify(password)) {
        return true;
    }
    for hash in unpaid(costs, hash) {
        std::hint::black_box(hash.verify(password));
    }
    false
}

fn unpaid<'a>(
    costs: &'a [PasswordHash],
    hash: Option<&'a PasswordHash>,
) -> impl Iterator<Item = &'a PasswordHash> {
    costs.iter().filter(move |cost| !hash.is_some_and(|hash| hash.costs_as(cost)))
}

impl CredentialIndex for Users {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut users = Self { by_name: HashMap::default(), costs: Vec::new() };
        intake.each(|consumer, pair| {
            // The check of consumers has reported what is no pair.
            let Some((name, text)) = pair.split_once(':') else { return Ok(()) };
            let hash = PasswordHash::parse(text).map_err(|why| Refused::Wrong(why.into()))?;
            let seal = Sha256::digest(text.as_bytes());
            let seal = seal.first_chunk().map_or(0, |digits| u64::from_le_bytes(*digits));
            let other = users.insert(name, consumer as usize, hash, seal);
            other.map_or(Ok(()), |other| Err(Refused::Common(other as u32)))
        });
        users
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        let both = self.by_name.iter().filter_map(|(name, ours)| Some((ours, other.by_name.get(name)?)));
        both.map(|(ours, theirs)| (ours.consumer as u32, theirs.consumer as u32)).collect()
    }
}

// === impl Remembered ===

impl Remembered {
    /// `seal` is that of the user's hash, if a source may replace it while this is remembered.
    fn tag(&self, user: &[u8], password: &[u8], seal: Option<u64>) -> u128 {
        let (mut sip, mut fold) = (self.sip.build_hasher(), self.fold.build_hasher());
        for hasher in [&mut sip as &mut dyn std::hash::Hasher, &mut fold] {
            hasher.write(user);
            hasher.write(b":"); // no user name contains one (RFC 7617 §2)
            hasher.write(password);
            if let Some(seal) = seal {
                hasher.write_u64(seal);
            }
        }
        u128::from(sip.finish()) << 64 | u128::from(fold.finish())
    }

    /// Finds the pair if any core has verified it and it has not expired.
    fn find(&self, tag: u128, core: &CoreHandle, now: Instant) -> Option<usize> {
        let slots = self.cores.get(core);
        if let Some(slot) = slots.borrow().find(tag).filter(|slot| now < slot.until) {
            return Some(slot.consumer);
        }
        let slot = self.shared(tag)?.find(tag).filter(|slot| now < slot.until)?;
        slots.borrow_mut().put(slot);
        Some(slot.consumer)
    }

    /// Whether the pair was ever verified, even if it has expired.
    fn was_right(&self, tag: u128) -> bool {
        self.shared(tag).is_some_and(|slots| slots.find(tag).is_some())
    }

    /// The consumer of a pair, which is then remembered for this time. `verify` is not called if the pair was verified
    /// while this request waited: a client that opens many connections at once pays for one hash.
    fn verified(
        &self,
        tag: u128,
        time: std::time::Duration,
        verify: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let known = self.shared(tag)?.find(tag).filter(|slot| Instant::now() < slot.until);
        if let Some(slot) = known {
            return Some(slot.consumer);
        }
        let consumer = verify()?;
        if let Some(until) = Instant::now().checked_add(time).filter(|_| !time.is_zero()) {
            self.share(Slot { tag, consumer, until });
        }
        Some(consumer)
    }

    fn share(&self, slot: Slot) {
        if let Some(mut slots) = self.shared(slot.tag) {
            slots.put(slot);
        }
    }

    fn shared(&self, tag: u128) -> Option<std::sync::MutexGuard<'_, Slots>> {
        // Uses other bits than those that choose the set.
        let part = self.shared.get((tag >> 64) as usize % PARTS)?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Slots ===

impl Slots {
    fn find(&self, tag: u128) -> Option<Slot> {
        let set = self.0.get(tag as usize % SETS)?;
        set.iter().flatten().find(|slot| slot.tag == tag).copied()
    }

    fn put(&mut self, slot: Slot) {
        self.0.resize(SETS, [None; WAYS]);
        let Some(set) = self.0.get_mut(slot.tag as usize % SETS) else { return };
        let same = set.iter().position(|place| place.is_some_and(|known| known.tag == slot.tag));
        let at = same.or_else(|| {
            // `None` sorts before any moment: free places first, then the pair that was verified first.
            (0..WAYS).min_by_key(|at| set.get(*at).copied().flatten().map(|known| known.until))
        });
        if let Some(place) = at.and_then(|at| set.get_mut(at)) {
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
        let asked = match self.ask(&user) {
            Ok(asked) => asked,
            Err(_) => return Flow::Wait,
        };
        let tag = self.remembered.tag(&user, &password, asked.seal());
        match self.remembered.find(tag, cx.core(), Instant::now()) {
            Some(consumer) => self.pass(asked.named(consumer), head, cx),
            None => Flow::Wait,
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let Presented::Pair { user, password } = presented(head) else {
                return self.refuse(&BASIC_MALFORMED); // it was well formed when this filter first saw it
            };
            let asked = self.ask(&user);
            let seal = asked.as_ref().ok().and_then(Asked::seal);
            let hash = asked.as_ref().ok().and_then(Asked::hash);
            let tag = self.remembered.tag(&user, &password, seal);
            let (users, remembered) = (Arc::clone(&self.users), Arc::clone(&self.remembered));
            let costs = self.costs();
            let time = self.settings.remember.get();
            let (done, result) = oneshot::channel();
            let job = move || {
                if !done.is_closed() {
                    let consumer = remembered.verified(tag, time, || match (&hash, &costs) {
                        (None, None) => users.verify(&user, &password),
                        (hash, costs) => {
                            let here = users.by_name.get(&*user);
                            let hash = hash.as_deref().or_else(|| here.map(|user| &*user.hash));
                            verify(hash, &password, costs.as_deref().unwrap_or(&users.costs))
                                .then(|| here.map_or(0, |user| user.consumer))
                        }
                    });
                    let _ = done.send(consumer); // the exchange may have ended
                }
            };
            let lane = if self.remembered.was_right(tag) { Lane::Known } else { Lane::of(cx.client) };
            if !HASHING.run(lane, Box::new(job)) {
                return Flow::refuse(&BASIC_BUSY);
            }
            let consumer = match result.await {
                Ok(Some(consumer)) => consumer,
                Ok(None) if matches!(asked, Err(Nobody::Unavailable)) => {
                    return Flow::refuse(&CONSUMERS_UNAVAILABLE);
                }
                Ok(None) => return self.refuse(&BASIC_WRONG),
                Err(_) => return Flow::refuse(&BASIC_BUSY), // evicted in favour of another client's
            };
            match asked {
                Ok(asked) => self.pass(asked.named(consumer), head, cx),
                Err(_) => self.refuse(&BASIC_WRONG),
            }
        })
    }
}

impl BasicAuth {
    /// The user of this name.
    fn ask(&self, name: &[u8]) -> Result<Asked, Nobody> {
        let Some(directory) = self.directory.as_ref().filter(|_| !self.users.by_name.contains_key(name))
        else {
            return Ok(Asked::Here);
        };
        let found = directory.find(KIND.name, |users: &Users| {
            let user = users.by_name.get(name)?;
            Some((user.consumer as u32, (Arc::clone(&user.hash), user.seal)))
        });
        listed(found).map(|(consumer, (hash, seal))| Asked::Listed(consumer, hash, seal))
    }

    /// One hash of each cost that any user has, if sources have some.
    fn costs(&self) -> Option<Vec<PasswordHash>> {
        let mut all = self.users.costs.clone();
        self.directory.as_ref()?.each(KIND.name, |users: &Users| {
            for cost in &users.costs {
                if !all.iter().any(|known| known.costs_as(cost)) {
                    all.push(cost.clone());
                }
            }
        });
        Some(all)
    }

    fn pass(&self, named: Named, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        named.name(cx);
        let Some(consumer) = cx.consumer() else { return self.refuse(&BASIC_WRONG) };
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
            head.headers.remove(name); // the name cannot be sent; remove the client's own header
        }
        Flow::Continue
    }

    fn refuse(&self, cause: &'static Cause) -> Flow {
        Flow::refuse_with(cause, vec![(self.www_authenticate.clone(), self.challenge.clone())])
    }
}

impl Asked {
    const fn seal(&self) -> Option<u64> {
        match self {
            Self::Here => None,
            Self::Listed(_, _, seal) => Some(*seal),
        }
    }

    fn hash(&self) -> Option<Arc<PasswordHash>> {
        match self {
            Self::Here => None,
            Self::Listed(_, hash, _) => Some(Arc::clone(hash)),
        }
    }

    /// The consumer, at `index` if it is one of the config.
    fn named(self, index: usize) -> Named {
        match self {
            Self::Here => Named::Config(index),
            Self::Listed(consumer, ..) => Named::Listed(consumer),
        }
    }
}

/// The credentials in a request. Credentials of another scheme belong to another filter.
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
    // Some clients omit the padding.
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
        let bcrypt =
            |cost| PasswordHash::parse(&bcrypt::hash_with_salt("x", cost, [7; 16]).unwrap().to_string());
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
            users.note_cost(&PasswordHash::parse(pair.split_once(':').unwrap().1).unwrap());
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
}
