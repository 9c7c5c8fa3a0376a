//! `weir origin`: the built-in origin at a given address, until a signal stops it.

use super::print;
use anyhow::Result;
use clap::Args;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use weir_gateway::config::units::ByteSize;
use weir_origin::{FIXED_MOST, Options, Origin, Tls, list};

#[derive(Args)]
pub(super) struct Serve {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    http: SocketAddr,
    /// Threads [default: one per available core]
    #[arg(short = 't', long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Use TLS with a new self-signed certificate
    #[arg(long)]
    tls: bool,
    /// Use TLS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Answer every request, whatever its path, with 200 and a body of this size, such as 1KiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fixed: Option<usize>,
}

/// A size, in the syntax of configs.
fn size(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<ByteSize>().ok().map(ByteSize::as_usize);
    bytes.filter(|n| *n <= FIXED_MOST).ok_or_else(|| "expected a size such as 1KiB, at most 64MiB".to_owned())
}

impl Serve {
    pub(super) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Registered early, since a signal that arrives before its handler would kill the process.
        let (mut interrupt, mut terminate) = {
            let _in_runtime = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let _ = weir_wire::limits::raise_descriptors(); // if it fails, fewer connections fit and more wait
        let (scheme, tls) = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => ("https", Tls::Files { cert: cert.clone(), key: key.clone() }),
            _ if self.tls => ("https", Tls::SelfSigned),
            _ => ("http", Tls::Off),
        };
        let threads = self.threads.unwrap_or(cores);
        let options = Options { address: self.http, threads, tls, fixed: self.fixed };
        let origin = match Origin::start(options) {
            Ok(origin) => origin,
            // An error about a certificate names its file.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
                errln!("weir origin: {e}");
                return Ok(ExitCode::from(2));
            }
            Err(e) => {
                errln!("weir origin: --http: {e}");
                return Ok(ExitCode::from(1));
            }
        };
        let mut text = format!("It flows on {scheme}://{}\n\n", origin.address());
        if self.fixed.is_none() {
            let by = if scheme == "https" { "by ALPN" } else { "without TLS" };
            text.push_str(&list());
            let _ = writeln!(
                text,
                "\nThe same port speaks HTTP/2 {by}, and gRPC: helloworld.v1.Greeter, health, reflection."
            ); // a String takes everything
        }
        print(&text);
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        origin.stop();
        Ok(ExitCode::SUCCESS)
    }
}
