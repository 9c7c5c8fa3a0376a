//! The driver wakes tasks for sockets, timers and other threads.

use super::*;
use crate::{Class, Peer};
use std::cell::Cell;
use std::io::Write;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// Runs a test on a core.
pub(crate) fn on_a_core(test: impl Future<Output = ()> + 'static) {
    Driver::new().unwrap().run(test).unwrap();
}

/// Records that its owner was dropped.
struct Over(Rc<Cell<bool>>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
#[should_panic(expected = "on purpose")]
fn a_panic_of_the_core_is_not_lost() {
    on_a_core(async { panic!("on purpose") });
}

#[test]
fn another_thread_wakes_a_core_that_sleeps() {
    on_a_core(async {
        for round in 0..200 {
            let (tell, told) = oneshot::channel();
            let (go, may_go) = mpsc::channel::<()>();
            let other = thread::spawn(move || {
                let _ = may_go.recv();
                tell.send(round).unwrap();
            });
            drop(go);
            assert_eq!(told.await, Ok(round));
            other.join().unwrap();
        }
    });
}

#[test]
fn clients_are_told_also_beside_work_that_never_ends() {
    on_a_core(async {
        let busy = tokio::task::spawn_local(async {
            loop {
                tokio::task::yield_now().await; // unlike `yield_now`, this does not wait for the kernel
            }
        });
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = sockets().unwrap().add(ours, Peer::Local, Class::Client);
        let mut read = Vec::with_capacity(8);
        let mut reading = std::pin::pin!(poll_fn(|cx| ours.poll_read(cx, &mut read)));
        assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_pending());
        peer.write_all(b"request").unwrap();
        let told = crate::time::timeout(Duration::from_secs(60), reading).await;
        assert_eq!(told.unwrap().unwrap(), 7);
        busy.abort();
    });
}

#[test]
fn who_rests_waits_for_a_look_and_no_longer() {
    on_a_core(async {
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = sockets().unwrap().add(ours, Peer::Local, Class::Upstream);
        let mut read = Vec::with_capacity(8);
        let mut reading = std::pin::pin!(poll_fn(|cx| ours.poll_read(cx, &mut read)));
        assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_pending());
        peer.write_all(b"answer").unwrap();
        yield_now().await;
        assert!(
            poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_ready(),
            "the kernel was asked"
        );
    });
}

#[test]
fn what_still_runs_is_dropped_at_the_end() {
    let left = Rc::new(Cell::new(false));
    let guard = Over(Rc::clone(&left));
    on_a_core(async {
        drop(tokio::task::spawn_local(async move {
            let _guard = guard;
            crate::time::sleep(Duration::from_secs(600)).await;
        }));
        tokio::task::yield_now().await;
    });
    assert!(left.get());
    assert!(timers().is_none(), "the thread is not a core any more");
}

#[test]
fn a_task_that_panics_ends_alone() {
    on_a_core(async {
        let failed = tokio::task::spawn_local(async { panic!("on purpose") }).await;
        assert!(failed.is_err());
    });
}

#[test]
fn what_is_not_of_the_core_works_too() {
    on_a_core(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(listener.accept(), tokio::net::TcpStream::connect(address));
        assert!(one.is_ok() && other.is_ok());
    });
}
