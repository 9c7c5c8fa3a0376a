//! The admin API against its own description: every answer in these tests is compared with `/api/v1/openapi.json`.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use weir_testkit::{Client, Response, Weir};

/// A gateway's admin API, and its description.
pub(super) struct Api {
    pub(super) weir: Weir,
    description: Value,
    token: String,
    /// Calls that were answered successfully, by method and path as described.
    answered: RefCell<BTreeSet<(String, String)>>,
}

impl Api {
    #[track_caller]
    pub(super) fn of(weir: Weir, token: &str) -> Self {
        let token =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let host = weir.admin();
        let request = format!("GET /api/v1/openapi.json HTTP/1.1\r\nHost: {host}\r\n{token}\r\n");
        let description = weir.admin_client().ask(request).expect_status(200).json();
        Self { weir, description, token, answered: RefCell::default() }
    }

    /// Sends a request and compares the answer with the description. `fields` are complete lines.
    #[track_caller]
    pub(super) fn ask(&self, line: &str, fields: &str, body: &str) -> Response {
        let response = self.ask_raw(line, &format!("{}{fields}", self.token), body);
        let (method, target) = line.split_once(' ').unwrap();
        let path = target.split('?').next().unwrap();
        self.compare(method, path, &response);
        response
    }

    /// Sends a request with exactly these fields.
    #[track_caller]
    pub(super) fn ask_raw(&self, line: &str, fields: &str, body: &str) -> Response {
        Client::connect(self.weir.admin()).ask(request(&self.weir.admin(), line, fields, body))
    }

    /// Every call: method, and a path with its placeholders filled in.
    pub(super) fn calls(&self) -> Vec<(String, String)> {
        let fill = |(method, path): (String, String)| {
            let path = path.replace("{section}", "routes").replace("{number}", "1");
            (method, filled(&path.replace("{from}", "1").replace("{to}", "2"), "x"))
        };
        self.described().into_iter().map(fill).collect()
    }

    /// The same with this name for all placeholders.
    pub(super) fn calls_with(&self, name: &str) -> Vec<(String, String)> {
        let fill = |(method, path): (String, String)| (method, filled(&path, name));
        self.described().into_iter().map(fill).collect()
    }

    /// Every described call.
    pub(super) fn described(&self) -> BTreeSet<(String, String)> {
        let paths = self.description["paths"].as_object().unwrap();
        let calls = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| (method.to_uppercase(), path.clone()))
        });
        calls.collect()
    }

    /// The calls whose answers were compared.
    pub(super) fn answered(&self) -> BTreeSet<(String, String)> {
        self.answered.borrow().clone()
    }

    #[track_caller]
    fn compare(&self, method: &str, path: &str, response: &Response) {
        let paths = self.description["paths"].as_object().unwrap();
        let mut fitting = paths.iter().filter(|(pattern, _)| fits(pattern, path));
        let found =
            fitting.find_map(|(pattern, methods)| Some((pattern, methods.get(method.to_lowercase())?)));
        let (pattern, operation) = found.unwrap_or_else(|| panic!("{method} {path} is not described"));
        self.answered.borrow_mut().insert((method.to_owned(), pattern.clone()));
        let described = &operation["responses"][response.status.to_string()];
        assert!(
            described.is_object(),
            "{method} {path}: {} is not described: {}",
            response.status,
            response.text()
        );
        let (media, content) = described["content"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(response.header("content-type"), Some(media.as_str()), "{method} {path}");
        let mut wrong = Vec::new();
        self.validate("", &content["schema"], &response.json(), &mut wrong);
        assert!(wrong.is_empty(), "{method} {path}: {wrong:?}\n{}", response.text());
    }

    /// The part of JSON Schema that the description uses.
    fn validate(&self, at: &str, schema: &Value, value: &Value, wrong: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            let schema = self.description.pointer(name.trim_start_matches('#')).unwrap();
            return self.validate(at, schema, value, wrong);
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let is = |allowed: &str| allowed == kind || (allowed, kind) == ("number", "integer");
        let allowed = match &schema["type"] {
            Value::String(one) => is(one),
            Value::Array(some) => some.iter().filter_map(Value::as_str).any(is),
            _ => true,
        };
        if !allowed {
            wrong.push(format!("{at} is {kind}, not {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
            wrong.push(format!("{at} is {value}, none of {}", schema["enum"]));
        }
        if !schema["const"].is_null() && schema["const"] != *value {
            wrong.push(format!("{at} is {value}, not {}", schema["const"]));
        }
        for alternatives in
            ["anyOf", "oneOf"].map(|kind| &schema[kind]).into_iter().filter_map(Value::as_array)
        {
            let fits = |schema: &Value| {
                let mut wrong = Vec::new();
                self.validate(at, schema, value, &mut wrong);
                wrong.is_empty()
            };
            if !alternatives.iter().any(fits) {
                wrong.push(format!("{at} is {value}, none of {alternatives:?}"));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(name).is_none() {
                wrong.push(format!("{at} has no {name}"));
            }
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.validate(&format!("{at}[{index}]"), &schema["items"], item, wrong);
        }
        for (name, item) in value.as_object().into_iter().flatten() {
            let schema = match &schema["properties"][name] {
                Value::Null => &schema["additionalProperties"],
                schema => schema,
            };
            self.validate(&format!("{at}.{name}"), schema, item, wrong);
        }
    }
}

/// A request as sent.
pub(super) fn request(host: &str, line: &str, fields: &str, body: &str) -> String {
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {host}\r\n") };
    let media = if body.is_empty() || fields.contains("Content-Type") {
        ""
    } else {
        "Content-Type: application/json\r\n"
    };
    format!(
        "{line} HTTP/1.1\r\n{host}{media}Content-Length: {}\r\nConnection: close\r\n{fields}\r\n{body}",
        body.len()
    )
}

/// A path with this name for its remaining placeholders.
fn filled(path: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = path;
    while let Some((literal, behind)) = rest.split_once('{') {
        out.push_str(literal);
        out.push_str(name);
        rest = behind.split_once('}').unwrap().1;
    }
    out + rest
}

fn fits(pattern: &str, path: &str) -> bool {
    match pattern.split_once('{') {
        None => pattern == path,
        Some((literal, rest)) => {
            let behind = rest.split_once('}').unwrap().1;
            let Some(path) = path.strip_prefix(literal) else { return false };
            let next = behind.split('{').next().unwrap();
            let end = if next.is_empty() { path.len() } else { path.find(next).unwrap_or(usize::MAX) };
            path.get(..end).is_some_and(|part| !part.is_empty() && !part.contains(['/', ':']))
                && fits(behind, &path[end..])
        }
    }
}
