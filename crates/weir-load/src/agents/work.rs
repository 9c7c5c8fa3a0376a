//! The job that an agent receives, independent of its machine: options and plan as text, files by digest, variables
//! with their values.
//!
//! *Architecture Invariant:* an agent reads no file of its own disk and no variable of its environment for a plan.

use super::limits::{Limits, permitted, plan_rate, rate, within_rate};
use crate::url::Url;
use crate::{Options, Plan};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_agents::Share;
use weir_agents::message::{FILES_BYTES, FILES_MOST, File, Offer};
use weir_plan::{Disk, Files, Source, StepKind};
use weir_report::Mistake;

/// The work of an offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    options: Options,
    plan: Option<PlanText>,
    /// The digest of each file by its path, as options and plan name it.
    paths: BTreeMap<String, String>,
}

/// A plan with scenarios, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    name: String,
    text: String,
    variables: Vec<(String, String)>,
    set: Vec<(String, String)>,
    is_rehearsed: bool,
}

/// A plan file for agents.
#[derive(Clone, Copy, Debug)]
pub struct PlanFile<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Keys that are changed.
    pub set: &'a [(String, String)],
    /// Whether each scenario runs once before the load.
    pub is_rehearsed: bool,
}

/// Work with the content of its files.
#[derive(Debug, Default)]
pub struct Packed {
    pub(super) work: Work,
    pub(super) files: Vec<(File, Arc<[u8]>)>,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The disk, and every file that was read from it.
#[derive(Default)]
struct Recorded(RefCell<BTreeMap<String, Vec<u8>>>);

impl Files for Recorded {
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let content = Disk.read(path, most)?;
        self.0.borrow_mut().insert(path.display().to_string(), content.clone());
        Ok(content)
    }
}

/// The files that came with an offer.
struct Sent<'a> {
    paths: &'a BTreeMap<String, String>,
    files: &'a BTreeMap<String, Vec<u8>>,
}

impl Files for Sent<'_> {
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let content = self.paths.get(&path.display().to_string()).and_then(|digest| self.files.get(digest));
        match content {
            Some(content) if content.len() as u64 <= most => Ok(content.clone()),
            Some(_) => Err(io::Error::other(format!("it is longer than {most} bytes"))),
            None => Err(io::Error::other("the coordinator did not send it")),
        }
    }
}

// === the coordinator's side ===

impl Packed {
    /// Collects what agents need. `agents` is their number.
    ///
    /// # Errors
    /// Options that make no sense with agents, and files that cannot be read.
    pub fn new(options: &Options, plan: Option<PlanFile<'_>>) -> Result<Self, Vec<Mistake>> {
        let mut wrong = not_for_agents(options);
        let mut sent = options.clone();
        // Judged where everything is added up, once.
        sent.thresholds.clear();
        sent.abort_on.clear();
        let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut take = |place: &str, path: &str| match Disk.read(Path::new(path), FILES_BYTES) {
            Ok(content) => drop(contents.insert(path.to_owned(), content)),
            Err(e) => wrong.push(Mistake::new(&format!("{place} {path}"), &e.to_string())),
        };
        if let Some(path) = sent.data.as_deref().and_then(|data| data.strip_prefix('@')) {
            take("--data", path);
        }
        for path in sent.forms.iter().filter_map(|form| form_file(form)) {
            take("-F", path.1);
        }
        for (place, path) in
            [("--feed", &sent.feed), ("--cacert", &sent.cacert), ("--protoset", &sent.protoset)]
        {
            if let Some(path) = path {
                take(place, &path.display().to_string());
            }
        }
        let mut text = None;
        if let Some(file) = plan {
            let files = Recorded::default();
            let source = Source::file(file.path);
            // Its mistakes have been told; this reads which files it names.
            drop(weir_plan::read(&source, &files, file.set));
            contents.extend(files.0.take());
            match std::fs::read_to_string(file.path) {
                Ok(written) => {
                    text = Some(PlanText {
                        name: file.path.display().to_string(),
                        text: written,
                        variables: weir_plan::variables_of(&source),
                        set: file.set.to_vec(),
                        is_rehearsed: file.is_rehearsed,
                    });
                }
                Err(e) => wrong.push(Mistake::new(&file.path.display().to_string(), &e.to_string())),
            }
        }
        let mut packed =
            Self { work: Work { options: sent, plan: text, ..Work::default() }, ..Self::default() };
        for (path, content) in contents {
            packed.add(path, content);
        }
        let bytes: u64 = packed.files.iter().map(|(file, _)| file.bytes).sum();
        if bytes > FILES_BYTES || packed.files.len() > FILES_MOST {
            let hint = format!("its files are more than {FILES_MOST}, or longer than 1 GiB together");
            wrong.push(Mistake::new("--agents", &hint));
        }
        if wrong.is_empty() { Ok(packed) } else { Err(wrong) }
    }

    fn add(&mut self, path: String, content: Vec<u8>) {
        let digest = hex(&content);
        if !self.files.iter().any(|(file, _)| file.digest == digest) {
            let file = File { digest: digest.clone(), bytes: content.len() as u64 };
            self.files.push((file, content.into()));
        }
        self.work.paths.insert(path, digest);
    }

    /// The offer to one agent.
    pub(super) fn offer(&self, run: &str, by: &str, share: Share) -> Offer {
        Offer {
            protocol: weir_agents::message::PROTOCOL,
            run: run.to_owned(),
            by: by.to_owned(),
            work: serde_json::to_value(&self.work).unwrap_or_default(), // all keys are strings
            share,
            files: self.files.iter().map(|(file, _)| file.clone()).collect(),
            ..Offer::default() // the coordinator fills in what it decides
        }
    }
}

/// Options that name something of one machine.
fn not_for_agents(o: &Options) -> Vec<Mistake> {
    let machine = "depends on one machine: leave it out with --agents";
    let shape_reads = o.shape.as_deref().is_some_and(reads_file);
    let all = [
        ("--unix-socket", o.unix_socket.is_some(), machine),
        ("--pid", o.pid.is_some(), machine),
        ("--control", o.control.is_some(), "controls one generator only: leave it out with --agents"),
        ("--rounds", o.rounds.is_some(), "blocks of several machines do not begin together"),
        (
            "--proxy env",
            o.proxy.as_deref() == Some("env"),
            "name the proxy: agents do not ask their environment",
        ),
        (
            "--proto",
            !o.protos.is_empty() || !o.import_paths.is_empty(),
            "agents take a descriptor set: --protoset",
        ),
        ("--shape", shape_reads, "a part `file` with --agents needs a plan file"),
    ];
    let given = all.into_iter().filter(|(_, is_given, _)| *is_given);
    let mut wrong: Vec<Mistake> = given.map(|(name, _, hint)| Mistake::new(name, hint)).collect();
    if o.protoset.is_none() && o.urls.iter().any(|url| is_grpc(url)) {
        let hint = "agents take the schema of gRPC calls from --protoset, not by reflection";
        wrong.push(Mistake::new("--protoset", hint));
    }
    wrong
}

/// Name and path of a part that is a file, `name=@path`.
fn form_file(form: &str) -> Option<(&str, &str)> {
    let (name, value) = form.split_once('=')?;
    Some((name, value.strip_prefix('@')?))
}

fn is_grpc(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.scheme.is_grpc())
}

/// Whether a part of `--shape` names a file.
fn reads_file(shape: &str) -> bool {
    shape.split(',').any(|part| {
        let part = part.trim();
        let form = part.split_once(':').map_or(part, |(_, form)| form.trim());
        [part, form].iter().any(|text| text.split_whitespace().next() == Some("file"))
    })
}

// === the agent's side ===

/// Makes a run of an offer, within the limits of this agent. `folder` takes files that must be files.
///
/// # Errors
/// Every reason against it, in sentences.
pub(super) fn unpack(
    offer: &Offer,
    files: &BTreeMap<String, Vec<u8>>,
    limits: &Limits,
    folder: &Path,
) -> Result<Plan, Vec<String>> {
    let work: Work = serde_json::from_value(offer.work.clone()).map_err(|e| vec![format!("work: {e}")])?;
    let mut options = Options { share: offer.share, is_sent: true, ..work.options.clone() };
    let told = |mistakes: Vec<Mistake>| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
    // The coordinator refuses these too; an agent does not rely on it.
    let wrong = not_for_agents(&options);
    if !wrong.is_empty() {
        return Err(told(wrong));
    }
    if options.cert.is_some() || options.key.is_some() {
        return Err(vec!["--cert: a client certificate for targets is not sent to agents".to_owned()]);
    }
    lay_out(&mut options, &work, files, folder).map_err(|why| vec![why])?;
    let mut plan = match &work.plan {
        None => {
            let urls: Vec<Url> = options.urls.iter().filter_map(|text| Url::parse(text).ok()).collect();
            if urls.len() < options.urls.len() {
                return Err(vec!["a URL is not valid".to_owned()]);
            }
            let places = urls.iter().map(|url| (url.scheme.is_tls(), url.host.clone(), url.port));
            permitted(&limits.allow, places.collect(), &options)?;
            Plan::new(&options).map_err(told)?
        }
        Some(text) => {
            let source = Source::sealed(&text.name, text.text.as_str(), text.variables.clone());
            let sent = Sent { paths: &work.paths, files };
            let plan = weir_plan::read(&source, &sent, &text.set).map_err(|m| vec![m.to_string()])?;
            if !limits.allow_exec && plan.steps.iter().any(|step| step.kind == StepKind::Exec) {
                return Err(vec!["`exec` steps run programs: start the agent with --allow-exec".to_owned()]);
            }
            if !plan.protos.is_empty() {
                return Err(vec!["`protos` name files of one machine, which agents do not read".to_owned()]);
            }
            let url = |origin: &weir_plan::Origin| {
                let url = Url::parse(&origin.to_string()).map_err(|why| vec![format!("{origin}: {why}")])?;
                Ok((url.scheme.is_tls(), url.host.clone(), url.port))
            };
            let places = plan.origins.iter().map(url).collect::<Result<_, Vec<String>>>()?;
            permitted(&limits.allow, places, &options)?;
            // `--rate` and `-c` change the loads of the plan: limits are those of what will run.
            let made = Plan::of_scenarios(plan, &options, text.is_rehearsed).map_err(told)?;
            let rate = made.journey.as_ref().and_then(|journey| plan_rate(&journey.plan, offer.share));
            within_rate(limits, rate)?;
            made
        }
    };
    if work.plan.is_none() {
        within_rate(limits, rate(&plan))?;
    }
    // One request after the other, setup and teardown have no rate of their own.
    plan.gap_ns = limits.max_rate.map_or(0, |most| (1e9 / most) as u64);
    let mut why = Vec::new();
    // Each connection of a load is one to each server.
    let connections = plan.connections_most().saturating_mul(plan.origins.len().max(1) as u64);
    if limits.max_connections.is_some_and(|most| connections > most) {
        let most = limits.max_connections.unwrap_or_default();
        why.push(format!("{connections} connections, but this agent allows {most} (--max-connections)"));
    }
    let length = Duration::from_nanos(plan.stop_ns.unwrap_or(0).saturating_add(plan.warmup_ns));
    if let Some(most) = limits.max_duration.filter(|most| length > *most) {
        let (length, most) = (length.as_secs_f64(), most.as_secs_f64());
        why.push(format!("{length} s, but this agent allows {most} s (--max-duration)"));
    }
    plan.thresholds.clear();
    plan.abort_on.clear();
    if let Some(plain) = plan.plain.as_mut().and_then(Arc::get_mut) {
        plain.thresholds.clear();
        plain.abort_on.clear();
    }
    if why.is_empty() { Ok(plan) } else { Err(why) }
}

/// Puts the files of options into a folder, under their own names, and the new paths into the options.
fn lay_out(
    options: &mut Options,
    work: &Work,
    files: &BTreeMap<String, Vec<u8>>,
    folder: &Path,
) -> Result<(), String> {
    let mut number = 0;
    let mut put = |path: &str| -> Result<PathBuf, String> {
        let content = work.paths.get(path).and_then(|digest| files.get(digest));
        let content = content.ok_or_else(|| format!("the coordinator did not send the file {path}"))?;
        number += 1;
        let name = Path::new(path).file_name().ok_or_else(|| format!("{path} is no name of a file"))?;
        let own = folder.join(number.to_string());
        std::fs::create_dir(&own).map_err(|e| e.to_string())?;
        let at = own.join(name);
        std::fs::write(&at, content).map_err(|e| e.to_string())?;
        Ok(at)
    };
    if let Some(data) = &mut options.data
        && let Some(path) = data.strip_prefix('@')
    {
        *data = format!("@{}", put(path)?.display());
    }
    for form in &mut options.forms {
        if let Some((name, path)) = form_file(form) {
            *form = format!("{name}=@{}", put(path)?.display());
        }
    }
    for path in [&mut options.feed, &mut options.cacert, &mut options.protoset].into_iter().flatten() {
        *path = put(&path.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agents::Allow;

    fn limits() -> Limits {
        let allow = Allow::parse(&["http://127.0.0.1:*".to_owned()]).unwrap();
        Limits { allow, ..Limits::default() }
    }

    /// What an agent says to this work, which no honest coordinator would send.
    fn told(options: Options, plan: Option<PlanText>, limits: &Limits) -> String {
        let work = Work { options, plan, ..Work::default() };
        let offer = Offer { work: serde_json::to_value(&work).unwrap(), ..Offer::default() };
        let folder = tempfile::tempdir().unwrap();
        match unpack(&offer, &BTreeMap::new(), limits, folder.path()) {
            Ok(_) => "good".to_owned(),
            Err(why) => why.join("; "),
        }
    }

    fn to(url: &str) -> Options {
        Options { urls: vec![url.to_owned()], requests: Some("10".to_owned()), ..Options::default() }
    }

    fn plan(text: &str) -> Option<PlanText> {
        Some(PlanText { name: "plan.yaml".to_owned(), text: text.to_owned(), ..PlanText::default() })
    }

    const STEPS: &str = "scenarios: { a: { users: 1, steps: [ { name: a, get: / } ] } }\n";

    #[test]
    fn no_work_reads_what_is_of_the_agent() {
        let path = || Some(PathBuf::from("/etc/hostname"));
        let here = || to("http://127.0.0.1:9/");
        assert_eq!(told(here(), None, &limits()), "good");
        type Change<'a> = (&'a str, &'a dyn Fn(&mut Options));
        let changes: [Change<'_>; 12] = [
            ("did not send", &|o| o.data = Some("@/etc/hostname".to_owned())),
            ("did not send", &|o| o.forms = vec!["a=@/etc/hostname".to_owned()]),
            ("did not send", &|o| o.feed = path()),
            ("did not send", &|o| o.cacert = path()),
            ("did not send", &|o| o.protoset = path()),
            ("is not sent to agents", &|o| (o.cert, o.key) = (path(), path())),
            ("--proto", &|o| o.protos = vec![PathBuf::from("/etc/hostname")]),
            ("--unix-socket", &|o| o.unix_socket = path()),
            ("--control", &|o| o.control = Some("unix:/tmp/x".to_owned())),
            ("--pid", &|o| o.pid = Some("1".to_owned())),
            ("--proxy env", &|o| o.proxy = Some("env".to_owned())),
            ("--shape", &|o| (o.requests, o.shape) = (None, Some("a: file /etc/hostname 1s".to_owned()))),
        ];
        for (want, change) in changes {
            let mut options = here();
            change(&mut options);
            let told = told(options, None, &limits());
            assert!(told.contains(want), "{want}: {told}");
        }
        let target = "target: http://127.0.0.1:9\n";
        assert_eq!(told(Options::default(), plan(&format!("{target}{STEPS}")), &limits()), "good");
        for (want, text) in [
            ("PATH is not set", "values: { a: \"${PATH}\" }\n"),
            ("was not sent along", "values: { a: \"${file:/etc/hostname}\" }\n"),
            ("was not sent along", "values: { a: \"\\u0024{file:/etc/hostname}\" }\n"),
            ("did not send", "data: { a: { file: /etc/hostname } }\n"),
        ] {
            let told = told(Options::default(), plan(&format!("{target}{text}{STEPS}")), &limits());
            assert!(told.contains(want), "{want}: {told}");
        }
    }

    #[test]
    fn no_work_sends_where_it_may_not() {
        let sent = |url: &str, change: &dyn Fn(&mut Options)| {
            let mut options = to(url);
            change(&mut options);
            told(options, None, &limits())
        };
        let refused = "not on the allow list";
        assert!(sent("http://127.0.0.2:9/", &|_| {}).contains(refused));
        assert!(sent("https://127.0.0.1:9/", &|_| {}).contains(refused));
        assert!(sent("http://[::1]:9/", &|_| {}).contains(refused));
        assert!(
            sent("http://127.0.0.1:9/", &|o| o.proxy = Some("10.0.0.1:3128".to_owned())).contains(refused)
        );
        let resolve = |rule: &str| sent("http://127.0.0.1:9/", &|o| o.resolve = vec![rule.to_owned()]);
        assert!(resolve("127.0.0.1:9:10.0.0.1").contains(refused));
        assert!(resolve("*:9:127.0.0.1,10.0.0.1").contains(refused));
        assert_eq!(resolve("*:9:127.0.0.1"), "good");
        for text in [
            "target: http://10.0.0.1\n",
            "target: http://127.0.0.1:9\nsetup: [ { name: s, get: \"http://10.0.0.1/x\" } ]\n",
            "target: http://127.0.0.1:9\nteardown: [ { name: s, get: \"http://10.0.0.1/x\" } ]\n",
        ] {
            let told = told(Options::default(), plan(&format!("{text}{STEPS}")), &limits());
            assert!(told.contains(refused), "{text}: {told}");
        }
        let nowhere = Limits::default();
        assert!(told(to("http://127.0.0.1:9/"), None, &nowhere).contains(refused));
    }

    #[test]
    fn no_work_exceeds_the_limits() {
        let rate = Limits { max_rate: Some(50.0), max_connections: Some(4), ..limits() };
        let load = |rate: &str, connections: u64| Options {
            requests: None,
            rate: Some(rate.to_owned()),
            connections: Some(connections),
            ..to("http://127.0.0.1:9/")
        };
        assert_eq!(told(load("50/s", 4), None, &rate), "good");
        assert!(told(load("51/s", 4), None, &rate).contains("--max-rate"));
        assert!(told(load("50/s", 5), None, &rate).contains("--max-connections"));
        assert!(told(to("http://127.0.0.1:9/"), None, &rate).contains("closed loop"));
        // Ten a second on average, all of ten seconds at once.
        let burst = |n: u32| Options {
            rate: None,
            shape: Some("hold 10/s 10s".to_owned()),
            spacing: Some(format!("burst({n})")),
            ..load("", 100)
        };
        let many = Limits { max_connections: None, ..rate.clone() };
        assert_eq!(told(burst(50), None, &many), "good");
        assert!(
            told(burst(100), None, &many).contains("100 requests a second"),
            "{}",
            told(burst(100), None, &many)
        );
        // Ten iterations a second, each of six requests.
        let written = "target: http://127.0.0.1:9\nscenarios: { a: { rate: 10/s, users_max: 2, steps: [ { repeat: 3, \
                       steps: [ { name: a, get: / }, { name: b, get: / } ] } ] } }\n";
        assert!(told(Options::default(), plan(written), &rate).contains("60 requests a second"));
        let time = Limits { max_duration: Some(Duration::from_secs(9)), ..limits() };
        assert!(told(load("50/s", 4), None, &time).contains("--max-duration"));
    }
}
