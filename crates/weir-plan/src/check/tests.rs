//! Checks and what they say of answers.

use super::*;
use weir_h1::{FieldName, Fields};

fn judge(check: &str, status: u16, body: &str) -> Result<(), String> {
    let mut fields = Fields::default();
    fields.append(&FieldName::new("content-type").unwrap(), b"application/json; charset=utf-8").unwrap();
    let answer = Answer::new(status, &fields, body.as_bytes());
    let check = Check::parse(check).unwrap_or_else(|why| panic!("{check}: {why}"));
    check.judge(&answer, Duration::from_millis(250)).map_err(|failure| failure.to_string())
}

#[test]
fn checks_pass_and_fail() {
    for (check, status, body, want) in [
        ("status=200", 200, "", true),
        ("status=200", 204, "", false),
        ("status=2xx,304", 299, "", true),
        ("status=2xx,304", 304, "", true),
        ("status=2xx,304", 500, "", false),
        ("body~ell", 200, "hello", true),
        ("body~elx", 200, "hello", false),
        ("json:$.a.b[1]=5", 200, "{\"a\":{\"b\":[1,5]}}", true),
        ("json:$.a.b[1]=6", 200, "{\"a\":{\"b\":[1,5]}}", false),
        ("json:$['x y']=Ann", 200, "{\"x y\":\"Ann\"}", true),
        ("json:$.a", 200, "{\"a\":false}", true),
        ("json:$.a", 200, "{\"a\":null}", false),
        ("json:$.a.b", 200, "[1]", false),
        ("json:$=7", 200, "7", true),
        ("json:$=7", 200, "seven", false),
        ("json:$[*].id=2", 200, "[{\"id\":1},{\"id\":2}]", true),
        ("json:$..id=3", 200, "[{\"id\":1},{\"id\":2}]", false),
        ("header:content-type", 200, "", true),
        ("header:Content-Type~json", 200, "", true),
        ("header:content-type~xml", 200, "", false),
        ("header:content-type=application/json; charset=utf-8", 200, "", true),
        ("header:content-type=application/json", 200, "", false),
        ("header:etag", 200, "", false),
        ("size<5", 200, "hello", false),
        ("size<6", 200, "hello", true),
        ("p-max<251ms", 200, "", true),
        ("p-max<250ms", 200, "", false),
    ] {
        assert_eq!(judge(check, status, body).is_ok(), want, "{check} on {status} {body:?}");
    }
}

#[test]
fn a_failure_says_what_there_was() {
    for (check, want) in [
        ("status=200", "status=200: 503"),
        ("body~x", "body~x: no such text"),
        ("json:$.a", "json:$.a: no such value"),
        ("json:$.token=t", "json:$.token=t: another value"),
        ("header:etag", "header:etag: no such field"),
        ("header:content-type=a", "header:content-type=a: another value"),
        ("size<5", "size<5: 18 bytes"),
        ("p-max<1ms", "p-max<1ms: 250 ms"),
    ] {
        assert_eq!(judge(check, 503, "{\"token\":\"secret\"}"), Err(want.to_owned()));
    }
}

#[test]
fn the_beginning_of_a_longer_body_is_no_json() {
    let fields = Fields::default();
    for check in ["json:$=12", "json:$", "json:$[*]=12"] {
        let mut answer = Answer::new(200, &fields, b"12");
        answer.is_cut = true;
        let failure = Check::parse(check).unwrap().judge(&answer, Duration::ZERO).unwrap_err();
        assert_eq!(failure.seen, "a body longer than `body_limit`", "{check}");
    }
}

#[test]
fn codes_of_grpc_are_checked() {
    let fields = Fields::default();
    let (ok, lost) = (Code::named("OK"), Code::named("DATA_LOSS"));
    for (check, code, want) in [
        ("grpc=OK", ok, true),
        ("grpc=0", ok, true),
        ("grpc=OK", lost, false),
        ("grpc=ok,DataLoss", lost, true),
        ("grpc=OK", None, false),
    ] {
        let mut answer = Answer::new(200, &fields, b"");
        answer.code = code;
        let passes = Check::parse(check).unwrap().judge(&answer, Duration::ZERO).is_ok();
        assert_eq!(passes, want, "{check} on {code:?}");
    }
}

#[test]
fn what_is_no_check_is_refused() {
    for bad in [
        "grpc=",
        "grpc=Fine",
        "grpc=17",
        "",
        "status",
        "status=",
        "status=20",
        "status=6xx",
        "status=200;",
        "body~",
        "json:a",
        "json:$.",
        "json:$[x]",
        "json:$[1",
        "size<x",
        "size=5",
        "header:",
        "header:~x",
        "header:a~",
        "header:a<5",
        "p-max<2",
        "p-max>2s",
    ] {
        assert!(Check::parse(bad).is_err(), "{bad}");
    }
}
