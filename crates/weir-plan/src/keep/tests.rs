//! Values kept from answers: sources, filters, limits.

use super::*;
use crate::scope::Shared;
use weir_h1::{FieldName, Fields};

fn keep(text: &str) -> Keep {
    let read = crate::read::keep_for_tests(text);
    let (source, filters, is_optional) = read.unwrap_or_else(|why| panic!("{text}: {why}"));
    Keep {
        name: "x".into(),
        text: text.to_owned(),
        slot: Slot::User(0),
        source,
        filters: filters.into(),
        is_optional,
    }
}

fn take(text: &str, body: &str, is_cut: bool) -> Result<String, KeepProblem> {
    let mut fields = Fields::default();
    for (name, value) in [
        ("etag", "\"v1\""),
        ("set-cookie", "sid=abc; Path=/"),
        ("set-cookie", "theme = dark"),
        ("link", "a"),
        ("link", "b"),
        ("x-count", "42"),
    ] {
        fields.append(&FieldName::new(name).unwrap(), value.as_bytes()).unwrap();
    }
    let mut answer = Answer::new(201, &fields, body.as_bytes());
    answer.is_cut = is_cut;
    let mut scope = Scope::new(&Arc::new(Shared::default()), Arc::new([]), 1, 0, 0);
    scope.set(Slot::User(0), Value::Text(b"before".to_vec()));
    let taken = keep(text).take(&answer, &mut scope, &mut Rng::with_seed(1));
    let mut out = Vec::new();
    scope.get(Slot::User(0)).write(&mut out);
    let out = String::from_utf8(out).unwrap();
    assert!(taken.is_ok() || out.is_empty(), "{text}: a failed keep leaves {out}");
    taken.map(|()| out).map_err(|failure| failure.why)
}

#[test]
fn values_are_kept() {
    let json = r#"{"token":"t1","n":7,"none":null,"list":["a","b"],"items":[{"id":1},{"id":"two"}],"f":1.5}"#;
    for (text, body, want) in [
        ("json:$.token", json, "t1"),
        ("json:$.n", json, "7"),
        ("json:$.f", json, "1.5"),
        ("json:$.list", json, r#"["a","b"]"#),
        ("json:$.list|first", json, "a"),
        ("json:$.list|last", json, "b"),
        ("json:$.list|count", json, "2"),
        ("json:$.items[*].id", json, r#"[1,"two"]"#),
        ("json:$.items[*].id|first", json, "1"),
        ("json:$.items[*].id|last", json, "two"),
        ("json:$.items[*].id|first|int", json, "1"),
        ("json:$.items[*].id|count", json, "2"),
        ("json:$..nothing|count", json, "0"),
        ("json:$.items[0]", json, r#"{"id":1}"#),
        ("json:$.missing|optional", json, ""),
        ("json:$.none|optional", json, ""),
        ("json:$.missing|default:a b", json, "a b"),
        ("json:$.missing|default:", json, ""),
        ("json:$.a|optional", "<html>", ""),
        ("json:$.a|default:x", "<html>", "x"),
        ("header:ETag", "", "\"v1\""),
        ("header:link", "", "a"),
        ("header:link|last", "", "b"),
        ("header:link|count", "", "2"),
        ("header:none|count", "", "0"),
        ("header:x-count|int", "", "42"),
        ("cookie:sid", "", "abc"),
        ("cookie:theme", "", "dark"),
        ("status", "", "201"),
        ("body~name=\"csrf\" value=\"([^\"]+)\"", r#"<input name="csrf" value="s3">"#, "s3"),
        ("body~id=(\\d+)|last", "id=1 id=22", "22"),
        ("body~(a|b)x", "bx ax", "b"),
        ("body~(a|b)x|count", "bx ax", "2"),
        ("body~(first|second)", "second", "second"),
    ] {
        assert_eq!(take(text, body, false).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn what_cannot_be_kept_is_told() {
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(VALUE_BYTES + 1));
    let many = format!("[{}1]", "1,".repeat(MATCHES));
    for (text, body, is_cut, want) in [
        ("json:$.a", "{}", false, KeepProblem::Missing),
        ("json:$.a", r#"{"a":null}"#, false, KeepProblem::Missing),
        ("json:$.a", "<html>", false, KeepProblem::NotJson),
        ("json:$.a", r#"{"a":1"#, true, KeepProblem::Cut),
        ("json:$", "1234", true, KeepProblem::Cut),
        ("json:$.a", r#"{"a":1} "#, true, KeepProblem::Cut),
        ("json:$[*]|last", "[1,2]", true, KeepProblem::Cut),
        ("json:$.a|default:x", r#"{"b":1}"#, true, KeepProblem::Cut),
        ("body~id=(\\d+)", "a id=12", true, KeepProblem::Cut),
        ("body~id=(\\d+)|last", "id=1, id=2, ", true, KeepProblem::Cut),
        ("body~(x)", "aaa", true, KeepProblem::Cut),
        ("body~(x)|optional", "aaa", true, KeepProblem::Cut),
        ("header:none", "", true, KeepProblem::Missing),
        ("json:$.a|int", r#"{"a":"x"}"#, false, KeepProblem::NotInt),
        ("json:$.a|int", r#"{"a":1.5}"#, false, KeepProblem::NotInt),
        ("json:$.a", &long, false, KeepProblem::TooLong),
        ("json:$", &long, false, KeepProblem::TooLong),
        ("body~(x+)", &long, false, KeepProblem::TooLong),
        ("json:$[*]", &many, false, KeepProblem::TooMany),
        ("json:$[*]|first", "[]", false, KeepProblem::Missing),
    ] {
        assert_eq!(take(text, body, is_cut), Err(want), "{text}");
    }
    assert_eq!(take("body~(x)", "xaa", true).as_deref(), Ok("x"), "the beginning holds it");
    assert_eq!(take("body~id=(\\d+)|first", "id=12 id=", true).as_deref(), Ok("12"));
}

#[test]
fn a_random_choice_reaches_every_match() {
    let mut seen = std::collections::BTreeSet::new();
    let mut random = Rng::with_seed(3);
    let answer_fields = Fields::default();
    for _ in 0..100 {
        let answer = Answer::new(200, &answer_fields, b"[1,2,3]");
        let mut scope = Scope::new(&Arc::new(Shared::default()), Arc::new([]), 1, 0, 0);
        keep("json:$[*]|random").take(&answer, &mut scope, &mut random).unwrap();
        let mut out = Vec::new();
        scope.get(Slot::User(0)).write(&mut out);
        seen.insert(out);
    }
    assert_eq!(seen.len(), 3);
}
