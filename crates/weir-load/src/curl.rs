//! A copied curl command line as options: what browsers and API pages put into the clipboard.

use crate::options::{Mistake, Options};
use weir_wire::base64;

impl Options {
    /// Adds what a curl command line says. Flags that only change what curl prints are ignored.
    ///
    /// # Errors
    /// A flag that is not known here, named.
    pub fn add_curl(&mut self, command: &str) -> Result<(), Mistake> {
        let bad = |hint: String| Mistake::new("--curl", &hint);
        let words = words(command).map_err(|hint| bad(hint.to_owned()))?;
        let mut words = words.into_iter();
        match words.next() {
            Some(first) if first == "curl" || first.ends_with("/curl") => {}
            _ => return Err(bad("expected a command line that begins with `curl`".to_owned())),
        }
        let mut data: Vec<String> = Vec::new();
        let (mut get, mut json) = (false, false);
        while let Some(word) = words.next() {
            let (flag, glued) = split_flag(&word);
            let Some(kind) = kind_of(&flag) else {
                return Err(bad(format!("the flag `{flag}` of curl is not known here")));
            };
            if kind == Kind::Url && !flag.starts_with("--url") {
                self.urls.push(with_scheme(&word));
                continue;
            }
            let value = match kind {
                Kind::Ignored | Kind::Compressed | Kind::Get | Kind::Head | Kind::Insecure => String::new(),
                _ => match glued.or_else(|| words.next()) {
                    Some(value) => value,
                    None => return Err(bad(format!("`{flag}` has no value"))),
                },
            };
            match kind {
                Kind::Ignored | Kind::IgnoredValue => {}
                Kind::Cacert => self.cacert = Some(value.into()),
                Kind::Cert => self.cert = Some(value.into()),
                Kind::Compressed => self.headers.push("Accept-Encoding: deflate, gzip, br, zstd".to_owned()),
                Kind::Cookie => self.cookies.push(value),
                Kind::Data | Kind::DataRaw | Kind::Json => {
                    json |= kind == Kind::Json;
                    data.push(body_of(kind, value).map_err(&bad)?);
                }
                Kind::Get => get = true,
                Kind::Head => self.method = Some("HEAD".to_owned()),
                Kind::Header => self.headers.push(value),
                Kind::Insecure => self.insecure = true,
                Kind::Key => self.key = Some(value.into()),
                Kind::Method => self.method = Some(value),
                Kind::Referer => self.headers.push(format!("Referer: {value}")),
                Kind::Resolve => self.resolve.push(value),
                Kind::UnixSocket => self.unix_socket = Some(value.into()),
                Kind::Url => self.urls.push(with_scheme(&value)),
                Kind::User => {
                    self.headers.push(format!("Authorization: Basic {}", base64::encode(value.as_bytes())))
                }
                Kind::UserAgent => self.headers.push(format!("User-Agent: {value}")),
            }
        }
        if !data.is_empty() {
            self.add_data(&data.join("&"), get, json);
        }
        Ok(())
    }

    fn add_data(&mut self, data: &str, get: bool, json: bool) {
        if get {
            for url in &mut self.urls {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(data);
            }
            return;
        }
        let typed = |h: &String| h.to_ascii_lowercase().starts_with("content-type:");
        if !self.headers.iter().any(typed) {
            let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
            self.headers.push(format!("Content-Type: {kind}"));
        }
        self.body = Some(data.as_bytes().to_vec());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cacert,
    Cert,
    Compressed,
    Cookie,
    Data,
    DataRaw,
    Get,
    Head,
    Header,
    Ignored,
    IgnoredValue,
    Insecure,
    Json,
    Key,
    Method,
    Referer,
    Resolve,
    UnixSocket,
    Url,
    User,
    UserAgent,
}

fn kind_of(flag: &str) -> Option<Kind> {
    Some(match flag {
        "-H" | "--header" => Kind::Header,
        "-X" | "--request" => Kind::Method,
        "-d" | "--data" | "--data-ascii" | "--data-binary" => Kind::Data,
        "--data-raw" => Kind::DataRaw,
        "--json" => Kind::Json,
        "-G" | "--get" => Kind::Get,
        "-I" | "--head" => Kind::Head,
        "-b" | "--cookie" => Kind::Cookie,
        "-u" | "--user" => Kind::User,
        "-A" | "--user-agent" => Kind::UserAgent,
        "-e" | "--referer" => Kind::Referer,
        "-k" | "--insecure" => Kind::Insecure,
        "--cacert" => Kind::Cacert,
        "-E" | "--cert" => Kind::Cert,
        "--key" => Kind::Key,
        "--resolve" => Kind::Resolve,
        "--unix-socket" => Kind::UnixSocket,
        "--url" => Kind::Url,
        "--compressed" => Kind::Compressed,
        "-s" | "--silent" | "-S" | "--show-error" | "-v" | "--verbose" | "-i" | "--include" | "-L"
        | "--location" | "-f" | "--fail" | "-g" | "--globoff" | "--http1.1" | "-#" | "-N" | "--no-buffer"
        | "-sS" | "-sSL" | "-sL" => Kind::Ignored,
        "-o" | "--output" | "-w" | "--write-out" | "-m" | "--max-time" | "--connect-timeout" | "--retry" => {
            Kind::IgnoredValue
        }
        word if word.starts_with('-') => return None,
        _ => Kind::Url,
    })
}

/// `-HX: y` and `--header=X: y` as flag and value.
fn split_flag(word: &str) -> (String, Option<String>) {
    if word.starts_with("--")
        && let Some((flag, value)) = word.split_once('=')
    {
        return (flag.to_owned(), Some(value.to_owned()));
    }
    let short = word.get(..2).filter(|f| word.len() > 2 && f.starts_with('-') && *f != "--");
    match short {
        Some(flag) if !matches!(kind_of(flag), None | Some(Kind::Ignored)) => {
            (flag.to_owned(), word.get(2..).map(str::to_owned))
        }
        _ => (word.to_owned(), None),
    }
}

fn body_of(kind: Kind, value: String) -> Result<String, String> {
    match value.strip_prefix('@') {
        Some(path) if kind != Kind::DataRaw => {
            std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
        }
        _ => Ok(value),
    }
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

/// The words of a command line as a POSIX shell and bash's `$'…'` have them. No variables and no globs.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut open) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                open = true;
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '"' => {
                open = true;
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some('\n') => {}
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a double quote is not closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is not closed"),
                    }
                }
            }
            '$' if chars.peek() == Some(&'\'') => {
                open = true;
                chars.next();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some('\\') => match chars.next() {
                            Some('n') => word.push('\n'),
                            Some('r') => word.push('\r'),
                            Some('t') => word.push('\t'),
                            Some('u') => {
                                let hex: String = chars.by_ref().take(4).collect();
                                let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                                word.push(code.ok_or("\\u needs four hexadecimal digits")?);
                            }
                            Some(c) => word.push(c),
                            None => return Err("a single quote is not closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => {
                    open = true;
                    word.push(c);
                }
            },
            c if c.is_whitespace() => {
                if std::mem::take(&mut open) || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: &str) -> Options {
        let mut options = Options::default();
        options.add_curl(command).unwrap();
        options
    }

    #[test]
    fn what_a_browser_copies() {
        let o = read(
            "curl 'https://api.example.com/v1?a=1' \\\n  -H 'accept: */*' -H \"x-a: \\\"q\\\"\" \\\n  \
             --data-raw $'{\"name\":\"it\\'s\"}' --compressed --insecure",
        );
        assert_eq!(o.urls, ["https://api.example.com/v1?a=1"]);
        assert_eq!(
            o.headers,
            [
                "accept: */*",
                "x-a: \"q\"",
                "Accept-Encoding: deflate, gzip, br, zstd",
                "Content-Type: application/x-www-form-urlencoded"
            ]
        );
        assert_eq!((o.body.as_deref(), o.insecure), (Some(&b"{\"name\":\"it's\"}"[..]), true));
    }

    #[test]
    fn short_flags_and_values_glued_to_them() {
        let o = read("curl -sS -XPUT -uA:b -HX:y --url=h:81/x -d a=1 -d b=2 --json '{}'");
        assert_eq!((o.method.as_deref(), o.urls[0].as_str()), (Some("PUT"), "http://h:81/x"));
        assert_eq!(o.headers, ["Authorization: Basic QTpi", "X:y", "Content-Type: application/json"]);
        assert_eq!(o.body.as_deref(), Some(&b"a=1&b=2&{}"[..]));
        assert_eq!(read("curl -G h/ -d a=1").urls, ["http://h/?a=1"]);
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        for (bad, hint) in [
            ("curl --ftp-port x h", "--ftp-port"),
            ("curl 'h", "quote"),
            ("curl h -H", "`-H` has no value"),
            ("curl -d @/nonexistent/x h", "/nonexistent/x"),
        ] {
            let mistake = Options::default().add_curl(bad).unwrap_err();
            assert!(mistake.hint.contains(hint), "{bad}: {mistake}");
        }
    }
}
