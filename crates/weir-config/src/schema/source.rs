//! `source`: the source of the config of a gateway in a fleet.

use super::process::Secret;
use super::values::FilePath;
use crate::units::Duration;
use crate::url::Url;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where the config comes from, instead of this file. This file then holds only the node's own keys: `source`,
/// `admin`, `log`, `zone`, `labels` and `workers`. Exactly one of `etcd` and `http`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigSource {
    /// An etcd that `weir fleet` publishes to.
    pub etcd: Option<EtcdSource>,
    /// A web server, an object store, or the admin listener of another Weir.
    pub http: Option<HttpSource>,
}

/// An etcd, 3.4 or later, over its JSON gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdSource {
    /// Its members, such as `http://10.0.0.2:2379`, tried in turn until one answers. At least one.
    pub servers: Vec<Url>,
    /// Prefix of this fleet's keys. Default `/weir`.
    pub prefix: String,
    /// A folder, private to this gateway, for the last config that ran. The gateway serves it when it starts while
    /// etcd is unavailable. Required. Created if missing.
    pub cache: Option<FilePath>,
    /// The name of this node in the fleet: letters, digits, `_`, `.` and `-`. Default the name of the machine.
    pub node: Option<String>,
    /// Where other nodes reach this one, for limits that the fleet shares: an IP address, with or without a port.
    /// Default: the address from which it reaches etcd, and any free port. Nodes speak cleartext to each other, so
    /// use an internal network.
    pub address: Option<String>,
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

/// A bundle at a URL: a `.tar.gz` with a `weir.yaml` in it, or a `weir.yaml` alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSource {
    /// Its URL. Required. For another Weir it is `/bundle` on its admin listener.
    pub url: Option<Url>,
    /// A folder, private to this gateway, for the last config that ran. The gateway serves it when it starts while
    /// the server is unavailable. Required. Created if missing.
    pub cache: Option<FilePath>,
    /// How often to ask for a new bundle. A server that holds its answer until there is one (`?wait=30s`), as another
    /// Weir does, is asked again immediately. Default 10s.
    pub every: Duration,
    /// Sent as `Authorization: Bearer TOKEN`. Default none.
    pub token: Option<Secret>,
    /// PEM file of authorities that verify the server's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
    /// The client certificate, if the server asks for one.
    pub client_cert: Option<FilePath>,
    /// Its key.
    pub client_key: Option<FilePath>,
}

impl ConfigSource {
    /// The folder for the last config that ran.
    pub fn cache(&self) -> Option<&FilePath> {
        let etcd = self.etcd.as_ref().and_then(|etcd| etcd.cache.as_ref());
        etcd.or_else(|| self.http.as_ref()?.cache.as_ref())
    }
}

impl EtcdSource {
    /// [`address`](Self::address) as an address; its port is 0 for any. `None` if other nodes could not reach it.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        let text = self.address.as_deref()?;
        let address = text.parse().ok().or_else(|| Some(std::net::SocketAddr::new(text.parse().ok()?, 0)))?;
        (!address.ip().is_unspecified() && !address.ip().is_multicast()).then_some(address)
    }
}

impl Default for EtcdSource {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            prefix: "/weir".to_owned(),
            cache: None,
            node: None,
            address: None,
            ca: None,
            client_cert: None,
            client_key: None,
            user: None,
            password: None,
        }
    }
}

impl Default for HttpSource {
    fn default() -> Self {
        Self {
            url: None,
            cache: None,
            every: Duration::from_secs(10),
            token: None,
            ca: None,
            client_cert: None,
            client_key: None,
        }
    }
}
