//! The keys of a service in etcd, followed by revision.
//!
//! ```text
//!   read: all keys at revision R ─► load ──► watch from R + 1 ─► apply, line by line ─┐
//!     ▲                                                                              │
//!     └── the watch ended, R was compacted, the table was full, or it was silent ◄───┘
//! ```
//!
//! kratos and sponge write `/microservices/<service>/<id>` with JSON, go-zero `<service>/<lease>` with `host:port`.
//! The slash after the name is part of the prefix: without it, `orders` would match the instances of `orders2` too.

use crate::{
    Applied, Choice, Found, INSTANCES, Instance, KRATOS_WEIGHT, Listing, kratos, place, short, too_many,
};
use std::collections::BTreeMap;
use weir_fleet::kv::{self, Entry, Line, Question};

/// Longest response, and longest line of a watch, in bytes.
pub const ANSWER_BYTES: usize = 4 << 20;

/// Longest key that we read.
const KEY_BYTES: usize = 1 << 10;

/// The encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `host:port`.
    GoZero,
    /// The JSON of kratos and sponge.
    Kratos,
}

/// The instances under one prefix.
#[derive(Clone, Debug)]
pub struct Table {
    prefix: String,
    format: Format,
    choice: Choice,
    entries: BTreeMap<Vec<u8>, Result<Found, String>>,
    /// The revision that the table reflects.
    revision: u64,
    /// There are more entries than we keep. If one is deleted, we do not know which should replace it.
    full: bool,
}

impl Table {
    /// The instances below `key`: the name of a service with its prefix.
    pub fn new(key: &str, format: Format, choice: Choice) -> Self {
        let prefix = format!("{}/", key.trim_end_matches('/'));
        Self { prefix, format, choice, entries: BTreeMap::new(), revision: 0, full: false }
    }

    /// A request for all of them.
    pub fn read(&self) -> Question {
        kv::read_prefix(&self.prefix, None, INSTANCES + 1)
    }

    /// A request for changes from now on.
    pub fn watch(&self) -> Question {
        kv::watch_prefix(&self.prefix, self.revision.saturating_add(1))
    }

    /// Processes the response to [`Table::read`]. True if the registry lost data: it was restored, or lost its disk.
    ///
    /// # Errors
    /// When the body is not such a response. The table stays unchanged.
    pub fn load(&mut self, body: &[u8]) -> Result<bool, String> {
        let range = kv::range(body)?;
        let went_back = range.revision < self.revision;
        self.revision = range.revision;
        self.full = range.more || range.entries.len() > INSTANCES;
        self.entries = range.entries.iter().take(INSTANCES).map(|entry| self.entry(entry)).collect();
        Ok(went_back)
    }

    /// Processes a line of the watch.
    pub fn apply(&mut self, line: &[u8]) -> Applied {
        let events = match kv::line(line) {
            Line::Events(events) => events,
            Line::Over(why) => return Applied::Reread(why),
        };
        let mut changed = false;
        // Ignore the header's revision: it may be ahead of events that are still to come.
        let newest = events.iter().map(|event| event.entry.modified).max().unwrap_or(0);
        for event in events {
            if event.entry.modified <= self.revision {
                continue; // already known
            }
            changed = true;
            let (key, found) = self.entry(&event.entry);
            if event.deleted {
                self.entries.remove(&key);
                if self.full {
                    return Applied::Reread("there is room for an instance that was left out".to_owned());
                }
            } else if self.entries.len() < INSTANCES || self.entries.contains_key(&key) {
                self.entries.insert(key, found);
            } else {
                self.full = true;
            }
        }
        // All events of a revision come in one line, so the watch resumes after it.
        self.revision = self.revision.max(newest);
        if changed { Applied::Changed } else { Applied::Same }
    }

    /// The currently known instances.
    pub fn listing(&self) -> Listing {
        let names: Vec<String> = self.entries.keys().map(|key| self.id(key)).collect();
        let all = names.iter().map(String::as_str).zip(self.entries.values());
        let unsaid = match self.format {
            Format::GoZero => 1,
            Format::Kratos => KRATOS_WEIGHT,
        };
        let mut listing = Listing::of(all, unsaid);
        if self.full {
            listing.leave_out("", too_many());
        }
        listing
    }

    fn entry(&self, entry: &Entry) -> (Vec<u8>, Result<Found, String>) {
        let mut key = entry.key.clone();
        let found = if key.len() > KEY_BYTES {
            key.truncate(KEY_BYTES);
            Err(format!("its key is longer than {KEY_BYTES} bytes"))
        } else {
            self.found(entry)
        };
        (key, found)
    }

    fn found(&self, entry: &Entry) -> Result<Found, String> {
        match self.format {
            Format::Kratos => kratos::read(&entry.value, self.name(), entry.created, &self.choice),
            Format::GoZero => {
                let text = std::str::from_utf8(&entry.value).map_err(|_| "it is not text".to_owned())?;
                if text.starts_with('{') {
                    return Err("it is JSON, where go-zero writes host:port; try `format: kratos`".to_owned());
                }
                let (host, port) = place(text.trim())?;
                let (id, version) = (self.id(&entry.key), String::new());
                let instance = Instance { id, version, host, port, weight: 1, zone: None, priority: 0 };
                Ok(Found { instance, weight: None, since: entry.created })
            }
        }
    }

    /// The name of the service.
    fn name(&self) -> &str {
        self.prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// The part of a key after the service name.
    fn id(&self, key: &[u8]) -> String {
        short(&String::from_utf8_lossy(key.get(self.prefix.len()..).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{grpc, seen};

    fn go_zero() -> Table {
        Table::new("greeter.rpc", Format::GoZero, Choice::default())
    }

    fn kv(key: &str, value: &str, revision: u64) -> String {
        let (key, value) = (kv::encode(key.as_bytes()), kv::encode(value.as_bytes()));
        format!(
            r#"{{"key":"{key}","value":"{value}","create_revision":"{revision}","mod_revision":"{revision}"}}"#
        )
    }

    fn range(revision: u64, kvs: &[String]) -> String {
        format!(r#"{{"header":{{"revision":"{revision}"}},"kvs":[{}]}}"#, kvs.join(","))
    }

    fn put(key: &str, value: &str, revision: u64) -> String {
        format!(r#"{{"kv":{}}}"#, kv(key, value, revision))
    }

    fn delete(key: &str, revision: u64) -> String {
        let key = kv::encode(key.as_bytes());
        format!(r#"{{"type":"DELETE","kv":{{"key":"{key}","mod_revision":"{revision}"}}}}"#)
    }

    fn line(revision: u64, events: &[String]) -> String {
        format!(r#"{{"result":{{"header":{{"revision":"{revision}"}},"events":[{}]}}}}"#, events.join(","))
    }

    fn addresses(table: &Table) -> Vec<String> {
        seen(&table.listing()).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn a_service_of_go_zero() {
        let mut table = go_zero();
        let all = [kv("greeter.rpc/7587", "10.0.0.1:8080", 3), kv("greeter.rpc/7588", "10.0.0.2:8080", 4)];
        assert_eq!(table.load(range(9, &all).as_bytes()), Ok(false));
        assert_eq!(addresses(&table), ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!(table.listing().instances[0].id, "7587");
        assert!(table.watch().body.contains(r#""start_revision":"10""#));
        // Added and deleted in one line.
        let change = line(11, &[put("greeter.rpc/9", "10.0.0.3:1", 10), delete("greeter.rpc/7587", 11)]);
        assert_eq!(table.apply(change.as_bytes()), Applied::Changed);
        assert_eq!(addresses(&table), ["10.0.0.2:8080", "10.0.0.3:1"]);
        assert!(table.watch().body.contains(r#""start_revision":"12""#));
        // The same line again changes nothing.
        assert_eq!(table.apply(change.as_bytes()), Applied::Same);
        // A line with a revision ahead of later events must not hide them.
        assert_eq!(table.apply(line(50, &[]).as_bytes()), Applied::Same);
        let late = line(50, &[put("greeter.rpc/10", "10.0.0.4:1", 12)]);
        assert_eq!(table.apply(late.as_bytes()), Applied::Changed);
    }

    #[test]
    fn a_service_of_kratos_is_not_one_whose_name_is_longer() {
        let mut table = Table::new("/microservices/orders/", Format::Kratos, grpc());
        let mut end: serde_json::Value = serde_json::from_str(&table.read().body).unwrap();
        let end = kv::decode(end["range_end"].take().as_str().unwrap()).unwrap();
        assert_eq!(end, b"/microservices/orders0");
        let value = |weight: &str| {
            format!(
                r#"{{"name":"orders","metadata":{{{weight}}},"endpoints":["http://10.0.0.1:8000","grpc://10.0.0.1:9000"]}}"#
            )
        };
        let other = value("").replace("10.0.0.1", "10.0.0.2");
        let all = [
            kv("/microservices/orders/a", &value(r#""weight":"50""#), 1),
            kv("/microservices/orders/b", &other, 2),
            kv("/microservices/orders/c", "{", 2),
        ];
        table.load(range(3, &all).as_bytes()).unwrap();
        let listing = table.listing();
        assert_eq!(seen(&listing), [("10.0.0.1:9000".to_owned(), 50), ("10.0.0.2:9000".to_owned(), 100)]);
        assert_eq!((listing.unusable, &*listing.left_out[0].id), (1, "c"));
    }

    #[test]
    fn a_revision_that_is_gone_is_read_again() {
        let mut table = go_zero();
        table.load(range(9, &[kv("greeter.rpc/1", "h:1", 3)]).as_bytes()).unwrap();
        let compacted = br#"{"result":{"canceled":true,"compact_revision":"12"}}"#;
        assert_eq!(table.apply(compacted), Applied::Reread("revisions up to 12 were compacted".to_owned()));
        assert_eq!(addresses(&table), ["h:1"]);
        assert_eq!(table.load(range(12, &[]).as_bytes()), Ok(false));
        assert!(addresses(&table).is_empty());
        // Reading the same revision again means no lost data.
        assert_eq!(table.load(range(12, &[]).as_bytes()), Ok(false));
        // After losing its disk, etcd starts over.
        assert_eq!(table.load(range(1, &[]).as_bytes()), Ok(true));
    }

    #[test]
    fn what_is_no_answer_changes_nothing() {
        let mut table = go_zero();
        table.load(range(9, &[kv("greeter.rpc/1", "h:1", 3)]).as_bytes()).unwrap();
        for body in ["", "[]", "<html>", r#"{"error":"no leader"}"#] {
            assert!(table.load(body.as_bytes()).is_err(), "{body}");
            assert!(matches!(table.apply(body.as_bytes()), Applied::Reread(_)), "{body}");
        }
        assert_eq!(addresses(&table), ["h:1"]);
        let json = kv("greeter.rpc/2", r#"{"id":"1"}"#, 10);
        table.load(range(10, &[json]).as_bytes()).unwrap();
        assert!(table.listing().left_out[0].why.contains("format: kratos"));
    }

    #[test]
    fn more_than_fit() {
        let mut table = go_zero();
        let at = |n: usize| (format!("greeter.rpc/{n:05}"), format!("h{n}:1"));
        let all: Vec<_> = (0..=INSTANCES).map(|n| kv(&at(n).0, &at(n).1, 1)).collect();
        table.load(range(2, &all).as_bytes()).unwrap();
        assert_eq!((table.listing().instances.len(), table.listing().unusable), (INSTANCES, 1));
        let gone = line(3, &[delete(&at(0).0, 3)]);
        assert!(matches!(table.apply(gone.as_bytes()), Applied::Reread(_)));
        let mut table = go_zero();
        table.load(range(2, &all[..INSTANCES]).as_bytes()).unwrap();
        let one_more = line(3, &[put("greeter.rpc/x", "hx:1", 3)]);
        assert_eq!(table.listing().unusable, 0, "all of them are there");
        assert_eq!(table.apply(one_more.as_bytes()), Applied::Changed);
        assert_eq!((table.listing().instances.len(), table.listing().unusable), (INSTANCES, 1));
        // A known entry may change even when the table is full.
        let known = line(4, &[put(&at(0).0, "elsewhere:1", 4)]);
        assert_eq!(table.apply(known.as_bytes()), Applied::Changed);
        assert!(addresses(&table).contains(&"elsewhere:1".to_owned()));
        let gone = line(5, &[delete(&at(1).0, 5)]);
        assert!(
            matches!(table.apply(gone.as_bytes()), Applied::Reread(_)),
            "there is room for the other one"
        );
    }

    #[test]
    fn one_more_than_fits_is_asked_for_to_know_that_there_are_more() {
        assert!(go_zero().read().body.contains(r#""limit":"1001""#), "{}", go_zero().read().body);
        let mut table = go_zero();
        let some = range(2, &[kv("greeter.rpc/1", "h:1", 1)]).replace(r#""kvs""#, r#""more":true,"kvs""#);
        table.load(some.as_bytes()).unwrap();
        assert_eq!(table.listing().unusable, 1);
    }

    #[test]
    fn a_key_has_a_length() {
        let mut table = go_zero();
        let key = |length: usize| format!("{:x<length$}", "greeter.rpc/");
        let all = [kv(&key(KEY_BYTES), "h1:1", 1), kv(&format!("{}y", key(KEY_BYTES)), "h2:1", 1)];
        table.load(range(2, &all[..1]).as_bytes()).unwrap();
        assert_eq!(addresses(&table), ["h1:1"]);
        table.load(range(2, &all[1..]).as_bytes()).unwrap();
        assert_eq!(table.listing().left_out[0].why, "its key is longer than 1024 bytes");
    }
}
