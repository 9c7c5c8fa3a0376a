//! The `google.api.http` rules on the methods of a pool, validated and compiled for matching.

use crate::binding::{Binding, BodyOf, Method, Place};
use crate::mask;
use crate::router::{Router, Target};
use crate::schema::{Kind, Known, Message, Schema, Shape};
use crate::template::Template;
use prost_reflect::{DescriptorPool, DynamicMessage, ExtensionDescriptor, MethodDescriptor, Value};
use std::fmt;

/// Most methods and most bindings of one API: a hostile server may describe any number.
const METHODS: usize = 10_000;
const BINDINGS: usize = 20_000;

/// Why a rule, or everything, cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleError {
    /// `file.proto:12`, or only the file if the line is unknown.
    pub place: String,
    /// `package.Service/Method`; empty if it concerns no method.
    pub method: String,
    /// What is wrong, starting with the method.
    pub message: String,
    /// What happens to its requests.
    pub requests: Requests,
}

/// What happens to the requests that a refused rule names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// Another rule takes them.
    Bound,
    /// They are refused, so that no less literal rule takes them.
    #[default]
    Refused,
    /// Nobody knows them, because the path of the rule cannot be read.
    Unknown,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.message),
            place => write!(f, "{place}: {}", self.message),
        }
    }
}

/// The rules of a pool's methods.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) methods: Vec<Method>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) router: Router,
    /// Rules that cannot be served; the others can.
    pub(crate) refused: Vec<RuleError>,
    /// The templates of refused rules. They join the router last, so that a valid rule for the same requests wins.
    unserved: Vec<(String, Template, usize)>,
    /// Errors in the choice itself: nothing can be served.
    pub(crate) errors: Vec<RuleError>,
}

/// The methods that become part of an API.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Full names of services; empty means all.
    pub services: Vec<String>,
    /// Methods without a rule are available as `POST /package.Service/Method`.
    pub unannotated: bool,
    /// Ignore the rules: methods are available only at their own paths.
    pub without_rules: bool,
}

/// Reads the rules of all chosen methods.
pub(crate) fn read(pool: &DescriptorPool, schema: &Schema, choice: &Choice) -> Rules {
    let mut rules = Rules::default();
    let option = pool.get_extension_by_name("google.api.http");
    for wanted in &choice.services {
        if pool.get_service_by_name(wanted).is_none() {
            let known: Vec<String> = pool.services().map(|s| s.full_name().to_owned()).take(20).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("there is no service `{wanted}`; there is {known}");
            rules.errors.push(RuleError { message, ..RuleError::default() });
        }
    }
    'services: for service in pool.services() {
        if !choice.services.is_empty() && !choice.services.iter().any(|name| name == service.full_name()) {
            continue;
        }
        for method in service.methods() {
            rules.method(&method, schema, option.as_ref(), choice);
            if rules.methods.len() > METHODS || rules.count() > BINDINGS {
                let message = format!("there are more than {METHODS} methods or {BINDINGS} rules");
                rules.errors.push(RuleError { message, ..RuleError::default() });
                break 'services;
            }
        }
    }
    for (method, template, at) in std::mem::take(&mut rules.unserved) {
        let _ = rules.router.add(&method, &template, Target::Refused(at)); // a valid rule stays
    }
    rules
}

/// Whether the method declares `option idempotency_level = NO_SIDE_EFFECTS`.
fn has_no_side_effects(of: &MethodDescriptor) -> bool {
    let options = of.method_descriptor_proto().options.as_ref();
    options.and_then(|options| options.idempotency_level) == Some(1)
}

impl Rules {
    /// The number of rules read, including refused ones.
    fn count(&self) -> usize {
        self.bindings.len() + self.refused.len()
    }

    fn method(
        &mut self,
        of: &MethodDescriptor,
        schema: &Schema,
        option: Option<&ExtensionDescriptor>,
        choice: &Choice,
    ) {
        let (Some(input), Some(output)) =
            (schema.named(of.input().full_name()), schema.named(of.output().full_name()))
        else {
            return;
        };
        let service = of.parent_service().full_name().to_owned();
        let at = self.methods.len();
        self.methods.push(Method {
            path: format!("/{service}/{}", of.name()),
            service,
            name: of.name().to_owned(),
            input,
            output,
            client_streams: of.is_client_streaming(),
            server_streams: of.is_server_streaming(),
            no_side_effects: has_no_side_effects(of),
            comment: comment(of),
        });
        if choice.without_rules {
            return;
        }
        let place = place(of);
        let options = of.options();
        let rule =
            option.filter(|option| options.has_extension(option)).map(|option| options.get_extension(option));
        match rule.as_deref().and_then(Value::as_message) {
            Some(rule) => {
                self.rule(at, rule, schema, &place);
                for more in list(rule, "additional_bindings") {
                    if self.count() > BINDINGS {
                        return;
                    }
                    let Some(more) = more.as_message() else { continue };
                    if !list(more, "additional_bindings").is_empty() {
                        self.wrong(
                            at,
                            &place,
                            Requests::Unknown,
                            "additional_bindings stand in additional_bindings",
                        );
                    }
                    self.rule(at, more, schema, &place);
                }
            }
            None if choice.unannotated => {
                let path = self.methods.get(at).map(|m| m.path.clone()).unwrap_or_default();
                let text =
                    Text { method: "POST".to_owned(), path, body: "*".to_owned(), response: String::new() };
                self.binding(at, &text, schema, &place);
            }
            None => {}
        }
    }

    fn rule(&mut self, at: usize, rule: &DynamicMessage, schema: &Schema, place: &str) {
        let found = ["get", "put", "post", "delete", "patch"].into_iter().find_map(|name| {
            rule.has_field_by_name(name).then(|| (name.to_ascii_uppercase(), text(rule, name)))
        });
        let custom = rule.get_field_by_name("custom").filter(|_| rule.has_field_by_name("custom"));
        let custom = custom.as_deref().and_then(Value::as_message);
        let custom = custom.map(|custom| (text(custom, "kind"), text(custom, "path")));
        let Some((method, path)) = found.or(custom) else {
            return self.wrong(
                at,
                place,
                Requests::Unknown,
                "the rule has no path: it needs one of get, put, post, delete, patch, custom",
            );
        };
        let is_token =
            !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !is_token && method != "*" {
            return self.wrong(at, place, Requests::Unknown, format!("`{method}` is not an HTTP method"));
        }
        let text = Text { method, path, body: text(rule, "body"), response: text(rule, "response_body") };
        self.binding(at, &text, schema, place);
    }

    fn binding(&mut self, at: usize, rule: &Text, schema: &Schema, place: &str) {
        let Some(method) = self.methods.get(at) else { return };
        let (Some(input), Some(output)) = (schema.message(method.input), schema.message(method.output))
        else {
            return;
        };
        let client_streams = method.client_streams;
        match compile(rule, schema, input, output, client_streams) {
            Err(wrong) => {
                let template = Template::new(&rule.path).ok();
                let requests = if template.is_some() { Requests::Refused } else { Requests::Unknown };
                self.unserved
                    .extend(template.map(|template| (rule.method.clone(), template, self.refused.len())));
                let wrong = wrong.join("; ");
                self.wrong(at, place, requests, format!("{} {}: {wrong}", rule.method, rule.path));
            }
            Ok(compiled) => self.bind(Binding {
                method: at,
                http: rule.method.clone(),
                template: compiled.template,
                variables: compiled.variables,
                body: compiled.body,
                response: compiled.response,
                mask: compiled.mask,
                place: place.to_owned(),
            }),
        }
    }

    /// Adds a rule. Of two rules for the same requests the later one wins, as in grpc-gateway, where the last
    /// registered handler answers.
    fn bind(&mut self, binding: Binding) {
        let added = self.router.add(&binding.http, &binding.template, Target::Binding(self.bindings.len()));
        let Err(Target::Binding(same)) = added else { return self.bindings.push(binding) };
        let Some(place) = self.bindings.get_mut(same) else { return };
        let winner = self.methods.get(binding.method).map_or("", |m| &m.path);
        let message = format!(
            "the same requests are bound again, and the last rule counts: {winner} ({}) has {}",
            binding.place, binding.template.text
        );
        let earlier = std::mem::replace(place, binding);
        let message = format!("{} {}: {message}", earlier.http, earlier.template.text);
        self.wrong(earlier.method, &earlier.place, Requests::Bound, message);
    }

    fn wrong(&mut self, at: usize, place: &str, requests: Requests, message: impl fmt::Display) {
        let name = self.methods.get(at).map_or("", |m| m.path.trim_start_matches('/'));
        let (place, message) = (clipped(place), clipped(&format!("{name}: {message}")));
        self.refused.push(RuleError { place, method: clipped(name), message, requests });
    }
}

/// A text short enough for logs and metrics: a service may give its methods names of any length.
fn clipped(text: &str) -> String {
    const MOST: usize = 400;
    text.chars().take(MOST).collect()
}

/// A rule in its written form.
struct Text {
    method: String,
    path: String,
    body: String,
    response: String,
}

struct Compiled {
    template: Template,
    variables: Vec<Place>,
    body: BodyOf,
    response: Option<u16>,
    mask: Option<u16>,
}

/// Checks a rule against the types of its method.
fn compile(
    rule: &Text,
    schema: &Schema,
    input: &Message,
    output: &Message,
    client_streams: bool,
) -> Result<Compiled, Vec<String>> {
    let mut wrong = Vec::new();
    let template = Template::new(&rule.path).map_err(|e| wrong.push(e.to_string())).ok();
    let mut variables = Vec::new();
    for variable in template.iter().flat_map(|t| &t.variables) {
        match path_of(schema, input, &variable.field) {
            Ok(place) => variables.push(place),
            Err(e) => wrong.push(e),
        }
    }
    let body = match rule.body.as_str() {
        "" => BodyOf::None,
        "*" => BodyOf::All,
        name => match input.place(name) {
            Some(place) => {
                let bound = variables.iter().any(|v| v.first() == Some(&place) && v.len() == 1);
                if bound {
                    wrong.push(format!("the path and the body are both `{name}`"));
                }
                BodyOf::Field(place)
            }
            None => {
                wrong.push(format!("{} has no field `{name}` for the body", input.name));
                BodyOf::None
            }
        },
    };
    if body != BodyOf::None && matches!(rule.method.as_str(), "GET" | "HEAD") {
        wrong.push(format!("{} has no body, but the rule names one", rule.method));
    }
    if client_streams && (body != BodyOf::All || !variables.is_empty()) {
        wrong.push(
            "a stream of requests needs `body: \"*\"` and no variables: each message is in the body"
                .to_owned(),
        );
    }
    let response = match rule.response.as_str() {
        "" => None,
        name => {
            let place = output.place(name);
            if place.is_none() {
                wrong.push(format!("{} has no field `{name}` for the response", output.name));
            }
            place
        }
    };
    let mask = match body {
        BodyOf::Field(at) if rule.method == "PATCH" => mask::place(schema, input)
            .filter(|mask| *mask != at && variables.iter().all(|v| v.first() != Some(mask))),
        _ => None,
    };
    match template {
        Some(template) if wrong.is_empty() => Ok(Compiled { template, variables, body, response, mask }),
        _ => Err(wrong),
    }
}

/// The path to a field that a path variable can set.
fn path_of(schema: &Schema, input: &Message, path: &str) -> Result<Place, String> {
    let mut of = Some(input);
    let mut places = Place::new();
    let mut last = None;
    for name in path.split('.') {
        let Some(message) = of else {
            return Err(format!("`{path}` continues after a value that is not a message"));
        };
        let Some(at) = message.place(name) else {
            return Err(format!("{} has no field `{name}`", message.name));
        };
        let Some(field) = message.fields.get(usize::from(at)) else { continue };
        if field.shape != Shape::Once {
            return Err(format!("`{path}` is in the path, so it cannot be repeated or a map"));
        }
        places.push(at);
        of = match field.kind {
            Kind::Message(at) => schema.message(at),
            _ => None,
        };
        last = Some(field);
    }
    let is_text = of.is_none_or(|m| {
        matches!(m.known, Known::Duration | Known::FieldMask | Known::Timestamp | Known::Wrapper)
    });
    match last {
        Some(_) if is_text => Ok(places),
        _ => Err(format!("`{path}` is in the path, so it cannot be a message")),
    }
}

fn text(message: &DynamicMessage, name: &str) -> String {
    let value = message.get_field_by_name(name);
    value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list(message: &DynamicMessage, name: &str) -> Vec<Value> {
    let value = message.get_field_by_name(name);
    value.as_deref().and_then(Value::as_list).map(<[Value]>::to_vec).unwrap_or_default()
}

/// The source position of a method's rule: the line of the option or of the method, or the file.
fn place(method: &MethodDescriptor) -> String {
    const HTTP: i32 = 72_295_728;
    let file = method.parent_file();
    let name = file.name().to_owned();
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let path = method.path();
    let lines = info.into_iter().flat_map(|info| &info.location).filter_map(|location| {
        let rest = location.path.strip_prefix(path)?;
        let rank = match rest {
            [] => 0,
            [4, HTTP, ..] => 2,
            _ => return None,
        };
        Some((rank, *location.span.first()?))
    });
    // If the option has several parts, the line of the first.
    match lines.max_by_key(|(rank, line)| (*rank, -line)) {
        Some((_, line)) => format!("{name}:{}", line + 1),
        None => name,
    }
}

/// The comment above a method.
fn comment(method: &MethodDescriptor) -> String {
    let file = method.parent_file();
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location = info.and_then(|info| info.location.iter().find(|l| l.path == method.path()));
    location.and_then(|l| l.leading_comments.as_deref()).unwrap_or_default().trim().to_owned()
}
