//! `weir agent`: generates load for a coordinator, `weir load --agents`, until a signal stops it.

use super::load::end_on_signal;
use super::print;
use anyhow::Result;
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_load::Interrupt;
use weir_load::agents::{AgentOptions, Allow, Limits, serve_agent};
use weir_report::units;
use weir_wire::Chain;
use weir_wire::tls::{Certificate, ClientAuth, Identity, Policy, ServerTls, Shown, Tickets};

/// The shortest token: guessing it must not be possible.
const TOKEN_LEAST: usize = 16;

#[derive(Args)]
pub(super) struct Agent {
    /// Address to listen on for coordinators; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Certificate of this agent, PEM
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// CA certificate that must have signed the certificate of a coordinator
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
    /// Instead of certificates, on loopback only: a file with the token that coordinators send, at least 16 characters
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Target that this agent may load: SCHEME://HOST:PORT, such as 'https://*.staging.example:443'; may be repeated
    #[arg(long, value_name = "PLACE", required = true, value_delimiter = ',')]
    allow: Vec<String>,
    /// Highest rate of requests that this agent accepts, such as 5000/s; it then refuses loads without a rate
    #[arg(long, value_name = "RATE")]
    max_rate: Option<String>,
    /// Most connections that a run may ask this agent for
    #[arg(long, value_name = "N")]
    max_connections: Option<u64>,
    /// Longest run that this agent accepts, warm-up included
    #[arg(long, value_name = "TIME")]
    max_duration: Option<String>,
    /// Allow plans with `exec` steps, which run programs on this machine
    #[arg(long)]
    allow_exec: bool,
}

impl Agent {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (limits, tls, token) = match (self.limits(), self.tls(), self.token()) {
            (Ok(limits), Ok(tls), Ok(token)) => (limits, tls, token),
            (limits, tls, token) => {
                let wrong = [limits.err(), tls.err(), token.err()];
                wrong.iter().flatten().for_each(|why| errln!("weir agent: {why}"));
                return Ok(ExitCode::from(2));
            }
        };
        let end = Interrupt::default();
        end_on_signal(&end)?;
        let options = AgentOptions {
            listen: self.listen,
            tls,
            token,
            limits,
            log: Box::new(|line| errln!("weir agent: {line}")),
            ready: Box::new(|address| print(&format!("weir agent listens on {address}\n"))),
            end,
        };
        match serve_agent(options) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(e) => {
                errln!("weir agent: --listen {}: {e}", self.listen);
                Ok(ExitCode::from(1))
            }
        }
    }

    fn limits(&self) -> Result<Limits, String> {
        let read = |name: &str, text: &Option<String>, form: &str| {
            let told = || format!("{name} {}: expected {form}", text.as_deref().unwrap_or_default());
            (told(), text.clone())
        };
        let (wrong, rate) = read("--max-rate", &self.max_rate, "a rate such as 5000/s");
        let max_rate = rate.map(|text| units::rate(&text).ok_or(wrong)).transpose()?;
        let (wrong, time) = read("--max-duration", &self.max_duration, "a time such as 10m");
        let max_duration = time.map(|text| units::duration(&text).ok_or(wrong)).transpose()?;
        Ok(Limits {
            allow: Allow::parse(&self.allow)?,
            max_rate,
            max_connections: self.max_connections,
            max_duration,
            allow_exec: self.allow_exec,
        })
    }

    /// The policy of TLS: both sides show a certificate.
    fn tls(&self) -> Result<Option<ServerTls>, String> {
        let (Some(cert), Some(key), Some(ca)) = (&self.cert, &self.key, &self.ca) else {
            return match (&self.token_file, self.listen.ip().is_loopback()) {
                (Some(_), true) => Ok(None),
                (Some(_), false) => Err(format!(
                    "--listen {}: a token alone is for loopback; other machines need --cert, --key and --ca",
                    self.listen
                )),
                (None, _) => {
                    Err("an agent sends what it is told: say who may tell it, by --cert, --key and --ca, \
                                  or on loopback by --token-file"
                        .to_owned())
                }
            };
        };
        let identity = Identity { cert: cert.clone(), key: key.clone() };
        let made = Certificate::read(&identity).and_then(|certificate| {
            let shown = Shown { fixed: &[certificate], kept: &[] };
            let auth = ClientAuth::Required(ca.clone());
            ServerTls::new(shown, &auth, &[], &Policy::default(), &Tickets::new()?)
        });
        made.map(Some).map_err(|e| Chain(&e).to_string())
    }

    fn token(&self) -> Result<Option<String>, String> {
        self.token_file.as_deref().map(read_token).transpose()
    }
}

/// The token in a file.
pub(super) fn read_token(path: &Path) -> Result<String, String> {
    let place = format!("--token-file {}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| format!("{place}: {e}"))?;
    let token = text.trim();
    if token.len() < TOKEN_LEAST || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("{place}: expected at least {TOKEN_LEAST} printable characters without blanks"));
    }
    Ok(token.to_owned())
}
