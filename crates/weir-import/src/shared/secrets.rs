//! Secrets of a source: those that it names become variables of the same name, those that it holds new ones.

use crate::config::Config;
use crate::yaml::Value;

/// A value that is a variable in the source stays one; another becomes one.
#[must_use]
pub fn variable(text: &str, wish: &str, config: &mut Config) -> Value {
    let inner = text
        .strip_prefix("{vault://env/")
        .and_then(|rest| rest.strip_suffix('}'))
        .or_else(|| text.strip_prefix("$env://"))
        .or_else(|| text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')))
        .or_else(|| text.strip_prefix('$').filter(|rest| !rest.is_empty()));
    // decK writes ${{ env "DECK_NAME" }}.
    let inner =
        inner.map(|inner| inner.trim_matches(['{', '}', ' ']).trim_start_matches("env ").trim_matches('"'));
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    match inner.filter(is_name) {
        Some(name) => {
            let name: String =
                name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_uppercase() }).collect();
            // Named for the check only: the environment has the value.
            if !config.secrets.iter().any(|(known, _)| *known == name) {
                let placeholder = format!("replace-this-by-the-value-of-{name}-in-your-environment");
                config.secrets.push((name.clone(), placeholder));
                config.placeholders.insert(name.clone());
            }
            Value::WithVariables(format!("${{{name}}}"))
        }
        None => config.secret(wish, text),
    }
}
