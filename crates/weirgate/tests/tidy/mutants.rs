//! The expressions of mutants.toml.

use super::{check, files_below, read, root};
use std::path::Path;

/// The expressions of mutants.toml, one a line: a name that no longer exists would silently exempt its function.
#[test]
fn mutants_names_only_what_exists() {
    let lists = read(&root().join("mutants.toml"));
    let code: Vec<(String, String)> = files_below(&root())
        .into_iter()
        .filter(|file| file.ends_with(".rs") && file.contains("/crates/"))
        .map(|file| (read(Path::new(&file)), file))
        .map(|(text, file)| (file, text))
        .collect();
    let globs: Vec<&str> = lists.split('"').filter_map(|glob| glob.strip_prefix("**")).collect();
    let expressions = lists.lines().filter_map(|line| line.trim().strip_prefix('\'')?.strip_suffix("',"));
    check("mutants.toml names it, and there is no such file or function", |broken| {
        broken.extend(
            globs
                .iter()
                .filter(|glob| !code.iter().any(|(file, _)| file.ends_with(*glob)))
                .map(|g| (*g).to_owned()),
        );
        for expression in expressions.clone() {
            // `/acl\.rs:.*(replace|in) (is_called|.*::on_request)\b`: the file, if any, then functions and types.
            let (file, names) = match expression.split_once("\\.rs:") {
                Some((file, names)) => (format!("/{}.rs", file.trim_start_matches('/')), names),
                None => (String::new(), expression),
            };
            let files: Vec<&(String, String)> = match file.is_empty() {
                true => {
                    code.iter().filter(|(file, _)| globs.iter().any(|glob| file.ends_with(glob))).collect()
                }
                false => code.iter().filter(|(path, _)| path.ends_with(&file)).collect(),
            };
            if files.is_empty() {
                broken.push(file);
                continue;
            }
            let names = names
                .rsplit_once("in) ")
                .or_else(|| names.rsplit_once(" in "))
                .map_or("", |(_, names)| names);
            let names = names.replace("\\b", "");
            let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
            for name in names.split(|letter| !is_letter(letter)).filter(|name| !name.is_empty()) {
                let defined =
                    ["fn ", "struct ", "enum ", "impl ", " for "].map(|word| format!("{word}{name}"));
                let is_defined = |text: &str| {
                    defined.iter().any(|start| {
                        text.match_indices(start)
                            .any(|(at, _)| !text[at + start.len()..].starts_with(is_letter))
                    })
                };
                if !files.iter().any(|(_, text)| is_defined(text)) {
                    broken.push(format!("{name} in `{expression}`"));
                }
            }
        }
    });
}
