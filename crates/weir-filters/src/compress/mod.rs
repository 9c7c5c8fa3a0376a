//! `compress`: compresses response bodies for clients that accept it.
//!
//! `weir_filter::coding` chooses the coding, and `encoder` holds the three codings and what they cost.

mod encoder;

use super::prelude::*;
use super::shared::changed::{OF_THE_BYTES, WeakTags, no_transform, weaken};
use super::shared::media::MediaPattern;
use encoder::{Encoder, Then, memory, time};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use weir_filter::blocking::Blocking;
use weir_filter::coding::{self, Coding};
use weir_h1::{FieldName, Fields, Known, Method};

pub(super) static KIND: FilterKind = FilterKind::made_from::<CompressSettings>("compress")
    .with_causes(&[&COMPRESS_FAILED])
    .without_access()
    .judged_by_head();

static COMPRESS_FAILED: Cause = Cause {
    code: "compress_failed",
    status: 500,
    meaning: "The response could not be compressed: the library failed, which happens when memory is short.",
    change: "the machine's memory; `memory` of the filter compress",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// Compresses response bodies with Zstandard, brotli or gzip, as the client accepts.
///
/// The client gets the coding that its Accept-Encoding ranks highest; `algorithms` decides between codings of equal
/// quality. Every response that could be compressed gets `Vary: accept-encoding`. A compressed response has a weak
/// ETag instead of a strong one and no Accept-Ranges. When the upstream pauses, as between server-sent events,
/// everything sent so far is flushed. Apart from such flushes, the same body always compresses to the same bytes. With
/// the filter `buffer`, a pause causes no flush if the body's length is known and fits into the buffer's memory.
///
/// These responses pass unchanged: those with a Content-Encoding or Content-Range, those under
/// `Cache-Control: no-transform` (of the response or the request), gRPC, and bodies known to be shorter than
/// `minimum`.
///
/// If a page shows a secret next to text that an attacker can choose, its compressed length reveals the secret
/// (BREACH). Leave `compress` off the routes of such pages. [content.md](../guide/content.md#compression) has more.
///
/// ```yaml
/// - compress: {}
/// - compress: { algorithms: [gzip], levels: { gzip: 4 }, types: [ text/html, "application/*+json" ] }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CompressSettings {
    /// Codings to choose from; the first wins if the client accepts several equally. Default `[zstd, br, gzip]`.
    algorithms: Vec<Coding>,
    /// Shorter bodies pass uncompressed; bodies of unknown length are compressed. Default `1KiB`.
    minimum: ByteSize,
    /// Media types to compress, such as `text/css`, `text/*` or `application/*+json`. Default: text, JSON, XML,
    /// JavaScript, WebAssembly, SVG, and font formats without their own compression.
    types: Vec<MediaPattern>,
    /// Compression level of each coding.
    levels: Levels,
    /// Most memory for bodies being compressed, over all cores. When it is used up, further bodies use a coding that
    /// needs less, if the client accepts one, or pass uncompressed. One body takes 384 KiB with gzip, 6 MiB with
    /// brotli at level 6, 2.5 MiB with Zstandard at level 6. Default `512MiB`.
    memory: ByteSize,
}

/// A level for each coding. Higher levels give smaller bodies and take longer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Levels {
    /// 0 to 11. Default 6.
    br: u8,
    /// 1 to 9. Default 6.
    gzip: u8,
    /// 1 to 19. Default 6.
    zstd: u8,
}

impl Default for Levels {
    fn default() -> Self {
        Self { br: 6, gzip: 6, zstd: 6 }
    }
}

impl Levels {
    const fn of(self, algorithm: Coding) -> u8 {
        match algorithm {
            Coding::Br => self.br,
            Coding::Gzip => self.gzip,
            Coding::Zstd => self.zstd,
        }
    }
}

impl Default for CompressSettings {
    fn default() -> Self {
        let types = TYPES.iter().map(|text| MediaPattern::new(text).expect("a default is sound"));
        Self {
            algorithms: vec![Coding::Zstd, Coding::Br, Coding::Gzip],
            minimum: "1KiB".parse().expect("a default is sound"),
            types: types.collect(),
            levels: Levels::default(),
            memory: "512MiB".parse().expect("a default is sound"),
        }
    }
}

/// Media types that are compressed by default: the many forms of text. Images, sound, video and archives are
/// compressed already.
const TYPES: &[&str] = &[
    "text/*",
    "application/*+json",
    "application/*+xml",
    "application/javascript",
    "application/json",
    "application/wasm",
    "application/xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
];

/// The filter.
struct Compress {
    algorithms: Vec<Coding>,
    minimum: u64,
    types: Vec<MediaPattern>,
    levels: Levels,
    memory: usize,
    /// How much of it current bodies have taken.
    taken: Arc<AtomicUsize>,
    content_encoding: FieldName,
    etag: FieldName,
    vary: FieldName,
}

/// The filter's note of an exchange. These bits hold the coding that the client wants most, as its position in
/// `algorithms` counted from 1; later the coding that it gets.
const WANTED: u64 = 0b11;
/// Positions in the note of that coding and of the codings that the client likes less.
const WISHES: [u32; 3] = [0, 4, 6];
/// The request is HEAD.
const HEAD: u64 = 1 << 2;
/// The response body is compressed.
const COMPRESSES: u64 = 1 << 3;

/// A piece that takes longer than this is compressed on a thread of the filter.
const ELSEWHERE: std::time::Duration = std::time::Duration::from_millis(1);

/// After a piece that takes longer than this, other connections of this core get their turn.
const YIELDS: std::time::Duration = std::time::Duration::from_micros(100);

/// The threads that compress long pieces, and how many pieces may wait for one.
static COMPRESSING: Blocking = Blocking::new("weir-compress", 256, 1);

/// One body being compressed.
#[derive(Debug, Default)]
struct Compressing {
    /// `None` while a thread has it.
    encoder: Rc<RefCell<Option<Encoder>>>,
    /// The encoder may hold input that is not in its output yet.
    holds: bool,
    /// Released at the end of the exchange.
    taken: Option<Taken>,
    length: Option<u64>,
}

/// A share of `memory` that one body has taken.
struct Taken {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Taken").field(&self.bytes).finish()
    }
}

impl IntoFilter for CompressSettings {
    type Filter = Compress;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Compress> {
        let before = build.mistakes.len();
        if self.algorithms.is_empty() {
            build.refuse(
                "algorithms",
                "names none; expected some of zstd, br, gzip",
                Some("leave it out for all three".into()),
            );
        }
        for (at, algorithm) in self.algorithms.iter().enumerate() {
            if self.algorithms[..at].contains(algorithm) {
                build.refuse("algorithms", format!("names {} twice", algorithm.name()), None);
            }
        }
        if self.types.is_empty() {
            build.refuse(
                "types",
                "names none, so that nothing is compressed",
                Some("leave the filter out".into()),
            );
        }
        let levels = [
            ("br", self.levels.br, 0, 11),
            ("gzip", self.levels.gzip, 1, 9),
            ("zstd", self.levels.zstd, 1, 19),
        ];
        for (name, level, least, most) in levels {
            if !(least..=most).contains(&level) {
                let expected = format!("{level} is not a level of {name}; expected {least} to {most}");
                build.refuse(&format!("levels.{name}"), expected, Some("6 is a good one".into()));
            }
        }
        for &algorithm in &self.algorithms {
            let needed = memory(algorithm, self.levels.of(algorithm));
            if needed > self.memory.as_usize() {
                let (name, mib) = (algorithm.name(), needed.div_ceil(1 << 20));
                let message =
                    format!("is too small for one body with {name} at this level, which takes {mib} MiB");
                build.refuse("memory", message, Some(format!("write {}MiB or more", mib * 64).into()));
            }
        }
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let taken = build.keep("taken", AtomicUsize::default);
        (build.mistakes.len() == before).then(|| Compress {
            algorithms: self.algorithms,
            minimum: self.minimum.get(),
            types: self.types,
            levels: self.levels,
            memory: self.memory.as_usize(),
            taken,
            content_encoding: name("content-encoding"),
            etag: name("etag"),
            vary: name("vary"),
        })
    }
}

static MEMORY: Figure =
    Figure::gauge("memory", "weir_compress_memory_bytes", "Memory of the encoders under way.").bytes();

impl Filter for Compress {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE | Hooks::RESPONSE_BODY
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let fields = &head.headers;
        let wanted = if no_transform(fields) {
            Vec::new()
        } else {
            coding::ranked(fields.get_all("accept-encoding"), &self.algorithms)
        };
        let places = wanted.iter().filter_map(|wanted| self.algorithms.iter().position(|a| a == wanted));
        let mut note = if head.method() == Method::Head { HEAD } else { 0 };
        for (place, shift) in places.zip(WISHES) {
            note |= (place as u64 + 1) << shift;
        }
        *cx.note() = note;
        WeakTags::remember(head, cx);
        Flow::Continue
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let length = cx.response_length(head);
        if !self.may_compress(head, length) {
            return BodyUse::Pass;
        }
        let note = *cx.note();
        for wish in WISHES.map(|shift| note >> shift & WANTED) {
            let Some(algorithm) = self.algorithm(wish) else { return BodyUse::Pass };
            if let Some(taken) = self.take(memory(algorithm, self.levels.of(algorithm))) {
                *cx.note() = note & !WANTED | wish | COMPRESSES;
                *cx.state() =
                    Compressing { encoder: Rc::default(), holds: false, taken: Some(taken), length };
                return BodyUse::Change;
            }
        }
        BodyUse::Pass
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if head.status() == 304 {
            self.on_not_modified(head, cx);
            return Flow::Continue;
        }
        let length = cx.response_length(head);
        if !self.may_compress(head, length) {
            return Flow::Continue;
        }
        add_vary(&mut head.headers, &self.vary);
        let Some(algorithm) = self.wanted(cx).filter(|_| *cx.note() & (HEAD | COMPRESSES) != 0) else {
            return Flow::Continue;
        };
        let _ = head.headers.insert(&self.content_encoding, algorithm.name().as_bytes()); // ours: a token
        weaken(head, &self.etag);
        head.headers.remove_where(|name, _| OF_THE_BYTES.iter().any(|gone| name.eq_ignore_ascii_case(gone)));
        // RFC 9110 §9.3.2: a response to HEAD may omit fields that only producing the content would determine.
        if *cx.note() & HEAD != 0 {
            head.headers.remove_known(Known::ContentLength);
            cx.drop_length();
        }
        Flow::Continue
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let Some(algorithm) = self.wanted(cx) else { return Ok(()) };
        let state = cx.state::<Compressing>();
        let then = match (piece.is_last(), piece.is_pause()) {
            (true, _) => Then::Finish,
            (_, true) if !state.holds && piece.data().is_empty() => return Ok(()),
            (_, true) => Then::Flush,
            _ => Then::More,
        };
        let failed = |_| Refusal::new(&COMPRESS_FAILED);
        let level = self.levels.of(algorithm);
        let known = state.encoder.take();
        let mut encoder = match known {
            Some(encoder) => encoder,
            None => Encoder::new(algorithm, level, state.length).map_err(failed)?,
        };
        state.holds = then == Then::More && (state.holds || !piece.data().is_empty());
        let takes = time(algorithm, level, piece.data().len());
        if takes > ELSEWHERE {
            match elsewhere(encoder, piece.data(), then, Rc::clone(&state.encoder)) {
                Ok(work) => {
                    piece.replace_later(work);
                    return Ok(());
                }
                Err(given_back) => encoder = given_back, // every thread is busy, so it would be no faster there
            }
        }
        let out = encoder.encode(piece.data(), then).map_err(failed)?;
        match then {
            Then::Finish => {
                encoder.retire();
                state.taken = None;
            }
            Then::Flush | Then::More => *state.encoder.borrow_mut() = Some(encoder),
        }
        if takes > YIELDS {
            piece.replace_later(async move {
                weir_wire::yield_now().await; // lets other tasks of this core run
                Ok(out)
            });
        } else {
            piece.replace(out);
        }
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        let taken = self.taken.load(Ordering::Relaxed);
        vec![Reading::one(&MEMORY, taken as u64)]
    }
}

impl Compress {
    /// The coding that the client wants most, or the one that it gets.
    fn wanted(&self, cx: &mut Cx) -> Option<Coding> {
        self.algorithm(*cx.note() & WANTED)
    }

    /// The coding at a position in `algorithms`, counted from 1.
    fn algorithm(&self, place: u64) -> Option<Coding> {
        self.algorithms.get(usize::try_from(place).ok()?.checked_sub(1)?).copied()
    }

    /// Whether this response is compressed for clients that accept it.
    fn may_compress(&self, head: &ResponseHead, length: Option<u64>) -> bool {
        let fields = &head.headers;
        if matches!(head.status(), 0..=199 | 204..=206 | 304)
            || length.is_some_and(|length| length < self.minimum)
        {
            return false;
        }
        let Some(media) = fields.get_str("content-type") else { return false };
        self.types.iter().any(|pattern| pattern.matches(media))
            && !fields.is_media("application/grpc")
            && fields.get_all("content-encoding").all(|coding| coding.eq_ignore_ascii_case(b"identity"))
            && fields.get_str("content-range").is_none()
            && !no_transform(fields)
    }

    /// A client that holds our compressed copy identifies it by the weak tag that we gave it.
    fn on_not_modified(&self, head: &mut ResponseHead, cx: &mut Cx) {
        // RFC 9110 §15.4.5: a 304 has the fields that its 200 would have. It names no type, so this may be a response
        // that is never compressed.
        add_vary(&mut head.headers, &self.vary);
        WeakTags::answer(head, &self.etag, cx);
    }

    /// Reserves memory for one more body.
    fn take(&self, bytes: usize) -> Option<Taken> {
        let taken = Taken { bytes, of: Arc::clone(&self.taken) };
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= self.memory).then_some(taken)
    }
}

/// Compresses a piece on a thread of the filter. The encoder comes back with the piece, or immediately if all threads
/// are busy and the queue is full.
fn elsewhere(
    encoder: Encoder,
    data: &[u8],
    then: Then,
    back: Rc<RefCell<Option<Encoder>>>,
) -> Result<impl Future<Output = Result<Vec<u8>, &'static Cause>> + 'static, Encoder> {
    let lent = Arc::new(Mutex::new(Some((encoder, data.to_vec()))));
    let (done, result) = oneshot::channel();
    let job = {
        let lent = Arc::clone(&lent);
        move || {
            let Some((mut encoder, data)) = lent.lock().unwrap_or_else(PoisonError::into_inner).take() else {
                return;
            };
            let made = encoder.encode(&data, then);
            let _ = done.send((encoder, made)); // the client may have left
        }
    };
    if !COMPRESSING.run(Box::new(job))
        && let Some((encoder, _)) = lent.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        return Err(encoder);
    }
    Ok(async move {
        let (encoder, made) = result.await.map_err(|_| &COMPRESS_FAILED)?;
        let made = made.map_err(|_| &COMPRESS_FAILED)?;
        match then {
            Then::Finish => encoder.retire(), // here and not there, since bodies begin on this thread
            Then::Flush | Then::More => *back.borrow_mut() = Some(encoder),
        }
        Ok(made)
    })
}

/// Adds `Vary: accept-encoding`.
fn add_vary(fields: &mut Fields, vary: &FieldName) {
    let named = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    let said = fields
        .get_all("vary")
        .flat_map(|value| value.split(|&b| b == b','))
        .any(|name| named(name.trim_ascii()));
    if !said {
        let _ = fields.append(vary, b"accept-encoding"); // ours
    }
}

#[cfg(test)]
mod tests;
