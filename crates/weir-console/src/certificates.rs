//! The page of the server certificates and their expiry.

use crate::display::{clock, moment};
use crate::frame::{Frame, Screen};
use crate::html::{Html, each, ticked};
use crate::view::{CertificateStatus, Status};

/// A certificate with fewer days left counts as a problem; `weir check` warns from the same day on.
pub(crate) const SOON_DAYS: i64 = 14;

/// The page, soonest expiry first.
pub fn certificates(frame: &Frame<'_>, status: &Status) -> String {
    let mut list: Vec<&CertificateStatus> = status.certificates.iter().collect();
    list.sort_by_key(|certificate| certificate.days_left);
    let rows = each(list, |certificate| {
        let (class, words) = left(certificate);
        let names = each(&certificate.names, |name| html!("<code>{}</code> ", name));
        html!(
            "<tr><th scope=\"row\">{}<td data-label=\"left\"><span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span><td data-label=\"until\">{}<td \
             data-label=\"renewal\">{}<td data-label=\"file\"><code class=\"file\">{}</code>",
            names,
            class,
            words,
            clock(&certificate.not_after),
            renewal(certificate),
            certificate.cert
        )
    });
    let body = if status.certificates.is_empty() {
        html!("<p class=\"empty\">No listener has TLS.</p>")
    } else {
        html!(
            "<table class=\"stack\"><caption class=\"hide\">Certificates</caption><thead><tr><th scope=\"col\">Names<th scope=\"col\">Left<th \
             scope=\"col\">Until<th scope=\"col\">Renewal<th scope=\"col\">File<tbody>{}</table><p class=\"quiet\">Weir watches the files and uses a new certificate immediately.</p>",
            rows
        )
    };
    frame.page(Screen::Certificates, "Certificates", &Html::default(), &body)
}

/// The remaining validity.
fn left(certificate: &CertificateStatus) -> (&'static str, String) {
    let stand_in = certificate.acme.as_ref().is_some_and(|acme| acme.state == "stand_in");
    match certificate.days_left {
        _ if stand_in => ("bad", "self-signed stand-in: clients do not trust it".to_owned()),
        days if days < 0 => ("bad", "expired".to_owned()),
        0 => ("bad", "less than a day".to_owned()),
        1 => ("bad", "1 day".to_owned()),
        days if days < SOON_DAYS => ("warn", format!("{days} days")),
        days => ("well", format!("{days} days")),
    }
}

/// Who renews the certificate, and when; or why renewal failed.
fn renewal(certificate: &CertificateStatus) -> Html {
    let Some(acme) = &certificate.acme else { return html!("<small>manual: Weir watches the file</small>") };
    let renews = acme.renews_at.as_ref().map(|at| html!(", {}", moment(at)));
    let now = acme.ordering.then(|| html!(", being ordered now"));
    let next = acme.next_try.as_ref().map(|at| html!(" Tried again {}.", moment(at)));
    let error = acme.error.as_ref().map(|error| {
        html!(
            "<br><span class=\"is-bad\">{}</span> <small>{}{}</small>",
            ticked(&error.text),
            ticked(error.hint),
            next
        )
    });
    html!("ACME <small>{}</small>{}{}{}", acme.challenge, renews, now, error)
}
