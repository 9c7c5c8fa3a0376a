//! An independent reading of RFC 9112, written only from its grammar and design rules: slow, obvious, and without
//! code of the crate. It takes a whole head and accepts or refuses it.

use std::net::Ipv6Addr;

/// The result of reading a head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Method, path and authority of a request; status of a response.
    pub(crate) start: [Vec<u8>; 3],
    pub(crate) query: Option<Vec<u8>>,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) chunked: bool,
    pub(crate) length: Option<u64>,
    pub(crate) close: bool,
    pub(crate) upgrade: Option<Vec<u8>>,
    pub(crate) expects: bool,
    pub(crate) trailers: bool,
    pub(crate) len: usize,
}

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// A request head at the start of `wire`, which must hold its empty line.
pub(crate) fn request(wire: &[u8]) -> Option<Head> {
    // §2.2: one empty line may stand before.
    let skipped = if wire.starts_with(b"\r\n") { 2 } else { 0 };
    let (first, lines, len) = split(&wire[skipped..])?;
    let len = len + skipped;
    // §3: request-line = method SP request-target SP HTTP-version
    let words: Vec<&[u8]> = first.split(|&b| b == b' ').collect();
    let [method, target, version] = words[..] else { return None };
    (is_token(method) && method.len() <= 32).then_some(())?;
    let old = is_old(version)?;
    let visible = |b: &u8| (0x21..=0x7e).contains(b) && *b != b'#';
    (!target.is_empty() && target.len() <= 8192 && target.iter().all(visible) && len <= 32768)
        .then_some(())?;

    let hosts: Vec<&[u8]> = named(&lines, "host");
    (hosts.len() == 1 || (hosts.is_empty() && old)).then_some(())?;
    hosts.iter().all(|h| is_host(h)).then_some(())?;

    let (before, query) = match target.iter().position(|&b| b == b'?') {
        Some(at) => (&target[..at], Some(target[at + 1..].to_vec())),
        None => (target, None),
    };
    let lower = before.to_ascii_lowercase();
    let mut authority = hosts.first().map_or(Vec::new(), |h| h.to_vec());
    let mut forward_host = None;
    let path: Vec<u8> = if method == b"CONNECT" {
        // §3.2.3: uri-host ":" port
        let (_, port) = host_port(target)?;
        (!port.unwrap_or_default().is_empty()).then_some(())?;
        if hosts.is_empty() {
            authority = target.to_vec();
        }
        target.to_vec()
    } else if target[0] == b'/' {
        before.to_vec() // §3.2.1
    } else if method == b"OPTIONS" && target == b"*" {
        b"*".to_vec() // §3.2.4
    } else {
        // §3.2.2: absolute-URI
        let (scheme, port) = if lower.starts_with(b"http://") {
            (7, &b":80"[..])
        } else if lower.starts_with(b"https://") {
            (8, &b":443"[..])
        } else {
            return None;
        };
        let rest = &before[scheme..];
        let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        is_host(&rest[..end]).then_some(())?;
        let bare = |h: &[u8]| h.strip_suffix(port).unwrap_or(h).to_ascii_lowercase();
        if hosts.is_empty() {
            authority = rest[..end].to_vec();
            forward_host = Some((b"Host".to_vec(), authority.clone()));
        } else if bare(hosts[0]) != bare(&rest[..end]) {
            return None;
        }
        match (&rest[end..], method, &query) {
            (b"", b"OPTIONS", None) => b"*".to_vec(),
            (b"", ..) => b"/".to_vec(),
            (path, ..) => path.to_vec(),
        }
    };

    let mut head = message(lines, old)?;
    head.fields.splice(0..0, forward_host);
    // RFC 9110 §10.1.1
    let expect = |head: &Head| members(&head.fields, "expect");
    if old {
        head.fields.retain(|(n, _)| !is(n, "expect"));
    }
    let all = expect(&head);
    all.iter().all(|e| is(e, "100-continue")).then_some(())?;
    head.expects = !all.is_empty() && (head.chunked || head.length.unwrap_or(0) > 0);
    (head.start, head.query, head.len) = ([method.to_vec(), path, authority], query, len);
    Some(head)
}

/// A response head at the start of `wire`, which must hold its empty line.
pub(crate) fn response(wire: &[u8]) -> Option<Head> {
    let (first, lines, len) = split(wire)?;
    // §4: status-line = HTTP-version SP status-code SP [ reason-phrase ], and no last SP is forgiven.
    let old = is_old(first.get(..8)?)?;
    (first.get(8) == Some(&b' ') && len <= 32768).then_some(())?;
    let status = first.get(9..12)?;
    (status.iter().all(u8::is_ascii_digit) && (b'1'..=b'5').contains(&status[0])).then_some(())?;
    let reason = &first[12..];
    (reason.is_empty() || (reason[0] == b' ' && reason.iter().all(is_value))).then_some(())?;
    let mut head = message(lines, old)?;
    // RFC 9110 §8.6
    if status[0] == b'1' || status == b"204" {
        head.fields.retain(|(n, _)| !is(n, "content-length"));
        head.length = None;
    }
    (head.start[0], head.len) = (status.to_vec(), len);
    Some(head)
}

/// First line, field lines and length: all up to the first empty line (§2.1).
fn split(wire: &[u8]) -> Option<(Vec<u8>, Lines, usize)> {
    let end = wire.windows(4).position(|w| w == b"\r\n\r\n")?;
    let mut lines = Vec::new();
    let mut rest = &wire[..end];
    while let Some(at) = rest.windows(2).position(|w| w == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    // §2.2: no bare CR, no bare LF
    lines.iter().all(|l| !l.contains(&b'\r') && !l.contains(&b'\n')).then_some(())?;
    let mut fields = Vec::new();
    for line in &lines[1..] {
        // §5: field-name ":" OWS field-value OWS
        let colon = line.iter().position(|&b| b == b':')?;
        let mut value = &line[colon + 1..];
        while let [b' ' | b'\t', more @ ..] | [more @ .., b' ' | b'\t'] = value {
            value = more;
        }
        (is_token(&line[..colon]) && value.iter().all(is_value)).then_some(())?;
        fields.push((line[..colon].to_vec(), value.to_vec()));
    }
    (fields.len() <= 100).then_some((lines[0].to_vec(), fields, end + 4))
}

/// Framing and connection (§6, §9.3, RFC 9110 §7.6.1 and §7.8).
fn message(lines: Lines, old: bool) -> Option<Head> {
    let codings = named(&lines, "transfer-encoding");
    let lengths = named(&lines, "content-length");
    let chunked = match codings[..] {
        [] => false,
        [one] if is(one, "chunked") && lengths.is_empty() && !old => true,
        _ => return None,
    };
    let length = match lengths[..] {
        [] => None,
        // §6.2 allows leading zeros, but a peer that reads octal or compares text reads another number.
        [b"0"] => Some(0),
        [one]
            if one.len() <= 19 && matches!(one, [b'1'..=b'9', ..]) && one.iter().all(u8::is_ascii_digit) =>
        {
            let n: u64 = std::str::from_utf8(one).ok()?.parse().ok()?;
            Some(n).filter(|n| i64::try_from(*n).is_ok()).map(Some)?
        }
        _ => return None,
    };
    let options = members(&lines, "connection");
    let said = |what: &str| options.iter().any(|o| is(o, what));
    let nominated: Vec<_> =
        options.iter().filter(|o| !["close", "keep-alive", "upgrade"].iter().any(|w| is(o, w))).collect();
    (nominated.len() <= 100).then_some(())?;
    let upgrade = named(&lines, "upgrade").into_iter().find(|u| !u.is_empty()).map(<[u8]>::to_vec);
    let hop = ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];
    let kept = [
        "authorization",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "proxy-authenticate",
        "proxy-authorization",
        "set-cookie",
        "via",
        "www-authenticate",
        "x-real-ip",
        "x-request-id",
    ];
    let goes = |name: &[u8]| {
        let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
        let read = lower.replace('_', "-");
        let trust = ["content-length", "transfer-encoding", "x-original-url", "x-real-ip", "x-rewrite-url"];
        let decides = trust.contains(&&*read) || read == "x-forwarded" || read.starts_with("x-forwarded-");
        let alias = lower.contains('_') && decides;
        let stays =
            kept.contains(&&*lower) || lower.starts_with("content-") || lower.starts_with("x-forwarded-");
        hop.contains(&&*lower) || alias || (!stays && nominated.iter().any(|n| is(n, &lower)))
    };
    Some(Head {
        start: Default::default(),
        query: None,
        chunked,
        length,
        close: said("close") || (old && !said("keep-alive")),
        upgrade: upgrade.filter(|_| said("upgrade") && !old),
        expects: false,
        trailers: members(&lines, "te").iter().any(|t| is(t, "trailers")),
        len: 0,
        fields: lines.into_iter().filter(|(n, _)| !goes(n)).collect(),
    })
}

fn named<'a>(lines: &'a Lines, name: &str) -> Vec<&'a [u8]> {
    lines.iter().filter(|(n, _)| is(n, name)).map(|(_, v)| &v[..]).collect()
}

/// Members of a list that may span several lines (RFC 9110 §5.6.1).
fn members(lines: &Lines, name: &str) -> Vec<Vec<u8>> {
    let all = named(lines, name).join(&b',');
    let all = all.split(|&b| b == b',').map(|m| m.trim_ascii().to_vec());
    all.filter(|m| !m.is_empty()).collect()
}

fn is(bytes: &[u8], text: &str) -> bool {
    bytes.eq_ignore_ascii_case(text.as_bytes())
}

/// §2.3
fn is_old(version: &[u8]) -> Option<bool> {
    match version {
        b"HTTP/1.0" => Some(true),
        b"HTTP/1.1" => Some(false),
        _ => None,
    }
}

/// RFC 9110 §5.6.2
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

/// RFC 9110 §5.5
fn is_value(b: &u8) -> bool {
    *b == b'\t' || *b == b' ' || (*b > 0x20 && *b != 0x7f)
}

/// RFC 9110 §7.2, RFC 3986 §3.2.2
fn is_host(text: &[u8]) -> bool {
    host_port(text).is_some()
}

fn host_port(text: &[u8]) -> Option<(&str, Option<&str>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, rest) = match text.strip_prefix('[') {
        Some(v6) => {
            let (address, rest) = v6.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, rest)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    // An empty label is no name's, but for the root's behind the final dot.
    let labels = host.strip_suffix('.').unwrap_or(host);
    let name = labels.split('.').all(|label| !label.is_empty() && label.chars().all(named));
    (text.starts_with('[') || (host.len() <= 254 && name)).then_some(())?;
    let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
    let exists = |p: &str| {
        p.is_empty() || (p.len() <= 5 && p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok())
    };
    port.is_none_or(exists).then_some((host, port))
}
