//! Verdicts of lines that need no translation, or have none.

use super::context::Cx;
use super::model::Proxy;
use super::read::{Line, Section};
use crate::config::Filter;
use crate::ledger::Ledger;
use crate::shared::units::duration;
use crate::yaml::Map;

/// A verdict without a translation.
enum Known {
    /// Weir does so without being told.
    Itself(&'static str),
    Changed(&'static str),
    LeftOut(&'static str),
    /// Why, and the nearest thing.
    Refused(&'static str, &'static str),
}
use Known::{Changed, Itself, LeftOut, Refused};

/// Lines of `global`.
const GLOBAL: &[(&str, Known)] = &[
    ("chroot", LeftOut("the unit file of Weir confines it: dist/weir.service")),
    ("cpu-map", LeftOut("Weir runs a thread for each core")),
    ("cpu-policy", LeftOut("Weir runs a thread for each core")),
    ("daemon", LeftOut("Weir stays in the foreground, as systemd and containers want it")),
    ("description", LeftOut("it is for HAProxy's statistics")),
    ("gid", LeftOut("the unit file of Weir says who runs it")),
    ("group", LeftOut("the unit file of Weir says who runs it")),
    ("h1-case-adjust", Refused("names of fields in other letters", "Weir sends names in lower case")),
    ("hard-stop-after", Changed("shutdown: { drain: 30s } is how long Weir drains")),
    ("insecure-fork-wanted", LeftOut("Weir starts no programs")),
    ("insecure-setuid-wanted", LeftOut("Weir starts no programs")),
    ("log", Itself("Weir writes its access log to stdout as JSON; access_log names a file")),
    ("log-send-hostname", LeftOut("whoever gathers stdout names the machine")),
    ("log-tag", LeftOut("whoever gathers stdout names the program")),
    ("lua-load", Refused("Lua", "the filter ext_proc, or expressions")),
    ("lua-load-per-thread", Refused("Lua", "the filter ext_proc, or expressions")),
    ("lua-prepend-path", Refused("Lua", "the filter ext_proc, or expressions")),
    ("master-worker", LeftOut("an upgrade of Weir needs no second process: `weir upgrade`")),
    ("nbproc", LeftOut("Weir runs a thread for each core")),
    ("node", LeftOut("it is for HAProxy's statistics")),
    ("nosplice", LeftOut("it is for HAProxy's own engine")),
    ("pidfile", LeftOut("systemd knows the process")),
    ("server-state-base", LeftOut("an upgrade of Weir hands over what it knows of endpoints")),
    ("server-state-file", LeftOut("an upgrade of Weir hands over what it knows of endpoints")),
    (
        "setenv",
        Refused(
            "a variable of the environment that is set here",
            "the environment of Weir, or its unit file",
        ),
    ),
    (
        "presetenv",
        Refused(
            "a variable of the environment that is set here",
            "the environment of Weir, or its unit file",
        ),
    ),
    ("set-var", Refused("a variable of the process", "maps, or the value where it is read")),
    ("spread-checks", Itself("Weir spreads its probes")),
    ("ssl-default-bind-ciphers", Itself("for `bind` lines with `ssl`")),
    ("ssl-default-bind-ciphersuites", Itself("for `bind` lines with `ssl`")),
    ("ssl-default-bind-curves", Itself("for `bind` lines with `ssl`")),
    ("ssl-default-server-ciphers", Changed("Weir offers ciphers with forward secrecy only")),
    ("ssl-default-server-ciphersuites", Changed("Weir offers the ciphers of TLS 1.3")),
    ("ssl-default-server-options", Itself("Weir speaks TLS 1.2 and 1.3 to servers")),
    ("ssl-dh-param-file", LeftOut("Weir offers no ciphers that need it")),
    ("ssl-engine", Refused("a module that keeps keys", "keys in files")),
    ("ssl-load-extra-files", LeftOut("Weir names certificate and key")),
    ("ssl-mode-async", LeftOut("it is for HAProxy's own engine")),
    (
        "ssl-server-verify",
        Changed("each upstream says whether certificates are verified; Weir's own default is that they are"),
    ),
    ("stats", LeftOut("`weir status`, `weir endpoint` and the admin listener take the place of the socket")),
    ("strict-limits", LeftOut("it is for HAProxy's own limits")),
    ("uid", LeftOut("the unit file of Weir says who runs it")),
    ("ulimit-n", LeftOut("the unit file of Weir sets it (LimitNOFILE)")),
    ("unix-bind", LeftOut("the folder of a socket says who may reach it")),
    ("user", LeftOut("the unit file of Weir says who runs it")),
    ("zero-warning", LeftOut("`weir check --deny-warnings` does so")),
];

/// Lines of proxies. Those of two words stand before those of one.
const PROXY: &[(&str, Known)] = &[
    ("option abortonclose", Itself("Weir cancels requests of clients that left")),
    (
        "option accept-invalid-http-request",
        Refused("requests that are no valid HTTP", "Weir refuses what is ambiguous"),
    ),
    (
        "option accept-invalid-http-response",
        Refused("answers that are no valid HTTP", "Weir refuses what is ambiguous"),
    ),
    ("option allbackups", Itself("all endpoints of a tier share its load")),
    ("option checkcache", LeftOut("the filter cache stores nothing that is private")),
    ("option clitcpka", LeftOut("Weir's timeouts end idle connections")),
    ("option contstats", LeftOut("Weir's metrics count all along")),
    ("option disable-h2-upgrade", Changed("protocols of the listener says what it speaks")),
    ("option dontlog-normal", Changed("Weir logs all requests; access_log: { when } leaves lines out")),
    ("option dontlognull", Itself("Weir logs requests, not connections")),
    ("option forceclose", Changed("Weir keeps connections to servers")),
    (
        "option h1-case-adjust-bogus-client",
        Refused("names of fields in other letters", "Weir sends names in lower case"),
    ),
    (
        "option h1-case-adjust-bogus-server",
        Refused("names of fields in other letters", "Weir sends names in lower case"),
    ),
    ("option http-buffer-request", Refused("bodies are waited for", "the filter buffer: { request: 1MiB }")),
    ("option http-ignore-probes", Itself("a connection without a request is no error")),
    ("option http-keep-alive", Itself("Weir keeps connections")),
    ("option http-no-delay", Itself("Weir delays nothing")),
    ("option http-pretend-keepalive", LeftOut("Weir keeps connections to servers")),
    ("option http-server-close", Changed("Weir keeps connections to servers: the next request may use them")),
    ("option http-tunnel", LeftOut("Weir's tunnels are upgrades")),
    ("option http-use-htx", Itself("Weir has one engine")),
    ("option http-use-proxy-header", LeftOut("it is for proxies that clients name")),
    ("option http_proxy", Refused("a proxy that clients name", "the filter connect")),
    ("option httpclose", Changed("Weir keeps connections on both sides")),
    ("option httplog", Itself("Weir's access log has a line for each request: docs/reference/access-log.md")),
    (
        "option httpslog",
        Itself("Weir's access log has a line for each request: docs/reference/access-log.md"),
    ),
    ("option idle-close-on-response", Itself("Weir closes idle connections so that no request is lost")),
    ("option independent-streams", LeftOut("Weir watches each direction by itself")),
    ("option log-health-checks", Itself("Weir's log says when an endpoint comes and goes")),
    ("option log-separate-errors", LeftOut("access_log: { when } leaves lines out")),
    ("option logasap", Changed("Weir writes a line when the exchange ends")),
    ("option nolinger", Changed("Weir ends connections so that answers arrive")),
    (
        "option originalto",
        Refused("a field with the address that was connected to", "headers: { request: { set } }"),
    ),
    ("option persist", LeftOut("a client stays at its endpoint as long as that is in rotation")),
    ("option prefer-last-server", LeftOut("Weir's pools take the connection that was used last")),
    ("option socket-stats", LeftOut("Weir's metrics name listeners")),
    ("option splice-auto", Itself("Weir splices where it pays")),
    ("option splice-request", Itself("Weir splices where it pays")),
    ("option splice-response", Itself("Weir splices where it pays")),
    ("option srvtcpka", LeftOut("Weir's timeouts end idle connections")),
    ("option tcp-smart-accept", LeftOut("it is for HAProxy's own engine")),
    ("option tcp-smart-connect", LeftOut("it is for HAProxy's own engine")),
    ("option tcpka", LeftOut("Weir's timeouts end idle connections")),
    ("option tcplog", Itself("Weir's access log has a line for each connection")),
    (
        "option transparent",
        Refused("connections to where the client wanted", "an upstream with its endpoints"),
    ),
    ("timeout client-fin", LeftOut("Weir waits 2 s for a client that closed its side")),
    ("timeout server-fin", LeftOut("Weir closes what a server closed")),
    ("timeout tarpit", LeftOut("Weir refuses at once")),
    ("backlog", LeftOut("Weir takes what the kernel allows")),
    ("capture", LeftOut("captures are for HAProxy's log; access_log of Weir names fields itself")),
    ("clitimeout", Refused("a spelling that HAProxy 2.1 dropped", "timeout client")),
    ("contimeout", Refused("a spelling that HAProxy 2.1 dropped", "timeout connect")),
    ("description", LeftOut("it is for HAProxy's statistics")),
    ("dispatch", Refused("one address without checks", "an upstream with one endpoint")),
    ("email-alert", LeftOut("alerts belong to whoever watches the metrics: docs/guide/observability.md")),
    ("filter", Refused("a filter of HAProxy", "the filters ext_proc, cache and compress")),
    ("force-persist", Refused("clients stay at a server that is down", "upstreams.NAME.sticky")),
    ("fullconn", LeftOut("limits.connections of an upstream is one number")),
    ("grace", LeftOut("shutdown: { delay, drain }")),
    ("hash-balance-factor", Changed("balancer: { hash: { bounded } } bounds the load of a key's endpoint")),
    ("hash-type", Itself("when an endpoint leaves, its keys alone go to others")),
    ("http-reuse", Changed("Weir reuses any idle connection for requests that may be repeated")),
    ("http-send-name-header", Refused("a field with the server's name", "headers: { request: { set } }")),
    ("id", LeftOut("it is for HAProxy's statistics")),
    ("ignore-persist", Refused("requests without the cookie's endpoint", "a second upstream without sticky")),
    ("load-server-state-from-file", LeftOut("an upgrade of Weir hands over what it knows of endpoints")),
    ("log", Itself("Weir writes its access log to stdout as JSON; access_log names a file")),
    ("log-format", Changed("Weir's access log is JSON, or the text of access_log.format")),
    ("log-format-sd", Changed("Weir's access log is JSON, or the text of access_log.format")),
    ("error-log-format", Changed("Weir's access log is JSON, or the text of access_log.format")),
    ("log-tag", LeftOut("whoever gathers stdout names the program")),
    ("max-keep-alive-queue", LeftOut("Weir's pools are per core")),
    (
        "maxconn",
        Changed("limits.connections bounds all clients together; a listener has limits: { connections }"),
    ),
    ("monitor", Refused("a condition on the answer of monitor-uri", "/readyz of the admin listener")),
    (
        "monitor-net",
        Refused("connections of a balancer that are closed at once", "/readyz of the admin listener"),
    ),
    ("option external-check", Refused("a program that checks", "health: { probe: { path } }")),
    ("persist", LeftOut("it is for RDP")),
    (
        "rate-limit",
        Refused("a rate of new connections of a frontend", "limits.per_client, or the filter rate_limit"),
    ),
    ("reqallow", Refused("a rule that HAProxy 2.1 dropped", "http-request allow")),
    ("reqdel", Refused("a rule that HAProxy 2.1 dropped", "headers: { request: { remove } }")),
    ("reqdeny", Refused("a rule that HAProxy 2.1 dropped", "http-request deny, which weir import reads")),
    ("reqidel", Refused("a rule that HAProxy 2.1 dropped", "headers: { request: { remove } }")),
    (
        "reqirep",
        Refused("a rule that HAProxy 2.1 dropped", "http-request replace-path, which weir import reads"),
    ),
    (
        "reqrep",
        Refused("a rule that HAProxy 2.1 dropped", "http-request replace-path, which weir import reads"),
    ),
    ("rspdel", Refused("a rule that HAProxy 2.1 dropped", "headers: { response: { remove } }")),
    ("rspidel", Refused("a rule that HAProxy 2.1 dropped", "headers: { response: { remove } }")),
    ("rspirep", Refused("a rule that HAProxy 2.1 dropped", "headers: { response: { set } }")),
    ("rsprep", Refused("a rule that HAProxy 2.1 dropped", "headers: { response: { set } }")),
    ("server-state-file-name", LeftOut("an upgrade of Weir hands over what it knows of endpoints")),
    ("source", Refused("an address of this machine for connections to servers", "upstreams.NAME.source")),
    ("srvtimeout", Refused("a spelling that HAProxy 2.1 dropped", "timeout server")),
    ("stats", LeftOut("the console of the admin listener and `weir status` show it")),
    (
        "stick",
        Refused(
            "clients that stay at a server by a table",
            "balancer: { hash: { by: address } }, or sticky: a cookie",
        ),
    ),
    ("stick-table", LeftOut("no rule that Weir has reads it")),
    ("tcp-check", Changed("Weir only connects")),
    ("tcp-response", Refused("rules on bytes of servers", "the filters of routes")),
    ("unique-id-format", Changed("Weir's ids are its own")),
    (
        "use-fcgi-app",
        Refused("FastCGI", "upstreams.NAME.protocol: fastcgi with fastcgi: { root } on the route"),
    ),
    (
        "use-server",
        Refused("a server by a condition", "an upstream of its own, and a route with the condition"),
    ),
];

/// Sections that have no place.
const SECTIONS: &[(&str, Known)] = &[
    ("cache", Refused("HAProxy's cache", "stores.NAME with the filter cache")),
    ("fcgi-app", Refused("FastCGI", "upstreams.NAME.protocol: fastcgi with fastcgi: { root } on the route")),
    ("http-errors", LeftOut("no proxy names it")),
    ("log-forward", Refused("a relay of logs", "a log shipper")),
    ("mailers", LeftOut("alerts belong to whoever watches the metrics: docs/guide/observability.md")),
    (
        "peers",
        LeftOut("gateways of Weir share limits by `rate_limit: { store }`, and sticky cookies need no table"),
    ),
    ("program", Refused("a program that HAProxy starts", "a unit of systemd")),
    ("resolvers", Changed("Weir resolves names as their TTL says; `dns: { servers }` names servers")),
    ("ring", LeftOut("it is for HAProxy's logs")),
    ("traces", LeftOut("it is for HAProxy's developers; `weir why` explains single requests")),
    ("userlist", LeftOut("no rule names it")),
];

/// Reads what `global` says for Weir.
pub(super) fn global(cx: &mut Cx<'_, '_, '_>) {
    for line in cx.model.global.clone() {
        match line.key() {
            "ca-base" => cx.ca_base = line.word(1).to_owned(),
            "crt-base" => cx.crt_base = line.word(1).to_owned(),
            "maxconn" => {
                if let Ok(number) = line.word(1).parse::<i64>() {
                    cx.config.more.map_mut("limits").set("connections", number.clamp(1, 10_000_000));
                }
            }
            "nbthread" => {
                if let Ok(number) = line.word(1).parse::<i64>() {
                    cx.config.more.set("workers", number.clamp(1, 1024));
                }
            }
            "ssl-default-bind-options" => {
                match line.after(1, "ssl-min-ver") {
                    Some("TLSv1.2" | "TLSv1.3") | None => {
                        cx.ledger.by_itself(line.piece, "Weir speaks TLS 1.2 and 1.3")
                    }
                    Some(_) => cx.ledger.changed(line.piece, "Weir speaks TLS 1.2 and 1.3 only"),
                }
                continue;
            }
            key if key.starts_with("tune.") || key.starts_with("tune") => {
                cx.ledger.left_out(line.piece, "it tunes HAProxy's own engine");
                continue;
            }
            key => {
                match GLOBAL.iter().find(|(known, _)| *known == key) {
                    Some((_, known)) => judge(cx.ledger, line, known),
                    None if matches!(
                        key,
                        "no" | "profiling.tasks"
                            | "anonkey"
                            | "default-path"
                            | "expose-experimental-directives"
                    ) =>
                    {
                        cx.ledger.left_out(line.piece, "it is for HAProxy's own engine");
                    }
                    None => {}
                }
                continue;
            }
        }
        cx.ledger.same(line.piece);
    }
}

fn judge(ledger: &mut Ledger, line: &Line, known: &Known) {
    match known {
        Itself(why) => ledger.by_itself(line.piece, *why),
        Changed(why) => ledger.changed(line.piece, *why),
        LeftOut(why) => ledger.left_out(line.piece, *why),
        Refused(why, nearest) => ledger.refused(line.piece, *why, *nearest),
    }
}

/// Lines of a frontend that become filters or notes without rules.
pub(super) fn frontend(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, filters: &mut Vec<Filter>) {
    forwarded(cx, proxy);
    if let Some(line) = proxy.one(&["unique-id-header"]) {
        let name = line.word(1).to_ascii_lowercase();
        filters.insert(0, Filter::new("request_id", Map::new().with("header", name)));
        cx.ledger.changed(line.piece, "Weir's ids are its own");
    }
    if let Some(line) = proxy.one(&["timeout", "client"])
        && let Some(ms) = super::bind::time(line.word(2))
        && ms < 1000
    {
        let time = duration(ms);
        cx.ledger.note(format!(
            "`timeout client {}` is {time}: a time without a unit counts milliseconds",
            line.word(2)
        ));
    }
    notes(cx);
}

/// Lines of a backend.
pub(super) fn backend(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>) {
    forwarded(cx, proxy);
}

fn forwarded(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>) {
    let Some(line) = proxy.one(&["option", "forwardfor"]) else {
        cx.ledger.note("Weir tells upstreams about the client in X-Forwarded-For, -Proto, -Host and Forwarded; this config did not everywhere");
        return;
    };
    if let Some(name) = line.after(2, "header").filter(|name| !name.eq_ignore_ascii_case("x-forwarded-for")) {
        let why = format!("the address in `{name}`");
        return cx.ledger.refused(line.piece, why, "headers: { request: { set: { NAME: \"{client}\" } } }");
    }
    let why = "Weir sends the client's address in one line, and what a proxy before it said only if trusted_proxies names \
               that proxy; HAProxy adds a line behind whatever the client claims";
    cx.ledger.changed(line.piece, why);
}

fn notes(cx: &mut Cx<'_, '_, '_>) {
    cx.ledger.note(
        "Weir compares and sends paths in one canonical form: `/%61` is `/a`, and `/x/../a` too; HAProxy compares them as they come",
    );
}

/// Judges what nobody judged: lines of ACLs that were read, lines by the tables, and what no proxy uses.
pub(super) fn judge_rest(cx: &mut Cx<'_, '_, '_>, sections: &[Section]) {
    for section in sections {
        for line in &section.lines {
            let is_user = section.kind == "userlist" && line.key() == "user";
            if is_user || line.key() == "stats" && line.word(1) == "auth" {
                cx.ledger.conceal(line.piece);
            }
        }
        let of_section = SECTIONS.iter().find(|(kind, _)| *kind == section.kind).map(|(_, known)| known);
        if let Some(known) = of_section {
            for line in std::iter::once(&section.head).chain(&section.lines) {
                if cx.ledger.verdict(line.piece).is_none() {
                    judge(cx.ledger, line, known);
                }
            }
            continue;
        }
        for line in &section.lines {
            if section.kind == "global" {
                continue;
            }
            rest(cx, section, line);
        }
        if cx.ledger.verdict(section.head.piece).is_none() {
            cx.ledger.left_out(section.head.piece, "no frontend leads to it");
        }
    }
}

/// Whether an action may answer, or decide who passes: a program, a service, or one that weir import does not know.
pub(super) fn may_refuse(action: &str) -> bool {
    const NEVER: &[&str] = &[
        "add-acl",
        "cache-use",
        "capture",
        "close",
        "del-acl",
        "del-map",
        "do-resolve",
        "early-hint",
        "send-spoe-group",
        "set-bandwidth-limit",
        "set-dst",
        "set-dst-port",
        "set-log-level",
        "set-map",
        "set-mark",
        "set-nice",
        "set-src",
        "set-src-port",
        "set-timeout",
        "set-tos",
        "switch-mode",
        "unset-var",
    ];
    let (name, _) = super::sample::call(action);
    !NEVER.contains(&name) && !["sc-", "set-bc-", "set-fc-"].iter().any(|start| name.starts_with(start))
}

/// Keywords that weir import has no word for, and that keep nobody out.
const NO_GUARDS: &[&str] = &[
    "appsession",
    "bind-process",
    "clitcpka-cnt",
    "clitcpka-idle",
    "clitcpka-intvl",
    "declare",
    "dynamic-cookie-key",
    "external-check",
    "guid",
    "hash-preserve-affinity",
    "log-steps",
    "max-session-srv-conns",
    "reqallow",
    "reqiallow",
    "reqipass",
    "reqpass",
    "srvtcpka-cnt",
    "srvtcpka-idle",
    "srvtcpka-intvl",
    "transparent",
];

/// Whether lines of a proxy may begin with this word.
pub(super) fn is_keyword(word: &str) -> bool {
    let first = |known: &str| known.split(' ').next() == Some(word);
    matches!(word, "mode" | "acl" | "disabled" | "enabled" | "no" | "default")
        || word.starts_with('.')
        || NO_GUARDS.contains(&word)
        || TRANSLATED.contains(&word)
        || PROXY.iter().any(|(known, _)| first(known))
}

fn rest(cx: &mut Cx<'_, '_, '_>, section: &Section, line: &Line) {
    if cx.ledger.verdict(line.piece).is_some() {
        return;
    }
    let taken_back = matches!(line.key(), "no" | "default");
    let (first, second) =
        if taken_back { (line.word(1), line.word(2)) } else { (line.word(0), line.word(1)) };
    if taken_back {
        return cx.ledger.by_itself(line.piece, "what it takes back is not there");
    }
    let two = format!("{first} {second}");
    let found = PROXY
        .iter()
        .find(|(known, _)| *known == two)
        .or_else(|| PROXY.iter().find(|(known, _)| *known == first));
    if let Some((_, known)) = found {
        return judge(cx.ledger, line, known);
    }
    let is_known = TRANSLATED.contains(&first);
    match first {
        "mode" => match second {
            "http" | "tcp" => cx.ledger.same(line.piece),
            _ => cx.ledger.refused(line.piece, format!("the mode `{second}`"), "docs/reference/config.md"),
        },
        "acl" => cx.ledger.left_out(line.piece, "no rule names it"),
        "disabled" => cx.ledger.same(line.piece),
        "enabled" => cx.ledger.same(line.piece),
        _ if is_known && section.kind == "defaults" => {
            cx.ledger.left_out(line.piece, "no proxy that inherits it needs it, or each has its own");
        }
        _ if is_known => {
            cx.ledger.left_out(line.piece, "a line behind it says it anew, or no frontend leads here")
        }
        _ => {}
    }
}

/// Words that are translated elsewhere: a line of them that is not judged was not needed.
const TRANSLATED: &[&str] = &[
    "balance",
    "bind",
    "block",
    "compression",
    "cookie",
    "default-server",
    "default_backend",
    "errorfile",
    "errorfiles",
    "errorloc",
    "errorloc302",
    "errorloc303",
    "http-after-response",
    "http-check",
    "http-error",
    "http-request",
    "http-response",
    "monitor-uri",
    "option",
    "redirect",
    "reqadd",
    "retries",
    "retry-on",
    "rspadd",
    "server",
    "server-template",
    "tcp-request",
    "timeout",
    "unique-id-header",
    "use_backend",
];
