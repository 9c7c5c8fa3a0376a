//! One certificate that is kept up to date: what it is for, what is shown of it now, and how it fares.

use crate::failure::Failure;
use crate::name::Name;
use crate::publish::Challenge;
use crate::schedule::Suggestion;
use crate::storage::{self, Stamp, Storage};
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_telemetry::log;
use weir_wire::hex;
use weir_wire::tls::{Certificate, Slot};

/// A certificate authority, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The URL of its directory.
    pub directory: String,
    /// Where it writes to when something is wrong.
    pub email: Option<String>,
    /// The authorities, a PEM file, that its own certificate is verified by; the system's where none is named.
    pub trust: Option<PathBuf>,
    /// By what it knows us already.
    pub external: Option<External>,
}

/// An account that a certificate authority gave out by another way (RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct External {
    /// How it is called.
    pub key_id: String,
    /// Its key for HMAC, base64 for URLs. Secret.
    pub key: String,
}

/// A certificate to be kept up to date.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// What it is for.
    pub name: Name,
    /// Who issues it.
    pub settings: Settings,
    /// How control over the name is proven.
    pub challenge: Challenge,
    /// Which kind of certificate is ordered, where the authority has several.
    pub profile: Option<String>,
    /// The folder that everything is kept in.
    pub storage: PathBuf,
}

/// A certificate that is kept up to date.
pub struct Entry {
    pub(crate) spec: Spec,
    pub(crate) storage: Storage,
    slot: Slot,
    state: Mutex<State>,
}

/// How it fares.
pub(crate) struct State {
    /// Which file of the storage is shown; the default where it is the stand-in.
    pub(crate) stamp: Stamp,
    pub(crate) stand_in: bool,
    pub(crate) kept: Kept,
    pub(crate) ordering: bool,
    pub(crate) renew_at: Option<i64>,
    /// Somebody reloaded: what waits only out of caution is tried now.
    pub(crate) eager: bool,
}

/// What a restart and other nodes know of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The settings that failed: others are tried at once.
    #[serde(default)]
    settings: String,
    #[serde(default)]
    pub(crate) failures: u32,
    #[serde(default)]
    pub(crate) tried_at: i64,
    #[serde(default)]
    pub(crate) issued_at: i64,
    #[serde(default)]
    pub(crate) next_try: i64,
    #[serde(default)]
    pub(crate) last_error: Option<LastFailure>,
    #[serde(default)]
    pub(crate) suggestion: Option<Suggestion>,
    /// When renewal information is asked for again where there is none.
    #[serde(default)]
    pub(crate) look_at: i64,
}

/// A failure, and when it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// What failed.
    pub failure: Failure,
    /// When, in seconds since 1970.
    pub at: i64,
}

/// What is told of a certificate that is kept up to date.
#[derive(Clone, Debug)]
pub struct Status {
    /// What it is for.
    pub name: String,
    /// The file that it is kept in.
    pub file: PathBuf,
    /// The directory of its authority.
    pub directory: String,
    /// How control over the name is proven.
    pub challenge: &'static str,
    /// Whether clients are shown a stand-in, which they do not believe.
    pub stand_in: bool,
    /// Its last second, since 1970. None for a stand-in.
    pub not_after: Option<i64>,
    /// When it will be renewed.
    pub renew_at: Option<i64>,
    /// Whether it is being ordered now.
    pub ordering: bool,
    /// How many tries failed since the last that did not.
    pub failures: u32,
    /// The last failure, until a try succeeds.
    pub last_error: Option<LastFailure>,
    /// When it is tried again, where the last try failed.
    pub next_try: Option<i64>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Entry {
    /// What the storage has, else a stand-in. Nothing is written.
    pub(crate) fn new(spec: &Spec) -> Result<Self, String> {
        let storage = Storage::new(&spec.storage, &spec.settings.directory);
        let stored = storage.certificate(&spec.name).unwrap_or_else(|failure| {
            let fields: log::Fields<'_> = &[("name", &spec.name), ("error", &failure)];
            log::warn("the stored certificate is of no use: another one is ordered", fields);
            None
        });
        let kept: Kept = storage::read_json(&storage.state(&spec.name)).ok().flatten().unwrap_or_default();
        let (certificate, stamp, stand_in) = match stored {
            Some(stored) => (stored.certificate, stored.stamp, false),
            None => (stand_in(&spec.name)?, Stamp::default(), true),
        };
        let mut state = State { stamp, stand_in, kept, ordering: false, renew_at: None, eager: false };
        state.kept.settle(spec);
        Ok(Self { spec: spec.clone(), storage, slot: Slot::new(certificate), state: Mutex::new(state) })
    }

    /// What handshakes show.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// What it is for.
    pub const fn name(&self) -> &Name {
        &self.spec.name
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate that is shown, unless it is the stand-in.
    pub(crate) fn shown(&self) -> Option<Certificate> {
        if self.state().stand_in { None } else { Some(self.slot.get()) }
    }

    /// Shows another certificate from now on.
    pub(crate) fn show(&self, certificate: Certificate, stamp: Stamp) {
        self.slot.set(certificate);
        let mut state = self.state();
        (state.stamp, state.stand_in) = (stamp, false);
    }

    /// Shows what another node has put into the storage since. Whether there was something new.
    pub(crate) fn refresh(&self) -> bool {
        let stamp = self.storage.stamp(&self.spec.name);
        if stamp == Stamp::default() || stamp == self.state().stamp {
            return false;
        }
        match self.storage.certificate(&self.spec.name) {
            Ok(Some(stored)) => {
                self.show(stored.certificate, stored.stamp);
                true
            }
            Ok(None) => false,
            Err(failure) => {
                self.state().stamp = stamp; // told once
                let fields: log::Fields<'_> = &[("name", &self.spec.name), ("error", &failure)];
                log::warn("the stored certificate is of no use: the one before it stays", fields);
                false
            }
        }
    }

    /// Takes over what other nodes have written down.
    pub(crate) fn recall(&self) {
        if let Ok(Some(mut kept)) = storage::read_json::<Kept>(&self.storage.state(&self.spec.name)) {
            kept.settle(&self.spec);
            self.state().kept = kept;
        }
    }

    /// Writes down what a restart and other nodes should know.
    pub(crate) fn keep(&self, change: impl FnOnce(&mut Kept)) -> Result<(), Failure> {
        let kept = {
            let mut state = self.state();
            change(&mut state.kept);
            state.kept.clone()
        };
        storage::write_json(&self.storage.state(&self.spec.name), &kept)
    }

    /// What is told of it.
    pub(crate) fn status(&self) -> Status {
        let shown = self.shown();
        let state = self.state();
        Status {
            name: self.spec.name.to_string(),
            file: self.storage.certificate_file(&self.spec.name),
            directory: self.spec.settings.directory.clone(),
            challenge: self.spec.challenge.name(),
            stand_in: state.stand_in,
            not_after: shown
                .and_then(|certificate| certificate.validity())
                .map(|validity| validity.not_after),
            renew_at: state.renew_at,
            ordering: state.ordering,
            failures: state.kept.failures,
            last_error: state.kept.last_error.clone(),
            next_try: Some(state.kept.next_try).filter(|_| state.kept.failures > 0),
        }
    }
}

impl Kept {
    /// What failed with other settings is no reason to wait.
    fn settle(&mut self, spec: &Spec) {
        let settings = fingerprint(spec);
        if self.settings != settings {
            (self.failures, self.next_try, self.last_error) = (0, 0, None);
            self.settings = settings;
        }
    }
}

/// Tells settings apart without telling them.
fn fingerprint(spec: &Spec) -> String {
    let External { key_id, key } =
        spec.settings.external.clone().unwrap_or(External { key_id: String::new(), key: String::new() });
    let Spec { settings, challenge, profile, .. } = spec;
    let all = format!("{settings:?} {key_id} {key} {challenge:?} {profile:?}");
    hex::encode(digest(&SHA256, all.as_bytes()).as_ref().get(..8).unwrap_or_default())
}

/// A certificate that nobody believes, so that the listener can open. It says what it is to whoever looks at it.
fn stand_in(name: &Name) -> Result<Certificate, String> {
    let unmade = |e: rcgen::Error| format!("no stand-in could be made: {e}");
    let key = KeyPair::generate().map_err(unmade)?;
    let mut params = CertificateParams::new([name.to_string()]).map_err(unmade)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Weir stand-in: no certificate was issued yet");
    let made = params.self_signed(&key).map_err(unmade)?;
    crate::certificate_of(&(key.serialize_pem() + &made.pem()))
}

/// Shared by the listeners that show it and the task that keeps it.
pub(crate) type SharedEntry = Arc<Entry>;
