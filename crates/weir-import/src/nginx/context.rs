//! What the parts of the translation share: the ledger, the config that is being built, and the tables of the source.

use super::block::Block;
use super::read::Directive;
use super::users::Users;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::template::Template;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Everything that a translation writes to, and the tables that it looks up.
pub(super) struct Cx<'a, 'l> {
    pub(super) ledger: &'l mut Ledger,
    pub(super) config: Config,
    /// The files of users that the source names.
    pub(super) users: Users,
    /// Blocks `upstream`, by name.
    pub(super) upstreams: HashMap<&'a str, &'a Directive>,
    /// Our upstreams by what they were made from, so that each is made once.
    pub(super) made_upstreams: BTreeMap<String, String>,
    /// Blocks `map` and `geo`, by their variable without `$`.
    pub(super) tables: HashMap<&'a str, &'a Directive>,
    /// Our maps by variable and what they look at, each with the texts that stand for values with variables; an error
    /// says why there is none.
    pub(super) made_maps: HashMap<String, Result<MadeMap, String>>,
    /// Variables of maps that are being looked up.
    pub(super) open_maps: Vec<&'a str>,
    /// `limit_req_zone` and `limit_conn_zone`, by kind and name.
    pub(super) zones: HashMap<(&'static str, &'a str), &'a Directive>,
    /// How many places use a zone.
    pub(super) zone_uses: HashMap<(&'static str, &'a str), usize>,
    /// `proxy_cache_path`, by the name of its zone.
    pub(super) caches: HashMap<&'a str, &'a Directive>,
    /// Whether something reads `$request_id`.
    pub(super) needs_request_id: bool,
}

/// The name of a map of ours, and its texts that stand for values with variables, each with that value.
pub(super) type MadeMap = (String, Vec<(String, String)>);

/// Where a text stands: what its variables may name.
#[derive(Clone, Debug)]
pub(super) struct Scope<'a> {
    pub(super) block: Rc<Block<'a>>,
    /// `set $x …` and `auth_request_set`.
    pub(super) set: BTreeMap<String, Template>,
    /// Groups of the route's pattern: numbers and names.
    pub(super) captures: BTreeSet<String>,
    /// `$server_name`.
    pub(super) server_name: String,
    /// `$server_port`, where the server has one.
    pub(super) server_port: Option<u16>,
    /// `$scheme`, where all listeners of the server have one.
    pub(super) scheme: Option<&'static str>,
    /// The path of the location, where it is a prefix or exact.
    pub(super) path: Option<String>,
    /// Whether the location is exact.
    pub(super) is_exact: bool,
}
