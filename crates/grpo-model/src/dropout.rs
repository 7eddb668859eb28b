//! Reproducible dropout.
//!
//! A mask depends only on the seed, the update and the position in the network. No global random
//! number generator is involved.

use burn::tensor::{Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};

/// Dropout state of a forward pass. Reinforcement learning and evaluation use [`Dropout::off`].
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Dropout probability of the model itself. Adapters have a separate one.
    probability: f32,
    source: Option<Source>,
}

#[derive(Clone, Debug)]
struct Source {
    rng: CounterRng,
    update: u32,
    /// Number of masks drawn in this pass, which identifies the position in the network.
    place: u32,
}

impl Dropout {
    /// Returns a dropout layer that leaves all elements unchanged.
    pub fn off() -> Self {
        Self { probability: 0.0, source: None }
    }

    /// Creates a dropout layer that zeroes each element with probability `probability` and scales
    /// the remaining elements to preserve the mean.
    ///
    /// # Panics
    /// Panics if `probability` is outside `0..1`.
    pub fn new(seed: u64, update: u32, probability: f32) -> Self {
        assert!(
            (0.0..1.0).contains(&probability),
            "dropout probability {probability} is out of range"
        );
        let rng = CounterRng::new(seed, Purpose::DROPOUT);
        Self { probability, source: Some(Source { rng, update, place: 0 }) }
    }

    /// Returns whether dropout applies to the model itself.
    pub(crate) fn is_on(&self) -> bool {
        self.source.is_some() && self.probability > 0.0
    }

    /// Returns whether [`Self::apply_at`] with this probability changes its input.
    pub(crate) fn drops(&self, probability: f32) -> bool {
        self.source.is_some() && probability > 0.0
    }

    /// Applies dropout to `x`.
    pub fn apply<const D: usize>(&mut self, x: Tensor<D>) -> Tensor<D> {
        self.apply_at(self.probability, x)
    }

    /// Like [`Self::apply`], but with the given probability. Does nothing if dropout is off.
    pub(crate) fn apply_at<const D: usize>(&mut self, probability: f32, x: Tensor<D>) -> Tensor<D> {
        let Some(source) = self.source.as_mut().filter(|_| probability > 0.0) else { return x };
        let n = x.shape().num_elements();
        let mask = TensorData::new(source.next_mask(probability, n), x.shape());
        let device = x.device().inner();
        x * Tensor::from_data(mask, &device)
    }
}

impl Source {
    fn next_mask(&mut self, probability: f32, n: usize) -> Vec<f32> {
        let kept = 1.0 / (1.0 - probability);
        // Compare integers: an element is dropped if its 32 random bits are below p · 2³².
        let threshold = (f64::from(probability) * 4_294_967_296.0) as u32;
        let mask = (0..n.div_ceil(4) as u64)
            .flat_map(|block| {
                self.rng.bits([block as u32, (block >> 32) as u32, self.place, self.update])
            })
            .take(n)
            .map(|bits| if bits < threshold { 0.0 } else { kept })
            .collect();
        self.place += 1;
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn masks(seed: u64, update: u32) -> [Vec<f32>; 2] {
        let mut dropout = Dropout::new(seed, update, 0.25);
        let ones = Tensor::<2>::ones([100, 101], &Device::flex());
        [dropout.apply(ones.clone()), dropout.apply(ones)]
            .map(|dropped| dropped.into_data().iter::<f32>().collect())
    }

    #[test]
    fn drops_its_share_and_keeps_the_mean() {
        let [mask, _] = masks(1, 0);
        let dropped = mask.iter().filter(|&&m| m == 0.0).count() as f64 / mask.len() as f64;
        // Five standard errors of a proportion of 0.25 in 10,100 elements.
        assert!((dropped - 0.25).abs() < 5.0 * (0.25 * 0.75 / 10_100_f64).sqrt(), "{dropped}");
        assert!(mask.iter().all(|&m| m == 0.0 || (m - 4.0 / 3.0).abs() < 1e-6));
    }

    #[test]
    fn each_place_update_and_seed_has_its_own_mask_and_each_can_be_had_again() {
        assert_eq!(masks(1, 0), masks(1, 0));
        let [first, second] = masks(1, 0);
        assert_ne!(first, second);
        assert_ne!(first, masks(1, 1)[0]);
        assert_ne!(first, masks(2, 0)[0]);
    }

    #[test]
    fn off_changes_nothing() {
        let x = Tensor::<1>::from_data([1.0, 2.0], &Device::flex());
        assert_eq!(Dropout::off().apply(x.clone()).into_data(), x.into_data());
    }
}
