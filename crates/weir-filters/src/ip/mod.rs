//! `ip`: allows or refuses requests by the client's address.

mod set;

use super::prelude::*;
use ipnet::IpNet;
use set::IpSet;
use weir_filter::config::schema::Network;

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<IpSettings>("ip").with_causes(&[&IP_DENIED, &IP_NOT_ALLOWED]).judged_by_head();

static IP_DENIED: Cause = Cause {
    code: "ip_denied",
    status: 403,
    meaning: "The client's address is in a denied network.",
    change: "`deny` or `deny_file` of the filter ip",
    ..Cause::USUAL
};

static IP_NOT_ALLOWED: Cause = Cause {
    code: "ip_not_allowed",
    status: 403,
    meaning: "The client's address is in none of the allowed networks.",
    change: "`allow` or `allow_file` of the filter ip",
    ..Cause::USUAL
};

/// Allows or refuses requests by the client's address: the peer's, or the one that `trusted_proxies` report.
///
/// `deny` and `deny_file` take precedence over `allow` and `allow_file`. With `allow` or `allow_file`, all other addresses
/// are refused. IPv4 addresses match in either notation: `::ffff:10.0.0.1` is in 10.0.0.0/8, and not in `::/0`.
///
/// A file has one network per line; text after `#` or `;` is a comment. The file is watched like the config, and a
/// change that contains a mistake is ignored. Checking 100,000 networks takes no longer than checking one.
///
/// ```yaml
/// - ip: { allow: [ 10.0.0.0/8, "2001:db8::/32" ] }
/// - ip: { deny: [ 203.0.113.0/24 ] }                # and more of them: deny_file: blocked.txt
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct IpSettings {
    /// Only these networks may call, such as `10.0.0.0/8`. Default: everybody.
    allow: Vec<Network>,
    /// Networks that may not call. Default none.
    deny: Vec<Network>,
    /// A file with further networks that may not call. Default none.
    deny_file: Option<FilePath>,
    /// A file with further networks that may call. While it is empty, nobody may. Default none.
    allow_file: Option<FilePath>,
}

struct Ip {
    allow: Option<IpSet>,
    deny: IpSet,
}

/// Largest file, in bytes: about a million networks.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Most mistakes of a file that are reported.
const MAX_MISTAKES: usize = 5;

impl IntoFilter for IpSettings {
    type Filter = Ip;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Ip> {
        let Self { allow, deny, deny_file, allow_file } = self;
        if allow.is_empty() && deny.is_empty() && deny_file.is_none() && allow_file.is_none() {
            let hint = "write allow: [ 10.0.0.0/8 ], deny: [ .. ] or deny_file: blocked.txt";
            build.refuse("", "names no network: everybody would pass", Some(hint.into()));
            return None;
        }
        let before = build.mistakes.len();
        let limited = !allow.is_empty() || allow_file.is_some();
        let allow = networks(&allow, "allow_file", allow_file.as_ref(), build);
        let deny = networks(&deny, "deny_file", deny_file.as_ref(), build);
        (build.mistakes.len() == before)
            .then(|| Ip { allow: limited.then(|| IpSet::new(&allow)), deny: IpSet::new(&deny) })
    }
}

fn networks(written: &[Network], key: &str, file: Option<&FilePath>, build: &mut Build<'_>) -> Vec<IpNet> {
    let mut networks: Vec<IpNet> = written.iter().map(|network| network.0).collect();
    let Some(file) = file else { return networks };
    let text = match build.read_file(file, MAX_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(message) => {
            build.refuse(key, message, None);
            return networks;
        }
    };
    let mut mistakes = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        match parse(line) {
            None => {}
            Some(Ok(network)) => networks.push(network),
            Some(Err(message)) => {
                mistakes += 1;
                if mistakes <= MAX_MISTAKES {
                    let place = format!("{}:{}", file.0.display(), number + 1);
                    let hint = "one network in each line, such as 10.0.0.0/8 or 2001:db8::/32";
                    build.refuse(key, format!("{place}: `{line}` {message}"), Some(hint.into()));
                }
            }
        }
    }
    if mistakes > MAX_MISTAKES {
        build.refuse(key, format!("and {} more lines are no networks", mistakes - MAX_MISTAKES), None);
    }
    networks
}

fn parse(line: &str) -> Option<Result<IpNet, &'static str>> {
    if line.is_empty() {
        return None;
    }
    if let Ok(address) = line.parse::<std::net::IpAddr>() {
        return Some(Ok(address.into()));
    }
    Some(match line.parse::<IpNet>() {
        Ok(network) if network.addr() == network.network() => Ok(network),
        Ok(_) => Err("has bits set after its length"),
        Err(_) => Err("is not a network"),
    })
}

impl Filter for Ip {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, _: &mut RequestHead, cx: &mut Cx) -> Flow {
        cx.restricts();
        if self.deny.contains(cx.client) {
            return Flow::refuse(&IP_DENIED);
        }
        match &self.allow {
            Some(allow) if !allow.contains(cx.client) => Flow::refuse(&IP_NOT_ALLOWED),
            _ => Flow::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use weir_filter::filter::Consumer;

    async fn refused(settings: Value, client: &str) -> Option<&'static str> {
        let running = Stand::new(&KIND, settings).client(client).build();
        match running.request("GET /").await.flow {
            Flow::Continue => None,
            Flow::Refuse(refusal) => Some(refusal.cause.code),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn allow_and_deny() {
        let settings =
            json!({ "allow": ["10.0.0.0/8", "2001:db8::/32"], "deny": ["10.1.0.0/16", "2001:db8::7"] });
        for (client, cause) in [
            ("10.2.3.4", None),
            ("::ffff:10.2.3.4", None),
            ("10.1.2.3", Some("ip_denied")),
            ("::ffff:10.1.2.3", Some("ip_denied")),
            ("192.0.2.1", Some("ip_not_allowed")),
            ("2001:db8::1", None),
            ("2001:db8::7", Some("ip_denied")),
            ("2001:db9::1", Some("ip_not_allowed")),
        ] {
            assert_eq!(refused(settings.clone(), client).await, cause, "{client}");
        }
        assert_eq!(refused(json!({ "deny": ["::/0"] }), "::ffff:10.0.0.1").await, None);
        assert_eq!(refused(json!({ "deny": ["::/0"] }), "::1").await, Some("ip_denied"));
        assert_eq!(refused(json!({ "allow": ["::ffff:10.0.0.0/104"] }), "10.0.0.1").await, None);
    }

    /// The address or a key: nginx's `satisfy any`.
    #[tokio::test]
    async fn a_member_of_any() {
        let ip = json!({ "ip": { "allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"] } });
        let key = json!({ "key_auth": { "header": "x-key", "consumer_header": "x-who" } });
        for members in [json!([ip, key]), json!([key, ip])] {
            let credentials = BTreeMap::from([("key_auth".to_owned(), vec!["good".to_owned()])]);
            let shop = Consumer { name: "shop".to_owned(), credentials, ..Consumer::default() };
            let mut stand =
                Stand::new(&weir_identity::any::KIND, members.clone()).kinds(crate::KINDS).consumer(shop);
            let running = stand.build();
            for (client, fields, cause) in [
                ("10.2.3.4", "", None),
                ("::ffff:10.2.3.4", "x-key: bad", None),
                ("10.1.2.3", "", Some("key_missing")),
                ("10.1.2.3", "x-key: bad", Some("key_unknown")),
                ("192.0.2.1", "", Some("key_missing")),
                ("192.0.2.1", "x-key: bad", Some("key_unknown")),
                ("192.0.2.1", "x-key: good", None),
                ("10.1.2.3", "x-key: good", None),
            ] {
                let request = format!("GET /\nx-who: root\n{fields}");
                let mut exchange = running.from(client).request(request.trim_end()).await;
                let refused = match &exchange.flow {
                    Flow::Refuse(refusal) => Some(refusal.cause.code),
                    _ => None,
                };
                assert_eq!(refused, cause, "{client} {fields} {members}");
                if cause.is_some() {
                    exchange.expect_status(401);
                    assert_eq!(exchange.header("www-authenticate").len(), 1);
                } else if fields.ends_with("good") {
                    exchange.expect_header("x-who", "shop");
                } else {
                    exchange.expect_no_header("x-who"); // an address names nobody
                    assert!(exchange.cx.consumer().is_none());
                }
            }
        }
        let alone = Stand::new(&weir_identity::any::KIND, json!([ip, ip])).kinds(crate::KINDS).mistakes();
        assert!(alone[0].contains("no filter that identifies callers"), "{alone:?}");
    }

    #[tokio::test]
    async fn networks_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("blocked.txt");
        std::fs::write(
            &file,
            "# all of it\n10.0.0.0/8 ; SBL1\r\n\n  192.0.2.1\n2001:db8::/32 # documentation\n",
        )
        .unwrap();
        let settings = json!({ "deny_file": file });
        assert_eq!(refused(settings.clone(), "10.9.9.9").await, Some("ip_denied"));
        assert_eq!(refused(settings.clone(), "192.0.2.1").await, Some("ip_denied"));
        assert_eq!(refused(settings.clone(), "192.0.2.2").await, None);
        let only = json!({ "allow_file": file });
        assert_eq!(refused(only.clone(), "192.0.2.2").await, Some("ip_not_allowed"));
        std::fs::write(&file, "").unwrap();
        assert_eq!(refused(only, "10.9.9.9").await, Some("ip_not_allowed"));
    }

    #[test]
    fn mistakes() {
        assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("names no network"));
        assert!(Stand::new(&KIND, json!({ "allow": ["10.1.2.3/8"] })).mistakes()[0].contains("bits are set"));
        let missing = Stand::new(&KIND, json!({ "deny_file": "/nowhere/at all" })).mistakes();
        assert!(
            missing[0].starts_with("deny_file: ") && missing[0].contains("/nowhere/at all"),
            "{missing:?}"
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("blocked.txt");
        std::fs::write(&file, format!("10.0.0.0/8\n10.0.0.1/8\n{}", "nonsense\n".repeat(9))).unwrap();
        let told = Stand::new(&KIND, json!({ "deny_file": file })).mistakes();
        assert!(told[0].contains("blocked.txt:2: `10.0.0.1/8` has bits set"), "{told:?}");
        assert!(told[1].contains("blocked.txt:3: `nonsense` is not a network"), "{told:?}");
        assert!(told.len() == 6 && told[5].contains("and 5 more"), "{told:?}");
    }
}
