//! Evaluates expressions of a script to what a plan can say: texts with placeholders, parts of answers, rows of data.

use super::Translator;
use super::parse::{Expression, Function};
use super::send::ENCODED;
use crate::plan::model::Keep;
use crate::plan::secrets::is_secret_value;
use crate::plan::text::{self, Span};
use crate::plan::vault::is_secret;
use crate::yaml::Value;
use std::rc::Rc;

/// What an expression is worth.
#[derive(Clone, Debug)]
pub(super) enum V {
    /// An answer, by the number of its request.
    Answer(usize),
    Bool(bool),
    /// A body of an answer.
    Body(usize),
    /// Nothing, but what was called did something.
    Done,
    Function(Rc<Function>),
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
        if !self.charge(1) {
            return full();
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
                let member = |(key, value): &(String, Expression)| {
                    let value = self.value(value);
                    (key.clone(), self.concealed(key, value))
                };
                V::Object(entries.iter().map(member).collect())
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
                if self.charge(out.len()) { V::Text(out) } else { full() }
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
            Expression::Call(callee, arguments, site) => match self.act(callee, arguments, *site) {
                Some(value) => value,
                None => self.call(callee, arguments),
            },
            Expression::New(class, arguments) => self.new_object(class, arguments),
            Expression::Unary("-", inner) => match self.value(inner) {
                V::Number(number) => V::Number(format!("-{number}")),
                _ => V::Unknown("arithmetic is not followed".to_owned()),
            },
            Expression::Unary(_, inner) => match self.value(inner) {
                // `!check(…)` has checked.
                V::Done => V::Done,
                _ => V::Unknown("arithmetic is not followed".to_owned()),
            },
            Expression::Binary(left, "||" | "??", right) => self.or(left, right),
            Expression::Binary(left, "+", right) => {
                let (left, right) = (self.value(left), self.value(right));
                if let (V::Number(a), V::Number(b)) = (&left, &right) {
                    return number(a, b, |a, b| a + b);
                }
                match (self.text(&left, "value"), self.text(&right, "value")) {
                    (Ok(left), Ok(right)) if self.charge(left.len() + right.len()) => {
                        V::Text(format!("{left}{right}"))
                    }
                    (Ok(_), Ok(_)) => full(),
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
            // The left side is worked out in any case, and with it what it sends.
            Expression::Binary(left, sign, right) => {
                self.value(left);
                if *sign != "&&" {
                    self.value(right);
                }
                V::Unknown(format!("`{sign}` is not followed here"))
            }
            Expression::Choice(condition, ..) => {
                self.value(condition);
                V::Unknown("`? :` is not followed".to_owned())
            }
        }
    }

    pub(super) fn named(&mut self, name: &str) -> V {
        let size = self.scopes.iter().rev().find_map(|scope| scope.get(name)).map_or(0, weight);
        if !self.charge(size) {
            return full();
        }
        if let Some(value) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return value.clone();
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
                // A row for each user or iteration in turn is what `sequential` gives.
                let pick = if is_random(index) { "random" } else { "sequential" };
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
        if let Some(default) = default.filter(|default| is_secret_value(name, default)) {
            return V::Text(self.cx.vault.hide(name, default));
        }
        match default {
            Some(default) => V::Text(text::placeholder(&self.optional(name, default))),
            None => V::Text(self.cx.vault.variable(name)),
        }
    }

    fn or(&mut self, left: &Expression, right: &Expression) -> V {
        if let Expression::Member(of, name) = left
            && **of == Expression::Name("__ENV".to_owned())
        {
            let default = match self.value(right) {
                V::Text(text) => match &text::spans(&text)[..] {
                    [] => Some(String::new()),
                    [Span::Literal(own)] => Some(own.clone()),
                    _ => None,
                },
                V::Number(number) => Some(number),
                _ => None,
            };
            return self.environment(name, default.as_deref());
        }
        match self.value(left) {
            V::Null => self.value(right),
            V::Text(text) if text.is_empty() => self.value(right),
            known => {
                // `check(…) || fail()` and `|| errors.add(1)`: what they do has its line.
                let reports = match right {
                    Expression::Call(callee, ..) => match &**callee {
                        Expression::Name(name) => name == "fail",
                        Expression::Member(_, method) => method == "add",
                        _ => false,
                    },
                    _ => false,
                };
                if reports {
                    self.value(right);
                }
                known
            }
        }
    }

    pub(super) fn call(&mut self, callee: &Expression, arguments: &[Expression]) -> V {
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
            Expression::Name(name) => name.clone(),
            _ => return V::Unknown("a call of this form is not followed".to_owned()),
        };
        let values: Vec<V> = arguments.iter().map(|argument| self.value(argument)).collect();
        match (&*name, &values[..]) {
            ("JSON.stringify", [value, ..]) => V::Serialized(Box::new(value.clone())),
            ("JSON.parse", [V::Body(id)]) => V::Json(*id, "$".to_owned()),
            ("JSON.parse", [file @ V::Named(_)]) => file.clone(),
            ("encodeURIComponent", [value, ..]) => match self.text(value, "value") {
                Ok(text) if self.charge(text.len() * 3) => V::Text(encoded(&text)),
                Ok(_) => full(),
                Err(why) => V::Unknown(why),
            },
            ("encodeURI" | "String" | "Number" | "parseInt" | "parseFloat", [value, ..]) => value.clone(),
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
            (name, [value])
                if name.strip_suffix(".url").is_some_and(|module| self.modules.contains(module)) =>
            {
                value.clone()
            }
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

    /// `new SharedArray('name', function () { return JSON.parse(open('x.json')); })`.
    fn new_object(&mut self, class: &Expression, arguments: &[Expression]) -> V {
        match (class, arguments) {
            (Expression::Name(name), [_, Expression::Function(function)]) if name == "SharedArray" => {
                self.body(function, &[])
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
            V::Null | V::Done => Ok(String::new()),
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
            V::Null | V::Done => Value::Plain("null".to_owned()),
            V::Bool(flag) => Value::Bool(*flag),
            V::Number(number) => number.parse().map_or_else(|_| Value::Plain(number.clone()), Value::Number),
            V::List(items) => {
                Value::List(items.iter().map(|item| self.json_value(item, key)).collect::<Result<_, _>>()?)
            }
            V::Object(entries) => {
                let member = |(key, value): &(String, V)| {
                    self.json_value(value, key).map(|value| (text::literal(key), value))
                };
                Value::Map(entries.iter().map(member).collect::<Result<_, _>>()?)
            }
            // A part of a JSON answer keeps its type.
            V::Json(..) => Value::Text(self.text(value, key)?.replacen("}}", "|json}}", 1)),
            other => Value::Text(self.text(other, key)?),
        })
    }

    /// A value with this name in the script: a secret becomes a variable where it is defined, so that no use shows it.
    pub(super) fn concealed(&mut self, name: &str, value: V) -> V {
        const KINDS: &[&str] = &["basic", "digest", "ntlm", "bearer"];
        let V::Text(text) = &value else { return value };
        let [Span::Literal(own)] = &text::spans(text)[..] else { return value };
        let is_address = own.contains("://") || own.starts_with('/') || KINDS.contains(&&**own);
        if is_address || name.eq_ignore_ascii_case("cookie") || own.trim().is_empty() || !is_secret(name) {
            return value;
        }
        V::Text(crate::plan::request::credentials(name, own, &mut self.cx.vault))
    }
}

/// About how many bytes a copy of a value takes.
fn weight(value: &V) -> usize {
    match value {
        V::Text(text) | V::Number(text) | V::Named(text) | V::Unknown(text) => text.len() + 1,
        V::List(items) => items.iter().map(weight).sum::<usize>() + 1,
        V::Object(entries) => entries.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>() + 1,
        V::Serialized(value) => weight(value) + 1,
        _ => 1,
    }
}

fn full() -> V {
    V::Unknown("the script makes longer values than an import takes".to_owned())
}

/// What `encodeURIComponent` makes of a text: its own characters are escaped, its values marked.
fn encoded(text: &str) -> String {
    let one = |span: Span<'_>| match span {
        Span::Literal(own) => text::percent_encoded(&own),
        Span::Placeholder(inner) if inner.ends_with(ENCODED) => text::placeholder(inner),
        Span::Placeholder(inner) => text::placeholder(&format!("{inner}{ENCODED}")),
    };
    text::spans(text).into_iter().map(one).collect()
}

/// Whether an index is made of `Math.random()`.
fn is_random(index: &Expression) -> bool {
    match index {
        Expression::Call(callee, arguments, _) => is_random(callee) || arguments.iter().any(is_random),
        Expression::Member(of, name) => name == "random" || is_random(of),
        Expression::Binary(left, _, right) => is_random(left) || is_random(right),
        Expression::Unary(_, inner) => is_random(inner),
        Expression::Name(name) => name == "randomIntBetween",
        _ => false,
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
