//! Command lines of curl: those that browsers and API pages put into the clipboard, and scripts of several. Each is a
//! step of one scenario.

mod shell;

use super::bodies::{SentBody, SentPart};
use super::har::hoist;
use super::model::{Body, Plan, Scenario, Target};
use super::request::{Sent, Slot, VARIABLE, VARIABLE_END};
use super::{Cx, Kind, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::Map;
use shell::{Command, check_marks, commands};

pub(super) static KIND: Kind = Kind { name: "curl", title: "curl command line", import };

/// Flags that change only what curl prints or keeps, or that Weir does by itself.
const IGNORED: &[&str] = &[
    "-#",
    "-J",
    "-N",
    "-O",
    "-S",
    "-f",
    "-g",
    "-i",
    "-j",
    "-q",
    "-s",
    "-v",
    "--basic",
    "--disable",
    "--fail",
    "--fail-early",
    "--fail-with-body",
    "--globoff",
    "--http1.1",
    "--include",
    "--junk-session-cookies",
    "--no-buffer",
    "--no-progress-meter",
    "--path-as-is",
    "--progress-bar",
    "--remote-header-name",
    "--remote-name",
    "--show-error",
    "--silent",
    "--tcp-nodelay",
    "--tr-encoding",
    "--verbose",
];
/// The same, with a value.
const IGNORED_VALUE: &[&str] = &[
    "-D",
    "-c",
    "-o",
    "-w",
    "--connect-timeout",
    "--cookie-jar",
    "--dump-header",
    "--output",
    "--retry",
    "--retry-delay",
    "--retry-max-time",
    "--stderr",
    "--trace",
    "--trace-ascii",
    "--write-out",
];
/// Flags with a value that a plan has nothing for: options of `weir load`.
const OF_LOAD: &[&str] = &[
    "-E",
    "-x",
    "--cacert",
    "--cert",
    "--ciphers",
    "--key",
    "--noproxy",
    "--proxy",
    "--resolve",
    "--tls-max",
    "--unix-socket",
    "--connect-to",
    "--interface",
];
/// The same, without a value.
const OF_LOAD_FLAG: &[&str] = &["-k", "-4", "-6", "--insecure", "--ipv4", "--ipv6", "--tlsv1.2", "--tlsv1.3"];

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let lines = match cx.source.words {
        Some(words) => {
            let check = words.iter().try_for_each(|word| check_marks(word));
            check.map_err(|why| Unreadable::at(&cx.place(1), why))?;
            vec![Command { line: 1, words: words.to_vec(), then: None }]
        }
        None => commands(&cx.source.file.name, &cx.source.file.text)?,
    };
    let mut plan = Plan::default();
    let mut scenario = Scenario { name: "curl".to_owned(), ..Scenario::default() };
    let mut servers: Vec<(Sent, Line, Piece)> = Vec::new();
    for command in lines {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let is_curl = |word: &str| word == "curl" || word.ends_with("/curl") || word == "curl.exe";
        let at = words.iter().position(|word| !word.contains('=') || word.starts_with('-')).unwrap_or(0);
        let first = words.get(at).copied().unwrap_or_default();
        let piece = cx.ledger.enter(cx.place(command.line), &shown(&words));
        if !is_curl(first) {
            let first: String = first.chars().filter(|c| !c.is_control()).take(20).collect();
            cx.ledger.refused(
                piece,
                format!("`{first}` is no command line of curl"),
                "leave the line out, or write a step",
            );
            continue;
        }
        match read(cx, piece, words.get(at + 1..).unwrap_or_default()) {
            Ok(all) => servers.extend(all.into_iter().map(|(sent, line)| (sent, line, piece))),
            Err(why) => cx.ledger.refused(piece, why, "write the step by hand: docs/reference/load-plan.md"),
        }
        if let Some(then) = command.then {
            cx.ledger.changed(piece, format!("the shell {then}; a step keeps what it needs with `keep`"));
        }
    }
    if let Some((first, ..)) = servers.first() {
        plan.target = Some(Target::Known(first.server.clone()));
    }
    let target = servers.first().map(|(sent, ..)| sent.server.clone());
    for (mut sent, line, piece) in servers {
        sent.hide_secrets(&mut cx.vault);
        let mut request = sent.to_request(target.as_deref());
        request.checks = vec!["status=2xx,3xx".to_owned()];
        request.redirects = line.redirects;
        request.timeout = line.timeout.clone();
        if let Some(path) = line.body_file {
            request.body = Some(Body::File(path));
        }
        if line.redirects.is_some() {
            request.checks = vec!["status=2xx".to_owned()];
        }
        scenario.steps.push(request.step(piece));
    }
    if !scenario.steps.is_empty() {
        plan.scenarios.push(scenario);
    }
    hoist(&mut plan);
    plan.more = Map::new().with("users", 1_i64);
    Ok(plan)
}

/// A command line for the report: its method and URL only, because everything else may be a secret.
fn shown(words: &[&str]) -> String {
    let url = words.iter().skip(1).find(|word| word.contains("://") || word.starts_with("localhost"));
    let url = url.map_or("", |url| url.split(['?', '#']).next().unwrap_or_default());
    let url = match url.split_once('@') {
        Some((before, after)) if before.contains("://") => {
            format!("{}://{after}", before.split("://").next().unwrap_or_default())
        }
        _ => url.to_owned(),
    };
    format!("{} {url}", words.first().copied().unwrap_or_default())
}

/// What a command line says beside its request.
#[derive(Clone, Default)]
struct Line {
    redirects: Option<u32>,
    timeout: Option<String>,
    body_file: Option<String>,
}

/// A command line while it is read.
#[derive(Default)]
struct Reading {
    urls: Vec<String>,
    method: Option<String>,
    fields: Vec<(String, String)>,
    data: Option<String>,
    is_json: bool,
    is_get: bool,
    is_head: bool,
    parts: Vec<SentPart>,
    upload: Option<String>,
    data_file: Option<String>,
    user: Option<String>,
    line: Line,
}

/// The requests of a command line: one for each URL.
fn read(cx: &mut Cx<'_>, piece: Piece, words: &[&str]) -> Result<Vec<(Sent, Line)>, String> {
    let mut reading = Reading::default();
    let mut words = words.iter().copied();
    let mut is_end = false;
    while let Some(word) = words.next() {
        if is_end || !word.starts_with('-') || word == "-" {
            reading.urls.push(word.to_owned());
            continue;
        }
        if word == "--" {
            is_end = true;
            continue;
        }
        for (flag, glued) in split(word)? {
            if !has_value(&flag)? {
                reading.flag(cx, piece, &flag);
                continue;
            }
            let value = match glued {
                Some(value) => value,
                None => words.next().ok_or_else(|| format!("`{flag}` has no value"))?.to_owned(),
            };
            reading.value(cx, piece, &flag, &value)?;
        }
    }
    reading.end(cx, piece)
}

/// Splits a word into flags: `-HX: y` and `--header=X: y` into flag and value, `-sSk` into three flags.
fn split(word: &str) -> Result<Vec<(String, Option<String>)>, String> {
    if word.starts_with("--") {
        return Ok(match word.split_once('=') {
            Some((flag, value)) => vec![(flag.to_owned(), Some(value.to_owned()))],
            None => vec![(word.to_owned(), None)],
        });
    }
    let mut flags = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let flag = format!("-{letter}");
        if has_value(&flag)? {
            let rest = word.get(at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
            flags.push((flag, rest.map(str::to_owned)));
            return Ok(flags);
        }
        flags.push((flag, None));
    }
    Ok(flags)
}

/// Whether a flag has a value. A flag that curl may have and we do not know is an error: whether the next word is its
/// value cannot be known.
fn has_value(flag: &str) -> Result<bool, String> {
    const VALUE: &[&str] = &[
        "-A",
        "-F",
        "-H",
        "-T",
        "-X",
        "-b",
        "-d",
        "-e",
        "-m",
        "-u",
        "--cookie",
        "--data",
        "--data-ascii",
        "--data-binary",
        "--data-raw",
        "--data-urlencode",
        "--form",
        "--form-string",
        "--header",
        "--json",
        "--max-redirs",
        "--max-time",
        "--oauth2-bearer",
        "--referer",
        "--request",
        "--upload-file",
        "--url",
        "--user",
        "--user-agent",
    ];
    const ALONE: &[&str] = &[
        "-G",
        "-I",
        "-L",
        "--compressed",
        "--get",
        "--head",
        "--http2",
        "--http2-prior-knowledge",
        "--location",
    ];
    if VALUE.contains(&flag) || IGNORED_VALUE.contains(&flag) || OF_LOAD.contains(&flag) {
        Ok(true)
    } else if ALONE.contains(&flag) || IGNORED.contains(&flag) || OF_LOAD_FLAG.contains(&flag) {
        Ok(false)
    } else {
        Err(format!("the flag `{flag}` of curl is not known here"))
    }
}

impl Reading {
    fn flag(&mut self, cx: &mut Cx<'_>, piece: Piece, flag: &str) {
        match flag {
            "-G" | "--get" => self.is_get = true,
            "-I" | "--head" => self.is_head = true,
            "-L" | "--location" => self.line.redirects = Some(self.line.redirects.unwrap_or(10)),
            "--compressed" => {
                self.fields.push(("accept-encoding".to_owned(), "deflate, gzip, br, zstd".to_owned()))
            }
            "--http2" | "--http2-prior-knowledge" => {
                cx.ledger.changed(piece, "HTTP/2 is a choice of the whole plan: `defaults: { http2: true }`");
            }
            flag if OF_LOAD_FLAG.contains(&flag) => {
                cx.ledger.changed(piece, format!("`{flag}` is an option of `weir load`: give it there"));
            }
            _ => {}
        }
    }

    fn value(&mut self, cx: &mut Cx<'_>, piece: Piece, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "-X" | "--request" => self.method = Some(value.to_owned()),
            "-H" | "--header" => self.header(value)?,
            "-A" | "--user-agent" => self.fields.push(("user-agent".to_owned(), value.to_owned())),
            "-e" | "--referer" => {
                let value = value.split(';').next().unwrap_or(value);
                self.fields.push(("referer".to_owned(), value.to_owned()));
            }
            "-b" | "--cookie" if value.is_empty() => {}
            "-b" | "--cookie" if !value.contains('=') => {
                return Err("a file of cookies (`-b FILE`) is not read".to_owned());
            }
            "-b" | "--cookie" => self.fields.push(("cookie".to_owned(), value.to_owned())),
            "-u" | "--user" => self.user = Some(value.to_owned()),
            "--oauth2-bearer" => self.fields.push(("authorization".to_owned(), format!("Bearer {value}"))),
            "-d" | "--data" | "--data-ascii" | "--data-binary" => self.data(flag, value)?,
            "--data-raw" => self.add(value),
            "--data-urlencode" => self.data_urlencode(value)?,
            "--json" => {
                self.is_json = true;
                match value.strip_prefix('@') {
                    Some(path) => self.data_file = Some(path.to_owned()),
                    None => self.data.get_or_insert_default().push_str(value),
                }
            }
            "-F" | "--form" => self.parts.push(form(value)?),
            "--form-string" => {
                let (name, value) = value.split_once('=').ok_or("`--form-string` needs name=value")?;
                self.parts.push(SentPart {
                    name: name.to_owned(),
                    value: Slot::plain(value),
                    ..SentPart::default()
                });
            }
            "-T" | "--upload-file" => self.upload = Some(value.to_owned()),
            "-m" | "--max-time" => {
                let seconds: f64 =
                    value.parse().map_err(|_| "`--max-time` is no number of seconds".to_owned())?;
                if seconds > 0.0 && seconds < 86_400.0 {
                    self.line.timeout = Some(text::duration((seconds * 1000.0) as u64));
                }
            }
            "--max-redirs" => self.line.redirects = value.parse::<u32>().ok().map(|most| most.min(50)),
            "--url" => self.urls.push(value.to_owned()),
            flag if OF_LOAD.contains(&flag) => {
                cx.ledger.changed(piece, format!("`{flag}` is an option of `weir load`: give it there"));
            }
            _ => {}
        }
        Ok(())
    }

    /// `name: value`; `name:` removes a field that curl would send, `name;` sends one without a value.
    fn header(&mut self, text: &str) -> Result<(), String> {
        if text.starts_with('@') {
            return Err("a file of headers (`-H @FILE`) is not read".to_owned());
        }
        match text.split_once(':') {
            Some(("", _)) => {} // a pseudo-header field, which browsers copy
            Some((name, value)) if !value.trim().is_empty() => {
                self.fields.push((name.to_owned(), value.to_owned()))
            }
            Some(_) => {}
            None => {
                if let Some(name) = text.strip_suffix(';') {
                    self.fields.push((name.to_owned(), String::new()));
                }
            }
        }
        Ok(())
    }

    /// Data that a `&` joins with earlier data.
    fn add(&mut self, value: &str) {
        match &mut self.data {
            Some(data) => {
                data.push('&');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }

    fn data(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match value.strip_prefix('@') {
            Some("-") => return Err(format!("`{flag} @-` reads standard input")),
            Some(path) if self.data.is_none() && self.data_file.is_none() => {
                self.data_file = Some(path.to_owned())
            }
            Some(_) => return Err(format!("`{flag} @FILE` together with other data cannot be one file")),
            None => self.add(value),
        }
        Ok(())
    }

    fn data_urlencode(&mut self, value: &str) -> Result<(), String> {
        let (name, content) = match value.split_once('=') {
            Some((name, content)) => (name, content),
            None if value.contains('@') => return Err("`--data-urlencode` of a file is not read".to_owned()),
            None => ("", value),
        };
        let encoded = text::percent_encoded(content);
        self.add(&if name.is_empty() { encoded } else { format!("{name}={encoded}") });
        Ok(())
    }

    fn end(self, cx: &mut Cx<'_>, piece: Piece) -> Result<Vec<(Sent, Line)>, String> {
        let Self {
            urls,
            method,
            fields,
            data,
            is_json,
            is_get,
            is_head,
            parts,
            upload,
            data_file,
            user,
            mut line,
        } = self;
        if urls.is_empty() {
            return Err("it has no URL".to_owned());
        }
        let has_data = data.is_some() || data_file.is_some();
        if [has_data && !is_get, !parts.is_empty(), upload.is_some(), is_head]
            .iter()
            .filter(|is| **is)
            .count()
            > 1
        {
            return Err("it combines flags that curl itself refuses together".to_owned());
        }
        let implied = if is_head {
            "HEAD"
        } else if upload.is_some() {
            "PUT"
        } else if has_data && !is_get || !parts.is_empty() {
            "POST"
        } else {
            "GET"
        };
        let method = method.unwrap_or_else(|| implied.to_owned());
        line.body_file = upload.or(data_file);
        if line.body_file.is_some() {
            cx.ledger.changed(piece, "the body is read from its file when the plan is read, byte for byte");
        }
        let mut all = Vec::new();
        for url in urls {
            let mut url = if url.contains("://") { url } else { format!("http://{url}") };
            if url.contains(['[', '{']) && url.split_once("://").is_some_and(|(_, rest)| rest.contains('{')) {
                return Err("its URL is a pattern of several (`{a,b}`)".to_owned());
            }
            if is_get && let Some(data) = &data {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(data);
            }
            // A server that is a variable of the shell can be any.
            if let Some(rest) = url.split_once("://").and_then(|(_, rest)| rest.strip_prefix(VARIABLE)) {
                let name = rest.split(VARIABLE_END).next().unwrap_or_default();
                return Err(format!("its server is `${name}`: write it out, or run the line with its value"));
            }
            let mut sent = Sent::new(&method, &url, &mut cx.vault)?;
            for (name, value) in &fields {
                sent.header(name, value)?;
            }
            if let Some(user) = &user {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let password = match password {
                    "" => String::new(),
                    // A variable gets its name later.
                    own if own.contains(VARIABLE) => text::literal(own),
                    own => cx.vault.hide("password", own),
                };
                let text = Some(format!("Basic {{{{base64:{}:{password}}}}}", text::literal(name)));
                sent.headers.push(("authorization".to_owned(), Slot { text, ..Slot::default() }));
            }
            if is_json && sent.field("accept").is_none() {
                sent.header("accept", "application/json")?;
            }
            let default = if is_json { "application/json" } else { "application/x-www-form-urlencoded" };
            let has_body = has_data && !is_get;
            if has_body && sent.field("content-type").is_none() {
                sent.header("content-type", default)?;
            }
            if !parts.is_empty() {
                sent.body = SentBody::Multipart(parts.clone());
            } else if let Some(data) = data.as_deref().filter(|_| !is_get) {
                let media = sent.field("content-type").unwrap_or(default).to_owned();
                sent.body = SentBody::of(&media, data);
            }
            sent.name_variables(&mut cx.vault)?;
            all.push((sent, line.clone()));
        }
        cx.ledger.same(piece);
        Ok(all)
    }
}

/// `name=value`, `name=@file` or `name=<file`, each with `;type=` and `;filename=`.
fn form(text: &str) -> Result<SentPart, String> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("`-F` needs name=value")?;
    let mut pieces = value.split(';');
    let content = pieces.next().unwrap_or_default();
    let mut part = SentPart { name: name.to_owned(), ..SentPart::default() };
    match content.strip_prefix('@') {
        Some("-") => return Err("`-F name=@-` reads standard input".to_owned()),
        Some(path) => part.file = Some(path.trim_matches('"').to_owned()),
        None if content.starts_with('<') => return Err("`-F name=<FILE` is not read".to_owned()),
        None => part.value = Slot::plain(content.trim_matches('"')),
    }
    for attribute in pieces {
        match attribute.trim().split_once('=') {
            Some(("type", media)) => part.media = Some(media.to_owned()),
            Some(("filename", name)) => part.filename = Some(name.trim_matches('"').to_owned()),
            _ => return Err("`-F` has an attribute that is neither type nor filename".to_owned()),
        }
    }
    Ok(part)
}
