//! Training examples for judges: texts partially replaced by an infiller, labelled with the
//! replaced fraction.

use std::sync::Arc;

use crate::prepared_batches::PreparedBatches;
use crate::{MaskedStream, Passages};
use burn::tensor::Tensor;
use grpo_data::{CounterRng, Purpose};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::SamplingDistribution;
use grpo_model::{Frozen, TokenBatch, Transformer};

use super::config::JudgeConfig;
use crate::fill::{Blank, draw_blanks};
use grpo_train::{TrainError, by_tokens, distribution_fault};

/// Judge training data.
pub struct JudgeData {
    /// Source of the texts.
    pub passages: Arc<Passages>,
    /// Masked texts from the training split.
    pub train: MaskedStream,
    /// Infiller that fills the blanks.
    pub infiller: Frozen<Transformer>,
}

impl JudgeData {
    /// Checks the settings against the data.
    ///
    /// # Errors
    /// Returns an error if the fill settings don't match the vocabulary.
    pub fn check(&self, config: &JudgeConfig) -> Result<(), TrainError> {
        JudgeExamples::new(self, config, 0).map(drop)
    }
}

/// Input of a judge, without CLS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) ids: Vec<u32>,
    /// Fraction of characters that were replaced. It includes characters sampled by the infiller
    /// that happen to equal the original, and replaced lines.
    pub(super) ratio: f64,
}

/// Generates the training texts of each step. They depend only on the seed and the step.
pub(super) struct JudgeExamples<'a> {
    pub(super) data: &'a JudgeData,
    batches: PreparedBatches,
    natural_share: f64,
    distribution: SamplingDistribution,
    micro_batch_tokens: Option<usize>,
    /// Decides which texts stay unmodified.
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
            batches: PreparedBatches::new(data.train.clone()),
            natural_share: config.natural_share,
            distribution: settings
                .checked(characters.len())
                .map_err(|fault| distribution_fault("fill", &fault))?,
            micro_batch_tokens: config.steps.micro_batch_tokens,
            natural: CounterRng::new(seed, Purpose::AUGMENTATION),
            drawn: CounterRng::new(seed, Purpose::SAMPLING),
        })
    }

    /// Generates `size` texts for a step.
    pub(super) fn batch(&self, step: u64, size: usize) -> Result<Vec<Judged>, TrainError> {
        let masked = self.batches.batch(step, size)?;
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

    /// Fills all blanks in `texts`, using a single pass for each text.
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
            let hidden = infiller.hidden(&batch);
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

#[cfg(test)]
mod tests {

    use crate::InfillerConfig;
    use crate::{
        Corruption, FillSettings, MASKING, Masking, MaskingPlan, PassageOptions, PassageUnit, Split,
    };
    use burn::tensor::Device;
    use grpo_logprob::SamplingSettings;

    use super::*;

    const LENGTH: usize = 30;

    /// Returns lines of very different lengths and an untrained infiller.
    fn data() -> JudgeData {
        let line = |i: usize| "abcde".chars().cycle().skip(i).take(2 + i % 20).collect::<String>();
        let text: Vec<String> =
            (0..200).map(|i| format!("{}{}", line(i), "f".repeat(i / 20))).collect();
        let options = PassageOptions {
            file: "text".into(),
            length: LENGTH,
            unit: PassageUnit::Line,
            validation_fraction: 0.2,
        };
        let passages = Passages::from_text(&text.join("\n"), &options, None).unwrap();
        let passages = Arc::new(passages);
        let stages = vec![Masking::Random { min_ratio: 0.1, max_ratio: 0.9 }];
        let plan = MaskingPlan::new(stages, Corruption::None).unwrap();
        let train = MaskedStream::new(passages.clone(), Split::Train, plan, 1, MASKING);
        let sizes = InfillerConfig::new(passages.characters().len(), LENGTH, 1, 2, 8);
        let config = sizes.infiller().unwrap();
        let infiller = Transformer::random(&config, 1, &Device::flex().autodiff()).unwrap();
        JudgeData { passages, train: train.unwrap(), infiller: Frozen::snapshot(&infiller) }
    }

    fn examples(data: &JudgeData, micro_batch_tokens: Option<usize>) -> JudgeExamples<'_> {
        let vocabulary = data.passages.characters().len();
        let mut settings = FillSettings::default().settings();
        settings.forbidden = data.passages.characters().specials().to_vec();
        JudgeExamples {
            data,
            batches: PreparedBatches::new(data.train.clone()),
            natural_share: 0.3,
            distribution: settings.checked(vocabulary).unwrap(),
            micro_batch_tokens,
            natural: CounterRng::new(1, Purpose::AUGMENTATION),
            drawn: CounterRng::new(1, Purpose::SAMPLING),
        }
    }

    #[test]
    fn a_ratio_is_a_part_of_the_texts_own_characters() {
        let data = data();
        let texts = examples(&data, None).batch(0, 64).unwrap();
        let masked = data.train.batch(0, 64).unwrap();
        let mask = data.passages.characters().mask_id();
        let mut natural = 0;
        for (text, masked) in texts.iter().zip(&masked) {
            let blanks = masked.ids.iter().filter(|&&id| id == mask).count();
            if text.ratio == 0.0 {
                natural += 1;
                assert_eq!(text.ids, masked.original);
                continue;
            }
            // The ratio is relative to this text, not to the maximum length.
            assert_eq!(text.ratio, blanks as f64 / masked.original.len() as f64);
            for (place, (&id, &before)) in text.ids.iter().zip(&masked.ids).enumerate() {
                assert!(before == mask || id == before, "position {place} was not a blank");
            }
        }
        // Five standard errors of a proportion of 0.3 in 64 texts.
        assert!((natural as f64 / 64.0 - 0.3).abs() < 5.0 * (0.21_f64 / 64.0).sqrt(), "{natural}");
        let lengths = texts.iter().map(|text| text.ids.len());
        assert!(lengths.clone().max().unwrap() > 2 * lengths.min().unwrap());
    }

    #[test]
    fn every_blank_becomes_a_character() {
        let data = data();
        let base = data.passages.characters().base_len() as u32;
        for step in 0..5 {
            for text in examples(&data, None).batch(step, 32).unwrap() {
                assert!(text.ids.iter().all(|&id| id < base), "{text:?}");
            }
        }
    }

    #[test]
    fn texts_are_a_function_of_the_step_and_not_of_how_they_are_computed() {
        let data = data();
        let whole = examples(&data, None).batch(3, 32).unwrap();
        assert_eq!(whole, examples(&data, Some(20)).batch(3, 32).unwrap());
        assert_ne!(whole, examples(&data, None).batch(4, 32).unwrap());
    }

    #[test]
    fn the_likeliest_characters_alone_are_drawn() {
        let data = data();
        let mut one = examples(&data, None);
        let settings = SamplingSettings {
            forbidden: data.passages.characters().specials().to_vec(),
            ..FillSettings { top_k: 1, ..FillSettings::default() }.settings()
        };
        one.distribution = settings.checked(data.passages.characters().len()).unwrap();
        let first = one.batch(0, 16).unwrap();
        one.drawn = CounterRng::new(2, Purpose::SAMPLING);
        assert_eq!(first, one.batch(0, 16).unwrap(), "there is one character to draw");
        let mut all = examples(&data, None);
        let first = all.batch(0, 16).unwrap();
        all.drawn = CounterRng::new(2, Purpose::SAMPLING);
        assert_ne!(first, all.batch(0, 16).unwrap());
    }
}
