//! Where a report goes besides stdout: to files, and to a Prometheus during the run.

use super::prometheus::{END_MOST, Ended, Remote};
use crate::cmd::output_file::OutputFile;
use anyhow::{Context as _, Result};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_load::RemoteWrite;
use weir_report::layout::{Format, render};
use weir_report::report::Tick;
use weir_report::{Mistake, Report};

/// One `-o` option.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// `prometheus=URL`
    Prometheus(String),
}

impl std::str::FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("prometheus", url)) => Ok(Self::Prometheus(url.to_owned())),
            _ => Err("expected prometheus=URL; another layout is --format csv, json …, a file --save, --html or --summary-export".to_owned()),
        }
    }
}

/// All outputs, open.
pub(super) struct Outputs {
    files: Vec<(OutputFile, &'static Format)>,
    remotes: Vec<Remote>,
}

impl Outputs {
    /// Checks the files, each with the name of its layout, and starts a thread per Prometheus. The name of the
    /// run becomes the label `testid`.
    ///
    /// # Errors
    /// Every output that cannot be written to, as far as can be known before the run.
    pub(super) fn open(
        files: &[(&Option<PathBuf>, &str)],
        outputs: &[Output],
        name: Option<&str>,
    ) -> Result<Self, Vec<Mistake>> {
        let (mut opened, mut mistakes) = (Self { files: Vec::new(), remotes: Vec::new() }, Vec::new());
        for (path, format) in files {
            let (Some(path), Some(format)) = (path, Format::named(format)) else { continue };
            match OutputFile::open(path) {
                Ok(file) => opened.files.push((file, format)),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let labels: Vec<_> = name.iter().map(|name| ("testid".to_owned(), (*name).to_owned())).collect();
        for Output::Prometheus(url) in outputs {
            match RemoteWrite::new(url, &labels)
                .and_then(|remote| Remote::start(remote).map_err(|e| e.to_string()))
            {
                Ok(remote) => opened.remotes.push(remote),
                Err(hint) => mistakes.push(Mistake { place: "-o prometheus".to_owned(), hint }),
            }
        }
        if mistakes.is_empty() { Ok(opened) } else { Err(mistakes) }
    }

    /// Sends the figures of one second of the run, without blocking.
    pub(super) fn tick(&mut self, tick: &Tick) {
        self.remotes.iter_mut().for_each(|remote| remote.tick(tick));
    }

    /// Writes the report to every output.
    ///
    /// # Errors
    /// The first file that could not be written; the others are written nevertheless.
    pub(super) fn end(self, report: &Report) -> Result<()> {
        // A file that cannot be written does not cost the others.
        let written = self.files.into_iter().map(|(file, format)| file.write(&render(report, format)));
        let written: Vec<Result<()>> = written.collect();
        // A failed write to Prometheus does not fail the run, since the report has the figures. All remotes end
        // in parallel and share one deadline.
        let until = Instant::now() + END_MOST;
        let ended: Vec<_> = self.remotes.into_iter().map(|remote| remote.end(report, until)).collect();
        let lost = ended.into_iter().filter_map(Ended::lost);
        lost.for_each(|lost| errln!("weir load: prometheus: {lost}"));
        written.into_iter().collect()
    }
}

/// GitHub accepts at most this much as the summary of a step.
const SUMMARY_MOST: u64 = 1 << 20;

/// A summary in Markdown that is appended to a file.
///
/// In place, unlike other files: several steps add to the file, which the runner may have mounted.
pub(super) struct Summary(PathBuf);

impl Summary {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Appends the summary of a report, if there is room for it.
    pub(super) fn append(self, report: &Report) -> Result<()> {
        let place = || self.0.display().to_string();
        let Some(format) = Format::named("markdown") else { return Ok(()) };
        let text = render(report, format);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).with_context(place)?;
        let there = file.metadata().with_context(place)?.len();
        if there + text.len() as u64 > SUMMARY_MOST {
            errln!("weir load: --summary: {} would exceed 1 MiB, so nothing was added", place());
            return Ok(());
        }
        file.write_all(text.as_bytes()).with_context(place)
    }
}
