//! nginx's texts with `$variables`, as templates and expressions.

use super::context::{Cx, Scope};
use super::read::Directive;
use crate::shared::expression::Expression;
use crate::shared::networks::network;
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

/// A text with variables.
///
/// # Errors
/// Names the variable that Weir does not have.
pub(super) fn template(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, text: &str) -> Result<Template, String> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        template.push(Part::Text(rest[..at].to_owned()));
        let behind = &rest[at + 1..];
        let (name, next) = match behind.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, next)) => (name, next),
                None => return Err(format!("`{text}` has a `${{` without its end")),
            },
            None => {
                let end =
                    behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                // `$1x` is the first group with an x behind it.
                let end = if behind.starts_with(|c: char| c.is_ascii_digit()) { 1 } else { end };
                behind.split_at(end.min(behind.len()))
            }
        };
        if name.is_empty() {
            template.push(Part::Text("$".to_owned()));
        } else {
            template.append(variable(cx, scope, name)?);
        }
        rest = next;
    }
    template.push(Part::Text(rest.to_owned()));
    Ok(template)
}

/// The value of a variable.
fn variable(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, name: &str) -> Result<Template, String> {
    let one = |part: Part| {
        let mut template = Template::default();
        template.push(part);
        Ok(template)
    };
    let placeholder = |name: &str| one(Part::Placeholder(name.to_owned()));
    let value = |expression: Expression| one(Part::Value(expression));
    if scope.captures.contains(name) {
        return placeholder(name);
    }
    if let Some(set) = scope.set.get(name) {
        return Ok(set.clone());
    }
    let field = |text: &str| text.replace('_', "-");
    let has_query = || Expression::raw("request.query").equals(Expression::text(""));
    match name {
        "host" => placeholder("host"),
        "http_host" => placeholder("authority"),
        "remote_addr" | "binary_remote_addr" | "proxy_protocol_addr" => placeholder("client"),
        "scheme" => match scope.scheme {
            Some(scheme) => Ok(Template::text(scheme)),
            None => placeholder("scheme"),
        },
        "request_method" => placeholder("method"),
        "uri" | "document_uri" => placeholder("path"),
        "args" | "query_string" => placeholder("query"),
        "request_uri" => {
            let path = Expression::raw("request.path");
            let both = path.clone().plus(Expression::text("?")).plus(Expression::raw("request.query"));
            value(has_query().choose(path, both))
        }
        "is_args" => value(has_query().choose(Expression::text(""), Expression::text("?"))),
        "server_name" => Ok(Template::text(&scope.server_name)),
        "server_port" => match scope.server_port {
            Some(port) => Ok(Template::text(&port.to_string())),
            None => Err("the server listens on several ports, and Weir has no `$server_port`".to_owned()),
        },
        "https" => value(
            Expression::raw("request.scheme")
                .equals(Expression::text("https"))
                .choose(Expression::text("on"), Expression::text("")),
        ),
        "request_id" => {
            cx.needs_request_id = true;
            placeholder("request_id")
        }
        "remote_user" => placeholder("consumer"),
        "ssl_client_s_dn" => placeholder("tls_client_subject"),
        "status" => value(Expression::raw("response.status")),
        "content_type" => value(Expression::of("request.headers", "content-type")),
        "document_root" => match scope.block.one("root").filter(|root| !root.first().contains('$')) {
            Some(root) => Ok(Template::text(root.first())),
            None => Err("Weir does not know `$document_root` here".to_owned()),
        },
        "proxy_add_x_forwarded_for" => placeholder("client"),
        _ => {
            if let Some(name) = name.strip_prefix("http_") {
                return value(Expression::of("request.headers", &field(name)));
            }
            if let Some(name) = name.strip_prefix("cookie_") {
                return value(Expression::of("request.cookies", name));
            }
            if let Some(name) = name.strip_prefix("arg_") {
                return value(argument(cx, name));
            }
            let sent = ["upstream_http_", "sent_http_"].iter().find_map(|prefix| name.strip_prefix(prefix));
            if let Some(name) = sent {
                return value(Expression::of("response.headers", &field(name)));
            }
            match table(cx, scope, name) {
                Some(Ok(found)) => value(found),
                Some(Err(why)) => Err(why),
                None => Err(format!("Weir has no `${name}`")),
            }
        }
    }
}

/// `$arg_NAME`, whose name has no case in nginx, and which is the first of several, as it was sent.
///
/// Weir's `request.args` is decoded and counts case, so it would not see `?Debug=1` where nginx does.
fn argument(cx: &mut Cx<'_, '_>, name: &str) -> Expression {
    cx.ledger.note(
        "`$arg_NAME` ignores the case of the name and takes the first parameter of several, as it was sent; \
         `request.args[\"NAME\"]` is shorter where that does not matter",
    );
    let query = "(\"&\" + request.query)";
    let start = format!("&{}=", name.to_ascii_lowercase());
    let at = format!("{query}.lowerAscii().indexOf({})", Expression::text(&start).as_str());
    let end = start.len();
    Expression::raw(format!(
        "({at} < 0 ? \"\" : ({query}.substring({at} + {end}).split(\"&\", 2)[0] ?? \"\"))"
    ))
}

/// A text as an expression.
pub(super) fn expression(template: &Template) -> Expression {
    let one = |part: &Part| match part {
        Part::Text(text) => Expression::text(text),
        Part::Value(value) => value.clone(),
        Part::Placeholder(name) => match &**name {
            "host" => Expression::raw("request.host"),
            "authority" => Expression::of("request.headers", "host"),
            "client" => Expression::raw("string(client.ip)"),
            "consumer" => Expression::raw("consumer.name"),
            "method" => Expression::raw("request.method"),
            "path" => Expression::raw("request.path"),
            "query" => Expression::raw("request.query"),
            "request_id" => Expression::raw("request.id"),
            "scheme" => Expression::raw("request.scheme"),
            "tls_client_subject" => Expression::raw("client.cert.subject"),
            name => Expression::of("request.params", name),
        },
    };
    let parts = template.parts().iter().map(one);
    parts.reduce(Expression::plus).unwrap_or_else(|| Expression::text(""))
}

/// The words of an `if`, as an expression.
///
/// # Errors
/// Why Weir cannot decide it.
pub(super) fn condition(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    words: &[String],
) -> Result<Expression, String> {
    let joined = words.join("\u{1}");
    let inner = joined.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let Some(inner) = inner else { return Err("its condition stands in no parentheses".to_owned()) };
    let words: Vec<&str> = inner.split('\u{1}').map(str::trim).filter(|word| !word.is_empty()).collect();
    let subject = |cx: &mut Cx<'_, '_>, word: &str| {
        template(cx, scope, word).map(|template| (expression(&template), template))
    };
    match *words {
        [subject_word] if subject_word.starts_with('$') => {
            let (value, _) = subject(cx, subject_word)?;
            let empty = value.clone().differs(Expression::text(""));
            Ok(empty.and(value.differs(Expression::text("0"))))
        }
        [test, _] if test.trim_start_matches('!').starts_with('-') => {
            Err(format!("Weir's expressions look at no files (`{test}`)"))
        }
        [subject_word, operator] if matches!(operator, "=" | "!=") => {
            let (value, _) = subject(cx, subject_word)?;
            let is_empty = value.equals(Expression::text(""));
            Ok(if operator == "=" { is_empty } else { is_empty.not() })
        }
        [subject_word, operator, right] => {
            let (value, about) = subject(cx, subject_word)?;
            let is_negated = operator.starts_with('!');
            let found = match operator.trim_start_matches('!') {
                "=" => {
                    let right = template(cx, scope, right)?;
                    match (value.as_str(), right.as_literal()) {
                        ("string(client.ip)", Some(address)) => {
                            Expression::raw("client.ip").is_in([&*network(&address)?])
                        }
                        _ => value.equals(expression(&right)),
                    }
                }
                "~" | "~*" => {
                    let is_path = about.parts().first() == Some(&Part::Placeholder("path".to_owned()));
                    let subject = if is_path { Subject::Path } else { Subject::Text };
                    let pattern = Searching::read(right, operator.ends_with('*'), subject)?;
                    value.matches(&pattern.searching())
                }
                other => return Err(format!("`{other}` is no operator of nginx")),
            };
            Ok(if is_negated { found.not() } else { found })
        }
        _ => Err("the condition is no condition of nginx".to_owned()),
    }
}

/// The value of a variable of `map` or `geo`, as an expression. None if there is no such variable.
///
/// What the map looks at may mean something else in another server or location, such as a group of its pattern: then it
/// gets a map of its own.
fn table(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, variable: &str) -> Option<Result<Expression, String>> {
    let (name, directive) = cx.tables.get_key_value(variable).map(|(name, directive)| (*name, *directive))?;
    if cx.open_maps.contains(&name) {
        return Some(Err(format!("the map `${name}` reads itself")));
    }
    cx.open_maps.push(name);
    let made = looked_up(cx, scope, name, directive);
    cx.open_maps.pop();
    if let Err(why) = &made {
        cx.ledger.refused(directive.piece, why.clone(), "maps");
    }
    Some(made)
}

fn looked_up(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    name: &str,
    directive: &Directive,
) -> Result<Expression, String> {
    let of = looked_at(cx, scope, directive)?;
    let key = format!("{name}\n{}", of.as_str());
    let (map, computed) = match cx.made_maps.get(&key) {
        Some(made) => made.clone()?,
        None => {
            let made = make_map(cx, name, directive, of);
            let made =
                made.map(|(map, computed)| (cx.config.maps.add(&name.replace('-', "_"), map), computed));
            cx.made_maps.insert(key, made.clone());
            made?
        }
    };
    // Weir's maps have fixed texts: those with variables are put in the places of the texts that stand for them.
    let found = format!("maps.{map}");
    let mut chosen = Expression::raw(&found);
    for (stands_for, text) in computed.iter().rev() {
        let value = expression(&template(cx, scope, text)?);
        let is = Expression::raw(&found).equals(Expression::text(stands_for));
        chosen = is.choose(value, chosen);
    }
    Ok(chosen)
}

/// What a map looks at.
fn looked_at(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, directive: &Directive) -> Result<Expression, String> {
    Ok(match (directive.name == "geo", &*directive.args) {
        (true, [_]) => Expression::raw("client.ip"),
        (true, [of, _]) => {
            let of = template(cx, scope, of)?;
            if of.parts() == [Part::Placeholder("client".to_owned())] {
                Expression::raw("client.ip")
            } else {
                Expression::raw(format!("ip({})", expression(&of).as_str()))
            }
        }
        (false, [of, _]) => expression(&template(cx, scope, of)?),
        _ => return Err(format!("`{}` has too many or too few words", directive.name)),
    })
}

/// Most values of a map that are made of the request: each makes the expression longer that chooses them.
const MAX_COMPUTED: usize = 16;

/// A map, and the texts in it that stand for values with variables.
fn make_map(
    cx: &mut Cx<'_, '_>,
    name: &str,
    directive: &Directive,
    of: Expression,
) -> Result<(Map, Vec<(String, String)>), String> {
    let is_geo = directive.name == "geo";
    let lines = directive.block.as_deref().unwrap_or_default();
    // nginx compares texts without case, and regexes of `~` with it.
    let has_letters = |text: &str| text.chars().any(|c| c.is_ascii_alphabetic());
    let is_text = |line: &&Directive| !is_geo && !line.name.starts_with('~') && !is_setting(&line.name);
    let has_texts = lines.iter().filter(is_text).any(|line| has_letters(&line.name));
    let with_case = |line: &Directive| {
        line.name.starts_with('~') && !line.name.starts_with("~*") && has_letters(&line.name)
    };
    let lowers = has_texts && !lines.iter().any(with_case);
    let is_lower = matches!(of.as_str(), "request.host" | "request.scheme");
    let of = if lowers && !is_lower { of.lower() } else { of };
    let mut map = Map::new().with("of", of.as_str());
    let mut values = Map::new();
    let mut default = None;
    let mut computed: Vec<(String, String)> = Vec::new();
    let mut texts = Map::new();
    let has_hosts = lines.iter().any(|line| line.name == "hostnames");
    for line in lines {
        let key = &*line.name;
        match key {
            "volatile" => {
                cx.ledger.by_itself(line.piece, "maps are looked up for each request");
                continue;
            }
            "hostnames" => {
                cx.ledger.same(line.piece);
                continue;
            }
            "include" => return Err(format!("the map `${name}` includes a file that is missing")),
            _ => {}
        }
        let value = line.first();
        let refuse = |cx: &mut Cx<'_, '_>, why: String| {
            cx.ledger.refused(line.piece, why, "maps");
            format!("the map `${name}` has a line that Weir cannot take: {}", line.place)
        };
        let groups = value.split('$').skip(1).any(|rest| {
            let name = rest.trim_start_matches('{');
            name.starts_with(|c: char| c.is_ascii_digit()) || key.contains(&format!("(?<{}", word(name)))
        });
        if groups {
            return Err(refuse(cx, "values of Weir's maps have no groups of the key's regex".to_owned()));
        }
        let value = match value.contains('$') {
            false => value.to_owned(),
            true => match computed.iter().find(|(_, known)| known == value) {
                Some((stands_for, _)) => stands_for.clone(),
                None if computed.len() >= MAX_COMPUTED => {
                    return Err(refuse(cx, "values of Weir's maps are fixed texts".to_owned()));
                }
                None => {
                    let free = |wish: &String| lines.iter().all(|line| line.first() != *wish);
                    let mut numbered = (computed.len() + 1..).map(|n| format!("computed-{n}"));
                    let stands_for = numbered.find(free).unwrap_or_default();
                    computed.push((stands_for.clone(), value.to_owned()));
                    stands_for
                }
            },
        };
        if key == "default" {
            default = Some(value);
            cx.ledger.same(line.piece);
            continue;
        }
        let written = match key {
            _ if is_geo => network(key).map_err(|why| refuse(cx, why))?,
            _ if key.starts_with('~') => {
                let (pattern, ignores_case) = match key.strip_prefix("~*") {
                    Some(pattern) => (pattern, true),
                    None => (&key[1..], false),
                };
                let read = Searching::read(pattern, ignores_case, Subject::Text);
                format!("~{}", read.map_err(|why| refuse(cx, why))?.whole())
            }
            _ if has_hosts && (key.starts_with("*.") || key.starts_with('.')) => {
                let host = regex_host(key);
                format!("~{host}")
            }
            _ if has_hosts && key.ends_with(".*") => key.trim_end_matches('*').to_owned() + "*",
            _ if key.ends_with('*') => {
                format!("~{}", crate::shared::regex::literal(key.trim_start_matches('\\')))
            }
            _ => key.strip_prefix('\\').unwrap_or(key).to_owned(),
        };
        cx.ledger.same(line.piece);
        let is_text = is_text(&line) && has_letters(key);
        match (is_text, lowers) {
            (true, true) => values.set(written.to_ascii_lowercase(), value),
            // nginx finds texts before regexes, so these stand first.
            (true, false) => {
                let pattern = match written.strip_prefix('~') {
                    Some(pattern) => pattern.to_owned(),
                    None => match written.strip_suffix('*') {
                        Some(start) => format!("{}.*", crate::shared::regex::literal(start)),
                        None => crate::shared::regex::literal(&written),
                    },
                };
                texts.set(format!("~(?i){pattern}"), value);
            }
            (false, _) => values.set(written, value),
        }
    }
    for (key, value) in values.iter() {
        texts.set(key, value.clone());
    }
    let values = texts;
    if !values.is_empty() {
        map.set("values", values);
    }
    map.set_some("default", default);
    cx.ledger.same(directive.piece);
    Ok((map, computed))
}

/// Whether a line of a table is no value.
fn is_setting(name: &str) -> bool {
    matches!(name, "default" | "hostnames" | "include" | "volatile")
}

/// The letters, digits and `_` at the start of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// `.example.com` and `*.example.com` as a pattern for the whole host.
fn regex_host(key: &str) -> String {
    let rest = key.trim_start_matches('*').trim_start_matches('.');
    let end = crate::shared::regex::literal(rest);
    if key.starts_with('.') { format!(r"(.*\.)?{end}") } else { format!(r".*\.{end}") }
}
