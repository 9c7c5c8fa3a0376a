//! JSON and Protocol Buffers, converted both ways and compared with prost-reflect, which passes the Protocol Buffers
//! conformance tests.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::{Value, json};
use std::sync::OnceLock;
use weir_transcode::{Api, Choice, JsonOptions, Limits, sources};

const EVERYTHING: &str = "library.v1.Everything";

/// A single pool: messages of two pools cannot be compared.
fn pool() -> DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| sources::from_source("library.proto", include_str!("library.proto")).unwrap()).clone()
}

fn api_with(options: JsonOptions, limits: Limits) -> Api {
    Api::new(&pool(), &Choice::default(), options, limits).unwrap()
}

fn api() -> Api {
    api_with(JsonOptions::default(), Limits::default())
}

fn everything() -> MessageDescriptor {
    pool().get_message_by_name(EVERYTHING).unwrap()
}

/// The oracle's message for this JSON.
fn expected(json: &str) -> Result<DynamicMessage, String> {
    let mut from = serde_json::Deserializer::from_str(json);
    let options = DeserializeOptions::new();
    let message = DynamicMessage::deserialize_with_options(everything(), &mut from, &options);
    from.end().map_err(|e| e.to_string())?;
    message.map_err(|e| e.to_string())
}

fn printed(api: &Api, bytes: &[u8]) -> Result<Value, String> {
    let mut out = Vec::new();
    api.print(EVERYTHING, bytes, &mut out).map_err(|e| e.message)?;
    Ok(serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out))))
}

/// JSON without the oracle's peculiarities: it writes `1.0` for `1`, and omits unset messages.
fn comparable(json: Value) -> Value {
    match json {
        Value::Number(n) => n.as_f64().filter(|n| n.fract() == 0.0).map_or(Value::Number(n), Value::from),
        Value::Array(all) => all.into_iter().map(comparable).collect(),
        Value::Object(all) => {
            let all = all.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(all.map(|(key, value)| (key, comparable(value))).collect())
        }
        other => other,
    }
}

#[test]
fn numbers_and_unset_messages_are_written_as_other_libraries_write_them() {
    let options = JsonOptions { defaults: true, ..JsonOptions::default() };
    let api = api_with(options, Limits::default());
    let bytes =
        parsed(&api, r#"{"aDouble":1,"aFloat":-2.5,"manyDoubles":[0,1e300,-0.0],"anything":3}"#).unwrap();
    let mut out = Vec::new();
    api.print(EVERYTHING, &bytes, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for part in [
        "\"aDouble\":1,",
        "\"aFloat\":-2.5,",
        "\"manyDoubles\":[0,1e+300,-0]",
        "\"anything\":3,",
        "\"inner\":null,",
        "\"at\":null,",
        "\"manyInner\":[]",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Members of a oneof, and fields marked `optional`, stay out.
    assert!(!text.contains("\"chosen") && !text.contains("\"maybe\""), "{text}");
    assert!(parsed(&api, &text).is_ok(), "what is written can be read");
}

#[test]
fn a_key_comes_once() {
    let api = api();
    for (text, path) in [
        (r#"{"object":{"a":1,"a":2}}"#, "object[\"a\"]"),
        (r#"{"object":{"b":{"a":1,"a":2}}}"#, "object[\"b\"][\"a\"]"),
        (r#"{"anything":{"a":1,"a":2}}"#, "anything[\"a\"]"),
        (r#"{"byName":{"a":1,"a":2}}"#, "byName[\"a\"]"),
        (r#"{"byNumber":{"1":{},"01":{}}}"#, "byNumber[\"01\"]"),
        (r#"{"any":{"id":"x","id":"y","@type":"a/library.v1.Inner"}}"#, "any"),
        (r#"{"any":{"value":{"k":{"b":1,"b":[]}},"@type":"a/google.protobuf.Struct"}}"#, "any"),
    ] {
        let told = parsed(&api, text).unwrap_err();
        assert!(told.starts_with(path) && told.contains("comes twice"), "{text}: {told}");
    }
}

fn parsed(api: &Api, json: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    api.parse(EVERYTHING, json.as_bytes(), &mut out).map_err(|e| e.to_string())?;
    Ok(out)
}

/// Texts that both must accept.
const GOOD: &[&str] = &[
    "{}",
    r#"{"aBool":true,"a_bytes":"_-8","aDouble":1.5,"anEnum":"PROSE","aFixed32":7,"aFixed64":"18446744073709551615","aFloat":-0.1}"#,
    r#"{"anInt32":-5,"anInt64":"-9223372036854775808","aSfixed32":-1,"aSfixed64":"9","aSint32":-2147483648,"aSint64":-3}"#,
    r#"{"aString":"a\"\u00e9\ud83d\ude00\u0001","aUint32":4294967295,"aUint64":18446744073709551615}"#,
    r#"{"anInt32":1e3,"anInt64":"12","aUint32":"7","aFloat":"NaN","aDouble":"-Infinity"}"#,
    r#"{"anInt32":1.0,"aDouble":"1.25","anEnum":1,"aBytes":"YQ"}"#,
    r#"{"anEnum":99}"#,
    r#"{"inner":{"id":"x","next":{"next":{}}},"manyInner":[{},{"id":"y"}]}"#,
    r#"{"manyInt32":[1,-1,300],"manyUnpacked":[1,2],"manyStrings":["","b"],"manyGenres":["POETRY",2,7],"manyDoubles":[0,"NaN",1e300]}"#,
    r#"{"manyInt32":[],"byName":{},"manyInner":null,"inner":null,"aBool":null}"#,
    r#"{"byName":{"a":1,"":0},"byNumber":{"-7":{"id":"n"},"0":{}},"byFlag":{"true":"PROSE","false":0}}"#,
    r#"{"chosenText":""}"#,
    r#"{"chosenInner":{}}"#,
    r#"{"chosenNull":null}"#,
    r#"{"maybe":0}"#,
    r#"{"at":"2026-11-22T15:00:00.5+01:00","took":"-1.000000001s","mask":"aB.c,d"}"#,
    r#"{"mask":""}"#,
    r#"{"object":{"a":null,"b":[1,"x",{"c":true}],"d":{}},"anything":null,"list":[null,1.5,[]]}"#,
    r#"{"anything":{"a":[{}]},"manyValues":[null,1,"a",[null],{"b":null}]}"#,
    r#"{"values":{"a":null,"b":1}}"#,
    r#"{"any":{"@type":"type.googleapis.com/library.v1.Inner","id":"x"}}"#,
    r#"{"any":{"id":"x","@type":"type.googleapis.com/library.v1.Inner"}}"#,
    r#"{"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"3s"}}"#,
    r#"{"any":{"value":"3s","@type":"type.googleapis.com/google.protobuf.Duration"}}"#,
    r#"{"any":{"@type":"a/google.protobuf.Any","value":{"@type":"a/library.v1.Inner","next":{}}}}"#,
    r#"{"any":{"@type":"a/google.protobuf.Struct","value":{"k":[1]}},"manyAny":[{"@type":"a/google.protobuf.Int64Value","value":"5"}]}"#,
    r#"{"wrappedBool":false,"wrappedBytes":"","wrappedDouble":0,"wrappedFloat":1.5,"wrappedInt32":-1}"#,
    r#"{"wrappedInt64":"7","wrappedString":"","wrappedUint32":0,"wrappedUint64":"1","nothing":{}}"#,
    r#"{"wrappedInt64":null,"wrappedString":"x"}"#,
    r#"{"other-name":"y"}"#,
    r#"{"renamed":"y"}"#,
    r#" { "aBool" : true } "#,
];

#[test]
fn json_becomes_the_message_it_means() {
    let api = api();
    for text in GOOD {
        let want = expected(text).unwrap_or_else(|e| panic!("the oracle refuses {text}: {e}"));
        let bytes = parsed(&api, text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let found =
            DynamicMessage::decode(everything(), &bytes[..]).unwrap_or_else(|e| panic!("{text}: {e}"));
        // Compared as JSON: comparing messages also compares their types, which does not terminate for so many.
        let json = |m: &DynamicMessage| serde_json::to_value(m).unwrap();
        assert_eq!(json(&found), json(&want), "{text}");
    }
}

#[test]
fn messages_become_the_json_they_mean() {
    for (options, of_oracle) in [
        (JsonOptions::default(), SerializeOptions::new()),
        (
            JsonOptions { defaults: true, ..JsonOptions::default() },
            SerializeOptions::new().skip_default_fields(false),
        ),
        (
            JsonOptions { enum_numbers: true, ..JsonOptions::default() },
            SerializeOptions::new().use_enum_numbers(true),
        ),
        (
            JsonOptions { int64_numbers: true, ..JsonOptions::default() },
            SerializeOptions::new().stringify_64_bit_integers(false),
        ),
        (
            JsonOptions { proto_names: true, ..JsonOptions::default() },
            SerializeOptions::new().use_proto_field_name(true),
        ),
    ] {
        let api = api_with(options, Limits::default());
        for text in GOOD {
            let message = expected(text).unwrap();
            let mut want = Vec::new();
            message.serialize_with_options(&mut serde_json::Serializer::new(&mut want), &of_oracle).unwrap();
            let want: Value = serde_json::from_slice(&want).unwrap();
            let found = printed(&api, &message.encode_to_vec()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(comparable(found), comparable(want), "{text} with {options:?}");
        }
    }
}

#[test]
fn json_that_does_not_fit_is_refused_with_its_path() {
    let api = api();
    for (text, path) in [
        ("", None),
        ("null", Some("")),
        ("[]", Some("")),
        ("7", Some("")),
        ("{", Some("")),
        ("{}x", Some("")),
        (r#"{"nope":1}"#, Some("nope")),
        (r#"{"inner":{"next":{"nope":1}}}"#, Some("inner.next.nope")),
        (r#"{"aBool":"true"}"#, Some("aBool")),
        (r#"{"aBool":1}"#, Some("aBool")),
        (r#"{"aBytes":"*"}"#, Some("aBytes")),
        (r#"{"aString":5}"#, Some("aString")),
        (r#"{"anInt32":2147483648}"#, Some("anInt32")),
        (r#"{"anInt32":"a"}"#, Some("anInt32")),
        (r#"{"anInt32":1.5}"#, Some("anInt32")),
        (r#"{"anInt32":" 1"}"#, Some("anInt32")),
        (r#"{"aUint32":-1}"#, Some("aUint32")),
        (r#"{"anInt64":"9223372036854775808"}"#, Some("anInt64")),
        (r#"{"aUint64":18446744073709551616}"#, Some("aUint64")),
        (r#"{"aFloat":1e39}"#, Some("aFloat")),
        (r#"{"aDouble":"inf"}"#, Some("aDouble")),
        (r#"{"anEnum":"NOPE"}"#, Some("anEnum")),
        (r#"{"anEnum":"1"}"#, Some("anEnum")),
        (r#"{"inner":[]}"#, Some("inner")),
        (r#"{"manyInt32":1}"#, Some("manyInt32")),
        (r#"{"manyInt32":[1,null]}"#, Some("manyInt32[1]")),
        (r#"{"manyInner":[{},{"id":3}]}"#, Some("manyInner[1].id")),
        (r#"{"byName":{"a":null}}"#, Some("byName[\"a\"]")),
        (r#"{"byName":[]}"#, Some("byName")),
        (r#"{"byNumber":{"x":{}}}"#, Some("byNumber[\"x\"]")),
        (r#"{"aBool":true,"aBool":true}"#, Some("aBool")),
        (r#"{"aBool":true,"a_bool":true}"#, Some("aBool")),
        (r#"{"chosenText":"a","chosenInner":{}}"#, Some("chosenInner")),
        (r#"{"at":"yesterday"}"#, Some("at")),
        (r#"{"at":5}"#, Some("at")),
        (r#"{"took":"1"}"#, Some("took")),
        (r#"{"mask":"a_b"}"#, Some("mask")),
        (r#"{"list":{}}"#, Some("list")),
        (r#"{"object":[]}"#, Some("object")),
        (r#"{"any":{"@type":"type.googleapis.com/none.Such"}}"#, Some("any")),
        (r#"{"any":{"id":"x"}}"#, Some("any")),
        (r#"{"any":{"@type":"a/google.protobuf.Duration","nope":1}}"#, Some("any")),
        (r#"{"nothing":{"a":1}}"#, Some("nothing.a")),
        (r#"{"aString":"\ud800"}"#, Some("aString")),
    ] {
        let mut out = Vec::new();
        let found = api.parse(EVERYTHING, text.as_bytes(), &mut out).err();
        assert_eq!(found.as_ref().map(|e| e.path.as_str()), path, "{text}: {found:?}");
    }
    let told = parsed(&api, r#"{"anInt32":"a"}"#).unwrap_err();
    assert_eq!(told, "anInt32: expected a whole number of 32 bits, found \"a\"");
    let told = parsed(&api, r#"{"inner":{"nope":1}}"#).unwrap_err();
    assert_eq!(told, "inner.nope: library.v1.Inner has no field `nope`");
}

#[test]
fn what_is_unknown_can_be_ignored() {
    let api = api_with(JsonOptions { ignore_unknown: true, ..JsonOptions::default() }, Limits::default());
    let text = r#"{"nope":{"a":[1]},"anEnum":"NOPE","manyGenres":["PROSE","NOPE"],"byFlag":{"true":"NOPE"},"aBool":true}"#;
    let bytes = parsed(&api, text).unwrap();
    assert_eq!(printed(&api, &bytes).unwrap(), json!({"aBool": true, "manyGenres": ["PROSE"]}));
}

#[test]
fn limits_hold() {
    let limits = Limits { depth: 20, any: 2, values: 50, message: 1000 };
    let api = api_with(JsonOptions::default(), limits);
    let deep = |n: usize| {
        format!("{}{}{}", r#"{"inner":"#, r#"{"next":"#.repeat(n), "{}".to_owned() + &"}".repeat(n + 1))
    };
    assert!(parsed(&api, &deep(10)).is_ok());
    assert!(parsed(&api, &deep(30)).unwrap_err().contains("deeper than 20"));
    let list = |n: usize| format!(r#"{{"list":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    assert!(parsed(&api, &list(5)).is_ok());
    assert!(parsed(&api, &list(30)).unwrap_err().contains("deeper than 20"));
    let many = |n: usize| format!(r#"{{"manyInt32":[{}]}}"#, vec!["1"; n].join(","));
    assert!(parsed(&api, &many(40)).is_ok());
    assert!(parsed(&api, &many(60)).unwrap_err().contains("more than 50 values"));
    let any = |n: usize| {
        let open = r#"{"@type":"a/google.protobuf.Any","value":"#.repeat(n);
        format!(r#"{{"any":{open}{{"@type":"a/library.v1.Inner"}}{}}}"#, "}".repeat(n))
    };
    assert!(parsed(&api, &any(1)).is_ok());
    assert!(parsed(&api, &any(2)).unwrap_err().contains("more than 2 Any"));
    // The same in the other direction.
    let wide = api_with(JsonOptions::default(), Limits::default());
    for (text, wrong) in [
        (deep(30), "deeper than 20"),
        (list(30), "deeper than 20"),
        (many(60), "50 values"),
        (any(2), "2 Any"),
    ] {
        let bytes = parsed(&wide, &text).unwrap();
        let told = printed(&api, &bytes).unwrap_err();
        assert!(told.contains(wrong), "{text}: {told}");
    }
    // The deepest nesting, on the smallest stack that a gateway thread has.
    let deepest = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || {
        let api = api_with(JsonOptions::default(), Limits::default());
        let bytes = parsed(&api, &deep(96)).unwrap();
        printed(&api, &bytes).unwrap();
        assert!(parsed(&api, &deep(120)).is_err());
        assert!(parsed(&api, &list(90)).is_ok() || parsed(&api, &list(40)).is_ok());
    });
    deepest.unwrap().join().unwrap();
}

#[test]
fn bytes_that_are_no_message() {
    let api = api();
    for bytes in [
        &b"\xff"[..],
        b"\x0a",
        b"\x72\x01\xff",
        b"\x8a\x01\x05abc",
        b"\x92\x01\x01\x80",
        b"\xba\x01\x03\x0a\x05a",
        b"\x0b\x08",
    ] {
        assert!(printed(&api, bytes).is_err(), "{bytes:?}");
    }
    // Numbers in fields of another type, and unknown fields, are skipped.
    assert_eq!(printed(&api, b"\x0a\x01a\xf8\x3f\x01\x08\x01").unwrap(), json!({"aBool": true}));
}

#[test]
fn fields_that_come_again() {
    let api = api();
    // bool twice; inner in two parts; a oneof whose second member wins; a map key twice; packed and not.
    let bytes = [
        &b"\x08\x01\x08\x00"[..],
        b"\x8a\x01\x03\x0a\x01a\x8a\x01\x02\x12\x00",
        b"\xd2\x01\x01t\xda\x01\x00",
        b"\xba\x01\x05\x0a\x01k\x10\x01\xba\x01\x05\x0a\x01k\x10\x02",
        b"\x92\x01\x02\x01\x02\x90\x01\x03",
    ]
    .concat();
    let want = DynamicMessage::decode(everything(), &bytes[..]).unwrap();
    let want: Value = serde_json::from_str(&serde_json::to_string(&want).unwrap()).unwrap();
    assert_eq!(printed(&api, &bytes).unwrap(), want);
}
