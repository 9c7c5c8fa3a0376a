//! Expressions of a config: the grammar of [CEL](https://cel.dev) with a typed compiler of our own.
//!
//! A host says in a [`Schema`] which variables there are, of which [`Type`] and from which [`Phase`] on. [`Condition`],
//! [`Expression`] and [`Template`] compile a text against it, once, when the config is read; every [`Mistake`] has its
//! place and what to write instead. At run time the host lends its [`Values`]: text is bytes, borrowed from the
//! exchange.
//!
//! ```
//! use std::borrow::Cow;
//! use weir_expr::{Condition, Phase, Schema, Type, Value, Values, Var, Variable};
//!
//! const REQUEST: Phase = Phase(0);
//! let schema = Schema::new(["request", "response"])
//!     .with(Variable::new("request.method", Var(0), REQUEST, Type::Text))
//!     .with(Variable::new("request.headers", Var(1), REQUEST, Type::Text).folded());
//!
//! struct Request;
//! impl Values for Request {
//!     fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
//!         match (var, key) {
//!             (Var(0), _) => Value::text("GET"),
//!             (Var(1), b"x-env") => Value::text("blue"),
//!             _ => Value::Absent,
//!         }
//!     }
//! }
//!
//! let source = r#"request.method == "GET" && request.headers["X-Env"] == "blue""#;
//! assert!(Condition::compile(source, &schema, REQUEST).unwrap().holds(&Request));
//!
//! let source = r#"request.metod == "GET""#;
//! let mistakes = Condition::compile(source, &schema, REQUEST).unwrap_err();
//! assert_eq!(
//!     mistakes[0].render(source),
//!     "1:1: there is no variable `request.metod`\n  \
//!      request.metod == \"GET\"\n  \
//!      ^^^^^^^^^^^^^\n  \
//!      did you mean `request.method`?"
//! );
//! ```
//!
//! # Beside CEL
//!
//! - `a ?? b` is the first that is not empty: `b` where `a` has no value, is null, or is an empty text, list or map. It binds
//!   tighter than comparisons and looser than arithmetic: `int(x) ?? 0 > 5`.
//! - `in` of an address over networks: `client.ip in ["10.0.0.0/8", "2001:db8::/32"]`.
//! - `request.headers["accept"].all()` is the list of the values of a repeated field, whose value is all of them joined by
//!   `, `.
//! - Text is bytes, and bytes are taken where text is: `base64.decode(x).startsWith("user:")`. JSON is taken there too, as
//!   what `string()` makes of it.
//!
//! # No expression fails
//!
//! An expression that may have no value says at its place what holds then, or is a mistake of the config. The rule:
//! text without a value is empty, JSON without a value equals nothing, and everything else needs `??` before it is
//! compared or tested. We chose it over CEL's errors because an error at run time must become true or false anyway, and
//! only the author of a condition knows which is safe. We chose it over an error for each sum because a sum that stops
//! at the largest number still compares on the right side.
//!
//! | what | comes to |
//! |---|---|
//! | a text that is not there | `""`; `has(x)` tells |
//! | JSON that is not there: `body.a.b`, an index behind the end | no value: equals nothing, has no members, is in no list; as text `""` |
//! | a variable of another type that the schema calls optional | no value: needs `??` |
//! | `+ - *` of int and uint beyond 64 bits | the largest or smallest number |
//! | `/`, `%` by a constant other than 0 | a number |
//! | `/`, `%` by anything else | no value where that is 0: needs `??` |
//! | `/` of double | IEEE 754: infinity or NaN, which equals and orders with nothing |
//! | `int(x)`, `uint`, `double`, `bool`, `ip`, `timestamp`, `duration` of a text or JSON | no value where it is none: needs `??` |
//! | item of a list, entry of a map | no value behind the end: needs `??`, but text is `""` |
//! | a moment outside the years 1 to 9999 | no value: needs `??` |
//! | `==` of JSON and anything | true only if kind and value are the same; numbers compare by value |
//! | `<` of JSON and a number | no value unless it is one: `(body.age >= 18) ?? false` |
//! | `+ - * / %` of JSON and a number | JSON; no value unless both are of one kind |
//! | `x in JSON` | false unless it is a list, of at most [`limits::JSON_ITEMS`] items, or an object |
//! | a macro over JSON | no value unless it is such a list or an object: needs `??` |
//! | `substring`, `charAt` out of range | what there is |
//! | `base64.decode` and `hex.decode` of what is none | empty |
//! | text or lists beyond [`limits::BUILT_BYTES`] built by one evaluation | empty text, no list |
//!
//! Calculations carry a missing value on, so one default is enough: `(int(a) + int(b)) ?? 0 > 5`.
//!
//! # Bounds
//!
//! No loops but macros over lists, no recursion, no I/O, no clock. Source, nesting and size are bounded, and so is the
//! cost, which the check computes from the longest texts and lists that the schema allows: [`limits`] has all numbers.
//!
//! # Left out of CEL
//!
//! Messages and enums of protocol buffers, `type()` and types as values, named time zones, regular expressions that are
//! computed, errors as values (`x || error`), macros with two variables,
//! optional types (`?? ` and `has` are for that), the extensions `math`, `sets` and `cel.bind`. Regular expressions match
//! bytes, not characters.
//!
//! # Files
//!
//! `token.rs` → `parse.rs` → `ast.rs` → `check.rs` and its folder → `code.rs` → `eval.rs`, with the functions in
//! `signatures.rs` and `functions.rs`; `compiled.rs` and `template.rs` put them together. `diagnostic.rs`, `json.rs` (a
//! strict parser), `limits.rs`, `networks.rs`, `schema.rs`, `text.rs`, `time.rs` and `value.rs` know none of these.

mod ast;
mod check;
mod code;
mod compiled;
mod diagnostic;
mod eval;
mod functions;
pub mod json;
pub mod limits;
mod networks;
mod parse;
mod schema;
mod signatures;
pub mod spelling;
pub mod template;
mod text;
mod time;
mod token;
mod value;

pub use check::Read;
pub use compiled::{Condition, Expression};
pub use diagnostic::Mistake;
pub use eval::{Values, same};
pub use networks::Networks;
pub use schema::{Phase, Schema, Type, Var, Variable};
pub use signatures::{Function, ROWS as FUNCTIONS, Takes};
pub use template::Template;
pub use time::Timestamp;
pub use token::literals;
pub use value::Value;
