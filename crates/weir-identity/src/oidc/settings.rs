//! The settings of `oidc`, and what is wrong with them.

use crate::prelude::*;
use crate::shared::claimed::{self, Claimed};
use std::collections::BTreeMap;
use weir_h1::FieldName;

/// Logs browsers in at an identity provider (OpenID Connect, authorization code with PKCE), and identifies the user.
///
/// A browser that opens a page without a session is redirected to the provider and returns to that page, on the same
/// origin. Other clients get a 401, never a redirect. The session is kept in encrypted cookies of this host alone
/// (`__Host-`, HttpOnly, SameSite=Lax), which upstreams do not see. So any gateway with the same `client_secret`
/// accepts it, and all routes with the same `issuer`, `client_id` and `cookie` share it. Write `forward_token` on all
/// of these routes or on none.
///
/// If the provider gives a refresh token, the session is renewed when its tokens expire. The session is renewed once,
/// even if several requests need it or all clients disconnect first.
///
/// With `store`, the cookie holds a ticket, and Redis holds the session, sealed with the same key. This allows claims
/// and tokens too long for cookies (15 KB), a logout that ends the session in every browser that has its cookie, and
/// one refresh for all gateways. Each request then waits for one round trip to the store, and gets 503 while the
/// store is unavailable.
///
/// The path of `redirect` must lead to a route with this filter, and so must `logout`.
///
/// ```yaml
/// - oidc:
///     issuer: https://idp.example
///     client_id: web
///     client_secret: change-me
///     redirect: https://app.example/oidc/callback
///     headers: { x-user: sub, x-email: email }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OidcSettings {
    /// URL of the provider, exactly as the provider writes it, including a final slash; its endpoints are found below
    /// `/.well-known/openid-configuration`.
    pub(super) issuer: String,
    /// The client id of this gateway at the provider.
    pub(super) client_id: String,
    /// The client secret. The key of the cookies is derived from it, so a new secret ends all sessions.
    pub(super) client_secret: String,
    /// The URL to which the provider sends browsers back, as registered there. It also defines this origin; the Host
    /// of a request is not trusted.
    pub(super) redirect: Url,
    /// Scopes to request. Default `openid`.
    #[serde(default = "scopes")]
    pub(super) scopes: Vec<String>,
    /// What the provider should ask the user for: `consent`, `login`, `select_account`, or several of them. Default
    /// `consent` with the scope `offline_access`, without which many providers give no refresh token (OpenID Connect
    /// Core §11); otherwise nothing. `[]`: never anything.
    #[serde(default)]
    pub(super) prompt: Option<Vec<Prompt>>,
    /// Longest lifetime of a session. A shorter time applies to existing sessions too. Default 8h.
    #[serde(default = "session")]
    pub(super) session: Duration,
    /// Name of the cookies. Default `weir`, which gives `__Host-weir-0` and so on.
    #[serde(default = "cookie")]
    pub(super) cookie: String,
    /// Name of a Redis under `stores` that keeps the sessions. Default none: cookies hold them.
    #[serde(default)]
    pub(super) store: Option<String>,
    /// Path that ends the session, here and at the provider. Default none.
    #[serde(default)]
    pub(super) logout: Option<String>,
    /// Where a browser goes after logout. Default: `/` on this origin.
    #[serde(default)]
    pub(super) after_logout: Option<Url>,
    /// Claim that names the consumer, by one of the values under `consumers.NAME.oidc`. A user that names no consumer
    /// is refused. Default none: the consumer stays unnamed.
    #[serde(default)]
    pub(super) consumer: Option<String>,
    /// Headers for the upstream, each with the claim that sets it, as in the filter jwt. Headers of these names from
    /// the client are removed. Default none.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Whether the upstream gets the access token, as `Authorization: Bearer`. Default false.
    #[serde(default)]
    pub(super) forward_token: bool,
    /// PEM file with the certificate authorities to trust for the provider. Default: those of the system.
    #[serde(default)]
    pub(super) ca: Option<FilePath>,
    /// Allows an `http://` provider outside this machine. Default false.
    #[serde(default)]
    pub(super) insecure: bool,
    /// Lets requests without a session pass, unnamed. Default false.
    #[serde(default)]
    pub(super) optional: bool,
}

/// A value of `prompt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Prompt {
    /// The user's consent to this client.
    Consent,
    /// The password again.
    Login,
    /// The choice of an account.
    SelectAccount,
}

impl Prompt {
    const fn word(self) -> &'static str {
        match self {
            Self::Consent => "consent",
            Self::Login => "login",
            Self::SelectAccount => "select_account",
        }
    }
}

fn scopes() -> Vec<String> {
    vec!["openid".to_owned()]
}

const fn session() -> Duration {
    Duration::from_secs(8 * 3600)
}

fn cookie() -> String {
    "weir".to_owned()
}

// === impl OidcSettings ===

impl OidcSettings {
    pub(super) fn check(&self, build: &mut Build<'_>) {
        match self.issuer.parse::<Url>() {
            Ok(url) if !url.is_safe() && !self.insecure => {
                let message = "is asked in clear text: anyone on the network path can log in as any user";
                build.refuse("issuer", message, Some("write https://, or add `insecure: true`".into()));
            }
            Ok(_) => {}
            Err(e) => {
                build.refuse("issuer", format!("is not a URL: {e}"), Some("write https://idp.example".into()))
            }
        }
        if !self.redirect.is_safe() {
            let message = "is in clear text, where browsers keep no `__Host-` cookie";
            build.refuse("redirect", message, Some("write https://".into()));
        }
        if self.redirect.target().contains('?') {
            build.refuse("redirect", "has a query; expected a path alone", None);
        }
        for (key, text) in [("client_id", &self.client_id), ("client_secret", &self.client_secret)] {
            if text.is_empty() {
                build.refuse(
                    key,
                    "is empty",
                    Some("the provider gives it when the gateway is registered".into()),
                );
            }
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            build.refuse(
                "scopes",
                "lacks `openid`, without which there is no ID token",
                Some("add openid".into()),
            );
        }
        if self.scopes.iter().any(|scope| scope.is_empty() || !scope.bytes().all(|b| b.is_ascii_graphic())) {
            build.refuse("scopes", "has one that is empty or has a space", None);
        }
        if FieldName::new(&self.cookie).is_err() {
            build.refuse(
                "cookie",
                format!("`{}` is not a cookie name", self.cookie),
                Some("write weir".into()),
            );
        }
        if let Some(path) = &self.logout
            && (!path.starts_with('/') || path.contains('?') || *path == self.redirect.target())
        {
            build.refuse("logout", format!("`{path}` is not a separate path"), Some("write /logout".into()));
        }
        if self.session.get().as_secs() < 60 {
            build.refuse("session", "is under a minute; expected e.g. 8h", None);
        }
    }

    /// The value of `prompt` for a login.
    pub(super) fn prompt(&self) -> String {
        let offline = self.scopes.iter().any(|scope| scope == "offline_access");
        let usual: &[Prompt] = if offline { &[Prompt::Consent] } else { &[] };
        let words: Vec<&str> = self.prompt.as_deref().unwrap_or(usual).iter().map(|it| it.word()).collect();
        words.join(" ")
    }

    pub(super) fn fields(&self, build: &mut Build<'_>) -> Vec<(FieldName, String)> {
        claimed::headers(build, &self.headers, |name| {
            let own = ["cookie", "authorization"].iter().any(|own| name.as_str().eq_ignore_ascii_case(own));
            own.then_some("is a header that this filter reads or writes")
        })
    }

    pub(super) fn consumers(&self, build: &mut Build<'_>) -> Claimed {
        match self.consumer {
            None => Claimed::nobody(),
            Some(_) => Claimed::new(build, "oidc", "everybody"),
        }
    }
}
