//! Rows of CSV files that a config names (RFC 4180, without line breaks in fields).

use std::borrow::Cow;
use std::fmt;

/// A row: the number of its line, and its fields or what is wrong with it.
pub type Row<'t> = (usize, Result<Vec<Cow<'t, str>>, Malformed<'t>>);

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed<'t> {
    /// A double quote opens a field and none closes it.
    Unclosed,
    /// This text stands between a closing quote and the next comma.
    BehindQuote(&'t str),
}

/// The rows of a file. Empty lines and lines that begin with `#` are skipped, and so is the space around fields without
/// quotes.
pub fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let rows = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(number, line)| (number, fields(line)))
}

/// The fields of a line.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, Malformed<'_>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let Some(quoted) = rest.strip_prefix('"') else {
            let (field, after) =
                rest.split_once(',').map_or((rest, None), |(field, after)| (field, Some(after)));
            fields.push(Cow::Borrowed(field.trim_end()));
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let (field, after) = unquoted(quoted)?;
        fields.push(field);
        match after.trim_start() {
            "" => return Ok(fields),
            after => rest = after.strip_prefix(',').ok_or(Malformed::BehindQuote(after))?,
        }
    }
}

/// A field behind its opening quote, and what follows its closing one.
fn unquoted(text: &str) -> Result<(Cow<'_, str>, &str), Malformed<'_>> {
    let mut field = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let (piece, after) = rest.split_once('"').ok_or(Malformed::Unclosed)?;
        field += piece;
        match after.strip_prefix('"') {
            Some(after) => {
                field += "\"";
                rest = after;
            }
            None => return Ok((field, after)),
        }
    }
}

impl fmt::Display for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclosed => "a double quote is not closed",
            Self::BehindQuote(_) => "a quoted field ends before the comma; write \"\" for a quote within it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let text =
            "\u{feff}# comment\n\na,b\r\n  c , \"d, \"\"e\"\"\" , \n\"#f\",\ng\n\"h\nk\"l,m\n\"n\"o,p\n";
        let read: Vec<_> = rows(text)
            .map(|(line, fields)| (line, fields.map_err(|malformed| malformed.to_string())))
            .collect();
        let fine = |line: usize, fields: &[&str]| {
            (
                line,
                Ok::<Vec<Cow<'_, str>>, String>(
                    fields.iter().map(|field| Cow::Owned((*field).to_owned())).collect(),
                ),
            )
        };
        assert_eq!(
            read,
            [
                fine(3, &["a", "b"]),
                fine(4, &["c", "d, \"e\"", ""]),
                fine(5, &["#f", ""]),
                fine(6, &["g"]),
                (7, Err("a double quote is not closed".to_owned())),
                fine(8, &["k\"l", "m"]),
                (9, Err("a quoted field ends before the comma; write \"\" for a quote within it".to_owned())),
            ]
        );
    }
}
