//! Routes each datagram to the socket of the core that has its connection.
//!
//! By default the kernel hashes addresses and ports. A client that changes its address, as a phone does that leaves a
//! Wi-Fi network, would then reach a core that does not know its connection. So a program in the kernel reads the first
//! byte of the connection id instead, which is the core's number ([`crate::ids`]).

#![allow(unsafe_code)] // a socket option that no safe crate of ours wraps

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Has the kernel steer datagrams by their connection ids to the first `count` sockets of the group that `socket`
/// belongs to, which must be bound in the order of their cores. Needs no privilege.
///
/// A client's first packet carries an id that the client chose. Its first byte is random, so new connections spread
/// over the cores, and every repetition of the packet reaches the same core.
///
/// # Errors
/// When the system does not allow such programs. Datagrams then arrive at any core, which must hand them on.
pub fn steer(socket: &impl AsFd, count: usize) -> io::Result<()> {
    let count = u32::try_from(count.clamp(1, 256)).unwrap_or(1);
    // Classic BPF over the UDP payload (linux/filter.h). Reading beyond the end returns 0, the first socket.
    let program = [
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0), // the header's first byte
        op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 2, 0x80), // a long header?
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 6), // yes: version and length come before the id
        op(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 1), // no
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, count),
        op(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` and the instructions it points to live until the call returns, and the kernel only reads them.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
