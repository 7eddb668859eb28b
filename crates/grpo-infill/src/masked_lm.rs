//! Masked language model training for infillers (Devlin et al. 2019, "BERT").

mod batch;
mod critic;
mod modifiers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{MaskedData, MaskedText, Masking, SequenceScorer};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_data::{ConfigFault, CounterRng, Purpose};
use grpo_kernels::gather_rows;
use grpo_logprob::{SamplingDistribution, SamplingSettings, score};
use grpo_model::{Dropout, LanguageModel, Transformer};
use grpo_runtime::awake;
use serde::Serialize;

use self::batch::MaskedBatch;
use crate::fill::draw_blanks;
use crate::prepared_batches::PreparedBatches;
use grpo_train::{
    GradientSum, MetricGroup, MetricSpec, Objective, StepGradients, StepsConfig, SupervisedTrainer,
    TrainError, TransferConfig, by_tokens,
};
use grpo_train::{distribution_fault, finite_loss, in_range};

pub use self::critic::{CriticConfig, CriticScope};
pub use self::modifiers::{EntropyWeighting, JudgeWeighting, MaskRatioWeighting, ModifierConfig};

/// Masked language model training configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedLmConfig {
    /// Steps, batches and optimizer settings.
    pub steps: StepsConfig,
    /// Number of batches per validation.
    pub eval_batches: u64,
    /// Cross-entropy modifiers.
    pub modifiers: ModifierConfig,
    /// Critic training settings. Required if the model has a critic.
    pub critic: Option<CriticConfig>,
    /// Settings for starting from a pretrained model.
    pub transfer: TransferConfig,
}

impl MaskedLmConfig {
    /// Creates a configuration with unweighted cross-entropy and no critic.
    pub fn plain(steps: StepsConfig) -> Self {
        let transfer = TransferConfig::default();
        let modifiers = ModifierConfig::default();
        Self { steps, eval_batches: DEFAULT_EVAL_BATCHES, modifiers, critic: None, transfer }
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// Returns an error that names the first key that is out of range or has no effect.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.steps.check("masked_lm")?;
        in_range("validation.batches", self.eval_batches as f64, 1.0..=1e6)?;
        self.modifiers.check("modifiers")?;
        self.transfer.check("transfer", self.steps.steps)?;
        if let Some(critic) = &self.critic {
            critic.check()?;
        }
        match self.transfer.is_frozen(self.steps.steps - 1) && self.critic.is_none() {
            true => Err(ConfigFault::new(
                "transfer.freeze_trunk",
                "transfer.freeze_trunk = true leaves nothing to train: an infiller's head is its character table",
                "add [critic] with a model that has one, or transfer.unfreeze_at_step",
            )),
            false => Ok(()),
        }
    }

    /// Checks the settings against the model, the data and the judge.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - Only one of the critic settings and the model's critic head is present.
    /// - Only one of [`ModifierConfig::judge`] and `judge` is present.
    /// - The judge cannot read the longest texts.
    /// - The masking replaces lines, which leaves no blanks to fill.
    pub fn check_with(
        &self,
        model: &Transformer,
        data: &MaskedData,
        judge: Option<&SequenceScorer>,
    ) -> Result<(), ConfigFault> {
        match (self.critic.is_some(), model.description().critic) {
            (true, false) => {
                return Err(ConfigFault::new(
                    "critic",
                    "[critic] requires a model with a critic",
                    "set model.critic = true, or remove the section",
                ));
            }
            (false, true) => {
                return Err(ConfigFault::new(
                    "",
                    "the model has a critic, but section [critic] is missing",
                    "add it, or create a model without a critic",
                ));
            }
            _ => {}
        }
        for stream in [&data.train, &data.validation] {
            let is_line = |stage: &Masking| matches!(stage, Masking::Line { .. });
            if let Some(stage) = stream.plan().stages().iter().position(is_line) {
                let key = format!("masking.stages[{stage}]");
                let message = format!("{key} replaces whole lines and leaves nothing to fill in");
                return Err(ConfigFault::new(
                    key,
                    message,
                    "it is only valid for judges, so remove it",
                ));
            }
        }
        let length = data.train.passages().options().length;
        match (&self.modifiers.judge, judge.map(SequenceScorer::longest_text)) {
            (Some(_), None) => Err(ConfigFault::new(
                "",
                "modifiers.judge requires a judge",
                "load one, or remove the section",
            )),
            (None, Some(_)) => Err(ConfigFault::new(
                "",
                "the judge has no effect without modifiers.judge",
                "remove it, or add the section",
            )),
            (Some(_), Some(sees)) if sees < length => Err(ConfigFault::new(
                "modifiers.judge.model",
                format!(
                    "modifiers.judge.model: the judge's context is {sees} characters, but texts have up to {length} (data.length)"
                ),
                "lower data.length, or use a judge trained on longer texts",
            )),
            _ => Ok(()),
        }
    }
}

/// Default number of batches per validation.
pub const DEFAULT_EVAL_BATCHES: u64 = 10;

/// Validation results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MaskedLmMeasures {
    /// Mean cross-entropy over all targets, in nats.
    pub eval_loss: f64,
    /// Fraction of blanks for which the most likely character is correct. `None` if no target is a
    /// blank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_accuracy: Option<f64>,
}

/// The training objective of an infiller.
pub struct MaskedLmObjective<'a> {
    data: &'a MaskedData,
    batches: PreparedBatches,
    judge: Option<&'a SequenceScorer>,
    config: &'a MaskedLmConfig,
    /// Distribution from which blanks are filled for the critic and the judge. It is the model's
    /// own distribution, restricted to characters.
    distribution: SamplingDistribution,
    rng: CounterRng,
}

impl<'a> MaskedLmObjective<'a> {
    /// Creates a trainer for an infiller. `judge` weights the texts if [`ModifierConfig::judge`] is
    /// set.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or doesn't match the model, the data or the
    /// judge.
    pub fn trainer(
        model: Transformer,
        data: &'a MaskedData,
        judge: Option<&'a SequenceScorer>,
        config: &'a MaskedLmConfig,
        seed: u64,
    ) -> Result<SupervisedTrainer<Self>, TrainError> {
        config.check()?;
        config.check_with(&model, data, judge)?;
        let settings = SamplingSettings {
            forbidden: data.characters.specials().to_vec(),
            ..SamplingSettings::default()
        };
        let distribution = settings
            .checked(data.characters.len())
            .map_err(|fault| distribution_fault("sampling", &fault))?;
        let rng = CounterRng::new(seed, Purpose::SAMPLING);
        let batches = PreparedBatches::new(data.train.clone());
        let objective = Self { data, batches, judge, config, distribution, rng };
        let plan = config.steps.plan(&config.transfer, seed);
        Ok(SupervisedTrainer::new(model, objective, plan))
    }
}

/// Numbers by which the sums of a step are divided.
#[derive(Clone, Copy)]
struct Totals {
    targets: f64,
    /// Number of positions that train the critic.
    criticised: f64,
}

/// Contribution of a micro-batch to a step.
struct Part {
    cross_entropy: f64,
    loss: f64,
    critic_loss: f64,
    gradients: GradientsParams,
}

const CRITIC: &str = "a [critic] section";

/// Metrics of the training of an infiller, in addition to those of each supervised run.
pub const MASKED_LM_METRICS: MetricGroup =
    MetricGroup { name: "masked_lm", section: "masked_lm", metrics: &METRICS };

static METRICS: [MetricSpec; 4] = [
    MetricSpec::new("cross_entropy", "nats", "unweighted mean over the targets"),
    MetricSpec::new("critic_loss", "nats", "mean binary cross-entropy of the critic")
        .requires(CRITIC),
    MetricSpec::new(
        "eval_loss",
        "nats",
        "mean cross-entropy over the targets of the validation batches",
    )
    .curve("Supervised loss", "validation"),
    MetricSpec::new(
        "eval_accuracy",
        "0 to 1",
        "fraction of blanks whose most probable character is the true one; left out if a masking leaves no blanks",
    ),
];

impl Objective for MaskedLmObjective<'_> {
    type Model = Transformer;
    type Measures = MaskedLmMeasures;
    type Progress = ();

    fn metrics(&self) -> Vec<MetricGroup> {
        vec![MASKED_LM_METRICS]
    }

    fn measures(&self, metric: &MetricSpec) -> bool {
        metric.requires != CRITIC || self.config.critic.is_some()
    }

    fn gradients(
        &self,
        model: &Transformer,
        step: u64,
        dropout: &mut Dropout,
        _: &mut (),
    ) -> Result<StepGradients, TrainError> {
        awake(|| self.step(model, step, dropout))
    }

    fn validate(
        &self,
        model: &Transformer,
        _: u64,
        _: &mut (),
    ) -> Result<MaskedLmMeasures, TrainError> {
        awake(|| self.measures(&model.valid()))
    }

    fn selection_loss(&self, measures: &MaskedLmMeasures) -> f64 {
        measures.eval_loss
    }

    fn is_of_trunk(&self, path: &str) -> bool {
        !path.starts_with("critic.")
    }
}

impl MaskedLmObjective<'_> {
    fn step(
        &self,
        model: &Transformer,
        step: u64,
        dropout: &mut Dropout,
    ) -> Result<StepGradients, TrainError> {
        let config = &self.config.steps;
        let texts = self.batches.batch(step, config.batch_size)?;
        let count = |of: fn(&MaskedText) -> usize| texts.iter().map(of).sum::<usize>();
        let targets = count(|text| text.is_target.iter().filter(|&&target| target).count());
        let tokens = count(|text| text.ids.len());
        let criticised = match self.config.critic.map(|critic| critic.scope) {
            Some(CriticScope::MaskedOnly) => targets,
            Some(CriticScope::MaskedAndIgnore) | None => tokens,
        };
        let totals = Totals { targets: targets as f64, criticised: criticised as f64 };
        let mut sum = GradientSum::default();
        let (mut loss, mut cross_entropy, mut critic_loss, mut first) = (0.0, 0.0, 0.0, 0);
        for texts in by_tokens(&texts, config.micro_batch_tokens, |text| text.ids.len()) {
            let part = self.part(model, texts, first, totals, step, dropout)?;
            loss += part.loss;
            cross_entropy += part.cross_entropy;
            critic_loss += part.critic_loss;
            sum.add(model, part.gradients);
            first += texts.len();
        }
        let mut parts = BTreeMap::from([("cross_entropy", cross_entropy)]);
        if self.config.critic.is_some() {
            parts.insert("critic_loss", critic_loss);
        }
        Ok(StepGradients { loss, gradients: sum.finish(), tokens, parts })
    }

    fn measures(&self, model: &Transformer) -> Result<MaskedLmMeasures, TrainError> {
        let config = &self.config.steps;
        let (mut sum, mut targets, mut right, mut blanks) = (0.0, 0, 0, 0);
        for index in 0..self.config.eval_batches {
            let texts = self.data.validation.batch(index, config.batch_size)?;
            for texts in by_tokens(&texts, config.micro_batch_tokens, |text| text.ids.len()) {
                let batch = MaskedBatch::new(texts, &self.data.characters);
                let hidden = model.hidden(&batch.inputs, &mut Dropout::off());
                let hidden = gather_rows(hidden, batch.places(&model.device()));
                let scores = score(hidden.clone(), &model.head(), &batch.targets());
                sum -= scores.logprobs.into_data().iter::<f64>().sum::<f64>();
                targets += batch.truths.len();
                let base = self.data.characters.base_len();
                let likeliest =
                    model.logits(hidden).slice([0..batch.truths.len(), 0..base]).argmax(1);
                let likeliest = likeliest.into_data();
                for ((id, &truth), &is_blank) in
                    likeliest.iter::<i64>().zip(&batch.truths).zip(&batch.is_blank)
                {
                    blanks += usize::from(is_blank);
                    right += usize::from(is_blank && id == i64::from(truth));
                }
            }
        }
        let loss = sum / targets as f64;
        if !loss.is_finite() {
            return Err(TrainError::Diverged { what: "validation loss", value: loss });
        }
        let accuracy = (blanks > 0).then(|| right as f64 / blanks as f64);
        Ok(MaskedLmMeasures { eval_loss: loss, eval_accuracy: accuracy })
    }

    /// Computes loss and gradients for a micro-batch. `first` is the number of preceding texts in
    /// the step.
    fn part(
        &self,
        model: &Transformer,
        texts: &[MaskedText],
        first: usize,
        totals: Totals,
        step: u64,
        dropout: &mut Dropout,
    ) -> Result<Part, TrainError> {
        let batch = MaskedBatch::new(texts, &self.data.characters);
        let hidden = model.hidden(&batch.inputs, dropout); // [tokens, width]
        let hidden = gather_rows(hidden, batch.places(&model.device())); // [n, width]
        let scores = score(hidden.clone(), &model.head(), &batch.targets());
        let needs_fill = self.config.critic.is_some() || self.judge.is_some();
        let filled = match needs_fill {
            true => Some(self.filled(model, &hidden, texts, &batch, first, step)?),
            false => None,
        };
        let weights = self.weights(&scores, texts, &batch, filled.as_deref());
        let smoothed = self.smoothed(model, hidden, scores.logprobs.clone(), &batch);
        let weighed = match weights {
            Some(weights) => smoothed * numbers(&weights, &batch, model),
            None => smoothed,
        };
        let mut loss = weighed.sum() * (-1.0 / totals.targets);
        let cross_entropy = finite_loss(scores.logprobs.sum())? / -totals.targets;
        let mut critic_loss = 0.0;
        if let (Some(critic), Some(filled)) = (&self.config.critic, &filled) {
            let own = critic::loss(model, texts, filled, critic.scope, dropout);
            let own = own * (1.0 / totals.criticised);
            critic_loss = finite_loss(own.clone())?;
            loss = loss + own * critic.weight(step);
        }
        let value = finite_loss(loss.clone())?;
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        Ok(Part { cross_entropy, loss: value, critic_loss, gradients })
    }

    /// Returns the texts with every blank filled by sampling.
    fn filled(
        &self,
        model: &Transformer,
        hidden: &Tensor<2>,
        texts: &[MaskedText],
        batch: &MaskedBatch,
        first: usize,
        step: u64,
    ) -> Result<Vec<Vec<u32>>, TrainError> {
        let logits = model.logits(hidden.clone()).detach(); // [n, vocabulary]
        let blanks = batch.blanks(step, first);
        let drawn = draw_blanks(logits, &blanks, &self.distribution, &self.rng)?;
        let mut filled: Vec<Vec<u32>> = texts.iter().map(|text| text.ids.clone()).collect();
        for ((blank, id), &is_blank) in blanks.iter().zip(drawn).zip(&batch.is_blank) {
            if is_blank {
                filled[blank.text - first][blank.place] = id;
            }
        }
        Ok(filled)
    }

    /// Returns the weight of each target, `[n]`, or `None` if all weights are 1.
    fn weights(
        &self,
        scores: &grpo_logprob::Scores,
        texts: &[MaskedText],
        batch: &MaskedBatch,
        filled: Option<&[Vec<u32>]>,
    ) -> Option<Vec<f64>> {
        let ModifierConfig { entropy, mask_ratio, judge, .. } = &self.config.modifiers;
        if entropy.is_none() && mask_ratio.is_none() && judge.is_none() {
            return None;
        }
        let of_text = |text: usize| {
            let ratio = texts[text].ratio;
            let by_judge = match (judge, self.judge, filled) {
                (Some(weighting), Some(judge), Some(filled)) => {
                    weighting.weight(judge.score(&filled[text]), ratio)
                }
                _ => 1.0, // without a judge, as verified by `check_with`
            };
            mask_ratio.map_or(1.0, |weighting| weighting.weight(ratio)) * by_judge
        };
        let of_texts: Vec<f64> = (0..texts.len()).map(of_text).collect();
        let mut weights: Vec<f64> = batch.texts.iter().map(|&text| of_texts[text]).collect();
        if let Some(weighting) = entropy {
            let host = |tensor: &Tensor<1>| tensor.clone().into_data();
            let (logprobs, entropies) = (host(&scores.logprobs), host(&scores.entropies));
            let characters = self.data.characters.base_len();
            for ((weight, logprob), entropy) in
                weights.iter_mut().zip(logprobs.iter::<f64>()).zip(entropies.iter::<f64>())
            {
                *weight *= weighting.weight(logprob, entropy, characters);
            }
        }
        Some(weights)
    }

    /// Computes `Σ_v q(v) log p(v)` for the smoothed target distribution q. The result has shape
    /// `[n]`.
    ///
    /// Since log p(v) = z_v − log Σ exp z, this equals `log p(truth) + ε (z̄ − z_truth)`, where z̄
    /// is the mean logit over the characters. A second log-softmax is therefore not needed.
    fn smoothed(
        &self,
        model: &Transformer,
        hidden: Tensor<2>,
        logprobs: Tensor<1>,
        batch: &MaskedBatch,
    ) -> Tensor<1> {
        let smoothing = self.config.modifiers.label_smoothing;
        if smoothing == 0.0 {
            return logprobs;
        }
        let base = self.data.characters.base_len();
        let logits = model.logits(hidden); // [n, vocabulary]
        let mean = logits.clone().slice([0..batch.truths.len(), 0..base]).mean_dim(1);
        let truth = logits.gather(1, batch.truths(&model.device()).unsqueeze_dim(1)); // [n, 1]
        logprobs + (mean - truth).squeeze_dim::<1>(1) * smoothing
    }
}

/// Converts numbers to a tensor of shape `[n]` without autodiff.
fn numbers(numbers: &[f64], batch: &MaskedBatch, model: &Transformer) -> Tensor<1> {
    let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let data = TensorData::new(numbers, [batch.truths.len()]);
    Tensor::from_data(data, &model.device())
}
