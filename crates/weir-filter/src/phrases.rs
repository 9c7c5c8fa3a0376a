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

/// The reason phrase of a status (RFC 9110 §15); empty for one that has none.
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
