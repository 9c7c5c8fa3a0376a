//! One compiled JSON Schema.

use crate::budget::{Exceeded, KEYWORD, Step, bounded, count_references};
use crate::documents::{Documents, Loaded, MISTAKES, Read, Spot, Wrong};
use crate::fault::{DETAIL_CHARS, Fault, MOST_FAULTS, Part, cut};
use crate::json::Document;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Registry, Retrieve, ValidationError, ValidationOptions, Validator};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Largest compiled regular expression, in bytes.
pub const PATTERN_BYTES: usize = 1 << 20;

/// Most values of a document whose faults are all named. To find them takes longer than to find that there is one: up
/// to a microsecond for each value and alternative.
const VALUES_FOR_ALL: usize = 512;

/// Most values of a document of which the first fault is named. Of a larger one, it is only said that it does not fit.
const VALUES_FOR_FIRST: usize = 16 * 1024;

/// Longest document of which faults are named, in bytes: alternatives that fail copy what they saw.
const BYTES_FOR_ANY: usize = 256 * 1024;

/// A compiled schema. To see that a document fits allocates nothing.
pub struct Schema {
    validator: Validator,
    /// Its checks are bounded by `budget.rs`.
    is_recursive: bool,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema").finish_non_exhaustive()
    }
}

impl Schema {
    /// Reads a schema from a file. Without `$schema` it is of the draft 2020-12. Formats that jsonschema knows are
    /// checked, others are notes for people. Regular expressions are those of the crate regex, which take linear time.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or with files that it refers to.
    pub fn load(path: &Path, read: Read<'_>) -> Result<Self, Vec<Wrong>> {
        let documents = Documents::load(path, read)?;
        let root = documents.root();
        if !root.is_object() && !root.is_boolean() {
            let place = documents.place(&Spot { file: 0, pointer: String::new() });
            return Err(vec![Wrong::new(format!("{place}: this is not a JSON Schema; expected an object"))]);
        }
        if root.get("openapi").is_some() || root.get("swagger").is_some() {
            let place = documents.place(&Spot { file: 0, pointer: String::new() });
            let wrong = Wrong::new(format!("{place}: this is an OpenAPI document, not a JSON Schema"));
            return Err(vec![wrong.hint("name it in `openapi` instead of `schema`")]);
        }
        check(&documents, &Spot { file: 0, pointer: String::new() }, root)?;
        let is_recursive = documents.is_recursive();
        let files: HashMap<String, Value> = documents
            .changed(|value| {
                if is_recursive {
                    count_references(value)
                }
            })
            .into_iter()
            .collect();
        let uri = documents.uri(0);
        let root = files.get(&uri).cloned().unwrap_or_default();
        let options = options().with_base_uri(uri).with_retriever(Loaded(files));
        let built = options.build(&root).map_err(|e| vec![explain(&documents, 0, &e)])?;
        Ok(Self { validator: built, is_recursive })
    }

    /// Compiles the schema at a place of a document whose files are in the registry.
    pub(crate) fn compile(
        documents: &Documents,
        registry: &Registry<'_>,
        spot: &Spot,
    ) -> Result<Self, Vec<Wrong>> {
        if let Some(value) = documents.get(spot) {
            check(documents, spot, value)?;
        }
        let pointer: String = spot.pointer.split('/').map(encoded).collect::<Vec<_>>().join("/");
        let schema = json!({ "$ref": format!("{}#{pointer}", documents.uri(spot.file)) });
        let built = options().with_registry(registry).build(&schema);
        let validator = built.map_err(|e| vec![explain(documents, spot.file, &e)])?;
        Ok(Self { validator, is_recursive: documents.is_recursive() })
    }

    /// The schema that everything fits.
    pub(crate) fn anything() -> Option<Self> {
        let validator = options().build(&Value::Bool(true)).ok()?;
        Some(Self { validator, is_recursive: false })
    }

    /// Checks a document.
    ///
    /// # Errors
    /// What is wrong with it: as much as may be looked for.
    #[inline]
    pub fn check(&self, document: &Document) -> Result<(), Vec<Fault>> {
        match self.fits(&document.value, document.values) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.faults(document)),
            Err(Exceeded) => Err(vec![Fault::new(
                Part::Body,
                "takes too many steps to check: see the alternatives that contain themselves",
            )]),
        }
    }

    /// Whether a value fits, of so many values.
    fn fits(&self, value: &Value, values: usize) -> Result<bool, Exceeded> {
        if self.is_recursive {
            bounded(values, || self.validator.is_valid(value))
        } else {
            Ok(self.validator.is_valid(value))
        }
    }

    fn faults(&self, document: &Document) -> Vec<Fault> {
        let Document { value, values, bytes } = document;
        let found = bounded(*values, || {
            if *bytes <= BYTES_FOR_ANY && *values <= VALUES_FOR_ALL {
                self.validator.iter_errors(value).take(MOST_FAULTS).map(|e| fault(&e)).collect()
            } else if *bytes <= BYTES_FOR_ANY && *values <= VALUES_FOR_FIRST {
                self.validator.validate(value).err().map(|first| fault(&first)).into_iter().collect()
            } else {
                Vec::new()
            }
        });
        found.ok().filter(|found| !found.is_empty()).unwrap_or_else(|| {
            vec![Fault::new(Part::Body, "does not fit the schema, and it would take too long to say where")]
        })
    }

    /// What is wrong with a small value, such as a parameter.
    pub(crate) fn fault_of(&self, value: &Value) -> Option<String> {
        match self.fits(value, 1) {
            Ok(true) => None,
            Ok(false) => {
                let first = bounded(1, || self.validator.validate(value).err().map(|e| detail(&e)));
                Some(first.ok().flatten().unwrap_or_else(|| "does not fit the schema".to_owned()))
            }
            Err(Exceeded) => Some("takes too many steps to check".to_owned()),
        }
    }
}

fn options<'i>() -> ValidationOptions<'i, Arc<dyn Retrieve>> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES);
    jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(patterns)
        .with_keyword(KEYWORD, |_, _, _| Ok(Box::new(Step)))
}

/// Checks a schema against the schema of schemas, to report all mistakes at once and with their places.
fn check(documents: &Documents, spot: &Spot, schema: &Value) -> Result<(), Vec<Wrong>> {
    let Ok(meta) = jsonschema::meta::validator_for(schema) else { return Ok(()) }; // its own dialect: compiling tells
    let wrong = meta.iter_errors(schema).take(MISTAKES).map(|e| {
        let pointer = format!("{}{}", spot.pointer, e.instance_path());
        let place = documents.place(&Spot { file: spot.file, pointer });
        Wrong::new(format!("{place}: {}", cut(&e.to_string(), DETAIL_CHARS)))
    });
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// What is wrong with a schema.
fn explain(documents: &Documents, file: usize, e: &ValidationError<'_>) -> Wrong {
    let named = e.absolute_keyword_location().and_then(|uri| documents.spot_of(uri.as_str()));
    let spot = named.unwrap_or_else(|| Spot { file, pointer: e.instance_path().to_string() });
    let place = documents.place(&spot);
    match e.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            let shown = cut(&e.instance().to_string(), 80);
            Wrong::new(format!("{place}: {shown} is not a regular expression that takes linear time")).hint(
                "look-around such as (?= and backreferences are not taken: say it with `not` and `allOf`",
            )
        }
        _ => Wrong::new(format!("{place}: {}", cut(&e.to_string(), DETAIL_CHARS))),
    }
}

fn encoded(key: &str) -> String {
    percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn fault(e: &ValidationError<'_>) -> Fault {
    Fault { pointer: cut(&e.instance_path().to_string(), DETAIL_CHARS), ..Fault::new(Part::Body, detail(e)) }
}

/// What was expected, without the value that was found.
fn detail(e: &ValidationError<'_>) -> String {
    match e.kind() {
        ValidationErrorKind::AdditionalItems { limit } => format!("has more than {limit} items"),
        ValidationErrorKind::Contains => "no item fits what the list must contain".to_owned(),
        ValidationErrorKind::PropertyNames { error } => format!("the name of a property: {}", detail(error)),
        _ => cut(&e.masked_with("the value").to_string(), DETAIL_CHARS),
    }
}
