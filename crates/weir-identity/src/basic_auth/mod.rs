//! `basic_auth`: requires a user and a password (RFC 7617).
//!
//! Hashing a password takes tens of milliseconds, so dedicated threads do it, taking clients in turn. A verified pair
//! is remembered for all cores. Each core copies it at that core's first request, so later requests take no lock.
//! `file.rs` follows a file of users, `htpasswd.rs` reads its lines.

mod file;
mod htpasswd;
mod remembered;
mod users;

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::fair_queue::{FairQueue, Lane};
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use file::FileUsers;
use remembered::Remembered;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use users::{Users, note_cost, verify};
use weir_filter::directory::Directory;
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
    .with_index::<Users>()
    .judged_by_head();

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
    change: "consumers.*.basic_auth, or the `file` of the filter basic_auth",
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
/// With `file`, the users of that file may pass instead of those under `consumers`: one `USER:HASH` per line, as
/// `htpasswd -B` and `weir hash --user USER` write it. Text after a second colon, and lines that begin with `#`, are
/// comments. Other hashes (apr1, SHA-1, crypt) and plain passwords are refused with their line. A user is the consumer
/// of that name: if the config or a source has one, the user gets its plan, groups and `allow_ips`. The file is checked
/// twice a second, and a new version applies without a reload. A version with a mistake is logged, and the users from
/// before stay. With `watch: false` it is read at each reload.
///
/// On a connection without TLS, anyone on the network path can read the password.
///
/// ```yaml
/// - basic_auth: { realm: orders }
/// - basic_auth: { file: .htpasswd }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BasicAuthSettings {
    /// A file with the users, relative to the config: `USER:HASH` in each line. Default: the users under `consumers`.
    file: Option<FilePath>,
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
    /// Those of the config.
    users: Arc<Users>,
    /// With a file it tells only who a user is.
    directory: Option<Arc<Directory>>,
    /// Instead of the users of config and directory.
    file: Option<FileUsers>,
    remembered: Arc<Remembered>,
    challenge: Vec<u8>,
    authorization: HeaderName,
    www_authenticate: FieldName,
}

/// The user that a request names.
enum Asked {
    /// One of the config, or nobody: the set of users decides.
    Here,
    /// One of a source or a file.
    Elsewhere(Named, Arc<PasswordHash>, u64),
}

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
            file: None,
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
        let (users, seal) = match &self.file {
            Some(_) => (Users::default(), "file".to_owned()),
            None => Users::read(build),
        };
        let file = self.file.as_ref().map(|path| FileUsers::open(path, build));
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
            file,
            remembered,
            challenge,
            authorization: HeaderName::fixed("authorization"),
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
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
        if let Some(file) = &self.file {
            let Some((consumer, hash, seal)) = file.find(name) else { return Ok(Asked::Here) };
            // A name stands for one consumer: one that a source has brings its groups, plan and addresses.
            let consumer = match (&consumer, &self.directory, std::str::from_utf8(name)) {
                (Named::Listed(_), Some(directory), Ok(name)) => match listed(directory.named(name)) {
                    Ok((listed, ())) => Named::Listed(listed),
                    Err(Nobody::Unknown) => consumer,
                    Err(Nobody::Unavailable) => return Err(Nobody::Unavailable),
                },
                _ => consumer,
            };
            return Ok(Asked::Elsewhere(consumer, hash, seal));
        }
        let Some(directory) = self.directory.as_ref().filter(|_| !self.users.by_name.contains_key(name))
        else {
            return Ok(Asked::Here);
        };
        let found = directory.find(KIND.name, |users: &Users| {
            let user = users.by_name.get(name)?;
            Some((user.consumer as u32, (Arc::clone(&user.hash), user.seal)))
        });
        listed(found).map(|(consumer, (hash, seal))| Asked::Elsewhere(Named::Listed(consumer), hash, seal))
    }

    /// One hash of each cost that any user has, if a file or sources have some.
    fn costs(&self) -> Option<Vec<PasswordHash>> {
        if let Some(file) = &self.file {
            return Some(file.costs());
        }
        let mut all = self.users.costs.clone();
        self.directory.as_ref()?.each(KIND.name, |users: &Users| {
            users.costs.iter().for_each(|cost| note_cost(&mut all, cost));
        });
        Some(all)
    }

    fn pass(&self, named: Named, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        named.name(cx);
        let Some(consumer) = cx.consumer() else { return self.refuse(&BASIC_WRONG) };
        if !consumer.may_call_from(&cx.client) {
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
            Self::Elsewhere(_, _, seal) => Some(*seal),
        }
    }

    fn hash(&self) -> Option<Arc<PasswordHash>> {
        match self {
            Self::Here => None,
            Self::Elsewhere(_, hash, _) => Some(Arc::clone(hash)),
        }
    }

    /// The consumer, at `index` if it is one of the config.
    fn named(self, index: usize) -> Named {
        match self {
            Self::Here => Named::Config(index),
            Self::Elsewhere(consumer, ..) => consumer,
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
mod tests;
