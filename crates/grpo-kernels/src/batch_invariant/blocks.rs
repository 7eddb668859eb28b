//! Blocks of rows, whose sums stay in registers.

use std::ops::Range;

use pulp::Simd;

use super::strip::{Input, Widen};
use crate::product::{Output, STRIP, blocks};

/// Number of terms after which a block prefetches more of what is needed next. Prefetching everything
/// before the first term fills the processor's load queue and stalls the block. Prefetching after every
/// term costs AVX2 a register that the sums need (see docs/LOG.md).
const TERMS_PER_PREFETCH: usize = 16;

/// A range of terms of a product.
pub(super) struct Terms<'a> {
    pub(super) x: Input<'a>,
    pub(super) terms: Range<usize>,
    /// Added to each row after the last term. It starts with the first column of the output.
    pub(super) bias: Option<&'a [f32]>,
}

/// Adds terms to all rows of `y`, for the columns that start at `first` of `weights` and at `column` of
/// `y`. The first range of terms starts the sums. `prefetch_ahead` is called before each
/// block, and what it returns is called with ranges of the block's terms before they are added.
///
/// # Safety
/// All earlier terms must have been added to these columns of all rows.
#[inline(always)]
#[expect(
    unsafe_code,
    reason = "reads sums of earlier terms from memory that was not initialised before"
)]
pub(super) unsafe fn add_blocks<S: Simd, const V: usize, P: Fn(Range<usize>)>(
    simd: S,
    terms: &Terms<'_>,
    weights: &impl Widen,
    [first, column]: [usize; 2],
    y: Output<'_, '_>,
    mut prefetch_ahead: impl FnMut() -> P,
) {
    for block in blocks(y.len()) {
        let prefetch = prefetch_ahead();
        let (rows, row) = (block.len(), block.start);
        let y = &mut y[block];
        // SAFETY: required of the caller.
        unsafe {
            match rows {
                1 => add_block::<S, 1, V>(simd, terms, row, weights, [first, column], y, prefetch),
                2 => add_block::<S, 2, V>(simd, terms, row, weights, [first, column], y, prefetch),
                3 => add_block::<S, 3, V>(simd, terms, row, weights, [first, column], y, prefetch),
                4 => add_block::<S, 4, V>(simd, terms, row, weights, [first, column], y, prefetch),
                5 => add_block::<S, 5, V>(simd, terms, row, weights, [first, column], y, prefetch),
                _ => add_block::<S, 6, V>(simd, terms, row, weights, [first, column], y, prefetch),
            }
        }
    }
}

/// Adds terms to a block of `R` rows, which starts at `row`.
///
/// # Safety
/// See [`add_blocks`].
#[inline(always)]
#[expect(unsafe_code, reason = "see `add_blocks`")]
unsafe fn add_block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    of: &Terms<'_>,
    row: usize,
    weights: &impl Widen,
    [first, column]: [usize; 2],
    y: Output<'_, '_>,
    prefetch: impl Fn(Range<usize>),
) {
    let Terms { x, terms, bias } = of;
    let width = V * S::F32_LANES;
    let count = (y[0].len() - column).min(width);
    let columns = column..column + count;
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    if terms.start > 0 {
        for r in 0..R {
            // SAFETY: the terms before these were added, which wrote these columns.
            let before = unsafe { y[r][columns.clone()].assume_init_ref() };
            sums[r] = load::<S, V>(before);
        }
    }
    let count_of_terms = terms.len();
    for start in (0..count_of_terms).step_by(TERMS_PER_PREFETCH) {
        let group = start..count_of_terms.min(start + TERMS_PER_PREFETCH);
        prefetch(group.clone());
        // Slices of the same length, so that the loop needs no bounds checks.
        let x: [&[f32]; R] =
            std::array::from_fn(|r| &x.values[(row + r) * x.inner + terms.start..][group.clone()]);
        #[expect(clippy::needless_range_loop, reason = "the index is that of a term in all rows")]
        for i in 0..group.len() {
            let vectors = weights.vectors::<S, V>(start + i, first);
            for r in 0..R {
                let a = simd.splat_f32s(x[r][i]);
                for v in 0..V {
                    sums[r][v] = simd.mul_add_f32s(a, vectors[v], sums[r][v]);
                }
            }
        }
    }
    if let Some(bias) = bias
        && terms.end == of.x.inner
    {
        let bias = load::<S, V>(&bias[columns.clone()]);
        for sums in &mut sums {
            for v in 0..V {
                sums[v] = simd.add_f32s(sums[v], bias[v]);
            }
        }
    }
    for r in 0..R {
        let y = &mut y[r][columns.clone()];
        if count == width {
            let (vectors, _) = S::as_uninit_mut_simd_f32s(y);
            vectors.write_copy_of_slice(&sums[r]);
        } else {
            let mut copy = [0.0; STRIP];
            let (vectors, _) = S::as_mut_simd_f32s(&mut copy[..width]);
            vectors.copy_from_slice(&sums[r]);
            y.write_copy_of_slice(&copy[..count]);
        }
    }

    /// Loads numbers into vectors, filled up with zeros. Incomplete vectors are copied, because partial
    /// loads would keep all sums out of registers.
    #[inline(always)]
    fn load<S: Simd, const V: usize>(numbers: &[f32]) -> [S::f32s; V] {
        let width = V * S::F32_LANES;
        let mut copy = [0.0; STRIP];
        let numbers = match numbers.len() == width {
            true => numbers,
            false => {
                copy[..numbers.len()].copy_from_slice(numbers);
                &copy[..width]
            }
        };
        let (vectors, _) = S::as_simd_f32s(numbers);
        std::array::from_fn(|v| vectors[v])
    }
}
