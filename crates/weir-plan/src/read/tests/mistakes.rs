//! What is told about plans with mistakes. Each mistake stands beside the text that has it.

use super::super::*;
use super::{mistakes, with_steps};
use crate::files::Disk;

#[test]
fn mistakes_of_steps_are_told() {
    let mut missing = Vec::new();
    for (step, want) in [
        ("{ name: a, post: /, body: '{{user|raw}}' }", "`raw` has a meaning only in URLs, and only once"),
        ("{ name: a, get: '/{{user|raw|raw}}' }", "`raw` has a meaning only in URLs, and only once"),
        (
            "{ get: / }",
            "4:1 scenarios.s.steps[0]: this step needs a `name`: its row in the report and its label in metrics",
        ),
        (
            "{ name: 'a: b', get: / }",
            "4:9 scenarios.s.steps[0].name: expected a name of at most 64 characters, without `:` and braces",
        ),
        (
            "{ name: a (redirect), get: / }",
            "4:9 scenarios.s.steps[0].name: names that end in `(redirect)` are those of the requests that redirects cause",
        ),
        ("{ name: a, gett: / }", "unknown key `gett`"),
        (
            "{ name: a, get: /, post: / }",
            "4:26 scenarios.s.steps[0].post: a step does one thing, and this one has `get` already",
        ),
        ("{ name: a }", "4:1 scenarios.s.steps[0]: expected a step: get, post or another method"),
        ("{ pause: 2s, keep: { x: status } }", "`keep` has no meaning in a step with `pause`"),
        ("{ pause: 2 }", "4:10 scenarios.s.steps[0].pause: `2` is not a duration"),
        ("{ name: a, get: items }", "expected a path that begins with `/`, or a URL"),
        ("{ name: a, get: //b/items }", "expected a path that begins with `/`, or a URL"),
        ("{ name: a, get: 'ftp://b/' }", "the scheme `ftp` is not known"),
        ("{ name: a, get: 'ws://b/' }", "the scheme `ws` is not spoken by this step; expected `http`"),
        ("{ name: a, get: 'http://me:pw@b/' }", "a URL of a plan has no user and password"),
        (
            "{ name: a, get: '/a b' }",
            "4:20 scenarios.s.steps[0].get: ' ' cannot stand in a URL: write it as %20",
        ),
        ("{ name: a, get: '/a#b' }", "'#' cannot stand in a URL: write it as %23"),
        ("{ name: a, get: '/é' }", "write it as %C3%A9"),
        ("{ name: a, get: 'http://{{user}}/' }", "4:17 scenarios.s.steps[0].get: `` is not a host name"),
        (
            "{ name: a, get: 'http://b{{user}}/' }",
            "a placeholder stands behind the server and its `/`: it may not change who gets load",
        ),
        ("{ name: a, get: '{{user}}/x' }", "a URL begins with `/`, a server, or a name of `values`"),
        ("{ name: a, get: '/{{id}}' }", "4:21 scenarios.s.steps[0].get: no earlier step can have kept `id`"),
        ("{ name: a, get: '/{{usr}}' }", "(did you mean user?)"),
        ("{ name: a, get: '/x?y={{uuidd}}' }", "(did you mean uuid?)"),
        (
            "{ name: a, get: '/{{id' }",
            "4:19 scenarios.s.steps[0].get: `{{` without a closing `}}` (write {{{{ for two braces)",
        ),
        ("{ name: a, get: '/{{}}' }", "expected a name between `{{` and `}}`"),
        ("{ name: a, get: '/{{user|frist}}' }", "4:26 scenarios.s.steps[0].get: `frist` is no filter"),
        ("{ name: a, get: '/{{random:9:1}}' }", "expected two whole numbers, the smaller first"),
        ("{ name: a, get: '/{{sha:x}}' }", "`sha` is no function"),
        (
            "{ name: a, get: '/{{base64:{{base64:{{base64:{{base64:x}}}}}}}}' }",
            "placeholders stand in each other at most 4 deep",
        ),
        (
            "{ name: a, get: '/{{index}}' }",
            "`index` counts the rounds of `repeat` or `while`; there is none around this",
        ),
        ("{ name: a, get: /, headers: { 'x y': a } }", "`x y` is no name of a header field"),
        (
            "{ name: a, get: /, headers: { Content-Length: 3 } }",
            "`Content-Length` frames the message or manages its connection",
        ),
        ("{ name: a, get: /, headers: { x: 1, X: 2 } }", "`X` is written twice in other letters"),
        ("{ name: a, get: /, headers: { x: \"a\\r\\nb: c\" } }", "a header value holds no line break"),
        ("{ name: a, get: /, headers: { x: '${BAD}' } }", "a header value holds no line break"),
        (
            "{ name: a, post: /, body: x, json: {} }",
            "4:30 scenarios.s.steps[0].json: there is already `body`: a request has one body",
        ),
        (
            "{ name: a, post: /, json: { k: [ 'a {{nothing}}' ] } }",
            "4:39 scenarios.s.steps[0].json: no earlier step can have kept `nothing`",
        ),
        ("{ name: a, post: /, body_file: no/such }", "cannot read no/such: No such file"),
        (
            "{ name: a, post: /, multipart: [ { name: x } ] }",
            "multipart[0]: a part needs a `value` or a `file`",
        ),
        ("{ name: a, post: /, message: {} }", "`message` has no meaning in a step with `post`"),
        (
            "{ name: a, get: /, checks: [ statsu=200 ] }",
            "4:30 scenarios.s.steps[0].checks[0]: expected status=200",
        ),
        ("{ name: a, get: /, checks: [ 'grpc=OK' ] }", "the answer to this step has no such thing to check"),
        ("{ name: a, get: /, checks: [ 'body~{{x}}' ] }", "a check compares with a fixed text"),
        (
            "{ name: a, get: /, keep: { user: status } }",
            "`user` has a meaning of its own in placeholders or expressions",
        ),
        (
            "{ name: a, get: /, keep: { 'a-b': status } }",
            "`a-b` is not a name; expected letters, digits and `_`",
        ),
        (
            "{ name: a, get: /, keep: { x: jsn:$.a } }",
            "4:31 scenarios.s.steps[0].keep.x: expected json:$.path, header:NAME",
        ),
        ("{ name: a, get: /, keep: { x: 'json:a' } }", "`a` is no path"),
        ("{ name: a, get: /, keep: { x: 'body~x' } }", "the expression needs a group in brackets"),
        ("{ name: a, get: /, keep: { x: 'body~(x' } }", "this is no regular expression: unclosed group"),
        (
            "{ name: a, get: /, keep: { x: 'body~(\\w{900}){900}' } }",
            "the regular expression is larger than 1048576 bytes",
        ),
        ("{ name: a, get: /, keep: { x: 'grpc:$.a' } }", "`grpc:` is of `grpc` steps"),
        ("{ name: a, get: /, keep: { x: 'json:$.a|rnadom' } }", "`rnadom` is no filter"),
        (
            "{ name: a, get: /, keep: { x: status } }",
            "4:31 scenarios.s.steps[0].keep.x: no later step uses `x`",
        ),
        ("{ name: a, get: /, timeout: 0s }", "a timeout is longer than 0s"),
        ("{ name: a, get: /, timeout: 5 }", "(add a unit: 5s or 5ms)"),
        ("{ name: a, get: /, redirects: 51 }", "a request follows at most 50 redirects"),
        ("{ name: a, get: /, on_failure: stopp }", "(did you mean stop?)"),
        ("{ name: a, url: / }", "`url` needs a `method`"),
        ("{ name: a, method: 'G T', url: / }", "`G T` is no method"),
        ("{ name: a, method: connect, url: / }", "CONNECT opens a tunnel"),
        ("{ name: a, grpc: /List }", "expected a method of a service: /package.Service/Method"),
        ("{ name: a, ws: /x, keep: { m: 'ws:$.m' } }", "this step waits for no message"),
        ("{ name: a, ws: /x, answer: [] }", "expected a check that the answer passes"),
        ("{ name: a, ws: /x, answer: 'p-max<1s' }", "a message is chosen by its text, JSON or size"),
        ("{ name: a, ws: /x, headers: { sec-websocket-key: x } }", "is part of the handshake"),
        (
            "{ name: a, grpc: /a.B/C, headers: { content-type: text/plain } }",
            "the content-type application/grpc",
        ),
        ("{ name: a, ws: /x, message: hi, checks: [ status=200 ] }", "has no such thing to check"),
        ("{ name: a, ws: /x, message: hi, keep: { s: status } }", "expected json:$.path"),
        ("{ if: 'user > 1' }", "`if` needs steps in `then`"),
        (
            "{ if: 'usr > 1', then: [ { pause: 1s } ] }",
            "4:8 scenarios.s.steps[0].if: there is no variable `usr`",
        ),
        (
            "{ if: 'user = 1', then: [ { pause: 1s } ] }",
            "(expressions are those of CEL: write == to compare)",
        ),
        (
            "{ if: 'user > 1 and user < 5', then: [ { pause: 1s } ] }",
            "write && for and, || for or, ! for not",
        ),
        (
            "{ if: '${TENANT} == user', then: [ { pause: 1s } ] }",
            "what a variable brings in is never a part of an expression",
        ),
        ("{ repeat: 0, steps: [ { pause: 1s } ] }", "expected a number of rounds from 1 to 1000000"),
        ("{ repeat: 2 }", "expected `steps` to repeat"),
        ("{ while: 'user > 1', steps: [ { pause: 1s } ] }", "`while` needs `max`"),
        ("{ parallel: 6, steps: [ { pause: 1s } ] }", "only HTTP requests and gRPC calls run in parallel"),
        ("{ parallel: 0, steps: [ { name: a, get: / } ] }", "expected how many at once, from 1 to 100"),
        (
            "{ parallel: 2, steps: [ { name: a, get: /, keep: { x: status } }, { name: b, get: '/{{x}}' } ] }",
            "no earlier step can have kept `x`",
        ),
        (
            "{ parallel: 2, steps: [ { name: a, get: /, keep: { x: status } }, { name: b, get: /, keep: { x: status } } ] }",
            "another of these parallel steps keeps that name too",
        ),
        ("{ exec: [ '' ], name: a }", "expected a program and its arguments"),
        (
            "{ name: a, get: / }, { name: a, get: / }",
            "4:30 scenarios.s.steps[1].name: `a` is the name of scenarios.s.steps[0] already",
        ),
        ("{ name: a, get: '/{{x}}', keep: { x: status } }", "no earlier step can have kept `x`"),
    ] {
        let found = mistakes(&with_steps(step));
        if !found.iter().any(|line| line.contains(want)) {
            missing.push(format!("{step}\n  wants {want}\n  found {found:#?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn mistakes_of_plans_are_told() {
    let mut missing = Vec::new();
    let one = "scenarios: { s: { steps: [ { name: a, get: 'http://a/' } ] } }";
    for (text, want) in [
        ("{}", "1:1 scenarios: expected at least one scenario"),
        ("scenarios: { s: {} }", "a scenario needs `steps`"),
        (
            "scenarios: { s: { steps: [ { name: a, get: / } ] } }",
            "this URL has no server: write `target:` at the top of the plan",
        ),
        (&format!("spacing: poisson\nrate: 5/s\n{one}"), "spacing: is of a `rate` with parts"),
        (&format!("seed: 3\nusers: [ {{ hold: 5 for 1s }} ]\n{one}"), "seed: is of a `rate` with parts"),
        (
            &format!("spacing: uneven\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"),
            "spacing: expected `even`, `poisson` or `burst(N)`",
        ),
        (&format!("seed: 3\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"), "seed: is for `spacing: poisson`"),
        (
            &format!("spacing: burst(20)\nusers_max: 19\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"),
            "spacing: a burst of 20 is larger than `users_max`, 19",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s }}, {{ hold: 5 for 1s }} ]\n{one}"),
            "1:31 rate[1]: `5` is no rate",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s, name: a }} ]\n{one}"),
            "rate[0].name: a step or scenario is called `a` already",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s }} ]\nthresholds: [ 'hodl: p99<1s' ]\n{one}"),
            "thresholds[0]: `hodl` is no step, scenario or part of this plan (did you mean hold?)",
        ),
        (
            "thresholds: [ 'hold: p99<1s' ]\nscenarios:\n  s: { rate: [ { hold: 5/s for 1s } ], steps: [ { name: a, \
             get: 'http://a/' } ] }\n  t: { rate: [ { hold: 5/s for 1s } ], steps: [ { name: a, get: 'http://a/' } ] }",
            "thresholds[0]: `hold` is the name of several steps, scenarios or parts",
        ),
        (&format!("target: a\n{one}"), "1:9 target: expected a URL such as"),
        (&format!("target: http://a/b\n{one}"), "expected a server without a path"),
        (
            &format!("{one}\nsetup: [ {{ name: x, get: 'http://a/{{{{user}}}}' }} ]"),
            "`user` is of users; `setup` and `teardown` run without one",
        ),
        (&format!("{one}\nvalues: {{ x: '{{{{uuid}}}}' }}"), "a value is a constant text"),
        (&format!("{one}\nvalues: {{ uuid: 1 }}"), "`uuid` has a meaning of its own"),
        (&format!("{one}\ndata: {{ d: {{}} }}"), "expected a `file`, or the `rows` themselves"),
        (&format!("{one}\ndata: {{ d: {{ file: no.csv }} }}"), "cannot read no.csv: No such file"),
        (&format!("{one}\ndata: {{ d: {{ rows: [] }} }}"), "expected a list of rows"),
        (
            &format!("{one}\ndata: {{ d: {{ rows: [ {{ a: 1 }}, {{ b: 1 }} ] }} }}"),
            "row 2: has `b`, which the first row has not",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: once, rows: [ {{ a: 1 }} ] }} }}"),
            "`pick: once` needs `at_end: stop`",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: once, at_end: wrap, rows: [ {{ a: 1 }} ] }} }}"),
            "`pick: once` uses no row twice",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: random, at_end: stop, rows: [ {{ a: 1 }} ] }} }}"),
            "leave `at_end` out",
        ),
        (&format!("{one}\ndata: {{ d: {{ rows: [ {{ a: 1 }} ] }} }}"), "no step uses the data set `d`"),
        (
            "data: { d: { rows: [ { ab: 1 } ] } }\nscenarios: { s: { steps: [ { name: a, get: 'http://a/{{d.abc}}' } ] } }",
            "the data set `d` has no column `abc`; it has ab (did you mean d.ab?)",
        ),
        (
            "data: { d: { rows: [ { a: 1 } ], pick: per_user } }\nscenarios: { s: { users: 2, steps: [ { name: a, get: 'http://a/{{d.a}}' } ] } }",
            "`d` has 1 rows for 2 users",
        ),
        (
            "users: 2\ndata: { d: { rows: [ { a: 1 } ], pick: per_user } }\nscenarios: { s: { steps: [ { name: a, get: 'http://a/{{d.a}}' } ] } }",
            "`d` has 1 rows for 2 users",
        ),
        (&format!("{one}\ndefaults: {{ cookies: always }}"), "is not true, false or iteration"),
        (&format!("{one}\nthresholds: [ 'lst: p99<1s' ]"), "`lst` is no step, scenario or part of this plan"),
        (&format!("{one}\nthresholds: [ 'aa: p99<1s' ]"), "(did you mean a?)"),
        (&format!("{one}\nthresholds: [ 'a: p99' ]"), "expected METRIC<VALUE"),
        (&format!("{one}\nthresholds: [ 's: iterations>many' ]"), "expected a number, such as 1000 or 50k"),
        (
            "scenarios: { x: { steps: [ { name: a, get: 'http://a/' } ] }, y: { steps: [ { name: a, get: 'http://a/' } ] } }\nthresholds: [ 'a: p99<1s' ]",
            "`a` is the name of several steps, scenarios or parts (write the scenario too, as in browse.a: p99<1s)",
        ),
        (
            "scenarios: { s: { users: 1, rate: 1/s, steps: [ { name: a, get: 'http://a/' } ] } }",
            "exclude each other",
        ),
        (
            "scenarios: { s: { users: 1, weight: 2, steps: [ { name: a, get: 'http://a/' } ] } }",
            "a weight shares out those of the plan",
        ),
        (
            "scenarios: { s: { weight: 0, steps: [ { name: a, get: 'http://a/' } ] } }",
            "a weight is 1 to 1000000",
        ),
        (
            "scenarios: { s: { users: 1, users_max: 2, steps: [ { name: a, get: 'http://a/' } ] } }",
            "`users_max` bounds the users of a `rate`",
        ),
        (
            "scenarios: { s: { rate: 1/s, pace: 1s, steps: [ { name: a, get: 'http://a/' } ] } }",
            "`pace` is for `users`",
        ),
        (
            "scenarios: { s: { iterations: 0, steps: [ { name: a, get: 'http://a/' } ] } }",
            "expected at least 1",
        ),
        (
            "users: 3\nscenarios: { s: { users: 1, steps: [ { name: a, get: 'http://a/' } ] } }",
            "nothing uses this",
        ),
        (&format!("{one}\ndefaults: {{ body_limit: 1GiB }}"), "expected a limit from 1B to 64MiB"),
        (&format!("{one}\ndefaults: {{ checks: [ x ] }}"), "defaults.checks[0]: expected status=200"),
        (
            &format!("{one}\ndefaults: {{ headers: {{ x: '{{{{token}}}}' }} }}"),
            "defaults.headers.x: no earlier step can have kept `token`",
        ),
        (&format!("{one}\nscenrios: {{}}"), "(did you mean scenarios?)"),
        ("scenarios: [", "1:"),
        (
            "scenarios: { s: { steps: [ { name: a, get: '${NOWHERE}' } ] } }",
            "the variable NOWHERE is not set",
        ),
    ] {
        let found = mistakes(text);
        if !found.iter().any(|line| line.contains(want)) {
            missing.push(format!("{text}\n  wants {want}\n  found {found:#?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "target: http://a:80\ndefaults: { timeout: fast }\nscenarios:\n  s:\n    steps:\n      - { name: a, get: '/{{x}}' }\n      \
                - { name: a, pots: / }\n      - { pause: soon }\n";
    let found = mistakes(text);
    for (line, want) in ["defaults.timeout", "steps[0].get", "pots", "steps[2].pause"].iter().enumerate() {
        assert!(found.iter().any(|told| told.contains(want)), "{line} {want}: {found:#?}");
    }
}

#[test]
fn one_mistake_is_told_once() {
    for step in [
        "{ name: a, gett: / }",
        "{ pause: [] }",
        "{ name: a, head: [] }",
        "{ repeat: two, steps: [ { pause: 1s } ] }",
    ] {
        let found = mistakes(&with_steps(step));
        assert_eq!(found.len(), 1, "{step}: {found:#?}");
    }
}

#[test]
fn limits_hold() {
    let many = |count: usize| {
        let steps: Vec<String> = (0..count).map(|n| format!("{{ name: s{n}, get: / }}")).collect();
        with_steps(&steps.join(",\n"))
    };
    assert_eq!(mistakes(&many(1_000)), Vec::<String>::new());
    let found = mistakes(&many(1_002));
    assert_eq!(found, ["1004:1 scenarios.s.steps[1000]: a plan has at most 1000 steps"]);
    let nested = |depth: usize| {
        let inner = "{ name: a, get: / }".to_owned();
        with_steps(&(1..depth).fold(inner, |inner, _| format!("{{ repeat: 2, steps: [ {inner} ] }}")))
    };
    assert_eq!(mistakes(&nested(8)), Vec::<String>::new());
    assert!(mistakes(&nested(9)).iter().any(|told| told.contains("steps are nested at most 8 deep")));
    let scenarios: Vec<String> =
        (0..101).map(|n| format!("s{n}: {{ steps: [ {{ name: a, get: 'http://a/' }} ] }}")).collect();
    let found = mistakes(&format!("scenarios: {{ {} }}", scenarios.join(", ")));
    assert!(found.iter().any(|told| told.contains("a plan has at most 100 scenarios")), "{found:#?}");
}

#[test]
fn a_secret_of_the_environment_is_in_no_mistake() {
    let text = with_steps(
        "  { name: a, get: '/${SECRET}x{{y}}', headers: { x: '${SECRET}{{y}}' }, checks: [ '${SECRET}' ] }",
    );
    let source = Source::text("plan.yaml", text).with_variable("SECRET", "hunter22");
    let told = read(&source, &Disk, &[]).unwrap_err().to_string();
    assert!(told.contains("`y`") && !told.contains("hunter22"), "{told}");
}
