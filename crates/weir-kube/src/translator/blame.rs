//! Finds the object behind a mistake that Weir reports, from the path, the message or the line. An address that the
//! system does not let us listen on is nobody's mistake; it is read from the message.

use super::{GatewayApi, REASON};
use crate::objects::{Kind, Name};
use crate::translate::Owners;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_config::Diagnostic;

/// Who is to blame for a mistake.
pub(super) struct Blamed {
    /// The thing of the config, unless all that was made of the object is meant.
    pub(super) thing: Option<Arc<str>>,
    pub(super) owner: (Kind, Name),
}

impl GatewayApi {
    /// Who is to blame for a mistake, if anybody is: one tenant's text must not keep the config of all from running.
    pub(super) fn blamed(&self, mistake: &Diagnostic) -> Option<Blamed> {
        let by_place = || match (mistake.code, &mistake.place) {
            _ if !mistake.path.is_empty() => None,
            ("too-large", _) => Some(Blamed { thing: None, owner: self.greatest()?.clone() }),
            (_, place) => self.on_line(place.as_ref()?.line),
        };
        // What the system refuses has its place in the message.
        let by_message = || self.thing(Some(&mistake.message).filter(|text| text.starts_with("listeners."))?);
        self.thing(&mistake.path).or_else(by_message).or_else(by_place)
    }

    /// The thing that a path of a diagnostic names, such as `routes.NAME.match.path`, and its object.
    fn thing(&self, path: &str) -> Option<Blamed> {
        let (_, rest) = path.split_once('.')?;
        // Names may have dots, so the longest that fits is meant.
        let ends = rest.match_indices(['.', ':', '[', ' ']).map(|(at, _)| at).chain([rest.len()]);
        ends.rev().find_map(|end| self.named(rest.get(..end)?))
    }

    /// The thing that stands on a line of the config, and its object.
    fn on_line(&self, number: u32) -> Option<Blamed> {
        let before = usize::try_from(number).ok()?.checked_sub(1)?;
        self.named(thing_of(self.text.lines().nth(before)?)?)
    }

    fn named(&self, thing: &str) -> Option<Blamed> {
        let (thing, owner) = self.owners.get_key_value(thing)?;
        Some(Blamed { thing: Some(Arc::clone(thing)), owner: (**owner).clone() })
    }

    /// Who has most of a config that is too large: of the namespace with the most text, the longest object.
    fn greatest(&self) -> Option<&(Kind, Name)> {
        let mut of_object = sizes(&self.text, &self.owners);
        of_object.retain(|owner, _| !self.options.refused.contains_key(*owner));
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        for (owner, size) in &of_object {
            *of_namespace.entry(&owner.1.namespace).or_default() += *size;
        }
        let (namespace, _) = of_namespace.into_iter().max_by_key(|(_, size)| *size)?;
        let its = of_object.into_iter().filter(|((_, name), _)| name.namespace == namespace);
        its.max_by_key(|(_, size)| *size).map(|(owner, _)| owner)
    }
}

/// Whether a path of a diagnostic is of this route of the config, but not of what it matches.
pub(super) fn is_behind_match(path: &str, route: &str) -> bool {
    let rest = path.strip_prefix("routes.").and_then(|path| path.strip_prefix(route));
    let keys = [".filters", ".upstream", ".respond", ".timeouts"];
    rest.is_some_and(|rest| keys.iter().any(|key| rest.starts_with(key)))
}

/// The address that no interface of this machine has, if that is why it cannot be listened on.
pub(super) fn missing_address(message: &str) -> Option<IpAddr> {
    let message = message.strip_prefix("listeners.")?;
    let (address, why) = message.split_once("cannot listen on ")?.1.split_once(": ")?;
    let is_missing = why.contains("(os error 99)"); // EADDRNOTAVAIL on Linux
    address.parse::<SocketAddr>().ok().filter(|_| is_missing).map(|address| address.ip())
}

/// The address where the system does not let us listen, and why, if that is what a message says. Whose socket it is
/// concerns no tenant.
pub(super) fn busy_address(message: &str) -> Option<(SocketAddr, String)> {
    let (_, said) = message.strip_prefix("listeners.")?.split_once(": ")?;
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    if let Some((taken, _)) = said.split_once(" is taken by ") {
        let taken = address(taken)?;
        return Some((taken, format!("another process listens on {taken}")));
    }
    let (refused, why) = said.strip_prefix("cannot listen on ")?.split_once(": ")?;
    let refused = address(refused)?;
    Some((refused, format!("cannot listen on {refused}: {why}").chars().take(REASON).collect()))
}

/// How many bytes of a config each object has.
pub(super) fn sizes<'a>(text: &str, owners: &'a Owners) -> BTreeMap<&'a (Kind, Name), usize> {
    let mut all: BTreeMap<_, usize> = BTreeMap::new();
    for line in text.lines() {
        if let Some(owner) = thing_of(line).and_then(|name| owners.get(name)) {
            *all.entry(&**owner).or_default() += line.len();
        }
    }
    all
}

/// The name of the thing that stands on a line of a config.
pub(super) fn thing_of(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix('"')?.split_once("\":")?.0)
}
