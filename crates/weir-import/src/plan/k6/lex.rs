//! Words of JavaScript, as far as scripts of k6 need them. Nothing is run.

/// Most words of a script.
const TOKENS: usize = 500_000;
/// Deepest template within a template.
const DEPTH: usize = 8;

/// A word with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) line: u32,
    pub(super) word: Word,
    /// Whether a line break stands before it.
    pub(super) is_first: bool,
    /// Where it begins in the script, in bytes: no two words begin at one place.
    pub(super) at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Name(String),
    Number(String),
    /// Operators and brackets.
    Sign(&'static str),
    Text(String),
    /// Texts and, between them, the words of expressions.
    Template(Vec<String>, Vec<Vec<Token>>),
    /// A regular expression, which nothing here evaluates.
    Pattern,
}

/// Longest first.
const SIGNS: &[&str] = &[
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
    "**", "{", "}", "(", ")", "[", "]", ";", ",", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~",
    "?", ":", "=", ".", "@", "#",
];

/// The words of a script. The error has the line.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, (u32, String)> {
    let mut lexer = Lexer { text, at: 0, line: 1, count: 0 };
    lexer.all(0, false).map_err(|why| (lexer.line, why))
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    count: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn pass(&mut self, length: usize) {
        let passed = self.text.get(self.at..self.at + length).unwrap_or_default();
        self.line = self.line.saturating_add(u32::try_from(passed.matches('\n').count()).unwrap_or(u32::MAX));
        self.at += length;
    }

    /// Words up to the end, or up to the `}` that closes a part of a template.
    fn all(&mut self, depth: usize, in_template: bool) -> Result<Vec<Token>, String> {
        if depth > DEPTH {
            return Err(format!("templates are nested more than {DEPTH} deep"));
        }
        let mut all: Vec<Token> = Vec::new();
        let mut braces = 0usize;
        loop {
            let is_first = self.blanks()?;
            let (line, at) = (self.line, self.at);
            let rest = self.rest();
            let Some(c) = rest.chars().next() else {
                return if in_template { Err("a template is not closed".to_owned()) } else { Ok(all) };
            };
            self.count += 1;
            if self.count > TOKENS {
                return Err(format!("more than {TOKENS} words"));
            }
            let word = match c {
                '}' if in_template && braces == 0 => {
                    self.pass(1);
                    return Ok(all);
                }
                '"' | '\'' => self.string(c)?,
                '`' => self.template(depth)?,
                c if c.is_ascii_digit()
                    || c == '.' && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) =>
                {
                    self.number()
                }
                c if c.is_alphabetic() || matches!(c, '_' | '$') => self.name(),
                '/' if is_before_pattern(all.last()) => self.pattern()?,
                _ => {
                    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                    let sign = sign.ok_or_else(|| format!("{c:?} is no sign of JavaScript"))?;
                    match *sign {
                        "{" => braces += 1,
                        "}" => braces = braces.saturating_sub(1),
                        _ => {}
                    }
                    self.pass(sign.len());
                    Word::Sign(sign)
                }
            };
            all.push(Token { line, word, is_first, at });
        }
    }

    /// Passes blanks and comments. Returns whether a line ended.
    fn blanks(&mut self) -> Result<bool, String> {
        let before = self.line;
        loop {
            let rest = self.rest();
            let blank =
                rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len();
            if blank > 0 {
                self.pass(blank);
            } else if rest.starts_with("//") || self.at == 0 && rest.starts_with("#!") {
                let end = rest.find('\n').unwrap_or(rest.len());
                self.pass(end);
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or("a comment is not closed")?;
                self.pass(end + 2);
            } else {
                return Ok(self.line > before);
            }
        }
    }

    fn name(&mut self) -> Word {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'))).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default().to_owned();
        self.pass(end);
        Word::Name(name)
    }

    fn number(&mut self) -> Word {
        let rest = self.rest();
        let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
        let mut end = 0;
        let mut before = ' ';
        for c in rest.chars() {
            let goes_on = c.is_ascii_alphanumeric()
                || c == '_'
                || c == '.'
                || matches!(c, '+' | '-') && matches!(before, 'e' | 'E') && !is_hex;
            if !goes_on {
                break;
            }
            before = c;
            end += c.len_utf8();
        }
        let text = rest.get(..end).unwrap_or_default().replace('_', "");
        self.pass(end);
        let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => {
                u64::from_str_radix(hex, 16).map_or_else(|_| text.clone(), |number| number.to_string())
            }
            None => text.trim_end_matches('n').to_owned(),
        };
        Word::Number(value)
    }

    fn string(&mut self, quote: char) -> Result<Word, String> {
        self.pass(1);
        let mut out = String::new();
        loop {
            let c = self.rest().chars().next().ok_or("a text is not closed")?;
            match c {
                c if c == quote => {
                    self.pass(1);
                    return Ok(Word::Text(out));
                }
                '\n' => return Err("a text is not closed on its line".to_owned()),
                '\\' => self.escape(&mut out)?,
                c => {
                    out.push(c);
                    self.pass(c.len_utf8());
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        self.pass(1);
        let c = self.rest().chars().next().ok_or("a text is not closed")?;
        self.pass(c.len_utf8());
        let code = |lexer: &mut Self, digits: usize| -> Result<u32, String> {
            let hex =
                lexer.text.get(lexer.at..lexer.at + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
            lexer.at += digits;
            hex.ok_or_else(|| "an escape needs hexadecimal digits".to_owned())
        };
        let made = match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' => '\0',
            '\n' => return Ok(()),
            'x' => char::from_u32(code(self, 2)?).unwrap_or(char::REPLACEMENT_CHARACTER),
            'u' if self.rest().starts_with('{') => {
                let inside = self
                    .rest()
                    .get(1..)
                    .and_then(|rest| rest.split_once('}'))
                    .map(|(inside, _)| inside.to_owned());
                let inside = inside.ok_or("an escape is not closed")?;
                self.pass(inside.len() + 2);
                u32::from_str_radix(&inside, 16)
                    .ok()
                    .and_then(char::from_u32)
                    .unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            'u' => {
                let first = code(self, 4)?;
                if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
                    self.pass(2);
                    let low = code(self, 4)?;
                    let both = 0x10000 + ((first - 0xd800) << 10) + (low & 0x3ff);
                    char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER)
                } else {
                    char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
                }
            }
            c => c,
        };
        out.push(made);
        Ok(())
    }

    fn template(&mut self, depth: usize) -> Result<Word, String> {
        self.pass(1);
        let (mut texts, mut inner) = (vec![String::new()], Vec::new());
        loop {
            let rest = self.rest();
            if rest.starts_with("${") {
                self.pass(2);
                inner.push(self.all(depth + 1, true)?);
                texts.push(String::new());
                continue;
            }
            let c = rest.chars().next().ok_or("a template is not closed")?;
            let last = texts.last_mut().ok_or("a template has a text")?;
            match c {
                '`' => {
                    self.pass(1);
                    return Ok(Word::Template(texts, inner));
                }
                '\\' => {
                    let mut escaped = String::new();
                    self.escape(&mut escaped)?;
                    if let Some(last) = texts.last_mut() {
                        last.push_str(&escaped);
                    }
                }
                c => {
                    last.push(c);
                    self.pass(c.len_utf8());
                }
            }
        }
    }

    fn pattern(&mut self) -> Result<Word, String> {
        let rest = self.rest();
        let (mut is_class, mut is_escaped) = (false, false);
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '[' => is_class = true,
                ']' => is_class = false,
                '/' if !is_class => {
                    let flags = rest.get(at + 1..).unwrap_or_default();
                    let flags =
                        flags.len() - flags.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
                    self.pass(at + 1 + flags);
                    return Ok(Word::Pattern);
                }
                _ => {}
            }
        }
        Err("a regular expression is not closed".to_owned())
    }
}

/// Whether a `/` begins a regular expression: it does where a value is expected.
fn is_before_pattern(last: Option<&Token>) -> bool {
    match last.map(|token| &token.word) {
        None => true,
        Some(Word::Sign(sign)) => !matches!(*sign, ")" | "]" | "}" | "++" | "--"),
        Some(Word::Name(name)) => matches!(&**name, "return" | "typeof" | "case" | "in" | "of"),
        Some(_) => false,
    }
}
