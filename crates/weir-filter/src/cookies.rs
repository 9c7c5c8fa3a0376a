//! Reads and removes cookies of a request: see [`weir_route::cookies`].

use weir_h1::{FieldName, RequestHead};
use weir_route::cookies;

/// All values of a cookie, in order.
pub fn values<'h>(head: &'h RequestHead, name: &str) -> impl Iterator<Item = &'h [u8]> {
    cookies::values(head.headers.get_all("cookie"), name.as_bytes())
}

/// Removes the cookies for which `gone` is true. A request without such cookies stays unchanged.
pub fn remove(head: &mut RequestHead, gone: impl Fn(&[u8]) -> bool) {
    let is_gone = |pair: &&[u8]| cookies::split(pair).is_some_and(|(name, _)| gone(name));
    let all: Vec<&[u8]> = cookies::pairs(head.headers.get_all("cookie")).collect();
    if !all.iter().any(is_gone) {
        return;
    }
    let left: Vec<&[u8]> = all.into_iter().filter(|pair| !is_gone(pair)).map(<[u8]>::trim_ascii).collect();
    let left = left.join(&b"; "[..]);
    let Ok(cookie) = FieldName::new("cookie") else { return };
    if left.is_empty() || head.headers.insert(&cookie, &left).is_err() {
        head.headers.remove(&cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_head;

    fn left(cookies: &str, name: &str) -> Vec<String> {
        let mut head = request_head(&format!("GET /\n{cookies}"));
        remove(&mut head, |own| own == name.as_bytes());
        head.headers.get_all("cookie").map(|v| String::from_utf8_lossy(v).into_owned()).collect()
    }

    #[test]
    fn values_of_a_name() {
        let head = request_head("GET /\nCookie: a=1; b=2;a=3\nCookie: A=4; a; a=\nX: a=5");
        assert_eq!(values(&head, "a").collect::<Vec<_>>(), [&b"1"[..], b"3", b""]);
        assert_eq!(values(&head, "c").count(), 0);
    }

    #[test]
    fn the_others_stay() {
        assert_eq!(left("Cookie: a=1;  b=2; a=3; c", "a"), ["b=2; c"]);
        assert_eq!(left("Cookie: a=1\nCookie: b=2; c=3", "a"), ["b=2; c=3"]);
        assert_eq!(left("Cookie: a=1", "a"), [""; 0]);
        assert_eq!(left("Cookie: b=2;c=3 ", "a"), ["b=2;c=3"]);
    }
}
