//! Resolves the names of endpoints, and keeps their addresses up to date.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;
use tokio::sync::mpsc;
use weir_config::schema::{self, Config};
use weir_telemetry::{Telemetry, log};
use weir_upstream::discovery;
use weir_upstream::fetch::{self, Environment, Fetcher};
use weir_upstream::upstream::discover::dns;
use weir_upstream::upstream::{Upstream, Watched, probe, try_out};
use weir_wire::Context;

/// How long a start, or a reload with new names, waits for the first DNS answers: earlier requests would find no
/// endpoint.
pub(super) const FIRST_NAMES: Duration = Duration::from_secs(3);

/// The tasks that resolve names, on the control thread, which also fetches.
pub(super) struct Names {
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) fetcher: Fetcher,
    environment: Arc<Environment>,
    /// Sends the probes a new snapshot.
    probes: mpsc::UnboundedSender<Vec<Arc<Upstream>>>,
    /// Sends a new order to the tasks that ask registries.
    registries: mpsc::UnboundedSender<discovery::Order>,
    tasks: HashMap<String, (Arc<Upstream>, tokio::task::AbortHandle)>,
    settings: Option<dns::Settings>,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Names {
    pub(super) fn start(watched: &Watched) -> Result<Self, Context> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Context::new("the control runtime", e))?;
        let handle = runtime.handle().clone();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (fetcher, asked) = Fetcher::channel();
        let environment: Arc<Environment> = Arc::default();
        let served = Arc::clone(&environment);
        let (probes, orders) = mpsc::unbounded_channel();
        let (registries, followed) = mpsc::unbounded_channel();
        let asking = Arc::clone(&environment);
        let watched = Arc::clone(watched);
        let work = move || {
            let local = tokio::task::LocalSet::new();
            drop(local.spawn_local(fetch::serve(asked, served)));
            drop(local.spawn_local(probe(orders)));
            drop(local.spawn_local(try_out(watched)));
            drop(local.spawn_local(discovery::follow(followed, asking)));
            drop(local.block_on(&runtime, ended));
        };
        std::thread::Builder::new()
            .name("weir-control".to_owned())
            .spawn(work)
            .map_err(|e| Context::new("the control thread", e))?;
        let (tasks, settings) = (HashMap::new(), None);
        Ok(Self { runtime: handle, fetcher, environment, probes, registries, tasks, settings, _end: end })
    }

    /// Resolves the names of these upstreams and asks their registries, and no others. The receiver disconnects when
    /// all those without known answers have been asked once.
    pub(super) fn keep(
        &mut self,
        upstreams: &[Arc<Upstream>],
        config: &Config,
        settings: &dns::Settings,
        telemetry: &Arc<Telemetry>,
    ) -> std_mpsc::Receiver<()> {
        let _ = self.probes.send(upstreams.to_vec()); // the control thread lives as long as we do
        let (first, asked) = std_mpsc::channel();
        let as_before = self.settings.as_ref() == Some(settings);
        let still = |u: &Arc<Upstream>| as_before && upstreams.iter().any(|now| Arc::ptr_eq(now, u));
        self.tasks.retain(|_, (upstream, task)| {
            let keep = still(upstream);
            if !keep {
                task.abort();
            }
            keep
        });
        self.settings = Some(settings.clone());
        {
            let _in_runtime = self.runtime.enter();
            self.environment.set(dns::resolver(settings).ok()); // upstreams with names report the error
        }
        let ordered = |upstream: &Arc<Upstream>| {
            let written = config.upstreams.get(&upstream.name)?;
            let (discover, choice) = (written.discover.clone()?, discovery::choice(written));
            Some(discovery::Ordered { upstream: Arc::clone(upstream), discover, choice })
        };
        // The control thread lives as long as we do. Without registries, an empty order ends the earlier tasks.
        let _ = self.registries.send(discovery::Order {
            upstreams: upstreams.iter().filter_map(ordered).collect(),
            settings: settings.clone(),
            telemetry: Arc::clone(telemetry),
            first: first.clone(),
        });
        for upstream in upstreams.iter().filter(|u| !u.names.names.is_empty()) {
            let name = upstream.name.to_string();
            if self.tasks.contains_key(&name) {
                continue;
            }
            let _in_runtime = self.runtime.enter();
            match dns::resolver(settings) {
                Ok(resolver) => {
                    let task = self.runtime.spawn(dns::keep(
                        Arc::clone(&upstream.names),
                        Arc::clone(&upstream.published),
                        resolver,
                        settings.clone(),
                        Arc::clone(telemetry),
                        Some(first.clone()),
                    ));
                    self.tasks.insert(name, (Arc::clone(upstream), task.abort_handle()));
                }
                Err(e) => {
                    log::error("names cannot be resolved", &[("upstream", &upstream.name), ("error", &e)])
                }
            }
        }
        asked
    }
}

pub(super) fn dns_settings(written: &schema::Dns) -> dns::Settings {
    let servers: Vec<SocketAddr> = written.servers.iter().map(|s| s.0).collect();
    dns::Settings { servers, min_ttl: written.min_ttl.get(), max_ttl: written.max_ttl.get() }
}
