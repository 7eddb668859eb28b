//! Preferences between two replies to the same tweet.

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Tensor, TensorData};

use super::target::EngagementReply;

/// A preference between two replies to the same tweet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preference {
    /// Index of the better reply.
    pub(super) better: usize,
    pub(super) worse: usize,
    /// Minimum difference between the logits of the two replies.
    pub(super) margin: f64,
}

/// Returns pairs of replies to the same tweet that are adjacent when sorted by their preference
/// score `e`. Replies with equal scores are not paired.
///
/// The margin is `margin · ln((1 + e_better) / (1 + e_worse))`. The logarithm is used because likes
/// vary by orders of magnitude. Otherwise, a few replies would dominate the loss.
pub(super) fn neighbours(replies: &[EngagementReply], margin: f64) -> Vec<Preference> {
    let mut places: Vec<usize> = (0..replies.len()).collect();
    // The sort is stable, so ties remain in file order.
    places.sort_by(|&a, &b| {
        let (a, b) = (&replies[a], &replies[b]);
        a.tweet.cmp(&b.tweet).then(b.preference.total_cmp(&a.preference))
    });
    let pairs = places.windows(2).filter_map(|pair| {
        let [better, worse] = [&replies[pair[0]], &replies[pair[1]]];
        let differ = better.tweet == worse.tweet && better.preference > worse.preference;
        let margin = margin * (better.preference.ln_1p() - worse.preference.ln_1p());
        differ.then_some(Preference { better: pair[0], worse: pair[1], margin })
    });
    pairs.collect()
}

/// Returns the mean of `−ln σ(z_better − z_worse − margin)` over all pairs (Bradley & Terry 1952).
/// The margin follows Touvron et al. 2023, "Llama 2", equation 2.
///
/// # Shapes
/// `logits` is `[2 · pairs]`, with the better replies first. The result is `[1]`.
pub(super) fn bradley_terry(logits: Tensor<1>, pairs: &[&Preference]) -> Tensor<1> {
    let n = pairs.len();
    let margins: Vec<f32> = pairs.iter().map(|pair| pair.margin as f32).collect();
    let margins = Tensor::from_data(TensorData::new(margins, [n]), &logits.device());
    let (better, worse) = (logits.clone().narrow(0, 0, n), logits.narrow(0, n, n));
    log_sigmoid(better - worse - margins).mean().neg()
}

/// Returns the loss of a single pair, given the logits of all replies.
pub(super) fn bradley_terry_loss(pair: &Preference, logits: &[f64]) -> f64 {
    let ahead = logits[pair.better] - logits[pair.worse] - pair.margin;
    // Computes ln(1 + e^−x) without overflow for large positive or negative x.
    (-ahead.abs()).exp().ln_1p() + (-ahead).max(0.0)
}

impl Preference {
    /// Returns 1 if the better reply has the higher logit, and ½ if the logits are equal.
    pub(super) fn won(&self, logits: &[f64]) -> f64 {
        match logits[self.better] - logits[self.worse] {
            ahead if ahead > 0.0 => 1.0,
            0.0 => 0.5,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn reply(tweet: &str, preference: f64) -> EngagementReply {
        EngagementReply { tweet: tweet.to_owned(), features: vec![], score: 0.0, preference }
    }

    fn pair(better: usize, worse: usize, margin: f64) -> Preference {
        Preference { better, worse, margin }
    }

    #[test]
    fn neighbours_of_one_tweet_that_differ_are_pairs() {
        let replies = [
            reply("b", 3.0),
            reply("a", 0.0),
            reply("b", 7.0),
            reply("a", 1.0),
            reply("b", 3.0),
            reply("c", 9.0),
            reply("b", 0.0),
        ];
        let pairs = neighbours(&replies, 0.5);
        let places: Vec<(usize, usize)> = pairs.iter().map(|it| (it.better, it.worse)).collect();
        assert_eq!(places, [(3, 1), (2, 0), (4, 6)]);
        // For 7 and 3: ½ ln(8 / 4).
        assert!((pairs[1].margin - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
        assert!(neighbours(&replies[..2], 0.5).is_empty());
    }

    #[test]
    fn its_gradient_is_that_of_finite_differences() {
        let pairs = [pair(0, 3, 0.0), pair(1, 4, 0.7), pair(2, 5, 30.0)];
        let values = [0.3, -1.2, 2.0, 1.1, -0.4, 0.9];
        let loss = |logits: &[f64]| {
            pairs.iter().map(|pair| bradley_terry_loss(pair, logits)).sum::<f64>() / 3.0
        };
        let all: Vec<&Preference> = pairs.iter().collect();
        let data = TensorData::from(values.map(|value| value as f32));
        let logits = Tensor::<1>::from_data(data, &Device::flex().autodiff()).require_grad();
        let tensor = bradley_terry(logits.clone(), &all);
        let found = f64::from(tensor.clone().into_scalar::<f32>());
        assert!((found - loss(&values)).abs() < 1e-6, "{found}, expected {}", loss(&values));
        let gradient = logits.grad(&tensor.backward()).unwrap().into_data();
        for (place, found) in gradient.iter::<f64>().enumerate() {
            let moved = |by: f64| {
                let mut values = values;
                values[place] += by;
                loss(&values)
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((found - expected).abs() < 1e-6, "{place}: {found}, expected {expected}");
        }
    }

    #[test]
    fn a_tie_counts_half() {
        assert_eq!(
            [pair(0, 1, 9.0).won(&[2.0, 1.0]), pair(1, 0, 0.0).won(&[2.0, 1.0])],
            [1.0, 0.0]
        );
        assert_eq!(pair(0, 1, 0.0).won(&[1.0, 1.0]), 0.5);
    }
}
