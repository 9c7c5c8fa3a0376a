//! Output after a failed run: exit code, where the time went, certificate problems.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use weir_testkit::{Authority, ServerTls, Upstream, unused_address};

use super::{load, report, url};
use crate::support::{OK, OK_BODY};

#[test]
fn a_run_without_any_response_has_failed() {
    let dead = format!("http://{}/", unused_address());
    load(&["-n2", "-c1", &dead]).expect_code(1).expect_text("weir load: there was no response");
    load(&["-n2", "-c1", "--exit-codes", "k6", &dead]).expect_code(0);
    let upstream = Upstream::fixed("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    load(&["-n2", "-c1", &url(&upstream)]).expect_code(0);
    load(&["-n2", "-c1", "--require", "valid", &url(&upstream)])
        .expect_code(1)
        .expect_text("weir load: --require valid: the result is INVALID: mostly_refused");
}

#[test]
fn a_timeout_says_what_was_waited_for() {
    let texts = |args: &[&str]| -> Vec<String> {
        let r = report(&[&["-n1", "-c1", "--timeout", "150ms"], args].concat());
        assert_eq!((r.counts.errors.timeout, r.counts.errors.total()), (1, 1), "{:?}", r.counts);
        r.counts.error_texts.into_keys().collect()
    };
    let silent = Upstream::script(|conn| while conn.next_request().is_some() {});
    assert_eq!(texts(&[&url(&silent)]), ["timeout before the head of a response was complete"]);
    let half = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        while conn.next_request().is_some() {}
    });
    assert_eq!(texts(&[&url(&half)]), ["timeout in the middle of a response"]);
    // It accepts connections and stays silent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(texts(&["--insecure", &format!("https://{address}/")]), ["timeout in the TLS handshake"]);
    #[allow(unsafe_code)]
    // SAFETY: a plain system call on a socket that already listens; its queue is now full.
    unsafe {
        libc::listen(listener.as_raw_fd(), 0);
    }
    let _fills: Vec<_> = (0..2)
        .filter_map(|_| TcpStream::connect_timeout(&address, std::time::Duration::from_millis(50)).ok())
        .collect();
    assert_eq!(texts(&[&format!("http://{address}/")]), ["timeout while connecting"]);
}

#[test]
fn a_bad_certificate_is_told_in_words_that_help() {
    let authority = Authority::new();
    let ca = authority.file();
    let ca = ca.to_str().unwrap();
    let serve = |tls: ServerTls| Upstream::fixed_tls(&tls, OK_BODY);
    let told = |upstream: &Upstream, args: &[&str]| -> Vec<String> {
        let target = format!("https://localhost:{}/", upstream.address().port());
        let r = report(&[&["-n4", "-c2", &target], args].concat());
        assert_eq!(r.counts.errors.total(), 4, "{:?}", r.counts);
        r.counts.error_texts.into_keys().collect()
    };
    let good = serve(ServerTls::new(&authority.leaf(&["localhost"])));
    let hint = "the certificate is signed by an untrusted issuer; --cacert with that issuer's certificate trusts it, --insecure accepts any";
    assert_eq!(told(&good, &[]), [hint]);
    let expired = serve(ServerTls::new(&authority.expired_leaf(&["localhost"])));
    assert_eq!(
        told(&expired, &["--cacert", ca]),
        ["the certificate has expired; --insecure accepts it anyway"]
    );
    let other = serve(ServerTls::new(&authority.leaf(&["a.weir.test"])));
    let name = told(&other, &["--cacert", ca]).concat();
    assert!(name.contains("a.weir.test") && name.ends_with("--server-name says what to ask for"), "{name}");
    let wants = serve(ServerTls::demanding(&authority.leaf(&["localhost"]), &authority));
    let ours = told(&wants, &["--cacert", ca]).concat();
    assert!(ours.ends_with("; --cert and --key name one"), "{ours}");
}

#[test]
fn a_certificate_that_is_its_own_authority_is_trusted_by_name() {
    let authority = Authority::new();
    let own = authority.self_signed(&["localhost"]);
    let upstream = Upstream::fixed_tls(&ServerTls::new(&own), OK);
    let target = format!("https://localhost:{}/", upstream.address().port());
    let given = own.cert_file.to_str().unwrap();
    assert_eq!(report(&["-n2", "-c1", "--cacert", given, &target]).counts.responses, 2);
    // Another authority with the same name, and the same one under another name.
    let other = authority.self_signed(&["localhost"]);
    let r = report(&["-n2", "-c1", "--cacert", other.cert_file.to_str().unwrap(), &target]);
    assert_eq!((r.counts.responses, r.counts.errors.tls), (0, 2), "{:?}", r.counts);
    let by_address = format!("https://{}/", upstream.address());
    let r = report(&["-n2", "-c1", "--cacert", given, &by_address]);
    assert!(r.counts.error_texts.keys().all(|text| text.contains("localhost, not for 127.0.0.1")), "{r:#?}");
}

#[test]
fn what_comes_before_the_request_is_not_its_answer() {
    // It answers on connect. With many connections, some answers arrive before their requests.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            if stream.write_all(OK_BODY.as_bytes()).is_ok() {
                kept.push(stream);
            }
        }
    });
    let early = (0..10).any(|_| {
        let r = report(&["-n300", "-c300", "--threads=1", "--timeout", "2s", &target]);
        r.counts.error_texts.keys().any(|text| text.contains("before any request"))
    });
    assert!(early, "not one answer of 3,000 was seen to be early");
}
