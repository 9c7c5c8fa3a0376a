//! One sentence that says what happened, with this request's figures. A cause without its own sentence here uses its
//! meaning.

use super::Neighbour;
use super::kept::{Exceeded, Kept, Kind, Outcome, Step, Text};
use std::time::Duration;

/// What happened to an exchange. `near` is the nearest route if none matched; `out` says why endpoints of its
/// upstream are out of rotation, and `by_hand` whether all of them were taken out by hand.
pub(super) fn of(kept: &Kept, near: Option<&Neighbour>, out: &[String], by_hand: bool) -> String {
    // The client's text begins with the cause's meaning.
    let said = kept.text(Text::Detail);
    let said = said.strip_prefix(kept.cause.map_or("", |cause| cause.meaning)).unwrap_or(&said).trim();
    let mut sentence = match kept.cause {
        Some(cause) if by_hand && cause.code == "no_healthy_endpoint" => format!(
            "Every endpoint of upstream `{}` was taken out of rotation by hand: `weir endpoint in` puts one back.",
            kept.text(Text::Upstream)
        ),
        Some(cause) => failed(kept, cause.code, near).unwrap_or_else(|| by_meaning(kept, cause.meaning)),
        None if kept.status >= 500 && kept.attempts == 0 => {
            format!("The config answers this request with {}; no upstream was asked.", kept.status)
        }
        None if kept.status >= 500 => format!(
            "{} answered {} itself after {}; the gateway passed that on.",
            endpoint(kept),
            kept.status,
            time(kept.timing.first_byte)
        ),
        None => went_well(kept),
    };
    if !out.is_empty() {
        sentence.push_str(&format!(" Now: {}.", out.join("; ")));
    }
    if !said.is_empty() && !sentence.contains(said) {
        let whole = said.starts_with(char::is_uppercase);
        sentence.push_str(if whole { " " } else { " It said: " });
        sentence.push_str(said.trim_end_matches('.'));
        sentence.push('.');
    }
    sentence
}

/// The sentence for a cause, if it has its own.
fn failed(kept: &Kept, code: &str, near: Option<&Neighbour>) -> Option<String> {
    upstream_failed(kept, code).or_else(|| client_failed(kept, code, near)).or_else(|| refused(kept, code))
}

/// What went wrong between the gateway and an upstream.
fn upstream_failed(kept: &Kept, code: &str) -> Option<String> {
    let (at, waited, tried) = (endpoint(kept), time(last_took(kept)), tried(kept));
    let said = || last_detail(kept).map_or_else(String::new, |said| format!(": {said}"));
    Some(match code {
        "connect_refused" => {
            format!(
                "Nothing listens at {at}: the connection was refused{tried}. Is the service running there?"
            )
        }
        "connect_timeout" => format!(
            "{at} did not accept a connection within {waited}{tried}: the machine is down, or a firewall drops its packets."
        ),
        "connect_failed" => format!("Connecting to {at} failed{tried}{}.", said()),
        "upstream_tls" => format!("{at} was reached, but TLS with it failed{tried}{}.", said()),
        "upstream_protocol" => format!("{at} does not speak the protocol of the request{}.", said()),
        "response_timeout" => {
            format!("{at} took the request and sent no answer within its limit of {waited}{tried}.")
        }
        "exchange_timeout" if kept.attempts > 0 => {
            format!("{at} had not answered after {}, the limit of the whole exchange{tried}.", total(kept))
        }
        "grpc_timeout" => format!(
            "The gRPC client gave {} (grpc-timeout), and {at} had not answered by then{tried}.",
            total(kept)
        ),
        "upstream_closed" if kept.reused => format!(
            "{at} closed a connection that had been kept open, just as the request was sent on it, and this {} could not safely be repeated. \
             If that happens often, its idle timeout is shorter than ours.",
            kept.text(Text::Method)
        ),
        "upstream_closed" => {
            format!(
                "{at} took the request and closed the connection after {waited} without an answer{tried}."
            )
        }
        "upstream_reset" => format!(
            "{at} reset the connection or the stream after {waited}, before it answered{tried}{}.",
            said()
        ),
        "bad_response" => format!("The answer of {at} is not valid HTTP{tried}{}.", said()),
        "truncated" => format!(
            "{at} ended its answer before it was complete, after {} bytes had gone to the client with status {}.",
            kept.bytes_out, kept.status
        ),
        "upstream_body_timeout" => format!(
            "{at} stopped in the middle of its answer: {} bytes had gone to the client, then no more came.",
            kept.bytes_out
        ),
        "no_endpoint" => format!(
            "Upstream `{}` has no endpoint: its DNS name gives no address.",
            kept.text(Text::Upstream)
        ),
        "no_healthy_endpoint" => format!(
            "Every endpoint of upstream `{}` is out of rotation, and each was tried a moment ago: look for the failures before this one.",
            kept.text(Text::Upstream)
        ),
        "pending_limit" => format!(
            "All connections to upstream `{}` were busy, and the queue of waiting requests was full.",
            kept.text(Text::Upstream)
        ),
        "pending_timeout" => format!(
            "All connections to upstream `{}` were busy, and none became free within {waited}.",
            kept.text(Text::Upstream)
        ),
        _ => return None,
    })
}

/// What the client did or failed to do.
fn client_failed(kept: &Kept, code: &str, near: Option<&Neighbour>) -> Option<String> {
    Some(match code {
        "no_route" => {
            let asked =
                format!("{} {}{}", kept.text(Text::Method), kept.text(Text::Host), kept.text(Text::Path));
            match near {
                Some(Neighbour { route, why }) => {
                    format!("No route matches {asked}. The nearest is `{route}`, but {why}.")
                }
                None => format!("No route matches {asked}."),
            }
        }
        "client_closed" if kept.begun => format!(
            "The client left after {}, in the middle of the answer: {} bytes had been sent to it.",
            total(kept),
            kept.bytes_out
        ),
        "client_closed" => match (kept.attempts, waited_last(kept)) {
            (0, Some(filter)) => {
                format!("The client left after {}, while the filter `{filter}` was waiting.", total(kept))
            }
            (0, None) => format!("The client left after {}, before its request was complete.", total(kept)),
            _ => format!(
                "The client did not wait for the answer: it left after {}, while Weir waited for {}.",
                total(kept),
                endpoint(kept)
            ),
        },
        "client_too_slow" => {
            format!("The client stopped reading the answer: {} bytes had been sent to it.", kept.bytes_out)
        }
        "head_timeout" => {
            format!("The client began a request, but its head was incomplete after {}.", total(kept))
        }
        "body_timeout" => format!(
            "The client stopped sending the body of its request: {} bytes had come, head included, then nothing more.",
            kept.bytes_in
        ),
        "body_too_slow" => format!(
            "The client sent the body of its request too slowly: {} bytes in {}, head included.",
            kept.bytes_in,
            total(kept)
        ),
        "bad_path" if !kept.text(Text::Detail).is_empty() => kept.text(Text::Detail).into_owned(),
        "header_too_large" | "too_many_headers" | "target_too_long" => format!(
            "{} The request was refused before it was routed.",
            kept.cause.map_or("", |cause| cause.meaning)
        ),
        "handshake_failed" => format!(
            "The TLS handshake with {} failed: {}.",
            peer(kept),
            kept.text(Text::Detail).trim_end_matches('.')
        ),
        "handshake_timeout" => format!("The client {} did not finish its TLS handshake in time.", peer(kept)),
        code if code.starts_with("h2_") => format!(
            "{} Weir closed the whole connection from {}.",
            kept.cause.map_or("", |cause| cause.meaning),
            peer(kept)
        ),
        "shutdown" => format!(
            "The gateway stopped during this request: it had run for {}, and the time for draining was over.",
            total(kept)
        ),
        _ => return None,
    })
}

/// What a filter or a limit refused.
fn refused(kept: &Kept, code: &str) -> Option<String> {
    Some(match (code, kept.stopped_by) {
        ("internal", Some(filter)) => format!(
            "The gateway failed in the filter `{filter}`: that is a bug. The log has a line `an exchange panicked` or names the filter."
        ),
        ("body_too_large", Some(filter)) => {
            format!("The body of the request is larger than the filter `{filter}` of {} allows.", place(kept))
        }
        ("body_too_large", None) => "The body of the request is larger than this gateway allows.".to_owned(),
        (_, Some(filter)) => {
            let caller = match kept.text(Text::Consumer) {
                name if name.is_empty() => String::new(),
                name => format!(" The caller is `{name}`."),
            };
            let meaning = kept.cause.map_or("", |cause| cause.meaning);
            let from = if filter == "ip" { format!(" It came from {}.", peer(kept)) } else { String::new() };
            format!("The filter `{filter}` of {} refused it: {meaning}{caller}{from}", place(kept))
        }
        _ => return None,
    })
}

fn by_meaning(kept: &Kept, meaning: &str) -> String {
    match kept.text(Text::Upstream) {
        name if name.is_empty() => meaning.to_owned(),
        _ => format!("{meaning} It was {}.", endpoint(kept)),
    }
}

fn went_well(kept: &Kept) -> String {
    let by = match (kept.text(Text::Upstream).is_empty(), kept.stopped_by) {
        (_, Some(filter)) => format!("The filter `{filter}` answered {}", kept.status),
        (true, None) => format!("The gateway answered {}", kept.status),
        (false, None) => format!("{} answered {}", endpoint(kept), kept.status),
    };
    let tried = tried(kept);
    if kept.kind != Kind::Slow {
        return format!("{by} in {}{tried}. Nothing was wrong.", total(kept));
    }
    let exceeded = kept.exceeded.map_or_else(String::new, exceeded);
    let mut parts =
        vec![("the filters", kept.timing.filters), ("connecting", kept.timing.connect + kept.timing.tls)];
    parts.push(("the first byte of the upstream's answer", kept.timing.first_byte));
    let known: Duration = parts.iter().map(|(_, took)| *took).sum();
    parts.push(("the bodies", kept.timing.total.saturating_sub(known)));
    let most = parts.into_iter().max_by_key(|(_, took)| *took);
    let most = most
        .map_or_else(String::new, |(what, took)| format!(" Most of it, {}, went into {what}.", time(took)));
    format!("{by} after {}{tried}{exceeded}.{most}", total(kept))
}

// === parts of sentences ===

fn exceeded(by: Exceeded) -> String {
    match by {
        Exceeded::All { earlier, longest } => format!(
            ": more than twice as long as each of the {earlier} earlier requests of this route on its worker (at most {})",
            time(longest)
        ),
        Exceeded::Percentile(usual) => {
            format!(", where 99 of 100 requests of this route take at most about {}", time(usual))
        }
    }
}

fn endpoint(kept: &Kept) -> String {
    match (kept.text(Text::Endpoint), kept.text(Text::Upstream)) {
        (at, name) if at.is_empty() => format!("upstream `{name}`"),
        (at, name) => format!("{at} of upstream `{name}`"),
    }
}

fn peer(kept: &Kept) -> String {
    kept.peer.map_or_else(|| "a Unix socket".to_owned(), |peer| peer.ip().to_canonical().to_string())
}

fn place(kept: &Kept) -> String {
    match kept.text(Text::Place) {
        place if place == "filters" => "every route".to_owned(),
        place => format!("`{place}`"),
    }
}

/// The attempts before the last one.
fn tried(kept: &Kept) -> String {
    match kept.attempts {
        0 | 1 => String::new(),
        n => match first_failed(kept) {
            Some((at, how)) => format!(" (attempt {n}; the first, at {at}, ended with `{how}`)"),
            None if n == 2 => " (the second attempt)".to_owned(),
            None => format!(" (attempt {n}; the timeline has the others)"),
        },
    }
}

/// Where and how the first attempt failed, if not as the last one did: later failures often only follow from it.
fn first_failed(kept: &Kept) -> Option<(&str, String)> {
    let last = kept.cause.map_or("", |cause| cause.code);
    let first = kept.steps.iter().find_map(|step| match step {
        Step::Attempt { endpoint, outcome, .. } => Some((&**endpoint, outcome.to_string())),
        Step::Waited { .. } => None,
    });
    first.filter(|(_, how)| how != last)
}

/// How long the last failed attempt took.
fn last_took(kept: &Kept) -> Duration {
    let took = kept.steps.iter().rev().find_map(|step| match step {
        Step::Attempt { took, outcome: Outcome::Cause(_), .. } => Some(Duration::from_micros((*took).into())),
        _ => None,
    });
    took.unwrap_or_else(|| kept.timing.total.saturating_sub(kept.attempt.unwrap_or_default()))
}

fn last_detail(kept: &Kept) -> Option<&str> {
    kept.steps.iter().rev().find_map(|step| match step {
        Step::Attempt { detail, .. } => detail.as_deref(),
        Step::Waited { .. } => None,
    })
}

fn waited_last(kept: &Kept) -> Option<&'static str> {
    kept.steps.iter().rev().find_map(|step| match step {
        Step::Waited { filter, .. } => Some(*filter),
        Step::Attempt { .. } => None,
    })
}

fn total(kept: &Kept) -> String {
    time(kept.timing.total)
}

/// A time in readable form.
pub(super) fn time(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (us, shown) in [(0, "0 µs"), (999, "999 µs"), (1_500, "1.5 ms"), (30_040_000, "30.0 s")] {
            assert_eq!(time(Duration::from_micros(us)), shown);
        }
    }

    #[test]
    fn a_slow_exchange_is_compared_with_as_many_as_there_were() {
        let told = |exceeded| {
            let mut kept = Kept::default();
            (kept.status, kept.kind, kept.exceeded) = (200, Kind::Slow, Some(exceeded));
            of(&kept, None, &[], false)
        };
        let few = told(Exceeded::All { earlier: 4, longest: Duration::from_millis(3) });
        assert!(
            few.contains("as each of the 4 earlier requests of this route on its worker (at most 3.0 ms)."),
            "{few}"
        );
        let many = told(Exceeded::Percentile(Duration::from_millis(3)));
        assert!(many.contains("99 of 100 requests of this route take at most about 3.0 ms."), "{many}");
    }
}
