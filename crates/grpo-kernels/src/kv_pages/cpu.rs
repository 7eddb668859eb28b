//! Pages in CPU memory.
//!
//! For each head, a page contains the keys `[width, PAGE]` and the values `[PAGE, width]`. With
//! this layout, scores for all positions of a page and outputs for all columns can be computed with
//! vertical vector operations. No sums across vector lanes are needed.
//!
//! Sums are in the order of [`attention`](crate::attention) for packed sequences, so a token has the
//! same output in sampling and in training, bit for bit.

use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::plan::{PAGE, Seen};
use crate::flex::{matrix, primitive};
use crate::prefetch::prefetch_all;
use crate::{Heads, Scoring, simd};
use grpo_runtime::available_threads;

/// Smallest number of (row, head) pairs per task, unless there are fewer rows than threads.
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

    pub(super) fn write(
        &mut self,
        keys: Tensor<2>,
        values: Tensor<2>,
        places: impl Iterator<Item = usize>,
    ) {
        let (columns, size, width) = (self.heads.key_columns(), self.size(), self.heads.width);
        let (keys, values) = (contiguous(keys), contiguous(values));
        let rows =
            keys.storage::<f32>().chunks(columns).zip(values.storage::<f32>().chunks(columns));
        for (place, (keys, values)) in places.zip(rows) {
            let (start, at) = (place / PAGE * size, place % PAGE);
            let page = &mut self.keys[start..start + size];
            page[at..].iter_mut().step_by(PAGE).zip(keys).for_each(|(to, &from)| *to = from);
            let page = &mut self.values[start..start + size];
            for (head, values) in page.chunks_mut(PAGE * width).zip(values.chunks(width)) {
                head[at * width..(at + 1) * width].copy_from_slice(values);
            }
        }
    }

    pub(super) fn copy_page(&mut self, copy: [u32; 2]) {
        let (size, [from, to]) = (self.size(), copy.map(|page| page as usize));
        for numbers in [&mut self.keys, &mut self.values] {
            numbers.copy_within(from * size..(from + 1) * size, to * size);
        }
    }

    pub(super) fn attend(
        &self,
        query: Tensor<2>,
        seen: &[Seen<'_>],
        scoring: &Scoring,
    ) -> Tensor<2> {
        let query = contiguous(query);
        let Heads { heads, kv_heads, width } = self.heads;
        let columns = heads * width;
        let mut out = vec![0.0; seen.len() * columns];
        // If there are few rows, divide their heads as well to use all threads.
        let parts = available_threads().div_ceil(seen.len().max(1));
        let part = kv_heads.div_ceil(parts) * (heads / kv_heads * width);
        let rows = out.chunks_mut(columns).zip(query.storage::<f32>().chunks(columns)).zip(seen);
        let tasks: Vec<_> = rows
            .flat_map(|((out, query), seen)| {
                let parts = out.chunks_mut(part).zip(query.chunks(part)).enumerate();
                parts.map(move |(index, (out, query))| (index, out, query, *seen))
            })
            .collect();
        let (arch, group) = (Arch::new(), heads / kv_heads);
        let least = if parts > 1 { 1 } else { TASK.div_ceil(kv_heads) };
        let tasks = tasks.into_par_iter().with_min_len(least);
        tasks.for_each_init(Vec::new, |buffer, (index, out, query, seen)| {
            let first = index * part / (group * width);
            arch.dispatch(Attend { pages: self, first, seen, query, scoring, buffer, out });
        });
        Tensor::from_primitive::<Flex>(matrix(out, [seen.len(), columns]))
    }
}

/// Attention for some heads of a single row.
///
/// Each page is read for all heads before the next one, because their blocks follow each other in
/// memory.
struct Attend<'a> {
    pages: &'a HostPages,
    /// First key/value head.
    first: usize,
    seen: Seen<'a>,
    /// Queries of the heads, `[heads, width]`.
    query: &'a [f32],
    scoring: &'a Scoring,
    /// Buffer for the scores, `[heads, positions]`, their totals, `[heads]`, and the scaled queries.
    buffer: &'a mut Vec<f32>,
    /// Same shape as `query`.
    out: &'a mut [f32],
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { pages, first, seen, query, scoring, buffer, out } = self;
        let (scale, cap) = (scoring.scale as f32, scoring.cap.map(|cap| cap as f32));
        let Heads { heads, kv_heads, width } = pages.heads;
        let (group, block) = (heads / kv_heads, width * PAGE);
        // Pages before the window of the row are not read. Positions are relative to the first that is.
        let first_visible = seen.first(scoring);
        let skipped = first_visible / PAGE;
        let used = &seen.pages[skipped..seen.positions.div_ceil(PAGE)];
        let visible = first_visible - skipped * PAGE..seen.positions - skipped * PAGE;
        let columns = used.len() * PAGE;
        let count = query.len() / width;
        buffer.clear();
        buffer.resize(count * (columns + 1), 0.0);
        buffer.extend(query.iter().map(|query| query * scale));
        let (scores, rest) = buffer.split_at_mut(count * columns);
        let (totals, query) = rest.split_at_mut(count);
        let start_of = |page: u32| page as usize * pages.size() + first * block;
        for (i, &page) in used.iter().enumerate() {
            let keys = &pages.keys[start_of(page)..];
            let next = match used.get(i + 1) {
                Some(&next) => &pages.keys[start_of(next)..],
                None => &pages.values[start_of(used[0])..],
            };
            let of_heads = query.chunks(width).zip(scores.chunks_mut(columns)).enumerate();
            for (head, (query, scores)) in of_heads {
                let here = head / group * block..(head / group + 1) * block;
                if head % group == 0 {
                    prefetch_all(&next[here.clone()]);
                }
                products(simd, query, &keys[here], &mut scores[i * PAGE..(i + 1) * PAGE]);
            }
        }
        for (scores, total) in scores.chunks_mut(columns).zip(totals.iter_mut()) {
            if let Some(cap) = cap {
                scores.iter_mut().for_each(|score| *score = simd::capped(*score, cap));
            }
            *total = exponentials(scores, visible.clone());
        }
        out.fill(0.0);
        for (i, &page) in used.iter().enumerate() {
            let values = &pages.values[start_of(page)..];
            let next = used.get(i + 1).map(|&next| &pages.values[start_of(next)..]);
            let positions = i * PAGE..visible.end.min((i + 1) * PAGE);
            let of_heads = scores.chunks(columns).zip(out.chunks_mut(width)).enumerate();
            for (head, (weights, out)) in of_heads {
                let here = head / group * block..(head / group + 1) * block;
                if let Some(next) = next
                    && head % group == 0
                {
                    prefetch_all(&next[here.clone()]);
                }
                mix(simd, &weights[positions.clone()], &values[here], out);
            }
        }
        for (out, total) in out.chunks_mut(width).zip(totals) {
            let inverse = 1.0 / *total;
            out.iter_mut().for_each(|out| *out *= inverse);
        }
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

/// Replaces each visible score with `exp(x − max)` and the others with 0. Returns the sum.
#[inline(always)]
fn exponentials(scores: &mut [f32], visible: Range<usize>) -> f32 {
    let (before, hidden) = scores.split_at_mut(visible.end);
    let (before, visible) = before.split_at_mut(visible.start);
    let max = simd::max(visible);
    for x in visible {
        *x = simd::exp(*x - max);
    }
    before.fill(0.0);
    hidden.fill(0.0);
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
    if !rest.is_empty() {
        let mut sum = simd.splat_f32s(0.0);
        for (weight, row) in weights.iter().zip(values.chunks_exact(width)) {
            let row = simd.partial_load_f32s(&row[width - rest.len()..]);
            sum = simd.mul_add_f32s(simd.splat_f32s(*weight), row, sum);
        }
        let out = simd.partial_load_f32s(rest);
        simd.partial_store_f32s(rest, simd.add_f32s(out, sum));
    }
}

/// Computes `Σ_i w_i R_i` over rows of `columns` numbers, restricted to the `N` vectors of columns that
/// start at `first`. Each column is a chain of multiply-adds, which the processor overlaps with those
/// of other heads.
#[inline(always)]
fn weighted_sums<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    rows: &[f32],
    columns: usize,
    first: usize,
) -> [S::f32s; N] {
    let mut sums = [simd.splat_f32s(0.0); N];
    for (weight, row) in weights.iter().zip(rows.chunks_exact(columns)) {
        let (row, _) = S::as_simd_f32s(&row[first..first + N * S::F32_LANES]);
        for n in 0..N {
            sums[n] = simd.mul_add_f32s(simd.splat_f32s(*weight), row[n], sums[n]);
        }
    }
    sums
}

fn contiguous(tensor: Tensor<2>) -> FlexTensor {
    primitive(tensor).to_contiguous()
}
