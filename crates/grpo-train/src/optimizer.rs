//! AdamW.

use grpo_data::ConfigFault;
use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_kernels::{AdamW, adamw_step, squared_norm};
use grpo_model::{Parameter, StoredTensors, linear_weights, parameters};
use serde::{Deserialize, Serialize};

use crate::error::{TrainError, in_range};

/// Settings of AdamW (Loshchilov & Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Highest learning rate of the schedule.
    pub learning_rate: f64,
    /// Decay of the two moments.
    #[serde(default = "default_betas")]
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// Weight decay, decoupled from the gradient.
    #[serde(default = "default_weight_decay")]
    pub weight_decay: f64,
    /// What it is applied to.
    #[serde(default)]
    pub weight_decay_on: Decayed,
    /// Gradients are scaled down to this norm, taken over all of them together.
    #[serde(default = "default_max_grad_norm")]
    pub max_grad_norm: f64,
}

/// The parameters that weight decay is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decayed {
    /// The matrices of linear layers and of adapters; biases, norms, embeddings and positions have none.
    #[default]
    Linear,
    /// Every parameter, as `torch.optim.AdamW(model.parameters())` has it.
    All,
}

fn default_betas() -> [f64; 2] {
    [0.9, 0.95]
}
fn default_epsilon() -> f64 {
    1e-8
}
fn default_weight_decay() -> f64 {
    0.1
}
fn default_max_grad_norm() -> f64 {
    1.0
}

impl OptimizerConfig {
    /// Checks ranges; `section` names the place in the configuration.
    ///
    /// # Errors
    /// The first key that is out of its range.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        in_range(&key("learning_rate"), self.learning_rate, 0.0..=1.0)?;
        in_range(&key("betas[0]"), self.betas[0], 0.0..=0.999_999)?;
        in_range(&key("betas[1]"), self.betas[1], 0.0..=0.999_999)?;
        in_range(&key("epsilon"), self.epsilon, 1e-20..=1.0)?;
        in_range(&key("weight_decay"), self.weight_decay, 0.0..=10.0)?;
        in_range(&key("max_grad_norm"), self.max_grad_norm, 1e-6..=f64::MAX)
    }
}

/// AdamW over a whole model.
#[derive(Clone, Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    /// The parameters that weight decay is for; `None`: all of them.
    decayed: Option<BTreeSet<ParamId>>,
    /// Parameters with a learning rate of their own, as a factor.
    factor: (BTreeSet<ParamId>, f64),
    /// Of each parameter that has had a gradient.
    moments: BTreeMap<ParamId, Moments>,
}

/// What AdamW keeps of a parameter.
#[derive(Clone, Debug)]
struct Moments {
    /// Steps that it had a gradient in.
    steps: u32,
    /// Decaying means of the gradient and of its square, `[elements]` each.
    means: [Tensor<1>; 2],
}

/// Gradients whose norm is finite.
pub(crate) struct Admitted {
    gradients: GradientsParams,
    /// Of all of them together, before clipping.
    pub(crate) norm: f64,
}

impl Optimizer {
    /// A fresh optimizer for `model`.
    pub fn new<M: Module>(model: &M, config: &OptimizerConfig) -> Self {
        let decayed = match config.weight_decay_on {
            Decayed::All => None,
            Decayed::Linear => Some(linear_weights(model).into_iter().collect()),
        };
        let factor = (BTreeSet::new(), 1.0);
        Self { config: *config, decayed, factor, moments: BTreeMap::new() }
    }

    /// The learning rate of these parameters is multiplied by this factor.
    #[must_use]
    pub(crate) fn with_factor(self, factor: (BTreeSet<ParamId>, f64)) -> Self {
        Self { factor, ..self }
    }

    /// One step along `gradients`, clipped by their global norm; also gives that norm before clipping.
    ///
    /// Parameters whose storage nobody else holds (no clone of the model, no frozen snapshot) change in place.
    ///
    /// # Errors
    /// A norm that is not finite: nothing has changed.
    pub fn step<M: Module>(
        &mut self,
        model: M,
        gradients: GradientsParams,
        learning_rate: f64,
    ) -> Result<(M, f64), TrainError> {
        let admitted = Self::admit(&model, gradients)?;
        let norm = admitted.norm;
        Ok((self.apply(model, admitted, learning_rate), norm))
    }

    /// The first half of a step: whether the gradients are such that there can be one.
    ///
    /// # Errors
    /// A norm that is not finite.
    pub(crate) fn admit<M: Module>(
        model: &M,
        gradients: GradientsParams,
    ) -> Result<Admitted, TrainError> {
        let mut squares = Squares { gradients: &gradients, sum: 0.0 };
        model.visit(&mut squares);
        let norm = squares.sum.sqrt();
        if !norm.is_finite() {
            return Err(TrainError::Diverged { what: "gradient norm", value: norm });
        }
        Ok(Admitted { gradients, norm })
    }

    /// The second half of a step, which cannot fail.
    pub(crate) fn apply<M: Module>(
        &mut self,
        model: M,
        admitted: Admitted,
        learning_rate: f64,
    ) -> M {
        let Admitted { gradients, norm } = admitted;
        // Burn's own clipping is of each tensor by itself, which bends the direction of the step.
        let clip =
            if norm > self.config.max_grad_norm { self.config.max_grad_norm / norm } else { 1.0 };
        model.map(&mut Step { optimizer: self, gradients, learning_rate, clip })
    }
}

/// What an optimizer remembers, by the paths of the parameters; `exp_avg.PATH` and `exp_avg_sq.PATH` are the names of
/// the decaying means, as PyTorch calls them.
pub(crate) struct Remembered<T> {
    /// Steps that each parameter had a gradient in.
    pub(crate) steps: BTreeMap<String, u32>,
    pub(crate) means: T,
}

/// Names of the two means of a parameter.
fn names_of_means(path: &str) -> [String; 2] {
    [format!("exp_avg.{path}"), format!("exp_avg_sq.{path}")]
}

impl Optimizer {
    /// All that the next step depends on besides the settings.
    pub(crate) fn remembered<M: Module>(&self, model: &M) -> Remembered<StoredTensors> {
        let (mut steps, mut means) = (BTreeMap::new(), Vec::new());
        for Parameter { id, path, .. } in parameters(model) {
            if let Some(moments) = self.moments.get(&id) {
                means.extend(names_of_means(&path).into_iter().zip(moments.means.clone()));
                steps.insert(path, moments.steps);
            }
        }
        Remembered { steps, means: StoredTensors::named(means) }
    }

    /// Goes on from there.
    ///
    /// # Errors
    /// In words, where it was remembered of another model.
    pub(crate) fn restore<M: Module>(
        &mut self,
        model: &M,
        remembered: Remembered<BTreeMap<String, TensorData>>,
    ) -> Result<(), String> {
        let Remembered { mut steps, mut means } = remembered;
        let device = model.devices().into_iter().next().expect("a model has parameters").inner();
        let mut moments = BTreeMap::new();
        for parameter in parameters(model) {
            let (id, path) = (parameter.id, &parameter.path);
            let Some(steps) = steps.remove(path) else { continue };
            let mut mean = |name: String| -> Result<Tensor<1>, String> {
                let data = means.remove(&name).ok_or_else(|| format!("'{name}' is not there"))?;
                let (found, expected) = (data.num_elements(), parameter.num_elements());
                if found != expected {
                    return Err(format!("'{name}' has {found} numbers, and {path} {expected}"));
                }
                Ok(Tensor::from_data(data, &device))
            };
            let [first, second] = names_of_means(path);
            moments.insert(id, Moments { steps, means: [mean(first)?, mean(second)?] });
        }
        if let Some(name) = steps.into_keys().chain(means.into_keys()).next() {
            return Err(format!("'{name}' belongs to no parameter of the model"));
        }
        self.moments = moments;
        Ok(())
    }
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.sum += squared_norm(gradient);
        }
    }
}

struct Step<'a> {
    optimizer: &'a mut Optimizer,
    gradients: GradientsParams,
    learning_rate: f64,
    /// What gradients are multiplied by.
    clip: f64,
}

impl ModuleMapper for Step<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        let Some(gradient) = self.gradients.remove::<D>(id) else { return param };
        param.map(|value| {
            let learns = value.is_require_grad();
            let updated =
                self.optimizer.update(id, value.inner(), gradient, self.learning_rate, self.clip);
            Tensor::from_inner(updated).set_require_grad(learns)
        })
    }
}

impl Optimizer {
    /// One parameter after a step.
    fn update<const D: usize>(
        &mut self,
        id: ParamId,
        value: Tensor<D>,
        gradient: Tensor<D>,
        learning_rate: f64,
        clip: f64,
    ) -> Tensor<D> {
        let shape = value.dims();
        let elements = value.shape().num_elements();
        let zeros = || Tensor::zeros([elements], (&value.device(), value.dtype()));
        // Taken out, so that nobody else holds the means.
        let before = self.moments.remove(&id);
        let Moments { steps, means } =
            before.unwrap_or_else(|| Moments { steps: 0, means: [zeros(), zeros()] });
        let is_decayed = self.decayed.as_ref().is_none_or(|decayed| decayed.contains(&id));
        let factor = if self.factor.0.contains(&id) { self.factor.1 } else { 1.0 };
        let step = AdamW {
            learning_rate: learning_rate * factor,
            betas: self.config.betas,
            epsilon: self.config.epsilon,
            weight_decay: if is_decayed { self.config.weight_decay } else { 0.0 },
            step: steps + 1,
            gradient_scale: clip,
        };
        let means = means.map(|mean| mean.reshape(shape));
        let (value, means) = adamw_step(value, gradient, means, &step);
        let means = means.map(|mean| mean.flatten(0, D - 1));
        self.moments.insert(id, Moments { steps: steps + 1, means });
        value
    }
}
