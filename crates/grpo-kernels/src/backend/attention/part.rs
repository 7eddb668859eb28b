//! Forward and backward attention for a subset of a sequence's queries.

use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::tiles::{
    GROUP, Lanes, ROWS, ROWS_AVX512, capped, exponentiate, hide, largest, mix, scores, spread,
    totals,
};
use crate::simd::{self, LANES};
use crate::{Heads, PAGE};

/// A range of adjacent matrix columns.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// Values, starting at the first column of the first row.
    pub(super) values: &'a [f32],
    /// Distance between rows.
    pub(super) stride: usize,
}

impl<'a> Columns<'a> {
    #[inline(always)]
    fn of_row(&self, row: usize, column: usize, width: usize) -> &'a [f32] {
        let start = row * self.stride + column;
        &self.values[start..start + width]
    }
}

/// Queries, keys and values for all sequences.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) query: Columns<'a>,
    pub(super) keys: Columns<'a>,
    pub(super) values: Columns<'a>,
    pub(super) heads: Heads,
    /// Factor applied to the scores.
    pub(super) scale: f32,
    /// See [`Scoring`](crate::Scoring).
    pub(super) window: Option<usize>,
    pub(super) cap: Option<f32>,
    pub(super) causal: bool,
}

/// A range of queries in a sequence.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Index of the sequence.
    pub(super) sequence: usize,
    /// Rows of the sequence that this one continues.
    pub(super) prefix: Range<usize>,
    /// Rows of this sequence.
    pub(super) own: Range<usize>,
    /// Query range, relative to the first row of the sequence.
    pub(super) queries: Range<usize>,
}

impl Part {
    /// Returns the number of keys visible to the last query, including the prefix.
    pub(super) fn keys(&self, causal: bool) -> usize {
        self.prefix.len() + if causal { self.queries.end } else { self.own.len() }
    }

    /// Returns the row of each key.
    #[inline(always)]
    fn rows(&self) -> impl Iterator<Item = usize> {
        self.prefix.clone().chain(self.own.clone())
    }
}

/// Number of values saved per query and head. The attention weights are
/// `exp(score − largest) · inverse`.
pub(super) const NORMALIZERS: usize = 2;

/// Computes the attention output for a part. `output` has shape `[queries][heads · width]`, and
/// `normalizers` has shape `[queries][heads · NORMALIZERS]`.
#[multiversion(targets = "simd")]
pub(super) fn forward(
    inputs: &Inputs<'_>,
    part: &Part,
    output: &mut [f32],
    normalizers: &mut [f32],
) {
    let is_avx512 = target_cfg_f!(target_feature = "avx512f");
    let has_fma = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    match (is_avx512, has_fma) {
        (true, _) => forward_with::<true, ROWS_AVX512>(inputs, part, output, normalizers),
        (false, true) => forward_with::<true, ROWS>(inputs, part, output, normalizers),
        (false, false) => forward_with::<false, ROWS>(inputs, part, output, normalizers),
    }
}

#[inline(always)]
fn forward_with<const FMA: bool, const N: usize>(
    inputs: &Inputs<'_>,
    part: &Part,
    output: &mut [f32],
    normalizers: &mut [f32],
) {
    let Heads { heads, kv_heads, width } = inputs.heads;
    let padded = width.next_multiple_of(LANES);
    let mut tiles = Tiles::new(part.keys(inputs.causal), padded);
    let mut query = vec![[0.0; LANES]; padded];
    let mut mixed = vec![[0.0; LANES]; padded];
    for head in 0..heads {
        if head % (heads / kv_heads) == 0 {
            tiles.pack(inputs, part, head / (heads / kv_heads));
        }
        for block in Block::all(part, inputs) {
            block.transposed(&inputs.query, head * width, width, inputs.scale, &mut query);
            let (first, count) = (block.first_vector(padded), block.seen - block.skipped);
            let weights = &mut tiles.weights[..count.next_multiple_of(GROUP)];
            scores::<FMA, N>(&query, tiles.keys[first..].as_flattened(), weights);
            if let Some(cap) = inputs.cap {
                capped(weights, cap);
            }
            let weights = &mut weights[..count];
            block.hide(weights, f32::NEG_INFINITY);
            let largest = largest(weights);
            exponentiate(weights, &largest);
            block.hide(weights, 0.0);
            let sums = totals(weights);
            mix::<FMA>(weights, &tiles.values[first..], &mut mixed);
            for (query, row) in block.queries.clone().enumerate() {
                let row = row - part.queries.start;
                let inverse = 1.0 / sums[query];
                let mixed = &mixed.as_flattened()[query * padded..][..width];
                let output = &mut output[(row * heads + head) * width..][..width];
                for (output, &mixed) in output.iter_mut().zip(mixed) {
                    *output = mixed * inverse;
                }
                normalizers[(row * heads + head) * NORMALIZERS..][..NORMALIZERS]
                    .copy_from_slice(&[largest[query], inverse]);
            }
        }
    }
}

/// Additional inputs to the backward pass, for all rows.
#[derive(Clone, Copy)]
pub(super) struct Upstream<'a> {
    /// Attention output, `[rows][heads · width]`.
    pub(super) output: &'a [f32],
    /// Gradient of the output.
    pub(super) gradient: &'a [f32],
    /// Shape `[rows][heads · NORMALIZERS]`.
    pub(super) normalizers: &'a [f32],
}

/// Gradients contributed by the queries of a part, for all heads that share one key/value head.
pub(super) struct Gradients {
    /// Shape `[queries][heads of the group · width]`.
    pub(super) query: Vec<f32>,
    /// Shape `[keys][padded width]`.
    pub(super) keys: Vec<Lanes>,
    pub(super) values: Vec<Lanes>,
    pub(super) padded: usize,
}

/// Computes the [`Gradients`] of a part.
#[multiversion(targets = "simd")]
pub(super) fn backward(
    inputs: &Inputs<'_>,
    part: &Part,
    kv_head: usize,
    upstream: &Upstream<'_>,
) -> Gradients {
    let is_avx512 = target_cfg_f!(target_feature = "avx512f");
    let has_fma = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    match (is_avx512, has_fma) {
        (true, _) => backward_with::<true, ROWS_AVX512>(inputs, part, kv_head, upstream),
        (false, true) => backward_with::<true, ROWS>(inputs, part, kv_head, upstream),
        (false, false) => backward_with::<false, ROWS>(inputs, part, kv_head, upstream),
    }
}

#[inline(always)]
fn backward_with<const FMA: bool, const N: usize>(
    inputs: &Inputs<'_>,
    part: &Part,
    kv_head: usize,
    upstream: &Upstream<'_>,
) -> Gradients {
    let Heads { heads, kv_heads, width } = inputs.heads;
    let (group, padded) = (heads / kv_heads, width.next_multiple_of(LANES));
    let mut tiles = Tiles::new(part.keys(inputs.causal), padded);
    tiles.pack(inputs, part, kv_head);
    let mut score_gradients = vec![[0.0; LANES]; tiles.weights.len()];
    let mut slopes = vec![[0.0; LANES]; inputs.cap.map_or(0, |_| tiles.weights.len())];
    let [mut query, mut gradient] = [0, 1].map(|_| vec![[0.0; LANES]; padded]);
    let [mut query_rows, mut gradient_rows, mut mixed] =
        [0, 1, 2].map(|_| vec![[0.0; LANES]; padded]);
    let dy = Columns { values: upstream.gradient, stride: heads * width };
    let mut gradients = Gradients {
        query: vec![0.0; part.queries.len() * group * width],
        keys: vec![[0.0; LANES]; tiles.keys.len()],
        values: vec![[0.0; LANES]; tiles.keys.len()],
        padded,
    };
    for head in kv_head * group..(kv_head + 1) * group {
        for block in Block::all(part, inputs) {
            block.transposed(&inputs.query, head * width, width, inputs.scale, &mut query);
            block.transposed(&dy, head * width, width, 1.0, &mut gradient);
            block.rows(&inputs.query, head * width, width, inputs.scale, &mut query_rows);
            block.rows(&dy, head * width, width, 1.0, &mut gradient_rows);
            let [largest, inverse, dots] = block.of_queries(head, &inputs.heads, upstream);

            // Recompute the attention weights.
            let (first, count) = (block.first_vector(padded), block.seen - block.skipped);
            let keys = count.next_multiple_of(GROUP);
            let weights = &mut tiles.weights[..keys];
            scores::<FMA, N>(&query, tiles.keys[first..].as_flattened(), weights);
            if let Some(cap) = inputs.cap {
                capped(weights, cap);
                set_slopes(&mut slopes, weights, cap);
            }
            exponentiate(&mut weights[..count], &largest);
            block.hide(&mut weights[..count], 0.0);
            weights[count..].fill([0.0; LANES]);
            // The gradient of a weight is dy · v. The gradient of a score is
            // weight · (dy · v − dy · y).
            let of_scores = &mut score_gradients[..keys];
            scores::<FMA, N>(&gradient, tiles.values[first..].as_flattened(), of_scores);
            for (weights, of_scores) in weights.iter_mut().zip(of_scores.iter_mut()) {
                for lane in 0..LANES {
                    weights[lane] *= inverse[lane];
                    of_scores[lane] = weights[lane] * (of_scores[lane] - dots[lane]);
                }
            }
            let slopes = slopes.as_flattened();
            of_scores
                .as_flattened_mut()
                .iter_mut()
                .zip(slopes)
                .for_each(|(dy, slope)| *dy *= slope);
            spread::<FMA>(weights, &gradient_rows, &mut gradients.values[first..]);
            spread::<FMA>(of_scores, &query_rows, &mut gradients.keys[first..]);
            mix::<FMA>(of_scores, &tiles.keys[first..], &mut mixed);
            for (query, row) in block.queries.clone().enumerate() {
                let column = (head - kv_head * group) * width;
                let row = (row - part.queries.start) * group * width + column;
                let mixed = &mixed.as_flattened()[query * padded..][..width];
                for (to, &mixed) in gradients.query[row..row + width].iter_mut().zip(mixed) {
                    *to = mixed * inputs.scale;
                }
            }
        }
    }
    gradients
}

/// Sets the derivatives of capped scores with respect to the scores before.
#[inline(always)]
fn set_slopes(slopes: &mut [Lanes], capped: &[Lanes], cap: f32) {
    for (slope, &score) in slopes.as_flattened_mut().iter_mut().zip(capped.as_flattened()) {
        *slope = 1.0 - (score / cap) * (score / cap);
    }
}

/// Keys and values of one head, laid out for the inner loops, and a buffer for scores.
struct Tiles {
    /// Shape `[keys][padded width]`. Keys are padded with zeros to a multiple of [`GROUP`].
    keys: Vec<Lanes>,
    values: Vec<Lanes>,
    /// Shape `[keys]`.
    weights: Vec<Lanes>,
    padded: usize,
}

impl Tiles {
    #[inline(always)]
    fn new(keys: usize, padded: usize) -> Self {
        let keys = keys.next_multiple_of(GROUP);
        let [of_keys, values] = [0, 1].map(|_| vec![[0.0; LANES]; keys * padded / LANES]);
        Self { keys: of_keys, values, weights: vec![[0.0; LANES]; keys], padded }
    }

    #[inline(always)]
    fn pack(&mut self, inputs: &Inputs<'_>, part: &Part, kv_head: usize) {
        let width = inputs.heads.width;
        let count = part.keys(inputs.causal);
        for (tile, from) in [(&mut self.keys, inputs.keys), (&mut self.values, inputs.values)] {
            let places = tile.as_flattened_mut().chunks_exact_mut(self.padded).take(count);
            for (to, row) in places.zip(part.rows()) {
                to[..width].copy_from_slice(from.of_row(row, kv_head * width, width));
            }
        }
    }
}

/// A block of up to [`LANES`] queries.
struct Block {
    /// Query range, relative to the first row of the sequence.
    queries: Range<usize>,
    first_row: usize,
    /// Number of keys that no query sees because their windows begin later. Only whole pages.
    skipped: usize,
    /// Number of keys up to the last that the last query sees, and up to the last that all see.
    seen: usize,
    seen_by_all: usize,
    window: Option<usize>,
}

impl Block {
    #[inline(always)]
    fn all(part: &Part, inputs: &Inputs<'_>) -> impl Iterator<Item = Self> {
        let Inputs { causal, window, .. } = *inputs;
        let (prefix, own, queries) = (part.prefix.len(), part.own.clone(), part.queries.clone());
        queries.clone().step_by(LANES).map(move |start| {
            let queries = start..queries.end.min(start + LANES);
            let seen = prefix + if causal { queries.end } else { own.len() };
            let seen_by_all = if causal { prefix + start + 1 } else { seen };
            let unseen = window.map_or(0, |window| (prefix + start + 1).saturating_sub(window));
            let skipped = unseen / PAGE * PAGE;
            Self { first_row: own.start + start, queries, skipped, seen, seen_by_all, window }
        })
    }

    /// Returns the place of the first key that is not skipped among the vectors of all keys.
    #[inline(always)]
    fn first_vector(&self, padded: usize) -> usize {
        self.skipped * padded / LANES
    }

    /// Sets the scores that a query does not see to `value`. The keys begin behind the skipped ones.
    #[inline(always)]
    fn hide(&self, keys: &mut [Lanes], value: f32) {
        hide(&mut keys[self.seen_by_all - self.skipped..], value);
        let Some(window) = self.window else { return };
        // Windows are only causal, so all keys up to the first query's are visible to all.
        let (position, last) = (self.seen_by_all, self.queries.len() - 1);
        // Queries that are missing see as much as the last one, so that nothing is divided by 0.
        let first = |query: usize| (position + query.min(last)).saturating_sub(window);
        let partly = first(last).saturating_sub(self.skipped);
        for (key, lanes) in keys[..partly].iter_mut().enumerate() {
            for (query, lane) in lanes.iter_mut().enumerate() {
                *lane = if self.skipped + key < first(query) { value } else { *lane };
            }
        }
    }

    /// Writes the block as `[width][queries]`. Missing queries are 0.
    #[inline(always)]
    fn transposed(
        &self,
        of: &Columns<'_>,
        column: usize,
        width: usize,
        scale: f32,
        to: &mut [Lanes],
    ) {
        let row = |query: usize| of.of_row(self.first_row + query, column, width);
        if self.queries.len() < LANES {
            to.fill([0.0; LANES]);
            for query in 0..self.queries.len() {
                for (to, &value) in to.iter_mut().zip(row(query)) {
                    to[query] = value * scale;
                }
            }
            return;
        }
        let rows: [&[f32]; LANES] = std::array::from_fn(row);
        for (i, to) in to[..width].iter_mut().enumerate() {
            for (to, row) in to.iter_mut().zip(&rows) {
                *to = row[i] * scale;
            }
        }
    }

    /// Writes the block as `[queries][padded width]`. Missing queries are 0.
    #[inline(always)]
    fn rows(&self, of: &Columns<'_>, column: usize, width: usize, scale: f32, to: &mut [Lanes]) {
        let padded = to.len();
        for (query, to) in to.as_flattened_mut().chunks_exact_mut(padded).enumerate() {
            if query >= self.queries.len() {
                to.fill(0.0);
                continue;
            }
            let row = of.of_row(self.first_row + query, column, width);
            for (to, &value) in to.iter_mut().zip(row) {
                *to = value * scale;
            }
        }
    }

    /// Returns both normalisers and `dy · y` for each query. Missing queries are 0.
    #[inline(always)]
    fn of_queries(&self, head: usize, of: &Heads, upstream: &Upstream<'_>) -> [Lanes; 3] {
        let mut lanes = [[0.0; LANES]; 3];
        for query in 0..self.queries.len() {
            let place = (self.first_row + query) * of.heads + head;
            for (lanes, which) in lanes.iter_mut().zip(0..NORMALIZERS) {
                lanes[query] = upstream.normalizers[place * NORMALIZERS + which];
            }
            let row = place * of.width..(place + 1) * of.width;
            let (y, dy) = (&upstream.output[row.clone()], &upstream.gradient[row]);
            lanes[2][query] = simd::sum([y, dy], |[y, dy]| y * dy);
        }
        lanes
    }
}
