//! How a process hands its open sockets to its successor: bytes and descriptors over a Unix socket.
//!
//! ```text
//!   ┌──────────────┬──────────────┬─────────┬──────────────────────────────┐
//!   │ length (u32) │ sockets (u32)│ payload │ 1 byte + up to 64 sockets, … │
//!   └──────────────┴──────────────┴─────────┴──────────────────────────────┘
//! ```
//! Both numbers are big-endian. This outer format never changes, so that any two versions of the program can exchange
//! sockets. The sender defines the meaning of the payload.
//!
//! A listening socket that is handed over is the same socket in both processes. Connections in its accept queue
//! survive, whichever process ends first.

use crate::listen::BoundSocket;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Largest payload, in bytes. The state of a limit with a million clients takes 16 MiB of it.
pub const PAYLOAD_BYTES: usize = 64 << 20;

/// Most sockets: 64 addresses on 256 cores.
pub const SOCKETS: usize = 16_384;

/// Sockets in one message. The kernel allows 253 (`SCM_MAX_FD`).
const BATCH: usize = 64;

/// Sends a payload and sockets. Blocks at most for the stream's write timeout.
///
/// # Errors
/// The system's error; `InvalidInput` beyond [`PAYLOAD_BYTES`] or [`SOCKETS`].
pub fn send(to: &UnixStream, payload: &[u8], sockets: &[BoundSocket]) -> io::Result<()> {
    if payload.len() > PAYLOAD_BYTES || sockets.len() > SOCKETS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than one handover may hold"));
    }
    let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput); // cannot happen: both are bounded above
    let mut head = [0; 8];
    head[..4].copy_from_slice(&u32::try_from(payload.len()).map_err(too_many)?.to_be_bytes());
    head[4..].copy_from_slice(&u32::try_from(sockets.len()).map_err(too_many)?.to_be_bytes());
    let mut stream = to;
    stream.write_all(&head)?;
    stream.write_all(payload)?;
    for batch in sockets.chunks(BATCH) {
        let descriptors: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives what [`send`] sent. Blocks at most for the stream's read timeout.
///
/// # Errors
/// The system's error; `InvalidData` if the numbers exceed the limits or sockets are missing.
pub fn receive(from: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut length, mut count) = ([0; 4], [0; 4]);
    let mut stream = from;
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut count)?;
    let (length, count) = (u32::from_be_bytes(length) as usize, u32::from_be_bytes(count) as usize);
    if length > PAYLOAD_BYTES || count > SOCKETS {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more than one handover may hold"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        let before = sockets.len();
        receive_batch(from, &mut sockets)?;
        if sockets.len() == before {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message without the sockets it announced",
            ));
        }
    }
    if sockets.len() > count {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more sockets than were announced"));
    }
    Ok((payload, sockets))
}

fn receive_batch(from: &UnixStream, into: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if read.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{Address, Beside, bind};

    #[test]
    fn sockets_arrive_open_and_in_order() {
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        // More than one batch.
        let bound = bind(&any, BATCH + 3, Beside::Nobody).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours, b"who is who", &bound.sockets).unwrap();
        drop(bound.sockets);

        let (payload, sockets) = receive(&theirs).unwrap();
        assert_eq!(payload, b"who is who");
        assert_eq!(sockets.len(), BATCH + 3);
        for socket in sockets {
            assert_eq!(BoundSocket::of(socket).unwrap().1, bound.address);
        }
    }

    #[test]
    fn a_sender_that_dies_or_lies_is_an_error() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[0, 0, 0, 5, 0, 0, 0, 0, b'x']).unwrap();
        drop(ours);
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[0xff; 8]).unwrap();
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[0, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap(); // announces one socket; its message carries none
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
