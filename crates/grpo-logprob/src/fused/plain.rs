//! Element-wise tile operations based on Burn, for any backend and precision.

use burn::backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_device_settings};
use burn::tensor::{DType, TensorData};

use super::{Steps, TilePosition};
use crate::product::Product;
use crate::tiles::{EXCLUDED, IdSets};

/// Generic implementation of [`Steps`].
pub(crate) struct Plain;

/// Running sums over all ids so far, as `[positions, 1]` columns, where `x` is the scaled logit.
pub(crate) struct Columns<B: Backend> {
    /// `max x`.
    pub(super) max: FloatTensor<B>,
    /// `Σ exp(x − max)`.
    pub(super) sum: FloatTensor<B>,
    /// `Σ exp(x − max) (x − max)`.
    pub(super) weighted: FloatTensor<B>,
    /// `x` for the target token.
    pub(super) chosen: FloatTensor<B>,
    /// `∂ x / ∂ logit · temperature` for the target token.
    pub(super) chosen_factor: FloatTensor<B>,
    /// `exp(old max − max)` for the last tile.
    pub(super) rescale: FloatTensor<B>,
}

impl<B: Product> Steps<B> for Plain {
    type Running = Columns<B>;

    fn start(like: &FloatTensor<B>, positions: usize) -> Columns<B> {
        let column = |value: f64| {
            let zeros = B::float_zeros([positions, 1].into(), &like.device(), like.dtype().into());
            B::float_add_scalar(zeros, value.into())
        };
        Columns {
            max: column(EXCLUDED),
            sum: column(0.0),
            weighted: column(0.0),
            chosen: column(EXCLUDED),
            chosen_factor: column(1.0),
            rescale: column(0.0),
        }
    }

    fn absorb(
        running: &mut Columns<B>,
        logits: FloatTensor<B>,
        at: &mut TilePosition<'_>,
        weigh: bool,
    ) -> Option<FloatTensor<B>> {
        let Scaled { x, factors, .. } = Scaled::<B>::new(logits, at);
        let (places, outside) = chosen_places::<B>(at, &x);
        let pick = |of: FloatTensor<B>, old: &FloatTensor<B>| {
            let picked = B::float_gather(1, of, places.clone());
            B::float_mask_where(picked, outside.clone(), old.clone())
        };
        running.chosen = pick(x.clone(), &running.chosen);
        if let Some(factors) = &factors {
            running.chosen_factor = pick(factors.clone(), &running.chosen_factor);
        }

        let largest = B::float_max_dim(x.clone(), 1);
        let both = B::float_cat(vec![running.max.clone(), largest], 1);
        let max = B::float_max_dim(both, 1);
        let shift = B::float_sub(running.max.clone(), max.clone());
        running.rescale = B::float_exp(shift.clone());
        let shifted = B::float_sub(x, max.clone());
        let weights = B::float_exp(shifted.clone());
        let weighted = B::float_sum_dim(B::float_mul(weights.clone(), shifted), 1);
        let old = B::float_add(running.weighted.clone(), B::float_mul(running.sum.clone(), shift));
        running.weighted = B::float_add(B::float_mul(running.rescale.clone(), old), weighted);
        let old = B::float_mul(running.rescale.clone(), running.sum.clone());
        running.sum = B::float_add(old, B::float_sum_dim(weights.clone(), 1));
        running.max = max;
        weigh.then(|| match factors {
            Some(factors) => B::float_mul(weights, factors),
            None => weights,
        })
    }

    fn accumulate(
        running: &Columns<B>,
        sum: FloatTensor<B>,
        term: FloatTensor<B>,
    ) -> FloatTensor<B> {
        B::float_add(B::float_mul(sum, running.rescale.clone()), term)
    }

    fn finish(running: &Columns<B>) -> [FloatTensor<B>; 2] {
        let log_sum = B::float_log(running.sum.clone());
        let normalizer = B::float_add(running.max.clone(), log_sum.clone());
        let logprob = B::float_sub(running.chosen.clone(), normalizer.clone());
        let mean = B::float_div(running.weighted.clone(), running.sum.clone());
        let entropy = B::float_sub(log_sum, mean);
        [B::float_cat(vec![logprob, entropy], 1), normalizer]
    }

    fn direction(
        running: &Columns<B>,
        sum: FloatTensor<B>,
        weight: &FloatTensor<B>,
        at: &TilePosition<'_>,
    ) -> FloatTensor<B> {
        let ids = at.chosen().iter().map(|&id| id as usize);
        let ids = indices::<B>(ids, [at.chosen().len()].into(), &weight.device());
        let of_chosen = B::float_transpose(B::float_select(weight.clone(), 1, ids));
        let of_chosen = B::float_mul(of_chosen, running.chosen_factor.clone());
        let mean = B::float_div(sum, running.sum.clone());
        let inverse_temperature = 1.0 / f64::from(at.targets.temperature());
        B::float_mul_scalar(B::float_sub(of_chosen, mean), inverse_temperature.into())
    }

    fn gradient(
        logits: FloatTensor<B>,
        scores: &FloatTensor<B>,
        log_normalizer: &FloatTensor<B>,
        upstream: &FloatTensor<B>,
        at: &mut TilePosition<'_>,
    ) -> FloatTensor<B> {
        let column = |of: &FloatTensor<B>, c: usize| super::columns::<B>(of, &(c..c + 1));
        let (of_logprob, of_entropy) = (column(upstream, 0), column(upstream, 1));
        let Scaled { x, factors, excluded } = Scaled::<B>::new(logits, at);
        let logprobs = B::float_sub(x, log_normalizer.clone());
        let policy = B::float_exp(logprobs.clone());
        // ∂ log π(y) / ∂ x_v = [v = y] − π_v, ∂ H / ∂ x_v = −π_v (ln π_v + H).
        let inner = B::float_mul(of_entropy, B::float_add(logprobs, column(scores, 1)));
        let gradient = B::float_neg(B::float_mul(policy, B::float_add(inner, of_logprob.clone())));
        let (places, outside) = chosen_places::<B>(at, &gradient);
        let of_chosen = B::float_mask_fill(of_logprob, outside, 0.0.into());
        let update = burn::tensor::IndexingUpdateOp::Add;
        let mut gradient = B::float_scatter(1, gradient, places, of_chosen, update);
        if let Some(excluded) = excluded {
            gradient = B::float_mask_fill(gradient, excluded, 0.0.into());
        }
        if let Some(factors) = factors {
            gradient = B::float_mul(gradient, factors);
        }
        let inverse_temperature = 1.0 / f64::from(at.targets.temperature());
        B::float_mul_scalar(gradient, inverse_temperature.into())
    }

    fn matmul(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
        B::product(a, b)
    }

    fn zeros(like: &FloatTensor<B>, shape: [usize; 2]) -> FloatTensor<B> {
        B::float_zeros(shape.into(), &like.device(), like.dtype().into())
    }

    fn is_transposed(_weight: &FloatTensor<B>) -> bool {
        false
    }
}

/// Scaled logits in a tile.
struct Scaled<B: Backend> {
    x: FloatTensor<B>,
    /// Repetition penalty factors, or 0 for excluded ids.
    factors: Option<FloatTensor<B>>,
    excluded: Option<BoolTensor<B>>,
}

impl<B: Backend> Scaled<B> {
    fn new(logits: FloatTensor<B>, at: &mut TilePosition<'_>) -> Self {
        let shape = [at.positions.len(), at.ids.len()];
        let device = logits.device();
        let flags = |sets: &IdSets| mask::<B>(sets.flags(shape[0]), shape.into(), &device);
        let tile = at.tiles.next_tile(at.ids.clone());
        let mut x = logits;
        let mut factors = None;
        if let (Some(penalty), Some(seen)) = (at.targets.penalty(), &tile.seen) {
            let factor = f64::from(penalty.factor);
            let bool_type = get_device_settings::<B>(&device).bool_dtype;
            let positive = B::float_greater_elem(x.clone(), 0.0.into(), bool_type);
            let zeros = B::float_zeros(shape.into(), &device, x.dtype().into());
            let ones = B::float_add_scalar(zeros.clone(), 1.0.into());
            let all = B::float_add_scalar(zeros, factor.into());
            let all = B::float_mask_fill(all, positive, (1.0 / factor).into());
            let of_tile = B::float_mask_where(ones, flags(seen), all);
            x = B::float_mul(x, of_tile.clone());
            factors = Some(of_tile);
        }
        let inverse_temperature = 1.0 / f64::from(at.targets.temperature());
        if inverse_temperature != 1.0 {
            x = B::float_mul_scalar(x, inverse_temperature.into());
        }
        // Treat −∞ as excluded, because 0 · ∞ is NaN. A comparison preserves NaN, but clamping
        // would not.
        let bool_type = get_device_settings::<B>(&device).bool_dtype;
        let infinite = B::float_lower_elem(x.clone(), EXCLUDED.into(), bool_type);
        x = B::float_mask_fill(x, infinite, EXCLUDED.into());
        let excluded = tile.excluded.as_ref().map(flags);
        if let Some(excluded) = &excluded {
            x = B::float_mask_fill(x, excluded.clone(), EXCLUDED.into());
            let factors_of_tile = factors.take().unwrap_or_else(|| {
                let zeros = B::float_zeros(shape.into(), &device, x.dtype().into());
                B::float_add_scalar(zeros, 1.0.into())
            });
            factors = Some(B::float_mask_fill(factors_of_tile, excluded.clone(), 0.0.into()));
        }
        Self { x, factors, excluded }
    }
}

/// Returns the index of each target token within the tile, `[positions, 1]`, and a mask that is
/// true for tokens in other tiles.
fn chosen_places<B: Backend>(
    at: &TilePosition<'_>,
    like: &FloatTensor<B>,
) -> (IntTensor<B>, BoolTensor<B>) {
    let column = [at.positions.len(), 1];
    let inside = |&id: &u32| at.ids.contains(&(id as usize));
    let places =
        at.chosen().iter().map(|id| if inside(id) { *id as usize - at.ids.start } else { 0 });
    let outside: Vec<bool> = at.chosen().iter().map(|id| !inside(id)).collect();
    let device = like.device();
    let outside = mask::<B>(outside, column.into(), &device);
    (indices::<B>(places, column.into(), &device), outside)
}

/// Creates a mask in the representation of booleans that the device has, which is `u8` or `u32` on GPUs.
fn mask<B: Backend>(
    flags: Vec<bool>,
    shape: burn::tensor::Shape,
    device: &Device<B>,
) -> BoolTensor<B> {
    let bool_type: DType = get_device_settings::<B>(device).bool_dtype.into();
    B::bool_from_data(TensorData::new(flags, shape).convert_dtype(bool_type), device)
}

fn indices<B: Backend>(
    values: impl Iterator<Item = usize>,
    shape: burn::tensor::Shape,
    device: &Device<B>,
) -> IntTensor<B> {
    let values: Vec<i64> = values.map(|value| value as i64).collect();
    let int_type: DType = get_device_settings::<B>(device).int_dtype.into();
    B::int_from_data(TensorData::new(values, shape).convert_dtype(int_type), device)
}
