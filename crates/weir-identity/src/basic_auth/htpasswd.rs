//! The lines of a file of users, as Apache's `htpasswd` writes them and nginx reads them: `USER:HASH[:COMMENT]`.

use std::borrow::Cow;
use std::collections::HashMap;
use weir_filter::password::PasswordHash;

/// Most users of a file.
pub(super) const MAX_USERS: usize = 100_000;

/// Longest name of a user, in bytes.
const MAX_NAME: usize = 256;

/// A user of a file.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) hash: PasswordHash,
    /// The hash as written.
    pub(super) text: &'a str,
}

/// A line that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// From 1; 0 if the file as a whole is refused.
    pub(super) line: usize,
    /// What is wrong. It repeats neither a hash nor a line that may be a password.
    pub(super) message: Cow<'static, str>,
    /// What to do.
    pub(super) hint: &'static str,
}

const FORM: &str = "write USER:HASH; `weir hash --user USER` makes the line";
const HASH_ANEW: &str = "the password is needed to hash it again: `weir hash --user USER` makes the line";

/// Reads all users, or finds every mistake.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Line<'_>>, Vec<Wrong>> {
    let (mut users, mut wrong) = (Vec::new(), Vec::new());
    let mut lines_of: HashMap<&str, usize> = HashMap::new();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let line = line.trim_ascii_end(); // also the CR of CRLF
        if line.is_empty() || line.first() == Some(&b'#') {
            continue;
        }
        let mut refuse = |message: Cow<'static, str>, hint| wrong.push(Wrong { line: number, message, hint });
        let user = match user(line) {
            Ok(user) => user,
            Err((message, hint)) => {
                refuse(message, hint);
                continue;
            }
        };
        if let Some(first) = lines_of.get(user.name) {
            refuse(
                format!("`{}` stands in line {first} already", user.name).into(),
                "keep one of the two lines",
            );
            continue;
        }
        lines_of.insert(user.name, number);
        users.push(user);
        if users.len() > MAX_USERS {
            refuse(
                format!("more than {MAX_USERS} users").into(),
                "split the file, or keep the users in `consumer_sources`",
            );
            break;
        }
    }
    if users.is_empty() && wrong.is_empty() {
        wrong.push(Wrong {
            line: 0,
            message: "names no user: every request would be refused".into(),
            hint: FORM,
        });
    }
    if wrong.is_empty() { Ok(users) } else { Err(wrong) }
}

type Refused = (Cow<'static, str>, &'static str);

fn user(line: &[u8]) -> Result<Line<'_>, Refused> {
    let line = std::str::from_utf8(line).map_err(|_| ("is not UTF-8".into(), FORM))?;
    let (name, rest) = line.split_once(':').ok_or(("is not USER:HASH: there is no colon".into(), FORM))?;
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        let message = "the name of the user is empty, longer than 256 bytes, or has control characters";
        return Err((message.into(), FORM));
    }
    // No hash that we take holds a colon; what follows one is a comment.
    let text = rest.split(':').next().unwrap_or_default();
    if let Some(scheme) = weak(text) {
        return Err((format!("the password of `{name}` {scheme}").into(), HASH_ANEW));
    }
    match PasswordHash::parse(text) {
        Ok(hash) => Ok(Line { name, hash, text }),
        Err(why) => Err((format!("the hash of `{name}` {why}").into(), HASH_ANEW)),
    }
}

/// What is wrong with a form of password that other programs take.
fn weak(text: &str) -> Option<&'static str> {
    let begins = |prefix: &str| text.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
    let is_salted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/');
    Some(match text {
        "" => "is empty",
        _ if begins("$apr1$") => {
            "is hashed with apr1 (MD5), which is guessed fast; expected bcrypt or argon2id"
        }
        _ if begins("{SHA}") || begins("{SSHA}") => {
            "is hashed with SHA-1, which is guessed fast; expected bcrypt or argon2id"
        }
        _ if begins("{PLAIN}") => "is in plain text; expected a hash by bcrypt or argon2id",
        _ if ["$1$", "$5$", "$6$", "$y$", "$7$"].iter().any(|prefix| begins(prefix))
            || text.starts_with('_') =>
        {
            "is hashed by crypt; expected bcrypt or argon2id"
        }
        _ if text.len() == 13 && text.chars().all(is_salted) => {
            "is hashed by crypt (DES), which is guessed fast, or in plain text; expected bcrypt or argon2id"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2y$04$EGdrhbKUv8Oc9vGiXX0HQOxSg445d458Muh7DAHskb6QbtCvdxcie";
    const ARGON: &str =
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    #[test]
    fn what_is_read() {
        let text = format!(
            "\u{feff}# staff\r\nann:{BCRYPT}\r\n\r\nbob:{ARGON}:on leave\n  \n#old:{BCRYPT}\nj\u{f6}rg:{BCRYPT}"
        );
        let users = read(text.as_bytes()).unwrap();
        let names: Vec<&str> = users.iter().map(|user| user.name).collect();
        assert_eq!(names, ["ann", "bob", "j\u{f6}rg"]);
        assert_eq!((users[0].text, users[1].text), (BCRYPT, ARGON));
    }

    #[test]
    fn each_other_line_is_refused_with_its_number() {
        for (line, told) in [
            ("ann:$apr1$QlVYbzNL$7hCuBgbUJW4jIfaTjmKGi0", "the password of `ann` is hashed with apr1 (MD5)"),
            ("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "SHA-1"),
            ("ann:{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "SHA-1"),
            ("ann:{PLAIN}hunter2", "in plain text"),
            ("ann:$6$salt$hash", "hashed by crypt"),
            ("ann:$1$salt$hash", "hashed by crypt"),
            ("ann:rqXexS6ZhobKA", "crypt (DES)"),
            ("ann:hunter2", "plain text"),
            ("ann:", "is empty"),
            ("ann:$2y$12$short", "not a complete bcrypt hash"),
            ("ann:$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0c2FsdA", "not argon2id"),
            ("hunter2", "there is no colon"),
            (":x", "the name of the user is empty"),
            ("an\u{1}n:x", "control characters"),
        ] {
            let text = format!("bob:{BCRYPT}\n{line}\n");
            let wrong = read(text.as_bytes()).unwrap_err();
            assert!(wrong.len() == 1 && wrong[0].line == 2 && wrong[0].message.contains(told), "{wrong:?}");
            assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
        }
        let twice = format!("ann:{BCRYPT}\nbob:{BCRYPT}\nann:{ARGON}\nx\n");
        let wrong = read(twice.as_bytes()).unwrap_err();
        assert_eq!((wrong[0].line, &*wrong[0].message), (3, "`ann` stands in line 1 already"));
        assert_eq!(wrong[1].line, 4, "all mistakes in one go");
        for empty in ["", "# nobody\n", "\u{feff}"] {
            assert!(read(empty.as_bytes()).unwrap_err()[0].message.contains("names no user"), "{empty:?}");
        }
        assert!(read(b"\xff\xfe:x").unwrap_err()[0].message.contains("UTF-8"));
    }
}
