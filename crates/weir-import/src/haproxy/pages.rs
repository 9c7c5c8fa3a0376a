//! `errorfile` and `compression`: pages in the place of errors, and smaller answers.

use super::context::Cx;
use super::model::Proxy;
use super::read::Line;
use crate::config::{Filter, name_of};
use crate::shared::template::Template;
use crate::yaml::{Map, Value};

/// Largest page that Weir takes.
const MAX_PAGE: usize = 256 << 10;

/// `errorfile`, `errorfiles` and `http-error` as the filter `errors`, which stands before the others.
pub(super) fn errors(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, filters: &mut Vec<Filter>) {
    let mut pages = Map::new();
    // Of several for one status the last counts.
    let lines: Vec<&Line> = proxy
        .lines
        .iter()
        .copied()
        .filter(|line| {
            matches!(
                line.key(),
                "errorfile" | "errorloc" | "errorloc302" | "errorloc303" | "errorfiles" | "http-error"
            )
        })
        .collect();
    for line in lines {
        match line.key() {
            "errorfile" => file(cx, line, line.word(1), line.word(2), &mut pages),
            "errorfiles" => {
                let sections: Vec<_> = cx
                    .model
                    .others
                    .iter()
                    .copied()
                    .filter(|section| section.kind == "http-errors" && section.name == line.word(1))
                    .collect();
                if sections.is_empty() {
                    cx.ledger.refused(
                        line.piece,
                        "no section `http-errors` has this name",
                        "correct the source",
                    );
                }
                for section in sections {
                    cx.ledger.same(section.head.piece);
                    cx.ledger.same(line.piece);
                    for inner in section.lines.iter().filter(|inner| inner.key() == "errorfile") {
                        let wanted = line.from(2).is_empty() || line.has(2, inner.word(1));
                        if wanted {
                            file(cx, inner, inner.word(1), inner.word(2), &mut pages);
                        }
                    }
                }
            }
            "http-error" => http_error(cx, line, &mut pages),
            _ => elsewhere(cx, line, &mut pages),
        }
    }
    if !pages.is_empty() {
        filters.insert(0, Filter::new("errors", pages));
    }
}

/// A file of HAProxy: a whole answer, with its head.
fn file(cx: &mut Cx<'_, '_, '_>, line: &Line, status: &str, path: &str, pages: &mut Map) {
    let nearest = "errors: { STATUS: { file: PAGE } }, where the page has no head";
    if status.parse::<u16>().is_err() || path == "/dev/null" {
        return cx.ledger.left_out(line.piece, "an empty answer in the place of a page");
    }
    let text = match cx.text_of(path) {
        Ok(text) => text,
        Err(why) => {
            return cx.ledger.refused(
                line.piece,
                format!("the page must be read by weir import: {why}"),
                nearest,
            );
        }
    };
    let Some((head, body)) = text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n")) else {
        return cx.ledger.refused(line.piece, "the file is no whole answer of HTTP", nearest);
    };
    if body.len() > MAX_PAGE {
        return cx.ledger.refused(line.piece, "a page of more than 256 KiB", nearest);
    }
    let sent = head.split(' ').nth(1).unwrap_or_default();
    let suffix = if head.to_ascii_lowercase().contains("application/json") { "json" } else { "html" };
    let stem = path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or(status);
    let name = format!("pages/{}.{suffix}", name_of(stem));
    cx.config.files.insert(name.clone(), Template::text(body).to_body());
    pages.set(status, Map::new().with("file", name));
    if sent == status {
        cx.ledger.changed(
            line.piece,
            "the page without its head: Weir writes the fields, and names the status itself",
        );
    } else {
        cx.ledger.changed(line.piece, format!("Weir answers {status}, where the page said {sent}"));
    }
}

/// `errorloc 503 URL`: the client is sent elsewhere.
fn elsewhere(cx: &mut Cx<'_, '_, '_>, line: &Line, pages: &mut Map) {
    let (status, url) = (line.word(1), line.word(2));
    let is_fixed = !super::read::has_variable(url) && url.bytes().all(|byte| byte.is_ascii_graphic());
    if status.parse::<u16>().is_err() || url.is_empty() || !is_fixed {
        let nearest = "errors: { STATUS: { redirect: URL } }";
        return cx.ledger.refused(line.piece, "an error that leads to no fixed URL", nearest);
    }
    let mut page = Map::new().with("redirect", Template::text(url).to_setting());
    if line.key() == "errorloc303" {
        page.set("status", 303_u16);
    }
    pages.set(status, page);
    cx.ledger.same(line.piece);
}

/// `http-error status 503 content-type text/html string "…"`.
fn http_error(cx: &mut Cx<'_, '_, '_>, line: &Line, pages: &mut Map) {
    let (Some(status), Some(text)) = (line.after(1, "status"), line.after(1, "string")) else {
        return cx.ledger.refused(
            line.piece,
            "a page that is no literal text",
            "errors: { STATUS: { body, type } }",
        );
    };
    let mut page = Map::new().with("body", Template::text(text).to_body());
    page.set_some("type", line.after(1, "content-type"));
    pages.set(status, page);
    cx.ledger.same(line.piece);
}

/// `compression algo gzip` with `compression type …`.
pub(super) fn compression(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, rules: &mut super::rules::Rules) {
    let Some(line) = proxy.one(&["compression", "algo"]).or_else(|| proxy.one(&["compression", "algo-res"]))
    else {
        return;
    };
    let gzip = line.has(2, "gzip") || line.has(2, "deflate") || line.has(2, "raw-deflate");
    if !gzip {
        return cx.ledger.left_out(line.piece, "identity: no compression");
    }
    cx.ledger.changed(
        line.piece,
        "Weir leaves bodies below 1 KiB as they are, and sends gzip where HAProxy would send deflate",
    );
    let mut map = Map::new().with("algorithms", vec!["gzip"]);
    match proxy.one(&["compression", "type"]).or_else(|| proxy.one(&["compression", "type-res"])) {
        Some(types) => {
            cx.ledger.same(types.piece);
            map.set("types", types.from(2).to_vec());
        }
        None => map.set("types", Value::List(vec!["*/*".into()])),
    }
    if let Some(offload) = proxy.one(&["compression", "offload"]) {
        cx.ledger.changed(
            offload.piece,
            "Weir asks upstreams as the client asked, and compresses what is not compressed",
        );
    }
    // Answers of rules are not compressed.
    if !rules.answers {
        rules.filters.push(Filter::new("compress", map));
    }
}
