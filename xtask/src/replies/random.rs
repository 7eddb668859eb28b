//! Seeded random numbers based on SplitMix64.

/// A stream of random numbers that depends only on the seed and the coordinates. Each pair has its
/// own stream, so pairs don't affect each other.
///
/// Uses SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64, coordinates: [u64; 2]) -> Self {
        let mut state = mix(seed);
        for coordinate in coordinates {
            state = mix(state ^ coordinate.wrapping_add(GAMMA));
        }
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Returns a number in `0..count`. The bias is at most `count / 2^64`, which is negligible.
    pub(super) fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "cannot draw from an empty set");
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// Returns a random index into `weights`, with probability proportional to the weight.
    pub(super) fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: usize = weights.iter().map(|weight| *weight as usize).sum();
        let mut left = self.below(total);
        for (place, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight as usize) {
                Some(rest) => left = rest,
                None => return place,
            }
        }
        unreachable!("the drawn value is less than the sum of the weights")
    }

    /// Returns a number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal number (Box–Muller transform).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a log-normal number with the given median.
    pub(super) fn log_normal(&mut self, median: f64, spread: f64) -> f64 {
        median * (spread * self.normal()).exp()
    }

    /// Shuffles `items` uniformly (Fisher–Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of SplitMix64 for state 0, taken from the authors' C implementation.
    #[test]
    fn it_is_split_mix_64() {
        let mut random = Random { state: 0 };
        let expect = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F];
        assert_eq!([random.next(), random.next(), random.next()], expect);
    }
}
