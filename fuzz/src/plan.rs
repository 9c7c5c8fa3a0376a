//! What weir-plan reads of servers and files, compiled from its own files: cookies, JSON paths, URLs, CSV.

#![allow(dead_code, unreachable_pub)] // only the crate uses the rest

#[path = "../../crates/weir-plan/src/cookie.rs"]
mod cookie;
#[path = "../../crates/weir-plan/src/data.rs"]
mod data;
#[path = "../../crates/weir-plan/src/limits.rs"]
pub(crate) mod limits;
#[path = "../../crates/weir-plan/src/origin.rs"]
pub(crate) mod origin;
#[path = "../../crates/weir-plan/src/path.rs"]
mod path;

use cookie::CookieJar;
use data::{AtEnd, DataSet, Pick};
use origin::Url;
use path::{MATCHES, Path};
use std::time::Duration;
use weir_h1::{FieldName, Fields};

/// The first line is a URL, the others are `Set-Cookie` of its answer: no cookie goes to another host, the jar stays
/// within its limits, and what is sent is one line.
pub fn cookie(data: &[u8]) {
    let mut lines = data.split(|b| *b == b'\n');
    let Some(url) =
        lines.next().and_then(|url| str::from_utf8(url).ok()).and_then(|url| Url::parse(url).ok())
    else {
        return;
    };
    let name = FieldName::new("set-cookie").expect("a name");
    let mut jar = CookieJar::default();
    for line in lines {
        let mut fields = Fields::default();
        if fields.append(&name, line).is_ok() {
            jar.store(&url.origin, &url.path, &fields, Duration::from_secs(1_000_000_000));
        }
    }
    assert!(jar.len() <= limits::COOKIES);
    let send = |host: &str, path: &str| {
        let mut origin = url.origin.clone();
        host.clone_into(&mut origin.host);
        let mut out = Vec::new();
        jar.write(&origin, path, Duration::from_secs(1_000_000_001), &mut out);
        assert!(!out.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "{}", out.escape_ascii());
        out
    };
    send(&url.origin.host, &url.path);
    for stranger in ["x.invalid", "invalid", "1.2.3.4"] {
        let is_related = url.origin.host == stranger || url.origin.host.ends_with("invalid");
        assert!(
            is_related || send(stranger, "/").is_empty(),
            "a cookie of {} goes to {stranger}",
            url.origin.host
        );
    }
}

/// A table by RFC 4180: what is read and written again, with every field quoted, reads as the same.
pub fn csv(data: &[u8]) {
    let parse = |text: &[u8]| DataSet::parse("d", text, Pick::Sequential, AtEnd::Wrap);
    let Ok(set) = parse(data) else { return };
    let cells = |set: &DataSet| -> Vec<Vec<u8>> {
        let width = set.columns().len();
        let all = (0..set.rows()).flat_map(|row| (0..width).map(move |column| (row, column)));
        all.map(|(row, column)| set.cell(row, column).expect("a cell").to_vec()).collect()
    };
    let quoted = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).replace('"', "\"\"");
        format!("\"{text}\"")
    };
    let names: Vec<String> = set.columns().iter().map(|name| quoted(name.as_bytes())).collect();
    let all = cells(&set);
    let rows =
        all.chunks(names.len()).map(|row| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(","));
    let text = [names.join(",")].into_iter().chain(rows).collect::<Vec<_>>().join("\r\n");
    let again = parse(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text:?}"));
    assert_eq!((again.columns(), cells(&again)), (set.columns(), all), "{text:?}");
}

/// The first line is a path, the rest JSON: a search ends, within its limit, and a path to one value finds one.
pub fn json_path(data: &[u8]) {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let (text, json) = data.split_at(end);
    let Some(path) = str::from_utf8(text).ok().and_then(Path::parse) else { return };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(json) else { return };
    if let Ok(found) = path.find(&json) {
        assert!(found.len() <= if path.is_plural() { MATCHES } else { 1 });
    }
}

/// The first line is a URL, the second a reference: what is read reads the same when it is written, and a reference
/// leads to a URL that can be sent.
pub fn url(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (url, reference) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(url) = Url::parse(url) else { return };
    let whole = |url: &Url| format!("{}{}", url.origin, url.path);
    assert_eq!(Url::parse(&whole(&url)).as_ref(), Ok(&url));
    if let Ok(joined) = url.join(reference) {
        assert!(
            joined.path.starts_with('/') && joined.path.bytes().all(|b| b.is_ascii_graphic() && b != b'#')
        );
        assert_eq!(Url::parse(&whole(&joined)).as_ref(), Ok(&joined));
    }
}
