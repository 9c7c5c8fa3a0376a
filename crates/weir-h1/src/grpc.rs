//! gRPC statuses by number and by name.
//!
//! Source: "Status codes and their use in gRPC" of the gRPC project.

/// The names, indexed by number.
const NAMES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

/// The name of a status in lower case; `unknown` for an invalid number.
#[must_use]
pub fn name(status: u32) -> &'static str {
    NAMES.get(status as usize).copied().unwrap_or("unknown")
}

/// The status with this name in lower case.
#[must_use]
pub fn number(name: &str) -> Option<u8> {
    NAMES.iter().position(|known| *known == name).and_then(|at| u8::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (status, text) in [(0, "ok"), (1, "cancelled"), (16, "unauthenticated")] {
            assert_eq!((name(status), number(text)), (text, u8::try_from(status).ok()));
        }
        assert_eq!((name(17), number("canceled")), ("unknown", None));
    }
}
