//! Values and settings that a Caddyfile and JSON share.

use super::model::{Files, Op};
use super::verdicts::Judged;
use crate::config::Filter;
use crate::yaml::{Map, Value};

/// What a file server does differently.
pub(super) const HIDDEN: &str =
    "Weir serves no files whose names begin with a dot, except below /.well-known/ (`files.hidden`)";

/// A setting of `file_server`.
pub(super) fn file_setting(files: &mut Files, name: &str, values: &[String]) -> Judged {
    let first = values.first().cloned().unwrap_or_default();
    match name {
        "root" => files.root = Some(first),
        "fs" => return Judged::refused("Weir serves files of folders", "`files.root`"),
        "browse" => {
            files.settings.set("browse", true);
            if !first.is_empty() {
                return Judged::changed("Weir lists a folder with a page of its own");
            }
        }
        "index" => files.settings.set("index", values.to_vec()),
        "precompressed" => {
            let known = |coding: &&String| matches!(&***coding, "br" | "gzip" | "zstd");
            let codings: Vec<String> = match values {
                [] => ["br", "zstd", "gzip"].map(str::to_owned).to_vec(),
                values => values.iter().filter(known).cloned().collect(),
            };
            files.settings.set("precompressed", codings);
        }
        "hide" => {
            let are_dots = values.iter().all(|value| {
                value
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| name.starts_with('.') || name.ends_with("Caddyfile"))
            });
            if !are_dots {
                let why = "Weir serves every file below the root but those that begin with a dot";
                return Judged::refused(why, "a route with `respond: { status: 404 }` for their paths");
            }
        }
        "pass_thru" => files.passes_on = true,
        "disable_canonical_uris" => {
            return Judged::changed("Weir redirects to the path of a folder with its slash");
        }
        "status" => return Judged::refused("Weir answers a file with 200", "the filter `errors`"),
        "etag_file_extensions" => return Judged::left_out("Weir makes ETags itself"),
        _ => return Judged::refused(format!("Weir knows no `{name}` of files"), "`routes.NAME.files`"),
    }
    Judged::Same
}

/// The filter `compress`.
pub(super) fn compress(
    algorithms: &[String],
    minimum: &str,
    types: Option<Vec<String>>,
    levels: Map,
) -> Filter {
    let mut map = Map::new();
    if !algorithms.is_empty() {
        map.set("algorithms", algorithms.to_vec());
    }
    map.set("minimum", minimum);
    map.set_some("types", types);
    if !levels.is_empty() {
        map.set("levels", levels);
    }
    Filter::new("compress", Value::Map(map))
}

/// A media type with a `*` where Weir has one.
pub(super) fn media_type(value: &str) -> String {
    match value.strip_suffix('*') {
        Some(start) if !start.ends_with('/') => start.to_owned(),
        _ => value.to_owned(),
    }
}

/// A size as Caddy reads it: `10MB` is ten million bytes, `10MiB` is more.
pub(super) fn size_of(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit: f64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" | "ki" => 1024.0,
        "mib" | "mi" => 1_048_576.0,
        "gib" | "gi" => 1_073_741_824.0,
        _ => return None,
    };
    let bytes = number * unit;
    (0.0..=1e18).contains(&bytes).then_some(bytes as u64)
}

/// A change to a field: `+Name value`, `-Name`, `Name value`.
pub(super) fn op(words: &[&str]) -> Option<Op> {
    let (name, value) = (*words.first()?, words.get(1).copied().unwrap_or_default().to_owned());
    let name = name.trim_end_matches(':');
    Some(match name.chars().next()? {
        '+' => Op::Add(name[1..].to_owned(), value),
        '-' => Op::Delete(name[1..].to_owned()),
        _ => Op::Set(name.to_owned(), value),
    })
}

/// Why a change cannot be made, if so.
pub(super) fn op_refusal(words: &[&str]) -> Option<&'static str> {
    if words.len() > 2 {
        return Some("Weir replaces no part of a field");
    }
    let name = words.first()?.trim_end_matches(':');
    if name.strip_prefix('-').is_some_and(is_pattern) {
        return None;
    }
    let name = name.trim_start_matches(['+', '-', '?', '>']);
    if name.contains('*') {
        return Some("Weir changes fields by their whole names, and removes them by `*` at one end");
    }
    if name.contains('{') {
        return Some("the name of a field must be known beforehand");
    }
    None
}

/// Whether a `*` stands at an end of a name, and something else beside it.
fn is_pattern(name: &str) -> bool {
    let bare = name.strip_prefix('*').unwrap_or(name);
    let bare = bare.strip_suffix('*').unwrap_or(bare);
    bare.len() < name.len() && !bare.is_empty() && !bare.contains('*')
}

/// What is left to do for a request where a change cannot be made: if Caddy replaces a part of a field, or removes it,
/// the client's value must not pass.
pub(super) fn withheld(words: &[&str]) -> Option<Op> {
    let name = words.first()?.trim_end_matches(':').trim_start_matches('-');
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then(|| Op::Delete(name.to_owned()))
}

/// Old versions of Caddy kept hashes in base64.
pub(super) fn decoded(hash: &str) -> String {
    if !hash.starts_with("JD") {
        return hash.to_owned();
    }
    base64::decode(hash).filter(|text| text.starts_with('$')).unwrap_or_else(|| hash.to_owned())
}

/// Base64 with the standard alphabet.
mod base64 {
    /// The text that is encoded, if it is one.
    pub(super) fn decode(text: &str) -> Option<String> {
        let value = |byte: u8| -> Option<u32> {
            let at = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            Some(at.into())
        };
        let mut out = Vec::new();
        let (mut bits, mut count) = (0_u32, 0);
        for byte in text.trim_end_matches('=').bytes() {
            bits = bits << 6 | value(byte)?;
            count += 6;
            if count >= 8 {
                count -= 8;
                out.push(u8::try_from(bits >> count & 0xff).ok()?);
            }
        }
        String::from_utf8(out).ok()
    }
}
