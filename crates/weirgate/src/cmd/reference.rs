//! Generates parts of reference pages: `cli.md` from the definition of the command line, and tables of pages about
//! the load tester.
//!
//! `WEIR_BLESS=1` writes them; `e2e/cli.rs` compares cli.md with what the binary prints for `--help`.

use super::fleet::Place;
use super::load::{ConnectionArgs, RequestArgs};
use super::{AdminArgs, Cli};
use clap::builder::StyledStr;
use clap::{Arg, Args, Command, CommandFactory};
use std::fmt::Write;
use weir_gateway::config::deprecated::DEPRECATED;
use weir_origin::PATHS;
use weir_report::layout::FORMATS;
use weir_testkit::generated;

const PAGE: &str = "docs/reference/cli.md";

/// Every command, with the page that has more about it.
const PARTS: &[(&str, &[(&str, &str)])] = &[
    (
        "Without a running Weir",
        &[
            ("run", "[operations](../guide/operations.md)"),
            ("check", "[config](config.md)"),
            ("explain", "[routing](routing.md)"),
            ("test", "[proving an import](../guide/prove.md)"),
            ("filters", "[filters](filters.md)"),
            ("schema", "[config](config.md)"),
            ("hash", "[authentication](../guide/authentication.md)"),
            (
                "import",
                "[coming from nginx](../guide/from-nginx.md), [importing plans](../guide/import-plans.md)",
            ),
            ("prove", "[proving an import](../guide/prove.md)"),
            ("completions", "[packages](../guide/install.md#the-packages)"),
            ("man", "[packages](../guide/install.md#the-packages)"),
        ],
    ),
    (
        "A running Weir",
        &[
            ("status", "[status](admin-api.md#status)"),
            ("why", "[troubleshooting](../guide/troubleshooting.md)"),
            ("reload", "[reload](../guide/operations.md#reload)"),
            ("shadow", "[trying a config out](../guide/shadow.md)"),
            ("apply", "[changes](../guide/changes.md)"),
            ("confirm", "[changes](../guide/changes.md#confirm)"),
            ("history", "[changes](../guide/changes.md#roll-back)"),
            ("diff", "[changes](../guide/changes.md#roll-back)"),
            ("rollback", "[changes](../guide/changes.md#roll-back)"),
            ("config", "[owners](../guide/changes.md#who-owns-a-thing)"),
            ("endpoint", "[by hand](../guide/upstreams.md#by-hand)"),
            ("maintenance", "[maintenance](../guide/content.md#maintenance)"),
            ("purge", "[purging](../guide/cache.md#purging)"),
            ("drain", "[drain](../guide/operations.md#drain)"),
            ("upgrade", "[upgrade](../guide/operations.md#upgrade)"),
            ("fleet", "[fleet](../guide/fleet.md)"),
        ],
    ),
    (
        "Load tests",
        &[
            ("load", "[load](load.md)"),
            ("agent", "[several machines](load.md#several-machines)"),
            ("compare", "[compare](compare.md)"),
            ("baseline", "[baselines](compare.md#baselines)"),
            ("bench", "[bench](bench.md)"),
            ("origin", "[origin](origin.md)"),
            ("report", "[load](load.md#json-and-weir-report)"),
            ("replay", "[replay](replay.md)"),
        ],
    ),
];

/// Options that several commands have. They are listed once.
struct Shared {
    /// Adds the options to a command.
    add: fn(Command) -> Command,
    /// The section that lists them; empty for the part `running`.
    section: &'static str,
    /// What the sections of other commands say.
    link: &'static str,
}

const SHARED: &[Shared] = &[
    Shared {
        add: AdminArgs::augment_args,
        section: "",
        link: "Also the [options that name a running Weir](#which-weir).",
    },
    Shared {
        add: Place::augment_args,
        section: "weir fleet",
        link: "Also the [options that name the fleet](#weir-fleet).",
    },
    Shared {
        add: RequestArgs::augment_args,
        section: "weir load",
        link: "Also the options of [`weir load`](#weir-load) under Request and gRPC.",
    },
    Shared {
        add: ConnectionArgs::augment_args,
        section: "weir load",
        link: "Also the options of [`weir load`](#weir-load) under Connection.",
    },
];

impl Shared {
    fn args(&self) -> Vec<Arg> {
        (self.add)(Command::new("")).get_arguments().cloned().collect()
    }
}

#[test]
fn the_command_line_is_documented() {
    let mut weir = Cli::command();
    weir.build();
    generated(PAGE, "running", &table(&SHARED[0].args()));
    generated(PAGE, "commands", &overview(&weir));
    let mut sections = String::new();
    for command in weir.get_subcommands() {
        section(command, &format!("weir {}", command.get_name()), &mut sections);
    }
    generated(PAGE, "options", &sections);
}

#[test]
fn help_tells_what_exit_codes_mean() {
    let weir = Cli::command();
    for name in ["import", "prove", "test"] {
        let command = weir.find_subcommand(name).unwrap();
        let [line, about] =
            [command.get_about(), command.get_long_about()].map(|text| text.unwrap().to_string());
        assert!(about.contains("\n\nExit code: 0 if "), "{name}");
        assert_eq!(about.lines().next(), Some(&*format!("{line}.")), "both say the same");
    }
}

#[test]
fn deprecated_keys_are_documented() {
    let mut table = "| key | write | since | ends in |\n|---|---|---|---|\n".to_owned();
    for entry in DEPRECATED {
        let (old, since, ends) = (entry.name(), entry.since, entry.ends);
        let _ = writeln!(table, "| `{old}` | `{}` | {since} | {ends} |", entry.successor);
    }
    generated("docs/reference/versions.md", "deprecated", &table);
}

#[test]
fn the_layouts_are_documented() {
    let mut table = "| `--format` | prints | differs from the original |\n|---|---|---|\n".to_owned();
    for format in FORMATS {
        let (about, differs) = (cell(format.about), cell(format.differs.trim_end_matches('.')));
        let _ = writeln!(table, "| `{}` | {about} | {differs} |", format.name);
    }
    generated("docs/reference/load.md", "layouts", &table);
}

#[test]
fn the_paths_of_the_origin_are_documented() {
    let source = include_str!("../../../weir-origin/src/lib.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let rows: Vec<String> = rows.map(|row| format!("| {row}")).collect();
    assert!(rows.len() > 20 && PATHS.len() > 20, "{rows:?}");
    for (path, _) in PATHS {
        let page = path[1..].split(['/', '?']).next().unwrap();
        assert!(rows.iter().any(|row| row.contains(&format!("`/{page}"))), "{path} is in no row");
    }
    let table = format!("| path | answer |\n|---|---|\n{}\n", rows.join("\n"));
    generated("docs/reference/origin.md", "paths", &table);
}

#[test]
fn the_keys_of_a_bench_file_are_documented() {
    let source = include_str!("compare/file.rs");
    for (name, part) in
        [("BenchFile", "file"), ("Service", "service"), ("Workload", "workload"), ("Published", "published")]
    {
        let (_, rest) = source.split_once(&format!("struct {name} {{\n")).unwrap();
        let (mut table, mut text) = ("| key | meaning |\n|---|---|\n".to_owned(), String::new());
        for line in rest.split("\n}\n").next().unwrap().lines().map(str::trim) {
            if let Some(more) = line.strip_prefix("/// ") {
                text.extend([more, " "]);
                continue;
            }
            let (key, _) = line.trim_start_matches("pub(super) ").split_once(':').unwrap();
            assert!(!text.is_empty(), "{name}.{key} has no text");
            let _ = writeln!(table, "| `{key}` | {} |", cell(text.trim_end().trim_end_matches('.')));
            text.clear();
        }
        generated("docs/reference/compare.md", part, &table);
    }
}

/// A table of commands for each part, in the order of [`PARTS`].
fn overview(weir: &Command) -> String {
    let mut out = String::new();
    let mut listed: Vec<&str> = Vec::new();
    for (title, commands) in PARTS {
        let _ = writeln!(out, "**{title}:**\n\n| command | purpose | more |\n|---|---|---|"); // a String takes all
        for (name, more) in *commands {
            let command = weir.find_subcommand(name).unwrap_or_else(|| panic!("there is no command {name}"));
            let _ = writeln!(out, "| [`weir {name}`](#weir-{name}) | {} | {more} |", cell(&about(command)));
            listed.push(name);
        }
        out.push('\n');
    }
    for command in weir.get_subcommands() {
        assert!(listed.contains(&command.get_name()), "{} is in no list of PARTS", command.get_name());
    }
    out
}

/// What a command does, how it is written, and its options; then its subcommands.
fn section(command: &Command, name: &str, out: &mut String) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = write!(out, "### {name}\n\n`{usage}`\n\n{}.\n\n", about(command));
    let mut listed: Vec<Arg> = command.get_arguments().cloned().collect();
    let mut links = Vec::new();
    for shared in SHARED {
        let args = shared.args();
        let same = |arg: &Arg, other: &Arg| arg.get_id() == other.get_id() && meaning(arg) == meaning(other);
        let has_all = args.iter().all(|arg| listed.iter().any(|own| same(own, arg)));
        if shared.section == name && command.has_subcommands() {
            listed.extend(args);
        } else if shared.section != name && has_all {
            listed.retain(|own| !args.iter().any(|arg| same(own, arg)));
            links.push(shared.link);
        }
    }
    out.push_str(&table(&listed));
    links.iter().for_each(|link| out.extend([*link, "\n"]));
    if !links.is_empty() {
        out.push('\n');
    }
    for inner in command.get_subcommands() {
        section(inner, &format!("{name} {}", inner.get_name()), out);
    }
}

/// A table for each heading of the options, in the order of the definition.
fn table(args: &[Arg]) -> String {
    let shown =
        args.iter().filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()));
    let mut headings: Vec<(Option<&str>, String)> = Vec::new();
    for arg in shown {
        let heading = arg.get_help_heading();
        let rows = match headings.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, rows)) => rows,
            None => {
                headings.push((heading, String::new()));
                &mut headings.last_mut().unwrap().1
            }
        };
        let _ = writeln!(rows, "| {} | {} |", names(arg), meaning(arg));
    }
    let mut out = String::new();
    headings.sort_by_key(|(heading, _)| heading.is_some());
    for (heading, rows) in headings {
        let heading = heading.map_or_else(String::new, |heading| format!("**{heading}**\n\n"));
        let _ = write!(out, "{heading}| option | meaning |\n|---|---|\n{rows}\n");
    }
    out
}

/// How an option is written: all its names, and its value behind the longest.
fn names(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
    let value = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut names: Vec<String> = short.into_iter().chain(long).collect();
    match names.last_mut() {
        Some(last) if !value.is_empty() => *last = format!("{last} {value}"),
        Some(_) => {}
        None => names.push(value),
    }
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    names.extend(aliases.iter().map(|alias| format!("--{alias}")));
    names.iter().map(|name| cell(&format!("`{name}`"))).collect::<Vec<_>>().join(", ")
}

/// The help text, the possible values and the default.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut out = cell(&help);
    if !arg.get_action().takes_values() {
        return out;
    }
    let values = arg.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let values: Vec<String> = values
        .filter_map(|value| Some(format!("`{}`: {}", value.get_name(), begun(value.get_help()?))))
        .collect();
    if !values.is_empty() {
        let _ = write!(out, ". {}", values.join("; "));
    }
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !default.is_empty() && !arg.is_hide_default_value_set() {
        let _ = write!(out, " [default: {}]", default.join(" "));
    }
    out
}

/// The help text of a value, for use inside a sentence.
fn begun(help: &StyledStr) -> String {
    let help = cell(&help.to_string());
    let mut chars = help.chars();
    let (first, second) = (chars.next(), chars.next());
    let is_word = second.is_some_and(char::is_lowercase);
    let begin = first.filter(|_| is_word).map(|first| first.to_lowercase().to_string());
    begin.map_or_else(|| help.clone(), |begin| begin + help.get(1..).unwrap_or_default())
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// A text for a cell of a Markdown table. Quoted words become code, and nothing outside of code is markup.
fn cell(text: &str) -> String {
    let mut out = String::new();
    let mut code = false;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let chars: Vec<char> = text.chars().collect();
    let mut quoted = false;
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        match c {
            '\'' if !code && before.is_none_or(|c| " (".contains(c)) => {
                (code, quoted) = (true, true);
                out.push('`');
            }
            '\'' if quoted && after.is_none_or(|c| " ,.;)".contains(*c)) => {
                (code, quoted) = (false, false);
                out.push('`');
            }
            '`' => {
                code = !code;
                out.push(c);
            }
            '|' => out.push_str("\\|"),
            '<' | '*' | '~' if !code => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    assert!(!code, "{text}: a quote stays open");
    out
}

#[test]
fn a_cell_holds_no_markup() {
    for (text, wanted) in [
        ("such as 'p99<20ms', or k6's 'p(95)<2'", "such as `p99<20ms`, or k6's `p(95)<2`"),
        ("body~TEXT, size<10KiB", "body\\~TEXT, size\\<10KiB"),
        ("PID|auto of `a|b`", "PID\\|auto of `a\\|b`"),
    ] {
        assert_eq!(cell(text), wanted);
    }
}
