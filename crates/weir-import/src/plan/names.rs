//! Names of scenarios and steps: made of methods and paths where the source has none, and unique.

use super::model::{Does, Plan, Request, Step};
use std::collections::HashSet;

/// Longest name of a scenario or step, in characters.
const NAME_CHARS: usize = 64;

/// Gives every scenario and step a name of its own.
pub fn finish(plan: &mut Plan) {
    let mut taken = HashSet::new();
    steps(&mut plan.setup, &mut taken);
    let mut scenarios = HashSet::new();
    for scenario in &mut plan.scenarios {
        scenario.name = unique(&scenario_name(&scenario.name), &mut scenarios, '_');
        let mut taken = HashSet::new();
        steps(&mut scenario.start, &mut taken);
        steps(&mut scenario.steps, &mut taken);
        steps(&mut scenario.end, &mut taken);
    }
    let mut taken = HashSet::new();
    steps(&mut plan.teardown, &mut taken);
}

fn steps(list: &mut [Step], taken: &mut HashSet<String>) {
    for step in list {
        match &mut step.does {
            Does::Request(request) => {
                let wish = request.name.take().map(|name| step_name(&name)).filter(|name| !name.is_empty());
                let wish = wish.unwrap_or_else(|| of_request(request));
                request.name = Some(unique(&wish, taken, ' '));
            }
            _ => {
                if let Some(inner) = step.inner_mut() {
                    steps(inner, taken);
                }
            }
        }
    }
}

fn unique(wish: &str, taken: &mut HashSet<String>, between: char) -> String {
    let mut name = wish.to_owned();
    let mut number = 2;
    while !taken.insert(name.clone()) {
        let end = format!("{between}{number}");
        let short: String = wish.chars().take(NAME_CHARS - end.len()).collect();
        name = format!("{short}{end}");
        number += 1;
    }
    name
}

/// A name that is allowed for a scenario: letters, digits, `_`, `.` and `-`.
fn scenario_name(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c.to_ascii_lowercase()),
            '-' | '_' if !out.is_empty() => out.push(c),
            _ if out.is_empty() || out.ends_with('_') => {}
            _ => out.push('_'),
        }
        if out.len() >= 48 {
            break;
        }
    }
    let out = out.trim_end_matches(['_', '-']);
    if out.is_empty() { "journey".to_owned() } else { out.to_owned() }
}

/// A name that is allowed for a step.
fn step_name(text: &str) -> String {
    let fine = |c: char| !c.is_control() && !matches!(c, ':' | '{' | '}');
    let words: String = text.chars().map(|c| if fine(c) { c } else { ' ' }).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = words.chars().take(NAME_CHARS - 4).collect();
    short.trim().trim_end_matches("(redirect)").trim().to_owned()
}

/// A name made of a method and the last parts of a path that are no identifiers.
pub(super) fn of_request(request: &Request) -> String {
    let path = request
        .url
        .split_once("://")
        .map_or(&*request.url, |(_, rest)| rest.split_once('/').map_or("", |(_, p)| p));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_word = |part: &&str| {
        !part.is_empty()
            && part.len() <= 40
            && !part.contains(['{', '%'])
            && part.chars().filter(char::is_ascii_digit).count() * 3 <= part.len()
    };
    let words: Vec<&str> = path.split('/').filter(is_word).collect();
    let last = words.get(words.len().saturating_sub(2)..).unwrap_or_default().join("_");
    let words = match &*last {
        "" => "root".to_owned(),
        last => last
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' })
            .collect(),
    };
    match &*request.method {
        "GET" => words,
        method => format!("{}_{words}", method.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_their_paths() {
        for (method, url, want) in [
            ("GET", "/", "root"),
            ("GET", "/api/v1/items?page=2", "api_items"),
            ("POST", "/items/8237482/notes", "post_items_notes"),
            ("DELETE", "https://api.example/users/{{id}}", "delete_users"),
            ("GET", "/a%20b/app.js", "app.js"),
        ] {
            assert_eq!(of_request(&Request::new(method, url)), want, "{url}");
        }
    }
}
