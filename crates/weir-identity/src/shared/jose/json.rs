//! JSON without repeated names: two parsers of an object with a repeated name might see different values (RFC 7515
//! §4, RFC 7519 §4).

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Parses an object; `None` if the bytes are something else, or if a name is repeated at any depth.
pub(crate) fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Unique.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

struct Unique;

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = seq.next_element_seed(Self)? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(Self)?;
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_and_nothing_else() {
        let same = |text: &str| {
            assert_eq!(
                Some(object(text.as_bytes()).unwrap().into()),
                serde_json::from_str::<Value>(text).ok()
            )
        };
        same(r#"{"a":[1,-1,1.5,null,true,{"b":"c"}],"d":{}}"#);
        same(" { } ");
        for text in [
            "",
            "[]",
            "1",
            "{",
            "{}{}",
            "{} x",
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"[{"a":1}]"#,
        ] {
            assert!(object(text.as_bytes()).is_none(), "{text}");
        }
        let deep = format!("{}{}", r#"{"a":"#.repeat(1000), "1");
        assert!(object(deep.as_bytes()).is_none());
        assert!(object(b"{\"a\":\"\xff\"}").is_none());
    }
}
