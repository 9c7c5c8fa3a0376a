//! Files of each tool, and broken ones.

use super::read;
use crate::Report;
use crate::report::Grade;

#[track_caller]
fn good(text: &str) -> Report {
    let r = read(text.as_bytes()).expect("a known format").unwrap();
    assert_eq!(r.verdict.grade, Grade::Suspect, "{:?}", r.verdict);
    assert!(r.verdict.reasons.iter().any(|reason| reason.code == "imported"), "{:?}", r.verdict);
    r
}

const JTL: &str = "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,failureMessage,bytes,sentBytes,grpThreads,allThreads,URL,Latency,IdleTime,Connect
1795284234000,120,login,200,OK,g 1-1,true,,1000,100,2,2,http://a/login,110,0,10
1795284234100,80,\"list, all\",200,OK,g 1-2,false,\"expected
\"\"x\"\"\",500,90,2,2,http://a/list,80,0,0
1795284235000,200,journey,,\"Number of samples in transaction : 2, number of failing samples : 0\",g 1-1,true,,1500,190,2,2,null,0,0,0
1795284235000,40,login,503,No,g 1-1,false,,10,100,2,3,http://a/login,40,0,0
1795284236000,1000,login,Non HTTP response code: org.apache.http.conn.HttpHostConnectException,Non HTTP response message: Connection refused,g 1-1,false,,0,0,2,2,http://a/login,0,0,0
";

#[test]
fn jmeter_csv() {
    let r = good(JTL);
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.connect), (4, 3, 1), "{:?}", r.counts);
    assert_eq!(r.counts.statuses, [(200, 2), (503, 1)].into());
    assert_eq!((r.checks[0].passed, r.checks[0].failed), (1, 2), "{:?}", r.checks);
    assert_eq!((r.latency.response.sum(), r.duration_ns), (240_000_000, 3_000_000_000));
    assert_eq!((r.plan.connections, r.started_unix_ms), (3, 1_795_284_234_000));
    assert_eq!(r.plan.targets.iter().map(|t| t.url.as_str()).collect::<Vec<_>>(), ["login", "list, all"]);
    assert_eq!((r.targets[0].responses, r.targets[0].errors, r.targets[0].unexpected), (2, 1, 1));
    assert_eq!(
        r.series.ticks.iter().map(|t| (t.responses, t.errors)).collect::<Vec<_>>(),
        [(2, 0), (1, 0), (0, 1)]
    );
    let error = "Non HTTP response code: org.apache.http.conn.HttpHostConnectException Non HTTP response message: Connection refused";
    assert_eq!(r.counts.error_texts.keys().collect::<Vec<_>>(), [error]);
    // With another delimiter.
    let tabs = "timeStamp\telapsed\tlabel\tresponseCode\tsuccess\n1\t2\ta,b\t200\ttrue\n";
    assert_eq!(good(tabs).plan.targets[0].url, "a,b");
}

#[test]
fn jmeter_xml() {
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testResults version=\"1.2\">
<httpSample t=\"120\" it=\"0\" lt=\"110\" ct=\"10\" ts=\"1795284234000\" s=\"true\" lb=\"a &amp; b\" rc=\"200\" rm=\"OK\" tn=\"g 1-1\" by=\"1000\" sby=\"100\" ng=\"2\" na=\"2\">
  <httpSample t=\"60\" ts=\"1795284234000\" s=\"true\" lb=\"part\" rc=\"200\"/>
  <java.net.URL>http://a/</java.net.URL>
</httpSample>
<sample t=\"5\" ts=\"1795284234200\" s=\"false\" lb=\"b\" rc=\"500\" rm=\"No\"/>
</testResults>";
    let r = good(text);
    assert_eq!((r.counts.responses, r.counts.statuses.clone()), (2, [(200, 1), (500, 1)].into()));
    assert_eq!((r.plan.targets[0].url.as_str(), r.latency.service.max()), ("a & b", 120_000_000));
    assert_eq!((r.phases.waiting.max(), r.phases.connecting.max()), (100_000_000, 10_000_000));
}

#[test]
fn k6_json_lines() {
    let point = |metric: &str, value: &str, tags: &str| {
        format!(
            "{{\"metric\":\"{metric}\",\"type\":\"Point\",\"data\":{{\"time\":\"2026-11-21T18:03:54.5Z\",\"value\":{value},\"tags\":{{{tags}}}}}}}\n"
        )
    };
    let text = "{\"type\":\"Metric\",\"data\":{\"name\":\"http_reqs\",\"type\":\"counter\"},\"metric\":\"http_reqs\"}\n".to_owned()
        + &point("http_reqs", "1", "\"status\":\"200\"")
        + &point("http_req_duration", "12.5", "\"status\":\"200\",\"name\":\"http://a/\",\"method\":\"GET\"")
        + &point("http_req_duration", "20", "\"status\":\"404\",\"name\":\"http://a/x\",\"method\":\"GET\"")
        + &point("http_req_duration", "0", "\"status\":\"0\",\"name\":\"http://a/\",\"method\":\"GET\",\"error\":\"dial: connection refused\",\"error_code\":\"1212\"")
        + &point("checks", "0", "\"check\":\"is good\"")
        + &point("dropped_iterations", "7", "")
        + &point("vus", "50", "");
    let r = good(&text);
    assert_eq!((r.counts.responses, r.counts.errors.connect, r.counts.unsent), (2, 1, 7));
    assert_eq!((r.checks[0].failed, r.plan.connections), (1, 50));
    assert_eq!((r.plan.targets[0].method.as_str(), r.plan.targets[0].url.as_str()), ("GET", "http://a/"));
    assert_eq!(r.latency.service.max(), 20_000_000);
}

#[test]
fn vegeta_json_and_its_binary_is_named() {
    let line = |code: u16, ms: u64, error: &str| {
        format!(
            "{{\"attack\":\"\",\"seq\":0,\"code\":{code},\"timestamp\":\"2026-11-21T19:03:54.5+01:00\",\"latency\":{},\"bytes_out\":3,\"bytes_in\":5,\"error\":\"{error}\",\"body\":null,\"method\":\"GET\",\"url\":\"http://a/\",\"headers\":null}}\n",
            ms * 1_000_000
        )
    };
    let r = good(&(line(200, 10, "") + &line(503, 20, "503 No") + &line(0, 30, "context deadline exceeded")));
    assert_eq!((r.counts.responses, r.counts.errors.timeout, r.bytes.received()), (2, 1, 15));
    assert_eq!((r.started_unix_ms, r.duration_ns), (1_795_284_234_500, 30_000_000));
    let gob = [0x43, 0xff, 0x81, 0x03, 0x01, 0x01, 0x06];
    assert!(read(&gob).unwrap().unwrap_err().contains("vegeta encode"));
}

#[test]
fn the_spectrum_of_wrk2() {
    let captured = include_str!("../../tests/captured/wrk2.txt");
    let r = good(captured);
    assert!(
        r.latency.response.count() > 1_000 && r.plan.targets[0].url.starts_with("http://"),
        "{:?}",
        r.plan
    );
    let alone = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n   1.000  0.000000  10  1.00\n   2.000 0.500000 90 2.00\n 9.000 1.000000 100 inf\n#[Mean = 1, StdDeviation = 1]\n";
    let r = good(alone);
    assert_eq!((r.latency.response.count(), r.latency.response.max()), (100, 9_000_000));
    assert_eq!(r.latency.response.quantile(0.5) / 10_000, 200);
}

#[test]
fn hostile_files_are_refused_shortly_or_counted() {
    let long = "x".repeat(1_000_000);
    let point = |value: &str| {
        format!(
            "{{\"type\":\"Point\",\"metric\":\"http_req_duration\",\"data\":{{\"time\":\"2026-11-21T18:03:54Z\",\"value\":{value}}}}}"
        )
    };
    let vegeta =
        |latency: &str, at: &str| format!("{{\"code\":200,\"timestamp\":\"{at}\",\"latency\":{latency}}}");
    for text in [
        format!("timeStamp,elapsed\n1,{long}\n"),
        "timeStamp,elapsed\n1,-5\n".to_owned(),
        "timeStamp,elapsed\n1,NaN\n".to_owned(),
        format!("<testResults><sample></{long}></testResults>"),
        point("-1"),
        point("1e300"),
        format!("{}\n{}", point("1"), point("NaN")),
        format!("{}\n{}", vegeta("1", "2026-11-21T18:03:54Z"), vegeta("-1", "2026-11-21T18:03:54Z")),
        vegeta("1", &long),
        vegeta("1", "2026-11-21T18:03:9223372036854775807Z"),
        format!("{}\n{{\"code\":\"{long}\"}}", vegeta("1", "2026-11-21T18:03:54Z")),
    ] {
        let told = read(text.as_bytes()).expect("a format").unwrap_err();
        assert!(told.len() < 1_000, "{}", told.len());
    }
    // A gob that ends in its middle, or that happens to be UTF-8.
    for gob in [&b"\x43\xff\x81"[..], b"C"] {
        assert!(read(gob).is_none_or(|read| read.is_err()));
    }
    // Any order of times, counts that overflow, and long names.
    let most = u64::MAX;
    let r = good(&format!(
        "timeStamp,elapsed,label,responseCode,sentBytes\n9000,1,{long},200,{most}\n1000,1,a,200,{most}\n5000,1,b,500,1\n"
    ));
    assert_eq!((r.counts.responses, r.duration_ns, r.bytes.sent()), (3, 8_001_000_000, most));
    assert!(r.plan.targets[0].url.len() <= 1_000);
    let begins: Vec<u64> = r.series.ticks.iter().map(|t| t.requests).collect();
    assert_eq!(begins.iter().sum::<u64>(), 3);
}

#[test]
fn what_another_tool_did_not_write_is_told_with_its_line() {
    for (text, want) in [
        ("timeStamp,elapsed,label\n1,x,a\n", "line 2: elapsed is `x`"),
        ("timeStamp,elapsed,label\n1,2\n", "line 2 has 2 columns, the header 3"),
        ("timeStamp,elapsed,label\n", "it has no request"),
        ("timeStamp,elapsed\n1,99999999999999999\n", "line 2: a time"),
        ("timeStamp,elapsed\n18446744073709551615,1\n", "line 2: a time"),
        ("<?xml version=\"1.0\"?><testResults><sample t=\"1\"/></testResults>", "sample 1: timeStamp is ``"),
        ("<testResults><sample></testResults>", "closes another element"),
        (
            "{\"type\":\"Metric\",\"metric\":\"a\"}\n{\"type\":\"Point\",\"metric\":\"http_req_duration\",\"data\":{\"time\":\"now\",\"value\":1}}",
            "line 2: time is `now`",
        ),
        ("{\"code\":200,\"timestamp\":\"x\",\"latency\":1}", "line 1: timestamp is `x`"),
        ("Value Percentile TotalCount\n1 0.5 10\n1 0.6 9\n", "line 3: expected a value"),
    ] {
        let told = read(text.as_bytes()).expect(text).unwrap_err();
        assert!(told.contains(want), "{text}: {told}");
    }
    for other in ["", "{}", "a,b\n1,2\n", "{\"schema\":\"weir.load/1\"}", "<html/>"] {
        assert!(read(other.as_bytes()).is_none(), "{other}");
    }
}
