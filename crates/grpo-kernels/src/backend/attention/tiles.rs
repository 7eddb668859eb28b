//! Inner loops of attention, which combine a block of [`LANES`] queries with the visible keys.
//!
//! Scores are laid out as `[keys][queries of the block]`. The softmax of each query stays within a
//! lane, and there are no sums across lanes. Sums over keys or features are computed in order, so
//! the result for a query doesn't depend on the block it is in. The order is that of the paged cache
//! ([`KvPages`](crate::KvPages)), where a page has [`PAGE`] keys. Invisible keys have weight 0, which
//! leaves a sum as it is.
//!
//! Widths are padded with zeros to a multiple of [`LANES`], and keys to a multiple of [`GROUP`].

use crate::PAGE;
use crate::simd::{self, LANES};

/// One number for each query in a block.
pub(super) type Lanes = [f32; LANES];

/// Keys are padded to a multiple of this.
pub(super) const GROUP: usize = 8;

/// Number of rows that share each load of the other operand in [`scores`], if an accumulator of
/// [`LANES`] numbers fits into one register, as with AVX-512.
pub(super) const ROWS_AVX512: usize = GROUP;

/// The same number if an accumulator takes several registers: eight accumulators would fill all
/// registers of AVX2.
///
/// [`mix`] and [`spread`] use it everywhere. With AVX-512, LLVM vectorises them across eight rows
/// instead of across lanes, with gathers and scatters, and they take about 50 times as long
/// (docs/LOG.md, 2026-11-27).
pub(super) const ROWS: usize = GROUP / 2;

/// Computes `sums[lane] += a · b[lane]`, using fused multiply-add if available.
#[inline(always)]
fn add_product<const FMA: bool>(sums: &mut Lanes, a: f32, b: &Lanes) {
    for (sum, &b) in sums.iter_mut().zip(b) {
        *sum = if FMA { a.mul_add(b, *sum) } else { a * b + *sum };
    }
}

/// Computes `scores[key][query] = Σ_i rows[key][i] · block[i][query]`, `N` keys at a time. `rows` has
/// shape `[keys][width]`.
#[inline(always)]
pub(super) fn scores<const FMA: bool, const N: usize>(
    block: &[Lanes],
    rows: &[f32],
    scores: &mut [Lanes],
) {
    let width = block.len();
    let (scores, _) = scores.as_chunks_mut::<N>();
    for (rows, scores) in rows.chunks_exact(N * width).zip(scores) {
        let rows: [&[f32]; N] = std::array::from_fn(|row| &rows[row * width..][..width]);
        let mut sums = [[0.0; LANES]; N];
        for i in 0..width {
            for key in 0..N {
                add_product::<FMA>(&mut sums[key], rows[key][i], &block[i]);
            }
        }
        *scores = sums;
    }
}

/// Computes `mixed[query][i] = Σ_key weights[key][query] · rows[key][i]`, [`ROWS`] queries at a time.
/// `rows` has shape `[keys][width]` and `mixed` has shape `[LANES][width]`, both stored as vectors.
#[inline(always)]
pub(super) fn mix<const FMA: bool>(weights: &[Lanes], rows: &[Lanes], mixed: &mut [Lanes]) {
    let vectors = mixed.len() / LANES;
    for pass in 0..LANES / ROWS {
        for column in 0..vectors {
            let mut totals = [[0.0; LANES]; ROWS];
            for (weights, rows) in weights.chunks(PAGE).zip(rows.chunks(PAGE * vectors)) {
                let mut sums = [[0.0; LANES]; ROWS];
                for (weights, row) in weights.iter().zip(rows.chunks_exact(vectors)) {
                    let (passes, _) = weights.as_chunks::<ROWS>();
                    let (weights, row) = (&passes[pass], &row[column]);
                    for query in 0..ROWS {
                        add_product::<FMA>(&mut sums[query], weights[query], row);
                    }
                }
                for query in 0..ROWS {
                    add(&mut totals[query], &sums[query]);
                }
            }
            for query in 0..ROWS {
                mixed[(pass * ROWS + query) * vectors + column] = totals[query];
            }
        }
    }
}

/// Computes `sums[key][i] += Σ_query weights[key][query] · block[query][i]`, [`ROWS`] keys at a time.
/// `block` has shape `[LANES][width]` and `sums` has shape `[keys][width]`, both stored as vectors.
#[inline(always)]
pub(super) fn spread<const FMA: bool>(weights: &[Lanes], block: &[Lanes], sums: &mut [Lanes]) {
    let vectors = block.len() / LANES;
    let (weights, _) = weights.as_chunks::<ROWS>();
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(ROWS * vectors)) {
        for column in 0..vectors {
            let mut of_block = [[0.0; LANES]; ROWS];
            for query in 0..LANES {
                let row = &block[query * vectors + column];
                for key in 0..ROWS {
                    add_product::<FMA>(&mut of_block[key], weights[key][query], row);
                }
            }
            for key in 0..ROWS {
                add(&mut sums[key * vectors + column], &of_block[key]);
            }
        }
    }
}

#[inline(always)]
fn add(total: &mut Lanes, sum: &Lanes) {
    for (total, sum) in total.iter_mut().zip(sum) {
        *total += sum;
    }
}

/// Returns the largest score of each query.
#[inline(always)]
pub(super) fn largest(scores: &[Lanes]) -> Lanes {
    let mut largest = [f32::NEG_INFINITY; LANES];
    for scores in scores {
        for (largest, &score) in largest.iter_mut().zip(scores) {
            *largest = if score > *largest { score } else { *largest };
        }
    }
    largest
}

/// Replaces each score with `cap · tanh(score / cap)`.
#[inline(always)]
pub(super) fn capped(scores: &mut [Lanes], cap: f32) {
    for score in scores.as_flattened_mut() {
        *score = simd::capped(*score, cap);
    }
}

/// Replaces each score with `exp(score − largest)`.
#[inline(always)]
pub(super) fn exponentiate(scores: &mut [Lanes], largest: &Lanes) {
    for scores in scores {
        for (score, &largest) in scores.iter_mut().zip(largest) {
            *score = simd::exp(*score - largest);
        }
    }
}

/// Returns the sum of the weights of each query. Every [`LANES`]-th key is in the same partial sum,
/// as in [`simd::sum`].
#[inline(always)]
pub(super) fn totals(weights: &[Lanes]) -> Lanes {
    let mut sums = [[0.0; LANES]; LANES];
    for keys in weights.chunks(LANES) {
        keys.iter().zip(&mut sums).for_each(|(weights, sum)| add(sum, weights));
    }
    let mut totals = [0.0; LANES];
    sums.iter().for_each(|sum| add(&mut totals, sum));
    totals
}

/// Sets the invisible scores of a causal block to `value`. The first of `keys` is invisible to the
/// first query, but visible to the second.
#[inline(always)]
pub(super) fn hide(keys: &mut [Lanes], value: f32) {
    for (key, lanes) in keys.iter_mut().enumerate() {
        for (query, lane) in lanes.iter_mut().enumerate() {
            *lane = if query <= key { value } else { *lane };
        }
    }
}
