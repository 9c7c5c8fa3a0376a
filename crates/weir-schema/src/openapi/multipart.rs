//! `multipart/form-data` (RFC 7578) taken apart. Strictly: what parsers read differently is refused, because then an
//! upstream could see a form that nobody has checked.

use crate::fault::cut;

/// Most parts of a form.
const PARTS: usize = 1024;

/// Longest header section of a part, in bytes.
const HEAD_BYTES: usize = 8 * 1024;

/// Longest boundary (RFC 2046 §5.1.1).
const BOUNDARY: usize = 70;

/// One part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormPart<'b> {
    pub(super) name: String,
    /// Whether it is sent as a file.
    pub(super) is_file: bool,
    /// Its media type, if it says one.
    pub(super) media: Option<String>,
    pub(super) content: &'b [u8],
}

/// The boundary that a media type names.
///
/// # Errors
/// It names none, or an impossible one.
pub(super) fn boundary(media: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut found = None;
    for (name, value) in parameters(media).ok_or("has a malformed Content-Type")? {
        if name.eq_ignore_ascii_case("boundary") && found.replace(value).is_some() {
            return Err("has two boundaries");
        }
    }
    let boundary = found.ok_or("has no boundary in its Content-Type")?.into_bytes();
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(b);
    if boundary.is_empty()
        || boundary.len() > BOUNDARY
        || !boundary.iter().all(allowed)
        || boundary.ends_with(b" ")
    {
        return Err("has a boundary that is none");
    }
    Ok(boundary)
}

/// The parts of a body.
///
/// # Errors
/// It is not such a form, or is written in a way that not all read alike.
pub(super) fn parts<'b>(body: &'b [u8], boundary: &[u8]) -> Result<Vec<FormPart<'b>>, String> {
    let delimiter = [b"\r\n--", boundary].concat();
    let finder = memchr::memmem::Finder::new(&delimiter);
    let first = delimiter.get(2..).unwrap_or_default();
    let mut rest = body.strip_prefix(first).ok_or("does not begin with its boundary")?;
    let mut all = Vec::new();
    loop {
        if let Some(behind) = rest.strip_prefix(b"--") {
            return match behind {
                b"" | b"\r\n" => Ok(all),
                _ => Err("has something behind its end".to_owned()),
            };
        }
        rest = rest.strip_prefix(b"\r\n").ok_or("has a boundary with something behind it")?;
        let end = finder.find(rest).ok_or("has no end")?;
        let part = rest.get(..end).unwrap_or_default();
        rest = rest.get(end + delimiter.len()..).unwrap_or_default();
        if all.len() == PARTS {
            return Err(format!("has more than {PARTS} parts"));
        }
        all.push(read_part(part)?);
    }
}

fn read_part(part: &[u8]) -> Result<FormPart<'_>, String> {
    let (head, content) = match part.strip_prefix(b"\r\n") {
        Some(_) => return Err("has a part without Content-Disposition".to_owned()),
        None => {
            let end =
                memchr::memmem::find(part, b"\r\n\r\n").ok_or("has a part without an end of its head")?;
            (part.get(..end).unwrap_or_default(), part.get(end + 4..).unwrap_or_default())
        }
    };
    if head.len() > HEAD_BYTES {
        return Err(format!("has a part whose head is longer than {HEAD_BYTES} bytes"));
    }
    let head = str::from_utf8(head).map_err(|_| "has a part whose head is not UTF-8")?;
    let (mut disposition, mut media) = (None, None);
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or("has a part with a line that is no field")?;
        if name.is_empty()
            || name.contains(|c: char| !c.is_ascii_graphic())
            || value.contains(['\r', '\n', '\0'])
        {
            return Err("has a part with a malformed field".to_owned());
        }
        let seen = match name.to_ascii_lowercase().as_str() {
            "content-disposition" => disposition.replace(value.trim()).is_some(),
            "content-type" => media.replace(value.trim().to_owned()).is_some(),
            "content-transfer-encoding" => {
                // RFC 7578 §4.7: deprecated. Some parsers decode, others do not.
                let plain = ["7bit", "8bit", "binary"].iter().any(|of| value.trim().eq_ignore_ascii_case(of));
                if !plain {
                    return Err("has a part with a Content-Transfer-Encoding".to_owned());
                }
                false
            }
            _ => false,
        };
        if seen {
            return Err(format!("has a part with two {}", cut(name, 40)));
        }
    }
    let disposition = disposition.ok_or("has a part without Content-Disposition")?;
    if !disposition.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("form-data") {
        return Err("has a part that is no form-data".to_owned());
    }
    let (mut name, mut is_file) = (None, false);
    for (key, value) in parameters(disposition.as_bytes()).ok_or("has a malformed Content-Disposition")? {
        match key.to_ascii_lowercase().as_str() {
            "name" if name.replace(value).is_some() => return Err("has a part with two names".to_owned()),
            "filename" if is_file => return Err("has a part with two file names".to_owned()),
            "filename" => is_file = true,
            // RFC 7578 §4.2: not to be sent. Parsers differ in which of the two counts.
            "name*" | "filename*" => return Err("has a part with an encoded name".to_owned()),
            _ => {}
        }
    }
    let name = name.ok_or("has a part without a name")?;
    Ok(FormPart { name, is_file, media, content })
}

/// The parameters of a field's value, after its first `;`. None if they are malformed. Browsers escape a quote in a name
/// as `%22`, so a backslash is one, as they write it; a quote after it ends the text for some and not for others.
fn parameters(value: &[u8]) -> Option<Vec<(String, String)>> {
    let text = str::from_utf8(value).ok()?;
    let (_, mut rest) = text.split_once(';').unwrap_or((text, ""));
    let mut all = Vec::new();
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&+-.^_*".contains(&b)) {
            return None;
        }
        let (value, behind) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (value, behind) = quoted.split_once('"')?;
                if value.ends_with('\\') {
                    return None;
                }
                (value.to_owned(), behind.trim_start())
            }
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let value = after.get(..end)?.trim();
                if value.contains(|c: char| c.is_whitespace() || c == '"') {
                    return None;
                }
                (value.to_owned(), after.get(end..)?)
            }
        };
        all.push((name.to_owned(), value));
        rest = match behind.strip_prefix(';') {
            Some(rest) => rest,
            None if behind.is_empty() => "",
            None => return None,
        };
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries() {
        for (media, expected) in [
            ("multipart/form-data; boundary=abc", Ok("abc")),
            ("multipart/form-data;charset=utf-8; BOUNDARY=\"a b:c\"", Ok("a b:c")),
            ("multipart/form-data", Err("has no boundary in its Content-Type")),
            ("multipart/form-data; boundary=a; boundary=b", Err("has two boundaries")),
            ("multipart/form-data; boundary=\"\"", Err("has a boundary that is none")),
            ("multipart/form-data; boundary=\"a", Err("has a malformed Content-Type")),
            ("multipart/form-data; boundary=a b", Err("has a malformed Content-Type")),
            ("multipart/form-data; boundary=a<", Err("has a boundary that is none")),
        ] {
            let found = boundary(media.as_bytes());
            assert_eq!(found, expected.map(|text| text.as_bytes().to_vec()), "{media}");
        }
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        assert!(boundary(long.as_bytes()).is_err());
    }

    fn read(body: &str) -> Result<Vec<String>, String> {
        let body = body.replace('\n', "\r\n");
        let parts = parts(body.as_bytes(), b"B")?;
        let show = |part: FormPart<'_>| {
            let content = String::from_utf8_lossy(part.content).into_owned();
            let (file, media) = (if part.is_file { " file" } else { "" }, part.media.unwrap_or_default());
            format!("{}{file} {media}={content}", part.name)
        };
        Ok(parts.into_iter().map(show).collect())
    }

    #[test]
    fn forms() {
        let body = "--B\nContent-Disposition: form-data; name=\"a\"\n\n1\n2\n--B\n\
                    content-disposition: FORM-DATA; filename=\"x;\\y.png\"; name=f\nContent-Type: image/png\n\
                    Content-Transfer-Encoding: binary\nX-Other: 1\n\n\n--C\n--b\n\n--B\n\
                    Content-Disposition: form-data; name=\"\"\n\n\n--B--\n";
        assert_eq!(read(body).unwrap(), ["a =1\r\n2", "f file image/png=\r\n--C\r\n--b\r\n", " ="]);
        assert_eq!(read("--B--").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_parsers_read_differently() {
        let one = "Content-Disposition: form-data; name=\"a\"";
        for (body, why) in [
            ("".to_owned(), "does not begin"),
            ("before\n--B--".to_owned(), "does not begin"),
            (format!("--B\n{one}\n\n1"), "no end"),
            (format!("--B\n{one}\n\n1\n--B"), "something behind it"),
            (format!("--B\n{one}\n\n1\n--B--more"), "behind its end"),
            (format!("--B\n{one}\n\n1\n--B \n{one}\n\n2\n--B--"), "something behind it"),
            (format!("--B\n{one}\n\n1\n--Bx\n--B--"), "something behind it"),
            (format!("--B\n{one}\n{one}\n\n1\n--B--"), "two Content-Disposition"),
            (format!("--B\n{one}; name=\"b\"\n\n1\n--B--"), "two names"),
            (format!("--B\n{one}; name*=utf-8''b\n\n1\n--B--"), "encoded name"),
            (format!("--B\n{one}; filename=a; filename*=utf-8''b\n\n1\n--B--"), "encoded name"),
            (format!("--B\n{one}\nContent-Transfer-Encoding: base64\n\nMQ==\n--B--"), "Transfer-Encoding"),
            (format!("--B\n{one}\n folded: x\n\n1\n--B--"), "malformed field"),
            ("--B\n\n1\n--B--".to_owned(), "without Content-Disposition"),
            ("--B\nContent-Type: a/b\n\n1\n--B--".to_owned(), "without Content-Disposition"),
            ("--B\nContent-Disposition: attachment; name=a\n\n1\n--B--".to_owned(), "no form-data"),
            ("--B\nContent-Disposition: form-data\n\n1\n--B--".to_owned(), "without a name"),
            (
                "--B\nContent-Disposition: form-data; name=\"a\\\"\"\n\n1\n--B--".to_owned(),
                "malformed Content-Disposition",
            ),
            (format!("--B\n{one}\n1\n--B--"), "without an end of its head"),
            (format!("--B\n{one}\n{}\n\n1\n--B--", "x: y\n".repeat(2000).trim_end()), "longer than"),
        ] {
            let told = read(&body).unwrap_err();
            assert!(told.contains(why), "{body:.200}: {told}");
        }
        let many = format!("{}--B--", format!("--B\n{one}\n\n1\n").repeat(PARTS + 1));
        assert!(read(&many).unwrap_err().contains("more than 1024 parts"));
    }
}
