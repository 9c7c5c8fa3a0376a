//! Parses the options of a comparison: names, blocks, conditions and earlier results.

use super::{Before, Compare, Contender};
use crate::{Options, Plan};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_report::comparison::{Comparison, Condition, SCHEMA, TargetResult, Way};
use weir_report::{Mistake, units};
use weir_report::{layout, report};

/// Options as written on the command line (or elsewhere), not parsed yet.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// `NAME=URL`, or only a URL, which is then named by its position.
    pub targets: Vec<String>,
    /// Targets whose load differs in more than the URL; they follow those of `targets`. Each has its own options
    /// instead of `load`.
    pub own: Vec<Contender>,
    /// The load, without URLs, times and process.
    pub load: Options,
    /// Time for all rounds together. Default 1 m.
    pub duration: Option<String>,
    /// Length of a block. Default: ten rounds fit; at least 200 ms if two such rounds fit, and at most 2 s.
    pub block: Option<String>,
    /// Warm-up of each block. Default: a quarter of the block.
    pub warmup: Option<String>,
    /// `1%`: end once the intervals' half-width is below this.
    pub until: Option<String>,
    /// See the manual: `p99 worse 5%`.
    pub fail_if: Vec<String>,
    /// A saved result that replaces the first target.
    pub against: Option<PathBuf>,
    /// The upstream of the only target; requests alternate between both.
    pub direct: Option<String>,
    /// `auto`, or `NAME=PID` for some targets.
    pub pids: Vec<String>,
    /// Unequal work is intended and does not count against the result.
    pub unequal: bool,
    /// Seed of the bootstrap. Default 1.
    pub seed: Option<u64>,
    /// Most blocks that are measured again because something outside of the test spoilt them. Default 0, at most
    /// [`REPEAT_BLOCKS_MOST`].
    pub repeat_blocks: Option<u64>,
    /// Processes that the targets need, such as an origin. If they may use the generator's cores, it is not certain
    /// who spoilt a block.
    pub needed: Vec<u32>,
}

/// Most blocks of a comparison that may be measured again. A machine that needs more is no place to measure.
pub const REPEAT_BLOCKS_MOST: u64 = 100;

/// Default time for all rounds.
const TIME: Duration = Duration::from_secs(60);

/// Longest default block.
const BLOCK_MOST: Duration = Duration::from_secs(2);

/// Shortest block: a shorter one would measure its start.
const BLOCK_LEAST: Duration = Duration::from_millis(20);

/// Shorter blocks are not judged by processor use.
const BLOCK_JUDGED: Duration = Duration::from_nanos(weir_report::verdict::JUDGED_NS);

/// Rounds to plan for by default.
const ROUNDS: u32 = 10;

impl Compare {
    /// Parses the options and checks that each block could run.
    ///
    /// # Errors
    /// Every mistake that can be found without sending a request.
    pub fn new(options: &CompareOptions) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader { options, mistakes: Vec::new() };
        let compare = reader.compare();
        if reader.mistakes.is_empty() { Ok(compare) } else { Err(reader.mistakes) }
    }
}

struct Reader<'a> {
    options: &'a CompareOptions,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn compare(&mut self) -> Compare {
        let o = self.options;
        let named = self.targets();
        let count = named.len() + o.own.len();
        let way = if o.direct.is_some() { Way::Requests } else { Way::Blocks };
        let blocks = if way == Way::Requests || count < 2 { 1 } else { 2 * count as u32 };
        let time = self.time("-d", o.duration.as_deref()).unwrap_or(TIME);
        let block = self.time("--block", o.block.as_deref());
        let warmup = self.time("--warmup", o.warmup.as_deref());
        let block = block.unwrap_or_else(|| {
            let of_rounds = |rounds: u32| time / (blocks * rounds) * 4 / 5;
            of_rounds(ROUNDS).max(of_rounds(2).min(BLOCK_JUDGED)).min(BLOCK_MOST)
        });
        let warmup = warmup.unwrap_or(block / 4);
        if block < BLOCK_LEAST {
            self.wrong("-d", "is too short for so many targets: blocks would be shorter than 20 ms");
        } else if (block + warmup) * blocks > time {
            self.wrong("--block", "one round of blocks is longer than -d");
        } else if (block + warmup) * blocks * 2 > time && !o.fail_if.is_empty() {
            self.wrong(
                "--fail-if",
                "needs at least two rounds to estimate the noise: use a longer -d, or a shorter --block",
            );
        }
        let until = o.until.as_deref().and_then(|text| {
            let share =
                text.strip_suffix('%').and_then(|p| p.parse::<f64>().ok()).filter(|p| *p > 0.0 && *p < 100.0);
            if share.is_none() {
                self.wrong(&format!("--until {text}"), "expected a share such as 1%");
            }
            share.map(|percent| percent / 100.0)
        });
        if o.repeat_blocks.is_some_and(|n| n > REPEAT_BLOCKS_MOST) {
            self.wrong("--repeat-blocks", &format!("expected at most {REPEAT_BLOCKS_MOST}"));
        }
        let mut conditions = Vec::new();
        for text in &o.fail_if {
            match Condition::parse(text) {
                Ok(condition) => conditions.push(condition),
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        let costs = !o.pids.is_empty() || o.own.iter().any(|c| c.options.pid.is_some());
        if conditions.iter().any(|c| c.figure.name == "cost") && !costs {
            self.wrong("--fail-if", "a condition on `cost` needs the targets' processes: --pid auto");
        }
        if way == Way::Requests && conditions.iter().any(|c| c.figure.name == "rate") {
            self.wrong("--fail-if", "with --direct both targets have the same rate: judge a time");
        }
        let first = named.first().map(|(name, _)| name).or_else(|| o.own.first().map(|c| &c.name));
        let name = first.cloned().unwrap_or_default();
        let before = o.against.as_deref().and_then(|path| self.before(path, &name));
        if let Some(before) = &before {
            self.samples(&before.result, &conditions);
        }
        if count < 2 && o.against.is_none() && o.direct.is_none() && !conditions.is_empty() {
            self.wrong("--fail-if", "nothing to compare with: give two targets, --against or --direct");
        }
        let timed = |options: &Options| Options {
            duration: Some(format!("{}ns", block.as_nanos())),
            warmup: Some(format!("{}ns", warmup.as_nanos())),
            shares_resolve: true,
            unequal: true, // the comparison judges unequal work, not each block
            ..options.clone()
        };
        let mut contenders = self.contenders(named, &timed(&o.load));
        contenders.extend(
            o.own.iter().map(|own| Contender { name: own.name.clone(), options: timed(&own.options) }),
        );
        if self.mistakes.is_empty() {
            let plans = contenders.iter().filter_map(|c| Plan::new(&c.options).err());
            plans.flatten().for_each(|m| self.mistakes.push(m));
        }
        let seed = o.seed.unwrap_or(1);
        Compare {
            contenders,
            way,
            before,
            block,
            warmup,
            time,
            until,
            conditions,
            unequal_ok: o.unequal,
            seed,
            repeat_blocks: o.repeat_blocks.unwrap_or(0),
            needed: o.needed.clone(),
        }
    }

    /// Names and URLs.
    fn targets(&mut self) -> Vec<(String, String)> {
        let o = self.options;
        let mut named: Vec<(String, String)> = Vec::new();
        for text in &o.targets {
            let (name, url) = match text.split_once('=') {
                Some((name, url)) if !name.contains([':', '/']) && !name.is_empty() => (name.to_owned(), url),
                _ => {
                    (text.split("://").last().unwrap_or(text).trim_end_matches('/').to_owned(), text.as_str())
                }
            };
            if named.iter().any(|(known, _)| *known == name) {
                self.wrong(text, "there is a target of this name already: write NAME=URL");
            }
            named.push((name, url.to_owned()));
        }
        for own in &o.own {
            if named.iter().any(|(known, _)| *known == own.name) {
                self.wrong(&own.name, "there is a target of this name already");
            }
        }
        let hint = match (named.len() + o.own.len(), &o.direct, &o.against) {
            (0, ..) => "expected a target, NAME=URL",
            (_, Some(_), Some(_)) => "give one of --direct and --against",
            (2.., Some(_), _) => "--direct takes one target, the gateway",
            (2.., _, Some(_)) => "--against takes one target, the one to be compared with it",
            _ => return named,
        };
        self.wrong("TARGET", hint);
        named
    }

    fn contenders(&mut self, named: Vec<(String, String)>, load: &Options) -> Vec<Contender> {
        if let Some(direct) = &self.options.direct {
            if !self.options.pids.is_empty() {
                self.wrong("--pid", "has no effect with --direct: both targets run at the same time");
            }
            let urls = std::iter::once(direct.clone()).chain(named.into_iter().map(|(_, url)| url)).collect();
            return vec![Contender { name: "direct".to_owned(), options: Options { urls, ..load.clone() } }];
        }
        let mut auto = None;
        let mut pids = Vec::new();
        for text in &self.options.pids {
            match text.split_once('=') {
                Some((name, pid)) if named.iter().any(|(known, _)| known == name) => pids.push((name, pid)),
                None if text == "auto" => auto = Some("auto"),
                _ => self.wrong(
                    &format!("--pid {text}"),
                    "expected `auto`, or NAME=PID with the name of a target",
                ),
            }
        }
        let contender = |(name, url): (String, String)| {
            let pid = pids.iter().find(|(known, _)| *known == name).map(|(_, pid)| *pid).or(auto);
            let options = Options { urls: vec![url], pid: pid.map(str::to_owned), ..load.clone() };
            Contender { name, options }
        };
        named.into_iter().map(contender).collect()
    }

    /// The result in a saved comparison for this name, or in a saved report. A single target matches any name.
    fn before(&mut self, path: &Path, name: &str) -> Option<Before> {
        let place = format!("--against {}", path.display());
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) => {
                self.wrong(&place, &e.to_string());
                return None;
            }
        };
        match read_before(&text, name) {
            Ok(before) => Some(before),
            Err(hint) => {
                self.wrong(&place, &hint);
                None
            }
        }
    }

    /// A condition needs to know how much the earlier result varies, or noise would violate it.
    fn samples(&mut self, before: &TargetResult, conditions: &[Condition]) {
        let single =
            |c: &&Condition| before.rounds.get(c.figure.name).is_some_and(|values| values.len() == 1);
        if let Some(condition) = conditions.iter().find(single) {
            let hint = "what --against names has one value for it, so nobody knows its noise; save it by \
                        `weir compare NAME=URL --save FILE`, which measures many rounds";
            self.wrong(&format!("--fail-if {:?}", condition.text), hint);
        }
    }

    fn wrong(&mut self, place: &str, hint: &str) {
        self.mistakes.push(Mistake::new(place, hint));
    }

    fn time(&mut self, place: &str, text: Option<&str>) -> Option<Duration> {
        let text = text?;
        let time = units::duration(text).filter(|time| !time.is_zero() || place == "--warmup");
        if time.is_none() {
            self.wrong(&format!("{place} {text}"), "expected a time such as 250ms, 30s or 2m");
        }
        time
    }
}

fn read_before(text: &str, name: &str) -> Result<Before, String> {
    let expected = "expected what `weir compare --save` or `weir load --save` writes";
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("{e}; {expected}"))?;
    let schema = value.get("schema").and_then(|s| s.as_str()).unwrap_or_default().to_owned();
    let bad = |e: serde_json::Error| format!("{e}; {expected}");
    if schema == report::SCHEMA {
        let result = TargetResult::of(&layout::read(text).map_err(bad)?);
        return Ok(Before { result, repeat_blocks: 0 });
    }
    if schema != SCHEMA {
        return Err(format!("its schema is `{schema}`; {expected}"));
    }
    let comparison: Comparison = serde_json::from_value(value).map_err(bad)?;
    let names: Vec<String> = comparison.targets.iter().map(|t| t.name.clone()).collect();
    let only = comparison.targets.len() == 1;
    let mut found = comparison.targets.into_iter().filter(|t| only || t.name == name);
    let before = found.next().ok_or_else(|| {
        format!("it has no target `{name}`; write NAME=URL with one of {}", names.join(", "))
    })?;
    let result = TargetResult { name: "before".to_owned(), ratios: [].into(), added: [].into(), ..before };
    Ok(Before { result, repeat_blocks: comparison.repeat_blocks })
}
