//! Where a request goes, and what runs on the way.

use super::expressions::expressions_of;
use super::policies::PoliciesShown;
use super::shown::{FilterShown, GrpcShown, HashShown, ListShown, StickyShown, TargetShown, UpstreamShown};
use weir_config::secrecy::without_expression;
use weir_engine::snapshot::{Handling, Snapshot, Target};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::{Asked, Hooks};
use weir_upstream::upstream::Place;

/// A gRPC path is `/package.Service/Method`.
pub(super) fn grpc_of(method: &str, path: &str, target: Option<&TargetShown>) -> GrpcShown {
    let mut problems = Vec::new();
    let (service, call) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    if service.is_empty() || call.is_empty() || call.contains('/') {
        problems.push(format!("`{path}` is not a gRPC path; expected /package.Service/Method"));
    }
    if method != "POST" {
        problems.push(format!("gRPC calls are POST, not {method}"));
    }
    match target {
        Some(TargetShown::Upstreams(upstreams)) => {
            let plain = upstreams.iter().filter(|u| u.protocol == "http1");
            problems.extend(plain.map(|u| {
                format!("upstream {} speaks http1; gRPC needs `protocol: h2c`, or h2 with tls", u.name)
            }));
        }
        Some(TargetShown::Files { .. } | TargetShown::Filter { .. } | TargetShown::Respond { .. }) => {
            problems
                .push("the route answers without an upstream; a gRPC client expects grpc-status".to_owned());
        }
        None => {}
    }
    GrpcShown { service: service.to_owned(), method: call.to_owned(), problems }
}

pub(super) fn named_files(handling: &Handling) -> Vec<String> {
    let folders = handling.by_header.iter().flat_map(|by_header| by_header.folders());
    folders.map(|(field, prefix, folder)| format!("{field}: {prefix} is {}", folder.display())).collect()
}

pub(super) fn target_of(snapshot: &Snapshot, handling: &Handling, asked: &Asked<'_>) -> TargetShown {
    let shown = |index: usize, share: f64| {
        let upstream = &snapshot.upstreams[index];
        let fixed =
            upstream.names.fixed.iter().map(|e| format!("{}{}", e.label, place_of(&e.place, e.weight)));
        let registry =
            upstream.registry.iter().map(|registry| format!("{} {}", registry.kind, registry.place));
        let names = upstream.names.names.iter();
        let names = names.map(|n| format!("{}:{} (DNS){}", n.host, n.port, place_of(&n.place, n.weight)));
        UpstreamShown {
            name: upstream.name.to_string(),
            arm: None,
            share,
            protocol: upstream.protocol.name(upstream.tls.is_some()),
            balancer: upstream.balancer.kind.name,
            sticky: upstream.sticky.as_ref().map(|sticky| StickyShown {
                cookie: sticky.cookie.to_string(),
                ttl_seconds: sticky.ttl.map(|ttl| ttl.as_secs_f64()),
            }),
            slow_start_seconds: upstream.slow_start.map(|lasts| lasts.as_secs_f64()),
            zone: upstream.zone.as_deref().map(str::to_owned),
            hash: upstream.balancer.hash.as_ref().map(|hash| HashShown {
                by: without_expression(&hash.by.to_string()).to_owned(),
                bounded: hash.bounded.map(|ratio| (ratio * 10_000.0).round() / 100.0),
                expressions: {
                    let by = hash.by.to_string();
                    let text = by.contains("{=") || by.starts_with("= ");
                    let text = text.then(|| WithExpressions {
                        key: "hash.by".to_owned(),
                        is_public: without_expression(&by) == by,
                        text: by,
                        is_condition: false,
                    });
                    expressions_of(snapshot, text.as_slice(), asked)
                },
            }),
            endpoints: fixed.chain(names).chain(registry).collect(),
            policies: PoliciesShown::of(upstream, handling.exchange_timeout),
        }
    };
    let shown_of = |target: &Target| match target {
        Target::Upstream(index) => vec![shown(*index, 100.0)],
        Target::Split(shares) => {
            let total = shares.last().map_or(1, |(total, _)| *total);
            let mut before = 0;
            let each = shares.iter().map(|(upto, index)| {
                let share = f64::from(upto - before) * 100.0 / f64::from(total);
                before = *upto;
                shown(*index, share)
            });
            each.collect()
        }
        Target::Arms(arms) => {
            let total = arms.iter().map(|arm| arm.weight).fold(0u32, u32::saturating_add).max(1);
            let leading = arms.iter().filter(|arm| arm.weight > 0);
            let each = leading.filter_map(|arm| {
                let shown = shown(arm.upstream?, f64::from(arm.weight) * 100.0 / f64::from(total));
                Some(UpstreamShown { arm: (*arm.name != *shown.name).then(|| arm.name.to_string()), ..shown })
            });
            each.collect()
        }
        Target::Files(_) | Target::Filters | Target::Respond(_) => Vec::new(),
    };
    match &handling.target {
        Target::Files(site) => TargetShown::Files {
            missing: handling.missing.as_deref().map(shown_of).unwrap_or_default(),
            root: site.root().display().to_string(),
            index: site.index().to_vec(),
            browse: site.browses(),
            fallback: site.fallback(),
        },
        Target::Filters => {
            let filters = handling.chain.iter().filter_map(|&index| snapshot.filters.get(index as usize));
            let answers = Hooks::ANSWERS | Hooks::ANSWERS_PLAIN;
            let mut answering =
                filters.filter(|filter| filter.hooks.has_any(answers)).map(|filter| filter.name);
            TargetShown::Filter { name: answering.next_back().unwrap_or_default() }
        }
        Target::Respond(answer) => TargetShown::Respond {
            status: answer.status,
            expressions: expressions_of(snapshot, &answer.expressions, asked),
        },
        target @ (Target::Arms(_) | Target::Upstream(_) | Target::Split(_)) => {
            TargetShown::Upstreams(shown_of(target))
        }
    }
}

/// A text about an endpoint's priority, zone and weight, if they are not the defaults.
fn place_of(place: &Place, weight: u32) -> String {
    let weight = (weight != 1).then(|| format!("weight {weight}"));
    let zone = place.zone.as_ref().map(|zone| format!("zone {zone}"));
    let priority = (place.priority != 0).then(|| format!("priority {}", place.priority));
    let said: Vec<String> = [weight, zone, priority].into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

/// The filters of a chain, and those of their lists.
pub(super) fn filters_of(snapshot: &Snapshot, chain: &[u32], asked: &Asked<'_>) -> Vec<FilterShown> {
    let shown = |&filter: &u32| {
        let instance = &snapshot.filters[filter as usize];
        let chosen = instance.filter.chooses(asked);
        let lists = instance.lists.iter().enumerate().map(|(at, list)| ListShown {
            key: list.key.to_string(),
            runs: chosen.map(|chosen| chosen == at),
            share: instance.share_of(at),
            filters: filters_of(snapshot, &list.chain, asked),
        });
        FilterShown {
            name: instance.name,
            settings: instance.settings.clone(),
            tells: instance.filter.explain(asked),
            expressions: expressions_of(snapshot, &instance.expressions, asked),
            lists: lists.filter(|list| !list.filters.is_empty()).collect(),
        }
    };
    chain.iter().map(shown).collect()
}
