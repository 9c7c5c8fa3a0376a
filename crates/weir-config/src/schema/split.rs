//! `upstream` of a route: one upstream, or several arms among which requests are split by weight.

use std::borrow::Cow;

use compact_str::CompactString;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::Deserializer;

use super::values::FilterNode;
use crate::de;

/// The arms of a route, of which each request takes one. A single one gets all requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Split(pub Box<[Share]>);

/// One arm of a split.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Name of the upstream. If the filters of an arm answer its requests, there may be none of this name.
    pub upstream: CompactString,
    /// Its weight among the shares, 0 to 1000000.
    pub weight: u32,
    /// What it has besides; `None` if only its weight is written.
    pub arm: Option<Box<Arm>>,
}

/// What an arm has besides an upstream and a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name: the key in the map.
    pub name: CompactString,
    /// Whether `upstream` is written. Otherwise the arm leads to the upstream of its name.
    pub names_upstream: bool,
    /// Its own filters, which run after those of the route.
    pub filters: Box<[FilterNode]>,
}

/// An arm of a split with more than a weight.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Arm")]
struct Written {
    /// Its weight among the arms, 0 to 1000000. An arm of weight 0 gets no request.
    weight: Weight,
    /// Name of the upstream that answers its requests. Default: the upstream that has the arm's name. If the arm's
    /// filters answer every request, such as `respond` or `redirect`, it needs none.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    upstream: Option<CompactString>,
    /// Filters of this arm alone. They run after the route's filters, in this order; their response hooks run before
    /// those of the route, in reverse. Because they run for some requests only, they replace no filter of a consumer's
    /// plan. Default none.
    #[serde(default)]
    filters: Box<[FilterNode]>,
}

// === impl Split ===

impl Split {
    /// All requests to one upstream.
    pub fn all_to(upstream: CompactString) -> Self {
        Self([Share { upstream, weight: 1, arm: None }].into())
    }

    /// The filters of its arms.
    pub fn filters(&self) -> impl Iterator<Item = &FilterNode> {
        self.0.iter().flat_map(Share::filters)
    }

    /// Removes the filters of its arms. What is left of an arm that had only those is a share.
    pub fn forget_filters(&mut self) {
        for share in &mut self.0 {
            let Some(arm) = &mut share.arm else { continue };
            arm.filters = Box::default();
            if arm.name == share.upstream {
                share.arm = None;
            }
        }
    }
}

// === impl Share ===

impl Share {
    /// The name of the arm. Unless something else is written, it is the name of the upstream.
    pub fn name(&self) -> &CompactString {
        self.arm.as_ref().map_or(&self.upstream, |arm| &arm.name)
    }

    /// The filters of this arm alone.
    pub fn filters(&self) -> &[FilterNode] {
        self.arm.as_ref().map_or(&[], |arm| &arm.filters)
    }

    /// Whether it may lead to no upstream at all, because its filters may answer every request.
    pub fn may_answer(&self) -> bool {
        self.arm.as_ref().is_some_and(|arm| !arm.names_upstream && !arm.filters.is_empty())
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match de::TextOrMap::<CompactString, Shares>::deserialize(deserializer)? {
            de::TextOrMap::Map(Shares(shares)) => Ok(Self(shares.into())),
            de::TextOrMap::Text(upstream) => Ok(Self::all_to(upstream)),
        }
    }
}

/// The map of a split.
struct Shares(Vec<Share>);

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "names of upstreams with their shares such as { orders: 95, orders_next: 5 }";
        let arms = de::entries(deserializer, EXPECTED)?;
        Ok(Self(arms.into_iter().map(|(name, written)| share(name, written)).collect()))
    }
}

fn share(name: CompactString, written: de::TextOrMap<Weight, Written>) -> Share {
    match written {
        de::TextOrMap::Text(Weight(weight)) => Share { upstream: name, weight, arm: None },
        de::TextOrMap::Map(Written { weight: Weight(weight), upstream, filters }) => Share {
            weight,
            arm: Some(Box::new(Arm { name: name.clone(), names_upstream: upstream.is_some(), filters })),
            upstream: upstream.unwrap_or(name),
        },
    }
}

impl JsonSchema for Split {
    fn schema_name() -> Cow<'static, str> {
        "Split".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (weight, arm) = (generator.subschema_for::<Weight>(), generator.subschema_for::<Written>());
        schemars::json_schema!({
            "description": "The name of an upstream, or names with their shares.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": { "anyOf": [weight, arm] },
                },
            ],
        })
    }
}

/// The weight of an arm.
struct Weight(u32);

impl Weight {
    /// Sums of weights stay far below the range of their type.
    const MAX: u32 = 1_000_000;
}

impl JsonSchema for Weight {
    fn schema_name() -> Cow<'static, str> {
        "Weight".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": Self::MAX })
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a share; expected a whole number from 0 to 1000000";
        let text = de::text(deserializer, EXPECTED)?;
        match text.parse() {
            Ok(weight) if weight <= Self::MAX => Ok(Self(weight)),
            _ => {
                let bare = text.strip_suffix('%').filter(|number| number.parse::<u32>().is_ok());
                Err(de::refuse(EXPECTED, bare.map(|number| format!("write {number}")).as_deref()))
            }
        }
    }
}
