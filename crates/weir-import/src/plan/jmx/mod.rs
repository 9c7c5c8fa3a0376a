//! Test plans of JMeter: thread groups become scenarios, samplers of HTTP requests, with what is in scope for them:
//! defaults, header managers, timers, extractors and assertions. Elements that run programs or need other protocols are
//! refused by name.

mod config;
mod groups;
mod sampler;
mod texts;

use super::har::hoist;
use super::model::{Does, Keep, NESTING, Plan, Scenario, Step, Target};
use super::vault::is_secret;
use super::{Cx, Kind, keeps, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::Map;
use std::collections::{BTreeMap, BTreeSet};
use weir_report::xml::{self, Element};

pub(super) static KIND: Kind = Kind { name: "jmx", title: "JMeter test plan", import };

/// Most bytes of all texts with their variables filled in: variables that name each other grow without limit.
const TEXT_BYTES: usize = 16 << 20;
/// Deepest controllers within each other.
const CONTROLLERS: usize = 50;

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
        left: TEXT_BYTES,
    };
    importer.collect_variables(&root);
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
    /// Whether each iteration begins without cookies.
    forgets_cookies: bool,
    /// Whether the thread group says so.
    cookies_of_group: bool,
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
    /// Bytes of texts that may still be made of variables.
    left: usize,
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

/// The part of an element that has this name.
fn child<'e>(element: &'e Element, name: &str) -> Option<&'e Element> {
    element.children.iter().find(|child| child.attribute("name") == Some(name))
}

/// The items of the list of an element that has this name.
fn list<'e>(element: &'e Element, name: &str) -> &'e [Element] {
    child(element, name).map(|list| list.children.as_slice()).unwrap_or_default()
}

/// A property of an element.
fn property(element: &Element, name: &str) -> String {
    child(element, name).map_or_else(String::new, |child| child.text.trim().to_owned())
}

fn is_on(element: &Element, name: &str) -> bool {
    property(element, name) == "true"
}

fn is_enabled(element: &Element) -> bool {
    element.attribute("enabled") != Some("false")
}

/// Whether an element is one that [`Importer::scope`] reads.
fn is_config(name: &str) -> bool {
    const ALL: &[&str] = &[
        "Arguments",
        "AuthManager",
        "CSVDataSet",
        "ConfigTestElement",
        "CookieManager",
        "DurationAssertion",
        "HeaderManager",
        "JSONPathAssertion",
        "ResponseAssertion",
    ];
    ALL.contains(&name) || name.ends_with("Timer")
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
                let piece = self.enter(element);
                self.cx.ledger.by_itself(piece, "it is switched off");
                continue;
            }
            match &*element.name {
                "TestPlan" => {
                    if is_on(element, "TestPlan.serialize_threadgroups") {
                        let why = "its thread groups run one after the other, and scenarios run at once";
                        self.refuse(element, why, "`start_at:` of the scenarios");
                    }
                    self.top(inner, &scope);
                }
                name if name.ends_with("ThreadGroup") => self.group(element, inner, &scope),
                "TestFragmentController" => self.refuse(
                    element,
                    "a test fragment runs only where a module names it",
                    "its steps, where they belong",
                ),
                name if LISTENERS.contains(&name) => self.listener(element),
                name if is_config(name) => {}
                _ => self.refuse(
                    element,
                    "an element outside of thread groups that is not followed",
                    "`defaults:` of the plan, or `keep:` and `checks:` of the steps",
                ),
            }
        }
    }

    fn listener(&mut self, element: &Element) {
        let piece = self.enter(element);
        self.cx.ledger.by_itself(piece, "it changes no request: `weir load` has reports of its own");
    }

    /// The steps of a tree.
    fn steps(
        &mut self,
        tree: Option<&Element>,
        around: &Scope,
        scenario: &mut Scenario,
        is_nested: bool,
    ) -> Vec<Step> {
        if around.depth > CONTROLLERS {
            if let Some((element, _)) = pairs(tree).first() {
                let why = format!("controllers are nested more than {CONTROLLERS} deep");
                self.refuse(element, &why, "fewer levels");
            }
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
                _ if LISTENERS.contains(&name) => self.listener(element),
                _ if is_config(name) => {}
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
