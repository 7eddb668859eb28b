//! Masking and replacement of characters in passages.

mod apply;
mod choose;
mod draws;
mod lines;
mod part;
mod plan;

pub use plan::{Corruption, MaskingPlan, MaskingPreset};

pub(crate) use part::part_of;

pub(crate) use apply::mask;
pub(crate) use draws::{Draw, Draws};

use grpo_data::DataError;
use serde::{Deserialize, Serialize};

/// A way to choose positions of a passage and to hide their characters.
///
/// Ratios are fractions of the passage's own characters, without padding, so short passages count
/// like long ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Masking {
    /// Each position with the same probability, which is drawn for each passage uniformly between
    /// the two ratios.
    Random {
        /// The least probability; 0 if not given.
        #[serde(default)]
        min_ratio: f64,
        /// The greatest probability.
        max_ratio: f64,
    },
    /// `max(1, ⌈ratio · length⌉)` positions, one after another, each with a probability
    /// proportional to `p2` next to a chosen position and to `p1` elsewhere. `p2 > p1` makes
    /// clumps, and `p2 = 0` isolated positions while there are any. If all remaining positions have
    /// weight 0, any of them is chosen.
    Sticky {
        /// The fraction of positions.
        ratio: f64,
        /// The weight of a position without a chosen neighbour.
        p1: f64,
        /// The weight of a position next to a chosen one.
        p2: f64,
        /// Whether to draw the fraction for each passage: the larger of two numbers uniform below
        /// `ratio`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redrawn: bool,
    },
    /// The positions of `spans` spans, including both ends: `2 · spans` positions are drawn, sorted
    /// and paired. All become MASK, regardless of the corruption.
    Span {
        /// Number of spans, from 1 to 10,000.
        spans: u32,
    },
    /// A fraction of the lines, at least one, each replaced by another whole line of the same
    /// split. For judges only, because nothing can be filled. The text may become shorter, or
    /// longer up to the length of a passage.
    Line {
        /// The least part of the lines.
        min_ratio: f64,
        /// The greatest part of the lines.
        max_ratio: f64,
    },
    /// Positions as in [`Masking::Random`]; each run of them becomes random characters, MASK, or
    /// the characters of another passage of the same split, with these weights.
    Replacement {
        /// The least probability of a place; 0 if not given.
        #[serde(default)]
        min_ratio: f64,
        /// The greatest probability of a place.
        max_ratio: f64,
        /// The weight of random characters.
        #[serde(default = "random_weight")]
        random: f64,
        /// The weight of MASK.
        #[serde(default = "other_weight")]
        mask: f64,
        /// The weight of another passage; 0 if half of the positions or more are chosen, or in
        /// validation, where the other two share its part.
        #[serde(default = "other_weight")]
        fragment: f64,
        /// How much more probable the true character is than another among random characters: it is
        /// kept with probability `m / (n − 1 + m)` of `n` characters.
        #[serde(default = "one")]
        original_multiplier: f64,
        /// Whether the loss counts at all positions instead of the chosen ones.
        #[serde(default)]
        full_targets: bool,
    },
}

/// A masked passage and the original.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedText {
    /// Input of the model: characters and MASK.
    pub ids: Vec<u32>,
    /// The original passage, as long as [`Self::ids`] except for [`Masking::Line`].
    pub original: Vec<u32>,
    /// Where the loss counts, for each of [`Self::ids`]; at least one. With [`Masking::Line`], the
    /// replaced characters.
    pub is_target: Vec<bool>,
    /// The fraction of chosen positions of [`Self::ids`].
    pub ratio: f64,
    /// Index of its stage in the plan.
    pub stage: usize,
}

/// Far more than any passage needs; each takes two draws.
const MOST_SPANS: u32 = 10_000;

impl Masking {
    /// Checks the numbers; `key` is the prefix of their keys.
    pub(crate) fn check(&self, key: &str) -> Result<(), DataError> {
        let wrong = |name: &str, found: f64, expected| {
            Err(DataError::setting(format_args!("{key}.{name}"), found, expected))
        };
        let ratios = |min: f64, max: f64| {
            if !(0.0..=1.0).contains(&min) {
                wrong("min_ratio", min, "a number from 0 to 1")
            } else if !(max > 0.0 && max <= 1.0) {
                wrong("max_ratio", max, "a number above 0 and at most 1")
            } else if min > max {
                wrong("min_ratio", min, "a number of at most `max_ratio`")
            } else {
                Ok(())
            }
        };
        let weights = |weights: &[(&str, f64)]| match weights
            .iter()
            .find(|(_, weight)| !(weight.is_finite() && *weight >= 0.0))
        {
            Some((name, weight)) => wrong(name, *weight, "a number of 0 or more"),
            None => Ok(()),
        };
        match *self {
            Self::Random { min_ratio, max_ratio } | Self::Line { min_ratio, max_ratio } => {
                ratios(min_ratio, max_ratio)
            }
            Self::Sticky { ratio, p1, p2, .. } => {
                if !(ratio > 0.0 && ratio <= 1.0) {
                    return wrong("ratio", ratio, "a number above 0 and at most 1");
                }
                weights(&[("p1", p1), ("p2", p2)])
            }
            Self::Span { spans: 1..=MOST_SPANS } => Ok(()),
            Self::Span { spans } => wrong("spans", spans.into(), "a whole number from 1 to 10000"),
            Self::Replacement {
                min_ratio,
                max_ratio,
                random,
                mask,
                fragment,
                original_multiplier,
                ..
            } => {
                ratios(min_ratio, max_ratio)?;
                weights(&[
                    ("random", random),
                    ("mask", mask),
                    ("fragment", fragment),
                    ("original_multiplier", original_multiplier),
                ])?;
                if random + mask == 0.0 {
                    let expected =
                        "a number above 0, or `mask` above 0, because not every text has fragments";
                    return wrong("random", random, expected);
                }
                Ok(())
            }
        }
    }

    /// Returns the name in configurations.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Random { .. } => "random",
            Self::Sticky { .. } => "sticky",
            Self::Span { .. } => "span",
            Self::Line { .. } => "line",
            Self::Replacement { .. } => "replacement",
        }
    }
}

fn random_weight() -> f64 {
    0.6
}

fn other_weight() -> f64 {
    0.2
}

fn one() -> f64 {
    1.0
}
