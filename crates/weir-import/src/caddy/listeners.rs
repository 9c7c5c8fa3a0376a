//! Listeners with their certificates, as sites ask for them.

use super::address::Address;
use super::file::each;
use super::model::Listen;
use super::syntax::Segment;
use crate::config::{Config, Listener};
use crate::ledger::{Ledger, Piece};
use crate::shared::tls as policy;
use crate::yaml::{Map, Value};
use std::collections::BTreeMap;

/// Where certificates belong that Weir cannot make.
const FOLDER: &str = "/etc/weir/certs";

/// What `tls` of a site says.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub(super) cert: Option<(String, String)>,
    pub(super) email: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) is_internal: bool,
    pub(super) min_version: Option<&'static str>,
    pub(super) client_auth: Map,
    /// Why Weir cannot order a certificate, if so.
    pub(super) no_acme: Option<String>,
    pub(super) external_account: Map,
    pub(super) external_ca: Option<String>,
    /// `ciphers` and `curves`.
    pub(super) policy: Map,
}

/// All listeners, by address.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) secure: BTreeMap<String, Secure>,
    pub(super) timeouts: Map,
    pub(super) proxy_protocol: bool,
}

/// A listener that speaks TLS.
#[derive(Debug, Default)]
pub(super) struct Secure {
    certificates: Vec<(String, String)>,
    domains: Vec<String>,
    /// Hosts whose certificates a person must bring.
    automatic: Vec<String>,
    tls: Tls,
}

impl Plan {
    /// Adds what a site needs at a listener.
    pub(super) fn add(
        &mut self,
        listen: &Listen,
        address: &Address,
        tls: &Tls,
        piece: Piece,
        ledger: &mut Ledger,
    ) {
        let secure = self.secure.entry(listen.address.clone()).or_default();
        let known = &mut secure.tls;
        if !tls.client_auth.is_empty() {
            if known.client_auth.is_empty() && !secure.automatic.is_empty()
                || !known.client_auth.is_empty() && known.client_auth != tls.client_auth
            {
                let why = "Weir asks all clients of a listener for certificates, not those of one site";
                ledger.changed(piece, why);
            }
            known.client_auth = tls.client_auth.clone();
        }
        known.email = known.email.take().or_else(|| tls.email.clone());
        known.directory = known.directory.take().or_else(|| tls.directory.clone());
        known.min_version = known.min_version.or(tls.min_version);
        if known.policy.is_empty() {
            known.policy = tls.policy.clone();
        } else if !tls.policy.is_empty() && known.policy != tls.policy {
            ledger.changed(
                piece,
                "a listener has one policy for its ciphers and curves: that of its first site",
            );
        }
        known.external_ca = known.external_ca.take().or_else(|| tls.external_ca.clone());
        if known.external_account.is_empty() {
            known.external_account = tls.external_account.clone();
        }
        if !secure.automatic.contains(&address.host) {
            secure.automatic.push(address.host.clone());
        }
        if let Some(pair) = &tls.cert {
            if !secure.certificates.contains(pair) {
                secure.certificates.push(pair.clone());
            }
            return;
        }
        let stand_in = |secure: &mut Secure| {
            let name = crate::config::name_of(address.host.trim_start_matches("*."));
            let name = if address.host.is_empty() { "default".to_owned() } else { name };
            let pair = (format!("{FOLDER}/{name}.pem"), format!("{FOLDER}/{name}.key"));
            if !secure.certificates.contains(&pair) {
                secure.certificates.push(pair);
            }
        };
        let bring = "a certificate and its key, in `tls.certificates` of the listener";
        if tls.is_internal || address.is_internal() {
            let why = "Caddy has an authority of its own for this name; Weir needs a certificate";
            ledger.refused(piece, why, bring);
            stand_in(secure);
        } else if address.host.is_empty() {
            ledger.refused(piece, "a listener for any host needs a certificate", bring);
            stand_in(secure);
        } else if let Some(why) = &tls.no_acme {
            ledger.refused(piece, why.clone(), bring);
            stand_in(secure);
        } else if address.host.contains('*') {
            let why = "a certificate for a wildcard needs the challenge dns-01";
            ledger.refused(piece, why, "`tls.acme` with `challenge: dns-01` and `dns: { exec }`");
            stand_in(secure);
        } else if !secure.domains.contains(&address.host) {
            secure.domains.push(address.host.clone());
        }
    }

    /// Whether clients without TLS are redirected to a host.
    pub(super) fn has_automatic(&self, listen: &Listen, host: &str) -> bool {
        self.secure
            .get(&listen.address)
            .is_some_and(|secure| secure.automatic.iter().any(|known| known == host))
    }

    /// Adds the listeners. Their names by address.
    pub(super) fn listeners(&self, all: &[Listen], config: &mut Config) -> BTreeMap<Listen, String> {
        let mut names = BTreeMap::new();
        for listen in all {
            let port = listen.address.rsplit_once(':').map_or("", |(_, port)| port);
            let wish = match (port, listen.tls) {
                ("80", false) => "web".to_owned(),
                ("443", true) => "secure".to_owned(),
                _ if listen.address.starts_with("unix:") => "socket".to_owned(),
                (port, _) => format!(
                    "web-{}",
                    port.replace([crate::yaml::VARIABLE_BEGIN, crate::yaml::VARIABLE_END], "")
                ),
            };
            let mut more = Map::new();
            if let Some(secure) = self.secure.get(&listen.address).filter(|_| listen.tls) {
                more.set("tls", secure.map());
            }
            if !self.timeouts.is_empty() {
                more.set("timeouts", self.timeouts.clone());
            }
            if self.proxy_protocol {
                more.set("proxy_protocol", true);
            }
            let listener = Listener { comment: Vec::new(), address: Some(listen.address.clone()), more };
            names.insert(listen.clone(), config.listeners.add(&wish, listener));
        }
        names
    }
}

impl Secure {
    fn map(&self) -> Map {
        let mut map = Map::new();
        if !self.certificates.is_empty() {
            let pair = |(cert, key): &(String, String)| {
                Value::Map(Map::new().with("cert", cert.clone()).with("key", key.clone()))
            };
            map.set("certificates", self.certificates.iter().map(pair).collect::<Vec<Value>>());
        }
        if !self.domains.is_empty() {
            let mut acme = Map::new().with("domains", self.domains.clone());
            acme.set_some("email", self.tls.email.clone());
            acme.set_some("directory", self.tls.directory.clone());
            acme.set_some("ca", self.tls.external_ca.clone());
            if !self.tls.external_account.is_empty() {
                acme.set("external_account", self.tls.external_account.clone());
            }
            map.set("acme", acme);
        }
        map.set_some("min_version", self.tls.min_version);
        self.tls.policy.iter().for_each(|(key, value)| map.set(key, value.clone()));
        if !self.tls.client_auth.is_empty() {
            map.set("client_auth", self.tls.client_auth.clone());
        }
        map
    }
}

/// Reads `tls` of a site.
pub(super) fn read_tls(segment: &Segment, tls: &mut Tls, ledger: &mut Ledger) {
    let args = segment.args();
    ledger.same(segment.piece);
    match *args {
        ["internal"] => tls.is_internal = true,
        [email] if email.contains('@') => tls.email = Some(email.to_owned()),
        [cert, key] => tls.cert = Some((cert.to_owned(), key.to_owned())),
        [] => {}
        _ => ledger.refused(segment.piece, "`tls` with these words is not known", "`listeners.NAME.tls`"),
    }
    for line in segment.inner() {
        line_of(line, tls, ledger);
    }
}

fn line_of(line: &Segment, tls: &mut Tls, ledger: &mut Ledger) {
    let args = line.args();
    ledger.same(line.piece);
    match (line.name(), &*args) {
        ("protocols", [least, ..]) => {
            tls.min_version = (*least == "tls1.3").then_some("1.3");
            if args.get(1) == Some(&"tls1.2") {
                ledger.changed(line.piece, "Weir always accepts TLS 1.3");
            }
        }
        ("ciphers", names) => {
            policy::ciphers(names.iter().copied(), policy::Of::Tls12, &mut tls.policy, line.piece, ledger);
        }
        ("curves", names) => policy::curves(names.iter().copied(), &mut tls.policy, line.piece, ledger),
        ("alpn", _) => ledger.changed(line.piece, "`listeners.NAME.protocols` says what Weir speaks"),
        ("key_type", _) => ledger.left_out(line.piece, "Weir orders certificates with ECDSA keys"),
        ("reuse_private_keys", _) => ledger.left_out(line.piece, "Weir makes a new key for each certificate"),
        ("ca", [url]) => tls.directory = Some((*url).to_owned()),
        ("ca_root", [file]) => tls.external_ca = Some((*file).to_owned()),
        ("eab", [id, secret]) => {
            ledger.conceal(line.piece);
            tls.external_account = Map::new().with("key_id", *id).with("secret", *secret);
        }
        ("issuer", ["internal", ..]) => {
            tls.is_internal = true;
            line.inner()
                .iter()
                .for_each(|inner| ledger.left_out(inner.piece, "Weir has no authority of its own"));
        }
        ("issuer", ["acme", ..]) => {
            if let Some(directory) = args.get(1) {
                tls.directory = Some((*directory).to_owned());
            }
            for inner in line.inner() {
                let first = inner.args().first().copied().unwrap_or_default().to_owned();
                ledger.same(inner.piece);
                match inner.name() {
                    "dir" => tls.directory = Some(first),
                    "email" => tls.email = Some(first),
                    "disable_tlsalpn_challenge"
                    | "disable_http_challenge"
                    | "timeout"
                    | "preferred_chains" => {
                        ledger.left_out(inner.piece, "`tls.acme.challenge` says how Weir proves names");
                    }
                    _ => line_of(inner, tls, ledger),
                }
            }
        }
        ("issuer", ["zerossl", ..]) => {
            ledger.changed(line.piece, "Weir orders from Let's Encrypt, unless `directory` says another");
        }
        ("dns", _) => {
            let why = "Weir writes DNS records by a command of yours";
            tls.no_acme = Some(why.to_owned());
            ledger.conceal(line.piece);
            ledger.refused(line.piece, why, "`tls.acme: { challenge: dns-01, dns: { exec: [...] } }`");
            line.inner().iter().for_each(|inner| {
                each(inner, &mut |inner| {
                    ledger.conceal(inner.piece);
                    ledger.left_out(inner.piece, "it belongs to the DNS provider");
                });
            });
        }
        (
            "resolvers"
            | "propagation_timeout"
            | "propagation_delay"
            | "dns_ttl"
            | "dns_challenge_override_domain",
            _,
        ) => {
            ledger.left_out(line.piece, "it belongs to the challenge dns-01: `tls.acme.dns.wait`");
        }
        ("on_demand", _) => {
            let why = "Weir orders certificates for names that are written down";
            tls.no_acme = Some(why.to_owned());
            ledger.refused(line.piece, why, "`tls.acme.domains`");
        }
        ("client_auth", _) => {
            for inner in line.inner() {
                let first = inner.args().last().copied().unwrap_or_default().to_owned();
                ledger.same(inner.piece);
                match inner.name() {
                    "mode" => {
                        let mode = match &*first {
                            "require_and_verify" => "required",
                            "verify_if_given" => "optional",
                            other => {
                                let why = format!(
                                    "Weir verifies every certificate that it asks for; not so `{other}`"
                                );
                                ledger.changed(inner.piece, why);
                                if other == "require" { "required" } else { "optional" }
                            }
                        };
                        tls.client_auth.set("mode", mode);
                    }
                    "trusted_ca_cert_file" | "trust_pool" => tls.client_auth.set("ca", first),
                    name => {
                        let why = format!("Weir has nothing for `{name}` of client_auth");
                        ledger.refused(
                            inner.piece,
                            why,
                            "`tls.client_auth: { ca, mode }`, and the filter `mtls_auth`",
                        );
                        inner
                            .inner()
                            .iter()
                            .for_each(|line| ledger.left_out(line.piece, "it belongs to the line before"));
                    }
                }
            }
            if tls.client_auth.get("ca").is_none() {
                // Whoever was kept out must stay out.
                tls.client_auth.set("ca", format!("{FOLDER}/clients.pem"));
                let why = "the authority of the clients is not in a file";
                ledger.refused(line.piece, why, "`tls.client_auth.ca`, a PEM file");
            }
        }
        (name, _) => {
            ledger.refused(
                line.piece,
                format!("Weir has nothing for `{name}` of tls"),
                "`listeners.NAME.tls`",
            );
            line.inner().iter().for_each(|inner| {
                each(inner, &mut |inner| {
                    ledger.refused(inner.piece, "it belongs to a line that Weir refuses", "")
                });
            });
        }
    }
}
