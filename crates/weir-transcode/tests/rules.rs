//! The rules of `google.api.http`: how requests map to calls and messages, and which rules are refused.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use serde_json::{Value, json};
use weir_transcode::{Api, Call, Choice, JsonOptions, Limits, Lookup, Request, sources};

fn api_of(proto: &str, choice: &Choice) -> Result<Api, Vec<String>> {
    let pool = sources::from_source("t.proto", proto).map_err(|e| vec![e])?;
    Api::new(&pool, choice, JsonOptions::default(), Limits::default())
        .map_err(|all| all.into_iter().map(|e| format!("{}: {}", e.place, e.message)).collect())
}

fn library() -> Api {
    api_of(include_str!("library.proto"), &Choice { unannotated: true, ..Choice::default() }).unwrap()
}

fn call(api: &Api, method: &str, path: &str) -> Call {
    match api.find(method, path.as_bytes()) {
        Lookup::Call(call) => call,
        other => panic!("{method} {path}: {other:?}"),
    }
}

/// The method and the message, as JSON, that the service gets for a request.
fn sent(api: &Api, method: &str, target: &str, body: &str) -> Result<(String, Value), String> {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let call = call(api, method, path);
    let mut out = Vec::new();
    let request = Request { query: query.map(str::as_bytes), media: b"text/plain", body: body.as_bytes() };
    api.request(&call, &request, &mut out).map_err(|e| e.to_string())?;
    let found = api.method(&call).unwrap();
    let input = match found.name.as_str() {
        "Upload" => "google.api.HttpBody",
        "CreateBook" => "library.v1.CreateBookRequest",
        "UpdateBook" => "library.v1.UpdateBookRequest",
        "ListBooks" | "Watch" => "library.v1.ListBooksRequest",
        "Cover" => "library.v1.CoverRequest",
        "Echo" => "library.v1.Everything",
        _ => "library.v1.GetBookRequest",
    };
    let mut json = Vec::new();
    api.print(input, &out, &mut json).map_err(|e| e.message)?;
    Ok((found.name.clone(), serde_json::from_slice(&json).unwrap()))
}

#[test]
fn every_form_of_annotation() {
    let api = library();
    for (method, target, body, name, want) in [
        ("GET", "/v1/shelves/1/books/2", "", "GetBook", json!({"name": "shelves/1/books/2"})),
        ("GET", "/v1/books/a%2Fb", "", "GetBook", json!({"name": "a/b"})),
        ("REPORT", "/v1/books/x", "", "GetBook", json!({"name": "x"})),
        ("DELETE", "/v1/shelves/1/books/2", "", "DeleteBook", json!({"name": "shelves/1/books/2"})),
        ("POST", "/v1/a/b/c:publish", "", "Publish", json!({"name": "a/b/c"})),
        ("POST", "/v1/:publish", "{}", "Publish", json!({})),
        ("POST", "/library.v1.Library/Unannotated", "{\"name\":\"u\"}", "Unannotated", json!({"name": "u"})),
        (
            "POST",
            "/v1/shelves/7/books?request_id=r+1&requestId=",
            "{\"title\":\"T\",\"pages\":\"9\"}",
            "CreateBook",
            json!(null),
        ),
        (
            "POST",
            "/v1/shelves/7/books?request_id=r+1",
            "{\"title\":\"T\",\"pages\":\"9\"}",
            "CreateBook",
            json!({"parent": "shelves/7", "book": {"title": "T", "pages": "9"}, "requestId": "r 1"}),
        ),
        (
            "PATCH",
            "/v1/shelves/1/books/2?updateMask=title,pages",
            "{\"title\":\"N\",\"name\":\"lies\"}",
            "UpdateBook",
            json!({"book": {"name": "shelves/1/books/2", "title": "N"}, "updateMask": "title,pages"}),
        ),
        // Fields that the client omitted must not be cleared.
        (
            "PATCH",
            "/v1/shelves/1/books/2",
            "{\"title\":\"N\",\"pages\":\"0\"}",
            "UpdateBook",
            json!({"book": {"name": "shelves/1/books/2", "title": "N"}, "updateMask": "title,pages"}),
        ),
        (
            "PATCH",
            "/v1/shelves/1/books/2?updateMask=",
            "{\"title\":\"N\"}",
            "UpdateBook",
            json!({"book": {"name": "shelves/1/books/2", "title": "N"}, "updateMask": "title"}),
        ),
        (
            "PATCH",
            "/v1/shelves/1/books/2?update_mask.paths=pages&book.name=x",
            "{\"title\":\"N\"}",
            "UpdateBook",
            json!({"book": {"name": "shelves/1/books/2", "title": "N"}, "updateMask": "pages"}),
        ),
        ("PATCH", "/v1/shelves/1/books/2", "", "UpdateBook", json!({"book": {"name": "shelves/1/books/2"}})),
        (
            "PUT",
            "/v1/shelves/1/books/2",
            "{\"book\":{\"title\":\"N\"},\"updateMask\":\"title\"}",
            "UpdateBook",
            json!({"book": {"name": "shelves/1/books/2", "title": "N"}, "updateMask": "title"}),
        ),
        (
            "POST",
            "/v1/raw",
            "any bytes",
            "Upload",
            json!({"contentType": "text/plain", "data": "YW55IGJ5dGVz"}),
        ),
        (
            "PUT",
            "/v1/covers/c?note=n",
            "png",
            "Cover",
            json!({"id": "c", "image": {"contentType": "text/plain", "data": "cG5n"}, "note": "n"}),
        ),
        ("GET", "/v1/echo/i?aBool=true", "", "Echo", json!({"aBool": true, "inner": {"id": "i"}})),
    ] {
        let found = sent(&api, method, target, body);
        match want {
            Value::Null => assert!(found.is_err(), "{method} {target}: {found:?}"),
            want => assert_eq!(found, Ok((name.to_owned(), want)), "{method} {target}"),
        }
    }
}

#[test]
fn parameters_of_every_kind() {
    let api = library();
    let query = "page_size=5&pageToken=a%20b%26&authors=x&authors=y&genres=PROSE&genres=1&years=1&years=-2&filter.title=t&filter.inStock=true\
        &filter.since=2026-01-01T00:00:00Z&filter.age=1.5s&filter.most=7&filter.mask=a,b&filter.not.not.title=n&filter.digest=_-8&filter.score=-1e3";
    let (_, found) = sent(&api, "GET", &format!("/v1/books?{query}"), "").unwrap();
    let more =
        "filter.labels[a.b]=1&filter.labels[]=2&filter.in_stock=t&filter.mask=book.page_count,pageSize";
    let (_, found_more) = sent(&api, "GET", &format!("/v1/books?{more}&page_size=%2B10"), "").unwrap();
    let want_more = json!({
        "pageSize": 10,
        "filter": { "labels": { "a.b": "1", "": "2" }, "inStock": true, "mask": "book.pageCount,pageSize" }
    });
    assert_eq!(found_more, want_more);
    let want = json!({
        "pageSize": 5, "pageToken": "a b&", "authors": ["x", "y"], "genres": ["PROSE", "POETRY"], "years": ["1", "-2"],
        "filter": {
            "title": "t", "inStock": true, "since": "2026-01-01T00:00:00Z", "age": "1.500s", "most": "7", "mask": "a,b",
            "not": {"not": {"title": "n"}}, "digest": "/+8=", "score": -1000
        }
    });
    assert_eq!(found, want);
    for (query, wrong) in [
        ("nope=1", "has no field `nope`"),
        ("filter.nope=1", "has no field `nope`"),
        ("page_size.x=1", "not a message has no field"),
        ("filter=1", "cannot stand in a URL"),
        ("filter.labels=1", "write labels[KEY]=VALUE"),
        ("filter.labels.a=1", "no field `a`"),
        ("page_size=x", "a whole number of 32 bits"),
        ("page_size[a]=1", "only an entry of a map"),
        ("page_size=%zz", "percent-encoded"),
        ("page_size=1%", "percent-encoded"),
        ("filter.labels[a]=1&filter.labels[a]=2", "twice"),
        ("page_size=1&pageSize=2", "twice"),
        ("genres=NOPE", "one of GENRE_UNSPECIFIED, POETRY, PROSE"),
        ("filter.since=x", "a time"),
        ("filter.inStock=2", "true or false"),
        ("page_token=%ff", "not percent-encoded UTF-8"),
    ] {
        let told = sent(&api, "GET", &format!("/v1/books?{query}"), "").unwrap_err();
        assert!(told.contains(wrong), "{query}: {told}");
    }
    // The path takes precedence over repeated query parameters.
    let (_, found) = sent(&api, "GET", "/v1/books/x?name=y&name=z", "").unwrap();
    assert_eq!(found, json!({ "name": "x" }));
    // A name is limited to the depth of messages, so that none overflows a stack.
    let deep = |levels: usize| format!("/v1/books?filter.{}title=x", "not.".repeat(levels));
    assert!(sent(&api, "GET", &deep(97), "").is_ok());
    for levels in [99, 10_000] {
        assert!(sent(&api, "GET", &deep(levels), "").unwrap_err().contains("deeper than 100"));
    }
    let told = sent(&api, "POST", "/v1/shelves/1/books?book.title=x", "{}").unwrap_err();
    assert!(told.contains("comes from the body"), "{told}");
    let many = vec!["authors=a"; 1001].join("&");
    assert!(sent(&api, "GET", &format!("/v1/books?{many}"), "").unwrap_err().contains("1000 parameters"));
}

#[test]
fn answers_are_the_field_that_was_named() {
    let api = library();
    let answered = |method, path, message: &[u8]| {
        let mut out = Vec::new();
        let media = api.response(&call(&api, method, path), message, &mut out).unwrap();
        (media, String::from_utf8(out).unwrap())
    };
    assert_eq!(
        answered("GET", "/v1/books", b"\x0a\x03\x12\x01T\x12\x01n"),
        (None, "[{\"title\":\"T\"}]".to_owned())
    );
    assert_eq!(answered("GET", "/v1/books", b""), (None, "[]".to_owned()));
    assert_eq!(answered("GET", "/v1/books/x", b"\x18\x02"), (None, "{\"genre\":\"PROSE\"}".to_owned()));
    assert_eq!(answered("DELETE", "/v1/shelves/1/books/2", b""), (None, "{}".to_owned()));
    let raw = b"\x0a\x09image/png\x12\x03abc";
    assert_eq!(answered("POST", "/v1/raw", raw), (Some("image/png".to_owned()), "abc".to_owned()));
    let nested = [&[0x0a, raw.len() as u8][..], raw].concat();
    assert_eq!(answered("PUT", "/v1/covers/c", &nested), (Some("image/png".to_owned()), "abc".to_owned()));
}

#[test]
fn what_a_request_is_not() {
    let api = library();
    assert_eq!(api.find("POST", b"/v1/books"), Lookup::Methods(vec!["GET".to_owned()]));
    assert_eq!(api.find("GET", b"/v2"), Lookup::Nothing);
    assert_eq!(api.find("GET", b"/v1/books/%FF"), Lookup::NotText);
    let found = call(&api, "GET", "/v1/books/x");
    assert_eq!(api.rule(&found).as_deref(), Some("GET /v1/books/{name}"));
    assert!(api.place(&found).unwrap().starts_with("t.proto:"), "{:?}", api.place(&found));
}

/// A service with these rules on methods of `M`, and the line of the first rule: 5.
fn with_rules(rules: &[&str]) -> Api {
    let methods: Vec<String> = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| {
            let streams = if rule.starts_with("stream ") { "stream " } else { "" };
            format!(
                "  rpc R{at}({streams}M) returns (M) {{\n option (google.api.http) = {{ {} }}; }}",
                rule.trim_start_matches("stream ")
            )
        })
        .collect();
    let proto = format!(
        "syntax = \"proto3\"; package t; import \"google/api/annotations.proto\";\nmessage M {{ string a = 1; M m = 2; repeated string r = 3; map<string, string> p = 4; }}\nservice S {{\n{}\n}}\n",
        methods.join("\n")
    );
    api_of(&proto, &Choice::default()).unwrap()
}

#[test]
fn rules_that_contradict_are_refused_with_their_line() {
    for (rules, wrong) in [
        (&["get: \"/a/{a}\""][..], None),
        (&["get: \"/a/{nope}\""], Some("t.M has no field `nope`")),
        (&["get: \"/a/{m}\""], Some("cannot be a message")),
        (&["get: \"/a/{r}\""], Some("cannot be repeated")),
        (&["get: \"/a/{p}\""], Some("cannot be repeated or a map")),
        (&["get: \"/a/{a.b}\""], Some("not a message")),
        (&["get: \"a\""], Some("does not begin with /")),
        (&["get: \"/a\" body: \"*\""], Some("GET has no body")),
        (&["post: \"/a\" body: \"nope\""], Some("no field `nope` for the body")),
        (&["post: \"/a/{m.a}\" body: \"m\""], None),
        (&["post: \"/a/{a}\" body: \"a\""], Some("the path and the body are both `a`")),
        (&["get: \"/a\" response_body: \"nope\""], Some("for the response")),
        (&["body: \"*\""], Some("the rule has no path")),
        (&["custom: { kind: \"A B\" path: \"/a\" }"], Some("not an HTTP method")),
        (
            &["get: \"/a\" additional_bindings { get: \"/b\" additional_bindings { get: \"/c\" } }"],
            Some("stand in additional_bindings"),
        ),
        (&["stream post: \"/a\""], Some("a stream of requests needs")),
        (&["stream post: \"/a/{a}\" body: \"*\""], Some("a stream of requests needs")),
        (
            &["get: \"/a/{a}\"", "get: \"/a/{m.a}\""],
            Some(
                "the same requests are bound again, and the last rule counts: /t.S/R1 (t.proto:7) has /a/{m.a}",
            ),
        ),
    ] {
        let api = with_rules(rules);
        let found: Vec<String> = api.refused().iter().map(ToString::to_string).collect();
        match (wrong, &found[..]) {
            (None, []) => {}
            (Some(wrong), [one]) => {
                assert!(one.contains(wrong), "{rules:?}: {one}");
                assert!(one.starts_with("t.proto:5: t.S/R0: "), "{rules:?}: {one}");
                assert_eq!(api.refused()[0].method, "t.S/R0");
            }
            _ => panic!("{rules:?}: {found:?}"),
        }
    }
}

/// A service may have field names of any length: reports shorten them.
#[test]
fn what_is_told_is_short() {
    let api = with_rules(&[&format!("get: \"/a/{{{}}}\"", "n".repeat(100_000))]);
    assert!(api.refused()[0].message.len() < 500);
}

#[test]
fn the_other_rules_are_served() {
    let api = with_rules(&[
        "get: \"/a/{nope}\" additional_bindings { get: \"/b/{a}\" }",
        "get: \"/a/{a}:x\"",
        "delete: \"/c/{a}\"",
        "delete: \"/c/default\" body: \"nope\"",
        "post: \"/same\" body: \"*\"",
        "post: \"/same\" body: \"*\"",
        "get: \"no slash\"",
    ]);
    let found = |method: &str, path: &str| match api.find(method, path.as_bytes()) {
        Lookup::Call(call) => api.method(&call).unwrap().name.clone(),
        Lookup::Refused(why) => format!("refused {}", why.method),
        other => format!("{other:?}"),
    };
    for (method, path, want) in [
        ("GET", "/b/1", "R0"),
        ("GET", "/a/1:x", "R1"),
        ("GET", "/a/1", "refused t.S/R0"),
        ("DELETE", "/c/7", "R2"),
        // Not R2 with `default` as its id: the author of R3 did not intend that.
        ("DELETE", "/c/default", "refused t.S/R3"),
        // The handler that grpc-gateway registers last wins.
        ("POST", "/same", "R5"),
    ] {
        assert_eq!(found(method, path), want, "{method} {path}");
    }
    let refused: Vec<&str> = api.refused().iter().map(|rule| rule.method.as_str()).collect();
    assert_eq!(refused, ["t.S/R0", "t.S/R3", "t.S/R4", "t.S/R6"]);
    assert_eq!(api.bindings(), 4);
}

/// A PATCH's mask lists the fields that its body sets, as in grpc-gateway.
#[test]
fn a_mask_names_what_the_body_sets() {
    let proto = "syntax = \"proto3\"; package t; import \"google/api/annotations.proto\"; import \"google/protobuf/field_mask.proto\";
        import \"google/protobuf/struct.proto\"; import \"google/protobuf/timestamp.proto\"; import \"google/protobuf/wrappers.proto\";
        message Thing { string name = 1; Inner inner_part = 2; repeated Inner parts = 3; map<string, Inner> by_name = 4;
          google.protobuf.Struct meta = 5; google.protobuf.Timestamp at = 6; google.protobuf.Int64Value size = 7; Thing next = 8; }
        message Inner { string a_b = 1; int32 c = 2; }
        message Update { Thing thing = 1; google.protobuf.FieldMask what = 2; }
        message Both { Thing thing = 1; google.protobuf.FieldMask read_mask = 2; google.protobuf.FieldMask update_mask = 3; }
        message Many { Thing thing = 1; google.protobuf.FieldMask one = 2; google.protobuf.FieldMask two = 3; }
        service S {
          rpc A(Update) returns (Update) { option (google.api.http) = { patch: \"/a\" body: \"thing\" additional_bindings { put: \"/a\" body: \"thing\" } }; }
          rpc B(Both) returns (Both) { option (google.api.http) = { patch: \"/b\" body: \"thing\" }; }
          rpc C(Many) returns (Many) { option (google.api.http) = { patch: \"/c\" body: \"thing\" }; }
          rpc D(Update) returns (Update) { option (google.api.http) = { patch: \"/d\" body: \"*\" }; } }";
    let api = api_of(proto, &Choice::default()).unwrap();
    let mask = |method: &str, path: &str, body: &str, of: &str, field: &str| {
        let mut out = Vec::new();
        let request = Request { query: None, media: b"application/json", body: body.as_bytes() };
        api.request(&call(&api, method, path), &request, &mut out).unwrap();
        let mut json = Vec::new();
        api.print(of, &out, &mut json).unwrap();
        serde_json::from_slice::<Value>(&json).unwrap()[field].clone()
    };
    for (body, want) in [
        (r#"{"name":"x"}"#, json!("name")),
        (r#"{"innerPart":{"aB":"1","c":2},"name":null}"#, json!("innerPart.aB,innerPart.c,name")),
        (r#"{"inner_part":{}}"#, json!("innerPart")),
        (r#"{"parts":[{"c":1}],"byName":{"k":{"c":1}}}"#, json!("parts,byName")),
        (r#"{"meta":{"a":{"b":1}},"at":"2026-01-01T00:00:00Z","size":"1"}"#, json!("meta,at,size")),
        (r#"{"next":{"next":{"innerPart":{"c":0}}}}"#, json!("next.next.innerPart.c")),
        ("{}", Value::Null),
        ("", Value::Null),
    ] {
        assert_eq!(mask("PATCH", "/a", body, "t.Update", "what"), want, "{body}");
        assert_eq!(mask("PUT", "/a", body, "t.Update", "what"), Value::Null, "{body}");
    }
    // A mask is limited, since each path may repeat many names.
    let pool = sources::from_source("t.proto", proto).unwrap();
    let limits = Limits { message: 30, ..Limits::default() };
    let small = Api::new(&pool, &Choice::default(), JsonOptions::default(), limits).unwrap();
    let long = br#"{"innerPart":{"aB":"1","c":2},"name":null}"#;
    let request = Request { query: None, media: b"application/json", body: long };
    let told = small.request(&call(&small, "PATCH", "/a"), &request, &mut Vec::new()).unwrap_err();
    assert_eq!(told.to_string(), "what: the mask of all fields in the body is longer than 30 bytes");
    let body = r#"{"name":"x"}"#;
    assert_eq!(mask("PATCH", "/b", body, "t.Both", "updateMask"), "name");
    assert_eq!(mask("PATCH", "/b", body, "t.Both", "readMask"), Value::Null);
    assert_eq!(mask("PATCH", "/c", body, "t.Many", "one"), Value::Null, "nobody knows which");
    assert_eq!(mask("PATCH", "/d", r#"{"thing":{"name":"x"}}"#, "t.Update", "what"), Value::Null);
}

#[test]
fn services_can_be_chosen() {
    let proto = include_str!("library.proto");
    let none = api_of(proto, &Choice { services: vec!["library.v1.Nope".to_owned()], ..Choice::default() });
    assert_eq!(none.unwrap_err(), [": there is no service `library.v1.Nope`; there is library.v1.Library"]);
    let some =
        api_of(proto, &Choice { services: vec!["library.v1.Library".to_owned()], ..Choice::default() })
            .unwrap();
    assert_eq!(some.find("POST", b"/library.v1.Library/Unannotated"), Lookup::Nothing);
}
