//! What operators read in the log.

use crate::api::{LEASE, Making, Resource, missing_rule, watched};
use crate::watch::keeper;
use crate::watch::reflector::{self, MOST_OBJECTS};
use crate::watch::writer;
use std::fmt::Display;
use std::time::Duration;
use weir_config::Mistakes;
use weir_telemetry::log;

static UNDONE: log::PerSubject = log::per_subject(1, Duration::from_secs(600));

/// A note about a watched resource.
pub(super) fn reflector(resource: &Resource, note: &reflector::Note) {
    let name = resource.full_name();
    match note {
        reflector::Note::Away(why) => log::warn(
            "the API server does not answer: what was seen last stays in service",
            &[("resource", &name), ("error", why)],
        ),
        reflector::Note::Back => log::info("the API server answers again", &[("resource", &name)]),
        reflector::Note::Forbidden(verb, why) => forbidden(verb, resource, "", why),
        reflector::Note::Missing => {
            let hint = "objects of this kind count as absent until its definition is installed";
            log::info("the API server does not know a resource", &[("resource", &name), ("hint", &hint)]);
        }
        reflector::Note::TooMany => {
            let hint = "the objects seen before stay in service";
            let fields: log::Fields<'_> = &[("resource", &name), ("limit", &MOST_OBJECTS), ("hint", &hint)];
            log::error("too many objects", fields);
        }
        reflector::Note::TooLong(limit) => {
            let fields: log::Fields<'_> = &[("resource", &name), ("limit", limit)];
            log::error("an object is longer than this controller reads", fields);
        }
    }
}

/// What readiness waits for, as far as a resource is concerned.
pub(super) fn awaited(resource: &Resource, note: Option<&reflector::Note>) -> String {
    let name = resource.full_name();
    match note {
        Some(reflector::Note::Forbidden(verb, _)) => {
            format!("permission to {verb} {name}: {}", missing_rule(verb, resource, ""))
        }
        Some(reflector::Note::TooMany) => format!("fewer than {MOST_OBJECTS} {name}"),
        Some(reflector::Note::TooLong(limit)) => format!("{name}: an object is longer than {limit} bytes"),
        _ => format!("the API server to list {name}"),
    }
}

/// A note about statuses.
pub(super) fn writer(resource: Option<&Resource>, note: &writer::Note) {
    match note {
        writer::Note::Forbidden(verb, kind, why) => match resource {
            Some(resource) => forbidden(verb, resource, of_status(verb), why),
            None => log::error("a status may not be written", &[("kind", kind), ("error", why)]),
        },
        writer::Note::Refused(target, why) => log::error(
            "the API server refuses a status",
            &[("kind", &target.kind), ("object", &target.key), ("error", why)],
        ),
        writer::Note::Undone(target) => UNDONE.warn(
            target,
            "another controller keeps undoing a status",
            &[("kind", &target.kind), ("object", &target.key)],
        ),
    }
}

/// A note about the objects of Gateways.
pub(super) fn keeper(note: &keeper::Note) {
    match note {
        keeper::Note::Forbidden(verb, kind, why) => match watched(kind) {
            Some(resource) => forbidden(verb, resource, "", why),
            None => log::error("an object may not be written", &[("kind", kind), ("error", why)]),
        },
        keeper::Note::Refused(verb, target, why) => log::error(
            "the API server refuses an object of a Gateway",
            &[("verb", verb), ("kind", &target.kind), ("object", &target.key), ("error", why)],
        ),
        keeper::Note::Undone(target) => UNDONE.warn(
            target,
            "another controller keeps undoing an object of a Gateway",
            &[("kind", &target.kind), ("object", &target.key)],
        ),
    }
}

/// The subresource on which the writer of statuses uses a verb: it reads whole objects.
pub(super) fn of_status(verb: &str) -> &'static str {
    if verb == "patch" { "status" } else { "" }
}

/// A permission in short, such as `patch httproutes.gateway.networking.k8s.io/status`.
pub(super) fn permission(verb: &str, resource: &Resource, subresource: &str) -> String {
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {}{slash}{subresource}", resource.full_name())
}

/// A missing permission, with the rule that grants it.
pub(super) fn forbidden(verb: &str, resource: &Resource, subresource: &str, why: &str) {
    let rule = missing_rule(verb, resource, subresource);
    // What is only in our own namespace needs no more than a Role there.
    let is_record = resource.making == Making::Record && !["list", "watch"].contains(&verb);
    let is_own = is_record || resource.plural == LEASE.plural;
    let role = if is_own { "Role" } else { "ClusterRole" };
    let hint = format!("add to the {role}: {rule}");
    let permission = permission(verb, resource, subresource);
    let fields: log::Fields<'_> =
        &[("permission", &permission), ("rule", &rule), ("error", &why), ("hint", &hint)];
    log::error("the service account lacks a permission", fields);
}

/// The translator has panicked.
pub(super) fn panicked(mistakes: &Mistakes) {
    let hint = "please report this; the next change tries again";
    let text = mistakes.for_readers().to_text();
    log::error("the objects cannot be translated: what runs stays", &[("error", &text), ("hint", &hint)]);
}

/// The controller cannot go on.
pub(super) fn ended(why: &dyn Display) {
    log::error("the controller ended: the config stays as it is", &[("error", why)]);
}
