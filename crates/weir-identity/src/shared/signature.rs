//! HTTP Message Signatures (RFC 9421): the signature base of a request. Not a filter; `signature_auth` verifies and
//! `sign` makes signatures with it.

use super::field_form::{Form, Structure, structure_of};
use super::jose::algorithm::Algorithm;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::borrow::Cow;
use weir_filter::filter::Build;
use weir_filter::filter::RequestHead;
use weir_filter::sfv::{Bare, Item, Parameters, write_item, write_list};

/// The algorithms by their names in RFC 9421 §6.2.2. They are algorithms of tokens under other names.
pub(crate) const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("ecdsa-p256-sha256", Algorithm::ES256),
    ("ecdsa-p384-sha384", Algorithm::ES384),
    ("ed25519", Algorithm::EdDSA),
    ("hmac-sha256", Algorithm::HS256),
    ("rsa-pss-sha512", Algorithm::PS512),
    ("rsa-v1_5-sha256", Algorithm::RS256),
];

/// The target of a request. Authority and scheme are not taken from the head alone, because an upstream may get
/// others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) tls: bool,
    pub(crate) authority: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// The types of structured fields that are not registered.
    pub(crate) structures: &'a [(String, Structure)],
}

/// Why there is nothing to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// A component is missing, occurs more than once where it must be unique, or is not the required type of
    /// structured field.
    Missing,
    /// A component is unknown or is listed twice.
    Unknown,
}

/// The name of a component, such as `@method` or `date`; `None` if the item is not a component.
pub(crate) fn name_of(component: &Item) -> Option<&str> {
    match &component.value {
        Bare::String(name) => Some(name),
        _ => None,
    }
}

/// A component with this name and no parameters.
pub(crate) fn component(name: &str) -> Item {
    Item { value: Bare::String(name.to_owned()), parameters: Parameters::new() }
}

/// Whether settings may name this component: a derived component without parameters, or a field.
pub(crate) fn is_component(name: &str) -> bool {
    const DERIVED: [&str; 7] =
        ["@authority", "@method", "@path", "@query", "@request-target", "@scheme", "@target-uri"];
    match name.starts_with('@') {
        true => DERIVED.contains(&name),
        false => weir_h1::FieldName::new(name).is_ok() && !name.bytes().any(|b| b.is_ascii_uppercase()),
    }
}

/// Refuses invalid component names in settings.
pub(crate) fn check_components(build: &mut Build<'_>, components: &[String]) {
    for (at, name) in components.iter().enumerate().filter(|(_, name)| !is_component(name)) {
        let hint =
            "write a field in lower case, or one of @method, @target-uri, @authority, @scheme, @path, @query";
        build.refuse(
            &format!("components[{at}]"),
            format!("`{name}` is nothing that is signed"),
            Some(hint.into()),
        );
    }
}

/// The signature base (§2.5): a line for each component, and one for the parameters.
pub(crate) fn base(
    components: &[Item],
    parameters: &Parameters,
    target: &Target<'_>,
) -> Result<Vec<u8>, Unsigned> {
    let mut base = Vec::with_capacity(512);
    for (at, component) in components.iter().enumerate() {
        if components.get(..at).is_some_and(|before| before.contains(component)) {
            return Err(Unsigned::Unknown);
        }
        let mut name = String::new();
        write_item(component, &mut name);
        base.extend_from_slice(name.as_bytes());
        base.extend_from_slice(b": ");
        base.extend_from_slice(&target.value(component)?);
        base.push(b'\n');
    }
    let mut last = "\"@signature-params\": ".to_owned();
    write_list(components, parameters, &mut last);
    base.extend_from_slice(last.as_bytes());
    Ok(base)
}

impl Target<'_> {
    /// The value of a component (§2.1 and §2.2).
    fn value(&self, component: &Item) -> Result<Cow<'_, [u8]>, Unsigned> {
        let name = name_of(component).ok_or(Unsigned::Unknown)?;
        if name == "@query-param" {
            return self.parameter(&component.parameters);
        }
        let form = Form::of(&component.parameters).filter(|_| is_component(name)).ok_or(Unsigned::Unknown)?;
        if name.starts_with('@') && form != Form::Plain {
            return Err(Unsigned::Unknown);
        }
        let query = || self.query.unwrap_or_default();
        Ok(match name {
            "@authority" => self.normal_authority().into(),
            "@method" => self.head.method_name().into(),
            "@path" => self.path.into(),
            "@query" => [b"?", query()].concat().into(),
            "@request-target" => self.request_target().into(),
            "@scheme" => self.scheme().into(),
            "@target-uri" => {
                [self.scheme(), b"://", &self.normal_authority(), &self.request_target()].concat().into()
            }
            field => {
                let values: Vec<&[u8]> = self.head.headers.get_all(field).map(<[u8]>::trim_ascii).collect();
                if values.is_empty() {
                    return Err(Unsigned::Missing);
                }
                let structure = structure_of(field, self.structures);
                form.value(&values, structure).ok_or(Unsigned::Missing)?.into()
            }
        })
    }

    const fn scheme(&self) -> &'static [u8] {
        if self.tls { b"https" } else { b"http" }
    }

    /// §2.2.3: in lower case, without the port that the scheme implies.
    fn normal_authority(&self) -> Vec<u8> {
        let implied: &[u8] = if self.tls { b":443" } else { b":80" };
        self.authority.strip_suffix(implied).unwrap_or(self.authority).to_ascii_lowercase()
    }

    fn request_target(&self) -> Vec<u8> {
        match self.query {
            Some(query) => [self.path, b"?", query].concat(),
            None => self.path.to_vec(),
        }
    }

    /// §2.2.8: one parameter of the query, decoded and encoded again. One that occurs twice cannot be signed.
    fn parameter(&self, parameters: &Parameters) -> Result<Cow<'_, [u8]>, Unsigned> {
        let [(key, Bare::String(wanted))] = &parameters[..] else { return Err(Unsigned::Unknown) };
        if key != "name" {
            return Err(Unsigned::Unknown);
        }
        let wanted = decode(wanted.as_bytes());
        let mut found = None;
        for pair in self.query.unwrap_or_default().split(|&b| b == b'&') {
            let at = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (name, value) = pair.split_at_checked(at).unwrap_or((pair, &[]));
            if decode(name) != wanted {
                continue;
            }
            if found.replace(encode(&decode(value.strip_prefix(b"=").unwrap_or_default()))).is_some() {
                return Err(Unsigned::Missing);
            }
        }
        found.map(Cow::Owned).ok_or(Unsigned::Missing)
    }
}

/// Decodes as forms do: `+` is a space.
fn decode(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect()
}

/// Encodes as forms do, with spaces as `%20`.
fn encode(bytes: &[u8]) -> Vec<u8> {
    const SPECIAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');
    percent_encode(bytes, SPECIAL).flat_map(str::bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::sfv::{Member, dictionary};
    use weir_filter::testing::request_head;

    /// The value of a component of a request by https.
    fn value(head: &str, component: &str) -> Result<String, Unsigned> {
        let head = request_head(head);
        let list = dictionary(format!("s=({component})").as_bytes()).expect("a test gives a component");
        let Member::List(components, parameters) = &list[0].1 else { panic!("it is a list") };
        let (path, query) = (head.received_path(), head.query());
        let target = Target {
            head: &head,
            tls: true,
            authority: head.asked_authority(),
            path,
            query,
            structures: &[],
        };
        let base = base(components, parameters, &target)?;
        let text = String::from_utf8(base).unwrap();
        let line = text.lines().next().unwrap();
        assert!(line.starts_with(component), "{line}");
        Ok(line[component.len() + 2..].to_owned())
    }

    /// RFC 9421 §2.1 and §2.2.
    #[test]
    fn components() {
        let head = "POST /path%20a/?param=value&foo=bar&baz=batman&qux=&x=a+b%2dc\nHost: WWW.Example.com:443\n\
                    Date: Tue, 20 Apr 2021 02:07:56 GMT\nX-Ows:   leading and trailing  \nCache-Control: max-age=60\n\
                    Cache-Control:    must-revalidate\nCDN-Cache-Control: max-age=1,  private\nX-Empty:";
        for (component, expected) in [
            ("\"@method\"", "POST"),
            ("\"@authority\"", "www.example.com"),
            ("\"@scheme\"", "https"),
            ("\"@path\"", "/path%20a/"),
            ("\"@query\"", "?param=value&foo=bar&baz=batman&qux=&x=a+b%2dc"),
            ("\"@query-param\";name=\"baz\"", "batman"),
            ("\"@query-param\";name=\"qux\"", ""),
            ("\"@query-param\";name=\"x\"", "a%20b-c"),
            ("\"date\"", "Tue, 20 Apr 2021 02:07:56 GMT"),
            ("\"x-ows\"", "leading and trailing"),
            ("\"cache-control\"", "max-age=60, must-revalidate"),
            ("\"x-empty\"", ""),
            ("\"cache-control\";bs", ":bWF4LWFnZT02MA==:, :bXVzdC1yZXZhbGlkYXRl:"),
            ("\"cache-control\";key=\"max-age\"", "60"),
            ("\"cdn-cache-control\";sf", "max-age=1, private"),
            ("\"x-empty\";bs", "::"),
        ] {
            assert_eq!(value(head, component).as_deref(), Ok(expected), "{component}");
        }
        assert_eq!(value("GET /\nHost: a:80", "\"@authority\"").as_deref(), Ok("a:80"));
        assert_eq!(value("GET /a?\nHost: a", "\"@query\"").as_deref(), Ok("?"));
        assert_eq!(value("GET /a\nHost: a", "\"@query\"").as_deref(), Ok("?"));
        assert_eq!(value("GET /a\nHost: a", "\"@target-uri\"").as_deref(), Ok("https://a/a"));
        assert_eq!(value("GET /a?b\nHost: a", "\"@request-target\"").as_deref(), Ok("/a?b"));
    }

    #[test]
    fn what_cannot_be_signed() {
        let head = "GET /?a=1&%61=2&b=3\nX: y";
        for (component, why) in [
            ("\"z\"", Unsigned::Missing),
            ("\"@query-param\";name=\"a\"", Unsigned::Missing),
            ("\"@query-param\";name=\"z\"", Unsigned::Missing),
            ("\"@query-param\"", Unsigned::Unknown),
            ("\"@query-param\";name=b", Unsigned::Unknown),
            ("\"@status\"", Unsigned::Unknown),
            ("\"@signature-params\"", Unsigned::Unknown),
            ("\"x\";sf", Unsigned::Missing),
            ("\"x\";key=\"z\"", Unsigned::Missing),
            ("\"x\";bs;sf", Unsigned::Unknown),
            ("\"@path\";sf", Unsigned::Unknown),
            ("\"x\";tr", Unsigned::Unknown),
            ("\"@method\";req", Unsigned::Unknown),
            ("\"X\"", Unsigned::Unknown),
            ("x", Unsigned::Unknown),
            ("1", Unsigned::Unknown),
            ("\"x\" \"x\"", Unsigned::Unknown),
        ] {
            assert_eq!(value(head, component), Err(why), "{component}");
        }
    }
}
