//! The round-trip time to a peer, as the kernel measured it on the connection's first packets. A clock of ours would
//! include what else this core did meanwhile.

#![allow(unsafe_code)] // a system call that no safe crate of ours wraps

use std::os::fd::AsRawFd;
use std::time::Duration;

/// The round-trip time to the peer; `None` if the kernel does not report one.
#[cfg(target_os = "linux")]
pub(crate) fn round_trip(stream: &impl AsRawFd) -> Option<Duration> {
    let rtt = info(stream)?.tcpi_rtt;
    (rtt > 0).then(|| Duration::from_micros(rtt.into()))
}

/// Whether the kernel retransmitted anything, including the SYN.
#[cfg(target_os = "linux")]
pub(crate) fn has_retransmitted(stream: &impl AsRawFd) -> bool {
    info(stream).is_some_and(|info| info.tcpi_total_retrans > 0)
}

#[cfg(target_os = "linux")]
fn info(stream: &impl AsRawFd) -> Option<libc::tcp_info> {
    // SAFETY: tcp_info consists of integers only, for which all-zero bytes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes, the size of `info`.
    let told = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    (told == 0).then_some(info)
}

/// The round-trip time to the peer; `None` if the kernel does not report one.
#[cfg(not(target_os = "linux"))]
pub(crate) fn round_trip(_: &impl AsRawFd) -> Option<Duration> {
    None
}

/// Whether the kernel retransmitted anything; unknown on this platform.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_retransmitted(_: &impl AsRawFd) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[test]
    fn the_loopback_is_near() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let told = round_trip(&stream).unwrap();
            assert!(told > Duration::ZERO && told < Duration::from_secs(1), "{told:?}");
        });
    }
}
