//! What becomes of the field Cookie. Cookies that an answer of the recording set come from the jar. Others were there
//! before, or a script of the page made them, so they are variables; then the field is written, with the values of the
//! jar kept by name.

use super::correlate::{self, Found};
use super::read::{Entry, SetCookie};
use crate::ledger::Piece;
use crate::plan::model::Keep;
use crate::plan::request::{Sent, Slot};
use crate::plan::vault::is_secret;
use crate::plan::{Cx, text};
use std::collections::{BTreeMap, HashMap};

/// Most cookies of one name that a browser is taken to have, for different hosts and paths.
const OF_NAME: usize = 50;

/// The cookies of the browser, by name, those set last at the end.
#[derive(Default)]
struct Jar(HashMap<String, Vec<Held>>);

/// A cookie of the browser.
struct Held {
    value: String,
    domain: String,
    is_host_only: bool,
    path: String,
    /// The entry whose answer set it.
    from: usize,
}

/// How the browser came to a cookie that it sent.
enum Origin {
    /// An answer of the recording set exactly this.
    Answer(usize),
    /// It was there before, or a script made it.
    Elsewhere,
}

impl Jar {
    fn set(&mut self, cookie: &SetCookie<'_>, sent: &Sent, from: usize) {
        let host = text::host_of(&sent.server);
        let (domain, is_host_only) = match cookie.domain {
            "" => (host.to_owned(), true),
            domain => (domain.to_ascii_lowercase(), false),
        };
        let path = if cookie.path.is_empty() { folder(sent) } else { cookie.path.to_owned() };
        let list = self.0.entry(cookie.name.to_owned()).or_default();
        list.retain(|known| known.domain != domain || known.path != path);
        if cookie.is_over {
            return;
        }
        if list.len() >= OF_NAME {
            list.remove(0);
        }
        list.push(Held { value: cookie.value.to_owned(), domain, is_host_only, path, from });
    }

    fn origin(&self, name: &str, value: &str, sent: &Sent) -> Origin {
        let (host, path) = (text::host_of(&sent.server), whole_path(sent));
        let fits = |held: &&Held| {
            let is_host = held.domain == host
                || !held.is_host_only
                    && host.strip_suffix(&*held.domain).is_some_and(|before| before.ends_with('.'));
            is_host && path_matches(&path, &held.path)
        };
        let list = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        match list.iter().rev().filter(fits).find(|held| held.value == value) {
            Some(held) => Origin::Answer(held.from),
            None => Origin::Elsewhere,
        }
    }
}

/// RFC 6265 §5.1.4.
fn path_matches(path: &str, of_cookie: &str) -> bool {
    path.strip_prefix(of_cookie)
        .is_some_and(|rest| rest.is_empty() || of_cookie.ends_with('/') || rest.starts_with('/'))
}

fn whole_path(sent: &Sent) -> String {
    sent.path.iter().map(|slot| format!("/{}", slot.raw)).collect()
}

/// The path up to its last slash.
fn folder(sent: &Sent) -> String {
    let path = whole_path(sent);
    match path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => folder.to_owned(),
        _ => "/".to_owned(),
    }
}

/// Takes cookies from the users' jars where the recording shows who set them.
pub(super) fn from_jars(
    cx: &mut Cx<'_>,
    entries: &mut [Entry],
    taken: &[usize],
    pieces: &[Piece],
    found: &mut Found,
) {
    let mut jar = Jar::default();
    let mut kept: BTreeMap<(usize, String), String> = BTreeMap::new();
    for &at in taken {
        let Some(Entry { sent: Ok(sent), answer, .. }) = entries.get_mut(at) else { continue };
        if let Some(position) = sent.headers.iter().position(|(name, _)| name == "cookie") {
            let value = sent.headers.get(position).map(|(_, slot)| slot.value.clone()).unwrap_or_default();
            let pairs: Vec<(&str, &str, Origin)> = value
                .split(';')
                .filter_map(|pair| pair.trim().split_once('='))
                .map(|(name, value)| (name, value, jar.origin(name, value, sent)))
                .collect();
            for (_, _, origin) in &pairs {
                if let Origin::Answer(from) = origin {
                    found.needs.push((*from, at));
                }
            }
            if pairs.iter().all(|(_, _, origin)| matches!(origin, Origin::Answer(_))) {
                sent.headers.remove(position);
                for (name, value, _) in &pairs {
                    // `region=eu-central-1` is no secret, and may stand elsewhere.
                    if correlate::is_made_up(value) || is_secret(name) {
                        cx.vault.never_show(value);
                    }
                }
            } else {
                let mut written = Vec::new();
                for (name, value, origin) in &pairs {
                    let token = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
                    let text = match origin {
                        Origin::Answer(from) if token => {
                            let own = kept.entry((*from, (*name).to_owned())).or_insert_with(|| {
                                let own = cx.vault.free(&format!("cookie_{name}"));
                                let proof = format!("The cookie {name} goes with others that no answer set.");
                                let keep =
                                    Keep { name: own.clone(), source: format!("cookie:{name}"), proof };
                                found.keeps.entry(*from).or_default().push(keep);
                                own
                            });
                            cx.vault.never_show(value);
                            text::placeholder(own)
                        }
                        _ => cx.vault.hide(&format!("cookie_{name}"), value),
                    };
                    written.push(format!("{}={text}", text::literal(name)));
                }
                if let Some((_, slot)) = sent.headers.get_mut(position) {
                    *slot = Slot { text: Some(written.join("; ")), ..Slot::default() };
                }
                if let Some(&piece) = pieces.get(at) {
                    let why =
                        "cookies from before the recording, or that a script of the page made, are variables";
                    cx.ledger.changed(piece, why);
                }
            }
        }
        for cookie in answer.set_cookies() {
            jar.set(&cookie, sent, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::vault::Vault;

    #[test]
    fn cookies_are_those_that_answers_set() {
        let sent = |url: &str| Sent::new("GET", url, &mut Vault::default()).unwrap();
        let set = |name, value| SetCookie { name, value, ..SetCookie::default() };
        let mut jar = Jar::default();
        jar.set(&set("sid", "one"), &sent("http://a.example/shop/login"), 1);
        jar.set(
            &SetCookie { domain: "example", path: "/", ..set("lang", "de") },
            &sent("http://a.example/"),
            2,
        );
        for (name, value, url, want) in [
            ("sid", "one", "http://a.example/shop/items", Some(1)),
            ("sid", "two", "http://a.example/shop/items", None),
            ("sid", "one", "http://a.example/other", None),
            ("sid", "one", "http://b.example/shop/items", None),
            ("lang", "de", "http://b.example/x", Some(2)),
            ("lang", "de", "http://bexample/x", None),
        ] {
            let from = match jar.origin(name, value, &sent(url)) {
                Origin::Answer(from) => Some(from),
                Origin::Elsewhere => None,
            };
            assert_eq!(from, want, "{name}={value} at {url}");
        }
        jar.set(&SetCookie { is_over: true, ..set("sid", "") }, &sent("http://a.example/shop/logout"), 3);
        assert!(matches!(jar.origin("sid", "one", &sent("http://a.example/shop/x")), Origin::Elsewhere));
    }
}
