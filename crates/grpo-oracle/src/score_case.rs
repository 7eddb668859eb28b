//! Test cases for scores.

use crate::Draws;

/// Sampling distribution options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Under {
    /// Temperature, or `None` for 1.
    pub temperature: Option<f32>,
    /// Whether to forbid two ids.
    pub forbidding: bool,
    /// Whether to restrict each position to a set of kept ids.
    pub truncated: bool,
    /// Repetition penalty. If set, each position has a set of previous ids.
    pub penalty: Option<f32>,
}

impl Under {
    /// Returns all combinations of options.
    pub fn all() -> Vec<Self> {
        let mut all = vec![];
        for temperature in [None, Some(0.7), Some(1.6)] {
            for forbidding in [false, true] {
                for truncated in [false, true] {
                    for penalty in [None, Some(1.3), Some(0.8)] {
                        all.push(Self { temperature, forbidding, truncated, penalty });
                    }
                }
            }
        }
        all
    }
}

/// A test case with `n` positions and one token per position.
#[derive(Clone, Debug)]
pub struct ScoreCase {
    /// Number of positions, width and vocabulary size.
    pub sizes: [usize; 3],
    /// Hidden states, `[n · width]`.
    pub hidden: Vec<f64>,
    /// Head weight, `[width · vocabulary]`.
    pub weight: Vec<f64>,
    /// Head bias, `[vocabulary]`.
    pub bias: Option<Vec<f64>>,
    /// Token ids, `[n]`. All of them can be sampled.
    pub ids: Vec<u32>,
    /// Sampling distribution options.
    pub under: Under,
    /// Forbidden ids.
    pub forbidden: Vec<u32>,
    /// Kept ids at each position.
    pub kept: Option<Vec<Vec<u32>>>,
    /// Penalised ids at each position.
    pub seen: Option<Vec<Vec<u32>>>,
}

impl ScoreCase {
    /// Generates a case in which all numbers can be represented exactly in f32.
    pub fn generated(sizes: [usize; 3], under: Under, bias: bool) -> Self {
        let [n, width, vocabulary] = sizes;
        let mut draws = Draws::new(4, n * width * vocabulary);
        let mut numbers = |count: usize, scale: f64| -> Vec<f64> {
            (0..count).map(|_| f64::from(draws.between(-scale, scale) as f32)).collect()
        };
        let hidden = numbers(n * width, 2.0);
        let weight = numbers(width * vocabulary, 1.0);
        let bias = bias.then(|| numbers(vocabulary, 0.5));
        let forbidden = if under.forbidding { vec![0, vocabulary as u32 / 2] } else { vec![] };
        let drawable: Vec<u32> =
            (0..vocabulary as u32).filter(|id| !forbidden.contains(id)).collect();
        let ids: Vec<u32> = (0..n).map(|_| draws.one_of(&drawable)).collect();
        let mut subset = |always: Option<u32>, share: f64| -> Vec<u32> {
            let ids = 0..vocabulary as u32;
            ids.filter(|&id| always == Some(id) || draws.chance(share)).collect()
        };
        let kept = under.truncated.then(|| ids.iter().map(|&id| subset(Some(id), 0.4)).collect());
        let seen = under.penalty.map(|_| ids.iter().map(|_| subset(None, 0.2)).collect());
        Self { sizes, hidden, weight, bias, ids, under, forbidden, kept, seen }
    }

    /// Returns the logits at position `i`.
    pub fn logits(&self, i: usize) -> Vec<f64> {
        let [_, width, vocabulary] = self.sizes;
        let mut logits = self.bias.clone().unwrap_or(vec![0.0; vocabulary]);
        for k in 0..width {
            let h = self.hidden[i * width + k];
            let row = &self.weight[k * vocabulary..(k + 1) * vocabulary];
            logits.iter_mut().zip(row).for_each(|(logit, w)| *logit += h * w);
        }
        logits
    }

    /// Returns the weight as `[vocabulary · width]`, the layout of a tied head.
    pub fn transposed_weight(&self) -> Vec<f64> {
        let [_, width, vocabulary] = self.sizes;
        let indices = (0..vocabulary).flat_map(|v| (0..width).map(move |k| k * vocabulary + v));
        indices.map(|index| self.weight[index]).collect()
    }
}
