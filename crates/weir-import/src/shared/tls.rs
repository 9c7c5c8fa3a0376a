//! Ciphers and curves by the names of other gateways, as `tls: { ciphers, curves }` of a listener.

use crate::ledger::{Ledger, Piece};
use crate::yaml::Map;

/// Ciphers that Weir has: the name of IANA, which Go has too, and that of OpenSSL. Those of TLS 1.3 have one name.
const CIPHERS: &[(&str, &str)] = &[
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// Curves that Weir has: its own name, and what others call it, in lower case.
const CURVES: &[(&str, &[&str])] = &[
    ("X25519MLKEM768", &["x25519mlkem768"]),
    ("X25519", &["x25519", "curvex25519"]),
    ("secp256r1", &["secp256r1", "p-256", "prime256v1", "curvep256", "p256"]),
    ("secp384r1", &["secp384r1", "p-384", "curvep384", "p384"]),
];

/// Which ciphers a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those of TLS 1.3 alone.
    Tls13,
    /// Those of TLS 1.2: the list says nothing about TLS 1.3.
    Tls12,
}

/// Adds `ciphers` with those of a list that Weir has. Words of OpenSSL that only take ciphers away are passed over.
pub fn ciphers<'t>(
    names: impl IntoIterator<Item = &'t str>,
    of: Of,
    tls: &mut Map,
    piece: Piece,
    ledger: &mut Ledger,
) {
    let is_13 = |iana: &str| !iana.contains("_WITH_");
    let (mut kept, mut gone): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| !name.is_empty() && !name.starts_with(['!', '-', '@'])) {
        let upper = name.to_ascii_uppercase();
        let known = CIPHERS.iter().find(|(iana, openssl)| {
            upper == *iana || upper == *openssl || iana.strip_suffix("_SHA256") == Some(&upper)
        });
        match known {
            Some((iana, _)) if is_13(iana) != (of == Of::Tls13) => {}
            Some((iana, _)) if kept.iter().any(|known| known == iana) => {}
            Some((iana, _)) => kept.push((*iana).to_owned()),
            None => gone.push(name),
        }
    }
    let all = CIPHERS.iter().filter(|(iana, _)| is_13(iana) == (of == Of::Tls13)).count();
    let is_all = kept.len() == all;
    add("ciphers", kept, &gone, is_all, tls, piece, ledger);
}

/// Adds `curves` with those of a list that Weir has, in its order.
pub fn curves<'t>(
    names: impl IntoIterator<Item = &'t str>,
    tls: &mut Map,
    piece: Piece,
    ledger: &mut Ledger,
) {
    let (mut kept, mut gone): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let lower = name.to_ascii_lowercase();
        match CURVES.iter().find(|(_, names)| names.contains(&&*lower)) {
            Some((ours, _)) if kept.iter().any(|known| known == ours) => {}
            Some((ours, _)) => kept.push((*ours).to_owned()),
            None => gone.push(name),
        }
    }
    add("curves", kept, &gone, false, tls, piece, ledger);
}

/// Turns tickets off.
pub fn no_tickets(tls: &mut Map, piece: Piece, ledger: &mut Ledger) {
    tls.set("tickets", false);
    let why = "without tickets every handshake is a full one: Weir keeps no sessions of clients";
    ledger.changed(piece, why);
}

fn add(
    key: &str,
    kept: Vec<String>,
    gone: &[&str],
    is_all: bool,
    tls: &mut Map,
    piece: Piece,
    ledger: &mut Ledger,
) {
    match (kept.is_empty(), gone.is_empty()) {
        (true, true) => ledger.by_itself(piece, format!("Weir takes all {key} that it has, which are safe")),
        (true, false) => ledger.changed(
            piece,
            format!("Weir has none of these {key}, so it takes all that it has, which are safe"),
        ),
        (false, true) => ledger.same(piece),
        (false, false) => ledger.changed(piece, format!("Weir does not have {}", gone.join(", "))),
    }
    if kept.is_empty() || is_all {
        return;
    }
    // Lists for TLS 1.2 and 1.3 are one in Weir.
    let mut all: Vec<String> = match tls.get(key) {
        Some(crate::yaml::Value::List(known)) => known
            .iter()
            .filter_map(|value| match value {
                crate::yaml::Value::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    for name in kept {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    tls.set(key, all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Place;

    #[test]
    fn names_of_all_systems_become_ours() {
        let mut ledger = Ledger::default();
        let mut told = |list: &str, of: Option<Of>| {
            let piece = ledger.enter(Place::new("a", 1), list);
            let mut tls = Map::new();
            match of {
                Some(of) => ciphers(list.split(':'), of, &mut tls, piece, &mut ledger),
                None => curves(list.split(':'), &mut tls, piece, &mut ledger),
            }
            (tls.to_yaml().trim().to_owned(), ledger.verdict(piece).unwrap().word())
        };
        for (list, of, yaml, verdict) in [
            (
                "ECDHE-RSA-AES128-GCM-SHA256:!aNULL",
                Some(Of::Tls12),
                "ciphers: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
                "same",
            ),
            (
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305:TLS_AES_128_GCM_SHA256:AES128-SHA",
                Some(Of::Tls12),
                "ciphers: [TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]",
                "changed",
            ),
            ("TLS_AES_256_GCM_SHA384", Some(Of::Tls13), "ciphers: [TLS_AES_256_GCM_SHA384]", "same"),
            ("AES128-SHA", Some(Of::Tls12), "", "changed"),
            ("CurveP384:x25519:CurveP521", None, "curves: [secp384r1, X25519]", "changed"),
        ] {
            assert_eq!(told(list, of), (yaml.to_owned(), verdict), "{list}");
        }
    }
}
