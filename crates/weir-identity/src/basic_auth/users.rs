//! The users of the config, or of a source, with the hashes of their passwords.

use crate::prelude::*;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use weir_filter::directory::{CredentialIndex, Intake, Refused};
use weir_filter::password::PasswordHash;

/// All users that have a password.
#[derive(Default)]
pub(super) struct Users {
    pub(super) by_name: HashMap<Box<[u8]>, User, foldhash::fast::RandomState>,
    /// One hash of each kind and cost. A wrong login computes one of each, so its duration reveals neither whether
    /// the user exists nor how their password is hashed.
    pub(super) costs: Vec<PasswordHash>,
}

pub(super) struct User {
    pub(super) consumer: usize,
    pub(super) hash: Arc<PasswordHash>,
    /// Distinguishes its hash from others.
    pub(super) seal: u64,
}

impl Users {
    /// All users, and digits that distinguish this set of users from any other.
    pub(super) fn read(build: &mut Build<'_>) -> (Self, String) {
        let mut users = Self::default();
        let mut seal = Sha256::new();
        let consumers = Consumers::clone(build.consumers);
        for (consumer, who) in consumers.iter().enumerate() {
            for (n, pair) in who.credentials.get("basic_auth").into_iter().flatten().enumerate() {
                seal.update(format!("{consumer}\0{}\0{pair}\0", who.name));
                let whose = format!("entry {} of consumer `{}`", n + 1, who.name);
                let Some((name, hash)) = pair.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                    let hint = Some("write USER:HASH; `weir hash --user USER` makes it".into());
                    build.refuse("", format!("{whose} is not a user and hash"), hint);
                    continue;
                };
                match PasswordHash::parse(hash) {
                    Ok(hash) => users.add(name, consumer, hash, &whose, build),
                    Err(why) => {
                        let hint = Some("make one with `weir hash`, which reads the password".into());
                        build.refuse("", format!("the hash in {whose} {why}"), hint);
                    }
                }
            }
        }
        if users.by_name.is_empty() && build.directory.is_none() && build.mistakes.is_empty() {
            let hint = "write consumers: { NAME: { basic_auth: [ \"${NAME_PASSWORD}\" ] } }";
            build.refuse("", "no consumer has a password: every request would be refused", Some(hint.into()));
        }
        let seal = seal.finalize().iter().map(|b| format!("{b:02x}")).collect();
        (users, seal)
    }

    fn add(&mut self, name: &str, consumer: usize, hash: PasswordHash, whose: &str, build: &mut Build<'_>) {
        if self.insert(name, consumer, hash, 0).is_some() {
            let hint = Some("give each user one password".into());
            build.refuse("", format!("the user in {whose} is listed already"), hint);
        }
    }

    /// Adds a user. Returns the consumer that has this name already.
    fn insert(&mut self, name: &str, consumer: usize, hash: PasswordHash, seal: u64) -> Option<usize> {
        note_cost(&mut self.costs, &hash);
        let user = User { consumer, hash: Arc::new(hash), seal };
        self.by_name.insert(name.as_bytes().into(), user).map(|other| other.consumer)
    }

    /// Verifies a pair. Takes tens of milliseconds; a wrong pair takes the same time for every user.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> Option<usize> {
        let user = self.by_name.get(name);
        let hash = user.map(|user| &*user.hash);
        verify(hash, password, &self.costs).then(|| user.map_or(0, |user| user.consumer))
    }

    /// One hash of each cost that a wrong login of this user has not taken yet.
    #[cfg(test)]
    pub(super) fn unpaid<'a>(&'a self, user: Option<&'a User>) -> impl Iterator<Item = &'a PasswordHash> {
        unpaid(&self.costs, user.map(|user| &*user.hash))
    }
}

/// Adds a hash if none of its kind and cost is there.
pub(super) fn note_cost(costs: &mut Vec<PasswordHash>, hash: &PasswordHash) {
    if !costs.iter().any(|known| known.costs_as(hash)) {
        costs.push(hash.clone());
    }
}

/// Whether this is the password. If not, one hash of each cost has been computed.
pub(super) fn verify(hash: Option<&PasswordHash>, password: &[u8], costs: &[PasswordHash]) -> bool {
    if hash.is_some_and(|hash| hash.verify(password)) {
        return true;
    }
    for hash in unpaid(costs, hash) {
        std::hint::black_box(hash.verify(password));
    }
    false
}

pub(super) fn unpaid<'a>(
    costs: &'a [PasswordHash],
    hash: Option<&'a PasswordHash>,
) -> impl Iterator<Item = &'a PasswordHash> {
    costs.iter().filter(move |cost| !hash.is_some_and(|hash| hash.costs_as(cost)))
}

impl CredentialIndex for Users {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut users = Self::default();
        intake.each(|consumer, pair| {
            // The check of consumers has reported what is no pair.
            let Some((name, text)) = pair.split_once(':') else { return Ok(()) };
            let hash = PasswordHash::parse(text).map_err(|why| Refused::Wrong(why.into()))?;
            let seal = Sha256::digest(text.as_bytes());
            let seal = seal.first_chunk().map_or(0, |digits| u64::from_le_bytes(*digits));
            let other = users.insert(name, consumer as usize, hash, seal);
            other.map_or(Ok(()), |other| Err(Refused::Common(other as u32)))
        });
        users
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        let both = self.by_name.iter().filter_map(|(name, ours)| Some((ours, other.by_name.get(name)?)));
        both.map(|(ours, theirs)| (ours.consumer as u32, theirs.consumer as u32)).collect()
    }
}
