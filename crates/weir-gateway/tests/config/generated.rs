//! Thousands of configs, generated from the cases and examples with typical human mistakes. Each is either accepted
//! or refused with a located error: no silent refusal and no panic.

use serde_json::{Map, Value as Json};
use weir_gateway::config::{Mistakes, Node, Severity, Source, Value, load};

use super::{DASHES, folder, lay_out};
use std::path::PathBuf;

/// Number of generated configs.
const CONFIGS: usize = 2_000;

/// Rust's debug output does not belong in a message.
const DEBUG_TEXT: &[&str] = &["Some(", "None)", "Err(", "Ok(", "Custom {", "kind: ", "Os {", "Error("];

/// Small, fast and deterministic: failures are reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Prints the config under test if a test panics.
struct Shown<'a>(usize, &'a str);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("config {}:\n{}", self.0, self.1);
        }
    }
}

#[test]
fn no_config_is_refused_without_a_reason() {
    let files = tempfile::tempdir().unwrap();
    lay_out(files.path());
    let name = files.path().join("weir.yaml");
    let seeds = seeds(&name);
    assert!(seeds.len() > 100, "only {} configs to begin with", seeds.len());
    let is_good =
        |seed: &&Json| weir_gateway::check(&source(&name, &seed.to_string()), &[]).compiled.is_some();
    let sound: Vec<Json> = seeds.iter().filter(is_good).cloned().collect();
    let mut pool = Pool::default();
    seeds.iter().for_each(|seed| pool.add(seed));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut good, mut refused) = (0, 0);
    for number in 0..CONFIGS {
        let from = if random.below(4) == 0 { &seeds } else { &sound };
        let mut config = random.of(from).clone();
        for _ in 0..=random.below(3) {
            spoil(&mut config, &pool, &mut random);
        }
        let text = serde_json::to_string_pretty(&config).unwrap();
        let _shown = Shown(number, &text);
        let checked = weir_gateway::check(&source(&name, &text), &[]);
        let found = &checked.diagnostics;
        let told = found.to_text();
        if checked.compiled.is_some() {
            assert_eq!(found.errors(), 0, "{told}");
            good += 1;
            continue;
        }
        refused += 1;
        assert!(found.errors() > 0 && told.contains("error: ") && found.to_json()["errors"] != 0, "{told}");
        for error in found.iter().filter(|d| d.severity == Severity::Error) {
            assert_ne!(error.code, Mistakes::SILENT, "{told}");
            let place = error.place.as_ref().unwrap_or_else(|| panic!("no place: {}\n{told}", error.message));
            assert!(place.line > 0 && place.column > 0 && place.file.starts_with(files.path()), "{told}");
            let debug =
                DEBUG_TEXT.iter().find(|debug| error.message.contains(**debug) && !text.contains(**debug));
            assert!(debug.is_none(), "debug text: {}", error.message);
        }
    }
    // If nearly all configs were accepted, or nearly all refused, half of the code would go untested.
    assert!(good > CONFIGS / 50 && refused > CONFIGS / 3, "{good} good, {refused} refused");
}

fn source(name: &std::path::Path, text: &str) -> Source {
    Source::text(name, text).with_variable("SHOP_KEY", "k").with_variable("WORKERS", "2")
}

/// The inputs of the golden cases and the examples, as JSON.
fn seeds(name: &std::path::Path) -> Vec<Json> {
    let examples = folder().join("../../../../examples");
    let mut paths: Vec<PathBuf> = [folder(), examples]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "case" || extension == "yaml"))
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
    let inputs =
        texts.map(|text| text.split_once(DASHES).map_or(text.clone(), |(input, _)| input.to_owned()));
    let trees = inputs.filter_map(|input| load(&source(name, &input)).ok());
    trees.filter(|loaded| loaded.tree.entries().len() > 1).map(|loaded| json(&loaded.tree)).collect()
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => (*value).into(),
        Value::Float(value) => serde_json::Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Value::Str(_) => node.written().or(node.as_text()).unwrap_or_default().into(),
        Value::Seq(elements) => elements.iter().map(json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.text.to_string(), json(value))).collect()
        }
    }
}

/// Keys and values from configs, to put in wrong places.
#[derive(Default)]
struct Pool {
    keys: Vec<String>,
    values: Vec<Json>,
}

impl Pool {
    fn add(&mut self, value: &Json) {
        match value {
            Json::Object(entries) => {
                self.keys.extend(entries.keys().cloned());
                entries.values().for_each(|value| self.add(value));
            }
            Json::Array(elements) => elements.iter().for_each(|element| self.add(element)),
            _ => {}
        }
        self.values.push(value.clone());
    }

    /// A value from another place, or one that no setting expects.
    fn value(&self, random: &mut Random) -> Json {
        match random.below(12) {
            0 => Json::Null,
            1 => Json::Bool(random.below(2) == 0),
            2 => 0.into(),
            3 => (-1).into(),
            4 => 99_999_999_999_999_i64.into(),
            5 => "".into(),
            6 => Json::Array(Vec::new()),
            7 => Json::Object(Map::new()),
            8 => {
                (*random.of(&["$1", "${SHOP_KEY}", "~^/a(", "{x}", "*", "/", "1s", "h2", "ü", "a b"])).into()
            }
            _ => random.of(&self.values).clone(),
        }
    }
}

/// Makes one mistake somewhere in a config.
fn spoil(config: &mut Json, pool: &Pool, random: &mut Random) {
    let mut here = config;
    // Descends to a map or list, and may stop at any level.
    loop {
        let children = match &*here {
            Json::Object(entries) => entries.values().filter(|v| v.is_object() || v.is_array()).count(),
            Json::Array(elements) => elements.iter().filter(|v| v.is_object() || v.is_array()).count(),
            _ => 0,
        };
        if children == 0 || random.below(4) == 0 {
            break;
        }
        let chosen = random.below(children);
        let is_inner = |v: &&mut Json| v.is_object() || v.is_array();
        here = match here {
            Json::Object(entries) => entries.values_mut().filter(is_inner).nth(chosen).unwrap(),
            Json::Array(elements) => elements.iter_mut().filter(is_inner).nth(chosen).unwrap(),
            _ => unreachable!("scalars have no children"),
        };
    }
    match here {
        Json::Object(entries) => spoil_map(entries, pool, random),
        Json::Array(elements) if !elements.is_empty() => {
            let at = random.below(elements.len());
            match random.below(4) {
                0 => drop(elements.remove(at)),
                1 => elements.push(elements[at].clone()),
                2 => elements[at] = pool.value(random),
                _ => elements.insert(at, pool.value(random)),
            }
        }
        other => *other = pool.value(random),
    }
}

fn spoil_map(entries: &mut Map<String, Json>, pool: &Pool, random: &mut Random) {
    let keys: Vec<String> = entries.keys().cloned().collect();
    if keys.is_empty() || random.below(6) == 0 {
        entries.insert(random.of(&pool.keys).clone(), pool.value(random));
        return;
    }
    let key = random.of(&keys).clone();
    match random.below(6) {
        0 => drop(entries.remove(&key)),
        1 => {
            let value = entries.remove(&key).unwrap();
            entries.insert(misspelt(&key, random), value);
        }
        2 => entries[&key] = Json::Array(vec![entries[&key].clone()]),
        3 => {
            let inner = entries[&key].clone();
            entries[&key] = match inner {
                Json::Array(mut list) if !list.is_empty() => list.swap_remove(0),
                Json::Object(map) if !map.is_empty() => map.into_iter().next().unwrap().1,
                Json::String(text) => {
                    text.parse::<i64>().map_or(Json::String(format!("{text} ")), Json::from)
                }
                scalar => Json::String(scalar.to_string()),
            };
        }
        _ => entries[&key] = pool.value(random),
    }
}

fn misspelt(key: &str, random: &mut Random) -> String {
    let mut letters: Vec<char> = key.chars().collect();
    let at = random.below(letters.len());
    match random.below(5) {
        0 if letters.len() > 1 => drop(letters.remove(at)),
        1 if letters.len() > 1 => letters.swap(at, (at + 1) % key.chars().count()),
        2 => letters.push('s'),
        3 => return key.replace('_', "-").to_uppercase(),
        _ => letters.insert(at, 'e'),
    }
    letters.into_iter().collect()
}
