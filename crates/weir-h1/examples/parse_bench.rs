//! Measures a head: nanoseconds to parse one and to write its fields.
//!
//! `cargo run --release -p weir-h1 --example parse_bench`. Each figure is the median and the minimum of 41 rounds.
//! Compare figures of one run or of consecutive runs on one quiet machine, never across machines.

use std::hint::black_box;
use std::time::Instant;
use weir_h1::{Limits, RequestHead, ResponseHead, parse_request, parse_response};

const WRK: &[u8] = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\n\r\n";

const BROWSER: &[u8] = b"GET /spot/orders?symbol=BTC_USDT&limit=50 HTTP/1.1\r\n\
    Host: api.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Referer: https://www.example.com/trade\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Connection: keep-alive\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    \r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: origin/1.2\r\n\
    Date: Tue, 04 Mar 2025 10:00:00 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    \r\n";

fn main() {
    let limits = Limits::default();
    for (name, bytes) in [("wrk", WRK), ("browser", BROWSER)] {
        let mut head = RequestHead::default();
        time(&format!("parse_request {name}, {} bytes", bytes.len()), || {
            head.buffer_mut().extend_from_slice(black_box(bytes));
            let _ = black_box(parse_request(&mut head, &limits));
            head.recycle(0);
        });
        head.buffer_mut().extend_from_slice(bytes);
        let _ = black_box(parse_request(&mut head, &limits));
        let mut out = Vec::with_capacity(4096);
        time(&format!("write_to {name}"), || {
            out.clear();
            black_box(&head).headers.write_to(&mut out);
            black_box(&out);
        });
    }
    let mut head = ResponseHead::default();
    time(&format!("parse_response, {} bytes", RESPONSE.len()), || {
        head.buffer_mut().extend_from_slice(black_box(RESPONSE));
        let _ = black_box(parse_response(&mut head, &limits));
        head.recycle(0);
    });
}

/// Prints what one call of `work` costs.
fn time(name: &str, mut work: impl FnMut()) {
    const CALLS: u32 = 20_000;
    let mut rounds: Vec<f64> = (0..41)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                work();
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<36} median {:>6.1} ns   least {:>6.1} ns", rounds[20], rounds[0]);
}
