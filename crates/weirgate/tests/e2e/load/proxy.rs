//! The load tester through a proxy: when it uses one, its requests to it, and the report.

use tempfile::TempDir;
use weir_origin::{Origin, Tls};
use weir_report::Report;
use weir_testkit::{Proxy, weir_command};

use super::{load, origin, report};

#[test]
fn requests_go_to_a_proxy_in_absolute_form() {
    let (_origin, url) = origin("/body/1KiB");
    let proxy = Proxy::start();
    let by = format!("http://me:secret@{}", proxy.address());
    let finished = load(&["-n20", "-c2", "--check", "status=200", "--format", "json", "--proxy", &by, &url]);
    let r: Report = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((r.counts.responses, r.counts.failed_checks, r.connections.reused), (20, 0, 18), "{r:#?}");
    let heads = proxy.heads();
    let target = url.strip_prefix("http://").unwrap().strip_suffix("/body/1KiB").unwrap();
    assert_eq!(
        heads[0],
        format!("GET {url} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n")
    );
    let name = format!("http://{}", proxy.address());
    assert_eq!((heads.len(), r.ledger.proxies.get(&name)), (2, Some(&2)), "{:?}", r.ledger.proxies);
    assert_eq!(r.plan.targets[0].proxy, Some(name.clone()));
    assert!(!finished.stdout.contains("secret") && !finished.stdout.contains("bWU6c2VjcmV0"));
    load(&["-n1", "--proxy", &by, &url]).expect_text(&format!("proxy        {name}, 1 connection\n"));
}

#[test]
fn all_else_goes_through_a_tunnel_and_the_proxy_looks_up_names() {
    let options = weir_origin::Options { tls: Tls::SelfSigned, ..weir_origin::Options::default() };
    let secure = Origin::start(options).unwrap();
    let (plain, _) = origin("/");
    let (tls, open) = (secure.address().port(), plain.address().port());
    let proxy = Proxy::start();
    let by = proxy.address().to_string();
    for (args, url) in [
        (&["--insecure"][..], format!("https://a.weir.test:{tls}/body/1KiB")),
        (&["--insecure", "--http2", "-m5"], format!("https://a.weir.test:{tls}/body/1KiB")),
        (&["--http2"], format!("http://a.weir.test:{open}/body/1KiB")),
        (&["--insecure"], format!("grpcs://a.weir.test:{tls}/helloworld.v1.Greeter/SayHello")),
        (&[], format!("grpc://a.weir.test:{open}/helloworld.v1.Greeter/SayHello")),
        (&["--insecure"], format!("wss://a.weir.test:{tls}/ws")),
        (&[], format!("ws://a.weir.test:{open}/ws")),
        (&["--rate", "1000/s"], format!("ws://a.weir.test:{open}/ws")),
    ] {
        let before = proxy.heads().len();
        let r = report(&[args, &["-n20", "-c2", "--threads=1", "--proxy", &by, &url]].concat());
        assert_eq!((r.counts.responses, r.counts.errors.total()), (20, 0), "{url}: {r:#?}");
        let heads = proxy.heads();
        let port = if url.contains("s://") && !url.starts_with("ws:") { tls } else { open };
        let want = format!("CONNECT a.weir.test:{port} HTTP/1.1\r\nHost: a.weir.test:{port}\r\n\r\n");
        assert!(heads.len() > before && heads[before..].iter().all(|h| *h == want), "{url}: {heads:?}");
        assert_eq!(r.ledger.proxies.values().sum::<u64>(), r.connections.opened, "{url}");
    }
}

#[test]
fn the_environment_is_looked_at_when_asked_for_only() {
    let (_origin, url) = origin("/body/1KiB");
    let proxy = Proxy::start();
    let run = |args: &[&str], except: &str| {
        let output = weir_command(TempDir::new().unwrap().path())
            .current_dir("/")
            .env("HTTP_PROXY", format!("http://{}", proxy.address()))
            .env("http_proxy", proxy.address().to_string())
            .env("NO_PROXY", except)
            .env_remove("no_proxy")
            .args(["load", "-n2", "-c1", "--format", "json"])
            .args(args)
            .arg(&url)
            .output()
            .unwrap();
        let r: Report = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(r.counts.responses, 2);
        r.ledger.proxies.len()
    };
    assert_eq!((run(&[], ""), proxy.heads().len()), (0, 0));
    assert_eq!((run(&["--proxy", "env"], ""), proxy.heads().len()), (1, 1));
    assert_eq!((run(&["--proxy", "env"], "127.0.0.0/8"), proxy.heads().len()), (0, 1));
}

#[test]
fn a_proxy_that_refuses_is_named() {
    let proxy = Proxy::refusing("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    let by = format!("http://{}", proxy.address());
    let r = report(&["-n2", "-c1", "--proxy", &by, "https://127.0.0.1:1/"]);
    let text = format!("the proxy {by}: CONNECT was answered 407");
    assert_eq!((r.counts.errors.connect, r.counts.error_texts.get(&text)), (2, Some(&2)), "{:?}", r.counts);
    let address = weir_testkit::unused_address();
    let r = report(&["-n1", "--proxy", &format!("http://{address}"), "http://127.0.0.1:1/"]);
    let texts = r.counts.error_texts;
    assert!(texts.keys().any(|t| t.starts_with(&format!("the proxy http://{address}: "))), "{texts:?}");
}

#[test]
fn a_proxy_that_cannot_be_is_refused() {
    for (args, text) in [
        (&["--proxy", "socks5://127.0.0.1:1"][..], "a proxy is spoken to by http, not by socks5"),
        (
            &["--proxy", "http://u:secret@127.0.0.1:1/path"],
            "--proxy http://***@127.0.0.1:1/path: expected env",
        ),
        (&["--proxy", "127.0.0.1:1", "--unix-socket", "/"], "--unix-socket says where"),
        (&["--proxy", "127.0.0.1:1", "--pid", "auto"], "--pid auto: the target is behind a proxy"),
    ] {
        let finished = load(&[args, &["http://127.0.0.1:1/"]].concat());
        finished.expect_code(2);
        assert!(finished.stderr.contains(text) && !finished.stderr.contains("secret"), "{finished:#?}");
    }
}
