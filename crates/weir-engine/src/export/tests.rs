//! Batches against a scripted collector: accepted, refused, unreachable.

use super::*;
use std::time::Duration;
use weir_testkit::{Upstream, refusing_address};
use weir_upstream::fetch::serve;

const PATIENCE: Duration = Duration::from_secs(20);

/// The control thread and the counts of exported spans.
struct Stand {
    exported: Arc<Exported>,
    fetcher: Fetcher,
    local: tokio::task::LocalSet,
}

impl Stand {
    fn new() -> Self {
        let local = tokio::task::LocalSet::new();
        let (fetcher, asked) = Fetcher::channel();
        local.spawn_local(serve(asked, Arc::default()));
        Self { exported: Arc::default(), fetcher, local }
    }

    /// Sends these pieces, closes, and lets the task end.
    async fn send(self, url: &str, timeout: Duration, pieces: &[(&[u8], u64)]) -> Arc<Exported> {
        let destination = Destination {
            signal: Signal::Spans,
            url: url.parse().unwrap(),
            protocol: Protocol::Http,
            headers: Vec::new(),
            trust: Trust::default(),
            timeout,
            resource: vec![("service.name".to_owned(), "w".to_owned())],
        };
        let Self { exported, fetcher, local } = self;
        let control = Handle::current();
        let exporter = Exporter::start(destination, &exported, &control, &fetcher);
        for (bytes, count) in pieces {
            let _ = exporter.outlet().hand_over(bytes.to_vec(), *count);
        }
        let ended = local.run_until(tokio::task::spawn_blocking(move || exporter.end(PATIENCE)));
        ended.await.unwrap();
        exported
    }
}

fn answering(answer: &str) -> Upstream {
    Upstream::fixed(answer)
}

#[tokio::test]
async fn a_batch_is_one_request() {
    let collector = answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://{}", collector.address());
    let exported = Stand::new().send(&url, PATIENCE, &[(b"\x12\x01a", 1), (b"\x12\x01b\x12\x01c", 2)]).await;
    assert_eq!((exported.total(), exported.lost()), (3, 0));
    let request = collector.take_request();
    assert_eq!(request.head.line, "POST /v1/traces HTTP/1.1");
    assert_eq!(request.head.header("content-type"), Some("application/x-protobuf"));
    let body = request.body.bytes;
    assert!(body.windows(9).any(|window| window == b"\x12\x01a\x12\x01b\x12\x01c"), "{body:?}");
}

#[tokio::test]
async fn what_is_refused_is_counted() {
    for (answer, sent, rejected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x02", 3, 2),
        ("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", 0, 5),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x7f", 0, 5),
    ] {
        let collector = answering(answer);
        let exported =
            Stand::new().send(&format!("http://{}", collector.address()), PATIENCE, &[(b"", 5)]).await;
        assert_eq!((exported.total(), exported.lost_by(Lost::Rejected)), (sent, rejected), "{answer}");
    }
}

#[tokio::test]
async fn the_end_waits_for_no_collector_that_is_away() {
    let (_held, nobody) = refusing_address();
    let exported = Stand::new().send(&format!("http://{nobody}"), PATIENCE, &[(b"", 2)]).await;
    assert_eq!(exported.lost_by(Lost::Failed), 2);
    let silent = Upstream::listen();
    let url = format!("http://{}", silent.address());
    let exported = Stand::new().send(&url, Duration::from_millis(50), &[(b"", 2)]).await;
    assert_eq!(exported.lost_by(Lost::Failed), 2);
}

#[tokio::test]
async fn what_is_too_much_is_dropped_and_counted() {
    let (to, _pieces) = mpsc::channel(WAITING);
    let exported: Arc<Exported> = Arc::default();
    let outlet = Outlet { to, exported: Arc::clone(&exported) };
    let mut outbox = outlet.outbox();
    for _ in 0..WAITING + 3 {
        outbox.add(2, |out| out.extend_from_slice(&[0; PIECE_BYTES]));
    }
    assert_eq!(exported.lost_by(Lost::Slow), 6);
    drop(outbox);
    assert_eq!(exported.lost(), 6);
}
