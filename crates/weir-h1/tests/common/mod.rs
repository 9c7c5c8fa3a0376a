//! What the tables share: a head told in one line, and a row run in one piece and in every two.

use weir_h1::{
    BodyKind, Connection, Fields, Kind, Limits, Method, Progress, RequestHead, ResponseHead, TargetForm,
    Version, parse_request, parse_response,
};

/// A row: the bytes of a head and what follows it, and the expected reading or error.
pub(crate) type Row = (&'static [u8], Result<&'static str, Kind>);

/// The end of a piece-wise reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Complete(String),
    Partial,
    Refused(Kind),
}

/// A head that can be read in pieces.
pub(crate) trait Head: Default {
    fn feed(&mut self, piece: &[u8], limits: &Limits) -> Read;
    fn told(&self) -> String;
    fn wire_len(&self) -> usize;
}

impl Head for RequestHead {
    fn feed(&mut self, piece: &[u8], limits: &Limits) -> Read {
        self.buffer_mut().extend_from_slice(piece);
        match parse_request(self, limits) {
            Ok(Progress::Complete) => Read::Complete(self.told()),
            Ok(Progress::Partial) => Read::Partial,
            Err(e) => Read::Refused(e.kind()),
        }
    }

    /// `METHOD path ?query @authority form version body close upgrade=… expect te | fields | rest`, without defaults.
    fn told(&self) -> String {
        let mut t = format!("{} {}", text(self.method_name()), text(self.path()));
        if let Some(query) = self.query() {
            t += &format!(" ?{}", text(query));
        }
        if !self.authority().is_empty() {
            t += &format!(" @{}", text(self.authority()));
        }
        match self.form() {
            TargetForm::Absolute => t += " absolute",
            TargetForm::Asterisk => t += " asterisk",
            TargetForm::Authority => t += " authority",
            TargetForm::Origin => {}
        }
        common(&mut t, self.version(), self.connection(), self.body(), self.upgrade());
        if self.expects_continue() {
            t += " expect";
        }
        if self.accepts_trailers() {
            t += " te";
        }
        tail(t, &self.headers, self.rest())
    }

    fn wire_len(&self) -> usize {
        Self::wire_len(self)
    }
}

impl Head for ResponseHead {
    fn feed(&mut self, piece: &[u8], limits: &Limits) -> Read {
        self.buffer_mut().extend_from_slice(piece);
        match parse_response(self, limits) {
            Ok(Progress::Complete) => Read::Complete(self.told()),
            Ok(Progress::Partial) => Read::Partial,
            Err(e) => Read::Refused(e.kind()),
        }
    }

    /// `status reason version body close upgrade=… | fields | rest`, the body as of an answer to GET.
    fn told(&self) -> String {
        let mut t = format!("{} {}", self.status(), text(self.reason()));
        common(&mut t, self.version(), self.connection(), self.body(Method::Get), self.upgrade());
        tail(t, &self.headers, self.rest())
    }

    fn wire_len(&self) -> usize {
        Self::wire_len(self)
    }
}

fn common(t: &mut String, version: Version, connection: Connection, body: BodyKind, upgrade: Option<&[u8]>) {
    if version == Version::Http10 {
        *t += " 1.0";
    }
    match body {
        BodyKind::Chunked => *t += " chunked",
        BodyKind::Empty => {}
        BodyKind::Length(n) => *t += &format!(" length={n}"),
        BodyKind::UntilClose => *t += " until-close",
    }
    if connection == Connection::Close {
        *t += " close";
    }
    if let Some(upgrade) = upgrade {
        *t += &format!(" upgrade={}", text(upgrade));
    }
}

fn tail(mut t: String, headers: &Fields, rest: &[u8]) -> String {
    let mut count = 0;
    for (name, value) in headers.iter() {
        t += &format!(" | {}: {}", text(name), text(value));
        count += 1;
    }
    assert_eq!(count, headers.len());
    if !rest.is_empty() {
        t += &format!(" || {}", text(rest));
    }
    t
}

pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Reads `bytes` in the pieces that end at `cuts`, up to the first piece that decides.
pub(crate) fn read<H: Head>(bytes: &[u8], cuts: &[usize], limits: &Limits) -> (Read, usize) {
    let mut head = H::default();
    let mut from = 0;
    for &to in cuts.iter().chain([&bytes.len()]) {
        let read = head.feed(&bytes[from..to], limits);
        if read != Read::Partial {
            return (read, to);
        }
        from = to;
    }
    (Read::Partial, bytes.len())
}

/// Runs a row in one piece, in every two pieces, and byte by byte; gives the mistakes.
pub(crate) fn check<H: Head>(bytes: &[u8], expected: &Result<String, Kind>, limits: &Limits) -> Vec<String> {
    let mut wrong = Vec::new();
    let shown = text(bytes);
    let (whole, _) = read::<H>(bytes, &[], limits);
    match (expected, &whole) {
        (Ok(want), Read::Complete(got)) if want == got => {}
        (Err(want), Read::Refused(got)) if want == got => {}
        _ => {
            wrong.push(format!("{shown}\n   expected {expected:?}\n        got {whole:?}"));
            return wrong;
        }
    }
    let mut head = H::default();
    head.feed(bytes, limits);
    let len = head.wire_len();
    let all: Vec<usize> = (1..bytes.len()).collect();
    let splits = all.iter().map(std::slice::from_ref).chain([&all[..]]);
    for cuts in splits {
        let (got, end) = read::<H>(bytes, cuts, limits);
        let fine = match (&whole, &got) {
            (Read::Complete(_), Read::Complete(_)) => {
                // Complete with the piece that brings the last byte of the head, and not before.
                let due = cuts.iter().copied().find(|&c| c >= len).unwrap_or(bytes.len());
                let mut pieces = H::default();
                pieces.feed(&bytes[..end], limits);
                end == due && got == Read::Complete(pieces.told())
            }
            (Read::Refused(_), Read::Refused(_) | Read::Partial) => true,
            _ => false,
        };
        if !fine {
            let cuts =
                if cuts.len() == 1 { format!("cut at {}", cuts[0]) } else { "byte by byte".to_owned() };
            wrong.push(format!("{shown}\n   {cuts}: {got:?} after {end}\n   whole: {whole:?}"));
        }
    }
    wrong
}

/// Runs a table and shows every row that went wrong, not only the first.
pub(crate) fn run<H: Head>(rows: &[Row]) {
    let rows = rows.iter().map(|(bytes, want)| (bytes.to_vec(), want.map(str::to_owned)));
    run_owned::<H>(rows.collect());
}

/// As [`run`], for rows that were put together.
pub(crate) fn run_owned<H: Head>(rows: Vec<(Vec<u8>, Result<String, Kind>)>) {
    let mut wrong = Vec::new();
    for (bytes, want) in &rows {
        wrong.extend(check::<H>(bytes, want, &Limits::default()));
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
