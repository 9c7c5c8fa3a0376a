//! Caddy's expressions as ours: both are CEL, with other variables and functions.

use super::model::Matcher;
use super::text;
use super::world::{Now, World};
use crate::shared::expression::Expression;

/// Deepest nesting of calls.
const MAX_CALLS: usize = 20;

/// Translates an expression.
///
/// # Errors
/// What Weir does not have.
pub(super) fn translate(cel: &str, world: &World, now: &Now, in_filter: bool) -> Result<Expression, String> {
    let tokens = tokens(cel)?;
    let mut out = String::new();
    write(&tokens, world, now, in_filter, &mut out, 0)?;
    Ok(Expression::raw(format!("({})", out.trim())))
}

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Placeholder(String),
    Text(String),
    Word(String),
    Number(String),
    Sign(String),
}

fn tokens(cel: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = cel.trim_start();
    while let Some(c) = rest.chars().next() {
        let (token, length) = match c {
            '{' => {
                let close = rest.find('}').ok_or("a `{` that nothing closes")?;
                let inner = &rest[1..close];
                // A map begins with a text.
                if inner.contains(['"', '\'']) {
                    (Token::Sign("{".to_owned()), 1)
                } else {
                    (Token::Placeholder(inner.trim().to_owned()), close + 1)
                }
            }
            '"' | '\'' | '`' => {
                let mut text = String::new();
                let mut chars = rest.char_indices().skip(1);
                let length = loop {
                    match chars.next() {
                        None => return Err("a text that nothing closes".to_owned()),
                        Some((at, end)) if end == c => break at + 1,
                        Some((_, '\\')) if c != '`' => match chars.next() {
                            Some((_, 'n')) => text.push('\n'),
                            Some((_, 't')) => text.push('\t'),
                            Some((_, escaped @ ('\\' | '"' | '\''))) => text.push(escaped),
                            Some((_, other)) => text.extend(['\\', other]),
                            None => return Err("a text that nothing closes".to_owned()),
                        },
                        Some((_, inner)) => text.push(inner),
                    }
                };
                (Token::Text(text), length)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let length =
                    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                (Token::Word(rest[..length].to_owned()), length)
            }
            c if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
                (Token::Number(rest[..length].to_owned()), length)
            }
            _ => {
                let two = ["&&", "||", "==", "!=", "<=", ">="].iter().find(|two| rest.starts_with(**two));
                match two {
                    Some(two) => (Token::Sign((*two).to_owned()), 2),
                    None if "!()[],.:}<>+?".contains(c) => (Token::Sign(c.to_string()), 1),
                    None => return Err(format!("Weir's translation does not read `{c}` in an expression")),
                }
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn write(
    tokens: &[Token],
    world: &World,
    now: &Now,
    in_filter: bool,
    out: &mut String,
    depth: usize,
) -> Result<(), String> {
    if depth > MAX_CALLS {
        return Err("its calls are nested too deep".to_owned());
    }
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Placeholder(name) => {
                let found = text::expression(name, &world.scope());
                let found = found.ok_or_else(|| format!("Weir has no variable for {{{name}}}"))?;
                let reads_path = found.as_str().contains("request.path");
                if reads_path && *now != Now::Same && !in_filter {
                    return Err(format!("the path was rewritten before {{{name}}} is read"));
                }
                // A number is compared with a number.
                out.push_str(found.as_str());
            }
            Token::Text(text) => out.push_str(Expression::text(text).as_str()),
            Token::Number(number) => out.push_str(number),
            Token::Word(word) => {
                let is_method = at >= 2 && tokens.get(at - 2) == Some(&Token::Sign(".".to_owned()));
                let is_call = tokens.get(at) == Some(&Token::Sign("(".to_owned()));
                match &**word {
                    "true" | "false" => out.push_str(word),
                    "in" => out.push_str(" in "),
                    "startsWith" | "endsWith" | "contains" | "matches" | "size" if is_method && is_call => {
                        out.push_str(word);
                    }
                    "size" | "int" | "string" if is_call => out.push_str(word),
                    name if is_call && !is_method => {
                        let close = closing(tokens, at)?;
                        let matcher = call(name, &tokens[at + 1..close])?;
                        let one = world.expression(&[vec![matcher]], now, in_filter)?;
                        out.push_str(&format!("({})", one.as_str()));
                        at = close + 1;
                    }
                    other => return Err(format!("Weir has no `{other}` in expressions")),
                }
            }
            Token::Sign(sign) => match &**sign {
                "(" | ")" | "[" | "]" | "." | "!" => out.push_str(sign),
                "," => out.push_str(", "),
                sign => out.push_str(&format!(" {sign} ")),
            },
        }
    }
    Ok(())
}

/// The position of the `)` for the `(` at `open`.
fn closing(tokens: &[Token], open: usize) -> Result<usize, String> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign(sign) if sign == "(" => depth += 1,
            Token::Sign(sign) if sign == ")" => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
    }
    Err("a `(` that nothing closes".to_owned())
}

/// A matcher that is called like a function.
fn call(name: &str, args: &[Token]) -> Result<Matcher, String> {
    let texts: Vec<String> = args
        .iter()
        .filter_map(|token| match token {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        })
        .collect();
    let is_map = args.first() == Some(&Token::Sign("{".to_owned()));
    let is_list =
        args.iter().all(|token| matches!(token, Token::Text(_)) || *token == Token::Sign(",".to_owned()));
    let fails = || Err(format!("Weir's translation does not read this call of `{name}`"));
    Ok(match name {
        "path" if is_list => Matcher::Path(texts),
        "method" if is_list => Matcher::Method(texts.iter().map(|text| text.to_ascii_uppercase()).collect()),
        "host" if is_list => Matcher::Host(texts.iter().map(|text| text.to_ascii_lowercase()).collect()),
        "remote_ip" | "client_ip" if is_list => Matcher::Client(texts),
        "protocol" if is_list && texts.len() == 1 => Matcher::Protocol(texts[0].clone()),
        "path_regexp" if is_list => match &*texts {
            [pattern] => Matcher::PathRegexp { name: String::new(), pattern: pattern.clone() },
            [name, pattern] => Matcher::PathRegexp { name: name.clone(), pattern: pattern.clone() },
            _ => return fails(),
        },
        "header_regexp" if is_list => match &*texts {
            [field, pattern] | [_, field, pattern] => {
                Matcher::HeaderRegexp(vec![(field.to_ascii_lowercase(), pattern.clone())])
            }
            _ => return fails(),
        },
        "header" | "query" if is_map => {
            let mut pairs: Vec<(String, Vec<String>)> = Vec::new();
            let mut key: Option<String> = None;
            let mut rest = args.iter().peekable();
            while let Some(token) = rest.next() {
                if let Token::Text(text) = token {
                    if rest.peek() == Some(&&Token::Sign(":".to_owned())) {
                        key = Some(text.clone());
                        pairs.push((text.clone(), Vec::new()));
                    } else if key.is_some()
                        && let Some((_, values)) = pairs.last_mut()
                    {
                        values.push(text.clone());
                    }
                }
            }
            match name {
                "query" if pairs.len() > 1 => {
                    return Err("versions of Caddy disagree about `query` with several parameters".to_owned());
                }
                "query" => Matcher::Query(pairs),
                _ => Matcher::Header(
                    pairs
                        .into_iter()
                        .map(|(name, values)| (name.to_ascii_lowercase(), Some(values)))
                        .collect(),
                ),
            }
        }
        _ => return fails(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_translated() {
        let world = World::default();
        let cases = [
            ("{method} == 'GET'", "(request.method == \"GET\")"),
            (
                "{path}.startsWith(\"/x\") && !path('/y')",
                "(request.path.startsWith(\"/x\") && !(request.path.lowerAscii() == \"/y\"))",
            ),
            ("header({'X-A': 'b*'})", "((request.headers[\"x-a\"].all().exists(v, v.startsWith(\"b\"))))"),
            ("{query.a} in ['1', '2']", "(request.args[\"a\"] in [\"1\", \"2\"])"),
        ];
        for (cel, ours) in cases {
            assert_eq!(translate(cel, &world, &Now::Same, false).unwrap().as_str(), ours, "{cel}");
        }
        for cel in ["{time.now.unix} > 5", "vars({'a': 'b'})", "{path} ~ 'x'"] {
            assert!(translate(cel, &world, &Now::Same, false).is_err(), "{cel}");
        }
    }
}
