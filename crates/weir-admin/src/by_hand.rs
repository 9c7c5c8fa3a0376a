//! `POST /api/v1/endpoints/{upstream}/{address}:drain|out|in?for=10m`: parses the request target.

use hyper::Uri;
use std::time::Duration;
use weir_gateway::ByHand;
use weir_gateway::config::units;

/// The path, as the documentation writes it.
pub(crate) const PATH: &str = "/api/v1/endpoints/{upstream}/{address}:{drain|out|in}";

/// Prefix of such a path.
pub(crate) const PREFIX: &str = "/api/v1/endpoints/";

/// Default duration. A state that is not in the config must end automatically.
pub(crate) const DEFAULT: Duration = Duration::from_secs(3600);

/// Longest time that an endpoint may be drained or out. For longer times, change the config.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) upstream: String,
    pub(crate) endpoint: String,
    pub(crate) verb: &'static str,
    pub(crate) by_hand: ByHand,
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
    let expected = || format!("expected {PATH}");
    let rest = uri.path().strip_prefix(PREFIX).ok_or_else(expected)?;
    let (upstream, rest) = rest.split_once('/').ok_or_else(expected)?;
    let (endpoint, verb) = rest.rsplit_once(':').ok_or_else(expected)?;
    let time = time(uri.query().unwrap_or_default())?;
    let (verb, by_hand) = match verb {
        "drain" => ("drain", ByHand::Drain(time.unwrap_or(DEFAULT))),
        "in" if time.is_some() => return Err("`in` takes no `for`: it ends the earlier setting".to_owned()),
        "in" => ("in", ByHand::In),
        "out" => ("out", ByHand::Out(time.unwrap_or(DEFAULT))),
        _ => return Err(format!("`{verb}` is none of drain, out and in; {}", expected())),
    };
    Ok(Asked { upstream: plain(upstream)?, endpoint: plain(endpoint)?, verb, by_hand })
}

/// Parses the value of `for`.
pub(crate) fn time(query: &str) -> Result<Option<Duration>, String> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("for", value)) if found.is_none() => found = Some(plain(value)?),
            _ => return Err(format!("`{pair}` is not understood; expected for=10m, once")),
        }
    }
    let Some(text) = found else { return Ok(None) };
    let time = text.parse::<units::Duration>().map_err(|e| format!("for: `{text}` {e}"))?;
    if time.is_zero() || time.get() > LONGEST {
        let longest = units::Duration(LONGEST);
        return Err(format!(
            "for: `{text}` is out of range; expected more than nothing, and at most {longest}"
        ));
    }
    Ok(Some(time.get()))
}

/// Decodes the percent-escapes of a text.
pub(crate) fn plain(escaped: &str) -> Result<String, String> {
    let refused = || format!("`{escaped}` holds an escape that is none");
    let mut out = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit().zip(digit()).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        out.push(value.ok_or_else(refused)?);
    }
    String::from_utf8(out).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        const S: Duration = Duration::from_secs(1);
        for (target, expected) in [
            (
                "orders/127.0.0.1:8000:drain?for=10m",
                Some(("orders", "127.0.0.1:8000", ByHand::Drain(600 * S))),
            ),
            ("orders/127.0.0.1:8000:out", Some(("orders", "127.0.0.1:8000", ByHand::Out(DEFAULT)))),
            ("orders/[::1]:8000:in", Some(("orders", "[::1]:8000", ByHand::In))),
            ("orders/%5B::1%5D:80:in", Some(("orders", "[::1]:80", ByHand::In))),
            ("a%20b/unix:/run/a.sock:out?for=1h", Some(("a b", "unix:/run/a.sock", ByHand::Out(3600 * S)))),
            ("a/unix:%2Frun%2Fa.sock:out", Some(("a", "unix:/run/a.sock", ByHand::Out(DEFAULT)))),
            ("orders/127.0.0.1:8000", None),
            ("orders/127.0.0.1:8000:stop", None),
            ("orders:drain", None),
            ("orders/a:80:in?for=1m", None),
            ("orders/a:80:drain?for=1", None),
            ("orders/a:80:drain?for=0s", None),
            ("orders/a:80:drain?for=31d", None),
            ("orders/a:80:drain?for=1m&for=2m", None),
            ("orders/a:80:drain?until=1m", None),
            ("orders/%zz:80:drain", None),
            ("orders/%f:drain", None),
            ("orders/%ff:80:drain", None),
        ] {
            let uri: Uri = format!("http://127.0.0.1{PREFIX}{target}").parse().unwrap();
            let read = read(&uri);
            let read = read.as_ref().ok().map(|a| (&*a.upstream, &*a.endpoint, a.by_hand));
            assert_eq!(read, expected, "{target}");
        }
    }
}
