//! Alternative hypotheses, and which values of a metric are better.

use serde::{Deserialize, Serialize};

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// For example Pass@k or ROUGE-L.
    HigherIsBetter,
    /// For example self-BLEU or perplexity.
    LowerIsBetter,
}

impl Direction {
    /// Returns the value with a sign such that higher is better.
    pub fn oriented(self, value: f64) -> f64 {
        match self {
            Self::HigherIsBetter => value,
            Self::LowerIsBetter => -value,
        }
    }
}

/// The alternative hypothesis of a test, for the first sample compared with the second one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alternative {
    /// The samples differ.
    #[default]
    TwoSided,
    /// The first sample has larger values.
    Greater,
    /// The first sample has smaller values.
    Less,
}

impl Alternative {
    /// Returns the one-sided alternative that the first sample is better.
    pub fn improvement(direction: Direction) -> Self {
        match direction {
            Direction::HigherIsBetter => Self::Greater,
            Direction::LowerIsBetter => Self::Less,
        }
    }

    /// Returns the p-value, given the probabilities of a statistic at least as large (`upper`) and
    /// at most as large (`lower`) as the observed one.
    pub(super) fn p_value(self, upper: f64, lower: f64) -> f64 {
        let p_value = match self {
            Self::TwoSided => 2.0 * upper.min(lower),
            Self::Greater => upper,
            Self::Less => lower,
        };
        p_value.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_decides_which_side_is_an_improvement() {
        assert_eq!(Alternative::improvement(Direction::HigherIsBetter), Alternative::Greater);
        assert_eq!(Alternative::improvement(Direction::LowerIsBetter), Alternative::Less);
        assert_eq!(Direction::LowerIsBetter.oriented(0.3), -0.3);
        assert_eq!(Alternative::TwoSided.p_value(0.2, 0.9), 0.4);
        assert_eq!(Alternative::TwoSided.p_value(0.7, 0.6), 1.0);
        assert_eq!(Alternative::Greater.p_value(0.2, 0.9), 0.2);
        assert_eq!(Alternative::Less.p_value(0.2, 0.9), 0.9);
    }
}
