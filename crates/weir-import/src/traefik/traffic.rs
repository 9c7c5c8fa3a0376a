//! The middlewares that limit, buffer, compress and break circuits.

use super::cx::{Cx, list, milliseconds};
use super::middlewares::{Chain, criterion, refuse};
use super::services::Retry;
use crate::config::Filter;
use crate::shared::filters::closed;
use crate::shared::tree::{Entry, Fields};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// What Traefik compresses: everything but these.
const MINIMUM: u64 = 1024;
/// The largest body on disk where Traefik has no limit.
const DISK: u64 = 1 << 30;

pub(super) fn rate_limit(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.changed(
        entry.piece,
        "each route counts for itself; Traefik delays a request that is early by up to half a second instead of \
         refusing it",
    );
    let mut number = |key: &str, default: u64| match fields.number(key, cx.ledger) {
        Some((number, piece)) => {
            cx.ledger.same(piece);
            number
        }
        None => default,
    };
    let (average, burst) = (number("average", 0), number("burst", 1).max(1));
    let period = milliseconds(fields, "period", cx.ledger).map_or(1000, |(ms, piece)| {
        cx.ledger.same(piece);
        ms
    });
    let by = criterion(fields, "address", cx.ledger);
    if let Some(entry) = fields.entry("redis") {
        entry.each_piece(&mut |piece| {
            cx.ledger.refused(
                piece,
                "a store has its own place",
                "stores.NAME.redis, and rate_limit: { store }",
            )
        });
    }
    if average == 0 {
        cx.ledger.changed(entry.piece, "an average of 0 is no limit");
        return Vec::new();
    }
    if by.is_err() {
        return vec![closed("whose requests the limit counts is to be said by `trusted_proxies`")];
    }
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut map = Map::new().with("requests", signed(average)).with("per", units::duration(period.max(1)));
    map.set("burst", signed(burst));
    map.set("by", by.unwrap_or_default());
    vec![Filter::new("rate_limit", map)]
}

pub(super) fn in_flight(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let amount = fields.number("amount", cx.ledger).map_or(0, |(amount, piece)| {
        cx.ledger.same(piece);
        amount
    });
    let by = criterion(fields, "{host}", cx.ledger);
    match (amount, by) {
        (0, _) => {
            cx.ledger.changed(entry.piece, "an amount of 0 is no limit");
            Vec::new()
        }
        (_, Err(())) => vec![closed("whose requests the limit counts is to be said by `trusted_proxies`")],
        (amount, Ok(by)) => {
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            vec![Filter::new("concurrency", Map::new().with("requests", amount).with("by", by))]
        }
    }
}

pub(super) fn buffering(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    chain: &mut Chain,
) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let mut number = |key: &str| fields.number(key, cx.ledger);
    let max_request = number("maxRequestBodyBytes");
    let memory = number("memRequestBodyBytes");
    let max_response = number("maxResponseBodyBytes");
    let memory_response = number("memResponseBodyBytes");
    for (_, piece) in [max_request, memory, memory_response].into_iter().flatten() {
        cx.ledger.same(piece);
    }
    let mut map = Map::new();
    let limit = max_request.map_or(0, |(bytes, _)| bytes);
    let in_memory = memory.map_or(1 << 20, |(bytes, _)| bytes).max(1);
    match limit {
        0 => {
            map.set("request", units::size(in_memory));
            map.set("disk", units::size(DISK.max(in_memory + 1)));
            let piece = max_request.map_or(entry.piece, |(_, piece)| piece);
            cx.ledger.changed(piece, "a body of more than 1 GiB is refused with 413; Traefik has no limit");
        }
        limit if limit <= in_memory => map.set("request", units::size(limit)),
        limit => {
            map.set("request", units::size(in_memory));
            map.set("disk", units::size(limit));
        }
    }
    map.set("response", units::size(memory_response.map_or(1 << 20, |(bytes, _)| bytes).max(1)));
    if let Some((bytes, piece)) = max_response {
        match bytes {
            0 => cx.ledger.same(piece),
            _ => {
                cx.ledger.changed(piece, "a longer answer goes on at the client's speed; Traefik refuses it")
            }
        }
    }
    if let Some((expression, piece)) = fields.text("retryExpression", cx.ledger) {
        match retry(&expression) {
            Some(map) => {
                cx.ledger.changed(piece, "`retry` of the upstream, within its `budget`");
                chain.retry = Some(Retry(map));
            }
            None => {
                cx.ledger.refused(piece, "weir import does not know this expression", "upstreams.NAME.retry")
            }
        }
    }
    vec![Filter::new("buffer", map)]
}

/// `IsNetworkError() && Attempts() < 2`, with statuses too.
fn retry(expression: &str) -> Option<Map> {
    let mut map = Map::new();
    let mut on: Vec<Value> = vec!["connect".into(), "reset".into()];
    let mut attempts = 0;
    for term in expression
        .split("&&")
        .flat_map(|part| part.split("||"))
        .map(|term| term.trim_matches([' ', '(', ')']))
    {
        let term = term.replace([' ', '(', ')'], "");
        let after = |name: &str, operators: &[&str]| {
            let rest = term.strip_prefix(name)?;
            operators.iter().find_map(|operator| rest.strip_prefix(operator)?.parse::<i64>().ok())
        };
        if term == "IsNetworkError" {
        } else if let Some(count) = after("Attempts", &["<="]) {
            attempts = count;
        } else if let Some(count) = after("Attempts", &["<"]) {
            attempts = count - 1;
        } else if let Some(status) =
            after("ResponseCode", &["=="]).filter(|status| (500..600).contains(status) || *status == 429)
        {
            on.push(Value::Number(status));
        } else {
            return None;
        }
    }
    (1..10).contains(&attempts).then(|| {
        // Their attempts are repetitions.
        map.set("attempts", attempts + 1);
        map.set("on", Value::List(on));
        map.set("methods", "all");
        map
    })
}

pub(super) fn compress(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.changed(entry.piece, "types that compress well; Traefik compresses all but the excluded ones");
    let mut map = Map::new();
    let encodings = list(fields, "encodings", cx.ledger);
    if let Some((names, piece)) = encodings {
        cx.ledger.same(piece);
        map.set("algorithms", names);
    } else {
        map.set("algorithms", vec!["gzip", "br", "zstd"]);
    }
    if let Some((bytes, piece)) = fields.number("minResponseBodyBytes", cx.ledger) {
        cx.ledger.same(piece);
        if bytes != MINIMUM {
            map.set("minimum", units::size(bytes));
        }
    }
    if let Some((types, piece)) = list(fields, "includedContentTypes", cx.ledger) {
        cx.ledger.same(piece);
        map.set("types", types);
    }
    if let Some((types, piece)) = list(fields, "excludedContentTypes", cx.ledger) {
        let excluded =
            |own: &str| types.iter().any(|one| one.trim_end_matches("/*") == own.trim_end_matches("/*"));
        cx.ledger.changed(piece, "Weir lists what it compresses: `types`, without these");
        if map.get("types").is_none() && types.iter().any(|one| excluded(one)) {
            let usual = [
                "text/*",
                "application/*+json",
                "application/*+xml",
                "application/javascript",
                "application/json",
                "application/wasm",
                "application/xml",
                "font/otf",
                "font/ttf",
                "image/bmp",
                "image/svg+xml",
            ];
            // `text/event-stream` is one of text/*: then the usual ones by name.
            let texts = [
                "text/css",
                "text/csv",
                "text/html",
                "text/javascript",
                "text/markdown",
                "text/plain",
                "text/xml",
            ];
            let some_text = types.iter().any(|one| one.starts_with("text/") && one != "text/*");
            let list: Vec<&str> = match some_text {
                true => texts.iter().chain(&usual[1..]).copied().collect(),
                false => usual.to_vec(),
            };
            map.set("types", list.into_iter().filter(|own| !excluded(own)).collect::<Vec<_>>());
        }
    }
    if let Some((encoding, piece)) = fields.text("defaultEncoding", cx.ledger) {
        cx.ledger.changed(
            piece,
            format!("without Accept-Encoding Weir does not compress, not even by {encoding}"),
        );
    }
    vec![Filter::new("compress", map)]
}

pub(super) fn grpc_web(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let mut out = Vec::new();
    if let Some((origins, piece)) = list(fields, "allowOrigins", cx.ledger) {
        cx.ledger.same(piece);
        let mut cors = Map::new().with("origins", origins);
        cors.set("headers", vec!["content-type", "x-grpc-web", "x-user-agent", "grpc-timeout"]);
        cors.set("expose", vec!["grpc-status", "grpc-message", "grpc-status-details-bin"]);
        out.push(Filter::new("cors", cors));
    }
    out.push(Filter::new("grpc_web", Map::new()));
    out
}

pub(super) fn circuit_breaker(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    let Some((expression, piece)) = fields.text("expression", cx.ledger) else {
        return refuse(cx, entry, "a circuit breaker without an expression", "circuit_breaker", false);
    };
    cx.ledger.changed(
        entry.piece,
        "attempts are counted in a window of 10 s, at least 20 of them; three probes close the circuit again",
    );
    let Some(mut map) = circuit(&expression) else {
        cx.ledger.refused(
            piece,
            "weir import knows ratios and one latency, joined by `||`",
            "circuit_breaker: { errors: 50%, slow: 2s, slow_rate: 50% }",
        );
        *fields = Fields::default();
        entry.each_piece(&mut |piece| {
            if !cx.ledger.is_judged(piece) {
                cx.ledger.refused(piece, "its expression is refused", "circuit_breaker");
            }
        });
        return Vec::new();
    };
    cx.ledger.same(piece);
    map.set(
        "open",
        match milliseconds(fields, "fallbackDuration", cx.ledger) {
            Some((ms, piece)) => {
                cx.ledger.same(piece);
                units::duration(ms)
            }
            None => "10s".to_owned(),
        },
    );
    for key in ["checkPeriod", "recoveryDuration"] {
        if let Some(entry) = fields.entry(key) {
            cx.ledger
                .changed(entry.piece, "Weir checks at each answer, and lets probes pass before it closes");
        }
    }
    if let Some((status, piece)) = fields.number("responseCode", cx.ledger) {
        match status {
            503 => cx.ledger.same(piece),
            _ => cx.ledger.changed(piece, "Weir answers 503; the filter errors sets another page"),
        }
    }
    vec![Filter::new("circuit_breaker", map)]
}

/// `NetworkErrorRatio() > 0.30 || ResponseCodeRatio(500, 600, 0, 600) > 0.25 || LatencyAtQuantileMS(50.0) > 100`.
fn circuit(expression: &str) -> Option<Map> {
    if expression.contains("&&") || expression.contains('!') {
        return None;
    }
    let mut map = Map::new();
    let mut errors: Option<f64> = None;
    let mut statuses: Option<Vec<Value>> = None;
    for term in expression.split("||") {
        let term = term.replace(' ', "");
        let (call, limit) = term.split_once('>')?;
        let limit: f64 = limit.trim_start_matches('=').parse().ok()?;
        let (name, arguments) = call.strip_suffix(')')?.split_once('(')?;
        let arguments: Vec<f64> = arguments
            .split(',')
            .filter(|text| !text.is_empty())
            .map(|text| text.parse().ok())
            .collect::<Option<_>>()?;
        match (name, &*arguments) {
            ("NetworkErrorRatio", []) => {
                errors = Some(errors.map_or(limit, |known| known.min(limit)));
                statuses.get_or_insert_with(|| vec![Value::Number(502), Value::Number(504)]);
            }
            ("ResponseCodeRatio", [from, to, _, _]) => {
                errors = Some(errors.map_or(limit, |known| known.min(limit)));
                let range = (*from as i64).max(400)..(*to as i64).min(600);
                let usual = [500, 501, 502, 503, 504, 429];
                let all = usual.into_iter().filter(|status| range.contains(status)).map(Value::Number);
                statuses = Some(all.collect());
            }
            ("LatencyAtQuantileMS", [quantile]) if (1.0..100.0).contains(quantile) => {
                map.set("slow", units::duration(limit as u64));
                map.set("slow_rate", format!("{}%", (100.0 - quantile).round()));
            }
            _ => return None,
        }
    }
    match errors {
        Some(ratio) if (0.0..1.0).contains(&ratio) => {
            map.set("errors", format!("{}%", (ratio * 1000.0).round() / 10.0));
        }
        Some(_) => return None,
        None => map.set("errors", "100%"),
    }
    if let Some(statuses) = statuses.filter(|statuses| !statuses.is_empty()) {
        map.set("statuses", Value::List(statuses));
    }
    Some(map)
}
