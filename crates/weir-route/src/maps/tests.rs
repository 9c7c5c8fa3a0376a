//! Tests of maps: what they come to, from when on they are known, and which are refused.

use super::super::testing::{Pairs, request};
use super::super::variables::{Bounds, CONSUMER, PHASES, REQUEST, Secrets, Seen, Vocabulary, all_came_to};
use super::*;
use weir_expr::{Condition, Value};

const BOUNDS: Bounds = Bounds { head_bytes: 32 * 1024, fields: 3 };

type Entries<'a> = &'a [(&'a str, &'a str)];

/// Maps of a name, an `of` and entries; one of these named `_` is the default.
fn built(maps: &[(&str, &str, Entries<'_>)]) -> (Vocabulary, Vec<String>) {
    let mut builder = Vocabulary::maps(BOUNDS, maps.iter().map(|(name, ..)| *name));
    for (index, (name, of, entries)) in maps.iter().enumerate() {
        let keys = builder.key(index, of).unwrap_or_else(|wrong| panic!("{name}: {}", wrong[0].render(of)));
        let default = entries.iter().find(|(key, _)| *key == "_").map(|(_, value)| *value);
        let entries: Vec<_> = entries.iter().copied().filter(|(key, _)| *key != "_").collect();
        builder.entries(index, keys, &entries, default, false).unwrap();
    }
    let (vocabulary, mistakes) = Vocabulary::new(BOUNDS, builder);
    let told = mistakes.into_iter().map(|wrong| format!("{}: {}", wrong.map, wrong.mistake.message));
    (vocabulary, told.collect())
}

fn sound(maps: &[(&str, &str, Entries<'_>)]) -> Vocabulary {
    let (vocabulary, mistakes) = built(maps);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    vocabulary
}

fn value(vocabulary: &Vocabulary, source: &str, headers: Pairs<'_>) -> String {
    let request = request("GET", "a.test", "/p", headers);
    let seen = Seen { request: &request, parameters: None, vocabulary };
    let expression = Expression::compile(source, &vocabulary.schema(None), REQUEST);
    let expression = expression.unwrap_or_else(|wrong| panic!("{source}: {}", wrong[0].render(source)));
    let mut out = Vec::new();
    expression.value(&seen).write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn a_map_is_read_as_a_text() {
    let vocabulary = sound(&[
        ("tenants", "request.headers[\"X-Tenant\"]", &[("acme", "gold"), ("be*", "silver"), ("_", "free")]),
        ("limits", "maps.tenants", &[("gold", "100"), ("silver", "10")]),
        ("methods", "request.method == \"GET\"", &[("true", "reads")]),
        ("sizes", "request.size ?? 0", &[("0", "none")]),
        ("numbers", "request.size", &[("", "not declared")]),
    ]);
    for (source, tenant, want) in [
        ("maps.tenants", "acme", "gold"),
        ("maps.tenants", "beta", "silver"),
        ("maps.tenants", "x", "free"),
        ("has(maps.tenants)", "x", "true"),
        ("maps.limits", "acme", "100"),
        ("maps.limits", "x", ""),
        ("has(maps.limits)", "x", "false"),
        ("(int(maps.limits) ?? 1) * 2", "beta", "20"),
        ("maps.tenants == \"gold\" ? maps.methods : maps.sizes", "acme", "reads"),
        ("maps.sizes + maps.numbers", "", "nonenot declared"),
    ] {
        assert_eq!(value(&vocabulary, source, &[("x-tenant", tenant)]), want, "{source} {tenant}");
    }
}

#[test]
fn a_map_is_known_when_what_it_reads_is() {
    let vocabulary = sound(&[
        ("outer", "maps.inner + request.path", &[("*", "1")]),
        ("inner", "maps.names", &[("*", "1")]),
        ("names", "consumer.name", &[("*", "1")]),
        ("early", "request.path", &[("*", "1")]),
    ]);
    let schema = vocabulary.schema(None);
    let phase =
        |source: &str| Expression::compile(source, &schema, Phase(PHASES.len() as u8 - 1)).unwrap().phase();
    assert_eq!(phase("maps.early"), REQUEST);
    for source in ["maps.names", "maps.inner", "maps.outer", "maps.early + maps.outer"] {
        assert_eq!(phase(source), CONSUMER, "{source}");
        let wrong = Expression::compile(source, &schema, REQUEST).unwrap_err();
        assert!(wrong[0].message.contains("is not known yet: it is from phase `consumer` on"), "{wrong:?}");
    }
}

#[test]
fn maps_that_read_themselves_are_refused() {
    let entries: Entries<'_> = &[("*", "1")];
    for (maps, want) in [
        (vec![("a", "maps.a", entries)], vec!["0: this map reads itself: maps.a reads maps.a"]),
        (
            vec![("a", "maps.b", entries), ("b", "maps.c", entries), ("c", "maps.b + maps.a", entries)],
            vec!["2: this map reads itself: maps.a reads maps.b reads maps.c reads maps.a"],
        ),
        (
            vec![("a", "maps.b", entries), ("b", "maps.b", entries), ("c", "maps.c", entries)],
            vec![
                "1: this map reads itself: maps.b reads maps.b",
                "2: this map reads itself: maps.c reads maps.c",
            ],
        ),
        // The same map by two ways is no circle.
        (
            vec![("a", "maps.b + maps.c", entries), ("b", "maps.c", entries), ("c", "request.path", entries)],
            vec![],
        ),
    ] {
        let (vocabulary, told) = built(&maps);
        assert_eq!(told, want, "{maps:?}");
        value(&vocabulary, "maps.a", &[]);
    }
    let chain: Vec<String> = (0..MAPS).map(|n| format!("m{n}")).collect();
    let ofs: Vec<String> = (1..=MAPS).map(|n| format!("maps.m{}", n % MAPS)).collect();
    let maps: Vec<_> = chain.iter().zip(&ofs).map(|(name, of)| (&**name, &**of, entries)).collect();
    assert_eq!(built(&maps).1.len(), 1);
}

#[test]
fn what_a_map_looks_up_is_one_value() {
    let mut builder = Vocabulary::maps(BOUNDS, ["a"]);
    for (of, told) in [
        ("request.headers.x.all()", "found list of text"),
        ("now", "found timestamp"),
        ("maps.b", "there is no variable `maps.b`"),
        ("request.pth", "there is no variable `request.pth`"),
        ("client.port", "there is no variable `client.port`"),
    ] {
        let wrong = builder.key(0, of).unwrap_err();
        assert!(wrong[0].message.contains(told), "{of}: {wrong:?}");
        assert!(!builder.is_sound(of) || told.starts_with("found"), "{of}");
    }
    assert_eq!(builder.key(0, "client.ip"), Ok(Keys::Addresses));
    assert_eq!(builder.key(0, "ip(request.headers.x)"), Ok(Keys::Addresses));
    assert_eq!(builder.key(0, "request.path"), Ok(Keys::Texts));
}

#[test]
fn reads_are_those_of_the_request() {
    let vocabulary = sound(&[
        ("a", "request.cookies.s + maps.b", &[("*", "1")]),
        ("b", "request.headers[\"X-Key\"]", &[("k", "2"), ("_", "3")]),
    ]);
    let source = "maps.a == \"1\" && request.path != \"/\"";
    let condition = Condition::compile(source, &vocabulary.schema(None), REQUEST).unwrap();
    let sources: Vec<_> =
        vocabulary.maps.sources(condition.reads()).map(|read| (read.var.0, read.key, read.range)).collect();
    let whole = 0..6;
    assert_eq!(
        sources,
        [
            (super::super::variables::COOKIES.0, Some("s".to_owned()), whole.clone()),
            (super::super::variables::HEADERS.0, Some("x-key".to_owned()), whole),
            (super::super::variables::PATH.0, None, 17..29),
        ]
    );
    let request = request("GET", "a.test", "/p", &[("x-key", "k"), ("cookie", "s=7")]);
    let seen = Seen { request: &request, parameters: None, vocabulary: &vocabulary };
    let came = all_came_to(&seen, &vocabulary, condition.reads(), &Secrets::default());
    let came: Vec<String> = came.into_iter().map(|(name, value)| format!("{name} is {value}")).collect();
    assert_eq!(
        came.join(", "),
        "maps.a is \"1\", request.cookies[\"s\"] is \"7\", maps.b is \"2\", \
         request.headers[\"x-key\"] is ***, request.path is \"/p\""
    );
}

/// The cost of a map is that of what it looks up, of the lookup, and of all maps within.
#[test]
fn a_map_costs_what_it_does() {
    let regexes: Vec<String> = (0..REGEXES).map(|n| format!("~{n}.*")).collect();
    let entries: Vec<_> = regexes.iter().map(|key| (&**key, "1")).collect();
    let maps: &[(&str, &str, Entries<'_>)] = &[
        ("few", "request.path", &[("a", "1")]),
        ("many", "request.path", &entries),
        ("both", "maps.few + maps.many", &[]),
    ];
    let vocabulary = sound(maps);
    let cost = |source: &str| Expression::compile(source, &vocabulary.schema(None), REQUEST).unwrap().cost();
    assert!(cost("maps.few") < 2_000, "{}", cost("maps.few"));
    assert!(cost("maps.many") > 500_000, "{}", cost("maps.many"));
    assert!(cost("maps.both") > cost("maps.few") + cost("maps.many"));
    let twice = Expression::compile("maps.many + maps.many", &vocabulary.schema(None), REQUEST).unwrap_err();
    assert!(twice[0].message.contains("steps"), "{twice:?}");
}

#[test]
fn a_value_from_outside_is_not_shown() {
    let mut builder = Vocabulary::maps(BOUNDS, ["keys"]);
    let keys = builder.key(0, "request.path").unwrap();
    builder.entries(0, keys, &[("/p", "hunter2")], None, true).unwrap();
    let (vocabulary, _) = Vocabulary::new(BOUNDS, builder);
    let condition = Condition::compile("maps.keys != \"\"", &vocabulary.schema(None), REQUEST).unwrap();
    let request = request("GET", "a.test", "/p", &[]);
    let seen = Seen { request: &request, parameters: None, vocabulary: &vocabulary };
    assert_eq!(
        all_came_to(&seen, &vocabulary, condition.reads(), &Secrets::default())[0],
        ("maps.keys".to_owned(), "***".to_owned())
    );
    assert!(matches!(seen.value(Var(FIRST), b""), Value::Text(text) if *text == *b"hunter2"));
}

/// A lookup compares as often as a binary search does, whatever is looked up; exact keys are hashed.
#[test]
fn a_hundred_thousand_entries_are_not_walked_through() {
    const ENTRIES: usize = 100_000;
    let keys: Vec<String> = (0..ENTRIES).map(|i| format!("key-{i:06}")).collect();
    let prefixes: Vec<String> = keys.iter().map(|key| format!("{key}*")).collect();
    let networks: Vec<String> =
        (0..ENTRIES).map(|i| format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255)).collect();
    for (kind, keys, most) in
        [(Keys::Texts, &keys, 0), (Keys::Texts, &prefixes, 20), (Keys::Addresses, &networks, 20)]
    {
        let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
        let table = Table::build(kind, &entries, None).unwrap();
        for at in [0, 1, ENTRIES / 2, ENTRIES - 1] {
            let text = keys[at].trim_end_matches('*');
            let asked = match kind {
                Keys::Addresses => Value::Address(text.parse().unwrap()),
                Keys::Texts => Value::text(text),
            };
            table::LOOKS.with(|looks| looks.set(0));
            assert_eq!(table.find(&asked), Some(keys[at].as_bytes()));
            let looks = table::LOOKS.with(std::cell::Cell::get);
            assert!(looks <= most, "{looks} comparisons for {text}");
        }
    }
}

/// Prefixes may be nested as deep as a file is long; whoever asks chooses how many of them do not fit.
#[test]
fn nested_prefixes_cost_a_logarithm() {
    const DEEP: usize = 4_000;
    let keys: Vec<String> = (1..=DEEP).map(|length| "b".repeat(length) + "*").collect();
    let entries: Vec<_> = keys.iter().map(|key| (&**key, &**key)).collect();
    let table = Table::build(Keys::Texts, &entries, None).unwrap();
    for length in [0, 1, 2, 3, 100, 1_023, 1_024, 3_999, 4_000, 5_000] {
        for end in ["", "c", "a"] {
            let asked = "b".repeat(length) + end;
            let fits = length.min(DEEP).checked_sub(1).map(|at| keys[at].as_bytes());
            table::LOOKS.with(|looks| looks.set(0));
            assert_eq!(table.find(&Value::text(&asked)), fits, "{length} {end}");
            let looks = table::LOOKS.with(std::cell::Cell::get);
            assert!(looks <= 96, "{looks} comparisons for {length} {end}");
        }
    }
    // Against the plain search, with prefixes of all shapes.
    let keys: Vec<String> = (0..400u32).map(|n| format!("{:b}*", n * 7 % 512)).collect();
    let entries: Vec<_> = keys.iter().map(|key| (&**key, &**key)).collect();
    let table = Table::build(Keys::Texts, &entries, None).unwrap();
    for n in 0..2_048u32 {
        let asked = format!("{n:b}");
        let fitting = keys.iter().filter(|key| asked.starts_with(key.trim_end_matches('*')));
        let longest = fitting.max_by_key(|key| key.len()).map(|key| key.as_bytes());
        assert_eq!(table.find(&Value::text(&asked)), longest, "{asked}");
    }
}
