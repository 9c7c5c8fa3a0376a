//! What expressions come to on one exchange.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod shared;

use shared::{BODY, Exchange, REQUEST, condition, holds, schema, text};
use weir_expr::template::{Piece, pieces, whole};
use weir_expr::{Condition, Expression, Template};

#[test]
fn conditions() {
    for (source, expected) in [
        (r#"request.method == "GET" && request.headers["x-env"] == "blue""#, true),
        (r#"request.headers["X-ENV"] == "blue""#, true),
        (r#"request.headers.accept == "text/html, application/json""#, true),
        (r#"request.headers["accept"].all().exists(a, a == "application/json")"#, true),
        (r#"size(request.headers["accept"].all()) == 2"#, true),
        (r#"size(request.headers["none"].all()) == 0"#, true),
        (r#"request.headers["none"] == """#, true),
        (r#"request.headers["none"] != "x""#, true),
        (r#"has(request.headers["none"])"#, false),
        (r#"has(request.headers["x-empty"])"#, true),
        (r#"has(request.headers["x-" + "empty"])"#, true),
        (r#"has(request.headers["x-" + request.method])"#, false),
        (r#""x-env" in request.headers"#, true),
        (r#""none" in request.headers"#, false),
        (r#"request.cookies["beta"] == "1" && !(client.ip in ["192.168.0.0/16", "::1"])"#, true),
        (r#"client.ip in ["192.168.0.0/16", "10.0.0.0/8"]"#, true),
        (r#"client.ip in []"#, false),
        (r#"client.ip == "10.1.2.3""#, true),
        (r#""10.1.2.4" == client.ip"#, false),
        (r#"(ip(request.headers["x-real-ip"]) ?? client.ip) in ["10.0.0.0/8"]"#, true),
        (r#"request.size > 1024 || maps.tenants == "free""#, true),
        ("1024 < request.size", true),
        ("request.size != 2048", false),
        ("request.size > 2047.5", true),
        (r#"request.method in ["GET", "HEAD"]"#, true),
        (r#"request.method in ["POST"]"#, false),
        (r#"request.method in []"#, false),
        (r#"!(request.method in ["POST"])"#, true),
        (r#"request.path.startsWith("/users/") && request.path.endsWith("orders")"#, true),
        (r#"request.path.contains("/7/")"#, true),
        (r#"request.path.matches(r"^/users/[0-9]+/")"#, true),
        (r#"request.path.matches("^/orders")"#, false),
        (r#"request.params.id == "7""#, true),
        (r#"int(request.params.id) ?? 0 == 7"#, true),
        (r#"int(request.headers["x-count"]) ?? 0 > 10"#, true),
        (r#"int(request.headers["x-env"]) ?? 0 > 10"#, false),
        ("client.port ?? 0 == 0", true),
        ("has(client.port)", false),
        ("client.tls", true),
        ("client.tls == true", true),
        (r#"jwt.sub == "u1""#, true),
        ("jwt.level == 5", true),
        ("(jwt.level > 4) ?? false", true),
        ("(jwt.sub > 4) ?? false", false),
        (r#"jwt.none == "u1""#, false),
        (r#"jwt.none != "u1""#, true),
        ("jwt.none == jwt.none", false),
        ("has(jwt.sub) && !has(jwt.none)", true),
        (r#""ops" in jwt.roles"#, true),
        (r#""ops" in jwt.sub"#, false),
        (r#""ops" in jwt.none"#, false),
        (r#"jwt.roles.exists(r, r == "dev") ?? false"#, true),
        (r#"jwt.sub.exists(r, r == "dev") ?? false"#, false),
        ("timestamp(int(jwt.exp) ?? 0) ?? now > now", true),
        (r#""ops" in consumer.groups"#, true),
        ("request.body.user.id == 7", true),
        ("request.body.user.id == 7.0", true),
        ("request.body.user.id == \"7\"", false),
        ("request.body.user.none == null", true),
        ("request.body.user.missing == null", false),
        ("has(request.body.user.none)", true),
        ("has(request.body.user.missing.deep)", false),
        ("request.body.user.admin == true", true),
        ("request.body[\"items\"][1].sku == \"b\"", true),
        ("request.body.items[9].sku == \"b\"", false),
        ("request.body.items.all(i, int(i.n) ?? 0 > 1) ?? false", true),
        ("request.body.items.map(i, i.sku) ?? [] == [\"a\", \"b\"]", true),
        ("request.body.tags == [\"x\", \"y\"]", true),
        ("request.body.big == 9223372036854775808u", true),
        ("request.body.half == 0.5", true),
        ("request.body.user.name < \"bob\"", true),
        ("response.status in [200, 204]", true),
        ("response.status / 100 == 2", true),
        (r#"{"a": 1, "b": 2}[jwt.sub] ?? 3 == 3"#, true),
        (r#"duration("90s") > duration("1m")"#, true),
        (r#"now.getFullYear() == 2026"#, true),
        (r#"request.headers["x-bytes"] == b"\xff\xfe""#, true),
        (r#"base64.decode("dXNlcjpwYXNz").startsWith("user:")"#, true),
        (r#"hex.encode(sha256("abc")).startsWith("ba7816bf")"#, true),
        ("true ? 1 < 2 : false", true),
    ] {
        assert_eq!(holds(source), expected, "{source}");
    }
}

#[test]
fn texts() {
    for (source, expected) in [
        (r#"request.cookies["sid"] ?? client.ip"#, "10.1.2.3"),
        (r#"request.headers["none"] ?? request.cookies.beta ?? "x""#, "1"),
        (r#"request.headers["x-empty"] ?? "default""#, "default"),
        (r#"jwt.sub"#, "u1"),
        (r#""user " + jwt.sub + "/" + jwt.none"#, "user u1/"),
        (r#"jwt.none"#, "ABSENT"),
        (r#"request.body.items.map(i, i.sku)"#, r#"["a","b"]"#),
        (r#"request.body.items"#, r#"[{"sku":"a","n":2},{"sku":"b","n":3}]"#),
        (r#"request.body.items.filter(i, i.n == 3)"#, r#"[{"sku":"b","n":3}]"#),
        (r#"request.path.split("/")[2]"#, "7"),
        (r#"request.path.split("/")[9]"#, ""),
        (r#"request.path.split("/", 2)[1]"#, "users/7/orders"),
        (r#"request.path.replace("/", ".")"#, ".users.7.orders"),
        (r#"request.path.replace("/", ".", 1)"#, ".users/7/orders"),
        (r#"request.path.substring(1, 6).upperAscii()"#, "USERS"),
        (r#"request.path.substring(99)"#, ""),
        (r#""äöü".substring(1, 2) + string(size("äöü"))"#, "ö3"),
        (r#"["a", "b"].join("-")"#, "a-b"),
        (r#"request.body.tags.join(",")"#, "x,y"),
        (r#"url.encode("a b/ü") + url.decode("%41+")"#, "a%20b%2F%C3%BCA+"),
        (r#"base64.encode("user:pass")"#, "dXNlcjpwYXNz"),
        (r#"base64.decode("no base64!")"#, ""),
        (r#"hex.decode("6g")"#, ""),
        (r#"int("9223372036854775807") + 1"#, "9223372036854775807"),
        ("-9223372036854775808 - 1", "-9223372036854775808"),
        ("1u - 2u", "0"),
        ("7 / (request.size - 2048)", "ABSENT"),
        ("7 % (request.size - 2048) ?? 5", "5"),
        ("-9223372036854775808 / -1", "9223372036854775807"),
        ("1.5 + 2.0", "3.5"),
        ("1.0 / 0.0", "inf"),
        (r#"string(duration("1h1.5s"))"#, "3601.5s"),
        (r#"string(timestamp("2009-02-13T23:31:30.5+01:00"))"#, "2009-02-13T22:31:30.5Z"),
        (r#"request.method == "GET" ? "read" : "write""#, "read"),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * 2)", "[4,6]"),
        ("[1, 2].map(x, [3, 4].map(y, x * y))", "[[3,4],[6,8]]"),
        (r#"request.headers["accept"].all().map(x, x.size())"#, "[9,16]"),
        (r#"{"id": request.params.id, "n": [request.size]}"#, r#"{"id":"7","n":[2048]}"#),
    ] {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn conditions_that_exclude_each_other() {
    let get = r#"request.method == "GET""#;
    for (a, b, expected) in [
        (get, r#"request.method == "POST""#, true),
        (get, r#""POST" == request.method"#, true),
        (get, get, false),
        (get, r#"request.method != "GET""#, false),
        (get, r#"request.path == "POST""#, false),
        (get, r#"request.size > 1 && request.method == "PUT""#, true),
        (get, r#"request.size > 1 || request.method == "PUT""#, false),
        (get, r#"request.method in ["PUT", "POST"]"#, true),
        (get, r#"request.method in ["PUT", "GET"]"#, false),
        (r#"request.headers["x"] == "a""#, r#"request.headers["y"] == "b""#, false),
        (r#"request.headers["X"] == "a""#, r#"request.headers.x == "b""#, true),
        (r#"request.headers["x"] == "a""#, r#"!has(request.headers["x"])"#, true),
        (r#"request.headers["x"] == """#, r#"!has(request.headers["x"])"#, false),
        (r#"has(request.headers["x"])"#, r#"!has(request.headers["x"])"#, true),
        ("request.size == 1", "request.size == 2", true),
        ("request.size == 1", "request.size > 2", false),
    ] {
        let (a, b) = (condition(a), condition(b));
        assert_eq!((a.excludes(&b), b.excludes(&a)), (expected, expected), "{a:?} {b:?}");
    }
}

#[test]
fn what_an_expression_reads() {
    let source = r#"request.headers["Authorization"] == "x" || request.headers["x-" + request.method] == "" || jwt.sub == "a""#;
    let condition = condition(source);
    let reads: Vec<_> = condition
        .reads()
        .iter()
        .map(|read| (read.var.0, read.key.as_deref(), read.is_computed, &source[read.range.clone()]))
        .collect();
    assert_eq!(
        reads,
        [
            (3, Some("authorization"), false, r#"request.headers["Authorization"]"#),
            (0, None, false, "request.method"),
            (3, None, true, r#"request.headers["x-" + request.method]"#),
            (10, Some("sub"), false, "jwt.sub"),
        ]
    );
    assert_eq!(condition.phase(), shared::CONSUMER);
}

#[test]
fn templates() {
    let render = |text: &str| {
        let template = Template::compile(text, &schema(), shared::RESPONSE).unwrap();
        let mut out = Vec::new();
        template.render(&Exchange::default(), &mut out, |value, out| {
            out.extend(value.iter().map(|b| if *b == b'<' { b'_' } else { *b }));
        });
        String::from_utf8(out).unwrap()
    };
    for (text, expected) in [
        ("", ""),
        ("plain {client} {{x}} }", "plain {client} {{x}} }"),
        ("{= request.method } {=request.params.id}", "GET 7"),
        ("<{= '<' + request.method }>", "<_GET>"),
        (r#"{= "}" + request.method }"#, "}GET"),
        (r#"{= {"a": "b"}["a"] }"#, "b"),
        ("{{= x}}", "{= x}"),
        ("a{{= request.method }}b{= request.method }", "a{= request.method }bGET"),
        ("{= jwt.none }", ""),
        ("{= '''a}'b''' }", "a}'b"),
    ] {
        assert_eq!(render(text), expected, "{text}");
    }
    assert_eq!(
        pieces("{a}{= b }{{= c }}"),
        Ok(vec![Piece::Text("{a}"), Piece::Expression(" b ", 5), Piece::Literal("{= c }")])
    );
    assert_eq!(whole("= a"), Some(("a", 2)));
    assert_eq!(whole("=a"), None);
    let mistakes = Template::compile("a {= request.metod } b {= 1 + }", &schema(), REQUEST).unwrap_err();
    let ranges: Vec<_> = mistakes.iter().map(|mistake| mistake.range.clone()).collect();
    assert_eq!(ranges, [5..18, 30..30]);
    for text in ["{= a", "{= 'a }", "{{= a }", "x {= }"] {
        assert!(Template::compile(text, &schema(), REQUEST).is_err(), "{text}");
    }
}

#[test]
fn borrowed_text_is_not_copied() {
    let exchange = Exchange::default();
    for source in
        ["request.path", "request.path.substring(1)", "request.path.split(\"/\")[1]", "request.path ?? \"\""]
    {
        let expression = Expression::compile(source, &schema(), REQUEST).unwrap();
        match expression.value(&exchange) {
            weir_expr::Value::Text(std::borrow::Cow::Borrowed(_)) => {}
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn texts_that_grow_stay_bounded() {
    // Each level makes the text 16 times as long: 16^6 bytes without a bound.
    let mut source = "\"aaaaaaaaaaaaaaaa\" + request.method".to_owned();
    for _ in 0..6 {
        source = format!("({source}).replace(\"a\", \"aaaaaaaaaaaaaaaa\")");
    }
    let source = format!("size({source}) == 0");
    assert!(holds(&source));
}

#[test]
fn long_lists_of_json_have_no_value() {
    let exchange = Exchange { body: serde_json::json!(vec![1; 1_001]), ..Exchange::default() };
    let is = |source: &str| condition(source).holds(&exchange);
    assert!(!is("1 in request.body"));
    assert!(!is("request.body.exists(x, x == 1) ?? false"));
    assert!(is("request.body.all(x, x == 2) ?? true"));
    assert!(is("size(request.body) ?? 0 == 1001"));
}

/// A short list and a long text beside it cost as much as a long list of long texts, which no body of that length is.
#[test]
fn long_texts_of_json_are_not_looked_at_for_ever() {
    let (long, items) = (format!("{}z", "x".repeat(1_000_000)), vec![1; 1_000]);
    let numbers = vec![1; 20_000];
    let body = serde_json::json!({ "long": long, "items": items, "numbers": numbers, "same": numbers });
    let exchange = Exchange { body, ..Exchange::default() };
    let size = |source: &str| {
        let source = format!("size({source}) ?? -1");
        let expression = Expression::compile(&source, &schema(), BODY).unwrap();
        let mut out = Vec::new();
        expression.value(&exchange).write(&mut out);
        String::from_utf8(out).unwrap().parse::<i64>().unwrap()
    };
    let looked =
        |times: usize, test: &str| size(&format!("{}.filter(i, {test})", serde_json::json!(vec![1; times])));
    assert_eq!(looked(20, "request.body.long.contains(\"z\")"), 16, "16 MiB of them");
    assert_eq!(looked(20, "size(request.body.long) ?? 0 == 1000001"), 16);
    assert_eq!(looked(20, "request.body.numbers == request.body.same"), 13);
    assert_eq!(size("request.body.items.map(i, request.body.long)"), 1_000, "nothing is copied");
    let text = Expression::compile("request.body.items.map(i, request.body.long)", &schema(), BODY).unwrap();
    let mut out = Vec::new();
    text.value(&exchange).write(&mut out);
    assert_eq!(out.len(), 0, "a gigabyte");
}

#[test]
fn expressions_at_their_limits() {
    let compile = |source: &str| {
        Condition::compile(source, &schema(), REQUEST).map_err(|mistakes| mistakes[0].message.clone())
    };
    let nested = |n: usize| format!("{}true{}", "(".repeat(n), ")".repeat(n));
    assert!(compile(&nested(38)).is_ok());
    for source in [
        nested(40),
        nested(5_000),
        format!("{}true", "!".repeat(41)),
        format!("{}true", "!".repeat(10_000)),
        format!("0{} == 0", " + 1".repeat(70)),
        format!("request.body{} == 0", ".a".repeat(70)),
        format!("{}1{} == 1", "[".repeat(3_000), "]".repeat(3_000)),
        format!("{}true", "true ? true : ".repeat(100)),
    ] {
        let message = compile(&source).unwrap_err();
        assert_eq!(message, "this is nested deeper than 40 levels", "{}", &source[..50]);
    }
    assert!(compile(&format!("true{}", " && true".repeat(1_000))).is_ok(), "not nested");
    assert!(compile(&format!("true{}", " || true".repeat(3_000))).unwrap_err().contains("16384 bytes"));
    assert!(compile(&format!("1{} == 1", "&&1".repeat(4_100))).unwrap_err().contains("at most 4000 parts"));
    let expensive = "[1,2,3,4,5,6,7,8,9,10].all(a, request.headers[\"x\"].split(\",\").all(b, request.headers[\"y\"].split(\",\").all(c, b == c)))";
    assert!(compile(expensive).unwrap_err().contains("an expression has at most 1000000"));
    assert!(compile("request.path.matches(\"(a{1000}){1000}\")").unwrap_err().contains("too large"));
}
