//! The factors of the product: rows of `x`, and weight layouts with their conversion to `f32` in
//! registers.
//!
//! Narrow formats are converted exactly, so the results are bit-identical to those for the same
//! numbers in `f32`. The loops are written plainly and rely on auto-vectorisation.

use burn::backend::flex::{FlexQTensor, FlexTensor};
use burn::backend::{BackendTensor, DispatchKindConversion, DispatchTensor, Flex};
use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{DType, Tensor, bf16};
use pulp::Simd;

use crate::flex::primitive;
use crate::four_bits::{self, BYTES, SHARED, high, low};
use crate::prefetch::{LINE, LINE_BYTES, prefetch};
use crate::product::STRIP;

/// Rows of `x`. The slice may be longer.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    /// Shape `[rows, inner]`.
    pub(super) values: &'a [f32],
    pub(super) inner: usize,
}

/// A region of a weight matrix.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    F32(Strip<'a, f32>),
    /// The transpose of a matrix that is stored row by row, such as a tied head.
    Transposed(Transposed<'a>),
    Bf16(Strip<'a, bf16>),
    Quantized(Quantized<'a>),
    Packed(Packed<'a>),
}

/// Rows of numbers with a stride.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a, T> {
    pub(super) values: &'a [T],
    pub(super) stride: usize,
}

/// Columns of numbers with a stride: element `(i, j)` is at `j · stride + i`.
#[derive(Clone, Copy)]
pub(super) struct Transposed<'a>(pub(super) Strip<'a, f32>);

/// Quantised integers, with one scale for every [`SHARED`] of them.
#[derive(Clone, Copy)]
pub(super) struct Quantized<'a> {
    values: Strip<'a, i8>,
    scales: Strip<'a, f32>,
}

/// Two integers in a byte, with one scale for every [`SHARED`] integers.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    bytes: Strip<'a, i8>,
    scales: Strip<'a, f32>,
}

/// Rows of a weight that can be converted to `f32`.
pub(super) trait Widen: Copy {
    /// Whether the numbers are `f32` already.
    const IS_F32: bool = false;
    /// Whether the numbers of a column follow each other in memory, instead of those of a row.
    const IS_TRANSPOSED: bool = false;
    /// Number of columns in a cache line.
    const COLUMNS_PER_LINE: usize;

    /// Returns the region that starts at `row` and `column`. The column must be a multiple of
    /// [`STRIP`].
    fn at(self, row: usize, column: usize) -> Self;

    /// Converts numbers of `row` starting at `first` until `to` is full. The length of `to` must
    /// divide [`SHARED`] or be a multiple of it.
    fn widen(&self, row: usize, first: usize, to: &mut [f32]);

    /// Starts loading the number in `row` and `column` into the cache, if it exists.
    fn prefetch(&self, row: usize, column: usize);

    /// Same as `widen`, but returns `V` vectors in registers.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(&self, row: usize, first: usize) -> [S::f32s; V] {
        // The array doesn't escape, so the compiler keeps it in registers.
        let mut wide = [0.0; STRIP];
        let wide = &mut wide[..V * S::F32_LANES];
        self.widen(row, first, wide);
        let (vectors, _) = S::as_simd_f32s(wide);
        std::array::from_fn(|v| vectors[v])
    }
}

impl<T> Strip<'_, T> {
    #[inline(always)]
    fn offset(self, row: usize, column: usize) -> Self {
        let Self { values, stride } = self;
        Self { values: &values[row * stride + column..], stride }
    }

    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        if let Some(value) = self.values.get(row * self.stride + column) {
            prefetch(value);
        }
    }
}

impl Widen for Strip<'_, f32> {
    const IS_F32: bool = true;
    const COLUMNS_PER_LINE: usize = LINE;

    #[inline(always)]
    fn at(self, row: usize, column: usize) -> Self {
        self.offset(row, column)
    }

    #[inline(always)]
    fn widen(&self, row: usize, first: usize, to: &mut [f32]) {
        to.copy_from_slice(&self.values[row * self.stride + first..][..to.len()]);
    }

    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        Strip::prefetch(self, row, column);
    }
}

impl Widen for Transposed<'_> {
    const IS_TRANSPOSED: bool = true;
    const COLUMNS_PER_LINE: usize = 1;

    #[inline(always)]
    fn at(self, row: usize, column: usize) -> Self {
        Self(self.0.offset(column, row))
    }

    #[inline(always)]
    fn widen(&self, row: usize, first: usize, to: &mut [f32]) {
        let Self(Strip { values, stride }) = self;
        let column = values[first * stride + row..].iter().step_by(*stride);
        to.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
    }

    /// A cache line has many rows of a column.
    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        if row.is_multiple_of(LINE) {
            self.0.prefetch(column, row);
        }
    }
}

impl Widen for Strip<'_, bf16> {
    const COLUMNS_PER_LINE: usize = LINE_BYTES / 2;

    #[inline(always)]
    fn at(self, row: usize, column: usize) -> Self {
        self.offset(row, column)
    }

    #[inline(always)]
    fn widen(&self, row: usize, first: usize, to: &mut [f32]) {
        let from = &self.values[row * self.stride + first..][..to.len()];
        for (to, from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }

    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        Strip::prefetch(self, row, column);
    }
}

impl Widen for Quantized<'_> {
    const COLUMNS_PER_LINE: usize = LINE_BYTES;

    #[inline(always)]
    fn at(self, row: usize, column: usize) -> Self {
        let Self { values, scales } = self;
        Self { values: values.offset(row, column), scales: scales.offset(row, column / SHARED) }
    }

    #[inline(always)]
    fn widen(&self, row: usize, first: usize, to: &mut [f32]) {
        let Self { values, scales } = self;
        let from = &values.values[row * values.stride + first..][..to.len()];
        let scales = &scales.values[row * scales.stride..];
        let shared = to.len().min(SHARED);
        for (place, (to, from)) in to.chunks_mut(shared).zip(from.chunks(shared)).enumerate() {
            let scale = scales[(first + place * shared) / SHARED];
            for (to, from) in to.iter_mut().zip(from) {
                *to = f32::from(*from) * scale;
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        self.values.prefetch(row, column);
    }
}

impl Widen for Packed<'_> {
    const COLUMNS_PER_LINE: usize = 2 * LINE_BYTES;

    #[inline(always)]
    fn at(self, row: usize, column: usize) -> Self {
        let Self { bytes, scales } = self;
        Self { bytes: bytes.offset(row, column / 2), scales: scales.offset(row, column / SHARED) }
    }

    #[inline(always)]
    fn widen(&self, row: usize, first: usize, to: &mut [f32]) {
        let Self { bytes, scales } = self;
        let from = &bytes.values[row * bytes.stride..];
        let scales = &scales.values[row * scales.stride..];
        for (unit, to) in to.chunks_mut(BYTES).enumerate() {
            let column = first + unit * BYTES;
            let (block, within) = (column / SHARED, column % SHARED);
            let (from, scale) =
                (&from[block * BYTES + within % BYTES..][..to.len()], scales[block]);
            match within < BYTES {
                true => to.iter_mut().zip(from).for_each(|(to, &byte)| *to = low(byte) * scale),
                false => to.iter_mut().zip(from).for_each(|(to, &byte)| *to = high(byte) * scale),
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, row: usize, column: usize) {
        self.bytes.prefetch(row, column / 2);
    }
}

/// A weight in CPU memory.
pub(super) enum Held {
    /// Numbers in `f32` or `bf16`.
    Float(FlexTensor),
    Quantized(FlexQTensor),
    Packed(FlexQTensor),
}

impl Held {
    /// Wraps a weight. Quantised weights with an unsupported layout are converted to `f32`.
    pub(super) fn new(weight: Tensor<2>) -> Self {
        if let DType::QFloat(scheme) = weight.dtype() {
            let dispatch = weight.clone().into_dispatch();
            let held = <DispatchTensor as DispatchKindConversion<Flex>>::try_into_backend(dispatch);
            if let Ok(BackendTensor::Quantized(held)) = held
                && is_known(&scheme, &held)
            {
                return match scheme == four_bits::scheme() {
                    true => Self::Packed(held),
                    false => Self::Quantized(held),
                };
            }
            return Self::Float(primitive(four_bits::dense(weight)));
        }
        Self::Float(primitive(weight))
    }

    /// Returns the number of columns.
    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Float(weight) => weight.layout().shape()[1],
            Self::Quantized(weight) => weight.tensor().layout().shape()[1],
            Self::Packed(weight) => 2 * weight.tensor().layout().shape()[1],
        }
    }

    /// Copies a weight in `f32` or `bf16` to contiguous rows.
    ///
    /// # Panics
    /// Panics if the weight is quantised.
    pub(super) fn contiguous(&self) -> Self {
        match self {
            Self::Float(weight) => Self::Float(weight.to_contiguous()),
            Self::Quantized(_) | Self::Packed(_) => {
                unreachable!("quantised weights have a known layout")
            }
        }
    }

    /// Returns a view of the weight, or `None` if it has another layout.
    pub(super) fn rows(&self) -> Option<Rows<'_>> {
        match self {
            Self::Float(weight) => {
                let layout = weight.layout();
                let (start, strides) = (layout.start_offset(), layout.strides());
                // The stride of an axis of length 1 is arbitrary.
                let in_rows = strides[1] == 1 || layout.shape()[1] == 1;
                let in_columns = strides[1] > 0 && (strides[0] == 1 || layout.shape()[0] == 1);
                let stride = usize::try_from(strides[usize::from(!in_rows)]).ok()?;
                match weight.dtype() {
                    DType::F32 if in_rows || in_columns => {
                        let strip = Strip { values: &weight.storage::<f32>()[start..], stride };
                        let transposed = || Rows::Transposed(Transposed(strip));
                        Some(if in_rows { Rows::F32(strip) } else { transposed() })
                    }
                    _ if !in_rows => None,
                    _ => {
                        let values = &weight.storage::<bf16>()[start..];
                        Some(Rows::Bf16(Strip { values, stride }))
                    }
                }
            }
            Self::Packed(weight) => {
                let stride = weight.tensor().layout().shape()[1];
                let bytes = Strip { values: weight.tensor().storage::<i8>(), stride };
                let scales = Strip { values: weight.scales(), stride: stride / BYTES };
                Some(Rows::Packed(Packed { bytes, scales }))
            }
            Self::Quantized(weight) => {
                let stride = weight.tensor().layout().shape()[1];
                let values = Strip { values: weight.tensor().storage::<i8>(), stride };
                let scales = Strip { values: weight.scales(), stride: stride / SHARED };
                Some(Rows::Quantized(Quantized { values, scales }))
            }
        }
    }
}

/// Returns whether the weight consists of contiguous rows of bytes with a scale per [`SHARED`]
/// numbers, or is packed.
fn is_known(scheme: &QuantScheme, weight: &FlexQTensor) -> bool {
    let expected = |value: QuantValue| {
        QuantScheme::default()
            .with_value(value)
            .with_store(QuantStore::Native)
            .per_block([SHARED as u8], ScaleDtype::F32)
    };
    let layout = weight.tensor().layout();
    let bytes = match *scheme {
        same if same == four_bits::scheme() => BYTES,
        same if [QuantValue::Q8S, QuantValue::Q4S].map(expected).contains(&same) => SHARED,
        _ => return false,
    };
    layout.is_contiguous()
        && layout.start_offset() == 0
        && layout.num_elements() == bytes * weight.scales().len()
}
