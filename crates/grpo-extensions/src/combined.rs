//! Auxiliary losses: supervised examples and completion diversity.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_data::statistics::mean;
use grpo_data::{ConfigFault, EpochOrder, Example, Group, OrderPosition, Ranges};
use grpo_eval::{Diversity, DiversityMeasure};
use grpo_model::{Dropout, LanguageModel};
use grpo_rewards::EmbedderConfig;
use grpo_run::{FurtherUpdates, Plan};
use grpo_runtime::awake;
use grpo_train::{
    AuxiliaryLoss, Contributions, Cut, ExtensionRole, GradientSum, GrpoConfig, LossWeights,
    MetricSpec, PolicyUpdate, StepExtension, TrainError, UpdatedStep, build_measure, check_measure,
    cross_entropy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::{
    BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts, as_section,
    section,
};

/// The `[combined]` section. Minimises `α · cross-entropy + β · L_GRPO − λ · D`.
///
/// The cross-entropy is computed on a batch of examples. D is the mean diversity of the completions
/// for a prompt. Its gradient is estimated from the completions in the step, as in polychromic
/// supervised training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct CombinedConfig {
    /// Examples in the format of [`grpo pretrain`](#grpo-pretrain); with `[data.replies]`, tweets
    /// and replies.
    pub file: PathBuf,
    /// α, weight of the cross-entropy of the examples.
    #[serde(default = "default_supervised")]
    #[schemars(range(min = 0, max = 1e6))]
    pub supervised_weight: f64,
    /// β, weight of the GRPO loss. Without it, sampling would be useless: use supervised training
    /// instead.
    #[serde(default = "default_grpo")]
    #[schemars(range(min = 1e-6, max = 1e6))]
    pub grpo_weight: f64,
    /// λ, weight of the diversity of the completions.
    #[serde(default = "default_diversity")]
    #[schemars(range(min = 0, max = 1e6))]
    pub diversity_weight: f64,
    /// Measure of the diversity.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Makes the vectors; required by `semantic`, refused otherwise.
    pub embedder: Option<EmbedderConfig>,
    /// Examples per optimizer step.
    #[serde(default = "default_batch_size")]
    #[schemars(range(min = 1, max = 1e6))]
    pub batch_size: usize,
    /// One in this many optimizer steps has completions and all three terms; the others have
    /// examples only and need no sampling.
    #[serde(default = "default_every")]
    #[schemars(range(min = 1, max = 10000))]
    pub every: u32,
}

fn default_supervised() -> f64 {
    0.3
}
fn default_grpo() -> f64 {
    0.5
}
fn default_diversity() -> f64 {
    0.2
}
fn default_batch_size() -> usize {
    16
}
fn default_every() -> u32 {
    1
}

const SECTION: &str = "combined";

/// Loss terms of a step.
static METRICS: [MetricSpec; 4] = [
    MetricSpec::new("combined/supervised_loss", "nats", "cross-entropy CE before weighting, at the optimizer step that has all three terms; `loss` is their weighted sum").requires(SECTION_REQUIRED),
    MetricSpec::new("combined/mean_supervised_loss", "nats", "mean CE over all optimizer steps, including those with examples only (`combined.every` above 1)").requires(SECTION_REQUIRED),
    MetricSpec::new("combined/grpo_loss", "", "L_GRPO before weighting").requires(SECTION_REQUIRED),
    MetricSpec::new("combined/diversity", "", "D before weighting").requires(SECTION_REQUIRED),
];
const SECTION_REQUIRED: &str = "a [combined] section";

/// Returns the kind of extension that a `[combined]` section asks for.
pub(crate) const fn kind<M: LanguageModel>() -> ExtensionKind<M> {
    ExtensionKind {
        name: SECTION,
        keys: &[SECTION],
        schema: Keys::in_section::<CombinedConfig>(SECTION),
        metrics: &METRICS,
        parse: |mut table, _| {
            let config: CombinedConfig = section(&mut table, SECTION)?;
            config.check()?;
            Ok(Some(Arc::new(config)))
        },
    }
}

impl<M: LanguageModel> ExtensionConfig<M> for CombinedConfig {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn settings(&self) -> Table {
        as_section(SECTION, self)
    }

    fn roles(&self) -> &'static [ExtensionRole] {
        &[ExtensionRole::Loss]
    }

    fn check(&self, run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        refuse_several_updates(run.config)
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        self.embedder.as_ref().map_or(Ok(Vec::new()), EmbedderConfig::files)
    }

    fn example_files(&self) -> Vec<PathBuf> {
        vec![self.file.clone()]
    }

    fn pulls(&self) -> Vec<&'static str> {
        let pulls = [
            (self.supervised_weight, "cross-entropy of examples (combined.supervised_weight)"),
            (self.diversity_weight, "diversity of completions (combined.diversity_weight)"),
        ];
        pulls.into_iter().filter(|(weight, _)| *weight > 0.0).map(|(_, pull)| pull).collect()
    }

    fn plan(&self, plan: &mut Plan) {
        let count = (self.every as usize).saturating_sub(1);
        plan.further_updates.push(FurtherUpdates { key: "combined.every", count, replay: false });
    }

    fn build(&self, parts: &mut ExtensionParts<'_>) -> BuiltExtension<M> {
        let examples = (parts.examples)("combined.file", &self.file)?;
        Ok(Box::new(self.build(examples, parts.device, parts.seed)?))
    }
}

impl CombinedConfig {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// Returns an error for the first key that is not.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges(SECTION)?;
        if self.every > 1 && self.supervised_weight == 0.0 {
            let every = self.every;
            return Err(ConfigFault::new(
                "",
                format!(
                    "combined.every = {every} adds optimizer steps that use only examples; they have no effect with combined.supervised_weight = 0"
                ),
                "set combined.every = 1 or a positive combined.supervised_weight",
            ));
        }
        check_measure(SECTION, self.measure, self.embedder.as_ref())
    }

    /// Builds the auxiliary losses. If an embedder is configured, its model is loaded on `device`.
    /// `seed` determines the order of the examples.
    ///
    /// # Errors
    /// Returns an error if `examples` is empty or the embedder cannot be built.
    pub fn build(
        &self,
        examples: Vec<Example>,
        device: &Device,
        seed: u64,
    ) -> Result<Combined, TrainError> {
        if examples.is_empty() {
            let message = format!("combined.file: {} contains no examples", self.file.display());
            return Err(ConfigFault::new("", message, "").into());
        }
        let diversity = build_measure(SECTION, self.measure, self.embedder.as_ref(), device)?;
        Ok(Combined { config: self.clone(), examples, diversity, seed, terms: None })
    }
}

/// Refuses several updates per rollout.
fn refuse_several_updates(config: &GrpoConfig) -> Result<(), ConfigFault> {
    // The gradient estimate for D is only valid for the policy that sampled the completions.
    let updates = config.train.updates_per_rollout;
    if updates != 1 {
        return Err(ConfigFault::new(
            "",
            format!(
                "train.updates_per_rollout = {updates} is not possible with [combined]: its diversity term is valid only for samples of the current policy, so each rollout has one update"
            ),
            "set it to 1, and use combined.every for more optimizer steps",
        ));
    }
    Ok(())
}

/// Auxiliary losses configured by [`CombinedConfig`].
#[derive(Clone)]
pub struct Combined {
    config: CombinedConfig,
    examples: Vec<Example>,
    diversity: Diversity,
    /// Seed for shuffling the examples.
    seed: u64,
    /// Terms of the update that uses the completions of the step.
    terms: Option<CombinedTerms>,
}

/// Loss terms of an update that uses completions.
#[derive(Clone, Copy, Debug)]
struct CombinedTerms {
    /// Mean cross-entropy in nats per token.
    supervised_loss: f64,
    /// GRPO loss.
    grpo_loss: f64,
    /// Diversity D of the completions.
    diversity: f64,
}

impl<M: LanguageModel> StepExtension<M> for Combined {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn check(&self, config: &GrpoConfig, _extensions: &[&'static str]) -> Result<(), ConfigFault> {
        refuse_several_updates(config)
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn auxiliary_loss(&mut self) -> Option<&mut dyn AuxiliaryLoss<M>> {
        Some(self)
    }

    /// Performs the optimizer steps that only use examples.
    fn after_updates(&mut self, step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        let Some(terms) = self.terms.take() else { return Ok(()) };
        let mut losses = Vec::new();
        for _more in 1..self.config.every {
            let (learner, times) = (&mut *step.learner, &mut step.learned.times);
            let mut gradients = GradientSum::default();
            let started = Instant::now();
            let (version, cut) = (learner.version(), learner.cut());
            losses.push(awake(|| self.supervise(learner.policy(), version, cut, &mut gradients))?);
            times.add(started.elapsed(), gradients.backward());
            let started = Instant::now();
            let update = awake(|| learner.update_by(gradients, step.learning_rate))?;
            times.optimizer += started.elapsed();
            step.learned.further.push(update);
        }
        losses.push(terms.supervised_loss);
        let values = [terms.supervised_loss, mean(&losses), terms.grpo_loss, terms.diversity];
        step.added.metrics.extend(METRICS.iter().map(|metric| metric.name).zip(values));
        Ok(())
    }
}

impl<M: LanguageModel> AuxiliaryLoss<M> for Combined {
    fn grpo_weight(&self) -> f64 {
        self.config.grpo_weight
    }

    fn add(&mut self, update: &mut PolicyUpdate<'_, M>) -> Result<f64, TrainError> {
        let PolicyUpdate { policy, version, groups, grpo_loss, cut, gradients } = update;
        let supervised_loss = self.supervise(*policy, *version, *cut, gradients)?;
        let diversity = self.diversify(*policy, groups, *cut, gradients)?;
        let terms = CombinedTerms { supervised_loss, grpo_loss: *grpo_loss, diversity };
        self.terms = Some(terms);
        Ok(self.loss(&terms))
    }
}

impl Combined {
    /// Returns the weighted sum `α · cross-entropy + β · L_GRPO − λ · D`.
    fn loss(&self, terms: &CombinedTerms) -> f64 {
        let CombinedConfig { supervised_weight, grpo_weight, diversity_weight, .. } = &self.config;
        supervised_weight * terms.supervised_loss + grpo_weight * terms.grpo_loss
            - diversity_weight * terms.diversity
    }

    /// Computes the cross-entropy on batch `index` of the run. Adds its gradient, multiplied by α.
    fn supervise<M: LanguageModel>(
        &self,
        policy: &M,
        index: u64,
        cut: Cut,
        gradients: &mut GradientSum,
    ) -> Result<f64, TrainError> {
        let batch = self.batch(index);
        let weights = LossWeights { loss: self.config.supervised_weight, entropy: None };
        // Dropout is disabled, as in the GRPO loss.
        let taught = cross_entropy(policy, &batch, weights, cut, &mut Dropout::off(), gradients)?;
        Ok(taught.loss)
    }

    /// Computes the diversity D of the completions. Adds the gradient of −λ·D.
    fn diversify<M: LanguageModel>(
        &self,
        policy: &M,
        groups: &[Group],
        cut: Cut,
        gradients: &mut GradientSum,
    ) -> Result<f64, TrainError> {
        let contributions = Contributions::of(groups, &self.diversity)?;
        let weight = self.config.diversity_weight;
        contributions.add_gradients(policy, groups, weight, cut, gradients)?;
        Ok(contributions.score)
    }

    /// Returns batch `index` of the run. Examples are shuffled in each epoch.
    fn batch(&self, index: u64) -> Vec<&Example> {
        let (size, length) = (self.config.batch_size as u64, self.examples.len());
        let position = OrderPosition::after(index * size, length);
        let mut order = EpochOrder::resume(self.seed, length, position)
            .expect("the remainder is less than the number of examples");
        (0..size).map(|_| &self.examples[order.next_item()]).collect()
    }
}
