//! `tls.acme`: automatic certificates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::process::Secret;
use super::values::FilePath;
use crate::units::Duration;
use crate::url::Url;

/// Orders and renews certificates automatically (ACME, RFC 8555). Using it, you accept the terms of the certificate
/// authority.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// Names to order certificates for: hosts, `*.example.com` (by `dns-01` only), addresses. Each name has its own
    /// certificate, so that a name that fails does not block the renewal of the others. The first one is shown if no
    /// name matches or none is sent, unless there are `certificates`. At least one.
    pub domains: Vec<String>,
    /// Address to which the authority reports problems with the account. Default none.
    #[serde(default)]
    pub email: Option<String>,
    /// The authority: the `https` URL of its directory. Default Let's Encrypt. For experiments, use its staging
    /// directory, `https://acme-staging-v02.api.letsencrypt.org/directory`, because the limits of the real one are
    /// low.
    #[serde(default)]
    pub directory: Option<Url>,
    /// How control over the names is proven. `tls-alpn-01`: in a handshake on port 443, which must reach this
    /// listener. `http-01`: over cleartext HTTP on port 80, on any listener without `tls`. `dns-01`: by a TXT record,
    /// see `dns`. Default `tls-alpn-01`, which needs nothing else.
    #[serde(default)]
    pub challenge: AcmeChallenge,
    /// The folder for account, keys and certificates, created if missing. Several gateways may share it: one orders,
    /// all use the certificates. Default `/var/lib/weir/acme`.
    #[serde(default = "default_storage")]
    pub storage: FilePath,
    /// The kind of certificate to order, if the authority has several, such as `shortlived` (6 days) of Let's
    /// Encrypt. Default: the authority's own.
    #[serde(default)]
    pub profile: Option<String>,
    /// PEM file of authorities that verify the directory's own certificate. Default: those of the system.
    #[serde(default)]
    pub ca: Option<FilePath>,
    /// An account that the authority issued in another way, if it requires one.
    #[serde(default)]
    pub external_account: Option<ExternalAccount>,
    /// How TXT records are written, for `dns-01`.
    #[serde(default)]
    pub dns: Option<AcmeDns>,
}

/// How control over a name is proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AcmeChallenge {
    /// By a TXT record.
    #[serde(rename = "dns-01")]
    Dns,
    /// By an answer over cleartext HTTP.
    #[serde(rename = "http-01")]
    Http,
    /// In a TLS handshake.
    #[default]
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
}

/// An account that the authority already knows (external account binding).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalAccount {
    /// The authority's name for the key.
    pub key_id: String,
    /// The HMAC key, base64url as the authority gives it. Write `${EAB}` or `${file:PATH}` rather than the key
    /// itself.
    pub secret: Secret,
}

/// The command that writes TXT records.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeDns {
    /// The program with its arguments. The gateway appends `present` or `cleanup`, the name of the record
    /// (`_acme-challenge.example.com`) and its value. It uses no shell. The program exits with 0 when the record is
    /// written; `present` may come twice.
    pub exec: Vec<String>,
    /// Timeout of the command. Default `2m`.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// How long a record takes to reach all servers of the zone. Default `10s`.
    #[serde(default = "default_wait")]
    pub wait: Duration,
}

fn default_storage() -> FilePath {
    FilePath(PathBuf::from("/var/lib/weir/acme"))
}

const fn default_timeout() -> Duration {
    Duration::from_secs(120)
}

const fn default_wait() -> Duration {
    Duration::from_secs(10)
}
