//! Bodies of steps: a text, a form, parts, or a message of gRPC.

use super::super::bodies::{self, Part, PartValue};
use super::super::compiler::Compiler;
use super::super::texts;
use super::with_node;
use crate::limits::BODY_BYTES;
use crate::plan::StepKind;
use crate::template::{Escape, Form, Template};
use crate::written;
use weir_config::Value;

impl Compiler<'_> {
    /// The body or message. The outer `None` means mistakes.
    pub(super) fn body(
        &mut self,
        step: &written::Step,
        kind: StepKind,
        path: &str,
        headers: &mut Vec<(String, Template)>,
    ) -> Option<Option<Template>> {
        if matches!(kind, StepKind::Grpc | StepKind::WebSocket) {
            return self.message(step, kind, path);
        }
        let given: Vec<&str> = [
            ("body", step.body.is_some()),
            ("body_file", step.body_file.is_some()),
            ("json", step.json.is_some()),
            ("form", step.form.is_some()),
            ("multipart", step.multipart.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_given)| is_given.then_some(key))
        .collect();
        if let [first, second, ..] = given[..] {
            self.wrong(
                &format!("{path}.{second}"),
                format!("there is already `{first}`: a request has one body"),
            );
            return None;
        }
        let Some(key) = given.first() else { return Some(None) };
        let place = format!("{path}.{key}");
        let node = self.tree.find(&place)?.clone();
        let (body, media) = if let Some(text) = &step.body {
            let template = texts::compile(text, &Escape::None, Form::Any, &mut self.names);
            (self.told(with_node(template, &node), &place)?, None)
        } else if let Some(file) = &step.body_file {
            match self.files.read(&file.0, BODY_BYTES) {
                Ok(content) => (Template::literal(content), None),
                Err(error) => {
                    self.wrong(&place, format!("cannot read {}: {error}", file.0.display()));
                    return None;
                }
            }
        } else if let Some(json) = &step.json {
            let template = bodies::json(&json.node, &mut self.names);
            (self.told(template, &place)?, Some("application/json".to_owned()))
        } else if let Some(fields) = &step.form {
            let template = bodies::form(&fields.0, &node, &mut self.names);
            (self.told(template, &place)?, Some("application/x-www-form-urlencoded".to_owned()))
        } else {
            self.multipart(step.multipart.as_deref().unwrap_or_default(), &place)?
        };
        let has_type = headers.iter().any(|(name, _)| name == "content-type");
        if let Some(media) = media.filter(|_| !has_type) {
            headers.push(("content-type".to_owned(), Template::literal(media.into_bytes())));
        }
        Some(Some(body))
    }

    /// The message. The outer `None` means mistakes.
    pub(super) fn message(
        &mut self,
        step: &written::Step,
        kind: StepKind,
        path: &str,
    ) -> Option<Option<Template>> {
        let place = format!("{path}.message");
        let node = step.message.as_ref().map(|raw| raw.node.clone());
        match (&node, kind) {
            (None, StepKind::Grpc) => Some(Some(Template::literal(*b"{}"))),
            (None, _) => Some(None),
            (Some(node), StepKind::WebSocket) if node.as_text().is_some() => {
                let text = node.as_text().unwrap_or_default();
                let template = texts::compile(text, &Escape::None, Form::Any, &mut self.names);
                self.told(with_node(template, node), &place).map(Some)
            }
            (Some(node), _) if !matches!(node.value, Value::Map(_) | Value::Seq(_)) => {
                self.wrong(
                    &place,
                    "expected a map, which is the message as JSON; a list if the client streams",
                );
                None
            }
            (Some(node), _) => {
                let template = bodies::json(node, &mut self.names);
                self.told(template, &place).map(Some)
            }
        }
    }

    fn multipart(
        &mut self,
        parts: &[written::MultipartPart],
        path: &str,
    ) -> Option<(Template, Option<String>)> {
        let list = self.tree.find(path)?.clone();
        let mut all = Vec::new();
        let mut is_wrong = parts.is_empty();
        if is_wrong {
            self.wrong(path, "expected a list of parts: [ { name: file, file: a.png } ]");
        }
        for (i, part) in parts.iter().enumerate() {
            let place = format!("{path}[{i}]");
            let breaks = |text: &str| text.chars().any(char::is_control);
            let value = match (&part.value, &part.file) {
                (Some(text), None) => Ok(PartValue::Text(text)),
                (None, Some(file)) => self
                    .files
                    .read(&file.0, BODY_BYTES)
                    .map(PartValue::File)
                    .map_err(|error| format!("cannot read {}: {error}", file.0.display())),
                (Some(_), Some(_)) => Err("a part has a `value` or a `file`, not both".to_owned()),
                (None, None) => Err("a part needs a `value` or a `file`".to_owned()),
            };
            let name = part.name.as_deref().filter(|name| !name.is_empty());
            let media = part.media.as_deref().or(part.file.as_ref().map(|_| "application/octet-stream"));
            let filename = part.filename.as_deref();
            let filename = filename.or_else(|| part.file.as_ref()?.0.file_name()?.to_str());
            let wrong = match (&value, name) {
                (Err(why), _) => Some(why.clone()),
                (_, None) => Some("a part needs a `name`".to_owned()),
                _ if [name, media, filename].into_iter().flatten().any(breaks) => {
                    Some("name, filename and type of a part hold no control characters".to_owned())
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                self.wrong(&place, wrong);
                is_wrong = true;
            }
            if let (Ok(value), Some(name), Some(node)) = (value, name, list.elements().get(i)) {
                let node = node.get("value").unwrap_or(node);
                all.push(Part { name, value, filename, media, node });
            }
        }
        let body = bodies::multipart(&all, &mut self.names);
        let (body, boundary) = self.told(body, path)?;
        (!is_wrong).then(|| (body, Some(format!("multipart/form-data; boundary={boundary}"))))
    }
}
