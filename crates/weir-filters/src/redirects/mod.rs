//! `redirects`: sends clients from old URLs to new ones by a file of many rows.

mod file;
mod table;

use super::prelude::*;
use super::redirect::{Status, append_query};
use file::File;
use table::Table;
use weir_h1::FieldName;

pub(super) static KIND: FilterKind = FilterKind::made_from::<RedirectsSettings>("redirects").judged_by_head();

/// Redirects clients by a file of old and new URLs; a request that no row names passes.
///
/// The file is CSV (RFC 4180), one row per line: `from,to,status`. The status may be left out, and so may a first line
/// with these names. Empty lines and lines that begin with `#` are skipped. `from` is a path, such as `/old`. With a
/// query, such as `/index.php?id=4`, it names requests with exactly that query, and takes precedence over the path
/// alone. `to` is a path on the same host, or a URL with `http` or `https`. Neither has placeholders: a pattern of
/// paths is a route with `redirect`.
///
/// Paths are compared as routes compare them: `/caf%c3%a9`, `/caf%C3%A9` and `/x/../caf%C3%A9` are one path.
/// Characters that a URL must escape may stand in the file as they are. A row whose `to` is the requested URL itself
/// passes, so that `/,https://www.example.com/` is no loop on that host.
///
/// Duplicates, loops within the file and targets that leave for an unforeseen host are mistakes, named with their
/// line. The file is watched like the config, and a change that contains a mistake is ignored. A lookup among 100,000
/// rows takes no longer than in a short file; each takes about 30 bytes beside its text. Limits: 32 MiB per file, 8 KiB
/// per URL.
///
/// ```yaml
/// - redirects: { file: moved.csv }
/// - redirects: { file: moved.csv, status: 301, hosts: [ www.example.com ] }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedirectsSettings {
    /// The file.
    file: FilePath,
    /// The only hosts to which a `to` may lead, without port. Default: any host that the file names.
    #[serde(default)]
    hosts: Vec<String>,
    /// Whether the client's query is appended to `to`. Never if the row's `from` has a query. Default true.
    #[serde(default = "yes")]
    keep_query: bool,
    /// Status of rows without one. Default 308.
    #[serde(default)]
    status: Status,
}

const fn yes() -> bool {
    true
}

/// Largest file, in bytes: half a million rows of usual length.
const MAX_BYTES: usize = 32 * 1024 * 1024;

struct Redirects {
    file: String,
    keep_query: bool,
    location: FieldName,
    table: Table,
}

impl IntoFilter for RedirectsSettings {
    type Filter = Redirects;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Redirects> {
        let Self { file: path, hosts, keep_query, status } = self;
        let bytes = match build.read_file(&path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(message) => {
                build.refuse("file", message, None);
                return None;
            }
        };
        let name = path.0.display().to_string();
        let file = File { name: &name, hosts: &hosts, status: status.into() };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => {
                let line =
                    e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
                build.refuse("file", format!("{name}:{line}: the text is not UTF-8"), None);
                return None;
            }
        };
        match file.read(&text) {
            Ok(table) => Some(Redirects {
                file: name,
                keep_query,
                location: FieldName::new("location").expect("a name in the source is a token"),
                table,
            }),
            Err(mistakes) => {
                for (message, hint) in mistakes {
                    build.refuse("file", message, hint.map(Into::into));
                }
                None
            }
        }
    }
}

impl Filter for Redirects {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let Some(number) = self.table.find(head.path(), head.query()) else { return Flow::Continue };
        let row = self.table.row(number);
        let mut to = row.to.to_vec();
        if self.keep_query
            && !row.has_query()
            && let Some(query) = head.query()
        {
            append_query(&mut to, query);
        }
        if is_requested(&to, head, cx) {
            return Flow::Continue;
        }
        Flow::Answer(Box::new(Answer {
            status: row.status,
            headers: vec![(self.location.clone(), to)],
            body: Body::default(),
        }))
    }

    fn explain(&self, asked: &Asked<'_>) -> Vec<String> {
        let Some(number) = self.table.find(asked.path, asked.head.query()) else {
            return vec![format!("none of the {} rows of {} names it", self.table.len(), self.file)];
        };
        let row = self.table.row(number);
        let to = String::from_utf8_lossy(row.to);
        vec![format!("line {} of {} redirects it to {to} ({})", row.line, self.file, row.status)]
    }
}

/// Whether a URL is the one that the client asked for: a redirect to it would be a loop.
fn is_requested(to: &[u8], head: &RequestHead, cx: &Cx) -> bool {
    let (scheme, port): (&[u8], &[u8]) = if cx.tls { (b"https://", b":443") } else { (b"http://", b":80") };
    let Some(rest) = to.strip_prefix(scheme) else { return false };
    let (host, target) = rest.split_at(rest.iter().position(|&b| b == b'/').unwrap_or(rest.len()));
    let bare = |host| <[u8]>::strip_suffix(host, port).unwrap_or(host);
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    bare(host).eq_ignore_ascii_case(bare(head.asked_authority()))
        && path == head.path()
        && query == head.query()
}

#[cfg(test)]
mod tests;
