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
    Shadow,
    ShadowEnd,
    ShadowPromote,
    ShadowReport,
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
        meaning: "the running config as written, with its digest as ETag; `origin` adds file and line of each thing",
        query: &["origin"],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Get,
        role: READ,
        body: 0,
        meaning: "one thing, with its ETag",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "PUT",
        path: "/api/v1/config/{section}/{name}",
        does: Do::Put,
        role: WRITE,
        body: THING,
        meaning: "creates it (If-None-Match: *) or replaces it (If-Match): 201 or 200 with what changed",
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
        meaning: "removes it (If-Match)",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 428, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config/{section}/{name}:adopt",
        does: Do::Adopt,
        role: Role::Admin,
        body: 0,
        meaning: "moves a thing of a file towards the API: copies it to the managed file, which owns it once it is deleted from the other",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config/{section}/{name}:release",
        does: Do::Release,
        role: Role::Admin,
        body: 0,
        meaning: "moves a thing of the API towards a file: says which YAML to write there, and gives it up once the file has it",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:apply",
        does: Do::Apply,
        role: WRITE,
        body: MANY,
        meaning: "many changes, all or none: sections with named things as in a file; null removes one",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 415, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:check",
        does: Do::Check,
        role: WRITE,
        body: MANY,
        meaning: "what `weir check` says about the files, or about the change in the body",
        query: &[],
        statuses: &[200, 404, 409, 412, 415, 422],
    },
    Call {
        method: "POST",
        path: "/api/v1/config:explain",
        does: Do::Explain,
        role: READ,
        body: 64 << 10,
        meaning: "what `weir explain` says about the request in the body (`method`, `url`, `headers`, `listener`, `client`), by the running config; with `text: true` also as text",
        query: &[],
        statuses: &[200, 415, 422],
    },
    Call {
        method: "GET",
        path: "/api/v1/managed",
        does: Do::Managed,
        role: READ,
        body: 0,
        meaning: "the managed file as `text`, with its digest as ETag; callers who may not write see `***1`, `***2` … for secrets",
        query: &[],
        statuses: &[200, 409, 422],
    },
    Call {
        method: "PUT",
        path: "/api/v1/managed",
        does: Do::Rewrite,
        role: WRITE,
        body: MANY,
        meaning: "replaces it (If-Match), comments included; masked secrets stay unchanged; identical text writes nothing",
        query: &["confirm", "dry_run", "watch"],
        statuses: &[200, 404, 409, 412, 415, 422, 428, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/managed:check",
        does: Do::CheckManaged,
        role: WRITE,
        body: MANY,
        meaning: "what that PUT would change, or its mistakes: 200 for both",
        query: &[],
        statuses: &[200, 409, 412, 415, 428],
    },
    Call {
        method: "GET",
        path: "/api/v1/revisions",
        does: Do::Revisions,
        role: READ,
        body: 0,
        meaning: "the history, newest first",
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
        meaning: "the differences of two revisions; `running` is the running config, `disk` the files",
        query: &[],
        statuses: &[200, 404, 422],
    },
    Call {
        method: "GET",
        path: "/api/v1/revisions/{number}",
        does: Do::Revision,
        role: READ,
        body: 0,
        meaning: "a revision with its config",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/revisions/{number}:rollback",
        does: Do::RollBack,
        role: WRITE,
        body: 0,
        meaning: "runs the config of a revision, as a new revision",
        query: &[],
        statuses: &[200, 404, 409, 422, 507],
    },
    Call {
        method: "POST",
        path: "/api/v1/revisions/{number}:confirm",
        does: Do::Confirm,
        role: Role::Operate,
        body: 0,
        meaning: "accepts a change on trial",
        query: &[],
        statuses: &[200, 404, 409],
    },
    Call {
        method: "GET",
        path: "/api/v1/drift",
        does: Do::Drift,
        role: READ,
        body: 0,
        meaning: "whether the files differ from the running config and from the last revision",
        query: &[],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/fleet",
        does: Do::Fleet,
        role: READ,
        body: 0,
        meaning: "the fleet of this node, from its etcd: the bundle to run, and the report of each node",
        query: &[],
        statuses: &[200, 404, 503],
    },
    Call {
        method: "POST",
        path: "/api/v1/shadow",
        does: Do::Shadow,
        role: WRITE,
        body: MANY,
        meaning: "judges another config on the heads of live requests; one at a time, until it is not asked for 15 s",
        query: &[],
        statuses: &[201, 409, 415, 422],
    },
    Call {
        method: "GET",
        path: "/api/v1/shadow",
        does: Do::ShadowReport,
        role: WRITE,
        body: 0,
        meaning: "what the shadow that runs, or ran last, has found",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "GET",
        path: "/api/v1/shadow/{id}",
        does: Do::ShadowReport,
        role: WRITE,
        body: 0,
        meaning: "the same, and lets it run for 15 s more: for who started it",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/shadow/{id}:end",
        does: Do::ShadowEnd,
        role: WRITE,
        body: 0,
        meaning: "ends it, and answers with its last report",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/shadow/{id}:promote",
        does: Do::ShadowPromote,
        role: WRITE,
        body: 0,
        meaning: "changes what the API manages into its candidate, as `config:apply` does",
        query: &["confirm", "watch"],
        statuses: &[200, 404, 409, 412, 422, 507],
    },
    Call {
        method: "GET",
        path: "/api/v1/openapi.json",
        does: Do::Describe,
        role: READ,
        body: 0,
        meaning: "these calls as OpenAPI 3.1",
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
        meaning: "the latest requests that failed, were slow or were sampled, and why",
        query: &["after", "cause", "kind", "limit", "route"],
        statuses: &[200],
    },
    Call {
        method: "GET",
        path: "/api/v1/why/{id}",
        does: Do::Why,
        role: READ,
        body: 0,
        meaning: "the request with this id, and why it ended as it did; 404 with the reason if it is unknown",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:drain",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "stops new exchanges at an endpoint; `for`: default `1h`, at most 30 days",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:out",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "stops also those of sticky sessions; `for` as for `:drain`",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/endpoints/{upstream}/{address}:in",
        does: Do::Endpoint,
        role: Role::Operate,
        body: 0,
        meaning: "ends both",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/maintenance/{switch}:on",
        does: Do::Maintenance,
        role: Role::Operate,
        body: 0,
        meaning: "makes the filters `maintenance` with this switch refuse requests; `for` as for `:drain`",
        query: &["for"],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/maintenance/{switch}:off",
        does: Do::Maintenance,
        role: Role::Operate,
        body: 0,
        meaning: "makes them let requests pass again",
        query: &[],
        statuses: &[200, 404],
    },
    Call {
        method: "POST",
        path: "/api/v1/caches/{store}:purge",
        does: Do::Purge,
        role: Role::Operate,
        body: 0,
        meaning: "removes answers from a cache and counts them: `url`, `prefix` and `tag`, up to 256 together, or `all`",
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
