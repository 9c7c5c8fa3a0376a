//! Programs of `exec` steps: each gets a line of JSON on its standard input and answers with one on its output.
//!
//! A load thread runs one process for each command line, whose users take turns. Its time is in the step's own row and
//! in nothing else. A program that ends, answers too late or with too long a line fails the step that asked; the next
//! one starts it again, at most [`STARTS_MOST`] times. What it writes to its standard error is shown as it is.
//!
//! A thread of its own talks to each process and waits for it, because load threads must not: they have sockets to
//! serve, and two kinds of reactors.

use crate::engine::worker::Slot;
use crate::os;
use crate::transport::failure::{Failure, Wait};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_plan::limits::LINE_BYTES;

/// How often a load thread starts the same program. One that keeps ending is broken.
const STARTS_MOST: u32 = 10;

/// How long a program may take to end after its input has ended.
const END: Duration = Duration::from_secs(1);

/// How often its end, and that of the run, are looked for.
const LOOK: Duration = Duration::from_millis(20);

/// The groups of processes that run, by their leaders. Locked while one starts or is waited for, so that each number
/// is that of a group of ours.
static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<u32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the programs of `exec` steps and whatever they started. Call it before the process exits while a load runs;
/// the end of a load does it by itself. If this process is killed, the kernel kills the programs, but not what they
/// started.
pub fn kill_programs() {
    groups().iter().for_each(|leader| os::kill_group(*leader));
}

/// The programs of a thread, by command line.
#[derive(Default)]
pub(super) struct Programs(RefCell<Vec<Program>>);

/// A program, and the thread that talks to it.
struct Program {
    command: Vec<String>,
    questions: mpsc::Sender<Question>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

/// A line for a program.
struct Question {
    line: Vec<u8>,
    asked: Instant,
    timeout: Duration,
    reply: oneshot::Sender<Result<Told, Unanswered>>,
}

/// The answer of a program.
#[derive(Debug)]
pub(super) struct Told {
    /// Without the end of the line.
    pub(super) line: Vec<u8>,
    /// From when it was this user's turn.
    pub(super) time: Duration,
}

/// Why there is none.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) failure: Failure,
    /// The program has failed as often as it may, and the run cannot go on.
    pub(super) is_final: bool,
}

impl Programs {
    /// Asks a program. Waits at most `timeout` for its turn, and as long for the answer.
    pub(super) async fn ask(
        &self,
        command: &[String],
        line: &[u8],
        timeout: Duration,
        slot: &Slot,
    ) -> Result<Told, Unanswered> {
        let failed = |text: &str| Unanswered { failure: Failure::Reset(text.to_owned()), is_final: true };
        let (reply, answer) = oneshot::channel();
        let line = [line, b"\n"].concat();
        let question = Question { line, asked: Instant::now(), timeout, reply };
        let sent = self.questions(command).map(|questions| questions.send(question));
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(failed("the thread of the program has ended")),
            Err(e) => return Err(failed(&format!("no thread for the program: {e}"))),
        }
        slot.end.set(None);
        let mut answer = std::pin::pin!(answer);
        poll_fn(|cx| {
            slot.watch(cx);
            if slot.end.take().is_some() {
                return Poll::Ready(Err(Unanswered { failure: Failure::Cut, is_final: false }));
            }
            let gone = |_| Err(failed("the thread of the program has ended"));
            answer.as_mut().poll(cx).map(|answer| answer.unwrap_or_else(gone))
        })
        .await
    }

    fn questions(&self, command: &[String]) -> io::Result<mpsc::Sender<Question>> {
        let mut all = self.0.borrow_mut();
        if let Some(program) = all.iter().find(|program| program.command == command) {
            return Ok(program.questions.clone());
        }
        let (questions, inbox) = mpsc::channel::<Question>();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut desk =
            Desk { command: command.to_vec(), running: None, starts: 0, is_over: Arc::clone(&is_over) };
        let work = move || {
            while let Ok(question) = inbox.recv() {
                // The run may have ended while the line waited: its user has gone.
                if question.reply.is_closed() {
                    continue;
                }
                let answer = desk.answer(&question);
                let _ = question.reply.send(answer); // a user that was cut has gone
            }
        };
        let thread = std::thread::Builder::new().name("weir-load-exec".to_owned()).spawn(work)?;
        let command = command.to_vec();
        all.push(Program { command, questions: questions.clone(), thread: Some(thread), is_over });
        Ok(questions)
    }
}

impl Drop for Program {
    /// Waits for the process to end, so that none outlives the run.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.questions = mpsc::channel().0; // the thread's inbox is closed
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // nobody can be told of a panic
        }
    }
}

/// The side of the thread.
struct Desk {
    command: Vec<String>,
    running: Option<Running>,
    starts: u32,
    is_over: Arc<AtomicBool>,
}

impl Desk {
    fn answer(&mut self, question: &Question) -> Result<Told, Unanswered> {
        let name = self.command.first().cloned().unwrap_or_default();
        let (turn, timeout) = (Instant::now(), question.timeout);
        if turn.duration_since(question.asked) > timeout {
            let text = format!("the program `{name}` was busy with the lines of other users for {timeout:?}");
            return Err(Unanswered { failure: Failure::Write(text), is_final: false });
        }
        let is_final = self.running.is_none() && self.starts >= STARTS_MOST;
        let failure = match self.ready() {
            Ok(running) => match running.ask(&question.line, turn + timeout) {
                Ok(line) => return Ok(Told { line, time: turn.elapsed() }),
                Err(Some(why)) => Failure::Reset(format!("the program `{name}` {why}")),
                Err(None) => Failure::Timeout(Wait::Program),
            },
            Err(why) => Failure::Connect(format!("the program `{name}` {why}")),
        };
        self.running = None; // dropping it ends it
        Err(Unanswered { failure, is_final })
    }

    /// The process, started if it does not run.
    fn ready(&mut self) -> Result<&mut Running, String> {
        if self.running.is_none() {
            if self.starts >= STARTS_MOST {
                return Err(format!("was started {STARTS_MOST} times, and ended or failed each time"));
            }
            self.starts += 1;
            let started = Running::start(&self.command, Arc::clone(&self.is_over));
            self.running = Some(started.map_err(|e| format!("could not be started: {e}"))?);
        }
        self.running.as_mut().ok_or_else(String::new)
    }
}

struct Running {
    process: Child,
    /// Its standard input and output.
    line: UnixStream,
    /// What it wrote after its last line.
    rest: Vec<u8>,
    /// Nothing is wrong with it: it may end by itself.
    is_fine: bool,
    /// The run has ended.
    is_over: Arc<AtomicBool>,
    /// It has ended, and so has what it started.
    ended: Option<ExitStatus>,
}

impl Running {
    fn start(command: &[String], is_over: Arc<AtomicBool>) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // A pair of sockets, because pipes have no time limits.
        let (line, theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(LOOK))?;
        line.set_write_timeout(Some(LOOK))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs));
        // In a group of its own, Ctrl-C does not end it before teardown, and what it starts ends with it.
        os::ends_with_us(&mut command);
        let mut groups = groups();
        let process = command.spawn()?;
        groups.push(process.id());
        drop(groups);
        drop(command); // it holds their end of the pair
        Ok(Self { process, line, rest: Vec::new(), is_fine: true, is_over, ended: None })
    }

    /// Writes a line and reads one. The error says what the program did instead; `None` that it was too slow.
    fn ask(&mut self, line: &[u8], until: Instant) -> Result<Vec<u8>, Option<String>> {
        self.is_fine = false;
        if !self.rest.is_empty() || self.has_more() {
            return Err(Some("wrote more than one line for one that it got".to_owned()));
        }
        let mut written = 0;
        while let Some(rest) = line.get(written..).filter(|rest| !rest.is_empty()) {
            match self.line.write(rest) {
                Ok(n) if n > 0 => written += n,
                Err(e) if is_wait(&e) => self.may_wait(until)?,
                _ => return Err(Some(self.ended())),
            }
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.rest) {
                let rest = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, rest);
                line.truncate(end);
                self.is_fine = true;
                return Ok(line);
            }
            if self.rest.len() > LINE_BYTES {
                return Err(Some(format!("answered with a line longer than {LINE_BYTES} bytes")));
            }
            match self.line.read(&mut buffer) {
                Ok(n) if n > 0 => self.rest.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(e) if is_wait(&e) => self.may_wait(until)?,
                _ => return Err(Some(self.ended())),
            }
        }
    }

    /// Whether it wrote something before it was asked, which would be taken for the answer.
    fn has_more(&mut self) -> bool {
        let mut byte = [0];
        let _ = self.line.set_nonblocking(true); // then the read waits for one look, which is no harm
        let came = self.line.read(&mut byte);
        let _ = self.line.set_nonblocking(false);
        matches!(came, Ok(n) if n > 0)
    }

    fn may_wait(&self, until: Instant) -> Result<(), Option<String>> {
        if Instant::now() < until && !self.is_over.load(Ordering::Relaxed) { Ok(()) } else { Err(None) }
    }

    /// How it ended, in words.
    fn ended(&mut self) -> String {
        // Its output is closed, so it has ended or is about to.
        match self.status(END) {
            Some(status) => format!("ended before it answered ({status})"),
            None => "closed its output before it answered".to_owned(),
        }
    }

    /// Its status, if it ends in time.
    fn status(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        while self.ended.is_none() {
            if os::has_ended(self.process.id()) {
                self.end();
            } else if Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            } else {
                break;
            }
        }
        self.ended
    }

    /// Ends it and what it started, and waits for it.
    fn end(&mut self) {
        let id = self.process.id();
        let mut groups = groups();
        // Before it is waited for: then its number may be that of another process.
        os::kill_group(id);
        self.ended = self.process.wait().ok();
        groups.retain(|group| *group != id);
    }
}

/// Whether the time for one look is over.
fn is_wait(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

impl Drop for Running {
    /// The end of its input asks it to end. One that does not is killed.
    fn drop(&mut self) {
        let _ = self.line.shutdown(Shutdown::Both); // it may have closed its side
        let most = if self.is_fine { END } else { Duration::ZERO };
        if self.status(most).is_none() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::worker::Slot;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    async fn ask(programs: &Programs, command: &[String], line: &str, ms: u64) -> Result<String, String> {
        let told = programs.ask(command, line.as_bytes(), Duration::from_millis(ms), &Slot::new()).await;
        told.map(|t| String::from_utf8(t.line).unwrap()).map_err(|e| e.failure.text().to_owned())
    }

    #[test]
    fn one_process_answers_all_lines_in_turn() {
        run(async {
            let programs = Programs::default();
            let echo = shell("while read -r line; do echo \"$$ $line\"; done");
            let (a, b) = tokio::join!(
                ask(&programs, &echo, "{\"a\":1}", 9000),
                ask(&programs, &echo, "{\"b\":2}", 9000)
            );
            let (a, b) = (a.unwrap(), b.unwrap());
            let (pid, line) = a.split_once(' ').unwrap();
            assert_eq!((line, b), ("{\"a\":1}", format!("{pid} {{\"b\":2}}")));
        });
    }

    #[test]
    fn what_goes_wrong_is_told_and_a_new_process_follows() {
        for (script, ms, want) in [
            ("read -r line; exit 3", 9000, "ended before it answered (exit status: 3)"),
            ("exec sleep 60", 50, "did not answer"),
            ("read -r line; head -c 1100000 /dev/zero", 9000, "longer than 1048576 bytes"),
            ("read -r line; printf 'a\\nb\\n'; exec sleep 60", 9000, "more than one line"),
        ] {
            run(async {
                let programs = Programs::default();
                let command = shell(script);
                let first = ask(&programs, &command, "{}", ms).await;
                let told = match first {
                    Ok(line) => {
                        assert_eq!(line, "a"); // its second line is seen when it is asked again
                        ask(&programs, &command, "{}", ms).await.unwrap_err()
                    }
                    Err(told) => told,
                };
                assert!(told.contains(want), "{script}: {told}");
                if want.starts_with("ended") {
                    for _ in 1..STARTS_MOST {
                        let _ = ask(&programs, &command, "{}", ms).await;
                    }
                    let last = ask(&programs, &command, "{}", ms).await.unwrap_err();
                    assert!(last.contains("was started 10 times"), "{last}");
                }
            });
        }
        run(async {
            let told = ask(&Programs::default(), &["/no/such".to_owned()], "{}", 100).await.unwrap_err();
            assert!(told.contains("`/no/such` could not be started"), "{told}");
        });
    }
}
