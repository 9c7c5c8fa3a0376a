//! The fleet's requests to etcd, and the meaning of the responses; `kv` defines their encoding.
//!
//! The keys of a fleet, under its prefix: `configs/<digest>` (bundles, immutable), `current` (the pointer),
//! `nodes/<name>` (reports under short leases), `seen/<name>` (the same under leases of a day, to detect nodes that
//! went silent) and `leader` (the election).

use crate::bundle::Bundle;
use crate::coordinator::Campaigned;
use crate::digest::Digest;
use crate::follower::{Found, Seen, WatchEvent};
use crate::kv::{self, Entry, Line, Question, Range, ask, encode, number, parsed, range_of};
use crate::pointer::Pointer;
use crate::session::{Lease, TTL};
use serde_json::{Value, json};

/// Most reports per request.
pub const PAGE: usize = 500;

/// Most nodes of a fleet that we read; others are ignored.
pub const NODES: usize = 20_000;

/// How long we remember a node that went silent.
pub const REMEMBERED: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The keys of one fleet.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchLine {
    /// A message for the follower.
    Event(WatchEvent),
    /// The watch has ended: its revision was compacted, or for another reason.
    Over(String),
}

impl Keys {
    /// The keys under this prefix; ignores a trailing slash.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.trim_end_matches('/').to_owned() }
    }

    /// The key of the pointer.
    pub fn pointer(&self) -> String {
        format!("{}/current", self.prefix)
    }

    /// The key of the election.
    pub fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// The key of the node that keeps the limits of a store.
    pub fn limits(&self, store: &str) -> String {
        format!("{}/limits/{store}", self.prefix)
    }

    fn node(&self, node: &str) -> String {
        format!("{}/nodes/{node}", self.prefix)
    }

    fn seen(&self, node: &str) -> String {
        format!("{}/seen/{node}", self.prefix)
    }

    fn bundle(&self, digest: Digest) -> String {
        format!("{}/configs/{digest}", self.prefix)
    }

    // === requests of a node ===

    /// Reads the pointer.
    pub fn read_pointer(&self) -> Question {
        ask("/v3/kv/range", &json!({ "key": encode(self.pointer().as_bytes()) }))
    }

    /// Watches the pointer, starting at a revision.
    pub fn watch_pointer(&self, from: u64) -> Question {
        let create = json!({
            "key": encode(self.pointer().as_bytes()), "start_revision": from.to_string(), "progress_notify": true,
        });
        ask("/v3/watch", &json!({ "create_request": create }))
    }

    /// Reads a bundle.
    pub fn read_bundle(&self, digest: Digest) -> Question {
        ask("/v3/kv/range", &json!({ "key": encode(self.bundle(digest).as_bytes()) }))
    }

    /// Requests a lease.
    pub fn grant() -> Question {
        Self::grant_for(TTL)
    }

    /// Requests a lease of a day, for remembering a node.
    pub fn grant_day() -> Question {
        Self::grant_for(REMEMBERED)
    }

    fn grant_for(time: std::time::Duration) -> Question {
        ask("/v3/lease/grant", &json!({ "TTL": time.as_secs().to_string() }))
    }

    /// Requests the remaining time of a lease.
    pub fn left(lease: Lease) -> Question {
        ask("/v3/lease/timetolive", &json!({ "ID": lease.to_string() }))
    }

    /// Keeps a lease alive.
    pub fn keep_alive(lease: Lease) -> Question {
        ask("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }))
    }

    /// Revokes a lease, which deletes the keys under it.
    pub fn revoke(lease: Lease) -> Question {
        ask("/v3/lease/revoke", &json!({ "ID": lease.to_string() }))
    }

    /// Writes a report under a lease.
    pub fn put_report(&self, node: &str, lease: Lease, report: &[u8]) -> Question {
        put(&self.node(node), lease, report)
    }

    /// Writes a report to be remembered.
    pub fn put_seen(&self, node: &str, lease: Lease, report: &[u8]) -> Question {
        put(&self.seen(node), lease, report)
    }

    /// Asks for the election key; if it exists, returns its content.
    pub fn campaign(&self, node: &str, lease: Lease) -> Question {
        Self::claim(&self.leader(), node.as_bytes(), lease)
    }

    /// Reads one key.
    pub fn read_key(key: &str) -> Question {
        ask("/v3/kv/range", &json!({ "key": encode(key.as_bytes()) }))
    }

    /// Writes a key under a lease unless it exists; if it does, returns its content.
    pub fn claim(key: &str, value: &[u8], lease: Lease) -> Question {
        let key = encode(key.as_bytes());
        let put = json!({ "key": key, "value": encode(value), "lease": lease.to_string() });
        let txn = json!({
            "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }],
            "success": [{ "request_put": put }],
            "failure": [{ "request_range": { "key": key } }],
        });
        ask("/v3/kv/txn", &txn)
    }

    /// Reads reports, starting after `after` if given.
    pub fn read_nodes(&self, after: Option<&[u8]>) -> Question {
        kv::read_prefix(&self.node(""), after, PAGE)
    }

    /// Reads remembered reports, starting after `after` if given.
    pub fn read_seen(&self, after: Option<&[u8]>) -> Question {
        kv::read_prefix(&self.seen(""), after, PAGE)
    }

    /// Reads the holder of the election key.
    pub fn read_leader(&self) -> Question {
        ask("/v3/kv/range", &json!({ "key": encode(self.leader().as_bytes()) }))
    }

    /// Writes the pointer, if it is still at `revision` and the election key was created at `key`.
    pub fn move_pointer(&self, pointer: &Pointer, revision: u64, key: u64) -> Question {
        let (name, leader) = (encode(self.pointer().as_bytes()), encode(self.leader().as_bytes()));
        let txn = json!({
            "compare": [
                { "key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() },
                { "key": leader, "target": "CREATE", "result": "EQUAL", "create_revision": key.to_string() },
            ],
            "success": [{ "request_put": { "key": name, "value": encode(&pointer.write()) } }],
        });
        ask("/v3/kv/txn", &txn)
    }

    // === requests of a publisher ===

    /// Writes a pointer derived from the one at `revision` (0 for none), with its bundle if that is new; removes
    /// unneeded bundles.
    pub fn publish(
        &self,
        pointer: &Pointer,
        revision: u64,
        bundle: Option<&[u8]>,
        unused: &[Digest],
    ) -> Question {
        let name = encode(self.pointer().as_bytes());
        let compare = if revision == 0 {
            json!({ "key": name, "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
        } else {
            json!({ "key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() })
        };
        let mut success = Vec::new();
        if let Some(bundle) = bundle {
            let key = encode(self.bundle(pointer.to).as_bytes());
            success.push(json!({ "request_put": { "key": key, "value": encode(bundle) } }));
        }
        for digest in unused.iter().filter(|digest| **digest != pointer.to) {
            let key = encode(self.bundle(*digest).as_bytes());
            success.push(json!({ "request_delete_range": { "key": key } }));
        }
        success.push(json!({ "request_put": { "key": name, "value": encode(&pointer.write()) } }));
        ask("/v3/kv/txn", &json!({ "compare": [compare], "success": success }))
    }
}

fn put(key: &str, lease: Lease, value: &[u8]) -> Question {
    let put = json!({ "key": encode(key.as_bytes()), "value": encode(value), "lease": lease.to_string() });
    ask("/v3/kv/put", &put)
}

// === responses ===

/// The bundle requested with [`Keys::read_bundle`], complete and matching its digest.
///
/// # Errors
/// If it is missing, or is another bundle.
pub fn bundle(range: &Range, digest: Digest) -> Result<Bundle, String> {
    let name = digest.short();
    let entry = range.entries.first().ok_or_else(|| format!("bundle {name} is not there"))?;
    let bundle = Bundle::unpack(&entry.value).map_err(|e| format!("bundle {name}: {e}"))?;
    if bundle.digest() == digest {
        Ok(bundle)
    } else {
        Err(format!("what is stored as bundle {name} is another: {}", bundle.digest().short()))
    }
}

/// The remaining time of a lease; zero if it has expired.
///
/// # Errors
/// When the body is not such a response.
pub fn left(body: &[u8]) -> Result<std::time::Duration, String> {
    let value = parsed(body)?;
    if value.get("header").is_none() {
        return Err(kv::error(body));
    }
    // An expired lease has -1, which does not parse as one of our numbers.
    Ok(std::time::Duration::from_secs(number(value.get("TTL"))))
}

/// The pointer that [`Keys::read_pointer`] returned.
pub fn seen(range: &Range) -> Seen {
    let entry = range.entries.first();
    Seen {
        revision: range.revision,
        modified: entry.map_or(0, |entry| entry.modified),
        pointer: entry.map_or(Found::Nothing, |entry| found(&entry.value)),
    }
}

fn found(value: &[u8]) -> Found {
    match Pointer::read(value) {
        Ok(pointer) => Found::Pointer(Box::new(pointer)),
        Err(unreadable) => Found::Unreadable(unreadable.0),
    }
}

/// Whether a transaction succeeded.
///
/// # Errors
/// When the body is not such a response.
pub fn succeeded(body: &[u8]) -> Result<bool, String> {
    let value = parsed(body)?;
    if value.get("header").is_none() {
        return Err(kv::error(body));
    }
    Ok(value.get("succeeded").and_then(Value::as_bool).unwrap_or_default()) // false is omitted
}

/// The holder of the election key, after [`Keys::campaign`] by `node`.
///
/// # Errors
/// When the body is not such a response.
pub fn campaigned(body: &[u8], node: &str, lease: Lease) -> Result<Campaigned, String> {
    if succeeded(body)? {
        let value = parsed(body)?;
        return Ok(Campaigned::Ours(
            lease,
            number(value.get("header").and_then(|header| header.get("revision"))),
        ));
    }
    Ok(match held(body)? {
        Some(entry) if entry.value == node.as_bytes() && entry.lease == lease => {
            Campaigned::Ours(lease, entry.created)
        }
        _ => Campaigned::Theirs,
    })
}

/// The holder of a key requested with [`Keys::claim`]: `None` if our write succeeded.
///
/// # Errors
/// When the body is not such a response.
pub fn claimed(body: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if succeeded(body)? {
        return Ok(None);
    }
    held(body)?.map(|entry| Some(entry.value)).ok_or_else(|| "the key was there, and is gone".to_owned())
}

/// The entry in the response to a failed transaction.
fn held(body: &[u8]) -> Result<Option<Entry>, String> {
    let value = parsed(body)?;
    let answer = value.get("responses").and_then(|all| all.get(0)).and_then(|one| one.get("response_range"));
    Ok(answer.and_then(|answer| range_of(answer, &value).entries.into_iter().next()))
}

/// A granted lease.
///
/// # Errors
/// When the body is not such a response.
pub fn granted(body: &[u8]) -> Result<Lease, String> {
    match kv::lease_of(parsed(body)?.get("ID")) {
        0 => Err(kv::error(body)),
        lease => Ok(lease),
    }
}

/// Whether a lease was renewed: an expired lease has no remaining time.
///
/// # Errors
/// When the body is not such a response.
pub fn kept_alive(body: &[u8]) -> Result<bool, String> {
    let value = parsed(body)?;
    match value.get("result") {
        Some(result) => Ok(number(result.get("TTL")) > 0),
        None => Err(kv::error(body)),
    }
}

/// Parses a line of a watch.
pub fn watch_line(line: &[u8]) -> WatchLine {
    let mut events = match kv::line(line) {
        Line::Events(events) => events,
        Line::Over(why) => return WatchLine::Over(why),
    };
    // Only the last event counts: intermediate pointers need not run.
    let Some(event) = events.pop() else { return WatchLine::Event(WatchEvent::Nothing) };
    let revision = event.entry.modified;
    let pointer = if event.deleted { Found::Nothing } else { found(&event.entry.value) };
    let modified = if event.deleted { 0 } else { revision };
    WatchLine::Event(WatchEvent::Changed(Seen { revision, modified, pointer }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{decode, range, token};

    #[test]
    fn the_prefix_ends_where_it_ends() {
        let keys = Keys::new("/weir/prod/");
        let question = keys.read_nodes(None);
        let body: Value = serde_json::from_str(&question.body).unwrap();
        let text = |name: &str| String::from_utf8(decode(body[name].as_str().unwrap()).unwrap()).unwrap();
        assert_eq!(
            (text("key"), text("range_end")),
            ("/weir/prod/nodes/".into(), "/weir/prod/nodes0".into())
        );
        assert_eq!(keys.pointer(), "/weir/prod/current");
    }

    #[test]
    fn answers_of_etcd() {
        let empty = range(br#"{"header":{"cluster_id":"1","revision":"5","raft_term":"2"}}"#).unwrap();
        assert_eq!(empty, Range { revision: 5, ..Range::default() });
        assert_eq!(seen(&empty), Seen { revision: 5, modified: 0, pointer: Found::Nothing });
        let one = range(br#"{"header":{"revision":"9"},"kvs":[{"key":"YQ==","create_revision":"3","mod_revision":"7","version":"2","value":"e30="}],"count":"1"}"#).unwrap();
        assert_eq!((one.entries[0].modified, &one.entries[0].value[..]), (7, &b"{}"[..]));
        assert!(matches!(seen(&one).pointer, Found::Unreadable(_)));
        assert_eq!(range(br#"{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3}"#), Err("etcdserver: user name is empty".to_owned()));
        assert_eq!(range(b"<html>"), Err("the answer is not an etcd JSON response".to_owned()));
        assert_eq!(succeeded(br#"{"header":{"revision":"2"},"succeeded":true}"#), Ok(true));
        assert_eq!(succeeded(br#"{"header":{"revision":"2"}}"#), Ok(false));
        assert_eq!(
            granted(br#"{"header":{},"ID":"7587848943239472414","TTL":"15"}"#),
            Ok(7_587_848_943_239_472_414)
        );
        assert_eq!(kept_alive(br#"{"result":{"header":{},"ID":"7","TTL":"15"}}"#), Ok(true));
        assert_eq!(kept_alive(br#"{"result":{"header":{},"ID":"7"}}"#), Ok(false));
        assert_eq!(token(br#"{"header":{},"token":"abc.1"}"#), Ok("abc.1".to_owned()));
        assert!(token(br#"{"header":{},"token":"a\r\nb"}"#).is_err());
    }

    #[test]
    fn a_bundle_is_what_its_name_says() {
        let of = |text: &str| Bundle::new([("weir.yaml".to_owned(), text.as_bytes().to_vec())]).unwrap();
        let (one, other) = (of("one"), of("onf"));
        let stored = |bytes: Vec<u8>| {
            let entry = Entry { key: Vec::new(), value: bytes, created: 1, modified: 1, lease: 0 };
            Range { entries: vec![entry], ..Range::default() }
        };
        assert_eq!(bundle(&stored(one.pack().unwrap()), one.digest()), Ok(one.clone()));
        let wrong = bundle(&stored(other.pack().unwrap()), one.digest()).unwrap_err();
        assert!(wrong.contains("is another"), "{wrong}");
        assert!(bundle(&Range::default(), one.digest()).unwrap_err().contains("is not there"));
        assert!(bundle(&stored(vec![0x1f, 0x8b, 1]), one.digest()).is_err());
    }

    #[test]
    fn a_move_is_bound_to_the_pointer_and_the_key() {
        let pointer = crate::plan::publish(None, Digest::of(&[]), None, &[], crate::plan::Author::default());
        let question = Keys::new("/w").move_pointer(&pointer.unwrap().0, 40, 41);
        let body: Value = serde_json::from_str(&question.body).unwrap();
        let bound: Vec<_> = body["compare"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let key = String::from_utf8(decode(one["key"].as_str().unwrap()).unwrap()).unwrap();
                (key, one["mod_revision"].as_str().or(one["create_revision"].as_str()).unwrap().to_owned())
            })
            .collect();
        assert_eq!(
            bound,
            [("/w/current".to_owned(), "40".to_owned()), ("/w/leader".to_owned(), "41".to_owned())]
        );
    }

    #[test]
    fn what_a_lease_still_has() {
        let seconds = |body: &str| left(body.as_bytes()).map(|left| left.as_secs());
        assert_eq!(seconds(r#"{"header":{},"ID":"7","TTL":"86390","grantedTTL":"86400"}"#), Ok(86_390));
        assert_eq!(seconds(r#"{"header":{},"ID":"7","TTL":"-1"}"#), Ok(0));
        assert_eq!(seconds(r#"{"error":"permission denied"}"#), Err("permission denied".to_owned()));
    }

    #[test]
    fn an_election() {
        let won = br#"{"header":{"revision":"12"},"succeeded":true,"responses":[{"response_put":{}}]}"#;
        assert_eq!(campaigned(won, "n", 7), Ok(Campaigned::Ours(7, 12)));
        let held = |value: &str, lease: &str| {
            format!(
                r#"{{"header":{{"revision":"20"}},"responses":[{{"response_range":{{"kvs":[{{"key":"bA==","create_revision":"12","mod_revision":"12","value":"{value}","lease":"{lease}"}}]}}}}]}}"#
            )
        };
        assert_eq!(campaigned(held("bg==", "7").as_bytes(), "n", 7), Ok(Campaigned::Ours(7, 12)));
        // An earlier lease of this node does not count.
        assert_eq!(campaigned(held("bg==", "6").as_bytes(), "n", 7), Ok(Campaigned::Theirs));
        assert_eq!(campaigned(held("bQ==", "7").as_bytes(), "n", 7), Ok(Campaigned::Theirs));
    }

    #[test]
    fn lines_of_a_watch() {
        let created = br#"{"result":{"header":{"revision":"3"},"created":true}}"#;
        assert_eq!(watch_line(created), WatchLine::Event(WatchEvent::Nothing));
        let compacted = br#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"8"}}"#;
        assert_eq!(watch_line(compacted), WatchLine::Over("revisions up to 8 were compacted".to_owned()));
        let deleted = br#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}"#;
        let gone = Seen { revision: 9, modified: 0, pointer: Found::Nothing };
        assert_eq!(watch_line(deleted), WatchLine::Event(WatchEvent::Changed(gone)));
        assert_eq!(
            watch_line(br#"{"error":{"grpc_code":14,"message":"shutting down"}}"#),
            WatchLine::Over("shutting down".to_owned())
        );
        assert!(matches!(watch_line(b"\xff"), WatchLine::Over(_)));
    }
}
