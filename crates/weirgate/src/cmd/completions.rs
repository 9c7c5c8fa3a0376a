//! `weir completions`: prints a shell completion script, generated from the definition of our command line.

use super::{Cli, print};
use anyhow::Result;
use clap::{Args, CommandFactory, ValueEnum};
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Completions {
    /// The shell. bash: write the output to /usr/share/bash-completion/completions/weir, or source it; zsh: write
    /// it to a folder of $fpath as _weir; fish: to ~/.config/fish/completions/weir.fish
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

impl Completions {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Fish => clap_complete::Shell::Fish,
            Shell::Zsh => clap_complete::Shell::Zsh,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
        print(&String::from_utf8(script)?);
        Ok(ExitCode::SUCCESS)
    }
}
