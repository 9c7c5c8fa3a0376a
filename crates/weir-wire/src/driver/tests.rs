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

/// Another thread wakes a task of the core's own, before and after the core has gone to sleep.
#[test]
fn another_thread_wakes_a_task() {
    on_a_core(async {
        for round in 0..200 {
            let (tell, told) = oneshot::channel();
            let (answer, answered) = oneshot::channel();
            spawn(Box::pin(async move { answer.send(told.await.unwrap()).unwrap() }));
            yield_now().await; // the task waits
            let other = thread::spawn(move || tell.send(round).unwrap());
            assert_eq!(answered.await, Ok(round));
            other.join().unwrap();
        }
    });
}

#[test]
fn tasks_run_in_the_order_in_which_they_were_woken() {
    on_a_core(async {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (mut wakes, wakers) = (0, Rc::new(RefCell::new(Vec::<Waker>::new())));
        for number in 0..4 {
            let (seen, wakers) = (Rc::clone(&seen), Rc::clone(&wakers));
            spawn(Box::pin(poll_fn(move |cx| {
                seen.borrow_mut().push(number);
                wakers.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            })));
        }
        yield_now().await;
        for at in [2, 0, 2, 3] {
            let waker = wakers.borrow()[at].clone();
            waker.wake_by_ref(); // the second time it is in the queue already
            wakes += 1;
        }
        yield_now().await;
        assert_eq!((wakes, &*seen.borrow()), (4, &vec![0, 1, 2, 3, 2, 0, 3]));
    });
}

#[test]
fn a_task_that_ends_or_panics_leaves_its_place_to_the_next() {
    on_a_core(async {
        let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
        let over = Rc::new(Cell::new(false));
        let (waker, guard) = (Rc::clone(&kept), Over(Rc::clone(&over)));
        spawn(Box::pin(poll_fn(move |cx| {
            let _ = &guard;
            *waker.borrow_mut() = Some(cx.waker().clone());
            panic!("on purpose")
        })));
        yield_now().await;
        assert!(over.get(), "it was dropped");
        let polls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polls);
        spawn(Box::pin(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::Pending
        })));
        yield_now().await;
        kept.take().unwrap().wake(); // it names the task that was in this place before
        yield_now().await;
        assert_eq!(polls.get(), 1);
    });
}

#[test]
fn a_task_that_always_runs_leaves_time_for_others() {
    on_a_core(async {
        spawn(Box::pin(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        for _ in 0..3 {
            yield_now().await;
            crate::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_task_dropped_at_the_end_may_start_and_wake_others() {
    struct Starts(Option<oneshot::Sender<()>>, Rc<Cell<bool>>);
    impl Drop for Starts {
        fn drop(&mut self) {
            let (woken, over) = (self.0.take(), Over(Rc::clone(&self.1)));
            let _ = woken.unwrap().send(());
            spawn(Box::pin(async move { drop(over) }));
            drop(tokio::task::spawn_local(async {}));
        }
    }
    let over = Rc::new(Cell::new(false));
    let started = Rc::clone(&over);
    on_a_core(async move {
        let (tell, told) = oneshot::channel();
        let starts = Starts(Some(tell), started);
        spawn(Box::pin(async move {
            let _starts = starts;
            std::future::pending::<()>().await;
        }));
        spawn(Box::pin(async move { drop(told.await) }));
        yield_now().await;
    });
    assert!(over.get());
}

#[test]
fn tasks_that_panic_at_the_end_end_alone() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let over = Rc::new(Cell::new(false));
    let last = Over(Rc::clone(&over));
    on_a_core(async move {
        for _ in 0..2 {
            let panics = Panics;
            spawn(Box::pin(async move {
                let _panics = panics;
                std::future::pending::<()>().await;
            }));
        }
        spawn(Box::pin(async move {
            let _last = last;
            std::future::pending::<()>().await;
        }));
        yield_now().await;
    });
    assert!(over.get());
}

#[test]
fn a_waker_outlives_its_core() {
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let waker = Arc::clone(&kept);
    on_a_core(async move {
        spawn(Box::pin(poll_fn(move |cx| {
            *waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        })));
        yield_now().await;
    });
    kept.lock().unwrap().take().unwrap().wake();
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

/// A turn of hundreds of requests would keep the core busy, so the next turn would be as long.
#[test]
fn a_turn_of_a_busy_core_is_no_longer_than_another() {
    const CLIENTS: usize = 20;
    on_a_core(async {
        let busy = tokio::task::spawn_local(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        let told = Rc::new(Cell::new(0));
        let mut peers = Vec::new();
        for _ in 0..CLIENTS {
            let (ours, peer) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = sockets().unwrap().add(ours, Peer::Local, Class::Client);
            ours.brought(10);
            let told = Rc::clone(&told);
            spawn(Box::pin(async move {
                let mut read = Vec::with_capacity(8);
                poll_fn(|cx| ours.poll_read(cx, &mut read)).await.unwrap();
                told.set(told.get() + 1);
            }));
            peers.push(peer);
        }
        yield_now().await; // they wait
        peers.iter_mut().for_each(|peer| peer.write_all(b"request").unwrap());
        let mut before = 0;
        for _ in 0..1000 {
            yield_now().await; // until the driver has looked
            assert!(told.get() - before <= TAKEN.div_ceil(10), "{} at once", told.get() - before);
            before = told.get();
        }
        assert_eq!(before, CLIENTS);
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
