//! Pages in CPU memory.
//!
//! For each head, a page contains the keys `[width, PAGE]` and the values `[PAGE, width]`. With
//! this layout, scores for all positions of a page and outputs for all columns can be computed with
//! vertical vector operations. No sums across vector lanes are needed.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::seen::{PAGE, Seen};
use crate::{Heads, simd};

/// Smallest number of (row, head) pairs per task.
const TASK: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct HostPages {
    heads: Heads,
    /// Shape `[pages, kv heads, width, PAGE]`.
    keys: Vec<f32>,
    /// Shape `[pages, kv heads, PAGE, width]`.
    values: Vec<f32>,
}

impl HostPages {
    pub(super) fn new(heads: Heads) -> Self {
        Self { heads, keys: Vec::new(), values: Vec::new() }
    }

    /// Returns the number of elements in a page.
    fn size(&self) -> usize {
        self.heads.key_columns() * PAGE
    }

    pub(super) fn grow(&mut self, pages: usize) {
        let size = self.keys.len() + pages * self.size();
        self.keys.resize(size, 0.0);
        self.values.resize(size, 0.0);
    }

    pub(super) fn write(&mut self, keys: Tensor<2>, values: Tensor<2>, places: &[usize]) {
        let (columns, size, width) = (self.heads.key_columns(), self.size(), self.heads.width);
        let (keys, values) = (contiguous(keys), contiguous(values));
        let rows =
            keys.storage::<f32>().chunks(columns).zip(values.storage::<f32>().chunks(columns));
        for (&place, (keys, values)) in places.iter().zip(rows) {
            let (start, at) = (place / PAGE * size, place % PAGE);
            let page = &mut self.keys[start..start + size];
            page[at..].iter_mut().step_by(PAGE).zip(keys).for_each(|(to, &from)| *to = from);
            let page = &mut self.values[start..start + size];
            for (head, values) in page.chunks_mut(PAGE * width).zip(values.chunks(width)) {
                head[at * width..(at + 1) * width].copy_from_slice(values);
            }
        }
    }

    pub(super) fn copy_page(&mut self, from: usize, to: usize) {
        let size = self.size();
        for numbers in [&mut self.keys, &mut self.values] {
            numbers.copy_within(from * size..(from + 1) * size, to * size);
        }
    }

    pub(super) fn attend(&self, query: Tensor<2>, seen: &[Seen<'_>], scale: f32) -> Tensor<2> {
        let query = contiguous(query);
        let Heads { heads, kv_heads, width } = self.heads;
        let group = heads / kv_heads * width;
        let mut out = vec![0.0; query.storage::<f32>().len()];
        let arch = Arch::new();
        out.par_chunks_mut(group)
            .zip(query.storage::<f32>().par_chunks(group))
            .enumerate()
            .with_min_len(TASK)
            .for_each_init(Vec::new, |scores, (task, (out, query))| {
                let (row, head) = (task / kv_heads, task % kv_heads);
                let seen = seen[row];
                for (out, query) in out.chunks_mut(width).zip(query.chunks(width)) {
                    arch.dispatch(Attend { pages: self, head, seen, query, scale, scores, out });
                }
            });
        let out = FlexTensor::from_data(TensorData::new(out, [seen.len(), heads * width]));
        Tensor::from_primitive::<Flex>(out)
    }
}

/// Attention for a single row and key/value head.
struct Attend<'a> {
    pages: &'a HostPages,
    /// Key/value head.
    head: usize,
    seen: Seen<'a>,
    query: &'a [f32],
    scale: f32,
    /// Buffer for the score of each position.
    scores: &'a mut Vec<f32>,
    out: &'a mut [f32],
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { pages, head, seen, query, scale, scores, out } = self;
        let block = pages.heads.width * PAGE;
        let used = seen.positions.div_ceil(PAGE);
        let start_of = |page: u32| page as usize * pages.size() + head * block;
        scores.clear();
        scores.resize(used * PAGE, 0.0);
        for (&page, scores) in seen.pages.iter().zip(scores.chunks_mut(PAGE)) {
            let start = start_of(page);
            products(simd, query, &pages.keys[start..start + block], scores);
        }
        let scores = &mut scores[..seen.positions];
        let total = exponentials(scores, scale);
        out.fill(0.0);
        for (&page, weights) in seen.pages.iter().zip(scores.chunks(PAGE)) {
            let start = start_of(page);
            mix(simd, weights, &pages.values[start..start + block], out);
        }
        let inverse = 1.0 / total;
        out.iter_mut().for_each(|out| *out *= inverse);
    }
}

/// Computes `Σ_i q_i K_i` for all positions of a page.
#[inline(always)]
fn products<S: Simd>(simd: S, query: &[f32], keys: &[f32], scores: &mut [f32]) {
    let (scores, _) = S::as_mut_simd_f32s(scores);
    let (pairs, rest) = scores.as_chunks_mut::<2>();
    for (i, pair) in pairs.iter_mut().enumerate() {
        *pair = weighted_sums(simd, query, keys, PAGE, 2 * i * S::F32_LANES);
    }
    let first = 2 * pairs.len() * S::F32_LANES;
    if let [last] = rest {
        [*last] = weighted_sums(simd, query, keys, PAGE, first);
    }
}

/// Replaces each score with `exp(scale · (x − max))` and returns the sum.
#[inline(always)]
fn exponentials(scores: &mut [f32], scale: f32) -> f32 {
    let max = simd::max(scores);
    for x in scores.iter_mut() {
        *x = simd::exp((*x - max) * scale);
    }
    simd::sum([&*scores], |[x]| x)
}

/// Adds `Σ_j p_j V_j` over the positions of a page to `out`.
#[inline(always)]
fn mix<S: Simd>(simd: S, weights: &[f32], values: &[f32], out: &mut [f32]) {
    let width = out.len();
    let (whole, rest) = S::as_mut_simd_f32s(out);
    let (pairs, last) = whole.as_chunks_mut::<2>();
    for (i, [a, b]) in pairs.iter_mut().enumerate() {
        let sums: [_; 2] = weighted_sums(simd, weights, values, width, 2 * i * S::F32_LANES);
        [*a, *b] = [simd.add_f32s(*a, sums[0]), simd.add_f32s(*b, sums[1])];
    }
    if let [last] = last {
        let first = 2 * pairs.len() * S::F32_LANES;
        let [sum] = weighted_sums(simd, weights, values, width, first);
        *last = simd.add_f32s(*last, sum);
    }
    let first = width - rest.len();
    for (i, out) in rest.iter_mut().enumerate() {
        let column = values.iter().skip(first + i).step_by(width);
        *out += weights.iter().zip(column).map(|(weight, value)| weight * value).sum::<f32>();
    }
}

/// Computes `Σ_i w_i R_i` over rows of `columns` numbers, restricted to the `N` vectors of columns that
/// start at `first`. Uses four partial sums.
#[inline(always)]
fn weighted_sums<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    rows: &[f32],
    columns: usize,
    first: usize,
) -> [S::f32s; N] {
    let mut sums = [[simd.splat_f32s(0.0); N]; 4];
    let fours = weights.chunks(4).zip(rows.chunks(4 * columns));
    for (weights, rows) in fours {
        for (u, (weight, row)) in weights.iter().zip(rows.chunks_exact(columns)).enumerate() {
            let (row, _) = S::as_simd_f32s(&row[first..first + N * S::F32_LANES]);
            for n in 0..N {
                sums[u][n] = simd.mul_add_f32s(simd.splat_f32s(*weight), row[n], sums[u][n]);
            }
        }
    }
    let [a, b, c, d] = sums;
    let mut out = a;
    for n in 0..N {
        out[n] = simd.add_f32s(simd.add_f32s(a[n], b[n]), simd.add_f32s(c[n], d[n]));
    }
    out
}

fn contiguous(tensor: Tensor<2>) -> FlexTensor {
    let tensor = tensor
        .try_into_primitive::<Flex>()
        .expect("the tensor is on the CPU and not tracked by autodiff");
    tensor.to_contiguous()
}
