//! What a fleet asks of its etcd.

use super::machine;
use crate::config::schema::EtcdSource;
use crate::etcd::{Client, SMALL};
use crate::fetch::{Surroundings, Trust};
use bytes::Bytes;
use std::sync::Arc;
use weir_fleet::coordinator::{Campaigned, Looked};
use weir_fleet::etcd::{self, Keys, WatchLine};
use weir_fleet::follower::{Seen, Told};
use weir_fleet::kv::{self, Question, Range};
use weir_fleet::session::Lease;
use weir_fleet::{Bundle, Digest, NodeReport, Pointer};

/// Longest answer with a bundle: as base64, with some space around it.
const WITH_BUNDLE: usize = weir_fleet::bundle::PUBLISHED_BYTES / 3 * 4 + (64 << 10);

/// Longest page of reports.
const WITH_REPORTS: usize = etcd::PAGE * weir_fleet::report::REPORT_BYTES / 3 * 4 + (64 << 10);

/// Longest line of a watch: it holds the pointers of some moments.
const LINE: usize = 1 << 20;

/// An etcd and the keys of one fleet in it.
pub(crate) struct Etcd {
    client: Client,
    pub(crate) keys: Keys,
    pub(crate) node: String,
}

impl Etcd {
    /// As the config has it.
    pub(crate) fn new(written: &EtcdSource, surroundings: Arc<Surroundings>) -> Result<Self, String> {
        let trust = Trust::given(&written.ca, &written.client_cert, &written.client_key)?;
        let node = written.node.clone().unwrap_or_else(machine);
        let password = written.password.as_ref().map(|secret| secret.reveal().to_owned());
        // Nodes begin with different members.
        let start = Digest::of(&[node.as_bytes()]).number();
        let login = written.user.clone().zip(password);
        let client = Client::new(&written.servers, start, trust, login, surroundings)?;
        Ok(Self { client, keys: Keys::new(&written.prefix), node })
    }

    /// Where it is, in words.
    pub(crate) fn place(&self) -> String {
        format!("etcd {} {}", self.client.origin(), self.keys.pointer().trim_end_matches("/current"))
    }

    async fn ask(&self, question: &Question, limit: usize) -> Result<Bytes, String> {
        self.client.ask(question, limit).await
    }

    // === what a node asks ===

    pub(crate) async fn read(&self) -> Result<Seen, String> {
        let body = self.ask(&self.keys.read_pointer(), SMALL).await?;
        Ok(etcd::seen(&kv::range(&body)?))
    }

    /// The pointer with the revision that it was written at, for a publisher.
    pub(crate) async fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        let body = self.ask(&self.keys.read_bundle(digest), WITH_BUNDLE).await?;
        let range: Range = kv::range(&body)?;
        let entry = range.entries.first().ok_or_else(|| format!("bundle {} is not there", digest.short()))?;
        let bundle = Bundle::unpack(&entry.value).map_err(|e| format!("bundle {}: {e}", digest.short()))?;
        if bundle.digest() == digest {
            Ok(bundle)
        } else {
            Err(format!(
                "what is stored as bundle {} is another: {}",
                digest.short(),
                bundle.digest().short()
            ))
        }
    }

    pub(crate) async fn grant(&self) -> Result<Lease, String> {
        etcd::granted(&self.ask(&Keys::grant(), SMALL).await?)
    }

    pub(crate) async fn keep_alive(&self, lease: Lease) -> Result<bool, String> {
        etcd::kept_alive(&self.ask(&Keys::keep_alive(lease), SMALL).await?)
    }

    pub(crate) async fn revoke(&self, lease: Lease) -> Result<(), String> {
        self.ask(&Keys::revoke(lease), SMALL).await.map(drop)
    }

    pub(crate) async fn put_report(&self, lease: Lease, report: &[u8]) -> Result<(), String> {
        let body = self.ask(&self.keys.put_report(&self.node, lease, report), SMALL).await?;
        kv::range(&body).map(drop)
    }

    pub(crate) async fn campaign(&self, lease: Lease) -> Result<Campaigned, String> {
        let body = self.ask(&self.keys.campaign(&self.node, lease), SMALL).await?;
        etcd::campaigned(&body, &self.node, lease)
    }

    /// What a key holds.
    pub(crate) async fn read_key(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let range = kv::range(&self.ask(&Keys::read_key(key), SMALL).await?)?;
        Ok(range.entries.into_iter().next().map(|entry| entry.value))
    }

    /// Writes a key under a lease unless it is there: what it holds, `None` where it was written.
    pub(crate) async fn claim(
        &self,
        key: &str,
        value: &[u8],
        lease: Lease,
    ) -> Result<Option<Vec<u8>>, String> {
        etcd::claimed(&self.ask(&Keys::claim(key, value, lease), SMALL).await?)
    }

    pub(crate) async fn transact(&self, question: &Question) -> Result<bool, String> {
        etcd::succeeded(&self.ask(question, SMALL).await?)
    }

    pub(crate) async fn move_pointer(
        &self,
        pointer: &Pointer,
        revision: u64,
        key: u64,
    ) -> Result<bool, String> {
        self.transact(&self.keys.move_pointer(pointer, revision, key)).await
    }

    pub(crate) async fn look(&self) -> Result<Looked, String> {
        let mut nodes: Vec<NodeReport> = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let body = self.ask(&self.keys.read_nodes(after.as_deref()), WITH_REPORTS).await?;
            let range = kv::range(&body)?;
            nodes.extend(etcd::reports(&range));
            match range.entries.last() {
                Some(last) if range.more && nodes.len() < etcd::NODES => after = Some(last.key.clone()),
                _ => return Ok(Looked { nodes }),
            }
        }
    }

    // === watching ===

    /// Watches the pointer until the watch ends; why it did.
    pub(crate) async fn watch(&self, from: u64, tell: impl Fn(Told)) -> String {
        let mut watch = match self.client.watch(&self.keys.watch_pointer(from), LINE).await {
            Ok(watch) => watch,
            Err(why) => return why,
        };
        loop {
            match watch.line().await.map(etcd::watch_line) {
                Ok(WatchLine::Told(told)) => tell(told),
                Ok(WatchLine::Over(why)) | Err(why) => return why,
            }
        }
    }
}
