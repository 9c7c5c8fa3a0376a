//! Every limit of a plan in one place.

/// Most scenarios.
pub const SCENARIOS: usize = 100;

/// Most steps of a plan, those inside others included.
pub const STEPS: usize = 1_000;

/// Deepest nesting of steps.
pub const NESTING: usize = 8;

/// Longest text or JSON that a step keeps under a name: 64 KiB. A longer one fails the step.
pub const VALUE_BYTES: usize = 64 * 1024;

/// Most cookies of a user.
pub const COOKIES: usize = 50;

/// Longest cookie, name and value together.
pub const COOKIE_BYTES: usize = 4096;

/// Longest line that a program of an `exec` step may answer with: 1 MiB.
pub const LINE_BYTES: usize = 1 << 20;

/// Most WebSockets that a user has open at once.
pub const WEBSOCKETS: usize = 16;

/// Largest file of a data set: 1 GiB.
pub const DATA_BYTES: u64 = 1 << 30;

/// Largest file that is sent as a body: 64 MiB.
pub const BODY_BYTES: u64 = 64 << 20;
