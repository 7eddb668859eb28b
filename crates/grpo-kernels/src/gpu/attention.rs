//! Attention over packed sequences and over pages of a cache, with one cube per query and head, or
//! per key and head in the backward pass.
//!
//! Softmax is computed online over chunks of keys (Milakov & Gimelshein 2018; Dao et al. 2022,
//! "FlashAttention"), so memory does not depend on the number of keys.

mod backward;
mod forward;
mod heads;
mod layout;
mod pages;
mod units;

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::reduce::UNITS;
use super::{empty, empty_like, of_indices, ternary, unary};
use crate::tape::Operation;
use crate::{Heads, indices};
use backward::{of_keys, of_queries};
use forward::of_rows;
pub(crate) use heads::write_heads;
pub(crate) use layout::Attention;
use layout::{Layout, Viewers, keys_of_rows, parts};
pub(crate) use pages::{attention_over_pages, copy_pages, write_rows};

pub(crate) fn attention([query, keys, values]: [Tensor<2>; 3], of: Attention) -> Tensor<2> {
    ternary(of, query, [keys, values])
}

pub(crate) fn joint_attention(inputs: Tensor<2>, of: Attention) -> Tensor<2> {
    unary(of, inputs)
}

/// Returns whether the kernels support heads of this width: the units of a cube are divided evenly
/// among the columns.
pub(crate) fn supports(heads: &Heads) -> bool {
    UNITS.is_multiple_of(heads.width)
}

/// Attention with separate query, key and value matrices, or with a single matrix for all three.
impl<const N: usize> Operation<Cube, N> for Attention {
    type Saved = Saved<N>;

    fn forward(&self, inputs: [CubeTensor; N], _: [bool; N]) -> (CubeTensor, Saved<N>) {
        let inputs = inputs.map(into_contiguous);
        let keys_of_rows = primitive_indices(keys_of_rows(&self.packing), &inputs[0]);
        let layout = Layout::new::<N>(&self.heads);
        let rows = self.packing.rows();
        let output = empty(&inputs[0], [rows, self.heads.query_columns()]);
        let normalizers = empty(&inputs[0], [rows, self.heads.heads]);
        let results = [&output, &normalizers];
        of_rows(self, parts(&inputs), layout, &keys_of_rows, results);
        (output.clone(), Saved { inputs, keys_of_rows, output, normalizers })
    }

    fn backward(self, saved: Saved<N>, dy: CubeTensor, _: [bool; N]) -> [Option<CubeTensor>; N] {
        let dy = into_contiguous(dy);
        let gradients = saved.inputs.each_ref().map(empty_like);
        let layout = Layout::new::<N>(&self.heads);
        let inputs = parts(&saved.inputs);
        let deltas = empty_like(&saved.normalizers);
        let [of_query, of_key, of_value] = parts(&gradients);
        let Saved { keys_of_rows, output, normalizers, .. } = &saved;
        let forward = [keys_of_rows, output, normalizers];
        of_queries(&self, inputs, layout, forward, &dy, [of_query, &deltas]);
        let viewers = Viewers::new(&self.packing);
        let viewers = [viewers.of_rows, viewers.ranges].map(|of| primitive_indices(of, inputs[0]));
        let upstream = [normalizers, &dy, &deltas];
        of_keys(&self, inputs, layout, viewers, upstream, [of_key, of_value]);
        gradients.map(Some)
    }
}

/// State saved for the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Saved<const N: usize> {
    inputs: [CubeTensor; N],
    keys_of_rows: CubeTensor,
    output: CubeTensor,
    /// Logarithms of the sums of exponentials, `[rows, heads]`.
    normalizers: CubeTensor,
}

/// Copies numbers to the device of `x`.
fn primitive_indices(numbers: Vec<usize>, x: &CubeTensor) -> CubeTensor {
    let like: Tensor<2> = Tensor::from_primitive::<Cube>(x.clone());
    of_indices(indices(numbers, &like.device()))
}
