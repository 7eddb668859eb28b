//! Infinite streams of masked texts.

use crate::masking::{Draws, mask};
use crate::{Characters, MaskedText, Masking, MaskingPlan, PassageUnit, Passages, Split};
use grpo_data::{CounterRng, DataError, Purpose};
use std::sync::Arc;

/// Passages and masks for masked-language-model training.
pub const MASKING: Purpose = Purpose::new(9);

/// Masks for GRPO prompts, which are independent of the masks in pre-training.
pub const MASKED_PROMPTS: Purpose = Purpose::new(10);

/// An infinite stream of batches of masked text, generated on demand.
///
/// A batch depends only on the seed, purpose, split, plan, index and size. The stream has no state
/// to save: a run that resumes at step `n` simply requests batch `n`.
#[derive(Clone, Debug)]
pub struct MaskedStream {
    passages: Arc<Passages>,
    split: Split,
    plan: MaskingPlan,
    seed: u64,
    purpose: Purpose,
}

/// Maximum number of attempts to mask a text.
const ATTEMPTS: u32 = 1000;

/// Separates the counters used here from other uses of the same seed and purpose, which stay below
/// this value.
const STREAM: u32 = 0x4D53_0000;

impl MaskedStream {
    /// Creates a stream for a split.
    ///
    /// # Errors
    /// Returns an error if the plan replaces lines but the passages are not made of lines.
    pub fn new(
        passages: Arc<Passages>,
        split: Split,
        plan: MaskingPlan,
        seed: u64,
        purpose: Purpose,
    ) -> Result<Self, DataError> {
        let unit = passages.options().unit;
        let replaces = |stage: &Masking| matches!(stage, Masking::Line { .. });
        match plan.stages().iter().position(replaces) {
            Some(stage) if unit != PassageUnit::Lines => Err(DataError::Invalid(format!(
                "stage {stage} of the masking, `line`, replaces whole lines, but passages with `unit` = {:?} have none; use `unit` = \"lines\", or remove the stage",
                unit.name()
            ))),
            _ => Ok(Self { passages, split, plan, seed, purpose }),
        }
    }

    /// Returns the passages.
    pub fn passages(&self) -> &Passages {
        &self.passages
    }

    /// Returns the plan.
    pub fn plan(&self) -> &MaskingPlan {
        &self.plan
    }

    /// Generates a text for each stage. This detects plans that mask nothing before a run starts.
    ///
    /// # Errors
    /// See [`Self::batch`].
    pub fn checked(self) -> Result<Self, DataError> {
        self.batch(0, self.plan.stages().len())?;
        Ok(self)
    }

    /// Generates the batch at `index` with `size` texts. Each text has at least one target.
    ///
    /// Across batches of the same size, texts cycle through the stages, so that all stages are used
    /// equally often. The order within a batch is shuffled.
    ///
    /// # Errors
    /// Returns an error if a stage masks nothing after many attempts, or if there are no other
    /// lines to insert.
    pub fn batch(&self, index: u64, size: usize) -> Result<Vec<MaskedText>, DataError> {
        let rng = CounterRng::new(self.seed, self.purpose);
        let counter = |i: usize, what: u32| {
            [index as u32, (index >> 32) as u32, i as u32, STREAM | what << 8 | self.split as u32]
        };
        let stages = self.plan.stages().len();
        let before = index as u128 * size as u128;
        let mut texts = Vec::with_capacity(size);
        for i in 0..size {
            let stage = ((before + i as u128) % stages as u128) as usize;
            let [a, b, _, _] = rng.bits(counter(i, 0));
            // Use a separate generator, because masking a text needs more coordinates than remain
            // here.
            let own = CounterRng::new(u64::from(a) | u64::from(b) << 32, self.purpose);
            texts.push(self.text(stage, own)?);
        }
        for i in (1..size).rev() {
            let j = rng.below(counter(i, 1), i as u64 + 1);
            texts.swap(i, j as usize);
        }
        Ok(texts)
    }

    fn text(&self, stage: usize, rng: CounterRng) -> Result<MaskedText, DataError> {
        let masking = &self.plan.stages()[stage];
        for attempt in 0..ATTEMPTS {
            let draws = Draws { rng, attempt };
            let corruption = self.plan.corruption();
            let text = mask(masking, corruption, stage, &self.passages, self.split, &draws);
            if text.is_target.contains(&true) {
                return Ok(text);
            }
        }
        Err(DataError::Invalid(match masking {
            Masking::Line { .. } => format!(
                "stage {stage} of the masking, `line`, found no different line in {ATTEMPTS} consecutive passages: all lines of this split are equal; provide a text with different lines, or remove the stage"
            ),
            _ => format!(
                "stage {stage} of the masking, `{}`, masked nothing in {ATTEMPTS} consecutive passages; increase its ratio",
                masking.name()
            ),
        }))
    }
}

/// Training data for an infiller.
pub struct MaskedData {
    /// The vocabulary.
    pub characters: Characters,
    /// The training split.
    pub train: MaskedStream,
    /// The validation split. Each validation uses its first batches.
    pub validation: MaskedStream,
}

impl MaskedData {
    /// Creates streams for both splits of `passages`.
    ///
    /// # Errors
    /// Returns an error if a stage masks nothing or doesn't support these passages.
    pub fn new(passages: &Arc<Passages>, plan: &MaskingPlan, seed: u64) -> Result<Self, DataError> {
        let stream = |split, purpose| {
            MaskedStream::new(passages.clone(), split, plan.clone(), seed, purpose)?.checked()
        };
        Ok(Self {
            characters: passages.characters().clone(),
            train: stream(Split::Train, MASKING)?,
            validation: stream(Split::Validation, Purpose::EVALUATION)?,
        })
    }
}
