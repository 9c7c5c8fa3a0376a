//! Tests of the readers: each form, what is no request, and hostile bytes.

use super::*;
use std::fmt::Write as _;

/// What a recording says, one line a record.
fn read(form: &Form, bytes: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(form.clone(), bytes);
    let mut all = Vec::new();
    while let Some((line, record)) = reader.record().unwrap() {
        let mut text = format!("{line}: ");
        match record {
            Ok(Record::Request(r)) => {
                let _ =
                    write!(text, "{} {} {} @{}", r.method, r.host.as_deref().unwrap_or("-"), r.target, r.at);
                if !r.client.is_empty() {
                    let _ = write!(text, " by {}", r.client);
                }
                for (name, value) in &r.fields {
                    let _ = write!(text, " {name}={}", String::from_utf8_lossy(value));
                }
                if let Some(body) = &r.body {
                    let _ = write!(text, " body {:?}", String::from_utf8_lossy(body));
                }
                if r.then != Then::default() {
                    let _ = write!(
                        text,
                        " then {:?} {:?} {:?}",
                        r.then.status, r.then.took_ns, r.then.body_bytes
                    );
                }
            }
            Ok(Record::Response(id, then)) => {
                let _ =
                    write!(text, "response {id} {:?} {:?} {:?}", then.status, then.took_ns, then.body_bytes);
            }
            Err(why) => text.push_str(why),
        }
        all.push(text);
    }
    all
}

/// Reads a recording whose form is recognized.
fn recognized(name: &str, bytes: &[u8]) -> Vec<String> {
    let form = Form::of(bytes).unwrap_or_else(|| panic!("{name} is not recognized"));
    assert_eq!(form.name(), name);
    read(&form, bytes)
}

const S: i128 = 1_000_000_000;

#[test]
fn access_logs_as_text_are_recognized_and_read() {
    let combined =
        br#"10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://r/" "A \"q\" 5"
10.0.0.2 - bob [10/Oct/2000:13:55:37 -0700] "\x16\x03\x01" 400 0 "-" "-"
nonsense
10.0.0.3 - - [10/Oct/2000:13:55:38 -0700] "GET http://other.example/x HTTP/1.1" 404 - "-" "-"
"#;
    let at = 971_211_336;
    assert_eq!(
        recognized("combined", combined),
        [
            format!(
                "1: GET - /a?b=c @{} by 10.0.0.1 referer=http://r/ user-agent=A \"q\" 5 then Some(200) None Some(2326)",
                at * S
            ),
            "2: no request".to_owned(),
            "3: unreadable".to_owned(),
            format!("4: GET other.example /x @{} by 10.0.0.3 then Some(404) None None", (at + 2) * S),
        ]
    );
    let common = br#"10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "POST /a HTTP/1.0" 404 -"#;
    let want = format!("1: POST - /a @{} by 10.0.0.1 then Some(404) None None", at * S);
    assert_eq!(recognized("common", common), [want]);
}

#[test]
fn logs_of_load_balancers_are_recognized_and_read() {
    let alb = br#"http 2018-07-02T22:23:00.186641Z app/lb/50dc 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/x?y HTTP/1.1" "curl/7.46.0" - - arn "Root=1" "-" "-" 0"#;
    let at = 1_530_570_180_186_641_000_i128 - 1_000_000;
    assert_eq!(
        recognized("alb", alb),
        [format!(
            "1: GET www.example.com:80 /x?y @{at} by 192.168.131.39 user-agent=curl/7.46.0 then Some(200) Some(1000000) None"
        )]
    );
    let elb = br#"2015-05-13T23:39:43.945958Z my-lb [2001:db8::1]:2817 - -1 -1 -1 503 0 0 0 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -"#;
    let got = recognized("elb", elb);
    assert_eq!(got.len(), 1);
    assert!(got[0].ends_with("by 2001:db8::1 user-agent=curl/7.38.0 then Some(503) Some(0) None"), "{got:?}");
}

#[test]
fn a_log_format_is_read_as_nginx_wrote_it() {
    let form = Form::named("$msec|${request_method} $uri $args|$request_time|$http_x_a $unknown").unwrap();
    assert_eq!(
        read(&form, b"1732430456.423|GET /a b=1|0.250|v x y\n1732430457.423|- - -|0|- -\n"),
        [
            "1: GET - /a?b=1 @1732430456173000000 x-a=v then None Some(250000000) None".to_owned(),
            "2: no request".to_owned()
        ]
    );
    let json = Form::named(r#"{"t":"$time_iso8601","u":"$request_uri","b":"$request_body"}"#).unwrap();
    assert!(json.has_bodies());
    assert_eq!(
        read(&json, br#"{"t":"1970-01-01T00:00:01+00:00","u":"/a","b":"{\"x\":\u0031}"}"#),
        [format!("1: GET - /a @{S} body \"{{\\\"x\\\":1}}\"")]
    );
    for (bad, why) in [
        ("$request", "it has no time"),
        ("$msec $status", "it has no request"),
        ("$msec$request", "nothing separates `$request`"),
        ("$msec ${request", "is not closed"),
        ("$ $msec $request", "has no name"),
        ("apache", "expected weir, replay"),
    ] {
        let said = Form::named(bad).map(|_| String::new()).unwrap_or_else(|why| why);
        assert!(said.contains(why), "{bad}: {said}");
    }
}

#[test]
fn weirs_own_log_is_recognized_and_read() {
    let line = r#"{"time":"1970-01-01T00:00:02.500Z","client":"127.0.0.1","method":"GET","host":"h","uri":"/o/7?a","protocol":"HTTP/2","route":"o","status":200,"referer":"r","total_us":3000}"#;
    let long = line.replace("/o/7", &format!("/{}…", "x".repeat(2047)));
    let tcp = r#"{"time":"1970-01-01T00:00:02.500Z","protocol":"TCP","total_us":1}"#;
    let refused = r#"{"time":"1970-01-01T00:00:02.500Z","status":400,"total_us":1}"#;
    let all = [line, &long, tcp, refused, "{}", "{"].join("\n");
    assert_eq!(
        recognized("weir", all.as_bytes()),
        [
            "1: GET h /o/7?a @2500000000 by 127.0.0.1 referer=r then Some(200) Some(3000000) None",
            "2: target cut by the log",
            "3: no request",
            "4: no request",
            "5: unreadable",
            "6: unreadable",
        ]
    );
}

#[test]
fn json_lines_are_recognized_and_read() {
    let lines = r#"{"at":1732430456.5,"method":"PUT","url":"https://h/x","headers":{"a":["b","c"]},"body":"z","status":201,"ms":1.5,"bytes":3}
{"at":"1970-01-01T00:00:01.000000001Z","url":"/y","headers":[["host","k"],["d","e"]],"body":{"n":1},"client":"me"}
{"at":1732430456500,"url":"/z","body_base64":"AAE="}
{"at":1732430456500000000,"url":"/w","body_base64":"A"}

{"url":"/v"}"#;
    assert_eq!(
        recognized("jsonl", lines.as_bytes()),
        [
            "1: PUT h /x @1732430456500000000 a=b a=c body \"z\" then Some(201) Some(1500000) Some(3)",
            "2: GET k /y @1000000001 by me d=e body \"{\\\"n\\\":1}\"",
            "3: GET - /z @1732430456500000000 body \"\\0\\u{1}\"",
            "4: unreadable",
            "6: unreadable",
        ]
    );
}

#[test]
fn a_har_file_is_recognized_and_read_entry_by_entry() {
    let har = r#"{"log":{"version":"1.2","pages":[{"entries":[{"request":{}}],"id":"entries"}],
"entries":[
{"startedDateTime":"1970-01-01T00:00:01.000+00:00","time":12.5,"request":{"method":"GET","url":"https://h.example/a?b#c","headers":[{"name":":authority","value":"h.example"},{"name":"Accept","value":"*/*"}],"bodySize":0},"response":{"status":200,"bodySize":17}},
{"startedDateTime":"1970-01-01T00:00:02Z","request":{"method":"POST","url":"http://h.example/","headers":[],"postData":{"text":"a{\"]}"}},"response":{"status":0,"bodySize":-1}},
{"startedDateTime":"1970-01-01T00:00:03Z","request":{"method":"GET","url":"data:x","headers":[]}},
5, {"request":"}"}],
"creator":{"entries":[{}]}}}"#;
    assert_eq!(
        recognized("har", har.as_bytes()),
        [
            "3: GET h.example /a?b @1000000000 Accept=*/* body \"\" then Some(200) Some(12500000) Some(17)",
            "4: POST h.example / @2000000000 body \"a{\\\"]}\"",
            "5: no request",
            "6: unreadable",
        ]
    );
}

#[test]
fn a_file_of_goreplay_is_recognized_and_read() {
    let sep = "\n🐵🙈🙉\n";
    let gor = [
        "1 aa 1000000000\nPOST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na\nb".to_owned(),
        "2 aa 1000000000 5000\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        "1 bb 2000000000\nPUT http://o/y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n".to_owned(),
        "1 cc 2000000000\nPUT /y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc".to_owned(),
        "3 aa 3000000000 1\nHTTP/1.1 200 OK\r\n\r\n".to_owned(),
        "1 dd x\nGET / HTTP/1.1\r\n\r\n".to_owned(),
    ];
    let gor: String = gor.iter().map(|message| format!("{message}{sep}")).collect();
    assert_eq!(
        recognized("gor", gor.as_bytes()),
        [
            "1: POST h /x @1000000000 Content-Length=3 body \"a\\nb\"",
            "9: response aa Some(201) Some(5000) Some(2)",
            "15: PUT o /y @2000000000 Transfer-Encoding=chunked body \"abc\"",
            "25: unreadable",
            "32: no request",
            "37: unreadable",
        ]
    );
}

#[test]
fn long_records_cost_themselves_only_and_little_memory() {
    let form = Form::named("combined").unwrap();
    let good = r#"1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 1 "-" "-""#;
    let mut bytes = vec![b'x'; LINE_MOST * 3];
    bytes.extend_from_slice(format!("\n{good}\n").as_bytes());
    let mut reader = Reader::new(form, bytes.as_slice());
    assert_eq!(reader.record().unwrap(), Some((1, Err(TOO_LONG))));
    assert!(matches!(reader.record().unwrap(), Some((2, Ok(Record::Request(_))))));
    assert!(reader.chunk.capacity() <= LINE_MOST * 2, "{}", reader.chunk.capacity());
    // Only the text of a body may be long.
    let long = "x".repeat(LINE_MOST);
    let lists = "[1],".repeat(LINE_MOST / 3);
    for (line, is_read) in [
        (format!(r#"{{"at":1,"url":"/a","body":"\"{long}{long}"}}"#), true),
        (format!(r#"{{"at":1,"url":"/a","headers":{{"x":"{long}"}}}}"#), false),
        (format!(r#"{{"at":1,"url":"/a","x":[{lists}1]}}"#), false),
        (format!(r#"{{"at":1,"url":"/a","body":[{lists}1]}}"#), false),
        (format!(r#"{{"at":1,"url":"/a","x":"body","y":"{long}"}}"#), false),
    ] {
        let pieces = std::io::BufReader::with_capacity(1000, line.as_bytes());
        let mut reader = Reader::new(Form::named("jsonl").unwrap(), pieces);
        let record = reader.record().unwrap().unwrap().1;
        assert_eq!(record.as_ref().err(), if is_read { None } else { Some(&TOO_LONG) }, "{}", &line[..60]);
    }
    // A long line of NUL bytes is not kept, even where a line may have a large body.
    let mut bytes = vec![0; LINE_MOST * 4];
    bytes.extend_from_slice(b"\n{\"at\":1,\"url\":\"/a\"}");
    let mut reader = Reader::new(Form::named("jsonl").unwrap(), std::io::BufReader::new(bytes.as_slice()));
    assert_eq!(reader.record().unwrap(), Some((1, Err(TOO_LONG))));
    assert!(reader.chunk.capacity() <= LINE_MOST * 2, "{}", reader.chunk.capacity());
    assert!(matches!(reader.record().unwrap(), Some((2, Ok(Record::Request(_))))));
}

#[test]
fn urls_are_split() {
    let shown = |url| {
        let target = split(url);
        format!("{} {} {}", target.is_tls, target.host.unwrap_or("-"), target.path())
    };
    for (url, want) in [
        ("/a?b=http://c/", "false - /a?b=http://c/"),
        ("https://user:secret@h:1/x#y", "true h:1 /x"),
        ("http://h", "false h /"),
        ("http://h?q", "false h /?q"),
        ("*", "false - *"),
        ("a/b", "false - /a/b"),
        ("//evil.example/x", "false - //evil.example/x"),
    ] {
        assert_eq!(shown(url), want, "{url}");
    }
}

#[test]
fn only_requests_that_stay_one_message_can_be_sent() {
    let good = Recorded { method: "GET".to_owned(), target: "/".to_owned(), ..Recorded::default() };
    assert!(is_sendable(&good));
    let bad = |change: fn(&mut Recorded)| {
        let mut r = good.clone();
        change(&mut r);
        assert!(!is_sendable(&r), "{r:?}");
    };
    bad(|r| r.method = "GET /x".to_owned());
    bad(|r| r.method.clear());
    bad(|r| r.target = "/a b".to_owned());
    bad(|r| r.target = "/a\r\nx: y".to_owned());
    bad(|r| r.target = "/\0".to_owned());
    bad(|r| r.target = "http://elsewhere/".to_owned());
    bad(|r| r.target = "*".to_owned());
    bad(|r| r.target = format!("/{}", "x".repeat(70_000)));
    bad(|r| r.host = Some("h\r\nx: y".to_owned()));
    bad(|r| r.fields.push(("a".to_owned(), b"b\nc".to_vec())));
    bad(|r| r.fields.push(("a b".to_owned(), b"c".to_vec())));
    bad(|r| r.fields.push((String::new(), b"c".to_vec())));
}
