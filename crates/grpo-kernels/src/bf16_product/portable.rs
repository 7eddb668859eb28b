//! Sums with multiply-adds in `f32`.

use pulp::{Arch, Simd, WithSimd};

use crate::product::STRIP;

pub(super) fn sum<const R: usize>(
    x: [&[u32]; R],
    strip: &[[u32; STRIP]],
    sums: &mut [[f32; STRIP]; R],
) {
    Arch::new().dispatch(Product { x, strip, sums });
}

struct Product<'a, const R: usize> {
    x: [&'a [u32]; R],
    strip: &'a [[u32; STRIP]],
    sums: &'a mut [[f32; STRIP]; R],
}

impl<const R: usize> WithSimd for Product<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            8 => self.sum::<S, 2>(simd),
            _ => self.sum::<S, 4>(simd),
        }
    }
}

impl<const R: usize> Product<'_, R> {
    /// Computes the sums of `V` vectors of columns at a time, which fit into the registers.
    #[inline(always)]
    fn sum<S: Simd, const V: usize>(self, simd: S) {
        let Self { x, strip, sums } = self;
        let width = V * S::F32_LANES;
        // Slices of the same length, so that the loop needs no bounds checks.
        let x: [&[u32]; R] = x.map(|x| &x[..strip.len()]);
        for column in (0..STRIP).step_by(width) {
            let mut rows = [[simd.splat_f32s(0.0); V]; R];
            for (pair, columns) in strip.iter().enumerate() {
                let x = x.map(|x| x[pair]);
                let (vectors, _) = S::as_simd_u32s(&columns[column..][..width]);
                add(simd, &x, vectors, upper, &mut rows);
                add(simd, &x, vectors, lower, &mut rows);
            }
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let (sums, _) = S::as_mut_simd_f32s(&mut sums[column..][..width]);
                sums.copy_from_slice(row);
            }
        }
    }
}

/// Adds the products of one half of each pair.
#[inline(always)]
fn add<S: Simd, const R: usize, const V: usize>(
    simd: S,
    x: &[u32; R],
    columns: &[S::u32s],
    half: impl Fn(S, S::u32s) -> S::f32s,
    rows: &mut [[S::f32s; V]; R],
) {
    let columns: [S::f32s; V] = std::array::from_fn(|v| half(simd, columns[v]));
    for r in 0..R {
        let x = half(simd, simd.splat_u32s(x[r]));
        for v in 0..V {
            rows[r][v] = simd.mul_add_f32s(x, columns[v], rows[r][v]);
        }
    }
}

/// Returns the upper halves of pairs, as `f32`.
#[inline(always)]
fn upper<S: Simd>(simd: S, pairs: S::u32s) -> S::f32s {
    simd.transmute_f32s_u32s(simd.and_u32s(pairs, simd.splat_u32s(0xffff_0000)))
}

/// Returns the lower halves of pairs, as `f32`.
#[inline(always)]
fn lower<S: Simd>(simd: S, pairs: S::u32s) -> S::f32s {
    simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(pairs, simd.splat_u32s(16)))
}
