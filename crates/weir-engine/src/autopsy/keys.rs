//! The config key that would have changed an outcome. Combines the cause's pattern (`upstreams.*.timeouts.response`),
//! the names of this exchange, and the place in the file.

use super::KeyShown;
use super::kept::{Kept, Outcome, Step, Text};
use std::time::Duration;
use weir_config::Node;
use weir_config::node::Key;
use weir_config::units;
use weir_upstream::error::{self, Cause};

/// The sections that a key may be in.
const SECTIONS: [&str; 9] = [
    "admin",
    "consumers",
    "limits",
    "listeners",
    "routes",
    "shutdown",
    "stores",
    "trusted_proxies",
    "upstreams",
];

/// The key for this exchange; `None` if no key would change the outcome. `tree` is the config, if it can be read.
pub(super) fn of(kept: &Kept, change: &str, tree: Option<&Node>) -> Option<KeyShown> {
    let candidates = candidates(kept, change, tree);
    // Keys that are written come before keys that are not.
    let written: Vec<Written<'_>> =
        candidates.iter().filter_map(|key| Some((key, tree?.lookup(key)?))).collect();
    let Some((key, (name, node))) = decisive(kept, &written).or_else(|| written.first().copied()) else {
        let key = candidates.last()?; // the most general one
        let parent = tree.and_then(|tree| parent(tree, key));
        return Some(KeyShown {
            at: parent.as_ref().map(|(_, node)| shown(node)),
            value: None,
            note: match (tree, parent) {
                (Some(_), Some((parent, _))) => {
                    Some(format!("not set: the default counts; it would stand under {parent}"))
                }
                (Some(_), None) => Some("not set: the default counts".to_owned()),
                (None, _) => None,
            },
            key: key.clone(),
        });
    };
    let at = name.map_or(&node.at, |name| &name.at);
    Some(KeyShown {
        key: key.clone(),
        at: Some(format!("{}:{}", at.file.display(), at.line)),
        value: if node.secret { None } else { node.shown() },
        note: None,
    })
}

/// A key that is written, with its value.
type Written<'t> = (&'t String, (Option<&'t Key>, &'t Node));

/// Among several times that are written, the one that expired: the longest that is no longer than the exchange's
/// wait.
fn decisive<'t>(kept: &Kept, written: &[Written<'t>]) -> Option<Written<'t>> {
    let attempt = kept.steps.iter().rev().find_map(|step| match step {
        Step::Attempt { took, outcome: Outcome::Cause(_), .. } => Some(Duration::from_micros((*took).into())),
        _ => None,
    });
    let whole = came_to(kept, &error::EXCHANGE_TIMEOUT);
    let waited = attempt.filter(|_| !whole).unwrap_or(kept.timing.total);
    let time = |node: &Node| node.as_text()?.parse::<units::Duration>().ok();
    time(written.first()?.1.1)?; // if the first is not a time, none is
    let passed = written.iter().filter_map(|one| Some((time(one.1.1)?.get(), one)));
    passed.filter(|(time, _)| *time <= waited).max_by_key(|(time, _)| *time).map(|(_, one)| *one)
}

/// Whether the exchange ended for this cause.
fn came_to(kept: &Kept, cause: &Cause) -> bool {
    kept.cause.is_some_and(|known| known == cause)
}

/// The keys that the cause names, with this exchange's names filled in: filters first, then routes.
fn candidates(kept: &Kept, change: &str, tree: Option<&Node>) -> Vec<String> {
    let mut found: Vec<(u8, String)> = Vec::new();
    for filter in named_filters(change, kept) {
        let path = filter_path(&filter, kept, tree);
        let inner = match filter.as_str() {
            "timeout" if came_to(kept, &error::EXCHANGE_TIMEOUT) => ".exchange",
            "timeout" if came_to(kept, &error::RESPONSE_TIMEOUT) => ".response",
            _ => "",
        };
        found.extend(path.map(|path| (0, path + inner)));
    }
    if came_to(kept, &error::RESPONSE_TIMEOUT) {
        // The cause also applies if an attempt had less time than its upstream's response timeout.
        found.push((1, format!("upstreams.{}.retry.per_try", kept.text(Text::Upstream))));
    }
    let words = change.split([' ', ',', ';', ':', '`', '(', ')']);
    for word in words.map(|word| word.trim_end_matches('.')) {
        let section = word.split(['.', '[']).next().unwrap_or_default();
        // A word of the prose is not a key, unless it is the whole text.
        if !SECTIONS.contains(&section) || (section == word && word != "trusted_proxies") {
            continue;
        }
        if let Some(path) = with_names(word, section, kept) {
            found.push((if section == "routes" { 1 } else { 2 }, path));
        }
    }
    found.sort_by_key(|(rank, _)| *rank); // stable, so otherwise in the text's order
    found.into_iter().map(|(_, path)| path).collect()
}

/// The filters that `change` names and that ran. The last one with a name is the one that refused.
fn named_filters(change: &str, kept: &Kept) -> Vec<String> {
    let ran = kept.text(Text::Filters);
    let mut words = change.split([' ', ',', ';', ':']).map(|word| word.trim_matches('`'));
    let mut found: Vec<String> = kept.stopped_by.map(str::to_owned).into_iter().collect();
    while let Some(word) = words.next() {
        if word == "filter"
            && let Some(name) = words.next()
            && ran.split(' ').any(|ran| ran == name)
            && !found.iter().any(|known| known == name)
        {
            found.push(name.to_owned());
        }
    }
    found
}

/// A filter's path: `routes.api.filters[1].rate_limit`.
fn filter_path(filter: &str, kept: &Kept, tree: Option<&Node>) -> Option<String> {
    let place = kept.text(Text::Place);
    let of_route = format!("routes.{}", kept.text(Text::Route));
    let places = [&*place, &of_route, "filters"];
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        let list = if place == "filters" { place.to_owned() } else { format!("{place}.filters") };
        let Some(tree) = tree else { return Some(format!("{list}.{filter}")) };
        let Some(node) = tree.find(&list) else { continue };
        let at = node.elements().iter().rposition(|element| {
            element.get(filter).is_some() || element.as_text().is_some_and(|name| name == filter)
        });
        if let Some(at) = at {
            let element = &node.elements()[at];
            let key = if element.get(filter).is_some() { format!(".{filter}") } else { String::new() };
            return Some(format!("{list}[{at}]{key}"));
        }
    }
    None
}

/// A path with this exchange's name in place of `*`; `None` if there is no such name.
fn with_names(word: &str, section: &str, kept: &Kept) -> Option<String> {
    let name = match section {
        "consumers" => kept.text(Text::Consumer),
        "listeners" => kept.text(Text::Listener),
        "routes" => kept.text(Text::Route),
        "upstreams" => kept.text(Text::Upstream),
        _ => "".into(),
    };
    match word.contains(".*") {
        false => Some(word.to_owned()),
        true if name.is_empty() => None,
        true => Some(word.replacen(".*", &format!(".{name}"), 1)),
    }
}

/// The nearest value above a key that is written, with its path.
fn parent<'t>(tree: &'t Node, key: &str) -> Option<(String, &'t Node)> {
    let mut path = key;
    while let Some((above, _)) = path.rsplit_once('.') {
        if let Some(node) = tree.find(above) {
            return Some((above.to_owned(), node));
        }
        path = above;
    }
    None
}

fn shown(node: &Node) -> String {
    format!("{}:{}", node.at.file.display(), node.at.line)
}
