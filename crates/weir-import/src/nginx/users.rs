//! `auth_basic_user_file`: the files of users beside the config, of which Weir takes those with bcrypt alone.

use super::context::{Cx, Scope};
use super::read::{Directive, beside};
use super::server::absolute;
use super::text::template;
use crate::config::Filter;
use crate::source::SourceTree;
use crate::yaml::Map;
use std::collections::BTreeMap;

/// Most lines that a refusal names.
const SHOWN: usize = 5;

/// The text of each file of users, by its path in the config. The error says what keeps Weir from taking it.
pub(super) type Users = BTreeMap<String, Result<String, String>>;

/// Reads every file of users that the directives name.
pub(super) fn read(tree: &mut SourceTree<'_>, directives: &[Directive]) -> Users {
    let mut users = Users::new();
    collect(tree, directives, &mut users);
    users
}

fn collect(tree: &mut SourceTree<'_>, directives: &[Directive], users: &mut Users) {
    for directive in directives {
        let path = directive.first();
        if directive.name == "auth_basic_user_file" && !users.contains_key(path) {
            let read = match path.contains('$') {
                true => Err("its path has a variable".to_owned()),
                false => {
                    let here = beside(tree, path);
                    let file = tree.read(&here);
                    let file = file.map_err(|e| format!("it cannot be read: {e}"));
                    file.and_then(|file| judge(&file.text).map(|_| file.text.to_string()))
                }
            };
            users.insert(path.to_owned(), read);
        }
        collect(tree, directive.block.as_deref().unwrap_or_default(), users);
    }
}

/// The texts of those files of users that can be read, by path in the config, whatever their hashes.
pub(super) fn texts(tree: &mut SourceTree<'_>, directives: &[Directive]) -> BTreeMap<String, String> {
    let mut paths = Vec::new();
    of_block(directives, &mut paths);
    let mut texts = BTreeMap::new();
    for path in paths {
        let here = beside(tree, path);
        if let Ok(file) = tree.read(&here) {
            texts.insert(path.to_owned(), file.text.to_string());
        }
    }
    texts
}

fn of_block<'a>(directives: &'a [Directive], paths: &mut Vec<&'a str>) {
    for directive in directives {
        let path = directive.first();
        if directive.name == "auth_basic_user_file" && !path.contains('$') && !paths.contains(&path) {
            paths.push(path);
        }
        of_block(directive.block.as_deref().unwrap_or_default(), paths);
    }
}

/// The number of users, or the lines that Weir refuses. It repeats no hash.
fn judge(text: &str) -> Result<usize, String> {
    let (mut count, mut wrong) = (0, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        count += 1;
        let Some((name, hash)) = line.split_once(':') else {
            wrong.push(format!("line {}: no USER:HASH", at + 1));
            continue;
        };
        let hash = hash.split(':').next().unwrap_or_default();
        if let Some(kind) = refused(hash) {
            wrong.push(format!("line {} (`{name}`): {kind}", at + 1));
        }
    }
    if wrong.is_empty() {
        return if count > 0 { Ok(count) } else { Err("it has no users".to_owned()) };
    }
    let more = wrong.len().saturating_sub(SHOWN);
    wrong.truncate(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(format!("Weir takes bcrypt and argon2id alone: {}{more}", wrong.join("; ")))
}

/// What a password is hashed with, if Weir refuses it.
fn refused(hash: &str) -> Option<&'static str> {
    if ["$2a$", "$2b$", "$2y$", "$argon2id$"].iter().any(|begin| hash.starts_with(begin)) {
        return None;
    }
    let begins = |begin: &str| hash.get(..begin.len()).is_some_and(|own| own.eq_ignore_ascii_case(begin));
    Some(match hash {
        "" => "no password",
        _ if begins("$apr1$") => "apr1",
        _ if begins("{SHA}") || begins("{SSHA}") => "SHA-1",
        _ if begins("{PLAIN}") => "plain text",
        _ => "crypt or plain text",
    })
}

/// The filter for `auth_basic`, or why there is none.
pub(super) fn basic_auth(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    basic: &Directive,
    file: &Directive,
) -> Result<Filter, String> {
    let text = match cx.users.get(file.first()) {
        Some(Ok(text)) => text.clone(),
        Some(Err(why)) => return Err(why.clone()),
        None => return Err("the file of users was not read".to_owned()),
    };
    let realm = template(cx, scope, basic.first())?;
    let realm = realm.as_literal().ok_or("the realm has a variable, which may turn the password off")?;
    // A relative path is one below nginx's own folder, which the machine of Weir may not have.
    let is_relative = !file.first().starts_with('/');
    let path = match is_relative {
        true => format!("users/{}", crate::config::name_of(file.first())),
        false => absolute(file.first()),
    };
    let mut map = Map::new().with("file", path.clone());
    if realm.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && !matches!(b, b'"' | b'\\')) {
        map.set("realm", realm);
        cx.ledger.same(basic.piece);
    } else {
        cx.ledger
            .changed(basic.piece, "the realm is `weir`: Weir's have no quotes and ASCII characters alone");
    }
    if is_relative {
        cx.config.secret_files.insert(path.clone(), text);
        cx.ledger.by_itself(file.piece, format!("copied to {path} beside weir.yaml"));
    } else {
        cx.ledger.by_itself(file.piece, "copy the file to this path, or change it in `file`");
    }
    // nginx passes the password on.
    map.set("hide", false);
    Ok(Filter::new("basic_auth", map))
}
