//! Rules that answer: `redirect` and `http-request return`.

use super::super::acl::condition;
use super::super::context::Cx;
use super::super::read::Line;
use super::super::text::{target, template};
use super::Build;
use crate::config::Filter;
use crate::shared::filters::{redirect, respond, when};

impl<'a> Build<'_, 'a> {
    /// `redirect scheme|prefix|location …`, from `at` on.
    pub(super) fn redirect(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line, at: usize) {
        let code = line.after(at, "code").and_then(|code| code.parse().ok()).unwrap_or(302);
        let drops = line.has(at, "drop-query");
        let (kind, text) = (line.word(at), line.word(at + 1).to_owned());
        let made = match kind {
            "scheme" => template(cx, self.scope, &text).map(|scheme| {
                redirect(&format!("{}://{{authority}}{{path}}", scheme.to_setting()), code, !drops)
            }),
            "prefix" => template(cx, self.scope, &text).map(|prefix| {
                let prefix = if text == "/" { String::new() } else { prefix.to_setting() };
                redirect(&format!("{prefix}{{path}}"), code, !drops)
            }),
            "location" => template(cx, self.scope, &text).map(|location| {
                let (to, keeps) = target(&location);
                redirect(&to, code, keeps)
            }),
            _ => Err(format!("`redirect {kind}` is not known")),
        };
        let mut filters = match made {
            Ok(filter) => vec![filter],
            Err(why) => {
                cx.ledger.refused(line.piece, why.clone(), "the filter redirect: { to, status }");
                return self.close_known(cx, line, at + 2, &why);
            }
        };
        for word in ["set-cookie", "clear-cookie"] {
            if line.has(at, word) {
                cx.ledger.refused(
                    line.piece,
                    format!("`{word}` of a redirect"),
                    "headers: { response: { set: { set-cookie } } }",
                );
            }
        }
        if line.has(at, "append-slash") {
            cx.ledger.refused(
                line.piece,
                "`append-slash`",
                "redirect: { to: \"{path}/\" } on a route without the slash",
            );
            return self.close_known(cx, line, at + 2, "it adds a slash to the path");
        }
        let Ok(is) = self.when(cx, line, at + 2) else {
            let why = condition(cx, self.scope, line, at + 2).expression().err().unwrap_or_default();
            let why = format!("its condition: {why}");
            cx.ledger.refused(line.piece, why.clone(), "the filter redirect in `when`");
            return self.close_known(cx, line, at + 2, &why);
        };
        match is.as_constant() {
            Some(false) => return cx.ledger.left_out(line.piece, "its condition never holds here"),
            Some(true) => self.rules.answers = true,
            None => {}
        }
        cx.ledger.same(line.piece);
        if is.as_constant().is_none() {
            filters = when(&is, filters, Vec::new());
        }
        self.push(filters);
    }

    /// `http-request return status 200 content-type text/plain string "ok"`.
    pub(super) fn respond(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        if let Err((why, nearest)) = self.answer(cx, line) {
            cx.ledger.refused(line.piece, why.clone(), nearest);
            self.close_known(cx, line, 2, &why);
        }
    }

    /// The answer of [`Self::respond`], or why there is none and what Weir has.
    fn answer(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) -> Result<(), (String, &'static str)> {
        let nearest = "the filter respond: { status, body }";
        let status = line.after(2, "status").and_then(|status| status.parse().ok()).unwrap_or(200);
        let kind = line.after(2, "content-type").map(str::to_owned);
        let mut body = None;
        if let Some(text) = line.after(2, "string") {
            if text.contains(super::super::read::MARK) {
                let why = "a variable of the environment in a body".to_owned();
                return Err((why, "the filter respond: { status, body: ${NAME} }"));
            }
            body = Some(crate::shared::template::Template::text(text).to_body());
        } else if let Some(text) = line.after(2, "lf-string").map(str::to_owned) {
            let text = template(cx, self.scope, &text).map_err(|why| (why, nearest))?;
            body = Some(text.to_body());
        } else if let Some(path) =
            ["file", "lf-file", "errorfile"].iter().find_map(|word| line.after(2, word))
        {
            let path = path.to_owned();
            let text = cx.text_of(&path).map_err(|why| (why, nearest))?;
            if !line.has(2, "file") {
                return Err(("a page of HAProxy".to_owned(), nearest));
            }
            body = Some(crate::shared::template::Template::text(&text).to_body());
        }
        let mut map = respond(status, body, kind.as_deref());
        let mut at = 2;
        while let Some(found) = line.from(at).iter().position(|word| word == "hdr") {
            let (name, value) = (line.word(at + found + 1).to_ascii_lowercase(), line.word(at + found + 2));
            match template(cx, self.scope, value) {
                Ok(text) => {
                    let value = cx.value(&text.to_setting());
                    map.map_mut("headers").set(name, value);
                }
                Err(why) => cx.ledger.refused(line.piece, why, "respond: { headers }"),
            }
            at += found + 3;
        }
        let answer = vec![Filter::new("respond", map)];
        let is = self
            .when(cx, line, 2)
            .map_err(|why| (format!("its condition: {why}"), "the filter respond in `when`"))?;
        cx.ledger.same(line.piece);
        self.rules.answers |= is.as_constant() == Some(true);
        self.push(when(&is, answer, Vec::new()));
        Ok(())
    }
}
