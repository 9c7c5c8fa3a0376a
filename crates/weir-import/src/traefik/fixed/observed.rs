//! Logs and traces.

use super::super::cx::{list, milliseconds, nothing_else};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::tree::{Entry, Fields};
use crate::shared::units;
use crate::yaml::Map;

pub(super) fn access_log(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    if entry.node.as_bool() == Some(false) {
        return;
    }
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    match fields.text("filePath", ledger) {
        Some((path, piece)) => {
            map.set("output", path);
            ledger.same(piece);
        }
        None => map.set("output", "stdout"),
    }
    match fields.text("format", ledger) {
        Some((format, piece)) if format == "json" => {
            map.set("format", "json");
            ledger.changed(piece, "the fields have Weir's names: docs/reference/access-log.md");
        }
        Some((_, piece)) => {
            map.set("format", "combined");
            ledger.changed(piece, "without the router, the server and the time that Traefik adds to a line");
        }
        None => {
            map.set("format", "combined");
            ledger.changed(
                entry.piece,
                "lines in the combined format, without the router, the server and the time that Traefik adds",
            );
        }
    }
    if let Some(entry) = fields.entry("bufferingSize") {
        ledger.by_itself(entry.piece, "a thread of its own writes");
    }
    if let Some((node, piece)) = fields.map("filters", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        let mut when: Vec<String> = Vec::new();
        if let Some((codes, piece)) = list(&mut fields, "statusCodes", ledger) {
            ledger.same(piece);
            for code in codes {
                let (low, high) = code.split_once('-').unwrap_or((&code, &code));
                match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
                    (Ok(low), Ok(high)) if low == high => when.push(format!("status == {low}")),
                    (Ok(low), Ok(high)) => when.push(format!("(status >= {low} and status <= {high})")),
                    _ => ledger.refused(piece, format!("`{code}` is no status"), "access_log.when"),
                }
            }
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "minDuration", ledger) {
            when.push(format!("total >= {}", units::duration(ms)));
            ledger.same(piece);
        }
        if let Some((true, piece)) =
            fields.flag("retryAttempts", ledger).inspect(|(_, piece)| ledger.same(*piece))
        {
            when.push("attempts > 1".to_owned());
            ledger.same(piece);
        }
        nothing_else(fields, "filters of the access log", ledger);
        if !when.is_empty() {
            map.set("when", when.join(" or "));
        }
    }
    if let Some(entry) = fields.entry("fields") {
        entry.each_piece(&mut |piece| {
            ledger.changed(
                piece,
                "Weir logs its own fields; fields of requests by `fields`, hidden by `redact`",
            )
        });
    }
    for key in ["addInternals", "timezone"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "times are UTC, and Weir has no routes of its own");
        }
    }
    if let Some(entry) = fields.entry("otlp") {
        entry.each_piece(&mut |piece| ledger.refused(piece, "by hand", "access_log.otlp"));
    }
    nothing_else(fields, "the access log", ledger);
    config.more.set("access_log", map);
}

pub(super) fn log(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    if let Some((level, piece)) = fields.text("level", ledger) {
        let level = level.to_ascii_lowercase();
        let ours = match level.as_str() {
            "trace" | "debug" => "debug",
            "info" => "info",
            "warn" => "warn",
            _ => "error",
        };
        match ours == level {
            true => ledger.same(piece),
            false => ledger.changed(piece, format!("written as {ours}")),
        }
        map.set("level", ours);
    }
    if let Some((format, piece)) = fields.text("format", ledger) {
        ledger.same(piece);
        if format == "json" {
            map.set("format", "json");
        }
    }
    if let Some((path, piece)) = fields.text("filePath", ledger) {
        map.set("output", path);
        ledger.same(piece);
    }
    for key in ["noColor", "maxSize", "maxAge", "maxBackups", "compress"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "Weir reopens its log at SIGUSR1; logrotate rotates it");
        }
    }
    nothing_else(fields, "log", ledger);
    if !map.is_empty() {
        config.more.set("log", map);
    }
}

pub(super) fn tracing(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    if let Some((node, piece)) = fields.map("otlp", ledger) {
        ledger.same(piece);
        let mut otlp = Fields::in_any_case(node);
        for protocol in ["http", "grpc"] {
            let Some((node, piece)) = otlp.map(protocol, ledger) else { continue };
            ledger.same(piece);
            let mut fields = Fields::in_any_case(node);
            if let Some((url, piece)) = fields.text("endpoint", ledger) {
                let base = url.trim_end_matches('/').trim_end_matches("/v1/traces");
                let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
                map.set("otlp", base);
                map.set("protocol", protocol);
                ledger.changed(piece, "spans have Weir's names and attributes");
            }
            if let Some((true, piece)) = fields.flag("insecure", ledger).inspect(|(_, p)| ledger.same(*p)) {
                ledger.same(piece);
            }
            nothing_else(fields, "tracing", ledger);
        }
        nothing_else(otlp, "tracing", ledger);
    }
    if let Some((name, piece)) = fields.text("serviceName", ledger) {
        map.set("service", name);
        ledger.same(piece);
    }
    if let Some((rate, piece)) = fields.text("sampleRate", ledger) {
        match rate.parse::<f64>() {
            Ok(rate) if (0.0..=1.0).contains(&rate) => {
                map.set("share", format!("{}%", (rate * 10_000.0).round() / 100.0));
                ledger.same(piece);
            }
            _ => ledger.refused(piece, format!("`{rate}` is no share"), "tracing.share"),
        }
    }
    for key in ["resourceAttributes", "globalAttributes"] {
        let Some((node, piece)) = fields.map(key, ledger) else { continue };
        ledger.same(piece);
        let mut resource = Map::new();
        for entry in node.as_map().unwrap_or_default() {
            resource.set(&*entry.key, entry.node.as_text().unwrap_or_default());
            ledger.same(entry.piece);
        }
        map.set("resource", resource);
    }
    for key in ["addInternals", "capturedRequestHeaders", "capturedResponseHeaders", "safeQueryParams"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "spans have Weir's attributes");
        }
    }
    for entry in fields.rest() {
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                "Weir sends spans by OTLP only",
                "tracing: { otlp: \"http://collector:4318\" }",
            )
        });
    }
    if map.get("otlp").is_some() {
        config.more.set("tracing", map);
    } else {
        ledger.changed(entry.piece, "no collector is named, so Weir sends no spans");
    }
}
