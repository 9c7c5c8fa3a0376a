//! Sends bodies over HTTP/2 within the client's window, for pages and gRPC.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, SendStream};

/// Sends a piece of a body as far as the client's window allows.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let mut room = stream.capacity();
        if room == 0 {
            let gone = h2::Error::from(Reason::CANCEL);
            room = poll_fn(|cx| stream.poll_capacity(cx)).await.ok_or(gone)??;
        }
        stream.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    Ok(())
}
