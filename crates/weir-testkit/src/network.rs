//! A private network for tests that must not touch the shared one.

#![allow(unsafe_code, reason = "three system calls that no safe crate of ours wraps")]

use std::fs;
use std::io;
use std::ops::RangeInclusive;

/// Gives the calling thread a network namespace with only a loopback interface, in which connections use these
/// local ports. Threads and processes that it starts later inherit the namespace.
///
/// # Errors
/// The caller lacks `CAP_SYS_ADMIN`, as most users and many containers do.
pub fn own_network(local_ports: &RangeInclusive<u16>) -> io::Result<()> {
    // SAFETY: a plain system call that changes only this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let ports = format!("{} {}", local_ports.start(), local_ports.end());
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", ports)?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the descriptor is a socket's, and `request` a valid `ifreq` for the call to read.
    if unsafe { libc::ioctl(descriptor, libc::SIOCSIFFLAGS as _, &raw const request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
