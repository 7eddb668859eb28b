//! Iterative infilling: fill all blanks, mask the least certain ones again, and repeat.
//!
//! With a single pass, each blank is filled without knowing what goes into the others. Refilled
//! blanks see most of the other characters, as in mask-predict (Ghazvininejad et al. 2019,
//! arXiv:1904.09324) and MaskGIT (Chang et al. 2022, arXiv:2202.04200).
//!
//! The result has no well-defined log-probability. To prevent training on it by mistake, it is a
//! [`Filled`] and not a [`Completion`](grpo_data::Completion).

mod critic;
mod remask;

use burn::tensor::Tensor;
use grpo_data::{Prompt, Purpose, SampleKey};
use grpo_logprob::SamplingDistribution;
use grpo_logprob::{Draw, NotFinite, draw_rows};
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::RolloutError;
use rayon::prelude::*;

use crate::infilling::{blank_logits, blanks, check_distribution};
pub use critic::Critic;
pub use remask::{RemaskRule, RemaskSchedule};

/// Iterative infilling settings. For defaults, see [`DenoisingSettings::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct DenoisingSettings {
    /// Number of completions per text.
    pub samples: usize,
    /// Number of iterations, at least 1. With 1, there is a single pass.
    pub iterations: usize,
    /// Ratio of remasked blanks after each iteration except the last.
    pub schedule: RemaskSchedule,
    /// How ratios are interpreted.
    pub rule: RemaskRule,
    /// Weight of randomness in the selection of blanks to remask, between 0 and 1.
    pub randomness: f64,
    /// Sampling distribution. It must forbid the mask ID, and it can't have a repetition penalty
    /// because blanks have no order.
    pub distribution: SamplingDistribution,
    /// ID of the mask token.
    pub mask_id: u32,
}

impl DenoisingSettings {
    /// Creates settings with 15 iterations, a remasking ratio that decreases from 95 % to 5 %, and
    /// a randomness of 0.2.
    pub fn new(samples: usize, distribution: SamplingDistribution, mask_id: u32) -> Self {
        Self {
            samples,
            iterations: 15,
            schedule: RemaskSchedule::Linear { from: 0.95, to: 0.05 },
            rule: RemaskRule::Ratio,
            randomness: 0.2,
            distribution,
            mask_id,
        }
    }
}

/// A function that estimates for each token of a filled text the probability that it is wrong.
pub type Wrongness<'a> = dyn Fn(&[u32]) -> Vec<f64> + Sync + 'a;

/// The criterion for remasking tokens.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// The token's probability when it was drawn. Unlikely tokens are remasked first.
    Probability,
    /// The estimate of a critic that reads the filled text. The critic can be part of the infiller
    /// or a different model.
    Critic(&'a Wrongness<'a>),
}

/// The quality measure for filled texts.
#[derive(Clone, Copy)]
pub enum Quality<'a> {
    /// Quality is not measured.
    None,
    /// Mean log-probability of the filled tokens at the time they were drawn.
    Own,
    /// A judge's score for the filled text.
    Judge(&'a (dyn Fn(&[u32]) -> f64 + Sync)),
}

/// A text whose blanks have all been filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// Token IDs of the entire text.
    pub ids: Vec<u32>,
    /// Positions of the original blanks, in ascending order.
    pub blanks: Vec<usize>,
    /// Log-probability of each filled token at the time it was drawn.
    pub logprobs: Vec<f32>,
    /// Number of iterations performed.
    pub iterations: usize,
    /// Quality of the text (see [`Quality`]), or `None` if it was not requested.
    pub quality: Option<f64>,
}

impl Filled {
    /// Returns the sum of the log-probabilities in nats.
    pub fn logprob(&self) -> f64 {
        self.logprobs.iter().map(|&logprob| f64::from(logprob)).sum()
    }

    /// Returns the mean log-probability in nats.
    pub fn mean_logprob(&self) -> f64 {
        self.logprob() / self.logprobs.len() as f64
    }
}

/// An iterative infilling engine.
#[derive(Clone, Debug)]
pub struct Denoising {
    settings: DenoisingSettings,
}

impl Denoising {
    /// Creates an engine after validating the settings against a model.
    ///
    /// # Errors
    /// Returns an error if the number of samples or iterations is 0, if a ratio or the randomness
    /// is not between 0 and 1, or if the schedule has the wrong length. The distribution is
    /// rejected if it allows the mask ID, has a repetition penalty, or has a different vocabulary
    /// size.
    pub fn new<M: LanguageModel>(
        settings: DenoisingSettings,
        model: &M,
    ) -> Result<Self, RolloutError> {
        for (name, value) in [("samples", settings.samples), ("iterations", settings.iterations)] {
            if value == 0 {
                return Err(RolloutError::Zero { name });
            }
        }
        settings.schedule.check(settings.iterations)?;
        remask::check_part("randomness", settings.randomness)?;
        check_distribution(&settings.distribution, settings.mask_id, model)?;
        Ok(Self { settings })
    }

    /// Fills the blanks of each text `samples` times. The IDs of a [`Prompt`] contain the entire
    /// text, with the mask ID at each blank.
    ///
    /// Each token is determined by the model, the seed, the purpose, and the iteration, text,
    /// sample and position. Texts are processed separately, so neither the other texts nor the
    /// number of threads affect the result.
    ///
    /// # Errors
    /// Returns an error if a text has no blanks, is too long or contains an invalid ID, or if
    /// logits are not finite.
    pub fn fill<M: LanguageModel>(
        &self,
        infiller: &Frozen<M>,
        texts: &[Prompt],
        trust: Trust<'_>,
        quality: Quality<'_>,
        seed: u64,
        purpose: Purpose,
    ) -> Result<Vec<Vec<Filled>>, RolloutError> {
        // Check all texts before filling any of them.
        let of_text = |text: &Prompt| blanks(infiller, text, self.settings.mask_id);
        let blanks = texts.iter().map(of_text).collect::<Result<Vec<_>, _>>()?;
        let fill = |(text, blanks): (&Prompt, &Vec<usize>)| {
            let task = Task { settings: &self.settings, infiller, trust, quality, purpose };
            task.text(text, blanks, seed)
        };
        texts.par_iter().zip(&blanks).map(fill).collect()
    }
}

struct Task<'a, M> {
    settings: &'a DenoisingSettings,
    infiller: &'a Frozen<M>,
    trust: Trust<'a>,
    quality: Quality<'a>,
    purpose: Purpose,
}

/// A text that is being filled.
struct Row<'a> {
    ids: Vec<u32>,
    /// Positions that may be filled and remasked.
    blanks: &'a [usize],
    /// Log-probability of the token in each blank.
    logprobs: Vec<f32>,
    /// Random number key. Its step is the iteration.
    key: SampleKey,
}

/// Offset of the random numbers used for remasking. Text positions are smaller.
const CHOICE: u32 = 1 << 31;

impl<M: LanguageModel> Task<'_, M> {
    fn text(
        &self,
        text: &Prompt,
        blanks: &[usize],
        seed: u64,
    ) -> Result<Vec<Filled>, RolloutError> {
        // All samples share the first forward pass.
        let logits = blank_logits(self.infiller, &text.ids, blanks);
        let samples: Vec<u32> = (0..self.settings.samples as u32).collect();
        let fill = |&sample: &u32| {
            let key = SampleKey { seed, step: 0, prompt: text.index, sample };
            let mut row =
                Row { ids: text.ids.clone(), blanks, logprobs: vec![0.0; blanks.len()], key };
            let draws = self.draws(logits.clone(), blanks, &row.key)?;
            row.put(draws);
            self.refine(row)
        };
        samples.par_iter().map(fill).collect()
    }

    /// Runs the remaining iterations.
    fn refine(&self, mut row: Row<'_>) -> Result<Filled, RolloutError> {
        let DenoisingSettings { iterations, schedule, rule, randomness, mask_id, .. } =
            self.settings;
        let mut done = 1;
        for iteration in 1..*iterations {
            row.key.step = iteration as u32;
            let wrongness = row.mixed(self.wrongness(&row)?, *randomness, self.purpose);
            let again = rule.choose(&wrongness, schedule.ratio(iteration - 1, *iterations));
            if again.is_empty() {
                // An unchanged text gets the same estimates, so only randomness or a larger ratio
                // can lead to a different selection.
                if *randomness == 0.0 && schedule.only_falls_from(iteration - 1, *iterations) {
                    break;
                }
                continue;
            }
            for blank in again {
                row.ids[row.blanks[blank]] = *mask_id;
            }
            let is_blank = |place: &usize| row.ids[*place] == *mask_id;
            let places: Vec<usize> = row.blanks.iter().copied().filter(is_blank).collect();
            let draws =
                self.draws(blank_logits(self.infiller, &row.ids, &places), &places, &row.key)?;
            row.put(draws);
            done += 1;
        }
        let mut filled = Filled {
            ids: row.ids,
            blanks: row.blanks.to_vec(),
            logprobs: row.logprobs,
            iterations: done,
            quality: None,
        };
        filled.quality = match self.quality {
            Quality::None => None,
            Quality::Own => Some(filled.mean_logprob()),
            Quality::Judge(judge) => Some(judge(&filled.ids)),
        };
        Ok(filled)
    }

    /// Estimates for each blank the probability that it is wrong.
    fn wrongness(&self, row: &Row<'_>) -> Result<Vec<f64>, RolloutError> {
        match self.trust {
            Trust::Probability => {
                Ok(row.logprobs.iter().map(|&logprob| 1.0 - f64::from(logprob).exp()).collect())
            }
            Trust::Critic(critic) => {
                let all = critic(&row.ids);
                assert_eq!(all.len(), row.ids.len(), "a critic rates each token");
                let of_blanks: Vec<f64> = row.blanks.iter().map(|&place| all[place]).collect();
                match of_blanks.iter().all(|wrong| wrong.is_finite()) {
                    true => Ok(of_blanks),
                    false => Err(NotFinite.into()),
                }
            }
        }
    }

    fn draws(
        &self,
        logits: Tensor<2>,
        places: &[usize],
        key: &SampleKey,
    ) -> Result<Vec<(usize, Draw)>, RolloutError> {
        let uniforms: Vec<f64> =
            places.iter().map(|&place| key.uniform(self.purpose, place as u32)).collect();
        let seen = vec![[].as_slice(); places.len()]; // only needed for a repetition penalty
        let draws = draw_rows(logits, &seen, &self.settings.distribution, &uniforms)?;
        Ok(places.iter().copied().zip(draws).collect())
    }
}

impl Row<'_> {
    fn put(&mut self, draws: Vec<(usize, Draw)>) {
        for (place, draw) in draws {
            self.ids[place] = draw.id;
            let blank = self.blanks.binary_search(&place).expect("only blanks are filled");
            self.logprobs[blank] = draw.logprob;
        }
    }

    /// Returns `(1 − randomness) · wrongness + randomness · u` for each blank, where u is uniformly
    /// distributed.
    fn mixed(&self, wrongness: Vec<f64>, randomness: f64, purpose: Purpose) -> Vec<f64> {
        let mix = |(&place, wrong): (&usize, f64)| {
            let chance = self.key.uniform(purpose, CHOICE | place as u32);
            (1.0 - randomness) * wrong + randomness * chance
        };
        self.blanks.iter().zip(wrongness).map(mix).collect()
    }
}
