//! Golden tests of the config: each `config/*.case` has a config, a line of dashes, and the expected diagnostics. To
//! add a case, add a file. `WEIR_BLESS=1` rewrites the expectations and docs/reference/config.md.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use weir_gateway::config::{Node, Source, load, reference};

#[path = "config/generated.rs"]
mod generated;

const DASHES: &str = "--------------------\n";
const GOOD: &str = "ok\n";

fn bless() -> bool {
    std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

#[test]
fn each_mistake_is_told_as_written() {
    let files = tempfile::tempdir().unwrap();
    lay_out(files.path());
    // Configs name their files relative to this folder, so that expectations contain no path of this machine.
    std::env::set_current_dir(files.path()).unwrap();
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    cases.sort();
    assert!(cases.len() >= 45, "only {} cases found", cases.len());
    let mut failures = String::new();
    for case in cases {
        let text = std::fs::read_to_string(&case).unwrap();
        let (input, expected) = text.split_once(DASHES).unwrap_or((&text, ""));
        let actual = diagnose(input);
        if actual != expected {
            if bless() {
                std::fs::write(&case, format!("{input}{DASHES}{actual}")).unwrap();
            } else {
                failures.push_str(&format!(
                    "{}:\n--- expected\n{expected}\n--- actual\n{actual}\n",
                    case.display()
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The files that configs name: those of `config/files`, and certificates, which are created anew because they
/// expire.
fn lay_out(to: &Path) {
    copy(&folder().join("files"), to);
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    let half = day / 2; // halfway between two numbers of days, whenever this test runs
    pair(to, "api", now - 300 * day, now + 300 * day);
    pair(to, "other", now - 300 * day, now + 300 * day);
    pair(to, "expired", now - 300 * day, now - 3 * day - half);
    pair(to, "early", now + 3 * day + half, now + 300 * day);
    pair(to, "ending", now - 300 * day, now + 3 * day + half);
    std::fs::copy(to.join("api.pem"), to.join("ca.pem")).unwrap();
    let chain = ["api.pem", "expired.pem"].map(|part| std::fs::read_to_string(to.join(part)).unwrap());
    std::fs::write(to.join("chain.pem"), chain.concat()).unwrap();
    std::fs::write(to.join("no-certificate.pem"), "nothing\n").unwrap();
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(to.join("locked.key"), locked).unwrap();
    let older =
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    std::fs::write(to.join("locked-older.key"), older).unwrap();
    for name in ["locked.key", "locked-older.key"] {
        std::fs::set_permissions(to.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let open = to.join("open.key");
    std::fs::copy(to.join("api.key"), &open).unwrap();
    std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o644)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Writes `NAME.pem`, a self-signed certificate, and `NAME.key`, a key that only its owner may read.
fn pair(folder: &Path, name: &str, from: SystemTime, to: SystemTime) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([format!("{name}.example.com")]).unwrap();
    (params.not_before, params.not_after) = (from.into(), to.into());
    std::fs::write(folder.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
    let file = folder.join(format!("{name}.key"));
    std::fs::write(&file, key.serialize_pem()).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn diagnose(input: &str) -> String {
    let source = Source::text("weir.yaml", input.replace("(BOM)", "\u{feff}"))
        .with_variable("SHOP_KEY", "a-key-from-outside")
        .with_variable("EMPTY", "")
        .with_variable("WORKERS", "2")
        .with_variable("BAD_TIMEOUT", "never-print-this");
    let text = weir_gateway::check(&source, &[]).diagnostics.to_text();
    assert!(
        !text.contains("never-print-this") && !text.contains("a-key-from-outside"),
        "a secret is shown: {text}"
    );
    assert!(!text.contains("hunter2"), "a secret is shown: {text}");
    if text.is_empty() { GOOD.to_owned() } else { text }
}

/// A variable within a longer value is never shown, whether `check` or compilation rejects the value.
#[test]
fn no_part_of_a_secret_is_told() {
    const SECRET: &str = "zq9-hxdden{wqrd}-txil%zz-mqre";
    let values = [
        "filters: [ { headers: { request: { set: { x-a: \"Bearer ${SECRET} {oops\" } } } } ]",
        "filters: [ { headers: { request: { set: { x-a: \"Bearer ${SECRET}\" } } } } ]",
        "filters: [ { rewrite: { path: \"v2/${SECRET}\" } } ]",
        "filters: [ { rewrite: { host: \"a b ${SECRET}\" } } ]",
        "filters: [ { redirect: { to: \"ftp://${SECRET}\" } } ]",
        "filters: [ { rate_limit: { requests: 1, per: 1s, by: \"x ${SECRET}\" } } ]",
        "filters: [ { rate_limit: { requests: 1, per: \"${SECRET}s\" } } ]",
        "filters: [ { key_auth: { header: \"x ${SECRET}\", scheme: \"a ${SECRET}\" } } ]",
        "filters: [ { forward_auth: { upstream: \"to-${SECRET}\", path: \"a${SECRET}\" } } ]",
        "filters: [ \"key_auth${SECRET}\" ]",
        "filters: [ { any: [ \"jwt${SECRET}\", \"${SECRET}_auth\" ] } ]",
        "filters: [ \"${SECRET}_auth\", { cors: { origins: [ \"https://a.test\" ] } } ]",
        "filters: [ \"${SECRET}\", \"${SECRET}\" ]",
        "match: { path: \"~/a(${SECRET}\" }",
        "match: { path: \"/a/{${SECRET}\" }",
        "match: { hosts: [ \"h_${SECRET}/\" ] }",
        "match: { methods: [ \"GET ${SECRET}\" ] }",
        "match: { headers: { x-a: \"~(${SECRET}\" } }",
        "timeouts: { response: \"1${SECRET}\" }",
        "escaped_slashes: \"no-${SECRET}\"",
        "upstream: \"up${SECRET}\"",
        "priority: \"1${SECRET}\"",
    ];
    let frame = |route: &str| {
        let respond = if route.starts_with("upstream") { "" } else { "respond: { status: 200 }" };
        format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nroutes:\n  a:\n    {route}\n    {respond}\n"
        )
    };
    let tied = "listeners: { web: { address: 127.0.0.1:0 } }\nroutes:\n  \
         a: { match: { path: /a, headers: { x-key: \"k-${SECRET}\" } }, respond: { status: 200 } }\n  \
         b: { match: { path: /a, query: { v: \"2\" } }, respond: { status: 200 } }\n";
    for config in values.iter().map(|value| frame(value)).chain([tied.to_owned()]) {
        let checked = weir_gateway::check(
            &Source::text("weir.yaml", config.clone()).with_variable("SECRET", SECRET),
            &[],
        );
        assert!(checked.diagnostics.errors() > 0, "nothing is wrong with: {config}");
        let told = format!("{}{}", checked.diagnostics.to_text(), checked.diagnostics.to_json());
        for part in ["zq9", "hxdden", "wqrd", "txil", "mqre", "%zz"] {
            assert!(!told.contains(part), "{part} of the secret: {told}");
        }
    }
}

/// Values that are hard to keep out of a message, each with the parts that a message must not contain, in lower case.
const NASTY: [(&str, &[&str]); 11] = [
    ("q8Zr/7+LmT0xW2kPd==", &["q8zr", "lmt0", "xw2k", "kpd="]),
    ("qz\"Hxnter\\er'XZQ", &["hxnt", "xnte", "er'xz", "xzq"]),
    ("S3CR3TvxqzQW", &["s3cr", "3tvx", "vxqz", "zqw"]),
    ("zq x/vjq", &["zq x", "zq%20x", "x/vjq"]),
    ("%7Aqxvj%2Fwkq", &["zqxv", "7aqx", "qxvj", "wkq"]),
    ("Hxqter\nLqzeTwx", &["hxqt", "lqze", "etwx"]),
    ("Hxqter{id}twxq", &["hxqt", "qter", "twxq"]),
    ("HÜQTERßZQ", &["üqte", "hüq", "ßzq"]),
    ("h9Z", &["h9z"]),
    ("(zqv[*", &["zqv", "(zq"]),
    ("70917", &["70917"]),
];

/// Replaces part of each value in each case by a variable. Whatever the mistake, no diagnostic shows the variable's
/// value.
#[test]
fn no_diagnostic_tells_what_came_from_outside() {
    let files = tempfile::tempdir().unwrap();
    lay_out(files.path());
    let source = |text: &str| {
        Source::text(files.path().join("weir.yaml"), text)
            .with_variable("SHOP_KEY", "k")
            .with_variable("WORKERS", "2")
    };
    let here = files.path().display().to_string();
    let mut tries = 0;
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let Ok(text) = std::fs::read_to_string(&case) else { continue };
        let input = text.split_once(DASHES).map_or("", |(input, _)| input);
        let Ok(loaded) = load(&source(input)) else { continue };
        let mut scalars = Vec::new();
        collect(&loaded.tree, input, &mut scalars);
        for (index, (from, raw)) in scalars.into_iter().enumerate() {
            let (secret, parts) = NASTY[(index + tries) % NASTY.len()];
            let inner = match tries % 3 {
                0 => "${SECRET}".to_owned(),
                1 => format!("{raw}${{SECRET}}"),
                _ => format!("${{SECRET}}{raw}"),
            };
            let changed = format!("{}\"{inner}\"{}", &input[..from], &input[from + raw.len()..]);
            let checked = weir_gateway::check(&source(&changed).with_variable("SECRET", secret), &[]);
            let told = format!("{}{}", checked.diagnostics.to_text(), checked.diagnostics.to_json());
            // The folder's name is random and may contain any letters.
            let told = told.replace(&here, "").to_lowercase();
            for part in parts {
                assert!(!told.contains(part), "{part} of {secret} is told:\n{changed}\n{told}");
            }
            tries += 1;
        }
    }
    assert!(tries > 300, "only {tries} values found");
}

/// A tree's unquoted scalars, with their offsets in the text.
fn collect<'t>(node: &Node, text: &'t str, out: &mut Vec<(usize, &'t str)>) {
    node.elements().iter().for_each(|node| collect(node, text, out));
    node.entries().iter().for_each(|(_, node)| collect(node, text, out));
    let raw =
        node.as_text().filter(|raw| !raw.is_empty() && !raw.contains(['"', '\\', '$']) && !node.substituted);
    let Some(raw) = raw else { return };
    let before: usize = text.split_inclusive('\n').take(node.at.line as usize - 1).map(str::len).sum();
    let line = &text[before..];
    let Some((column, _)) = line.char_indices().nth(node.at.column as usize - 1) else { return };
    if line[column..].starts_with(raw) {
        out.push((before + column, &text[before + column..before + column + raw.len()]));
    }
}

/// `explain` shows a route's variables as written, not their values.
#[test]
fn explain_shows_variables_as_written() {
    let text = "listeners: { web: { address: 127.0.0.1:0 } }\nroutes:\n  \
         a: { match: { path: \"/hook/${SECRET}\", hosts: [ \"${SECRET}.test\", b.test ] }, respond: { status: 200 } }\n  \
         b: { match: { path: /hook/* }, respond: { status: 200 } }\n";
    let checked =
        weir_gateway::check(&Source::text("weir.yaml", text).with_variable("SECRET", "S3cr3tHunter"), &[]);
    let (_, snapshot) = checked.compiled.expect("the config is good");
    for url in ["http://h/hook/x", "http://b.test/hook/x", "http://b.test/hook/S3cr3tHunter"] {
        let told = weir_gateway::explain::explain(&snapshot, Default::default(), "GET", url, &[])
            .unwrap()
            .to_string();
        assert!(told.contains("${SECRET}"), "{told}");
        let shown = told.to_lowercase().replace("request  get /hook/s3cr3thunter", "");
        assert!(!shown.contains("s3cr3thunter"), "{told}");
    }
}

/// Nor does it show a variable's value after a filter has processed it, under whatever name and in whatever form.
#[test]
fn explain_hides_variables_in_settings() {
    for filter in [
        "headers: { request: { set: { X-Api-Key: \"Bearer ${SECRET}\" } } }",
        "key_auth: { header: \"X-${SECRET}\" }",
        "request_id: { header: \"X-${SECRET}\" }",
        "cors: { origins: [ \"https://${SECRET}.test\" ], headers: [ \"X-${SECRET}\" ] }",
        "redirect: { to: \"https://a.test/${SECRET}\" }",
        "rewrite: { path: \"/v2/${SECRET}\" }",
        "maintenance: { on: false, allow_headers: { X-Preview: \"${SECRET}\" } }",
        "errors: { 404: { body: \"${SECRET}\" }, 5xx: [ { body: \"a ${SECRET}\" } ] }",
        "rate_limit: { requests: 1, per: 1s, by: \"header:X-${SECRET}\" }",
        "rate_limit: { requests: 1, per: 1s, name: \"${SECRET}\" }",
        "fault: { ask: \"X-${SECRET}\", ask_delay: 1s }",
    ] {
        let text = format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nconsumers: {{ c: {{ key_auth: [ k ] }} }}\nroutes:\n  \
             a: {{ match: {{ path: /a }}, respond: {{ status: 200 }}, filters: [ {{ {filter} }} ] }}\n"
        );
        let checked = weir_gateway::check(
            &Source::text("weir.yaml", text).with_variable("SECRET", "S3cr3tHunter"),
            &[],
        );
        let Some((_, snapshot)) = checked.compiled else {
            panic!("{filter}: {}", checked.diagnostics.to_text())
        };
        let told =
            weir_gateway::explain::explain(&snapshot, Default::default(), "GET", "http://h/a", &[]).unwrap();
        let told = format!("{told}{}", serde_json::to_string(&told).unwrap());
        assert!(told.contains("***") && !told.to_lowercase().contains("s3cr3thunter"), "{filter}: {told}");
    }
}

/// Half a file, a file with a line missing, a file with an odd character: mistakes, never a panic.
#[test]
fn no_slip_of_the_keyboard_panics() {
    let case = std::fs::read_to_string(folder().join("good-full.case")).unwrap();
    let text = case.split_once(DASHES).unwrap().0;
    let source =
        |text: String| Source::text(folder().join("files/weir.yaml"), text).with_variable("SHOP_KEY", "k");
    let cuts = (0..text.len()).step_by(41).filter(|at| text.is_char_boundary(*at));
    let lines: Vec<&str> = text.lines().collect();
    let without = |skip: usize| {
        lines
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != skip)
            .map(|(_, l)| format!("{l}\n"))
            .collect::<String>()
    };
    let mut tries: Vec<String> = cuts.clone().map(|at| text[..at].to_owned()).collect();
    tries.extend((0..lines.len()).map(without));
    for strange in ["\0", "\t", "ü", "{", "*", "\r", "${", "- ", ": "] {
        tries.extend(cuts.clone().map(|at| format!("{}{strange}{}", &text[..at], &text[at..])));
    }
    for attempt in tries {
        let diagnostics = match load(&source(attempt)) {
            Ok(loaded) => loaded.diagnostics,
            Err(unreadable) => unreadable.diagnostics.into_diagnostics(),
        };
        let _ = (diagnostics.to_text(), diagnostics.to_json());
    }
}

#[test]
fn the_reference_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let actual = reference::markdown();
    if bless() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &actual).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == actual,
        "docs/reference/config.md is not what the types say; WEIR_BLESS=1 rewrites it"
    );
}

#[test]
fn the_schema_describes_every_key() {
    fn walk(path: &str, schema: &serde_json::Value, missing: &mut Vec<String>) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            if key == "properties" {
                for (name, property) in value.as_object().unwrap() {
                    let told = property.get("description").is_some() || property.get("$ref").is_some();
                    if !told {
                        missing.push(format!("{path}.{name}"));
                    }
                }
            }
            walk(&format!("{path}/{key}"), value, missing);
        }
    }
    let schema = weir_gateway::config::schema(&[]);
    let mut missing = Vec::new();
    walk("", &schema, &mut missing);
    assert!(missing.is_empty(), "no description: {missing:?}");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
}
