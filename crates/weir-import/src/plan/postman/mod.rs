//! Postman collections 2.1: top-level folders become scenarios, or one scenario if a folder uses what another one kept.
//! Variables keep their names. Scripts are not run: the usual lines of tests become checks and keeps.

mod body;
mod scripts;
mod url;

use super::har::hoist;
use super::json::{self, Node};
use super::model::{Constant, ConstantValue, Does, Plan, Request, Scenario, Target, each_request};
use super::vault::is_secret;
use super::{Cx, Kind, keeps, secrets, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::Map;
use std::collections::{BTreeMap, BTreeSet};
use url::placeholders;

pub(super) static KIND: Kind = Kind { name: "postman", title: "Postman collection", import };

/// Deepest folder.
const DEPTH: usize = 20;

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let root = json::read(&file)?;
    // The API of Postman wraps a collection.
    let root = root.get("collection").unwrap_or(&root);
    if root.get("item").is_none() {
        let why = match root.get("requests") {
            Some(_) => "a collection of format 1: export it as Collection v2.1",
            None => "no Postman collection: it has no `item`",
        };
        return Err(Unreadable::at(&cx.place(1), why));
    }
    // A secret must not get the name that a variable of the collection has.
    for name in variables_of(&file.text) {
        cx.vault.take(&text::name(name));
    }
    let title = root.at(&["info", "name"]).and_then(Node::as_str).unwrap_or("collection").to_owned();
    let mut importer =
        Importer { cx, values: BTreeMap::new(), kept: BTreeSet::new(), server: None, is_known: false };
    importer.variables(root);
    let mut plan = Plan::default();
    importer.collect_kept(root, 0);
    let mut own = Scenario { name: title.clone(), ..Scenario::default() };
    importer.scripts_of_folder(root);
    for item in root.get("item").map(Node::items).unwrap_or_default() {
        let name = item.text("name").unwrap_or("request").to_owned();
        if item.get("item").is_some() {
            let mut scenario = Scenario { name, ..Scenario::default() };
            importer.folder(item, &mut scenario, "", root.get("auth"), 1);
            plan.scenarios.push(scenario);
        } else {
            importer.request(item, &mut own, "", root.get("auth"));
        }
    }
    if !own.steps.is_empty() {
        plan.scenarios.insert(0, own);
    }
    let (server, is_known, values) = (importer.server, importer.is_known, importer.values);
    plan.target = server.map(Target::Known).or((!is_known).then_some(Target::Unknown));
    join(&mut plan, &title);
    let dropped: BTreeSet<String> = keeps::drop_unused(&mut plan).into_iter().collect();
    if !dropped.is_empty() {
        let names: Vec<String> = dropped.into_iter().collect();
        cx.ledger.note(format!(
            "No later request uses what scripts keep as {}: it is not kept.",
            names.join(", ")
        ));
    }
    used_values(cx, &mut plan, &values);
    hoist(&mut plan);
    // Postman follows redirects.
    plan.defaults.set("redirects", 10_i64);
    plan.more = Map::new().with("users", 1_i64);
    Ok(plan)
}

/// The names between `{{` and `}}` in a text.
fn variables_of(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    parts.map(|(name, _)| name.trim().trim_start_matches('{')).filter(|name| name.len() <= 100)
}

/// One scenario in the order of the collection, if a folder uses what another one kept.
fn join(plan: &mut Plan, title: &str) {
    let mut kept: Vec<BTreeSet<String>> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for scenario in &mut plan.scenarios {
        let (mut own, mut all) = (BTreeSet::new(), String::new());
        each_request(&mut scenario.steps, &mut |request| {
            own.extend(request.keep.iter().map(|keep| keep.name.clone()));
            request.parts_mut(&mut |text| all.push_str(text));
        });
        kept.push(own);
        texts.push(all);
    }
    let needs = |at: usize, text: &String| {
        kept.iter().enumerate().any(|(from, names)| {
            from != at
                && names.iter().any(|name| {
                    keeps::uses_name(text, name) && !kept.get(at).is_some_and(|own| own.contains(name))
                })
        })
    };
    if plan.scenarios.len() < 2 || !texts.iter().enumerate().any(|(at, text)| needs(at, text)) {
        return;
    }
    let mut all = Scenario { name: title.to_owned(), ..Scenario::default() };
    all.comment.push("One journey, because folders use what requests of others kept.".to_owned());
    for scenario in std::mem::take(&mut plan.scenarios) {
        for mut step in scenario.steps {
            if let Does::Request(request) = &mut step.does {
                let name = request.name.take().unwrap_or_default();
                request.name =
                    Some(if scenario.name == title { name } else { format!("{} / {name}", scenario.name) });
            }
            all.steps.push(step);
        }
    }
    plan.scenarios.push(all);
}

/// The values of variables that requests use before a script keeps them, or that nothing keeps.
fn used_values(cx: &mut Cx<'_>, plan: &mut Plan, values: &BTreeMap<String, Option<String>>) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for scenario in &mut plan.scenarios {
        let mut kept: BTreeSet<String> = BTreeSet::new();
        each_request(&mut scenario.steps, &mut |request| {
            request.parts_mut(&mut |text| {
                open.extend(placeholders(text).into_iter().filter(|name| !kept.contains(name)))
            });
            kept.extend(request.keep.iter().map(|keep| keep.name.clone()));
        });
    }
    for name in open {
        if cx.vault.has(&name) {
            continue;
        }
        match values.get(&name) {
            Some(Some(value)) if !is_secret(&name) => {
                plan.values.push(Constant { name: name.clone(), value: ConstantValue::Text(value.clone()) });
                cx.vault.take(&name);
            }
            known => {
                let variable = name.to_ascii_uppercase();
                match known.cloned().flatten().filter(|value| !value.is_empty()) {
                    Some(value) => cx.vault.adopt(&name, &variable, &value),
                    None => {
                        let value = ConstantValue::Variable(variable, None);
                        plan.values.push(Constant { name: name.clone(), value });
                        cx.vault.take(&name);
                    }
                }
            }
        }
    }
}

struct Importer<'c, 'a> {
    cx: &'c mut Cx<'a>,
    /// Variables of the collection by their names in the plan.
    values: BTreeMap<String, Option<String>>,
    /// Names that scripts keep.
    kept: BTreeSet<String>,
    /// The first server.
    server: Option<String>,
    /// Whether every URL has a server of its own.
    is_known: bool,
}

impl Importer<'_, '_> {
    fn variables(&mut self, root: &Node<'_>) {
        for variable in root.get("variable").map(Node::items).unwrap_or_default() {
            let (Some(key), false) = (variable.text("key"), is_disabled(variable)) else { continue };
            let value = variable.get("value").and_then(Node::as_text).map(|value| value.into_owned());
            let is_hidden = variable.text("type") == Some("secret");
            let name = text::name(key);
            if is_hidden && let Some(value) = &value {
                self.cx.vault.never_show(value);
            }
            // A value with variables of its own is none that a plan can have.
            let value = value.filter(|value| !is_hidden && !value.contains("{{"));
            self.values.insert(name, value);
        }
    }

    /// The names that scripts keep anywhere, because a request may use what a later folder keeps.
    fn collect_kept(&mut self, node: &Node<'_>, depth: usize) {
        if depth > DEPTH {
            return;
        }
        for line in scripts::lines(node, "test") {
            if let Some(keep) = scripts::read(&line.text).and_then(scripts::Meaning::keep) {
                self.kept.insert(keep.name);
            }
        }
        for item in node.get("item").map(Node::items).unwrap_or_default() {
            self.collect_kept(item, depth + 1);
        }
    }

    fn folder(
        &mut self,
        node: &Node<'_>,
        scenario: &mut Scenario,
        prefix: &str,
        auth: Option<&Node<'_>>,
        depth: usize,
    ) {
        self.scripts_of_folder(node);
        let auth = node.get("auth").or(auth);
        for item in node.get("item").map(Node::items).unwrap_or_default() {
            if item.get("item").is_none() {
                self.request(item, scenario, prefix, auth);
            } else if depth >= DEPTH {
                let piece =
                    self.cx.ledger.enter(self.cx.place(item.line), item.text("name").unwrap_or("folder"));
                self.cx.ledger.refused(
                    piece,
                    format!("folders are nested more than {DEPTH} deep"),
                    "fewer levels",
                );
            } else {
                let name = item.text("name").unwrap_or("folder");
                self.folder(item, scenario, &format!("{prefix}{name} / "), auth, depth + 1);
            }
        }
    }

    /// Scripts of a folder run around each of its requests; they are not translated.
    fn scripts_of_folder(&mut self, node: &Node<'_>) {
        for kind in ["prerequest", "test"] {
            for line in scripts::lines(node, kind) {
                if !scripts::is_structure(&line.text) {
                    let piece = self.cx.ledger.enter(self.cx.place(line.line), &line.text);
                    self.cx
                        .ledger
                        .left_out(piece, "a line of a folder's script, which runs around each request");
                }
            }
        }
    }

    fn request(&mut self, item: &Node<'_>, scenario: &mut Scenario, prefix: &str, auth: Option<&Node<'_>>) {
        let name = item.text("name").unwrap_or("request");
        let Some(node) = item.get("request") else {
            let piece = self.cx.ledger.enter(self.cx.place(item.line), name);
            self.cx.ledger.refused(piece, "it is neither a folder nor a request", "a step by hand");
            return;
        };
        let method = node.text("method").unwrap_or("GET").to_ascii_uppercase();
        // A request may be its URL only.
        let url = node.as_str().map_or_else(|| self.raw_url(node), str::to_owned);
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let piece = self.cx.ledger.enter(self.cx.place(item.line), &format!("{method} {shown} ({name})"));
        let mut request = Request { name: Some(format!("{prefix}{name}")), method, ..Request::default() };
        match self.url(&url, piece) {
            Ok((url, user)) => {
                request.url = url;
                if let Some(user) = user {
                    request.set_header("authorization", secrets::basic_field(&user));
                }
            }
            Err(why) => {
                self.cx.ledger.refused(piece, why, "a step by hand: docs/reference/load-plan.md");
                return;
            }
        }
        for field in node.get("header").map(Node::items).unwrap_or_default() {
            let Some(key) = field.text("key") else { continue };
            let value = field.get("value").and_then(Node::as_text).unwrap_or_default();
            let value = &*value;
            let is_own = ["content-length", "connection", "transfer-encoding", "host"]
                .contains(&&*key.to_ascii_lowercase());
            if is_disabled(field) || is_own || key.is_empty() {
                continue;
            }
            let value = self.secret_text(key, value, piece);
            request.set_header(key, value.replace(['\r', '\n'], " "));
        }
        let auth = node.get("auth").filter(|auth| !auth.entries().is_empty()).or(auth);
        if let Some(auth) = auth {
            self.auth(auth, &mut request, piece);
        }
        if let Some(body) = node.get("body").filter(|body| !is_disabled(body))
            && !self.body(body, &mut request, piece)
        {
            return;
        }
        self.behavior(item, node, &mut request, piece);
        self.scripts(item, &mut request);
        if request.checks.is_empty() {
            request.checks.push("status=2xx,3xx".to_owned());
        }
        self.cx.ledger.same(piece);
        scenario.steps.push(request.step(piece));
    }

    /// Settings of a request that are no part of its message.
    fn behavior(&mut self, item: &Node<'_>, node: &Node<'_>, request: &mut Request, piece: Piece) {
        for (key, value) in item.get("protocolProfileBehavior").map(Node::entries).unwrap_or_default() {
            match (&**key, value.as_bool()) {
                ("followRedirects", Some(false)) => request.redirects = Some(0),
                ("followRedirects", _) => {}
                (key, _) => {
                    let key = text::shortened(key);
                    self.cx
                        .ledger
                        .changed(piece, format!("the setting `{key}` of Postman is not in the plan"));
                }
            }
        }
        for (key, option) in [("proxy", "--proxy"), ("certificate", "--cert")] {
            if node.get(key).is_some() {
                self.cx.ledger.changed(piece, format!("its {key} is an option of `weir load`: {option}"));
            }
        }
    }

    fn auth(&mut self, auth: &Node<'_>, request: &mut Request, piece: Piece) {
        let kind = auth.text("type").unwrap_or("noauth").to_owned();
        // 2.1 has a list of pairs, 2.0 a map.
        let value = |key: &str| -> Option<String> {
            let settings = auth.get(&kind)?;
            let of_list = settings
                .items()
                .iter()
                .find(|pair| pair.text("key") == Some(key))
                .and_then(|pair| pair.get("value"));
            Some(of_list.or_else(|| settings.get(key))?.as_text()?.into_owned())
        };
        let hidden = |this: &mut Self, wish: &str, value: Option<String>| match value {
            Some(value) if value.contains("{{") => this.text(&value, piece),
            Some(value) if !value.is_empty() => this.cx.vault.hide(wish, &value),
            _ => this.cx.vault.variable(wish),
        };
        match &*kind {
            "noauth" | "inherit" => {}
            "bearer" => {
                let token = hidden(self, "bearer_token", value("token"));
                request.set_header("authorization", format!("Bearer {token}"));
            }
            "oauth2" => {
                let token = hidden(self, "access_token", value("accessToken"));
                self.cx
                    .ledger
                    .changed(piece, "the token of OAuth 2 is a variable: a plan can get one in `setup`");
                request.set_header("authorization", format!("Bearer {token}"));
            }
            "basic" => {
                let user = self.text(&value("username").unwrap_or_default(), piece);
                let password = hidden(self, "password", value("password"));
                request.set_header("authorization", format!("Basic {{{{base64:{user}:{password}}}}}"));
            }
            "apikey" => {
                let key = value("key").unwrap_or_else(|| "x-api-key".to_owned());
                let secret = hidden(self, &key, value("value"));
                match value("in").as_deref() {
                    Some("query") => {
                        request.url.push(if request.url.contains('?') { '&' } else { '?' });
                        request.url.push_str(&format!("{}={secret}", text::percent_encoded(&key)));
                    }
                    _ => request.set_header(&key, secret),
                }
            }
            other => self.cx.ledger.refused(
                piece,
                format!("a step cannot sign requests as `{other}` does"),
                "`{{hmac_sha256:KEY:TEXT}}`, or `exec`",
            ),
        }
    }

    /// Checks and keeps of the request's scripts.
    fn scripts(&mut self, item: &Node<'_>, request: &mut Request) {
        for line in scripts::lines(item, "prerequest") {
            if !scripts::is_structure(&line.text) {
                let piece = self.cx.ledger.enter(self.cx.place(line.line), &line.text);
                self.cx
                    .ledger
                    .left_out(piece, "a line of a script before the request, which a plan does not run");
            }
        }
        for line in scripts::lines(item, "test") {
            if scripts::is_structure(&line.text) {
                continue;
            }
            let piece = self.cx.ledger.enter(self.cx.place(line.line), &line.text);
            match scripts::read(&line.text) {
                Some(scripts::Meaning::Check(check)) => {
                    if !request.checks.contains(&check) {
                        request.checks.push(check);
                    }
                    self.cx.ledger.same(piece);
                }
                Some(scripts::Meaning::Keep(keep)) => {
                    request.keep.retain(|known| known.name != keep.name);
                    request.keep.push(keep);
                    self.cx.ledger.same(piece);
                }
                None => self
                    .cx
                    .ledger
                    .left_out(piece, "a line of a script that is neither a known check nor a known keep"),
            }
        }
    }
}

fn is_disabled(node: &Node<'_>) -> bool {
    node.get("disabled").and_then(Node::as_bool).unwrap_or(false)
}
