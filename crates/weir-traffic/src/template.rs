//! Access logs as text: combined, common, those of AWS load balancers, and any `log_format` of nginx.

use crate::{NO_REQUEST, Recorded, UNREADABLE, Unread, split, when};

/// nginx's default, and Apache's `combined`.
pub(crate) const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                                   \"$http_referer\" \"$http_user_agent\"";

/// The Common Log Format.
pub(crate) const COMMON: &str =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent";

/// The access log of an AWS Application Load Balancer. Its time is that of the response.
pub(crate) const ALB: &str = "$type $time_iso8601 $elb $remote_addr $backend $wait_s $target_s $send_s $status \
                              $target_status $received $sent \"$request\" \"$http_user_agent\" $rest";

/// The access log of an AWS Classic Load Balancer. Its time is that of the request.
pub(crate) const ELB: &str = "$begin_iso8601 $elb $remote_addr $backend $wait_s $target_s $send_s $status \
                              $target_status $received $sent \"$request\" \"$http_user_agent\" $rest";

/// A format of lines: texts and variables in turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    /// A variable without its `$`.
    Variable(String),
}

impl Template {
    /// Compiles a format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(i) = rest.find('$') {
            if i > 0 {
                tokens.push(Token::Text(rest[..i].to_owned()));
            }
            let after = &rest[i + 1..];
            let (name, more) = match after.strip_prefix('{') {
                Some(inner) => inner
                    .split_once('}')
                    .ok_or_else(|| format!("the `{{` in `{}` is not closed", &rest[i..]))?,
                None => {
                    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()))
                }
            };
            if name.is_empty() {
                return Err("a `$` has no name behind it".to_owned());
            }
            if matches!(tokens.last(), Some(Token::Variable(_))) {
                return Err(format!("nothing separates `${name}` from the variable before it"));
            }
            tokens.push(Token::Variable(name.to_owned()));
            rest = more;
        }
        if !rest.is_empty() {
            tokens.push(Token::Text(rest.to_owned()));
        }
        let this = Self(tokens);
        if !["begin_iso8601", "time_local", "time_iso8601", "msec"].iter().any(|name| this.has(name)) {
            return Err("it has no time: expected $time_local, $time_iso8601 or $msec".to_owned());
        }
        if !["request", "request_uri", "uri"].iter().any(|name| this.has(name)) {
            return Err("it has no request: expected $request, or $request_uri or $uri".to_owned());
        }
        Ok(this)
    }

    /// Whether it has this variable.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|token| matches!(token, Token::Variable(known) if known == name))
    }

    /// Reads a line.
    ///
    /// # Errors
    /// It does not have this format, or what it logs was no request.
    pub(crate) fn read(&self, line: &str) -> Result<Recorded, Unread> {
        let mut found = Found::default();
        let mut rest = line;
        let mut tokens = self.0.iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                Token::Text(text) => rest = rest.strip_prefix(text.as_str()).ok_or(UNREADABLE)?,
                Token::Variable(name) => {
                    let end = match tokens.peek() {
                        Some(Token::Text(text)) => end_of(rest, text).ok_or(UNREADABLE)?,
                        _ => rest.len(),
                    };
                    let (value, more) = rest.split_at(end);
                    rest = more;
                    found.take(name, value)?;
                }
            }
        }
        if !rest.is_empty() {
            return Err(UNREADABLE);
        }
        found.finish()
    }
}

/// Where the text begins that ends a variable. A quote with a backslash before it is part of the value.
fn end_of(rest: &str, text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let i = from + rest.get(from..)?.find(text)?;
        let slashes = rest[..i].bytes().rev().take_while(|b| *b == b'\\').count();
        if !(text.starts_with('"') && slashes % 2 == 1) {
            return Some(i);
        }
        from = i + 1;
    }
}

/// What a line has said so far.
#[derive(Default)]
struct Found {
    at: Option<i128>,
    /// Whether `at` is when the exchange began.
    is_begin: bool,
    /// What load balancers write: waiting, target, sending; each in nanoseconds.
    parts_ns: Option<u64>,
    args: Option<String>,
    made: Recorded,
}

impl Found {
    fn take(&mut self, name: &str, value: &str) -> Result<(), Unread> {
        let made = &mut self.made;
        let is_absent = value.is_empty() || value == "-";
        match name {
            "begin_iso8601" => (self.at, self.is_begin) = (when::rfc3339(value), true),
            "time_local" => self.at = self.at.or(when::common(value)),
            // More exact than the others where a line has several.
            "msec" | "time_iso8601" => {
                self.at =
                    if name == "msec" { when::seconds(value) } else { when::rfc3339(value) }.or(self.at);
            }
            "request" => {
                // What was no HTTP is logged here too, such as the bytes of a TLS handshake.
                let value = plain(value)?;
                let mut words = value.split(' ');
                let (Some(method), Some(url), Some(version), None) =
                    (words.next(), words.next(), words.next(), words.next())
                else {
                    return Err(NO_REQUEST);
                };
                if !version.starts_with("HTTP/") {
                    return Err(NO_REQUEST);
                }
                method.clone_into(&mut made.method);
                self.target(url);
            }
            "request_method" if is_absent => return Err(NO_REQUEST),
            "request_method" => value.clone_into(&mut made.method),
            "request_uri" | "uri" if is_absent => return Err(NO_REQUEST),
            "request_uri" | "uri" => {
                let value = plain(value)?;
                self.target(&value);
            }
            "args" | "query_string" if !is_absent => self.args = Some(plain(value)?),
            "remote_addr" => made.client = without_port(value).to_owned(),
            "status" => made.then.status = value.parse().ok().filter(|status| *status > 0),
            "body_bytes_sent" => made.then.body_bytes = value.parse().ok(),
            "request_time" => {
                made.then.took_ns = when::seconds(value).and_then(|ns| u64::try_from(ns).ok());
            }
            "wait_s" | "target_s" | "send_s" => {
                // -1: it did not come to that.
                let part = when::seconds(value).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
                self.parts_ns = Some(self.parts_ns.unwrap_or(0).saturating_add(part));
            }
            "host" | "http_host" if !is_absent => made.host = Some(plain(value)?),
            "request_body" => {
                made.body = Some(if is_absent { Vec::new() } else { plain(value)?.into_bytes() });
            }
            _ => {
                if let Some(field) = name.strip_prefix("http_").filter(|_| !is_absent) {
                    made.fields.push((field.replace('_', "-"), plain(value)?.into_bytes()));
                }
            }
        }
        Ok(())
    }

    fn target(&mut self, url: &str) {
        let target = split(url);
        (self.made.target, self.made.is_tls) = (target.path(), target.is_tls);
        if let Some(host) = target.host {
            self.made.host.get_or_insert_with(|| host.to_owned());
        }
    }

    fn finish(self) -> Result<Recorded, Unread> {
        let mut made = self.made;
        if let Some(args) = self.args.filter(|_| !made.target.contains('?')) {
            made.target = format!("{}?{args}", made.target);
        }
        if made.method.is_empty() {
            "GET".clone_into(&mut made.method);
        }
        made.then.took_ns = made.then.took_ns.or(self.parts_ns);
        let took = if self.is_begin { 0 } else { made.then.took_ns.unwrap_or(0) };
        made.at = self.at.ok_or(UNREADABLE)? - i128::from(took);
        Ok(made)
    }
}

/// An address without its port: `10.0.0.1:80`, `[::1]:80`.
fn without_port(text: &str) -> &str {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => text,
    }
}

/// A value without the escapes of nginx (`\x22`), of its `escape=json` (`\"`, `\u0000`) and of Apache.
fn plain(value: &str) -> Result<String, Unread> {
    if !value.contains('\\') {
        return Ok(value.to_owned());
    }
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    let digits = |bytes: &mut std::str::Bytes<'_>, n: usize| {
        let text: String = bytes.by_ref().take(n).map(char::from).collect();
        u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == n)
    };
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'x') => out.push(digits(&mut bytes, 2).ok_or(UNREADABLE)? as u8),
            Some(b'u') => {
                let c = digits(&mut bytes, 4).and_then(char::from_u32).ok_or(UNREADABLE)?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(other) => out.push(other),
            None => return Err(UNREADABLE),
        }
    }
    // Bytes that are not UTF-8 were no valid target or field anyway.
    String::from_utf8(out).map_err(|_| NO_REQUEST)
}
