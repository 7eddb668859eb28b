//! Generates reproducible test cases, which are the same on every machine.

/// Uniform random numbers, determined by suite, case and counter (Steele et al. 2014, SplitMix64).
pub struct Draws {
    key: u64,
    count: u64,
}

impl Draws {
    /// Starts the numbers of a case of a suite.
    pub fn new(suite: u64, case: usize) -> Self {
        Self { key: mixed(mixed(suite) ^ case as u64), count: 0 }
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.count += 1;
        let bits = mixed(self.key.wrapping_add(self.count.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns an integer in `low..=high`.
    pub fn whole(&mut self, low: usize, high: usize) -> usize {
        low + (self.unit() * (high - low + 1) as f64) as usize
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns one of the choices, each with the same probability.
    ///
    /// # Panics
    /// Panics if there are no choices.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.whole(0, choices.len() - 1)].clone()
    }
}

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
