//! Loss inputs as plain numbers.

use crate::dual::{Dual, Variable, largest_exponent};
use crate::mismatch::tokens_per_quotient;
use crate::terms::SamplingTerms;
use crate::{BatchTotals, HighEntropy, KlConfig, MismatchCorrection, RatioLevel};

/// Loss inputs for the action tokens of several sequences. Sequences are packed one after another
/// without padding.
#[derive(Clone, Copy, Debug)]
pub struct HostInputs<'a> {
    /// `log π_θ` for each token, `[n]`.
    pub logprobs: &'a [f64],
    /// Sequence index for each token, `[n]`, in ascending order.
    pub rows: &'a [usize],
    /// Advantage for each sequence, `[b]`. Sequences without tokens are allowed.
    pub advantages: &'a [f64],
    /// `log π_old`, `[n]`. `None` for the first update after sampling, because π_old equals π_θ.
    pub old_logprobs: Option<&'a [f64]>,
    /// `log π_ref`, `[n]`. Required if the KL penalty is part of the loss.
    pub ref_logprobs: Option<&'a [f64]>,
    /// Log-probabilities recorded by the sampler, `[n]`. Required for mismatch correction.
    pub sampling_logprobs: Option<&'a [f64]>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[n]`. Required by [`crate::KlEstimator::Exact`].
    pub exact_kl: Option<&'a [f64]>,
    /// Entropy of π_θ in nats for each token, `[n]`. Required for the high-entropy mask and the
    /// entropy bonus.
    pub entropies: Option<&'a [f64]>,
    /// Entropy bonus coefficient for this update, usually [`crate::EntropyController::coef`]. 0
    /// disables the bonus.
    pub entropy_coef: f64,
    /// Largest number in the format in which the derivatives are used: `f64::MAX`, or that of f32 or
    /// a smaller one.
    pub largest: f64,
}

/// A single sequence in [`HostInputs`].
pub(crate) struct Sequence<'a> {
    pub(crate) advantage: f64,
    pub(crate) logprobs: &'a [f64],
    /// Equal to `log π_θ` on the first update. The ratios are then exactly 1 but still have
    /// derivatives.
    pub(crate) old: &'a [f64],
    sampling: Option<&'a [f64]>,
    entropies: Option<&'a [f64]>,
    reference: Option<&'a [f64]>,
    exact_kl: Option<&'a [f64]>,
    largest_exponent: f64,
}

impl<'a> HostInputs<'a> {
    /// Creates f64 inputs for a first update without a reference. Other inputs can be set through
    /// the fields.
    pub fn on_policy(logprobs: &'a [f64], rows: &'a [usize], advantages: &'a [f64]) -> Self {
        Self {
            logprobs,
            rows,
            advantages,
            old_logprobs: None,
            ref_logprobs: None,
            sampling_logprobs: None,
            exact_kl: None,
            entropies: None,
            entropy_coef: 0.0,
            largest: f64::MAX,
        }
    }

    /// # Panics
    /// Panics if an input per token differs in length from `logprobs`, if `rows` is not ascending, or
    /// if a sequence in `rows` has no advantage.
    pub(crate) fn check(&self) {
        let tokens = self.logprobs.len();
        assert_eq!(self.rows.len(), tokens, "each token belongs to a sequence");
        assert!(self.rows.is_sorted(), "the tokens of a sequence are adjacent");
        let sequences = self.rows.last().map_or(0, |last| last + 1);
        assert!(sequences <= self.advantages.len(), "each sequence has an advantage");
        let of_tokens = [
            self.old_logprobs,
            self.ref_logprobs,
            self.sampling_logprobs,
            self.exact_kl,
            self.entropies,
        ];
        for found in of_tokens.into_iter().flatten() {
            assert_eq!(found.len(), tokens, "each token has one value of each input");
        }
    }

    /// Returns the number of sequences and the number of tokens.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.advantages.len(), self.logprobs.len()]
    }

    /// Returns the high-entropy mask, with the threshold rounded to the precision of the entropies.
    pub(crate) fn high_entropy(&self, totals: &BatchTotals) -> HighEntropy {
        let kept = totals.high_entropy.expect("a high-entropy mask requires a threshold");
        match self.largest > f64::from(f32::MAX) {
            true => kept,
            false => HighEntropy { threshold: f64::from(kept.threshold as f32), ..kept },
        }
    }

    /// Returns the weight of each token entropy in the bonus, or `None` if the bonus is disabled.
    pub(crate) fn entropy_bonus(&self, totals: &BatchTotals) -> Option<f64> {
        let coef = Some(self.entropy_coef).filter(|&coef| coef != 0.0)?;
        assert!(self.entropies.is_some(), "an entropy bonus requires entropies");
        Some(coef / totals.bonus_tokens().max(1) as f64)
    }

    pub(crate) fn sequences(&self) -> impl Iterator<Item = Sequence<'a>> {
        let inputs = *self;
        let largest_exponent = largest_exponent(inputs.largest);
        let mut end = 0;
        inputs.advantages.iter().enumerate().map(move |(row, &advantage)| {
            let start = end;
            end += inputs.rows[start..].iter().take_while(|&&own| own == row).count();
            let of_row = |values: &'a [f64]| &values[start..end];
            let logprobs = of_row(inputs.logprobs);
            Sequence {
                advantage,
                logprobs,
                old: inputs.old_logprobs.map_or(logprobs, of_row),
                sampling: inputs.sampling_logprobs.map(of_row),
                reference: inputs.ref_logprobs.map(of_row),
                entropies: inputs.entropies.map(of_row),
                exact_kl: inputs.exact_kl.map(of_row),
                largest_exponent,
            }
        })
    }
}

impl Sequence<'_> {
    pub(crate) fn len(&self) -> usize {
        self.logprobs.len()
    }

    /// Returns `log π_θ` for a token.
    pub(crate) fn logprob(&self, t: usize) -> Dual {
        Dual::variable(self.logprobs[t], Variable::Logprob)
    }

    /// Returns `log π_θ − log π_old` for each token.
    pub(crate) fn log_ratios(&self) -> Vec<f64> {
        difference(self.logprobs, self.old)
    }

    /// Returns the importance ratio ρ for each token.
    pub(crate) fn ratios(&self, level: RatioLevel) -> Vec<Dual> {
        let (log_ratios, shared) = (self.log_ratios(), level.tokens_sharing(self.len()));
        let ratio = |tokens: &[f64]| {
            let mean = tokens.iter().sum::<f64>() / tokens.len() as f64;
            let exponent = Dual::variable(mean, Variable::LogRatio);
            exponent.min(Dual::constant(self.largest_exponent)).exp()
        };
        let ratios = log_ratios.chunks(shared);
        ratios.flat_map(|tokens| std::iter::repeat_n(ratio(tokens), tokens.len())).collect()
    }

    /// Returns the corrected `π_old / π_sampler` for each token, or `None` if the sampler did not
    /// record log-probabilities.
    pub(crate) fn sampling(
        &self,
        correction: Option<&MismatchCorrection>,
    ) -> Option<Vec<SamplingTerms>> {
        assert!(
            correction.is_none() || self.sampling.is_some(),
            "a mismatch correction requires the sampler's log-probabilities"
        );
        let sampling = self.sampling?;
        let log_quotients = difference(self.old, sampling);
        let shared = tokens_per_quotient(correction, self.len());
        let products = log_quotients.chunks(shared).flat_map(|tokens| {
            let product = tokens.iter().sum::<f64>().exp();
            std::iter::repeat_n(product, tokens.len())
        });
        let tokens = sampling.iter().zip(&log_quotients).zip(products);
        let terms = tokens.map(|((&logprob, &log_quotient), quotient)| SamplingTerms {
            logprob,
            log_quotient,
            quotient,
            weight: correction.map(|correction| correction.apply(quotient)),
        });
        Some(terms.collect())
    }

    pub(crate) fn entropy(&self, t: usize) -> Option<f64> {
        Some(self.entropies?[t])
    }

    /// Returns the mean of `log π_behaviour − log π_θ`, where the behaviour policy is either the
    /// sampler or π_old.
    pub(crate) fn mean_distance(&self, is_from_sampler: bool) -> f64 {
        let behaviour = self.sampling.filter(|_| is_from_sampler).unwrap_or(self.old);
        difference(behaviour, self.logprobs).iter().sum::<f64>() / self.len() as f64
    }

    /// Returns the KL estimate for a token, or `None` if there is no reference.
    pub(crate) fn kl(&self, t: usize, ratio: Dual, config: &KlConfig) -> Option<Dual> {
        let e = Dual::constant(self.reference?[t]) - self.logprob(t);
        let exact = self.exact_kl.map(|exact| Dual::variable(exact[t], Variable::ExactKl));
        Some(config.estimate(e, exact, ratio, self.largest_exponent))
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
