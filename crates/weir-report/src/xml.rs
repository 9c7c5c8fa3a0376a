//! A reader of XML 1.0, as far as test results need it: elements, attributes, text, CDATA. No DTD, so no entities but
//! the five that XML predefines and numbers of characters; a file cannot make it read another file or grow.

/// Deepest nesting.
const DEPTH_MOST: usize = 64;

/// An element with what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name, with its prefix.
    pub name: String,
    /// The line on which its tag ends, from 1.
    pub line: u32,
    /// Names and values, in order.
    pub attributes: Vec<(String, String)>,
    /// The elements in it.
    pub children: Vec<Self>,
    /// Its own text, without that of its children.
    pub text: String,
}

impl Element {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Parses a document; returns its root.
///
/// # Errors
/// The text is not well-formed, or it has a DTD. The message names the byte.
pub fn parse(text: &str) -> Result<Element, String> {
    let mut reader = Reader { text, at: 0, line: 1, counted: 0 };
    let bad = |reader: &Reader<'_>, hint: &str| format!("{hint} at byte {}", reader.at);
    if let Some(c) = text.chars().find(|c| is_forbidden(*c)) {
        return Err(format!("U+{:04X} is not allowed in XML", c as u32));
    }
    reader.skip("\u{feff}");
    let mut open: Vec<Element> = Vec::new();
    loop {
        let rest = reader.rest();
        let Some(next) = rest.find('<') else {
            return Err(bad(&reader, "the document ends before its root element does"));
        };
        let before = rest.get(..next).unwrap_or_default();
        match open.last_mut() {
            Some(element) => element.text += &unescaped(before).map_err(|hint| bad(&reader, &hint))?,
            None if !before.trim().is_empty() => {
                return Err(bad(&reader, "text outside of the root element"));
            }
            None => {}
        }
        if before.contains("]]>") {
            return Err(bad(&reader, "`]]>` in a text"));
        }
        reader.at += next;
        if reader.skip("<?") {
            reader.until("?>").ok_or_else(|| bad(&reader, "an instruction does not end"))?;
        } else if reader.skip("<!--") {
            reader.until("-->").ok_or_else(|| bad(&reader, "a comment does not end"))?;
        } else if reader.skip("<![CDATA[") {
            let part = reader.until("]]>").ok_or_else(|| bad(&reader, "CDATA does not end"))?;
            let element = open.last_mut().ok_or_else(|| bad(&reader, "CDATA outside of the root element"))?;
            element.text += part;
        } else if reader.skip("<!") {
            return Err(bad(&reader, "a DTD is not read"));
        } else if reader.skip("</") {
            let name = reader.until(">").ok_or_else(|| bad(&reader, "a tag does not end"))?.trim_end();
            let element = open.pop().filter(|element| element.name == name);
            let element =
                element.ok_or_else(|| bad(&reader, &format!("</{name}> closes another element")))?;
            match open.last_mut() {
                Some(parent) => parent.children.push(element),
                None => return reader.ends().map(|()| element),
            }
        } else {
            reader.skip("<");
            let (mut element, is_empty) = reader.tag().map_err(|hint| bad(&reader, &hint))?;
            element.line = reader.line();
            if open.len() >= DEPTH_MOST {
                return Err(bad(&reader, "elements are nested too deeply"));
            }
            match (is_empty, open.last_mut()) {
                (false, _) => open.push(element),
                (true, Some(parent)) => parent.children.push(element),
                (true, None) => return reader.ends().map(|()| element),
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The line at `counted`.
    line: u32,
    counted: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The line here. Counts only what was passed since the last call.
    fn line(&mut self) -> u32 {
        let passed = self.text.get(self.counted..self.at).unwrap_or_default();
        self.line = self.line.saturating_add(u32::try_from(passed.matches('\n').count()).unwrap_or(u32::MAX));
        self.counted = self.at;
        self.line
    }

    /// Passes this text, if it comes next.
    fn skip(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    /// What comes before this text; passes both.
    fn until(&mut self, text: &str) -> Option<&'a str> {
        let before = self.rest().split_once(text)?.0;
        self.at += before.len() + text.len();
        Some(before)
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err("expected a name".to_owned());
        }
        self.at += end;
        Ok(name)
    }

    /// A tag after its `<`, and whether it is an empty element.
    fn tag(&mut self) -> Result<(Element, bool), String> {
        let mut element = Element { name: self.name()?.to_owned(), ..Element::default() };
        loop {
            let before = self.at;
            self.blanks();
            if self.skip("/>") {
                return Ok((element, true));
            }
            if self.skip(">") {
                return Ok((element, false));
            }
            if self.at == before {
                return Err("expected a blank or the end of the tag".to_owned());
            }
            let name = self.name()?.to_owned();
            self.blanks();
            if !self.skip("=") {
                return Err(format!("the attribute {name} has no value"));
            }
            self.blanks();
            let quote = if self.skip("\"") { "\"" } else { "'" };
            if quote == "'" && !self.skip("'") {
                return Err(format!("the value of {name} has no quotes"));
            }
            let value = self.until(quote).ok_or_else(|| format!("the value of {name} does not end"))?;
            if value.contains('<') {
                return Err(format!("a `<` in the value of {name}"));
            }
            if element.attribute(&name).is_some() {
                return Err(format!("the attribute {name} comes twice"));
            }
            element.attributes.push((name, unescaped(value)?));
        }
    }

    /// After the root element, only comments and instructions may follow.
    fn ends(&mut self) -> Result<(), String> {
        loop {
            self.blanks();
            let passed = match () {
                () if self.skip("<!--") => self.until("-->"),
                () if self.skip("<?") => self.until("?>"),
                () if self.rest().is_empty() => return Ok(()),
                () => None,
            };
            if passed.is_none() {
                return Err(format!("text after the root element at byte {}", self.at));
            }
        }
    }
}

const fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Text without its entities.
fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out += before;
        let (entity, after) = after.split_once(';').ok_or("an `&` that begins no entity")?;
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let c = match entity {
            "amp" => Some('&'),
            "apos" => Some('\''),
            "gt" => Some('>'),
            "lt" => Some('<'),
            "quot" => Some('"'),
            _ => match entity.strip_prefix('#').map(|n| (n, n.strip_prefix('x'))) {
                Some((_, Some(hex))) => number(hex, 16),
                Some((decimal, None)) => number(decimal, 10),
                None => None,
            },
        };
        let c = c.filter(|c| !is_forbidden(*c));
        out.push(c.ok_or_else(|| format!("`&{entity};` is not an entity of XML"))?);
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_a_tree() {
        let text = "<?xml version=\"1.0\"?>\n<!-- a -->\n<a x='1' y=\"&lt;&#65;&#x42;\">t<b/>&amp;<c><![CDATA[<d>]]></c></a>\n<!-- z -->";
        let a = parse(text).unwrap();
        assert_eq!((a.name.as_str(), a.attribute("y"), a.text.as_str()), ("a", Some("<AB"), "t&"));
        assert_eq!(a.children.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(a.children[1].text, "<d>");
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let deep = "<a>".repeat(100);
        for bad in [
            "",
            "a",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a x=1/>",
            "<a x='1' x='2'/>",
            "<a>&x;</a>",
            "<a>&</a>",
            "<a>\u{1}</a>",
            "<a>&#0;</a>",
            "<a x='<'/>",
            "<a>]]></a>",
            "<!DOCTYPE a><a/>",
            "<a/>text",
            "<a",
            "<a x",
            "<1/>",
            "<a><![CDATA[</a>",
            "<a x='1'y='2'/>",
            deep.as_str(),
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
