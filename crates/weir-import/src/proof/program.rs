//! A program whose config can be staged and run: all that a proof must know of it.
//!
//! To add one: a `pub(crate) static PROGRAM: Program` beside the system's stage, and its line in `stage.rs`. The crate
//! weirgate starts it in the world of the proof. There, [`WORKSPACE`] is the current folder, `HOME` and `TMPDIR`, and
//! all other files are read-only. In the end, the program is killed with everything that it started.

use super::WORKSPACE;
use super::patterns::Stage;
use crate::source::{SourceTree, Unreadable};

/// The certificate, its key, and both in one file, which every staged config shows to clients. The programs trust it.
pub const CERTIFICATE: &str = "/run/weir-proof/cert.pem";
/// See [`CERTIFICATE`].
pub const KEY: &str = "/run/weir-proof/key.pem";
/// See [`CERTIFICATE`].
pub const PAIR: &str = "/run/weir-proof/pair.pem";

/// Folders in which packages put programs, looked through after those of `PATH`.
pub const FOLDERS: &[&str] =
    &["/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin", "/usr/local/nginx/sbin"];

/// A program that reads the configs of one system.
#[derive(Debug)]
pub struct Program {
    /// The name of the system on the command line.
    pub system: &'static str,
    /// Its name in sentences.
    pub title: &'static str,
    /// The name of the binary.
    pub binary: &'static str,
    /// The end of the staged file's name, for programs that go by it.
    pub suffix: &'static str,
    /// Stages the files of a tree; the text is the folder of the first, for relative paths.
    pub stage: fn(&mut SourceTree<'_>, &str) -> Result<Stage, Unreadable>,
    /// The arguments that print its version.
    pub version: &'static [&'static str],
    /// The arguments that check the config at this path and end.
    pub check: fn(&str) -> Vec<String>,
    /// How it reads its own config, for `weir import --use-program`.
    pub reads: Reads,
    /// The arguments that run the config at this path in the foreground.
    pub run: fn(&str) -> Vec<String>,
    /// Its environment, beside `HOME`, `PATH` and `TMPDIR`.
    pub environment: &'static [(&'static str, &'static str)],
    /// Folders below the workspace that it needs.
    pub folders: &'static [&'static str],
    /// What it says when it refuses its config: the line of the staged file, and the words without it.
    pub refusal: fn(&str) -> (Option<usize>, String),
    /// Words of the pages that it brings along for its own answers. What such a page says is not compared.
    pub own_pages: &'static [&'static str],
}

/// How a program reads a config that it does not run.
#[derive(Clone, Copy, Debug)]
pub enum Reads {
    /// It says whether the config is good: [`Program::check`].
    Checks,
    /// With these arguments it prints the config as one file, whose name ends so.
    One(fn(&str) -> Vec<String>, &'static str),
    /// With these arguments it prints every file that it read, each behind a line that begins with this text and ends
    /// with its path and a colon.
    Files(fn(&str) -> Vec<String>, &'static str),
}

impl Reads {
    /// The files in what the program printed, the first first, by path. `config` is the path that it was given.
    #[must_use]
    pub fn files_in(self, config: &str, printed: &str) -> Vec<(String, String)> {
        let mark = match self {
            Self::Checks => return Vec::new(),
            Self::One(_, end) => return vec![(format!("{config}{end}"), printed.to_owned())],
            Self::Files(_, mark) => mark,
        };
        let mut files: Vec<(String, String)> = Vec::new();
        for line in printed.split_inclusive('\n') {
            let path = line.strip_prefix(mark).and_then(|rest| rest.trim_end().strip_suffix(':'));
            match (path, files.last_mut()) {
                (Some(path), _) => files.push((path.to_owned(), String::new())),
                (None, Some((_, text))) => text.push_str(line),
                (None, None) => {}
            }
        }
        files
    }
}

impl Program {
    /// A system whose program nobody starts, because it is asked where it runs.
    #[must_use]
    pub fn elsewhere(system: &'static str, title: &'static str) -> Self {
        Self {
            system,
            title,
            binary: system,
            suffix: "",
            stage: |_, _| Ok(Stage::default()),
            version: &[],
            check: |_| Vec::new(),
            reads: Reads::Checks,
            run: |_| Vec::new(),
            environment: &[],
            folders: &[],
            refusal: |said| (None, said.to_owned()),
            own_pages: &[],
        }
    }

    /// The staged config's path in the workspace; `name` tells several of them apart.
    #[must_use]
    pub fn config_path(&self, name: &str) -> String {
        format!("{WORKSPACE}/{name}{}", self.suffix)
    }

    /// The version in what it printed when asked for it.
    #[must_use]
    pub fn version_in(&self, said: &str) -> Option<String> {
        let first = said.lines().find(|line| !line.trim().is_empty())?;
        let first = first.strip_prefix("nginx version: ").unwrap_or(first).trim();
        Some(if first.starts_with(|c: char| c.is_ascii_digit() || c == 'v') {
            format!("{} {first}", self.title)
        } else {
            first.to_owned()
        })
    }
}

/// The number behind the first `mark` that has one: `… in /path/old.conf:12`.
pub(crate) fn number_after(said: &str, mark: &str) -> Option<usize> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    said.match_indices(mark).find_map(|(at, mark)| digits(&said[at + mark.len()..]).parse().ok())
}
