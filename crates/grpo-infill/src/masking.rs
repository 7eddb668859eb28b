//! What of a passage is masked or replaced.

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

/// One way to choose places of a passage, and to hide what stands there.
///
/// Ratios are parts of the passage's own characters: nothing is padded, so that a short passage counts as a long one does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Masking {
    /// Each place by itself, with a probability that is uniform between the two ratios, drawn for each passage. With
    /// both the same it is always that.
    Random {
        /// The least probability; 0 if not given.
        #[serde(default)]
        min_ratio: f64,
        /// The greatest probability.
        max_ratio: f64,
    },
    /// `max(1, ⌈ratio · length⌉)` places, one after another, each with a probability that is proportional to `p2` beside a
    /// place that is chosen already and to `p1` elsewhere. `p2 > p1` makes clumps, and `p2 = 0` isolated places, as
    /// long as there are any. Where all that is left has the weight 0, the next place is any of them.
    Sticky {
        /// The part of all places.
        ratio: f64,
        /// The weight of a place without a chosen neighbour.
        p1: f64,
        /// The weight of a place beside a chosen one.
        p2: f64,
        /// Draws the part of each passage anew: the larger of two numbers that are uniform below `ratio`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redrawn: bool,
    },
    /// The places of `spans` spans, each between two places drawn among all, the two among them: `2 · spans` places are
    /// drawn, sorted, and taken in pairs. All of them become MASK, whatever the corruption.
    Span {
        /// How many, from 1 to 10,000.
        spans: u32,
    },
    /// A part of the lines, at least one, each replaced by another whole line of the same split. For judges: there is
    /// nothing to fill in. The text may get shorter, or longer up to the length of a passage.
    Line {
        /// The least part of the lines.
        min_ratio: f64,
        /// The greatest part of the lines.
        max_ratio: f64,
    },
    /// Places as by [`Masking::Random`]; each run of them becomes random characters, MASK, or the characters of another
    /// passage of the same split, with these weights.
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
        /// The weight of another passage. There is none where split of the places or more are chosen, or in validation:
        /// the other two share its part.
        #[serde(default = "other_weight")]
        fragment: f64,
        /// How much likelier than another character the true one is among the random characters: it stays with the
        /// probability `m / (n − 1 + m)` of `n` characters.
        #[serde(default = "one")]
        original_multiplier: f64,
        /// Whether the loss counts at all places, and not only at those that were chosen.
        #[serde(default)]
        full_targets: bool,
    },
}

/// A passage as a model reads it, with the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedText {
    /// What the model reads: characters and MASK, nothing else.
    pub ids: Vec<u32>,
    /// The passage as it is in the text: as long as [`Self::ids`], but for [`Masking::Line`].
    pub original: Vec<u32>,
    /// Where the loss counts, for each of [`Self::ids`]; at least one. With [`Masking::Line`], what was replaced.
    pub is_target: Vec<bool>,
    /// The part of all places of [`Self::ids`] that were chosen.
    pub ratio: f64,
    /// Which stage of the plan it is from, counted from 0.
    pub stage: usize,
}

/// Far more than any passage has room for; each is two draws.
const MOST_SPANS: u32 = 10_000;

impl Masking {
    /// Checks the numbers; `key` is where they stand, for the message.
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
                wrong("min_ratio", min, "a number that is not above `max_ratio`")
            } else {
                Ok(())
            }
        };
        let weights = |weights: &[(&str, f64)]| match weights
            .iter()
            .find(|(_, weight)| !(weight.is_finite() && *weight >= 0.0))
        {
            Some((name, weight)) => wrong(name, *weight, "a number that is 0 or more"),
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
                    let expected = "a number above 0, or `mask` above 0: fragments alone are not to be had everywhere";
                    return wrong("random", random, expected);
                }
                Ok(())
            }
        }
    }

    /// Its name in a configuration.
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
