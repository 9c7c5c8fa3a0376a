//! The page for a browser: what `GET /status` tells, for people. One file, no script, nothing loaded from anywhere.

use crate::api::ENDPOINTS;
use std::fmt::{Display, Write};
use weir_gateway::{EndpointStatus, Status};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b2a33}\
h1,h2{line-height:1.2}table{border-collapse:collapse}th,td{text-align:left;padding:.2rem 1.5rem .2rem 0;vertical-align:top}\
th{font-weight:600}code{font-family:ui-monospace,monospace}.down{color:#b00020}";

/// From how few days on a certificate is shown as a trouble: from then on `weir check` warns of it.
const SOON_DAYS: i64 = 14;

/// The page.
pub(crate) fn render(status: &Status) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Weir</title>\n<style>{STYLE}</style>\n\
         <h1>Weir {}</h1>\n",
        escape(&status.version)
    );
    about(&mut page, status);
    if let Some(why) = &status.pinned {
        let _ = writeln!(
            page,
            "<p class=\"down\">The files do not run: a revision of the history does, since {}",
            escape(why)
        );
    }
    if let Some(why) = &status.unsaved {
        let _ = writeln!(
            page,
            "<p class=\"down\">The config runs from memory only: it could not be written down: {}",
            escape(why)
        );
    }
    last_reload(&mut page, status);
    causes(&mut page, status);
    listeners(&mut page, status);
    certificates(&mut page, status);
    upstreams(&mut page, status);
    endpoints(&mut page);
    page.push_str("</html>\n");
    page
}

fn about(page: &mut String, status: &Status) {
    let rows: [(&str, &dyn Display); 8] = [
        ("State", &status.state),
        ("Config revision", &status.revision),
        ("Up for", &format_args!("{} s", status.uptime_seconds)),
        ("Workers", &status.workers),
        ("Routes", &status.routes),
        ("Connections", &status.connections),
        ("Requests", &status.requests),
        ("Requests a second", &format_args!("{:.1}", status.requests_per_second)),
    ];
    page.push_str("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><th>{name}<td>{}", escape(value)); // a String takes all
    }
    page.push_str("</table>\n");
}

fn last_reload(page: &mut String, status: &Status) {
    let Some(reload) = &status.last_reload else { return };
    let (class, at) = (if reload.error.is_some() { "down" } else { "up" }, escape(&reload.at));
    let _ = writeln!(page, "<h2>Last reload</h2>\n<p class=\"{class}\">{} at {at}", escape(reload.result));
    if let Some(error) = &reload.error {
        let _ = writeln!(page, "<pre>{}</pre>", escape(error));
    }
}

fn causes(page: &mut String, status: &Status) {
    if status.causes.is_empty() {
        return;
    }
    page.push_str("<h2>Answers of the gateway's own</h2>\n<table>\n<tr><th>Cause<th>Count\n");
    for cause in &status.causes {
        let _ = writeln!(page, "<tr><td><code>{}</code><td>{}", escape(cause.cause), cause.count);
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

fn certificates(page: &mut String, status: &Status) {
    if status.certificates.is_empty() {
        return;
    }
    page.push_str("<h2>Certificates</h2>\n<table>\n<tr><th>File<th>Names<th>Days left<th>Until\n");
    for certificate in &status.certificates {
        let class = if certificate.days_left < SOON_DAYS { "down" } else { "up" };
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code><td>{}<td class=\"{class}\">{}<td>{}",
            escape(&certificate.cert),
            escape(certificate.names.join(" ")),
            certificate.days_left,
            escape(&certificate.not_after)
        );
    }
    page.push_str("</table>\n");
}

fn upstreams(page: &mut String, status: &Status) {
    if status.upstreams.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Upstreams</h2>\n<table>\n<tr><th>Name<th>Endpoint<th>Weight<th>Health<th>Answered<th>Failed\
         <th>First byte<th>Last error\n",
    );
    for (name, upstream) in &status.upstreams {
        if upstream.endpoints.is_empty() {
            let _ = writeln!(page, "<tr><td>{}<td class=\"down\">no endpoint<td><td>", escape(name));
        }
        if upstream.panic {
            let said = "too few endpoints in rotation: unwell ones are used too";
            let _ = writeln!(page, "<tr><td>{}<td class=\"down\" colspan=\"7\">{said}", escape(name));
        }
        for at in &upstream.endpoints {
            let (class, health) = if at.healthy { ("up", "healthy".to_owned()) } else { ("down", why(at)) };
            let first_byte = at.first_byte_ms.map_or_else(String::new, |ms| format!("{ms} ms"));
            let error =
                at.last_error.as_ref().map_or_else(String::new, |e| format!("{} at {}", e.cause, e.at));
            let _ = writeln!(
                page,
                "<tr><td>{}<td><code>{}</code><td>{}<td class=\"{class}\">{health}<td>{}<td>{}<td>{}<td>{}",
                escape(name),
                escape(&at.address),
                at.weight,
                at.answered,
                at.failed,
                escape(first_byte),
                escape(error)
            );
        }
    }
    page.push_str("</table>\n");
    names(page, status);
}

/// Every reason why an endpoint is out of rotation.
fn why(endpoint: &EndpointStatus) -> String {
    let each = endpoint.reasons.iter().map(|why| {
        let until = why.until.as_ref().map_or_else(String::new, |until| format!(", until {until}"));
        let detail = why.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        escape(format!("{} ({}{detail}) since {}{until}", why.reason, why.cause, why.since))
    });
    each.collect::<Vec<_>>().join("<br>")
}

/// What the names among the endpoints resolved to.
fn names(page: &mut String, status: &Status) {
    let all = || status.upstreams.iter().flat_map(|(_, upstream)| &upstream.names);
    if all().next().is_none() {
        return;
    }
    page.push_str("<h2>Names</h2>\n<table>\n<tr><th>Name<th>Addresses<th>Resolved<th>Error\n");
    for name in all() {
        let age = name.age_seconds.map_or_else(|| "never".to_owned(), |age| format!("{age} s ago"));
        let error = name.error.as_deref().unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td>{}<td><code>{}</code><td>{age}<td class=\"down\">{}",
            escape(&name.name),
            escape(name.addresses.join(" ")),
            escape(error)
        );
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
    use weir_gateway::{CertificateStatus, NameStatus, OutOfRotation, ReloadStatus, UpstreamStatus};

    #[test]
    fn names_can_not_break_out() {
        let evil = "<script>alert('1')</script>\"&";
        let name = NameStatus {
            name: evil.to_owned(),
            addresses: vec![evil.to_owned()],
            age_seconds: None,
            error: Some(evil.to_owned()),
        };
        let reason = OutOfRotation {
            reason: "probe_failed",
            cause: evil.to_owned(),
            detail: Some(evil.to_owned()),
            since: String::new(),
            until: None,
        };
        let endpoint = EndpointStatus {
            address: evil.to_owned(),
            weight: 1,
            priority: 0,
            zone: None,
            healthy: false,
            state: "probe_failed",
            reasons: vec![reason],
            answered: 0,
            failed: 0,
            first_byte_ms: None,
            last_error: None,
        };
        let upstream = UpstreamStatus { panic: true, endpoints: vec![endpoint], names: vec![name] };
        let status = Status {
            version: evil.to_owned(),
            revision: evil.to_owned(),
            state: "running",
            uptime_seconds: 1,
            workers: 1,
            connections: 0,
            requests: 0,
            number: None,
            trial: None,
            pinned: Some(evil.to_owned()),
            unsaved: Some(evil.to_owned()),
            requests_per_second: 0.0,
            last_reload: Some(ReloadStatus {
                at: String::new(),
                result: "refused",
                error: Some(evil.to_owned()),
            }),
            causes: Vec::new(),
            listeners: vec![(evil.to_owned(), evil.to_owned())],
            certificates: vec![CertificateStatus {
                cert: evil.to_owned(),
                names: vec![evil.to_owned()],
                not_after: evil.to_owned(),
                days_left: 1,
                acme: None,
            }],
            upstreams: vec![(evil.to_owned(), upstream)],
            routes: 1,
            filters: Vec::new(),
        };
        let page = render(&status);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    }
}
