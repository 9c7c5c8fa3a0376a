//! `rewrite-target`: the path that the Service sees.

use super::super::Cx;
use super::annotations::Own;
use crate::config::Filter;
use crate::shared::filters::closed;
use crate::shared::order::Path;
use crate::yaml::Map;

/// `rewrite-target`: the whole path becomes this, with the groups of the path.
pub(super) fn rewritten(
    cx: &mut Cx<'_, '_>,
    own: &Own,
    known: &Path,
    one: &super::super::objects::Path,
) -> Option<Filter> {
    let (target, piece) = own.rewrite.as_ref()?;
    if *target == one.path {
        return None;
    }
    let whole = match known {
        Path::Regex { whole, .. } => Some(whole.as_str()),
        _ => None,
    };
    let out = match target_of(target, groups_of(whole)) {
        Ok(out) => out,
        Err(why) => {
            let nearest = if why == VARIABLES { "rewrite: { path }" } else { "rewrite: { path, query }" };
            cx.ledger.refused(*piece, format!("`{target}` {why}"), nearest);
            return Some(closed("rewrite-target cannot be read"));
        }
    };
    Some(Filter::new("rewrite", Map::new().with("path", out)))
}

/// Why a `rewrite-target` cannot be translated.
const VARIABLES: &str = "has variables";

/// The number of groups of a regular expression for a whole path; 0 without one.
pub(in crate::ingress_nginx) fn groups_of(whole: Option<&str>) -> usize {
    let compiled = whole.and_then(|whole| regex::bytes::RegexBuilder::new(whole).unicode(false).build().ok());
    compiled.map_or(0, |regex| regex.captures_len() - 1)
}

/// The path of a `rewrite-target`, for a pattern with this many groups.
pub(in crate::ingress_nginx) fn target_of(target: &str, groups: usize) -> Result<String, &'static str> {
    let mut out = String::new();
    let mut chars = target.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '$' => {
                let number = chars.next_if(char::is_ascii_digit).and_then(|digit| digit.to_digit(10));
                match number.map(|number| number as usize) {
                    // nginx writes nothing for a group that the pattern lacks.
                    Some(number) if number >= 1 && number <= groups => out.push_str(&format!("{{{number}}}")),
                    Some(_) => {}
                    None => return Err(VARIABLES),
                }
            }
            '{' | '}' => out.extend([c, c]),
            c => out.push(c),
        }
    }
    if target.contains(['?', '#']) || target.contains("://") {
        return Err("is more than a path");
    }
    Ok(if out.starts_with(['/', '{']) { out } else { format!("/{out}") })
}
