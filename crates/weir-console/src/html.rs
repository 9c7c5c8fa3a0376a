//! The template macro: `html!("<td class=\"{}\">{}</td>", class, name)`. The text is a literal, and the type of
//! each value escapes it.
//!
//! Invariant: outside data is always escaped, because only literals and other [`Html`] are inserted unchanged.
//! Values appear in elements and in double-quoted attributes only: never in a script, in a style, or at the start
//! of a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt::{self, Display};

/// A fragment of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

/// A value that can be shown in a page, with its escaping.
pub(crate) trait Show {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A value formatted for a page.
pub(crate) struct Shown<'a, T: Show + ?Sized>(pub(crate) &'a T);

/// Builds a fragment. `concat!` prevents `{name}`, which would insert a variable unescaped: only `{}` with a
/// value in the argument list compiles.
macro_rules! html {
    ($text:literal $(, $value:expr)* $(,)?) => {
        $crate::html::Html::made(format_args!(concat!($text), $($crate::html::Shown(&$value)),*))
    };
}

// === impl Html ===

impl Html {
    /// Wraps the output of `html!`.
    pub(crate) fn made(text: fmt::Arguments<'_>) -> Self {
        Self(text.to_string())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Self> for Html {
    fn from_iter<T: IntoIterator<Item = Self>>(pieces: T) -> Self {
        let mut all = Self::default();
        pieces.into_iter().for_each(|piece| all.0.push_str(&piece.0));
        all
    }
}

/// One fragment per item.
pub(crate) fn each<T>(items: impl IntoIterator<Item = T>, piece: impl FnMut(T) -> Html) -> Html {
    items.into_iter().map(piece).collect()
}

/// A text with names between backticks, as in the gateway's sentences.
pub(crate) fn ticked(text: &str) -> Html {
    let pieces: Vec<&str> = text.split('`').collect();
    let last = pieces.len() - 1;
    each(pieces.iter().enumerate(), |(at, piece)| match at % 2 {
        1 if at < last => html!("<code>{}</code>", piece),
        1 => html!("`{}", piece), // never closed
        _ => html!("{}", piece),
    })
}

/// Escapes a text for a path segment or query: everything but letters, digits and `-._~` becomes `%XX`.
pub fn part(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

// === values that may be shown ===

impl<T: Show + ?Sized> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f)
    }
}

impl Show for str {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'', '\0']) {
            let (before, found) = rest.split_at(at);
            f.write_str(before)?;
            let mut chars = found.chars();
            f.write_str(match chars.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                _ => "\u{fffd}", // HTML has no NUL
            })?;
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

impl Show for String {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().show(f)
    }
}

impl Show for Cow<'_, str> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().show(f)
    }
}

impl Show for Html {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).show(f)
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |value| value.show(f))
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Show for $number {
            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Display::fmt(self, f)
            }
        }
    )* };
}

numbers!(u8 u16 u32 u64 usize i32 i64 f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_literals_are_not() {
        let evil = "<script>alert('1')</script>\"&\0";
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}";
        assert_eq!(html!("<b>{}</b>", evil).into_string(), format!("<b>{escaped}</b>"));
        assert_eq!(html!("{}{}", String::from("<"), Some(&&"ü>")).into_string(), "&lt;ü&gt;");
        let inner = html!("<i>{}</i>", 7);
        assert_eq!(html!("<b>{}{}</b>", inner, None::<&str>).into_string(), "<b><i>7</i></b>");
        assert_eq!(each([1, 2], |n| html!("<li>{}", n)).into_string(), "<li>1<li>2");
    }

    #[test]
    fn names_between_backticks() {
        let told = |text| ticked(text).into_string();
        assert_eq!(told("route `a`: `<b>` is"), "route <code>a</code>: <code>&lt;b&gt;</code> is");
        assert_eq!((told(""), told("`"), told("a `b")), (String::new(), "`".to_owned(), "a `b".to_owned()));
        assert_eq!(told("`a`"), "<code>a</code>");
    }

    #[test]
    fn parts_of_urls() {
        assert_eq!(part("a b/ü?&=%\"<"), "a%20b%2F%C3%BC%3F%26%3D%25%22%3C");
        assert_eq!(part("a.b-c_d~1"), "a.b-c_d~1");
    }
}
