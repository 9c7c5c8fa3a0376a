//! Splits a series of JSON values: the elements of an array, or values separated by white space (usually lines).

use std::fmt;

/// Extracts values from a body that arrives in pieces. It only finds their ends; their content is parsed later.
#[derive(Debug)]
pub struct Values {
    /// The received part of an incomplete value.
    kept: Vec<u8>,
    limit: usize,
    form: Form,
    within: Within,
    /// Open objects and arrays in the current value.
    depth: usize,
}

/// The form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Array,
    Ended,
    Lines,
    Unknown,
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Between values; `true`: in an array, where a comma must precede the next value.
    Between(bool),
    Escape,
    Nothing,
    Plain,
    Text,
}

/// Why a body is not a series of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesError {
    /// It ends within a value.
    Cut,
    /// A value is longer than the limit.
    TooLong,
    /// A byte that is not allowed at its position.
    Unexpected,
}

impl fmt::Display for ValuesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the body ends within a value",
            Self::TooLong => "a value is longer than the limit",
            Self::Unexpected => "this is neither an array of values nor values one after another",
        })
    }
}

impl Values {
    /// Accepts values of at most `limit` bytes each.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit, form: Form::Unknown, within: Within::Between(false), depth: 0 }
    }

    /// Processes a piece, and passes each complete value to `take`.
    ///
    /// # Errors
    /// What is wrong with the body, or the error of `take`.
    pub fn feed<E: From<ValuesError>>(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = 0; // start of the current value in this piece
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if let Within::Between(comma_due) = self.within {
                at += 1;
                if self.between(byte, comma_due)? {
                    from = at - 1;
                }
                if self.within != Within::Nothing {
                    continue;
                }
                // The value starts with this byte.
                at -= 1;
                self.within = Within::Plain;
                continue;
            }
            let (ends, taken) = self.inside(byte);
            at += usize::from(taken);
            if ends {
                let part = piece.get(from..at).unwrap_or_default();
                self.value(part, &mut take)?;
                self.within = Within::Between(self.form == Form::Array);
                from = at;
            }
        }
        if !matches!(self.within, Within::Between(_)) {
            self.keep(piece.get(from..).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Handles a byte between values. Returns whether a value starts with it.
    fn between(&mut self, byte: u8, comma_due: bool) -> Result<bool, ValuesError> {
        match (byte, self.form) {
            (b' ' | b'\t' | b'\r' | b'\n', _) => return Ok(false),
            (b'[', Form::Unknown) => {
                self.form = Form::Array;
                return Ok(false);
            }
            (b',', Form::Array) if comma_due => {
                self.within = Within::Between(false);
                return Ok(false);
            }
            (b']', Form::Array) => {
                self.form = Form::Ended;
                return Ok(false);
            }
            (_, Form::Ended) | (b',' | b']' | b'}' | b':', _) => return Err(ValuesError::Unexpected),
            _ if comma_due => return Err(ValuesError::Unexpected),
            _ => {}
        }
        if self.form == Form::Unknown {
            self.form = Form::Lines;
        }
        self.within = Within::Nothing;
        Ok(true)
    }

    /// Handles a byte of a value. Returns whether the value ends, and whether the byte belongs to it.
    fn inside(&mut self, byte: u8) -> (bool, bool) {
        match (self.within, byte) {
            (Within::Text, b'\\') => self.within = Within::Escape,
            (Within::Text, b'"') => {
                self.within = Within::Plain;
                return (self.depth == 0, true);
            }
            (Within::Escape, _) => self.within = Within::Text,
            (Within::Text, _) => {}
            (_, b'"') => self.within = Within::Text,
            (_, b'{' | b'[') => self.depth += 1,
            (_, b'}' | b']') if self.depth > 0 => {
                self.depth -= 1;
                return (self.depth == 0, true);
            }
            (_, b']' | b',' | b' ' | b'\t' | b'\r' | b'\n') if self.depth == 0 => return (true, false),
            _ => {}
        }
        (false, true)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), ValuesError> {
        if self.kept.len() + part.len() > self.limit {
            return Err(ValuesError::TooLong);
        }
        self.kept.extend_from_slice(part);
        Ok(())
    }

    fn value<E: From<ValuesError>>(
        &mut self,
        part: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.kept.is_empty() {
            return if part.len() > self.limit { Err(ValuesError::TooLong.into()) } else { take(part) };
        }
        self.keep(part)?;
        let whole = std::mem::take(&mut self.kept);
        take(&whole)
    }

    /// Ends the body. A number or a word may be the last value of lines.
    ///
    /// # Errors
    /// When the body ends within a value or an array.
    pub fn finish<E: From<ValuesError>>(
        &mut self,
        take: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match (self.form, self.within) {
            (Form::Lines | Form::Unknown | Form::Ended, Within::Between(_)) => Ok(()),
            (Form::Lines, Within::Plain) if self.depth == 0 => {
                let whole = std::mem::take(&mut self.kept);
                self.within = Within::Between(false);
                take(&whole)
            }
            _ => Err(ValuesError::Cut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, size: usize, limit: usize) -> Result<Vec<String>, ValuesError> {
        let mut values = Values::new(limit);
        let mut all = Vec::new();
        let mut take = |value: &[u8]| {
            all.push(String::from_utf8(value.to_vec()).unwrap());
            Ok::<(), ValuesError>(())
        };
        for piece in body.as_bytes().chunks(size.max(1)) {
            values.feed(piece, &mut take)?;
        }
        values.finish(&mut take)?;
        Ok(all)
    }

    #[test]
    fn values_in_any_pieces() {
        for (body, want) in [
            ("", &[][..]),
            (" \n", &[]),
            ("[]", &[]),
            ("{}", &["{}"]),
            ("[{\"a\":1},{\"b\":[2,{}]}]", &["{\"a\":1}", "{\"b\":[2,{}]}"]),
            ("{\"a\":1}\n{\"a\":\"}\\\"]\"}\n", &["{\"a\":1}", "{\"a\":\"}\\\"]\"}"]),
            ("{}{}", &["{}", "{}"]),
            (" [ 1 , \"a,]\" ,[3] ] ", &["1", "\"a,]\"", "[3]"]),
            ("1 2\n\"x\" null", &["1", "2", "\"x\"", "null"]),
        ] {
            for size in 1..=body.len().max(1) {
                assert_eq!(read(body, size, 100).unwrap(), want, "{body:?} by {size}");
            }
        }
    }

    #[test]
    fn what_is_no_row_of_values() {
        for (body, wrong) in [
            ("[", ValuesError::Cut),
            ("{", ValuesError::Cut),
            ("[{}", ValuesError::Cut),
            ("[{},", ValuesError::Cut),
            ("\"a", ValuesError::Cut),
            ("[{}{}]", ValuesError::Unexpected),
            ("[,{}]", ValuesError::Unexpected),
            ("[{}] {}", ValuesError::Unexpected),
            ("{},{}", ValuesError::Unexpected),
            ("}", ValuesError::Unexpected),
            ("{\"a\":\"12345678901234567890\"}", ValuesError::TooLong),
        ] {
            for size in 1..=body.len() {
                assert_eq!(read(body, size, 20), Err(wrong), "{body:?} by {size}");
            }
        }
    }
}
