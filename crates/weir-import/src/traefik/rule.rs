//! Rules of routers: `Host(`a`) && (PathPrefix(`/x`) || !Method(`GET`))`, as alternatives of conditions that must all
//! hold (disjunctive normal form).

/// Longest rule, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Deepest nesting of brackets and negations.
const MAX_DEPTH: usize = 32;
/// Most alternatives of a rule.
const MAX_BRANCHES: usize = 64;
/// Most conditions of an alternative.
const MAX_LITERALS: usize = 64;

/// A condition, or its opposite: one of `values` must (not) apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// The matcher, as written: `Host`.
    pub(super) name: String,
    /// Its arguments, for each value that may apply.
    pub(super) values: Vec<Vec<String>>,
    /// Whether it must not hold.
    pub(super) is_negated: bool,
}

/// A rule as written.
#[derive(Clone, Debug)]
enum Rule {
    Is(String, Vec<String>),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// The syntax of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    V2,
    V3,
}

/// What becomes of a rule with more alternatives or conditions than the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Refused,
    /// Conditions are left out, so that the alternatives match more requests than the rule does.
    LeftOut,
}

/// Reads a rule as alternatives, each a list of conditions.
///
/// # Errors
/// What is wrong with it.
pub(super) fn branches(text: &str, syntax: Syntax) -> Result<Vec<Vec<Literal>>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the rule has {} bytes; at most {MAX_BYTES} are read", text.len()));
    }
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens: &tokens, at: 0 };
    let rule = reader.any(0)?;
    if let Some(token) = reader.peek() {
        return Err(format!("expected `&&` or `||`, found {}", token.named()));
    }
    let mut all = expand(&rule, false, (syntax, Excess::Refused))?;
    join(&mut all);
    Ok(all)
}

/// Alternatives that match at least the requests of a rule, if [`branches`] cannot read it or Weir does not know one of
/// its conditions. What exceeds a limit is left out. A rule with a syntax error gives one alternative without
/// conditions, which matches every request.
///
/// Arguments are read as in v2, so that `Host(`a`, `b`)` keeps its hosts in either syntax.
pub(super) fn widest(text: &str) -> Vec<Vec<Literal>> {
    let everything = || vec![Vec::new()];
    let Some(tokens) = (text.len() <= MAX_BYTES).then(|| tokens(text).ok()).flatten() else {
        return everything();
    };
    let mut reader = Reader { tokens: &tokens, at: 0 };
    let rule = match reader.any(0) {
        Ok(rule) if reader.peek().is_none() => rule,
        _ => return everything(),
    };
    let mut all = expand(&rule, false, (Syntax::V2, Excess::LeftOut)).unwrap_or_else(|_| everything());
    join(&mut all);
    all
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    And,
    Or,
    Not,
    Open,
    Close,
    Comma,
    Name(String),
    Text(String),
}

impl Token {
    fn named(&self) -> String {
        match self {
            Self::And => "`&&`".to_owned(),
            Self::Or => "`||`".to_owned(),
            Self::Not => "`!`".to_owned(),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Name(name) => format!("`{name}`"),
            Self::Text(text) => format!("the text `{text}`"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '(' => (1, Token::Open),
            ')' => (1, Token::Close),
            ',' => (1, Token::Comma),
            '!' => (1, Token::Not),
            '&' if rest.starts_with("&&") => (2, Token::And),
            '|' if rest.starts_with("||") => (2, Token::Or),
            '`' => {
                let end = rest[1..].find('`').ok_or("a text does not end: a backtick is missing")?;
                (end + 2, Token::Text(rest[1..=end].to_owned()))
            }
            '"' => quoted(rest)?,
            c if c.is_ascii_alphabetic() => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                (end, Token::Name(rest[..end].to_owned()))
            }
            c => return Err(format!("`{c}` has no meaning here")),
        };
        out.push(length.1);
        rest = rest[length.0..].trim_start();
    }
    Ok(out)
}

/// A text in double quotes, with the escapes of Go.
fn quoted(rest: &str) -> Result<(usize, Token), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((at + 1, Token::Text(text))),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some(c @ ('"' | '\\' | '\'')) => text.push(c),
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                other => return Err(format!("the escape `\\{}` is none", other.unwrap_or(' '))),
            },
            c => text.push(c),
        }
    }
    Err("a text does not end: a quote is missing".to_owned())
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self, depth: usize) -> Result<Rule, String> {
        let mut all = vec![self.all(depth)?];
        while self.take(&Token::Or) {
            all.push(self.all(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Rule::Any(all) })
    }

    fn all(&mut self, depth: usize) -> Result<Rule, String> {
        let mut all = vec![self.one(depth)?];
        while self.take(&Token::And) {
            all.push(self.one(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Rule::All(all) })
    }

    fn one(&mut self, depth: usize) -> Result<Rule, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of nesting"));
        }
        if self.take(&Token::Not) {
            return Ok(Rule::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.take(&Token::Open) {
            let inner = self.any(depth + 1)?;
            return if self.take(&Token::Close) { Ok(inner) } else { Err("a `)` is missing".to_owned()) };
        }
        let name = match self.peek() {
            Some(Token::Name(name)) => name.clone(),
            Some(other) => return Err(format!("expected a matcher such as `Host`, found {}", other.named())),
            None => return Err("expected a matcher such as `Host`, found the end".to_owned()),
        };
        self.at += 1;
        if !self.take(&Token::Open) {
            return Err(format!("`{name}` needs its arguments in brackets"));
        }
        let mut arguments = Vec::new();
        while !self.take(&Token::Close) {
            match self.peek() {
                Some(Token::Text(text)) => arguments.push(text.clone()),
                other => {
                    let found = other.map_or_else(|| "the end".to_owned(), Token::named);
                    return Err(format!("expected a text in backticks for `{name}`, found {found}"));
                }
            }
            self.at += 1;
            if !self.take(&Token::Comma) && self.peek() != Some(&Token::Close) {
                return Err(format!("a `)` is missing behind the arguments of `{name}`"));
            }
        }
        Ok(Rule::Is(name, arguments))
    }
}

/// The alternatives of a rule, or of its opposite.
fn expand(rule: &Rule, is_negated: bool, how: (Syntax, Excess)) -> Result<Vec<Vec<Literal>>, String> {
    let (syntax, excess) = how;
    match rule {
        Rule::Not(inner) => expand(inner, !is_negated, how),
        Rule::Is(name, arguments) => {
            let literals = literals(name, arguments, is_negated, syntax);
            // Some matchers of v2 take several pairs that must all hold; negated, any of the opposites may.
            Ok(if is_negated { literals.into_iter().map(|one| vec![one]).collect() } else { vec![literals] })
        }
        // De Morgan: not all of them is any of the opposites.
        Rule::All(rules) | Rule::Any(rules) if matches!(rule, Rule::Any(_)) != is_negated => {
            let mut out = Vec::new();
            for rule in rules {
                out.extend(expand(rule, is_negated, how)?);
                if out.len() > MAX_BRANCHES {
                    return match excess {
                        Excess::Refused => Err(format!("more than {MAX_BRANCHES} alternatives")),
                        Excess::LeftOut => Ok(vec![Vec::new()]),
                    };
                }
            }
            Ok(out)
        }
        Rule::All(rules) | Rule::Any(rules) => {
            let mut out: Vec<Vec<Literal>> = vec![Vec::new()];
            for rule in rules {
                let more = expand(rule, is_negated, how)?;
                let is_long = out.len() * more.len() > MAX_BRANCHES;
                let both = |one: &[Literal], other: &[Literal]| one.iter().chain(other).cloned().collect();
                let next: Vec<Vec<Literal>> = if is_long {
                    Vec::new()
                } else {
                    out.iter().flat_map(|one| more.iter().map(|other| both(one, other))).collect()
                };
                let is_deep = next.iter().any(|both| both.len() > MAX_LITERALS);
                match excess {
                    Excess::Refused if is_long => {
                        return Err(format!("more than {MAX_BRANCHES} alternatives"));
                    }
                    Excess::Refused if is_deep => {
                        return Err(format!("more than {MAX_LITERALS} conditions"));
                    }
                    Excess::LeftOut if is_long || is_deep => {}
                    Excess::Refused | Excess::LeftOut => out = next,
                }
            }
            Ok(out)
        }
    }
}

/// The conditions of one matcher. In v2 most take several values, of which one must apply.
fn literals(name: &str, arguments: &[String], is_negated: bool, syntax: Syntax) -> Vec<Literal> {
    let one = |values: Vec<Vec<String>>| Literal { name: name.to_owned(), values, is_negated };
    match (syntax, name) {
        (
            Syntax::V2,
            "Host" | "HostHeader" | "HostRegexp" | "Path" | "PathPrefix" | "Method" | "ClientIP",
        )
        | (Syntax::V3, "HostSNI" | "ClientIP")
            if arguments.len() > 1 =>
        {
            vec![one(arguments.iter().map(|argument| vec![argument.clone()]).collect())]
        }
        (Syntax::V2, "Query") if !arguments.is_empty() => arguments
            .iter()
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                one(vec![vec![key.to_owned(), value.to_owned()]])
            })
            .collect(),
        _ => vec![one(vec![arguments.to_vec()])],
    }
}

/// Makes one alternative of two that differ in the values of one condition: `Host(`a`) || Host(`b`)`.
fn join(all: &mut Vec<Vec<Literal>>) {
    let differ_in = |one: &[Literal], other: &[Literal]| {
        if one.len() != other.len() {
            return None;
        }
        let mut differing = (0..one.len()).filter(|at| one[*at] != other[*at]);
        let at = differing.next().filter(|_| differing.next().is_none())?;
        let (a, b) = (&one[at], &other[at]);
        let joins = matches!(a.name.as_str(), "Host" | "HostHeader" | "Method" | "ClientIP" | "HostSNI");
        (joins && a.name == b.name && !a.is_negated && !b.is_negated).then_some(at)
    };
    let mut first = 0;
    while first < all.len() {
        let mut second = first + 1;
        while second < all.len() {
            if all[first] == all[second] {
                all.remove(second);
            } else if let Some(at) = differ_in(&all[first], &all[second]) {
                let other = all.remove(second);
                for value in &other[at].values {
                    if !all[first][at].values.contains(value) {
                        all[first][at].values.push(value.clone());
                    }
                }
            } else {
                second += 1;
            }
        }
        first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, syntax: Syntax) -> String {
        let literal = |literal: &Literal| {
            let values: Vec<String> = literal.values.iter().map(|value| value.join(",")).collect();
            let not = if literal.is_negated { "!" } else { "" };
            format!("{not}{}({})", literal.name, values.join("|"))
        };
        match branches(text, syntax) {
            Ok(all) => all
                .iter()
                .map(|branch| branch.iter().map(literal).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join("; "),
            Err(why) => why,
        }
    }

    #[test]
    fn rules_become_alternatives() {
        let v3 = [
            ("Host(`a`)", "Host(a)"),
            ("Host(`a`) || Host(`b`)", "Host(a|b)"),
            ("(Host(`a`) || Host(`b`)) && PathPrefix(`/x`)", "Host(a|b) PathPrefix(/x)"),
            ("Host(`a`) && PathPrefix(`/x`) || Path(`/y`)", "Host(a) PathPrefix(/x); Path(/y)"),
            ("!(Host(`a`) && Method(`GET`))", "!Host(a); !Method(GET)"),
            ("!(Host(`a`) || !Path(`/b`))", "!Host(a) Path(/b)"),
            ("Header(`k`, \"a\\\"b\")", "Header(k,a\"b)"),
            (
                "(Path(`/a`) || Path(`/b`)) && (Method(`GET`) || Method(`PUT`))",
                "Path(/a) Method(GET|PUT); Path(/b) Method(GET|PUT)",
            ),
        ];
        v3.iter().for_each(|(text, branches)| assert_eq!(shown(text, Syntax::V3), *branches, "{text}"));
        let v2 = [
            ("Host(`a`, `b`) && Path(`/x`, `/y`)", "Host(a|b) Path(/x|/y)"),
            ("Query(`a=b`, `c=d`)", "Query(a,b) Query(c,d)"),
        ];
        v2.iter().for_each(|(text, branches)| assert_eq!(shown(text, Syntax::V2), *branches, "{text}"));
    }

    #[test]
    fn the_widest_reading_leaves_conditions_out() {
        let shown = |text: &str| {
            let all = widest(text);
            all.iter()
                .map(|branch| branch.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join("; ")
        };
        let many: Vec<String> = (0..100).map(|n| format!("(Path(`/{n}`) && Query(`q{n}`, `1`))")).collect();
        let many = many.join(" || ");
        let cases = [
            ("Host(`a`) && Frob(`b`)".to_owned(), "Host Frob"),
            ("Host(`a`, `b`) && Path(`/x`)".to_owned(), "Host Path"),
            (format!("Host(`a`) && ({many})"), "Host"),
            (many.clone(), ""),
            ("Host(`a`".to_owned(), ""),
            ("Host(`a`) Path(`/x`)".to_owned(), ""),
        ];
        for (rule, names) in cases {
            assert_eq!(shown(&rule), names, "{rule}");
        }
        assert_eq!(widest("Host(`a`) &&").len(), 1);
    }

    #[test]
    fn what_is_no_rule_is_told() {
        let cases = [
            ("Host(`a`", "a `)` is missing behind"),
            ("Host(`a", "a backtick is missing"),
            ("Host(a)", "expected a text in backticks"),
            ("Host(`a`) Path(`/`)", "expected `&&` or `||`"),
            ("Host(`a`) and Path(`/`)", "expected `&&` or `||`, found `and`"),
            ("", "found the end"),
            ("(Host(`a`)", "a `)` is missing"),
            ("{{ x }}", "has no meaning"),
        ];
        for (text, why) in cases {
            assert!(shown(text, Syntax::V3).contains(why), "{text}: {}", shown(text, Syntax::V3));
        }
        let deep = format!("{}Host(`a`)", "!".repeat(10_000));
        assert!(shown(&deep, Syntax::V3).contains("levels of nesting"));
        let pairs: Vec<String> = (0..12).map(|n| format!("(Path(`/a{n}`) || Method(`M{n}`))")).collect();
        assert!(shown(&pairs.join(" && "), Syntax::V3).contains("alternatives"));
    }
}
