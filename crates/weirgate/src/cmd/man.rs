//! `weir man`: the manual pages for packages, generated from the definition of the command line.

use super::{Cli, print};
use anyhow::{Context, Result};
use clap::{Arg, Args, Command, CommandFactory};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Man {
    /// Write weir.1 and a page per command, such as weir-load.1, to this folder [default: print weir.1]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut weir = Cli::command();
        weir.build();
        let Some(dir) = &self.dir else {
            print(&page(&mut weir, "weir"));
            return Ok(ExitCode::SUCCESS);
        };
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let names: Vec<String> =
            weir.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let mut pages = vec![("weir".to_owned(), page(&mut weir, "weir"))];
        for name in names {
            if let Some(command) = weir.find_subcommand_mut(&name) {
                let of = format!("weir-{name}");
                pages.push((of.clone(), page(command, &of)));
            }
        }
        for (name, text) in pages {
            let path = dir.join(format!("{name}.1"));
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The page of a command, in roff (man(7)).
fn page(command: &mut Command, name: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let more = command.get_long_about().map_or_else(|| about.clone(), ToString::to_string);
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut out = format!(".TH {} 1 \"\" \"weir {version}\"\n", escaped(name));
    let _ = write!(out, ".SH NAME\n{} \\- {}\n", escaped(name), escaped(&about)); // a String takes all
    let _ = write!(out, ".SH SYNOPSIS\n{}\n.SH DESCRIPTION\n{}\n", escaped(usage), escaped(&more));
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for (title, positional) in [("ARGUMENTS", true), ("OPTIONS", false)] {
        let args: Vec<&Arg> = shown().filter(|arg| arg.is_positional() == positional).collect();
        if !args.is_empty() {
            let _ = writeln!(out, ".SH {title}");
            args.into_iter().for_each(|arg| argument(arg, &mut out));
        }
    }
    let commands: Vec<&Command> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    if !commands.is_empty() {
        out.push_str(".SH COMMANDS\n");
    }
    for command in commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            out,
            ".TP\n{}(1)\n{}\n",
            escaped(&format!("{name}-{}", command.get_name())),
            escaped(&about)
        );
    }
    if name != "weir" {
        out.push_str(".SH SEE ALSO\nweir(1)\n");
    }
    out
}

/// An option or argument, with its possible values and its default.
fn argument(arg: &Arg, out: &mut String) {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> =
        short.into_iter().chain(long).map(|name| format!("\\fB{}\\fR", escaped(&name))).collect();
    let mut title = names.join(", ");
    if arg.get_action().takes_values() {
        for value in arg.get_value_names().unwrap_or_default() {
            let apart = if title.is_empty() { "" } else { " " };
            let _ = write!(title, "{apart}\\fI{}\\fR", escaped(value));
        }
    }
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, ".TP\n{title}\n{}\n", escaped(&help));
    let default: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() && !default.is_empty() && !arg.is_hide_default_value_set() {
        let _ = writeln!(out, "[default: {}]", escaped(&default.join(" ")));
    }
    if !arg.get_action().takes_values() || arg.is_hide_possible_values_set() {
        return;
    }
    for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        let _ = write!(out, ".br\n{}{}\n", escaped(value.get_name()), escaped(&help));
    }
}

/// Escapes text for roff: minus signs must not become hyphens, and no line may be taken for a request.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim_end().replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    // roff takes an empty line for a paragraph break.
    lines.map(|line| if line.is_empty() { ".PP".to_owned() } else { line }).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_a_request() {
        assert_eq!(escaped(".x\n\n'y -z\\"), "\\&.x\n.PP\n\\&'y \\-z\\e");
    }

    #[test]
    fn every_command_has_a_page() {
        let mut weir = Cli::command();
        weir.build();
        let all = page(&mut weir, "weir");
        for command in weir.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = format!("weir-{}", command.get_name());
            assert!(all.contains(&format!(".TP\n{}(1)\n", escaped(&name))), "{all}");
            let own = page(command, &name);
            assert!(own.contains(".SH SYNOPSIS\nweir ") && own.contains(".SH DESCRIPTION\n"), "{own}");
            assert!(own.contains("\\fB\\-h\\fR, \\fB\\-\\-help\\fR"), "{own}");
        }
    }
}
