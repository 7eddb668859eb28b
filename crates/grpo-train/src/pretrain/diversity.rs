//! Polychromic training: a loss term that increases the diversity of sampled completions.

use std::collections::BTreeMap;
use std::time::Instant;

use grpo_data::{Codec, Completion, CounterRng, Example, Group, Prompt, Purpose};
use grpo_eval::Diversity;
use grpo_metrics::MetricSpec;
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};
use grpo_runtime::awake;

use super::batch::CrossEntropy;
use super::config::{DiversityConfig, PretrainConfig, ScoreFunctionConfig, sampling};
use crate::TrainError;
use crate::diversity_measure;
use crate::error::{distribution_fault, length_fault};
use crate::group_diversity::Contributions;
use crate::supervised::{Cut, GradientSum};

/// Completions and examples for diversity terms.
const DIVERSITY: Purpose = Purpose::new(12);

const SECTION: &str = "pretrain.diversity";
pub(super) const REQUIRED: &str = "a [pretrain.diversity] section";
pub(super) const SAMPLES_REQUIRED: &str = "a [pretrain.diversity] section that samples completions";

/// In lines of steps with a diversity term.
pub(super) static METRICS: [MetricSpec; 5] = [
    MetricSpec::new("diversity_score", "", "in a step with a diversity term: D, the mean over its prompts of the diversity of their completions, or the mean entropy in nats").requires(REQUIRED),
    MetricSpec::new("diversity_weight", "", "λ").requires(REQUIRED),
    MetricSpec::new("combined_loss", "", "`step_train_loss` − λ · D").requires(REQUIRED),
    MetricSpec::new("generation_time", "seconds", "duration of sampling; 0 for the entropy term").of_machine().requires(REQUIRED),
    MetricSpec::new("generation_length", "tokens", "mean length of a sampled completion, including its end token").requires(SAMPLES_REQUIRED),
];

/// Diversity term during training.
pub(super) enum DiversityTerm {
    ScoreFunction(Box<ScoreFunction>),
    Entropy { weight: f64 },
}

impl DiversityTerm {
    pub(super) fn new<M: LanguageModel>(
        settings: &DiversityConfig,
        config: &PretrainConfig,
        model: &M,
        codec: &Codec,
        train: &[Example],
        seed: u64,
    ) -> Result<Self, TrainError> {
        let DiversityConfig::ScoreFunction(term) = settings else {
            return Ok(Self::Entropy { weight: settings.weight() });
        };
        let term = &term.limited();
        let rollout = RolloutSettings {
            group_size: term.generations,
            max_new_tokens: term.max_new_tokens,
            end_ids: codec.end_ids().to_vec(),
            distribution: sampling(term.temperature, term.top_p)
                .checked(model.vocabulary_size())
                .map_err(|fault| distribution_fault(SECTION, &fault))?,
            batch_size: term.generations * term.max_examples,
        };
        let longest = train.iter().map(|example| example.first_target).max().unwrap_or(1);
        let rollout = Autoregressive::new(rollout, model, longest)
            .map_err(|fault| length_fault(SECTION, &fault))?;
        let device = model.device().inner();
        let embedder = term.embedder.as_ref();
        let diversity = diversity_measure::build_measure(SECTION, term.measure, embedder, &device)?;
        Ok(Self::ScoreFunction(Box::new(ScoreFunction {
            settings: term.clone(),
            diversity,
            rollout,
            codec: codec.clone(),
            seed,
            cut: config.cut(),
        })))
    }

    /// Returns the weight of the entropy in the loss, or `None` if D is not an entropy.
    pub(super) fn entropy_coef(&self) -> Option<f64> {
        match self {
            Self::Entropy { weight } => Some(*weight),
            Self::ScoreFunction(_) => None,
        }
    }

    /// Adds the gradient of −λ·D in `step`, counted from 0. Returns the metrics of the term. The
    /// result is empty if this step does not include the term.
    pub(super) fn add<M: LanguageModel>(
        &self,
        model: &M,
        batch: &[&Example],
        step: u64,
        cross_entropy: &CrossEntropy,
        gradients: &mut GradientSum,
    ) -> Result<BTreeMap<&'static str, f64>, TrainError> {
        let numbers = |score: f64, weight: f64, generation_time: f64| {
            BTreeMap::from([
                ("diversity_score", score),
                ("diversity_weight", weight),
                ("combined_loss", cross_entropy.loss - weight * score),
                ("generation_time", generation_time),
            ])
        };
        match (self, cross_entropy.entropy) {
            // The gradient was already computed along with the cross-entropy, so no sampling is
            // needed.
            (Self::Entropy { weight }, Some(entropy)) => Ok(numbers(entropy, *weight, 0.0)),
            (Self::ScoreFunction(term), _) if step.is_multiple_of(term.settings.every) => {
                let started = Instant::now();
                let sampled = term.sample(model, batch, step)?;
                let time = started.elapsed().as_secs_f64();
                awake(|| term.add_gradients(model, &sampled, gradients))?;
                let mut numbers = numbers(sampled.contributions.score, term.settings.weight, time);
                numbers.insert("generation_length", sampled.mean_length());
                Ok(numbers)
            }
            _ => Ok(BTreeMap::new()),
        }
    }
}

/// D is the expected diversity of N completions for a prompt. The completions are sampled from the
/// model itself, so the gradient is
/// ```text
/// ∇E[D(Y)] = E[Σ_i (D(Y) − D(Y without y_i)) ∇ log π(y_i | x)]
/// ```
///
/// (Williams 1992, with the baseline from Kool et al. 2019: D without y_i is independent of y_i, so
/// it does not change the expectation). One sample of Y per prompt gives an unbiased estimate.
pub(super) struct ScoreFunction {
    settings: ScoreFunctionConfig,
    diversity: Diversity,
    rollout: Autoregressive,
    codec: Codec,
    seed: u64,
    cut: Cut,
}

/// Completions for several prompts and their contributions to diversity.
struct Sampled {
    groups: Vec<Group>,
    contributions: Contributions,
}

impl Sampled {
    fn completions(&self) -> impl Iterator<Item = &Completion> {
        self.groups.iter().flat_map(Group::completions)
    }

    fn mean_length(&self) -> f64 {
        let actions: usize = self.completions().map(Completion::actions).sum();
        actions as f64 / self.contributions.advantages.len() as f64
    }
}

impl ScoreFunction {
    /// Samples completions for prompts in the batch, without dropout.
    fn sample<M: LanguageModel>(
        &self,
        model: &M,
        batch: &[&Example],
        step: u64,
    ) -> Result<Sampled, TrainError> {
        let places = self.places(batch.len(), step);
        let prompts: Vec<Prompt> = (0..)
            .zip(&places)
            .map(|(index, &place)| {
                let example = batch[place];
                Prompt::of_ids(index, example.ids[..example.first_target].to_vec())
            })
            .collect();
        let key = StepKey {
            seed: self.seed,
            purpose: DIVERSITY,
            step: step as u32,
            policy_version: step,
        };
        self.judged(self.rollout.sample(&Frozen::snapshot(model), &prompts, key)?)
    }

    /// Decodes the completions and computes their contributions to diversity.
    fn judged(&self, mut groups: Vec<Group>) -> Result<Sampled, TrainError> {
        for sample in groups.iter_mut().flat_map(|group| &mut group.samples) {
            sample.text = self.codec.decode(&sample.completion.text_ids());
        }
        let contributions = Contributions::of(&groups, &self.diversity)?;
        Ok(Sampled { groups, contributions })
    }

    /// Selects random examples to sample completions for. The first ones would be biased, because a
    /// batch may be sorted by length.
    fn places(&self, batch: usize, step: u64) -> Vec<usize> {
        let mut places: Vec<usize> = (0..batch).collect();
        let rng = CounterRng::new(self.seed, DIVERSITY);
        let count = self.settings.max_examples.min(batch);
        for next in 0..count {
            // The first word separates this random stream from token sampling, where it contains
            // the token position.
            let counter = [u32::MAX, next as u32, 0, step as u32];
            let other = next + rng.below(counter, (batch - next) as u64) as usize;
            places.swap(next, other);
        }
        places.truncate(count);
        places
    }

    /// Adds the gradient of −λ·D.
    fn add_gradients<M: LanguageModel>(
        &self,
        model: &M,
        sampled: &Sampled,
        gradients: &mut GradientSum,
    ) -> Result<(), TrainError> {
        let Sampled { groups, contributions } = sampled;
        let weight = self.settings.weight;
        contributions.add_gradients(model, groups, weight, self.cut, gradients)
    }
}

#[cfg(test)]
mod tests;
