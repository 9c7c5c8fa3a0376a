//! The processes of a bench, all started from this binary: the built-in origin and the gateways in front of it.

use crate::cmd::process::{LOOK, Process};
use anyhow::{Context, Result, anyhow};
use sha2::{Digest as _, Sha256};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_gateway::config::Source;
use weir_gateway::config::load::ORIGIN_VARIABLE;
use weir_gateway::rehearsal::Identity;
use weir_wire::hex;

/// How long a process may take until it serves.
const READY: Duration = Duration::from_secs(10);

/// The body that the origin sends with every answer.
const BODY: &str = "1KiB";

/// The origin, and a folder for the files that gateways need to start. Dropping it stops the origin and removes
/// the folder.
pub(super) struct Stage {
    pub(super) origin: SocketAddr,
    process: Process,
    dir: TempDir,
}

/// A gateway that runs until it is dropped.
pub(super) struct Gateway {
    process: Process,
    /// Pairs of name and address.
    listeners: Vec<(String, String)>,
}

impl Stage {
    pub(super) fn new() -> Result<Self> {
        let mut command = this()?;
        command.args(["origin", "--http", "127.0.0.1:0", "--threads", "1", "--fixed", BODY]);
        let mut process = Process::start(&mut command, libc::SIGTERM)?;
        let origin = wait(&mut process, |process| {
            let printed = process.printed();
            let (_, rest) = printed.split_once("http://")?;
            rest.split_whitespace().next()?.parse().ok()
        })?;
        Ok(Self { origin, process, dir: TempDir::new()? })
    }

    pub(super) fn origin_pid(&self) -> u32 {
        self.process.pid()
    }

    /// The admin socket of gateways while they start.
    pub(super) fn admin(&self) -> PathBuf {
        self.dir.path().join("admin.sock")
    }

    /// Makes the client certificate for listeners that require one.
    pub(super) fn identity(&self) -> Result<Identity> {
        let made = rcgen::generate_simple_self_signed(["weir-bench".to_owned()])?;
        write(&self.key(), &made.signing_key.serialize_pem())?;
        write(&self.certificate(), &made.cert.pem())?;
        let fingerprint = hex::encode(&Sha256::digest(made.cert.der()));
        Ok(Identity { certificate: self.certificate(), fingerprint })
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.dir.path().join("client.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.dir.path().join("client.key")
    }

    /// Tells the embedded default config where its origin is.
    pub(super) fn for_default(&self, source: Source) -> Source {
        if source.is_embedded() {
            source.with_variable(ORIGIN_VARIABLE, self.origin.to_string())
        } else {
            source
        }
    }

    /// Starts a gateway with this config and waits until it serves. The gateway then needs neither the config nor
    /// the socket. Both are removed, because the config may hold keys.
    pub(super) fn gateway(&self, config: &str) -> Result<Gateway> {
        let (path, admin) = (self.dir.path().join("weir.yaml"), self.admin());
        let gone = |path: &Path| drop(std::fs::remove_file(path));
        gone(&admin);
        write(&path, config)?;
        let mut command = this()?;
        command.arg("run").arg("-c").arg(&path);
        let mut process = Process::start(&mut command, libc::SIGTERM)?;
        let address = format!("unix:{}", admin.display());
        let status = wait(&mut process, |_| {
            if !admin.exists() {
                return None;
            }
            weir_admin::client::status(&address, None).ok().filter(weir_admin::client::Answer::is_success)
        });
        gone(&path);
        gone(&admin);
        let status = status?.json();
        let named = status["listeners"].as_object().into_iter().flatten();
        let listeners = named
            .filter_map(|(name, address)| Some((name.clone(), address["address"].as_str()?.to_owned())))
            .collect();
        Ok(Gateway { process, listeners })
    }
}

/// Writes a file that only this user may read.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

impl Gateway {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The address of a listener.
    pub(super) fn listener(&self, name: &str) -> Result<String> {
        let found = self.listeners.iter().find(|(known, _)| known == name);
        found.map(|(_, address)| address.clone()).ok_or_else(|| anyhow!("the gateway has no listener {name}"))
    }
}

/// A command that runs this binary.
fn this() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("where this program is cannot be found")?))
}

/// Polls until `look` returns something.
fn wait<T>(process: &mut Process, mut look: impl FnMut(&mut Process) -> Option<T>) -> Result<T> {
    let until = Instant::now() + READY;
    loop {
        if let Some(found) = look(process) {
            return Ok(found);
        }
        if let Some(status) = process.ended() {
            return Err(anyhow!("the process ended with {status}: {}", process.printed()));
        }
        if Instant::now() > until {
            return Err(anyhow!("the process does not serve after {READY:?}: {}", process.printed()));
        }
        std::thread::sleep(LOOK);
    }
}
