//! `weir hash`: hashes a password, for `basic_auth` of a consumer.

use super::print;
use anyhow::{Result, bail};
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use weir_gateway::password::{Algorithm, PASSWORD_BYTES, hash};

/// The password is read from standard input, up to the end of the line. A terminal does not echo it.
#[derive(Args)]
pub(super) struct Hash {
    /// User name: prints USER:HASH, as `basic_auth` expects it
    #[arg(long)]
    user: Option<String>,
    /// Use bcrypt (cost 12) instead of argon2id (19 MiB, two rounds)
    #[arg(long)]
    bcrypt: bool,
}

impl Hash {
    pub(super) fn run(&self) -> Result<ExitCode> {
        if self.user.as_ref().is_some_and(|user| user.is_empty() || user.contains(':')) {
            bail!("a user name cannot be empty or contain a colon (RFC 7617 §2)");
        }
        let line = read_password()?;
        let password = line.strip_suffix(b"\n").unwrap_or(&line);
        let password = password.strip_suffix(b"\r").unwrap_or(password);
        let algorithm = if self.bcrypt { Algorithm::Bcrypt } else { Algorithm::Argon2id };
        match hash(password, algorithm) {
            Ok(hash) => {
                let user = self.user.as_ref().map(|user| format!("{user}:")).unwrap_or_default();
                print(&format!("{user}{hash}\n"));
                Ok(ExitCode::SUCCESS)
            }
            Err(why) => bail!("{why}"),
        }
    }
}

/// Reads a line of stdin, without echo on a terminal.
fn read_password() -> Result<Vec<u8>> {
    let hidden = if stdin().is_terminal() { Some(Hidden::begin()?) } else { None };
    if hidden.is_some() {
        err!("password: ");
    }
    let mut line = Vec::new();
    stdin().lock().take(PASSWORD_BYTES as u64 + 3).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// A terminal with echo off, until dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> Result<Self> {
        let before = tcgetattr(stdin())?;
        restore_on_signal(before.clone())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0); // the terminal may be gone
    }
}

/// Restores the echo if a signal ends us while we read.
fn restore_on_signal(before: Termios) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
            }
        });
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        errln!();
        std::process::exit(128 + number.as_raw_value());
    });
    Ok(())
}
