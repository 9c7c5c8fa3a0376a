//! The state on disk across versions: 1.0 reads what 0.1 left, and 0.1 reads what 1.0 leaves.
//!
//! `of_0_1` is a folder as 0.1 writes it. The types below are those that 0.1 reads with.

use super::*;
use crate::history::Origin;
use std::collections::BTreeSet;

/// A revision's first line for 0.1, which ignores fields that it does not know.
#[derive(Deserialize)]
struct RevisionOf0_1 {
    number: u64,
    hash: String,
    hand: String,
    parent: Option<u64>,
    time: String,
    author: String,
    source: String,
    message: String,
    #[serde(default)]
    verdict: String,
    #[serde(default)]
    changed: Vec<String>,
    #[serde(default)]
    trial: Option<TrialOf0_1>,
    files: Vec<FileOf0_1>,
}

#[derive(Deserialize)]
struct TrialOf0_1 {
    began: u64,
    #[serde(default)]
    watch: Option<u64>,
    #[serde(default)]
    confirm: Option<u64>,
}

#[derive(Deserialize)]
struct FileOf0_1 {
    path: String,
    bytes: usize,
    #[serde(default)]
    managed: bool,
}

/// Hand-written files that may not run, for 0.1.
#[derive(Deserialize)]
struct PinOf0_1 {
    refused: String,
    accepted: u64,
    why: String,
}

/// A copy of the folder that 0.1 left.
fn left_by_0_1() -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/history/store/of_0_1");
    let to = tempfile::tempdir().unwrap();
    for folder in ["revisions", "verdicts"] {
        fs::create_dir(to.path().join(folder)).unwrap();
        for file in fs::read_dir(from.join(folder)).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), to.path().join(folder).join(file.file_name())).unwrap();
        }
    }
    fs::copy(from.join("refused"), to.path().join("refused")).unwrap();
    to
}

#[test]
fn what_0_1_left_is_read() {
    let folder = left_by_0_1();
    let history = History::open(folder.path()).unwrap();
    let told: Vec<_> = history
        .revisions()
        .iter()
        .map(|one| (one.number, one.parent, &*one.author, one.source, &*one.verdict))
        .collect();
    assert_eq!(
        told,
        [
            (1, None, "weir", Origin::Start, "accepted"),
            (2, Some(1), "ann", Origin::Api, "taken back: more errors"),
            (3, Some(2), "weir", Origin::Guard, "accepted"),
        ]
    );
    let trial = history.get(2).unwrap().trial.unwrap();
    assert_eq!(
        (trial.began, trial.watch, trial.confirm, trial.goes_on),
        (1_763_633_100_000, Some(300_000), None, false)
    );
    let texts = history.texts(2).unwrap();
    assert_eq!(texts.written[0].path, Path::new("weir.yaml"));
    assert_eq!(
        &*texts.managed.unwrap().text,
        "routes:\n  a: { match: { path: /é }, respond: { status: 204 } }\n"
    );
    let pin = Pin { refused: "0badc0ffee12".into(), accepted: 3, why: "it made more errors".into() };
    assert_eq!(history.pin(), Some(&pin));
}

#[test]
fn what_1_0_adds_is_read_by_0_1() {
    let folder = left_by_0_1();
    let mut history = History::open(folder.path()).unwrap();
    let text = |path: &str, text: &str| Text { path: path.into(), text: text.into() };
    let texts = Texts {
        written: vec![text("weir.yaml", "version: 1\n")],
        managed: Some(text("managed.yaml", "routes: {}\n")),
        hand: "hand".into(),
        hash: "all".into(),
        ..Texts::default()
    };
    let by = By { author: "ben".into(), origin: Origin::Reload, message: "because".into() };
    let trial = OnTrial { began: 7, watch: None, confirm: Some(60_000), goes_on: true };
    let staged = history.stage(&texts, &by, vec!["routes.b".into()], Some(trial)).unwrap();
    assert_eq!(history.accept(staged).unwrap(), 4);
    history.judge(4, "rolled back").unwrap();
    history.set_pin(Some(Pin { refused: "x".into(), accepted: 4, why: "bad".into() })).unwrap();
    history.write_switches(&BTreeMap::from([("deploy".to_owned(), 9)])).unwrap();

    let stored = fs::read_to_string(folder.path().join("revisions/00000004")).unwrap();
    let (head, content) = stored.split_once('\n').unwrap();
    let read: RevisionOf0_1 = serde_json::from_str(head).unwrap();
    assert_eq!((read.number, &*read.hash, &*read.hand, read.parent), (4, "all", "hand", Some(3)));
    assert_eq!((&*read.author, &*read.source, &*read.message), ("ben", "reload", "because"));
    assert_eq!((&*read.verdict, read.changed), ("accepted", vec!["routes.b".to_owned()]));
    assert!(timestamp_is_whole(&read.time), "{}", read.time);
    let trial = read.trial.unwrap();
    assert_eq!((trial.began, trial.watch, trial.confirm), (7, None, Some(60_000)));
    let files: Vec<_> = read.files.iter().map(|file| (&*file.path, file.bytes, file.managed)).collect();
    assert_eq!(files, [("weir.yaml", 11, false), ("managed.yaml", 11, true)]);
    assert_eq!(content, "version: 1\nroutes: {}\n");
    assert_eq!(fs::read_to_string(folder.path().join("verdicts/00000004")).unwrap(), "rolled back");
    let pin: PinOf0_1 =
        serde_json::from_str(&fs::read_to_string(folder.path().join("refused")).unwrap()).unwrap();
    assert_eq!((&*pin.refused, pin.accepted, &*pin.why), ("x", 4, "bad"));
    // Everything else has a name that 0.1 does not look at.
    let names: BTreeSet<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["refused", "revisions", "switches", "verdicts"].map(str::to_owned).into());
}

fn timestamp_is_whole(text: &str) -> bool {
    text.len() == "2026-11-20T10:00:00.000Z".len() && text.ends_with('Z')
}
