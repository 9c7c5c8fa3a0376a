//! Shortens a config without changing its decisions: merges routes and paths that one route or path can express.
//!
//! | exact form | readable form |
//! |---|---|
//! | three or more redirects that differ by path and target | one route, and a map from path to target |
//! | paths `/a` and `/a/*` of one route | `/a/*`, which takes `/a` too |
//! | the regex `~/img.*` | the raw prefix `/img*` |
//!
//! Each step checks all routes and skips a merge that another route might affect. These checks are heuristic, so `weir
//! import` sends the same requests through both forms, and keeps the exact one if any request takes another route.

use super::config::{Case, Config, Filter, Match, Named, Route};
use super::yaml::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// How many redirects are worth a table.
const TABLE: usize = 3;
/// Most entries of a table within the config; longer ones are hard to review.
const MAX_TABLE: usize = 500;

/// A config in readable form.
pub struct Readable {
    /// The config.
    pub config: Config,
    /// New names of routes by their old ones.
    pub renamed: HashMap<String, String>,
}

impl Readable {
    /// The route that takes the place of this one.
    #[must_use]
    pub fn name_of<'n>(&'n self, exact: &'n str) -> &'n str {
        self.renamed.get(exact).map_or(exact, String::as_str)
    }
}

/// The readable form, if it differs.
#[must_use]
pub fn readable(exact: &Config) -> Option<Readable> {
    let mut config = exact.clone();
    let mut renamed = HashMap::new();
    let mut is_changed = raw_prefixes(&mut config.routes);
    is_changed |= without_repeated_folders(&mut config.routes);
    is_changed |= tables(&mut config, &mut renamed);
    for case in &mut config.tests {
        if let Some(route) = &mut case.route
            && let Some(new) = renamed.get(route)
        {
            route.clone_from(new);
        }
    }
    is_changed.then_some(Readable { config, renamed })
}

/// Requests that both forms must decide alike: at and around every path, those of changed routes first. At most `most`.
#[must_use]
pub fn requests(exact: &Config, readable: &Readable, most: usize) -> Vec<Case> {
    let is_same = |name: &str, route: &Route| readable.config.routes.get(name) == Some(route);
    let mut routes: Vec<(&str, &Route)> = exact.routes.iter().collect();
    routes.sort_by_key(|(name, route)| is_same(name, route));
    let mut made = exact.tests.clone();
    for (_, route) in routes {
        let host = route.matches.hosts.iter().find(|host| !host.starts_with('~'));
        let host = host.map_or_else(|| "unknown.invalid".to_owned(), |host| host.replace('*', "w"));
        for path in paths(&route.matches) {
            let start = Some(beginning(path)).filter(|start| start.starts_with('/')).unwrap_or("/");
            let bare = start.trim_end_matches('/');
            let shorter = bare.char_indices().last().map_or("", |(at, _)| &bare[..at]);
            let around =
                ["", "/", "x", "/w/v", "/w.php", "/w.png", "%2Fw", ";w"].map(|end| format!("{bare}{end}"));
            for text in around.into_iter().chain([shorter.to_owned()]).filter(|text| text.starts_with('/')) {
                if made.len() >= most {
                    return made;
                }
                let method = route.matches.methods.first().map_or("GET", String::as_str).to_owned();
                made.push(Case {
                    method,
                    url: format!("http://{host}{text}"),
                    headers: Vec::new(),
                    listener: None,
                    route: None,
                });
            }
        }
    }
    made
}

/// All paths of a route.
fn paths(matches: &Match) -> impl Iterator<Item = &str> {
    let first = matches.path.as_deref().unwrap_or("/*");
    std::iter::once(first).chain(matches.more_paths.iter().map(String::as_str))
}

/// Whether a path is a text without captures, wildcards or a regex.
fn is_literal(path: &str) -> bool {
    path.starts_with('/') && !path.contains(['*', '{', '}'])
}

/// The text that every path begins with which a pattern takes.
fn beginning(path: &str) -> &str {
    let text = path.strip_prefix('~').unwrap_or(path);
    let special =
        |c: char| if path.starts_with('~') { "()[]{}.*+?|^$\\".contains(c) } else { "*{".contains(c) };
    let end = text.find(special).unwrap_or(text.len());
    // A quantifier makes the last character optional.
    let optional =
        path.starts_with('~') && text.get(end..).is_some_and(|rest| rest.starts_with(['*', '?', '{']));
    let end = if optional { text[..end].char_indices().last().map_or(0, |(at, _)| at) } else { end };
    // An alternative may begin otherwise.
    if path.starts_with('~') && text.contains('|') { "" } else { &text[..end] }
}

/// The prefix that a regex stands for: `~/img.*`.
fn plain_prefix(path: &str) -> Option<&str> {
    let prefix = path.strip_prefix('~')?.strip_suffix(".*")?;
    let is_plain = prefix.chars().all(|c| c.is_ascii_alphanumeric() || "/_-".contains(c));
    // A prefix with a slash at its end cannot be written: `/img/*` takes `/img` too.
    (is_plain && prefix.len() > 1 && prefix.starts_with('/') && !prefix.ends_with('/')).then_some(prefix)
}

/// Regexes that are raw prefixes, where no other pattern competes within that prefix: between regexes and prefixes
/// priorities decide, between prefixes the longer one wins.
fn raw_prefixes(routes: &mut Named<Route>) -> bool {
    let all: Vec<(String, i64)> = routes
        .iter()
        .flat_map(|(_, route)| paths(&route.matches).map(|path| (path.to_owned(), route.priority)))
        .collect();
    let mut is_changed = false;
    for (_, route) in routes.iter_mut() {
        let matches = &mut route.matches;
        let Some(path) =
            matches.path.as_deref().filter(|_| matches.more_paths.is_empty() && matches.more.is_empty())
        else {
            continue;
        };
        let Some(prefix) = plain_prefix(path) else { continue };
        let mut own = 0;
        let competes = all.iter().any(|(other, priority)| {
            if other == path {
                own += 1;
                return own > 1;
            }
            let start = beginning(other);
            match is_literal(other) {
                // An exact path wins in both forms.
                true => false,
                // A shorter prefix loses to a longer one, and to a regex of no lower priority.
                false
                    if !other.starts_with('~') && prefix.starts_with(start) && start.len() < prefix.len() =>
                {
                    *priority > route.priority || other.contains('{')
                }
                false => start.starts_with(prefix) || prefix.starts_with(start),
            }
        });
        if !competes {
            matches.path = Some(format!("{prefix}*"));
            is_changed = true;
        }
    }
    is_changed
}

/// `/a` beside `/a/*` in one route, where no regex and no pattern of another route may take `/a` instead.
fn without_repeated_folders(routes: &mut Named<Route>) -> bool {
    let has_captures =
        routes.iter().any(|(_, route)| paths(&route.matches).any(|path| path.contains(['{', '~'])));
    if has_captures {
        return false;
    }
    let mut count: HashMap<String, usize> = HashMap::new();
    for path in routes.iter().flat_map(|(_, route)| paths(&route.matches)) {
        *count.entry(path.to_owned()).or_default() += 1;
    }
    let mut is_changed = false;
    for (_, route) in routes.iter_mut() {
        let all: Vec<String> = paths(&route.matches).map(str::to_owned).collect();
        let is_repeated = |path: &String| {
            is_literal(path)
                && count.get(path) == Some(&1)
                && all.contains(&format!("{path}/*"))
                && path != "/"
        };
        let kept: Vec<String> = all.iter().filter(|path| !is_repeated(path)).cloned().collect();
        if kept.len() < all.len() {
            let mut kept = kept.into_iter();
            route.matches.path = kept.next();
            route.matches.more_paths = kept.collect();
            is_changed = true;
        }
    }
    is_changed
}

/// A redirect that a table can hold: its settings without the target, what all targets of a table begin with, and the
/// rest of its own.
fn tabled(route: &Route) -> Option<(Vec<&str>, Map, &'static str, String)> {
    let [filter] = &*route.filters else { return None };
    let Value::Map(settings) = &filter.settings else { return None };
    let own: Vec<&str> = paths(&route.matches).collect();
    let is_plain = filter.name == "redirect"
        && filter.comment.is_empty()
        && route.target.is_none()
        && route.more.is_empty()
        && route.matches.more.is_empty()
        && own.iter().all(|path| is_literal(path));
    let Some(Value::Text(to)) = settings.get("to").filter(|_| is_plain) else { return None };
    let (start, rest) =
        ["https://", "http://", "/"].into_iter().find_map(|start| Some((start, to.strip_prefix(start)?)))?;
    // Hosts are written as text, and an expression must not begin one: `//`.
    // An expression would escape a slash: `%2F`.
    let is_path = start == "/"
        && !rest.starts_with('/')
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || "_.~-".contains(c));
    let mut others = settings.clone();
    others.remove("to");
    is_path.then(|| (own, others, "/", rest.to_owned()))
}

/// Redirects that differ by path and target alone become one route with a map.
fn tables(config: &mut Config, renamed: &mut HashMap<String, String>) -> bool {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, route) in config.routes.iter() {
        let Some((_, settings, start, _)) = tabled(route) else { continue };
        let mut alike = route.clone();
        (alike.matches.path, alike.filters) = (None, Vec::new());
        alike.matches.more_paths.clear();
        alike.comment.clear();
        groups.entry(format!("{alike:?} {settings:?} {start}")).or_default().push(name.to_owned());
    }
    let mut is_changed = false;
    for names in groups.into_values().filter(|names| (TABLE..=MAX_TABLE).contains(&names.len())) {
        let routes: Vec<&Route> = names.iter().filter_map(|name| config.routes.get(name)).collect();
        let mut values = Map::new();
        let mut all = Vec::new();
        for (own, _, _, rest) in routes.iter().filter_map(|route| tabled(route)) {
            for path in own {
                values.set(path, rest.clone());
                all.push(path.to_owned());
            }
        }
        let Some((first, (_, settings, start, _))) =
            routes.first().and_then(|route| Some((*route, tabled(route)?)))
        else {
            continue;
        };
        // One path twice: which of them won was decided by something else.
        if values.iter().count() != all.len() {
            continue;
        }
        let mut route = first.clone();
        let site: String =
            route.file.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let mut table = Map::new().with("of", "request.path");
        table.set("values", values);
        let map = config.maps.add(&format!("{}_redirects", site.trim_matches('_')), table);
        if !map.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            || map.starts_with(|c: char| c.is_ascii_digit())
        {
            config.maps.remove(&map);
            continue;
        }
        let to = format!("{start}{{= maps.{map} }}");
        let mut redirect = Map::new().with("to", to);
        settings.iter().for_each(|(key, value)| redirect.set(key, value.clone()));
        route.filters = vec![Filter::new("redirect", redirect)];
        route.comment = vec![format!("Where each path leads: maps.{map}.")];
        let mut all = all.into_iter();
        route.matches.path = all.next();
        route.matches.more_paths = all.collect();
        let wish = format!("{}.redirects", route.file);
        names.iter().for_each(|name| config.routes.remove(name));
        let new = config.routes.add(&wish, route);
        renamed.extend(names.into_iter().map(|name| (name, new.clone())));
        is_changed = true;
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, import, system};

    fn config(body: &str) -> Config {
        let http = format!("server {{ listen 80; server_name a.test; {body} }}");
        let files = Memory::of(&[("nginx.conf", &http)]);
        import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]).unwrap().config
    }

    fn all_paths(config: &Config) -> Vec<(String, Vec<String>)> {
        let of = |route: &Route| paths(&route.matches).map(str::to_owned).collect();
        config.routes.iter().map(|(name, route)| (name.to_owned(), of(route))).collect()
    }

    #[test]
    fn redirects_become_a_table() {
        let olds = |to: [&str; 3]| {
            let line = |(n, to): (usize, &&str)| format!("location = /old{n} {{ return 301 {to}; }} ");
            to.iter().enumerate().map(line).collect::<String>()
        };
        let one = config(&olds(["/a", "/c.html", "/d"]));
        let found = readable(&one).unwrap();
        let (name, route) = found.config.routes.iter().find(|(name, _)| name.ends_with("redirects")).unwrap();
        assert_eq!(paths(&route.matches).collect::<Vec<_>>(), ["/old0", "/old1", "/old2"]);
        assert_eq!(found.config.maps.len(), 1);
        assert_eq!(found.name_of("a.test.old1"), name);
        assert_eq!(found.name_of("a.test.root"), "a.test.root");
        assert!(found.config.routes.get("a.test.old1").is_none());
        assert!(found.config.tests.iter().all(|case| case.route.as_deref() != Some("a.test.old1")));
        // Two are no table; nor are hosts, queries and placeholders, which an expression would escape or choose.
        let none = [
            "location = /a { return 301 /x; } location = /b { return 301 /y; }".to_owned(),
            olds(["https://a.test/x", "https://b.test/y", "https://c.test/z"]),
            olds(["/a?x=1", "/b?x=1", "/c?x=1"]),
            olds(["/a/b", "/c/", "/d/e.html"]),
            olds(["/$host/a", "/b/$host", "/c/$host"]),
        ];
        for body in none {
            let one = config(&body);
            let found = readable(&one).map(|found| format!("{:?}", found.config.routes));
            assert!(found.is_none(), "{body}: {found:?}");
        }
    }

    #[test]
    fn a_regex_that_is_a_prefix_is_written_as_one() {
        let pass = "proxy_pass http://127.0.0.1:8080;";
        let found = |body: &str| readable(&config(body)).map(|found| all_paths(&found.config));
        let taken = found(&format!("location ~ ^/img {{ {pass} }} location /i {{ return 403; }}")).unwrap();
        assert!(taken.iter().any(|(_, paths)| *paths == ["/img*"]), "{taken:?}");
        let exact =
            found(&format!("location ~ ^/img {{ {pass} }} location = /img/x {{ return 403; }}")).unwrap();
        assert!(exact.iter().any(|(_, paths)| *paths == ["/img*"]), "{exact:?}");
        let none = [
            // The longer prefix would win; a regex might, or must.
            "location /img/new { return 403; }",
            r"location ~ \.png$ { return 403; }",
            "location ~ ^/(img|x) { return 403; }",
            "location ~ ^/im { return 403; }",
            "location ^~ /im { return 403; }",
        ];
        for other in none {
            let body = format!("location ~ ^/img {{ {pass} }} {other}");
            let is_same = found(&body)
                .is_none_or(|all| !all.iter().any(|(_, paths)| paths.contains(&"/img*".to_owned())));
            assert!(is_same, "{other}");
        }
    }

    #[test]
    fn a_folder_and_what_is_below_it_is_one_path() {
        let mut one =
            config("location = /a { return 403; } location /a/ { return 403; } location / { return 200; }");
        let found = all_paths(&readable(&one).unwrap().config);
        assert!(found.iter().any(|(_, paths)| *paths == ["/a/*"]), "{found:?}");
        // Another route that may take `/a`.
        one.routes.add(
            "other",
            Route {
                matches: Match { path: Some("/{id}".to_owned()), ..Match::default() },
                ..Route::default()
            },
        );
        assert!(readable(&one).is_none());
    }

    #[test]
    fn what_patterns_begin_with() {
        let cases = [
            ("/a/*", "/a/"),
            ("/a/{id}", "/a/"),
            ("~/ab.*", "/ab"),
            ("~/ab*", "/a"),
            ("~/ab?c", "/a"),
            ("~/a|/b", ""),
            ("~.*x", ""),
            ("~(?i)/a", ""),
            ("/a", "/a"),
        ];
        for (path, expected) in cases {
            assert_eq!(beginning(path), expected, "{path}");
        }
    }
}
