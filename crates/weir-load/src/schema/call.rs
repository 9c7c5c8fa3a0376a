//! A called method: turns JSON into framed messages, and responses back into JSON for checks.

use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value};
use weir_report::report::CallKind;

/// A method and its message types.
#[derive(Debug)]
pub(crate) struct Call {
    method: MethodDescriptor,
    /// The method's kind; a separate field because every response reads it.
    kind: CallKind,
    /// The schema's origin.
    schema: String,
}

impl Call {
    pub(super) fn new(method: MethodDescriptor, schema: String) -> Self {
        let kind = kind(method.is_client_streaming(), method.is_server_streaming());
        Self { method, kind, schema }
    }

    pub(crate) const fn kind(&self) -> CallKind {
        self.kind
    }

    /// `/package.Service/Method`.
    pub(crate) fn path(&self) -> String {
        format!("/{}/{}", self.method.parent_service().full_name(), self.method.name())
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Appends the framed messages for this JSON and returns their number. Empty input is the empty message. If the
    /// client streams, each element of an array is a message, and so is each of several values in a row.
    pub(crate) fn frame(&self, json: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        let messages = self.messages(json)?;
        for value in &messages {
            self.append(value, out)?;
        }
        Ok(messages.len())
    }

    /// Whether messages fit whose JSON has a text in place of values that are not known yet: such values fit anywhere.
    pub(crate) fn fits(&self, json: &[u8], stand_in: &str) -> Result<(), String> {
        let input = self.method.input();
        for mut value in self.messages(json)? {
            if !stands_in(&value, stand_in) {
                without(&input, &mut value, stand_in)
                    .map_err(|why| format!("does not fit {}: {why}", input.full_name()))?;
                self.append(&value, &mut Vec::new())?;
            }
        }
        Ok(())
    }

    fn messages(&self, json: &[u8]) -> Result<Vec<Value>, String> {
        let streams = self.method.is_client_streaming();
        let mut messages = Vec::new();
        for value in serde_json::Deserializer::from_slice(json).into_iter::<Value>() {
            match value.map_err(|e| format!("this is not JSON: {e}"))? {
                Value::Array(all) if streams => messages.extend(all),
                one => messages.push(one),
            }
        }
        if messages.is_empty() && !streams {
            messages.push(Value::Object(Map::new()));
        }
        if messages.len() > 1 && !streams {
            return Err(format!("{} takes one message, here are {}", self.method.name(), messages.len()));
        }
        Ok(messages)
    }

    fn append(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
        let input = self.method.input();
        let message = DynamicMessage::deserialize(input.clone(), value).map_err(|e| {
            let (path, why) = misfit(&input, value).unwrap_or_else(|| (String::new(), e.to_string()));
            let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
            format!("does not fit {}: {at}{why}", input.full_name())
        })?;
        let len = u32::try_from(message.encoded_len()).map_err(|_| "a message is at most 4 GiB")?;
        out.push(0);
        out.extend_from_slice(&len.to_be_bytes());
        message.encode(out).map_err(|e| e.to_string())
    }

    /// The messages of a response as JSON: an array if the server streams. `None` if the body has no such messages.
    pub(crate) fn json(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut rest = body;
        let mut all = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<5>() {
            let [_, len @ ..] = *header;
            let Some((message, next)) = after.split_at_checked(u32::from_be_bytes(len) as usize) else {
                break; // longer than what is kept for checks
            };
            let message = DynamicMessage::decode(self.method.output(), message).ok()?;
            let options = prost_reflect::SerializeOptions::new().skip_default_fields(false);
            all.push(message.serialize_with_options(serde_json::value::Serializer, &options).ok()?);
            rest = next;
        }
        let value = if self.method.is_server_streaming() { Value::Array(all) } else { all.pop()? };
        serde_json::to_vec(&value).ok()
    }
}

/// The kind of call, by which sides stream.
const fn kind(client_streams: bool, server_streams: bool) -> CallKind {
    match (client_streams, server_streams) {
        (false, false) => CallKind::Unary,
        (false, true) => CallKind::ServerStreaming,
        (true, false) => CallKind::ClientStreaming,
        (true, true) => CallKind::Bidirectional,
    }
}

/// Whether a value is a text with a stand-in for a value that is not known yet.
fn stands_in(value: &Value, stand_in: &str) -> bool {
    value.as_str().is_some_and(|text| text.contains(stand_in))
}

/// Removes from a message what is not known yet. The error names a field that it does not have.
fn without(message: &MessageDescriptor, value: &mut Value, stand_in: &str) -> Result<(), String> {
    let Value::Object(fields) = value else { return Ok(()) };
    let mut unknown = None;
    fields.retain(|name, value| {
        let Some(field) = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
        else {
            unknown.get_or_insert_with(|| no_field(message, name));
            return false;
        };
        let below = match field.kind() {
            // Messages of google.protobuf have their own JSON forms.
            Kind::Message(of) if of.full_name().starts_with("google.protobuf.") => {
                return !value.to_string().contains(stand_in);
            }
            Kind::Message(of) if !field.is_map() => Some(of),
            _ => None,
        };
        let mut look = |value: &mut Value| {
            if let Some(Err(why)) = below.as_ref().map(|of| without(of, value, stand_in)) {
                unknown.get_or_insert_with(|| format!("{name}: {why}"));
            }
            !stands_in(value, stand_in)
        };
        match value {
            Value::Array(all) if field.is_list() => {
                all.retain_mut(look);
                true
            }
            Value::Object(all) if field.is_map() => {
                all.retain(|key, value| !key.contains(stand_in) && !value.to_string().contains(stand_in));
                true
            }
            value => look(value),
        }
    });
    unknown.map_or(Ok(()), Err)
}

fn no_field(message: &MessageDescriptor, name: &str) -> String {
    let known: Vec<String> = message.fields().map(|f| f.name().to_owned()).collect();
    format!("there is no field `{name}`; it has {}", known.join(", "))
}

/// The place in a JSON value that does not fit a message, and what was expected there.
fn misfit(message: &MessageDescriptor, value: &Value) -> Option<(String, String)> {
    let error = DynamicMessage::deserialize(message.clone(), value).err()?.to_string();
    let Value::Object(fields) = value else {
        return Some((String::new(), format!("expected an object, found {}", shown(value))));
    };
    // Messages of google.protobuf have their own JSON forms.
    if message.full_name().starts_with("google.protobuf.") {
        return Some((String::new(), error));
    }
    for (name, value) in fields {
        let Some(field) = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
        else {
            return Some((String::new(), no_field(message, name)));
        };
        if let Some(found) = misfit_of_field(message, &field, name, value) {
            return Some(found);
        }
    }
    Some((String::new(), error)) // fields that cannot be combined
}

fn misfit_of_field(
    message: &MessageDescriptor,
    field: &FieldDescriptor,
    name: &str,
    value: &Value,
) -> Option<(String, String)> {
    let fails = |value: Value| {
        let alone = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        DynamicMessage::deserialize(message.clone(), &alone).is_err()
    };
    if !fails(value.clone()) {
        return None;
    }
    let inside = |value: &Value, path: String| {
        if let (Kind::Message(of), Value::Object(_)) = (field.kind(), value)
            && !field.is_map()
            && let Some((below, why)) = misfit(&of, value)
        {
            return (if below.is_empty() { path } else { format!("{path}.{below}") }, why);
        }
        (path, format!("expected {}, found {}", expected(field), shown(value)))
    };
    match value {
        Value::Array(all) if field.is_list() => {
            let (i, bad) = all.iter().enumerate().find(|(_, v)| fails(Value::Array(vec![(*v).clone()])))?;
            Some(inside(bad, format!("{name}[{i}]")))
        }
        _ if field.is_list() => Some((name.to_owned(), format!("expected an array, found {}", shown(value)))),
        _ => Some(inside(value, name.to_owned())),
    }
}

fn expected(field: &FieldDescriptor) -> String {
    if field.is_map() {
        return "an object (it is a map)".to_owned();
    }
    match field.kind() {
        Kind::Bool => "true or false".to_owned(),
        Kind::Bytes => "text in base64".to_owned(),
        Kind::Double | Kind::Float => "a number".to_owned(),
        Kind::Enum(of) => {
            let names: Vec<String> = of.values().map(|v| v.name().to_owned()).collect();
            format!("one of {}", names.join(", "))
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "a whole number of 32 bits".to_owned(),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "a whole number of 64 bits".to_owned(),
        Kind::Message(of) => format!("an object ({})", of.full_name()),
        Kind::String => "text".to_owned(),
        Kind::Uint32 | Kind::Fixed32 => "a whole number of 32 bits, not negative".to_owned(),
        Kind::Uint64 | Kind::Fixed64 => "a whole number of 64 bits, not negative".to_owned(),
    }
}

/// A value for an error message, shortened.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST {
        return text;
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    const PROTO: &str = r#"
        syntax = "proto3";
        package t.v1;
        import "google/protobuf/timestamp.proto";
        enum Color { RED = 0; BLUE = 1; }
        message Inner { int32 n = 1; repeated string words = 2; }
        message In {
            string name = 1; uint32 count = 2; repeated Inner all = 3; Color color = 4; bytes raw = 5;
            map<string, int64> by_name = 6; google.protobuf.Timestamp at = 7; oneof pick { bool a = 8; double b = 9; }
        }
        service S {
            rpc One(In) returns (Inner);
            rpc Up(stream In) returns (Inner);
            rpc Down(In) returns (stream Inner);
        }
    "#;

    fn call(method: &str) -> Call {
        let file = protox::Compiler::with_file_resolver({
            let mut chain = protox::file::ChainFileResolver::new();
            chain.add(Text);
            chain.add(protox::file::GoogleFileResolver::new());
            chain
        })
        .include_imports(true)
        .open_file("t.proto")
        .unwrap()
        .file_descriptor_set();
        let pool = DescriptorPool::from_file_descriptor_set(file).unwrap();
        let service = pool.get_service_by_name("t.v1.S").unwrap();
        let method = service.methods().find(|m| m.name() == method).unwrap();
        Call::new(method, String::new())
    }

    struct Text;

    impl protox::file::FileResolver for Text {
        fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
            if name == "t.proto" {
                return protox::file::File::from_source(name, PROTO);
            }
            Err(protox::Error::file_not_found(name))
        }
    }

    fn framed(method: &str, json: &str) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        call(method).frame(json.as_bytes(), &mut out).map(|_| out)
    }

    #[test]
    fn json_becomes_messages_in_frames() {
        assert_eq!(
            framed("One", r#"{"name":"hi","count":300}"#).unwrap(),
            b"\0\0\0\0\x07\x0a\x02hi\x10\xac\x02"
        );
        assert_eq!(framed("One", "").unwrap(), b"\0\0\0\0\0");
        let two = b"\0\0\0\0\x02\x10\x01\0\0\0\0\x02\x10\x02";
        assert_eq!(framed("Up", r#"[{"count":1},{"count":2}]"#).unwrap(), two);
        assert_eq!(framed("Up", "{\"count\":1}\n{\"count\":2}\n").unwrap(), two);
        assert_eq!(framed("Up", "").unwrap(), b"");
        let all = r#"{"all":[{"n":-1,"words":["x"]}],"color":"BLUE","raw":"AQI=","byName":{"k":"7"},"at":"1970-01-01T00:00:01Z","b":1.5}"#;
        assert!(framed("Down", all).unwrap().len() > 30);
    }

    #[test]
    fn what_is_not_known_yet_fits_anywhere_but_in_no_field() {
        let call = call("One");
        for (json, want) in [
            (r#"{"name":"a ~ b","count":"~","color":"~","raw":"~","at":"~","a":"~"}"#, Ok(())),
            (r#"{"all":[{"n":"~","words":["~","x"]},"~"],"byName":{"~":"1","k":"~"}}"#, Ok(())),
            (r#""~""#, Ok(())),
            (r#"{"nam":"~"}"#, Err("there is no field `nam`")),
            (r#"{"all":[{"m":"~"}]}"#, Err("all: there is no field `m`")),
            (r#"{"name":"~","count":-1}"#, Err("count: expected a whole number of 32 bits, not negative")),
        ] {
            let told = call.fits(json.as_bytes(), "~");
            match (&told, want) {
                (Ok(()), Ok(())) => {}
                (Err(told), Err(want)) if told.contains(want) => {}
                _ => panic!("{json}: {told:?}"),
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_was_expected() {
        for (json, want) in [
            ("{", "this is not JSON: EOF while parsing an object at line 1 column 1"),
            ("{}{}", "One takes one message, here are 2"),
            ("5", "does not fit t.v1.In: expected an object, found 5"),
            ("[]", "does not fit t.v1.In: expected an object, found []"),
            (
                r#"{"nmae":"x"}"#,
                "does not fit t.v1.In: there is no field `nmae`; it has name, count, all, color, raw, by_name, at, a, b",
            ),
            (r#"{"name":5}"#, "does not fit t.v1.In: name: expected text, found 5"),
            (
                r#"{"name":"x","count":-1}"#,
                "does not fit t.v1.In: count: expected a whole number of 32 bits, not negative, found -1",
            ),
            (r#"{"all":{}}"#, "does not fit t.v1.In: all: expected an array, found {}"),
            (
                r#"{"all":[{"n":1},{"words":["a",2]}]}"#,
                "does not fit t.v1.In: all[1].words[1]: expected text, found 2",
            ),
            (r#"{"all":[{"m":1}]}"#, "does not fit t.v1.In: all[0]: there is no field `m`; it has n, words"),
            (
                r#"{"color":"GREEN"}"#,
                "does not fit t.v1.In: color: expected one of RED, BLUE, found \"GREEN\"",
            ),
            (r#"{"raw":"!"}"#, "does not fit t.v1.In: raw: expected text in base64, found \"!\""),
            (
                r#"{"byName":[1]}"#,
                "does not fit t.v1.In: byName: expected an object (it is a map), found [1]",
            ),
            (
                r#"{"at":"today"}"#,
                "does not fit t.v1.In: at: expected an object (google.protobuf.Timestamp), found \"today\"",
            ),
        ] {
            assert_eq!(framed("One", json).unwrap_err(), want, "{json}");
        }
    }

    #[test]
    fn responses_become_json() {
        let body = b"\0\0\0\0\x02\x08\x05\0\0\0\0\x00\0\0\0\0\x09cut";
        let text = |method: &str, body: &[u8]| call(method).json(body).map(|j| String::from_utf8(j).unwrap());
        assert_eq!(text("Down", body).unwrap(), r#"[{"n":5,"words":[]},{"n":0,"words":[]}]"#);
        assert_eq!(text("One", &body[..7]).unwrap(), r#"{"n":5,"words":[]}"#);
        assert_eq!(text("One", b""), None);
        assert_eq!(text("One", b"\0\0\0\0\x01\x08"), None);
    }
}
