//! Our copy of the API server's objects, and what changed in it.

use crate::api::{Object, WATCHED, watched};
use crate::objects::Name;
use serde_json::Value;
use std::collections::BTreeMap;

/// The key of the last usable Secrets in a saved text. No kind has this name.
const LAST_GOOD: &str = "lastGood";

/// The kind of their objects.
const SECRET: &str = "Secret";

/// The objects of all watched resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// One map for each of [`WATCHED`], in its order.
    kinds: Vec<BTreeMap<Name, Object>>,
}

/// A difference between two states of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the object.
    pub kind: &'static str,
    /// Its namespace and name.
    pub key: Name,
    /// The object as it is now; `None` if it is gone.
    pub object: Option<Object>,
}

impl Default for Store {
    fn default() -> Self {
        Self { kinds: WATCHED.iter().map(|_| BTreeMap::new()).collect() }
    }
}

impl Store {
    /// Puts an object in. `None` if this version is there already.
    pub fn put(&mut self, kind: &str, object: Object) -> Option<Change> {
        let (known, kind) = self.of_mut(kind)?;
        if known.get(&object.key).is_some_and(|before| is_same(before, &object)) {
            return None;
        }
        known.insert(object.key.clone(), object.clone());
        Some(Change { kind, key: object.key.clone(), object: Some(object) })
    }

    /// Removes an object. `None` if it is not there.
    pub fn delete(&mut self, kind: &str, key: &Name) -> Option<Change> {
        let (known, kind) = self.of_mut(kind)?;
        known.remove(key)?;
        Some(Change { kind, key: key.clone(), object: None })
    }

    /// Makes these the objects of a kind. Returns the differences only, so that a list after a broken watch costs
    /// nothing where nothing has changed.
    pub fn replace(&mut self, kind: &str, objects: Vec<Object>) -> Vec<Change> {
        let Some((known, kind)) = self.of_mut(kind) else { return Vec::new() };
        let fresh: BTreeMap<Name, Object> = objects.into_iter().map(|o| (o.key.clone(), o)).collect();
        let gone = known.keys().filter(|key| !fresh.contains_key(key));
        let mut changes: Vec<Change> =
            gone.map(|key| Change { kind, key: key.clone(), object: None }).collect();
        let is_new = |object: &&Object| !known.get(&object.key).is_some_and(|before| is_same(before, object));
        changes.extend(fresh.values().filter(is_new).map(|object| Change {
            kind,
            key: object.key.clone(),
            object: Some(object.clone()),
        }));
        *known = fresh;
        changes
    }

    /// An object.
    pub fn get(&self, kind: &str, key: &Name) -> Option<&Object> {
        self.of(kind)?.get(key)
    }

    /// All objects with their kinds.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Object)> {
        let kinds = WATCHED.iter().zip(&self.kinds);
        kinds.flat_map(|(resource, objects)| objects.values().map(|object| (resource.kind, object)))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.kinds.iter().map(BTreeMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(BTreeMap::is_empty)
    }

    /// The objects as JSON, for a restart while the server is away: `{"HTTPRoute": [..], ..}`. `last_good` has the last
    /// usable versions of Secrets that are no longer usable.
    ///
    /// It holds secrets.
    pub fn save(&self, last_good: &[Object]) -> String {
        let mut out = String::from("{");
        let kinds = WATCHED.iter().zip(&self.kinds);
        let all = kinds.map(|(resource, objects)| (resource.kind, objects.values().collect::<Vec<_>>()));
        let all = all.chain([(LAST_GOOD, last_good.iter().collect::<Vec<_>>())]);
        for (key, objects) in all {
            if out.len() > 1 {
                out.push(',');
            }
            let texts: Vec<&str> = objects.into_iter().map(|object| &*object.text).collect();
            out.push_str(&format!("\"{key}\":[{}]\n", texts.join(",\n")));
        }
        out.push('}');
        out
    }

    /// Reads what [`Self::save`] wrote. Kinds that this version does not watch are left out, and of the last usable
    /// Secrets those whose Secret is gone.
    ///
    /// # Errors
    /// Why the text is not such a file.
    pub fn restore(text: &str) -> Result<(Self, Vec<Object>), String> {
        let mut written: BTreeMap<String, Vec<Value>> =
            serde_json::from_str(text).map_err(|e| e.to_string())?;
        let read = |kind: &str, objects: Vec<Value>| {
            let Some(resource) = watched(kind) else { return Ok(Vec::new()) };
            let read = objects.into_iter().map(|object| Object::new(resource, object));
            read.collect::<Result<Vec<_>, _>>().map_err(|e| format!("an object of {kind}: {e}"))
        };
        let mut last_good = read(SECRET, written.remove(LAST_GOOD).unwrap_or_default())?;
        let mut store = Self::default();
        for (kind, objects) in written {
            store.replace(&kind, read(&kind, objects)?);
        }
        last_good.retain(|good| store.get(SECRET, &good.key).is_some_and(|now| now.uid == good.uid));
        Ok((store, last_good))
    }

    fn of(&self, kind: &str) -> Option<&BTreeMap<Name, Object>> {
        self.kinds.get(index(kind)?)
    }

    fn of_mut(&mut self, kind: &str) -> Option<(&mut BTreeMap<Name, Object>, &'static str)> {
        let index = index(kind)?;
        Some((self.kinds.get_mut(index)?, WATCHED.get(index)?.kind))
    }
}

fn index(kind: &str) -> Option<usize> {
    WATCHED.iter().position(|resource| resource.kind == kind)
}

/// Whether two objects of one name are the same at the same version.
fn is_same(a: &Object, b: &Object) -> bool {
    a.uid == b.uid && a.version == b.version
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, version: &str) -> Object {
        object_of("Service", name, version)
    }

    fn object_of(kind: &str, name: &str, version: &str) -> Object {
        let metadata = json!({ "namespace": "n", "name": name, "uid": name, "resourceVersion": version });
        Object::new(watched(kind).unwrap(), json!({ "metadata": metadata, "spec": { "quote": "a\"b" } }))
            .unwrap()
    }

    fn names(changes: &[Change]) -> Vec<(String, bool)> {
        changes.iter().map(|change| (change.key.to_string(), change.object.is_some())).collect()
    }

    #[test]
    fn only_differences_are_changes() {
        let mut store = Store::default();
        let first = store.replace("Service", vec![object("a", "1"), object("b", "2")]);
        assert_eq!(names(&first), [("n/a".to_owned(), true), ("n/b".to_owned(), true)]);
        assert_eq!(store.replace("Service", vec![object("a", "1"), object("b", "2")]), []);
        assert_eq!(store.put("Service", object("a", "1")), None, "a duplicate of the watch");
        let next = store.replace("Service", vec![object("a", "3"), object("c", "4")]);
        assert_eq!(
            names(&next),
            [("n/b".to_owned(), false), ("n/a".to_owned(), true), ("n/c".to_owned(), true)]
        );
        assert!(store.delete("Service", &Name::new("n", "c")).is_some());
        assert_eq!(store.delete("Service", &Name::new("n", "c")), None);
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn what_is_saved_is_restored() {
        let mut store = Store::default();
        store.put("Service", object("a", "1"));
        store.put("Secret", object_of("Secret", "b", "2"));
        assert_eq!(Store::restore(&store.save(&[])), Ok((store.clone(), vec![])));
        let good = object_of("Secret", "b", "1");
        let gone = object_of("Secret", "c", "1");
        let saved = store.save(&[good.clone(), gone]);
        assert_eq!(Store::restore(&saved), Ok((store, vec![good])));
        assert_eq!(
            Store::restore(r#"{"Unknown":[{"metadata":{"name":"a","resourceVersion":"1"}}]}"#),
            Ok((Store::default(), vec![]))
        );
        for wrong in ["", "[]", r#"{"Service":{}}"#, r#"{"Service":[{}]}"#, r#"{"lastGood":[{}]}"#] {
            assert!(Store::restore(wrong).is_err(), "{wrong}");
        }
    }
}
