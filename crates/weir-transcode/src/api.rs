//! A service seen from outside: its methods, the HTTP requests that map to them, and its messages in both directions.

use crate::binding::{Binding, BodyOf, Method};
use crate::fields;
use crate::mask;
use crate::options::{JsonOptions, Limits};
use crate::parse::{ParseError, Parser};
use crate::print::{PrintError, Printer};
use crate::router::{Found, Router, Target, segments, without_verb};
use crate::rules::{self, Choice, RuleError};
use crate::schema::{Known, Message, Names, Schema};
use crate::wire::{self, Value};
use prost_reflect::DescriptorPool;

/// A service's methods and how to call them.
#[derive(Debug)]
pub struct Api {
    pub(crate) schema: Schema,
    pub(crate) methods: Vec<Method>,
    pub(crate) bindings: Vec<Binding>,
    refused: Vec<RuleError>,
    router: Router,
    /// Method indexes by path.
    by_path: Names<usize>,
    options: JsonOptions,
    limits: Limits,
}

/// The meaning of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This call.
    Call(Call),
    /// A bound path, but only with these methods.
    Methods(Vec<String>),
    /// The path contains bytes that are not text.
    NotText,
    /// No binding.
    Nothing,
    /// The rule is refused for this reason.
    Refused(RuleError),
}

/// A matched request: its binding, and the values from the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    binding: usize,
    values: Vec<String>,
}

impl Api {
    /// Builds an API from descriptors. Omits rules that cannot be served: [`Self::refused`] lists them.
    ///
    /// # Errors
    /// Why nothing can be served: a chosen service that does not exist, or too many types or rules.
    pub fn new(
        pool: &DescriptorPool,
        choice: &Choice,
        options: JsonOptions,
        limits: Limits,
    ) -> Result<Self, Vec<RuleError>> {
        let whole = |message| vec![RuleError { message, ..RuleError::default() }];
        let schema = Schema::new(pool).map_err(whole)?;
        let rules = rules::read(pool, &schema, choice);
        if !rules.errors.is_empty() {
            return Err(rules.errors);
        }
        let rules::Rules { methods, bindings, router, refused, .. } = rules;
        let by_path = methods.iter().enumerate().map(|(at, m)| (m.path.as_str().into(), at)).collect();
        Ok(Self { schema, methods, bindings, refused, router, by_path, options, limits })
    }

    /// Its methods.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The number of bindings, over all methods.
    pub fn bindings(&self) -> usize {
        self.bindings.len()
    }

    /// The rules that are not served, and why.
    pub fn refused(&self) -> &[RuleError] {
        &self.refused
    }

    /// The limits given at construction.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// The meaning of a request with this path, which must be in canonical form.
    pub fn find(&self, method: &str, path: &[u8]) -> Lookup {
        let Some(segments) = segments(path) else { return Lookup::Nothing };
        match self.router.find(method, &segments) {
            Found::Nothing => Lookup::Nothing,
            Found::Methods(methods) => Lookup::Methods(methods),
            Found::Target(Target::Refused(at)) => {
                self.refused.get(at).map_or(Lookup::Nothing, |why| Lookup::Refused(why.clone()))
            }
            Found::Target(Target::Binding(binding)) => {
                let Some(found) = self.bindings.get(binding) else { return Lookup::Nothing };
                if found.variables.is_empty() {
                    return Lookup::Call(Call { binding, values: Vec::new() });
                }
                let segments = without_verb(&found.template, segments);
                match found.template.values(&segments, path) {
                    Some(values) => {
                        let values = values.into_iter().map(|v| v.into_owned()).collect();
                        Lookup::Call(Call { binding, values })
                    }
                    None => Lookup::NotText,
                }
            }
        }
    }

    /// The method that a gRPC path names, and its index among the methods.
    pub fn method_at(&self, path: &[u8]) -> Option<(usize, &Method)> {
        let at = *self.by_path.get(std::str::from_utf8(path).ok()?)?;
        Some((at, self.methods.get(at)?))
    }

    /// The method of a call.
    pub fn method(&self, call: &Call) -> Option<&Method> {
        self.methods.get(self.bindings.get(call.binding)?.method)
    }

    /// The rule that matched a call: `GET /v1/{name}`.
    pub fn rule(&self, call: &Call) -> Option<String> {
        let binding = self.bindings.get(call.binding)?;
        Some(format!("{} {}", binding.http, binding.template.text))
    }

    /// The source position of that rule.
    pub fn place(&self, call: &Call) -> Option<&str> {
        self.bindings.get(call.binding).map(|b| b.place.as_str())
    }

    fn parts(&self, call: &Call) -> Option<(&Binding, &Message, &Message)> {
        let binding = self.bindings.get(call.binding)?;
        let method = self.methods.get(binding.method)?;
        Some((binding, self.schema.message(method.input)?, self.schema.message(method.output)?))
    }

    fn message_of(&self, of: &Message, place: u16) -> Option<&Message> {
        match of.fields.get(usize::from(place))?.kind {
            crate::schema::Kind::Message(at) => self.schema.message(at),
            _ => None,
        }
    }

    /// Appends the message that a request stands for.
    ///
    /// # Errors
    /// The field that does not fit.
    pub fn request(&self, call: &Call, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), ParseError> {
        let Some((binding, input, _)) = self.parts(call) else { return Ok(()) };
        match binding.body {
            BodyOf::All if input.known == Known::HttpBody => raw(request, out),
            BodyOf::All => self.parser(out).message(input, request.body)?,
            BodyOf::Field(at) => {
                let Some(field) = input.fields.get(usize::from(at)) else { return Ok(()) };
                match self.message_of(input, at) {
                    Some(of) if of.known == Known::HttpBody => {
                        wire::write_key(field.number, wire::BYTES, out);
                        let begun = wire::open(out);
                        raw(request, out);
                        wire::close(begun, out);
                    }
                    _ => self.parser(out).field(field, request.body)?,
                }
            }
            BodyOf::None => {}
        }
        // Later fields win: the path overrides the same field in the body.
        if binding.body != BodyOf::All {
            let types = fields::Types { schema: &self.schema, options: self.options, limits: self.limits };
            let has_mask = fields::query(types, binding, input, request.query, out)?;
            if let (Some(mask), BodyOf::Field(at), false) = (binding.mask, binding.body, has_mask) {
                self.make_mask(input, mask, at, request.body, out)?;
            }
        }
        for (place, value) in binding.variables.iter().zip(&call.values) {
            fields::append(&self.schema, input, place, fields::Text { text: value, key: None }, out)?;
        }
        if out.len() > self.limits.message {
            let message = format!("the message is longer than {} bytes", self.limits.message);
            return Err(ParseError { path: String::new(), message });
        }
        Ok(())
    }

    /// Appends the field mask of a PATCH. Without it, a service would treat the fields that the client omitted as
    /// empty.
    fn make_mask(
        &self,
        input: &Message,
        mask: u16,
        body: u16,
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ParseError> {
        let (Some(field), Some(of)) = (input.fields.get(usize::from(mask)), self.message_of(input, body))
        else {
            return Ok(());
        };
        let most = self.limits.message;
        let paths = mask::of_body(&self.schema, of, json, most).ok_or_else(|| ParseError {
            path: field.json_name.to_string(),
            message: format!("the mask of all fields in the body is longer than {most} bytes"),
        })?;
        if !paths.is_empty() {
            wire::write_bytes(field.number, &paths, out);
        }
        Ok(())
    }

    /// Appends one message of a request stream.
    ///
    /// # Errors
    /// The field that does not fit.
    pub fn request_message(&self, call: &Call, json: &[u8], out: &mut Vec<u8>) -> Result<(), ParseError> {
        match self.parts(call) {
            Some((_, input, _)) => self.parser(out).message(input, json),
            None => Ok(()),
        }
    }

    fn parser<'a, 'o>(&'a self, out: &'o mut Vec<u8>) -> Parser<'a, 'o> {
        Parser::new(&self.schema, self.options, self.limits, out)
    }

    pub(crate) const fn options(&self) -> JsonOptions {
        self.options
    }

    /// Whether responses of a call are raw bytes with their own type instead of JSON.
    pub fn answers_raw(&self, call: &Call) -> bool {
        self.raw_output(call).is_some()
    }

    /// Where the raw bytes are: the whole message, or one of its fields.
    fn raw_output(&self, call: &Call) -> Option<Option<u32>> {
        let (binding, _, output) = self.parts(call)?;
        match binding.response {
            None => (output.known == Known::HttpBody).then_some(None),
            Some(at) => {
                let of = self.message_of(output, at)?;
                let number = output.fields.get(usize::from(at))?.number;
                (of.known == Known::HttpBody).then_some(Some(number))
            }
        }
    }

    /// Appends the client's form of a response message: JSON, or raw bytes, whose type is returned.
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub fn response(
        &self,
        call: &Call,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<String>, PrintError> {
        let malformed = || PrintError { message: "the bytes are no message of this type".to_owned() };
        if let Some(place) = self.raw_output(call) {
            let (media, data) = http_body(message, place).ok_or_else(malformed)?;
            out.extend_from_slice(&data);
            return Ok(Some(media));
        }
        let Some((binding, _, output)) = self.parts(call) else { return Ok(None) };
        let mut printer = Printer::new(&self.schema, self.options, self.limits, out);
        match binding.response {
            Some(at) => printer.only(output, at, message)?,
            None => printer.message(output, message)?,
        }
        Ok(None)
    }

    /// Appends an input message of a method, parsed from JSON.
    ///
    /// # Errors
    /// The field that does not fit.
    pub fn read(&self, method: &Method, json: &[u8], out: &mut Vec<u8>) -> Result<(), ParseError> {
        let Some(input) = self.schema.message(method.input) else { return Ok(()) };
        let before = out.len();
        self.parser(out).message(input, json)?;
        if out.len().saturating_sub(before) > self.limits.message {
            let message = format!("the message is longer than {} bytes", self.limits.message);
            return Err(ParseError { path: String::new(), message });
        }
        Ok(())
    }

    /// Appends an output message of a method as JSON.
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub fn write(&self, method: &Method, message: &[u8], out: &mut Vec<u8>) -> Result<(), PrintError> {
        let Some(output) = self.schema.message(method.output) else { return Ok(()) };
        Printer::new(&self.schema, self.options, self.limits, out).message(output, message)
    }

    /// Appends a message of any known type as JSON.
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub fn print(&self, name: &str, message: &[u8], out: &mut Vec<u8>) -> Result<(), PrintError> {
        let of = self.schema.named(name).and_then(|at| self.schema.message(at));
        let unknown = || PrintError { message: format!("the type {name} is not known") };
        Printer::new(&self.schema, self.options, self.limits, out).message(of.ok_or_else(unknown)?, message)
    }

    /// Appends a message of a known type, parsed from JSON.
    ///
    /// # Errors
    /// The field that does not fit.
    pub fn parse(&self, name: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), ParseError> {
        let of = self.schema.named(name).and_then(|at| self.schema.message(at));
        let unknown = || ParseError { path: String::new(), message: format!("the type {name} is not known") };
        self.parser(out).message(of.ok_or_else(unknown)?, json)
    }
}

/// The parts of a request that form a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The query, without its `?`.
    pub query: Option<&'a [u8]>,
    /// The type of the body.
    pub media: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// `google.api.HttpBody`.
fn raw(request: &Request<'_>, out: &mut Vec<u8>) {
    if !request.media.is_empty() && std::str::from_utf8(request.media).is_ok() {
        wire::write_bytes(1, request.media, out);
    }
    if !request.body.is_empty() {
        wire::write_bytes(2, request.body, out);
    }
}

/// The type and bytes of an `HttpBody` in a message, or in one of its fields.
fn http_body(message: &[u8], place: Option<u32>) -> Option<(String, Vec<u8>)> {
    let (mut media, mut data) = (String::new(), Vec::new());
    let mut rest = message;
    while !rest.is_empty() {
        match (place, wire::field(&mut rest).ok()?) {
            (Some(number), (found, Value::Bytes(bytes))) if number == found => return http_body(bytes, None),
            (None, (1, Value::Bytes(bytes))) => media = String::from_utf8(bytes.to_vec()).ok()?,
            (None, (2, Value::Bytes(bytes))) => data = bytes.to_vec(),
            _ => {}
        }
    }
    if media.is_empty() {
        media.push_str("application/octet-stream");
    }
    Some((media, data))
}
