//! Statuses of GatewayClasses, Gateways, ListenerSets and BackendTLSPolicies.

use super::attach::gateway_reference;
use super::listeners::{Gate, Listener, Protocol, Set};
use super::{Cx, Front, backends, frontend, services};
use crate::objects::{Kind, Name};
use crate::status::{Condition, Problem, Status, conditions};
use serde_json::{Value, json};
use std::net::IpAddr;

/// The features that are claimed in the status of a GatewayClass, sorted.
///
/// Not claimed, because they are not supported: UDPRoute, Mesh, session persistence and destination ports.
const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
];

/// The feature of Gateways that have a Service.
const PROPAGATION: &str = "GatewayInfrastructure";

/// Writes the statuses of classes, Gateways and ListenerSets.
pub(super) fn gateways(cx: &Cx<'_>, gates: &[Gate<'_>], statuses: &mut Vec<Status>) {
    for (name, class) in &cx.lookups.all().gateway_classes {
        if class.spec.controller_name != cx.options.controller {
            continue;
        }
        let wrong = class
            .spec
            .parameters_ref
            .as_ref()
            .map(|_| Problem::new("InvalidParameters", "no kind of parametersRef is supported"));
        let accepted = Condition::of("Accepted", "Accepted", wrong.as_ref());
        let mut features: Vec<&str> = FEATURES.to_vec();
        if cx.options.front != Front::Pods {
            features.push(PROPAGATION);
            features.sort_unstable();
        }
        let features: Vec<Value> = features.iter().map(|name| json!({ "name": name })).collect();
        let wanted = json!({
            "conditions": conditions(&[accepted], class.meta.generation),
            "supportedFeatures": features,
        });
        statuses.push(Status { kind: Kind::GatewayClass, name: name.clone(), wanted: wanted.into() });
    }
    for gate in gates {
        gateway(cx, gate, statuses);
        for set in &gate.sets {
            let own: Vec<&Listener<'_>> =
                gate.listeners.iter().filter(|listener| listener.set == Some(set.name)).collect();
            let generation = set.object.meta.generation;
            let wanted = json!({
                "conditions": conditions(&whole_set(set, &own), generation),
                "listeners": own.iter().map(|l| listener(gate, l, generation)).collect::<Vec<_>>(),
            });
            statuses.push(Status { kind: Kind::ListenerSet, name: set.name.clone(), wanted: wanted.into() });
        }
    }
}

fn gateway(cx: &Cx<'_>, gate: &Gate<'_>, statuses: &mut Vec<Status>) {
    let generation = gate.object.meta.generation;
    let own: Vec<&Listener<'_>> = gate.listeners.iter().filter(|listener| listener.set.is_none()).collect();
    let invalid = Problem::new("Invalid", "no listener can be served");
    let mut all = whole(gate.wrong.as_ref(), &own, |own| own.takes_routes(), invalid);
    let (addresses, unassigned) = addresses(cx, gate);
    let asked = gate.object.spec.addresses.iter().filter_map(|address| address.value.as_ref());
    let unusable = asked.filter(|address| !addresses.contains(address)).count() > 0;
    if let Some(programmed) = all
        .iter_mut()
        .find(|condition| condition.kind == "Programmed" && (condition.holds || gate.is_unbound))
    {
        let not_ours = || Problem::new("AddressNotUsable", "a requested address is not available");
        let wrong = unusable.then(not_ours).or(unassigned);
        *programmed = Condition::of("Programmed", "Programmed", wrong.as_ref());
    }
    if frontend::falls_back(&gate.object.spec) {
        let why = Problem::new("ConfigurationChanged", "clients without a valid certificate are served");
        all.push(Condition { holds: true, ..Condition::unmet("InsecureFrontendValidationMode", &why) });
    }
    if let Some(used) = &gate.client_certificate {
        all.push(Condition::of("ResolvedRefs", "ResolvedRefs", used.as_ref().err()));
    }
    let kind = |address: &str| if address.parse::<IpAddr>().is_ok() { "IPAddress" } else { "Hostname" };
    let wanted = json!({
        "addresses": addresses.iter().map(|a| json!({ "type": kind(a), "value": a })).collect::<Vec<_>>(),
        "attachedListenerSets": gate.sets.iter().filter(|set| is_attached(gate, set)).count(),
        "conditions": conditions(&all, generation),
        "listeners": own.iter().map(|l| listener(gate, l, generation)).collect::<Vec<_>>(),
    });
    statuses.push(Status { kind: Kind::Gateway, name: gate.name.clone(), wanted: wanted.into() });
}

/// The addresses of a Gateway, and why it has none yet.
fn addresses(cx: &Cx<'_>, gate: &Gate<'_>) -> (Vec<String>, Option<Problem>) {
    if let Front::Services { .. } = cx.options.front {
        return services::addresses(cx, gate);
    }
    match cx.options.addresses.get(gate.name) {
        Some(known) => {
            let missing = || Problem::new("AddressNotAssigned", "the Service has no address yet");
            (known.clone(), known.is_empty().then(missing))
        }
        None if gate.bind.is_unspecified() => (Vec::new(), None),
        None => (vec![gate.bind.to_string()], None),
    }
}

/// Whether a ListenerSet has a listener that serves.
fn is_attached(gate: &Gate<'_>, set: &Set<'_>) -> bool {
    let mut own = gate.listeners.iter().filter(|listener| listener.set == Some(set.name));
    set.wrong.is_none() && own.any(Listener::is_good)
}

/// The same conditions of a ListenerSet. Why it is not accepted is also why it is not programmed.
fn whole_set(set: &Set<'_>, own: &[&Listener<'_>]) -> Vec<Condition> {
    let not_valid = Problem::new("ListenersNotValid", "no listener can be served: see their conditions");
    let invalid = set.wrong.clone().unwrap_or(not_valid);
    whole(set.wrong.as_ref(), own, |own| own.is_good(), invalid)
}

/// `Accepted` and `Programmed` of an object with listeners.
fn whole(
    wrong: Option<&Problem>,
    own: &[&Listener<'_>],
    is_valid: impl Fn(&Listener<'_>) -> bool,
    invalid: Problem,
) -> Vec<Condition> {
    let bad = own.iter().filter(|listener| !is_valid(listener)).count();
    let served = own.iter().any(|listener| listener.weir.is_some());
    let not_valid = Problem::new("ListenersNotValid", "a listener is not valid: see its conditions");
    let accepted = match (wrong, bad) {
        (Some(wrong), _) => Condition::unmet("Accepted", wrong),
        (None, 0) => Condition::met("Accepted", "Accepted"),
        (None, bad) if bad == own.len() => Condition::unmet("Accepted", &not_valid),
        (None, _) => Condition { holds: true, ..Condition::unmet("Accepted", &not_valid) },
    };
    let wrong = (!accepted.holds || !served).then_some(&invalid);
    let programmed = Condition::of("Programmed", "Programmed", wrong);
    vec![accepted, programmed]
}

fn listener(gate: &Gate<'_>, listener: &Listener<'_>, generation: i64) -> Value {
    // In a ListenerSet the API wants the reason itself.
    let conflict = listener.conflict.clone().filter(|_| listener.set.is_some());
    let other = || Problem::new("Invalid", "the listener is not served: see the other conditions");
    let invalid = conflict.unwrap_or_else(other);
    let accepted = listener.wrong.as_ref().or(listener.conflict.as_ref());
    let conflicted = match &listener.conflict {
        Some(problem) => Condition { holds: true, ..Condition::unmet("Conflicted", problem) },
        None => Condition { holds: false, ..Condition::met("Conflicted", "NoConflicts") },
    };
    let mut all = vec![
        Condition::of("Accepted", "Accepted", accepted),
        Condition::of("Programmed", "Programmed", listener.weir.is_none().then_some(&invalid)),
        Condition::of(
            "ResolvedRefs",
            "ResolvedRefs",
            listener.unresolved.as_ref().or(listener.stale.as_ref()),
        ),
        conflicted,
    ];
    if overlaps(gate, listener) {
        let why =
            Problem::new("OverlappingHostnames", "another listener of the port has an overlapping hostname");
        all.push(Condition { holds: true, ..Condition::unmet("OverlappingTLSConfig", &why) });
    }
    let kinds: Vec<Value> =
        listener.kinds.iter().map(|kind| json!({ "group": kind.group(), "kind": kind.as_str() })).collect();
    json!({
        "name": listener.spec.name,
        "supportedKinds": kinds,
        "attachedRoutes": listener.attached,
        "conditions": conditions(&all, generation),
    })
}

/// Whether a client of one HTTPS listener may send requests for another on the same connection.
fn overlaps(gate: &Gate<'_>, listener: &Listener<'_>) -> bool {
    let covers = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (None, _) => true,
        (Some(a), Some(b)) => crate::text::covers(a, b),
        (Some(_), None) => false,
    };
    let is_https = |l: &Listener<'_>| l.protocol == Protocol::Https && l.weir.is_some();
    is_https(listener)
        && gate.listeners.iter().any(|other| {
            is_https(other)
                && other.spec.port == listener.spec.port
                && other.weir != listener.weir
                && (covers(&other.host, &listener.host) || covers(&listener.host, &other.host))
        })
}

/// Writes the statuses of policies, for each Gateway that uses one of their Services.
pub(super) fn policies(cx: &Cx<'_>, statuses: &mut Vec<Status>) {
    for (name, policy) in &cx.lookups.all().backend_tls_policies {
        let conflicted = cx.policies.conflicting.contains(name);
        let targets = policy.spec.target_refs.iter().filter(|target| target.is_service());
        let mut services = targets.map(|target| Name::new(&name.namespace, &target.name));
        let validation = &policy.spec.validation;
        let references = validation.ca_certificate_refs.iter();
        let authorities: Vec<_> =
            references.map(|reference| backends::authority(cx, name, reference)).collect();
        let any = authorities.iter().any(Result::is_ok);
        let trusts_system =
            validation.well_known_ca_certificates.as_deref() == Some("System") && authorities.is_empty();
        let refs = authorities.into_iter().find_map(Result::err);
        let wrong = if conflicted {
            Some(Problem::new("Conflicted", "an older policy has the same targets"))
        } else if services.all(|service| !cx.lookups.all().services.contains_key(&service)) {
            Some(Problem::new("TargetNotFound", "there is no such Service"))
        } else if !(any || trusts_system) {
            Some(Problem::new("NoValidCACertificate", "it names no usable authority"))
        } else {
            backends::host_of(policy).err().or_else(|| backends::names_of(policy).err())
        };
        let conditions = conditions(
            &[
                Condition::of("Accepted", "Accepted", wrong.as_ref()),
                Condition::of("ResolvedRefs", "ResolvedRefs", refs.as_ref()),
            ],
            policy.meta.generation,
        );
        let gateways = cx.used.get(name).into_iter().flatten();
        let ancestors: Vec<Value> = gateways
            .map(|gateway| {
                json!({
                    "ancestorRef": gateway_reference(gateway),
                    "controllerName": cx.options.controller,
                    "conditions": conditions,
                })
            })
            .collect();
        if ancestors.is_empty() && !cx.has_entry(Kind::BackendTlsPolicy, name, "ancestors") {
            continue; // nobody of ours uses it
        }
        statuses.push(Status {
            kind: Kind::BackendTlsPolicy,
            name: name.clone(),
            wanted: json!({ "ancestors": ancestors }).into(),
        });
    }
}
