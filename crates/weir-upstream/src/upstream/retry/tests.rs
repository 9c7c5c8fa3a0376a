//! Whether, where and when a failed request is tried again.

use super::*;

fn retry() -> Retry {
    Retry {
        attempts: 3,
        on: Conditions { reset: true, statuses: vec![503], grpc: vec![14], ..Conditions::default() },
        all_methods: false,
        per_try: None,
        backoff: Duration::from_millis(20),
        body: 1024,
        budget: 0.2,
    }
}

const SAFE: Request = Request { idempotent: true, unseen: false, kept: true };

#[test]
fn only_what_is_listed_and_harmless_is_tried_again() {
    let retry = retry();
    let unsafe_ = Request { idempotent: false, ..SAFE };
    for (failed, request, made, expected) in [
        (Failed::Reset, SAFE, 1, true),
        (Failed::Reset, SAFE, 3, false),
        (Failed::Reset, unsafe_, 1, false),
        (Failed::Reset, Request { unseen: true, ..unsafe_ }, 1, true),
        (Failed::Reset, Request { kept: false, ..SAFE }, 1, false),
        (Failed::Timeout, SAFE, 1, false),
        (Failed::Status(503, None), SAFE, 2, true),
        (Failed::Status(502, None), SAFE, 1, false),
        (Failed::Grpc(14), SAFE, 1, true),
        (Failed::Grpc(13), SAFE, 1, false),
        (Failed::RefusedStream, SAFE, 1, false),
    ] {
        assert_eq!(retry.wants(failed, request, made), expected, "{failed:?} {request:?} {made}");
    }
    let all = Retry { all_methods: true, ..retry };
    assert!(all.wants(Failed::Reset, unsafe_, 1));
}

#[test]
fn pauses_grow_and_respect_what_was_asked() {
    let retry = retry();
    let ms = |nth, random| retry.pause(Failed::Reset, nth, random).unwrap().as_millis();
    assert_eq!([ms(0, 0), ms(0, u32::MAX), ms(1, 0), ms(2, 0), ms(99, u32::MAX)], [10, 20, 20, 40, 640]);
    let asked = |seconds| retry.pause(Failed::Status(503, Some(Duration::from_secs(seconds))), 0, 0);
    assert_eq!((asked(1), asked(60)), (Some(Duration::from_secs(1)), None));
}

/// Surroundings with this many other endpoints, tokens and milliseconds left. They record the calls.
#[derive(Default)]
struct Fake {
    others: usize,
    tokens: usize,
    left: u64,
    avoided: usize,
    shares: Vec<f64>,
}

impl World for Fake {
    fn avoid(&mut self) {
        self.avoided += 1;
    }

    fn another(&mut self) -> Option<usize> {
        self.others.checked_sub(1).inspect(|left| self.others = *left)
    }

    fn random(&mut self) -> u32 {
        u32::MAX
    }

    fn has_time_for(&mut self, pause: Duration) -> bool {
        pause < Duration::from_millis(self.left)
    }

    fn pays(&mut self, share: f64) -> bool {
        self.shares.push(share);
        self.tokens.checked_sub(1).inspect(|left| self.tokens = *left).is_some()
    }
}

const LOST: Lost = Lost { failed: Failed::Reset, request: SAFE, race: None };

const fn race(race: Race) -> Lost {
    let request = Request { unseen: !matches!(race, Race::KeptAlive), ..SAFE };
    let failed = if request.unseen { Failed::RefusedStream } else { Failed::Reset };
    Lost { failed, request, race: Some(race) }
}

const fn again(at: Option<usize>, ms: u64) -> Decision {
    Decision::Again { at, pause: Duration::from_millis(ms) }
}

/// The decisions after consecutive failures of one request; `(others, tokens, left)` describes the surroundings.
#[test]
fn one_request_fails_again_and_again() {
    use Decision::{Never, Unpaid};
    let plenty = (9, 9, 1_000);
    let asked = Lost { failed: Failed::Status(503, Some(Duration::from_secs(1))), ..LOST };
    let listed = Retry { on: Conditions { refused_stream: true, ..retry().on }, ..retry() };
    let unsafe_ = Lost { request: Request { idempotent: false, ..SAFE }, ..LOST };
    let (kept_alive, left_out, refused) = (race(Race::KeptAlive), race(Race::LeftOut), race(Race::Refused));
    let policy = &Some(retry());
    for (name, retry, world, failures, decisions) in [
        ("a reset, once, elsewhere", &None, plenty, vec![LOST; 2], vec![again(Some(8), 0), Never]),
        ("nowhere else to go", &None, (0, 9, 1_000), vec![LOST], vec![Never]),
        ("not harmless", &None, plenty, vec![unsafe_], vec![Never]),
        ("elsewhere, and no budget", &None, (9, 0, 1_000), vec![LOST], vec![Unpaid]),
        (
            "by policy, twice",
            policy,
            plenty,
            vec![LOST; 3],
            vec![again(Some(8), 0), again(Some(7), 0), Never],
        ),
        (
            "by policy, at the same",
            policy,
            (0, 9, 1_000),
            vec![LOST; 2],
            vec![again(None, 20), again(None, 40)],
        ),
        ("by policy, and no budget", policy, (9, 0, 1_000), vec![LOST], vec![Unpaid]),
        ("by policy, and no time", policy, (0, 9, 20), vec![LOST], vec![Never]),
        ("Retry-After", policy, (0, 9, 2_000), vec![asked], vec![again(None, 1_000)]),
        (
            "the keep-alive race: pooled, fresh, then a reset like any other",
            &None,
            plenty,
            vec![kept_alive; 4],
            vec![again(None, 0), again(None, 0), again(Some(8), 0), Never],
        ),
        ("a race costs no budget", &None, (0, 0, 1_000), vec![kept_alive], vec![again(None, 0)]),
        ("a refused stream costs some", &None, (9, 1, 1_000), vec![refused; 2], vec![again(None, 0), Never]),
        ("GOAWAY costs some", &None, (9, 0, 1_000), vec![left_out], vec![Never]),
        (
            "refused streams count where there is a policy",
            policy,
            plenty,
            vec![refused; 3],
            vec![again(None, 0), again(None, 0), Never],
        ),
        ("refused, unpaid, and asked for", &Some(listed), (9, 0, 1_000), vec![refused], vec![Unpaid]),
    ] {
        let (others, tokens, left) = world;
        let mut world = Fake { others, tokens, left, ..Fake::default() };
        let mut tally = Tally::default();
        let decide = |lost| {
            tally.begin();
            tally.again(retry.as_ref(), lost, &mut world)
        };
        assert_eq!(failures.into_iter().map(decide).collect::<Vec<_>>(), decisions, "{name}");
        assert!(world.shares.iter().all(|share| *share == 0.2), "{name}");
    }
}

#[test]
fn the_last_repeat_of_a_race_is_on_a_fresh_connection() {
    for (which, fresh, avoided) in [
        (Race::KeptAlive, [false, true], 2),
        (Race::LeftOut, [false, true], 2),
        (Race::Refused, [false, false], 0),
    ] {
        let (mut tally, mut world) = (Tally::default(), Fake { tokens: 9, ..Fake::default() });
        let found = [(); 2].map(|()| {
            tally.begin();
            assert_eq!(tally.again(None, race(which), &mut world), again(None, 0));
            tally.wants_fresh()
        });
        assert_eq!((found, world.avoided), (fresh, avoided), "{which:?}");
    }
}

#[test]
fn three_connects_may_time_out_and_a_hedge_is_an_attempt() {
    let mut tally = Tally::default();
    let more = [(true, false), (true, true), (true, true), (true, true)].map(|(elsewhere, timed_out)| {
        tally.begin();
        (tally.may_time_out(), tally.unreached(elsewhere, timed_out))
    });
    assert_eq!(more, [(true, true), (true, true), (true, true), (false, false)]);
    let mut tally = Tally::default();
    tally.begin();
    assert!(!tally.unreached(false, false), "no other endpoint can do better");
    tally.begin();
    assert!(tally.may_hedge(None) && tally.may_hedge(Some(&retry())));
    tally.hedged();
    assert!(!tally.may_hedge(None) && tally.may_hedge(Some(&retry())));
    tally.hedged();
    assert!(!tally.may_hedge(Some(&retry())));
}

#[test]
fn facts_tell_races_from_faults() {
    let facts = Facts {
        cause: &error::UPSTREAM_CLOSED,
        idempotent: true,
        written: true,
        kept: true,
        reused: true,
        refused: false,
        reset: false,
    };
    let post = Facts { idempotent: false, ..facts };
    for (name, facts, expected) in [
        ("kept alive", facts, Some((Failed::Reset, Some(Race::KeptAlive)))),
        ("a new connection", Facts { reused: false, ..facts }, Some((Failed::Reset, None))),
        ("a POST that was written", post, Some((Failed::Reset, None))),
        (
            "a POST that was not",
            Facts { written: false, ..post },
            Some((Failed::Reset, Some(Race::KeptAlive))),
        ),
        ("its body is gone", Facts { kept: false, ..facts }, Some((Failed::Reset, None))),
        ("the stream alone", Facts { reset: true, ..facts }, Some((Failed::Reset, None))),
        (
            "refused",
            Facts { reset: true, refused: true, ..post },
            Some((Failed::RefusedStream, Some(Race::Refused))),
        ),
        ("left out", Facts { refused: true, ..post }, Some((Failed::RefusedStream, Some(Race::LeftOut)))),
        ("silent", Facts { cause: &error::RESPONSE_TIMEOUT, ..facts }, Some((Failed::Timeout, None))),
        ("malformed", Facts { cause: &error::BAD_RESPONSE, ..facts }, None),
    ] {
        assert_eq!(Lost::of(&facts).map(|lost| (lost.failed, lost.race)), expected, "{name}");
    }
    let unseen = |facts: &Facts| Lost::of(facts).is_some_and(|lost| lost.request.unseen);
    assert!(
        !unseen(&post)
            && unseen(&Facts { written: false, ..post })
            && unseen(&Facts { refused: true, ..post })
    );
}

#[test]
fn bodies_are_kept_for_what_may_be_repeated() {
    let all = Retry { all_methods: true, ..retry() };
    for (retry, idempotent, h2, may_repeat, kept) in [
        (None, true, false, false, None),
        (None, true, false, true, Some(KEPT_BYTES)),
        (None, false, false, true, None),
        (None, false, true, false, Some(KEPT_BYTES)),
        (Some(&retry()), true, false, false, Some(1024)),
        (Some(&retry()), false, false, true, None),
        (Some(&all), false, false, false, Some(1024)),
    ] {
        assert_eq!(kept_body(retry, idempotent, h2, may_repeat), kept, "{idempotent} {h2} {may_repeat}");
    }
}
