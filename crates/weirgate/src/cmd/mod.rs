//! The subcommands. One more is one new file and its lines below.

mod apply;
mod bench;
mod check;
mod compare;
mod completions;
mod config;
mod confirm;
mod diff;
mod drain;
mod endpoint;
mod explain;
mod filters;
mod fleet;
mod hash;
mod history;
mod kept;
mod load;
mod maintenance;
mod man;
mod origin;
mod process;
mod purge;
mod reload;
mod report;
mod rollback;
mod run;
mod schema;
mod status;
mod upgrade;
mod why;

use anyhow::{Result, anyhow, bail};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use weir_admin::client::{self, Answer};
use weir_gateway::config::schema::{Admin, AdminAddress, ListenAddress};
use weir_gateway::config::{Diagnostic, Severity, Source};
use weir_wire::tls::ClientTls;

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
    /// Make, replace and take away named things of a running Weir, all or none
    Apply(apply::Apply),
    /// Measure what each route and filter of a config costs, or what the load tester itself can do at most
    Bench(bench::Bench),
    /// Say everything that `run` would refuse, without running
    Check(check::Check),
    /// Load several targets in turn, and say which is better and how surely
    Compare(Box<compare::Compare>),
    /// Print what a shell needs to complete commands and options: bash, fish or zsh
    Completions(completions::Completions),
    /// Move named things of a running Weir's config between your files and the API
    Config(config::Config),
    /// Say that a change on trial is good: it is not taken back by itself any more
    Confirm(confirm::Confirm),
    /// Show what differs between two configs of a running Weir: revisions, what runs, the files
    Diff(diff::Diff),
    /// Drain a running Weir: finish what is under way, then end
    Drain(drain::Drain),
    /// Drain an endpoint of a running Weir, put it out, or put it back in
    Endpoint(endpoint::Endpoint),
    /// Say which route a request takes and why, through which filters, to which upstream
    Explain(explain::Explain),
    /// List the filters, or show one with its settings
    Filters(filters::Filters),
    /// Publish a config to a fleet of gateways, and see how they do
    Fleet(Box<fleet::FleetCommand>),
    /// Make the hash of a password, for `basic_auth`
    Hash(hash::Hash),
    /// List the revisions of a running Weir's config
    History(history::History),
    /// Load-test a target
    Load(Box<load::Load>),
    /// Turn maintenance of a running Weir on for a while, or off
    Maintenance(maintenance::Maintenance),
    /// Print the manual page, or write one for each command
    Man(man::Man),
    /// Run the built-in test origin: bodies, delays, statuses, echo
    Origin(origin::Serve),
    /// Remove answers from a cache of a running Weir: by URL, prefix or tag
    Purge(purge::Purge),
    /// Make a running Weir load its config again
    Reload(reload::Reload),
    /// Print a saved result of `load` in any layout, or check its numbers
    Report(report::Saved),
    /// Have a running Weir run what an earlier revision of its config says
    Rollback(rollback::Rollback),
    /// Run the gateway (the default)
    Run(run::Run),
    /// Print the JSON Schema of the config
    Schema,
    /// Show what a running Weir says about itself
    Status(status::Status),
    /// Put the program that lies at the path of a running Weir in its place, without losing a connection
    Upgrade(upgrade::Upgrade),
    /// Say what became of a request that a running Weir served, and why
    Why(why::Why),
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
    /// Address of the admin listener: HOST:PORT or unix:PATH [default: that of the config, else 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Token of the admin listener [default: the variable ADMIN_TOKEN, else that of the config]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Authorities that vouch for the admin listener, PEM [default: the certificates of the config, else those of the system]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Certificate to show to the admin listener, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Where a running Weir can be asked.
pub(crate) struct AdminPlace {
    pub(crate) address: String,
    pub(crate) token: Option<String>,
    /// How it is recognized, where it has TLS.
    tls: Option<ClientTls>,
}

impl AdminPlace {
    pub(crate) fn at(&self) -> client::At<'_> {
        client::At { address: &self.address, tls: self.tls.as_ref() }
    }
}

impl ConfigArgs {
    pub(crate) fn source(&self) -> Source {
        let readers = weir_gateway::filters::KINDS.iter().map(|k| k.name);
        Source::find(self.config.as_deref()).with_credentials(
            readers.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name)),
        )
    }
}

/// Prints what became of a command: in words, or the answer as it came.
fn said(
    answer: &Answer,
    format: Format,
    words: impl FnOnce(&serde_json::Value) -> String,
) -> Result<ExitCode> {
    match format {
        Format::Json => print(&answer.body),
        Format::Text if answer.is_success() => print(&format!("{}\n", words(&answer.json()))),
        Format::Text => bail!("{}", answer.explanation()),
    }
    Ok(ExitCode::from(u8::from(!answer.is_success())))
}

impl AdminArgs {
    /// The admin listener to ask: the one named, else that of the config, else where it listens by default.
    pub(crate) fn place(&self) -> Result<AdminPlace> {
        let token =
            self.token.clone().or_else(|| std::env::var("ADMIN_TOKEN").ok().filter(|t| !t.is_empty()));
        if let Some(address) = &self.admin {
            let secured = address.starts_with("https://") || self.cacert.is_some() || self.cert.is_some();
            let tls = if secured { Some(self.tls(&[])?) } else { None };
            return Ok(AdminPlace { address: address.clone(), token, tls });
        }
        let written = self.written()?;
        let address = match &written.address {
            AdminAddress::At(address) => reachable(address),
            AdminAddress::Off => bail!("the config turns its admin listener off, so nobody can be asked"),
        };
        let own: Vec<&Path> =
            written.tls.iter().flat_map(|tls| &tls.certificates).map(|pair| &*pair.cert.0).collect();
        let tls = if written.tls.is_some() { Some(self.tls(&own)?) } else { None };
        let written = written.token.map(|token| token.reveal().to_owned());
        // Of a hash nobody can tell the token.
        let token = token.or_else(|| written.filter(|token| !token.starts_with("sha256:")));
        Ok(AdminPlace { address, token, tls })
    }

    /// How the listener is recognized: by `--cacert`, by its own certificates where its config is at hand, or as the system does.
    fn tls(&self, own: &[&Path]) -> Result<ClientTls> {
        let identity = self.cert.as_deref().zip(self.key.as_deref());
        let made = match &self.cacert {
            None if !own.is_empty() => ClientTls::pinned(own, identity),
            cacert => ClientTls::new(cacert.as_deref(), identity, None, true, &[]),
        };
        made.map_err(|e| anyhow!("{e}"))
    }

    /// Asks the admin listener; an answer that refuses is an error.
    pub(crate) fn ask(&self, line: &str) -> Result<Answer> {
        self.change(line, "", None)
    }

    /// Asks it for a change; an answer that refuses is an error.
    pub(crate) fn change(&self, line: &str, message: &str, body: Option<&[u8]>) -> Result<Answer> {
        let answer = self.try_change(line, message, body)?;
        if answer.is_success() { Ok(answer) } else { bail!("{}", answer.explanation()) }
    }

    /// Asks it for a change. A body is YAML.
    pub(crate) fn try_change(&self, line: &str, message: &str, body: Option<&[u8]>) -> Result<Answer> {
        let place = self.place()?;
        let media = if body.is_some() { "application/yaml" } else { "" };
        let call = client::Call { line, message, media, body: body.unwrap_or_default() };
        client::ask(place.at(), place.token.as_deref(), call).map_err(|e| anyhow!("{e}"))
    }

    /// The section `admin` of the config. One that has mistakes elsewhere will do; of one that cannot be read at all, only a
    /// file that was named is an error.
    fn written(&self) -> Result<Admin> {
        let wrong = |d: &Diagnostic| d.severity == Severity::Error && d.path.starts_with("admin");
        match weir_gateway::config::load(&self.config.source()) {
            Ok(loaded) if !loaded.diagnostics.iter().any(wrong) => Ok(loaded.config.admin),
            Ok(loaded) => bail!("{}", loaded.diagnostics.to_text().trim_end()),
            Err(unreadable) if self.config.config.is_some() => {
                bail!("{}", unreadable.diagnostics.to_text().trim_end())
            }
            Err(_) => Ok(Admin::default()),
        }
    }
}

/// Where a listener is reached from this machine.
fn reachable(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
            let loopback = if address.is_ipv4() { "127.0.0.1" } else { "[::1]" };
            format!("{loopback}:{}", address.port())
        }
        address => address.to_string(),
    }
}

impl Command {
    /// Where the command keeps its own `-c`, if it reads a config.
    fn config(&mut self) -> Option<&mut ConfigArgs> {
        match self {
            Self::Apply(apply) => Some(&mut apply.admin.config),
            Self::Bench(bench) => Some(&mut bench.config),
            Self::Check(check) => Some(&mut check.config),
            Self::Config(config) => Some(config.args()),
            Self::Confirm(confirm) => Some(&mut confirm.admin.config),
            Self::Diff(diff) => Some(&mut diff.admin.config),
            Self::Drain(drain) => Some(&mut drain.admin.config),
            Self::Endpoint(endpoint) => Some(&mut endpoint.admin.config),
            Self::Explain(explain) => Some(&mut explain.config),
            Self::Fleet(fleet) => Some(fleet.config()),
            Self::History(history) => Some(&mut history.admin.config),
            Self::Maintenance(maintenance) => Some(&mut maintenance.admin.config),
            Self::Purge(purge) => Some(&mut purge.admin.config),
            Self::Reload(reload) => Some(&mut reload.admin.config),
            Self::Rollback(rollback) => Some(&mut rollback.admin.config),
            Self::Run(run) => Some(&mut run.config),
            Self::Status(status) => Some(&mut status.admin.config),
            Self::Upgrade(upgrade) => Some(&mut upgrade.admin.config),
            Self::Why(why) => Some(&mut why.admin.config),
            Self::Compare(_)
            | Self::Completions(_)
            | Self::Filters(_)
            | Self::Hash(_)
            | Self::Load(_)
            | Self::Man(_)
            | Self::Origin(_)
            | Self::Report(_)
            | Self::Schema => None,
        }
    }
}

impl Cli {
    /// Gives a `-c` that stands before the command to it. One that would have no effect ends the program.
    fn hand_down(&mut self) {
        let (Some(file), Some(command)) = (&self.config.config, &mut self.command) else { return };
        let refuse = |why: &str| Self::command().error(ErrorKind::ArgumentConflict, why).exit();
        match command.config() {
            Some(own) if own.config.is_some() => {
                refuse("-c stands before the command and behind it: write it once")
            }
            Some(own) => own.config = Some(file.clone()),
            None => refuse("this command reads no config: `-c FILE` before it would have no effect"),
        }
    }
}

/// Parses the command line and runs what it asks for.
pub(crate) fn run() -> ExitCode {
    let args = match load::translated(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(mistakes) => {
            let command = std::env::args().nth(1).unwrap_or_default();
            mistakes.iter().for_each(|m| errln!("weir {command}: {m}"));
            return ExitCode::from(2);
        }
    };
    let mut cli = Cli::parse_from(args);
    cli.hand_down();
    let outcome = match cli.command {
        None => run::run(&run::Run { config: cli.config, pid_file: None }),
        Some(Command::Apply(apply)) => apply.run(),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Compare(compare)) => compare.run(),
        Some(Command::Completions(completions)) => completions.run(),
        Some(Command::Config(config)) => config.run(),
        Some(Command::Confirm(confirm)) => confirm.run(),
        Some(Command::Diff(diff)) => diff.run(),
        Some(Command::Drain(drain)) => drain.run(),
        Some(Command::Endpoint(endpoint)) => endpoint.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::Filters(filters)) => filters.run(),
        Some(Command::Fleet(fleet)) => fleet.run(),
        Some(Command::Hash(hash)) => hash.run(),
        Some(Command::History(history)) => history.run(),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Maintenance(maintenance)) => maintenance.run(),
        Some(Command::Man(man)) => man.run(),
        Some(Command::Origin(origin)) => origin.run(),
        Some(Command::Purge(purge)) => purge.run(),
        Some(Command::Reload(reload)) => reload.run(),
        Some(Command::Report(saved)) => saved.run(),
        Some(Command::Rollback(rollback)) => rollback.run(),
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Schema) => schema::run(),
        Some(Command::Status(status)) => status.run(),
        Some(Command::Upgrade(upgrade)) => upgrade.run(),
        Some(Command::Why(why)) => why.run(),
    };
    match outcome {
        Ok(_) if LOST.load(Relaxed) => ExitCode::from(1),
        Ok(code) => code,
        Err(e) => {
            errln!("weir: {e:#}");
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
