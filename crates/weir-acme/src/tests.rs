//! Renewal against an in-memory authority, with a clock that the tests control.

mod authority;

use super::*;
use authority::{Authority, URL, Wire};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use tempfile::TempDir;

const DAY: i64 = 86_400;

/// The timeout of each wait: longer than any machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The certificates of one gateway, without the gateway.
struct Node {
    acme: Acme,
    authority: Arc<Authority>,
    told: Receiver<Vec<Status>>,
    entry: Arc<Entry>,
}

/// An authority, and a folder for one storage.
struct World {
    dir: TempDir,
    now: Arc<AtomicI64>,
    authority: Arc<Authority>,
}

impl World {
    fn new() -> Self {
        let now = Arc::new(AtomicI64::new(1_800_000_000));
        Self { dir: tempfile::tempdir().unwrap(), authority: Authority::new(&now), now }
    }

    fn spec(&self, name: &str, challenge: Challenge) -> Spec {
        Spec {
            name: name.parse().unwrap(),
            settings: Settings {
                directory: format!("{URL}/dir"),
                email: Some("ops@a.test".to_owned()),
                trust: None,
                external: None,
            },
            challenge,
            profile: None,
            storage: self.dir.path().join("acme"),
        }
    }

    /// A node whose proofs the authority finds.
    fn start(&self, spec: &Spec) -> Node {
        let node = self.prepare(spec);
        let stage = node.acme.0.stage.clone();
        let records = self.dir.path().join("records");
        *self.authority.look.lock().unwrap() = Some(Box::new(move |kind, name, token| match kind {
            "http-01" => {
                let path = format!("/.well-known/acme-challenge/{token}");
                stage.tokens.answer(path.as_bytes()).map(|answer| answer.to_string())
            }
            "tls-alpn-01" => {
                let name = name.parse::<Name>().unwrap().server_name();
                Some(format!("{:?}", stage.proofs)).filter(|shown| shown.contains(&name))
            }
            _ => fs::read_to_string(&records).ok().filter(|text| text.contains(name)),
        }));
        node.adopt();
        node
    }

    /// A node that does nothing yet.
    fn prepare(&self, spec: &Spec) -> Node {
        let now = Arc::clone(&self.now);
        let acme = Acme::with_clock(Arc::new(move || now.load(Ordering::Relaxed)));
        let (tell, told) = channel();
        acme.watch(Box::new(move |statuses| drop(tell.send(statuses.to_vec()))));
        acme.begin();
        let entry = acme.entry(spec).unwrap();
        Node { acme, authority: Arc::clone(&self.authority), told, entry }
    }

    fn turn(&self, node: &Node, seconds: i64) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
        node.acme.wake();
    }
}

impl Node {
    /// Compiles and runs the same config again.
    fn reload(&self) {
        self.acme.begin();
        drop(self.acme.entry(&self.entry.spec).unwrap());
        self.adopt();
    }

    fn adopt(&self) {
        let wire = Arc::new(Wire(Arc::clone(&self.authority)));
        self.acme.adopt(move || wire);
    }

    /// Waits until its only certificate has such a status.
    #[track_caller]
    fn wait(&self, what: &str, good: impl Fn(&Status) -> bool) -> Status {
        let end = Instant::now() + DEADLINE;
        loop {
            // A wake-up may come while nobody waits for it, and then the next check is seconds away. So repeat it.
            self.acme.wake();
            if let Some(status) = self.acme.statuses().into_iter().find(|status| good(status)) {
                return status;
            }
            assert!(Instant::now() < end, "not {what}: {:?}", self.acme.statuses());
            let _ = self.told.recv_timeout(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_issued(&self) -> Status {
        self.wait("issued", |status| !status.stand_in && !status.ordering && status.failures == 0)
    }

    fn shown(&self) -> Vec<u8> {
        self.entry.slot().get().chain().next().unwrap().to_vec()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.acme.stop();
    }
}

/// A hook that records its arguments.
fn hook(dir: &Path) -> Hook {
    let (path, records) = (dir.join("hook"), dir.join("records"));
    let script = format!(
        "case $1 in present) echo \"$2 $3\" > {0};; cleanup) echo cleaned >> {0}.log; rm {0};; esac\n",
        records.display()
    );
    fs::write(&path, script).unwrap();
    let command = vec!["/bin/sh".to_owned(), path.display().to_string()];
    Hook { command, timeout: DEADLINE, wait: Duration::ZERO }
}

#[test]
fn each_challenge_brings_a_certificate() {
    for (name, which) in [("a.test", 0), ("b.test", 1), ("*.c.test", 2), ("203.0.113.9", 1)] {
        let world = World::new();
        let challenge =
            [Challenge::Http, Challenge::TlsAlpn, Challenge::Dns(hook(world.dir.path()))][which].clone();
        let node = world.start(&world.spec(name, challenge));
        let status = node.wait_issued();
        assert_eq!(status.name, name);
        assert!(node.entry.slot().get().is_for(name));
        assert_eq!(status.not_after, Some(1_800_000_000 - 3600 + 90 * DAY));
        assert_eq!(
            format!("{:?} {:?}", node.acme.tokens(), node.acme.proofs()),
            "Tokens(0) []",
            "taken back"
        );
        let mode = fs::metadata(&status.file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(world.authority.orders(), 1);
        // A restart uses it immediately and orders nothing.
        drop(node);
        let again = world.prepare(&world.spec(name, Challenge::Http));
        assert!(again.entry.shown().is_some());
    }
}

#[test]
fn an_authority_that_is_away_at_the_start_is_waited_for() {
    let world = World::new();
    world.authority.away.store(true, Ordering::Relaxed);
    let node = world.start(&world.spec("a.test", Challenge::Http));
    let status = node.wait("failed", |status| status.failures > 0);
    assert!(status.stand_in && status.not_after.is_none());
    assert_eq!(status.last_error.unwrap().failure.kind, Kind::Away);
    assert!(node.entry.slot().get().is_for("a.test"), "the stand-in");
    world.authority.away.store(false, Ordering::Relaxed);
    world.turn(&node, 10);
    assert!(node.wait_issued().last_error.is_none());
}

#[test]
fn an_authority_that_is_away_for_months_leaves_the_last_certificate() {
    let world = World::new();
    let node = world.start(&world.spec("a.test", Challenge::TlsAlpn));
    node.wait_issued();
    let first = node.shown();
    world.turn(&node, 50 * DAY);
    node.wait("looked at", |status| status.renew_at.is_some_and(|at| at > world.now.load(Ordering::Relaxed)));
    world.authority.away.store(true, Ordering::Relaxed);
    for days in [12, 10, 10, 10] {
        let before = node.acme.statuses()[0].failures;
        world.turn(&node, days * DAY);
        node.wait("tried", |status| status.failures > before && !status.ordering);
        assert_eq!(node.shown(), first);
    }
    assert!(node.acme.statuses()[0].not_after.unwrap() < world.now.load(Ordering::Relaxed), "it has expired");
    world.authority.away.store(false, Ordering::Relaxed);
    world.turn(&node, 600);
    node.wait_issued();
    assert_ne!(node.shown(), first);
    assert_eq!(world.authority.orders(), 2);
}

#[test]
fn an_authority_says_when_to_renew() {
    let world = World::new();
    let node = world.start(&world.spec("a.test", Challenge::Http));
    node.wait_issued();
    let first = node.shown();
    let id = node.entry.slot().get().renewal_id().unwrap();
    world.authority.state.lock().unwrap().window =
        Some(("2027-01-01T00:00:00Z".to_owned(), "2027-01-02T00:00:00Z".to_owned()));
    // We asked the authority when the certificate was new, and it had no suggestion. An hour later we ask again.
    world.turn(&node, 3700);
    node.wait("renewed", |_| node.shown() != first);
    assert_eq!(world.authority.state.lock().unwrap().ordered[1]["replaces"], id.as_str());
}

#[test]
fn short_lives_are_renewed_at_their_half_and_profiles_are_asked_for() {
    let world = World::new();
    world.authority.days.store(6, Ordering::Relaxed);
    let spec = Spec { profile: Some("shortlived".to_owned()), ..world.spec("a.test", Challenge::Http) };
    let node = world.start(&spec);
    let renew_at = node.wait("planned", |status| status.renew_at.is_some()).renew_at.unwrap();
    assert!((2 * DAY..3 * DAY).contains(&(renew_at - 1_800_000_000)));
    assert_eq!(world.authority.state.lock().unwrap().ordered[0]["profile"], "shortlived");
    drop(node);
    let spec = Spec { profile: Some("gold".to_owned()), ..world.spec("b.test", Challenge::Http) };
    let node = world.start(&spec);
    let told = node.wait("refused", |status| status.failures > 0).last_error.unwrap();
    assert_eq!(told.failure.text, "the certificate authority has no profile `gold`; it has: shortlived");
}

#[test]
fn a_restart_in_the_middle_goes_on_with_the_order() {
    let world = World::new();
    world.authority.slow.store(true, Ordering::Relaxed);
    let spec = world.spec("a.test", Challenge::Http);
    let node = world.start(&spec);
    node.wait("asked", |_| format!("{:?}", node.acme.tokens()) == "Tokens(1)");
    node.acme.stop();
    assert_eq!(format!("{:?}", node.acme.tokens()), "Tokens(0)");
    let lock = node.entry.storage.lock(&spec.name);
    assert!(!lock.exists() && node.entry.storage.order(&spec.name).exists());
    drop(node);
    world.authority.slow.store(false, Ordering::Relaxed);
    let node = world.start(&spec);
    node.wait_issued();
    assert_eq!(world.authority.orders(), 1);
    assert!(!node.entry.storage.order(&spec.name).exists());
}

#[test]
fn two_nodes_with_one_storage_order_once() {
    let world = World::new();
    let spec = world.spec("a.test", Challenge::Http);
    let second = world.prepare(&spec);
    let first = world.start(&spec);
    second.adopt();
    first.wait_issued();
    second.wait_issued();
    assert_eq!(first.shown(), second.shown());
    assert_eq!(world.authority.orders(), 1);
}

#[test]
fn a_proof_that_is_not_found_is_told_and_waited_after() {
    let world = World::new();
    let node = world.start(&world.spec("a.test", Challenge::Http));
    node.wait_issued();
    let stage_is_gone = Some(Box::new(|_: &str, _: &str, _: &str| None) as Box<_>);
    let look = std::mem::replace(&mut *world.authority.look.lock().unwrap(), stage_is_gone);
    world.turn(&node, 65 * DAY);
    let status = node.wait("failed", |status| status.failures == 1 && !status.ordering);
    let told = status.last_error.unwrap();
    assert_eq!(told.failure.kind, Kind::Challenge);
    assert!(
        told.failure.text.ends_with("did not find the proof: nothing there (unauthorized)"),
        "{}",
        told.failure
    );
    assert!(status.next_try.unwrap() >= told.at + 60 && !status.stand_in);
    *world.authority.look.lock().unwrap() = look;
    // The operator fixes the problem and reloads: no need to wait for the next attempt, once some time has passed.
    world.turn(&node, 40);
    let orders = world.authority.orders();
    node.reload();
    node.wait_issued();
    assert_eq!(world.authority.orders(), orders + 1);
}

#[test]
fn an_authority_that_wants_to_be_left_alone_is() {
    let world = World::new();
    world.authority.state.lock().unwrap().refuse = Some((
        429,
        serde_json::json!({ "type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many" }),
        Some("7200".to_owned()),
    ));
    let node = world.start(&world.spec("a.test", Challenge::Http));
    let status = node.wait("refused", |status| status.failures > 0);
    assert_eq!(status.last_error.unwrap().failure.kind, Kind::RateLimited);
    assert_eq!(status.next_try, Some(1_800_000_000 + 7200));
    world.turn(&node, 7100);
    node.reload();
    assert_eq!(world.authority.orders(), 0);
    world.turn(&node, 101);
    node.wait_issued();
}

#[test]
fn an_account_that_was_lost_is_made_again() {
    let world = World::new();
    let node = world.start(&world.spec("a.test", Challenge::Http));
    node.wait_issued();
    let first = node.shown();
    world.authority.state.lock().unwrap().forget_accounts();
    world.turn(&node, 65 * DAY);
    node.wait("failed", |status| status.failures > 0);
    world.turn(&node, 10);
    node.wait("renewed", |_| node.shown() != first);
}

#[test]
fn a_storage_that_is_none_leaves_the_stand_in_and_says_so() {
    let world = World::new();
    fs::write(world.dir.path().join("acme"), "a file").unwrap();
    let node = world.start(&world.spec("a.test", Challenge::Http));
    let status = node.wait("failed", |status| status.failures > 0);
    assert_eq!(status.last_error.unwrap().failure.kind, Kind::Storage);
    assert_eq!(world.authority.orders(), 0, "what could not be kept is not ordered");
}

#[test]
fn a_reload_takes_names_away_and_adds_others() {
    let world = World::new();
    let node = world.start(&world.spec("a.test", Challenge::Http));
    node.wait_issued();
    node.acme.begin();
    let entry = node.acme.entry(&world.spec("b.test", Challenge::Http)).unwrap();
    node.adopt();
    node.wait("issued", |status| status.name == "b.test" && !status.stand_in);
    assert_eq!(node.acme.statuses().len(), 1);
    assert!(entry.slot().get().is_for("b.test"));
    // The same spec yields the same slot as long as it is in use.
    node.acme.begin();
    assert!(Arc::ptr_eq(&entry, &node.acme.entry(&world.spec("b.test", Challenge::Http)).unwrap()));
}
