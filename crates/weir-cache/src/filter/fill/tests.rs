//! Fetches whose memory is full before the disk has taken their data.

use super::super::freshness::{Defaults, Freshness};
use super::super::object::{Meta, Received};
use super::super::on_disk;
use super::super::storable::{SetCookie, storable};
use super::super::testing::fields;
use super::*;
use crate::disk::Writer;
use std::sync::{RwLock, mpsc};
use std::task::Waker;
use std::time::{Instant as StdInstant, SystemTime};

const PIECE: usize = 64 * 1024;
const HOUR: Duration = Duration::from_secs(3600);

fn meta() -> Arc<Meta> {
    let answer = fields(&[("Cache-Control", "max-age=60")]);
    let freshness = Freshness::of(200, &answer, Default::default());
    let settings = (&Defaults::default(), SetCookie::Refuse);
    let found = storable(&freshness, &answer, &fields(&[]).into(), settings, SystemTime::UNIX_EPOCH).unwrap();
    let received = Received { at: StdInstant::now(), time: SystemTime::UNIX_EPOCH, took: Duration::ZERO };
    Arc::new(Meta::new(freshness, &answer, found, SetCookie::Refuse, received))
}

/// A disk whose threads do nothing until the gate opens.
struct Slow {
    disk: Arc<Disk>,
    gate: Arc<RwLock<()>>,
    _folder: tempfile::TempDir,
}

impl Slow {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), 64 << 20, false).unwrap();
        while !disk.is_loaded() {
            std::thread::yield_now();
        }
        Self { disk, gate: Arc::default(), _folder: folder }
    }

    /// Keeps all threads busy while the gate is shut.
    fn occupy(&self) {
        for _ in 0..8 {
            let gate = Arc::clone(&self.gate);
            assert!(self.disk.run(Box::new(move || drop(gate.read()))));
        }
    }

    fn begin(&self, account: &Arc<Account>) -> (Arc<Fill>, Writer) {
        let (key, meta) = (Key::test("r\0http://a/", ""), meta());
        let fill = Arc::new(Fill::new(key.clone()));
        let writer = on_disk::create(&self.disk, &key, &meta, None, &fill).unwrap();
        assert!(fill.begin(Head { meta, length: None }, false, account));
        (fill, writer)
    }
}

/// Pushes pieces until there is no room; returns their number.
fn fill_up(fill: &Arc<Fill>, writer: &Writer) -> usize {
    for n in 0.. {
        match fill.push(&[n as u8; PIECE], true) {
            Pushed::Held(piece) => assert!(writer.push(piece)),
            Pushed::Over(piece) => {
                assert!(writer.push(piece));
                return n + 1;
            }
            Pushed::Refused => panic!("it is held once more"),
        }
    }
    unreachable!("memory has an end")
}

fn poll(room: &mut std::pin::Pin<Box<impl Future<Output = ()>>>) -> Poll<()> {
    room.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_fetch_waits_for_a_slow_disk_and_loses_nothing() {
    let slow = Slow::new();
    let account = Account::new(4 * PIECE as u64);
    let shut = slow.gate.write().unwrap();
    slow.occupy();
    let (fill, writer) = slow.begin(&account);
    let mut follower = fill.follow(None);
    let pieces = fill_up(&fill, &writer);
    assert!((3..6).contains(&pieces), "{pieces}");
    assert!(fill.spills() && account.used() <= 4 * PIECE as u64);
    let mut room = Box::pin(Arc::clone(&fill).room(writer.going(), HOUR));
    assert!(poll(&mut room).is_pending(), "the disk has taken nothing yet");
    drop(shut);
    room.await;
    assert!(
        matches!(fill.push(&[pieces as u8; PIECE], true), Pushed::Held(piece) if writer.push(piece.clone()))
    );
    fill.finish_spilled();
    let (sender, kept) = mpsc::channel();
    writer.finish(move |entry| sender.send(entry.is_some()).unwrap());
    // Followers get everything, including the parts that memory dropped.
    let mut read = Vec::new();
    while let Some(piece) = poll_fn(|cx| follower.poll_piece(cx)).await.unwrap() {
        read.extend_from_slice(&piece);
    }
    let expected: Vec<u8> = (0..=pieces).flat_map(|n| vec![n as u8; PIECE]).collect();
    assert!(read == expected, "{} bytes of {}", read.len(), expected.len());
    assert!(kept.recv().unwrap());
}

#[tokio::test]
#[allow(clippy::await_holding_lock, reason = "it stands for a slow disk: only threads of the store take it")]
async fn a_disk_that_fails_or_writes_nothing_ends_the_wait() {
    let slow = Slow::new();
    let account = Account::new(4 * PIECE as u64);
    let shut = slow.gate.write().unwrap();
    slow.occupy();
    let (fill, writer) = slow.begin(&account);
    fill_up(&fill, &writer);
    let going = writer.going();
    Arc::clone(&fill).room(going.clone(), Duration::ZERO).await;
    assert!(matches!(fill.push(&[0; PIECE], true), Pushed::Refused), "it writes nothing");
    drop(shut);
    drop(writer);
    while !going.is_over() {
        std::thread::yield_now();
    }
    Arc::clone(&fill).room(going, HOUR).await;
    // Without a disk, nothing beyond the account is held.
    let (alone, _writer) = slow.begin(&Account::new(PIECE as u64));
    assert!(matches!(alone.push(&[0; 2 * PIECE], false), Pushed::Refused));
}
