//! HAR files, as browsers and proxies record them. Pages become scenarios; a page that needs what an earlier one got,
//! such as a cookie or a token, goes on in the scenario of that one.

mod cookies;
mod correlate;
mod read;

use super::model::{Constant, ConstantValue, Does, Keep, Plan, Scenario, Step, Target};
use super::request::Sent;
use super::{Cx, Kind, json, names, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::Map;
use read::{Entry, pages};
use std::collections::{BTreeMap, BTreeSet};

pub(super) static KIND: Kind = Kind { name: "har", title: "HAR file", import };

/// Shortest gap that becomes a pause, in milliseconds.
const PAUSE: i64 = 500;
/// Longest pause of a plan, in milliseconds.
const LONGEST_PAUSE: i64 = 24 * 60 * 60 * 1000;
/// Requests of a page that a browser sends at once.
const PARALLEL: u32 = 6;
/// Most requests of one step that are sent at once, as weir-plan has it.
const PARALLEL_STEPS: usize = 100;

/// Endings of static files.
const STATIC: &[&str] = &[
    "apng",
    "avif",
    "bmp",
    "css",
    "cur",
    "eot",
    "gif",
    "ico",
    "jpeg",
    "jpg",
    "js",
    "map",
    "mjs",
    "mp3",
    "mp4",
    "ogg",
    "otf",
    "png",
    "svg",
    "ttf",
    "wasm",
    "wav",
    "webm",
    "webmanifest",
    "webp",
    "woff",
    "woff2",
];
/// What browsers call requests for static files.
const STATIC_RESOURCES: &[&str] = &["font", "image", "media", "script", "stylesheet"];

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let root = json::read(&file)?;
    let log = root.get("log").filter(|log| log.get("entries").is_some());
    let Some(log) = log else {
        return Err(Unreadable::at(&cx.place(1), "no HAR file: it has no `log.entries`"));
    };
    let titles = pages(log);
    let mut entries = read::entries(log, &mut cx.vault);
    let main = entries.iter().find_map(|entry| entry.sent.as_ref().ok().map(|sent| sent.server.clone()));
    let main = main.unwrap_or_default();
    let pieces: Vec<Piece> = entries
        .iter()
        .map(|entry| {
            let place = cx.place(entry.line);
            cx.ledger.enter(place, &format!("entry {}: {}", entry.number, entry.shown))
        })
        .collect();
    let taken = choose(cx, &mut entries, &pieces, &main);
    let mut found = correlate::correlate(&mut entries, &taken, &mut cx.vault);
    if found.is_full {
        let piece = cx.ledger.enter(cx.place(1), "values of answers that later requests send");
        let why = "there is too much to search: later requests send some values as they were recorded";
        cx.ledger.refused(piece, why, "cut the recording into parts, or add `keep:` by hand");
    }
    cookies::from_jars(cx, &mut entries, &taken, &pieces, &mut found);
    for &at in &taken {
        if let Some(Entry { sent: Ok(sent), .. }) = entries.get_mut(at) {
            sent.hide_secrets(&mut cx.vault);
        }
    }
    let journeys = journeys(&entries, &taken, &titles, &found.needs);
    let mut plan = Plan { target: Some(Target::Known(main.clone())), ..Plan::default() };
    for (name, list) in journeys {
        let steps = steps(cx, &mut entries, &list, &pieces, &main, &mut found.keeps);
        if !steps.is_empty() {
            plan.scenarios.push(Scenario { name, steps, ..Scenario::default() });
        }
    }
    follow_target(cx, &mut plan, &main);
    hoist(&mut plan);
    plan.more = Map::new().with("users", 1_i64);
    Ok(plan)
}

/// The entries that become steps, in the order of time. The others get their verdicts.
fn choose(cx: &mut Cx<'_>, entries: &mut [Entry], pieces: &[Piece], main: &str) -> Vec<usize> {
    let mut taken = Vec::new();
    for (at, entry) in entries.iter_mut().enumerate() {
        let Some(&piece) = pieces.get(at) else { continue };
        let sent = match &entry.sent {
            Ok(sent) => sent,
            Err(why) => {
                cx.ledger.left_out(piece, why.clone());
                continue;
            }
        };
        let host = text::host_of(&sent.server).to_owned();
        let is_wanted =
            host == text::host_of(main) || cx.options.hosts.iter().any(|h| h == "*" || *h == host);
        if !is_wanted {
            cx.ledger.left_out(
                piece,
                format!("another host than {}: --host {host} takes it", text::host_of(main)),
            );
        } else if is_websocket(entry, sent) {
            cx.ledger.refused(piece, "it opens a WebSocket", "a step `ws: URL` with a `message`");
        } else if let Some(why) =
            entry.note.filter(|why| [read::BINARY, read::FILE, read::LOST].contains(why))
        {
            cx.ledger.refused(piece, why, "`body_file`, or a part of `multipart` with `file`");
        } else if entry.answer.media.starts_with("text/event-stream") {
            let why = "its answer is a stream of events, whose end a step would wait for";
            cx.ledger.refused(piece, why, "a step with a `timeout`");
        } else if !cx.options.static_files && is_static(entry, sent) {
            cx.ledger.left_out(piece, "a static file: --static takes it");
        } else if entry.answer.status == 0 {
            cx.ledger.left_out(piece, "the browser got no answer, or did not send it");
        } else {
            taken.push(at);
        }
    }
    taken
}

fn is_websocket(entry: &Entry, sent: &Sent) -> bool {
    entry.answer.status == 101 || entry.resource == "websocket" || sent.server.starts_with("ws")
}

fn is_static(entry: &Entry, sent: &Sent) -> bool {
    let last = sent.path.last().map_or("", |slot| &*slot.value).to_ascii_lowercase();
    let ending = last.rsplit_once('.').map_or("", |(_, ending)| ending);
    let has_body = !matches!(sent.body, super::bodies::SentBody::None);
    matches!(&*sent.method, "GET" | "HEAD")
        && !has_body
        && (STATIC.contains(&ending) || STATIC_RESOURCES.contains(&&*entry.resource))
}

/// The entries of each scenario, with its name. Pages that need each other are one.
fn journeys(
    entries: &[Entry],
    taken: &[usize],
    titles: &[(String, String)],
    needs: &[(usize, usize)],
) -> Vec<(String, Vec<usize>)> {
    // The page of each entry, by its first entry. Entries without a page belong to the one before them.
    let mut pages: Vec<String> = Vec::new();
    let mut page_of: BTreeMap<usize, usize> = BTreeMap::new();
    let mut last = 0;
    for &at in taken {
        let Some(entry) = entries.get(at) else { continue };
        let page = match &entry.page {
            Some(id) => match pages.iter().position(|known| known == id) {
                Some(page) => page,
                None => {
                    pages.push(id.clone());
                    pages.len() - 1
                }
            },
            None if pages.is_empty() => {
                pages.push(String::new());
                0
            }
            None => last,
        };
        last = page;
        page_of.insert(at, page);
    }
    let mut root: Vec<usize> = (0..pages.len()).collect();
    for (from, to) in needs {
        let (Some(&a), Some(&b)) = (page_of.get(from), page_of.get(to)) else { continue };
        let (a, b) = (top(&root, a), top(&root, b));
        if let Some(slot) = root.get_mut(a.max(b)) {
            *slot = a.min(b);
        }
    }
    let mut journeys: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &at in taken {
        if let Some(&page) = page_of.get(&at) {
            journeys.entry(top(&root, page)).or_default().push(at);
        }
    }
    let name = |page: usize| {
        let id = pages.get(page).map_or("", |id| id);
        let title = titles.iter().find(|(known, _)| known == id).map_or("", |(_, title)| title);
        // Chrome writes the URL as the title.
        match text::split_url(title) {
            Some((_, path)) => path.split('?').next().unwrap_or_default().to_owned(),
            None => title.to_owned(),
        }
    };
    journeys.into_iter().map(|(page, list)| (name(page), list)).collect()
}

fn top(root: &[usize], mut page: usize) -> usize {
    while let Some(&above) = root.get(page).filter(|above| **above != page) {
        page = above;
    }
    page
}

/// The steps of a scenario, with pauses between them.
fn steps(
    cx: &mut Cx<'_>,
    entries: &mut [Entry],
    list: &[usize],
    pieces: &[Piece],
    main: &str,
    keeps: &mut BTreeMap<usize, Vec<Keep>>,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut ended: Option<i64> = None;
    let mut page: Option<Option<String>> = None;
    for &at in list {
        let (Some(entry), Some(&piece)) = (entries.get_mut(at), pieces.get(at)) else { continue };
        let Ok(sent) = &mut entry.sent else { continue };
        let before = ended;
        if let Some(began) = entry.began {
            if let Some(gap) = before.map(|ended| began.saturating_sub(ended)).filter(|gap| *gap > PAUSE)
                && !cx.options.no_pauses
            {
                if gap > LONGEST_PAUSE {
                    cx.ledger.changed(piece, "the pause before it is cut to 24 hours");
                }
                steps.push(Step::pause(u64::try_from(gap.min(LONGEST_PAUSE)).unwrap_or_default()));
            }
            ended = Some(before.unwrap_or(i64::MIN).max(began.saturating_add(entry.took)));
        }
        let is_conditional = ["if-none-match", "if-modified-since", "if-range"];
        let count = sent.headers.len();
        sent.headers.retain(|(name, _)| !is_conditional.contains(&&**name));
        let was_conditional = sent.headers.len() < count;
        if was_conditional {
            cx.ledger.changed(piece, "asked without the browser's cache, as a new visitor asks");
        } else if entry.from_cache {
            cx.ledger.changed(piece, "the browser had it in its cache, and a new visitor does not");
        }
        if let Some(note) = entry.note {
            cx.ledger.changed(piece, note);
        }
        let mut request = sent.to_request(Some(main));
        if sent.whole_url.take().is_some() {
            // A placeholder has no path to make a name of.
            request.name = Some(names::of_request(&sent.to_request(Some(main))));
        }
        request.checks = match entry.answer.status {
            304 => vec!["status=200,304".to_owned()],
            status @ 100..=599 => vec![format!("status={status}")],
            _ => Vec::new(),
        };
        request.keep = keeps.remove(&at).unwrap_or_default();
        // Plans read bodies as they are sent.
        let reads = |keep: &Keep| keep.source.starts_with("json:") || keep.source.starts_with("body~");
        if request.header("accept-encoding").is_some() && request.keep.iter().any(reads) {
            request.set_header("accept-encoding", "identity");
            cx.ledger.changed(piece, "asked without compression, because the plan reads its answer");
        }
        // Requests at once do not see what the others keep, so one that keeps something comes before them.
        let is_static =
            request.keep.is_empty() && is_static(entry, entry.sent.as_ref().unwrap_or(&Sent::default()));
        let mut step = request.step(piece);
        let is_new_page = page.as_ref() != Some(&entry.page);
        if is_new_page && page.is_some() {
            step.comment.push("The next page.".to_owned());
        }
        page = Some(entry.page.clone());
        cx.ledger.same(piece);
        match steps.last_mut().map(|last| &mut last.does) {
            Some(Does::Parallel(_, inner)) if is_static && !is_new_page && inner.len() < PARALLEL_STEPS => {
                inner.push(step)
            }
            _ if is_static => steps.push(Step::new(Does::Parallel(PARALLEL, vec![step]))),
            _ => steps.push(step),
        }
    }
    while matches!(steps.last(), Some(Step { does: Does::Pause(_), .. })) {
        steps.pop();
    }
    // One request alone needs no `parallel`.
    for step in &mut steps {
        if let Does::Parallel(_, inner) = &mut step.does
            && inner.len() == 1
            && let Some(only) = inner.pop()
        {
            *step = only;
        }
    }
    steps
}

/// Lets Origin and Referer name the server that the plan is run against. Servers that check them would refuse the
/// recorded one.
fn follow_target(cx: &mut Cx<'_>, plan: &mut Plan, main: &str) {
    let mut name: Option<String> = None;
    plan.each_request(&mut |request| {
        for (field, value) in &mut request.headers {
            let Some(rest) = value.strip_prefix(main).filter(|_| matches!(&**field, "origin" | "referer"))
            else {
                continue;
            };
            if rest.is_empty() || rest.starts_with('/') {
                let name = name.get_or_insert_with(|| cx.vault.free("origin"));
                *value = format!("{}{rest}", text::placeholder(name));
            }
        }
    });
    if let Some(name) = name {
        plan.values.push(Constant { name, value: ConstantValue::optional("TARGET", main) });
    }
}

/// Header fields and checks that all requests have alike become those of the plan.
pub(super) fn hoist(plan: &mut Plan) {
    let mut common: Option<BTreeSet<(String, String)>> = None;
    let mut checks: Option<Vec<String>> = None;
    let (mut count, mut is_alike) = (0, true);
    plan.each_request(&mut |request| {
        // The type of a body belongs to the body.
        let own: BTreeSet<_> =
            request.headers.iter().filter(|(name, _)| name != "content-type").cloned().collect();
        common = Some(match common.take() {
            None => own,
            Some(known) => known.intersection(&own).cloned().collect(),
        });
        is_alike &= checks.as_ref().is_none_or(|known| *known == request.checks);
        checks.get_or_insert_with(|| request.checks.clone());
        count += 1;
    });
    if count >= 2
        && is_alike
        && let Some(checks) = checks.filter(|checks| !checks.is_empty())
    {
        plan.defaults.set("checks", checks);
        plan.each_request(&mut |request| request.checks.clear());
    }
    let common = common.unwrap_or_default();
    if count < 2 || common.is_empty() {
        return;
    }
    let is_common = |field: &(String, String)| common.contains(field);
    let mut ordered: Vec<(String, String)> = Vec::new();
    plan.each_request(&mut |request| {
        if ordered.is_empty() {
            ordered = request.headers.iter().filter(|field| is_common(field)).cloned().collect();
        }
        request.headers.retain(|field| !is_common(field));
    });
    plan.headers = ordered;
}
