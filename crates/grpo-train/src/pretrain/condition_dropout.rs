//! Random removal of conditions from training examples.

use grpo_data::{ConfigFault, CounterRng, Example, Prefix, Purpose, Ranges};
use grpo_model::LanguageModel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Removal of conditions from training examples.
const CONDITION_DROPOUT: Purpose = Purpose::new(13);

/// The `[pretrain.condition_dropout]` section. Removes conditions from examples, so that the model
/// can also be sampled without them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct ConditionDropout {
    /// Fraction of molecules without any property.
    #[schemars(range(min = 0, max = 1))]
    pub values: f64,
    /// Fraction of molecules without a scaffold, independently.
    #[schemars(range(min = 0, max = 1))]
    pub tokens: f64,
    /// Keep a random subset of the properties otherwise, with every size equally often; needs
    /// `partial`.
    pub subsets: bool,
}

impl Default for ConditionDropout {
    fn default() -> Self {
        Self { values: 0.1, tokens: 0.1, subsets: true }
    }
}

impl ConditionDropout {
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("pretrain.condition_dropout")
    }

    /// Checks that `model` can read the conditions of all examples, also those that are left by
    /// this dropout.
    pub(super) fn check_examples<'a, M: LanguageModel>(
        &self,
        model: &M,
        examples: impl IntoIterator<Item = &'a Example>,
    ) -> Result<(), TrainError> {
        for example in examples {
            let prefix = &example.prefix;
            let check = |prefix: &Prefix| {
                let refused = |fault| ConfigFault::from_sentence("pretrain", fault);
                model.check_prefix(prefix).map_err(refused)
            };
            check(prefix)?;
            if self.subsets && prefix.values.len() > 1 {
                let subset: Vec<Option<f32>> =
                    prefix.values.iter().enumerate().map(|(i, v)| v.filter(|_| i == 0)).collect();
                check(&Prefix { ids: Vec::new(), values: subset }).map_err(|_| {
                    ConfigFault::from_sentence(
                        "pretrain.condition_dropout.subsets",
                        "the model requires all values of a condition; set pretrain.condition_dropout.subsets = false",
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Returns a copy of an example with the conditions that are kept. They are a function of the
    /// seed, the visit and the index of the example.
    pub(super) fn apply(&self, example: &Example, seed: u64, visit: u32, index: u32) -> Example {
        let rng = CounterRng::new(seed, CONDITION_DROPOUT);
        let uniform = |draw: u32| rng.uniform([draw, index, visit, 0]);
        let mut kept = example.clone();
        let Prefix { ids, values } = &mut kept.prefix;
        if uniform(0) < self.tokens {
            ids.clear();
        }
        if uniform(1) < self.values {
            values.clear();
        } else if self.subsets && !values.is_empty() {
            let mut given: Vec<usize> =
                (0..values.len()).filter(|&i| values[i].is_some()).collect();
            let size = 1 + rng.below([2, index, visit, 0], given.len().max(1) as u64) as usize;
            given.sort_by(|&a, &b| uniform(3 + a as u32).total_cmp(&uniform(3 + b as u32)));
            given.into_iter().skip(size).for_each(|open| values[open] = None);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Example {
        let values = vec![Some(1.0), None, Some(3.0), Some(4.0)];
        let prefix = Prefix { ids: vec![5, 6], values };
        Example { prefix, ..Example::of_all(vec![0, 1, 0]) }
    }

    #[test]
    fn removes_the_configured_shares_independently() {
        let dropout = ConditionDropout { values: 0.25, tokens: 0.5, subsets: true };
        let mut counts = [0_u32; 6];
        const N: u32 = 8000;
        for index in 0..N {
            let Prefix { ids, values } = dropout.apply(&example(), 1, 3, index).prefix;
            assert!(ids.is_empty() || ids == [5, 6]);
            let given = values.iter().flatten().count();
            assert!(values.is_empty() || (values[1].is_none() && given > 0));
            counts[0] += u32::from(ids.is_empty());
            counts[1] += u32::from(values.is_empty());
            counts[2] += u32::from(ids.is_empty() && values.is_empty());
            if given > 0 {
                counts[2 + given] += 1;
            }
        }
        let expected = [0.5, 0.25, 0.125, 0.25, 0.25, 0.25];
        for (count, expected) in counts.into_iter().zip(expected) {
            let share = f64::from(count) / f64::from(N);
            // Five standard errors.
            let error = 5.0 * (expected * (1.0 - expected) / f64::from(N)).sqrt();
            assert!((share - expected).abs() < error, "{share} instead of {expected}");
        }
    }

    #[test]
    fn each_visit_has_its_own_draw_and_nothing_else_changes() {
        let dropout = ConditionDropout { values: 0.5, tokens: 0.5, subsets: false };
        let of =
            |visit| (0..32).map(|i| dropout.apply(&example(), 1, visit, i)).collect::<Vec<_>>();
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        assert!(of(0).iter().all(|kept| kept.ids == example().ids));
        let off = ConditionDropout { values: 0.0, tokens: 0.0, subsets: false };
        assert_eq!(off.apply(&example(), 1, 0, 0), example());
    }
}
