//! Consumers of APISIX: their credentials, and the plugins that run for them.

use super::{Apisix, common, refuse_rest};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::tree::{Entry, Fields, Node};
use crate::yaml::{Map, Value};

/// A hash that no password has.
const NO_PASSWORD: &str = "$2b$12$GhvMmNVjRW29ulnudl.LbuAnUtN/LRfe1JsBm1Xu6LE3059z5Tr8m";

/// What routes must know of the consumers.
#[derive(Default)]
pub(super) struct Known<'t> {
    /// The settings of jwt-auth of each consumer.
    pub(super) tokens: Vec<Map>,
    /// Plugins of consumers that are no credentials, by our name of the consumer.
    pub(super) own: Vec<(String, Vec<&'t Entry>)>,
}

pub(super) fn consumers<'t>(apisix: &Apisix<'t>, config: &mut Config, ledger: &mut Ledger) -> Known<'t> {
    let mut known = Known::default();
    for (id, node) in apisix.of("consumers") {
        let mut fields = Fields::of(node);
        common(&mut fields, ledger);
        let name = fields.text("username", ledger).map_or_else(
            || id.clone(),
            |(name, piece)| {
                ledger.same(piece);
                name
            },
        );
        let mut map = Map::new();
        let mut own = Vec::new();
        if let Some((group, piece)) = fields.text("group_id", ledger) {
            map.set("groups", vec![group.clone()]);
            ledger.same(piece);
            let plugins = apisix.find("consumer_groups", &group).and_then(|node| node.get("plugins"));
            own.extend(plugins.and_then(Node::as_map).unwrap_or_default());
        }
        if let Some((plugins, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
            for entry in plugins.as_map().unwrap_or_default() {
                let mut inner = Fields::of(&entry.node);
                let secret = |key: &str, inner: &mut Fields<'_>, ledger: &mut Ledger, config: &mut Config| {
                    inner.text(key, ledger).map(|(text, piece)| {
                        ledger.conceal(piece);
                        ledger.same(piece);
                        (
                            crate::shared::secrets::variable(
                                &text,
                                &format!("{name}_{}_{key}", entry.key),
                                config,
                            ),
                            text,
                        )
                    })
                };
                match &*entry.key {
                    "key-auth" => {
                        if let Some((key, _)) = secret("key", &mut inner, ledger, config) {
                            map.set("key_auth", Value::List(vec![key]));
                        }
                    }
                    "basic-auth" => {
                        let user = inner.text("username", ledger).map_or_else(
                            || name.clone(),
                            |(user, piece)| {
                                ledger.same(piece);
                                user
                            },
                        );
                        if let Some((_, piece)) = inner.text("password", ledger) {
                            ledger.conceal(piece);
                            if let Value::WithVariables(variable) =
                                config.missing_secret(&format!("basic_auth_{user}"), NO_PASSWORD)
                            {
                                let place =
                                    variable.trim_start_matches("${").trim_end_matches('}').to_owned();
                                ledger.refused(
                                    piece,
                                    "Weir takes only hashes: the user is locked out until you \
                                    write one",
                                    format!(
                                        "`weir hash --user {user}` makes one: put what follows `{user}:` to \
                                        {place} in secrets.env"
                                    ),
                                );
                                map.set(
                                    "basic_auth",
                                    Value::List(vec![Value::WithVariables(format!(
                                        "{}:{variable}",
                                        user.replace('$', "$$")
                                    ))]),
                                );
                            }
                        }
                    }
                    "jwt-auth" => {
                        let issuer = inner.text("key", ledger);
                        let algorithm = inner.text("algorithm", ledger).map_or_else(
                            || "HS256".to_owned(),
                            |(text, piece)| {
                                ledger.same(piece);
                                text
                            },
                        );
                        let key = match algorithm.starts_with("HS") {
                            true => secret("secret", &mut inner, ledger, config)
                                .filter(|(_, text)| text.len() >= 32 || text.starts_with('$'))
                                .map(|(value, _)| ("secret", value)),
                            false => inner.text("public_key", ledger).map(|(pem, piece)| {
                                let path = format!("keys/{}.pem", crate::config::name_of(&name));
                                config.files.insert(path.clone(), pem);
                                ledger.same(piece);
                                ("keys", path.into())
                            }),
                        };
                        for key in ["exp", "lifetime_grace_period"] {
                            if let Some(entry) = inner.entry(key) {
                                ledger.left_out(entry.piece, "for tokens that APISIX signs itself");
                            }
                        }
                        match (issuer, key) {
                            (Some((issuer, piece)), Some((kind, value))) => {
                                ledger.changed(
                                    piece,
                                    "APISIX finds the consumer by the claim `key`; the filter \
                                    requires it too",
                                );
                                let require = Map::new().with("key", issuer.clone());
                                known.tokens.push(
                                    Map::new()
                                        .with(kind, value)
                                        .with("algorithms", vec![algorithm])
                                        .with("require", require)
                                        .with("consumer", "key"),
                                );
                                map.set("jwt", vec![issuer]);
                            }
                            (issuer, _) => issuer.iter().for_each(|(_, piece)| {
                                ledger.refused(
                                    *piece,
                                    "no key that Weir can use: secrets have 32 bytes or more",
                                    "`keys` or `secret` of the filter jwt",
                                )
                            }),
                        }
                    }
                    _ => {
                        own.retain(|other: &&Entry| other.key != entry.key);
                        own.push(entry);
                        continue;
                    }
                }
                ledger.same(entry.piece);
                for entry in inner.rest() {
                    entry.each_piece(&mut |piece| {
                        ledger.refused(
                            piece,
                            "weir import does not know this setting of a credential",
                            "consumers.NAME",
                        )
                    });
                }
            }
        }
        refuse_rest(fields, "a consumer", ledger);
        let name = config.consumers.add(&name, map);
        if !own.is_empty() {
            known.own.push((name, own));
        }
    }
    for (_, node) in apisix.of("consumer_groups") {
        let mut fields = Fields::of(node);
        common(&mut fields, ledger);
        if let Some((_, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
        }
    }
    known
}
