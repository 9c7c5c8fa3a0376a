//! `discover`: a registry that lists the endpoints of an upstream.

use super::addresses::EndpointAddress;
use super::process::Secret;
use super::upstream::Endpoint;
use super::values::FilePath;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::url::Url;
use crate::{de, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

/// The registry that lists the endpoints of an upstream. Exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Discover {
    /// A Consul catalogue: the instances of a service whose checks pass.
    pub consul: Option<ConsulDiscovery>,
    /// A Docker engine: the containers that name the service in a label. Write `docker: {}` for the engine of this
    /// machine. **Whoever may talk to its socket is root on the machine**, so think of a proxy that allows only `GET`.
    pub docker: Option<DockerDiscovery>,
    /// An etcd in which instances register like those of kratos, sponge and go-zero.
    pub etcd: Option<EtcdDiscovery>,
    /// A file with a list of endpoints, as under `endpoints`, in YAML or JSON. It is checked five times a second, and
    /// its changes cause no reload.
    pub file: Option<FilePath>,
    /// The API server of Kubernetes: the EndpointSlices of a Service.
    pub kubernetes: Option<KubernetesDiscovery>,
    /// A name with SRV records, such as `_grpc._tcp.orders.internal`. Queried again as under `dns`.
    pub srv: Option<String>,
}

/// An etcd, 3.4 or later, over its JSON gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdDiscovery {
    /// Its members, such as `http://10.0.0.2:2379`, tried in turn until one answers. At least one.
    pub servers: Vec<Url>,
    /// Prefix of the instances' keys: for kratos and sponge `/microservices/NAME`, for go-zero the `Key` of its
    /// configuration. Required.
    pub key: String,
    /// The format of instances: `kratos` (sponge's is the same) or `go_zero`. Required.
    pub format: Option<EtcdFormat>,
    /// Which address of a kratos instance to use. Default: `grpc` if the upstream speaks `h2c` or `h2`, else `http`.
    pub scheme: Option<Scheme>,
    /// Only instances of this version. Default all.
    pub version: Option<String>,
    /// PEM file of authorities that verify the server's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
    /// The client certificate, if etcd asks for one.
    pub client_cert: Option<FilePath>,
    /// Its key.
    pub client_key: Option<FilePath>,
    /// The user to log in as. Default none.
    pub user: Option<String>,
    /// The user's password. Write `${ETCD_PASSWORD}` or `${file:PATH}` rather than the password itself.
    pub password: Option<Secret>,
}

/// The format of instances in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EtcdFormat {
    /// `host:port`.
    GoZero,
    /// JSON with an address for each protocol.
    Kratos,
}

/// The protocol of an instance's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// gRPC.
    Grpc,
    /// HTTP/1.1.
    Http,
}

/// A Consul agent or server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsulDiscovery {
    /// Its HTTP addresses, tried in turn until one answers. Default the agent of this machine,
    /// `http://127.0.0.1:8500`.
    pub servers: Vec<Url>,
    /// The name of the service. Required.
    pub service: String,
    /// Only instances with this tag. Default all.
    pub tag: Option<String>,
    /// The datacenter to query. Default the agent's own.
    pub datacenter: Option<String>,
    /// The tagged address to use, if an instance has one. Default: `grpc` if the upstream speaks `h2c` or `h2`, else
    /// `http`.
    pub scheme: Option<Scheme>,
    /// Only instances of this version: the tag `version=…`, or `version` of their metadata. Default all.
    pub version: Option<String>,
    /// Sent as `X-Consul-Token`. Default none. Write `${CONSUL_TOKEN}` or `${file:PATH}` rather than the token
    /// itself.
    pub token: Option<Secret>,
    /// PEM file of authorities that verify the server's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
    /// The client certificate, if Consul asks for one.
    pub client_cert: Option<FilePath>,
    /// Its key.
    pub client_key: Option<FilePath>,
}

impl Default for ConsulDiscovery {
    fn default() -> Self {
        Self {
            servers: "http://127.0.0.1:8500".parse().into_iter().collect(),
            service: String::new(),
            tag: None,
            datacenter: None,
            scheme: None,
            version: None,
            token: None,
            ca: None,
            client_cert: None,
            client_key: None,
        }
    }
}

/// A Docker engine, or Podman with its compatible API. A running container is an endpoint if its label `weir.service`
/// names the service. Containers whose health check fails or has not passed yet are left out.
///
/// Further labels: `weir.port` (default: the only port that it exposes), `weir.network`, `weir.weight`, `weir.priority`,
/// `weir.zone`, `weir.version`. Labels give endpoints only: no routes, no filters. An unknown `weir.` label leaves the
/// container out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DockerDiscovery {
    /// Where the engine listens. Default `unix:/var/run/docker.sock`; a proxy's `127.0.0.1:2375`.
    pub address: EndpointAddress,
    /// The value of the label `weir.service`. Default: the name of the upstream.
    pub service: Option<String>,
    /// The network whose addresses to use, if containers are in several; the label `weir.network` comes first.
    /// Containers with the host's network are at 127.0.0.1.
    pub network: Option<String>,
    /// Only containers whose label `weir.version` has this value. Default all.
    pub version: Option<String>,
}

impl Default for DockerDiscovery {
    fn default() -> Self {
        Self {
            address: EndpointAddress::Unix("/var/run/docker.sock".into()),
            service: None,
            network: None,
            version: None,
        }
    }
}

/// A Service in Kubernetes. Its ready endpoints are used instead of its own address, each with its zone. While none is
/// ready, those that terminate but still serve are used.
///
/// The token needs the verbs `list` and `watch` for `endpointslices` of the API group `discovery.k8s.io` in that
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesDiscovery {
    /// The API server, or several that are tried in turn. Default the one of the pod's cluster,
    /// `https://kubernetes.default.svc`.
    pub servers: Vec<Url>,
    /// The namespace of the Service. Required.
    pub namespace: String,
    /// The name of the Service. Required.
    pub service: String,
    /// The name of its port, or the number that the port has at the endpoints (`targetPort`). Default: the only TCP
    /// port.
    pub port: Option<String>,
    /// File with the token, read before each request. Required beside `servers` or `ca`. Default that of the pod's
    /// service account, `/var/run/secrets/kubernetes.io/serviceaccount/token`.
    pub token_file: Option<FilePath>,
    /// PEM file of authorities that verify the server's certificate, read before each request. Default that of the
    /// cluster, `/var/run/secrets/kubernetes.io/serviceaccount/ca.crt`.
    pub ca: Option<FilePath>,
}

impl Default for KubernetesDiscovery {
    fn default() -> Self {
        Self {
            servers: "https://kubernetes.default.svc".parse().into_iter().collect(),
            namespace: String::new(),
            service: String::new(),
            port: None,
            token_file: None,
            ca: None,
        }
    }
}

/// Reads the text of a file with endpoints. Unlike a config it has no `${VAR}`, because its author may not read our
/// environment.
///
/// # Errors
/// Every mistake, with its place.
pub fn read_endpoints(file: &Path, text: &str) -> Result<Vec<Endpoint>, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let tree = parse::parse(text, file, &mut diagnostics);
    let read = tree.as_ref().and_then(|node| de::read::<Vec<Endpoint>>(node, "", &mut diagnostics));
    for (index, endpoint) in read.iter().flatten().enumerate() {
        if let (Some(scheme), Some(tree)) = (endpoint.scheme, &tree) {
            let message = format!("{} is {scheme}, but `tls` of the upstream decides that", endpoint.address);
            let wrong = Diagnostic::error("endpoint-scheme", message).on(tree, &format!("[{index}]"));
            diagnostics.push(wrong.hint(format!("write {}", endpoint.address)));
        }
    }
    match read {
        Some(list) if diagnostics.errors() == 0 => Ok(list),
        _ => Err(diagnostics),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_endpoints() {
        let read = |text: &str| read_endpoints(Path::new("orders.yaml"), text);
        let list =
            read("- 127.0.0.1:8000\n- { address: orders.internal:80, weight: 3, zone: a, priority: 1 }\n")
                .unwrap();
        assert_eq!((list.len(), list[1].weight, list[1].priority), (2, 3, 1));
        assert_eq!(read(r#"["127.0.0.1:8000"]"#).unwrap(), list[..1]);
        assert!(read("[]").unwrap().is_empty());
        for wrong in ["", "{}", "- 127.0.0.1", "- { address: a:1, wait: 3 }", "- [", "- ${HOME}:80"] {
            let told = read(wrong).unwrap_err().to_text();
            assert!(told.contains("error"), "{wrong}: {told}");
        }
        assert!(read("- 127.0.0.1").unwrap_err().to_text().contains("orders.yaml:1"));
        let told = read("- a:80\n- https://b\n").unwrap_err().to_text();
        assert!(told.contains("orders.yaml:2") && told.contains("write b:443"), "{told}");
    }
}
