//! A fleet's requests to its etcd.

use super::{AskError, Client, SMALL};
use crate::fetch::{Environment, Trust};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::schema::EtcdSource;
use weir_fleet::coordinator::{Campaigned, Looked};
use weir_fleet::etcd::{self, Keys, WatchLine};
use weir_fleet::follower::{Seen, WatchEvent};
use weir_fleet::kv::{self, Question};
use weir_fleet::session::Lease;
use weir_fleet::{Bundle, Digest, NodeReport, Pointer};

/// Longest answer with a bundle, in base64 with some space around it.
const WITH_BUNDLE: usize = weir_fleet::bundle::PUBLISHED_BYTES / 3 * 4 + (64 << 10);

/// Longest page of reports.
const WITH_REPORTS: usize = etcd::PAGE * weir_fleet::report::REPORT_BYTES / 3 * 4 + (64 << 10);

/// Longest line of a watch: it holds the pointers of a few moments.
const LINE: usize = 1 << 20;

/// How often a node renews the record that remembers it for a day.
const REMIND: Duration = Duration::from_secs(60);

/// For how many silent nodes to ask how long they have been silent.
const SILENCES: usize = 50;

/// An etcd and the keys of one fleet in it.
pub struct Etcd {
    client: Client,
    /// The lease of this node's day record and when it was last renewed; and the record.
    day: Cell<Option<(Lease, Instant)>>,
    remembered: RefCell<Vec<u8>>,
    /// Whether the record is being written; and whether the node has left and must not be reported missing.
    remembering: Cell<bool>,
    left: Cell<bool>,
    /// The keys of the fleet.
    pub keys: Keys,
    /// The name of this node.
    pub node: String,
}

impl Etcd {
    /// A client from the config.
    pub fn new(written: &EtcdSource, environment: Arc<Environment>) -> Result<Self, String> {
        let trust = Trust::given(&written.ca, &written.client_cert, &written.client_key)?;
        let node = written.node.clone().unwrap_or_else(machine);
        let password = written.password.as_ref().map(|secret| secret.reveal().to_owned());
        // Nodes start with different members.
        let start = Digest::of(&[node.as_bytes()]).number();
        let login = written.user.clone().zip(password);
        let client = Client::new(&written.servers, start, trust, login, environment)?;
        Ok(Self {
            client,
            day: Cell::default(),
            remembered: RefCell::default(),
            remembering: Cell::new(false),
            left: Cell::new(false),
            keys: Keys::new(&written.prefix),
            node,
        })
    }

    /// Its location as text.
    pub fn place(&self) -> String {
        format!("etcd {} {}", self.client.origin(), self.keys.pointer().trim_end_matches("/current"))
    }

    async fn ask(&self, question: &Question, limit: usize) -> Result<Bytes, String> {
        Ok(self.client.ask(question, limit).await?)
    }

    // === what a node asks ===

    /// The current pointer.
    pub async fn read(&self) -> Result<Seen, String> {
        let body = self.ask(&self.keys.read_pointer(), SMALL).await?;
        Ok(etcd::seen(&kv::range(&body)?))
    }

    /// A bundle. Its content matches its digest.
    pub async fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        let body = self.ask(&self.keys.read_bundle(digest), WITH_BUNDLE).await?;
        etcd::bundle(&kv::range(&body)?, digest)
    }

    /// Requests this node's lease.
    pub async fn grant(&self) -> Result<Lease, String> {
        etcd::granted(&self.ask(&Keys::grant(), SMALL).await?)
    }

    /// Renews a lease. False if it has ended.
    pub async fn keep_alive(&self, lease: Lease) -> Result<bool, String> {
        etcd::kept_alive(&self.ask(&Keys::keep_alive(lease), SMALL).await?)
    }

    /// Ends a lease and removes the keys under it.
    pub async fn revoke(&self, lease: Lease) -> Result<(), String> {
        self.ask(&Keys::revoke(lease), SMALL).await.map(drop)
    }

    /// Writes this node's report under its lease.
    pub async fn put_report(&self, lease: Lease, report: &[u8]) -> Result<(), String> {
        let body = self.ask(&self.keys.put_report(&self.node, lease, report), SMALL).await?;
        kv::range(&body).map(drop)
    }

    // === the day record ===

    /// Stores the last report for a day, so that a node that goes silent is noticed as missing.
    pub async fn remember(&self, report: Vec<u8>) -> Result<(), String> {
        *self.remembered.borrow_mut() = report;
        // One at a time, or the previous report might overwrite this one. The running call writes this one too.
        if self.remembering.replace(true) {
            return Ok(());
        }
        let put = self.remember_last().await;
        self.remembering.set(false);
        put
    }

    async fn remember_last(&self) -> Result<(), String> {
        loop {
            let report = self.remembered.borrow().clone();
            let lease = match self.day.get() {
                Some((lease, _)) => lease,
                None => etcd::granted(&self.ask(&Keys::grant_day(), SMALL).await?)?,
            };
            if self.left.get() {
                return Ok(());
            }
            // Set before the put: if the put fails because the user has no right to it, it must not request a lease
            // each time.
            self.day.set(Some((lease, Instant::now())));
            let put = self.client.ask(&self.keys.put_seen(&self.node, lease, &report), SMALL).await;
            if put.as_ref().is_err_and(AskError::is_not_found) {
                self.day.set(None); // the lease has ended
            }
            kv::range(&put?)?;
            if *self.remembered.borrow() == report {
                return Ok(());
            }
        }
    }

    /// Renews the record's lease, once a minute.
    pub async fn stay_remembered(&self) -> Result<(), String> {
        let Some((lease, kept)) = self.day.get() else { return Ok(()) }; // the next report requests one
        if kept.elapsed() < REMIND {
            return Ok(());
        }
        self.day.set(Some((lease, Instant::now())));
        if self.keep_alive(lease).await? {
            return Ok(());
        }
        self.day.set(None);
        let report = self.remembered.borrow().clone();
        self.remember(report).await
    }

    /// Leaves the fleet, so that this node is not reported missing.
    pub async fn leave(&self, lease: Option<Lease>) -> Result<(), String> {
        self.left.set(true);
        // In this order: a node with a day record that is not alive counts as missing.
        if let Some((day, _)) = self.day.take() {
            self.revoke(day).await?;
        }
        match lease {
            Some(lease) => self.revoke(lease).await,
            None => Ok(()),
        }
    }

    /// How long the nodes under these leases have been silent, to the minute. With very many, only the first are
    /// asked for.
    pub async fn silences(&self, leases: &[Lease]) -> Vec<Option<Duration>> {
        let mut all = Vec::new();
        for lease in leases.iter().take(SILENCES) {
            let answer = self.ask(&Keys::left(*lease), SMALL).await;
            let left = answer.and_then(|body| etcd::left(&body)).ok();
            all.push(left.map(|left| etcd::REMEMBERED.saturating_sub(left)));
        }
        all.resize(leases.len(), None);
        all
    }

    // === coordinating ===

    /// Who holds the election key, if anyone.
    pub async fn leader(&self) -> Result<Option<String>, String> {
        let range = kv::range(&self.ask(&self.keys.read_leader(), SMALL).await?)?;
        Ok(range.entries.first().map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    /// Tries to take the election key.
    pub async fn campaign(&self, lease: Lease) -> Result<Campaigned, String> {
        let body = self.ask(&self.keys.campaign(&self.node, lease), SMALL).await?;
        etcd::campaigned(&body, &self.node, lease)
    }

    /// The value of a key.
    pub async fn read_key(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let range = kv::range(&self.ask(&Keys::read_key(key), SMALL).await?)?;
        Ok(range.entries.into_iter().next().map(|entry| entry.value))
    }

    /// Writes a key under a lease unless it exists. Returns the existing value, or `None` if it was written.
    pub async fn claim(&self, key: &str, value: &[u8], lease: Lease) -> Result<Option<Vec<u8>>, String> {
        etcd::claimed(&self.ask(&Keys::claim(key, value, lease), SMALL).await?)
    }

    /// Runs a transaction. Returns whether its conditions held.
    pub async fn transact(&self, question: &Question) -> Result<bool, String> {
        etcd::succeeded(&self.ask(question, SMALL).await?)
    }

    /// Moves the pointer if nobody else has. Returns whether it was moved.
    pub async fn move_pointer(&self, pointer: &Pointer, revision: u64, key: u64) -> Result<bool, String> {
        self.transact(&self.keys.move_pointer(pointer, revision, key)).await
    }

    /// The live nodes and those that are only remembered.
    pub async fn look(&self) -> Result<Looked, String> {
        let (nodes, silent) = self.look_at_all().await?;
        Ok(Looked { nodes, silent: silent.into_iter().map(|(report, _)| report).collect() })
    }

    /// The live nodes and those that are only remembered, with the leases of the latter.
    pub async fn look_at_all(&self) -> Result<(Vec<NodeReport>, Vec<(NodeReport, Lease)>), String> {
        // In this order: a node that joins now is in neither list or in the second, so no new node is reported
        // missing.
        let seen = self.pages(|after| self.keys.read_seen(after)).await;
        // The role may be older than these keys.
        let seen = seen.or_else(|e| if e.contains("permission denied") { Ok(Vec::new()) } else { Err(e) })?;
        let live = self.pages(|after| self.keys.read_nodes(after)).await?;
        let nodes: Vec<NodeReport> = live.into_iter().map(|(report, _)| report).collect();
        let names: HashSet<&str> = nodes.iter().map(|report| report.node.as_str()).collect();
        let silent = seen.into_iter().filter(|(report, _)| !names.contains(report.node.as_str())).collect();
        Ok((nodes, silent))
    }

    async fn pages(
        &self,
        question: impl Fn(Option<&[u8]>) -> Question,
    ) -> Result<Vec<(NodeReport, Lease)>, String> {
        let mut found: Vec<(NodeReport, Lease)> = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let body = self.ask(&question(after.as_deref()), WITH_REPORTS).await?;
            let range = kv::range(&body)?;
            let report = |entry: &kv::Entry| Some((NodeReport::read(&entry.value)?, entry.lease));
            found.extend(range.entries.iter().filter_map(report));
            match range.entries.last() {
                Some(last) if range.more && found.len() < etcd::NODES => after = Some(last.key.clone()),
                _ => return Ok(found),
            }
        }
    }

    // === watching ===

    /// Watches the pointer until the watch ends. Returns why it ended.
    pub async fn watch(&self, from: u64, tell: impl Fn(WatchEvent)) -> String {
        let mut watch = match self.client.watch(&self.keys.watch_pointer(from), LINE).await {
            Ok(watch) => watch,
            Err(why) => return why,
        };
        loop {
            match watch.line().await.map(etcd::watch_line) {
                Ok(WatchLine::Event(event)) => tell(event),
                Ok(WatchLine::Over(why)) | Err(why) => return why,
            }
        }
    }
}

/// The name of the machine.
pub fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "node".to_owned() } else { name.to_owned() }
}
