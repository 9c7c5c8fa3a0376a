//! An estimate with its confidence interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Its lower and upper bound; none for a single sample.
    pub range: Option<(f64, f64)>,
}

impl Interval {
    /// Applies a monotonic function, increasing or decreasing, to the estimate and its bounds.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let range = self.range.map(|(low, high)| {
            let (a, b) = (f(low), f(high));
            (a.min(b), a.max(b))
        });
        Self { value: f(self.value), range }
    }

    /// Half the interval's width as a share of the estimate; `None` if that has no meaning.
    pub fn spread(self) -> Option<f64> {
        let (low, high) = self.range?;
        (self.value != 0.0).then(|| (high - low) / 2.0 / self.value.abs())
    }
}
