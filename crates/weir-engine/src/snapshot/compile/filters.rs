//! Consumers, and chains of filters.

use super::super::{Guards, Instance, List};
use super::Compiler;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use weir_config::de;
use weir_config::expression::{refusal, refusal_in_text};
use weir_config::schema;
use weir_config::spelling::nearest_name;
use weir_config::{Diagnostic, Diagnostics, Node, Severity};
use weir_filter::directory::{Directory, credential, labels};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::{
    Build, Conceals, Consumer, Consumers, FieldGuards, FilterKind, Hooks, Judged, Mistake, Settings, Written,
};
use weir_filter::store::Stores;
use weir_filter::template::sources;
use weir_h1::NameSet;
use weir_route::variables::Vocabulary;

/// The filters built so far, and what building them needs.
pub(super) struct Filters<'a> {
    pub(super) made: Vec<Arc<Instance>>,
    /// The parts of targets that they treat as secret.
    pub(super) conceals: Conceals,
    pub(super) consumers: &'a Consumers,
    pub(super) directory: Option<&'a Arc<Directory>>,
    /// Whether consumers may exist that the config does not name.
    pub(super) open_consumers: bool,
    pub(super) upstreams: &'a [String],
    /// The targets of the route being compiled.
    pub(super) targets: Vec<String>,
    pub(super) stores: &'a Stores,
    pub(super) vocabulary: &'a Vocabulary,
    /// Whether an expression may read the claims of tokens.
    pub(super) reads_claims: bool,
}

impl Compiler<'_> {
    pub(super) fn consumers(&self) -> Consumers {
        let plan_index = |name: &str| self.config.plans.names().position(|n| n == name);
        let consumers = self.config.consumers.iter().map(|(name, written)| Consumer {
            name: name.to_owned(),
            plan: written.plan.as_deref().and_then(plan_index),
            labels: labels(written).into(),
            allow_ips: written.allow_ips.iter().map(|n| n.0).collect(),
            credentials: written
                .credentials
                .iter()
                .map(|c| {
                    (
                        c.filter.clone(),
                        c.node.elements().iter().filter_map(credential).map(Cow::into_owned).collect(),
                    )
                })
                .collect(),
            number: 0,
        });
        consumers.collect()
    }

    pub(super) fn chain(
        &mut self,
        written: &[schema::FilterNode],
        scope: &str,
        captures: Option<&[String]>,
        filters: &mut Filters<'_>,
    ) -> Vec<u32> {
        written.iter().filter_map(|node| self.filter(node, scope, captures, filters)).collect()
    }

    fn filter(
        &mut self,
        written: &schema::FilterNode,
        scope: &str,
        captures: Option<&[String]>,
        filters: &mut Filters<'_>,
    ) -> Option<u32> {
        let path = &written.path;
        let Some(kind) = self.kinds.iter().find(|k| k.name == written.name) else {
            let nearest = nearest_name(&written.name, self.kinds.iter().map(|k| k.name));
            let all: Vec<&str> = self.kinds.iter().map(|k| k.name).collect();
            let hint = match nearest {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("expected one of: {}", all.join(", ")),
            };
            self.error(
                path,
                "unknown-filter",
                format!("there is no filter `{}`", written.shown),
                Some(hint.into()),
            );
            return None;
        };
        let before = self.found.errors();
        let reads_body = Cell::new(false);
        let mut build = Build {
            scope,
            consumers: filters.consumers,
            directory: filters.directory,
            open_consumers: filters.open_consumers,
            watch: self.config.watch,
            upstreams: filters.upstreams,
            targets: &filters.targets,
            stores: filters.stores,
            captures,
            kinds: self.kinds,
            kept: &mut self.carry.kept,
            files: self.files,
            kind: kind.name,
            settings: String::new(),
            mistakes: Vec::new(),
            vocabulary: filters.vocabulary,
            expressions: Vec::new(),
            reads_claims: filters.reads_claims,
            reads_body: &reads_body,
            warnings: Vec::new(),
        };
        let mut settings = Settings { node: &written.node, path, found: self.found };
        let built = (kind.build)(&mut settings, &mut build);
        let (mistakes, warnings, expressions) = (build.mistakes, build.warnings, build.expressions);
        let path_of = |field: &str| match field {
            "" => path.clone(),
            field if field.starts_with('[') => format!("{path}{field}"),
            field => format!("{path}.{field}"),
        };
        let place_of = |mistake: &Mistake| path_of(&mistake.field);
        let mut changed = HashSet::new();
        let mut shown = Vec::new();
        for Written { field, is_sound, in_text } in expressions {
            let at = path_of(&field);
            let key = field.rsplit('.').next().unwrap_or(&field);
            let Some(node) = self.tree.find(&at) else { continue };
            let refused = match in_text {
                true => refusal_in_text(node, key, self.found, is_sound, sources),
                false => refusal(node, key, self.found, |_| is_sound),
            };
            if let Some(mut refused) = refused {
                refused.path = at;
                self.found.push(refused);
                changed.insert(field);
            } else if let Some(text) = node.as_text() {
                let (text, is_public) = (text.to_owned(), is_public(node));
                shown.push(WithExpressions { key: field, text, is_condition: !in_text, is_public });
            }
        }
        for (code, warning) in warnings {
            let at = place_of(&warning);
            let told = Diagnostic::warning(code, warning.message).on(self.tree, &at);
            self.found.push(match warning.hint {
                Some(hint) => told.hint(hint),
                None => told,
            });
        }
        for mistake in &mistakes {
            if self.is_of_consumers(kind.name, mistake) || changed.contains(&mistake.field) {
                continue;
            }
            let at = place_of(mistake);
            if let Some(offset) = mistake.offset {
                self.expression_mistake(&at, offset, mistake.message.clone(), mistake.hint.clone());
                continue;
            }
            self.error(&at, "filter-setting", mistake.message.clone(), mistake.hint.clone());
        }
        if built.is_none() && mistakes.is_empty() && self.found.errors() == before {
            self.error(path, "filter-setting", "the filter refused its settings", None);
        }
        let lists: Box<[List]> =
            kind.lists.iter().map(|key| self.list(key, written, (scope, captures), filters)).collect();
        let mut built = built.filter(|_| mistakes.is_empty() && changed.is_empty())?;
        let judged = self.is_judged(kind, &built.settings);
        let names_caller = kind.name.ends_with("_auth") || matches!(kind.name, "any" | "jwt" | "oidc");
        let hidden = hide_secrets(&mut built.settings, &written.node);
        let reads_body = if reads_body.get() { Hooks::READS_BODY } else { Hooks::NONE };
        let hooks = built.filter.hooks() | of_lists(&lists, &filters.made) | reads_body;
        filters.conceals = std::mem::take(&mut filters.conceals).and(built.filter.conceals());
        let reads_path_key = built.filter.conceals().path_key;
        let FieldGuards { request, response } = built.filter.guards();
        let guards = Guards { request: NameSet::new(request), response: NameSet::new(response) };
        filters.made.push(Arc::new(Instance {
            name: kind.name,
            place: scope.into(),
            filter: built.filter,
            hooks,
            reads_path_key,
            guards,
            lists,
            settings: built.settings,
            expressions: shown.into(),
            hidden,
            // The consumers of a source are known only to the snapshot that runs.
            judged: judged && !(names_caller && filters.directory.is_some()),
            names_caller,
        }));
        u32::try_from(filters.made.len() - 1).ok()
    }

    /// Whether the head decides alone what a filter with these settings does.
    fn is_judged(&self, kind: &FilterKind, settings: &serde_json::Value) -> bool {
        match kind.judged {
            Judged::ByHead => true,
            Judged::Never => false,
            Judged::ByMembers => {
                let members = settings.as_array().into_iter().flatten();
                let mut names = members.filter_map(|member| member.as_object()?.keys().next());
                let by_head = |name: &String| {
                    self.kinds.iter().any(|kind| kind.name == name && kind.judged == Judged::ByHead)
                };
                names.all(by_head)
            }
        }
    }

    /// The filters of a list in a filter's settings. If it is none, building the filter has reported that.
    fn list(
        &mut self,
        key: &'static str,
        written: &schema::FilterNode,
        (scope, captures): (&str, Option<&[String]>),
        filters: &mut Filters<'_>,
    ) -> List {
        let path = format!("{}.{key}", written.path);
        let list: Option<Vec<schema::FilterNode>> =
            written.node.get(key).and_then(|node| de::read(node, &path, &mut Diagnostics::default()));
        let chain = self.chain(&list.unwrap_or_default(), scope, captures, filters);
        List { key: key.into(), chain: chain.into() }
    }

    /// Whether a credentials filter only repeats an error already reported at the consumers.
    fn is_of_consumers(&self, filter: &str, mistake: &Mistake) -> bool {
        let mut credentials = self.config.consumers.iter().flat_map(|(_, consumer)| &consumer.credentials);
        // Credentials under an unknown key belong to this filter if it has no others.
        let unknown = |d: &Diagnostic| d.code == "unknown-credential";
        let told = |d: &Diagnostic| d.severity == Severity::Error && d.path.starts_with("consumers.");
        // `[1].key_auth`: an error of a filter inside `any` about all its settings.
        let filter = match mistake.field.strip_prefix('[').and_then(|field| field.split_once("].")) {
            Some((_, name)) if !name.contains('.') => name,
            _ if mistake.field.is_empty() => filter,
            _ => return false,
        };
        let known = credentials.any(|c| c.filter == filter);
        (known && self.found.iter().any(told)) || (!known && self.found.iter().any(unknown))
    }
}

/// Whether a filter names users of a file as consumers.
pub(super) fn has_user_files(config: &schema::Config) -> bool {
    fn within(node: &Node) -> bool {
        let own = node.get("basic_auth").is_some_and(|settings| settings.get("file").is_some());
        own || node.entries().iter().any(|(_, node)| within(node)) || node.elements().iter().any(within)
    }
    let names = |filter: &schema::FilterNode| {
        filter.name == "basic_auth" && filter.node.get("file").is_some() || within(&filter.node)
    };
    config.all_filters().any(names)
}

/// The hooks that a filter has by its lists: it answers every request if a filter of each list does.
pub(super) fn of_lists(lists: &[List], made: &[Arc<Instance>]) -> Hooks {
    let has = |list: &List, hooks| {
        let mut filters = list.chain.iter().filter_map(|&filter| made.get(filter as usize));
        filters.any(|filter| filter.hooks.has_any(hooks))
    };
    let each = |hooks| !lists.is_empty() && lists.iter().all(|list| has(list, hooks));
    let set = |is, hooks| if is { hooks } else { Hooks::NONE };
    set(each(Hooks::ANSWERS), Hooks::ANSWERS)
        | set(each(Hooks::ANSWERS | Hooks::ANSWERS_PLAIN), Hooks::ANSWERS_PLAIN)
        | set(lists.iter().any(|list| has(list, Hooks::UNROUTED)), Hooks::UNROUTED)
}

/// Whether everybody who may see a config may see this value.
pub(super) fn is_public(node: &Node) -> bool {
    let mut hidden = Vec::new();
    node.add_concealed(&mut hidden);
    node.add_quotable(&mut hidden);
    hidden.is_empty()
}

/// Hides secrets in settings that `weir explain` shows. Values from the environment or a file are usually secret. A
/// filter may show a value elsewhere or in another form, so it is searched for everywhere. Returns a digest of the
/// values, 0 for none.
fn hide_secrets(shown: &mut serde_json::Value, written: &Node) -> u64 {
    /// A shorter value is hidden only at its own place: elsewhere it would match too much.
    const LEAST: usize = 3;
    let mut outside = Vec::new();
    written.add_concealed(&mut outside);
    written.add_quotable(&mut outside);
    if outside.is_empty() {
        return 0;
    }
    let mut digest = Sha256::new();
    for value in &outside {
        digest.update((value.len() as u64).to_be_bytes()); // the lengths make the encoding unambiguous
        digest.update(value.as_bytes());
    }
    let hidden = digest.finalize().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)).max(1);
    hide_at(shown, written);
    let long = outside.iter().filter(|value| value.len() >= LEAST);
    let values: Vec<String> = long.map(|value| value.to_lowercase()).collect();
    hide_texts(shown, &|text| {
        let text = text.to_lowercase();
        values.iter().any(|value| text.contains(value))
    });
    hidden
}

/// Hides values at the places where they were written.
fn hide_at(shown: &mut serde_json::Value, written: &Node) {
    if (written.substituted || written.secret) && written.as_text().is_some() {
        hide_texts(shown, &|_| true);
    }
    for (key, node) in written.entries() {
        if let Some(value) = shown.get_mut(&*key.text) {
            hide_at(value, node);
        }
    }
    for (i, node) in written.elements().iter().enumerate() {
        if let Some(value) = shown.get_mut(i) {
            hide_at(value, node);
        }
    }
}

fn hide_texts(shown: &mut serde_json::Value, hides: &dyn Fn(&str) -> bool) {
    match shown {
        serde_json::Value::String(text) if hides(text) => "***".clone_into(text),
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| hide_texts(value, hides)),
        serde_json::Value::Object(values) => values.values_mut().for_each(|value| hide_texts(value, hides)),
        _ => {}
    }
}
