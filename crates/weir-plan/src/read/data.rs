//! `data:` of a plan: reads files and rows.

use crate::data::{AtEnd, DataSet, Pick};
use crate::files::Files;
use crate::limits::DATA_BYTES;
use crate::written;
use serde_json::{Map, Value as Json};
use weir_config::{Diagnostic, Diagnostics, Node, Value};

/// Reads all data sets. One with mistakes is left out.
pub(super) fn read(
    file: &written::PlanFile,
    tree: &Node,
    files: &dyn Files,
    found: &mut Diagnostics,
) -> Vec<DataSet> {
    let mut all = Vec::new();
    for (name, data) in file.data.iter() {
        let path = format!("data.{name}");
        if let Some(why) = super::names::wrong_name(name) {
            found.push(Diagnostic::error("bad-data", format!("`{name}` {why}")).on(tree, &path));
        }
        match read_one(name, data, files) {
            Ok(set) => all.push(set),
            Err((key, why)) => {
                let path = if key.is_empty() { path } else { format!("{path}.{key}") };
                found.push(Diagnostic::error("bad-data", why).on(tree, &path));
            }
        }
    }
    all
}

/// Reads one. The error names the key.
fn read_one(name: &str, data: &written::Data, files: &dyn Files) -> Result<DataSet, (&'static str, String)> {
    let (pick, at_end) = ways(data)?;
    match (&data.file, &data.rows) {
        (Some(_), Some(_)) => Err(("rows", "there is already a `file`: give only one of the two".to_owned())),
        (None, None) => Err(("", "expected a `file`, or the `rows` themselves".to_owned())),
        (Some(file), None) => {
            let content = files.read(&file.0, DATA_BYTES);
            let content = content.map_err(|e| ("file", format!("cannot read {}: {e}", file.0.display())))?;
            let set = DataSet::parse(name, &content, pick, at_end);
            set.map_err(|why| ("file", format!("{}: {why}", file.0.display())))
        }
        (None, Some(rows)) => of_rows(name, &rows.node, pick, at_end).map_err(|why| ("rows", why)),
    }
}

fn ways(data: &written::Data) -> Result<(Pick, AtEnd), (&'static str, String)> {
    let pick = match data.pick.unwrap_or(written::Pick::Sequential) {
        written::Pick::Once => Pick::Once,
        written::Pick::PerUser => Pick::PerUser,
        written::Pick::Random => Pick::Random,
        written::Pick::Sequential => Pick::Sequential,
    };
    let at_end = match (pick, data.at_end) {
        (Pick::Once, None) => {
            let why =
                "`pick: once` needs `at_end: stop` (its scenarios end after the last row) or `at_end: fail`";
            return Err(("pick", why.to_owned()));
        }
        (Pick::Once, Some(written::AtEnd::Wrap)) => {
            let why = "`pick: once` uses no row twice: write `at_end: stop` or `at_end: fail`";
            return Err(("at_end", why.to_owned()));
        }
        (Pick::Random | Pick::PerUser, Some(_)) => {
            let why = "rows that are picked `random` or `per_user` have no last one: leave `at_end` out";
            return Err(("at_end", why.to_owned()));
        }
        (Pick::PerUser, None) => AtEnd::Fail,
        (_, Some(written::AtEnd::Fail)) => AtEnd::Fail,
        (_, Some(written::AtEnd::Stop)) => AtEnd::Stop,
        (_, Some(written::AtEnd::Wrap) | None) => AtEnd::Wrap,
    };
    Ok((pick, at_end))
}

fn of_rows(name: &str, node: &Node, pick: Pick, at_end: AtEnd) -> Result<DataSet, String> {
    const EXPECTED: &str =
        "expected a list of rows, each a map with the same keys: [ { sku: a }, { sku: b } ]";
    let mut set: Option<DataSet> = None;
    for (i, row) in node.elements().iter().enumerate() {
        let at = |why: String| format!("row {}: {why}", i + 1);
        if row.entries().is_empty() {
            return Err(EXPECTED.to_owned());
        }
        let cell = |node: &Node| match node.as_text() {
            Some(text) => Json::String(text.to_owned()),
            None => json(node),
        };
        let row: Map<String, Json> =
            row.entries().iter().map(|(key, value)| (key.text.to_string(), cell(value))).collect();
        if set.is_none() {
            set = Some(DataSet::new(name, row.keys().cloned().collect(), pick, at_end)?);
        }
        if let Some(set) = &mut set {
            set.push_object(&row).map_err(at)?;
        }
    }
    set.ok_or_else(|| EXPECTED.to_owned())
}

/// The parser of YAML bounds the depth.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(is) => Json::Bool(*is),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Str(text) => Json::String(text.to_string()),
        Value::Seq(items) => Json::Array(items.iter().map(json).collect()),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.text.to_string(), json(value))).collect()
        }
    }
}
