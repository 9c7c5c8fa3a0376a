//! Checks that concern several values. Each check is independent and continues after a mistake, so that all are
//! reported.
//!
//! Whether a value was written is read from the tree, not from the typed config: a refused value is absent there, and
//! its absence is not a second mistake. Ambiguous routes are found in `route`, settings of filters by their registry.

mod balancing;
mod bytes;
mod consumer_sources;
mod consumers;
mod discovery;
mod doubtful;
mod fastcgi;
mod filters;
mod health;
mod http3;
mod listeners;
mod maps;
mod migration;
mod process;
mod routes;
mod source;
mod spot;
mod tracing;
mod upstreams;
mod user;

use std::borrow::Cow;
use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(crate) use consumers::check_document;
pub use routes::{TARGETS, is_for_match, is_for_target};
pub(crate) use source::BOOTSTRAP;

use super::aliases;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Key, Node};
use super::schema::{Config, FilterNode, Listener, Serves};
use super::spelling::nearest_name;
use super::units::Duration;

/// Longest path of a Unix socket. Source: unix(7), `sun_path` holds 108 bytes with the closing NUL.
const MAX_UNIX_PATH: usize = 107;

/// Finds everything that is wrong between the parts of a config.
///
/// `credentials` names the filters that know consumers. `awaits` says that the source has yet to send all but a fleet
/// node's own keys.
pub fn check(
    config: &Config,
    tree: &Node,
    credentials: &[&str],
    awaits: bool,
    diagnostics: &mut Diagnostics,
) {
    let mut checker = Checker { config, tree, credentials, diagnostics };
    checker.source();
    if awaits {
        return checker.process();
    }
    checker.listeners();
    checker.upstreams();
    checker.consumers();
    checker.consumer_sources();
    checker.maps();
    checker.routes();
    checker.filter_lists();
    checker.migrations();
    checker.doubtful();
    checker.process();
    checker.tracing();
    // The references of a refused value are unknown.
    if checker.diagnostics.errors() == 0 {
        checker.unused();
    }
}

struct Checker<'a> {
    config: &'a Config,
    tree: &'a Node,
    credentials: &'a [&'a str],
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Checker<'a> {
    fn find(&self, path: &str) -> Option<&'a Node> {
        self.tree.find(path)
    }

    /// Whether every element of a list was valid, so that list indexes match those in the config.
    fn is_whole(&self, path: &str, length: usize) -> bool {
        self.find(path).is_none_or(|node| node.elements().len() == length)
    }

    fn error(&mut self, path: &str, code: &'static str, message: impl Into<Cow<'static, str>>) {
        self.diagnostics.push(Diagnostic::error(code, message).on(self.tree, path));
    }

    fn error_hint(
        &mut self,
        path: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
    ) {
        let hint = hint.into();
        let mut diagnostic = Diagnostic::error(code, message).on(self.tree, path);
        // A hint to write something else repeats the value, which may have come from outside.
        let repeats = hint.starts_with("write ") && self.find(path).is_some_and(|node| node.substituted);
        if !repeats {
            diagnostic = diagnostic.hint(hint);
        }
        self.diagnostics.push(diagnostic);
    }

    fn warn(
        &mut self,
        path: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
    ) {
        self.diagnostics.push(Diagnostic::warning(code, message).on(self.tree, path).hint(hint));
    }

    /// A warning whose texts also contain values written below `others`.
    fn warn_with(
        &mut self,
        path: &str,
        others: &[&str],
        code: &'static str,
        message: String,
        hint: impl Into<Cow<'static, str>>,
    ) {
        let told = Diagnostic::warning(code, message).on(self.tree, path).hint(hint);
        let others = others.iter().filter_map(|other| self.find(other));
        self.diagnostics.push(others.fold(told, Diagnostic::concealing));
    }

    /// Whether a value was written at `path`, valid or not.
    fn is_written(&self, path: &str) -> bool {
        self.find(path).is_some_and(Node::is_set)
    }

    /// The names in a section, including those of refused entries.
    fn names(&self, section: &str) -> Vec<&'a str> {
        let entries = self.tree.get(section).map_or(&[][..], Node::entries).iter();
        entries.filter(|(_, thing)| thing.is_set()).map(|(key, _)| &*key.text).collect()
    }

    /// An error unless `name` is in the section.
    fn must_exist(&mut self, path: impl FnOnce() -> String, section: &str, code: &'static str, name: &str) {
        if self.tree.get(section).and_then(|things| things.get(name)).is_some_and(Node::is_set) {
            return;
        }
        if self.is_mistyped(section) {
            return; // already reported, with all names
        }
        let names = self.names(section);
        let kind = section.trim_end_matches('s');
        let hint = match nearest_name(name, names.iter().copied()) {
            _ if name.contains("://") && section == "upstreams" => {
                "write the name of an upstream, and the address as an endpoint under `upstreams`".to_owned()
            }
            Some(near) => format!("did you mean {near}?"),
            None if names.is_empty() => format!("write it under `{section}`"),
            None => {
                format!("expected one of: {}", names.iter().take(10).copied().collect::<Vec<_>>().join(", "))
            }
        };
        self.error_hint(&path(), code, format!("there is no {kind} `{name}`"), hint);
    }

    /// Whether a section is absent because its name was mistyped.
    fn is_mistyped(&self, section: &str) -> bool {
        let near = |key: &Key| nearest_name(&key.text, [section]).is_some() && !is_section(&key.text);
        self.tree.get(section).is_none() && self.tree.entries().iter().any(|(key, _)| near(key))
    }

    /// Whether a key below `base` has another gateway's name; that error is enough.
    fn is_called_otherwise(&self, base: &str, key: &'static str) -> bool {
        let below = self.find(base).map_or(&[][..], Node::entries).iter();
        below
            .map(|(name, _)| aliases::key(&name.text, &[key]))
            .any(|meant| meant.is_some_and(|(ours, _)| ours == Some(key)))
    }

    /// An error unless we can read the file. Returns whether we can.
    fn must_be_file(&mut self, path: &str, file: &Path) -> bool {
        let problem = match std::fs::metadata(file) {
            Ok(meta) if meta.is_file() => match std::fs::File::open(file) {
                Ok(_) => return true,
                Err(error) => Err(error),
            },
            Ok(_) => Ok("is not a file"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok("does not exist"),
            Err(error) => Err(error),
        };
        let file_shown = file.display();
        match problem {
            Ok(problem) => self.error(path, "file-missing", format!("{file_shown} {problem}")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let us = user::ourselves();
                let hint = format!(
                    "let {us} read it, and enter the folders above it: chgrp and chmod g+r, or run as its owner"
                );
                self.error_hint(
                    path,
                    "file-unreadable",
                    format!("{file_shown} may not be read by {us}"),
                    hint,
                );
            }
            Err(error) => {
                self.error(path, "file-unreadable", format!("{file_shown} cannot be read: {error}"));
            }
        }
        false
    }

    /// As [`must_be_file`](Self::must_be_file), with a warning if everyone on this machine may read the file.
    fn must_be_key(&mut self, path: &str, file: &Path) {
        const OTHERS_MAY_READ: u32 = 0o004;
        if !self.must_be_file(path, file) {
            return;
        }
        let mode = std::fs::metadata(file).map_or(0, |meta| meta.permissions().mode());
        if mode & OTHERS_MAY_READ != 0 {
            let message = format!("every user of this machine can read the private key {}", file.display());
            self.warn(path, "readable-key", message, format!("chmod o-rwx {}", file.display()));
        }
    }

    fn check_unix_path(&mut self, path: &str, file: &Path) {
        let length = file.as_os_str().len();
        if length > MAX_UNIX_PATH {
            let message =
                format!("the path of the Unix socket has {length} bytes; expected at most {MAX_UNIX_PATH}");
            self.error(path, "path-too-long", message);
        }
    }

    /// An error for a number that its type allows but its meaning does not.
    fn must_be_within(&mut self, path: &str, value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) && self.is_written(path) {
            let expected = match max {
                max if max >= u32::MAX.into() => format!("at least {min}"),
                max => format!("{min} to {max}"),
            };
            self.error(path, "out-of-range", format!("`{value}` is out of range; expected {expected}"));
        }
    }

    /// An error for a duration of zero that must be positive.
    fn must_last(&mut self, path: &str, value: Duration) {
        if value.is_zero() {
            self.error(path, "out-of-range", "`0s` is out of range; expected a time above zero");
        }
    }

    /// A warning if the inner time can never run out because the outer one ends first. Zero means no limit.
    fn must_fit(&mut self, base: &str, (inner, short): (&str, Duration), (outer, long): (&str, Duration)) {
        if !short.is_zero() && !long.is_zero() && short > long {
            let path = if self.is_written(&format!("{base}.{inner}")) { inner } else { outer };
            let message = format!("{inner} ({short}) is longer than {outer} ({long}), which ends first");
            let hint = format!("make {inner} the shorter one");
            self.warn(&format!("{base}.{path}"), "timeouts-contradict", message, hint);
        }
    }

    /// All filters of all lists, also those in the lists of others.
    fn filters(&self) -> impl Iterator<Item = &'a FilterNode> + use<'a> {
        self.config.all_filters().flat_map(FilterNode::all)
    }

    /// The names and settings of all filters, including the members of `any`.
    fn filters_and_members(&self) -> impl Iterator<Item = (&'a str, &'a Node)> {
        self.filters().flat_map(|filter| {
            let members = filter.node.elements().iter().flat_map(Node::entries);
            let members = members.map(|(name, node)| (&*name.text, node));
            std::iter::once((filter.name.as_str(), &filter.node)).chain(members)
        })
    }

    /// Objects that nothing refers to.
    fn unused(&mut self) {
        let shares = self.config.routes.iter().flat_map(|(_, route)| route.shares());
        // A filter that calls an upstream names it under `upstream`.
        let asked = self.filters_and_members().flat_map(|(name, node)| upstreams_of_filter(name, node));
        let passed = self.config.listeners.iter().flat_map(|(_, listener)| listener.passes_to());
        let routed = shares.map(|share| share.upstream.as_str());
        let used: HashSet<&str> = routed.chain(asked).chain(passed).collect();
        for name in self.names("upstreams") {
            if !used.contains(name) {
                let message = format!("no route, filter or listener uses the upstream `{name}`");
                self.warn(&format!("upstreams.{name}"), "unused", message, "remove it, or route to it");
            }
        }
        let consumers = self.config.consumers.iter();
        let used: HashSet<&str> = consumers.filter_map(|(_, consumer)| consumer.plan.as_deref()).collect();
        let is_closed = self.config.consumer_sources.is_empty();
        for name in self.names("plans") {
            if is_closed && !used.contains(name) {
                let message = format!("no consumer has the plan `{name}`");
                self.warn(&format!("plans.{name}"), "unused", message, "remove it, or give it to a consumer");
            }
        }
        let known = self.filters_and_members().any(|(name, _)| self.credentials.contains(&name));
        let sections = [
            ("consumers", self.config.consumers.is_empty()),
            ("consumer_sources", self.config.consumer_sources.is_empty()),
        ];
        for (section, _) in sections.into_iter().filter(|(_, is_empty)| !known && !is_empty) {
            let message = "no route has a filter that identifies consumers, so they are never recognised";
            self.warn(section, "unused", message, "add `- key_auth: {}` to the filters");
        }
        let speaks_http = |(_, listener): (&str, &Listener)| listener.serves() == Serves::Http;
        let is_empty = self.config.listeners.is_empty();
        let lacks_routes = self.config.routes.is_empty() && !self.config.ranked;
        if lacks_routes && (is_empty || self.config.listeners.iter().any(speaks_http)) {
            let hint = "add one under `routes`";
            self.warn("routes", "no-routes", "there is no route: every request will be answered 404", hint);
        }
    }
}

/// Whether a config may have this key at its top level.
fn is_section(name: &str) -> bool {
    schemars::schema_for!(Config).get("properties").is_some_and(|known| known.get(name).is_some())
}

/// Whether a text is a name of a method or header field. Source: RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Whether a text is a header field value that cannot break the message. Source: RFC 9110 §5.5.
fn is_field_value(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || c == '\t') && text.trim_matches([' ', '\t']) == text
}

/// The upstreams that a filter calls.
fn upstreams_of_filter<'n>(name: &str, node: &'n Node) -> impl Iterator<Item = &'n str> {
    // The keys of `errors` are errors, and each may name the upstream of its page.
    let each = if name == "errors" { node.entries() } else { &[] };
    let of_each = each.iter().filter_map(|(_, page)| page.get("upstream")?.as_text());
    node.get("upstream").and_then(Node::as_text).into_iter().chain(of_each)
}
