//! One criterion of an ACL: what is fetched, and how its patterns are compared.

use super::super::context::Cx;
use super::super::sample::{Kind, Sample, Scope, call, sample, split};
use super::{Facet, MAX_PATTERNS, PathOf, Rate, Term, is_one_of, networks};
use crate::shared::expression::Expression;
use crate::shared::networks::network;
use crate::shared::regex::{Searching, Subject, literal};

/// How patterns are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Begins,
    Bool,
    Contains,
    Dir,
    Dom,
    Ends,
    Exact,
    Found,
    Int,
    Ip,
    Length,
    Regex,
}

fn way_of(name: &str) -> Option<Way> {
    Some(match name {
        "beg" => Way::Begins,
        "bool" => Way::Bool,
        "dir" => Way::Dir,
        "dom" => Way::Dom,
        "end" => Way::Ends,
        "found" => Way::Found,
        "int" => Way::Int,
        "ip" => Way::Ip,
        "len" => Way::Length,
        "reg" => Way::Regex,
        "str" => Way::Exact,
        "sub" => Way::Contains,
        _ => return None,
    })
}

/// `path_beg` is `path -m beg`.
const SUFFIXED: &[&str] = &[
    "base",
    "cook",
    "hdr",
    "path",
    "req.cook",
    "req.hdr",
    "req_ssl_sni",
    "req.ssl_sni",
    "res.hdr",
    "shdr",
    "ssl_fc_sni",
    "url",
    "url_param",
    "urlp",
    "query",
];

/// One criterion: `path_beg -i /api /v1`.
pub(super) fn criterion(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, words: &[String]) -> Term {
    match try_criterion(cx, scope, words) {
        Ok(term) => term,
        Err(why) => Term::Unknown(why),
    }
}

fn try_criterion(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, words: &[String]) -> Result<Term, String> {
    let Some(first) = words.first() else { return Err("a condition without a criterion".to_owned()) };
    let parts = split(first);
    let (name, args) = call(parts.first().map_or("", String::as_str));
    if let Some(term) = special(name, &args, words)? {
        return Ok(term);
    }
    let mut fetched = first.clone();
    let mut way = None;
    for known in SUFFIXED {
        if let Some(suffix) = name.strip_prefix(known).and_then(|rest| rest.strip_prefix('_'))
            && let Some(found) = way_of(suffix)
        {
            fetched = first.replacen(name, known, 1);
            way = Some(found);
        }
    }
    let is_hdr_ip = matches!(name, "hdr_ip" | "req.hdr_ip");
    let value = sample(cx, scope, &fetched)?;
    let mut ignores_case = false;
    let mut patterns: Vec<String> = Vec::new();
    let mut file = None;
    let mut rest = words.iter().skip(1).peekable();
    let mut flags = true;
    while let Some(word) = rest.next() {
        match &**word {
            _ if !flags => patterns.push(word.clone()),
            "-i" => ignores_case = true,
            "-n" | "-u" => {}
            "-m" => {
                let name = rest.next().map_or("", String::as_str);
                way = Some(way_of(name).ok_or_else(|| format!("`-m {name}` is not known"))?);
            }
            "-f" | "-M" if word == "-f" => {
                let path = rest.next().cloned().unwrap_or_default();
                match cx.entries(&path) {
                    Ok(lines) => patterns.extend(lines.iter().cloned()),
                    // The filter ip reads such a file itself.
                    Err(_) if value.kind == Kind::Address && value.is.as_str() == "client.ip" => {
                        file = Some(path)
                    }
                    Err(why) => return Err(why),
                }
            }
            "--" => flags = false,
            text => {
                flags = false;
                patterns.push(text.to_owned());
            }
        }
    }
    if patterns.iter().any(|pattern| super::super::read::has_variable(pattern)) {
        return Err("a variable of the environment among its patterns".to_owned());
    }
    if patterns.len() > MAX_PATTERNS {
        return Err(format!("more than {MAX_PATTERNS} patterns: Weir's maps take a file of them"));
    }
    if let Some(path) = file {
        return match patterns.is_empty() {
            true => Ok(Term::File(path, true)),
            false => Err(format!("`{path}` cannot be read")),
        };
    }
    let way = way.unwrap_or(match value.kind {
        _ if is_hdr_ip => Way::Ip,
        Kind::Address => Way::Ip,
        Kind::Bool => Way::Bool,
        Kind::Int => Way::Int,
        Kind::Text => Way::Exact,
    });
    compare(&value, way, ignores_case, &patterns)
}

/// Criteria that Weir has as a filter.
fn special(name: &str, args: &[String], words: &[String]) -> Result<Option<Term>, String> {
    let first = args.first().cloned().unwrap_or_default();
    match name {
        "http_auth" => return Ok(Some(Term::User { list: first, groups: Vec::new(), is: true })),
        "http_auth_group" => {
            let groups = words.iter().skip(1).filter(|word| !word.starts_with('-')).cloned().collect();
            return Ok(Some(Term::User { list: first, groups, is: true }));
        }
        _ => {}
    }
    let (counter, table) = if let Some(rest) = name.strip_prefix("sc_") {
        if rest != "http_req_rate" {
            return Ok(None);
        }
        (first.parse().ok(), args.get(1).cloned())
    } else if let Some(number) = ["sc0", "sc1", "sc2"].iter().position(|sc| name.starts_with(*sc)) {
        if name.get(3..) != Some("_http_req_rate") {
            return Ok(None);
        }
        (u8::try_from(number).ok(), args.first().cloned())
    } else if name == "src_http_req_rate" {
        (None, args.first().cloned())
    } else {
        return Ok(None);
    };
    let operator: Vec<&str> = words
        .iter()
        .skip(1)
        .map(String::as_str)
        .filter(|word| !matches!(*word, "-m" | "int" | "--"))
        .collect();
    let passes = match &*operator {
        ["gt", number] => number.parse::<u64>().ok(),
        ["ge", number] => number.parse::<u64>().ok().map(|number| number.saturating_sub(1)),
        _ => None,
    };
    match passes {
        Some(passes) => Ok(Some(Term::Rate(Rate { fetch: name.to_owned(), counter, table, passes }))),
        None => Err(format!("`{name}` compared in another way than `gt` and `ge`")),
    }
}

fn compare(value: &Sample, way: Way, ignores_case: bool, patterns: &[String]) -> Result<Term, String> {
    let is_host = value.field.as_deref() == Some("host");
    if let (Way::Found, _) = (way, patterns) {
        let is = value.as_text();
        return Ok(Term::Is(Expression::raw(format!("has({})", is.as_str())), None));
    }
    if way == Way::Bool {
        let is = match value.kind {
            Kind::Bool => value.is.clone(),
            _ => value
                .as_text()
                .differs(Expression::text(""))
                .and(value.as_text().differs(Expression::text("0"))),
        };
        let negated = matches!(patterns, [one] if matches!(&**one, "0" | "false" | "no" | "off"));
        return Ok(Term::Is(if negated { is.not() } else { is }, None));
    }
    if patterns.is_empty() {
        return Err("a criterion without a pattern".to_owned());
    }
    // Several values are one text in Weir, and a rule that denies must not miss the second of them.
    let is_one = |name: &str| matches!(name, "cookie" | "host" | "user-agent");
    if value.field.as_deref().is_some_and(|name| !is_one(name)) && way == Way::Length {
        return Err("a field that may have several values, each of which HAProxy looks at".to_owned());
    }
    if way == Way::Ip {
        let mut all = Vec::new();
        for pattern in patterns {
            all.push(network(pattern)?);
        }
        let is = value.is.clone();
        if is.as_str() == "client.ip" {
            return Ok(networks(&all));
        }
        if let Some(name) = &value.field {
            let each = Expression::raw("(ip(v) ?? ip(\"0.0.0.0\"))");
            if all.iter().any(|network| network.starts_with("0.0.0.0")) {
                return Err("0.0.0.0 in a field".to_owned());
            }
            let is = each.is_in(all.iter().map(String::as_str));
            return Ok(Term::Is(each_value(&Expression::of("request.headers", name), &is), None));
        }
        let address = match value.kind {
            Kind::Address => Expression::raw(format!("({} ?? ip(\"0.0.0.0\"))", is.as_str())),
            _ => Expression::raw(format!("(ip({}) ?? ip(\"0.0.0.0\"))", is.as_str())),
        };
        let address = if all.iter().any(|network| network.starts_with("0.0.0.0")) {
            return Err("0.0.0.0 in a field".to_owned());
        } else {
            address
        };
        return Ok(Term::Is(address.is_in(all.iter().map(String::as_str)), None));
    }
    if matches!(way, Way::Int | Way::Length) {
        return integer(value, way, patterns).map(|is| Term::Is(is, None));
    }
    let is = texts(value, way, ignores_case, patterns)?;
    // Routes compare hosts without case and without the port.
    let facet = match (value.is.as_str(), way) {
        _ if is_host || value.is.as_str() == "request.host" => hosts(way, patterns).map(Facet::Hosts),
        ("request.method", Way::Exact) if !ignores_case => Some(Facet::Methods(patterns.to_vec())),
        ("request.path", Way::Exact) if !ignores_case => paths(patterns, PathOf::Exact),
        ("request.path", Way::Begins) if !ignores_case => paths(patterns, PathOf::Prefix),
        _ => None,
    };
    Ok(Term::Is(is, facet))
}

fn paths(patterns: &[String], of: fn(String) -> PathOf) -> Option<Facet> {
    let fits =
        |pattern: &&String| crate::shared::path::never_matches(pattern).is_none() && !pattern.contains('%');
    patterns.iter().all(|pattern| fits(&pattern)).then(|| {
        Facet::Paths(patterns.iter().map(|pattern| of(crate::shared::path::canonical(pattern))).collect())
    })
}

/// Hosts that `match.hosts` can express.
fn hosts(way: Way, patterns: &[String]) -> Option<Vec<String>> {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    let mut found = Vec::new();
    for pattern in patterns {
        let pattern = pattern.to_ascii_lowercase();
        match way {
            Way::Exact if is_name(&pattern) => found.push(pattern),
            Way::Dom if is_name(pattern.trim_matches('.')) && pattern.trim_matches('.').contains('.') => {
                let name = pattern.trim_matches('.');
                found.extend([name.to_owned(), format!(".{name}")]);
            }
            Way::Ends if pattern.starts_with('.') && is_name(&pattern) => found.push(pattern),
            _ => return None,
        }
    }
    Some(found)
}

fn integer(value: &Sample, way: Way, patterns: &[String]) -> Result<Expression, String> {
    let number = match (way, value.kind) {
        (Way::Length, _) => format!("size({})", value.as_text().as_str()),
        (_, Kind::Int) => value.is.as_str().to_owned(),
        _ => format!("(int({}) ?? 0)", value.as_text().as_str()),
    };
    let number =
        if number.contains('?') && !number.starts_with('(') { format!("({number})") } else { number };
    // A negation binds tighter than a comparison.
    let compared = |text: String| Expression::raw(format!("({text})"));
    let mut any = Expression::constant(false);
    let mut operator = "eq";
    for pattern in patterns {
        if matches!(&**pattern, "eq" | "ge" | "gt" | "le" | "lt") {
            operator = pattern;
            continue;
        }
        let compare = |sign: &str, text: &str| -> Result<Expression, String> {
            let limit: i64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
            // Two constants need no expression: the port of the only address.
            let known: Option<i64> = number.parse().ok();
            Ok(match (known, sign) {
                (Some(known), "==") => Expression::constant(known == limit),
                (Some(known), ">=") => Expression::constant(known >= limit),
                (Some(known), "<=") => Expression::constant(known <= limit),
                (Some(known), ">") => Expression::constant(known > limit),
                (Some(known), "<") => Expression::constant(known < limit),
                _ => compared(format!("{number} {sign} {limit}")),
            })
        };
        let is = match (operator, pattern.split_once(':')) {
            ("eq", Some((low, high))) => {
                let low = if low.is_empty() { Expression::constant(true) } else { compare(">=", low)? };
                let high = if high.is_empty() { Expression::constant(true) } else { compare("<=", high)? };
                low.and(high)
            }
            ("eq", None) => compare("==", pattern)?,
            ("ge", None) => compare(">=", pattern)?,
            ("gt", None) => compare(">", pattern)?,
            ("le", None) => compare("<=", pattern)?,
            ("lt", None) => compare("<", pattern)?,
            _ => return Err(format!("`{operator} {pattern}` is no comparison")),
        };
        any = any.or(is);
    }
    Ok(any)
}

/// Texts: one of the patterns fits.
fn texts(value: &Sample, way: Way, ignores_case: bool, patterns: &[String]) -> Result<Expression, String> {
    let is_path = value.is.as_str() == "request.path";
    let of = |subject: &Expression| -> Result<Expression, String> {
        let mut any = Expression::constant(false);
        let (subject, lowered) = if ignores_case && !matches!(way, Way::Regex | Way::Dir | Way::Dom) {
            let text = subject.as_str();
            let simple = !text.contains([' ', '?']);
            let text = if simple { text.to_owned() } else { format!("({text})") };
            (Expression::raw(format!("{text}.lowerAscii()")), true)
        } else {
            (subject.clone(), false)
        };
        let patterns: Vec<String> = patterns
            .iter()
            .map(|pattern| if lowered { pattern.to_ascii_lowercase() } else { pattern.clone() })
            .map(|pattern| {
                if is_path && way != Way::Regex { crate::shared::path::canonical(&pattern) } else { pattern }
            })
            .collect();
        if way == Way::Exact {
            return Ok(is_one_of(subject, &patterns));
        }
        for pattern in &patterns {
            any = any.or(match way {
                Way::Begins => subject.clone().starts_with(pattern),
                Way::Contains => subject.clone().contains(pattern),
                Way::Ends => subject.clone().ends_with(pattern),
                Way::Dir | Way::Dom => {
                    let (delimiters, class) = if way == Way::Dir {
                        (&['/', '?'][..], "[/?]")
                    } else {
                        (&['/', '?', '.', ':'][..], "[/?.:]")
                    };
                    let flag = if ignores_case { "(?i)" } else { "" };
                    let text = literal(pattern.trim_matches(delimiters));
                    subject.clone().matches(&format!("{flag}(?:^|{class}){text}(?:{class}|$)"))
                }
                _ => {
                    let of = if is_path { Subject::Path } else { Subject::Text };
                    let read = Searching::read(pattern, ignores_case, of)?;
                    read.compiled()?;
                    subject.clone().matches(&read.searching())
                }
            });
        }
        Ok(any)
    };
    // A field that comes several times, or with values between commas, has several values: each is looked at. Weir
    // joins them with commas. There is one Host, and a cookie or a browser's name has no values between commas.
    let is_one = |name: &&str| matches!(*name, "cookie" | "host" | "user-agent");
    let has_several = value.field.as_deref().is_some_and(|name| !is_one(&name));
    let (start, end) = match way {
        _ if !has_several => return of(&value.is),
        Way::Exact => (r"(?:^|,)\s*", r"\s*(?:,|$)"),
        Way::Begins => (r"(?:^|,)\s*", ""),
        Way::Ends => ("", r"\s*(?:,|$)"),
        // No value has a comma in it, so this text is in one of them or in none.
        Way::Contains if patterns.iter().all(|pattern| !pattern.contains([',', ' ', '\t'])) => {
            return of(&value.is);
        }
        Way::Contains => return Err("a text with a comma or a space in one of several values".to_owned()),
        Way::Dir | Way::Dom => {
            let (delimiters, class) = match way {
                Way::Dir => (&['/', '?'][..], "[/?]"),
                _ => (&['/', '?', '.', ':'][..], "[/?.:]"),
            };
            let texts: Vec<String> =
                patterns.iter().map(|pattern| literal(pattern.trim_matches(delimiters))).collect();
            let flag = if ignores_case { "(?i)" } else { "" };
            let texts = texts.join("|");
            let whole = format!(r"{flag}(?:(?:^|,)\s*|{class})(?:{texts})(?:{class}|\s*(?:,|$))");
            return Ok(value.is.clone().matches(&whole));
        }
        _ => {
            let mut any = Expression::constant(false);
            for pattern in patterns {
                let read = Searching::read(pattern, ignores_case, Subject::Text)?;
                read.compiled()?;
                any = any.or(value.is.clone().matches(&within_one(&read.searching())?));
            }
            return Ok(any);
        }
    };
    let flag = if ignores_case { "(?i)" } else { "" };
    let texts: Vec<String> = patterns.iter().map(|pattern| literal(pattern)).collect();
    let texts = if texts.len() == 1 { texts.join("") } else { format!("(?:{})", texts.join("|")) };
    Ok(value.is.clone().matches(&format!("{flag}{start}{texts}{end}")))
}

/// A pattern for one value as one for all of them, joined by commas: its anchors stand for the ends of a value, and it
/// finds no comma. To look at each value on its own would cost more steps than an expression has.
fn within_one(pattern: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next().unwrap_or('\\');
                if matches!(next, 'S' | 'W' | 'D' | 'P' | 'A' | 'z') {
                    return Err(format!("`\\{next}` of a pattern for one of several values"));
                }
                out.extend([c, next]);
            }
            '[' if !in_class => {
                in_class = true;
                out.push(c);
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push_str("^,");
                }
                // A bracket at the beginning stands for itself.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            '[' => return Err("a class within a class of a pattern".to_owned()),
            ']' => {
                in_class = false;
                out.push(c);
            }
            _ if in_class => out.push(c),
            '.' => out.push_str("[^,]"),
            '^' => out.push_str(r"(?:^|,)\s*"),
            '$' => out.push_str(r"\s*(?:,|$)"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Most addresses of a field that are compared: with more, an expression would take too many steps.
const MAX_ADDRESSES: usize = 100;

/// Whether a condition holds for `v`, any of the values of a field, which are addresses.
fn each_value(field: &Expression, is: &Expression) -> Expression {
    let is = is.as_str().replace("ip(v)", "ip(v.trim())");
    Expression::raw(format!("{}.split(\",\", {MAX_ADDRESSES}).exists(v, {is})", field.as_str()))
}
