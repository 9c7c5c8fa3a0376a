//! URLs of requests, with the variables in them.

use super::super::json::Node;
use super::super::vault::is_secret;
use super::super::{secrets, text};
use super::{Importer, is_disabled};
use crate::ledger::Piece;

/// A part of a text of Postman.
enum TextPart<'t> {
    /// A name of the plan.
    Name(String),
    Own(&'t str),
}

/// The names of a text that the importer wrote as placeholders, without those that have a meaning of their own.
pub(super) fn placeholders(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let after = rest.get(at + 2..).unwrap_or_default();
        if after.starts_with("{{") {
            rest = after.get(2..).unwrap_or_default();
            continue;
        }
        let inner = after.split("}}").next().unwrap_or_default();
        let name = inner.rsplit("{{").next().unwrap_or_default().split('|').next().unwrap_or_default();
        let is_own =
            name.contains(':') || ["uuid", "now", "counter", "index", "user", "iteration"].contains(&name);
        if !is_own && !name.is_empty() {
            names.push(name.to_owned());
        }
        rest = after;
    }
    names
}

impl Importer<'_, '_> {
    /// The URL as Postman writes it, with its variables and path variables.
    pub(super) fn raw_url(&self, node: &Node<'_>) -> String {
        let Some(url) = node.get("url") else { return String::new() };
        if let Some(text) = url.as_str() {
            return text.to_owned();
        }
        let list = |key: &str, between: &str| match url.get(key) {
            Some(node) if node.as_str().is_some() => node.as_str().unwrap_or_default().to_owned(),
            Some(node) => node
                .items()
                .iter()
                .filter_map(|part| Some(part.as_text()?.into_owned()))
                .collect::<Vec<_>>()
                .join(between),
            None => String::new(),
        };
        let mut raw = match url.text("raw") {
            Some(raw) => raw.to_owned(),
            None => {
                let protocol =
                    url.text("protocol").map_or(String::new(), |protocol| format!("{protocol}://"));
                let port =
                    url.get("port").and_then(Node::as_text).map_or(String::new(), |port| format!(":{port}"));
                format!("{protocol}{}{port}/{}", list("host", "."), list("path", "/"))
            }
        };
        // The list of parameters says which are switched off; the raw text may still have them.
        if let Some(query) = url.get("query") {
            let bare = raw.split(['?', '#']).next().unwrap_or_default().to_owned();
            let on = query.items().iter().filter(|pair| !is_disabled(pair));
            let pairs: Vec<String> = on
                .filter_map(|pair| {
                    let key = pair.text("key")?;
                    Some(
                        pair.get("value")
                            .and_then(Node::as_text)
                            .map_or_else(|| key.to_owned(), |value| format!("{key}={value}")),
                    )
                })
                .collect();
            raw = if pairs.is_empty() { bare } else { format!("{bare}?{}", pairs.join("&")) };
        }
        for variable in url.get("variable").map(Node::items).unwrap_or_default() {
            if let (Some(key), Some(value)) =
                (variable.text("key"), variable.get("value").and_then(Node::as_text))
            {
                let parts = raw.split('/').map(|part| {
                    let (name, rest) =
                        part.split_once('?').map_or((part, None), |(name, rest)| (name, Some(rest)));
                    match (name.strip_prefix(':') == Some(key), rest) {
                        (true, None) => value.clone().into_owned(),
                        (true, Some(rest)) => format!("{value}?{rest}"),
                        _ => part.to_owned(),
                    }
                });
                raw = parts.collect::<Vec<_>>().join("/");
            }
        }
        raw
    }

    /// The URL of a plan, and its user and password. The server is that of the first request, or a variable.
    pub(super) fn url(&mut self, raw: &str, piece: Piece) -> Result<(String, Option<String>), String> {
        let mut raw = raw.trim().to_owned();
        let first = raw
            .strip_prefix("{{")
            .and_then(|rest| rest.split_once("}}"))
            .map(|(name, rest)| (name.trim().to_owned(), rest.to_owned()));
        let mut is_target = false;
        if let Some((name, rest)) = first {
            match self.values.get(&text::name(&name)).cloned().flatten() {
                Some(value) if !value.is_empty() => raw = format!("{value}{rest}"),
                _ if rest.is_empty() || rest.starts_with(['/', '?']) => {
                    is_target = true;
                    self.cx.ledger.changed(
                        piece,
                        format!("the server is the variable `{name}` of an environment: set TARGET"),
                    );
                    raw = format!("http://target.invalid{rest}");
                }
                _ => return Err(format!("its server is made of the variable `{name}` and other text")),
            }
        }
        if !raw.contains("://") {
            raw = format!("http://{raw}");
        }
        let mut url = self.url_text(&raw)?;
        let user = secrets::take_user(&mut url);
        let Some((server, path)) = text::split_url(&url) else {
            return Err("its server is no host, or holds a variable".to_owned());
        };
        let path = (path, user);
        if is_target {
            return Ok(path);
        }
        self.is_known = true;
        if self.server.is_none() {
            self.server = Some(server.clone());
        }
        let (path, user) = path;
        let url = if self.server.as_deref() == Some(&*server) { path } else { format!("{server}{path}") };
        Ok((url, user))
    }

    /// The parts of a text between its variables, and the names of the plan for those.
    fn parts<'t>(&mut self, text: &'t str) -> Result<Vec<TextPart<'t>>, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((name, behind)) = after.split_once("}}") else { break };
            // Of three braces the first stands for itself.
            let bare = name.trim_start_matches('{');
            let own = rest.get(..before.len() + name.len() - bare.len()).unwrap_or_default();
            parts.push(TextPart::Own(own));
            parts.push(TextPart::Name(self.variable(bare.trim())?));
            rest = behind;
        }
        parts.push(TextPart::Own(rest));
        Ok(parts)
    }

    /// The name of the plan for a variable of Postman.
    fn variable(&mut self, name: &str) -> Result<String, String> {
        let own = match name {
            "$guid" | "$randomUUID" => "uuid",
            "$timestamp" => "now",
            "$isoTimestamp" => "now:rfc3339",
            "$randomInt" => "random:0:1000",
            _ if name.starts_with('$') => {
                return Err(format!("`{{{{{name}}}}}` makes up a value, and a plan has no such function"));
            }
            _ => "",
        };
        if !own.is_empty() {
            return Ok(own.to_owned());
        }
        let named = text::name(name);
        if named != name && !self.kept.contains(&named) {
            self.cx.ledger.note(format!("The variable `{name}` is called {named}."));
        }
        Ok(named)
    }

    /// A URL as a text of plans. Postman puts values into URLs as they are.
    fn url_text(&mut self, raw: &str) -> Result<String, String> {
        let mut out = String::new();
        for part in self.parts(raw)? {
            match part {
                TextPart::Own(own) => {
                    let before = own.split('#').next().unwrap_or_default();
                    out.push_str(&text::url_literal(before));
                    if before.len() < own.len() {
                        break;
                    }
                }
                TextPart::Name(name) if name.contains(':') || ["uuid", "now"].contains(&&*name) => {
                    out.push_str(&text::placeholder(&name));
                }
                TextPart::Name(name) => out.push_str(&text::placeholder(&format!("{name}|raw"))),
            }
        }
        Ok(out)
    }

    /// A text of the plan. A variable without counterpart stays out, and the request says so.
    pub(super) fn text(&mut self, text: &str, piece: Piece) -> String {
        let parts = match self.parts(text) {
            Ok(parts) => parts,
            Err(why) => {
                self.cx.ledger.refused(piece, why, "`values:`, a data set, or `exec`");
                return self.cx.vault.literal("secret", &text.replace("{{", "").replace("}}", ""));
            }
        };
        let mut out = String::new();
        for part in parts {
            match part {
                TextPart::Own(own) => out.push_str(&self.cx.vault.literal("secret", own)),
                TextPart::Name(name) => {
                    if text::joins(&out) {
                        // In JSON a blank changes nothing.
                        out.push(' ');
                    }
                    out.push_str(&text::placeholder(&name));
                }
            }
        }
        out
    }

    /// The text of a field; a secret becomes a variable.
    pub(super) fn secret_text(&mut self, name: &str, value: &str, piece: Piece) -> String {
        if is_secret(name) && !value.contains("{{") && !value.is_empty() {
            return super::super::request::credentials(name, value, &mut self.cx.vault);
        }
        self.text(value, piece)
    }
}
