//! Sample expressions: `req.hdr(x-env),lower` as an expression of Weir.

use super::context::{Cx, pairs};
use super::read::has_variable;
use crate::shared::expression::Expression;
use crate::shared::regex::{Searching, Subject};
use crate::yaml::Map;
use std::collections::HashMap;

/// Most entries of a map that are written into the config; more go into a file beside it.
const MAX_INLINE: usize = 50;

/// How fetches of counters of a stick-table begin. `src_port` and the like are none.
pub(super) const COUNTERS: &[&str] = &[
    "sc0_",
    "sc1_",
    "sc2_",
    "sc_",
    "src_bytes",
    "src_clr",
    "src_conn",
    "src_get",
    "src_gpc",
    "src_http",
    "src_inc",
    "src_kbytes",
    "src_sess",
    "src_updt",
    "table_",
];

/// A value that HAProxy takes from a request, a connection or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) is: Expression,
    pub(super) kind: Kind,
    /// The name of the field, if the value is one as it came: HAProxy then looks at each of its values.
    pub(super) field: Option<String>,
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Address,
    Bool,
    /// A number; `int(…)` of a text has no value where it is none.
    Int,
    Text,
}

/// Where an expression stands: what it may name.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'a> {
    /// Lines of ACLs, by name.
    pub(super) acls: HashMap<&'a str, Vec<&'a super::read::Line>>,
    /// Variables that rules before it set, and how many changes there were then.
    pub(super) vars: HashMap<String, (Sample, usize)>,
    /// What rules before it changed, as expressions name it.
    pub(super) touched: Vec<String>,
    /// When `request.path` is among them: the requests whose path changed, by what they were when they came. None if
    /// that is not known, and where it changes for all.
    pub(super) path_changes: Option<Expression>,
    /// Whether clients speak TLS, where all do or none does.
    pub(super) tls: Option<bool>,
    /// Ports that clients connect to: without TLS, with TLS.
    pub(super) ports: (Vec<u16>, Vec<u16>),
    /// Whether a rule before it replaced the client's address.
    pub(super) sets_src: bool,
    /// Whether answers are there.
    pub(super) is_response: bool,
    /// The proxy's name.
    pub(super) proxy: String,
}

/// The whole path with its query.
pub(super) fn uri() -> Expression {
    let (path, query) = (Expression::raw("request.path"), Expression::raw("request.query"));
    let whole = path.clone().plus(Expression::text("?")).plus(query.clone());
    query.equals(Expression::text("")).choose(path, whole)
}

impl Sample {
    pub(super) const fn text(is: Expression) -> Self {
        Self { is, kind: Kind::Text, field: None }
    }

    pub(super) const fn of(is: Expression, kind: Kind) -> Self {
        Self { is, kind, field: None }
    }

    /// As a text.
    pub(super) fn as_text(&self) -> Expression {
        match self.kind {
            Kind::Text => self.is.clone(),
            Kind::Bool => self.is.clone().choose(Expression::text("1"), Expression::text("0")),
            Kind::Address | Kind::Int => Expression::raw(format!("string({})", self.is.as_str())),
        }
    }

    fn method(mut self, name: &str) -> Self {
        self.is = Expression::raw(format!("({}).{name}()", self.as_text().as_str()));
        if self.is.as_str().starts_with("(request.") && self.is.as_str().matches(['(', '?', '+']).count() == 2
        {
            let plain = self.is.as_str().replacen('(', "", 1).replacen(')', "", 1);
            self.is = Expression::raw(plain);
        }
        self.kind = Kind::Text;
        self
    }
}

/// Splits at commas outside of parentheses and quotes.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_usize, None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => {
                if let (Some(last), Some(next)) = (parts.last_mut(), chars.next()) {
                    last.extend(['\\', next]);
                }
                continue;
            }
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            ('(', None) => depth += 1,
            (')', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

/// A name with its arguments, without the quotes around them.
pub(super) fn call(text: &str) -> (&str, Vec<String>) {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else { return (text, Vec::new()) };
    let inner = rest.strip_suffix(')').unwrap_or(rest);
    let unquoted = |text: String| {
        let text = text.trim().to_owned();
        for quote in ['"', '\''] {
            if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
                return inner.to_owned();
            }
        }
        text.replace("\\,", ",")
    };
    (name.trim(), split(inner).into_iter().map(unquoted).collect())
}

/// Reads a whole sample expression.
pub(super) fn sample(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, text: &str) -> Result<Sample, String> {
    if has_variable(text) {
        return Err("a variable of the environment within an expression".to_owned());
    }
    let mut parts = split(text).into_iter();
    let first = parts.next().unwrap_or_default();
    let mut value = fetch(scope, &first)?;
    for converter in parts {
        value = convert(cx, value, &converter)?;
    }
    Ok(value)
}

/// A field of the request, or of the answer.
fn field(side: &str, name: &str) -> Sample {
    let name = name.to_ascii_lowercase();
    Sample { is: Expression::of(side, &name), kind: Kind::Text, field: Some(name) }
}

fn fetch(scope: &Scope<'_>, text: &str) -> Result<Sample, String> {
    let (name, args) = call(text);
    let first = args.first().map_or("", String::as_str);
    let raw = |text: &str| Sample::text(Expression::raw(text));
    let bool = |is: Expression| Sample::of(is, Kind::Bool);
    let lower = name.to_ascii_lowercase();
    let is_field = matches!(&*lower, "hdr" | "req.hdr" | "req.fhdr" | "req_hdr" | "hdr_ip" | "req.hdr_ip");
    // Parts of the request that are gone once the answer is there: such a rule never holds in HAProxy, or sets nothing.
    let is_gone = matches!(
        &*lower,
        "base"
            | "cook"
            | "cookie"
            | "path"
            | "pathq"
            | "query"
            | "req_cook"
            | "req_hdr"
            | "url"
            | "url_param"
            | "urlp"
    ) || lower.starts_with("req.");
    if scope.is_response && is_gone {
        return Err(format!(
            "HAProxy cannot read `{name}` any more when the answer is there; a variable would keep it"
        ));
    }
    let found = match &*lower {
        "path" | "capture.req.path" => raw("request.path"),
        "url" | "pathq" | "capture.req.uri" => Sample::text(uri()),
        "query" => raw("request.query"),
        "method" | "capture.req.method" => raw("request.method"),
        "base" => {
            Sample::text(Expression::of("request.headers", "host").plus(Expression::raw("request.path")))
        }
        _ if is_field
            && args.len() > 1
            && !matches!(args.get(1).map(String::as_str), Some("-1" | "1" | "")) =>
        {
            return Err(format!("`{text}` is one of several values of a field"));
        }
        "hdr" if scope.is_response => field("response.headers", first),
        "req.fhdr" if !first.is_empty() => Sample { field: None, ..field("request.headers", first) },
        "hdr" | "req.hdr" | "req_hdr" if !first.is_empty() => field("request.headers", first),
        "hdr_ip" | "req.hdr_ip" => {
            let value = field("request.headers", first).is;
            let address = Sample::of(Expression::raw(format!("ip({})", value.as_str())), Kind::Address);
            Sample { field: Some(first.to_ascii_lowercase()), ..address }
        }
        "res.hdr" | "shdr" | "res.fhdr" if scope.is_response => field("response.headers", first),
        "status" if scope.is_response => Sample::of(Expression::raw("response.status"), Kind::Int),
        "url_param" | "urlp" if !first.is_empty() => Sample::text(Expression::of("request.args", first)),
        "cook" | "req.cook" | "cookie" | "req_cook" if !first.is_empty() => {
            Sample::text(Expression::of("request.cookies", first))
        }
        "src" if scope.sets_src => return Err("the address that `set-src` put in its place".to_owned()),
        "src" => Sample::of(Expression::raw("client.ip"), Kind::Address),
        "ssl_fc" => bool(scope.tls.map_or_else(|| Expression::raw("client.tls"), Expression::constant)),
        "ssl_fc_sni" | "req.ssl_sni" | "req_ssl_sni" => raw("client.sni"),
        "ssl_fc_has_sni" => bool(Expression::raw("client.sni").differs(Expression::text(""))),
        "ssl_c_used" | "ssl_fc_has_crt" => {
            bool(Expression::raw("client.cert.subject").differs(Expression::text("")))
        }
        "ssl_c_s_dn" if args.is_empty() => raw("client.cert.subject"),
        "dst_port" => port(scope)?,
        "always_true" | "wait_end" | "req.proto_http" | "req_proto_http" => bool(Expression::constant(true)),
        "always_false" => bool(Expression::constant(false)),
        "bool" => bool(Expression::constant(matches!(first, "1" | "true" | "yes" | "on"))),
        "str" => Sample::text(Expression::text(first)),
        "int" => match first.parse::<i64>() {
            Ok(number) => Sample::of(Expression::raw(number.to_string()), Kind::Int),
            Err(_) => return Err(format!("`{text}` is no number")),
        },
        "fe_name" | "be_name" => Sample::text(Expression::text(&scope.proxy)),
        "unique-id" | "uuid" => raw("request.id"),
        "req.body_size" | "req.hdrs_size" | "req_len" => return Err(format!("Weir does not know `{name}`")),
        "var" => {
            let Some((value, since)) = scope.vars.get(first) else {
                return Err(format!("nothing before it sets the variable `{first}`"));
            };
            let text = value.is.as_str();
            if scope.touched.iter().skip(*since).any(|changed| text.contains(changed.as_str())) {
                return Err(format!("what `{first}` was made of is changed before it is read"));
            }
            value.clone()
        }
        "nbsrv" | "be_conn" | "fe_conn" | "avg_queue" | "srv_is_up" | "connslots" | "queue" => {
            return Err(format!(
                "`{name}` asks for the state of servers; Weir goes over to endpoints of a lower `priority` by itself"
            ));
        }
        "rand" => return Err("a share of requests: `upstream: { a: 95, b: 5 }`".to_owned()),
        _ if lower.starts_with("lua.") => return Err("Lua".to_owned()),
        _ if COUNTERS.iter().any(|start| lower.starts_with(start)) => {
            return Err(format!("`{name}` reads a counter of a stick-table"));
        }
        _ => return Err(format!("weir import does not know `{name}`")),
    };
    Ok(found)
}

/// The port that the client connected to.
fn port(scope: &Scope<'_>) -> Result<Sample, String> {
    let number = |port: u16| Expression::raw(port.to_string());
    let is = match (&*scope.ports.0, &*scope.ports.1) {
        ([plain], []) => number(*plain),
        ([], [tls]) => number(*tls),
        ([plain], [tls]) => Expression::raw("client.tls").choose(number(*tls), number(*plain)),
        _ => return Err("expressions of Weir do not know the port that the client connected to".to_owned()),
    };
    Ok(Sample::of(is, Kind::Int))
}

fn convert(cx: &mut Cx<'_, '_, '_>, value: Sample, text: &str) -> Result<Sample, String> {
    let (name, args) = call(text);
    let arg = |at: usize| args.get(at).map_or("", String::as_str);
    let wrapped = |function: &str, value: &Sample| {
        Sample::text(Expression::raw(format!("{function}({})", value.as_text().as_str())))
    };
    let is_host = value.field.as_deref() == Some("host");
    Ok(match name {
        "lower" if is_host => {
            Sample { is: value.method("lowerAscii").is, kind: Kind::Text, field: Some("host".to_owned()) }
        }
        "lower" => value.method("lowerAscii"),
        "upper" => value.method("upperAscii"),
        "url_dec" => wrapped("url.decode", &value),
        "url_enc" => wrapped("url.encode", &value),
        "base64" => wrapped("base64.encode", &value),
        "length" => Sample::of(Expression::raw(format!("size({})", value.as_text().as_str())), Kind::Int),
        "hex" => Sample::text(Expression::raw(format!("hex.encode({})", value.as_text().as_str()))),
        "sha2" if matches!(arg(0), "" | "256") => wrapped("sha256", &value),
        "not" if value.kind == Kind::Bool => Sample::of(value.is.not(), Kind::Bool),
        "bool" if value.kind == Kind::Bool => value,
        "host_only" if is_host => Sample::text(Expression::raw("request.host")),
        "field" if is_host && arg(0) == "1" && arg(1) == ":" => Sample::text(Expression::raw("request.host")),
        "field" | "word" => {
            let count = arg(0).parse::<usize>().ok().filter(|count| (1..=20).contains(count));
            let (Some(count), false) = (count, arg(1).is_empty()) else {
                return Err(format!("`{text}` counts from the end, or has several separators"));
            };
            let separator = Expression::text(arg(1));
            if count == 1 {
                let cut = format!(
                    "({} + {s}).substring(0, ({} + {s}).indexOf({s}))",
                    group(&value),
                    group(&value),
                    s = separator.as_str()
                );
                return Ok(Sample::text(Expression::raw(cut)));
            }
            return Err(format!("`{text}`: Weir's expressions split texts, but do not pick the n-th part"));
        }
        "regsub" => regsub(&value, arg(0), arg(1), arg(2))?,
        "concat" => {
            let mut is = value.as_text().plus(Expression::text(arg(0)));
            if !arg(1).is_empty() {
                return Err("`concat` with a variable".to_owned());
            }
            if !arg(2).is_empty() {
                is = is.plus(Expression::text(arg(2)));
            }
            Sample::text(is)
        }
        _ if name == "map" || name.starts_with("map_") => map(cx, &value, name, arg(0), args.get(1))?,
        _ => return Err(format!("weir import does not know the converter `{name}`")),
    })
}

/// A value to call a method of.
fn group(value: &Sample) -> String {
    let text = value.as_text();
    if text.as_str().contains([' ', '?']) { format!("({})", text.as_str()) } else { text.as_str().to_owned() }
}

/// A replacement of a literal text, at the beginning or anywhere.
fn regsub(value: &Sample, pattern: &str, to: &str, flags: &str) -> Result<Sample, String> {
    let why = || "Weir's expressions replace literal texts, not regular expressions".to_owned();
    let (anchored, literal) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let literal = unescaped(literal).ok_or_else(why)?;
    if to.contains('\\') || (flags.contains('i') && value.field.as_deref() != Some("host")) {
        return Err(why());
    }
    let value = match value.field.as_deref() {
        Some("host") => Sample::text(Expression::raw("request.host")),
        _ => value.clone(),
    };
    if anchored {
        let rest = Expression::raw(format!("{}.substring({})", group(&value), literal.chars().count()));
        let replaced = if to.is_empty() { rest } else { Expression::text(to).plus(rest) };
        return Ok(Sample::text(value.as_text().starts_with(&literal).choose(replaced, value.as_text())));
    }
    let times = if flags.contains('g') { "" } else { ", 1" };
    let (from, to) = (Expression::text(&literal), Expression::text(to));
    let text = format!("{}.replace({}, {}{times})", group(&value), from.as_str(), to.as_str());
    Ok(Sample::text(Expression::raw(text)))
}

/// The literal text that a regular expression is; none if it is more.
pub(super) fn unescaped(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                c if c.is_ascii_alphanumeric() => return None,
                c => out.push(c),
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// `map(file, default)`: a map of ours.
fn map(
    cx: &mut Cx<'_, '_, '_>,
    value: &Sample,
    name: &str,
    path: &str,
    default: Option<&String>,
) -> Result<Sample, String> {
    let key = format!("{name} {path} {:?} {}", default, value.is.as_str());
    if let Some(made) = cx.made_maps.get(&key) {
        return Ok(Sample::text(Expression::raw(format!("maps.{made}"))));
    }
    let lines = cx.entries(path)?;
    let mut values = Map::new();
    let mut rows = String::new();
    let found = pairs(&lines);
    for (from, to) in &found {
        let from = match name {
            "map" | "map_str" if value.kind == Kind::Address => crate::shared::networks::network(from)?,
            "map_ip" => crate::shared::networks::network(from)?,
            "map" | "map_str" => exact_key(from),
            "map_beg" => format!("{from}*"),
            "map_end" => format!("~.*{}", regex::escape(from)),
            "map_sub" => format!("~.*{}.*", regex::escape(from)),
            "map_reg" => {
                let read = Searching::read(from, false, Subject::Text)?;
                read.compiled()?;
                format!("~{}", read.whole())
            }
            _ => return Err(format!("Weir has no map like `{name}`")),
        };
        rows.push_str(&format!("{},{}\n", field_of_csv(&from), field_of_csv(to)));
        if values.get(&from).is_none() {
            values.set(from, *to);
        }
    }
    let of = if value.field.as_deref() == Some("host") {
        Expression::raw("request.host")
    } else {
        value.is.clone()
    };
    let mut made = Map::new().with("of", of.as_str());
    let stem = path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or("map");
    let wish: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let wish = if wish.starts_with(|c: char| c.is_ascii_alphabetic()) { wish } else { format!("map_{wish}") };
    if found.len() <= MAX_INLINE {
        made.set("values", values);
    } else {
        let file = format!("maps/{wish}.csv");
        cx.config.files.insert(file.clone(), rows);
        made.set("file", file);
    }
    made.set_some("default", default.cloned());
    let taken = |name: &str| cx.config.maps.get(name).is_some();
    let numbered = (2..).map(|number| format!("{wish}_{number}"));
    let name = std::iter::once(wish.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(wish);
    let made = cx.config.maps.add(&name, made);
    cx.made_maps.insert(key, made.clone());
    Ok(Sample::text(Expression::raw(format!("maps.{made}"))))
}

/// A text that a map takes for itself.
fn exact_key(key: &str) -> String {
    if key.ends_with('*') || key.starts_with('~') {
        format!("~{}", regex::escape(key))
    } else {
        key.to_owned()
    }
}

fn field_of_csv(text: &str) -> String {
    if text.contains([',', '"']) || text.starts_with('#') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
