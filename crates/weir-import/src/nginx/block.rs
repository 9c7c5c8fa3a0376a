//! A block of directives with the blocks around it: what a location inherits.

use super::read::Directive;
use std::collections::HashMap;
use std::rc::Rc;

/// The directives of a block by name, and the block around it.
#[derive(Debug)]
pub(super) struct Block<'a> {
    by_name: HashMap<&'a str, Vec<&'a Directive>>,
    all: Vec<&'a Directive>,
    unknown_guards: Vec<&'a Directive>,
    parent: Option<Rc<Self>>,
}

impl<'a> Block<'a> {
    pub(super) fn new(
        directives: impl IntoIterator<Item = &'a Directive>,
        parent: Option<Rc<Self>>,
    ) -> Rc<Self> {
        let mut by_name: HashMap<&str, Vec<&Directive>> = HashMap::new();
        let all: Vec<&Directive> = directives.into_iter().collect();
        for directive in &all {
            by_name.entry(&directive.name).or_default().push(directive);
        }
        let unknown_guards = all.iter().filter(|directive| may_guard(&directive.name)).copied().collect();
        Rc::new(Self { by_name, all, unknown_guards, parent })
    }

    /// Directives, of this block and those around it, that may keep somebody out and that weir import does not know.
    pub(super) fn unknown_guards(&self) -> impl Iterator<Item = &'a Directive> {
        self.outward().flat_map(|block| block.unknown_guards.iter().copied())
    }

    /// All directives of this block alone, in order.
    pub(super) fn all(&self) -> &[&'a Directive] {
        &self.all
    }

    /// The directives of this name in this block alone.
    pub(super) fn own(&self, name: &str) -> &[&'a Directive] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The directives of this name in the innermost block that has any: nginx inherits all of a kind or none.
    pub(super) fn nearest(&self, name: &str) -> Vec<&'a Directive> {
        let mut block = Some(self);
        while let Some(here) = block {
            if let Some(found) = here.by_name.get(name) {
                return found.clone();
            }
            block = here.parent.as_deref();
        }
        Vec::new()
    }

    /// The innermost directive of this name.
    pub(super) fn one(&self, name: &str) -> Option<&'a Directive> {
        self.nearest(name).last().copied()
    }

    /// Whether the innermost directive of this name says `on`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.first() == "on")
    }

    /// This block and those around it, innermost first.
    pub(super) fn outward(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |block| block.parent.as_deref())
    }
}

/// Directives of nginx itself whose names look like those of guards.
const NO_GUARDS: &[&str] = &[
    "access_log",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_delay",
    "auth_request",
    "auth_request_set",
    "deny",
    "limit_conn",
    "limit_conn_log_level",
    "limit_conn_status",
    "limit_conn_zone",
    "limit_except",
    "limit_rate",
    "limit_rate_after",
    "limit_req",
    "limit_req_log_level",
    "limit_req_status",
    "limit_req_zone",
];

/// Whether a directive may keep somebody out, by its name: modules of others are not known.
pub(super) fn may_guard(name: &str) -> bool {
    let words = [
        "access",
        "allow",
        "auth",
        "block",
        "bot",
        "captcha",
        "deny",
        "guard",
        "jwt",
        "limit",
        "modsec",
        "naxsi",
        "reject",
        "rewrite_by_lua",
        "secrules",
        "secure_link",
        "token",
        "waf",
    ];
    let lower = name.to_ascii_lowercase();
    let is_late =
        ["content_by", "log_by", "filter_by", "balancer_by", "init"].iter().any(|word| lower.contains(word));
    // An `include` whose file is missing.
    lower == "include"
        || !NO_GUARDS.contains(&&*lower)
            && !is_late
            && !lower.starts_with("server_tokens")
            && words.iter().any(|word| lower.contains(word))
}
