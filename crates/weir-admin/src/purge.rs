//! `POST /api/v1/caches/{store}:purge?url=…&prefix=…&tag=…`, or `?all=true`: parses the request target.

use crate::by_hand::plain;
use hyper::Uri;
use weir_gateway::Purge;

/// The path, as the documentation writes it.
pub(crate) const PATH: &str = "/api/v1/caches/{store}:purge";

/// Prefix of such a path.
pub(crate) const PREFIX: &str = "/api/v1/caches/";

/// Most URLs, prefixes and tags in one request.
const MOST: usize = 256;

/// The parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) store: String,
    pub(crate) what: Vec<Purge>,
}

/// Whether a path is one of these.
pub(crate) fn is_at(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Parses a target.
///
/// # Errors
/// The mistake, in words.
pub(crate) fn read(uri: &Uri) -> Result<Asked, String> {
    let expected = || format!("expected {PATH}?url=URL, prefix=URL, tag=WORD or all=true");
    let rest = uri.path().strip_prefix(PREFIX).ok_or_else(expected)?;
    let store = rest.strip_suffix(":purge").filter(|store| !store.is_empty()).ok_or_else(expected)?;
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let what: Vec<Purge> = pairs.map(one).collect::<Result<_, _>>()?;
    if what.is_empty() {
        return Err(format!("nothing to purge is named; {}", expected()));
    }
    if what.len() > MOST {
        return Err(format!("{} things to purge are named; at most {MOST} may be", what.len()));
    }
    Ok(Asked { store: plain(store)?, what })
}

fn one(pair: &str) -> Result<Purge, String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let value = plain(value)?;
    match name {
        "all" if value == "true" => Ok(Purge::All),
        "prefix" => Ok(Purge::Prefix(absolute(&value)?)),
        "tag" if !value.is_empty() && !value.contains([' ', ',']) => Ok(Purge::Tag(value)),
        "url" => Ok(Purge::Url(absolute(&value)?)),
        _ => Err(format!("`{pair}` is not understood; expected url=URL, prefix=URL, tag=WORD or all=true")),
    }
}

/// Normalizes a URL as caches do: scheme and host in lower case, no default port, and a path.
fn absolute(url: &str) -> Result<String, String> {
    let refused = || format!("`{url}` is not a URL; expected http://HOST/PATH or https://HOST/PATH");
    let (scheme, rest) = url.split_once("://").ok_or_else(refused)?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return Err(refused()),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || host.contains(['?', '#', '@']) || path.contains('#') {
        return Err(refused());
    }
    let host = host.to_ascii_lowercase();
    Ok(format!("{scheme}://{}/{path}", host.strip_suffix(port).unwrap_or(&host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let url = |text: &str| Purge::Url(text.to_owned());
        for (target, expected) in [
            ("pages:purge?url=http://a/x", Some(("pages", vec![url("http://a/x")]))),
            (
                "pages:purge?url=HTTPS%3A%2F%2FA.b%3A443%2Fx%3Fy%3D1%26z",
                Some(("pages", vec![url("https://a.b/x?y=1&z")])),
            ),
            ("pages:purge?url=http://a:8080", Some(("pages", vec![url("http://a:8080/")]))),
            (
                "a%20b:purge?tag=x&prefix=http://a/",
                Some(("a b", vec![Purge::Tag("x".to_owned()), Purge::Prefix("http://a/".to_owned())])),
            ),
            ("pages:purge?all=true", Some(("pages", vec![Purge::All]))),
            ("pages:purge?all", None),
            ("pages:purge", None),
            ("pages:purge?", None),
            ("pages:purge?tag=", None),
            ("pages:purge?tag=a%20b", None),
            ("pages:purge?url=/x", None),
            ("pages:purge?url=ftp://a/", None),
            ("pages:purge?url=http:///x", None),
            ("pages:purge?url=http://u@a/x", None),
            ("pages:purge?other=1", None),
            (":purge?all=true", None),
            ("pages?all=true", None),
        ] {
            let uri: Uri = format!("http://127.0.0.1{PREFIX}{target}").parse().unwrap();
            let read = read(&uri);
            let read = read.as_ref().ok().map(|a| (&*a.store, a.what.clone()));
            assert_eq!(read, expected, "{target}");
        }
        let many = format!("http://127.0.0.1{PREFIX}p:purge?{}", "tag=a&".repeat(MOST + 1));
        assert!(read(&many.parse().unwrap()).is_err());
    }
}
