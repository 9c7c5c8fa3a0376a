//! Writes the values of parameters as `style` and `explode` say (OpenAPI 3.1 §4.8.12, RFC 6570).

use super::example;
use crate::plan::json::Node;
use crate::plan::text;
use crate::yaml::Value;

/// Where a parameter stands, with its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    DeepObject,
    Form,
    Label,
    Matrix,
    PipeDelimited,
    Simple,
    SpaceDelimited,
}

/// How a parameter is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) style: Style,
    pub(super) explodes: bool,
}

impl Form {
    /// That of a parameter in this place. The error is a style that its place does not have.
    pub(super) fn of(parameter: &Node<'_>, place: &str) -> Result<Self, String> {
        let style = match (parameter.text("style"), place) {
            (None, "query" | "cookie") | (Some("form"), "query" | "cookie") => Style::Form,
            (None | Some("simple"), "path" | "header") => Style::Simple,
            (Some("label"), "path") => Style::Label,
            (Some("matrix"), "path") => Style::Matrix,
            (Some("spaceDelimited"), "query") => Style::SpaceDelimited,
            (Some("pipeDelimited"), "query") => Style::PipeDelimited,
            (Some("deepObject"), "query") => Style::DeepObject,
            (style, _) => return Err(style.unwrap_or_default().chars().take(40).collect()),
        };
        let explodes = parameter.get("explode").and_then(Node::as_bool).unwrap_or(style == Style::Form);
        Ok(Self { style, explodes })
    }

    /// `name=value` pairs of a query, escaped.
    pub(super) fn query(self, name: &str, value: &Value) -> Vec<String> {
        let own = text::percent_encoded(name);
        match (value, self.style) {
            (Value::List(items), Style::Form | Style::SpaceDelimited | Style::PipeDelimited)
                if self.explodes =>
            {
                items.iter().map(|item| format!("{own}={}", url(item))).collect()
            }
            (Value::List(items), style) => {
                let between = match style {
                    Style::SpaceDelimited => "%20",
                    Style::PipeDelimited => "%7C",
                    _ => ",",
                };
                vec![format!("{own}={}", items.iter().map(url).collect::<Vec<_>>().join(between))]
            }
            (Value::Map(map), Style::DeepObject) => map
                .iter()
                .map(|(key, value)| format!("{own}%5B{}%5D={}", text::percent_encoded(key), url(value)))
                .collect(),
            (Value::Map(map), Style::Form) if self.explodes => map
                .iter()
                .map(|(key, value)| format!("{}={}", text::percent_encoded(key), url(value)))
                .collect(),
            (Value::Map(_), _) => vec![format!("{own}={}", self.joined(value, url))],
            (value, _) => vec![format!("{own}={}", url(value))],
        }
    }

    /// A part of a path, escaped.
    pub(super) fn path(self, name: &str, value: &Value) -> String {
        let own = text::percent_encoded(name);
        match (self.style, value) {
            (Style::Label, Value::List(items)) => {
                let between = if self.explodes { "." } else { "," };
                format!(".{}", items.iter().map(url).collect::<Vec<_>>().join(between))
            }
            (Style::Label, value) => format!(".{}", self.joined(value, url)),
            (Style::Matrix, Value::List(items)) if self.explodes => {
                items.iter().map(|item| format!(";{own}={}", url(item))).collect()
            }
            (Style::Matrix, Value::Map(map)) if self.explodes => map
                .iter()
                .map(|(key, value)| format!(";{}={}", text::percent_encoded(key), url(value)))
                .collect(),
            (Style::Matrix, value) => format!(";{own}={}", self.joined(value, url)),
            (_, value) => self.joined(value, url),
        }
    }

    /// The value of a header field or cookie.
    pub(super) fn field(self, value: &Value) -> String {
        self.joined(value, |value| {
            let text: String = plain(value);
            text.chars().filter(|c| !c.is_control()).collect()
        })
    }

    fn joined(self, value: &Value, one: impl Fn(&Value) -> String) -> String {
        match value {
            Value::List(items) => items.iter().map(one).collect::<Vec<_>>().join(","),
            Value::Map(map) => {
                let between = if self.explodes { '=' } else { ',' };
                let pair = |(key, value): (&str, &Value)| {
                    format!("{}{between}{}", one(&Value::Text(key.to_owned())), one(value))
                };
                map.iter().map(pair).collect::<Vec<_>>().join(",")
            }
            value => one(value),
        }
    }
}

/// A text of plans.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => example::to_json(other),
    }
}

/// A value in a URL; placeholders stay.
fn url(value: &Value) -> String {
    text::map_literals(&plain(value), text::percent_encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Map;

    #[test]
    fn values_are_written_in_all_styles() {
        let scalar = Value::Text("b c".to_owned());
        let list = Value::List(vec![Value::Text("blue".to_owned()), Value::Text("a/b".to_owned())]);
        let map = Value::Map(Map::new().with("R", 100_i64).with("G", 200_i64));
        for (style, explodes, value, want) in [
            (Style::Form, true, &scalar, "c=b%20c"),
            (Style::Form, true, &list, "c=blue&c=a%2Fb"),
            (Style::Form, false, &list, "c=blue,a%2Fb"),
            (Style::Form, true, &map, "R=100&G=200"),
            (Style::Form, false, &map, "c=R,100,G,200"),
            (Style::SpaceDelimited, false, &list, "c=blue%20a%2Fb"),
            (Style::PipeDelimited, false, &list, "c=blue%7Ca%2Fb"),
            (Style::DeepObject, true, &map, "c%5BR%5D=100&c%5BG%5D=200"),
        ] {
            let form = Form { style, explodes };
            assert_eq!(form.query("c", value).join("&"), want, "{style:?} {explodes}");
        }
        for (style, explodes, value, want) in [
            (Style::Simple, false, &scalar, "b%20c"),
            (Style::Simple, false, &list, "blue,a%2Fb"),
            (Style::Simple, false, &map, "R,100,G,200"),
            (Style::Simple, true, &map, "R=100,G=200"),
            (Style::Label, false, &scalar, ".b%20c"),
            (Style::Label, true, &list, ".blue.a%2Fb"),
            (Style::Matrix, false, &scalar, ";c=b%20c"),
            (Style::Matrix, false, &list, ";c=blue,a%2Fb"),
            (Style::Matrix, true, &list, ";c=blue;c=a%2Fb"),
            (Style::Matrix, true, &map, ";R=100;G=200"),
        ] {
            let form = Form { style, explodes };
            assert_eq!(form.path("c", value), want, "{style:?} {explodes}");
        }
    }
}
