//! `replace`: replaces literal texts in response bodies while they pass.
//!
//! `texts` finds and replaces them. Here is what follows for the two heads.

mod texts;

use super::prelude::*;
use super::shared::changed::{OF_THE_BYTES, WeakTags, no_transform, weaken};
use super::shared::media::MediaPattern;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use texts::Texts;
use weir_h1::{FieldName, Known, Method};

pub(super) static KIND: FilterKind = FilterKind::made_from::<ReplaceSettings>("replace")
    .with_causes(&[&REPLACE_LIMIT])
    .without_access()
    .judged_by_head();

causes! {
    REPLACE_LIMIT "replace_limit" 502
        "The replaced texts would make one piece of the answer more than 4 MiB longer."
        "shorter replacements, or longer searched texts, in `text` of the filter replace",
        nature: Nature::Failure
}

/// Replaces literal texts in response bodies, as nginx's `sub_filter` does.
///
/// Every occurrence is replaced, and its case matters. If texts overlap, the one that begins first wins, of those that
/// begin at the same place the longest; replacements are not searched again. A body is replaced while it passes: at
/// most the beginning of a text waits for the next bytes. The memory per response does not depend on its length.
///
/// Texts are compared as bytes of UTF-8. In pages with another charset only ASCII texts are found, and in UTF-16 none.
///
/// The length of a replaced body is not known in advance, so it is sent without Content-Length. A strong ETag becomes
/// weak, so that clients can still revalidate: it no longer stands for the upstream's bytes, but it still changes with
/// them. It does not change with `text`: after a reload with other texts, clients keep their copies until the
/// upstream's content changes or they reload. Accept-Ranges, Content-MD5, Digest, Content-Digest and Repr-Digest are
/// removed, also as trailers.
///
/// The upstream is asked for the whole content without a coding: Accept-Encoding becomes `identity`, and Range and
/// If-Range are removed, for all requests, because the media type is not known before the answer. Parts of replaced
/// and of original content do not fit together. Clients cannot seek or resume on such a route: give videos and
/// downloads another one. These responses pass unchanged, and `weir_replace_passed_total` counts them: those with a
/// Content-Encoding nevertheless (`coded`), parts (`partial`), and those under `Cache-Control: no-transform`
/// (`no_transform`; in a request it has no effect).
///
/// Put `compress` and `cache` before `replace`: they then see replaced bodies. A `compress` behind it never
/// compresses. A `cache` behind it keeps original bodies, and each hit is replaced anew.
///
/// ```yaml
/// - replace: { text: { "http://old.example": "https://new.example" } }
/// - replace: { types: [ text/html, text/css ], text: { "</head>": '<link rel="stylesheet" href="/extra.css"></head>' } }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceSettings {
    /// Media types whose bodies are searched, such as `text/html`, `text/*` or `application/*+json`. Default
    /// `[text/html]`.
    #[serde(default = "html")]
    types: Vec<MediaPattern>,
    /// The searched texts and their replacements; an empty replacement removes the text. At most 100 texts of 1 KiB
    /// each and 8 KiB in all, with replacements of at most 16 KiB each.
    text: BTreeMap<String, String>,
}

fn html() -> Vec<MediaPattern> {
    vec![MediaPattern::new("text/html").expect("a default is sound")]
}

/// Most texts. The search takes the same time for any number, but its tables grow.
const TEXTS: usize = 100;

/// Longest text, in bytes. One byte less may be held back per response, and looked at again for each piece.
const TEXT_BYTES: usize = 1024;

/// Most bytes of all texts. The tables take up to 1 KiB for each.
const ALL_TEXT_BYTES: usize = 8 * 1024;

/// Longest replacement, in bytes.
const REPLACEMENT_BYTES: usize = 16 * 1024;

struct Replace {
    types: Vec<MediaPattern>,
    texts: Texts,
    counts: Arc<Counts>,
    accept_encoding: FieldName,
    etag: FieldName,
}

/// What has happened, over all cores.
#[derive(Default)]
struct Counts {
    replaced: AtomicU64,
    passed: [AtomicU64; 3],
}

/// Why a response of the right media type passes unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// It has a Content-Encoding.
    Coded,
    /// It forbids changes.
    NoTransform,
    /// It is a part.
    Partial,
}

const REASONS: [&str; 3] = ["coded", "no_transform", "partial"];

static REPLACED: Figure = Figure::counter("replaced", "weir_replace_replaced", "Texts that were replaced.");
static PASSED: Figure = Figure::counter(
    "passed",
    "weir_replace_passed",
    "Responses with a media type to search that passed unchanged, by reason: coded, no_transform or partial.",
)
.of("reason");

/// The end of a body so far that may be the beginning of a text.
#[derive(Debug, Default)]
struct Held(Vec<u8>);

/// The filter's note: the request is HEAD.
const HEAD: u64 = 1;

impl IntoFilter for ReplaceSettings {
    type Filter = Replace;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Replace> {
        let before = build.mistakes.len();
        if self.types.is_empty() {
            let hint = "leave it out for text/html, or leave the filter out";
            build.refuse("types", "names none, so that nothing is replaced", Some(hint.into()));
        }
        if self.text.is_empty() {
            let hint = r#"write { "http://old": "https://new" }"#;
            build.refuse("text", "names none, so that nothing is replaced", Some(hint.into()));
        }
        if self.text.len() > TEXTS {
            build.refuse(
                "text",
                format!("has {} texts; at most {TEXTS} are searched", self.text.len()),
                None,
            );
        }
        let all: usize = self.text.keys().map(String::len).sum();
        if all > ALL_TEXT_BYTES {
            let message = format!("searches for {all} bytes in all, more than {ALL_TEXT_BYTES}");
            build.refuse("text", message, None);
        }
        for (text, by) in &self.text {
            let shown: String = text.chars().take(40).collect();
            if text.is_empty() {
                build.refuse("text", "has an empty text, which is everywhere", None);
            } else if text.len() > TEXT_BYTES {
                let length = text.len();
                build.refuse("text", format!("`{shown}…` has {length} bytes, more than {TEXT_BYTES}"), None);
            } else if by.len() > REPLACEMENT_BYTES {
                let length = by.len();
                let message =
                    format!("the replacement of `{shown}` has {length} bytes, more than {REPLACEMENT_BYTES}");
                build.refuse("text", message, None);
            } else if text == by {
                build.refuse("text", format!("`{shown}` is replaced by itself"), None);
            }
        }
        if build.mistakes.len() > before {
            return None;
        }
        let texts = match Texts::new(self.text.iter().map(|(text, by)| (text.as_str(), by.as_str()))) {
            Ok(texts) => texts,
            Err(e) => {
                build.refuse("text", format!("cannot be searched: {e}"), None);
                return None;
            }
        };
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Some(Replace {
            types: self.types,
            texts,
            counts: build.keep_for("counts", |_| true, |_| Counts::default()),
            accept_encoding: name("accept-encoding"),
            etag: name("etag"),
        })
    }
}

impl Filter for Replace {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE | Hooks::RESPONSE_BODY
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if head.method() == Method::Head {
            *cx.note() = HEAD;
        }
        WeakTags::remember(head, cx);
        let _ = head.headers.insert(&self.accept_encoding, b"identity"); // ours: a token
        head.headers.remove_where(|name, _| {
            name.eq_ignore_ascii_case(b"range") || name.eq_ignore_ascii_case(b"if-range")
        });
        Flow::Continue
    }

    fn response_body(&self, head: &ResponseHead, _: &mut Cx) -> BodyUse {
        if self.searches(head) == Some(Ok(())) { BodyUse::Change } else { BodyUse::Pass }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if head.status() == 304 {
            WeakTags::answer(head, &self.etag, cx);
            return Flow::Continue;
        }
        match self.searches(head) {
            None => return Flow::Continue,
            Some(Err(why)) => {
                if let Some(count) = self.counts.passed.get(why as usize) {
                    count.fetch_add(1, Relaxed);
                }
                return Flow::Continue;
            }
            Some(Ok(())) => {}
        }
        weaken(head, &self.etag);
        head.headers.remove_where(|name, _| of_the_bytes(name));
        // RFC 9110 §9.3.2: a response to HEAD may omit fields that only producing the content would determine.
        if *cx.note() == HEAD {
            head.headers.remove_known(Known::ContentLength);
            cx.drop_length();
        }
        Flow::Continue
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        // A pause releases nothing: it falls between any two packets, so it may be within a text.
        if piece.is_pause() && piece.data().is_empty() {
            return Ok(());
        }
        let held = &mut cx.state::<Held>().0;
        let replaced = self.texts.replace(held, piece.data(), piece.is_last());
        let replaced = replaced.map_err(|_| Refusal::new(&REPLACE_LIMIT))?;
        if replaced.count > 0 {
            self.counts.replaced.fetch_add(replaced.count, Relaxed);
        }
        if let Some(out) = replaced.out {
            piece.replace(out);
        }
        if piece.is_last() && piece.trailers().any(|(name, _)| of_the_bytes(name)) {
            let rest = piece.trailers().filter(|(name, _)| !of_the_bytes(name));
            let rest: Vec<_> = rest
                .filter_map(|(name, value)| {
                    let name = FieldName::new(str::from_utf8(name).ok()?).ok()?;
                    Some((name, value.to_vec()))
                })
                .collect();
            piece.set_trailers(&rest);
        }
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        let mut readings = vec![Reading::one(&REPLACED, self.counts.replaced.load(Relaxed))];
        let passed = REASONS.iter().zip(&self.counts.passed);
        readings.extend(passed.map(|(why, count)| Reading::of(&PASSED, why, count.load(Relaxed))));
        readings
    }

    fn notes_among(&self, _: &[Neighbour<'_>], behind: &[Neighbour<'_>]) -> Vec<String> {
        let compresses = behind.iter().any(|filter| filter.name == "compress");
        let note = "`compress` behind it never compresses, because it asks for content without a coding: put \
                    `compress` before it";
        compresses.then(|| note.to_owned()).into_iter().collect()
    }
}

impl Replace {
    /// Whether the body of this response is searched; `None` for another media type, or no content.
    fn searches(&self, head: &ResponseHead) -> Option<Result<(), Passed>> {
        let fields = &head.headers;
        let media = fields.get_str("content-type")?;
        if matches!(head.status(), 0..=199 | 204 | 205 | 304)
            || !self.types.iter().any(|pattern| pattern.matches(media))
            || fields.is_media("application/grpc")
        {
            return None;
        }
        Some(if head.status() == 206 || fields.get_str("content-range").is_some() {
            Err(Passed::Partial)
        } else if fields.get_all("content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            Err(Passed::Coded)
        } else if no_transform(fields) {
            // RFC 9110 §7.7. That of a request is a wish: who asks for it must not decide what a cache keeps for all.
            Err(Passed::NoTransform)
        } else {
            Ok(())
        })
    }
}

fn of_the_bytes(name: &[u8]) -> bool {
    OF_THE_BYTES.iter().any(|gone| name.eq_ignore_ascii_case(gone))
}

#[cfg(test)]
mod tests;
