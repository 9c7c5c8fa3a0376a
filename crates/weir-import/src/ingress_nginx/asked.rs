//! What the annotations of one Ingress ask for, for a controller that serves Ingresses itself.
//!
//! `weir import` writes whole configs. A controller has routes and upstreams already, whose endpoints it follows; of an
//! Ingress it needs what the annotations change in them. Both read annotations with the same code.

use super::locations::{self, canary_of};
use super::objects::Objects;
use super::settings::Defaults;
use super::{Cx, flag};
use crate::config::{Config, Filter};
use crate::ledger::{Ledger, Verdict};
use crate::shared::filters;
use crate::shared::regex::{Searching, Subject};
use crate::shared::tree;
use crate::shared::users::Users;
use crate::source::SourceFile;
use crate::yaml::{self, Map};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The start of the names of annotations.
pub const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// Most bytes of all annotations that are read; Kubernetes allows 256 KiB.
pub const MAX_BYTES: usize = 256 << 10;

/// What an Ingress asks for in annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Filters of each path, in their order: `{ name: settings }`.
    pub filters: Vec<Value>,
    /// Settings of each upstream.
    pub upstream: serde_json::Map<String, Value>,
    /// Whether paths are regular expressions.
    pub is_regex: bool,
    /// The path that takes the place of the request's, with `$1` for groups.
    pub rewrite: Option<String>,
    /// Whether cleartext is redirected: on hosts with a certificate, and on all.
    pub redirects_tls: bool,
    /// See `redirects_tls`.
    pub forces_tls: bool,
    /// Where `/` is redirected to.
    pub app_root: Option<String>,
    /// Whether the host is also served with `www.` in front, or without it, as a redirect.
    pub from_to_www: bool,
    /// Further hosts.
    pub aliases: Vec<String>,
    /// The share that this Ingress takes of the requests of another one for the same path.
    pub canary: Option<Share>,
    /// Annotations that are not followed, or not quite, with the reason.
    pub findings: Vec<Finding>,
}

/// The share of a canary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Of `total` requests, so many.
    pub weight: u32,
    /// See `weight`; at least 1.
    pub total: u32,
    /// Conditions in the order in which they are asked, and whether the canary gets what meets one.
    pub choices: Vec<(String, bool)>,
}

/// What became of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name, without [`PREFIX`].
    pub name: String,
    /// What is not done, or done in another way.
    pub why: String,
    /// Whether it is not followed at all.
    pub is_refused: bool,
}

/// Annotations that need what only an operator may name: Secrets, other programs, free URLs. Those with a `true` may be
/// what keeps somebody out, so without them the paths stay closed.
const NOT_FOLLOWED: &[(&str, &str, bool)] = &[
    ("affinity", "sessions by a cookie are not followed: the key of the cookie is the operator's", false),
    ("auth-secret", "users are the operator's: `basic_auth` in weir.yaml", true),
    ("auth-tls-secret", "certificates of clients are the operator's: `tls.client` in weir.yaml", true),
    ("auth-type", "users are the operator's: `basic_auth` in weir.yaml", true),
    ("auth-url", "a free URL is not called", true),
    ("custom-headers", "the ConfigMap is not read: name the fields in WeirFilters", false),
    ("default-backend", "a Service for errors is not followed", false),
    ("mirror-target", "a free URL is not called", false),
    ("proxy-ssl-secret", "the Secret is not read: a BackendTLSPolicy names authorities", true),
    ("ssl-passthrough", "TLS that ends at the Service is a TLSRoute", true),
];

/// Reads the annotations of an Ingress: those that begin with [`PREFIX`].
#[must_use]
pub fn asked(namespace: &str, name: &str, annotations: &BTreeMap<String, String>) -> Asked {
    let mut asked = Asked::default();
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    let mut closing: Vec<Filter> = Vec::new();
    let own = annotations.iter().filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?, text)));
    for (at, (key, text)) in own.enumerate() {
        let is_unreadable =
            |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}'));
        let not_followed = NOT_FOLLOWED.iter().find(|(known, ..)| *known == key);
        let why = match not_followed {
            Some((_, why, _)) => (*why).to_owned(),
            None if text.contains(is_unreadable) => "it has control characters".to_owned(),
            None if text.len() > MAX_BYTES || at > 1_000 => "it is too long".to_owned(),
            None => {
                given.insert(key, text);
                continue;
            }
        };
        if not_followed.is_none_or(|(.., closes)| *closes) {
            closing.push(filters::closed(&format!("the annotation {key}: {why}")));
        }
        asked.findings.push(Finding { name: key.to_owned(), why, is_refused: true });
    }
    let keyed: BTreeMap<String, &str> =
        given.iter().map(|(key, text)| (format!("{PREFIX}{key}"), *text)).collect();
    let manifest = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "namespace": namespace, "annotations": keyed },
        "spec": {},
    });
    let file = SourceFile { name: name.into(), text: manifest.to_string().into() };
    let mut ledger = Ledger::default();
    let Ok(documents) = tree::read_all(&file, &mut ledger) else {
        return closed(asked, "the annotations cannot be read");
    };
    let mut objects = Objects::default();
    for document in &documents {
        objects.read(document, &mut ledger);
    }
    let mut ingresses = std::mem::take(&mut objects.ingresses);
    let Some(ingress) = ingresses.first_mut() else { return closed(asked, "the annotations cannot be read") };
    // The controller of the cluster has no settings of nginx.
    let defaults = Defaults { body: 0, ssl_redirect: false, hsts: None, ..Defaults::default() };
    let mut config = Config::default();
    let mut cx = Cx {
        objects: &objects,
        defaults: &defaults,
        config: &mut config,
        ledger: &mut ledger,
        users: Users::default(),
        has_groups: false,
    };
    if flag(ingress.annotations.take("canary"), cx.ledger).unwrap_or(false) {
        let share = canary_of(&mut cx, ingress);
        let choices = share.choices();
        asked.canary = Some(Share {
            weight: u32::try_from(share.weight.min(share.total)).unwrap_or(u32::MAX),
            total: u32::try_from(share.total.max(1)).unwrap_or(u32::MAX),
            choices: choices.into_iter().map(|(is, canary)| (is.as_str().to_owned(), canary)).collect(),
        });
    } else {
        let own = locations::read(&mut cx, ingress);
        closing.extend(own.upstream.closed.iter().map(|why| filters::closed(why)));
        let (cors, before): (Vec<_>, Vec<_>) =
            own.traffic.before.iter().partition(|filter| filter.name == "cors");
        let all = cors.into_iter().chain(&closing).chain(&own.traffic.answer).chain(before);
        let all = all.chain(&own.server).chain(&own.access).chain(&own.traffic.behind);
        asked.filters = all.map(json_of_filter).collect();
        asked.upstream = upstream(&own.upstream.more, &given);
        asked.is_regex = own.uses_regex || own.rewrite.is_some();
        asked.rewrite = own.rewrite.map(|(target, _)| target);
        asked.redirects_tls = own.redirects_tls;
        asked.forces_tls = own.forces_tls;
        asked.app_root = own.app_root;
        asked.from_to_www = own.from_to_www;
        asked.aliases = own.aliases;
    }
    for (key, piece) in ingress.annotations.all() {
        let Some(line) = ledger.line(piece) else {
            let why = "it is not known".to_owned();
            asked.findings.push(Finding { name: key.to_owned(), why, is_refused: true });
            continue;
        };
        let is_refused = line.verdict == Verdict::Refused;
        if is_refused || line.verdict == Verdict::Changed {
            let why = line.why.join("; ");
            asked.findings.push(Finding { name: key.to_owned(), why, is_refused });
        }
    }
    asked
}

fn closed(mut asked: Asked, why: &str) -> Asked {
    asked.filters = vec![json_of_filter(&filters::closed(why))];
    asked
}

/// The settings of upstreams that annotations name; those of nginx's defaults are left out.
fn upstream(more: &Map, given: &BTreeMap<&str, &str>) -> serde_json::Map<String, Value> {
    let because_of = |key: &str| match key {
        "balancer" => &["load-balance", "upstream-hash-by"][..],
        "retry" => &["proxy-next-upstream", "proxy-next-upstream-tries"],
        "timeouts" => &["proxy-connect-timeout", "proxy-read-timeout", "proxy-send-timeout"],
        _ => &[],
    };
    let is_asked = |key: &str| {
        let because = because_of(key);
        because.is_empty() || because.iter().any(|name| given.contains_key(name))
    };
    let asked = more.iter().filter(|(key, _)| is_asked(key));
    asked.map(|(key, value)| (key.to_owned(), json_of(value))).collect()
}

/// The pattern of `match.path` for a path that is a regular expression of nginx: without case, from the beginning.
///
/// # Errors
/// Why Weir cannot express it.
pub fn pattern(path: &str) -> Result<String, String> {
    if path == "/" {
        return Ok("/*".to_owned());
    }
    let read = Searching::read(&format!("^{path}"), true, Subject::Path)?;
    read.compiled()?;
    Ok(format!("~{}", read.whole()))
}

/// The setting `rewrite.path` for a `rewrite-target`, with the groups of this pattern.
///
/// # Errors
/// What Weir cannot express.
pub fn rewrite(target: &str, pattern: &str) -> Result<String, &'static str> {
    locations::target_of(target, locations::groups_of(pattern.strip_prefix('~')))
}

/// A filter as JSON. One that closes says nothing of an import.
fn json_of_filter(filter: &Filter) -> Value {
    match filters::closes(filter) {
        true => json!({ "respond": { "status": 503 } }),
        false => json_of(&filter.to_value()),
    }
}

/// A value as JSON: what Weir reads, without comments.
fn json_of(value: &yaml::Value) -> Value {
    use yaml::Value as Yaml;
    match value {
        Yaml::Text(text) | Yaml::Literal(text) | Yaml::LiteralBlock(text) | Yaml::Block(text) => json!(text),
        // No annotation makes one: it would name a variable of the environment.
        Yaml::WithVariables(_) => Value::Null,
        Yaml::Number(number) => json!(number),
        Yaml::Plain(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Yaml::Bool(value) => json!(value),
        Yaml::List(all) => all.iter().map(json_of).collect(),
        Yaml::Map(map) => map.iter().map(|(key, value)| (key.to_owned(), json_of(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Asked {
        let annotations = given.iter().map(|(key, text)| (format!("{PREFIX}{key}"), (*text).to_owned()));
        asked("shop", "cart", &annotations.collect())
    }

    fn names(asked: &Asked) -> Vec<String> {
        let name = |filter: &Value| filter.as_object().unwrap().keys().next().unwrap().clone();
        asked.filters.iter().map(name).collect()
    }

    #[test]
    fn without_annotations_nothing_is_asked() {
        assert_eq!(read(&[]), Asked::default());
        let other = [("example.com/rewrite-target".to_owned(), "/".to_owned())].into();
        assert_eq!(asked("shop", "cart", &other), Asked::default());
    }

    #[test]
    fn what_weir_has_is_translated() {
        let asked = read(&[
            ("enable-cors", "true"),
            ("limit-rps", "5"),
            ("whitelist-source-range", "10.0.0.0/8"),
            ("proxy-body-size", "8m"),
            ("proxy-read-timeout", "10"),
            ("backend-protocol", "GRPC"),
        ]);
        assert_eq!(names(&asked), ["cors", "rate_limit", "ip", "body_limit"]);
        assert_eq!(asked.upstream["protocol"], "h2c");
        assert_eq!(asked.upstream["timeouts"]["response"], "10s");
        assert_eq!(asked.upstream.len(), 2, "defaults of nginx are not Weir's: {:?}", asked.upstream);
        assert_eq!(asked.filters[2], json!({ "ip": { "allow": ["10.0.0.0/8"] } }));
    }

    #[test]
    fn what_may_keep_somebody_out_closes() {
        for (key, text) in [
            ("auth-url", "http://169.254.169.254/"),
            ("auth-type", "basic"),
            ("auth-secret", "other/users"),
            ("auth-tls-secret", "kube-system/ca"),
            ("configuration-snippet", "deny all;"),
            ("server-snippet", "return 403;"),
            ("enable-modsecurity", "true"),
            ("whitelist-source-range", "nonsense"),
            ("some-new-auth", "on"),
            ("rewrite-target", "/\u{1}"),
            ("limit-rps", "many"),
            ("backend-protocol", "FCGI"),
        ] {
            let asked = read(&[(key, text)]);
            let closes = asked.filters.iter().any(|filter| filter["respond"]["status"] == 503);
            assert!(closes, "{key}: {:?}", asked.filters);
            assert!(asked.findings.iter().any(|finding| finding.name == key), "{key}: {:?}", asked.findings);
        }
    }

    #[test]
    fn no_text_becomes_a_variable_an_expression_or_a_url_to_call() {
        let evil = "${file:/var/run/secrets/kubernetes.io/serviceaccount/token}{= env }";
        for key in
            ["upstream-vhost", "x-forwarded-prefix", "app-root", "permanent-redirect", "cors-allow-origin"]
        {
            let asked = read(&[("enable-cors", "true"), (key, evil)]);
            let text = json!([asked.filters, asked.upstream]).to_string();
            assert!(!text.contains("{= env") || text.contains("{{= env"), "{key}: {text}");
        }
        for key in ["mirror-target", "auth-url", "default-backend"] {
            let asked = read(&[(key, "http://evil.example/")]);
            assert!(!json!([asked.filters, asked.upstream]).to_string().contains("evil"), "{key}");
        }
    }

    #[test]
    fn a_canary_has_its_share_and_choices() {
        let asked = read(&[
            ("canary", "true"),
            ("canary-weight", "30"),
            ("canary-by-header", "X-Canary"),
            ("canary-by-cookie", "try"),
        ]);
        let share = asked.canary.unwrap();
        assert_eq!((share.weight, share.total), (30, 100));
        let whether: Vec<bool> = share.choices.iter().map(|(_, canary)| *canary).collect();
        assert_eq!(whether, [true, false, true, false]);
        assert_eq!(share.choices[0].0, r#"request.headers["x-canary"] == "always""#);
    }

    #[test]
    fn patterns_and_rewrites_are_those_of_weir_import() {
        assert_eq!(pattern("/").as_deref(), Ok("/*"));
        let path = pattern("/api(/|$)(.*)").unwrap();
        assert!(path.starts_with("~(?i)"), "{path}");
        assert_eq!(rewrite("/$2", &path).as_deref(), Ok("/{2}"));
        assert_eq!(rewrite("/$7/a{b", &path).as_deref(), Ok("//a{{b"));
        assert!(rewrite("/$http_x", &path).is_err());
        assert!(rewrite("http://x/", &path).is_err());
        assert!(pattern("/(?=a)").is_err());
    }
}
