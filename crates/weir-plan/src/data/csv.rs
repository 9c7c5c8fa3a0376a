//! CSV by RFC 4180, strictly: fields with line breaks, `""` for a quote. Input that readers interpret differently is
//! refused. Empty lines are skipped.

use super::{AtEnd, DataSet, Pick};

/// Reads a file whose first line has the names of the columns.
pub(super) fn read(name: &str, text: &str, pick: Pick, at_end: AtEnd) -> Result<DataSet, String> {
    let mut set: Option<DataSet> = None;
    let mut reader = Reader { rest: text, line: 1 };
    let (mut cells, mut ends) = (Vec::new(), Vec::new());
    while !reader.rest.is_empty() {
        let line = reader.line;
        let at = |why: String| format!("line {line}: {why}");
        cells.clear();
        ends.clear();
        reader.row(&mut cells, &mut ends)?;
        if cells.is_empty() && ends.len() == 1 && set.as_ref().is_none_or(|set| set.columns.len() > 1) {
            continue; // an empty line
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let fields = starts.zip(&ends).map(|(start, end)| cells.get(start..*end).unwrap_or_default());
        match &mut set {
            None => {
                let names = fields.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
                set = Some(DataSet::new(name, names, pick, at_end).map_err(at)?);
            }
            Some(set) => {
                let fields: Vec<&[u8]> = fields.collect();
                set.push(fields.into_iter()).map_err(at)?;
            }
        }
    }
    set.ok_or_else(|| "there are no rows".to_owned())
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl Reader<'_> {
    /// Reads one row: the bytes of its cells, and where each ends.
    fn row(&mut self, cells: &mut Vec<u8>, ends: &mut Vec<usize>) -> Result<(), String> {
        loop {
            match self.rest.strip_prefix('"') {
                Some(inside) => {
                    self.rest = inside;
                    self.quoted(cells)?;
                }
                None => {
                    let end = self.rest.find([',', '\n', '"']).unwrap_or(self.rest.len());
                    let (field, after) = self.rest.split_at(end);
                    if after.starts_with('"') {
                        let why = "a quote within a field that does not begin with one";
                        return Err(format!("line {}: {why}: write \"a \"\"b\"\"\"", self.line));
                    }
                    let field = if after.starts_with(',') {
                        field
                    } else {
                        field.strip_suffix('\r').unwrap_or(field)
                    };
                    cells.extend_from_slice(field.as_bytes());
                    self.rest = after;
                }
            }
            ends.push(cells.len());
            if let Some(after) = self.rest.strip_prefix(',') {
                self.rest = after;
                continue;
            }
            self.line += 1;
            self.rest = self.rest.strip_prefix('\n').unwrap_or_default();
            return Ok(());
        }
    }

    /// Reads a field behind its opening quote, and the line's CR if the field is its last.
    fn quoted(&mut self, cells: &mut Vec<u8>) -> Result<(), String> {
        let begun = self.line;
        loop {
            let Some((piece, after)) = self.rest.split_once('"') else {
                return Err(format!("line {begun}: a quote is not closed"));
            };
            self.line += piece.bytes().filter(|b| *b == b'\n').count();
            cells.extend_from_slice(piece.as_bytes());
            if let Some(after) = after.strip_prefix('"') {
                cells.push(b'"');
                self.rest = after;
                continue;
            }
            self.rest = after
                .strip_prefix('\r')
                .filter(|end| end.is_empty() || end.starts_with('\n'))
                .unwrap_or(after);
            if !(self.rest.is_empty() || self.rest.starts_with([',', '\n'])) {
                let why = "a quoted field ends before the comma: write \"\" for a quote within it";
                return Err(format!("line {}: {why}", self.line));
            }
            return Ok(());
        }
    }
}
