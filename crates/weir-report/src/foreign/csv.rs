//! Comma-separated values (RFC 4180), also with another delimiter.

/// Records of a text, one by one.
pub(super) struct Records<'a> {
    rest: &'a str,
    delimiter: char,
    /// The line on which the next record begins; the first is 1.
    line: u64,
}

impl<'a> Records<'a> {
    pub(super) const fn new(text: &'a str, delimiter: char) -> Self {
        Self { rest: text, delimiter, line: 1 }
    }
}

impl Iterator for Records<'_> {
    /// The line of a record, and its cells.
    type Item = (u64, Vec<String>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = self.rest.char_indices().peekable();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' if quoted && matches!(chars.peek(), Some((_, '"'))) => {
                    cell.push('"');
                    chars.next();
                }
                '"' => quoted = !quoted,
                '\n' if !quoted => {
                    end = at + 1;
                    self.line += 1;
                    break;
                }
                '\r' if !quoted => {}
                c if c == self.delimiter && !quoted => cells.push(std::mem::take(&mut cell)),
                c => {
                    self.line += u64::from(c == '\n');
                    cell.push(c);
                }
            }
        }
        cells.push(cell);
        self.rest = self.rest.get(end..).unwrap_or_default();
        Some((line, cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_delimiters_lines_and_quotes() {
        let text = "a;b\r\n\"x;\"\"y\nz\";2\n;\n";
        let all: Vec<(u64, Vec<String>)> = Records::new(text, ';').collect();
        let cells = |text: &[&str]| text.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(all, [(1, cells(&["a", "b"])), (2, cells(&["x;\"y\nz", "2"])), (4, cells(&["", ""]))]);
    }
}
