//! Access to maps, lists and variants, element by element, skipping absent ones.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::cx::{Cx, Segment};
use super::error::Error;
use super::reader::NodeReader;
use super::unsupported;
use crate::node::{Key, Node};

pub(super) struct MapReader<'n> {
    pub(super) parent: &'n Node,
    pub(super) entries: std::slice::Iter<'n, (Key, Node)>,
    pub(super) fields: Option<&'static [&'static str]>,
    pub(super) value: Option<&'n Node>,
    pub(super) cx: &'n Cx,
}

impl<'n> MapAccess<'n> for MapReader<'n> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        loop {
            let Some((key, node)) = self.entries.next() else { return Ok(None) };
            if let Some(fields) = self.fields {
                let Some(field) = fields.iter().find(|field| **field == &*key.text) else {
                    self.cx.note_unknown(self.parent, key, node, fields);
                    continue;
                };
                if self.cx.is_absent(node) {
                    self.cx.meant.borrow_mut().insert((self.parent, field));
                }
            }
            if self.cx.is_absent(node) || !node.is_set() {
                continue;
            }
            self.value = Some(node);
            self.cx.enter(Segment::Key(key.text.clone()));
            let text: StrDeserializer<'n, Error> = (*key.text).into_deserializer();
            return match seed.deserialize(text) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(error.within_key(key, node, self.cx)),
            };
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(node) = self.value.take() else { return unsupported("a value without a key") };
        let value = seed.deserialize(NodeReader::new(node, self.cx)).map_err(|e| e.within(node, self.cx))?;
        self.cx.leave();
        Ok(value)
    }
}

pub(super) struct SeqReader<'n> {
    pub(super) elements: std::iter::Enumerate<std::slice::Iter<'n, Node>>,
    pub(super) cx: &'n Cx,
}

impl<'n> SeqAccess<'n> for SeqReader<'n> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        for (index, node) in self.elements.by_ref() {
            if self.cx.is_absent(node) {
                continue;
            }
            self.cx.enter(Segment::Index(index));
            let value =
                seed.deserialize(NodeReader::new(node, self.cx)).map_err(|e| e.within(node, self.cx))?;
            self.cx.leave();
            return Ok(Some(value));
        }
        Ok(None)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.elements.len())
    }
}

pub(super) struct VariantReader<'n> {
    pub(super) key: &'n str,
    pub(super) inner: Option<&'n Node>,
    pub(super) cx: &'n Cx,
}

impl<'n> EnumAccess<'n> for VariantReader<'n> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let key: StrDeserializer<'n, Error> = self.key.into_deserializer();
        Ok((seed.deserialize(key)?, self))
    }
}

impl<'n> VariantReader<'n> {
    fn inner(&self) -> Result<NodeReader<'n>, Error> {
        let Some(node) = self.inner else {
            return Err(Error::new("bad-type", format!("is not complete; expected {{ {}: … }}", self.key)));
        };
        self.cx.enter(Segment::Key(self.key.into()));
        Ok(NodeReader::new(node, self.cx))
    }

    fn left<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let value = result?;
        self.cx.leave();
        Ok(value)
    }
}

impl<'n> VariantAccess<'n> for VariantReader<'n> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.inner {
            None => Ok(()),
            Some(_) => Err(Error::new("bad-type", format!("is not a word; expected {}", self.key))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Result<S::Value, Error> {
        let reader = self.inner()?;
        let (node, cx) = (reader.node, self.cx);
        self.left(seed.deserialize(reader).map_err(|e| e.within(node, cx)))
    }

    fn tuple_variant<V: Visitor<'n>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let reader = self.inner()?;
        self.left(reader.deserialize_tuple(len, visitor))
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let reader = self.inner()?;
        self.left(reader.map(Some(fields), visitor))
    }
}
