//! Files, `try_files`, and scripts by FastCGI.

use super::context::{Cx, Scope};
use super::proxy::named;
use super::read::Directive;
use super::server::absolute;
use super::text::template;
use crate::config::{Endpoint, Filter, Upstream};
use crate::shared::expression::Expression;
use crate::shared::template::{Part, Template};
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};

/// Files of a location: what changes the path before, and the settings of `files`.
pub(super) struct Folder {
    pub(super) filters: Vec<Filter>,
    pub(super) root: String,
    pub(super) settings: Map,
}

/// The folder of a location, by `root` or `alias`.
///
/// # Errors
/// Why Weir cannot serve it.
pub(super) fn folder(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Result<Folder, String> {
    let mut filters = Vec::new();
    let alias = scope.block.own("alias").last().copied();
    let root = match alias {
        Some(alias) => {
            let text = template(cx, scope, alias.first())?;
            match (text.as_literal(), &scope.path) {
                (Some(to), Some(_)) if scope.is_exact => {
                    let (folder, file) = to.rsplit_once('/').unwrap_or(("", &to));
                    let (folder, file) = (folder.to_owned(), crate::shared::path::canonical(file));
                    filters.push(Filter::new("rewrite", Map::new().with("path", format!("/{file}"))));
                    cx.ledger.same(alias.piece);
                    folder
                }
                (Some(to), Some(path)) => {
                    if path.ends_with('/') != to.ends_with('/') {
                        let why = "an alias with a slash at its end for a location without one, or the reverse, \
                                   lets clients out of the folder";
                        cx.ledger.changed(alias.piece, why);
                    } else {
                        cx.ledger.same(alias.piece);
                    }
                    let strip = path.trim_end_matches('/');
                    if !strip.is_empty() {
                        filters.push(Filter::new("rewrite", Map::new().with("strip_prefix", strip)));
                    }
                    to
                }
                _ => {
                    let why = "an alias that is made of the request";
                    cx.ledger.refused(alias.piece, why, "files: { root } with rewrite: { path }");
                    return Err(why.to_owned());
                }
            }
        }
        None => match scope.block.one("root") {
            Some(root) => match template(cx, scope, root.first())?.as_literal() {
                Some(text) => {
                    cx.ledger.same(root.piece);
                    text
                }
                None => {
                    let why = "the folder is chosen by the request";
                    cx.ledger.refused(root.piece, why, "files: { root }, a route for each folder");
                    return Err(why.to_owned());
                }
            },
            None => "/usr/share/nginx/html".to_owned(),
        },
    };
    let root = match absolute(&root).trim_end_matches('/') {
        "" => "/".to_owned(),
        root => root.to_owned(),
    };
    let mut settings = Map::new().with("root", root.clone());
    if let Some(index) = scope.block.one("index") {
        let known: Vec<&str> = index.args.iter().map(String::as_str).collect();
        let files: Vec<&str> =
            known.iter().copied().filter(|file| !file.starts_with('/') && !file.contains('$')).collect();
        if files.len() == known.len() {
            cx.ledger.same(index.piece);
        } else {
            cx.ledger.changed(index.piece, "an index is the name of a file in the folder");
        }
        if files != ["index.html"] && !files.is_empty() {
            settings.set("index", files);
        }
    }
    if let Some(listing) = scope.block.one("autoindex") {
        cx.ledger.same(listing.piece);
        if listing.first() == "on" {
            settings.set("browse", true);
        }
    }
    if let Some(precompressed) = scope.block.one("gzip_static") {
        cx.ledger.same(precompressed.piece);
        if precompressed.first() != "off" {
            settings.set("precompressed", vec!["gzip"]);
        }
    }
    cx.ledger.note(
        "Weir serves no files whose names begin with a dot, except below /.well-known/ (`files.hidden`)",
    );
    Ok(Folder { filters, root, settings })
}

/// Scripts of a location.
pub(super) struct Scripts {
    pub(super) upstream: String,
    pub(super) settings: Map,
    /// Filters that change the request before the scripts get it.
    pub(super) filters: Vec<Filter>,
}

/// Parameters that Weir sets itself, as nginx's own files `fastcgi_params` and `fastcgi.conf` do.
const STANDARD: &[(&str, &[&str])] = &[
    ("CONTENT_LENGTH", &["$content_length"]),
    ("CONTENT_TYPE", &["$content_type"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("DOCUMENT_URI", &["$document_uri"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("HTTPS", &["$https", "on"]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REDIRECT_STATUS", &["200"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("REQUEST_URI", &["$request_uri"]),
    (
        "SCRIPT_FILENAME",
        &["$document_root$fastcgi_script_name", "$realpath_root$fastcgi_script_name", "$request_filename"],
    ),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("SERVER_SOFTWARE", &["nginx/$nginx_version", "nginx"]),
    ("HTTP_HOST", &["$http_host"]),
    ("HTTP_PROXY", &[""]),
];

/// Translates `fastcgi_pass`.
///
/// # Errors
/// Why Weir cannot run it.
pub(super) fn scripts<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    pass: &'a Directive,
) -> Result<Scripts, String> {
    let Some(address) = template(cx, scope, pass.first())?.as_literal() else {
        return Err("the address of the scripts is chosen by the request".to_owned());
    };
    let root = folder(cx, scope)?.root;
    let mut made = Upstream::default();
    made.more.set("protocol", "fastcgi");
    match cx.upstreams.get(&*address).copied() {
        Some(block) => super::proxy::group(cx, block, 9000, &mut made)?,
        None => {
            let address = if address.starts_with("unix:") || address.contains(':') {
                address.clone()
            } else {
                format!("{address}:9000")
            };
            made.endpoints.push(Endpoint { address, ..Endpoint::default() });
        }
    }
    let mut timeouts = Map::new();
    for (name, key, default) in
        [("fastcgi_connect_timeout", "connect", 3_000), ("fastcgi_read_timeout", "response", 30_000)]
    {
        let found = scope.block.one(name);
        let ms = found.and_then(|found| read_duration(found.first(), 1000)).unwrap_or(60_000);
        found.iter().for_each(|found| cx.ledger.same(found.piece));
        if ms != default {
            timeouts.set(key, duration(ms));
        }
    }
    made.more.set("timeouts", timeouts);
    let mut settings = Map::new().with("root", root);
    if let Some(index) = scope.block.one("fastcgi_index") {
        cx.ledger.same(index.piece);
        if index.first() != "index.php" {
            settings.set("index", index.first());
        }
    }
    if let Some(split) = scope.block.one("fastcgi_split_path_info") {
        cx.ledger.same(split.piece);
        settings.set("path_info", true);
    }
    let mut params = Map::new();
    let mut filters = Vec::new();
    for param in scope.block.nearest("fastcgi_param") {
        let (name, value) = (param.first(), param.args.get(1).map_or("", String::as_str));
        let standard = STANDARD.iter().find(|(known, _)| *known == name);
        if standard.is_some_and(|(_, values)| values.contains(&value)) {
            cx.ledger.by_itself(param.piece, "Weir sets it");
            continue;
        }
        let made = template(cx, scope, value);
        if let Some(host) = made.as_ref().ok().filter(|_| name == "HTTP_HOST").and_then(new_host) {
            cx.ledger.same(param.piece);
            filters.push(Filter::new("rewrite", Map::new().with("host", host)));
            continue;
        }
        match made.map(|text| text.as_literal()) {
            Ok(Some(text)) if standard.is_none() || matches!(name, "SERVER_NAME" | "HTTP_HOST") => {
                cx.ledger.same(param.piece);
                let is_secret = ["KEY", "SECRET", "TOKEN", "PASSWORD"].iter().any(|word| name.contains(word));
                let value = if is_secret && !text.is_empty() {
                    cx.ledger.conceal(param.piece);
                    cx.config.secret(name, &text)
                } else {
                    Value::from(text)
                };
                params.set(name, value);
            }
            _ if name == "SCRIPT_FILENAME" => {
                let why = "Weir runs the script that the path names below the root";
                cx.ledger.refused(param.piece, why, "fastcgi: { root, index } of a route");
            }
            _ => {
                let why = "parameters of Weir are fixed texts";
                cx.ledger.refused(param.piece, why, "fastcgi: { params } or headers: { request: { set } }");
            }
        }
    }
    if !params.is_empty() {
        settings.set("params", params);
    }
    let wish = if address.starts_with("unix:") || address.contains("php") { "php" } else { &*address };
    let upstream = named(cx, wish, made);
    cx.ledger.same(pass.piece);
    Ok(Scripts { upstream, settings, filters })
}

/// The setting of `rewrite.host` that gives scripts this HTTP_HOST: `$host` or `$host:8080`, which nginx writes in
/// lower case. Not for other variables, which may be empty: a host must not be.
fn new_host(text: &Template) -> Option<String> {
    let is_port = |text: &str| text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let mut host = Template::default();
    host.push(Part::Value(Expression::raw("request.host")));
    match text.parts() {
        [Part::Placeholder(name)] if name == "host" => {}
        [Part::Placeholder(name), Part::Text(port)] if name == "host" && is_port(port) => {
            host.push(Part::Text(port.clone()));
        }
        _ => return None,
    }
    Some(host.to_setting())
}

/// What `try_files` asks for last.
pub(super) enum Last {
    /// `=404`
    Status(u16),
    /// `@app`
    Named(String),
    /// `/index.html`, with or without a query.
    Path(String),
}

/// What `try_files` asks for.
pub(super) struct Tried {
    /// Whether files are tried before.
    pub(super) files: bool,
    /// Whether folders are tried too: only then nginx sends the index of one.
    pub(super) folders: bool,
    pub(super) last: Last,
}

/// Reads `try_files`.
///
/// # Errors
/// Why Weir cannot do it.
pub(super) fn tried(directive: &Directive) -> Result<Tried, String> {
    let Some((last, tries)) = directive.args.split_last() else {
        return Err("`try_files` names nothing".to_owned());
    };
    let is_usual =
        |word: &String| matches!(&**word, "$uri" | "$uri/" | "${uri}" | "$uri/index.html" | "$uri.html");
    let odd = tries.iter().find(|word| !is_usual(word) && **word != "/dev/null");
    if let Some(odd) = odd {
        return Err(format!("Weir looks for the file of the path, and for an index: not for `{odd}`"));
    }
    if tries.iter().any(|word| word == "$uri.html") {
        return Err("Weir does not add `.html` to a path".to_owned());
    }
    let files = tries.iter().any(|word| word != "/dev/null");
    let folders = tries.iter().any(|word| matches!(&**word, "$uri/" | "${uri}/" | "$uri/index.html"));
    let last = match last.strip_prefix('=') {
        Some(status) => Last::Status(status.parse().map_err(|_| format!("`{last}` is no status"))?),
        None => match last.strip_prefix('@') {
            Some(name) => Last::Named(name.to_owned()),
            None if last.starts_with('/') => Last::Path(last.clone()),
            None if last == "$uri" || last == "$uri/" => Last::Status(404),
            None => return Err(format!("`{last}` is no path and no named location")),
        },
    };
    Ok(Tried { files, folders, last })
}
