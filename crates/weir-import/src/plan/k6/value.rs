//! Evaluates expressions of a script to what a plan can say: texts with placeholders, parts of answers, rows of data.

use super::Translator;
use super::parse::{Expression, Function, Kind};
use crate::plan::model::Keep;
use crate::plan::text;
use crate::plan::vault::is_secret;
use crate::yaml::{Map, Value};

/// Most values of one expression.
const VALUES: usize = 20_000;

/// What an expression is worth.
#[derive(Clone, Debug)]
pub(super) enum V {
    /// An answer, by the number of its request.
    Answer(usize),
    Bool(bool),
    /// A body of an answer.
    Body(usize),
    Function(Function),
    Header(usize, String),
    /// Header fields of an answer.
    Headers(usize),
    /// A part of a JSON answer.
    Json(usize, String),
    List(Vec<Self>),
    /// A module or object whose members are known by their names.
    Named(String),
    Null,
    Number(String),
    Object(Vec<(String, Self)>),
    /// JSON made of a value.
    Serialized(Box<Self>),
    /// A row of a data set.
    Row(String),
    /// A data set.
    Set(String),
    Status(usize),
    /// A text of plans.
    Text(String),
    Unknown(String),
}

impl Translator<'_, '_> {
    /// What an expression is worth.
    pub(super) fn value(&mut self, expression: &Expression) -> V {
        self.values += 1;
        if self.values > VALUES * 50 {
            return V::Unknown("the script has too many values".to_owned());
        }
        match expression {
            Expression::Text(text) => V::Text(text::literal(text)),
            Expression::Number(number) => V::Number(number.clone()),
            Expression::Bool(flag) => V::Bool(*flag),
            Expression::Null => V::Null,
            Expression::Unknown(what) => V::Unknown(format!("{what} is not followed")),
            Expression::Function(function) => V::Function(function.clone()),
            Expression::Array(items) => V::List(items.iter().map(|item| self.value(item)).collect()),
            Expression::Object(entries) => {
                V::Object(entries.iter().map(|(key, value)| (key.clone(), self.value(value))).collect())
            }
            Expression::Template(texts, inner) => {
                let mut out = String::new();
                for (at, text) in texts.iter().enumerate() {
                    out.push_str(&text::literal(text));
                    if let Some(inner) = inner.get(at) {
                        let value = self.value(inner);
                        match self.text(&value, "value") {
                            Ok(text) => out.push_str(&text),
                            Err(why) => return V::Unknown(why),
                        }
                    }
                }
                V::Text(out)
            }
            Expression::Name(name) => self.named(name),
            Expression::Member(of, name) => {
                let of = self.value(of);
                self.member(of, name)
            }
            Expression::Index(of, index) => {
                let of = self.value(of);
                self.index(of, index)
            }
            Expression::Call(callee, arguments) => self.call(callee, arguments),
            Expression::New(class, arguments) => self.new_object(class, arguments),
            Expression::Unary("-", inner) => match self.value(inner) {
                V::Number(number) => V::Number(format!("-{number}")),
                _ => V::Unknown("arithmetic is not followed".to_owned()),
            },
            Expression::Unary(..) => V::Unknown("arithmetic is not followed".to_owned()),
            Expression::Binary(left, "||" | "??", right) => self.or(left, right),
            Expression::Binary(left, "+", right) => {
                let (left, right) = (self.value(left), self.value(right));
                if let (V::Number(a), V::Number(b)) = (&left, &right) {
                    return number(a, b, |a, b| a + b);
                }
                match (self.text(&left, "value"), self.text(&right, "value")) {
                    (Ok(left), Ok(right)) => V::Text(format!("{left}{right}")),
                    (Err(why), _) | (_, Err(why)) => V::Unknown(why),
                }
            }
            Expression::Binary(left, sign @ ("*" | "-" | "/"), right) => {
                let (left, right) = (self.value(left), self.value(right));
                match (&left, &right, *sign) {
                    (V::Number(a), V::Number(b), "*") => number(a, b, |a, b| a * b),
                    (V::Number(a), V::Number(b), "-") => number(a, b, |a, b| a - b),
                    (V::Number(a), V::Number(b), _) => number(a, b, |a, b| a / b),
                    _ => V::Unknown("arithmetic with values of a run is not followed".to_owned()),
                }
            }
            Expression::Binary(_, sign, _) => V::Unknown(format!("`{sign}` is not followed here")),
            Expression::Choice(..) => V::Unknown("`? :` is not followed".to_owned()),
        }
    }

    fn named(&self, name: &str) -> V {
        for scope in self.scopes.iter().rev() {
            if let Some(value) = scope.get(name) {
                return value.clone();
            }
        }
        match name {
            "__VU" => V::Text(text::placeholder("user")),
            "__ITER" => V::Text(text::placeholder("iteration")),
            _ => V::Named(name.to_owned()),
        }
    }

    fn member(&mut self, of: V, name: &str) -> V {
        match of {
            V::Named(object) if object == "__ENV" => self.environment(name, None),
            V::Named(object) => V::Named(format!("{object}.{name}")),
            V::Object(entries) => entries
                .into_iter()
                .find(|(key, _)| key == name)
                .map_or_else(|| V::Unknown(format!("there is no member `{name}`")), |(_, value)| value),
            V::Row(set) => V::Text(text::placeholder(&format!("{set}.{name}"))),
            V::Answer(id) => match name {
                "status" => V::Status(id),
                "body" => V::Body(id),
                "headers" => V::Headers(id),
                "timings" => V::Named(format!("timings:{id}")),
                _ => V::Named(format!("answer:{id}.{name}")),
            },
            V::Headers(id) => V::Header(id, name.to_owned()),
            V::Json(id, path) => V::Json(id, format!("{path}{}", step(name))),
            V::List(items) if name == "length" => V::Number(items.len().to_string()),
            V::Unknown(why) => V::Unknown(why),
            other => V::Named(format!("{}.{name}", self.text(&other, "value").unwrap_or_default())),
        }
    }

    fn index(&mut self, of: V, index: &Expression) -> V {
        match (of, self.value(index)) {
            (V::Set(set), _) => {
                let what = format!("{index:?}");
                // A row for each user or iteration in turn is what `sequential` gives.
                let pick = if what.contains("\"random\"") { "random" } else { "sequential" };
                self.picks.entry(set.clone()).or_insert(pick);
                V::Row(set)
            }
            (V::Headers(id), V::Text(name)) => V::Header(id, name),
            (V::Json(id, path), V::Number(at)) => V::Json(id, format!("{path}[{at}]")),
            (V::Json(id, path), V::Text(name)) => V::Json(id, format!("{path}{}", step(&name))),
            (V::List(items), V::Number(at)) => {
                let item = at.parse::<usize>().ok().and_then(|at| items.into_iter().nth(at));
                item.unwrap_or_else(|| V::Unknown("an index beyond the list".to_owned()))
            }
            (V::Object(entries), V::Text(name)) => self.member(V::Object(entries), &name),
            (V::Named(object), V::Text(name)) if object == "__ENV" => self.environment(&name, None),
            _ => V::Unknown("an index that depends on the run is followed only for data sets".to_owned()),
        }
    }

    /// `__ENV.NAME`, with what stands behind `||`.
    fn environment(&mut self, name: &str, default: Option<&str>) -> V {
        match default.filter(|_| !is_secret(name)) {
            Some(default) => V::Text(text::placeholder(&self.optional(name, default))),
            None => V::Text(self.cx.vault.variable(name)),
        }
    }

    fn or(&mut self, left: &Expression, right: &Expression) -> V {
        if let Expression::Member(of, name) = left
            && **of == Expression::Name("__ENV".to_owned())
        {
            let default = match self.value(right) {
                V::Text(text) if !text.contains("{{") => Some(text),
                V::Number(number) => Some(number),
                _ => None,
            };
            return self.environment(name, default.as_deref());
        }
        match self.value(left) {
            V::Null => self.value(right),
            V::Text(text) if text.is_empty() => self.value(right),
            known => known,
        }
    }

    fn call(&mut self, callee: &Expression, arguments: &[Expression]) -> V {
        // `users.length`, `JSON.stringify(x)` and the like.
        let name = match callee {
            Expression::Member(of, method) => {
                let of = self.value(of);
                match (&of, &**method) {
                    (V::Answer(id), "json") => return self.json(*id, arguments),
                    (V::Json(id, path), "toString" | "trim") => return V::Json(*id, path.clone()),
                    (V::Text(text), "toString" | "trim") => return V::Text(text.clone()),
                    (V::Number(number), "toString") => return V::Text(number.clone()),
                    (V::Named(object), method) => format!("{object}.{method}"),
                    (V::Unknown(why), _) => return V::Unknown(why.clone()),
                    _ => return V::Unknown(format!("`.{method}()` is not followed")),
                }
            }
            Expression::Name(name) => match self.named(name) {
                V::Function(function) => return self.result(&function, arguments),
                _ if self.functions.contains_key(name) => {
                    let Some(function) = self.functions.get(name).cloned() else { return V::Null };
                    return self.result(&function, arguments);
                }
                _ => name.clone(),
            },
            _ => return V::Unknown("a call of this form is not followed".to_owned()),
        };
        let values: Vec<V> = arguments.iter().map(|argument| self.value(argument)).collect();
        match (&*name, &values[..]) {
            ("JSON.stringify", [value, ..]) => V::Serialized(Box::new(value.clone())),
            ("JSON.parse", [V::Body(id)]) => V::Json(*id, "$".to_owned()),
            ("JSON.parse", [file @ V::Named(_)]) => file.clone(),
            ("encodeURIComponent", [V::Text(text)]) if !text.contains("{{") => {
                V::Text(text::percent_encoded(text))
            }
            (
                "encodeURIComponent" | "encodeURI" | "String" | "Number" | "parseInt" | "parseFloat",
                [value, ..],
            ) => value.clone(),
            ("Date.now", _) => V::Text("{{now:ms}}".to_owned()),
            ("uuidv4" | "crypto.randomUUID", _) => V::Text("{{uuid}}".to_owned()),
            ("randomIntBetween", [V::Number(a), V::Number(b)]) => V::Text(format!("{{{{random:{a}:{b}}}}}")),
            ("randomItem", [V::Set(set)]) => {
                self.picks.insert(set.clone(), "random");
                V::Row(set.clone())
            }
            ("encoding.b64encode" | "b64encode", [value, ..]) => match self.text(value, "value") {
                Ok(text) => V::Text(format!("{{{{base64:{text}}}}}")),
                Err(why) => V::Unknown(why),
            },
            ("crypto.hmac" | "hmac", [V::Text(kind), key, text, V::Text(form)])
                if kind == "sha256" && form == "hex" =>
            {
                match (self.text(key, "key"), self.text(text, "text")) {
                    (Ok(key), Ok(text)) if !key.contains(':') => {
                        V::Text(format!("{{{{hmac_sha256:{key}:{text}}}}}"))
                    }
                    _ => V::Unknown("this HMAC is not followed".to_owned()),
                }
            }
            ("open", [V::Text(path), ..]) => V::Named(format!("file:{path}")),
            ("papaparse.parse" | "Papa.parse", [file @ V::Named(_), ..]) => file.clone(),
            ("http.url", [value]) => value.clone(),
            _ => V::Unknown(format!("`{}()` is not followed", name.chars().take(60).collect::<String>())),
        }
    }

    fn json(&mut self, id: usize, arguments: &[Expression]) -> V {
        match arguments.first().map(|argument| self.value(argument)) {
            None => V::Json(id, "$".to_owned()),
            // The path of k6 is that of GJSON: names and numbers between dots.
            Some(V::Text(path)) => {
                let fine = path.split('.').all(|part| {
                    !part.is_empty()
                        && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
                });
                match fine {
                    true => V::Json(id, format!("${}", path.split('.').map(step).collect::<String>())),
                    false => V::Unknown(format!("the path `{path}` is not followed")),
                }
            }
            Some(_) => V::Unknown("a path that depends on the run is not followed".to_owned()),
        }
    }

    /// What a function returns, if it does nothing else.
    fn result(&mut self, function: &Function, arguments: &[Expression]) -> V {
        if self.scopes.len() > 20 {
            return V::Unknown("functions call each other too deeply".to_owned());
        }
        let values: Vec<V> = arguments.iter().map(|argument| self.value(argument)).collect();
        let scope = function.parameters.iter().cloned().zip(values).collect();
        self.scopes.push(scope);
        let mut made =
            V::Unknown("a function that does more than return a value is not followed here".to_owned());
        for statement in &function.body {
            match &statement.kind {
                Kind::Declare(all) => {
                    for (name, value) in all {
                        let value = value.as_ref().map_or(V::Null, |value| self.value(value));
                        if let Some(scope) = self.scopes.last_mut() {
                            scope.insert(name.clone(), value);
                        }
                    }
                }
                Kind::Return(Some(value)) => {
                    made = self.value(value);
                    break;
                }
                _ => break,
            }
        }
        self.scopes.pop();
        made
    }

    /// `new SharedArray('name', function () { return JSON.parse(open('x.json')); })`.
    fn new_object(&mut self, class: &Expression, arguments: &[Expression]) -> V {
        match (class, arguments) {
            (Expression::Name(name), [_, Expression::Function(function)]) if name == "SharedArray" => {
                self.result(function, &[])
            }
            (Expression::Name(name), _) if name == "Date" => V::Named("date".to_owned()),
            _ => V::Unknown("an object of this class is not followed".to_owned()),
        }
    }

    /// A value as a text of the plan. A part of an answer is kept under a name like `wish`.
    pub(super) fn text(&mut self, value: &V, wish: &str) -> Result<String, String> {
        match value {
            V::Text(text) => Ok(text.clone()),
            V::Number(number) => Ok(number.clone()),
            V::Bool(flag) => Ok(flag.to_string()),
            V::Null => Ok(String::new()),
            V::Json(id, path) => Ok(self.kept(*id, &format!("json:{path}"), wish)),
            V::Header(id, name) => Ok(self.kept(*id, &format!("header:{}", name.to_ascii_lowercase()), wish)),
            V::Status(id) => Ok(self.kept(*id, "status", wish)),
            V::Serialized(value) => {
                let value = self.json_value(value, "")?;
                Ok(json_text(&value))
            }
            V::Unknown(why) => Err(why.clone()),
            V::Named(name) => {
                Err(format!("`{}` is not known here", name.chars().take(60).collect::<String>()))
            }
            V::Row(_) | V::Set(_) => Err("a whole row of data is no text".to_owned()),
            V::Answer(_) | V::Body(_) | V::Headers(_) => {
                Err("a whole answer is no text of a request".to_owned())
            }
            V::List(_) | V::Object(_) | V::Function(_) => Err("a list or object is no text".to_owned()),
        }
    }

    /// The placeholder for a part of an answer.
    fn kept(&mut self, id: usize, source: &str, wish: &str) -> String {
        let of_source =
            source.rsplit(['.', ':', ']']).find(|part| part.chars().any(|c| c.is_ascii_alphabetic()));
        let wish = if wish == "value" { of_source.unwrap_or(wish) } else { wish };
        let list = self.keeps.entry(id).or_default();
        if let Some(known) = list.iter().find(|known| known.source == source) {
            return text::placeholder(&known.name);
        }
        let name = self.cx.vault.free(wish);
        list.push(Keep { name: name.clone(), source: source.to_owned(), proof: String::new() });
        text::placeholder(&name)
    }

    /// A value as JSON of the plan.
    pub(super) fn json_value(&mut self, value: &V, key: &str) -> Result<Value, String> {
        Ok(match value {
            V::Null => Value::Plain("null".to_owned()),
            V::Bool(flag) => Value::Bool(*flag),
            V::Number(number) => number.parse().map_or_else(|_| Value::Plain(number.clone()), Value::Number),
            V::List(items) => {
                Value::List(items.iter().map(|item| self.json_value(item, key)).collect::<Result<_, _>>()?)
            }
            V::Object(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    map.set(text::literal(key), self.json_value(value, key)?);
                }
                map.into()
            }
            V::Text(text) if is_secret(key) && !text.contains("{{") && !text.is_empty() => {
                Value::Text(self.cx.vault.hide(key, text))
            }
            // A part of a JSON answer keeps its type.
            V::Json(..) => Value::Text(self.text(value, key)?.replacen("}}", "|json}}", 1)),
            other => Value::Text(self.text(other, key)?),
        })
    }
}

fn number(a: &str, b: &str, with: impl Fn(f64, f64) -> f64) -> V {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) if with(a, b).is_finite() => V::Number(with(a, b).to_string()),
        _ => V::Unknown("a number that is none".to_owned()),
    }
}

/// A step of a path into JSON.
fn step(name: &str) -> String {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.bytes().all(|b| b.is_ascii_digit()) {
        format!("[{name}]")
    } else if is_word {
        format!(".{name}")
    } else {
        format!("['{}']", name.replace('\'', ""))
    }
}

/// JSON as a text of the plan.
fn json_text(value: &Value) -> String {
    match value {
        Value::Text(text) if text.ends_with("|json}}") => text.clone(),
        Value::Text(text) if text.contains("{{") => format!("\"{text}\""),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Plain(text) => text.clone(),
        Value::List(items) => format!("[{}]", items.iter().map(json_text).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let member = |(key, value): (&str, &Value)| {
                format!("{}: {}", serde_json::Value::from(key), json_text(value))
            };
            format!("{{ {} }}", map.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        _ => String::new(),
    }
}
