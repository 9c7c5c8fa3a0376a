//! Users with hashed passwords (`USER:HASH`, as htpasswd writes them) as consumers.
//!
//! Weir takes bcrypt and argon2id. For a user with another hash a person must hash the password anew: the variable has
//! no value until then.

use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::yaml::{Map, Value};

/// A hash that no password has.
const NO_PASSWORD: &str = "$2b$12$GhvMmNVjRW29ulnudl.LbuAnUtN/LRfe1JsBm1Xu6LE3059z5Tr8m";
/// Length of a whole hash of bcrypt.
const BCRYPT_CHARS: usize = 60;
/// Most users of one list that are taken.
const MAX_USERS: usize = 10_000;

/// The users so far. Weir has one password for each name, in all lists together.
#[derive(Debug, Default)]
pub struct Users {
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    user: String,
    hash: String,
    consumer: String,
}

impl Users {
    /// Adds a list of users, each `USER:HASH`, to the group `group`, if there is one. `piece` is judged.
    pub fn add(
        &mut self,
        lines: &[String],
        group: Option<&str>,
        piece: Piece,
        config: &mut Config,
        ledger: &mut Ledger,
    ) {
        ledger.conceal(piece);
        ledger.same(piece);
        for line in lines.iter().take(MAX_USERS) {
            self.one(line.trim(), group, piece, config, ledger);
        }
        if lines.len() > MAX_USERS {
            ledger.refused(
                piece,
                format!("{} users; at most {MAX_USERS} are taken", lines.len()),
                "consumer_sources",
            );
        }
    }

    fn one(
        &mut self,
        line: &str,
        group: Option<&str>,
        piece: Piece,
        config: &mut Config,
        ledger: &mut Ledger,
    ) {
        let nearest = |user: &str| format!("`weir hash --user {user}` makes a hash for secrets.env");
        let Some((user, hash)) = line.split_once(':').filter(|(user, _)| !user.is_empty()) else {
            ledger.refused(piece, "a user without a hash", nearest("NAME"));
            return;
        };
        let is_bcrypt = ["$2a$", "$2b$", "$2y$"].iter().any(|start| hash.starts_with(start));
        let is_taken = is_bcrypt && hash.len() == BCRYPT_CHARS || hash.starts_with("$argon2id$");
        let kept = if is_taken { hash.to_owned() } else { NO_PASSWORD.to_owned() };
        if !is_taken {
            let kind = kind(hash);
            let why =
                format!("user {user} has a hash of {kind}: secrets.env needs one of bcrypt or argon2id");
            ledger.refused(piece, why, nearest(user));
        }
        if let Some(known) = self.known.iter().find(|known| known.user == user) {
            if known.hash != kept {
                let why =
                    format!("user {user} has another password in another list; Weir has one for a name");
                ledger.refused(piece, why, "another name for one of the two");
                return;
            }
            if let (Some(group), Some(consumer)) = (group, config.consumers.get_mut(&known.consumer)) {
                join(consumer, group);
            }
            return;
        }
        let wish = format!("{user}_password_hash");
        let value = if is_taken { config.secret(&wish, &kept) } else { config.missing_secret(&wish, &kept) };
        let value = match value {
            Value::WithVariables(variable) => Value::WithVariables(format!("{}:{variable}", escaped(user))),
            other => other,
        };
        let mut consumer = Map::new().with("basic_auth", Value::List(vec![value]));
        if let Some(group) = group {
            join(&mut consumer, group);
        }
        let consumer = config.consumers.add(user, consumer);
        self.known.push(Known { user: user.to_owned(), hash: kept, consumer });
    }
}

/// Puts a consumer into a group.
fn join(consumer: &mut Map, group: &str) {
    let mut groups = match consumer.get("groups") {
        Some(Value::List(groups)) => groups.clone(),
        _ => Vec::new(),
    };
    let group = Value::from(group);
    if !groups.contains(&group) {
        groups.push(group);
        consumer.set("groups", Value::List(groups));
    }
}

/// A user's name beside a variable.
fn escaped(user: &str) -> String {
    user.replace('$', "$$")
}

fn kind(hash: &str) -> &'static str {
    match hash {
        _ if hash.starts_with("$apr1$") || hash.starts_with("$1$") => "MD5",
        _ if hash.starts_with("$2") => "bcrypt that is not whole",
        _ if hash.starts_with("{SHA}") || hash.starts_with("{SSHA}") => "SHA-1",
        _ if hash.starts_with("$5$") => "SHA-256",
        _ if hash.starts_with("$6$") => "SHA-512",
        _ => "crypt, or none",
    }
}
