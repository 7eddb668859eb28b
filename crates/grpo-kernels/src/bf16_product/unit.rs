//! Choice of the instruction set that computes a block.

use super::portable;
use crate::product::{ROWS, STRIP};

/// Sums of a block of at most [`ROWS`] rows and a strip of columns.
pub(super) type Sums = [[f32; STRIP]; ROWS];

/// An implementation of the sums. All of them have the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// AVX512-BF16, which multiplies pairs of terms.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(super::avx512::Token),
    /// Multiply-adds in `f32`, in vectors of whatever width the processor has.
    Portable,
}

impl Unit {
    /// Returns the fastest implementation for this processor.
    pub(super) fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = super::avx512::Token::new() {
            return Self::Avx512Bf16(token);
        }
        Self::Portable
    }

    /// Computes the sums of the first `rows` rows of `x`, which has shape `[rows][pairs]`, and a strip
    /// with as many pairs.
    pub(super) fn sum(self, x: &[u32], rows: usize, strip: &[[u32; STRIP]], sums: &mut Sums) {
        match rows {
            1 => self.sum_rows::<1>(x, strip, sums),
            2 => self.sum_rows::<2>(x, strip, sums),
            3 => self.sum_rows::<3>(x, strip, sums),
            4 => self.sum_rows::<4>(x, strip, sums),
            5 => self.sum_rows::<5>(x, strip, sums),
            _ => self.sum_rows::<6>(x, strip, sums),
        }
    }

    fn sum_rows<const R: usize>(self, x: &[u32], strip: &[[u32; STRIP]], sums: &mut Sums) {
        let pairs = strip.len();
        let x: [&[u32]; R] = std::array::from_fn(|row| &x[row * pairs..][..pairs]);
        let sums = sums.first_chunk_mut::<R>().expect("a block has at most ROWS rows");
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(token) => token.sum(x, strip, sums),
            Self::Portable => portable::sum(x, strip, sums),
        }
    }
}
