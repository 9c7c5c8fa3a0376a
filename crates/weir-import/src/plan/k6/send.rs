//! Calls of `http`: the request of a step, and what of its parameters a plan does in another way.

use super::Translator;
use super::parse::{Expression, Site};
use super::value::V;
use crate::ledger::Piece;
use crate::plan::model::{Body, Does, Request, Step};
use crate::plan::text::{self, Span};
use crate::plan::{names, secrets};
use crate::yaml::Value;

/// Most requests of `http.batch`, as weir-plan has it for `parallel`.
const BATCH: usize = 100;
/// Behind the name in a placeholder that `encodeURIComponent` made.
pub(super) const ENCODED: &str = "|encoded";

impl Translator<'_, '_> {
    /// What `http.METHOD(…)` does; `None` if it only has a value.
    pub(super) fn send(&mut self, method: &str, arguments: &[Expression], site: Site) -> Option<V> {
        if method == "url" {
            self.judged.insert(site.at);
            return None;
        }
        let piece = self.enter_call(site);
        let missing = || V::Unknown("a request that is not in the plan".to_owned());
        if self.steps.is_none() {
            let why = "a request outside of the functions that users run";
            self.cx.ledger.refused(piece, why, "a step of `setup:`");
            return Some(missing());
        }
        let (verb, rest) = match method {
            "get" | "head" | "post" | "put" | "patch" | "options" => (method.to_uppercase(), arguments),
            "del" | "delete" => ("DELETE".to_owned(), arguments),
            "request" | "asyncRequest" => match arguments.first().map(|first| self.value(first)) {
                Some(V::Text(verb)) if !text::has_placeholder(&verb) => {
                    (verb.to_uppercase(), arguments.get(1..).unwrap_or_default())
                }
                _ => {
                    self.cx.ledger.refused(
                        piece,
                        "its method is not a text",
                        "a step with `method` and `url`",
                    );
                    return Some(missing());
                }
            },
            "batch" => return Some(self.batch(piece, arguments)),
            // A check of every answer, which a plan has for each step.
            "setResponseCallback" | "expectedStatuses" => {
                let why = "callbacks are not followed: write the expected statuses as `checks:`";
                self.cx.ledger.refused(piece, why, "`defaults: { checks: [ status=2xx,404 ] }`");
                return Some(V::Unknown("a callback of answers".to_owned()));
            }
            other => {
                self.cx.ledger.refused(
                    piece,
                    format!("`http.{other}` is not followed"),
                    "a step of the plan",
                );
                return Some(missing());
            }
        };
        let has_body = !matches!(method, "get" | "head");
        let (body, parameters) = if has_body { (rest.get(1), rest.get(2)) } else { (None, rest.get(1)) };
        Some(match self.made(&verb, rest.first(), body, parameters) {
            Ok(request) => {
                let id = request.id;
                self.told(piece);
                self.push(request.step(piece));
                V::Answer(id)
            }
            Err(why) => {
                self.cx.ledger.refused(piece, why, "a step of the plan, with `keep`, `data` or `values`");
                missing()
            }
        })
    }

    /// Ends the line of a request that is in the plan.
    fn told(&mut self, piece: Piece) {
        self.cx.ledger.same(piece);
        for note in std::mem::take(&mut self.notes) {
            self.cx.ledger.changed(piece, note);
        }
    }

    /// Makes a request of the arguments of `http.*`.
    fn made(
        &mut self,
        verb: &str,
        url: Option<&Expression>,
        body: Option<&Expression>,
        parameters: Option<&Expression>,
    ) -> Result<Request, String> {
        self.notes.clear();
        let url = url.map_or(V::Null, |url| self.value(url));
        let body = body.map(|body| self.value(body));
        let parameters = parameters.map(|parameters| self.value(parameters));
        let mut url = self.text(&url, "url")?;
        let user = secrets::take_user(&mut url);
        self.next += 1;
        let mut request = Request { id: self.next, ..Request::new(verb, url_text(&url)?) };
        match parameters {
            Some(V::Object(entries)) => self.parameters(&entries, &mut request)?,
            None | Some(V::Null) => {}
            Some(V::Unknown(why)) => return Err(why),
            Some(_) => return Err("its parameters are not an object".to_owned()),
        }
        if let Some(user) = user
            && request.header("authorization").is_none()
        {
            request.set_header("authorization", secrets::basic_field(&user));
        }
        if let Some(body) = body {
            self.body_of(body, &mut request)?;
        }
        self.unencoded(&mut request);
        let name = request.name.take();
        request.name = match (name, self.group.is_empty()) {
            (Some(name), _) => Some(name),
            (None, true) => None,
            (None, false) => Some(format!("{}{}", self.group, names::of_request(&request))),
        };
        Ok(request)
    }

    fn body_of(&mut self, body: V, request: &mut Request) -> Result<(), String> {
        match body {
            V::Null => {}
            V::Serialized(value) => {
                let value = self.json_value(&value, "")?;
                match value {
                    Value::Map(_) | Value::List(_) => request.body = Some(Body::Json(value)),
                    _ => return Err("its JSON is neither an object nor a list".to_owned()),
                }
                let is_own =
                    |name: &String, value: &String| name == "content-type" && value == "application/json";
                if request.header("content-type").is_none() {
                    // k6 sends no type with a text.
                    request.set_header("content-type", "text/plain;charset=UTF-8");
                }
                request.headers.retain(|(name, value)| !is_own(name, value));
            }
            V::Object(entries) => {
                let mut fields: Vec<(String, String)> = Vec::new();
                for (name, value) in entries {
                    let value = self.text(&value, &name)?;
                    fields.retain(|(known, _)| *known != name);
                    fields.push((name, value));
                }
                request.body = Some(Body::Form(fields));
                request.headers.retain(|(name, _)| name != "content-type");
            }
            value => request.body = Some(Body::Text(self.text(&value, "body")?)),
        }
        Ok(())
    }

    /// Values outside of URLs are not percent-encoded by plans.
    fn unencoded(&mut self, request: &mut Request) {
        let mut is_changed = false;
        let url = std::mem::take(&mut request.url);
        request.parts_mut(&mut |text| {
            if text.contains(ENCODED) {
                *text = text.replace(ENCODED, "");
                is_changed = true;
            }
        });
        request.url = url;
        if is_changed {
            self.notes.push("a value that `encodeURIComponent` encodes is sent as it is");
        }
    }

    fn parameters(&mut self, entries: &[(String, V)], request: &mut Request) -> Result<(), String> {
        for (key, value) in entries {
            match (&**key, value) {
                ("headers", V::Object(fields)) => {
                    for (name, value) in fields {
                        let value = self.text(value, name)?;
                        request.set_header(name, value);
                    }
                }
                ("tags", V::Object(tags)) => {
                    if let Some((_, V::Text(name))) = tags.iter().find(|(key, _)| key == "name") {
                        request.name = Some(name.replace("{{", "").replace("}}", ""));
                    }
                }
                ("timeout", V::Text(time)) => request.timeout = Some(time.clone()),
                ("timeout", V::Number(ms)) => request.timeout = ms.parse().ok().map(text::duration),
                ("redirects", V::Number(most)) => request.redirects = most.parse().ok(),
                ("cookies", V::Object(cookies)) => {
                    let mut pairs = Vec::new();
                    for (name, value) in cookies {
                        let value = match value {
                            V::Object(inner) => {
                                let inner =
                                    inner.iter().find(|(key, _)| key == "value").map(|(_, value)| value);
                                inner.cloned().unwrap_or(V::Null)
                            }
                            value => value.clone(),
                        };
                        pairs.push(format!("{}={}", text::literal(name), self.text(&value, name)?));
                    }
                    request.set_header("cookie", pairs.join("; "));
                    self.notes.push("its cookies replace those of the user's jar; k6 adds them");
                }
                ("auth", V::Text(kind)) if kind == "basic" => {}
                ("responseType", _) => {}
                ("responseCallback", _) => {
                    self.notes.push("its callback is not followed: use `checks:` of the step");
                }
                ("compression", _) => self.notes.push("its body is sent without compression"),
                ("jar", _) => self.notes.push("it uses the user's own jar of cookies"),
                (key, V::Unknown(why)) => return Err(format!("its parameter `{key}`: {why}")),
                (key, _) => return Err(format!("its parameter `{key}` is not followed")),
            }
        }
        Ok(())
    }

    /// `http.batch`: requests at once. Returns their answers.
    fn batch(&mut self, piece: Piece, arguments: &[Expression]) -> V {
        let list: Vec<(Option<&String>, &Expression)> = match arguments.first() {
            Some(Expression::Array(items)) => items.iter().map(|item| (None, item)).collect(),
            Some(Expression::Object(entries)) => {
                entries.iter().map(|(key, value)| (Some(key), value)).collect()
            }
            _ => Vec::new(),
        };
        let not_followed = || V::Unknown("the answers of `http.batch` are not followed".to_owned());
        if list.is_empty() || list.len() > BATCH {
            let why = format!("`http.batch` of a list that is not written out, or of more than {BATCH}");
            self.cx.ledger.refused(piece, why, "steps of `parallel`");
            return not_followed();
        }
        let mut inner = Vec::new();
        let (mut answers, mut notes) = (Vec::new(), Vec::new());
        for (key, item) in list {
            let made = match item {
                Expression::Array(parts) => match parts.first() {
                    Some(Expression::Text(verb)) => {
                        self.made(&verb.to_uppercase(), parts.get(1), parts.get(2), parts.get(3))
                    }
                    _ => Err("a request of `http.batch` has no method".to_owned()),
                },
                Expression::Object(entries) => {
                    let get =
                        |wanted: &str| entries.iter().find(|(key, _)| key == wanted).map(|(_, value)| value);
                    match get("method") {
                        Some(Expression::Text(verb)) => {
                            self.made(&verb.to_uppercase(), get("url"), get("body"), get("params"))
                        }
                        None => self.made("GET", get("url"), get("body"), get("params")),
                        Some(_) => {
                            Err("a request of `http.batch` has a method that is not a text".to_owned())
                        }
                    }
                }
                other => self.made("GET", Some(other), None, None),
            };
            notes.append(&mut self.notes);
            let answer = match made {
                Ok(request) => {
                    let answer = V::Answer(request.id);
                    inner.push(request.step(piece));
                    answer
                }
                Err(why) => {
                    self.cx.ledger.refused(piece, why, "steps of `parallel`");
                    not_followed()
                }
            };
            answers.push((key.cloned().unwrap_or_default(), answer));
        }
        self.notes = notes;
        if inner.is_empty() {
            return not_followed();
        }
        self.told(piece);
        self.push(Step::new(Does::Parallel(20, inner)));
        match arguments.first() {
            Some(Expression::Object(_)) => V::Object(answers),
            _ => V::List(answers.into_iter().map(|(_, answer)| answer).collect()),
        }
    }
}

/// A URL of the plan. What may not stand in one is escaped. Values stay as they are, as in k6, unless
/// `encodeURIComponent` made them.
fn url_text(url: &str) -> Result<String, String> {
    let mut out = String::new();
    for span in text::spans(url) {
        match span {
            Span::Literal(own) => out.push_str(&text::url_literal(&own)),
            Span::Placeholder(inner) => {
                let is_made_up = ["uuid", "user", "iteration", "index", "counter"].contains(&inner)
                    || ["now", "random:"].iter().any(|begin| inner.starts_with(begin));
                let has_path = out.split_once("://").map_or(!out.is_empty(), |(_, rest)| rest.contains('/'));
                out.push_str(&text::placeholder(&match inner.strip_suffix(ENCODED) {
                    Some(bare) => bare.to_owned(),
                    None if is_made_up || !has_path => inner.to_owned(),
                    None => format!("{inner}|raw"),
                }));
            }
        }
    }
    let is_url = out.starts_with("http://") || out.starts_with("https://") || out.starts_with("{{");
    if is_url && !out.starts_with("http://{{") && !out.starts_with("https://{{") {
        Ok(out)
    } else {
        Err("its URL has no server that is known".to_owned())
    }
}
