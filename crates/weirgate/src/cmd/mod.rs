//! The subcommands. To add one, add its file and the lines below.

mod agent;
mod apply;
mod baseline;
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
mod import;
mod load;
mod maintenance;
mod man;
mod origin;
mod output_file;
mod process;
mod prove;
mod purge;
#[cfg(test)]
mod reference;
mod reload;
mod report;
mod rollback;
mod run;
mod schema;
mod shadow;
mod status;
mod test;
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
    /// Generate load for `weir load --agents` on another machine
    Agent(Box<agent::Agent>),
    /// Add, replace or remove named config entries of a running Weir, all or nothing
    Apply(apply::Apply),
    /// Keep the figures of earlier runs of `load`, to compare with
    Baseline(baseline::BaselineCommand),
    /// Measure the cost of each route and filter of a config, or the maximum of the load tester itself
    Bench(bench::Bench),
    /// Report everything that `run` would refuse, without running
    Check(check::Check),
    /// Load several targets in turn, and report which is better, with confidence intervals
    Compare(Box<compare::Compare>),
    /// Print a shell completion script: bash, fish or zsh
    Completions(completions::Completions),
    /// Move named entries of a running Weir's config between your files and the API
    Config(config::Config),
    /// Accept a change on trial, so that it is not reverted automatically
    Confirm(confirm::Confirm),
    /// Compare two configs of a running Weir: revisions, the running config, the files
    Diff(diff::Diff),
    /// Drain a running Weir: finish its exchanges, then exit
    Drain(drain::Drain),
    /// Drain an endpoint of a running Weir, take it out of rotation, or put it back
    Endpoint(endpoint::Endpoint),
    /// Explain which route a request takes and why, with its filters and upstream
    Explain(explain::Explain),
    /// List the filters, or show one with its settings
    Filters(filters::Filters),
    /// Publish a config to a fleet of gateways, and show their state
    Fleet(Box<fleet::FleetCommand>),
    /// Hash a password, for `basic_auth`
    Hash(hash::Hash),
    /// List the revisions of a running Weir's config
    History(history::History),
    /// Translate another gateway's config, or a recording or script into a load plan
    #[command(long_about = import::ABOUT)]
    Import(import::Import),
    /// Load-test a target
    Load(Box<load::Load>),
    /// Switch maintenance of a running Weir on for a while, or off
    Maintenance(maintenance::Maintenance),
    /// Print the manual page, or write one per command
    Man(man::Man),
    /// Run the built-in test origin: bodies, delays, statuses, echo
    Origin(origin::Serve),
    /// Replay the proof of an import: the old program and Weir, asked the same
    #[command(long_about = prove::ABOUT)]
    Prove(prove::Prove),
    /// Remove cached answers of a running Weir: by URL, prefix or tag
    Purge(purge::Purge),
    /// Make a running Weir reload its config
    Reload(reload::Reload),
    /// Send recorded traffic again, at its recorded pace or a multiple: access logs, HAR, .gor or JSON lines
    Replay(Box<load::Replay>),
    /// Print a saved result of `load` in any layout, or verify its numbers
    Report(report::Saved),
    /// Return a running Weir to an earlier revision of its config
    Rollback(rollback::Rollback),
    /// Run the gateway (the default)
    Run(run::Run),
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Have a running Weir judge another config on live requests: which decisions would change, and how many
    Shadow(shadow::Shadow),
    /// Show the state of a running Weir
    Status(status::Status),
    /// Ask the config which routes take the requests of a list, without running it
    #[command(long_about = test::ABOUT)]
    Test(test::Test),
    /// Replace the process of a running Weir with the binary now at its path, without losing a connection
    Upgrade(upgrade::Upgrade),
    /// Explain the outcome of a request that a running Weir served
    Why(why::Why),
}

/// Which config to use.
#[derive(Args, Clone, Default)]
pub(crate) struct ConfigArgs {
    /// Config file [default: ./weir.yaml, then /etc/weir/weir.yaml, then the embedded default]
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For machines
    Json,
    /// For people
    #[default]
    Text,
}

/// Which running Weir to talk to.
#[derive(Args, Clone)]
pub(crate) struct AdminArgs {
    /// Address of the admin listener: HOST:PORT, https://HOST:PORT or unix:PATH [default: the config's, else
    /// 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Token of the admin listener [default: the variable ADMIN_TOKEN, else `admin.token` of the config]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// CA certificates that verify the admin listener, PEM [default: exactly the certificates of `admin.tls` in the
    /// config, whatever the address, else the system's authorities]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate for the admin listener, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How to reach the admin listener of a running Weir.
pub(crate) struct AdminPlace {
    pub(crate) address: String,
    pub(crate) token: Option<String>,
    /// How to verify the listener, if it uses TLS.
    tls: Option<ClientTls>,
}

/// What people read when no admin listener answered.
pub(crate) fn unanswered(e: &client::ClientError) -> anyhow::Error {
    anyhow!(e.explanation())
}

impl AdminPlace {
    pub(crate) fn at(&self) -> client::At<'_> {
        client::At { address: &self.address, tls: self.tls.as_ref() }
    }
}

impl ConfigArgs {
    /// The config's file, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let usual = || [PathBuf::from("weir.yaml"), PathBuf::from("/etc/weir/weir.yaml")];
        self.config.clone().or_else(|| usual().into_iter().find(|path| path.exists()))
    }

    pub(crate) fn source(&self) -> Source {
        let readers = weir_gateway::filters::KINDS.iter().map(|k| k.name);
        Source::find(self.config.as_deref()).with_credentials(
            readers.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name)),
        )
    }
}

/// Prints the outcome of a command: as text, or the answer unchanged.
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
    /// The admin listener to ask: the given one, else the config's, else the default address.
    pub(crate) fn place(&self) -> Result<AdminPlace> {
        let token =
            self.token.clone().or_else(|| std::env::var("ADMIN_TOKEN").ok().filter(|t| !t.is_empty()));
        if let Some(address) = &self.admin {
            let secured = address.starts_with("https://") || self.cacert.is_some() || self.cert.is_some();
            let tls = if secured { Some(self.tls(&[])?) } else { None };
            return Ok(AdminPlace { address: address.clone(), token, tls });
        }
        let written = self.written(token.is_some())?;
        let address = match &written.address {
            AdminAddress::At(address) => reachable(address),
            AdminAddress::Off => {
                bail!("the config turns the admin listener off, so the running Weir cannot be reached")
            }
        };
        let own: Vec<&Path> =
            written.tls.iter().flat_map(|tls| &tls.certificates).map(|pair| &*pair.cert.0).collect();
        let tls = if written.tls.is_some() { Some(self.tls(&own)?) } else { None };
        let written = written.token.map(|token| token.reveal().to_owned());
        // A hash does not reveal its token.
        let token = token.or_else(|| written.filter(|token| !token.starts_with("sha256:")));
        Ok(AdminPlace { address, token, tls })
    }

    /// How to verify the listener: by `--cacert`, by the certificates of a local config, or by the system's CAs.
    fn tls(&self, own: &[&Path]) -> Result<ClientTls> {
        let identity = self.cert.as_deref().zip(self.key.as_deref());
        let made = match &self.cacert {
            None if !own.is_empty() => ClientTls::pinned(own, identity),
            cacert => ClientTls::new(cacert.as_deref(), identity, None, true, &[]),
        };
        Ok(made?)
    }

    /// Sends a request to the admin listener. A refusal is an error.
    pub(crate) fn ask(&self, line: &str) -> Result<Answer> {
        self.change(line, "", None)
    }

    /// Asks the admin listener for a change. A refusal is an error.
    pub(crate) fn change(&self, line: &str, message: &str, body: Option<&[u8]>) -> Result<Answer> {
        let answer = self.try_change(line, message, body)?;
        if answer.is_success() { Ok(answer) } else { bail!("{}", answer.explanation()) }
    }

    /// Asks the admin listener for a change, with a body in YAML.
    pub(crate) fn try_change(&self, line: &str, message: &str, body: Option<&[u8]>) -> Result<Answer> {
        let place = self.place()?;
        let media = if body.is_some() { "application/yaml" } else { "" };
        let call = client::Call { line, message, media, body: body.unwrap_or_default() };
        client::ask(place.at(), place.token.as_deref(), call).map_err(|e| unanswered(&e))
    }

    /// The section `admin` of the config. Mistakes in other sections do not matter. If the user gave a token, mistakes
    /// in `admin.token` do not matter either: often only the service has its variable. An unreadable config is an error
    /// only if `-c` named it.
    fn written(&self, has_token: bool) -> Result<Admin> {
        let wrong = |d: &Diagnostic| {
            let is_replaced = has_token && d.path == "admin.token";
            d.severity == Severity::Error && d.path.starts_with("admin") && !is_replaced
        };
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

/// The address of a listener from this machine.
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
    /// The command's own `-c`, if it reads a config.
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
            Self::Shadow(shadow) => Some(&mut shadow.admin.config),
            Self::Status(status) => Some(&mut status.admin.config),
            Self::Test(test) => Some(&mut test.config),
            Self::Upgrade(upgrade) => Some(&mut upgrade.admin.config),
            Self::Why(why) => Some(&mut why.admin.config),
            Self::Agent(_)
            | Self::Baseline(_)
            | Self::Compare(_)
            | Self::Completions(_)
            | Self::Filters(_)
            | Self::Hash(_)
            | Self::Import(_)
            | Self::Prove(_)
            | Self::Load(_)
            | Self::Replay(_)
            | Self::Man(_)
            | Self::Origin(_)
            | Self::Report(_)
            | Self::Schema => None,
        }
    }
}

impl Cli {
    /// Passes a `-c` in front of the command on to it. Exits with an error if it would have no effect.
    fn hand_down(&mut self) {
        let (Some(file), Some(command)) = (&self.config.config, &mut self.command) else { return };
        let refuse = |why: &str| Self::command().error(ErrorKind::ArgumentConflict, why).exit();
        match command.config() {
            Some(own) if own.config.is_some() => {
                refuse("-c is given both before and after the command: write it once")
            }
            Some(own) => own.config = Some(file.clone()),
            None => refuse("this command reads no config: `-c FILE` before it would have no effect"),
        }
    }
}

/// Parses the command line and runs the command.
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
        Some(Command::Agent(agent)) => agent.run(),
        Some(Command::Apply(apply)) => apply.run(),
        Some(Command::Baseline(baseline)) => baseline.run(),
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
        Some(Command::Import(import)) => import.run(),
        Some(Command::Prove(prove)) => prove.run(),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Replay(replay)) => replay.run(),
        Some(Command::Maintenance(maintenance)) => maintenance.run(),
        Some(Command::Man(man)) => man.run(),
        Some(Command::Origin(origin)) => origin.run(),
        Some(Command::Purge(purge)) => purge.run(),
        Some(Command::Reload(reload)) => reload.run(),
        Some(Command::Report(saved)) => saved.run(),
        Some(Command::Rollback(rollback)) => rollback.run(),
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Schema) => schema::run(),
        Some(Command::Shadow(shadow)) => shadow.run(),
        Some(Command::Status(status)) => status.run(),
        Some(Command::Test(test)) => test.run(),
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

/// Writes to stdout. A reader that has gone away (`| head`) is no error. Any other failure is reported
/// immediately, and the command exits with 1 in any case.
pub(crate) fn print(text: &str) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            LOST.store(true, Relaxed);
            let _ = writeln!(std::io::stderr(), "weir: stdout: {e}"); // nobody reads a closed stderr
        }
        _ => {}
    }
}

/// Whether any output failed to reach stdout.
static LOST: AtomicBool = AtomicBool::new(false);
