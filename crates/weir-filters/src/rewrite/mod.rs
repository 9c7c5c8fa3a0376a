//! `rewrite`: changes the path, host and query of a request before it goes to the upstream. `replace` is the part with
//! regular expressions.

mod replace;

use super::prelude::*;
use replace::{Replace, Replacements};
use std::collections::BTreeMap;
use weir_filter::error::{BAD_HOST, BAD_PATH};
use weir_filter::query;
use weir_filter::route::{Slashes, canonical};
use weir_filter::template::{self, Escape, Template, Values, Var};
use weir_h1::{FieldName, Known, Prepared, TargetForm};

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<RewriteSettings>("rewrite").with_causes(&[&BAD_HOST, &BAD_PATH]).judged_by_head();

/// Changes the path, host and query of a request before it goes to the upstream.
///
/// Captures come from the route's pattern, in canonical form. The new path is made canonical too and then sent. The
/// route does not change: rewriting never routes again. `OPTIONS *` keeps its target.
///
/// ```yaml
/// - rewrite: { path: "/v2/{rest}", query: { set: { source: gateway } } }
/// - rewrite: { replace: { "^/a/(.*)$": "/b/$1" } }
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RewriteSettings {
    /// The new path, with placeholders: `/v2/{rest}` with the route's `/api/{rest*}`. Default: the path stays.
    path: Option<String>,
    /// Removed from the start of the path, by whole segments: `/api` turns `/api/x` into `/x` and `/api` into `/`,
    /// and leaves `/apix` alone. The upstream gets the prefix in `X-Forwarded-Prefix`, and the gateway adds it back
    /// to `Location` and cookies of the response (`upstreams.*.links`). Not together with `path`. Default none.
    strip_prefix: Option<String>,
    /// Added before the path, after `strip_prefix`. Not together with `path`. Default none.
    add_prefix: Option<String>,
    /// Regular expressions and what takes the place of what they match, tried in the order written on the canonical
    /// path; the first that matches counts, for its first match. They search: write `^` and `$` for the ends. In the
    /// replacement, `$1` to `$9` are the groups, `$0` all that matched, and placeholders work, `{name}` also for a group
    /// `(?<name>…)`. A path that gets more dot segments than the replacement writes, or that would leave the root, is
    /// refused with 400. At most 64, matched in linear time. Not together with `path` or a prefix. A list of maps keeps
    /// the order in JSON, too. Default none.
    #[serde(skip_serializing_if = "Replacements::is_empty")]
    replace: Replacements,
    /// The new host, with placeholders, with or without port. An upstream with `host: preserve` (the default)
    /// receives it. Default: the host stays.
    host: Option<String>,
    /// Changes to the query, in the order `remove`, `set`, `add`.
    query: QuerySettings,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct QuerySettings {
    /// Names and values, with placeholders; replaces all existing parameters of the name. Write values decoded: `a b`
    /// is sent as `a%20b`.
    set: BTreeMap<String, String>,
    /// Names and values, with placeholders; keeps existing parameters of the name.
    add: BTreeMap<String, String>,
    /// Names of parameters to remove, however a client escapes them.
    remove: Vec<String>,
}

struct Rewrite {
    path: PathEdit,
    host: Option<Template>,
    /// Encoded names and values to append.
    append: Vec<(Vec<u8>, Template)>,
    /// Decoded names to remove first: those of `remove` and of `set`.
    remove: Vec<String>,
}

enum PathEdit {
    None,
    Prefix(Prefixes),
    Replace(Replace),
    /// With the number of dot segments that the config itself writes.
    Template(Template, usize),
}

struct Prefixes {
    strip: Vec<u8>,
    add: Vec<u8>,
    /// `X-Forwarded-Prefix`, if a prefix is removed.
    field: Option<Prepared>,
}

impl IntoFilter for RewriteSettings {
    type Filter = Rewrite;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Rewrite> {
        let Self { path, strip_prefix, add_prefix, replace, host, query } = self;
        let before = build.mistakes.len();
        let nothing = path.is_none() && strip_prefix.is_none() && add_prefix.is_none() && host.is_none();
        if nothing
            && replace.is_empty()
            && query.set.is_empty()
            && query.add.is_empty()
            && query.remove.is_empty()
        {
            build.refuse(
                "",
                "changes nothing",
                Some("set path, strip_prefix, replace, host or query".into()),
            );
        }
        if path.is_some() && (strip_prefix.is_some() || add_prefix.is_some()) {
            let hint = "capture the rest of the path in the route and write path: \"/prefix/{rest}\"";
            build.refuse("path", "cannot be combined with a prefix", Some(hint.into()));
        }
        if !replace.is_empty() && (path.is_some() || strip_prefix.is_some() || add_prefix.is_some()) {
            let hint = "write two `rewrite` filters, in the order in which they are to run";
            build.refuse("replace", "cannot be combined with path or a prefix", Some(hint.into()));
        }
        let path = match path {
            Some(text) => {
                let template = path_template(&text, build)?;
                let dots = dot_segments(&template.sample("x"));
                PathEdit::Template(template, dots)
            }
            None if !replace.is_empty() => PathEdit::Replace(replace.compile(build)),
            None if strip_prefix.is_none() && add_prefix.is_none() => PathEdit::None,
            None => PathEdit::Prefix(Prefixes::new(
                prefix("strip_prefix", strip_prefix, build),
                prefix("add_prefix", add_prefix, build),
            )),
        };
        let host = host.and_then(|text| host_template(&text, build));
        let mut append = Vec::new();
        let remove = query.remove.into_iter().chain(query.set.keys().cloned()).collect();
        for (kind, params) in [("set", query.set), ("add", query.add)] {
            for (name, value) in params {
                if let Some(value) = build.text(&format!("query.{kind}.{name}"), &value) {
                    append.push((template::escape(&name), value));
                }
            }
        }
        (build.mistakes.len() == before).then_some(Rewrite { path, host, append, remove })
    }
}

/// How many segments of a path are `.` or `..`.
pub(super) fn dot_segments(path: &[u8]) -> usize {
    path.split(|&byte| byte == b'/').filter(|segment| matches!(*segment, b"." | b"..")).count()
}

fn path_template(text: &str, build: &mut Build<'_>) -> Option<Template> {
    let template = build.text("path", text)?;
    if template.vars().any(|var| *var == Var::Query) || template.sample("").contains(&b'?') {
        build.refuse("path", "holds a query", Some("the query stays as it is; use query.set".into()));
    }
    let begins = template.beginning().first() == Some(&b'/');
    let sample = template.sample(if begins { "x" } else { "/x" });
    // The sample is escaped where values will go, so any error in it is an error in the text as written.
    if let Err(e) = canonical(&sample, Slashes::Keep, &mut Vec::new()) {
        build.refuse("path", e.to_string(), Some("begin with `/` and escape as in a URL".into()));
    } else if !begins && template.vars().next() != Some(&Var::Path) {
        // An expression that is the whole text becomes a part of one.
        let text = text
            .strip_prefix("= ")
            .map_or_else(|| text.to_owned(), |source| format!("{{= {} }}", source.trim()));
        build.refuse("path", "does not begin with `/`", Some(format!("write \"/{text}\"").into()));
    }
    Some(template)
}

/// A prefix in canonical form, without a trailing `/`; empty for none.
fn prefix(field: &str, text: Option<String>, build: &mut Build<'_>) -> Vec<u8> {
    let Some(text) = text else { return Vec::new() };
    let mut out = Vec::new();
    match canonical(text.as_bytes(), Slashes::Merge, &mut out) {
        Ok(form) => {
            let mut prefix = form.choose(text.as_bytes(), &out).to_vec();
            if prefix.last() == Some(&b'/') {
                prefix.pop();
            }
            if prefix.is_empty() {
                build.refuse(field, "is `/`, which changes nothing", Some("leave it out".into()));
            }
            prefix
        }
        Err(e) => {
            build.refuse(field, e.to_string(), Some("write it as in a URL: /api/v1".into()));
            Vec::new()
        }
    }
}

fn host_template(text: &str, build: &mut Build<'_>) -> Option<Template> {
    let template = build.text("host", text)?;
    if RequestHead::default().set_authority(&template.sample("x")).is_err() {
        build.refuse("host", format!("`{text}` is not a host"), Some("write name or name:port".into()));
    }
    Some(template)
}

fn forwarded_prefix() -> FieldName {
    FieldName::new("x-forwarded-prefix").expect("a name in the source is a token")
}

impl Prefixes {
    fn new(strip: Vec<u8>, add: Vec<u8>) -> Self {
        let field = (!strip.is_empty()).then(|| Prepared::new(&forwarded_prefix(), &strip).ok()).flatten();
        Self { strip, add, field }
    }

    /// The new path, and whether the path had the prefix to remove.
    fn apply(&self, path: &[u8]) -> (Vec<u8>, bool) {
        let stripped =
            path.strip_prefix(self.strip.as_slice()).filter(|rest| matches!(rest.first(), None | Some(b'/')));
        let rest = stripped.unwrap_or(path);
        let mut new = self.add.clone();
        new.extend_from_slice(if rest.is_empty() { b"/" } else { rest });
        (new, stripped.is_some())
    }

    /// Remembers the removed prefix for the response, and sends it to the upstream.
    fn tell(&self, head: &mut RequestHead, cx: &mut Cx) {
        cx.moved_path(&self.strip, &self.add);
        let Some(field) = &self.field else { return };
        // A trusted proxy may already have removed a prefix.
        match head.headers.get_known(Known::XForwardedOther).and(head.headers.get_str("x-forwarded-prefix")) {
            Some(before) => {
                let before = before.strip_suffix(b"/").unwrap_or(before);
                let whole = [before, &self.strip].concat();
                let _ = head.headers.insert(&forwarded_prefix(), &whole); // both parts are valid
            }
            None => {
                let _ = head.headers.append_prepared(field, b""); // checked when it was prepared
            }
        }
    }
}

impl Filter for Rewrite {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let tells = matches!(&self.path, PathEdit::Prefix(Prefixes { field: Some(_), .. }));
        let path = if let PathEdit::Template(path, _) = &self.path { Some(path) } else { None };
        let replace = if let PathEdit::Replace(replace) = &self.path { Some(replace) } else { None };
        let path = path.into_iter().chain(replace.into_iter().flat_map(Replace::templates));
        let texts = path.chain(&self.host).chain(self.append.iter().map(|(_, value)| value));
        let read = texts.flat_map(Template::guarded);
        FieldGuards {
            request: tells.then(forwarded_prefix).into_iter().chain(read).collect(),
            response: Vec::new(),
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        // All new values are computed from the original request before any of them is applied.
        let path = self.new_path(head, cx);
        let query = self.new_query(head, cx);
        let host = self.host.as_ref().map(|template| {
            let mut host = Vec::new();
            template.render(&Values::of(head, cx), Escape::Nothing, &mut host);
            host
        });
        if let Some((path, told, dots)) = path
            && head.form() != TargetForm::Asterisk
        {
            if let Some(dots) = dots
                && dot_segments(&path) > dots
            {
                return Flow::refuse(&BAD_PATH); // a value must not climb out of the path that the config writes
            }
            let mut out = Vec::new();
            // A path that contains `//` shows that the listener keeps it.
            let kept = memchr::memmem::find(head.routed_path(), b"//").is_some();
            let slashes = if kept { Slashes::Keep } else { Slashes::Merge };
            let Ok(form) = canonical(&path, slashes, &mut out) else { return Flow::refuse(&BAD_PATH) };
            if head.set_path(form.choose(&path, &out)).is_err() {
                return Flow::refuse(&BAD_PATH);
            }
            if let (true, PathEdit::Prefix(prefixes)) = (told, &self.path) {
                prefixes.tell(head, cx);
            }
        }
        if let Some(host) = host
            && head.set_authority(&host).is_err()
        {
            return Flow::refuse(&BAD_HOST);
        }
        if let Some(query) = query {
            let query = if query.is_empty() { None } else { Some(query.as_slice()) };
            head.set_query(query).expect("escaped names and values may stand in a target");
        }
        Flow::Continue
    }
}

impl Rewrite {
    /// The new path, whether a prefix was replaced in it, and how many dot segments the config writes.
    fn new_path(&self, head: &RequestHead, cx: &Cx) -> Option<(Vec<u8>, bool, Option<usize>)> {
        match &self.path {
            PathEdit::None => None,
            PathEdit::Prefix(prefixes) => {
                let (new, told) = prefixes.apply(head.path());
                Some((new, told, None))
            }
            PathEdit::Replace(replace) => {
                let (new, dots) = replace.apply(head, cx)?;
                Some((new, false, Some(dots)))
            }
            PathEdit::Template(template, dots) => {
                let mut new = Vec::new();
                template.render(&Values::of(head, cx), Escape::Url, &mut new);
                Some((new, false, Some(*dots)))
            }
        }
    }

    /// The new query, if it changes.
    fn new_query(&self, head: &RequestHead, cx: &Cx) -> Option<Vec<u8>> {
        let old = head.query().unwrap_or_default();
        let cut = match self.remove.is_empty() {
            true => None,
            false => query::without(old, |name| self.remove.iter().any(|r| r.as_bytes() == name)),
        };
        if self.append.is_empty() {
            return cut;
        }
        let mut new = cut.unwrap_or_else(|| old.to_vec());
        for (name, template) in &self.append {
            let mut value = Vec::new();
            template.render_query(&Values::of(head, cx), &mut value);
            query::push(&mut new, name, &value);
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn prefixes() {
        for (strip, add, path, new) in [
            ("/api", None, "/api/x", "/x"),
            ("/api/", None, "/api", "/"),
            ("/api", None, "/api/", "/"),
            ("/api", None, "/apix", "/apix"),
            ("/api", None, "/other/api", "/other/api"),
            ("/api", Some("/v2"), "/api/x?a=1", "/v2/x?a=1"),
            ("/%61pi", Some("/v2/"), "/api", "/v2/"),
        ] {
            let mut settings = json!({ "strip_prefix": strip });
            if let Some(add) = add {
                settings["add_prefix"] = json!(add);
            }
            run(&KIND, settings, &format!("GET {path}")).await.expect_continue().expect_target(new);
        }
    }

    #[tokio::test]
    async fn the_upstream_is_told_of_the_prefix() {
        let strip = json!({ "strip_prefix": "/api" });
        run(&KIND, strip.clone(), "GET /api/x").await.expect_header("x-forwarded-prefix", "/api");
        run(&KIND, strip.clone(), "GET /apix").await.expect_no_header("x-forwarded-prefix");
        let outer = "GET /api/x\nX-Forwarded-Prefix: /outer/";
        run(&KIND, strip, outer).await.expect_header("x-forwarded-prefix", "/outer/api");
        let mut added = run(&KIND, json!({ "add_prefix": "/v2" }), "GET /x").await;
        added.expect_target("/v2/x").expect_no_header("x-forwarded-prefix");
        assert_eq!(added.cx.prefix, Some((b"/v2"[..].into(), 0)));
    }

    #[tokio::test]
    async fn a_path_is_made_from_captures() {
        let mut stand = Stand::new(&KIND, json!({ "path": "/v2/{id}/{rest}" })).path("/u/{id}/{rest*}");
        let running = stand.build();
        running.request("GET /u/7/a/b?q=1").await.expect_target("/v2/7/a/b?q=1");
        running.request("GET /u/a%2Fb/c%20d").await.expect_target("/v2/a%2Fb/c%20d");
    }

    #[tokio::test]
    async fn what_is_sent_is_canonical() {
        run(&KIND, json!({ "path": "/a/../%62//{path}/{method}" }), "GET /x").await.expect_target("/b/x/GET");
        run(&KIND, json!({ "path": "{path}/more" }), "GET /x").await.expect_target("/x/more");
        run(&KIND, json!({ "path": "/{client}" }), "GET /x").await.expect_target("/192.0.2.1");
        let climbing = run(&KIND, json!({ "path": "/{request_id}..%2F..{path}" }), "GET /x").await.flow;
        assert!(matches!(climbing, Flow::Refuse(r) if *r.cause == BAD_PATH));
        let path = "/api/{= request.args['n'] }/x";
        run(&KIND, json!({ "path": path }), "GET /?n=a").await.expect_target("/api/a/x?n=a");
        for climber in ["..", "%2e%2e", ".", "../..", "..%2f.."] {
            let climbing = run(&KIND, json!({ "path": path }), &format!("GET /?n={climber}")).await.flow;
            assert!(matches!(climbing, Flow::Refuse(r) if *r.cause == BAD_PATH), "{climber}");
        }
    }

    #[tokio::test]
    async fn hosts() {
        let mut exchange = run(&KIND, json!({ "host": "{route}.internal:81" }), "GET /").await;
        exchange.expect_continue().expect_header("host", "test.internal:81");
        assert_eq!(exchange.head.authority(), b"test.internal:81");
        let bad = Stand::new(&KIND, json!({ "host": "{route}.x" })).scope("routes.a b").build();
        bad.request("GET /").await.expect_cause(&BAD_HOST);
    }

    #[tokio::test]
    async fn queries() {
        let settings = json!({ "query": {
            "set": { "v": "2" }, "add": { "a b": "{path}&{client}" }, "remove": ["admin"]
        }});
        let running = Stand::new(&KIND, settings).build();
        let request = "GET /p?x=%7e&%61dmin=1&v=1&a+b=0";
        running.request(request).await.expect_target("/p?x=%7e&a+b=0&v=2&a%20b=%2Fp%26192.0.2.1");
        running.request("GET /p").await.expect_target("/p?v=2&a%20b=%2Fp%26192.0.2.1");
        let remove = json!({ "query": { "remove": ["a"] } });
        run(&KIND, remove.clone(), "GET /?a=1").await.expect_target("/");
        run(&KIND, remove, "GET /?&b=%").await.expect_target("/?&b=%");
    }

    #[tokio::test]
    async fn options_asterisk_keeps_its_target() {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
        weir_h1::parse_request(&mut head, &weir_h1::Limits::default()).unwrap();
        let mut cx = run(&KIND, json!({ "path": "/x" }), "GET /").await.cx;
        let path = PathEdit::Template(Template::literally("/x"), 0);
        let rewrite = Rewrite { path, host: None, append: Vec::new(), remove: Vec::new() };
        assert!(matches!(rewrite.on_request(&mut head, &mut cx), Flow::Continue));
        assert_ne!(head.path(), b"/x");
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "changes nothing"),
            (json!({ "path": "v2/{path}" }), "does not begin"),
            (json!({ "path": "= request.args.to" }), r#"write "/{= request.args.to }""#),
            (json!({ "path": "{client}" }), "write \"/{client}\""),
            (json!({ "path": "/a b" }), "%20"),
            (json!({ "path": "/a?b=1" }), "query.set"),
            (json!({ "path": "/{query}" }), "query.set"),
            (json!({ "path": "/{rest}" }), "not a placeholder"),
            (json!({ "path": "/..%2f" }), "%2F"),
            (json!({ "path": "/a", "strip_prefix": "/b" }), "combined with a prefix"),
            (json!({ "strip_prefix": "api" }), "begin with `/`"),
            (json!({ "strip_prefix": "/" }), "changes nothing"),
            (json!({ "host": "a/b" }), "not a host"),
            (json!({ "query": { "set": { "a": "{b" } } }), "query.set.a"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
