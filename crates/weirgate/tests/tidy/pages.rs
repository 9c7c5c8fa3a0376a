//! Documents: names in them exist, each page can be found, and links lead somewhere.

use super::{check, files_below, name, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of file names in ARCHITECTURE.md.
const NAMED_FILES: &[&str] = &[".rs", ".md", ".yaml", ".toml", ".py", ".sh", ".ini"];

#[test]
fn architecture_names_only_what_exists() {
    let everything = files_below(&root());
    check("ARCHITECTURE.md names it, and there is no such file or folder", |broken| {
        for word in in_backticks(&read(&root().join("ARCHITECTURE.md"))) {
            let is_path = word.ends_with('/') || NAMED_FILES.iter().any(|ending| word.ends_with(ending));
            if !is_path || word.contains(['<', '*', ' ', '$']) {
                continue;
            }
            // A short name matches every file that ends with it: `exchange.rs`, `route/path.rs`.
            let ending = format!("/{word}");
            let folder = ending.trim_end_matches('/');
            let known = |file: &String| file.ends_with(&ending) || file.contains(&format!("{folder}/"));
            if !everything.iter().any(known) {
                broken.push(word);
            }
        }
    });
}

#[test]
fn every_page_can_be_found() {
    let pages: Vec<PathBuf> = files_below(&root().join("docs")).iter().map(PathBuf::from).collect();
    let mut readers = vec![root().join("README.md")];
    readers.extend(pages.iter().cloned());
    // A reader of the repository does not open the contents of the site.
    readers.retain(|reader| !reader.ends_with(SUMMARY));
    let is_page = |page: &&PathBuf| page.extension().is_some_and(|extension| extension == "md");
    check("link it from README.md or from another page", |broken| {
        for page in pages.iter().filter(is_page).filter(|page| !page.ends_with(SUMMARY)) {
            let link = format!("{})", page.file_name().unwrap().to_string_lossy());
            let links =
                |reader: &PathBuf| reader != page && read(reader).match_indices(&link).any(|(at, _)| at > 0);
            if !readers.iter().any(links) {
                broken.push(name(page));
            }
        }
    });
}

/// The contents of the site that `make docs` builds.
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn the_site_has_every_page_once() {
    let summary = read(&root().join(SUMMARY));
    let links: Vec<&str> = summary.match_indices("](").map(|(at, _)| &summary[at + 2..]).collect();
    let links: Vec<&str> = links.iter().filter_map(|rest| rest.split(')').next()).collect();
    let docs = root().join("docs");
    let pages = files_below(&docs).into_iter().filter(|page| page.ends_with(".md"));
    let pages = pages.map(|page| Path::new(&page).strip_prefix(&docs).unwrap().display().to_string());
    let project = ["README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"];
    let project = project.map(|page| format!("../{page}.md"));
    check("docs/SUMMARY.md must have it once", |broken| {
        for page in pages.clone().filter(|page| page != "SUMMARY.md").chain(project.clone()) {
            if links.iter().filter(|link| **link == page).count() != 1 {
                broken.push(page);
            }
        }
    });
}

#[test]
fn no_link_between_pages_is_broken() {
    check("there is no such file", |broken| {
        for page in &pages() {
            let text = read(page);
            for (at, _) in text.match_indices("](") {
                let link = text[at + 2..].split([')', '#']).next().unwrap_or_default();
                let elsewhere = link.is_empty() || link.contains("://") || link.contains(' ');
                if !elsewhere && !page.parent().unwrap().join(link).exists() {
                    broken.push(format!("{}: {link}", name(page)));
                }
            }
        }
    });
}

#[test]
fn no_anchor_between_pages_is_broken() {
    let pages = pages();
    let anchors: BTreeMap<PathBuf, BTreeSet<String>> =
        pages.iter().map(|page| (page.canonicalize().unwrap(), anchors(&read(page)))).collect();
    check("there is no such heading", |broken| {
        for page in &pages {
            let text = read(page);
            for (at, _) in text.match_indices("](") {
                let link = text[at + 2..].split(')').next().unwrap_or_default();
                let Some((file, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) else {
                    continue;
                };
                let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                let known = target.canonicalize().ok().and_then(|target| anchors.get(&target));
                if known.is_some_and(|known| !known.contains(anchor)) {
                    broken.push(format!("{}: {link}", name(page)));
                }
            }
        }
    });
}

/// The pages in `docs` and at the root.
fn pages() -> Vec<PathBuf> {
    let docs = files_below(&root().join("docs")).into_iter().map(PathBuf::from);
    let beside = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    docs.chain(beside).filter(is_page).collect()
}

/// The anchors of a page: those that its headings get, and those that it names.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        // A link in a heading counts with its text only.
        let (first, links) = heading.split_once("](").unwrap_or((heading, ""));
        let rest = links.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        let heading: String = std::iter::once(first).chain(rest).collect();
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let more = (0..).map(|n| if n == 0 { anchor.clone() } else { format!("{anchor}-{n}") });
        let unused = more.into_iter().find(|anchor| !found.contains(anchor)).unwrap();
        found.insert(unused);
    }
    for (at, _) in text.match_indices(" id=\"") {
        found.insert(text[at + 5..].split('"').next().unwrap_or_default().to_owned());
    }
    found
}

/// Texts in single backticks, outside code blocks.
fn in_backticks(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}
