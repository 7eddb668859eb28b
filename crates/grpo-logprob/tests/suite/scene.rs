//! Hidden states, a head and targets in plain numbers.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_logprob::{Head, Targets};
use grpo_sampling::TokenSet;

/// Numbers that look random and are the same everywhere.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// Uniform in −1..1; a value of f32.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(((self.0 >> 40) as f32) / (1_u64 << 23) as f32 - 1.0)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * n as f64) as usize % n
    }
}

/// How the drawn distribution differs from the model's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Under {
    pub(crate) temperature: Option<f32>,
    pub(crate) forbidding: bool,
    pub(crate) truncated: bool,
    pub(crate) penalty: Option<f32>,
}

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) sizes: [usize; 3],
    /// `[n][width]`.
    pub(crate) hidden: Vec<f64>,
    /// `[width][vocabulary]`.
    pub(crate) weight: Vec<f64>,
    /// `[vocabulary]`.
    pub(crate) bias: Option<Vec<f64>>,
    pub(crate) ids: Vec<u32>,
    pub(crate) under: Under,
    pub(crate) forbidden: Vec<u32>,
    pub(crate) kept: Option<Vec<Vec<u32>>>,
    pub(crate) seen: Option<Vec<Vec<u32>>>,
}

impl Scene {
    pub(crate) fn new(sizes: [usize; 3], under: Under, bias: bool) -> Self {
        let [n, width, vocabulary] = sizes;
        let mut numbers = Numbers(17);
        let mut draw = |count: usize, scale: f64| -> Vec<f64> {
            (0..count).map(|_| f64::from((numbers.next() * scale) as f32)).collect()
        };
        let hidden = draw(n * width, 2.0);
        let weight = draw(width * vocabulary, 1.0);
        let bias = bias.then(|| draw(vocabulary, 0.5));
        let forbidden: Vec<u32> =
            if under.forbidding { vec![0, vocabulary as u32 / 2] } else { vec![] };
        let ids: Vec<u32> = (0..n)
            .map(|_| {
                loop {
                    let id = numbers.below(vocabulary) as u32;
                    if !forbidden.contains(&id) {
                        break id;
                    }
                }
            })
            .collect();
        let mut subset = |always: Option<u32>, share: f64| -> Vec<u32> {
            (0..vocabulary as u32)
                .filter(|&id| always == Some(id) || numbers.next() < 2.0 * share - 1.0)
                .collect()
        };
        let kept = under.truncated.then(|| ids.iter().map(|&id| subset(Some(id), 0.4)).collect());
        let seen = under.penalty.map(|_| ids.iter().map(|_| subset(None, 0.2)).collect());
        Self { sizes, hidden, weight, bias, ids, under, forbidden, kept, seen }
    }

    pub(crate) fn targets(&self) -> Targets {
        let [_, _, vocabulary] = self.sizes;
        let sets = |sets: &Vec<Vec<u32>>| -> Vec<TokenSet> {
            sets.iter().map(|ids| TokenSet::from_sorted(ids, vocabulary).unwrap()).collect()
        };
        let mut targets = Targets::new(self.ids.clone(), vocabulary).without(&self.forbidden);
        if let Some(temperature) = self.under.temperature {
            targets = targets.at_temperature(temperature);
        }
        if let Some(kept) = &self.kept {
            targets = targets.within(sets(kept));
        }
        if let (Some(factor), Some(seen)) = (self.under.penalty, &self.seen) {
            targets = targets.with_repetition_penalty(factor, sets(seen));
        }
        targets
    }

    /// `[n, width]`.
    pub(crate) fn hidden(&self, device: &Device, dtype: DType) -> Tensor<2> {
        let [n, width, _] = self.sizes;
        tensor(&self.hidden, [n, width], device, dtype)
    }

    /// With the weight as it is, or as a view of its transpose.
    pub(crate) fn head(&self, device: &Device, dtype: DType, tied: bool) -> Head {
        let [_, width, vocabulary] = self.sizes;
        let weight = if tied {
            let transposed: Vec<f64> = (0..vocabulary)
                .flat_map(|v| (0..width).map(move |k| k * vocabulary + v))
                .map(|i| self.weight[i])
                .collect();
            tensor(&transposed, [vocabulary, width], device, dtype)
        } else {
            tensor(&self.weight, [width, vocabulary], device, dtype)
        };
        let bias = self.bias.as_ref().map(|bias| {
            let data = TensorData::new(bias.clone(), [vocabulary]);
            Tensor::<1>::from_data(data, (device, dtype))
        });
        Head { weight, bias }
    }

    /// Logits of position `i` in f64.
    pub(crate) fn logits(&self, i: usize) -> Vec<f64> {
        let [_, width, vocabulary] = self.sizes;
        let mut logits = self.bias.clone().unwrap_or(vec![0.0; vocabulary]);
        for k in 0..width {
            let h = self.hidden[i * width + k];
            let row = &self.weight[k * vocabulary..(k + 1) * vocabulary];
            logits.iter_mut().zip(row).for_each(|(logit, w)| *logit += h * w);
        }
        logits
    }
}

fn tensor(values: &[f64], shape: [usize; 2], device: &Device, dtype: DType) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, dtype))
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Everything that a distribution can be restricted by, alone and together.
pub(crate) fn all_distributions() -> Vec<Under> {
    let mut all = vec![];
    for temperature in [None, Some(0.7), Some(1.6)] {
        for forbidding in [false, true] {
            for truncated in [false, true] {
                for penalty in [None, Some(1.3), Some(0.8)] {
                    all.push(Under { temperature, forbidding, truncated, penalty });
                }
            }
        }
    }
    all
}
