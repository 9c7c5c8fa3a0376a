//! Data sets: rows that users take, from CSV, JSON lines or the plan itself.

// fuzz/ builds this file alone, from elsewhere.
#[path = "data/csv.rs"]
mod csv;

use serde_json::{Map, Value};
use std::fmt;

/// Most rows of a data set.
const ROWS: usize = 50_000_000;

/// Most columns of a data set.
const COLUMNS: usize = 1_000;

/// How rows are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Each row once in the whole run.
    Once,
    /// User k has row k.
    PerUser,
    /// Any row, equally likely.
    Random,
    /// One after the other, over all users.
    Sequential,
}

/// What happens after the last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The run fails.
    Fail,
    /// The scenarios that take rows of this set end.
    Stop,
    /// The first row again.
    Wrap,
}

/// Rows with named columns. All cells lie in one buffer: a row costs its text and 4 bytes a cell.
pub struct DataSet {
    /// Its name.
    pub name: String,
    /// How rows are handed out.
    pub pick: Pick,
    /// What follows the last row.
    pub at_end: AtEnd,
    pub(crate) columns: Vec<String>,
    text: Vec<u8>,
    /// The end of each cell in `text`, row by row.
    ends: Vec<u32>,
}

impl DataSet {
    /// The names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The number of rows; never 0.
    pub fn rows(&self) -> u32 {
        u32::try_from(self.ends.len() / self.columns.len().max(1)).unwrap_or(u32::MAX)
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// A cell. Both are counted from 0.
    pub fn cell(&self, row: u32, column: usize) -> Option<&[u8]> {
        if column >= self.columns.len() {
            return None;
        }
        let at = (row as usize).checked_mul(self.columns.len())?.checked_add(column)?;
        let end = *self.ends.get(at)? as usize;
        let start =
            at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).map(|end| *end as usize))?;
        self.text.get(start..end)
    }

    /// An empty set with these columns. The error names one that appears twice.
    pub(crate) fn new(name: &str, columns: Vec<String>, pick: Pick, at_end: AtEnd) -> Result<Self, String> {
        for (i, column) in columns.iter().enumerate() {
            if column.is_empty() {
                return Err(format!("column {} has no name", i + 1));
            }
            if column.trim() != column {
                return Err(format!("the name of column {} begins or ends with a space", i + 1));
            }
            if columns.iter().take(i).any(|before| before == column) {
                return Err(format!("two columns are named `{column}`"));
            }
        }
        if columns.is_empty() || columns.len() > COLUMNS {
            return Err(format!("there are {} columns; expected 1 to {COLUMNS}", columns.len()));
        }
        Ok(Self { name: name.to_owned(), pick, at_end, columns, text: Vec::new(), ends: Vec::new() })
    }

    /// Adds a row, which must have as many cells as there are columns.
    pub(crate) fn push<'a>(&mut self, cells: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<(), String> {
        let (has, wants) = (cells.len(), self.columns.len());
        if has != wants {
            return Err(format!("has {has} fields where the first line has {wants}"));
        }
        if self.ends.len() / wants >= ROWS {
            return Err(format!("a data set has at most {ROWS} rows"));
        }
        for cell in cells {
            self.text.extend_from_slice(cell);
            self.ends
                .push(u32::try_from(self.text.len()).map_err(|_| "a data set has at most 4 GiB".to_owned())?);
        }
        Ok(())
    }

    /// Reads CSV with a line of names (RFC 4180), or JSON lines: an object on each line, the first with all names.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub(crate) fn parse(name: &str, content: &[u8], pick: Pick, at_end: AtEnd) -> Result<Self, String> {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content); // spreadsheets begin files with it
        let text = str::from_utf8(content).map_err(|wrong| {
            let before = content.get(..wrong.valid_up_to()).unwrap_or_default();
            format!("line {}: this is not UTF-8", memchr::memchr_iter(b'\n', before).count() + 1)
        })?;
        let set = if text.trim_start().starts_with('{') {
            Self::json_lines(name, text, pick, at_end)?
        } else {
            csv::read(name, text, pick, at_end)?
        };
        if set.ends.is_empty() { Err("there are no rows".to_owned()) } else { Ok(set) }
    }

    fn json_lines(name: &str, text: &str, pick: Pick, at_end: AtEnd) -> Result<Self, String> {
        let mut set: Option<Self> = None;
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = |why: String| format!("line {}: {why}", i + 1);
            let row: Map<String, Value> = serde_json::from_str(line).map_err(|e| at(e.to_string()))?;
            if set.is_none() {
                set = Some(Self::new(name, row.keys().cloned().collect(), pick, at_end).map_err(at)?);
            }
            let Some(set) = &mut set else { continue };
            set.push_object(&row).map_err(at)?;
        }
        set.ok_or_else(|| "there are no rows".to_owned())
    }

    /// Adds a row of JSON. Text is text; anything else is its JSON.
    pub(crate) fn push_object(&mut self, row: &Map<String, Value>) -> Result<(), String> {
        if let Some(extra) = row.keys().find(|key| !self.columns.contains(key)) {
            return Err(format!("has `{extra}`, which the first row has not"));
        }
        let cell = |column: &String| match row.get(column) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value) => Ok(value.to_string()),
            None => Err(format!("has no `{column}`, which the first row has")),
        };
        let cells: Vec<String> = self.columns.iter().map(cell).collect::<Result<_, _>>()?;
        self.push(cells.iter().map(String::as_bytes))
    }
}

impl fmt::Debug for DataSet {
    /// Without its rows, which may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataSet")
            .field("name", &self.name)
            .field("pick", &self.pick)
            .field("at_end", &self.at_end)
            .field("columns", &self.columns)
            .field("rows", &self.rows())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DataSet, String> {
        DataSet::parse("d", text.as_bytes(), Pick::Sequential, AtEnd::Wrap)
    }

    fn rows(set: &DataSet) -> Vec<Vec<String>> {
        let cell = |row, column| String::from_utf8(set.cell(row, column).unwrap().to_vec()).unwrap();
        (0..set.rows())
            .map(|row| (0..set.columns().len()).map(|column| cell(row, column)).collect())
            .collect()
    }

    #[test]
    fn rows_are_read() {
        for (text, columns, want) in [
            ("a,b\n1,2\n", vec!["a", "b"], vec![vec!["1", "2"]]),
            ("a,b\r\n1,2\r\n3,4", vec!["a", "b"], vec![vec!["1", "2"], vec!["3", "4"]]),
            ("\u{feff}a\n1\n", vec!["a"], vec![vec!["1"]]),
            ("a,b\n\"x, \"\"y\"\"\",\"l1\nl2\"\n", vec!["a", "b"], vec![vec!["x, \"y\"", "l1\nl2"]]),
            ("a,b\n,\n\n 1 ,2\n", vec!["a", "b"], vec![vec!["", ""], vec![" 1 ", "2"]]),
            (
                "{\"a\":1,\"b\":\"x\"}\n\n{\"b\":[1],\"a\":null}",
                vec!["a", "b"],
                vec![vec!["1", "x"], vec!["null", "[1]"]],
            ),
        ] {
            let set = parse(text).unwrap();
            assert_eq!(
                (set.columns(), rows(&set)),
                (
                    &columns.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()[..],
                    want.iter()
                        .map(|r| r.iter().map(|c| (*c).to_owned()).collect())
                        .collect::<Vec<Vec<String>>>()
                ),
                "{text:?}"
            );
            assert_eq!(set.cell(set.rows(), 0), None);
            assert_eq!(set.cell(0, set.columns().len()), None);
        }
    }

    #[test]
    fn what_is_no_data_is_refused() {
        for (text, want) in [
            ("", "there are no rows"),
            ("a,b\n", "there are no rows"),
            ("a,a\n1,2\n", "two columns are named `a`"),
            ("a,\n1,2\n", "column 2 has no name"),
            ("a,b\n1\n", "line 2: has 1 fields where the first line has 2"),
            ("a\n\"x\n", "line 2: a quote is not closed"),
            ("a\n1\nx\"y\n", "line 3: a quote within a field that does not begin with one"),
            ("a\n\"x\"y\n", "line 2: a quoted field ends before the comma"),
            ("{\" a\":1}", "line 1: the name of column 1 begins or ends with a space"),
            ("{\"a\":1}\n{\"b\":1}", "line 2: has `b`"),
            ("{\"a\":1,\"b\":2}\n{\"b\":1}", "line 2: has no `a`"),
            ("{\"a\":1}\nx", "line 2: expected value"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(want), "{text:?}: {found}");
        }
        let found = DataSet::parse("d", b"a\n1\n\xff\n", Pick::Once, AtEnd::Stop).unwrap_err();
        assert_eq!(found, "line 3: this is not UTF-8");
    }
}
