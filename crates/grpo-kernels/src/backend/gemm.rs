//! Matrix multiplication into uninitialised memory.
//!
//! Like Burn's CPU backend, this uses the `gemm` crate, and the results are bit-identical. Burn
//! first zeroes the output and then copies it to aligned memory on a single thread. For a small
//! model, this took an eighth of the training step time (see docs/LOG.md).

use burn::backend::flex::FlexTensor;
use burn::tensor::TensorData;

/// Products with at least this many multiplications use several threads, as in Burn.
const PARALLEL: usize = 192 * 192 * 192;

/// Returns the matrix product `a · b`. Any layout is supported, including transposed views.
///
/// # Panics
/// Panics if the shapes don't match, or if the product does not fit into memory.
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
    // SAFETY: `View::new` has checked that every element addressable by the rows, columns and
    // strides is inside its slice. The output has capacity for m · n numbers in rows of n, and this
    // product does not overflow `usize`. `gemm` doesn't read the output, because `read_dst` is
    // false, and it writes all of it, so `set_len` is valid. There are no other references to the
    // output yet.
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

/// A strided view of a matrix. The slice starts at the first element.
struct View<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    /// Row stride and column stride.
    down: isize,
    across: isize,
}

impl<'a> View<'a> {
    /// Creates a view of a tensor.
    ///
    /// # Panics
    /// Panics if the tensor is not an `f32` matrix, or if its layout extends beyond its storage.
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

    /// Expands a single number to 2³³ rows or columns. The product of two such views would have 2⁶⁶
    /// elements.
    #[test]
    #[should_panic(expected = "the number of elements of the product overflows usize")]
    fn a_product_whose_size_overflows_is_refused() {
        let one = FlexTensor::from_data(TensorData::new(vec![1.0_f32], [1, 1]));
        let expand = |shape: [usize; 2]| Flex::float_expand(one.clone(), shape.into());
        product(&expand([1 << 33, 1]), &expand([1, 1 << 33]));
    }
}
