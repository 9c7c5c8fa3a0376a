//! `POST /api/v1/maintenance/{switch}:on|off?for=30m`: parses the request target.

use crate::by_hand::{self, plain};
use hyper::Uri;
use std::time::Duration;

/// The path, as the documentation writes it.
pub(crate) const PATH: &str = "/api/v1/maintenance/{switch}:{on|off}";

/// Prefix of such a path.
pub(crate) const PREFIX: &str = "/api/v1/maintenance/";

/// The parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) switch: String,
    /// How long; `None` turns it off.
    pub(crate) time: Option<Duration>,
}

/// Whether a path is one of these.
pub(crate) fn is_at(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Parses a target.
///
/// # Errors
/// The mistake, in words.
pub(crate) fn read(uri: &Uri) -> Result<Asked, String> {
    let expected = || format!("expected {PATH}");
    let rest = uri.path().strip_prefix(PREFIX).ok_or_else(expected)?;
    let (switch, verb) =
        rest.rsplit_once(':').filter(|(switch, _)| !switch.is_empty()).ok_or_else(expected)?;
    let time = by_hand::time(uri.query().unwrap_or_default())?;
    let time = match verb {
        "on" => Some(time.unwrap_or(by_hand::DEFAULT)),
        "off" if time.is_some() => {
            return Err("`off` takes no `for`: it ends the earlier setting".to_owned());
        }
        "off" => None,
        _ => return Err(format!("`{verb}` is neither on nor off; {}", expected())),
    };
    Ok(Asked { switch: plain(switch)?, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        const S: Duration = Duration::from_secs(1);
        for (target, expected) in [
            ("shop:on?for=30m", Some(("shop", Some(1800 * S)))),
            ("shop:on", Some(("shop", Some(3600 * S)))),
            ("shop:off", Some(("shop", None))),
            ("a%3Ab:off", Some(("a:b", None))),
            ("shop:off?for=1m", None),
            ("shop:on?for=31d", None),
            ("shop:on?for=0s", None),
            ("shop:on?until=1m", None),
            ("shop:toggle", None),
            ("shop", None),
            (":on", None),
            ("%zz:on", None),
        ] {
            let uri: Uri = format!("http://127.0.0.1{PREFIX}{target}").parse().unwrap();
            let read = read(&uri);
            let read = read.as_ref().ok().map(|asked| (&*asked.switch, asked.time));
            assert_eq!(read, expected, "{target}");
        }
    }
}
