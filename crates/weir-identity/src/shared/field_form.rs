//! The forms in which a signature may cover a field (RFC 9421 §2.1.1 to §2.1.3). The parameters of the component
//! choose one: strictly serialized (`sf`), one member of a dictionary (`key`), or each line as bytes (`bs`).

use super::base64;
use weir_filter::sfv::{
    Bare, Member, Parameters, dictionary, item, list, write_dictionary, write_list_of, write_member,
};

/// What kind of structured field a field is (RFC 9651 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Structure {
    /// Names and values.
    Dictionary,
    /// One value.
    Item,
    /// Values.
    List,
}

/// How a component covers its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// `bs`: each line as bytes.
    Bytes,
    /// `key`: this member of a dictionary.
    Key(&'a str),
    /// The lines unchanged.
    Plain,
    /// `sf`: strictly serialized.
    Strict,
}

/// Structured request fields that every client knows (IANA, "HTTP Field Name Registry").
const KNOWN: [(&str, Structure); 14] = [
    ("accept-signature", Structure::Dictionary),
    ("capsule-protocol", Structure::Item),
    ("cdn-cache-control", Structure::Dictionary),
    ("client-cert", Structure::Item),
    ("client-cert-chain", Structure::List),
    ("content-digest", Structure::Dictionary),
    ("incremental", Structure::Item),
    ("priority", Structure::Dictionary),
    ("repr-digest", Structure::Dictionary),
    ("signature", Structure::Dictionary),
    ("signature-input", Structure::Dictionary),
    ("want-content-digest", Structure::Dictionary),
    ("want-repr-digest", Structure::Dictionary),
    ("wt-available-protocols", Structure::List),
];

/// The type of a structured field, if it is registered or in `more`.
pub(crate) fn structure_of(name: &str, more: &[(String, Structure)]) -> Option<Structure> {
    let own = more.iter().find(|(known, _)| known == name).map(|(_, structure)| *structure);
    own.or_else(|| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, structure)| *structure))
}

impl<'a> Form<'a> {
    /// The form that the parameters of a component ask for. `None` for unknown or contradictory parameters, including
    /// `tr` (a trailer) and `req` (of a request, in the signature of a response).
    pub(crate) fn of(parameters: &'a Parameters) -> Option<Self> {
        let (mut strict, mut bytes, mut key) = (false, false, None);
        for (name, value) in parameters {
            match (name.as_str(), value) {
                ("bs", Bare::Boolean(true)) => bytes = true,
                ("key", Bare::String(name)) => key = Some(name.as_str()),
                ("sf", Bare::Boolean(true)) => strict = true,
                _ => return None,
            }
        }
        match (bytes, key, strict) {
            (false, None, false) => Some(Self::Plain),
            (true, None, false) => Some(Self::Bytes),
            (false, Some(key), _) => Some(Self::Key(key)),
            (false, None, true) => Some(Self::Strict),
            (true, ..) => None, // §2.1: `bs` excludes the others
        }
    }

    /// The value of a field with these lines, at least one. `None` if the lines do not fit the form.
    pub(crate) fn value(self, lines: &[&[u8]], structure: Option<Structure>) -> Option<Vec<u8>> {
        let together = || lines.join(&b", "[..]);
        Some(match (self, structure) {
            (Self::Plain, _) => together(),
            (Self::Bytes, _) => {
                let lines: Vec<String> =
                    lines.iter().map(|line| format!(":{}:", base64::encode(line))).collect();
                lines.join(", ").into_bytes()
            }
            (Self::Key(key), None | Some(Structure::Dictionary)) => {
                let members = dictionary(&together())?;
                let (_, member) = members.into_iter().find(|(name, _)| name == key)?;
                written(|out| write_member(&member, out))
            }
            (Self::Strict, Some(Structure::Dictionary)) => {
                let members = dictionary(&together())?;
                written(|out| write_dictionary(&members, out))
            }
            (Self::Strict, Some(Structure::List)) => {
                let members = list(&together())?;
                written(|out| write_list_of(&members, out))
            }
            (Self::Strict, Some(Structure::Item)) => {
                let item = item(&together())?;
                written(|out| write_member(&Member::Item(item), out))
            }
            (Self::Key(_) | Self::Strict, _) => return None,
        })
    }
}

fn written(write: impl FnOnce(&mut String)) -> Vec<u8> {
    let mut out = String::new();
    write(&mut out);
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Structure::{Dictionary, Item, List};

    fn value(form: Form<'_>, lines: &[&str], structure: Option<Structure>) -> Option<String> {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        form.value(&lines, structure).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    /// RFC 9421 §2.1.1.
    #[test]
    fn strictly_serialized() {
        let field = "a=1,    b=2;x=1;y=2,   c=(a   b   c)";
        let strict = |text, structure| value(Form::Strict, &[text], structure);
        assert_eq!(strict(field, Some(Dictionary)).as_deref(), Some("a=1, b=2;x=1;y=2, c=(a b c)"));
        assert_eq!(strict(field, None), None, "nobody knows what it is");
        assert_eq!(strict("a=1,, b", Some(Dictionary)), None);
        assert_eq!(strict("  5;  x", Some(Item)).as_deref(), Some("5;x"));
        assert_eq!(strict("5, 6", Some(Item)), None);
        assert_eq!(strict("5,6 ,  (1   2);q=0.50", Some(List)).as_deref(), Some("5, 6, (1 2);q=0.5"));
        assert_eq!(value(Form::Strict, &["a=?1", "b"], Some(Dictionary)).as_deref(), Some("a, b"));
    }

    /// RFC 9421 §2.1.2.
    #[test]
    fn one_member() {
        let field = "a=1, b=2;x=1;y=2, c=(a   b    c), d";
        for (key, expected) in [
            ("a", Some("1")),
            ("d", Some("?1")),
            ("b", Some("2;x=1;y=2")),
            ("c", Some("(a b c)")),
            ("e", None),
        ] {
            assert_eq!(value(Form::Key(key), &[field], None).as_deref(), expected, "{key}");
        }
        assert_eq!(value(Form::Key("b"), &["a=1", "b=2, a=3"], Some(Dictionary)).as_deref(), Some("2"));
        assert_eq!(value(Form::Key("a"), &["a=1, B=2"], None), None, "it is not a dictionary");
        assert_eq!(value(Form::Key("a"), &["a"], Some(List)), None);
    }

    /// RFC 9421 §2.1.3.
    #[test]
    fn as_bytes() {
        let bytes = |lines| value(Form::Bytes, lines, None).unwrap();
        assert_eq!(
            bytes(&["value, with, lots", "of, commas"]),
            ":dmFsdWUsIHdpdGgsIGxvdHM=:, :b2YsIGNvbW1hcw==:"
        );
        assert_eq!(bytes(&["value, with, lots, of, commas"]), ":dmFsdWUsIHdpdGgsIGxvdHMsIG9mLCBjb21tYXM=:");
    }

    #[test]
    fn parameters() {
        let of = |text: &str| {
            let members = dictionary(format!("s=1{text}").as_bytes()).unwrap();
            let Member::Item(item) = &members[0].1 else { panic!("{text}") };
            Form::of(&item.parameters).map(|form| format!("{form:?}"))
        };
        for (text, expected) in [
            ("", Some("Plain")),
            (";sf", Some("Strict")),
            (";bs", Some("Bytes")),
            (";key=\"a\"", Some("Key(\"a\")")),
            (";sf;key=\"a\"", Some("Key(\"a\")")),
            (";bs;sf", None),
            (";bs;key=\"a\"", None),
            (";key=a", None),
            (";sf=?0", None),
            (";sf=1", None),
            (";tr", None),
            (";sf;req", None),
            (";name=\"a\"", None),
        ] {
            assert_eq!(of(text).as_deref(), expected, "{text}");
        }
    }
}
