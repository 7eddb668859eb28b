//! Selects the blanks to remask.

use crate::infilling::refused;
use crate::masking::part_of;
use clap::ValueEnum;
use grpo_rollout::RolloutError;

/// The fraction of blanks to remask after each iteration except the last.
#[derive(Clone, Debug, PartialEq)]
pub enum RemaskSchedule {
    /// Ratios that change linearly between the two ends, both inclusive. If only one ratio is
    /// needed, it is `from`.
    Linear {
        /// First ratio, between 0 and 1.
        from: f64,
        /// Last ratio, between 0 and 1.
        to: f64,
    },
    /// Explicit ratios, each between 0 and 1.
    List(Vec<f64>),
}

impl RemaskSchedule {
    /// Checks the ratios, and that their number matches the iterations.
    pub(super) fn check(&self, iterations: usize) -> Result<(), RolloutError> {
        match self {
            Self::Linear { from, to } => {
                check_part("the first remasking ratio", *from)?;
                check_part("the last remasking ratio", *to)
            }
            Self::List(ratios) => {
                if ratios.len() + 1 != iterations {
                    let found = ratios.len();
                    return Err(refused(format!(
                        "{found} remasking ratios do not match {iterations} iterations; expected one fewer"
                    )));
                }
                ratios.iter().try_for_each(|&ratio| check_part("a remasking ratio", ratio))
            }
        }
    }

    /// Returns the ratio after the iteration with zero-based index `time`.
    pub(super) fn ratio(&self, time: usize, iterations: usize) -> f64 {
        match self {
            Self::Linear { from, .. } if iterations <= 2 => *from,
            Self::Linear { from, to } => {
                let part = time as f64 / (iterations - 2) as f64;
                // This form makes the last value exactly `to`.
                from * (1.0 - part) + to * part
            }
            Self::List(ratios) => ratios[time],
        }
    }

    /// Returns whether all later ratios are at most the one at `time`.
    pub(super) fn only_falls_from(&self, time: usize, iterations: usize) -> bool {
        let now = self.ratio(time, iterations);
        (time + 1..iterations - 1).all(|later| self.ratio(later, iterations) <= now)
    }
}

/// How a ratio determines the blanks to remask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RemaskRule {
    /// Remasks this fraction of the blanks (rounded down), starting with the most likely errors.
    #[value(help = "That fraction of the blanks, starting with the likeliest errors")]
    Ratio,
    /// Remasks all blanks with an error probability above 1 − ratio. There may be none.
    #[value(help = "All blanks with an error estimate above 1 − ratio")]
    Threshold,
}

impl RemaskRule {
    /// Returns the blanks to remask, given the error probability of each blank.
    pub(super) fn choose(self, wrongness: &[f64], ratio: f64) -> Vec<usize> {
        let blanks = 0..wrongness.len();
        match self {
            Self::Ratio => {
                let mut order: Vec<usize> = blanks.collect();
                // The sort is stable, so the first of equal blanks is selected.
                order.sort_by(|&a, &b| wrongness[b].total_cmp(&wrongness[a]));
                order.truncate(part_of(wrongness.len(), ratio));
                order
            }
            Self::Threshold => blanks.filter(|&blank| wrongness[blank] > 1.0 - ratio).collect(),
        }
    }
}

/// Checks that `value` is between 0 and 1.
pub(super) fn check_part(name: &str, value: f64) -> Result<(), RolloutError> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(refused(format!("{name} of {value} is out of range; expected 0 to 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_schedule_reaches_both_of_its_ends() {
        let ratios = |iterations: usize| -> Vec<f64> {
            let schedule = RemaskSchedule::Linear { from: 0.95, to: 0.05 };
            (0..iterations - 1).map(|time| schedule.ratio(time, iterations)).collect()
        };
        assert_eq!(ratios(2), [0.95]);
        assert_eq!(ratios(3), [0.95, 0.05]);
        assert_eq!(ratios(4), [0.95, 0.5, 0.05]);
        let of_15 = ratios(15);
        assert_eq!((of_15.len(), of_15[0], of_15[13]), (14, 0.95, 0.05));
        assert!(of_15.windows(2).all(|pair| (pair[0] - pair[1] - 0.9 / 13.0).abs() < 1e-12));
    }

    #[test]
    fn a_list_is_taken_as_it_is() {
        let schedule = RemaskSchedule::List(vec![0.1, 0.9]);
        assert_eq!([schedule.ratio(0, 3), schedule.ratio(1, 3)], [0.1, 0.9]);
        assert!(schedule.check(3).is_ok());
    }

    #[test]
    fn the_most_wrong_are_chosen() {
        let wrongness = [0.2, 0.9, 0.5, 0.9, 0.1];
        let ratio = |ratio| RemaskRule::Ratio.choose(&wrongness, ratio);
        assert!(ratio(0.19).is_empty());
        assert_eq!(ratio(0.2), [1]); // the first of equal values
        assert_eq!(ratio(0.79), [1, 3, 2]);
        assert_eq!(ratio(1.0), [1, 3, 2, 0, 4]);
        for (ratio, len, part) in [(0.29, 100, 29), (0.7, 90, 63), (0.07, 100, 7), (0.999, 10, 9)] {
            let chosen = RemaskRule::Ratio.choose(&vec![0.5; len], ratio);
            assert_eq!(chosen.len(), part, "{ratio} of {len}");
        }
        let threshold = |ratio| RemaskRule::Threshold.choose(&wrongness, ratio);
        assert_eq!(threshold(0.5), [1, 3]); // 0.5 is not above 1 − 0.5
        assert_eq!(threshold(0.51), [1, 2, 3]);
        assert!(threshold(0.0).is_empty());
        assert_eq!(threshold(1.0), [0, 1, 2, 3, 4]);
    }
}
