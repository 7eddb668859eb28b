//! AdamW optimizer.

use grpo_data::{ConfigFault, Ranges};
use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_kernels::{AdamW, AdamWUpdates, SquaredNorm};
use grpo_model::{Parameter, StoredTensors, linear_weights, parameters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// AdamW settings (Loshchilov & Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Maximum of the schedule. The default for n parameters is 1e-6 · (1.7e9/n)^0.75, ten times as
    /// much for an adapter, and at most 1e-3: 6.7e-6 and 6.7e-5 for 135 million, 2.2e-6 and 2.2e-5
    /// for 0.6 billion. For models of 50 million parameters or more, a value above three times or
    /// below a twentieth of it is reported at the start and by `--check`.
    #[schemars(range(min = 0, max = 1), extend("x-basic" = true))]
    pub learning_rate: f64,
    /// Decay rates of AdamW's moments.
    #[serde(default = "default_betas")]
    #[schemars(inner(range(min = 0, max = 0.999999)))]
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    #[serde(default = "default_epsilon")]
    #[schemars(range(min = 1e-20, max = 1))]
    pub epsilon: f64,
    /// Decoupled weight decay.
    #[serde(default = "default_weight_decay")]
    #[schemars(range(min = 0, max = 10))]
    pub weight_decay: f64,
    /// Matrices of linear layers (including an untied head) and of adapters; or all parameters, as
    /// `torch.optim.AdamW(model.parameters())`.
    #[serde(default)]
    pub weight_decay_on: Decayed,
    /// Maximum global gradient norm.
    #[serde(default = "default_max_grad_norm")]
    #[schemars(range(min = 1e-6))]
    pub max_grad_norm: f64,
}

/// Parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decayed {
    /// Weight matrices in linear layers and adapters. Biases, norms, token embeddings and positions
    /// are excluded.
    #[default]
    Linear,
    /// All parameters, like `torch.optim.AdamW(model.parameters())`.
    All,
}

const fn default_betas() -> [f64; 2] {
    [0.9, 0.95]
}
const fn default_epsilon() -> f64 {
    1e-8
}
const fn default_weight_decay() -> f64 {
    0.1
}
const fn default_max_grad_norm() -> f64 {
    1.0
}

impl OptimizerConfig {
    /// Creates the default settings with this learning rate.
    pub const fn new(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            betas: default_betas(),
            epsilon: default_epsilon(),
            weight_decay: default_weight_decay(),
            weight_decay_on: Decayed::Linear,
            max_grad_norm: default_max_grad_norm(),
        }
    }

    /// Validates the settings. `section` is the name of the configuration section.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        self.check_ranges(section)
    }
}

/// AdamW optimizer for a model.
#[derive(Clone, Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    /// Parameters with weight decay, or `None` if it applies to all parameters.
    decayed: Option<BTreeSet<ParamId>>,
    /// Parameters with a scaled learning rate, and the scaling factor.
    factor: (BTreeSet<ParamId>, f64),
    /// Optimizer state for each parameter that has received a gradient.
    moments: BTreeMap<ParamId, Moments>,
}

/// Optimizer state for a parameter.
#[derive(Clone, Debug)]
struct Moments {
    /// Number of steps in which the parameter had a gradient.
    steps: u32,
    /// Moving averages of the gradient and the squared gradient, each `[elements]`.
    means: [Tensor<1>; 2],
}

/// Gradients with a finite norm.
pub(crate) struct Admitted {
    gradients: GradientsParams,
    /// Global norm before clipping.
    pub(crate) norm: f64,
}

impl Optimizer {
    /// Creates an optimizer with empty state.
    pub fn new<M: Module>(model: &M, config: &OptimizerConfig) -> Self {
        let decayed = match config.weight_decay_on {
            Decayed::All => None,
            Decayed::Linear => Some(linear_weights(model).into_iter().collect()),
        };
        let factor = (BTreeSet::new(), 1.0);
        Self { config: *config, decayed, factor, moments: BTreeMap::new() }
    }

    /// Scales the learning rate for some of the parameters.
    #[must_use]
    pub(crate) fn with_factor(self, factor: (BTreeSet<ParamId>, f64)) -> Self {
        Self { factor, ..self }
    }

    /// Clips `gradients` by their global norm and updates the parameters. Returns the norm before
    /// clipping.
    ///
    /// Parameters are updated in place if their memory is not shared with a clone of the model or a
    /// frozen snapshot.
    ///
    /// # Errors
    /// Returns an error if the norm is not finite. No parameters are changed in this case.
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

    /// Computes the norm of the gradients. This is the first half of a step.
    ///
    /// # Errors
    /// Returns an error if the norm is not finite.
    pub(crate) fn admit<M: Module>(
        model: &M,
        gradients: GradientsParams,
    ) -> Result<Admitted, TrainError> {
        let mut squares = Squares { gradients: &gradients, norm: SquaredNorm::default() };
        model.visit(&mut squares);
        let norm = squares.norm.total().sqrt();
        if !norm.is_finite() {
            return Err(TrainError::Diverged { what: "gradient norm", value: norm });
        }
        Ok(Admitted { gradients, norm })
    }

    /// Clips and applies the gradients. This is the second half of a step, which cannot fail.
    pub(crate) fn apply<M: Module>(
        &mut self,
        model: M,
        admitted: Admitted,
        learning_rate: f64,
    ) -> M {
        let Admitted { gradients, norm } = admitted;
        // Burn clips each tensor separately, which would change the direction of the update.
        let clip =
            if norm > self.config.max_grad_norm { self.config.max_grad_norm / norm } else { 1.0 };
        let updates = AdamWUpdates::default();
        let mut step = Step { optimizer: self, gradients, learning_rate, clip, updates };
        let model = model.map(&mut step);
        step.updates.finish();
        model
    }
}

/// Optimizer state by parameter path. Moving averages are named `exp_avg.PATH` and
/// `exp_avg_sq.PATH` as in PyTorch.
pub(crate) struct Remembered<T> {
    /// Number of steps in which each parameter had a gradient.
    pub(crate) steps: BTreeMap<String, u32>,
    pub(crate) means: T,
}

/// Returns the names under which the moving averages of a parameter are stored.
fn names_of_means(path: &str) -> [String; 2] {
    [format!("exp_avg.{path}"), format!("exp_avg_sq.{path}")]
}

impl Optimizer {
    /// Returns all state that the next step depends on, except for the settings.
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

    /// Restores a saved state.
    ///
    /// # Errors
    /// Returns an error if the state was saved with a different model.
    pub(crate) fn restore<M: Module>(
        &mut self,
        model: &M,
        remembered: Remembered<BTreeMap<String, TensorData>>,
    ) -> Result<(), String> {
        let Remembered { mut steps, mut means } = remembered;
        let device = model.devices().into_iter().next().expect("the model has parameters").inner();
        let mut moments = BTreeMap::new();
        for parameter in parameters(model) {
            let (id, path) = (parameter.id, &parameter.path);
            let Some(steps) = steps.remove(path) else { continue };
            let mut mean = |name: String| -> Result<Tensor<1>, String> {
                let data = means.remove(&name).ok_or_else(|| format!("'{name}' is missing"))?;
                let (found, expected) = (data.num_elements(), parameter.num_elements());
                if found != expected {
                    return Err(format!("'{name}' has {found} values, but {path} has {expected}"));
                }
                Ok(Tensor::from_data(data, &device))
            };
            let [first, second] = names_of_means(path);
            moments.insert(id, Moments { steps, means: [mean(first)?, mean(second)?] });
        }
        if let Some(name) = steps.into_keys().chain(means.into_keys()).next() {
            return Err(format!("'{name}' does not belong to a parameter of the model"));
        }
        self.moments = moments;
        Ok(())
    }
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    norm: SquaredNorm,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.norm.add(gradient);
        }
    }
}

struct Step<'a> {
    optimizer: &'a mut Optimizer,
    gradients: GradientsParams,
    learning_rate: f64,
    /// Factor by which gradients are scaled for clipping.
    clip: f64,
    updates: AdamWUpdates,
}

impl ModuleMapper for Step<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        let Some(gradient) = self.gradients.remove::<D>(id) else { return param };
        param.map(|value| {
            let learns = value.is_require_grad();
            let updated = self.update(id, value.inner(), gradient);
            Tensor::from_inner(updated).set_require_grad(learns)
        })
    }
}

impl Step<'_> {
    /// Returns the updated parameter.
    fn update<const D: usize>(
        &mut self,
        id: ParamId,
        value: Tensor<D>,
        gradient: Tensor<D>,
    ) -> Tensor<D> {
        let optimizer = &mut *self.optimizer;
        let shape = value.dims();
        let elements = value.shape().num_elements();
        let zeros = || Tensor::zeros([elements], (&value.device(), value.dtype()));
        // Remove the entry so that the moving averages are uniquely owned.
        let before = optimizer.moments.remove(&id);
        let Moments { steps, means } =
            before.unwrap_or_else(|| Moments { steps: 0, means: [zeros(), zeros()] });
        let is_decayed = optimizer.decayed.as_ref().is_none_or(|decayed| decayed.contains(&id));
        let factor = if optimizer.factor.0.contains(&id) { optimizer.factor.1 } else { 1.0 };
        let step = AdamW {
            learning_rate: self.learning_rate * factor,
            betas: optimizer.config.betas,
            epsilon: optimizer.config.epsilon,
            weight_decay: if is_decayed { optimizer.config.weight_decay } else { 0.0 },
            step: steps + 1,
            gradient_scale: self.clip,
        };
        let means = means.map(|mean| mean.reshape(shape));
        let (value, means) = self.updates.add(value, gradient, means, &step);
        let means = means.map(|mean| mean.flatten(0, D - 1));
        optimizer.moments.insert(id, Moments { steps: steps + 1, means });
        value
    }
}
