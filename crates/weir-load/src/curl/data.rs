//! The data that a curl command line sends: from one or more flags, a form or a file; in the body or in the query.

use crate::options::body::{Part, multipart, multipart_type, read_file};
use std::path::Path;

/// The data so far.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) compressed: bool,
    pub(super) get: bool,
    pub(super) head: bool,
    data: Option<Vec<u8>>,
    json: bool,
    parts: Vec<Part>,
    upload: Option<(String, Vec<u8>)>,
}

/// A body, with its media type if curl sets one.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) media_type: Option<String>,
}

impl Sent {
    /// `-d`: text, or a file without its line ends.
    pub(super) fn data(&mut self, value: &str) -> Result<(), String> {
        let Some(path) = value.strip_prefix('@') else {
            self.add(value.as_bytes());
            return Ok(());
        };
        let mut bytes = read(path)?;
        bytes.retain(|b| !matches!(b, b'\r' | b'\n' | 0));
        self.add(&bytes);
        Ok(())
    }

    /// `--data-binary`: text, or a file as it is.
    pub(super) fn data_binary(&mut self, value: &str) -> Result<(), String> {
        let bytes = text_or_file(value)?;
        self.add(&bytes);
        Ok(())
    }

    /// `--data-urlencode`: `content`, `=content`, `name=content`, `@file` or `name@file`; the name stays as it is.
    pub(super) fn data_urlencode(&mut self, value: &str) -> Result<(), String> {
        let at = value.find('=').or_else(|| value.find('@'));
        let (name, content) = at.map_or(("", value), |at| value.split_at(at));
        let content = match content.strip_prefix('@') {
            Some(path) if at.is_some() => read(path)?,
            _ => content.strip_prefix('=').unwrap_or(content).as_bytes().to_vec(),
        };
        let mut text = name.to_owned();
        if !name.is_empty() {
            text.push('=');
        }
        for b in content {
            match b {
                b' ' => text.push('+'),
                b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => text.push(char::from(b)),
                b => text += &format!("%{b:02X}"),
            }
        }
        self.add(text.as_bytes());
        Ok(())
    }

    /// `--json`: like `--data-binary`, but appended without an `&`.
    pub(super) fn json(&mut self, value: &str) -> Result<(), String> {
        self.json = true;
        self.data.get_or_insert_default().append(&mut text_or_file(value)?);
        Ok(())
    }

    /// Appends data as it is to that of earlier flags.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        match &mut self.data {
            Some(data) => {
                data.push(b'&');
                data.extend_from_slice(bytes);
            }
            None => self.data = Some(bytes.to_vec()),
        }
    }

    /// `-F`: `name=value`, `name=@file` or `name=<file`, each with `;type=` and `;filename=`.
    pub(super) fn form(&mut self, value: &str) -> Result<(), String> {
        let (name, value) = named(value)?;
        // Quoted content is text, whatever its first character.
        let (marker, content) = match value.split_at_checked(1) {
            Some((marker @ ("@" | "<"), content)) => (marker, content),
            _ => ("", value),
        };
        let (content, mut rest) = quoted(content);
        let mut part = match marker {
            "@" => Part::file(name, &content).map_err(|e| format!("{name}=@{content}: {e}"))?,
            "<" => Part { value: read(&content)?, ..Part::text(name, "") },
            _ => Part::text(name, &content),
        };
        while let Some(attribute) = rest.strip_prefix(';') {
            let Some((key, value)) = attribute.trim_start().split_once('=') else { break };
            let (value, more) = quoted(value);
            match key {
                "filename" => part.filename = Some(value),
                "type" => part.media_type = Some(value),
                _ => {
                    return Err(format!(
                        "{name}: `;{key}=` is not valid here: expected ;type= or ;filename="
                    ));
                }
            }
            rest = more;
        }
        self.parts.push(part);
        Ok(())
    }

    /// `--form-string`: `name=value`; no character of the value is special.
    pub(super) fn form_string(&mut self, value: &str) -> Result<(), String> {
        let (name, value) = named(value)?;
        self.parts.push(Part::text(name, value));
        Ok(())
    }

    /// `-T`.
    pub(super) fn upload(&mut self, path: &str) -> Result<(), String> {
        if path == "-" || path == "." {
            return Err(format!("{path}: standard input can be sent only once: give a file"));
        }
        if self.upload.is_some() {
            return Err(format!("{path}: a second file: give one"));
        }
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.upload = Some((name, read(path)?));
        Ok(())
    }

    pub(super) const fn is_json(&self) -> bool {
        self.json
    }

    /// With `-G`, the data as query.
    pub(super) fn query(&self) -> Option<String> {
        let data = self.data.as_ref().filter(|_| self.get)?;
        Some(String::from_utf8_lossy(data).into_owned())
    }

    /// With `-T`, the name that is appended to a URL that ends in `/`.
    pub(super) fn upload_name(&self) -> Option<&str> {
        self.upload.as_ref().map(|(name, _)| name.as_str())
    }

    /// The method that the flags imply when no body makes it POST.
    pub(super) fn method(&self) -> Result<Option<&'static str>, String> {
        let body = self.data.is_some() && !self.get;
        let asked =
            [(self.head, "-I"), (body, "-d"), (!self.parts.is_empty(), "-F"), (self.upload.is_some(), "-T")];
        let asked: Vec<&str> = asked.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect();
        if let [first, second, ..] = asked[..] {
            return Err(format!(
                "`{first}` and `{second}` cannot be combined, in curl either: leave one out"
            ));
        }
        Ok(match asked.first() {
            Some(&"-I") => Some("HEAD"),
            Some(&"-T") => Some("PUT"),
            Some(_) => None,
            None => self.get.then_some("GET"),
        })
    }

    /// The body, if there is one.
    pub(super) fn body(self) -> Result<Option<Body>, String> {
        let with = |bytes, media_type: Option<String>| Ok(Some(Body { bytes, media_type }));
        if let Some((_, bytes)) = self.upload {
            return with(bytes, None);
        }
        if !self.parts.is_empty() {
            return with(multipart(&self.parts), Some(multipart_type()));
        }
        let media_type = if self.json { "application/json" } else { "application/x-www-form-urlencoded" };
        match self.data.filter(|_| !self.get) {
            Some(bytes) => with(bytes, Some(media_type.to_owned())),
            None => Ok(None),
        }
    }
}

fn named(value: &str) -> Result<(&str, &str), String> {
    let named = value.split_once('=').filter(|(name, _)| !name.is_empty());
    named.ok_or_else(|| format!("{value}: expected name=value or name=@file"))
}

/// A value up to the next attribute, such as `;type=`, or one in double quotes; and the rest.
fn quoted(value: &str) -> (String, &str) {
    if let Some(inside) = value.strip_prefix('"') {
        let (mut text, mut escaped) = (String::new(), false);
        for (at, c) in inside.char_indices() {
            match c {
                c if escaped => {
                    text.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => return (text, inside.get(at + 1..).unwrap_or_default()),
                c => text.push(c),
            }
        }
        // An unclosed quote is part of the text.
    }
    let end = [";type=", ";filename=", ";headers=", ";encoder="].iter().filter_map(|a| value.find(a)).min();
    let (text, rest) = value.split_at(end.unwrap_or(value.len()));
    (text.to_owned(), rest)
}

fn text_or_file(value: &str) -> Result<Vec<u8>, String> {
    value.strip_prefix('@').map_or_else(|| Ok(value.as_bytes().to_vec()), read)
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    if path == "-" {
        return Err("@-: standard input is not read: give a file".to_owned());
    }
    read_file(path).map_err(|e| format!("@{path}: {e}"))
}
