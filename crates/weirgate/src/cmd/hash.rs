//! `weir hash`: makes the hash of a password, for `basic_auth` of a consumer.

use super::print;
use anyhow::{Result, bail};
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin};
use std::process::ExitCode;
use weir_gateway::password::{Algorithm, PASSWORD_BYTES, hash};

/// The password is read from standard input, up to the end of the line.
#[derive(Args)]
pub(super) struct Hash {
    /// Name of the user: prints USER:HASH, as `basic_auth` wants it
    #[arg(long)]
    user: Option<String>,
    /// Hash by bcrypt (cost 12) instead of argon2id (19 MiB, two rounds)
    #[arg(long)]
    bcrypt: bool,
}

impl Hash {
    pub(super) fn run(&self) -> Result<ExitCode> {
        if self.user.as_ref().is_some_and(|user| user.is_empty() || user.contains(':')) {
            bail!("a user has a name, without a colon in it (RFC 7617 §2)");
        }
        if stdin().is_terminal() {
            eprintln!("password, which will be seen as you type; better: weir hash < FILE");
        }
        let mut line = Vec::new();
        stdin().lock().take(PASSWORD_BYTES as u64 + 3).read_until(b'\n', &mut line)?;
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
