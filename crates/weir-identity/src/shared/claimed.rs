//! How filters use the claims of a token: they set headers from claims, and find the consumer that a claim names.

use std::collections::{BTreeMap, HashMap};
use weir_filter::filter::{Build, Consumers, HeaderName, allow_name};
use weir_h1::FieldName;

/// The fields under `headers` and the claims that set them. `own`: fields that the filter itself sets, with the
/// reason.
pub(crate) fn headers(
    build: &mut Build<'_>,
    written: &BTreeMap<String, String>,
    own: impl Fn(&HeaderName) -> Option<&'static str>,
) -> Vec<(FieldName, String)> {
    let mut fields = Vec::new();
    for (name, claim) in written {
        let key = format!("headers.{name}");
        match serde_json::from_value::<HeaderName>(name.clone().into()) {
            Ok(name) => match own(&name) {
                Some(why) => build.refuse(&key, why, None),
                None if allow_name(build, &key, &name) => fields.push(((*name).clone(), claim.clone())),
                None => {}
            },
            Err(e) => build.refuse(&key, e.to_string(), None),
        }
    }
    fields
}

/// Consumers by the value of the claim that `consumer` names, as listed under `filter`. `refused`: who is refused if
/// no consumer has a value.
pub(crate) fn consumers(build: &mut Build<'_>, filter: &str, refused: &str) -> HashMap<String, usize> {
    let mut by_value: HashMap<String, usize> = HashMap::new();
    let all = Consumers::clone(build.consumers);
    for (index, consumer) in all.iter().enumerate() {
        for value in consumer.credentials.get(filter).into_iter().flatten() {
            if let Some(other) = by_value.insert(value.clone(), index) {
                let other = all.get(other).map_or("", |c| &c.name);
                let message =
                    format!("a value of consumer `{}` already belongs to consumer `{other}`", consumer.name);
                build.refuse("", message, Some("give each consumer its own".into()));
            }
        }
    }
    if by_value.is_empty() {
        let hint = format!("write consumers: {{ NAME: {{ {filter}: [ VALUE ] }} }}, or leave `consumer` out");
        build.refuse(
            "consumer",
            format!("no consumer has a value: {refused} would be refused"),
            Some(hint.into()),
        );
    }
    by_value
}
