//! Variables, their keys, members and items; `has`.

use super::{Checker, Code, Inner, Read, Typed};
use crate::ast::{Expr, Kind};
use crate::code::{Keyed, Node, Place, Test};
use crate::diagnostic::Mistake;
use crate::limits::{COST_BYTES, TEXT_BYTES};
use crate::schema::{Type, Variable};
use crate::spelling::nearest_name;
use crate::value::Value;
use std::borrow::Cow;
use std::ops::Range;

/// What a dotted name begins with.
enum Root<'s> {
    /// A variable of a macro.
    Local(u16),
    /// A variable of the host, and how many words its name takes.
    Variable(&'s Variable, usize),
}

impl<'s> Checker<'s> {
    /// A name, or a member of something.
    pub(super) fn name(&mut self, expr: &Expr) -> Option<Typed> {
        let Some((words, is_global)) = expr.dotted() else {
            let Kind::Member(of, name) = &expr.kind else { return None };
            let of = self.any(of)?;
            return self.member(of, name, expr.range.clone());
        };
        match self.root(&words, is_global) {
            Some(Root::Local(slot)) if words.len() == 1 => self.local(slot),
            Some(Root::Variable(variable, taken)) if taken == words.len() => {
                self.variable(variable, &expr.range)
            }
            Some(Root::Variable(variable, taken)) if taken + 1 == words.len() && variable.is_keyed() => {
                self.key(variable, words[taken], &expr.range)
            }
            Some(_) => {
                let Kind::Member(of, name) = &expr.kind else { return None };
                let of = self.any(of)?;
                self.member(of, name, expr.range.clone())
            }
            None => self.unknown(&words, &expr.range),
        }
    }

    fn root(&self, words: &[&str], is_global: bool) -> Option<Root<'s>> {
        let local = self.locals.iter().rposition(|(name, _)| !is_global && *name == words[0]);
        if let Some(slot) = local {
            return Some(Root::Local(u16::try_from(slot).ok()?));
        }
        let schema = self.schema;
        schema.find(words).map(|(variable, taken)| Root::Variable(variable, taken))
    }

    /// The variable that a dotted name is, all of it.
    pub(super) fn keyed_variable(&self, expr: &Expr) -> Option<&'s Variable> {
        let (words, is_global) = expr.dotted()?;
        match self.root(&words, is_global)? {
            Root::Variable(variable, taken) if taken == words.len() && variable.is_keyed() => Some(variable),
            _ => None,
        }
    }

    fn local(&mut self, slot: u16) -> Option<Typed> {
        self.locals.get(usize::from(slot)).map(|(_, typed)| typed.clone())
    }

    fn unknown<T>(&mut self, words: &[&str], range: &Range<usize>) -> Option<T> {
        let name = words.join(".");
        let schema = self.schema;
        let mut group: Vec<&str> = schema.members(&name).collect();
        if !group.is_empty() {
            group.truncate(8);
            let message = format!("`{name}` is a group of variables, not one of them");
            return self.wrong(
                Mistake::new(range.clone(), message).hint(format!("it has `{}`", group.join("`, `"))),
            );
        }
        let locals = self.locals.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = schema.variables().map(Variable::name).chain(locals).collect();
        // Of a long name, what is wrong may be any beginning: `request.heders.x`.
        let beginnings = (1..=words.len()).rev().map(|taken| words[..taken].join("."));
        let meant = beginnings
            .filter_map(|name| nearest_name(&name, names.iter().copied()).map(str::to_owned))
            .next();
        let siblings: Vec<&str> =
            words.first().map(|first| schema.members(first).take(12).collect()).unwrap_or_default();
        let mistake = Mistake::new(range.clone(), format!("there is no variable `{name}`"));
        let mistake = match meant {
            Some(meant) => mistake.hint(format!("did you mean `{meant}`?")),
            None if !siblings.is_empty() => mistake.hint(format!("there are `{}`", siblings.join("`, `"))),
            None if words.len() == 1 => mistake.hint(format!("a text is written in quotes: \"{name}\"")),
            None => mistake,
        };
        self.wrong(mistake)
    }

    /// Notes that a variable is read, and refuses it if it is not known yet.
    fn read(
        &mut self,
        variable: &Variable,
        key: Option<&str>,
        is_computed: bool,
        range: &Range<usize>,
    ) -> Option<()> {
        let key = key.map(str::to_owned);
        self.reads.push(Read { var: variable.var, key, is_computed, range: range.clone() });
        self.latest = self.latest.max(variable.phase);
        if variable.phase <= self.phase {
            return Some(());
        }
        let known = self.schema.phase_name(variable.phase);
        let here = self.schema.phase_name(self.phase);
        let message = format!(
            "`{}` is not known yet: it is from phase `{known}` on, and this runs in phase `{here}`",
            variable.name
        );
        let mistake = Mistake::new(range.clone(), message);
        let there = self.schema.groups(self.phase);
        self.wrong(match variable.elsewhere {
            Some(hint) => mistake.hint(hint),
            None if there.is_empty() => mistake,
            None => mistake.hint(format!("here are known: `{}`", there.join("`, `"))),
        })
    }

    fn variable(&mut self, variable: &Variable, range: &Range<usize>) -> Option<Typed> {
        if variable.is_keyed() {
            let name = &variable.name;
            let mistake = Mistake::new(
                range.clone(),
                format!("`{name}` has a value for each key, and no value itself"),
            );
            return self.wrong(mistake.hint(format!("write `{name}[\"name\"]`")));
        }
        self.read(variable, None, false, range)?;
        Some(read(variable, Place { var: variable.var, key: Box::default() }, range))
    }

    /// The value of a key that is written.
    fn key(&mut self, variable: &Variable, key: &str, range: &Range<usize>) -> Option<Typed> {
        let place = self.place(variable, key, range)?;
        self.read(variable, str::from_utf8(&place.key).ok(), false, range)?;
        Some(read(variable, place, range))
    }

    fn place(&mut self, variable: &Variable, key: &str, range: &Range<usize>) -> Option<Place> {
        let keys = variable.keys.as_ref()?;
        let key = if keys.are_folded { key.to_ascii_lowercase() } else { key.to_owned() };
        if let Some(known) = keys.known.as_ref().filter(|known| !known.contains(&key)) {
            let mistake = Mistake::new(range.clone(), format!("`{}` has no `{key}`", variable.name));
            return self.wrong(match nearest_name(&key, known.iter().map(String::as_str)) {
                Some(meant) => mistake.hint(format!("did you mean `{meant}`?")),
                None if known.is_empty() => mistake.hint("it has no keys here"),
                None => mistake.hint(format!("it has `{}`", known.join("`, `"))),
            });
        }
        Some(Place { var: variable.var, key: key.into_bytes().into() })
    }

    /// `of.name`.
    fn member(&mut self, of: Typed, name: &str, range: Range<usize>) -> Option<Typed> {
        match &of.ty {
            Type::Json | Type::Map(_) => {
                let key = Typed::node(Node::Constant(Value::Text(Cow::Owned(name.into()))), Type::Text);
                Some(at(of, key.longest(name.len() as u64), range))
            }
            ty => {
                let mistake = Mistake::new(range, format!("a value of type {ty} has no member `{name}`"));
                let method = crate::signatures::ROWS.iter().find(|row| row.is_method && row.name == name);
                self.wrong(match method {
                    Some(_) => mistake.hint(format!("`{name}` is a function: write `.{name}()`")),
                    None => mistake,
                })
            }
        }
    }

    /// `of[key]`.
    pub(super) fn index(&mut self, expr: &Expr, of: &Expr, key: &Expr) -> Option<Typed> {
        if let Some(variable) = self.keyed_variable(of) {
            let key_range = key.range.clone();
            let key = self.any(key)?;
            if let Some(name) = key.literal() {
                let Ok(name) = str::from_utf8(name).map(str::to_owned) else {
                    return self.wrong(Mistake::new(key_range, "a name of a key is UTF-8"));
                };
                return self.key(variable, &name, &expr.range);
            }
            return self.computed(variable, key, expr, key_range);
        }
        let (of, key_range, key) = (self.any(of), key.range.clone(), self.any(key));
        let (of, key) = (of?, key?);
        let fits = match &of.ty {
            Type::Json => key.ty.is_number() || matches!(key.ty, Type::Text | Type::Json | Type::Bool),
            Type::List(_) => key.ty.is_number() || key.ty == Type::Json,
            Type::Map(types) => {
                types.0 == key.ty
                    || types.0 == Type::Json
                    || key.ty == Type::Json
                    || types.0.is_number() && key.ty.is_number()
            }
            ty => {
                let message = format!("a value of type {ty} has no items");
                return self.wrong(Mistake::new(expr.range.clone(), message));
            }
        };
        if fits {
            return Some(at(of, key, expr.range.clone()));
        }
        let expected = match &of.ty {
            Type::List(_) => "a number".to_owned(),
            Type::Map(types) => types.0.to_string(),
            _ => "a text or a number".to_owned(),
        };
        self.wrong(Mistake::new(key_range, format!("expected {expected} as key, found {}", key.ty)))
    }

    fn computed(
        &mut self,
        variable: &Variable,
        key: Typed,
        expr: &Expr,
        key_range: Range<usize>,
    ) -> Option<Typed> {
        let keys = variable.keys.as_ref()?;
        if keys.known.is_some() {
            let message = format!("a key of `{}` is written as a text", variable.name);
            return self.wrong(Mistake::new(key_range, message));
        }
        if !key.ty.is_text() && key.ty != Type::Json {
            return self.wrong(Mistake::new(key_range, format!("expected text as key, found {}", key.ty)));
        }
        let (is_folded, is_text) = (keys.are_folded, variable.ty.is_text());
        self.read(variable, None, true, &expr.range)?;
        let key = key.into_text();
        let typed = read(variable, Place { var: variable.var, key: Box::default() }, &expr.range);
        let typed = typed.scanning(&[&key]).of(&[&key]);
        let keyed = Keyed { var: variable.var, is_folded, is_text, key: key.into_node() };
        Some(Typed { code: Code::Node(Node::Keyed(Box::new(keyed))), ..typed })
    }

    /// `name["key"].all()`: the values of a repeated field.
    pub(super) fn all_values(&mut self, expr: &Expr, of: &Expr) -> Option<Typed> {
        let found = self.key_of(of);
        let Some((variable, key)) = found else {
            let message = "`all()` gives the values of a repeated field";
            return self.wrong(
                Mistake::new(expr.range.clone(), message).hint("such as `request.headers[\"accept\"].all()`"),
            );
        };
        let most = variable.keys.as_ref().and_then(|keys| keys.repeated);
        let Some(most) = most else {
            let message = format!("`{}` has one value for each key", variable.name);
            return self.wrong(Mistake::new(expr.range.clone(), message));
        };
        let place = self.place(variable, &key, &of.range)?;
        self.read(variable, str::from_utf8(&place.key).ok(), false, &of.range)?;
        let typed = Typed::node(Node::All(place), Type::list(Type::Text));
        let cost = u64::from(most).saturating_add(1);
        let inner = Inner { bytes: variable.longest, items: 0 };
        Some(Typed { reads: true, longest: u64::from(most), inner, cost, ..typed })
    }

    /// The keyed variable and the key that `of` names.
    fn key_of(&self, of: &Expr) -> Option<(&'s Variable, String)> {
        match &of.kind {
            Kind::Index(of, key) => match &key.kind {
                Kind::Literal(Value::Text(key)) => {
                    Some((self.keyed_variable(of)?, String::from_utf8(key.to_vec()).ok()?))
                }
                _ => None,
            },
            Kind::Member(of, name) => Some((self.keyed_variable(of)?, name.clone())),
            _ => None,
        }
    }

    /// `has(a.b)`: whether there is a value.
    pub(super) fn has(&mut self, expr: &Expr, args: &[Expr]) -> Option<Typed> {
        let [arg] = args else {
            return self.wrong(Mistake::new(expr.range.clone(), "`has` takes one argument"));
        };
        if !matches!(arg.kind, Kind::Member(..) | Kind::Index(..) | Kind::Name { .. }) {
            let mistake = Mistake::new(arg.range.clone(), "`has` takes a variable, a key or a member");
            return self.wrong(mistake.hint("such as `has(request.headers[\"x-env\"])`"));
        }
        let typed = self.part(arg)?;
        let outer = Typed::test(Test::Always(true)).of(&[&typed]);
        let outer = Typed { maybe: None, ..outer };
        let test = match typed.into_node() {
            Node::Text(place) | Node::Variable(place) => Test::There(place),
            Node::Keyed(keyed) => {
                Test::Valued(Box::new(Node::Keyed(Box::new(Keyed { is_text: false, ..*keyed }))))
            }
            // An item of a list of texts: there, or empty.
            Node::AsText(of) => Test::Valued(of),
            node => Test::Valued(Box::new(node)),
        };
        Some(Typed { code: Code::Test(test), ..outer })
    }
}

/// The value of a variable of the host.
fn read(variable: &Variable, place: Place, range: &Range<usize>) -> Typed {
    let is_text = variable.ty.is_text();
    let node = if is_text { Node::Text(place) } else { Node::Variable(place) };
    let typed = Typed::node(node, variable.ty.clone()).longest(variable.longest);
    let has_default = is_text || variable.ty == Type::Json;
    let is_maybe = !has_default && (variable.is_optional || variable.is_keyed());
    let inner = Inner { bytes: TEXT_BYTES, items: 128 };
    let typed = Typed { reads: true, inner, cost: variable.cost, ..typed };
    if is_maybe { typed.maybe(range.clone()) } else { typed }
}

/// `of[key]`, whose types fit.
fn at(of: Typed, key: Typed, range: Range<usize>) -> Typed {
    let (ty, items) = match &of.ty {
        Type::List(items) => ((**items).clone(), 0),
        Type::Map(types) => (types.1.clone(), of.longest),
        _ => (Type::Json, 1 + key.longest / COST_BYTES),
    };
    let typed = Typed::node(Node::Constant(Value::Null), ty.clone()).of(&[&of, &key]);
    let longest = of.inner.longest(&ty);
    let typed = Typed { longest, inner: of.inner, cost: typed.cost.saturating_add(items), ..typed };
    let node = Node::At(Box::new((of.into_node(), key.into_node())));
    match ty {
        Type::Json => Typed { code: Code::Node(node), maybe: None, ..typed },
        Type::Text => {
            let cost = typed.cost.saturating_add(1);
            Typed { code: Code::Node(Node::AsText(Box::new(node))), maybe: None, cost, ..typed }
        }
        _ => Typed { code: Code::Node(node), ..typed }.maybe(range),
    }
}
