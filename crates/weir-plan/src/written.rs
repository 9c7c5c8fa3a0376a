//! A plan as written. The texts of these keys become the tables of docs/reference/load-plan.md and the descriptions of
//! docs/reference/load-plan.schema.json.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use std::borrow::Cow;
use weir_config::de::Raw;
use weir_config::schema::{FilePath, Named, Pairs};
use weir_config::units::{ByteSize, Duration};

/// The keys of a step. A test compares them with [`Step`].
pub(crate) const STEP_KEYS: &[&str] = &[
    "name",
    "get",
    "head",
    "post",
    "put",
    "patch",
    "delete",
    "options",
    "method",
    "url",
    "grpc",
    "ws",
    "answer",
    "close",
    "headers",
    "body",
    "body_file",
    "json",
    "form",
    "multipart",
    "message",
    "checks",
    "keep",
    "timeout",
    "redirects",
    "on_failure",
    "pause",
    "if",
    "then",
    "else",
    "repeat",
    "while",
    "max",
    "parallel",
    "steps",
    "exec",
];

/// JSON Schema (2020-12) of a plan, for editors.
pub fn schema() -> serde_json::Value {
    let generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<PlanFile>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "A scenario plan of weir load".into());
    }
    schema
}

/// A scenario plan of `weir load -f`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PlanFile {
    /// The server of URLs without one, such as `http://127.0.0.1:8080`.
    pub(crate) target: Option<String>,
    /// What holds for every step that does not say otherwise.
    pub(crate) defaults: Defaults,
    /// Rows that users take.
    pub(crate) data: Named<Data>,
    /// Names for constant texts.
    pub(crate) values: Pairs,
    /// Steps that run once, before the first user starts. All users may read what they keep.
    pub(crate) setup: Vec<Step>,
    /// Journeys, each with its load or its weight.
    pub(crate) scenarios: Named<Scenario>,
    /// Steps that run once, after the last user.
    pub(crate) teardown: Vec<Step>,
    /// Users of the scenarios without `users` or `rate` of their own, who share their iterations by `weight`.
    #[schemars(with = "Option<LoadValue>")]
    pub(crate) users: Option<Raw>,
    /// Iterations per second of those scenarios, such as `20/s`, or a list of parts: an open model.
    #[schemars(with = "Option<LoadValue>")]
    pub(crate) rate: Option<Raw>,
    /// How the starts of a `rate` with parts are spaced: `even`, `poisson` or `burst(N)`. Default `even`.
    pub(crate) spacing: Option<String>,
    /// Seed of `poisson`. Default 1: the same shape and seed have the same starts.
    pub(crate) seed: Option<u64>,
    /// Most users with `rate`. Default 1000. A start that finds none free is counted as not started.
    pub(crate) users_max: Option<u32>,
    /// With `users`: an iteration begins at least this long after the last one of its user began.
    pub(crate) pace: Option<Duration>,
    /// How long the load lasts, counted from the end of the warm-up. As `-d`.
    pub(crate) duration: Option<Duration>,
    /// How long the load runs before measuring starts. As `--warmup`.
    pub(crate) warmup: Option<Duration>,
    /// How long users may take to finish when the load ends.
    pub(crate) graceful_stop: Option<Duration>,
    /// Conditions on the result: `p99<1s`, or with the name of a step or scenario, `list: p99<200ms`.
    pub(crate) thresholds: Vec<String>,
    /// Whether each scenario runs once with one user before any load. Default `true`.
    pub(crate) dry_run: Option<bool>,
    /// `.proto` files and descriptor sets of gRPC steps. Default: servers are asked by reflection.
    pub(crate) protos: Vec<FilePath>,
}

/// What holds for every step that does not say otherwise.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Defaults {
    /// Header fields of every request.
    pub(crate) headers: Pairs,
    /// How long an answer may take. Default `10s`.
    pub(crate) timeout: Option<Duration>,
    /// Most redirects that a request follows. Default 0.
    pub(crate) redirects: Option<u32>,
    /// How long users keep cookies: `true` (always), `iteration` or `false` (never). Default `true`.
    pub(crate) cookies: Option<Cookies>,
    /// Checks of every HTTP and gRPC step. A step with a check of the status replaces that of the defaults.
    pub(crate) checks: Vec<String>,
    /// `go_on` (default), `end` or `stop`: what a failed check does.
    pub(crate) on_failure: Option<OnFailure>,
    /// `own` or `shared`. Default `own` with `users`, `shared` with `rate`.
    pub(crate) connections: Option<Connections>,
    /// Most bytes of a body that are read for keeps and checks. Default `1MiB`, at most `64MiB`.
    pub(crate) body_limit: Option<ByteSize>,
    /// Whether requests use HTTP/2. Default `false`.
    pub(crate) http2: bool,
    /// Whether requests use HTTP/3, which needs https. Default `false`.
    pub(crate) http3: bool,
}

/// Rows that users take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Data {
    /// CSV with a line of names (RFC 4180), or JSON lines. At most 1 GiB.
    pub(crate) file: Option<FilePath>,
    /// The rows themselves: maps with the same keys.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub(crate) rows: Option<Raw>,
    /// `sequential` (default), `random`, `once` (each row once in the whole run) or `per_user` (user k has row k).
    pub(crate) pick: Option<Pick>,
    /// After the last row: `wrap` (default of `sequential`), `stop` (its scenarios end) or `fail`. `once` needs one of the
    /// last two.
    pub(crate) at_end: Option<AtEnd>,
}

/// A journey of users.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scenario {
    /// Its share of the iterations of the plan's own `users` or `rate`. Default 1.
    pub(crate) weight: Option<u32>,
    /// Users of this scenario alone: a closed model.
    #[schemars(with = "Option<LoadValue>")]
    pub(crate) users: Option<Raw>,
    /// Iterations per second of this scenario alone, such as `20/s`, or a list of parts: an open model.
    #[schemars(with = "Option<LoadValue>")]
    pub(crate) rate: Option<Raw>,
    /// How the starts of a `rate` with parts are spaced: `even`, `poisson` or `burst(N)`. Default `even`.
    pub(crate) spacing: Option<String>,
    /// Seed of `poisson`. Default 1: the same shape and seed have the same starts.
    pub(crate) seed: Option<u64>,
    /// Most users with `rate`. Default 1000. A start that finds none free is counted as not started.
    pub(crate) users_max: Option<u32>,
    /// With `users`: an iteration begins at least this long after the last one of its user began.
    pub(crate) pace: Option<Duration>,
    /// When its load begins, counted from that of the run. Default `0s`.
    pub(crate) start_at: Option<Duration>,
    /// Ends after this many iterations.
    pub(crate) iterations: Option<u64>,
    /// Steps of a user before its first iteration.
    pub(crate) start: Vec<Step>,
    /// Steps of each iteration.
    pub(crate) steps: Vec<Step>,
    /// Steps of a user after its last iteration, also when the run is stopped.
    pub(crate) end: Vec<Step>,
    /// `go_on`, `end` or `stop`: what a failed check does.
    pub(crate) on_failure: Option<OnFailure>,
    /// `own` or `shared`: whether a user has connections of its own.
    pub(crate) connections: Option<Connections>,
    /// How long its users keep cookies: `true`, `iteration` or `false`.
    pub(crate) cookies: Option<Cookies>,
}

/// One step: a request, or what orders requests.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
    /// Its row in the report, its label in metrics. Unique within the scenario.
    pub(crate) name: Option<String>,
    /// URL of a GET request.
    pub(crate) get: Option<String>,
    /// URL of a HEAD request.
    pub(crate) head: Option<String>,
    /// URL of a POST request.
    pub(crate) post: Option<String>,
    /// URL of a PUT request.
    pub(crate) put: Option<String>,
    /// URL of a PATCH request.
    pub(crate) patch: Option<String>,
    /// URL of a DELETE request.
    pub(crate) delete: Option<String>,
    /// URL of an OPTIONS request.
    pub(crate) options: Option<String>,
    /// Another method; needs `url`.
    pub(crate) method: Option<String>,
    /// URL of a request with `method`.
    pub(crate) url: Option<String>,
    /// gRPC method, `/package.Service/Method`, or with its server `grpc://HOST:PORT/…`.
    pub(crate) grpc: Option<String>,
    /// URL of a WebSocket, which is opened unless the user has it open. Sends `message`, if there is one, and waits for
    /// an answer.
    pub(crate) ws: Option<String>,
    /// Which message of a WebSocket is the answer: a check or a list of them that it passes, or `none` to wait for
    /// none. Default: the next message; without a `message`, `none`.
    #[schemars(with = "Option<Answer>")]
    pub(crate) answer: Option<Raw>,
    /// Closes the WebSocket after the step. Default `false`.
    pub(crate) close: bool,
    /// Header fields. They replace those of the defaults by name.
    pub(crate) headers: Pairs,
    /// The body as text.
    pub(crate) body: Option<String>,
    /// A file that is the body, byte for byte. At most 64 MiB.
    pub(crate) body_file: Option<FilePath>,
    /// The body as JSON.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) json: Option<Raw>,
    /// The body as a form, `application/x-www-form-urlencoded`.
    pub(crate) form: Option<Pairs>,
    /// The body as `multipart/form-data`.
    pub(crate) multipart: Option<Vec<MultipartPart>>,
    /// The message of `grpc`, `ws` or `exec`: a map or list as JSON, for `ws` also a text.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) message: Option<Raw>,
    /// Conditions that the answer must meet.
    pub(crate) checks: Vec<String>,
    /// Names, and where in the answer their values are.
    pub(crate) keep: Pairs,
    /// How long the answer may take.
    pub(crate) timeout: Option<Duration>,
    /// Most redirects that are followed.
    pub(crate) redirects: Option<u32>,
    /// `go_on`, `end` or `stop`: what a failed check does.
    pub(crate) on_failure: Option<OnFailure>,
    /// Waits: `2s`, `uniform(1s,3s)`, `exp(2s)`, `normal(2s,500ms)` or `lognormal(2s,0.5)`.
    pub(crate) pause: Option<String>,
    /// An expression: runs `then` if it holds, else `else`.
    #[serde(rename = "if")]
    #[schemars(with = "Option<String>")]
    pub(crate) condition: Option<Raw>,
    /// Steps of `if`.
    pub(crate) then: Vec<Self>,
    /// Steps of `if` where it does not hold.
    #[serde(rename = "else")]
    pub(crate) otherwise: Vec<Self>,
    /// Runs `steps` this often.
    pub(crate) repeat: Option<u32>,
    /// An expression: runs `steps` while it holds, at most `max` times.
    #[serde(rename = "while")]
    #[schemars(with = "Option<String>")]
    pub(crate) while_: Option<Raw>,
    /// Most rounds of `while`.
    pub(crate) max: Option<u32>,
    /// Runs the requests in `steps` at once, at most so many at a time.
    pub(crate) parallel: Option<u32>,
    /// Steps of `repeat`, `while` or `parallel`.
    pub(crate) steps: Vec<Self>,
    /// A program and its arguments: gets `message` as a line of JSON and answers with one. One process per thread.
    pub(crate) exec: Vec<String>,
}

/// A part of a multipart body.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MultipartPart {
    /// The name of the field.
    pub(crate) name: Option<String>,
    /// Its value.
    pub(crate) value: Option<String>,
    /// A file that is its value. At most 64 MiB.
    pub(crate) file: Option<FilePath>,
    /// The file's name as sent. Default: that of `file`.
    pub(crate) filename: Option<String>,
    /// Its media type. Default for a file: `application/octet-stream`.
    #[serde(rename = "type")]
    pub(crate) media: Option<String>,
}

/// What a failed check does, beside being counted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    /// Ends the iteration.
    End,
    /// Nothing.
    GoOn,
    /// Ends the run.
    Stop,
}

/// Who uses a connection.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Connections {
    /// One user.
    Own,
    /// Whoever needs one.
    Shared,
}

/// How long users keep cookies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies(pub(crate) crate::plan::Cookies);

impl<'de> Deserialize<'de> for Cookies {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Cookies;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or iteration")
            }

            fn visit_bool<E>(self, keeps: bool) -> Result<Cookies, E> {
                Ok(Cookies(if keeps { crate::plan::Cookies::User } else { crate::plan::Cookies::Off }))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Cookies, E> {
                match word {
                    "iteration" => Ok(Cookies(crate::plan::Cookies::Iteration)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Cookies {
    fn schema_name() -> Cow<'static, str> {
        "Cookies".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "enum": [true, false, "iteration"] })
    }
}

/// How rows are handed out.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pick {
    /// Each row once in the whole run.
    Once,
    /// User k has row k.
    PerUser,
    /// Any row.
    Random,
    /// One after the other.
    Sequential,
}

/// What follows the last row.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AtEnd {
    /// The run fails.
    Fail,
    /// The scenarios that use the data set end.
    Stop,
    /// The first row again.
    Wrap,
}

/// The schema of `answer`.
struct Answer;

impl JsonSchema for Answer {
    fn schema_name() -> Cow<'static, str> {
        "Answer".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

/// The schema of `users` and `rate`, a number or a rate. It also allows a list, which the reader refuses.
struct LoadValue;

impl JsonSchema for LoadValue {
    fn schema_name() -> Cow<'static, str> {
        "Load".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": ["integer", "string", "array"],
            "items": { "type": "object" },
            "maxItems": crate::shape::PARTS_MOST,
        })
    }
}
