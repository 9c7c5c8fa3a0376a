//! Turns a copied curl command line into options, such as browsers and API pages put into the clipboard.
//!
//! *Layout.* `shell_words` parses shell quoting, `data` the data for the body or the query.

mod data;
mod shell_words;

use crate::options::Options;
use data::Sent;
use shell_words::shell_words;
use weir_report::Mistake;

impl Options {
    /// Adds the options of a curl command line. Ignores flags that only change what curl prints or keeps.
    ///
    /// # Errors
    /// Names a flag that is not supported.
    pub fn add_curl(&mut self, command: &str) -> Result<(), Mistake> {
        self.curl(command).map_err(|hint| Mistake::new("--curl", &hint))
    }

    fn curl(&mut self, command: &str) -> Result<(), String> {
        let mut words = shell_words(command)?.into_iter();
        match words.next() {
            Some(first) if first == "curl" || first.ends_with("/curl") => {}
            _ => return Err("expected a command line that begins with `curl`".to_owned()),
        }
        let mut line = Line { options: self, urls: Vec::new(), headers: Vec::new(), sent: Sent::default() };
        while let Some(word) = words.next() {
            let mut flags = split(&word)?;
            // Only the last of several short flags may have a value.
            let (last, glued) = flags.pop().ok_or("`-` alone is not a flag")?;
            for (flag, _) in flags {
                line.apply(kind_of(&flag).ok_or_else(|| unknown(&flag))?, &flag, String::new())?;
            }
            let kind = kind_of(&last).ok_or_else(|| unknown(&last))?;
            let value = match glued {
                Some(value) => value,
                None if kind.is_word() => last.clone(),
                None if kind.has_value() => words.next().ok_or_else(|| format!("`{last}` has no value"))?,
                None => String::new(),
            };
            line.apply(kind, &last, value)?;
        }
        line.end()
    }
}

fn unknown(flag: &str) -> String {
    format!("the flag `{flag}` of curl is not valid here: leave it out, or say it with an option of ours")
}

/// A command line while it is parsed.
struct Line<'a> {
    options: &'a mut Options,
    urls: Vec<String>,
    headers: Vec<String>,
    sent: Sent,
}

impl Line<'_> {
    fn apply(&mut self, kind: Kind, flag: &str, value: String) -> Result<(), String> {
        let bad = |hint: String| format!("{flag} {hint}");
        let o = &mut *self.options;
        match kind {
            Kind::Bearer => o.bearer = Some(value),
            Kind::Cacert => o.cacert = Some(value.into()),
            Kind::Cert => o.cert = Some(value.into()),
            Kind::Compressed => self.sent.compressed = true,
            // An empty value only makes curl keep cookies.
            Kind::Cookie if value.is_empty() => {}
            Kind::Cookie if !value.contains('=') => {
                return Err(bad(format!("{value}: a file of cookies is not read: expected name=value")));
            }
            Kind::Cookie => o.cookies.push(value),
            Kind::Data => self.sent.data(&value).map_err(bad)?,
            Kind::DataBinary => self.sent.data_binary(&value).map_err(bad)?,
            Kind::DataRaw => self.sent.add(value.as_bytes()),
            Kind::DataUrlencode => self.sent.data_urlencode(&value).map_err(bad)?,
            Kind::Form => self.sent.form(&value).map_err(bad)?,
            Kind::FormString => self.sent.form_string(&value).map_err(bad)?,
            Kind::Get => self.sent.get = true,
            Kind::Head => self.sent.head = true,
            Kind::Header => self.headers.push(value),
            Kind::Http2 => o.http2 = true,
            Kind::Http3 => o.http3 = true,
            Kind::Ignored | Kind::IgnoredValue => {}
            Kind::Insecure => o.insecure = true,
            Kind::Json => self.sent.json(&value).map_err(bad)?,
            Kind::Key => o.key = Some(value.into()),
            Kind::Method => o.method = Some(value),
            Kind::Proxy => o.proxy = Some(value).filter(|v| !v.is_empty()),
            Kind::Referer => self.headers.push(format!("Referer: {value}")),
            Kind::Resolve => o.resolve.push(value),
            Kind::UnixSocket => o.unix_socket = Some(value.into()),
            Kind::Upload => self.sent.upload(&value).map_err(bad)?,
            Kind::Url | Kind::Word => self.urls.push(with_scheme(&value)),
            Kind::User => o.user = Some(value),
            Kind::UserAgent => self.headers.push(format!("User-Agent: {value}")),
        }
        Ok(())
    }

    /// Finishes what depends on the whole line.
    fn end(self) -> Result<(), String> {
        let Self { options, mut urls, headers, sent } = self;
        let has = |name: &str| headers.iter().any(|h| is_of(h, name));
        let query = sent.query();
        let file = sent.upload_name();
        for url in &mut urls {
            if let Some(query) = &query {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(query);
            }
            if let Some(file) = file.filter(|_| url.ends_with('/')) {
                url.push_str(file);
            }
        }
        options.urls.append(&mut urls);
        let mut own = Vec::new();
        if sent.compressed && !has("accept-encoding") {
            own.push("Accept-Encoding: deflate, gzip, br, zstd".to_owned());
        }
        if sent.is_json() && !has("accept") {
            own.push("Accept: application/json".to_owned());
        }
        let method = sent.method()?;
        let body = sent.body()?;
        if let Some(media_type) = body.as_ref().and_then(|b| b.media_type.as_ref())
            && !has("content-type")
        {
            own.push(format!("Content-Type: {media_type}"));
        }
        let length = body.as_ref().map_or(0, |b| b.bytes.len());
        for header in headers {
            if let Some(field) = field(&header, length)? {
                options.headers.push(field);
            }
        }
        options.headers.append(&mut own);
        if options.method.is_none() {
            options.method = method.map(str::to_owned);
        }
        if let Some(body) = body {
            options.body = Some(body.bytes);
        }
        Ok(())
    }
}

/// Whether a header as written has this lowercase name.
fn is_of(header: &str, name: &str) -> bool {
    header.split([':', ';']).next().is_some_and(|n| n.trim().eq_ignore_ascii_case(name))
}

/// Reads a header as curl does: `name:` removes one that curl would send, `name;` sends one without a value.
fn field(header: &str, length: usize) -> Result<Option<String>, String> {
    if let Some(path) = header.strip_prefix('@') {
        return Err(format!("-H @{path}: a file of headers is not read: give each with -H"));
    }
    match header.split_once(':') {
        Some((_, value)) if value.trim().is_empty() => Ok(None),
        // Safari copies it. The body determines it, and a wrong one is refused later.
        Some((_, value)) if is_of(header, "content-length") && value.trim() == length.to_string() => Ok(None),
        None if header.ends_with(';') => Ok(Some(format!("{}:", header.trim_end_matches(';')))),
        _ => Ok(Some(header.to_owned())),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bearer,
    Cacert,
    Cert,
    Compressed,
    Cookie,
    Data,
    DataBinary,
    DataRaw,
    DataUrlencode,
    Form,
    FormString,
    Get,
    Head,
    Header,
    Http2,
    Http3,
    Ignored,
    IgnoredValue,
    Insecure,
    Json,
    Key,
    Method,
    Proxy,
    Referer,
    Resolve,
    UnixSocket,
    Upload,
    Url,
    User,
    UserAgent,
    /// Not a flag: a URL.
    Word,
}

impl Kind {
    fn has_value(self) -> bool {
        !matches!(
            self,
            Self::Compressed
                | Self::Get
                | Self::Head
                | Self::Http2
                | Self::Http3
                | Self::Ignored
                | Self::Insecure
                | Self::Word
        )
    }

    fn is_word(self) -> bool {
        self == Self::Word
    }
}

fn kind_of(flag: &str) -> Option<Kind> {
    Some(match flag {
        "-H" | "--header" => Kind::Header,
        "-X" | "--request" => Kind::Method,
        "-d" | "--data" | "--data-ascii" => Kind::Data,
        "--data-binary" => Kind::DataBinary,
        "--data-raw" => Kind::DataRaw,
        "--data-urlencode" => Kind::DataUrlencode,
        "--json" => Kind::Json,
        "-F" | "--form" => Kind::Form,
        "--form-string" => Kind::FormString,
        "-T" | "--upload-file" => Kind::Upload,
        "-G" | "--get" => Kind::Get,
        "-I" | "--head" => Kind::Head,
        "-b" | "--cookie" => Kind::Cookie,
        "-u" | "--user" => Kind::User,
        "--oauth2-bearer" => Kind::Bearer,
        "-A" | "--user-agent" => Kind::UserAgent,
        "-e" | "--referer" => Kind::Referer,
        "-k" | "--insecure" => Kind::Insecure,
        "--cacert" => Kind::Cacert,
        "-E" | "--cert" => Kind::Cert,
        "--key" => Kind::Key,
        "--http2" | "--http2-prior-knowledge" => Kind::Http2,
        "--http3" | "--http3-only" => Kind::Http3,
        "-x" | "--proxy" => Kind::Proxy,
        "--resolve" => Kind::Resolve,
        "--unix-socket" => Kind::UnixSocket,
        "--url" => Kind::Url,
        "--compressed" => Kind::Compressed,
        "-s"
        | "--silent"
        | "-S"
        | "--show-error"
        | "-v"
        | "--verbose"
        | "-i"
        | "--include"
        | "-L"
        | "--location"
        | "-f"
        | "--fail"
        | "--fail-with-body"
        | "-g"
        | "--globoff"
        | "--http1.1"
        | "-#"
        | "--progress-bar"
        | "--no-progress-meter"
        | "-N"
        | "--no-buffer"
        | "-j"
        | "--junk-session-cookies"
        | "-O"
        | "--remote-name"
        | "-J"
        | "--remote-header-name"
        | "-q"
        | "--disable"
        | "--path-as-is"
        | "--basic" => Kind::Ignored,
        "-o" | "--output" | "-w" | "--write-out" | "-m" | "--max-time" | "--connect-timeout" | "--retry"
        | "--retry-delay" | "--retry-max-time" | "--max-redirs" | "-c" | "--cookie-jar" | "-D"
        | "--dump-header" | "--stderr" | "--trace" | "--trace-ascii" => Kind::IgnoredValue,
        word if word.starts_with('-') => return None,
        _ => Kind::Word,
    })
}

/// Splits a word into flags: `-HX: y` and `--header=X: y` into flag and value, `-sSk` into three flags.
fn split(word: &str) -> Result<Vec<(String, Option<String>)>, String> {
    if word.starts_with("--") || !word.starts_with('-') {
        return Ok(match word.split_once('=') {
            Some((flag, value)) if word.starts_with("--") => vec![(flag.to_owned(), Some(value.to_owned()))],
            _ => vec![(word.to_owned(), None)],
        });
    }
    let mut flags = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let flag = format!("-{letter}");
        let kind = kind_of(&flag).ok_or_else(|| unknown(&flag))?;
        let rest = word.get(at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
        if kind.has_value() {
            flags.push((flag, rest.map(str::to_owned)));
            break;
        }
        flags.push((flag, None));
    }
    Ok(flags)
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

#[cfg(test)]
mod tests;
