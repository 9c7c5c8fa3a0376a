//! Consumers with their credentials and groups.

use super::{Kind, Kong, refuse_rest};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::secrets::variable;
use crate::yaml::{Map, Value};

/// A hash that no password has: whoever uses it is locked out until a person writes a real one.
const NO_PASSWORD: &str = "$2b$12$GhvMmNVjRW29ulnudl.LbuAnUtN/LRfe1JsBm1Xu6LE3059z5Tr8m";
/// Shortest shared secret of the filter jwt, in bytes.
const MIN_SECRET: usize = 32;

/// What plugins must know of the consumers.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Our names, by Kong's index.
    pub(super) names: Vec<String>,
    /// Kong's ids, user names and custom ids, by index: plugins name consumers by any of them.
    pub(super) aliases: Vec<Vec<String>>,
    /// Our groups for consumer groups, by Kong's index.
    pub(super) groups: Vec<String>,
    /// Credentials of the plugin jwt.
    pub(super) tokens: Vec<Token>,
    /// Whether the map of user names is needed, because one is no name of Weir's.
    pub(super) has_usernames: bool,
    /// Whether consumers have custom ids.
    pub(super) has_custom_ids: bool,
}

/// A key for tokens.
#[derive(Debug)]
pub(super) struct Token {
    /// The claim that names it.
    pub(super) issuer: String,
    /// Its algorithm.
    pub(super) algorithm: String,
    /// `secret` or `keys`, with the value.
    pub(super) key: (&'static str, Value),
}

pub(super) fn translate(kong: &mut Kong<'_>, config: &mut Config, ledger: &mut Ledger) -> Known {
    let mut known = Known::default();
    let acls: Vec<String> = (0..kong.of(Kind::Acl).len()).map(|at| acl_group(kong, at)).collect();
    for at in 0..kong.of(Kind::Group).len() {
        let title = kong.of(Kind::Group)[at].title.clone();
        let name = if acls.contains(&title) { format!("consumer-group-{title}") } else { title };
        known.groups.push(name);
        let fields = kong.take(Kind::Group, at);
        refuse_rest(
            fields,
            "weir import does not know this key of a consumer group",
            "consumers.NAME.groups",
            ledger,
        );
    }
    let (mut usernames, mut custom_ids) = (Map::new(), Map::new());
    for at in 0..kong.of(Kind::Consumer).len() {
        let object = &kong.of(Kind::Consumer)[at];
        let (title, mut aliases) = (object.title.clone(), object.names.clone());
        let mut fields = kong.take(Kind::Consumer, at);
        let custom_id = fields.text("custom_id", ledger);
        let wish = match (&custom_id, title.is_empty()) {
            (Some((id, _)), true) => id.clone(),
            _ => title.clone(),
        };
        let mut map = Map::new();
        keys(kong, at, &wish, &mut map, config, ledger);
        passwords(kong, at, &mut map, config, ledger);
        tokens(kong, at, &wish, &mut map, &mut known, config, ledger);
        groups(kong, at, &acls, &known.groups, &mut map, ledger);
        let name = config.consumers.add(&wish, map);
        if name != title {
            known.has_usernames = true;
        }
        usernames.push(name.clone(), title.clone());
        if let Some((id, piece)) = custom_id {
            known.has_custom_ids = true;
            custom_ids.push(name.clone(), id.clone());
            aliases.push(id);
            ledger.same(piece);
        }
        known.names.push(name);
        known.aliases.push(aliases);
        refuse_rest(
            fields,
            "weir import does not know this key of a consumer",
            "docs/reference/config.md#consumersname",
            ledger,
        );
    }
    let of = |values: Map| Map::new().with("of", "consumer.name").with("values", values);
    if known.has_usernames {
        config.maps.add("usernames", of(usernames));
    }
    if known.has_custom_ids {
        config.maps.add("custom_ids", of(custom_ids));
    }
    known
}

/// The group of an acl entity, which the entity keeps.
fn acl_group(kong: &Kong<'_>, at: usize) -> String {
    kong.of(Kind::Acl)[at].fields.peek("group").unwrap_or_default()
}

/// The entities of a kind that belong to a consumer.
fn of_consumer(kong: &Kong<'_>, kind: Kind, consumer: usize) -> Vec<usize> {
    let is_his = |at: &usize| {
        let object = &kong.of(kind)[*at];
        !object.is_lost && object.of.get(&Kind::Consumer) == Some(&consumer)
    };
    (0..kong.of(kind).len()).filter(is_his).collect()
}

fn keys(
    kong: &mut Kong<'_>,
    consumer: usize,
    wish: &str,
    map: &mut Map,
    config: &mut Config,
    ledger: &mut Ledger,
) {
    let mut keys = Vec::new();
    for at in of_consumer(kong, Kind::KeyAuth, consumer) {
        let mut fields = kong.take(Kind::KeyAuth, at);
        if let Some((key, piece)) = fields.text("key", ledger) {
            ledger.conceal(piece);
            keys.push(variable(&key, &format!("{wish}_key"), config));
            ledger.same(piece);
        }
        if let Some((_, piece)) = fields.number("ttl", ledger) {
            ledger.refused(
                piece,
                "keys of Weir do not expire by themselves",
                "remove the key by the admin API",
            );
        }
        refuse_rest(
            fields,
            "weir import does not know this key of a credential",
            "consumers.NAME.key_auth",
            ledger,
        );
    }
    if !keys.is_empty() {
        map.set("key_auth", Value::List(keys));
    }
}

fn passwords(kong: &mut Kong<'_>, consumer: usize, map: &mut Map, config: &mut Config, ledger: &mut Ledger) {
    let mut users = Vec::new();
    for at in of_consumer(kong, Kind::BasicAuth, consumer) {
        let user = kong.of(Kind::BasicAuth)[at].title.clone();
        let mut fields = kong.take(Kind::BasicAuth, at);
        if let Some((_, piece)) = fields.text("password", ledger) {
            ledger.conceal(piece);
            let Value::WithVariables(variable) =
                config.missing_secret(&format!("basic_auth_{user}"), NO_PASSWORD)
            else {
                continue;
            };
            let what = match kong.is_hashed {
                true => {
                    "Kong's hash is SHA-1, which Weir does not take: the user is locked out until you set a new \
                        password"
                }
                false => "Weir takes only hashes: the user is locked out until you write one",
            };
            let name = variable.trim_start_matches("${").trim_end_matches('}').to_owned();
            ledger.refused(
                piece,
                what,
                format!(
                    "`weir hash --user {user}` makes one: put what follows `{user}:` to {name} in secrets.env"
                ),
            );
            users.push(Value::WithVariables(format!("{}:{variable}", user.replace('$', "$$"))));
        }
        refuse_rest(
            fields,
            "weir import does not know this key of a credential",
            "consumers.NAME.basic_auth",
            ledger,
        );
    }
    if !users.is_empty() {
        map.set("basic_auth", Value::List(users));
    }
}

fn tokens(
    kong: &mut Kong<'_>,
    consumer: usize,
    wish: &str,
    map: &mut Map,
    known: &mut Known,
    config: &mut Config,
    ledger: &mut Ledger,
) {
    let mut issuers = Vec::new();
    for at in of_consumer(kong, Kind::JwtSecret, consumer) {
        let mut fields = kong.take(Kind::JwtSecret, at);
        let algorithm = fields.text("algorithm", ledger);
        let issuer = fields.text("key", ledger);
        let secret = fields.text("secret", ledger);
        let pem = fields.text("rsa_public_key", ledger);
        let name = algorithm.as_ref().map_or("HS256", |(text, _)| text.as_str()).to_owned();
        algorithm.iter().for_each(|(_, piece)| ledger.same(*piece));
        let key = match (&secret, &pem, name.starts_with("HS")) {
            (Some((secret, piece)), _, true) => {
                ledger.conceal(*piece);
                if secret.len() < MIN_SECRET && !secret.starts_with(['$', '{']) {
                    let why =
                        format!("the secret has {} bytes; Weir takes {MIN_SECRET} or more", secret.len());
                    ledger.refused(*piece, why, "a longer secret, or a key pair: the filter jwt");
                    None
                } else {
                    ledger.same(*piece);
                    Some(("secret", variable(secret, &format!("{wish}_jwt_secret"), config)))
                }
            }
            (_, Some((pem, piece)), false) => {
                let path = format!(
                    "keys/{}.pem",
                    crate::config::name_of(issuer.as_ref().map_or(wish, |(key, _)| key))
                );
                config.files.insert(path.clone(), pem.clone());
                ledger.same(*piece);
                Some(("keys", path.into()))
            }
            _ => None,
        };
        for (_, piece) in secret.iter().chain(&pem) {
            if !ledger.is_judged(*piece) {
                ledger.left_out(*piece, "the algorithm uses another key");
            }
        }
        if let Some((issuer, piece)) = issuer {
            match key {
                Some(key) => {
                    ledger.same(piece);
                    known.tokens.push(Token { issuer: issuer.clone(), algorithm: name, key });
                    issuers.push(issuer);
                }
                None => ledger.refused(
                    piece,
                    "Weir cannot verify tokens of this issuer",
                    "`keys` or `secret` of the filter jwt",
                ),
            }
        }
        refuse_rest(fields, "weir import does not know this key of a credential", "the filter jwt", ledger);
    }
    if !issuers.is_empty() {
        map.set("jwt", issuers);
    }
}

fn groups(
    kong: &mut Kong<'_>,
    consumer: usize,
    acls: &[String],
    names: &[String],
    map: &mut Map,
    ledger: &mut Ledger,
) {
    let mut groups = Vec::new();
    for at in of_consumer(kong, Kind::Acl, consumer) {
        let mut fields = kong.take(Kind::Acl, at);
        if let Some((_, piece)) = fields.text("group", ledger) {
            ledger.same(piece);
            groups.extend(acls.get(at).cloned());
        }
        refuse_rest(fields, "weir import does not know this key of an acl", "consumers.NAME.groups", ledger);
    }
    for at in of_consumer(kong, Kind::Membership, consumer) {
        let group = kong.of(Kind::Membership)[at].of.get(&Kind::Group).copied();
        groups.extend(group.and_then(|group| names.get(group)).cloned());
    }
    groups.dedup();
    if !groups.is_empty() {
        map.set("groups", groups);
    }
}
