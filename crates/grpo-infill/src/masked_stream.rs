//! Endless batches of masked texts.

use crate::masking::{Draws, mask};
use crate::{Characters, MaskedText, Masking, MaskingPlan, PassageUnit, Passages, Split};
use grpo_data::{CounterRng, DataError, Purpose};
use std::sync::Arc;

/// Batches of masked texts, made on demand.
///
/// A batch is a function of seed, purpose, split, plan, index and size, so the stream has no state
/// to save: a run that resumes at step `n` requests batch `n`.
#[derive(Clone, Debug)]
pub struct MaskedStream {
    passages: Arc<Passages>,
    split: Split,
    plan: MaskingPlan,
    seed: u64,
    purpose: Purpose,
}

/// Attempts to mask something in a text.
const ATTEMPTS: u32 = 1000;

/// Separates the counters of this module; other users of the seed and purpose do not count this
/// far.
const STREAM: u32 = 0x4D53_0000;

impl MaskedStream {
    /// Creates the stream of a split.
    ///
    /// # Errors
    /// Returns an error if the plan replaces lines and passages do not consist of lines.
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

    /// Makes a text of each stage, to detect a plan that masks nothing before a run starts.
    ///
    /// # Errors
    /// As [`Self::batch`].
    pub fn checked(self) -> Result<Self, DataError> {
        self.batch(0, self.plan.stages().len())?;
        Ok(self)
    }

    /// Returns batch `index` with `size` texts, each with a target.
    ///
    /// The texts of all batches of this size take the stages in turn, so stages occur equally
    /// often, up to one; within a batch they are shuffled.
    ///
    /// # Errors
    /// Returns an error if a stage never masks anything, or if there are no other lines to insert.
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
            // A separate generator, because masking a text needs more coordinates than are left.
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

/// Training data of an infiller.
pub struct MaskedData {
    /// The vocabulary.
    pub characters: Characters,
    /// The training split.
    pub train: MaskedStream,
    /// The validation split; validations use its first batches.
    pub validation: MaskedStream,
}

impl MaskedData {
    /// Creates the streams of both splits of `passages`.
    ///
    /// # Errors
    /// Returns an error if a stage masks nothing or does not fit these passages.
    pub fn new(passages: &Arc<Passages>, plan: &MaskingPlan, seed: u64) -> Result<Self, DataError> {
        let stream = |split, purpose| {
            MaskedStream::new(passages.clone(), split, plan.clone(), seed, purpose)?.checked()
        };
        Ok(Self {
            characters: passages.characters().clone(),
            train: stream(Split::Train, Purpose::Masking)?,
            validation: stream(Split::Validation, Purpose::Evaluation)?,
        })
    }
}
