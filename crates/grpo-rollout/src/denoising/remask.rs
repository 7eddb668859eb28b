//! Which blanks are blanked again.

use crate::RolloutError;

/// Ratios of the times that blanks are blanked again: one fewer than there are iterations.
#[derive(Clone, Debug, PartialEq)]
pub enum RemaskSchedule {
    /// From the first to the last in equal steps, both of them reached; the first alone where there is one time.
    Linear {
        /// The first ratio, 0 to 1.
        from: f64,
        /// The last ratio, 0 to 1.
        to: f64,
    },
    /// Each, 0 to 1.
    List(Vec<f64>),
}

impl RemaskSchedule {
    /// Whether it fits so many iterations.
    pub(super) fn check(&self, iterations: usize) -> Result<(), RolloutError> {
        match self {
            Self::Linear { from, to } => {
                check_part("the first remasking ratio", *from)?;
                check_part("the last remasking ratio", *to)
            }
            Self::List(ratios) => {
                if ratios.len() + 1 != iterations {
                    return Err(RolloutError::Schedule { ratios: ratios.len(), iterations });
                }
                ratios.iter().try_for_each(|&ratio| check_part("a remasking ratio", ratio))
            }
        }
    }

    /// The ratio of time `time`, from 0, of `iterations - 1`.
    pub(super) fn ratio(&self, time: usize, iterations: usize) -> f64 {
        match self {
            Self::Linear { from, .. } if iterations <= 2 => *from,
            Self::Linear { from, to } => from + (to - from) * time as f64 / (iterations - 2) as f64,
            Self::List(ratios) => ratios[time],
        }
    }
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemaskRule {
    /// That part of the blanks, rounded down: the most wrong ones.
    Ratio,
    /// Every blank whose wrongness is above 1 − ratio. Where there is none, the text is finished.
    Threshold,
}

impl RemaskRule {
    /// Which of the blanks, given how wrong each is.
    pub(super) fn choose(self, wrongness: &[f64], ratio: f64) -> Vec<usize> {
        let blanks = 0..wrongness.len();
        match self {
            Self::Ratio => {
                let count = (wrongness.len() as f64 * ratio) as usize;
                let mut order: Vec<usize> = blanks.collect();
                // Stable: of equal ones the first.
                order.sort_by(|&a, &b| wrongness[b].total_cmp(&wrongness[a]));
                order.truncate(count);
                order
            }
            Self::Threshold => blanks.filter(|&blank| wrongness[blank] > 1.0 - ratio).collect(),
        }
    }
}

/// Whether `value` is 0 to 1.
pub(super) fn check_part(name: &'static str, value: f64) -> Result<(), RolloutError> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(RolloutError::NoPart { name, value }),
    }
}
