//! The hosts and paths of a way, as a route matches them, and the names that follow from them.

use super::super::path::Known;
use super::super::world::World;
use crate::shared::order::{self, Host};
use crate::shared::path;

pub(super) fn host_of(host: &str) -> Host {
    match host.strip_prefix('*') {
        Some(end) => Host::Suffix(end.to_owned()),
        None => Host::Exact(host.to_owned()),
    }
}

pub(super) fn candidate_path(known: &Known) -> order::Path {
    let lower = |text: &str| path::canonical(text).to_lowercase();
    match known {
        Known::Any => order::Path::Prefix("/".to_owned()),
        Known::Exact(text) => order::Path::Exact(lower(text)),
        Known::Prefix(text) => order::Path::Prefix(lower(text)),
        Known::Regex { whole, start, .. } => order::Path::Regex { whole: whole.clone(), start: lower(start) },
    }
}

/// The path as a route writes it, with a comment; none for any.
pub(super) fn path_of(known: &Known) -> Result<(Option<String>, Option<String>), &'static str> {
    let checked = |text: &str| path::never_matches(text).map_or(Ok(()), Err);
    Ok(match known {
        Known::Any => (None, None),
        Known::Exact(text) => {
            checked(text)?;
            let exact = path::exact(text);
            (Some(if exact.starts_with('~') { exact.replacen('~', "~(?i)", 1) } else { exact }), None)
        }
        Known::Prefix(text) if text == "/" => (None, None),
        Known::Prefix(text) => {
            checked(text)?;
            let prefix = path::prefix(text);
            (Some(if prefix.starts_with('~') { prefix.replacen('~', "~(?i)", 1) } else { prefix }), None)
        }
        Known::Regex { whole, .. } => (Some(format!("~{whole}")), None),
    })
}

pub(super) fn file_of(world: &World, name: &str) -> String {
    let first = world.hosts.first().map_or(name, String::as_str);
    crate::config::name_of(&plain(first.trim_start_matches("*.")))
}

pub(super) fn name_of(world: &World, name: &str) -> String {
    let host = world.hosts.first().map_or(name, String::as_str);
    let path = match &world.path {
        Known::Any => "root".to_owned(),
        Known::Exact(text) | Known::Prefix(text) => {
            let text = text.trim_matches('/').replace('/', "-");
            if text.is_empty() { "root".to_owned() } else { text }
        }
        Known::Regex { whole, .. } => {
            let words: String =
                whole.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            words.trim_start_matches("--i-").to_owned()
        }
    };
    plain(&format!("{}.{}", host.trim_start_matches("*."), path))
}

fn plain(text: &str) -> String {
    text.replace([crate::yaml::VARIABLE_BEGIN, crate::yaml::VARIABLE_END], "")
}
