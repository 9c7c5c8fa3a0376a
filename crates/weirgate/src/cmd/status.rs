//! `weir status`: the state of a running Weir, as text; `--json` prints the answer unchanged.
//!
//! The text is generated from the answer's JSON and not from its type, because a Weir of another version may
//! report more or less.

use super::{AdminArgs, print, unanswered};
use anyhow::Result;
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use weir_report::units;

#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::status(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
        if self.json {
            print(&answer.body);
        } else if answer.is_success() {
            print(&page(&answer.json()));
        } else {
            print(&format!("{}\n", answer.explanation()));
        }
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}

/// The source of the config, and the time of the last contact with it.
fn of_fleet(fleet: &Value) -> String {
    let mut out = String::new();
    let bundle: String = fleet["bundle"].as_str().unwrap_or("none").chars().take(12).collect();
    let ago = match fleet["contact_seconds_ago"].as_u64() {
        Some(seconds) => format!("it answered {} ago", duration(seconds)),
        None => "it has never answered".to_owned(),
    };
    let state = text(fleet, "state");
    let _ = writeln!(out, "{state}: bundle {bundle} from {}, {ago}", text(fleet, "source")); // a String takes all
    if let Some(refused) = fleet["refused"].as_str() {
        let short: String = refused.chars().take(12).collect();
        let _ = writeln!(out, "REFUSED bundle {short}:");
        for line in text(fleet, "why").lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    if let Some(trouble) = fleet["trouble"].as_str() {
        let _ = writeln!(out, "it cannot follow now: {trouble}");
    }
    out
}

/// Why the access log is not written, and what to do.
fn unwritten_log(log: &Value) -> String {
    format!(
        "THE ACCESS LOG IS NOT WRITTEN: {}: {}; {} lost since {}\n  \
         correct that, or set another `access_log.output`: Weir tries again with the next lines\n",
        text(log, "output"),
        text(log, "error"),
        counted(&log["lost"], "line"),
        text(log, "since")
    )
}

/// The whole page.
fn page(status: &Value) -> String {
    let mut out = String::new();
    let version = text(status, "version");
    let uptime = duration(number(status, "uptime_seconds"));
    let _ = writeln!(out, "Weir {version}: {}, up for {uptime}", text(status, "state")); // a String takes all
    let routes = counted(&status["routes"], "route");
    let _ = writeln!(out, "config revision {}, {routes}", text(status, "revision"));
    if let Some(why) = status["pinned"].as_str() {
        let _ = writeln!(out, "THE FILES DO NOT RUN: a revision of the history does, since {why}");
    }
    if let Some(why) = status["unsaved"].as_str() {
        let _ =
            writeln!(out, "THE CONFIG RUNS FROM MEMORY ONLY: it could not be saved: {}", shown(&why.into()));
    }
    if !status["access_log"].is_null() {
        out.push_str(&unwritten_log(&status["access_log"]));
    }
    if !status["fleet"].is_null() {
        let _ = write!(out, "{}", of_fleet(&status["fleet"]));
    }
    let _ = writeln!(
        out,
        "{}, {}, {}, {} a second",
        counted(&status["workers"], "worker"),
        counted(&status["connections"], "connection"),
        counted(&status["requests"], "request"),
        shown(&status["requests_per_second"])
    );
    let reload = &status["last_reload"];
    if !reload.is_null() {
        let _ = writeln!(out, "last reload: {} at {}", text(reload, "result"), text(reload, "at"));
        for line in text(reload, "error").lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    let listeners = entries(&status["listeners"]).map(listener);
    section(&mut out, "listeners", listeners.collect());
    section(&mut out, "certificates", elements(&status["certificates"]).map(certificate).collect());
    section(&mut out, "upstreams", entries(&status["upstreams"]).flat_map(upstream).collect());
    let sources = entries(&status["consumer_sources"]).map(consumer_source);
    section(&mut out, "sources of consumers", sources.collect());
    let names = entries(&status["upstreams"]).flat_map(|(_, upstream)| elements(&upstream["names"]));
    section(&mut out, "names", names.map(name).collect());
    section(&mut out, "registries", entries(&status["upstreams"]).filter_map(registry).collect());
    let causes = elements(&status["causes"]).map(|c| vec![text(c, "cause"), shown(&c["count"])]);
    section(&mut out, "causes: answers of the gateway's own", causes.collect());
    out
}

/// Columns that are empty for a listener of HTTP with an address are left out.
fn listener((name, listener): (&String, &Value)) -> Vec<String> {
    let passes = text(listener, "passes");
    let mut row = vec![name.clone(), text(listener, "address")];
    if row[1].is_empty() {
        row[1] = "by name".to_owned();
    }
    let udp: Vec<String> = elements(&listener["udp"]).map(shown).collect();
    if !udp.is_empty() {
        row.push(format!("HTTP/3 at {}", udp.join(" ")));
    }
    if !passes.is_empty() {
        row.extend([passes, counted(&listener["connections"], "connection")]);
    }
    row
}

fn consumer_source((name, source): (&String, &Value)) -> Vec<String> {
    let count = counted(&source["consumers"], "consumer");
    let mut row = vec![name.clone(), text(source, "state"), count];
    if let Some(error) = source["error"].as_str() {
        row.push(format!("NOT READ: {}", shown(&error.into())));
    }
    row
}

fn certificate(certificate: &Value) -> Vec<String> {
    let names: Vec<String> = elements(&certificate["names"]).map(shown).collect();
    let acme = &certificate["acme"];
    let stand_in = acme["state"] == "stand_in";
    let left = match certificate["days_left"].as_i64() {
        _ if stand_in => "SELF-SIGNED STAND-IN".to_owned(),
        Some(days) if days < 0 => "EXPIRED".to_owned(),
        Some(_) if certificate["not_before"].is_string() => {
            format!("NOT VALID before {}", text(certificate, "not_before"))
        }
        Some(days) => format!("{days} days left"),
        None => String::new(),
    };
    let until = if stand_in { String::new() } else { format!("until {}", text(certificate, "not_after")) };
    let mut row = vec![text(certificate, "cert"), names.join(" "), left, until];
    row.extend(kept(acme));
    row
}

/// The state of a certificate that ACME renews.
fn kept(acme: &Value) -> Option<String> {
    let error = &acme["error"];
    if !error.is_null() {
        let (reason, why, next) = (text(error, "reason"), text(error, "text"), text(acme, "next_try"));
        return Some(format!("{} failed, {reason}: {why}; next try {next}", shown(&acme["failures"])));
    }
    if acme["ordering"] == true {
        return Some("is being ordered".to_owned());
    }
    acme["renews_at"].as_str().map(|at| format!("renews {at}"))
}

/// One row per endpoint, with the upstream's name in the first.
fn upstream((name, upstream): (&String, &Value)) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = elements(&upstream["endpoints"]).map(endpoint).collect();
    if rows.is_empty() {
        rows.push(vec![String::new(), "no endpoint".to_owned()]);
    }
    for (row, name) in
        rows.iter_mut().zip(std::iter::once(name.clone()).chain(std::iter::repeat(String::new())))
    {
        row[0] = name;
    }
    rows
}

fn endpoint(endpoint: &Value) -> Vec<String> {
    let reasons: Vec<String> = elements(&endpoint["reasons"]).map(reason).collect();
    let health = match (text(endpoint, "state"), reasons.is_empty()) {
        (state, true) => state,
        (state, false) if state == "to_be_tried" => format!("to be tried: {}", reasons.join(", ")),
        (_, false) => format!("OUT: {}", reasons.join(", ")),
    };
    let first_byte = match endpoint["first_byte_ms"].as_f64() {
        Some(ms) => format!("first byte after {ms} ms"),
        None => String::new(),
    };
    let error = &endpoint["last_error"];
    let error = match error.is_null() {
        true => String::new(),
        false => format!("last error {} at {}", text(error, "cause"), text(error, "at")),
    };
    vec![
        String::new(),
        text(endpoint, "address"),
        health,
        format!("answered {}", shown(&endpoint["answered"])),
        format!("failed {}", shown(&endpoint["failed"])),
        first_byte,
        error,
    ]
}

/// Why an endpoint is out of rotation, and until when.
fn reason(reason: &Value) -> String {
    let mut told = format!("{} ({}", text(reason, "reason"), text(reason, "cause"));
    if let Some(detail) = reason["detail"].as_str() {
        let _ = write!(told, ": {detail}");
    }
    let _ = write!(told, ") since {}", text(reason, "since"));
    if let Some(until) = reason["until"].as_str() {
        let _ = write!(told, " until {until}");
    }
    told
}

fn name(name: &Value) -> Vec<String> {
    let addresses: Vec<String> = elements(&name["addresses"]).map(shown).collect();
    let age = match name["age_seconds"].as_u64() {
        Some(seconds) => format!("resolved {} ago", duration(seconds)),
        None => "never resolved".to_owned(),
    };
    vec![text(name, "name"), addresses.join(" "), age, text(name, "error")]
}

/// The state of an upstream's registry, if it has one.
fn registry((upstream, status): (&String, &Value)) -> Option<Vec<String>> {
    let it = &status["discovery"];
    if it.is_null() {
        return None;
    }
    let unusable = it["unusable"].as_u64().filter(|unusable| *unusable > 0);
    let unusable = unusable.map_or_else(String::new, |unusable| {
        let first = &it["left_out"][0];
        format!(", {unusable} left out ({}: {})", text(first, "id"), text(first, "why"))
    });
    let age =
        it["age_seconds"].as_u64().map_or_else(String::new, |age| format!("answered {} ago", duration(age)));
    let age = match it["away_since"].as_str() {
        Some(since) => format!("since {since}, {age}").trim_end_matches(", ").to_owned(),
        None => age,
    };
    let listed = format!("{} listed{unusable}", shown(&it["listed"]));
    let place = format!("{} {}", text(it, "registry"), text(it, "place"));
    Some(vec![upstream.clone(), place, text(it, "state"), age, listed, text(it, "error")])
}

// === layout ===

/// Rows in columns under a title; nothing if there are no rows.
fn section(out: &mut String, title: &str, rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| Some(row.get(at)?.chars().count())).max().unwrap_or(0))
        .collect();
    let _ = writeln!(out, "\n{title}");
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// A number with its noun: `1 route`, `2 routes`.
fn counted(number: &Value, noun: &str) -> String {
    number.as_u64().map_or_else(|| format!("{} {noun}s", shown(number)), |n| units::counted(n, noun))
}

fn text(of: &Value, key: &str) -> String {
    shown(&of[key])
}

/// A value as text without terminal control characters.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

fn elements(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_certificate_that_is_not_valid_yet() {
        let row = certificate(&json!({ "cert": "a", "not_after": "N", "days_left": 9, "not_before": "B" }));
        assert_eq!(row[2], "NOT VALID before B");
    }

    #[test]
    fn a_count_of_one_has_a_singular_noun() {
        let page = page(&json!({
            "version": "0.1.0", "revision": "f", "state": "running", "workers": 1, "connections": 0, "requests": 1,
            "requests_per_second": 0.0, "routes": 1, "consumer_sources": { "file": { "state": "read", "consumers": 1 } }
        }));
        assert!(
            page.contains("config revision f, 1 route\n1 worker, 0 connections, 1 request, 0.0 a second\n"),
            "{page}"
        );
        assert!(page.contains("1 consumer\n"), "{page}");
    }

    #[test]
    fn an_access_log_that_is_not_written() {
        let log = json!({ "output": "/var/log/a", "error": "E\u{1b}", "lost": 1, "since": "S" });
        let page = page(&json!({ "access_log": log }));
        assert!(
            page.contains("\nTHE ACCESS LOG IS NOT WRITTEN: /var/log/a: E; 1 line lost since S\n"),
            "{page}"
        );
    }

    #[test]
    fn a_page_for_people() {
        let status = json!({
            "version": "0.1.0", "revision": "f64bd9df9bf8", "state": "running", "uptime_seconds": 4380, "workers": 2,
            "connections": 12, "requests": 40211, "requests_per_second": 612.4, "routes": 2,
            "last_reload": { "at": "2026-03-01T12:00:00.000Z", "result": "refused", "error": "error: a\n  b\u{1b}[2J\n" },
            "causes": [ { "cause": "no_route", "count": 17 } ],
            "listeners": { "web": { "address": "0.0.0.0:8080" }, "admin-web": { "address": "[::]:1" },
                "quick": { "address": "[::]:443", "udp": [ "[::]:443" ] } },
            "certificates": [
                { "cert": "a.pem", "names": ["a.test", "b.test"], "not_after": "2026-05-30T11:59:59.000Z", "days_left": 89 },
                { "cert": "old.pem", "names": [], "not_after": "2020-05-30T11:59:59.000Z", "days_left": -3 },
                { "cert": "c", "names": ["c.test"], "not_after": "N", "days_left": 60, "acme": { "state": "issued", "renews_at": "R" } },
                { "cert": "d", "names": ["d.test"], "not_after": "N", "days_left": 0, "acme": { "state": "stand_in", "failures": 2,
                  "error": { "reason": "away", "text": "refused" }, "next_try": "T" } }
            ],
            "upstreams": {
                "empty": { "endpoints": [] },
                "orders": {
                    "endpoints": [
                        { "address": "10.0.0.7:80", "healthy": true, "state": "healthy", "answered": 5, "failed": 0, "first_byte_ms": 2.75 },
                        { "address": "10.0.0.8:80", "healthy": false, "state": "out", "answered": 0, "failed": 2, "reasons": [
                            { "reason": "out", "cause": "by_hand", "since": "R" },
                            { "reason": "unreachable", "cause": "connect_refused", "detail": "D", "since": "S", "until": "U" } ],
                          "last_error": { "cause": "connect_refused", "at": "T" } }
                    ],
                    "names": [ { "name": "orders.internal:80", "addresses": ["10.0.0.7", "10.0.0.8"], "age_seconds": 90 } ]
                }
            }
        });
        let expected = "\
Weir 0.1.0: running, up for 1 h 13 min
config revision f64bd9df9bf8, 2 routes
2 workers, 12 connections, 40,211 requests, 612.4 a second
last reload: refused at 2026-03-01T12:00:00.000Z
  error: a
    b[2J

listeners
  web        0.0.0.0:8080
  admin-web  [::]:1
  quick      [::]:443      HTTP/3 at [::]:443

certificates
  a.pem    a.test b.test  89 days left  until 2026-05-30T11:59:59.000Z
  old.pem                 EXPIRED       until 2020-05-30T11:59:59.000Z
  c        c.test         60 days left  until N                         renews R
  d        d.test         SELF-SIGNED STAND-IN                          2 failed, away: refused; next try T

upstreams
  empty   no endpoint
  orders  10.0.0.7:80  healthy                                                       answered 5  failed 0  first byte after 2.75 ms
          10.0.0.8:80  OUT: out (by_hand) since R, unreachable (connect_refused: D) since S until U  answered 0  failed 2                             last error connect_refused at T

names
  orders.internal:80  10.0.0.7 10.0.0.8  resolved 1 min 30 s ago

causes: answers of the gateway's own
  no_route  17
";
        let squeeze = |text: &str| {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(words).collect::<Vec<_>>()
        };
        let page = page(&status);
        assert_eq!(squeeze(&page), squeeze(expected), "{page}");
        assert!(page.contains("\n  web        0.0.0.0:8080\n  admin-web  [::]:1\n  quick      [::]:443      HTTP/3 at [::]:443\n"), "{page}");
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let page = page(&json!({}));
        assert!(page.starts_with("Weir : , up for 0 s\n") && page.lines().count() == 3, "{page}");
    }
}
