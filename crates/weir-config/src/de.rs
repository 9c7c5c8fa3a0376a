//! Reads typed settings from the tree and reports all mistakes in one go.
//!
//! serde stops at the first error. [`read`] therefore records the mistake, marks its node as absent and reads again,
//! until nothing fails. Unknown keys are recorded on the way. The same function reads sections of the config and
//! settings of filters, including those of embedding programs, into plain `#[derive(Deserialize)]` types.
//! `#[serde(untagged)]` and `#[serde(flatten)]` would lose positions; [`TextOrMap`] and [`Raw`] replace them.

mod access;
mod cx;
mod error;
mod reader;

use std::cell::RefCell;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};

use super::diagnostic::Diagnostics;
use super::node::Node;
use cx::Cx;
pub use error::Error;
use reader::NodeReader;

/// Number of mistakes after which one `read` stops. Nobody fixes more in one go, and each costs a pass over the tree.
const MAX_MISTAKES: usize = 200;

/// Reads a `T` from `node` at `path` of the config.
///
/// The result may be a value despite mistakes. It then lacks the wrong parts and only serves to find further
/// mistakes, so check `diagnostics.errors()` before running it.
pub fn read<T: DeserializeOwned>(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<T> {
    let cx = Cx::new(path);
    let mut result = None;
    for _ in 0..MAX_MISTAKES {
        match T::deserialize(NodeReader::new(node, &cx)) {
            Ok(value) => {
                result = Some(value);
                break;
            }
            Err(error) => {
                if !cx.note(error, node) {
                    break;
                }
            }
        }
    }
    for diagnostic in cx.into_found() {
        diagnostics.push(diagnostic);
    }
    result
}

/// The error for an unexpected value; `expected` continues "`3x` is not …". `expected` is a literal, so the examples
/// in it are not concealed as parts of the value.
pub fn refuse<E: serde::de::Error>(expected: &'static str, hint: Option<&str>) -> E {
    match hint {
        Some(hint) => E::custom(format_args!("{FIXED}is not {expected}{HINT}{hint}")),
        None => E::custom(format_args!("{FIXED}is not {expected}")),
    }
}

/// The prefix of an error that only says what was expected. A quoted text of a config never begins with it.
const FIXED: char = '\u{2}';

/// Separates message and hint within an error.
const HINT: &str = "; hint: ";

/// Reads any scalar as its written text: `1.20` stays `1.20`.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D, expected: &'static str) -> Result<String, D::Error> {
    struct TextVisitor(&'static str);

    impl Visitor<'_> for TextVisitor {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    deserializer.deserialize_string(TextVisitor(expected))
}

/// Reads a map as its entries, in the order written.
pub fn entries<'de, D: Deserializer<'de>, K: Deserialize<'de>, V: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Vec<(K, V)>, D::Error> {
    struct EntriesVisitor<K, V>(&'static str, PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<K, V> {
        type Value = Vec<(K, V)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_map(EntriesVisitor(expected, PhantomData))
}

/// Reads a scalar with its node, which relative paths need. JSON readers supply a text but no node.
pub fn text_and_node<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<(String, Option<Node>), D::Error> {
    struct NodeVisitor(&'static str);

    impl<'de> Visitor<'de> for NodeVisitor {
        type Value = (String, Option<Node>);

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            let raw = HANDOVER.with_borrow_mut(Option::take);
            let node = raw.map(|raw| raw.node).ok_or_else(|| refuse(self.0, None))?;
            let text = node.as_text().map(str::to_owned).ok_or_else(|| refuse(self.0, None))?;
            Ok((text, Some(node)))
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(
            self,
            deserializer: D,
        ) -> Result<Self::Value, D::Error> {
            Ok((String::deserialize(deserializer)?, None))
        }
    }

    deserializer.deserialize_newtype_struct(RAW, NodeVisitor(expected))
}

/// Reads a number that `fits`; any other value "is not `expected`".
pub fn whole_number<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
    fits: fn(&u16) -> bool,
) -> Result<u16, D::Error> {
    struct NumberVisitor(&'static str, fn(&u16) -> bool);

    impl Visitor<'_> for NumberVisitor {
        type Value = u16;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u16, E> {
            let small = u16::try_from(number).ok().filter(self.1);
            small.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u16, E> {
            self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u16, E> {
            let number = text.trim_end_matches('%').parse::<u16>().ok().filter(|number| self.1(number));
            let hint = number.map(|number| match number.to_string() == text {
                true => format!("write {text} without quotes"),
                false => format!("write {number}"),
            });
            Err(refuse(self.0, hint.as_deref()))
        }
    }

    deserializer.deserialize_any(NumberVisitor(expected, fits))
}

/// An unread node of the tree with its path, for settings that are read later or by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    /// The node.
    pub node: Node,
    /// Its path.
    pub path: String,
}

/// A value written either as a scalar or as a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrMap<T, M> {
    /// A map.
    Map(M),
    /// Any other value.
    Text(T),
}

/// Names by which our reader recognises [`Raw`] and [`TextOrMap`]; no struct can have such a name.
const RAW: &str = "(weir raw)";
const TEXT_OR_MAP: &str = "(weir text or map)";

thread_local! {
    /// Carries a node past serde's data model, from our reader to `Raw`, within one call.
    static HANDOVER: RefCell<Option<Raw>> = const { RefCell::new(None) };
}

impl<'de> Deserialize<'de> for Raw {
    /// Works with [`read`] only, because other readers have no nodes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawVisitor;

        impl Visitor<'_> for RawVisitor {
            type Value = Raw;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value of a config")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Raw, E> {
                let raw = HANDOVER.with_borrow_mut(Option::take);
                raw.ok_or_else(|| E::custom("only a config can be read into this"))
            }
        }

        deserializer.deserialize_newtype_struct(RAW, RawVisitor)
    }
}

impl<'de, T: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for TextOrMap<T, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EitherVisitor<T, M>(PhantomData<(T, M)>);

        impl<'de, T: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for EitherVisitor<T, M> {
            type Value = TextOrMap<T, M>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value of a config")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Self::Value, D::Error> {
                M::deserialize(deserializer).map(TextOrMap::Map)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                T::deserialize(deserializer).map(TextOrMap::Text)
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
                Err(E::custom("only a config can be read into this"))
            }
        }

        deserializer.deserialize_newtype_struct(TEXT_OR_MAP, EitherVisitor(PhantomData))
    }
}

fn hand_over(raw: Raw) {
    HANDOVER.with_borrow_mut(|slot| *slot = Some(raw));
}

/// A type that the reader does not support is its author's mistake, not the operator's.
fn unsupported<T>(what: &str) -> Result<T, Error> {
    Err(Error::custom(format_args!("settings cannot hold {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::units::Duration;
    use std::path::Path;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        name: String,
        #[serde(default)]
        wait: Duration,
        #[serde(default)]
        count: u8,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(Debug, Default, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        on: bool,
        mode: Mode,
    }

    #[derive(Debug, Default, serde::Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Optional,
        Required,
    }

    fn problems(text: &str) -> Vec<String> {
        let mut diagnostics = Diagnostics::default();
        let tree = parse(text, Path::new("t"), &mut diagnostics).unwrap();
        let _ = read::<Settings>(&tree, "it", &mut diagnostics);
        let say = |d: &&crate::Diagnostic| {
            let place = d.place.as_ref().map_or((0, 0), |p| (p.line, p.column));
            let hint = d.hint.as_ref().map(|h| format!(" ({h})")).unwrap_or_default();
            format!("{}:{} {}: {}{hint}", place.0, place.1, d.path, d.message)
        };
        diagnostics.sorted().iter().map(say).collect()
    }

    #[test]
    fn good_settings_are_read() {
        let mut diagnostics = Diagnostics::default();
        let text = "name: 5\nwait: 3s\ninner: { on: true, mode: required }\nlist: [ {}, { on: true } ]\n";
        let tree = parse(text, Path::new("t"), &mut diagnostics).unwrap();
        let settings: Settings = read(&tree, "", &mut diagnostics).unwrap();
        assert!(diagnostics.is_empty(), "{}", diagnostics.to_text());
        assert_eq!(settings.name, "5");
        assert_eq!(settings.inner, Some(Inner { on: true, mode: Mode::Required }));
        assert_eq!(settings.list.len(), 2);
    }

    #[test]
    fn one_mistake_hides_no_other() {
        let text = "wait: 3 seconds\ncount: 300\ninner:\n  on: yes\n  mode: requird\nlist:\n  - { onn: true }\n  - 7\nnamee: x\n";
        assert_eq!(
            problems(text),
            [
                "1:7 it.wait: `3 seconds` is not a duration; expected e.g. 250ms, 3s, 5m, 1h (write 3s)",
                "2:8 it.count: `300` is not a whole number from 0 to 255",
                "4:7 it.inner.on: `yes` is not a boolean; expected true or false (write true)",
                "5:9 it.inner.mode: `requird` is not valid here; expected optional or required (did you mean required?)",
                "7:7 it.list[0].onn: unknown key `onn`; expected on or mode (did you mean on?)",
                "8:5 it.list[1]: `7` is not a map",
                "9:1 it.namee: unknown key `namee`; expected name, wait, count, inner or list (did you mean name?)",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_not_missing_too() {
        assert_eq!(problems("name: [a]\n"), ["1:7 it.name: a list is not a string"]);
        assert_eq!(problems("count: 1\n"), ["1:1 it.name: `name` is missing"]);
        assert_eq!(problems("name: null\n"), ["1:1 it.name: `name` is missing"]);
    }
}
