//! Tensors read from files.

/// The values of a tensor in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f32>,
}

/// Converts bytes to numbers of `N` bytes each. Bytes after the last whole number are ignored.
pub(crate) fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (whole, _) = bytes.as_chunks::<N>();
    whole.iter().map(|&chunk| number(chunk)).collect()
}
