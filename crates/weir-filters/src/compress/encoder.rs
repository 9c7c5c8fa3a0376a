//! Gzip, brotli and Zstandard behind one interface: bytes in, bytes out, with flushes between. Also what each costs.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderDestroyInstance, BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;
use weir_filter::coding::Coding;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// Largest window of brotli and Zstandard, as a power of two: 256 KiB. A client needs as much memory to read them,
/// and we need several times as much to write. RFC 9659 allows 8 MiB.
const WINDOW: u32 = 18;

/// Smallest window, for bodies whose length is known and small.
const SMALL_WINDOW: u32 = 14;

/// Initial size of the output buffer, in bytes, and the amount added whenever it is full.
const ROOM: usize = 8 * 1024;

/// Room for gzip's output, in bytes. The library holds back at most 64 KiB and gets at most a [`BLOCK`] at once. If the
/// output buffer fills up, it forgets a match that it has already found, so its output would depend on the room.
const GZIP_ROOM: usize = 96 * 1024;

/// Most memory of the idle Zstandard contexts of a thread, in bytes: three of level 6.
const IDLE_BYTES: usize = 8 * 1024 * 1024;

thread_local! {
    /// Idle Zstandard contexts, each with its level, the least recently used first.
    static IDLE: RefCell<Vec<(u8, CCtx<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// What comes after the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The end of the body.
    Finish,
    /// A pause: a client that has read the output so far can decode all input so far.
    Flush,
    /// More bytes.
    More,
}

/// How many bytes an encoder gets at once, unless the body ends or pauses.
///
/// An encoder's output depends on how its input is cut: gzip searches for matches only in the input that it has, and
/// the others choose parameters by the first piece. How a body arrives depends on load. With blocks of this length, the
/// same body always compresses to the same bytes.
const BLOCK: usize = 16 * 1024;

/// The encoder of one body.
pub(super) struct Encoder {
    by: Algorithm,
    level: u8,
    /// The beginning of a block that has not arrived whole.
    begun: Vec<u8>,
}

enum Algorithm {
    Br(Box<Brotli>),
    Gzip(Box<Compress>),
    Zstd(CCtx<'static>),
}

/// The library failed. None of them gives a reason, and none fails in a working process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

impl Encoder {
    /// Begins a body, with its length if it is known.
    pub(super) fn new(algorithm: Coding, level: u8, length: Option<u64>) -> Result<Self, Failed> {
        let window = window(length);
        let by = match algorithm {
            Coding::Br => Algorithm::Br(Box::new(Brotli::new(level, window))),
            Coding::Gzip => Algorithm::Gzip(Box::new(Compress::new_gzip(Compression::new(level.into()), 15))),
            Coding::Zstd => Algorithm::Zstd(zstd_context(level, window)?),
        };
        Ok(Self { by, level, begun: Vec::new() })
    }

    /// Drops an encoder whose body is complete, but lets this thread reuse its Zstandard context.
    pub(super) fn retire(self) {
        if let Algorithm::Zstd(context) = self.by {
            keep(self.level, context);
        }
    }

    /// Compresses bytes and returns the output.
    pub(super) fn encode(&mut self, data: &[u8], then: Then) -> Result<Vec<u8>, Failed> {
        // Text shrinks to about a sixth.
        let mut out = Vec::with_capacity(data.len() / 4 + ROOM / 8);
        self.encode_blocks(data, then, &mut out)?;
        if out.capacity() - out.len() >= GZIP_ROOM / 2 {
            out.shrink_to_fit(); // a slow client may keep it waiting
        }
        Ok(out)
    }

    fn encode_blocks(&mut self, data: &[u8], then: Then, out: &mut Vec<u8>) -> Result<(), Failed> {
        let mut rest = data;
        if !self.begun.is_empty() {
            let missing = (BLOCK - self.begun.len()).min(rest.len());
            let (first, behind) = rest.split_at(missing);
            self.begun.extend_from_slice(first);
            rest = behind;
            if self.begun.len() == BLOCK {
                self.by.encode(&self.begun, Then::More, out)?;
                self.begun.clear();
            }
        }
        let blocks = rest.chunks_exact(BLOCK);
        let last = blocks.remainder();
        for block in blocks {
            self.by.encode(block, Then::More, out)?;
        }
        if then == Then::More {
            self.begun.extend_from_slice(last);
            return Ok(());
        }
        let begun = std::mem::take(&mut self.begun);
        self.by.encode(if begun.is_empty() { last } else { &begun }, then, out)
    }
}

impl Algorithm {
    fn encode(&mut self, data: &[u8], then: Then, out: &mut Vec<u8>) -> Result<(), Failed> {
        match self {
            Self::Br(brotli) => brotli.encode(data, then, out),
            Self::Gzip(gzip) => encode_gzip(gzip, data, then, out),
            Self::Zstd(zstd) => encode_zstd(zstd, data, then, out),
        }
    }
}

/// The window for a body of this length, as a power of two.
fn window(length: Option<u64>) -> u32 {
    let power = length.and_then(u64::checked_next_power_of_two);
    power.map_or(WINDOW, u64::trailing_zeros).clamp(SMALL_WINDOW, WINDOW)
}

/// Most memory that one body takes, in bytes, measured with bodies of several megabytes.
pub(super) fn memory(algorithm: Coding, level: u8) -> usize {
    let kib = match (algorithm, level) {
        (Coding::Gzip, _) => 384,
        (Coding::Br, 0..=1) => 768,
        (Coding::Br, 2..=3) => 1_152,
        (Coding::Br, 4) => 2_688,
        (Coding::Br, 5..=6) => 6_144,
        (Coding::Br, 7) => 12_544,
        (Coding::Br, 8) => 20_992,
        (Coding::Br, 9) => 39_936,
        (Coding::Br, _) => 24_576,
        (Coding::Zstd, 0..=3) => 2_048,
        (Coding::Zstd, 4) => 3_840,
        (Coding::Zstd, 5..=12) => 2_560,
        (Coding::Zstd, 13..=15) => 67_584,
        (Coding::Zstd, _) => 86_016,
    };
    kib * 1024
}

/// Approximate time to compress this many bytes, measured with text on one virtual machine and rounded up.
pub(super) fn time(algorithm: Coding, level: u8, bytes: usize) -> Duration {
    let nanoseconds_a_byte = match (algorithm, level) {
        (Coding::Gzip, 0..=3) => 8,
        (Coding::Gzip, 4..=6) => 20,
        (Coding::Gzip, _) => 50,
        (Coding::Br, 0..=1) => 8,
        (Coding::Br, 2..=4) => 30,
        (Coding::Br, 5..=6) => 40,
        (Coding::Br, 7..=9) => 120,
        (Coding::Br, 10) => 900,
        (Coding::Br, _) => 2_000,
        (Coding::Zstd, 0..=3) => 4,
        (Coding::Zstd, 4..=6) => 15,
        (Coding::Zstd, 7..=9) => 30,
        (Coding::Zstd, 10..=15) => 150,
        (Coding::Zstd, _) => 500,
    };
    Duration::from_nanos((bytes as u64).saturating_mul(nanoseconds_a_byte))
}

// === gzip ===

fn encode_gzip(gzip: &mut Compress, data: &[u8], then: Then, out: &mut Vec<u8>) -> Result<(), Failed> {
    let flush = match then {
        Then::Finish => FlushCompress::Finish,
        Then::Flush => FlushCompress::Sync,
        Then::More => FlushCompress::None,
    };
    let mut rest = data;
    while then != Then::More || !rest.is_empty() {
        out.reserve(GZIP_ROOM);
        let before = gzip.total_in();
        let status = gzip.compress_vec(rest, out, flush).map_err(|_| Failed)?;
        let taken = usize::try_from(gzip.total_in() - before).map_err(|_| Failed)?;
        rest = rest.get(taken..).unwrap_or_default();
        let over = match then {
            Then::Finish => status == Status::StreamEnd,
            // All output is out if the buffer had room to spare.
            Then::Flush | Then::More => rest.is_empty() && out.len() < out.capacity(),
        };
        if over {
            break;
        }
    }
    Ok(())
}

// === zstd ===

/// Returns a context for a body: one that this thread has used before, or a new one. Tables of a new one have to be
/// allocated and cleared, 1.3 MiB at level 6. Both give the same output.
fn zstd_context(level: u8, window: u32) -> Result<CCtx<'static>, Failed> {
    let used = IDLE.with_borrow_mut(|idle| {
        let at = idle.iter().rposition(|&(of, _)| of == level)?;
        Some(idle.remove(at).1)
    });
    let mut context = match used {
        Some(used) => used,
        None => {
            let mut new = CCtx::try_create().ok_or(Failed)?;
            new.set_parameter(CParameter::CompressionLevel(level.into())).map_err(|_| Failed)?;
            new
        }
    };
    context.set_parameter(CParameter::WindowLog(window)).map_err(|_| Failed)?;
    // Tables with an entry for each byte of the window. The library's are for windows of 2 to 4 MiB: 2 MiB at level
    // 6, 8 MiB at level 9. With ours, more stays in the processor's cache: at level 6, 16 bodies at once take 2 to
    // 23 % less time and become at most 0.3 % longer.
    if (5..=12).contains(&level) {
        context.set_parameter(CParameter::HashLog(window)).map_err(|_| Failed)?;
        // At the smallest window, the library uses hash chains, and bounds their table only if the length is declared:
        // 4 MiB at level 9, 16 MiB at level 12. One bit more than the window, for binary trees.
        context.set_parameter(CParameter::ChainLog(window + 1)).map_err(|_| Failed)?;
    }
    Ok(context)
}

/// Keeps a context for this thread's next body of the same level. If the contexts take more than [`IDLE_BYTES`], drops
/// those that were used least recently.
fn keep(level: u8, mut context: CCtx<'static>) {
    if memory(Coding::Zstd, level) > IDLE_BYTES || context.reset(ResetDirective::SessionOnly).is_err() {
        return;
    }
    IDLE.with_borrow_mut(|idle| {
        idle.push((level, context));
        while idle.iter().map(|(level, _)| memory(Coding::Zstd, *level)).sum::<usize>() > IDLE_BYTES {
            idle.remove(0);
        }
    });
}

/// The levels of the contexts that this thread keeps, the last one used last.
#[cfg(test)]
pub(super) fn idle() -> Vec<u8> {
    IDLE.with_borrow(|idle| idle.iter().map(|&(level, _)| level).collect())
}

fn encode_zstd(zstd: &mut CCtx<'static>, data: &[u8], then: Then, out: &mut Vec<u8>) -> Result<(), Failed> {
    let end = match then {
        Then::Finish => ZSTD_EndDirective::ZSTD_e_end,
        Then::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        Then::More => ZSTD_EndDirective::ZSTD_e_continue,
    };
    let mut input = InBuffer::around(data);
    loop {
        if out.len() == out.capacity() {
            out.reserve(ROOM);
        }
        let at = out.len();
        let mut output = OutBuffer::around_pos(out, at);
        let left = zstd.compress_stream2(&mut output, &mut input, end).map_err(|_| Failed)?;
        let over = match then {
            Then::Finish | Then::Flush => left == 0,
            Then::More => input.pos() == data.len(),
        };
        if over {
            return Ok(());
        }
    }
}

// === brotli ===

/// A brotli stream. The library does not free its memory on drop.
pub(super) struct Brotli(BrotliEncoderStateStruct<StandardAlloc>);

impl Brotli {
    fn new(level: u8, window: u32) -> Self {
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level.into());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window);
        Self(state)
    }

    fn encode(&mut self, data: &[u8], then: Then, out: &mut Vec<u8>) -> Result<(), Failed> {
        let operation = match then {
            Then::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
            Then::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Then::More => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        };
        let (mut left, mut taken) = (data.len(), 0);
        loop {
            let begin = out.len();
            out.resize(out.capacity().max(begin + ROOM / 8), 0);
            let room = out.get_mut(begin..).unwrap_or_default();
            let (mut free, mut written) = (room.len(), 0);
            let went = self.0.compress_stream(
                operation,
                &mut left,
                data,
                &mut taken,
                &mut free,
                room,
                &mut written,
                &mut None,
                &mut |_, _, _, _| (),
            );
            out.truncate(begin + written);
            if !went {
                return Err(Failed);
            }
            let over = match then {
                Then::Finish => self.0.is_finished(),
                Then::Flush | Then::More => left == 0 && !self.0.has_more_output(),
            };
            if over {
                return Ok(());
            }
        }
    }
}

impl Drop for Brotli {
    fn drop(&mut self) {
        BrotliEncoderDestroyInstance(&mut self.0);
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            Algorithm::Br(_) => "Br",
            Algorithm::Gzip(_) => "Gzip",
            Algorithm::Zstd(_) => "Zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::tests::decode;

    const ALL: [Coding; 3] = [Coding::Br, Coding::Gzip, Coding::Zstd];

    /// Text that repeats itself only at a distance, and noise.
    fn bodies() -> Vec<Vec<u8>> {
        let mut state = 7_u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let text: String =
            (0..6000).map(|_| format!(".c-{} {{ margin: {}px }}\n", next() % 900, next() % 32)).collect();
        let noise = (0..200_000).map(|_| next().to_le_bytes()[0]).collect();
        vec![Vec::new(), b"a".to_vec(), text.into_bytes(), noise]
    }

    #[test]
    fn what_comes_out_is_what_went_in() {
        for body in bodies() {
            for algorithm in ALL {
                for (level, length, piece) in
                    [(1, None, 1_000), (6, Some(body.len() as u64), 65_536), (6, None, 7_777)]
                {
                    let mut encoder = Encoder::new(algorithm, level, length).unwrap();
                    let mut out = Vec::new();
                    for piece in body.chunks(piece) {
                        out.extend(encoder.encode(piece, Then::More).unwrap());
                    }
                    out.extend(encoder.encode(b"", Then::Finish).unwrap());
                    assert!(decode(algorithm, &out) == body, "{algorithm:?} {level} {piece}");
                }
            }
        }
    }

    #[test]
    fn a_body_becomes_the_same_bytes_in_whatever_pieces_it_arrives() {
        for (body, level) in bodies().iter().flat_map(|body| [1, 2, 4, 6, 9].map(|level| (body, level))) {
            for algorithm in ALL {
                let encoded = |piece: usize, with_last: bool| {
                    let mut encoder = Encoder::new(algorithm, level, None).unwrap();
                    let mut out = Vec::new();
                    let mut pieces = body.chunks(piece).peekable();
                    while let Some(piece) = pieces.next() {
                        let is_last = with_last && pieces.peek().is_none();
                        let then = if is_last { Then::Finish } else { Then::More };
                        out.extend(encoder.encode(piece, then).unwrap());
                    }
                    if !with_last || body.is_empty() {
                        out.extend(encoder.encode(b"", Then::Finish).unwrap());
                    }
                    out
                };
                let all = body.len().max(1);
                let whole = encoded(all, true);
                assert!(decode(algorithm, &whole) == *body, "{algorithm:?} {level}");
                for (piece, with_last) in
                    [(all, false), (1_000, true), (7_777, false), (BLOCK, true), (65_536, false)]
                {
                    assert!(encoded(piece, with_last) == whole, "{algorithm:?} {level} {piece}");
                }
            }
        }
    }

    #[test]
    fn a_reused_context_gives_the_same_bytes() {
        let encoded = |body: &[u8], level: u8, length: Option<u64>, reuse: bool| {
            let mut encoder = Encoder::new(Coding::Zstd, level, length).unwrap();
            let mut out = Vec::new();
            for piece in body.chunks(50_000) {
                out.extend(encoder.encode(piece, Then::More).unwrap());
            }
            out.extend(encoder.encode(b"", Then::Finish).unwrap());
            if reuse {
                encoder.retire();
            }
            out
        };
        IDLE.take();
        let mut bodies = bodies();
        let (text, noise) = (bodies[2].clone(), bodies[3].clone());
        bodies.extend([text[..20_000].to_vec(), text[7..90_000].to_vec(), [noise, text.repeat(2)].concat()]);
        for level in [1, 3, 4, 6, 9] {
            // Lengths choose the window, and a context meets each with the tables of the others.
            let expected: Vec<_> = bodies
                .iter()
                .flat_map(|body| [None, Some(body.len() as u64)].map(|length| (body, length)))
                .map(|(body, length)| (body, length, encoded(body, level, length, false)))
                .collect();
            assert!(!idle().contains(&level));
            for (body, length, expected) in expected.iter().chain(expected.iter().rev()) {
                assert!(encoded(body, level, *length, true) == *expected, "{level} {}", body.len());
                assert_eq!(idle().iter().filter(|&&of| of == level).count(), 1, "{level}");
            }
        }
    }

    #[test]
    fn few_contexts_are_kept() {
        IDLE.take();
        let retire = |levels: &[u8]| {
            let encoders = levels.iter().map(|&level| Encoder::new(Coding::Zstd, level, None).unwrap());
            encoders.collect::<Vec<_>>().into_iter().for_each(Encoder::retire);
        };
        retire(&[1, 6, 6, 6]);
        assert_eq!(idle(), [6, 6, 6], "those used last");
        retire(&[3]);
        assert_eq!(idle(), [6, 6, 3]);
        retire(&[6]);
        assert_eq!(idle(), [6, 3, 6], "one of level 6 was used again");
        retire(&[13, 19]);
        assert_eq!(idle(), [6, 3, 6], "larger ones are not kept");
    }

    #[test]
    fn what_was_flushed_can_be_read() {
        for algorithm in ALL {
            let mut encoder = Encoder::new(algorithm, 6, None).unwrap();
            let mut out = Vec::new();
            let mut expected = Vec::new();
            for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
                out.extend(encoder.encode(event.as_bytes(), Then::More).unwrap());
                out.extend(encoder.encode(b"", Then::Flush).unwrap());
                expected.extend_from_slice(event.as_bytes());
                assert_eq!(decode(algorithm, &out), expected, "{algorithm:?}");
            }
        }
    }

    #[test]
    fn it_fits_the_memory_it_is_given() {
        let levels = [1, 3, 4, 5, 6, 9, 12];
        // The length chooses the window, and the library chooses its match finder by that.
        let lengths = [None, Some(1 << 14), Some(1 << 15), Some(1 << 17)];
        for (level, length) in levels.into_iter().flat_map(|level| lengths.map(|length| (level, length))) {
            let encoder = Encoder::new(Coding::Zstd, level, length).unwrap();
            let Algorithm::Zstd(mut zstd) = encoder.by else { panic!() };
            encode_zstd(&mut zstd, &[b'a'; 1 << 20], Then::More, &mut Vec::new()).unwrap();
            assert!(zstd.sizeof() <= memory(Coding::Zstd, level), "{level} {length:?}: {}", zstd.sizeof());
        }
    }

    #[test]
    fn the_window_follows_the_length() {
        for (length, expected) in
            [(None, 18), (Some(0), 14), (Some(1 << 16), 16), (Some((1 << 16) + 1), 17), (Some(u64::MAX), 18)]
        {
            assert_eq!(window(length), expected, "{length:?}");
        }
    }
}
