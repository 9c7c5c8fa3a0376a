//! `weir prove`: replays the proof of an import. `weir import --prove` uses it too.

use super::{Format, print};
use crate::proof::{Elsewhere, Ours, Outcome, Proof, folder_of, prove, refusal};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use weir_import::output::{MAIN, SECRETS};
use weir_import::proof::{Accepted, Program, Report, Stage, corpus};
use weir_import::{Disk, Import, Loader, Place, SourceTree, System};

/// The file that says what to prove and what is accepted.
const RECORD: &str = "proof.yaml";
/// Exit code for a mistake on the command line.
const COMMAND_LINE: u8 = 2;
/// Exit code for a source that cannot be read, or that its own program refuses.
const UNREADABLE: u8 = 3;

/// What `weir prove --help` says.
pub(super) const ABOUT: &str = "\
Replay the proof of an import: the old program and Weir, asked the same.

The folder is one that `weir import` wrote: its proof.yaml names the system, the old config's files, and the
differences that you accept. The old program and Weir run in a sandbox, without a network and with a read-only
root. Both forward to the same echo server and get the same requests.

Exit code: 0 if everything is the same or accepted, 1 if something differs or nothing could be proved, 2 for a
mistake on the command line or in proof.yaml, 3 if the source cannot be read or its own program refuses it.";

#[derive(Args)]
pub(super) struct Prove {
    /// The folder with weir.yaml and proof.yaml
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    options: Options,
    /// Format of the report
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How to prove.
#[derive(Args)]
pub(super) struct Options {
    /// Ask these requests too: an access log, a HAR file, or a list of URLs
    #[arg(long, value_name = "FILE")]
    pub(super) corpus: Option<PathBuf>,
    /// Write the report as one HTML page, too
    #[arg(long, value_name = "PAGE")]
    pub(super) report: Option<PathBuf>,
    /// Ask the old gateway at this URL instead of starting its program: one URL for each scheme. Its upstreams must
    /// lead to this command, which answers for them
    #[arg(long, value_name = "URL")]
    pub(super) against: Vec<String>,
    /// With --against: answer for this upstream of the config at this address. Upstreams on loopback need none
    #[arg(long, value_name = "UPSTREAM=ADDRESS", requires = "against")]
    pub(super) echo: Vec<String>,
}

/// proof.yaml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The system.
    system: String,
    /// The old config's files, relative to the folder.
    files: Vec<PathBuf>,
    /// Requests to ask too, relative to the folder.
    #[serde(default)]
    corpus: Option<PathBuf>,
    /// Accepted differences.
    #[serde(default)]
    accept: Vec<Accepted>,
}

impl Prove {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let path = self.folder.join(RECORD);
        if !path.exists() {
            let (folder, path) = (self.folder.display(), path.display());
            errln!(
                "weir: {path} is missing: `weir import SYSTEM FILE… -o {folder}` writes it, with the old config's files"
            );
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let (read, diagnostics) = weir_gateway::config::read_document::<Record>(&path);
        let Some((record, _)) = read.filter(|_| diagnostics.is_empty()) else {
            errln!("weir: {}", diagnostics.to_text().trim_end());
            return Ok(ExitCode::from(COMMAND_LINE));
        };
        let Some(system) = weir_import::system(&record.system) else {
            errln!("weir: {}: weir import knows no system `{}`", path.display(), record.system);
            return Ok(ExitCode::from(COMMAND_LINE));
        };
        let files: Vec<String> = record
            .files
            .iter()
            .map(|file| shortened(&self.folder.join(file)).display().to_string())
            .collect();
        let options = Options {
            corpus: self.options.corpus.clone().or_else(|| record.corpus.map(|path| self.folder.join(path))),
            report: self.options.report.clone(),
            against: self.options.against.clone(),
            echo: self.options.echo.clone(),
        };
        let told = match Disk::around(&files) {
            Ok(disk) => match prepare(system, &disk, &files, &options)? {
                Ok(proof) => proof.prove(&self.folder, options.report.as_deref(), &record.accept)?,
                Err(told) => told,
            },
            Err(e) => Told::Unreadable(e.to_string()),
        };
        if let Told::Report(report) = &told {
            match self.format {
                Format::Json => print(&format!("{:#}\n", report.to_json())),
                Format::Text => print(&report.to_text()),
            }
        }
        Ok(told.end(self.format))
    }
}

/// Says that the source cannot be used.
pub(super) fn unreadable(why: &str, format: Format) -> ExitCode {
    match format {
        Format::Json => print(&format!("{:#}\n", json!({ "unreadable": why }))),
        Format::Text => errln!("weir: {why}"),
    }
    ExitCode::from(UNREADABLE)
}

/// What a proof gave.
pub(super) enum Told {
    /// The report.
    Report(Box<Report>),
    /// The source cannot be read, or its own program refuses it.
    Unreadable(String),
    /// A value on the command line is wrong.
    Misspelt(String),
}

impl Told {
    /// Says why there is no report, if there is none. Returns the exit code.
    pub(super) fn end(&self, format: Format) -> ExitCode {
        match self {
            Self::Report(report) => ExitCode::from(u8::from(!report.is_proved())),
            Self::Unreadable(why) => unreadable(why, format),
            Self::Misspelt(why) => {
                errln!("weir: {why}");
                ExitCode::from(COMMAND_LINE)
            }
        }
    }
}

/// Everything of a proof that does not depend on the folder of our config.
pub(super) struct Prepared {
    system: &'static System,
    /// What the import makes of the source now.
    import: Import,
    elsewhere: Elsewhere,
    program: Option<&'static Program>,
    stage: Option<Stage>,
    /// The text of the corpus.
    corpus: Option<String>,
    /// The first file of the source.
    first: String,
}

/// Reads everything that a proof needs. Err holds how the command ends instead.
pub(super) fn prepare(
    system: &'static System,
    disk: &dyn Loader,
    files: &[String],
    options: &Options,
) -> Result<std::result::Result<Prepared, Told>> {
    let elsewhere = match Elsewhere::read(&options.against, &options.echo) {
        Ok(elsewhere) => elsewhere,
        Err(why) => return Ok(Err(Told::Misspelt(why))),
    };
    let around = files.first().map_or_else(PathBuf::new, |file| folder_of(file));
    let import = match weir_import::import(system, disk, files) {
        Ok(import) => import,
        Err(e) => return Ok(Err(Told::Unreadable(e.to_string()))),
    };
    let program = weir_import::program(system.name);
    let staged = program.map(|program| {
        let mut tree = SourceTree::open(disk, files)?;
        (program.stage)(&mut tree, &around.display().to_string())
    });
    let stage = match staged.transpose() {
        Err(e) => return Ok(Err(Told::Unreadable(e.to_string()))),
        Ok(stage) => stage,
    };
    let corpus = options.corpus.as_deref().map(read_corpus).transpose()?;
    let first = files.first().cloned().unwrap_or_default();
    Ok(Ok(Prepared { system, import, elsewhere, program, stage, corpus, first }))
}

/// What is said if the old program itself refuses its config.
fn refused(system: &System, place: Option<Place>, said: &str) -> Told {
    let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
    Told::Unreadable(format!("{place}{} itself refuses it: {said}", system.title))
}

impl Prepared {
    /// How the command ends if the old program itself refuses its config. A proof says that too, but only once our
    /// config is written.
    ///
    /// # Errors
    /// If the processes of the sandbox fail.
    pub(super) fn refusal(&self) -> Result<Option<Told>> {
        let (Some(program), Some(stage)) = (self.program, &self.stage) else { return Ok(None) };
        if self.elsewhere.is_used() {
            return Ok(None);
        }
        let found = refusal(program, stage)?;
        Ok(found.map(|(place, said)| refused(self.system, place, &said)))
    }

    /// Proves the config in `folder`, and writes the page.
    ///
    /// # Errors
    /// If our own side fails.
    pub(super) fn prove(&self, folder: &Path, page: Option<&Path>, accept: &[Accepted]) -> Result<Told> {
        let title = self.system.title;
        let secrets = secrets(folder)?;
        let mut keys = Vec::new();
        let outcome = if self.stage.is_none() && !self.elsewhere.is_used() {
            let why = format!(
                "weir does not know how to run {title}: name a gateway that runs elsewhere, --against URL"
            );
            Outcome::Told(Box::new(Report::not_proved(title, &self.import.ledger, why)))
        } else {
            // Never run, as it is asked where it is.
            let elsewhere_only = Program::elsewhere(self.system.name, title);
            let ours = Ours::read(&folder.join(MAIN), &secrets)?;
            keys = ours.keys();
            let written = tempfile::tempdir().context("a folder for the config to compare with")?;
            super::import::write(written.path(), &self.import.written())?;
            // One that cannot be read gives no witnesses; weir import says why.
            let main = written.path().join(MAIN);
            let imported = Ours::read_for_witnesses(&main, &self.import.config.secrets).ok();
            keys.extend(imported.iter().flat_map(Ours::keys));
            // Without a reader of its lines, the witnesses are those of our own routes.
            let whole = self.stage.is_none().then(|| ours.stage(&self.first));
            let stage = self.stage.as_ref().or(whole.as_ref()).context("a stage")?;
            let corpus =
                self.corpus.as_deref().map_or_else(Vec::new, |text| corpus::corpus(text, &stage.patterns));
            prove(&Proof {
                program: self.program.unwrap_or(&elsewhere_only),
                stage,
                import: &self.import,
                ours: &ours,
                imported: imported.as_ref(),
                corpus,
                accept,
                elsewhere: &self.elsewhere,
            })?
        };
        let values: Vec<String> = secrets.into_iter().map(|(_, value)| value).chain(keys).collect();
        let mask = self.import.mask(&values);
        match outcome {
            Outcome::Told(mut report) => {
                report.mask(&mask);
                if let Some(path) = page {
                    fs::write(path, report.to_html()).with_context(|| path.display().to_string())?;
                }
                Ok(Told::Report(report))
            }
            Outcome::Refused(place, said) => Ok(refused(self.system, place, &mask(&said))),
        }
    }
}

/// The differences that the proof.yaml of a folder accepts; none if it has no such file.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn accepted(folder: &Path) -> Result<Vec<Accepted>> {
    let path = folder.join(RECORD);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let (read, diagnostics) = weir_gateway::config::read_document::<Record>(&path);
    match read.filter(|_| diagnostics.is_empty()) {
        Some((record, _)) => Ok(record.accept),
        None => bail!("{}", diagnostics.to_text().trim_end()),
    }
}

/// Writes proof.yaml, unless there is one.
///
/// # Errors
/// If it cannot be written.
pub(super) fn record(system: &System, files: &[String], folder: &Path, options: &Options) -> Result<()> {
    let path = folder.join(RECORD);
    if path.exists() {
        return Ok(());
    }
    let relative = |file: &Path| relative(file, folder).display().to_string();
    let mut text = String::from(
        "# What `weir prove` replays: the old config, and the differences that you accept, such as\n\
         # - { difference: forwarding-fields, why: Weir says who asks and believes no client }\n",
    );
    text.push_str(&format!("system: {}\nfiles:\n", system.name));
    for file in files {
        text.push_str(&format!("- {}\n", json!(relative(Path::new(file)))));
    }
    if let Some(corpus) = &options.corpus {
        text.push_str(&format!("corpus: {}\n", json!(relative(corpus))));
    }
    text.push_str("accept: []\n");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// The values in the file of secrets: `NAME=value` in each line, and `#NAME=value` for one that the source did not
/// have, which serves here unless the environment has another.
fn secrets(folder: &Path) -> Result<Vec<(String, String)>> {
    let path = folder.join(SECRETS);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    let unquoted = |value: &str| {
        let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        match inner {
            Some(inner) => {
                // What weir import escapes: `\`, `"`, `$` and the backtick.
                let mut out = String::with_capacity(inner.len());
                let mut chars = inner.chars();
                while let Some(c) = chars.next() {
                    out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
                out
            }
            None => value.to_owned(),
        }
    };
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        let (name, is_set) = match name.strip_prefix('#') {
            Some(name) => (name, std::env::var_os(name).is_none()),
            None => (name.trim(), true),
        };
        (is_set && is_name(name)).then(|| (name.to_owned(), unquoted(value)))
    });
    Ok(pairs.collect())
}

fn read_corpus(path: &Path) -> Result<String> {
    let file = fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut text = Vec::new();
    file.take(corpus::MAX_BYTES).read_to_end(&mut text).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `file` as seen from `folder`, which exists.
fn relative(file: &Path, folder: &Path) -> PathBuf {
    let (Ok(file), Ok(folder)) = (file.canonicalize(), folder.canonicalize()) else { return file.to_owned() };
    let same = file.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    if same <= 1 {
        return file;
    }
    let up = folder.components().skip(same).map(|_| Component::ParentDir);
    up.chain(file.components().skip(same)).collect()
}

/// A path without `x/..`, where that is no link.
fn shortened(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
