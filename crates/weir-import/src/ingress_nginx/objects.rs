//! Objects of Kubernetes as files hold them: Ingresses and what they refer to.

use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{Entry, Fields, Node};
use std::collections::HashMap;

/// Most values of a Secret or ConfigMap that are read.
const MAX_DATA: usize = 10_000;

/// All objects of the files.
#[derive(Default)]
pub(super) struct Objects<'t> {
    pub(super) ingresses: Vec<Ingress<'t>>,
    pub(super) services: HashMap<Name, Service>,
    /// Data of Secrets, decoded, with the statement of each key.
    pub(super) secrets: HashMap<Name, HashMap<String, (String, Piece)>>,
    pub(super) config_maps: HashMap<Name, &'t Node>,
    /// Addresses of Services, by the name or number of a port.
    pub(super) endpoints: HashMap<Name, Vec<Endpoints>>,
    /// The keys of the controller's ConfigMap.
    pub(super) settings: Settings<'t>,
    /// Classes whose controller is ingress-nginx, and others.
    pub(super) classes: HashMap<String, bool>,
}

/// A namespace and a name.
pub(super) type Name = (String, String);

/// A Service.
#[derive(Default)]
pub(super) struct Service {
    /// Names and numbers of its ports.
    pub(super) ports: Vec<(String, u64)>,
    /// The name outside of the cluster that it stands for.
    pub(super) external: Option<String>,
}

/// Addresses with a port.
pub(super) struct Endpoints {
    pub(super) port_name: String,
    pub(super) port: u64,
    pub(super) addresses: Vec<String>,
}

/// Texts with their statements, each of which somebody must read.
#[derive(Default)]
pub(super) struct Settings<'t> {
    entries: Vec<(String, &'t Entry)>,
    taken: Vec<bool>,
}

/// An Ingress.
pub(super) struct Ingress<'t> {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) created: Option<String>,
    /// Annotations of the controller, by their name behind the prefix.
    pub(super) annotations: Settings<'t>,
    pub(super) class: Option<(String, Piece)>,
    pub(super) default: Option<Backend>,
    pub(super) rules: Vec<Rule>,
    /// Hosts, the Secret's name, and the statement.
    pub(super) tls: Vec<(Vec<String>, Option<String>, Piece)>,
    pub(super) piece: Piece,
}

/// A rule for a host.
pub(super) struct Rule {
    pub(super) host: String,
    pub(super) paths: Vec<Path>,
    pub(super) piece: Piece,
}

/// A path of a rule.
pub(super) struct Path {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) backend: Backend,
    pub(super) piece: Piece,
    /// Why it is closed.
    pub(super) closed: Option<&'static str>,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact,
    Free,
    Prefix,
}

/// A Service with a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backend {
    pub(super) service: String,
    /// A name or a number.
    pub(super) port: String,
}

impl<'t> Settings<'t> {
    /// Settings of a map, with the keys that `name` gives.
    pub(super) fn of(node: &'t Node, name: impl Fn(&str) -> Option<String>) -> Self {
        let entries: Vec<(String, &'t Entry)> = node
            .as_map()
            .unwrap_or_default()
            .iter()
            .filter_map(|entry| Some((name(&entry.key)?, entry)))
            .collect();
        let taken = vec![false; entries.len()];
        Self { entries, taken }
    }

    /// A setting, which counts as read.
    pub(super) fn take(&mut self, name: &str) -> Option<(String, Piece)> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        self.taken[at] = true;
        let (_, entry) = &self.entries[at];
        Some((entry.node.as_text()?, entry.piece))
    }

    /// A setting that somebody else reads.
    pub(super) fn peek(&self, name: &str) -> Option<String> {
        self.entries.iter().find(|(known, _)| known == name)?.1.node.as_text()
    }

    /// All settings, read or not.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Piece)> {
        self.entries.iter().map(|(name, entry)| (&**name, entry.piece))
    }

    /// What nobody has read.
    pub(super) fn rest(&self) -> Vec<(&str, Piece)> {
        let rest = self.entries.iter().zip(&self.taken).filter(|(_, taken)| !**taken);
        rest.map(|((name, entry), _)| (&**name, entry.piece)).collect()
    }
}

impl<'t> Objects<'t> {
    /// Reads one object, or a list of them. False if it is none.
    pub(super) fn read(&mut self, node: &'t Node, ledger: &mut Ledger) -> bool {
        let text = |key: &str| node.get(key).and_then(Node::as_text).unwrap_or_default();
        let kind = text("kind");
        if kind.is_empty() {
            return false;
        }
        let mut fields = Fields::of(node);
        for key in ["apiVersion", "kind"] {
            if let Some(entry) = fields.entry(key) {
                ledger.same(entry.piece);
            }
        }
        if kind.ends_with("List") {
            if let Some((items, piece)) = fields.list("items", ledger) {
                ledger.same(piece);
                for item in items {
                    self.read(item, ledger);
                }
            }
            leave_out(fields, "about the list, not what is in it", ledger);
            return true;
        }
        let version = text("apiVersion");
        match kind.as_str() {
            "Ingress" if version == "networking.k8s.io/v1" => self.ingress(fields, ledger),
            "Ingress" => {
                for entry in fields.rest() {
                    entry.each_piece(&mut |piece| {
                        ledger.refused(
                            piece,
                            format!("an Ingress of {version}, which clusters no longer have"),
                            "networking.k8s.io/v1: `kubectl convert`",
                        );
                    });
                }
            }
            "IngressClass" => {
                let controller =
                    node.get("spec").and_then(|spec| spec.get("controller")).and_then(Node::as_text);
                let (_, name) = meta(&mut fields, ledger);
                self.classes.insert(name, controller.is_some_and(|name| name.contains("ingress-nginx")));
                all(fields, |piece| ledger.by_itself(piece, "says whose Ingresses these are"));
            }
            "Service" => self.service(fields, ledger),
            "Endpoints" => self.endpoints(fields, "subsets", ledger),
            "EndpointSlice" => self.slice(node, fields, ledger),
            "Secret" => self.secret(fields, ledger),
            "ConfigMap" => {
                let name = meta(&mut fields, ledger);
                let data = fields.map("data", ledger);
                if let Some((data, piece)) = data {
                    ledger.same(piece);
                    let is_controller =
                        ["ingress-nginx-controller", "nginx-configuration", "nginx-load-balancer"]
                            .iter()
                            .any(|part| name.1.contains(part))
                            || name.1.ends_with("-controller");
                    match is_controller {
                        true => self.settings = Settings::of(data, |key| Some(key.to_owned())),
                        false => _ = self.config_maps.insert(name, data),
                    }
                }
                leave_out(fields, "about the object, not what is in it", ledger);
            }
            _ => {
                let why = format!("a {kind} says how something runs, not what becomes of requests");
                leave_out(fields, &why, ledger);
            }
        }
        true
    }

    fn ingress(&mut self, mut fields: Fields<'t>, ledger: &mut Ledger) {
        let metadata = fields.entry("metadata");
        let status = fields.entry("status");
        let spec = fields.map("spec", ledger);
        status.iter().for_each(|entry| {
            entry.each_piece(&mut |piece| ledger.left_out(piece, "written by a controller"))
        });
        super::refuse_rest(fields, "an Ingress", ledger);
        let Some(metadata) = metadata else { return };
        ledger.same(metadata.piece);
        let mut meta = Fields::of(&metadata.node);
        let mut ingress = Ingress {
            namespace: "default".to_owned(),
            name: String::new(),
            created: None,
            annotations: Settings::default(),
            class: None,
            default: None,
            rules: Vec::new(),
            tls: Vec::new(),
            piece: metadata.piece,
        };
        if let Some((name, piece)) = meta.text("name", ledger) {
            ledger.same(piece);
            ingress.name = name;
            ingress.piece = piece;
        }
        if let Some((namespace, piece)) = meta.text("namespace", ledger) {
            ledger.same(piece);
            ingress.namespace = namespace;
        }
        if let Some((time, piece)) = meta.text("creationTimestamp", ledger) {
            ledger.by_itself(piece, "of two Ingresses for one path the older wins");
            ingress.created = Some(time);
        }
        if let Some((node, piece)) = meta.map("annotations", ledger) {
            ledger.same(piece);
            let prefix = "nginx.ingress.kubernetes.io/";
            ingress.annotations = Settings::of(node, |key| key.strip_prefix(prefix).map(str::to_owned));
            for entry in node.as_map().unwrap_or_default() {
                match &*entry.key {
                    key if key.starts_with(prefix) => {}
                    "kubernetes.io/ingress.class" => {
                        ledger.same(entry.piece);
                        ingress.class = entry.node.as_text().map(|class| (class, entry.piece));
                    }
                    key if key.starts_with("cert-manager.io/")
                        || key.starts_with("acme.cert-manager.io/") =>
                    {
                        ledger.changed(
                            entry.piece,
                            "cert-manager goes on writing the Secret; Weir reads files, or orders itself by tls.acme",
                        );
                    }
                    _ => ledger.left_out(entry.piece, "for another program"),
                }
            }
        }
        leave_out(meta, "a note for people and tools", ledger);
        let Some((spec, piece)) = spec else { return };
        ledger.same(piece);
        let mut spec = Fields::of(spec);
        if let Some((class, piece)) = spec.text("ingressClassName", ledger) {
            ledger.same(piece);
            ingress.class = Some((class, piece));
        }
        for key in ["defaultBackend", "backend"] {
            if let Some(entry) = spec.entry(key) {
                ingress.default = backend(entry, ledger);
            }
        }
        if let Some((list, piece)) = spec.list("tls", ledger) {
            ledger.same(piece);
            for one in list {
                let mut fields = Fields::of(one);
                let hosts = fields.texts("hosts", ledger);
                let secret = fields.text("secretName", ledger);
                hosts.iter().for_each(|(_, piece)| ledger.same(*piece));
                let own =
                    secret.as_ref().map(|(_, piece)| *piece).or(hosts.as_ref().map(|(_, piece)| *piece));
                super::refuse_rest(fields, "tls", ledger);
                let hosts = hosts.map(|(hosts, _)| hosts).unwrap_or_default();
                ingress.tls.push((hosts, secret.map(|(name, _)| name), own.unwrap_or(piece)));
            }
        }
        if let Some((list, piece)) = spec.list("rules", ledger) {
            ledger.same(piece);
            for one in list {
                ingress.rules.extend(rule(one, piece, ledger));
            }
        }
        super::refuse_rest(spec, "the spec of an Ingress", ledger);
        self.ingresses.push(ingress);
    }

    fn service(&mut self, mut fields: Fields<'t>, ledger: &mut Ledger) {
        let name = meta(&mut fields, ledger);
        let mut service = Service::default();
        if let Some((spec, piece)) = fields.map("spec", ledger) {
            ledger.same(piece);
            let mut spec = Fields::of(spec);
            if let Some((external, piece)) = spec.text("externalName", ledger) {
                ledger.same(piece);
                service.external = Some(external);
            }
            if let Some((ports, piece)) = spec.list("ports", ledger) {
                ledger.same(piece);
                for port in ports {
                    let number = port.get("port").and_then(Node::as_u64);
                    let name = port.get("name").and_then(Node::as_text).unwrap_or_default();
                    service.ports.extend(number.map(|number| (name, number)));
                    port.each_piece(&mut |piece| {
                        ledger.by_itself(piece, "the cluster's DNS and proxy follow it")
                    });
                }
            }
            all(spec, |piece| ledger.by_itself(piece, "the cluster's DNS and proxy follow it"));
        }
        leave_out(fields, "about the object, not what is in it", ledger);
        self.services.insert(name, service);
    }

    fn endpoints(&mut self, mut fields: Fields<'t>, key: &str, ledger: &mut Ledger) {
        let name = meta(&mut fields, ledger);
        if let Some((subsets, piece)) = fields.list(key, ledger) {
            ledger.same(piece);
            for subset in subsets {
                let list = |key: &str| subset.get(key).and_then(Node::as_list).unwrap_or_default();
                let addresses: Vec<String> =
                    list("addresses").iter().filter_map(|one| one.get("ip")?.as_text()).collect();
                for port in list("ports") {
                    self.add(&name, port, &addresses);
                }
                subset.each_piece(&mut |piece| ledger.same(piece));
            }
        }
        leave_out(fields, "about the object, not what is in it", ledger);
    }

    fn slice(&mut self, node: &'t Node, mut fields: Fields<'t>, ledger: &mut Ledger) {
        let labels = node.get("metadata").and_then(|meta| meta.get("labels"));
        let service =
            labels.and_then(|labels| labels.get("kubernetes.io/service-name")).and_then(Node::as_text);
        let (namespace, own) = meta(&mut fields, ledger);
        let name = (namespace, service.unwrap_or(own));
        let list = |key: &str| node.get(key).and_then(Node::as_list).unwrap_or_default();
        let is_ready = |one: &&Node| {
            one.get("conditions").and_then(|all| all.get("ready")).and_then(Node::as_bool) != Some(false)
        };
        let addresses: Vec<String> = list("endpoints")
            .iter()
            .filter(is_ready)
            .flat_map(|one| one.get("addresses").and_then(Node::as_texts).unwrap_or_default())
            .collect();
        for port in list("ports") {
            self.add(&name, port, &addresses);
        }
        all(fields, |piece| ledger.same(piece));
    }

    fn add(&mut self, name: &Name, port: &Node, addresses: &[String]) {
        let Some(number) = port.get("port").and_then(Node::as_u64) else { return };
        let port_name = port.get("name").and_then(Node::as_text).unwrap_or_default();
        let one = Endpoints { port_name, port: number, addresses: addresses.to_vec() };
        self.endpoints.entry(name.clone()).or_default().push(one);
    }

    fn secret(&mut self, mut fields: Fields<'t>, ledger: &mut Ledger) {
        let name = meta(&mut fields, ledger);
        let mut data: HashMap<String, (String, Piece)> = HashMap::new();
        for key in ["data", "stringData"] {
            let Some((node, piece)) = fields.map(key, ledger) else { continue };
            ledger.same(piece);
            for entry in node.as_map().unwrap_or_default().iter().take(MAX_DATA) {
                ledger.conceal(entry.piece);
                let text = entry.node.as_text().unwrap_or_default();
                let text = if key == "data" { decoded(&text) } else { Some(text) };
                match text {
                    Some(text) => _ = data.insert(entry.key.to_string(), (text, entry.piece)),
                    None => ledger.refused(entry.piece, "not base64 of a text", "correct the source"),
                }
            }
        }
        leave_out(fields, "about the object, not what is in it", ledger);
        self.secrets.insert(name, data);
    }
}

/// Namespace and name.
fn meta(fields: &mut Fields<'_>, ledger: &mut Ledger) -> Name {
    let mut name = ("default".to_owned(), String::new());
    if let Some((node, piece)) = fields.map("metadata", ledger) {
        ledger.same(piece);
        let mut fields = Fields::of(node);
        if let Some((text, piece)) = fields.text("name", ledger) {
            ledger.same(piece);
            name.1 = text;
        }
        if let Some((text, piece)) = fields.text("namespace", ledger) {
            ledger.same(piece);
            name.0 = text;
        }
        leave_out(fields, "a note for people and tools", ledger);
    }
    name
}

fn all(fields: Fields<'_>, mut judge: impl FnMut(Piece)) {
    for entry in fields.rest() {
        entry.each_piece(&mut judge);
    }
}

fn leave_out(fields: Fields<'_>, why: &str, ledger: &mut Ledger) {
    all(fields, |piece| ledger.left_out(piece, why.to_owned()));
}

fn rule(node: &Node, piece: Piece, ledger: &mut Ledger) -> Option<Rule> {
    let mut fields = Fields::of(node);
    let mut own = piece;
    let mut rule = Rule { host: String::new(), paths: Vec::new(), piece };
    if let Some((host, piece)) = fields.text("host", ledger) {
        ledger.same(piece);
        own = piece;
        rule.host = host.to_ascii_lowercase();
    }
    rule.piece = own;
    if let Some((http, piece)) = fields.map("http", ledger) {
        ledger.same(piece);
        let mut fields = Fields::of(http);
        if let Some((paths, piece)) = fields.list("paths", ledger) {
            ledger.same(piece);
            for path in paths {
                let mut fields = Fields::of(path);
                let text = fields.text("path", ledger);
                let kind = fields.text("pathType", ledger);
                let entry = fields.entry("backend");
                super::refuse_rest(fields, "a path", ledger);
                let own = text.as_ref().map_or(own, |(_, piece)| *piece);
                ledger.same(own);
                let mut closed = None;
                let kind = match kind {
                    Some((kind, piece)) => {
                        ledger.same(piece);
                        match kind.as_str() {
                            "Exact" => Kind::Exact,
                            "Prefix" => Kind::Prefix,
                            "ImplementationSpecific" => Kind::Free,
                            _ => {
                                ledger.refused(
                                    piece,
                                    format!("`{kind}` is no pathType"),
                                    "correct the source",
                                );
                                closed = Some("its pathType is none");
                                Kind::Free
                            }
                        }
                    }
                    None => Kind::Free,
                };
                let backend = entry.and_then(|entry| backend(entry, ledger)).unwrap_or_else(|| {
                    ledger.refused(own, "a path without a Service. It answers 503", "upstreams");
                    closed = Some("it has no Service");
                    Backend { service: String::new(), port: String::new() }
                });
                let path = text.map_or_else(|| "/".to_owned(), |(text, _)| text);
                rule.paths.push(Path { path, kind, backend, piece: own, closed });
            }
        }
        super::refuse_rest(fields, "http of a rule", ledger);
    }
    super::refuse_rest(fields, "a rule", ledger);
    Some(rule)
}

fn backend(entry: &Entry, ledger: &mut Ledger) -> Option<Backend> {
    ledger.same(entry.piece);
    let service = entry.node.get("service");
    let name = service.and_then(|service| service.get("name")).and_then(Node::as_text);
    let port = service.and_then(|service| service.get("port"));
    let port = port.and_then(|port| port.get("number").or(port.get("name"))).and_then(Node::as_text);
    match (name, port) {
        (Some(service), Some(port)) => {
            entry.each_piece(&mut |piece| ledger.same(piece));
            Some(Backend { service, port })
        }
        _ => {
            entry.each_piece(&mut |piece| {
                ledger.refused(piece, "a backend that is no Service with a port", "upstreams.NAME.endpoints");
            });
            None
        }
    }
}

/// Base64 of a text.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let (mut buffer, mut bits) = (0_u32, 0);
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    if !text.len().is_multiple_of(4) || text.len() - end > 2 {
        return None;
    }
    for byte in &text[..end] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(buffer >> bits & 0xff).unwrap_or_default());
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decoded("YWRtaW46eA==").as_deref(), Some("admin:x"));
        assert_eq!(decoded("").as_deref(), Some(""));
        for wrong in ["YWRt=", "Y", "Y===", "YW=t", "/w=="] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
