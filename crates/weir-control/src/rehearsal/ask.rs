//! Makes a request for each route: from its patterns, with a consumer's credentials if a filter requires them.

use super::{Ask, Credentials, FilterPlace, Rehearsed};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use weir_config::schema::{ClientAuthMode, Config, Consumer, FilterNode, Listener, Protocol, Serves};
use weir_engine::snapshot::{Snapshot, Target};
use weir_route::{NoTrace, RouteId, Sample};

/// The load's source address.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn routes(config: &Config, snapshot: &Snapshot, credentials: &Credentials) -> Vec<Rehearsed> {
    let route = |(index, (name, _)): (usize, (&str, _))| {
        let places = places(config, name);
        let mut unsatisfied = Vec::new();
        let mut plan = None;
        let ask = base(config, snapshot, credentials, index).and_then(|mut ask| {
            let route = snapshot.routes.get(index).ok_or("it is not in the table")?;
            // The chain is compiled from these positions, one by one.
            for (&filter, place) in route.handling.chain.iter().zip(&places) {
                let Some(instance) = snapshot.filters.get(filter as usize) else { continue };
                match satisfy(config, credentials, instance.name, &instance.settings, &mut ask) {
                    Ok(found) => plan = found.or(plan),
                    Err(why) => unsatisfied.push((place.clone(), why)),
                }
            }
            Ok(ask)
        });
        let mut filters: Vec<FilterPlace> = places;
        filters.retain(|place| !unsatisfied.iter().any(|(other, _)| other == place));
        if let Some(plan) = plan {
            add_plan(config, plan, &mut filters);
        }
        Rehearsed { name: name.to_owned(), ask, filters, unsatisfied }
    };
    config.routes.iter().enumerate().map(route).collect()
}

/// A request that the route matches, without credentials.
fn base(
    config: &Config,
    snapshot: &Snapshot,
    credentials: &Credentials,
    index: usize,
) -> Result<Ask, String> {
    let id = RouteId(u32::try_from(index).map_err(|e| e.to_string())?);
    let table = &snapshot.table;
    let sample = table.sample(id).ok_or("no request can be made up that its patterns match")?;
    if let Some(winner) = table.find(&sample.request(), &mut NoTrace).filter(|winner| *winner != id) {
        let name = snapshot.routes.get(winner.index()).map_or("", |route| &*route.name);
        return Err(format!("route {name} wins the request that was made up for it, {sample}"));
    }
    let Sample { listener, method, host, path, query, headers, client } = sample;
    if let Some(client) = client {
        return Err(format!("it is for clients such as {client}, and not for 127.0.0.1"));
    }
    let is_http = |(_, listener): &(&str, &Listener)| listener.serves() == Serves::Http;
    // A route on any listener is asked on the first that speaks HTTP.
    let listener = config.listeners.iter().nth(usize::from(listener)).filter(is_http);
    let listener = listener.or_else(|| config.listeners.iter().find(is_http));
    let (listener, written) = listener.ok_or("the config has no listener")?;
    if written.protocols.as_deref() == Some(&[Protocol::H3]) {
        return Err(format!("listener {listener} speaks HTTP/3 alone, and the rehearsal asks over TCP"));
    }
    let auth = written.tls.as_ref().and_then(|tls| tls.client_auth.as_ref());
    let asked = auth.filter(|auth| auth.mode != ClientAuthMode::Off);
    if !credentials.has_certificate && auth.is_some_and(|auth| auth.mode == ClientAuthMode::Required) {
        return Err(format!(
            "listener {listener} asks for a client certificate, whose key is not in the config"
        ));
    }
    let answers = match snapshot.routes.get(index).map(|route| &route.handling.target) {
        Some(Target::Files(_)) => Some(200), // if the made-up path is a file's; else it is noted
        // If there are several answers, any of them is fine.
        Some(Target::Respond(answer)) if answer.mock.as_ref().is_none_or(|mock| mock.mix.is_empty()) => {
            Some(answer.status)
        }
        _ => None,
    };
    Ok(Ask {
        listener: listener.to_owned(),
        tls: written.tls.is_some(),
        http2: written.protocols.as_ref().is_some_and(|all| !all.contains(&Protocol::Http1)),
        identity: credentials.has_certificate && asked.is_some(),
        method,
        host,
        target: query.map_or(path.clone(), |query| format!("{path}?{query}")),
        headers,
        answers,
    })
}

/// Adds what a filter requires. Returns the plan of the consumer that the request then comes from.
fn satisfy<'a>(
    config: &'a Config,
    credentials: &'a Credentials,
    filter: &str,
    settings: &Value,
    ask: &mut Ask,
) -> Result<Option<&'a str>, String> {
    match filter {
        "key_auth" => {
            let text = |key: &str| settings.get(key).and_then(Value::as_str);
            let (consumer, key) = consumer_with_key(config)?;
            let value = text("scheme").map_or_else(|| key.to_owned(), |scheme| format!("{scheme} {key}"));
            ask.headers.push((text("header").unwrap_or("x-api-key").to_owned(), value));
            Ok(consumer.plan.as_deref())
        }
        "basic_auth" if settings.get("file").is_some_and(|file| !file.is_null()) => {
            Err("the passwords of the users in its file are not known".to_owned())
        }
        "basic_auth" => {
            let (consumer, pair) = credentials.basic.as_ref().ok_or_else(|| nobody("a user"))?;
            ask.headers.push(("authorization".to_owned(), pair.clone()));
            Ok(plan_of(config, consumer))
        }
        "mtls_auth" if !ask.identity => {
            Err(format!("listener {} asks for no client certificate, or none was made", ask.listener))
        }
        "mtls_auth" => {
            Ok(plan_of(config, credentials.named.as_ref().ok_or_else(|| nobody("a certificate"))?))
        }
        "any" => {
            let members = settings.as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
            let mut why = Err("it has no member".to_owned());
            // Where the request comes from is not ours to choose, so an address never satisfies.
            for (name, settings) in members.filter(|(name, _)| *name != "ip") {
                why = satisfy(config, credentials, name, settings, ask);
                if why.is_ok() {
                    break;
                }
            }
            why
        }
        other if other.ends_with("_auth") && other != "forward_auth" => {
            Err("it is not known how to make credentials for it".to_owned())
        }
        _ => Ok(None),
    }
}

/// The first consumer with credentials for a filter that may call from here.
pub(super) fn caller<'a>(config: &'a Config, filter: &str) -> Option<(&'a str, &'a Consumer)> {
    let mut all = config.consumers.iter();
    all.find(|(_, consumer)| is_local(consumer) && consumer.credentials.iter().any(|it| it.filter == filter))
}

fn nobody(with: &str) -> String {
    format!("no consumer with {with} may call from 127.0.0.1")
}

fn plan_of<'a>(config: &'a Config, consumer: &str) -> Option<&'a str> {
    config.consumers.get(consumer)?.plan.as_deref()
}

fn is_local(consumer: &Consumer) -> bool {
    consumer.allow_ips.is_empty() || consumer.allow_ips.iter().any(|net| net.0.contains(&CLIENT))
}

/// A consumer that may call from here, and its key as clients send it.
fn consumer_with_key(config: &Config) -> Result<(&Consumer, &str), String> {
    let consumers = || config.consumers.iter().map(|(_, c)| c).filter(|c| c.keys().next().is_some());
    let mut keys = consumers().filter(|c| is_local(c)).flat_map(|c| c.keys().map(move |key| (c, key)));
    keys.find(|(_, key)| !key.starts_with("sha256:")).ok_or_else(|| match consumers().any(is_local) {
        true => "the config has hashes only of the keys of consumers that may call from 127.0.0.1".to_owned(),
        false => "no consumer with a key may call from 127.0.0.1".to_owned(),
    })
}

/// A route's filters in the order they run: the global ones, then its own.
fn places(config: &Config, route: &str) -> Vec<FilterPlace> {
    let own = config.routes.get(route).map_or(&[][..], |route| &route.filters);
    let place = |list: &str, (index, filter): (usize, &FilterNode)| FilterPlace {
        name: filter.name.clone(),
        list: list.to_owned(),
        index,
    };
    let global = config.filters.iter().enumerate().map(|filter| place("filters", filter));
    let list = format!("routes.{route}.filters");
    global.chain(own.iter().enumerate().map(|filter| place(&list, filter))).collect()
}

/// Adds a plan's filters; a filter with the same name on the route replaces the plan's.
fn add_plan(config: &Config, plan: &str, places: &mut Vec<FilterPlace>) {
    let filters = config.plans.get(plan).map_or(&[][..], |plan| &plan.filters);
    let replaced = |name: &str| places.iter().any(|p| p.name == name && p.list.starts_with("routes."));
    let list = format!("plans.{plan}.filters");
    let of_plan: Vec<FilterPlace> = filters
        .iter()
        .enumerate()
        .filter(|(_, filter)| !replaced(&filter.name))
        .map(|(index, filter)| FilterPlace { name: filter.name.clone(), list: list.clone(), index })
        .collect();
    places.extend(of_plan);
}
