//! What one snapshot hands to the next: health, certificates, ticket keys, the state of filters.

use crate::acme::Wire;
use crate::handover::{Kind, State};
use crate::snapshot::AltSvc;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tokio::runtime::Handle;
use weir_acme::Acme;
use weir_config::schema;
use weir_filter::filter::{Kept, Places, Purgeable, Switch};
use weir_telemetry::Telemetry;
use weir_upstream::fetch::Fetcher;
use weir_upstream::upstream::{Healths, Upstream};
use weir_wire::tls::{self, Certificate, Identity, SingleUse, Tickets};
use weir_wire::{Context, hex};

/// What is carried from one snapshot to the next.
pub struct Carry {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) kept: Kept,
    /// The health of endpoints, by name.
    pub(crate) healths: Arc<Healths>,
    /// The listeners' certificates, by their files.
    pub(super) certificates: HashMap<Identity, Certificate>,
    pub(super) fresh_certificates: HashMap<Identity, Certificate>,
    /// The listeners' automatically renewed certificates.
    pub acme: Acme,
    /// The connections of listeners with a limit, by name.
    pub(super) held: HashMap<String, Arc<AtomicUsize>>,
    /// The keys of session tickets, by the policy under which they resume: see
    /// [`tickets_key`](super::listeners::tickets_key).
    tickets: HashMap<[u8; 32], Tickets>,
    fresh_tickets: HashMap<[u8; 32], Tickets>,
    /// The sessions of listeners with early data, by the same policy. The next process does not get them.
    single_use: HashMap<[u8; 32], SingleUse>,
    fresh_single_use: HashMap<[u8; 32], SingleUse>,
    /// What the responses of listeners said in Alt-Svc, by name.
    said: HashMap<String, AltSvc>,
    fresh_said: HashMap<String, AltSvc>,
    /// The last snapshot's upstreams, with the settings they were built from.
    pub(super) upstreams: HashMap<String, (schema::Upstream, Arc<Upstream>)>,
    pub(super) fresh: HashMap<String, (schema::Upstream, Arc<Upstream>)>,
}

impl Carry {
    /// An empty carry, for the first snapshot.
    pub fn new(telemetry: Arc<Telemetry>) -> Self {
        Self {
            telemetry,
            kept: Kept::default(),
            healths: Arc::default(),
            certificates: HashMap::new(),
            fresh_certificates: HashMap::new(),
            acme: Acme::new(),
            held: HashMap::new(),
            tickets: HashMap::new(),
            fresh_tickets: HashMap::new(),
            single_use: HashMap::new(),
            fresh_single_use: HashMap::new(),
            said: HashMap::new(),
            fresh_said: HashMap::new(),
            upstreams: HashMap::new(),
            fresh: HashMap::new(),
        }
    }

    /// Called before a snapshot is compiled: forgets what was made for one that never ran.
    pub(super) fn begin(&mut self, config: &schema::Config) {
        self.kept.begin(Places::of(config));
        self.healths.begin(config.upstreams.names());
        self.fresh_certificates.clear();
        self.acme.begin();
        self.fresh_tickets.clear();
        self.fresh_single_use.clear();
        self.fresh_said.clear();
        self.fresh.clear();
    }

    /// Takes over the previous process's state, for the first snapshot.
    pub fn inherit(&mut self, state: Vec<State>) {
        for State { kind, key, bytes } in state {
            match kind {
                Kind::AltSvc => {
                    if let Some(said) = AltSvc::load(&bytes) {
                        self.said.insert(key, said);
                    }
                }
                Kind::Filter => self.kept.inherit(key, bytes),
                Kind::Health => self.healths.inherit(&bytes),
                Kind::Tickets => {
                    if let (Some(policy), Some(tickets)) = (policy_of(&key), Tickets::load(&bytes)) {
                        self.tickets.insert(policy, tickets);
                    }
                }
                Kind::Quic | Kind::Unknown => {} // homes were taken before
            }
        }
    }

    /// Takes over the switches that were set before this process began, for the first snapshot: the latest value, by
    /// name.
    pub fn inherit_switches(&mut self, switches: impl Iterator<Item = (String, Vec<u8>)>) {
        switches.for_each(|(name, saved)| self.kept.inherit_switch(&name, saved));
    }

    /// The state for the next process.
    pub fn save(&self) -> Vec<State> {
        let tickets = self.tickets.iter().map(|(policy, tickets)| State {
            kind: Kind::Tickets,
            key: hex::encode(policy.as_ref()),
            bytes: tickets.save(),
        });
        let filters =
            self.kept.save().map(|(key, bytes)| State { kind: Kind::Filter, key: key.to_owned(), bytes });
        let health = Some(self.healths.save()).filter(|bytes| !bytes.is_empty());
        let health = health.map(|bytes| State { kind: Kind::Health, key: String::new(), bytes });
        let said = self.said.iter().map(|(name, said)| State {
            kind: Kind::AltSvc,
            key: name.clone(),
            bytes: said.save(),
        });
        tickets.chain(filters).chain(health).chain(said).collect()
    }

    /// Opens what the next snapshot keeps in stores. Nothing in this process may have run before.
    ///
    /// # Errors
    /// Which store cannot be opened, with the reason as its source.
    pub fn open_stores(&self, successor: bool) -> Result<(), Context> {
        self.kept.open_stores(successor)
    }

    /// What filters keep in the config's stores, by store name.
    pub fn stored(&self) -> Vec<(String, Arc<dyn Purgeable>)> {
        self.kept.stored()
    }

    /// The switches that filters name.
    pub fn switches(&self) -> Vec<(String, Arc<Switch>)> {
        self.kept.switches()
    }

    /// The ticket keys of a policy. Running keys are reused, so that clients can resume after a reload.
    pub(super) fn tickets(&mut self, key: [u8; 32]) -> Result<Tickets, tls::TlsError> {
        if let Some(known) = self.fresh_tickets.get(&key).or_else(|| self.tickets.get(&key)) {
            let known = known.clone();
            self.fresh_tickets.insert(key, known.clone());
            return Ok(known);
        }
        let made = Tickets::new()?;
        self.fresh_tickets.insert(key, made.clone());
        Ok(made)
    }

    /// The sessions that clients of a policy may resume once, with early data. They outlive a reload as well.
    pub(super) fn single_use(&mut self, key: [u8; 32]) -> SingleUse {
        let known = self.single_use.get(&key);
        self.fresh_single_use.entry(key).or_insert_with(|| known.cloned().unwrap_or_default()).clone()
    }

    /// What a listener's responses say in Alt-Svc. `now` is what its config wants; if that is nothing and clients may
    /// remember something, they are told to forget it.
    pub(super) fn alt_svc(&mut self, listener: &str, now: Option<AltSvc>) -> Option<AltSvc> {
        let says = match (now, self.said.get(listener)) {
            (Some(now), _) => now,
            (None, None) => return None,
            (None, Some(AltSvc::Clear(until))) if Instant::now() >= *until => return None,
            (None, Some(AltSvc::Clear(until))) => AltSvc::Clear(*until),
            (None, Some(AltSvc::Line(_))) => AltSvc::Clear(Instant::now().checked_add(AltSvc::AGE)?),
        };
        self.fresh_said.insert(listener.to_owned(), says.clone());
        Some(says)
    }

    /// The listeners' certificates in use, by their files.
    pub fn certificates(&self) -> Vec<(&Identity, &Certificate)> {
        let mut all: Vec<_> = self.certificates.iter().collect();
        all.sort_unstable_by_key(|(identity, _)| (&identity.cert, &identity.key));
        all
    }

    /// Called when the compiled snapshot runs: forgets what only its predecessor used. Returns which filter state is
    /// forgotten.
    pub fn adopted(&mut self, control: &Handle, fetcher: &Fetcher) -> Vec<String> {
        let forgotten = self.kept.sweep(control, fetcher);
        self.certificates = std::mem::take(&mut self.fresh_certificates);
        self.acme.adopt(|| Arc::new(Wire(fetcher.clone())));
        self.tickets = std::mem::take(&mut self.fresh_tickets);
        self.single_use = std::mem::take(&mut self.fresh_single_use);
        self.said = std::mem::take(&mut self.fresh_said);
        self.held.retain(|_, held| Arc::strong_count(held) > 1);
        self.upstreams = std::mem::take(&mut self.fresh);
        forgotten
    }
}

/// Parses a key of [`Carry::tickets`] as written by [`Carry::save`].
fn policy_of(hex: &str) -> Option<[u8; 32]> {
    let mut policy = [0; 32];
    if hex.len() != 2 * policy.len() {
        return None;
    }
    for (at, byte) in policy.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(policy)
}
