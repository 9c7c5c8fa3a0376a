//! What conditions cost on one exchange with 12 header fields.
//!
//! `cargo bench -p weir-expr` tells nanoseconds; instructions are counted by callgrind:
//! `valgrind --tool=callgrind --toggle-collect='*counted*' BINARY --count`, divided by [`COUNTED`].

use std::borrow::Cow;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;
use weir_expr::{Condition, Phase, Schema, Type, Value, Values, Var, Variable, same};

/// How many evaluations a count runs.
const COUNTED: usize = 10_000;

const CONDITIONS: &[(&str, &str)] = &[
    ("one comparison", r#"request.method == "GET""#),
    ("two comparisons", r#"request.method == "GET" && request.headers["x-env"] == "blue""#),
    ("two without a field", r#"request.method == "GET" && request.path == "/users/7/orders""#),
    ("two, the second differs", r#"request.method == "GET" && request.headers["x-env"] == "green""#),
    ("number", "request.size > 1024"),
    ("one of eight", r#"request.method in ["A", "B", "C", "D", "E", "F", "GET", "H"]"#),
    ("networks", r#"client.ip in ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "fd00::/8"]"#),
    ("prefix", r#"request.path.startsWith("/users/")"#),
    ("regex", r#"request.path.matches(r"^/users/[0-9]+/")"#),
    ("conversion", r#"int(request.headers["x-count"]) ?? 0 > 10"#),
];

/// Where a text stands in the buffer.
#[derive(Clone, Copy)]
struct Text {
    at: u32,
    len: u32,
}

/// A request as a gateway has it: one buffer, and where in it things stand.
struct Request {
    buffer: Vec<u8>,
    method: Text,
    path: Text,
    fields: Vec<[Text; 2]>,
    client: IpAddr,
}

impl Request {
    fn new() -> Self {
        let mut buffer = Vec::new();
        let mut add = |text: &str| {
            let at = buffer.len() as u32;
            buffer.extend_from_slice(text.as_bytes());
            Text { at, len: text.len() as u32 }
        };
        let (method, path) = (add("GET"), add("/users/7/orders"));
        let fields = [
            ("host", "api.example.com"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
            ("accept", "*/*"),
            ("accept-encoding", "gzip, br"),
            ("accept-language", "en"),
            ("cache-control", "no-cache"),
            ("x-count", "12"),
            ("cookie", "sid=0123456789abcdef"),
            ("x-env", "blue"),
            ("referer", "https://example.com/"),
            ("x-request-id", "0123456789abcdef"),
            ("connection", "keep-alive"),
        ];
        let fields = fields.iter().map(|(name, value)| [add(name), add(value)]).collect();
        Self { buffer, method, path, fields, client: "10.1.2.3".parse().expect("an address") }
    }

    fn at(&self, text: Text) -> &[u8] {
        self.buffer.get(text.at as usize..text.at as usize + text.len as usize).unwrap_or_default()
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let is = |[found, _]: &&[Text; 2]| found.len as usize == name.len() && same(self.at(*found), name);
        self.fields.iter().find(is).map(|[_, value]| self.at(*value))
    }
}

impl Values for Request {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var.0 {
            3 => Value::Int(2_048),
            4 => Value::Address(self.client),
            _ => self.text(var, key).map_or(Value::Absent, Value::Text),
        }
    }

    #[inline(always)]
    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        match var.0 {
            0 => Some(Cow::Borrowed(self.at(self.method))),
            1 => Some(Cow::Borrowed(self.at(self.path))),
            2 => self.field(key).map(Cow::Borrowed),
            _ => None,
        }
    }

    #[inline(always)]
    fn is(&self, var: Var, key: &[u8], text: &[u8]) -> bool {
        match var.0 {
            0 => same(self.at(self.method), text),
            1 => same(self.at(self.path), text),
            _ => same(self.field(key).unwrap_or_default(), text),
        }
    }
}

fn schema() -> Schema {
    let variable = |name: &str, var: u16, ty| Variable::new(name, Var(var), Phase(0), ty);
    Schema::new(["request"])
        .with(variable("request.method", 0, Type::Text))
        .with(variable("request.path", 1, Type::Text))
        .with(variable("request.headers", 2, Type::Text).folded())
        .with(variable("request.size", 3, Type::Int))
        .with(variable("client.ip", 4, Type::Address))
}

/// What callgrind counts.
#[inline(never)]
fn counted(condition: &Condition, request: &Request) -> usize {
    (0..COUNTED).filter(|_| black_box(condition).holds(black_box(request))).count()
}

fn main() {
    let request = Request::new();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let only = words
        .iter()
        .position(|word| word == "--count")
        .map(|at| words.get(at + 1).map_or("two comparisons", String::as_str));
    // `cargo test --all-targets` runs this too: it passes no --bench, and one round is enough to see that it works.
    let rounds = if words.iter().any(|word| word == "--bench") { 200 } else { 1 };
    for (name, source) in CONDITIONS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let condition = Condition::compile(source, &schema(), Phase(0)).expect("a condition");
        if only.is_some() {
            println!("{name}: {} of {COUNTED}", counted(&condition, &request));
            continue;
        }
        let mut best = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            counted(&condition, &request);
            best = best.min(start.elapsed().as_nanos() as f64 / COUNTED as f64);
        }
        println!("{name:<26} {best:>7.1} ns  {source}");
    }
}
