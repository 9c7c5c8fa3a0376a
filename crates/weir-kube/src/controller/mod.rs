//! The controller: carries out what the machines of `watch/` decide, translates, and runs the result in the gateway of
//! this process.
//!
//! ```text
//!   watches ─► store ─► 5 ms later ─► translate ─► run ─► statuses ─► the writer, if we lead
//!                │         └─► only endpoints: set them, and nothing is loaded again
//!                │                                  │  ├─► Services of Gateways ─► the keeper, if we lead
//!                │                                  │  └─► what is refused ─► the recorder, if we lead
//!                │                                  │
//!                │                                  └── refused: leave out the objects or listeners to
//!                │                                      blame and translate again, or try again later
//!                └── 1 s later: objects.json, for a restart without an API server
//! ```
//!
//! Everything but the run happens on the thread weir-kube. The run goes through `Gateway::reload_by`, like every change
//! of a config: connections stay, and a refused config changes nothing.
//!
//! *Layout:* `driver.rs` is the loop, `lease.rs` reads and writes the Lease, [`live`] runs configs, `notes.rs` tells
//! operators, `saved.rs` keeps the objects on disk.

mod driver;
mod lease;
pub mod live;
mod notes;
mod saved;

use crate::api::{Access, Object};
use crate::watch::keeper::Wanted;
use crate::watch::recorder::Notices;
use crate::watch::store::Change;
use crate::watch::writer::Target;
use live::Live;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use weir_config::{Mistakes, Supply};
use weir_gateway::Gateway;

/// How long a leaving replica waits for its Lease to be released.
const LEAVING: Duration = Duration::from_secs(2);

/// What a controller does with objects.
pub trait Translator: Send + 'static {
    /// Takes a change of an object.
    fn change(&mut self, change: &Change) -> Effect;

    /// Translates all objects.
    fn translate(&mut self) -> Output;

    /// The last translation runs. Until it does, the one that ran before may still run.
    fn adopted(&mut self) {}

    /// The endpoints that have changed since this was last called or everything was translated, by upstream: of the
    /// last translation, and of the one that runs.
    fn moved(&mut self) -> BTreeMap<Arc<str>, Arc<Supply>> {
        BTreeMap::new()
    }

    /// The last usable versions of Secrets that are no longer usable, as far as they are still served. After a restart
    /// they come as changes before the Secrets as they are.
    fn last_good(&self) -> Vec<Object> {
        Vec::new()
    }

    /// The addresses where the system did not let us listen, whose listeners are left out until [`Self::freed`].
    fn unbound(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// We can listen on these addresses now.
    fn freed(&mut self, _addresses: &[SocketAddr]) {}

    /// Leaves out the objects that are to blame for these mistakes. False if that changes nothing: then the running
    /// config stays until something else changes.
    fn leave_out(&mut self, mistakes: &Mistakes) -> bool;
}

/// What a change of an object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The config or a status may differ.
    Config,
    /// Endpoints differ, and nothing else: [`Translator::moved`] has them.
    Endpoints,
    /// Nothing, or the status alone.
    Nothing,
}

/// A translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The text of the whole config.
    pub text: Arc<str>,
    /// The files that it names, by their paths beside it, all below [`FILES`](crate::config::FILES). Each path belongs
    /// to one content.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The endpoints of upstreams, which the text does not have.
    pub supplies: BTreeMap<Arc<str>, Arc<Supply>>,
    /// The statuses once it runs.
    pub statuses: BTreeMap<Target, Arc<Value>>,
    /// The objects that Gateways are to have once it runs.
    pub wanted: Wanted,
    /// What users should know about objects.
    pub notices: Notices,
}

/// Who this replica is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our `controllerName`.
    pub controller: String,
    /// The name of this replica, unique among all that ever run: others take a Lease of this name for ours.
    pub identity: String,
    /// The name of the Lease, in the namespace of this pod.
    pub lease: String,
    /// The file that keeps the objects for a restart.
    pub saved: PathBuf,
    /// When to try again what the system refused: a config that is nobody's fault, or an address to listen on.
    pub retry: Duration,
}

/// A running controller. It ends with its gateway.
#[derive(Debug)]
pub struct Controller {
    tell: mpsc::UnboundedSender<driver::Message>,
}

impl Controller {
    /// Starts to watch. `live` runs what `translator` makes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        settings: Settings,
        access: Access,
        translator: impl Translator,
        live: Live,
    ) -> Result<Self, String> {
        let (tell, told) = mpsc::unbounded_channel();
        let own = tell.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime.inspect_err(|e| notes::ended(e)) else { return };
            let _in_runtime = runtime.enter();
            let gateway = live.gateway().clone();
            drain_after_panic(&gateway, || {
                let driver = driver::Driver::new(settings, access, translator, live, own);
                LocalSet::new().block_on(&runtime, driver.drive(told));
            });
        };
        let spawned = std::thread::Builder::new().name("weir-kube".to_owned()).spawn(work);
        spawned.map_err(|e| format!("the thread of the controller: {e}"))?;
        Ok(Self { tell })
    }

    /// Releases the Lease and writes nothing more. Waits a moment for that; otherwise the Lease runs out. Until the
    /// gateway has ended, its upstreams still get the endpoints that have moved: a drain serves for half a minute.
    pub fn leave(&self) {
        let (done, left) = std_mpsc::channel();
        if self.tell.send(driver::Message::Leave(done)).is_ok() {
            let _ = left.recv_timeout(LEAVING); // the loop drops `done` when the Lease is released
        }
    }
}

/// Drives the controller. If that panics, the gateway drains, which ends the process, and Kubernetes starts another:
/// without the loop it would serve endpoints that are gone, and say that it is ready. What tenants write is read where
/// a panic is [`caught`](live::caught).
fn drain_after_panic(gateway: &Gateway, drive: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(drive)).is_err() {
        notes::ended(&"it panicked, which is a bug: the process drains and ends");
        gateway.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Source;

    #[test]
    fn a_loop_that_panics_ends_the_gateway() {
        let config = r#"{
            "listeners": { "web": { "address": "127.0.0.1:0" } }, "routes": { "all": { "respond": {} } },
            "admin": { "address": "off" }, "watch": false, "workers": 1, "shutdown": { "delay": "0s" }
        }"#;
        let gateway = weir_gateway::start(Source::text("weir.yaml", config)).unwrap();
        drain_after_panic(&gateway, || {});
        assert!(!gateway.has_ended());
        drain_after_panic(&gateway, || panic!("a bug"));
        assert!(gateway.has_ended());
    }
}
