//! Texts with Caddy's placeholders as texts with Weir's.

use crate::shared::expression::Expression;
use crate::shared::template::{Part, Template};
use crate::yaml::{VARIABLE_BEGIN, VARIABLE_END};
use std::collections::BTreeMap;

/// What placeholders may stand for at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// `vars`, and what `map` fills in: expressions or texts.
    pub(super) vars: BTreeMap<String, Template>,
    /// The name of the regex whose groups are captures of the route.
    pub(super) captures: Option<String>,
    /// Whether the text is a page for an error.
    pub(super) is_error: bool,
    /// Whether the text is part of an answer.
    pub(super) is_answer: bool,
}

/// A text as a template.
///
/// # Errors
/// The placeholder that Weir lacks.
pub(super) fn template(text: &str, scope: &Scope) -> Result<Template, String> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, behind) = rest.split_at(at);
        // `\{` is a brace.
        if let Some(before) = before.strip_suffix('\\') {
            template.push(Part::Text(format!("{before}{{")));
            rest = &behind[1..];
            continue;
        }
        template.push(Part::Text(before.to_owned()));
        let name = behind[1..].split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        match name {
            Some(name) => {
                match value(name, scope) {
                    Some(Ok(parts)) => template.append(parts),
                    Some(Err(())) => return Err(format!("{{{name}}}")),
                    // Not one of Caddy's: it stays as it is.
                    None => template.push(Part::Text(format!("{{{name}}}"))),
                }
                rest = &behind[name.len() + 2..];
            }
            None => {
                template.push(Part::Text("{".to_owned()));
                rest = &behind[1..];
            }
        }
    }
    template.push(Part::Text(rest.to_owned()));
    Ok(template)
}

/// Whether a text holds a placeholder of Caddy.
pub(super) fn has_placeholder(text: &str) -> bool {
    template(text, &Scope::default()).map_or(true, |template| template.as_literal().is_none())
}

/// A placeholder as an expression.
pub(super) fn expression(name: &str, scope: &Scope) -> Option<Expression> {
    let parts = value(name, scope)?.ok()?;
    match parts.parts() {
        [] => Some(Expression::text("")),
        [Part::Text(text)] => Some(Expression::text(text)),
        [Part::Value(expression)] => Some(expression.clone()),
        [Part::Placeholder(name)] => Some(Expression::raw(match &**name {
            "client" => "client.ip",
            "consumer" => "consumer.name",
            "host" => "request.host",
            "method" => "request.method",
            "path" => "request.path",
            "query" => "request.query",
            "scheme" => "request.scheme",
            _ => return None,
        })),
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '*' | '>'))
}

/// What a placeholder stands for. `Err` if Weir lacks it, none if Caddy has no such placeholder.
fn value(name: &str, scope: &Scope) -> Option<Result<Template, ()>> {
    let placeholder = |name: &str| {
        let mut template = Template::default();
        template.push(Part::Placeholder(name.to_owned()));
        Some(Ok(template))
    };
    let expression = |expression: Expression| {
        let mut template = Template::default();
        template.push(Part::Value(expression));
        Some(Ok(template))
    };
    if let Some(known) = scope.vars.get(name) {
        return Some(Ok(known.clone()));
    }
    let short = name.strip_prefix("http.request.").unwrap_or(name);
    match short {
        "host" => placeholder("host"),
        "hostport" => placeholder("authority"),
        "method" | "orig_method" => placeholder("method"),
        "scheme" => placeholder("scheme"),
        "path" | "uri.path" | "orig_uri.path" => placeholder("path"),
        "query" | "uri.query" | "orig_uri.query" => placeholder("query"),
        "uri" | "orig_uri" => {
            let mut template = Template::default();
            template.push(Part::Placeholder("path".to_owned()));
            let query = Expression::raw("request.query == \"\" ? \"\" : \"?\" + request.query");
            template.push(Part::Value(query));
            Some(Ok(template))
        }
        "remote_host" | "remote.host" | "remote_ip" | "client_ip" | "http.vars.client_ip" => {
            placeholder("client")
        }
        "tls_client_subject" | "tls.client.subject" => placeholder("tls_client_subject"),
        "http.auth.user.id" => placeholder("consumer"),
        "tls_client_fingerprint" | "tls.client.fingerprint" => placeholder("tls_client_fingerprint"),
        "tls.server_name" => expression(Expression::raw("client.sni")),
        "http.error.status_code" | "err.status_code" if scope.is_error => placeholder("status"),
        "http.error.status_text" | "err.status_text" if scope.is_error => placeholder("reason"),
        "http.error.message" | "err.message" if scope.is_error => placeholder("detail"),
        "uuid" => Some(Err(())),
        _ => {
            let keyed = [
                ("header.", "request.headers", true),
                ("cookie.", "request.cookies", false),
                ("query.", "request.args", false),
                ("uri.query.", "request.args", false),
            ];
            for (start, variable, ignores_case) in keyed {
                if let Some(key) = short.strip_prefix(start) {
                    let key = if ignores_case { key.to_ascii_lowercase() } else { key.to_owned() };
                    return expression(Expression::of(variable, &key));
                }
            }
            if let Some(name) = name.strip_prefix("env.") {
                let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                // Caddy reads it for each request; a variable that is not set is empty.
                let text = format!("{VARIABLE_BEGIN}{name}:-{VARIABLE_END}");
                return is_name.then(|| Ok(Template::text(&text)));
            }
            if let Some(field) =
                name.strip_prefix("http.reverse_proxy.header.").or_else(|| name.strip_prefix("rp.header."))
            {
                return match scope.is_answer {
                    true => expression(Expression::of("response.headers", &field.to_ascii_lowercase())),
                    false => Some(Err(())),
                };
            }
            if let Some(group) = short.strip_prefix("re.").or_else(|| name.strip_prefix("http.regexp.")) {
                let (of, group) = group.rsplit_once('.').unwrap_or(("", group));
                return match &scope.captures {
                    Some(known) if known == of || of.is_empty() => placeholder(group),
                    _ => Some(Err(())),
                };
            }
            let is_caddys = [
                "http.",
                "system.",
                "time.",
                "tls",
                "vars.",
                "labels.",
                "path.",
                "file",
                "dir",
                "rp.",
                "err.",
                "upstream_",
                "remote",
                "orig_",
                "host.",
                "uri.",
            ]
            .iter()
            .any(|start| name.starts_with(start))
                && !matches!(name, "file_" | "dirs");
            is_caddys.then_some(Err(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_ours() {
        let scope = Scope::default();
        let cases = [
            ("https://{host}{path}", "https://{host}{path}"),
            ("{http.request.header.X-A}", "{= request.headers[\"x-a\"] }"),
            ("{\"a\": 1}", "{{\"a\": 1}}"),
            ("{unknown}", "{{unknown}}"),
            ("{remote_host}", "{client}"),
        ];
        for (text, written) in cases {
            assert_eq!(template(text, &scope).unwrap().to_setting(), written, "{text}");
        }
        assert!(template("{http.request.uuid}", &scope).is_err());
        assert!(template("{time.now.unix}", &scope).is_err());
    }
}
