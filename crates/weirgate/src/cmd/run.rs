//! `weir run`: the gateway in the foreground, its signals, and notifications to systemd. `upgrade` replaces the
//! process.

mod greeting;
mod pid_file;
mod successor;
mod upgrade;
mod watchdog;

use super::ConfigArgs;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use pid_file::PidFile;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use upgrade::{CHANGED, LEAVING, Predecessor, Upgrader};
use weir_admin::{Admin, Process};
use weir_gateway::config::load::ORIGIN_VARIABLE;
use weir_gateway::config::schema::Config;
use weir_gateway::{Gateway, Inheritance, StartError};
use weir_origin::{Options, Origin};
use weir_telemetry::log;

/// Arguments of the gateway.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// File that holds the process id while this process serves
    #[arg(long, value_name = "FILE")]
    pub(super) pid_file: Option<PathBuf>,
}

/// Runs until a signal or the admin API ends it.
pub(super) fn run(args: &Run) -> Result<ExitCode> {
    // Before any slow step, because these signals kill the process until they have handlers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let requests = {
        let _in_runtime = runtime.enter();
        Requests::new()?
    };
    let (mut predecessor, inherited) = Predecessor::find()?;
    let outcome = serve(args, (runtime, requests), inherited, &mut predecessor);
    // A predecessor that is still here has not been told that this process is ready.
    if let (Some(predecessor), Err(e)) = (predecessor, &outcome) {
        predecessor.failed(&format!("{e:#}"));
    }
    match outcome {
        Err(e) if e.is::<AlreadyPrinted>() => Ok(ExitCode::from(1)),
        outcome => outcome,
    }
}

/// A config whose mistakes were printed already.
#[derive(Debug)]
struct AlreadyPrinted(String);

impl std::fmt::Display for AlreadyPrinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AlreadyPrinted {}

fn serve(
    args: &Run,
    (runtime, requests): (Runtime, Requests),
    inherited: Inheritance,
    predecessor: &mut Option<Predecessor>,
) -> Result<ExitCode> {
    let descriptors = weir_wire::limits::raise_descriptors();
    weir_wire::pages::may_ask(); // before there are threads and memory: it may fork
    if let (Some(path), None) = (&args.pid_file, &predecessor) {
        PidFile::check(path)?;
    }
    let mut source = args.config.source();
    let embedded = source.is_embedded();
    let file = source.path().map(std::path::Path::to_owned);
    // A new process of an upgrade goes on with what runs already.
    let is_first = predecessor.is_none();
    // The default config proxies to the built-in origin.
    let origin = if embedded {
        let origin = Origin::start(Options::default()).context("the built-in origin did not start")?;
        source = source.with_variable(ORIGIN_VARIABLE, origin.address().to_string());
        Some(origin)
    } else {
        None
    };
    let builder =
        weir_gateway::builder(source).version(env!("CARGO_PKG_VERSION"), commit()).inherit(inherited);
    let gateway = match builder.start() {
        Ok(gateway) => gateway,
        Err(StartError::Config(diagnostics)) => {
            let text = diagnostics.to_text();
            let _ = write!(std::io::stderr(), "{}", log::diagnostics(&text));
            return Err(AlreadyPrinted(text).into());
        }
        Err(e) => return Err(e.into()),
    };
    let signals = {
        let _in_runtime = runtime.enter();
        Signals::new(requests)?
    };
    let upgrader = Arc::new(Upgrader::new(gateway.clone()));
    let upgrade: weir_admin::Upgrade = {
        let upgrader = Arc::clone(&upgrader);
        Arc::new(move || upgrader.upgrade().map(|upgraded| (upgraded.pid, upgraded.consequences)))
    };
    let process = Process { inherited: gateway.take_admin_sockets(), upgrade: Some(upgrade) };
    let admin = match Admin::start_in(gateway.clone(), process) {
        Ok(admin) => admin,
        Err(e) => {
            gateway.stop();
            return Err(anyhow!("admin: {e}"));
        }
    };
    let _ = upgrader.admin.set(admin.handle()); // the first and only time
    let config = gateway.configs().borrow().clone();
    match descriptors {
        Ok(limit) => warn_of_few_descriptors(limit, &config),
        Err(e) => log::warn("descriptor limit not raised", &[("error", &e)]),
    }
    let written = args.pid_file.as_deref().map(PidFile::write).transpose();
    let pid_file = written.inspect_err(|_| gateway.stop())?;
    let status = gateway.status();
    if gateway.awaits_config() {
        let hint = "it starts to serve as soon as the source sends one";
        log::warn("there is no config yet", &[("hint", &hint)]);
    } else {
        log::info(
            "ready",
            &[
                ("version", &env!("CARGO_PKG_VERSION")),
                ("pid", &std::process::id()),
                ("workers", &status.workers),
                ("revision", &status.revision),
            ],
        );
    }
    if let Some(predecessor) = predecessor.take() {
        let _ = upgrader.predecessor.set(predecessor.ready(&gateway.forgot())); // the first and only time
        notify(&format!("MAINPID={}", std::process::id()));
    }
    notify("READY=1");
    watchdog::start(&gateway);
    if embedded && is_first {
        let hint = "write weir.yaml here, or /etc/weir/weir.yaml";
        log::info("no config file: the embedded default runs", &[("hint", &hint)]);
    }
    if is_first {
        greeting::greet(&gateway, &config, file.as_deref());
    }
    let signalled = gateway.clone();
    thread::Builder::new().name("weir-signals".to_owned()).spawn({
        let upgrader = Arc::clone(&upgrader);
        move || runtime.block_on(signals.serve(&signalled, &upgrader))
    })?;
    weir_wire::limits::give_program_back();
    gateway.wait();
    upgrader.successor.see_off();
    drop((admin, pid_file));
    if let Some(origin) = origin {
        origin.stop();
    }
    log::info("ended", &[]);
    log::flush(std::time::Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

/// The commit that this binary was built from, if the build knows it.
fn commit() -> &'static str {
    option_env!("WEIR_COMMIT").unwrap_or("unknown")
}

/// Warns of a low limit of descriptors, since each exchange can need two.
fn warn_of_few_descriptors(limit: u64, config: &Config) {
    let needed = u64::from(config.limits.connections) * 2;
    if limit < needed {
        log::warn(
            "fewer descriptors than limits.connections may need",
            &[
                ("descriptors", &limit),
                ("needed", &needed),
                ("hint", &"raise LimitNOFILE or lower limits.connections"),
            ],
        );
    }
}

/// Sends a notification to systemd, if it asked for them (sd_notify(3)).
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        let text = path.to_string_lossy();
        match text.strip_prefix('@') {
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.send_to_addr(state.as_bytes(), &address)?;
            }
            None => {
                socket.send_to(state.as_bytes(), &path)?;
            }
        }
        Ok(())
    };
    if let Err(e) = send() {
        log::warn("systemd was not notified", &[("error", &e)]);
    }
}

/// Signals that request an action of a running gateway. Signals that arrive during the start are handled once it
/// runs.
struct Requests {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl Requests {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }
}

/// All signals of a running gateway. The other two end a process that is still starting, as is the default.
struct Signals {
    requests: Requests,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new(requests: Requests) -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { requests, interrupt, terminate })
    }

    /// SIGHUP reloads, SIGUSR1 reopens logs, SIGUSR2 upgrades, SIGTERM and SIGINT drain; a second SIGINT exits
    /// immediately.
    async fn serve(mut self, gateway: &Gateway, upgrader: &Arc<Upgrader>) {
        let mut interrupted = false;
        let mut configs = gateway.configs();
        configs.mark_unchanged();
        let say = |what| {
            if let Some(predecessor) = upgrader.predecessor.get() {
                predecessor.say(what);
            }
        };
        loop {
            tokio::select! {
                Ok(()) = configs.changed() => say(CHANGED),
                _ = self.requests.hangup.recv() => {
                    notify("RELOADING=1");
                    let gateway = gateway.clone();
                    // `reload` logs its result. A refused config changes nothing.
                    let _ = tokio::task::spawn_blocking(move || gateway.reload().is_ok()).await;
                    notify("READY=1");
                }
                _ = self.requests.user1.recv() => gateway.reopen_logs(),
                _ = self.requests.user2.recv() => {
                    let upgrader = Arc::clone(upgrader);
                    drop(tokio::task::spawn_blocking(move || drop(upgrader.upgrade()))); // `upgrade` logs its result
                }
                _ = self.terminate.recv() => {
                    say(LEAVING);
                    if let Some(pid) = upgrader.successor.pid() {
                        end(pid);
                    }
                    drain(gateway);
                }
                _ = self.interrupt.recv() => {
                    if interrupted {
                        gateway.stop();
                        return;
                    }
                    interrupted = true;
                    say(LEAVING);
                    drain(gateway);
                }
            }
        }
    }
}

/// Forwards SIGTERM to the process that serves, while systemd knows only this one.
fn end(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(Err(e)) = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM)) {
        log::warn("the old process was not asked to stop", &[("error", &e)]);
    }
}

/// Drains on another thread, because the signal loop must still see a second SIGINT.
fn drain(gateway: &Gateway) {
    notify("STOPPING=1");
    let draining = gateway.clone();
    let spawned = thread::Builder::new().name("weir-drain".to_owned()).spawn(move || draining.drain());
    if spawned.is_err() {
        gateway.stop();
    }
}
