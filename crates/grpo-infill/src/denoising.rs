//! Iterative infilling: all blanks are filled, the least trusted of them are blanked again, and so on.
//!
//! One pass fills each blank without knowing what is put into the others. Blanks that are filled again see most of them,
//! as in mask-predict (Ghazvininejad et al. 2019, arXiv:1904.09324) and MaskGIT (Chang et al. 2022, arXiv:2202.04200). What
//! comes of it has no log-probability that could be scored again, so that it is a [`Filled`] and no
//! [`Completion`](grpo_data::Completion): nothing can be trained on it by mistake.

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

/// How blanks are filled. The numbers of [`DenoisingSettings::new`] are a beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct DenoisingSettings {
    /// Fillings of each text.
    pub samples: usize,
    /// Times that blanks are filled, 1 or more; 1 is a single pass.
    pub iterations: usize,
    /// How many of the blanks, or which, are blanked again after each time but the last.
    pub schedule: RemaskSchedule,
    /// What a ratio of the schedule means.
    pub rule: RemaskRule,
    /// Part of chance in the choice of what is blanked again, 0 to 1.
    pub randomness: f64,
    /// What tokens are drawn from. The id of a blank is forbidden in it, and there is no repetition penalty, since blanks
    /// have no order.
    pub distribution: SamplingDistribution,
    /// The id of a blank.
    pub mask_id: u32,
}

impl DenoisingSettings {
    /// 15 iterations; 95 % of the blanks again, then fewer, down to 5 %; 0.2 of the choice by chance.
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

/// For each token of a filled text, how likely it is wrong: 0 to 1.
pub type Wrongness<'a> = dyn Fn(&[u32]) -> Vec<f64> + Sync + 'a;

/// What tells tokens that are trusted from those that are blanked again.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// 1 − the probability with which the token was drawn.
    Probability,
    /// A critic, which reads the filled text: of the infiller itself or of another model.
    Critic(&'a Wrongness<'a>),
}

/// Which number says how good a filled text is.
#[derive(Clone, Copy)]
pub enum Quality<'a> {
    /// None.
    None,
    /// The mean log-probability of what was put into the blanks, each when it was drawn.
    Own,
    /// What a judge says of the filled text.
    Judge(&'a (dyn Fn(&[u32]) -> f64 + Sync)),
}

/// A text with all of its blanks filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The whole text; none of it is a blank.
    pub ids: Vec<u32>,
    /// Places of the blanks that there were, ascending.
    pub blanks: Vec<usize>,
    /// Log-probability of what is in each blank, under the distribution that it was drawn from, when it was drawn.
    pub logprobs: Vec<f32>,
    /// Times that blanks were filled.
    pub iterations: usize,
    /// See [`Quality`]; `None` where none was asked for.
    pub quality: Option<f64>,
}

impl Filled {
    /// Sum of the log-probabilities, in nats.
    pub fn logprob(&self) -> f64 {
        self.logprobs.iter().map(|&logprob| f64::from(logprob)).sum()
    }

    /// Mean of the log-probabilities, in nats.
    pub fn mean_logprob(&self) -> f64 {
        self.logprob() / self.logprobs.len() as f64
    }
}

/// Checked settings for one kind of model.
#[derive(Clone, Debug)]
pub struct Denoising {
    settings: DenoisingSettings,
}

impl Denoising {
    /// Checks the settings against the model.
    ///
    /// # Errors
    /// Nothing to sample; a ratio or a randomness outside 0 to 1; a schedule of another length; a distribution that could
    /// fill a blank with a blank, is over another vocabulary, or has a repetition penalty.
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

    /// Fills the blanks of each text, `samples` times. Ids of a [`Prompt`] are the whole text, blanks among them.
    ///
    /// Each token is a function of the model, the seed, the purpose and (iteration, text, sample, position): a text is read
    /// alone, so that neither those beside it nor the number of threads matter.
    ///
    /// # Errors
    /// A text without a blank; a text that is too long for the model or has an id that it lacks;
    /// logits that are not finite.
    pub fn fill<M: LanguageModel>(
        &self,
        infiller: &Frozen<M>,
        texts: &[Prompt],
        trust: Trust<'_>,
        quality: Quality<'_>,
        seed: u64,
        purpose: Purpose,
    ) -> Result<Vec<Vec<Filled>>, RolloutError> {
        // All are looked at before the first is filled.
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

/// A text while it is filled.
struct Row<'a> {
    ids: Vec<u32>,
    /// Places that may be filled and blanked again: nothing else ever is.
    blanks: &'a [usize],
    /// Of each blank.
    logprobs: Vec<f32>,
    /// The step is the iteration.
    key: SampleKey,
}

/// Of the positions of random numbers that choose what is blanked again: no text is so long.
const CHOICE: u32 = 1 << 31;

impl<M: LanguageModel> Task<'_, M> {
    fn text(
        &self,
        text: &Prompt,
        blanks: &[usize],
        seed: u64,
    ) -> Result<Vec<Filled>, RolloutError> {
        // What all samples see at first is the same.
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

    /// All iterations but the first.
    fn refine(&self, mut row: Row<'_>) -> Result<Filled, RolloutError> {
        let DenoisingSettings { iterations, schedule, rule, randomness, mask_id, .. } =
            self.settings;
        let mut done = 1;
        for iteration in 1..*iterations {
            row.key.step = iteration as u32;
            let wrongness = row.mixed(self.wrongness(&row)?, *randomness, self.purpose);
            let again = rule.choose(&wrongness, schedule.ratio(iteration - 1, *iterations));
            if again.is_empty() {
                // The same text is as wrong as before. Chance and a larger ratio alone can still choose something of it.
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

    /// Of each blank.
    fn wrongness(&self, row: &Row<'_>) -> Result<Vec<f64>, RolloutError> {
        match self.trust {
            Trust::Probability => {
                Ok(row.logprobs.iter().map(|&logprob| 1.0 - f64::from(logprob).exp()).collect())
            }
            Trust::Critic(critic) => {
                let all = critic(&row.ids);
                assert_eq!(all.len(), row.ids.len(), "a critic says something of each token");
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

    /// `(1 − randomness) · wrongness + randomness · u` of each blank, u uniform.
    fn mixed(&self, wrongness: Vec<f64>, randomness: f64, purpose: Purpose) -> Vec<f64> {
        let mix = |(&place, wrong): (&usize, f64)| {
            let chance = self.key.uniform(purpose, CHOICE | place as u32);
            (1.0 - randomness) * wrong + randomness * chance
        };
        self.blanks.iter().zip(wrongness).map(mix).collect()
    }
}
