//! Fuzzing of weir-import: the readers of other gateways' configs.

use weir_import::{Memory, SYSTEMS, Verdict};

/// The first byte chooses the system and the name of the file; the rest is the file. No input makes an import panic,
/// and each statement that is read has a verdict.
pub fn import(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    let system = SYSTEMS[usize::from(first & 0x0f) % SYSTEMS.len()];
    let name = if first & 0x80 == 0 { "a.yaml" } else { "a.toml" };
    let memory = Memory([(name.to_owned(), text.to_vec())].into());
    let Ok(import) = weir_import::import(system, &memory, &[name.to_owned()]) else { return };
    for line in import.ledger.lines() {
        assert!(line.verdict != Verdict::Refused || !line.why.is_empty(), "{line:?}");
    }
    let _ = import.to_text();
    let _ = import.written();
}

/// Imports a Traefik file whose only router has the input as its rule. Imports it once and not in both syntaxes,
/// because an import costs far more than reading the rule: the length of the rule chooses the syntax.
pub fn rule(input: &[u8]) {
    let Ok(rule) = str::from_utf8(input) else { return };
    let Some(system) = weir_import::system("traefik") else { return };
    let syntax = if rule.len().is_multiple_of(2) { "v2" } else { "v3" };
    let rule = serde_json::Value::from(rule);
    let text = format!(
        "{{\"http\":{{\"routers\":{{\"r\":{{\"rule\":{rule},\"ruleSyntax\":\"{syntax}\",\"service\":\"s\"}}}},\
         \"services\":{{\"s\":{{\"loadBalancer\":{{\"servers\":[{{\"url\":\"http://s\"}}]}}}}}}}}}}"
    );
    let memory = Memory::of(&[("a.json", &text)]);
    if let Ok(import) = weir_import::import(system, &memory, &["a.json".to_owned()]) {
        let _ = import.written();
    }
}
