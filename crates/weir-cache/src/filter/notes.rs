//! Notes of `weir check` on a cache and the filters around it: who shares its answers.

use super::key::Extra;
use serde_json::Value;
use weir_filter::filter::Neighbour;
use weir_filter::filter::is_address;

/// Filters that verify callers, besides those named `..._auth`.
const VERIFY: [&str; 5] = ["any", "ext_proc", "jwt", "maintenance", "oidc"];

/// Filters that turn callers away by something other than a credential.
const RESTRICT: [&str; 2] = ["acl", "ip"];

/// Prefixes of placeholders for values of the client.
const OF_CLIENT: [&str; 2] = ["{client}", "{tls_client_"];

/// The notes on a cache with these key parts.
pub(super) fn of(extras: &[Extra], before: &[Neighbour<'_>], behind: &[Neighbour<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let apart = extras.contains(&Extra::Caller);
    let callers: Vec<&str> = before.iter().filter(|it| verifies(it)).map(|it| it.name).collect();
    if !callers.is_empty() {
        let callers = callers.join(" and ");
        notes.push(if apart {
            format!("each caller that {callers} verifies has answers of its own (`key: [caller]`)")
        } else if extras.contains(&Extra::Shared) {
            format!("all callers that {callers} lets pass share its answers (`key: [shared]`)")
        } else {
            format!(
                "an answer to a caller that {callers} verifies is kept for all if it says public, s-maxage or \
                 must-revalidate, and not at all otherwise: `key` has no `caller`"
            )
        });
    }
    if let Some(filter) = before.iter().find(|it| apart && writes_client(it)) {
        let name = filter.name;
        notes.push(format!(
            "each client has answers of its own: `{name}` before it writes the client's values"
        ));
    }
    for filter in behind.iter().filter(|it| verifies(it) || RESTRICT.contains(&it.name)) {
        notes.push(format!("it stores no responses that passed `{}` after it", filter.name));
    }
    for filter in behind.iter().filter(|it| writes_client(it)) {
        notes.push(format!("it stores nothing: `{}` after it writes the client's values", filter.name));
    }
    notes
}

fn verifies(filter: &Neighbour<'_>) -> bool {
    filter.name.ends_with("_auth") || VERIFY.contains(&filter.name)
}

fn writes_client(filter: &Neighbour<'_>) -> bool {
    matches!(filter.name, "headers" | "rewrite") && tells_client(filter.settings)
}

/// Whether settings write a client's value into any field other than those in which every proxy sends the address.
fn tells_client(settings: &Value) -> bool {
    match settings {
        Value::String(text) => OF_CLIENT.iter().any(|placeholder| text.contains(placeholder)),
        Value::Array(values) => values.iter().any(tells_client),
        Value::Object(values) => values.iter().any(|(name, value)| !is_address(name) && tells_client(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_shares_what() {
        let (none, set) = (json!({}), json!({ "request": { "set": { "x-client": "{client}" } } }));
        let forwards = json!({ "request": { "set": { "x-real-ip": "{client}" } } });
        let at = |name, settings| Neighbour { name, settings };
        let first = |extras: &[Extra], before: &[Neighbour<'_>], behind: &[Neighbour<'_>]| {
            let notes = of(extras, before, behind);
            assert!(notes.len() < 2, "{notes:?}");
            notes.into_iter().next().unwrap_or_default()
        };
        let jwt = [at("jwt", &none)];
        assert!(first(&[Extra::Caller], &jwt, &[]).starts_with("each caller that jwt verifies"));
        assert!(first(&[Extra::Shared], &jwt, &[]).starts_with("all callers that jwt lets pass share"));
        assert!(first(&[], &jwt, &[]).contains("kept for all if it says public"));
        assert_eq!(first(&[Extra::Caller], &[at("ip", &none), at("headers", &forwards)], &[]), "");
        assert!(first(&[Extra::Caller], &[at("headers", &set)], &[]).starts_with("each client has answers"));
        assert!(first(&[Extra::Caller], &[], &[at("headers", &set)]).contains("nothing: `headers`"));
        assert_eq!(first(&[Extra::Caller], &[], &[at("headers", &forwards), at("compress", &none)]), "");
        assert!(first(&[Extra::Caller], &[], &[at("maintenance", &none)]).contains("`maintenance` after it"));
        assert!(first(&[Extra::Caller], &[], &[at("ip", &none)]).contains("passed `ip` after it"));
        let several = of(&[Extra::Caller], &[at("oidc", &none), at("forward_auth", &none)], &jwt);
        assert!(several[0].contains("oidc and forward_auth") && several.len() == 2, "{several:?}");
    }
}
