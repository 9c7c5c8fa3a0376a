//! Describes the first step that failed in a dry run, setup or teardown, with the heads of request and answer.

use super::crew::Job;
use crate::scenario::masks::Masks;
use crate::transport::is_secret;

/// The first failure.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    pub(super) failed: Option<String>,
}

/// Longest head that is shown.
const SHOWN_MOST: usize = 4 * 1024;

impl Witness {
    /// Notes a failure, unless there was one before.
    pub(super) fn note(&mut self, step: &str, why: &str, job: &Job, masks: &Masks) {
        if self.failed.is_some() {
            return;
        }
        let request = job.bytes.get(..job.head_bytes).unwrap_or_default();
        let head = &job.answer.head;
        let answer = match job.is_stream && head.status() > 0 {
            // Over HTTP/2 the head came in another form.
            true => {
                let mut text = format!("HTTP/2 {}\r\n", head.status()).into_bytes();
                head.headers.write_to(&mut text);
                text
            }
            // What cannot be parsed is shown as it came.
            false if head.wire_len() == 0 => head.buffer().to_vec(),
            false => head.buffer().get(..head.wire_len()).unwrap_or_default().to_vec(),
        };
        let mut text =
            format!("step `{step}` failed: {why}\n{}", indented('>', &redacted_head(request, masks)));
        if !answer.is_empty() {
            text.push_str(&indented('<', &redacted_head(&answer, masks)));
        }
        self.failed = Some(masks.apply(&text));
    }
}

/// A head with its credentials hidden: values of fields and parameters whose names say so.
pub(super) fn redacted_head(head: &[u8], masks: &Masks) -> String {
    // Masks come first: where the text is cut, they would miss the beginning of a value.
    let mut text = masks.apply(&String::from_utf8_lossy(head));
    text.truncate(text.floor_char_boundary(SHOWN_MOST));
    let mut lines = text.lines();
    let mut shown = vec![redacted_line(lines.next().unwrap_or_default())];
    for line in lines.filter(|line| !line.is_empty()) {
        shown.push(match line.split_once(':') {
            Some((name, _)) if is_secret(name) => format!("{name}: ***"),
            // It may hold a URL with parameters.
            Some((name, value)) if name.eq_ignore_ascii_case("location") => {
                format!("{name}:{}", redacted_line(value))
            }
            _ => line.to_owned(),
        });
    }
    shown.join("\n")
}

/// A line with a URL. Values of parameters are hidden: a variable of the environment or a code of a login may be one.
fn redacted_line(line: &str) -> String {
    let Some((path, query)) = line.split_once('?') else { return line.to_owned() };
    let (query, rest) = query.split_once(' ').map_or((query, String::new()), |(q, r)| (q, format!(" {r}")));
    let shown: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) => format!("{name}=***"),
            None => "***".to_owned(),
        })
        .collect();
    format!("{path}?{}{rest}", shown.join("&"))
}

/// The beginning of a body in one line. Members and inputs whose names say that they are credentials are hidden, and
/// so is every long run of characters that could be one.
pub(super) fn redacted_body(body: &[u8], masks: &Masks) -> String {
    /// How much of a body is shown.
    const BEGINNING: usize = 160;
    /// A run of letters and digits of this length is a credential rather than a word.
    const LONG: usize = 16;
    /// How much of it is searched for values to hide, so that none is cut.
    const SEARCHED: usize = 8 * 1024;
    let mut text = masks.apply(&String::from_utf8_lossy(body.get(..SEARCHED).unwrap_or(body)));
    text.truncate(text.floor_char_boundary(BEGINNING));
    let mut shown = String::new();
    let mut hides_next = false;
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/');
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let end = if is_part(first) { rest.find(|c| !is_part(c)) } else { Some(first.len_utf8()) };
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if !is_part(first) {
            let is_end = matches!(first, ',' | '}' | '\n' | '>' | '&');
            hides_next &= !is_end;
            shown.push(if first.is_control() { ' ' } else { first });
            continue;
        }
        let mixed = piece.len() >= LONG && piece.chars().any(|c| c.is_ascii_digit());
        if hides_next || mixed {
            shown.push_str("***");
        } else {
            shown.push_str(piece);
        }
        hides_next |= is_secret(piece) && piece.len() < LONG;
    }
    if body.len() > BEGINNING {
        shown.push('…');
    }
    shown
}

fn indented(mark: char, text: &str) -> String {
    text.lines().map(|line| format!("  {mark} {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        let head =
            b"POST /login?user=a&access_token=s3cret HTTP/1.1\r\nhost: a\r\nAuthorization: Bearer s3cret\r\n\
                     Cookie: sid=s3cret\r\nX-Session: s3cret\r\nX-Tok: s3cret\r\naccept: */*\r\n\r\n";
        let shown = redacted_head(head, &Masks::default());
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.starts_with("POST /login?user=***&access_token=*** HTTP/1.1\nhost: a\n"), "{shown}");
        assert!(shown.ends_with("\naccept: */*"), "{shown}");
        let answer =
            b"HTTP/1.1 302 Found\r\nSet-Cookie: sid=s3cret; Path=/\r\nLocation: /a?token=s3cret&b=1\r\n\r\n";
        let shown = redacted_head(answer, &Masks::default());
        assert!(!shown.contains("s3cret") && shown.contains("Location: /a?token=***&b=***"), "{shown}");
    }

    #[test]
    fn a_body_is_shown_without_what_may_be_a_credential() {
        for (body, want) in [
            (r#"{"error":"no such item","id":7}"#, r#"{"error":"no such item","id":7}"#),
            (r#"{"token":"abc","otp":"x7","name":"x"}"#, r#"{"token":"***","otp":"***","name":"x"}"#),
            ("<p>0123456789abcdef0123</p>\r\n", "<p>***</p>  "),
            ("password=a b&x=1", "password=*** ***&x=1"),
        ] {
            assert_eq!(redacted_body(body.as_bytes(), &Masks::default()), want, "{body}");
        }
    }
}
