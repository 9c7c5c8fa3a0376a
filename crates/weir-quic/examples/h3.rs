//! One HTTP/3 server over QUIC on one core: shows how a connection of weir-quic carries the codec of weir-h3, and lets
//! other programs speak to both (`conformance/h3.py`).
//!
//! usage: h3. It prints its port, and answers each request with its own request line and body, until stdin ends.
//! `h3/talk.rs` is a connection; tests of other crates use it too.

#[path = "h3/talk.rs"]
mod talk;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::error::Error;
use std::future::poll_fn;
use std::io::Read;
use std::sync::Arc;
use talk::{Reply, Talk};
use tokio::task::spawn_local;
use weir_quic::{Endpoint, Home, Keys, Limits, Server, bind};
use weir_wire::Driver;
use weir_wire::listen::Beside;

fn main() -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider);
    let tls = tls.with_protocol_versions(&[&rustls::version::TLS13])?.with_no_client_auth();
    let mut tls = tls.with_single_cert(vec![CertificateDer::from(made.cert)], key)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let keys = Keys::random()?;
    let server = Server::new(Arc::new(tls), &keys, Limits::default())?;
    let group = bind("127.0.0.1:0".parse()?, 1, Beside::Nobody)?;
    let socket = group.sockets.into_iter().next().ok_or("no socket")?;
    println!("{}", group.address.port());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new()); // its end is all that matters
        std::process::exit(0);
    });
    let driver = Driver::new()?;
    let sockets = driver.sockets();
    driver.run(async move {
        let home = Home { core: 0, generation: 0 };
        let endpoint = Endpoint::new(&sockets, socket, home, &keys, Some(server)).expect("a socket for QUIC");
        let runner = endpoint.clone();
        spawn_local(async move { runner.run().await });
        loop {
            let mut talk = Talk::new(endpoint.accept().await, echo);
            spawn_local(poll_fn(move |cx| talk.poll(cx)));
        }
    })?;
    Ok(())
}

/// Answers a request with its own request line and body.
fn echo(line: &str, body: Vec<u8>) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-request: {line}\r\n\r\n", body.len());
    Reply::Whole(head, body)
}
