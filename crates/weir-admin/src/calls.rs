//! The config calls below `/api/v1/`: one row each. The OpenAPI description is generated from the same table.

use crate::by_hand::plain;
use hyper::Method;
use weir_gateway::config::schema::Role;

/// The action of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    Adopt,
    Apply,
    Check,
    CheckManaged,
    Compare,
    Config,
    Confirm,
    Delete,
    Describe,
    Drift,
    Endpoint,
    Explain,
    Fleet,
    Get,
    Maintenance,
    Managed,
    Patch,
    Purge,
    Put,
    Release,
    Revision,
    Revisions,
    Rewrite,
    RollBack,
    Why,
}

/// An API call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    /// The path. A name in braces matches anything but a slash.
    pub(crate) path: &'static str,
    pub(crate) does: Do,
    pub(crate) role: Role,
    /// Largest body, in bytes; 0 if the call reads none.
    pub(crate) body: usize,
    pub(crate) meaning: &'static str,
    /// Allowed query parameters.
    pub(crate) query: &'static [&'static str],
    /// Statuses of its answers besides those of every call.
    pub(crate) statuses: &'static [u16],
}

/// Largest body with a single entry.
const THING: usize = 1 << 20;

/// Largest body with many entries, equal to the largest config file.
pub(crate) const MANY: usize = 16 << 20;

/// Statuses of every guarded call: unknown caller, no permission, bad request, too large, too slow.
pub(crate) const ALWAYS: &[u16] = &[400, 401, 403, 405, 408, 413, 500];

const READ: Role = Role::Read;
const WRITE: Role = Role::Write;

/// All calls about the config.
pub(crate) const CALLS: &[Call] = &[
    Call {
        method: "GET",
        path: "/api/v1/config",
        does: Do::Config,
        role: READ,
        body: 0,
        meaning: "the config that runs, as it is written; `origin` adds where each named thing stands",
        query: &["origin"],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Get,
        role: READ,
        body: 0,
        meaning: "one named thing, with its ETag",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "PUT",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Put,
        role: WRITE,
        body: THING,
        meaning: "makes it (If-None-Match: *) or replaces it (If-Match)",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 201, 404, 409, 412, 415, 422, 428, 507],
    },
    Call {
        method: "PATCH",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Patch,
        role: WRITE,
        body: THING,
        meaning: "changes some of its keys (If-Match; RFC 7396)",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 415, 422, 428, 507],
    },
    Call {
        method: "DELETE",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Delete,
        role: WRITE,
        body: 0,
        meaning: "takes it away (If-Match)",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 428, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config/{section}/{name}:adopt",
        does: Do::Adopt,
        role: Role::Admin,
        body: 0,
        meaning: "moves what people wrote towards the API: the managed file has it too, and has it alone once it is deleted there",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config/{section}/{name}:release",
        does: Do::Release,
        role: Role::Admin,
        body: 0,
        meaning: "moves what the API owns towards a file: tells what to write there, and gives way once it is there",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:apply",
        does: Do::Apply,
        role: WRITE,
        body: MANY,
        meaning: "makes, replaces and (with null) takes away many things at once, all or none",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 415, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:check",
        does: Do::Check,
        role: WRITE,
        body: MANY,
        meaning: "says what is wrong with the files on the disk, or with what is sent, as `weir check` does",
        query: &[],
        statuses: &[200, 404, 409, 412, 415, 422],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:explain",
        does: Do::Explain,
        role: READ,
        body: 64 << 10,
        meaning: "which route a request takes and why, by the config that runs",
        query: &[],
        statuses: &[200, 415, 422],
    },
    Call {
        method: "GET",
        path: "/api/v1/managed",
        does: Do::Managed,
        role: READ,
        body: 0,
        meaning: "the file that the API writes, as a text; who may not write it sees `***1`, `***2` … in the place of secrets",
        query: &[],
        statuses: &[200, 409, 422],
    },
    Call {
        method: "PUT",
        path: "/api/v1/managed",
        does: Do::Rewrite,
        role: WRITE,
        body: MANY,
        meaning: "puts another text in its place (If-Match); comments stay, and secrets where their masks do",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 415, 422, 428, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/managed:check",
        does: Do::CheckManaged,
        role: WRITE,
        body: MANY,
        meaning: "what putting this text in its place would do; one with mistakes is no error here",
        query: &[],
        statuses: &[200, 409, 412, 415, 428],
    },
    Call {
        method: "GET",
        path: "/api/v1/revisions",
        does: Do::Revisions,
        role: READ,
        body: 0,
        meaning: "the history, the newest first",
        query: &[],
        statuses: &[200, 404],
    },
    // Must precede the next row, whose single braces would match both parts.
    Call {
        method: "GET",
        path: "/api/v1/revisions/{from}..{to}",
        does: Do::Compare,
        role: READ,
        body: 0,
        meaning: "what differs between two revisions; `running` and `disk` stand for the config that runs and the files",
        query: &[],
        statuses: &[200, 404, 422],
    },
    Call {
        method: "GET",
        path: "/api/v1/revisions/{number}",
        does: Do::Revision,
        role: READ,
        body: 0,
        meaning: "a revision and the config it has",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/revisions/{number}:rollback",
        does: Do::RollBack,
        role: WRITE,
        body: 0,
        meaning: "runs what a revision says, as a new revision",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/revisions/{number}:confirm",
        does: Do::Confirm,
        role: Role::Operate,
        body: 0,
        meaning: "says that a change on trial is good: it stays",
        query: &[],
        statuses: &[200, 404, 409],
    },
    Call {
        method: "GET",
        path: "/api/v1/drift",
        does: Do::Drift,
        role: READ,
        body: 0,
        meaning: "what differs between the config that runs, the files, and the last revision",
        query: &[],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/fleet",
        does: Do::Fleet,
        role: READ,
        body: 0,
        meaning: "the fleet that this gateway is a node of, as its etcd has it: what is to run, and what each node says",
        query: &[],
        statuses: &[200, 404, 503],
    },
    Call {
        method: "GET",
        path: "/api/v1/openapi.json",
        does: Do::Describe,
        role: READ,
        body: 0,
        meaning: "these calls for machines (OpenAPI 3.1)",
        query: &[],
        statuses: &[200],
    },
];

/// Calls unrelated to the config. They are answered elsewhere but described here.
pub(crate) const OTHERS: &[Call] = &[
    Call {
        method: "GET",
        path: "/api/v1/why",
        does: Do::Why,
        role: READ,
        body: 0,
        meaning: "what became of the last requests that failed, were slow or were picked at random, and why",
        query: &["after", "cause", "kind", "limit", "route"],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/why/{id}",
        does: Do::Why,
        role: READ,
        body: 0,
        meaning: "what became of the request with this id, and why",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:drain",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "no new exchanges for this endpoint, for so long",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:out",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "no exchanges whatever for this endpoint, for so long",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:in",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "this endpoint is used again",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/maintenance/{switch}:on",
        does: Do::Maintenance,
        role: Role::Operate,
        body: 0,
        meaning: "the filters `maintenance` with this switch refuse requests, for so long",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/maintenance/{switch}:off",
        does: Do::Maintenance,
        role: Role::Operate,
        body: 0,
        meaning: "they let requests pass again",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/caches/{store}:purge",
        does: Do::Purge,
        role: Role::Operate,
        body: 0,
        meaning: "removes answers from a cache",
        query: &["all", "prefix", "tag", "url"],
        statuses: &[200, 404],
    },
];

/// The result of looking up a path.
#[derive(Debug)]
pub(crate) enum Found {
    /// A call, and the texts that its braces matched.
    Call(&'static Call, Vec<String>),
    /// The path exists with these other methods.
    Otherwise(String),
    /// The path does not exist.
    Nothing,
}

/// Finds a call. HEAD is handled like GET.
pub(crate) fn find(method: &Method, path: &str) -> Found {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut others = Vec::new();
    for call in CALLS {
        let Some(parts) = fits(call.path, path) else { continue };
        if call.method == method {
            return Found::Call(call, parts);
        }
        others.push(call.method);
        if call.method == "GET" {
            others.push("HEAD");
        }
    }
    if others.is_empty() { Found::Nothing } else { Found::Otherwise(others.join(", ")) }
}

/// The texts that the braces match, if the path matches the pattern.
fn fits(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let (mut pattern, mut path) = (pattern, path);
    while let Some((literal, rest)) = pattern.split_once('{') {
        path = path.strip_prefix(literal)?;
        let (_, behind) = rest.split_once('}')?;
        // Up to the text after the braces, which is a literal or the end.
        let next = behind.split('{').next().unwrap_or_default();
        let end = if next.is_empty() { path.len() } else { path.find(next)? };
        let part = path.get(..end)?;
        if part.is_empty() || part.contains(['/', ':']) {
            return None;
        }
        parts.push(plain(part).ok()?);
        (pattern, path) = (behind, path.get(end..)?);
    }
    (pattern == path).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (line, expected) in [
            ("GET /api/v1/config", Some((Do::Config, vec![]))),
            ("HEAD /api/v1/config/routes/a", Some((Do::Get, vec!["routes", "a"]))),
            ("PUT /api/v1/config/routes/a.b-c_d", Some((Do::Put, vec!["routes", "a.b-c_d"]))),
            ("GET /api/v1/config/routes/%3Cb%3E", Some((Do::Get, vec!["routes", "<b>"]))),
            ("GET /api/v1/config/routes/a%2Fb", Some((Do::Get, vec!["routes", "a/b"]))),
            ("POST /api/v1/config:apply", Some((Do::Apply, vec![]))),
            ("POST /api/v1/config/routes/a:adopt", Some((Do::Adopt, vec!["routes", "a"]))),
            ("POST /api/v1/config/routes/a:release", Some((Do::Release, vec!["routes", "a"]))),
            ("POST /api/v1/config/routes/a:take", None),
            ("GET /api/v1/revisions/7", Some((Do::Revision, vec!["7"]))),
            ("GET /api/v1/revisions/7..running", Some((Do::Compare, vec!["7", "running"]))),
            ("POST /api/v1/revisions/7:rollback", Some((Do::RollBack, vec!["7"]))),
            ("GET /api/v1/config/routes", None),
            ("GET /api/v1/config/routes/", None),
            ("GET /api/v1/config/routes/a/b", None),
            ("GET /api/v1/config/routes/%zz", None),
            ("GET /api/v1/config/", None),
            ("POST /api/v1/config:applyx", None),
            ("GET /api/v1/revisions/7:rollback", None),
            ("DELETE /api/v1/config", None),
        ] {
            let (method, path) = line.split_once(' ').unwrap();
            let found = find(&method.parse().unwrap(), path);
            let found = match &found {
                Found::Call(call, parts) => Some((call.does, parts.iter().map(String::as_str).collect())),
                _ => None,
            };
            assert_eq!(found, expected, "{line}");
        }
        let Found::Otherwise(allowed) = find(&Method::POST, "/api/v1/config/routes/a") else { panic!() };
        assert_eq!(allowed, "GET, HEAD, PUT, PATCH, DELETE");
    }
}
