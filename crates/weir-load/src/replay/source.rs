//! The bytes of a recording: a file or stdin, decompressed if they are gzip.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Result, Seek, Stdin};
use std::path::Path;
use weir_traffic::{Form, PEEK_BYTES};

/// Size of one read.
const READ_BYTES: usize = 256 << 10;

/// The first bytes of gzip (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

#[derive(Debug)]
pub(super) struct Source {
    from: From,
    /// The first bytes, decompressed.
    first: Vec<u8>,
}

enum From {
    File(File),
    /// What is left of stdin behind `first`; none once it was read.
    Stdin(Option<Box<dyn Read + Send>>),
}

impl std::fmt::Debug for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::File(_)) { "File" } else { "Stdin" })
    }
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::piped(decompressed(std::io::stdin())?);
        }
        let mut file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        // A named pipe is read once, as stdin.
        if file.rewind().is_err() {
            return Self::piped(decompressed(file)?);
        }
        let mut first = Vec::new();
        decompressed(file.try_clone()?)?.take(PEEK_BYTES as u64).read_to_end(&mut first)?;
        Ok(Self { from: From::File(file), first })
    }

    /// Reads only as far as the form is known: more may come much later.
    fn piped(mut rest: Box<dyn Read + Send>) -> Result<Self> {
        let mut first = Vec::new();
        while first.len() < PEEK_BYTES && !(first.contains(&b'\n') && Form::of(&first).is_some()) {
            let mut some = [0; 4096];
            match rest.read(&mut some)? {
                0 => break,
                n => first.extend_from_slice(&some[..n]),
            }
        }
        Ok(Self { from: From::Stdin(Some(rest)), first })
    }

    /// Whether it can be read more than once.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.from, From::File(_))
    }

    /// Its first [`PEEK_BYTES`].
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// All bytes, from the start.
    pub(super) fn again(&mut self) -> Result<BufReader<Box<dyn Read + Send>>> {
        let all = match &mut self.from {
            From::File(file) => {
                file.rewind()?;
                decompressed(file.try_clone()?)?
            }
            From::Stdin(rest) => {
                let rest = rest.take().ok_or(std::io::ErrorKind::UnexpectedEof)?;
                Box::new(Cursor::new(std::mem::take(&mut self.first)).chain(rest))
            }
        };
        Ok(BufReader::with_capacity(READ_BYTES, all))
    }
}

/// A source that may be gzip.
trait Bytes: Read + Send + 'static {}
impl Bytes for File {}
impl Bytes for Stdin {}

fn decompressed(mut source: impl Bytes) -> Result<Box<dyn Read + Send>> {
    let mut begin = Vec::new();
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut begin)?;
    let is_gzip = begin == GZIP;
    let whole = Cursor::new(begin).chain(source);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, whole)))
    } else {
        Box::new(whole)
    })
}
