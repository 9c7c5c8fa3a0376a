//! Whether the blocks of `--rounds` are long enough to be compared.

use super::TURNS_LEAST;
use crate::Report;
use crate::units::time;

/// In a closed loop a block holds a whole number of responses of each connection, so its rate is off by up to one
/// response per connection. Requests that a block leaves to the next make the two correlate.
pub(super) fn short_blocks(r: &Report) -> Option<String> {
    let shortest = r.blocks.iter().map(|block| block.length_ns).min()?;
    let least = TURNS_LEAST * r.latency.response.mean();
    ((shortest as f64) < least).then(|| {
        format!(
            "the blocks of --rounds are {} long, less than ten mean response times ({}): use a longer -d or fewer rounds",
            time(shortest as f64),
            time(r.latency.response.mean())
        )
    })
}
