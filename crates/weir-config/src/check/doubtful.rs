//! Settings that are valid alone but doubtful in their context. All give warnings that say when the setting is right.

use std::net::IpAddr;

use super::Checker;
use super::spot::Spot;
use crate::node::Node;
use crate::schema::{Files, FilterNode, Route, Written};
use crate::units::Percent;

/// Most names of a folder among which scripts are looked for.
const ENTRIES: usize = 10_000;

impl Checker<'_> {
    pub(super) fn doubtful(&mut self) {
        let config = self.config;
        let section = Spot::section(self.tree, "routes");
        for Written { name, thing: route, node } in config.routes.written(section.node()) {
            let at = section.thing(name, node);
            self.folder(&at.key("files"), route);
            for filter in route.all_filters().filter(|filter| filter.name == "mirror") {
                self.mirrored_to_itself(filter, route);
            }
        }
        for filter in self.filters() {
            match filter.name.as_str() {
                "fault" => self.always_fails(filter),
                "redirect" => self.https_of_nobody(filter),
                "jwt" => self.any_token(&filter.node, &filter.path),
                "any" => {
                    for (index, member) in filter.node.elements().iter().enumerate() {
                        let path = || format!("{}[{index}].jwt", filter.path);
                        member.get("jwt").into_iter().for_each(|jwt| self.any_token(jwt, &path()));
                    }
                }
                _ => {}
            }
        }
        let listeners = Spot::section(self.tree, "listeners");
        for (name, listener) in config.listeners.iter() {
            let Some(acme) = listener.tls.as_ref().and_then(|tls| tls.acme.as_ref()) else { continue };
            // A private authority may know names that the Internet does not.
            if acme.directory.is_some() || acme.ca.is_some() {
                continue;
            }
            let at = listeners.key(name);
            let (tls, domains) = (at.key("tls"), acme.domains.iter().enumerate());
            for (index, domain) in domains.filter(|(_, domain)| is_local(domain)) {
                let path = format!("{}.acme.domains[{index}]", tls.path());
                let message = format!(
                    "Let's Encrypt cannot issue a certificate for {domain}: it is not on the Internet"
                );
                let hint = "use `certificates`, or the `directory` of an authority of your own";
                self.warn(&path, "not-public", message, hint);
            }
        }
        let stores = Spot::section(self.tree, "stores");
        for (name, _) in config.stores.iter().filter(|(_, store)| store.fleet.is_some()) {
            if config.source.is_none() {
                let message = "this config has no `source`, so no other node shares the store and each gateway counts alone";
                let hint = "this is fine in a bundle, because a fleet's nodes have a `source`; otherwise add one, or use `redis`";
                self.warn(&stores.key(name).key("fleet").path(), "fleet-without-source", message, hint);
            }
        }
    }

    fn folder(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let Some(files) = &route.files else { return };
        if files.root.0 == std::path::Path::new("/") {
            let message =
                "every file of this machine that Weir can read is served, including keys and configs";
            self.warn(&at.key("root").path(), "whole-machine", message, "name the intended folder");
            return;
        }
        if files.hidden && files.browse {
            let message = "hidden files are listed and served, including .git, .env and .htpasswd";
            let hint = "leave `hidden` out: /.well-known/ is served anyway";
            self.warn(&at.key("hidden").path(), "hidden-listed", message, hint);
        }
        // A filter may change the path in many ways. Without one, the whole path is looked up below the root.
        let changes = |filter: &FilterNode| filter.name == "rewrite";
        let is_changed = self.config.filters.iter().chain(&route.filters).any(changes);
        if route.fastcgi.is_none() {
            let paths: Vec<&str> = if is_changed { vec![""] } else { route.matches.path.iter().collect() };
            self.sources(at, files, &paths);
        }
        if is_changed {
            return;
        }
        let path = route.matches.path.only();
        let prefix = path.and_then(|path| {
            path.strip_suffix("/*").filter(|prefix| prefix.len() > 1 && !prefix.contains(['{', '*', '~']))
        });
        let Some(prefix) = prefix else { return };
        // A root that ends like the prefix is meant for the path after the prefix. Another root may get that folder
        // later.
        let below = files.root.0.join(prefix.trim_start_matches('/'));
        if files.root.0.ends_with(prefix.trim_start_matches('/')) && files.root.0.is_dir() && !below.exists()
        {
            let message =
                format!("the whole path is looked up below the root, and {} does not exist", below.display());
            let hint = format!("add `filters: [ rewrite: {{ strip_prefix: {prefix} }} ]`");
            self.warn(&at.key("root").path(), "files-under-prefix", message, hint);
        }
    }

    /// Warns of scripts that are sent instead of run: in the folders that a route with these paths leads to.
    fn sources(&mut self, at: &Spot<'_, '_>, files: &Files, paths: &[&str]) {
        let is_script = |name: &str| name.len() > ".php".len() && name.to_ascii_lowercase().ends_with(".php");
        let written = files.index.iter().find(|name| is_script(name)).cloned();
        let found = |path: &&str| {
            let literal = path.split(['{', '*', '~']).next().unwrap_or_default();
            let below = literal.rsplit_once('/').map_or("", |(below, _)| below.trim_start_matches('/'));
            let entries = std::fs::read_dir(files.root.0.join(below)).ok()?.take(ENTRIES).flatten();
            let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.find(|name| is_script(name) && (files.hidden || !name.starts_with('.')))
        };
        if let Some(name) = written.or_else(|| paths.iter().find_map(found)) {
            let message =
                format!("scripts such as {name} are sent as text, with all that their source holds");
            let hint = "add `fastcgi: { root: … }` and `missing: NAME` with an upstream of `protocol: fastcgi`, or move the scripts elsewhere";
            self.warn(&at.key("root").path(), "sources-served", message, hint);
        }
    }

    fn mirrored_to_itself(&mut self, filter: &FilterNode, route: &Route) {
        let Some(to) = filter.node.get("upstream").and_then(Node::as_text) else { return };
        let own = route.shares();
        if own.filter(|share| share.weight > 0).any(|share| share.upstream == to) {
            let message = format!("upstream `{to}` answers this route: it receives these requests twice");
            let hint = "mirror to another upstream; otherwise every change would happen twice";
            self.warn(&format!("{}.upstream", filter.path), "mirror-to-itself", message, hint);
        }
    }

    fn always_fails(&mut self, filter: &FilterNode) {
        let text = |key: &str| filter.node.get(key).and_then(Node::as_text);
        let share = text("share").map_or(Some(Percent::new(100)), |share| share.parse().ok());
        if text("status").is_some() && share.is_some_and(|share| share.ratio() >= 1.0) {
            let message = "every request fails: `share` is missing or 100%";
            self.warn(&filter.path, "always-fails", message, "set the share: share: 1%");
        }
    }

    /// Warns of a redirect to https on the same host if no listener speaks TLS.
    fn https_of_nobody(&mut self, filter: &FilterNode) {
        let text = |key: &str| filter.node.get(key).and_then(Node::as_text);
        let own = text("https") == Some("true")
            || text("to")
                .is_some_and(|to| to.starts_with("https://{host}") || to.starts_with("https://{authority}"));
        let speaks = self.config.listeners.iter().any(|(_, listener)| listener.tls.is_some());
        // Behind a proxy that terminates TLS, its forwarded scheme counts.
        if own && !speaks && self.config.trusted_proxies.is_empty() {
            let message = "no listener has `tls`: clients that follow the redirect cannot connect, or are redirected again";
            let hint = "add `tls` to a listener, or name the proxy that ends TLS in `trusted_proxies`";
            self.warn(&filter.path, "https-of-nobody", message, hint);
        }
    }

    /// Warns of a provider's key URL without further conditions: its keys sign tokens for all of the provider's
    /// services.
    fn any_token(&mut self, jwt: &Node, path: &str) {
        let remote = jwt.get("keys").and_then(Node::as_text).is_some_and(|keys| keys.starts_with("http"));
        let none = |key: &str| jwt.get(key).is_none_or(|node| !node.is_set() || node.elements().is_empty());
        if remote && none("issuers") && none("audiences") && none("require") {
            let message =
                "every token signed by the provider is accepted, even one for another service or client";
            let hint = "write audiences: [ … ], and issuers: [ … ]";
            self.warn(path, "any-token", message, hint);
        }
    }
}

/// Whether no public authority can validate the name.
fn is_local(name: &str) -> bool {
    if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return match address {
            IpAddr::V4(a) => a.is_private() || a.is_loopback() || a.is_link_local() || a.is_unspecified(),
            IpAddr::V6(a) => a.is_loopback() || a.is_unspecified() || (a.segments()[0] & 0xfe00) == 0xfc00,
        };
    }
    // RFC 6761, 6762, 8375, and `.internal` as reserved by ICANN.
    const LOCAL: &[&str] = &["home.arpa", "internal", "invalid", "local", "localhost", "test", "lan"];
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is = |last: &str| name == last || name.strip_suffix(last).is_some_and(|rest| rest.ends_with('.'));
    LOCAL.iter().any(|last| is(last)) || !name.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names() {
        for (name, local) in [
            ("localhost", true),
            ("gw", true),
            ("api.corp.internal", true),
            ("printer.local", true),
            ("10.1.2.3", true),
            ("192.168.0.1", true),
            ("api.example.com", false),
            ("*.example.com", false),
            ("203.0.113.7", false),
            ("internal.example.com", false),
            ("mylocal", true),
            ("notlocal.com", false),
        ] {
            assert_eq!(is_local(name), local, "{name}");
        }
    }
}
