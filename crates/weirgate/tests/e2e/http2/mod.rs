//! HTTP/2 from clients and to upstreams: frames in, bytes out, and back.

mod answers;
mod bodies;
mod clients;
mod edges;
mod faults;
mod floods;
mod heads;
mod life;
mod links;
mod memory;
mod pairs;
mod repeats;
mod secure;
mod streams;
mod waits;
mod websocket;

use std::net::SocketAddr;

use weir_testkit::Weir;

use crate::support::ALL_TO_UP;

/// A listener `web` for both protocols.
const BOTH: &str = "listeners: { web: { address: 127.0.0.1:0, protocols: [http1, h2] } }";

/// Logs each exchange.
const LOG: &str = "access_log: { output: stdout }";

/// An upstream that speaks HTTP/2 in cleartext.
const H2C: &str = "protocol: h2c";

/// A gateway for both protocols in front of one endpoint, with these settings of the upstream.
#[track_caller]
fn weir(endpoint: SocketAddr, settings: &str) -> Weir {
    weir_with(endpoint, settings, "")
}

/// As [`weir`], with more top-level keys.
#[track_caller]
fn weir_with(endpoint: SocketAddr, settings: &str, more: &str) -> Weir {
    let comma = if settings.is_empty() { "" } else { "," };
    Weir::start(&format!(
        "{BOTH}\nupstreams: {{ up: {{ endpoints: [{endpoint}]{comma} {settings} }} }}\n{ALL_TO_UP}\n{LOG}\n{more}\n"
    ))
}

/// The fields of a GET, followed by others.
fn get<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    ask("GET", "/", more)
}

/// The fields of a request to `weir.test`, followed by others.
fn ask<'a>(method: &'a str, path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields =
        vec![(":method", method), (":scheme", "http"), (":authority", "weir.test"), (":path", path)];
    fields.extend_from_slice(more);
    fields
}

/// Waits until this cause has been counted.
#[track_caller]
fn counted(weir: &Weir, cause: &str) {
    weir_testkit::eventually(&format!("{cause} is counted"), || {
        let named = format!("\"{cause}\"");
        metrics(weir).lines().any(|line| {
            line.starts_with("weir_causes_total") && line.contains(&named) && !line.ends_with(" 0")
        })
    });
}

/// The gateway's metrics.
#[track_caller]
fn metrics(weir: &Weir) -> String {
    weir.admin_client().ask(format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin())).text()
}
