//! Masks and replaces characters in passages.

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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A strategy for selecting positions in a passage and masking or replacing the characters there.
///
/// Ratios are relative to the length of the passage, without padding. Short passages are therefore
/// treated like long ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Masking {
    /// Selects each position with the same probability. The probability is drawn uniformly between
    /// the two ratios for each passage.
    Random {
        /// Minimum probability. Defaults to 0.
        #[serde(default)]
        min_ratio: f64,
        /// Maximum probability.
        max_ratio: f64,
    },
    /// Selects `max(1, ⌈ratio · length⌉)` positions one at a time. Positions next to a selected one
    /// have weight `p2`, and all others have weight `p1`.
    ///
    /// With `p2 > p1`, positions form clusters. With `p2 = 0`, they are isolated as long as
    /// possible. If all remaining positions have weight 0, one of them is selected at random.
    Sticky {
        /// Fraction of positions to select.
        ratio: f64,
        /// Weight of a position with no selected neighbour.
        p1: f64,
        /// Weight of a position next to a selected one.
        p2: f64,
        /// Whether to draw the fraction for each passage, as the larger of two numbers distributed
        /// uniformly between 0 and `ratio`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redrawn: bool,
    },
    /// Selects contiguous spans. Their ends are obtained by drawing `2 · spans` positions, sorting
    /// them, and pairing them up; both ends are included. Selected characters always become MASK,
    /// regardless of the corruption.
    Span {
        /// Number of spans, from 1 to 10,000.
        spans: u32,
    },
    /// Replaces a fraction of the lines, but at least one, with other lines of the same split. The
    /// text may become shorter, or longer up to the maximum passage length.
    ///
    /// Only useful for judges, because there is nothing to fill.
    Line {
        /// Minimum fraction of lines.
        min_ratio: f64,
        /// Maximum fraction of lines.
        max_ratio: f64,
    },
    /// Selects positions like `random`. Each contiguous run of them is replaced with
    /// random characters, MASK, or the characters of another passage in the same split, according
    /// to the given weights.
    Replacement {
        /// Minimum probability of a position. Defaults to 0.
        #[serde(default)]
        min_ratio: f64,
        /// Maximum probability of a position.
        max_ratio: f64,
        /// Weight of random characters.
        #[serde(default = "random_weight")]
        random: f64,
        /// Weight of MASK.
        #[serde(default = "other_weight")]
        mask: f64,
        /// Weight of a fragment from another passage. It is treated as 0 during validation, and if
        /// at least half of the positions are selected.
        #[serde(default = "other_weight")]
        fragment: f64,
        /// Relative weight of the correct character among the random characters. With n characters
        /// and the weight m, it is kept with probability `m / (n − 1 + m)`.
        #[serde(default = "one")]
        original_multiplier: f64,
        /// Whether all positions contribute to the loss instead of only the selected ones.
        #[serde(default)]
        full_targets: bool,
    },
}

/// A masked passage along with the original.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedText {
    /// Model input, consisting of characters and MASK.
    pub ids: Vec<u32>,
    /// Original passage. It has the same length as [`Self::ids`], except with [`Masking::Line`].
    pub original: Vec<u32>,
    /// For each of [`Self::ids`], whether it contributes to the loss. At least one does. With
    /// [`Masking::Line`], marks the replaced characters.
    pub is_target: Vec<bool>,
    /// Fraction of [`Self::ids`] that was selected.
    pub ratio: f64,
    /// Index of the stage in the plan.
    pub stage: usize,
}

/// Maximum number of spans, far more than any passage needs. Each takes two random draws.
const MOST_SPANS: u32 = 10_000;

impl Masking {
    /// Validates the settings. `key` is the prefix used in error messages.
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

    /// Returns the name used in configuration files.
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
