//! Forms by OpenAPI: fields become JSON, and the schema decides. `servers` of paths and operations.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_schema::Fault;
use weir_schema::json::Limits;
use weir_schema::openapi::{Api, Body, Found};

const LIMITS: Limits = Limits { depth: 32, values: 10_000 };

fn load(text: &str) -> (Api, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.yaml");
    std::fs::write(&file, text).unwrap();
    let mut read = |path: &std::path::Path| std::fs::read(path).map_err(|e| e.to_string());
    Api::load(&file, None, false, &mut read).unwrap()
}

fn document(media: &str, schema: &str, encoding: &str) -> String {
    format!(
        "openapi: 3.1.0\ninfo: {{ title: t, version: '1' }}\npaths:\n  /f:\n    post:\n      requestBody:\n        content:\n          \
         {media}:\n            schema: {schema}\n            encoding: {encoding}\n      responses: {{}}\n"
    )
}

fn faults(api: &Api, media: &str, body: &[u8]) -> Vec<String> {
    let Found::Operation(at, _) = api.find(b"POST", b"/f") else { panic!("no operation") };
    let Body::Form(form) = api.operation(at).unwrap().body(media.as_bytes()) else { panic!("no form") };
    let found = form.check(body, media.as_bytes(), LIMITS).err().unwrap_or_default();
    found.iter().map(Fault::to_text).collect()
}

const URL: &str = "application/x-www-form-urlencoded";

#[test]
fn urlencoded() {
    let schema = "{ type: object, required: [ id ], additionalProperties: false, properties: { id: { type: integer, minimum: 1 }, \
                  code: { type: string, pattern: '^[0-9]+$' }, on: { type: boolean }, tags: { type: array, maxItems: 3, items: { type: string } }, \
                  ids: { type: array, items: { type: integer } }, where: { type: object, properties: { x: { type: number } }, required: [ x ] }, \
                  deep: { type: object, properties: { a: { type: integer } } } } }";
    let (api, notes) =
        load(&document(URL, schema, "{ deep: { style: deepObject }, ids: { style: form, explode: false } }"));
    assert!(notes.is_empty(), "{notes:?}");
    for good in [
        "id=7",
        "id=7&code=0123&on=true",
        "id=7&tags=a&tags=b+c&tags=%C3%A9",
        "id=7&ids=1,2,3",
        "id=7&where=%7B%22x%22%3A1.5%7D",
        "id=7&deep%5Ba%5D=1",
        "&id=7&",
    ] {
        assert_eq!(faults(&api, URL, good.as_bytes()), Vec::<String>::new(), "{good}");
    }
    for (bad, told) in [
        ("", "required"),
        ("code=1", "\"id\" is a required property"),
        ("id=x", "body /id"),
        ("id=0", "body /id"),
        ("id=1.0", "body /id"),
        ("id=7&id=8", "body /id: is given more than once"),
        ("id=7&code=a", "body /code"),
        ("id=7&on=yes", "body /on"),
        ("id=7&tags=a&tags=b&tags=c&tags=d", "body /tags"),
        ("id=7&ids=1,b", "body /ids"),
        ("id=7&where=%7B%22x%22%3A", "body /where: is not taken as JSON"),
        ("id=7&where=%7B%22x%22%3A1,%22x%22%3A2%7D", "body /where: is not taken as JSON"),
        ("id=7&where=%7B%7D", "body /where"),
        ("id=7&deep%5Ba%5D=x", "body /deep"),
        ("id=7&deep=1&deep%5Ba%5D=1", "body /deep: is given more than once"),
        ("id=7&other=1", "other"),
        ("id=7&%69d2=1", "id2"),
        ("id=7&tags=%zz", "percent-encoded"),
        ("id=7&x=%ff", "percent-encoded"),
    ] {
        let found = faults(&api, URL, bad.as_bytes()).join("\n");
        assert!(found.contains(told), "{bad}: {found}");
    }
    let many = "a=1&".repeat(2000);
    assert!(faults(&api, URL, many.as_bytes()).join("\n").contains("more than 1024 fields"));
    // Named twice, once encoded: one field to every parser.
    assert!(faults(&api, URL, b"id=7&i%64=8").join("\n").contains("more than once"));
}

#[test]
fn multipart() {
    let schema = "{ type: object, required: [ id, photo ], properties: { id: { type: integer }, note: { type: string, maxLength: 5 }, \
                  photo: { type: string, format: binary, maxLength: 8 }, more: { type: array, maxItems: 2, items: { type: string, format: binary } }, \
                  where: { type: object, required: [ x ], properties: { x: { type: number } } } } }";
    let (api, _) =
        load(&document("multipart/form-data", schema, "{ photo: { contentType: 'image/png, image/*' } }"));
    let media = "multipart/form-data; boundary=B";
    let form = |parts: &[(&str, &[u8])]| {
        let mut body = Vec::new();
        for (head, content) in parts {
            body.extend_from_slice(
                format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n").as_bytes(),
            );
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--B--\r\n");
        body
    };
    let photo: (&str, &[u8]) =
        ("name=\"photo\"; filename=\"a.png\"\r\nContent-Type: image/png", b"\x89PNG\xff\x00");
    let id: (&str, &[u8]) = ("name=\"id\"", b"7");
    let json = ("name=\"where\"\r\nContent-Type: application/json", &b"{\"x\":1}"[..]);
    let more = ("name=\"more\"; filename=\"b\"", &b"\xff"[..]);
    for good in [
        vec![id, photo],
        vec![photo, json, id],
        vec![id, photo, more, more],
        vec![id, photo, ("name=\"other\"", b"\xff")],
    ] {
        assert_eq!(faults(&api, media, &form(&good)), Vec::<String>::new(), "{good:?}");
    }
    for (bad, told) in [
        (vec![id], "\"photo\" is a required property"),
        (vec![("name=id", &b"x"[..]), photo], "body /id"),
        (vec![id, id, photo], "body /id: is given more than once"),
        (
            vec![id, ("name=photo\r\nContent-Type: text/html", b"x")],
            "body /photo: has a media type that is not described",
        ),
        (vec![id, ("name=photo", b"x")], "body /photo: has a media type that is not described"),
        (vec![id, ("name=photo\r\nContent-Type: image/gif", b"123456789")], "body /photo"),
        (vec![id, photo, ("name=note", b"123456")], "body /note"),
        (vec![id, photo, ("name=note", b"\xff")], "body /note: is not UTF-8"),
        (vec![id, photo, ("name=where", b"{}")], "body /where"),
        (vec![id, photo, ("name=where\r\nContent-Type: text/plain", b"{\"x\":1}")], "other than JSON"),
        (vec![id, photo, more, more, more], "body /more"),
    ] {
        let found = faults(&api, media, &form(&bad)).join("\n");
        assert!(found.contains(told), "{bad:?}: {found}");
    }
    assert!(faults(&api, "multipart/form-data", &form(&[id])).join("").contains("no boundary"));
    assert!(faults(&api, media, b"id=7").join("").contains("does not begin with its boundary"));
}

#[test]
fn servers_of_paths_and_operations() {
    let (api, notes) = load(
        "openapi: 3.0.3\ninfo: { title: t, version: '1' }\nservers: [ { url: 'https://a/v1' } ]\npaths:\n  /plain: { get: { responses: {} } }\n  \
         /path: { servers: [ { url: 'https://files.a/files' }, { url: /f }  ], get: { responses: {} }, put: { servers: [ { url: 'https://u/up' } ], responses: {} } }\n",
    );
    assert!(notes.is_empty(), "{notes:?}");
    let find = |method: &str, path: &str| match api.find(method.as_bytes(), path.as_bytes()) {
        Found::NoMethod(methods) => methods.join(","),
        Found::NoPath => "none".to_owned(),
        Found::Operation(at, _) => api.operation(at).unwrap().name.clone(),
    };
    for (method, path, expected) in [
        ("GET", "/v1/plain", "GET /plain"),
        ("GET", "/files/plain", "none"),
        ("GET", "/plain", "none"),
        ("GET", "/files/path", "GET /path"),
        ("GET", "/f/path", "GET /path"),
        ("GET", "/v1/path", "none"),
        ("PUT", "/up/path", "PUT /path"),
        ("PUT", "/files/path", "GET"),
        ("GET", "/up/path", "PUT"),
    ] {
        assert_eq!(find(method, path), expected, "{method} {path}");
    }
}
