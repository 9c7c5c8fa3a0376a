//! Docker Compose files: the labels of services, the command line of Traefik itself, and variables from `.env`.
//!
//! The rest of such a file says how containers run and is not entered in the ledger.

use super::labels::Labels;
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{self, Entry, Node, Value};
use crate::source::{Place, SourceFile, SourceTree, Unreadable, folder, join};
use std::collections::HashMap;

/// Most bytes of a value after its variables are filled in.
const MAX_VALUE: usize = 64 << 10;

/// What a compose file has for us.
#[derive(Default)]
pub(super) struct Compose {
    pub(super) containers: Vec<Container>,
    /// What the command line of Traefik says, as a static config.
    pub(super) fixed: Vec<Node>,
}

/// A service with labels for Traefik.
pub(super) struct Container {
    /// Its name, by which other containers reach it.
    pub(super) name: String,
    /// The port that it exposes, if the file says so.
    pub(super) port: Option<u16>,
    /// Its labels, without `traefik.`.
    pub(super) tree: Node,
    /// The statement that lists them.
    pub(super) piece: Piece,
    /// Whether `traefik.enable` is written.
    pub(super) is_enabled: Option<bool>,
}

/// Whether a tree is a compose file.
pub(super) fn is_one(root: &Node) -> bool {
    let looks =
        |node: &Node| ["image", "build", "labels", "deploy"].iter().any(|key| node.get(key).is_some());
    root.get("services")
        .and_then(Node::as_map)
        .is_some_and(|services| services.iter().any(|entry| looks(&entry.node)))
}

/// Reads a compose file.
pub(super) fn read(
    file: &SourceFile,
    tree: &mut SourceTree<'_>,
    ledger: &mut Ledger,
) -> Result<Compose, Unreadable> {
    let mut scratch = Ledger::default();
    let root = tree::read(file, &mut scratch)?;
    let variables = environment(file, tree);
    let mut reader = Reader { file, scratch: &scratch, variables, ledger };
    let mut compose = Compose::default();
    for entry in root.get("services").and_then(Node::as_map).unwrap_or_default() {
        reader.service(entry, &mut compose);
    }
    reader.ledger.note(format!(
        "{}: of a compose file the labels are read, the command line and environment of Traefik, `expose`, `ports` \
         and the `.env` beside it; the rest says how containers run",
        file.name
    ));
    Ok(compose)
}

/// A router of labels without a service has one anyway: the container.
fn with_service(mut tree: Node, name: &str, piece: Piece) -> Node {
    let Value::Map(sections) = &mut tree.value else { return tree };
    let http = sections.iter_mut().find(|entry| entry.key.eq_ignore_ascii_case("http"));
    if let Some(Value::Map(kinds)) = http.map(|entry| &mut entry.node.value) {
        let has = |key: &str| kinds.iter().any(|entry| entry.key.eq_ignore_ascii_case(key));
        if has("routers") && !has("services") {
            let node = |value| Node { line: 0, value };
            let service = Entry { key: name.into(), piece, node: node(Value::Map(Vec::new())) };
            let services = node(Value::Map(vec![service]));
            kinds.push(Entry { key: "services".into(), piece, node: services });
        }
    }
    tree
}

/// The values of `.env` beside the file.
fn environment(file: &SourceFile, tree: &mut SourceTree<'_>) -> HashMap<String, String> {
    let path = join(folder(&file.name), ".env");
    let Ok(env) = tree.read(&path) else { return HashMap::new() };
    let lines = env.text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.trim_start_matches("export ").split_once('='));
    pairs
        .map(|(name, value)| {
            let value = value.trim();
            let quoted =
                ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
            (name.trim().to_owned(), quoted.unwrap_or(value).to_owned())
        })
        .collect()
}

struct Reader<'a> {
    file: &'a SourceFile,
    scratch: &'a Ledger,
    variables: HashMap<String, String>,
    ledger: &'a mut Ledger,
}

impl Reader<'_> {
    fn line(&self, entry: &Entry) -> u32 {
        self.scratch.place(entry.piece).map_or(0, |place| place.line)
    }

    fn enter(&mut self, line: u32, text: &str) -> Piece {
        self.ledger.enter(Place::new(&self.file.name, line), text)
    }

    fn service(&mut self, entry: &Entry, compose: &mut Compose) {
        let name = entry.key.to_string();
        let node = &entry.node;
        let image = node.get("image").and_then(Node::as_text).unwrap_or_default();
        let image = image.rsplit('/').next().unwrap_or_default();
        let is_traefik = image.split([':', '@']).next() == Some("traefik");
        let deployed = node.get("deploy").and_then(|deploy| deploy.get("labels"));
        let lists = || [node.get("labels"), deployed].into_iter().flatten();
        let is_label = |key: &str| key.to_ascii_lowercase().starts_with("traefik.");
        if !is_traefik && !lists().any(|list| self.pairs(list).iter().any(|(key, ..)| is_label(key))) {
            return;
        }
        let piece = self.enter(self.line(entry), &format!("services.{name}:"));
        self.ledger.by_itself(piece, "a container, which others reach by this name");
        if is_traefik {
            compose.fixed.extend(self.command(node, piece));
        }
        let mut labels = Labels::new(piece);
        let mut is_enabled = None;
        for list in lists() {
            for (key, value, line) in self.pairs(list) {
                if !is_label(&key) {
                    continue;
                }
                let piece = self.enter(line, &format!("{key}={value}"));
                let value = self.filled_in(&value, piece);
                let key = self.filled_in(&key, piece);
                match key["traefik.".len().min(key.len())..].to_ascii_lowercase().as_str() {
                    "enable" => {
                        is_enabled = Some(value == "true");
                        self.ledger.same(piece);
                    }
                    "docker.network" | "docker.lbswarm" | "swarm.network" | "swarm.lbswarm" => {
                        self.ledger.left_out(
                            piece,
                            "Weir reaches the container by its name, in a network that both are in",
                        )
                    }
                    _ => labels.add(&key["traefik.".len()..], &value, line, piece, self.ledger),
                }
            }
        }
        if labels.is_empty() && is_enabled.is_none() {
            return;
        }
        let port = self.port(node);
        let tree = with_service(labels.tree(self.ledger), &name, piece);
        compose.containers.push(Container { name, port, tree, piece, is_enabled });
    }

    /// Labels, flags or variables, as a list of `KEY=VALUE` or a map, with their lines.
    fn pairs(&self, node: &Node) -> Vec<(String, String, u32)> {
        match &node.value {
            Value::List(items) => items
                .iter()
                .filter_map(|item| {
                    let text = item.as_text()?;
                    let (key, value) = text.split_once('=').unwrap_or((&text, ""));
                    Some((key.trim().to_owned(), value.to_owned(), item.line))
                })
                .collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| {
                    let value = entry.node.as_text().unwrap_or_default();
                    (entry.key.to_string(), value, self.line(entry))
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The command line and the environment of Traefik.
    fn command(&mut self, node: &Node, list: Piece) -> Option<Node> {
        let mut flags: Vec<(String, u32)> = Vec::new();
        for key in ["command", "entrypoint"] {
            match node.get(key).map(|command| (&command.value, command.line)) {
                Some((Value::Text(text), line)) => {
                    flags.extend(text.split_whitespace().map(|flag| (flag.to_owned(), line)));
                }
                Some((Value::List(items), _)) => {
                    flags.extend(items.iter().filter_map(|item| Some((item.as_text()?, item.line))));
                }
                _ => {}
            }
        }
        let mut labels = Labels::new(list);
        for (flag, line) in flags {
            let Some(flag) = flag.strip_prefix("--") else { continue };
            let piece = self.enter(line, &format!("--{flag}"));
            let flag = self.filled_in(flag, piece);
            let (key, value) = flag.split_once('=').unwrap_or((&flag, "true"));
            labels.add(key, value, line, piece, self.ledger);
        }
        for (name, value, line) in node.get("environment").map(|all| self.pairs(all)).unwrap_or_default() {
            let Some(key) = name.strip_prefix("TRAEFIK_") else { continue };
            let piece = self.enter(line, &format!("{name}={value}"));
            let value = self.filled_in(&value, piece);
            labels.add(&key.to_ascii_lowercase().replace('_', "."), &value, line, piece, self.ledger);
        }
        (!labels.is_empty()).then(|| labels.tree(self.ledger))
    }

    /// The first port of `expose`, or the first that `ports` leads to.
    fn port(&self, node: &Node) -> Option<u16> {
        let first = |key: &str| node.get(key).and_then(Node::as_list).and_then(|list| list.first());
        let port = |text: &str| text.split('/').next()?.rsplit(':').next()?.parse().ok();
        let target = first("ports").and_then(|port| port.get("target")).and_then(Node::as_text);
        [first("expose").and_then(Node::as_text), target, first("ports").and_then(Node::as_text)]
            .into_iter()
            .flatten()
            .find_map(|text| port(&text))
    }

    /// A value as Compose fills it in: `${X}`, `$X`, `${X:-default}`, and `$$` for a dollar sign.
    fn filled_in(&mut self, text: &str, piece: Piece) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                out.push('$');
                rest = behind;
                continue;
            }
            let (inner, behind, written) =
                match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                    Some((inner, behind)) => (inner, behind, format!("${{{inner}}}")),
                    None => {
                        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                        (&rest[..end], &rest[end..], format!("${}", &rest[..end]))
                    }
                };
            rest = behind;
            let end = inner.find([':', '-', '?', '+']).unwrap_or(inner.len());
            let (name, operator) = inner.split_at(end);
            let default = operator.strip_prefix(":-").or_else(|| operator.strip_prefix('-'));
            match (self.variables.get(name), default) {
                (Some(value), _) if !(value.is_empty() && operator.starts_with(":-")) => out.push_str(value),
                (_, Some(default)) => {
                    out.push_str(default);
                    self.ledger.changed(piece, format!("`{written}` is taken as its default"));
                }
                _ if name.is_empty() => out.push_str(&written),
                _ => {
                    out.push_str(&written);
                    let why = format!("`{written}` has no value that weir import knows");
                    self.ledger.refused(piece, why, "put it into `.env` beside the file, and import again");
                }
            }
            if out.len() > MAX_VALUE {
                self.ledger.refused(piece, "a value of more than 64 KiB", "correct the source");
                return String::new();
            }
        }
        out.push_str(rest);
        out
    }
}
