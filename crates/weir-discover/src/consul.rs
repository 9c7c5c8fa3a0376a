//! The healthy instances of a service in Consul, followed with blocking queries.
//!
//! Each request carries the index of the last answer. The index is only compared; it may go backwards when Consul was
//! restored, and then we query everything again (developer.hashicorp.com/consul/api-docs/features/blocking).
//!
//! kratos and sponge register a tagged address for each protocol, written as a URL. Without one, we use the service's
//! own address, which go-zero and everybody else register.

use crate::{
    Choice, Found, INSTANCES, Instance, Listing, MOST_WEIGHT, VALUE_BYTES, host_of, kratos, short, weight,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Longest answer, in bytes. Consul's answers include nodes and checks.
pub const ANSWER_BYTES: usize = 8 << 20;

/// How long Consul holds a request; it adds up to a sixteenth.
pub const HELD: Duration = Duration::from_secs(30);

/// Timeout of a request: the time that Consul holds it, plus some for the transfer.
pub const WAIT: Duration = Duration::from_secs(40);

/// Most instances read; this leaves room to name some unusable ones.
const READ: usize = 4 * INSTANCES;

/// A service, and the index reached so far.
#[derive(Clone, Debug)]
pub struct Service {
    name: String,
    /// Use only instances with this tag.
    tag: Option<String>,
    datacenter: Option<String>,
    choice: Choice,
    index: u64,
    /// The largest index seen, including before failures.
    newest: u64,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The instances.
    pub listing: Listing,
    /// Whether Consul lost data: it was restored, or lost its disk.
    pub went_back: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    node: Option<Node>,
    service: Registered,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    address: String,
}

#[derive(Deserialize)]
struct Registered {
    #[serde(default, rename = "ID")]
    id: String,
    #[serde(default, rename = "Address")]
    address: String,
    #[serde(default, rename = "Port")]
    port: i64,
    #[serde(default, rename = "Tags")]
    tags: Option<Vec<String>>,
    #[serde(default, rename = "Meta")]
    meta: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "TaggedAddresses")]
    tagged: Option<BTreeMap<String, Tagged>>,
    #[serde(default, rename = "Weights")]
    weights: Option<Weights>,
    #[serde(default, rename = "CreateIndex")]
    created: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tagged {
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: Option<i64>,
}

impl Service {
    /// Follows a service by its name.
    pub fn new(name: &str, tag: Option<&str>, datacenter: Option<&str>, choice: Choice) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            name: name.to_owned(),
            tag: owned(tag),
            datacenter: owned(datacenter),
            choice,
            index: 0,
            newest: 0,
        }
    }

    /// Path and query of the next request. Consul answers it immediately if it starts over.
    pub fn target(&self) -> String {
        let mut target = format!("/v1/health/service/{}?passing=1", escaped(&self.name));
        for (key, value) in [("tag", &self.tag), ("dc", &self.datacenter)] {
            if let Some(value) = value {
                let _ = write!(target, "&{key}={}", escaped(value)); // writing to a String cannot fail
            }
        }
        if self.index > 0 {
            let _ = write!(target, "&index={}&wait={}s", self.index, HELD.as_secs());
        }
        target
    }

    /// Processes an answer and its index.
    ///
    /// # Errors
    /// When the body is not such an answer.
    pub fn answered(&mut self, index: Option<&[u8]>, body: &[u8]) -> Result<Answer, String> {
        let index = index.and_then(|index| std::str::from_utf8(index).ok()?.trim().parse::<u64>().ok());
        let index = index.ok_or("the answer has no X-Consul-Index: it is not from Consul")?;
        let listing = self.listing(body)?;
        let went_back = index < self.newest;
        // Consul would answer index 0 immediately, every time.
        self.index = if index < self.index { 0 } else { index.max(1) };
        self.newest = index;
        Ok(Answer { listing, went_back })
    }

    /// After a failure: the next request does not block.
    pub const fn failed(&mut self) {
        self.index = 0;
    }

    fn listing(&self, body: &[u8]) -> Result<Listing, String> {
        let all: Vec<Listed> =
            serde_json::from_slice(body).map_err(|_| "the answer is not a Consul list".to_owned())?;
        let named: Vec<(String, Result<Found, String>)> =
            all.iter().take(READ).map(|listed| (short(&listed.service.id), self.found(listed))).collect();
        let mut listing = Listing::of(named.iter().map(|(id, found)| (id.as_str(), found)), 1);
        for listed in all.iter().skip(READ) {
            listing.leave_out(&listed.service.id, crate::too_many());
        }
        Ok(listing)
    }

    fn found(&self, listed: &Listed) -> Result<Found, String> {
        let service = &listed.service;
        let meta = service.meta.as_ref();
        let meta = |name: &str| meta.and_then(|meta| meta.get(name)).filter(|text| !text.is_empty());
        let tagged = service.tags.iter().flatten().find_map(|tag| tag.strip_prefix("version="));
        let version = tagged.or_else(|| meta("version").map(String::as_str)).unwrap_or_default();
        if self.choice.version.as_ref().is_some_and(|wanted| wanted != version) {
            return Err(format!("it is version `{}`", short(version)));
        }
        let (host, port) = self.address(listed)?;
        let passing = service.weights.as_ref().and_then(|weights| weights.passing);
        let passing = passing.and_then(|weight| u32::try_from(weight.min(MOST_WEIGHT.into())).ok());
        let passing = passing.filter(|weight| *weight > 0);
        // Consul gives every service a weight of 1; a weight set in kratos is in the metadata.
        let own = meta("weight").and_then(|text| weight(text));
        let instance = Instance {
            id: short(&service.id),
            version: short(version),
            host,
            port,
            weight: 1,
            zone: meta("zone").map(|zone| short(zone)),
            priority: 0,
        };
        Ok(Found { instance, weight: passing.filter(|weight| *weight != 1).or(own), since: service.created })
    }

    fn address(&self, listed: &Listed) -> Result<(String, u16), String> {
        let service = &listed.service;
        let tagged = service.tagged.iter().flatten();
        let mut urls =
            tagged.clone().map(|(_, tagged)| &*tagged.address).filter(|text| text.contains("://")).peekable();
        if urls.peek().is_some() {
            let all: Vec<&str> = urls.filter(|url| url.len() <= VALUE_BYTES).collect();
            return kratos::endpoint(all.iter().copied(), &self.choice);
        }
        if let Some((_, own)) = tagged.clone().find(|(tag, _)| **tag == self.choice.scheme) {
            return at(&own.address, own.port);
        }
        let node = listed.node.as_ref().map_or("", |node| &node.address);
        at(if service.address.is_empty() { node } else { &service.address }, service.port)
    }
}

fn at(host: &str, port: i64) -> Result<(String, u16), String> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0);
    let port = port.ok_or_else(|| "it has no port".to_owned())?;
    host_of(host).map(|host| (host, port)).map_err(|what| format!("`{}` {what}", short(host)))
}

/// Percent-encodes a text for a path segment or a query value. Source: RFC 3986 §2.3.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}"); // writing to a String cannot fail
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{grpc, seen};

    fn service(choice: Choice) -> Service {
        Service::new("orders", None, None, choice)
    }

    fn listed(service: &str) -> String {
        format!(
            r#"{{"Node":{{"Node":"n","Address":"10.9.9.9"}},"Service":{service},"Checks":[{{"Status":"passing"}}]}}"#
        )
    }

    fn all(choice: Choice, services: &[&str]) -> Listing {
        let services: Vec<String> = services.iter().map(|one| listed(one)).collect();
        let answer = service(choice).answered(Some(b"7"), format!("[{}]", services.join(",")).as_bytes());
        answer.unwrap().listing
    }

    #[test]
    fn questions() {
        let mut orders = Service::new("a b/c", Some("v=1&x"), Some("dc1"), grpc());
        assert_eq!(orders.target(), "/v1/health/service/a%20b%2Fc?passing=1&tag=v%3D1%26x&dc=dc1");
        orders.answered(Some(b"42"), b"[]").unwrap();
        assert!(orders.target().ends_with("&index=42&wait=30s"));
        orders.failed();
        assert!(!orders.target().contains("index"));
    }

    #[test]
    fn an_index_that_goes_back_begins_anew() {
        let mut orders = service(grpc());
        let mut next = |index: &[u8]| {
            let answer = orders.answered(Some(index), b"[]").unwrap();
            (answer.went_back, orders.index)
        };
        assert_eq!(next(b"42"), (false, 42));
        assert_eq!(next(b"42"), (false, 42));
        assert_eq!(next(b"41"), (true, 0));
        assert_eq!(next(b"41"), (false, 41));
        assert_eq!(next(b"0"), (true, 0));
        assert_eq!(next(b"0"), (false, 1));
        orders.answered(Some(b"9"), b"[]").unwrap();
        orders.failed();
        assert!(orders.answered(Some(b"3"), b"[]").unwrap().went_back);
    }

    #[test]
    fn the_address_of_a_plain_service() {
        let listing = all(
            grpc(),
            &[
                r#"{"ID":"1","Address":"10.0.0.1","Port":80,"Weights":{"Passing":10,"Warning":1},"Meta":{"version":"v1","zone":"a"}}"#,
                r#"{"ID":"2","Address":"","Port":81,"TaggedAddresses":{"lan_ipv4":{"Address":"10.0.0.2","Port":81}}}"#,
                r#"{"ID":"3","Address":"10.0.0.3","Port":82,"TaggedAddresses":{"grpc":{"Address":"10.0.0.3","Port":9000}}}"#,
                r#"{"ID":"4","Address":"10.0.0.4","Port":0,"Tags":null,"Meta":null}"#,
            ],
        );
        let expected = [("10.0.0.1:80", 10), ("10.0.0.3:9000", 1), ("10.9.9.9:81", 1)];
        assert_eq!(seen(&listing), expected.map(|(at, weight)| (at.to_owned(), weight)));
        assert_eq!((&*listing.instances[0].version, listing.instances[0].zone.as_deref()), ("v1", Some("a")));
        assert_eq!((listing.unusable, &*listing.left_out[0].why), (1, "it has no port"));
    }

    #[test]
    fn weights_that_consul_or_kratos_was_told() {
        let one = |n: u8, passing: i64, own: &str| {
            format!(
                r#"{{"ID":"{n}","Address":"10.0.0.{n}","Port":80,"Weights":{{"Passing":{passing}}},"Meta":{{"weight":"{own}"}}}}"#
            )
        };
        let all_of = [one(1, 0, "30"), one(2, 1, "20"), one(3, 70_000, "20"), one(4, -5, ""), one(5, 1, "")];
        let weights: Vec<u32> =
            seen(&all(grpc(), &all_of.each_ref().map(String::as_str))).into_iter().map(|(_, w)| w).collect();
        assert_eq!(weights, [30, 20, 65_535, 1, 1]);
    }

    #[test]
    fn the_addresses_that_kratos_registers() {
        let kratos = r#"{"ID":"1","Address":"10.0.0.1","Port":8000,"Tags":["version=v3"],"TaggedAddresses":{
            "http":{"Address":"http://10.0.0.1:8000?isSecure=false","Port":8000},
            "grpc":{"Address":"grpc://10.0.0.1:9000?isSecure=false","Port":9000},
            "lan_ipv4":{"Address":"10.0.0.1","Port":8000}}}"#;
        assert_eq!(seen(&all(grpc(), &[kratos])), [("10.0.0.1:9000".to_owned(), 1)]);
        let v3 = Choice { version: Some("v3".to_owned()), ..grpc() };
        assert_eq!(all(v3, &[kratos]).instances[0].version, "v3");
        let tls = Choice { tls: true, ..grpc() };
        assert_eq!(all(tls, &[kratos]).unusable, 1);
    }

    #[test]
    fn what_is_no_answer() {
        let mut orders = service(grpc());
        assert!(orders.answered(None, b"[]").unwrap_err().contains("X-Consul-Index"));
        for body in ["", "{}", "[1]", "[{}]", "null"] {
            assert!(orders.answered(Some(b"5"), body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(orders.index, 0);
    }
}
