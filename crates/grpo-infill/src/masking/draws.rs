//! Random numbers for masking a text.

use grpo_data::CounterRng;

/// The purpose of a random number. The discriminants affect results and must never change.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Draw {
    Ratio = 1,
    OtherRatio = 2,
    Place = 3,
    Fallback = 4,
    Corruption = 5,
    Character = 6,
    Line = 7,
    ForeignLine = 8,
    Truth = 9,
    Offset = 10,
}

/// Random number generator for one attempt to mask a text.
#[derive(Clone, Copy)]
pub(crate) struct Draws {
    pub(crate) rng: CounterRng,
    pub(crate) attempt: u32,
}

impl Draws {
    pub(crate) fn uniform(&self, what: Draw, at: usize) -> f64 {
        self.rng.uniform(self.counter(what, at))
    }

    pub(crate) fn below(&self, what: Draw, at: usize, bound: usize) -> usize {
        self.rng.below(self.counter(what, at), bound as u64) as usize
    }

    /// Returns a uniformly distributed number between `least` and `most`.
    pub(crate) fn between(&self, what: Draw, least: f64, most: f64) -> f64 {
        least + (most - least) * self.uniform(what, 0)
    }

    fn counter(&self, what: Draw, at: usize) -> [u32; 4] {
        [at as u32, (at as u64 >> 32) as u32, what as u32, self.attempt]
    }
}
