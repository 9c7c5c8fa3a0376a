//! Axes: position values between two ends, and choose labels.

/// How an axis places its values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// An axis: its ends, its scale, and how it writes values.
pub(crate) struct Axis {
    pub(super) from: f64,
    to: f64,
    scale: Scale,
    /// The labels, with their positions.
    pub(super) marks: Vec<(f64, String)>,
    /// Formats a value.
    pub(super) name: fn(f64) -> String,
}

impl Axis {
    /// From 0, with labels at round values; logarithmic if the values span more than 30-fold.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone, name: fn(f64) -> String) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        if least.is_finite() && most / least > 30.0 {
            Self::log(least, most, name)
        } else {
            Self::linear(most, name)
        }
    }

    /// From 0 to a round value.
    pub(crate) fn linear(most: f64, name: fn(f64) -> String) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let power = 10f64.powf((most / 5.0).log10().floor());
        // Divides if the power is a fraction: 6 / 10 is 0.6, but 6 × 0.1 is not.
        let value = |n: f64| if power < 1.0 { n / (1.0 / power).round() } else { n * power };
        let step = [1.0, 2.0, 5.0].into_iter().find(|n| most / value(*n) <= 5.0).unwrap_or(10.0);
        let steps = (most / value(step)).ceil();
        let at = |i: u32| value(f64::from(i) * step);
        let marks = (0..=steps as u32).map(|i| (at(i), name(at(i)))).collect();
        Self { from: 0.0, to: value(steps * step), scale: Scale::Linear, marks, name }
    }

    /// Exactly from one value to another, with the given labels.
    pub(crate) const fn exact(
        from: f64,
        to: f64,
        marks: Vec<(f64, String)>,
        name: fn(f64) -> String,
    ) -> Self {
        Self { from, to, scale: Scale::Linear, marks, name }
    }

    /// Exactly from one value to another, with labels at the round values between.
    pub(crate) fn within(from: f64, to: f64, name: fn(f64) -> String) -> Self {
        let step = round_step((to - from).max(f64::MIN_POSITIVE) / 5.0);
        let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
        // Divides if the step is a fraction: 3 / 5 is 0.6, but 3 × 0.2 is not.
        let value = |i: i64| if step < 1.0 { i as f64 / (1.0 / step).round() } else { i as f64 * step };
        let marks = (first..=last).map(value).map(|at| (at, name(at))).collect();
        Self { from, to, scale: Scale::Linear, marks, name }
    }

    /// Over whole decades.
    pub(crate) fn log(least: f64, most: f64, name: fn(f64) -> String) -> Self {
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let high = high.max(low + 1);
        let marks = (low..=high).map(|p| (10f64.powi(p), name(10f64.powi(p)))).collect();
        Self { from: 10f64.powi(low), to: 10f64.powi(high), scale: Scale::Log, marks, name }
    }

    /// 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
        };
        at.clamp(0.0, 1.0)
    }
}

/// The smallest 1, 2 or 5 times a power of ten that is at least this.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|n| least <= n * power * 1.000_001).unwrap_or(10.0);
    // Divides if the power is a fraction: 2 / 10 is 0.2, but 2 × 0.1 might not be.
    if power < 1.0 { step / (1.0 / power).round() } else { step * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axes_have_round_labels() {
        let plain = |n: f64| n.to_string();
        assert_eq!(marks(&Axis::linear(47.0, plain)), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(marks(&Axis::linear(0.0, plain)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(marks(&Axis::of([3.0, 0.0, 950.0].into_iter(), plain)), ["1", "10", "100", "1000"]);
        assert_eq!(marks(&Axis::of([3.0, 9.0].into_iter(), plain)), ["0", "2", "4", "6", "8", "10"]);
        let log = Axis::log(1.0, 100.0, plain);
        assert_eq!([1.0, 10.0, 100.0, 0.0].map(|v| log.place(v)), [0.0, 0.5, 1.0, 0.0]);
    }

    #[test]
    fn labels_between_two_ends_are_round() {
        let plain = |n: f64| n.to_string();
        assert_eq!(marks(&Axis::within(0.0, 12.6, plain)), ["0", "5", "10"]);
        assert_eq!(marks(&Axis::within(-30.0, 110.0, plain)), ["0", "50", "100"]);
        assert_eq!(marks(&Axis::within(0.0, 0.9, plain)), ["0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!([0.3, 1.0, 2.1, 60.0].map(round_step), [0.5, 1.0, 5.0, 100.0]);
    }
}
