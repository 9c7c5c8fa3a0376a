//! Recognises a config written for another proxy, so that we can say so instead of reporting its YAML. We guess from
//! the shape of lines and from words that only that proxy uses, and only for text that is not a valid config of ours.

use super::diagnostic::Diagnostic;
use super::node::Node;

/// Number of lines examined. The head of a file is enough.
const LOOK: usize = 200;

/// A foreign syntax, recognised by the words that begin its lines.
struct Syntax {
    /// The proxy, as a message names it.
    owner: &'static str,
    words: &'static [&'static str],
    /// The required shape of a line with such a word.
    shape: fn(&str) -> bool,
    /// Whether a line counts by its shape alone.
    own: fn(&str) -> bool,
}

const SYNTAXES: &[Syntax] = &[
    Syntax {
        owner: "nginx's",
        words: &[
            "access_log",
            "error_log",
            "events",
            "http",
            "include",
            "listen",
            "location",
            "proxy_pass",
            "proxy_set_header",
            "root",
            "server",
            "server_name",
            "upstream",
            "user",
            "worker_processes",
        ],
        shape: |line| line.ends_with([';', '{', '}']),
        own: |_| false,
    },
    Syntax {
        owner: "Caddy's",
        words: &[
            "basic_auth",
            "email",
            "encode",
            "file_server",
            "handle",
            "handle_path",
            "header",
            "import",
            "log",
            "redir",
            "respond",
            "reverse_proxy",
            "rewrite",
            "root",
            "route",
            "tls",
        ],
        shape: |line| {
            !line.contains(": ")
                && !line.ends_with([';', ':'])
                && (line.contains(' ') || line == "file_server")
        },
        // The addresses of a site: `example.com, www.example.com {`.
        own: |line| {
            let sites = line.strip_suffix('{').map_or("", str::trim_end);
            let is_site =
                |site: &str| site.contains(['.', ':']) && !site.contains([' ', '"', '\'', '{', '[', '/']);
            sites.split(", ").all(is_site) && !sites.ends_with(':')
        },
    },
    Syntax {
        owner: "HAProxy's",
        words: &[
            "backend",
            "bind",
            "default_backend",
            "defaults",
            "frontend",
            "global",
            "server",
            "use_backend",
        ],
        shape: |line| !line.contains(['{', ';']) && !line.ends_with(':'),
        own: |_| false,
    },
    Syntax {
        owner: "TOML",
        words: &[],
        shape: |_| false,
        // `[listeners.web]`, `[[routes]]`, `key = value`.
        own: |line| {
            let is_key = |key: &str| {
                !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.\"".contains(c))
            };
            let table = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
            let table =
                table.map(|table| table.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(table));
            table.is_some_and(is_key) || line.split_once('=').is_some_and(|(key, _)| is_key(key.trim_end()))
        },
    },
];

/// Top-level keys of foreign YAML files. All of the keys must be present.
const TOPS: &[(&str, &[&str])] = &[
    ("Envoy's", &["static_resources"]),
    ("Envoy's", &["dynamic_resources"]),
    ("Kong's", &["_format_version"]),
    ("Kubernetes'", &["apiVersion", "kind"]),
    ("Traefik's", &["entryPoints"]),
    ("Traefik's", &["http.routers"]),
];

/// The smallest complete config of ours.
const EXAMPLE: &str = "Weir reads YAML, such as: `listeners: { web: { address: 0.0.0.0:8080 } }`, \
    `upstreams: { app: { endpoints: [ 127.0.0.1:8000 ] } }`, `routes: { all: { upstream: app } }`, each on a line of its own";

/// The diagnostic for a pasted file of another proxy, if `text` looks like one.
pub(super) fn recognise(text: &str) -> Option<Diagnostic> {
    let lines =
        text.lines().map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.take(LOOK).collect();
    let score = |syntax: &Syntax| lines.iter().filter(|line| syntax.owns(line)).count();
    let (best, owner) =
        SYNTAXES.iter().map(|syntax| (score(syntax), syntax.owner)).max_by_key(|(score, _)| *score)?;
    // A third of the lines is enough: the rest is arguments, closing braces and words we do not list.
    let enough = best > 0 && best * 3 >= lines.len();
    enough.then(|| {
        Diagnostic::error("foreign-syntax", format!("this is {owner} syntax, not Weir's")).hint(EXAMPLE)
    })
}

/// As [`recognise`], for a file that is valid YAML.
pub(super) fn recognise_keys(root: &Node) -> Option<Diagnostic> {
    let is_ours = ["listeners", "routes", "upstreams"].iter().any(|key| root.get(key).is_some_and(is_named));
    let (owner, _) =
        TOPS.iter().find(|(_, keys)| !is_ours && keys.iter().all(|key| root.find(key).is_some()))?;
    Some(
        Diagnostic::error("foreign-syntax", format!("this is {owner} configuration, not Weir's"))
            .hint(EXAMPLE),
    )
}

/// Whether a section maps names to entries, as ours do. Kong's sections are lists.
fn is_named(section: &Node) -> bool {
    !section.entries().is_empty()
}

impl Syntax {
    fn owns(&self, line: &str) -> bool {
        if (self.own)(line) {
            return true;
        }
        let word = line.split([' ', '\t', '{', ';']).next().unwrap_or_default();
        self.words.contains(&word) && (self.shape)(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yaml_of_others_is_named() {
        for (text, owner) in [
            (
                "_format_version: \"3.0\"\nservices: [ { name: a, url: http://b, routes: [ { paths: [ / ] } ] } ]\n",
                Some("Kong's"),
            ),
            ("_format_version: \"3.0\"\nroutes: [ { name: a } ]\n", Some("Kong's")),
            ("entryPoints: { web: { address: \":80\" } }\n", Some("Traefik's")),
            ("http: { routers: { a: { rule: x, service: b } } }\n", Some("Traefik's")),
            ("apiVersion: networking.k8s.io/v1\nkind: Ingress\n", Some("Kubernetes'")),
            ("kind: x\n", None),
            ("http: 1\nroutes: { a: { upstream: b } }\n", None),
        ] {
            let mut diagnostics = crate::Diagnostics::default();
            let tree = crate::parse::parse(text, std::path::Path::new("t.yaml"), &mut diagnostics);
            let told: Vec<&str> = diagnostics.iter().map(|d| d.message.as_str()).collect();
            assert_eq!(tree.is_none(), owner.is_some(), "{text}");
            assert!(owner.is_none_or(|owner| told.len() == 1 && told[0].contains(owner)), "{text}: {told:?}");
        }
    }

    #[test]
    fn other_proxies_are_named() {
        for (text, owner) in [
            (
                "server {\n    listen 80;\n    location / {\n        proxy_pass http://a;\n    }\n}\n",
                Some("nginx's"),
            ),
            ("worker_processes auto;\nevents { worker_connections 1024; }\nhttp {\n}\n", Some("nginx's")),
            ("example.com {\n\treverse_proxy 127.0.0.1:8000\n}\n", Some("Caddy's")),
            (
                "{\n email a@b.c\n}\nexample.com, www.example.com {\n encode gzip\n file_server\n}\n",
                Some("Caddy's"),
            ),
            ("[listeners.web]\naddress = \"127.0.0.1:80\"\n\n[routes.a]\nupstream = \"b\"\n", Some("TOML")),
            (":8080\n\nrespond \"hello\"\n", Some("Caddy's")),
            (
                "frontend web\n  bind :80\n  default_backend app\nbackend app\n  server a 10.0.0.1:80\n",
                Some("HAProxy's"),
            ),
            ("listeners:\n  web: { address: 1 }\nroutes: { a: [ }\n", None),
            ("", None),
            ("hello world", None),
        ] {
            let told = recognise(text).map(|d| d.message);
            assert_eq!(told.is_some(), owner.is_some(), "{text}");
            assert!(told.zip(owner).is_none_or(|(told, owner)| told.contains(owner)), "{text}");
        }
    }
}
