//! Executes the calls about the config. Blocking: they read files and wait for a running reload.

#![allow(clippy::result_large_err, reason = "a refusal is an answer, made once a call and never in a loop")]

use crate::answer::{self, Answer};
use crate::calls::{Call, Do};
use crate::guard::Identity;
use crate::managed_api;
use crate::openapi;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::path::Path;
use weir_gateway::config::managed::{self, To};
use weir_gateway::config::node::Value as NodeValue;
use weir_gateway::config::schema::Role;
use weir_gateway::config::secrecy::hide_refused;
use weir_gateway::config::units::Duration;
use weir_gateway::config::{Diagnostics, Node, Texts, digest, parse};
use weir_gateway::history::diff::{self, Differences};
use weir_gateway::history::{By, Origin, Revision};
use weir_gateway::{Change, Changed, Edit, Gateway, NotChanged, OnlyIf, Terms, request_file};

/// Longest message of a change, in characters.
const MESSAGE: usize = 500;

/// Shortest and longest trial of a change.
const SHORTEST: std::time::Duration = std::time::Duration::from_secs(10);
const LONGEST: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Most revisions listed in an answer about a conflicting change.
const MEANWHILE: usize = 5;

/// A call, and everything that came with it.
pub(crate) struct Asked {
    pub(crate) call: &'static Call,
    pub(crate) parts: Vec<String>,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) who: Identity,
}

/// Config digests before and after a change, for the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) number: Option<u64>,
}

pub(crate) type Outcome = Result<Answer, Answer>;

/// Executes a call.
pub(crate) fn run(gateway: &Gateway, asked: &Asked) -> Answer {
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
    };
    outcome.unwrap_or_else(|refused| refused)
}

// === reading ===

fn config(gateway: &Gateway, asked: &Asked) -> Outcome {
    let origin = flag(&asked.uri, asked.call)?.contains(&"origin");
    let texts = gateway.texts();
    let tree = tree(&texts, &asked.who)?;
    let hash = hash(&texts, &tree);
    let mut document = json!({ "hash": hash, "config": diff::shown(&tree) });
    if origin {
        document["origin"] = origins(&tree);
    }
    Ok(tagged(answer::json(StatusCode::OK, &document), &hash))
}

/// The location of each named entry, and of every other top-level setting.
fn origins(tree: &Node) -> Value {
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
    Value::Object(origins)
}

fn get(gateway: &Gateway, asked: &Asked) -> Outcome {
    flag(&asked.uri, asked.call)?;
    let (section, name) = named(asked)?;
    let tree = tree(&gateway.texts(), &asked.who)?;
    let thing = tree.get(section).and_then(|things| things.get(name));
    let thing = thing
        .ok_or_else(|| refuse(&NotChanged::Missing(format!("{section}.{name}")), &asked.who, gateway))?;
    Ok(tagged(answer::json(StatusCode::OK, &diff::shown(thing)), &digest::of(thing)))
}

fn revisions(gateway: &Gateway) -> Outcome {
    Ok(answer::json(StatusCode::OK, &revisions_of(gateway)?))
}

/// The history, newest first.
pub(crate) fn revisions_of(gateway: &Gateway) -> Result<Value, Answer> {
    let no_history = || answer::problem(StatusCode::NOT_FOUND, &NotChanged::NoHistory.to_string());
    let revisions = gateway.revisions().ok_or_else(no_history)?;
    let pinned = gateway.pinned();
    let document = json!({
        "running": revisions.last().map(|revision| revision.number),
        "pinned": pinned.as_ref().map(|(number, _)| number),
        "why": pinned.as_ref().map(|(_, why)| why),
        "revisions": revisions.iter().rev().map(|revision| about(gateway, revision)).collect::<Vec<_>>(),
    });
    Ok(document)
}

fn revision(gateway: &Gateway, asked: &Asked) -> Outcome {
    let number = number(asked)?;
    let revisions = gateway.revisions().unwrap_or_default();
    let texts = gateway.revision_texts(number).map_err(|not| refuse(&not, &asked.who, gateway))?;
    let found = revisions.iter().find(|revision| revision.number == number);
    let mut document = found.map_or_else(|| json!({}), |found| about(gateway, found));
    document["config"] = diff::shown(&tree(&texts, &asked.who)?);
    Ok(answer::json(StatusCode::OK, &document))
}

/// A revision as JSON, without the paths of its files, which readers need not know.
pub(crate) fn about(gateway: &Gateway, revision: &Revision) -> Value {
    // The stored verdict is `accepted` until another replaces it.
    let on_trial = gateway.is_on_trial(revision.number);
    json!({
        "number": revision.number,
        "hash": revision.hash,
        "parent": revision.parent,
        "time": revision.time,
        "author": revision.author,
        "source": revision.source,
        "message": revision.message,
        "verdict": if on_trial { "on trial" } else { revision.verdict.as_str() },
        "changed": revision.changed,
    })
}

fn compare(gateway: &Gateway, asked: &Asked) -> Outcome {
    let side = |at: usize| asked.parts.get(at).map_or("", String::as_str);
    Ok(answer::json(StatusCode::OK, &told(&between(gateway, &asked.who, side(0), side(1))?)))
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

pub(crate) fn told(differences: &Differences) -> Value {
    json!({
        "differences": differences.differences,
        "more": differences.more,
        "things": differences.things,
        "text": differences.to_text(),
    })
}

fn fleet(gateway: &Gateway) -> Answer {
    let Some(status) = gateway.status().fleet else {
        return answer::problem(
            StatusCode::NOT_FOUND,
            "this gateway is no node of a fleet (docs/guide/fleet.md)",
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

fn drift(gateway: &Gateway, asked: &Asked) -> Outcome {
    Ok(answer::json(StatusCode::OK, &drift_of(gateway, &asked.who)?))
}

/// Whether the files differ from the running config.
pub(crate) fn drift_of(gateway: &Gateway, who: &Identity) -> Result<Value, Answer> {
    let running = gateway.texts();
    let (pinned, latest) = (gateway.pinned(), gateway.revisions().and_then(|all| all.last().cloned()));
    let runs = tree(&running, who)?;
    let mut document = json!({
        "running": hash(&running, &runs),
        "disk": null,
        "latest": latest.map(|latest| latest.number),
        "pinned": pinned.as_ref().map(|(number, _)| number),
        "why": pinned.as_ref().map(|(_, why)| why),
        "unsaved": gateway.unsaved(),
    });
    match gateway.texts_on_disk() {
        Ok(disk) => {
            let there = on_disk(gateway, &disk, who)?;
            let differences = diff::diff(&runs, &there);
            document["disk"] = hash(&disk, &tree(&disk, who)?).into();
            document["drift"] = (!differences.is_empty()).into();
            extend(&mut document, told(&differences));
        }
        Err(diagnostics) => {
            document["drift"] = true.into();
            document["differences"] = json!([]);
            document["text"] = format!(
                "the files cannot be read:\n{}",
                told_to(&diagnostics, who, running.managed_path.as_deref()).to_text()
            )
            .into();
        }
    }
    Ok(document)
}

fn explain(gateway: &Gateway, asked: &Asked) -> Outcome {
    let request: Value = serde_json::from_str(&asked.body)
        .map_err(|e| answer::problem(StatusCode::BAD_REQUEST, &format!("the body is no JSON: {e}")))?;
    let text = |key: &str| request.get(key).and_then(Value::as_str);
    let (Some(method), Some(url)) = (text("method"), text("url")) else {
        let detail = "expected { \"method\": \"GET\", \"url\": \"http://host/path\", \"headers\": { … } }";
        return Err(answer::problem(StatusCode::BAD_REQUEST, detail));
    };
    let fields = request.get("headers").and_then(Value::as_object).into_iter().flatten();
    let fields: Vec<(String, String)> =
        fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    match gateway.explain(text("listener"), method, url, &fields) {
        Ok(explanation) => {
            let document = serde_json::to_value(&explanation).unwrap_or_default();
            Ok(answer::json(StatusCode::OK, &document))
        }
        Err(why) => Err(answer::problem(StatusCode::UNPROCESSABLE_ENTITY, &why)),
    }
}

// === changing ===

fn change_one(gateway: &Gateway, asked: &Asked) -> Outcome {
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

fn apply(gateway: &Gateway, asked: &Asked) -> Outcome {
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

fn check(gateway: &Gateway, asked: &Asked) -> Outcome {
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

fn move_owner(gateway: &Gateway, asked: &Asked) -> Outcome {
    let (thing, by) = (named(asked)?, by(asked, Origin::Api));
    let moved = match asked.call.does {
        Do::Adopt => gateway.adopt(thing, &by),
        _ => gateway.release(thing, &by),
    };
    let moved = moved.map_err(|not| refuse(&not, &asked.who, gateway))?;
    Ok(answer::json(StatusCode::OK, &json!(moved)))
}

fn roll_back(gateway: &Gateway, asked: &Asked) -> Outcome {
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

fn confirm(gateway: &Gateway, asked: &Asked) -> Outcome {
    let number = number(asked)?;
    match gateway.confirm(number, &by(asked, Origin::Api)) {
        Ok(()) => Ok(answer::json(StatusCode::OK, &json!({ "number": number }))),
        Err(why) => Err(answer::problem(StatusCode::CONFLICT, &why)),
    }
}

/// The result of a change, as JSON.
pub(crate) fn document(gateway: &Gateway, changed: &Changed, who: &Identity, dry_run: bool) -> Value {
    let told = told_to(&changed.diagnostics, who, gateway.texts().managed_path.as_deref());
    let mut document = json!({
        "revision": changed.revision,
        "hash": changed.hash,
        "number": changed.number,
        "dry_run": dry_run,
        "differences": changed.differences.differences,
        "more": changed.differences.more,
        "things": changed.differences.things,
        "touched": gateway.touched(&changed.differences),
        "unsaved": changed.unsaved,
    });
    extend(&mut document, json!(changed.consequences));
    extend(&mut document, members(&told));
    let unsaved = changed.unsaved.as_ref().map_or_else(String::new, |why| {
        format!("IT RUNS FROM MEMORY ONLY, because it could not be written down: {why}\n")
    });
    let (diagnostics, differences) = (told.to_text(), changed.differences.to_text());
    let consequences = changed.consequences.to_text();
    let repeated = match changed.repeated {
        0 => String::new(),
        n => format!("{n} warnings as before; `weir check` tells them\n"),
    };
    document["text"] = format!("{diagnostics}{repeated}{differences}{consequences}{unsaved}").into();
    document
}

pub(crate) fn with_trail(mut answer: Answer, before: String, changed: &Changed) -> Answer {
    let trail = Trail { before, after: changed.hash.clone(), number: changed.number };
    answer.extensions_mut().insert(trail);
    answer
}

/// Parses the sections and entries of a body into changes.
fn edits(body: &Node) -> Result<Vec<Edit>, Answer> {
    let mut edits = Vec::new();
    for (section, things) in body.entries() {
        if !managed::is_section(&section.text) || !matches!(things.value, NodeValue::Map(_)) {
            let detail = format!(
                "`{}` is no section of named things; expected {}",
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
fn named(asked: &Asked) -> Result<(&str, &str), Answer> {
    let [section, name] = asked.parts.as_slice() else {
        return Err(answer::problem(StatusCode::NOT_FOUND, "there is no such thing"));
    };
    if !managed::is_section(section) {
        let detail =
            format!("there is no such section; there are: {}", weir_gateway::config::node::NAMED.join(", "));
        return Err(answer::problem(StatusCode::NOT_FOUND, &detail));
    }
    Ok((section, name))
}

fn number(asked: &Asked) -> Result<u64, Answer> {
    let digits = asked.parts.first().map_or("", String::as_str);
    digits.parse().map_err(|_| no_number(digits))
}

fn no_number(digits: &str) -> Answer {
    answer::problem(StatusCode::NOT_FOUND, &format!("`{digits}` is no number of a revision"))
}

/// The flags in the query. Unknown ones are refused.
pub(crate) fn flag<'u>(uri: &'u Uri, call: &Call) -> Result<Vec<&'u str>, Answer> {
    let words = uri.query().unwrap_or_default().split('&').filter(|word| !word.is_empty());
    words
        .filter_map(|word| match word.split_once('=') {
            None | Some((_, "" | "true" | "1")) => Some(Ok(word.split('=').next().unwrap_or_default())),
            Some((name, "false" | "0")) if call.query.contains(&name) => None,
            // `terms` parses these.
            Some(("watch" | "confirm", _)) if call.query.contains(&"watch") => None,
            Some(_) => Some(Err(())),
        })
        .map(|word| match word {
            Ok(word) if call.query.contains(&word) => Ok(word),
            _ => {
                let known = if call.query.is_empty() { "nothing".to_owned() } else { call.query.join(", ") };
                let detail = format!("what stands behind `?` is not understood; expected {known}");
                Err(answer::problem(StatusCode::BAD_REQUEST, &detail))
            }
        })
        .collect()
}

/// The conditions under which a change stays: `watch=5m` and `confirm=5m`.
pub(crate) fn terms(uri: &Uri) -> Result<Terms, Answer> {
    let time = |name: &str| -> Result<Option<std::time::Duration>, Answer> {
        let words = uri.query().unwrap_or_default().split('&');
        let mut values = words.filter_map(|word| match word.strip_prefix(name)? {
            "" => Some(""),
            rest => rest.strip_prefix('='),
        });
        let Some(value) = values.next() else { return Ok(None) };
        let time = value.parse::<Duration>().map(Duration::get).ok();
        match time.filter(|time| (SHORTEST..=LONGEST).contains(time) && values.next().is_none()) {
            Some(time) => Ok(Some(time)),
            None => {
                let detail = format!("`{name}` is a time from 10s to 1d, such as {name}=5m, given once");
                Err(answer::problem(StatusCode::BAD_REQUEST, &detail))
            }
        }
    };
    Ok(Terms { watch: time("watch")?, confirm: time("confirm")? })
}

/// The body as a tree, with positions inside the body.
fn body(gateway: &Gateway, asked: &Asked) -> Result<Node, Answer> {
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
fn only_if(asked: &Asked) -> Result<OnlyIf, Answer> {
    let star = |tags: &Vec<String>| tags == &["*"];
    let (is, is_not) =
        (tags(&asked.headers, header::IF_MATCH)?, tags(&asked.headers, header::IF_NONE_MATCH)?);
    match (is, is_not) {
        (None, Some(tags)) if star(&tags) && asked.call.does == Do::Put => Ok(OnlyIf::Absent),
        (Some(tags), None) if star(&tags) => Ok(OnlyIf::There),
        (Some(tags), None) => Ok(OnlyIf::Is(tags)),
        (None, None) => Err(answer::problem(
            StatusCode::PRECONDITION_REQUIRED,
            "say what you change: If-Match with the ETag that GET gave you, or If-None-Match: * for what is to be new",
        )),
        _ => {
            let detail = "expected either If-Match, or `If-None-Match: *` with PUT";
            Err(answer::problem(StatusCode::BAD_REQUEST, detail))
        }
    }
}

/// The entity tags of a field (RFC 9110 §8.8.3), without quotes.
pub(crate) fn tags(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<Vec<String>>, Answer> {
    let refused = || {
        let detail = format!("`{name}` holds no ETag; expected \"…\" with its quotes, or *");
        answer::problem(StatusCode::BAD_REQUEST, &detail)
    };
    let mut all = Vec::new();
    for value in headers.get_all(&name) {
        for tag in value.to_str().map_err(|_| refused())?.split(',') {
            let tag = tag.trim();
            let inner = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            match inner {
                _ if tag == "*" => all.push("*".to_owned()),
                Some(inner) => all.push(inner.to_owned()),
                None => return Err(refused()),
            }
        }
    }
    Ok((!all.is_empty()).then_some(all))
}

/// Who makes a change, and why.
pub(crate) fn by(asked: &Asked, origin: Origin) -> By {
    let message = asked.headers.get("x-weir-message").map(|value| String::from_utf8_lossy(value.as_bytes()));
    let message = message.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MESSAGE).collect();
    By { author: asked.who.name.clone(), origin, message }
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

/// The files on the disk as this caller may see them. Nobody has checked them yet: what is wrong there may be a secret in the wrong place,
/// and only `admin` may see it.
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

/// The digest of a config; one without a history and a managed file has none at hand.
fn hash(texts: &Texts, tree: &Node) -> String {
    if texts.hash.is_empty() { digest::of(tree) } else { texts.hash.clone() }
}

pub(crate) fn tagged(mut answer: Answer, tag: &str) -> Answer {
    if let Ok(value) = HeaderValue::try_from(format!("\"{tag}\"")) {
        answer.headers_mut().insert(header::ETAG, value);
    }
    answer
}

pub(crate) fn members(diagnostics: &Diagnostics) -> Value {
    let mut members = diagnostics.to_json();
    members["text"] = diagnostics.to_text().into();
    members
}

/// Mistakes as this caller may be told them: `admin` may take over every file, `write` changes what the API manages.
fn told_to(diagnostics: &Diagnostics, who: &Identity, managed: Option<&Path>) -> Diagnostics {
    match (who.role, managed) {
        (Role::Admin, _) => diagnostics.clone(),
        (Role::Write, Some(managed)) => diagnostics.for_writers_of(&[managed, &request_file(managed)]),
        _ => diagnostics.for_readers(),
    }
}

/// Mistakes as JSON and text.
pub(crate) fn members_for(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Value {
    members(&told_to(diagnostics, who, gateway.texts().managed_path.as_deref()))
}

fn unreadable(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = "the files cannot be read";
    answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members_for(diagnostics, who, gateway))
}

fn mistakes(diagnostics: &Diagnostics, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = "the config has mistakes; nothing has changed";
    answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members_for(diagnostics, who, gateway))
}

/// The answer to a refused change.
pub(crate) fn refuse(not: &NotChanged, who: &Identity, gateway: &Gateway) -> Answer {
    let detail = not.to_string();
    match not {
        NotChanged::Draining | NotChanged::Fleet | NotChanged::NoWrites => {
            answer::problem(StatusCode::CONFLICT, &detail)
        }
        NotChanged::Exists(_) => answer::problem(StatusCode::PRECONDITION_FAILED, &detail),
        NotChanged::NoHistory | NotChanged::NoRevision(_) | NotChanged::Missing(_) => {
            answer::problem(StatusCode::NOT_FOUND, &detail)
        }
        NotChanged::Owned(_, place) => {
            answer::problem_with(StatusCode::CONFLICT, &detail, json!({ "place": place }))
        }
        NotChanged::Stale(thing, now) => {
            let members = json!({ "etag": format!("\"{now}\""), "changed_by": meanwhile(thing, gateway) });
            answer::problem_with(StatusCode::PRECONDITION_FAILED, &detail, members)
        }
        NotChanged::Refused(diagnostics) => mistakes(diagnostics, who, gateway),
        NotChanged::Referenced(diagnostics) => {
            let detail = "others need it; nothing has changed";
            answer::problem_with(StatusCode::CONFLICT, detail, members_for(diagnostics, who, gateway))
        }
        _ => answer::problem(StatusCode::INSUFFICIENT_STORAGE, &detail),
    }
}

/// The latest revisions that changed an entry, newest first.
fn meanwhile(thing: &str, gateway: &Gateway) -> Vec<Value> {
    let revisions = gateway.revisions().unwrap_or_default();
    let changed = revisions.iter().rev().filter(|revision| revision.changed.iter().any(|name| name == thing));
    changed.take(MEANWHILE).map(|revision| about(gateway, revision)).collect()
}

fn extend(document: &mut Value, members: Value) {
    if let (Value::Object(document), Value::Object(members)) = (document, members) {
        document.extend(members);
    }
}
