//! How long completions are, where they are not all of full length.

use grpo_data::{CounterRng, Purpose};

/// The longest that is drawn.
pub(crate) const LONGEST: usize = 256;

/// How long the completions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// Drawn from 8 to 256, each as likely as the other.
    Ragged,
    /// As many tokens in all, the same for each completion, or one more.
    Equal,
}

impl Lengths {
    /// Of so many completions.
    pub(crate) fn of(self, completions: usize) -> Vec<usize> {
        let rng = CounterRng::new(3, Purpose::Evaluation);
        let drawn = |i: usize| 8 + rng.below([i as u32, 0, 0, 0], 249) as usize;
        let ragged: Vec<usize> = (0..completions).map(drawn).collect();
        match self {
            Self::Ragged => ragged,
            Self::Equal => {
                let total: usize = ragged.iter().sum();
                let one_more = total % completions;
                (0..completions).map(|i| total / completions + usize::from(i < one_more)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lengths_have_the_same_total() {
        let ragged = Lengths::Ragged.of(64);
        let equal = Lengths::Equal.of(64);
        assert_eq!(ragged.iter().sum::<usize>(), equal.iter().sum::<usize>());
        assert!(ragged.iter().all(|length| (8..=LONGEST).contains(length)), "{ragged:?}");
        assert!(ragged.iter().max().unwrap() > &240 && ragged.iter().min().unwrap() < &24);
        assert!(equal.iter().max().unwrap() - equal.iter().min().unwrap() <= 1);
    }
}
