//! Texts with variables of another system, as texts with Weir's placeholders.

use super::expression::Expression;

/// A text of literal parts and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A literal text.
    Text(String),
    /// A placeholder: `{client}`.
    Placeholder(String),
    /// The value of an expression: `{= … }`.
    Value(Expression),
}

impl Template {
    /// A literal text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let mut template = Self::default();
        template.push(Part::Text(text.to_owned()));
        template
    }

    /// Adds a part.
    pub fn push(&mut self, part: Part) {
        match (self.0.last_mut(), part) {
            (_, Part::Text(text)) if text.is_empty() => {}
            (Some(Part::Text(last)), Part::Text(text)) => last.push_str(&text),
            (_, part) => self.0.push(part),
        }
    }

    /// Adds all parts of another.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|part| self.push(part));
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The text, if it has no values.
    #[must_use]
    pub fn as_literal(&self) -> Option<String> {
        match &*self.0 {
            [] => Some(String::new()),
            [Part::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a setting with placeholders: fields, redirects, `respond`, keys of limits. Braces of literal parts are
    /// doubled.
    #[must_use]
    pub fn to_setting(&self) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(&text.replace('{', "{{").replace('}', "}}")),
                Part::Placeholder(name) => out.push_str(&format!("{{{name}}}")),
                Part::Value(expression) => out.push_str(&format!("{{= {} }}", expression.as_str())),
            }
        }
        // What begins so would be read as one expression.
        if out.starts_with("= ") { format!("{{= \"=\" }}{}", &out[1..]) } else { out }
    }

    /// For a body, where braces around anything but a name stay as they are.
    #[must_use]
    pub fn to_body(&self) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(&escape_names(text)),
                Part::Placeholder(name) => out.push_str(&format!("{{{name}}}")),
                Part::Value(expression) => out.push_str(&format!("{{= {} }}", expression.as_str())),
            }
        }
        out
    }
}

/// Doubles the braces around what a page would read as a placeholder: `{name}` and `{= … }`.
fn escape_names(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let behind = &rest[open + 1..];
        let name = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
        if name > 0 && behind[name..].starts_with('}') {
            out.push_str(&format!("{{{{{}}}}}", &behind[..name]));
            rest = &behind[name + 1..];
        } else if behind.starts_with("= ") {
            out.push_str("{{");
            rest = behind;
        } else {
            out.push('{');
            rest = behind;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_braces_stay_literal() {
        let mut template = Template::text("{a}={");
        template.push(Part::Placeholder("client".to_owned()));
        template.push(Part::Value(Expression::raw("request.query")));
        assert_eq!(template.to_setting(), "{{a}}={{{client}{= request.query }");
        assert_eq!(Template::text("= x").to_setting(), "{= \"=\" } x");
        assert_eq!(Template::text("{\"a\": {b}}").to_body(), "{\"a\": {{b}}}");
    }
}
