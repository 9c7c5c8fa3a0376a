//! Texts for statuses: the reason phrase, and the text for a client that may not know the cause.

/// The text for strangers, if causes are not exposed. It is the same for every cause of a status, so that it reveals
/// nothing about what is behind the gateway.
pub const fn neutral(status: u16) -> &'static str {
    match status {
        0 => "The answer was cut short.",
        400 => "The request was not understood.",
        401 => "The request carries no valid credentials.",
        403 => "The request is not allowed.",
        404 => "There is nothing here.",
        405 => "The method is not allowed here.",
        408 => "The request took too long.",
        413 => "The request is too large.",
        414 => "The request target is too long.",
        417 => "The expectation cannot be met.",
        429 => "Too many requests.",
        431 => "The request's header fields are too large.",
        500 => "The request failed.",
        501 => "The method is not supported.",
        502 => "The service gave no valid answer.",
        503 => "The service is not available now.",
        504 => "The service gave no answer in time.",
        505 => "The HTTP version is not supported.",
        _ => "The request could not be served.",
    }
}
