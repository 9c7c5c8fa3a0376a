//! `ssl_ciphers`, `ssl_ecdh_curve` and `ssl_session_tickets` of a listener.

use super::context::Cx;
use super::server::Server;
use crate::yaml::Map;

/// The ciphers of TLS 1.2 that Weir has, by OpenSSL's names. `ssl_ciphers` says nothing about TLS 1.3.
const CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// The curves that Weir has, by the names that nginx takes.
const CURVES: [&str; 7] =
    ["X25519MLKEM768", "X25519", "prime256v1", "secp256r1", "P-256", "secp384r1", "P-384"];

/// Writes what the servers of an address say, the default one first: a listener has one policy.
pub(super) fn policy<'s, 'a: 's>(
    cx: &mut Cx<'a, '_>,
    servers: impl Iterator<Item = &'s Server<'a>>,
    tls: &mut Map,
) {
    let mut said: [Option<String>; 3] = [None, None, None];
    for server in servers {
        let names = ["ssl_ciphers", "ssl_ecdh_curve", "ssl_session_tickets"];
        for (at, name) in names.into_iter().enumerate() {
            let Some(line) = server.block.one(name) else { continue };
            let value = line.first().to_owned();
            match said.get_mut(at) {
                Some(known @ None) => {
                    *known = Some(value.clone());
                    match at {
                        0 => some_of(cx, line.piece, "ciphers", &value, &CIPHERS, tls),
                        1 => some_of(cx, line.piece, "curves", &value, &CURVES, tls),
                        _ if value == "off" => {
                            let why = "without tickets every handshake is a full one: Weir keeps no sessions of clients";
                            cx.ledger.changed(line.piece, why);
                            tls.set("tickets", false);
                        }
                        _ => cx.ledger.by_itself(line.piece, "ticket keys change by themselves"),
                    }
                }
                Some(Some(known)) if *known == value => cx.ledger.same(line.piece),
                _ => cx.ledger.changed(line.piece, "a listener has one policy: that of its default server"),
            }
        }
    }
}

/// The names of a list that Weir has.
fn some_of(
    cx: &mut Cx<'_, '_>,
    piece: crate::ledger::Piece,
    key: &str,
    list: &str,
    known: &[&str],
    tls: &mut Map,
) {
    let words: Vec<&str> = list.split([':', ',', ' ']).filter(|word| !word.is_empty()).collect();
    // What OpenSSL never enables, or TLS 1.3, which the list says nothing about.
    let is_silent = |word: &&str| word.starts_with('!') || word.starts_with("TLS_") || word.starts_with("@");
    let named: Vec<&str> = words.iter().filter(|word| !is_silent(word)).copied().collect();
    if matches!(&*named, ["auto"] | ["HIGH"] | ["DEFAULT"]) {
        return cx.ledger.by_itself(piece, "Weir takes all that it has, which are safe");
    }
    let kept: Vec<String> =
        named.iter().filter(|word| known.contains(word)).map(|word| (*word).to_owned()).collect();
    let gone: Vec<&str> = named.iter().filter(|word| !known.contains(word)).copied().collect();
    if kept.is_empty() {
        let why = format!("Weir has none of them, so it takes all {key} that it has, which are safe");
        return cx.ledger.changed(piece, why);
    }
    if gone.is_empty() {
        cx.ledger.same(piece);
    } else {
        cx.ledger.changed(piece, format!("Weir does not have {}", gone.join(", ")));
    }
    // All of them is Weir's own default.
    if key != "ciphers" || kept.len() < known.len() {
        tls.set(key, kept);
    }
}
