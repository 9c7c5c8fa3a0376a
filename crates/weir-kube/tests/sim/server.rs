//! The API server of the simulation: objects, versions, history.

use crate::KINDS;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_fleet::chance::Chance;
use weir_kube::Name;
use weir_kube::api::{ApiError, Object, Page, Told, watched};
use weir_kube::watch::election::Seen;
use weir_kube::watch::store::Store;
use weir_kube::watch::writer::Target;

/// Names that users give to objects.
const NAMES: u64 = 30;

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) version: u64,
    compacted: u64,
    objects: BTreeMap<(usize, Name), Value>,
    history: Vec<(u64, usize, Told)>,
    pages: BTreeMap<String, (u64, Vec<Object>)>,
    uids: u64,
    pub(crate) lease: Option<Seen>,
}

impl Server {
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// What the replicas' stores should hold.
    pub(crate) fn store(&self) -> Store {
        let mut store = Store::default();
        for ((kind, _), value) in &self.objects {
            store.put(KINDS[*kind], object(*kind, value));
        }
        store
    }

    pub(crate) fn statuses(&self) -> Vec<(Target, Value)> {
        let routes = self.objects.iter().filter(|((kind, _), _)| *kind == 0);
        let status = |((_, key), value): (&(usize, Name), &Value)| {
            (Target { kind: KINDS[0], key: key.clone() }, value["status"].clone())
        };
        routes.map(status).collect()
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
        self.pages.clear();
    }

    /// A user creates, changes or deletes an object.
    pub(crate) fn random_change(&mut self, chance: &mut Chance) {
        let kind = usize::try_from(chance.below(2)).unwrap();
        let key = Name::new("n", &format!("o{}", chance.below(NAMES)));
        if chance.happens(30) && self.objects.contains_key(&(kind, key.clone())) {
            return self.delete(kind, &key);
        }
        let spec = json!({ "service": format!("o{}", chance.below(NAMES)), "nonce": chance.below(3) });
        let mut value = self.objects.get(&(kind, key.clone())).cloned().unwrap_or_else(|| {
            self.uids += 1;
            json!({ "metadata": { "namespace": "n", "name": &*key.name, "uid": self.uids.to_string() } })
        });
        if value["spec"] != spec {
            value["spec"] = spec;
            self.put(kind, &key, value);
        }
    }

    /// Another controller overwrites a status.
    pub(crate) fn spoil_a_status(&mut self, chance: &mut Chance) {
        let key = Name::new("n", &format!("o{}", chance.below(NAMES)));
        if let Some(mut value) = self.objects.get(&(0, key.clone())).cloned() {
            value["status"] = json!({ "parents": [] });
            self.put(0, &key, value);
        }
    }

    fn put(&mut self, kind: usize, key: &Name, mut value: Value) {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push((self.version, kind, Told::Put(object(kind, &value))));
        self.objects.insert((kind, key.clone()), value);
    }

    fn delete(&mut self, kind: usize, key: &Name) {
        let mut value = self.objects.remove(&(kind, key.clone())).unwrap();
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push((self.version, kind, Told::Deleted(object(kind, &value))));
    }

    pub(crate) fn list(&mut self, kind: usize, limit: u32, token: Option<&str>) -> Result<Page, ApiError> {
        let (version, mut rest) = match token {
            Some(token) => self.pages.get(token).cloned().ok_or(ApiError::Expired)?,
            None => {
                let all = self.objects.iter().filter(|((known, _), _)| *known == kind);
                (self.version, all.map(|(_, value)| object(kind, value)).collect())
            }
        };
        // Small pages, so that lists have several.
        let later = rest.split_off(rest.len().min(limit as usize).min(7));
        let next = (!later.is_empty()).then(|| format!("{version}-{kind}-{}", later.len()));
        if let Some(next) = &next {
            self.pages.insert(next.clone(), (version, later));
        }
        Ok(Page { version: version.to_string(), next, items: rest })
    }

    /// What happened after a version; `None` if that is no longer known.
    pub(crate) fn news(&self, kind: usize, at: u64) -> Option<Vec<Told>> {
        if at < self.compacted {
            return None;
        }
        let first = self.history.partition_point(|(version, ..)| *version <= at);
        let new = self.history.iter().skip(first).filter(|(_, known, _)| *known == kind);
        Some(new.map(|(_, _, told)| told.clone()).collect())
    }

    pub(crate) fn get(&self, target: &Target) -> Result<Object, ApiError> {
        let value = self.objects.get(&(0, target.key.clone())).ok_or(ApiError::NotFound)?;
        Ok(object(0, value))
    }

    pub(crate) fn write_status(
        &mut self,
        target: &Target,
        version: &str,
        patch: &Value,
    ) -> Result<Object, ApiError> {
        let mut value = self.objects.get(&(0, target.key.clone())).cloned().ok_or(ApiError::NotFound)?;
        if value["metadata"]["resourceVersion"] != version {
            return Err(ApiError::Conflict);
        }
        let before = value["status"].clone();
        for (name, part) in patch.as_object().unwrap() {
            value["status"][name] = part.clone(); // the statuses here are one list, which a patch replaces
        }
        assert_ne!(value["status"], before, "a write that changes nothing");
        self.put(0, &target.key, value);
        self.get(target)
    }

    pub(crate) fn write_lease(
        &mut self,
        version: Option<&str>,
        holder: &str,
        transitions: u64,
    ) -> Result<Seen, ApiError> {
        match (&self.lease, version) {
            (Some(_), None) => return Err(ApiError::Exists),
            (Some(lease), Some(version)) if lease.version != version => return Err(ApiError::Conflict),
            (None, Some(_)) => return Err(ApiError::NotFound),
            _ => {}
        }
        self.version += 1;
        let version = self.version.to_string();
        let (holder, duration) = (holder.to_owned(), Duration::from_secs(15));
        self.lease = Some(Seen { version, holder, duration, transitions });
        Ok(self.lease.clone().unwrap())
    }
}

fn object(kind: usize, value: &Value) -> Object {
    Object::new(watched(KINDS[kind]).unwrap(), value.clone()).unwrap()
}
