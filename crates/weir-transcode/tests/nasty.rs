//! Rules and fields at the edges of `google.api.http`: values of every type in a path and a query, bodies and answers
//! of every shape, colliding names, a file without a package.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use serde_json::{Value, json};
use weir_transcode::{Api, Choice, JsonOptions, Limits, Lookup, Request, sources};

const PROTO: &str = r#"syntax = "proto3";
import "google/api/annotations.proto";
import "google/api/httpbody.proto";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

service Nasty {
  rpc Int64(All) returns (All) { option (google.api.http) = { get: "/i64/{i64}" additional_bindings { get: "/u64/{u64}" } additional_bindings { get: "/s32/{s32}" } }; }
  rpc Bool(All) returns (All) { option (google.api.http) = { get: "/bool/{flag}" additional_bindings { get: "/real/{real}" } }; }
  rpc Bytes(All) returns (All) { option (google.api.http) = { get: "/bytes/{raw}" additional_bindings { get: "/deep/{deep.inner.raw}" } }; }
  rpc Enum(All) returns (All) { option (google.api.http) = { get: "/enum/{type}" additional_bindings { get: "/deepenum/{deep.inner.kind}" } }; }
  rpc Known(All) returns (All) { option (google.api.http) = { get: "/query" }; }
  rpc OneOf(All) returns (All) { option (google.api.http) = { get: "/text/{text}" additional_bindings { get: "/number/{number}" } }; }
  rpc Rest(All) returns (All) { option (google.api.http) = { get: "/files/{deep.inner.name=dirs/*/all/**}" additional_bindings { get: "/files/{deep.inner.name=dirs/*/all/**}:read" } }; }
  rpc Any2(All) returns (All) { option (google.api.http) = { custom { kind: "*" path: "/any/*/{s32}" } }; }
  rpc All0(All) returns (All) { option (google.api.http) = { get: "/zero/**" }; }
  rpc BodyList(All) returns (All) { option (google.api.http) = { post: "/list" body: "list" response_body: "list" }; }
  rpc BodyMap(All) returns (All) { option (google.api.http) = { post: "/map" body: "by_id" response_body: "by_id" }; }
  rpc BodyText(All) returns (All) { option (google.api.http) = { post: "/text" body: "text" response_body: "text" }; }
  rpc BodyEnum(All) returns (All) { option (google.api.http) = { post: "/enum" body: "type" response_body: "type" }; }
  rpc BodyInt(All) returns (All) { option (google.api.http) = { post: "/int" body: "i64" response_body: "i64" }; }
  rpc BodyWrapped(All) returns (All) { option (google.api.http) = { post: "/wrapped" body: "wrapped" response_body: "wrapped" }; }
  rpc BodyTime(All) returns (All) { option (google.api.http) = { post: "/time" body: "at" response_body: "at" }; }
  rpc BodyValue(All) returns (All) { option (google.api.http) = { post: "/value" body: "value" response_body: "value" }; }
  rpc Nothing(google.protobuf.Empty) returns (google.protobuf.Empty) { option (google.api.http) = { delete: "/nothing" }; }
}

message All {
  int64 i64 = 1; uint64 u64 = 2; sint32 s32 = 3; bool flag = 4; double real = 5; bytes raw = 6;
  Kind type = 7; Deep deep = 8;
  oneof one { string text = 9; int32 number = 10; }
  google.protobuf.Timestamp at = 11; google.protobuf.Duration took = 12; google.protobuf.FieldMask mask = 13;
  google.protobuf.Int64Value wrapped = 14; google.protobuf.StringValue words = 15;
  repeated int64 list = 16; map<string, int64> by_id = 17; optional int32 maybe = 18;
  google.protobuf.Value value = 19; google.protobuf.Any any = 20;
  string self = 21 [json_name = "class"]; repeated google.protobuf.Timestamp times = 22;
  string snake_case_name = 23; string _odd__name_ = 24; repeated bytes raws = 25; google.protobuf.BytesValue wrapped_bytes = 26;
}
message Deep { message Inner { bytes raw = 1; Kind kind = 2; string name = 3; } Inner inner = 1; }
enum Kind { NONE = 0; ONE = 1; UNO = 1; TWO = -2; option allow_alias = true; }
"#;

fn api() -> Api {
    let pool = sources::from_source("nasty.proto", PROTO).unwrap();
    Api::new(&pool, &Choice::default(), JsonOptions::default(), Limits::default()).unwrap()
}

/// The message that the service gets, as JSON.
fn sent(api: &Api, method: &str, target: &str, body: &str) -> Result<Value, String> {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let Lookup::Call(call) = api.find(method, path.as_bytes()) else { return Err("no call".to_owned()) };
    let mut out = Vec::new();
    let request =
        Request { query: query.map(str::as_bytes), media: b"application/json", body: body.as_bytes() };
    api.request(&call, &request, &mut out).map_err(|e| e.to_string())?;
    let mut json = Vec::new();
    api.print("All", &out, &mut json).map_err(|e| e.message)?;
    Ok(serde_json::from_slice(&json).unwrap())
}

#[test]
fn values_in_a_path() {
    let api = api();
    for (path, want) in [
        ("/i64/-9223372036854775808", Some(json!({ "i64": "-9223372036854775808" }))),
        ("/i64/9223372036854775807", Some(json!({ "i64": "9223372036854775807" }))),
        ("/i64/9223372036854775808", None),
        ("/i64/%39", Some(json!({ "i64": "9" }))),
        ("/i64/", None),
        ("/i64/1.5", None),
        ("/u64/18446744073709551615", Some(json!({ "u64": "18446744073709551615" }))),
        ("/u64/-1", None),
        ("/s32/-2147483648", Some(json!({ "s32": -2147483648 }))),
        ("/s32/2147483648", None),
        ("/bool/true", Some(json!({ "flag": true }))),
        ("/bool/1", Some(json!({ "flag": true }))),
        ("/bool/T", Some(json!({ "flag": true }))),
        ("/bool/0", Some(json!({}))),
        ("/bool/tRUE", None),
        ("/i64/+10", Some(json!({ "i64": "10" }))),
        ("/i64/+-10", None),
        ("/i64/++1", None),
        ("/real/+1.5", Some(json!({ "real": 1.5 }))),
        ("/real/2.0", Some(json!({ "real": 2 }))),
        ("/bool/yes", None),
        ("/real/-1e-3", Some(json!({ "real": -0.001 }))),
        ("/real/NaN", Some(json!({ "real": "NaN" }))),
        ("/bytes/_-8", Some(json!({ "raw": "/+8=" }))),
        ("/bytes/%2F%2B8%3D", Some(json!({ "raw": "/+8=" }))),
        ("/bytes/YQ==", Some(json!({ "raw": "YQ==" }))),
        ("/bytes/!", None),
        ("/deep/_-8", Some(json!({ "deep": { "inner": { "raw": "/+8=" } } }))),
        ("/enum/ONE", Some(json!({ "type": "ONE" }))),
        ("/enum/UNO", Some(json!({ "type": "ONE" }))), // of several names, the first is reported
        ("/enum/1", Some(json!({ "type": "ONE" }))),
        ("/enum/-2", Some(json!({ "type": "TWO" }))),
        ("/enum/77", Some(json!({ "type": 77 }))),
        ("/enum/THREE", None),
        ("/deepenum/TWO", Some(json!({ "deep": { "inner": { "kind": "TWO" } } }))),
        ("/text/a%2Fb%20c%25", Some(json!({ "text": "a/b c%" }))),
        ("/number/0", Some(json!({ "number": 0 }))),
        ("/number/0?text=a", None),
        ("/number/0?maybe=1", Some(json!({ "number": 0, "maybe": 1 }))),
        ("/files/dirs/a/all", Some(json!({ "deep": { "inner": { "name": "dirs/a/all" } } }))),
        ("/files/dirs/a/all/b/c", Some(json!({ "deep": { "inner": { "name": "dirs/a/all/b/c" } } }))),
        ("/files/dirs/a/all/b%2Fc", Some(json!({ "deep": { "inner": { "name": "dirs/a/all/b%2Fc" } } }))),
        ("/files/dirs/a/all/b%20c", Some(json!({ "deep": { "inner": { "name": "dirs/a/all/b c" } } }))),
        ("/files/dirs/a/all/b:read", Some(json!({ "deep": { "inner": { "name": "dirs/a/all/b" } } }))),
        ("/files/dirs/a/none", None),
        ("/any/x/7", Some(json!({ "s32": 7 }))),
        ("/any/7", None),
        ("/zero", Some(json!({}))),
        ("/zero/a/b", Some(json!({}))),
    ] {
        let found = sent(&api, "GET", path, "").ok();
        assert_eq!(found, want, "{path}: {:?}", sent(&api, "GET", path, ""));
    }
}

#[test]
fn values_in_a_query() {
    let api = api();
    for (query, want) in [
        ("at=0001-01-01T00:00:00Z", Some(json!({ "at": "0001-01-01T00:00:00Z" }))),
        ("at=9999-12-31T23:59:59.999999999Z", Some(json!({ "at": "9999-12-31T23:59:59.999999999Z" }))),
        ("at=10000-01-01T00:00:00Z", None),
        ("at=2026-02-29T00:00:00Z", None),
        ("at=2026-01-01T00:00:00%2B01:00", Some(json!({ "at": "2025-12-31T23:00:00Z" }))),
        ("took=-315576000000s", Some(json!({ "took": "-315576000000s" }))),
        ("took=315576000001s", None),
        ("took=-0.5s", Some(json!({ "took": "-0.500s" }))),
        ("took=1", None),
        ("mask=deep.inner,snakeCaseName", Some(json!({ "mask": "deep.inner,snakeCaseName" }))),
        ("wrapped=-9223372036854775808", Some(json!({ "wrapped": "-9223372036854775808" }))),
        ("number=1&text=a", None),
        ("number=1&maybe=2", Some(json!({ "number": 1, "maybe": 2 }))),
        ("words=", Some(json!({ "words": "" }))),
        ("wrapped_bytes=_-8", Some(json!({ "wrappedBytes": "/+8=" }))),
        ("list=1&list=-2&list=3", Some(json!({ "list": ["1", "-2", "3"] }))),
        ("raws=YQ&raws=_-8", Some(json!({ "raws": ["YQ==", "/+8="] }))),
        (
            "times=2026-01-01T00:00:00Z&times=2026-01-02T00:00:00Z",
            Some(json!({ "times": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"] })),
        ),
        ("maybe=0", Some(json!({ "maybe": 0 }))),
        ("type=UNO", Some(json!({ "type": "ONE" }))),
        ("deep.inner.kind=-2", Some(json!({ "deep": { "inner": { "kind": "TWO" } } }))),
        ("class=a", Some(json!({ "class": "a" }))),
        ("self=a", Some(json!({ "class": "a" }))),
        ("snakeCaseName=a", Some(json!({ "snakeCaseName": "a" }))),
        ("snake_case_name=a+b%2B", Some(json!({ "snakeCaseName": "a b+" }))),
        ("_odd__name_=a", Some(json!({ "OddName": "a" }))),
        ("text=a", Some(json!({ "text": "a" }))),
        ("by_id=1", None),
        ("by_id[a]=1&byId[b]=-2", Some(json!({ "byId": { "a": "1", "b": "-2" } }))),
        ("by_id[a]=x", None),
        ("by_id[a=1", None),
        ("mask=deep.inner,snake_case_name", Some(json!({ "mask": "deep.inner,snakeCaseName" }))),
        ("any=x", None),
        ("deep=x", None),
        ("flag", None),
        ("", Some(json!({}))),
        ("&&", Some(json!({}))),
    ] {
        let found = sent(&api, "GET", &format!("/query?{query}"), "").ok();
        assert_eq!(found, want, "{query}: {:?}", sent(&api, "GET", &format!("/query?{query}"), ""));
    }
}

#[test]
fn bodies_and_answers_of_every_shape() {
    let api = api();
    for (path, field, body) in [
        ("/list", "list", json!(["1", "-2"])),
        ("/list", "list", json!([])),
        ("/map", "byId", json!({ "a": "1", "": "-9223372036854775808" })),
        ("/text", "text", json!("a\"b")),
        ("/enum", "type", json!("TWO")),
        ("/int", "i64", json!("9223372036854775807")),
        ("/wrapped", "wrapped", json!("7")),
        ("/time", "at", json!("2026-01-01T00:00:00Z")),
        ("/value", "value", json!({ "a": [null, true, { "b": 1.5 }] })),
        ("/value", "value", json!(null)),
    ] {
        let text = body.to_string();
        let Lookup::Call(call) = api.find("POST", path.as_bytes()) else { panic!("{path}") };
        let mut message = Vec::new();
        let request = Request { query: None, media: b"application/json", body: text.as_bytes() };
        api.request(&call, &request, &mut message).unwrap_or_else(|e| panic!("{path} {text}: {e}"));
        let mut json = Vec::new();
        api.print("All", &message, &mut json).unwrap();
        let whole: Value = serde_json::from_slice(&json).unwrap();
        let empty = body.as_array().is_some_and(Vec::is_empty);
        assert_eq!(whole, if empty { json!({}) } else { json!({ field: body }) }, "{path} {text}");
        let mut answer = Vec::new();
        assert_eq!(api.response(&call, &message, &mut answer).unwrap(), None);
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap(), body, "{path}");
    }
    for (path, body) in [
        ("/list", "{}"),
        ("/list", "[1,"),
        ("/list", "[1]x"),
        ("/map", "[]"),
        ("/text", "7"),
        ("/int", "\"9223372036854775808\""),
        ("/int", "1.5"),
        ("/time", "\"now\""),
        ("/enum", "\"THREE\""),
    ] {
        assert!(sent(&api, "POST", path, body).is_err(), "{path} {body}");
    }
    assert!(matches!(api.find("DELETE", b"/nothing"), Lookup::Call(_)));
}

#[test]
fn no_bytes_make_it_panic() {
    let api = api();
    let Lookup::Call(call) = api.find("POST", b"/value") else { panic!() };
    let mut random = fastrand::Rng::with_seed(1);
    let mut byte = || random.u8(..);
    let alphabet = b"{}[]\":,0123456789.eE-+ntf\\u \xff@type";
    for length in 0..2000_usize {
        let json: Vec<u8> =
            (0..length % 60).map(|_| alphabet[usize::from(byte()) % alphabet.len()]).collect();
        let request = Request { query: Some(&json), media: b"", body: &json };
        let mut out = Vec::new();
        let _ = api.request(&call, &request, &mut out);
        let _ = api.parse("All", &json, &mut out);
        let wire: Vec<u8> = (0..length % 60).map(|_| byte()).collect();
        let _ = api.print("All", &wire, &mut out);
        let _ = api.response(&call, &wire, &mut out);
        let _ = api.find("GET", &json);
    }
}
