//! Checks of maps. Keys and expressions are compiled, and so checked, in weir-route.

use super::Checker;

impl Checker<'_> {
    pub(super) fn maps(&mut self) {
        let config = self.config;
        for (name, map) in config.maps.iter() {
            let path = format!("maps.{name}");
            if !is_member_name(name) {
                let message = "expressions read a map as `maps.NAME`, and this is no such name";
                let hint = "expected letters, digits and `_`, such as by_tenant; not a digit first";
                self.error_hint(&path, "bad-name", message, hint);
            }
            if map.values.0.iter().any(|(key, _)| key.contains("${")) {
                let message = "a key is taken as it is written, so `${…}` in it is no variable";
                let hint = "put such keys into a CSV file of mode 0600: file: NAME.csv";
                self.error_hint(&format!("{path}.values"), "variable-in-key", message, hint);
            }
            if let Some(file) = &map.file {
                self.must_be_file(&format!("{path}.file"), &file.0);
            }
            if !self.is_written(&format!("{path}.values")) && !self.is_written(&format!("{path}.file")) {
                let message = "this map has no entries";
                let hint = "write values: { KEY: VALUE }, or file: NAME.csv";
                self.error_hint(&path, "empty", message, hint);
            }
        }
    }
}

/// Whether an expression can name this behind a dot.
fn is_member_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let is_word = matches!(name, "false" | "in" | "null" | "true");
    begins && !is_word && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
