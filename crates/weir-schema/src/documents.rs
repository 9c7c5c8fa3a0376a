//! The files of a schema or an OpenAPI document: the one that the config names, and those beside it that it refers to.
//!
//! References over the network are not followed, and none leaves the folder: what a schema means then changes only
//! with the files that the operator has put there.

use crate::fault::cut;
use crate::json::{self, MAX_DEPTH};
use jsonschema::{Retrieve, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use weir_config::{Diagnostics, Node, Value as NodeValue, parse};

/// Longest file, in bytes. The description of Kubernetes has 4 MiB.
pub const FILE_BYTES: usize = 8 << 20;

/// Most files of one document.
pub const FILES: usize = 256;

/// Longest chain of references outside schemas.
const CHAIN: usize = 32;

/// Mistakes reported of one document.
pub(crate) const MISTAKES: usize = 10;

/// What a path in a URI takes as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Keys that refer to another schema.
pub(crate) const REFERENCES: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$ref"];

/// Keys whose values are data, in which `$ref` means nothing.
pub(crate) const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// Keys whose values map names that the author chose.
pub(crate) const NAMED: [&str; 14] = [
    "$defs",
    "callbacks",
    "content",
    "definitions",
    "dependentSchemas",
    "headers",
    "parameters",
    "pathItems",
    "paths",
    "patternProperties",
    "properties",
    "requestBodies",
    "responses",
    "schemas",
];

/// A mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong, with its place.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Wrong {
    pub(crate) fn new(message: String) -> Self {
        Self { message, hint: None }
    }

    pub(crate) fn hint(self, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..self }
    }
}

/// Reads a file: what [`Build::read_file`] of weir-filter does.
///
/// [`Build::read_file`]: https://docs.rs/weir-filter
pub type Read<'r> = &'r mut dyn FnMut(&Path) -> Result<Vec<u8>, String>;

/// The files, the first of which is the one that the config names.
#[derive(Debug)]
pub struct Documents {
    files: Vec<File>,
    /// What schemas are called by `$id`.
    ids: HashSet<String>,
    /// Every reference: where it stands and where it leads; none if not to a pointer in one of the files.
    references: BTreeMap<(String, String), Option<(String, String)>>,
}

/// One file.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Its place below the folder, as in a URI.
    name: String,
    value: Value,
    /// The same with positions, if it could be read so.
    tree: Option<Node>,
}

/// A place in a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) file: usize,
    pub(crate) pointer: String,
}

impl Spot {
    pub(crate) fn below(&self, key: &str) -> Self {
        Self { file: self.file, pointer: format!("{}/{}", self.pointer, escaped(key)) }
    }
}

impl Documents {
    /// Reads a document and all files that it refers to.
    ///
    /// # Errors
    /// Every file that cannot be read, and every reference that leads elsewhere.
    pub fn load(root: &Path, read: Read<'_>) -> Result<Self, Vec<Wrong>> {
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut all = Self { files: Vec::new(), ids: HashSet::new(), references: BTreeMap::new() };
        let mut wrong = Vec::new();
        let mut known = HashSet::from([name.clone()]);
        let mut open = vec![(name, None::<String>)];
        let mut absolute = Vec::new();
        while let Some((name, from)) = open.pop() {
            let at = from.map(|from| format!("{from}: ")).unwrap_or_default();
            if all.files.len() == FILES {
                wrong.push(Wrong::new(format!("{at}more than {FILES} files are referred to")));
                break;
            }
            let file = match File::read(&folder, &name, read) {
                Ok(file) => file,
                Err(mut of_file) => {
                    of_file.message.insert_str(0, &at);
                    wrong.push(of_file);
                    continue;
                }
            };
            let mut found = Found::default();
            found.look(&file.value, &mut String::new(), false);
            all.ids.extend(found.ids);
            let base = id_of(&file.value).and_then(|id| Some(id.rsplit_once('/')?.0.to_owned()));
            for (pointer, reference) in found.references {
                let place = file.place(&pointer);
                let target = Target::of(&name, base.as_deref(), &reference);
                let end = target.end(&name, &reference);
                all.references.insert((name.clone(), pointer), end);
                match target {
                    Target::Here => {}
                    Target::Beside(beside) => {
                        if known.insert(beside.clone()) {
                            open.push((beside, Some(place)));
                        }
                    }
                    Target::Absolute(uri) => absolute.push((place, uri)),
                    Target::Outside => wrong.push(
                        Wrong::new(format!(
                            "{place}: `{}` leaves the folder of the document",
                            cut(&reference, 80)
                        ))
                        .hint("put the file into the folder of the document, or below it"),
                    ),
                }
            }
            all.files.push(file);
        }
        for (place, uri) in absolute {
            if !all.ids.contains(&uri) && !uri.contains("://json-schema.org/") {
                let message =
                    format!("{place}: `{}` is not followed, because it needs the network", cut(&uri, 80));
                wrong.push(Wrong::new(message).hint("put a copy beside the document and refer to that"));
            }
        }
        wrong.truncate(MISTAKES);
        if wrong.is_empty() { Ok(all) } else { Err(wrong) }
    }

    /// Whether references lead back to where they stand, or perhaps do. A check then may take exponential time: see
    /// `budget.rs`.
    pub(crate) fn is_recursive(&self) -> bool {
        let mut done = HashSet::new();
        self.references.keys().any(|reference| self.is_on_circle(reference, &mut done))
    }

    /// Searches depth first, without recursion.
    fn is_on_circle<'s>(
        &'s self,
        from: &'s (String, String),
        done: &mut HashSet<&'s (String, String)>,
    ) -> bool {
        let mut path = HashSet::new();
        let mut open = vec![(from, false)];
        while let Some((reference, is_left)) = open.pop() {
            if is_left {
                path.remove(reference);
                done.insert(reference);
                continue;
            }
            if path.contains(reference) {
                return true;
            }
            if done.contains(reference) {
                continue;
            }
            let Some(Some((file, pointer))) = self.references.get(reference) else { return true };
            path.insert(reference);
            open.push((reference, true));
            let below = format!("{pointer}/");
            let exact = self.references.get_key_value(&(file.clone(), pointer.clone()));
            open.extend(exact.map(|(next, _)| (next, false)));
            let after = self.references.range((file.clone(), below.clone())..);
            let inside = after.take_while(|((of, at), _)| of == file && at.starts_with(&below));
            open.extend(inside.map(|(next, _)| (next, false)));
        }
        false
    }

    /// The root of the first file.
    pub(crate) fn root(&self) -> &Value {
        self.files.first().map_or(&Value::Null, |file| &file.value)
    }

    /// Changes every file's value, for a dialect of schemas.
    pub(crate) fn changed(&self, change: impl Fn(&mut Value)) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        let base = id_of(self.root()).and_then(|id| Some(id.rsplit_once('/')?.0.to_owned()));
        for file in &self.files {
            let mut value = file.value.clone();
            change(&mut value);
            if let Some(base) = &base {
                all.push((format!("{base}/{}", utf8_percent_encode(&file.name, PATH)), value.clone()));
            }
            all.push((file.uri(), value));
        }
        all
    }

    /// The URI of a file.
    pub(crate) fn uri(&self, file: usize) -> String {
        self.files.get(file).map(File::uri).unwrap_or_default()
    }

    /// Where something is, for messages.
    pub(crate) fn place(&self, spot: &Spot) -> String {
        self.files.get(spot.file).map(|file| file.place(&spot.pointer)).unwrap_or_default()
    }

    /// The place that a URI with a fragment names.
    pub(crate) fn spot_of(&self, uri: &str) -> Option<Spot> {
        let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
        let file = self.files.iter().position(|file| file.uri() == uri)?;
        let pointer = percent_decode_str(fragment).decode_utf8().ok()?.into_owned();
        Some(Spot { file, pointer })
    }

    pub(crate) fn get(&self, spot: &Spot) -> Option<&Value> {
        self.files.get(spot.file)?.value.pointer(&spot.pointer)
    }

    /// Follows `$ref`, as far as there are any. For all but schemas, whose references jsonschema follows.
    pub(crate) fn follow(&self, spot: Spot) -> Result<(Spot, &Value), Wrong> {
        let mut spot = spot;
        for _ in 0..CHAIN {
            let Some(value) = self.get(&spot) else {
                return Err(Wrong::new(format!("{}: there is no such thing", self.place(&spot))));
            };
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok((spot, value)) };
            let missing = || {
                let place = self.place(&spot);
                Wrong::new(format!("{place}: `{}` leads to nothing", cut(reference, 80)))
            };
            let name = self.files.get(spot.file).map_or("", |file| &file.name);
            let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
            let file = match Target::of(name, None, file) {
                Target::Here => spot.file,
                Target::Beside(name) => {
                    self.files.iter().position(|file| file.name == name).ok_or_else(missing)?
                }
                Target::Absolute(_) | Target::Outside => return Err(missing()),
            };
            let pointer = percent_decode_str(fragment).decode_utf8().map_err(|_| missing())?.into_owned();
            let next = Spot { file, pointer };
            if self.get(&next).is_none() {
                return Err(missing());
            }
            spot = next;
        }
        Err(Wrong::new(format!("{}: references follow one another in a circle", self.place(&spot))))
    }
}

impl File {
    fn read(folder: &Path, name: &str, read: Read<'_>) -> Result<Self, Wrong> {
        let path = folder.join(name);
        let bytes = read(&path).map_err(Wrong::new)?;
        let inside = |path: &Path| Some((path.canonicalize().ok()?, folder.canonicalize().ok()?));
        // A symlink may lead elsewhere. Without a folder on disk there is none: a bundle, or a test.
        if let Some((real, folder)) = inside(&path).filter(|_| name.contains('/'))
            && !real.starts_with(folder)
        {
            let message = format!("{} is a symlink that leaves the folder of the document", path.display());
            return Err(Wrong::new(message));
        }
        let shown = path.display();
        let text = String::from_utf8(bytes).map_err(|_| Wrong::new(format!("{shown} is not UTF-8")))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let is_json = text.trim_start().starts_with('{');
        let limits = json::Limits { depth: MAX_DEPTH, values: usize::MAX };
        let read = is_json.then(|| json::parse(text.as_bytes(), limits));
        if let Some(Err(e)) = &read
            && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
        {
            return Err(Wrong::new(format!("{shown}: {e}")));
        }
        let mut found = Diagnostics::default();
        let tree = parse::parse(text, &path, &mut found).filter(|_| found.is_empty());
        let value = match (read, &tree) {
            (Some(Ok(read)), _) => read.value,
            (_, Some(tree)) => to_json(tree),
            _ => {
                let first = found.iter().next();
                let place = first.and_then(|d| d.place.as_ref().map(|place| format!("{place}: ")));
                let message = first.map_or("cannot be read", |d| &d.message);
                let place = place.unwrap_or_else(|| format!("{shown}: "));
                return Err(Wrong {
                    message: format!("{place}{message}"),
                    hint: first.and_then(|d| d.hint.clone()),
                });
            }
        };
        Ok(Self { path, name: name.to_owned(), value, tree })
    }

    fn uri(&self) -> String {
        format!("file:///{}", utf8_percent_encode(&self.name, PATH))
    }

    fn place(&self, pointer: &str) -> String {
        let mut node = self.tree.as_ref();
        for key in pointer.split('/').skip(1) {
            let key = key.replace("~1", "/").replace("~0", "~");
            node = node.and_then(|node| match &node.value {
                NodeValue::Seq(items) => items.get(key.parse::<usize>().ok()?),
                _ => node.get(&key),
            });
        }
        match node {
            Some(node) => node.at.to_string(),
            None => format!("{}#{}", self.path.display(), cut(pointer, 120)),
        }
    }
}

/// The value of YAML as JSON has it.
fn to_json(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null => Value::Null,
        NodeValue::Bool(value) => Value::Bool(*value),
        NodeValue::Int(value) => Value::from(*value),
        NodeValue::Float(value) => Value::from(*value),
        NodeValue::Str(text) => Value::String(text.to_string()),
        NodeValue::Seq(items) => Value::Array(items.iter().map(to_json).collect()),
        NodeValue::Map(entries) => {
            let entries = entries.iter().map(|(key, node)| (key.text.to_string(), to_json(node)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

fn id_of(value: &Value) -> Option<&str> {
    value.get("$id").and_then(Value::as_str).filter(|id| id.contains("://"))
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The references and names in a document.
#[derive(Default)]
struct Found {
    /// The pointer to each object with `$ref`, and the reference.
    references: Vec<(String, String)>,
    ids: Vec<String>,
}

impl Found {
    fn look(&mut self, value: &Value, pointer: &mut String, is_named: bool) {
        let end = pointer.len();
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    pointer.push_str(&format!("/{at}"));
                    self.look(item, pointer, false);
                    pointer.truncate(end);
                }
            }
            Value::Object(entries) => {
                for (key, value) in entries {
                    match value {
                        Value::String(to) if !is_named && REFERENCES.contains(&key.as_str()) => {
                            self.references.push((pointer.clone(), to.clone()));
                        }
                        Value::String(id) if !is_named && key == "$id" => {
                            self.ids.push(id.trim_end_matches('#').to_owned());
                        }
                        _ if !is_named && (DATA.contains(&key.as_str()) || key.starts_with("x-")) => {}
                        value => {
                            pointer.push('/');
                            pointer.push_str(&escaped(key));
                            self.look(value, pointer, !is_named && NAMED.contains(&key.as_str()));
                            pointer.truncate(end);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Where a reference leads.
enum Target {
    Absolute(String),
    /// To another file, by its place below the folder.
    Beside(String),
    Here,
    Outside,
}

impl Target {
    /// The file and the pointer that a reference leads to.
    fn end(&self, name: &str, reference: &str) -> Option<(String, String)> {
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let pointer = percent_decode_str(fragment).decode_utf8().ok()?.into_owned();
        let file = match self {
            Self::Beside(file) => file.clone(),
            Self::Here => name.to_owned(),
            Self::Absolute(_) | Self::Outside => return None,
        };
        (pointer.is_empty() || pointer.starts_with('/')).then_some((file, pointer))
    }

    /// `name` is the file that it stands in, `base` what its `$id` begins with.
    fn of(name: &str, base: Option<&str>, reference: &str) -> Self {
        let file = reference.split('#').next().unwrap_or_default();
        if file.is_empty() {
            return Self::Here;
        }
        let scheme = file.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        let file = match base.and_then(|base| file.strip_prefix(base)?.strip_prefix('/')) {
            Some(below) => below,
            None if scheme => return Self::Absolute(file.to_owned()),
            None => file,
        };
        let Ok(file) = percent_decode_str(file).decode_utf8() else { return Self::Outside };
        if file.starts_with('/') || file.contains(['\\', '\0']) {
            return Self::Outside;
        }
        let mut parts: Vec<&str> = name.split('/').collect();
        parts.pop();
        for part in file.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Self::Outside;
                    }
                }
                part => parts.push(part),
            }
        }
        Self::Beside(parts.join("/"))
    }
}

/// Gives jsonschema the files, and nothing else.
pub(crate) struct Loaded(pub(crate) HashMap<String, Value>);

impl Retrieve for Loaded {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.0.get(uri.as_str().trim_end_matches('#'));
        found.cloned().ok_or_else(|| "no file of the document has this name".into())
    }
}
