//! The random number generator of the workspace: counter-based and stateless.
//!
//! The numbers of a sequential generator depend on how many were drawn before, and so on batching
//! and thread count. Here each number is a pure function of the run's seed, its purpose, and a
//! counter made from coordinates (step, prompt, sample, position; or epoch and index). Any
//! completion can therefore be sampled again alone.

use rand_philox::philox4x32_10;
use std::f64::consts::TAU;

/// The purpose of a random number. Different purposes never share numbers.
///
/// The discriminants affect results: they must never change or be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// Initial parameters.
    Initialisation = 1,
    /// The order of training items.
    DataOrder = 2,
    /// Tokens sampled during training and for the user.
    Sampling = 3,
    /// Dropout masks.
    Dropout = 4,
    /// Evaluations, which must not affect training.
    Evaluation = 5,
    /// Augmentation of training items.
    Augmentation = 6,
    /// Held-out molecules.
    DataSplit = 7,
    /// Tokens of the trial batch before training.
    Preflight = 8,
    /// Passages and masks in training.
    Masking = 9,
    /// Masks of GRPO prompts, which differ from those of pre-training.
    MaskedPrompts = 10,
    /// Splits of groups of records.
    GroupSplit = 11,
    /// Completions and examples of a diversity term.
    Diversity = 12,
}

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by
/// seed and purpose.
///
/// Equal `(seed, purpose, counter)` have equal results on every platform and thread, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRng {
    key: [u32; 2],
}

impl CounterRng {
    /// Creates the generator of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        // One Philox block under a fixed key maps the 96 bits of (seed, purpose) to the 64-bit
        // working key, so that callers have all 128 bits of the counter.
        let [k0, k1, _, _] =
            philox4x32_10([seed as u32, (seed >> 32) as u32, purpose as u32, 0], KEY_OF_KEYS);
        Self { key: [k0, k1] }
    }

    /// Returns 128 random bits.
    pub fn bits(&self, counter: [u32; 4]) -> [u32; 4] {
        philox4x32_10(counter, self.key)
    }

    /// Returns a number uniform in `[0, 1)`, a multiple of 2⁻⁵³.
    pub fn uniform(&self, counter: [u32; 4]) -> f64 {
        let [a, b, _, _] = self.bits(counter);
        unit(a, b)
    }

    /// Returns a standard normal number (Box-Muller; absolute value at most 8.6).
    pub fn normal(&self, counter: [u32; 4]) -> f64 {
        let [a, b, c, d] = self.bits(counter);
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(a, b))); // 1 − u is in (0, 1]
        radius * libm::cos(TAU * unit(c, d))
    }

    /// Returns an integer uniform in `0..bound`; each probability is off by less than 2⁻⁶⁴.
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn below(&self, counter: [u32; 4], bound: u64) -> u64 {
        assert!(bound > 0, "the upper bound {bound} allows no random integer");
        let [a, b, _, _] = self.bits(counter);
        ((u128::from(word(a, b)) * u128::from(bound)) >> 64) as u64
    }
}

/// The key that derives working keys: the first digits of π, an arbitrary constant.
const KEY_OF_KEYS: [u32; 2] = [0x243F_6A88, 0x85A3_08D3];

fn word(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unit(low: u32, high: u32) -> f64 {
    (word(low, high) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines of philox4x32 with 10 rounds in Random123's `kat_vectors`.
    #[test]
    fn block_function_gives_the_known_answers() {
        let check = |counter, key, expect: [u32; 4]| {
            assert_eq!(CounterRng { key }.bits(counter), expect);
        };
        check([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    /// Pins key derivation and conversions, on which all results depend. A second implementation in
    /// Python computed the values.
    #[test]
    fn results_stay_what_they_are() {
        let rng = CounterRng::new(42, Purpose::Sampling);
        assert_eq!(rng.bits([1, 2, 3, 4]), [0x48bd_e9b4, 0xc191_e2a6, 0xb67a_eb60, 0x56bd_e6ce]);
        assert_eq!(rng.uniform([1, 2, 3, 4]), 0.756_132_283_779_826_9);
        assert_eq!(rng.normal([1, 2, 3, 4]), -0.889_761_144_250_145_9);
        assert_eq!(rng.below([1, 2, 3, 4], 1000), 756);
    }

    #[test]
    fn seeds_purposes_and_counters_give_different_bits() {
        let one = CounterRng::new(1, Purpose::Sampling);
        assert_ne!(one.bits([0; 4]), one.bits([1, 0, 0, 0]));
        assert_ne!(one.bits([0; 4]), one.bits([0, 0, 0, 1]));
        for other in [
            CounterRng::new(2, Purpose::Sampling),
            CounterRng::new(1 << 32, Purpose::Sampling),
            CounterRng::new(1, Purpose::Dropout),
        ] {
            assert_ne!(one.bits([0; 4]), other.bits([0; 4]));
        }
    }

    #[test]
    fn the_largest_and_smallest_words_stay_in_range() {
        assert_eq!(unit(0, 0), 0.0);
        assert_eq!(unit(u32::MAX, u32::MAX), 1.0 - f64::EPSILON / 2.0);
    }

    /// 100,000 draws with bounds of five standard errors.
    #[test]
    fn moments_are_those_of_the_distributions() {
        let rng = CounterRng::new(7, Purpose::Evaluation);
        let n = 100_000;
        let check = |name: &str, values: Vec<f64>, mean: f64, sd: f64| {
            let found = values.iter().sum::<f64>() / n as f64;
            assert!(
                (found - mean).abs() < 5.0 * sd / (n as f64).sqrt(),
                "{name}: mean {found}, expected {mean}"
            );
        };
        let uniform: Vec<f64> = (0..n).map(|i| rng.uniform([i, 0, 0, 0])).collect();
        let normal: Vec<f64> = (0..n).map(|i| rng.normal([i, 1, 0, 0])).collect();
        check("uniform²", uniform.iter().map(|u| u * u).collect(), 1.0 / 3.0, 0.2981);
        check("uniform", uniform, 0.5, 0.2887);
        check("normal²", normal.iter().map(|z| z * z).collect(), 1.0, 2f64.sqrt());
        check("normal³", normal.iter().map(|z| z * z * z).collect(), 0.0, 15f64.sqrt());
        check("normal⁴", normal.iter().map(|z| z.powi(4)).collect(), 3.0, 96f64.sqrt());
        check("normal", normal, 0.0, 1.0);
    }

    proptest! {
        #[test]
        fn every_draw_is_in_range(seed: u64, counter: [u32; 4], bound in 1u64..) {
            let rng = CounterRng::new(seed, Purpose::Augmentation);
            prop_assert!((0.0..1.0).contains(&rng.uniform(counter)));
            prop_assert!(rng.normal(counter).abs() < 8.6);
            prop_assert!(rng.below(counter, bound) < bound);
        }
    }
}
