//! Steps that send something: URL, fields, body, checks and keeps.

mod answers;
mod body;

use super::bodies::{self, WrongIn};
use super::compiler::Compiler;
use super::texts::{self, Span, Wrong, spans};
use crate::check::Check;
use crate::keep::Source;
use crate::origin::{Origin, Scheme};
use crate::plan::{Awaits, Exec, Kind, Request, StepKind, Target};
use crate::template::{Escape, Form, Template};
use crate::written;
use std::time::Duration;
use weir_config::Node;
use weir_h1::FieldName;

/// How long an answer may take, unless the plan says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Most redirects of a request.
const REDIRECTS: u32 = 50;

/// Fields that frame a message or manage its connection; the engine writes them.
const OWN_FIELDS: &[&str] =
    &["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// What a step is to send.
#[derive(Clone, Copy)]
pub(super) struct Sent<'s> {
    method: &'s str,
    url: &'s str,
    /// The key that has the URL.
    pub(super) key: &'static str,
    pub(super) kind: StepKind,
}

/// All that a step sends: more than one is a mistake.
pub(super) fn sent(step: &written::Step) -> Vec<Sent<'_>> {
    let mut all = Vec::new();
    for (key, method, url) in [
        ("get", "GET", &step.get),
        ("head", "HEAD", &step.head),
        ("post", "POST", &step.post),
        ("put", "PUT", &step.put),
        ("patch", "PATCH", &step.patch),
        ("delete", "DELETE", &step.delete),
        ("options", "OPTIONS", &step.options),
    ] {
        all.extend(url.as_deref().map(|url| Sent { method, url, key, kind: StepKind::Http }));
    }
    if step.method.is_some() || step.url.is_some() {
        let (method, url) =
            (step.method.as_deref().unwrap_or_default(), step.url.as_deref().unwrap_or_default());
        all.push(Sent { method, url, key: "url", kind: StepKind::Http });
    }
    for (key, method, url, kind) in
        [("grpc", "POST", &step.grpc, StepKind::Grpc), ("ws", "GET", &step.ws, StepKind::WebSocket)]
    {
        all.extend(url.as_deref().map(|url| Sent { method, url, key, kind }));
    }
    all
}

impl Compiler<'_> {
    /// Compiles a request. Returns `None` if it has mistakes, which are told.
    pub(super) fn request(&mut self, step: &written::Step, sent: Sent<'_>, path: &str) -> Option<Request> {
        let id = self.named(step, sent.kind, path);
        if sent.key == "url" {
            self.check_method(sent, path);
        }
        let target = self.target(sent, &format!("{path}.{}", sent.key));
        let mut headers = self.headers(step, sent.kind, path);
        let body = self.body(step, sent.kind, path, &mut headers);
        let awaits = self.awaits(step, body.as_ref().is_some_and(Option::is_some), path);
        if awaits == Awaits::Nothing && sent.kind == StepKind::WebSocket {
            for (key, is_given) in [("checks", !step.checks.is_empty()), ("keep", !step.keep.0.is_empty())] {
                if is_given {
                    self.wrong(
                        &format!("{path}.{key}"),
                        "this step waits for no message; `answer` names one",
                    );
                }
            }
        }
        let mut checks = self.checks(step, sent.kind, path);
        if awaits == Awaits::Nothing && sent.kind == StepKind::WebSocket {
            checks.clear(); // those of the defaults
        }
        let keeps = self.keeps(step, sent.kind, path);
        let redirects = step.redirects.or(self.file.defaults.redirects).unwrap_or(0);
        if redirects > REDIRECTS {
            self.wrong(
                &format!("{path}.redirects"),
                format!("a request follows at most {REDIRECTS} redirects"),
            );
        }
        let needs_body = checks.iter().any(Check::needs_body)
            || keeps.iter().any(|keep| matches!(keep.source, Source::Body(_) | Source::Json(_)));
        Some(Request {
            id: id?,
            method: sent.method.to_owned(),
            target: target?,
            headers,
            body: body?,
            checks,
            keeps,
            timeout: self.timeout(step, path),
            redirects: if sent.kind == StepKind::Http { redirects } else { 0 },
            needs_body,
            on_failure: step.on_failure.map_or(self.on_failure, super::on_failure),
            kind: match sent.kind {
                StepKind::Grpc => Kind::Grpc,
                StepKind::WebSocket => Kind::WebSocket,
                StepKind::Exec | StepKind::Http => Kind::Http,
            },
            awaits,
            closes: step.close,
        })
    }

    /// The message that a WebSocket step waits for.
    fn awaits(&mut self, step: &written::Step, sends: bool, path: &str) -> Awaits {
        let Some(raw) = &step.answer else {
            return if sends { Awaits::Message(Vec::new()) } else { Awaits::Nothing };
        };
        if raw.node.as_text() == Some("none") {
            return Awaits::Nothing;
        }
        let one = std::slice::from_ref(&raw.node);
        let nodes = if raw.node.as_text().is_some() { one } else { raw.node.elements() };
        let mut checks = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let place = if raw.node.as_text().is_some() {
                format!("{path}.answer")
            } else {
                format!("{path}.answer[{i}]")
            };
            let text = node.as_text().unwrap_or_default();
            match self.check(text, StepKind::WebSocket) {
                Ok(check) if check.is_of_header_or_time() => {
                    self.wrong(&place, "a message is chosen by its text, JSON or size: json:$.type=ready");
                }
                Ok(check) => checks.push(check),
                Err(why) => self.wrong(&place, why),
            }
        }
        if nodes.is_empty() {
            let expected =
                "expected a check that the answer passes, such as json:$.type=ready, a list of them, or none";
            self.wrong(&format!("{path}.answer"), expected);
        }
        Awaits::Message(checks)
    }

    /// Compiles an `exec` step.
    pub(super) fn exec(&mut self, step: &written::Step, path: &str) -> Option<Exec> {
        let id = self.named(step, StepKind::Exec, path);
        if step.exec.first().is_none_or(String::is_empty) {
            self.wrong(&format!("{path}.exec"), "expected a program and its arguments: [ ./sign, --fast ]");
        }
        let message = match &step.message {
            None => Ok(Template::literal(*b"{}")),
            Some(raw) => bodies::json(&raw.node, &mut self.names),
        };
        let message = self.told(message, &format!("{path}.message"));
        let keeps = self.keeps(step, StepKind::Exec, path);
        let timeout = self.timeout(step, path);
        let command = self.command(step, path);
        Some(Exec { id: id?, command, message: message?, keeps, timeout })
    }

    /// The command of an `exec` step. As with data sets, a relative path begins at the folder of the plan; a name
    /// without `/` is looked up in `PATH`.
    fn command(&self, step: &written::Step, path: &str) -> Vec<String> {
        let mut command = step.exec.clone();
        let folder = self.tree.find(&format!("{path}.exec")).and_then(|node| node.at.file.parent());
        if let (Some(program), Some(folder)) = (command.first_mut(), folder)
            && program.contains('/')
        {
            *program = folder.join(&*program).display().to_string();
        }
        command
    }

    fn timeout(&mut self, step: &written::Step, path: &str) -> Duration {
        let timeout = step.timeout.or(self.file.defaults.timeout).map_or(TIMEOUT, |time| time.0);
        if timeout.is_zero() {
            let path = if step.timeout.is_some() {
                format!("{path}.timeout")
            } else {
                "defaults.timeout".to_owned()
            };
            self.wrong(&path, "a timeout is longer than 0s");
        }
        timeout
    }

    fn check_method(&mut self, sent: Sent<'_>, path: &str) {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if sent.url.is_empty() {
            self.wrong(&format!("{path}.method"), "`method` needs a `url`");
        } else if sent.method.is_empty() {
            self.wrong(
                &format!("{path}.url"),
                "`url` needs a `method`; or write get: URL, post: URL and so on",
            );
        } else if !sent.method.bytes().all(is_token) || sent.method.len() > 32 {
            self.wrong(&format!("{path}.method"), format!("`{}` is no method", sent.method));
        } else if sent.method.eq_ignore_ascii_case("connect") {
            self.wrong(&format!("{path}.method"), "CONNECT opens a tunnel and is no request of a step");
        }
    }

    fn target(&mut self, sent: Sent<'_>, path: &str) -> Option<Target> {
        let node = self.tree.find(path)?.clone();
        let text = self.with_constant_server(sent.url);
        let text = text.as_str();
        let moved = text != sent.url;
        let spans = match spans(text) {
            Ok(spans) => spans,
            Err(wrong) => {
                self.wrong_text(&node, path, wrong);
                return None;
            }
        };
        if let [Span::Placeholder(_), ..] = &spans[..] {
            if spans.len() > 1 || sent.kind != StepKind::Http {
                self.wrong(
                    path,
                    "a URL begins with `/`, a server, or a name of `values`; a kept one is the whole URL",
                );
                return None;
            }
            let template = texts::compile(text, &Escape::None, Form::Url, &mut self.names);
            return self.told(with_node(template, &node), path).map(Target::Any);
        }
        if spans.is_empty() {
            self.wrong(path, "expected a path such as /items, or a URL");
            return None;
        }
        let literal = if let Some(Span::Literal(literal)) = spans.first() { literal.as_str() } else { "" };
        let (origin, rest) = if literal.starts_with('/') && !literal.starts_with("//") {
            (self.origins.first().filter(|_| self.has_target).cloned(), text)
        } else if literal.contains("://") {
            match Origin::parse(literal) {
                Ok((_, "")) if spans.len() > 1 => {
                    self.wrong(
                        path,
                        "a placeholder stands behind the server and its `/`: it may not change who gets load",
                    );
                    return None;
                }
                Ok((origin, rest)) => {
                    (Some(origin), text.get(literal.len() - rest.len()..).unwrap_or_default())
                }
                Err(bad) => {
                    self.wrong(path, bad.0);
                    return None;
                }
            }
        } else {
            self.wrong(
                path,
                "expected a path that begins with `/`, or a URL such as http://127.0.0.1:8080/items",
            );
            return None;
        };
        let Some(origin) = origin else {
            // A wrong `target` has been told.
            if !self.has_wrong_target {
                self.wrong(
                    path,
                    "this URL has no server: write `target:` at the top of the plan, or the whole URL",
                );
            }
            return None;
        };
        let origin = self.spoken(origin, sent.kind, path)?;
        let origin = self.origin(origin);
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        for span in texts::spans(&rest).unwrap_or_default() {
            if let Span::Literal(literal) = span
                && let Some(bad) = literal.chars().find(|c| !c.is_ascii_graphic() || *c == '#')
            {
                let message = format!("{bad:?} cannot stand in a URL: write it as {}", percent(bad));
                let at = if moved { 0 } else { sent.url.find(bad).unwrap_or(0) };
                self.wrong_text(&node, path, Wrong { at, message, hint: None });
                return None;
            }
        }
        if sent.kind == StepKind::Grpc && !is_method(&rest) {
            self.wrong(path, "expected a method of a service: /package.Service/Method");
            return None;
        }
        let skipped = text.len().saturating_sub(rest.len());
        let template = texts::compile(&rest, &Escape::Url, Form::Url, &mut self.names);
        let template = template.map_err(|wrong| {
            let at = |at: usize| if moved { 0 } else { at + skipped };
            wrong.into_iter().map(|wrong| Wrong { at: at(wrong.at), ..wrong }).collect()
        });
        let path = self.told(with_node(template, &node), path)?;
        Some(Target::At { origin, path })
    }

    /// A URL with the server that a name of `values` at its beginning stands for.
    fn with_constant_server(&mut self, url: &str) -> String {
        let Ok(spans) = spans(url) else { return url.to_owned() };
        let Some(Span::Placeholder(range)) = spans.first() else { return url.to_owned() };
        let name = url.get(range.clone()).unwrap_or_default().trim();
        match self.file.values.0.iter().find(|(known, _)| known == name) {
            Some((_, value)) => format!("{value}{}", url.get(range.end + 2..).unwrap_or_default()),
            None => url.to_owned(),
        }
    }

    /// The origin with the scheme of what the step speaks.
    fn spoken(&mut self, origin: Origin, kind: StepKind, path: &str) -> Option<Origin> {
        let (plain, secure) = match kind {
            StepKind::Grpc => (Scheme::Grpc, Scheme::Grpcs),
            StepKind::WebSocket => (Scheme::Ws, Scheme::Wss),
            StepKind::Exec | StepKind::Http => (Scheme::Http, Scheme::Https),
        };
        let is_target = self.origins.first() == Some(&origin) && self.has_target;
        let is_http = matches!(origin.scheme, Scheme::Http | Scheme::Https);
        let scheme = if origin.scheme.is_secure() { secure } else { plain };
        if !is_target && !is_http && scheme != origin.scheme {
            let (found, wanted) = (origin.scheme.name(), scheme.name());
            self.wrong(path, format!("the scheme `{found}` is not spoken by this step; expected `{wanted}`"));
            return None;
        }
        Some(Origin { scheme, ..origin })
    }

    fn headers(&mut self, step: &written::Step, kind: StepKind, path: &str) -> Vec<(String, Template)> {
        let mut all: Vec<(String, Template)> = Vec::new();
        let own = |name: &str| step.headers.0.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let file = self.file;
        let defaults = file.defaults.headers.0.iter().filter(|(name, _)| !own(name));
        let defaults = defaults.map(|pair| (pair, "defaults.headers".to_owned()));
        let fields = defaults.chain(step.headers.0.iter().map(|pair| (pair, format!("{path}.headers"))));
        for ((name, value), section) in fields.collect::<Vec<_>>() {
            let path = format!("{section}.{name}");
            let lower = name.to_ascii_lowercase();
            if kind == StepKind::Grpc && lower == "content-type" {
                // The defaults are about the requests that share them; a call has its own type.
                if own(name) && value.starts_with("application/grpc") {
                    all.push((lower, Template::literal(value.clone().into_bytes())));
                } else if own(name) {
                    self.wrong(&path, "a gRPC call has the content-type application/grpc");
                }
                continue;
            }
            let is_of_handshake = lower.starts_with("sec-websocket-") && lower != "sec-websocket-protocol";
            if kind == StepKind::WebSocket && is_of_handshake {
                self.wrong(&path, format!("`{name}` is part of the handshake; Weir writes it"));
                continue;
            }
            if FieldName::new(&lower).is_err() {
                self.wrong(&path, format!("`{name}` is no name of a header field"));
                continue;
            }
            if OWN_FIELDS.contains(&&*lower) {
                self.wrong(
                    &path,
                    format!("`{name}` frames the message or manages its connection; Weir writes it"),
                );
                continue;
            }
            if all.iter().any(|(before, _)| *before == lower) {
                self.wrong(&path, format!("`{name}` is written twice in other letters"));
                continue;
            }
            if value.chars().any(|c| c.is_ascii_control() && c != '\t') {
                self.wrong(&path, "a header value holds no line break and no control character");
                continue;
            }
            let Some(node) = self.tree.find(&path).cloned() else { continue };
            let template = texts::compile(value, &Escape::None, Form::Field, &mut self.names);
            if let Some(template) = self.told(with_node(template, &node), &path) {
                all.push((lower, template));
            }
        }
        all
    }

    /// The value, or `None` after its mistakes have been told.
    fn told<'n, T>(&mut self, made: Result<T, Vec<WrongIn<'n>>>, path: &str) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(wrong) => {
                for (node, wrong) in wrong {
                    self.wrong_text(node, path, wrong);
                }
                None
            }
        }
    }
}

fn with_node<T>(made: Result<T, Vec<Wrong>>, node: &Node) -> Result<T, Vec<WrongIn<'_>>> {
    made.map_err(|wrong| wrong.into_iter().map(|wrong| (node, wrong)).collect())
}

/// Whether an answer to such a step has what the check is about.
fn fits(check: &Check, kind: StepKind) -> bool {
    match kind {
        StepKind::Grpc => true,
        StepKind::Http => !check.is_of_grpc(),
        StepKind::Exec | StepKind::WebSocket => check.is_of_body(),
    }
}

fn is_method(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let word = |part: Option<&str>| {
        part.is_some_and(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._".contains(&b))
        })
    };
    word(parts.next()) && word(parts.next()) && parts.next().is_none()
}

fn percent(c: char) -> String {
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes).bytes().map(|b| format!("%{b:02X}")).collect()
}
