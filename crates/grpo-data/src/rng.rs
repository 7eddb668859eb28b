//! A stateless, counter-based random number generator, used throughout the workspace.
//!
//! With a sequential generator, each number depends on how many numbers were drawn before it and
//! therefore on batching and thread count. Here, every number is a pure function of the seed, its
//! purpose, and a counter that encodes coordinates such as step, prompt, sample and position. Any
//! completion can therefore be sampled again in isolation.

use rand_philox::philox4x32_10;
use std::f64::consts::TAU;

/// The purpose of a random number. Different purposes use independent streams.
///
/// A purpose with its own numbers is a constant at its owner. Its number affects results, so it must
/// never be changed or reused; `cargo xtask tidy` checks that all of them differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose(u32);

impl Purpose {
    /// Initial model parameters.
    pub const INITIALISATION: Purpose = Purpose::new(1);
    /// The order of training items.
    pub const DATA_ORDER: Purpose = Purpose::new(2);
    /// Token sampling during training and for generation commands.
    pub const SAMPLING: Purpose = Purpose::new(3);
    /// Dropout masks.
    pub const DROPOUT: Purpose = Purpose::new(4);
    /// Evaluation, which must not affect training.
    pub const EVALUATION: Purpose = Purpose::new(5);
    /// Augmentation of training data.
    pub const AUGMENTATION: Purpose = Purpose::new(6);

    /// Creates a purpose with a number that no other purpose has.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// The Philox4x32-10 generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011), with a key derived from the seed and the purpose.
///
/// The same `(seed, purpose, counter)` always produces the same bits, regardless of platform,
/// thread or order of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRng {
    key: [u32; 2],
}

impl CounterRng {
    /// Creates a generator for `seed` and `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        // A Philox block under a fixed key compresses the 96 bits of (seed, purpose) to a 64-bit
        // key. Callers can then use all 128 bits of the counter.
        let [k0, k1, _, _] =
            philox4x32_10([seed as u32, (seed >> 32) as u32, purpose.0, 0], KEY_OF_KEYS);
        Self { key: [k0, k1] }
    }

    /// Returns 128 random bits.
    pub fn bits(&self, counter: [u32; 4]) -> [u32; 4] {
        philox4x32_10(counter, self.key)
    }

    /// Returns a uniform number in `[0, 1)` that is a multiple of 2⁻⁵³.
    pub fn uniform(&self, counter: [u32; 4]) -> f64 {
        let [a, b, _, _] = self.bits(counter);
        unit(a, b)
    }

    /// Returns a standard normal number, using Box-Muller. Its absolute value is at most 8.6.
    pub fn normal(&self, counter: [u32; 4]) -> f64 {
        let [a, b, c, d] = self.bits(counter);
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(a, b))); // 1 − u is in (0, 1]
        radius * libm::cos(TAU * unit(c, d))
    }

    /// Returns a uniform integer in `0..bound`. The bias of each probability is less than 2⁻⁶⁴.
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn below(&self, counter: [u32; 4], bound: u64) -> u64 {
        assert!(bound > 0, "the upper bound {bound} allows no random integer");
        let [a, b, _, _] = self.bits(counter);
        ((u128::from(word(a, b)) * u128::from(bound)) >> 64) as u64
    }
}

/// The key used to derive other keys. An arbitrary constant: the first digits of π.
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

    /// Test vectors for philox4x32 with 10 rounds from `kat_vectors` in Random123.
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

    /// Pins key derivation and conversions, because all results depend on them. The expected values
    /// were computed with an independent implementation in Python.
    #[test]
    fn results_stay_what_they_are() {
        let rng = CounterRng::new(42, Purpose::SAMPLING);
        assert_eq!(rng.bits([1, 2, 3, 4]), [0x48bd_e9b4, 0xc191_e2a6, 0xb67a_eb60, 0x56bd_e6ce]);
        assert_eq!(rng.uniform([1, 2, 3, 4]), 0.756_132_283_779_826_9);
        assert_eq!(rng.normal([1, 2, 3, 4]), -0.889_761_144_250_145_9);
        assert_eq!(rng.below([1, 2, 3, 4], 1000), 756);
    }

    #[test]
    fn seeds_purposes_and_counters_give_different_bits() {
        let one = CounterRng::new(1, Purpose::SAMPLING);
        assert_ne!(one.bits([0; 4]), one.bits([1, 0, 0, 0]));
        assert_ne!(one.bits([0; 4]), one.bits([0, 0, 0, 1]));
        for other in [
            CounterRng::new(2, Purpose::SAMPLING),
            CounterRng::new(1 << 32, Purpose::SAMPLING),
            CounterRng::new(1, Purpose::DROPOUT),
        ] {
            assert_ne!(one.bits([0; 4]), other.bits([0; 4]));
        }
    }

    #[test]
    fn the_largest_and_smallest_words_stay_in_range() {
        assert_eq!(unit(0, 0), 0.0);
        assert_eq!(unit(u32::MAX, u32::MAX), 1.0 - f64::EPSILON / 2.0);
    }

    /// Uses 100,000 draws and a tolerance of five standard errors.
    #[test]
    fn moments_are_those_of_the_distributions() {
        let rng = CounterRng::new(7, Purpose::EVALUATION);
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
            let rng = CounterRng::new(seed, Purpose::AUGMENTATION);
            prop_assert!((0.0..1.0).contains(&rng.uniform(counter)));
            prop_assert!(rng.normal(counter).abs() < 8.6);
            prop_assert!(rng.below(counter, bound) < bound);
        }
    }
}
