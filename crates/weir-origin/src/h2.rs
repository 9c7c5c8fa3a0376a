//! HTTP/2 with the crate `h2`: a peer that shares no code with the gateway in front of it.
//!
//! gRPC calls go to `grpc.rs`; all other requests get the same pages as over HTTP/1.1, through `h2/page.rs`. With a
//! fixed response, all requests do.

mod page;

use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::grpc;
use crate::site::Site;

/// The client connection preface (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Most concurrent streams of a client on one connection.
const STREAMS: u32 = 1000;

/// The window of each stream and of the connection: large enough that a load test does not wait for us.
const WINDOW: u32 = 1024 * 1024;
const WINDOW_OF_CONNECTION: u32 = 16 * WINDOW;

/// Most bytes of the fields of one request.
const FIELDS_MOST: u32 = 64 * 1024;

/// Serves a connection until either side closes. An error only ends it: nobody is left to report it to.
pub(crate) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>) {
    let handshake = Builder::new()
        .max_concurrent_streams(STREAMS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW_OF_CONNECTION)
        .max_header_list_size(FIELDS_MOST)
        .handshake::<_, Bytes>(stream);
    let Ok(mut connection) = handshake.await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        drop(tokio::task::spawn_local(exchange(request, respond, Arc::clone(&site))));
    }
}

/// Handles one request. An error only ends its stream.
async fn exchange(request: Request<RecvStream>, respond: SendResponse<Bytes>, site: Arc<Site>) {
    site.cells.requests.add(1);
    let _ = if site.fixed().is_some() && !grpc::is_processing(&request) {
        page::answer(request, respond, site).await
    } else if grpc::is_call(&request) {
        grpc::answer(request, respond).await
    } else {
        page::answer(request, respond, site).await
    };
}
