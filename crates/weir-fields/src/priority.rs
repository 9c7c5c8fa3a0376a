//! Priorities of requests (RFC 9218): the field `priority`, and the same text in PRIORITY_UPDATE frames.

/// How a client wants the response to a request sent, compared with its other responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least. Default 3.
    pub urgency: u8,
    /// Whether a part of the response is useful, so that responses of the same urgency may take turns. Default false.
    pub incremental: bool,
}

impl Default for Priority {
    /// RFC 9218 §4.
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Changes what a field value states; unknown parameters and those out of range change nothing (RFC 9218 §4).
    ///
    /// The value is a dictionary of structured fields (RFC 9651 §3.2). If it is none, nothing changes either: RFC 9218
    /// §4 has no error for it.
    pub fn read(mut self, value: &[u8]) -> Self {
        let before = self;
        let mut rest = trim(value);
        while !rest.is_empty() {
            let Some((key, item, others)) = member(rest) else { return before };
            match (key, item) {
                (b"u", Item::Number(urgency @ 0..=7)) => self.urgency = urgency,
                (b"i", Item::Truth(incremental)) => self.incremental = incremental,
                _ => {}
            }
            rest = trim(others);
        }
        self
    }
}

/// The value of a member, as far as priorities need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// A whole number of one digit.
    Number(u8),
    Other,
    Truth(bool),
}

/// Takes a member of a dictionary and the comma behind it; `None` if there is no valid one.
fn member(text: &[u8]) -> Option<(&[u8], Item, &[u8])> {
    let first = text.first()?;
    if !first.is_ascii_lowercase() && *first != b'*' {
        return None;
    }
    let is_key = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(b);
    let (key, rest) = text.split_at(text.iter().position(|b| !is_key(b)).unwrap_or(text.len()));
    let (item, rest) = match rest.strip_prefix(b"=") {
        Some(value) => {
            let (value, rest) = value.split_at(end_of(value)?);
            (item(value)?, rest)
        }
        None => (Item::Truth(true), rest.get(end_of(rest)?..)?),
    };
    let rest = trim(rest);
    match rest.split_first() {
        None => Some((key, item, rest)),
        // A comma at the end is an error of the dictionary (RFC 9651 §4.2.2).
        Some((b',', others)) if !trim(others).is_empty() => Some((key, item, others)),
        Some(_) => None,
    }
}

/// Where a member ends: at the next comma outside of quotes and parentheses.
fn end_of(text: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped, mut inner) = (false, false, false);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' if inner => return None,
            b'(' => inner = true,
            b')' if !inner => return None,
            b')' => inner = false,
            b',' if !inner => return Some(at),
            _ => {}
        }
    }
    (!quoted && !inner).then_some(text.len())
}

/// Reads a value, without its parameters.
fn item(text: &[u8]) -> Option<Item> {
    let bare = trim(text.split(|&b| b == b';').next()?);
    match bare {
        [] => None,
        b"?1" => Some(Item::Truth(true)),
        b"?0" => Some(Item::Truth(false)),
        [digit @ b'0'..=b'9'] => Some(Item::Number(digit - b'0')),
        _ => Some(Item::Other),
    }
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_rfc_9218() {
        for (value, urgency, incremental) in [
            ("u=5, i", 5, true),
            ("u=0", 0, false),
            ("i", 3, true),
            ("i=?0", 3, false),
            ("i=?1,u=7", 7, true),
            ("  u=1 ,\ti ", 1, true),
            ("u=1, u=2", 2, false),
            ("u=2;x=1, i;y=\"a,b\"", 2, true),
            ("x=\"u=1, i\", u=4", 4, false),
            ("x=(1 2), u=4", 4, false),
            // Out of range, or of another type: as if absent.
            ("u=8, i", 3, true),
            ("u=-1", 3, false),
            ("u=?1", 3, false),
            ("u=1.5", 3, false),
            ("i=1", 3, false),
            ("", 3, false),
            // No dictionary: nothing of it counts.
            ("u=1,", 3, false),
            ("u=1,,i", 3, false),
            ("U=1", 3, false),
            ("u=1 i", 3, false),
            ("u=, i", 3, false),
            ("u=1, x=\"", 3, false),
        ] {
            assert_eq!(
                Priority::default().read(value.as_bytes()),
                Priority { urgency, incremental },
                "{value}"
            );
        }
        let known = Priority { urgency: 1, incremental: true };
        assert_eq!(known.read(b"u=6"), Priority { urgency: 6, incremental: true });
        assert_eq!(known.read(b"u=6,"), known);
    }
}
