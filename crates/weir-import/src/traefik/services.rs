//! Services: load balancers as upstreams, weighted ones as splits, mirrors as the filter `mirror`, failover as
//! priorities of endpoints.

mod balancer;
mod composite;
mod health;
mod transport;

pub(super) use balancer::split_url;

use super::cx::{Cx, Kind, Thing, nothing_else};
use crate::config::{Filter, Target};
use crate::shared::tree::Fields;
use crate::yaml::Map;
use balancer::balanced;
use composite::{failover, mirroring, weighted};

/// Deepest nesting of services.
const MAX_DEPTH: usize = 8;
/// What answers the requests of a router.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) target: Target,
    /// Filters that belong to the service, behind the router's own.
    pub(super) filters: Vec<Filter>,
}

/// The middleware `retry`, which Weir has on upstreams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry(pub(super) Map);

/// The target for a service.
///
/// # Errors
/// Why there is none. The ledger then has a verdict on each statement at fault.
pub(super) fn served(
    cx: &mut Cx<'_, '_>,
    reference: &str,
    provider: &'static str,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    if depth > MAX_DEPTH {
        return Err(format!("services nested more than {MAX_DEPTH} deep"));
    }
    let at = cx.find(Kind::Service, reference, provider)?;
    let key = (at, format!("{retry:?}"));
    if let Some(known) = cx.served.get(&key) {
        return known.clone();
    }
    let circle = Err(format!("service `{reference}` is a part of itself"));
    cx.served.insert(key.clone(), circle);
    let served = translate(cx, at, retry, depth);
    cx.served.insert(key, served.clone());
    served
}

fn translate(cx: &mut Cx<'_, '_>, at: usize, retry: Option<&Retry>, depth: usize) -> Result<Served, String> {
    let thing = cx.things.of(Kind::Service)[at].clone();
    cx.ledger.same(thing.piece);
    let mut fields = Fields::in_any_case(thing.node);
    let kinds = ["weighted", "mirroring", "failover", "highestRandomWeight"];
    for kind in kinds {
        let Some((node, piece)) = fields.map(kind, cx.ledger) else { continue };
        nothing_else(fields, "a service", cx.ledger);
        cx.ledger.same(piece);
        return match kind {
            "weighted" => weighted(cx, node, &thing, retry, depth),
            "mirroring" => mirroring(cx, node, &thing, retry, depth),
            "failover" => failover(cx, node, piece, &thing, retry),
            _ => {
                node.each_piece(&mut |piece| cx.ledger.refused(piece, "Weir splits by chance", "sticky"));
                Err(format!("service `{}` is of a kind that Weir does not have", thing.name))
            }
        };
    }
    let balanced = balanced(cx, &thing, retry)?;
    nothing_else(fields_of_balancer(&thing), "a service", cx.ledger);
    let wish = if retry.is_some() { format!("{}-retry", thing.name) } else { thing.name.clone() };
    let name = cx.config.upstreams.add(&wish, balanced.upstream);
    Ok(Served { target: Target::Upstream(name), filters: prefix(&balanced.prefix) })
}

/// The keys beside `loadBalancer`.
fn fields_of_balancer<'t>(thing: &Thing<'t>) -> Fields<'t> {
    let mut fields = Fields::in_any_case(thing.node);
    fields.entry("loadBalancer");
    fields
}

fn prefix(path: &str) -> Vec<Filter> {
    let add = (!path.is_empty()).then(|| Filter::new("rewrite", Map::new().with("add_prefix", path)));
    add.into_iter().collect()
}
