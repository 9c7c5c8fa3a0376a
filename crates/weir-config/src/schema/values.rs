//! Values that several sections share: names, paths, networks, outputs, and filters as written.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::de::{self, text_and_node};
use crate::diagnostic::Diagnostics;
use crate::node::{Node, Value};
use crate::path_scope;

/// Named entries in the order written. Order decides nothing; it is kept so that lists read as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T> {
    all: Vec<(Arc<str>, T)>,
    /// The positions, sorted by name; empty if there are fewer than [`SORTED`].
    sorted: Box<[u32]>,
}

/// From this number of entries on, lookups use an index. Checks look up the upstream of each route, and there may be
/// thousands of both.
const SORTED: usize = 32;

/// An entry with the node that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a, T> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// The entry.
    pub thing: &'a T,
    /// Its node in the tree.
    pub node: Option<&'a Node>,
}

/// The name of a listener, upstream, consumer, plan or route: letters, digits, `_`, `.` and `-`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(Arc<str>);

/// A name and a value for each of several fields, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Box<[(String, String)]>);

/// A path in the file system: relative to the file of the config that names it, absolute once read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePath(pub PathBuf);

/// A text that may name a file: as written, and as a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextOrPath {
    /// As written.
    pub text: String,
    /// Relative to the file of the config that names it.
    pub path: FilePath,
}

/// An expression as written; weir-expr compiles it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Expression(pub Box<str>);

/// A network such as `10.0.0.0/8`; a bare address is a network of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(pub ipnet::IpNet);

/// A filter as written: its name, and its settings not yet read. The registry of filters reads them with `de::read`.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterNode {
    /// The name of the filter, such as `key_auth`. Diagnostics show [`shown`](Self::shown) instead.
    pub name: String,
    /// The name as written, with `${VAR}` in place of parts from outside.
    pub shown: String,
    /// Its settings; an empty map if none are written.
    pub node: Node,
    /// Its path, such as `routes.orders.filters[0].key_auth`.
    pub path: String,
    /// The filters in the lists of a `when`, in order.
    pub inner: Box<[Self]>,
}

/// The destination of lines: `stdout`, `stderr`, `"off"` or a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// A file, appended to and reopened on SIGUSR1.
    File(PathBuf),
    /// Nowhere.
    Off,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

// === impl Named ===

impl<T> Named<T> {
    /// The names must be unique.
    fn new(all: Vec<(Arc<str>, T)>) -> Self {
        let count = u32::try_from(all.len()).ok().filter(|_| all.len() >= SORTED);
        let mut sorted: Box<[u32]> = (0..count.unwrap_or_default()).collect();
        let name = |at: &u32| all.get(*at as usize).map(|(name, _)| &**name);
        sorted.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
        Self { all, sorted }
    }

    /// The entry with this name, in logarithmic time.
    pub fn get(&self, name: &str) -> Option<&T> {
        if self.sorted.is_empty() {
            return self.all.iter().find(|(known, _)| **known == *name).map(|(_, thing)| thing);
        }
        let at = |at: &u32| self.all.get(*at as usize);
        let found = self.sorted.binary_search_by(|one| at(one).map(|(known, _)| &**known).cmp(&Some(name)));
        at(self.sorted.get(found.ok()?)?).map(|(_, thing)| thing)
    }

    /// Whether an entry has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and entries, in the order written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.all.iter().map(|(name, thing)| (&**name, thing))
    }

    /// Names and entries to change, in the order written.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.all.iter_mut().map(|(name, thing)| (&**name, thing))
    }

    /// Each entry with its node. `section` is the section as written, including refused entries.
    pub fn written<'a>(&'a self, section: Option<&'a Node>) -> impl ExactSizeIterator<Item = Written<'a, T>> {
        // Both are in the order written, so no lookup by name is needed.
        let mut entries = section.map_or(&[][..], Node::entries).iter();
        self.all.iter().map(move |(name, thing)| {
            let entry = entries.find(|(key, _)| *key.text == **name);
            Written { name, thing, node: entry.map(|(_, node)| node) }
        })
    }

    /// The names, in the order written.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.all.iter().map(|(name, _)| &**name)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(iter: I) -> Self {
        Self::new(iter.into_iter().map(|(name, thing)| (name.into(), thing)).collect())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                // The nodes are in memory already, so the size is not a peer's claim.
                let mut named = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some(name) = map.next_key::<Name>()? {
                    named.push((name.0, map.next_value()?));
                }
                Ok(Named::new(named))
            }
        }

        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let thing = generator.subschema_for::<T>();
        schemars::json_schema!({
            "type": "object",
            "propertyNames": { "pattern": Name::PATTERN },
            "additionalProperties": thing,
        })
    }
}

impl Name {
    const PATTERN: &'static str = "^[A-Za-z0-9_.-]{1,64}$";
    const EXPECTED: &'static str =
        "a name; expected at most 64 letters, digits, `_`, `.` and `-`, such as orders_v2";
    const MAX_LENGTH: usize = 64;
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = de::text(deserializer, Self::EXPECTED)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if text.is_empty() || text.len() > Self::MAX_LENGTH || !text.chars().all(fits) {
            return Err(de::refuse(Self::EXPECTED, None));
        }
        Ok(Self(text.into()))
    }
}

// === impl Pairs ===

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = de::entries(deserializer, "a map of names to values, such as { x-env: blue }")?;
        Ok(Self(pairs.into()))
    }
}

impl JsonSchema for Pairs {
    fn schema_name() -> Cow<'static, str> {
        "Pairs".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        })
    }
}

// === text forms ===

/// Joins `path` to the folder of the file that names it.
pub(super) fn beside(node: Option<&Node>, path: &str) -> PathBuf {
    let folder = node.and_then(|node| node.at.file.parent());
    folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// The path that a value names, unless the value came from the API and may not name it.
pub(super) fn within_scope<E: serde::de::Error>(node: Option<&Node>, path: &str) -> Result<PathBuf, E> {
    let path = beside(node, path);
    if path_scope::allows(node, &path) { Ok(path) } else { Err(de::refuse(path_scope::EXPECTED, None)) }
}

macro_rules! text_schema {
    ($type:ident, $description:literal, $examples:expr) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schemars::json_schema!({ "type": "string", "description": $description, "examples": $examples })
            }
        }
    };
}
pub(super) use text_schema;

text_schema!(FilePath, "A path, relative to the file that names it.", ["certs/api.pem", "/etc/weir/api.pem"]);
text_schema!(TextOrPath, "A text, or the path of a file.", ["keys.json"]);
text_schema!(
    Expression,
    "An expression in the grammar of CEL.",
    ["request.cookies.beta == \"1\" && !(client.ip in [\"10.0.0.0/8\"])"]
);
text_schema!(Network, "A network or one address.", ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
text_schema!(Output, "Where to write.", ["stdout", "stderr", "off", "/var/log/weir/access.log"]);

impl FilePath {
    /// The path that a node names.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let text = node.as_text().filter(|text| !text.is_empty() && !node.is_switch())?;
        Some(Self(beside(Some(node), text)))
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a path; expected e.g. certs/api.pem";
        let (text, node) = text_and_node(deserializer, EXPECTED)?;
        if text.is_empty() {
            return Err(de::refuse(EXPECTED, None));
        }
        if node.as_ref().is_some_and(Node::is_switch) {
            return Err(de::refuse(EXPECTED, Some(&format!("for a file of this name write ./{text}"))));
        }
        within_scope(node.as_ref(), &text).map(Self)
    }
}

impl<'de> Deserialize<'de> for TextOrPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, node) = text_and_node(deserializer, "a text")?;
        // Texts that are visibly no path: a URL, JSON, PEM.
        let no_path =
            ["http://", "https://", "{", "-"].iter().any(|begin| text.trim_start().starts_with(begin));
        let path = if no_path { beside(node.as_ref(), &text) } else { within_scope(node.as_ref(), &text)? };
        Ok(Self { text, path: FilePath(path) })
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "an expression; write it in quotes, such as 'request.method == \"GET\"'";
        de::text(deserializer, EXPECTED).map(|text| Self(text.into()))
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a network; expected e.g. 10.0.0.0/8, 192.0.2.7, 2001:db8::/32";
        let text = de::text(deserializer, EXPECTED)?;
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.into()));
        }
        let network: ipnet::IpNet = text.parse().map_err(|_| de::refuse(EXPECTED, None))?;
        if network.addr() != network.network() {
            // In `10.1.2.3/8` either the address or the length is a typo, and we cannot know which.
            let hint = format!("write {} or {}", network.trunc(), network.addr());
            return Err(de::refuse("a network: bits are set after its length", Some(&hint)));
        }
        Ok(Self(network))
    }
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "an output; expected stdout, stderr, off or a file path";
        let (text, node) = text_and_node(deserializer, EXPECTED)?;
        match text.as_str() {
            "" => Err(de::refuse(EXPECTED, None)),
            "off" => Ok(Self::Off),
            "stderr" => Ok(Self::Stderr),
            "stdout" => Ok(Self::Stdout),
            "false" => Err(de::refuse(EXPECTED, Some("write off"))),
            // A bare word is more likely a mistyped stdout than a file without folder and suffix.
            word if !word.contains(['/', '.', '\\']) => {
                Err(de::refuse(EXPECTED, Some(&format!("for a file write ./{word}"))))
            }
            path => Ok(Self::File(beside(node.as_ref(), path))),
        }
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.display())
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for TextOrPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => serializer.collect_str(&path.display()),
            Self::Off => serializer.serialize_str("off"),
            Self::Stderr => serializer.serialize_str("stderr"),
            Self::Stdout => serializer.serialize_str("stdout"),
        }
    }
}

// === impl FilterNode ===

impl FilterNode {
    /// The filters that this one chooses from. Mistakes in the lists are reported where the filter is built.
    fn inner(name: &str, settings: &Node, path: &str) -> Box<[Self]> {
        if name != "when" {
            return Box::default();
        }
        let list = |key| -> Option<Vec<Self>> {
            de::read(settings.get(key)?, &format!("{path}.{key}"), &mut Diagnostics::default())
        };
        ["filters", "otherwise"].into_iter().filter_map(list).flatten().collect()
    }

    /// This filter and all that it chooses from, at whatever depth.
    pub fn all(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.inner.iter().flat_map(Self::all)))
    }
}

impl<'de> Deserialize<'de> for FilterNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a filter; expected its name and settings, e.g. `- key_auth: { header: apikey }`";
        let de::Raw { node, path } = de::Raw::deserialize(deserializer)?;
        match &node.value {
            Value::Str(name) if !name.is_empty() => {
                let shown = node.written().unwrap_or_default().to_owned();
                let path = format!("{path}.{shown}");
                let node = Node::empty_map(node.at.clone());
                Ok(Self { name: name.to_string(), shown, node, path, inner: Box::default() })
            }
            Value::Map(entries) => match entries.as_slice() {
                [(key, settings)] => {
                    let path = format!("{path}.{}", key.text);
                    let node = match settings.value {
                        Value::Null => Node::empty_map(settings.at.clone()),
                        _ => settings.clone(),
                    };
                    let inner = Self::inner(&key.text, &node, &path);
                    Ok(Self { name: key.text.to_string(), shown: key.text.to_string(), node, path, inner })
                }
                [] => Err(de::refuse(EXPECTED, None)),
                [(first, _), (second, at), ..] => {
                    // The usual cause: settings not indented below the name of their filter.
                    let hint = format!(
                        "indent `{}` (line {}) below `{}` if it is a setting, or begin a new item with `-`",
                        second.text, at.at.line, first.text
                    );
                    Err(de::refuse(EXPECTED, Some(&hint)))
                }
            },
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for FilterNode {
    fn schema_name() -> Cow<'static, str> {
        "Filter".into()
    }

    /// Any filter; `config::schema` replaces it by the known filters.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "One filter: its name and its settings.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}
