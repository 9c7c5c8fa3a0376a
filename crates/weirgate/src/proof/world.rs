//! A world of its own: namespaces with loopback only, and a read-only root.

#![allow(unsafe_code)] // system calls that no safe crate of ours offers

use super::job::Found;
use super::{PLAY, WORLD};
use std::ffi::CString;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use weir_import::proof::WORKSPACE;

/// Largest size of the files in the world, in memory: bodies in files, caches.
const MEMORY: &str = "size=512m,mode=0755";
/// Recursively, for `mount_setattr`.
const AT_RECURSIVE: libc::c_uint = 0x8000;
/// Read-only, for `mount_setattr`.
const MOUNT_ATTR_RDONLY: u64 = 1;

/// Starts a process that ends with this one.
pub(super) fn spawn_tied(command: &mut Command) -> io::Result<Child> {
    let parent = std::process::id();
    let is_first = parent == 1;
    let tied = move || {
        // SAFETY: both are single system calls, which may be made between fork and exec.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above. In a new pid namespace the parent is not to be seen, and has the number 0.
        let seen = unsafe { libc::getppid() }.cast_unsigned();
        if seen == parent || seen == 0 || is_first { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: `tied` allocates nothing and takes no lock.
    unsafe { command.pre_exec(tied) };
    command.spawn()
}

/// Makes the world and starts the play in it. It has no threads yet, as a new user namespace demands.
pub(super) fn run() -> ExitCode {
    let made = make();
    let played = match made {
        Ok(()) => {
            let mut command = Command::new("/proc/self/exe");
            command.arg(PLAY).env_clear();
            command
                .env("TMPDIR", WORKSPACE)
                .env("HOME", WORKSPACE)
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            spawn_tied(&mut command).and_then(|mut child| child.wait()).map_err(|e| format!("{WORLD}: {e}"))
        }
        Err(why) => Err(why),
    };
    match played {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            let failure = Some(format!("the process of the proof ended with {status}"));
            tell(&Found { failure, ..Found::default() })
        }
        Err(why) => tell(&Found { no_world: Some(why), ..Found::default() }),
    }
}

/// Writes the outcome to stdout.
pub(super) fn tell(found: &Found) -> ExitCode {
    // In one write: stdout searches every piece for a newline.
    let written = serde_json::to_vec(found).map_err(io::Error::other);
    match written.and_then(|text| io::stdout().lock().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn make() -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: a system call that touches no memory of ours.
    call("unshare", i64::from(unsafe { libc::unshare(flags) }))?;
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write("/proc/self/gid_map", &format!("0 {group} 1"))?;
    files()?;
    network().map_err(|e| format!("its loopback: {e}"))
}

/// Everything read-only, and a folder in memory.
fn files() -> Result<(), String> {
    mount(None, "/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
    /// As the kernel's `struct mount_attr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attributes = Attributes { set: MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path ends with a zero, and the kernel reads as many bytes of `attributes` as we say.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            AT_RECURSIVE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    call("a read-only root", done)?;
    // /run has the sockets of the machine's daemons; nothing in here may reach them.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV, Some(MEMORY))?;
    fs::create_dir_all(WORKSPACE).map_err(|e| format!("{WORKSPACE}: {e}"))?;
    for (path, text) in [
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ] {
        let ours = format!("{WORKSPACE}/{}", path.trim_start_matches("/etc/"));
        write(&ours, text)?;
        // A link into /run leads nowhere now: without the file the resolver asks 127.0.0.1, which is right.
        if Path::new(path).exists() {
            mount(Some(&ours), path, None, libc::MS_BIND, None)?;
        }
    }
    std::env::set_current_dir(WORKSPACE).map_err(|e| format!("{WORKSPACE}: {e}"))
}

pub(super) fn mount(
    source: Option<&str>,
    target: &str,
    kind: Option<&str>,
    flags: libc::c_ulong,
    data: Option<&str>,
) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
    let (source, kind, data) = (source.map(text), kind.map(text), data.map(text));
    let (source, kind, data) = (source.transpose()?, kind.transpose()?, data.transpose()?);
    let path = text(target)?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    let (source, kind, data) = (pointer(&source), pointer(&kind), pointer(&data));
    // SAFETY: all texts end with a zero and outlive the call.
    let done = unsafe { libc::mount(source, path.as_ptr(), kind, flags, data.cast()) };
    call(&format!("mount {target}"), i64::from(done))
}

fn call(name: &str, result: i64) -> Result<(), String> {
    if result < 0 { Err(format!("{name}: {}", io::Error::last_os_error())) } else { Ok(()) }
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{path}: {e}"))
}

/// Brings loopback up and makes every IPv4 address an address of this world, by a route of type local to `0.0.0.0/0`
/// (rtnetlink(7)). So the configs keep the addresses of their upstreams.
fn network() -> io::Result<()> {
    // SAFETY: a system call that touches no memory of ours.
    let socket =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(socket) };
    let loopback: u32 = 1;
    // struct ifinfomsg: family, pad, type, index, flags, change.
    let mut up = vec![0, 0, 0, 0];
    for number in [loopback, libc::IFF_UP.cast_unsigned(), libc::IFF_UP.cast_unsigned()] {
        up.extend(number.to_ne_bytes());
    }
    ask_kernel(&socket, libc::RTM_NEWLINK, 0, &up)?;
    // struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags.
    let family = u8::try_from(libc::AF_INET).unwrap_or_default();
    let mut route =
        vec![family, 0, 0, 0, libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL];
    route.extend(0_u32.to_ne_bytes());
    // struct rtattr: length, type; the interface.
    route.extend(8_u16.to_ne_bytes());
    route.extend(libc::RTA_OIF.to_ne_bytes());
    route.extend(loopback.to_ne_bytes());
    let create = u16::try_from(libc::NLM_F_CREATE).unwrap_or_default();
    ask_kernel(&socket, libc::RTM_NEWROUTE, create, &route)
}

/// Sends a message to the kernel and reads its answer (netlink(7)).
fn ask_kernel(socket: &std::os::fd::OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let flags = flags | u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK).unwrap_or_default();
    let length = u32::try_from(16 + body.len()).unwrap_or_default();
    let mut message = Vec::from(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    // SAFETY: the kernel reads as many bytes as we say.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0_u8; 1024];
    // SAFETY: the kernel writes no more bytes than we say.
    let read = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if read < 20 {
        return Err(io::Error::last_os_error());
    }
    // Behind the head of 16 bytes: the error, negative, or 0.
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

/// Kills every process of the world but this one, its first. In a pid namespace, `-1` reaches no other process
/// (kill(2), pid_namespaces(7)).
pub(super) fn kill_others() {
    // Anywhere else it would reach every process of the user.
    if std::process::id() == 1 {
        // SAFETY: a system call that touches no memory.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}
