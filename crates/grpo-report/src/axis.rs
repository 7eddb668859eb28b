//! Axes of charts: ranges, positions of labels and number formats.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// What a horizontal axis shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Horizontal {
    /// Whole numbers, from the first to the last.
    #[default]
    Steps,
    /// Numbers with a margin around the data.
    Numbers,
    /// Numbers from the lowest to the highest, without a margin.
    Bins,
    /// Labels at given positions.
    Labels(Vec<(f64, String)>),
}

impl Horizontal {
    /// Returns the axis of values between `low` and `high`.
    pub(crate) fn axis(&self, (low, high): (f64, f64)) -> Axis {
        let range = match self {
            // A single step needs a range as well.
            Self::Steps if high - low < 0.5 => low - 0.5..high + 0.5,
            Self::Steps => low..high,
            Self::Bins if high > low => low..high,
            Self::Bins | Self::Numbers | Self::Labels(_) => {
                let margin = margin((low, high));
                low - margin..high + margin
            }
        };
        let ticks = Ticks::of(&range);
        Axis { range, ticks, labels: self.clone() }
    }
}

/// Returns the space around values between `low` and `high`, which is positive for equal values too.
pub(crate) fn margin((low, high): (f64, f64)) -> f64 {
    let is_flat = high - low <= 1e-12 * high.abs().max(low.abs());
    if is_flat { (0.1 * high.abs()).max(1e-3) } else { 0.06 * (high - low) }
}

/// A horizontal axis.
pub(crate) struct Axis {
    range: Range<f64>,
    ticks: Ticks,
    labels: Horizontal,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if let Horizontal::Labels(labels) = &self.labels {
            return labels.iter().map(|(position, _)| *position).collect();
        }
        let most = hint.max_num_points().max(2) as f64;
        let apart = (self.range.end - self.range.start) / most;
        let apart = if self.labels == Horizontal::Steps { apart.max(1.0) } else { apart };
        let ten = 10f64.powf(apart.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * ten);
        let apart = steps.into_iter().find(|step| *step >= apart).unwrap_or(10.0 * ten);
        let first = (self.range.start / apart).ceil() as i64;
        let points = (first..).map(|i| i as f64 * apart);
        points.take_while(|point| *point <= self.range.end).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        match &self.labels {
            Horizontal::Steps => format!("{value:.0}"),
            Horizontal::Numbers | Horizontal::Bins => self.ticks.text(*value),
            Horizontal::Labels(labels) => {
                let label = labels.iter().find(|(position, _)| position == value);
                label.map_or_else(String::new, |(_, text)| text.clone())
            }
        }
    }
}

/// Number format of an axis.
pub(crate) struct Ticks {
    decimals: usize,
    scientific: bool,
    longest: usize,
    /// Absolute values below this are displayed as 0.
    zero: f64,
}

impl Ticks {
    pub(crate) fn of(range: &Range<f64>) -> Self {
        let largest = range.start.abs().max(range.end.abs());
        let apart = (range.end - range.start) / 5.0;
        let scientific = !(1e-3..1e6).contains(&largest);
        let decimals = (-apart.log10()).ceil().clamp(0.0, 8.0) as usize;
        let mut ticks = Self { decimals, scientific, longest: 0, zero: 1e-6 * apart };
        ticks.longest = ticks.text(range.start).len().max(ticks.text(range.end).len());
        ticks
    }

    pub(crate) fn text(&self, value: f64) -> String {
        if value.abs() < self.zero {
            return "0".to_owned();
        }
        if self.scientific { format!("{value:.1e}") } else { format!("{value:.*}", self.decimals) }
    }

    /// Returns the width reserved for the labels, in pixels.
    pub(crate) fn width(&self) -> u32 {
        (self.longest as u32 * 9 + 10).max(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Most(usize);

    impl KeyPointHint for Most {
        fn max_num_points(&self) -> usize {
            self.0
        }
        fn weight(&self) -> plotters::coord::ranged1d::KeyPointWeight {
            plotters::coord::ranged1d::KeyPointWeight::Any
        }
        fn bold_points(&self) -> usize {
            self.0
        }
    }

    fn labels(kind: Horizontal, low: f64, high: f64) -> Vec<String> {
        let axis = kind.axis((low, high));
        axis.key_points(Most(6)).iter().map(|value| axis.format_ext(value)).collect()
    }

    #[test]
    fn labels_are_round_numbers_in_the_range() {
        assert_eq!(labels(Horizontal::Steps, 1.0, 40.0), ["10", "20", "30", "40"]);
        assert_eq!(labels(Horizontal::Steps, 3.0, 3.0), ["3"]);
        assert_eq!(labels(Horizontal::Bins, 0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(Horizontal::Numbers, 0.31, 0.34), ["0.310", "0.320", "0.330", "0.340"]);
        assert!(!labels(Horizontal::Numbers, 0.5, 0.5).is_empty(), "equal values have a range");
        let given = vec![(0.0, "1".to_owned()), (2.0, "ten".to_owned())];
        assert_eq!(labels(Horizontal::Labels(given), 0.0, 2.0), ["1", "ten"]);
    }
}
