//! Each reason, triggered by a report without other faults.

use super::*;
use crate::Histogram;
use crate::report::{
    AddressUse, AnswerKind, Block, CheckResult, CoreUse, KeepStats, Pace, Protocol, ReplayStats,
    ScenarioStats, Source, StatusPair, StepStats, TargetPlan, TargetStats, ThreadStats, ThresholdResult,
    Tick,
};

/// A report of 100,000 responses in 10 s without reasons against it.
fn good() -> Report {
    let mut r = Report { duration_ns: 10_000_000_000, ..Report::default() };
    r.plan.connections = 10;
    r.plan.keepalive = true;
    (r.counts.requests, r.counts.responses) = (100_000, 100_000);
    r.counts.statuses.insert(200, 100_000);
    r.counts.kept_alive = 100_000;
    r.latency.service.record_n(1_000_000, 100_000);
    r.latency.response.record_n(1_000_000, 100_000);
    r.connections.responses_by_client = vec![10_000; 10];
    r.connections.opened_measured = 10;
    r.ledger.protocols.insert("HTTP/1.1".to_owned(), 100_000);
    r.ledger.sessions.insert("plain".to_owned(), 10);
    r.threads = vec![ThreadStats {
        cpu_ns: 5_000_000_000,
        busy_ns: 99_000_000_000,
        available_ns: 100_000_000_000,
        ..ThreadStats::default()
    }];
    r.targets = vec![TargetStats::default()];
    r
}

/// The grade and codes after a change to the good report.
fn codes(change: impl FnOnce(&mut Report)) -> (Grade, Vec<String>) {
    let mut report = good();
    change(&mut report);
    let verdict = judge(&report);
    (verdict.grade, verdict.reasons.into_iter().map(|r| r.code).collect())
}

#[test]
fn nothing_speaks_against_a_good_run() {
    assert_eq!(codes(|_| {}), (Grade::Valid, vec![]));
}

/// A replay with a time between requests, and a drift of all of them.
fn drifted(gap_ns: u64, drift_ns: u64) -> ReplayStats {
    let mut stats = ReplayStats { gap_ns, ..ReplayStats::default() };
    stats.drift.record_n(drift_ns, 1_000);
    stats
}

#[test]
fn a_replay_may_drift_by_a_part_of_its_gaps() {
    for (gap_ns, drift_ns) in [(10_000_000_000, 9_800_000), (40_000_000, 1_900_000), (1_000, 900_000)] {
        let found = codes(|r| r.replay = Some(drifted(gap_ns, drift_ns)));
        assert_eq!(found, (Grade::Valid, vec![]), "{drift_ns} of {gap_ns}");
    }
}

#[test]
fn recorded_requests_may_differ() {
    let found = codes(|r| {
        let statuses = vec![
            StatusPair { then: Some(302), now: Some(302), requests: 60_000 },
            StatusPair { then: Some(500), now: Some(500), requests: 40_000 },
        ];
        r.counts.statuses = [(302, 60_000), (500, 40_000)].into();
        r.replay = Some(ReplayStats { statuses, ..ReplayStats::default() });
    });
    assert_eq!(found, (Grade::Valid, vec![]));
}

type Case<'a> = (&'a str, Grade, &'a dyn Fn(&mut Report));

/// Addresses, each with the connections that it accepted and that failed.
fn addresses(r: &mut Report, all: &[(&str, u64, u64)]) {
    let used = |(address, opened, failed): &(&str, u64, u64)| {
        ((*address).to_owned(), AddressUse { opened: *opened, failed: *failed })
    };
    r.ledger.addresses = all.iter().map(used).collect();
}

#[test]
fn a_server_that_listens_in_one_family_only_is_not_dead() {
    for all in [
        &[("127.0.0.1:80", 10, 0), ("[::1]:80", 0, 4)][..],
        &[("127.0.0.1:80", 0, 4), ("[::1]:80", 10, 0)],
        &[("127.0.0.1:80", 1_000, 1), ("127.0.0.2:80", 1_000, 0)],
        &[("127.0.0.1:80", 0, 4)],
    ] {
        assert_eq!(codes(|r| addresses(r, all)), (Grade::Valid, vec![]), "{all:?}");
    }
}

#[test]
fn each_reason_is_found_alone() {
    let rate = |r: &mut Report| r.plan.pace = Pace::Rate { per_second: 10_000.0 };
    let cases: &[Case<'_>] = &[
        ("wrong_protocol", Grade::Invalid, &|r| r.plan.protocol = Protocol::Http2),
        ("not_grpc", Grade::Invalid, &|r| {
            r.counts.not_grpc = 1;
            r.counts.grpc.insert("OK".to_owned(), 100_000);
        }),
        ("unequal_work", Grade::Invalid, &|r| two_places(r, 137, 65_536)),
        ("redirects", Grade::Suspect, &|r| r.counts.statuses = [(302, 60_000), (200, 40_000)].into()),
        ("odd_values", Grade::Suspect, &|r| {
            r.plan.targets =
                vec![TargetPlan { odd_values: vec!["undefined".to_owned()], ..TargetPlan::default() }];
        }),
        ("answers_differ", Grade::Suspect, &|r| {
            r.targets[0].kinds = vec![kind("a", false, 99_000), kind("b", false, 1_000)];
        }),
        ("cached", Grade::Suspect, &|r| {
            r.targets[0].kinds = vec![kind("a", false, 99_000), kind("a", true, 1_000)];
        }),
        ("not_modified", Grade::Suspect, &|r| {
            r.plan.targets = vec![TargetPlan::default()];
            r.counts.statuses = [(200, 99_000), (304, 1_000)].into();
        }),
        ("few_streams", Grade::Suspect, &|r| {
            (r.plan.streams, r.connections.streams_allowed) = (100, Some(10))
        }),
        ("delayed_ack", Grade::Suspect, &|r| r.latency.service.record_n(41_000_000, 2_000)),
        ("delayed_ack", Grade::Suspect, &|r| {
            r.latency.service = Histogram::new();
            r.latency.service.record_n(41_000_000, 100_000);
            r.phases.receiving.record_n(40_000_000, 100_000);
        }),
        ("resumed", Grade::Valid, &|r| r.connections.resumed = 3),
        ("generator_paused", Grade::Suspect, &|r| (r.health.pauses, r.health.paused_ns) = (1, 1_200_000_000)),
        ("generator_throttled", Grade::Suspect, &|r| {
            (r.health.throttled, r.health.throttled_ns) = (9, 300_000_000);
        }),
        ("cold_start", Grade::Suspect, &|r| ticks(r, &[5_000, 10_000])),
        ("changed_midway", Grade::Suspect, &|r| ticks(r, &[10_000, 10_000, 10_000, 10_000, 10_000, 5_000])),
        ("drifted", Grade::Suspect, &|r| {
            ticks(r, &[10_000, 9_600, 9_200, 8_800, 8_400, 8_000, 7_600, 7_200, 6_800, 6_400]);
        }),
        ("syn_retransmits", Grade::Suspect, &|r| r.connections.syn_again = 1),
        ("one_stream", Grade::Suspect, &|r| {
            (r.plan.protocol, r.plan.streams) = (Protocol::Http2, 1);
            r.ledger.protocols = [("HTTP/2".to_owned(), 100_000)].into();
        }),
        ("no_keepalive", Grade::Valid, &|r| r.plan.keepalive = false),
        ("starved_connections", Grade::Invalid, &|r| r.connections.responses_by_client[3] = 0),
        ("out_of_ports", Grade::Invalid, &|r| r.health.out_of_ports = 1),
        ("out_of_descriptors", Grade::Invalid, &|r| r.health.out_of_descriptors = 1),
        ("rate_missed", Grade::Invalid, &|r| {
            rate(r);
            r.counts.unsent = 3_000;
        }),
        ("clock_step", Grade::Suspect, &|r| r.health.clock_step_ns = -60_000_000),
        ("unfinished", Grade::Suspect, &|r| r.counts.unfinished = 1),
        ("stalled", Grade::Suspect, &|r| r.health.longest_silence_ns = 1_100_000_000),
        ("generator_busy", Grade::Suspect, &|r| r.threads[0].cpu_ns = 8_100_000_000),
        ("generator_waited", Grade::Suspect, &|r| r.threads[0].waited_ns = 600_000_000),
        ("late_starts", Grade::Suspect, &|r| r.health.start_lag.record(1_100_000)),
        ("littles_law", Grade::Suspect, &|r| r.threads[0].busy_ns = 85_000_000_000),
        ("errors", Grade::Suspect, &|r| r.counts.errors.reset = 200),
        ("status_mix", Grade::Suspect, &|r| {
            r.counts.statuses = [(200, 99_000), (503, 1_000)].into();
        }),
        ("failed_checks", Grade::Suspect, &|r| r.counts.failed_checks = 200),
        ("body_length_changed", Grade::Suspect, &|r| {
            r.counts.other_length = 1;
            r.targets[0].body_bytes = Some((5, 6));
        }),
        ("not_kept_alive", Grade::Suspect, &|r| r.connections.opened_measured = 2_000),
        ("not_kept_alive", Grade::Suspect, &|r| r.counts.kept_alive = 98_000),
        ("not_kept_alive", Grade::Suspect, &|r| {
            rate(r);
            r.plan.connections = 1_000;
            r.connections.responses_by_client = vec![0; 1_000];
            r.connections.responses_by_client[7] = 100_000;
            r.connections.opened_measured = 1_002;
        }),
        ("imported", Grade::Suspect, &|r| {
            r.source = Some(Source { tool: "k6".to_owned(), unknown: vec!["much".to_owned()] });
        }),
        ("short_blocks", Grade::Suspect, &|r| {
            r.blocks = vec![Block { length_ns: 9_000_000, ..Block::default() }];
        }),
        ("dead_address", Grade::Suspect, &|r| addresses(r, &[("10.0.0.1:80", 10, 0), ("10.0.0.2:80", 0, 3)])),
        ("dead_address", Grade::Suspect, &|r| {
            addresses(r, &[("10.0.0.1:80", 90, 0), ("10.0.0.2:80", 90, 9)])
        }),
        ("dead_address", Grade::Suspect, &|r| {
            addresses(r, &[("10.0.0.1:80", 9, 0), ("10.0.0.2:80", 0, 3), ("[::1]:80", 9, 0)]);
        }),
        ("sessions_differ", Grade::Suspect, &|r| {
            r.ledger.sessions.insert("TLSv1.2 x".to_owned(), 1);
        }),
        ("shared_cores", Grade::Valid, &|r| {
            r.threads[0].waited_ns = 600_000_000;
            r.health.cores = Some(CoreUse {
                length_ns: 10_000_000_000,
                busy_ns: 15_000_000_000,
                generator_ns: 5_000_000_000,
                target_ns: Some(10_000_000_000),
                ..CoreUse::default()
            });
        }),
        ("too_short", Grade::Suspect, &|r| {
            let threshold = "p99.9<1s".to_owned();
            r.thresholds = vec![ThresholdResult { threshold, passed: true, ..ThresholdResult::default() }];
            r.counts.responses = 9_999;
            r.counts.kept_alive = 9_999;
            r.counts.statuses = [(200, 9_999)].into();
        }),
        ("out_of_order", Grade::Suspect, &|r| {
            r.replay = Some(ReplayStats { planned: 100_000, out_of_order: 101, ..ReplayStats::default() });
        }),
        ("unread_records", Grade::Suspect, &|r| {
            let left_out = [("unreadable".to_owned(), 100), ("not sendable".to_owned(), 1)].into();
            r.replay = Some(ReplayStats { records: 100_000, left_out, ..ReplayStats::default() });
        }),
        ("late_starts", Grade::Suspect, &|r| r.replay = Some(drifted(10_000_000_000, 10_100_000))),
        ("late_starts", Grade::Suspect, &|r| r.replay = Some(drifted(40_000_000, 2_100_000))),
        ("status_mix", Grade::Suspect, &|r| {
            let pair = |then, now, requests| StatusPair { then: Some(then), now: Some(now), requests };
            let statuses = vec![pair(200, 200, 90_000), pair(404, 404, 9_800), pair(200, 404, 200)];
            r.replay = Some(ReplayStats { statuses, ..ReplayStats::default() });
        }),
        ("ended_early", Grade::Suspect, &|r| r.end = End::Interrupted),
        ("ended_early", Grade::Suspect, &|r| r.end = End::Aborted { condition: "errors>1%".to_owned() }),
    ];
    for (code, grade, change) in cases {
        assert_eq!(codes(change), (*grade, vec![(*code).to_owned()]), "{code}");
    }
}

/// Responses from this server.
fn kind(server: &str, cached: bool, responses: u64) -> AnswerKind {
    AnswerKind { server: Some(server.to_owned()), cached, responses, ..AnswerKind::default() }
}

/// Ten ticks of a second with these responses; the last number repeats.
fn ticks(r: &mut Report, responses: &[u64]) {
    r.series.tick_ns = 1_000_000_000;
    r.series.ticks = (0..10)
        .map(|i| Tick {
            end_ns: (i as u64 + 1) * 1_000_000_000,
            length_ns: 1_000_000_000,
            responses: *responses.get(i).or(responses.last()).unwrap(),
            ..Tick::default()
        })
        .collect();
}

/// Two places with half of the responses each, and bodies of these lengths.
fn two_places(r: &mut Report, one: u64, other: u64) {
    let target = |port| TargetPlan { host: "a".to_owned(), port, ..TargetPlan::default() };
    r.plan.targets = vec![target(1), target(2)];
    let stats = |bytes: u64| TargetStats {
        responses: 50_000,
        received_body: 50_000 * bytes,
        statuses: [(200, 50_000)].into(),
        ..TargetStats::default()
    };
    r.targets = vec![stats(one), stats(other)];
}

#[test]
fn what_was_said_to_be_meant_is_fine() {
    let quiet: &[&dyn Fn(&mut Report)] = &[
        &|r| {
            two_places(r, 137, 65_536);
            r.plan.unequal_ok = true;
        },
        &|r| two_places(r, 137, 140),
        &|r| {
            (r.plan.protocol, r.plan.streams, r.plan.streams_given) = (Protocol::Http2, 1, true);
            r.ledger.protocols = [("HTTP/2".to_owned(), 100_000)].into();
        },
        &|r| {
            r.counts.statuses = [(304, 100_000)].into();
            let headers = vec![("If-None-Match".to_owned(), "x".to_owned())];
            r.plan.targets = vec![TargetPlan { headers, ..TargetPlan::default() }];
        },
        &|r| {
            r.targets[0].kinds = vec![kind("a", true, 100_000)];
            r.plan.cached_ok = true;
        },
        &|r| r.targets[0].kinds = vec![kind("a", false, 99_950), kind("b", false, 50)],
        &|r| {
            r.latency.service = Histogram::new();
            r.latency.service.record_n(41_000_000, 100_000);
        },
        &|r| (r.plan.streams, r.connections.streams_allowed) = (100, Some(100)),
        &|r| {
            r.counts.statuses = [(301, 100_000)].into();
            r.checks = vec![CheckResult { check: "status=301".to_owned(), passed: 100_000, failed: 0 }];
        },
    ];
    for (i, change) in quiet.iter().enumerate() {
        assert_eq!(codes(change), (Grade::Valid, vec![]), "{i}");
    }
}

#[test]
fn a_dead_target_is_no_result() {
    let (grade, found) = codes(|r| {
        r.counts.responses = 0;
        r.counts.statuses.clear();
        r.counts.errors.connect = 100_000;
    });
    assert_eq!((grade, found[0].as_str()), (Grade::Invalid, "no_responses"));
    let (grade, found) = codes(|r| r.counts.errors.connect = 150_000);
    assert_eq!((grade, found[0].as_str()), (Grade::Invalid, "mostly_errors"));
    let (grade, found) = codes(|r| r.counts.statuses = [(404, 100_000)].into());
    assert_eq!((grade, found[0].as_str()), (Grade::Invalid, "mostly_refused"));
}

#[test]
fn a_status_that_was_asked_for_is_fine() {
    let wanted = |r: &mut Report| {
        r.counts.statuses = [(404, 100_000)].into();
        r.checks = vec![CheckResult { check: "status=404".to_owned(), passed: 100_000, failed: 0 }];
    };
    assert_eq!(codes(wanted), (Grade::Valid, vec![]));
}

#[test]
fn a_percentile_that_was_asked_for_needs_its_samples() {
    let (_, found) = codes(|r| {
        r.thresholds =
            vec![ThresholdResult { threshold: "p99.999<1s".to_owned(), ..ThresholdResult::default() }];
    });
    assert_eq!(found, ["too_short"]);
}

#[test]
fn clients_without_a_request_by_plan_are_not_starved() {
    let fixed_rate = |r: &mut Report| {
        r.plan.pace = Pace::Rate { per_second: 10_000.0 };
        r.connections.responses_by_client[3] = 0;
        r.threads[0].busy_ns = 0;
    };
    assert_eq!(codes(fixed_rate).1, Vec::<String>::new());
}

#[test]
fn a_moment_is_not_judged_by_what_the_processor_did() {
    for (ms, want) in [(199, 0), (200, 3)] {
        let (_, found) = codes(|r| {
            r.duration_ns = ms * 1_000_000;
            (r.threads[0].cpu_ns, r.threads[0].waited_ns, r.threads[0].busy_ns) =
                (r.duration_ns, r.duration_ns, 0);
        });
        assert_eq!(found.len(), want, "{ms} ms: {found:?}");
    }
}

#[test]
fn a_refused_protocol_speaks_of_grpc_only_where_that_was_asked() {
    let told = |change: fn(&mut Report)| {
        let mut r = good();
        r.plan.protocol = Protocol::Http2;
        r.counts.error_texts.insert("AlertReceived(NoApplicationProtocol)".to_owned(), 1);
        change(&mut r);
        wrong_protocol(&r).unwrap()
    };
    assert_eq!(told(|_| ()), "the target did not choose HTTP/2 by ALPN");
    let grpc = told(|r| {
        r.counts.grpc.insert("OK".to_owned(), 1);
    });
    assert_eq!(grpc, "the target did not choose HTTP/2 by ALPN, which gRPC requires");
}

#[test]
fn each_client_may_have_a_connection_to_each_origin() {
    let target = |port| TargetPlan { host: "a".to_owned(), port, ..TargetPlan::default() };
    let open = |ports: &[u16], opened: u64| {
        codes(|r| {
            r.plan.targets = ports.iter().map(|port| target(*port)).collect();
            r.plan.connections = 2_000;
            r.connections.responses_by_client = vec![50; 2_000];
            r.connections.opened_measured = opened;
        })
        .1
    };
    assert_eq!(open(&[1, 2], 4_000), Vec::<String>::new());
    assert_eq!(open(&[1, 1], 4_000), ["not_kept_alive"]);
    assert_eq!(open(&[1, 2], 5_001), ["not_kept_alive"]);
    // A connection ended by an error was not closed by a target that had answered.
    let reset = codes(|r| {
        r.counts.errors.reset = 2_000;
        r.connections.opened_measured = 2_010;
    });
    assert_eq!(reset.1, ["errors"]);
    let hung = codes(|r| {
        r.plan.pace = Pace::Rate { per_second: 10_000.0 };
        r.plan.connections = 2_010;
        r.connections.responses_by_client = [vec![10_000; 10], vec![0; 2_000]].concat();
        (r.counts.unfinished, r.connections.opened_measured) = (2_000, 2_010);
    });
    assert_eq!(hung.1, ["unfinished"]);
}

#[test]
fn a_slow_target_with_one_client_is_not_stalled() {
    let slow = |r: &mut Report| {
        r.health.longest_silence_ns = 2_100_000_000;
        r.latency.service = Histogram::new();
        r.latency.service.record_n(2_000_000_000, 100_000);
    };
    assert_eq!(codes(slow).1, Vec::<String>::new());
}

#[test]
fn a_closed_loop_notices_pauses_of_the_target() {
    // A pause of 300 ms in each of ten seconds; each of the ten connections sees one slow response per pause.
    let pauses = |r: &mut Report| {
        r.latency.service.record_n(300_000_000, 100);
        r.health.silences.record_n(300_000_000, 10 * r.threads.len() as u64);
        r.health.longest_silence_ns = 300_000_000;
    };
    let (grade, told) = codes(pauses);
    assert_eq!((grade, &*told), (Grade::Suspect, &["stalled".to_owned()][..]));
    type Change<'a> = Box<dyn Fn(&mut Report) + 'a>;
    let none: Vec<(&str, Change<'_>)> = vec![
        (
            "a fixed rate counts from the planned start",
            Box::new(|r| {
                pauses(r);
                r.plan.pace = Pace::Rate { per_second: 10_000.0 };
            }),
        ),
        (
            "the generator itself waited",
            Box::new(|r| {
                pauses(r);
                r.threads.iter_mut().for_each(|t| t.waited_ns = 3_000_000_000);
                r.health.cores = None;
            }),
        ),
        ("one pause may be the machine's", Box::new(|r| r.health.silences.record_n(300_000_000, 2))),
        ("less than 1 % of the run", Box::new(|r| r.health.silences.record_n(30_000_000, 3))),
        (
            "a target that is slow by nature",
            Box::new(|r| {
                r.latency.service = Histogram::new();
                r.latency.service.record_n(300_000_000, 100_000);
                r.health.silences.record_n(310_000_000, 30);
            }),
        ),
        (
            "one connection, and 3 of 100 requests slow",
            Box::new(|r| {
                r.plan.connections = 1;
                r.latency.service.record_n(300_000_000, 3_000);
                r.health.silences.record_n(300_000_000, 30);
            }),
        ),
    ];
    for (name, change) in none {
        let told = codes(|r| change(r)).1;
        assert!(!told.contains(&"stalled".to_owned()), "{name}: {told:?}");
    }
}

#[test]
fn scenarios_have_reasons_of_their_own() {
    let scenario = |name: &str, weight, started| ScenarioStats {
        name: name.to_owned(),
        weight,
        started,
        done: started,
        users: 10,
        users_seen: 10,
        ..ScenarioStats::default()
    };
    let step = |name: &str, requests| StepStats {
        scenario: "browse".to_owned(),
        name: name.to_owned(),
        part: "steps".to_owned(),
        requests,
        ..StepStats::default()
    };
    let journey = move |r: &mut Report| {
        r.scenarios = vec![scenario("browse", 7, 7_000), scenario("buy", 3, 3_000)];
        r.steps = vec![step("list", 50_000), step("item", 50_000)];
        r.targets = Vec::new();
    };
    let keeps = |taken, failed| vec![KeepStats { name: "id".to_owned(), taken, failed, sample: None }];
    assert_eq!(codes(journey), (Grade::Valid, vec![]));
    let cases: &[Case<'_>] = &[
        ("failed_keeps", Grade::Suspect, &|r| r.steps[0].keeps = keeps(9_980, 20)),
        ("failed_keeps", Grade::Invalid, &|r| r.steps[0].keeps = keeps(40, 60)),
        ("unreached_step", Grade::Suspect, &|r| r.steps[1].requests = 0),
        ("weights_missed", Grade::Suspect, &|r| {
            (r.scenarios[0].started, r.scenarios[1].started) = (720, 280)
        }),
        ("rate_missed", Grade::Invalid, &|r| {
            r.plan.pace = Pace::Rate { per_second: 1_000.0 };
            r.scenarios[1].not_started = 100;
        }),
        ("data_ended", Grade::Valid, &|r| r.scenarios[0].data_ended = Some("users".to_owned())),
        ("one_identity", Grade::Valid, &|r| r.scenarios[0].identities = Some(1)),
    ];
    for (code, grade, change) in cases {
        let found = codes(|r| {
            journey(r);
            change(r);
        });
        assert_eq!(found, (*grade, vec![(*code).to_owned()]), "{code}");
    }
    let none: &[&dyn Fn(&mut Report)] = &[
        &|r| r.steps[0].keeps = keeps(9_995, 5),
        &|r| r.steps.push(step("item (redirect)", 0)),
        &|r| (r.scenarios[0].started, r.scenarios[1].started) = (8, 3), // an incomplete round
        &|r| r.scenarios[1].identities = Some(2),
        &|r| r.plan.connections = 2, // six requests in parallel need more
    ];
    for (i, change) in none.iter().enumerate() {
        let found = codes(|r| {
            journey(r);
            change(r);
        });
        assert_eq!(found, (Grade::Valid, vec![]), "{i}");
    }
}

#[test]
fn every_reason_is_documented_once() {
    let page = include_str!("../../../../docs/explain/verdict.md");
    for rule in REASONS {
        let row = format!("| `{}` | {} |", rule.code, rule.grade);
        assert_eq!(page.matches(&row).count(), 1, "docs/explain/verdict.md: {row}");
    }
    let rows = page.lines().filter(|l| l.starts_with("| `")).count();
    assert_eq!(rows, REASONS.len(), "docs/explain/verdict.md tells of reasons that are not there");
}
