//! The usual lines of Postman's test scripts: checks of the status, of JSON, header fields and time, and values that
//! are kept in variables. Everything else is for a person.

use crate::plan::json::Node;
use crate::plan::model::Keep;
use crate::plan::text;
use regex::Regex;
use std::sync::LazyLock;

/// Longest line that is read.
const LINE: usize = 2_000;

/// A line of a script.
pub(super) struct Line {
    pub(super) line: u32,
    pub(super) text: String,
}

/// What a line means.
pub(super) enum Meaning {
    Check(String),
    Keep(Keep),
}

impl Meaning {
    pub(super) fn keep(self) -> Option<Keep> {
        match self {
            Self::Keep(keep) => Some(keep),
            Self::Check(_) => None,
        }
    }
}

/// The lines of the scripts of this kind, without blank ones.
pub(super) fn lines(item: &Node<'_>, kind: &str) -> Vec<Line> {
    let mut all = Vec::new();
    for event in item.get("event").map(Node::items).unwrap_or_default() {
        if event.text("listen") != Some(kind) {
            continue;
        }
        let Some(exec) = event.at(&["script", "exec"]) else { continue };
        let own = exec.as_str().into_iter().flat_map(|text| text.lines().map(|line| (exec.line, line)));
        let list = exec.items().iter().filter_map(|item| Some((item.line, item.as_str()?)));
        for (line, text) in
            own.chain(list).flat_map(|(line, text)| text.lines().map(move |text| (line, text)))
        {
            // `pm.test("…", () => pm.response.to.have.status(200));` is a test on one line.
            let text = inner(text.trim());
            if !text.is_empty() {
                all.push(Line { line, text: text.to_owned() });
            }
        }
    }
    all
}

/// The body of a test that is written on one line.
fn inner(text: &str) -> &str {
    static TEST: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r#"^pm\.test\(.*?(?:=>\s*\{?|function\s*\(\)\s*\{)\s*(?P<inner>pm\..+?);?\s*\}?\s*\)\s*;?$"#)
    });
    TEST.captures(text).and_then(|found| found.name("inner")).map_or(text, |inner| inner.as_str())
}

/// Whether a line only frames others: the beginning and end of a test, a comment, the parsing of JSON.
pub(super) fn is_structure(line: &str) -> bool {
    static STRUCTURE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r#"^(?:pm\.test\((?:"[^"]*"|'[^']*'|`[^`]*`)\s*,\s*(?:function\s*\(\)|\(\)\s*=>)\s*\{|\}\)?;?|\}\);?|//.*"#,
            r#"|/\*.*\*/|(?:var|let|const)\s+(?:json|jsonData|data|body|response|res|responseJson)\s*=\s*"#,
            r#"(?:pm\.response\.json\(\)|JSON\.parse\(responseBody\));?)$"#
        ))
    });
    STRUCTURE.is_match(line)
}

/// What a line means.
pub(super) fn read(line: &str) -> Option<Meaning> {
    if line.len() > LINE {
        return None;
    }
    check(line).map(Meaning::Check).or_else(|| keep(line).map(Meaning::Keep))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a literal")
}

/// A part of a JSON answer: `jsonData.a.b[0]`, `pm.response.json().a`.
const JSON: &str = r"(?:pm\.response\.json\(\)|json|jsonData|data|body|response|res|responseJson)(?P<path>(?:\.[A-Za-z_][A-Za-z0-9_]*|\[\d+\]|\[['\x22][A-Za-z0-9 _-]+['\x22]\])+)";

fn check(line: &str) -> Option<String> {
    static STATUS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r"^pm\.response\.to\.have\.status\((?P<a>\d{3})\);?$",
            r"|^pm\.expect\(pm\.response\.code\)\.to\.(?:be\.)?(?:eql|equal|eq)\((?P<b>\d{3})\);?$",
            r"|^pm\.expect\(pm\.response\.code\)\.to\.be\.oneOf\(\[(?P<c>[\d, ]+)\]\);?$",
            r#"|^tests\[.*\]\s*=\s*responseCode\.code\s*={2,3}\s*(?P<d>\d{3});?$"#
        ))
    });
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^pm\.expect\(pm\.response\.responseTime\)\.to\.be\.(?:below|lessThan)\((?P<ms>\d{1,7})\);?$",
        )
    });
    static HEADER: LazyLock<Regex> =
        LazyLock::new(|| pattern(r#"^pm\.response\.to\.have\.header\(["'](?P<name>[A-Za-z0-9-]+)["']\);?$"#));
    static TEXT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r#"^pm\.expect\(pm\.response\.text\(\)\)\.to\.include\((?:"(?P<a>[^"\\]+)"|'(?P<b>[^'\\]+)')\);?$"#,
        )
    });
    static VALUE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(&format!(
            r#"^pm\.expect\({JSON}\)\.to\.(?:be\.)?(?:eql|equal|eq)\((?:"(?P<a>[^"\\]*)"|'(?P<b>[^'\\]*)'|(?P<c>-?\d+(?:\.\d+)?|true|false))\);?$"#
        ))
    });
    static EXISTS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(&format!(r"^pm\.expect\({JSON}\)\.to\.(?:exist|not\.be\.(?:undefined|null)|be\.ok);?$"))
    });
    if let Some(found) = STATUS.captures(line) {
        let list = ["a", "b", "c", "d"].iter().find_map(|name| found.name(name))?.as_str();
        let all: Vec<&str> = list.split(',').map(str::trim).collect();
        let is_fine = |status: &&str| status.parse::<u16>().is_ok_and(|status| (100..=599).contains(&status));
        return all.iter().all(is_fine).then(|| format!("status={}", all.join(",")));
    }
    if line.trim_end_matches(';') == "pm.response.to.be.ok"
        || line.trim_end_matches(';') == "pm.response.to.be.success"
    {
        return Some("status=2xx".to_owned());
    }
    if let Some(found) = TIME.captures(line) {
        return Some(format!("p-max<{}ms", found.name("ms")?.as_str().trim_start_matches('0')))
            .filter(|check| check != "p-max<ms");
    }
    if let Some(found) = HEADER.captures(line) {
        return Some(format!("header:{}", found.name("name")?.as_str().to_ascii_lowercase()));
    }
    if let Some(found) = TEXT.captures(line) {
        return Some(format!("body~{}", found.name("a").or_else(|| found.name("b"))?.as_str()));
    }
    if let Some(found) = VALUE.captures(line) {
        let path = path(found.name("path")?.as_str());
        let text = found.name("a").or_else(|| found.name("b"));
        let value = match text {
            Some(text) => serde_json::Value::from(text.as_str()).to_string(),
            None => found.name("c")?.as_str().to_owned(),
        };
        return Some(format!("json:{path}={value}"));
    }
    let found = EXISTS.captures(line)?;
    Some(format!("json:{}", path(found.name("path")?.as_str())))
}

fn keep(line: &str) -> Option<Keep> {
    static SET: LazyLock<Regex> = LazyLock::new(|| {
        pattern(&format!(
            r#"^(?:pm\.(?:environment|collectionVariables|globals|variables)\.set|postman\.set(?:Environment|Global)Variable)\(["'](?P<name>[^"']+)["']\s*,\s*(?:{JSON}|pm\.response\.headers\.get\(["'](?P<header>[A-Za-z0-9-]+)["']\)|pm\.cookies\.get\(["'](?P<cookie>[A-Za-z0-9_.-]+)["']\))\);?$"#
        ))
    });
    let found = SET.captures(line)?;
    let name = text::name(found.name("name")?.as_str());
    let source = if let Some(found) = found.name("path") {
        format!("json:{}", path(found.as_str()))
    } else if let Some(header) = found.name("header") {
        format!("header:{}", header.as_str().to_ascii_lowercase())
    } else {
        format!("cookie:{}", found.name("cookie")?.as_str())
    };
    Some(Keep { name, source, proof: String::new() })
}

/// A path of JavaScript as one of plans.
fn path(text: &str) -> String {
    format!("${}", text.replace('"', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_lines_are_understood() {
        let shown = |line: &str| match read(inner(line)) {
            Some(Meaning::Check(check)) => check,
            Some(Meaning::Keep(keep)) => format!("{} <- {}", keep.name, keep.source),
            None => "none".to_owned(),
        };
        for (line, want) in [
            ("pm.response.to.have.status(200);", "status=200"),
            ("pm.test(\"ok\", () => pm.response.to.have.status(201));", "status=201"),
            ("pm.test('ok', function () { pm.response.to.have.status(204); });", "status=204"),
            ("pm.expect(pm.response.code).to.be.oneOf([200, 201]);", "status=200,201"),
            ("pm.expect(jsonData.items[0].name).to.eql('A \"b\"');", "json:$.items[0].name=\"A \\\"b\\\"\""),
            ("pm.expect(pm.response.json().ok).to.equal(true)", "json:$.ok=true"),
            ("pm.expect(pm.response.responseTime).to.be.below(500);", "p-max<500ms"),
            (
                "pm.environment.set(\"authToken\", jsonData.data['access-token']);",
                "auth_token <- json:$.data['access-token']",
            ),
            ("pm.globals.set('etag', pm.response.headers.get('ETag'));", "etag <- header:etag"),
            ("console.log(jsonData)", "none"),
            ("pm.expect(jsonData.n).to.be.above(3)", "none"),
        ] {
            assert_eq!(shown(line), want, "{line}");
        }
        for line in ["pm.test(\"x\", function () {", "});", "// note", "const jsonData = pm.response.json();"]
        {
            assert!(is_structure(line), "{line}");
        }
        assert!(!is_structure("if (x) {"));
    }
}
