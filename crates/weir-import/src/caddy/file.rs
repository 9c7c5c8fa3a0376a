//! A Caddyfile as a whole: imports and snippets put in, then options, named routes and sites.

use super::syntax::{Parsed, Segment, Word, parse};
use crate::ledger::{Ledger, Piece, Verdict};
use crate::source::{MAX_DEPTH, SourceFile, SourceTree, Unreadable, folder, has_wildcard, join};
use std::collections::{BTreeMap, BTreeSet};

/// Most statements that snippets may grow a config to.
const MAX_SEGMENTS: usize = 400_000;

/// The parts of a Caddyfile.
#[derive(Debug, Default)]
pub(super) struct Caddyfile {
    /// What stands in the global options.
    pub(super) options: Vec<Segment>,
    pub(super) sites: Vec<Site>,
    /// `&(name)`.
    pub(super) named: BTreeMap<String, Segment>,
    /// Variables of the environment with their default values.
    pub(super) variables: BTreeMap<String, Option<String>>,
}

/// A block of a site.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) addresses: Vec<String>,
    pub(super) body: Vec<Segment>,
    pub(super) piece: Piece,
}

struct Reader<'a, 'b> {
    tree: &'a mut SourceTree<'b>,
    ledger: &'a mut Ledger,
    snippets: BTreeMap<String, Segment>,
    used: BTreeSet<String>,
    /// Files that are being read, outermost first.
    open: Vec<String>,
    made: usize,
    file: Caddyfile,
}

/// Reads the given files with what they import.
pub(super) fn read(
    tree: &mut SourceTree<'_>,
    files: &[SourceFile],
    ledger: &mut Ledger,
) -> Result<Caddyfile, Unreadable> {
    let mut reader = Reader {
        tree,
        ledger,
        snippets: BTreeMap::new(),
        used: BTreeSet::new(),
        open: Vec::new(),
        made: 0,
        file: Caddyfile::default(),
    };
    for file in files {
        let segments = reader.parsed(file)?;
        reader.open.push(file.name.to_string());
        reader.top(segments)?;
        reader.open.pop();
    }
    for (name, snippet) in &reader.snippets {
        if !reader.used.contains(name) {
            let mut leave =
                |segment: &Segment| reader.ledger.left_out(segment.piece, "nothing imports this snippet");
            each(snippet, &mut leave);
        }
    }
    Ok(reader.file)
}

/// Calls `visit` for a statement and all below it.
pub(super) fn each(segment: &Segment, visit: &mut impl FnMut(&Segment)) {
    visit(segment);
    segment.inner().iter().for_each(|inner| each(inner, visit));
}

impl Reader<'_, '_> {
    fn parsed(&mut self, file: &SourceFile) -> Result<Vec<Segment>, Unreadable> {
        let Parsed { segments, variables } = parse(file, self.ledger)?;
        for (name, default) in variables {
            let known = self.file.variables.entry(name).or_default();
            if known.is_none() {
                *known = default;
            }
        }
        Ok(segments)
    }

    /// What stands outside of all blocks.
    fn top(&mut self, segments: Vec<Segment>) -> Result<(), Unreadable> {
        let mut segments = segments.into_iter();
        let mut addresses: Vec<String> = Vec::new();
        let mut first: Option<Piece> = None;
        while let Some(segment) = segments.next() {
            let name = segment.name().to_owned();
            if addresses.is_empty() {
                if name == "import" && segment.block.is_none() {
                    let imported = self.import(&segment, 0)?;
                    self.top(imported)?;
                    continue;
                }
                if let Some(name) = within(&name, "(", segment.block.is_some()) {
                    self.ledger.same(segment.piece);
                    self.snippets.insert(name, segment);
                    continue;
                }
                if let Some(name) = within(&name, "&(", segment.block.is_some()) {
                    self.ledger.same(segment.piece);
                    let block = self.expand(segment.inner().to_vec(), 0)?;
                    self.file.named.insert(name, Segment { block: Some(block), ..segment });
                    continue;
                }
                if segment.words.is_empty() {
                    self.ledger.same(segment.piece);
                    let options = self.expand(segment.block.unwrap_or_default(), 0)?;
                    self.file.options.extend(options);
                    continue;
                }
            }
            let goes_on =
                segment.block.is_none() && segment.words.last().is_some_and(|word| word.text.ends_with(','));
            let parts = segment.words.iter().flat_map(|word| word.text.split(','));
            addresses.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
            self.ledger.same(segment.piece);
            let piece = *first.get_or_insert(segment.piece);
            if goes_on {
                continue;
            }
            let body = match segment.block {
                Some(block) => block,
                // The only site needs no braces.
                None => segments.by_ref().collect(),
            };
            let body = self.expand(body, 0)?;
            self.file.sites.push(Site { addresses: std::mem::take(&mut addresses), body, piece });
            first = None;
        }
        Ok(())
    }

    /// The statements with imports replaced by what they import.
    fn expand(&mut self, segments: Vec<Segment>, depth: usize) -> Result<Vec<Segment>, Unreadable> {
        let mut expanded = Vec::new();
        for mut segment in segments {
            self.made += 1;
            if self.made > MAX_SEGMENTS {
                return Err(Unreadable::at(
                    &segment.place,
                    format!("imports make more than {MAX_SEGMENTS} lines"),
                ));
            }
            if segment.name() == "import" && !segment.words[0].is_quoted {
                let imported = self.import(&segment, depth)?;
                if imported.is_empty() && self.ledger.verdict(segment.piece) == Some(Verdict::Refused) {
                    // What is missing may guard the site, so it stays as a line that nobody knows.
                    expanded.push(segment);
                    continue;
                }
                expanded.extend(self.expand(imported, depth + 1)?);
                continue;
            }
            if let Some(block) = segment.block.take() {
                segment.block = Some(self.expand(block, depth)?);
            }
            expanded.push(segment);
        }
        Ok(expanded)
    }

    /// What an `import` stands for.
    fn import(&mut self, segment: &Segment, depth: usize) -> Result<Vec<Segment>, Unreadable> {
        let place = &segment.place;
        if depth > MAX_DEPTH || self.open.len() > MAX_DEPTH {
            return Err(Unreadable::at(place, format!("imports are nested more than {MAX_DEPTH} deep")));
        }
        let args: Vec<Word> = segment.words.iter().skip(1).cloned().collect();
        let Some((what, args)) = args.split_first() else {
            return Err(Unreadable::at(place, "`import` takes a snippet or a path"));
        };
        if let Some(snippet) = self.snippets.get(&what.text) {
            self.used.insert(what.text.clone());
            self.ledger.same(segment.piece);
            return Ok(filled(snippet.inner(), args, segment.inner()));
        }
        let within = self.open.last().map_or("", |file| folder(file));
        let path = join(within, &what.text);
        let paths = self.tree.glob(&path);
        if paths.is_empty() {
            match self.tree.has_folder(&path) {
                true => self.ledger.by_itself(segment.piece, "no file fits it"),
                false => self.ledger.refused(
                    segment.piece,
                    "the folder is missing, so its imports are unknown",
                    "give weir import the folder too; if it is empty, make it",
                ),
            }
        }
        let mut imported = Vec::new();
        for found in paths {
            if self.open.contains(&found) {
                return Err(Unreadable::at(place, format!("{found} imports itself")));
            }
            let file = match self.tree.read(&found) {
                Ok(file) => file,
                Err(e) if has_wildcard(&path) => {
                    self.ledger.refused(segment.piece, format!("{e}"), "import the file by its name");
                    continue;
                }
                Err(e) => return Err(Unreadable::at(place, e.to_string())),
            };
            self.ledger.same(segment.piece);
            let segments = self.parsed(&file)?;
            self.open.push(found);
            let segments = self.expand(filled(&segments, args, segment.inner()), depth + 1);
            self.open.pop();
            imported.extend(segments?);
        }
        Ok(imported)
    }
}

/// The name between `open` and `)`, if it begins a block.
fn within(text: &str, open: &str, has_block: bool) -> Option<String> {
    let inner = text.strip_prefix(open)?.strip_suffix(')')?;
    has_block.then(|| inner.to_owned())
}

/// A snippet with the arguments and the block of its import.
fn filled(segments: &[Segment], args: &[Word], block: &[Segment]) -> Vec<Segment> {
    let mut filled_in = Vec::new();
    for segment in segments {
        if let [word] = &*segment.words
            && segment.block.is_none()
        {
            if word.text == "{block}" {
                filled_in.extend(block.iter().cloned());
                continue;
            }
            if let Some(name) = word.text.strip_prefix("{blocks.").and_then(|rest| rest.strip_suffix('}')) {
                let named = block.iter().filter(|inner| inner.name() == name);
                filled_in.extend(named.flat_map(|inner| inner.inner().to_vec()));
                continue;
            }
        }
        let mut words = Vec::new();
        for word in &segment.words {
            match variadic(&word.text, args.len()) {
                Some(range) => words.extend(args[range].iter().cloned()),
                None => words.push(Word { text: with_args(&word.text, args), ..word.clone() }),
            }
        }
        let inner = segment.block.as_ref().map(|inner| filled(inner, args, block));
        filled_in.push(Segment { words, block: inner, ..segment.clone() });
    }
    filled_in
}

/// `{args[1:]}`: the arguments that it stands for.
fn variadic(text: &str, count: usize) -> Option<std::ops::Range<usize>> {
    let (from, to) = text.strip_prefix("{args[")?.strip_suffix("]}")?.split_once(':')?;
    let from = if from.is_empty() { 0 } else { from.parse().ok()? };
    let to = if to.is_empty() { count } else { to.parse().ok()? };
    (from <= to && to <= count).then_some(from..to)
}

/// A word with `{args[0]}` and `{args.0}` replaced.
fn with_args(text: &str, args: &[Word]) -> String {
    if !text.contains("{args") {
        return text.to_owned();
    }
    let mut out = text.to_owned();
    for (at, arg) in args.iter().enumerate() {
        out =
            out.replace(&format!("{{args[{at}]}}"), &arg.text).replace(&format!("{{args.{at}}}"), &arg.text);
    }
    out
}
