//! Where the API server is, and how we prove who we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_gateway::fetch::{Trust, Url, token_in};

/// Where Kubernetes puts a pod's credentials.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How often the certificates are read again. Kubernetes renews a cluster's authority rarely, and an old one stays
/// valid beside it.
const TRUST_FOR: Duration = Duration::from_secs(60);

/// The address of the API server and our credentials.
#[derive(Debug)]
pub struct Access {
    /// The server.
    pub server: Url,
    /// The namespace of this pod, where the Lease and the Services of Gateways are.
    pub namespace: String,
    token: Option<PathBuf>,
    ca: Option<PathBuf>,
    trust: Option<(Instant, Trust)>,
}

/// Why we cannot ask the API server.
#[derive(Debug)]
pub struct NoAccess(String);

impl Access {
    /// Reads what Kubernetes gives to every pod: the server's address from the environment, token, authority and
    /// namespace from files.
    ///
    /// # Errors
    /// If the process does not run in a pod, or the pod has no service account.
    pub fn in_cluster() -> Result<Self, NoAccess> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST");
        let port = variable("KUBERNETES_SERVICE_PORT");
        let (Some(host), Some(port)) = (host, port) else {
            let hint = "name the API server with --server, --token-file and --ca";
            return Err(NoAccess(format!("KUBERNETES_SERVICE_HOST is not set, so this is no pod: {hint}")));
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let mount = Path::new(MOUNT);
        let namespace = std::fs::read_to_string(mount.join("namespace")).map_err(|e| {
            let hint = "the pod needs automountServiceAccountToken: true";
            NoAccess(format!("{MOUNT}/namespace: {e}; {hint}"))
        })?;
        let (token, ca) = (mount.join("token"), mount.join("ca.crt"));
        Self::new(&format!("https://{host}:{port}"), namespace.trim(), Some(token), Some(ca))
    }

    /// Access to a named server.
    ///
    /// # Errors
    /// If the URL cannot be used, or would send a token without TLS over a network.
    pub fn new(
        server: &str,
        namespace: &str,
        token: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> Result<Self, NoAccess> {
        let server: Url = server.parse().map_err(|e| NoAccess(format!("--server {server}: {e}")))?;
        if token.is_some() && !server.is_safe() {
            let shown = server.origin();
            return Err(NoAccess(format!(
                "--server {shown}: a token is sent over https only; write https://"
            )));
        }
        Ok(Self { server, namespace: namespace.to_owned(), token, ca, trust: None })
    }

    /// The token as it is on disk now: the kubelet replaces it before it expires.
    ///
    /// # Errors
    /// If it cannot be read, or cannot be the value of a field.
    pub fn token(&self) -> Result<Option<String>, NoAccess> {
        self.token.as_deref().map(token_in).transpose().map_err(NoAccess)
    }

    /// The certificates that the server may have.
    ///
    /// # Errors
    /// If the file cannot be read. An authority read before stays in use.
    pub fn trust(&mut self) -> Result<Trust, NoAccess> {
        let Some(path) = &self.ca else { return Ok(Trust::default()) };
        if let Some((read, trust)) = &self.trust
            && read.elapsed() < TRUST_FOR
        {
            return Ok(trust.clone());
        }
        match (Trust::file(path), &self.trust) {
            (Ok(trust), _) => {
                self.trust = Some((Instant::now(), trust.clone()));
                Ok(trust)
            }
            (Err(_), Some((_, before))) => Ok(before.clone()),
            (Err(why), None) => Err(NoAccess(format!("the API server's authority: {why}"))),
        }
    }
}

impl fmt::Display for NoAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoAccess {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_when_it_rotates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let access = Access::new("https://10.0.0.1", "weir", Some(path.clone()), None).unwrap();
        for token in ["first\n", "second"] {
            std::fs::write(&path, token).unwrap();
            assert_eq!(access.token().unwrap().as_deref(), Some(token.trim()));
        }
        for wrong in ["", " \n", "a b", "a\r\nx-injected: 1", &"a".repeat(65 << 10)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(access.token().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_never_crosses_a_network_in_clear() {
        let access = |server| Access::new(server, "weir", Some("token".into()), None).map(drop);
        assert!(access("http://10.0.0.1:8080").unwrap_err().to_string().contains("https only"));
        assert!(access("http://127.0.0.1:8080").is_ok() && access("https://10.0.0.1").is_ok());
    }
}
