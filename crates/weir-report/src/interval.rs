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

/// The 97.5 % quantile of Student's t.
pub(crate) fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    TABLE.get(freedom.saturating_sub(1)).copied().unwrap_or(1.96 + 2.4 / freedom as f64)
}
