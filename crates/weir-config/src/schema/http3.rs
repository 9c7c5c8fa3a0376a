//! `http3` of a listener: settings that only HTTP/3 has.

use std::borrow::Cow;
use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use crate::de;
use crate::units::Duration;

/// Settings of HTTP/3, which runs over QUIC on the UDP port of the same number as the listener's TCP port. Needs `h3` in
/// `protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http3 {
    /// How long a QUIC connection may be silent in both directions before it ends, `1s` to `1h`. If the client's own
    /// limit is shorter, that one counts. Default `30s`: firewalls and NAT routers forget UDP flows after about as
    /// long. `timeouts.keepalive` applies to connections without requests as well.
    pub idle: Duration,
    /// When a client must prove that it receives what is sent to its address (a Retry packet, RFC 9000 §8.1.2), which
    /// costs it a round trip: `auto` while many handshakes are under way, `always` for every new connection. Default
    /// `auto`.
    pub retry: Http3Retry,
    /// Whether clients that come back may send requests before the handshake is complete (0-RTT). An attacker who
    /// records such a request can send it again, to another node for example. So a request that arrives this early
    /// runs at once only if its method is safe, it has no body, and its route has `early_data: true`; any other
    /// waits for the handshake. Tickets of this listener then work once and are forgotten in an upgrade. Not with
    /// `client_auth`. Default false.
    pub early_data: bool,
    /// Whether a connection survives a change of the client's address, as when a phone leaves Wi-Fi. Default true.
    pub migration: bool,
    /// The port that responses over HTTP/1.1 and HTTP/2 announce in Alt-Svc, so that clients learn about HTTP/3; or
    /// `"off"` to announce nothing. Default: the port of the listener's own address. Needed if clients reach it under
    /// another port, such as behind a load balancer.
    pub advertise: Advertise,
}

/// When clients must prove their address before the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Http3Retry {
    /// Every client must.
    Always,
    /// Clients must while many handshakes are under way.
    #[default]
    Auto,
}

/// What Alt-Svc announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advertise {
    /// Nothing.
    Off,
    /// The port of the address that the listener has.
    #[default]
    Own,
    /// This port.
    Port(NonZeroU16),
}

impl Http3 {
    /// Shortest time for `idle`: below it, one lost packet could end a connection.
    pub const MIN_IDLE: Duration = Duration::from_secs(1);
    /// Longest time for `idle`.
    pub const MAX_IDLE: Duration = Duration::from_secs(60 * 60);
}

impl Default for Http3 {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            retry: Http3Retry::Auto,
            early_data: false,
            migration: true,
            advertise: Advertise::Own,
        }
    }
}

impl<'de> Deserialize<'de> for Advertise {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a port to announce; expected a number from 1 to 65535, or \"off\"";
        match &*de::text(deserializer, EXPECTED)? {
            "off" => Ok(Self::Off),
            port => port.parse().map(Self::Port).map_err(|_| de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for Advertise {
    fn schema_name() -> Cow<'static, str> {
        "Advertise".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A port, or `\"off\"`.",
            "anyOf": [{ "const": "off" }, { "type": "integer", "minimum": 1, "maximum": u16::MAX }],
        })
    }
}
