//! `weir compare`: the same load on several targets in turn, with statistics. The comparison itself is in
//! weir-load.
//!
//! *Layout.* This file holds the command line; `file` is a bench file as written, `run` starts its processes.

mod file;
mod run;

use super::load::{ConnectionArgs, Intended, RequestArgs, end_load_on_signal};
use super::output_file::OutputFile;
use super::{Format, print};
use anyhow::Result;
use clap::Args;
use file::BenchFile;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_load::{Compare as Ready, CompareOptions, Interrupt, Options};
use weir_report::Mistake;
use weir_report::units::counted;

#[derive(Args)]
pub(super) struct Compare {
    /// Run the workloads of a bench file instead, which says what to start and how to load it
    #[arg(short = 'f', long = "file", value_name = "FILE", help_heading = "Bench file", conflicts_with_all = OF_THE_FILE)]
    file: Option<PathBuf>,
    /// Run only this workload of the bench file; may be repeated
    #[arg(long = "workload", value_name = "NAME", help_heading = "Bench file", requires = "file")]
    workloads: Vec<String>,
    /// Report mistakes in the bench file, and start nothing
    #[arg(long = "check-file", help_heading = "Bench file", requires = "file")]
    check_file: bool,

    #[command(flatten)]
    line: LineArgs,

    /// Longest total time [default: 1m]
    #[arg(short = 'd', long, value_name = "TIME", help_heading = "Rounds")]
    duration: Option<String>,

    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    connection: ConnectionArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = "Report")]
    format: Format,
    /// Also save the result, for --against
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    save: Option<PathBuf>,
    /// Also write the result as a single HTML page, readable offline
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
}

/// The comparison on the command line. A bench file states these settings itself.
#[derive(Args)]
struct LineArgs {
    /// Named targets; each is compared with the first
    #[arg(value_name = "NAME=URL")]
    targets: Vec<String>,

    /// Connections to each target; with --rate, the most that may be open [default: 50, with --rate 1000]
    #[arg(short = 'c', long, value_name = "N", help_heading = "Load")]
    connections: Option<u64>,
    /// Start requests at this rate, such as 5000/s, however fast the target answers
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    rate: Option<String>,
    /// Threads [default: one per available core]
    #[arg(long, value_name = "N", help_heading = "Load")]
    threads: Option<u64>,
    /// Check on each response: status=200, body~TEXT, json:$.a=1, size<10KiB; may be repeated
    #[arg(long = "check", value_name = "CHECK", help_heading = "Load")]
    checks: Vec<String>,

    /// Stop early once the confidence intervals are within this share of the estimates, such as 1%
    #[arg(long, value_name = "PERCENT", help_heading = "Rounds")]
    until: Option<String>,
    /// Length of a block, which is one target's turn [default: short enough for ten rounds, at most 2s]
    #[arg(long, value_name = "TIME", help_heading = "Rounds")]
    block: Option<String>,
    /// Warm-up at the start of each block, not counted [default: a quarter of the block]
    #[arg(long, value_name = "TIME", help_heading = "Rounds")]
    warmup: Option<String>,
    /// Measure up to this many blocks again if other programs spoilt them by taking the generator's processor; the
    /// targets must run on other cores of the same machine
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Rounds")]
    repeat_blocks: u64,
    /// Seed for the confidence intervals
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Rounds")]
    seed: u64,

    /// Compare one target with a saved result of `compare` or `load` instead
    #[arg(long, value_name = "FILE", help_heading = "Judgement")]
    against: Option<PathBuf>,
    /// Upstream of the one target: sends requests to both in alternation and reports what the target adds
    #[arg(long, value_name = "URL", help_heading = "Judgement")]
    direct: Option<String>,
    /// Exit with 1 if a target is worse than the first by more than this, such as 'p99 worse 5%'; may be repeated
    #[arg(long = "fail-if", value_name = "CONDITION", help_heading = "Judgement")]
    fail_if: Vec<String>,

    /// Accept targets that do unequal work; otherwise this makes the result INVALID
    #[arg(long, value_enum, value_name = "ok", help_heading = "Judgement")]
    unequal: Option<Intended>,

    /// Report CPU time of the targets' processes: `auto` for the process that listens there, or NAME=PID; may be
    /// repeated
    #[arg(long = "pid", value_name = "auto|NAME=PID", help_heading = "Report")]
    pids: Vec<String>,
}

/// Options that a bench file states itself. clap treats each of these structs as a group.
const OF_THE_FILE: [&str; 3] = ["ConnectionArgs", "LineArgs", "RequestArgs"];

impl Compare {
    pub(super) fn run(self) -> Result<ExitCode> {
        if let Some(path) = &self.file {
            return self.run_file(path);
        }
        let ready = self.options().and_then(|options| Ready::new(&options));
        let (ready, kept) = match (ready, Files::open(&self)) {
            (Ok(ready), Ok(kept)) => (ready, kept),
            (ready, kept) => {
                let mistakes = ready.err().into_iter().chain(kept.err()).flatten();
                mistakes.for_each(|m| errln!("weir compare: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        let tells = std::io::stderr().is_terminal();
        let result = ready.run(&interrupt, |round, name| {
            if tells {
                err!("\rround {round}: {name:<40}");
            }
        })?;
        if tells {
            err!("\r{:60}\r", "");
        }
        print(&match self.format {
            Format::Json => result.to_json(),
            Format::Text => result.to_text(),
        });
        kept.write(&result.to_json(), || result.to_html())?;
        Ok(ExitCode::from(u8::from(result.has_failed())))
    }

    /// Runs a bench file.
    fn run_file(&self, path: &Path) -> Result<ExitCode> {
        let file = match BenchFile::read(path) {
            Ok(file) => file,
            Err(found) => {
                err!("{}", found.to_text());
                return Ok(ExitCode::from(2));
            }
        };
        let time = self.duration.as_deref();
        let known: Vec<&str> = file.workloads.names().collect();
        let unknown = self.workloads.iter().find(|name| !known.contains(&name.as_str()));
        let mistake =
            unknown.map(|name| format!("--workload {name}: {} has {}", path.display(), known.join(", ")));
        let odd = time.filter(|time| weir_report::duration(time).is_none_or(|time| time.is_zero()));
        let mistake =
            mistake.or_else(|| odd.map(|time| format!("-d {time}: expected a time such as 30s or 2m")));
        if let Some(mistake) = mistake {
            errln!("weir compare: {mistake}");
            return Ok(ExitCode::from(2));
        }
        if self.check_file {
            print(&format!(
                "{}: good: {}, {}\n",
                path.display(),
                counted(file.targets.len() as u64, "target"),
                counted(file.workloads.len() as u64, "workload")
            ));
            return Ok(ExitCode::SUCCESS);
        }
        let kept = match Files::open(self) {
            Ok(kept) => kept,
            Err(mistakes) => {
                mistakes.iter().for_each(|m| errln!("weir compare: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        let tells = std::io::stderr().is_terminal();
        let tell = |text: &str| {
            if tells {
                err!("\r{text:<70.70}");
            }
        };
        let set = run::Bench::new(&file, path, &interrupt, &tell).run(&self.workloads, time)?;
        print(&match self.format {
            Format::Json => set.to_json(),
            Format::Text => set.to_text(),
        });
        kept.write(&set.to_json(), || set.to_html())?;
        Ok(ExitCode::from(u8::from(run::has_failed(&set) || set.workloads.is_empty())))
    }

    fn options(&self) -> Result<CompareOptions, Vec<Mistake>> {
        let line = &self.line;
        let mut load = Options {
            connections: line.connections,
            threads: line.threads,
            rate: line.rate.clone(),
            checks: line.checks.clone(),
            ..Options::default()
        };
        self.connection.fill(&mut load);
        self.request.fill(&mut load).map_err(|m| vec![m])?;
        Ok(CompareOptions {
            targets: line.targets.clone(),
            own: Vec::new(),
            load,
            duration: self.duration.clone(),
            block: line.block.clone(),
            warmup: line.warmup.clone(),
            until: line.until.clone(),
            fail_if: line.fail_if.clone(),
            against: line.against.clone(),
            direct: line.direct.clone(),
            pids: line.pids.clone(),
            unequal: line.unequal.is_some(),
            seed: Some(line.seed),
            repeat_blocks: Some(line.repeat_blocks),
            needed: Vec::new(),
        })
    }
}

/// The files that the result is written to.
struct Files {
    json: Option<OutputFile>,
    html: Option<OutputFile>,
}

impl Files {
    fn open(args: &Compare) -> Result<Self, Vec<Mistake>> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        match (open(&args.save), open(&args.html)) {
            (Ok(json), Ok(html)) => Ok(Self { json, html }),
            (json, html) => Err(json.err().into_iter().chain(html.err()).collect()),
        }
    }

    fn write(self, json: &str, html: impl FnOnce() -> String) -> Result<()> {
        self.json.map_or(Ok(()), |file| file.write(json))?;
        self.html.map_or(Ok(()), |file| file.write(&html()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use clap::{ArgAction, CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: Compare,
    }

    /// Options that are allowed together with a bench file.
    const BESIDE: [&str; 7] = ["check_file", "duration", "file", "format", "html", "save", "workloads"];

    #[test]
    fn an_option_that_a_bench_file_does_not_look_at_is_refused() {
        let command = Line::command();
        let options = command.get_arguments().filter(|arg| !BESIDE.contains(&arg.get_id().as_str()));
        for arg in options {
            let mut line = vec!["compare".to_owned(), "-f".to_owned(), "bench.yaml".to_owned()];
            line.extend(arg.get_long().map(|long| format!("--{long}")));
            if !matches!(arg.get_action(), ArgAction::SetTrue) {
                let value =
                    arg.get_possible_values().first().map_or("1".to_owned(), |v| v.get_name().to_owned());
                line.push(value);
            }
            let refused = Line::try_parse_from(&line).err().map(|e| e.kind());
            assert_eq!(refused, Some(ErrorKind::ArgumentConflict), "{line:?}");
        }
        let line =
            ["compare", "-f", "b.yaml", "-d", "9s", "--format", "json", "--save", "a", "--workload", "w"];
        assert!(Line::try_parse_from(line).is_ok_and(|line| line.compare.file.is_some()));
    }
}
