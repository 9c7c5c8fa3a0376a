//! The sign-in page, which exchanges a token for a session.

use crate::MARK;
use crate::frame::Frame;

/// The page. `to` is the page to open afterwards; `wrong` says why signing in failed.
pub fn sign_in(frame: &Frame<'_>, to: &str, wrong: Option<&str>) -> String {
    let wrong = wrong.map(|wrong| html!("<p class=\"notice bad\" role=\"alert\" id=\"wrong\">{}</p>", wrong));
    let body = html!(
        "<section class=\"card sign-in\"><img src=\"{}?{}\" alt=\"\" width=\"44\" height=\"44\"><h1>Weir</h1><p class=\"quiet\">{}</p>{}<form method=\"post\" \
         action=\"/sign-in\"><input type=\"hidden\" name=\"to\" value=\"{}\"><label for=\"token\">Token</label><input id=\"token\" name=\"token\" \
         type=\"password\" autocomplete=\"current-password\" required autofocus><button class=\"main\">Sign in</button></form><p class=\"quiet\">One of \
         <code>admin.tokens</code>, or <code>admin.token</code>. It is exchanged for a session of this browser.</p></section>",
        MARK.path,
        format!("{:x}", MARK.digest),
        frame.place,
        wrong,
        to
    );
    frame.alone("Sign in", &body)
}
