//! The page for a browser: what `GET /status` tells, for people. One file, no script, nothing loaded from anywhere.

use crate::api::ENDPOINTS;
use std::fmt::{Display, Write};
use weir_gateway::Status;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b2a33}\
h1,h2{line-height:1.2}table{border-collapse:collapse}th,td{text-align:left;padding:.2rem 1.5rem .2rem 0;vertical-align:top}\
th{font-weight:600}code{font-family:ui-monospace,monospace}.down{color:#b00020}";

/// The page.
pub(crate) fn render(status: &Status) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Weir</title>\n<style>{STYLE}</style>\n\
         <h1>Weir {}</h1>\n",
        escape(&status.version)
    );
    about(&mut page, status);
    listeners(&mut page, status);
    upstreams(&mut page, status);
    endpoints(&mut page);
    page.push_str("</html>\n");
    page
}

fn about(page: &mut String, status: &Status) {
    let rows: [(&str, &dyn Display); 7] = [
        ("State", &status.state),
        ("Config revision", &status.revision),
        ("Up for", &format_args!("{} s", status.uptime_seconds)),
        ("Workers", &status.workers),
        ("Routes", &status.routes),
        ("Connections", &status.connections),
        ("Requests", &status.requests),
    ];
    page.push_str("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><th>{name}<td>{}", escape(value)); // a String takes all
    }
    page.push_str("</table>\n");
}

fn listeners(page: &mut String, status: &Status) {
    page.push_str("<h2>Listeners</h2>\n<table>\n<tr><th>Name<th>Address\n");
    for (name, address) in &status.listeners {
        let _ = writeln!(page, "<tr><td>{}<td><code>{}</code>", escape(name), escape(address));
    }
    page.push_str("</table>\n");
}

fn upstreams(page: &mut String, status: &Status) {
    if status.upstreams.is_empty() {
        return;
    }
    page.push_str("<h2>Upstreams</h2>\n<table>\n<tr><th>Name<th>Endpoint<th>Weight<th>Health\n");
    for (name, endpoints) in &status.upstreams {
        if endpoints.is_empty() {
            let _ = writeln!(page, "<tr><td>{}<td class=\"down\">no endpoint<td><td>", escape(name));
        }
        for endpoint in endpoints {
            let (class, health) = match &endpoint.out {
                None => ("up", "healthy".to_owned()),
                Some(out) => ("down", format!("{} since {}", escape(out.cause), escape(&out.since))),
            };
            let (name, address) = (escape(name), escape(&endpoint.address));
            let weight = endpoint.weight;
            let _ = writeln!(
                page,
                "<tr><td>{name}<td><code>{address}</code><td>{weight}<td class=\"{class}\">{health}"
            );
        }
    }
    page.push_str("</table>\n");
}

fn endpoints(page: &mut String) {
    page.push_str("<h2>This listener</h2>\n<table>\n");
    for endpoint in ENDPOINTS {
        let (path, methods) = (endpoint.path, endpoint.methods());
        let path = if methods == "POST" {
            format!("<code>POST {path}</code>")
        } else {
            format!("<a href=\"{path}\"><code>{path}</code></a>")
        };
        let _ = writeln!(page, "<tr><td>{path}<td>{}", endpoint.meaning);
    }
    page.push_str("</table>\n");
}

fn escape(text: impl Display) -> String {
    let text = text.to_string();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_not_break_out() {
        let evil = "<script>alert('1')</script>\"&";
        let status = Status {
            version: evil.to_owned(),
            revision: evil.to_owned(),
            state: "running",
            uptime_seconds: 1,
            workers: 1,
            connections: 0,
            requests: 0,
            listeners: vec![(evil.to_owned(), evil.to_owned())],
            upstreams: vec![(evil.to_owned(), Vec::new())],
            routes: 1,
        };
        let page = render(&status);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    }
}
