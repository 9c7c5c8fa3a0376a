//! Measures the generator's own limit: a load on a sink that costs as little as a server on this machine can.
//!
//! A result near this limit measures the generator, not the target. The sink runs on its own thread. Only the
//! generator's processor time counts, which excludes the sink.

use crate::{Interrupt, Options, Plan};
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use weir_report::Report;
use weir_report::report::Percentiles;
use weir_report::units::{grouped, time};

/// The sink's answer to every request. An answer of 1 KiB would measure the kernel's copying.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Ways to send: name, connections, requests ahead.
const WAYS: [(&str, u64, u64); 3] =
    [("one connection", 1, 1), ("64 connections", 64, 1), ("64, pipelined by 16", 64, 16)];

/// The result of one way, with one thread.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// The way.
    pub way: &'static str,
    /// The run.
    pub report: Report,
}

/// Measures each way for `duration`, written as in the options. It ends with a fixed rate at half of what 64
/// connections reached, to see how late starts are. If interrupted, returns the ways that have run so far.
///
/// # Errors
/// The sink cannot listen, or a thread cannot be created.
pub fn ceilings(duration: &str, interrupt: &Interrupt) -> io::Result<Vec<Ceiling>> {
    let sink = Sink::start()?;
    let options = |connections, pipeline, rate| Options {
        urls: vec![format!("http://{}/", sink.address)],
        connections: Some(connections),
        pipeline: Some(pipeline),
        threads: Some(1),
        duration: Some(duration.to_owned()),
        warmup: Some("100ms".to_owned()),
        rate,
        ..Options::default()
    };
    let run = |way, options: Options| -> io::Result<Ceiling> {
        let told = |all: Vec<weir_report::Mistake>| {
            io::Error::other(all.iter().map(|m| format!("{m} ")).collect::<String>())
        };
        let report = Plan::new(&options).map_err(told)?.run(interrupt, |_| ())?;
        Ok(Ceiling { way, report })
    };
    let mut found = Vec::new();
    for (way, connections, pipeline) in WAYS {
        if !interrupt.is_ended() {
            found.push(run(way, options(connections, pipeline, None))?);
        }
    }
    if !interrupt.is_ended() {
        let half = (found[1].report.rate() / 2.0).max(1.0);
        found.push(run("fixed rate, half", options(64, 1, Some(format!("{half:.0}/s"))))?);
    }
    // A run that was interrupted before it began has no figures.
    found.retain(|ceiling| !interrupt.is_ended() || ceiling.report.counts.responses > 0);
    Ok(found)
}

/// Formats the results as text.
pub fn to_text(ceilings: &[Ceiling]) -> String {
    let mut out = format!(
        "{:<20} {:>12} {:>16} {:>10} {:>10}\n",
        "one thread", "responses/s", "per core-second", "p50", "p99"
    );
    for Ceiling { way, report } in ceilings {
        let service = Percentiles::of(&report.latency.service);
        let _ = writeln!(
            out,
            "{way:<20} {:>12} {:>16} {:>10} {:>10}",
            grouped(report.rate().round() as u64),
            grouped(report.per_generator_core_second().round() as u64),
            time(service.p50 as f64),
            time(service.p99 as f64)
        ); // writing to a String cannot fail
    }
    if let Some(open) = ceilings.iter().map(|c| &c.report.health.start_lag).find(|lag| !lag.is_empty()) {
        let (p50, p99) = (open.quantile(0.5) as f64, open.quantile(0.99) as f64);
        let _ = writeln!(
            out,
            "\nstarts at the fixed rate were late by {} at p50, {} at p99",
            time(p50),
            time(p99)
        );
    }
    out
}

/// A server that does not parse requests. Dropping it stops it.
struct Sink {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    fn start() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        };
        let work = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("weir-sink".to_owned()).spawn(work)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the thread returns nothing
        }
    }
}

/// Sends one answer for each end of a head; requests have no bodies.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut answers) = (vec![0; 16 * 1024], Vec::new());
    let mut matched = 0;
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        answers.clear();
        for byte in &buffer[..n] {
            matched = seen(matched, *byte);
            if matched == END.len() {
                answers.extend_from_slice(ANSWER);
                matched = 0;
            }
        }
        stream.write_all(&answers).await?;
    }
}

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// How many bytes of the end of a head are matched after this byte.
fn seen(matched: usize, byte: u8) -> usize {
    match END.get(matched) {
        Some(next) if *next == byte => matched + 1,
        _ => usize::from(byte == b'\r'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_heads_are_found_across_reads() {
        let count = |text: &str| {
            let mut matched = 0;
            let ends = text.bytes().filter(|byte| {
                matched = seen(matched % END.len(), *byte);
                matched == END.len()
            });
            ends.count()
        };
        for (text, want) in
            [("a\r\nb\r\n\r\n", 1), ("\r\r\n\r\n", 1), ("a\r\n\r\nb\r\n\r\n", 2), ("a\r\nb\r\n", 0)]
        {
            assert_eq!(count(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_has_not_run_is_not_told() {
        let interrupt = Interrupt::default();
        interrupt.end();
        assert!(ceilings("60ms", &interrupt).unwrap().is_empty());
    }

    #[test]
    fn every_way_is_measured() {
        let found = ceilings("60ms", &Interrupt::default()).unwrap();
        assert_eq!(found.len(), WAYS.len() + 1);
        for Ceiling { way, report } in &found {
            // A busy machine may send nothing of a fixed rate in so short a time; the requests are reported as
            // unsent.
            let counts = &report.counts;
            let sound = counts.responses + counts.unsent > 0 && counts.errors.total() == 0;
            assert!(sound, "{way}: {counts:?}");
        }
        let text = to_text(&found);
        assert!(text.contains("64, pipelined by 16") && text.contains("fixed rate, half"), "{text}");
    }
}
