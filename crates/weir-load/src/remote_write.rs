//! Prometheus remote write: sends a run's progress to Prometheus under k6's series names, for k6's dashboards.
//!
//! The names are those of k6 1.8 (`-o experimental-prometheus-rw`): `k6_<counter>_total`, `k6_<gauge>`,
//! `k6_<rate>_rate`, `k6_<trend>_<stat>` with times in seconds. `message` is the wire format.
//!
//! During a run, a trend covers the last tick, while k6's cover the run so far: a plot shows what happens now.
//! [`RemoteWrite::end`] sends whole-run figures, including the phases, which ticks do not have.

mod message;

use crate::transport::reader::{Fed, Parser, Reader};
use message::{Series, encode};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use weir_report::Histogram;
use weir_report::report::{Percentiles, Report, Tick};

/// Timeout for each of connecting, writing and reading, as in k6.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer that is read: only its status and its error text matter.
const ANSWER_MOST: usize = 4096;

/// Longest head of an answer, including interim responses.
const HEAD_MOST: usize = 64 * 1024;

/// A Prometheus server that accepts remote writes.
#[derive(Debug)]
pub struct RemoteWrite {
    host: String,
    path: String,
    labels: Vec<(String, String)>,
    /// Sums of the ticks so far.
    total: Total,
    /// The same for each step of a plan with scenarios, by scenario and step.
    steps: BTreeMap<(String, String), Total>,
    /// Time of the last sample: times of one series must ascend.
    last_ms: u64,
}

/// Counters, which grow over the whole run.
#[derive(Debug, Default)]
struct Total {
    responses: u64,
    unexpected: u64,
    errors: u64,
    sent: u64,
    received: u64,
    users_most: u64,
}

impl RemoteWrite {
    /// Where to write: `http://host[:port][/path]`. The port defaults to 80, the path to `/api/v1/write`. Every
    /// series gets `labels` (k6 `testid`); `scenario` is `default` unless they set it.
    ///
    /// # Errors
    ///
    /// The URL does not have that form; the text is for the command line.
    pub fn new(url: &str, labels: &[(String, String)]) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            format!("`{url}`: expected http://HOST:PORT[/PATH], such as http://localhost:9090/api/v1/write")
        })?;
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if host.is_empty() || host.contains('@') || !url.chars().all(|c| c.is_ascii_graphic()) {
            return Err(format!("`{url}`: expected a host after http://, without a user and without blanks"));
        }
        let path = if path.len() <= 1 { "/api/v1/write" } else { path };
        let mut labels = labels.to_vec();
        if !labels.iter().any(|(name, _)| name == "scenario") {
            labels.push(("scenario".to_owned(), "default".to_owned()));
        }
        let (total, steps, last_ms) = (Total::default(), BTreeMap::new(), 0);
        Ok(Self { host: host.to_owned(), path: path.to_owned(), labels, total, steps, last_ms })
    }

    /// Sends one tick and waits for the answer: call it where waiting does not delay the load.
    ///
    /// # Errors
    ///
    /// Prometheus could not be reached within five seconds, or refused; the text says why. The next tick makes up for
    /// a lost one except for its trends.
    pub fn tick(&mut self, tick: &Tick, unix_ms: u64) -> io::Result<()> {
        let total = &mut self.total;
        total.responses += tick.responses;
        total.unexpected += tick.unexpected;
        total.errors += tick.errors;
        total.sent += tick.sent;
        total.received += tick.received;
        total.users_most = total.users_most.max(tick.users);
        let mut sheet = Sheet::default();
        sheet.totals(&self.total);
        sheet.plain("k6_vus", tick.users as f64);
        if tick.responses > 0 {
            sheet.trend("k6_http_req_duration", &tick.service, tick.responses);
            sheet.trend("k6_iteration_duration", &tick.response, tick.responses);
        }
        for step in &tick.steps {
            let total = self.steps.entry((step.scenario.clone(), step.step.clone())).or_default();
            total.responses += step.responses;
            total.unexpected += step.unexpected;
            total.errors += step.errors;
            let mut own = Sheet::default();
            own.requests(total);
            if step.responses > 0 {
                own.trend("k6_http_req_duration", &step.response, step.responses);
            }
            sheet.labelled(own, &step.scenario, &step.step);
        }
        self.send(sheet, unix_ms)
    }

    /// Sends the figures of the whole run.
    ///
    /// # Errors
    ///
    /// As those of [`RemoteWrite::tick`].
    pub fn end(&mut self, report: &Report, unix_ms: u64) -> io::Result<()> {
        self.total = Total {
            responses: report.counts.responses,
            unexpected: report.counts.responses.saturating_sub(report.expected()),
            errors: report.counts.errors.total(),
            sent: report.bytes.sent(),
            received: report.bytes.received(),
            users_most: self.total.users_most,
        };
        let mut sheet = Sheet::default();
        sheet.totals(&self.total);
        sheet.plain("k6_vus", 0.0);
        if report.counts.unsent > 0 {
            sheet.plain("k6_dropped_iterations_total", report.counts.unsent as f64);
        }
        for step in report.steps.iter().filter(|step| !step.scenario.is_empty()) {
            let total = Total {
                responses: step.responses,
                unexpected: step.unexpected,
                errors: step.errors.total(),
                ..Total::default()
            };
            let mut own = Sheet::default();
            own.requests(&total);
            if !step.response.is_empty() {
                own.trend("k6_http_req_duration", &Percentiles::of(&step.response), step.response.count());
            }
            if let (passed, failed @ 1..) | (passed @ 1.., failed) = step.checked() {
                own.plain("k6_checks_rate", passed as f64 / (passed + failed) as f64);
            }
            sheet.labelled(own, &step.scenario, &step.name);
        }
        let (passed, failed) =
            report.checks.iter().fold((0, 0), |(p, f), check| (p + check.passed, f + check.failed));
        if passed + failed > 0 {
            sheet.plain("k6_checks_rate", passed as f64 / (passed + failed) as f64);
        }
        let phases = &report.phases;
        if let Some(ws) = &report.websocket {
            sheet.plain("k6_ws_sessions_total", ws.sessions as f64);
            sheet.plain("k6_ws_msgs_sent_total", ws.sent as f64);
            sheet.plain("k6_ws_msgs_received_total", ws.received as f64);
        }
        let none = Histogram::new();
        let sessions = report.websocket.as_ref();
        let of_calls = if report.is_grpc() { &report.latency.service } else { &none };
        let trends: [(&str, &Histogram); 11] = [
            ("k6_grpc_req_duration", of_calls),
            ("k6_ws_connecting", sessions.map_or(&none, |ws| &ws.connecting)),
            ("k6_ws_session_duration", sessions.map_or(&none, |ws| &ws.session_duration)),
            ("k6_http_req_duration", &report.latency.service),
            ("k6_iteration_duration", &report.latency.response),
            ("k6_http_req_blocked", &phases.blocked),
            ("k6_http_req_connecting", &phases.connecting),
            ("k6_http_req_tls_handshaking", &phases.tls),
            ("k6_http_req_sending", &phases.sending),
            ("k6_http_req_waiting", &phases.waiting),
            ("k6_http_req_receiving", &phases.receiving),
        ];
        for (name, h) in trends.iter().filter(|(_, h)| !h.is_empty()) {
            sheet.trend(name, &Percentiles::of(h), h.count());
        }
        self.send(sheet, unix_ms)
    }

    fn send(&mut self, sheet: Sheet, unix_ms: u64) -> io::Result<()> {
        self.last_ms = unix_ms.max(self.last_ms + 1);
        let series: Vec<Series> = sheet.0.into_iter().map(|figure| figure.series(&self.labels)).collect();
        let plain = encode(&series, self.last_ms);
        let body = snap::raw::Encoder::new().compress_vec(&plain).map_err(io::Error::other)?;
        self.post(&body)
    }

    fn post(&self, body: &[u8]) -> io::Result<()> {
        let with_port = self.host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if with_port { self.host.clone() } else { format!("{}:80", self.host) };
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return self.exchange(stream, body),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn exchange(&self, mut stream: TcpStream, body: &[u8]) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir/{}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.host,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let (status, why) = answer(stream)?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        let hint = if status == 404 { " (is it run with --web.enable-remote-write-receiver?)" } else { "" };
        let why = why.trim();
        Err(io::Error::other(format!("http://{}{} answered {status}{hint}: {why}", self.host, self.path)))
    }
}

/// Reads status and text of an answer up to its own end, since not every server closes the connection as asked.
fn answer(mut stream: TcpStream) -> io::Result<(u16, String)> {
    let (mut reader, mut parser) = (Reader::new(true), Parser::default());
    let mut buffer = [0; 1024];
    let (begun, mut received) = (Instant::now(), 0);
    let response = loop {
        let n = stream.read(&mut buffer)?;
        let input = buffer.get(..n).unwrap_or_default();
        if n == 0 {
            let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "closed before its whole answer");
            break reader.end().ok_or_else(closed)?;
        }
        received += n;
        match reader.feed(input, false, &mut parser).map_err(io::Error::other)? {
            Fed::Complete(_, response) => break response,
            Fed::More if begun.elapsed() > TIMEOUT => return Err(io::ErrorKind::TimedOut.into()),
            // The rest of the text is not worth the wait.
            Fed::More if received > ANSWER_MOST && reader.unfinished().status > 0 => {
                break reader.unfinished();
            }
            Fed::More if received > HEAD_MOST => {
                return Err(io::Error::other("the head of its answer has no end"));
            }
            Fed::More => {}
        }
    };
    Ok((response.status, String::from_utf8_lossy(reader.body()).into_owned()))
}

// === series ===

/// The figures of one moment.
#[derive(Default)]
struct Sheet(Vec<Figure>);

struct Figure {
    name: String,
    value: f64,
    /// Which responses the figure covers, if only one kind.
    expected: Option<bool>,
    /// The scenario and the step that it covers, if not all.
    of_step: Option<(String, String)>,
}

impl Figure {
    /// The series with its labels sorted by name, as remote write requires.
    fn series(self, shared: &[(String, String)]) -> Series {
        let mut labels = shared.to_vec();
        if let Some((scenario, step)) = self.of_step {
            labels.retain(|(name, _)| name != "scenario");
            labels.push(("scenario".to_owned(), scenario));
            labels.push(("step".to_owned(), step));
        }
        labels.push(("__name__".to_owned(), self.name));
        if let Some(expected) = self.expected {
            labels.push(("expected_response".to_owned(), expected.to_string()));
        }
        labels.sort();
        Series { labels, value: self.value }
    }
}

impl Sheet {
    fn plain(&mut self, name: &str, value: f64) {
        self.0.push(Figure { name: name.to_owned(), value, expected: None, of_step: None });
    }

    /// Adds the figures of a step.
    fn labelled(&mut self, own: Self, scenario: &str, step: &str) {
        let of_step = Some((scenario.to_owned(), step.to_owned()));
        self.0.extend(own.0.into_iter().map(|figure| Figure { of_step: of_step.clone(), ..figure }));
    }

    fn requests(&mut self, total: &Total) {
        let failed = total.unexpected + total.errors;
        let all = total.responses + total.errors;
        for (expected, n) in [(true, all - failed), (false, failed)] {
            let name = "k6_http_reqs_total".to_owned();
            self.0.push(Figure { name, value: n as f64, expected: Some(expected), of_step: None });
        }
    }

    fn totals(&mut self, total: &Total) {
        self.requests(total);
        let failed = total.unexpected + total.errors;
        let all = total.responses + total.errors;
        self.plain("k6_iterations_total", all as f64);
        self.plain("k6_http_req_failed_rate", if all == 0 { 0.0 } else { failed as f64 / all as f64 });
        self.plain("k6_data_sent_total", total.sent as f64);
        self.plain("k6_data_received_total", total.received as f64);
        self.plain("k6_vus_max", total.users_most as f64);
    }

    /// All stats that k6 can be asked for by name, in seconds.
    fn trend(&mut self, name: &str, p: &Percentiles, count: u64) {
        for (stat, ns) in [
            ("min", p.min as f64),
            ("avg", p.mean),
            ("med", p.p50 as f64),
            ("p75", p.p75 as f64),
            ("p90", p.p90 as f64),
            ("p95", p.p95 as f64),
            ("p99", p.p99 as f64),
            ("p999", p.p999 as f64),
            ("max", p.max as f64),
            ("sum", p.mean * count as f64),
        ] {
            self.plain(&format!("{name}_{stat}"), ns / 1e9);
        }
        self.plain(&format!("{name}_count"), count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use weir_report::report::StepTick;

    /// Accepts one write and answers it; returns the head and the decompressed message.
    fn receive(listener: &TcpListener, answer: &str) -> (String, Vec<u8>) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let length = head.split("Content-Length: ").nth(1).unwrap().split('\r').next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        (head, snap::raw::Decoder::new().decompress_vec(&body).unwrap())
    }

    fn has(message: &[u8], text: &str) -> bool {
        message.windows(text.len()).any(|window| window == text.as_bytes())
    }

    #[test]
    fn steps_have_labels_of_their_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut remote = RemoteWrite::new(&url, &[]).unwrap();
        let sent = std::thread::spawn(move || {
            let step = StepTick {
                scenario: "browse".to_owned(),
                step: "list".to_owned(),
                responses: 10,
                ..StepTick::default()
            };
            remote.tick(&Tick { responses: 10, steps: vec![step], ..Tick::default() }, 5000)
        });
        let (_, message) = receive(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
        sent.join().unwrap().unwrap();
        for text in ["browse", "step", "list", "default"] {
            assert!(has(&message, text), "{text}");
        }
    }

    #[test]
    fn a_tick_is_posted_in_the_names_of_k6() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let labels = [("testid".to_owned(), "t1".to_owned())];
        let mut remote = RemoteWrite::new(&url, &labels).unwrap();
        let sent = std::thread::spawn(move || {
            let tick = Tick { responses: 10, unexpected: 3, users: 4, ..Tick::default() };
            remote.tick(&tick, 5000).and_then(|()| remote.tick(&tick, 5000)).map(|()| remote.last_ms)
        });
        let (head, message) = receive(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(head.starts_with("POST /api/v1/write HTTP/1.1\r\n"), "{head}");
        for name in [
            "k6_http_reqs_total",
            "k6_http_req_duration_p99",
            "k6_iteration_duration_avg",
            "k6_vus",
            "testid",
            "expected_response",
        ] {
            assert!(has(&message, name), "{name}");
        }
        receive(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(sent.join().unwrap().unwrap(), 5001, "no two samples of one time");
    }

    /// All series of a run from its start to its end.
    fn names() -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut remote = RemoteWrite::new(&url, &[]).unwrap();
        let mut report = Report::default();
        let phases = &mut report.phases;
        let (blocked, connecting, tls) = (&mut phases.blocked, &mut phases.connecting, &mut phases.tls);
        for h in [blocked, connecting, tls, &mut phases.sending, &mut phases.waiting, &mut phases.receiving] {
            h.record(1);
        }
        let mut sessions = weir_report::report::WebSocketStats { sent: 1, ..Default::default() };
        sessions.connecting.record(1);
        report.websocket = Some(sessions);
        report.counts.grpc.insert("OK".to_owned(), 1);
        report.latency.service.record(1);
        let sent = std::thread::spawn(move || {
            let tick = Tick { responses: 1, ..Tick::default() };
            remote.tick(&tick, 1).and_then(|()| remote.end(&report, 2))
        });
        let mut names = Vec::new();
        for _ in 0..2 {
            let (_, message) = receive(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
            names.extend(words(&String::from_utf8_lossy(&message)));
        }
        sent.join().unwrap().unwrap();
        names
    }

    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("k6_")).map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_asks_for_nothing_that_is_not_sent() {
        let dashboard = include_str!("../../../dist/grafana-load.json");
        serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
        let (sent, asked) = (names(), words(dashboard));
        assert!(asked.len() > 20, "{asked:?}");
        for name in [
            "k6_ws_sessions_total",
            "k6_ws_msgs_sent_total",
            "k6_ws_connecting_p99",
            "k6_grpc_req_duration_p99",
        ] {
            assert!(sent.iter().any(|n| n == name), "{name} is not among {sent:?}");
        }
        for name in asked {
            assert!(sent.contains(&name), "{name} is not among {sent:?}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/write", listener.local_addr().unwrap());
        let mut remote = RemoteWrite::new(&url, &[]).unwrap();
        let sent = std::thread::spawn(move || remote.end(&Report::default(), 1));
        let (head, _) = receive(&listener, "HTTP/1.1 404 Not Found\r\n\r\nno such thing\n");
        assert!(head.starts_with("POST /write "), "{head}");
        let error = sent.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("answered 404 (is it run with --web.enable"), "{error}");
        assert!(error.ends_with(": no such thing"), "{error}");
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/write", listener.local_addr().unwrap());
        for (wire, want) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Ok(())),
            (
                "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n",
                Err("answered 400: old"),
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n", Ok(())),
        ] {
            let mut remote = RemoteWrite::new(&url, &[]).unwrap();
            let sent = std::thread::spawn(move || remote.end(&Report::default(), 1));
            let (mut open, _) = listener.accept().unwrap();
            open.write_all(wire.as_bytes()).unwrap();
            // The server kept the connection open although asked to close it.
            let result = sent.join().unwrap().map_err(|e| e.to_string());
            match want {
                Ok(()) => assert_eq!(result, Ok(()), "{wire}"),
                Err(end) => assert!(result.as_ref().is_err_and(|e| e.ends_with(end)), "{result:?}"),
            }
            drop(open);
        }
    }

    #[test]
    fn a_url_is_refused_with_the_form_expected() {
        for url in ["localhost:9090", "https://a/", "http://", "http://u@a/", "http://a b/"] {
            let error = RemoteWrite::new(url, &[]).unwrap_err();
            assert!(error.contains("expected"), "{error}");
        }
    }
}
