//! Executes the calls about the config. Blocking: they read files and wait for a running reload.

#![allow(clippy::result_large_err, reason = "a refusal is an answer, made once a call and never in a loop")]

use crate::answer::{self, Answer};
use crate::calls::Do;
use crate::config_answer::{
    Outcome, document, members_for, mistakes, redacted_for, refuse, tagged, with_trail,
};
use crate::config_request::{ConfigRequest, by, flag, tags, terms};
use crate::documents;
use crate::guard::Identity;
use crate::managed_api;
use crate::openapi;
use crate::shadow_api;
use hyper::{StatusCode, header};
use serde_json::{Map, Value, json};
use weir_gateway::config::managed::{self, To};
use weir_gateway::config::node::Value as NodeValue;
use weir_gateway::config::schema::Role;
use weir_gateway::config::secrecy::hide_refused;
use weir_gateway::config::{Diagnostics, Node, Texts, digest, parse};
use weir_gateway::explain::Arriving;
use weir_gateway::history::diff::{self, Differences};
use weir_gateway::history::{Drift, Origin};
use weir_gateway::{Change, Edit, Gateway, NotChanged, OnlyIf, Terms, request_file};

/// Executes a call.
pub(crate) fn run(gateway: &Gateway, asked: &ConfigRequest) -> Answer {
    let outcome = match asked.call.does {
        Do::Adopt | Do::Release => move_owner(gateway, asked),
        Do::Apply => apply(gateway, asked),
        Do::Check => check(gateway, asked),
        Do::CheckManaged => managed_api::check(gateway, asked),
        Do::Compare => compare(gateway, asked),
        Do::Config => config(gateway, asked),
        Do::Confirm => confirm(gateway, asked),
        Do::Delete | Do::Patch | Do::Put => change_one(gateway, asked),
        Do::Describe => Ok(answer::json(StatusCode::OK, &openapi::document(env!("CARGO_PKG_VERSION")))),
        Do::Drift => drift(gateway, asked),
        Do::Explain => explain(gateway, asked),
        Do::Fleet => Ok(fleet(gateway)),
        Do::Endpoint | Do::Maintenance | Do::Purge | Do::Why => {
            Err(answer::problem(StatusCode::NOT_FOUND, "there is no such path"))
        }
        Do::Get => get(gateway, asked),
        Do::Managed => managed_api::read(gateway, asked),
        Do::Revision => revision(gateway, asked),
        Do::Rewrite => managed_api::rewrite(gateway, asked),
        Do::Revisions => revisions(gateway),
        Do::RollBack => roll_back(gateway, asked),
        Do::Shadow => shadow_api::start(gateway, asked),
        Do::ShadowEnd => shadow_api::end(gateway, asked),
        Do::ShadowPromote => shadow_api::promote(gateway, asked),
        Do::ShadowReport => shadow_api::report(gateway, asked),
    };
    outcome.unwrap_or_else(|refused| refused)
}

// === reading ===

fn config(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let origin = flag(&asked.uri, asked.call)?.contains(&"origin");
    let texts = gateway.texts();
    let tree = tree(&texts, &asked.who)?;
    let hash = hash(&texts, &tree);
    let document =
        documents::Config { hash, config: diff::shown(&tree), origin: origin.then(|| origins(&tree)) };
    Ok(tagged(answer::json(StatusCode::OK, &json!(document)), &document.hash))
}

/// The location of each named entry, and of every other top-level setting.
fn origins(tree: &Node) -> Map<String, Value> {
    let mut origins = Map::new();
    for (section, things) in tree.entries() {
        if managed::is_section(&section.text) {
            for (name, _) in things.entries() {
                origins.insert(format!("{}.{}", section.text, name.text), name.at.to_string().into());
            }
        } else {
            origins.insert(section.text.to_string(), section.at.to_string().into());
        }
    }
    origins
}

fn get(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let (section, name) = named(asked)?;
    let tree = tree(&gateway.texts(), &asked.who)?;
    let thing = tree.get(section).and_then(|things| things.get(name));
    let thing = thing
        .ok_or_else(|| refuse(&NotChanged::Missing(format!("{section}.{name}")), &asked.who, gateway))?;
    Ok(tagged(answer::json(StatusCode::OK, &diff::shown(thing)), &digest::of(thing)))
}

fn revisions(gateway: &Gateway) -> Outcome {
    let no_history = || answer::problem(StatusCode::NOT_FOUND, &NotChanged::NoHistory.to_string());
    Ok(answer::json(StatusCode::OK, &json!(gateway.history().ok_or_else(no_history)?)))
}

fn revision(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let number = number(asked)?;
    let revisions = gateway.revisions().unwrap_or_default();
    let texts = gateway.revision_texts(number).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let found = revisions.iter().find(|revision| revision.number == number);
    let mut document = found.map_or_else(|| json!({}), |found| json!(found));
    document["config"] = diff::shown(&tree(&texts, &asked.who)?);
    Ok(answer::json(StatusCode::OK, &document))
}

fn compare(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let side = |at: usize| asked.parts.get(at).map_or("", String::as_str);
    let differences = between(gateway, &asked.who, side(0), side(1))?;
    let text = differences.to_text();
    Ok(answer::json(StatusCode::OK, &json!(documents::Compared { differences, text })))
}

/// The differences between two revisions; `running` and `disk` are valid names too.
pub(crate) fn between(
    gateway: &Gateway,
    who: &Identity,
    from: &str,
    to: &str,
) -> Result<Differences, Answer> {
    let side = |what: &str| -> Result<Node, Answer> {
        match what {
            "running" => tree(&gateway.texts(), who),
            "disk" => {
                let texts = gateway.texts_on_disk().map_err(|d| unreadable(&d, who, gateway))?;
                on_disk(gateway, &texts, who)
            }
            digits => {
                let number = digits.parse().map_err(|_| no_number(digits))?;
                tree(&gateway.revision_texts(number).map_err(|not| refuse(&not, who, gateway))?, who)
            }
        }
    };
    Ok(diff::diff(&side(from)?, &side(to)?))
}

fn fleet(gateway: &Gateway) -> Answer {
    let Some(status) = gateway.status().fleet else {
        return answer::problem(
            StatusCode::NOT_FOUND,
            "this gateway is not a node of a fleet (docs/guide/fleet.md)",
        );
    };
    match gateway.fleet().map(|seen| seen.to_json(&status.node)) {
        Some(Some(Ok(fleet))) => answer::json(StatusCode::OK, &fleet),
        Some(None) => answer::problem(
            StatusCode::NOT_FOUND,
            "the source of this gateway is a web server, which knows no nodes",
        ),
        Some(Some(Err(e))) => {
            answer::problem(StatusCode::SERVICE_UNAVAILABLE, &format!("the fleet cannot be seen: {e}"))
        }
        None => answer::problem(StatusCode::SERVICE_UNAVAILABLE, "the source did not answer in time"),
    }
}

fn drift(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    Ok(answer::json(StatusCode::OK, &json!(drift_of(gateway, &asked.who)?)))
}

/// Whether the files differ from the running config.
pub(crate) fn drift_of(gateway: &Gateway, who: &Identity) -> Result<Drift, Answer> {
    let running = gateway.texts();
    let (pinned, why) = gateway.pinned().unzip();
    let latest = gateway.revisions().and_then(|all| Some(all.last()?.number));
    let runs = tree(&running, who)?;
    let unsaved = gateway.unsaved();
    let drift = Drift { running: hash(&running, &runs), latest, pinned, why, unsaved, ..Drift::default() };
    match gateway.texts_on_disk() {
        Ok(disk) => {
            let found = diff::diff(&runs, &on_disk(gateway, &disk, who)?);
            Ok(Drift {
                disk: Some(hash(&disk, &tree(&disk, who)?)),
                drift: !found.is_empty(),
                text: found.to_text(),
                differences: found.differences,
                more: Some(found.more),
                things: Some(found.things),
                ..drift
            })
        }
        Err(diagnostics) => {
            let told = redacted_for(&diagnostics, who, running.managed_path.as_deref()).to_text();
            Ok(Drift { drift: true, text: format!("the files cannot be read:\n{told}"), ..drift })
        }
    }
}

fn explain(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let request: Value = serde_json::from_str(&asked.body)
        .map_err(|e| answer::problem(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {e}")))?;
    let text = |key: &str| request.get(key).and_then(Value::as_str);
    let (Some(method), Some(url)) = (text("method"), text("url")) else {
        let detail = "expected { \"method\": \"GET\", \"url\": \"http://host/path\", \"headers\": { … } }";
        return Err(answer::problem(StatusCode::BAD_REQUEST, detail));
    };
    let fields = request.get("headers").and_then(Value::as_object).into_iter().flatten();
    let fields: Vec<(String, String)> =
        fields.flat_map(|(name, value)| texts(value).map(|text| (name.clone(), text.to_owned()))).collect();
    let client = match text("client").map(str::parse).transpose() {
        Ok(client) => client,
        Err(_) => {
            let detail = "`client` is not an address; expected e.g. \"192.0.2.7\"";
            return Err(answer::problem(StatusCode::BAD_REQUEST, detail));
        }
    };
    let arriving = Arriving { listener: text("listener"), client };
    match gateway.explain(arriving, method, url, &fields) {
        Ok(explanation) => {
            let mut document = serde_json::to_value(&explanation).unwrap_or_default();
            if request.get("text") == Some(&Value::Bool(true)) {
                document["text"] = json!(explanation.to_string());
            }
            Ok(answer::json(StatusCode::OK, &document))
        }
        Err(why) => Err(answer::problem(StatusCode::UNPROCESSABLE_ENTITY, &why)),
    }
}

/// The texts in a value: one, or a list of them.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let one = std::slice::from_ref(value);
    value.as_array().map_or(one, Vec::as_slice).iter().filter_map(Value::as_str)
}

// === changing ===

fn change_one(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let dry_run = flag(&asked.uri, asked.call)?.contains(&"dry_run");
    let terms = terms(&asked.uri)?;
    let (section, name) = named(asked)?;
    let to = match asked.call.does {
        Do::Delete => To::Nothing,
        does => {
            let thing = body(gateway, asked)?;
            if does == Do::Patch { To::Patched(thing) } else { To::This(thing) }
        }
    };
    let only_if = only_if(asked)?;
    let creates = only_if == OnlyIf::Absent;
    let edit = Edit { section: section.to_owned(), name: name.to_owned(), to, only_if };
    let change =
        Change { edits: vec![edit], only_from: Vec::new(), by: by(asked, Origin::Api), dry_run, terms };
    let before = gateway.texts().hash;
    let changed = gateway.change(&change).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let status = if creates && !dry_run { StatusCode::CREATED } else { StatusCode::OK };
    let answer = answer::json(status, &document(gateway, &changed, &asked.who, dry_run));
    let now = gateway.texts().tree();
    let tag = now.as_ref().and_then(|tree| Some(digest::of(tree.get(section)?.get(name)?)));
    let answer = match tag.filter(|_| !dry_run) {
        Some(tag) => tagged(answer, &tag),
        None => answer,
    };
    Ok(with_trail(answer, before, &changed))
}

fn apply(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let dry_run = flag(&asked.uri, asked.call)?.contains(&"dry_run");
    let terms = terms(&asked.uri)?;
    let change = Change {
        edits: edits(&body(gateway, asked)?)?,
        only_from: tags(&asked.headers, header::IF_MATCH)?.filter(|tags| tags != &["*"]).unwrap_or_default(),
        by: by(asked, Origin::Api),
        dry_run,
        terms,
    };
    let before = gateway.texts().hash;
    let changed = gateway.change(&change).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let answer = tagged(
        answer::json(StatusCode::OK, &document(gateway, &changed, &asked.who, dry_run)),
        &changed.hash,
    );
    Ok(with_trail(answer, before, &changed))
}

fn check(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    if asked.body.trim().is_empty() {
        let diagnostics = gateway.check();
        if diagnostics.errors() > 0 {
            return Err(mistakes(&diagnostics, &asked.who, gateway));
        }
        return Ok(answer::json(StatusCode::OK, &members_for(&diagnostics, &asked.who, gateway)));
    }
    let change = Change {
        edits: edits(&body(gateway, asked)?)?,
        only_from: Vec::new(),
        by: by(asked, Origin::Api),
        dry_run: true,
        terms: Terms::default(),
    };
    let changed = gateway.change(&change).map_err(|not| refuse(&not, &asked.who, gateway))?;
    Ok(answer::json(StatusCode::OK, &members_for(&changed.diagnostics, &asked.who, gateway)))
}

fn move_owner(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let (thing, by) = (named(asked)?, by(asked, Origin::Api));
    let moved = match asked.call.does {
        Do::Adopt => gateway.adopt(thing, &by),
        _ => gateway.release(thing, &by),
    };
    let moved = moved.map_err(|not| refuse(&not, &asked.who, gateway))?;
    Ok(answer::json(StatusCode::OK, &json!(moved)))
}

fn roll_back(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let number = number(asked)?;
    let before = gateway.texts().hash;
    let changed = gateway
        .roll_back(number, &by(asked, Origin::Rollback))
        .map_err(|not| refuse(&not, &asked.who, gateway))?;
    Ok(with_trail(
        answer::json(StatusCode::OK, &document(gateway, &changed, &asked.who, false)),
        before,
        &changed,
    ))
}

fn confirm(gateway: &Gateway, asked: &ConfigRequest) -> Outcome {
    let number = number(asked)?;
    match gateway.confirm(number, &by(asked, Origin::Api)) {
        Ok(()) => Ok(answer::json(StatusCode::OK, &json!(documents::Confirmed { number }))),
        Err(why) => Err(answer::problem(StatusCode::CONFLICT, &why)),
    }
}

/// Parses the sections and entries of a body into changes.
fn edits(body: &Node) -> Result<Vec<Edit>, Answer> {
    let mut edits = Vec::new();
    for (section, things) in body.entries() {
        if !managed::is_section(&section.text) || !matches!(things.value, NodeValue::Map(_)) {
            let detail = format!(
                "`{}` is not a section of named things; expected {}",
                section.text,
                weir_gateway::config::node::NAMED.join(", ")
            );
            return Err(answer::problem(StatusCode::UNPROCESSABLE_ENTITY, &detail));
        }
        edits.extend(things.entries().iter().map(|(name, thing)| Edit {
            section: section.text.to_string(),
            name: name.text.to_string(),
            to: if thing.value == NodeValue::Null { To::Nothing } else { To::This(thing.clone()) },
            only_if: OnlyIf::Any,
        }));
    }
    Ok(edits)
}

// === the parts of a request ===

/// The section and the name from the path.
fn named(asked: &ConfigRequest) -> Result<(&str, &str), Answer> {
    let [section, name] = asked.parts.as_slice() else {
        return Err(answer::problem(StatusCode::NOT_FOUND, "there is no such thing"));
    };
    if !managed::is_section(section) {
        let detail = format!(
            "there is no such section; expected one of: {}",
            weir_gateway::config::node::NAMED.join(", ")
        );
        return Err(answer::problem(StatusCode::NOT_FOUND, &detail));
    }
    Ok((section, name))
}

fn number(asked: &ConfigRequest) -> Result<u64, Answer> {
    let digits = asked.parts.first().map_or("", String::as_str);
    digits.parse().map_err(|_| no_number(digits))
}

fn no_number(digits: &str) -> Answer {
    answer::problem(StatusCode::NOT_FOUND, &format!("`{digits}` is not a revision number"))
}

/// The body as a tree, with positions inside the body.
fn body(gateway: &Gateway, asked: &ConfigRequest) -> Result<Node, Answer> {
    let managed =
        gateway.texts().managed_path.ok_or_else(|| refuse(&NotChanged::NoWrites, &asked.who, gateway))?;
    let mut diagnostics = Diagnostics::default();
    let tree = parse::parse(&asked.body, &request_file(&managed), &mut diagnostics);
    match tree {
        Some(tree) if diagnostics.errors() == 0 => Ok(tree),
        _ => Err(mistakes(&diagnostics, &asked.who, gateway)),
    }
}

/// The precondition from `If-Match` and `If-None-Match`.
fn only_if(asked: &ConfigRequest) -> Result<OnlyIf, Answer> {
    let star = |tags: &Vec<String>| tags == &["*"];
    let (is, is_not) =
        (tags(&asked.headers, header::IF_MATCH)?, tags(&asked.headers, header::IF_NONE_MATCH)?);
    match (is, is_not) {
        (None, Some(tags)) if star(&tags) && asked.call.does == Do::Put => Ok(OnlyIf::Absent),
        (Some(tags), None) if star(&tags) => Ok(OnlyIf::There),
        (Some(tags), None) => Ok(OnlyIf::Is(tags)),
        (None, None) => Err(answer::problem(
            StatusCode::PRECONDITION_REQUIRED,
            "say which version you change: If-Match with the ETag from GET, or If-None-Match: * to create something",
        )),
        _ => {
            let detail = "expected either If-Match, or `If-None-Match: *` with PUT";
            Err(answer::problem(StatusCode::BAD_REQUEST, detail))
        }
    }
}

// === answers ===

/// The config, redacted for this caller.
pub(crate) fn seen(texts: &Texts, who: &Identity) -> Option<Node> {
    if who.writes() { texts.tree_for_writers() } else { texts.tree() }
}

fn tree(texts: &Texts, who: &Identity) -> Result<Node, Answer> {
    seen(texts, who)
        .ok_or_else(|| answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "the config cannot be read again"))
}

/// The files on the disk, redacted for this caller. Nobody has checked them, so a mistake may be a misplaced secret,
/// which only `admin` may see.
fn on_disk(gateway: &Gateway, texts: &Texts, who: &Identity) -> Result<Node, Answer> {
    let mut tree = tree(texts, who)?;
    let running = gateway.texts();
    let is_new = running.written != texts.written || running.managed != texts.managed;
    if who.role < Role::Admin && is_new {
        let own = texts.managed_path.as_deref().filter(|_| who.writes());
        hide_refused(&mut tree, gateway.check().refused_paths(), own);
    }
    Ok(tree)
}

/// The digest of a config, computed here if it has neither a history nor a managed file.
fn hash(texts: &Texts, tree: &Node) -> String {
    if texts.hash.is_empty() { digest::of(tree) } else { texts.hash.clone() }
}

fn unreadable(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = "the files cannot be read";
    answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members_for(diagnostics, who, gateway))
}
