//! Element-wise tile operations for `f32` on GPUs, as kernels of `grpo-kernels`.

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::TensorData;
use grpo_kernels::{RUNNING, TileOfLogits, absorb_logits, logit_gradients};

use super::plain::{Columns, Plain};
use super::{Steps, TilePosition};
use crate::tiles::{EXCLUDED, Sets};

/// Implementation of [`Steps`] on GPUs. Tensors without a value per id are computed by [`Plain`].
pub(crate) struct OnGpu;

type Tensor = FloatTensor<Cube>;

impl Steps<Cube> for OnGpu {
    /// `[RUNNING, positions]`, see [`absorb_logits`].
    type Running = Tensor;

    fn start(like: &Tensor, positions: usize) -> Tensor {
        let Columns { max, sum, weighted, chosen, chosen_factor, rescale } =
            <Plain as Steps<Cube>>::start(like, positions);
        let rows = [max, sum, weighted, chosen, chosen_factor, rescale];
        Cube::float_cat(
            rows.map(|column| Cube::float_reshape(column, [1, positions].into())).into(),
            0,
        )
    }

    fn absorb(
        running: &mut Tensor,
        logits: Tensor,
        at: &mut TilePosition<'_>,
        weigh: bool,
    ) -> Option<Tensor> {
        let sets = OnDevice::new(at, &logits);
        absorb_logits(running, logits, sets.tile(at), weigh)
    }

    fn accumulate(running: &Tensor, sum: Tensor, term: Tensor) -> Tensor {
        Plain::accumulate(&columns(running), sum, term)
    }

    fn finish(running: &Tensor) -> [Tensor; 2] {
        Plain::finish(&columns(running))
    }

    fn direction(running: &Tensor, sum: Tensor, weight: &Tensor, at: &TilePosition<'_>) -> Tensor {
        Plain::direction(&columns(running), sum, weight, at)
    }

    fn gradient(
        logits: Tensor,
        scores: &Tensor,
        log_normalizer: &Tensor,
        upstream: &Tensor,
        at: &mut TilePosition<'_>,
    ) -> Tensor {
        let sets = OnDevice::new(at, &logits);
        logit_gradients(logits, [scores, log_normalizer, upstream], sets.tile(at))
    }

    fn matmul(a: Tensor, b: Tensor) -> Tensor {
        <Plain as Steps<Cube>>::matmul(a, b)
    }

    fn zeros(like: &Tensor, shape: [usize; 2]) -> Tensor {
        <Plain as Steps<Cube>>::zeros(like, shape)
    }

    fn is_transposed(weight: &Tensor) -> bool {
        <Plain as Steps<Cube>>::is_transposed(weight)
    }
}

/// Returns the rows of `running` as columns.
fn columns(running: &Tensor) -> Columns<Cube> {
    let positions = running.shape()[1];
    let [max, sum, weighted, chosen, chosen_factor, rescale]: [Tensor; RUNNING] =
        std::array::from_fn(|row| {
            let row = super::rows::<Cube>(running, &(row..row + 1));
            Cube::float_reshape(row, [positions, 1].into())
        });
    Columns { max, sum, weighted, chosen, chosen_factor, rescale }
}

/// What a tile needs in the memory of the device.
struct OnDevice {
    chosen: IntTensor<Cube>,
    excluded: Option<IntTensor<Cube>>,
    penalised: Option<(IntTensor<Cube>, f32)>,
}

impl OnDevice {
    fn new(at: &mut TilePosition<'_>, like: &Tensor) -> Self {
        let numbers = |numbers: Vec<i32>, shape: &[usize]| {
            Cube::int_from_data(TensorData::new(numbers, shape), &like.device())
        };
        let words = |sets: &Sets| {
            let (words, shape) = sets.words();
            numbers(words.iter().map(|word| word.cast_signed()).collect(), &shape)
        };
        let chosen = at.chosen().iter().map(|&id| id.cast_signed()).collect();
        let tile = at.tiles.next_tile(at.ids.clone());
        let factor = at.targets.penalty().map(|penalty| penalty.factor);
        Self {
            chosen: numbers(chosen, &[at.positions.len()]),
            excluded: tile.excluded.as_ref().map(words),
            penalised: tile.seen.as_ref().map(words).zip(factor),
        }
    }

    fn tile(&self, at: &TilePosition<'_>) -> TileOfLogits<'_> {
        TileOfLogits {
            chosen: &self.chosen,
            first: at.ids.start,
            temperature: at.targets.temperature(),
            excluded: self.excluded.as_ref(),
            penalised: self.penalised.as_ref().map(|(sets, factor)| (sets, *factor)),
            least: EXCLUDED as f32,
        }
    }
}
