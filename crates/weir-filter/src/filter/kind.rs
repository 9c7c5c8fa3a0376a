//! Turns settings into filters: kinds, the registry's entries, and what settings can use while they are built.

use super::directory::{CredentialIndex, CredentialReader, Directory};
use super::{Consumers, Filter, Places, Switch};
use crate::store::{Place, Room, Server, Store, Stores};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use weir_config::schema::FilePath;
use weir_config::spelling::nearest_name;
use weir_config::{Diagnostics, Node, de};
use weir_route::variables::Vocabulary;
use weir_upstream::error::Cause;
use weir_upstream::fetch::Fetcher;
use weir_wire::Context;

/// A kind of filter: the registry's entry.
pub struct FilterKind {
    /// Name in a config.
    pub name: &'static str,
    /// The JSON Schema of its settings; its description is the filter's documentation.
    pub schema: fn() -> Schema,
    /// The causes it answers with.
    pub causes: &'static [&'static Cause],
    /// Whether it controls access.
    pub access: Access,
    /// The settings that hold lists of filters, of which it chooses one for each request ([`Flow::Run`]). They stand
    /// in the chain of its route and run in its place.
    ///
    /// [`Flow::Run`]: super::Flow::Run
    pub lists: &'static [&'static str],
    /// How the credentials of consumers of sources are read; `None` if it takes none.
    pub index: Option<CredentialReader>,
    /// Whether `weir shadow` may run it on a copy of a head.
    pub judged: Judged,
    /// Builds the filter from its settings. Mistakes go to [`Settings::found`] or to [`Build::refuse`].
    pub build: fn(&mut Settings<'_>, &mut Build<'_>) -> Option<Built>,
}

/// Whether a kind of filter controls access.
///
/// The guard never reverts a change to one that does: see `history/access.rs`. If in doubt, a kind decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It refuses requests, names callers, or changes what the upstream decides by.
    Decides,
    /// Every request reaches the same upstream with or without it.
    Never,
}

/// Whether `on_request` of a kind may run a second time, on a copy of a head, to learn what it would decide.
///
/// The default is `Never`, which is safe for every kind. `weir shadow` then takes the verdict from the live exchange if
/// the same filter ran there, and otherwise says that it would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The head, the caller and the settings decide. `on_request` changes nothing outside its exchange, except that it
    /// may remember what it computed. If it answers [`Flow::Wait`](super::Flow::Wait), its verdict is not known.
    ByHead,
    /// As its members, which its settings list.
    ByMembers,
    /// It counts, calls, queues, draws random numbers, reads a body, or has state that an operator sets.
    Never,
}

/// A filter ready to run, and its resolved settings for `weir explain`.
pub struct Built {
    /// The filter.
    pub filter: Box<dyn Filter>,
    /// Its settings with all defaults filled in.
    pub settings: serde_json::Value,
}

/// A filter's settings as written.
pub struct Settings<'a> {
    /// The node in the config.
    pub node: &'a Node,
    /// Its place, such as `routes.orders.filters[0].key_auth`.
    pub path: &'a str,
    /// Where to report mistakes found while reading.
    pub found: &'a mut Diagnostics,
}

/// Settings that need more than themselves to become a filter: other parts of the config, or state that outlives a
/// reload.
pub trait IntoFilter: DeserializeOwned + Serialize + JsonSchema + 'static {
    /// The resulting filter.
    type Filter: Filter;

    /// Builds the filter. Reports all mistakes to [`Build::refuse`], then returns `None`.
    fn into_filter(self, build: &mut Build<'_>) -> Option<Self::Filter>;
}

impl FilterKind {
    /// A filter that is its own settings.
    pub const fn of<F: Filter + DeserializeOwned + Serialize + JsonSchema>(name: &'static str) -> Self {
        Self::new(name, schema_of::<F>, build_plain::<F>)
    }

    /// A filter built from separate settings.
    pub const fn made_from<S: IntoFilter>(name: &'static str) -> Self {
        Self::new(name, schema_of::<S>, build_made::<S>)
    }

    const fn new(
        name: &'static str,
        schema: fn() -> Schema,
        build: fn(&mut Settings<'_>, &mut Build<'_>) -> Option<Built>,
    ) -> Self {
        Self {
            name,
            schema,
            causes: &[],
            access: Access::Decides,
            lists: &[],
            index: None,
            judged: Judged::Never,
            build,
        }
    }

    /// Adds the causes that it answers with.
    #[must_use]
    pub const fn with_causes(mut self, causes: &'static [&'static Cause]) -> Self {
        self.causes = causes;
        self
    }

    /// Names the settings that hold its lists of filters.
    #[must_use]
    pub const fn with_lists(mut self, lists: &'static [&'static str]) -> Self {
        self.lists = lists;
        self
    }

    /// Declares how it finds consumers of sources.
    #[must_use]
    pub const fn with_index<I: CredentialIndex>(mut self) -> Self {
        self.index = Some(CredentialReader::of::<I>());
        self
    }

    /// Declares that the head, the caller and the settings decide alone: see [`Judged::ByHead`].
    #[must_use]
    pub const fn judged_by_head(mut self) -> Self {
        self.judged = Judged::ByHead;
        self
    }

    /// Marks it as a kind that never controls access.
    #[must_use]
    pub const fn without_access(mut self) -> Self {
        self.access = Access::Never;
        self
    }
}

impl fmt::Debug for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilterKind").field(&self.name).finish()
    }
}

fn schema_of<T: JsonSchema>() -> Schema {
    schemars::schema_for!(T)
}

fn read<T: DeserializeOwned>(settings: &mut Settings<'_>) -> Option<T> {
    // `read` may return a partial value, but a filter is built from all or nothing.
    let before = settings.found.errors();
    let value = de::read(settings.node, settings.path, settings.found);
    value.filter(|_| settings.found.errors() == before)
}

fn build_plain<F: Filter + DeserializeOwned + Serialize>(
    settings: &mut Settings<'_>,
    _: &mut Build<'_>,
) -> Option<Built> {
    let filter: F = read(settings)?;
    Some(Built { settings: serde_json::to_value(&filter).unwrap_or_default(), filter: Box::new(filter) })
}

fn build_made<S: IntoFilter>(settings: &mut Settings<'_>, build: &mut Build<'_>) -> Option<Built> {
    let made_from: S = read(settings)?;
    let settings = serde_json::to_value(&made_from).unwrap_or_default();
    build.settings = settings.to_string();
    Some(Built { filter: Box::new(made_from.into_filter(build)?), settings })
}

/// What settings can use while they become a filter.
pub struct Build<'a> {
    /// Where the filter is: `routes.NAME`, `plans.NAME` or `filters`. Part of the key of kept state.
    pub scope: &'a str,
    /// All consumers of the config.
    pub consumers: &'a Consumers,
    /// The consumers of sources.
    pub directory: Option<&'a Arc<Directory>>,
    /// Whether consumers may exist that the config does not name: those of sources, and users in files.
    pub open_consumers: bool,
    /// Whether files are watched: `watch`.
    pub watch: bool,
    /// Names of all upstreams.
    pub upstreams: &'a [String],
    /// The upstreams that the route leads to; none if the filter serves several routes.
    pub targets: &'a [String],
    /// The config's stores, by name.
    pub stores: &'a Stores,
    /// Names that the route's path captures. `None` if the filter serves several routes (`filters`, `plans.NAME`),
    /// because the names then depend on the request.
    pub captures: Option<&'a [String]>,
    /// All kinds of filters, for filters that contain others.
    pub kinds: &'a [&'static FilterKind],
    /// State of earlier snapshots.
    pub kept: &'a mut Kept,
    /// Files whose change builds a new snapshot: see [`Build::read_file`].
    pub files: &'a mut Vec<PathBuf>,
    /// Name of the kind being built.
    pub kind: &'static str,
    /// The resolved settings, if any. Part of the key of kept state.
    pub settings: String,
    /// Every mistake so far.
    pub mistakes: Vec<Mistake>,
    /// What expressions may name.
    pub vocabulary: &'a Vocabulary,
    /// Every expression so far.
    pub expressions: Vec<Written>,
    /// Whether an expression of the config may read the claims of a token.
    pub reads_claims: bool,
    /// Whether an expression so far names `request.body`.
    pub reads_body: &'a Cell<bool>,
    /// Every warning so far, with its code.
    pub warnings: Vec<(&'static str, Mistake)>,
}

/// Where an expression stands in a filter's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Key within the settings.
    pub field: String,
    /// Whether it has no mistakes.
    pub is_sound: bool,
    /// Whether it is a part of a text, `{= … }`.
    pub in_text: bool,
}

/// A mistake in a filter's settings that only building it reveals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Key within the settings; empty for all of them.
    pub field: String,
    /// What is wrong and what was expected. A literal is used as it is; secrets are removed from any other text.
    pub message: Cow<'static, str>,
    /// What to do. The same applies to it.
    pub hint: Option<Cow<'static, str>>,
    /// The byte of the value at which it stands, within an expression.
    pub offset: Option<usize>,
}

impl Build<'_> {
    /// Reports a mistake.
    pub fn refuse(
        &mut self,
        field: &str,
        message: impl Into<Cow<'static, str>>,
        hint: Option<Cow<'static, str>>,
    ) {
        let field = field.to_owned();
        self.mistakes.push(Mistake { field, message: message.into(), hint, offset: None });
    }

    /// Reports it if the config has no upstream `name`.
    pub fn needs_upstream(&mut self, field: &str, name: &str) {
        if self.upstreams.iter().any(|known| known == name) {
            return;
        }
        let hint = match nearest_name(name, self.upstreams.iter().map(String::as_str)) {
            Some(near) => format!("write {near}"),
            None => "name one of `upstreams`".to_owned(),
        };
        self.refuse(field, format!("there is no upstream `{name}`"), Some(hint.into()));
    }

    /// Warns of something that does not prevent the filter from running. `code` is stable and in kebab-case: scripts
    /// may depend on it.
    pub fn warn(
        &mut self,
        field: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: Option<Cow<'static, str>>,
    ) {
        let field = field.to_owned();
        self.warnings.push((code, Mistake { field, message: message.into(), hint, offset: None }));
    }

    /// State that outlives a reload while this filter's settings, its place and `key` stay the same. For state that
    /// can be rebuilt, such as a cache; `make` creates it if there is none. For state that must not be lost use
    /// [`Build::keep_for`].
    pub fn keep<T: Send + Sync + 'static>(&mut self, key: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let key = self.key(key);
        self.kept.get_or_make(key, Hooked::default(), make)
    }

    /// State that a task on the control thread keeps up to date, such as fetched keys. All filters of this kind with
    /// the same `key` share it, whatever their place and other settings. The task starts when a snapshot with such a
    /// filter runs, and ends when none is left.
    pub fn keep_tended<T: Tended>(&mut self, key: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.kept.keep_tended(format!("\0{}\0{key}", self.kind), make)
    }

    /// Reads a file of at most `limit` bytes that the settings name. The file is then watched, and a change rebuilds
    /// the filter.
    ///
    /// # Errors
    /// What is wrong, as text for a mistake.
    pub fn read_file(&mut self, path: &FilePath, limit: usize) -> Result<Vec<u8>, String> {
        let path = &path.0;
        self.files.push(path.clone());
        let shown = path.display();
        let file = File::open(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
        let mut bytes = Vec::new();
        let most = limit as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(|e| format!("{shown} cannot be read: {e}"))?;
        if bytes.len() > limit {
            return Err(format!("{shown} is longer than {limit} bytes"));
        }
        Ok(bytes)
    }

    /// State identified by its purpose: the filter's place, its kind, and `purpose`, such as whom a limit counts and
    /// over which period. No other setting is part of the name, so the state outlives changes to them, and even a
    /// renamed route or plan. Filters with the same place and purpose are distinguished by their order.
    ///
    /// `fits` says whether the state can continue as it is. If not, `make` gets it and makes its successor, which
    /// replaces it when the snapshot runs. State that no filter asks for is dropped, and the answer to the config
    /// change says so.
    pub fn keep_for<T: Send + Sync + 'static>(
        &mut self,
        purpose: &str,
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce(Option<&T>) -> T,
    ) -> Arc<T> {
        let place = Purpose { scope: self.scope, kind: self.kind, purpose };
        self.kept.keep_for(place, Hooked::default(), fits, |_| None, make)
    }

    /// As [`Build::keep_for`], for state that also outlives the process: an upgrade hands it over. `load` reads what
    /// [`Portable::save`] returned, or returns `None` if it cannot; then `make` creates the state.
    pub fn keep_portable_for<T: Portable>(
        &mut self,
        purpose: &str,
        fits: impl FnOnce(&T) -> bool,
        load: impl FnOnce(&[u8]) -> Option<T>,
        make: impl FnOnce(Option<&T>) -> T,
    ) -> Arc<T> {
        let save: Save = |state| state.downcast_ref::<T>().map(Portable::save);
        let hooked = Hooked { save: Some(save), ..Hooked::default() };
        let place = Purpose { scope: self.scope, kind: self.kind, purpose };
        self.kept.keep_for(place, hooked, fits, load, make)
    }

    /// How many filters with this place and kind have asked for state with this purpose so far.
    pub fn asked_for(&self, purpose: &str) -> usize {
        let place = Purpose { scope: self.scope, kind: self.kind, purpose };
        self.kept.asked.get(&place.name(self.scope)).copied().unwrap_or_default()
    }

    /// The switch of this name, which operators set: shared by all filters that name it.
    pub fn switch(&mut self, name: &str) -> Arc<Switch> {
        let key = format!("{SWITCH}{name}");
        let inherited = self.kept.inherited.remove(&key);
        let save: Save = |state| state.downcast_ref::<Switch>().map(Portable::save);
        self.kept.get_or_make(key, Hooked { save: Some(save), ..Hooked::default() }, || {
            inherited.and_then(|saved| Switch::load(&saved)).unwrap_or_default()
        })
    }

    /// The Redis that a setting names, shared by all filters that name it. It outlives reloads that do not change it.
    pub fn store(&mut self, field: &str, name: &str) -> Option<Arc<Store>> {
        let of_fleet = |place: &Place| matches!(place.server, Server::Fleet(_));
        if self.stores.shared.get(name).is_some_and(of_fleet) {
            let wrong = (Some("is the fleet, which keeps limits alone"), None);
            self.refuse_store(field, name, wrong, "redis: redis://127.0.0.1:6379");
            return None;
        }
        self.store_of_limits(field, name)
    }

    /// As [`Self::store`], for state that the fleet can keep too.
    pub fn store_of_limits(&mut self, field: &str, name: &str) -> Option<Arc<Store>> {
        let Some(place) = self.stores.shared.get(name) else {
            let wrong = self.stores.memory.contains_key(name).then_some("is memory of this gateway alone");
            let near = nearest_name(name, self.stores.shared.keys().map(String::as_str)).map(str::to_owned);
            self.refuse_store(field, name, (wrong, near), "redis: redis://127.0.0.1:6379");
            return None;
        };
        let key = format!("\0store\0{name}\0{place:?}");
        let make = || Store::new(name.to_owned(), place.clone());
        Some(self.kept.get_or_make(key, Hooked::default(), make))
    }

    /// A store's room in this gateway's memory, and perhaps on its disk.
    pub fn room_of(&mut self, field: &str, name: &str) -> Option<Room> {
        let room = self.stores.memory.get(name).cloned();
        if room.is_none() {
            let wrong = self.stores.shared.get(name).map(|place| match place.server {
                Server::Fleet(_) => "is the fleet, which keeps no answers",
                Server::Redis { .. } => "is a Redis, which keeps no answers",
            });
            let near = nearest_name(name, self.stores.memory.keys().map(String::as_str)).map(str::to_owned);
            self.refuse_store(field, name, (wrong, near), "memory: 256MiB");
        }
        room
    }

    fn refuse_store(
        &mut self,
        field: &str,
        name: &str,
        (wrong, near): (Option<&str>, Option<String>),
        example: &str,
    ) {
        let message = match wrong {
            Some(wrong) => format!("the store `{name}` {wrong}"),
            None => format!("there is no store `{name}`"),
        };
        let free = if wrong.is_some() { "NAME" } else { name };
        let hint = near
            .map_or(format!("write stores: {{ {free}: {{ {example} }} }}"), |near| format!("write {near}"));
        self.refuse(field, message, Some(hint.into()));
    }

    /// What filters of this kind keep in a store of the config. All that name this store and the same `key` share it,
    /// whatever their place and other settings. It outlives reloads, and operators may purge it.
    pub fn keep_in_store<T: Purgeable>(
        &mut self,
        store: &str,
        key: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let purgeable: AsPurgeable = |state| {
            let state: Arc<T> = state.downcast().expect("the key holds the kind, which decides the type");
            state
        };
        let hooked = Hooked { purgeable: Some(purgeable), ..Hooked::default() };
        self.kept.get_or_make(format!("{STORED}{store}\0{}\0{key}", self.kind), hooked, make)
    }

    fn key(&self, key: &str) -> String {
        format!("{}\0{}\0{}\0{key}", self.scope, self.kind, self.settings)
    }
}

/// The purpose of kept state.
#[derive(Clone, Copy)]
struct Purpose<'a> {
    scope: &'a str,
    kind: &'a str,
    purpose: &'a str,
}

impl Purpose<'_> {
    /// The name of such state in a scope, without its number.
    fn name(self, scope: &str) -> String {
        format!("{FOR}{scope}\0{}\0{}", self.kind, self.purpose)
    }
}

/// The start of a key of state [kept for a purpose](Build::keep_for). Scope, kind, purpose and number follow,
/// separated by NULs.
const FOR: &str = "\0for\0";

/// The key of the scopes in a hand-over.
const PLACES: &str = "\0places";

/// The name of kept state in readable form.
fn shown(key: &str) -> Option<String> {
    let mut parts = key.strip_prefix(FOR)?.split('\0');
    let (scope, kind, purpose) = (parts.next()?, parts.next()?, parts.next()?);
    Some(if purpose.is_empty() { format!("{scope} {kind}") } else { format!("{scope} {kind} ({purpose})") })
}

/// The start of a key of [`Purgeable`] state; the store's name follows, up to a NUL.
const STORED: &str = "\0stored\0";

/// The start of a key of a [`Switch`]; its name follows.
const SWITCH: &str = "\0switch\0";

/// State that can be serialized for the process that an upgrade starts.
pub trait Portable: Send + Sync + 'static {
    /// All of it, in a form that its filter in this or another version can read or reject. Called while requests are
    /// served.
    fn save(&self) -> Vec<u8>;
}

/// State that a task on the control thread keeps up to date.
pub trait Tended: Send + Sync + 'static {
    /// The task, which runs until it is dropped. It must not block: the whole control side shares one thread.
    fn tend(self: Arc<Self>, fetcher: Fetcher) -> Tending;
}

/// What [`Tended::tend`] returns.
pub type Tending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// State in a store of the config that operators can purge.
pub trait Purgeable: Send + Sync + 'static {
    /// Removes matching objects and returns their number. Objects on their way into the store are not kept either.
    fn purge(&self, what: &[Purge]) -> usize;

    /// Opens what it has besides memory, before a snapshot that uses it runs. Does nothing if that is open.
    /// `successor` says that this process replaces another, which may still have it open.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&self, successor: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = successor;
        Ok(())
    }

    /// Releases what [`open`](Self::open) opened, for the process that replaces this one.
    fn release(&self) {}
}

/// What to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Everything.
    All,
    /// All URLs with this prefix.
    Prefix(String),
    /// All answers that had this word in `Surrogate-Key` or `Cache-Tag`.
    Tag(String),
    /// All variants of one URL.
    Url(String),
}

type AsPurgeable = fn(Arc<dyn Any + Send + Sync>) -> Arc<dyn Purgeable>;
type Save = fn(&(dyn Any + Send + Sync)) -> Option<Vec<u8>>;
type Tend = fn(Arc<dyn Any + Send + Sync>, Fetcher) -> Tending;

/// What can be done with kept state besides keeping it.
#[derive(Clone, Copy, Default)]
struct Hooked {
    save: Option<Save>,
    purgeable: Option<AsPurgeable>,
    tend: Option<Tend>,
}

/// Dropping it ends the task of a state.
struct Working(AbortHandle);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// State of filters that outlives a reload. State that must not be lost is found by place, kind and purpose; the rest
/// by place, kind and all settings.
///
/// While a snapshot is built, the state it asks for is marked. When it is adopted, unmarked state is dropped
/// (`sweep`), so that memory does not grow with the number of reloads.
#[derive(Default)]
pub struct Kept {
    states: HashMap<String, KeptState>,
    /// What the previous process saved, until the first snapshot has taken its part.
    inherited: HashMap<String, Vec<u8>>,
    /// State [kept for a purpose](Build::keep_for) of the snapshot being built. It replaces the running state when
    /// that snapshot runs.
    next: HashMap<String, KeptState>,
    /// The keys under which state in `next` runs now.
    taken: HashSet<String>,
    /// How many filters asked for state of one name.
    asked: HashMap<String, usize>,
    /// The scopes of the running snapshot and of the one being built, and which of the latter were renamed.
    places: Places,
    next_places: Places,
    renamed: HashMap<String, String>,
}

struct KeptState {
    state: Arc<dyn Any + Send + Sync>,
    used: bool,
    hooked: Hooked,
    working: Option<Working>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.states.len()).finish()
    }
}

impl Kept {
    /// State that a task on the control thread keeps up to date. The key decides the type.
    pub fn keep_tended<T: Tended>(&mut self, key: String, make: impl FnOnce() -> T) -> Arc<T> {
        let tend: Tend = |state, fetcher| {
            let state: Arc<T> = state.downcast().expect("the key decides the type");
            state.tend(fetcher)
        };
        self.get_or_make(key, Hooked { tend: Some(tend), ..Hooked::default() }, make)
    }

    /// State that outlives reloads under this key, which decides the type: for what the engine itself puts into chains.
    pub fn keep<T: Send + Sync + 'static>(&mut self, key: String, make: impl FnOnce() -> T) -> Arc<T> {
        self.get_or_make(key, Hooked::default(), make)
    }

    fn get_or_make<T: Send + Sync + 'static>(
        &mut self,
        key: String,
        hooked: Hooked,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let entry = self.states.entry(key);
        let kept =
            entry.or_insert_with(|| KeptState { state: Arc::new(make()), used: true, hooked, working: None });
        kept.used = true;
        Arc::clone(&kept.state).downcast().expect("the key holds kind and settings, which decide the type")
    }

    fn keep_for<T: Send + Sync + 'static>(
        &mut self,
        of: Purpose<'_>,
        hooked: Hooked,
        fits: impl FnOnce(&T) -> bool,
        load: impl FnOnce(&[u8]) -> Option<T>,
        make: impl FnOnce(Option<&T>) -> T,
    ) -> Arc<T> {
        let name = of.name(of.scope);
        let number = self.asked.entry(name.clone()).or_default();
        *number += 1;
        let key = format!("{name}\0{number}");
        let before = self.renamed.get(of.scope).map(|scope| format!("{}\0{number}", of.name(scope)));
        let known = |key: &&String| self.states.contains_key(*key) || self.inherited.contains_key(*key);
        let source = [Some(&key), before.as_ref()].into_iter().flatten().find(known).unwrap_or(&key);
        let running = self.states.get(source).and_then(|kept| Arc::clone(&kept.state).downcast::<T>().ok());
        let saved = self.inherited.get(source);
        let state = match running {
            Some(running) if fits(&running) => running,
            Some(running) => Arc::new(make(Some(&running))),
            None => Arc::new(saved.and_then(|saved| load(saved)).unwrap_or_else(|| make(None))),
        };
        self.taken.insert(source.clone());
        let kept = KeptState { state: Arc::clone(&state) as Arc<_>, used: true, hooked, working: None };
        self.next.insert(key, kept);
        state
    }

    /// What is [kept in stores](Build::keep_in_store), by store name.
    pub fn stored(&self) -> Vec<(String, Arc<dyn Purgeable>)> {
        let found = self.states.iter().filter_map(|(key, kept)| {
            let (store, _) = key.strip_prefix(STORED)?.split_once('\0')?;
            Some((store.to_owned(), (kept.hooked.purgeable?)(Arc::clone(&kept.state))))
        });
        found.collect()
    }

    /// The running snapshot's switches, by name.
    pub fn switches(&self) -> Vec<(String, Arc<Switch>)> {
        let found = self.states.iter().filter_map(|(key, kept)| {
            let name = key.strip_prefix(SWITCH)?;
            Some((name.to_owned(), Arc::clone(&kept.state).downcast().ok()?))
        });
        found.collect()
    }

    /// Opens what the snapshot just built keeps in stores.
    pub fn open_stores(&self, successor: bool) -> Result<(), Context> {
        for (key, kept) in self.states.iter().filter(|(_, kept)| kept.used) {
            if let (Some(key), Some(purgeable)) = (key.strip_prefix(STORED), kept.hooked.purgeable) {
                let store = key.split('\0').next().unwrap_or_default();
                let opened = purgeable(Arc::clone(&kept.state)).open(successor);
                opened.map_err(|e| Context::new(format!("stores.{store}.disk"), e))?;
            }
        }
        Ok(())
    }

    /// Starts building a snapshot: nothing is marked yet.
    pub fn begin(&mut self, places: Places) {
        self.states.values_mut().for_each(|kept| kept.used = false);
        self.asked.clear();
        self.next.clear();
        self.taken.clear();
        self.renamed = self.places.renamed(&places);
        self.next_places = places;
    }

    /// The built snapshot runs now. Returns which state kept for a purpose is dropped.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        self.asked.clear();
        let taken = std::mem::take(&mut self.taken);
        let known = self.states.keys().chain(self.inherited.keys());
        let mut forgotten: Vec<String> =
            known.filter(|key| !taken.contains(*key)).filter_map(|key| shown(key)).collect();
        forgotten.sort();
        forgotten.dedup();
        self.states.retain(|key, _| !key.starts_with(FOR));
        self.states.extend(self.next.drain());
        self.places = std::mem::take(&mut self.next_places);
        self.inherited.clear();
        forgotten
    }

    /// Drops the state that the adopted snapshot does not use, and starts the tasks of new state. Returns which state
    /// kept for a purpose is dropped.
    pub fn sweep(&mut self, control: &Handle, fetcher: &Fetcher) -> Vec<String> {
        let forgotten = self.settle();
        self.states.retain(|_, kept| kept.used);
        for kept in self.states.values_mut().filter(|kept| kept.working.is_none()) {
            if let Some(tend) = kept.hooked.tend {
                let work = tend(Arc::clone(&kept.state), fetcher.clone());
                kept.working = Some(Working(control.spawn(work).abort_handle()));
            }
        }
        forgotten
    }

    /// Takes what the previous process saved, for the first snapshot.
    pub fn inherit(&mut self, key: String, saved: Vec<u8>) {
        if key == PLACES {
            self.places = Places::load(&saved);
        } else {
            self.inherited.insert(key, saved);
        }
    }

    /// Takes a switch's saved setting, for the first snapshot.
    pub fn inherit_switch(&mut self, name: &str, saved: Vec<u8>) {
        self.inherited.insert(format!("{SWITCH}{name}"), saved);
    }

    /// The state that can be handed to the next process, by key.
    pub fn save(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let states = self.states.iter();
        let states = states.filter_map(|(key, kept)| Some((key.as_str(), kept.hooked.save?(&*kept.state)?)));
        states.chain([(PLACES, self.places.save())])
    }
}
