//! One managed certificate: its spec, the certificate in use, and its status.

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

/// A certificate authority, and our account with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The URL of its directory.
    pub directory: String,
    /// The contact address for problems.
    pub email: Option<String>,
    /// A PEM file of authorities that verify the directory's own certificate; `None` means those of the system.
    pub trust: Option<PathBuf>,
    /// Identifies us to an authority that knows us already.
    pub external: Option<External>,
}

/// An account that a certificate authority issued outside of ACME (RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct External {
    /// Its identifier.
    pub key_id: String,
    /// Its key for HMAC, base64 for URLs. Secret.
    pub key: String,
}

/// A certificate to obtain and renew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The name in the certificate.
    pub name: Name,
    /// The authority that issues it.
    pub settings: Settings,
    /// How we prove control over the name.
    pub challenge: Challenge,
    /// The certificate profile to order, if the authority has several.
    pub profile: Option<String>,
    /// The folder for all files.
    pub storage: PathBuf,
}

/// A managed certificate.
pub struct Entry {
    pub(crate) spec: Spec,
    pub(crate) storage: Storage,
    slot: Slot,
    state: Mutex<State>,
}

/// The state of an entry.
pub(crate) struct State {
    /// The version of the stored file in use; the default for the stand-in.
    pub(crate) stamp: Stamp,
    pub(crate) stand_in: bool,
    pub(crate) kept: Kept,
    pub(crate) ordering: bool,
    pub(crate) renew_at: Option<i64>,
    /// A reload happened: retries that wait only out of caution run now.
    pub(crate) eager: bool,
}

/// The state that restarts and other nodes need.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// A fingerprint of the settings that failed: with other settings we try again immediately.
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
    /// When to ask again for renewal information if there is none.
    #[serde(default)]
    pub(crate) look_at: i64,
}

/// A failure and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// The failure.
    pub failure: Failure,
    /// Its time, in seconds since 1970.
    pub at: i64,
}

/// The reported status of a managed certificate.
#[derive(Clone, Debug)]
pub struct Status {
    /// The name in the certificate.
    pub name: String,
    /// The file of the certificate.
    pub file: PathBuf,
    /// The directory of its authority.
    pub directory: String,
    /// How we prove control over the name.
    pub challenge: &'static str,
    /// Whether clients get a stand-in, which they do not trust.
    pub stand_in: bool,
    /// Its last valid second, since 1970. `None` for a stand-in.
    pub not_after: Option<i64>,
    /// When it will be renewed.
    pub renew_at: Option<i64>,
    /// Whether an order is in progress.
    pub ordering: bool,
    /// How many attempts failed since the last success.
    pub failures: u32,
    /// The last failure, until an attempt succeeds.
    pub last_error: Option<LastFailure>,
    /// When the next attempt is, if the last one failed.
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
    /// Uses the stored certificate, or else a stand-in. Writes nothing.
    pub(crate) fn new(spec: &Spec) -> Result<Self, String> {
        let storage = Storage::new(&spec.storage, &spec.settings.directory);
        let stored = storage.certificate(&spec.name).unwrap_or_else(|failure| {
            let fields: log::Fields<'_> = &[("name", &spec.name), ("error", &failure)];
            log::warn("the stored certificate is unusable: ordering another one", fields);
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

    /// The certificate that handshakes use.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The name in the certificate.
    pub const fn name(&self) -> &Name {
        &self.spec.name
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate in use, unless it is the stand-in.
    pub(crate) fn shown(&self) -> Option<Certificate> {
        if self.state().stand_in { None } else { Some(self.slot.get()) }
    }

    /// Uses another certificate from now on.
    pub(crate) fn show(&self, certificate: Certificate, stamp: Stamp) {
        self.slot.set(certificate);
        let mut state = self.state();
        (state.stamp, state.stand_in) = (stamp, false);
    }

    /// Loads a certificate that another node has stored since. Returns whether there was a new one.
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
                self.state().stamp = stamp; // report it only once
                let fields: log::Fields<'_> = &[("name", &self.spec.name), ("error", &failure)];
                log::warn("the stored certificate is unusable: keeping the previous one", fields);
                false
            }
        }
    }

    /// Loads the state that other nodes have stored.
    pub(crate) fn recall(&self) {
        if let Ok(Some(mut kept)) = storage::read_json::<Kept>(&self.storage.state(&self.spec.name)) {
            kept.settle(&self.spec);
            self.state().kept = kept;
        }
    }

    /// Stores state for restarts and other nodes.
    pub(crate) fn keep(&self, change: impl FnOnce(&mut Kept)) -> Result<(), Failure> {
        let kept = {
            let mut state = self.state();
            change(&mut state.kept);
            state.kept.clone()
        };
        storage::write_json(&self.storage.state(&self.spec.name), &kept)
    }

    /// The reported status.
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
    /// A failure with other settings is no reason to wait.
    fn settle(&mut self, spec: &Spec) {
        let settings = fingerprint(spec);
        if self.settings != settings {
            (self.failures, self.next_try, self.last_error) = (0, 0, None);
            self.settings = settings;
        }
    }
}

/// Identifies settings without revealing them.
fn fingerprint(spec: &Spec) -> String {
    let External { key_id, key } =
        spec.settings.external.clone().unwrap_or(External { key_id: String::new(), key: String::new() });
    let Spec { settings, challenge, profile, .. } = spec;
    let all = format!("{settings:?} {key_id} {key} {challenge:?} {profile:?}");
    hex::encode(digest(&SHA256, all.as_bytes()).as_ref().get(..8).unwrap_or_default())
}

/// An untrusted certificate, so that the listener can open. Its text says what it is.
fn stand_in(name: &Name) -> Result<Certificate, String> {
    let unmade = |e: rcgen::Error| format!("no stand-in could be made: {e}");
    let key = KeyPair::generate().map_err(unmade)?;
    let mut params = CertificateParams::new([name.to_string()]).map_err(unmade)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Weir stand-in: no certificate was issued yet");
    let made = params.self_signed(&key).map_err(unmade)?;
    crate::certificate_of(&(key.serialize_pem() + &made.pem()))
}

/// Shared by the listeners that use it and the task that renews it.
pub(crate) type SharedEntry = Arc<Entry>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// 0.1 reads and writes exactly these fields.
    #[test]
    fn the_stored_state_has_the_form_of_0_1() {
        let stored = json!({
            "settings": "f00d", "failures": 2, "tried_at": 10, "issued_at": 5, "next_try": 20, "look_at": 30,
            "last_error": { "failure": { "kind": "rate_limited", "text": "too many", "retry_after": 60 }, "at": 10 },
            "suggestion": null,
        });
        let read: Kept = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }
}
