//! Samplers of HTTP: requests, with what is in scope for them.

use super::{
    Defaults, Importer, LISTENERS, Scope, config, is_config, is_enabled, is_on, list, pairs, property, texts,
    title,
};
use crate::ledger::Piece;
use crate::plan::model::{Body, Does, Part, Request, Step};
use crate::plan::vault::is_secret;
use crate::plan::{secrets, text};
use weir_report::xml::Element;

/// Settings of a sampler that are followed, or that change no request.
const SETTINGS: &[&str] = &[
    "HTTPSampler.BROWSER_COMPATIBLE_MULTIPART",
    "HTTPSampler.DO_MULTIPART_POST",
    "HTTPSampler.auto_redirects",
    "HTTPSampler.concurrentPool",
    "HTTPSampler.connect_timeout",
    "HTTPSampler.contentEncoding",
    "HTTPSampler.domain",
    "HTTPSampler.embedded_url_re",
    "HTTPSampler.follow_redirects",
    "HTTPSampler.image_parser",
    "HTTPSampler.implementation",
    "HTTPSampler.method",
    "HTTPSampler.monitor",
    "HTTPSampler.path",
    "HTTPSampler.port",
    "HTTPSampler.postBodyRaw",
    "HTTPSampler.protocol",
    "HTTPSampler.response_timeout",
    "HTTPSampler.use_keepalive",
    "HTTPsampler.Arguments",
    "HTTPsampler.Files",
];

/// A parameter of a request.
struct Argument {
    name: String,
    value: String,
    /// Whether JMeter encodes it; otherwise it is encoded already.
    is_encoded: bool,
}

impl Importer<'_, '_> {
    /// A request.
    pub(super) fn sampler(
        &mut self,
        element: &Element,
        inner: Option<&Element>,
        scope: &Scope,
        steps: &mut Vec<Step>,
    ) {
        let piece = self.enter(element);
        if is_on(element, "HTTPSampler.image_parser") {
            let why = "the images, scripts and styles of its page are not requested";
            self.cx.ledger.refused(piece, why, "a step of `parallel` with them");
        }
        self.settings(element, piece, SETTINGS);
        let mut request = Request::new(property(element, "HTTPSampler.method").to_uppercase(), String::new());
        if request.method.is_empty() {
            request.method = "GET".to_owned();
        }
        let own = self.scope(inner, &Scope { pauses: Vec::new(), checks: Vec::new(), ..scope.clone() });
        request.name =
            Some(format!("{}{}", scope.prefix, title(element))).filter(|_| !title(element).is_empty());
        request.headers.clone_from(&own.headers);
        if let Some(authorization) = &own.authorization
            && request.header("authorization").is_none()
        {
            request.set_header("authorization", authorization.clone());
        }
        let arguments = self.arguments(element, piece);
        let is_raw = is_on(element, "HTTPSampler.postBodyRaw");
        let has_query = matches!(&*request.method, "GET" | "HEAD" | "DELETE" | "OPTIONS") && !is_raw;
        match self.url(element, &own.defaults, piece) {
            Ok(mut url) => {
                if has_query {
                    for Argument { name, value, is_encoded } in &arguments {
                        url.push(if text::split(&url, '?').len() > 1 { '&' } else { '?' });
                        let value = if *is_encoded { texts::url(value) } else { texts::url_path(value) };
                        match name.is_empty() {
                            // A parameter without a name is the query itself.
                            true => url.push_str(&value),
                            false => url.push_str(&format!("{}={value}", text::percent_encoded(name))),
                        }
                    }
                }
                request.url = url;
            }
            Err(why) => return self.cx.ledger.refused(piece, why, "`target:`, and a step with the path"),
        }
        if !has_query && !self.body(element, arguments, is_raw, &mut request, piece) {
            return;
        }
        if is_on(element, "HTTPSampler.follow_redirects") || is_on(element, "HTTPSampler.auto_redirects") {
            request.redirects = Some(20);
        }
        let timeout = property(element, "HTTPSampler.response_timeout");
        if let Some(ms) = timeout.parse::<u64>().ok().filter(|ms| *ms > 0) {
            request.timeout = Some(text::duration(ms));
        }
        request.checks = scope.checks.iter().chain(&own.checks).cloned().collect();
        if !request.checks.iter().any(|check| check.starts_with("status=")) {
            request.checks.insert(0, "status=2xx,3xx".to_owned());
        }
        self.children(inner, &mut request);
        if self.left == 0 {
            // Its texts are not whole, which its line says.
            return;
        }
        for pause in scope.pauses.iter().chain(&own.pauses) {
            if !self.cx.options.no_pauses {
                steps.push(Step::new(Does::Pause(pause.clone())));
            }
        }
        self.cx.ledger.same(piece);
        steps.push(request.step(piece));
    }

    /// Extractors and other children of a sampler.
    fn children(&mut self, tree: Option<&Element>, request: &mut Request) {
        for (element, _) in pairs(tree) {
            if !is_enabled(element) {
                let piece = self.enter(element);
                self.cx.ledger.by_itself(piece, "it is switched off");
                continue;
            }
            match &*element.name {
                "RegexExtractor" | "JSONPostProcessor" | "BoundaryExtractor" => {
                    let piece = self.enter(element);
                    match texts::extractor(element) {
                        Ok(keeps) => {
                            request.keep.extend(keeps);
                            self.cx.ledger.same(piece);
                        }
                        Err(why) => {
                            self.cx.ledger.refused(piece, why, "`keep:` with json:, header: or body~")
                        }
                    }
                }
                name if is_config(name) => {}
                name if LISTENERS.contains(&name) => self.listener(element),
                _ => self.refuse(
                    element,
                    "an element that a step does not have",
                    "`keep:`, `checks:` or `exec:`",
                ),
            }
        }
    }

    fn arguments(&mut self, element: &Element, piece: Piece) -> Vec<Argument> {
        let mut all = Vec::new();
        for argument in config::arguments(element) {
            let (name, value) = (property(argument, "Argument.name"), property(argument, "Argument.value"));
            let value =
                if is_secret(&name) { self.secret(&name, &value, piece) } else { self.text(&value, piece) };
            all.push(Argument { name, value, is_encoded: is_on(argument, "HTTPArgument.always_encode") });
        }
        all
    }

    /// Sets the body. False if the sampler is refused.
    fn body(
        &mut self,
        element: &Element,
        arguments: Vec<Argument>,
        is_raw: bool,
        request: &mut Request,
        piece: Piece,
    ) -> bool {
        let files = list(element, "HTTPsampler.Files").first();
        let files = files.map(|list| list.children.as_slice()).unwrap_or_default();
        if !files.is_empty() || is_on(element, "HTTPSampler.DO_MULTIPART_POST") && !is_raw {
            let part = |Argument { name, value, .. }| Part { name, value, ..Part::default() };
            let mut parts: Vec<Part> = arguments.into_iter().map(part).collect();
            for file in files {
                let (path, name) = (property(file, "File.path"), property(file, "File.paramname"));
                let media = Some(property(file, "File.mimetype")).filter(|media| !media.is_empty());
                if name.is_empty() {
                    request.body = Some(Body::File(path));
                    self.cx.ledger.changed(piece, "the body is read from its file when the plan is read");
                    return true;
                }
                parts.push(Part { name, file: Some(path), media, ..Part::default() });
            }
            if files.iter().any(|file| property(file, "File.path").contains("${")) {
                self.cx.ledger.refused(
                    piece,
                    "the path of its file depends on a variable",
                    "`file:` of the part",
                );
                return false;
            }
            self.cx.ledger.changed(piece, "files are read when the plan is read");
            request.headers.retain(|(name, _)| name != "content-type");
            request.body = Some(Body::Multipart(parts));
            return true;
        }
        if is_raw || arguments.iter().all(|argument| argument.name.is_empty()) {
            let raw: String = arguments.into_iter().map(|argument| argument.value).collect();
            if !raw.is_empty() {
                request.body = Some(Body::Text(raw));
            }
            return true;
        }
        let mut names: Vec<&String> = arguments.iter().map(|argument| &argument.name).collect();
        names.sort();
        if names.windows(2).any(|two| matches!(two, [a, b] if a == b)) {
            self.cx.ledger.refused(
                piece,
                "its form has a name twice, and a map of the plan cannot",
                "`body` of the step",
            );
            return false;
        }
        request.headers.retain(|(name, _)| name != "content-type");
        // What is not encoded on sending is encoded already.
        let field = |Argument { name, value, is_encoded }: Argument| match is_encoded {
            true => (name, value),
            false => (
                name,
                text::map_literals(&value, |own| {
                    text::literal(&text::form_decoded(own).unwrap_or_else(|| own.to_owned()))
                }),
            ),
        };
        request.body = Some(Body::Form(arguments.into_iter().map(field).collect()));
        true
    }

    fn url(&mut self, element: &Element, defaults: &Defaults, piece: Piece) -> Result<String, String> {
        let or = |name: &str, default: &str| {
            let own = property(element, &format!("HTTPSampler.{name}"));
            if own.is_empty() { default.to_owned() } else { own }
        };
        let path = or("path", &defaults.path);
        if path.starts_with("http://") || path.starts_with("https://") {
            let url = self.text(&path, piece);
            return self.at(&url);
        }
        let (protocol, domain, port) =
            (or("protocol", &defaults.protocol), or("domain", &defaults.domain), or("port", &defaults.port));
        let protocol = self.text(&protocol, piece);
        let protocol = if protocol.is_empty() { "http".to_owned() } else { protocol.to_lowercase() };
        let domain = self.text(&domain, piece);
        let port = self.text(&port, piece);
        let path = self.text(&path, piece);
        let path = if path.starts_with('/') || path.is_empty() { path } else { format!("/{path}") };
        if domain.is_empty() || domain.contains("{{") || port.contains("{{") || protocol.contains("{{") {
            // A server that only a property of the command line knows.
            self.has_unknown = true;
            self.cx
                .ledger
                .changed(piece, "its server is a variable that the test plan does not define: set TARGET");
            return Ok(if path.is_empty() { "/".to_owned() } else { texts::url_path(&path) });
        }
        let port = if port.is_empty() { String::new() } else { format!(":{port}") };
        self.at(&format!("{protocol}://{domain}{port}{path}"))
    }

    fn at(&mut self, url: &str) -> Result<String, String> {
        let mut url = url.to_owned();
        // A user in the URL is nobody for JMeter, which only takes those of its manager.
        if secrets::take_user(&mut url).is_some() {
            return Err("its server has a user and a password".to_owned());
        }
        let (server, rest) = text::split_url(&url).ok_or("its server is no host")?;
        let rest = texts::url_path(&rest);
        let target = self.target.get_or_insert_with(|| server.clone());
        Ok(if *target == server { rest } else { format!("{server}{rest}") })
    }
}
