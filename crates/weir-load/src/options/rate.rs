//! Options that say how fast and with how many clients: rates, stages, connections, streams.

use super::{CONNECTIONS, CONNECTIONS_MOST, CONNECTIONS_RATE, DESCRIPTORS_OWN, Reader, STREAMS_MOST};
use crate::pace::{Rhythm, Users};
use weir_plan::shape::{RATE_MOST, is_rate};
use weir_report::report::{Pace, Stage, StageUnit};
use weir_report::units;

impl Reader<'_> {
    pub(super) fn pace(&mut self) -> (Pace, Rhythm) {
        let o = self.options;
        if o.shape.is_some() {
            for (option, given) in [("--rate", o.rate.is_some()), ("--stages", o.stages.is_some())] {
                if given {
                    self.wrong(option, "--shape sets the rate or the users already: use only one of them");
                }
            }
            return self.shape().unwrap_or((Pace::AsFastAsPossible, Rhythm::Closed(Users::All)));
        }
        for (option, given) in [("--spacing", o.spacing.is_some()), ("--seed", o.seed.is_some())] {
            if given {
                self.wrong(option, "is of a shape: add --shape, such as --shape 'hold 100/s 1m'");
            }
        }
        let pace = self.simple_pace();
        let rhythm = Rhythm::of(&pace);
        (pace, rhythm)
    }

    /// The pace without a shape.
    fn simple_pace(&mut self) -> Pace {
        let o = self.options;
        match (&o.rate, &o.stages) {
            (Some(_), Some(_)) => {
                self.wrong("--rate", "--stages sets the rate already: use only one of them");
                Pace::AsFastAsPossible
            }
            (Some(rate), None) => match units::rate(rate) {
                Some(per_second) if is_rate(per_second) => Pace::Rate { per_second },
                Some(_) => {
                    self.wrong(&format!("--rate {rate}"), "expected 0.001/h to 10M/s");
                    Pace::AsFastAsPossible
                }
                None => {
                    self.wrong(&format!("--rate {rate}"), "expected a rate such as 5000/s or 300/m");
                    Pace::AsFastAsPossible
                }
            },
            (None, Some(stages)) => self.stages(stages),
            (None, None) => Pace::AsFastAsPossible,
        }
    }

    fn stages(&mut self, text: &str) -> Pace {
        let of = if text.contains('/') { StageUnit::Rate } else { StageUnit::Users };
        let (mut stages, mut good) = (Vec::new(), true);
        for part in text.split(',') {
            let read = part.trim().split_once(':').and_then(|(time, value)| {
                let duration_ns = crate::clock::nanos(units::duration(time)?);
                let target = match of {
                    StageUnit::Users => units::count(value).filter(|n| *n <= CONNECTIONS_MOST)? as f64,
                    StageUnit::Rate if matches!(value.split('/').next(), Some("0")) => 0.0,
                    // Without its `/s`, a value would be a number of users.
                    StageUnit::Rate if !value.contains('/') => return None,
                    StageUnit::Rate => units::rate(value).filter(|rate| *rate <= RATE_MOST)?,
                };
                Some(Stage { duration_ns, target })
            });
            match read {
                Some(stage) => stages.push(stage),
                None => {
                    good = false;
                    self.wrong(
                        &format!("--stages {text}"),
                        &format!("`{part}` is not a stage; expected TIME:USERS or TIME:RATE/s, such as 30s:100,2m:1000,30s:0 or 1m:500/s,1m:0/s, at most 1000000 users or 10M/s"),
                    );
                }
            }
        }
        // A plan of only the valid stages would be wrong in ways that nobody wrote.
        if good { Pace::Stages { of, start: 0.0, stages } } else { Pace::AsFastAsPossible }
    }

    pub(super) fn clients(&mut self, pace: &Pace, rhythm: &Rhythm, requests: Option<u64>) -> u64 {
        let o = self.options;
        let default = match pace {
            Pace::AsFastAsPossible | Pace::Replay { .. } => {
                CONNECTIONS.min(requests.unwrap_or(u64::MAX)).max(1)
            }
            Pace::Rate { .. }
            | Pace::Shape { of: StageUnit::Rate, .. }
            | Pace::Stages { of: StageUnit::Rate, .. } => CONNECTIONS_RATE,
            Pace::Shape { of: StageUnit::Users, .. } => {
                if o.connections.is_some() {
                    self.wrong("-c", "--shape sets the number of users already");
                }
                let most = rhythm.shape().map_or(1, |shape| shape.users_most());
                self.may_be_open("--shape", most);
                return most.max(1);
            }
            Pace::Stages { of: StageUnit::Users, stages, .. } => {
                let most = stages.iter().map(|s| s.target as u64).max().unwrap_or(0);
                if o.connections.is_some() {
                    self.wrong("-c", "--stages sets the number of users already");
                }
                if most == 0 {
                    self.wrong("--stages", "no stage has a user");
                }
                self.may_be_open("--stages", most);
                return most.max(1);
            }
        };
        let clients = self.within("-c", o.connections, default, CONNECTIONS_MOST);
        if o.connections.is_some() {
            self.may_be_open("-c", clients);
        }
        clients
    }

    /// Refuses more connections than the process may open. A default may exceed the limit; the verdict reports it if
    /// the connections were needed.
    pub(super) fn may_be_open(&mut self, place: &str, connections: u64) {
        if self.options.is_elsewhere {
            return;
        }
        let connections = self.options.share.part(connections);
        let most = weir_wire::limits::raise_descriptors().unwrap_or(u64::MAX);
        if connections.saturating_add(DESCRIPTORS_OWN) > most {
            let hint = format!("this process may open {most} descriptors (ulimit -n)");
            self.wrong(&format!("{place} {connections}"), &hint);
        }
    }

    pub(super) fn streams(&mut self, clients: u64, pipeline: u64) -> u64 {
        let streams = self.within("-m", self.options.streams, 1, STREAMS_MOST);
        if streams > 1 && !self.is_h2() && !self.options.http3 {
            self.wrong("-m", "streams are HTTP/2's and HTTP/3's: add --http2 or --http3");
        }
        if streams > 1 && self.options.no_keepalive {
            self.wrong("-m", "needs keep-alive: leave out --no-keepalive");
        }
        if pipeline > 1 && self.options.http3 {
            self.wrong("--pipeline", "is only for HTTP/1.1; with --http3 use -m");
        } else if pipeline > 1 && self.is_h2() {
            self.wrong("--pipeline", "is only for HTTP/1.1; with --http2 use -m");
        }
        if clients.saturating_mul(streams) > CONNECTIONS_MOST {
            self.wrong("-m", "connections times streams are at most 1000000");
        }
        streams
    }

    /// Whether HTTP/2 is used, which gRPC implies.
    pub(super) fn is_h2(&self) -> bool {
        self.options.http2 || self.speaks_grpc()
    }
}
