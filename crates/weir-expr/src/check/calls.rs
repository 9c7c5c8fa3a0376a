//! Functions and macros.

use super::{Checker, Code, Inner, Typed};
use crate::ast::{Call, Expr, Kind};
use crate::code::{Loop, LoopKind, Node, Test};
use crate::diagnostic::Mistake;
use crate::limits::{BUILT_BYTES, COST_BYTES, JSON_ITEMS, PATTERN_BYTES, SPLIT_PARTS, TEXT_BYTES};
use crate::schema::Type;
use crate::signatures::{Func, Function, ROWS, Takes};
use crate::spelling::nearest_name;
use crate::value::Value;
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use std::ops::Range;

/// The macros that walk through a list.
const LOOPS: &[(&str, LoopKind)] = &[
    ("all", LoopKind::All),
    ("exists", LoopKind::Exists),
    ("exists_one", LoopKind::ExistsOne),
    ("existsOne", LoopKind::ExistsOne),
    ("filter", LoopKind::Filter),
    ("map", LoopKind::Map),
];

impl Checker<'_> {
    pub(super) fn call(&mut self, expr: &Expr, call: &Call) -> Option<Typed> {
        let Some(target) = &call.target else {
            if call.name == "has" {
                return self.has(expr, &call.args);
            }
            return self.function(expr, &call.name, &call.name_range, &call.args.iter().collect::<Vec<_>>());
        };
        if call.name == "all" && call.args.is_empty() {
            return self.all_values(expr, target);
        }
        if let Some((_, kind)) = LOOPS.iter().find(|(name, _)| *name == call.name) {
            return self.walk(expr, *kind, target, call);
        }
        // `base64.encode(x)`: the name of a function may have a dot.
        if let Kind::Name { name: group, .. } = &target.kind
            && !self.locals.iter().any(|(local, _)| local == group)
            && ROWS
                .iter()
                .any(|row| row.name.strip_prefix(group.as_str()).is_some_and(|rest| rest.starts_with('.')))
        {
            let name = format!("{group}.{}", call.name);
            let range = target.range.start..call.name_range.end;
            return self.function(expr, &name, &range, &call.args.iter().collect::<Vec<_>>());
        }
        let args: Vec<&Expr> = std::iter::once(&**target).chain(&call.args).collect();
        self.method(expr, &call.name, &call.name_range, &args)
    }

    fn function(
        &mut self,
        expr: &Expr,
        name: &str,
        name_range: &Range<usize>,
        args: &[&Expr],
    ) -> Option<Typed> {
        let rows: Vec<&Function> = ROWS.iter().filter(|row| row.name == name && !row.is_method).collect();
        if !rows.is_empty() {
            return self.apply(expr, name, &rows, args);
        }
        let mistake = Mistake::new(name_range.clone(), format!("there is no function `{name}`"));
        let known = ROWS.iter().map(|row| row.name).chain(["has"]);
        self.wrong(match nearest_name(name, known) {
            _ if ROWS.iter().any(|row| row.name == name) || LOOPS.iter().any(|(known, _)| *known == name) => {
                mistake.hint(format!("it is written behind its value: `value.{name}(…)`"))
            }
            Some(meant) if ROWS.iter().any(|row| row.name == meant && row.is_method) => {
                mistake.hint(format!("did you mean `value.{meant}(…)`?"))
            }
            Some(meant) => mistake.hint(format!("did you mean `{meant}(…)`?")),
            None => mistake,
        })
    }

    fn method(
        &mut self,
        expr: &Expr,
        name: &str,
        name_range: &Range<usize>,
        args: &[&Expr],
    ) -> Option<Typed> {
        let rows: Vec<&Function> =
            ROWS.iter().filter(|row| row.name == name && (row.is_method || name == "size")).collect();
        if !rows.is_empty() {
            return self.apply(expr, name, &rows, args);
        }
        let mistake = Mistake::new(name_range.clone(), format!("there is no function `{name}` of a value"));
        let known = ROWS
            .iter()
            .filter(|row| row.is_method)
            .map(|row| row.name)
            .chain(LOOPS.iter().map(|(name, _)| *name));
        let common = [
            ("toLowerCase", "lowerAscii"),
            ("toUpperCase", "upperAscii"),
            ("length", "size"),
            ("lower", "lowerAscii"),
            ("upper", "upperAscii"),
            ("hasPrefix", "startsWith"),
            ("hasSuffix", "endsWith"),
            ("includes", "contains"),
        ];
        let common = common.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, ours)| *ours);
        self.wrong(match common.or_else(|| nearest_name(name, known)) {
            _ if ROWS.iter().any(|row| row.name == name) => mistake.hint(format!("write `{name}(value)`")),
            Some(meant) => mistake.hint(format!("did you mean `{meant}`?")),
            None => mistake,
        })
    }

    /// Takes the signature that fits the arguments best.
    fn apply(&mut self, expr: &Expr, name: &str, rows: &[&Function], args: &[&Expr]) -> Option<Typed> {
        let checked: Vec<_> = args.iter().map(|arg| self.any(arg)).collect();
        let checked: Vec<Typed> = checked.into_iter().collect::<Option<_>>()?;
        let fit = |row: &&&Function| -> Option<u32> {
            let is_long = row.takes.len() == checked.len();
            row.takes
                .iter()
                .zip(&checked)
                .try_fold(0, |sum, (takes, arg)| Some(sum + fits(*takes, &arg.ty)?))
                .filter(|_| is_long)
        };
        let best = rows.iter().filter_map(|row| fit(&row).map(|fit| (fit, *row))).min_by_key(|(fit, _)| *fit);
        let Some((_, row)) = best else {
            return self.wrong(unfit(expr, name, rows, args, &checked));
        };
        if row.func == Func::Matches {
            return self.matches(expr, args, checked);
        }
        let args: Vec<Typed> = row
            .takes
            .iter()
            .zip(checked)
            .map(|(takes, arg)| if *takes == Takes::Text { arg.into_text() } else { arg })
            .collect();
        Some(called(row, args, expr.range.clone()))
    }

    fn matches(&mut self, expr: &Expr, args: &[&Expr], mut checked: Vec<Typed>) -> Option<Typed> {
        let (pattern, of) = (checked.pop()?, checked.pop()?);
        let range = args.last().map_or(&expr.range, |arg| &arg.range);
        let Some(text) = pattern.literal() else {
            let mistake = Mistake::new(range.clone(), "a regular expression is written as a text");
            return self.wrong(
                mistake.hint("what a request holds cannot be a pattern; use `contains` or `==` for it"),
            );
        };
        let regex = match regex(text) {
            Ok(regex) => regex,
            Err(message) => {
                return self.wrong(
                    Mistake::new(range.clone(), message).hint("write it raw, such as `r\"^/v[0-9]+/\"`"),
                );
            }
        };
        let of = self.valued(of.into_text(), "\"\"")?;
        let typed = Typed::test(Test::Always(true)).of(&[&of]).scanning(&[&of]).scanning(&[&of]);
        Some(Typed { code: Code::Test(Test::Matches(of.into_node(), Box::new(regex))), ..typed })
    }

    /// `list.all(x, test)` and its like.
    fn walk(&mut self, expr: &Expr, kind: LoopKind, target: &Expr, call: &Call) -> Option<Typed> {
        let list = self.any(target)?;
        let (item, many) = match &list.ty {
            Type::List(items) => ((**items).clone(), list.longest),
            Type::Map(types) => (types.0.clone(), list.longest),
            Type::Json => (Type::Json, u64::from(JSON_ITEMS)),
            ty => {
                let message = format!("`{}` walks through a list, found {ty}", call.name);
                return self.wrong(Mistake::new(target.range.clone(), message));
            }
        };
        let (name, test, each) = match (call.args.as_slice(), kind) {
            ([name, each], LoopKind::Map) => (name, None, Some(each)),
            ([name, test, each], LoopKind::Map) => (name, Some(test), Some(each)),
            ([name, test], _) if kind != LoopKind::Map => (name, Some(test), None),
            _ => {
                let message =
                    format!("`{0}` takes a name and what to do with it: `list.{0}(x, …)`", call.name);
                return self.wrong(Mistake::new(expr.range.clone(), message));
            }
        };
        let Kind::Name { name: local, is_global: false } = &name.kind else {
            return self
                .wrong(Mistake::new(name.range.clone(), "expected a name for the item").hint("such as `x`"));
        };
        let Ok(slot) = u16::try_from(self.locals.len()) else { return None };
        let longest = list.inner.longest(&item);
        let typed = Typed::node(Node::Local(slot), item.clone()).longest(longest);
        self.locals.push((local.clone(), Typed { local: Some(slot), inner: list.inner, ..typed }));
        let test = match test {
            Some(test) => self.truth(test),
            None => Some(Typed::test(Test::Always(true))),
        };
        let each = match each {
            Some(each) => self.any(each).and_then(|each| self.valued(each, "DEFAULT")),
            None => Some(Typed {
                inner: list.inner,
                ..Typed::node(Node::Constant(Value::Null), item.clone()).longest(longest)
            }),
        };
        self.locals.truncate(usize::from(slot));
        let (test, each) = (test?, each?);
        let turn = test.cost.saturating_add(each.cost).saturating_add(1);
        let ty = match kind {
            LoopKind::Filter => Type::list(item),
            LoopKind::Map => Type::list(each.ty.clone()),
            _ => Type::Bool,
        };
        let is_json = list.ty == Type::Json;
        let typed = Typed::node(Node::Constant(Value::Null), ty).of(&[&list, &test, &each]);
        let cost = list.cost.saturating_add(many.saturating_mul(turn)).saturating_add(1);
        let typed = Typed {
            cost,
            longest: many,
            inner: each.inside(),
            local: typed.local.filter(|local| *local < slot),
            ..typed
        };
        let typed = if is_json { typed.maybe(expr.range.clone()) } else { typed };
        let walk = Loop { kind, list: list.into_node(), test: test.into_test(), each: each.into_node() };
        Some(Typed { code: Code::Node(Node::Loop(Box::new(walk))), ..typed })
    }
}

/// A call whose arguments fit the signature.
fn called(row: &Function, mut args: Vec<Typed>, range: Range<usize>) -> Typed {
    let func = row.func;
    let ty = type_of(row.gives);
    let texts: Vec<&Typed> = args.iter().filter(|arg| arg.ty.is_text()).collect();
    let bytes = texts.iter().fold(0_u64, |sum, text| sum.saturating_add(text.longest));
    let first = args.first().map_or(0, |arg| arg.longest);
    let literal_parts = args.get(2).and_then(Typed::constant).and_then(|most| match most {
        Value::Int(most) => u64::try_from(*most).ok(),
        _ => None,
    });
    let longest = match func {
        Func::Split => literal_parts.unwrap_or(u64::MAX).min(u64::from(SPLIT_PARTS)),
        Func::Base64 | Func::Base64Url | Func::Hex | Func::Url => first.saturating_mul(3).saturating_add(4),
        Func::Join | Func::Replace => BUILT_BYTES as u64,
        Func::Sha256 => 32,
        Func::String if !texts.is_empty() => first,
        Func::String => TEXT_BYTES,
        _ => first,
    }
    .min(BUILT_BYTES as u64);
    let inner = if func == Func::Split {
        Inner { bytes: first, items: 0 }
    } else {
        args.first().map_or_else(Inner::default, |arg| arg.inner)
    };
    let scanned = match func {
        Func::StartsWith | Func::EndsWith => args.get(1).map_or(0, |with| with.longest) / COST_BYTES,
        // A block of 64 bytes takes some 20 times as long as looking at it.
        Func::Sha256 => (bytes / COST_BYTES).saturating_mul(20),
        Func::Join | Func::Replace => longest / COST_BYTES,
        Func::Split => (bytes / COST_BYTES).saturating_add(longest),
        _ => bytes / COST_BYTES,
    };
    let node =
        Typed::node(Node::Constant(Value::Null), ty).of(&args.iter().collect::<Vec<_>>()).longest(longest);
    let typed = Typed { inner, cost: node.cost.saturating_add(scanned), ..node };
    let typed = if row.may_fail { typed.maybe(range) } else { typed };
    if let (None, Some(with)) = (&typed.maybe, args.get(1).and_then(Typed::literal).map(<[u8]>::to_vec)) {
        let test: Option<fn(Node, Vec<u8>) -> Test> = match func {
            Func::Contains => Some(|of, with| Test::Contains(of, Box::new(Finder::new(&with).into_owned()))),
            Func::EndsWith => Some(|of, with| Test::Ends(of, with.into())),
            Func::StartsWith => Some(|of, with| Test::Begins(of, with.into())),
            _ => None,
        };
        if let Some(test) = test {
            args.truncate(1);
            if let Some(of) = args.pop() {
                return Typed { code: Code::Test(test(of.into_node(), with)), ..typed };
            }
        }
    }
    Typed { code: Code::Node(Node::Call(func, args.into_iter().map(Typed::into_node).collect())), ..typed }
}

/// Whether a value of this type may be given: 0 as it is, 1 as text.
fn fits(takes: Takes, ty: &Type) -> Option<u32> {
    let is = match takes {
        Takes::Address => *ty == Type::Address,
        Takes::Any => true,
        Takes::Bool => *ty == Type::Bool,
        Takes::Bytes => *ty == Type::Bytes,
        Takes::Double => *ty == Type::Double,
        Takes::Duration => *ty == Type::Duration,
        Takes::Int => *ty == Type::Int,
        Takes::Json => matches!(ty, Type::Json | Type::Null),
        Takes::List => matches!(ty, Type::List(_)),
        Takes::Map => matches!(ty, Type::Map(_)),
        Takes::Text => *ty == Type::Text,
        Takes::Texts => matches!(ty, Type::List(items) if items.is_text()),
        Takes::Timestamp => *ty == Type::Timestamp,
        Takes::Uint => *ty == Type::Uint,
    };
    if is {
        return Some(0);
    }
    let is_as_text = match takes {
        Takes::Text => matches!(ty, Type::Bytes | Type::Json),
        Takes::Texts => *ty == Type::Json || matches!(ty, Type::List(items) if **items == Type::Json),
        _ => false,
    };
    is_as_text.then_some(2)
}

fn type_of(takes: Takes) -> Type {
    match takes {
        Takes::Address => Type::Address,
        Takes::Any | Takes::Json => Type::Json,
        Takes::Bool => Type::Bool,
        Takes::Bytes => Type::Bytes,
        Takes::Double => Type::Double,
        Takes::Duration => Type::Duration,
        Takes::Int => Type::Int,
        Takes::List => Type::list(Type::Json),
        Takes::Map => Type::map(Type::Json, Type::Json),
        Takes::Text => Type::Text,
        Takes::Texts => Type::list(Type::Text),
        Takes::Timestamp => Type::Timestamp,
        Takes::Uint => Type::Uint,
    }
}

/// The type of an argument as a mistake names it.
pub(crate) fn takes_name(takes: Takes) -> String {
    match takes {
        Takes::Any => "any value".to_owned(),
        Takes::List => "list".to_owned(),
        Takes::Map => "map".to_owned(),
        other => type_of(other).to_string(),
    }
}

fn unfit(expr: &Expr, name: &str, rows: &[&Function], args: &[&Expr], checked: &[Typed]) -> Mistake {
    let receiver = usize::from(rows.iter().all(|row| row.is_method));
    let counts: Vec<usize> = rows.iter().map(|row| row.takes.len()).collect();
    if !counts.contains(&args.len()) {
        let (least, most) =
            (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        let (least, most) = (least.saturating_sub(receiver), most.saturating_sub(receiver));
        let expected = if least == most { format!("{least}") } else { format!("{least} or {most}") };
        let plural = if expected == "1" { "" } else { "s" };
        let found = args.len().saturating_sub(receiver);
        return Mistake::new(
            expr.range.clone(),
            format!("`{name}` takes {expected} argument{plural}, found {found}"),
        );
    }
    // The first argument that no signature of this length takes, with those before it as they are.
    let mut left: Vec<&&Function> = rows.iter().filter(|row| row.takes.len() == args.len()).collect();
    for (at, (arg, typed)) in args.iter().zip(checked).enumerate() {
        let takes = |row: &&&Function| row.takes.get(at).copied().unwrap_or(Takes::Any);
        let fitting: Vec<&&Function> =
            left.iter().copied().filter(|row| fits(takes(row), &typed.ty).is_some()).collect();
        if fitting.is_empty() {
            let mut expected: Vec<String> = left.iter().map(|row| takes_name(takes(row))).collect();
            expected.dedup();
            let message = format!("`{name}` takes {} here, found {}", expected.join(" or "), typed.ty);
            let mistake = Mistake::new(arg.range.clone(), message);
            let is_text = left.iter().any(|row| takes(row) == Takes::Text);
            return match typed.ty {
                Type::Json if !is_text => mistake.hint("convert it, such as `int(…) ?? 0`"),
                _ if is_text => mistake.hint("write `string(…)` around it"),
                _ => mistake,
            };
        }
        left = fitting;
    }
    Mistake::new(expr.range.clone(), format!("`{name}` does not take these arguments"))
}

/// A regular expression over bytes, bounded in size.
fn regex(text: &[u8]) -> Result<Regex, String> {
    let pattern = str::from_utf8(text).map_err(|_| "a regular expression is UTF-8".to_owned())?;
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "this regular expression is too large".to_owned(),
            error => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                format!("this is no regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
            }
        })
}
