//! Matrix products into uninitialised memory.
//!
//! They use the `gemm` crate, as Burn's own product on the CPU does, with the same bits. Burn's
//! product first zeroes the result and copies it to aligned memory in one thread, which took an
//! eighth of the time of a training step of a small model (docs/LOG.md).

use burn::backend::flex::FlexTensor;
use burn::tensor::TensorData;

/// Multiplications from which threads are used, as in Burn.
const PARALLEL: usize = 192 * 192 * 192;

/// Returns `a · b` of two matrices in any layout, including transposed views.
///
/// # Panics
/// Panics if the shapes do not match or the product does not fit into memory.
pub(crate) fn product(a: &FlexTensor, b: &FlexTensor) -> FlexTensor {
    let (a, b) = (View::new(a), View::new(b));
    assert_eq!(a.columns, b.rows, "inner dimensions of the product differ");
    let (m, n, k) = (a.rows, b.columns, a.columns);
    let elements = m.checked_mul(n).expect("the number of elements of the product overflows usize");
    let mut out: Vec<f32> = Vec::with_capacity(elements);
    let threads = match m.saturating_mul(n).saturating_mul(k) >= PARALLEL {
        true => gemm::Parallelism::Rayon(0),
        false => gemm::Parallelism::None,
    };
    #[expect(
        unsafe_code,
        reason = "gemm's interface takes raw pointers; see the measurements above"
    )]
    // SAFETY: `View::new` has checked that each place that rows, columns and strides can name is inside of its slice.
    // The result has room for m · n numbers, which `usize` can count, at n to a row; `gemm` does not read it (`read_dst` is false) and writes all
    // of it, which makes `set_len` right. Nothing else refers to the result yet.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.numbers.as_ptr(),
            a.across,
            a.down,
            b.numbers.as_ptr(),
            b.across,
            b.down,
            0.0,
            1.0,
            false,
            false,
            false,
            threads,
        );
        out.set_len(elements);
    }
    FlexTensor::from_data(TensorData::new(out, [m, n]))
}

/// A view of a matrix, from its first number.
struct View<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    /// Row and column strides.
    down: isize,
    across: isize,
}

impl<'a> View<'a> {
    /// # Panics
    /// Panics if the tensor is not an `f32` matrix, or if its layout exceeds its storage.
    fn new(tensor: &'a FlexTensor) -> Self {
        let layout = tensor.layout();
        let ([rows, columns], [down, across]) = ([0, 1].map(|i| layout.shape()[i]), {
            let strides = layout.strides();
            [strides[0], strides[1]]
        });
        assert_eq!(layout.shape().num_dims(), 2, "a matrix");
        assert!(down >= 0 && across >= 0, "matrix strides are not negative");
        let numbers = &tensor.storage::<f32>()[layout.start_offset()..];
        if rows > 0 && columns > 0 {
            let along = |count: usize, stride: isize| (count - 1).checked_mul(stride as usize);
            let last = along(rows, down).zip(along(columns, across));
            let last = last.and_then(|(down, across)| down.checked_add(across));
            assert!(
                last.is_some_and(|last| last < numbers.len()),
                "the matrix exceeds its storage"
            );
        }
        Self { numbers, rows, columns, down, across }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::Flex;
    use burn::backend::ops::FloatTensorOps;

    /// A view of one number with 2³³ rows or columns; two of them have a product of 2⁶⁶ elements.
    #[test]
    #[should_panic(expected = "the number of elements of the product overflows usize")]
    fn a_product_whose_size_overflows_is_refused() {
        let one = FlexTensor::from_data(TensorData::new(vec![1.0_f32], [1, 1]));
        let expand = |shape: [usize; 2]| Flex::float_expand(one.clone(), shape.into());
        product(&expand([1 << 33, 1]), &expand([1, 1 << 33]));
    }
}
