//! Iterative infilling: fills all blanks, masks the least certain ones again, and repeats.
//!
//! A single pass fills each blank without knowledge of the others. Refilled blanks see most of the
//! others, as in mask-predict (Ghazvininejad et al. 2019, arXiv:1904.09324) and MaskGIT (Chang et
//! al. 2022, arXiv:2202.04200). The result has no log-probability that could be scored, so it is a
//! [`Filled`] and not a [`Completion`](grpo_data::Completion), and cannot be trained on by mistake.

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

/// Settings of iterative infilling, with defaults in [`DenoisingSettings::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct DenoisingSettings {
    /// Completions per text.
    pub samples: usize,
    /// Number of iterations, at least 1; 1 is a single pass.
    pub iterations: usize,
    /// Ratios of remasked blanks after each iteration but the last.
    pub schedule: RemaskSchedule,
    /// Meaning of a ratio.
    pub rule: RemaskRule,
    /// Weight of randomness in the choice of remasked blanks, 0 to 1.
    pub randomness: f64,
    /// The sampling distribution. The mask id must be forbidden in it, and there is no repetition
    /// penalty, because blanks have no order.
    pub distribution: SamplingDistribution,
    /// The mask id.
    pub mask_id: u32,
}

impl DenoisingSettings {
    /// 15 iterations that remask 95 % down to 5 % of the blanks, with 0.2 randomness.
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

/// Estimates for each token of a filled text the probability that it is wrong.
pub type Wrongness<'a> = dyn Fn(&[u32]) -> Vec<f64> + Sync + 'a;

/// What selects tokens to remask.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// 1 − the probability with which the token was drawn.
    Probability,
    /// A critic that reads the filled text, of the infiller or of another model.
    Critic(&'a Wrongness<'a>),
}

/// The quality of a filled text.
#[derive(Clone, Copy)]
pub enum Quality<'a> {
    /// None.
    None,
    /// Mean log-probability of the filled tokens, when drawn.
    Own,
    /// A judge's score of the filled text.
    Judge(&'a (dyn Fn(&[u32]) -> f64 + Sync)),
}

/// A text with all of its blanks filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The whole text without blanks.
    pub ids: Vec<u32>,
    /// Original positions of the blanks, ascending.
    pub blanks: Vec<usize>,
    /// Log-probability of each filled token under its distribution, when drawn.
    pub logprobs: Vec<f32>,
    /// Number of iterations.
    pub iterations: usize,
    /// See [`Quality`]; `None` if not requested.
    pub quality: Option<f64>,
}

impl Filled {
    /// Returns the sum of the log-probabilities in nats.
    pub fn logprob(&self) -> f64 {
        self.logprobs.iter().map(|&logprob| f64::from(logprob)).sum()
    }

    /// Returns the mean of the log-probabilities in nats.
    pub fn mean_logprob(&self) -> f64 {
        self.logprob() / self.logprobs.len() as f64
    }
}

/// Settings that were checked against a model.
#[derive(Clone, Debug)]
pub struct Denoising {
    settings: DenoisingSettings,
}

impl Denoising {
    /// Checks the settings against the model.
    ///
    /// # Errors
    /// Returns an error if there is nothing to sample, a ratio or randomness is outside of 0 to 1,
    /// the schedule has another length, or the distribution allows the mask, has another vocabulary
    /// or a repetition penalty.
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

    /// Fills the blanks of each text `samples` times. The ids of a [`Prompt`] are the whole text
    /// with masks.
    ///
    /// Each token is a function of the model, the seed, the purpose and (iteration, text, sample,
    /// position). Texts are read alone, so other texts and the number of threads have no effect.
    ///
    /// # Errors
    /// Returns an error for a text without a blank, that is too long, or has an invalid id, or if
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
        // All texts are checked before the first is filled.
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

/// A text during filling.
struct Row<'a> {
    ids: Vec<u32>,
    /// Positions that may be filled and remasked.
    blanks: &'a [usize],
    /// Log-probability of each blank.
    logprobs: Vec<f32>,
    /// The step is the iteration.
    key: SampleKey,
}

/// Position in the counters that choose remasked blanks; texts are shorter.
const CHOICE: u32 = 1 << 31;

impl<M: LanguageModel> Task<'_, M> {
    fn text(
        &self,
        text: &Prompt,
        blanks: &[usize],
        seed: u64,
    ) -> Result<Vec<Filled>, RolloutError> {
        // The first pass is the same for all samples.
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

    /// Runs the iterations after the first.
    fn refine(&self, mut row: Row<'_>) -> Result<Filled, RolloutError> {
        let DenoisingSettings { iterations, schedule, rule, randomness, mask_id, .. } =
            self.settings;
        let mut done = 1;
        for iteration in 1..*iterations {
            row.key.step = iteration as u32;
            let wrongness = row.mixed(self.wrongness(&row)?, *randomness, self.purpose);
            let again = rule.choose(&wrongness, schedule.ratio(iteration - 1, *iterations));
            if again.is_empty() {
                // An unchanged text is as wrong as before. Only randomness or a larger ratio can
                // change the choice.
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

    /// Returns the wrongness of each blank.
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
        let seen = vec![[].as_slice(); places.len()]; // no penalty looks at it
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

    /// Returns `(1 − randomness) · wrongness + randomness · u` of each blank, with uniform u.
    fn mixed(&self, wrongness: Vec<f64>, randomness: f64, purpose: Purpose) -> Vec<f64> {
        let mix = |(&place, wrong): (&usize, f64)| {
            let chance = self.key.uniform(purpose, CHOICE | place as u32);
            (1.0 - randomness) * wrong + randomness * chance
        };
        self.blanks.iter().zip(wrongness).map(mix).collect()
    }
}
