//! The binary `weir-kube`: the gateway with a controller of the Gateway API in the same process.

#![allow(clippy::print_stderr, reason = "the command line's errors")]

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_admin::Admin;
use weir_config::schema;
use weir_gateway::{Gateway, StartError};
use weir_kube::api::Access;
use weir_kube::config::double_dollars;
use weir_kube::controller::live::{self, Live};
use weir_kube::controller::{Controller, Settings};
use weir_kube::translate::TYPES;
use weir_kube::{GatewayApi, Name, Options};
use weir_telemetry::log;

/// Serves the Gateways of a cluster.
#[derive(Parser)]
#[command(name = "weir-kube", version)]
struct Arguments {
    /// The controllerName of the GatewayClasses that are ours
    #[arg(long, value_name = "NAME", default_value = "gateway.weir.dev/controller")]
    controller: String,
    /// YAML with the settings that are not from the cluster: admin, log, access_log, limits, workers, and so on
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for keys and for the objects of the last run; use a volume in memory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/weir")]
    state: PathBuf,
    /// Name of this replica, unique among those that run [default: the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Name of the Lease that decides which replica writes statuses
    #[arg(long, value_name = "NAME", default_value = "weir-leader")]
    lease: String,
    /// Service in front of this pod, whose addresses Gateways report
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Creates a Service of this type for each Gateway: LoadBalancer, NodePort or ClusterIP [default: none, and Gateways
    /// listen on the ports of the pod]
    #[arg(long, value_name = "TYPE", requires = "service", value_parser = PossibleValuesParser::new(TYPES))]
    gateway_services: Option<String>,
    /// API server, outside of a pod
    #[arg(long, value_name = "URL", requires = "namespace")]
    server: Option<String>,
    /// File with the token for --server
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// PEM file with the authority of --server [default: the system's]
    #[arg(long, value_name = "FILE", requires = "server")]
    ca: Option<PathBuf>,
    /// Namespace of the Lease and the Service, with --server
    #[arg(long, value_name = "NAME", requires = "server")]
    namespace: Option<String>,
}

/// When to try again what the system refused: a port in use may be free soon.
const RETRY: Duration = Duration::from_secs(10);

/// Keys that objects decide, so that the file must not have them.
const FROM_OBJECTS: &[&str] = &["listeners", "routes", "upstreams", "source", "include", "watch"];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("weir-kube: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    // Before any slow step, because SIGTERM kills the process until it has a handler.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _in_runtime = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let access = access(arguments).map_err(|e| anyhow!("{e}"))?;
    let rest = arguments.config.as_deref().map(settings).transpose()?.unwrap_or_default();
    let folder = arguments.state.join("run");
    let admin_address = admin_address(&rest);
    // No endpoint can have a loopback address.
    let admin = admin_address.filter(|address| !address.ip().is_loopback());
    let admin = admin.map(|address| (access.namespace.clone(), address.port()));
    let controller = arguments.controller.clone();
    let options = Options { controller, admin, admin_address, ..Options::default() };
    let mut translator = GatewayApi::new(options, rest);
    if let Some(service) = &arguments.service {
        let service = Name::new(&access.namespace, service);
        if let Some(kind) = &arguments.gateway_services {
            translator = translator.with_services(&service, kind);
        }
        translator = translator.behind(service);
    }
    let source = live::source(&folder, &translator.empty()).map_err(|e| anyhow!("--state: {e}"))?;
    if let Err(e) = weir_wire::limits::raise_descriptors() {
        log::warn("descriptor limit not raised", &[("error", &e)]);
    }
    let gateway = start(source.clone())?;
    let live = Live::new(gateway.clone(), source, &folder); // before anybody can ask whether it is ready
    let admin = Admin::start(gateway.clone()).map_err(|e| anyhow!("admin: {e}"))?;
    let controller = Controller::start(own_settings(arguments), access, translator, live)
        .map_err(|e| anyhow!("the controller: {e}"))?;
    log::info("started", &[("version", &env!("CARGO_PKG_VERSION")), ("pid", &std::process::id())]);

    let draining = gateway.clone();
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = signals.0.recv() => {}
                _ = signals.1.recv() => {}
            }
        });
        controller.leave();
        draining.drain();
    })?;
    gateway.wait();
    drop(admin);
    log::info("ended", &[]);
    log::flush(Duration::from_secs(1));
    Ok(())
}

/// The address of the admin listener, unless it has none or is a socket in the file system.
fn admin_address(rest: &Map<String, Value>) -> Option<SocketAddr> {
    match rest.get("admin").and_then(|admin| admin.get("address")) {
        None => Some(schema::Admin::DEFAULT_ADDRESS),
        Some(written) => written.as_str()?.parse().ok(),
    }
}

fn start(source: weir_config::Source) -> Result<Gateway> {
    let version = (env!("CARGO_PKG_VERSION"), option_env!("WEIR_COMMIT").unwrap_or("unknown"));
    match weir_gateway::builder(source).version(version.0, version.1).start() {
        Ok(gateway) => Ok(gateway),
        Err(StartError::Config(mistakes)) => Err(anyhow!("--config:\n{}", mistakes.to_text())),
        Err(e) => Err(e.into()),
    }
}

fn access(arguments: &Arguments) -> Result<Access, weir_kube::api::NoAccess> {
    match (&arguments.server, &arguments.namespace) {
        (Some(server), Some(namespace)) => {
            Access::new(server, namespace, arguments.token_file.clone(), arguments.ca.clone())
        }
        _ => Access::in_cluster(),
    }
}

fn own_settings(arguments: &Arguments) -> Settings {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = arguments.name.clone().unwrap_or_else(|| host.trim().to_owned());
    // A container that restarts keeps its host's name, but must not take the Lease of its predecessor for its own.
    let began = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let identity = format!("{name}_{:x}", began.unwrap_or_default().as_nanos());
    Settings {
        controller: arguments.controller.clone(),
        identity,
        lease: arguments.lease.clone(),
        saved: arguments.state.join("objects.json"),
        retry: RETRY,
    }
}

/// Reads the operator's file: `${VAR}` is filled in here, because the config that runs reads no variables.
fn settings(path: &Path) -> Result<Map<String, Value>> {
    let (read, diagnostics) = weir_config::read_document::<Map<String, Value>>(path);
    let read = read.filter(|_| diagnostics.errors() == 0);
    let read = read.ok_or_else(|| anyhow!("{}", diagnostics.to_text())).context("--config")?;
    let mut settings = read.0;
    if let Some(key) = FROM_OBJECTS.iter().find(|key| settings.contains_key(**key)) {
        let shown = path.display();
        return Err(anyhow!("--config {shown}: `{key}` comes from the cluster's objects: remove it here"));
    }
    hash_tokens(&mut settings);
    settings.values_mut().for_each(double_dollars); // they are filled in already
    Ok(settings)
}

/// Replaces tokens of `admin.tokens` by their hashes, which is how Weir takes them. A Secret holds the token itself,
/// because Prometheus sends it.
fn hash_tokens(settings: &mut Map<String, Value>) {
    let tokens = settings.get_mut("admin").and_then(|admin| admin.get_mut("tokens")?.as_array_mut());
    for entry in tokens.into_iter().flatten() {
        if let Some(Value::String(token)) = entry.get_mut("token")
            && !token.is_empty()
            && !token.starts_with("sha256:")
        {
            *token = format!("sha256:{}", weir_wire::hex::encode(&Sha256::digest(&*token)));
        }
    }
}
