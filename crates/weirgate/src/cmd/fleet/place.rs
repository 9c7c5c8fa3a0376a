//! Where the fleet is stored: from the options, else from the `source` of a config.

use crate::cmd::ConfigArgs;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::path::PathBuf;
use weir_gateway::config::schema::{EtcdSource, FilePath, Secret};
use weir_gateway::config::url::Url;
use weir_gateway::config::{Severity, load};
use weir_gateway::fleet::Console;

/// Which etcd, and which keys in it.
#[derive(Args)]
pub(in crate::cmd) struct Place {
    /// etcd endpoint, such as http://10.0.0.2:2379; may be repeated [default: those of `source` in the config]
    #[arg(long, value_name = "URL")]
    etcd: Vec<Url>,
    /// Prefix of the fleet's keys [default: the config's, else /weir]
    #[arg(long, value_name = "P")]
    prefix: Option<String>,
    /// CA certificates that verify the server's certificate
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// User to log in as; the password comes from the variable ETCD_PASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

impl Place {
    pub(super) fn console(&self) -> Result<Console> {
        let written = self.written()?;
        Console::new(&written).map_err(|e| anyhow!("{e}"))
    }

    fn written(&self) -> Result<EtcdSource> {
        let mut written = if self.etcd.is_empty() { self.of_config()? } else { EtcdSource::default() };
        if !self.etcd.is_empty() {
            written.servers.clone_from(&self.etcd);
        }
        if let Some(prefix) = &self.prefix {
            written.prefix.clone_from(prefix);
        }
        let file = |path: &Option<PathBuf>| path.clone().map(FilePath);
        written.ca = file(&self.ca).or(written.ca);
        written.client_cert = file(&self.cert).or(written.client_cert);
        written.client_key = file(&self.key).or(written.client_key);
        if let Some(user) = &self.user {
            let password = std::env::var("ETCD_PASSWORD");
            let password =
                password.map_err(|_| anyhow!("--user needs a password in the variable ETCD_PASSWORD"))?;
            (written.user, written.password) = (Some(user.clone()), Some(Secret::new(password)));
        }
        Ok(written)
    }

    /// The etcd that the config names as its source.
    fn of_config(&self) -> Result<EtcdSource> {
        let loaded = load(&self.config.source())
            .map_err(|unreadable| anyhow!("{}", unreadable.diagnostics.to_text().trim_end()))?;
        let about_source = |path: &str| path == "source" || path.starts_with("source.");
        let wrong = loaded.diagnostics.iter().any(|d| d.severity == Severity::Error && about_source(&d.path));
        match loaded.config.source.and_then(|source| source.etcd) {
            _ if wrong => bail!("{}", loaded.diagnostics.to_text().trim_end()),
            Some(etcd) => Ok(etcd),
            None => bail!(
                "which fleet? Name its etcd with --etcd URL, or a config that has `source: {{ etcd: .. }}` with -c"
            ),
        }
    }
}
