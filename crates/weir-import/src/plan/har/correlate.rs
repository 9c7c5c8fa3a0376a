//! Finds values that a server gave and the browser sent back: tokens against forged requests, identifiers, bearer
//! tokens. Such a value differs in each session, so the plan must keep it from the answer.
//!
//! A value is correlated if it looks made up or stands where tokens do, an answer had it before any request did, and we
//! can locate it in that answer. The location is a JSON path, a header field, a cookie, or a regular expression whose
//! first match is the value. A comment in the plan says where the value was seen and where it was sent.

mod random;
mod search;

pub(super) use random::is_made_up;

use super::read::Entry;
use crate::plan::model::Keep;
use crate::plan::request::{Sent, Slot, Where};
use crate::plan::text;
use crate::plan::vault::{Vault, is_secret};
use aho_corasick::{AhoCorasick, MatchKind};
use random::may_be_made_up;
use search::Search;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Shortest value that is correlated.
const SHORTEST: usize = 8;
/// Longest; weir-plan keeps 64 KiB.
const LONGEST: usize = 8 << 10;
/// Most different values that are looked for.
const VALUES: usize = 20_000;
/// Most matches of values in one answer.
const MATCHES: usize = 50_000;
/// Most answers that are searched for one value, the last ones before it was sent.
const SOURCES: usize = 20;
/// Most values within one part of a request, such as a body that is a text.
const WITHIN: usize = 1_000;
/// Most bytes of answers that are searched for where a value stands, each search counted.
const SEARCHED: usize = 1 << 30;
/// Characters before a value that may tell where it is.
const CONTEXT: usize = 80;

/// What an entry keeps, and what its request became.
pub(super) struct Found {
    /// What each entry keeps, by its position.
    pub(super) keeps: BTreeMap<usize, Vec<Keep>>,
    /// Entries of which the second needs what the first kept.
    pub(super) needs: Vec<(usize, usize)>,
    /// Whether [`SEARCHED`] was reached.
    pub(super) is_full: bool,
}

/// Where an answer has a value.
struct Source {
    source: String,
    shown: String,
}

/// Replaces correlated values in the requests of `taken`, positions of entries in the order of time.
pub(super) fn correlate(entries: &mut [Entry], taken: &[usize], vault: &mut Vault) -> Found {
    let mut found = Found { keeps: BTreeMap::new(), needs: Vec::new(), is_full: false };
    let mut search = Search { leaves: HashMap::new(), left: SEARCHED };
    let values = values(entries, taken);
    let seen = seen(entries, taken, &values);
    // Values that a request had before any answer: the client made them.
    let mut of_client: HashSet<String> = HashSet::new();
    let mut kept: HashMap<String, (usize, String)> = HashMap::new();
    for (order, &at) in taken.iter().enumerate() {
        let earlier = taken.get(..order).unwrap_or_default();
        let Some(entry) = entries.get_mut(at) else { continue };
        let Ok(mut sent) = std::mem::replace(&mut entry.sent, Err(String::new())) else { continue };
        let number = entry.number;
        let mut uses: Vec<(String, String)> = Vec::new();
        sent.each_slot(&mut |place, slot| {
            for value in parts_of(place, slot) {
                if of_client.contains(&value) {
                    continue;
                }
                let name = match kept.get(&value) {
                    Some((from, name)) => {
                        found.needs.push((*from, at));
                        name.clone()
                    }
                    None => {
                        let answers = seen.get(&value).map(Vec::as_slice).unwrap_or_default();
                        // Both lists are in the order of time.
                        let before = answers.iter().rev().filter(|from| **from < at).take(SOURCES);
                        let sourced = before
                            .filter_map(|from| {
                                Some((*from, search.source(*from, entries.get(*from)?, &value)?))
                            })
                            .next();
                        let Some((from, source)) = sourced else {
                            if !answers.iter().any(|from| *from < at) {
                                of_client.insert(value);
                            }
                            continue;
                        };
                        let name = vault.free(wish(place, &source));
                        let proof = format!(
                            "{}; entry {number} sends it in {}.",
                            capital(&source.shown),
                            place.shown()
                        );
                        let keep = Keep { name: name.clone(), source: source.source, proof };
                        found.keeps.entry(from).or_default().push(keep);
                        found.needs.push((from, at));
                        kept.insert(value.clone(), (from, name.clone()));
                        name
                    }
                };
                uses.push((value.clone(), name));
            }
            put(place, slot, &uses);
            uses.clear();
        });
        follow(&mut sent, entries, earlier, at, vault, &mut found);
        if let Some(entry) = entries.get_mut(at) {
            entry.sent = Ok(sent);
        }
    }
    found.is_full = search.left == 0;
    found
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// A name for a value: that of the field that sends it, or that of the place where it was.
fn wish<'n>(place: Where<'n>, source: &'n Source) -> &'n str {
    let of_source = source.source.rsplit(['.', ':']).next().unwrap_or_default();
    match place {
        Where::Path | Where::Body if !of_source.is_empty() && !source.source.starts_with("body~") => {
            of_source
        }
        Where::Header("authorization") => "access_token",
        place => match place {
            Where::Form(name)
            | Where::Header(name)
            | Where::Json(name)
            | Where::Part(name)
            | Where::Query(name) => name,
            Where::Body => "value",
            Where::Path => "id",
        },
    }
}

/// Puts names in the places of values within a part of a request, longer ones first.
fn put(place: Where<'_>, slot: &mut Slot, uses: &[(String, String)]) {
    if slot.text.is_some() || uses.is_empty() {
        return;
    }
    let values: Vec<&str> = uses.iter().map(|(value, _)| &**value).collect();
    let builder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
    let Ok(finder) = builder else { return };
    // Values are escaped in a URL, so what stands around them is too.
    let own = |text: &str| match place {
        Where::Path | Where::Query(_) => text::percent_encoded(text),
        _ => text::literal(text),
    };
    let (mut out, mut end) = (String::new(), 0);
    for found in finder.find_iter(&slot.value) {
        let Some((_, name)) = uses.get(found.pattern().as_usize()) else { continue };
        out.push_str(&own(slot.value.get(end..found.start()).unwrap_or_default()));
        end = found.start();
        if text::joins(&out) || !is_apart(&slot.value, found.range()) {
            continue;
        }
        out.push_str(&text::placeholder(name));
        end = found.end();
    }
    if out.is_empty() && end == 0 {
        return;
    }
    out.push_str(&own(slot.value.get(end..).unwrap_or_default()));
    slot.text = Some(out);
}

/// Whether a part of a text is no part of a longer word.
fn is_apart(text: &str, range: std::ops::Range<usize>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric());
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).and_then(|after| after.chars().next());
    let ends_an_escape = before.len().checked_sub(3).is_some_and(|at| is_escape(before.as_bytes(), at));
    (ends_an_escape || !is_word(before.chars().next_back())) && !is_word(after)
}

/// Whether a percent-encoded byte is at this place.
fn is_escape(text: &[u8], at: usize) -> bool {
    matches!(text.get(at..at + 3), Some([b'%', a, b]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

/// Replaces percent-encoded bytes of a body with blanks, because they separate words: a form may hold JSON. The length
/// stays the same, so words keep their offsets. Other texts are returned unchanged.
fn without_escapes(place: Where<'_>, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if place == Where::Body {
        for at in 0..bytes.len() {
            if is_escape(&bytes, at)
                && let Some(escape) = bytes.get_mut(at..at + 3)
            {
                escape.fill(b' ');
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// What stands between the quotes of an entity tag (RFC 9110 §8.8.3).
fn entity_tag(value: &str) -> Option<&str> {
    value.strip_prefix("W/").unwrap_or(value).strip_prefix('"')?.strip_suffix('"')
}

/// The values of a part that an answer may have given: the whole, what stands behind `Bearer`, and the words within
/// texts, such as those of a body that stays a text.
fn parts_of(place: Where<'_>, slot: &Slot) -> Vec<String> {
    if slot.text.is_some() {
        return Vec::new();
    }
    match place {
        // The jar has them.
        Where::Header("cookie") => return Vec::new(),
        Where::Header(
            "referer" | "origin" | "host" | "user-agent" | "accept" | "accept-language" | "content-type",
        ) => return Vec::new(),
        Where::Header("accept-encoding" | "cache-control" | "pragma") => return Vec::new(),
        // A plan does not send these.
        Where::Header("if-none-match" | "if-modified-since" | "if-range") => return Vec::new(),
        _ => {}
    }
    let mut all: Vec<String> = Vec::new();
    // A token may look like a word.
    let token = token(place, &slot.value).filter(|token| may_be_made_up(token));
    all.extend(token.map(str::to_owned));
    // The quotes of an entity tag are part of it.
    if let (Where::Header(_), Some(tag)) = (place, entity_tag(&slot.value))
        && is_made_up(tag)
    {
        all.push(slot.value.clone());
    }
    let mut add = |value: &str| {
        if all.len() < WITHIN && is_made_up(value) && !all.iter().any(|known| known == value) {
            all.push(value.to_owned());
        }
    };
    if !matches!(place, Where::Body) {
        add(&slot.value);
        add(slot.value.trim_matches('"'));
    }
    let separates = |c: char| c.is_whitespace() || "\"'<>&;,(){}[]|?#`".contains(c);
    let blanked = without_escapes(place, &slot.value);
    for word in blanked.split(separates).filter(|word| word.len() >= SHORTEST) {
        add(word);
        // `name=value`, `name:value`, and segments of a path.
        for sign in ['=', ':'] {
            if let Some((_, value)) = word.split_once(sign) {
                add(value);
            }
        }
        if word.contains('/') {
            word.split('/').for_each(&mut add);
        }
    }
    all
}

/// The value of a part of a request that holds a token by its place, whatever the value looks like.
fn token<'v>(place: Where<'_>, value: &'v str) -> Option<&'v str> {
    const NAMES: [&str; 5] = ["csrf", "jwt", "nonce", "token", "xsrf"];
    const SCHEMES: [&str; 4] = ["bearer", "dpop", "jwt", "token"];
    let of_scheme = |value: &'v str| {
        let (scheme, token) = value.split_once(' ')?;
        SCHEMES.contains(&&*scheme.to_ascii_lowercase()).then_some(token)
    };
    match place {
        Where::Header("authorization") => of_scheme(value),
        Where::Form(name)
        | Where::Header(name)
        | Where::Json(name)
        | Where::Part(name)
        | Where::Query(name) => {
            let lower = name.to_ascii_lowercase();
            NAMES.iter().any(|part| lower.contains(part)).then_some(value)
        }
        Where::Body | Where::Path => None,
    }
}

/// All values that requests send and answers may have given.
fn values(entries: &mut [Entry], taken: &[usize]) -> Vec<String> {
    let mut all = Vec::new();
    let mut known = HashSet::new();
    for &at in taken {
        let Some(Entry { sent: Ok(sent), .. }) = entries.get_mut(at) else { continue };
        sent.each_slot(&mut |place, slot| {
            for value in parts_of(place, slot) {
                if all.len() < VALUES && known.insert(value.clone()) {
                    all.push(value);
                }
            }
        });
    }
    all
}

/// The entries whose answers have each value, in the order of time.
fn seen(entries: &[Entry], taken: &[usize], values: &[String]) -> HashMap<String, Vec<usize>> {
    let mut seen: HashMap<String, Vec<usize>> = HashMap::new();
    let Ok(finder) = AhoCorasick::new(values) else { return seen };
    if values.is_empty() {
        return seen;
    }
    for &at in taken {
        let Some(entry) = entries.get(at) else { continue };
        let mut add = |text: &str| {
            for found in finder.find_overlapping_iter(text).take(MATCHES) {
                if let Some(value) = values.get(found.pattern().as_usize()) {
                    let list = seen.entry(value.clone()).or_default();
                    if list.last() != Some(&at) {
                        list.push(at);
                    }
                }
            }
        };
        for (_, value) in &entry.answer.headers {
            add(value);
        }
        add(&entry.answer.body);
    }
    seen
}

/// A request to where an earlier answer redirected, with values in it that nothing else explains: the plan follows the
/// field Location.
fn follow(
    sent: &mut Sent,
    entries: &[Entry],
    earlier: &[usize],
    at: usize,
    vault: &mut Vault,
    found: &mut Found,
) {
    let mut is_open = false;
    sent.each_slot(&mut |place, slot| {
        let is_in_url = matches!(place, Where::Path | Where::Query(_));
        let is_secret =
            matches!(place, Where::Query(name) if is_secret(name) || name == "code" || name == "state");
        is_open |= is_in_url && slot.text.is_none() && (is_made_up(&slot.value) || is_secret);
    });
    if !is_open {
        return;
    }
    let request = sent.to_request(None);
    for &from in earlier.iter().rev().take(10) {
        let Some(entry) = entries.get(from) else { continue };
        let Some(location) =
            entry.answer.field("location").filter(|_| (300..400).contains(&entry.answer.status))
        else {
            continue;
        };
        let Ok(before) = &entry.sent else { continue };
        let whole = if location.starts_with('/') && !location.starts_with("//") {
            format!("{}{location}", before.server)
        } else {
            location.to_owned()
        };
        let is_same = text::split_url(&whole)
            .is_some_and(|(server, rest)| text::url_literal(&format!("{server}{rest}")) == request.url);
        if is_same {
            let name = vault.free("location");
            let number = entry.number;
            let proof = format!(
                "The header field location of entry {number}'s answer is the URL of the next request."
            );
            found.keeps.entry(from).or_default().push(Keep {
                name: name.clone(),
                source: "header:location".to_owned(),
                proof,
            });
            found.needs.push((from, at));
            sent.whole_url = Some(text::placeholder(&name));
            // What stands in the URL is no secret of the person who recorded it, but no report shows it.
            sent.each_slot(&mut |place, slot| {
                if matches!(place, Where::Path | Where::Query(_)) && is_made_up(&slot.value) {
                    vault.never_show(&slot.value);
                }
            });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_where_tokens_do_may_look_like_a_word() {
        for (place, value, want) in [
            (Where::Header("authorization"), "Bearer correcthorse", Some("correcthorse")),
            (Where::Header("authorization"), "Basic dXNlcjpwYXNz", None),
            (Where::Header("x-csrf-token"), "correcthorse", Some("correcthorse")),
            (Where::Form("__RequestVerificationToken"), "correcthorse", Some("correcthorse")),
            (Where::Form("password"), "correcthorse", None),
            (Where::Query("token"), "short", None),
        ] {
            let parts = parts_of(place, &Slot::plain(value));
            assert_eq!(parts.first().map(String::as_str), want, "{value}: {parts:?}");
        }
    }

    #[test]
    fn values_within_texts_are_found_and_replaced() {
        let text = "<t>a81f0c2e9b7d4c66</t> id=ord_93Hf72ks&again=a81f0c2e9b7d4c66 xa81f0c2e9b7d4c66";
        let mut slot = Slot::plain(text);
        let parts = parts_of(Where::Body, &slot);
        assert!(parts.iter().any(|part| part == "a81f0c2e9b7d4c66"), "{parts:?}");
        assert!(parts.iter().any(|part| part == "ord_93Hf72ks"), "{parts:?}");
        let uses =
            [("a81f0c2e9b7d4c66".to_owned(), "t".to_owned()), ("ord_93Hf72ks".to_owned(), "id".to_owned())];
        put(Where::Body, &mut slot, &uses);
        let want = "<t>{{t}}</t> id={{id}}&again={{t}} xa81f0c2e9b7d4c66";
        assert_eq!(slot.text.as_deref(), Some(want));
        // A form that holds JSON.
        let mut slot = Slot::plain("payload=%7B%22id%22%3A1246514002%2C%22n%22%3A1%7D&x=1&x=2");
        assert_eq!(parts_of(Where::Body, &slot), ["1246514002"]);
        put(Where::Body, &mut slot, &[("1246514002".to_owned(), "id".to_owned())]);
        assert_eq!(slot.text.as_deref(), Some("payload=%7B%22id%22%3A{{id}}%2C%22n%22%3A1%7D&x=1&x=2"));
    }

    #[test]
    fn an_entity_tag_is_one_value_with_its_quotes() {
        for tag in ["\"b59c82378d54d405\"", "W/\"b59c82378d54d405\""] {
            let mut slot = Slot::plain(tag);
            assert_eq!(parts_of(Where::Header("if-match"), &slot).first().map(String::as_str), Some(tag));
            assert!(parts_of(Where::Header("if-none-match"), &slot).is_empty());
            put(Where::Header("if-match"), &mut slot, &[(tag.to_owned(), "etag".to_owned())]);
            assert_eq!(slot.text.as_deref(), Some("{{etag}}"));
        }
    }
}
