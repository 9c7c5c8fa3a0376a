//! Publishes a proof where its authority looks for it, and removes it afterwards, whatever the outcome.
//!
//! The authority may reach any node that shares the storage, so the proof is stored there too. Other nodes read it
//! within [`SHARED_EVERY`] (`sharing.rs`), and only after that do we notify the authority.

use crate::failure::{Failure, Kind};
use crate::hook::{Action, Hook};
use crate::name::Name;
use crate::sharing::{self, SHARED_EVERY};
use crate::storage::{self, Storage};
use crate::tokens::Tokens;
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_wire::Chain;
use weir_wire::base64::encode_url;
use weir_wire::tls::Proofs;

/// How we prove control over a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Challenge {
    /// By a TXT record, which a command creates.
    Dns(Hook),
    /// By a response over cleartext HTTP on port 80.
    Http,
    /// In a TLS handshake on port 443.
    TlsAlpn,
}

impl Challenge {
    /// The name of the challenge in ACME.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Dns(_) => "dns-01",
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// Where this process shows proofs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub(crate) tokens: Tokens,
    pub(crate) proofs: Proofs,
}

/// A proof, in the form that nodes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// `http-01` or `tls-alpn-01`.
    pub(crate) kind: String,
    /// The name that it proves.
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) authorization: String,
    /// When it was published, in seconds since 1970.
    pub(crate) made: i64,
}

/// A proof that stays published until this is dropped.
pub(crate) struct Published {
    back: Back,
    file: Option<PathBuf>,
    stage: Stage,
}

/// How to remove the proof.
enum Back {
    Record { hook: Hook, record: String, value: String },
    Shown(Proof),
}

impl Stage {
    /// Answers for a proof from now on.
    pub(crate) fn show(&self, proof: &Proof) -> Result<(), Failure> {
        if proof.kind == "http-01" {
            self.tokens.expect(&proof.token, &proof.authorization);
            return Ok(());
        }
        let name: Name = proof.name.parse().map_err(|e| Failure::new(Kind::Challenge, format!("{e}")))?;
        let unmade =
            |e: &dyn std::fmt::Display| Failure::new(Kind::Challenge, format!("the proof was not made: {e}"));
        let key = KeyPair::generate().map_err(|e| unmade(&e))?;
        let mut params = CertificateParams::new([name.to_string()]).map_err(|e| unmade(&e))?;
        params.distinguished_name = DistinguishedName::new();
        let seen = digest(&SHA256, proof.authorization.as_bytes());
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(seen.as_ref())];
        let made = params.self_signed(&key).map_err(|e| unmade(&e))?;
        let expected = self.proofs.expect(&name.server_name(), made.der().to_vec(), key.serialize_der());
        expected.map_err(|e| unmade(&Chain(&e)))
    }

    pub(crate) fn hide(&self, proof: &Proof) {
        if proof.kind == "http-01" {
            self.tokens.forget(&proof.token);
        } else if let Ok(name) = proof.name.parse::<Name>() {
            self.proofs.forget(&name.server_name());
        }
    }
}

impl Published {
    /// Publishes the proof. When this returns, the authority may check it.
    pub(crate) async fn show(
        stage: &Stage,
        storage: &Storage,
        node: &str,
        (name, challenge): (&Name, &Challenge),
        token: &str,
        authorization: String,
        now: i64,
    ) -> Result<Self, Failure> {
        if let Challenge::Dns(hook) = challenge {
            return Self::record(stage, hook, name, &authorization).await;
        }
        let kind = challenge.name().to_owned();
        let proof = Proof { kind, name: name.to_string(), token: token.to_owned(), authorization, made: now };
        stage.show(&proof)?;
        let file = storage.challenge(name);
        let published =
            Self { back: Back::Shown(proof.clone()), file: Some(file.clone()), stage: stage.clone() };
        storage::write_json(&file, &proof)?;
        if sharing::others_live(storage, node) {
            tokio::time::sleep(SHARED_EVERY * 5 / 2).await;
        }
        Ok(published)
    }

    /// RFC 8555 §8.4.
    async fn record(stage: &Stage, hook: &Hook, name: &Name, authorization: &str) -> Result<Self, Failure> {
        let record = name.record();
        let record = record.ok_or_else(|| Failure::new(Kind::Challenge, "an address has no TXT records"))?;
        let value = encode_url(digest(&SHA256, authorization.as_bytes()).as_ref());
        let back = Back::Record { hook: hook.clone(), record: record.clone(), value: value.clone() };
        let published = Self { back, file: None, stage: stage.clone() };
        hook.run(Action::Present, &record, &value).await?;
        tokio::time::sleep(hook.wait).await;
        Ok(published)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        match &self.back {
            Back::Record { hook, record, value } => hook.run_detached(Action::Cleanup, record, value),
            Back::Shown(proof) => self.stage.hide(proof),
        }
        if let Some(file) = &self.file {
            storage::remove(file);
        }
    }
}
