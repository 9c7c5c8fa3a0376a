//! What the parts of the translation share: the ledger, the config that is being built, the files that lines name.

use super::families::Ipv4Port;
use super::model::Model;
use super::read::{Line, MARK};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::source::{SourceTree, folder, join};
use crate::yaml::Value;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Most lines of a file of patterns or a map.
const MAX_ENTRIES: usize = 100_000;
/// The folder in which packages keep the config. Its files are looked for beside the config, too.
const USUAL: &str = "/etc/haproxy";

/// Everything that a translation writes to, and what it looks up.
pub(super) struct Cx<'a, 'l, 't> {
    pub(super) ledger: &'l mut Ledger,
    pub(super) config: Config,
    pub(super) tree: &'l mut SourceTree<'t>,
    pub(super) model: &'l Model<'a>,
    /// The folder of the first file.
    pub(super) around: String,
    /// Files of patterns that were read.
    files: HashMap<String, Result<Rc<Vec<String>>, String>>,
    /// Other files that were read.
    texts: HashMap<String, Result<String, String>>,
    /// Our maps, by what they were made from.
    pub(super) made_maps: HashMap<String, String>,
    /// `crt-base` and `ca-base`.
    pub(super) crt_base: String,
    pub(super) ca_base: String,
    /// Networks whose PROXY headers are believed.
    pub(super) trusted: Vec<String>,
    /// Where frontends listen for IPv4.
    pub(super) ipv4_ports: Vec<Ipv4Port<'a>>,
    /// Names of userlists that were translated.
    pub(super) userlists: HashSet<String>,
    /// Those of which a user could be translated.
    pub(super) callable: HashSet<String>,
}

impl<'a, 'l, 't> Cx<'a, 'l, 't> {
    pub(super) fn new(ledger: &'l mut Ledger, tree: &'l mut SourceTree<'t>, model: &'l Model<'a>) -> Self {
        let first = super::read::files(tree).into_iter().next().unwrap_or_default();
        Self {
            ledger,
            config: Config::default(),
            around: folder(&first).to_owned(),
            tree,
            model,
            files: HashMap::new(),
            texts: HashMap::new(),
            made_maps: HashMap::new(),
            crt_base: String::new(),
            ca_base: String::new(),
            trusted: Vec::new(),
            ipv4_ports: Vec::new(),
            userlists: HashSet::new(),
            callable: HashSet::new(),
        }
    }

    /// The lines of a file of patterns or of a map, without comments.
    pub(super) fn entries(&mut self, path: &str) -> Result<Rc<Vec<String>>, String> {
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let read = read_beside(self.tree, &self.around, path).and_then(|text| {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            let lines: Vec<String> = lines.map(str::to_owned).collect();
            if lines.len() > MAX_ENTRIES {
                return Err(format!("`{path}` has more than {MAX_ENTRIES} lines"));
            }
            Ok(Rc::new(lines))
        });
        self.files.insert(path.to_owned(), read.clone());
        read
    }

    /// A text of a file that a line names.
    pub(super) fn text_of(&mut self, path: &str) -> Result<String, String> {
        if let Some(known) = self.texts.get(path) {
            return known.clone();
        }
        let read = read_beside(self.tree, &self.around, path);
        self.texts.insert(path.to_owned(), read.clone());
        read
    }

    /// A value that may have variables of the environment in it.
    pub(super) fn value(&mut self, text: &str) -> Value {
        if !text.contains(MARK) {
            return Value::Text(text.to_owned());
        }
        let mut out = String::new();
        for (at, part) in text.split(MARK).enumerate() {
            if at % 2 == 0 {
                out.push_str(&part.replace('$', "$$"));
                continue;
            }
            out.push_str(&format!("${{{part}}}"));
            let (name, has_default) = part.split_once(":-").map_or((part, false), |(name, _)| (name, true));
            // Named for the check only: the environment has the value.
            if !has_default && !self.config.secrets.iter().any(|(known, _)| known == name) {
                let placeholder = format!("replace-this-by-the-value-of-{name}-in-your-environment");
                self.config.secrets.push((name.to_owned(), placeholder));
                self.config.placeholders.insert(name.to_owned());
            }
        }
        Value::WithVariables(out)
    }

    /// Refuses a line that has a variable of the environment where its value is needed.
    pub(super) fn refuses_variable(&mut self, line: &Line) -> bool {
        let has = line.words.iter().any(|word| super::read::has_variable(word));
        if has {
            let why = "its value stands in the environment, which weir import does not read";
            self.ledger.refused(line.piece, why, "write the value; or `${NAME}` in Weir's config");
        }
        has
    }
}

/// Reads a file as the config names it: beside the config, or where it says.
pub(super) fn read_beside(tree: &mut SourceTree<'_>, around: &str, path: &str) -> Result<String, String> {
    let beside = path.strip_prefix(USUAL).map(|rest| rest.trim_start_matches('/'));
    let mut tried = Vec::new();
    tried.extend(beside.map(|rest| join(around, rest)));
    tried.push(if path.starts_with('/') { path.to_owned() } else { join(around, path) });
    let mut why = String::new();
    for path in tried {
        match tree.read(if path.is_empty() { "." } else { &path }) {
            Ok(file) => return Ok(file.text.to_string()),
            Err(e) => why = e.message,
        }
    }
    Err(why)
}

/// A map of HAProxy: keys and values, in order.
pub(super) fn pairs(lines: &[String]) -> Vec<(&str, &str)> {
    lines
        .iter()
        .map(|line| match line.split_once([' ', '\t']) {
            Some((key, value)) => (key, value.trim()),
            None => (&**line, ""),
        })
        .collect()
}
