//! What one source holds: its consumers, and for each kind of filter an index of their credentials.

use super::super::{Consumer, FilterKind};
use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_config::consumers::Document;
use weir_config::diagnostic::MAX_PRINTED;
use weir_config::{Diagnostic, Diagnostics, Node, de, schema};

/// Consumers that never change, with their credentials by kind of filter.
///
/// Memory for each consumer with one key of `key_auth` and a plan: 169 bytes over its name and the
/// hash. A test counts them.
#[derive(Default)]
pub struct Roster {
    consumers: Box<[Arc<Consumer>]>,
    /// Their positions, by name.
    by_name: Box<[u32]>,
    indexes: Box<[Index]>,
    /// The plans that they have, each with the first consumer that has it.
    plans: BTreeMap<String, u32>,
    /// Later sets of a source have higher ones.
    generation: u64,
}

struct Index {
    kind: &'static str,
    reader: CredentialReader,
    index: Box<dyn Any + Send + Sync>,
}

/// The credentials of one kind, found by what a request presents. A kind of filter declares its own with
/// [`FilterKind::with_index`].
pub trait CredentialIndex: Send + Sync + Sized + 'static {
    /// Reads all credentials of this kind.
    fn read(intake: &mut Intake<'_>) -> Self;

    /// The pairs of consumers, ours first, that have a credential in common.
    fn common(&self, other: &Self) -> Vec<(u32, u32)>;
}

/// A [`CredentialIndex`] without its type, for the registry of filters.
#[derive(Clone, Copy)]
pub struct CredentialReader {
    read: fn(&mut Intake<'_>) -> Box<dyn Any + Send + Sync>,
    common: Common,
}

/// Finds what two indexes have in common: see [`CredentialIndex::common`].
type Common = fn(&dyn Any, &dyn Any) -> Vec<(u32, u32)>;

/// Why a credential is refused.
#[derive(Debug)]
pub enum Refused {
    /// This consumer has it too.
    Common(u32),
    /// What is wrong, for example `is empty`. It reveals nothing of the credential.
    Wrong(Cow<'static, str>),
}

/// The credentials of one kind, as written.
pub struct Intake<'a> {
    kind: &'static str,
    written: &'a dyn Listed,
    refused: &'a mut dyn FnMut(u32, usize, Refused),
}

/// Consumers with their credentials, as written.
pub trait Listed {
    /// How many consumers there are.
    fn count(&self) -> u32;

    /// The credentials of one for this kind of filter.
    fn credentials(&self, consumer: u32, kind: &str) -> Vec<Cow<'_, str>>;
}

/// The first number of consumers of sources: those below are positions in the config.
const FIRST: usize = 1 << 40;

/// Numbers every consumer that a source ever had, so that none is taken for another.
static NUMBERS: AtomicUsize = AtomicUsize::new(FIRST);

impl Consumer {
    /// A consumer that neither the config nor a source names, with a number of its own.
    pub fn outside(name: &str) -> Self {
        Self { name: name.to_owned(), number: NUMBERS.fetch_add(1, Ordering::Relaxed), ..Self::default() }
    }
}

/// A credential in the form its filter gets: text unchanged, a map as JSON.
pub fn credential(node: &Node) -> Option<Cow<'_, str>> {
    if let Some(text) = node.as_text() {
        return Some(Cow::Borrowed(text));
    }
    // Its filter reports errors in it, because the filter knows the expected form.
    let map: Option<serde_json::Value> = de::read(node, "", &mut Diagnostics::default());
    map.map(|map| Cow::Owned(map.to_string()))
}

/// The labels of a consumer besides its name.
pub fn labels(consumer: &schema::Consumer) -> Vec<String> {
    let plan = consumer.plan.iter().map(|plan| format!("plan:{plan}"));
    plan.chain(consumer.groups.iter().map(|group| format!("group:{group}"))).collect()
}

impl CredentialReader {
    /// The reader of an index.
    pub const fn of<I: CredentialIndex>() -> Self {
        Self {
            read: |intake| Box::new(I::read(intake)),
            common: |ours, theirs| match (ours.downcast_ref::<I>(), theirs.downcast_ref::<I>()) {
                (Some(ours), Some(theirs)) => ours.common(theirs),
                _ => Vec::new(),
            },
        }
    }
}

impl fmt::Debug for CredentialReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialReader")
    }
}

impl Intake<'_> {
    /// Reads each credential with its consumer, and reports those that `read` refuses.
    pub fn each(&mut self, mut read: impl FnMut(u32, &str) -> Result<(), Refused>) {
        for consumer in 0..self.written.count() {
            for (n, text) in self.written.credentials(consumer, self.kind).into_iter().enumerate() {
                if let Err(why) = read(consumer, &text) {
                    (self.refused)(consumer, n, why);
                }
            }
        }
    }
}

impl fmt::Debug for Intake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Intake").field(&self.kind).finish()
    }
}

/// The consumers of a config.
struct OfConfig<'a>(&'a [Consumer]);

impl Listed for OfConfig<'_> {
    fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn credentials(&self, consumer: u32, kind: &str) -> Vec<Cow<'_, str>> {
        let written = self.0.get(consumer as usize).and_then(|consumer| consumer.credentials.get(kind));
        written.into_iter().flatten().map(|text| Cow::Borrowed(text.as_str())).collect()
    }
}

impl Listed for Vec<(&str, &schema::Consumer)> {
    fn count(&self) -> u32 {
        self.len() as u32
    }

    fn credentials(&self, consumer: u32, kind: &str) -> Vec<Cow<'_, str>> {
        let written = self.get(consumer as usize).and_then(|(_, consumer)| consumer.credentials(kind));
        written.into_iter().flat_map(|written| written.node.elements()).filter_map(credential).collect()
    }
}

// === impl Roster ===

impl Roster {
    /// Reads a document. With any mistake in `found`, the result must not be used. A consumer that `before` has too
    /// keeps its number, so that an exchange sees that it is the same.
    pub fn read(
        document: &Document,
        kinds: &[&'static FilterKind],
        before: Option<&Self>,
        found: &mut Diagnostics,
    ) -> Self {
        let written: Vec<(&str, &schema::Consumer)> = document.consumers.iter().collect();
        let known: HashMap<&str, &Arc<Consumer>> =
            before.into_iter().flat_map(|before| &before.consumers).map(|one| (&*one.name, one)).collect();
        let (mut labelled, mut networks) = (HashMap::new(), HashMap::new());
        let mut plans = BTreeMap::new();
        let consumers = written.iter().enumerate().map(|(index, (name, written))| {
            if let Some(plan) = &written.plan
                && !plans.contains_key(plan)
            {
                plans.insert(plan.clone(), index as u32);
            }
            let labels = labels(written);
            let networks_of: Vec<_> = written.allow_ips.iter().map(|network| network.0).collect();
            let before = known.get(name).copied();
            if let Some(same) = before.filter(|one| *one.labels == *labels && *one.allow_ips == *networks_of)
            {
                return Arc::clone(same);
            }
            Arc::new(Consumer {
                name: (*name).to_owned(),
                number: before.map_or_else(|| NUMBERS.fetch_add(1, Ordering::Relaxed), |one| one.number),
                // Most consumers share these lists.
                labels: Arc::clone(labelled.entry(labels).or_insert_with_key(|labels| Arc::from(&**labels))),
                allow_ips: Arc::clone(
                    networks.entry(networks_of).or_insert_with_key(|networks| Arc::from(&**networks)),
                ),
                ..Consumer::default()
            })
        });
        let consumers: Box<[Arc<Consumer>]> = consumers.collect();
        let mut by_name: Box<[u32]> = (0..consumers.len() as u32).collect();
        let name = |index: &u32| consumers.get(*index as usize).map_or("", |consumer| &*consumer.name);
        by_name.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        let mut refused = |kind: &str, consumer: u32, n: usize, why: Refused| {
            let name_of = |index: u32| written.get(index as usize).map_or("", |(name, _)| name);
            let path = format!("consumers.{}.{kind}[{n}]", name_of(consumer));
            if found.errors() >= MAX_PRINTED || found.iter().any(|known| known.path == path) {
                return; // not shown, or reported by the general checks
            }
            found.push(match why {
                Refused::Common(other) => {
                    let message = format!(
                        "`{}` has the same credential, so it does not identify a consumer",
                        name_of(other)
                    );
                    let hint = "give each consumer its own";
                    Diagnostic::error("credential-twice", message).on(&document.tree, &path).hint(hint)
                }
                Refused::Wrong(why) => {
                    Diagnostic::error("bad-value", format!("the credential {why}")).on(&document.tree, &path)
                }
            });
        };
        let indexes = indexes(&written, kinds, &mut refused);
        Self { consumers, by_name, indexes, plans, generation: 0 }
    }

    /// The same as the set with this number.
    pub(super) fn of(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// Its number, which tells which of two sets of a source is the newer one.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The credentials of a config's own consumers, for comparison. Their filters report mistakes in them.
    pub fn of_config(consumers: &[Consumer], kinds: &[&'static FilterKind]) -> Self {
        Self { indexes: indexes(&OfConfig(consumers), kinds, &mut |_, _, _, _| {}), ..Self::default() }
    }

    /// The consumers, in the order written.
    pub const fn consumers(&self) -> &[Arc<Consumer>] {
        &self.consumers
    }

    /// The consumer of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Consumer>> {
        let of = |index: &u32| self.consumers.get(*index as usize);
        let at =
            self.by_name.binary_search_by(|index| of(index).map_or("", |one| &*one.name).cmp(name)).ok()?;
        self.by_name.get(at).and_then(of)
    }

    /// The plans that its consumers have, each with the first one.
    pub(super) fn plans(&self) -> impl Iterator<Item = (&str, &str)> {
        let name = |index: &u32| self.consumers.get(*index as usize).map_or("", |consumer| &*consumer.name);
        self.plans.iter().map(move |(plan, first)| (plan.as_str(), name(first)))
    }

    /// The credentials of a kind.
    pub(super) fn index<I: CredentialIndex>(&self, kind: &str) -> Option<&I> {
        self.indexes.iter().find(|index| index.kind == kind)?.index.downcast_ref()
    }

    /// The pairs of consumers, ours first, that have a credential in common, with its kind.
    pub(super) fn common(&self, other: &Self) -> Vec<(&'static str, u32, u32)> {
        let pairs = |ours: &Index| {
            let theirs = other.indexes.iter().find(|theirs| theirs.kind == ours.kind);
            let pairs = theirs.map(|theirs| (ours.reader.common)(&*ours.index, &*theirs.index));
            let kind = ours.kind;
            pairs.unwrap_or_default().into_iter().map(move |(ours, theirs)| (kind, ours, theirs))
        };
        self.indexes.iter().flat_map(pairs).collect()
    }
}

fn indexes(
    written: &dyn Listed,
    kinds: &[&'static FilterKind],
    refused: &mut dyn FnMut(&str, u32, usize, Refused),
) -> Box<[Index]> {
    let index = |kind: &&'static FilterKind| {
        let reader = kind.index?;
        let mut refused = |consumer, n, why| refused(kind.name, consumer, n, why);
        let mut intake = Intake { kind: kind.name, written, refused: &mut refused };
        Some(Index { kind: kind.name, reader, index: (reader.read)(&mut intake) })
    };
    kinds.iter().filter_map(index).collect()
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roster").field(&self.consumers.len()).finish()
    }
}
