//! Pass@k: the probability that at least one of k samples passes.

use std::collections::BTreeMap;

use grpo_data::statistics::mean;
use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count};
use crate::stats::{Bootstrap, Estimate};

/// The samples of a prompt and how many of them passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPasses {
    /// Number of samples, n.
    pub samples: usize,
    /// Number of samples that passed, c.
    pub passed: usize,
}

impl PromptPasses {
    /// Counts the samples that passed.
    pub fn from_outcomes(outcomes: &[bool]) -> Self {
        let passed = outcomes.iter().filter(|passed| **passed).count();
        Self { samples: outcomes.len(), passed }
    }

    /// Returns the unbiased estimate of Pass@k, 1 − C(n − c, k) / C(n, k) (Chen et al. 2021,
    /// "Evaluating Large Language Models Trained on Code"). It is the fraction of all choices of k
    /// samples in which at least one passed.
    ///
    /// `prompt` is only used in errors.
    ///
    /// # Errors
    /// Returns an error if k is 0 or larger than the number of samples, or if more samples passed
    /// than there are.
    pub fn pass_at_k(self, k: usize, prompt: usize) -> Result<f64, MeasureError> {
        let Self { samples, passed } = self;
        if passed > samples {
            return Err(MeasureError::OutOfRange {
                what: format!("passed samples of prompt {prompt}"),
                found: format!("{passed} of {samples}"),
                expected: "at most the number of samples",
            });
        }
        check_k("Pass", k, samples, prompt)?;
        // C(n − c, k) / C(n, k) is the product of 1 − k/i for i from n − c + 1 to n. It contains a
        // factor of 0 if fewer than k samples failed.
        let missed = (samples - passed + 1..=samples).map(|i| 1.0 - k.min(i) as f64 / i as f64);
        Ok(1.0 - missed.product::<f64>())
    }
}

/// Rejects a k of `measure`@k that cannot be drawn from the samples of a prompt.
pub(crate) fn check_k(
    measure: &'static str,
    k: usize,
    samples: usize,
    prompt: usize,
) -> Result<(), MeasureError> {
    if k == 0 {
        let what = format!("k of {measure}@k");
        return Err(MeasureError::OutOfRange { what, found: "0".into(), expected: "at least 1" });
    }
    if k > samples {
        return Err(MeasureError::TooFewSamples { measure, prompt, samples, k });
    }
    Ok(())
}

/// Pass@k or Majority@k over prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassAtK {
    /// Mean over prompts.
    pub value: f64,
    /// Bootstrap over prompts. `None` for a single prompt.
    pub interval: Option<Estimate>,
    /// The value of each prompt, for tests in pairs.
    pub per_prompt: Vec<f64>,
}

/// Returns Pass@k for several k. Sampling once with the largest k as the number of samples is
/// sufficient.
///
/// # Errors
/// Returns an error if there are no prompts, or if a prompt has fewer than k samples.
pub fn pass_at_k(
    prompts: &[PromptPasses],
    ks: &[usize],
    bootstrap: &Bootstrap,
) -> Result<BTreeMap<usize, PassAtK>, MeasureError> {
    over_prompts("prompts of Pass@k", prompts, ks, bootstrap, |of, k, index| of.pass_at_k(k, index))
}

/// Averages a measure of each prompt, which gets k and the index of the prompt, for several k.
pub(crate) fn over_prompts<P>(
    what: &'static str,
    prompts: &[P],
    ks: &[usize],
    bootstrap: &Bootstrap,
    measure: impl Fn(&P, usize, usize) -> Result<f64, MeasureError>,
) -> Result<BTreeMap<usize, PassAtK>, MeasureError> {
    check_count(what, prompts.len(), 1)?;
    let of_k = |&k: &usize| {
        let each = prompts.iter().enumerate().map(|(index, prompt)| measure(prompt, k, index));
        let per_prompt = each.collect::<Result<Vec<f64>, _>>()?;
        let interval = match per_prompt.len() {
            1 => None,
            _ => Some(bootstrap.mean(&per_prompt)?),
        };
        Ok((k, PassAtK { value: mean(&per_prompt), interval, per_prompt }))
    };
    ks.iter().map(of_k).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(samples: usize, passed: usize, k: usize) -> f64 {
        PromptPasses { samples, passed }.pass_at_k(k, 0).unwrap()
    }

    #[test]
    fn pass_at_k_by_hand() {
        // 1 − C(3, 2) / C(5, 2) = 1 − 3/10.
        assert!((of(5, 2, 2) - 0.7).abs() < 1e-15);
        assert!((of(10, 3, 1) - 0.3).abs() < 1e-15);
        assert_eq!((of(5, 4, 2), of(5, 0, 3), of(1, 1, 1), of(1, 0, 1)), (1.0, 0.0, 1.0, 0.0));
        // C(1000, 500) is not a finite f64 after a few more factors.
        assert!((of(2000, 1, 1000) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_k_above_the_number_of_samples_is_an_error() {
        let prompts = [[true, false].as_slice(), &[true]].map(PromptPasses::from_outcomes);
        let error = pass_at_k(&prompts, &[1, 2], &Bootstrap::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Pass@2 requires 2 samples, but prompt 1 has 1; generate more samples per prompt or use a smaller k"
        );
        assert!(PromptPasses { samples: 1, passed: 2 }.pass_at_k(1, 0).is_err());
        assert!(PromptPasses { samples: 1, passed: 1 }.pass_at_k(0, 0).is_err());
        assert!(pass_at_k(&[], &[1], &Bootstrap::default()).is_err());
    }

    #[test]
    fn the_mean_is_over_prompts() {
        let prompts =
            [PromptPasses { samples: 1, passed: 1 }, PromptPasses { samples: 4, passed: 2 }];
        let found = pass_at_k(&prompts, &[1], &Bootstrap { draws: 100, ..Bootstrap::default() });
        let found = &found.unwrap()[&1];
        assert_eq!((found.value, found.per_prompt.as_slice()), (0.75, [1.0, 0.5].as_slice()));
        let interval = found.interval.unwrap();
        assert_eq!((interval.low, interval.high), (0.5, 1.0));
        let single = pass_at_k(&prompts[..1], &[1], &Bootstrap::default()).unwrap();
        assert_eq!(single[&1].interval, None);
    }

    proptest! {
        /// Enumerates all choices of k samples.
        #[test]
        fn it_is_the_fraction_of_choices_with_a_pass(
            samples in 1_usize..10, passed in 0_usize..10, k in 1_usize..10,
        ) {
            let (passed, k) = (passed.min(samples), k.min(samples));
            let choices = (0..1_u32 << samples).filter(|choice| choice.count_ones() as usize == k);
            let (mut all, mut with) = (0, 0);
            for choice in choices {
                all += 1;
                with += u32::from(choice & ((1 << passed) - 1) != 0);
            }
            let found = of(samples, passed, k);
            prop_assert!((found - f64::from(with) / f64::from(all)).abs() < 1e-12);
            // Increases with c and with k.
            if passed < samples {
                prop_assert!(of(samples, passed + 1, k) >= found);
            }
            if k < samples {
                prop_assert!(of(samples, passed, k + 1) >= found - 1e-15);
            }
        }
    }
}
