//! Data of `SharedArray`: rows that are read from files beside the script.

use super::Translator;
use super::value::V;
use crate::plan::json;
use crate::plan::secrets::is_secret_value;
use crate::yaml::{Map, Value};

/// Most rows of a data set that are written into the plan.
const ROWS: usize = 10_000;
/// Most secrets of a data set: each becomes a variable of the environment.
const SECRETS: usize = 50;

impl Translator<'_, '_> {
    /// A data set of `open(PATH)`.
    pub(super) fn data_set(&mut self, name: &str, file: &str) -> Result<V, String> {
        let inside = file.strip_prefix("file:").unwrap_or(file);
        // `JSON.parse(open('x.json')).users` has the list below a name.
        let ending = [".json", ".csv", ".ndjson", ".jsonl"]
            .iter()
            .find_map(|ending| Some((inside.find(ending)? + ending.len(), *ending)));
        let Some((end, ending)) = ending else {
            return Err("a data set must be a .csv or .json file".to_owned());
        };
        let (path, below) = inside.split_at(end);
        let set = self.cx.vault.free(name);
        if ending != ".json" {
            self.data.set(set.clone(), Map::new().with("file", path));
            return Ok(V::Set(set));
        }
        let file = self.cx.beside(path)?;
        let root = json::read(&file).map_err(|e| e.message)?;
        let below: Vec<&str> = below.split('.').filter(|part| !part.is_empty()).collect();
        let list = root.at(&below).ok_or("the list of data is not where the script looks for it")?;
        let mut rows = Vec::new();
        let mut columns: Option<Vec<String>> = None;
        let mut secrets = 0;
        for item in list.items() {
            let mut row = Map::new();
            for (key, value) in item.entries() {
                let text = value.as_text().ok_or("a row of data holds more than texts")?;
                secrets += usize::from(is_secret_value(key, &text));
                if secrets > SECRETS {
                    let why = format!(
                        "its column `{key}` holds more than {SECRETS} secrets, which no plan may show"
                    );
                    return Err(why);
                }
                row.set(key.to_string(), text.into_owned());
            }
            let own: Vec<String> = item.entries().iter().map(|(key, _)| key.to_string()).collect();
            if own.is_empty() || columns.as_ref().is_some_and(|columns| *columns != own) {
                return Err("rows of data have different members".to_owned());
            }
            columns = Some(own);
            rows.push(Value::Map(row));
        }
        if rows.is_empty() || rows.len() > ROWS {
            return Err(format!("a plan takes 1 to {ROWS} rows from a JSON file"));
        }
        self.data.set(set.clone(), Map::new().with("rows", Value::List(rows)));
        Ok(V::Set(set))
    }
}
