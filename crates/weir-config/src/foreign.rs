//! Recognises a config that was written for another proxy and pasted here, so that we can say so instead of complaining about
//! its YAML. Guessed from the shape of lines and a few words that only that proxy has; a guess is made only for text that is no
//! config of ours in any case.

use super::diagnostic::Diagnostic;

/// How many lines are looked at: the head of a file tells.
const LOOK: usize = 200;

/// A syntax that is not ours, by words that begin its lines.
struct Syntax {
    /// Whose it is, as a message names it.
    owner: &'static str,
    words: &'static [&'static str],
    /// What else a line must be, to count.
    shape: fn(&str) -> bool,
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
    },
    Syntax {
        owner: "Caddy's",
        words: &[
            "basic_auth",
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
        shape: |line| !line.contains(": ") && !line.ends_with([';', ':']) && line.contains(' '),
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
    },
];

/// What a whole config of ours looks like at its smallest.
const EXAMPLE: &str = "Weir reads YAML, such as: `listeners: { web: { address: 0.0.0.0:8080 } }`, \
    `upstreams: { app: { endpoints: [ 127.0.0.1:8000 ] } }`, `routes: { all: { upstream: app } }`, each on a line of its own";

/// The mistake of whoever pasted another proxy's file, if that is what `text` looks like.
pub(super) fn recognise(text: &str) -> Option<Diagnostic> {
    let lines =
        text.lines().map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.take(LOOK).collect();
    let score = |syntax: &Syntax| lines.iter().filter(|line| syntax.owns(line)).count();
    let (best, owner) =
        SYNTAXES.iter().map(|syntax| (score(syntax), syntax.owner)).max_by_key(|(score, _)| *score)?;
    // A third of the lines: the rest is arguments, closing braces and words we do not list.
    let enough = best > 0 && best * 3 >= lines.len();
    enough.then(|| {
        Diagnostic::error("foreign-syntax", format!("this is {owner} syntax, not Weir's")).hint(EXAMPLE)
    })
}

impl Syntax {
    fn owns(&self, line: &str) -> bool {
        let word = line.split([' ', '\t', '{', ';']).next().unwrap_or_default();
        self.words.contains(&word) && (self.shape)(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_proxies_are_named() {
        for (text, owner) in [
            (
                "server {\n    listen 80;\n    location / {\n        proxy_pass http://a;\n    }\n}\n",
                Some("nginx's"),
            ),
            ("worker_processes auto;\nevents { worker_connections 1024; }\nhttp {\n}\n", Some("nginx's")),
            ("example.com {\n\treverse_proxy 127.0.0.1:8000\n}\n", Some("Caddy's")),
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
