//! A real run, printed in every layout and checked against itself: the engine's counts must add up as the layouts and
//! `verify` assume.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use weir_load::{Interrupt, Options, Plan};
use weir_report::Report;
use weir_report::layout::{FORMATS, Format, render, verify};

/// Answers every third request with 404, and closes each connection after fifty.
fn answer(stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    for i in 0..50 {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            (reader.read_line(&mut line).ok()? > 0).then_some(())?;
        }
        let status = if i % 3 == 2 { "404 Not Found" } else { "200 OK" };
        let close = if i == 49 { "Connection: close\r\n" } else { "" };
        let text = format!("HTTP/1.1 {status}\r\nServer: test/1\r\n{close}Content-Length: 2\r\n\r\nhi");
        reader.get_mut().write_all(text.as_bytes()).ok()?;
    }
    Some(())
}

fn run() -> Report {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| answer(stream.unwrap()));
        }
    });
    let options = Options {
        urls: vec![url],
        connections: Some(4),
        threads: Some(2),
        requests: Some("600".to_owned()),
        checks: vec!["status=200".to_owned()],
        thresholds: vec!["p99<20s".to_owned(), "errors<50%".to_owned()],
        ..Options::default()
    };
    Plan::new(&options).unwrap().run(&Interrupt::default(), |_| ()).unwrap()
}

#[test]
fn a_run_agrees_with_itself_and_prints_in_every_layout() {
    let report = run();
    assert_eq!(report.counts.responses, 600, "{:?}", report.counts);
    let saved = render(&report, Format::named("json").unwrap());
    assert_eq!(verify(&saved).unwrap(), []);
    let back: Report = serde_json::from_str(&saved).unwrap();
    for format in FORMATS {
        let text = render(&report, format);
        assert!(text.ends_with('\n'), "{}", format.name);
        assert_eq!(render(&back, format), text, "{} of the saved report", format.name);
    }
    let ab = render(&report, Format::named("ab").unwrap());
    assert!(ab.contains("Server Software:        test/1\n"), "{ab}");
    assert!(ab.contains("Complete requests:      600\n"), "{ab}");
    let other = "wrong".parse::<&Format>().unwrap_err().to_string();
    assert!(other.contains("no report format `wrong`") && other.contains("\n  k6-full     the"), "{other}");
}
