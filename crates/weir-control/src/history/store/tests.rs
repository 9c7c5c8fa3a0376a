//! Interrupted histories: at every step by an error, and at every step by the end of the process.

use super::super::{Origin, Step};
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The disk is full.
    Fail,
    /// The process is killed: nothing after this step happens, not even cleanup.
    Kill,
}

/// Counts steps and acts at one of them.
#[derive(Clone)]
struct Until(Arc<AtomicUsize>, Then);

impl Steps for Until {
    fn next(&self, _: Step) -> io::Result<()> {
        let left = self.0.load(Relaxed);
        self.0.store(left.saturating_sub(1), Relaxed);
        match (left, self.1) {
            (1, Then::Fail) => Err(io::ErrorKind::StorageFull.into()),
            (1, Then::Kill) => std::panic::resume_unwind(Box::new("killed")),
            _ => Ok(()),
        }
    }
}

fn texts(written: &str, managed: &str) -> Texts {
    let text = |path: &str, text: &str| Text { path: path.into(), text: text.into() };
    Texts {
        written: vec![text("weir.yaml", written), text("more.yaml", "é\n")],
        bootstrap: None,
        managed: Some(text("managed.yaml", managed)),
        managed_path: Some("managed.yaml".into()),
        state: None,
        hand: format!("hand {written}"),
        hash: format!("all {written} {managed}"),
    }
}

fn by() -> By {
    By { author: "ann".to_owned(), origin: Origin::Api, message: "because".to_owned() }
}

fn add(history: &mut History, texts: &Texts) -> io::Result<u64> {
    let staged = history.stage(texts, &by(), vec!["routes.a".to_owned()], None)?;
    history.accept(staged)
}

#[test]
fn what_is_kept_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(&folder.path().join("state")).unwrap();
    assert!(history.latest().is_none());
    assert_eq!(add(&mut history, &texts("one", "m")).unwrap(), 1);
    assert_eq!(add(&mut history, &texts("two", "m")).unwrap(), 2);
    history.judge(1, "rolled back").unwrap();
    history.set_pin(Some(Pin { refused: "x".into(), accepted: 1, why: "bad".into() })).unwrap();

    let again = History::open(&folder.path().join("state")).unwrap();
    assert_eq!(again.revisions(), history.revisions());
    assert_eq!(again.pin(), history.pin());
    let first = again.get(1).unwrap();
    assert_eq!((&*first.author, &*first.verdict, first.parent), ("ann", "rolled back", None));
    assert_eq!(again.get(2).unwrap().parent, Some(1));
    let read = again.texts(2).unwrap();
    assert_eq!(read, texts("two", "m"));
    assert!(again.get(3).is_none() && again.texts(3).is_err());
    history.set_pin(None).unwrap();
    assert!(Pin::read(&folder.path().join("state")).unwrap().is_none());

    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(again.folder()), mode(&again.path(1))), (0o700, 0o600));
}

#[test]
fn only_so_many_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(folder.path()).unwrap();
    history.set_pin(Some(Pin { refused: "x".into(), accepted: 2, why: String::new() })).unwrap();
    for n in 0..MOST + 5 {
        add(&mut history, &texts(&n.to_string(), "")).unwrap();
    }
    let numbers = |history: &History| history.revisions().iter().map(|r| r.number).collect::<Vec<_>>();
    let kept = numbers(&history);
    assert_eq!(
        (kept.len(), kept[0], kept[1], *kept.last().unwrap()),
        (MOST, 2, 7, 105),
        "what runs is not forgotten"
    );
    assert_eq!(numbers(&History::open(folder.path()).unwrap()), kept);

    // By bytes: two of these exceed the limit, but two always stay.
    let large = "x".repeat(40 << 20);
    for n in 0..3 {
        add(&mut history, &texts(&format!("{n}{large}"), "")).unwrap();
    }
    assert_eq!(numbers(&history), [2, 107, 108]);
}

#[test]
fn what_is_damaged_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(folder.path()).unwrap();
    add(&mut history, &texts("one", "")).unwrap();
    add(&mut history, &texts("two", "")).unwrap();
    fs::write(history.path(1), "no json\n").unwrap();
    fs::write(history.path(3), "").unwrap();
    fs::write(folder.path().join("revisions/notes.txt"), "").unwrap();
    let whole = fs::read(history.path(2)).unwrap();
    fs::write(history.path(2), &whole[..whole.len() - 1]).unwrap();
    let mut again = History::open(folder.path()).unwrap();
    assert_eq!(again.revisions().len(), 1);
    assert!(again.texts(2).is_err(), "cut short");
    // An unreadable file's number is not reused.
    assert_eq!(add(&mut again, &texts("three", "")).unwrap(), 4);
}

/// A change as a gateway makes it: staged, the managed file written, accepted.
fn change(history: &mut History, texts: &Texts) -> io::Result<u64> {
    let staged = history.stage(texts, &by(), Vec::new(), None)?;
    if let Err(e) = history.write_managed(texts.managed.as_ref().unwrap()) {
        history.abandon();
        return Err(e);
    }
    history.accept(staged)
}

#[test]
fn a_change_is_whole_or_not_at_all_wherever_it_ends() {
    for then in [Then::Fail, Then::Kill] {
        let mut outcomes = Vec::new();
        for step in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let managed = folder.path().join("managed.yaml");
            let state = folder.path().join("state");
            let config = |what: &str| {
                let mut texts = texts("hand", what);
                texts.managed.as_mut().unwrap().path.clone_from(&managed);
                texts
            };
            let (old, new) = (config("old"), config("new"));
            change(&mut History::open(&state).unwrap(), &old).unwrap();

            let steps = Until(Arc::new(step.into()), then);
            let mut history = History::open_with(&state, Box::new(steps.clone())).unwrap();
            let outcome = catch_unwind(AssertUnwindSafe(|| change(&mut history, &new)));
            drop(history);

            // The next process.
            let on_disk = fs::read_to_string(&managed).unwrap();
            let now = if on_disk == "new" { &new } else { &old };
            assert!(on_disk == "new" || on_disk == "old", "step {step}: {on_disk:?}");
            let mut again = History::open(&state).unwrap();
            again.recover(now);
            assert!(!again.pending().exists(), "step {step}");
            let last = again.latest().unwrap().clone();
            assert_eq!(again.texts(last.number).unwrap().hash, last.hash, "step {step}");
            if then == Then::Kill {
                // The disk and the history's last entry agree, including the author.
                assert_eq!((last.hash, &*last.author), (now.hash.clone(), "ann"), "step {step}");
            }
            match outcome {
                Ok(Ok(_)) => assert_eq!(on_disk, "new", "step {step}"),
                Ok(Err(e)) => assert_eq!(e.kind(), io::ErrorKind::StorageFull),
                Err(_) => assert_eq!(then, Then::Kill),
            }
            if steps.0.load(Relaxed) > 0 {
                break; // no such step
            }
            outcomes.push(on_disk);
        }
        let changes = outcomes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // A failure after a rename is reported but does not undo it, so failures mark no single border between old
        // and new.
        if then == Then::Kill {
            assert_eq!(changes, 1, "old up to one step, new from there: {outcomes:?}");
        }
        assert!(outcomes.len() >= 10, "{outcomes:?}");
    }
}
