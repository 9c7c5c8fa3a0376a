//! Configuration elements: what holds for the samplers in their scope.

use super::{Importer, Scope, child, is_enabled, is_on, list, pairs, property, texts};
use crate::ledger::Piece;
use crate::plan::text;
use crate::yaml::Map;
use weir_report::xml::Element;

/// Settings of request defaults that are followed, or that change no request.
const DEFAULTS: &[&str] = &[
    "HTTPSampler.concurrentPool",
    "HTTPSampler.contentEncoding",
    "HTTPSampler.domain",
    "HTTPSampler.implementation",
    "HTTPSampler.path",
    "HTTPSampler.port",
    "HTTPSampler.protocol",
    "HTTPsampler.Arguments",
];
/// Settings that every element has.
const COMMON: &[&str] = &[
    "TestElement.enabled",
    "TestElement.gui_class",
    "TestElement.name",
    "TestElement.test_class",
    "TestPlan.comments",
];

/// The arguments of an element.
pub(super) fn arguments(element: &Element) -> &[Element] {
    let holder = child(element, "HTTPsampler.Arguments");
    holder.map(|holder| list(holder, "Arguments.arguments")).unwrap_or_default()
}

impl Importer<'_, '_> {
    /// Refuses the settings of an element that are neither followed nor switched off.
    pub(super) fn settings(&mut self, element: &Element, piece: Piece, known: &[&str]) {
        for setting in &element.children {
            let Some(name) = setting.attribute("name") else { continue };
            let is_off = setting.children.is_empty() && matches!(setting.text.trim(), "" | "false" | "0");
            if is_off || known.contains(&name) || COMMON.contains(&name) {
                continue;
            }
            let name = text::shortened(name);
            self.cx.ledger.refused(
                piece,
                format!("its setting `{name}` is not followed"),
                "the step, by hand",
            );
        }
    }

    /// Variables that the whole test plan defines. JMeter reads them before it starts, wherever they stand.
    pub(super) fn collect_variables(&mut self, element: &Element) {
        for child in &element.children {
            let is_definition = child.name == "Arguments" && is_enabled(child)
                || child.attribute("name") == Some("TestPlan.user_defined_variables");
            if is_definition {
                self.define(child);
            }
            if is_enabled(child) {
                self.collect_variables(child);
            }
        }
    }

    /// The scope of a tree: that around it, and its own configuration elements, wherever they stand in it.
    pub(super) fn scope(&mut self, tree: Option<&Element>, around: &Scope) -> Scope {
        let mut scope = around.clone();
        // Columns first: a header manager may stand above the data set whose columns it names.
        for (element, _) in pairs(tree).into_iter().filter(|(element, _)| is_enabled(element)) {
            if element.name == "CSVDataSet" {
                self.csv(element);
            }
        }
        for (element, _) in pairs(tree).into_iter().filter(|(element, _)| is_enabled(element)) {
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
                    self.settings(element, piece, DEFAULTS);
                    if !arguments(element).is_empty() {
                        let why = "parameters for all requests are not followed";
                        self.cx.ledger.refused(piece, why, "the query or `form` of the steps");
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
                    scope.forgets_cookies = is_on(element, "CookieManager.clearEachIteration");
                    scope.cookies_of_group = is_on(element, "CookieManager.controlledByThreadGroup");
                    match list(element, "CookieManager.cookies") {
                        [] => self.cx.ledger.same(piece),
                        _ => self.cx.ledger.refused(
                            piece,
                            "cookies that it defines itself are not taken",
                            "a header field `cookie`",
                        ),
                    }
                }
                "AuthManager" => {
                    let piece = self.enter(element);
                    match list(element, "AuthManager.auth_list") {
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
                "Arguments" => {
                    let piece = self.enter(element);
                    self.cx.ledger.same(piece);
                }
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
        let mut all = Vec::new();
        for field in list(element, "HeaderManager.headers") {
            let (name, value) = (property(field, "Header.name"), property(field, "Header.value"));
            let lower = name.to_ascii_lowercase();
            if lower == "host" {
                self.cx.ledger.changed(piece, "the field Host is that of each request's server");
            }
            let is_own = ["content-length", "connection", "transfer-encoding", "host"].contains(&&*lower);
            if name.is_empty() || is_own {
                continue;
            }
            let value = self.secret(&name, &value, piece);
            all.push((name.to_ascii_lowercase(), value));
        }
        all
    }

    /// Variables that an element defines.
    fn define(&mut self, element: &Element) {
        for argument in list(element, "Arguments.arguments") {
            let (name, value) = (property(argument, "Argument.name"), property(argument, "Argument.value"));
            if !name.is_empty() {
                self.variables.insert(name, value);
            }
        }
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

    pub(super) fn assertion(&mut self, element: &Element) -> Vec<String> {
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
            return refuse(self, "its path depends on a variable, or its delimiter is not a comma");
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
}
