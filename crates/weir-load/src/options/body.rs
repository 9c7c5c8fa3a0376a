//! Bodies from options: text, files, and multipart forms (RFC 7578).

use super::Reader;
use std::io::Read;
use std::path::Path;

/// Longest body, and longest file that a body is made from: it is held in memory.
const BODY_MOST: u64 = 1 << 30;

/// Separates the parts of a multipart body; too long to occur in a file by chance.
const BOUNDARY: &str = "weir-3f1c9a7e5b2d4860-part";

/// One part of a multipart body.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) media_type: Option<String>,
    pub(crate) value: Vec<u8>,
}

impl Part {
    /// A part with a file's content and name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn file(name: &str, path: &str) -> Result<Self, String> {
        let filename = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name: name.to_owned(),
            filename: Some(filename),
            media_type: Some("application/octet-stream".to_owned()),
            value: read_file(path)?,
        })
    }

    /// A text part.
    pub(crate) fn text(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), filename: None, media_type: None, value: value.as_bytes().to_vec() }
    }
}

/// Media type of the body from [`multipart`].
pub(crate) fn multipart_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// A multipart body.
pub(crate) fn multipart(parts: &[Part]) -> Vec<u8> {
    let mut body = Vec::new();
    // These characters would end the name or its line.
    let plain = |text: &str| text.replace(['"', '\r', '\n'], "_");
    for part in parts {
        let mut head =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"", plain(&part.name));
        if let Some(filename) = &part.filename {
            head += &format!("; filename=\"{}\"", plain(filename));
        }
        if let Some(media_type) = &part.media_type {
            head += &format!("\r\nContent-Type: {}", plain(media_type));
        }
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(&part.value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// Reads a file to send.
///
/// # Errors
/// The file cannot be read, or is longer than a body may be.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    read_at_most(Path::new(path), BODY_MOST, "a body is at most 1 GiB")
}

/// Reads a file, pipe or device of at most `most` bytes.
pub(super) fn read_at_most(path: &Path, most: u64, too_long: &str) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let known = file.metadata().map_err(|e| e.to_string())?;
    if known.len() > most {
        return Err(too_long.to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    // A device has no length, and may have no end.
    if bytes.len() as u64 > most {
        return Err(too_long.to_owned());
    }
    Ok(bytes)
}

impl Reader<'_> {
    pub(super) fn body(&mut self) -> Option<Vec<u8>> {
        let o = self.options;
        let (form, data) = (!o.forms.is_empty(), o.data.is_some());
        if form && data {
            self.wrong("-F", "--data is a body already: give one of the two");
        }
        if (form || data) && o.body.is_some() {
            let place = if form { "-F" } else { "--data" };
            self.wrong(place, "the command line of --curl has a body already: give one of the two");
        }
        if form {
            return Some(self.form());
        }
        let Some(data) = &o.data else { return o.body.clone() };
        let Some(path) = data.strip_prefix('@') else { return Some(data.as_bytes().to_vec()) };
        match read_file(path) {
            Ok(body) => Some(body),
            Err(hint) => {
                self.wrong(&format!("--data @{path}"), &hint);
                None
            }
        }
    }

    fn form(&mut self) -> Vec<u8> {
        let mut parts = Vec::new();
        for form in &self.options.forms {
            let place = format!("-F {form}");
            let Some((name, value)) =
                form.split_once('=').filter(|(n, _)| !n.is_empty() && !n.contains(['"', '\r', '\n']))
            else {
                self.wrong(&place, "expected name=value or name=@file");
                continue;
            };
            let part = match value.strip_prefix('@') {
                None => Ok(Part::text(name, value)),
                Some(path) => Part::file(name, path),
            };
            match part {
                Ok(part) => parts.push(part),
                Err(hint) => self.wrong(&place, &hint),
            }
        }
        multipart(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_read_to_a_limit() {
        let read = |path: &str| read_at_most(Path::new(path), 1000, "at most 1000 bytes");
        assert_eq!(read("/dev/zero"), Err("at most 1000 bytes".to_owned()));
        assert_eq!(read("/dev/null"), Ok(Vec::new()));
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1001).unwrap();
        assert_eq!(read(&file.path().display().to_string()), Err("at most 1000 bytes".to_owned()));
        assert!(read("/nonexistent").unwrap_err().contains("No such file"));
    }
}
