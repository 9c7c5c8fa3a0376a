//! `weir shadow`: a running Weir judges another config on live requests, after their answers.

use super::{AdminArgs, Format, print};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_admin::client::{self, Answer};
use weir_gateway::config::load::gather;
use weir_gateway::config::units;
use weir_gateway::config::{Overrides, Source};

/// How often to ask for the report, which also keeps the shadow running.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(super) struct Shadow {
    /// Share of the requests to judge
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share)]
    sample: String,
    /// How long to judge, at most 1d
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = time)]
    time: String,
    /// Largest share of changed decisions that still exits with 0 [default: any]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_change: Option<String>,
    /// How many judged requests a conclusion needs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    min_judged: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Shadow {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let Some(path) = &self.admin.config.config else {
            errln!("weir shadow: -c FILE is missing: the config to judge");
            return Ok(ExitCode::from(2));
        };
        let interrupted = Arc::new(AtomicBool::new(false));
        end_on_signal(&interrupted)?;
        let mut request = json!({
            "files": files(path)?,
            "sample": self.sample,
            "for": self.time,
            "min_judged": self.min_judged,
        });
        if let Some(most) = &self.max_change {
            request["max_change"] = most.clone().into();
        }
        let begun = self.ask("POST /api/v1/shadow", &request.to_string())?;
        if !begun.is_success() {
            match self.format {
                Format::Json => print(&begun.body),
                Format::Text => errln!("{}", begun.explanation()),
            }
            return Ok(ExitCode::from(1));
        }
        let begun = begun.json();
        let id = begun["id"].as_str().unwrap_or_default().to_owned();
        if self.format == Format::Text {
            let warnings = begun["warnings"].as_str().unwrap_or_default();
            err!("{warnings}");
            errln!("judging {} of the requests for {}; Ctrl-C ends it earlier", self.sample, self.time);
        }
        let report = self.follow(&id, &interrupted)?;
        match self.format {
            Format::Json => print(&format!("{report:#}\n")),
            Format::Text => print(report["text"].as_str().unwrap_or_default()),
        }
        Ok(ExitCode::from(u8::from(report["verdict"] != "within")))
    }

    /// Keeps the shadow running until its end. Returns the last report.
    fn follow(&self, id: &str, interrupted: &AtomicBool) -> Result<Value> {
        loop {
            let is_over = interrupted.load(Ordering::Relaxed);
            let answer = match is_over {
                true => self.ask(&format!("POST /api/v1/shadow/{id}:end"), "")?,
                false => self.ask(&format!("GET /api/v1/shadow/{id}"), "")?,
            };
            if !answer.is_success() {
                bail!("the shadow is gone: {}", answer.explanation());
            }
            let report = answer.json();
            if is_over {
                return Ok(report);
            }
            if report["state"] == "ended" {
                // The last heads are judged by then.
                let last = self.ask(&format!("POST /api/v1/shadow/{id}:end"), "")?;
                return Ok(if last.is_success() { last.json() } else { report });
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&self, line: &str, body: &str) -> Result<Answer> {
        let place = self.admin.place()?;
        let media = if body.is_empty() { "" } else { "application/json" };
        let call = client::Call { line, message: "", media, body: body.as_bytes() };
        client::ask(place.at(), place.token.as_deref(), call).map_err(|e| super::unanswered(&e))
    }
}

/// The candidate's files as written: variables are not filled in here, and included files are found here.
fn files(path: &Path) -> Result<Vec<Value>> {
    let gathered = gather(&Source::file(path), Overrides::default())
        .map_err(|unreadable| anyhow!("{}", unreadable.diagnostics.to_text().trim_end()))?;
    if gathered.diagnostics.errors() > 0 {
        // A file that is included and missing cannot be sent.
        bail!("{}", gathered.diagnostics.to_text().trim_end());
    }
    let main = path.canonicalize().with_context(|| path.display().to_string())?;
    let folder = main.parent().unwrap_or(Path::new("/")).to_owned();
    let texts = &gathered.texts;
    let written = texts.bootstrap.iter().chain(&texts.written);
    let file = |text: &weir_gateway::config::texts::Text| {
        let whole = text.path.canonicalize().with_context(|| text.path.display().to_string())?;
        let name = whole
            .strip_prefix(&folder)
            .map_err(|_| anyhow!("{} is included, but is not below {}", whole.display(), folder.display()))?;
        Ok(json!({ "name": name.display().to_string(), "text": &*text.text }))
    };
    written.map(file).collect()
}

fn share(text: &str) -> Result<String, String> {
    let percent = text.parse::<units::Percent>().map_err(|e| e.to_string())?.ratio();
    if (0.0..=1.0).contains(&percent) {
        Ok(text.to_owned())
    } else {
        Err("expected a share from 0% to 100%".to_owned())
    }
}

fn time(text: &str) -> Result<String, String> {
    let time = text.parse::<units::Duration>().map_err(|e| e.to_string())?.get();
    if time.is_zero() || time > weir_gateway::shadow::LONGEST {
        return Err("expected a time of at most 1d, such as 10m".to_owned());
    }
    Ok(text.to_owned())
}

/// Ctrl-C and SIGTERM end the shadow and print its report. A second one ends the command: the shadow's lease is over
/// soon after.
fn end_on_signal(interrupted: &Arc<AtomicBool>) -> Result<()> {
    let interrupted = Arc::clone(interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut keys, mut term) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = keys.recv() => {}
                _ = term.recv() => {}
            }
            interrupted.store(true, Ordering::Relaxed);
            tokio::select! {
                _ = keys.recv() => std::process::exit(130),
                _ = term.recv() => std::process::exit(143),
            }
        });
    };
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(wait)?;
    Ok(())
}
