//! Test plans of JMeter: thread groups become scenarios, samplers of HTTP requests, with what is in scope for them:
//! defaults, header managers, timers, extractors and assertions. Elements that run programs or need other protocols are
//! refused by name.

mod groups;
mod texts;

use super::har::hoist;
use super::model::{Body, Does, Keep, NESTING, Part, Plan, Request, Scenario, Step, Target};
use super::vault::is_secret;
use super::{Cx, Kind, keeps, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::Map;
use std::collections::{BTreeMap, BTreeSet};
use weir_report::xml::{self, Element};

pub(super) static KIND: Kind = Kind { name: "jmx", title: "JMeter test plan", import };

/// Elements that only show or store results.
const LISTENERS: &[&str] = &[
    "BackendListener",
    "CacheManager",
    "ResultCollector",
    "Summariser",
    "ResultSaver",
    "DNSCacheManager",
    "kg.apc.jmeter.vizualizers.CorrectedResultCollector",
    "DebugPostProcessor",
    "DebugSampler",
];
/// Elements whose children run in place.
const IN_PLACE: &[&str] =
    &["GenericController", "TransactionController", "RecordingController", "CriticalSectionController"];

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let root = xml::parse(&file.text).map_err(|why| Unreadable::at(&cx.place(1), why))?;
    if root.name != "jmeterTestPlan" {
        return Err(Unreadable::at(&cx.place(1), "no test plan of JMeter: its root is not <jmeterTestPlan>"));
    }
    let mut kept = BTreeSet::new();
    Importer::collect_kept(&root, &mut kept);
    for name in &kept {
        cx.vault.take(name);
    }
    let mut importer = Importer {
        cx,
        kept,
        plan: Plan::default(),
        variables: BTreeMap::new(),
        columns: BTreeMap::new(),
        data: BTreeMap::new(),
        target: None,
        has_unknown: false,
    };
    let tree = root.children.iter().find(|child| child.name == "hashTree");
    importer.top(tree, &Scope::default());
    let Importer { mut plan, target, has_unknown, data, .. } = importer;
    plan.target = target.map(Target::Known).or(has_unknown.then_some(Target::Unknown));
    let mut used = String::new();
    plan.each_request(&mut |request| request.parts_mut(&mut |text| used.push_str(text)));
    for (name, set) in data {
        if used.contains(&format!("{{{{{name}.")) {
            plan.data.set(name, set);
        }
    }
    keeps::drop_unused(&mut plan);
    hoist(&mut plan);
    Ok(plan)
}

/// What holds for the samplers at a place of the tree.
#[derive(Clone, Default)]
struct Scope {
    defaults: Defaults,
    headers: Vec<(String, String)>,
    /// Pauses before each sampler.
    pauses: Vec<String>,
    checks: Vec<String>,
    has_cookies: bool,
    authorization: Option<String>,
    /// Names of the controllers around.
    prefix: String,
    depth: usize,
}

/// HTTP Request Defaults.
#[derive(Clone, Default)]
struct Defaults {
    protocol: String,
    domain: String,
    port: String,
    path: String,
}

struct Importer<'c, 'a> {
    cx: &'c mut Cx<'a>,
    plan: Plan,
    /// Variables that the test plan defines.
    variables: BTreeMap<String, String>,
    /// Columns of data sets: the placeholder of each.
    columns: BTreeMap<String, String>,
    data: BTreeMap<String, Map>,
    target: Option<String>,
    has_unknown: bool,
    /// Names that extractors keep anywhere.
    kept: BTreeSet<String>,
}

/// Elements of a tree, each with the tree of its children.
fn pairs(tree: Option<&Element>) -> Vec<(&Element, Option<&Element>)> {
    let mut all: Vec<(&Element, Option<&Element>)> = Vec::new();
    for child in tree.map(|tree| tree.children.as_slice()).unwrap_or_default() {
        if child.name == "hashTree" {
            if let Some(last) = all.last_mut()
                && last.1.is_none()
            {
                last.1 = Some(child);
            }
        } else {
            all.push((child, None));
        }
    }
    all
}

/// A property of an element.
fn property(element: &Element, name: &str) -> String {
    let found = element.children.iter().find(|child| child.attribute("name") == Some(name));
    found.map_or_else(String::new, |child| child.text.trim().to_owned())
}

fn is_on(element: &Element, name: &str) -> bool {
    property(element, name) == "true"
}

fn is_enabled(element: &Element) -> bool {
    element.attribute("enabled") != Some("false")
}

fn title(element: &Element) -> &str {
    element.attribute("testname").unwrap_or_default()
}

impl Importer<'_, '_> {
    fn enter(&mut self, element: &Element) -> Piece {
        let place = self.cx.place(element.line);
        self.cx.ledger.enter(place, &format!("{} `{}`", element.name, title(element)))
    }

    fn refuse(&mut self, element: &Element, why: &str, nearest: &str) {
        let piece = self.enter(element);
        self.cx.ledger.refused(piece, why.to_owned(), nearest.to_owned());
    }

    /// The test plan and its thread groups.
    fn top(&mut self, tree: Option<&Element>, scope: &Scope) {
        let scope = self.scope(tree, scope);
        for (element, inner) in pairs(tree) {
            if !is_enabled(element) {
                continue;
            }
            match &*element.name {
                "TestPlan" => {
                    if let Some(variables) = element
                        .children
                        .iter()
                        .find(|c| c.attribute("name") == Some("TestPlan.user_defined_variables"))
                    {
                        self.define(variables);
                    }
                    self.top(inner, &scope);
                }
                name if name.ends_with("ThreadGroup") => self.group(element, inner, &scope),
                "TestFragmentController" => self.refuse(
                    element,
                    "a test fragment runs only where a module names it",
                    "its steps, where they belong",
                ),
                _ => {}
            }
        }
    }

    /// The scope of a tree: that around it, and its own configuration elements, wherever they stand in it.
    fn scope(&mut self, tree: Option<&Element>, around: &Scope) -> Scope {
        let mut scope = around.clone();
        for (element, inner) in pairs(tree) {
            if !is_enabled(element) {
                continue;
            }
            let _ = inner;
            match &*element.name {
                "ConfigTestElement" => {
                    let piece = self.enter(element);
                    let defaults = &mut scope.defaults;
                    for (own, name) in [
                        (&mut defaults.protocol, "protocol"),
                        (&mut defaults.domain, "domain"),
                        (&mut defaults.port, "port"),
                        (&mut defaults.path, "path"),
                    ] {
                        let value = property(element, &format!("HTTPSampler.{name}"));
                        if !value.is_empty() {
                            *own = value;
                        }
                    }
                    self.cx.ledger.same(piece);
                }
                "HeaderManager" => {
                    let piece = self.enter(element);
                    for (name, value) in self.fields(element, piece) {
                        scope.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
                        scope.headers.push((name, value));
                    }
                    self.cx.ledger.same(piece);
                }
                "CookieManager" => {
                    let piece = self.enter(element);
                    scope.has_cookies = true;
                    let own = element
                        .children
                        .iter()
                        .find(|c| c.attribute("name") == Some("CookieManager.cookies"));
                    match own.is_some_and(|own| !own.children.is_empty()) {
                        true => self.cx.ledger.refused(
                            piece,
                            "cookies that it defines itself are not taken",
                            "a header field `cookie`",
                        ),
                        false => self.cx.ledger.same(piece),
                    }
                }
                "AuthManager" => {
                    let piece = self.enter(element);
                    let list = element
                        .children
                        .iter()
                        .find(|c| c.attribute("name") == Some("AuthManager.auth_list"));
                    match list.map(|list| list.children.as_slice()).unwrap_or_default() {
                        [one] => {
                            let user = self.text(&property(one, "Authorization.username"), piece);
                            let password = property(one, "Authorization.password");
                            let password = self.secret("password", &password, piece);
                            scope.authorization = Some(format!("Basic {{{{base64:{user}:{password}}}}}"));
                            self.cx.ledger.changed(
                                piece,
                                "its credentials go with every request in its scope, whatever the URL",
                            );
                        }
                        _ => self.cx.ledger.refused(
                            piece,
                            "several credentials by URL are not followed",
                            "`headers` of the steps",
                        ),
                    }
                }
                "Arguments" => self.define(element),
                "CSVDataSet" => self.csv(element),
                name if name.ends_with("Timer") => {
                    if let Some(pause) = self.timer(element) {
                        scope.pauses.push(pause);
                    }
                }
                "DurationAssertion" | "ResponseAssertion" | "JSONPathAssertion" => {
                    scope.checks.extend(self.assertion(element));
                }
                _ => {}
            }
        }
        scope
    }

    /// The fields of a header manager.
    fn fields(&mut self, element: &Element, piece: Piece) -> Vec<(String, String)> {
        let list = element.children.iter().find(|c| c.attribute("name") == Some("HeaderManager.headers"));
        let mut all = Vec::new();
        for field in list.map(|list| list.children.as_slice()).unwrap_or_default() {
            let (name, value) = (property(field, "Header.name"), property(field, "Header.value"));
            let is_own = ["content-length", "connection", "transfer-encoding", "host"]
                .contains(&&*name.to_ascii_lowercase());
            if name.is_empty() || is_own {
                continue;
            }
            let value = self.secret(&name, &value, piece);
            all.push((name.to_ascii_lowercase(), value));
        }
        all
    }

    /// Variables that the test plan defines.
    fn define(&mut self, element: &Element) {
        let list = element.children.iter().find(|c| c.attribute("name") == Some("Arguments.arguments"));
        for argument in list.map(|list| list.children.as_slice()).unwrap_or_default() {
            let (name, value) = (property(argument, "Argument.name"), property(argument, "Argument.value"));
            if !name.is_empty() {
                self.variables.insert(name, value);
            }
        }
    }

    /// The steps of a tree.
    fn steps(
        &mut self,
        tree: Option<&Element>,
        around: &Scope,
        scenario: &mut Scenario,
        is_nested: bool,
    ) -> Vec<Step> {
        if around.depth > 50 {
            return Vec::new();
        }
        let mut scope = self.scope(tree, around);
        scope.depth += 1;
        let mut steps = Vec::new();
        for (element, inner) in pairs(tree) {
            if !is_enabled(element) {
                let piece = self.enter(element);
                self.cx.ledger.by_itself(piece, "it is switched off");
                continue;
            }
            let name = &*element.name;
            match name {
                "HTTPSamplerProxy" | "HTTPSampler" | "HTTPSampler2" => {
                    self.sampler(element, inner, &scope, &mut steps)
                }
                _ if IN_PLACE.contains(&name) => {
                    let prefix = format!("{}{} / ", scope.prefix, title(element));
                    let below = Scope { prefix, ..scope.clone() };
                    steps.extend(self.steps(inner, &below, scenario, is_nested));
                }
                "LoopController" => {
                    let piece = self.enter(element);
                    let times = property(element, "LoopController.loops")
                        .parse::<u32>()
                        .ok()
                        .filter(|times| (1..=1_000_000).contains(times));
                    match times {
                        Some(times) if scope.depth < NESTING => {
                            let inner = self.steps(inner, &scope, scenario, true);
                            if !inner.is_empty() {
                                steps.push(Step::new(Does::Repeat(times, inner)));
                            }
                            self.cx.ledger.same(piece);
                        }
                        _ => self.cx.ledger.refused(
                            piece,
                            "its rounds are not a number that is known, or it is nested too deeply",
                            "`repeat:`",
                        ),
                    }
                }
                "OnceOnlyController" if !is_nested => {
                    let piece = self.enter(element);
                    let once = self.steps(inner, &scope, scenario, true);
                    scenario.start.extend(once);
                    self.cx.ledger.same(piece);
                }
                "TestAction" => {
                    let piece = self.enter(element);
                    let time = property(element, "ActionProcessor.duration").parse::<u64>();
                    match (&*property(element, "ActionProcessor.action"), time) {
                        ("1", Ok(time)) => {
                            self.cx.ledger.same(piece);
                            steps.push(Step::pause(time));
                        }
                        _ => self.cx.ledger.refused(piece, "it stops or skips something", "`on_failure:`"),
                    }
                }
                _ if LISTENERS.contains(&name) => {
                    let piece = self.enter(element);
                    self.cx
                        .ledger
                        .by_itself(piece, "it changes no request: `weir load` has reports of its own");
                }
                "ConfigTestElement" | "HeaderManager" | "CookieManager" | "AuthManager" | "Arguments"
                | "CSVDataSet" | "DurationAssertion" | "ResponseAssertion" | "JSONPathAssertion" => {}
                _ if name.ends_with("Timer") => {}
                "RegexExtractor" | "JSONPostProcessor" | "BoundaryExtractor" => {
                    self.refuse(
                        element,
                        "an extractor that stands beside samplers runs after each of them",
                        "`keep:` of the step that it is for",
                    );
                }
                "IfController"
                | "WhileController"
                | "ThroughputController"
                | "RandomController"
                | "SwitchController"
                | "ForeachController"
                | "RunTime"
                | "InterleaveControl"
                | "RandomOrderController"
                | "OnceOnlyController"
                | "ModuleController"
                | "IncludeController"
                | "ParallelSampler" => {
                    self.refuse(
                        element,
                        "this controller is not followed, and what is in it is not in the plan",
                        "`if:`, `while:`, `weight:` or `parallel:`",
                    );
                }
                _ => {
                    self.refuse(element, "an element that a plan does not have", "`exec:`, or a step by hand")
                }
            }
        }
        steps
    }

    /// A request.
    fn sampler(&mut self, element: &Element, inner: Option<&Element>, scope: &Scope, steps: &mut Vec<Step>) {
        let piece = self.enter(element);
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
                    for (name, value) in &arguments {
                        url.push(if url.contains('?') { '&' } else { '?' });
                        url.push_str(&format!("{}={}", text::percent_encoded(name), texts::url(value)));
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
        for pause in scope.pauses.iter().chain(&own.pauses) {
            if !self.cx.options.no_pauses {
                steps.push(Step::new(Does::Pause(pause.clone())));
            }
        }
        self.cx.ledger.same(piece);
        steps.push(Step::request(request));
    }

    /// Extractors and other children of a sampler.
    fn children(&mut self, tree: Option<&Element>, request: &mut Request) {
        for (element, _) in pairs(tree) {
            if !is_enabled(element) {
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
                "ConfigTestElement" | "HeaderManager" | "CookieManager" | "AuthManager" | "Arguments"
                | "CSVDataSet" | "DurationAssertion" | "ResponseAssertion" | "JSONPathAssertion" => {}
                name if name.ends_with("Timer") || LISTENERS.contains(&name) => {}
                _ => self.refuse(
                    element,
                    "an element that a step does not have",
                    "`keep:`, `checks:` or `exec:`",
                ),
            }
        }
    }

    fn arguments(&mut self, element: &Element, piece: Piece) -> Vec<(String, String)> {
        let holder = element.children.iter().find(|c| c.attribute("name") == Some("HTTPsampler.Arguments"));
        let list = holder.and_then(|holder| {
            holder.children.iter().find(|c| c.attribute("name") == Some("Arguments.arguments"))
        });
        let mut all = Vec::new();
        for argument in list.map(|list| list.children.as_slice()).unwrap_or_default() {
            let (name, value) = (property(argument, "Argument.name"), property(argument, "Argument.value"));
            let value =
                if is_secret(&name) { self.secret(&name, &value, piece) } else { self.text(&value, piece) };
            all.push((name, value));
        }
        all
    }

    /// Sets the body. False if the sampler is refused.
    fn body(
        &mut self,
        element: &Element,
        arguments: Vec<(String, String)>,
        is_raw: bool,
        request: &mut Request,
        piece: Piece,
    ) -> bool {
        let files = element.children.iter().find(|c| c.attribute("name") == Some("HTTPsampler.Files"));
        let files = files
            .and_then(|files| files.children.first())
            .map(|list| list.children.as_slice())
            .unwrap_or_default();
        if !files.is_empty() || is_on(element, "HTTPSampler.DO_MULTIPART_POST") && !is_raw {
            let part = |(name, value)| Part { name, value, ..Part::default() };
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
        if is_raw || arguments.iter().all(|(name, _)| name.is_empty()) {
            let raw: String = arguments.into_iter().map(|(_, value)| value).collect();
            if !raw.is_empty() {
                request.body = Some(Body::Text(raw));
            }
            return true;
        }
        let mut names: Vec<&String> = arguments.iter().map(|(name, _)| name).collect();
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
        request.body = Some(Body::Form(arguments));
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
        let (server, rest) = text::split_url(url).ok_or("its server is no host")?;
        let rest = texts::url_path(&rest);
        let target = self.target.get_or_insert_with(|| server.clone());
        Ok(if *target == server { rest } else { format!("{server}{rest}") })
    }

    /// A pause of a timer.
    fn timer(&mut self, element: &Element) -> Option<String> {
        let piece = self.enter(element);
        let number = |name: &str| {
            property(element, name).parse::<f64>().ok().filter(|n| (0.0..86_400_000.0).contains(n))
        };
        let ms = |n: f64| text::duration(n.round() as u64);
        let pause = match &*element.name {
            "ConstantTimer" => number("ConstantTimer.delay").map(ms),
            "UniformRandomTimer" => number("ConstantTimer.delay")
                .zip(number("RandomTimer.range"))
                .map(|(least, range)| format!("uniform({},{})", ms(least), ms(least + range))),
            "GaussianRandomTimer" => number("ConstantTimer.delay")
                .zip(number("RandomTimer.range"))
                .map(|(mean, deviation)| format!("normal({},{})", ms(mean), ms(deviation))),
            _ => None,
        };
        match pause {
            Some(pause) => {
                self.cx.ledger.same(piece);
                Some(pause)
            }
            None => {
                self.cx.ledger.refused(
                    piece,
                    "this timer is not followed, or its time depends on a variable",
                    "`pause:`, or `rate:` of the scenario",
                );
                None
            }
        }
    }

    fn assertion(&mut self, element: &Element) -> Vec<String> {
        let piece = self.enter(element);
        match texts::assertion(element) {
            Ok(checks) => {
                self.cx.ledger.same(piece);
                checks
            }
            Err(why) => {
                self.cx.ledger.refused(piece, why, "`status=…`, `body~…`, `json:…`, `header:…`, `p-max<…`");
                Vec::new()
            }
        }
    }

    /// A data set of a CSV file.
    fn csv(&mut self, element: &Element) {
        let piece = self.enter(element);
        let path = property(element, "filename");
        let names: Vec<String> = property(element, "variableNames")
            .split(',')
            .map(|n| n.trim().to_owned())
            .filter(|n| !n.is_empty())
            .collect();
        let delimiter = property(element, "delimiter");
        let refuse = |this: &mut Self, why: &str| {
            this.cx.ledger.refused(
                piece,
                why.to_owned(),
                "`data:` with a CSV file whose first line has the names",
            );
        };
        if path.contains("${") || !(delimiter.is_empty() || delimiter == ",") {
            return refuse(self, "its path depends on a variable, or its delimiter is no comma");
        }
        let set =
            self.cx.vault.free(path.rsplit('/').next().unwrap_or("data").split('.').next().unwrap_or("data"));
        let beside = self.cx.beside(&path);
        let first = beside
            .as_ref()
            .ok()
            .and_then(|file| file.text.lines().next().map(str::to_owned))
            .unwrap_or_default();
        let header: Vec<String> =
            first.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
        let names = match names.is_empty() {
            true if beside.is_ok() => header.clone(),
            true => return refuse(self, "its names are in the first line of its file, which is not here"),
            false => names,
        };
        for name in &names {
            self.columns.insert(name.clone(), format!("{set}.{name}"));
        }
        if header != names {
            self.cx.ledger.changed(
                piece,
                format!("add the first line {} to the file: plans read the names there", names.join(",")),
            );
        }
        let mut map = Map::new().with("file", path);
        if property(element, "recycle") == "false" {
            let end = if property(element, "stopThread") == "true" { "stop" } else { "fail" };
            map.set("at_end", end);
        }
        self.cx.ledger.same(piece);
        self.data.insert(set, map);
    }

    /// A text that may be a secret.
    fn secret(&mut self, name: &str, value: &str, piece: Piece) -> String {
        if is_secret(name) && !value.contains("${") && !value.is_empty() {
            return super::request::credentials(name, value, &mut self.cx.vault);
        }
        self.text(value, piece)
    }
}

/// What an extractor keeps.
fn keep(name: &str, source: String) -> Keep {
    Keep { name: text::name(name), source, proof: String::new() }
}
