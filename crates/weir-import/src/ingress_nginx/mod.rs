//! ingress-nginx: Ingresses with its annotations, and what they refer to, as manifests of Kubernetes.
//!
//! [`objects`] reads manifests, [`settings`] the controller's ConfigMap, [`access`], [`traffic`] and [`upstreams`] the
//! annotations, [`locations`] writes routes in the order in which nginx would choose locations. [`asked`] reads the
//! annotations for a controller that has routes of its own.

mod access;
pub mod asked;
mod locations;
mod objects;
mod settings;
mod traffic;
mod upstreams;

use crate::config::{Config, Filter, Listener};
use crate::ledger::{Ledger, Piece};
use crate::shared::filters::{self, Headers};
use crate::shared::tree::{self, Fields};
use crate::shared::users::Users;
use crate::source::{SourceTree, Unreadable};
use crate::system::System;
use crate::yaml::{Map, Value};
use objects::{Ingress, Objects};
use settings::Defaults;

/// The Ingress controller of the Kubernetes project.
pub(crate) static SYSTEM: System = System {
    name: "ingress-nginx",
    title: "ingress-nginx",
    files: "manifests of Ingresses, and of Services, Secrets, ConfigMaps and EndpointSlices beside them",
    import,
};

/// The translation.
struct Cx<'t, 'c> {
    objects: &'c Objects<'t>,
    defaults: &'c Defaults,
    config: &'c mut Config,
    ledger: &'c mut Ledger,
    users: Users,
    /// Whether lists of users are told apart.
    has_groups: bool,
}

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let mut documents = Vec::new();
    for path in tree.given().to_vec() {
        let file = tree.read(&path)?;
        let read = tree::read_all(&file, ledger)?;
        documents.push((path, read));
    }
    let mut objects = Objects::default();
    for (path, all) in &documents {
        for document in all.iter().filter(|document| document.value != tree::Value::Null) {
            if !objects.read(document, ledger) {
                return Err(Unreadable::anywhere(format!(
                    "{path}: a document without `kind` is no manifest"
                )));
            }
        }
    }
    let mut config = Config::default();
    config.more.set("admin", Map::new().with("address", "127.0.0.1:9180"));
    let mut ingresses = std::mem::take(&mut objects.ingresses);
    ingresses.retain(|ingress| is_ours(ingress, &objects, ledger));
    if ingresses.is_empty() && objects.services.is_empty() {
        ledger.note("there is no Ingress of ingress-nginx in the files");
    }
    let mut own_settings = std::mem::take(&mut objects.settings);
    let defaults = settings::read(&mut own_settings, &objects, &mut config, ledger);
    notes(ledger);
    let secrets = |ingress: &Ingress<'_>| {
        ingress.annotations.peek("auth-secret").map(|name| (ingress.namespace.clone(), name))
    };
    let mut lists: Vec<_> = ingresses.iter().filter_map(secrets).collect();
    lists.sort();
    lists.dedup();
    let mut cx = Cx {
        objects: &objects,
        defaults: &defaults,
        config: &mut config,
        ledger,
        users: Users::default(),
        has_groups: lists.len() > 1,
    };
    let http = Listener {
        address: Some("0.0.0.0:80".to_owned()),
        more: defaults.listener.clone(),
        ..Listener::default()
    };
    cx.config.listeners.add("http", http);
    tls(&mut cx, &ingresses);
    fields(&mut cx);
    locations::write(&mut cx, &mut ingresses);
    for ingress in &ingresses {
        for (name, piece) in ingress.annotations.rest() {
            if !cx.ledger.is_judged(piece) {
                let why = format!("weir import does not know the annotation {name}");
                cx.ledger.refused(piece, why, "docs/guide/from-ingress-nginx.md");
            }
        }
    }
    secrets_left(&objects, ledger);
    filters::close_without_consumers(&mut config);
    Ok(config)
}

/// Says of the values of Secrets and ConfigMaps that nobody read that they are not needed.
fn secrets_left(objects: &Objects<'_>, ledger: &mut Ledger) {
    for (_, piece) in objects.secrets.values().flat_map(|data| data.values()) {
        if !ledger.is_judged(*piece) {
            ledger.left_out(*piece, "no Ingress uses it");
        }
    }
    for data in objects.config_maps.values() {
        data.each_piece(&mut |piece| {
            if !ledger.is_judged(piece) {
                ledger.left_out(piece, "no Ingress uses it");
            }
        });
    }
}

/// Whether an Ingress is of this controller.
fn is_ours(ingress: &Ingress<'_>, objects: &Objects<'_>, ledger: &mut Ledger) -> bool {
    let Some((class, piece)) = &ingress.class else { return true };
    let ours = objects.classes.get(class).copied().unwrap_or_else(|| class.contains("nginx"));
    if !ours {
        ledger.changed(*piece, format!("of the class `{class}`, another controller's: not imported"));
        for (_, piece) in ingress.annotations.rest() {
            ledger.left_out(piece, "of an Ingress of another controller");
        }
    }
    ours
}

/// What the controller does by default and Weir does not.
fn notes(ledger: &mut Ledger) {
    for note in [
        "listeners: 0.0.0.0:80, and 0.0.0.0:443 if there is a certificate; the controller's Service says which ports \
         clients see",
        "upstreams: by the cluster's DNS unless EndpointSlices are given, so Weir runs in the cluster, or asks its DNS \
         (`dns.servers`)",
        "X-Forwarded-For: both replace it unless told whom to trust; Weir sends no X-Original-Forwarded-For",
        "bodies: nginx reads requests whole before it asks a Service; Weir streams them (the filter buffer reads them \
         first)",
        "no route: both answer 404; Weir's text is another (the filter errors sets it)",
        "paths: Weir refuses paths that two servers could read differently, such as `/a%2F..`: \
         docs/reference/routing.md",
    ] {
        ledger.note(note);
    }
}

/// The listener with TLS, if any Ingress has certificates.
fn tls(cx: &mut Cx<'_, '_>, ingresses: &[Ingress<'_>]) {
    let mut certificates: Vec<Value> = Vec::new();
    let mut has_tls = false;
    for ingress in ingresses {
        for (_, secret, piece) in &ingress.tls {
            has_tls = true;
            let Some(secret) = secret else {
                cx.ledger.changed(*piece, "the controller's default certificate; Weir shows the first one");
                continue;
            };
            let name = crate::config::name_of(&format!("{}-{secret}", ingress.namespace));
            let key = (ingress.namespace.clone(), secret.clone());
            let mut pair = Map::new();
            match cx.objects.secrets.get(&key) {
                Some(data) => {
                    for (of, ours, ending) in [("tls.crt", "cert", "pem"), ("tls.key", "key", "key")] {
                        let Some((text, piece)) = data.get(of) else { continue };
                        let path = format!("certs/{name}.{ending}");
                        cx.ledger.same(*piece);
                        match ours {
                            "key" => _ = cx.config.secret_files.insert(path.clone(), text.clone()),
                            _ => _ = cx.config.files.insert(path.clone(), text.clone()),
                        }
                        pair.set(ours, path);
                    }
                    cx.ledger.same(*piece);
                }
                None => {
                    let path = format!("/etc/weir/certs/{name}");
                    pair.set("cert", format!("{path}.pem"));
                    pair.set("key", format!("{path}.key"));
                    cx.ledger.changed(
                        *piece,
                        format!(
                            "the Secret `{secret}` is not in the files: mount it as {path}.pem and {path}.key"
                        ),
                    );
                }
            }
            let pair = Value::Map(pair);
            if !certificates.contains(&pair) {
                certificates.push(pair);
            }
        }
    }
    if !has_tls {
        return;
    }
    if certificates.is_empty() {
        let pair =
            Map::new().with("cert", "/etc/weir/certs/default.pem").with("key", "/etc/weir/certs/default.key");
        certificates.push(pair.into());
    }
    let mut tls = Map::new().with("certificates", Value::List(certificates));
    cx.defaults.tls.iter().for_each(|(key, value)| tls.set(key, value.clone()));
    let mut more = cx.defaults.listener.clone();
    more.set("tls", tls);
    cx.config
        .listeners
        .add("https", Listener { address: Some("0.0.0.0:443".to_owned()), more, ..Listener::default() });
}

/// The fields that the controller always sends.
fn fields(cx: &mut Cx<'_, '_>) {
    let mut headers = Headers {
        request_set: vec![
            ("x-real-ip".to_owned(), "{client}".into()),
            ("x-forwarded-port".to_owned(), "{= request.scheme == \"https\" ? \"443\" : \"80\" }".into()),
            ("x-forwarded-scheme".to_owned(), "{scheme}".into()),
            ("x-scheme".to_owned(), "{scheme}".into()),
        ],
        ..Headers::default()
    };
    headers.request_set.extend(cx.defaults.request_set.iter().cloned());
    headers.response_set.extend(cx.defaults.response_set.iter().cloned());
    let id = Filter::new("request_id", Map::new().with("response", false));
    let mut all = vec![id.because("What the controller sends to every Service.")];
    all.extend(headers.filter());
    if let Some(text) = cx.defaults.hsts.clone().filter(|_| cx.config.listeners.get("https").is_some()) {
        let set = Headers {
            response_set: vec![("strict-transport-security".to_owned(), text.into())],
            ..Headers::default()
        };
        let is = crate::shared::expression::Expression::raw("request.scheme")
            .equals(crate::shared::expression::Expression::text("https"));
        all.extend(filters::when(&is, set.filter().into_iter().collect(), Vec::new()));
    }
    all.extend(cx.defaults.filters.iter().cloned());
    cx.config.filters = all;
}

/// Refuses what is left of some fields.
fn refuse_rest(fields: Fields<'_>, what: &str, ledger: &mut Ledger) {
    for entry in fields.rest() {
        let why = format!("weir import does not know this key of {what}");
        entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "docs/reference/config.md"));
    }
}

/// Whether a text turns something on.
fn is_on(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "on" | "1" | "yes")
}

/// Parts of a list with commas.
fn parts(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Judges a setting that is a flag, and says whether it is on.
fn flag(setting: Option<(String, Piece)>, ledger: &mut Ledger) -> Option<bool> {
    setting.map(|(text, piece)| {
        ledger.same(piece);
        is_on(&text)
    })
}
