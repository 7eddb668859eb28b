//! Judge training. A judge predicts what fraction of a text was replaced by an infiller.

mod config;
mod examples;
mod report;
mod scaling;
mod target;
mod validation;

use grpo_data::statistics::mean;
use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_model::{Dropout, LanguageModel};
use grpo_runtime::awake;

use self::examples::{JudgeExamples, Judged};
use self::target::mean_squared_error;
use self::validation::{Round, ValidationTexts};
use crate::SequenceScorer;
use grpo_train::{
    GradientSum, MetricGroup, MetricSpec, Objective, StepGradients, StepsConfig, SupervisedTrainer,
    TrainError, by_tokens, finite_loss,
};

pub use self::config::{FillSettings, JudgeConfig};
pub use self::examples::JudgeData;
pub use self::report::{JudgeGate, JudgeMeasures, JudgeReport, JudgeValidationConfig};
pub use self::scaling::{CorrelationScaling, JudgeScaling, VarianceScaling};
pub use self::target::corruption_target;

/// The training objective of a judge.
pub struct JudgeObjective<'a> {
    cls: u32,
    examples: JudgeExamples<'a>,
    validation: ValidationTexts,
    config: &'a JudgeConfig,
}

impl<'a> JudgeObjective<'a> {
    /// Creates a trainer for `judge`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the fill settings don't match the
    /// vocabulary.
    ///
    /// # Panics
    /// Panics if the judge and the infiller have different vocabulary sizes.
    pub fn trainer(
        judge: SequenceScorer,
        data: &'a JudgeData,
        config: &'a JudgeConfig,
        seed: u64,
    ) -> Result<SupervisedTrainer<Self>, TrainError> {
        config.check()?;
        let vocabulary = data.passages.characters().len();
        assert_eq!(judge.model().vocabulary_size(), vocabulary, "the judge's vocabulary");
        assert_eq!(data.infiller.vocabulary_size(), vocabulary, "the infiller's vocabulary");
        let examples = JudgeExamples::new(data, config, seed)?;
        let validation = ValidationTexts::new(&examples, &config.validation, seed, Round::Looks)?;
        let cls = data.passages.characters().cls_id();
        let plan = config.steps.plan(&config.transfer, seed);
        Ok(SupervisedTrainer::new(judge, Self { cls, examples, validation, config }, plan))
    }
}

/// Evaluates `judge` on held-out texts that have not been used for validation by a
/// [`JudgeObjective`] with the same seed.
///
/// Selecting the best of many validations is biased: a judge may have passed the gate by chance.
/// The texts used here had no influence on the selection.
///
/// # Errors
/// Returns an error if the settings are invalid or the results are not finite.
pub fn measure_judge(
    judge: &SequenceScorer,
    data: &JudgeData,
    config: &JudgeConfig,
    seed: u64,
) -> Result<JudgeMeasures, TrainError> {
    config.check()?;
    let examples = JudgeExamples::new(data, config, seed)?;
    let texts = ValidationTexts::new(&examples, &config.validation, seed, Round::Report)?;
    let cls = data.passages.characters().cls_id();
    awake(|| measures_of(&judge.valid(), &texts, &config.steps, cls))
}

fn measures_of(
    judge: &SequenceScorer,
    texts: &ValidationTexts,
    config: &StepsConfig,
    cls: u32,
) -> Result<JudgeMeasures, TrainError> {
    let score = |texts: &[Judged]| -> Vec<f64> {
        let batches = texts.chunks(config.batch_size);
        let parts = batches.flat_map(|batch| {
            by_tokens(batch, config.micro_batch_tokens, |text| text.ids.len() + 1)
        });
        let scores = parts.flat_map(|part| {
            let scores = forward(judge, part, cls, &mut Dropout::off());
            scores.into_data().iter::<f64>().collect::<Vec<_>>()
        });
        scores.collect()
    };
    let measures = texts.measures(score);
    if !measures.eval_loss.is_finite() {
        let value = measures.eval_loss;
        return Err(TrainError::Diverged { what: "validation loss", value });
    }
    Ok(measures)
}

/// Metrics of the training of a judge, in addition to those of each supervised run.
pub const JUDGE_METRICS: MetricGroup =
    MetricGroup { name: "judge", section: "judge", metrics: &METRICS };

static METRICS: [MetricSpec; 9] = [
    MetricSpec::new("mean_squared_error", "", "first factor of the loss"),
    MetricSpec::new("loss_factor", "", "second factor of the loss"),
    MetricSpec::new("output_mean", "0 to 1", "mean output over the texts of the step"),
    MetricSpec::new("target_mean", "0 to 1", "mean target over the texts of the step"),
    MetricSpec::new("eval_loss", "", "mean squared error over all validation texts")
        .curve("Supervised loss", "validation"),
    MetricSpec::new("zero_mean", "0 to 1", "mean output on natural texts"),
    MetricSpec::new("zero_p90", "0 to 1", "90th percentile of the outputs on natural texts"),
    MetricSpec::new(
        "pearson",
        "−1 to 1",
        "correlation of the outputs with the fraction of the text that was replaced",
    ),
    MetricSpec::new("spearman", "−1 to 1", "rank correlation of the same"),
];

impl Objective for JudgeObjective<'_> {
    type Model = SequenceScorer;
    type Measures = JudgeMeasures;
    type Progress = ();

    fn metrics(&self) -> Vec<MetricGroup> {
        vec![JUDGE_METRICS]
    }

    fn gradients(
        &self,
        judge: &SequenceScorer,
        step: u64,
        dropout: &mut Dropout,
        _: &mut (),
    ) -> Result<StepGradients, TrainError> {
        awake(|| self.step(judge, step, dropout))
    }

    fn validate(
        &self,
        judge: &SequenceScorer,
        _: u64,
        _: &mut (),
    ) -> Result<JudgeMeasures, TrainError> {
        awake(|| measures_of(&judge.valid(), &self.validation, &self.config.steps, self.cls))
    }

    /// Prefers judges that pass the gate. A penalty of 1 is always enough, because errors are below
    /// 1 for outputs between 0 and 1.
    fn selection_loss(&self, measures: &JudgeMeasures) -> f64 {
        let penalty = if self.config.gate.passes(measures) { 0.0 } else { 1.0 };
        measures.eval_loss + penalty
    }

    fn is_of_trunk(&self, path: &str) -> bool {
        !path.contains("score_head.")
    }
}

impl JudgeObjective<'_> {
    /// Computes the mean squared error, multiplied by scaling factors that depend on the entire
    /// batch.
    fn step(
        &self,
        judge: &SequenceScorer,
        step: u64,
        dropout: &mut Dropout,
    ) -> Result<StepGradients, TrainError> {
        let config = &self.config.steps;
        let texts = self.examples.batch(step, config.batch_size)?;
        let targets: Vec<f64> = texts.iter().map(|text| corruption_target(text.ratio)).collect();
        let (mut outputs, mut sum) = (Vec::new(), GradientSum::default());
        for part in by_tokens(&texts, config.micro_batch_tokens, |text| text.ids.len() + 1) {
            let own = &targets[outputs.len()..outputs.len() + part.len()];
            let scores = forward(judge, part, self.cls, dropout);
            outputs.extend(scores.clone().into_data().iter::<f64>());
            let own: Vec<f32> = own.iter().map(|&target| target as f32).collect();
            let own = TensorData::new(own, [part.len()]);
            let error = scores - Tensor::from_data(own, &judge.model().device());
            let loss = error.square().sum() * (1.0 / texts.len() as f64);
            finite_loss(loss.clone())?;
            sum.add(judge, GradientsParams::from_grads(loss.backward(), judge));
        }
        let mean_squared_error = mean_squared_error(&outputs, &targets);
        let factor = self.config.scaling.factor(&outputs, &targets);
        let mut gradients = sum.finish();
        if factor != 1.0 {
            gradients = scaled(judge, gradients, factor);
        }
        let parts = BTreeMap::from([
            ("mean_squared_error", mean_squared_error),
            ("loss_factor", factor),
            ("output_mean", mean(&outputs)),
            ("target_mean", mean(&targets)),
        ]);
        let tokens = texts.iter().map(|text| text.ids.len() + 1).sum();
        Ok(StepGradients { loss: factor * mean_squared_error, gradients, tokens, parts })
    }
}

/// Runs the judge. The result has shape `[texts]`.
fn forward(judge: &SequenceScorer, texts: &[Judged], cls: u32, dropout: &mut Dropout) -> Tensor<1> {
    let texts: Vec<&[u32]> = texts.iter().map(|text| text.ids.as_slice()).collect();
    judge.forward(&judge.batch(&texts, cls), dropout)
}

/// Multiplies all gradients by `factor`.
fn scaled<M: Module>(model: &M, gradients: GradientsParams, factor: f64) -> GradientsParams {
    struct Scale {
        gradients: GradientsParams,
        factor: f64,
    }
    impl ModuleVisitor for Scale {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.remove::<D>(param.id) {
                self.gradients.register(param.id, gradient * self.factor);
            }
        }
    }
    let mut scale = Scale { gradients, factor };
    model.visit(&mut scale);
    scale.gradients
}
