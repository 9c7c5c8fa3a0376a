//! An API server, a gateway and its controller.

use crate::made_up::{BREAKS, CONTROLLER, MadeUp};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use weir_gateway::Gateway;
use weir_kube::api::Access;
use weir_kube::controller::live::{self, Live};
use weir_kube::controller::{Controller, Settings, Translator};
use weir_testkit::kube::FakeKube;
use weir_testkit::{Client, Response, eventually_within};

/// How long anything may take here: the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A replica: a gateway and its controller. Dropped, it ends without releasing its Lease.
pub(crate) struct Replica {
    pub(crate) gateway: Gateway,
    controller: Controller,
    translations: Arc<AtomicUsize>,
}

impl Replica {
    /// Starts one whose state is in this folder.
    pub(crate) fn start(kube: &FakeKube, folder: &Path) -> Self {
        Self::start_at(Access::new(&kube.url(), "weir", None, None).unwrap(), folder)
    }

    pub(crate) fn start_at(access: Access, folder: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let identity = format!("replica-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut translator = MadeUp::default();
        let translations = Arc::clone(&translator.translations);
        let text = translator.translate().text;
        let run = folder.join("run");
        let source = live::source(&run, &text).unwrap();
        let gateway = weir_gateway::builder(source.clone()).filter(&BREAKS).start();
        let gateway = gateway.unwrap_or_else(|e| panic!("{e}"));
        let live = Live::new(gateway.clone(), source, &run);
        let settings = Settings {
            controller: CONTROLLER.to_owned(),
            identity,
            lease: "leader".to_owned(),
            saved: folder.join("objects.json"),
            retry: Duration::from_millis(50),
        };
        let controller = Controller::start(settings, access, translator, live).unwrap();
        Self { gateway, controller, translations }
    }

    /// How often everything was translated.
    pub(crate) fn translations(&self) -> usize {
        self.translations.load(Ordering::Relaxed)
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.gateway.address("web").unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.client().get(path)
    }

    /// Waits until a path is answered with this body.
    #[track_caller]
    pub(crate) fn wait_body(&self, path: &str, body: &str) {
        eventually_within(SOON, &format!("{path} answers {body:?}"), || {
            let response = self.get(path);
            response.status == 200 && response.text() == body
        });
    }

    /// Waits until a path is not found.
    #[track_caller]
    pub(crate) fn wait_gone(&self, path: &str) {
        eventually_within(SOON, &format!("{path} answers 404"), || self.get(path).status == 404);
    }

    /// Waits until it serves what it knows.
    #[track_caller]
    pub(crate) fn wait_ready(&self) {
        eventually_within(SOON, "it is ready", || self.gateway.held_by().is_none());
    }

    /// Begins to drain, as the process does on SIGTERM. Until the end of `shutdown.delay`, connections are accepted.
    pub(crate) fn begin_to_leave(&self) {
        self.controller.leave();
        let gateway = self.gateway.clone();
        drop(std::thread::spawn(move || gateway.drain()));
        eventually_within(SOON, "it drains", || !self.gateway.is_ready());
    }

    /// Releases the Lease and ends.
    pub(crate) fn leave(&self) {
        self.controller.leave();
        self.gateway.stop();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.gateway.stop();
    }
}

pub(crate) fn route(name: &str, path: &str, body: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "namespace": "shop", "name": name }, "spec": { "path": path, "body": body },
    })
}

/// Whether the status of a route says that it is programmed.
pub(crate) fn programmed(kube: &FakeKube, name: &str) -> Option<String> {
    let route = kube.get("HTTPRoute", "shop", name)?;
    Some(route.pointer("/status/parents/0/conditions/0/status")?.as_str()?.to_owned())
}

#[track_caller]
pub(crate) fn wait_programmed(kube: &FakeKube, name: &str, status: &str) {
    let what = format!("the status of {name} is {status}");
    eventually_within(SOON, &what, || programmed(kube, name).as_deref() == Some(status));
}

pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}
