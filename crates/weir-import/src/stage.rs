//! Which systems have a program that a proof can run: above [`crate::proof`] and the systems, which do not know it.

use crate::proof::Program;

/// Every program that a proof can run, sorted by system.
static PROGRAMS: &[&Program] =
    &[&crate::caddy::stage::PROGRAM, &crate::haproxy::stage::PROGRAM, &crate::nginx::stage::PROGRAM];

/// The program of a system. None if weir cannot run it.
#[must_use]
pub fn program(system: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.system == system).copied()
}
