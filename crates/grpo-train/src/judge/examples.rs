//! What a judge learns from: texts of which an infiller has replaced a part, and how large a part.

use std::sync::Arc;

use burn::tensor::Tensor;
use grpo_data::{CounterRng, MaskedStream, Passages, Purpose};
use grpo_kernels::{gather_rows, indices};
use grpo_model::{Frozen, TokenBatch, Transformer};
use grpo_sampling::{SamplingDistribution, SamplingSettings};
use serde::{Deserialize, Serialize};

use crate::fill::{Blank, draw_blanks};
use crate::steps::by_tokens;
use crate::{JudgeConfig, TrainError};

/// What a judge is trained with.
pub struct JudgeData {
    /// The texts.
    pub passages: Arc<Passages>,
    /// The training half, with blanks.
    pub train: MaskedStream,
    /// Who fills the blanks.
    pub infiller: Frozen<Transformer>,
}

/// How the infiller fills the blanks that a judge learns from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FillSettings {
    /// Divides the logits.
    pub temperature: f32,
    /// The most probable characters that are drawn from.
    pub top_k: usize,
}

impl Default for FillSettings {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 50 }
    }
}

impl FillSettings {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        Ok(self.settings().check()?)
    }

    fn settings(&self) -> SamplingSettings {
        SamplingSettings {
            temperature: self.temperature,
            top_k: Some(self.top_k),
            ..SamplingSettings::default()
        }
    }
}

/// A text as a judge reads it, without CLS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) ids: Vec<u32>,
    /// Part of its characters that were replaced: by what the infiller drew, whether or not that is the author's
    /// character, or by another line. Of the text's own characters; PAD is none.
    pub(super) ratio: f64,
}

/// Training texts of each step, as a function of the seed and the step.
pub(super) struct JudgeExamples<'a> {
    pub(super) data: &'a JudgeData,
    natural_share: f64,
    distribution: SamplingDistribution,
    micro_batch_tokens: Option<usize>,
    /// Which texts stay as they are.
    natural: CounterRng,
    drawn: CounterRng,
}

impl<'a> JudgeExamples<'a> {
    pub(super) fn new(
        data: &'a JudgeData,
        config: &JudgeConfig,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let characters = data.passages.characters();
        let mut settings = config.fill.settings();
        settings.forbidden = characters.specials().to_vec();
        Ok(Self {
            data,
            natural_share: config.natural_share,
            distribution: settings.checked(characters.len())?,
            micro_batch_tokens: config.steps.micro_batch_tokens,
            natural: CounterRng::new(seed, Purpose::Augmentation),
            drawn: CounterRng::new(seed, Purpose::Sampling),
        })
    }

    /// The texts of step `step`.
    pub(super) fn batch(&self, step: u64, size: usize) -> Result<Vec<Judged>, TrainError> {
        let masked = self.data.train.batch(step, size)?;
        let is_natural = |text: usize| {
            let counter = [text as u32, 0, step as u32, (step >> 32) as u32];
            self.natural.uniform(counter) < self.natural_share
        };
        let texts = masked.into_iter().enumerate().map(|(index, text)| match is_natural(index) {
            true => Judged { ids: text.original, ratio: 0.0 },
            false => Judged { ids: text.ids, ratio: text.ratio },
        });
        let mut texts: Vec<Judged> = texts.collect();
        self.fill(&mut texts, step, &self.drawn)?;
        Ok(texts)
    }

    /// Puts a character into each blank of the texts of a step, all of a text from one pass.
    pub(super) fn fill(
        &self,
        texts: &mut [Judged],
        step: u64,
        rng: &CounterRng,
    ) -> Result<(), TrainError> {
        let mask = self.data.passages.characters().mask_id();
        let with_blanks: Vec<usize> =
            (0..texts.len()).filter(|&text| texts[text].ids.contains(&mask)).collect();
        let infiller = &self.data.infiller;
        for part in by_tokens(&with_blanks, self.micro_batch_tokens, |&text| texts[text].ids.len())
        {
            let batch: TokenBatch = part.iter().map(|&text| texts[text].ids.as_slice()).collect();
            if part.is_empty() {
                continue;
            }
            let (mut blanks, mut rows) = (Vec::new(), Vec::new());
            for (index, &text) in part.iter().enumerate() {
                for place in (0..texts[text].ids.len()).filter(|&i| texts[text].ids[i] == mask) {
                    blanks.push(Blank { step, text, place });
                    rows.push(batch.rows(index).start + place);
                }
            }
            let hidden = infiller.hidden(&batch, None);
            let hidden: Tensor<2> = gather_rows(hidden, indices(rows, &infiller.device()));
            let logits = infiller.logits(hidden);
            let drawn = draw_blanks(logits, &blanks, &self.distribution, rng)?;
            for (blank, id) in blanks.iter().zip(drawn) {
                texts[blank.text].ids[blank.place] = id;
            }
        }
        Ok(())
    }
}
