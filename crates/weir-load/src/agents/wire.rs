//! A connection between coordinator and agent: TCP, TLS in which both show a certificate, an HTTP/1.1 upgrade that may
//! be refused with a status, then frames.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weir_agents::clean;
use weir_agents::frame::{self, HEAD_BYTES, Kind, PIECE_BYTES};
use weir_agents::message::{FILES_BYTES, FILES_MOST, File};

/// The name of the protocol after the upgrade.
pub(super) const PROTOCOL: &str = "weir-agent/1";

/// Longest head of the upgrade, either way.
const HEAD_MOST: usize = 8 * 1024;

/// How long connecting, handshake and upgrade may take.
pub(super) const CONNECTING: Duration = Duration::from_secs(8);

/// Longest text of a refusal that is shown.
const TEXT_MOST: usize = 500;

/// Frames that may wait to be written: more means that the other side does not read. Files of a run are one each.
pub(super) const WAITING_MOST: usize = FILES_MOST + 256;

/// What is written to a connection.
#[derive(Debug)]
pub(super) enum Out {
    /// A whole frame.
    Frame(Vec<u8>),
    /// A file, in pieces.
    File(Arc<[u8]>),
    /// The end.
    Close,
}

/// The head of an upgrade.
pub(super) struct Asked {
    /// The first line.
    pub(super) line: String,
    fields: Vec<(String, String)>,
}

impl Asked {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a head, byte by byte: what follows belongs to frames.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() >= HEAD_MOST {
            return Err(io::Error::other("its head is longer than 8 KiB"));
        }
        bytes.push(stream.read_u8().await?);
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("its head is not text"))?;
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Ok(Asked { line, fields: lines.filter_map(field).collect() })
}

/// Writes the request for an upgrade and reads the answer.
///
/// # Errors
/// The connection ends, or the agent refuses: the text says why.
pub(super) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    token: Option<&str>,
) -> io::Result<()> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "GET /run HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n{token}\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let answer = read_head(stream).await?;
    let status = answer.line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or_default();
    if status == "101" && answer.field("upgrade") == Some(PROTOCOL) {
        return Ok(());
    }
    let length = answer.field("content-length").and_then(|n| n.parse().ok()).unwrap_or(0).min(TEXT_MOST);
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    let text = clean::line(&String::from_utf8_lossy(&text));
    Err(io::Error::other(match status.parse::<u16>() {
        Ok(status) => format!("{status}: {}", text.trim()),
        Err(_) => "the server there is not a weir agent".to_owned(),
    }))
}

/// Answers a request for an upgrade with 101.
pub(super) async fn accept(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await
}

/// Refuses a request.
pub(super) async fn refuse(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    text: &str,
) -> io::Result<()> {
    let length = text.len() + 1;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    stream.shutdown().await
}

/// Reads a frame of at most `most` bytes.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let (kind, length) = frame::head(head, most).map_err(io::Error::other)?;
    // Memory grows with what arrives, not with what is announced.
    let mut bytes = Vec::new();
    (&mut *stream).take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((kind, bytes)) }
}

/// Writes what comes, until it is told to close or nobody can tell it any more. Calls `sent` after each piece of a
/// file.
pub(super) async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    out: &mut tokio::sync::mpsc::Receiver<Out>,
    sent: impl Fn(),
) -> io::Result<()> {
    while let Some(next) = out.recv().await {
        match next {
            Out::Frame(frame) => stream.write_all(&frame).await?,
            Out::File(file) => {
                for piece in file.chunks(PIECE_BYTES) {
                    stream.write_all(&frame::piece(piece)).await?;
                    stream.flush().await?;
                    sent();
                }
            }
            Out::Close => break,
        }
        stream.flush().await?;
    }
    stream.shutdown().await
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files of an offer while they arrive.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    wanted: Vec<File>,
    at: usize,
    current: Vec<u8>,
    /// Of `current`: hashed as it comes, so that a long file holds nothing up at its end.
    hash: Sha256,
    files: BTreeMap<String, Vec<u8>>,
}

impl Arriving {
    /// Expects the files of an offer.
    ///
    /// # Errors
    /// They are more, or longer, than an agent takes.
    pub(super) fn new(wanted: &[File]) -> Result<Self, String> {
        let bytes = wanted.iter().fold(0u64, |all, file| all.saturating_add(file.bytes));
        if wanted.len() > FILES_MOST || bytes > FILES_BYTES {
            return Err(format!("more than {FILES_MOST} files, or than 1 GiB of them"));
        }
        Ok(Self { wanted: wanted.to_vec(), ..Self::default() })
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// It is too long, or a whole file does not have its digest.
    pub(super) fn piece(&mut self, piece: &[u8]) -> Result<(), String> {
        self.skip_empty()?;
        let Some(file) = self.wanted.get(self.at) else { return Err("more files than offered".to_owned()) };
        self.current.extend_from_slice(piece);
        self.hash.update(piece);
        let length = self.current.len() as u64;
        if length > file.bytes {
            return Err("a file is longer than offered".to_owned());
        }
        if length == file.bytes {
            self.complete()?;
        }
        Ok(())
    }

    fn skip_empty(&mut self) -> Result<(), String> {
        while self.wanted.get(self.at).is_some_and(|file| file.bytes == 0) {
            self.complete()?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), String> {
        let Some(file) = self.wanted.get(self.at) else { return Ok(()) };
        let content = std::mem::take(&mut self.current);
        if hex(&std::mem::take(&mut self.hash).finalize()) != file.digest {
            return Err("a file does not have the digest that was offered".to_owned());
        }
        self.files.insert(file.digest.clone(), content);
        self.at += 1;
        Ok(())
    }

    /// All files by their digests, once they are there.
    ///
    /// # Errors
    /// An empty file does not have its digest.
    pub(super) fn take(&mut self) -> Result<Option<BTreeMap<String, Vec<u8>>>, String> {
        self.skip_empty()?;
        Ok((self.at == self.wanted.len()).then(|| std::mem::take(&mut self.files)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> File {
        File { digest: hex(&Sha256::digest(content)), bytes: content.len() as u64 }
    }

    #[test]
    fn files_arrive_in_pieces_and_by_their_digests() {
        let wanted = [file(b""), file(b"abcdef"), file(b"x"), file(b"")];
        let mut arriving = Arriving::new(&wanted).unwrap();
        assert_eq!(arriving.take(), Ok(None));
        for piece in [&b"abc"[..], b"def", b"x"] {
            arriving.piece(piece).unwrap();
        }
        let files = arriving.take().unwrap().unwrap();
        assert_eq!(files[&wanted[1].digest], b"abcdef");
        assert_eq!(files.len(), 3);
        let refused = |pieces: &[&[u8]]| {
            let mut arriving = Arriving::new(&wanted[1..2]).unwrap();
            pieces.iter().find_map(|piece| arriving.piece(piece).err()).unwrap_or_default()
        };
        assert!(refused(&[b"abcdeX"]).contains("digest"));
        assert!(refused(&[b"abcdefg"]).contains("longer"));
        assert!(refused(&[b"abcdef", b"y"]).contains("more files"));
        assert!(Arriving::new(&[File { bytes: FILES_BYTES + 1, ..File::default() }]).is_err());
        assert!(Arriving::new(&[file(b""), File { bytes: u64::MAX, ..File::default() }]).is_err());
    }
}
