//! Writes a step's request, and the request that follows a redirect.

use super::crew::{Crew, Job};
use super::h1::Wanted;
use super::user::Session;
use crate::grpc;
use std::io::Write as _;
use weir_plan::{Kind, Request, Target, Url};

/// Redirects (RFC 9110 §15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// What follows an answer that may be a redirect.
pub(super) enum Hop {
    /// It cannot be followed.
    Broken(String),
    /// It is the answer of the step.
    None,
    /// The job now holds the next request.
    Next,
}

/// Writes the request of a step into the job.
///
/// # Errors
/// A placeholder has no value, or the text is not what its place needs.
pub(super) fn first(
    crew: &Crew,
    session: &mut Session,
    request: &Request,
    job: &mut Job,
) -> Result<(), String> {
    let plan = &crew.journey.plan;
    session.scope.set_counter(crew.count());
    session.scope.set_now(crew.unix());
    job.row = usize::from(request.id.0);
    job.timeout = request.timeout;
    job.visited.clear();
    job.method.clone_from(&request.method);
    job.kind = Some(request.kind);
    job.call_text = None;
    // Known even if the rest cannot be written: the failure is counted like any other.
    (job.head_bytes, job.origin) = (0, 0);
    job.bytes.clear();
    job.text.clear();
    job.body.clear();
    let random = &mut crew.random.borrow_mut();
    let scope = &session.scope;
    match &request.target {
        Target::At { origin, path } => {
            job.origin = *origin;
            path.write(scope, &mut job.text, random).map_err(|e| e.to_string())?;
            let path = str::from_utf8(&job.text).map_err(|e| e.to_string())?;
            job.path.clear();
            job.path.push_str(if path.is_empty() { "/" } else { path });
        }
        Target::Any(url) => {
            url.write(scope, &mut job.text, random).map_err(|e| e.to_string())?;
            let text = str::from_utf8(&job.text).map_err(|e| e.to_string())?;
            let url = match plan.origins.first() {
                Some(first) if !text.contains("://") => {
                    Url { origin: first.clone(), path: "/".to_owned() }.join(text)
                }
                _ => Url::parse(text),
            };
            let url = url.map_err(|e| format!("`{text}`: {e}"))?;
            job.origin = plan
                .position_of(&url.origin)
                .ok_or_else(|| format!("`{}` is no server that the plan names", url.origin))?;
            job.path = url.path;
        }
    }
    let method = crew.journey.method(job.row);
    if method.is_none() && request.kind == Kind::Grpc {
        return Err("the method of the call is not known".to_owned());
    }
    match (&request.body, method.and_then(|m| m.framed.as_ref())) {
        (_, Some(framed)) => job.body.extend_from_slice(framed),
        (Some(body), None) => {
            body.write(scope, &mut job.body, random).map_err(|e| e.to_string())?;
            if let Some(method) = method {
                let json = std::mem::take(&mut job.body);
                method.call.frame(&json, &mut job.body).map_err(|why| format!("the message {why}"))?;
            }
        }
        (None, None) => {}
    }
    write_line(crew, job);
    let mut has_host = false;
    for (name, value) in &request.headers {
        has_host |= name == "host";
        job.bytes.extend_from_slice(name.as_bytes());
        job.bytes.extend_from_slice(b": ");
        value.write(scope, &mut job.bytes, random).map_err(|e| e.to_string())?;
        job.bytes.extend_from_slice(b"\r\n");
    }
    let is_written = |name: &str| request.headers.iter().any(|(written, _)| written == name);
    match request.kind {
        Kind::Http => {}
        Kind::Grpc => {
            // As a single call has them, in `options::request`.
            let _ = write!(job.bytes, "te: trailers\r\ngrpc-timeout: {}\r\n", grpc::timeout(request.timeout));
            if !is_written("content-type") {
                job.bytes.extend_from_slice(b"content-type: application/grpc\r\n");
            }
        }
        Kind::WebSocket => {
            let fields = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";
            job.bytes.extend_from_slice(fields.as_bytes());
        }
    }
    // Cookies are of HTTP; a library for gRPC has no jar.
    let has_cookie = is_written("cookie") || request.kind == Kind::Grpc;
    let has_length = request.kind == Kind::Http && has_body(job, request.body.is_some());
    finish(crew, session, job, has_host, has_cookie, has_length);
    let body_most = if request.needs_body { plan.body_limit } else { 0 };
    let upgrades = request.kind == Kind::WebSocket;
    job.wanted = Some(Wanted { is_head: job.method == "HEAD", body_most, upgrades });
    Ok(())
}

/// The request line.
fn write_line(crew: &Crew, job: &mut Job) {
    let proxied = crew.worker.plan.origins.get(job.origin).and_then(|o| o.proxy.as_ref());
    job.bytes.clear();
    job.bytes.extend_from_slice(job.method.as_bytes());
    job.bytes.push(b' ');
    // RFC 9112 §3.2.2: a request to a proxy has the whole URL.
    if proxied.is_some_and(|proxy| proxy.connect.is_none())
        && let Some(origin) = crew.journey.plan.origins.get(job.origin)
    {
        let _ = write!(job.bytes, "{origin}"); // writing to a Vec cannot fail, here and below
    }
    job.bytes.extend_from_slice(job.path.as_bytes());
    job.bytes.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authorization) = proxied.and_then(|proxy| proxy.authorization.as_ref()) {
        let _ = write!(job.bytes, "proxy-authorization: {authorization}\r\n");
    }
}

/// Whether the request states the length of its body: also of none, with a method that has one (RFC 9110 §8.6).
fn has_body(job: &Job, is_given: bool) -> bool {
    is_given || matches!(job.method.as_str(), "POST" | "PUT" | "PATCH")
}

/// Host, cookies, length and body.
fn finish(crew: &Crew, session: &Session, job: &mut Job, has_host: bool, has_cookie: bool, has_length: bool) {
    let plan = &crew.journey.plan;
    if let Some(origin) = plan.origins.get(job.origin) {
        if !has_host && let Some(authority) = crew.journey.authorities.get(job.origin) {
            job.bytes.extend_from_slice(b"host: ");
            job.bytes.extend_from_slice(authority.as_bytes());
            job.bytes.extend_from_slice(b"\r\n");
        }
        if session.has_cookies && !has_cookie && !session.jar.is_empty() {
            let before = job.bytes.len();
            job.bytes.extend_from_slice(b"cookie: ");
            if session.jar.write(origin, &job.path, crew.unix(), &mut job.bytes) {
                job.bytes.extend_from_slice(b"\r\n");
            } else {
                job.bytes.truncate(before);
            }
        }
    }
    if has_length {
        let _ = write!(job.bytes, "content-length: {}\r\n", job.body.len());
    }
    job.bytes.extend_from_slice(b"\r\n");
    job.head_bytes = job.bytes.len();
    job.bytes.extend_from_slice(&job.body);
}

/// Writes the request that follows a redirect, if the answer is one and the step follows it.
pub(super) fn follow(crew: &Crew, session: &Session, request: &Request, job: &mut Job) -> Hop {
    let plan = &crew.journey.plan;
    let status = job.answer.response.status;
    if request.redirects == 0 || !REDIRECTS.contains(&status) {
        return Hop::None;
    }
    let Some(location) = job.answer.head.headers.get_str("location") else { return Hop::None };
    let location = String::from_utf8_lossy(location).into_owned();
    let Some(origin) = plan.origins.get(job.origin) else { return Hop::None };
    let from = Url { origin: origin.clone(), path: job.path.clone() };
    let to = match from.join(&location) {
        Ok(to) => to,
        Err(e) => {
            let path = location.split('?').next().unwrap_or_default();
            return Hop::Broken(format!(
                "a redirect to `{}`: {e}",
                weir_report::units::shown(path.as_bytes())
            ));
        }
    };
    let Some(position) = plan.position_of(&to.origin) else {
        return Hop::Broken(format!("a redirect to `{}`, which is no server that the plan names", to.origin));
    };
    let is_post = job.method == "POST";
    // RFC 9110 §15.4: what clients do, and what 303 asks for.
    let becomes_get = status == 303 && job.method != "HEAD" || matches!(status, 301 | 302) && is_post;
    job.visited.push(from.clone());
    if !becomes_get && job.visited.contains(&to) || job.visited.iter().filter(|url| **url == to).count() > 1 {
        // Without its query, which may hold a credential.
        let path = to.path.split('?').next().unwrap_or_default();
        return Hop::Broken(format!("a loop of redirects by `{path}`"));
    }
    if job.visited.len() > request.redirects as usize {
        return Hop::Broken(format!("more redirects than the {} that it follows", request.redirects));
    }
    if becomes_get {
        "GET".clone_into(&mut job.method);
        job.body.clear();
    }
    let leaves = !from.origin.shares_server_with(&to.origin);
    let head = std::mem::take(&mut job.bytes);
    let fields = head.get(..job.head_bytes).unwrap_or_default().split(|b| *b == b'\n').skip(1);
    (job.origin, job.path) = (position, to.path);
    write_line(crew, job);
    // 307 and 308 keep method and body, also to another server: so RFC 9110 §15.4.8 and Fetch (HTTP-redirect fetch),
    // which drop only fields with credentials. A body may hold a password too, but the server that redirects has it
    // already and could pass it on itself, and it can choose only among the servers that the plan's author named.
    let is_sent = !becomes_get && request.body.is_some();
    // What a step writes itself is for the server that it names: also for the same one after a redirect.
    let is_written = |name: &str| !leaves && request.headers.iter().any(|(written, _)| written == name);
    let (has_host, has_cookie) = (is_written("host"), is_written("cookie"));
    for line in fields {
        let name = line.split(|b| *b == b':').next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_own = match name.as_str() {
            "host" => !has_host,
            "cookie" => !has_cookie,
            name => matches!(name, "content-length" | "proxy-authorization"),
        };
        // Credentials for one server are not for another (RFC 9110 §15.4).
        let is_left =
            leaves && crate::transport::is_secret(&name) || becomes_get && name.starts_with("content-");
        if !name.trim().is_empty() && !is_own && !is_left {
            job.bytes.extend_from_slice(line);
            job.bytes.push(b'\n');
        }
    }
    let has_length = has_body(job, is_sent);
    finish(crew, session, job, has_host, has_cookie, has_length);
    job.row = crew.journey.redirect_row(usize::from(request.id.0));
    job.ready = job.times.done;
    if let Some(wanted) = &mut job.wanted {
        wanted.is_head = job.method == "HEAD";
    }
    Hop::Next
}
