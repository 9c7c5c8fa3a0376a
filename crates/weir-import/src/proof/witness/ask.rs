//! A request of a witness.

use super::super::patterns::Front;
use super::{Scenario, Turn};
use serde::{Deserialize, Serialize};

/// A request to ask, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// Where.
    pub front: Front,
    /// The field `Host`; none sends none, in HTTP/1.0.
    pub host: Option<String>,
    /// The method.
    pub method: String,
    /// The target, as sent.
    pub target: String,
    /// Further fields.
    pub fields: Vec<(String, String)>,
    /// How many bytes of body.
    pub body: u64,
    /// What the upstreams do.
    pub scenario: Scenario,
    /// How often it is asked in a row.
    pub calls: u32,
    /// The client's address; none for the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Endpoints: the calls end as soon as each of them has answered, and each call is another client's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub until: Vec<String>,
    /// Whether a hash of the request chooses the endpoint: then each program may choose another.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_hash: bool,
    /// After how many milliseconds a limit lets one more call pass; 0 if none is proved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refill_ms: u64,
    /// Asked once each, right behind the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Turn>,
    /// How many milliseconds to wait for a copy that comes after the answer; 0 if no line of the site sends copies.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies_ms: u64,
}

impl Ask {
    /// A plain GET.
    #[must_use]
    pub fn new(front: &Front, host: Option<&str>, target: &str) -> Self {
        Self {
            front: front.clone(),
            host: host.map(str::to_owned),
            method: "GET".to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            body: 0,
            scenario: Scenario::Plain,
            calls: 1,
            client: None,
            until: Vec::new(),
            by_hash: false,
            refill_ms: 0,
            then: Vec::new(),
            copies_ms: 0,
        }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.front.tls { "https" } else { "http" };
        let host = self.host.as_deref().unwrap_or(&self.front.ip);
        let port = if host.contains(':') { String::new() } else { format!(":{}", self.front.port) };
        format!("{scheme}://{host}{port}{}", self.target)
    }

    /// How much there is to understand: the smallest witness of a difference is shown.
    #[must_use]
    pub fn weight(&self) -> (bool, usize, u64, usize) {
        let more = self.fields.len() + usize::from(self.client.is_some());
        (self.scenario != Scenario::Plain, more, self.body, self.target.len())
    }

    /// As people write it: `POST http://a.example/x (x-y: z; 10 bytes)`.
    #[must_use]
    pub fn shown(&self) -> String {
        let scheme = if self.front.tls { "https" } else { "http" };
        let host = self.host.as_deref().unwrap_or("(no host)");
        let usual = if self.front.tls { 443 } else { 80 };
        let port = if self.front.port == usual || host.contains(':') {
            String::new()
        } else {
            format!(":{}", self.front.port)
        };
        let mut more: Vec<String> =
            self.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if self.body > 0 {
            more.push(format!("{} bytes", self.body));
        }
        match &self.scenario {
            Scenario::Plain => {}
            Scenario::Answer(status) => more.push(format!("upstream answers {status}")),
            Scenario::SetCookie => more.push("upstream sets cookies".to_owned()),
            Scenario::Dead(addresses) => more.push(format!("{} refuses connections", addresses.join(", "))),
        }
        more.extend(self.client.as_ref().map(|client| format!("from {client}")));
        if self.calls > 1 {
            more.push(format!("{} times", self.calls));
        }
        for turn in &self.then {
            let client = turn.client.as_ref().map(|client| format!("from {client}"));
            let fields = turn.fields.iter().map(|(name, value)| format!("{name}: {value}"));
            let target = turn.target.as_ref().map(|target| format!("for {target}"));
            let words: Vec<String> = client.into_iter().chain(target).chain(fields).collect();
            more.push(format!("then {}", words.join(" ")));
        }
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
        format!("{} {scheme}://{host}{port}{}{more}", self.method, self.target)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants references")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}
