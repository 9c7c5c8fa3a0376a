//! Reads TOML strictly, and enters each key that has a value in the ledger, as [`super::tree`] does with YAML.

use super::tree::{self, Node, Raw, RawEntry, RawValue};
use crate::ledger::Ledger;
use crate::source::{Place, SourceFile, Unreadable};
use toml::de::{DeTable, DeValue};

/// Deepest nesting. The parser has a limit of its own for brackets, but none for dotted keys.
const MAX_DEPTH: usize = 64;

/// Reads a file.
///
/// # Errors
/// If it is no TOML, or nested too deep.
pub fn read(file: &SourceFile, ledger: &mut Ledger) -> Result<Node, Unreadable> {
    let starts: Vec<usize> =
        std::iter::once(0).chain(file.text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut reader = Reader { file, starts, keys: 0 };
    let table = DeTable::parse(&file.text).map_err(|e| {
        let line = e.span().map_or(1, |span| reader.line(span.start));
        let message = e.message().lines().next().unwrap_or("?").to_owned();
        Unreadable::at(&Place::new(&file.name, line), format!("not TOML: {message}"))
    })?;
    let root = Raw { line: 1, value: reader.table(table.get_ref(), 0)? };
    let mut pieces = vec![None; reader.keys as usize];
    Ok(tree::enter(root, &file.name, ledger, &mut pieces))
}

struct Reader<'f> {
    file: &'f SourceFile,
    /// Where each line begins.
    starts: Vec<usize>,
    keys: u32,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= at)).unwrap_or(u32::MAX)
    }

    fn table(&mut self, table: &DeTable<'_>, depth: usize) -> Result<RawValue, Unreadable> {
        let mut entries: Vec<_> = table.iter().collect();
        // The map is sorted by key; the report keeps the order of the file.
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut out = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let line = self.line(key.span().start);
            if depth >= MAX_DEPTH {
                let place = Place::new(&self.file.name, line);
                return Err(Unreadable::at(&place, format!("more than {MAX_DEPTH} levels of nesting")));
            }
            let number = self.keys;
            self.keys += 1;
            let raw =
                Raw { line: self.line(value.span().start), value: self.value(value.get_ref(), depth + 1)? };
            out.push(RawEntry { key: (&**key.get_ref()).into(), number, line, raw });
        }
        Ok(RawValue::Map(out))
    }

    fn value(&mut self, value: &DeValue<'_>, depth: usize) -> Result<RawValue, Unreadable> {
        Ok(match value {
            DeValue::Array(items) => {
                let mut out = Vec::with_capacity(items.len());
                for item in items.iter() {
                    let line = self.line(item.span().start);
                    out.push(Raw { line, value: self.value(item.get_ref(), depth + 1)? });
                }
                RawValue::List(out)
            }
            DeValue::Boolean(flag) => RawValue::Bool(*flag),
            DeValue::Datetime(time) => RawValue::Text(time.to_string().into()),
            DeValue::Float(number) => RawValue::Number(number.as_str().into()),
            DeValue::Integer(number) if number.radix() == 10 => RawValue::Number(number.as_str().into()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => RawValue::Number(number.to_string().into()),
                Err(_) => RawValue::Text(number.as_str().into()),
            },
            DeValue::String(text) => RawValue::Text((&**text).into()),
            DeValue::Table(table) => self.table(table, depth)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Result<Node, Unreadable>, Ledger) {
        let mut ledger = Ledger::default();
        let file = SourceFile { name: "a.toml".into(), text: text.into() };
        (read(&file, &mut ledger), ledger)
    }

    #[test]
    fn keys_are_entered_with_their_lines_in_order() {
        let text =
            "z = 1\n[http.routers.a]\nrule = \"Host(`x`)\"\n[[http.servers]]\nurl = 'u'\nport = 0x10\n";
        let (node, ledger) = read_text(text);
        let lines: Vec<_> = ledger.lines().iter().map(|line| (line.place.line, &*line.text)).collect();
        let expected = [
            (1, "z: 1"),
            (2, "http:"),
            (2, "routers:"),
            (2, "a:"),
            (3, "rule: Host(`x`)"),
            (4, "servers:"),
            (5, "url: u"),
            (6, "port: 16"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(node.unwrap().get("z").and_then(Node::as_u64), Some(1));
    }

    #[test]
    fn what_is_no_toml_is_unreadable() {
        let deep = format!("a = {}", "[".repeat(100_000));
        let dotted = format!("{}a = 1", "a.".repeat(1000));
        for text in ["a = 1\na = 2\n", "a =", &deep, &dotted, "[a]\n[a]\n"] {
            assert!(read_text(text).0.is_err(), "{}", &text[..text.len().min(20)]);
        }
    }
}
