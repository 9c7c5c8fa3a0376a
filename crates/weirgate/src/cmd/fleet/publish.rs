//! `weir fleet publish`: checks a folder, shows the differences, and writes bundle and pointer in one
//! transaction.

use super::packed;
use super::place::Place;
use super::{asked, author, done};
use crate::cmd::print;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use weir_fleet::bundle::{Bundle, MAIN};
use weir_fleet::plan::{self, Canary};
use weir_fleet::pointer::{Labels, STEPS, Step};
use weir_gateway::config::units::Duration;
use weir_gateway::config::{Loaded, Severity, Source, load};
use weir_gateway::fleet::{Console, Fleet};

/// Largest growth over the previous bundle. Anything more is a mistake in whatever produced it.
const GROWTH: usize = 10;

/// Below this size in bytes, growth says nothing.
const SMALL: usize = 64 << 10;

#[derive(Args)]
pub(super) struct Publish {
    /// A folder with a weir.yaml, or one file
    path: PathBuf,
    /// Nodes that take it first: those with a label (zone=a) or several (zone=a,canary=true), or a share of all
    /// (5%). Several steps run in order [default: every node at the same time]
    #[arg(long, value_name = "WHO")]
    canary: Vec<Who>,
    /// How long each step must stay healthy before the next one starts
    #[arg(long, value_name = "TIME", default_value = "2m")]
    hold: Duration,
    /// Reason, for other operators
    #[arg(short, long, default_value = "", hide_default_value = true)]
    message: String,
    /// Publish even if the bundle is more than ten times as large as the previous one
    #[arg(long)]
    force: bool,
    /// Publish private keys that the config names; everyone who can read the bundle can then read them
    #[arg(long)]
    with_keys: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// The nodes of a step.
#[derive(Clone, Debug, PartialEq)]
struct Who(Step);

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected a label such as canary=true, or a share from 1% to 100%";
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
            return Ok(Self(Step::Share { percent: percent.ok_or(EXPECTED)?, also: Vec::new() }));
        }
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels: Option<Labels> = text.split(',').map(pair).collect();
        let labels = labels.filter(|labels| labels.keys().all(|name| !name.is_empty()));
        labels.map(|labels| Self(Step::Labels(labels))).ok_or_else(|| EXPECTED.to_owned())
    }
}

impl Publish {
    pub(super) fn run(&self) -> Result<ExitCode> {
        if self.canary.len() >= STEPS {
            bail!("there are more than {} steps", STEPS - 1);
        }
        if !self.main().is_file() {
            bail!("{}: there is no {MAIN}", self.path.display());
        }
        let Some(loaded) = check(&self.main())? else { return Ok(ExitCode::from(1)) };
        let bundle = self.pack(&loaded)?;
        let console = self.place.console()?;
        let fleet = asked(&console)?;
        let steps: Vec<Step> = self.canary.iter().map(|who| who.0.clone()).collect();
        let canary = (!steps.is_empty()).then(|| Canary { steps, hold: self.hold.get() });
        let planned = plan::publish(
            fleet.pointer.as_ref(),
            bundle.digest(),
            canary,
            &fleet.nodes,
            author(&self.message),
        );
        let (pointer, unused) = planned?;
        if let Some(before) = fleet.pointer.as_ref().filter(|before| before.is_tried()) {
            errln!(
                "weir: the rollout of {} ends here: nodes that run it and are not canaries of this one return to {}",
                before.to.short(),
                plan::settled(before).short()
            );
        }
        self.compare(&console, &fleet, &bundle)?;
        let written = console.write(&pointer, fleet.revision, Some(&bundle), &unused);
        done(&console, written, &pointer)
    }

    /// Packs what the config names. For a single file, packs only that file.
    fn pack(&self, loaded: &Loaded) -> Result<Bundle> {
        if !self.path.is_dir() {
            return Bundle::read(&self.path).map_err(|e| anyhow!("{}: {e}", self.path.display()));
        }
        let (bundle, left) = packed::pack(&self.path, loaded, self.with_keys)?;
        if !left.is_empty() {
            errln!("weir: left out, because the config names them nowhere: {}", packed::shown(&left));
        }
        Ok(bundle)
    }

    fn main(&self) -> PathBuf {
        if self.path.is_dir() { self.path.join(MAIN) } else { self.path.clone() }
    }

    /// Prints which files differ, and refuses a bundle of implausible size.
    fn compare(&self, console: &Console, fleet: &Fleet, bundle: &Bundle) -> Result<()> {
        let Some(pointer) = &fleet.pointer else { return Ok(()) };
        let before = match console.bundle(pointer.to) {
            Ok(before) => before,
            Err(e) => {
                errln!("weir: nothing to compare with: {e}");
                return Ok(());
            }
        };
        print(&differences(&before, bundle));
        let (was, is) = (before.bytes(), bundle.bytes());
        if is > SMALL && is > was.saturating_mul(GROWTH) && !self.force {
            bail!("it has {is} bytes but the previous one had {was}: use --force if this is intended");
        }
        Ok(())
    }
}

/// Prints the findings of `weir check` and returns the config if it has no mistakes. A variable missing here may
/// exist on the nodes.
fn check(main: &Path) -> Result<Option<Loaded>> {
    let readers = weir_gateway::filters::KINDS.iter().map(|kind| kind.name);
    let source = Source::file(main)
        .with_credentials(readers.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name)));
    let checked = weir_gateway::check(&source, &[]);
    let loaded = || match &checked.compiled {
        Some((loaded, _)) => Some(loaded.clone()),
        None => load(&source).ok(),
    };
    // Each node adds its `source` to the published config.
    let mut found = checked.diagnostics.clone();
    found.retain(|d| d.code != "fleet-without-source");
    let text = found.to_text();
    if !text.is_empty() {
        err!("{text}");
    }
    if let Some((loaded, _)) = &checked.compiled
        && loaded.config.source.is_some()
    {
        bail!("{} names a source, which belongs in a node's own config, not in a bundle", main.display());
    }
    let mut errors = checked.diagnostics.iter().filter(|d| d.severity == Severity::Error).peekable();
    if errors.peek().is_none() {
        return Ok(loaded());
    }
    let only_here = errors.all(|d| matches!(d.code, "missing-variable"));
    if only_here {
        errln!("weir: variables are missing here; each node has its own, so this is published");
    }
    Ok(if only_here { loaded() } else { None })
}

fn differences(before: &Bundle, after: &Bundle) -> String {
    let of = |bundle: &Bundle| -> BTreeMap<String, Vec<u8>> {
        bundle.files().map(|(path, content)| (path.to_owned(), content.to_vec())).collect()
    };
    let (before, after) = (of(before), of(after));
    let mut out = String::new();
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        let _ = writeln!(out, "  - {path}"); // a String takes all
    }
    for (path, content) in &after {
        let sign = match before.get(path) {
            None => '+',
            Some(was) if was != content => '~',
            Some(_) => continue,
        };
        let _ = writeln!(out, "  {sign} {path}"); // as above
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_it_first() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Ok(Who(Step::Labels(pairs.collect())))
        };
        assert_eq!("canary=true".parse(), labels(&[("canary", "true")]));
        assert_eq!("zone=a,canary=".parse(), labels(&[("canary", ""), ("zone", "a")]));
        assert_eq!("5%".parse(), Ok(Who(Step::Share { percent: 5, also: Vec::new() })));
        for wrong in ["", "0%", "101%", "canary", "=a", "a=b,c", "-1%"] {
            assert!(wrong.parse::<Who>().is_err(), "{wrong}");
        }
    }
}
