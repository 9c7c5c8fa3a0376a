//! The subcommands. One more is one new file and its lines below.

mod bench;
mod check;
mod compare;
mod drain;
mod explain;
mod filters;
mod kept;
mod load;
mod origin;
mod process;
mod reload;
mod report;
mod run;
mod schema;
mod status;
mod upgrade;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use weir_gateway::config::Source;

/// An API gateway that costs less than a hop should.
#[derive(Parser)]
#[command(name = "weir", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what each route and filter of a config costs, or what the load tester itself can do at most
    Bench(bench::Bench),
    /// Say everything that `run` would refuse, without running
    Check(check::Check),
    /// Load several targets in turn, and say which is better and how surely
    Compare(Box<compare::Compare>),
    /// Drain a running Weir: finish what is under way, then end
    Drain(drain::Drain),
    /// Say which route a request takes and why, through which filters, to which upstream
    Explain(explain::Explain),
    /// List the filters, or show one with its settings
    Filters(filters::Filters),
    /// Load-test a target
    Load(Box<load::Load>),
    /// Run the built-in test origin: bodies, delays, statuses, echo
    Origin(origin::Serve),
    /// Make a running Weir load its config again
    Reload(reload::Reload),
    /// Print a saved result of `load` in any layout, or check its numbers
    Report(report::Saved),
    /// Run the gateway (the default)
    Run(ConfigArgs),
    /// Print the JSON Schema of the config
    Schema,
    /// Show what a running Weir says about itself
    Status(status::Status),
    /// Put the program that lies at the path of a running Weir in its place, without losing a connection
    Upgrade(upgrade::Upgrade),
}

/// Which config.
#[derive(Args, Clone, Default)]
pub(crate) struct ConfigArgs {
    /// Config file [default: ./weir.yaml, then /etc/weir/weir.yaml, then the embedded default]
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For machines
    Json,
    /// For people
    #[default]
    Text,
}

/// Which running Weir.
#[derive(Args, Clone)]
pub(crate) struct AdminArgs {
    /// Address of the admin listener: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9180")]
    pub(crate) admin: String,
    /// Token of the admin listener [default: the variable ADMIN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

impl ConfigArgs {
    pub(crate) fn source(&self) -> Source {
        let readers = weir_gateway::filters::KINDS.iter().map(|k| k.name);
        Source::find(self.config.as_deref()).with_credentials(readers.filter(|name| name.ends_with("_auth")))
    }
}

impl AdminArgs {
    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone().or_else(|| std::env::var("ADMIN_TOKEN").ok().filter(|t| !t.is_empty()))
    }
}

/// Parses the command line and runs what it asks for.
pub(crate) fn run() -> ExitCode {
    let args = match load::translated(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(mistakes) => {
            let command = std::env::args().nth(1).unwrap_or_default();
            mistakes.iter().for_each(|m| eprintln!("weir {command}: {m}"));
            return ExitCode::from(2);
        }
    };
    let cli = Cli::parse_from(args);
    let outcome = match cli.command {
        None => run::run(&cli.config),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Compare(compare)) => compare.run(),
        Some(Command::Drain(drain)) => drain.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::Filters(filters)) => filters.run(),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Origin(origin)) => origin.run(),
        Some(Command::Reload(reload)) => reload.run(),
        Some(Command::Report(saved)) => saved.run(),
        Some(Command::Run(config)) => run::run(&config),
        Some(Command::Schema) => schema::run(),
        Some(Command::Status(status)) => status.run(),
        Some(Command::Upgrade(upgrade)) => upgrade.run(),
    };
    match outcome {
        Ok(_) if LOST.load(Relaxed) => ExitCode::from(1),
        Ok(code) => code,
        Err(e) => {
            eprintln!("weir: {e:#}");
            ExitCode::from(1)
        }
    }
}

/// Writes to stdout. A reader that has gone away (`| head`) is no error; anything else that keeps text from getting there is told at once, and
/// the command ends with 1 whatever it would have ended with.
pub(crate) fn print(text: &str) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            LOST.store(true, Relaxed);
            let _ = writeln!(std::io::stderr(), "weir: stdout: {e}"); // nobody reads it then
        }
        _ => {}
    }
}

/// Whether something that was printed did not get to where stdout goes.
static LOST: AtomicBool = AtomicBool::new(false);
