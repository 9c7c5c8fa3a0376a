//! The action, the workflow and the job of `examples/ci`: they are YAML as their systems read it, and their shell
//! lines run.

use super::origin;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;
use weir_gateway::config::{Diagnostics, Node, parse};

fn example(name: &str) -> Node {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci").join(name);
    let mut diagnostics = Diagnostics::default();
    let node = parse::parse(&fs::read_to_string(path).unwrap(), Path::new(name), &mut diagnostics);
    node.unwrap_or_else(|| panic!("{}", diagnostics.to_text()))
}

#[track_caller]
fn at<'a>(node: &'a Node, path: &[&str]) -> &'a Node {
    path.iter().fold(node, |node, key| node.get(key).unwrap_or_else(|| panic!("no {key} of {path:?}")))
}

#[track_caller]
fn text<'a>(node: &'a Node, path: &[&str]) -> &'a str {
    at(node, path).as_text().unwrap_or_else(|| panic!("{path:?} is no text"))
}

/// Runs lines of a shell as a runner does: in a folder, with these variables and without stdin.
fn shell(dir: &TempDir, lines: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", lines]).current_dir(dir.path());
    command.envs(variables.iter().copied()).stdin(std::process::Stdio::null()).output().unwrap()
}

#[track_caller]
fn expect_code(output: &Output, code: i32) {
    let told = [&output.stdout[..], &output.stderr].concat();
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&told));
}

#[test]
fn the_action_of_github_runs_and_its_workflow_fits_it() {
    let action = example("action.yml");
    assert_eq!(text(&action, &["runs", "using"]), "composite");
    let step = &at(&action, &["runs", "steps"]).elements()[0];
    let lines = text(step, &["run"]);
    assert!(!lines.contains("${{"), "an input would be part of the script: {lines}");
    let (_origin, url) = origin("/body/1KiB");
    let (dir, weir) = (TempDir::new().unwrap(), env!("CARGO_BIN_EXE_weir"));
    let weir = std::env::var("WEIR_BIN").unwrap_or_else(|_| weir.to_owned());
    let run = |more: &[(&str, &str)]| {
        // The inputs of the action, shortened, as its variables.
        let mut variables: Vec<(&str, &str)> = at(step, &["env"])
            .entries()
            .iter()
            .map(|(name, value)| {
                let input = value.as_text().unwrap();
                let input = input.strip_prefix("${{ inputs.").and_then(|i| i.strip_suffix(" }}")).unwrap();
                let default = at(&action, &["inputs", input]).get("default");
                (&*name.text, default.and_then(Node::as_text).unwrap_or_default())
            })
            .collect();
        variables.extend([("TARGET", url.as_str()), ("WEIR", weir.as_str()), ("RATE", "100/s")]);
        variables.extend([
            ("DURATION", "1s"),
            ("WARMUP", "100ms"),
            ("ROUNDS", "5"),
            ("GITHUB_SHA", "c0ffee"),
        ]);
        variables.extend([("GITHUB_STEP_SUMMARY", "summary.md"), ("GITHUB_ACTIONS", "true")]);
        variables.extend(more);
        shell(&dir, lines, &variables)
    };
    let runs = || fs::read_to_string(dir.path().join("baseline.json")).unwrap().matches("c0ffee").count();
    let kept = ("KEEP", "true");
    expect_code(&run(&[kept]), 0);
    assert_eq!(runs(), 1, "the first run is the baseline");
    expect_code(&run(&[kept, ("FAIL_IF", "mean worse 1000%\nrate worse 1000%\n")]), 0);
    expect_code(&run(&[("KEEP", "false")]), 0);
    assert_eq!(runs(), 2);
    let broken = run(&[kept, ("THRESHOLDS", "max<1ns\n\nerrors<1%")]);
    expect_code(&broken, 10);
    assert!(String::from_utf8_lossy(&broken.stderr).contains("::error title=weir"), "{broken:?}");
    assert_eq!(runs(), 2, "a run that fails is no baseline");
    assert!(dir.path().join("weir.xml").exists());
    assert_eq!(fs::read_to_string(dir.path().join("summary.md")).unwrap().matches("### ").count(), 4);
    // Inputs are values, whatever they hold.
    let odd = run(&[("TARGET", "$(touch pwned)"), ("THRESHOLDS", "`touch pwned`")]);
    expect_code(&odd, 2);
    assert!(!dir.path().join("pwned").exists());

    let workflow = example("workflow.yml");
    let steps = at(&workflow, &["jobs", "load", "steps"]).elements();
    let ours = steps
        .iter()
        .find(|s| s.get("uses").is_some_and(|u| u.as_text() == Some("./.github/actions/weir-load")));
    for (input, _) in at(ours.unwrap(), &["with"]).entries() {
        assert!(
            at(&action, &["inputs"]).get(&input.text).is_some(),
            "the action has no input {}",
            input.text
        );
    }
}

#[test]
fn the_job_of_gitlab_runs() {
    let file = example("gitlab-ci.yml");
    let job = at(&file, &["load"]);
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    let weir = std::env::var("WEIR_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_weir").to_owned());
    let mut variables: Vec<(&str, &str)> = at(job, &["variables"])
        .entries()
        .iter()
        .map(|(name, value)| (&*name.text, value.as_text().unwrap()))
        .collect();
    variables.extend([("TARGET", url.as_str()), ("WEIR", weir.as_str()), ("RATE", "100/s")]);
    variables.extend([("DURATION", "1s"), ("WARMUP", "100ms"), ("CI_COMMIT_SHA", "c0ffee")]);
    variables.extend([("CI_COMMIT_BRANCH", "main"), ("CI_DEFAULT_BRANCH", "main")]);
    let script = |key: &str| {
        let lines = at(job, &[key]).elements().iter().map(|line| line.as_text().unwrap().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    };
    expect_code(&shell(&dir, &script("script"), &variables), 0);
    expect_code(&shell(&dir, &script("after_script"), &variables), 0);
    let reports = at(job, &["artifacts", "reports"]);
    let xml = fs::read_to_string(dir.path().join(text(reports, &["junit"]))).unwrap();
    assert!(xml.starts_with("<?xml"), "{xml}");
    let quality = fs::read_to_string(dir.path().join(text(reports, &["codequality"]))).unwrap();
    assert!(quality.starts_with('['), "{quality}");
    for _ in 0..2 {
        expect_code(&shell(&dir, &script("script"), &variables), 0);
    }
    let baseline = fs::read_to_string(dir.path().join("baseline.json")).unwrap();
    assert_eq!(baseline.matches("c0ffee").count(), 3, "{baseline}");
}
