//! The ledger: what became of each statement of the source. [`crate`] states its promise.

use super::source::Place;
use std::borrow::Cow;

/// Longest excerpt of a statement that the ledger keeps, in characters.
const EXCERPT: usize = 100;

/// A statement of the source, as the ledger knows it.
///
/// Only [`Ledger::enter`] makes one, so a model that holds pieces holds statements that will be accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Piece(u32);

/// What became of a statement. Later variants matter more: of several verdicts the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It has no place in Weir, and nobody will miss it.
    LeftOut,
    /// Weir does what it says.
    Same,
    /// Weir does it in another way.
    Changed,
    /// A person must decide.
    Refused,
}

/// A statement with its verdict.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where it is.
    pub place: Place,
    /// Its beginning.
    pub text: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, for each verdict of this kind; empty for [`Verdict::Same`] unless there is something to say.
    pub why: Vec<Cow<'static, str>>,
    /// The nearest thing that Weir has, for [`Verdict::Refused`].
    pub nearest: Vec<Cow<'static, str>>,
    /// Whether the text holds a secret, so that nothing may print it.
    pub is_secret: bool,
}

/// The statements of the source with their verdicts, in the order in which they were read.
#[derive(Debug, Default)]
pub struct Ledger {
    lines: Vec<Line>,
    judged: Vec<bool>,
    notes: Vec<Cow<'static, str>>,
}

/// How many statements ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken as they are.
    pub same: usize,
    /// Taken with a difference.
    pub changed: usize,
    /// Left out.
    pub left_out: usize,
    /// Refused.
    pub refused: usize,
}

impl Ledger {
    /// Enters a statement, which then waits for its verdict.
    pub fn enter(&mut self, place: Place, text: &str) -> Piece {
        let piece = Piece(u32::try_from(self.lines.len()).unwrap_or(u32::MAX));
        let text = excerpt(&crate::redact::statement(beginning(text)));
        let line = Line {
            place,
            text,
            verdict: Verdict::LeftOut,
            why: Vec::new(),
            nearest: Vec::new(),
            is_secret: false,
        };
        self.lines.push(line);
        self.judged.push(false);
        piece
    }

    /// Weir does what the statement says.
    pub fn same(&mut self, piece: Piece) {
        self.judge(piece, Verdict::Same, None);
    }

    /// Weir does what the statement says without being told.
    pub fn by_itself(&mut self, piece: Piece, why: impl Into<Cow<'static, str>>) {
        self.judge(piece, Verdict::Same, Some(why.into()));
    }

    /// Weir does it in another way.
    pub fn changed(&mut self, piece: Piece, why: impl Into<Cow<'static, str>>) {
        self.judge(piece, Verdict::Changed, Some(why.into()));
    }

    /// The statement has no place in Weir, and nobody will miss it.
    pub fn left_out(&mut self, piece: Piece, why: impl Into<Cow<'static, str>>) {
        self.judge(piece, Verdict::LeftOut, Some(why.into()));
    }

    /// A person must decide; `nearest` is what Weir has for it.
    pub fn refused(
        &mut self,
        piece: Piece,
        why: impl Into<Cow<'static, str>>,
        nearest: impl Into<Cow<'static, str>>,
    ) {
        self.judge(piece, Verdict::Refused, Some(why.into()));
        if let Some(line) = self.lines.get_mut(piece.0 as usize) {
            let nearest = nearest.into();
            if !nearest.is_empty() && !line.nearest.contains(&nearest) {
                line.nearest.push(nearest);
            }
        }
    }

    /// The statement holds a secret: its text is not printed.
    pub fn conceal(&mut self, piece: Piece) {
        if let Some(line) = self.lines.get_mut(piece.0 as usize) {
            line.is_secret = true;
            let word = line.text.split([' ', '\t', ':', '=']).next().unwrap_or_default();
            line.text = format!("{word} ***");
        }
    }

    /// The statements whose text `is` chooses, among some or among all, but for those that were left out.
    pub(crate) fn pieces(&self, among: Option<&[Piece]>, is: impl Fn(&str) -> bool) -> Vec<Piece> {
        let fits = |piece: &Piece| {
            let line = self.lines.get(piece.0 as usize);
            line.is_some_and(|line| line.verdict != Verdict::LeftOut && is(&line.text))
        };
        match among {
            Some(among) => among.iter().copied().filter(fits).collect(),
            None => (0..self.lines.len())
                .filter_map(|at| u32::try_from(at).ok())
                .map(Piece)
                .filter(fits)
                .collect(),
        }
    }

    /// Passes every text through `mask`, which hides what only the whole source shows to be a secret.
    pub(crate) fn mask(&mut self, mask: impl Fn(&str) -> String) {
        for line in &mut self.lines {
            line.text = mask(&line.text);
            for text in line.why.iter_mut().chain(&mut line.nearest) {
                *text = mask(text).into();
            }
        }
        for note in &mut self.notes {
            *note = mask(note).into();
        }
    }

    /// Something that concerns no single statement, such as a default of the system that Weir does not share.
    pub fn note(&mut self, note: impl Into<Cow<'static, str>>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Where a statement is, and its beginning.
    pub(crate) fn shown(&self, piece: Piece) -> (Place, String) {
        let line = &self.lines[piece.0 as usize];
        (line.place.clone(), line.text.clone())
    }

    /// Whether a verdict has been given.
    #[must_use]
    pub fn is_judged(&self, piece: Piece) -> bool {
        self.judged.get(piece.0 as usize).copied().unwrap_or(true)
    }

    /// What is known of a statement that was judged.
    #[must_use]
    pub fn line(&self, piece: Piece) -> Option<&Line> {
        self.lines.get(piece.0 as usize).filter(|_| self.is_judged(piece))
    }

    /// The verdict so far.
    #[must_use]
    pub fn verdict(&self, piece: Piece) -> Option<Verdict> {
        let at = piece.0 as usize;
        self.lines.get(at).filter(|_| self.is_judged(piece)).map(|line| line.verdict)
    }

    /// Where a statement is.
    #[must_use]
    pub fn place(&self, piece: Piece) -> Option<&Place> {
        self.lines.get(piece.0 as usize).map(|line| &line.place)
    }

    /// Refuses every statement that nobody judged.
    pub fn close(&mut self, title: &str) {
        for at in 0..self.lines.len() {
            let piece = Piece(u32::try_from(at).unwrap_or(u32::MAX));
            if !self.is_judged(piece) {
                let why = format!("weir import does not know this line of {title}");
                self.refused(piece, why, "look it up in docs/reference/config.md and filters.md");
            }
        }
    }

    /// All statements.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// What concerns no single statement.
    #[must_use]
    pub fn notes(&self) -> &[Cow<'static, str>] {
        &self.notes
    }

    /// How many ended in which way.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for line in &self.lines {
            *match line.verdict {
                Verdict::LeftOut => &mut counts.left_out,
                Verdict::Same => &mut counts.same,
                Verdict::Changed => &mut counts.changed,
                Verdict::Refused => &mut counts.refused,
            } += 1;
        }
        counts
    }

    fn judge(&mut self, piece: Piece, verdict: Verdict, why: Option<Cow<'static, str>>) {
        let at = piece.0 as usize;
        let (Some(line), Some(judged)) = (self.lines.get_mut(at), self.judged.get_mut(at)) else { return };
        if !*judged || verdict > line.verdict {
            line.verdict = verdict;
            line.why.clear();
        }
        *judged = true;
        if let Some(why) = why.filter(|why| verdict == line.verdict && !line.why.contains(why)) {
            line.why.push(why);
        }
    }
}

impl Counts {
    /// All statements.
    #[must_use]
    pub const fn total(self) -> usize {
        self.same + self.changed + self.left_out + self.refused
    }

    /// The share of the statements that Weir does, the same or changed, in whole percent, rounded down.
    #[must_use]
    pub const fn percent_taken(self) -> usize {
        match self.total() {
            0 => 100,
            total => (self.same + self.changed) * 100 / total,
        }
    }
}

impl Verdict {
    /// As reports name it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::LeftOut => "left out",
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Refused => "refused",
        }
    }

    /// As JSON names it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::LeftOut => "left_out",
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Refused => "refused",
        }
    }
}

/// As much of a statement as an excerpt can need.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(EXCERPT * 10).map_or(text, |(end, _)| &text[..end])
}

/// The beginning of a statement on one line.
fn excerpt(text: &str) -> String {
    let mut short: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = short.char_indices().nth(EXCERPT) {
        short.truncate(cut);
        short.push('…');
    }
    short.replace(|c: char| c.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_nobody_judged_is_refused() {
        let mut ledger = Ledger::default();
        let known = ledger.enter(Place::new("a.conf", 1), "listen 80");
        ledger.enter(Place::new("a.conf", 2), "frobnicate  on");
        ledger.same(known);
        ledger.close("nginx");
        let verdicts: Vec<_> = ledger.lines().iter().map(|line| (line.verdict, &*line.text)).collect();
        assert_eq!(verdicts, [(Verdict::Same, "listen 80"), (Verdict::Refused, "frobnicate on")]);
        assert_eq!(ledger.counts().percent_taken(), 50);
    }

    #[test]
    fn the_verdict_that_matters_most_counts() {
        let mut ledger = Ledger::default();
        let piece = ledger.enter(Place::new("a.conf", 1), "add_header X y");
        ledger.left_out(piece, "never reached");
        ledger.changed(piece, "also on errors");
        ledger.same(piece);
        ledger.changed(piece, "also on errors");
        let line = &ledger.lines()[0];
        assert_eq!((line.verdict, &*line.why), (Verdict::Changed, &["also on errors".into()][..]));
    }

    #[test]
    fn a_secret_is_not_kept() {
        let mut ledger = Ledger::default();
        let piece = ledger.enter(Place::new("a.conf", 1), "proxy_set_header Authorization \"Basic abc\"");
        ledger.conceal(piece);
        assert_eq!(ledger.lines()[0].text, "proxy_set_header ***");
    }
}
