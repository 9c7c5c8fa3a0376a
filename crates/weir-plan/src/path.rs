//! Paths into JSON: the part of JSONPath (RFC 9535) with names, positions, `*` and `..`, without filters and slices.

use serde_json::Value;

/// Most values of a document that a search looks at. `..` several times in a row would look at the same ones again and
/// again.
const LOOKED_AT: usize = 1_000_000;

/// Most matches of one path.
pub(crate) const MATCHES: usize = 10_000;

/// A path such as `$.items[*].id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All members or items.
    All,
    /// The value itself and everything below it.
    Below,
    /// An item: from the start, or from the end if negative.
    Index(i64),
    Name(String),
}

/// A search visited or matched too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Path {
    /// Reads a path; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('$')?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let is_below = rest.starts_with("..");
            if is_below {
                steps.push(Step::Below);
                // `..name`, `..*` and `..[…]`.
                rest = rest.get(if rest.starts_with("..[") { 2 } else { 1 }..)?;
            }
            if let Some(dotted) = rest.strip_prefix('.') {
                let end = dotted.find(['.', '[']).unwrap_or(dotted.len());
                let (name, after) = dotted.split_at(end);
                steps.push(match name {
                    "" => return None,
                    "*" => Step::All,
                    name => Step::Name(name.to_owned()),
                });
                rest = after;
            } else {
                let inside = rest.strip_prefix('[')?;
                let quote = inside.chars().next().filter(|c| matches!(c, '\'' | '"'));
                let (step, after) = match quote {
                    Some(quote) => {
                        let (name, after) = inside.get(1..)?.split_once(quote)?;
                        (Step::Name(name.to_owned()), after.strip_prefix(']')?)
                    }
                    None => {
                        let (inside, after) = inside.split_once(']')?;
                        let step = if inside == "*" { Step::All } else { Step::Index(inside.parse().ok()?) };
                        (step, after)
                    }
                };
                steps.push(step);
                rest = after;
            }
        }
        Some(Self(steps))
    }

    /// Whether it may match several values.
    pub(crate) fn is_plural(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::All | Step::Below))
    }

    /// Its steps.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The values at the path, in the order of the document.
    pub(crate) fn find<'j>(&self, json: &'j Value) -> Result<Vec<&'j Value>, TooMany> {
        let mut found = vec![json];
        let mut left = LOOKED_AT;
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                match step {
                    Step::All => children(value, &mut next),
                    Step::Below => below(value, &mut next, &mut left)?,
                    Step::Index(at) => next.extend(item(value, *at)),
                    Step::Name(name) => next.extend(value.get(name)),
                }
                left = left.checked_sub(1).ok_or(TooMany)?;
                if next.len() > LOOKED_AT {
                    return Err(TooMany);
                }
            }
            found = next;
        }
        if found.len() > MATCHES { Err(TooMany) } else { Ok(found) }
    }
}

fn item(value: &Value, at: i64) -> Option<&Value> {
    let items = value.as_array()?;
    let back = usize::try_from(at.unsigned_abs()).ok()?;
    items.get(if at < 0 { items.len().checked_sub(back)? } else { back })
}

fn children<'j>(value: &'j Value, out: &mut Vec<&'j Value>) {
    match value {
        Value::Array(items) => out.extend(items),
        Value::Object(members) => out.extend(members.values()),
        _ => {}
    }
}

/// The value and all below it, each before its children. The parser bounds the depth, but this needs no recursion.
fn below<'j>(value: &'j Value, out: &mut Vec<&'j Value>, left: &mut usize) -> Result<(), TooMany> {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        *left = left.checked_sub(1).ok_or(TooMany)?;
        out.push(value);
        let from = open.len();
        children(value, &mut open);
        if let Some(added) = open.get_mut(from..) {
            added.reverse();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_match_their_values() {
        let json =
            json!({"a": {"b": [1, 5, {"id": 7}]}, "x y": "Ann", "items": [{"id": 1}, {"id": 2}], "a]": 3});
        for (path, want) in [
            ("$.a.b[1]", json!([5])),
            ("$.a.b[-1].id", json!([7])),
            ("$.a.b[-4]", json!([])),
            ("$['x y']", json!(["Ann"])),
            ("$[\"a]\"]", json!([3])),
            ("$.items[*].id", json!([1, 2])),
            ("$.items.*.id", json!([1, 2])),
            ("$..id", json!([7, 1, 2])),
            ("$..b[0]", json!([1])),
            ("$..[2]", json!([{"id": 7}])),
            ("$.a.*", json!([[1, 5, {"id": 7}]])),
            ("$.none", json!([])),
            ("$.a.b.c", json!([])),
        ] {
            let found = Path::parse(path).unwrap().find(&json).unwrap();
            assert_eq!(json!(found), want, "{path}");
        }
        assert_eq!(Path::parse("$").unwrap().find(&json), Ok(vec![&json]));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in ["", "a", "$.", "$x", "$[x]", "$[1", "$['a]", "$..", "$...a", "$.a..", "$[]", "$['a'x]"] {
            assert_eq!(Path::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_search_ends() {
        let mut json = json!([1, 2, 3]);
        for _ in 0..100 {
            json = json!([json, json!({ "a": 1 })]);
        }
        assert_eq!(Path::parse("$..*..*..*..*..*").unwrap().find(&json), Err(TooMany));
        assert!(Path::parse("$..a").unwrap().find(&json).is_ok());
    }
}
