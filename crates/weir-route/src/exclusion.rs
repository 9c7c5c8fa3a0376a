//! One `not` of a route, as written.

use super::pattern::Case;

/// One `not` of a route: it excludes a request that meets all of it. Fields as in [`RouteSpec`](crate::RouteSpec).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    /// Its place in `match`: `not`, or `not[0]` of several.
    pub place: String,
    /// Hosts; empty for any.
    pub hosts: Vec<String>,
    /// Paths, one of which has to match; empty for any.
    pub paths: Vec<String>,
    /// How the letters of the paths are compared.
    pub case: Case,
    /// Methods.
    pub methods: Vec<String>,
    /// Names and values of fields.
    pub headers: Vec<(String, String)>,
    /// Names and values of parameters.
    pub query: Vec<(String, String)>,
    /// Names and values of cookies.
    pub cookies: Vec<(String, String)>,
    /// Networks.
    pub clients: Vec<String>,
    /// Numbers of listeners.
    pub listeners: Vec<u16>,
}

impl Exclusion {
    /// Whether it excludes the same, wherever it stands.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Self { place: String::new(), ..self.clone() } == Self { place: String::new(), ..other.clone() }
    }
}
