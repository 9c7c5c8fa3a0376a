//! The fields of answers: `add_header`, `expires` and what is hidden.

use super::context::{Cx, Scope};
use super::read::Directive;
use super::text::template;
use crate::config::Filter;
use crate::shared::filters::Headers;
use crate::shared::units::read_duration;
use crate::yaml::Value;

/// The fields of answers: `proxy_hide_header`, `add_header`, `expires`.
pub(super) fn response_fields<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    is_proxied: bool,
) -> Option<Filter> {
    let mut headers = Headers::default();
    if is_proxied {
        for name in ["proxy_hide_header", "fastcgi_hide_header"] {
            for hide in scope.block.nearest(name) {
                cx.ledger.same(hide.piece);
                headers.response_remove.push(hide.first().to_ascii_lowercase());
            }
        }
    }
    if let Some(expires) = scope.block.one("expires") {
        let value = expires.args.last().map_or("", String::as_str);
        let control = match value {
            "off" => None,
            "epoch" => Some("no-cache".to_owned()),
            "max" => Some("max-age=315360000".to_owned()),
            time if time.starts_with('-') => Some("no-cache".to_owned()),
            time => read_duration(time, 1000).map(|ms| format!("max-age={}", ms / 1000)),
        };
        match (value, control) {
            ("off", _) => cx.ledger.same(expires.piece),
            (_, Some(control)) if expires.args.len() == 1 => {
                cx.ledger.changed(
                    expires.piece,
                    "Weir sends Cache-Control alone, which browsers prefer to Expires",
                );
                headers.response_set.push(("cache-control".to_owned(), control.into()));
            }
            _ => {
                let why = "Weir counts from now, by a fixed time";
                cx.ledger.refused(expires.piece, why, "headers: { response: { set: { cache-control } } }");
            }
        }
    }
    for field in scope.block.nearest("add_header") {
        add(cx, scope, field, &mut headers);
    }
    headers.filter()
}

/// The fields that a block `if` adds to its answer, which has this status.
pub(super) fn fields_of_if<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    lines: &[&'a Directive],
    status: Option<u16>,
) -> Option<Filter> {
    let mut headers = Headers::default();
    for line in lines {
        let is_always = line.args.iter().skip(2).any(|word| word == "always");
        match status {
            Some(400..) if !is_always => {
                cx.ledger.left_out(line.piece, "without `always`, nginx does not add it to an error");
            }
            _ => add(cx, scope, line, &mut headers),
        }
    }
    headers.filter()
}

/// One `add_header`.
fn add(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, field: &Directive, headers: &mut Headers) {
    let [name, value, rest @ ..] = &*field.args else {
        cx.ledger.refused(field.piece, "a field has a name and a value", "headers: { response: { add } }");
        return;
    };
    let lower = name.to_ascii_lowercase();
    if matches!(&*lower, "connection" | "content-length" | "transfer-encoding") {
        return cx
            .ledger
            .left_out(field.piece, "Weir alone says where a message ends, and how long a connection lives");
    }
    match template(cx, scope, value) {
        Ok(text) => {
            let is_always = rest.iter().any(|word| word == "always");
            if is_always {
                cx.ledger.same(field.piece);
            } else {
                cx.ledger
                    .changed(field.piece, "Weir adds the field to errors too, as nginx does with `always`");
            }
            let value = Value::Text(text.to_setting());
            let single = SINGLE.contains(&&*lower);
            let known =
                headers.response_add.iter_mut().chain(&mut headers.response_set).find(|(n, _)| *n == lower);
            match known {
                // A map has one value for each name; several of a list are one list.
                Some((_, Value::Text(known))) => {
                    if let Value::Text(value) = value {
                        *known = format!("{known}, {value}");
                    }
                }
                _ if single => {
                    cx.ledger
                        .changed(field.piece, "where an upstream sends the field too, this one counts alone");
                    headers.response_set.push((lower, value));
                }
                _ => headers.response_add.push((lower, value)),
            }
        }
        Err(why) => cx.ledger.refused(field.piece, why, "headers: { response: { add } }"),
    }
}

/// Fields that browsers expect once: two of them are an error, or the stricter counts.
const SINGLE: &[&str] = &[
    "strict-transport-security",
    "x-frame-options",
    "x-content-type-options",
    "x-xss-protection",
    "referrer-policy",
    "access-control-allow-origin",
    "content-type",
];
