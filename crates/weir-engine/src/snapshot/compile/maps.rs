//! `maps:` compiles them, and puts the mistakes in their expressions, entries and files where they stand.

use super::Compiler;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use weir_config::expression::refusal;
use weir_config::schema::{ValueMap, Written};
use weir_config::{Diagnostic, Node, csv};
use weir_route::variables::{Bounds, Vocabulary};
use weir_route::{EntryError, Keys, MAPS, MapsBuilder, is_network};

/// Largest file of a map, in bytes: a million entries of usual length.
const FILE_BYTES: u64 = 32 << 20;

/// Most mistakes that are reported of one file.
const ROWS_SHOWN: usize = 5;

/// A wrong row: its line, what is wrong, and what to do.
type WrongRow = (usize, Cow<'static, str>, Option<Cow<'static, str>>);

impl Compiler<'_> {
    /// What expressions may name: what requests have, and the maps.
    pub(super) fn vocabulary(&mut self) -> Vocabulary {
        let config = self.config;
        let bounds = Bounds { head_bytes: config.limits.header_bytes.get(), fields: config.limits.headers };
        if config.maps.len() > MAPS {
            let message = format!("there are {} maps, and at most {MAPS} are allowed", config.maps.len());
            self.error("maps", "out-of-range", message, None);
        }
        let mut maps = Vocabulary::maps(bounds, config.maps.names());
        let written = config.maps.written(self.tree.get("maps"));
        for (index, Written { name, thing: map, node }) in written.enumerate().take(MAPS) {
            let path = format!("maps.{name}");
            if let Some(keys) = self.key_of(&mut maps, index, (map, node), &path) {
                self.entries_of(&mut maps, (index, keys), (map, node), &path);
            }
        }
        let (vocabulary, mistakes) = Vocabulary::new(bounds, maps);
        for wrong in mistakes {
            let Some(name) = config.maps.names().nth(wrong.map) else { continue };
            let (message, hint) = (wrong.mistake.message.into(), wrong.mistake.hint.map(Cow::from));
            self.expression_mistake(&format!("maps.{name}.of"), wrong.mistake.range.start, message, hint);
        }
        vocabulary
    }

    /// Compiles `of`.
    fn key_of(
        &mut self,
        maps: &mut MapsBuilder,
        index: usize,
        (map, node): (&ValueMap, Option<&Node>),
        path: &str,
    ) -> Option<Keys> {
        let path = format!("{path}.of");
        let node = node?.get("of")?;
        if let Some(mut refused) = refusal(node, "of", self.found, |text| maps.is_sound(text)) {
            refused.path = path;
            self.found.push(refused);
            return None;
        }
        match maps.key(index, &map.of.0) {
            Ok(keys) => Some(keys),
            Err(mistakes) => {
                for mistake in mistakes {
                    let (message, hint) = (mistake.message.into(), mistake.hint.map(Cow::from));
                    self.expression_mistake(&path, mistake.range.start, message, hint);
                }
                None
            }
        }
    }

    /// Compiles the entries, of the config first and then of the file.
    fn entries_of(
        &mut self,
        maps: &mut MapsBuilder,
        (index, keys): (usize, Keys),
        (map, node): (&ValueMap, Option<&Node>),
        path: &str,
    ) {
        let file_path = format!("{path}.file");
        let text = match &map.file {
            Some(file) => {
                self.files.push(file.0.clone());
                if self.misses_file(path) {
                    return;
                }
                match read(&file.0) {
                    Ok(text) => text,
                    Err(message) => return self.error(&file_path, "file-unreadable", message, None),
                }
            }
            None => String::new(),
        };
        let mut wrong_rows: Vec<WrongRow> = Vec::new();
        let rows: Vec<(usize, [Cow<'_, str>; 2])> = csv::rows(&text)
            .filter_map(|(line, fields)| match fields.map(<[_; 2]>::try_from) {
                Ok(Ok(pair)) => Some((line, pair)),
                Ok(Err(fields)) => {
                    let message = match fields.len() {
                        1 => "the row has a key and no value".to_owned(),
                        many => format!("the row has {many} fields"),
                    };
                    let hint = "write key,value; a field with a comma stands in double quotes";
                    wrong_rows.push((line, message.into(), Some(hint.into())));
                    None
                }
                Err(malformed) => {
                    wrong_rows.push((line, malformed.to_string().into(), None));
                    None
                }
            })
            .collect();
        let values = node.and_then(|node| node.get("values"));
        let of_config = map.values.0.iter().map(|(key, value)| (&**key, &**value));
        let of_file = rows.iter().map(|(_, [key, value])| (&**key, &**value));
        let entries: Vec<(&str, &str)> = of_config.chain(of_file).collect();
        // A value that came from outside may be a secret.
        let conceals =
            [values, node.and_then(|node| node.get("default"))].into_iter().flatten().any(|node| {
                let mut outside = Vec::new();
                node.add_concealed(&mut outside);
                !outside.is_empty()
            });
        let line_of = |entry: usize| Some(rows.get(entry.checked_sub(map.values.0.len())?)?.0);
        let built = maps.entries(index, keys, &entries, map.default.as_deref(), conceals);
        for error in built.err().unwrap_or_default() {
            let EntryError { entry, earlier, message, hint } = error;
            match entry.map(|entry| (entry, line_of(entry))) {
                Some((_, Some(line))) => {
                    let message = match earlier.map(line_of) {
                        Some(Some(earlier)) => format!("{message}, first in line {earlier}").into(),
                        Some(None) => format!("{message}, first in `values`").into(),
                        None => message,
                    };
                    wrong_rows.push((line, message, hint));
                }
                Some((entry, None)) => {
                    let mut told =
                        Diagnostic::error("bad-key", message).on(self.tree, &format!("{path}.values"));
                    if let Some((key, value)) = values.and_then(|values| values.entries().get(entry)) {
                        told = told.at(key.at.clone()).concealing(value);
                        told.path = format!("{path}.values.{}", key.text);
                    }
                    self.found.push(match hint {
                        Some(hint) => told.hint(hint),
                        None => told,
                    });
                }
                None => self.error(path, "bad-key", message, hint),
            }
        }
        self.warn_of_networks(keys, map, path);
        self.wrong_rows(&file_path, wrong_rows);
    }

    /// Reports the wrong rows of a file.
    fn wrong_rows(&mut self, path: &str, mut wrong: Vec<WrongRow>) {
        wrong.sort_by_key(|(line, ..)| *line);
        let more = wrong.len().saturating_sub(ROWS_SHOWN);
        for (line, message, hint) in wrong.into_iter().take(ROWS_SHOWN) {
            self.error(path, "bad-row", format!("line {line}: {message}"), hint);
        }
        if more > 0 {
            self.error(path, "bad-row", format!("{more} more rows have mistakes"), None);
        }
    }

    /// Warns of networks where `of` is a text, which is compared byte by byte.
    fn warn_of_networks(&mut self, keys: Keys, map: &ValueMap, path: &str) {
        let is_network = |(key, _): &(String, String)| key.contains('/') && is_network(key);
        if keys == Keys::Texts && map.values.0.iter().any(is_network) {
            let message = "`of` is a text, so networks among the keys are compared as texts";
            let hint = "write an address, such as of: client.ip or of: 'ip(request.headers[\"x-real-ip\"])'";
            let told = Diagnostic::warning("network-as-text", message).on(self.tree, &format!("{path}.of"));
            self.found.push(told.hint(hint));
        }
    }
}

/// The text of a file that a map names.
fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(format!("{shown} is larger than {} MiB", FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: this is not UTF-8")
    })
}
