//! Masks the values of `${VAR}` and `${file:PATH}` in reports and error texts, since any of them may be a credential.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_plan::Plan;
use weir_wire::base64;

/// Shorter values can be guessed, and hiding them would hide parts of other words.
const LENGTH_LEAST: usize = 6;

/// The values, in each form in which a request may have them.
#[derive(Debug, Default)]
pub(crate) struct Masks(Vec<String>);

impl Masks {
    /// Those of a plan.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self::of_values(plan.outside())
    }

    fn of_values<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut all: Vec<String> = Vec::new();
        for value in values.into_iter().filter_map(secret_part) {
            for form in forms(value) {
                if form.len() >= LENGTH_LEAST && !all.contains(&form) {
                    all.push(form);
                }
            }
        }
        // The longest first: one may be a part of another.
        all.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self(all)
    }

    /// Whether there is nothing to hide.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without the values, and without the beginning of one where the text was cut.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text =
            self.0.iter().fold(text.to_owned(), |text, value| match text.contains(value.as_str()) {
                true => text.replace(value.as_str(), MASK),
                false => text,
            });
        let kept = text.strip_suffix(CUT).unwrap_or(&text);
        let cut = self.0.iter().filter_map(|value| cut_value(kept, value)).max();
        if let Some(length) = cut {
            let at = kept.len() - length;
            text.replace_range(at..at + length, MASK);
        }
        text
    }
}

/// What stands in place of a value.
const MASK: &str = "***";

/// What stands at the end of a text that was cut.
const CUT: char = '…';

/// How a value may look in a request, in an answer that repeats it, or in a text about them.
fn forms(value: &str) -> Vec<String> {
    let encoded = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    // RFC 3986 §2.3 leaves these as they are, as templates do.
    let kept = encoded.replace("%2D", "-").replace("%2E", ".").replace("%5F", "_").replace("%7E", "~");
    let json = serde_json::Value::from(value).to_string();
    let inside = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
    // Reports show control characters as spaces.
    let shown = value.replace(char::is_control, " ");
    let mut all = vec![value.to_owned(), kept.replace("%20", "+"), kept, inside, shown];
    // As a part of a longer text in Base64, such as the credentials of Basic: what the value alone determines.
    for before in 0..3 {
        let coded = base64::encode(&[&[0].repeat(before), value.as_bytes()].concat());
        let (first, last) = ((before * 8).div_ceil(6), (before + value.len()) * 8 / 6);
        let coded = if before == 0 { &coded } else { coded.get(first..last).unwrap_or_default() };
        all.extend([coded.to_owned(), coded.replace('+', "-").replace('/', "_")]);
        if let Some(inner) = coded.get(..last - first).filter(|inner| inner.len() < coded.len()) {
            all.push(inner.to_owned());
        }
    }
    all
}

/// How many bytes at the end of a text are the beginning of this value, if they are enough to tell.
fn cut_value(text: &str, value: &str) -> Option<usize> {
    let most = value.len().min(text.len() + 1).checked_sub(1)?;
    (LENGTH_LEAST..=most).rev().find(|n| value.get(..*n).is_some_and(|beginning| text.ends_with(beginning)))
}

/// The part of a value that could be a credential. Servers, rates and times are not: a report must name them.
fn secret_part(value: &str) -> Option<&str> {
    const UNITS: [&str; 13] = ["ns", "us", "ms", "s", "m", "h", "d", "/s", "/m", "/h", "%", "KiB", "MiB"];
    let is_amount = UNITS.iter().filter_map(|unit| value.strip_suffix(unit)).any(|number| {
        number.bytes().all(|b| b.is_ascii_digit() || b == b'.') && number.parse::<f64>().is_ok()
    });
    // Paths and queries hold tokens too, as those of webhooks do, and so does what stands before an `@`.
    let part = match value.split_once("://") {
        Some((_, rest)) if rest.contains('@') => value,
        Some((_, rest)) => rest.find(['/', '?', '#']).and_then(|at| rest.get(at..)).unwrap_or_default(),
        None => value,
    };
    (part.len() >= LENGTH_LEAST && !is_amount).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_hidden_in_each_form_that_a_request_may_have() {
        let masks = Masks::of_values([
            "a b\"c-1.x",
            "a b",
            "http://h:8080",
            "10000/s",
            "hunter2",
            "9182736",
            "https://h/T0/k3y",
        ]);
        for (text, want) in [
            ("x a b\"c-1.x y", "x *** y"),
            ("/a%20b%22c-1.x?q=a+b%22c-1.x", "/***?q=***"),
            (r#"{"k":"a b\"c-1.x"}"#, r#"{"k":"***"}"#),
            ("http://h:8080/x at 10000/s by hunter2 9182736", "http://h:8080/x at 10000/s by *** ***"),
            ("POST /T0/k3y at h", "POST *** at h"),
            ("x-note: aHVudGVyMg==", "x-note: ***"),
            // `me:hunter2` and `you:hunter2!`
            ("basic bWU6aHVudGVyMg==", "basic bWU6***"),
            ("basic eW91Omh1bnRlcjIh", "basic eW91Om***Ih"),
            ("it was hunter", "it was ***"),
            ("it was hunter…", "it was ***…"),
            ("it was hunt", "it was hunt"),
            ("a b is too short to be hidden", "a b is too short to be hidden"),
        ] {
            assert_eq!(masks.apply(text), want);
        }
    }
}
