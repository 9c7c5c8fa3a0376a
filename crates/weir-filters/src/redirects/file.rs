//! Reads the file of redirects, and finds what would go wrong: duplicates, loops, targets on unforeseen hosts.

use super::super::redirect::STATUSES;
use super::table::{MAX_URL, Refused, Row, Table};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::borrow::Cow;
use weir_filter::config::csv::{self, Malformed};
use weir_filter::prelude::RequestHead;
use weir_filter::route::{Canonical, PathError, Slashes, canonical};

/// A file, and what applies to all its rows.
pub(super) struct File<'a> {
    /// Its path, for messages.
    pub(super) name: &'a str,
    /// The only hosts to which a row may lead; any if there are none.
    pub(super) hosts: &'a [String],
    /// The status of rows without one.
    pub(super) status: u16,
}

/// What is wrong, and what to do.
pub(super) type Mistake = (String, Option<String>);

/// Most mistakes of a file that are reported.
const MAX_MISTAKES: usize = 5;

/// Characters that may stand in the file as they are, and are escaped in the URL. Bytes from 0x80 up are too.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'^').add(b'`').add(b'|');

impl File<'_> {
    /// The table of its rows, or every mistake.
    pub(super) fn read(&self, text: &str) -> Result<Table, Vec<Mistake>> {
        let mut table = Table::default();
        let mut mistakes = Vec::new();
        let mut first = true;
        for (line, fields) in csv::rows(text) {
            let names = std::mem::take(&mut first) && fields.as_ref().is_ok_and(|fields| is_header(fields));
            let fields = fields.map_err(malformed);
            if !names && let Err(mistake) = fields.and_then(|fields| self.add(&fields, line, &mut table)) {
                mistakes.push(self.placed(line, mistake));
            }
        }
        if mistakes.is_empty() {
            mistakes = self.loops(&table);
        }
        if mistakes.is_empty() {
            return Ok(table);
        }
        let more = mistakes.len().saturating_sub(MAX_MISTAKES);
        mistakes.truncate(MAX_MISTAKES);
        if more > 0 {
            mistakes.push((format!("{}: and {more} more rows have mistakes", self.name), None));
        }
        Err(mistakes)
    }

    fn placed(&self, line: usize, (message, hint): Mistake) -> Mistake {
        (format!("{}:{line}: {message}", self.name), hint)
    }

    fn add(&self, fields: &[Cow<'_, str>], line: usize, table: &mut Table) -> Result<(), Mistake> {
        let (from, to, status) = match fields {
            [from, to] => (from, to, self.status),
            [from, to, status] if status.is_empty() => (from, to, self.status),
            [from, to, status] => (from, to, self.status_of(status)?),
            _ => {
                let message = format!("the row has {} fields; expected from,to,status", fields.len());
                return Err((message, Some("put a field that holds a comma in double quotes".to_owned())));
            }
        };
        let from = self.from(from)?;
        let to = self.to(to)?;
        let row = Row { from: &from, to: to.as_bytes(), status, line: line as u32 };
        table.add(row).map_err(|refused| match refused {
            Refused::Duplicate(line) => (
                format!("`{}` is redirected in line {line} already", String::from_utf8_lossy(&from)),
                Some("leave one of the two rows out".to_owned()),
            ),
            Refused::TooLong => (format!("a URL is longer than {MAX_URL} bytes"), None),
        })
    }

    fn status_of(&self, text: &str) -> Result<u16, Mistake> {
        let status = text.parse().ok().filter(|status| STATUSES.contains(status));
        status.ok_or_else(|| {
            (format!("`{text}` is no status that redirects; expected 301, 302, 303, 307 or 308"), None)
        })
    }

    /// The canonical `from`.
    fn from(&self, text: &str) -> Result<Vec<u8>, Mistake> {
        if !text.starts_with('/') {
            let hint = "write a path such as /old; for one host put the filter on a route with `hosts`";
            return Err((format!("`{text}` is not a path"), Some(hint.to_owned())));
        }
        no_pattern(text)?;
        if text.contains('#') {
            let hint = "browsers do not send what follows the `#`";
            return Err((
                format!("`{text}` has a fragment, so no request matches it"),
                Some(hint.to_owned()),
            ));
        }
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let mut from =
            canonical_path(path).map_err(|e| (format!("`{text}` matches no request: {e}"), None))?;
        if let Some(query) = query {
            from.push(b'?');
            from.extend(escaped(query).bytes());
        }
        Ok(from)
    }

    /// The target, as it is sent.
    fn to(&self, text: &str) -> Result<String, Mistake> {
        no_pattern(text)?;
        if text.chars().any(char::is_control) || text.contains('\\') {
            let message = format!("`{}` holds a backslash or a control character", text.escape_debug());
            return Err((message, Some("browsers read a backslash as a slash: escape it as %5C".to_owned())));
        }
        if text.starts_with("//") {
            let message = format!("`{text}` leaves for another host (RFC 3986 §4.2)");
            return Err((message, Some("write the host with its scheme, or a single slash".to_owned())));
        }
        if text.starts_with('/') {
            let path = text.split(['?', '#']).next().unwrap_or_default();
            canonical_path(path).map_err(|e| (format!("`{text}` would be refused: {e}"), None))?;
            return Ok(escaped(text).into_owned());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let hint = "write /new or https://www.example.com/new";
            return Err((
                format!("`{text}` is neither a path nor a URL with http or https"),
                Some(hint.to_owned()),
            ));
        };
        if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
            return Err((format!("`{text}` has the scheme `{scheme}`; expected http or https"), None));
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if RequestHead::default().set_authority(authority.as_bytes()).is_err() {
            let hint =
                "write https://www.example.com/new; names outside ASCII in Punycode, and no user before an @";
            return Err((format!("`{authority}` in `{text}` is not a host"), Some(hint.to_owned())));
        }
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => authority,
        };
        if !self.hosts.is_empty() && !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            let message = format!("`{text}` leads to a host that is not in `hosts`");
            return Err((message, Some(format!("add {host} to `hosts` if it is yours"))));
        }
        Ok(format!("{}://{authority}{}", scheme.to_ascii_lowercase(), escaped(target)))
    }

    /// Every loop, once.
    fn loops(&self, table: &Table) -> Vec<Mistake> {
        let next = |number: usize| {
            let to = table.row(number).to;
            let to = &to[..to.iter().position(|&b| b == b'#').unwrap_or(to.len())];
            let (path, query) = match to.iter().position(|&b| b == b'?') {
                Some(at) => (&to[..at], Some(&to[at + 1..])),
                None => (to, None),
            };
            let mut out = Vec::new();
            let form = canonical(path, Slashes::Merge, &mut out).ok()?;
            table.find(form.choose(path, &out), query)
        };
        let mut found = Vec::new();
        // The walk that visited a row, from 1. A walk that meets itself has found a loop.
        let mut visited = vec![0usize; table.len()];
        for start in 0..table.len() {
            let mut at = Some(start);
            while let Some(number) = at.filter(|&number| visited[number] == 0) {
                visited[number] = start + 1;
                at = next(number);
            }
            let Some(number) = at.filter(|&number| visited[number] == start + 1) else { continue };
            let row = table.row(number);
            let from = String::from_utf8_lossy(row.from);
            let message = match next(number) {
                Some(other) if other != number => {
                    let through = table.row(other).line;
                    format!("`{from}` leads back to itself, first to line {through}: a client would loop")
                }
                _ => format!("`{from}` leads to itself: a client would loop"),
            };
            found
                .push(self.placed(row.line as usize, (message, Some("remove one of these rows".to_owned()))));
        }
        found
    }
}

fn is_header(fields: &[Cow<'_, str>]) -> bool {
    let bare = fields.join(",").replace(' ', "");
    bare.eq_ignore_ascii_case("from,to,status") || bare.eq_ignore_ascii_case("from,to")
}

/// What is wrong with a line that is no row of fields.
fn malformed(why: Malformed<'_>) -> Mistake {
    match why {
        Malformed::Unclosed => (why.to_string(), Some("write \"\" for a double quote".to_owned())),
        Malformed::BehindQuote(text) => (format!("`{text}` follows a quoted field"), None),
    }
}

/// Whoever writes a placeholder or ends with a star expects a pattern, which rows are not.
fn no_pattern(text: &str) -> Result<(), Mistake> {
    let brace = text.contains(['{', '}']);
    if !brace && !text.ends_with('*') {
        return Ok(());
    }
    let literal = if brace { "; write %7B and %7D for braces" } else { "" };
    let hint = format!("for a pattern write a route with the filter redirect{literal}");
    Err((format!("`{text}` looks like a pattern, but a row is one URL"), Some(hint)))
}

fn canonical_path(path: &str) -> Result<Vec<u8>, PathError> {
    let escaped = escaped(path);
    let mut out = Vec::new();
    Ok(match canonical(escaped.as_bytes(), Slashes::Merge, &mut out)? {
        Canonical::AsIs => escaped.into_owned().into_bytes(),
        Canonical::Rewritten => out,
    })
}

fn escaped(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, ESCAPED).into()
}
