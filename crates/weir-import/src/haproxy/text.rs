//! Texts in the format of HAProxy's log, `https://%[req.hdr(host)]%[path]`, as texts with Weir's placeholders.

use super::context::Cx;
use super::sample::{Sample, Scope, sample, uri};
use crate::shared::template::{Part, Template};

/// Reads a text.
///
/// # Errors
/// What it has that Weir lacks.
pub(super) fn template(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, text: &str) -> Result<Template, String> {
    let mut out = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push(Part::Text(rest[..at].to_owned()));
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push(Part::Text("%".to_owned()));
            rest = behind;
            continue;
        }
        if let Some(behind) = rest.strip_prefix('{') {
            rest = behind.split_once('}').ok_or("`%{` is not closed")?.1;
        }
        if let Some(behind) = rest.strip_prefix('[') {
            let end = closing(behind).ok_or("`%[` is not closed")?;
            let value = sample(cx, scope, &behind[..end])?;
            out.push(part(&value));
            rest = &behind[end + 1..];
            continue;
        }
        let name: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
        let known = |name: &str| Part::Placeholder(name.to_owned());
        match &*name {
            "ci" => out.push(known("client")),
            "HM" => out.push(known("method")),
            "HP" => out.push(known("path")),
            "ID" => out.push(known("request_id")),
            "HU" => out.push(Part::Value(uri())),
            _ => return Err(format!("weir import does not know `%{name}`")),
        }
        rest = &rest[name.len()..];
    }
    out.push(Part::Text(rest.to_owned()));
    Ok(out)
}

/// Where the bracket of a sample expression closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A value as a placeholder, where there is one: it is escaped for its place.
fn part(value: &Sample) -> Part {
    let name = match value.is.as_str() {
        "client.ip" => "client",
        "request.headers[\"host\"]" | "request.headers[\"host\"].lowerAscii()" => "authority",
        "request.host" => "host",
        "request.id" => "request_id",
        "request.method" => "method",
        "request.path" => "path",
        "request.query" => "query",
        _ => return Part::Value(value.as_text()),
    };
    Part::Placeholder(name.to_owned())
}

/// A target of a redirect: the text, and whether the client's query is kept.
pub(super) fn target(template: &Template) -> (String, bool) {
    let mut parts = template.parts().to_vec();
    let whole = uri();
    let mut keeps = false;
    let is_query = |part: &Part| matches!(part, Part::Placeholder(name) if name == "query");
    match parts.last() {
        Some(Part::Value(value)) if *value == whole => {
            keeps = true;
            parts.pop();
            parts.push(Part::Placeholder("path".to_owned()));
        }
        Some(last) if is_query(last) => {
            keeps = true;
            parts.pop();
            if let Some(Part::Text(text)) = parts.last_mut()
                && text.ends_with('?')
            {
                text.pop();
            }
        }
        _ => {}
    }
    let mut out = Template::default();
    parts.into_iter().for_each(|part| out.push(part));
    (out.to_setting(), keeps)
}
