//! Sums with AVX512-BF16.
//!
//! `VDPBF16PS` multiplies two pairs and adds both products to a sum in `f32`: first that of the
//! upper halves, then that of the lower ones, each rounded to nearest (Intel 64 and IA-32
//! Architectures Software Developer's Manual, volume 2; measured on AMD Zen 4). A product of two
//! bf16 numbers is exact in `f32`, so this is the chain of multiply-adds that
//! [`portable`](super::portable) computes.

use std::arch::x86_64::{
    __m512bh, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use crate::product::STRIP;

/// Proof that the processor has AVX-512 and AVX512-BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(());

/// Vectors of 16 columns in a strip.
const VECTORS: usize = STRIP / 16;

impl Token {
    pub(super) fn new() -> Option<Self> {
        let has_both =
            is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        has_both.then_some(Self(()))
    }

    pub(super) fn sum<const R: usize>(
        self,
        x: [&[u32]; R],
        strip: &[[u32; STRIP]],
        sums: &mut [[f32; STRIP]; R],
    ) {
        #[expect(unsafe_code, reason = "no crate offers these instructions without it")]
        // SAFETY: a token only exists if the processor has them.
        unsafe {
            sum(x, strip, sums);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn sum<const R: usize>(x: [&[u32]; R], strip: &[[u32; STRIP]], sums: &mut [[f32; STRIP]; R]) {
    let mut rows = [[_mm512_setzero_ps(); VECTORS]; R];
    // Slices of the same length, so that the loop needs no bounds checks.
    let x: [&[u32]; R] = x.map(|x| &x[..strip.len()]);
    for (pair, columns) in strip.iter().enumerate() {
        let (columns, _) = columns.as_chunks::<16>();
        let columns: [__m512bh; VECTORS] = std::array::from_fn(|v| load(&columns[v]));
        for r in 0..R {
            let x = repeat(x[r][pair]);
            for v in 0..VECTORS {
                rows[r][v] = _mm512_dpbf16_ps(rows[r][v], x, columns[v]);
            }
        }
    }
    for (sums, row) in sums.iter_mut().zip(&rows) {
        let (sums, _) = sums.as_chunks_mut::<16>();
        for v in 0..VECTORS {
            #[expect(unsafe_code, reason = "stores take a pointer")]
            // SAFETY: the pointer is to 16 numbers, and need not be aligned.
            unsafe {
                _mm512_storeu_ps(sums[v].as_mut_ptr(), row[v]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn load(pairs: &[u32; 16]) -> __m512bh {
    #[expect(unsafe_code, reason = "loads take a pointer, and vectors of bf16 have no conversion")]
    // SAFETY: the pointer is to 16 numbers, and need not be aligned. Both vectors are 64 bytes.
    unsafe {
        std::mem::transmute(_mm512_loadu_si512(pairs.as_ptr().cast()))
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn repeat(pair: u32) -> __m512bh {
    #[expect(unsafe_code, reason = "vectors of bf16 have no conversion")]
    // SAFETY: both vectors are 64 bytes.
    unsafe {
        std::mem::transmute(_mm512_set1_epi32(pair.cast_signed()))
    }
}
