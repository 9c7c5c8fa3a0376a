//! Writes an object. Pieces come from a core, and the store's threads write them in order; no core waits.

use super::folder;
use super::format::{BLOCK, FIXED, Fixed, Named, table, write_head};
use super::{Disk, Doomed, Entry, PAGE};
use bytes::Bytes;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use xxhash_rust::xxh3::Xxh3;

/// How many bytes are reserved at a time if the length is unknown.
const STEP: u64 = 1024 * 1024;

/// Reports the progress of a write: the file, the offset of the body in it, and the bytes of body written.
pub type Progress = Box<dyn Fn(&Arc<File>, u64, u64) + Send + Sync>;

/// Runs after the last write, with the object, or with `None` if writing failed.
type Done = Box<dyn FnOnce(Option<Arc<Entry>>) + Send>;

/// Writes an object. Dropping it before `finish` leaves nothing on disk.
#[derive(Debug)]
pub struct Writer(Arc<Work>);

/// Tells readers that follow a [`Writer`] whether it still accepts data.
#[derive(Clone, Debug)]
pub struct Going(Weak<Work>);

struct Work {
    disk: Arc<Disk>,
    number: u64,
    head: Vec<u8>,
    length: Option<u64>,
    progress: Option<Progress>,
    state: Mutex<State>,
    output: Mutex<Option<Output>>,
}

#[derive(Default)]
struct State {
    pieces: Vec<Bytes>,
    named: Named,
    /// Whether a thread is writing.
    running: bool,
    end: Option<End>,
    /// No further data is accepted.
    over: bool,
}

enum End {
    Abort,
    Keep(Done),
}

/// A file that is being written.
struct Output {
    file: Arc<File>,
    /// Bytes of the body.
    body: u64,
    sums: Vec<u64>,
    block: Box<Xxh3>,
    reserved: u64,
}

impl Disk {
    /// Starts writing an object with these names and the owner's data, and with this length if known. `None` if
    /// the store accepts no writes at present, or the head is too long.
    pub fn create(
        self: &Arc<Self>,
        named: Named,
        kept: &[u8],
        length: Option<u64>,
        progress: Option<Progress>,
    ) -> Option<Writer> {
        let head = write_head(&named, kept).filter(|_| self.takes())?;
        let state = State { named, ..State::default() };
        let (disk, number) = (Arc::clone(self), self.number());
        let (state, output) = (Mutex::new(state), Mutex::default());
        Some(Writer(Arc::new(Work { disk, number, head, length, progress, state, output })))
    }

    /// Writes a newer head for an object whose body stays. If that fails, the old head applies.
    pub fn write_newer_head(self: &Arc<Self>, entry: &Arc<Entry>, kept: &[u8]) {
        let named = Named {
            stem: entry.stem.to_vec(),
            extra: entry.extra.to_vec(),
            variant: entry.variant.to_vec(),
            tags: entry.tags.to_vec(),
        };
        let Some(head) = write_head(&named, kept).filter(|_| self.takes()) else { return };
        let (disk, entry) = (Arc::clone(self), Arc::clone(entry));
        let write = move || {
            if let Err(e) = disk.put_newer_head(&entry, &head) {
                disk.failed(&e);
            }
        };
        let _ = self.run(Box::new(write)); // the newer head is optional
    }

    fn put_newer_head(&self, entry: &Entry, head: &[u8]) -> io::Result<()> {
        let has_one = entry.newer_head.load(Relaxed);
        let more = if has_one { 0 } else { PAGE };
        if !self.reserve(more) {
            return Ok(());
        }
        let fixed = Fixed::new(head, 0, &[]).write(false);
        let path = folder::incoming(&self.path, self.number());
        let written = fs::write(&path, [&fixed[..], head].concat());
        let folder = self.folder.read().unwrap_or_else(PoisonError::into_inner);
        let moved = match written {
            Ok(()) if folder.is_some() && !entry.is_gone() => {
                fs::rename(&path, folder::newer_head(&self.path, entry.number)).map(|()| true)
            }
            written => written.map(|()| false),
        };
        drop(folder);
        if !matches!(moved, Ok(true)) {
            let _ = fs::remove_file(&path); // the file may not exist
        }
        // Taken only now, because cores wait for this lock and must not wait for the disk.
        let mut room = self.room();
        room.writing = room.writing.saturating_sub(more);
        if matches!(moved, Ok(true)) && !entry.newer_head.swap(true, Relaxed) {
            if entry.is_gone() {
                room.doomed.push(Doomed::Object(entry.number, true)); // it was removed meanwhile without this head
            } else {
                room.heads += PAGE;
            }
        }
        moved.map(|_| ())
    }
}

impl Writer {
    /// Adds a piece of the body; false if no more is accepted, because the disk fails or is too slow.
    pub fn push(&self, piece: Bytes) -> bool {
        let mut state = self.0.state();
        if state.over {
            return false;
        }
        state.pieces.push(piece);
        self.0.go_on(state)
    }

    /// A handle by which others can ask whether the write continues.
    pub fn going(&self) -> Going {
        Going(Arc::downgrade(&self.0))
    }

    /// Ends the body. `done` runs once the object is stored or has failed: on one of the threads, or immediately.
    pub fn finish(self, done: impl FnOnce(Option<Arc<Entry>>) + Send + 'static) {
        let mut state = self.0.state();
        if state.over {
            drop(state);
            return done(None);
        }
        state.end = Some(End::Keep(Box::new(done)));
        self.0.go_on(state);
    }
}

impl Going {
    /// Whether no more data is accepted.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|work| work.state().over)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if !state.over && state.end.is_none() {
            state.end = Some(End::Abort);
            self.0.go_on(state);
        }
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules the write on a thread; false if the queue is full.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> bool {
        if state.running {
            return true;
        }
        state.running = true;
        drop(state);
        let work = Arc::clone(self);
        if self.disk.run(Box::new(move || work.run())) {
            return true;
        }
        self.fail(&io::Error::new(io::ErrorKind::QuotaExceeded, "too much waits to be written"));
        false
    }

    /// Writes the queued pieces, and finishes the object after the last.
    fn run(&self) {
        loop {
            let (pieces, end) = {
                let mut state = self.state();
                if state.pieces.is_empty() && state.end.is_none() {
                    state.running = false;
                    return;
                }
                (std::mem::take(&mut state.pieces), state.end.take())
            };
            let end = match end {
                Some(End::Abort) => {
                    self.state().over = true;
                    self.let_go();
                    return self.disk.bury();
                }
                Some(End::Keep(done)) => Some(done),
                None => None,
            };
            let written = self.write(&pieces);
            match (written, end) {
                (Ok(()), None) => {}
                (Ok(()), Some(done)) => {
                    self.state().over = true;
                    let kept = self.keep();
                    let kept = kept.inspect_err(|e| {
                        self.disk.failed(e);
                        self.let_go();
                    });
                    return done(kept.ok());
                }
                (Err(e), end) => {
                    self.fail(&e);
                    self.disk.bury();
                    if let Some(done) = end {
                        done(None);
                    }
                    return;
                }
            }
        }
    }

    fn write(&self, pieces: &[Bytes]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.is_none() {
            *output = Some(self.begin()?);
        }
        let Some(output) = &mut *output else { return Ok(()) };
        for piece in pieces {
            let needs = self.bytes(output.body + piece.len() as u64, output.sums.len() as u64 + 2);
            if needs > output.reserved {
                let more = (needs - output.reserved).max(STEP);
                self.room_for(more)?;
                output.reserved += more;
            }
            output.write(piece)?;
        }
        if let Some(progress) = &self.progress {
            progress(&output.file, FIXED as u64 + self.head.len() as u64, output.body);
        }
        Ok(())
    }

    /// Creates the file, and reserves space for all of it if its length is known.
    fn begin(&self) -> io::Result<Output> {
        let length = self.length.unwrap_or(0);
        let reserved = self.bytes(length, length.div_ceil(BLOCK as u64) + 1);
        self.room_for(reserved)?;
        let path = folder::incoming(&self.disk.path, self.number);
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).and_then(
                |mut file| {
                    file.write_all(&[0; FIXED])?;
                    file.write_all(&self.head)?;
                    Ok(file)
                },
            );
        match made {
            Ok(file) => {
                let (sums, block) = (Vec::new(), Box::new(Xxh3::new()));
                Ok(Output { file: Arc::new(file), body: 0, sums, block, reserved })
            }
            Err(e) => {
                self.give_room(reserved);
                let _ = fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// Bytes that a file with this body occupies.
    const fn bytes(&self, body: u64, blocks: u64) -> u64 {
        (FIXED as u64 + self.head.len() as u64 + body + blocks * 8).next_multiple_of(PAGE)
    }

    fn room_for(&self, bytes: u64) -> io::Result<()> {
        let none =
            || io::Error::new(io::ErrorKind::QuotaExceeded, "what is being written takes all of the store");
        self.disk.reserve(bytes).then_some(()).ok_or_else(none)
    }

    fn give_room(&self, bytes: u64) {
        let mut room = self.disk.room();
        room.writing = room.writing.saturating_sub(bytes);
    }

    /// Finishes the file and turns it into an object.
    fn keep(&self) -> io::Result<Arc<Entry>> {
        let mut slot = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(output) = &mut *slot else { return Err(io::ErrorKind::NotFound.into()) };
        output.end_block();
        (&*output.file).write_all(&table(&output.sums))?;
        let fixed = Fixed::new(&self.head, output.body, &output.sums);
        output.file.write_all_at(&fixed.write(true), 0)?;
        let named = std::mem::take(&mut self.state().named);
        let disk = &self.disk;
        // Under the lock, because a process that takes over the folder must not gain an object later.
        let folder = disk.folder.read().unwrap_or_else(PoisonError::into_inner);
        if folder.is_none() {
            return Err(io::Error::other("another process has the folder by now"));
        }
        let object = folder::object(&disk.path, self.number);
        fs::rename(folder::incoming(&disk.path, self.number), object)?;
        let entry = Arc::new(Entry::new(self.number, named, &fixed, false));
        disk.keep(&entry, output.reserved);
        *slot = None;
        drop((folder, slot));
        disk.counts.written.fetch_add(1, Relaxed);
        disk.bury(); // removes the object that it replaced
        Ok(entry)
    }

    /// Accepts no more data, and discards what was written.
    fn fail(&self, why: &io::Error) {
        let end = {
            let mut state = self.state();
            state.over = true;
            state.pieces.clear();
            state.end.take()
        };
        self.disk.failed(why);
        self.let_go();
        if let Some(End::Keep(done)) = end {
            done(None);
        }
    }

    fn let_go(&self) {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(output) = output {
            self.disk.room().doom_incoming(self.number, output.reserved);
        }
    }
}

impl Output {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(piece)?;
        let mut rest = piece;
        while !rest.is_empty() {
            let left = BLOCK - (self.body % BLOCK as u64) as usize;
            let (now, later) = rest.split_at(rest.len().min(left));
            self.block.update(now);
            self.body += now.len() as u64;
            rest = later;
            if self.body.is_multiple_of(BLOCK as u64) {
                self.end_block();
            }
        }
        Ok(())
    }

    /// Stores the checksum of the current block, if the block has any bytes.
    fn end_block(&mut self) {
        if (self.sums.len() * BLOCK) as u64 == self.body {
            return;
        }
        self.sums.push(self.block.digest());
        self.block.reset();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.number).finish()
    }
}
