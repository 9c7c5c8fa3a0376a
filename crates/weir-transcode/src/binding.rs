//! A method, and a binding: what an HTTP request means to it. `rules` compiles them, `api` serves them.

use crate::template::Template;

/// The path of fields to a value, by their indexes.
pub(crate) type Place = Vec<u16>;

/// A method of a service.
#[derive(Debug)]
pub struct Method {
    /// `/package.Service/Method`
    pub path: String,
    /// `package.Service`
    pub service: String,
    /// `Method`
    pub name: String,
    /// Whether the request is a stream of messages.
    pub client_streams: bool,
    /// Whether the response is a stream of messages.
    pub server_streams: bool,
    /// Whether a call has no side effects, according to the proto.
    pub no_side_effects: bool,
    /// The comment above it.
    pub comment: String,
    pub(crate) input: u32,
    pub(crate) output: u32,
}

/// The HTTP requests that map to a method.
#[derive(Debug)]
pub struct Binding {
    pub(crate) method: usize,
    pub(crate) http: String,
    pub(crate) template: Template,
    pub(crate) variables: Vec<Place>,
    pub(crate) body: BodyOf,
    pub(crate) response: Option<u16>,
    /// The field mask to fill from the body of a PATCH if the client sends none.
    pub(crate) mask: Option<u16>,
    pub(crate) place: String,
}

/// The part of the message that the body of a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyOf {
    /// All fields that are not in the path.
    All,
    Field(u16),
    None,
}
