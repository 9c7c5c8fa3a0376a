//! What a core keeps of one exchange, bounded in bytes and free of secrets: no value of a header, cookie or query. Of
//! a body, only an upstream's error (see `body`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_telemetry::{Entry, Timing};
use weir_upstream::error::Cause;

/// Most steps kept of one exchange: the last ones.
pub(crate) const STEPS: usize = 8;

/// Longest text of a step or a failure, in bytes.
const DETAIL_BYTES: usize = 128;

/// The most bytes that one kept exchange takes, with all texts and steps. A test fills one completely.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Why an exchange is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The gateway itself answered or cut it, or the upstream answered with 5xx.
    #[default]
    Failed,
    /// It was picked at random.
    Sampled,
    /// It took much longer than its route usually does.
    Slow,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Failed, Self::Sampled, Self::Slow];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Sampled => "sampled",
            Self::Slow => "slow",
        }
    }
}

/// A step that took time. Times are in microseconds; `at` counts from the request's first byte.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// An attempt that gave the client no answer.
    Attempt {
        endpoint: Arc<str>,
        outcome: Outcome,
        at: u32,
        took: u32,
        connect: u32,
        tls: u32,
        /// Its connection had carried a request before.
        reused: bool,
        /// The error text of the system, TLS or the parser.
        detail: Option<Box<str>>,
    },
    /// A filter that waited for something.
    Waited { filter: &'static str, at: u32, took: u32 },
}

/// How an attempt ended that gave the client no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// Another attempt won.
    Canceled,
    Cause(&'static Cause),
    /// It was answered, but the retry policy wanted another attempt.
    Status(u16),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Canceled => f.write_str("canceled"),
            Self::Cause(cause) => f.write_str(cause.code),
            Self::Status(status) => write!(f, "{status}"),
        }
    }
}

/// The texts of a kept exchange, in the order in which they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Id,
    Revision,
    Listener,
    Method,
    Host,
    Path,
    /// Names of query parameters.
    Query,
    /// Names of header fields, with the sizes of their values.
    Fields,
    Route,
    Upstream,
    Endpoint,
    Consumer,
    /// Names of the filters that ran.
    Filters,
    /// Where the filter that stopped it is in the config.
    Place,
    Detail,
    /// The arm of the route's split.
    Arm,
}

/// Each text with the most bytes kept of it.
const TEXTS: [(Text, usize); 16] = [
    (Text::Id, 128),
    (Text::Revision, 12),
    (Text::Listener, 64),
    (Text::Method, 24),
    (Text::Host, 96),
    (Text::Path, 384),
    (Text::Query, 160),
    (Text::Fields, 320),
    (Text::Route, 128),
    (Text::Upstream, 96),
    (Text::Endpoint, 64),
    (Text::Consumer, 64),
    (Text::Filters, 192),
    (Text::Place, 128),
    (Text::Detail, 192),
    (Text::Arm, 64),
];

/// What a slow exchange exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// Each of the route's earlier exchanges on this core, too few for a percentile.
    All { earlier: u32, longest: Duration },
    /// About what 99 of 100 of the route's exchanges take.
    Percentile(Duration),
}

/// What is known beside the access log line.
pub(crate) struct Details<'a> {
    pub(crate) kind: Kind,
    pub(crate) cause: Option<&'static Cause>,
    pub(crate) revision: &'a str,
    pub(crate) steps: &'a [Step],
    /// When the last attempt began, if there was one.
    pub(crate) attempt: Option<Duration>,
    /// The last attempt's connection had carried a request before.
    pub(crate) reused: bool,
    /// What it exceeded, if it was slow.
    pub(crate) exceeded: Option<Exceeded>,
    pub(crate) filters: &'a mut dyn Iterator<Item = &'static str>,
    pub(crate) fields: &'a mut dyn Iterator<Item = (&'a [u8], usize)>,
    /// The filter that stopped it, and its place in the config.
    pub(crate) stopped_by: Option<(&'static str, &'a str)>,
    pub(crate) detail: Option<&'a str>,
    /// A response had begun when it ended.
    pub(crate) begun: bool,
}

/// One exchange, or a connection that ended before its first.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Counts the exchanges that this core has kept.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub began: SystemTime,
    pub(crate) client: Option<IpAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) protocol: &'static str,
    pub(crate) tls: Option<(&'static str, &'static str)>,
    pub(crate) status: u16,
    pub(crate) cause: Option<&'static Cause>,
    pub(crate) stopped_by: Option<&'static str>,
    pub(crate) attempts: u32,
    pub(crate) attempt: Option<Duration>,
    pub(crate) reused: bool,
    pub(crate) tunnel: bool,
    pub(crate) begun: bool,
    pub(crate) exceeded: Option<Exceeded>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub timing: Timing,
    pub(crate) steps: Vec<Step>,
    text: Vec<u8>,
    /// Where each text ends, and which texts were cut.
    ends: [u16; TEXTS.len()],
    cut: u16,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            number: 0,
            kind: Kind::Failed,
            began: SystemTime::UNIX_EPOCH,
            client: None,
            peer: None,
            protocol: "",
            tls: None,
            status: 0,
            cause: None,
            stopped_by: None,
            attempts: 0,
            attempt: None,
            reused: false,
            tunnel: false,
            begun: false,
            exceeded: None,
            bytes_in: 0,
            bytes_out: 0,
            timing: Timing::default(),
            steps: Vec::new(),
            text: Vec::new(),
            ends: [0; TEXTS.len()],
            cut: 0,
        }
    }
}

impl Kept {
    /// Overwrites this with the record of an exchange, reusing the memory.
    pub(crate) fn fill(&mut self, entry: &Entry<'_>, protocol: &'static str, beside: Details<'_>) {
        self.kind = beside.kind;
        self.began = entry.time;
        (self.client, self.peer) = (entry.client, entry.peer);
        self.protocol = protocol;
        self.tls = None;
        (self.status, self.cause) = (entry.status, beside.cause);
        self.stopped_by = beside.stopped_by.map(|(name, _)| name);
        (self.attempts, self.attempt, self.reused) = (entry.attempts, beside.attempt, beside.reused);
        (self.tunnel, self.begun, self.exceeded) = (entry.tunnel, beside.begun, beside.exceeded);
        (self.bytes_in, self.bytes_out) = (entry.bytes_in, entry.bytes_out);
        self.timing = entry.timing;
        let last = beside.steps.len().saturating_sub(STEPS);
        self.steps.clear();
        self.steps.extend_from_slice(beside.steps.get(last..).unwrap_or_default());
        self.text.clear();
        self.cut = 0;
        self.put(Text::Id, entry.request_id);
        self.put(Text::Revision, beside.revision.as_bytes());
        self.put(Text::Listener, entry.listener.as_bytes());
        self.put(Text::Method, entry.method);
        self.put(Text::Host, entry.host);
        self.put(Text::Path, entry.path);
        self.put_all(Text::Query, parameters(entry.query));
        self.put_all(Text::Fields, beside.fields.map(|(name, bytes)| (name, Some(bytes))));
        self.put(Text::Route, entry.route.as_bytes());
        self.put(Text::Upstream, entry.upstream.as_bytes());
        self.put(Text::Endpoint, entry.endpoint.as_bytes());
        self.put(Text::Consumer, entry.consumer.as_bytes());
        self.put_all(Text::Filters, beside.filters.map(|name| (name.as_bytes(), None)));
        self.put(Text::Place, beside.stopped_by.map_or("", |(_, place)| place).as_bytes());
        self.put(Text::Detail, beside.detail.unwrap_or_default().as_bytes());
        self.put(Text::Arm, entry.arm.as_bytes());
    }

    /// A text as kept. Peers may have written it, so invalid UTF-8 is replaced.
    pub(crate) fn text(&self, which: Text) -> std::borrow::Cow<'_, str> {
        let at = which as usize;
        let begin = at.checked_sub(1).map_or(0, |before| usize::from(self.ends[before]));
        String::from_utf8_lossy(self.text.get(begin..usize::from(self.ends[at])).unwrap_or_default())
    }

    /// Whether the text was longer than what is kept.
    pub(crate) const fn is_cut(&self, which: Text) -> bool {
        self.cut & (1 << which as u16) != 0
    }

    fn put(&mut self, which: Text, bytes: &[u8]) {
        let (_, most) = TEXTS[which as usize];
        self.text.extend_from_slice(bytes.get(..most).unwrap_or(bytes));
        self.end(which, bytes.len() > most);
    }

    /// A list of names, with sizes if they have any, separated by spaces.
    fn put_all<'n>(&mut self, which: Text, all: impl Iterator<Item = (&'n [u8], Option<usize>)>) {
        let (_, most) = TEXTS[which as usize];
        let begin = self.text.len();
        let mut cut = false;
        for (name, size) in all {
            let mut digits = itoa::Buffer::new();
            let size = size.map_or("", |size| digits.format(size));
            if self.text.len() - begin + name.len() + size.len() + 2 > most {
                cut = true;
                break;
            }
            if self.text.len() > begin {
                self.text.push(b' ');
            }
            self.text.extend_from_slice(name);
            if !size.is_empty() {
                self.text.push(b':');
                self.text.extend_from_slice(size.as_bytes());
            }
        }
        self.end(which, cut);
    }

    fn end(&mut self, which: Text, cut: bool) {
        self.ends[which as usize] = self.text.len() as u16; // TEXTS adds up to far less than 64 KiB
        self.cut |= u16::from(cut) << which as u16;
    }

    /// The memory it uses.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let detail = |step: &Step| match step {
            Step::Attempt { detail: Some(detail), .. } => detail.len(),
            _ => 0,
        };
        size_of::<Self>()
            + self.text.capacity()
            + self.steps.capacity() * size_of::<Step>()
            + self.steps.iter().map(detail).sum::<usize>()
    }
}

/// The names of query parameters. One without `=` may be a value as well as a name and is left out.
pub(crate) fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], Option<usize>)> {
    query.split(|&b| b == b'&').filter_map(|piece| {
        let end = piece.iter().position(|&b| b == b'=')?;
        Some((piece.get(..end)?, Some(piece.len() - end - 1)))
    })
}

/// The path of a target as received. In an absolute target, the part before the path may hold a password.
pub(crate) fn bare_path(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") || target == b"*" {
        return target;
    }
    let behind = target.windows(3).position(|three| three == b"://").and_then(|at| target.get(at + 3..));
    let path = behind.and_then(|rest| rest.get(rest.iter().position(|&b| b == b'/')?..));
    path.unwrap_or_default()
}

/// The part of an error text that is kept with a step.
pub(crate) fn cut_detail(detail: &str) -> Box<str> {
    let mut end = detail.len().min(DETAIL_BYTES);
    while !detail.is_char_boundary(end) {
        end -= 1;
    }
    detail.get(..end).unwrap_or_default().into()
}

/// Microseconds, for at most an hour.
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upstream::error;

    fn filled(size: usize) -> Kept {
        let long = "x".repeat(size);
        let bytes = long.as_bytes();
        let step = Step::Attempt {
            endpoint: "127.0.0.1:1".into(),
            outcome: Outcome::Cause(&error::CONNECT_REFUSED),
            at: 1,
            took: 2,
            connect: 0,
            tls: 0,
            reused: false,
            detail: Some(cut_detail(&long)),
        };
        let query = [b"a=1&secret&b=".as_slice(), bytes].concat();
        let entry = Entry {
            request_id: bytes,
            method: bytes,
            host: bytes,
            path: bytes,
            query: &query,
            listener: &long,
            route: &long,
            upstream: &long,
            endpoint: &long,
            consumer: &long,
            ..Entry::default()
        };
        let beside = Details {
            kind: Kind::Failed,
            cause: Some(&error::CONNECT_REFUSED),
            revision: "0123456789ab",
            steps: &vec![step; 20],
            attempt: None,
            reused: false,
            exceeded: None,
            filters: &mut std::iter::repeat_n("rate_limit", size),
            fields: &mut std::iter::repeat_n((b"authorization".as_slice(), 7), size),
            stopped_by: Some(("cors", &long)),
            detail: Some(&long),
            begun: false,
        };
        let mut kept = Kept::default();
        kept.fill(&entry, "HTTP/1.1", beside);
        kept
    }

    #[test]
    fn no_request_makes_it_larger_than_its_slot() {
        let most: usize = TEXTS.iter().map(|(_, most)| most).sum();
        let mut kept = filled(10_000);
        assert!(kept.bytes() <= SLOT_BYTES, "{} bytes", kept.bytes());
        assert!(kept.text.len() <= most && kept.steps.len() == STEPS);
        // The slot may hold any previous content.
        for size in [0, 100, 9_999] {
            let other = filled(size);
            kept.text.clear();
            kept.text.extend_from_slice(&other.text);
            assert!(kept.bytes() <= SLOT_BYTES);
        }
    }

    #[test]
    fn texts_stand_in_their_order() {
        for (at, (which, _)) in TEXTS.iter().enumerate() {
            assert_eq!(*which as usize, at, "{which:?}");
        }
        let kept = filled(20);
        assert_eq!(kept.text(Text::Revision), "0123456789ab");
        assert_eq!(kept.text(Text::Query), "a:1 b:20");
        assert!(kept.text(Text::Fields).starts_with("authorization:7 authorization:7"));
        assert!(filled(100).is_cut(Text::Fields) && !filled(2).is_cut(Text::Fields));
        assert_eq!(kept.text(Text::Detail), "x".repeat(20));
        assert_eq!(filled(0).text(Text::Path), "");
    }

    #[test]
    fn what_is_said_is_cut_between_characters() {
        assert_eq!(&*cut_detail("abc"), "abc");
        assert_eq!(cut_detail(&"ä".repeat(100)).chars().count(), 64);
        assert_eq!(cut_detail(&format!("a{}", "ä".repeat(100))).len(), 127);
    }

    #[test]
    fn only_the_path_of_a_target_is_kept() {
        for (target, path) in [
            ("/a/b", "/a/b"),
            ("*", "*"),
            ("http://user:secret@h/a", "/a"),
            ("http://user:secret@h", ""),
            ("user:secret@h:443", ""),
            ("", ""),
        ] {
            assert_eq!(bare_path(target.as_bytes()), path.as_bytes(), "{target}");
        }
    }
}
