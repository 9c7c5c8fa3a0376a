//! Templates in the settings of filters.

use super::computed::Names;
use super::{Malformed, Template};
use crate::filter::{Build, Mistake, Written};
use weir_expr::template::whole;

impl<'a> Build<'a> {
    /// What texts may name that are rendered when the filter sees a request.
    pub const fn names(&self) -> Names<'a> {
        Names::new(self.captures, self.vocabulary).with_body(self.reads_body)
    }

    /// Compiles a text with placeholders under this key of the settings, and reports its mistake.
    pub fn text(&mut self, field: &str, text: &str) -> Option<Template> {
        let names = self.names();
        self.text_with(field, text, &names)
    }

    /// The same with other names.
    pub fn text_with(&mut self, field: &str, text: &str, names: &Names<'_>) -> Option<Template> {
        let parsed = Template::parse(text, names);
        self.written(field, text, parsed.is_ok());
        self.parsed(field, parsed)
    }

    /// The same for a page, where braces that are no placeholder are text.
    pub fn page(&mut self, field: &str, text: &str) -> Option<Template> {
        let names = self.names();
        let parsed = Template::parse_page(text, &names).map_err(|(_, e)| e);
        self.written_page(field, text, parsed.is_ok());
        self.parsed(field, parsed)
    }

    /// Records that a text may have expressions, so that their positions in the file are found.
    pub fn written(&mut self, field: &str, text: &str, is_sound: bool) {
        let is_whole = whole(text).is_some();
        if is_whole || text.contains("{=") {
            self.expressions.push(Written { field: field.to_owned(), is_sound, in_text: !is_whole });
        }
    }

    /// The same for a page, which is never an expression as a whole.
    pub fn written_page(&mut self, field: &str, text: &str, is_sound: bool) {
        if text.contains("{=") {
            self.expressions.push(Written { field: field.to_owned(), is_sound, in_text: true });
        }
    }

    /// Reports the mistake of a text.
    pub fn parsed(&mut self, field: &str, parsed: Result<Template, Malformed>) -> Option<Template> {
        parsed.map_err(|e| self.malformed(field, e)).ok()
    }

    /// Reports why a text is refused.
    pub fn malformed(&mut self, field: &str, e: Malformed) {
        let hint = e.hint.map(Into::into);
        self.mistakes.push(Mistake {
            field: field.to_owned(),
            message: e.message.into(),
            hint,
            offset: e.offset,
        });
    }
}
