//! A socket of a core: reading, writing, waiting, and the order of wake-ups.

mod reuse;

use super::*;
use crate::driver;
use crate::driver::tests::on_a_core;
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::time::Duration;

/// A connection of this core, and its peer, which has already sent `sent`.
fn pair_after(sent: &[u8]) -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, address) = listener.accept().unwrap();
    if !sent.is_empty() {
        peer.write_all(sent).unwrap();
        accepted.peek(&mut [0]).unwrap();
    }
    accepted.set_nonblocking(true).unwrap();
    (driver::sockets().unwrap().add(accepted, Peer::Address(address), Class::Client), peer)
}

async fn connect(to: std::net::SocketAddr) -> io::Result<Socket> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM.nonblocking(), None)?;
    Socket::connect(driver::sockets(), socket, &to.into()).await
}

fn pair() -> (Socket, TcpStream) {
    pair_after(b"")
}

async fn read(socket: &Socket, room: usize) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(room);
    poll_fn(|cx| socket.poll_read(cx, &mut buffer)).await.unwrap();
    buffer
}

#[test]
fn bytes_and_the_end_arrive() {
    on_a_core(async {
        let (socket, mut peer) = pair();
        assert!(
            poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await.is_pending()
        );
        peer.write_all(b"first").unwrap();
        assert_eq!(read(&socket, 64).await, b"first");
        peer.write_all(b"second").unwrap();
        assert_eq!(read(&socket, 3).await, b"sec", "a buffer that was filled");
        assert_eq!(read(&socket, 64).await, b"ond");
        drop(peer);
        assert_eq!(read(&socket, 64).await, b"");
        assert_eq!(read(&socket, 64).await, b"", "the end is told as often as it is asked for");
    });
}

#[test]
fn a_deaf_socket_wakes_nobody() {
    on_a_core(async {
        let bind = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let address = socket.local_addr().unwrap();
            (driver::sockets().unwrap().add_datagrams(socket), address)
        };
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let ((deaf, to_deaf), (other, to_other)) = (bind(), bind());
        let receive =
            |fd: BorrowedFd<'_>| rustix::net::recv(fd, &mut [0; 8][..], rustix::net::RecvFlags::empty());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        assert!(deaf.poll_receive(&cx, |fd| Ok(receive(fd)?)).is_pending());
        deaf.set_deaf(true).unwrap();
        client.send_to(b"a", to_deaf).unwrap();
        // What arrives later is told.
        client.send_to(b"b", to_other).unwrap();
        poll_fn(|cx| other.poll_receive(cx, |fd| Ok(receive(fd)?))).await.unwrap();
        assert_eq!(woken.0.load(Relaxed), 0);
        deaf.set_deaf(false).unwrap();
        poll_fn(|cx| deaf.poll_receive(cx, |fd| Ok(receive(fd)?))).await.unwrap();
    });
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn only_who_waits_is_watched() {
    on_a_core(async {
        let (socket, mut peer) = pair_after(b"first");
        assert_eq!(read(&socket, 64).await, b"first");
        poll_fn(|cx| socket.poll_write(cx, b"answer")).await.unwrap();
        assert!(!socket.place().unwrap().is_watched());
        let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
        assert!(waits.is_pending() && socket.place().unwrap().is_watched());
        peer.write_all(b"second").unwrap();
        assert_eq!(read(&socket, 64).await, b"second");
    });
}

/// Reporting that there is room for the answer would cost each new connection a poll.
#[test]
fn a_client_joins_the_set_for_reading_only() {
    on_a_core(async {
        let (socket, mut peer) = pair();
        let slot = &socket.place().unwrap().slot;
        let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
        assert!(waits.is_pending() && socket.place().unwrap().is_watched());
        slot.forget(WRITE);
        peer.write_all(b"request").unwrap();
        assert_eq!(read(&socket, 64).await, b"request", "the kernel was asked");
        assert!(!slot.is_ready(WRITE));
        poll_fn(|cx| socket.poll_write(cx, b"answer")).await.unwrap();
        assert!(slot.is_ready(WRITE));
    });
}

#[test]
fn an_end_behind_bytes_is_not_lost() {
    on_a_core(async {
        let (socket, mut peer) = pair();
        peer.write_all(b"last").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read(&socket, 64).await, b"last");
        assert_eq!(read(&socket, 64).await, b"");
    });
}

#[test]
fn a_writer_waits_for_room() {
    on_a_core(async {
        let (socket, mut peer) = pair();
        let piece = vec![7; 1 << 20];
        let mut sent = 0;
        while let Poll::Ready(wrote) = poll_fn(|cx| Poll::Ready(socket.poll_write(cx, &piece))).await {
            sent += wrote.unwrap();
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all.len()
        });
        let both = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
        sent += poll_fn(|cx| socket.poll_write_vectored(cx, &both)).await.unwrap();
        drop(socket);
        assert_eq!(reader.join().unwrap(), sent);
    });
}

#[test]
fn an_idle_connection_is_quiet_until_something_comes() {
    on_a_core(async {
        let (socket, mut peer) = pair();
        assert!(
            socket.is_quiet() && !socket.place().unwrap().slot.is_ready(READ),
            "the kernel was asked once"
        );
        let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
        assert!(waits.is_pending());
        peer.write_all(b"unasked").unwrap();
        while socket.is_quiet() {
            crate::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(read(&socket, 64).await, b"unasked", "it stays for the reader");
    });
}

#[test]
fn one_that_was_never_watched_is_asked_whether_it_is_quiet() {
    on_a_core(async {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = driver::sockets().unwrap().add(ours, Peer::Local, Class::Upstream);
        peer.write_all(b"answer").unwrap();
        assert_eq!(read(&ours, 64).await, b"answer");
        assert!(ours.is_quiet());
        drop(peer);
        assert!(!ours.is_quiet());
    });
}

#[test]
fn others_have_their_turn_beside_what_never_ends() {
    on_a_core(async {
        let (socket, _peer) = pair();
        let room = RUN as usize / 4;
        for _ in 0..3 {
            let reads = poll_fn(|cx| {
                let mut full = || socket.poll_read_by(cx, room, || Ok(room)).is_ready();
                Poll::Ready((0..100).take_while(|_| full()).count())
            });
            assert_eq!(reads.await, 4);
        }
        for _ in 0..4 {
            let read = poll_fn(|cx| Poll::Ready(socket.poll_read_by(cx, room, || Ok(room))));
            assert!(read.await.is_ready());
        }
        socket.begin_run();
        let read = poll_fn(|cx| Poll::Ready(socket.poll_read_by(cx, room, || Ok(room))));
        assert!(read.await.is_ready(), "it has a run of its own");
    });
}

#[test]
fn a_client_stands_in_line_once() {
    on_a_core(async {
        let sockets = driver::sockets().unwrap();
        let (socket, _peer) = pair();
        socket.place().unwrap().slot.forget(READ | WRITE);
        sockets.queue(socket.place().unwrap().name, READ);
        sockets.queue(socket.place().unwrap().name, WRITE);
        assert_eq!(sockets.singles.borrow().len(), 1);
        sockets.tell_lines(TAKEN);
        assert!(socket.place().unwrap().slot.is_ready(READ) && socket.place().unwrap().slot.is_ready(WRITE));
        sockets.queue(socket.place().unwrap().name, READ);
        assert_eq!(sockets.singles.borrow().len(), 1, "it may stand there again");
    });
}

#[test]
fn a_turn_is_as_long_as_the_requests_that_clients_bring() {
    on_a_core(async {
        let sockets = driver::sockets().unwrap();
        let clients: Vec<_> = (0..7).map(|_| pair()).collect();
        for ((client, _), requests) in clients.iter().zip([10, 0, 70_000, 1, 10, 2, 1]) {
            let place = client.place().unwrap();
            place.slot.forget(READ | WRITE);
            client.brought(requests);
            sockets.queue(place.name, READ);
        }
        let told = || -> Vec<usize> {
            let is_ready = |at: &usize| clients[*at].0.place().unwrap().slot.is_ready(READ);
            (0..clients.len()).filter(is_ready).collect()
        };
        // Whoever brings one request passes those who bring many, who wait for each other.
        for (most, after) in [(2, &[0, 1, 3][..]), (11, &[0, 1, 2, 3, 6]), (12, &[0, 1, 2, 3, 4, 5, 6])] {
            sockets.tell_lines(most);
            assert_eq!(told(), after);
        }
        assert!(sockets.is_empty());
    });
}

#[test]
fn a_client_that_brought_much_counts_for_less_with_each_read() {
    on_a_core(async {
        let (client, _peer) = pair();
        for (brings, expected) in [(0, 0), (10, 10), (0, 5), (4, 4), (1, 2), (1, 1), (0, 0)] {
            client.brought(brings);
            assert_eq!(client.place().unwrap().slot.requests.get(), expected, "after {brings}");
        }
    });
}

#[test]
fn an_upstream_is_told_before_clients() {
    on_a_core(async {
        let told: Rc<RefCell<Vec<&str>>> = Rc::default();
        let wait = |name, socket: Socket| {
            let told = Rc::clone(&told);
            tokio::task::spawn_local(async move {
                read(&socket, 8).await;
                told.borrow_mut().push(name);
            })
        };
        let (client, mut its_peer) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let upstream = connect(to).await.unwrap();
        let (mut its_end, _) = listener.accept().unwrap();
        let (client, upstream) = (wait("client", client), wait("upstream", upstream));
        tokio::task::yield_now().await; // both wait
        its_peer.write_all(b"request").unwrap();
        its_end.write_all(b"answer").unwrap();
        client.await.unwrap();
        upstream.await.unwrap();
        assert_eq!(*told.borrow(), ["upstream", "client"]);
    });
}

#[test]
fn nobody_learns_of_an_earlier_socket_of_its_place() {
    on_a_core(async {
        let sockets = driver::sockets().unwrap();
        let (first, _peer) = pair();
        let name = first.place().unwrap().name;
        drop(first);
        let (second, _peer) = pair();
        assert_eq!(second.place().unwrap().name.key(), name.key());
        second.place().unwrap().slot.forget(READ | ENDED | WRITE);
        sockets.tell(name, READ | ENDED);
        assert!(!second.place().unwrap().slot.is_ready(READ | ENDED));
        sockets.tell(second.place().unwrap().name, READ);
        assert!(second.place().unwrap().slot.is_ready(READ));
    });
}

/// More sockets close at once than slots are kept. A kept slot holds no task, and the next socket starts with new
/// state.
#[test]
fn slots_of_closed_sockets_keep_only_memory() {
    let set = mio::Poll::new().unwrap();
    let sockets = Rc::new(Sockets::new(set.registry().try_clone().unwrap()));
    let woken = Arc::<Woken>::default();
    let open = |_| {
        let place = sockets.place(Class::Client, READ | WRITE);
        let Slot { ready, pending, requests, generation, run, reader, writer } = &*place.slot;
        assert_eq!((ready.get(), pending.get(), requests.get(), run.get()), (READ | WRITE, 0, 0, 0));
        assert_eq!(*generation, place.name.generation());
        for side in [reader, writer] {
            assert!(side.take().is_none(), "a task of an earlier socket");
            side.set(Some(Waker::from(Arc::clone(&woken))));
        }
        ready.set(ENDED);
        pending.set(READ);
        requests.set(9);
        run.set(RUN);
        place
    };
    for _ in 0..2 {
        drop((0..SPARE + 8).map(open).collect::<Vec<_>>());
        assert_eq!(sockets.spare.borrow().len(), SPARE);
        assert_eq!(Arc::strong_count(&woken), 1, "a spare slot keeps a task");
    }
    let memory = sockets.spare.borrow().last().map(Rc::as_ptr).unwrap();
    assert_eq!(Rc::as_ptr(&open(0).slot), memory);
}

#[test]
fn a_copy_of_a_closed_socket_does_not_silence_the_next_one_of_its_place() {
    on_a_core(async {
        let (first, its_peer) = pair();
        let pending = poll_fn(|cx| Poll::Ready(first.poll_read(cx, &mut Vec::with_capacity(8)))).await;
        assert!(pending.is_pending());
        let copy = first.fd.try_clone().unwrap(); // like the copy a child process has between fork and exec
        let key = first.place().unwrap().name.key();
        drop(first);
        let (second, mut peer) = pair();
        assert_eq!(second.place().unwrap().name.key(), key);
        let reading = tokio::task::spawn_local(async move { read(&second, 8).await });
        driver::yield_now().await; // it waits
        drop(its_peer); // its FIN is reported under the first socket's name
        driver::yield_now().await;
        drop(copy);
        peer.write_all(b"request").unwrap();
        let told = crate::time::timeout(Duration::from_secs(20), reading).await;
        assert_eq!(told.expect("its task is told").unwrap(), b"request");
    });
}

#[test]
fn a_refused_connect_says_so() {
    on_a_core(async {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = connect(gone).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_fresh_connection_is_read_when_the_kernel_says_so() {
    on_a_core(async {
        let name = format!("weir-wire-fresh-{}", std::process::id());
        let at = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = socket2::SockAddr::unix(format!("\0{name}")).unwrap();
        let ours = Socket::connect(driver::sockets(), socket, &to).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"answer").unwrap();
        let first = poll_fn(|cx| Poll::Ready(ours.poll_read(cx, &mut Vec::with_capacity(64)))).await;
        assert!(first.is_pending(), "the driver has not looked since the connection was made");
        assert_eq!(read(&ours, 64).await, b"answer");
    });
}
