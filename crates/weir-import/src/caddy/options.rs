//! The global options of a Caddyfile.

use super::file::each;
use super::order::Order;
use super::syntax::Segment;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::units;
use crate::yaml::Map;

/// What the global options say.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) order: Order,
    pub(super) http_port: String,
    pub(super) https_port: String,
    pub(super) email: Option<String>,
    pub(super) directory: Option<String>,
    /// Whether sites get certificates and TLS by themselves.
    pub(super) auto_https: bool,
    /// Whether they are redirected to TLS.
    pub(super) redirects: bool,
    pub(super) local_certs: bool,
    pub(super) default_bind: Vec<String>,
    /// `timeouts` of listeners.
    pub(super) timeouts: Map,
    pub(super) proxy_protocol: bool,
    pub(super) h2c: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: Order::default(),
            http_port: "80".to_owned(),
            https_port: "443".to_owned(),
            email: None,
            directory: None,
            auto_https: true,
            redirects: true,
            local_certs: false,
            default_bind: Vec::new(),
            timeouts: Map::new(),
            proxy_protocol: false,
            h2c: false,
        }
    }
}

/// Reads them.
pub(super) fn read(segments: &[Segment], config: &mut Config, ledger: &mut Ledger) -> Options {
    let mut options = Options::default();
    for segment in segments {
        let args = segment.args();
        let first = args.first().copied().unwrap_or_default();
        let piece = segment.piece;
        ledger.same(piece);
        match segment.name() {
            "order" => {
                if !options.order.change(&args) {
                    ledger.refused(piece, "the order names a directive that has no place", "a `route` block");
                }
            }
            "http_port" => first.clone_into(&mut options.http_port),
            "https_port" => first.clone_into(&mut options.https_port),
            "email" => options.email = Some(first.to_owned()),
            "acme_ca" => options.directory = Some(first.to_owned()),
            "auto_https" => match first {
                "off" => (options.auto_https, options.redirects) = (false, false),
                "disable_redirects" => options.redirects = false,
                "disable_certs" => {
                    let why = "Weir serves TLS with certificates or ACME, never without either";
                    ledger.refused(piece, why, "`tls.certificates` of the listener");
                }
                _ => ledger.by_itself(piece, "certificates that are there are used"),
            },
            "local_certs" => options.local_certs = true,
            "default_bind" => options.default_bind = args.iter().map(|arg| (*arg).to_owned()).collect(),
            "admin" => admin(segment, config, ledger),
            "debug" => {
                config.more.set("log", Map::new().with("level", "debug"));
            }
            "log" => {
                ledger.changed(piece, "Weir's log goes to stderr as text; `log` has its settings");
                segment.inner().iter().for_each(|line| {
                    each(line, &mut |line| ledger.left_out(line.piece, "see the line of the block"));
                });
            }
            "grace_period" => match units::read_duration(first, 1) {
                Some(time) => config.more.set("shutdown", Map::new().with("drain", units::duration(time))),
                None => ledger.refused(piece, "no duration", "a duration such as 30s"),
            },
            "shutdown_delay" => match units::read_duration(first, 1) {
                Some(time) => {
                    let map = config.more.map_mut("shutdown");
                    map.set("delay", units::duration(time));
                }
                None => ledger.refused(piece, "no duration", "a duration such as 5s"),
            },
            "servers" => servers(segment, &mut options, config, ledger),
            "skip_install_trust"
            | "persist_config"
            | "ocsp_stapling"
            | "ocsp_interval"
            | "renew_interval"
            | "storage_clean_interval"
            | "storage_check"
            | "cert_lifetime"
            | "preferred_chains"
            | "key_type"
            | "metrics"
            | "fallback_sni"
            | "default_sni" => {
                let why = match segment.name() {
                    "metrics" => "Weir always counts",
                    "default_sni" | "fallback_sni" => "Weir shows the first certificate where no name fits",
                    _ => "it concerns how Caddy keeps certificates and its config",
                };
                ledger.left_out(piece, why);
                segment
                    .inner()
                    .iter()
                    .for_each(|line| each(line, &mut |line| ledger.left_out(line.piece, why)));
            }
            "storage" => {
                let why = "Weir keeps certificates in `tls.acme.storage`, by default /var/lib/weir/acme";
                ledger.changed(piece, format!("{why}; it orders new ones"));
                segment
                    .inner()
                    .iter()
                    .for_each(|line| each(line, &mut |line| ledger.left_out(line.piece, why)));
            }
            name => {
                let why = format!("Weir has nothing for the global option `{name}`");
                ledger.refused(piece, why, "docs/reference/config.md");
                segment.inner().iter().for_each(|line| {
                    each(line, &mut |line| {
                        ledger.refused(line.piece, "it belongs to a line that Weir refuses", "")
                    });
                });
            }
        }
    }
    options
}

fn admin(segment: &Segment, config: &mut Config, ledger: &mut Ledger) {
    let args = segment.args();
    match args.first().copied() {
        Some("off") | None => {
            ledger.by_itself(segment.piece, "Weir's admin listener has its own address: `admin`")
        }
        Some(address) => {
            let address = address
                .strip_prefix(':')
                .map_or_else(|| address.to_owned(), |port| format!("127.0.0.1:{port}"));
            let is_local = ["localhost:", "127.", "[::1]"].iter().any(|start| address.starts_with(start));
            if is_local {
                config
                    .more
                    .set("admin", Map::new().with("address", address.replace("localhost:", "127.0.0.1:")));
                ledger.changed(segment.piece, "Weir's admin API is another one: docs/reference/admin-api.md");
            } else {
                let why = "the admin listener needs a token where others reach it";
                ledger.refused(segment.piece, why, "`admin: { address, token }`");
            }
        }
    }
    for line in segment.inner() {
        ledger.left_out(line.piece, "Weir's admin listener has its own rules: `admin.hosts`");
    }
}

fn servers(segment: &Segment, options: &mut Options, config: &mut Config, ledger: &mut Ledger) {
    if !segment.args().is_empty() {
        ledger.changed(segment.piece, "Weir sets it for all listeners");
    }
    for line in segment.inner() {
        let args = line.args();
        ledger.same(line.piece);
        match line.name() {
            "trusted_proxies" => match args.split_first() {
                Some((&"static", nets)) => {
                    let mut all: Vec<String> = Vec::new();
                    for net in nets {
                        match *net {
                            "private_ranges" => {
                                all.extend(
                                    [
                                        "10.0.0.0/8",
                                        "172.16.0.0/12",
                                        "192.168.0.0/16",
                                        "127.0.0.0/8",
                                        "fd00::/8",
                                        "::1",
                                    ]
                                    .map(str::to_owned),
                                );
                            }
                            net => all.push(net.to_owned()),
                        }
                    }
                    config.more.set("trusted_proxies", all);
                }
                _ => ledger.refused(
                    line.piece,
                    "Weir trusts networks that are written out",
                    "`trusted_proxies`",
                ),
            },
            "trusted_proxies_strict" => {
                ledger.by_itself(line.piece, "Weir reads X-Forwarded-For from its end")
            }
            "client_ip_headers" => {
                let usual = args.iter().all(|name| name.eq_ignore_ascii_case("x-forwarded-for"));
                if !usual {
                    let why =
                        "Weir reads the client's address from X-Forwarded-For and the PROXY header only";
                    ledger.refused(line.piece, why, "`trusted_proxies`");
                }
            }
            "timeouts" => {
                for inner in line.inner() {
                    let time = inner
                        .args()
                        .first()
                        .and_then(|text| units::read_duration(text, 1))
                        .map(units::duration);
                    let key = match inner.name() {
                        "read_header" => "head",
                        "read_body" => "body",
                        "idle" => "keepalive",
                        _ => {
                            ledger.left_out(inner.piece, "Weir drops a client that reads nothing for 60 s");
                            continue;
                        }
                    };
                    ledger.same(inner.piece);
                    options.timeouts.set_some(key, time);
                }
            }
            "max_header_size" => match args.first().and_then(|size| super::values::size_of(size)) {
                Some(bytes) => config.more.map_mut("limits").set("header_bytes", units::size(bytes)),
                None => ledger.refused(line.piece, "no size", "a size such as 32KiB"),
            },
            "listener_wrappers" => {
                for inner in line.inner() {
                    match inner.name() {
                        "proxy_protocol" => {
                            options.proxy_protocol = true;
                            ledger.changed(
                                inner.piece,
                                "every connection must begin with the PROXY header, from `trusted_proxies`",
                            );
                            each(inner, &mut |line| {
                                if line.piece != inner.piece {
                                    ledger.changed(line.piece, "the networks belong into `trusted_proxies`");
                                }
                            });
                        }
                        "tls" | "http_redirect" => {
                            ledger.by_itself(inner.piece, "Weir has one order of these")
                        }
                        name => ledger.refused(
                            inner.piece,
                            format!("Weir knows no wrapper `{name}`"),
                            "`listeners.NAME`",
                        ),
                    }
                }
            }
            "protocols" => {
                options.h2c = args.contains(&"h2c");
                if args.contains(&"h3") {
                    ledger.changed(line.piece, "Weir speaks HTTP/1.1 and HTTP/2 to clients");
                }
            }
            "protocol" => {
                ledger.changed(line.piece, "`listeners.NAME.protocols` says what Weir speaks");
                line.inner()
                    .iter()
                    .for_each(|inner| ledger.left_out(inner.piece, "see the line of the block"));
            }
            "strict_sni_host" => ledger.refused(
                line.piece,
                "Weir does not compare the name of the handshake with the Host",
                "`match.when: client.sni == request.host`",
            ),
            "metrics" | "log_credentials" | "keepalive_interval" | "enable_full_duplex" | "name" => {
                ledger.left_out(line.piece, "Weir needs no such setting");
            }
            name => ledger.refused(
                line.piece,
                format!("Weir has nothing for `{name}` of servers"),
                "`listeners.NAME`",
            ),
        }
    }
}
