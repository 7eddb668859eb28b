//! Transfer learning from a pre-trained trunk, which can be frozen initially.

use grpo_data::{ConfigFault, Ranges};
use std::collections::BTreeSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use grpo_model::parameters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::in_range;

/// Settings for a pre-trained trunk, i.e. the embeddings, blocks and final norm without the new
/// heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct TransferConfig {
    /// Freeze embeddings, blocks and final norm; train only the critic, or the head of a judge.
    pub freeze_trunk: bool,
    /// First step, counted from 0, that trains them again; needs `freeze_trunk`. At most
    /// steps − 1.
    pub unfreeze_at_step: Option<u64>,
    /// Multiplies their learning rate from then on; needs `unfreeze_at_step`.
    #[schemars(range(min = 0, max = 1000))]
    pub unfreeze_learning_rate_factor: Option<f64>,
}

const UNFREEZE_LEARNING_RATE_FACTOR: f64 = 0.1;

impl TransferConfig {
    /// Validates the settings for a run of `steps` steps. `section` is the name of the
    /// configuration section.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range or has no effect.
    pub fn check(&self, section: &str, steps: u64) -> Result<(), ConfigFault> {
        self.check_ranges(section)?;
        match (self.unfreeze_at_step, self.unfreeze_learning_rate_factor) {
            (Some(_), _) if !self.freeze_trunk => Err(ConfigFault::new(
                format!("{section}.unfreeze_at_step"),
                format!(
                    "{section}.unfreeze_at_step has no effect without {section}.freeze_trunk = true"
                ),
                "remove it, or freeze the trunk",
            )),
            (Some(first), _) => {
                let last = steps.saturating_sub(1) as f64;
                in_range(&format!("{section}.unfreeze_at_step"), first as f64, 0.0..=last)
            }
            (None, Some(_)) => Err(ConfigFault::new(
                format!("{section}.unfreeze_learning_rate_factor"),
                format!(
                    "{section}.unfreeze_learning_rate_factor has no effect without {section}.unfreeze_at_step"
                ),
                "remove it, or set the step at which the trunk is unfrozen",
            )),
            (None, None) => Ok(()),
        }
    }

    /// Returns whether the trunk is frozen in `step`, counted from 0.
    pub fn is_frozen(&self, step: u64) -> bool {
        self.freeze_trunk && self.unfreeze_at_step.is_none_or(|first| step < first)
    }
}

/// Trunk parameters, if they are treated differently from the rest.
pub(crate) struct Trunk {
    config: TransferConfig,
    ids: BTreeSet<ParamId>,
}

impl Trunk {
    /// Selects trunk parameters by path.
    pub(crate) fn new<M: Module>(
        model: &M,
        config: &TransferConfig,
        is_of_trunk: impl Fn(&str) -> bool,
    ) -> Self {
        let ids = match config.freeze_trunk {
            false => BTreeSet::new(),
            true => {
                let all = parameters(model).into_iter();
                all.filter(|parameter| is_of_trunk(&parameter.path)).map(|found| found.id).collect()
            }
        };
        Self { config: *config, ids }
    }

    /// Returns the gradients to apply in `step`.
    pub(crate) fn admit<M: Module>(
        &self,
        model: &M,
        gradients: GradientsParams,
        step: u64,
    ) -> GradientsParams {
        if !self.config.is_frozen(step) {
            return gradients;
        }
        let mut without = Without { ids: &self.ids, gradients };
        model.visit(&mut without);
        without.gradients
    }

    /// Returns the trunk parameters and the factor for their learning rate.
    pub(crate) fn learning_rate_factor(&self) -> (BTreeSet<ParamId>, f64) {
        let factor = self.config.unfreeze_learning_rate_factor;
        (self.ids.clone(), factor.unwrap_or(UNFREEZE_LEARNING_RATE_FACTOR))
    }
}

struct Without<'a> {
    ids: &'a BTreeSet<ParamId>,
    gradients: GradientsParams,
}

impl ModuleVisitor for Without<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.ids.contains(&param.id) {
            let _not_followed = self.gradients.remove::<D>(param.id);
        }
    }
}
