//! How filters use the claims of a token: they set headers from claims, and find the consumer that a claim names.

use super::named::{Named, Nobody, listed};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weir_filter::directory::{CredentialIndex, Directory, Intake, Refused};
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

/// Consumers by the value of a claim.
pub(crate) struct Claimed {
    kind: &'static str,
    by_value: HashMap<String, usize>,
    directory: Option<Arc<Directory>>,
}

/// The values of the consumers of a source.
pub(crate) struct Values(HashMap<Box<str>, u32>);

impl Claimed {
    /// The consumers of whoever needs none.
    pub(crate) fn nobody() -> Self {
        Self { kind: "", by_value: HashMap::new(), directory: None }
    }

    /// Those that list values under `kind`. `refused`: who is refused if no consumer has a value.
    pub(crate) fn new(build: &mut Build<'_>, kind: &'static str, refused: &str) -> Self {
        let directory = build.directory.cloned();
        Self { kind, by_value: by_value(build, kind, refused), directory }
    }

    /// The consumer with this value.
    pub(crate) fn find(&self, value: &str) -> Result<Named, Nobody> {
        if let Some(index) = self.by_value.get(value) {
            return Ok(Named::Config(*index));
        }
        let Some(directory) = &self.directory else { return Err(Nobody::Unknown) };
        let found = directory.find(self.kind, |values: &Values| Some((*values.0.get(value)?, ())));
        listed(found).map(|(consumer, ())| Named::Listed(consumer))
    }
}

impl CredentialIndex for Values {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut values: HashMap<Box<str>, u32> = HashMap::new();
        intake.each(|consumer, value| match values.insert(value.into(), consumer) {
            Some(other) => Err(Refused::Common(other)),
            None => Ok(()),
        });
        Self(values)
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        self.0.iter().filter_map(|(value, ours)| Some((*ours, *other.0.get(value)?))).collect()
    }
}

fn by_value(build: &mut Build<'_>, filter: &str, refused: &str) -> HashMap<String, usize> {
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
    if by_value.is_empty() && build.directory.is_none() {
        let hint = format!("write consumers: {{ NAME: {{ {filter}: [ VALUE ] }} }}, or leave `consumer` out");
        build.refuse(
            "consumer",
            format!("no consumer has a value: {refused} would be refused"),
            Some(hint.into()),
        );
    }
    by_value
}
