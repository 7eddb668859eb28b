//! Products of attention: a block of [`LANES`] queries with the visible keys.
//!
//! Scores have the layout `[keys][queries of the block]`, so the softmax of each query runs along a
//! lane without sums across lanes. Sums over keys or features are taken in order, so the results of
//! a query do not depend on its block.
//!
//! Widths are padded with 0 to a multiple of [`LANES`], keys to one of [`GROUP`].

use crate::simd::{self, LANES};

/// A number for each query of a block.
pub(super) type Lanes = [f32; LANES];

/// Rows of an operand that share a load of the other; as many accumulators stay in registers.
pub(super) const GROUP: usize = 8;

/// Keys that are summed before their sum is added to the previous ones.
const TILE: usize = 64;

/// `sums[lane] += a · b[lane]`, as a fused multiply-add if supported.
#[inline(always)]
fn add_product<const FMA: bool>(sums: &mut Lanes, a: f32, b: &Lanes) {
    for (sum, &b) in sums.iter_mut().zip(b) {
        *sum = if FMA { a.mul_add(b, *sum) } else { a * b + *sum };
    }
}

/// `scores[key][query] = Σ_i rows[key][i] · block[i][query]`; rows `[keys][width]`.
#[inline(always)]
pub(super) fn scores<const FMA: bool>(block: &[Lanes], rows: &[f32], scores: &mut [Lanes]) {
    let width = block.len();
    let (scores, _) = scores.as_chunks_mut::<GROUP>();
    for (rows, scores) in rows.chunks_exact(GROUP * width).zip(scores) {
        let row = |row: usize| &rows[row * width..][..width];
        let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
        let [e, f, g, h] = [row(4), row(5), row(6), row(7)];
        let mut sums = [[0.0; LANES]; GROUP];
        for i in 0..width {
            let of_keys = [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]];
            for key in 0..GROUP {
                add_product::<FMA>(&mut sums[key], of_keys[key], &block[i]);
            }
        }
        *scores = sums;
    }
}

/// `mixed[query][i] = Σ_key weights[key][query] · rows[key][i]`; rows `[keys][width]`, mixed `[LANES][width]`, both in
/// vectors.
#[inline(always)]
pub(super) fn mix<const FMA: bool>(weights: &[Lanes], rows: &[Lanes], mixed: &mut [Lanes]) {
    let vectors = mixed.len() / LANES;
    for half in 0..LANES / GROUP {
        for column in 0..vectors {
            let mut totals = [[0.0; LANES]; GROUP];
            for (weights, rows) in weights.chunks(TILE).zip(rows.chunks(TILE * vectors)) {
                let mut sums = [[0.0; LANES]; GROUP];
                for (weights, row) in weights.iter().zip(rows.chunks_exact(vectors)) {
                    let (halves, _) = weights.as_chunks::<GROUP>();
                    let (weights, row) = (&halves[half], &row[column]);
                    for query in 0..GROUP {
                        add_product::<FMA>(&mut sums[query], weights[query], row);
                    }
                }
                for query in 0..GROUP {
                    add(&mut totals[query], &sums[query]);
                }
            }
            for query in 0..GROUP {
                mixed[(half * GROUP + query) * vectors + column] = totals[query];
            }
        }
    }
}

/// `sums[key][i] += Σ_query weights[key][query] · block[query][i]`; block `[LANES][width]`, sums `[keys][width]`, both in
/// vectors.
#[inline(always)]
pub(super) fn spread<const FMA: bool>(weights: &[Lanes], block: &[Lanes], sums: &mut [Lanes]) {
    let vectors = block.len() / LANES;
    let (weights, _) = weights.as_chunks::<GROUP>();
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(GROUP * vectors)) {
        for column in 0..vectors {
            let mut of_block = [[0.0; LANES]; GROUP];
            for query in 0..LANES {
                let row = &block[query * vectors + column];
                for key in 0..GROUP {
                    add_product::<FMA>(&mut of_block[key], weights[key][query], row);
                }
            }
            for key in 0..GROUP {
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

/// The largest score of each query.
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

/// Replaces scores by `exp(score − largest)` and returns the sum of each query.
#[inline(always)]
pub(super) fn exponentiate(scores: &mut [Lanes], largest: &Lanes) -> Lanes {
    let mut totals = [0.0; LANES];
    for tile in scores.chunks_mut(TILE) {
        let mut sums = [0.0; LANES];
        for scores in tile {
            for ((score, &largest), sum) in scores.iter_mut().zip(largest).zip(&mut sums) {
                *score = simd::exp(*score - largest);
                *sum += *score;
            }
        }
        add(&mut totals, &sums);
    }
    totals
}

/// Sets invisible scores of a causal block to `value`; the second query sees the first of `keys`,
/// the first does not.
#[inline(always)]
pub(super) fn hide(keys: &mut [Lanes], value: f32) {
    for (key, lanes) in keys.iter_mut().enumerate() {
        for (query, lane) in lanes.iter_mut().enumerate() {
            *lane = if query <= key { value } else { *lane };
        }
    }
}
