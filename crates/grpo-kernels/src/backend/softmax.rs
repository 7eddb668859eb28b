//! Softmax of attention scores, with heads processed in parallel.

use std::ops::Range;

use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Tensor;
use multiversion::multiversion;

use super::{map_chunks, unary};
use crate::Visible;
use crate::simd;
use crate::tape::Operation;

pub(crate) fn attention_softmax(scores: Tensor<4>, scale: f32, visible: Visible) -> Tensor<4> {
    unary(Softmax { scale, visible }, scores)
}

#[derive(Debug)]
struct Softmax {
    scale: f32,
    visible: Visible,
}

impl Operation<Flex, 1> for Softmax {
    /// The output.
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1], _: [bool; 1]) -> (FlexTensor, FlexTensor) {
        let heads = Heads::new(&x, &self.visible);
        let y = map_chunks([x], heads.size, |head, [x], y| {
            forward(x, y, heads.columns(head), self.scale);
        });
        (y.clone(), y)
    }

    fn backward(self, y: FlexTensor, dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let heads = Heads::new(&y, &self.visible);
        [Some(map_chunks([y, dy], heads.size, |head, [y, dy], dx| {
            backward(y, dy, dx, heads.columns(head), self.scale);
        }))]
    }
}

/// Layout of the heads, which are contiguous in memory.
struct Heads {
    /// Number of scores per head.
    size: usize,
    heads: usize,
    queries: usize,
    /// Range of visible keys for each query in each batch row.
    columns: Vec<Range<usize>>,
}

impl Heads {
    fn new(scores: &FlexTensor, visible: &Visible) -> Self {
        let shape = scores.shape();
        let [batch, heads, queries, keys] = [shape[0], shape[1], shape[2], shape[3]];
        let columns = visible.columns([batch, heads, queries, keys]);
        Self { size: (queries * keys).max(1), heads, queries, columns }
    }

    /// Returns the visible keys of each query in a head.
    fn columns(&self, head: usize) -> &[Range<usize>] {
        let row = head / self.heads;
        &self.columns[row * self.queries..(row + 1) * self.queries]
    }
}

/// Computes the softmax for a single head. `x` has one row of scores per query, and `columns` gives
/// the range of visible keys. `y` must be zeroed.
#[multiversion(targets = "simd")]
fn forward(x: &[f32], y: &mut [f32], columns: &[Range<usize>], scale: f32) {
    let keys = x.len() / columns.len();
    for (query, columns) in columns.iter().enumerate() {
        let row = query * keys + columns.start..query * keys + columns.end;
        let (x, y) = (&x[row.clone()], &mut y[row]);
        let largest = simd::max(x);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = simd::exp((x - largest) * scale);
        }
        let inverse = 1.0 / simd::sum([y], |[y]| y);
        for y in y.iter_mut() {
            *y *= inverse;
        }
    }
}

/// Computes `dx = scale · y ∘ (dy − Σ y·dy)` for each row of a head. `dx` must be zeroed.
#[multiversion(targets = "simd")]
fn backward(y: &[f32], dy: &[f32], dx: &mut [f32], columns: &[Range<usize>], scale: f32) {
    let keys = y.len() / columns.len();
    for (query, columns) in columns.iter().enumerate() {
        let row = query * keys + columns.start..query * keys + columns.end;
        let (y, dy, dx) = (&y[row.clone()], &dy[row.clone()], &mut dx[row]);
        let dot = simd::sum([y, dy], |[y, dy]| y * dy);
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = scale * y * (dy - dot);
        }
    }
}
