//! `tls.acme`: certificates that come and renew by themselves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::process::Secret;
use super::values::FilePath;
use crate::units::Duration;
use crate::url::Url;

/// Certificates that are ordered and renewed by themselves (ACME, RFC 8555). Using it, you accept the terms of the certificate authority.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// What certificates are for: hosts, `*.example.com` (by `dns-01` only), addresses. Each has a certificate of its own, so that one name
    /// which fails keeps no other from its renewal. The first one is shown where no name matches or none is sent, unless there are
    /// `certificates`. At least one.
    pub domains: Vec<String>,
    /// Where the authority writes to when something is wrong with the account. Default none.
    #[serde(default)]
    pub email: Option<String>,
    /// The authority: the `https` URL of its directory. Default Let's Encrypt. For experiments, use its staging directory,
    /// `https://acme-staging-v02.api.letsencrypt.org/directory`: the limits of the real one are low.
    #[serde(default)]
    pub directory: Option<Url>,
    /// How control over the names is proven: `tls-alpn-01` in a handshake on port 443, which this listener must be reached by; `http-01` over
    /// cleartext HTTP on port 80, on any listener without `tls`; `dns-01` by a TXT record, see `dns`. Default `tls-alpn-01`, which
    /// needs nothing else.
    #[serde(default)]
    pub challenge: AcmeChallenge,
    /// The folder for account, keys and certificates, made where it is missing. Several gateways may share it: one orders, all show.
    /// Default `/var/lib/weir/acme`.
    #[serde(default = "default_storage")]
    pub storage: FilePath,
    /// Which kind of certificate is ordered, where the authority has several, such as `shortlived` (6 days) of Let's Encrypt. Default: the
    /// authority's own.
    #[serde(default)]
    pub profile: Option<String>,
    /// Authorities, PEM, that the directory's own certificate is verified by. Default: those of the system.
    #[serde(default)]
    pub ca: Option<FilePath>,
    /// The account that the authority gave out by another way, where it wants one.
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

/// An account that an authority knows already (external account binding).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalAccount {
    /// How the authority calls the key.
    pub key_id: String,
    /// The key for HMAC, base64url as the authority gives it. Write `${EAB}` or `${file:PATH}` rather than the key itself.
    pub secret: Secret,
}

/// The command that writes TXT records.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeDns {
    /// The program with its arguments. Added to them are `present` or `cleanup`, the name of the record
    /// (`_acme-challenge.example.com`) and its value. No shell reads them. It ends with 0 when the record is written; `present` may come twice.
    pub exec: Vec<String>,
    /// How long it may take. Default `2m`.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// How long a record takes until all servers of the zone have it. Default `10s`.
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
