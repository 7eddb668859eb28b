//! Element-wise tile operations for `f32` on GPUs, as kernels of `grpo-kernels`.

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::TensorData;
use grpo_kernels::{LogitTile, RunningScores, logit_gradients};

use super::plain::{Columns, Plain};
use super::{Steps, TilePosition};
use crate::tiles::{EXCLUDED, IdSets};

/// Implementation of [`Steps`] on GPUs. Tensors without a value per id are computed by [`Plain`].
pub(crate) struct OnGpu;

type Tensor = FloatTensor<Cube>;

impl Steps<Cube> for OnGpu {
    type Running = RunningScores;

    fn start(like: &Tensor, positions: usize) -> RunningScores {
        RunningScores::new(like, positions, EXCLUDED as f32)
    }

    fn absorb(
        running: &mut RunningScores,
        logits: Tensor,
        at: &mut TilePosition<'_>,
        weigh: bool,
    ) -> Option<Tensor> {
        let tile = DeviceTile::new(at, &logits);
        running.absorb(logits, tile.view(at), weigh)
    }

    fn accumulate(running: &RunningScores, sum: Tensor, term: Tensor) -> Tensor {
        Cube::float_add(Cube::float_mul(sum, running.rescale()), term)
    }

    fn finish(running: &RunningScores) -> [Tensor; 2] {
        Plain::finish(&columns(running))
    }

    fn direction(
        running: &RunningScores,
        sum: Tensor,
        weight: &Tensor,
        at: &TilePosition<'_>,
    ) -> Tensor {
        Plain::direction(&columns(running), sum, weight, at)
    }

    fn gradient(
        logits: Tensor,
        scores: &Tensor,
        log_normalizer: &Tensor,
        upstream: &Tensor,
        at: &mut TilePosition<'_>,
    ) -> Tensor {
        let tile = DeviceTile::new(at, &logits);
        logit_gradients(logits, [scores, log_normalizer, upstream], tile.view(at))
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

fn columns(running: &RunningScores) -> Columns<Cube> {
    Columns {
        max: running.max(),
        sum: running.sum(),
        weighted: running.weighted(),
        chosen: running.chosen(),
        chosen_factor: running.chosen_factor(),
        rescale: running.rescale(),
    }
}

/// A tile's targets and sets of ids in the memory of the device.
struct DeviceTile {
    chosen: IntTensor<Cube>,
    excluded: Option<IntTensor<Cube>>,
    penalised: Option<(IntTensor<Cube>, f32)>,
}

impl DeviceTile {
    fn new(at: &mut TilePosition<'_>, like: &Tensor) -> Self {
        let numbers = |numbers: Vec<i32>, shape: &[usize]| {
            Cube::int_from_data(TensorData::new(numbers, shape), &like.device())
        };
        let words = |sets: &IdSets| {
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

    fn view(&self, at: &TilePosition<'_>) -> LogitTile<'_> {
        LogitTile {
            chosen: &self.chosen,
            first: at.ids.start,
            temperature: at.targets.temperature(),
            excluded: self.excluded.as_ref(),
            penalised: self.penalised.as_ref().map(|(sets, factor)| (sets, *factor)),
            excluded_logit: EXCLUDED as f32,
        }
    }
}
