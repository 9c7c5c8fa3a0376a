//! Serves the HTTP/1.1 pages over HTTP/2: a page writes to memory instead of a socket, and this module parses its
//! output.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt, DuplexStream};

use crate::connection::{Connection, Request as Page, Sink, Version};
use crate::fixed::Fixed;
use crate::request::chunk_size;
use crate::site::Site;
use crate::stream::Stream;
use crate::{fixed, pages, window};

/// How far a page may write ahead of the client.
const AHEAD: usize = 64 * 1024;

/// Least bytes per read, if there are that many: clients count small frames against us.
const PIECE: usize = 16 * 1024;

/// The measured path and its response: the same bytes as over HTTP/1.1.
const MEASURED: &str = "/body/1KiB";

/// Reads the body of the request, then responds.
pub(super) async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    site: Arc<Site>,
) -> Result<(), h2::Error> {
    if site.fixed().is_none()
        && request.method() == http::Method::GET
        && request.uri().path() == MEASURED
        && request.body().is_end_stream()
    {
        return whole(&mut respond, Bytes::from_static(fixed::body_1kib()));
    }
    let page = read(request).await?;
    if let Some(fixed) = site.fixed().filter(|_| page.method != "HEAD") {
        return whole(&mut respond, fixed.body().clone());
    }
    let is_head = page.method == "HEAD";
    let (ours, theirs) = tokio::io::duplex(AHEAD);
    let mut connection = Connection::new(Stream::Memory(theirs), site);
    let write = async move {
        match connection.site().fixed().map(Fixed::length) {
            Some(length) => pages::body(&mut connection, &page, length).await?,
            None => pages::answer(&mut connection, &page).await?,
        }
        connection.flush().await
    };
    // Dropped when it ends, so that a page stops writing to a client that has gone.
    let pass = async {
        let mut passing = Passing { from: ours, bytes: BytesMut::new(), is_head };
        passing.pass(&mut respond).await
    };
    match tokio::join!(pass, write) {
        (Ok(mut stream), Ok(())) => stream.send_data(Bytes::new(), true)?,
        (Err(Gone::Client), _) => {}
        // A response that is cut, or is not HTTP, on purpose. A reset discards unsent data, so let the connection
        // send first.
        (Ok(_), Err(_)) | (Err(Gone::Page), _) => {
            tokio::task::yield_now().await;
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
    Ok(())
}

/// Sends a complete response; its body goes to the client without a copy.
fn whole(respond: &mut SendResponse<Bytes>, body: Bytes) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    let fields = response.headers_mut();
    fields.insert("content-type", HeaderValue::from_static(fixed::TEXT));
    fields.insert("content-length", body.len().into());
    respond.send_response(response, false)?.send_data(body, true)
}

/// Converts the request to the form that pages use.
async fn read(request: Request<RecvStream>) -> Result<Page, h2::Error> {
    let (head, mut body) = request.into_parts();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let authority = head.uri.authority().map(|a| (":authority".to_owned(), a.to_string()));
    let fields = head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    let headers = authority.into_iter().chain(fields).collect();
    let target = head.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let mut sink = Sink::default();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        sink.take(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(Page {
        method: head.method.to_string(),
        target,
        version: Version::Http2,
        headers,
        keep_alive: true,
        body: sink.into(),
    })
}

/// Why a response was not passed on to its end.
enum Gone {
    Client,
    /// The page wrote something other than a response.
    Page,
}

impl From<h2::Error> for Gone {
    fn from(_: h2::Error) -> Self {
        Self::Client
    }
}

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self::Page
    }
}

/// A response in progress.
struct Passing {
    from: DuplexStream,
    bytes: BytesMut,
    /// Whether nothing follows the head, whatever the head says about a body.
    is_head: bool,
}

impl Passing {
    /// Passes on everything except the end of the stream, which depends on how the page ended.
    async fn pass(&mut self, respond: &mut SendResponse<Bytes>) -> Result<SendStream<Bytes>, Gone> {
        let end = loop {
            match memchr::memmem::find(&self.bytes, b"\r\n\r\n") {
                Some(at) => break at,
                None => self.more().await?,
            }
        };
        let head = self.bytes.split_to(end + 4);
        let (response, is_chunked) = parse(&head).ok_or(Gone::Page)?;
        let mut stream = respond.send_response(response, false)?;
        if is_chunked && !self.is_head {
            self.chunks(&mut stream).await?;
        } else {
            loop {
                window::send(&mut stream, self.bytes.split().freeze()).await?;
                if self.read().await? == 0 {
                    break;
                }
            }
        }
        Ok(stream)
    }

    async fn chunks(&mut self, stream: &mut SendStream<Bytes>) -> Result<(), Gone> {
        loop {
            let Some((size, line)) = chunk_size(&self.bytes).map_err(|_| Gone::Page)? else {
                self.more().await?;
                continue;
            };
            self.bytes.advance(line);
            let size = usize::try_from(size).map_err(|_| Gone::Page)?;
            if size == 0 {
                return Ok(());
            }
            while self.bytes.len() < size + 2 {
                self.more().await?;
            }
            let data = self.bytes.split_to(size).freeze();
            self.bytes.advance(2); // its line end
            window::send(stream, data).await?;
        }
    }

    async fn more(&mut self) -> Result<(), Gone> {
        match self.read().await? {
            0 => Err(Gone::Page),
            _ => Ok(()),
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.bytes.reserve(PIECE);
        self.from.read_buf(&mut self.bytes).await
    }
}

/// Converts an HTTP/1.1 head to HTTP/2; also returns whether its body is chunked. Omits connection-specific fields
/// (RFC 9113 §8.2.2).
fn parse(head: &[u8]) -> Option<(Response<()>, bool)> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let (mut builder, mut is_chunked) = (Response::builder().status(status), false);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "connection" | "keep-alive" | "upgrade" => {}
            "transfer-encoding" => is_chunked = true,
            _ => builder = builder.header(name, value),
        }
    }
    Some((builder.body(()).ok()?, is_chunked))
}
