//! nginx's syntax: words, quotes, blocks and includes, by the rules of `ngx_conf_read_token`.

use crate::ledger::{Ledger, Piece, Verdict};
use crate::source::{MAX_DEPTH, Place, SourceFile, SourceTree, Unreadable, folder, has_wildcard, join};
use std::sync::Arc;

/// How deep blocks may be nested.
const MAX_BLOCKS: usize = 50;

/// Parts of the names of files that may keep somebody out, and of those that do not.
const GUARDS: &[&str] = &[
    "access",
    "acl",
    "allow",
    "auth",
    "block",
    "deny",
    "geo",
    "limit",
    "restrict",
    "security",
    "waf",
    "whitelist",
];
const NO_GUARDS: &[&str] = &[
    "brotli",
    "cache",
    "cert",
    "charset",
    "compress",
    "expires",
    "fastcgi",
    "gzip",
    "header",
    "letsencrypt",
    "log",
    "mime",
    "module",
    "params",
    "proxy",
    "resolver",
    "scgi",
    "ssl",
    "tls",
    "types",
    "upstream",
    "uwsgi",
    "websocket",
];

/// Where nginx's own files are, which people copy elsewhere to import them.
const PREFIXES: &[&str] =
    &["/etc/nginx/", "/usr/local/nginx/conf/", "/usr/local/openresty/nginx/conf/", "/usr/local/etc/nginx/"];

/// A directive with its arguments, and its block if it has one.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
    pub(super) piece: Piece,
    pub(super) place: Place,
}

impl Directive {
    /// The first argument, or nothing.
    pub(super) fn first(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }
}

/// Reads all given files with what they include, as one list of directives.
pub(super) fn read_all(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Vec<Directive>, Unreadable> {
    let given = tree.given().to_vec();
    let mut all = Vec::new();
    for path in &given {
        // A file that another one included already.
        if tree.names().iter().any(|name| name == path) {
            continue;
        }
        let file = tree.read(path)?;
        let mut reader =
            Reader { tree: &mut *tree, ledger: &mut *ledger, open: Vec::new(), blocks: Vec::new() };
        all.extend(reader.file(&file)?);
    }
    Ok(all)
}

/// The path of a file that the config names, beside the first file of the tree.
pub(super) fn beside(tree: &SourceTree<'_>, path: &str) -> String {
    let root = tree.given().first().map_or("", |first| folder(first));
    let here = PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).filter(|_| {
        !tree.is_in_place() && !PREFIXES.iter().any(|prefix| format!("{root}/").starts_with(prefix))
    });
    join(root, here.unwrap_or(path))
}

struct Reader<'a, 'b> {
    tree: &'a mut SourceTree<'b>,
    ledger: &'a mut Ledger,
    /// The files that are being read, outermost first.
    open: Vec<Arc<str>>,
    /// The names of the blocks around, outermost first.
    blocks: Vec<String>,
}

impl Reader<'_, '_> {
    fn file(&mut self, file: &SourceFile) -> Result<Vec<Directive>, Unreadable> {
        let mut tokens = Tokens { file, rest: &file.text, line: 1 };
        self.open.push(file.name.clone());
        let block = self.block(&mut tokens, 0, None);
        self.open.pop();
        block
    }

    /// Directives up to the `}` of the block that `opened`, or to the end of the file.
    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        depth: usize,
        opened: Option<&Place>,
    ) -> Result<Vec<Directive>, Unreadable> {
        let mut directives = Vec::new();
        loop {
            let mut words: Vec<String> = Vec::new();
            let mut place = None;
            let has_block = loop {
                let token = tokens.next()?;
                let here = tokens.place();
                match token {
                    Some(Token::Word(word)) => {
                        place.get_or_insert(here);
                        words.push(word);
                    }
                    Some(Token::End) if words.is_empty() => {
                        return Err(Unreadable::at(&here, "`;` without a directive before it"));
                    }
                    Some(Token::End) => break false,
                    Some(Token::Open) if words.is_empty() => {
                        return Err(Unreadable::at(&here, "`{` without a directive before it"));
                    }
                    Some(Token::Open) => break true,
                    Some(Token::Close) if words.is_empty() && opened.is_some() => return Ok(directives),
                    Some(Token::Close) if words.is_empty() => {
                        return Err(Unreadable::at(&here, "`}` closes no block"));
                    }
                    None if words.is_empty() => match opened {
                        None => return Ok(directives),
                        Some(open) => {
                            return Err(Unreadable::at(open, "the block that begins here has no `}`"));
                        }
                    },
                    Some(Token::Close) | None => {
                        let at = place.unwrap_or(here);
                        return Err(Unreadable::at(&at, format!("`{}` has no `;` behind it", words[0])));
                    }
                }
            };
            let place = place.unwrap_or_else(|| tokens.place());
            let name = words.remove(0);
            let text = format!("{name} {}", words.join(" "));
            let piece = self.ledger.enter(place.clone(), &text);
            let mut block = None;
            if has_block {
                if name.ends_with("_by_lua_block") {
                    tokens.skip_lua(&place)?;
                    block = Some(Vec::new());
                } else if matches!(&*name, "types" | "map" | "geo" | "split_clients" | "charset_map") {
                    // Their lines are values, not directives.
                    block = Some(self.values(tokens, &place)?);
                } else if depth >= MAX_BLOCKS {
                    return Err(Unreadable::at(
                        &place,
                        format!("more than {MAX_BLOCKS} blocks in one another"),
                    ));
                } else {
                    self.blocks.push(name.clone());
                    let read = self.block(tokens, depth + 1, Some(&place));
                    self.blocks.pop();
                    block = Some(read?);
                }
            }
            if name == "include" && !has_block {
                directives.extend(self.include(&words, piece, &place)?);
                if self.is_missing(words.first().map_or("", String::as_str), piece) {
                    // What is missing may keep somebody out, so it stays as a directive that nobody knows.
                    directives.push(Directive { name, args: words, block, piece, place });
                }
            } else {
                directives.push(Directive { name, args: words, block, piece, place });
            }
        }
    }

    /// The lines of a table. Each is a statement of its own, except those of `types`, which belong to its block.
    fn values(&mut self, tokens: &mut Tokens<'_>, opened: &Place) -> Result<Vec<Directive>, Unreadable> {
        let mut lines = Vec::new();
        let mut words: Vec<String> = Vec::new();
        loop {
            match tokens.next()? {
                Some(Token::Word(word)) => words.push(word),
                Some(Token::End) if !words.is_empty() => {
                    let place = tokens.place();
                    let piece = self.ledger.enter(place.clone(), &words.join(" "));
                    let name = words.remove(0);
                    let args = std::mem::take(&mut words);
                    if name == "include" && args.len() == 1 {
                        lines.extend(self.include_values(&args[0], piece, &place)?);
                        if self.ledger.verdict(piece) == Some(Verdict::Refused) {
                            lines.push(Directive { name, args, block: None, piece, place });
                        }
                    } else {
                        lines.push(Directive { name, args, block: None, piece, place });
                    }
                }
                Some(Token::Close) if words.is_empty() => return Ok(lines),
                Some(_) => {
                    return Err(Unreadable::at(&tokens.place(), "a table has lines of a key and a value"));
                }
                None => return Err(Unreadable::at(opened, "the block that begins here has no `}`")),
            }
        }
    }

    /// A file of lines of a table.
    fn include_values(
        &mut self,
        path: &str,
        piece: Piece,
        place: &Place,
    ) -> Result<Vec<Directive>, Unreadable> {
        let mut lines = Vec::new();
        for file in self.included(path, piece, place)? {
            // As if the file stood in a block of its own.
            let inner = SourceFile { name: file.name.clone(), text: format!("{}\n}}", file.text).into() };
            let mut tokens = Tokens { file: &inner, rest: &inner.text, line: 1 };
            self.open.push(file.name);
            let read = self.values(&mut tokens, place);
            self.open.pop();
            lines.extend(read?);
        }
        Ok(lines)
    }

    /// Whether an `include` lacks a file that may hold guards. Files of usual names hold none.
    fn is_missing(&self, path: &str, piece: Piece) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        self.ledger.verdict(piece) == Some(Verdict::Refused) && (has(GUARDS) || !has(NO_GUARDS))
    }

    fn include(
        &mut self,
        words: &[String],
        piece: Piece,
        place: &Place,
    ) -> Result<Vec<Directive>, Unreadable> {
        let [path] = words else {
            return Err(Unreadable::at(place, "`include` takes one path"));
        };
        let mut directives = Vec::new();
        for file in self.included(path, piece, place)? {
            directives.extend(self.file(&file)?);
        }
        Ok(directives)
    }

    /// The files that a path or pattern names. One that cannot be read is refused in the ledger.
    fn included(&mut self, path: &str, piece: Piece, place: &Place) -> Result<Vec<SourceFile>, Unreadable> {
        if self.open.len() > MAX_DEPTH {
            return Err(Unreadable::at(place, format!("more than {MAX_DEPTH} includes in one another")));
        }
        let nearest = "give weir import the folder with all files, as nginx has it";
        if path.contains('$') {
            self.ledger.refused(piece, "the path has a variable", nearest);
            return Ok(Vec::new());
        }
        let full = beside(self.tree, path);
        let paths = self.tree.glob(&full);
        if paths.is_empty() && !self.tree.is_in_place() && !self.tree.has_folder(&full) {
            let is_site = self.blocks.iter().any(|block| matches!(&**block, "server" | "location"));
            let why = "the folder is missing, so its includes are unknown";
            match is_site {
                true => {
                    self.ledger.refused(piece, why, format!("{nearest}; if the folder is empty, make it"))
                }
                false => self.ledger.changed(piece, why),
            }
        }
        let mut files = Vec::new();
        for path in paths {
            if self.open.iter().any(|open| **open == *path) {
                return Err(Unreadable::at(place, format!("{path} includes itself")));
            }
            match self.tree.read(&path) {
                Ok(file) => files.push(file),
                // The text of the message begins with the path.
                Err(e) if e.message.contains("no such file") && !has_wildcard(&full) => {
                    self.ledger.refused(piece, format!("{e}"), nearest);
                }
                Err(e) if ["leads out of", "is a link to"].iter().any(|why| e.message.contains(why)) => {
                    self.ledger.refused(piece, format!("{e}"), nearest);
                }
                Err(e) => return Err(Unreadable::at(place, e.message)),
            }
        }
        if !self.ledger.is_judged(piece) {
            self.ledger.same(piece);
        }
        Ok(files)
    }
}

enum Token {
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

struct Tokens<'a> {
    file: &'a SourceFile,
    rest: &'a str,
    line: u32,
}

impl Tokens<'_> {
    fn place(&self) -> Place {
        Place { file: self.file.name.clone(), line: self.line }
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += u32::from(c == '\n');
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Result<Option<Token>, Unreadable> {
        loop {
            match self.peek() {
                None => return Ok(None),
                Some('#') => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                Some(c) if c.is_ascii_whitespace() => _ = self.bump(),
                Some(';') => return Ok(self.bump().map(|_| Token::End)),
                Some('{') => return Ok(self.bump().map(|_| Token::Open)),
                Some('}') => return Ok(self.bump().map(|_| Token::Close)),
                Some(quote @ ('"' | '\'')) => return self.quoted(quote).map(Some),
                Some(_) => return Ok(Some(self.word())),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, Unreadable> {
        let opened = self.place();
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None => {
                    return Err(Unreadable::at(&opened, format!("the {quote} that stands here has no end")));
                }
                Some(c) if c == quote => break,
                Some('\\') => self.escaped(&mut text),
                Some(c) => text.push(c),
            }
        }
        match self.peek() {
            None => {}
            Some(c) if c.is_ascii_whitespace() || matches!(c, ';' | '{' | ')') => {}
            Some(c) => return Err(Unreadable::at(&self.place(), format!("`{c}` directly behind a {quote}"))),
        }
        Ok(Token::Word(text))
    }

    fn word(&mut self) -> Token {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            let in_variable = c == '{' && text.ends_with('$');
            if c.is_ascii_whitespace() || c == ';' || (c == '{' && !in_variable) {
                break;
            }
            self.bump();
            if c == '\\' {
                self.escaped(&mut text);
            } else {
                text.push(c);
            }
        }
        Token::Word(text)
    }

    /// What follows a backslash: nginx takes it away before a quote or another one, and keeps it elsewhere, so that
    /// regular expressions need no second one.
    fn escaped(&mut self, text: &mut String) {
        match self.bump() {
            Some(c @ ('"' | '\'' | '\\')) => text.push(c),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('n') => text.push('\n'),
            Some(c) => {
                text.push('\\');
                text.push(c);
            }
            None => text.push('\\'),
        }
    }

    /// Skips the Lua up to the `}` that closes its block: braces count outside of texts and comments.
    fn skip_lua(&mut self, opened: &Place) -> Result<(), Unreadable> {
        let mut depth = 1_usize;
        while let Some(c) = self.bump() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => return Ok(()),
                '}' => depth -= 1,
                '"' | '\'' => {
                    while let Some(inner) = self.bump() {
                        match inner {
                            '\\' => _ = self.bump(),
                            inner if inner == c || inner == '\n' => break,
                            _ => {}
                        }
                    }
                }
                '[' if self.rest.starts_with('[') => {
                    let end = self.rest.find("]]").unwrap_or(self.rest.len());
                    self.skip_to(end);
                }
                '-' if self.rest.starts_with("-[[") => {
                    let end = self.rest.find("]]").unwrap_or(self.rest.len());
                    self.skip_to(end);
                }
                '-' if self.rest.starts_with('-') => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.skip_to(end);
                }
                _ => {}
            }
        }
        Err(Unreadable::at(opened, "the block that begins here has no `}`"))
    }

    fn skip_to(&mut self, end: usize) {
        let lines = self.rest[..end].matches('\n').count();
        self.line += u32::try_from(lines).unwrap_or(u32::MAX);
        self.rest = &self.rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

    fn read(files: &[(&str, &str)]) -> Result<String, String> {
        let memory = Memory::of(files);
        let mut tree = SourceTree::open(&memory, &[files[0].0.to_owned()]).unwrap();
        let mut ledger = Ledger::default();
        let all = read_all(&mut tree, &mut ledger).map_err(|e| e.to_string())?;
        Ok(shown(&all))
    }

    fn shown(all: &[Directive]) -> String {
        let one = |d: &Directive| {
            let block = d.block.as_ref().map(|inner| format!("{{{}}}", shown(inner))).unwrap_or_default();
            format!("{}:{}({}){block}", d.place.line, d.name, d.args.join("|"))
        };
        all.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_quotes_and_blocks_are_read_as_nginx_does() {
        let cases = [
            ("listen 80;\nserver { a b; }", "1:listen(80) 2:server(){2:a(b)}"),
            (r#"a "x \" y" 'z;' ;"#, r#"1:a(x " y|z;)"#),
            (r"location ~ \.php$ {}", r"1:location(~|\.php$){}"),
            (r"rewrite ^/\\x a;", r"1:rewrite(^/\x|a)"),
            ("set $a ${b}c;", "1:set($a|${b}c)"),
            ("a b#c; # d;\n", "1:a(b#c)"),
            (
                "content_by_lua_block { if x then y = '}' end -- }\n t = {} } a;",
                "1:content_by_lua_block(){} 2:a()",
            ),
            ("map $a $b { default x; ~^/y z; }", "1:map($a|$b){1:default(x) 1:~^/y(z)}"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&[("nginx.conf", text)]).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn mistakes_of_syntax_have_their_line() {
        let cases = [
            ("a b\n}", "nginx.conf:1: `a` has no `;` behind it"),
            ("server {\n a b;", "nginx.conf:1: the block that begins here has no `}`"),
            ("a \"b\n", "nginx.conf:1: the \" that stands here has no end"),
            ("}", "nginx.conf:1: `}` closes no block"),
            ("include nginx.conf;", "nginx.conf:1: nginx.conf includes itself"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&[("nginx.conf", text)]).unwrap_err(), expected, "{text}");
        }
        let deep = "a {".repeat(100_000);
        assert!(read(&[("nginx.conf", &deep)]).unwrap_err().contains("more than 50 blocks"));
    }

    #[test]
    fn includes_are_found_beside_the_first_file() {
        let files = [
            ("etc/nginx.conf", "include conf.d/*.conf;\ninclude /etc/nginx/extra;"),
            ("etc/conf.d/b.conf", "b;"),
            ("etc/conf.d/a.conf", "a;"),
            ("etc/extra", "c;"),
        ];
        assert_eq!(read(&files).as_deref(), Ok("1:a() 1:b() 1:c()"));
        let circle = [("a", "include b;"), ("b", "include a;")];
        assert!(read(&circle).unwrap_err().contains("includes itself"));
    }
}
