//! Which location takes a request whose path a `rewrite` has changed, and what that location does with it.

use super::super::location::{Location, NewPath, search, search_all};
use super::super::read::Directive;
use super::super::site::Site;
use super::Where;
use crate::ledger::Piece;
use crate::shared::regex::{Searching, Subject};

/// The directives of a block after this one.
pub(super) fn behind<'s, 'a>(
    block: &'s [&'a Directive],
    piece: Piece,
) -> impl Iterator<Item = &'a Directive> + 's {
    block.iter().skip_while(move |line| line.piece != piece).skip(1).copied()
}

/// Without a flag, nginx continues with the new path. An error if a later directive may change it again.
pub(super) fn may_go_on(place: &Where<'_, '_>, piece: Piece, new: &NewPath) -> Result<(), String> {
    for line in behind(place.block, piece) {
        let reads_path = line.args.iter().any(|arg| arg.contains("$uri") || arg.contains("$document_uri"));
        if line.name == "if" && (reads_path || line.block.iter().flatten().any(|d| d.name == "rewrite")) {
            return Err(
                "without a flag, nginx goes on with the new path, which an `if` behind it reads".to_owned()
            );
        }
        if line.name == "rewrite" && may_rewrite(line, new) {
            return Err("without a flag, nginx goes on with the new path, and the next `rewrite` changes it"
                .to_owned());
        }
        if line.name == "return" && place.own.is_none() {
            return Err("without a flag, nginx goes on, and the `return` behind it answers".to_owned());
        }
    }
    Ok(())
}

/// Whether a `rewrite` may match a path.
fn may_rewrite(line: &Directive, new: &NewPath) -> bool {
    match Searching::read(line.first(), false, Subject::Path) {
        Ok(read) => new.may_match(&read),
        Err(_) => true,
    }
}

/// The location that nginx finds with the new path, if it is one for all of them and leaves the path alone.
pub(super) fn taker<'s, 'a>(
    site: &'s Site<'_, 'a>,
    new: &NewPath,
    own: Option<&Location<'_>>,
) -> Result<&'s Location<'a>, String> {
    let taker = search(&site.locations, new, own)?;
    is_left_alone(taker, new)?;
    Ok(taker)
}

/// An error if a location changes the new path.
fn is_left_alone(taker: &Location<'_>, new: &NewPath) -> Result<(), String> {
    let block = taker.block.all();
    let inner = block.iter().filter(|line| line.name == "if").flat_map(|line| line.block.iter().flatten());
    if block.iter().copied().chain(inner).any(|line| line.name == "rewrite" && may_rewrite(line, new)) {
        return Err("the location of the new path rewrites it again".to_owned());
    }
    Ok(())
}

/// The locations that take the new path of a `rewrite … last`, each with the pattern that the old path must match.
/// The first match wins.
///
/// # Errors
/// Why that is not known, or why a location reads the path in a way that a rewritten request would change.
pub(in crate::nginx) fn leads_to<'s, 'a>(
    site: &'s Site<'_, 'a>,
    new: &NewPath,
    own: Option<&Location<'_>>,
) -> Result<Vec<(Option<&'s Searching>, &'s Location<'a>)>, String> {
    let takers = match own {
        Some(_) => vec![(None, search(&site.locations, new, own)?)],
        None => search_all(&site.locations, new)?,
    };
    let reads = |line: &&Directive| {
        line.name != "try_files"
            && line.args.iter().any(|arg| {
                ["$uri", "${uri", "$document_uri", "$request_filename"].iter().any(|name| arg.contains(name))
            })
    };
    // In Weir the rewrite runs after the location's `if`, which therefore sees the client's query.
    let reads_query = |line: &&Directive| {
        new.changes_query
            && matches!(&*line.name, "if" | "return" | "rewrite" | "set")
            && line.args.iter().any(|arg| {
                ["$arg", "${arg", "$query_string", "$is_args"].iter().any(|name| arg.contains(name))
            })
    };
    for (_, taker) in &takers {
        is_left_alone(taker, new)?;
        let all = || taker.block.all().iter();
        let inner = all().flat_map(|line| line.block.iter().flatten());
        if let Some(line) = all().copied().find(reads_query) {
            return Err(format!(
                "`{}` of the location of the new path reads the query, which it changes",
                line.name
            ));
        }
        if let Some(line) = all().copied().chain(inner).find(reads) {
            return Err(format!("`{}` of the location of the new path reads that path", line.name));
        }
    }
    Ok(takers)
}
