//! Helpers that the tests here share.

use weir_h1::{FieldName, Fields};

pub(super) type Lines<'a> = &'a [(&'a str, &'a str)];

pub(super) fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in lines {
        fields.append(&FieldName::new(name).unwrap(), value.as_bytes()).unwrap();
    }
    fields
}
