//! Witnesses from what clients asked before: an access log, a HAR file, another recording that weir-traffic reads, or a
//! list of URLs.

use super::patterns::{Line, PathKind, Patterns};
use super::witness::{Ask, Witness};
use std::collections::HashSet;
use weir_traffic::{Form, PEEK_BYTES, Reader, Record, Recorded};

/// Most different requests of a corpus.
pub const MAX_REQUESTS: usize = 20_000;
/// Largest corpus.
pub const MAX_BYTES: u64 = 256 << 20;
/// Longest target.
const MAX_TARGET: usize = 8000;

/// A request as the corpus has it.
struct Asked {
    method: String,
    /// The host, if it is known.
    host: Option<String>,
    tls: bool,
    target: String,
}

/// The witnesses of a corpus. A log without hosts is asked at every site.
#[must_use]
pub fn corpus(text: &str, patterns: &Patterns) -> Vec<Witness> {
    let mut seen = HashSet::new();
    let mut made = Vec::new();
    for asked in requests(text) {
        let is_good = |b: u8| b.is_ascii_graphic();
        if asked.target.len() > MAX_TARGET || !asked.target.bytes().all(is_good) {
            continue;
        }
        for (at, site) in patterns.sites.iter().enumerate() {
            let named = site.hosts.iter().find(|(name, _)| !name.starts_with('~') && !name.contains('*'));
            let fits = match &asked.host {
                Some(host) => {
                    let bare = host.split(':').next().unwrap_or(host).to_ascii_lowercase();
                    site.hosts.iter().any(|(name, _)| takes(name, &bare)) || patterns.sites.len() == 1
                }
                None => true,
            };
            let front =
                site.fronts.iter().find(|front| front.tls == asked.tls).or_else(|| site.fronts.first());
            let (true, Some(front)) = (fits, front) else { continue };
            let host =
                asked.host.clone().or_else(|| named.map(|(name, _)| name.trim_start_matches('.').to_owned()));
            let host = host.unwrap_or_else(|| front.ip.clone());
            let ask = Ask { method: asked.method.clone(), ..Ask::new(front, Some(&host), &asked.target) };
            if made.len() >= MAX_REQUESTS {
                return made;
            }
            if seen.insert(ask.clone()) {
                let path = ask.target.split('?').next().unwrap_or_default();
                let prefixes = site.paths.iter().enumerate().filter(|(_, p)| p.kind == PathKind::Prefix);
                let longest =
                    prefixes.filter(|(_, p)| path.starts_with(&p.text)).max_by_key(|(_, p)| p.text.len());
                let line: Line = longest.map_or_else(|| site.line.clone(), |(_, path)| path.line.clone());
                let of = longest.map(|(n, _)| (at, n));
                made.push(Witness { ask, about: "from the corpus".to_owned(), line, of });
            }
        }
    }
    made
}

fn takes(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(rest) => host.ends_with(&format!(".{rest}")) || (name.starts_with('.') && host == rest),
        None => {
            name.eq_ignore_ascii_case(host)
                || name.strip_suffix(".*").is_some_and(|start| host.starts_with(start))
        }
    }
}

/// The requests of a corpus: of a recording that [`weir_traffic`] reads, or else of a list of URLs.
fn requests(text: &str) -> Vec<Asked> {
    let first = text.as_bytes();
    let Some(form) = Form::of(first.get(..PEEK_BYTES).unwrap_or(first)) else {
        return text.lines().filter_map(of_line).collect();
    };
    let mut reader = Reader::new(form, first);
    let mut all = Vec::new();
    // Reading from memory does not fail.
    while let Ok(Some((_, record))) = reader.record() {
        if let Ok(Record::Request(r)) = record {
            let Recorded { method, host, is_tls, target, .. } = *r;
            all.push(Asked { method, host, tls: is_tls, target });
        }
    }
    all
}

/// A line: a URL, a path, either behind a method, or a line of an access log in another format.
fn of_line(line: &str) -> Option<Asked> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    // The request of the combined format: `"GET /x HTTP/1.1"`.
    let request = line.split('"').find(|part| part.contains(" HTTP/")).unwrap_or(line);
    let mut words = request.split_whitespace();
    let first = words.next()?;
    let is_method = first.bytes().all(|b| b.is_ascii_uppercase()) && !first.is_empty();
    let (method, url) = if is_method { (first, words.next()?) } else { ("GET", first) };
    let target = weir_traffic::split(url);
    if target.host.is_none() && !url.starts_with('/') {
        return None;
    }
    Some(Asked {
        method: method.to_owned(),
        host: target.host.map(str::to_owned),
        tls: target.is_tls,
        target: target.path(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_lists_and_har_are_read() {
        let shown = |asked: Option<Asked>| {
            asked.map(|a| format!("{} {:?} {} {}", a.method, a.host.unwrap_or_default(), a.tls, a.target))
        };
        let cases = [
            (
                r#"1.2.3.4 - - [24/Nov/2026] "POST /a?b=c HTTP/1.1" 200 3 "http://ref" "agent""#,
                "POST \"\" false /a?b=c",
            ),
            ("https://a.example:8443/x#y", "GET \"a.example:8443\" true /x"),
            ("DELETE http://a.example", "DELETE \"a.example\" false /"),
            ("/x", "GET \"\" false /x"),
        ];
        for (line, expected) in cases {
            assert_eq!(shown(of_line(line)).as_deref(), Some(expected), "{line}");
        }
        for nothing in ["", "# x", "what is this", "\"\""] {
            assert_eq!(shown(of_line(nothing)), None, "{nothing}");
        }
        let har = r#"{"log":{"entries":[{"startedDateTime":"2026-11-24T06:40:56Z",
            "request":{"method":"GET","url":"https://h/x"}},{"request":1}]}}"#;
        let all: Vec<_> = requests(har).into_iter().map(|asked| shown(Some(asked)).unwrap()).collect();
        assert_eq!(all, ["GET \"h\" true /x"]);
        assert_eq!(requests("/a\n/b\n# c\n").len(), 2);
    }
}
