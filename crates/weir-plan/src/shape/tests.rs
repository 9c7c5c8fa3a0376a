//! Properties of shapes: exact counts, ascending starts, and agreement of everybody who asks.

use super::course::ONE;
use super::parts::Mistake;
use super::*;
use std::num::NonZeroU32;

const S: u64 = 1_000_000_000;

fn piece(form: Form) -> Piece {
    Piece { name: None, form }
}

fn hold(per_second: f64, seconds: u64) -> Piece {
    piece(Form::Hold { at: level(per_second), ns: seconds * S })
}

fn ramp(per_second: f64, seconds: u64) -> Piece {
    piece(Form::Ramp { to: level(per_second), ns: seconds * S })
}

fn wave(mean: f64, swing: f64, every: u64, seconds: u64) -> Piece {
    let (mean, swing) = (level(mean), level(swing));
    piece(Form::Wave { mean, swing, every_ns: every * S, ns: seconds * S })
}

fn even(pieces: &[Piece]) -> Course {
    Course::new(pieces, Spacing::Even, 1).unwrap()
}

fn all(shape: &Course) -> Vec<u64> {
    let mut path = Path::default();
    let starts: Vec<u64> = (0..).map_while(|k| shape.start_with(k, &mut path)).collect();
    assert_eq!(starts.len() as u64, shape.starts());
    starts
}

/// One of everything.
fn mixed() -> Vec<Piece> {
    vec![
        hold(7.0, 3),
        ramp(50.0, 10),
        piece(Form::Jump { at: level(400.0), ns: 2 * S }),
        piece(Form::Pause { ns: 5 * S }),
        wave(30.0, 30.0, 7, 20),
        piece(Form::Steps { from: level(10.0), by: level(4.0), to: level(20.0), every_ns: S }),
        piece(Form::File { counts: vec![13, 0, 1, 7], every_ns: 3 * S }),
        ramp(0.0, 4),
    ]
}

#[test]
fn even_starts_are_where_the_area_reaches_whole_numbers() {
    let s = even(&[hold(5000.0, 86_400)]);
    assert_eq!([0, 1, 5000, 5000 * 86_399].map(|k| s.start(k)), [0, 200_000, S, 86_399 * S].map(Some));
    assert_eq!((s.starts(), s.start(5000 * 86_400)), (5000 * 86_400, None));
    assert_eq!((s.due_by(0), s.due_by(S - 1), s.due_by(S)), (1, 5000, 5001));
    // 0 to 100 in 10 s: 500 requests, the k-th at the square root of k/5.
    let s = even(&[ramp(100.0, 10), hold(100.0, 5), ramp(0.0, 2)]);
    assert_eq!(s.starts(), 1100);
    assert_eq!([0, 5, 125, 500, 1000].map(|k| s.start(k)), [0, S, 5 * S, 10 * S, 15 * S].map(Some));
    // Rates that no double holds: 7 in a minute, and a third of a request per second as 20 per minute.
    let s = even(&[hold(7.0 / 60.0, 3600), hold(20.0 / 60.0, 3600)]);
    assert_eq!((s.starts(), s.start(420)), (420 + 1200, Some(3600 * S)));
    assert_eq!(s.start(421), Some(3603 * S));
}

#[test]
fn a_start_comes_after_a_pause_and_not_at_its_beginning() {
    let s = even(&[piece(Form::Pause { ns: S }), hold(10.0, 1), piece(Form::Pause { ns: S }), hold(10.0, 1)]);
    assert_eq!([0, 9, 10].map(|k| s.start(k)), [S, S + 900_000_000, 3 * S].map(Some));
    assert_eq!((s.due_by(S - 1), s.due_by(S), s.due_by(3 * S - 1), s.due_by(3 * S)), (0, 1, 10, 11));
}

#[test]
fn counts_of_a_file_are_exact_whatever_comes_before() {
    let counts = vec![13, 0, 1, 999, 7, 7, 0, 12_345];
    for before in [0.0, 0.3, 1.7, 1234.567] {
        let mut pieces = vec![piece(Form::File { counts: counts.clone(), every_ns: 60 * S })];
        if before > 0.0 {
            pieces.insert(0, hold(before, 11));
        }
        let s = even(&pieces);
        let from = s.parts().last().unwrap().begin_ns;
        let starts = all(&s);
        for (i, n) in counts.iter().enumerate() {
            let (begin, end) = (from + i as u64 * 60 * S, from + (i as u64 + 1) * 60 * S);
            let inside = starts.iter().filter(|at| (begin..end).contains(*at)).count() as u64;
            assert_eq!(inside, *n, "interval {i} after {before}/s");
        }
    }
}

#[test]
fn each_start_is_in_order_and_due_exactly_then() {
    for spacing in [Spacing::Even, Spacing::Burst(NonZeroU32::new(7).unwrap()), Spacing::Poisson] {
        let s = Course::new(&mixed(), spacing, 42).unwrap();
        let starts = all(&s);
        assert!(starts.is_sorted(), "{spacing:?}");
        assert!(*starts.last().unwrap() < s.end_ns(), "{spacing:?}");
        for at in
            starts.iter().flat_map(|at| [at.saturating_sub(1), *at, at + 1]).chain([0, s.end_ns(), u64::MAX])
        {
            let due = starts.partition_point(|start| *start <= at) as u64;
            assert_eq!(s.due_by(at), due, "{spacing:?} at {at}");
        }
    }
}

#[test]
fn the_count_is_the_area_whatever_the_spacing() {
    // 21 + 285 + 800 + 600 + (10 + 14 + 18 + 20) + 21, the ramp down from 7/3 per second.
    let area = 21.0 + 285.0 + 800.0 + 62.0 + 21.0 + 7.0 / 3.0 * 2.0;
    let mut of_wave = 30.0 * 20.0;
    let every = 7.0;
    of_wave += 30.0 * every / std::f64::consts::TAU * (1.0 - (std::f64::consts::TAU * 20.0 / every).cos());
    for spacing in [Spacing::Even, Spacing::Burst(NonZeroU32::new(20).unwrap()), Spacing::Poisson] {
        let s = Course::new(&mixed(), spacing, 3).unwrap();
        assert!((s.starts() as f64 - (area + of_wave)).abs() <= 1.0, "{} for {}", s.starts(), area + of_wave);
    }
}

#[test]
fn stripes_together_are_the_whole() {
    for spacing in [Spacing::Even, Spacing::Burst(NonZeroU32::new(3).unwrap()), Spacing::Poisson] {
        let s = Course::new(&mixed(), spacing, 9).unwrap();
        let whole = all(&s);
        for stripes in [2, 3, 7] {
            let mut together = Vec::new();
            for first in 0..stripes {
                let mut path = Path::default();
                together
                    .extend((first..).step_by(stripes as usize).map_while(|k| s.start_with(k, &mut path)));
            }
            together.sort_unstable();
            assert_eq!(together, whole, "{spacing:?} in {stripes} stripes");
        }
        // In any order, and from nothing.
        for k in [whole.len() - 1, 5, 800, 6, 0] {
            assert_eq!(s.start(k as u64), Some(whole[k]));
        }
    }
}

#[test]
fn the_seed_decides_where_random_starts_lie() {
    let of = |seed| all(&Course::new(&[hold(100.0, 60)], Spacing::Poisson, seed).unwrap());
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn random_starts_are_those_of_a_poisson_process() {
    let s = Course::new(&[hold(1000.0, 100)], Spacing::Poisson, 5).unwrap();
    let starts = all(&s);
    let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    // An exponential distribution has the deviation of its mean, and e^-1 of it lies above.
    assert!((mean - 1.0).abs() < 0.01 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
    let long = gaps.iter().filter(|g| **g > 1.0).count() as f64 / gaps.len() as f64;
    assert!((long - 1.0_f64.exp().recip()).abs() < 0.01, "{long}");
    // Counts of seconds vary like a Poisson distribution's: by their mean.
    let counts: Vec<f64> =
        (0..100).map(|i| (s.due_by((i + 1) * S - 1) - s.due_by(i * S).saturating_sub(1)) as f64).collect();
    let variance = counts.iter().map(|n| (n - 1000.0).powi(2)).sum::<f64>() / 100.0;
    assert!((600.0..1500.0).contains(&variance), "{variance}");
    // Neighbors are independent of each other.
    let both: f64 = gaps.windows(2).map(|p| (p[0] - mean) * (p[1] - mean)).sum::<f64>() / gaps.len() as f64;
    assert!(both.abs() < 0.02, "{both}");
}

#[test]
fn random_starts_follow_the_rate() {
    let s = Course::new(&[hold(10.0, 100), hold(90.0, 100)], Spacing::Poisson, 8).unwrap();
    let early = s.due_by(100 * S);
    // 1,000 of 10,000: one standard deviation is 30.
    assert!((850..1150).contains(&early), "{early}");
}

#[test]
fn bursts_start_together() {
    let s = Course::new(&[hold(10.0, 3)], Spacing::Burst(NonZeroU32::new(20).unwrap()), 1).unwrap();
    assert_eq!((s.start(0), s.start(19), s.start(20), s.start(29), s.start(30)), {
        (Some(0), Some(0), Some(2 * S), Some(2 * S), None)
    });
    assert_eq!((s.due_by(0), s.due_by(2 * S - 1), s.due_by(2 * S)), (20, 20, 30));
}

#[test]
fn long_and_fast_shapes_stay_exact() {
    // A year of ramps, and the highest rate for a day.
    let year = 365 * 86_400;
    for pieces in
        [vec![ramp(1.0, year), ramp(0.0, 86_400)], vec![hold(10e6, 86_400)], vec![ramp(10e6, 86_400)]]
    {
        let s = even(&pieces);
        for k in [1, 2, s.starts() / 3, s.starts() / 2, s.starts() - 2, s.starts() - 1] {
            let at = s.start(k).unwrap();
            assert!(s.start(k - 1).unwrap() <= at);
            let due = s.due_by(at);
            assert!(
                due > k && at.checked_sub(1).is_none_or(|before| s.due_by(before) <= k),
                "{k}: {due} at {at}"
            );
        }
    }
}

#[test]
fn parts_have_names_and_places() {
    let mut pieces = vec![hold(10.0, 1), piece(Form::Jump { at: level(90.0), ns: S }), hold(10.0, 1)];
    pieces[1].name = Some("spike".to_owned());
    let s = even(&pieces);
    let told: Vec<_> = s.parts().iter().map(|p| (p.name.as_str(), p.begin_ns, p.end_ns)).collect();
    assert_eq!(told, [("hold", 0, S), ("spike", S, 2 * S), ("hold_2", 2 * S, 3 * S)]);
    assert_eq!([0, S - 1, S, 2 * S, 9 * S].map(|at| s.part_at(at)), [0, 0, 1, 2, 2]);
    assert!((s.highest() - 90.0).abs() < 1e-9);
    pieces[2].name = Some("spike".to_owned());
    assert_eq!(Course::new(&pieces, Spacing::Even, 1), Err(Mistake::Name(2)));
}

#[test]
fn what_makes_no_shape_is_refused() {
    let steps = |by, every_ns| piece(Form::Steps { from: level(1.0), by, to: level(9e6), every_ns });
    for (pieces, want) in [
        (vec![], Mistake::Empty),
        (vec![hold(0.0, 5), piece(Form::Pause { ns: S })], Mistake::Nothing),
        (vec![hold(1.0, 5), hold(1.0, 0)], Mistake::NoLength(1)),
        (vec![wave(5.0, 6.0, 1, 1)], Mistake::Swing(0)),
        (vec![wave(5.0, 5.0, 0, 1)], Mistake::NoLength(0)),
        (vec![steps(0, S)], Mistake::NoStep(0)),
        (vec![steps(ONE, 1)], Mistake::TooMany),
        (vec![hold(10e6 + 1.0, 1)], Mistake::TooHigh),
        (vec![hold(1.0, 367 * 86_400)], Mistake::TooLong),
    ] {
        assert_eq!(Course::new(&pieces, Spacing::Even, 1).err(), Some(want));
    }
}

#[test]
fn users_come_and_go_with_the_value() {
    let u = even(&[ramp(10.0, 10), hold(10.0, 5), ramp(0.0, 10)]);
    assert_eq!([0, 1, 5, 10, 12, 20, 25].map(|s| u.users_at(s * S)), [0, 1, 5, 10, 10, 5, 0]);
    assert_eq!([0, 4, 9].map(|i| u.user_next(i, 0)), [S, 5 * S, 10 * S].map(Some));
    assert_eq!(
        (u.user_next(0, 3 * S), u.user_next(9, 20 * S), u.user_next(10, 0)),
        (Some(3 * S), None, None)
    );
    assert_eq!(u.users_most(), 10);
    let u = even(&[wave(10.0, 5.0, 8, 80), piece(Form::File { counts: vec![3, 0, 4], every_ns: S })]);
    assert_eq!([0, 2, 4, 6, 80, 81, 82].map(|s| u.users_at(s * S)), [10, 15, 10, 5, 3, 0, 4]);
    // The sine reaches 15 a quarter of a period after it began, and 12.5 a twelfth after.
    for (number, from, want) in [(14, 3 * S, 10.0), (11, 5 * S, 8.0 + 0.524)] {
        let at = u.user_next(number, from).unwrap() as f64 / 1e9;
        assert!((at - want).abs() < 0.01, "{number}: {at}");
    }
    assert_eq!((u.user_next(3, 79 * S), u.user_next(3, 80 * S)), (Some(79 * S), Some(82 * S)));
    assert_eq!((u.user_next(15, 0), u.users_most()), (None, 15));
}

#[test]
fn a_plan_lists_the_same_parts_as_a_command_line() {
    let text = serde_json::json!([
        { "hold": "100/s for 1m" },
        { "name": "spike", "jump": "2000/s for 10s" },
        { "wave": { "mean": "500/s", "swing": "300/s", "every": "10m", "for": "30m" } },
        { "steps": { "from": "100/s", "by": "100/s", "every": "30s", "to": "300/s" } },
        { "ramp": "0/s over 2m" },
    ]);
    let words = [
        "hold 100/s 1m",
        "spike: jump 2000/s 10s",
        "wave mean=500/s swing=300/s every=10m for=30m",
        "steps from=100/s by=100/s every=30s to=300/s",
        "ramp 0/s 2m",
    ];
    let pieces: Vec<Piece> =
        words.iter().map(|w| word(w, Unit::Rate, &crate::files::Disk).unwrap()).collect();
    let mut found = Diagnostics::default();
    let read_one = |json: &serde_json::Value, unit, found: &mut Diagnostics| {
        read(&Node::of_json(json), "rate", unit, &crate::files::Disk, found)
    };
    let shape = read_one(&text, Unit::Rate, &mut found);
    assert_eq!(shape, Some(Shape::Parts(Arc::new(even(&pieces)))), "{}", found.to_text());
    assert_eq!(read_one(&serde_json::json!("20/s"), Unit::Rate, &mut found), Some(Shape::Constant(20.0)));
    for (bad, why) in [
        (serde_json::json!([{ "pause": "5s" }]), "nothing starts"),
        (serde_json::json!([{ "hold": "5 for 1s" }]), "is no rate"),
        (serde_json::json!([{ "hold": "5/s for 1s", "ramp": "1/s over 1s" }]), "a part has one of"),
        (
            serde_json::json!([{ "wave": { "mean": "5/s", "swing": "6/s", "every": "1s", "for": "1s" } }]),
            "the swing is larger",
        ),
        (serde_json::json!([{ "wave": { "mean": "5/s" } }]), "`swing` is missing"),
        (serde_json::json!([{ "jmup": "5/s for 1s" }]), "expected one of"),
        (serde_json::json!([{}]), "expected a part such as"),
    ] {
        let mut found = Diagnostics::default();
        assert_eq!(read_one(&bad, Unit::Rate, &mut found), None);
        assert!(found.to_text().contains(why), "{bad}: {}", found.to_text());
    }
}
