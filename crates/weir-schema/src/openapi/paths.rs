//! Templates of paths, such as `/orders/{id}/items/{item}.json`, and which of them a path fits.

use percent_encoding::percent_decode;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Names in one segment: `{a}-{b}`.
const NAMES: usize = 4;

/// A compiled template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
}

/// The part between two slashes.
#[derive(Debug, PartialEq, Eq)]
enum Segment {
    /// Decoded.
    Literal(Vec<u8>),
    /// At least one name, perhaps with text around it.
    Pattern(Vec<Piece>),
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// As written: in a path that is canonical, what such text consists of has one form.
    Literal(Vec<u8>),
    Name(String),
}

/// What a path has in place of names, still encoded.
pub(super) type Captures<'t, 'p> = Vec<(&'t str, &'p [u8])>;

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else { return Err("does not begin with `/`".to_owned()) };
        let mut names = Vec::new();
        let segments =
            rest.split('/').map(|segment| Segment::parse(segment, &mut names)).collect::<Result<_, _>>()?;
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(format!("has `{{{}}}` twice", twice[0])),
            None => Ok(Self { segments }),
        }
    }

    /// The names in it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let pieces = self.segments.iter().flat_map(|segment| match segment {
            Segment::Literal(_) => &[][..],
            Segment::Pattern(pieces) => pieces,
        });
        pieces.filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Name(name) => Some(name.as_str()),
        })
    }

    /// Which of two is compared first: text before patterns, from the left (OpenAPI: concrete before templated).
    fn order(&self, other: &Self) -> Ordering {
        self.segments.iter().map(Segment::rank).cmp(other.segments.iter().map(Segment::rank))
    }

    /// Whether every path that fits one fits the other.
    fn is_alias(&self, other: &Self) -> bool {
        let same = |(a, b): (&Segment, &Segment)| match (a, b) {
            (Segment::Literal(a), Segment::Literal(b)) => a == b,
            (Segment::Pattern(a), Segment::Pattern(b)) => {
                let text = |piece: &Piece| match piece {
                    Piece::Literal(text) => Some(text.clone()),
                    Piece::Name(_) => None,
                };
                a.iter().map(text).eq(b.iter().map(text))
            }
            _ => false,
        };
        self.segments.len() == other.segments.len() && self.segments.iter().zip(&other.segments).all(same)
    }

    fn captures<'t, 'p>(&'t self, path: &[&'p [u8]]) -> Option<Captures<'t, 'p>> {
        let mut found = Vec::new();
        for (segment, text) in self.segments.iter().zip(path) {
            match segment {
                Segment::Literal(literal) if literal == text => {}
                Segment::Literal(literal)
                    if text.contains(&b'%') && percent_decode(text).eq(literal.iter().copied()) => {}
                Segment::Literal(_) => return None,
                Segment::Pattern(pieces) => take(pieces, text, &mut found)?,
            }
        }
        Some(found)
    }
}

impl Segment {
    fn parse<'s>(text: &'s str, names: &mut Vec<&'s str>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!("has a `{{` without its `}}` in `{text}`"));
            };
            if name.is_empty() || name.contains('{') {
                return Err(format!("has a name that is empty or no name in `{text}`"));
            }
            if !before.is_empty() {
                pieces.push(Piece::Literal(before.as_bytes().to_vec()));
            } else if matches!(pieces.last(), Some(Piece::Name(_))) {
                return Err(format!("has two names with nothing between them in `{text}`"));
            }
            pieces.push(Piece::Name(name.to_owned()));
            names.push(name);
            rest = after;
        }
        if pieces.is_empty() {
            return Ok(Self::Literal(percent_decode(text.as_bytes()).collect()));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.as_bytes().to_vec()));
        }
        if pieces.iter().filter(|piece| matches!(piece, Piece::Name(_))).count() > NAMES {
            return Err(format!("has more than {NAMES} names in `{text}`"));
        }
        Ok(Self::Pattern(pieces))
    }

    /// The less, the earlier it is compared.
    fn rank(&self) -> u8 {
        match self {
            Self::Literal(_) => 0,
            Self::Pattern(pieces) if pieces.len() > 1 => 1,
            Self::Pattern(_) => 2,
        }
    }
}

/// Fits text to pieces. A name takes at least one byte, and ends where the text behind it first occurs; the last text
/// has to end the segment. Linear.
fn take<'t, 'p>(pieces: &'t [Piece], text: &'p [u8], found: &mut Captures<'t, 'p>) -> Option<()> {
    match pieces {
        [] => text.is_empty().then_some(()),
        [Piece::Literal(literal), rest @ ..] => take(rest, text.strip_prefix(literal.as_slice())?, found),
        [Piece::Name(name)] => {
            found.push((name, Some(text).filter(|text| !text.is_empty())?));
            Some(())
        }
        [Piece::Name(name), Piece::Literal(literal), rest @ ..] => {
            let end = match rest {
                [] => {
                    text.len().checked_sub(literal.len()).filter(|end| text.ends_with(literal) && *end > 0)?
                }
                _ => text.windows(literal.len()).skip(1).position(|window| window == literal.as_slice())? + 1,
            };
            found.push((name, text.get(..end)?));
            take(rest, text.get(end + literal.len()..)?, found)
        }
        [Piece::Name(_), Piece::Name(_), ..] => None, // refused when it was parsed
    }
}

/// All templates of a document.
#[derive(Debug, Default)]
pub(super) struct Paths {
    templates: Vec<Template>,
    /// By the number of segments, in the order in which they are compared.
    by_length: HashMap<usize, Vec<usize>>,
    /// What may stand before a path, longest first: the paths of all `servers`.
    bases: Vec<Base>,
    /// By template: whether an operation is served where the document says for all, and the bases of others.
    served: Vec<(bool, Vec<Vec<u8>>)>,
}

/// What may stand before a path.
#[derive(Debug)]
struct Base {
    path: Vec<u8>,
    /// It stands before every path that does not say another.
    general: bool,
}

impl Paths {
    /// With these bases; without one, paths are taken as they are.
    pub(super) fn new(mut bases: Vec<Vec<u8>>) -> Self {
        if bases.is_empty() {
            bases.push(Vec::new());
        }
        let mut paths = Self::default();
        bases.into_iter().for_each(|base| paths.add_base(base, true));
        paths
    }

    fn add_base(&mut self, path: Vec<u8>, general: bool) {
        if let Some(known) = self.bases.iter_mut().find(|base| base.path == path) {
            known.general |= general;
            return;
        }
        let place = self.bases.partition_point(|base| base.path.len() >= path.len());
        self.bases.insert(place, Base { path, general });
    }

    /// Notes where an operation of a template is served: below these bases, or where the document says for all.
    pub(super) fn serve(&mut self, bases: &Option<Vec<Vec<u8>>>, template: usize) {
        if let Some((general, own)) = self.served.get_mut(template) {
            match bases {
                None => *general = true,
                Some(bases) => own.extend(bases.iter().cloned()),
            }
        }
        bases.iter().flatten().for_each(|base| self.add_base(base.clone(), false));
    }

    /// Whether an operation is served below the base with this number.
    pub(super) fn allows(&self, bases: &Option<Vec<Vec<u8>>>, base: usize) -> bool {
        self.bases.get(base).is_some_and(|base| match bases {
            None => base.general,
            Some(bases) => bases.contains(&base.path),
        })
    }

    /// Adds a template and returns its number, or that of one that it cannot be told from.
    pub(super) fn add(&mut self, template: Template) -> Result<usize, usize> {
        let all = self.by_length.entry(template.segments.len()).or_default();
        let templates = &self.templates;
        if let Some(same) =
            all.iter().find(|at| templates.get(**at).is_some_and(|known| known.is_alias(&template)))
        {
            return Err(*same);
        }
        let place =
            all.partition_point(|at| templates.get(*at).is_some_and(|known| known.order(&template).is_le()));
        let at = templates.len();
        all.insert(place, at);
        self.templates.push(template);
        self.served.push((false, Vec::new()));
        Ok(at)
    }

    /// The template that a path fits, and the number of the base before it.
    pub(super) fn find<'p>(&self, path: &'p [u8]) -> Option<(usize, Captures<'_, 'p>, usize)> {
        self.bases.iter().enumerate().find_map(|(number, base)| {
            let below = path.strip_prefix(base.path.as_slice())?.strip_prefix(b"/")?;
            let segments: Vec<&[u8]> = below.split(|&b| b == b'/').collect();
            let all = self.by_length.get(&segments.len())?;
            all.iter().find_map(|&at| {
                let (general, own) = self.served.get(at)?;
                let is_served = *general && base.general || own.contains(&base.path);
                let captures = self.templates.get(at).filter(|_| is_served)?.captures(&segments)?;
                Some((at, captures, number))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_concrete_wins() {
        let all = [
            "/orders/{id}",
            "/{any}/mine",
            "/orders/mine",
            "/orders/{id}.json",
            "/",
            "/a/{x}-{y}/",
            "/orders/{a}/b c",
        ];
        let mut paths = Paths::new(vec![b"/v1".to_vec(), b"/v1/x".to_vec()]);
        for text in all {
            let at = paths.add(Template::parse(text).unwrap()).unwrap();
            paths.serve(&None, at);
        }
        for (path, expected) in [
            ("/v1/orders/mine", Some(("/orders/mine", ""))),
            ("/v1/orders/42", Some(("/orders/{id}", "id=42"))),
            ("/v1/orders/42.json", Some(("/orders/{id}.json", "id=42"))),
            ("/v1/orders/.json", Some(("/orders/{id}", "id=.json"))),
            ("/v1/carts/mine", Some(("/{any}/mine", "any=carts"))),
            ("/v1/x/orders/42", Some(("/orders/{id}", "id=42"))),
            ("/v1/orders/a%2Fb", Some(("/orders/{id}", "id=a%2Fb"))),
            ("/v1/orders/1/b%20c", Some(("/orders/{a}/b c", "a=1"))),
            ("/v1/a/1-2-3/", Some(("/a/{x}-{y}/", "x=1 y=2-3"))),
            ("/v1/", Some(("/", ""))),
            ("/v1", None),
            ("/v1/orders", None),
            ("/v1/orders/", None),
            ("/v1orders/42", None),
            ("/orders/42", None),
            ("/v1/Orders/mine2", None),
        ] {
            let found = paths.find(path.as_bytes()).map(|(at, captures, _)| {
                let captures: Vec<_> =
                    captures.iter().map(|(n, v)| format!("{n}={}", String::from_utf8_lossy(v))).collect();
                (all[at], captures.join(" "))
            });
            assert_eq!(found.as_ref().map(|(at, captures)| (*at, captures.as_str())), expected, "{path}");
        }
        assert_eq!(paths.add(Template::parse("/orders/{other}").unwrap()), Err(0));
    }

    #[test]
    fn what_is_no_template() {
        for text in ["orders", "/{a", "/{}", "/{a}{b}", "/{a}/{a}", "/{{a}}", "/{a}.{b}.{c}.{d}.{e}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
