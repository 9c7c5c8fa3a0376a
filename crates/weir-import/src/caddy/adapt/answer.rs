//! Directives that answer, or change answers: `redir`, `respond`, `header`, `encode`, files.

use super::super::model::{Answer, Files, Handler, Kind, Matcher, Op, Ops, Rewrite, Route};
use super::super::syntax::Segment;
use super::super::values::{compress, file_setting, media_type, op, op_refusal};
use super::super::verdicts::Judged;
use super::Adapter;
use crate::ledger::{Ledger, Piece};
use crate::yaml::Map;

impl Adapter<'_> {
    pub(super) fn header(&mut self, segment: &Segment, args: &[&str]) -> Vec<Kind> {
        let mut main = Ops::default();
        let mut conditional = Vec::new();
        let mut line = |words: &[&str], piece: Piece, ledger: &mut Ledger| {
            let Some(name) = words.first().copied() else { return };
            if let Some(why) = op_refusal(words) {
                ledger.refused(piece, why, "`headers.response.set` with an expression");
                return;
            }
            if let Some(rest) = name.strip_prefix('?') {
                let value = words.get(1).copied().unwrap_or_default().to_owned();
                conditional.push(Ops {
                    response: vec![Op::Set(rest.to_owned(), value)],
                    is_deferred: true,
                    unless: vec![rest.to_ascii_lowercase()],
                    ..Ops::default()
                });
            } else if let Some(rest) = name.strip_prefix('>') {
                main.is_deferred = true;
                main.response
                    .push(Op::Set(rest.to_owned(), words.get(1).copied().unwrap_or_default().to_owned()));
            } else if let Some(op) = op(words) {
                main.is_deferred |= matches!(op, Op::Delete(_));
                main.response.push(op);
            }
            ledger.same(piece);
        };
        if !args.is_empty() {
            line(args, segment.piece, self.ledger);
        }
        let mut defers = false;
        for inner in segment.inner() {
            if inner.name() == "defer" {
                defers = true;
                self.ledger.same(inner.piece);
                continue;
            }
            let words: Vec<&str> = inner.words.iter().map(|word| &*word.text).collect();
            line(&words, inner.piece, self.ledger);
        }
        main.is_deferred |= defers;
        let mut kinds = Vec::new();
        if !main.response.is_empty() {
            kinds.push(Kind::Headers(main));
        }
        kinds.extend(conditional.into_iter().map(Kind::Headers));
        kinds
    }

    pub(super) fn redir(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let to = args.first().copied().unwrap_or_default().to_owned();
        let status = match args.get(1).copied() {
            None | Some("temporary") => "302",
            Some("permanent") => "301",
            Some("html") => {
                self.ledger.changed(segment.piece, "Weir sends a redirect, not a page that redirects");
                "302"
            }
            Some(status) => status,
        };
        let headers = vec![("Location".to_owned(), to)];
        Kind::Respond(Answer { status: status.to_owned(), body: String::new(), headers })
    }

    pub(super) fn respond(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let is_status = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit());
        let mut answer = Answer::default();
        match args {
            [one] if is_status(one) => answer.status = (*one).to_owned(),
            [body] => answer.body = (*body).to_owned(),
            [body, status, ..] => (answer.body, answer.status) = ((*body).to_owned(), (*status).to_owned()),
            [] => {}
        }
        for line in segment.inner() {
            let value = line.args().first().copied().unwrap_or_default().to_owned();
            match line.name() {
                "body" => answer.body = value,
                "status" => answer.status = value,
                "close" => {
                    self.ledger.changed(line.piece, "Weir keeps the connection open for the next request");
                    continue;
                }
                name => {
                    let why = format!("Weir knows no `{name}` of respond");
                    self.ledger.refused(line.piece, why, "`respond`");
                    continue;
                }
            }
            self.ledger.same(line.piece);
        }
        Kind::Respond(answer)
    }

    pub(super) fn encode(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let mut algorithms: Vec<String> = Vec::new();
        let mut levels = Map::new();
        let mut minimum = "512B".to_owned();
        let mut types: Option<Vec<String>> = None;
        let all = |arg: &str| match arg {
            "zstd" | "gzip" | "br" => Judged::Same,
            other => Judged::refused(format!("Weir has no coding `{other}`"), "zstd, br or gzip"),
        };
        for arg in args {
            let judged = all(arg);
            if judged == Judged::Same {
                algorithms.push((*arg).to_owned());
            }
            judged.enter(segment.piece, self.ledger);
        }
        for line in segment.inner() {
            let args = line.args();
            let first = args.first().copied().unwrap_or_default();
            let judged = match line.name() {
                name @ ("gzip" | "zstd" | "br") => {
                    algorithms.push(name.to_owned());
                    match (name, first.parse::<i64>()) {
                        (_, Ok(level)) if level > 0 => {
                            levels.set(name, level);
                            Judged::Same
                        }
                        ("zstd", _) if !first.is_empty() => {
                            let level = match first {
                                "fastest" => 1_i64,
                                "better" => 7,
                                "best" => 11,
                                _ => 3,
                            };
                            levels.set(name, level);
                            Judged::changed(format!("`{first}` is about level {level}"))
                        }
                        _ => Judged::Same,
                    }
                }
                "minimum_length" => {
                    minimum = format!("{first}B");
                    Judged::Same
                }
                "match" => {
                    let mut judged = Judged::Same;
                    let lines: Vec<Vec<&str>> = match &line.block {
                        Some(block) => {
                            block.iter().for_each(|inner| self.ledger.same(inner.piece));
                            block
                                .iter()
                                .map(|inner| inner.words.iter().map(|word| &*word.text).collect())
                                .collect()
                        }
                        None => vec![args.clone()],
                    };
                    for words in lines {
                        match &*words {
                            ["header", name, value] if name.eq_ignore_ascii_case("content-type") => {
                                types.get_or_insert_default().push(media_type(value));
                            }
                            _ => {
                                judged =
                                    Judged::refused("Weir compresses by media type only", "`compress.types`")
                            }
                        }
                    }
                    judged
                }
                "prefer" => {
                    algorithms = args.iter().map(|arg| (*arg).to_owned()).collect();
                    Judged::Same
                }
                name => Judged::refused(format!("Weir knows no `{name}` of encode"), "the filter `compress`"),
            };
            judged.enter(line.piece, self.ledger);
        }
        Kind::Filter(compress(&algorithms, &minimum, types, levels))
    }

    pub(super) fn files(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let mut files = Files::default();
        if args.contains(&"browse") {
            files.settings.set("browse", true);
        }
        for line in segment.inner() {
            let values: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
            file_setting(&mut files, line.name(), &values).enter(line.piece, self.ledger);
            self.below(line, |_, _| Judged::changed("Weir lists a folder in its own way"));
        }
        self.ledger.changed(segment.piece, super::super::values::HIDDEN);
        Kind::Files(files)
    }

    /// `try_files`: routes that look for a file and rewrite to it.
    pub(super) fn try_files(&mut self, segment: &Segment, args: &[&str]) -> Vec<Route> {
        let piece = segment.piece;
        for line in segment.inner() {
            match (line.name(), &*line.args()) {
                ("policy", ["first_exist"]) => self.ledger.same(line.piece),
                _ => self.ledger.refused(
                    line.piece,
                    "Weir takes the first file that exists",
                    "`files.fallback`",
                ),
            }
        }
        let tries: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let test = super::super::model::FileTest { tries, ..Default::default() };
        let kind = Kind::Rewrite(Rewrite::Uri("{http.matchers.file.relative}".to_owned()));
        let mut route = Route::always(Handler { kind, piece });
        route.sets = vec![vec![Matcher::File(test)]];
        vec![route]
    }
}
