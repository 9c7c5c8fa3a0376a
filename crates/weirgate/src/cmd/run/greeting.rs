//! What `weir run` says on a terminal once it serves: what runs, at which addresses, and where to look. Without a
//! terminal it says nothing, because the log has its own lines.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use weir_gateway::Gateway;
use weir_gateway::config::schema::{AdminAddress, Config, ListenAddress, Listener, Serves};
use weir_report::units::counted;
use weir_telemetry::log;
use weir_wire::listen::Address;

/// Most listeners shown; `weir status` shows all.
const SHOWN: usize = 12;

/// How long the log may take to write its lines first.
const FLUSH: Duration = Duration::from_millis(200);

/// Greets whoever started the gateway on a terminal. `file` is its config, if it has one.
pub(super) fn greet(gateway: &Gateway, config: &Config, file: Option<&Path>) {
    let err = std::io::stderr();
    if err.is_terminal() {
        let text = text(&gateway.addresses(), config, file, gateway.status().workers);
        log::flush(FLUSH);
        // A single write, so that log lines of other threads do not end up in the middle.
        let _ = (&err).write_all(text.as_bytes()); // a closed terminal is no reason to stop
    }
}

fn text(bound: &[(String, Address)], config: &Config, file: Option<&Path>, workers: usize) -> String {
    let mut out = String::new();
    let what = file.map_or_else(|| "its embedded default".to_owned(), |file| file.display().to_string());
    let counts = [(config.routes.len(), "route"), (config.upstreams.len(), "upstream"), (workers, "worker")];
    let counts = counts.map(|(n, of)| counted(n as u64, of));
    let version = env!("CARGO_PKG_VERSION");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\nWeir {version} runs {what}: {}.\n", counts.join(", "));
    let tcp: Vec<_> = bound.iter().filter(|(_, address)| !matches!(address, Address::Udp(_))).collect();
    let width = tcp.iter().take(SHOWN).map(|(name, _)| name.len()).max().unwrap_or_default().max(5);
    for (name, address) in tcp.iter().take(SHOWN) {
        let listener = config.listeners.get(name);
        let more = listener.map_or_else(String::new, |listener| notes(listener, address));
        let _ = writeln!(out, "  {name:width$}  {}{more}", url(listener, address));
    }
    if tcp.len() > SHOWN {
        let _ = writeln!(out, "  and {} more listeners", tcp.len() - SHOWN);
    }
    if let AdminAddress::At(address) = &config.admin.address {
        let scheme = if config.admin.tls.is_some() { "https" } else { "http" };
        let address = match address {
            ListenAddress::Tcp(address) => format!("{scheme}://{}", local(*address)),
            other => other.to_string(),
        };
        let _ = writeln!(out, "  {:width$}  {address}  console, /metrics, /status", "admin");
    }
    let first = tcp.iter().find_map(|(name, address)| {
        let listener = config.listeners.get(name)?;
        (listener.serves() == Serves::Http && matches!(address, Address::Tcp(_)))
            .then(|| url(Some(listener), address))
    });
    let request = first.unwrap_or_else(|| "http://HOST".to_owned()) + "/";
    let _ =
        writeln!(out, "\n  weir status   its state           weir explain GET {request}   which route wins");
    let _ = writeln!(out, "  weir why      failed requests     weir --help   all commands");
    if file.is_none() {
        let _ = writeln!(
            out,
            "\n  curl {request}echo   what your service would see, from a small built-in origin"
        );
    }
    let change = match file {
        None => "Write a weir.yaml in this folder to make it yours; `weir check` reads it first.",
        Some(_) if config.watch => {
            "A change of the config takes effect when you save it; `weir check` reads it first."
        }
        Some(_) => "`weir reload` takes over a changed config; `weir check` reads it first.",
    };
    let _ = writeln!(out, "\n{change} Ctrl-C drains and stops.\n");
    out
}

/// How a browser or a client on this machine reaches a listener.
fn url(listener: Option<&Listener>, address: &Address) -> String {
    let Address::Tcp(address) = address else { return format!("{address}") };
    let local = local(*address);
    match listener {
        Some(listener) if listener.serves() != Serves::Http => format!("{local}"),
        Some(listener) if listener.tls.is_some() => format!("https://{local}"),
        _ => format!("http://{local}"),
    }
}

fn notes(listener: &Listener, address: &Address) -> String {
    let mut notes = Vec::new();
    match listener.serves() {
        Serves::Http => {}
        Serves::Sni => notes.push("by the name that TLS asks for"),
        Serves::Tcp => notes.push("bytes"),
    }
    if listener.has_h3() {
        notes.push("HTTP/3 too");
    }
    if matches!(address, Address::Tcp(address) if address.ip().is_unspecified()) {
        notes.push("all addresses");
    }
    if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) }
}

/// The address from this machine.
fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_gateway::config::{Source, load};

    fn config(text: &str) -> Config {
        load(&Source::text("weir.yaml", text)).unwrap().config
    }

    fn at(name: &str, address: &str) -> (String, Address) {
        (name.to_owned(), Address::Tcp(address.parse().unwrap()))
    }

    #[test]
    fn it_says_what_runs_and_where_to_look() {
        let config = config(
            "listeners:\n  web: { address: 0.0.0.0:8080 }\n  secure: { address: \"[::]:8443\", tls: {}, protocols: [ h3, h2 ] }\n  \
             pg: { address: 127.0.0.1:5432, tcp: { upstream: up } }\n\
             upstreams: { up: { endpoints: [ 127.0.0.1:1 ] } }\n\
             routes: { a: { upstream: up }, b: { match: { path: /b }, upstream: up } }\n",
        );
        let bound = [at("web", "0.0.0.0:8080"), at("secure", "[::]:8443"), at("pg", "127.0.0.1:5432")];
        let said = text(&bound, &config, Some(Path::new("./weir.yaml")), 2);
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            &format!("Weir {version} runs ./weir.yaml: 2 routes, 1 upstream, 2 workers."),
            "  web     http://127.0.0.1:8080  all addresses",
            "  secure  https://[::1]:8443  HTTP/3 too, all addresses",
            "  pg      127.0.0.1:5432  bytes",
            "  admin   http://127.0.0.1:9180  console, /metrics, /status",
            "  weir status   its state           weir explain GET http://127.0.0.1:8080/   which route wins",
            "A change of the config takes effect when you save it; `weir check` reads it first. Ctrl-C drains and stops.",
        ] {
            assert!(said.lines().any(|said| said == line), "{line}\n{said}");
        }
        assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");
    }

    #[test]
    fn many_listeners_are_counted() {
        let bound: Vec<_> = (0..20).map(|n| at(&format!("l{n}"), "127.0.0.1:80")).collect();
        let said = text(&bound, &config("admin: { address: \"off\" }\nwatch: false\n"), None, 1);
        assert!(said.contains("  and 8 more listeners\n") && !said.contains("admin"), "{said}");
        assert!(said.contains("runs its embedded default: 0 routes, 0 upstreams, 1 worker."), "{said}");
    }
}
