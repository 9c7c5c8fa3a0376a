//! Are the requests of a proof enough? Each sample of weir-import is imported, and one value of the written config is
//! changed: a limit, a network, a method, a branch of a regex. Some request of the proof must tell the two apart.
//!
//! No old program runs here. Both configs are ours, and `weir explain` says what each does with a request. The rest of
//! what it needs is a few lines of model: whom `ip` lets pass, how many requests a limit does.

use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weir_gateway::config::{Node, Source, Value};
use weir_gateway::explain::{Arriving, ExpressionShown, FilterShown, explain};
use weir_gateway::snapshot::Snapshot;
use weir_import::proof::ours::routes;
use weir_import::proof::patterns::{Front, Line, Patterns, Site};
use weir_import::proof::witness::witnesses;
use weir_import::proof::{Ask, OurRoute};
use weir_import::shared::units::read_size;
use weir_import::{Disk, Import, Place, SYSTEMS, SourceTree, System};

/// Share of the changes that must be noticed, in percent, and how many there must be.
const CAUGHT: usize = 82;
const LEAST: usize = 250;
/// Most places of a kind that are changed in one sample.
const PLACES: usize = 1;
/// Most requests that a sample is asked.
const REQUESTS: usize = 2500;

/// A change: its name, the text before what is changed, and what it becomes. See [`changed`].
type Mutation = (&'static str, &'static str, fn(&str) -> Option<String>);

const MUTATIONS: &[Mutation] = &[
    ("a burst is 1 larger", "burst: ", |rest| number(rest, |n| n + 1)),
    ("a burst is 10 larger", "burst: ", |rest| number(rest, |n| n + 10)),
    ("a burst is 1 smaller", "burst: ", |rest| number(rest, |n| n.saturating_sub(1))),
    ("a limit counts by a field", "by: ", |rest| instead(rest, "address", "header:x-weir-other")),
    ("a limit counts by the client", "by: ", |rest| word(rest, "header:", "address")),
    ("a network is half as large", "/8", |rest| Some(format!("/9{rest}"))),
    ("a network is half as large", "/24", |rest| Some(format!("/25{rest}"))),
    ("another network is denied", "deny: [", |rest| word(rest, "", "203.0.114.0/24")),
    ("another network is allowed", "allow: [", |rest| word(rest, "", "203.0.114.0/24")),
    ("PATCH is in a list", "request.method in [", |rest| {
        missing(rest, "PATCH").then(|| format!("request.method in [\"PATCH\", {rest}"))
    }),
    ("PATCH is in a match", "methods: [", |rest| {
        missing(rest, "PATCH").then(|| format!("methods: [PATCH, {rest}"))
    }),
    ("an unknown method is in a match", "methods: [", |rest| Some(format!("methods: [WEIRD, {rest}"))),
    ("a branch is lost", "|", |rest| branch(rest)),
    ("a class ends early", "a-z", |rest| Some(format!("a-y{rest}"))),
    ("a class ends early", "0-9", |rest| Some(format!("0-8{rest}"))),
    ("a class begins late", "A-Z", |rest| Some(format!("B-Z{rest}"))),
    ("a class has one more", "0-9]", |rest| Some(format!("0-9:]{rest}"))),
    ("a repetition may be none", "]+", |rest| Some(format!("]*{rest}"))),
    ("a repetition is longer", "{4,", |rest| Some(format!("{{5,{rest}"))),
    ("case counts", "(?i)", |rest| Some(rest.to_owned())),
    ("a dot is any sign", "\\.", |rest| Some(format!(".{rest}"))),
    ("equal becomes start", " == \"", |rest| call(rest, "startsWith")),
    ("equal becomes part", " == \"", |rest| call(rest, "contains")),
    ("start becomes part", ".startsWith(", |rest| Some(format!(".contains({rest}"))),
    ("end becomes part", ".endsWith(", |rest| Some(format!(".contains({rest}"))),
    ("part becomes start", ".contains(", |rest| Some(format!(".startsWith({rest}"))),
    ("part becomes end", ".contains(", |rest| Some(format!(".endsWith({rest}"))),
    ("a pattern begins anywhere", ".matches(\"^", |rest| Some(format!(".matches(\"{rest}"))),
    ("a body may be one byte longer", "max: 1MiB", |rest| Some(format!("max: 1048577B{rest}"))),
    ("a body may be longer", "max: 20MiB", |rest| Some(format!("max: 2MiB{rest}"))),
    ("a refusal is an answer", "status: 403", |rest| Some(format!("status: 200{rest}"))),
    ("a prefix is widened", "/*", |rest| Some(format!("*{rest}"))),
];

/// Whether a list that begins here lacks a word.
fn missing(rest: &str, word: &str) -> bool {
    !rest.split(']').next().unwrap_or(rest).contains(word)
}

/// A number at the start of `rest`, changed. The text before it is kept by [`changed`].
fn number(rest: &str, change: fn(u32) -> u32) -> Option<String> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number: u32 = rest[..end].parse().ok()?;
    Some(format!("\u{0}{}{}", change(number), &rest[end..]))
}

/// `from` at the start of `rest`, replaced.
fn instead(rest: &str, from: &str, to: &str) -> Option<String> {
    Some(format!("\u{0}{to}{}", rest.strip_prefix(from)?))
}

/// The word at the start of `rest`, which begins with `start`, replaced.
fn word(rest: &str, start: &str, to: &str) -> Option<String> {
    let end = rest.find([',', ']', '}', '\n', ' ']).unwrap_or(rest.len());
    (rest.starts_with(start) && end > 0).then(|| format!("\u{0}{to}{}", &rest[end..]))
}

/// A branch of an alternation behind `|`, taken out. Not the `||` of expressions, and not the last text before it.
fn branch(rest: &str) -> Option<String> {
    let end = rest.find(['|', ')'])?;
    let is_branch = end > 0 && rest[..end].chars().all(|c| c.is_ascii_alphanumeric() || "-_\\.".contains(c));
    is_branch.then(|| rest[end..].to_owned())
}

/// `== "x"` as a call.
fn call(rest: &str, method: &str) -> Option<String> {
    let end = rest.find('"')?;
    // Variables with a few values only, and what is no text, are no texts to compare.
    Some(format!(".{method}(\"{}\"){}", &rest[..end], &rest[end + 1..]))
}

/// `text` with the n-th place of a mutation changed.
fn changed(text: &str, (_, from, change): &Mutation, nth: usize) -> Option<String> {
    let at = text.match_indices(from).map(|(at, _)| at).nth(nth)?;
    let (before, rest) = (&text[..at], &text[at + from.len()..]);
    // Comments change nothing.
    let line = before.rsplit('\n').next().unwrap_or(before);
    if line.trim_start().starts_with('#') {
        return None;
    }
    let new = change(rest)?;
    Some(match new.strip_prefix('\u{0}') {
        Some(new) => format!("{before}{from}{new}"),
        None => format!("{before}{new}"),
    })
}

/// A config as it would run.
struct Compiled {
    tree: Json,
    snapshot: Snapshot,
    _folder: tempfile::TempDir,
}

fn compiled(import: &Import, files: &[(String, String)]) -> Option<Compiled> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let at = folder.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    let kinds = weir_gateway::filters::KINDS.iter().map(|kind| kind.name);
    let readers = kinds.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name));
    let mut source = Source::file(folder.path().join("weir.yaml")).with_credentials(readers);
    for (name, value) in &import.config.secrets {
        source = source.with_variable(name, value);
    }
    let (loaded, snapshot) = weir_gateway::check(&source, &[]).compiled?;
    Some(Compiled { tree: to_json(&loaded.tree), snapshot, _folder: folder })
}

fn to_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Str(text) => json!(text.as_str()),
        Value::Seq(elements) => elements.iter().map(to_json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.text.to_string(), to_json(value))).collect()
        }
    }
}

/// What a config does with a request, as far as the model goes.
fn outcome(config: &Snapshot, ask: &Ask) -> Json {
    let host = ask.host.as_deref().unwrap_or(&ask.front.ip);
    let scheme = if ask.front.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}{}", host.split(':').next().unwrap(), ask.front.port, ask.target);
    let client = ask.client.as_deref().unwrap_or("127.0.0.1").parse().ok();
    let arriving = Arriving { listener: None, client };
    let told = match explain(config, arriving, &ask.method, &url, &ask.fields) {
        Ok(told) => told,
        Err(why) => return json!(why),
    };
    let mut found = Vec::new();
    filters(&told.filters, ask, &mut found);
    let route = told.decision.winner.map(|winner| winner.route);
    json!([route, found, told.target])
}

fn filters(all: &[FilterShown], ask: &Ask, found: &mut Vec<Json>) {
    for filter in all {
        let settings = &filter.settings;
        match filter.name {
            "ip" => found.push(json!(["ip", passes(settings, ask.client.as_deref().unwrap_or("127.0.0.1"))])),
            "body_limit" => {
                let max = settings["max"].as_str().and_then(read_size).or(settings["max"].as_u64());
                found.push(json!(["body", max.is_none_or(|max| ask.body <= max)]));
            }
            "rate_limit" => {
                let requests = settings["requests"].as_u64().unwrap_or(u64::MAX);
                let most = settings["burst"].as_u64().unwrap_or(requests);
                let others = ask.then.iter().any(|turn| turn.client.is_some());
                // Who is counted shows where others are asked, too.
                let by = if others { settings["by"].clone() } else { Json::Null };
                found.push(json!(["limit", u64::from(ask.calls).min(most), by]));
            }
            "when" => {
                for list in filter.lists.iter().filter(|list| list.runs != Some(false)) {
                    found.push(json!(["when", list.key, list.runs]));
                    filters(&list.filters, ask, found);
                }
            }
            name => found.push(json!([name, valued(settings, &filter.expressions)])),
        }
    }
}

/// Settings with what their expressions come to in the place of the expressions, whose text alone is no difference.
fn valued(settings: &Json, expressions: &[ExpressionShown]) -> Json {
    match settings {
        Json::String(text) => {
            let mut text = text.clone();
            for one in expressions {
                let value = one.value.as_deref().unwrap_or("unknown");
                text = text.replace(one.expression.as_deref().unwrap_or("***"), value);
            }
            json!(text)
        }
        Json::Array(all) => all.iter().map(|one| valued(one, expressions)).collect(),
        Json::Object(all) => all.iter().map(|(key, one)| (key.clone(), valued(one, expressions))).collect(),
        other => other.clone(),
    }
}

/// Whether `ip` lets an address pass.
fn passes(settings: &Json, client: &str) -> bool {
    let client: u32 = client.parse::<std::net::Ipv4Addr>().unwrap().into();
    let holds = |key: &str| {
        settings[key].as_array().map(|networks| {
            networks.iter().filter_map(Json::as_str).any(|network| {
                let (address, length) = network.split_once('/').unwrap_or((network, "32"));
                let (Ok(address), Ok(length)) =
                    (address.parse::<std::net::Ipv4Addr>(), length.parse::<u32>())
                else {
                    return false;
                };
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                client & mask == u32::from(address) & mask
            })
        })
    };
    let is_some = |key: &str| settings[key].as_array().is_some_and(|all| !all.is_empty());
    !holds("deny").unwrap_or(false) && (!is_some("allow") || holds("allow").unwrap_or(false))
}

/// What the source's lines tell apart; of a system that has no program, one site with every listener.
fn patterns(system: &System, file: &str, tree: &Json) -> Patterns {
    let disk = Disk::around(&[file.to_owned()]).unwrap();
    if let Some(program) = weir_import::program(system.name)
        && let Ok(mut source) = SourceTree::open(&disk, &[file.to_owned()])
        && let Ok(stage) = (program.stage)(&mut source, "")
        && !stage.patterns.sites.is_empty()
    {
        return stage.patterns;
    }
    let listeners = tree["listeners"].as_object().cloned().unwrap_or_default();
    let fronts = listeners.values().filter_map(|listener| {
        let port = listener["address"].as_str()?.rsplit_once(':')?.1.parse().ok()?;
        Some(Front { ip: "127.0.0.1".to_owned(), port, tls: listener.get("tls").is_some() })
    });
    let line = Line { place: Place::new("x", 1), text: String::new() };
    let site = Site { line, hosts: Vec::new(), fronts: fronts.collect(), paths: Vec::new() };
    Patterns { sites: vec![site], ..Patterns::default() }
}

fn asks(patterns: &Patterns, ours: &[OurRoute]) -> Vec<Ask> {
    let limits = witnesses(patterns, ours, true).list;
    let all = witnesses(patterns, ours, false).list;
    let list = limits.into_iter().chain(all).map(|witness| witness.ask);
    list.filter(|ask| ask.scenario == weir_import::proof::Scenario::Plain).collect()
}

/// The samples of a system: files, and folders with a main file.
fn samples(system: &System) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-import/tests").join(system.name);
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_none_or(|end| end != "out"));
    all.sort();
    let main = |path: PathBuf| {
        if !path.is_dir() {
            return Some(path);
        }
        let mut files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        files.find(|file| file.file_stem().is_some_and(|name| name == "main"))
    };
    all.into_iter().filter_map(main).collect()
}

#[test]
fn the_requests_of_a_proof_notice_changes() {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    for system in SYSTEMS {
        for sample in samples(system) {
            of_sample(system, &sample, &mut counts, &mut missed);
        }
    }
    // The model has no callers, so what an expression makes of one is unknown: counted apart.
    let of_callers = missed.iter().filter(|text| text.contains("consumer.name")).count();
    let (caught, all) = counts.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    for (name, (caught, all)) in &counts {
        println!("caught {caught} of {all}: {name}");
    }
    let all = all - of_callers;
    println!("caught {caught} of {all}, and {of_callers} ask who calls; missed:\n{}", missed.join("\n"));
    assert!(all >= LEAST, "{all} changes");
    assert!(caught * 100 >= all * CAUGHT, "caught {caught} of {all}; missed:\n{}", missed.join("\n"));
}

fn of_sample(
    system: &'static System,
    sample: &Path,
    counts: &mut BTreeMap<&'static str, (usize, usize)>,
    missed: &mut Vec<String>,
) {
    let file = sample.display().to_string();
    let disk = Disk::around(std::slice::from_ref(&file)).unwrap();
    let Ok(import) = weir_import::import(system, &disk, std::slice::from_ref(&file)) else { return };
    let folder = stand_ins();
    let files = import.written().into_iter();
    let written: Vec<(String, String)> =
        files.map(|file| (file.path, with_stand_ins(&file.text, folder.path()))).collect();
    let Some(right) = compiled(&import, &written) else {
        eprintln!("SKIPPED: {file} does not compile here");
        return;
    };
    let patterns = patterns(system, &file, &right.tree);
    let mut slim = patterns.clone();
    slim.sites.iter_mut().for_each(|site| site.paths.clear());
    let ours = routes(&right.tree);
    let mut first: Option<Vec<(Ask, Json)>> = None;
    for (nth_file, (path, text)) in written.iter().enumerate() {
        if !path.starts_with("routes/") && path != "maps.yaml" {
            continue;
        }
        for mutation in MUTATIONS {
            let mut places = 0;
            for nth in 0.. {
                if places == PLACES || text.match_indices(mutation.1).nth(nth).is_none() {
                    break;
                }
                let Some(lie) = changed(text, mutation, nth).filter(|lie| lie != text) else { continue };
                let mut files = written.clone();
                files[nth_file].1.clone_from(&lie);
                let wrong = compiled(&import, &files).filter(|wrong| wrong.tree != right.tree);
                let Some(wrong) = wrong else { continue };
                places += 1;
                let differs = |ask: &Ask| outcome(&wrong.snapshot, ask) != outcome(&right.snapshot, ask);
                // Most are noticed by the requests that the changed routes give, so these are asked first.
                let is_caught = asks(&slim, &changed_routes(&right.tree, &wrong.tree)).iter().any(differs)
                    || {
                        let first = first.get_or_insert_with(|| {
                            let all = asks(&patterns, &ours).into_iter().take(REQUESTS);
                            all.map(|ask| (ask.clone(), outcome(&right.snapshot, &ask))).collect()
                        });
                        first.iter().any(|(ask, was)| outcome(&wrong.snapshot, ask) != *was)
                    };
                let count = counts.entry(mutation.0).or_default();
                count.1 += 1;
                count.0 += usize::from(is_caught);
                if !is_caught {
                    let at = text.lines().zip(lie.lines()).find(|(a, b)| a != b);
                    missed.push(format!("{}: {file}: {path}: {at:?}", mutation.0));
                }
            }
        }
    }
}

/// The routes that are not the same in both configs, of both. All, if what routes share is not the same.
fn changed_routes(right: &Json, wrong: &Json) -> Vec<OurRoute> {
    let same = |name: &str| right["routes"][name] == wrong["routes"][name];
    let shares = ["maps", "filters"].iter().any(|key| right[key] != wrong[key]);
    let all = routes(wrong).into_iter().chain(routes(right));
    all.filter(|route| shares || !same(&route.name)).collect()
}

/// The text with the files of another machine replaced by stand-ins.
fn with_stand_ins(text: &str, folder: &Path) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(": /") {
        let (before, behind) = (&rest[..at], &rest[at + 2..]);
        let key = before.rsplit([' ', '{', '\n', '-']).next().unwrap_or_default();
        let end = behind.find([',', ' ', '}', ']', '\n']).unwrap_or(behind.len());
        out.push_str(before);
        out.push_str(": ");
        let instead = match key {
            "ca" | "cert" | "client_cert" => Some("cert.pem"),
            "client_key" | "key" => Some("key.pem"),
            "file" => Some("users"),
            "root" => Some(""),
            _ => None,
        };
        match instead {
            Some(name) => out.push_str(&folder.join(name).display().to_string()),
            None => out.push_str(&behind[..end]),
        }
        rest = &behind[end..];
    }
    out.push_str(rest);
    out
}

/// A folder with stand-ins for the files that configs name.
fn stand_ins() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let users = "stand-in:$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu\n";
    fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(folder.path().join("users"), users).unwrap();
    folder
}
